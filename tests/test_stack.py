"Stacked clients against clients one by one, through the federation; when they are chosen, and when not."
from dataclasses import replace
import pytest, torch
from feds import DEVICE, far, name_of, same, trained_once
from torch import nn
from bare import noise_suite
from fedskew_nb.run.recipes import METHODS
from fedskew_nb.core.context import Each
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.nets.models import resnet10, small_conv
from fedskew_nb.core.net import Net
from fedskew_nb.engine import sites, stack
from fedskew_nb.engine.federation import Federation
from fedskew_nb.engine.lanes import naming
from fedskew_nb.engine.setting import Setting
from fedskew_nb.engine.together import Batches, side_by_side
from fedskew_nb.engine.stack import why_not_stacked
from fedskew_nb.methods.baselines.average import FedAvg

# who trains its clients one by one, and which mechanism asks for it
TRAINS = {
    'FDSE': 'Consistency', 'DFL': 'Branches', 'FedRep': 'HeadFirst', 'FedIIR': 'HeadAlignment',
    'MCGDM': 'GradientMatching', 'FedSA': 'SemanticAnchors', 'FedFA-anchors': 'FeatureAnchors',
    'Ditto': 'OwnModel', 'Fed-ensemble': 'Twins', 'FedFA-aug': 'draws noise', 'FedGen': 'LatentGenerator',
    'MixStyle': 'draws noise', 'DSU': 'draws noise', 'FedSR': 'SimpleFeature', 'FixBN': 'FixStatistics',
    'HBN': 'state does not show'}
PLAIN = sorted(n for n, m in METHODS.items() if not any(p.wants for p in m.mechanisms))      # no boxes

@pytest.fixture(scope='module')
def w4(): return noise_suite(20, 64)

@pytest.fixture(scope='module')
def w2(): return noise_suite(20, 64, size=16)      # for what holds at any size

def fed(method, suite, net=None, **k):
    how = dict(rounds=1, local_steps=2, batch_size=8, lr=.05, device=DEVICE) | k
    net = net or small_conv(suite.n_classes, suite.image_size, width=4, seed=0)
    return Federation(method, net, suite, **how)

def trained(*args, **k):
    f = fed(*args, **k)
    f.fit()
    return f

def participants(f): return [r['participants'] for r in f.history.rounds]

# ---- stacked and one by one

def both(method, suite, width=4, **how):
    "A federation stacked and one by one, in 64 bits: rounding must not hide a difference, nor make one."
    def net(): return small_conv(suite.n_classes, suite.image_size, width, seed=0).double()
    return [trained(method, suite, net(), stack=s, **dict(rounds=2) | how) for s in (True, False)]

def equal(a, b):
    assert all(far(a.state_of(c.id), b.state_of(c.id)) < 1e-9 for c in a.clients)
    assert participants(a) == participants(b) and len(a.history.rows) == len(b.history.rows)
    for x, y in zip(a.history.rounds, b.history.rounds): assert abs(x['loss']-y['loss']) < 1e-9
    return True

STACKED = [n for n in PLAIN if n not in TRAINS]

@pytest.mark.parametrize('name', STACKED)
def test_stacked_equals_lanes(w2, name):
    few = replace(w2, clients=[replace(c, train=c.train[:16]) for c in w2.clients[:3]])
    a, b = both(METHODS[name], few)
    assert a.plan()['engine'] == 'stacks of at most 3 clients'
    assert b.plan()['engine'] == 'lanes' and b.why_lanes == 'stack=False was asked for'
    assert equal(a, b) and nested(a.states) == nested(b.states)

def nested(o):
    "A nest with its numbers rounded."
    if isinstance(o, torch.Tensor): return [round(v, 8)+0 for v in o.flatten().tolist()]
    if isinstance(o, dict): return {k: nested(v) for k, v in o.items()}
    return [nested(v) for v in o] if isinstance(o, (list, tuple)) else o

HOW = [dict(clip=.1), dict(weight_decay=.1), dict(pad=2, flip=True), dict(batch_size=5, local_steps=None)]

@pytest.mark.parametrize('how', HOW, ids=lambda how: next(iter(how)))
def test_stacked_equals_lanes_in_every_setting(w2, how):
    little = replace(w2, clients=[replace(c, train=c.train[:19]) for c in w2.clients[:6]])
    assert equal(*both(FedAvg, little, **how))

@pytest.mark.parametrize('method', [METHODS['FedAvg'], METHODS['MOON'], METHODS['F2DC']], ids=name_of)
def test_clients_of_unequal_size_share_a_stack(w2, method):
    uneven = replace(w2, clients=[replace(c, train=c.train[:n]) for c, n in zip(w2.clients, (17, 8, 33, 2))])
    a, b = both(method, uneven, local_steps=None, local_epochs=2)
    assert a.plan()['engine'] == 'stacks of at most 4 clients' and equal(a, b)

@pytest.fixture
def as_on_an_accelerator(monkeypatch):
    "BatchNorms side by side, and images in plain order, whatever the device."
    monkeypatch.setattr(stack, 'side_by_side', lambda net, wanted: side_by_side(net))
    monkeypatch.setattr(Batches, 'plain', property(lambda self: True, lambda self, v: None), raising=False)

@pytest.mark.parametrize('name', ['FedAvg', 'MOON', 'F2DC', 'RFedDis'])
@pytest.mark.parametrize('width', [1, 4])
def test_batch_norms_side_by_side(w2, name, width, as_on_an_accelerator):
    uneven = replace(w2, clients=[replace(c, train=c.train[:n]) for c, n in zip(w2.clients, (17, 8, 40))])
    a, b = both(METHODS[name], uneven, width, local_steps=None)
    assert equal(a, b) and not any('forward' in vars(m) for m in a.worker.terms.modules())

def test_batch_norms_side_by_side_in_bf16(w2, as_on_an_accelerator): test_bf16_in_a_stack(w2)

def test_whoever_comes_for_the_first_time_has_another_memory(w2):
    a, b = both(METHODS['MOON'], w2, participation=.25, rounds=3)
    assert equal(a, b) and len({k for p in participants(a) for k in p}) > 5

def test_what_is_addressed_to_one_client_reaches_it_in_a_stack(w2):
    class Addressed(Mechanism):
        stacks = True
        def extras(self, srv, ups): return dict(own=Each({u.id: torch.tensor(float(u.id)) for u in ups}))
        def loss(self, c, b, out):
            return dict(own=c.down['own']*out.logits.square().mean()) if c.round else {}
    assert equal(*both(Method('Addressed', Addressed()), w2))

def test_a_stack_that_does_not_fit_is_halved(w2, monkeypatch):
    one_by_one = trained(FedAvg, w2, stack=False)
    train, tall = sites.train_stack, []
    def narrow(worker, tasks, at):
        tall.append(len(tasks))
        if len(tasks) > 3: raise torch.cuda.OutOfMemoryError('CUDA out of memory')
        return train(worker, tasks, at)
    monkeypatch.setattr(sites, 'train_stack', narrow)
    f = fed(FedAvg, w2, rounds=2)
    with pytest.warns(UserWarning, match='from now on a stack has [52]') as notes: f.fit(1)
    assert far(f.server, one_by_one.server) < 1e-5 and len(notes) == 2 and f.height == 2
    tall.clear()
    f.fit()
    assert max(tall) == 2

def test_one_client_that_does_not_fit_is_named(w2, monkeypatch):
    def full(*_): raise torch.cuda.OutOfMemoryError('CUDA out of memory')
    f = fed(FedAvg, w2, stack=False)
    monkeypatch.setattr(f.worker, 'step', full)
    with pytest.raises(torch.cuda.OutOfMemoryError) as e: f.fit()
    assert 'at client 0 (d0) in round 1' in e.value.__notes__[0]
    assert 'give a smaller batch_size, or device="cpu"' in e.value.__notes__[0]

def test_stacks_do_not_depend_on_lanes(w2):
    one, *others = (trained(FedAvg, w2, lanes=lanes, rounds=2) for lanes in (1, 2, 8))
    assert all(same(one.server, f.server) and one.history == f.history for f in others)

def test_a_stacked_run_is_resumed_as_one(w2, tmp_path):
    how, file = dict(rounds=4, eval_every=1), tmp_path/'c.safetensors'
    fed(FedAvg, w2, out=file, **how).fit(2)
    whole, rest = trained(FedAvg, w2, **how), fed(FedAvg, w2, **how).load(file)
    rest.fit()
    assert same(whole.server, rest.server) and whole.history == rest.history
    alone = fed(FedAvg, w2, stack=False, **how)
    with pytest.raises(ValueError, match='is of another run: its stack'): alone.load(file)

def test_participants_are_stacked_in_their_order(w2):
    a, b = (trained(FedAvg, w2, rounds=2, participation=.35, stack=s) for s in (None, False))
    assert participants(a) == participants(b) and far(a.server, b.server) < 1e-4

def test_scores_after_local_training_are_each_clients_own(w2):
    few = replace(w2, clients=[replace(c, test=c.train[:20]) for c in w2.clients[:4]])
    def right(stack):
        rows = trained(FedAvg, few, stack=stack, local_steps=8).history.rows
        return {r['client']: r['correct'] for r in rows if r['moment'] == 'post_local'}
    a, b = right(None), right(False)
    assert a.keys() == b.keys() == {0, 1, 2, 3} and sum(abs(a[k]-b[k]) for k in a) <= 2

# ---- who is stacked

@pytest.fixture(scope='module')
def begun(w4):
    "A federation of a method that nobody trains."
    return trained_once(replace(w4, clients=w4.clients[:3]), fed)

@pytest.mark.parametrize('name', PLAIN)
def test_only_those_that_stack(begun, name):
    f, stacks = begun(METHODS[name]), name not in TRAINS
    assert (f.why_lanes == '') == f.history.setting['stacked'] == stacks

@pytest.mark.parametrize('name', sorted(TRAINS))
def test_who_does_not_stack_says_why(w4, begun, name):
    assert TRAINS[name] in begun(METHODS[name]).plan()['why']
    says = f'{name} cannot be stacked: .*Leave stack=True out'
    with pytest.raises(ValueError, match=says): fed(METHODS[name], w4, stack=True)

def test_a_stranger_does_not_stack_unless_it_says_so(w2):
    class Quiet(Mechanism):
        def loss(self, c, b, out): return dict(quiet=0*out.logits.square().mean())
    class Loud(Quiet): stacks = True
    a, b = trained(Method('Quiet', Quiet()), w2), trained(Method('Loud', Loud()), w2)
    assert 'Quiet has a say' in a.why_lanes and not b.why_lanes and far(a.server, b.server) < 1e-5

def test_a_batch_may_remember_in_a_stack(w2):
    class Counting(Mechanism):
        stacks = True
        def batch(self, c, b):
            c.state['seen'] = c.state.get('seen', 0)+len(b['y'])
            return b
    f = trained(Method('Counting', Counting()), w2)
    assert not f.why_lanes and all(s['Counting'] == dict(seen=16) for s in f.states.values())

class Odd(Net):
    "A classifier with something that a stack cannot have."
    def __init__(self, odd):
        pool = nn.Sequential(nn.Flatten(), nn.Linear(256, 8))
        super().__init__(nn.Conv2d(3, 4, 4, 4), pool, nn.Linear(8, 10))
        if odd == 'hidden': self.register_buffer('scale', torch.ones(1), persistent=False)
        if odd == 'tied': self.twice = self.head
        if odd == 'noisy': self.pool = nn.Sequential(self.pool, nn.Dropout(.1))

ODD = [('hidden', 'does not show'), ('tied', 'uses a tensor twice'), ('noisy', ''), ('', '')]

@pytest.mark.parametrize('odd, why', ODD)
def test_nets_that_cannot_be_stacked_are_seen_before(w4, odd, why):
    net = Odd(odd)
    f = trained(FedAvg, w4, net)
    assert why in f.why_lanes and bool(why) == bool(f.why_lanes)
    if not why: assert far(f.server, trained(FedAvg, w4, net, stack=False).server) < 1e-5

def test_a_stack_that_fails_says_how_to_go_without(w2):
    class WhoAmI(Mechanism):
        stacks = True
        def loss(self, c, b, out): return dict(mine=0.*c.id)
    with pytest.raises(AttributeError) as e: fed(Method('WhoAmI', WhoAmI()), w2).fit()
    note = e.value.__notes__[0]
    assert 'stack=False trains them one by one' in note and 'in round 1' in note

@pytest.mark.parametrize('n', [1, 2])
def test_two_clients_are_a_stack_and_one_is_none(w2, n):
    f = fed(FedAvg, w2)
    with pytest.raises(ValueError) as e, naming(f, *f.clients[:n]): raise ValueError('odd')
    assert ('stack=False' in e.value.__notes__[0]) == (n == 2)

LANES = [(dict(batch_size=64), 'operations, more than'), (dict(net=resnet10(10)), 'operations, more than'),
         (dict(precision='bf16'), 'bf16')]

@pytest.mark.parametrize('how, why', LANES, ids=['large', 'resnet10', 'bf16'])
def test_what_takes_lanes_unless_a_stack_is_asked_for(w4, how, why):
    asked, cpu = fed(FedAvg, w4, stack=True, **how), fed(FedAvg, w4, device='cpu', **how)
    assert why in cpu.why_lanes and not asked.why_lanes

def test_bf16_in_a_stack(w2):
    a, b = (trained(FedAvg, w2, precision='bf16', stack=s) for s in (True, False))
    assert far(a.server, b.server) < .02
    assert far(a.server, trained(FedAvg, w2).server) > 0

def test_an_accelerator_stacks_larger_steps(w4):
    def why(device, net=None):
        setting = Setting(batch_size=64)
        return why_not_stacked(FedAvg, net or small_conv(10), setting, device=device)
    assert 'operations, more than' in why('cpu') and why('cuda') == ''
    assert 'more than 1e+10' in why('cuda', resnet10(10))
    assert why_not_stacked(FedAvg, small_conv(10), Setting(precision='bf16'), device='cuda') == ''

def test_a_lone_client_takes_a_lane(w2):
    f = fed(FedAvg, replace(w2, clients=w2.clients[:1]))
    assert f.why_lanes == 'there is one client'
