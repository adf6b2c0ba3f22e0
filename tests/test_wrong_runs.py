"Whose run, whose data: what is recognised, what is told apart, and what is refused although the names agree."
import gc, json, os, pickle, random, subprocess, sys, threading
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
import numpy as np
import pytest, torch
from feds import run_name, run_of
from test_wrong_data import small
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.analysis.plots import plot_curves
from fedskew_nb.run import executors, run as module
from fedskew_nb.tools.after import kept_federation
from fedskew_nb.run.compare import (
    compare, resume)
from fedskew_nb.run.store import GridRequest, ListRequest, read_request, runs_in, stored_runs
from fedskew_nb.run.recipes import method_recipe, model_recipe, read_method, suite_recipe
from fedskew_nb.run.plan import planned
from fedskew_nb.run.scripts import from_file, packed, safe_path
from fedskew_nb.run.named import federation_of, named
from fedskew_nb.run.train import train
from fedskew_nb.core.identity import digest
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.nets.models import small_conv
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.history import History
from fedskew_nb.methods.baselines.average import FedProx

SHORT = dict(progress=False, rounds=1, local_steps=1, control=False)

def narrow(n_classes, width=2): return small_conv(n_classes, size=8, width=width)

TOY = SHORT | dict(seeds=1, model=narrow)
EMOJI = SHORT | dict(suite='emoji-pacs', size='tiny', model='small_conv(width=1)')
A = run_of('FedAvg', small(), narrow)

RECIPES = dict(method=method_recipe, suite=suite_recipe, model=model_recipe)

def changed(run=A, **change):
    "The run with other facts, given as they are typed."
    return replace(run, **{k: RECIPES[k](v) if k in RECIPES else v for k, v in change.items()})

def name(**change): return run_name(changed(**change))

# ---- what a thing is made of

def scaled(by): return lambda x: by*x

def mechanism(body, **names):
    "A class `Mine` of this body, as a cell of a notebook would define it anew."
    defined = dict(Mechanism=Mechanism, dataclass=dataclass, __name__='mine') | names
    exec(f'@dataclass\nclass Mine(Mechanism):\n{body}', defined)
    return defined['Mine']()

ONE = '    mu: float = 1.\n    def loss(self, c, b, out): return dict(mine=self.mu*out.logits.sum())\n'

OTHERS = [
    ONE.replace('1.', '2.'),
    ONE.replace('sum', 'mean'),
    ONE.replace('mine', 'own'),
    ONE+'    stacks = True\n',
    ONE+'    def start(self, c): pass\n']

@pytest.mark.parametrize('body', OTHERS)
def test_a_class_that_is_defined_anew_under_its_name(body):
    assert digest(mechanism(ONE)) == digest(mechanism(ONE)) != digest(mechanism(body))

def test_globals_closures_defaults_and_helpers():
    uses = '    def loss(self, c, b, out): return dict(mine=helper(out.logits))\n'
    def by(n): return digest(mechanism(uses, helper=scaled(n)))
    assert by(1) == by(1) != by(2)
    four = (scaled(1), lambda x, by=1: by*x, lambda x, by=2: by*x, lambda x: 2*x)
    assert len({digest(f) for f in four}) == 4

def test_a_method_of_a_notebook_is_the_same_in_another_process():
    "cloudpickle takes the globals that a function uses along, and no others: `mu` is none of them."
    cloudpickle = pytest.importorskip('cloudpickle')
    one = mechanism(ONE, mu=3.)
    before, sent = digest(one), cloudpickle.dumps(one)
    del one
    gc.collect()                       # else the same class would come back
    assert digest(pickle.loads(sent)) == before

def test_tensors_sets_and_circles():
    t = torch.arange(4.)
    assert len({digest(x) for x in (t, t.double(), t.view(2, 2), t+1, t.clone().requires_grad_())}) == 5
    assert digest({'b', 'a', 'c'}) == digest({'c', 'b', 'a'})
    assert digest(dict(a=1, b=2)) == digest(dict(b=2, a=1)) != digest(dict(a=2, b=1))
    a, b = [], []
    a.append(b), b.append(a)
    assert digest(a) == digest(b)

def test_the_method_of_a_run():
    with_mu = lambda mu: Method('Mine', mechanism(ONE.replace('1.', mu)))
    assert name(method=with_mu('1.')) == name(method=with_mu('1.')) != name(method=with_mu('2.'))

def test_the_model_of_a_run():
    "A changed closure, an anonymous function, and a class of one's own that was edited."
    a, b, other = (lambda n: narrow(n)), (lambda n: narrow(n)), (lambda n: narrow(n, 3))
    assert name(model=a) == name(model=b) != name(model=other)

@pytest.mark.parametrize('change', [
    lambda s: s.clients[0].train.x[0, 0, 0, 0].bitwise_xor_(torch.tensor(1, dtype=torch.uint8)),
    lambda s: s.clients[0].train.masks[0].zero_(), lambda s: s.tests['a'].y.copy_(1-s.tests['a'].y)])
def test_the_images_of_a_run(change):
    other = small()
    change(other)
    assert name(suite=small()) == name() != name(suite=other)

def test_mean_and_std_are_part_of_the_images():
    others = [dict(mean=(.1, .2, .3)), dict(std=(.1, .2, .3))]
    assert len({name(suite=s) for s in (small(), *(replace(small(), **o) for o in others))}) == 3

# ---- a file is edited

MINE = 'from fedskew_nb import FedProx\nMine = FedProx(mu=.1).named("Mine")\n'

def test_a_file_edited_while_a_comparison_runs(tmp_path):
    f = tmp_path/'mine.py'
    f.write_text(MINE)
    run, = named([changed(run_of(setting=dict(rounds=1, local_steps=1)), method=f'{f}:Mine')])
    f.write_text(MINE.replace('.1', '.2'))
    assert train(run).setting['method'] == 'Mine'        # this process holds what it has read
    elsewhere = pickle.loads(pickle.dumps(run))
    with pytest.raises(ValueError, match='Mine changed since this comparison began'): train(elsewhere)

IMPORTING = '''
from fedskew_nb import FedProx
import my_helper
from my_strength import mu
Mine = FedProx(mu=my_helper.strength()).named("Mine")
'''

def test_a_module_that_a_method_file_imports(tmp_path, monkeypatch):
    """In the same process.

    Python would keep the helper as it was, and after a quick edit of as many letters its compiled copy."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr('sys.dont_write_bytecode', False)
    (tmp_path/'my_strength.py').write_text('mu = .1\n')
    (tmp_path/'my_helper.py').write_text('from my_strength import mu\ndef strength(): return mu\n')
    f = tmp_path/'mine.py'
    f.write_text(IMPORTING)
    before, mine = name(method=f'{f}:Mine'), lambda: read_method(f'{f}:Mine').mechanisms[0].mu
    assert mine() == .1
    (tmp_path/'my_strength.py').write_text('mu = .25\n')
    assert mine() == .25 and name(method=f'{f}:Mine') != before
    (tmp_path/'my_strength.py').write_text('mu = .35\n')
    assert mine() == .35 and sys.dont_write_bytecode is False

def test_images_changed_while_a_comparison_runs():
    held = small()
    run, = named([changed(suite=lambda seed: held)])
    held = replace(held, mean=(.1, .2, .3))
    with pytest.raises(ValueError, match='the images of small changed'): train(run)

# ---- names that lie

TWICE = 'two different suites are called small'

def test_two_suites_of_one_name():
    both = [small(), replace(small(), mean=(.1, .2, .3))]
    with pytest.raises(ValueError, match=TWICE): compare('FedAvg', both, **TOY)

def test_two_functions_that_make_suites_of_one_name():
    both = [lambda seed: small(), lambda seed: replace(small(), std=(.1, .2, .3))]
    with pytest.raises(ValueError, match=TWICE): compare('FedAvg', both, **TOY)

def test_the_same_suite_twice_is_one():
    assert len(compare('FedAvg', [small(), small()], **TOY)) == 1

def test_images_of_ones_own_are_not_called_like_ours():
    mine = replace(small(), name='skew-digits')
    says = 'your images are called skew-digits, which is an embedded suite'
    with pytest.raises(ValueError, match=says): compare('FedAvg', mine, **TOY)
    ours = load_suite('emoji-pacs', 'tiny')
    assert run_name(run_of(suite=ours)) == run_name(run_of())

def test_a_file_that_calls_its_images_like_ours(tmp_path):
    (tmp_path/'s.py').write_text("""
from dataclasses import replace
from fedskew_nb import load_suite
def make(seed): return replace(load_suite('emoji-pacs', 'tiny', seed), name=NAME)
""".replace('NAME', "'skew-digits'"))
    says = 'your images are called skew-digits, which is an embedded suite'
    with pytest.raises(ValueError, match=says): compare('FedAvg', f'{tmp_path}/s.py:make', **TOY)
    other = replace(small(), name='Skew_Digits')
    with pytest.raises(ValueError, match='which is an embedded suite'): compare('FedAvg', other, **TOY)

def renamed(s, names):
    "A suite whose domains have other names."
    to = dict(zip(s.tests, names))
    clients = [replace(c, domain=to[c.domain]) for c in s.clients]
    return replace(s, clients=clients, tests={to[d]: t for d, t in s.tests.items()})

@pytest.mark.parametrize('facts, later', [
    ('classes', lambda s: replace(s, classes=['dog', 'cat'])),
    ('classes', lambda s: replace(s, classes=['cat', 'dog', 'bat'])),
    ('domains', lambda s: renamed(s, ['a', 'c'])),
    ('domains', lambda s: replace(s, unseen={'z': s.tests['a']}))])
def test_a_suite_that_is_another_with_each_seed(facts, later):
    says = f'the {facts} of small change with the seed, from .* to '
    with pytest.raises(ValueError, match=says):
        compare('FedAvg', lambda seed: later(small()) if seed else small(), **TOY | dict(seeds=2))

SHADOWS = [FedProx.named('FedAvg'), Method('FedAvg', mechanism(ONE)), FedProx(mu=.5).named('FedProx')]

@pytest.mark.parametrize('method', SHADOWS)
def test_a_baseline_is_not_shadowed(method):
    says = f'{method.name} is a method of the package, and yours is another: rename yours'
    with pytest.raises(ValueError, match=says): planned([method], control=False)

def test_a_file_that_shadows_or_repeats_a_baseline(tmp_path):
    (tmp_path/'a.py').write_text('from fedskew_nb import FedProx\nFedAvg = FedProx(mu=.1).named("FedAvg")\n')
    (tmp_path/'b.py').write_text('from fedskew_nb import FedAvg\n')
    shadow = f'{tmp_path}/a.py:FedAvg'
    with pytest.raises(ValueError, match='FedAvg is a method of the package'): planned(shadow)
    assert len(planned(f'{tmp_path}/b.py:FedAvg', control=False, seeds=1)) == 1

def test_a_model_that_is_another_each_time():
    "torch is seeded for it; what it draws elsewhere is refused, for methods would not start from the same."
    def unseeded(n):
        net = narrow(n)
        for p in net.parameters(): torch.nn.init.normal_(p)
        return net
    def strange(n):
        net = narrow(n)
        net.head.bias.data.fill_(random.random())
        return net
    assert name(model=unseeded) == name(model=unseeded) != name(model=unseeded, seed=1)
    with pytest.raises(ValueError, match='strange has other first weights each time'): name(model=strange)

def test_a_model_function_that_gives_no_net():
    def linear(n): return torch.nn.Linear(3, n)
    with pytest.raises(ValueError, match='Linear: wrap it with as_net'): name(model=linear)

# ---- what is counted

@pytest.mark.parametrize('seeds', [[0, 0, 0], (1, 2, 1)])
def test_a_seed_twice(seeds):
    says = 'twice: a run made twice is still one run'
    with pytest.raises(ValueError, match=says): planned('FedAvg', seeds=seeds)

def test_seed_is_no_setting():
    with pytest.raises(ValueError, match='seed is a setting'): planned('FedAvg', seed=5)

def test_a_history_twice():
    h, = compare('FedAvg', small(), **TOY).histories
    says = 'the run of FedAvg on small, seed 0, is there twice'
    with pytest.raises(ValueError, match=says): Comparison([h, h])

@pytest.mark.parametrize('given, says', [
    ([{}], 'a dict is no run of a method on a suite'),
    ([None], 'a NoneType is no run'),
    ([[]], 'a list is no run'),
    ([History()], 'a History is no run'),
    ([History(dict(method='A', suite='s'))], 'a History is no run'),
    ([], 'at least one finished run')])
def test_what_is_no_run(given, says):
    with pytest.raises(ValueError, match=says): Comparison(given)

def test_nothing_to_draw():
    with pytest.raises(ValueError, match='there is no run to draw'): plot_curves([])

# ---- what was measured

def one_way(fed): return dict(a=1)
def other_way(fed): return dict(b=2)

def test_a_changed_measure_is_measured_anew(tmp_path):
    "And a text that is measured twice comes from the file."
    how = TOY | dict(methods='FedAvg', suite=small(), out=tmp_path)
    def measures(**more): return compare(**how, **more).histories[0].measures
    assert measures(measure=one_way) == measures(measure=one_way) == measures() == dict(a=1)
    file, = (tmp_path/'runs').glob('*.json')
    stamp = file.stat().st_mtime_ns
    assert measures(measure=one_way) == dict(a=1) and file.stat().st_mtime_ns == stamp
    assert measures(measure=other_way) == dict(b=2) == measures()
    assert measures(measure=lambda fed: dict(b=3)) == dict(b=3)
    assert len(list((tmp_path/'runs').iterdir())) == 1

ODD = dict(a=float('nan'), b=np.float32(.5), c=torch.tensor(2), d=[np.int64(1), (2, None)], e=np.bool_(True))

def test_what_is_measured_is_what_a_file_keeps(tmp_path):
    how = TOY | dict(methods='FedAvg', suite=small(), out=tmp_path)
    first, again = (compare(**how, measure=lambda fed: {1: 2, **ODD}).histories[0].measures for _ in range(2))
    assert first == again == {'1': 2, 'a': None, 'b': .5, 'c': 2, 'd': [1, [2, None]], 'e': True}

UNKEPT = [5, 'x', [1], dict(a=torch.ones(2)), dict(a={1}), dict(a=len), {(1, 2): 3}]

@pytest.mark.parametrize('values', UNKEPT, ids=str)
def test_what_no_file_can_keep_is_named(values):
    with pytest.raises(ValueError, match='measure returned .*: return a dict'):
        compare('FedAvg', small(), **TOY, measure=lambda fed: values)

# ---- a stored run is the run that its file is named for

CHANGES = dict(
    method=lambda d: d['setting'].update(method='Best'),
    seed=lambda d: d['setting'].update(seed=77),
    suite=lambda d: d['setting'].update(suite='big'),
    deal=lambda d: d['setting'].update(deal='iid'),
    code=lambda d: d['setting']['made_of'].update(code='0'*16),
    data=lambda d: d['setting']['made_of'].update(data='0'*16),
    rows=lambda d: d.update(rows=[]))

@pytest.mark.parametrize('change', CHANGES)
def test_a_stored_run_of_another_is_made_anew(tmp_path, change):
    how = TOY | dict(methods='FedAvg', suite=small(), out=tmp_path)
    want = compare(**how)
    file, = (tmp_path/'runs').glob('*.json')
    run = json.loads(file.read_text())
    CHANGES[change](run)
    file.write_text(json.dumps(run))
    if change not in ('code', 'data'):             # which a report cannot know
        with pytest.warns(UserWarning, match='begins anew'): (_, found), = stored_runs(tmp_path)
        assert found is None
    says = 'without a score' if change == 'rows' else f'of other {change}|of another run than its name says'
    with pytest.warns(UserWarning, match=says): again = compare(**how)
    assert again.histories == want.histories

def test_a_copied_run_is_not_another(tmp_path):
    "One file under the name of a second one: a bad merge."
    how = TOY | dict(methods='FedAvg,FedBN', suite=small(), out=tmp_path)
    want = compare(**how)
    avg, bn = sorted((tmp_path/'runs').glob('*.json'))
    bn.write_text(avg.read_text())
    says = 'FedBN.* is of another run than its name says'
    with pytest.warns(UserWarning, match=says): again = compare(**how)
    assert again.histories == want.histories

def test_controls_tuned_and_stopped_runs_are_found_again(tmp_path):
    how = TOY | dict(methods='FedAvg', suite=small(), out=tmp_path, control=True, pooled=True)
    compare(**how)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path/'runs').iterdir()}
    compare(**how)
    assert len(before) == 3 and all(p.stat().st_mtime_ns == t for p, t in before.items())

# ---- folders of runs

def test_another_comparison_into_the_same_folder(tmp_path):
    compare('FedAvg', seeds=1, out=tmp_path, **EMOJI)
    before = (tmp_path/'compare.json').read_bytes()
    others = [dict(methods='FedBN'), dict(rounds=2), dict(model='small_conv(width=4)'),
              dict(suite='skew-digits'), dict(seeds=[1])]
    for other in others:
        how = EMOJI | dict(methods='FedAvg', seeds=1, out=tmp_path) | other
        says = 'holds another comparison .* give another folder'
        with pytest.raises(ValueError, match=says): compare(**how)
    assert (tmp_path/'compare.json').read_bytes() == before

def test_a_comparison_may_grow(tmp_path):
    how = EMOJI | dict(out=tmp_path)
    compare('FedAvg', seeds=1, **how)
    first = {p.name: p.stat().st_mtime_ns for p in (tmp_path/'runs').iterdir()}
    assert len(compare('FedAvg,FedBN', seeds=2, **how)) == 4
    assert all((tmp_path/'runs'/k).stat().st_mtime_ns == t for k, t in first.items())
    assert len(stored_runs(tmp_path)) == 4

@pytest.mark.parametrize('extra', ['control', 'pooled'])
def test_a_comparison_may_grow_by_what_it_is_held_beside(tmp_path, extra):
    how = dict(suite=small(), out=tmp_path) | TOY
    alone = compare('FedAvg', **how)
    assert len(alone) < len(compare('FedAvg', **how | {extra: True}))
    with pytest.raises(ValueError, match=f'{extra} there: True, here: (False|None)'): compare('FedAvg', **how)

def test_runs_of_another_version_are_left_and_counted(tmp_path, monkeypatch):
    compare('FedAvg', small(), out=tmp_path, **TOY)
    theirs = module.versions() | dict(fedskew_nb='0.0.9')
    monkeypatch.setattr(module, 'versions', lambda: theirs)
    says = 'holds 1 runs of other data, code, settings or versions: they are kept, and not read'
    with pytest.warns(UserWarning, match=says): compare('FedAvg', small(), out=tmp_path, **TOY)
    assert len(list((tmp_path/'runs').iterdir())) == 2 and len(runs_in(tmp_path)) == 1

def test_same_name_other_images_poison_nothing(tmp_path):
    a, b = small(), replace(small(), mean=(.9, .9, .9))
    first = compare('FedAvg', a, out=tmp_path, **TOY)
    with pytest.warns(UserWarning, match='of other data'): other = compare('FedAvg', b, out=tmp_path, **TOY)
    assert first.histories != other.histories == compare('FedAvg', b, **TOY).histories
    with pytest.warns(UserWarning, match='of other data'): again = compare('FedAvg', a, out=tmp_path, **TOY)
    assert again.histories == first.histories

def test_a_checkpoint_of_other_images_is_refused(tmp_path):
    part = tmp_path/'c'
    run = replace(A, setting=dict(rounds=2, local_steps=1, eval_every=1))
    federation_of(run, out=part).fit(1)
    other = changed(run, suite=replace(small(), mean=(.9, .9, .9)))
    with pytest.raises(ValueError, match="is of another run: its data is '"): federation_of(other).load(part)

# ---- a folder from somebody else

def test_report_and_resume_run_nobodys_code(tmp_path):
    f = tmp_path/'mine.py'
    f.write_text(MINE)
    compare(f'FedAvg,{f}:Mine', seeds=1, out=tmp_path/'o', **EMOJI)
    f.write_text('raise SystemExit("it ran")\n')
    assert [h is not None for _, h in stored_runs(tmp_path/'o')] == [True, True]
    assert read_request(tmp_path/'o').files() == [str(f)]
    for opens in (resume, lambda out: kept_federation(out, 'FedAvg')):
        with pytest.raises(ValueError, match='mine.py, which this would run: look at it'): opens(tmp_path/'o')
    f.write_text(MINE)
    assert len(resume(tmp_path/'o', trust_code=True)) == 2

def listed(**said):
    usual = dict(methods=['FedAvg'], suites=[], seeds=1, size='tiny', model=None, setting={})
    return ListRequest(**usual | said)

PLACES = [
    (listed(methods=['FedAvg', '/a b/x.py:M(a=1)']), ['/a b/x.py']),
    (GridRequest(grid='f2dc', said=dict(methods='Local,/x.py:M')), ['/x.py']),
    (listed(suites=['/x.py:s']), ['/x.py']),
    (listed(model='/x.py:net'), ['/x.py']),
    (GridRequest(grid='f2dc', said=dict(model='/x.py:net')), ['/x.py']),
    (listed(methods=['/x.py:M(a=1) + FedBN', 'FedBN+/y.py:M + MOON']), ['/x.py', '/y.py']),
    (listed(methods=['/a,.py:M']), ['/a,.py']),
    (listed(model='resnet10'), [])]

@pytest.mark.parametrize('request_, found', PLACES)
def test_a_python_file_in_every_place_of_a_request(request_, found): assert request_.files() == found

# ---- what another process sees

HERE = Path(__file__)

def cells_class():
    "A class of a notebook's cell: its module is there, and has no file."
    cell = ModuleType('a_cell')
    exec('from fedskew_nb import Mechanism\nclass Mine(Mechanism): "Nothing."', vars(cell))
    return cell

class Breaks:
    "A pool whose processes die, before they begin or later."
    def __init__(self, n, spawn, initializer, args): self.began = args[2]
    def submit(self, *_):
        if self.late: self.began.set()
        raise BrokenProcessPool
    def shutdown(self, **_): pass

OUT_OF_SIGHT = dict(
    cell=lambda: vars(sys.modules['a_cell'])['Mine'](),
    elsewhere=lambda: mechanism(ONE),
    anonymous=lambda: (lambda seed: small()),
    local=lambda: scaled(2),
    file=lambda: vars(sys.modules['a_file'])['Mine']())

@pytest.fixture
def modules(monkeypatch):
    "A module of a cell, and one of a file that was named."
    cell = cells_class()
    monkeypatch.setitem(sys.modules, 'a_cell', cell)
    file = ModuleType('a_file')
    file.__file__, file.__helpers__ = str(HERE), {}
    exec('class Mine: "Nothing."', vars(file))
    monkeypatch.setitem(sys.modules, 'a_file', file)

@pytest.mark.parametrize('thing', OUT_OF_SIGHT.values(), ids=OUT_OF_SIGHT)
def test_what_another_process_cannot_import_goes_as_its_code(modules, thing, monkeypatch):
    "Where no module of it is, it comes out with the letters that it had."
    thing = thing()
    sent, letters = packed(thing), digest(thing)
    for name in ('a_cell', 'a_file'): monkeypatch.delitem(sys.modules, name)
    _, _, again = pickle.loads(sent)
    assert digest(again) == letters

@pytest.mark.parametrize('thing', [Breaks, read_method, torch.nn.Linear])
def test_what_it_can_import_goes_by_its_name(thing): assert len(packed(thing))-len(packed()) < 100

def test_what_cannot_be_sent_is_refused_before_a_process_starts(monkeypatch):
    monkeypatch.setattr(executors.cf, 'ProcessPoolExecutor', Never)
    lock = threading.Lock()
    def measure(fed): return dict(locked=lock.locked())
    with pytest.raises(ValueError, match='other processes cannot get .*lock.*: say jobs=1'):
        compare('FedAvg', 'emoji-pacs', size='tiny', seeds=2, jobs=2, measure=measure, **SHORT)

class Never:
    "A pool that nobody should ask."
    def __init__(self, *_): pass
    def submit(self, *_): raise AssertionError('no process should be started')
    def shutdown(self, **_): pass

def test_a_file_goes_with_the_text_that_it_had(tmp_path):
    "It is edited before another process reads what was sent."
    file = tmp_path/'mine.py'
    file.write_text('from fedskew_nb import Mechanism\nclass Mine(Mechanism):\n'
                    '    def finish(self, c): return dict(n=1)\n')
    mine = from_file(str(file), 'Mine')
    sent, letters = packed(print_letters, mine), digest(mine)
    (tmp_path/'sent').write_bytes(sent)
    file.write_text(file.read_text().replace('n=1', 'n=2'))
    read = f'import sys; sys.path.insert(0, {str(HERE.parent)!r})\n' \
           f'from fedskew_nb.run.scripts import called; called(open({str(tmp_path/"sent")!r}, "rb").read())'
    env = os.environ | dict(PYTHONPATH=str(HERE.parents[1]))
    out = subprocess.run([sys.executable, '-c', read], env=env, text=True, capture_output=True)
    assert out.stdout.split() == [letters], out.stderr

def print_letters(kind): print(digest(kind))

BARE = """
import linecache
from fedskew_nb import Mechanism, Method, compare
class Mine(Mechanism):
    def loss(self, c, b, out): return dict(mine=out.logits.square().mean())
cell = '''class Typed(Mechanism):
    def loss(self, c, b, out): return dict(typed=out.logits.abs().mean())
'''
linecache.cache['cell 1'] = len(cell), None, cell.splitlines(keepends=True), 'cell 1'
exec(compile(cell, 'cell 1', 'exec'))
def rounds(fed): return dict(rounds=len(fed.history.rounds))
how = dict(suite='emoji-pacs', size='tiny', seeds=1, control=False, measure=rounds, progress=False,
           rounds=1, local_steps=1, eval_every=1, model='small_conv(width=4)')
methods = [Method(kind.__name__, kind()) for kind in (Mine, Typed)]
two, one = (compare(methods, jobs=n, **how) for n in (2, 1))
assert two.histories == one.histories and [h.measures for h in two.histories] == [dict(rounds=1)]*2
print('alike')
"""

@pytest.mark.slow
def test_methods_of_a_bare_program_and_of_a_cell_train_in_two_processes(tmp_path):
    "Without `if __name__ == '__main__'`; a cell is a text that only linecache has, as in IPython."
    (tmp_path/'mine.py').write_text(BARE)
    call, env = [sys.executable, str(tmp_path/'mine.py')], os.environ | dict(PYTHONPATH=str(HERE.parents[1]))
    out = subprocess.run(call, env=env, text=True, capture_output=True, cwd=tmp_path)
    assert out.stdout == 'alike\n', out.stderr

BROKEN = [(False, 'no process could begin: say jobs=1'), (True, 'did not come back .*, the 4th time')]

@pytest.mark.parametrize('late, says', BROKEN)
def test_a_pool_that_breaks(monkeypatch, late, says):
    monkeypatch.setattr(executors.cf, 'ProcessPoolExecutor', type('Breaks', (Breaks,), dict(late=late)))
    with pytest.raises(ChildProcessError, match=says):
        compare('FedAvg', 'emoji-pacs', size='tiny', seeds=2, jobs=2, **SHORT)

TRAP = 'open("ran", "a").write(__name__+" ")\nraise ImportError("a trap")\n'
PROGRAM = """import sys
from fedskew_nb.tools.cli import main
if __name__ == '__main__': sys.exit(main(sys.argv[1:]))
"""

@pytest.mark.slow
def test_a_folder_of_traps_runs_nothing(tmp_path):
    "As the command is installed: a program in another folder than the one where somebody stands."
    (tmp_path/'bin').mkdir()
    (tmp_path/'bin'/'fedskew').write_text(PROGRAM)
    (tmp_path/'here').mkdir()
    for name in ('multiprocessing', 'random', 'torch', 'sitecustomize', 'fedskew_nb'):
        (tmp_path/'here'/f'{name}.py').write_text(TRAP)
    call = 'compare --suite emoji-pacs --size tiny --methods FedAvg --no-control --seeds 2 --rounds 1'
    more = ['--set', 'local_steps=1', '--model', 'small_conv(width=1)', '--jobs', '2', '--out', 'o']
    r = subprocess.run([sys.executable, str(tmp_path/'bin'/'fedskew'), *call.split(), *more],
                       cwd=tmp_path/'here', capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    assert not (tmp_path/'here'/'ran').exists() and (tmp_path/'here'/'o'/'report.html').exists()

def test_the_environment_is_left_as_it_was(monkeypatch):
    for before in (None, '', '1'):
        monkeypatch.delenv('PYTHONSAFEPATH', raising=False)
        if before is not None: monkeypatch.setenv('PYTHONSAFEPATH', before)
        with safe_path(): assert os.environ['PYTHONSAFEPATH'] == '1'
        assert os.environ.get('PYTHONSAFEPATH') == before

@pytest.mark.parametrize('before', [None, '', '1'])
@pytest.mark.parametrize('leaves', [[0, 1, 2], [2, 1, 0], [1, 2, 0]], ids=str)
def test_threads_that_want_the_same_environment(monkeypatch, before, leaves):
    "It is safe as long as anybody is inside, and then what it was before all of them."
    monkeypatch.setenv('PYTHONSAFEPATH', 'x')          # so that it is put back whatever happens
    monkeypatch.delenv('PYTHONSAFEPATH')
    if before is not None: monkeypatch.setenv('PYTHONSAFEPATH', before)
    threads = [safe_path() for _ in leaves]
    for thread in threads: thread.__enter__()
    for k in leaves:
        assert os.environ['PYTHONSAFEPATH'] == '1'
        threads[k].__exit__(None, None, None)
    assert os.environ.get('PYTHONSAFEPATH') == before

# ---- what is named before anything is trained

def test_a_function_of_ones_own_that_raises_is_named(tmp_path):
    (tmp_path/'net.py').write_text('def net(n_classes): raise KeyError("boo")\n')
    with pytest.raises(KeyError) as e: run_name(changed(model=f'{tmp_path}/net.py:net'))
    assert e.value.__notes__ == [f'in {tmp_path}/net.py:net']

@pytest.mark.parametrize('end', ['GeneratorExit', 'Own', 'asyncio.CancelledError'])
def test_whatever_a_file_raises_is_one_sentence(tmp_path, end):
    (tmp_path/'m.py').write_text(f'import asyncio\nclass Own(BaseException): pass\nraise {end}("boo")\n')
    says = 'm.py cannot be imported: .*: boo'
    with pytest.raises(ValueError, match=says): read_method(f'{tmp_path}/m.py:Mine')

def test_a_null_letter_in_a_path():
    with pytest.raises(ValueError, match="out is .*: give the name of a folder"):
        compare('FedAvg', 'emoji-pacs', out='a\0b', **SHORT)
