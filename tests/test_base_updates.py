"FedAvgM, FedAdam, FedYogi, FedNova, AFL, GroupDRO, q-FFL, FedDG-GA: plain loops, limits, resuming."
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
import pytest, torch
from torch import nn
import plain_base_updates as plain
from feds import batches_of, central_steps, equal, fed_of, first, halved, name_of, odd_suites, rounds_of
from feds import same, sizes_of
from feds import little as small
from feds import trained_once, whole_and_resumed
from fedskew_nb.core.method import Contradiction, Method
from fedskew_nb.core.net import is_batchnorm
from fedskew_nb.engine.device import threads_of
from fedskew_nb.methods.baselines.average import (
    FedAvg, SCAFFOLD, FedProx, FedDyn, AFL, AdjustGaps, FedAdam, FedAvgM, FedDG_GA, FedNova, FedPer,
    FedYogi, GroupDRO, SiloBN, ServerAdaptive, WorstDomains, q_FFL, to_simplex, work)
from fedskew_nb.methods.baselines.personal import FedBN, KeepBatchNorm, Local, PartialFed
from fedskew_nb.methods.f2dc.method import DC, F2DC
from fedskew_nb.methods.fdse.method import FDSE

STEPS = [FedAvgM, FedAdam, FedYogi, FedNova(rho=0.)]
WEIGHTS = [AFL, GroupDRO, q_FFL, FedDG_GA]
ALL = STEPS+WEIGHTS
HOW = dict(rounds=2, local_steps=None, local_epochs=1, batch_size=24, lr=.05, momentum=0., weight_decay=0.,
           eval_every=9, channels_last=False)
WAYS = [dict(), dict(uniform=True), dict(participation=.5, rounds=3)]
NAMES = ['by size', 'uniform', 'half']
LEARNT = {n for n, _ in small().named_parameters()}

@pytest.fixture(scope='module')
def suite(suite): return halved(suite)

@pytest.fixture(scope='module')
def few(suite): return first(suite, 3, tests=4)

def close(a, b, eps=1e-9): return torch.allclose(a.cpu().double(), b.cpu().double(), rtol=0, atol=eps)

# ---- against plain loops

def against_plain(suite, method, loop, **kw):
    "The engine and the loop on the same batches in float64: (federation, what the loop answers)."
    fed = fed_of(method, suite, small().double(), **HOW | kw)
    rounds = fed.setting.rounds
    with threads_of(1): answer = loop(fed, small().double(), batches_of(fed, rounds), sizes_of(fed))
    for _ in range(rounds): fed.one_round()
    state, *more = answer if isinstance(answer, tuple) else (answer,)
    for n, v in state.items(): assert close(fed.server[n], v), n
    return fed, more

def optimised(step):
    def loop(fed, net, rounds, sizes): return plain.with_optimiser(net, rounds, sizes, .05, step)
    return loop

def sgd(**kw): return plain.torch_step(lambda ps: torch.optim.SGD(ps, **kw))

@pytest.mark.parametrize('kw', WAYS, ids=NAMES)
@pytest.mark.parametrize('nesterov', [False, True])
def test_fedavgm_is_torchs_sgd(suite, kw, nesterov):
    step = sgd(lr=.7, momentum=.8, nesterov=nesterov)
    against_plain(suite, FedAvgM(beta=.8, eta=.7, nesterov=nesterov), optimised(step), **kw)

@pytest.mark.parametrize('kw', WAYS, ids=NAMES)
def test_fedadam_is_torchs_adam_without_its_correction(suite, kw):
    against_plain(suite, FedAdam(eta=.02, tau=.01), optimised(plain.adam_without_correction(.02, .01)), **kw)

@pytest.mark.parametrize('kw', WAYS, ids=NAMES)
def test_fedyogi_number_by_number(suite, kw):
    against_plain(suite, FedYogi(eta=.02, tau=.01), optimised(plain.yogi_step(.02, .01)), **kw)

@pytest.mark.parametrize('kw', WAYS, ids=NAMES)
@pytest.mark.parametrize('rho', [0., .9])
def test_fednova_gradient_by_gradient(suite, kw, rho):
    def loop(fed, net, rounds, sizes): return plain.fednova(net, rounds, sizes, .05, rho)
    against_plain(suite, FedNova(rho=rho), loop, **kw | dict(momentum=rho))

def images_of(fed, part='train'):
    return {c.id: (fed.worker.images(d.x), d.y) for c in fed.clients for d in [getattr(c, part)]}

def two_in_one_domain(suite):
    "The first two clients are of one domain."
    a, b, *others = suite.clients
    return replace(suite, clients=[a, replace(b, domain=a.domain), *others])

@pytest.mark.parametrize('kw', WAYS, ids=NAMES)
@pytest.mark.parametrize('method,eta,multiply', [(AFL, .3, False), (GroupDRO, 2., True)], ids=name_of)
def test_afl_and_groupdro_over_domains(suite, kw, method, eta, multiply):
    shared = two_in_one_domain(suite)
    def loop(fed, net, rounds, sizes):
        domains = {c.id: c.domain for c in fed.clients}
        return plain.worst_domains(net, rounds, sizes, .05, eta, domains, images_of(fed), multiply)
    fed, [seen] = against_plain(shared, method(eta=eta), loop, **kw)
    lam = fed.memory['WorstDomains']['lam']
    assert lam == pytest.approx(seen[-1], abs=1e-9) and len(lam) == 3
    assert max(lam.values())-min(lam.values()) > 1e-3

@pytest.mark.parametrize('kw', WAYS, ids=NAMES)
@pytest.mark.parametrize('q', [.5, 2.])
def test_q_fedavg_as_the_paper_writes_it(suite, kw, q):
    def loop(fed, net, rounds, sizes): return plain.q_fedavg(net, rounds, sizes, .05, q, images_of(fed))
    against_plain(suite, q_FFL(q=q), loop, **kw)

def with_val(suite): return replace(suite, clients=[replace(c, val=c.train[:9]) for c in suite.clients])

@pytest.mark.parametrize('kw', WAYS, ids=NAMES)
def test_generalisation_adjustment(suite, kw):
    def loop(fed, net, rounds, sizes):
        return plain.adjustment(net, rounds, sizes, .05, .9, images_of(fed, 'val'))
    fed, [seen] = against_plain(with_val(suite), FedDG_GA(step=.9), loop, **kw)
    a = fed.memory['AdjustGaps']['a']
    assert a == pytest.approx(seen[-1], abs=1e-9)
    assert max(abs(a[k]-v) for k, v in seen[0].items()) > 1e-3

def test_without_validation_images_the_gap_is_on_training_images(suite):
    bare = replace(suite, clients=[replace(c, val=c.val[:0]) for c in suite.clients])
    same_images = replace(suite, clients=[replace(c, val=c.train) for c in suite.clients])
    assert equal(*(rounds_of(FedDG_GA, s, rounds=3) for s in (bare, same_images)))

# ---- the parts

def on_a_face(v):
    "The nearest point of the simplex, by trying the planes of all its faces."
    best = None
    for n in range(1, len(v)+1):
        for face in map(list, combinations(range(len(v)), n)):
            x = torch.zeros_like(v)
            x[face] = v[face]-(v[face].sum()-1)/n
            if x.min() >= 0 and (best is None or (x-v).norm() < (best-v).norm()): best = x
    return best

@pytest.mark.parametrize('D', [1, 2, 3, 6])
def test_the_projection_by_brute_force(D):
    for v in 2*torch.randn(50, D, generator=torch.Generator().manual_seed(D)).double():
        assert close(to_simplex(v), on_a_face(v), 1e-12)
        assert close(to_simplex(v, .3), .3*on_a_face(v/.3), 1e-12)
        assert not to_simplex(v, 0.).any()

def test_a_point_that_a_released_projection_puts_beside_the_simplex():
    assert to_simplex(torch.tensor([1.3, .2])).tolist() == [1., 0.]

@pytest.mark.parametrize('rho', [0., .5, .9])
def test_work_is_how_far_a_constant_gradient_takes_sgd(rho):
    p = nn.Parameter(torch.zeros(1).double())
    opt = torch.optim.SGD([p], 1., momentum=rho)
    for steps in range(1, 8):
        p.grad = -torch.ones(1).double()
        opt.step()
        assert work(steps, rho) == pytest.approx(p.item(), abs=1e-12)

def test_weights_by_hand():
    lam, F = torch.tensor([.5, .5]).double(), torch.tensor([2., 1.]).double()
    assert close(WorstDomains(.5)._next(lam, F), torch.tensor([.75, .25]))
    assert close(WorstDomains(.5, True)._next(lam, F)[0], 1/(1+torch.tensor(-.5).exp()), 1e-7)
    ups = [SimpleNamespace(id=k, extra=dict(gap=G)) for k, G in enumerate((.4, -.2, 0.))]
    srv = SimpleNamespace(state={}, sizes=range(3), round=1, rounds=5, share=lambda k: 1/3)
    third = (1+.2)/3+(1-.1)/3+1/3
    assert close(AdjustGaps().weights(srv, ups), torch.tensor([1.2, .9, 1.])/3/third, 1e-7)

def test_yogis_memory_comes_down_more_slowly():
    srv, x = SimpleNamespace(names=['w'], state={}), torch.zeros(1, 1).double()
    v = {}
    for yogi in (False, True):
        srv.state.clear()
        for move in (10., .1): ServerAdaptive(yogi=yogi)._step(x+move, x, [1.], srv)
        v[yogi] = float(srv.state['w']['v'])
    assert v[True] == pytest.approx(1-1e-4) and v[False] == pytest.approx(.99+1e-4)

def test_a_parameter_that_never_moves_stays_without_tau():
    srv, x = SimpleNamespace(names=['w'], state={}), torch.ones(1, 2)
    assert ServerAdaptive(tau=0.)._step(x, x, [1.], srv).tolist() == [1., 1.]

# ---- limits

@pytest.fixture(scope='module')
def trained(suite): return trained_once(suite, rounds_of)

OFF = [FedAvgM(beta=0.), FedNova, q_FFL(q=0.), FedDG_GA(step=0.)]

@pytest.mark.parametrize('off', OFF, ids=name_of)
def test_off_is_fedavg_bit_for_bit(trained, off): assert equal(trained(FedAvg), trained(off))

@pytest.mark.parametrize('on', [m for m in ALL if m.base != 'FedNova'], ids=name_of)
def test_on_is_not(trained, on):
    assert not equal(trained(FedAvg, momentum=0.), trained(on, momentum=0.))

def test_fednova_is_not_fedavg_where_steps_differ(suite):
    assert not equal(*(rounds_of(m, suite, **HOW) for m in (FedAvg, FedNova(rho=0.))))

@pytest.mark.parametrize('method', [AFL(eta=0.), GroupDRO(eta=0.)], ids=name_of)
def test_without_a_step_all_domains_count_alike(suite, method):
    a, b = (rounds_of(m, suite, small().double(), uniform=u) for m, u in ((FedAvg, True), (method, False)))
    for n, v in a.server.items(): assert close(v, b.server[n], 1e-12), n

def test_a_large_step_of_afl_trains_the_worst_domain_alone(suite):
    fed = fed_of(AFL(eta=1e3), suite)
    fed.one_round()
    lam = fed.memory['WorstDomains']['lam']
    assert sorted(lam.values()) == [0., 0., 0., 1.]

def test_fedadam_with_a_large_tau_is_fedavg(suite):
    a, b = (rounds_of(m, suite, small().double()) for m in (FedAvg, FedAdam(beta1=0., tau=1e7, eta=1e7)))
    for n, v in a.server.items(): assert close(v, b.server[n], 1e-7), n

def test_feddyn_with_a_tiny_alpha_is_nesterovs_momentum(suite):
    how = HOW | dict(stack=False)
    a, b = (rounds_of(m, suite, small().double(), **how)
            for m in (FedDyn(alpha=1e-9), FedAvgM(beta=1., nesterov=True)))
    for n, v in a.server.items(): assert close(v, b.server[n], 1e-6), n

def test_statistics_are_averaged_and_not_optimised(suite):
    fed = rounds_of(FedYogi, suite, rounds=1)
    ups = [fed_of(FedAvg, suite).train_client(c).upload for c in suite.clients]
    for n in set(small().state_dict())-LEARNT:
        values = [u.state[n] for u in ups]
        by_hand = sum(u.n/sum(v.n for v in ups)*x for u, x in zip(ups, values))
        wanted = by_hand if values[0].is_floating_point() else max(values)
        assert close(fed.server[n], wanted, 1e-6), n
    assert set(fed.memory['ServerAdaptive']) == LEARNT

@pytest.mark.parametrize('method', [FedAvgM, FedNova(rho=0.), AFL, GroupDRO, FedDG_GA], ids=name_of)
def test_equal_clients_and_a_full_batch_are_one_central_step(suite, method):
    three, alone = central_steps(method, FedAvg, suite)
    for n in LEARNT: assert close(three[n], alone[n]), n

# ---- names of what exists

EXIST = [(SiloBN, Method('s', KeepBatchNorm(affine=False))), (FedPer, PartialFed)]

@pytest.mark.parametrize('name,other', EXIST, ids=name_of)
def test_names_of_what_exists(trained, name, other):
    a, b = trained(name), trained(other)
    assert all(same(a.state_of(k), b.state_of(k)) for k in a.own)
    assert not equal(trained(FedAvg), a) and not equal(trained(FedBN), a)

# ---- who sits out, resuming, lanes, odd suites

def test_who_sits_out_keeps_its_weight(suite):
    fed = fed_of(AFL(eta=.05), suite, rounds=6, participation=.5)
    for _ in range(6):
        before = dict(fed.memory.get('WorstDomains', {}).get('lam', {}))
        fed.one_round()
        here, lam = fed.history.rounds[-1]['participants'], fed.memory['WorstDomains']['lam']
        away = {c.domain for c in fed.clients if c.id not in here}
        assert sum(lam.values()) == pytest.approx(1) and all(before[d] == lam[d] for d in away if before)
    assert len({tuple(r['participants']) for r in fed.history.rounds}) > 1

@pytest.mark.parametrize('method', ALL, ids=name_of)
def test_resume_is_bit_equal(few, tmp_path, method):
    how = dict(participation=.5, eval_every=1, momentum=0., local_steps=1)
    def make(**kw): return fed_of(method, few, **how | kw)
    whole, rest = whole_and_resumed(make, tmp_path/'half')
    assert equal(whole, rest) and whole.history == rest.history

@pytest.mark.parametrize('method', ALL, ids=name_of)
def test_lanes_do_not_matter(few, method):
    assert equal(*(rounds_of(method, few, momentum=0., lanes=n) for n in (1, 3)))

@pytest.mark.parametrize('method', ALL, ids=name_of)
def test_a_client_alone_and_poor_clients(suite, method):
    for odd in odd_suites(suite): rounds_of(method, odd, momentum=0., rounds=3, local_steps=1)

@pytest.mark.parametrize('method', [AFL(eta=1e3), FedDG_GA(step=.99)], ids=name_of)
def test_where_all_who_are_there_have_no_weight_fedavg_holds(suite, method):
    "One client a round, and many rounds: some weights become 0."
    fed = rounds_of(method, suite, rounds=12, participation=.25, local_steps=1)
    assert all(torch.isfinite(v).all() for v in fed.server.values())

def test_the_answers_of_a_client_with_no_weight(suite):
    lam = {c.domain: float(k == 3) for k, c in enumerate(suite.clients)}
    fed, twin = fed_of(AFL, suite), fed_of(FedAvg, suite)
    fed.memory['WorstDomains'] = dict(lam=lam)
    ups = [fed.train_client(c).upload for c in suite.clients[:2]]
    fed.merge(ups)
    twin.merge(ups)
    assert same(fed.server, twin.server) and fed.memory['WorstDomains']['lam'] == lam

# ---- bytes, pairs, refusals

BYTES = [(FedAvgM, 0), (FedAdam, 0), (FedYogi, 0), (FedNova, 8), (AFL, 8), (GroupDRO, 8), (q_FFL, 12),
         (FedDG_GA, 8)]

@pytest.mark.parametrize('method,more', BYTES, ids=name_of)
def test_bytes(trained, method, more):
    "So many bytes for each of four clients, in the second round."
    avg, ours = trained(FedAvg).history.rounds[-1], trained(method).history.rounds[-1]
    assert (ours['up']-avg['up'], ours['down']-avg['down']) == (4*more, 0)

def test_the_first_gap_comes_with_the_second_upload(trained):
    first, second = trained(FedDG_GA).history.rounds
    assert second['up']-first['up'] == 4*8

@pytest.mark.parametrize('method', [*STEPS, q_FFL], ids=name_of)
def test_what_stays_at_home_has_no_part(trained, method):
    norms = set(filter(is_batchnorm(small()), small().state_dict()))
    fed = trained(method+FedBN, momentum=0.)
    assert not norms & {n for memory in fed.memory.values() for n in memory}
    assert equal(trained(Local, momentum=0.), trained(method+Local, momentum=0.))

SUMS = [FedAvgM+FedProx, FedAdam+DC, FedNova(rho=0.)+SCAFFOLD, AFL+FedAvgM, FedDG_GA+FDSE, q_FFL+FedBN,
        GroupDRO+FedDyn]

@pytest.mark.parametrize('method', SUMS, ids=name_of)
def test_these_run(suite, method): rounds_of(method, suite)

CLASH = [
    (lambda: FedAvgM+FedDyn, 'Dynamic.*ServerMomentum'),
    (lambda: FedAvgM+FedAdam, 'ServerAdaptive.*ServerMomentum'),
    (lambda: AFL+F2DC, 'DomainAware.*WorstDomains'), (lambda: AFL+FedDG_GA, 'AdjustGaps.*WorstDomains'),
    (lambda: FedNova+q_FFL, 'FairShares.*NormaliseSteps'), (lambda: FedNova+SCAFFOLD, 'demand momentum')]

@pytest.mark.parametrize('make,names', CLASH)
def test_clashes_name_both(suite, make, names):
    with pytest.raises(Contradiction, match=names): fed_of(make(), suite)

@pytest.mark.parametrize('make,says', [
    (lambda: FedAvgM(beta=-1), 'ServerMomentum: beta is -1'),
    (lambda: FedAdam(tau=float('nan')), 'tau is nan'),
    (lambda: FedYogi(eta=-.1), 'ServerAdaptive: eta is'),
    (lambda: FedNova(rho=-1), 'rho is -1'),
    (lambda: AFL(eta=float('inf')), 'WorstDomains: eta is inf'),
    (lambda: q_FFL(q=-1), 'FairShares: q is -1'),
    (lambda: FedDG_GA(step=1.), 'AdjustGaps: step is 1.0'),
    (lambda: FedDG_GA(step=float('nan')), 'step is nan')])
def test_bad_numbers(make, says):
    with pytest.raises(ValueError, match=says): make()

def test_fednova_demands_the_momentum_that_it_divides_by(suite):
    with pytest.raises(ValueError, match='FedNova demands momentum=0.9, but momentum=0.0'):
        fed_of(FedNova, suite, momentum=0.)
    assert fed_of(FedNova, suite).setting.momentum == .9
    assert fed_of(FedNova(rho=.5), suite).setting.momentum == .5
