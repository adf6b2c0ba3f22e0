"The Erased block, the surgery, the statistics, where they teach nothing: layouts, shapes, refusals, counts."
import copy, math
import pytest, torch, torchvision
import torch.nn.functional as F
from torch import nn
from fedskew_nb.nets.convert import as_net
from fedskew_nb.nets.models import alexnet_bn, gap, n_bytes, n_params, resnet10, small_conv
from fedskew_nb.core.seeding import seeded
from fedskew_nb.core.net import Net, is_statistic
from fedskew_nb.methods.fdse.erase import (
    Erased, domain_share, cheap_copies, first_filters, batch_moments, layer_weights, moving_moments,
    statistics_gap, by_block, decompose, erased_blocks, is_eraser, part_of)

def randn(*shape, seed=0): return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))

def block(T=7, G=2, ghost=True, seed=0, **kw):
    "A block in float64 with filters and scales like after some training."
    with seeded(seed):
        b = Erased(nn.Conv2d(3, T, 3, padding=1, **kw), G=G, ghost=ghost).double()
        for p in b.parameters(): nn.init.normal_(p, .3)
    return b

# ---- the block

def slide(m, w):
    "A 3 × 3 filter over one map (h, w), zeros around it."
    p, (h, width) = F.pad(m, (1,1,1,1)), m.shape
    cells = [(p[i:i+3,j:j+3]*w).sum() for i in range(h) for j in range(width)]
    return torch.stack(cells).view(h, width)

def naive(blk, x):
    "Eqs. 2 and 3, image by image, channel by channel."
    out = []
    for img in blk.bn_dse(blk.dfe(x)).relu():
        each = len(blk.dse.weight)//len(img)                       # copies of a channel
        copies = [slide(m, blk.dse.weight[i*each+c,0]) for i, m in enumerate(img) for c in range(each)]
        maps = (list(img) if blk.ghost else [])+copies
        out.append(torch.stack(maps[:blk.T]))
    return blk.bn_dfe(torch.stack(out)+blk.bias[:,None,None])

@pytest.mark.parametrize('T', [7,8])
@pytest.mark.parametrize('G', [2,3,4])
@pytest.mark.parametrize('ghost', [True,False])
def test_block_equals_its_equations_written_as_loops(T, G, ghost):
    x = randn(2, 3, 5, 6, seed=2).double()
    with torch.no_grad(): assert (block(T, G, ghost)(x)-naive(block(T, G, ghost), x)).abs().max() < 1e-12

def sources(T, G, ghost):
    "For each output channel: (its channel of z, is it z itself?), found by raising one channel of z."
    b = block(T, G, ghost)
    t = b.dfe.out_channels
    ones = torch.eye(t).double()[:,:,None,None].expand(t, t, 3, 3)
    with torch.no_grad(): moved = b.copies(ones)[:,:,1,1]
    return [(int(c.abs().argmax()), bool(c.max() == 1 and c.abs().sum() == 1)) for c in moved.T]

@pytest.mark.parametrize('G,ghost,order,itself', [
    (2, True,  [0,1,2,3,0,1,2], 4), (2, False, [0,0,1,1,2,2,3], 0),
    (3, True,  [0,1,2,0,0,1,1], 3), (3, False, [0,0,0,1,1,1,2], 0)])
def test_which_output_is_made_of_which_channel(G, ghost, order, itself):
    found = sources(7, G, ghost)
    assert [i for i, _ in found] == order
    assert sum(same for _, same in found) == itself

CUTS = [(7,1,7,0), (7,2,4,1), (7,3,3,2), (7,4,2,1), (64,2,32,0), (64,3,22,2), (64,4,16,0)]

@pytest.mark.parametrize('T,G,t,cut_off', CUTS)
def test_channels_are_rounded_up_and_cut(T, G, t, cut_off):
    b = Erased(nn.Conv2d(3, T, 3), G=G)
    assert b.dfe.out_channels == t
    assert (0 if b.dse is None else b.dse.out_channels) == t*(G-1)
    assert t*G-T == cut_off

@pytest.mark.parametrize('T', [7,64])
@pytest.mark.parametrize('G', [1,2,3,4])
@pytest.mark.parametrize('ghost', [True,False])
def test_output_has_the_shape_of_the_layers(T, G, ghost):
    x = randn(2, 3, 5, 6).double()
    for kw in ({}, dict(stride=2), dict(bias=False, padding_mode='reflect')):
        want = nn.Conv2d(3, T, 3, padding=1, **kw).double()(x).shape
        assert block(T, G, ghost, **kw)(x).shape == want
    lin = Erased(nn.Linear(5, T), G=G, ghost=ghost)
    assert lin(randn(4, 5)).shape == (4,T) and lin.dfe.out_features == math.ceil(T/G)

def test_the_extractor_is_the_layers_first_filters_and_no_view_of_them():
    with seeded(0): conv = nn.Conv2d(3, 7, 5, stride=2, padding=2)
    dfe, x = first_filters(conv, 4), randn(2, 3, 8, 8, seed=1)
    assert torch.equal(dfe.weight, conv.weight[:4]) and dfe.weight.data_ptr() != conv.weight.data_ptr()
    assert torch.allclose(dfe(x), conv(x)[:,:4], atol=1e-6)

def test_sizes_of_cheap_copies():
    assert cheap_copies(4, 1, False).weight.shape == (4,1,3,3)
    assert cheap_copies(64, 2, True).weight.shape == (128,1,1)
    assert cheap_copies(4, 0, False) is None

def test_a_block_takes_the_layers_type_and_leaves_a_given_norm_alone():
    bn = nn.BatchNorm2d(4)
    b = Erased(nn.Conv2d(3, 4, 3).double(), bn)
    assert b.bn_dfe is bn and bn.weight.dtype == torch.float32
    assert {p.dtype for n, p in b.named_parameters() if not n.startswith('bn_dfe')} == {torch.float64}

def test_copies_of_a_linear_layers_features_are_the_same_numbers_up_to_sign():
    with seeded(1): lin = Erased(nn.Linear(20,8), G=2, ghost=False)
    r = torch.corrcoef(lin(randn(50, 20, seed=3)).detach().T)
    assert all(abs(abs(float(r[2*i,2*i+1]))-1) < 1e-3 for i in range(4))

def test_one_image_is_torchs_refusal_in_training_and_fine_in_eval():
    says = 'Expected more than 1 value per channel'
    with pytest.raises(ValueError, match=says): Erased(nn.Linear(5,4))(torch.rand(1,5))
    assert Erased(nn.Linear(5,4)).eval()(torch.rand(1,5)).shape == (1,4)

def test_between():
    levels = {d:torch.full((2,1), float(i)) for i, d in enumerate('abc')}
    assert float(domain_share(levels)) == pytest.approx(1)
    same = randn(50, 4, 3, 3)
    assert float(domain_share({d:same for d in 'abc'}).max()) == 0

# ---- what a block gives out

def test_blocks_in_training_give_out_what_bn_dfe_reads():
    net, x = decompose(small_conv(10, width=4)), torch.rand(4, 3, 32, 32)
    read = []
    def note(m, args): read.append(args[0])
    for b in erased_blocks(net).values(): b.bn_dfe.register_forward_pre_hook(note)
    out = net(x)
    assert list(out.aux['erased']) == [0,1,2,3]
    assert all(o is r for o, r in zip(out.aux['erased'].values(), read))
    assert net.tray == {}

def test_frozen_blocks_and_nets_in_eval_give_out_nothing():
    net, x = decompose(small_conv(10, width=4)), torch.rand(4, 3, 32, 32)
    list(erased_blocks(net).values())[1].eval()
    assert list(net(x).aux['erased']) == [0,2,3]
    assert 'erased' not in net.eval()(x).aux

def test_a_copied_net_has_a_tray_of_its_own():
    net = decompose(small_conv(10, width=4))
    twin = copy.deepcopy(net)
    assert all(b.tray is twin.tray is not net.tray for b in erased_blocks(twin).values())
    assert list(twin(torch.rand(4, 3, 32, 32)).aux['erased']) == [0,1,2,3] and net.tray == {}

def test_what_a_broken_pass_left_does_not_reach_the_next():
    net, x = decompose(small_conv(10, width=4)), torch.rand(4, 3, 32, 32)
    net.body(x)                                               # never answered
    for b in erased_blocks(net).values(): b.eval()
    assert 'erased' not in net(x).aux

def test_a_block_of_its_own_works_and_says_nothing():
    b = Erased(nn.Conv2d(3,4,3))
    assert b.tray is None and b(torch.rand(2,3,5,5)).shape == (2,4,3,3)

# ---- the surgery

def tiny(*body): return Net(nn.Sequential(*body), gap(), nn.Linear(8,3))
def conv(**kw): return nn.Conv2d(3, 8, 3, **kw)
def second(**kw): return nn.Conv2d(8, 8, 3, **kw)

class Fork(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = conv(), nn.BatchNorm2d(8)
    def forward(self, x):
        o = self.conv(x)
        return o+self.bn(o)

class Again(Fork):
    def forward(self, x): return self.bn(self.bn(self.conv(x)).relu())

def same_layer():
    again = second()
    return tiny(conv(), again, again)

def same_norm():
    bn = nn.BatchNorm2d(8)
    return tiny(conv(), bn, second(), bn)

REFUSED = [
    (lambda: tiny(conv(), nn.GroupNorm(2,8)), 'body.0 is followed by body.1, a GroupNorm'),
    (lambda: tiny(conv(), nn.LayerNorm([8,30,30])), 'body.1, a LayerNorm'),
    (lambda: tiny(conv(), nn.ReLU(), nn.GroupNorm(2,8)), 'keeps no statistics that could be compared'),
    (lambda: tiny(conv(), second(groups=8)), 'body.1 has groups=8'),
    (lambda: tiny(conv(), nn.PReLU()), 'body.1 is a PReLU, neither Conv2d nor Linear'),
    (same_layer, 'body.1 is used 2 times'),
    (same_norm, 'body.1 stands behind several layers'),
    (lambda: tiny(conv(), nn.BatchNorm2d(8, track_running_stats=False)),
     'body.1, a BatchNorm2d that keeps no statistics'),
    (lambda: tiny(nn.Identity(), nn.Conv2d(3,8,1), nn.ReLU(), nn.InstanceNorm2d(8, affine=True)),
     'body.3 is a InstanceNorm2d'),
    (lambda: tiny(Fork()), 'the output of body.0.conv is read by body.0.bn and by something else'),
    (lambda: tiny(Again()), 'body.0.bn is used 2 times')]

@pytest.mark.parametrize('make,words', REFUSED, ids=[w for _, w in REFUSED])
def test_what_cannot_be_split_is_refused_and_left_as_it_is(make, words):
    net = make()
    before = str(net)
    with pytest.raises(ValueError, match=words): decompose(net)
    assert str(net) == before

@pytest.mark.parametrize('G,words', [
    (0, 'G is 0: give a whole number of at least 1'),
    (1.5, 'G is 1.5'),
    (2., 'G is 2.0'),
    (float('nan'), 'G is nan'),
    (True, 'G is True'),
    (-2, 'G is -2'),
    (9, 'body.0 has 8 channels, fewer than G = 9')])
def test_a_bad_G_is_refused(G, words):
    with pytest.raises(ValueError, match=words): decompose(tiny(conv()), G)

def kinds(body): return [type(m).__name__ for m in body]

def test_whole_leaves_alone_what_cannot_be_split():
    net = decompose(tiny(conv(), nn.ReLU(), second(groups=2), nn.BatchNorm2d(8)), whole=True)
    assert kinds(net.body) == ['Erased','ReLU','Conv2d','BatchNorm2d']
    none = tiny(conv(), nn.GroupNorm(2,8))
    with pytest.raises(ValueError, match='no layer to decompose'): decompose(none, whole=True)

def test_a_net_without_layers_is_refused():
    class Blank(nn.Module):
        def forward(self, x): return x.mean((2,3))[:,:1].expand(-1,8)
    blank = Net(nn.Identity(), Blank(), nn.Linear(8,3))
    with pytest.raises(ValueError, match='there is no layer to decompose'): decompose(blank)

def test_a_norm_behind_an_inplace_relu_is_not_the_layers():
    net = decompose(tiny(conv(), nn.ReLU(inplace=True), nn.BatchNorm2d(8)))
    assert kinds(net.body) == ['Erased','ReLU','BatchNorm2d']

def test_splitting_twice_is_refused():
    net = decompose(small_conv(10))
    with pytest.raises(ValueError, match='body.block1.conv.dse has groups=8'): decompose(net)

def test_names_have_owners():
    net = decompose(small_conv(10))
    names, mine, group = list(net.state_dict()), is_eraser(net), by_block(net)
    first = [f'body.block1.conv.{k}' for k in ('bn_dse.weight','bn_dse.bias','dse.weight')]
    assert [n for n in names if mine(n)][:3] == first
    assert not any(mine(n) and is_statistic(n) for n in names)
    blocks = [f'body.block{k}.conv' for k in (1,2,3)]
    assert sorted(set(map(group, names))) == [*blocks,'head','pool.fc']
    assert sum(map(part_of(net, 'bn_dfe'), names)) == 4*5

def torchvision_net(name):
    with seeded(0): return as_net(getattr(torchvision.models, name)(weights=None), n_classes=7, size=64)

@pytest.mark.parametrize('make,blocks,whole', [
    (lambda: small_conv(10), 4, False),
    (lambda: resnet10(10, width=16), 12, False),
    (lambda: torchvision_net('resnet18'), 20, False),
    (lambda: torchvision_net('mobilenet_v3_small'), None, True)])
def test_nets_answer_in_the_same_shape(make, blocks, whole):
    net = make()
    x = torch.zeros(2, 3, net.image_size, net.image_size)
    shape = net.eval()(x).logits.shape
    with seeded(0): decompose(net, whole=whole)
    assert net(x).logits.shape == shape and not isinstance(net.head, Erased)
    if blocks: assert len(erased_blocks(net)) == blocks

def test_a_resnets_blocks_keep_their_filters_and_add_no_relu():
    with seeded(0): net = decompose(resnet10(10, width=8))
    blk, plain = net.body.layer2[0], resnet10(10, width=8)
    layers = (blk.conv2, blk.bn2, blk.shortcut.conv, blk.shortcut.bn)
    assert kinds(layers) == ['Erased','Identity','Erased','Identity']
    assert torch.equal(net.body.stem.conv.dfe.weight, plain.body.stem.conv.weight[:4])
    with torch.no_grad(): assert blk.conv2(randn(2, 16, 4, 4)).min() < 0

def test_vgg_without_batchnorm_gets_one_in_every_block():
    with torch.device('meta'):
        v = torchvision.models.vgg11(weights=None)
        net = Net(v.features, nn.Sequential(v.avgpool, nn.Flatten(), *v.classifier[:-1]), v.classifier[-1])
        blocks = erased_blocks(decompose(net, size=64))
    assert len(blocks) == 10 and all(type(b.bn_dfe).__name__.startswith('BatchNorm') for b in blocks.values())

# ---- counts of the paper's Table 4

LAYERS = dict(conv1=(3,64,11), conv2=(64,192,5), conv3=(192,384,3), conv4=(384,256,3), conv5=(256,256,3),
              fc1=(9216,1024,0), fc2=(1024,1024,0))

def trained_numbers(S, T, k, G=2):
    "Of a block in place of a k × k convolution from S to T channels (k = 0: a linear layer), with bias."
    t = math.ceil(T/G)
    return S*t*(k*k or 1)+t + 2*t+(9*t*(G-1) if k else t*G) + 3*T

ALEXNETS = [(10, 12_974_154, 6_509_034, (49.5169,24.8667)), (7, 12_971_079, 6_505_959, None)]

@pytest.mark.parametrize('classes,plain,ours,mib', ALEXNETS)
def test_parameters_of_alexnet(classes, plain, ours, mib):
    with torch.device('meta'):
        net = alexnet_bn(classes, size=256)
        before = n_params(net), n_bytes(net)/2**20
        decompose(net)
    assert (before[0], n_params(net)) == (plain, ours)
    assert n_params(net) == sum(trained_numbers(*l) for l in LAYERS.values())+1024*classes+classes
    if mib: assert (before[1], n_bytes(net)/2**20) == pytest.approx(mib, abs=5e-5)

# ---- statistics, Eqs. 4 to 7

def test_moments_are_batchnorms_and_can_be_biased():
    bn, o = nn.BatchNorm2d(7, momentum=1.), randn(6, 7, 5, 4, seed=5)*3+1
    bn(o)
    mu, var = batch_moments(o)
    n = o[:,0].numel()
    assert torch.allclose(mu, bn.running_mean, atol=1e-6) and torch.allclose(var, bn.running_var, atol=1e-5)
    assert torch.allclose(batch_moments(o, biased=True)[1], var*(n-1)/n, atol=1e-5)
    assert torch.allclose(batch_moments(o[...,0,0])[1], o[...,0,0].var(0), atol=1e-5)

def test_moments_are_float32_or_finer():
    o = randn(6, 7, 5, 4)
    assert batch_moments(o.half())[0].dtype == torch.float32
    assert batch_moments(o.double())[0].dtype == torch.float64

def test_moving_moments_stay_batchnorms_over_ten_batches():
    bn, now = nn.BatchNorm2d(7), (torch.zeros(7), torch.ones(7))
    for s in range(10):
        o = randn(6, 7, 5, 4, seed=s)
        bn(o)
        now = moving_moments(now, batch_moments(o))
    assert torch.allclose(now[0], bn.running_mean, atol=1e-6)
    assert torch.allclose(now[1], bn.running_var, atol=1e-5)

def test_gap_is_the_papers_formula():
    mu, var, mu_g, var_g = randn(7), randn(7, seed=1)**2, randn(7, seed=2), randn(7, seed=3)**2
    paper = (mu-mu_g).norm()**2/7 + ((var.norm(p=1)-var_g.norm(p=1))/7)**2
    assert float(statistics_gap(mu, var, mu_g, var_g)) == pytest.approx(float(paper), abs=1e-5)
    assert float(statistics_gap(mu, var, mu, var)) == 0
    swapped = statistics_gap(mu, var, mu, var.flip(0))                                        # unseen
    assert float(swapped) == pytest.approx(0, abs=1e-12)

@pytest.mark.parametrize('gamma', [0., .5, .9, .99])
def test_gradient_of_the_gap_is_its_closed_form(gamma):
    def double(*v): return torch.tensor(v).double()
    scale, shift = double(1.,2,.5)[:,None,None], double(0.,1,-1)[:,None,None]
    o = (randn(4, 3, 5, 5, seed=7).double()*scale+shift).requires_grad_()
    before, glob = (double(0.,0,0), double(1.,1,1)), (double(.2,-.1,0), double(.5,.5,1.2))
    hat = moving_moments(before, batch_moments(o), gamma)
    grad, = torch.autograd.grad(statistics_gap(*hat, *glob), o, retain_graph=True)
    n, C = o[:,0].numel(), 3
    mean = 2*(1-gamma)*(hat[0]-glob[0])[:,None,None]/(C*n)
    spread = 2*(1-gamma)*(hat[1].mean()-glob[1].mean())/C*2*(o-o.mean((0,2,3))[:,None,None])/(n-1)
    want = (mean+spread).detach()
    assert float((grad-want).abs().max()/grad.abs().max()) < 1e-12

@pytest.mark.parametrize('L, beta', [(7,1e-3), (7,1.), (7,0.), (1,5.)])
def test_layer_weights_sum_to_one(L, beta):
    assert float(layer_weights(L, beta).sum()) == pytest.approx(1, abs=1e-12)

def test_layer_weights_are_a_softmax_of_the_depth():
    from_one = torch.softmax(.3*torch.arange(1, 8).double(), 0)
    assert torch.allclose(from_one, layer_weights(7, .3), atol=1e-12)

def test_a_channel_that_never_fires_stays_finite():
    mute = Erased(nn.Conv2d(3,4,3))
    nn.init.constant_(mute.bn_dse.bias, -100.)
    mu, var = batch_moments(mute.before(torch.rand(2, 3, 5, 5)))
    L = statistics_gap(mu, var, torch.zeros(4), torch.ones(4))
    assert L.isfinite() and float(var.sum().detach()) == 0
    assert torch.autograd.grad(L, mute.dfe.weight)[0].isfinite().all()
