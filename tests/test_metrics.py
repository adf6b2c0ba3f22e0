"Metrics against witnesses: what teaches nothing, but must hold."
import numpy as np, pandas as pd, pytest, torch
from feds import same
from torch import nn
from fedskew_nb.nets.costs import flops, payload
from fedskew_nb.nets.models import MODELS, n_bytes, small_conv
from fedskew_nb.analysis.probes import answers
from fedskew_nb.analysis.probes import effective_rank, spectrum
from fedskew_nb.engine.reading import SCORES, Where, summary
from fedskew_nb.engine.history import diff, History
from fedskew_nb.analysis.calibration import ece, reliability
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.net import is_norm
from fedskew_nb.core.rules import Rule, keep, mean
from fedskew_nb.data.images import Data
from fedskew_nb.data.suite import Client, Suite
from fedskew_nb.engine.federation import Federation

def gen(s): return torch.Generator().manual_seed(s)

COLUMNS = ('round', 'moment', 'view', 'path', 'domain', 'client', 'n', 'correct')

def run(rows, **setting):
    h = History(dict(method='X', **setting))
    h.rows = [dict(zip(COLUMNS, r)) for r in rows]
    return h

def rows(*right, path='', domain='a'):
    "Of the global model after each aggregation: (round, how many of ten)."
    return [(r, 'post_agg', 'global', path, domain, -1, 10, c) for r, c in right]

# ---- scores

@pytest.mark.parametrize('seed', range(5))
def test_summary_against_pandas(seed):
    p, n = pd.Series(100*torch.rand(7, generator=gen(seed)).double().numpy()), np.arange(1, 8)
    s = summary(dict(enumerate(p)), n)
    want = [p.mean(), p.std(), p.min(), np.average(p, weights=n)]
    assert np.allclose([s[k] for k in ('AVG', 'STD', 'worst', 'ALL')], want)
    assert summary(p) == summary(dict(enumerate(p)))

def test_clients_of_one_domain_are_added_up():
    said = [('a', 0, 100, 50), ('a', 1, 300, 300), ('b', 2, 10, 1)]
    h = run([(1, 'post_agg', 'personal', '', *s) for s in said])
    t = h.table()
    assert t.columns.tolist() == ['a', 'b', *SCORES]
    assert np.allclose(t.iloc[0, :3], [87.5, 10, 48.75]) and np.isclose(t.ALL.item(), 100*351/410)
    assert h.views() == [('personal', 'post_agg', '')]

def test_paths_and_rounds_do_not_mix():
    h = run(rows((2, 1), (4, 2))+rows((2, 7), (4, 8), path='client'), versions=dict(torch='2'))
    assert h.curve().index.tolist() == [2, 4] and h.curve(Where(path='client')).a.tolist() == [70, 80]
    assert h.summary(Where(path='client'), last=2)['AVG'] == 75
    assert h.table(Where(path='client')).columns.name == 'global · post_agg · client · %'

def test_what_was_not_scored_is_refused():
    h = run(rows((2, 1))+rows((2, 7), path='client'))
    says = "by 'backbone': it has global at post_agg; global at post_agg by client"
    with pytest.raises(ValueError, match=says): h.curve(Where(path='backbone'))
    with pytest.raises(ValueError, match='post_local'): h.summary(Where('global', 'post_local'))

def test_domain_order_is_that_of_the_rows():
    h = run([row for d in 'zam' for row in rows((1, 5), domain=d)])
    assert h.table().columns.tolist()[:3] == ['z', 'a', 'm']

def test_mean_of_the_last_rounds():
    h = run(rows((1, 1), (2, 2), (3, 3)))
    assert h.summary(last=2)['AVG'] == 25 and h.table(last=3).a.item() == 20

def test_a_lone_domain_and_no_domain():
    one = summary(dict(only=80.))
    assert np.isnan(one['STD']) and (one['AVG'], one['ALL'], one['worst']) == (80, 80, 80)
    with pytest.raises(ValueError, match='no domain'): summary({})
    with pytest.raises(ValueError, match=r'fit\(\) it first'): History(dict(method='FedAvg')).table()

def test_diff():
    a, b = (run(rows(*right), lr=.1, spec=[['P', {'mu': 1}]], **more) for right, more in (
        ([(1, 5)], dict(versions=dict(torch='1'))),
        ([(1, 5), (2, 6)], dict(versions=dict(torch='2'), extra=None))))
    d = diff(a, b)
    assert d['setting'].index.tolist() == ['versions.torch']
    assert d['scores'].index.get_level_values('round').tolist() == [2] and not len(d['rounds'])
    assert all(not len(f) for f in diff(History(), History()).values())

# ---- calibration

def drawn(n, K, seed):
    "Probabilities, labels, confidence, and whether the guess is right."
    p = torch.randn(n, K, generator=gen(seed)).mul(2).softmax(1)
    y = torch.randint(0, K, (n,), generator=gen(seed+9))
    conf, guess = p.max(1)
    return p, y, conf.double(), (guess == y).double()

@pytest.mark.parametrize('bins', [1, 5, 15])
@pytest.mark.parametrize('seed', range(3))
def test_ece_naive(seed, bins):
    p, y, conf, right = drawn(300, 4, seed)
    want = 0.
    for m in range(bins):
        b = (conf > m/bins) & (conf <= (m+1)/bins)
        if b.any(): want += float(b.double().mean())*abs(float(right[b].mean()-conf[b].mean()))
    assert abs(ece(p, y, bins)-want) < 1e-6 and np.isclose(reliability(p, y, bins).share.sum(), 1)

def test_one_bin_is_the_plain_gap():
    p, y, conf, right = drawn(500, 6, 0)
    assert abs(ece(p, y, bins=1)-abs(float(conf.mean()-right.mean()))) < 1e-6

def test_ece_at_its_ends():
    sure = torch.tensor([[1., 0.]])
    assert ece(sure, torch.tensor([0])) == 0 and ece(sure, torch.tensor([1])) == 1
    with pytest.raises(ValueError, match='0 images'): ece(torch.zeros(0, 3), torch.zeros(0))
    with pytest.raises(ValueError, match='0 bins'): reliability(sure, torch.tensor([0]), bins=0)

def test_certain_answers_are_in_the_last_bin():
    "1 is no bin of its own, and a confidence between two bins belongs to the lower one."
    p = torch.tensor([[1., 0], [.9, .1], [.5, .5]], dtype=torch.double)
    r = reliability(p, torch.tensor([1, 0, 0]), bins=2)
    assert r.index.tolist() == [1, 2] and r.share.tolist() == [1/3, 2/3]
    assert ece(p, torch.tensor([1, 0, 0]), bins=2) == pytest.approx(.5/3 + .9/3)

# ---- features

@pytest.mark.parametrize('shape', [(50, 5), (5, 50), (2, 3)])
def test_spectrum_is_that_of_the_covariance(shape):
    Z = torch.randn(*shape, generator=gen(2))
    s, want = spectrum(Z), np.linalg.eigvalsh(np.cov(Z.T.double().numpy()))[::-1]
    assert s.shape == (shape[1],) and np.allclose(s, want, atol=1e-9)
    assert 1 <= effective_rank(Z) <= min(shape[1], shape[0]-1)+1e-9

def test_effective_rank_does_not_see_scale_shift_or_rotation():
    Z = torch.randn(60, 6, generator=gen(3)).double()*torch.arange(1, 7)
    Q = torch.linalg.qr(torch.randn(6, 6, generator=gen(4)).double())[0]
    for W in (7*Z, Z+100, Z@Q): assert abs(effective_rank(W)-effective_rank(Z)) < 1e-6

def test_answers_leaves_the_net_alone():
    net = small_conv(3, width=2).train()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    x = torch.randint(0, 256, (9, 3, 32, 32), dtype=torch.uint8, generator=gen(0))
    d = Data(x, torch.zeros(9, dtype=torch.long))
    out = answers(net, d, batch=4)
    assert out.logits.shape == (9, 3) and not out.logits.requires_grad
    assert net.training and same(before, net.state_dict())
    with pytest.raises(ValueError, match='no images'): answers(net, d[:0])

# ---- costs

@pytest.mark.parametrize('name', MODELS)
def test_flops_and_payload(name):
    net, macs = MODELS[name](3, size=32, width=4), []
    def count(m, args, out): macs.append(out[0].numel()*m.weight[0].numel())
    counted = [m for m in net.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    hooks = [m.register_forward_hook(count) for m in counted]
    net.eval()(torch.zeros(1, 3, 32, 32))
    for h in hooks: h.remove()
    assert flops(net, 32) == 2*sum(macs) and next(net.parameters()).device.type == 'cpu'
    assert sum(payload(net).values()) == n_bytes(net) and payload(net, Method('FedAvg')) == payload(net)

def test_cost_without_any_time():
    h = run([])
    h.rounds = [dict(up=3000, down=1000), dict(up=1000, down=1000)]
    assert h.cost() == dict(up=2000, down=1000, seconds=None, eval_seconds=None)

def test_a_longer_history_leaves_the_shorter_one():
    h = run([])
    h.grown().timing.append(dict(seconds=1.))
    assert h.timing == []

class KeepNorms(Mechanism):
    def rules(self, net): return [Rule(is_norm(net), keep)]

class HalfNorms(Mechanism):
    def rules(self, net): return [Rule(is_norm(net), mean, travels=lambda name, *_: 'bias' not in name)]

@pytest.fixture(scope='module')
def toy():
    "Three clients of three domains, two classes."
    def data(s, n):
        x = torch.randint(0, 256, (n, 3, 16, 16), dtype=torch.uint8, generator=gen(s))
        return Data(x, torch.arange(n)%2)
    clients = [Client(i, d, data(i, 8), data(i+5, 4), data(i+9, 4)) for i, d in enumerate('xyz')]
    return Suite('toy', ['a', 'b'], clients, {d: data(20, 6) for d in 'xyz'})

COUNTED = [
    (Method('FedAvg'), 'global'),
    (Method('FedBN', KeepNorms()), 'personal'),
    (Method('half', HalfNorms()), 'global')]

@pytest.mark.parametrize('method, view', COUNTED, ids=[m.name for m, _ in COUNTED])
def test_the_engine_counts_the_same_bytes(toy, method, view):
    net = small_conv(2, size=16, width=2)
    h = Federation(method, net, toy, rounds=2, eval_every=1, device='cpu').fit(progress=False)
    cost = h.cost()
    assert cost['up'] == cost['down'] == 3*payload(net, method)['travels'] and cost['seconds'] > 0
    assert h.table().columns.name == f'{view} · post_agg · %' and h.curve(view).index.tolist() == [1, 2]
    assert h.setting['model'] == 'small_conv(width=2)'
