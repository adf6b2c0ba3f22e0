"A client costs its steps and little else: operators and waits are counted, so no GPU is needed."
from collections import Counter
from dataclasses import replace
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from bare import WORKS, BareLoop
from fedskew_nb.engine.client import Worker
from fedskew_nb.engine.history import Task
from fedskew_nb.methods.baselines.average import FedAvg

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

# ---- stacked clients

def stacked_step(clients):
    "Operators of one step of so many stacked clients."
    work = replace(WORKS['W4'], clients=clients, batch=2, tests=2)
    feds = [replace(work, images=2*n) for n in (1, 2)]
    feds = [w.federation(w.suite(), lanes=1, stack=True) for w in feds]
    for f in feds: f.one_round()
    one, two = (calls_of(f.one_round).total() for f in feds)
    return two-one

def test_a_step_of_ten_stacked_clients_takes_hardly_more_operators_than_one_of_two():
    assert stacked_step(10) <= stacked_step(2)+10

# ---- copies between devices: the `meta` device has shapes and no numbers, and is not the CPU

class Copies(TorchDispatchMode):
    "Counts copies from one kind of device to another while it is open."
    n = 0
    def __torch_dispatch__(self, f, types, args=(), kw=None):
        out = f(*args, **(kw or {}))
        tensors = [a for a in (*args, out) if isinstance(a, torch.Tensor)]
        copies = f.overloadpacket.__name__ in ('_to_copy', 'copy_')
        self.n += copies and len({t.device.type for t in tensors}) > 1
        return out

def copies_of(steps):
    "Copies between the CPU and a device on which images and model lie, in one client's local training."
    work, meta = replace(WORKS['W1'], net='small_conv(width=4)', clients=1, tests=2), torch.device('meta')
    fed = work.federation(work.suite(), lanes=1)
    worker = Worker(FedAvg, fed.net, fed.suite, replace(fed.setting, batch_size=2, local_steps=steps), meta)
    client = replace(fed.clients[0], train=fed.clients[0].train.apply(lambda t: t.to(meta)))
    c = worker.context(Task(client, worker.state()))
    with Copies() as copies: worker._phases(c)
    return copies.n

def test_no_image_is_copied_to_the_device_in_a_step():
    assert copies_of(1) == copies_of(5) <= 1

# ---- evaluation

def test_a_test_set_is_waited_for_once():
    work = replace(WORKS['W1'], net='small_conv(width=4)', clients=1, images=2, batch=2)
    fed = work.federation(work.suite(), lanes=1)
    d = next(iter(fed.suite.tests.values()))
    assert len(d) > 64 and calls_of(lambda: fed.worker.right(d.x, d.y))['_local_scalar_dense'] <= 1
