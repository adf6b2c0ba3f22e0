"A net is tried in one place: what fails is sorted, and what can be taken is taken."
from dataclasses import dataclass, replace
import pytest, torch
from hypothesis import given, settings, strategies as st
from torch import nn
from feds import cut, fed_of
from fedskew_nb.core.net import Net
from fedskew_nb.core.seeding import Random, generator, seeded
from fedskew_nb.core.tried import check_net, noise_images, tried
from fedskew_nb.data.load import load_suite
from fedskew_nb.nets.convert import TWINS, as_net, own_noise
from fedskew_nb.nets.models import gap, resnet, small_conv
from fedskew_nb.run.recipes import METHODS

# nets are drawn by their kind (channels, size, types, answers, wrappers, noise), not listed as reported

@pytest.fixture(scope='module')
def suite(): return cut(load_suite('emoji-pacs', 'tiny'), (8, 8), tests=2)

def grey_of(suite):
    "The same images in grey."
    def grey(d): return replace(d, x=d.x[:, :1].expand(-1, 3, -1, -1).contiguous())
    clients = [replace(c, train=grey(c.train), val=grey(c.val), test=grey(c.test)) for c in suite.clients]
    return replace(suite, clients=clients, tests={n: grey(d) for n, d in suite.tests.items()})

class Plain(nn.Module):
    "A classifier that nobody knows."
    def __init__(self, channels=3, noise=None):
        super().__init__()
        noise = [noise] if noise else []
        self.eyes = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), *noise)
        self.say = nn.Linear(4, 7)
    def forward(self, x): return self.say(self.eyes(x).mean((2, 3)))

def taken(module, size=32): return as_net(module, body='eyes', head='say', size=size)

def by_hand(channels=3, head=None, more=()):
    with seeded(0):
        body = nn.Sequential(nn.Conv2d(channels, 4, 3), *more, nn.BatchNorm2d(4), nn.ReLU())
        return Net(body, gap(), head or nn.Linear(4, 7))

def refused(do):
    with pytest.raises(ValueError) as e: do()
    return str(e.value)

# --- channels

def test_grey_nets_run_on_grey_images_and_refuse_colours(suite):
    for net in (small_conv(7, size=32, width=4, in_ch=1), by_hand(1), taken(Plain(1))):
        fed = fed_of(METHODS['FedAvg'], grey_of(suite), net, rounds=1)
        fed.one_round()
        assert fed.predict(grey_of(suite).tests['photo'].x).shape == (2, 7)
        says = refused(lambda: fed_of(METHODS['FedAvg'], suite, net))       # noqa: B023
        assert 'takes one channel' in says and 'art, ' in says and 'in_ch=3' in says

def test_a_grey_net_answers_as_its_body_does_to_one_channel():
    net = taken(Plain(1)).eval()
    x = torch.rand(3, 1, 32, 32).expand(-1, 3, -1, -1)
    assert net(x).logits.equal(net.head(net.pool(net.body(x[:, :1]))))

def test_a_net_that_takes_three_channels_gets_all_three_though_a_layer_takes_one():
    class EachAlone(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Conv2d(1, 4, 3)
        def forward(self, x): return self.one(x.flatten(0, 1)[:, None]).unflatten(0, (len(x), -1)).mean(1)
    net = Net(EachAlone(), gap(), nn.Linear(4, 7))
    fed = fed_of(METHODS['FedAvg'], load_suite('emoji-pacs', 'tiny'), net)
    assert fed.net.channels == 3

@pytest.mark.parametrize('method', ['FDSE', 'F2DC', 'FedBN', 'MixStyle'])
def test_methods_with_surgery_take_a_grey_net(suite, method):
    net = resnet((1, 1, 1, 1), 7, size=32, width=4, in_ch=1)
    fed_of(METHODS[method], grey_of(suite), net, rounds=1).one_round()

@settings(max_examples=12, deadline=None)
@given(channels=st.sampled_from((2, 4, 6, 12)), size=st.integers(8, 40))
def test_other_channels_are_named(channels, size):
    for do in (lambda: check_net(by_hand(channels), 7, size), lambda: taken(Plain(channels), size)):
        assert f'answers to images of {channels} channels and fails on 3, so perhaps' in refused(do)

# --- sizes

@settings(max_examples=12, deadline=None)
@given(side=st.sampled_from((28, 32, 64, 96)), size=st.sampled_from((16, 20, 24, 40, 48)))
def test_a_size_is_named_if_the_model_answers_to_it(side, size):
    with seeded(0): net = Net(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(2*(side-2)**2, 7))
    says = refused(lambda: check_net(net, 7, size))
    assert f'{side}×{side} pixels and fails on {size}×{size}, so perhaps: build it with size={size}' in says
    assert '[RuntimeError: ' in says      # what was not guessed
    check_net(net, 7, side)

def test_a_cut_whose_parts_do_not_fit_is_no_matter_of_size():
    class Two(Plain):
        def __init__(self):
            super().__init__()
            self.more = nn.Conv2d(4, 6, 1)
            self.say = nn.Linear(6, 7)
        def forward(self, x): return self.say(self.more(self.eyes(x)).mean((2, 3)))
    says = refused(lambda: taken(Two()))
    assert 'Two cut like this fails, and whole it does not: check body=' in says

# --- inputs, types, values

def test_further_inputs_are_named_and_those_with_defaults_are_taken():
    class Aged(Plain):
        def forward(self, x, age, sex): return super().forward(x)*age
    class Young(Plain):
        def forward(self, x, age=None): return super().forward(x)
    assert 'Aged wants 3 inputs (x, age, sex)' in refused(lambda: taken(Aged()))
    assert isinstance(taken(Young()), Net)

@settings(max_examples=12, deadline=None)
@given(dtype=st.sampled_from((torch.float16, torch.bfloat16, torch.float64)),
       part=st.sampled_from(('body', 'head')))
def test_types_that_differ_are_named_and_not_the_size(dtype, part):
    net = by_hand()
    setattr(net, part, getattr(net, part).to(dtype))
    says = refused(lambda: check_net(net, 7, 16))
    assert 'several types' in says and str(dtype)[6:] in says and 'net.float()' in says and 'size' not in says

@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
def test_one_type_is_one_type(suite, dtype):
    fed_of(METHODS['FedAvg'], suite, by_hand().to(dtype), rounds=1).one_round()

def test_values_that_are_not_there_are_named(suite):
    for net, says in ((by_hand(head=nn.LazyLinear(7)), 'head.weight has no shape yet'),
                      (by_hand().to('meta'), 'body.0.weight has no values'),
                      (Net(nn.Identity(), nn.Flatten(), nn.Identity()), 'has no parameters')):
        assert says in refused(lambda: fed_of(METHODS['FedAvg'], suite, net))   # noqa: B023

def test_what_nobody_sorted_keeps_its_words_and_its_cause():
    class Odd(nn.Linear):
        def forward(self, x): raise KeyError('no such thing')
    with pytest.raises(ValueError, match='ask it by itself.*KeyError.*no such thing') as e:
        tried(net := by_hand(head=Odd(4, 7)), noise_images(net, 16))
    assert isinstance(e.value.__cause__, KeyError)

# --- answers

@dataclass
class Answer:
    "As Hugging Face's models give."
    logits: torch.Tensor
    last_hidden_state: torch.Tensor = None

ANSWERS = dict(object=Answer, table=lambda y: dict(loss=None, logits=y))

@pytest.mark.parametrize('kind', ANSWERS)
def test_answers_with_logits_are_taken(suite, kind):
    class Named(Plain):
        def forward(self, x): return ANSWERS[kind](super().forward(x))
    class Head(nn.Linear):
        def forward(self, x): return ANSWERS[kind](super().forward(x))
    for net in (taken(Named()), by_hand(head=Head(4, 7))):
        fed = fed_of(METHODS['FedAvg'], suite, net, rounds=1)
        fed.fit()
        assert len(fed.history.rows)

def test_a_body_may_give_its_map_as_hugging_face_does(suite):
    class Backbone(nn.Sequential):
        def forward(self, x): return Answer(None, super().forward(x))
    class Named(Plain):
        def __init__(self):
            super().__init__()
            self.eyes = Backbone(*self.eyes)
        def forward(self, x): return Answer(self.say(self.eyes(x).last_hidden_state.mean((2, 3))))
    fed = fed_of(METHODS['F2DC'], suite, taken(Named()), rounds=1)
    fed.one_round()

@pytest.mark.parametrize(('make', 'says'), [
    (lambda y: (y, y), 'answers 2 things'), (lambda y: dict(out=y), 'a table of out'),
    (lambda y: None, 'answers NoneType'), (lambda y: y[:, :, None], 'a tensor of')])
def test_other_answers_are_refused_in_words(make, says):
    class Other(Plain):
        def forward(self, x): return make(super().forward(x))
    assert says in refused(lambda: taken(Other()))

# --- wrappers

WRAP = dict(parallel=nn.DataParallel, compiled=lambda m: torch.compile(m, backend='eager'),
            both=lambda m: nn.DataParallel(torch.compile(m, backend='eager')))

@pytest.mark.parametrize('how', WRAP)
def test_wrapped_nets_are_the_nets_inside(suite, how):
    bare = fed_of(METHODS['FedPer'], suite, by_hand(), rounds=1)
    inner = by_hand()
    inner.body = WRAP[how](inner.body)
    for net in (WRAP[how](by_hand()), inner):
        fed = fed_of(METHODS['FedPer'], suite, net, rounds=1)
        assert fed.kept == bare.kept and list(fed.net.state_dict()) == list(bare.net.state_dict())
    assert list(taken(WRAP[how](Plain())).state_dict()) == list(taken(Plain()).state_dict())
    assert type(inner.body) is not nn.Sequential        # the caller's own net is as it was

# --- noise

LAYERS = {k: k(.1, .4) if k is nn.RReLU else k(.25) for k in TWINS}

@pytest.mark.parametrize('kind', [k for k in TWINS if k is not nn.Dropout1d])
def test_layers_of_noise_are_known_by_their_type(suite, kind):
    fed = fed_of(METHODS['FedAvg'], suite, by_hand(more=[LAYERS[kind]]), rounds=1)
    assert isinstance(fed.net.body[1], Random)
    fed.one_round()
    assert isinstance(taken(Plain(noise=LAYERS[kind])), Net)

TAKES = {nn.Dropout1d: (2, 3), nn.Dropout2d: (2, 4), nn.Dropout3d: (4, 5)}    # dimensions, the rest takes any

@pytest.mark.filterwarnings('ignore:dropout2d')
@settings(max_examples=20, deadline=None)
@given(data=st.data(), kind=st.sampled_from([k for k in TWINS if k is not nn.RReLU]), seed=st.integers(0, 99))
def test_a_twin_leaves_out_what_the_layer_would(data, kind, seed):
    dims = data.draw(st.sampled_from(TAKES.get(kind, (2, 3, 4, 5))))
    layer, x = LAYERS[kind], torch.ones(12, 9, *[3]*(dims-2))
    twin = own_noise(nn.Sequential(layer))[0].train()
    twin.generator = generator(seed, 'twin')
    with seeded(seed): want = layer.train()(x)
    got = twin(x)
    assert layer.eval()(x).equal(twin.eval()(x))
    kinds = [y.flatten().unique() for y in (got, want)]       # left out, and kept
    assert torch.allclose(*kinds) if len(kinds[0]) == len(kinds[1]) else min(map(len, kinds)) == 1
    for k in range(1, dims): assert one_fate(got, k) == one_fate(want, k)

def one_fate(y, k):
    "Is all of an image, a map, … of `k` leading dimensions left out or kept together?"
    flat = y.flatten(k)
    return bool((flat == flat[..., :1]).all())

def test_drop_path_of_other_libraries_is_ours(suite):
    class TimmDropPath(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop_prob, self.scale_by_keep = .2, True
        def forward(self, x): return x*torch.rand(len(x), 1, 1, 1).gt(.2)/.8
    fed_of(METHODS['FedAvg'], suite, by_hand(more=[TimmDropPath()]), rounds=1).one_round()

def test_other_noise_is_named_with_its_layer(suite):
    class Hidden(nn.Module):
        def forward(self, x): return nn.functional.dropout(x, .5, self.training)
    says = refused(lambda: fed_of(METHODS['FedAvg'], suite, by_hand(more=[Hidden()])))
    assert 'Hidden (body.1) draws noise from the global generator' in says
    class Attention(nn.MultiheadAttention):
        def forward(self, x): return super().forward(x, x, x)[0]
    says = refused(lambda: fed_of(METHODS['FedAvg'], suite, by_hand(head=nn.Sequential(
        nn.Unflatten(1, (1, 4)), Attention(4, 2, dropout=.5), nn.Flatten(), nn.Linear(4, 7)))))
    assert 'Attention (head.1) draws noise' in says and 'dropout=0' in says

# --- parameters of any shape

class Odd(nn.Linear):
    "A scalar, a part that nobody uses, counters and an empty buffer beside a linear layer."
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.scale, self.unused = nn.Parameter(torch.tensor(1.)), nn.Linear(2, 2)
        for name, v in dict(n=torch.tensor(3), b=torch.tensor([True]), e=torch.zeros(0)).items():
            self.register_buffer(name, v)
    def forward(self, x): return super().forward(x)*self.scale

@pytest.mark.parametrize('method', ['FedHEAL', 'FedFA-anchors', 'MCGDM', 'FedIIR', 'SCAFFOLD'])
def test_parameters_of_any_shape_are_taken(suite, method):
    with seeded(0): head = Odd(4, 7)
    fed_of(METHODS[method], suite, by_hand(head=head), rounds=1, clip=1.).one_round()

def test_a_stack_clips_a_scalar(suite):
    with seeded(0): heads = [Odd(4, 7)]*2
    feds = [fed_of(METHODS['FedAvg'], suite, by_hand(head=h), clip=.1, stack=s, lanes=1, rounds=1)
            for h, s in zip(heads, (None, False))]
    for fed in feds: fed.one_round()
    for n, v in feds[0].server.items(): torch.testing.assert_close(v, feds[1].server[n], rtol=1e-3, atol=1e-4)

# --- what it does to its input, and in training

class Does(nn.Module):
    "A layer that does something, always or in training only."
    def __init__(self, do, always=True):
        super().__init__()
        self.do, self.always = do, always
    def forward(self, x): return self.do(x) if self.always or self.training else x

IN_PLACE = dict(sub=lambda x: x.sub_(.5), relu=lambda x: x.relu_(),
                slot=lambda x: x.index_fill_(0, torch.tensor(0), 9.))

@pytest.mark.parametrize('always', [True, False])
@pytest.mark.parametrize('how', IN_PLACE)
def test_a_model_that_changes_its_images_is_refused(suite, how, always):
    net = by_hand()
    net.body.insert(0, Does(IN_PLACE[how], always))
    assert 'changes its input in place' in refused(lambda: fed_of(METHODS['MOON'], suite, net))
    class Other(Plain):
        def forward(self, x): return super().forward(Does.forward(self, x))
    other = Other()
    other.do, other.always = IN_PLACE[how], always
    assert 'changes its input in place' in refused(lambda: taken(other))

def test_a_model_that_works_in_place_behind_its_first_layer_is_taken(suite):
    fed_of(METHODS['MOON'], suite, by_hand(more=[nn.ReLU(inplace=True)]), rounds=1).one_round()

def test_a_cut_that_leaves_out_what_training_does_is_refused():
    class Other(Plain):
        def forward(self, x): return super().forward(x*.1 if self.training else x)
    assert 'a branch that only training takes' in refused(lambda: taken(Other()))
    class Pair(Plain):
        def forward(self, x): return (super().forward(x), 1) if self.training else super().forward(x)
    assert 'in training, answers 2 things' in refused(lambda: taken(Pair()))
    inside = Plain()
    inside.eyes.append(Does(lambda x: x*.1, always=False))
    taken(inside)

def test_a_head_that_answers_otherwise_in_training_is_told(suite):
    wide = nn.Sequential(nn.Linear(4, 7), Does(lambda x: torch.cat([x, x], 1), always=False))
    says = refused(lambda: fed_of(METHODS['FedAvg'], suite, by_hand(head=wide)))
    assert 'a tensor of (2, 14) in training, and a tensor of (2, 7) in eval' in says
    two = nn.Sequential(nn.Linear(4, 7), Does(lambda x: (x, 3), always=False))
    fed = fed_of(METHODS['FedAvg'], suite, by_hand(head=two))
    assert 'answers 2 things: let it return logits alone' in refused(fed.one_round)

# --- stacks, lazy layers, whole numbers

CHOICES = dict(choice=lambda x: x if x.mean() > 0 else -x, rows=lambda x: x[x.sum((1, 2, 3)) > -9e9])

@pytest.mark.parametrize('how', CHOICES)
def test_a_layer_that_does_not_stack_is_named(suite, how):
    net = by_hand(more=[Does(CHOICES[how], always=False)])
    with pytest.raises(RuntimeError, match=r'body.1 \(Does\) cannot be trained in a stack .*say stack=False'):
        fed_of(METHODS['FedAvg'], suite, net).one_round()
    fed_of(METHODS['FedAvg'], suite, net, stack=False).one_round()      # the mend, followed

def test_lazy_layers_are_drawn_from_the_seed():
    class Lazy(Plain):
        def __init__(self):
            super().__init__()
            self.eyes, self.say = nn.Sequential(nn.LazyConv2d(4, 3), nn.ReLU()), nn.LazyLinear(7)
    nets = []
    for k in range(3):
        torch.manual_seed(k)
        module, was = Lazy(), torch.get_rng_state()
        nets.append(as_net(module, body='eyes', head='say', size=32, seed=k//2))
        assert torch.get_rng_state().equal(was)
    weights = [net.head.weight for net in nets]
    assert weights[0].equal(weights[1]) and not weights[1].equal(weights[2])

def test_a_lazy_net_is_told_of_a_seed(suite):
    net = Net(nn.LazyConv2d(4, 3), gap(), nn.Linear(4, 7))
    says = refused(lambda: fed_of(METHODS['FedAvg'], suite, net))
    assert 'with seeded(0): model(torch.zeros(2, 3, 32, 32))' in says
    with seeded(0): net(torch.zeros(2, 3, 32, 32))
    fed_of(METHODS['FedAvg'], suite, net)

@pytest.mark.parametrize('kind', [torch.int64, torch.uint8, torch.bool])
def test_parameters_of_whole_numbers_are_named(suite, kind):
    net = by_hand()
    net.head.codes = nn.Parameter(torch.ones(3).to(kind), requires_grad=False)
    says = refused(lambda: fed_of(METHODS['FedAvg'], suite, net))
    assert f'head.codes is a parameter of {kind}' in says and 'register_buffer' in says
    del net.head.codes
    net.head.register_buffer('codes', torch.ones(3).to(kind))
    fed_of(METHODS['FedAvg'], suite, net, rounds=1).one_round()
