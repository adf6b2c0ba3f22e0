"""FedAvg, FedProx, FedBN, SiloBN and Local in fifty lines of plain PyTorch, and the engine beside them.

No lane, no worker, no rule; two of three clients take part in a round.
"""
import copy
import pytest, torch
import torch.nn.functional as F
from feds import cut, far, halved, name_of
from plain_base import at, averaged, epochs, pixels, present
from fedskew_nb.nets.models import small_conv
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.device import threads_of
from fedskew_nb import SCAFFOLD, FedNova
from fedskew_nb.engine.federation import Federation
from fedskew_nb.engine.setting import setting_for
from fedskew_nb.methods.baselines.average import FedAvg, FedProx
from fedskew_nb.methods.baselines.personal import FedBN, Local

LR, MOMENTUM, DECAY, BATCH, EPOCHS, ROUNDS, SHARE = .01, .9, 1e-4, 16, 2, 3, .7

def trained(net, start, suite, client, round_no, dtype, mu, adamw):
    "The state of a model that was trained on one client's images, with a pull to its start."
    m = at(net, start).train()
    if adamw: opt = torch.optim.AdamW(m.parameters(), LR, (MOMENTUM, .999), weight_decay=DECAY)
    else: opt = torch.optim.SGD(m.parameters(), LR, momentum=MOMENTUM, weight_decay=DECAY)
    for i in epochs(EPOCHS, len(client.train.y), BATCH, round_no, client.id):
        opt.zero_grad()
        loss = F.cross_entropy(m(pixels(client.train.x[i], suite, dtype)).logits, client.train.y[i])
        if mu: loss = loss+mu/2*sum(((w-start[n])**2).sum() for n, w in m.named_parameters())
        loss.backward()
        opt.step()
    return m.state_dict()

def batchnorms(net):
    "Names of the state that belong to a BatchNorm."
    found = [(m, mod) for m, mod in net.named_modules() if isinstance(mod, torch.nn.BatchNorm2d)]
    return {f'{m}.{n}' for m, mod in found for n in mod.state_dict()}

def statistics(net): return {n for n in batchnorms(net) if n.split('.')[-1] not in ('weight', 'bias')}

def plain_loop(net, suite, kept, dtype, mu, adamw=False):
    "The models of all clients, which keep the entries `kept` (FedBN: Li et al. 2021, Alg. 1)."
    server, mine = copy.deepcopy(net.state_dict()), {c.id: {} for c in suite.clients}
    for r in range(ROUNDS):
        here = present(suite.clients, SHARE, r)
        sent = [trained(net, server | mine[c.id], suite, c, r, dtype, mu, adamw) for c in here]
        mine |= {c.id: {n: s[n] for n in kept} for c, s in zip(here, sent)}
        mean = averaged(sent, [len(c.train.y) for c in here])
        server = {n: server[n] if n in kept else mean[n] for n in server}
    return [server | own for own in mine.values()]

@pytest.fixture(scope='module')
def suite():
    "Two batches; and one image more, which joins the second; and a third."
    return halved(cut(load_suite('skew-digits', size='tiny'), (32, 33, 40), tests=8))

def nothing(net): return set()
def everything(net): return set(net.state_dict())

LOOPS = [(FedAvg, nothing, 0), (FedBN, batchnorms, 0), (FedBN(affine=False), statistics, 0),
         (Local, everything, 0), (FedProx(mu=.5), nothing, .5)]

HOW = dict(rounds=ROUNDS, local_epochs=EPOCHS, batch_size=BATCH, lr=LR, momentum=MOMENTUM,
           weight_decay=DECAY, participation=SHARE, channels_last=False)

@pytest.mark.parametrize('method,kept,mu', LOOPS, ids=name_of)
@pytest.mark.parametrize('dtype,eps', [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str)
def test_equals_plain_loop(suite, method, kept, mu, dtype, eps):
    net = small_conv(suite.n_classes, size=suite.image_size, width=4, seed=0).to(dtype)
    with threads_of(1): want = plain_loop(net, suite, kept(net), dtype, mu)
    fed = Federation(method, net, suite, device='cpu', **HOW)
    fed.fit()
    for c, model in zip(suite.clients, want):
        got = fed.state_of(c.id)
        assert got.keys() == model.keys()
        for n, v in model.items():
            gap, size = float((got[n].double()-v.double()).norm()), float(v.double().norm())
            assert gap <= eps*max(1., size), n
    assert far({n: p for n, p in net.named_parameters()}, want[0]) > 1e-3          # the loop did train

@pytest.mark.parametrize('stack', [False, True])
def test_adamw_equals_plain_loop(suite, stack):
    "Emptied each round, with its count of steps; alone, and several clients as one."
    net = small_conv(suite.n_classes, size=suite.image_size, width=4, seed=0).double()
    with threads_of(1): want = plain_loop(net, suite, set(), torch.float64, 0, adamw=True)
    fed = Federation(FedAvg, net, suite, device='cpu', adamw=True, stack=stack, **HOW)
    fed.fit()
    assert far(fed.server, want[0]) < 1e-6 < 1e-3 < far(dict(net.named_parameters()), want[0])

def test_equations_of_sgd_refuse_adamw():
    for method in (SCAFFOLD, FedNova):
        with pytest.raises(ValueError, match=f'{method.name} has equations of SGD'):
            setting_for(method, adamw=True)
