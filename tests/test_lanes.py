"""Lanes: equal to a loop without them bit for bit, quiet about the global dice, small in memory.

And nothing is lost when a lane fails or somebody presses Ctrl-C.
"""
import _thread, contextlib, copy, dis, os, random, subprocess, sys, textwrap, threading, time, weakref
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
import numpy as np
import pytest, torch
from feds import cut, equal, fed_of, first, halved, run
from feds import little as small
from kill import equal as same_nest
from plain_engine import PlainEngine
from torch import nn
from fedskew_nb.run.recipes import METHODS
from fedskew_nb.nets.convert import as_net
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.seeding import seeded
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.client import Worker
from fedskew_nb.engine.lanes import in_order, stream_for
from fedskew_nb.engine.server import Server
from fedskew_nb.methods.baselines.average import FedAvg, FedProx
from fedskew_nb.methods.baselines.personal import FedBN, KeepBatchNorm
from fedskew_nb.methods.f2dc.method import F2DC
from fedskew_nb.methods.fdse.method import FDSE

HERE = Path(__file__).parent

@pytest.fixture(scope='module')
def suite():
    "Four domains, one client each, of different sizes, in small pictures."
    return halved(cut(load_suite('emoji-pacs', 'tiny'), (16, 24, 40, 64), tests=12))

# ---- equal to a loop without them

def outcome(fed):
    "What must be equal, of a federation."
    return dict(server=fed.server, own=fed.own, rows=fed.history.rows, rounds=fed.history.rounds,
                states=fed.states, memory=fed.memory)

def without_bytes(rounds): return [{k: v for k, v in r.items() if k not in ('up', 'down')} for r in rounds]

@dataclass
class Late(Mechanism):
    "Weighs clients by what they learnt, which nobody knows before; remembers, tells and listens."
    def start(self, c):
        c.state['rounds'] = c.state.get('rounds', 0)+1
        c.state['dice'] = torch.rand(2, generator=c.gen('dice'))
    def loss(self, c, b, out):
        heard = float(c.down.get('heard', torch.ones(1)))
        return dict(pull=1e-3*out.feat.square().mean()*heard)
    def finish(self, c):
        lengths = [p.detach().norm() for p in c.params().values()]
        return dict(length=c.state['dice'].sum()+sum(lengths))
    def weights(self, srv, ups): return torch.stack([u.extra['length'] for u in ups])
    def extras(self, srv, ups):
        srv.state['told'] = srv.state.get('told', 0)+len(ups)
        return dict(heard=1+self.weights(srv, ups).mean())

class Own(nn.Module):
    "Somebody's classifier, with PyTorch's dropout in body and head."
    def __init__(self):
        super().__init__()
        with seeded(0):
            self.features = nn.Sequential(nn.Conv2d(3, 6, 5, 4), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(.2))
            self.classifier = nn.Sequential(nn.Dropout(.5), nn.Linear(6, 7))
    def forward(self, x): return self.classifier(self.features(x).mean((2, 3)))
def adopted(): return as_net(Own(), body='features', head='classifier', size=16)

HALF = dict(participation=.5)
CASES = {
    'FedAvg': (FedAvg, {}),
    'FedAvg, half': (FedAvg, HALF | dict(local_steps=None)),
    'FedAvg, dropout': (FedAvg, dict(net=adopted)),
    'FedProx, moved': (FedProx(mu=.5), dict(pad=2, flip=True)),
    'FedProx, dropout': (FedProx(mu=.5), dict(net=adopted, local_steps=None)),
    'FedBN': (FedBN, dict(local_steps=None)),
    'FedBN, half': (FedBN, HALF),
    'F2DC': (F2DC, dict(flip=True)),
    'FDSE': (FDSE, {}),
    'FDSE, half': (FDSE, HALF),
    'late weights': (Method('Late', Late()), {}),
    'late weights, own norms': (Method('Late', Late(), KeepBatchNorm()), HALF)}

@pytest.mark.parametrize('case', CASES)
def test_equal_to_a_loop_without_lanes(suite, case):
    suite = first(suite, 3, tests=6)
    method, kw = CASES[case]
    kw = dict(rounds=3, local_steps=2, batch_size=12, lr=.05, eval_every=2) | kw
    net = kw.pop('net', small)
    loop = PlainEngine(method, net(), suite, **kw).fit()
    feds = [fed_of(method, suite, net(), lanes=lanes, stack=False, **kw) for lanes in (1, 2, 8)]
    start = feds[0].server
    for fed in feds: fed.fit()
    weights = [n for n, v in start.items() if v.is_floating_point() and v.ndim > 1]
    assert any(not torch.equal(start[n], loop.server[n]) for n in weights)                       # it learns
    for fed in feds:
        got = outcome(fed)
        got['rounds'] = without_bytes(got['rounds'])
        for k, v in got.items(): assert same_nest(v, getattr(loop, k)), f'{k} with {fed.lanes.most} lanes'
        assert fed.history == feds[0].history


# ---- the global dice

SEEDERS = [(torch.random, 'fork_rng'), (torch, 'manual_seed'), (torch.random, 'manual_seed'),
           (torch, 'set_rng_state'), (torch.random, 'set_rng_state')]

def dice(): return torch.random.get_rng_state(), np.random.get_state(), random.getstate()

def same_dice(a, b):
    numpys = all(np.array_equal(x, y) for x, y in zip(a[1], b[1]))
    return torch.equal(a[0], b[0]) and numpys and a[2] == b[2]

@contextlib.contextmanager
def untouched(monkeypatch):
    "Fails if a global generator has moved, or if a lane seeded or forked one."
    def guarded(f):
        def g(*a, **k):
            assert threading.current_thread() is threading.main_thread(), f'{f.__name__} in a lane'
            return f(*a, **k)
        return g
    for module, name in SEEDERS: monkeypatch.setattr(module, name, guarded(getattr(module, name)))
    before = dice()
    yield
    assert same_dice(before, dice()), 'a global generator was used'

def many(suite, n, images=8):
    "That many clients with a few images each."
    def client(k): return replace(suite.clients[k%4], id=k, train=suite.clients[k%4].train[:images])
    return replace(suite, clients=[client(k) for k in range(n)])

@pytest.mark.parametrize('name, crowd', [*((n, False) for n in METHODS), ('FedAvg', True)])
def test_the_global_dice_stay_where_they_are(suite, name, crowd, monkeypatch):
    few = many(suite, 4) if crowd else first(suite, 2, tests=4)
    net = adopted() if name in ('FedAvg', 'FedProx', 'Local') else None
    steps = 2 if name in ('DFL', 'FedRep') else 1           # one in each phase
    fed = fed_of(METHODS[name], few, net, lanes=2, local_steps=steps, eval_every=1, pad=2, flip=True)
    with untouched(monkeypatch):
        fed.one_round()
        fed.score()
        fed.fit()
        fed.model(client=1)
        fed.predict(suite.clients[0].test.x, client=0)

DRAWS = {'torch': lambda: torch.rand(1), 'numpy': lambda: np.random.rand(), 'random': random.random,
         'a new layer': lambda: nn.Linear(2, 2), 'a seed': lambda: seeded(0).__enter__()}

@pytest.mark.parametrize('hook', ['loss', 'predict'])
@pytest.mark.parametrize('draw', DRAWS)
def test_whoever_uses_the_global_dice_is_caught(suite, draw, hook, monkeypatch):
    class Thief(Mechanism): pass
    def steal(*args):
        DRAWS[draw]()
        return {}
    setattr(Thief, hook, steal)
    says = 'global generator was used|in a lane'
    with torch.random.fork_rng(devices=[]), pytest.raises(AssertionError, match=says), untouched(monkeypatch):
        fed_of(Method('thief', Thief()), suite, lanes=2).fit()

# ---- what goes wrong in a lane

class Trouble(Mechanism):
    """A mechanism in whose way things go wrong.

    It calls `at(place, client context or None)` in the places of a round."""
    def __init__(self, at=lambda place, c: None): self._at = at
    def __deepcopy__(self, memo): return self
    def start(self, c): self._at('start', c)
    def loss(self, c, b, out):
        more = self._at('loss', c)
        return dict(trouble=0*out.logits.sum() if more is None else more)
    def finish(self, c): return self._quiet('finish', c)
    def extras(self, srv, ups): return self._quiet('extras')
    def predict(self, net, out): return self._quiet('predict')
    def _quiet(self, place, c=None):
        self._at(place, c)
        return {}

def troubled(suite, at=lambda place, c: None, net=None, **kw):
    "(federation, its troublemaker); it has memories, own tensors, and a file."
    t, how = Trouble(at), dict(rounds=4, local_steps=2, eval_every=2, lanes=2) | kw
    return fed_of(Method('Troubled', t, Late(), KeepBatchNorm()), suite, net, **how), t

@pytest.fixture(scope='module')
def calm(suite):
    "What the federation of `troubled` comes to when nothing happens."
    fed, _ = troubled(suite, lanes=1)
    fed.fit()
    return outcome(fed)

def frozen(fed):
    return copy.deepcopy(outcome(fed) | dict(down=fed.down, round_no=fed.round_no, scored=fed.scored))

def ends_well(fed, t, calm):
    "Without the trouble it goes on to the end that it would have had."
    t._at = lambda place, c: None
    fed.fit()
    return same_nest(outcome(fed), calm)

def stop_of(fed, c): return next(w.stop for w in fed.lanes.workers if w.net is c.net)

@pytest.mark.parametrize('lanes', [1, 2, 8])
@pytest.mark.parametrize('place', ['start', 'loss', 'finish'])
def test_an_error_in_a_lane(suite, calm, lanes, place):
    failed, late = threading.Event(), []
    def at(where, c):
        if c is None or c.round != 2: return
        if where == place and c.id == 3:
            failed.set()
            raise ValueError('a stumble')
        if where == 'loss' and c.id == 2 and lanes > 1:                   # a slow one, before it in order
            failed.wait(10)
            stop_of(fed, c).wait(10)
            late.append(c.steps)
    fed, t = troubled(suite, at, lanes=lanes)
    fed.fit(2)
    before = frozen(fed)
    with pytest.raises(ValueError, match='a stumble') as e: fed.fit()
    notes = ' '.join(e.value.__notes__)
    assert 'client 3 (sketch) in round 3' in notes and 'client 2' not in notes
    assert len(late) < 2 and same_nest(frozen(fed), before) and ends_well(fed, t, calm)

class Sometimes(Mechanism):
    "A loss term that only clients with a past have."
    def loss(self, c, b, out):
        past, c.state['past'] = c.state.get('past'), True
        return dict(late=out.logits.square().mean()) if past else {}

def test_a_term_that_only_some_clients_have(suite):
    how = dict(rounds=4, local_steps=1, participation=.5)
    rounds = run(Method('Sometimes', Sometimes()), suite, small(width=1), **how).history.rounds
    seen, mixed = set(), False
    for r in rounds:
        assert r['loss'] == pytest.approx(sum(r['terms'].values()))
        known = {k in seen for k in r['participants']}
        assert ('late' in r['terms']) == (True in known)
        mixed |= len(known) == 2
        seen |= {*r['participants']}
    assert mixed                                                          # a round of both kinds

def test_fit_of_no_rounds_does_nothing(suite):
    fed = fed_of(FedAvg, suite, small(width=1))
    fed.fit(0)
    assert fed.round_no == 0 and not fed.history.rounds

def test_a_checkpoint_before_the_scores_gets_them(suite, tmp_path):
    whole, half, rest = (fed_of(FedAvg, suite, small(width=1), rounds=1) for _ in range(3))
    whole.fit()
    half.one_round()
    half.save(tmp_path/'c.safetensors')
    rest.load(tmp_path/'c.safetensors').fit()
    assert whole.history == rest.history and len(rest.history.rows) > len(half.history.rows)

ASKS = dict(one_round=lambda f: f.one_round(), score=lambda f: f.score(), fit=lambda f: f.fit(1),
            predict=lambda f: f.predict(f.suite.clients[0].test.x))

@pytest.mark.parametrize('ask', ASKS)
def test_whoever_is_asked_uses_the_threads_of_the_setting(suite, monkeypatch, ask):
    seen, real = [], Worker.images
    def counted(*args):
        seen.append(torch.get_num_threads())
        return real(*args)
    monkeypatch.setattr(Worker, 'images', counted)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        fed = fed_of(FedAvg, first(suite, 1, tests=4), small(width=1), lanes=1, threads=2, local_steps=1)
        seen.clear()
        ASKS[ask](fed)
        assert set(seen) == {2} and torch.get_num_threads() == 3
    finally: torch.set_num_threads(before)

LAST_GOOD = r'\(\w+\) in round {}: .* the last good checkpoint is .*c$'

@pytest.mark.parametrize('lanes', [1, 2])
def test_numbers_that_are_not_finite(suite, calm, lanes, tmp_path):
    def at(where, c):
        if where != 'loss' or (c.round, c.id) != (2, 1): return
        return torch.tensor(float('nan'), requires_grad=True)
    fed, t = troubled(suite, at, lanes=lanes, out=tmp_path/'c')
    fed.fit(2)
    before, says = frozen(fed), 'not finite at client 1 '+LAST_GOOD.format(3)
    with pytest.raises(FloatingPointError, match=says): fed.fit()
    assert same_nest(frozen(fed), before) and ends_well(fed, t, calm)

def test_numbers_that_are_not_finite_in_a_stack(suite, tmp_path):
    crowd, how = many(suite, 4), dict(rounds=3, eval_every=1, stack=True)
    fed = fed_of(FedAvg, crowd, lanes=2, out=tmp_path/'c', **how)
    fed.fit(1)
    good, before = fed.server, frozen(fed)
    fed.server = copy.deepcopy(good)
    fed.server['head.weight'].fill_(float('nan'))
    says = r'not finite at client \d '+LAST_GOOD.format(2)
    with pytest.raises(FloatingPointError, match=says): fed.fit()
    fed.server = good
    assert same_nest(frozen(fed), before)
    fed.fit()
    assert same_nest(outcome(fed), outcome(run(FedAvg, crowd, lanes=1, **how)))

def test_an_error_at_the_server(suite, calm):
    def at(where, c):
        if where == 'extras' and fed.round_no == 1: raise ValueError('the server stumbles')
    fed, t = troubled(suite, at)
    fed.fit(1)
    before = frozen(fed)
    with pytest.raises(ValueError, match='the server stumbles'): fed.fit()
    assert same_nest(frozen(fed), before) and ends_well(fed, t, calm)

def test_clients_can_be_trained_one_by_one_after_a_round(suite):
    "A lane that has done its work is no stopped lane."
    sent = []
    for lanes in (1, 2):
        fed = fed_of(FedAvg, suite, lanes=lanes, rounds=3)
        fed.fit(1)
        sent.append(fed.train_client(fed.clients[1]).upload.state)
    assert same_nest(*sent)

# ---- Ctrl-C

def interrupts(how, press):
    "What a hook does to be an interruption."
    if how == 'raised in a lane': raise KeyboardInterrupt
    if how == 'signal': press()
    else: _thread.interrupt_main()

def only(threads, seconds=10):
    "Are these threads the only ones? One that was just being started ends by itself."
    end = time.monotonic()+seconds
    while (others := set(threading.enumerate())-set(threads)) and time.monotonic() < end: time.sleep(.01)
    return not others

@pytest.mark.parametrize('where', ['loss', 'predict'])
@pytest.mark.parametrize('how', ['raised in a lane', 'signal', 'interrupt_main'])
@pytest.mark.parametrize('lanes', [1, 2])
def test_interrupted_in_a_round_and_while_scoring(suite, calm, ctrl_c, where, how, lanes):
    done = []
    def at(place, c):
        if place != where or done: return
        due = fed.round_no == 2 if c is None else (c.round, c.id, c.steps) == (2, 2, 1)
        if not due: return
        done.append(1)
        interrupts(how, ctrl_c)
    fed, t = troubled(suite, at, lanes=lanes)
    threads = threading.enumerate()
    with pytest.raises(KeyboardInterrupt): fed.fit()
    assert done and only(threads) and torch.get_num_threads() == 1
    assert fed.round_no == len(fed.history.rounds) == 2
    assert ends_well(fed, t, calm)

def test_interrupted_between_rounds(suite, calm, tmp_path):
    def stop(fed): raise KeyboardInterrupt
    fed, t = troubled(suite, out=tmp_path/'c')
    for r in (1, 2, 3, 4):
        with pytest.raises(KeyboardInterrupt): fed.fit(on_round=stop)
        assert fed.round_no == len(fed.history.rounds) == r
    assert ends_well(fed, t, calm) and same_nest(outcome(troubled(suite)[0].load(tmp_path/'c')), calm)

def test_pressed_twice(suite, calm, ctrl_c):
    """The second Ctrl-C comes while the first waits for the lanes.

    None of them may be at work when `fit` is back."""
    back, inside = threading.Event(), []
    def at(place, c):
        if place != 'loss' or (c.round, c.id) != (2, 2) or inside: return
        inside.append(None)
        ctrl_c()
        stop_of(fed, c).wait(10)
        back.wait(.1)
        ctrl_c()
        inside[0] = back.wait(.3)                           # is anybody back while this lane is here?
    fed, t = troubled(suite, at)
    fed.fit(2)
    with pytest.raises(KeyboardInterrupt): fed.fit()
    back.set()
    assert inside == [False] and ends_well(fed, t, calm)

FUNCTIONS = ('one_round', 'after_round', 'receive', 'aggregate', 'score', 'scores')

def instructions_before(code):
    "{offset: name of the instruction before it}."
    ops = list(dis.get_instructions(code))
    return {b.offset: a.opname for a, b in zip(ops, ops[1:])}

def press_at(fed, k: int | None = None):
    """Fit, and raise KeyboardInterrupt at the k-th place of `FUNCTIONS` where Python looks for signals.

    It looks after a call and after a jump back. → How many such places there are."""
    seen, before, done = set(), {}, []
    def arrived(frame, event, arg):
        code = frame.f_code
        frame.f_trace_opcodes = not done
        if code not in before: before[code] = instructions_before(code)
        looks = before[code].get(frame.f_lasti, '').startswith(('CALL', 'JUMP_BACKWARD'))
        if event == 'opcode' and not done and looks:
            seen.add((code, frame.f_lasti))
            if len(seen) == k:
                done.append(1)
                raise KeyboardInterrupt
        return arrived
    def called(frame, event, arg):
        code = frame.f_code
        of_engine = Path(code.co_filename).parent.name == 'engine'
        return arrived if of_engine and code.co_name in FUNCTIONS else None
    sys._getframe().f_trace_opcodes = True     # Python 3.12 looks at this when tracing begins, and not again
    was = sys.gettrace()
    sys.settrace(called)
    try: fed.fit()
    finally: sys.settrace(was)
    return len(seen)

def test_interrupted_anywhere_in_a_round(suite):
    "A round has happened, or it has not: no place in its code where half of it would be lost."
    clients = [replace(c, train=c.train[:4], test=c.test[:2]) for c in suite.clients[:2]]
    few = replace(suite, clients=clients, tests={'photo': suite.tests['photo'][:2]})
    how = dict(lanes=1, rounds=1, local_steps=1)
    fed = fed_of(Method('Late', Late(), KeepBatchNorm()), few, small(width=1), **how)
    start, first, wrong = copy.deepcopy(fed.server), copy.deepcopy(fed.state), []
    n, want = press_at(fed), outcome(fed)
    for k in range(1, n+1):
        fed.worker.load(start)
        fed.state, fed.caches = copy.deepcopy(first), {c.id: {} for c in fed.clients}     # round 0 again
        with pytest.raises(KeyboardInterrupt): press_at(fed, k)
        whole = fed.round_no == len(fed.history.rounds)
        with contextlib.suppress(IndexError): fed.fit()
        if not whole or not same_nest(outcome(fed), want): wrong.append(k)
    assert n > 30 and not wrong, f'{wrong} of {n} places'

# ---- kill -9

@pytest.mark.campaign
@pytest.mark.skipif(not hasattr(os, 'fork'), reason='no fork here')
def test_killed_and_gone_on():
    "Three kills at moments drawn with a fixed seed; `tests/tools/kill.py N SEED` does more."
    command = [sys.executable, HERE/'tools'/'kill.py', '3', '0']
    p = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert p.returncode == 0 and '3 of 3 ended equal' in p.stdout, p.stdout+p.stderr
    assert p.stdout.count(': killed') >= 2, p.stdout+p.stderr

@pytest.mark.parametrize('before, after', [(2, 1), (1, 8)])
def test_checkpoints_do_not_know_lanes(suite, calm, tmp_path, before, after):
    fed, _ = troubled(suite, lanes=before, out=tmp_path/'c')
    fed.fit(2)
    then, _ = troubled(suite, lanes=after)
    then.load(tmp_path/'c').fit()
    assert then.round_no == 4 and same_nest(outcome(then), calm)

# ---- memory

needs_proc = pytest.mark.skipif(not Path('/proc/self/statm').exists(), reason='no /proc here')

NOW = '''
import os
def now(): return int(open('/proc/self/statm').read().split()[1])*os.sysconf('SC_PAGE_SIZE')/1e6
'''

def alone(code, *args):
    "The numbers that a program of its own prints; it has `now()`, the MB in use."
    env = os.environ | dict(PYTHONPATH=os.pathsep.join([str(HERE), *sys.path]))
    command = [sys.executable, '-c', NOW+textwrap.dedent(code), *map(str, args)]
    p = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=HERE, env=env)
    assert p.returncode == 0, p.stderr
    return [float(x) for x in p.stdout.split()]

@pytest.mark.campaign
@needs_proc
def test_memory_does_not_grow_over_200_rounds():
    """An upload of width 4 has 0.14 MB: one kept per round would be 21 MB after 150 more.

    6 MB are the allocator's leeway."""
    rss = alone('''
        import gc, torch
        from fedskew_nb.data.load import load_suite
        from fedskew_nb.methods.baselines.personal import FedBN
        from feds import cut, fed_of
        how = dict(lanes=2, stack=False, rounds=201, local_steps=1, batch_size=4, eval_every=20, lr=.01)
        fed = fed_of(FedBN, cut(load_suite('emoji-pacs', 'tiny'), (8, 8, 8), tests=4), **how)
        def say(fed):
            if fed.round_no not in (50, 200): return
            gc.collect()
            print(now(), sum(torch.is_tensor(o) for o in gc.get_objects()))
        fed.fit(200, on_round=say)''')
    assert rss[2]-rss[0] < 6 and rss[3] <= rss[1], rss

@pytest.fixture
def alive(monkeypatch):
    "{method: the most uploads whose first tensor was alive at a time}, and references to all of them."
    most, ups, lock, train = {}, [], threading.Lock(), Worker.train
    def counted(self, *a):
        result = train(self, *a)
        some, name = next(iter(result.upload.state.values())), self.method.name
        with lock:
            ups.append(weakref.ref(some))
            most[name] = max(most.get(name, 0), sum(ref() is not None for ref in ups))
        return result
    monkeypatch.setattr(Worker, 'train', counted)
    return most, ups

@pytest.mark.parametrize('lanes', [1, 2])
def test_uploads_are_summed_as_they_come(suite, lanes, alive):
    "As many whole uploads live at any time as the window of the lanes holds; after the round, none."
    most, ups = alive
    how = dict(lanes=lanes, rounds=2, local_steps=1, stack=False)
    for m in (FedAvg, FedProx, Method('Late', Late())):
        fed_of(m, many(suite, 16), small(width=1), **how).one_round()
    assert most['FedAvg'] <= 2*lanes+1 and most['FedProx'] <= 2*lanes+1 and most['Late'] == 16
    assert all(ref() is None for ref in ups)

@pytest.mark.parametrize('lanes', [1, 2])
def test_a_rule_that_wants_all_rows_gets_them(suite, lanes, monkeypatch):
    held, aggregate = [], Server.aggregate
    def noted(self):
        held.append([set(u.state) for u in self.ups])
        return aggregate(self)
    monkeypatch.setattr(Server, 'aggregate', noted)
    fed_of(FDSE, many(suite, 6), lanes=lanes, rounds=2, local_steps=1).one_round()
    names, *others = held[0]
    assert len(others) == 5 and len(names) > 10 and all(n == names for n in others)

@pytest.mark.campaign
@needs_proc
def test_three_hundred_clients():
    """300 × 64 images, three convolutions of 32, 64 and 128 channels: within 2 GiB, and soon growing no more.

    Eighty bytes made anew between two clients' blocks were enough to make it grow by 1 MB per client."""
    peak, before, late = alone('''
        import resource, torch
        from fedskew_nb.data.suite import Client, Suite
        from fedskew_nb.data.images import Data
        from fedskew_nb import generator
        from fedskew_nb.engine.server import Server
        from fedskew_nb.methods.baselines.average import FedAvg
        from fedskew_nb.nets.models import small_conv
        from feds import fed_of
        g, at, receive = generator('images'), {}, Server.receive
        def data(n):
            x = torch.randint(0, 256, (n, 3, 32, 32), generator=g, dtype=torch.uint8)
            return Data(x, torch.randint(0, 10, (n,), generator=g))
        def watched(server, up):
            receive(server, up)
            at[len(server.ups)] = now()
        Server.receive = watched
        t = data(64)
        clients = [Client(k, 'd', data(64), t[:0], t[:0]) for k in range(300)]
        s = Suite('many', list(map(str, range(10))), clients, {'d': t})
        how = dict(lanes=2, stack=False, rounds=1, local_steps=1, batch_size=64)
        fed_of(FedAvg, s, small_conv(10, width=32), **how).fit()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/1e3, at[100], at[300])''')
    assert peak < 2147 and late-before < 100, (peak, before, late)

# ---- lanes as an argument, threads, streams

@pytest.mark.parametrize('lanes', [0, -1, True, False, 'two', 1.5])
def test_lanes_that_are_no_number(suite, lanes):
    says = f'lanes is {lanes!r}: give a whole number of at least 1'
    with pytest.raises(ValueError, match=says): fed_of(FedAvg, suite, lanes=lanes)

def test_more_lanes_than_clients(suite):
    one = replace(suite, clients=suite.clients[:1])
    a, b = (run(FedAvg, one, lanes=lanes) for lanes in (100, 1))
    assert equal(a, b) and a.history == b.history and len(a.lanes.workers) <= 5

@pytest.mark.parametrize('lanes, threads', [(1, 1), (2, 1), (1, 2)])
def test_threads_are_restored(suite, lanes, threads):
    "After a run that ends, one that fails, one that is interrupted."
    before, seen, few = torch.get_num_threads(), set(), first(suite, 2, tests=4)
    how = dict(lanes=lanes, threads=threads, rounds=2, local_steps=1, batch_size=4, eval_every=2)
    def at(place, c):
        seen.add(torch.get_num_threads())
        if fault and place == 'loss' and c.round == 1: raise fault('x')
    torch.set_num_threads(before+1)
    try:
        for fault in (None, ValueError, KeyboardInterrupt):
            fed, _ = troubled(few, at, small(width=1), **how)
            with pytest.raises(fault) if fault else contextlib.nullcontext(): fed.fit()
            assert torch.get_num_threads() == before+1 and seen == {threads}
    finally: torch.set_num_threads(before)

@pytest.fixture
def streams(monkeypatch):
    "CUDA's streams without CUDA: their class, and what was said."
    said = []
    class Stream:
        def __init__(self, device):
            self.device = device
            said.append(f'made on {device}')
        def wait_stream(self, other): said.append(f'waits for {other}')
        def synchronize(self): said.append('waited')
    @contextlib.contextmanager
    def on(s):
        said.append('in')
        try: yield
        finally: said.append('out')
    monkeypatch.setattr(torch.cuda, 'stream', on)
    monkeypatch.setattr(torch.cuda, 'current_stream', lambda d: f'all on {d}')
    return Stream, said

BEGUN = ['made on cuda:0', 'waits for all on cuda:0', 'in']

def test_a_stream_is_left_when_its_work_is_done(streams):
    Stream, said = streams
    with stream_for('cuda:0', new=Stream) as s:
        said.append('work')
        assert isinstance(s, Stream)
    assert said == [*BEGUN, 'work', 'waited', 'out']

def test_a_stream_is_left_when_its_work_fails(streams):
    Stream, said = streams
    with pytest.raises(ZeroDivisionError), stream_for('cuda:0', new=Stream): 1/0
    assert said == [*BEGUN, 'waited', 'out']

def test_a_processor_has_no_stream():
    with stream_for('cpu') as s: assert s is None

# ---- the scheduler by itself

@pytest.mark.parametrize('lanes', [1, 2, 5])
def test_jobs_in_order(lanes):
    draws = random.Random(lanes)
    turn, here = [draws.random()*.002 for _ in range(60)], list(range(lanes))
    def f(lane, j):
        time.sleep(turn[j])
        return j
    assert list(in_order(f, here, iter(range(60)))) == list(range(60)) and list(in_order(f, here, [])) == []

def test_a_lane_does_one_job_at_a_time():
    busy = [SimpleNamespace(n=0) for _ in range(3)]
    def f(lane, j):
        lane.n += 1
        assert lane.n == 1
        time.sleep(.001)
        lane.n -= 1
        return j
    assert list(in_order(f, busy, range(50))) == list(range(50))

def test_the_source_of_jobs_fails():
    def jobs():
        yield from (1, 2)
        raise ValueError('no more')
    threads = threading.active_count()
    with pytest.raises(ValueError, match='no more'): list(in_order(lambda lane, j: j, [0, 1], jobs()))
    assert threading.active_count() == threads
