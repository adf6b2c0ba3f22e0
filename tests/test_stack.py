"Stacked clients against clients one by one, through the federation; when they are chosen, and when not."
from dataclasses import replace
import pytest, torch
from feds import DEVICE, far, fed_of, name_of, same
from torch import nn
from fedskew_nb.app.bench import noise_suite
from fedskew_nb.app.recipes import METHODS
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.models import resnet10, small_conv
from fedskew_nb.core.net import Net
from fedskew_nb.engine.federation import Federation
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.baselines.personal import FedBN, Local
from fedskew_nb.methods.baselines.proximal import FedProx

@pytest.fixture(scope='module')
def w4(): return noise_suite(20, 64)

def fed(method, suite, net=None, **k):
    how = dict(rounds=1, local_steps=2, batch_size=8, lr=.05) | k
    net = net or small_conv(suite.n_classes, width=4, seed=0)
    return Federation(method, net, suite, device=DEVICE, **how)

def trained(*args, **k):
    f = fed(*args, **k)
    f.fit()
    return f

def participants(f): return [r['participants'] for r in f.history.rounds]

# ---- stacked and one by one

@pytest.mark.parametrize('method', [FedAvg, FedProx(mu=1.), FedBN, Local], ids=name_of)
def test_stacked_equals_lanes(w4, method):
    a, b = trained(method, w4), trained(method, w4, stack=False)
    assert a.plan()['engine'] == 'stacks of at most 10 clients'
    assert b.plan()['engine'] == 'lanes' and b.why_lanes == 'stack=False was asked for'
    for k in (0, 7, 19): assert far(a.state_of(k), b.state_of(k)) < 1e-5
    assert participants(a) == participants(b) and len(a.history.rows) == len(b.history.rows)
    assert abs(a.history.rounds[0]['loss']-b.history.rounds[0]['loss']) < 1e-5

def test_stacks_do_not_depend_on_lanes(w4):
    one, *others = (trained(FedAvg, w4, lanes=lanes, rounds=2) for lanes in (1, 2, 8))
    assert all(same(one.server, f.server) and one.history == f.history for f in others)

def test_a_stacked_run_is_resumed_as_one(w4, tmp_path):
    how, file = dict(rounds=4, eval_every=1), tmp_path/'c.safetensors'
    fed(FedAvg, w4, out=file, **how).fit(2)
    whole, rest = trained(FedAvg, w4, **how), fed(FedAvg, w4, **how).load(file)
    rest.fit()
    assert same(whole.server, rest.server) and whole.history == rest.history
    alone = fed(FedAvg, w4, stack=False, **how)
    with pytest.raises(ValueError, match='is of another run: its stack'): alone.load(file)

def test_participants_are_stacked_in_their_order(w4):
    a, b = (trained(FedAvg, w4, rounds=2, participation=.35, stack=s) for s in (None, False))
    assert participants(a) == participants(b) and far(a.server, b.server) < 1e-4

def test_scores_after_local_training_are_each_clients_own(w4):
    few = replace(w4, clients=[replace(c, test=c.train[:20]) for c in w4.clients[:4]])
    def right(stack):
        rows = trained(FedAvg, few, stack=stack, local_steps=8).history.rows
        return {r['client']: r['correct'] for r in rows if r['moment'] == 'post_local'}
    a, b = right(None), right(False)
    assert a.keys() == b.keys() == {0, 1, 2, 3} and sum(abs(a[k]-b[k]) for k in a) <= 2

# ---- who is stacked

# who trains its clients one by one, and which mechanism asks for it
TRAINS = {
    'F2DC': 'DFD', 'DC': 'DFD', 'FDSE': 'Consistency', 'DFL': 'Branches', 'FedDyn': 'Dynamic',
    'SCAFFOLD': 'ControlVariates', 'FedDC': 'ControlVariates', 'FedRep': 'HeadFirst', 'MOON': 'ModelContrast',
    'FedIIR': 'HeadAlignment', 'MCGDM': 'GradientMatching', 'FedProto': 'ClassMeans', 'FPL': 'ClassMeans',
    'FedTGP': 'ClassMeans', 'FedSA': 'ClassMeans', 'FedFA-anchors': 'FeatureAnchors', 'Ditto': 'OwnModel',
    'PartialFed-Adaptive': 'LearnToLoad', 'Fed-ensemble': 'Twins', 'FedCCRL': 'StyleViews',
    'FedFA-aug': 'draws noise', 'FedGen': 'LatentGenerator', 'FedNova': 'NormaliseSteps', 'AFL': 'StartLoss',
    'GroupDRO': 'StartLoss', 'q-FFL': 'StartLoss', 'FedDG-GA': 'AdjustGaps',
    'MixStyle': 'draws noise', 'DSU': 'draws noise', 'FedDG': 'FourierViews', 'FedSR': 'SimpleFeature',
    'FedPLVM': 'TwoLevels'}
PLAIN = sorted(n for n, m in METHODS.items() if not any(p.wants for p in m.mechanisms))      # no boxes

@pytest.mark.parametrize('name', PLAIN)
def test_only_those_that_stack(w4, name):
    f, stacks = fed(METHODS[name], w4), name not in TRAINS
    assert (f.why_lanes == '') == f.history.setting['stacked'] == stacks

@pytest.mark.parametrize('name', sorted(TRAINS))
def test_who_does_not_stack_says_why(w4, name):
    assert TRAINS[name] in fed(METHODS[name], w4).plan()['why']
    says = f'{name} cannot be stacked: .*Leave stack=True out'
    with pytest.raises(ValueError, match=says): fed(METHODS[name], w4, stack=True)

def test_a_stranger_does_not_stack_unless_it_says_so(w4):
    class Quiet(Mechanism):
        def loss(self, c, b, out): return dict(quiet=0*out.logits.square().mean())
    class Loud(Quiet): stacks = True
    a, b = trained(Method('Quiet', Quiet()), w4), trained(Method('Loud', Loud()), w4)
    assert 'Quiet has a say' in a.why_lanes and not b.why_lanes and far(a.server, b.server) < 1e-5

def test_a_batch_that_remembers_belongs_to_one_client(w4):
    class Counting(Mechanism):
        stacks = True
        def batch(self, c, b):
            c.state['seen'] = c.state.get('seen', 0)+len(b['y'])
            return b
    f = trained(Method('Counting', Counting()), w4)
    assert f.why_lanes == 'Counting fills `batch`, which is done client by client'
    assert all(s['Counting'] == dict(seen=16) for s in f.states.values())

class Odd(Net):
    "A classifier with something that a stack cannot have."
    def __init__(self, odd):
        pool = nn.Sequential(nn.Flatten(), nn.Linear(256, 8))
        super().__init__(nn.Conv2d(3, 4, 4, 4), pool, nn.Linear(8, 10))
        if odd == 'hidden': self.register_buffer('scale', torch.ones(1), persistent=False)
        if odd == 'tied': self.twice = self.head
        if odd == 'noisy': self.pool = nn.Sequential(self.pool, nn.Dropout(.1))

ODD = [('hidden', 'does not show'), ('tied', 'uses a tensor twice'), ('noisy', 'draws noise'), ('', '')]

@pytest.mark.parametrize('odd, why', ODD)
def test_nets_that_cannot_be_stacked_are_seen_before(w4, odd, why):
    f = trained(FedAvg, w4, Odd(odd))
    assert why in f.why_lanes and bool(why) == bool(f.why_lanes)

def test_a_stack_that_fails_says_how_to_go_without(w4):
    class WhoAmI(Mechanism):
        stacks = True
        def loss(self, c, b, out): return dict(mine=0.*c.id)
    with pytest.raises(AttributeError) as e: fed(Method('WhoAmI', WhoAmI()), w4).fit()
    note = e.value.__notes__[0]
    assert 'stack=False trains them one by one' in note and 'in round 1' in note

LANES = [(dict(batch_size=64), 'operations, more than'), (dict(net=resnet10(10)), 'operations, more than'),
         (dict(clip=1.), 'clipped'), (dict(precision='bf16'), 'bf16')]

@pytest.mark.parametrize('how, why', LANES, ids=['large', 'resnet10', 'clip', 'bf16'])
def test_what_takes_lanes(w4, how, why): assert why in fed(FedAvg, w4, **how).why_lanes

def test_unequal_clients_take_lanes(suite):
    assert fed_of(FedAvg, suite).why_lanes == 'no two neighbours have equally many images'
