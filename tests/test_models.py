"Models: what teaches nothing, but must hold."
import copy
import pytest, torch, torchvision
from torch import nn
from fedskew_nb.core.convert import FAMILIES, IMAGENET, REFUSED, as_net
from fedskew_nb.core.net import Net
from fedskew_nb.core.seeding import Random
from fedskew_nb.core.models import (
    MODELS, alexnet_bn, has_batchnorm, has_convs, has_map, n_params, resnet10, small_conv)
from fedskew_nb.core.net import check_net, probe
from fedskew_nb.core.seeding import seeded

tvm = torchvision.models

def small_family(name):
    "A small member of each family that fits, without weights."
    return dict(ResNet=tvm.resnet18, AlexNet=tvm.alexnet, MobileNetV2=lambda **k: tvm.mobilenet_v2(width_mult=.25, **k), MobileNetV3=tvm.mobilenet_v3_small,
        VGG=lambda **k: tvm.VGG(tvm.vgg.make_layers([8,'M',16,'M'] + [512,'M'], batch_norm=True), init_weights=False),
        DenseNet=lambda **k: tvm.DenseNet(growth_rate=8, block_config=(2,2), num_init_features=16), MNASNet=lambda **k: tvm.MNASNet(.35),
        EfficientNet=tvm.efficientnet_b0, ConvNeXt=lambda **k: tvm.ConvNeXt([tvm.convnext.CNBlockConfig(16,32,1), tvm.convnext.CNBlockConfig(32,None,1)], stochastic_depth_prob=.2),
        RegNet=tvm.regnet_y_400mf, ShuffleNetV2=tvm.shufflenet_v2_x0_5,
        SwinTransformer=lambda **k: tvm.SwinTransformer([4,4], 24, [1,1], [2,2], [4,4], stochastic_depth_prob=.2))[name](weights=None)

@pytest.mark.parametrize('family', sorted(FAMILIES))
def test_torchvision_families(family):
    with seeded(0): tv = small_family(family)
    assert type(tv).__name__==family
    net = as_net(tv, n_classes=5, size=64)
    check_net(net, 5, 64)
    assert has_map(net, 64) and has_convs(net) and all(isinstance(m, Random) for m in net.modules() if 'Drop' in type(m).__name__)
    state = torch.random.get_rng_state()
    for m in net.modules():
        if isinstance(m, Random): m.generator = torch.Generator().manual_seed(1)
    net.train()(torch.rand(2,3,64,64,generator=torch.Generator().manual_seed(0))).logits.sum().backward()
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(p.grad is not None for p in net.parameters())

@pytest.mark.parametrize('weights', ['ResNet18_Weights','MobileNet_V3_Small_Weights','EfficientNet_B0_Weights','ConvNeXt_Tiny_Weights','VGG11_BN_Weights','DenseNet121_Weights','RegNet_Y_400MF_Weights','Swin_T_Weights'])
def test_pretrained_normalisation(weights):
    t = tvm.get_weight(weights+'.DEFAULT').transforms()
    assert (tuple(t.mean), tuple(t.std))==(IMAGENET['mean'], IMAGENET['std'])

def test_refused_by_name():
    for name in REFUSED:
        with pytest.raises(ValueError, match=f'{name} cannot be a Net'): as_net(type(name, (nn.Module,), {})())

def test_groupnorm():
    with seeded(0): net = as_net(tvm.ResNet(tvm.resnet.BasicBlock, [1,1,1,1], norm_layer=lambda c: nn.GroupNorm(8,c)))
    assert not has_batchnorm(net) and has_map(net, 64)

def test_as_net_keeps_the_head_and_the_original():
    with seeded(0): tv = tvm.shufflenet_v2_x0_5(weights=None)
    before = copy.deepcopy(tv.state_dict()); net = as_net(tv)
    assert net.head.out_features==1000 and torch.equal(net.head.weight, tv.fc.weight) and net.head.weight is not tv.fc.weight
    assert all(torch.equal(a,b) for a,b in zip(before.values(), tv.state_dict().values()))
    assert torch.equal(as_net(tv, n_classes=4, seed=2).head.weight, as_net(tv, n_classes=4, seed=2).head.weight)

@pytest.mark.parametrize('name', MODELS)
@pytest.mark.parametrize('size', [28, 32, 64])
def test_sizes_and_gradients(name, size):
    net = MODELS[name](4, size=size, width=4)
    out = net(torch.rand(3,3,size,size,generator=torch.Generator().manual_seed(0)))
    assert out.logits.shape==(3,4) and out.fmap.ndim==4 and out.feat.ndim==2
    out.logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    with pytest.raises(ValueError, match='answers 4 classes'): check_net(net, 5, size)

@pytest.mark.parametrize('name', MODELS)
def test_seed_alone_decides(name):
    state = torch.random.get_rng_state()
    a,b,c = (MODELS[name](4, width=4, seed=s).state_dict() for s in (5,5,6))
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(a[k],b[k]) for k in a) and any(not torch.equal(a[k],c[k]) for k in a)

def test_probe_leaves_no_trace():
    net = small_conv(3); net.body.block1.eval(); before = copy.deepcopy(net.state_dict()); modes = [m.training for m in net.modules()]
    probe(net, n=2)
    assert modes==[m.training for m in net.modules()] and all(torch.equal(a,b) for a,b in zip(before.values(), net.state_dict().values()))

def test_alexnet_at_the_papers_size():
    net = alexnet_bn(10, size=256).to('meta')
    with torch.no_grad(): assert net.eval().body(torch.zeros(1,3,256,256,device='meta')).shape==(1,256,7,7)

def test_map_needs_a_net():
    flat = Net(nn.Flatten(), nn.Identity(), nn.Linear(12,2))
    assert not has_map(flat, 2) and not has_map(nn.Linear(2,2)) and not has_convs(flat) and not has_batchnorm(flat)
    assert n_params(resnet10(7, width=32)) < n_params(resnet10(7))/3.9
