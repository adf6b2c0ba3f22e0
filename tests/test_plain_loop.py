"Federated averaging and FedBN in forty lines of plain PyTorch, and the engine beside them: no lane, no worker, no rule."
import copy
from dataclasses import replace
import pytest, torch
import torch.nn.functional as F
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

@pytest.mark.parametrize('method,keep_bn', [(FedAvg, False), (FedBN, True)], ids=['FedAvg', 'FedBN'])
@pytest.mark.parametrize('dtype,eps', [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=['float64', 'float32'])
def test_equals_plain_loop(method, keep_bn, dtype, eps):
    suite = load_suite('skew-digits', size='tiny')
    suite = replace(suite, clients=[replace(c, train=c.train[:n]) for c, n in zip(suite.clients, (64, 72, 80, 88, 96))])
    net = small_conv(suite.n_classes, size=suite.image_size, width=8, seed=0).to(dtype)
    with threads_of(1): want = plain_loop(net, suite, keep_bn, dtype)
    how = dict(rounds=ROUNDS, local_epochs=EPOCHS, batch_size=BATCH, lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
    fed = Federation(method, net, suite, device='cpu', channels_last=False, **how)
    fed.fit()
    for c, model in zip(suite.clients, want):
        got = fed.state_of(c.id)
        assert got.keys() == model.keys()
        for n, v in model.items():
            gap, size = float((got[n].double()-v.double()).norm()), float(v.double().norm())
            assert gap <= eps*max(1., size), n
    first = {n: v for n, v in net.state_dict().items() if v.is_floating_point()}
    assert max(float((want[0][n]-v).abs().max()) for n, v in first.items()) > 1e-3          # the loop did train
