"FedAvg and FedBN against a loop that knows nothing of the engine: deepcopy, state_dict, torch.optim.SGD."
import copy
import pytest, torch
import torch.nn.functional as F
from fedskew_nb.core.seeding import generator
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.federation import Federation
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.baselines.personal import FedBN
from fedskew_nb.core.models import small_conv

LR, MOMENTUM, DECAY, BATCH, EPOCHS, ROUNDS = .01, .9, 1e-4, 32, 2, 2

def shuffled(n, seed, round_no, client):
    "The documented order of batches: one permutation per epoch from the client's generator; a last batch of one joins the one before."
    g = generator(seed, round_no, client, 'all', 'order')
    for _ in range(EPOCHS):
        cut = list(torch.randperm(n, generator=g).split(BATCH))
        if len(cut) > 1 and len(cut[-1]) == 1: cut[-2:] = [torch.cat(cut[-2:])]
        yield from cut

def plain_loop(net, suite, keep_bn, dtype, seed=0):
    "Federated averaging in one function; with `keep_bn`, clients keep their BatchNorm layers (Li et al. 2021, Alg. 1)."
    bn = {f'{m}.{n}' for m, mod in net.named_modules() if isinstance(mod, torch.nn.BatchNorm2d) for n in mod.state_dict()} if keep_bn else set()
    mean, std = (torch.tensor(v, dtype=dtype).view(1, 3, 1, 1) for v in (suite.mean, suite.std))
    total, clients = sum(len(c.train.y) for c in suite.clients), suite.clients
    server, mine = copy.deepcopy(net.state_dict()), [{n: v.clone() for n, v in net.state_dict().items() if n in bn} for _ in clients]
    for r in range(ROUNDS):
        sent = []
        for k, c in enumerate(clients):
            m = copy.deepcopy(net); m.load_state_dict({**server, **mine[k]}); m.train()
            opt = torch.optim.SGD(m.parameters(), LR, momentum=MOMENTUM, weight_decay=DECAY)
            for i in shuffled(len(c.train.y), seed, r, c.id):
                x = (c.train.x[i].to(dtype)/255 - mean)/std
                opt.zero_grad(); F.cross_entropy(m(x).logits, c.train.y[i]).backward(); opt.step()
            sent.append(m.state_dict()); mine[k] = {n: v.clone() for n, v in m.state_dict().items() if n in bn}
        for n in server:
            if n in bn: continue
            if server[n].is_floating_point(): server[n] = sum(len(c.train.y)/total*s[n] for c, s in zip(clients, sent))
            else: server[n] = max(s[n] for s in sent)
    return [{**server, **m} for m in mine]

@pytest.mark.parametrize('method,keep_bn', [(FedAvg, False), (FedBN, True)], ids=['FedAvg', 'FedBN'])
@pytest.mark.parametrize('dtype,eps', [(torch.float64, 1e-9), (torch.float32, 1e-4)], ids=['float64', 'float32'])
def test_equals_plain_loop(method, keep_bn, dtype, eps):
    suite = load_suite('skew-digits', size='tiny')
    net = small_conv(suite.n_classes, size=suite.image_size, width=8, seed=0).to(dtype)
    before = torch.get_num_threads(); torch.set_num_threads(1)
    want = plain_loop(net, suite, keep_bn, dtype)
    torch.set_num_threads(before)
    fed = Federation(method, net, suite, rounds=ROUNDS, local_epochs=EPOCHS, batch_size=BATCH, lr=LR, momentum=MOMENTUM, weight_decay=DECAY, device='cpu', channels_last=False)
    fed.fit()
    for c, w in zip(suite.clients, want):
        got = fed.state_of(c.id)
        assert got.keys() == w.keys()
        for n in w: assert float((got[n].double()-w[n].double()).norm()) <= eps*max(1., float(w[n].double().norm())), n
    moved = max(float((want[0][n]-v).abs().max()) for n, v in net.state_dict().items() if v.is_floating_point())
    assert moved > 1e-3                                                  # the loop did train
