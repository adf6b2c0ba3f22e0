"F2DC: an independent step from the equations, limits, presets, weights, odd federations, bad input, views."

import copy, warnings
from dataclasses import replace
from itertools import chain
from types import SimpleNamespace
import pytest, torch
import torch.nn.functional as F
from torch import nn
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.core.method import Contradiction, Method
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.net import Net
from fedskew_nb.core.seeding import generator
from fedskew_nb.core.context import ClientContext, ServerContext, Upload
from fedskew_nb.engine.reading import Where
from fedskew_nb.engine.server import weights_of
from fedskew_nb.analysis.probes import measure
from fedskew_nb.analysis.probes import answers
from fedskew_nb.nets.costs import flops, payload
from fedskew_nb.nets.models import alexnet_bn, gap, n_params, resnet10, seq, small_conv
from fedskew_nb.data.load import load_suite
from fedskew_nb.methods.baselines.average import FedAvg, FedProx
from fedskew_nb.methods.f2dc.method import DC as AVERAGED_DC, DFC, DFD, F2DC as AVERAGED
from fedskew_nb.methods.f2dc.probes import kept_share
from fedskew_nb.methods.f2dc.probes import f2dc_measures, feature_answers, mask_viewer, painted, mask_parts
from fedskew_nb.methods.f2dc.mask import (
    DomainAware, domain_weights, bottleneck, correction, decouple, rF, separation, wrong_label,
    brightness_scores, gumbel_mask, logistic)
from fedskew_nb.methods.baselines.personal import FedBN
from fedskew_nb.core.seeding import seeded
from feds import equal, fed_of, first, images, labels, rounds_of, run, same, scores_alike, small, states
from feds import trained_once
from plain_f2dc import Backbone, PlainF2DC, discrepancy_weights, run_rounds

# most tests are about the paper's text, in which the modules stay
F2DC, DC = AVERAGED(preset='paper').named('F2DC'), AVERAGED_DC(preset='paper').named('DC')

# ---- tools

@pytest.fixture(scope='module')
def three(suite):
    return first(suite, 3)

@pytest.fixture(scope='module')
def once(suite):
    return trained_once(suite)

@pytest.fixture(scope='module')
def once_two(pair):
    return trained_once(pair)

def local(n):
    return n.startswith('neck')

def backbone(state):
    return {n: v for n, v in state.items() if not local(n)}

def up(id, n):
    return Upload(id, n, f'd{id}', {})

def server(sizes, domains=None, ids=None):
    return ServerContext(
        {},
        ids or list(range(len(sizes))),
        dict(enumerate(sizes)),
        domains or {i: f'd{i}' for i in range(len(sizes))},
        0,
        2,
        n_classes=7,
    )

def client(net, round=0):
    return ClientContext(0, net, None, {}, {}, {}, 0, round, 9, torch.device('cpu'), 0.1)

def terms(method, net, x, y, round=0):
    "Loss terms of one training step of `net`, and the answer."
    c = client(net, round)
    out = method.run_forward(c, dict(x=x, y=y))
    return method.terms(c, dict(x=x, y=y), out), out

# ---- 1 an independent step from the paper's equations

PLACES = {'r_B': 'body', 'A_D': 'neck.A_D', 'A_C': 'neck.A_C', 'm': 'neck.m', 'r_F': 'pool', 'h': 'head'}

def ours(name):
    place, _, rest = name.partition('.')
    return f'{PLACES[place]}.{rest}'

def twins(dtype, body='own', method=F2DC):
    "(our net, the plain one) with equal weights; m and A_C move f, as after some training."
    net = dict(
        own=lambda: Net(Backbone(12), gap(), nn.Linear(12, 7)),
        small_conv=small,
        resnet10=lambda: resnet10(7, width=4),
    )[body]
    with seeded(1):
        net = method.adapt(net()).to(dtype).train()
    C = net.neck.m.in_features
    plain = (
        PlainF2DC(
            copy.deepcopy(net.body),
            C,
            max(8, C // 8),
            7,
            copy.deepcopy(net.head),
            copy.deepcopy(net.pool) if body == 'small_conv' else None,
        )
        .to(dtype)
        .train()
    )
    plain.load_state_dict({n: net.state_dict()[ours(n)] for n in plain.state_dict()})
    return net, plain

def logit(u):
    assert 0 < float(u.min()) < float(u.max()) < 1
    return u.log() - (1 - u).log()

def compare_step(body, dtype, eps, method=F2DC, memory=torch.contiguous_format, two=False, **kw):
    "Terms, logits and all gradients of one step, ours against plain; what both were."
    net, plain = twins(dtype, body, method)
    net, plain, x, y = (
        net.to(memory_format=memory),
        plain.to(memory_format=memory),
        images(dtype=dtype).contiguous(memory_format=memory),
        labels(),
    )
    net.neck.generator = generator('noise')
    got, out = terms(method, net, x, y)
    sum(got.values()).backward()
    gen = generator('noise')
    u, v = (
        torch.rand(out.fmap.shape, generator=gen).to(dtype) for _ in range(2)
    )  # the same numbers, drawn again
    want = plain.terms(x, y, logit(u), logit(v) if two else torch.zeros_like(v), **kw)
    sum(want.values()).backward()
    assert got.keys() == want.keys() == {'task', 'sep', 'dis', 'correct'}
    for k in want:
        assert abs(float(got[k].detach() - want[k].detach())) <= eps * max(1, abs(float(want[k].detach()))), k
    grads = dict(net.named_parameters())
    for n, p in plain.named_parameters():
        g, w = grads[ours(n)].grad.double(), p.grad.double()
        assert float((g - w).norm()) <= eps * float(w.norm()), (n, float((g - w).norm() / w.norm()))
        assert float(w.norm()) > 0, n
    assert len(grads) == len(list(plain.named_parameters()))
    for n, w in plain.state_dict().items():
        assert torch.allclose(net.state_dict()[ours(n)].double(), w.double(), rtol=eps, atol=eps), (
            n
        )  # BatchNorm statistics
    return got

@pytest.mark.parametrize('body', ['own', 'small_conv', 'resnet10'])
@pytest.mark.parametrize(
    'dtype,eps', [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=['float64', 'float32']
)
def test_step_equals_the_papers_equations(body, dtype, eps):
    compare_step(body, dtype, eps)

@pytest.mark.parametrize('body', ['own', 'small_conv'])
def test_step_equals_the_papers_equations_in_channels_last(body):
    compare_step(body, torch.float32, 1e-4, memory=torch.channels_last)

@pytest.mark.parametrize(
    'hp,kw',
    [
        (dict(sigma=0.5, tau=0.3), dict(sigma=0.5, tau=0.3)),
        (dict(DFD__lam=0.1, DFC__lam=2.0), dict(lam1=0.1, lam2=2.0)),
    ],
    ids=str,
)
def test_options_equal_the_papers_equations(hp, kw):
    compare_step('own', torch.float64, 1e-9, F2DC(**hp), **kw)

def test_noise_shifts_both_branches_or_one():
    "Only the difference of the two Gumbel numbers matters: g_a = g_b + logit u gives the same mask."
    from plain_f2dc import mask

    S, u, z = (torch.rand(99, generator=generator(i), dtype=torch.float64) for i in range(3))
    assert torch.allclose(mask(4 * S - 2, z + logit(u), z, 0.1), gumbel_mask(4 * S - 2, 0.1, u), atol=1e-12)

def test_two_rounds_equal_algorithm_1(three):
    "Local modules, DaA weights, BatchNorm statistics: the federation against a loop, in float64."
    with seeded(0):
        net = Net(Backbone(8), gap(), nn.Linear(8, 7)).double()
    fed = fed_of(
        F2DC,
        three,
        net,
        rounds=2,
        local_steps=None,
        local_epochs=1,
        batch_size=16,
        momentum=0.9,
        weight_decay=1e-4,
        channels_last=False,
    )
    plain = PlainF2DC(copy.deepcopy(net.body), 8, 8, 7, copy.deepcopy(net.head)).double()
    plain.load_state_dict({n: fed.server[ours(n)] for n in plain.state_dict()})
    mean, std = (torch.tensor(v, dtype=torch.float64).view(1, 3, 1, 1) for v in (three.mean, three.std))
    clients = [((c.train.x.double() / 255 - mean) / std, c.train.y) for c in three.clients]
    streams = {}

    def noise(r, k, shape):
        g = streams.setdefault((r, k), generator(0, r, k, 'all', 'net.neck'))
        u = torch.rand(shape, generator=g).double()
        return logit(u), torch.zeros_like(u)

    def batches(r, k):
        return torch.randperm(len(clients[k][1]), generator=generator(0, r, k, 'all', 'order')).split(16)

    want = run_rounds(
        plain, clients, lambda n: n.startswith(('A_D', 'A_C', 'm.')), 2, batches, noise, 3, 7, 0.05, 0.9, 1e-4
    )
    start = {n: v.clone() for n, v in fed.server.items()}
    fed.fit()
    for c, w in zip(three.clients, want):
        got = fed.state_of(c.id)
        assert got.keys() == {ours(n) for n in w}
        for n, v in w.items():
            assert float((got[ours(n)].cpu().double() - v.double()).norm()) <= 1e-9 * max(
                1.0, float(v.double().norm())
            ), n
    assert (
        max(float((fed.server[n] - start[n]).abs().max()) for n in start if n.endswith('weight')) > 1e-3
    )  # it did train

# ---- 2 limits

class Silent(Mechanism):
    "A_C answers 0 and goes on doing so."
    needs = (DFC,)

    def adapt(self, net):
        nn.init.zeros_(net.neck.A_C[-1].weight)
        return net

    def phases(self, c):
        return [('all', 1, lambda n: not n.startswith('neck.A_C'))]

LIMITS = dict(
    DFD=Method('x', DFD(lam=0, share=False)),
    DFD_DFC=Method('x', DFD(lam=0, share=False), DFC(lam=0), Silent()),
    by_size=Method('x', DFD(lam=0, share=False), DomainAware(by_size=True)),
)

@pytest.mark.parametrize('limit', LIMITS)
@pytest.mark.parametrize('protocol', [None, 'fdse'])
def test_without_losses_and_with_a_neck_that_passes_it_is_fedavg_bit_for_bit(once, limit, protocol):
    plain, fed = (once(m, protocol=protocol, stack=False) for m in (FedAvg, LIMITS[limit]))
    assert same(plain.server, backbone(fed.server)) and any(map(local, fed.server))
    assert [r['loss'] for r in plain.history.rounds] == [r['loss'] for r in fed.history.rounds]
    score = lambda f, path: {
        r['domain']: r['correct'] for r in f.history.rows if (r['view'], r['path']) == ('global', path)
    }
    assert score(plain, '') == score(fed, 'client') == score(fed, 'backbone')

def test_the_limit_does_draw_noise(suite):
    fed = fed_of(LIMITS['DFD'], suite, stack=False)
    drawn = []
    rand = fed.net.neck.rand

    def noted(*a):
        drawn.append(rand(*a))
        return drawn[-1]

    fed.net.neck.rand = noted
    fed.fit(1)
    assert len(drawn) >= 8 and not torch.equal(drawn[0], drawn[1])

def test_the_losses_matter(once):
    plain, dc, f2dc = map(once, (FedAvg, DC, F2DC))
    assert not same(plain.server, backbone(dc.server)) and not equal(dc, f2dc)

@pytest.mark.parametrize('net', [small(), resnet10(7, width=4), alexnet_bn(7, width=4)], ids=lambda n: n.name)
def test_a_corrector_that_answers_0_leaves_the_plain_logits(net):
    x, adapted = images(4), F2DC.adapt(net).eval()
    net = net.eval()
    assert not torch.equal(net(x).logits, adapted(x).logits)
    nn.init.zeros_(adapted.neck.A_C[-1].weight)
    out = adapted(x)
    assert torch.equal(net(x).logits, out.logits) and torch.equal(net(x).fmap, out.aux['f'])

def test_the_backbone_path_is_the_plain_backbone():
    net, x = small().eval(), images(4)
    adapted = F2DC.adapt(net).eval()
    assert torch.equal(F2DC.union('predict', adapted, adapted(x))['backbone'], net(x).logits.softmax(1))

def test_surgery_leaves_the_first_weights_and_the_given_net_alone():
    net = small()
    before = copy.deepcopy(net.state_dict())
    adapted = F2DC.adapt(net, seed=3)
    assert same(before, net.state_dict()) and same(before, backbone(adapted.state_dict()))
    assert not same(adapted.state_dict(), F2DC.adapt(net, seed=4).state_dict())

def test_two_evaluations_are_bit_identical(suite):
    assert scores_alike(run(F2DC, suite, rounds=1))

def test_what_stays_and_what_travels(suite):
    fed, plain = run(F2DC, suite, rounds=1), run(FedAvg, suite, rounds=1)
    kept = fed.method.kept(fed.net)
    assert kept == fed.kept == {n for n in fed.net.state_dict() if local(n)} and kept
    for c, d in zip(suite.clients, suite.clients[1:]):
        a, b = fed.state_of(c.id), fed.state_of(d.id)
        assert same(backbone(a), backbone(b)) and all(
            not torch.equal(a[n], b[n]) for n in kept if n.endswith('weight')
        ), (c, d)
    for part in ('A_D', 'A_C', 'm'):
        assert any(n.startswith(f'neck.{part}.') for n in kept)
    for k in ('up', 'down'):
        assert [r[k] for r in fed.history.rounds] == [r[k] for r in plain.history.rounds]
    assert fed.history.rounds[0]['up'] == 4 * sum(
        v.numel() * 4 for n, v in fed.server.items() if not local(n) and v.is_floating_point()
    )
    assert not any(map(local, chain(*(names for _, rule, names in fed.groups if rule.fn.__name__ != 'keep'))))

def test_the_server_keeps_the_first_modules_and_a_newcomer_gets_them(suite):
    fed = fed_of(F2DC, suite, participation=0.5, rounds=1)
    first = {n: v.clone() for n, v in fed.server.items()}
    fed.fit()
    went = fed.history.rounds[0]['participants']
    assert 0 < len(went) < 4
    assert all(torch.equal(first[n], fed.server[n]) for n in fed.kept)
    for c in suite.clients:
        assert (c.id not in went) == same(
            first, backbone(first) | {n: v for n, v in fed.state_of(c.id).items() if local(n)}
        )

# ---- 3 presets and options

RELEASED, MEAN = AVERAGED(preset='released'), AVERAGED.named('averaged')

def hps(method):
    return {f"{d['mechanism']}.{k}": v for d in method.spec() for k, v in d.get('hp', {}).items()}

def differs(a, b):
    a, b = hps(a), hps(b)
    return {k for k in a if a[k] != b[k]}

def test_presets_differ_in_what_they_say():
    assert differs(F2DC, AVERAGED) == {'DFD.share'} and differs(DC, AVERAGED_DC) == {'DFD.share'}
    assert differs(F2DC, RELEASED) == {
        'DFD.share',
        'DFD.test_noise',
        'DFD.eps',
        'DFD.hidden',
        'DFD.depth',
        'DomainAware.by_size',
    }
    h = hps(F2DC)
    assert [
        h[k] for k in ('DFD.sigma', 'DFD.tau', 'DFD.lam', 'DFC.lam', 'DomainAware.alpha', 'DomainAware.beta')
    ] == [0.1, 0.06, 0.8, 1.0, 1.0, 0.4]

def test_shared_trains_as_the_paper_and_differs_at_the_server_only(suite):
    paper, shared = fed_of(F2DC, suite), fed_of(AVERAGED, suite)
    for c in suite.clients:
        a, b = paper.train_client(c), shared.train_client(c)
        assert same(a.upload.state, b.upload.state) and a.terms == b.terms
    paper.fit(1)
    shared.fit(1)
    assert same(backbone(paper.server), backbone(shared.server)) and not equal(paper, shared)

def test_released_averages_the_modules(suite):
    fed = run(RELEASED, suite, rounds=1)
    assert not fed.kept and not any(fed.own.values())
    assert fed.history.rounds[0]['up'] == 4 * sum(
        v.numel() * 4 for v in fed.server.values() if v.is_floating_point()
    )
    other = fed_of(RELEASED, suite)
    sent = [other.train_client(c).upload for c in suite.clients]
    n = 'neck.A_D.0.weight'
    w = torch.tensor([u.n for u in sent], dtype=torch.float64)
    w /= w.sum()
    assert torch.allclose(fed.server[n], sum(float(p) * u.state[n] for p, u in zip(w, sent)), atol=1e-7)
    assert fed.model() is not None  # there is one model for all

def test_released_weighs_by_size(suite):
    fed, ups = fed_of(RELEASED, suite), [up(c.id, len(c.train)) for c in suite.clients]
    srv = server([u.n for u in ups])
    n = torch.tensor([u.n for u in ups], dtype=torch.float64)
    assert torch.equal(weights_of(fed.method, srv, ups), n / n.sum())
    assert torch.allclose(weights_of(F2DC, srv, ups), domain_weights(n, 4, 7)) and not torch.allclose(
        domain_weights(n, 4, 7), n / n.sum(), atol=0.01
    )

def test_released_is_noisy_at_test_and_yet_reproducible():
    x, noisy = images(), RELEASED.adapt(small()).eval()
    calm = AVERAGED(preset='released', test_noise=False).adapt(small()).eval()
    assert same(noisy.state_dict(), calm.state_dict())
    a = noisy(x)
    assert torch.equal(a.logits, noisy(x).logits) and not torch.allclose(a.logits, calm(x).logits)
    assert not torch.equal(a.aux['M'], calm(x).aux['M']) and not torch.equal(
        *(noisy(x[:1].repeat(2, 1, 1, 1)).aux['M'])
    )  # other numbers for each image
    before = torch.random.get_rng_state()
    noisy(x)
    assert torch.equal(before, torch.random.get_rng_state())

def test_noise_at_test_is_the_same_for_every_batch():
    "The release draws anew for each; a preset keeps a score that can be repeated."
    neck = RELEASED.adapt(small()).eval().neck
    S = torch.zeros(2, 16, 4, 4)
    a = neck.mask(S)
    assert torch.equal(a, neck.mask(S.clone())) and not torch.equal(a, neck.train().mask(S))

def test_no_preset_changes_the_clamp_of_norms():
    "A part a millionth as long as the other: PyTorch's cosine is 1, ours a thousandth, in all presets."
    x = images()
    net = RELEASED.adapt(small()).train()
    net.neck.generator = generator(0)
    out = net(x)
    l = out.aux['l']
    y = labels()
    l['minus'] = l['plus'].detach() * 1e-6
    terms = RELEASED.terms(SimpleNamespace(round=1), dict(x=x, y=y), out)
    assert float(terms['sep'].detach()) == pytest.approx(0.8 * 1e-3 / 0.06, rel=1e-2)

def test_released_has_the_eps_form_of_the_mask():
    neck, plain = (m.adapt(small()).neck.eval() for m in (F2DC(eps=1e-8), F2DC))
    S = torch.linspace(-40, 40, 161)
    a, b = ((s.sigmoid() + 1e-8).log() for s in (S, -S))
    assert torch.allclose(
        neck.mask(S), torch.stack([a, b]).div(0.1).softmax(0)[0], atol=1e-6
    ) and torch.equal(plain.mask(S), (S / 0.1).sigmoid())
    assert RELEASED.adapt(small()).neck.dfd.eps == 1e-8
    S = torch.tensor([30.0], requires_grad=True)
    slope = lambda eps: torch.autograd.grad(gumbel_mask(S, 5.0, eps=eps), S)[0].item()
    assert slope(1e-8) < 1e-6 and slope(0.0) == pytest.approx(
        5.0e-4, rel=0.08
    )  # the eps kills the gradient of a sure score

def test_released_has_three_convolutions_of_width_50():
    with seeded(0):
        net = Net(nn.Conv2d(3, 512, 8, 8), gap(), nn.Linear(512, 7))
    neck = RELEASED.adapt(net).neck
    convs = [m for m in neck.A_D if isinstance(m, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels) for c in convs] == [(512, 50), (50, 50), (50, 512)]
    assert n_params(neck.A_D) == n_params(neck.A_C) == 483_500 and n_params(neck.m) == 3_591
    assert n_params(neck) == 970_591

@pytest.mark.parametrize(
    'hidden,depth,want',
    [(None, 2, 589_952), (64, 2, 589_952), (32, 2, 294_976), (50, 3, 483_500), (64, 3, 626_944)],
)
def test_parameter_counts(hidden, depth, want):
    assert n_params(bottleneck(512, hidden, depth)) == want

@pytest.mark.parametrize(
    'k,v',
    [
        ('warm', 3),
        ('Q', 2),
        ('by_size', True),
        ('test_noise', True),
        ('eps', 1e-8),
        ('share', True),
        ('hidden', 9),
        ('depth', 3),
        ('sigma', 0.3),
        ('tau', 0.5),
        ('alpha', 0.5),
        ('beta', 0.1),
    ],
)
def test_every_option_is_a_named_hyperparameter(k, v):
    m = F2DC(**{k: v})
    assert len(differs(F2DC, m)) == 1 and m.name == f'F2DC({k}={v!r})'

def test_a_lambda_carries_its_owner():
    with pytest.raises(ValueError, match='DFC__lam or DFD__lam|DFD__lam or DFC__lam'):
        F2DC(lam=0)
    assert differs(F2DC, F2DC(DFD__lam=0)) == {'DFD.lam'}

def test_noise_of_eq_3_and_gumbel_noise_keep_other_shares():
    S = torch.full((200_000,), 9.0).log()
    u, v = (torch.rand(len(S), generator=generator(i)) for i in range(2))
    share = lambda *noise: float((gumbel_mask(S, 0.1, *noise) > 0.5).float().mean())
    assert (
        abs(share(u) - 0.9) < 0.003
        and abs(share(u, v) - 0.8160) < 0.003
        and kept_share(torch.tensor(0.9)).item() == pytest.approx(0.8160, abs=1e-4)
    )

def test_the_wrong_label_is_the_heads():
    x, y = images(24), labels(24)
    net = F2DC.adapt(small()).train()
    net.neck.generator = generator(0)
    out = net(x)
    a, b = (wrong_label(l, y) for l in (out.logits, out.aux['m']['minus']))
    assert not torch.equal(a, b)
    dis, m = F2DC.terms(client(net), dict(x=x, y=y), out)['dis'], out.aux['m']
    assert torch.equal(dis, 0.8 * (F.cross_entropy(m['plus'], y) + F.cross_entropy(m['minus'], a)))

def test_warm_grows_lambda_1_over_rounds():
    x, y, net = images(), labels(), F2DC.adapt(small()).train()

    def row(method, round):
        net.neck.generator = generator(0)
        t, _ = terms(method, net, x, y, round)
        return [float(t[k].detach()) if k in t else 0.0 for k in ('sep', 'dis', 'correct')]

    full = row(F2DC, 0)
    for r, share in enumerate((0, 0.5, 1, 1)):
        assert row(F2DC(warm=2), r) == pytest.approx([share * full[0], share * full[1], full[2]], rel=1e-4)

def test_warm_runs(pair):
    assert (
        'sep' not in (fed := run(F2DC(warm=1), pair)).history.rounds[0]['terms']
        and 'sep' in fed.history.rounds[1]['terms']
    )

def weighed(method, ups, sizes, domains=None):
    return method.one('weights', server(sizes, domains, [u.id for u in ups]), ups)

def test_Q_is_counted_or_given():
    sizes = (100, 200, 300, 400)
    ups = [up(i, n) for i, n in enumerate(sizes)]
    two = {0: 'a', 1: 'a', 2: 'b', 3: 'b'}
    assert torch.equal(weighed(F2DC, ups, sizes), domain_weights(sizes, 4, 7))
    assert torch.equal(weighed(F2DC, ups, sizes, two), domain_weights(sizes, 2, 7))
    assert torch.equal(weighed(F2DC(Q=3), ups, sizes, two), domain_weights(sizes, 3, 7))

# ---- 4 domain-aware weights

@pytest.mark.parametrize(
    'n,C,want',
    [
        ((100, 200, 300, 400), 7, (0.228560, 0.248622, 0.259989, 0.262829)),
        ((50, 50, 100, 800), 10, (0.233501, 0.233501, 0.245298, 0.287700)),
    ],
)
def test_weights_by_hand(n, C, want):
    p = domain_weights(n, 4, C)
    assert p.tolist() == pytest.approx(want, abs=1e-6) and p.dtype == torch.float64
    assert p.tolist() == pytest.approx(discrepancy_weights(n, 4, C), abs=1e-12)

def test_weights_of_the_papers_pacs_split():
    n = [400] * 2 + [492] * 3 + [562] * 2 + [943] * 3
    assert sum(n) == 6229 and [round(v / 6229, 4) for v in (400, 492, 562, 943)] == [
        0.0642,
        0.0790,
        0.0902,
        0.1514,
    ]
    p = domain_weights(n, 4, 7)
    assert [p[i].item() for i in (0, 2, 5, 7)] == pytest.approx([0.0969, 0.0982, 0.0991, 0.1045], abs=5e-5)
    assert p.max() / p.min() == pytest.approx(1.079, abs=1e-3)  # FedAvg: 2.357

def test_weights_of_the_nominal_office_split():
    p = domain_weights([179] * 3 + [153] * 2 + [47] * 2 + [25] * 3, 4, 10)
    assert [p[i].item() for i in (0, 3, 5, 7)] == pytest.approx([0.1074, 0.1049, 0.0948, 0.0928], abs=5e-5)

@pytest.mark.parametrize('seed', range(5))
def test_weights_sum_to_1_and_uniform_where_they_must_be(seed):
    g = generator(seed)
    n = torch.randint(1, 999, (2 + seed * 4,), generator=g)
    K = len(n)
    for Q in (1, 2, K, 50):
        assert float(domain_weights(n, Q, 7).sum()) == pytest.approx(1, abs=1e-12) and torch.allclose(
            domain_weights([30] * K, Q, 7), torch.full((K,), 1 / K).double(), atol=1e-15
        )
    assert torch.allclose(
        domain_weights(n, 4, 7, alpha=0, beta=0), torch.full((K,), 1 / K).double(), atol=1e-15
    )

def test_weights_rise_with_the_size_up_to_twelve_classes():
    sizes = 100, 200, 300, 400
    for C in (2, 7, 10, 12):
        for Q in (2, 4, 20):
            assert (domain_weights(sizes, Q, C).diff() > 0).all(), (C, Q)
    few, even, more, most = domain_weights(sizes, 4, 65)
    assert few < even and more > most  # with many classes they fall beyond a share of 1/Q

def test_weights_at_the_edges():
    assert (
        domain_weights([5], 1, 7).tolist() == [1.0]
        and domain_weights([0, 5], 2, 7).sum() == pytest.approx(1)
        and len(domain_weights(range(1, 4), 3, 2)) == 3
    )

# ---- 5 odd federations

NETS = dict(
    small_conv=small, resnet10=lambda: resnet10(7, width=4), alexnet_bn=lambda: alexnet_bn(7, width=2)
)

def finite(fed):
    return all(v.isfinite().all() for s in states(fed) for v in s.values())

@pytest.mark.parametrize('net', NETS)
@pytest.mark.parametrize('method', [F2DC, AVERAGED, RELEASED], ids=lambda m: m.name)
def test_every_model(pair, net, method):
    assert finite(run(method, pair, NETS[net](), rounds=1))

@pytest.mark.parametrize('method', [F2DC, AVERAGED, RELEASED, F2DC(warm=3), DC], ids=lambda m: m.name)
def test_one_and_two_rounds_are_three(three, tmp_path, method):
    kw = dict(rounds=3, participation=0.6, local_steps=1, eval_every=3)
    whole = run(method, three, **kw)
    half = fed_of(method, three, out=tmp_path / 'c', **kw)
    half.fit(1)
    half.save(tmp_path / 'c')
    then = fed_of(method, three, **kw).load(tmp_path / 'c')
    assert then.round_no == 1
    then.fit()
    assert equal(whole, then) and whole.history == then.history

def test_noise_is_the_clients_own_and_touches_no_global_stream(suite, once):
    before = torch.random.get_rng_state()
    a, b = once(F2DC), run(F2DC, suite)
    assert (
        equal(a, b)
        and torch.equal(before, torch.random.get_rng_state())
        and not equal(a, run(F2DC, suite, seed=1))
    )

def test_who_else_takes_part_does_not_change_a_clients_training(suite):
    alone = fed_of(F2DC, replace(suite, clients=suite.clients[2:3]))
    every = fed_of(F2DC, suite)
    sent = [every.train_client(c).upload for c in suite.clients]
    assert same(sent[2].state, alone.train_client(suite.clients[2]).upload.state)

def test_client_order_is_no_matter(suite, once):
    a, b = once(F2DC), run(F2DC, replace(suite, clients=suite.clients[::-1]))
    assert equal(a, b) and sorted(map(str, a.history.rows)) == sorted(map(str, b.history.rows))

def test_one_client(suite):
    one = replace(suite, clients=suite.clients[:1])
    fed = run(F2DC, one)
    plain = run(DC, one)
    assert equal(fed, plain) and finite(fed)  # every weight of a single client is 1

def test_a_client_that_misses_classes(suite):
    c = suite.clients[3]
    few = replace(c, train=c.train[(c.train.y < 2).nonzero()[:, 0]])
    assert len(few.train) > 2
    fed = run(F2DC, replace(suite, clients=[*suite.clients[:3], few]))
    assert finite(fed)

def test_few_participants(suite):
    fed = run(F2DC, suite, participation=0.3, rounds=3)
    assert all(len(r['participants']) == 1 for r in fed.history.rounds) and finite(fed)

@pytest.mark.parametrize('method', [F2DC, RELEASED], ids=lambda m: m.name)
def test_a_batch_of_one(pair, method):
    assert finite(run(method, pair, batch_size=1, rounds=1, lr=0.001))

def test_a_client_with_one_image_leaves_the_global_stream_alone(suite):
    c = suite.clients[0]
    few = replace(suite, clients=[replace(c, train=c.train[:1]), *suite.clients[1:]])
    before = torch.random.get_rng_state()
    fed = run(F2DC, few, rounds=1)
    assert fed.history.rounds[0]['participants'] == [0, 1, 2, 3] and finite(fed)
    assert torch.equal(before, torch.random.get_rng_state())

def of_size(suite, size):
    cut = lambda d: type(d)(d.x[:, :, :size, :size].contiguous(), d.y)
    return replace(
        suite,
        clients=[replace(c, train=cut(c.train), val=cut(c.val), test=cut(c.test)) for c in suite.clients],
        tests={d: cut(t) for d, t in suite.tests.items()},
    )

@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('method', [F2DC, RELEASED], ids=lambda m: m.name)
def test_a_map_of_one_cell(pair, method):
    fed = run(method, of_size(pair, 8), small_conv(7, size=8, width=4))
    assert finite(fed)

def test_a_map_of_one_cell_is_said():
    with pytest.warns(UserWarning, match='1×1.*per channel'):
        F2DC.adapt(small_conv(7, size=8, width=4))
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        F2DC.adapt(small())

def test_the_iid_deal_is_one_domain(suite):
    fed = run(F2DC, suite.iid(), rounds=1)
    assert finite(fed) and {v[::2] for v in fed.history.views()} == {
        ('global', 'client'),
        ('global', 'backbone'),
    }
    n = [len(c.train) for c in suite.clients]
    ups = [up(i, k) for i, k in enumerate(n)]
    assert torch.equal(weighed(F2DC, ups, n, dict.fromkeys(range(4), 'iid')), domain_weights(n, 1, 7))

@pytest.mark.parametrize('protocol', ['f2dc', 'fedbn', 'fdse'])
def test_every_house(pair, protocol):
    assert finite(run(F2DC, pair, protocol=protocol, rounds=1, batch_size=8))

@pytest.mark.parametrize('other', [FedProx(mu=0.1), FedBN, FedBN(affine=False)], ids=lambda m: m.name)
def test_plugged_into_others_in_both_orders(pair, once_two, other):
    a, b = run(DC + other, pair), run(other + DC, pair)
    assert equal(a, b) and not equal(a, once_two(DC)) and a.history.rows == b.history.rows
    assert other.kept(a.net) <= a.kept and all(n in a.kept for n in a.server if local(n))

def test_the_corrector_needs_the_decoupler():
    with pytest.raises(Contradiction, match='DFC builds on DFD.*add DFD'):
        Method('x', DFC())
    net = Method('x', DFC(), DFD(lam=0)).adapt(small())
    assert net.neck.A_C is not None
    assert Method('x', DFD()).adapt(small()).neck.A_C is None

@pytest.mark.parametrize(
    'method,names',
    [
        (Method('a', DFD()), {'task', 'sep', 'dis'}),
        (DC, {'task', 'sep', 'dis', 'correct'}),
        (Method('b', DFD(lam=0), DFC()), {'task', 'correct'}),
        (Method('c', DFD(lam=0), DFC(lam=0)), {'task'}),
        (Method('d', DFD(), DFC(lam=0), DomainAware()), {'task', 'sep', 'dis'}),
    ],
    ids=lambda m: m.name if isinstance(m, Method) else '',
)
def test_terms_of_the_ablation(pair, method, names):
    assert set(rounds_of(method, pair, rounds=1).history.rounds[0]['terms']) == names

# ---- 6 bad input

class Given(Mechanism):
    def __init__(self, w):
        self._w = w

    def weights(self, srv, ups):
        return torch.tensor(self._w)

@pytest.mark.parametrize('k', ['sigma', 'tau'])
@pytest.mark.parametrize('v', [0, -0.1, float('nan')])
def test_bad_softness_and_temperature(k, v):
    with pytest.raises(ValueError, match=f'{k} is .*(above 0|a finite number)'):
        F2DC(**{k: v})
    with pytest.raises(ValueError, match=f'{k} is .*above 0'):
        if k == 'sigma':
            gumbel_mask(torch.zeros(2), v)
        separation(torch.ones(1, 2), torch.ones(1, 2), v)

@pytest.mark.parametrize('n', [(3, -1), (0, 0), (), (1, float('nan')), (1, float('inf'))], ids=str)
def test_bad_sizes(n):
    with pytest.raises(ValueError, match='sizes .* give numbers'):
        domain_weights(n, 4, 7)

@pytest.mark.parametrize(
    'w', [[1.0], [1.0] * 5, [1, 1, 1, -1.0], [0.0] * 4, [1, 1, 1, float('nan')]], ids=str
)
def test_weights_that_are_none(suite, w):
    with pytest.raises(ValueError, match='are no weights of 4 clients: they must be'):
        run(DC + Method('W', Given(w)), suite, rounds=1, local_steps=1)

def test_two_who_weigh_are_refused():
    with pytest.raises(Contradiction, match='DomainAware and Given both claim the hook `weights`'):
        F2DC + Method('W', Given([1.0] * 4))

def vectors():
    with seeded(0):
        return Net(seq(flat=nn.Flatten(), fc=nn.Linear(3 * 32 * 32, 8)), nn.ReLU(), nn.Linear(8, 7))

@pytest.mark.parametrize('net', [vectors, lambda: nn.Linear(3, 7)], ids=['vectors', 'no Net'])
def test_a_model_without_a_feature_map(suite, net):
    with pytest.raises(ValueError, match=r'DFD needs a feature map .*as_net'):
        F2DC.adapt(net())
    with pytest.raises(ValueError, match=r'DFD needs a feature map .*as_net'):
        fed_of(F2DC, suite, net())

def test_a_single_class():
    with seeded(0):
        net = Net(nn.Conv2d(3, 4, 3), gap(), nn.Linear(4, 1))
    with pytest.raises(ValueError, match='1 class.*at least two'):
        F2DC.adapt(net)
    with pytest.raises(ValueError, match='1 class.*at least two'):
        wrong_label(torch.zeros(3, 1), torch.zeros(3, dtype=torch.long))

@pytest.mark.parametrize('Q', [0, -1, 1.5])
def test_bad_number_of_domains_is_refused_at_once(Q):
    with pytest.raises(ValueError, match=f'Q is {Q}.*(at least|a whole number)'):
        F2DC(Q=Q)

def test_more_domains_than_clients(suite):
    with pytest.raises(ValueError, match='Q=5 domains among 4 clients: give at most 4'):
        run(F2DC(Q=5), suite, rounds=1, local_steps=1)
    with pytest.raises(ValueError, match='Q is 0'):
        domain_weights((1, 2), 0, 7)
    with pytest.raises(ValueError, match='C is 0'):
        domain_weights((1, 2), 1, 0)
    run(F2DC(Q=4), suite, rounds=1, local_steps=1)

@pytest.mark.parametrize('domain', ['', None])
def test_an_unknown_domain(suite, domain):
    odd = replace(suite, clients=[*suite.clients[:3], replace(suite.clients[3], domain=domain)])
    with pytest.raises(ValueError, match=r'the domain of client 3 is unknown: name it, or give .*Q='):
        run(F2DC, odd, rounds=1, local_steps=1)
    for m in (F2DC(Q=4), F2DC(by_size=True)):
        assert finite(run(m, odd, rounds=1, local_steps=1))

@pytest.mark.parametrize('k,v', [('hidden', 0), ('hidden', -3), ('depth', 0), ('warm', -1)])
def test_bad_shapes_of_the_modules(k, v):
    with pytest.raises(ValueError, match=f'{k} is {v}.*at least'):
        F2DC(**{k: v})

@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@pytest.mark.parametrize('scale', [1e-3, 1.0, 1e3])
def test_half_precision_overflows_nowhere(dtype, scale):
    f = (torch.rand(4, 16, 8, 8, generator=generator(0)) * scale).to(dtype).requires_grad_()
    S = torch.randn(4, 16, 8, 8, generator=generator(1)).mul(30).to(dtype).requires_grad_()
    M = gumbel_mask(S, 0.1, torch.rand(4, 16, 8, 8, generator=generator(2)).to(dtype))
    plus, minus = decouple(f, M)
    star = minus + correction(minus, M, lambda z: -z)
    l = [rF(v) for v in (plus, minus, star)]
    assert all(v.dtype == torch.float32 and v.isfinite().all() for v in l)
    with seeded(0):
        m = nn.Linear(16, 7)
    y = labels(4)
    sep = separation(l[0], l[1], 0.06)
    loss = sep + sum(F.cross_entropy(m(v), y) for v in l)
    loss.backward()
    assert loss.isfinite() and 0 <= sep.item() <= 1 / 0.06 + 1e-3
    assert all(p.grad.isfinite().all() for p in (f, S, m.weight))

def test_separation_in_half_precision():
    l = torch.full((2, 64), 200.0, dtype=torch.float16)
    assert float(separation(l, l, 0.06)) == pytest.approx(1 / 0.06, rel=1e-3)  # 64·200² is beyond float16

@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_a_step_with_half_feature_maps(dtype):
    net = F2DC.adapt(small()).train()
    net.neck.generator = generator(0)
    with torch.autocast('cpu', dtype=dtype):
        t, out = terms(F2DC, net, images(), labels())
    sum(t.values()).backward()
    assert all(v.isfinite() for v in t.values()) and all(p.grad.isfinite().all() for p in net.parameters())
    assert all(v.dtype == torch.float32 for v in out.aux['l'].values())

def test_vectors_of_the_spec():
    a, b = torch.tensor([[3.0, 4, 0]]), torch.tensor([[4.0, 3, 0]])
    assert separation(a, b).item() == pytest.approx(16.0, rel=1e-6)
    for l in ([2.0, 1, 0.5], [0.1, 3, 2]):
        assert wrong_label(torch.tensor([l]), torch.tensor([0])).tolist() == [1]
    M = gumbel_mask(torch.tensor(0.3), 0.1, torch.tensor(0.6))
    assert M.item() == pytest.approx(0.999137, abs=1e-6) and gumbel_mask(
        torch.tensor(0.3)
    ).item() == pytest.approx(0.952574, abs=1e-6)
    f = torch.randn(4, 8, 5, 5, generator=generator(0))
    one = torch.ones_like(f)
    for M in (one, torch.rand(f.shape, generator=generator(1))):
        plus, minus = decouple(f, M)
        assert ((plus + minus - f).abs() <= 3e-7 * f.abs()).all()
    plus, minus = decouple(f, one)
    assert not (minus + correction(minus, one, lambda z: z + 7)).any()  # M = 1: nothing to repair

def test_an_empty_part_is_separate_and_its_gradient_bounded():
    "A dead map has f⁺ = f⁻ = 0, a hard mask on one cell leaves one of them 0."
    for l, k in (((0.0, 0, 0), (0.0, 0, 0)), ((0.0, 0, 0), (4.0, 3, 0)), ((1e-30, 0, 0), (0, 1e-30, 0))):
        a, b = (torch.tensor([v], requires_grad=True) for v in (l, k))
        sep = separation(a, b)
        sep.backward()
        assert sep == 0 and all(v.grad.isfinite().all() for v in (a, b)), (l, k)
    a, b = torch.zeros(1, 3, requires_grad=True), torch.tensor([[4.0, 3, 0]])
    separation(a, b).backward()
    assert a.grad.norm() <= 1e3 / 0.06 / 5 * 1.01

def test_a_dead_map_trains_on():
    net = F2DC.adapt(small()).train()
    net.neck.generator = generator(0)
    nn.init.constant_(net.body.block3.bn.bias, -99)
    t, out = terms(F2DC, net, images(), labels())
    sum(t.values()).backward()
    assert (
        not out.aux['f'].any()
        and all(v.isfinite() for v in t.values())
        and all(p.grad.isfinite().all() for p in net.parameters())
    )

def test_modules_have_the_type_of_the_model():
    net = F2DC.adapt(small().double())
    assert {p.dtype for p in net.parameters()} == {torch.float64}

# ---- 7 views

@pytest.fixture(scope='module')
def fits(once):
    return {m.name: once(m) for m in (FedAvg, F2DC, MEAN, RELEASED, DC, Method('DFD', DFD(share=False)))}

@pytest.mark.parametrize('name', ['F2DC', 'DC', 'DFD'])
def test_rows_of_each_path_for_every_client_and_domain(suite, fits, name):
    h = fits[name].history
    cells = [(c.id, d) for c in suite.clients for d in suite.tests]
    for path in ('client', 'backbone'):
        rows = [
            r
            for r in h.rows
            if (r['view'], r['moment'], r['path'], r['round']) == ('global', 'post_agg', path, 2)
        ]
        assert [(r['client'], r['domain']) for r in rows] == cells and all(r['n'] == 12 for r in rows), path
    assert (
        ('global', 'post_agg', '') not in h.views()
        and h.headline().path == 'client'
        and h.headline('personal').path == ''
    )
    assert {v[:2] for v in h.views()} == {
        ('global', 'post_agg'),
        ('personal', 'post_agg'),
        ('personal', 'post_local'),
    }

def test_the_backbone_path_is_the_same_for_every_client(suite, fits):
    rows = [r for r in fits['F2DC'].history.rows if (r['view'], r['path']) == ('global', 'backbone')]
    for d in suite.tests:
        assert len({r['correct'] for r in rows if r['domain'] == d}) == 1
    fed, p = fits['F2DC'], []
    for c in suite.clients:
        fed.worker.load(fed.state_of(c.id))
        p.append(fed.worker.probabilities(suite.clients[0].test.x))
    assert all(torch.equal(p[0]['backbone'], q['backbone']) for q in p) and not torch.equal(
        p[0][''], p[1]['']
    )

def test_the_score_is_the_mean_over_clients(suite, fits):
    h = fits['F2DC'].history
    for path in ('backbone', 'client'):
        rows = [r for r in h.rows if (r['view'], r['path'], r['round']) == ('global', path, 2)]
        of = {d: [r for r in rows if r['domain'] == d] for d in suite.tests}
        want = {d: 100 * sum(r['correct'] for r in rs) / sum(r['n'] for r in rs) for d, rs in of.items()}
        assert h.summary(Where(path=path))['AVG'] == pytest.approx(sum(want.values()) / len(want))
    assert dict(h.curve().iloc[-1][list(want)]) == pytest.approx(want) and h.summary() == h.summary(
        Where(path='client')
    )

def test_shared_modules_have_one_model_and_the_plain_path(suite, fits):
    for name in (MEAN.name, RELEASED.name):
        h = fits[name].history
        rows = [r for r in h.rows if (r['view'], r['path']) == ('global', '')]
        assert (
            h.headline().path == ''
            and [r['domain'] for r in rows] == list(suite.tests)
            and {r['client'] for r in rows} == {-1}
        )
        assert ('global', 'post_agg', 'client') not in h.views() and (
            'global',
            'post_agg',
            'backbone',
        ) in h.views()
    with pytest.raises(ValueError, match='F2DC leaves .* tensors with its clients'):
        fits['F2DC'].model()
    assert fits['F2DC'].model(client=0).neck.A_C is not None and fits['F2DC'].predict(
        suite.tests['photo'].x[:2], client=1
    ).shape == (2, 7)

def test_tables_name_the_path(fits):
    c = Comparison([fits[n].history for n in ('FedAvg', 'F2DC', MEAN.name)])
    assert (
        list(c.table().cells.method)
        == list(c.statistics().method)
        == ['FedAvg', 'F2DC [client]', MEAN.name]
    )
    assert list(c.table(Where(path='backbone')).cells.method) == [
        'FedAvg',
        'F2DC [backbone]',
        f'{MEAN.name} [backbone]',
    ]
    assert (
        'F2DC [client]' in str(c.table())
        and 'F2DC [backbone]' in str(c.table(Where(path='backbone')))
        and 'F2DC [client]' not in str(c.table(Where(path='backbone')))
    )
    assert 'mean over clients' in str(c.table()) and 'F2DC' in str(c.table('personal'))

def test_a_misspelt_path_is_refused(fits):
    with pytest.raises(ValueError, match="by 'bakbone'"):
        fits['F2DC'].history.summary(Where(path='bakbone'))

# ---- 8 the mask, beyond what its page shows

def rand64(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

def gumbel(u):
    return -(-u.log()).log()

def even(n):
    return (torch.arange(n) + 0.5) / n

def slope_of(S, sigma, u, **kw):
    S = torch.full_like(u, S).requires_grad_()
    return torch.autograd.grad(gumbel_mask(S, sigma, u, **kw).sum(), S)[0]

def test_logistic_is_the_quantile_function():
    from scipy.stats import kstest, logistic as law

    assert torch.allclose(logistic(rand64(1000)), torch.tensor(law.ppf(rand64(1000))), atol=1e-9)
    far = lambda x: kstest(x.numpy(), 'logistic').statistic
    assert far(logistic(rand64(20_000, seed=2))) < 1.63 / 20_000**0.5
    assert (
        far(logistic(rand64(20_000)) - logistic(rand64(20_000, seed=1))) > 0.05
    )  # two logistics are another law

def eq3(S, ga, gb, sigma, eps=0.0):
    p = S.sigmoid()
    keep, drop = (((p + eps).log() + ga) / sigma).exp(), (((1 - p + eps).log() + gb) / sigma).exp()
    return keep / (keep + drop)

@pytest.mark.parametrize('form', ['two Gumbels', 'as printed', 'with 1e-8'])
def test_the_mask_is_equation_3(form):
    S, u, v = 3 * rand64(1000, seed=4) - 1.5, rand64(1000), rand64(1000, seed=1)
    ga, gb = gumbel(u), gumbel(v)
    one = (ga - gb).sigmoid()
    got, want = {
        'two Gumbels': (gumbel_mask(S, 0.5, one), eq3(S, ga, gb, 0.5)),
        'as printed': (gumbel_mask(S, 0.5, u, v), eq3(S, logistic(u), logistic(v), 0.5)),
        'with 1e-8': (gumbel_mask(S, 0.5, one, eps=1e-8), eq3(S, ga, gb, 0.5, 1e-8)),
    }[form]
    assert torch.allclose(got, want, atol=1e-12)

def test_undecided_share_and_variance():
    M = gumbel_mask(torch.zeros(100_000), 0.1, even(100_000))
    assert float(((M > 0.01) & (M < 0.99)).float().mean()) == pytest.approx(0.226, abs=5e-4)
    assert float(M.var()) == pytest.approx(0.225, abs=5e-4)

@pytest.mark.parametrize('S', [0.0, 2.0])
def test_the_mean_gradient_is_the_slope_of_the_lottery(S):
    slope = slope_of(S, 0.1, even(100_000)).mean()
    assert float(slope) == pytest.approx(1 / (2 + 2.718281828**S + 2.718281828**-S), rel=0.01)

def test_hard_has_the_soft_gradient():
    u = rand64(400, seed=5).float()
    assert set(gumbel_mask(torch.linspace(-4, 4, 400), 0.1, u, hard=True).tolist()) == {0.0, 1.0}
    assert (
        torch.equal(slope_of(0.3, 0.1, u), slope_of(0.3, 0.1, u, hard=True))
        and slope_of(0.3, 0.1, u).max() > 0
    )

def test_noise_decides_and_silence_repeats():
    S, u = torch.linspace(-4, 4, 400), rand64(400, seed=5).float()
    assert torch.equal(gumbel_mask(S), gumbel_mask(S))
    assert not torch.equal(gumbel_mask(S, 0.1, u), gumbel_mask(S, 0.1, u.flip(0)))

@pytest.mark.parametrize('S', [-2.0, 0.0, 0.3, 2.0])
def test_kept_as_often_as_the_sigmoid_says(S):
    M = gumbel_mask(torch.full((100_000,), S), 0.1, even(100_000))
    assert float((M > 0.5).float().mean()) == pytest.approx(float(torch.tensor(S).sigmoid()), abs=2e-5)

@pytest.mark.parametrize('sigma', [0.01, 0.1, 0.5, 1.0, 5.0, 50.0])
def test_softness_moves_no_entry_across_one_half(sigma):
    S, u = 2 * torch.randn(32, 32, generator=generator(0)), torch.rand(32, 32, generator=generator(1))
    assert torch.equal(gumbel_mask(S, sigma, u) > 0.5, gumbel_mask(S, 0.1, u) > 0.5)
    assert 0 <= gumbel_mask(S, sigma, u).min() and gumbel_mask(S, sigma, u).max() <= 1

@pytest.mark.parametrize(
    'call,says',
    [
        (lambda S: gumbel_mask(S, 0.0), 'must be above 0'),
        (lambda S: gumbel_mask(S, -1.0), 'sigma is -1.0'),
        (lambda S: gumbel_mask(S, float('nan')), 'sigma is nan'),
        (lambda S: gumbel_mask(S, u=torch.rand(3)), r'u has the shape \(3,\), the scores have \(2, 3\)'),
        (lambda S: gumbel_mask(S.long()), 'torch.int64'),
    ],
    ids=range(5),
)
def test_a_mask_that_cannot_be(call, says):
    with pytest.raises(ValueError, match=says):
        call(torch.zeros(2, 3))

def test_the_ends_of_the_noise_and_of_the_scores():
    u = torch.tensor([0.0, 1.0])
    assert gumbel_mask(torch.zeros(2), 0.1, u).isfinite().all() and logistic(u).isfinite().all()
    assert gumbel_mask(torch.tensor([float('-inf'), float('inf')])).tolist() == [0, 1]
    assert gumbel_mask(torch.zeros(0, 4), 0.1, torch.zeros(0, 4)).shape == (0, 4)  # an empty batch is legal

@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@pytest.mark.parametrize('noise', ['none', 'float32', 'own'])
def test_a_mask_in_half_precision(dtype, noise):
    S = torch.tensor([-6e4, -30.0, 0.0, 0.3, 30.0, 6e4], dtype=dtype).requires_grad_()
    u = (
        None
        if noise == 'none'
        else torch.tensor([0.0, 0.2, 0.5, 0.6, 0.9, 1.0], dtype=dtype if noise == 'own' else torch.float32)
    )
    M = gumbel_mask(S, 0.1, u)
    assert M.dtype == dtype and M.isfinite().all() and torch.autograd.grad(M.sum(), S)[0].isfinite().all()

def test_kept_share_is_its_formula():
    p = rand64(1000)
    p = p[torch.logit(p).abs() > 1e-3]
    e, z = (1 - p) / p, torch.logit(p)
    assert torch.allclose(kept_share(p), 1 / (1 - e) - z * e / (1 - e) ** 2, atol=1e-8)
    assert torch.allclose(kept_share(1 - p), 1 - kept_share(p), atol=1e-12)

def test_scores_of_brightness():
    x = load_suite('emoji-pacs', 'tiny').tests['photo'].x[2]
    S = brightness_scores(x, 2.0)
    assert float(S.mean()) == pytest.approx(0, abs=1e-5) and float(S.std()) == pytest.approx(2, abs=1e-5)

# ---- 9 the correction, beyond what its page shows

def test_rounding_of_the_two_parts():
    f = torch.randn(1_000_000, generator=generator(3)).relu()
    M = gumbel_mask(torch.zeros_like(f), u=torch.rand(f.shape, generator=generator(4)))
    gap = (sum(decouple(f, M)) - f).abs()
    assert gap.max() > 0 and (gap <= 3e-7 * f).all()  # so a network computes f + (1−M) A_C(f⁻)

def test_cost_of_the_bottleneck():
    def share(hidden):
        with torch.device('meta'):
            A = bottleneck(512, hidden)
        return 200 * 256 * sum(l.weight.numel() for l in A if isinstance(l, nn.Conv2d)) / 4_054_846_976

    assert [round(share(h)) for h in (None, 512)] == [7, 60]  # two of them, % of a ResNet-10 at 128 pixels

def test_the_bottleneck_keeps_the_shape():
    A = bottleneck(32)
    assert A(torch.rand(2, 32, 5, 7)).shape == (2, 32, 5, 7) and A[0].out_channels == 8
    assert [type(l).__name__ for l in A] == ['Conv2d', 'BatchNorm2d', 'ReLU', 'Conv2d']

def test_a_bottleneck_on_a_map_of_one_cell():
    assert (
        bottleneck(8)(torch.rand(2, 8, 1, 1)).shape
        == bottleneck(8).eval()(torch.rand(2, 8, 1, 1)).shape
        == (2, 8, 1, 1)
    )
    with pytest.raises(ValueError, match='Expected more than 1 value per channel'):
        bottleneck(8)(torch.rand(1, 8, 1, 1))

def vectors_of(seed):
    scale = 10.0 ** torch.randint(-6, 6, (40, 1), generator=generator(seed, 'scale'))
    return torch.randn(40, 6, generator=generator(seed)) * scale

def test_separation_stays_within_its_bound():
    any_sign = torch.stack([separation(vectors_of(s), vectors_of(100 + s)) for s in range(100)])
    folded = torch.stack([separation(vectors_of(s).abs(), vectors_of(100 + s).abs()) for s in range(100)])
    assert (any_sign.abs() <= 1 / 0.06 + 1e-4).all() and any_sign.min() < 0 <= folded.min()

def test_separation_is_the_mean_cosine():
    a, b = (torch.rand(8, 32, generator=generator(s)) for s in range(2))
    naive = (a.double() @ b.double().T).diag() / (a.double().norm(dim=1) * b.double().norm(dim=1))
    assert float(separation(a, b)) == pytest.approx(float(naive.mean()) / 0.06, rel=1e-5)
    assert float(separation(a, a)) == pytest.approx(1 / 0.06, rel=1e-5)
    assert float(separation(a, -a)) == pytest.approx(-1 / 0.06, rel=1e-5)

def test_the_clamp_tames_a_hard_mask_on_one_cell():
    def steepest(sep):
        S, v = torch.zeros(64, 8, 1, 1), torch.randn(64, 8, 1, 1, generator=generator(0)).relu()
        M = gumbel_mask(S, u=torch.rand(S.shape, generator=generator(1)), hard=True).requires_grad_()
        return float(torch.autograd.grad(sep(*map(rF, decouple(v, M))), M)[0].abs().max())

    library = lambda a, b: F.cosine_similarity(a, b).mean() / 0.06
    assert steepest(library) > 1e5 > steepest(separation)

@pytest.mark.parametrize('dtype', [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize('shape', [(1, 8, 4, 4), (1, 8, 1, 1), (3, 8, 2, 5)], ids=str)
@pytest.mark.parametrize('dead', [True, False])
def test_separation_is_finite(dtype, shape, dead):
    v = torch.zeros(shape, dtype=dtype) if dead else torch.rand(shape, generator=generator(0)).to(dtype)
    S = torch.zeros(shape, dtype=dtype).requires_grad_()
    L = separation(
        *map(rF, decouple(v, gumbel_mask(S, u=torch.rand(shape, generator=generator(1)).to(dtype))))
    )
    assert L.dtype == torch.float32 and L.isfinite() and torch.autograd.grad(L, S)[0].isfinite().all()

def test_the_pull_of_a_cosine():
    grid, other = (
        torch.cartesian_prod(torch.linspace(0.1, 1.3, 8), torch.linspace(0.1, 1.3, 8)).requires_grad_(),
        torch.tensor([0.6, 0.9]),
    )
    cos = F.cosine_similarity(grid, other.expand_as(grid))
    pull = torch.autograd.grad((cos / 0.06).sum(), grid)[0]
    assert (pull * grid).sum(1).abs().max() < 1e-4  # never along its own direction
    assert torch.allclose(
        pull.norm(dim=1), (1 - cos**2).clamp(min=0).sqrt() / 0.06 / grid.norm(dim=1), atol=2e-2
    )

@pytest.mark.parametrize('seed', range(10))
def test_wrong_labels_of_many_kinds(seed):
    n = 2 + seed
    z, t = (
        torch.randn(30, n, generator=generator(seed)),
        torch.randint(n, (30,), generator=generator(seed, 't')),
    )
    z[:10], z[10:20, 1:] = 0.0, -torch.inf  # ties and impossible classes too
    w = wrong_label(z, t)
    assert (w != t).all() and (w >= 0).all() and (w < n).all()
    assert torch.equal(w[20:], z[20:].scatter(1, t[20:, None], -torch.inf).argmax(1))

@pytest.mark.parametrize('side', [1, 2, 4, 8, 16])
def test_separation_at_the_start_is_predicted_on_a_real_map(side):
    net = small_conv(10, size=8 * side)
    images = torch.randn(min(60, 480 // side), 3, 8 * side, 8 * side, generator=generator(0))
    with torch.no_grad():
        f = net.train().body(images)
    M = gumbel_mask(torch.zeros_like(f), u=torch.rand(f.shape, generator=generator(1)))
    r = 0.9 * float((f**2).mean() / (rF(f) ** 2).mean()) / side**2
    assert 0.8 * float(separation(*map(rF, decouple(f, M)))) == pytest.approx(
        0.8 / 0.06 * (1 - r) / (1 + r), abs=0.5
    )

def test_without_noise_separation_has_no_slope():
    f = torch.randn(8, 32, 8, 8, generator=generator(1)).relu()

    def slope(u):
        S = torch.zeros_like(f).requires_grad_()
        return float(torch.autograd.grad(separation(*map(rF, decouple(f, gumbel_mask(S, u=u)))), S)[0].norm())

    assert slope(None) < 1e-4 * slope(torch.rand(f.shape, generator=generator(4)))

# ---- 10 the method, its costs, its probes

def test_counts_of_table_4():
    with torch.device('meta'):
        r10 = resnet10(7, width=64, size=128)
    full, narrow = (m.adapt(r10) for m in (F2DC, F2DC(hidden=32)))
    sent, plain = payload(full, F2DC), payload(r10)
    assert [n_params(full.neck.A_D), n_params(narrow.neck.A_C), n_params(full.neck.m), n_params(r10)] == [
        589_952,
        294_976,
        3_591,
        4_901_703,
    ]
    assert (
        sent['travels'] == plain['travels']
        and sent['travels'] // 4 - n_params(r10) == 5_760
        and plain['counters'] // 8 == 12
    )
    assert flops(r10, 128) // 2 == 4_054_846_976

@pytest.mark.parametrize('C,ratio', [(7, 1.24), (10, 1.27)])
def test_below_an_even_share_weights_hardly_differ(C, ratio):
    assert (
        round(float(torch.tensor(1 / 4).sigmoid() / torch.tensor(-0.1 * (C / 2) ** 0.5).sigmoid()), 2)
        == ratio
    )  # shares 1/Q and 0

def test_embedded_suites_have_equal_sizes():
    for name in ('emoji-pacs', 'skew-digits'):
        assert len({len(c.train) for c in load_suite(name, 'tiny').clients}) == 1

def test_released_has_no_weights_of_its_own():
    assert weighed(RELEASED, [up(i, n) for i, n in enumerate((16, 24))], (16, 24)) is None

def test_a_deployed_model_is_the_path_backbone(suite, fits):
    fed, h = fits['F2DC'], fits['F2DC'].history
    for k in (0, 3):
        net = fed.model(client=k)
        net.neck = nn.Identity()
        for d, t in suite.tests.items():
            right = int((answers(net, t).logits.argmax(1) == t.y).sum())
            last = {
                r['correct']
                for r in h.rows
                if (r['view'], r['path'], r['round'], r['domain']) == ('global', 'backbone', 2, d)
            }
            assert last == {right}

def test_a_stored_run_says_what_todays_method_says():
    "The hyper-parameters that a run stores."
    stored = {
        'DFD': dict(
            sigma=0.1,
            tau=0.06,
            lam=0.8,
            warm=0,
            hidden=None,
            depth=2,
            test_noise=False,
            eps=0.0,
            share=False,
        ),
        'DFC': dict(lam=1.0),
        'DomainAware': dict(alpha=1.0, beta=0.4, Q=None, by_size=False),
    }
    assert {d['mechanism']: d['hp'] for d in F2DC.spec()} == stored
    assert AVERAGED.name == 'F2DC' and DFD(0.2, 0.1, 0.5).tau == 0.1

@pytest.mark.parametrize('method,ink', [(AVERAGED, 'vermillion'), (AVERAGED_DC, 'coral')], ids=['F2DC', 'DC'])
def test_page_and_colour(method, ink):
    assert method.page == '2_methods/f2dc/04_method' and method.ink == ink

@pytest.fixture(scope='module')
def masked():
    return F2DC.adapt(small())

def test_mask_viewer_has_a_column_for_each_part(suite, masked):
    import matplotlib.pyplot as plt

    ticks = lambda net: [t.get_text() for t in mask_viewer(net, suite, 1).get_xticklabels()]
    assert ticks(masked) == ['image', 'M', 'f⁺', 'f⁻', 'f*']
    assert ticks(DFD.adapt(DFD(), small())) == ['image', 'M', 'f⁺', 'f⁻']  # no corrector: no f*
    assert [t.get_text() for t in mask_viewer(masked, suite).get_yticklabels()] == list(suite.tests)
    with pytest.raises(ValueError, match='the model has no mask to show'):
        mask_viewer(small(), suite)
    plt.close('all')

def test_parts_hold_no_more_than_the_whole(suite, masked):
    p = mask_parts(masked, suite.tests['photo'].x[0])
    assert (
        0 < p['M'].min() and p['M'].max() < 1 and (p['f⁺'] + p['f⁻'] <= p['f'] * (1 + 1e-6)).all()
    )  # M² + (1−M)² ≤ 1

def test_painted_enlarges_cells():
    import matplotlib.pyplot as plt, numpy as np

    assert painted(np.array([[0.0, 1]]), (2, 4), plt.get_cmap('gray'))[0].tolist() == [[0, 0, 255, 255]] * 2

def test_measures_of_f2dc_are_those_of_any_run_and_seven_more(suite, fits):
    ours, plain = (f2dc_measures(fits[k]) for k in ('F2DC', 'FedAvg'))
    assert ours.keys() - plain.keys() == {'plus', 'minus', 'star', 'whole', 'm_plus', 'm_minus', 'm_star'}
    assert plain == measure(fits['FedAvg'])
    nets = [fits['F2DC'].model(client=c.id) for c in suite.clients]
    assert ours['whole'] == pytest.approx(sum(feature_answers(n, suite)['whole'] for n in nets) / 4)

def test_a_mask_of_ones_repairs_nothing_and_a_mask_of_zeros_is_a_residual_block():
    f = torch.randn(8, 32, 8, 8, generator=generator(1)).relu()
    with seeded(3):
        A_C = bottleneck(32).eval()
    one, none = torch.ones_like(f), torch.zeros_like(f)
    assert torch.equal(f + correction(decouple(f, one)[1], one, A_C), f)
    assert torch.equal(f + correction(decouple(f, none)[1], none, A_C), f + A_C(f))
    assert all(separation(*map(rF, decouple(f, m))) == 0 for m in (one, none))

def test_the_floor_of_the_norms_has_no_gradient():
    "A vector far below the floor is divided by a constant: the slope is that of a dot product."
    a = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    b = (1e-6 * torch.tensor([[1.0, 2.0]], dtype=torch.float64)).requires_grad_()
    separation(a, b, 1.0).backward()
    floor = 1e-3 * float((a + b).detach().norm())
    assert torch.allclose(b.grad, a / a.norm() / floor, rtol=1e-9)
