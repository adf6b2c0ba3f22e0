"Local, FedAvg, FedProx, FedBN: limits, orders, what stays at home."
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
import pytest, torch
from feds import equal, trained_once
from torch import nn
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.rules import Rule, keep
from fedskew_nb.core.net import Net, is_batchnorm, under
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.federation import Federation
from fedskew_nb.run.recipes import METHODS
from fedskew_nb.methods.baselines.average import FedAvg, FedProx, Prox, bowl_rounds, bowl_steps
from fedskew_nb.methods.baselines.personal import FedBN, KeepAll, KeepBatchNorm, Local
from fedskew_nb.nets.models import alexnet_bn, gap, resnet10, seq, small_conv
from fedskew_nb.core.seeding import seeded

@pytest.fixture(scope='module')
def suite():
    s = load_suite('emoji-pacs', 'tiny')
    clients = [replace(c, test=c.test[:8]) for c in s.clients[:3]]
    return replace(s, clients=clients, tests={d: t[:8] for d, t in s.tests.items()})

def federation(method, suite, net=None, **kw):
    how = dict(rounds=2, local_steps=2, batch_size=16) | kw
    return Federation(method, net or small_conv(7, size=32, width=4), suite, device='cpu', **how)

def run(method, suite, net=None, **kw):
    fed = federation(method, suite, net, **kw)
    fed.fit()
    return fed

@pytest.fixture(scope='module')
def once(suite): return trained_once(suite, run)

def test_mu_zero_is_fedavg_bit_for_bit_and_mu_one_is_not(suite, once):
    plain, off = once(FedAvg), run(FedProx(mu=0), suite)
    assert equal(plain, off) and equal(plain, run(FedProx(mu=0.), suite))
    assert plain.history.rows==off.history.rows
    assert not equal(plain, run(FedProx(mu=1), suite))

@pytest.mark.parametrize('protocol', ['fedbn', 'fdse'])
def test_mu_zero_in_the_houses(suite, protocol):
    assert equal(run(FedAvg, suite, protocol=protocol), run(FedProx(mu=0), suite, protocol=protocol))

@pytest.mark.parametrize('mu', [-1, float('nan'), float('inf')])
def test_bad_mu(mu):
    with pytest.raises(ValueError, match='mu is'): FedProx(mu=mu)

def test_the_pull_sees_parameters_only_and_leaves_the_received_model_alone(suite):
    net = small_conv(7, size=32, width=4)
    before = {n: v.clone() for n, v in net.state_dict().items()}
    fed = run(FedProx(mu=1), suite, net)
    assert all(torch.equal(before[n],v) for n,v in net.state_dict().items())
    assert set(fed.history.rounds[0]['terms'])=={'prox','task'} and fed.history.rounds[0]['terms']['prox']>0

PARTS = [Prox(.1), KeepAll(), KeepBatchNorm(), KeepBatchNorm(affine=False)]

@pytest.mark.parametrize('a,b', list(combinations(PARTS, 2)), ids=repr)
def test_pairs_do_not_depend_on_their_order(suite, a, b):
    try: one, other = Method('m', a, b), Method('m', b, a)
    except ValueError as e:
        assert type(a).__name__ in str(e)                       # refused by name
        return
    assert equal(run(one, suite), run(other, suite))

def test_local_sends_nothing_and_hears_nothing(suite):
    fed = run(Local, suite, stack=False)
    assert all(r['up']==r['down']==0 for r in fed.history.rounds)
    single = run(Local, replace(suite, clients=suite.clients[1:2]), stack=False)
    assert all(torch.equal(v, single.state_of(1)[n]) for n,v in fed.state_of(1).items())

def test_limits_of_keeping(suite, once):
    assert equal(once(FedAvg), run(FedBN(statistics=False, affine=False), suite))

@pytest.mark.parametrize('method', [Local, FedBN], ids=lambda m: m.name)
def test_of_one_client_all_is_its_own(suite, method):
    alone = replace(suite, clients=suite.clients[:1])
    want, got = (run(m, alone).state_of(0) for m in (FedAvg, method))
    assert all(torch.equal(v, got[n]) for n, v in want.items())

NETS = [small_conv(7), resnet10(7, width=8), alexnet_bn(7, width=8)]

@pytest.mark.parametrize('net', NETS, ids=lambda n: n.name)
def test_fedbn_keeps_exactly_the_batchnorms(net):
    found = [(m, mod) for m, mod in net.named_modules() if isinstance(mod, (nn.BatchNorm1d, nn.BatchNorm2d))]
    norms = {f'{m}.{n}' for m, mod in found for n in mod.state_dict()}
    assert FedBN.kept(net)==norms and norms
    stats,affine = FedBN(affine=False).kept(net), FedBN(statistics=False).kept(net)
    assert stats|affine==norms and not stats&affine and all(n.endswith(('weight','bias')) for n in affine)
    assert FedAvg.kept(net)==FedProx.kept(net)==set() and Local.kept(net)==set(net.state_dict())

def test_shortcuts_are_found_on_a_resnet():
    assert any('shortcut' in n for n in FedBN.kept(resnet10(7, width=8)))

def test_a_batchnorm_without_affine_or_without_statistics():
    def net(**kw):
        with seeded(0):
            return Net(seq(conv=nn.Conv2d(3, 4, 3), n=nn.BatchNorm2d(4, **kw)), gap(), nn.Linear(4, 7))
    statistics = {f'body.n.{s}' for s in ('running_mean', 'running_var', 'num_batches_tracked')}
    assert FedBN.kept(net(affine=False)) == statistics
    assert FedBN.kept(net(track_running_stats=False))=={'body.n.weight','body.n.bias'}

def test_a_model_without_batchnorm_is_refused(suite):
    with seeded(0): net = Net(seq(conv=nn.Conv2d(3,4,3), norm=nn.GroupNorm(2,4)), gap(), nn.Linear(4,7))
    with pytest.raises(ValueError, match='no BatchNorm'): run(FedBN, suite, net)
    for method in (FedAvg, Local): run(method, suite, net)

BOTH = {'global', 'personal'}

VIEWS = [(Local, {'personal'}), (FedBN, {'personal'}), (FedAvg, BOTH), (FedProx, BOTH)]

@pytest.mark.parametrize('method,views', VIEWS)
def test_views(once, method, views):
    fed = once(method)
    assert {r['view'] for r in fed.history.rows} == views
    if views == BOTH: return
    with pytest.raises(ValueError, match='no global model'): fed.model()

def test_bowls():
    w = v = torch.tensor([.5,-1.])
    for _ in range(9): v = v-.1*(torch.tensor([8.,1.])*(v-torch.tensor([-1.,1.]))+2*(v-w))
    assert torch.allclose(bowl_steps(w,0,9,2.)[-1], v, atol=1e-5)
    assert torch.allclose(bowl_rounds(1, rounds=300)[-1], torch.tensor([-7/9,-7/9]), atol=1e-4)

# ---- the server step, name by name

def sent(method, suite):
    "A federation, and what its clients sent in the first round."
    fed = federation(method, suite, rounds=3)
    return fed, [fed.train_client(c).upload for c in fed.clients]

def weighted(ups, name):
    n = torch.tensor([u.n for u in ups]).double()
    return sum(float(p)*u.state[name] for p, u in zip(n/n.sum(), ups))

def test_fedavg_is_the_weighted_mean_of_every_name(suite):
    cut = replace(suite, clients=[replace(c, train=c.train[:n]) for c, n in zip(suite.clients, (40, 64, 90))])
    fed, ups = sent(FedAvg, cut)
    fed.merge(ups)
    for n, v in fed.server.items():
        if v.is_floating_point(): assert torch.allclose(v, weighted(ups, n), atol=1e-6), n
        else: assert v == max(u.state[n] for u in ups), n

def test_fedbn_keeps_rows_and_averages_the_rest(suite):
    fed, ups = sent(FedBN, suite)
    fed.merge(ups)
    for n in fed.server:
        for k, u in enumerate(ups):
            want = u.state[n] if n in fed.kept else weighted(ups, n)
            assert torch.allclose(fed.state_of(k)[n].double(), want.double(), atol=1e-6), n

def test_fedbn_trains_as_fedavg_in_its_first_round_only(suite):
    def trained(method, rounds):
        fed, _ = sent(method, suite)
        for _ in range(rounds): fed.one_round()
        return fed.train_client(fed.clients[0]).upload.state
    same = lambda a, b: all(torch.equal(a[n], b[n]) for n in a)
    assert same(trained(FedBN, 0), trained(FedAvg, 0))
    assert not same(trained(FedBN, 1), trained(FedAvg, 1))

def test_a_client_that_sits_out_keeps_its_batchnorm_and_takes_the_rest():
    suite = load_suite('skew-digits', 'tiny')
    net = small_conv(10, size=28, width=4)
    first = {n: v.clone() for n, v in net.state_dict().items()}
    how = dict(rounds=2, local_steps=2, batch_size=32, participation=.4)
    fed = Federation(FedBN, net, suite, device='cpu', **how)
    for _ in range(2): fed.one_round()
    went = {k for r in fed.history.rounds for k in r['participants']}
    idle = next(c.id for c in suite.clients if c.id not in went)
    assert all(torch.equal(fed.state_of(idle)[n], first[n]) for n in fed.kept)
    assert not torch.equal(fed.state_of(idle)['head.bias'], first['head.bias'])

# ---- names are found by type

def test_letters_lie():
    lying = nn.ModuleDict(dict(subnet=nn.Linear(2, 2)))
    norms = is_batchnorm(lying)
    assert all('bn' in n and not norms(n) for n in lying.state_dict())

def test_a_batchnorm_has_five_entries():
    net = resnet10(7, width=8)
    assert len(FedBN.kept(net)) == 5*sum(isinstance(m, nn.BatchNorm2d) for m in net.modules())

@pytest.mark.parametrize('name', ['resnet18', 'vgg11_bn', 'densenet121'])
def test_torchvision_is_found_where_letters_fail(name):
    import torchvision
    with torch.device('meta'): net = getattr(torchvision.models, name)()
    found = set(filter(is_batchnorm(net), net.state_dict()))
    owners = {m for m, mod in net.named_modules() if isinstance(mod, nn.BatchNorm2d)}
    assert {n.rpartition('.')[0] for n in found} == owners
    assert any('bn' not in n for n in found)

# ---- spelling, pages, pictures

MISSPELT = [
    (lambda: FedBN(affin=False), 'did you mean affine'),
    (lambda: FedProx(my=.1), 'did you mean mu'),
    (lambda: FedAvg(mu=.1), 'it takes none')]

@pytest.mark.parametrize('bad,says', MISSPELT, ids=['FedBN', 'FedProx', 'FedAvg'])
def test_a_misspelt_hyperparameter_is_refused_with_the_nearest(bad, says):
    with pytest.raises(ValueError, match=says): bad()

@pytest.mark.parametrize('method', [FedAvg, FedProx, FedBN, Local], ids=lambda m: m.name)
def test_each_method_has_a_page_and_a_colour(method):
    from pathlib import Path
    from fedskew_nb.analysis.style import colour
    assert (Path(__file__).parents[1]/'nbs'/f'{method.page}.ipynb').exists()
    assert method.ink and colour(method.name).startswith('#')

@pytest.mark.parametrize('method', METHODS.values(), ids=lambda m: m.name)
def test_what_is_said_of_a_method_goes_with_its_copies(method):
    assert method.named('x').about == method().about == method.about

def test_a_sum_says_what_its_first_says_and_both_ideas():
    both = FedProx+FedBN
    first = (FedProx.page, FedProx.ink, FedProx.base)
    assert (both.page, both.ink, both.base) == first and both.says == f'{FedProx.says} {FedBN.says}'

def test_what_a_head_at_home_saves(suite):
    class KeepHead(Mechanism):
        def rules(self, net): return [Rule(under('head'), keep)]
    up = lambda m: run(m, suite).history.rounds[0]['up']
    assert up(FedAvg)-up(Method('KeepHead', KeepHead())) == 3*4*(128*7+7)

def test_equal_methods_are_one_in_a_set(): assert len({FedProx, FedProx(), FedProx(mu=.5)}) == 2

def test_proxs_gradient_is_mu_times_the_way_gone():
    "At every parameter."
    net, start = (small_conv(10, size=16, width=4, seed=s) for s in (1, 2))
    c = SimpleNamespace(received=start.requires_grad_(False), params=lambda: dict(net.named_parameters()))
    Prox(.3).loss(c, {}, None)['prox'].backward()
    for n, w in net.named_parameters():
        torch.testing.assert_close(w.grad, .3*(w-start.get_parameter(n)).detach())

def test_a_spring_that_overshoots_stops_the_run(suite):
    net = small_conv(suite.n_classes, width=4)
    fed = Federation(FedProx(mu=1e6), net, suite, rounds=1, local_steps=10, lr=.05)
    with pytest.raises(FloatingPointError, match='is not finite at client 0'): fed.one_round()
