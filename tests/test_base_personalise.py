"LG-FedAvg, FedRep, Ditto, PartialFed: plain loops, their limits, what stays at home, what is refused."
import warnings
from dataclasses import replace
import pytest, torch
from feds import equal, halved, name_of, same, trained_once, whole_and_resumed
from plain_base import present
from plain_base_personalise import DECAY, LR, MOMENTUM, adaptive, ditto, keeping
from torch import nn
from fedskew_nb.core.method import Contradiction, Method
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.nets.models import gap, seq, small_conv
from fedskew_nb.core.net import Net
from fedskew_nb.core.rules import Rule
from fedskew_nb.core.seeding import Dropout, generator, seeded
from fedskew_nb.run.recipes import METHODS, read_method
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.device import threads_of
from fedskew_nb.engine.federation import Federation
from fedskew_nb.methods.baselines.average import FedAvg, FedProx
from fedskew_nb.methods.baselines.personal import (
    AdaBN, FedBN, Local, Ditto, FedRep, HeadFirst, KeepPlaces, LG_FedAvg, LearnToLoad, LoadPartly,
    OwnModel, PartialFed, PartialFed_Adaptive, layers_of)
from fedskew_nb.methods.dfl.method import DFL

SKIP_BN, TOP_DOWN = PartialFed(way='skip-BN'), PartialFed(way='top-down', skipped=3)
LOOPS = [LG_FedAvg, FedRep, Ditto, PartialFed, SKIP_BN, TOP_DOWN]
STATEFUL = [FedRep, Ditto, PartialFed, PartialFed_Adaptive]
FIVE = [LG_FedAvg, *STATEFUL]

@pytest.fixture(scope='module')
def suite():
    s = load_suite('skew-digits', 'tiny')
    clients = [replace(c, train=c.train[:n], test=c.test[:16]) for c, n in zip(s.clients, (36, 24, 48))]
    return halved(replace(s, clients=clients, tests={d: t[:16] for d, t in s.tests.items()}))

def small(seed=0): return small_conv(10, size=14, width=4, seed=seed)

def fed_of(method, suite, net=None, **kw):
    how = dict(rounds=2, local_steps=3, batch_size=12, lr=LR, momentum=MOMENTUM, weight_decay=DECAY,
               lanes=1, stack=False)
    return Federation(method, net or small(), suite, device='cpu', **how | kw)

def run(method, suite, net=None, **kw):
    fed = fed_of(method, suite, net, **kw)
    for _ in range(fed.setting.rounds): fed.one_round()
    return fed

def own(fed): return [fed.model(client=c.id).state_dict() for c in fed.clients]
def close(a, b, eps=1e-9):
    def near(v, w): return float((v-w).norm()) <= eps*max(1., float(w.norm()))
    return a.keys() == b.keys() and all(near(a[n].double(), b[n].double()) for n in a)

# ---- against plain loops

def pictures(suite, c, i):
    mean, std = (torch.tensor(v, dtype=torch.float64).view(1, 3, 1, 1) for v in (suite.mean, suite.std))
    return (c.train.x[i].double()/255-mean)/std, c.train.y[i]

SHARE, ROUNDS = .7, 3        # two of three clients

def batches(suite, steps=3, size=12):
    "The documented order, for whole batches: [{client that takes part: [(x, y)]}]."
    def one(c, r):
        g, cut = generator(0, r, c.id, 'all', 'order'), []
        while len(cut) < steps: cut += torch.randperm(len(c.train), generator=g).split(size)
        return [pictures(suite, c, i) for i in cut[:steps]]
    return [{c.id: one(c, r) for c in present(suite.clients, SHARE, r)} for r in range(ROUNDS)]

FIRST_LAYERS = 'body.block1.', 'body.block2.conv.'           # the three that TOP_DOWN skips
def head(n): return n.startswith('head.')
def skip_bn(n): return '.bn.' in n and 'num_batches' not in n
def top_down(n): return n.startswith(FIRST_LAYERS) and 'num_batches' not in n

def plain(method, suite, net):
    sizes, told = [len(c.train) for c in suite.clients], batches(suite)
    ps = {n for n, _ in net.named_parameters()}
    two = [(2, {n for n in ps if head(n)}), (1, {n for n in ps if not head(n)})]
    loops = {
        LG_FedAvg.name: lambda: keeping(net, told, sizes, lambda n: not head(n)),
        FedRep.name: lambda: keeping(net, told, sizes, head, two),
        Ditto.name: lambda: ditto(net, told, sizes, 1.),
        PartialFed.name: lambda: keeping(net, told, sizes, head, sends_all=True),
        SKIP_BN.name: lambda: keeping(net, told, sizes, skip_bn, sends_all=True),
        TOP_DOWN.name: lambda: keeping(net, told, sizes, top_down, sends_all=True)}
    return loops[method.name]()

@pytest.mark.parametrize('method', LOOPS, ids=name_of)
def test_equals_a_plain_loop(method, suite):
    net = small().double()
    with threads_of(1): server, models = plain(method, suite, net)
    fed = run(method, suite, net, channels_last=False, rounds=ROUNDS, participation=SHARE)
    for got, want in zip([fed.server, *own(fed)], [server, *models]): assert close(got, want)
    assert not close(fed.server, net.state_dict(), 1e-3)

def test_adaptive_equals_a_plain_loop(suite):
    net, sizes, layers = small().double(), [len(c.train) for c in suite.clients], 8
    def draws(c, r):
        images, noise = (generator(0, r, c.id, 'all', f'LearnToLoad.{what}') for what in ('images', 'noise'))
        def one():
            i = torch.randperm(len(c.train), generator=images)[:32]
            return *pictures(suite, c, i), torch.rand(layers, generator=noise).clamp(1e-6, 1-1e-6).logit()
        return [one() for _ in range(5)]
    told = [[draws(c, r) for c in suite.clients] for r in range(ROUNDS)]
    with threads_of(1): server, models, zs = adaptive(net, batches(suite), sizes, told, 1., .5)
    fed = run(PartialFed_Adaptive, suite, net, channels_last=False, rounds=ROUNDS, participation=SHARE)
    told = {k: mine.get('LearnToLoad', {}) for k, mine in fed.states.items()}
    gates = {k: mine['z'] for k, mine in told.items() if 'z' in mine}
    for k, z in gates.items(): assert torch.allclose(z, zs[k], atol=1e-6) and z.any()
    assert gates.keys() == {k for k, z in enumerate(zs) if z.any()} != set()
    for got, want in zip([fed.server, *own(fed)], [server, *models]): assert close(got, want)

# ---- limits

@pytest.fixture(scope='module')
def trained(suite): return trained_once(suite, run)

NOTHING_KEPT = [LG_FedAvg(places=()), PartialFed(skipped=0), PartialFed_Adaptive(batches=0)]

@pytest.mark.parametrize('method', NOTHING_KEPT, ids=name_of)
def test_who_keeps_nothing_is_fedavg_bit_for_bit(suite, trained, method):
    assert equal(run(method, suite), trained(FedAvg))

def test_who_keeps_everything_is_local_bit_for_bit(suite, trained):
    assert equal(run(LG_FedAvg(places=('body', 'neck', 'pool', 'head')), suite), trained(Local))

def test_who_skips_every_layer_trains_alone_but_sends_all(suite, trained):
    every, alone = run(PartialFed(skipped=8), suite), trained(Local)
    for c in suite.clients:
        got = every.state_of(c.id)
        for n, v in alone.state_of(c.id).items(): assert torch.equal(v, got[n]) or 'num_batches' in n

@pytest.mark.parametrize('method', FIVE, ids=name_of)
def test_who_keeps_something_is_not_fedavg(trained, method):
    assert any(not same(a, b) for a, b in zip(own(trained(method)), own(trained(FedAvg))))

@pytest.mark.parametrize('kw', [{}, dict(clip=.5, weight_decay=.1, momentum=0., decay=.5)], ids=str)
def test_ditto_leaves_fedavg_alone_and_is_local_without_its_tie(trained, kw):
    avg, alone, loose, tight = (trained(m, **kw) for m in (FedAvg, Local, Ditto(lam=0), Ditto(lam=2)))
    assert same(avg.server, loose.server) and same(avg.server, tight.server)
    assert all(map(same, own(loose), own(alone))) and not any(map(same, own(tight), own(alone)))

def test_ditto_on_a_noisy_net(suite):
    "Its own model draws noise of its own: the federated one still is FedAvg's."
    def noisy():
        net = small()
        with seeded(0): net.head = seq(drop=Dropout(.3), fc=nn.Linear(128, 10))
        return net
    assert same(run(FedAvg, suite, noisy()).server, run(Ditto, suite, noisy()).server)

PARTS = [(PartialFed, Method('FedPer', KeepPlaces(('head',)))), (SKIP_BN, FedBN)]

@pytest.mark.parametrize('part,kept', PARTS, ids=name_of)
def test_partial_loading_trains_the_clients_of_keeping_and_sends_all(suite, part, kept):
    a, b = run(part, suite), run(kept, suite)
    for c in suite.clients:
        got = b.state_of(c.id)
        for n, v in a.state_of(c.id).items(): assert torch.equal(v, got[n]), n
    assert not same(a.server, b.server) and a.history.rounds[0]['up'] > b.history.rounds[0]['up']

def test_partial_loading_averages_all(suite):
    fed = fed_of(PartialFed(skipped=3), suite)
    ups = [fed.train_client(c).upload for c in fed.clients]
    fed.merge(ups)
    total = sum(u.n for u in ups)
    for n, v in fed.server.items():
        if not v.is_floating_point(): continue
        assert torch.allclose(v, sum(u.n/total*u.state[n] for u in ups), atol=1e-6), n

def test_identical_clients_and_a_full_batch_are_one_centralised_step(suite):
    c = suite.clients[0]
    alike = replace(suite, clients=[replace(c, id=k) for k in range(3)])
    how = dict(rounds=1, local_steps=1, batch_size=len(c.train), seed=0)
    central = run(FedAvg, replace(suite, clients=[c]), **how)
    for m in (PartialFed, PartialFed_Adaptive, Ditto):
        assert close(run(m, alike, **how).server, central.server, 1e-5), m.name
    assert close(run(LG_FedAvg, alike, **how).state_of(0), central.server, 1e-5)

# ---- what is frozen, what stays

def test_nothing_of_a_frozen_part_moves(suite):
    seen = []
    class Watch(Mechanism):
        def inner(self, c, b, out):
            now, was = (n.state_dict() for n in (c.net, c.received))
            seen.append((c.phase, {n.partition('.')[0] for n in now if not torch.equal(now[n], was[n])}))
    fed = fed_of(FedRep+Method('W', Watch()), suite, local_steps=6)
    up = fed.train_client(fed.clients[0]).upload
    assert [p for p, _ in seen] == ['head']*4+['body']*2
    assert [s for s in seen[1:4]] == [('head', {'head'})]*3
    assert seen[4] == ('body', {'body', 'head'})                # the body's BatchNorms, by the forward
    two = run(FedRep(head=1, body=2), suite, rounds=1)
    assert int(two.server['body.block1.bn.num_batches_tracked']) == 2 and up.n == 36

def test_a_body_that_is_frozen_stays_so_in_the_own_model_too(suite):
    """Neither its weights, for weight decay would move them, nor the statistics of its BatchNorms.

    Without the tie v is Local's."""
    def half():
        net = small()
        net.body.requires_grad_(False)
        return net
    first, loose = half().state_dict(), run(Ditto(lam=0), suite, half())
    for fed in (loose, run(Ditto, suite, half())):
        for state in own(fed):
            moved = {n.partition('.')[0] for n in first if not torch.equal(state[n], first[n])}
            assert moved == {'pool', 'head'}
    assert all(map(same, own(loose), own(run(Local, suite, half()))))

@pytest.mark.parametrize('method', [Ditto, PartialFed_Adaptive], ids=name_of)
def test_the_received_model_is_unchanged_and_frozen(method, suite):
    seen = {}
    class Watch(Mechanism):
        def start(self, c): seen['start'] = {n: v.clone() for n, v in c.received.state_dict().items()}
        def finish(self, c):
            seen['same'] = same(seen['start'], c.received.state_dict())
            ps = list(c.received.parameters())
            seen['still'] = all(p.grad is None and not p.requires_grad for p in ps)
            seen['eval'] = not c.received.training
            return {}
    fed = fed_of(method+Method('W', Watch()), suite)
    fed.one_round()
    fed.train_client(fed.clients[1])
    assert seen['same'] and seen['still'] and seen['eval']
    assert not any(fed.caches[1].values())

@pytest.mark.parametrize('method', STATEFUL, ids=name_of)
def test_an_absent_client_keeps_what_is_its_own(method):
    whole = halved(load_suite('skew-digits', 'tiny'))
    s = replace(whole, clients=[replace(c, train=c.train[:24], test=c.test[:8]) for c in whole.clients])
    fed = fed_of(method, s, rounds=3, local_steps=2, participation=.4, batch_size=8)
    went = set()
    for _ in range(3):
        memory = {k: {m: dict(d) for m, d in v.items()} for k, v in fed.states.items()}
        mine = {k: dict(v) for k, v in fed.own.items()}
        here = set(fed.one_round()['participants'])
        for k in {c.id for c in s.clients}-here:
            assert same(mine[k], fed.own[k]) and memory[k].keys() == fed.states[k].keys()
            if method is Ditto and memory[k]:
                assert same(memory[k]['OwnModel']['v'], fed.states[k]['OwnModel']['v'])
        went |= here
    for c in s.clients:                                # who never came is asked with the server's model
        if c.id not in went: assert same(fed.model(client=c.id).state_dict(), fed.server)

@pytest.mark.parametrize('method', STATEFUL, ids=name_of)
def test_a_resumed_run_is_bit_equal(method, suite, tmp_path):
    whole, rest = whole_and_resumed(lambda **kw: fed_of(method, suite, **kw), tmp_path/'run')
    assert equal(whole, rest) and all(map(same, own(whole), own(rest)))
    assert whole.history == rest.history

def test_lanes_change_nothing(suite):
    assert all(map(same, own(run(Ditto, suite, lanes=2)), own(run(Ditto, suite))))

@pytest.mark.parametrize('method', STATEFUL, ids=name_of)
def test_one_client_one_image_one_class(method, suite):
    c = suite.clients[0]
    lone = replace(suite, clients=[replace(c, train=c.train[:1])])
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        fed = fed_of(method, lone, batch_size=1)
        fed.fit()
    assert all(v.isfinite().all() for s in own(fed) for v in s.values())

def test_bytes(suite, trained):
    def bytes_of(m): return tuple(trained(m).history.rounds[0][way] for way in ('up', 'down'))
    head, avg = 3*4*(128*10+10), bytes_of(FedAvg)[0]
    assert bytes_of(LG_FedAvg) == (head, head) and bytes_of(FedRep)[0] == avg-head
    for m in (Ditto, PartialFed, PartialFed_Adaptive): assert bytes_of(m) == (avg, avg)

@pytest.mark.parametrize('method', STATEFUL, ids=name_of)
def test_views_and_who_is_asked(suite, method):
    fed = fed_of(method, suite, rounds=1)
    fed.fit()
    assert {r['view'] for r in fed.history.rows} == {'personal'}
    with pytest.raises(ValueError, match='no global model'): fed.model()

def test_of_ditto_its_own_model_is_asked(trained):
    fed = trained(Ditto)
    asked = fed.model(client=1).state_dict()
    assert same(asked, fed.states[1]['OwnModel']['v']) and not same(asked, fed.server)
    assert set(fed.history.rounds[0]['terms']) == {'own', 'task'}

@pytest.mark.parametrize('method', FIVE, ids=name_of)
def test_learns(method):
    s = load_suite('skew-digits', 'tiny')
    s = replace(s, clients=[s.clients[0], s.clients[2]])
    fed = Federation(method, small_conv(10, size=28, width=8, seed=0), s, device='cpu',
                     rounds=3, local_epochs=2, lr=.05, batch_size=32, eval_every=5)
    got = fed.fit().summary('personal')['AVG']
    print(f'{method.name}: {got:.1f} %')
    assert got > 20

# ---- what is refused

@pytest.mark.parametrize('make,says', [
    (lambda: Ditto(lam=-1), 'OwnModel: lam is -1'),
    (lambda: Ditto(lam=float('nan')), 'lam is nan'),
    (lambda: FedRep(head=0), 'HeadFirst: head is 0'),
    (lambda: FedRep(body=float('inf')), 'body is inf'),
    (lambda: LG_FedAvg(places='head'), "places is 'head': give a tuple"),
    (lambda: LG_FedAvg(places=('boddy',)).adapt(small()),
     'KeepPlaces reads `boddy`, which this model does not have: did you mean body'),
    (lambda: PartialFed(way='bottom'), "no way of LoadPartly 'bottom'"),
    (lambda: PartialFed(skipped=-1), 'skipped is -1'),
    (lambda: PartialFed(skipped=99).rules(small()), 'skipped is 99, but the model has 8 layers'),
    (lambda: PartialFed_Adaptive(tau=0), 'tau is 0'),
    (lambda: PartialFed_Adaptive(batches=.5), 'batches is 0.5')])
def test_bad_hyper_parameters(make, says):
    with pytest.raises(ValueError, match=says): make()

def test_skip_bn_needs_batchnorm():
    with seeded(0): net = Net(seq(conv=nn.Conv2d(3, 4, 3)), gap(), nn.Linear(4, 10))
    with pytest.raises(ValueError, match='no BatchNorm to skip'): PartialFed(way='skip-BN').rules(net)

def test_too_few_steps_for_both_phases(suite):
    says = "phase 'body' gets none of 2 local steps"
    with pytest.raises(ValueError, match=says): run(FedRep(body=1), suite, local_steps=2)

def test_a_tie_too_strong_for_the_step_stops_the_run(suite):
    says = "'own' is not finite at client 0"
    with pytest.raises(FloatingPointError, match=says): run(Ditto(lam=1e6), suite, local_steps=12)

CLASHES = [
    (LG_FedAvg, FedRep, 'LG-FedAvg.*FedRep.*KeepPlaces is there twice'),
    (FedRep, DFL, 'Branches and HeadFirst both claim the hook `phases`'),
    (Ditto, Method('AdaBN', AdaBN()), 'AdaBN and OwnModel both claim the hook `prepare`'),
    (Ditto, PartialFed_Adaptive, 'LearnToLoad and OwnModel both claim the hook `prepare`')]

@pytest.mark.parametrize('a,b,says', CLASHES, ids=name_of)
def test_clashes(a, b, says):
    with pytest.raises(Contradiction, match=says): a+b

def test_two_rules_on_one_name():
    def largest_head(V, g, w, srv): return V.max(0).values
    class Other(Mechanism):
        def rules(self, net): return [Rule(lambda n: n == 'head.bias', largest_head)]
    both, says = PartialFed+Method('O', Other()), 'LoadPartly and Other both claim `head.bias`'
    with pytest.raises(Contradiction, match=says): both.rules(small())

@pytest.mark.parametrize('other', [FedProx, FedBN], ids=name_of)
@pytest.mark.parametrize('method', STATEFUL, ids=name_of)
def test_others_can_be_added(method, other, suite):
    two = replace(suite, clients=suite.clients[:2])
    assert equal(run(method+other, two, rounds=1), run(other+method, two, rounds=1))

def test_names():
    for m in FIVE:
        assert METHODS[m.name] == m and read_method(m.name) == m and len(m.says.split()) <= 12
    assert read_method('Ditto(lam=2)').mechanisms == (OwnModel(2),) and len(layers_of(small())) == 8
    assert 'no code' in LoadPartly.__doc__ and HeadFirst.__doc__
    assert LearnToLoad.__doc__.startswith('EXPERIMENTAL')

def test_the_personal_model_is_asked_right_after_training_too(suite):
    "Ditto's v does not change where the server averages, so both moments ask the same model."
    rows = [r for r in fed_of(Ditto, suite).fit().rows if (r['view'], r['round']) == ('personal', 2)]
    def at(moment): return [(r['client'], r['correct']) for r in rows if r['moment'] == moment]
    assert at('post_local') == at('post_agg') != []
