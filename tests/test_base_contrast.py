"MOON and FedRCL, FedIIR and MCGDM: against plain loops, limits, frozen nets, memories, what they refuse."
import copy
from dataclasses import replace
from functools import partial
import pytest, torch, torchvision
import torch.nn.functional as F
import plain_base_contrast as plain
from feds import equal, fed_of, first, halved, images, name_of, odd_suites, rounds_of, run, same
from feds import little as small
from feds import trained_once, whole_and_resumed
from plain_base import at, pixels
from torch import nn
from fedskew_nb.core.method import Contradiction, Method
from fedskew_nb.core.mechanism import Mechanism
from bare import noise_suite
from fedskew_nb.nets.convert import as_net
from fedskew_nb.nets.models import gap, resnet10, resnet18, small_conv
from fedskew_nb.core.net import Net
from fedskew_nb.core.seeding import generator, seeded
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.federation import Federation
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.baselines.contrast import FedRCL, MOON, attract, block_names, cosines, diverge
from fedskew_nb.methods.baselines.gradients import FedIIR, MCGDM, discrepancy, strong_view
from fedskew_nb.methods.dfl.method import DFL
from fedskew_nb.methods.f2dc.method import DC
from fedskew_nb.methods.fdse.method import FDSE
from fedskew_nb.methods.fedddl.method import DEC
from fedskew_nb.methods.rfeddis.method import RFedDis

ALL = [MOON, FedRCL, FedIIR, MCGDM]
OFF = {'MOON': dict(mu=0), 'FedRCL': dict(weight=0, beta=0), 'FedIIR': dict(gamma=0),
       'MCGDM': dict(lam_intra=0, lam_inter=0, strong=0)}

@pytest.fixture(scope='module')
def suite(suite): return halved(suite)

@pytest.fixture(scope='module')
def few(suite): return first(suite, 3, tests=4)

@pytest.fixture(scope='module')
def fedavg(suite): return run(FedAvg, suite, stack=False)

# ---- against plain loops

def unmoved(m, f):
    "What f says of a copy of m whose parameters are m's own, so that BatchNorm statistics move once only."
    twin = copy.deepcopy(m)
    for (_, mod), (_, own) in zip(twin.named_modules(), m.named_modules()):
        for n in own._parameters: mod._parameters[n] = own._parameters[n]
    return f(twin)

def task(m, x, y): return F.cross_entropy(m.head(plain.feature(m, x)), y)

def plain_moon(net, suite, share):
    def loss(m, received, c, r, x, y, memory):
        x = pixels(x, suite)
        previous = at(m, memory.get(c.id, received.state_dict()))
        con = unmoved(m, lambda t: plain.moon(t, received, previous, x, 5., .5))
        return con+task(m, x, y)
    def after(clients, received, sent, memory):
        for c, m in zip(clients, sent): memory[c.id] = copy.deepcopy(m.state_dict())
    return plain.run(net, suite, share, loss, after)

def plain_rcl(net, suite, share, before=True):
    def loss(m, received, c, r, x, y, memory):
        x = pixels(x, suite)
        return unmoved(m, lambda t: plain.rcl(t, x, y, before))+task(m, x, y)
    return plain.run(net, suite, share, loss)

def plain_iir(net, suite, share):
    def loss(m, received, c, r, x, y, memory):
        x = pixels(x, suite)
        mean = memory.get('mean', (0, 0))
        return unmoved(m, lambda t: plain.iir(t, x, y, mean, 1.))+task(m, x, y)
    def after(clients, received, sent, memory):
        x, y = torch.cat([c.train.x for c in clients]), torch.cat([c.train.y for c in clients])
        with torch.no_grad():
            f = plain.feature(received, pixels(x, suite))
            new = plain.of_head(received.head.weight, received.head.bias, f, y)
        memory['mean'] = [.95*a+.05*b for a, b in zip(memory.get('mean', (0, 0)), new)]
    return plain.run(net, suite, share, loss, after)

def plain_mcgdm(net, suite, share, changed=False):
    def loss(m, received, c, r, x, y, memory):
        g = memory.setdefault(('stream', c.id, r), generator(0, r, c.id, 'all', 'GradientMatching.view'))
        heads = [h for k, h in memory.get('heads', {}).items() if k != c.id]
        return plain.mcgdm(m, pixels(x, suite), pixels(strong_view(x, g), suite), y, heads, .7, .7, changed)
    def after(clients, received, sent, memory):
        heads = [tuple(v.detach().clone() for v in m.head.parameters()) for m in sent]
        memory.setdefault('heads', {}).update({c.id: h for c, h in zip(clients, heads)})
    return plain.run(net, suite, share, loss, after)

HOW = dict(local_steps=plain.STEPS, batch_size=plain.BATCH, lr=plain.LR, momentum=plain.MOMENTUM,
           weight_decay=0., channels_last=False, stack=False)
LOOPS = [(MOON, plain_moon), (FedIIR(gamma=1.), plain_iir),
         (FedRCL, plain_rcl), (FedRCL(before_relu=False), partial(plain_rcl, before=False)),
         (MCGDM, plain_mcgdm), (MCGDM('released'), partial(plain_mcgdm, changed=True))]

@pytest.fixture(scope='module')
def doubled(suite):
    how = dict(channels_last=False, stack=False)
    def train(method, suite): return rounds_of(method, suite, small().double(), **how)
    return trained_once(suite, train)

@pytest.mark.parametrize('method,loop', LOOPS, ids=name_of)
def test_equals_a_plain_loop_where_two_of_four_take_part(suite, doubled, method, loop):
    net = small().double()
    want = loop(net, suite, .5)
    fed = rounds_of(method, suite, net, rounds=3, participation=.5, **HOW)
    for n, v in want.items():
        gap, size = float((fed.server[n].double()-v.double()).norm()), float(v.double().norm())
        assert gap <= 1e-9*max(1., size), n
    other = doubled(FedAvg)
    assert float((fed.server['head.weight']-other.server['head.weight']).abs().max()) > 1e-5

def test_a_strong_view_by_hand():
    x, key = torch.randint(0, 256, (2, 3, 9, 9), dtype=torch.uint8, generator=generator('images')), ('view',)
    g = generator(*key)
    side = (.7+.3*torch.rand(2, generator=g)).sqrt()
    shift = (1-side)[:, None]*(-1+2*torch.rand(2, 2, generator=g))
    factors = torch.stack([.6+.8*torch.rand(2, 1, 1, 1, generator=g).flatten() for _ in range(3)], 1)
    for i, v in enumerate(strong_view(x, generator(*key))):
        want = plain.view(x[i], float(side[i]), *shift[i].tolist(), factors[i].tolist())
        assert (v.double()-want.clamp(0, 255)).abs().max() <= .51

# ---- limits

@pytest.mark.parametrize('method', ALL, ids=name_of)
def test_switched_off_it_is_fedavg_bit_for_bit(suite, fedavg, method):
    off, base = run(method(**OFF[method.name]), suite, stack=False), fedavg
    assert equal(off, base) and off.history.rows == base.history.rows
    assert not equal(rounds_of(method, suite, stack=False), base)

@pytest.mark.parametrize('method', [MOON, FedRCL, FedIIR], ids=name_of)
def test_identical_clients_with_full_batches_are_one(suite, method):
    "Three clients with one client's images, one step each: the step of that client alone, SGD on all images."
    one = suite.clients[0]
    alike = replace(suite, clients=[replace(one, id=k) for k in range(3)])
    how = dict(local_steps=1, batch_size=len(one.train), stack=False)
    def server(s): return rounds_of(method, s, small().double(), **how).server
    a, b = server(alike), server(replace(suite, clients=[one]))
    assert all((a[n].double()-b[n].double()).abs().max() < 1e-9 for n in a)

class Spy(Mechanism):
    "Is the received model at the end of a round what it was, frozen and in eval?"
    def start(self, c): c.cache['before'] = {n: v.clone() for n, v in c.received.state_dict().items()}
    def finish(self, c):
        assert same(c.cache['before'], c.received.state_dict())
        assert not any(m.training for m in c.received.modules())
        assert all(not p.requires_grad and p.grad is None for p in c.received.parameters())
        c.state['looked'] = c.state.get('looked', 0)+1
        return {}

@pytest.mark.parametrize('method', ALL, ids=name_of)
def test_frozen_nets_stay_as_they_are(suite, method):
    fed = rounds_of(method+Method('Spy', Spy()), suite)
    assert all(fed.states[c.id]['Spy']['looked'] == 2 for c in suite.clients)

def test_moons_first_round_is_fedavgs(suite):
    "Last and received model are one: log 2, and no gradient but rounding's."
    def far(rounds):
        a, b = (rounds_of(m, suite, rounds=rounds).server for m in (MOON, FedAvg))
        return max(float((a[n]-b[n]).abs().max()) for n in a)
    assert far(1) < 1e-4 < far(2)

def test_moon_leaves_the_last_model_as_it_was(suite):
    fed = fed_of(MOON, suite, rounds=3)
    fed.one_round()
    previous = fed.states[0]['ModelContrast']['previous']
    kept, seen = {n: v.clone() for n, v in previous.items()}, dict(previous=dict(previous))
    fed.train_client(fed.clients[0], states={'ModelContrast': seen})
    assert same(kept, fed.states[0]['ModelContrast']['previous']) and not same(kept, seen['previous'])

# ---- memory

@pytest.mark.parametrize('method', ALL, ids=name_of)
def test_goes_on_bit_for_bit(few, method, tmp_path):
    whole, rest = whole_and_resumed(lambda **kw: fed_of(method, few, **kw), tmp_path/'half')
    assert equal(whole, rest) and whole.history == rest.history

@pytest.mark.parametrize('method', ALL, ids=name_of)
def test_lanes_do_not_matter(few, method):
    one, three = (rounds_of(method, few, lanes=n, stack=False) for n in (1, 3))
    assert equal(one, three)

def test_an_absent_client_keeps_its_last_model(suite):
    fed = fed_of(MOON, suite, rounds=4, participation=.5)
    def previous(k): return fed.states[k].get('ModelContrast', {}).get('previous')
    fed.one_round()
    was = {k: previous(k) for k in fed.states}
    fed.one_round()
    for k in was.keys()-set(fed.history.rounds[1]['participants']):
        assert previous(k) is None if was[k] is None else same(was[k], previous(k))

def test_the_heads_of_the_absent_stay_known(suite):
    fed, known = fed_of(MCGDM, suite, rounds=4, participation=.5), set()
    for _ in range(3):
        fed.one_round()
        known |= set(fed.history.rounds[-1]['participants'])
        assert set(fed.memory['GradientMatching']['heads']) == known
        for k in range(4): assert set(fed.state.sent_to(k)['heads']) == known-{k}

def test_what_travels(suite):
    def last(method): return rounds_of(method, suite, local_steps=1).history.rounds[1]
    head, base = 4*(128*7+7), last(FedAvg)                  # bytes of a head
    def beside(method):
        row = last(method)
        return tuple((row[k]-base[k])//head for k in ('up', 'down'))
    assert {m.name: beside(m) for m in ALL} == dict(MOON=(0, 0), FedRCL=(0, 0), FedIIR=(4, 4), MCGDM=(4, 4*3))

# ---- odd data

@pytest.mark.parametrize('method', ALL, ids=name_of)
def test_odd_clients(suite, method):
    for odd in odd_suites(suite):
        fed = rounds_of(method, odd)
        assert len(fed.clients) == len(odd.clients) and all(v.isfinite().all() for v in fed.server.values())

def test_contrast_without_partners_is_nothing():
    f = torch.randn(3, 4, generator=generator('f')).requires_grad_()
    same_class = torch.ones(3, 3, dtype=torch.bool)
    assert attract(cosines(f), same_class, .05).abs() < 1e-6                        # no negatives
    alone = torch.eye(3, dtype=torch.bool)
    assert diverge(cosines(f), alone, .05, .7) < 1e-12                              # nobody to diverge from

def test_features_that_are_all_zero_have_a_gradient():
    f = torch.zeros(3, 4, requires_grad=True)
    alone, same_class = torch.eye(3, dtype=torch.bool), torch.ones(3, 3, dtype=torch.bool)
    (attract(cosines(f), alone, .05)+diverge(cosines(f), same_class, .05, .7)).backward()
    assert f.grad.isfinite().all()

@pytest.mark.parametrize('method,kw,says', [
    (MOON, dict(mu=-1), 'mu is -1'), (MOON, dict(tau=0), 'tau is 0'),
    (MOON, dict(tau=float('nan')), 'tau is nan'),
    (MOON, dict(proj=-2), 'proj is -2'), (FedRCL, dict(tau=-.1), 'tau=-0.1'),
    (FedRCL, dict(threshold=1.5), 'threshold=1.5'), (FedRCL, dict(beta=float('inf')), 'beta is inf'),
    (FedIIR, dict(gamma=-1), 'gamma is -1'), (FedIIR, dict(ema=1), 'ema is 1'),
    (MCGDM, dict(lam_inter=-.1), 'lam_inter is -0.1'), (MCGDM, dict(strong=2), 'strong is 2')], ids=name_of)
def test_bad_numbers(method, kw, says):
    with pytest.raises(ValueError, match=says): method(**kw)

# ---- nets

def test_levels_of_the_nets():
    stages = ('stem', 'layer1', 'layer2', 'layer3', 'layer4')
    assert block_names(resnet10(7, width=8)) == [f'body.{n}' for n in stages]
    assert block_names(small()) == [f'body.block{k}' for k in (1, 2, 3)]
    assert block_names(small(), 'body.block1.bn') == ['body.block1.bn']
    with pytest.raises(ValueError, match='body.block3'): block_names(small(), 'body.block7')
    with seeded(0): one = Net(nn.Conv2d(3, 4, 3), gap(), nn.Linear(4, 7))
    with pytest.raises(ValueError, match='shows none'): FedRCL.adapt(one)

def level(net, x, i):
    "What FedRCL reads of a net's block."
    return list(FedRCL.adapt(net).train()(x).aux['levels'].values())[i]

def test_a_resnet_is_read_before_its_last_relu():
    x, net = images(4), resnet18(7, width=8).train()
    one, two = net.body.layer2
    z = one(net.body.layer1(net.body.stem(x)))
    total = two.bn2(two.conv2(two.bn1(two.conv1(z)).clamp(min=0)))+z
    assert torch.allclose(level(net, x, 2), total.mean((2, 3)), atol=1e-6) and (total < 0).any()

def test_a_relu_that_a_block_calls_twice_is_read_at_the_end():
    "torchvision's blocks have one, and it writes in place."
    with seeded(0): net = as_net(torchvision.models.resnet18(), 7).train()
    x, inner = images(4), []
    want = copy.deepcopy(net)
    want.body[5][1].bn2.register_forward_hook(lambda m, args, out: inner.append(out.clone()))
    z = want.body[5][0](want.body[:5](x))
    want.body[5][1](z)
    assert torch.allclose(level(net, x, 2), (inner[0]+z).mean((2, 3)), atol=1e-5)

def test_hooks_follow_copies_and_are_silent_in_eval():
    net = FedRCL.adapt(resnet10(7, width=8))
    twin, x = copy.deepcopy(net), torch.randn(2, 3, 32, 32, generator=generator('x'))
    assert [v.shape[1] for v in twin.train()(x).aux['levels'].values()] == [8, 8, 16, 32, 64]
    assert not net.tray and 'levels' not in twin.eval()(x).aux

def net_for(s): return small_conv(s.n_classes, size=s.image_size, width=4)

def test_fedrcl_stacked_is_fedrcl_one_by_one():
    w4 = noise_suite(4, 16)
    how = dict(rounds=1, local_steps=1)
    a, b = (rounds_of(FedRCL, w4, net_for(w4).double(), stack=s, **how).server for s in (True, False))
    assert max(float((a[n].double()-b[n].double()).abs().max()) for n in a) < 1e-9

@pytest.mark.parametrize('method', [FedIIR, MCGDM], ids=name_of)
def test_two_do_not_stack(method):
    w4 = noise_suite(4, 16)
    with pytest.raises(ValueError, match='cannot be stacked'): fed_of(method, w4, net_for(w4), stack=True)

def test_a_head_without_weights_has_no_gradient():
    "It is FedAvg, then, and no word of torch's on an empty list."
    w4 = noise_suite(4, 16)
    def net():
        with seeded(0): body = nn.Conv2d(3, w4.n_classes, 3, padding=1)
        return Net(body, gap(), nn.Identity())
    a, b = (rounds_of(m, w4, net(), rounds=2, local_steps=2, stack=False) for m in (FedIIR, FedAvg))
    assert same(a.server, b.server)

def test_discrepancy():
    g = dict(w=torch.randn(3, 5, generator=generator('g')), b=torch.randn(3, generator=generator('b')))
    assert abs(float(discrepancy(g, {n: 4*v for n, v in g.items()}))) < 1e-6
    assert abs(float(discrepancy(g, {n: -v for n, v in g.items()}))-2) < 1e-6

# ---- with others

OTHERS = [Method('DEC', DEC()), DC, FDSE, DFL]

@pytest.mark.parametrize('other', OTHERS, ids=name_of)
def test_moon_and_fedrcl_add_to_others(few, other):
    for m in (MOON, FedRCL):
        fed = fed_of(m+other, few)
        fed.one_round()
        terms = fed.history.rounds[-1]['terms']
        assert ('moon' if m is MOON else 'attract') in terms and len(terms) > 1

def test_the_projection_head(suite):
    fed = rounds_of(MOON(proj=6), suite)
    assert fed.server['head.weight'].shape == (7, 6) and 'pool.fc2.weight' in fed.server

REFUSED = [
    (lambda: MCGDM+RFedDis, ('GradientMatching', 'TwoHeads')),
    (lambda: (MOON(proj=8)+DFL).adapt(small()), ('ModelContrast', 'Branches')),
    (lambda: MOON+MOON(mu=1), ('ModelContrast', 'twice'))]

@pytest.mark.parametrize('make,both', REFUSED)
def test_refused_by_name(make, both):
    with pytest.raises(Contradiction) as e: make()
    assert all(b in str(e.value) for b in both)

AS_ITS_AUTHORS = {'FedRCL': dict(lr=.1, momentum=0., clip=10.)}

@pytest.mark.parametrize('method', ALL, ids=name_of)
def test_learns(method):
    s = first(load_suite('skew-digits', 'tiny'), 3, tests=20)
    how = dict(rounds=3, local_steps=10, batch_size=32, lr=.05) | AS_ITS_AUTHORS.get(method.name, {})
    fed = Federation(method, net_for(s), s, device='cpu', **how)
    for _ in range(3): fed.one_round()
    fed.score()
    rows = [r for r in fed.history.rows if r['view'] == 'global' and r['moment'] == 'post_agg']
    acc = sum(r['correct'] for r in rows)/sum(r['n'] for r in rows)
    print(f'{method.name} {acc:.3f}')
    assert acc > .14                                         # chance is .1
