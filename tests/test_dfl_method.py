"Branches, Separate, Anchor, Transfer and DFL inside the engine, beside plain PyTorch."
import copy
from dataclasses import dataclass, replace
from functools import partial
import pytest, torch
import plain_dfl as plain
from feds import equal, fed_of, first, images, in_two_parts, rounds_of, run, same, trained_once
from torch import nn
from fedskew_nb.app.recipes import read_method
from fedskew_nb.core.method import Contradiction, Method
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.models import gap, n_params, resnet10, seq, small_conv
from fedskew_nb.core.net import Net, is_batchnorm, under
from fedskew_nb.core.rules import Rule, keep
from fedskew_nb.core.seeding import Dropout, generator, seeded
from fedskew_nb.engine.setting import schedule
from fedskew_nb.methods.baselines.personal import FedBN, KeepBatchNorm
from fedskew_nb.methods.dfl.alternation import Branches, branch, halves
from fedskew_nb.methods.dfl.information import new_critic, shared_information, standardised
from fedskew_nb.methods.dfl.method import DFL, Anchor, Separate, Transfer, both_pairs

OFF = dict(mu_s=0., mu_c=0., lam=0.)
QUICK = dict(Separate__critic_steps=1, Anchor__critic_steps=1)      # for what does not ask how good the critics are

@pytest.fixture(scope='module')
def three(suite): return first(suite, 3, tests=4)

def begun(method, suite, **kw):
    "A federation after its first round."
    f = fed_of(method, suite, net(), **kw)
    f.one_round()
    return f

@pytest.fixture(scope='module')
def after_a_round(pair): return trained_once(pair, begun)

def net(dtype=torch.float32): return small_conv(7, size=32, width=4, seed=0).to(dtype)
def fed(method, suite, dtype=torch.float32, **kw): return fed_of(method, suite, net(dtype), **(dict(local_steps=4) | kw))
def at(f, k, phase='all', n=8):
    "Client `k`, a batch of its first images, and the net's answer, in a phase of its training."
    client, worker = f.clients[k], f.worker
    c = worker.context(client, f.state_of(client.id), copy.deepcopy(f.states[client.id]), {}, f.state.sent_to(client.id), f.round_no)
    f.method.everyone('start', c)
    phases = f.method.one('phases', c) or [('all', 1, lambda n: True)]
    c.phase, _, trainable = next(p for p in phases if p[0] == phase)
    worker._prepare(c, trainable)
    b = worker.ready_batch(worker.raw_batch(c, torch.arange(n)))
    return c, b, f.method.run_forward(c, b)
def of(state, *places): return {n: v for n, v in state.items() if under(*places)(n)}
E_S, E_C, HEAD = ('body.E_s', 'pool.E_s'), ('body.E_c', 'pool.E_c'), ('head',)
def moved(term, params):
    "The places that a term pulls at."
    grads = torch.autograd.grad(term, list(params.values()), allow_unused=True, retain_graph=True) if term.requires_grad else [None]*len(params)
    names = [n for n, g in zip(params, grads) if g is not None and g.abs().sum() > 0]
    return {where[0].split('.')[-1] for where in (E_S, E_C, HEAD) if any(map(under(*where), names))}

# ---- against plain PyTorch

HOW = [{}, dict(mu_s=.1, mu_c=.3, lam=.5)]

@pytest.mark.parametrize('how, n', [(HOW[0], 2), (HOW[1], 3)], ids=str)
def test_two_rounds_are_those_of_plain_pytorch(suite, how, n):
    "Losses, both critics with their moments, SGD, BatchNorms, what is lent, the server: in float64."
    f = fed(DFL(n_transfer=None, **how), first(suite, n), torch.float64, rounds=3)
    sizes, ids = [len(c.train) for c in f.clients], [c.id for c in f.clients]
    S = [{n: v.clone() for n, v in f.state_of(k).items()} for k in ids]
    T = {k: {t: {n: v.double() for n, v in new_critic(128, 128, 128, generator(0, k, 'lasting', m+'.critic')).items()}
             for t, m in (('T_s', 'Separate'), ('T_c', 'Anchor'))} for k in ids}
    lent = {}
    for r in range(2):
        sent = []
        for c, mine in zip(f.clients, S):
            order = schedule(len(c.train), 8, generator(0, r, c.id, 'all', 'order'), 1, 4)
            batches = [(f.worker.images(c.train.x[i]), c.train.y[i]) for i in order]
            dice = {t: generator(0, r, c.id, *key) for t, key in (('T_s', ('specific', 'Separate.shift')), ('T_c', ('invariant', 'Anchor.shift')))}
            def shifts(t): return int(torch.randint(1, 8, (), generator=dice[t]))
            peers = [lent[j] for j in lent if j != c.id]
            sent.append(plain.client(mine, batches, T[c.id]['T_s'], T[c.id]['T_c'], peers, shifts, **how))
        lent = dict(zip(ids, sent))
        S = plain.server(sent, sizes)
        f.one_round()
        for k, mine in zip(ids, S):
            have = f.state_of(k)
            assert max(float((have[n]-v).abs().max()) for n, v in mine.items() if v.is_floating_point()) < 1e-9
            for t, m in (('T_s', 'Separate'), ('T_c', 'Anchor')):
                assert max(float((v-T[k][t][n]).detach().abs().max()) for n, v in f.states[k][m]['critic'].items()) < 1e-9

def test_one_pass_is_two():
    "Pairs that belong together and pairs that do not, at once or one after the other."
    a, b = (images(9, 4, s, torch.float64).flatten(1) for s in (0, 1))
    p = {n: v.double() for n, v in new_critic(48, 48, 16, generator('p')).items()}
    shift = int(torch.randint(1, 9, (), generator=generator('s')))
    assert both_pairs(p, standardised(a), standardised(b), generator('s')).item() == pytest.approx(shared_information(p, a, b, shift).item(), abs=1e-12)

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
        assert all(not torch.equal(first[n], second[n]) for n in first if 'running' in n or n.endswith('conv.weight'))

def test_a_frozen_branch_is_in_eval_with_all_that_lies_in_it(pair):
    "A BatchNorm without weights and a Dropout have nothing of their own that could be frozen."
    with seeded(0):
        body = seq(conv=nn.Conv2d(3, 4, 3), bn=nn.BatchNorm2d(4, affine=False), drop=Dropout(.5))
        odd = Net(body, gap(), nn.Linear(4, 7))
    seen, _, _ = watched(Method('m', Branches()), pair)
    for phase, learns, frozen in (('specific', 'E_s', 'E_c'), ('invariant', 'E_c', 'E_s')):
        f = fed_of(Method('m', Branches()), pair, odd, local_steps=2)
        c, b, out = at(f, 0, phase)
        modes = {w: {m.training for n, m in getattr(c.net.body, w).named_modules() if n} for w in (learns, frozen)}
        assert modes == {learns: {True}, frozen: {False}}
        steps = [of(s, f'body.{frozen}') for s in seen[phase]]
        assert steps and all(same(s, steps[0]) for s in steps)

@pytest.mark.parametrize('said, steps', [('both', (True, True)), ('specific', (True, False)), ('invariant', (False, True))])
def test_when_P_learns(pair, said, steps):
    seen, _, _ = watched(DFL(predictor_step=said, **QUICK), pair)
    for phase, learns in zip(('specific', 'invariant'), steps):
        first, second = (of(s, *HEAD) for s in seen[phase])
        assert same(first, second) != learns

def test_steps_are_shared_out_and_see_the_batches_of_fedavg(suite):
    seen = []
    @dataclass
    class Notes(Mechanism):
        def batch(self, c, b): return seen.append((c.phase, b['i'].tolist())) or b
    def order(method, **kw):
        seen.clear()
        f = fed(Method('n', *method.mechanisms, Notes()), suite, local_steps=8, **kw)
        f.train_client(f.clients[2])
        return [p for p, _ in seen], [i for _, i in seen]
    phases, batches = order(DFL)
    assert phases == ['specific']*4+['invariant']*4 and batches == order(FedBN)[1]
    assert order(DFL(first=.25))[0] == ['specific']*2+['invariant']*6 and order(DFL(stages=1))[0] == ['all']*8

def test_one_step_cannot_be_split(suite):
    with pytest.raises(ValueError, match="phase 'specific' gets none of 1 local steps: raise local_epochs"): run(DFL, suite, net(), local_steps=1)

# ---- signs

def terms_at(f, method, phase):
    c, b, out = at(f, 1, phase)
    method.everyone('inner', c, b, out)
    return method.terms(c, b, out), {n: p for n, p in c.params().items() if p.requires_grad}

@pytest.mark.parametrize('method, phase, term, pulls', [
    (DFL, 'specific', 'I_s', {'E_s'}), (DFL, 'invariant', 'I_c', {'E_c'}),
    (DFL, 'specific', 'transfer', {'head'}), (DFL, 'invariant', 'transfer', {'E_c', 'head'}),
    (DFL(stages=1), 'all', 'I_s', {'E_s'}), (DFL(stages=1), 'all', 'I_c', {'E_c'}),
    (DFL(I_s_in_step2=True), 'invariant', 'I_s', {'E_c'}), (DFL(I_s_in_step2=True, stages=1), 'all', 'I_s', {'E_s', 'E_c'}),
    (DFL(predictor_step='specific'), 'invariant', 'transfer', {'E_c'}), (DFL(predictor_step='invariant'), 'specific', 'transfer', set())])
def test_whom_a_term_pulls_at(after_a_round, method, phase, term, pulls):
    terms, params = terms_at(after_a_round(method), method, phase)
    assert moved(terms[term], params) == pulls

def test_which_terms_a_step_has(after_a_round):
    have = lambda m, phase: set(terms_at(after_a_round(m), m, phase)[0])-{'task'}
    assert have(DFL, 'specific') == {'I_s', 'transfer'} and have(DFL, 'invariant') == {'I_c', 'transfer'}
    assert have(DFL(mu_s=0., lam=0.), 'specific') == set() and have(DFL(mu_c=0.), 'invariant') == {'transfer'}

def test_terms_carry_their_sign_and_weight(pair):
    "From the same critics, with the same pairs: μ = 1 and μ = .3."
    for phase, term, mu, sign in (('specific', 'I_s', 'mu_s', 1), ('invariant', 'I_c', 'mu_c', -1)):
        f, said = fed(DFL, pair), {}
        for weight in (1., .3):
            f.method = DFL(**{mu: weight})
            c, b, out = at(f, 1, phase)
            said[weight] = float(f.method.union('loss', c, b, out)[term].detach())
        m = next(m for m in DFL.mechanisms if getattr(m, '_term', '') == term)
        c, b, out = at(f, 1, phase)
        I = both_pairs(new_critic(128, 128, 128, generator(0, 1, 'lasting', f'{type(m).__name__}.critic')),
                       *(standardised(z) for z in m._pair(c, b, out)), generator(0, 0, 1, phase, f'{type(m).__name__}.shift'))
        assert said[1.] == pytest.approx(sign*float(I.detach()), abs=1e-6) and said[.3] == pytest.approx(.3*said[1.], abs=1e-6)

def pair_of(c, method, x, phase):
    "What the critic of that phase compares, of images that nobody trains on."
    m = next(m for m in method.mechanisms if phase in getattr(m, '_steps', tuple)())
    return m._pair(c, dict(x=x), c.net(x))

@pytest.mark.parametrize('phase, term, sign', [('specific', 'I_s', -1), ('invariant', 'I_c', 1)])
def test_steps_of_a_branch_move_held_out_information(suite, phase, term, sign):
    "A critic learns on one half of the images; the branch follows its term there; Î of the other half falls, or rises."
    f = begun(DFL, replace(suite, clients=suite.clients[2:]), batch_size=32)
    c, _, _ = at(f, 1, phase)
    c.net.eval()
    x, y = f.worker.images(c.data.train.x), c.data.train.y
    b, held = dict(x=x[:32], y=y[:32]), x[32:]
    if phase == 'invariant':          # away from the received branch, so that there is something to come back to
        with torch.no_grad():
            for n, p in c.net.named_parameters():
                if under(*E_C)(n): p.add_(.3*p.std()*torch.randn(p.shape, generator=generator(n)))
    m = next(m for m in DFL.mechanisms if getattr(m, '_term', '') == term)
    for _ in range(40): m.inner(c.window(m), b, c.net(b['x']))
    p = {n: v.detach() for n, v in c.caches[type(m).__name__]['critic'].items()}
    def Î(): return sum(float(shared_information(p, *pair_of(c, DFL, held, phase), s).detach()) for s in range(1, 32))/31
    before, mine = Î(), [q for n, q in c.net.named_parameters() if under(*(E_S if phase == 'specific' else E_C))(n)]
    for _ in range(8):
        g = torch.autograd.grad(m.loss(c.window(m), b, c.net(b['x']))[term], mine)
        with torch.no_grad():
            for q, d in zip(mine, g): q.sub_(.02*d/(torch.cat([v.flatten() for v in g]).norm()+1e-12))
    assert sign*(Î()-before) > .005

def test_I_c_begins_at_its_greatest(after_a_round):
    "At the first step of step 2, E_c is what was received: in eval the two say the same, to the bit."
    f = after_a_round(DFL)
    c, b, _ = at(f, 1, 'invariant')
    c.net.eval().load_state_dict(f.state_of(1))
    E_c, E_G = Anchor()._pair(c.window(Anchor()), b, c.net(b['x']))
    assert torch.equal(E_c, E_G) and not E_G.requires_grad

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
    f = fed(DFL(n_transfer=1, **QUICK), three, rounds=6, local_steps=2)
    seen = []
    while len(set(seen)) < 2 and len(seen) < 6:
        f.one_round()
        seen.append(tuple(f.state.sent_to(0)['E_s']))
    assert len(set(seen)) > 1

def test_lent_branches_are_those_sent_and_stay(three):
    f = fed(DFL(**QUICK), three, local_steps=2)
    f.one_round()
    before = {k: {j: {n: v.clone() for n, v in E.items()} for j, E in J.items()} for k, J in f.down['E_s'].items()}
    for j, E in before[0].items():
        assert same(E, {n: v for n, v in branch(f.model(client=j), 'E_s').state_dict().items() if v.is_floating_point()})
    c, b, out = at(f, 0, 'invariant')
    terms = f.method.terms(c, b, out)
    sum(terms.values()).backward()
    assert all(v.grad is None and not v.requires_grad for E in c.down['E_s'].values() for v in E.values())
    assert all(p.grad is None for p in c.received.parameters()) and not c.received.training
    down = f.down['E_s']
    f.one_round()
    assert all(same(down[k][j], E) for k, J in before.items() for j, E in J.items())

def test_whose_batchnorms_a_lent_branch_has(pair):
    "With peer_bn='own' their filters meet one's own BatchNorms, and fewer bytes travel."
    theirs, own = (begun(DFL(peer_bn=said, **QUICK), pair) for said in ('theirs', 'own'))
    names = [set(f.state.sent_to(0)['E_s'][1]) for f in (theirs, own)]
    assert names[0]-names[1] == {f'body.block{k}.bn.{v}' for k in (1, 2, 3) for v in ('weight', 'bias', 'running_mean', 'running_var')}
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
    "Nobody is lent anything before another client has sent; a client that is drawn twice in a row borrows nothing."
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
    fc   = 4*(4*w*16*hidden+hidden)
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

@pytest.mark.parametrize('how, alike', [({}, ['E_c']), (dict(share_predictor=True), ['E_c', 'head']), (dict(share_specific=True), ['E_c', 'E_s'])], ids=str)
def test_only_E_c_is_averaged(pair, how, alike):
    f = rounds_of(DFL(**how, **QUICK), pair, net())
    bn = is_batchnorm(f.net)
    one, two = ({n: v for n, v in f.state_of(k).items() if not bn(n)} for k in (0, 1))
    for where in (E_S, E_C, HEAD):
        a, b = of(one, *where), of(two, *where)
        name = where[0].split('.')[-1]
        assert a and all(torch.equal(a[n], b[n]) == (name in alike) for n in a)
    assert not any(torch.equal(f.state_of(0)[n], f.state_of(1)[n]) for n in filter(bn, one | f.state_of(0)) if 'num' not in n)

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
    assert all(set(r['terms']) == {'task'} for r in f.history.rounds) and not any(s.get('Separate') or s.get('Anchor') for s in f.states.values())

def test_the_first_round_has_no_transfer(pair):
    one, nine = (begun(DFL(lam=lam, **QUICK), pair) for lam in (1., 9.))
    assert equal(one, nine)

def test_one_stage_and_no_E_s_is_fedavg_with_heads_at_home(pair):
    "A specific branch whose last layer is 0 says nothing and learns nothing: what is left is FedPer, with BatchNorms at home."
    f = fed(DFL(stages=1, **OFF), pair, torch.float64)
    for n in ('pool.E_s.fc.weight', 'pool.E_s.fc.bias'): f.server[n].zero_()
    @dataclass
    class KeepHead(Mechanism):
        def rules(self, net): return [Rule(under('head'), keep)]
    one, start = net(torch.float64), f.server
    one.head = seq(fc=nn.Linear(128, 128), relu=nn.ReLU(), out=nn.Linear(128, 7)).double()
    mine = {n.replace('.E_c', ''): v for n, v in start.items() if 'E_s' not in n}
    one.load_state_dict(mine | {'head.fc.weight': start['head.fc.weight'][:, 128:]})
    g = fed_of(Method('FedPer', KeepHead(), KeepBatchNorm()), pair, one, local_steps=4, stack=False)
    f.fit(), g.fit()
    for k in (0, 1):
        a, b = f.state_of(k), g.state_of(k)
        a = {n.replace('.E_c', ''): v for n, v in a.items() if 'E_s' not in n}
        a['head.fc.weight'] = a['head.fc.weight'][:, 128:]
        assert a.keys() == b.keys() and max(float((a[n]-v).abs().max()) for n, v in b.items()) < 1e-9

def test_two_branches_of_all_are_fedbn_of_a_wider_net(pair):
    "The control of equal parameters: nothing but BatchNorms stays."
    f = fed(DFL(stages=1, share_predictor=True, share_specific=True, **OFF), pair)
    assert f.kept == set(filter(is_batchnorm(f.net), f.server))

# ---- the engine

def test_lanes_change_no_bit(three):
    a, b = (run(DFL(**QUICK), three, net(), rounds=3, local_steps=2, lanes=k) for k in (1, 3))
    assert equal(a, b) and a.history == b.history

def nested(a, b):
    if isinstance(a, torch.Tensor): return torch.equal(a, b)
    if isinstance(a, dict): return a.keys() == b.keys() and all(nested(a[k], b[k]) for k in a)
    return len(a) == len(b) and all(map(nested, a, b)) if isinstance(a, (list, tuple)) else a == b

def test_a_resumed_run_is_the_same(three, tmp_path):
    "Models, critics, Adam's moments, what is lent."
    whole = run(DFL(**QUICK), three, net(), rounds=3, local_steps=2)
    rest = in_two_parts(partial(fed, DFL(**QUICK), three, local_steps=2), tmp_path/'c')
    assert equal(whole, rest) and whole.history == rest.history and nested(whole.states, rest.states) and nested(whole.down, rest.down)

def test_critics_go_on_where_they_were(pair):
    f = fed(DFL, pair, rounds=3)
    f.one_round()
    old = copy.deepcopy(f.states[1])
    f.one_round()
    for m in ('Separate', 'Anchor'):
        was, now = old[m]['adam']['state'][0], f.states[1][m]['adam']['state'][0]
        assert (float(was['step']), float(now['step'])) == (10, 20) and not torch.equal(was['exp_avg'], now['exp_avg'])
    assert not same(f.states[1]['Separate']['critic'], f.states[1]['Anchor']['critic'])
    assert not same(f.states[1]['Separate']['critic'], f.states[0]['Separate']['critic'])

def test_who_sits_out_keeps_all(suite):
    f = fed(DFL(**QUICK), suite, rounds=6, participation=.5, local_steps=2)
    for _ in range(3): f.one_round()
    before, memory, who = {c.id: f.own[c.id] for c in f.clients}, copy.deepcopy(f.states), {c.id for c in f.participants()}
    f.one_round()
    away = {c.id for c in f.clients}-who
    assert away and all(same(before[k], f.own[k]) and nested(memory[k], f.states[k]) for k in away)
    assert not any(nested(memory[k], f.states[k]) for k in who)

def test_the_first_round_of_a_client_does_not_matter_to_its_critic(suite):
    "A lasting stream: the critic that a client begins with is its own, whenever it comes."
    f = fed(DFL, suite, rounds=4)
    first = at(f, 2, 'specific')[0].caches['Separate']['critic']
    f.state = replace(f.state, round=3)
    assert same({n: v.detach() for n, v in first.items()}, {n: v.detach() for n, v in at(f, 2, 'specific')[0].caches['Separate']['critic'].items()})

def test_bf16(pair):
    f = run(DFL, pair, net(), local_steps=2, precision='bf16')
    assert all(v.isfinite().all() for v in f.server.values()) and all(v.dtype == torch.float32 for v in f.states[0]['Separate']['critic'].values())

@pytest.mark.parametrize('how', [dict(stages=1), dict(I_s_in_step2=True), dict(Separate__detach=True), dict(Separate__floor=0., mu_s=.01), dict(fresh=False),
                                 dict(Anchor__hidden=8, Separate__critic_steps=1)], ids=str)
def test_every_choice_trains(pair, how):
    f = run(DFL(**how), pair, net(), local_steps=2)
    assert all(v.isfinite().all() for v in f.server.values())

def test_the_stable_preset_changes_one_number():
    said = lambda m: {k: getattr(mech, f) for k, (mech, f) in m.hyper().items()}
    paper, stable = said(DFL), said(DFL('stable'))
    assert {k.split('__')[-1] for k in paper if paper[k] != stable[k]} == {'mu_s'} and paper['mu_s'] == 1.

# ---- the net

def test_branches_start_differently_and_alike_everywhere():
    a, b = DFL.adapt(net(), 3), DFL.adapt(net(), 3)
    assert same(a.state_dict(), b.state_dict())
    assert not torch.equal(a.body.E_s.block1.conv.weight, a.body.E_c.block1.conv.weight)
    assert same(a.body.E_c.state_dict(), net().body.state_dict())

def test_a_copy_for_pretrained_extractors():
    a = DFL(fresh=False).adapt(net())
    assert same(a.body.E_s.state_dict(), a.body.E_c.state_dict()) and a.body.E_s.block1.conv.weight is not a.body.E_c.block1.conv.weight

def test_what_the_halves_say():
    n = DFL.adapt(net()).eval()
    x = images()
    E_s, E_c = halves(n(x))
    assert torch.equal(E_s, branch(n, 'E_s')(x)) and torch.equal(E_c, branch(n, 'E_c')(x)) and torch.equal(n(x).logits, n.head(torch.cat([E_s, E_c], 1)))

def test_parameters_are_two_extractors_and_a_predictor():
    bare, two = net(), DFL.adapt(net())
    extractor = n_params(bare.body)+n_params(bare.pool)
    assert n_params(two) == 2*extractor+(256*128+128)+(128*7+7)

def nets():
    with seeded(0):
        return dict(
            resnet=resnet10(7, width=4, size=32),
            all_in_pool=Net(nn.Identity(), seq(conv=nn.Conv2d(3, 4, 3), bn=nn.BatchNorm2d(4), gap=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten()), nn.Linear(4, 7)),
            all_in_body=Net(seq(conv=nn.Conv2d(3, 4, 3), bn=nn.BatchNorm2d(4), gap=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten()), nn.Identity(), nn.Linear(4, 7)))

@pytest.mark.parametrize('kind', ['resnet', 'all_in_pool', 'all_in_body'])
def test_other_nets_go(pair, kind):
    f = run(DFL, pair, nets()[kind], local_steps=2)
    assert all(v.isfinite().all() for v in f.server.values()) and 'transfer' in f.history.rounds[1]['terms']

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

def bad(kind):
    conv = lambda: seq(conv=nn.Conv2d(3, 4, 3))
    with seeded(0):
        return dict(neck=lambda: Net(conv(), gap(), nn.Linear(4, 7), nn.BatchNorm2d(4)), nothing=lambda: Net(nn.Identity(), gap(), nn.Linear(3, 7)),
                    more=lambda: Net(Gives(), gap(), nn.Linear(4, 7)), after=lambda: Goes(conv(), gap(), nn.Linear(4, 7)))[kind]()

@pytest.mark.parametrize('kind, word', [('neck', 'Net has a BatchNorm2d for a neck'), ('nothing', 'nothing before the head of Net learns'),
                                        ('more', 'body or pool gives a dict'), ('after', 'Goes does something after its head')])
def test_nets_that_cannot_be_two(kind, word):
    with pytest.raises((ValueError, TypeError), match=word): DFL.adapt(bad(kind))

# ---- combinations

@pytest.mark.parametrize('said', ['FedDDL + DFL', 'DFL + FedProx', 'DFL + FedBN', 'DFL + AdaBN', 'DFL + DEC', "DFL(preset='stable')", 'Branches', 'Branches + Transfer',
                                  'Branches + Separate', 'Branches + Anchor + KeepBatchNorm', 'DFL + EqualWeights'])
def test_these_run(pair, said):
    f = run(read_method(said), with_boxes(pair), net(), local_steps=2)
    assert all(v.isfinite().all() for v in f.server.values())

def with_boxes(suite):
    def boxed(d): return replace(d, boxes=torch.tensor([[4, 4, 28, 28]]).expand(len(d), 4).clone())
    return replace(suite, clients=[replace(c, train=boxed(c.train)) for c in suite.clients])

def test_equal_twins_are_one(pair): assert equal(run(DFL, pair, net(), local_steps=2), run(DFL+FedBN, pair, net(), local_steps=2))

@pytest.mark.parametrize('said, word', [
    ('DFL + F2DC', 'Branches and DFD meet at `neck`, which Branches needs untouched'), ('DFL + FDSE', 'Branches and Erase both change `body'),
    ('DFL + RFedDis', 'Branches and TwoHeads both change `head')])
def test_two_surgeries_on_one_place_are_refused(suite, said, word):
    with pytest.raises(Contradiction, match=word): fed(read_method(said), suite)

@pytest.mark.parametrize('said, word', [
    ('Separate', 'builds on Branches'), ('Anchor', 'builds on Branches'), ('Transfer', 'builds on Branches'), ('DFL(critic_steps=1)', 'Anchor__critic_steps'),
    ('DFL(mu_s=-1)', 'Separate: mu_s is -1'), ('DFL(mu_c=1e999)', 'Anchor: mu_c is inf'), ('DFL(lam=-.5)', 'Transfer: lam is -0.5'), ('DFL(n_transfer=-1)', 'n_transfer is -1'),
    ('DFL(stages=3)', 'no number of stages 3'), ("DFL(predictor_step='all')", "no step for P 'all'"), ('DFL(first=1.)', 'first is 1.0'), ("DFL(peer_bn='mine')", "no peer_bn 'mine'"),
    ('DFL(Separate__critic_steps=0)', 'critic_steps is 0'), ("DFL(source='all')", "no source 'all'"), ('DFL(Anchor__hidden=0)', 'hidden is 0'), ('DFL(mu=1)', "no hyper-parameter 'mu'"),
    ('DFL(Anchor__floor=-1)', 'Anchor: floor is -1')])
def test_refused(said, word):
    with pytest.raises(ValueError, match=word): read_method(said)

# ---- bad input

def test_a_batch_of_one_has_no_information_terms(pair):
    with pytest.warns(UserWarning) as said: f = run(DFL, pair, net(), batch_size=1, local_steps=2)
    assert all(set(r['terms']) <= {'task', 'transfer'} for r in f.history.rounds)
    said = {str(w.message) for w in said}
    assert said == {f'{m}: a batch of one image has no other to be paired with, so {t} is left out there' for m, t in (('Separate', 'I_s'), ('Anchor', 'I_c'))}

@pytest.mark.parametrize('m, critic, mu', [('Separate', 'T_s', 'mu_s'), ('Anchor', 'T_c', 'mu_c')])
def test_nan_in_a_critic_names_it(pair, m, critic, mu):
    f = begun(DFL, pair)
    f.states[1][m]['critic']['W1'][0] = float('nan')
    with pytest.raises(FloatingPointError, match=rf'{critic}, the critic of {m}, is not finite at client 1 \(\w+\) in round 2: try a smaller {mu} or critic_lr'): f.fit()

def test_nan_in_a_feature_does_not_blame_the_critic(pair):
    f = fed(DFL, pair)
    f.server['body.E_s.block1.conv.weight'].fill_(float('nan'))
    with pytest.raises(FloatingPointError, match='T_s, the critic of Separate, reads features that are not finite'): f.fit()

def test_a_net_without_batchnorms_is_told_so(pair):
    with seeded(0): plain_net = Net(seq(conv=nn.Conv2d(3, 4, 3)), gap(), nn.Linear(4, 7))
    with pytest.raises(ValueError, match='the model has no BatchNorm'): fed_of(DFL, pair, plain_net)
    f = run(Method('m', Branches(), Separate(), Anchor(), Transfer()), pair, plain_net, local_steps=2)
    assert all(v.isfinite().all() for v in f.server.values())
