"MixStyle, DSU, FedDG, FedSR, FedPLVM: plain loops, limits, what travels, memories, odd data, refusals."
from functools import partial
from unittest import mock
import pytest, torch
import plain_base_generalise as plain
from feds import equal, fed_of, first, halved, images, name_of, odd_suites, rounds_of, run
from feds import little as small
from feds import rests_where_it_must, trained_once, whole_and_resumed
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import softplus
from fedskew_nb.core.method import Contradiction, Method
from fedskew_nb.nets.models import alexnet_bn, resnet10
from fedskew_nb.core.net import probe
from fedskew_nb.core.seeding import generator
from fedskew_nb.methods.baselines import augment
from fedskew_nb.methods.baselines.augment import FFA, FeatureAugment, stage_channels
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.baselines.generalise import (
    DSU, FedDG, FedPLVM, FedSR, MixStyle, OtherStyle, clusters, cmi, correction, exchanged, lowest,
    sparse_contrast, spectrum)
from fedskew_nb.methods.baselines.prototypes import cluster_contrast
from fedskew_nb.methods.baselines.contrast import FedCCRL
from fedskew_nb.methods.dfl.method import DFL
from fedskew_nb.methods.f2dc.method import DC

FIVE = [MixStyle, DSU, FedDG, FedSR, FedPLVM]
OFF = [MixStyle(p=0), DSU(p=0), FedDG(share=0), FedSR(l2r=0, cmi=0), FedPLVM(lam=0)]
five = pytest.mark.parametrize('method', FIVE, ids=name_of)

@pytest.fixture(scope='module')
def suite(suite): return halved(suite)

@pytest.fixture(scope='module')
def few(suite): return first(suite, 3, tests=4)

@pytest.fixture(scope='module')
def one_by_one(suite): return trained_once(suite, partial(rounds_of, stack=False))

@pytest.fixture(scope='module')
def fedavg(suite): return run(FedAvg, suite, stack=False)

# ---- against plain loops, half of the clients in a round

def three_rounds(method, suite, net):
    fed = rounds_of(method, suite, net, rounds=3, participation=.5, channels_last=False)
    return fed, [r['participants'] for r in fed.history.rounds]

def check(fed, want):
    for n, v in want.items(): assert (fed.server[n].double()-v.double()).abs().max() < 1e-9, n

LAYERS = [(DSU, plain.noisy, ['block1', 'block2', 'block3']), (MixStyle, plain.mixed, ['block1', 'block2'])]

@pytest.mark.parametrize('method,layer,blocks', LAYERS, ids=name_of)
def test_other_styles_are_the_plain_loop(suite, method, layer, blocks):
    net = small().double()
    fed, who = three_rounds(method, suite, net)
    check(fed, plain.other_styles(net, suite, who, layer, blocks))
    assert len(set(map(tuple, who))) > 1

RELEASED = dict(preset='released'), dict(radius=0, drawn=False)     # a tenth of 16 pixels is one

@pytest.mark.parametrize('kw,how', [({}, dict(radius=1)), RELEASED], ids=['paper', 'released'])
def test_feddg_is_the_plain_loop(suite, kw, how):
    net = small().double()
    fed, who = three_rounds(FedDG(**kw), suite, net)
    check(fed, plain.feddg(net, suite, who, **how))
    assert 'fourier' in fed.history.rounds[-1]['terms']

def test_fedsr_is_the_plain_loop(suite):
    method = FedSR(l2r=.05, cmi=.02)
    fed, who = three_rounds(method, suite, small().double())
    server, r = plain.fedsr(method.adapt(small().double()), suite, who, .05, .02)
    check(fed, server)
    assert r.keys() == {k for k, s in fed.states.items() if s.get('SimpleFeature')}
    for k, vectors in r.items():
        own = fed.states[k]['SimpleFeature']
        for name, v in zip(('m', 'rho', 's'), vectors): assert (own[name]-v).abs().max() < 1e-9, (k, name)

def test_fedplvm_is_the_plain_loop(suite):
    net = small().double()
    fed, who = three_rounds(FedPLVM(lam=2, alpha=.5, tau=.2), suite, net)
    server, said = plain.fedplvm(net, suite, who, 2, .5, .2)
    check(fed, server)
    down = fed.state.down
    assert down['level2_of'].tolist() == [k for k, ps in said.items() for _ in ps]
    for k, ps in said.items():        # clusters have no order
        apart = torch.cdist(torch.stack(ps), down['level2'][down['level2_of'] == k])
        assert float(apart.min(1).values.max()) < 1e-9

# ---- limits

@pytest.mark.parametrize('off', OFF, ids=name_of)
def test_switched_off_it_is_fedavg_bit_for_bit(suite, fedavg, off):
    a, b = run(off, suite, stack=False), fedavg
    assert equal(a, b)
    for way in ('up', 'down'):
        assert [r[way] for r in a.history.rounds] == [r[way] for r in b.history.rounds]

@five
def test_switched_on_it_is_not(one_by_one, method):
    a, b = map(one_by_one, (method, FedAvg))
    assert not torch.equal(a.server['head.weight'], b.server['head.weight'])

@pytest.mark.parametrize('method', [FedDG, FedPLVM], ids=name_of)
def test_before_the_server_has_spoken_it_is_fedavg(one_by_one, method):
    a, b = (one_by_one(m, rounds=1) for m in (method, FedAvg))
    assert equal(a, b)

class SameName(FeatureAugment):
    "FedFA-aug with its layers where DSU has them, so that both draw the same numbers."
    def adapt(self, net):
        for name, channels in stage_channels(net).items():
            net.body.get_submodule(name).add_module('style', FFA(channels, self.p, self.momentum))
        return net.to(next(net.parameters()))

def test_dsu_is_fedfa_aug_without_gamma_bit_for_bit(suite):
    twin = Method('twin', SameName())
    dsu, alike = rounds_of(DSU, suite), rounds_of(twin, suite)
    def gap(): return max(float((alike.server[n]-v).abs().max()) for n, v in dsu.server.items())
    assert gap() > 1e-4
    with mock.patch.object(augment, 'fusion', torch.zeros_like): alike = rounds_of(twin, suite)
    assert gap() == 0

def test_without_cmi_nothing_is_drawn_and_only_length_is_a_term(suite):
    fed = rounds_of(FedSR(cmi=0), suite)
    assert set(fed.history.rounds[-1]['terms']) == {'task', 'l2r'} and not any(fed.states.values())
    assert equal(fed, rounds_of(FedSR(cmi=0), suite, seed=0))

# ---- layers of style

@pytest.mark.parametrize('how', [(), (.1,)], ids=['noisy', 'mixed'])
def test_the_layer_rests_where_it_must(how):
    layer = OtherStyle(1., *how)
    layer.generator = generator('style')
    assert rests_where_it_must(layer)

def test_a_mixture_lies_between_its_parts_and_all_alpha_is_the_middle():
    x = images(2)
    for alpha, near in ((1e-3, 1e-2), (1e6, 1e-2)):
        layer = OtherStyle(1., alpha)
        layer.generator = generator(1, 'mix')
        means = [layer(x).mean((2, 3)) for _ in range(20)]
        own = x.mean((2, 3))
        inside = [(m <= own.max(0).values+1e-5) & (m >= own.min(0).values-1e-5) for m in means]
        assert torch.stack(inside).all()
        share = torch.stack([(m-own)/(own.flip(0)-own) for m in means])
        if alpha > 1: assert ((share-.5).abs().amin() < near) and share.max() < .5+near
        else: assert (torch.minimum(share.abs(), (share-1).abs()) < near).float().mean() > .9

NETS = [(small(), 3), (resnet10(7, width=8), 5), (alexnet_bn(7, width=8), 5)]

@pytest.mark.parametrize('net,n', NETS, ids=['small_conv', 'resnet10', 'alexnet_bn'])
def test_no_name_changes(net, n):
    for method, k in ((DSU, n), (MixStyle, n-1)):
        new = method.adapt(net)
        assert sum(isinstance(m, OtherStyle) for m in new.modules()) == k
        assert new.state_dict().keys() == net.state_dict().keys()
        assert torch.equal(probe(new).logits, probe(net).logits)

# ---- amplitudes

@pytest.mark.parametrize('size', [28, 29, 32])
@pytest.mark.parametrize('r', [0, 1, 5])
def test_an_exchange_is_that_of_numpy(size, r):
    g = generator('bytes')
    x, other = torch.randint(256, (2, 4, 3, size, size), generator=g).to(torch.uint8)
    theirs, lam = lowest(spectrum(other), r).abs().float(), torch.rand(4, 1, 1, 1, generator=g)
    new = exchanged(x, theirs, lam)
    for b in range(4):
        want = plain.exchanged(x[b], plain.amplitudes(other[b], r), float(lam[b]))
        assert (new[b].int()-want.int()).abs().max() <= 1    # where a half is rounded
        assert (new[b] == want).float().mean() > .999
    assert torch.equal(exchanged(x, theirs, 0*lam), x)

def test_the_whole_spectrum_and_the_own_phase():
    "With all amplitudes of the same image turned by half a circle, which are its own, an image comes back."
    x = torch.randint(256, (2, 3, 8, 8), generator=generator('bytes')).to(torch.uint8)
    theirs = lowest(spectrum(x.flip(2, 3)), 4).abs()
    assert theirs.shape[-1] == 8 and torch.equal(exchanged(x, theirs, torch.ones(2, 1, 1, 1)), x)

def test_one_number_a_channel_is_the_mean_colour():
    x, other = (torch.full((1, 3, 8, 8), v, dtype=torch.uint8) for v in (100, 30))
    assert torch.equal(exchanged(x, lowest(spectrum(other), 0).abs(), torch.ones(1, 1, 1, 1)), other)

def test_nobody_gets_its_own_amplitudes_and_they_stay_the_same(suite):
    feds = [rounds_of(FedDG, suite, rounds=r, local_steps=1) for r in (1, 2)]
    sent, again = (fed.memory['FourierViews'] for fed in feds)
    for c in suite.clients:
        assert torch.equal(sent[c.id], again[c.id]) and len(sent[c.id]) == len(c.train)//8
        theirs = torch.cat([sent[k] for k in sorted(sent) if k != c.id])
        assert torch.equal(feds[0].state.sent_to(c.id)['amplitudes'], theirs)
        own = lowest(spectrum(c.train.x), 1).abs().float().flatten(1)
        assert all((own-s.flatten()).abs().amax(1).min() == 0 for s in sent[c.id])

# ---- what travels

def test_bytes(suite):
    def last(method): return rounds_of(method, suite, local_steps=1).history.rounds[-1]
    base, K, n = last(FedAvg), len(suite.clients), sum(len(c.train)//8 for c in suite.clients)
    for method in (MixStyle, DSU, FedSR(cmi=0)):
        sent = last(method)
        assert all(sent[way] == base[way] for way in ('up', 'down'))
    dg, released, sr = last(FedDG), last(FedDG(preset='released')), last(FedSR)
    assert dg['up']-base['up'] == n*3*9*4 and dg['down']-base['down'] == (K-1)*n*3*9*4
    assert released['up']-base['up'] == n*3*4
    assert sr['up']-base['up'] == sr['down']-base['down'] == K*4*(128*256+256)    # r stays at home

def test_the_absent_stay_in_the_pool(suite):
    fed = fed_of(FedDG, suite, rounds=4, participation=.5, local_steps=1)
    for _ in range(3):
        before = dict(fed.memory.get('FourierViews', {}))
        fed.one_round()
        now = fed.memory['FourierViews']
        assert set(now) == set(before)|set(fed.history.rounds[-1]['participants'])

# ---- FedSR

def test_the_bound_is_a_divergence_of_torch():
    g = generator('kl')
    def normal(*shape): return torch.randn(*shape, generator=g).double()
    mu, sigma, y = normal(6, 5), normal(6, 5).exp(), torch.tensor([0, 2, 2, 1, 0, 1])
    for s in (1.7, -1.7, 1.):
        r = dict(m=normal(3, 5), rho=normal(3, 5), s=torch.tensor(s, dtype=torch.float64))
        KL = kl_divergence(Normal(s*mu, abs(s)*sigma), Normal(r['m'][y], softplus(r['rho'][y])))
        assert abs(float(cmi(mu, sigma, y, r)-KL.sum(1).mean())) < 1e-12
    inverse = (sigma[:1].expm1()).log()
    same = dict(m=mu[:1], rho=inverse, s=torch.ones(()).double())
    assert abs(float(cmi(mu[:1], sigma[:1], torch.tensor([0]), same))) < 1e-12

def test_a_feature_is_drawn_in_training_and_is_the_mean_in_eval():
    net = FedSR.adapt(small())
    net.pool.generator = generator('z')
    x = images(4, 16)
    a, b, c = net.train()(x), net(x), net.eval()(x)
    assert not torch.equal(a.feat, b.feat) and torch.equal(c.feat, c.aux['z_mu'])
    net.train()
    many = torch.stack([net(x).feat for _ in range(200)]).detach()
    assert ((many.mean(0)-b.aux['z_mu'])/b.aux['z_sigma']).abs().max() < .45

def test_it_has_one_model_for_all(suite):
    fed = rounds_of(FedSR, suite)
    assert not fed.is_personal() and set(fed.history.rounds[-1]['terms']) == {'task', 'l2r', 'cmi'}

# ---- FedPLVM

def test_with_alpha_one_the_contrast_is_fpl_s():
    g = generator('f')
    f, P = (torch.rand(n, 5, generator=g).double() for n in (9, 6))
    y, of = torch.arange(9)//3, torch.arange(6)//2
    assert torch.allclose(sparse_contrast(f, y, P, of, alpha=1.), cluster_contrast(f, y, P, of, .07))
    assert torch.equal(sparse_contrast(f, y+5, P, of), torch.zeros(()).double())
    assert not torch.equal(correction(f, y, P[:3], of[:3] > -1), torch.zeros(()).double())

def test_a_right_angle_has_no_endless_slope():
    f = torch.tensor([[1., 0], [0, 0], [-1, 0]], requires_grad=True)
    P, of = torch.tensor([[0., 1], [1, 1]]), torch.tensor([0, 1])
    y = torch.tensor([0, 1, 1])
    (sparse_contrast(f, y, P, of)+correction(f, y, P, of > -1)).backward()
    assert f.grad.isfinite().all()

def test_a_wide_class_sends_more():
    g = generator('wide')
    near, far = torch.rand(1, 8, generator=g)+.01*torch.rand(12, 8, generator=g), torch.eye(8).repeat(2, 1)
    P, of = clusters(torch.cat([near, far]), torch.tensor([0]*12+[1]*16), 3)
    assert int((of == 1).sum()) > int((of == 0).sum()) >= 1 and 2 not in of and len(P) == len(of)

@pytest.mark.parametrize('d', [2, 16, 64])
def test_a_hundred_times_the_spread_makes_few_more_clusters(d):
    "Sixty features around one direction, ten draws: FINCH links the nearest, however far."
    g = generator('width', d)
    def sent(width):
        f = 1+width*torch.randn(60, d, generator=g)
        return len(clusters(f, torch.zeros(60).long(), 1)[0])
    narrow, wide = (sum(sent(w) for _ in range(10))/10 for w in (.02, 2.))
    assert wide < narrow+3

# ---- memory, lanes, odd data

@five
def test_goes_on_bit_for_bit(few, method, tmp_path):
    def make(**kw): return fed_of(method, few, participation=.5, eval_every=1, **kw)
    whole, rest = whole_and_resumed(make, tmp_path/'half')
    assert equal(whole, rest) and whole.history == rest.history
    assert repr(whole.states) == repr(rest.states)

@five
def test_lanes_do_not_matter(few, method):
    assert equal(rounds_of(method, few, lanes=1), rounds_of(method, few, lanes=3))

@five
def test_odd_clients(suite, method):
    for odd in odd_suites(suite):
        fed = rounds_of(method, odd)
        assert all(v.isfinite().all() for v in fed.server.values())

def test_scores_do_not_depend_on_what_is_drawn(suite):
    for method in (MixStyle, DSU, FedSR):
        fed = run(method, suite)
        x = suite.clients[0].test.x
        assert torch.equal(fed.predict(x), fed.predict(x))

# ---- a frozen backbone

def test_what_is_frozen_is_not_sent_and_stays(suite):
    net = small()
    for part in (net.body, net.pool): part.requires_grad_(False)
    fed = rounds_of(FedAvg, suite, net, stack=False)
    head = sum(p.numel()*4 for p in net.head.parameters())
    assert fed.history.rounds[-1]['up'] == len(suite.clients)*head
    for n, v in net.state_dict().items(): assert torch.equal(v, fed.server[n]) == (not n.startswith('head'))
    with pytest.raises(Contradiction, match='changes `pool`, which is frozen'): fed_of(FedSR, suite, net)

# ---- refusals

WRONG = [(MixStyle, dict(p=2)), (DSU, dict(p=-.1)), (DSU, dict(p=float('nan'))), (MixStyle, dict(alpha=-1)),
         (FedDG, dict(window=1.2)), (FedDG, dict(share=-1)), (FedSR, dict(l2r=-1)),
         (FedSR, dict(cmi=float('inf'))), (FedPLVM, dict(lam=-1)), (FedPLVM, dict(alpha=0)),
         (FedPLVM, dict(tau=0))]

@pytest.mark.parametrize('method,kw', WRONG, ids=lambda v: getattr(v, 'name', str(v)))
def test_out_of_range(method, kw):
    with pytest.raises(ValueError): method(**kw)

@pytest.mark.parametrize('both,says', [
    (lambda suite: MixStyle+DSU, 'OtherStyles is there twice'),
    (lambda suite: fed_of(FedSR+DFL, suite), 'both change `pool`')], ids=['styles', 'pool'])
def test_clashes(both, says, suite):
    with pytest.raises(Contradiction, match=says): both(suite)

@pytest.fixture(scope='module')
def two(suite): return first(suite, 2, tests=4)

@pytest.fixture(scope='module')
def alone(two): return trained_once(two, partial(rounds_of, local_steps=1))

@five
@pytest.mark.parametrize('other', [DC, FedCCRL], ids=name_of)
def test_goes_with(two, alone, method, other):
    fed = rounds_of(method+other, two, local_steps=1)
    assert equal(fed, rounds_of(other+method, two, local_steps=1)) and not equal(fed, alone(other))
