"""What holds for each method of the registry, also for one that is added tomorrow.

A rehearsal is a deployment in one process: each client is a federation of its own images, and what passes
between it and the server are bytes.
"""
from dataclasses import replace
import pytest, torch
from feds import cut, fed_of, halved, name_of
from fedskew_nb.run.recipes import METHODS, read_method
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.checkpoint import from_bytes, to_bytes
from fedskew_nb.engine.sites import Here
from fedskew_nb.engine.server import size_of

@pytest.fixture(scope='module')
def three():
    "Three domains with a few images each."
    return halved(cut(load_suite('emoji-pacs', 'tiny'), (16, 24, 40), tests=4))

def rows_of(fed, images):
    "A row of each image as it lies in memory, raw and as a net gets it: channels last."
    rows = [*images[:, 0, 8], *fed.worker.images(images)[:, :, 8].transpose(1, 2)]
    return [row.contiguous().cpu().numpy().tobytes() for row in rows]

class Nodes(Here):
    "Clients of a federation, each a federation of one with a memory of its own."
    def __init__(self, make, suite):
        self.alone = {c.id: make(suite=replace(suite, clients=[c])) for c in suite.clients}
        self.images = {c.id: rows_of(self.alone[c.id], c.train.x) for c in suite.clients}
        self.memory, self.moved = {}, []
    def train(self, fed, who):
        self.moved.append(dict(up=0, down=0))
        for c in who:
            order = to_bytes(fed.order(c.id))
            mine = self.memory.get(c.id) and from_bytes(self.memory[c.id])
            answer, mine = self.alone[c.id].work(from_bytes(order), mine)
            answer, self.memory[c.id] = to_bytes(answer), to_bytes(mine)
            assert not any(row in answer for row in self.images[c.id])      # no image leaves
            self.moved[-1]['down'] += counted(from_bytes(order), 'down')
            self.moved[-1]['up'] += counted(from_bytes(answer), 'extra')
            yield from_bytes(answer), from_bytes(self.memory[c.id])

def counted(nest, beside):
    "Bytes of a model without its counters, and of what travels beside it."
    return size_of({n: v for n, v in nest['model'].items() if v.is_floating_point()})+size_of(nest[beside])

def rehearsed(make, suite, path):
    "The rounds of a federation with such clients, whose server is another one after the first."
    nodes = Nodes(make, suite)
    first, then = (make(suite=suite, sites=nodes) for _ in range(2))
    first.fit(1)
    first.save(path)
    then.load(path).fit()
    return then, nodes

def test_an_image_that_left_would_be_found(three):
    fed = fed_of(METHODS['FedAvg'], three)
    x = three.clients[0].train.x
    for sent in (x, fed.worker.images(x)[3:5]):
        data = to_bytes(dict(x=sent))
        assert any(row in data for row in rows_of(fed, x))

def same_nest(a, b):
    "Equal in every tensor, number and text."
    if torch.is_tensor(a): return torch.is_tensor(b) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict): return a.keys() == b.keys() and all(same_nest(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)): return len(a) == len(b) and all(map(same_nest, a, b))
    return a == b

LESS = dict(FedTGP=dict(epochs=5), FedGen=dict(steps=5))      # of what the server trains
SOME = dict(participation=.6, rounds=4)
STEPS = dict(DFL=2, FedRep=2)                                  # one in each phase; of others one in all
RUNS = [*((m(**LESS.get(n, {})), dict(local_steps=STEPS.get(n, 1))) for n, m in METHODS.items()),
        *((METHODS[n], SOME) for n in ('SCAFFOLD', 'MOON', 'FDSE')),
        *((read_method(t), {}) for t in ('SCAFFOLD + FedBN', 'Ditto + FedProx', 'F2DC + FedBN'))]

@pytest.mark.parametrize('method, how', RUNS, ids=name_of)
def test_a_rehearsal_is_the_run(three, method, how, tmp_path):
    "Over bytes, with another server after the first round: to the last digit of each loss."
    def make(suite=three, **sites):
        return fed_of(method, suite, lanes=1, stack=False, **sites, **dict(rounds=3) | how)
    whole = make()
    whole.fit()
    there, nodes = rehearsed(make, three, tmp_path/'c')
    assert there.history == whole.history
    for part in ('server', 'own', 'states', 'memory', 'down'):
        assert same_nest(getattr(there, part), getattr(whole, part)), part
    told = [dict(up=r['up'], down=r['down']) for r in whole.history.rounds]
    assert nodes.moved[:-1] == told[:-1]      # in the last round a model goes down whole, to be asked
    assert nodes.moved[-1]['up'] == told[-1]['up']
