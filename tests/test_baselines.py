"Every method: identical clients are one client, learning takes place, every pair runs or is refused as stored."
from dataclasses import replace
import pytest, torch
from torch import nn
from fedskew_nb import METHODS, Federation, load_suite, small_conv
from fedskew_nb.app.combine import (
    all_pairs, noise_with_boxes, outcome, stored_pairs, tiny_net, trained, verdict)
from fedskew_nb.data.batch import normalise

# In one round of one step on all images, every client starts where the server is.
NOISY = {'MCGDM', 'FedFA-aug', 'FedCCRL', 'F2DC', 'DC', 'FedDDL'}    # what a client draws hangs on its number
TURNS = {'Fed-ensemble'}                                             # so does the model it trains
PHASES = {'FedRep', 'DFL'}                                           # two phases want two steps
LOSSES = {'FedDecorr', 'FedRCL', 'FedIIR', 'FedSA', 'FedFA-anchors', 'FDSE', 'RFedDis'}    # more than cross-entropy
SERVER = {'FedDyn', 'FedDC'}                                         # the server walks on by itself

def one_round(method, clients):
    suite = noise_with_boxes()
    same = [replace(suite.clients[0], id=k) for k in range(clients)]
    fed = Federation(method, tiny_net().double(), replace(suite, clients=same), device='cpu', seed=0,
                     rounds=1, local_steps=1, batch_size=16, lr=.05)
    fed.fit()
    return fed.state_of(0)

def sgd_step():
    "One step of plain PyTorch on all images of the first client."
    suite, net = noise_with_boxes(), tiny_net().double().train()
    d = suite.clients[0].train
    opt = torch.optim.SGD(net.parameters(), lr=.05, momentum=.9, weight_decay=1e-5)
    nn.functional.cross_entropy(net(normalise(d.x, suite.mean, suite.std).double()).logits, d.y).backward()
    opt.step()
    return net.state_dict()

def gap(a, b): return max(float((a[n].double()-b[n].double()).abs().max()) for n in a)

@pytest.mark.parametrize('name', sorted(METHODS.keys()-NOISY-TURNS-PHASES))
def test_three_identical_clients_are_one_and_one_is_sgd(name):
    alone = one_round(METHODS[name], 1)
    assert gap(alone, one_round(METHODS[name], 3)) < 1e-12
    plain = sgd_step()
    far = max(float((alone[n].double()-v.double()).abs().max()) for n, v in plain.items() if n in alone)
    assert (far < 1e-9) == (name not in LOSSES | SERVER)

# ---- pairs ----
def test_every_pair_is_stored():      # the page 7_app/02_combine asks for every refusal anew
    names = list(METHODS)
    assert list(stored_pairs()) == [f'{a} + {b}' for i, a in enumerate(names) for b in names[i+1:]]

@pytest.mark.parametrize('pair', ['FPL + DC', 'MOON + DC', 'FedProx + DC', 'MOON + FedDDL', 'SCAFFOLD + FedDC', 'FedHEAL + FDSE'])
def test_sums_of_the_papers_come_out_as_stored(pair):
    alone = {n: outcome(trained(METHODS[n])) for n in pair.split(' + ')}
    assert list(verdict(*alone, alone)) == stored_pairs()[pair]

@pytest.mark.campaign
def test_every_pair_as_stored(): assert all_pairs() == stored_pairs()

# ---- learning ----
@pytest.mark.campaign
@pytest.mark.parametrize('name', METHODS)
def test_every_method_learns_digits(name):
    suite = load_suite('skew-digits', 'tiny')
    if any(m.wants for m in METHODS[name].mechanisms): suite = load_suite('context-vehicles', 'tiny')
    fed = Federation(METHODS[name], small_conv(suite.n_classes, size=suite.image_size, width=8, seed=0), suite, device='cpu',
                     rounds=8, local_epochs=3, batch_size=32, lr=.01)
    AVG = fed.fit().summary('personal' if fed.is_personal() else 'global')['AVG']
    assert AVG > 100/suite.n_classes+5
