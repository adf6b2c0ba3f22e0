"Folded norms: every model plain, split and decoupled, single layers against PyTorch's, what must not be folded, and what must not be touched."
import copy
from dataclasses import dataclass
import pytest, torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
import fedskew_nb.core.merge
from fedskew_nb.core.method import Method
from fedskew_nb.core.net import Net
from fedskew_nb.core.seeding import Random, generator
from fedskew_nb.engine.fold import Folding, fold_into, foldable, scale_and_shift, tensors_in, trace_layers
from fedskew_nb.methods.f2dc.method import DC, F2DC
from fedskew_nb.methods.fdse.method import Erase
from fedskew_nb.core.models import MODELS, gap, resnet10, small_conv
from fedskew_nb.core.net import probe
from fedskew_nb.core.seeding import seeded

BN = nn.modules.batchnorm._BatchNorm
METHODS = dict(plain=Method('plain'), erase=Method('erase', Erase()), f2dc=F2DC)

def norms(net): return [n for n,m in net.named_modules() if isinstance(m, BN)]
def images(n=3, dtype=torch.float32, seed=0): return torch.rand(n, 3, 32, 32, generator=generator('images', seed)).to(dtype)
def seasoned(net, seed=1):
    "As after some training: norms that scale, shift and remember."
    g = generator('seasoned', seed)
    with torch.no_grad():
        for m in net.modules():
            if isinstance(m, BN):
                if m.running_mean is not None: m.running_mean.copy_(torch.randn(m.running_mean.shape, generator=g)); m.running_var.copy_(.2+torch.rand(m.running_var.shape, generator=g))
                if m.affine: m.weight.copy_(torch.randn(m.weight.shape, generator=g)); m.bias.copy_(torch.randn(m.bias.shape, generator=g))
    return net.eval()

@torch.no_grad()
def check(net, eps=1e-5, x=None, folding=None):
    "Folded and plain say the same, in all that they hand out; the folding."
    f = folding or Folding(net); seasoned(net)
    x = images(dtype=next(net.parameters()).dtype) if x is None else x
    a,b = net(x),f.load(net.state_dict())(x)
    for u,v in zip(tensors_in(a), tensors_in(b), strict=True): assert (u-v).abs().max()<=eps*max(1, float(u.abs().max()))
    assert b.logits.dtype==a.logits.dtype
    return f

# ---- the models

@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('model', MODELS)
def test_models(model, method):
    for dtype,eps in ((torch.float32,1e-5), (torch.float64,1e-12)):
        net = METHODS[method].adapt(MODELS[model](7, width=4)).to(dtype)
        f = check(net, eps); left = {n for n in norms(net) if n not in f.pairs.values()}
        assert norms(f.net)==[n for n in norms(net) if n in left] and f.pairs
        assert left==({n for n in norms(net) if n.endswith('bn_dfe')} if method=='erase' else set())      # behind a sum of parts: nobody's
        if method=='f2dc': assert any(n.startswith('neck.') for n in f.pairs)
        if method=='erase': assert all(n.endswith('.dfe') and b==n[:-4]+'.bn_dse' for n,b in f.pairs.items())

def test_known_pairs():
    p = Folding(resnet10(7, width=4)).pairs
    assert p['body.layer2.0.shortcut.conv']=='body.layer2.0.shortcut.bn' and p['body.stem.conv']=='body.stem.bn' and len(p)==12
    assert Folding(MODELS['alexnet_bn'](7, width=4)).pairs['pool.fc1.fc']=='pool.fc1.bn'

@pytest.mark.parametrize('size', [28, 48])
def test_sizes(size): assert len(check(resnet10(5, width=4, size=size), x=torch.rand(2,3,size,size,generator=generator(0)), folding=Folding(resnet10(5, width=4, size=size), size)).pairs)==12

@pytest.mark.parametrize('hp', [dict(hard=True), dict(test_noise=True), dict(preset='released')])
def test_f2dc_variants(hp): assert len(check(DC(**hp).adapt(small_conv(5, width=4))).pairs)>=5

@pytest.mark.parametrize('hp', [dict(G=3), dict(G=1), dict(ghost=False), dict(relu=False)])
def test_erase_variants(hp): assert len(check(Method('e', Erase(**hp)).adapt(small_conv(5, width=4))).pairs)>=4

def test_predictions_of_a_method():
    "Paths that a method adds read the folded net as they read the plain one."
    net = F2DC.adapt(small_conv(5, width=4)); f = check(net); x = images()
    with torch.no_grad(): a,b = (F2DC.union('predict', n, n(x)) for n in (net,f.net))
    assert a and all(torch.allclose(a[k], b[k], atol=1e-5) for k in a)

# ---- single layers against PyTorch's own

@pytest.mark.parametrize('affine', [True, False])
@pytest.mark.parametrize('make', [lambda **k: nn.Conv2d(4,6,3,**k), lambda **k: nn.Conv2d(4,6,3,stride=2,padding=1,groups=2,**k), lambda **k: nn.Conv2d(4,4,5,dilation=2,groups=4,padding='same',**k),
                                  lambda **k: nn.Conv2d(4,6,3,padding=1,padding_mode='circular',**k), lambda **k: nn.Linear(4,6,**k)])
@pytest.mark.parametrize('bias', [True, False])
@torch.no_grad()
def test_single_layers(make, bias, affine):
    with seeded(0): l = make(bias=bias).double().eval()
    flat,C = isinstance(l, nn.Linear), len(l.weight); bn = seasoned((nn.BatchNorm1d if flat else nn.BatchNorm2d)(C, eps=.01, affine=affine).double())
    ours = copy.deepcopy(l); ours.bias = ours.bias if bias else nn.Parameter(torch.full((C,), float('nan'), dtype=torch.float64))
    fold_into(ours, l.weight, l.bias, bn.running_mean, bn.running_var, bn.weight, bn.bias, bn.eps)
    x = torch.randn(3,*((4,) if flat else (4,9,9)), generator=generator(0), dtype=torch.float64)
    assert torch.allclose(ours(x), bn(l(x)), atol=1e-12, rtol=0)
    if affine:
        theirs = (fuse_linear_bn_eval if flat else fuse_conv_bn_eval)(l, bn)
        assert torch.allclose(ours.weight, theirs.weight, atol=1e-12) and torch.allclose(ours.bias, theirs.bias, atol=1e-12)

@torch.no_grad()
def test_low_precision_is_worked_out_in_float32():
    with seeded(0): l,bn = nn.Linear(4,6),seasoned(nn.BatchNorm1d(6))
    half = [None if v is None else v.bfloat16() for v in (l.weight, l.bias, bn.running_mean, bn.running_var, bn.weight, bn.bias)]
    low = nn.Linear(4,6).bfloat16(); fold_into(low, *half, bn.eps); w,b,mean,var,gamma,beta = (v.float() for v in half); s,t = scale_and_shift(mean, var, bn.eps, gamma, beta)
    assert torch.equal(low.weight, (w*s[:,None]).bfloat16()) and torch.equal(low.bias, (s*b+t).bfloat16())

def test_dead_and_loud_channels():
    net = small_conv(5, width=4); f = Folding(net); seasoned(net)
    with torch.no_grad(): net.body.block1.bn.running_var[0] = 0; net.body.block1.bn.running_var[1] = 1e8; net.body.block2.bn.weight[0] = 0; a,b = net(images()).logits,f.load(net.state_dict())(images()).logits
    assert b.isfinite().all() and (a-b).abs().max()<=1e-5*max(1, float(a.abs().max()))

# ---- what is left alone

class Block(nn.Module):
    "A layer and its norm; what becomes of them is said by `go`."
    def __init__(self, go, layer=None, norm=None): super().__init__(); self.conv,self.bn,self.go = layer or nn.Conv2d(3,3,3,padding=1),norm or nn.BatchNorm2d(3),go
    def forward(self, x): return self.go(self, x)
class Scaled(nn.Conv2d):
    def forward(self, x): return 2*super().forward(x)
class Listed(Block):
    def __init__(self): super().__init__(lambda s,x: s.steps[1](s.steps[0](x))); self.steps = [self.conv,self.bn]
@dataclass
class Notes: z:torch.Tensor|None = None
class Noted(Block):
    def __init__(self): super().__init__(None); self.notes = Notes()
    def forward(self, x): self.notes.z = self.conv(x); return self.bn(self.notes.z)
def keep(s, x): s.last = [s.conv(x)]; return s.bn(s.last[0])
def inside(s, x): z = s.conv(x); y = s.bn(z); return y+z.mean()
def parts(s, x): z = s.conv(x); a,b,c = z.unbind(1); return s.bn(z)*a[:,None]
def peek(s, x): z = s.conv(x); return s.bn(z)*(2 if float(z.sum())>0 else 1)
def touched(s, x): z = s.conv(x); z.mul_(2); return s.bn(z)
def later(s, x): z = s.conv(x); y = s.bn(z); z.add_(1); return y+z
def only_bright(s, x): return s.bn(s.conv(x))*(s.bn.weight.sum() if x.max()>0 else 1)
def tiny(*body, pool=gap): return Net(nn.Sequential(*body), pool(), nn.Linear(3,4))
def hooked(what):
    net = tiny(nn.Conv2d(3,3,1), nn.BatchNorm2d(3)); what(net.body); return net
def two_names():
    net = tiny(nn.Conv2d(3,3,1), nn.BatchNorm2d(3)); net.body.alias = nn.Module(); net.body.alias.bn = net.body[1]; del net.body.alias; net.twin = nn.ModuleDict(dict(bn=net.body[1])); return net
def tied(kind):
    a,b = (nn.Conv2d(3,3,1),nn.BatchNorm2d(3)),(nn.Conv2d(3,3,1),nn.BatchNorm2d(3))
    if kind=='layer': b[0].weight = a[0].weight
    if kind=='norm': b[1].bias = a[1].bias
    if kind=='buffer': b[1].running_mean = a[1].running_mean
    return tiny(*a, *b)
c2,b2 = lambda **k: nn.Conv2d(3,3,3,**k),nn.BatchNorm2d

ALONE = {
    'layer used twice': lambda: tiny(Block(lambda s,x: s.bn(s.conv(s.conv(x))))), 'layer used again, without the norm': lambda: tiny(Block(lambda s,x: s.conv(s.bn(s.conv(x))))),
    'norm used twice': lambda: tiny(Block(lambda s,x: s.bn(s.bn(s.conv(x))))), 'one norm behind two': lambda: (lambda n: tiny(c2(),n,c2(),n))(b2(3)),
    'read elsewhere': lambda: tiny(Block(lambda s,x: (lambda z: z+s.bn(z))(s.conv(x)))), 'mean read': lambda: tiny(Block(inside)), 'parts read': lambda: tiny(Block(parts)), 'number read': lambda: tiny(Block(peek)),
    'changed before': lambda: tiny(Block(touched)), 'changed after': lambda: tiny(Block(later)), 'kept in a list': lambda: tiny(Block(keep)), 'kept in a dataclass': lambda: tiny(Noted()),
    'handed out': lambda: Net(c2(), nn.Sequential(b2(3), gap()), nn.Linear(3,4)), 'something between': lambda: tiny(c2(),nn.ReLU(),b2(3)), 'inplace between': lambda: tiny(c2(),nn.ReLU(inplace=True),b2(3)),
    'GroupNorm': lambda: tiny(c2(),nn.GroupNorm(3,3)), 'InstanceNorm': lambda: tiny(c2(),nn.InstanceNorm2d(3,track_running_stats=True)), 'no statistics': lambda: tiny(c2(),b2(3,track_running_stats=False)), 'norm first': lambda: tiny(b2(3),c2()),
    'subclass': lambda: tiny(Scaled(3,3,3),b2(3)), 'weight norm': lambda: tiny(nn.utils.parametrizations.weight_norm(c2()),b2(3)), 'transposed': lambda: tiny(nn.ConvTranspose2d(3,3,3),b2(3)),
    'layer weight read': lambda: tiny(Block(lambda s,x: s.bn(s.conv(x))*s.conv.weight.mean())), 'norm weight read': lambda: tiny(Block(lambda s,x: s.bn(s.conv(x))*s.bn.weight.mean())), 'norm weight read of bright images': lambda: tiny(Block(only_bright)),
    'layer weight tied': lambda: tied('layer'), 'norm bias tied': lambda: tied('norm'), 'buffer tied': lambda: tied('buffer'), 'norm has two names': two_names, 'called from a list': lambda: tiny(Listed()),
    'hook on the layer': lambda: hooked(lambda b: b[0].register_forward_hook(lambda m,i,o: 2*o)), 'hook before the norm': lambda: hooked(lambda b: b[1].register_forward_pre_hook(lambda m,i: (2*i[0],))),
    'another forward': lambda: hooked(lambda b: setattr(b[1], 'forward', lambda x: x-1)), 'sequences': lambda: tiny(Block(lambda s,x: s.bn(s.conv(x.flatten(2).transpose(1,2)).transpose(1,2)).reshape(x.shape), nn.Linear(3,3), nn.BatchNorm1d(3))),
    'no layers': lambda: Net(nn.Identity(), gap(), nn.Linear(3,4))}

@pytest.mark.parametrize('why', ALONE)
def test_left_alone(why):
    with seeded(0): net = ALONE[why]()
    f = check(net)
    assert f.pairs=={} and norms(f.net)==norms(net)

def test_neighbours_are_folded():
    "One that must stay does not keep the others."
    with seeded(0): net = tiny(c2(), b2(3), nn.ReLU(inplace=True), c2(), nn.ReLU(), b2(3), c2(groups=3, bias=False), b2(3, affine=False))
    assert check(net).pairs=={'body.0':'body.1', 'body.6':'body.7'}

def relus(net): return [m.inplace for m in net.modules() if isinstance(m, nn.ReLU)]

@pytest.mark.parametrize('model', ['small_conv','alexnet_bn'])
def test_relus_overwrite(model):
    "In the folded copy alone, and without a bit of difference; every copy for another lane too."
    net = MODELS[model](5, width=4); f = check(net); x = images(); assert relus(net) and not any(relus(net)) and all(relus(f.net)) and all(relus(copy.deepcopy(f).net))
    with torch.no_grad(): a = f.net(x)
    for m in f.net.modules(): m.inplace = False
    with torch.no_grad(): b = f.net(x)
    assert all(torch.equal(u,v) for u,v in zip(tensors_in(a), tensors_in(b), strict=True)) and torch.equal(x, images())

class Last(nn.Module):
    "What came in is also kept, or used again behind the ReLU."
    def __init__(self, kept): super().__init__(); self.relu,self.kept = nn.ReLU(),kept
    def forward(self, x):
        if self.kept: self.last = x; return self.relu(x)
        return self.relu(x)-x
@pytest.mark.parametrize('body', [[Last(True)], [Last(False)], [nn.Tanh(),Last(True)]])
def test_relus_whose_input_is_wanted(body):
    with seeded(0): net = tiny(c2(), b2(3), *body)
    f = check(net); assert len(f.pairs)==1 and not any(relus(f.net))
def test_a_relu_that_may_not_overwrite():
    with seeded(0): net = tiny(c2(), b2(3), Block(lambda s,x: s.bn(x[:,:1].expand(-1,3,-1,-1)), nn.Identity(), nn.ReLU()))
    f = check(net); assert len(f.pairs)==1 and not any(relus(f.net))

def test_keyword_arguments():
    with seeded(0): net = tiny(Block(lambda s,x: s.bn(input=s.conv(input=x))))
    assert len(check(net).pairs)==1

def test_unusable_net_says_so():
    net = Net(nn.Conv2d(4,3,1), gap(), nn.Linear(3,4))
    with pytest.raises(RuntimeError): Folding(net)

# ---- what is kept, what is not touched

def test_memory_format():
    net = resnet10(5, width=8).to(memory_format=torch.channels_last); f = Folding(net)
    for _ in range(2): f.load({n:v.contiguous() for n,v in net.state_dict().items()})
    assert all(m.weight.is_contiguous(memory_format=torch.channels_last) and m.weight.stride()==net.get_submodule(n).weight.stride() for n,m in f.net.named_modules() if isinstance(m, nn.Conv2d))
    assert f.net(images().contiguous(memory_format=torch.channels_last)).fmap.is_contiguous(memory_format=torch.channels_last)

def test_the_second_state_counts():
    a,b = (seasoned(small_conv(5, width=4, seed=s), s) for s in (0,1)); f = Folding(a); x = images()
    where = {n:v.data_ptr() for n,v in f.net.state_dict().items()}
    with torch.no_grad(): first = f.load(a.state_dict())(x).logits; second = f.load(b.state_dict())(x).logits; fresh = Folding(b).net(x).logits; again = f.load(a.state_dict())(x).logits
    assert torch.equal(second, fresh) and torch.equal(first, again) and not torch.equal(first, second)
    assert where=={n:v.data_ptr() for n,v in f.net.state_dict().items()} and f.load(a.state_dict()) is f.net
    assert not f.net.training and not any(p.requires_grad for p in f.net.parameters())

def test_nothing_else_is_touched():
    net = F2DC.adapt(small_conv(5, width=4)).train()
    for n,m in net.named_modules():
        if isinstance(m, Random): m.generator = generator(n)
    rng,state,noise = torch.random.get_rng_state(),copy.deepcopy(net.state_dict()),{n:m.generator.get_state() for n,m in net.named_modules() if isinstance(m, Random)}
    modes,text,grads = {n:m.training for n,m in net.named_modules()},str(net),{n:p.requires_grad for n,p in net.named_parameters()}
    f = Folding(net); f.load({n:v*2 for n,v in net.state_dict().items()})
    assert torch.equal(rng, torch.random.get_rng_state()) and str(net)==text and all(torch.equal(v, net.state_dict()[n]) for n,v in state.items())
    assert modes=={n:m.training for n,m in net.named_modules()} and grads=={n:p.requires_grad for n,p in net.named_parameters()} and all(torch.equal(s, net.get_submodule(n).generator.get_state()) for n,s in noise.items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in [*net.modules(),*f.net.modules()])
    mine = {v.data_ptr() for v in net.state_dict().values()}; assert not mine & {v.data_ptr() for v in f.net.state_dict().values()}

def test_decided_by_the_net_not_by_its_numbers():
    net = resnet10(5, width=4); pairs = Folding(net).pairs
    with torch.no_grad():
        for v in net.state_dict().values(): v.zero_()
    assert Folding(net).pairs==pairs
    with torch.no_grad():
        for p in net.parameters(): p.fill_(float('nan'))
    assert Folding(net).pairs==pairs

def test_copies_of_a_folding():
    net = seasoned(small_conv(5, width=4)); f = Folding(net); g = copy.deepcopy(f); other = seasoned(small_conv(5, width=4, seed=3), 3)
    with torch.no_grad(): was = f.net(images()).logits; assert torch.equal(g.load(other.state_dict())(images()).logits, Folding(other).net(images()).logits) and torch.equal(f.net(images()).logits, was)

def test_wrong_states():
    f = Folding(small_conv(5, width=4)); state = small_conv(5, width=4).state_dict()
    with pytest.raises(KeyError, match='load a state of the net that was folded'): f.load(resnet10(5, width=4).state_dict())
    with pytest.raises(KeyError, match='head.bias'): f.load({n:v for n,v in state.items() if n!='head.bias'})
    with pytest.raises(RuntimeError): f.load(small_conv(5, width=8).state_dict())

class Counted(nn.Module):
    "A module with a state of its own kind."
    def __init__(self): super().__init__(); self.k = 1
    def get_extra_state(self): return dict(k=self.k)
    def set_extra_state(self, s): self.k = s['k']
    def forward(self, x): return x*self.k
def test_extra_state():
    net = tiny(c2(), b2(3), Counted()); f = Folding(net); net.body[2].k = 7
    assert f.load(net.state_dict()).body[2].k==7 and len(check(net).pairs)==1

def test_trace_reads_a_net_as_it_is():
    net = small_conv(5, width=4).train(); rng = torch.random.get_rng_state(); found,readers = trace_layers(net)
    assert list(found)==['body.block1.conv','body.block2.conv','body.block3.conv','pool.fc','head'] and net.training and torch.equal(rng, torch.random.get_rng_state())
    assert readers['body.block1.bn.running_var']==readers['pool.fc.weight']==1 and foldable(net)==Folding(net).pairs

@pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device')
def test_cuda():
    net = resnet10(5, width=8).cuda().to(memory_format=torch.channels_last); rng = torch.cuda.get_rng_state(); f = Folding(net); assert torch.equal(rng, torch.cuda.get_rng_state()) and len(f.pairs)==12
    seasoned(net.cpu()); x = images().cuda(); f.load(net.state_dict()); net = net.cuda()                # a state from another device
    was = torch.backends.cudnn.allow_tf32; torch.backends.cudnn.allow_tf32 = False
    try:
        with torch.no_grad(): a,b = net(x).logits,f.net(x).logits
    finally: torch.backends.cudnn.allow_tf32 = was
    assert b.is_cuda and (a-b).abs().max()<=1e-5*max(1, float(a.abs().max()))
