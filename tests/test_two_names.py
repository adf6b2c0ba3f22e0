"A layer that a net holds under two names is one layer; what is answered to an image is answered to it alone."
import pytest, torch, weakref
from safetensors.torch import load_file, save_file
from torch import nn
from fedskew_nb import METHODS, FedAvg, FedBN, Net, read_method
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.core.net import swapped
from fedskew_nb.core.seeding import seeded
from fedskew_nb.nets.pretrained import group_norms
from feds import fed_of, first, halved, name_of, rounds_of

class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.conv = nn.Conv2d(n, 4, 3, padding=1, bias=False)
        self.bn, self.relu = nn.BatchNorm2d(4), nn.ReLU()
    def forward(self, x): return self.relu(self.bn(self.conv(x)))

class Twice(Block):
    "As the blocks of nnU-Net hold their layers."
    def __init__(self, n):
        super().__init__(n)
        self.all_modules = nn.Sequential(self.conv, self.bn, self.relu)
    def forward(self, x): return self.all_modules(x)

class Body(nn.Module):
    def __init__(self, block=Block, held=''):
        super().__init__()
        self.blocks = nn.Sequential(block(3), nn.MaxPool2d(4), block(4))
        if held == 'first': self.first = self.blocks[0]
        if held == 'encoder': self.blocks[2].encoder = self.blocks[0]
    def forward(self, x): return self.blocks(x)

BODIES = dict(all=lambda: Body(Twice), first=lambda: Body(held='first'), encoder=lambda: Body(held='encoder'))

def net_of(body=Body):
    "The same first weights, however they are held."
    with seeded(0): return Net(body(), nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), nn.Linear(4, 7))

def near(a, b):
    "Equal names, and equal numbers to 1e-6."
    assert a.keys() == b.keys()
    for n, v in a.items(): torch.testing.assert_close(v, b[n], atol=1e-6, rtol=1e-6)

@pytest.fixture(scope='module')
def pair(pair): return halved(pair)

@pytest.fixture(scope='module')
def plain(pair):
    made = {}
    def of(method):
        if method.name not in made: made[method.name] = rounds_of(method, pair, net_of(), stack=False)
        return made[method.name]
    return of

RCL = "FedRCL(levels='body.blocks.0 body.blocks.2')"      # every block, which no body of its own shows
CASES = [(read_method(RCL) if n == 'FedRCL' else m, 'all') for n, m in METHODS.items()]
CASES += [(m, held) for held in ('first', 'encoder') for m in (FedAvg, FedBN)]

@pytest.mark.parametrize('method, held', CASES, ids=lambda v: name_of(v) or v)
def test_every_method_is_as_on_the_net_without(method, held, plain, pair):
    fed, want = rounds_of(method, pair, net_of(BODIES[held]), stack=False), plain(method)
    near(fed.server, want.server)
    for k in want.own: near(fed.own[k], want.own[k])
    sent = [[(r['up'], r['down']) for r in f.history.rounds] for f in (fed, want)]
    assert sent[0] == sent[1]
    assert fed.kept == want.kept

def test_no_batchnorm_leaves_under_its_other_name(pair):
    fed = rounds_of(FedBN, pair, net_of(BODIES['all']))
    a, b = (fed.model(client=c.id) for c in pair.clients)
    assert not torch.equal(a.body.blocks[0].all_modules[1].weight, b.body.blocks[0].all_modules[1].weight)
    assert torch.equal(a.body.blocks[0].all_modules[0].weight, b.body.blocks[0].all_modules[0].weight)

@pytest.mark.parametrize('held', BODIES)
def test_it_is_written_and_read_alone_and_inside_of_another(held, tmp_path):
    net = net_of(BODIES[held])
    save_file(net.state_dict(), tmp_path/'x.safetensors')
    other = net_of(BODIES[held])
    nn.init.zeros_(other.body.blocks[0].conv.weight)
    other.load_state_dict(load_file(tmp_path/'x.safetensors'))
    near(other.state_dict(), net.state_dict())
    outer, again = nn.ModuleDict(dict(net=net)), nn.ModuleDict(dict(net=net_of(BODIES[held])))
    assert len(outer.state_dict()) == len(net.state_dict())
    again.load_state_dict(outer.state_dict())
    whole = {n: v for n, v in nn.Module.state_dict(net).items()}       # a file of somebody else has both
    other.load_state_dict(whole)

def test_one_weight_of_two_layers(pair, tmp_path):
    net = net_of()
    net.body.blocks[2].conv = nn.Conv2d(4, 4, 3, padding=1, bias=False)
    net.body.blocks.append(nn.Conv2d(4, 4, 3, padding=1, bias=False))
    net.body.blocks[3].weight = net.body.blocks[2].conv.weight
    for name in ('FedAvg', 'MOON', 'FedYogi'):
        fed = rounds_of(METHODS[name], pair, net)
        state = fed.model().state_dict()
        assert 'body.blocks.3.weight' not in state
        save_file({n: v.contiguous() for n, v in state.items()}, tmp_path/'x.safetensors')

def test_a_layer_is_swapped_wherever_it_is_held():
    net = group_norms(net_of(BODIES['all']))
    assert net.body.blocks[0].bn is net.body.blocks[0].all_modules[1]
    assert not [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    gone = swapped(net, lambda m: nn.Identity() if isinstance(m, nn.GroupNorm) else m)
    assert gone is net and not [m for m in net.modules() if isinstance(m, nn.GroupNorm)]

# ---- a tensor under another name before its layer

BEFORE = dict(gamma=lambda blocks: blocks[0].bn.weight, seen=lambda blocks: blocks[2].bn.running_mean,
              held=lambda blocks: nn.ParameterList([blocks[0].conv.weight, blocks[2].bn.bias]),
              norms=lambda blocks: nn.ModuleList([blocks[0].bn, blocks[2].bn]))

class Before(nn.Module):
    "A body that names what its blocks hold before it names the blocks."
    def __init__(self, name):
        super().__init__()
        blocks = Body().blocks
        also = BEFORE[name](blocks)
        if type(also) is torch.Tensor: self.register_buffer(name, also)
        else: setattr(self, name, also)
        self.blocks = blocks
    def forward(self, x): return self.blocks(x)

@pytest.mark.parametrize('name', BEFORE)
@pytest.mark.parametrize('method', [METHODS[n] for n in ('FedBN', 'SiloBN', 'DFL')], ids=name_of)
def test_a_tensor_goes_by_its_name_in_a_layer(name, method, pair, plain):
    fed, want = rounds_of(method, pair, net_of(lambda: Before(name)), stack=False), plain(method)
    shapes = [sorted(tuple(v.shape) for v in f.server.values()) for f in (fed, want)]
    assert shapes[0] == shapes[1]
    assert len(fed.kept) == len(want.kept)
    sent = [[(r['up'], r['down']) for r in f.history.rounds] for f in (fed, want)]
    assert sent[0] == sent[1]
    x = pair.tests[next(iter(pair.tests))].x[:4]
    answers = [f.predict(x, client=pair.clients[0].id) for f in (fed, want)]
    torch.testing.assert_close(*answers, atol=1e-6, rtol=1e-6)

def test_its_names_are_the_same_for_parameters_and_state():
    net = net_of(lambda: Before('gamma'))
    learnt = {n for n, _ in net.named_parameters()}
    assert 'body.blocks.0.bn.weight' in learnt and 'body.gamma' not in learnt
    assert learnt | {n for n, _ in net.named_buffers()} == set(net.state_dict())
    outer = nn.ModuleDict(dict(net=net))
    assert {f'net.{n}' for n in net.state_dict()} == set(outer.state_dict())

def by_parameter(net): net.body.seen = net.head.weight

def by_layer(net): net.pool.add_module('again', net.body.blocks[0].bn)

def by_block(net): net.neck = nn.Sequential(net.body.blocks[2])

@pytest.mark.parametrize('of', [by_parameter, by_layer, by_block])
def test_two_places_that_hold_one_tensor_are_refused(of, pair):
    net = net_of()
    of(net)
    with pytest.raises(ValueError, match='are one tensor in two places of the model'):
        fed_of(FedAvg, pair, net)

# ---- what a copy would part

def by_memory(net): net.body.blocks[2].bn.weight = nn.Parameter(net.body.blocks[0].bn.weight.data)

def by_lambda(net):
    conv = net.body.blocks[0].conv
    net.body.blocks[0].relu.forward = lambda x: x.relu()+0*conv.weight.sum()

def by_global_name(net):
    "As in a notebook: the layer is a name of the module."
    known = dict(conv=net.body.blocks[0].conv)
    net.body.blocks[0].relu.forward = eval('lambda x: x.relu()+0*conv.weight.sum()', known)

def by_weak_reference(net): net.body.blocks[2].other = weakref.ref(net.body.blocks[0])

PARTED = [(by_memory, 'body.blocks.0.bn.weight and body.blocks.2.bn.weight are two parameters of one memory'),
          (by_lambda, 'body.blocks.0.relu.forward holds body.blocks.0.conv in a lambda'),
          (by_global_name, 'body.blocks.0.relu.forward holds body.blocks.0.conv in a lambda'),
          (by_weak_reference, 'body.blocks.2.other holds body.blocks.0 in a lambda or a weak reference')]

@pytest.mark.parametrize('of, word', PARTED)
def test_a_model_that_a_copy_would_part_is_refused(of, word, pair):
    net = net_of()
    of(net)
    with pytest.raises(ValueError, match=word): fed_of(FedAvg, pair, net)

def test_functions_that_hold_no_layer_are_fine(pair):
    net, slope = net_of(), .1
    net.body.blocks[0].relu.forward = lambda x: nn.functional.leaky_relu(x, slope)
    net.body.blocks[2].relu.forward = eval('lambda x: x.relu()', dict(relu=net.body.blocks[0].relu))
    net.body.also = [net.body.blocks[0], net.body.blocks[0].forward]
    fed = fed_of(FedAvg, pair, net)
    assert fed.net.body.also[0] is fed.net.body.blocks[0]

class Colours(nn.Module):
    "A table that knows the numbers of images alone."
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(64, 8)
    def forward(self, x): return self.table(((x.mean(1)+2)*15.75).round().long()).permute(0, 3, 1, 2)

def test_it_is_asked_about_images_alone(pair):
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    fed_of(FedAvg, pair, Net(Colours(), pool, nn.Linear(8, 7)))
    soft = nn.Sequential(nn.Linear(8, 7), nn.Softmax(1))
    with pytest.raises(ValueError, match='leave the Softmax at its end off'):
        fed_of(FedAvg, pair, Net(Colours(), pool, soft))

@pytest.mark.filterwarnings('ignore:.torch.jit.script. is deprecated')
def test_a_program_is_named(pair):
    with pytest.raises(ValueError, match='holds a TorchScript program'):
        fed_of(FedAvg, pair, Net(torch.jit.script(Body()), nn.Flatten(), nn.Linear(4, 7)))

# ---- an image beside others

class Centred(nn.Module):
    "A layer of somebody's that asks the batch."
    def forward(self, x): return x-x.mean(0)

def blind(bn): return nn.BatchNorm2d(bn.num_features, track_running_stats=False)

ASKS = dict(blind=lambda m: blind(m) if isinstance(m, nn.BatchNorm2d) else m,
            centred=lambda m: Centred() if isinstance(m, nn.BatchNorm2d) else m,
            instance=lambda m: nn.InstanceNorm2d(4) if isinstance(m, nn.BatchNorm2d) else m)

@pytest.mark.parametrize('kind, word', [('blind', 'body.blocks.0.bn, body.blocks.2.bn keeps no running'),
                                        ('centred', r'body.blocks.0.bn \(Centred\) asks the batch; let its'),
                                        ('instance', None)])
def test_a_net_that_asks_the_batch_is_refused(kind, word, pair):
    net = swapped(net_of(), ASKS[kind])
    if word is None: return rounds_of(FedAvg, pair, net, rounds=1) and None
    with pytest.raises(ValueError, match=word): fed_of(FedAvg, pair, net)

# ---- the layer that asks is named, with what helps it

class Tokens(nn.Module):
    "Attention that takes the images for a sequence."
    def __init__(self, **kw):
        super().__init__()
        self.a = nn.MultiheadAttention(4, 2, **kw)
    def forward(self, x):
        t = x.flatten(2).transpose(1, 2)
        return x+self.a(t, t, t)[0].transpose(1, 2).reshape(x.shape)

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.r = nn.GRU(4, 4)
    def forward(self, x): return x+self.r(x.mean(3).transpose(1, 2))[0].transpose(1, 2)[..., None]

class Squeezed(nn.Module):
    def forward(self, x): return x.mean((2, 3), keepdim=True).squeeze()

class InPlace(nn.Module):
    "Its input is what it gave: the layer before it is not to blame."
    def forward(self, x): return x.sub_(x.mean(0))

class Between(nn.Module):
    "What asks stands between layers, not in one."
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
    def forward(self, x): return self.two(self.one(x).softmax(0))

def behind(layer, pool=None):
    with seeded(0): net = net_of()
    net.body.blocks.append(layer)
    if pool: net.pool = pool
    return net

ASKING = [(lambda: behind(Tokens()), r'body.blocks.3.a \(MultiheadAttention\) .* batch_first=True'),
          (lambda: behind(Recurrent()), r'body.blocks.3.r \(GRU\) asks .* batch_first=True'),
          (lambda: behind(nn.ReLU(), Squeezed()), r'pool \(Squeezed\) asks the batch; .*no squeeze'),
          (lambda: behind(InPlace()), r'body.blocks.3 \(InPlace\) asks'),
          (lambda: behind(nn.Sequential(nn.ReLU(), Between())), r'body.blocks.3.1 \(Between\) asks'),
          (lambda: behind(nn.Sequential(nn.Dropout(.5), Between())), r'body.blocks.3.1 \(Between\) asks'),
          (lambda: behind(nn.Sequential(Tokens(batch_first=True), InPlace())),
           r'body.blocks.3.1 \(InPlace\) asks')]

@pytest.mark.parametrize('make, word', ASKING)
def test_the_first_layer_that_asks_is_named(make, word, pair):
    with pytest.raises(ValueError, match=word): fed_of(FedAvg, pair, make())

def test_attention_over_an_images_own_tokens_is_taken(pair):
    fed_of(FedAvg, pair, behind(Tokens(batch_first=True)))

# ---- and once more when a run ends

VIEW = dict(FedAvg='global', FedBN='personal')

class Above(nn.Module):
    "Asks the batch only where it is large."
    def forward(self, x): return x-x.mean(0) if len(x) > 11 else x

class Gate(nn.Module):
    "Asks the batch behind a gate that begins at 0."
    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(1))
    def forward(self, x): return x+9*self.gate*x.roll(1, 0)

@pytest.mark.parametrize('layer', [Above, Gate])
@pytest.mark.parametrize('method', [FedAvg, FedBN], ids=name_of)
def test_what_asks_the_batch_after_training_is_said(layer, method, suite):
    fed = fed_of(method, first(suite, 2), behind(layer()), lr=.2)
    said = rf'otherwise alone than among 12: body.blocks.3 \({layer.__name__}\) asks the batch'
    with pytest.warns(UserWarning, match=said): history = fed.fit()
    assert fed.method.name in history.setting['odd'][-1]
    again = fed.fit()      # it is said once
    assert again.setting['odd'] == history.setting['odd']
    notes = Comparison([history]).table(VIEW[method.name]).notes
    assert any('asks the batch' in note for note in notes)


def test_a_run_without_such_a_layer_says_nothing(suite, recwarn):
    history = fed_of(FedAvg, first(suite, 2), net_of()).fit()
    assert 'alone' not in str(history.setting.get('odd')) and not recwarn.list

# ---- lists of Python, and layers of two kinds

class Listed(nn.Module):
    "Its layers are children; its forward asks lists, tuples and dicts of them."
    def __init__(self, norm=nn.BatchNorm2d):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3), norm(4)
        self.two, self.drop = nn.Conv2d(4, 4, 3), nn.Dropout(.2)
        self.steps = [self.conv, (self.bn, {'then': [self.two]}), self.drop]
    def forward(self, x):
        conv, (bn, named), drop = self.steps
        return drop(named['then'][0](bn(conv(x))))

class Attributes(Listed):
    "The same, asked by their names."
    def forward(self, x): return self.drop(self.two(self.bn(self.conv(x))))

def pooled(body): return net_of(lambda: body)

@pytest.mark.parametrize('method', ['FedAvg', 'FDSE', 'F2DC', 'FixBN'])
def test_surgery_reaches_lists(method, pair):
    both = []
    for body in (Listed, Attributes):
        net = net_of(body)
        fed = rounds_of(METHODS[method], pair, net, rounds=1, stack=False)
        both.append(fed.server)
        body = fed.net.body
        assert body.steps[0] is body.conv and body.steps[1][1]['then'][0] is body.two
        assert body.steps[2] is body.drop and type(body.drop) is not nn.Dropout
    near(*both)

def test_a_list_that_holds_itself_ends():
    net = pooled(Listed())
    net.body.steps.append(net.body.steps)
    group_norms(net)
    assert net.body.steps[1][0] is net.body.bn and isinstance(net.body.bn, nn.GroupNorm)

LOST = dict(list=lambda m: [m], nest=lambda m: {'a': ({'b': m},)}, tuple=lambda m: (1, m))

@pytest.mark.parametrize('nest', LOST)
def test_layers_that_only_a_list_holds_are_named(nest, pair):
    net = net_of()
    net.body.more = LOST[nest](nn.Conv2d(4, 4, 1))
    with pytest.raises(ValueError, match=r'body.more\[.*is a Conv2d in a plain list or dict'):
        fed_of(FedAvg, pair, net)
    net.body.more = LOST[nest](nn.Conv2d(4, 4, 1).requires_grad_(False))     # a teacher that nobody trains
    fed_of(FedAvg, pair, net)

def test_a_tensor_of_layers_of_two_kinds_is_refused(pair):
    net = net_of()
    net.body.blocks.append(nn.GroupNorm(2, 4))
    net.body.blocks[3].bias = net.body.blocks[0].bn.bias
    says = r'body.blocks.0.bn.bias \(BatchNorm\) and body.blocks.3.bias \(another norm\) are one tensor'
    with pytest.raises(ValueError, match=says): fed_of(FedBN, pair, net)
    net.body.blocks[3] = nn.BatchNorm2d(4)
    net.body.blocks[3].bias = net.body.blocks[0].bn.bias
    fed_of(FedBN, pair, net)
