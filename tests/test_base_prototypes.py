"FedProto, FPL, FedTGP, FedSA, FedFA-anchors: plain loops, limits, masks, absent clients, resuming, refusals."
from dataclasses import replace
from functools import partial
import pytest, torch
import plain_base_prototypes as plain
from feds import cut, equal, far, fed_of, halved, rounds_of, run, same, whole_and_resumed
from fedskew_nb.run.recipes import read_method
from fedskew_nb.core.method import Contradiction, Method
from fedskew_nb.nets.models import small_conv
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.checkpoint import load_nest, save_nest
from fedskew_nb.engine.history import Task
from fedskew_nb.engine.federation import Federation
from fedskew_nb.methods.baselines.prototypes import (
    FedFA_anchors, FedSA, FedTGP, balanced_distance, drawn_anchors, margin_loss, nearest_gaps, own_margin,
    unit_anchors, ByPrototype, ClassMeans, FedProto, FPL, ProtoPull, class_means, cluster_contrast, finch,
    first_neighbours, linked, means_of, prototype_cosines, to_prototypes)
from fedskew_nb.methods.baselines.average import FedAvg

QUICK = FedTGP(epochs=3)
FIVE = [FedProto, FPL, QUICK, FedSA, FedFA_anchors]
names = dict(ids=lambda m: m.name)

@pytest.fixture(scope='module')
def few():
    "Four clients, seven classes: client 0 lacks class 3, nobody has class 6."
    s = load_suite('emoji-pacs', 'tiny')
    s = replace(s, clients=[replace(c, train=c.train[c.train.y != 6]) for c in s.clients])
    s = cut(s, (17, 20, 25, 24), tests=8)
    first = s.clients[0]
    first = replace(first, train=first.train[first.train.y != 3])
    return halved(replace(s, clients=[first, *s.clients[1:]]))

def gen(seed=0): return torch.Generator().manual_seed(seed)

# ---- beside plain loops

SEVEN = dict(n_classes=7)
LOOPS = [
    (FedProto(lam=2.), partial(plain.fedproto, lam=2.), 1),
    (FPL(tau=.1), partial(plain.fpl, tau=.1), 1),
    (FedTGP(lam=3., epochs=2, lr=.05),
     partial(plain.fedtgp, lam=3., epochs_server=2, lr_server=.05, size_server=10, **SEVEN), 1),
    (FedSA(mu=.5, gamma=.7, alpha=.9),
     partial(plain.fedsa, lam=1., mu=.5, gamma=.7, alpha=.9, d=128, **SEVEN), 1),
    (FedFA_anchors, partial(plain.fedfa, lam=.1, momentum=.5, calibrate=1e-3, d=128, **SEVEN), 2)]

def near(a, b): return torch.allclose(a.cpu(), b.cpu(), atol=1e-9, rtol=0)

def same_prototypes(down, memory):
    "What the server says is what the plain loop remembers."
    if 'protos' in down: assert all(near(down['protos'][k], v) for k, v in memory.items())
    if 'tgp' in down: assert all(near(down['tgp'][k], v) for k, v in memory['A'].items())
    if 'semantic_protos' in down:
        assert down['semantic_protos_had'].nonzero().flatten().tolist() == sorted(memory['protos'])
        assert all(near(down['semantic_protos'][k], v) for k, v in memory['protos'].items())
    for key in {'semantic_anchors', 'feature_anchors'} & down.keys(): assert near(down[key], memory['A'])
    if 'clusters' not in down: return
    assert down['clusters_of'].tolist() == [k for k, ps in sorted(memory.items()) for _ in ps]
    for k, ps in memory.items():        # clusters have no order
        apart = torch.cdist(torch.stack(ps), down['clusters'][down['clusters_of'] == k])
        assert float(apart.min(1).values.max()) < 1e-9

@pytest.mark.parametrize('method,loop,epochs', LOOPS, ids=[m.name for m, *_ in LOOPS])
def test_three_rounds_of_two_clients_are_the_plain_loop(few, method, loop, epochs):
    net = small_conv(7, size=16, width=2, seed=0).double()
    want, memory = loop(net, few, epochs=epochs, lr=.02, size=8)
    how = dict(local_steps=None, local_epochs=epochs, batch_size=8, channels_last=False,
               lr=.02, momentum=plain.MOMENTUM, weight_decay=plain.DECAY, participation=plain.SHARE)
    fed = rounds_of(method, few, net, plain.ROUNDS, **how)
    for n, v in want.items():
        gap, size = float((fed.server[n].double()-v.double()).norm()), float(v.double().norm())
        assert gap <= 1e-9*max(1., size), n
    same_prototypes(fed.down, memory)

# ---- limits

OFF = [FedProto(lam=0), FPL(contrast=0, unbiased=0), FedTGP(lam=0), FedSA(lam=0, mu=0, gamma=0),
       FedFA_anchors(lam=0, calibrate=0)]

@pytest.fixture(scope='module')
def usual(few): return first_and_second(FedAvg, few, stack=False)

def first_and_second(method, suite, **kw):
    "The server after the first round, and the federation after the second."
    fed = fed_of(method, suite, **kw)
    fed.one_round()
    first = fed.server
    fed.one_round()
    return first, fed

@pytest.mark.parametrize('method', OFF, **names)
def test_off_is_fedavg_bit_for_bit(few, usual, method):
    assert equal(usual[1], rounds_of(method, few, stack=False))

@pytest.mark.parametrize('method', FIVE, **names)
def test_on_is_not(few, usual, method):
    "Prototypes come after the first round, anchors before."
    first, fed = first_and_second(method, few, stack=False)
    assert same(first, usual[0]) == (method in (FedProto, FPL, QUICK))
    assert not equal(usual[1], fed)

WHOLE = [FedProto, FPL, FedTGP(epochs=3, size=1000), FedSA, FedFA_anchors]

@pytest.mark.parametrize('method', WHOLE, **names)
def test_three_equal_clients_are_one(few, method):
    "A full batch: one step of all is one step of one, in both rounds."
    one = few.clients[1]
    alone, three = (replace(few, clients=[replace(one, id=k) for k in range(n)]) for n in (1, 3))
    net = small_conv(7, size=16, width=2, seed=0).double()
    how = dict(local_steps=1, batch_size=99, channels_last=False)
    a, b = (rounds_of(method, s, net, **how) for s in (alone, three))
    assert far({n: v for n, v in a.server.items() if v.is_floating_point()}, b.server) < 1e-9

# ---- the pieces

def sets(groups, X):
    "Which rows of X lie in which group."
    def rows(g): return frozenset(i for i, x in enumerate(X) if any(torch.equal(x, p) for p in g))
    return {rows(g) for g in groups}

@pytest.mark.parametrize('n', [2, 3, 4, 6, 9, 30])
def test_finch_is_scipys(n):
    X = torch.randn(n, 5, generator=gen(n)).double()
    mine, theirs = finch(X), plain.finch(list(X))
    assert sets([X[mine == k] for k in mine.unique()], X) == sets(theirs, X)
    assert mine.bincount().min() >= 2 and len(means_of(X, mine)) == len(theirs)

def test_finch_of_few():
    assert finch(torch.zeros(0, 5)).tolist() == []
    assert finch(torch.ones(1, 5)).tolist() == [0]

def test_two_levels_of_finch():
    "Four pairs in two far groups: the pairs first, then the groups, and not all in one."
    angle = torch.tensor([0., 1, 10, 11, 90, 91, 100, 101]).deg2rad()
    X = torch.stack([angle.cos(), angle.sin()], 1)
    assert linked(first_neighbours(X)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert finch(X).tolist() == [0]*4+[1]*4

P, OF = torch.randn(3, 4, generator=gen()), torch.tensor([0, 0, 2])          # three vectors, of two classes

@pytest.mark.parametrize('loss', [
    lambda f, y: cluster_contrast(f, y, P, OF),
    lambda f, y: margin_loss(f, y, torch.zeros(3, 4), 1.),
    lambda f, y: to_prototypes(f, y, P, torch.tensor([True, False, True]))])
def test_features_of_length_zero_have_a_gradient(loss):
    f = torch.zeros(3, 4, requires_grad=True)
    value = loss(f, torch.tensor([0, 1, 2]))
    g, = torch.autograd.grad(value, f)
    assert value.isfinite() and g.isfinite().all()

def test_classes_without_vectors():
    f, zeros = torch.ones(3, 4), torch.zeros(3, dtype=torch.long)
    assert cluster_contrast(torch.zeros(3, 4), torch.tensor([1, 1, 1]), P, OF) == 0
    alone = cluster_contrast(f, zeros, P[:2], OF[:2])                        # nothing to contrast with
    assert float(alone) == pytest.approx(0, abs=1e-6)
    assert nearest_gaps(P[:1]).tolist() == [float('inf')] and own_margin(P[:1]) == 0

def test_a_vector_is_most_like_itself(): assert prototype_cosines(P, P).diagonal().allclose(torch.ones(3))

WIDTHS = [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)]

@pytest.mark.parametrize('dtype,out', WIDTHS)
def test_class_means_keep_the_width_of_floats(dtype, out):
    means, *_ = class_means(torch.ones(2, 3, dtype=dtype), torch.tensor([0, 1]), 3)
    assert means.dtype == out

def test_first_anchors():
    like = torch.zeros(1, 6)
    A = unit_anchors(3, 6, like)
    assert torch.equal(A @ A.T, torch.eye(6)) and not torch.equal(A, unit_anchors(4, 6, like))
    assert unit_anchors(3, 9, like).norm(dim=1).allclose(torch.ones(9))
    assert (drawn_anchors(0, 4, like) >= 0).all()
    assert torch.equal(drawn_anchors(0, 4, like), drawn_anchors(0, 4, like))

def test_each_class_has_one_vote():
    y = torch.tensor([0, 0, 0, 1])
    assert float(balanced_distance(torch.ones(4, 2), y, torch.zeros(2, 2))) == 2

# ---- masks, absent clients, one client, batches of one

def test_a_class_that_nobody_has(few):
    fed = run(FedProto + FPL + QUICK, few)
    d = fed.down
    assert d['protos_had'].tolist() == [True]*6+[False]
    assert not d['tgp_had'][6] and 6 not in d['clusters_of']

def test_the_anchor_of_a_class_that_nobody_has_stays(few):
    drawn = drawn_anchors(0, 7, torch.zeros(1, 128))
    now = rounds_of(FedSA, few).down['semantic_anchors']
    assert torch.equal(now[6], drawn[6].to(now))
    unit = rounds_of(FedFA_anchors, few).down['feature_anchors'][6]
    assert torch.allclose(unit.sum(), torch.tensor(1.))

@pytest.mark.parametrize('method', FIVE, **names)
def test_absent_clients(few, method):
    "Two of four take part: what the others remember stays, and what nobody sends now is kept."
    fed = fed_of(method, few, participation=.5, rounds=3)
    for _ in range(3):
        before, was = dict(fed.states), fed.down
        fed.one_round()
        gone = {c.id for c in few.clients}-set(fed.history.rounds[-1]['participants'])
        assert len(gone) == 2 and all(fed.states[k] is before[k] for k in gone)
        for had in (k for k in was if k.endswith('had')):      # nothing is forgotten
            assert (fed.down[had] | ~was[had]).all()
    if method is FedSA:
        went = {k for r in fed.history.rounds for k in r['participants']}
        assert set(fed.memory['SemanticAnchors']['margins']) == went

@pytest.mark.parametrize('method', FIVE, **names)
def test_one_client_and_batches_of_one(few, method):
    one = replace(few, clients=[replace(few.clients[1], id=0, train=few.clients[1].train[:3])])
    run(method, one, batch_size=1, local_steps=3)

@pytest.mark.parametrize('method', FIVE, **names)
def test_a_resumed_run_is_the_same(few, method, tmp_path):
    whole, rest = whole_and_resumed(partial(fed_of, method, few), tmp_path/'c')
    assert equal(whole, rest) and whole.history == rest.history

def test_what_a_checkpoint_gives_lies_as_it_did(tmp_path):
    "Products differ in their last bit by where their factors lie, and a file may begin a tensor anywhere."
    save_nest({f't{n}': torch.ones(n) for n in (3, 5, 7, 640)}, tmp_path/'n')
    assert all(t.data_ptr()%64 == torch.ones(1).data_ptr()%64 == 0 for t in load_nest(tmp_path/'n').values())

@pytest.mark.parametrize('method', [FPL+QUICK, FedSA+FedFA_anchors], **names)
def test_lanes_change_no_bit(few, method):
    assert equal(rounds_of(method, few, lanes=1), rounds_of(method, few, lanes=3))

# ---- nets stay as they are

@pytest.mark.parametrize('method', [FedProto, FedSA], **names)
def test_asking_for_means_moves_nothing(few, method):
    "The pass afterwards is in eval mode: BatchNorm's statistics are those of the training alone."
    fed = fed_of(method, few)
    c = fed.worker.context(Task(fed.clients[0], fed.server))
    net = fed.worker.net.train()
    before = {n: v.clone() for n, v in net.state_dict().items()}
    sent = ClassMeans().finish(c)
    assert same(before, net.state_dict()) and all(m.training for m in net.modules())
    assert not sent['class_means'].requires_grad
    assert sent['class_has'].tolist() == [bool((c.data.train.y == k).any()) for k in range(7)]

def test_fedfa_s_head_step_moves_the_head_alone(few):
    fed = fed_of(FedFA_anchors(lam=0, calibrate=.1), few, lr=1e-20, momentum=0., weight_decay=0.)
    start = {n: v.clone() for n, v in fed.server.items()}
    fed.one_round()
    moved = {n for n, v in fed.server.items() if not torch.allclose(v, start[n], atol=1e-6)}
    assert {n for n in moved if 'running' not in n and 'tracked' not in n} == {'head.weight', 'head.bias'}

def test_without_averaging_models_stay_at_home(few):
    def up(fed): return fed.history.rounds[-1]['up']
    fed = rounds_of(FedProto(average=False), few)
    assert up(fed) == 4*(7*128*4+7) < up(rounds_of(FedProto, few))/3
    assert fed.is_personal() and not same(fed.state_of(0), fed.state_of(1))

def test_without_averaging_and_pull_it_is_local(few):
    alone = rounds_of(read_method('Local'), few, stack=False)
    assert equal(rounds_of(FedProto(average=False, lam=0), few, stack=False), alone)

def nearest(method, name='near'): return Method(name, *method.mechanisms, ByPrototype())

SENDERS = [(FedProto, 'protos'), (QUICK, 'tgp'), (FedSA, 'semantic_protos')]

@pytest.mark.parametrize('method,key', SENDERS, ids=['FedProto', 'FedTGP', 'FedSA'])
def test_by_prototype_names_the_nearest(few, method, key):
    fed = run(nearest(method), few)
    x = few.clients[1].test.x
    said, U = fed.predict(x, client=1), fed.down[key]
    feat = fed.worker.copy(fed.server)(fed.worker.images(x)).feat
    D = torch.cdist(feat, U).masked_fill(~fed.down[f'{key}_had'], float('inf'))
    assert torch.equal(said.argmax(1), D.argmin(1)) and not said[:, 6].any()
    assert {r['view'] for r in fed.history.rows} >= {'personal', 'global'}
    assert not torch.equal(said, run(method, few).predict(x))

def test_by_prototype_wants_one_prototype_a_class():
    says = 'ByPrototype builds on SendsPrototypes, which is missing beside ClassMeans and ClusterPull'
    with pytest.raises(Contradiction, match=says): read_method('FPL + ByPrototype')
    assert read_method('FedSA + ByPrototype').each('prepare') == [ByPrototype()]

@pytest.mark.parametrize('off', [FedProto(lam=0), FedTGP(lam=0), FedSA(lam=0, mu=0, gamma=0)], **names)
def test_by_prototype_says_that_none_came(few, off):
    with pytest.raises(ValueError, match='ByPrototype: no prototypes came'): run(nearest(off), few)

# ---- learning, refusals, sums

@pytest.fixture(scope='module')
def two_digits():
    "Two domains of skew-digits."
    s = load_suite('skew-digits', 'tiny')
    clients = s.clients[:2]
    return replace(s, clients=clients, tests={c.domain: s.tests[c.domain][:80] for c in clients})

LEARN = [FedProto, FPL, FedTGP(lam=1, epochs=30), FedSA, FedFA_anchors(lam=.01)]

@pytest.mark.parametrize('method', LEARN, **names)
def test_a_few_rounds_end_above_chance(method, two_digits):
    how = dict(rounds=3, local_epochs=1, lr=.02, batch_size=16, device='cpu')
    score = Federation(method, small_conv(10, size=28, width=4), two_digits, **how).fit().summary()['AVG']
    print(method.name, score)
    assert score > 18

@pytest.mark.parametrize('bad,says', [
    (lambda: FedProto(lam=-1), 'ProtoPull: lam is -1'),
    (lambda: FPL(tau=0), 'tau is 0'),
    (lambda: FPL(contrast=float('nan')), 'contrast is nan'),
    (lambda: FedTGP(epochs=-1), 'epochs is -1'),
    (lambda: FedTGP(size=0), 'size is 0'),
    (lambda: FedTGP(cap=-1), 'cap is -1'),
    (lambda: FedSA(alpha=1.5), 'alpha is 1.5'),
    (lambda: FedSA(mu=float('inf')), 'mu is inf'),
    (lambda: FedFA_anchors(momentum=-.1), 'momentum is -0.1'),
    (lambda: FedFA_anchors(calibrate=-1), 'calibrate is -1'),
    (lambda: FedProto(lamb=1), 'did you mean lam')], ids=range(11))
def test_refused(bad, says):
    with pytest.raises(ValueError, match=says): bad()

def test_contradictions_name_both():
    with pytest.raises(Contradiction, match='ProtoPull builds on ClassMeans'): Method('x', ProtoPull())
    with pytest.raises(Contradiction, match='ClassMeans is there twice'): FedProto(average=False) + FPL
    with pytest.raises(Contradiction, match='SemanticAnchors is there twice'): FedSA + FedSA(mu=0)

def test_no_linear_head_no_nearest_prototype(few):
    net = small_conv(7, size=16, width=4)
    net.head = torch.nn.Sequential(net.head)
    says = 'ByPrototype: the head is not linear'
    with pytest.raises(ValueError, match=says): run(nearest(FedProto), few, net)

SUMS = ['FPL + DC', 'FedTGP + DC', 'FedSA + FedBN', 'FedFA-anchors(lam=.01) + FedProx', 'FPL + DEB',
        'FedSA + RFedDis', 'FedSA + FedBN + ByPrototype',
        'FedProto + FedTGP(epochs=2) + FPL + FedSA + FedFA-anchors']

def boxed(d): return replace(d, boxes=torch.tensor([[2, 2, 14, 14]]).repeat(len(d), 1))

@pytest.mark.parametrize('text', SUMS)
def test_sums_run(few, text):
    suite = replace(few, clients=[replace(c, train=boxed(c.train)) for c in few.clients])
    fed = run(read_method(text), suite if 'DEB' in text else few, lr=.01)
    assert all(v.isfinite().all() for v in fed.server.values()) and fed.history.rows
