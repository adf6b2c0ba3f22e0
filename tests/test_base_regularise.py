"FedDyn, FedDecorr, SCAFFOLD, FedDC: plain loops, limits, who sits out, resuming, what stays home, clashes."
from dataclasses import replace
from types import SimpleNamespace
import pytest, torch
import torch.nn.functional as F
from torch import nn
import plain_base_regularise as plain
from feds import batches_of, cut, equal, fed_of, halved, name_of, narrow, rounds_of, same, sizes_of
from feds import little as small
from feds import trained_once, whole_and_resumed
from fedskew_nb.core.method import Contradiction, Method
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.nets.models import gap, seq, small_conv
from fedskew_nb.core.net import Net, is_batchnorm, under
from fedskew_nb.core.rules import Rule, keep
from fedskew_nb.core.seeding import seeded
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.device import threads_of
from fedskew_nb.engine.server import Server
from fedskew_nb.methods.baselines.average import (
    FedAvg, SCAFFOLD, ControlVariates, FedDC, ServerStep, FedProx, Decorrelate, FedDecorr, FedDyn,
    correlated)
from fedskew_nb.methods.baselines.personal import FedBN, Local
from fedskew_nb.methods.fdse.method import FDSE, Consensus

ALL = [FedDyn, FedDecorr, SCAFFOLD, FedDC]
IDS = [m.name for m in ALL]
HOW = dict(rounds=3, local_steps=None, local_epochs=1, batch_size=16, lr=.05, momentum=0., weight_decay=0.,
           eval_every=9, channels_last=False)

def near(a, b): return torch.allclose(a.cpu().double(), b.cpu().double(), rtol=0, atol=1e-9)

@pytest.fixture(scope='module')
def suite(suite): return halved(suite)

LEARNT = {n for n, _ in small().named_parameters()}

# ---- against plain loops

def against_plain(suite, method, loop, **kw):
    "The engine and the loop on the same batches in float64: (federation, what the loop answers)."
    fed = fed_of(method, suite, small().double(), **HOW | kw)
    with threads_of(1): want = loop(small().double(), batches_of(fed, 3), sizes_of(fed))
    for _ in range(3): fed.one_round()
    for n, v in want[0].items(): assert near(fed.server[n], v), n
    return fed, want

WAYS = [dict(uniform=True), dict(participation=.5)]

@pytest.mark.parametrize('kw', WAYS, ids=['uniform', 'half'])
def test_feddyn_is_algorithm_1(suite, kw):
    fed, (_, g) = against_plain(suite, FedDyn(alpha=.3), lambda *a: plain.feddyn(*a, .05, .3), **kw)
    seen = {k: mine['Dynamic']['g'] for k, mine in fed.states.items() if 'Dynamic' in mine}
    for k, mine in seen.items():
        for n, v in mine.items(): assert near(v, g[k][n])
    one = seen[fed.history.rounds[0]['participants'][0]]
    assert max(float(v.abs().max()) for v in one.values()) > 1e-4

@pytest.mark.parametrize('kw', WAYS, ids=['uniform', 'half'])
def test_scaffold_is_algorithm_1_and_takes_the_rate_of_the_round(suite, kw):
    lrs = [.05*.5**r for r in range(3)]
    def loop(*args): return plain.scaffold(*args, lrs, .7)
    fed, (_, own) = against_plain(suite, SCAFFOLD(eta_g=.7), loop, decay=.5, **kw)
    for k, mine in fed.states.items():
        for n, v in mine.get('ControlVariates', {}).get('own', {}).items(): assert near(v, own[k][n])

def test_feddc_is_the_drift_form(suite):
    def loop(*args): return plain.scaffold(*args, [.05]*3, alpha=.3)
    against_plain(suite, FedDC(alpha=.3), loop, participation=.8)

def test_feddecorrs_term_pair_by_pair():
    f = torch.randn(9, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    got, want = correlated(f), plain.decorr(f)
    assert near(got, want)
    assert near(*(torch.autograd.grad(v, f)[0] for v in (got, want)))

STRENGTHS = [(FedDecorr(beta=.5), plain.decorr_of_its_code),
             (FedDecorr(beta=.5, preset='paper'), plain.decorr)]

@pytest.mark.parametrize('method,term', STRENGTHS, ids=name_of)
def test_three_rounds_of_feddecorr(suite, method, term):
    fed = fed_of(method, suite, narrow(), participation=.5, **HOW)
    with threads_of(1): want = plain.feddecorr(narrow(), batches_of(fed, 3), sizes_of(fed), .05, .5, term)
    for _ in range(3): fed.one_round()
    for n, v in want.items(): assert near(fed.server[n], v), n

# ---- limits

@pytest.fixture(scope='module')
def trained(suite): return trained_once(suite, rounds_of)

OFF = [FedDyn(alpha=0), FedDecorr(beta=0), Method('step', ServerStep())]
ON = [FedDyn(alpha=.1), FedDecorr, SCAFFOLD, Method('step', ServerStep(.5))]

@pytest.mark.parametrize('off', OFF, ids=name_of)
def test_off_is_fedavg_bit_for_bit(trained, off):
    assert equal(trained(FedAvg, momentum=0.), trained(off, momentum=0.))

@pytest.mark.parametrize('on', ON, ids=name_of)
def test_on_is_not(trained, on):
    assert not equal(trained(FedAvg, momentum=0.), trained(on, momentum=0.))

@pytest.mark.parametrize('method', [FedDyn(alpha=.5), FedDecorr, SCAFFOLD, FedDC(alpha=.5)], ids=name_of)
def test_the_local_update_differs(suite, method):
    "A term without a gradient (RethinkFL's FedDyn) would not show at the server."
    fed, twin = (fed_of(m, suite, momentum=0., lr=.1) for m in (method, FedAvg))
    fed.one_round()
    twin.state = replace(twin.state, server=fed.server, round=fed.round_no)
    for c in suite.clients:
        ours, theirs = (f.train_client(c).upload.state for f in (fed, twin))
        assert not same(ours, theirs)

def test_scaffolds_first_round_is_fedavgs(trained):
    one = dict(rounds=1, momentum=0.)
    assert equal(trained(FedAvg, **one), trained(SCAFFOLD, **one))

def test_feddc_is_the_sum_of_two_methods(trained):
    assert equal(trained(FedDC), trained(FedDyn(alpha=.01)+SCAFFOLD))
    assert equal(trained(SCAFFOLD), trained(FedDC(alpha=0)))

def test_a_tiny_alpha_doubles_the_first_move(trained):
    first = small().state_dict()
    a, b = (trained(m, rounds=1, momentum=0.).server for m in (FedAvg, FedDyn(alpha=1e-6)))
    for n in LEARNT: assert torch.allclose(b[n]-first[n], 2*(a[n]-first[n]), atol=1e-6), n

@pytest.mark.parametrize('method', [SCAFFOLD, FedDecorr, FedDyn(alpha=0)], ids=name_of)
def test_equal_clients_and_a_full_batch_are_one_central_step(suite, method):
    c = suite.clients[0]
    three = replace(suite, clients=[replace(c, id=k) for k in range(3)])
    kw = dict(rounds=2, local_steps=1, batch_size=64, momentum=0., weight_decay=0., stack=False)
    one = replace(suite, clients=[c])
    fed, alone = (rounds_of(method, s, small().double(), **kw) for s in (three, one))
    for n in LEARNT: assert near(fed.server[n], alone.server[n]), n

# ---- who sits out, resuming, what has no part

def copied(nest): return {k: copied(v) for k, v in nest.items()} if isinstance(nest, dict) else nest

@pytest.mark.parametrize('method', [FedDyn, SCAFFOLD, FedDC], ids=name_of)
def test_states_of_absent_clients_stay(suite, method):
    fed = fed_of(method, suite, rounds=4, participation=.5)
    for _ in range(4):
        before = copied(fed.states)
        fed.one_round()
        for k in set(fed.states)-set(fed.history.rounds[-1]['participants']):
            for m, s in before[k].items(): assert all(same(v, fed.states[k][m][key]) for key, v in s.items())
    assert len({tuple(r['participants']) for r in fed.history.rounds}) > 1

@pytest.mark.parametrize('method', ALL, ids=IDS)
def test_resume_is_bit_equal(suite, tmp_path, method):
    def make(**kw): return fed_of(method, suite, participation=.5, eval_every=1, **kw)
    whole, rest = whole_and_resumed(make, tmp_path/'half')
    assert equal(whole, rest) and whole.history == rest.history

def test_buffers_and_counters_have_no_part(trained):
    fed = trained(FedDC)
    for told in (fed.memory['Dynamic'], fed.memory['ControlVariates'], fed.down['control']):
        assert set(told) == LEARNT
    for mine in fed.states.values():
        assert set(mine['Dynamic']['g']) == set(mine['ControlVariates']['own']) == LEARNT

@pytest.mark.parametrize('method', [FedDyn, SCAFFOLD, FedDC], ids=name_of)
def test_what_stays_at_home_has_no_part(trained, method):
    fed = trained(method+FedBN)
    norms = set(filter(is_batchnorm(small()), small().state_dict()))
    found = {n for mine in fed.states.values() for s in mine.values() for d in s.values() for n in d}
    found |= {n for s in fed.memory.values() for n in s}
    assert norms and found and not norms & found

@pytest.mark.parametrize('method', [FedDyn, SCAFFOLD, FedDC], ids=name_of)
def test_where_all_stays_at_home_it_is_local(trained, method):
    assert equal(trained(Local, momentum=0.), trained(method+Local, momentum=0.))

def test_a_frozen_phase_counts_its_own_steps(suite):
    class Halves(Mechanism):
        def phases(self, c):
            return [('head', 1, under('head')), ('body', 3, lambda n: not n.startswith('head'))]
    method, kw = Method('halves', ControlVariates(), Halves()), dict(local_steps=4, weight_decay=0.)
    own = rounds_of(method, suite, small().double(), rounds=1, **kw).states[0]['ControlVariates']['own']
    fresh, x = fed_of(method, suite, small().double(), **kw), small().double().state_dict()
    y = fresh.train_client(fresh.clients[0]).upload.state
    def steps(n): return 1 if n.startswith('head') else 3
    for n, v in own.items(): assert near(v, (x[n]-y[n])/(steps(n)*.05)), n
    assert own['head.bias'].norm() > 1e-3 and own['body.block1.conv.weight'].norm() > 1e-3

def test_one_client_is_sgd(suite):
    alone = replace(suite, clients=suite.clients[:1])
    a, b = (rounds_of(m, alone, small().double(), rounds=3, momentum=0.) for m in (FedAvg, SCAFFOLD))
    for n in LEARNT: assert near(a.server[n], b.server[n]), n
    for m in (FedDyn, FedDC, FedDecorr): rounds_of(m, alone)

def decorrelated(f, method=Method('d', Decorrelate())):
    "The term that a batch of features gets; {} where there is none."
    return method.mechanisms[0].loss(None, {}, SimpleNamespace(feat=f))

def test_what_cannot_vary_has_no_correlation():
    still = decorrelated(torch.zeros(5, 4, requires_grad=True))['decorrelate']
    still.backward()
    assert still == 0
    assert decorrelated(torch.randn(1, 5)) == decorrelated(torch.randn(5, 1)) == {}

@pytest.mark.parametrize('method', ALL, ids=name_of)
def test_clients_with_one_image_and_no_batchnorm(suite, method):
    with seeded(0):
        body = seq(conv=nn.Conv2d(3, 4, 5, stride=4), norm=nn.GroupNorm(2, 4))
        net = Net(body, gap(), nn.Linear(4, 7))
    rounds_of(method, cut(suite, (1, 9, 17, 2), tests=12), net, batch_size=8)

@pytest.mark.parametrize('method', ALL, ids=name_of)
def test_the_received_model_and_the_first_are_left_alone(suite, method):
    net = small()
    before = {n: v.clone() for n, v in net.state_dict().items()}
    fed = fed_of(method, suite, net)
    fed.one_round()
    start = {n: v.clone() for n, v in fed.server.items()}
    fed.train_client(fed.clients[0])
    assert same(before, net.state_dict()) and same(start, fed.server)

# ---- bytes, learning

@pytest.mark.parametrize('method,more', [(FedDyn, 0), (FedDecorr, 0), (SCAFFOLD, 1), (FedDC, 1)], ids=name_of)
def test_bytes(trained, method, more):
    "So many times the parameters beside the model: up in each round, down from the second on."
    size = 4*4*more*sum(p.numel() for p in small().parameters())                 # clients, bytes
    avg, ours = trained(FedAvg).history.rounds, trained(method).history.rounds
    assert [b['up']-a['up'] for a, b in zip(avg, ours)] == [size, size]
    assert [b['down']-a['down'] for a, b in zip(avg, ours)] == [0, size]

@pytest.mark.parametrize('method', ALL, ids=IDS)
def test_it_learns(method):
    suite = load_suite('skew-digits', 'tiny')
    clients = [replace(c, test=c.test[:0]) for c in suite.clients]
    suite = replace(suite, clients=clients, tests={d: t[:60] for d, t in suite.tests.items()})
    how = dict(local_steps=None, local_epochs=1, batch_size=32, lr=.1)
    fed = rounds_of(method, suite, small_conv(10, size=28, width=4), rounds=4, **how)
    fed.score()
    scores = [100*r['correct']/r['n'] for r in fed.history.rows if r['view'] == 'global']
    score = sum(scores)/len(scores)
    print(f'{method.name}: {score:.1f} %')
    assert score > 15          # chance is 10

# ---- bad input, clashes, presets

@pytest.mark.parametrize('bad,says', [
    (lambda: FedDyn(alpha=-1), 'Dynamic: alpha is -1'),
    (lambda: FedDC(alpha=float('nan')), 'alpha is nan'),
    (lambda: FedDecorr(beta=float('inf')), 'Decorrelate: beta is inf'),
    (lambda: SCAFFOLD(eta_g=0), 'eta_g is 0'),
    (lambda: SCAFFOLD(eta_g=float('nan')), 'eta_g is nan'),
    (lambda: FedDyn(alfa=1), 'did you mean alpha')])
def test_bad_numbers(bad, says):
    with pytest.raises(ValueError, match=says): bad()

@pytest.mark.parametrize('method', [SCAFFOLD, FedDC], ids=name_of)
def test_momentum_is_refused_and_weight_decay_is_not(suite, method):
    says = f'{method.name} demands momentum=0.0, but momentum=0.9'
    with pytest.raises(ValueError, match=says): fed_of(method, suite, momentum=.9)
    for protocol in ('f2dc', 'fedbn', 'fdse'):
        assert fed_of(method, suite, protocol=protocol).setting.momentum == 0
    assert fed_of(method, suite, protocol='fdse').setting.weight_decay == 1e-3

def test_with_weight_decay_the_variate_is_the_gradient_of_the_decayed_loss(suite):
    how = dict(rounds=1, local_steps=1, batch_size=64, weight_decay=.1)
    fed = rounds_of(SCAFFOLD, suite, small().double(), **how)
    x, c = small().double().train(), fed.clients[0]
    F.cross_entropy(x(fed.worker.images(c.train.x)).logits, c.train.y).backward()
    for n, w in x.named_parameters():
        got = fed.states[0]['ControlVariates']['own'][n]
        assert near(got, w.grad+.1*w.detach()), n
    assert not torch.allclose(got, w.grad, atol=1e-9)

CLASHES = [
    (lambda: FedDyn+Method('C', Consensus()), ('Dynamic', 'Consensus')),
    (lambda: FedDC+FDSE, ('Dynamic', 'Consensus')),
    (lambda: SCAFFOLD(eta_g=.5)+FedDyn, ('Dynamic', 'ServerStep')),
    (lambda: FedDC+FedDyn(alpha=.1), ('Dynamic',))]

@pytest.mark.parametrize('make,names', CLASHES)
def test_clashes_name_both(make, names):
    with pytest.raises(Contradiction) as e:
        m = make()
        m.rules(m.adapt(small()))
    assert all(n in str(e.value) for n in names)

@pytest.mark.parametrize('other', [FedProx, FedBN, FedDecorr, FDSE], ids=name_of)
def test_what_goes_together(suite, other): rounds_of(SCAFFOLD+other, suite, rounds=1)

def test_the_strength_of_the_formula_and_of_the_code():
    f = torch.randn(32, 20, generator=torch.Generator().manual_seed(0))
    a, b = (decorrelated(f, m)['decorrelate'] for m in (FedDecorr('paper'), FedDecorr))
    assert float(b/a) == pytest.approx(31**2/32*20/19, rel=1e-5)
    assert FedDecorr('released').mechanisms == FedDecorr.mechanisms != FedDecorr('paper').mechanisms

def test_a_share_counts_those_that_sit_out(suite):
    fed = fed_of(FedAvg, suite, participation=.5)
    srv = Server(fed).context([])
    total = sum(len(c.train) for c in fed.clients)
    assert [srv.share(c.id) for c in fed.clients] == [len(c.train)/total for c in fed.clients]
    assert Server(fed_of(FedAvg, suite, uniform=True)).context([]).share(0) == .25

def test_a_client_knows_what_it_keeps(suite):
    seen = []
    class Look(Mechanism):
        def start(self, c): seen.append(c.kept)
    class Head(Mechanism):
        def rules(self, net): return [Rule(under('head'), keep)]
    rounds_of(Method('m', Look(), Head()), suite, rounds=1)
    assert seen == [{'head.weight', 'head.bias'}]*4
