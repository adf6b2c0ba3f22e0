"What a probe reads off each branch, on nets whose branches are known."
from dataclasses import dataclass, replace
import pytest, torch
from feds import fed_of, run
from torch import nn
from fedskew_nb.core.method import Method
from fedskew_nb.nets.models import small_conv
from fedskew_nb.data.images import Data
from fedskew_nb.data.suite import Client, Suite
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.dfl.information import Branches
from fedskew_nb.methods.dfl.method import DFL
from fedskew_nb.methods.dfl.stability import PROBED, branch_probes, crowd

K, DOMAINS, SIDE = 4, 3, 8                                   # classes, domains, pixels
KEYS = {f'{what}_{b}' for what in ('class', 'domain', 'size') for b in 'cs'}

def drawn(k, n=80):
    """Images whose red says the class and whose blue the domain.

    Classes go round, so every other image has an even one."""
    y, x = torch.arange(n)%K, torch.zeros(n, 3, SIDE, SIDE, dtype=torch.uint8)
    x[:, 0], x[:, 2] = (60*y).to(torch.uint8)[:, None, None], 60*(k%K)
    return Data(x, y)

def known_suite(domains=DOMAINS, n=80):
    clients = [Client(k, f'd{k}', *(drawn(k, m) for m in (n, 8, n))) for k in range(domains)]
    return Suite('known', [str(y) for y in range(K)], clients, {c.domain: c.test for c in clients})

class Level(nn.Module):
    "The level of a channel, one-hot, times `by`; or of pixels 60 a level."
    def __init__(self, channel, by=1.):
        super().__init__()
        self.channel, self.by = channel, nn.Parameter(torch.tensor(by))
    def forward(self, x):
        level = ((x[:, self.channel].mean((1, 2))*.25+.5)*255/60).round().long()
        return self.by*nn.functional.one_hot(level.clamp(0, K-1), K)[..., None, None]

@dataclass
class Known(Branches):
    "Branches whose E_c says the class and whose E_s says the domain, or both the same."
    invariant:int=0
    specific:int=2
    by:float=3.      # E_s is so much longer
    def adapt(self, net):
        net = super().adapt(net)
        net.body.E_c, net.body.E_s = Level(self.invariant), Level(self.specific, self.by)
        net.pool.E_c, net.pool.E_s, net.pool.cut = nn.Flatten(), nn.Flatten(), True
        net.head.fc = nn.Linear(2*K, 128)
        return net

def tiny(): return small_conv(K, size=SIDE, width=2)
def known(suite=None, **kw): return fed_of(Method('known', Known(**kw)), suite or known_suite(), tiny())

def test_each_branch_is_asked_for_both():
    "E_c holds exactly the class and E_s exactly the domain; the other question is answered by chance."
    found = branch_probes(known())
    assert found.keys() == KEYS
    assert found['class_c'] == found['domain_s'] == 100
    assert found['class_s'] < 100/K+15 and found['domain_c'] < 100/DOMAINS+15
    assert found['size_c'] == pytest.approx(1) and found['size_s'] == pytest.approx(3)

def test_the_branches_are_not_mixed_up():
    turned = branch_probes(known(invariant=2, specific=0))
    assert turned['class_s'] == turned['domain_c'] == 100 > 60 > max(turned['class_c'], turned['domain_s'])

def test_nothing_without_branches(): assert branch_probes(fed_of(FedAvg, known_suite(), tiny())) == {}

@pytest.mark.parametrize('domains, n, each', [(2, 100, 80), (2, 30, 30), (20, 100, PROBED//20)])
def test_six_hundred_images_of_all_domains(domains, n, each):
    "However many domains there are; at most n of each; in an order that does not depend on anything."
    images, domain = crowd(known_suite(domains), n)
    assert len(images) == len(domain) == domains*each and domain.bincount().tolist() == [each]*domains
    assert torch.equal(images.x[:, 2, 0, 0], (60*(domain%K)).to(torch.uint8))
    assert torch.equal(crowd(known_suite(domains), n)[1], domain)

def test_a_domain_without_images():
    empty = known_suite()
    empty.tests['none'] = drawn(0, 0)
    assert len(crowd(empty, 10)[0]) == 10*DOMAINS

def test_one_clients_model_answers_for_all():
    "A model is asked about all domains: that client 1 tells nothing of the domain does not help client 0."
    f, asked = known(), []
    model = f.model
    def noted(client):
        asked.append(client)
        return model(client=client)
    f.model = noted
    branch_probes(f, clients=2)
    assert asked == [0, 1]

def spoilt(by, who):
    "A federation in which E_s of these clients' models has become `by` times as long."
    f = known()
    model = f.model
    def sick(client):
        net = model(client=client)
        if client in who: net.body.E_s.by.data.fill_(by)
        return net
    f.model = sick
    return f

@pytest.mark.parametrize('bad', [float('nan'), float('inf'), 1e38])
def test_features_that_are_not_finite_are_left_out(bad):
    found = branch_probes(spoilt(bad, range(DOMAINS)))
    assert found['class_c'] == 100 and found['size_c'] == pytest.approx(1)
    assert all(torch.tensor(v).isfinite() for v in found.values())
    assert bad == 1e38 or not {'class_s', 'domain_s', 'size_s'} & found.keys()

def test_one_sick_model_leaves_the_others():
    f = spoilt(float('nan'), [0])
    assert branch_probes(f)['domain_s'] == 100
    assert branch_probes(f, clients=1).keys() == {'class_c', 'domain_c', 'size_c'}

def test_one_domain_has_no_domain_to_name():
    assert branch_probes(known(known_suite(1))).keys() == KEYS-{'domain_c', 'domain_s'}

def test_a_client_without_tests_has_no_size():
    s = known_suite()
    clients = [replace(c, test=drawn(0, 0)) for c in s.clients]
    found = branch_probes(known(replace(s, clients=clients)))
    assert found.keys() == KEYS-{'size_c', 'size_s'}

def test_of_a_trained_federation():
    "The federation is as it was, and asking twice gives the same."
    f = run(DFL, known_suite(), tiny(), rounds=1)
    before = {k: v.clone() for k, v in f.server.items()}
    assert branch_probes(f) == branch_probes(f) and branch_probes(f).keys() == KEYS
    assert all(torch.equal(before[k], v) for k, v in f.server.items())
