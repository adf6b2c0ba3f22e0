"Lanes: equal to a loop without them bit for bit, quiet about the global dice, small in memory, and nothing is lost when a lane fails or somebody presses Ctrl-C."
import _thread, contextlib, copy, dis, os, random, signal, subprocess, sys, textwrap, threading, time, weakref
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
import numpy as np
import pytest, torch
from feds import DEVICE, equal, fed_of, first, run, small
from kill import equal as same_nest
from torch import nn
from fedskew_nb.core.convert import as_net
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.seeding import Random, generator
from fedskew_nb.data.batch import draw_moves, move, normalise
from fedskew_nb.core.context import ClientContext, ServerContext, Upload
from fedskew_nb.engine.server import Server
from fedskew_nb.engine.lanes import in_order, stream_for
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.baselines.proximal import FedProx
from fedskew_nb.methods.f2dc.method import F2DC
from fedskew_nb.methods.fdse.method import FDSE
from fedskew_nb.methods.baselines.personal import FedBN, KeepBatchNorm
from fedskew_nb.core.seeding import seeded
from fedskew_nb.app.recipes import METHODS
from fedskew_nb.engine.setting import schedule, setting_for
from fedskew_nb.engine.client import Worker

TOOLS = Path(__file__).parent/'tools'

# ---- the reference: no workers, no lanes, no inbox

def as_input(x, suite): return normalise(x, suite.mean, suite.std).contiguous(memory_format=torch.channels_last)

def client_by_hand(method, net, suite, s, c, start, states, caches, down, r):
    "A model of its own, SGD of PyTorch: (upload, means of the loss terms, trained model)."
    def model(): m = copy.deepcopy(net); m.load_state_dict(start); return m
    m,sums = model(),{}; ctx = ClientContext(c.id, m, c, states, caches, down, s.seed, r, s.rounds, DEVICE, s.lr*s.decay**r, receive=model)
    method.everyone('start', ctx)
    for ctx.phase,epochs,learns in method.one('phases', s.local_epochs) or [('all', s.local_epochs, lambda n: True)]:
        m.train()
        for n,p in m.named_parameters(): p.requires_grad_(learns(n))
        for n,k in m.named_modules():
            if isinstance(k, Random): k.generator = ctx.gen(f'net.{n}')
            if (ps := list(k.parameters(recurse=False))) and not any(p.requires_grad for p in ps): k.eval()
        opt = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], ctx.lr, momentum=s.momentum, weight_decay=s.weight_decay)
        for i in schedule(len(c.train), s.batch_size, ctx.gen('order'), epochs, s.local_steps):
            b = method.make_batch(ctx, dict(x=c.train.x[i], y=c.train.y[i], i=i))
            moved = draw_moves(len(i), ctx.gen('augment'), s.pad, s.flip) if s.pad or s.flip else None
            b = {k:as_input(move(v, moved) if moved else v, suite) if v.dtype==torch.uint8 else v for k,v in b.items()}
            out = method.run_forward(ctx, b); method.everyone('inner', ctx, b, out); terms = method.terms(ctx, b, out)
            opt.zero_grad(); sum(terms.values()).backward(); opt.step(); ctx.steps += 1
            for k,v in terms.items(): sums[k] = sums.get(k,0)+v.detach()
    up = Upload(c.id, len(c.train), c.domain, c.train.y.cpu().bincount(minlength=suite.n_classes), m.state_dict(), method.union('finish', ctx))
    return up, {k:float(v)/ctx.steps for k,v in sums.items()}, m

@torch.no_grad()
def right_by_hand(method, m, suite, data):
    "{path: how many of these images a model gets right}."
    found = {}; m.eval()
    for x,y in zip(data.x.split(64), data.y.split(64)):
        out = m(as_input(x, suite))
        for path,p in ({'':out.logits.softmax(1)}|method.union('predict', m, out)).items(): found[path] = found.get(path,0)+int((p.argmax(1)==y).sum())
    return found

def reference(method, net, suite, **kw):
    "Every upload kept, every rule on the stacked rows, every model asked about every set: (server, own, rows, rounds, memories)."
    s,suite = setting_for(method, **kw),suite.to(DEVICE); net = method.adapt(net, s.seed).to(DEVICE, memory_format=torch.channels_last); memory,down,rows,rounds = {},{},[],[]
    server = {n:v.clone() for n,v in net.state_dict().items()}; own,states,caches = ({c.id:{} for c in suite.clients} for _ in range(3))
    def said(right, data, r, default='', **facts): rows.extend(dict(round=r+1, path=p or default, n=len(data), correct=k, **facts) for p,k in right.items())
    for r in range(s.rounds):
        g = generator(s.seed, r, 'participants'); K = len(suite.clients); k = max(1, round(s.participation*K))
        who = [suite.clients[i] for i in (sorted(torch.randperm(K, generator=g)[:k].tolist()) if k<K else range(K))]
        done = [client_by_hand(method, net, suite, s, c, server|own[c.id], states[c.id], caches[c.id], down, r) for c in who]; ups = [u for u,_,_ in done]
        if r+1==s.rounds:
            for c,(_,_,m) in zip(who, done): said(right_by_hand(method, m, suite, c.test), c.test, r, moment='post_local', view='personal', domain=c.domain, client=c.id)
        see = lambda **more: ServerContext(memory, [u.id for u in ups], {c.id:len(c.train) for c in suite.clients}, {c.id:c.domain for c in suite.clients}, r, s.rounds, s.seed, **more)
        w = method.one('weights', see(), ups); w = torch.tensor([float(u.n) for u in ups]).double() if w is None else w.double(); w = w/w.sum()
        groups,old,mine = {},server,{u.id:server|own[u.id] for u in ups}; server = dict(server)
        for n,(m,rule) in method.rules(net).items(): groups.setdefault((id(m), rule.fn, rule.by(n)), (m,rule,[]))[2].append(n)
        for m,rule,names in groups.values():
            srv = see(names=names, shapes=[old[n].shape for n in names]); row = lambda state: torch.cat([state[n].flatten() for n in names])
            V = torch.stack([row(u.state) for u in ups]); R = rule.fn(V, torch.stack([row(mine[u.id]) for u in ups]), w, srv.window(m) if m else srv)
            for u,x in zip(ups, R if R.ndim==2 else ()): own[u.id] |= {n:v.clone() for n,v in srv.split(x).items()}
            if rule.fn.__name__!='keep': server |= srv.split(R if R.ndim==1 else sum_in_order(R, w))
        down = method.union('extras', see(), ups); terms = [t for _,t,_ in done]; terms = {k:sum(t.get(k,0) for t in terms)/len(terms) for k in {k:0 for t in terms for k in t}}
        rounds.append(dict(round=r+1, loss=sum(terms.values()), terms=terms, participants=[c.id for c in who]))
        if (r+1)%s.eval_every and r+1<s.rounds: continue
        personal,every,last = any(own.values()),any(m.everywhere for m in method.mechanisms),r+1==s.rounds
        def ask(k, data, **facts):
            m = copy.deepcopy(net); m.load_state_dict(server|own.get(k,{})); said(right_by_hand(method, m, suite, data), data, r, moment='post_agg', **facts)
        if not personal:
            for d,t in suite.tests.items(): ask(-1, t, view='global', domain=d, client=-1)
        for c in suite.clients if personal or last else ():
            ask(c.id, c.test, view='personal', domain=c.domain, client=c.id)
            for d,t in suite.tests.items() if personal and every else (): ask(c.id, t, view='global', domain=d, client=c.id, default='client')
    return dict(server=server, own=own, rows=rows, rounds=rounds, states=states, memory=memory)

def sum_in_order(R, w):
    total = torch.zeros_like(R[0])
    for x,p in zip(R, w): total.add_(x, alpha=float(p))
    return total

def outcome(fed):
    "What must be equal, of a federation."
    return dict(server=fed.server, own=fed.own, rows=fed.history.rows, rounds=fed.history.rounds, states=fed.states, memory=fed.memory)
def without_bytes(o): return o|dict(rounds=[{k:v for k,v in r.items() if k not in ('up','down')} for r in o['rounds']])

@dataclass
class Late(Mechanism):
    "Weighs clients by what they learnt, which nobody knows before; remembers, tells and listens."
    def start(self, c): c.state['rounds'] = c.state.get('rounds',0)+1; c.state['dice'] = torch.rand(2, generator=c.gen('dice'))
    def loss(self, c, b, out): return dict(pull=1e-3*out.feat.square().mean()*float(c.down.get('heard', torch.ones(1))))
    def finish(self, c): return dict(length=c.state['dice'].sum()+sum(p.detach().norm() for p in c.params().values()))
    def weights(self, srv, ups): return torch.stack([u.extra['length'] for u in ups])
    def extras(self, srv, ups): srv.state['told'] = srv.state.get('told',0)+len(ups); return dict(heard=1+torch.stack([u.extra['length'] for u in ups]).mean())

class Own(nn.Module):
    "Somebody's classifier, with PyTorch's dropout in body and head."
    def __init__(self):
        super().__init__()
        with seeded(0): self.features,self.classifier = nn.Sequential(nn.Conv2d(3,6,5,4), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(.2)),nn.Sequential(nn.Dropout(.5), nn.Linear(6,7))
    def forward(self, x): return self.classifier(self.features(x).mean((2,3)))
def adopted(): return as_net(Own(), body='features', head='classifier', size=32)

CASES = {'FedAvg':(FedAvg,{}), 'FedAvg, half':(FedAvg,dict(participation=.5, local_steps=None)), 'FedAvg, dropout':(FedAvg,dict(net=adopted)), 'FedProx, moved':(FedProx(mu=.5),dict(pad=2, flip=True)),
    'FedProx, dropout':(FedProx(mu=.5),dict(net=adopted, local_steps=None)), 'FedBN':(FedBN,dict(local_steps=None)), 'FedBN, half':(FedBN,dict(participation=.5)), 'F2DC':(F2DC,dict(flip=True)), 'FDSE':(FDSE,{}),
    'FDSE, half':(FDSE,dict(participation=.5)), 'late weights':(Method('Late', Late()),{}), 'late weights, own norms':(Method('Late', Late(), KeepBatchNorm()),dict(participation=.5))}

@pytest.mark.parametrize('case', CASES)
def test_equal_to_a_loop_without_lanes(suite, case):
    suite = first(suite, 3, tests=6)
    method,kw = CASES[case]; kw = dict(rounds=3, local_steps=2, batch_size=12, lr=.05, eval_every=2)|kw; net = kw.pop('net', small)
    want = reference(method, net(), suite, **kw); feds = {lanes:fed_of(method, suite, net(), lanes=lanes, **kw) for lanes in (1,2,8)}
    assert any(not torch.equal(v, want['server'][n]) for n,v in feds[1].server.items() if v.is_floating_point() and v.ndim>1)      # it learns
    for lanes,fed in feds.items():
        fed.fit(); got = without_bytes(outcome(fed))
        for k in want: assert same_nest(got[k], want[k]), f'{k} with {lanes} lanes'
    assert feds[1].history==feds[2].history==feds[8].history


# ---- the global dice

@contextlib.contextmanager
def untouched(monkeypatch):
    "Fails if a global generator has moved, or if a lane seeded or forked one."
    def dice(): return torch.random.get_rng_state(), np.random.get_state(), random.getstate()
    def same(a, b): return torch.equal(a[0],b[0]) and all(np.array_equal(x,y) for x,y in zip(a[1],b[1])) and a[2]==b[2]
    def guarded(f):
        def g(*a, **k): assert threading.current_thread() is threading.main_thread(), f'{f.__name__} in a lane'; return f(*a, **k)
        return g
    for m,n in ((torch.random,'fork_rng'), (torch,'manual_seed'), (torch.random,'manual_seed'), (torch,'set_rng_state'), (torch.random,'set_rng_state')): monkeypatch.setattr(m, n, guarded(getattr(m,n)))
    before = dice(); yield
    assert same(before, dice()), 'a global generator was used'

def many(suite, n, images=8): return replace(suite, clients=[replace(suite.clients[k%4], id=k, train=suite.clients[k%4].train[:images]) for k in range(n)])

@pytest.mark.parametrize('name,crowd', [*((n,False) for n in METHODS), ('FedAvg',True)])
def test_the_global_dice_stay_where_they_are(suite, name, crowd, monkeypatch):
    fed = fed_of(METHODS[name], many(suite, 4) if crowd else first(suite, 2, tests=4), adopted() if name in ('FedAvg','FedProx','Local') else None, lanes=2, eval_every=1, pad=2, flip=True)
    with untouched(monkeypatch): fed.one_round(); fed.score(); fed.fit(); fed.model(client=1); fed.predict(suite.clients[0].test.x, client=0)

@pytest.mark.parametrize('draw', [lambda: torch.rand(1), lambda: np.random.rand(), random.random, lambda: nn.Linear(2,2), lambda: seeded(0).__enter__()], ids=['torch','numpy','random','a new layer','a seed'])
def test_whoever_uses_the_global_dice_is_caught(suite, draw, monkeypatch):
    class Thief(Mechanism):
        def loss(self, c, b, out): draw(); return {}
    for phase in ('loss','predict'):
        class Sly(Mechanism):
            def predict(self, net, out): draw(); return {}
        with torch.random.fork_rng(devices=[]), pytest.raises(AssertionError, match='global generator was used|in a lane'), untouched(monkeypatch): fed_of(Method('thief', Thief() if phase=='loss' else Sly()), suite, lanes=2).fit()

# ---- what goes wrong in a lane

class Trouble(Mechanism):
    "Calls `at(place, client context or None)` in the places of a round; a mechanism in whose way things go wrong."
    def __init__(self, at=lambda place, c: None): self._at = at
    def __deepcopy__(self, memo): return self
    def start(self, c): self._at('start', c)
    def loss(self, c, b, out): return dict(trouble=self._at('loss', c) or 0*out.logits.sum())
    def finish(self, c): self._at('finish', c); return {}
    def extras(self, srv, ups): self._at('extras', None); return {}
    def predict(self, net, out): self._at('predict', None); return {}

def troubled(suite, at=lambda place, c: None, net=None, **kw):
    "(federation, its troublemaker); it has memories, own tensors, and a file."
    t = Trouble(at); return fed_of(Method('Troubled', t, Late(), KeepBatchNorm()), suite, net, **(dict(rounds=4, local_steps=3, eval_every=2, lanes=2)|kw)), t

@pytest.fixture(scope='module')
def calm(suite):
    "What the federation of `troubled` comes to when nothing happens."
    fed,_ = troubled(suite, lanes=1); fed.fit(); return outcome(fed)

def frozen(fed): return copy.deepcopy(outcome(fed)|dict(down=fed.down, round_no=fed.round_no, scored=fed.scored))
def ends_well(fed, t, calm):
    "Without the trouble it goes on to the end that it would have had."
    t._at = lambda place, c: None; fed.fit(); return same_nest(outcome(fed), calm)

@pytest.mark.parametrize('lanes', [1,2,8])
@pytest.mark.parametrize('place', ['start','loss','finish'])
def test_an_error_in_a_lane(suite, calm, lanes, place):
    failed,late = threading.Event(),[]
    def at(where, c):
        if c is None or c.round!=2: return
        if where==place and c.id==3: failed.set(); raise ValueError('a stumble')
        if where=='loss' and c.id==2 and lanes>1:                                            # a slow one, before it in order
            failed.wait(10)
            next(w.stop for w in fed.lanes.workers if w.net is c.net).wait(10)
            late.append(c.steps)
    fed,t = troubled(suite, at, lanes=lanes); fed.fit(2); before = frozen(fed)
    with pytest.raises(ValueError, match='a stumble') as e: fed.fit()
    assert any('client 3 (sketch) in round 3' in n for n in e.value.__notes__) and not any('client 2' in n for n in e.value.__notes__)
    assert len(late)<2 and same_nest(frozen(fed), before) and ends_well(fed, t, calm)


class Sometimes(Mechanism):
    "A loss term that only clients with a past have."
    def loss(self, c, b, out): past = c.state.get('past'); c.state['past'] = True; return dict(late=out.logits.square().mean()) if past else {}

def test_a_term_that_only_some_clients_have(suite):
    fed = run(Method('Sometimes', Sometimes()), suite, small(width=1), rounds=4, local_steps=1, participation=.5)
    for r in fed.history.rounds: assert r['loss']==pytest.approx(sum(r['terms'].values()))
    seen,news = set(),[]
    for r in fed.history.rounds:
        news.append({k not in seen for k in r['participants']}); seen |= {*r['participants']}; assert ('late' in r['terms'])==(False in news[-1])
    assert {True,False} in news                                  # a round of both kinds

def test_fit_of_no_rounds_does_nothing(suite):
    fed = fed_of(FedAvg, suite, small(width=1)); fed.fit(0); assert fed.round_no==0 and not fed.history.rounds

def test_a_checkpoint_before_the_scores_gets_them(suite, tmp_path):
    a,b,c = (fed_of(FedAvg, suite, small(width=1), rounds=1) for _ in range(3)); a.fit()
    b.one_round(); b.save(tmp_path/'c.safetensors'); c.load(tmp_path/'c.safetensors'); c.fit(); assert a.history==c.history and len(c.history.rows)>len(b.history.rows)

@pytest.mark.parametrize('ask', [lambda f: f.one_round(), lambda f: f.score(), lambda f: f.predict(f.suite.clients[0].test.x), lambda f: f.fit(1)])
def test_whoever_is_asked_uses_the_threads_of_the_setting(suite, monkeypatch, ask):
    seen,real = [],Worker.images; monkeypatch.setattr(Worker, 'images', lambda *a: seen.append(torch.get_num_threads()) or real(*a))
    before, one = torch.get_num_threads(), first(suite, 1, tests=4)
    try:
        torch.set_num_threads(3); fed = fed_of(FedAvg, one, small(width=1), lanes=1, threads=2, local_steps=1); seen.clear(); ask(fed); assert seen and set(seen)=={2} and torch.get_num_threads()==3
    finally: torch.set_num_threads(before)

@pytest.mark.parametrize('lanes', [1,2])
def test_numbers_that_are_not_finite(suite, calm, lanes, tmp_path):
    fed,t = troubled(suite, lambda where, c: torch.tensor(float('nan'), requires_grad=True) if where=='loss' and c.round==2 and c.id==1 else None, lanes=lanes, out=tmp_path/'c'); fed.fit(2); before = frozen(fed)
    with pytest.raises(FloatingPointError, match=r"not finite at client 1 \(art\) in round 3: .* the last good checkpoint is .*c$"): fed.fit()
    assert same_nest(frozen(fed), before) and ends_well(fed, t, calm)

def test_numbers_that_are_not_finite_in_a_stack(suite, tmp_path):
    fed = fed_of(FedAvg, many(suite, 4), lanes=2, rounds=3, eval_every=1, out=tmp_path/'c', stack=True); fed.fit(1); good = fed.server; before = frozen(fed); bad = copy.deepcopy(good); bad['head.weight'].fill_(float('nan')); fed.server = bad
    with pytest.raises(FloatingPointError, match=r"not finite at client \d \(\w+\) in round 2: .* the last good checkpoint is .*c$"): fed.fit()
    fed.server = good; whole = run(FedAvg, many(suite, 4), lanes=1, rounds=3, eval_every=1, stack=True); assert same_nest(frozen(fed), before); fed.fit(); assert same_nest(outcome(fed), outcome(whole))

def test_an_error_at_the_server(suite, calm):
    def at(where, c):
        if where=='extras' and fed.round_no==1: raise ValueError('the server stumbles')
    fed,t = troubled(suite, at); fed.fit(1); before = frozen(fed)
    with pytest.raises(ValueError, match='the server stumbles'): fed.fit()
    assert same_nest(frozen(fed), before) and ends_well(fed, t, calm)

def test_clients_can_be_trained_one_by_one_after_a_round(suite):
    "A lane that has done its work is no stopped lane."
    fed = fed_of(FedAvg, suite, lanes=2, rounds=3); alone = fed_of(FedAvg, suite, lanes=1, rounds=3); fed.fit(1); alone.fit(1)
    assert same_nest(fed.train_client(fed.clients[1])[0].state, alone.train_client(alone.clients[1])[0].state)

# ---- Ctrl-C

@pytest.fixture
def ctrl_c():
    "Presses Ctrl-C, from any thread: the signal reaches the main thread."
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, 'pthread_kill'): pytest.skip('signals reach the main thread only')
    was = signal.signal(signal.SIGINT, signal.default_int_handler); yield lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT); signal.signal(signal.SIGINT, was)

def interrupts(how, press):
    "What a hook does to be an interruption."
    if how=='raised in a lane': raise KeyboardInterrupt
    press() if how=='signal' else _thread.interrupt_main()

def only(threads, seconds=10):
    "Are these threads the only ones? One that was just being started ends by itself."
    end = time.monotonic()+seconds
    while (others := set(threading.enumerate())-set(threads)) and time.monotonic() < end: time.sleep(.01)
    return not others

@pytest.mark.parametrize('where', ['loss','predict'])
@pytest.mark.parametrize('how', ['raised in a lane','signal','interrupt_main'])
@pytest.mark.parametrize('lanes', [1,2])
def test_interrupted_in_a_round_and_while_scoring(suite, calm, ctrl_c, where, how, lanes):
    done = []
    def at(place, c):
        if place==where and not done and (fed.round_no==2 if c is None else c.round==2 and c.id==2 and c.steps==1): done.append(1); interrupts(how, ctrl_c)
    fed,t = troubled(suite, at, lanes=lanes); threads = threading.enumerate()
    with pytest.raises(KeyboardInterrupt): fed.fit()
    assert done and only(threads) and fed.round_no==2 and len(fed.history.rounds)==2 and torch.get_num_threads()==1
    assert ends_well(fed, t, calm)

def test_interrupted_between_rounds(suite, calm, tmp_path):
    def stop(fed): raise KeyboardInterrupt
    fed,t = troubled(suite, out=tmp_path/'c')
    for r in (1,2,3,4):
        with pytest.raises(KeyboardInterrupt): fed.fit(on_round=stop)
        assert fed.round_no==len(fed.history.rounds)==r
    assert ends_well(fed, t, calm) and same_nest(outcome(troubled(suite)[0].load(tmp_path/'c')), calm)

def test_pressed_twice(suite, calm, ctrl_c):
    "The second Ctrl-C comes while the first waits for the lanes: none of them may be at work when `fit` is back."
    back,inside,done = threading.Event(),[],[]
    def at(place, c):
        if place!='loss' or c.round!=2 or c.id!=2 or done: return
        done.append(1); ctrl_c()
        stop = next(w.stop for w in fed.lanes.workers if w.net is c.net); stop.wait(10); back.wait(.1); ctrl_c()
        inside.append(back.wait(.3))                                                 # is anybody back while this lane is here?
    fed,t = troubled(suite, at); fed.fit(2)
    with pytest.raises(KeyboardInterrupt): fed.fit()
    back.set(); assert inside==[False] and ends_well(fed, t, calm)

def press_at(fed, k:int|None=None, functions=('one_round','after_round','receive','aggregate','score','scores')):
    "Fit, and raise KeyboardInterrupt at the k-th place in the code of these functions where Python looks for signals, which is after a call or a jump back; how many there are."
    seen,before,done = set(),{},[]
    def arrived(frame, event, arg):
        code = frame.f_code; frame.f_trace_opcodes = not done
        if code not in before: ops = list(dis.get_instructions(code)); before[code] = {b.offset:a.opname for a,b in zip(ops, ops[1:])}
        if event=='opcode' and not done and before[code].get(frame.f_lasti,'').startswith(('CALL','JUMP_BACKWARD')):
            seen.add((code,frame.f_lasti))
            if len(seen)==k: done.append(1); raise KeyboardInterrupt
        return arrived
    sys._getframe().f_trace_opcodes = True     # Python 3.12 looks at this when tracing begins, and not again
    was = sys.gettrace(); sys.settrace(lambda frame, event, arg: arrived if frame.f_code.co_name in functions and Path(frame.f_code.co_filename).parent.name=='engine' else None)
    try: fed.fit()
    finally: sys.settrace(was)
    return len(seen)

def test_interrupted_anywhere_in_a_round(suite):
    "A round has happened, or it has not: no place in its code where half of it would be lost."
    few = replace(suite, clients=[replace(c, train=c.train[:4], test=c.test[:2]) for c in suite.clients[:2]], tests={d:t[:2] for d,t in list(suite.tests.items())[:1]}); wrong = []
    fed = fed_of(Method('Late', Late(), KeepBatchNorm()), few, small(width=1), lanes=1, rounds=1, local_steps=1); start = copy.deepcopy(fed.server); n = press_at(fed); want = outcome(fed)
    for k in range(1, n+1):
        fed.worker.load(start); fed._begin()
        with pytest.raises(KeyboardInterrupt): press_at(fed, k)
        try: assert fed.round_no==len(fed.history.rounds); fed.fit(); assert same_nest(outcome(fed), want)
        except (AssertionError, IndexError): wrong.append(k)
    assert n>30 and not wrong, f'{wrong} of {n} places'

# ---- kill -9

@pytest.mark.campaign
@pytest.mark.skipif(not hasattr(os, 'fork'), reason='no fork here')
def test_killed_and_gone_on():
    "Three kills at moments drawn with a fixed seed; `tests/tools/kill.py N SEED` does more."
    p = subprocess.run([sys.executable, TOOLS/'kill.py', '3', '0'], capture_output=True, text=True, timeout=300)
    assert p.returncode==0 and '3 of 3 ended equal' in p.stdout and p.stdout.count(': killed')>=2, p.stdout+p.stderr

def test_checkpoints_do_not_know_lanes(suite, calm, tmp_path):
    for a,b in ((2,1),(1,8)):
        fed,_ = troubled(suite, lanes=a, out=tmp_path/f'c{a}'); fed.fit(2); then,_ = troubled(suite, lanes=b); then.load(tmp_path/f'c{a}').fit(); assert then.round_no==4 and same_nest(outcome(then), calm)

# ---- memory

needs_proc = pytest.mark.skipif(not Path('/proc/self/statm').exists(), reason='no /proc here')
def alone(code, *args):
    "The numbers that a program of its own prints."
    p = subprocess.run([sys.executable, '-c', textwrap.dedent(code), *map(str,args)], capture_output=True, text=True, timeout=300, cwd=Path(__file__).parent, env=os.environ|dict(PYTHONPATH=os.pathsep.join([str(Path(__file__).parent), *sys.path])))
    assert p.returncode==0, p.stderr
    return [float(x) for x in p.stdout.split()]

@pytest.mark.campaign
@needs_proc
def test_memory_does_not_grow_over_200_rounds():
    "An upload of width 4 has 0.14 MB: one kept per round would be 21 MB after 150 more; 6 MB are the allocator's leeway."
    rss = alone("""
        import gc, os, torch
        from dataclasses import replace
        from fedskew_nb.data.load import load_suite
        from fedskew_nb.methods.baselines.personal import FedBN
        from feds import fed_of
        s = load_suite('emoji-pacs', 'tiny'); s = replace(s, clients=[replace(c, train=c.train[:8], test=c.test[:4]) for c in s.clients[:3]], tests={d:t[:4] for d,t in s.tests.items()})
        fed = fed_of(FedBN, s, lanes=2, stack=False, rounds=201, local_steps=1, batch_size=4, eval_every=20, lr=.01)
        def say(fed):
            if fed.round_no in (50,200): gc.collect(); print(int(open('/proc/self/statm').read().split()[1])*os.sysconf('SC_PAGE_SIZE')/1e6, sum(torch.is_tensor(o) for o in gc.get_objects()))
        fed.fit(200, on_round=say)""")
    assert rss[2]-rss[0]<6 and rss[3]<=rss[1], rss

@pytest.mark.parametrize('lanes', [1,2])
def test_uploads_are_summed_as_they_come(suite, lanes, monkeypatch):
    "Whole uploads alive at any time: as many as the window of the lanes holds; a rule that wants all rows gets them."
    ups,most,lock,train = [],{},threading.Lock(),Worker.train
    def counted(self, *a):
        up,terms = train(self, *a); whole = len(up.state)
        with lock: ups.append((weakref.ref(up), whole)); most[self.method.name] = max(most.get(self.method.name,0), sum(len(u.state)==n for r,n in ups if (u := r())))
        return up,terms
    monkeypatch.setattr(Worker, 'train', counted); crowd = many(suite, 16)
    for m in (FedAvg,FedProx,Method('Late',Late())): fed = fed_of(m, crowd, small(width=1), lanes=lanes, rounds=2, local_steps=1, stack=False); fed.one_round()
    assert most['FedAvg']<=2*lanes+1 and most['FedProx']<=2*lanes+1 and most['Late']==16
    assert not any(r() for r,_ in ups)                                              # and after the round, none
    fed = fed_of(FDSE, many(suite, 6), lanes=lanes, rounds=2, local_steps=1); held = []; aggregate = Server.aggregate
    monkeypatch.setattr(Server, 'aggregate', lambda self: (held.append([len(u.state) for u in self.ups]), aggregate(self))[1]); fed.one_round()
    assert len(held[0])==6 and min(held[0])>10 and not any(u for u in held[0] if u!=held[0][0])

@pytest.mark.campaign
@needs_proc
def test_three_hundred_clients():
    "300 × 64 images, three convolutions of 32, 64 and 128 channels: within 2 GiB, and no longer growing once the lanes have warmed up. A class count made anew between two clients' blocks was enough to make it grow by 1 MB per client."
    peak,before,late = alone("""
        import os, resource, torch
        from fedskew_nb.data.suite import Client, Suite
        from fedskew_nb.data.images import Data
        from fedskew_nb import generator
        from fedskew_nb.engine.server import Server
        from fedskew_nb.methods.baselines.average import FedAvg
        from fedskew_nb.core.models import small_conv
        from feds import fed_of
        def now(): return int(open('/proc/self/statm').read().split()[1])*os.sysconf('SC_PAGE_SIZE')/1e6
        def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/1e3
        g = generator('images'); data = lambda n: Data(torch.randint(0, 256, (n,3,32,32), generator=g, dtype=torch.uint8), torch.randint(0, 10, (n,), generator=g))
        at,receive = {},Server.receive
        def watched(server, up): receive(server, up); at[len(server.ups)] = now()
        t = data(64); s = Suite('many', list(map(str,range(10))), [Client(k, 'd', data(64), t[:0], t[:0]) for k in range(300)], {'d':t}); Server.receive = watched
        fed_of(FedAvg, s, small_conv(10, width=32), lanes=2, stack=False, rounds=1, local_steps=1, batch_size=64).fit(); print(peak(), at[100], at[300])""")
    assert peak<2147 and late-before<100, (peak, before, late)

# ---- lanes as an argument, threads, streams

@pytest.mark.parametrize('lanes', [0, -1, True, False, 'two', 1.5])
def test_lanes_that_are_no_number(suite, lanes):
    with pytest.raises(ValueError, match=f'lanes is {lanes!r}: give a whole number of at least 1'): fed_of(FedAvg, suite, lanes=lanes)

def test_more_lanes_than_clients(suite):
    one = replace(suite, clients=suite.clients[:1]); a,b = run(FedAvg, one, lanes=100),run(FedAvg, one, lanes=1); assert equal(a, b) and a.history==b.history and len(a.lanes.workers)<=5

@pytest.mark.parametrize('lanes,threads', [(1,1), (2,1), (1,2)])
def test_threads_are_restored(suite, lanes, threads):
    few = first(suite, 2, tests=4)
    before = torch.get_num_threads(); was = before+1; torch.set_num_threads(was); seen = set()
    def at(place, c):
        seen.add(torch.get_num_threads())
        if place=='loss' and c.round==fault: raise kind('x')
    try:
        for fault,kind in ((None,None), (1,ValueError), (1,KeyboardInterrupt)):
            fed,_ = troubled(few, at, small(width=1), lanes=lanes, threads=threads, rounds=2, local_steps=1, batch_size=4, eval_every=2)
            with pytest.raises(kind) if kind else contextlib.nullcontext(): fed.fit()
            assert torch.get_num_threads()==was and seen=={threads}
    finally: torch.set_num_threads(before)

def test_a_stream_is_left_when_its_work_is_done(monkeypatch):
    said = []
    class Stream:
        def __init__(self, device): self.device = device; said.append(f'made on {device}')
        def wait_stream(self, other): said.append(f'waits for {other}')
        def synchronize(self): said.append('waited')
    @contextlib.contextmanager
    def on(s):
        said.append('in')
        try: yield
        finally: said.append('out')
    monkeypatch.setattr(torch.cuda, 'stream', on); monkeypatch.setattr(torch.cuda, 'current_stream', lambda d: f'all on {d}')
    with stream_for('cuda:0', new=Stream) as s: said.append('work'); assert isinstance(s, Stream)
    assert said==['made on cuda:0','waits for all on cuda:0','in','work','waited','out']; said.clear()
    with pytest.raises(ValueError, match='a stumble'), stream_for('cuda:0', new=Stream): raise ValueError('a stumble')
    assert said==['made on cuda:0','waits for all on cuda:0','in','waited','out']
    with stream_for('cpu') as s: assert s is None

# ---- the scheduler by itself

@pytest.mark.parametrize('lanes', [1,2,5])
def test_jobs_in_order(lanes):
    dice = random.Random(lanes); turn = [dice.random()*.002 for _ in range(60)]
    def f(lane, j): threading.Event().wait(turn[j]); return j
    assert list(in_order(f, list(range(lanes)), iter(range(60))))==list(range(60)) and list(in_order(f, list(range(lanes)), []))==[]

def test_a_lane_does_one_job_at_a_time():
    busy = [SimpleNamespace(n=0) for _ in range(3)]
    def f(lane, j): lane.n += 1; assert lane.n==1; threading.Event().wait(.001); lane.n -= 1; return j
    assert list(in_order(f, busy, range(50)))==list(range(50))

def test_the_source_of_jobs_fails():
    def jobs(): yield 1; yield 2; raise ValueError('no more')
    threads = threading.active_count()
    with pytest.raises(ValueError, match='no more'): list(in_order(lambda lane, j: j, [0,1], jobs()))
    assert threading.active_count()==threads
