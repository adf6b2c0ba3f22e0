"""Federated averaging and FedBN in forty lines of plain PyTorch, and the engine beside them.

No lane, no worker, no rule.
"""
import copy
import pytest, torch
import torch.nn.functional as F
from feds import cut, far
from plain_base import at, averaged, epochs, pixels
from fedskew_nb.core.models import small_conv
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.device import threads_of
from fedskew_nb.engine.federation import Federation
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.baselines.personal import FedBN

LR, MOMENTUM, DECAY, BATCH, EPOCHS, ROUNDS = .01, .9, 1e-4, 32, 2, 2

def trained(net, start, suite, client, round_no, dtype):
    "The state of a model that was trained on one client's images."
    m = at(net, start).train()
    opt = torch.optim.SGD(m.parameters(), LR, momentum=MOMENTUM, weight_decay=DECAY)
    for i in epochs(EPOCHS, len(client.train.y), BATCH, round_no, client.id):
        opt.zero_grad()
        F.cross_entropy(m(pixels(client.train.x[i], suite, dtype)).logits, client.train.y[i]).backward()
        opt.step()
    return m.state_dict()

def batchnorms(net):
    "Names of the state that belong to a BatchNorm."
    found = [(m, mod) for m, mod in net.named_modules() if isinstance(mod, torch.nn.BatchNorm2d)]
    return {f'{m}.{n}' for m, mod in found for n in mod.state_dict()}

def plain_loop(net, suite, keep_bn, dtype):
    "The models of all clients; with `keep_bn`, they keep their BatchNorm layers (Li et al. 2021, Alg. 1)."
    kept = batchnorms(net) if keep_bn else set()
    server, sizes = copy.deepcopy(net.state_dict()), [len(c.train.y) for c in suite.clients]
    mine = [{} for _ in suite.clients]
    for r in range(ROUNDS):
        sent = [trained(net, server | own, suite, c, r, dtype) for c, own in zip(suite.clients, mine)]
        mine = [{n: s[n] for n in kept} for s in sent]
        mean = averaged(sent, sizes)
        server = {n: server[n] if n in kept else mean[n] for n in server}
    return [server | own for own in mine]

@pytest.fixture(scope='module')
def suite():
    "Two batches; and one image more, which joins the second; and a third."
    return cut(load_suite('skew-digits', size='tiny'), (64, 65, 72), tests=8)

@pytest.mark.parametrize('method,keep_bn', [(FedAvg, False), (FedBN, True)], ids=['FedAvg', 'FedBN'])
@pytest.mark.parametrize('dtype,eps', [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=str)
def test_equals_plain_loop(suite, method, keep_bn, dtype, eps):
    net = small_conv(suite.n_classes, size=suite.image_size, width=8, seed=0).to(dtype)
    with threads_of(1): want = plain_loop(net, suite, keep_bn, dtype)
    how = dict(rounds=ROUNDS, local_epochs=EPOCHS, batch_size=BATCH, lr=LR, momentum=MOMENTUM,
               weight_decay=DECAY, channels_last=False)
    fed = Federation(method, net, suite, device='cpu', **how)
    fed.fit()
    for c, model in zip(suite.clients, want):
        got = fed.state_of(c.id)
        assert got.keys() == model.keys()
        for n, v in model.items():
            gap, size = float((got[n].double()-v.double()).norm()), float(v.double().norm())
            assert gap <= eps*max(1., size), n
    assert far({n: p for n, p in net.named_parameters()}, want[0]) > 1e-3          # the loop did train
