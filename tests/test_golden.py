"""Are stored results still true of today's code? One tiny stored run per method, trained again and compared.

    python tests/test_golden.py --store [METHOD ...]     # make the stored runs again, all or these

The tolerance covers another processor's rounding and no more. Each method is trained once, from first
weights that are off by a millionth, which stand for such rounding: so one run asks whether the results
are still true, and whether the tolerance is wide enough. When this test fails, either the engine was
broken and is repaired, or a method was changed on purpose: then its run is stored again, and CHANGELOG
says that older results differ. A new method is stored the same way.
"""
import json, os, sys
from dataclasses import replace
from pathlib import Path

os.environ.setdefault('OMP_NUM_THREADS', '1')

import pytest, torch
from fedskew_nb import Federation, load_suite, small_conv
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.names import registry
from fedskew_nb.methods.baselines.average import Prox
from fedskew_nb.methods.baselines.personal import KeepBatchNorm
from fedskew_nb.methods.dfl.information import Branches
from fedskew_nb.methods.dfl.method import Anchor, Separate, Transfer
from fedskew_nb.methods.f2dc.method import DFC, DFD
from fedskew_nb.methods.f2dc.mask import DomainAware
from fedskew_nb.methods.fdse.method import Consensus, Consistency
from fedskew_nb.methods.rfeddis.method import Disentangle, Evidence, TwoHeads

FILE = Path(__file__).with_name('golden.json')
# A ReLU that flips in a batch of sixteen moves a loss by a thousandth, a client's model by up to two
# hundredths.
TERMS, MOVED, IMAGES = 5e-3, 3e-2, 2      # relative, relative, right answers among 32
LOOSER = dict(
    # takes long steps and answers by statistics of past weights: it then changes its mind about three images
    RFedDis=dict(images=4),
    # pulls hard at the nearest and farthest pairs of a batch; which they are, a rounding decides
    FedRCL=dict(loss=3e-2, images=3))
ROUNDING = 1e-6                           # of the first weights, relative
METHODS = registry(Method)

def tiny_suite():
    "Four domains, one client each, of different sizes; 32 test images per client."
    s = load_suite('emoji-pacs', 'tiny', data_seed=0)
    clients = [replace(c, train=c.train[:n], test=c.test[:32]) for c, n in zip(s.clients, (32, 24, 40, 64))]
    return replace(s, clients=clients, tests={d: t[:32] for d, t in s.tests.items()})

def distance(a, b):
    "Length of the difference of two states, over everything that is trained."
    trained = [n for n, v in a.items() if v.is_floating_point() and 'running' not in n]
    return float(sum((a[n].double() - b[n].double()).square().sum() for n in trained).sqrt())

def score_name(row): return ' '.join(str(row[k]) for k in ('moment', 'view', 'path', 'domain', 'client'))

def begun(method, suite, noise=0., **setting):
    "A method's federation before its two rounds."
    net = small_conv(suite.n_classes, size=suite.image_size, width=8, seed=0)
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in net.parameters(): p.mul_(1 + noise*torch.randn(p.shape, generator=g))
    budget = dict(rounds=2, local_epochs=1, batch_size=16, lr=.02, seed=0)
    return Federation(method, net, suite, device='cpu', **(budget | setting))

def facts(method, suite, noise=0., **setting):
    "Two rounds of a method in numbers: loss terms, bytes, how far the clients' models moved, right answers."
    fed = begun(method, suite, noise, **setting)
    before = {c.id: {n: v.clone() for n, v in fed.state_of(c.id).items()} for c in fed.clients}
    h = fed.fit(progress=False)
    last = [r for r in h.rows if r['round'] == 2]
    return dict(
        terms=[r['terms'] for r in h.rounds],
        bytes=[[r['up'], r['down']] for r in h.rounds],
        moved=[distance(fed.state_of(k), s) for k, s in before.items()],
        right={score_name(r): r['correct'] for r in last})

def differences(was, now, images=IMAGES, loss=TERMS):
    "What lies outside the tolerance, in words."
    if was['bytes'] != now['bytes']: yield f'bytes: {was["bytes"]}, now {now["bytes"]}'
    if was['right'].keys() != now['right'].keys(): yield 'other scores than before'
    pairs = [(f'client {k} moved', MOVED, a, b) for k, (a, b) in enumerate(zip(was['moved'], now['moved']))]
    for i, (a, b) in enumerate(zip(was['terms'], now['terms'])):
        if a.keys() != b.keys(): yield f'round {i+1} has the terms {sorted(b)}, not {sorted(a)}'
        pairs += [(f'round {i+1}, {k}', loss, a[k], b[k]) for k in a.keys() & b.keys()]
    for what, tolerance, a, b in pairs:
        if abs(a - b) > tolerance*max(abs(a), 1e-3): yield f'{what}: {a:.6g}, now {b:.6g}'
    for k in was['right'].keys() & now['right'].keys():
        a, b = was['right'][k], now['right'][k]
        if abs(a - b) > images: yield f'{k}: {a} right, now {b}'

def stored(name):
    "The stored facts of a method."
    runs = json.loads(FILE.read_text(encoding='utf-8'))['runs']
    if name not in runs: pytest.fail(f'{name} has no golden run: python tests/test_golden.py --store {name}')
    return runs[name]

@pytest.fixture(scope='module')
def suite(): return tiny_suite()

def changed(name, suite, noise=ROUNDING, **setting):
    "What a method's run of today says otherwise than the stored one."
    now = facts(METHODS[name], suite, noise, **setting)
    return list(differences(stored(name), now, **LOOSER.get(name, {})))

@pytest.mark.parametrize('name', METHODS)
def test_results_are_still_true_with_the_rounding_of_another_processor(name, suite):
    seen = changed(name, suite)
    exact = changed(name, suite, noise=0.) if seen else ''
    assert not seen, f'without the rounding: {exact or "nothing, it is the tolerance"}'

def nothing(self, *args): return {}
def plain(self, V, g, w, srv): return V.mean(0)
CHANGES = {
    'Prox.loss': ('FedProx', Prox, 'loss', nothing),
    'KeepBatchNorm.rules': ('FedBN', KeepBatchNorm, 'rules', lambda self, net: []),
    'DomainAware.weights': ('F2DC', DomainAware, 'weights', Mechanism.weights),
    'DFD.loss': ('DC', DFD, 'loss', nothing),
    'DFC.loss': ('F2DC', DFC, 'loss', nothing),
    'Consensus._agree': ('FDSE', Consensus, '_agree', plain),
    'Consistency.loss': ('FDSE', Consistency, 'loss', nothing),
    'TwoHeads.rules': ('RFedDis', TwoHeads, 'rules', lambda self, net: []),
    'Evidence.loss': ('RFedDis', Evidence, 'loss', nothing),
    'Disentangle.loss': ('RFedDis', Disentangle, 'loss', nothing),
    'Branches.rules': ('DFL', Branches, 'rules', lambda self, net: []),
    'Branches.phases': ('DFL', Branches, 'phases', Mechanism.phases),
    'Separate.loss': ('DFL', Separate, 'loss', nothing),
    'Anchor.loss': ('DFL', Anchor, 'loss', nothing),
    'Transfer.loss': ('DFL', Transfer, 'loss', nothing)}

def changed_at_once(name, suite):
    "What its first round alone says otherwise than the stored one."
    row, was = begun(METHODS[name], suite, ROUNDING).one_round(), stored(name)
    first, now = (dict(terms=[terms], bytes=[sent], moved=[], right={}) for terms, sent in (
        (was['terms'][0], was['bytes'][0]), (row['terms'], [row['up'], row['down']])))
    return list(differences(first, now, **LOOSER.get(name, {})))

@pytest.mark.parametrize('change', CHANGES)
def test_a_changed_rule_is_seen(change, suite, monkeypatch):
    name, mechanism, hook, other = CHANGES[change]
    monkeypatch.setattr(mechanism, hook, other)
    assert changed_at_once(name, suite) or changed(name, suite)

SLIPS = (dict(uniform=True), dict(lr=.021), dict(momentum=.8), dict(batch_size=15))

@pytest.mark.parametrize('setting', SLIPS)
def test_a_changed_engine_is_seen(setting, suite):
    "Other weights, another step, other batches: what a slip in the engine would look like."
    assert changed('FedAvg', suite, **setting)

def test_no_golden_run_is_left_over():
    assert json.loads(FILE.read_text(encoding='utf-8'))['runs'].keys() <= METHODS.keys()

def store(*names):
    "Train and write the golden runs: of these methods, or of all."
    nest = json.loads(FILE.read_text(encoding='utf-8')) if FILE.exists() else dict(runs={})
    suite = tiny_suite()
    runs = nest['runs'] | {n: facts(METHODS[n], suite) for n in names or METHODS}
    runs = {n: runs[n] for n in METHODS if n in runs}
    FILE.write_text(json.dumps(dict(torch=torch.__version__, runs=runs), indent=1) + '\n', encoding='utf-8')

if __name__ == '__main__':
    asked = sys.argv[1:2] == ['--store'] and set(sys.argv[2:]) <= METHODS.keys()
    if not asked: sys.exit(f'{__doc__}\nmethods: {", ".join(METHODS)}')
    store(*sys.argv[2:])
