"FedFA-aug and FedCCRL: plain loops, limits, what the server makes of styles, memories, odd data, refusals."
from dataclasses import replace
import numpy as np
import pytest, torch
import plain_base_augment as plain
from feds import equal, fed_of, first, halved, images, name_of, odd_suites, rounds_of, run
from feds import little as small
from feds import rests_where_it_must, trained_once, whole_and_resumed
from torch import nn
from fedskew_nb.core.method import Contradiction, Method
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.nets.models import alexnet_bn, gap, resnet10, small_conv
from fedskew_nb.core.net import Net, probe
from fedskew_nb.core.seeding import generator, seeded
from fedskew_nb.data.load import load_suite
from fedskew_nb.methods.baselines.augment import (
    FFA, FedFA_aug, fusion, restyled, stage_channels, statistics)
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.baselines.personal import FedBN
from fedskew_nb.methods.baselines.contrast import (
    AlignViews, FedCCRL, StyleViews, augmix, js, mixstyle, styles_of, supcon)
from fedskew_nb.methods.f2dc.method import DC
from fedskew_nb.methods.fdse.method import FDSE

ALL = [FedFA_aug, FedCCRL]
OFF = [FedFA_aug(p=0), FedCCRL(views=0)]

@pytest.fixture(scope='module')
def suite():
    s = load_suite('emoji-pacs', 'tiny')
    cut = [replace(c, train=c.train[:n], test=c.test[:8]) for c, n in zip(s.clients, (24, 30, 21))]
    return halved(replace(s, clients=cut, tests={d: t[:8] for d, t in s.tests.items()}))

@pytest.fixture(scope='module')
def trained(suite): return trained_once(suite, rounds_of)

@pytest.fixture(scope='module')
def fedavg(suite): return run(FedAvg, suite, stack=False)

# ---- against plain loops

@pytest.mark.parametrize('across', ['channel', 'all'])
def test_fedfa_is_the_plain_loop(suite, across):
    net = small().double()
    fed = rounds_of(FedFA_aug(across=across), suite, net, 3, channels_last=False, participation=plain.SHARE)
    server, running, spread = plain.fedfa(net, suite, 3, across)
    for n, v in server.items(): assert (fed.server[n].double()-v.double()).abs().max() < 1e-9, n
    for n in running:
        own = torch.stack([fed.server[f'body.{n}.ffa.{w}'] for w in ('mean', 'std')])
        said = torch.stack([fed.server[f'body.{n}.ffa.spread_{w}'] for w in ('mean', 'std')])
        assert (own-running[n]).abs().max() < 1e-9
        assert (said-spread[n]).abs().max() < 1e-9
    assert (running['block1'][0].abs() > 1e-6).any()                                # some coin fell

def test_fedccrl_is_the_plain_loop(suite):
    net = small().double()
    fed = rounds_of(FedCCRL, suite, net, 3, channels_last=False, participation=plain.SHARE)
    want = plain.fedccrl(net, suite, 3)
    for n, v in want.items(): assert (fed.server[n].double()-v.double()).abs().max() < 1e-9, n

# ---- limits

@pytest.mark.parametrize('off', OFF, ids=name_of)
def test_switched_off_it_is_fedavg_bit_for_bit(suite, fedavg, off):
    a, b = run(off, suite, stack=False), fedavg
    assert equal(a, b)
    for way in ('up', 'down'):
        assert [r[way] for r in a.history.rounds] == [r[way] for r in b.history.rounds]

@pytest.mark.parametrize('method', ALL, ids=name_of)
def test_switched_on_the_first_round_differs(trained, method):
    a, b = (trained(m, rounds=1, stack=False) for m in (method, FedAvg))
    assert not torch.equal(a.server['head.weight'], b.server['head.weight'])

def test_no_alignment_is_views_alone(suite, trained):
    alone = Method('views', StyleViews())
    a, b = rounds_of(FedCCRL(lambda1=0, lambda2=0), suite), rounds_of(alone, suite)
    assert equal(a, b) and not equal(a, trained(FedCCRL))

@pytest.mark.parametrize('released', [True, False])
def test_the_released_server_says_nothing(suite, released):
    how = 'all' if released else 'channel'
    def head(momentum):
        return rounds_of(FedFA_aug(across=how, momentum=momentum, p=1), suite).server['head.weight']
    a, b = head(.2), head(.9)
    assert ((a-b).norm()/a.norm() < 1e-5) == released

# ---- the layer

def test_gamma():
    assert torch.allclose(fusion(torch.rand(9, generator=generator(0))).mean(), torch.ones(()))
    for same in (torch.zeros(4), torch.full((4,), 3.)): assert torch.allclose(fusion(same), torch.ones(4))
    g = fusion(torch.tensor([0., 1e-3, 1.]))
    assert g[0] < g[1] < g[2]

def test_own_style_changes_nothing():
    x = images(4)
    own = statistics(x)
    assert torch.allclose(restyled(x, own, own), x, atol=1e-5)

def test_the_layer_rests_where_it_must():
    ffa = FFA(3, 1., .99)
    ffa.generator = generator('ffa')
    assert rests_where_it_must(ffa)

NETS = [(small(), 3), (resnet10(7, width=8), 5), (alexnet_bn(7, width=8), 5)]

@pytest.mark.parametrize('net,n', NETS, ids=['small_conv', 'resnet10', 'alexnet_bn'])
def test_every_stage_gets_a_layer_and_no_name_changes(net, n):
    new = FedFA_aug.adapt(net)
    assert sum(isinstance(m, FFA) for m in new.modules()) == n == len(stage_channels(net))
    more = new.state_dict().keys()-net.state_dict().keys()
    assert set(net.state_dict()) < set(new.state_dict())
    assert len(more) == 4*n and all('.ffa.' in m for m in more)
    assert torch.equal(probe(new).logits, probe(net).logits)

def test_a_body_without_stages_is_refused():
    with seeded(0): net = Net(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), gap(), nn.Linear(4, 7))
    with pytest.raises(ValueError, match='shows no stage'): FedFA_aug.adapt(net)

# ---- views

def test_views_are_bytes_of_the_same_shape(suite):
    x, rng = suite.clients[0].train.x[:5], np.random.default_rng(0)
    pool = torch.tensor([[[1., 1, 0], [.5, .5, .5]]])
    for v in (augmix(x, rng), mixstyle(x, pool, rng), augmix(x[:1], rng)):
        assert v.dtype == torch.uint8 and v.shape[1:] == x.shape[1:]

def test_the_same_dice_give_the_same_view(suite):
    x, pool = suite.clients[0].train.x[:5], torch.tensor([[[1., 1, 0], [.5, .5, .5]]])
    a, b = (mixstyle(x, pool, np.random.default_rng(1)) for _ in range(2))
    assert torch.equal(a, b)

def test_what_is_out_of_range_is_cut_and_does_not_wrap():
    x = torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
    x[..., 0] = 255
    bright = torch.tensor([[[1., 1, 1], [.9, .9, .9]]])
    rng = np.random.default_rng(0)
    while True:                                            # until the style is the other's
        v = mixstyle(x, bright, rng)
        if v.float().mean() > 120: break
    assert (v[..., 0] == 255).all()                        # white stays white

def test_contrast_and_divergence():
    g = generator('f')
    f, y = torch.randn(6, 4, generator=g).double(), torch.tensor([0, 1, 1, 2, 0, 1])
    assert torch.allclose(supcon(f, y, .1), plain.supcon(f, y))
    assert supcon(torch.zeros(3, 4, requires_grad=True), y[:3], .1).isfinite()
    z = [torch.randn(5, 3, generator=g).double() for _ in range(3)]
    assert torch.allclose(js(z), plain.js([v.softmax(1) for v in z]))
    assert js([z[0]]*3).abs() < 1e-9

# ---- what travels

def test_nobody_gets_its_own_styles(suite):
    fed = rounds_of(FedCCRL, suite, rounds=1, local_steps=1)
    sent = fed.memory['StyleViews']
    for c in suite.clients:
        mine = fed.state.sent_to(c.id)['styles']
        assert torch.equal(mine, torch.cat([sent[k] for k in sorted(sent) if k != c.id]))
        all_of_it = styles_of(c.train.x).flatten(1)
        assert all((all_of_it-s.flatten()).abs().amax(1).min() < 1e-6 for s in sent[c.id])

def test_always_the_same_tenth(suite):
    def pools(method):
        feds = [rounds_of(method, suite, rounds=r, local_steps=1) for r in (1, 2)]
        return [fed.memory['StyleViews'] for fed in feds]
    a, b = pools(FedCCRL(anew=False))
    assert all(torch.equal(a[k], b[k]) for k in a)
    c, d = pools(FedCCRL)
    assert any(not torch.equal(c[k], d[k]) for k in c)

def test_bytes(suite):
    def last(method): return rounds_of(method, suite, local_steps=1).history.rounds[-1]
    base, fa, ccrl = last(FedAvg), last(FedFA_aug), last(FedCCRL)
    layers = 3*4*4*(4+8+16)                                # clients, buffers, bytes, channels
    assert fa['up']-base['up'] == fa['down']-base['down'] == layers
    n = sum(len(c.train)//10 for c in suite.clients)*6*4
    assert ccrl['up']-base['up'] == n and ccrl['down']-base['down'] == 2*n

def test_the_absent_stay_in_the_pool(suite):
    fed = fed_of(FedCCRL, suite, rounds=4, participation=.5, local_steps=1)
    for _ in range(3):
        before = dict(fed.memory.get('StyleViews', {}))
        fed.one_round()
        went = set(fed.history.rounds[-1]['participants'])
        now = fed.memory['StyleViews']
        assert set(now) == set(before)|went
        assert all(torch.equal(now[k], before[k]) for k in set(before)-went)

# ---- memory, lanes, odd data

@pytest.mark.parametrize('method', ALL, ids=name_of)
def test_goes_on_bit_for_bit(suite, method, tmp_path):
    whole, rest = whole_and_resumed(lambda **kw: fed_of(method, suite, **kw), tmp_path/'half')
    assert equal(whole, rest) and whole.history == rest.history

@pytest.mark.parametrize('method', ALL, ids=name_of)
def test_lanes_do_not_matter(suite, method):
    assert equal(rounds_of(method, suite, lanes=1), rounds_of(method, suite, lanes=3))

@pytest.mark.parametrize('method', ALL, ids=name_of)
def test_odd_clients(suite, method):
    for odd in odd_suites(suite):
        fed = rounds_of(method, odd)
        assert all(v.isfinite().all() for v in fed.server.values())

@pytest.mark.parametrize('method', ALL, ids=name_of)
def test_learns(method):
    s = load_suite('skew-digits', 'tiny')
    s = halved(first(s, len(s.clients), tests=64))
    fed = fed_of(method, s, small_conv(10, size=14, width=4), rounds=3, local_steps=10, batch_size=16)
    AVG = fed.fit().summary()['AVG']
    print(method.name, AVG)
    assert AVG > 15                                                              # chance is 10

# ---- refusals

OUT_OF_RANGE = [(FedFA_aug, dict(p=-.1)), (FedFA_aug, dict(p=float('nan'))), (FedFA_aug, dict(momentum=1.)),
                (FedFA_aug, dict(across='client')), (FedCCRL, dict(views=-1)), (FedCCRL, dict(r=1.5)),
                (FedCCRL, dict(alpha=0)), (FedCCRL, dict(t=0)), (FedCCRL, dict(lambda1=-1)),
                (FedCCRL, dict(lambda2=float('inf')))]

@pytest.mark.parametrize('method,kw', OUT_OF_RANGE, ids=name_of)
def test_out_of_range(method, kw):
    with pytest.raises(ValueError): method(**kw)

class Tint(Mechanism):
    def batch(self, c, b): return b | dict(x_style0=b['x'].flip(1))

class OwnForward(Mechanism):
    def forward(self, c, b): return c.net(b['x'])

@pytest.mark.parametrize('both,says', [
    (lambda suite: fed_of(FedFA_aug+FDSE, suite), 'Consensus and FeatureAugment both claim'),
    (lambda suite: FedFA_aug+FedFA_aug(p=.1), 'FeatureAugment is there twice'),
    (lambda suite: rounds_of(FedCCRL+Method('Tint', Tint()), suite), 'StyleViews and Tint both write'),
    (lambda suite: Method('half', AlignViews()), 'AlignViews builds on StyleViews')])
def test_clashes(both, says, suite):
    with pytest.raises(Contradiction, match=says): both(suite)

def test_a_forward_of_ones_own_gives_no_answers_to_views(suite):
    both = FedCCRL+Method('Own', OwnForward())
    with pytest.raises(ValueError, match='finds no answers to x_style0'): rounds_of(both, suite)

@pytest.mark.parametrize('other', [FedBN, DC, FedFA_aug], ids=name_of)
def test_goes_with(suite, other):
    fed = rounds_of(FedCCRL+other, suite, local_steps=1)
    assert set(fed.history.rounds[-1]['terms']) >= {'views', 'supcon', 'js', 'task'}
    assert equal(fed, rounds_of(other+FedCCRL, suite, local_steps=1))
