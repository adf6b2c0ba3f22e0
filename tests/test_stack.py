"Stacked clients against clients one by one, through the federation; when they are chosen, and when not."
from dataclasses import replace
import pytest, torch
from fedskew_nb.app.bench import noise_suite
from fedskew_nb.engine.federation import Federation
from torch import nn
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.net import Net
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.baselines.proximal import FedProx
from fedskew_nb.methods.fdse.method import FDSE
from fedskew_nb.methods.f2dc.method import F2DC
from fedskew_nb.methods.baselines.personal import FedBN, Local
from fedskew_nb.core.models import resnet10, small_conv
from fedskew_nb.app.recipes import METHODS
from feds import DEVICE, fed_of, same, small

@pytest.fixture(scope='module')
def w4(): return noise_suite(20, 64)

def fed(method, suite, **k): return Federation(method, small_conv(suite.n_classes, width=4, seed=0), suite, device=DEVICE, **(dict(rounds=1, local_steps=2, batch_size=8, lr=.05) | k))
def gap(a, b): return max(float((a[n].double()-b[n].double()).abs().max()) for n in a)

@pytest.mark.parametrize('method', [FedAvg, FedProx(mu=1.), FedBN, Local], ids=lambda m: m.name)
def test_stacked_equals_lanes(w4, method):
    a,b = fed(method, w4), fed(method, w4, stack=False); a.fit(); b.fit()
    assert a.plan()['engine']=='stacks of at most 10 clients' and b.plan()['engine']=='lanes' and b.why_lanes=='stack=False was asked for'
    for k in (0,7,19): assert gap(a.state_of(k), b.state_of(k))<1e-5
    assert [r['participants'] for r in a.history.rounds]==[r['participants'] for r in b.history.rounds]
    assert abs(a.history.rounds[0]['loss']-b.history.rounds[0]['loss'])<1e-5 and len(a.history.rows)==len(b.history.rows)

def test_stacks_do_not_depend_on_lanes(w4):
    found = []
    for lanes in (1,2,8): f = fed(FedAvg, w4, lanes=lanes, rounds=2); f.fit(); found.append(f)
    assert all(same(found[0].server, f.server) and found[0].history==f.history for f in found[1:])

# who trains its clients one by one, and which mechanism asks for it
TRAINS = {'F2DC': 'DFD', 'DC': 'DFD', 'FDSE': 'Consistency', 'DFL': 'Branches', 'FedDyn': 'Dynamic', 'SCAFFOLD': 'ControlVariates',
          'FedDC': 'ControlVariates', 'FedRep': 'HeadFirst', 'MOON': 'ModelContrast', 'FedIIR': 'HeadAlignment',
          'MCGDM': 'GradientMatching', 'FedProto': 'ClassMeans', 'FPL': 'ClassMeans',
          'FedTGP': 'ClassMeans', 'FedSA': 'ClassMeans', 'FedFA-anchors': 'FeatureAnchors', 'Ditto': 'OwnModel', 'PartialFed-Adaptive': 'LearnToLoad', 'Fed-ensemble': 'Twins',
          'FedCCRL': 'StyleViews', 'FedFA-aug': 'draws noise', 'FedGen': 'LatentGenerator'}

@pytest.mark.parametrize('name', sorted(n for n, m in METHODS.items() if not any(p.wants for p in m.mechanisms)))
def test_only_those_that_stack(w4, name):
    f = fed(METHODS[name], w4)
    assert (f.why_lanes=='')==(name not in TRAINS) and f.history.setting['stacked']==(name not in TRAINS)
    if name in TRAINS:
        assert TRAINS[name] in f.plan()['why']
        with pytest.raises(ValueError, match=f'{name} cannot be stacked: .*Leave stack=True out'): fed(METHODS[name], w4, stack=True)

def test_a_stranger_does_not_stack_unless_it_says_so(w4):
    class Quiet(Mechanism):
        def loss(self, c, b, out): return dict(quiet=0*out.logits.square().mean())
    class Loud(Quiet): stacks = True
    a,b = fed(Method('Quiet', Quiet()), w4), fed(Method('Loud', Loud()), w4); a.fit(); b.fit()
    assert 'Quiet has a say' in a.why_lanes and not b.why_lanes and gap(a.server, b.server)<1e-5

def test_a_batch_that_remembers_belongs_to_one_client(w4):
    class Counting(Mechanism):
        stacks = True
        def batch(self, c, b): c.state['seen'] = c.state.get('seen',0)+len(b['y']); return b
    f = fed(Method('Counting', Counting()), w4); f.fit()
    assert f.why_lanes=='Counting fills `batch`, which is done client by client' and all(s['Counting']==dict(seen=16) for s in f.states.values())

class Odd(Net):
    "A classifier with something that a stack cannot have."
    def __init__(self, odd):
        super().__init__(nn.Conv2d(3,4,4,4), nn.Sequential(nn.Flatten(), nn.Linear(256,8)), nn.Linear(8,10))
        if odd=='hidden': self.register_buffer('scale', torch.ones(1), persistent=False)
        if odd=='tied': self.twice = self.head
        if odd=='noisy': self.pool = nn.Sequential(self.pool, nn.Dropout(.1))

@pytest.mark.parametrize('odd,why', [('hidden','does not show'), ('tied','uses a tensor twice'), ('noisy','draws noise'), ('','')])
def test_nets_that_cannot_be_stacked_are_seen_before(w4, odd, why):
    f = Federation(FedAvg, Odd(odd), w4, device=DEVICE, rounds=1, batch_size=8, local_steps=1)
    assert why in f.why_lanes and bool(why)==bool(f.why_lanes); f.fit()

def test_a_stack_that_fails_says_how_to_go_without(w4):
    class WhoAmI(Mechanism):
        stacks = True
        def loss(self, c, b, out): return dict(mine=0.*c.id)
    with pytest.raises(AttributeError) as e: fed(Method('WhoAmI', WhoAmI()), w4).fit()
    assert 'stack=False trains them one by one' in e.value.__notes__[0] and 'in round 1' in e.value.__notes__[0]

def test_larger_steps_and_unequal_clients_take_lanes(w4, suite):
    assert 'operations, more than' in fed(FedAvg, w4, batch_size=64).why_lanes
    assert 'operations, more than' in Federation(FedAvg, resnet10(10), w4, device=DEVICE, batch_size=8).why_lanes
    assert fed_of(FedAvg, suite).why_lanes=='no two neighbours have equally many images'
    assert 'clipped' in fed(FedAvg, w4, clip=1.).why_lanes and 'bf16' in fed(FedAvg, w4, precision='bf16').why_lanes

def test_a_stacked_run_is_resumed_as_one(w4, tmp_path):
    whole = fed(FedAvg, w4, rounds=4, eval_every=1); whole.fit()
    part = fed(FedAvg, w4, rounds=4, eval_every=1, out=tmp_path/'c.safetensors'); part.fit(2)
    rest = fed(FedAvg, w4, rounds=4, eval_every=1).load(tmp_path/'c.safetensors'); rest.fit()
    assert same(whole.server, rest.server) and whole.history==rest.history
    with pytest.raises(ValueError, match='is of another run: its stack'): fed(FedAvg, w4, rounds=4, eval_every=1, stack=False).load(tmp_path/'c.safetensors')

def test_participants_are_stacked_in_their_order(w4):
    a,b = (fed(FedAvg, w4, rounds=2, participation=.35, stack=s) for s in (None,False)); a.fit(); b.fit()
    assert [r['participants'] for r in a.history.rounds]==[r['participants'] for r in b.history.rounds] and gap(a.server, b.server)<1e-4

def test_scores_after_local_training_are_each_clients_own(w4):
    a,b = (fed(FedAvg, replace(w4, clients=[replace(c, test=c.train[:20]) for c in w4.clients[:4]]), stack=s, local_steps=8) for s in (None,False)); a.fit(); b.fit()
    own = lambda f: [(r['client'],r['correct']) for r in f.history.rows if r['moment']=='post_local']
    assert len(own(a))==4 and sum(abs(x-y) for (_,x),(_,y) in zip(own(a),own(b)))<=2
