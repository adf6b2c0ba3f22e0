"FedProto, FPL, FedTGP, FedSA, FedFA-anchors: beside plain loops, limits, masks, absent clients, resuming, refusals."
from dataclasses import replace
from functools import partial
import pytest, torch
import plain_base_prototypes as plain
from feds import equal, fed_of, in_two_parts, run, same
from fedskew_nb.app.recipes import read_method
from fedskew_nb.core.method import Contradiction, Method
from fedskew_nb.core.models import small_conv
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.checkpoint import load_nest, save_nest
from fedskew_nb.engine.federation import Federation
from fedskew_nb.methods.baselines.anchors import (
    FedFA_anchors, FedSA, FedTGP, SemanticAnchors, balanced_distance, drawn_anchors, margin_loss,
    nearest_gaps, own_margin, unit_anchors)
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.baselines.prototypes import (
    ByPrototype, ClassMeans, FedProto, FPL, ProtoPull, class_means, cluster_contrast, finch, first_neighbours,
    linked, means_of, prototype_cosines, to_prototypes)

QUICK = FedTGP(epochs=3)
FIVE = [FedProto, FPL, QUICK, FedSA, FedFA_anchors]
names = dict(ids=lambda m: m.name)

@pytest.fixture(scope='module')
def few():
    "Four clients, seven classes: client 0 lacks class 3, nobody has class 6."
    s = load_suite('emoji-pacs', 'tiny')
    clients = [replace(c, train=c.train[c.train.y != 6][:n], test=c.test[:8]) for c, n in zip(s.clients, (17, 20, 25, 24))]
    clients[0] = replace(clients[0], train=clients[0].train[clients[0].train.y != 3])
    return replace(s, clients=clients, tests={d: t[:8] for d, t in s.tests.items()})

def gen(seed=0): return torch.Generator().manual_seed(seed)

# ---- beside plain loops

HOW = dict(lr=.02, size=8)
EPOCHS = {'FedFA-anchors': 2}
LOOPS = [(FedProto(lam=2.), partial(plain.fedproto, lam=2.)),
         (FPL(tau=.1), partial(plain.fpl, tau=.1)),
         (FedTGP(lam=3., epochs=2, lr=.05), partial(plain.fedtgp, lam=3., epochs_server=2, lr_server=.05, size_server=10, n_classes=7)),
         (FedSA(mu=.5, gamma=.7, alpha=.9), partial(plain.fedsa, lam=1., mu=.5, gamma=.7, alpha=.9, n_classes=7, d=128)),
         (FedFA_anchors, partial(plain.fedfa, lam=.1, momentum=.5, calibrate=1e-3, n_classes=7, d=128))]

@pytest.mark.parametrize('method,loop', LOOPS, ids=[m.name for m, _ in LOOPS])
def test_two_rounds_are_the_plain_loop(few, method, loop):
    net = small_conv(7, size=32, width=2, seed=0).double()
    epochs = EPOCHS.get(method.name, 1)
    want, memory = loop(net, few, epochs=epochs, **HOW)
    fed = Federation(method, net, few, device='cpu', channels_last=False, rounds=2, local_epochs=epochs, batch_size=8,
                     lr=.02, momentum=plain.MOMENTUM, weight_decay=plain.DECAY)
    for _ in range(2): fed.one_round()
    for n, v in want.items():
        assert float((fed.server[n].double()-v.double()).norm()) <= 1e-9*max(1., float(v.double().norm())), n
    d = fed.down
    if 'protos' in d: assert all(torch.allclose(d['protos'][k], v, atol=1e-9, rtol=0) for k, v in memory.items())
    if 'tgp' in d: assert all(torch.allclose(d['tgp'][k], v, atol=1e-9, rtol=0) for k, v in memory['A'].items())
    if 'clusters' in d:
        assert d['clusters_of'].tolist() == [k for k, ps in sorted(memory.items()) for _ in ps]
        for k, ps in memory.items():        # clusters have no order
            assert float(torch.cdist(torch.stack(ps), d['clusters'][d['clusters_of'] == k]).min(1).values.max()) < 1e-9
    for key in {'semantic_anchors', 'feature_anchors'} & d.keys(): assert torch.allclose(d[key], memory['A'], atol=1e-9, rtol=0)

# ---- limits

OFF = [FedProto(lam=0), FPL(contrast=0, unbiased=0), FedTGP(lam=0), FedSA(lam=0, mu=0, gamma=0), FedFA_anchors(lam=0, calibrate=0)]

@pytest.fixture(scope='module')
def usual(few): return rounds_of(FedAvg, few, stack=False)

def rounds_of(method, suite, **kw):
    "The server after the first round, and the federation after the second."
    fed = fed_of(method, suite, **kw)
    fed.one_round()
    first = fed.server
    fed.one_round()
    return first, fed

@pytest.mark.parametrize('method', OFF, **names)
def test_off_is_fedavg_bit_for_bit(few, usual, method): assert equal(usual[1], rounds_of(method, few)[1])

@pytest.mark.parametrize('method', FIVE, **names)
def test_on_is_not(few, usual, method):
    "Prototypes come after the first round, anchors before."
    first, fed = rounds_of(method, few)
    assert same(first, usual[0]) == (method in (FedProto, FPL, QUICK)) and not equal(usual[1], fed)

@pytest.mark.parametrize('method', [FedProto, FPL, FedTGP(epochs=3, size=1000), FedSA, FedFA_anchors], **names)
def test_three_equal_clients_are_one(few, method):
    "A full batch: one step of all is one step of one, in both rounds."
    d = few.clients[1].train
    alone = replace(few, clients=[replace(few.clients[1], id=0, train=d)])
    three = replace(few, clients=[replace(few.clients[1], id=k, train=d) for k in range(3)])
    net = small_conv(7, size=32, width=2, seed=0).double()
    a, b = (run(method, s, net, local_steps=1, batch_size=99, channels_last=False) for s in (alone, three))
    assert max(float((v-b.server[n]).abs().max()) for n, v in a.server.items() if v.is_floating_point()) < 1e-9

# ---- the pieces

def test_finch_is_scipys(few):
    for n in (2, 3, 4, 6, 9, 30):
        X = torch.randn(n, 5, generator=gen(n)).double()
        mine, theirs = finch(X), plain.finch(list(X))
        sets = lambda groups: {frozenset(i for i, x in enumerate(X) if any(x is p or torch.equal(x, p) for p in g)) for g in groups}
        assert sets([X[mine == k] for k in mine.unique()]) == sets(theirs)
        assert mine.bincount().min() >= 2 and len(means_of(X, mine)) == len(theirs)
    assert finch(torch.zeros(0, 5)).tolist() == [] and finch(torch.ones(1, 5)).tolist() == [0]

def test_two_levels_of_finch():
    "Four pairs in two far groups: the pairs first, then the groups, and not all in one."
    angle = torch.tensor([0., 1, 10, 11, 90, 91, 100, 101]).deg2rad()
    X = torch.stack([angle.cos(), angle.sin()], 1)
    assert linked(first_neighbours(X)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and finch(X).tolist() == [0]*4+[1]*4

def test_features_of_length_zero_and_classes_without_vectors():
    f = torch.zeros(3, 4, requires_grad=True)
    y, P, of = torch.tensor([0, 1, 2]), torch.randn(3, 4, generator=gen()), torch.tensor([0, 0, 2])
    for loss in (cluster_contrast(f, y, P, of), margin_loss(f, y, torch.zeros(3, 4), 1.), to_prototypes(f, y, P, torch.tensor([True, False, True]))):
        g, = torch.autograd.grad(loss, f)
        assert loss.isfinite() and g.isfinite().all()
    assert cluster_contrast(f, torch.tensor([1, 1, 1]), P, of) == 0
    assert float(cluster_contrast(f.detach()+1, y*0, P[:2], of[:2])) == pytest.approx(0, abs=1e-6)      # one class: nothing to contrast with
    assert nearest_gaps(P[:1]).tolist() == [float('inf')] and own_margin(P[:1]) == 0
    assert prototype_cosines(P, P).diagonal().allclose(torch.ones(3))

def test_class_means_keep_the_width_of_floats():
    for dtype, out in ((torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)):
        assert class_means(torch.ones(2, 3, dtype=dtype), torch.tensor([0, 1]), 3)[0].dtype == out

def test_first_anchors():
    like = torch.zeros(1, 6)
    A = unit_anchors(3, 6, like)
    assert torch.equal(A @ A.T, torch.eye(6)) and not torch.equal(A, unit_anchors(4, 6, like))
    assert unit_anchors(3, 9, like).norm(dim=1).allclose(torch.ones(9))
    assert (drawn_anchors(0, 4, like) >= 0).all() and torch.equal(drawn_anchors(0, 4, like), drawn_anchors(0, 4, like))
    y = torch.tensor([0, 0, 0, 1])
    assert float(balanced_distance(torch.ones(4, 2), y, torch.zeros(2, 2))) == 2      # each class one vote

# ---- masks, absent clients, one client, batches of one

def test_a_class_that_nobody_has(few):
    fed = run(FedProto + FPL + QUICK, few)
    d = fed.down
    assert not d['protos_had'][6] and not d['tgp_had'][6] and d['protos_had'][:6].all() and 6 not in d['clusters_of']
    A = drawn_anchors(0, 7, fed.clients[0].train.x.new_zeros(1, 128).float())
    assert torch.equal(run(FedSA, few).down['semantic_anchors'][6], A[6].to(d['protos']))
    assert torch.allclose(run(FedFA_anchors, few).down['feature_anchors'][6].sum(), torch.tensor(1.))

@pytest.mark.parametrize('method', FIVE, **names)
def test_absent_clients(few, method):
    "Two of four take part: what the others remember stays, and what nobody sends now is kept."
    fed = fed_of(method, few, participation=.5, rounds=3)
    for _ in range(3):
        before, was = {k: v for k, v in fed.states.items()}, fed.down
        fed.one_round()
        gone = {c.id for c in few.clients}-set(fed.history.rounds[-1]['participants'])
        assert len(gone) == 2 and all(fed.states[k] is before[k] for k in gone)
        for had in (k for k in was if k.endswith('had')): assert (fed.down[had] | ~was[had]).all()      # nothing is forgotten
    if method is FedSA: assert set(fed.memory['SemanticAnchors']['margins']) == {k for r in fed.history.rounds for k in r['participants']}

@pytest.mark.parametrize('method', FIVE, **names)
def test_one_client_and_batches_of_one(few, method):
    one = replace(few, clients=[replace(few.clients[1], id=0, train=few.clients[1].train[:3])])
    fed = run(method, one, batch_size=1, local_steps=3)
    assert all(v.isfinite().all() for v in fed.server.values())

@pytest.mark.parametrize('method', FIVE, **names)
def test_a_resumed_run_is_the_same(few, method, tmp_path):
    whole = run(method, few, rounds=3)
    rest = in_two_parts(partial(fed_of, method, few), tmp_path/'c')
    assert equal(whole, rest) and whole.history == rest.history

def test_what_a_checkpoint_gives_lies_as_it_did(tmp_path):
    "Products differ in their last bit by where their factors lie, and a file may begin a tensor anywhere."
    save_nest({f't{n}': torch.ones(n) for n in (3, 5, 7, 640)}, tmp_path/'n')
    assert all(t.data_ptr()%64 == torch.ones(1).data_ptr()%64 == 0 for t in load_nest(tmp_path/'n').values())

def test_lanes_change_no_bit(few):
    for m in (FPL + QUICK, FedSA + FedFA_anchors): assert equal(run(m, few, lanes=1), run(m, few, lanes=3))

# ---- nets stay as they are

@pytest.mark.parametrize('method', [FedProto, FedSA], **names)
def test_asking_for_means_moves_nothing(few, method):
    "The pass afterwards is in eval mode: BatchNorm's statistics are those of the training alone."
    fed = fed_of(method, few)
    c = fed.worker.context(fed.clients[0], fed.server, {}, {}, {}, 0)
    net = fed.worker.net.train()
    before = {n: v.clone() for n, v in net.state_dict().items()}
    sent = ClassMeans().finish(c)
    assert same(before, net.state_dict()) and all(m.training for m in net.modules()) and not sent['class_means'].requires_grad
    assert sent['class_has'].tolist() == [bool((c.data.train.y == k).any()) for k in range(7)]

def test_fedfa_s_head_step_moves_the_head_alone(few):
    fed = fed_of(FedFA_anchors(lam=0, calibrate=.1), few, lr=1e-20, momentum=0., weight_decay=0.)
    start = {n: v.clone() for n, v in fed.server.items()}
    fed.one_round()
    moved = {n for n, v in fed.server.items() if 'running' not in n and 'tracked' not in n and not torch.allclose(v, start[n], atol=1e-6)}
    assert moved == {'head.weight', 'head.bias'}

def test_without_averaging_models_stay_at_home(few):
    fed = run(FedProto(average=False), few)
    up, whole = fed.history.rounds[-1]['up'], run(FedProto, few).history.rounds[-1]['up']
    assert up == 4*(7*128*4+7) < whole/3 and fed.is_personal() and not same(fed.state_of(0), fed.state_of(1))
    assert equal(run(FedProto(average=False, lam=0), few, stack=False), run(read_method('Local'), few, stack=False))

@pytest.mark.parametrize('method,key', [(FedProto, 'protos'), (QUICK, 'tgp')], ids=['FedProto', 'FedTGP'])
def test_by_prototype_names_the_nearest(few, method, key):
    fed = run(method + Method('near', ClassMeans(), ByPrototype()), few)
    x = few.clients[1].test.x
    said, U = fed.predict(x, client=1), fed.down[key]
    feat = fed.worker.copy(fed.server)(fed.worker.images(x)).feat
    D = torch.cdist(feat, U).masked_fill(~fed.down[f'{key}_had'], float('inf'))
    assert torch.equal(said.argmax(1), D.argmin(1)) and not said[:, 6].any()
    assert {r['view'] for r in fed.history.rows} >= {'personal', 'global'}

# ---- learning, refusals, sums

@pytest.fixture(scope='module')
def two_digits():
    "Two domains of skew-digits."
    s = load_suite('skew-digits', 'tiny')
    clients = s.clients[:2]
    return replace(s, clients=clients, tests={c.domain: s.tests[c.domain][:80] for c in clients})

@pytest.mark.parametrize('method', [FedProto, FPL, FedTGP(lam=1, epochs=30), FedSA, FedFA_anchors(lam=.01)], **names)
def test_a_few_rounds_end_above_chance(method, two_digits):
    how = dict(rounds=3, local_epochs=2, lr=.02, batch_size=32, device='cpu')
    score = Federation(method, small_conv(10, size=28, width=4), two_digits, **how).fit().summary()['AVG']
    print(method.name, score)
    assert score > 18

@pytest.mark.parametrize('bad,says', [
    (lambda: FedProto(lam=-1), 'ProtoPull: lam is -1'), (lambda: FPL(tau=0), 'tau is 0'), (lambda: FPL(contrast=float('nan')), 'contrast is nan'),
    (lambda: FedTGP(epochs=-1), 'epochs is -1'), (lambda: FedTGP(size=0), 'size is 0'), (lambda: FedTGP(cap=-1), 'cap is -1'),
    (lambda: FedSA(alpha=1.5), 'alpha is 1.5'), (lambda: FedSA(mu=float('inf')), 'mu is inf'), (lambda: FedFA_anchors(momentum=-.1), 'momentum is -0.1'),
    (lambda: FedFA_anchors(calibrate=-1), 'calibrate is -1'), (lambda: FedProto(lamb=1), 'did you mean lam')], ids=range(11))
def test_refused(bad, says):
    with pytest.raises(ValueError, match=says): bad()

def test_contradictions_name_both():
    with pytest.raises(Contradiction, match='ProtoPull builds on ClassMeans'): Method('x', ProtoPull())
    with pytest.raises(Contradiction, match='ClassMeans is there twice'): FedProto(average=False) + FPL
    with pytest.raises(Contradiction, match='SemanticAnchors is there twice'): FedSA + FedSA(mu=0)

def test_no_linear_head_no_nearest_prototype(few):
    net = small_conv(7, size=32, width=4)
    net.head = torch.nn.Sequential(net.head)
    with pytest.raises(ValueError, match='ByPrototype: the head is not linear'): run(FedProto + Method('near', ClassMeans(), ByPrototype()), few, net)

@pytest.mark.parametrize('text', ['FPL + DC', 'FedTGP + DC', 'FedSA + FedBN', 'FedFA-anchors(lam=.01) + FedProx', 'FPL + DEB', 'FedSA + RFedDis', 'FedProto + FedTGP(epochs=2) + FPL + FedSA + FedFA-anchors'])
def test_sums_run(few, text):
    s = few
    if 'DEB' in text: s = replace(few, clients=[replace(c, train=replace(c.train, boxes=torch.tensor([[4, 4, 28, 28]]).expand(len(c.train), 4).contiguous())) for c in few.clients])
    fed = run(read_method(text), s, lr=.01)
    assert all(v.isfinite().all() for v in fed.server.values()) and fed.history.rows
