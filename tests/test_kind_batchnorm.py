"FixBN and HBN: against plain loops and the arithmetic of HBN's released layer, limits, who is refused."
import copy
from dataclasses import replace
import pytest, torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from feds import batches_of, equal, fed_of, first, rounds_of, same, sizes_of, small
from fedskew_nb import load_suite
from fedskew_nb.analysis.probes import adabn
from fedskew_nb.core.method import Method
from fedskew_nb.core.net import Net
from fedskew_nb.data.images import Data
from fedskew_nb.engine.device import threads_of
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.baselines.personal import (
    FedBN, FixBN, FixStatistics, HBN, HybridNorm, MixStatistics, hybrid, hybrid_norms, pooled)
from fedskew_nb.nets.models import gap, seq

SOME = settings(max_examples=30, deadline=None, derandomize=True)
HOW = dict(local_steps=None, local_epochs=1, batch_size=8, lr=.05, momentum=0., weight_decay=0.,
           channels_last=False, stack=False)

@pytest.fixture(scope='module')
def suite():
    s = first(load_suite('emoji-pacs', 'tiny'), 3)
    return replace(s, clients=[replace(c, train=c.train[:n]) for c, n in zip(s.clients, (16, 9, 24))])

def close(a, b, eps=1e-9): return torch.allclose(a.double(), b.double(), rtol=0, atol=eps)

def stepped(net, batches, before=lambda net: None):
    "Plain SGD steps; `before` each, the net may be set."
    for x, y in batches:
        net.train()
        before(net)
        grads = torch.autograd.grad(F.cross_entropy(net(x).logits, y), list(net.parameters()))
        with torch.no_grad():
            for p, g in zip(net.parameters(), grads): p -= HOW['lr']*g
    return net

def of_state(net, state):
    net = copy.deepcopy(net)
    net.load_state_dict(state)
    return net

def averaged(states, p):
    "Floats by shares, counters the largest."
    first = states[0]
    return {n: sum(q*s[n] for q, s in zip(p, states)) if v.is_floating_point()
            else torch.stack([s[n] for s in states]).max() for n, v in first.items()}

# ---- FixBN

def in_eval(net):
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d): m.eval()

@pytest.mark.parametrize('share,rounds,fixed', [(.5, 4, 2), (.5, 3, 2), (0., 2, 0), (.9, 2, 2)])
def test_fixbn_is_a_plain_loop(suite, share, rounds, fixed):
    "`fixed`: the first round that freezes."
    fed = fed_of(FixBN(share=share), suite, small().double(), **HOW | dict(rounds=rounds))
    net, sizes = small().double(), sizes_of(fed)
    with threads_of(1):
        for r, todo in enumerate(batches_of(fed, rounds)):
            before = in_eval if r >= fixed else lambda net: None
            states = [stepped(copy.deepcopy(net), b, before).state_dict() for b in todo.values()]
            net = of_state(net, averaged(states, [sizes[k]/sum(sizes.values()) for k in todo]))
    for _ in range(rounds): fed.one_round()
    for n, v in net.state_dict().items(): assert close(fed.server[n], v), n

def test_fixbn_with_all_rounds_is_fedavg_bit_for_bit(suite):
    assert equal(*(rounds_of(m, suite, **HOW) for m in (FedAvg, FixBN(share=1.))))
    assert not equal(*(rounds_of(m, suite, **HOW) for m in (FedAvg, FixBN)))

def test_only_batchnorm_rests():
    "Noise goes on, and a frozen BatchNorm was resting before."
    net = small()
    net.add_module('noise', nn.Dropout(.5))
    class Client: pass
    c = Client()
    c.net, c.round, c.rounds = net.train(), 1, 2
    assert FixStatistics().batch(c, {'x': 1}) == {'x': 1}
    still = {n for n, m in net.named_modules() if not m.training}
    assert still and all(isinstance(net.get_submodule(n), nn.BatchNorm2d) for n in still)

def test_a_client_of_one_image_trains_where_statistics_rest(suite):
    one = Data(suite.clients[0].train.x[:1], suite.clients[0].train.y[:1])
    lonely = replace(suite, clients=[replace(suite.clients[0], train=one), *suite.clients[1:]])
    for m in (FixBN(share=0.), HBN):
        assert all(torch.isfinite(v).all() for v in rounds_of(m, lonely, **HOW).server.values())

# ---- HBN's layer

def released(bn, v, a, g):
    "One batch through the layer as HBN's authors write it: (output, mean, var)."
    m = (1-a)*g[0]+a*v.mean((0, 2, 3))
    s = (1-a)*g[1]+a*v.var((0, 2, 3), unbiased=False)
    y = (v-m[None, :, None, None])/(s[None, :, None, None]+bn.eps).sqrt()
    return y*bn.weight[:, None, None]+bn.bias[:, None, None], m, s

def dice(seed): return torch.Generator().manual_seed(seed)

def norm_of(C, seed, kind=nn.BatchNorm2d):
    "A BatchNorm that has seen something."
    bn = kind(C).double()
    g = dice(seed)
    with torch.no_grad():
        for p in bn.parameters(): p.add_(torch.randn(C, generator=g).double())
    bn(3+torch.randn(6, C, *[4]*(2 if kind is nn.BatchNorm2d else 0), generator=g).double())
    return bn

@SOME
@given(st.integers(1, 4), st.integers(1, 6), st.floats(-4, 4), st.integers(0, 99))
def test_the_layer_is_the_released_one(C, B, mix, seed):
    bn, v = norm_of(C, seed), torch.randn(B, C, 3, 3, generator=dice(seed+1)).double()
    layer = hybrid(bn).train()
    with torch.no_grad(): layer.mix.fill_(mix)
    layer.seen = []
    out, m, s = released(bn, v, layer.mix.detach().sigmoid(), (bn.running_mean, bn.running_var))
    assert close(layer(v), out) and close(layer.eval()(v), bn.eval()(v))
    [(n, mean, var)] = layer.seen
    assert n == B and close(mean, m) and close(var, s)

@pytest.mark.parametrize('kind,shape', [(nn.BatchNorm1d, (5, 3)), (nn.BatchNorm1d, (5, 3, 4)),
                                        (nn.BatchNorm2d, (5, 3, 4, 4)), (nn.BatchNorm3d, (5, 3, 2, 4, 4))])
@pytest.mark.parametrize('affine', [True, False])
def test_every_kind_of_batchnorm(kind, shape, affine):
    bn, v = kind(3, affine=affine), torch.randn(shape, generator=dice(0))
    layer = hybrid(bn)
    with torch.no_grad(): layer.mix.fill_(40.)
    assert close(layer.train()(v), bn.train()(v), 1e-5) and layer(v.bfloat16()).dtype == torch.bfloat16

def test_what_is_frozen_or_keeps_no_statistics_stays_as_it_is():
    frozen, blind = nn.BatchNorm2d(3).requires_grad_(False), nn.BatchNorm2d(3, track_running_stats=False)
    for m in (frozen, blind, nn.GroupNorm(1, 3), nn.ReLU()): assert hybrid(m) is m

def test_names_and_answers_of_the_net_stay(suite):
    net, x = small(), torch.randn(4, 3, 32, 32, generator=dice(0))
    net(x)
    new = HBN.adapt(copy.deepcopy(net), 0)
    more = new.state_dict().keys()-net.state_dict().keys()
    assert more == {f'{n}.mix' for n in hybrid_norms(new)}
    assert net.state_dict().keys() <= new.state_dict().keys()
    assert close(new.eval()(x).logits, net.eval()(x).logits, 1e-5)

@SOME
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 99))
def test_pooled_is_the_variance_of_all(sizes, seed):
    parts = [5*torch.randn(n, 3, generator=dice(seed+i)).double() for i, n in enumerate(sizes)]
    p = torch.tensor(sizes).double()/sum(sizes)
    mean, var = pooled(p, *(torch.stack([f(v) for v in parts]) for f in
                            (lambda v: v.mean(0), lambda v: v.var(0, unbiased=False))))
    every = torch.cat(parts)
    assert close(mean, every.mean(0)) and close(var, every.var(0, unbiased=False))

# ---- HBN's rounds

@pytest.mark.parametrize('rate', [1., .3])
def test_hbn_is_a_plain_loop(suite, rate):
    "Measure with the received model, train from it, pool: three rounds, every client's own mix."
    fed = fed_of(HBN(rate=rate), suite, small().double(), **HOW | dict(rounds=3))
    net, sizes, mixes = HBN.adapt(small().double(), 0), sizes_of(fed), {}
    images = {c.id: fed.worker.images(c.train.x) for c in fed.clients}
    with threads_of(1):
        for todo in batches_of(fed, 3):
            p, sent = torch.tensor([sizes[k] for k in todo]).double(), []
            old = copy.deepcopy(net.state_dict())
            for k, b in todo.items():
                own = copy.deepcopy(net)
                for n, m in hybrid_norms(own).items():
                    m.global_mean, m.global_var, m.seen = m.running_mean.clone(), m.running_var.clone(), []
                    if k in mixes: m.mix.data.copy_(mixes[k][n])
                with torch.no_grad(): own.train()(images[k])
                passed = {n: m.seen[0][1:] for n, m in hybrid_norms(own).items()}
                stepped(own, b)
                mixes[k] = {n: m.mix.detach().clone() for n, m in hybrid_norms(own).items()}
                sent.append((own.state_dict(), passed))
            p = p/p.sum()
            new = averaged([s for s, _ in sent], p.tolist())
            for n in hybrid_norms(net):
                both = pooled(p, *(torch.stack([seen[n][i] for _, seen in sent]) for i in (0, 1)))
                for end, v in zip(('mean', 'var'), both):
                    name = f'{n}.running_{end}'
                    new[name] = old[name]+rate*(v-old[name])
            net.load_state_dict(new)
    for _ in range(3): fed.one_round()
    for n, v in net.state_dict().items(): assert close(fed.server[n], v), n
    for k, own in mixes.items():
        assert all(close(fed.states[k]['MixStatistics'][n], v) for n, v in own.items())

def test_measuring_in_pieces_is_measuring_at_once_for_the_first_layer(suite):
    states = [rounds_of(HBN(size=n), suite, rounds=1, **HOW).server for n in (64, 5)]
    layer = 'body.block1.bn.running_mean'
    assert close(states[0][layer], states[1][layer], 1e-5)

def test_equal_clients_pool_to_what_one_has(suite):
    c = suite.clients[0]
    three = replace(suite, clients=[replace(c, id=k) for k in range(3)])
    full = HOW | dict(batch_size=16)
    a, b = (rounds_of(HBN, s, small().double(), **full) for s in (three, replace(suite, clients=[c])))
    assert all(close(v, b.server[n]) for n, v in a.server.items())

def test_one_model_answers_for_all_and_bytes_are_fedavgs_and_the_mix(suite):
    fed, avg = (rounds_of(m, suite, **HOW) for m in (HBN, FedAvg))
    assert not fed.is_personal()
    mixes = sum(m.mix.numel() for m in hybrid_norms(fed.net).values())
    assert fed.history.rounds[0]['up']-avg.history.rounds[0]['up'] == 3*4*mixes
    assert 'state does not show' in fed_of(HBN, suite).plan()['why']

def test_a_resumed_run_is_bit_equal(suite, tmp_path):
    for method in (HBN, FixBN):
        how = HOW | dict(rounds=4, participation=.7)
        whole, half = fed_of(method, suite, **how), fed_of(method, suite, **how)
        for _ in range(2): half.one_round()
        half.save(tmp_path/'half')
        rest = fed_of(method, suite, **how).load(tmp_path/'half')
        for _ in range(4): whole.one_round()
        for _ in range(2): rest.one_round()
        assert equal(whole, rest)

def test_reestimated_statistics_are_those_of_the_images(suite):
    "AdaBN on a hybrid net is AdaBN on the plain one: no mix has a say."
    net = rounds_of(HBN, suite, **HOW).model()
    plain = small()
    plain.load_state_dict({n: v for n, v in net.state_dict().items() if not n.endswith('.mix')})
    for m in (net, plain): m.mean, m.std = suite.mean, suite.std
    a, b = (adabn(m, suite.clients[0].train).state_dict() for m in (net, plain))
    assert all(close(v, a[n], 1e-5) for n, v in b.items())

def test_beside_fedbn_the_clients_keep_their_layers(suite):
    fed = rounds_of(HBN+FedBN, suite, **HOW)
    kept = {n for own in fed.own.values() for n in own}
    assert {f'{n}.mix' for n in hybrid_norms(fed.net)} <= kept
    assert not same(fed.state_of(0), fed.state_of(1))

# ---- refusals

def without():
    body = seq(conv=nn.Conv2d(3, 4, 3, padding=1), relu=nn.ReLU())
    return Net(body, pool=gap(), head=nn.Linear(4, 7))

def resting():
    net = small()
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d): m.requires_grad_(False)
    return net

@pytest.mark.parametrize('method', [FixBN, HBN], ids=['FixBN', 'HBN'])
@pytest.mark.parametrize('net', [without, resting])
def test_a_net_with_nothing_to_change_is_refused(suite, method, net):
    with pytest.raises(ValueError, match='no BatchNorm that is not frozen'): fed_of(method, suite, net())

@pytest.mark.parametrize('make,says', [
    (lambda: FixBN(share=1.1), 'share is 1.1'), (lambda: FixBN(share=float('nan')), 'share is nan'),
    (lambda: HBN(rate=0.), 'rate is 0.0'), (lambda: HBN(rate=float('nan')), 'rate is nan'),
    (lambda: HBN(size=0), 'size is 0')])
def test_bad_numbers(make, says):
    with pytest.raises(ValueError, match=says): make()

def test_other_names():
    assert isinstance(HybridNorm(nn.BatchNorm2d(2)), nn.modules.batchnorm._BatchNorm)
    assert MixStatistics in {type(m) for m in HBN.mechanisms} and isinstance(HBN, Method)
