"Every method: identical clients are one client, learning takes place, pairs run or are refused as stored."
import json
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
import pairs, pytest, torch
from torch import nn
from fedskew_nb import METHODS, Federation, load_suite, small_conv
from fedskew_nb.tools.combine import stored_pairs, tiny_net
from fedskew_nb.core.net import normalise
from pairs import all_pairs, noise_with_boxes, pair_name, verdict

# In one round of one step on all images, every client starts where the server is.
# What a client draws hangs on its number.
NOISY = {'MCGDM', 'FedFA-aug', 'FedCCRL', 'MixStyle', 'DSU', 'FedSR', 'F2DC', 'DC', 'FedDDL'}
TURNS = {'Fed-ensemble'}                                             # so does the model it trains
PHASES = {'FedRep', 'DFL'}                                           # two phases want two steps
# These have more than the cross-entropy of the task, or normalise by more than the batch.
LOSSES = {'FedDecorr', 'FedRCL', 'FedIIR', 'FedSA', 'FedFA-anchors', 'FDSE', 'RFedDis', 'HBN'}
# The server walks on by itself, or takes steps of another length.
SERVER = {'FedDyn', 'FedDC', 'FedAdam', 'FedYogi', 'q-FFL'}

def one_round(method, clients):
    suite = noise_with_boxes()
    same = [replace(suite.clients[0], id=k) for k in range(clients)]
    fed = Federation(method, tiny_net().double(), replace(suite, clients=same), device='cpu', seed=0,
                     rounds=1, local_steps=1, batch_size=16, lr=.05)
    fed.one_round()
    return fed.state_of(0)

@lru_cache
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
    far = gap(alone, one_round(METHODS[name], 3))
    assert far < 1e-12, 'clients with the same images differ: a method that draws per client belongs to NOISY'
    plain = sgd_step()
    far = max(float((alone[n].double()-v.double()).abs().max()) for n, v in plain.items() if n in alone)
    says = 'a method that changes a first step belongs to LOSSES or SERVER, any other to neither'
    assert (far < 1e-9) == (name not in LOSSES | SERVER), says

# ---- pairs ----
def test_every_pair_is_stored():
    "By name; the page 7_app/21_combine asks for every refusal anew, and the campaign for every verdict."
    wanted = [pair_name(*p) for p in combinations(METHODS, 2)]
    assert list(stored_pairs()) == wanted, 'call python tests/tools/pairs.py'

SUMS = ['FPL + DC', 'MOON + DC', 'FedProx + DC', 'MOON + FedDDL', 'SCAFFOLD + FedDC', 'FedHEAL + FDSE']

@pytest.mark.parametrize('pair', SUMS)
def test_sums_of_the_papers_come_out_as_stored(pair):
    assert verdict(*pair.split(' + ')) == stored_pairs()[pair]

@pytest.mark.campaign
def test_every_pair_as_stored(): assert all_pairs() == stored_pairs()

@pytest.fixture
def store_of_pairs(monkeypatch, tmp_path):
    "The pairs' tool with a file of its own; what it would train, it writes down."
    asked = []
    def noted(*pair):
        asked.append(pair_name(*pair))
        return ['runs', '']
    monkeypatch.setattr(pairs, 'FILE', tmp_path/'pairs.json')
    monkeypatch.setattr(pairs, 'verdict', noted)
    def call(known, *options):
        monkeypatch.setattr(pairs, 'stored_pairs', lambda: known)
        monkeypatch.setattr('sys.argv', ['pairs.py', *options])
        pairs.main()
        return asked
    return call

def test_only_pairs_that_are_not_stored_are_trained(store_of_pairs):
    "Those with FDSE are missing, and one is left over."
    every = stored_pairs()
    known = {k: v for k, v in every.items() if 'FDSE' not in k} | {'FedAvg + Nobody': ['runs', '']}
    asked = store_of_pairs(known)
    assert asked == [k for k in every if 'FDSE' in k]
    stored = json.loads(pairs.FILE.read_text(encoding='utf-8'))['pairs']
    assert list(stored) == list(every) and all(stored[k] == every[k] for k in every if k not in asked)

def test_what_stays_stored_keeps_its_date(store_of_pairs):
    every, old = stored_pairs(), dict(date='2026-01-01', torch='2', pairs=3)
    pairs.FILE.write_text(json.dumps(dict(trained=[old], pairs={})), encoding='utf-8')
    asked = store_of_pairs({k: v for k, v in every.items() if 'FDSE' not in k})
    first, last = json.loads(pairs.FILE.read_text(encoding='utf-8'))['trained']
    assert first == old and last['pairs'] == len(asked) and last['date'] > old['date']

def test_the_dates_of_the_stored_pairs_are_of_all():
    found = json.loads(pairs.FILE.read_text(encoding='utf-8'))
    assert sum(t['pairs'] for t in found['trained']) == len(found['pairs'])

def test_nothing_is_trained_or_written_where_every_pair_is_stored(store_of_pairs):
    assert not store_of_pairs(stored_pairs()) and not pairs.FILE.exists()

def test_all_means_every_pair(store_of_pairs):
    assert store_of_pairs(stored_pairs(), '--all') == list(stored_pairs())

# ---- learning ----
@pytest.mark.campaign
@pytest.mark.parametrize('name', METHODS)
def test_every_method_learns_digits(name):
    wants_boxes = any(m.wants for m in METHODS[name].mechanisms)
    suite = load_suite('context-vehicles' if wants_boxes else 'skew-digits', 'tiny')
    net = small_conv(suite.n_classes, size=suite.image_size, width=8, seed=0)
    how = dict(rounds=8, local_epochs=3, batch_size=32, lr=.01)
    fed = Federation(METHODS[name], net, suite, device='cpu', **how)
    AVG = fed.fit().summary('personal' if fed.is_personal() else 'global')['AVG']
    assert AVG > 100/suite.n_classes+5
