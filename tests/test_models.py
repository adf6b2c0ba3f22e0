"Models: what teaches nothing, but must hold."
import copy
import pytest, torch, torchvision
from feds import same
from torch import nn
from fedskew_nb.nets.convert import FAMILIES, IMAGENET, REFUSED, DropPath, as_net
from fedskew_nb.nets.models import (
    MODELS, alexnet_bn, has_batchnorm, has_convs, has_map, n_params, resnet10, small_conv)
from fedskew_nb.core.net import Net, probe
from fedskew_nb.core.tried import check_net
from fedskew_nb.core.seeding import Dropout, Random, seeded

tvm = torchvision.models

def gen(seed): return torch.Generator().manual_seed(seed)

def slim(net, width=8):
    "The same classifier with hidden layers of 8 in place of 4096."
    first, second, last = (m for m in net.classifier if isinstance(m, nn.Linear))
    sizes = {first: (first.in_features, width), second: (width, width), last: (width, last.out_features)}
    net.classifier = nn.Sequential(*(nn.Linear(*sizes[m]) if m in sizes else m for m in net.classifier))
    return net

def vgg():
    layers = tvm.vgg.make_layers([8, 'M', 16, 'M', 512, 'M'], batch_norm=True)
    return slim(tvm.VGG(layers, init_weights=False))

def convnext():
    blocks = [tvm.convnext.CNBlockConfig(16, 32, 1), tvm.convnext.CNBlockConfig(32, None, 1)]
    return tvm.ConvNeXt(blocks, stochastic_depth_prob=.2)

SMALL = dict(
    AlexNet=lambda: slim(tvm.alexnet()),
    ConvNeXt=convnext,
    DenseNet=lambda: tvm.DenseNet(growth_rate=8, block_config=(2, 2), num_init_features=16),
    EfficientNet=tvm.efficientnet_b0,
    MNASNet=lambda: tvm.MNASNet(.35),
    MobileNetV2=lambda: tvm.mobilenet_v2(width_mult=.25),
    MobileNetV3=tvm.mobilenet_v3_small,
    RegNet=tvm.regnet_y_400mf,
    ResNet=tvm.resnet18,
    ShuffleNetV2=tvm.shufflenet_v2_x0_5,
    SwinTransformer=lambda: tvm.SwinTransformer([4, 4], 24, [1, 1], [2, 2], [4, 4], stochastic_depth_prob=.2),
    VGG=vgg)

@pytest.mark.parametrize('family', sorted(FAMILIES))
def test_torchvision_families(family):
    "A small member of each, without weights, learns with dice of its own."
    with seeded(0): tv = SMALL[family]()
    assert type(tv).__name__ == family
    net = as_net(tv, n_classes=5, size=64)
    check_net(net, 5, 64)
    assert has_map(net, 64) and has_convs(net)
    state, noisy = torch.random.get_rng_state(), [m for m in net.modules() if isinstance(m, Random)]
    assert all(m in noisy for m in net.modules() if 'Drop' in type(m).__name__)
    for m in noisy: m.generator = gen(1)
    net.train()(torch.rand(2, 3, 64, 64, generator=gen(0))).logits.sum().backward()
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(p.grad is not None for p in net.parameters())

PRETRAINED = ['ResNet18', 'MobileNet_V3_Small', 'EfficientNet_B0', 'ConvNeXt_Tiny', 'VGG11_BN', 'DenseNet121',
              'RegNet_Y_400MF', 'Swin_T']

@pytest.mark.parametrize('name', PRETRAINED)
def test_pretrained_normalisation(name):
    t = tvm.get_weight(name+'_Weights.DEFAULT').transforms()
    assert (tuple(t.mean), tuple(t.std)) == (IMAGENET['mean'], IMAGENET['std'])

@pytest.mark.parametrize('name', REFUSED)
def test_refused_by_name(name):
    with pytest.raises(ValueError, match=f'{name} cannot be a Net'): as_net(type(name, (nn.Module,), {})())

def test_groupnorm():
    def norm(c): return nn.GroupNorm(8, c)
    with seeded(0): net = as_net(tvm.ResNet(tvm.resnet.BasicBlock, [1, 1, 1, 1], norm_layer=norm))
    assert not has_batchnorm(net) and has_map(net, 64)

def test_as_net_keeps_the_head_and_the_original():
    with seeded(0): tv = tvm.shufflenet_v2_x0_5(weights=None)
    before = copy.deepcopy(tv.state_dict())
    head = as_net(tv).head
    assert head.out_features == 1000 and torch.equal(head.weight, tv.fc.weight)
    assert head.weight is not tv.fc.weight and same(before, tv.state_dict())
    a, b = (as_net(tv, n_classes=4, seed=2).head.weight for _ in range(2))
    assert torch.equal(a, b)

@pytest.mark.parametrize('name', MODELS)
@pytest.mark.parametrize('size', [28, 32, 64])
def test_sizes_and_gradients(name, size):
    net = MODELS[name](4, size=size, width=4)
    out = net(torch.rand(3, 3, size, size, generator=gen(0)))
    assert out.logits.shape == (3, 4) and out.fmap.ndim == 4 and out.feat.ndim == 2
    out.logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    with pytest.raises(ValueError, match='answers 4 classes'): check_net(net, 5, size)

@pytest.mark.parametrize('name', MODELS)
def test_seed_alone_decides(name):
    state = torch.random.get_rng_state()
    a, b, c = (MODELS[name](4, width=4, seed=s).state_dict() for s in (5, 5, 6))
    assert torch.equal(state, torch.random.get_rng_state())
    assert same(a, b) and not same(a, c)

def test_probe_leaves_no_trace():
    net = small_conv(3)
    net.body.block1.eval()
    before, modes = copy.deepcopy(net.state_dict()), [m.training for m in net.modules()]
    probe(net, n=2)
    assert modes == [m.training for m in net.modules()] and same(before, net.state_dict())

def test_alexnet_at_the_papers_size():
    net = alexnet_bn(10, size=256).to('meta').eval()
    with torch.no_grad(): assert net.body(torch.zeros(1, 3, 256, 256, device='meta')).shape == (1, 256, 7, 7)

def test_map_needs_a_net():
    flat = Net(nn.Flatten(), nn.Identity(), nn.Linear(12, 2))
    assert not has_map(flat, 2) and not has_map(nn.Linear(2, 2))
    assert not has_convs(flat) and not has_batchnorm(flat)

def test_half_the_width_is_a_quarter_of_the_parameters():
    assert n_params(resnet10(7, width=32)) < n_params(resnet10(7))/3.9

@pytest.mark.parametrize('p', [.1, .3, .8])
def test_dropout_keeps_the_mean(p):
    "What is kept is as much larger as less is kept."
    drop, x = Dropout(p), torch.ones(100, 100)
    drop.generator = gen(0)
    y = drop(x)
    assert set(y.unique().tolist()) == {0., float(torch.tensor(1.)/(1-p))}
    assert abs(float((y > 0).float().mean())-(1-p)) < .02

def test_a_layer_of_noise_of_ones_own_may_have_a_shape():
    "`shape` is a user's name; and stochastic depth asks how often."
    class Own(Dropout):
        def __init__(self, shape):
            super().__init__(.5)
            self.shape = shape
    assert Own((3, 4))(torch.ones(3, 4)).shape == (3, 4)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'p'"): DropPath()

def test_stochastic_depth_leaves_out_whole_images():
    drop, x = DropPath(.5), torch.ones(64, 3, 4, 4)
    drop.generator = gen(0)
    lowest, highest = drop(x).flatten(1).aminmax(dim=1)
    assert torch.equal(lowest, highest) and set(lowest.tolist()) == {0., 2.}

def test_a_net_keeps_its_type():
    net = as_net(torchvision.models.resnet18(num_classes=5).double(), 4, size=64)
    assert {p.dtype for p in net.parameters()} == {torch.float64} and net.head.out_features == 4
