"A client costs its steps and little else: operators and waits are counted, so no GPU is needed."
from collections import Counter
from dataclasses import replace
import pytest
from torch.utils._python_dispatch import TorchDispatchMode
from fedskew_nb.app.bench import WORKS, BareLoop

class Calls(TorchDispatchMode):
    "Counts operators by name while it is open."
    def __init__(self):
        super().__init__()
        self.of = Counter()
    def __torch_dispatch__(self, f, types, args=(), kw=None):
        self.of[f.overloadpacket.__name__] += 1
        return f(*args, **(kw or {}))

def calls_of(f):
    with Calls() as calls: f()
    return calls.of

CLIENTS = 4
SIDES = {
    'ours': lambda work, suite: work.federation(suite, lanes=1, stack=False),
    'bare': lambda work, suite: BareLoop(work, suite)}

def round_of(side, work, steps):
    "Operators of a warm round in which each of four clients takes so many steps."
    work = replace(work, clients=CLIENTS, images=2*steps, batch=2, tests=2)
    side = SIDES[side](work, work.suite())
    side.one_round()
    return calls_of(side.one_round)

@pytest.fixture(scope='module', params=['small_conv(width=4)', 'resnet10(width=4)'])
def counted(request):
    "{side: (operators of a step, those of a client beside its steps, numbers read for a client)}."
    def facts(side):
        one, two = (round_of(side, replace(WORKS['W1'], net=request.param), n) for n in (1, 2))
        step = (two.total()-one.total())/CLIENTS
        return step, one.total()/CLIENTS-step, one['_local_scalar_dense']/CLIENTS
    return {side: facts(side) for side in SIDES}

def test_a_step_takes_no_more_operators_than_the_bare_loop(counted):
    assert counted['ours'][0] <= counted['bare'][0]

def test_a_client_takes_few_operators_beside_its_steps(counted): assert counted['ours'][1] <= 60

def test_a_client_is_waited_for_twice_at_most(counted): assert counted['ours'][2] <= 2
