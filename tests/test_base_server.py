"FedHEAL, FedGen, Fed-ensemble: plain loops, limits, who sits out, resuming, lacking classes, what clashes."
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
import pytest, torch
import torch.nn.functional as F
from torch import nn
import plain_base_server as plain
from feds import batches_of, central_steps, equal, fed_of, halved, name_of, narrow, rounds_of, same, sizes_of
from feds import little as small
from feds import trained_once, whole_and_resumed
from fedskew_nb.core.method import Contradiction, Method
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.nets.models import small_conv
from fedskew_nb.core.net import is_batchnorm
from fedskew_nb.core.seeding import generator, seeded
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.device import threads_of
from fedskew_nb.engine.federation import Federation
from fedskew_nb.methods.baselines.average import FedAvg, FedProx
from fedskew_nb.methods.baselines.generate import FedGen, FeatureGenerator, LatentGenerator
from fedskew_nb.methods.baselines.personal import FedBN, Local
from fedskew_nb.methods.baselines.server import Fed_ensemble, FedHEAL, Heal, turn
from fedskew_nb.methods.f2dc.method import DC, F2DC
from fedskew_nb.methods.fdse.method import FDSE

ALL = [FedHEAL, FedGen, Fed_ensemble(K=3)]
IDS = ['FedHEAL', 'FedGen', 'Fed-ensemble']
HOW = dict(rounds=4, local_steps=None, local_epochs=1, batch_size=16, lr=.05, momentum=0., weight_decay=0.,
           eval_every=9, channels_last=False)
@pytest.fixture(scope='module')
def suite(suite): return halved(suite)

PARAMETERS = dict(small().named_parameters())

@pytest.fixture(scope='module')
def trained(suite): return trained_once(suite, rounds_of)

# ---- against plain loops

def close(a, b): return torch.allclose(a.cpu().double(), b.cpu().double(), rtol=0, atol=1e-9)

@pytest.mark.parametrize('kw', [dict(uniform=True), dict(participation=.5)], ids=['uniform', 'half'])
def test_fedheal_coordinate_by_coordinate(suite, kw):
    fed = fed_of(FedHEAL, suite, small().double(), **HOW | kw)
    batches, sizes = batches_of(fed, 4), sizes_of(fed)
    with threads_of(1): want, q, M = plain.fedheal(small().double(), batches, sizes, .05, .3, .4)
    for _ in range(4): fed.one_round()
    for n, v in want.items(): assert close(fed.server[n], v), n
    assert any((m == 0).any() for mine in M.values() for m in mine.values())
    got = {k: fed.memory['Heal'][f'weight {k}']['p'] for k in q}
    for k in q: assert got[k]/sum(got.values()) == pytest.approx(q[k], abs=1e-9)
    assert max(q.values())-min(q.values()) > 1e-3

def test_fed_ensemble_model_by_model(suite):
    fed = fed_of(Fed_ensemble(K=3), suite, small().double(), participation=.8, **HOW)
    nets = list(fed.worker.copy(fed.server).cpu().members)
    for a, b in combinations(nets, 2): assert not torch.equal(a.head.weight, b.head.weight)
    def whose(r, k): return turn(0, r, k, 3)
    with threads_of(1): want = plain.fed_ensemble(nets, batches_of(fed, 4), sizes_of(fed), .05, whose)
    for _ in range(4): fed.one_round()
    for m, state in enumerate(want):
        for n, v in state.items():
            if v.is_floating_point(): assert close(fed.server[f'members.{m}.{n}'], v), (m, n)

def plain_fedgen(clients, todo, m):
    "The model's state, and the generator; `todo`: [{client that takes part: batches}]."
    w, train = narrow().state_dict(), {c.id: c.train for c in clients}
    with seeded(generator(0, 0, 'server', 'LatentGenerator.weights').initial_seed()):
        G = plain.generator(m.noise, 7, m.hidden, 6).double()
    adam = torch.optim.Adam(G.parameters(), m.rate, weight_decay=.01)
    def made(y, dice): return plain.asked(G, y, torch.randn(len(y), m.noise, generator=dice).double(), 7)
    for r, batches in enumerate(todo):
        sent = []
        for k, b in batches.items():
            noise, labels = (generator(0, r, k, 'all', f'LatentGenerator.{n}') for n in ('noise', 'labels'))
            def loss(net, x, y):
                out = net(x)
                task = F.cross_entropy(out.logits, y)
                if r == 0: return task
                G.eval()
                drawn = known[torch.randint(len(known), (m.size,), generator=labels)]
                one = F.cross_entropy(net.head(made(drawn, noise)), drawn)
                said = net.head(made(y, noise)).softmax(1).detach()
                two = (said*(said.log()-out.logits.log_softmax(1))).sum()/len(y)
                return task+.98**r*(m.alpha*one+m.beta*two)
            sent.append(plain.sgd(narrow(), w, b, .05, loss))
        w = plain.averaged(sent, [len(train[k]) for k in batches])
        counts = torch.stack([train[k].y.bincount(minlength=7).double() for k in batches])
        known = counts.sum(0).nonzero()[:, 0]
        dice = generator(0, r, 'server', 'LatentGenerator.steps')
        for g in adam.param_groups: g['lr'] = m.rate*.98**r
        draws = []
        for _ in range(m.steps):
            y = known[torch.randint(len(known), (m.size,), generator=dice)]
            draws.append((y, torch.randn(m.size, m.noise, generator=dice).double()))
        heads = [dict(weight=s['head.weight'], bias=s['head.bias']) for s in sent]
        plain.train_generator(G, adam, heads, counts, draws, 1.)
    return w, G

def test_fedgens_three_rounds(suite):
    "The generator after three rounds of two clients, and the model that it taught in two of them."
    m = LatentGenerator(alpha=.7, beta=.4, steps=2, size=5, noise=3, hidden=4, rate=.01)
    fed = fed_of(Method('FedGen', m), suite, narrow(), participation=.5, **HOW)
    w, G = plain_fedgen(suite.clients, batches_of(fed, 3), m)
    for _ in range(3): fed.one_round()
    for n, v in w.items(): assert close(fed.server[n], v), n
    for v, u in zip(G.state_dict().values(), fed.down['generator'].values()): assert close(u, v)

# ---- limits

OFF = [FedHEAL(tau=None, beta=0), FedGen(alpha=0, beta=0), Fed_ensemble(K=1)]
ON = [FedHEAL, FedHEAL(tau=None), FedHEAL(beta=0), FedGen, FedGen(alpha=0), FedGen(beta=0)]

@pytest.mark.parametrize('off', OFF, ids=name_of)
def test_off_is_fedavg_bit_for_bit(trained, off):
    a, b = (trained(m, stack=False) for m in (FedAvg, off))
    assert equal(a, b) and 'generator' not in b.down

@pytest.mark.parametrize('on', ON, ids=name_of)
def test_on_is_not(trained, on): assert not equal(trained(FedAvg), trained(on))

def test_the_local_update_of_fedgen_differs_and_its_generator_stays(suite):
    fed = rounds_of(FedGen, suite, rounds=1)
    twin = fed_of(FedAvg, suite)
    twin.state = replace(twin.state, server=fed.server, round=1)
    before = {n: v.clone() for n, v in fed.down['generator'].items()}
    for c in fed.clients:
        assert not same(fed.train_client(c).upload.state, twin.train_client(c).upload.state)
        G = fed.caches[c.id]['LatentGenerator']['G']
        assert same(before, G.state_dict()) and not G.training
        assert not any(p.requires_grad or p.grad is not None for p in G.parameters())
    assert same(before, fed.down['generator'])

@pytest.mark.parametrize('method', [FedHEAL, Fed_ensemble(K=1), FedGen], ids=name_of)
def test_equal_clients_and_a_full_batch_are_one_central_step(suite, method):
    three, alone = central_steps(method, FedAvg, suite)
    for n in PARAMETERS: assert close(three[n], alone[n]), n

# ---- who sits out, resuming, what has no part, who lacks what

def same_values(a, b):
    return all(torch.equal(b[i], x) if torch.is_tensor(x) else b[i] == x for i, x in a.items())

def test_signs_and_weights_of_absent_clients_stay(suite):
    fed = fed_of(FedHEAL, suite, rounds=5, participation=.5)
    for _ in range(5):
        before = {n: dict(v) for n, v in fed.memory.get('Heal', {}).items()}
        fed.one_round()
        here = {str(k) for k in fed.history.rounds[-1]['participants']}
        for n, v in before.items():
            now = fed.memory['Heal'][n]
            if n.split()[1] in here: assert now.get('rounds', 0) == v.get('rounds', -1)+1
            else: assert same_values(v, now)
    assert len({tuple(r['participants']) for r in fed.history.rounds}) > 1

def test_a_model_that_nobody_trains_stays(suite):
    few = replace(suite, clients=suite.clients[:2])
    fed = fed_of(Fed_ensemble(K=4), few, rounds=4)
    for r in range(4):
        before = dict(fed.server)
        fed.one_round()
        trained = {turn(0, r, c.id, 4) for c in few.clients}
        for m in range(4):
            mine = [n for n in before if n.startswith(f'members.{m}.')]
            if m not in trained: assert all(torch.equal(before[n], fed.server[n]) for n in mine)
            bias = f'members.{m}.head.bias'
            assert (m in trained) == (not torch.equal(before[bias], fed.server[bias]))

@pytest.mark.parametrize('method', ALL, ids=IDS)
def test_resume_is_bit_equal(suite, tmp_path, method):
    def make(**kw): return fed_of(method, suite, participation=.5, eval_every=1, **kw)
    whole, rest = whole_and_resumed(make, tmp_path/'half')
    assert equal(whole, rest) and whole.history == rest.history

@pytest.mark.parametrize('method', ALL, ids=IDS)
def test_lanes_do_not_matter(suite, method):
    assert equal(rounds_of(method, suite, lanes=1), rounds_of(method, suite, lanes=3))

def test_buffers_and_counters_have_no_signs(suite):
    fed = rounds_of(FedHEAL, suite, rounds=1)
    ups = {c.id: fed_of(FedAvg, suite).train_client(c).upload for c in fed.clients}
    n_images = sum(u.n for u in ups.values())
    name = 'body.block1.bn.running_mean'
    mean = sum(u.n/n_images*u.state[name] for u in ups.values())
    assert torch.allclose(fed.server[name], mean, atol=1e-6)
    assert len(fed.memory['Heal']['signs 0']['downs']) == sum(p.numel() for p in PARAMETERS.values())
    assert fed.server['body.block1.bn.num_batches_tracked'] == 2

def test_what_stays_at_home_has_no_signs(trained):
    norms = is_batchnorm(small())
    sent = sum(p.numel() for n, p in PARAMETERS.items() if not norms(n))
    assert len(trained(FedHEAL+FedBN).memory['Heal']['signs 0']['downs']) == sent
    assert equal(trained(Local), trained(FedHEAL+Local))

def test_a_round_in_which_nothing_moves(suite):
    class Still(Mechanism):
        def task(self, c, b, out): return 0*out.logits.sum()
    first = small().state_dict()
    fed = rounds_of(Method('still', Heal(), Still()), suite, momentum=0., weight_decay=0., rounds=2)
    for n in PARAMETERS: assert torch.allclose(fed.server[n], first[n], atol=1e-7), n

def test_all_masked_stays_and_those_who_are_heard_share_all():
    srv = SimpleNamespace(ids=[0, 1], state={}, split=lambda V: dict(w=V))
    g, w, heal = torch.zeros(2, 2), torch.tensor([.5, .5]), Heal(beta=0)
    for _ in range(3): heal._heal(torch.tensor([[1., 1.], [1., 1.]]), g, w, srv)
    assert heal._heal(torch.tensor([[-4., 3.], [-2., -1.]]), g, w, srv).tolist() == [0., 3.]

def test_lacking_classes(suite):
    def without(c, kept): return replace(c, train=c.train[kept(c.train.y).nonzero()[:, 0]])
    clients = [without(suite.clients[3], lambda y: y < 4), without(suite.clients[2], lambda y: y < 5)]
    fed = rounds_of(FedGen, replace(suite, clients=clients), rounds=3)
    there = {int(k) for c in clients for k in c.train.y}
    assert set(fed.down['classes'].tolist()) == there and max(there) < 5

@pytest.mark.parametrize('method', ALL, ids=IDS)
def test_one_client(suite, method): rounds_of(method, replace(suite, clients=suite.clients[:1]), rounds=3)

def test_a_head_without_bias(suite):
    net = narrow().float()
    with seeded(0): net.head = nn.Linear(6, 7, bias=False)
    rounds_of(FedGen, suite, net)

# ---- the ensemble's answer, bytes, learning

def test_the_ensemble_answers_with_the_mean(suite):
    fed = rounds_of(Fed_ensemble(K=3), suite)
    x = suite.clients[0].test.x[:5]
    got, net = fed.answers(x), fed.model().eval()
    images = fed.worker.images(x)
    with torch.no_grad(): want = torch.stack([m(images).logits.softmax(1) for m in net.members])
    assert torch.allclose(got[''], want.mean(0), atol=1e-5) and torch.allclose(got['one'], want[0], atol=1e-5)

def test_bytes(trained):
    def bytes_of(method): return [trained(method).history.rounds[-1][way] for way in ('up', 'down')]
    up, down = bytes_of(FedAvg)
    assert bytes_of(FedHEAL) == bytes_of(Fed_ensemble(K=3)) == [up, down]
    head = 4*sum(p.numel() for p in small().head.parameters())
    G = sum(v.numel()*v.element_size() for v in FeatureGenerator(7, 128).state_dict().values())
    assert bytes_of(FedGen) == [up+4*(head+8*7), down+4*(G+8*7)]                     # four clients

@pytest.mark.parametrize('method,lr', [(FedHEAL, .05), (FedGen, .01), (Fed_ensemble(K=2), .05)], ids=IDS)
def test_it_learns(method, lr):
    suite = load_suite('skew-digits', 'tiny')
    clients = [replace(c, test=c.test[:0]) for c in suite.clients[:2]]
    suite = replace(suite, clients=clients, tests={c.domain: suite.tests[c.domain][:60] for c in clients})
    how = dict(rounds=5, lr=lr, batch_size=32, eval_every=5)
    fed = Federation(method, small_conv(10, size=28, width=4), suite, device='cpu', **how)
    rows = [r for r in fed.fit().rows if (r['view'], r['moment'], r['path']) == ('global', 'post_agg', '')]
    right = sum(r['correct'] for r in rows)/sum(r['n'] for r in rows)
    print(f'{method.name}: {right:.1%}')
    assert right > .2

# ---- refusals

BAD_HEAL = [dict(tau=-.1), dict(tau=1.), dict(tau=float('nan')), dict(beta=-.1), dict(beta=1.1)]
BAD_GEN = [dict(alpha=-1), dict(beta=float('nan')), dict(eta=float('inf')), dict(steps=0), dict(size=1),
           dict(noise=0), dict(hidden=0)]

@pytest.mark.parametrize('hp', BAD_HEAL, ids=str)
def test_bad_heal(hp):
    with pytest.raises(ValueError, match='Heal: tau'): FedHEAL(**hp)

@pytest.mark.parametrize('hp', BAD_GEN, ids=str)
def test_bad_fedgen(hp):
    with pytest.raises(ValueError, match=next(iter(hp))): FedGen(**hp)

def test_bad_ensemble():
    with pytest.raises(ValueError, match='K is 0'): Fed_ensemble(K=0)

CLASH = [
    (FedHEAL+FDSE, 'Consensus.*Heal'),
    (Fed_ensemble+DC, 'DFD and Twins'),
    (FedGen+Fed_ensemble, 'LatentGenerator and Twins'),
    (Fed_ensemble+FDSE, 'Erase and Twins'),
    (FedHEAL+Fed_ensemble, 'Heal and Twins')]

@pytest.mark.parametrize('method,names', CLASH, ids=name_of)
def test_clashes_name_both(suite, method, names):
    with pytest.raises(Contradiction, match=names): fed_of(method, suite)

def test_two_who_set_the_weights():
    with pytest.raises(Contradiction, match='DomainAware and Heal'): FedHEAL+F2DC

SUMS = [FedHEAL+DC, FedGen+DC, FedGen+FDSE, FedHEAL+FedGen, FedHEAL+FedProx, Fed_ensemble(K=2)+FedProx]

@pytest.mark.parametrize('method', SUMS, ids=name_of)
def test_these_run(suite, method): rounds_of(method, suite)

def test_heads_that_stay_and_heads_that_are_no_layer(suite):
    says = 'KeepAll and LatentGenerator meet at `head.*KeepAll keeps at the clients'
    with pytest.raises(Contradiction, match=says): fed_of(FedGen+Local, suite)
    net = small()
    net.head = nn.Sequential(net.head)
    with pytest.raises(ValueError, match='makes features for a linear head'): fed_of(FedGen, suite, net)
