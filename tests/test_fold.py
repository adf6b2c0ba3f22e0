"Folded norms: every model plain, split and decoupled; what must not be folded; what must not be touched."
import copy
from dataclasses import dataclass
import pytest, torch
from torch import nn
import fedskew_nb.core.merge
from fedskew_nb.core.method import Method
from fedskew_nb.core.models import MODELS, gap, resnet10, small_conv
from fedskew_nb.core.seeding import seeded
from fedskew_nb.core.net import Net
from fedskew_nb.core.seeding import Random, generator
from fedskew_nb.core.trace import tensors_in, trace_layers
from fedskew_nb.engine.fold import Folding, foldable
from fedskew_nb.methods.f2dc.method import DC, F2DC
from fedskew_nb.methods.fdse.method import Erase

BN = nn.modules.batchnorm._BatchNorm
METHODS = dict(plain=Method('plain'), erase=Method('erase', Erase()), f2dc=F2DC)

def norms(net): return [n for n, m in net.named_modules() if isinstance(m, BN)]
def relus(net): return [m.inplace for m in net.modules() if isinstance(m, nn.ReLU)]

def images(n=3, dtype=torch.float32, size=32):
    return torch.rand(n, 3, size, size, generator=generator('images')).to(dtype)

@torch.no_grad()
def seasoned(net, seed=1):
    "As after some training: norms that scale, shift and remember."
    g = generator('seasoned', seed)
    def fill(t, make): t.copy_(make(t.shape, generator=g))
    for m in net.modules():
        if not isinstance(m, BN): continue
        if m.running_mean is not None:
            fill(m.running_mean, torch.randn)
            fill(m.running_var, torch.rand)
            m.running_var.add_(.2)
        if m.affine:
            fill(m.weight, torch.randn)
            fill(m.bias, torch.randn)
    return net.eval()

@torch.no_grad()
def check(net, eps=1e-5, size=32):
    "Folded and plain say the same, in all that they hand out; the folding."
    f, x = Folding(net, size), images(dtype=next(net.parameters()).dtype, size=size)
    seasoned(net)
    a, b = net(x), f.load(net.state_dict())(x)
    for u, v in zip(tensors_in(a), tensors_in(b), strict=True):
        assert u.dtype == v.dtype and (u-v).abs().max() <= eps*max(1, float(u.abs().max()))
    return f

# ---- the models

@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('model', MODELS)
@pytest.mark.parametrize('dtype,eps', [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_models(model, method, dtype, eps):
    net = METHODS[method].adapt(MODELS[model](7, width=4)).to(dtype)
    f = check(net, eps)
    left = set(norms(net))-set(f.pairs.values())
    assert f.pairs and set(norms(f.net)) == left
    behind_a_sum = {n for n in norms(net) if n.endswith('bn_dfe')}           # of parts: nobody's
    assert left == (behind_a_sum if method == 'erase' else set())
    if method == 'f2dc': assert any(n.startswith('neck.') for n in f.pairs)
    if method == 'erase': assert all(n.endswith('.dfe') and b == n[:-4]+'.bn_dse' for n, b in f.pairs.items())

def test_known_pairs():
    pairs = Folding(resnet10(7, width=4)).pairs
    assert pairs['body.layer2.0.shortcut.conv'] == 'body.layer2.0.shortcut.bn'
    assert pairs['body.stem.conv'] == 'body.stem.bn' and len(pairs) == 12
    assert Folding(MODELS['alexnet_bn'](7, width=4)).pairs['pool.fc1.fc'] == 'pool.fc1.bn'

@pytest.mark.parametrize('size', [28, 48])
def test_sizes(size): assert len(check(resnet10(5, width=4, size=size), size=size).pairs) == 12

@pytest.mark.parametrize('hp', [dict(hard=True), dict(test_noise=True), dict(preset='released')])
def test_f2dc_variants(hp): assert len(check(DC(**hp).adapt(small_conv(5, width=4))).pairs) >= 5

@pytest.mark.parametrize('hp', [dict(G=3), dict(G=1), dict(ghost=False), dict(relu=False)])
def test_erase_variants(hp):
    assert len(check(Method('e', Erase(**hp)).adapt(small_conv(5, width=4))).pairs) >= 4

def test_predictions_of_a_method():
    "Paths that a method adds read the folded net as they read the plain one."
    net, x = F2DC.adapt(small_conv(5, width=4)), images()
    f = check(net)
    with torch.no_grad(): a, b = (F2DC.union('predict', n, n(x)) for n in (net, f.net))
    assert a and all(torch.allclose(a[k], b[k], atol=1e-5) for k in a)

LAYERS = [
    lambda **k: nn.Conv2d(3, 6, 3, stride=2, padding=1, groups=3, **k),
    lambda **k: nn.Conv2d(3, 3, 5, dilation=2, groups=3, padding='same', **k),
    lambda **k: nn.Conv2d(3, 6, 3, padding=1, padding_mode='circular', **k)]

@pytest.mark.parametrize('affine', [True, False])
@pytest.mark.parametrize('bias', [True, False])
@pytest.mark.parametrize('make', LAYERS)
def test_single_convolutions(make, bias, affine):
    with seeded(0): layer = make(bias=bias)
    C = len(layer.weight)
    norm = nn.BatchNorm2d(C, eps=.01, affine=affine)
    net = Net(nn.Sequential(layer, norm), gap(), nn.Linear(C, 4)).double()
    assert check(net, 1e-12).pairs == {'body.0': 'body.1'}

@pytest.mark.parametrize('affine', [True, False])
@pytest.mark.parametrize('bias', [True, False])
def test_single_linear_layers(bias, affine):
    with seeded(0): pool = nn.Sequential(gap(), nn.Linear(3, 6, bias=bias), nn.BatchNorm1d(6, eps=.01, affine=affine))
    assert check(Net(nn.Identity(), pool, nn.Linear(6, 4)).double(), 1e-12).pairs == {'pool.1': 'pool.2'}

@torch.no_grad()
def test_dead_and_loud_channels():
    net = small_conv(5, width=4)
    f = Folding(net)
    seasoned(net)
    net.body.block1.bn.running_var[:2] = torch.tensor([0, 1e8])
    net.body.block2.bn.weight[0] = 0
    a, b = net(images()).logits, f.load(net.state_dict())(images()).logits
    assert b.isfinite().all() and (a-b).abs().max() <= 1e-5*max(1, float(a.abs().max()))

# ---- what is left alone

class Block(nn.Module):
    "A layer and its norm; what becomes of them is said by `go(block, x)`."
    def __init__(self, go, layer=None, norm=None):
        super().__init__()
        self.conv, self.bn, self.go = layer or nn.Conv2d(3, 3, 3, padding=1), norm or nn.BatchNorm2d(3), go
    def forward(self, x): return self.go(self, x)

class Scaled(nn.Conv2d):
    def forward(self, x): return 2*super().forward(x)

class Listed(Block):
    "Calls its norm from a plain list, which knows nothing of a replaced module."
    def __init__(self):
        super().__init__(lambda s, x: s.steps[1](s.steps[0](x)))
        self.steps = [self.conv, self.bn]

@dataclass
class Notes: z: torch.Tensor|None = None
class Noted(Block):
    def __init__(self):
        super().__init__(None)
        self.notes = Notes()
    def forward(self, x):
        self.notes.z = self.conv(x)
        return self.bn(self.notes.z)

def tiny(*body, pool=gap): return Net(nn.Sequential(*body), pool(), nn.Linear(3, 4))
def conv(**k): return nn.Conv2d(3, 3, 3, **k)
def bn(**k): return nn.BatchNorm2d(3, **k)

def kept(s, x):
    s.last = [s.conv(x)]
    return s.bn(s.last[0])
def mean_read(s, x):
    z = s.conv(x)
    return s.bn(z)+z.mean()
def parts_read(s, x):
    z = s.conv(x)
    return s.bn(z)*z.unbind(1)[0][:, None]
def number_read(s, x):
    z = s.conv(x)
    return s.bn(z)*(2 if float(z.sum()) > 0 else 1)
def changed_before(s, x): return s.bn(s.conv(x).mul_(2))
def changed_after(s, x):
    z = s.conv(x)
    y = s.bn(z)
    z.add_(1)
    return y+z
def read_elsewhere(s, x):
    z = s.conv(x)
    return z+s.bn(z)
def of_sequences(s, x):
    rows = s.conv(x.flatten(2).transpose(1, 2)).transpose(1, 2)
    return s.bn(rows).reshape(x.shape)

def hooked(change):
    net = tiny(nn.Conv2d(3, 3, 1), bn())
    change(net.body)
    return net
def two_names():
    net = tiny(conv(), bn())
    net.twin = nn.ModuleDict(dict(bn=net.body[1]))
    return net
def one_norm_behind_two():
    shared = bn()
    return tiny(conv(), shared, conv(), shared)
def tied(of, what):
    net = tiny(conv(), bn(), conv(), bn())
    setattr(net.body[of+2], what, getattr(net.body[of], what))
    return net

WAYS = {    # what a block does with its layer and its norm
    'layer used twice': lambda s, x: s.bn(s.conv(s.conv(x))),
    'layer used again, without the norm': lambda s, x: s.conv(s.bn(s.conv(x))),
    'norm used twice': lambda s, x: s.bn(s.bn(s.conv(x))),
    'layer weight read': lambda s, x: s.bn(s.conv(x))*s.conv.weight.mean(),
    'norm weight read': lambda s, x: s.bn(s.conv(x))*s.bn.weight.mean(),
    'norm weight read of bright images': lambda s, x: s.bn(s.conv(x))*(s.bn.weight.sum() if x.max() > 0 else 1),
    'read elsewhere': read_elsewhere, 'mean read': mean_read, 'parts read': parts_read, 'number read': number_read,
    'changed before': changed_before, 'changed after': changed_after, 'kept in a list': kept}
ALONE = {name: lambda go=go: tiny(Block(go)) for name, go in WAYS.items()} | {
    'kept in a dataclass': lambda: tiny(Noted()),
    'called from a list': lambda: tiny(Listed()),
    'handed out': lambda: Net(conv(), nn.Sequential(bn(), gap()), nn.Linear(3, 4)),
    'something between': lambda: tiny(conv(), nn.ReLU(), bn()),
    'inplace between': lambda: tiny(conv(), nn.ReLU(inplace=True), bn()),
    'GroupNorm': lambda: tiny(conv(), nn.GroupNorm(3, 3)),
    'InstanceNorm': lambda: tiny(conv(), nn.InstanceNorm2d(3, track_running_stats=True)),
    'no statistics': lambda: tiny(conv(), bn(track_running_stats=False)),
    'norm first': lambda: tiny(bn(), conv()),
    'subclass': lambda: tiny(Scaled(3, 3, 3), bn()),
    'weight norm': lambda: tiny(nn.utils.parametrizations.weight_norm(conv()), bn()),
    'transposed': lambda: tiny(nn.ConvTranspose2d(3, 3, 3), bn()),
    'sequences': lambda: tiny(Block(of_sequences, nn.Linear(3, 3), nn.BatchNorm1d(3))),
    'one norm behind two': one_norm_behind_two,
    'norm has two names': two_names,
    'layer weight tied': lambda: tied(0, 'weight'),
    'norm bias tied': lambda: tied(1, 'bias'),
    'buffer tied': lambda: tied(1, 'running_mean'),
    'hook on the layer': lambda: hooked(lambda b: b[0].register_forward_hook(lambda m, i, o: 2*o)),
    'hook before the norm': lambda: hooked(lambda b: b[1].register_forward_pre_hook(lambda m, i: (2*i[0],))),
    'another forward': lambda: hooked(lambda b: setattr(b[1], 'forward', lambda x: x-1)),
    'no layers': lambda: Net(nn.Identity(), gap(), nn.Linear(3, 4))}

@pytest.mark.parametrize('why', ALONE)
def test_left_alone(why):
    with seeded(0): net = ALONE[why]()
    f = check(net)
    assert f.pairs == {} and norms(f.net) == norms(net)

def test_neighbours_are_folded():
    "One that must stay does not keep the others."
    with seeded(0):
        first, last = [conv(), bn(), nn.ReLU(inplace=True)], [conv(groups=3, bias=False), bn(affine=False)]
        net = tiny(*first, conv(), nn.ReLU(), bn(), *last)
    assert check(net).pairs == {'body.0': 'body.1', 'body.6': 'body.7'}

def test_keyword_arguments():
    with seeded(0): net = tiny(Block(lambda s, x: s.bn(input=s.conv(input=x))))
    assert len(check(net).pairs) == 1

def test_unusable_net_says_so():
    with pytest.raises(RuntimeError): Folding(Net(nn.Conv2d(4, 3, 1), gap(), nn.Linear(3, 4)))

# ---- ReLUs that write over what they read

@pytest.mark.parametrize('model', ['small_conv', 'alexnet_bn'])
@torch.no_grad()
def test_relus_overwrite(model):
    "In the folded copy alone, and without a bit of difference; every copy for another lane too."
    net, x = MODELS[model](5, width=4), images()
    f = check(net)
    assert relus(net) and not any(relus(net)) and all(relus(f.net)) and all(relus(copy.deepcopy(f).net))
    a = f.net(x)
    for m in f.net.modules(): m.inplace = False
    assert all(map(torch.equal, tensors_in(a), tensors_in(f.net(x)))) and torch.equal(x, images())

def keeps_input(s, x):
    s.last = x
    return s.relu(x)
@pytest.mark.parametrize('go', [keeps_input, lambda s, x: s.relu(x)-x, lambda s, x: s.relu(x[:, :1].expand(-1, 3, -1, -1))],
                         ids=['kept', 'used again', 'cannot be written to'])
def test_relus_whose_input_is_wanted(go):
    last = Block(go, nn.Identity(), nn.Identity())
    last.relu = nn.ReLU()
    with seeded(0): net = tiny(conv(), bn(), last)
    f = check(net)
    assert len(f.pairs) == 1 and not any(relus(f.net))

# ---- what is kept, what is not touched

def test_memory_format():
    net = resnet10(5, width=8).to(memory_format=torch.channels_last)
    f = Folding(net)
    f.load({n: v.contiguous() for n, v in net.state_dict().items()})
    strides = {n: v.stride() for n, v in net.state_dict().items() if n.endswith('conv.weight')}
    assert strides and strides == {n: f.net.state_dict()[n].stride() for n in strides}
    assert f.net(images().contiguous(memory_format=torch.channels_last)).fmap.is_contiguous(memory_format=torch.channels_last)

@torch.no_grad()
def test_the_second_state_counts():
    a, b = (seasoned(small_conv(5, width=4, seed=s), s) for s in (0, 1))
    f, x = Folding(a), images()
    where = {n: v.data_ptr() for n, v in f.net.state_dict().items()}
    first, second, again = (f.load(net.state_dict())(x).logits for net in (a, b, a))
    assert torch.equal(second, Folding(b).net(x).logits)
    assert torch.equal(first, again) and not torch.equal(first, second)
    assert where == {n: v.data_ptr() for n, v in f.net.state_dict().items()} and f.load(a.state_dict()) is f.net
    assert not f.net.training and not any(p.requires_grad for p in f.net.parameters())

def all_about(net):
    "Modes, gradients, numbers and generators."
    return dict(text=str(net), modes={n: m.training for n, m in net.named_modules()},
                grads={n: p.requires_grad for n, p in net.named_parameters()},
                numbers={n: v.tolist() for n, v in net.state_dict().items()},
                noise={n: m.generator.get_state().tolist() for n, m in net.named_modules() if isinstance(m, Random)},
                hooks=[n for n, m in net.named_modules() if m._forward_hooks or m._forward_pre_hooks],
                dice=torch.random.get_rng_state().tolist())

def test_nothing_else_is_touched():
    net = F2DC.adapt(small_conv(5, width=4)).train()
    for n, m in net.named_modules():
        if isinstance(m, Random): m.generator = generator(n)
    before = all_about(net)
    f = Folding(net)
    f.load({n: v*2 for n, v in net.state_dict().items()})
    assert before['noise'] and all_about(net) == before and not all_about(f.net)['hooks']
    assert not {v.data_ptr() for v in net.state_dict().values()} & {v.data_ptr() for v in f.net.state_dict().values()}

@pytest.mark.parametrize('number', [0., float('nan')])
@torch.no_grad()
def test_decided_by_the_net_not_by_its_numbers(number):
    net = resnet10(5, width=4)
    f = Folding(net)
    for p in net.parameters(): p.fill_(number)
    g = Folding(net)
    assert g.pairs == f.pairs and relus(g.net) == relus(f.net)

@torch.no_grad()
def test_copies_of_a_folding():
    net, other, x = small_conv(5, width=4), seasoned(small_conv(5, width=4, seed=3), 3), images()
    f = Folding(seasoned(net))
    twin, was = copy.deepcopy(f), f.net(x).logits
    assert torch.equal(twin.load(other.state_dict())(x).logits, Folding(other).net(x).logits)
    assert torch.equal(f.net(x).logits, was)

def test_wrong_states():
    f, state = Folding(small_conv(5, width=4)), small_conv(5, width=4).state_dict()
    with pytest.raises(KeyError, match='load a state of the net that was folded'): f.load(resnet10(5, width=4).state_dict())
    with pytest.raises(KeyError, match='head.bias'): f.load({n: v for n, v in state.items() if n != 'head.bias'})
    with pytest.raises(RuntimeError): f.load(small_conv(5, width=8).state_dict())

class Counted(nn.Module):
    "A module with a state of its own kind."
    k = 1
    def get_extra_state(self): return dict(k=self.k)
    def set_extra_state(self, s): self.k = s['k']
    def forward(self, x): return x*self.k
def test_extra_state():
    net = tiny(conv(), bn(), Counted())
    f = Folding(net)
    net.body[2].k = 7
    assert f.load(net.state_dict()).body[2].k == 7 and len(check(net).pairs) == 1

# ---- the trace

def test_trace_reads_a_net_as_it_is():
    net, dice = small_conv(5, width=4).train(), torch.random.get_rng_state()
    uses, readers = trace_layers(net)
    assert list(uses) == [*(f'body.block{i}.conv' for i in (1, 2, 3)), 'pool.fc', 'head']
    assert net.training and torch.equal(dice, torch.random.get_rng_state())
    assert readers['body.block1.bn.running_var'] == readers['pool.fc.weight'] == 1
    assert foldable(net) == Folding(net).pairs

@pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device')
def test_cuda(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, 'allow_tf32', False)
    net, dice = resnet10(5, width=8).cuda().to(memory_format=torch.channels_last), torch.cuda.get_rng_state()
    f = Folding(net)
    assert torch.equal(dice, torch.cuda.get_rng_state()) and len(f.pairs) == 12
    seasoned(net.cpu())
    f.load(net.state_dict())                # a state from another device
    with torch.no_grad(): a, b = net.cuda()(images().cuda()).logits, f.net(images().cuda()).logits
    assert b.is_cuda and (a-b).abs().max() <= 1e-5*max(1, float(a.abs().max()))
