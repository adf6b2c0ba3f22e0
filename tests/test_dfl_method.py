"Branches, Separate, Anchor, Transfer and DFL inside the engine, beside plain PyTorch."
import copy
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
import pytest, torch
import plain_dfl as plain
from feds import (
    cut, equal, far, fed_of, first, halved, images, in_two_parts, rounds_of, run, same, trained_once)
from torch import nn
from fedskew_nb.run.recipes import read_method
from fedskew_nb.core.context import Context
from fedskew_nb.core.method import Contradiction, Method
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.nets.models import gap, n_params, resnet10, seq, small_conv
from fedskew_nb.core.net import Net, is_batchnorm, under
from fedskew_nb.core.rules import Rule, keep
from fedskew_nb.core.seeding import Dropout, generator, seeded
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.history import Task
from fedskew_nb.engine.setting import schedule
from fedskew_nb.methods.baselines.personal import FedBN, KeepBatchNorm
from fedskew_nb.methods.dfl.information import (
    Branches, branch, halves, new_critic, shared_information, standardised)
from fedskew_nb.methods.dfl.method import DFL, Anchor, Separate, Transfer, both_pairs

OFF = dict(mu_s=0., mu_c=0., lam=0.)
QUICK = dict(Separate__critic_steps=1, Anchor__critic_steps=1)      # where nobody asks how good critics are

@pytest.fixture(scope='module')
def suite(suite): return halved(suite)

@pytest.fixture(scope='module')
def three(suite): return first(suite, 3, tests=4)

def begun(method, suite, size=16, **kw):
    "A federation after its first round."
    f = fed_of(method, suite, net(size=size), **kw)
    f.one_round()
    return f

@pytest.fixture(scope='module')
def after_a_round(pair): return trained_once(pair, begun)

def net(dtype=torch.float32, size=16): return small_conv(7, size=size, width=4, seed=0).to(dtype)

def fed(method, suite, dtype=torch.float32, **kw):
    return fed_of(method, suite, net(dtype), **dict(local_steps=4) | kw)

def finite(fed): return all(v.isfinite().all() for v in fed.server.values())

def context(f, k):
    "Client `k` as it begins a round."
    client, state = f.clients[k], copy.deepcopy(f.states[f.clients[k].id])
    down = f.state.sent_to(client.id)
    return f.worker.context(Task(client, f.state_of(client.id), state, down=down, round=f.round_no))

def at(f, k, phase='all', n=8):
    "Client `k`, a batch of its first images, and the net's answer, in a phase of its training."
    c, worker = context(f, k), f.worker
    f.method.everyone('start', c)
    phases = f.method.one('phases', c) or [('all', 1, lambda n: True)]
    c.phase, _, trainable = next(p for p in phases if p[0] == phase)
    worker._prepare(c, trainable)
    b = worker.ready_batch(worker.raw_batch(c, torch.arange(n)))
    return c, b, f.method.run_forward(c, b)

E_S, E_C, HEAD = ('body.E_s', 'pool.E_s'), ('body.E_c', 'pool.E_c'), ('head',)
def of(state, *places): return {n: v for n, v in state.items() if under(*places)(n)}
def place_of(where): return where[0].split('.')[-1]

def moved(term, params):
    "The places that a term pulls at."
    if not term.requires_grad: return set()
    grads = torch.autograd.grad(term, list(params.values()), allow_unused=True, retain_graph=True)
    names = [n for n, g in zip(params, grads) if g is not None and g.abs().sum() > 0]
    return {place_of(where) for where in (E_S, E_C, HEAD) if any(map(under(*where), names))}

# ---- against plain PyTorch

BOTH = (('T_s', 'Separate', 'specific'), ('T_c', 'Anchor', 'invariant'))      # critic, mechanism, phase

def first_critics(k):
    "Both critics of a client as they begin."
    made = {t: new_critic(128, 128, 128, generator(0, k, 'lasting', m+'.critic')) for t, m, _ in BOTH}
    return {t: {n: v.double() for n, v in p.items()} for t, p in made.items()}

def plain_round(f, r, S, T, lent, **how):
    "What each client of a federation sends in round `r`, from its state S and with its critics T."
    sent = []
    for c, mine in zip(f.clients, S):
        order = schedule(len(c.train), 8, generator(0, r, c.id, 'all', 'order'), 1, 4)
        batches = [(f.worker.images(c.train.x[i]), c.train.y[i]) for i in order]
        dice = {t: generator(0, r, c.id, phase, m+'.shift') for t, m, phase in BOTH}
        def shifts(t): return int(torch.randint(1, 8, (), generator=dice[t]))
        peers = [lent[j] for j in lent if j != c.id]
        sent.append(plain.client(mine, batches, T[c.id]['T_s'], T[c.id]['T_c'], peers, shifts, **how))
    return sent

HOW = [({}, 2), (dict(mu_s=.1, mu_c=.3, lam=.5), 3), (dict(E_G_by_batch=True), 2)]

@pytest.mark.parametrize('how, n', HOW, ids=str)
def test_two_rounds_are_those_of_plain_pytorch(suite, how, n):
    "Losses, both critics with their moments, SGD, BatchNorms, what is lent, the server: in float64."
    f = fed(DFL(n_transfer=None, **how), first(suite, n), torch.float64, rounds=3)
    sizes, ids = [len(c.train) for c in f.clients], [c.id for c in f.clients]
    S, T, lent = [dict(f.state_of(k)) for k in ids], {k: first_critics(k) for k in ids}, {}
    for r in range(2):
        sent = plain_round(f, r, S, T, lent, **how)
        lent, S = dict(zip(ids, sent)), plain.server(sent, sizes)
        f.one_round()
        for k, mine in zip(ids, S):
            assert far({n: v for n, v in mine.items() if v.is_floating_point()}, f.state_of(k)) < 1e-9
            for t, m, _ in BOTH: assert far(f.states[k][m]['critic'], T[k][t]) < 1e-9

def test_one_pass_is_two():
    "Pairs that belong together and pairs that do not, at once or one after the other."
    a, b = (images(9, 4, s, torch.float64).flatten(1) for s in (0, 1))
    p = {n: v.double() for n, v in new_critic(48, 48, 16, generator('p')).items()}
    shift = int(torch.randint(1, 9, (), generator=generator('s')))
    at_once = both_pairs(p, standardised(a), standardised(b), generator('s'))
    assert at_once.item() == pytest.approx(shared_information(p, a, b, shift).item(), abs=1e-12)

# ---- who learns

def watched(method, suite, **kw):
    "What each step of a phase of client 1's second round begins with, what it sends and what it received."
    seen = {}
    @dataclass
    class Watch(Mechanism):
        def loss(self, c, b, out):
            seen.setdefault(c.phase, []).append({n: v.clone() for n, v in c.net.state_dict().items()})
            return {}
    f = fed(Method('watched', *method.mechanisms, Watch()), suite, **kw)
    f.one_round()
    seen.clear()
    up = f.train_client(f.clients[1]).upload
    return seen, up.state, f.state_of(1)

@pytest.fixture(scope='module')
def watched_dfl(pair): return watched(DFL, pair)

def test_step_1_leaves_E_c_as_it_was_received(watched_dfl):
    seen, _, received = watched_dfl
    steps = [of(s, *E_C) for s in seen['specific']]
    assert len(steps) == 2 and all(same(s, of(received, *E_C)) for s in steps)

def test_step_2_leaves_E_s(watched_dfl):
    seen, after, received = watched_dfl
    steps = [of(s, *E_S) for s in seen['invariant']]
    assert len(steps) == 2 and all(same(s, of(after, *E_S)) for s in steps)
    assert not same(of(received, *E_S), of(after, *E_S))

def test_what_learns_moves_its_statistics(watched_dfl):
    for place, phase in ((E_S, 'specific'), (E_C, 'invariant')):
        first, second = (of(s, *place) for s in watched_dfl[0][phase])
        names = [n for n in first if 'running' in n or n.endswith('conv.weight')]
        assert not any(torch.equal(first[n], second[n]) for n in names)

@pytest.mark.parametrize('phase, learns, frozen', [('specific', 'E_s', 'E_c'), ('invariant', 'E_c', 'E_s')])
def test_a_frozen_branch_is_in_eval_with_all_that_lies_in_it(pair, phase, learns, frozen):
    "A BatchNorm without weights and a Dropout have nothing of their own that could be frozen."
    with seeded(0):
        body = seq(conv=nn.Conv2d(3, 4, 3), bn=nn.BatchNorm2d(4, affine=False), drop=Dropout(.5))
        odd = Net(body, gap(), nn.Linear(4, 7))
    c, b, out = at(fed_of(Method('m', Branches()), pair, odd, local_steps=2), 0, phase)
    def modes(branch): return {m.training for n, m in getattr(c.net.body, branch).named_modules() if n}
    assert modes(learns) == {True} and modes(frozen) == {False}

def test_a_frozen_branch_stays(pair):
    seen, _, _ = watched(Method('m', Branches()), pair)
    for phase, frozen in (('specific', 'E_c'), ('invariant', 'E_s')):
        steps = [of(s, f'body.{frozen}') for s in seen[phase]]
        assert steps and all(same(s, steps[0]) for s in steps)

LEARNS = {'both': (True, True), 'specific': (True, False), 'invariant': (False, True)}

@pytest.mark.parametrize('said', LEARNS)
def test_when_P_learns(pair, said):
    seen, _, _ = watched(DFL(predictor_step=said, **QUICK), pair)
    for phase, learns in zip(('specific', 'invariant'), LEARNS[said]):
        first, second = (of(s, *HEAD) for s in seen[phase])
        assert same(first, second) != learns

def test_steps_are_shared_out_and_see_the_batches_of_fedavg(suite):
    seen = []
    @dataclass
    class Notes(Mechanism):
        def batch(self, c, b):
            seen.append((c.phase, b['i'].tolist()))
            return b
    def order(method, **kw):
        seen.clear()
        f = fed(Method('n', *method.mechanisms, Notes()), suite, local_steps=8, **kw)
        f.train_client(f.clients[2])
        return [p for p, _ in seen], [i for _, i in seen]
    phases, batches = order(DFL(**QUICK))
    assert phases == ['specific']*4+['invariant']*4 and batches == order(FedBN)[1]
    assert order(DFL(first=.25, **QUICK))[0] == ['specific']*2+['invariant']*6
    assert order(DFL(stages=1, **QUICK))[0] == ['all']*8

def test_one_step_cannot_be_split(suite):
    says = "phase 'specific' gets none of 1 local steps: raise local_epochs"
    with pytest.raises(ValueError, match=says): run(DFL, suite, net(), local_steps=1)

# ---- signs

def terms_at(f, method, phase):
    c, b, out = at(f, 1, phase)
    method.everyone('inner', c, b, out)
    return method.terms(c, b, out), {n: p for n, p in c.params().items() if p.requires_grad}

@pytest.mark.parametrize('method, phase, term, pulls', [
    (DFL, 'specific', 'I_s', {'E_s'}),
    (DFL, 'invariant', 'I_c', {'E_c'}),
    (DFL, 'specific', 'transfer', {'head'}),
    (DFL, 'invariant', 'transfer', {'E_c', 'head'}),
    (DFL(stages=1), 'all', 'I_s', {'E_s'}),
    (DFL(stages=1), 'all', 'I_c', {'E_c'}),
    (DFL(I_s_in_step2=True), 'invariant', 'I_s', {'E_c'}),
    (DFL(I_s_in_step2=True, stages=1), 'all', 'I_s', {'E_s', 'E_c'}),
    (DFL(predictor_step='specific'), 'invariant', 'transfer', {'E_c'}),
    (DFL(predictor_step='invariant'), 'specific', 'transfer', set())])
def test_whom_a_term_pulls_at(after_a_round, method, phase, term, pulls):
    terms, params = terms_at(after_a_round(method), method, phase)
    assert moved(terms[term], params) == pulls

@pytest.mark.parametrize('method, phase, terms', [
    (DFL, 'specific', {'I_s', 'transfer'}),
    (DFL, 'invariant', {'I_c', 'transfer'}),
    (DFL(mu_s=0., lam=0.), 'specific', set()),
    (DFL(mu_c=0.), 'invariant', {'transfer'})])
def test_which_terms_a_step_has(after_a_round, method, phase, terms):
    assert set(terms_at(after_a_round(method), method, phase)[0])-{'task'} == terms

TERMS = [('specific', 'I_s', 'mu_s', 1), ('invariant', 'I_c', 'mu_c', -1)]

@pytest.mark.parametrize('phase, term, mu, sign', TERMS)
def test_terms_carry_their_sign_and_weight(pair, phase, term, mu, sign):
    "From the same critics, with the same pairs: μ = 1 and μ = .3."
    f, said = fed(DFL, pair), {}
    for weight in (1., .3):
        f.method = DFL(**{mu: weight})
        c, b, out = at(f, 1, phase)
        said[weight] = float(f.method.union('loss', c, b, out)[term].detach())
    m = mechanism_of(term)
    name = type(m).__name__
    c, b, out = at(f, 1, phase)
    critic = new_critic(128, 128, 128, generator(0, 1, 'lasting', f'{name}.critic'))
    two = (standardised(z) for z in m._pair(c, b, out))
    I = float(both_pairs(critic, *two, generator(0, 0, 1, phase, f'{name}.shift')).detach())
    assert said[1.] == pytest.approx(sign*I, abs=1e-6) and said[.3] == pytest.approx(.3*said[1.], abs=1e-6)

def mechanism_of(term): return next(m for m in DFL.mechanisms if getattr(m, '_term', '') == term)


def away_from(c, places):
    "The weights there become others, so that there is something to come back to."
    with torch.no_grad():
        for n, p in c.net.named_parameters():
            if under(*places)(n): p.add_(.3*p.std()*torch.randn(p.shape, generator=generator(n)))

SIDES = [('specific', 'I_s', E_S, -1), ('invariant', 'I_c', E_C, 1)]

@pytest.mark.parametrize('phase, term, places, sign', SIDES, ids=['I_s', 'I_c'])
def test_steps_of_a_branch_move_held_out_information(phase, term, places, sign):
    """A critic learns on one half of the images, and the branch follows its term there.

    Î of the other half falls, or rises."""
    suite = cut(load_suite('emoji-pacs', 'tiny'), (16, 24, 40, 64), tests=4)
    f = begun(DFL(**QUICK), replace(suite, clients=suite.clients[2:]), size=32, batch_size=32)
    f.method = DFL
    c, _, _ = at(f, 1, phase)
    c.net.eval()
    if phase == 'invariant': away_from(c, places)
    x, y = f.worker.images(c.data.train.x), c.data.train.y
    b, held, m = dict(x=x[:32], y=y[:32]), dict(x=x[32:]), mechanism_of(term)
    for _ in range(40): m.inner(c.window(m), b, c.net(b['x']))
    p = {n: v.detach() for n, v in c.caches[type(m).__name__]['critic'].items()}
    def Î():
        two = m._pair(c, held, c.net(held['x']))
        return sum(float(shared_information(p, *two, s).detach()) for s in range(1, 32))/31
    before, mine = Î(), [q for n, q in c.net.named_parameters() if under(*places)(n)]
    for _ in range(8):
        g = torch.autograd.grad(m.loss(c.window(m), b, c.net(b['x']))[term], mine)
        length = torch.cat([v.flatten() for v in g]).norm()+1e-12
        with torch.no_grad():
            for q, d in zip(mine, g): q.sub_(.02*d/length)
    assert sign*(Î()-before) > .005

def test_I_c_begins_at_its_greatest(after_a_round):
    "At the first step of step 2, E_c is what was received: in eval the two say the same, to the bit."
    f = after_a_round(DFL)
    c, b, _ = at(f, 1, 'invariant')
    c.net.eval().load_state_dict(f.state_of(1))
    E_c, E_G = Anchor()._pair(c.window(Anchor()), b, c.net(b['x']))
    assert torch.equal(E_c, E_G) and not E_G.requires_grad

def test_E_G_on_batch_statistics_is_E_c_at_the_first_batch_and_stays_as_it_was(after_a_round):
    f = after_a_round(DFL)
    c, b, out = at(f, 1, 'invariant')
    before = copy.deepcopy(c.received.state_dict())
    E_c, E_G = Anchor(E_G_by_batch=True)._pair(c.window(Anchor()), b, out)
    assert torch.equal(E_c, E_G) and not E_G.requires_grad
    assert same(before, c.received.state_dict()) and not any(m.training for m in c.received.modules())

# ---- what is lent

def test_equal_specific_branches_make_a_larger_loss_and_nothing_else(suite):
    "F_k = (1+λ) CE, where every foreign E_s is one's own, in eval."
    f = begun(DFL(lam=.7, **QUICK), suite)
    c, b, out = at(f, 1, 'invariant')
    mine = {n: v for n, v in branch(c.net, 'E_s').state_dict().items() if v.is_floating_point()}
    c.down = dict(E_s={j: mine for j in (0, 2, 3)})
    terms = f.method.terms(c, b, out)
    assert float(terms['transfer'].detach()) == pytest.approx(.7*float(terms['task'].detach()), rel=1e-6)

def test_the_control_is_a_larger_loss(pair):
    f = begun(DFL(source='own', lam=.7), pair)
    assert 'E_s' not in f.down and 'transfer' not in f.history.rounds[0]['terms']
    for phase in ('specific', 'invariant'):
        terms = f.method.terms(*at(f, 1, phase))
        assert float(terms['transfer'].detach()) == pytest.approx(.7*float(terms['task'].detach()), rel=1e-6)

@pytest.mark.parametrize('n, lent', [(1, 1), (2, 2), (3, 3), (9, 3), (None, 3)])
def test_nobody_is_lent_its_own(suite, n, lent):
    f = begun(DFL(n_transfer=n, **QUICK), suite)
    given = {c.id: list(f.state.sent_to(c.id)['E_s']) for c in f.clients}
    assert all(k not in J and len(set(J)) == len(J) == lent for k, J in given.items())

def test_peers_are_drawn_anew_every_round(three):
    f, seen = fed(DFL(n_transfer=1, **QUICK), three, rounds=6, local_steps=2), set()
    for _ in range(6):
        f.one_round()
        seen.add(tuple(f.state.sent_to(0)['E_s']))
        if len(seen) > 1: return
    pytest.fail(f'always {seen}')

def floats(module): return {n: v for n, v in module.state_dict().items() if v.is_floating_point()}

@pytest.fixture
def lending(three): return begun(DFL(**QUICK), three)

def test_lent_branches_are_those_sent_and_stay(lending):
    down = lending.down['E_s']
    before = {(k, j): {n: v.clone() for n, v in E.items()} for k, J in down.items() for j, E in J.items()}
    for (_, j), E in before.items(): assert same(E, floats(branch(lending.model(client=j), 'E_s')))
    lending.one_round()
    assert all(same(down[k][j], E) for (k, j), E in before.items())

def test_no_gradient_reaches_what_is_lent_or_received(lending):
    c, b, out = at(lending, 0, 'invariant')
    sum(lending.method.terms(c, b, out).values()).backward()
    lent = [v for E in c.down['E_s'].values() for v in E.values()]
    assert lent and all(v.grad is None and not v.requires_grad for v in lent)
    assert all(p.grad is None for p in c.received.parameters()) and not c.received.training

def test_whose_batchnorms_a_lent_branch_has(pair):
    "With peer_bn='own' their filters meet one's own BatchNorms, and fewer bytes travel."
    theirs, own = (begun(DFL(peer_bn=said, **QUICK), pair) for said in ('theirs', 'own'))
    names = [set(f.state.sent_to(0)['E_s'][1]) for f in (theirs, own)]
    kept = ('weight', 'bias', 'running_mean', 'running_var')
    assert names[0]-names[1] == {f'body.block{k}.bn.{v}' for k in (1, 2, 3) for v in kept}
    c, b, out = at(own, 0, 'specific')
    E = copy.deepcopy(branch(c.received, 'E_s'))
    E.load_state_dict(own.state.sent_to(0)['E_s'][1], strict=False)
    with torch.no_grad(): want = E(b['x'])
    m = next(m for m in own.method.mechanisms if isinstance(m, Transfer))
    assert torch.equal(m._foreign(c.window(m), b, out)[0], want)

def test_one_client_has_nobody_to_borrow_from(suite):
    f = run(DFL, replace(suite, clients=suite.clients[2:3]), net(), local_steps=2)
    assert not any('transfer' in r['terms'] for r in f.history.rounds) and f.down == {}

def test_one_participant_a_round(suite):
    "Nobody is lent anything before another client has sent; who is drawn twice in a row borrows nothing."
    f = fed(DFL(**QUICK), suite, rounds=8, participation=.25, local_steps=2)
    last = None
    for _ in range(8):
        who, = f.participants()
        f.one_round()
        assert ('transfer' in f.history.rounds[-1]['terms']) == (last not in (None, who.id))
        last = who.id

# ---- bytes

def bytes_of(tensors): return sum(v.numel()*4 for v in tensors)
@pytest.mark.parametrize('n, peer_bn', [(3, 'theirs'), (2, 'theirs'), (1, 'own'), (None, 'theirs')])
def test_bytes(suite, n, peer_bn):
    "Up: E_c without BatchNorms, and E_s, of each; down: E_c, and n foreign E_s from the second round on."
    f = rounds_of(DFL(n_transfer=n, peer_bn=peer_bn, **QUICK), suite, net())
    w, hidden = 4, 128
    conv = 4*(9*(3*w+w*2*w+2*w*4*w))
    bn   = 4*4*(w+2*w+4*w)
    fc   = 4*(4*w*4*hidden+hidden)
    E_c, E_s = conv+fc, conv+fc+(bn if peer_bn == 'theirs' else 0)
    rows = [(r['up'], r['down']) for r in f.history.rounds]
    assert rows == [(4*(E_c+E_s), 4*E_c), (4*(E_c+E_s), 4*(E_c+(n or 3)*E_s))]

@pytest.mark.parametrize('how', [dict(lam=0.), dict(n_transfer=0), dict(source='own')], ids=str)
def test_without_transfer_only_E_c_travels(pair, how):
    f = rounds_of(DFL(**how, **QUICK), pair, net())
    E_c = bytes_of(v for n, v in of(f.server, *E_C).items() if n not in f.kept)
    assert [(r['up'], r['down']) for r in f.history.rounds] == [(2*E_c, 2*E_c)]*2

def test_a_lent_branch_is_saved_once(three, tmp_path):
    "Three clients are lent the same E_s; the file and the memory after reading hold it once."
    f = begun(DFL, three)
    f.save(tmp_path/'c')
    back = fed_of(DFL, three, net()).load(tmp_path/'c').down['E_s']
    assert back[0][1]['pool.fc.weight'] is back[2][1]['pool.fc.weight']
    assert torch.equal(back[0][1]['pool.fc.weight'], f.down['E_s'][0][1]['pool.fc.weight'])

# ---- the server

ALIKE = [
    ({}, ['E_c']),
    (dict(share_predictor=True), ['E_c', 'head']),
    (dict(share_specific=True), ['E_c', 'E_s'])]

@pytest.mark.parametrize('how, alike', ALIKE, ids=str)
def test_only_E_c_is_averaged(pair, how, alike):
    f = rounds_of(DFL(**how, **QUICK), pair, net())
    bn, one, two = is_batchnorm(f.net), f.state_of(0), f.state_of(1)
    for where in (E_S, E_C, HEAD):
        names = [n for n in of(one, *where) if not bn(n)]
        assert names and all(torch.equal(one[n], two[n]) == (place_of(where) in alike) for n in names)
    assert not any(torch.equal(one[n], two[n]) for n in filter(bn, one) if 'num' not in n)

def test_averaged_batchnorms(pair):
    f = fed(Method('m', Branches(), Separate(), Anchor(), Transfer()), pair)
    assert f.kept == {n for n in f.server if under('body.E_s', 'pool.E_s', 'head')(n)}

def test_weights_are_numbers_of_images(suite):
    f = fed(DFL(**QUICK), suite, local_steps=2)
    ups = [f.train_client(c).upload for c in f.clients]
    f.merge(ups)
    n = 'body.E_c.block1.conv.weight'
    want = (16*ups[0].state[n]+24*ups[1].state[n]+40*ups[2].state[n]+64*ups[3].state[n])/144
    assert torch.allclose(f.server[n], want, atol=1e-6)

def test_identical_clients_are_a_fixed_point(suite):
    f = fed(DFL(**QUICK), suite, local_steps=2)
    up = f.train_client(f.clients[0]).upload
    f.merge([replace(up, id=c.id, n=16) for c in f.clients])
    assert all(torch.allclose(f.server[n], up.state[n], atol=1e-6) for n in f.server.keys()-f.kept)

# ---- limits

def test_without_its_terms_it_is_its_branches(pair):
    bare = Method('bare', Branches(), KeepBatchNorm())
    f = run(DFL(**OFF), pair, net(), local_steps=2)
    assert equal(f, run(bare, pair, net(), local_steps=2))
    assert all(set(r['terms']) == {'task'} for r in f.history.rounds)
    assert not any(s.get('Separate') or s.get('Anchor') for s in f.states.values())

def test_the_first_round_has_no_transfer(pair):
    one, nine = (begun(DFL(lam=lam, **QUICK), pair) for lam in (1., 9.))
    assert equal(one, nine)

@dataclass
class KeepHead(Mechanism):
    def rules(self, net): return [Rule(under('head'), keep)]

def without_E_s(state):
    "The state of a net of one branch."
    mine = {n.replace('.E_c', ''): v for n, v in state.items() if 'E_s' not in n}
    return mine | {'head.fc.weight': state['head.fc.weight'][:, 128:]}

def test_one_stage_and_no_E_s_is_fedavg_with_heads_at_home(pair):
    """A specific branch whose last layer is 0 says nothing and learns nothing.

    What is left is FedPer, with BatchNorms at home."""
    f = fed(DFL(stages=1, **OFF), pair, torch.float64)
    for n in ('pool.E_s.fc.weight', 'pool.E_s.fc.bias'): f.server[n].zero_()
    one = net(torch.float64)
    one.head = seq(fc=nn.Linear(128, 128), relu=nn.ReLU(), out=nn.Linear(128, 7)).double()
    one.load_state_dict(without_E_s(f.server))
    g = fed_of(Method('FedPer', KeepHead(), KeepBatchNorm()), pair, one, local_steps=4, stack=False)
    for fed_ in (f, g): fed_.fit()
    for k in (0, 1):
        a, b = without_E_s(f.state_of(k)), g.state_of(k)
        assert a.keys() == b.keys() and far(a, b) < 1e-9

def test_two_branches_of_all_are_fedbn_of_a_wider_net(pair):
    "The control of equal parameters: nothing but BatchNorms stays."
    f = fed(DFL(stages=1, share_predictor=True, share_specific=True, **OFF), pair)
    assert f.kept == set(filter(is_batchnorm(f.net), f.server))

# ---- what is frozen is shown each image once

@pytest.fixture
def shown(monkeypatch):
    "{(client, round, what is frozen): images shown to it}"
    n, once = Counter(), Context.once
    def counting(self, what, f, b):
        def counted(x):
            n[self.id, self.round, what] += len(x)
            return f(x)
        return once(self, what, counted, b)
    monkeypatch.setattr(Context, 'once', counting)
    return n

LONG = dict(local_steps=12)    # of 8 of 16 or 24 images

def test_each_image_is_shown_once_a_round_and_nothing_else_changes(pair, shown, monkeypatch):
    f = run(DFL(**QUICK), pair, net(torch.float64), **LONG)
    assert {what for _, _, (_, what) in shown} == {'E_G', 0, 1}
    assert all(n == len(f.clients[k].train) for (k, *_), n in shown.items())
    monkeypatch.setattr(Context, 'once', lambda self, what, f, b: f(b['x']))
    g = run(DFL(**QUICK), pair, net(torch.float64), **LONG)
    assert far(f.server, g.server) < 1e-9 and all(far(f.own[k], g.own[k]) < 1e-9 for k in f.own)

@dataclass
class Negative(Mechanism):
    def batch(self, c, b): return b | dict(x=255-b['x'])

@pytest.mark.parametrize('more, setting', [((), dict(flip=True)), ((), dict(pad=2)), ((Negative(),), {})])
def test_images_that_were_moved_are_all_shown(pair, shown, more, setting):
    f = run(Method('moved', *DFL(**QUICK).mechanisms, *more), pair, net(), **LONG | setting)
    assert all(n >= 2*len(f.clients[k].train) for (k, *_), n in shown.items())

# ---- the engine

@pytest.fixture(scope='module')
def whole(three):
    "Three rounds in one lane."
    return run(DFL(**QUICK), three, net(), rounds=3, local_steps=2, lanes=1)

def test_lanes_change_no_bit(three, whole):
    f = run(DFL(**QUICK), three, net(), rounds=3, local_steps=2, lanes=3)
    assert equal(whole, f) and whole.history == f.history

def nested(a, b):
    if isinstance(a, torch.Tensor): return torch.equal(a, b)
    if isinstance(a, dict): return a.keys() == b.keys() and all(nested(a[k], b[k]) for k in a)
    return len(a) == len(b) and all(map(nested, a, b)) if isinstance(a, (list, tuple)) else a == b

def test_a_resumed_run_is_the_same(three, whole, tmp_path):
    "Models, critics, Adam's moments, what is lent."
    rest = in_two_parts(partial(fed, DFL(**QUICK), three, local_steps=2), tmp_path/'c')
    assert equal(whole, rest) and whole.history == rest.history
    assert nested(whole.states, rest.states) and nested(whole.down, rest.down)

def test_critics_go_on_where_they_were(pair):
    f, said = fed(DFL, pair, rounds=3), []
    for _ in range(2):
        f.one_round()
        said.append(copy.deepcopy(f.states[1]))
    for m in ('Separate', 'Anchor'):
        was, now = (s[m]['adam']['state'][0] for s in said)
        assert (float(was['step']), float(now['step'])) == (10, 20)
        assert not torch.equal(was['exp_avg'], now['exp_avg'])
    mine = f.states[1]['Separate']['critic']
    assert not same(mine, f.states[1]['Anchor']['critic'])
    assert not same(mine, f.states[0]['Separate']['critic'])

def test_who_sits_out_keeps_all(suite):
    f = fed(DFL(**QUICK), suite, rounds=6, participation=.5, local_steps=2)
    for _ in range(3): f.one_round()
    who = {c.id for c in f.participants()}
    before, memory = {c.id: f.own[c.id] for c in f.clients}, copy.deepcopy(f.states)
    f.one_round()
    away = {c.id for c in f.clients}-who
    assert away and all(same(before[k], f.own[k]) and nested(memory[k], f.states[k]) for k in away)
    assert not any(nested(memory[k], f.states[k]) for k in who)

def test_the_first_round_of_a_client_does_not_matter_to_its_critic(suite):
    "A lasting stream: the critic that a client begins with is its own, whenever it comes."
    f = fed(DFL, suite, rounds=4)
    def critic():
        p = at(f, 2, 'specific')[0].caches['Separate']['critic']
        return {n: v.detach() for n, v in p.items()}
    first = critic()
    f.state = replace(f.state, round=3)
    assert same(first, critic())

def test_bf16(pair):
    f = run(DFL, pair, net(), local_steps=2, precision='bf16')
    critic = f.states[0]['Separate']['critic']
    assert finite(f) and all(v.dtype == torch.float32 for v in critic.values())

CHOICES = [dict(stages=1), dict(I_s_in_step2=True), dict(Separate__detach=True),
           dict(Separate__floor=0., mu_s=.01), dict(fresh=False), dict(Anchor__hidden=8)]

@pytest.mark.parametrize('how', CHOICES, ids=str)
def test_every_choice_trains(pair, how): assert finite(run(DFL(**QUICK | how), pair, net(), local_steps=2))

def test_the_stable_preset_changes_one_number():
    def said(m): return {k: getattr(mech, f) for k, (mech, f) in m.hyper().items()}
    paper, stable = said(DFL), said(DFL('stable'))
    changed = {k.split('__')[-1] for k in paper if paper[k] != stable[k]}
    assert changed == {'mu_s'} and paper['mu_s'] == 1.

# ---- the net

def test_branches_start_differently_and_alike_everywhere():
    a, b = DFL.adapt(net(), 3), DFL.adapt(net(), 3)
    assert same(a.state_dict(), b.state_dict())
    assert not torch.equal(a.body.E_s.block1.conv.weight, a.body.E_c.block1.conv.weight)
    assert same(a.body.E_c.state_dict(), net().body.state_dict())

def test_a_copy_for_pretrained_extractors():
    a = DFL(fresh=False).adapt(net())
    E_s, E_c = a.body.E_s, a.body.E_c
    assert same(E_s.state_dict(), E_c.state_dict()) and E_s.block1.conv.weight is not E_c.block1.conv.weight

def test_what_the_halves_say():
    n = DFL.adapt(net()).eval()
    x = images(size=16)
    E_s, E_c = halves(n(x))
    assert torch.equal(E_s, branch(n, 'E_s')(x)) and torch.equal(E_c, branch(n, 'E_c')(x))
    assert torch.equal(n(x).logits, n.head(torch.cat([E_s, E_c], 1)))

def test_parameters_are_two_extractors_and_a_predictor():
    bare, two = net(), DFL.adapt(net())
    extractor = n_params(bare.body)+n_params(bare.pool)
    assert n_params(two) == 2*extractor+(256*128+128)+(128*7+7)

def convolution(): return dict(conv=nn.Conv2d(3, 4, 3), bn=nn.BatchNorm2d(4))
def flat(): return dict(gap=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten())

NETS = dict(
    resnet=lambda: resnet10(7, width=4, size=16),
    all_in_pool=lambda: Net(nn.Identity(), seq(**convolution(), **flat()), nn.Linear(4, 7)),
    all_in_body=lambda: Net(seq(**convolution(), **flat()), nn.Identity(), nn.Linear(4, 7)))

@pytest.mark.parametrize('kind', NETS)
def test_other_nets_go(pair, kind):
    with seeded(0): other = NETS[kind]()
    f = run(DFL(**QUICK), pair, other, local_steps=2)
    assert finite(f) and 'transfer' in f.history.rounds[1]['terms']

class Gives(nn.Module):
    "A body that gives more than a map."
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
    def forward(self, x): return dict(fmap=self.conv(x), more=x)

class Goes(Net):
    "A net that goes on after its head."
    def forward(self, x):
        out = super().forward(x)
        return replace(out, logits=out.logits/2)

def filters(): return seq(conv=nn.Conv2d(3, 4, 3))

@pytest.mark.parametrize('make, word', [
    (lambda: Net(filters(), gap(), nn.Linear(4, 7), nn.BatchNorm2d(4)), 'Net has a BatchNorm2d for a neck'),
    (lambda: Net(nn.Identity(), gap(), nn.Linear(3, 7)), 'nothing before the head of Net learns'),
    (lambda: Net(Gives(), gap(), nn.Linear(4, 7)), 'body or pool gives a dict'),
    (lambda: Goes(filters(), gap(), nn.Linear(4, 7)), 'Goes does something after its head')])
def test_nets_that_cannot_be_two(make, word):
    with pytest.raises((ValueError, TypeError), match=word): DFL.adapt(make())

# ---- combinations

SUMS = ['FedDDL + DFL', 'DFL + FedProx', 'DFL + FedBN', 'DFL + AdaBN', 'DFL + DEC', "DFL(preset='stable')",
        'Branches', 'Branches + Transfer', 'Branches + Separate', 'Branches + Anchor + KeepBatchNorm',
        'DFL + EqualWeights']

@pytest.mark.parametrize('said', SUMS)
def test_these_run(pair, said): assert finite(run(read_method(said), with_boxes(pair), net(), local_steps=2))

def with_boxes(suite):
    def boxed(d): return replace(d, boxes=torch.tensor([[2, 2, 14, 14]]).expand(len(d), 4).clone())
    return replace(suite, clients=[replace(c, train=boxed(c.train)) for c in suite.clients])

def test_equal_twins_are_one(pair):
    a, b = (run(m(**QUICK), pair, net(), local_steps=2) for m in (DFL, DFL+FedBN))
    assert equal(a, b)

@pytest.mark.parametrize('said, word', [
    ('DFL + F2DC', 'Branches and DFD meet at `neck`, which Branches needs untouched'),
    ('DFL + FDSE', 'Branches and Erase both change `body'),
    ('DFL + RFedDis', 'Branches and TwoHeads both change `head')])
def test_two_surgeries_on_one_place_are_refused(suite, said, word):
    with pytest.raises(Contradiction, match=word): fed(read_method(said), suite)

@pytest.mark.parametrize('said, word', [
    ('Separate', 'builds on Branches'),
    ('Anchor', 'builds on Branches'),
    ('Transfer', 'builds on Branches'),
    ('DFL(critic_steps=1)', 'Anchor__critic_steps'),
    ('DFL(mu_s=-1)', 'Separate: mu_s is -1'),
    ('DFL(mu_c=1e999)', 'Anchor: mu_c is inf'),
    ('DFL(lam=-.5)', 'Transfer: lam is -0.5'),
    ('DFL(n_transfer=-1)', 'n_transfer is -1'),
    ('DFL(stages=3)', 'no number of stages 3'),
    ("DFL(predictor_step='all')", "no step for P 'all'"),
    ('DFL(first=1.)', 'first is 1.0'),
    ("DFL(peer_bn='mine')", "no peer_bn 'mine'"),
    ('DFL(Separate__critic_steps=0)', 'critic_steps is 0'),
    ("DFL(source='all')", "no source 'all'"),
    ('DFL(Anchor__hidden=0)', 'hidden is 0'),
    ('DFL(mu=1)', "no hyper-parameter 'mu'"),
    ('DFL(Anchor__floor=-1)', 'Anchor: floor is -1')])
def test_refused(said, word):
    with pytest.raises(ValueError, match=word): read_method(said)

# ---- bad input

def test_a_batch_of_one_has_no_information_terms(pair):
    with pytest.warns(UserWarning) as said: f = run(DFL, pair, net(), batch_size=1, local_steps=2)
    assert all(set(r['terms']) <= {'task', 'transfer'} for r in f.history.rounds)
    alone = 'a batch of one image has no other to be paired with'
    want = {f'{m}: {alone}, so {t} is left out there' for m, t in (('Separate', 'I_s'), ('Anchor', 'I_c'))}
    assert {str(w.message) for w in said} == want

@pytest.mark.parametrize('m, critic, mu', [('Separate', 'T_s', 'mu_s'), ('Anchor', 'T_c', 'mu_c')])
def test_nan_in_a_critic_names_it(pair, m, critic, mu):
    f = begun(DFL, pair)
    f.states[1][m]['critic']['W1'][0] = float('nan')
    says = rf'{critic}, the critic of {m}, is not finite at client 1 \(\w+\) in round 2: '
    with pytest.raises(FloatingPointError, match=says+f'try a smaller {mu} or critic_lr'): f.fit()

def test_nan_in_a_feature_does_not_blame_the_critic(pair):
    f = fed(DFL, pair)
    f.server['body.E_s.block1.conv.weight'].fill_(float('nan'))
    says = 'T_s, the critic of Separate, reads features that are not finite'
    with pytest.raises(FloatingPointError, match=says): f.fit()

def test_a_net_without_batchnorms_is_told_so(pair):
    with seeded(0): plain_net = Net(seq(conv=nn.Conv2d(3, 4, 3)), gap(), nn.Linear(4, 7))
    with pytest.raises(ValueError, match='the model has no BatchNorm'): fed_of(DFL, pair, plain_net)
    bare = Method('m', Branches(), Separate(), Anchor(), Transfer())
    assert finite(run(bare, pair, plain_net, local_steps=2))
