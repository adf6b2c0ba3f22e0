"""What was typed, stored or sent wrongly.

One sentence with its name, the code that a shell expects, and nothing half done.
"""
import concurrent.futures as cf
import io, json, lzma, os, shutil, signal, subprocess, sys, threading, time, warnings
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
import matplotlib.pyplot as plt, pandas as pd, pytest, torch
from torch import nn
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import save, save_file
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.analysis.overview import load_comparison
from fedskew_nb.analysis.report import report_html, write_report
from fedskew_nb.analysis.table import Table, csv_text
from fedskew_nb.analysis.trust_tables import domain_table
from fedskew_nb.tools import cli
from fedskew_nb.run.scripts import from_file, no_exit
from fedskew_nb.tools.shell import called, file_trouble, in_shell, parsed
from fedskew_nb.run.compare import compare, resume
from fedskew_nb.run.recipes import read_method, read_model, read_suite
from fedskew_nb.run.rates import read_tuned
from fedskew_nb.run.plan import planned
from fedskew_nb.run.store import read_request
from fedskew_nb.run.wish import check_arguments
from fedskew_nb.run.tune import tune
from fedskew_nb.core.files import write_json
from fedskew_nb.nets.models import small_conv
from fedskew_nb.data.folder import folder
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.checkpoint import from_bytes, load_nest, save_nest, to_bytes
from fedskew_nb.engine.history import History, read_history
from fedskew_nb.methods.baselines.average import FedAvg
from bare import read_bench
from bench import asked
from feds import fed_of, instead

SMALL = ['--suite', 'emoji-pacs', '--size', 'tiny', '--rounds', '1', '--set', 'local_steps=1',
         '--model', 'small_conv(width=4)']
ONE = ['compare', *SMALL, '--methods', 'FedAvg', '--no-control', '--seeds', '1']
CALL = [sys.executable, '-c', '''import sys
from fedskew_nb.tools.cli import main
if __name__=="__main__": sys.exit(main())''']

@pytest.fixture
def here(tmp_path, monkeypatch):
    "An empty folder, which is the current one."
    monkeypatch.chdir(tmp_path)
    return tmp_path

@pytest.fixture
def said(capsys):
    "Exit code and what stderr said of a call in this process."
    def call(*argv):
        code = cli.main([str(a) for a in argv])
        return code, capsys.readouterr().err
    return call

# ---- what was typed

OPTIONS = dict(
    compare='methods suite out model data grid tuned seeds size protocol checkpoints boxes set device',
    tune='methods out own seeds', claims='out', boxes='data')
EMPTY = [f'{command} --{option}' for command, options in OPTIONS.items() for option in options.split()]
EMPTY += ['report', 'resume', 'notebooks', 'report x --save']
EMPTY += ['boxes --data x --out', 'boxes --data x --model']

@pytest.mark.parametrize('text', EMPTY)
def test_an_empty_value_is_named(here, said, text):
    code, err = said(*text.split(), '')
    name = text.split()[-1] if '--' in text else 'out'
    assert code == 2 and f'{name} is empty' in err and not list(here.iterdir())

def test_blanks_and_commas_name_nothing(here, said):
    assert 'name at least one method' in said('compare', '--methods', ' , ')[1]
    assert 'suite is' in said('compare', '--methods', 'FedAvg', '--suite', ',')[1]
    assert not list(here.iterdir())

@pytest.mark.parametrize('text, word', [
    ('claims --seeds 0', 'no option --seeds'),
    ('claims --headline 0', 'no option --headline'),
    ('claims --jobs 0', 'no option --jobs'),
    ('compare --method x', 'did you mean --methods'),
    ('compare --lr .1', 'write --set lr='),
    ('compare --job 2', 'did you mean --jobs'),
    ('list x', 'no option x')])
def test_an_option_that_does_not_exist(here, said, text, word):
    code, err = said(*text.split())
    assert code == 2 and word in err and not list(here.iterdir())

@pytest.mark.parametrize('text, word', [
    ('--seeds 99999999999', 'seeds is 99999999999'),
    ('--seeds True', 'seeds is True'),
    ('--seeds [0,1],2', 'seeds is'),
    ('--seeds 1e3', '1e3'),
    ('--seeds -1', 'seeds is []'),
    ('--rounds -1', 'rounds is -1'),
    ('--jobs -1', 'jobs is -1'),
    ('--rounds 1.5', 'invalid int'),
    ('--set lr="8"', "lr is '8'"),
    ('--set lr=-1', 'lr is -1'),
    ('--set lr=1e999', 'lr is inf'),
    ('--set =5', "no setting ''")])
def test_a_number_that_cannot_be(here, said, text, word):
    code, err = said(*instead(ONE, *text.split()))
    assert code == 2 and word in err and not list(here.iterdir())

@pytest.mark.parametrize('text, word', [
    ('--set methods="FedBN"', 'write --methods'),
    ('--set suite="emoji-pacs"', 'write --suite'),
    ('--set size="quick"', 'write --size'),
    ('--set model="resnet10"', 'write --model'),
    ('--set protocol="fedbn"', 'write --protocol'),
    ('--set seeds=5', 'write --seeds'),
    ('--set out="x"', 'write --out'),
    ('--set jobs=2', 'write --jobs'),
    ('--set executor="ray"', 'write --executor'),
    ('--set pooled=True', 'write --pooled'),
    ('--set control=True', "no setting 'control'"),
    ('--set on_run=5', "no setting 'on_run'"),
    ('--set lrr=.1', 'did you mean lr'),
    ('--set seed=5', 'say which seeds'),
    ('--set lr=.1 --set lr=.2', '--set lr is given twice'),
    ('--set lr=.1 --set lr=.1', '--set lr is given twice'),
    ('--set rounds=8', '--set rounds is given twice')])
def test_what_set_does_not_take(here, said, text, word):
    code, err = said(*ONE, '--out', 'o', *text.split())
    assert code == 2 and word in err and not list(here.iterdir())

@pytest.mark.parametrize('text', [
    '--seeds 2', '--rounds 2', '--rounds=2', '--size quick', '--model resnet10', '--out=p'])
def test_an_option_of_one_value_is_given_once(here, said, text):
    code, err = said(*ONE, '--out', 'o', *text.split())
    option = text.partition(' ')[0].partition('=')[0]
    assert code == 2 and f'{option} is given 2 times' in err and not list(here.iterdir())

def test_an_option_that_is_a_list_is_collected():
    more = ['--methods', 'FedBN', '--methods=Local,MOON', '--suite', 'skew-digits', *['--checkpoints', '1']*2]
    how = parsed(cli.compare_command, 'compare', [*ONE[1:], *more])
    own = ('out', 'json', 'trust', 'keep_models')
    want = cli.which_options(**{k: v for k, v in how.items() if k not in own})
    assert want['methods'] == 'FedAvg,FedBN,Local,MOON' and want['suite'] == ['emoji-pacs', 'skew-digits']
    assert want['checkpoints'] == [1, 1]
    for typed in (dict(only=['W1', 'W3']), dict(only=['W1,W3', 'W1'])):
        assert asked(**dict(only=(), methods=(), pairs=1) | typed)[0] == ['W1', 'W3']
    assert asked((), ['moon', 'Standalone'], 1)[0] == ['MOON', 'Local']

@pytest.mark.parametrize('text, word', [
    ('--own FedProx(mu=[.1]) --own fedprox(mu=[.2])', '--own FedProx is given twice'),
    ('--own fedproxx(mu=[.1])', 'did you mean FedProx'),
    ('--own FedProx(mu=[])', 'has no values to try'),
    ("--own FedProx(mu=['x'])", "Prox: mu is 'x'")])
def test_what_own_does_not_take(here, said, text, word):
    code, err = said('tune', *SMALL, '--methods', 'FedProx', *text.split(), '--out', 'o')
    assert code == 2 and word in err and not list(here.glob('o/runs/*'))

@pytest.mark.parametrize('trials', ['0', '-1', '1000000'])
def test_trials_that_cannot_be(here, said, trials):
    code, err = said('tune', *SMALL, '--methods', 'FedAvg', '--trials', trials)
    assert code == 2 and f'trials is {trials}' in err and not list(here.iterdir())

# ---- what Python was given

NET = small_conv(7, width=4)
WRONG = dict(
    methods=[None, 5, True, [], '', [None], ['FedAvg', 5], {'FedAvg': 1}, b'FedAvg', object()],
    suite=[None, 5, [], '', [None], {}, b'x', Path('emoji-pacs'), lambda seed: 5, lambda: 5],
    seeds=[None, '3', 3., True, 2**40, [1.5], ['1'], [2**70], {}, range(10**9)],
    size=[None, 5, '', 'quik', [], True],
    out=[5, True, [], '', b'x', Path('')],
    jobs=['2', None, 1.5, True, 0, -1],
    executor=[5, '', 'processes', 'dusk://head:1', cf.Executor],
    model=[None, 5, True, '', [], b'x', nn.Linear(3, 3), NET],
    protocol=[5, '', True, []],
    device=[None, 5, [], True],
    tuned=[5, '', [], {}, {'emoji-pacs': 5}],
    control=['no', None, 0],
    pooled=['no', None],
    trust=['no', 5],
    progress=['x', 5],
    measure=[5, 'x'],
    on_run=[5, 'x'],
    on_seed=[5],
    rounds=['8', 1.5, True, 0, -1, None],
    lr=['.1', 0, -1, None, float('nan')])

SHORT = dict(rounds=1, local_steps=1, progress=False)
CHEAP = SHORT | dict(seeds=1, control=False, model='small_conv(width=4)')

def compared(data, **kw): return compare(**dict(methods='FedAvg', suite=data, size='tiny') | CHEAP | kw)

@pytest.mark.parametrize('name', WRONG)
def test_every_argument_of_compare(suite, here, name):
    for value in WRONG[name]:
        with pytest.raises(ValueError) as e: compared(suite, **{name: value})
        assert any(w in str(e.value) for w in (name, '<lambda>', 'size')), value
    assert not list(here.iterdir())

@pytest.mark.parametrize('seeds', [2, [5, 3], (5, 3), range(2)], ids=str)
def test_seeds_in_any_sequence(seeds):
    check_arguments(dict(seeds=seeds), ['seeds'])
    assert [r.seed for r in planned('Local', 'emoji-pacs', seeds, control=False)] in ([0, 1], [5, 3])

NEAR = dict(suites='suite', job='jobs', method='methods', roundz='rounds', learning_rate='')

@pytest.mark.parametrize('name, near', list(NEAR.items()))
def test_an_argument_that_does_not_exist(suite, name, near):
    with pytest.raises(ValueError, match=f"no setting '{name}'.*{near}"): compared(suite, **{name: 5})

WRONG_TUNE = [
    dict(trials='4'), dict(trials=2.5), dict(trials=None), dict(trials=True), dict(own=5),
    dict(own={'FedAvg': 5}), dict(out=''), dict(jobs='2'), dict(control=True), dict(trial=3),
    dict(seeds=None), dict(methods=[])]

@pytest.mark.parametrize('wrong', WRONG_TUNE, ids=str)
def test_arguments_of_tune(suite, wrong):
    how = dict(methods='FedAvg', suite=suite, seeds=[100], trials=2) | SHORT
    with pytest.raises(ValueError, match=next(iter(wrong))): tune(**how | wrong)

WRONG_SUITES = [
    ([],), (None,), ('emoji-pacs', []), ('emoji-pacs', 5), ('emoji-pacs', 'tiny', '0'),
    ('emoji-pacs', 'tiny', True)]

@pytest.mark.parametrize('args', WRONG_SUITES, ids=str)
def test_arguments_of_load_suite(args):
    with pytest.raises(ValueError): load_suite(*args)

READERS = dict(method=read_method, model=lambda o: read_model(o, 10), suite=read_suite)

@pytest.mark.parametrize('read', READERS.values(), ids=READERS)
def test_what_is_no_name(read):
    for o in (None, 5, b'x', ['FedAvg']):
        with pytest.raises(ValueError, match='give a name'): read(o)

# ---- a file that ends Python

ENDS = '''
import sys
from dataclasses import dataclass
from fedskew_nb import Mechanism
@dataclass
class Mine(Mechanism):
    "Ends."
    def loss(self, c, b, out): sys.exit(0)
@dataclass
class Key(Mechanism):
    "Stops."
    def loss(self, c, b, out): raise KeyboardInterrupt
def net(n_classes): sys.exit(0)
def suite(seed): sys.exit(0)
def less(): return 5
'''

FILES = dict(exits='import sys\nsys.exit(0)', stops='raise KeyboardInterrupt', late=ENDS)

@pytest.mark.parametrize('text, what', [
    ('--methods ./exits.py:Mine', 'exits.py'),
    ('--methods ./stops.py:Mine', 'stops.py'),
    ('--methods ./late.py:Mine', 'late.py, line 8'),
    ('--methods ./late.py:Key', 'late.py, line 12'),
    ('--methods FedAvg --model ./late.py:net', 'late.py, line 13'),
    ('--methods FedAvg --suite ./late.py:suite', 'late.py, line 14')])
def test_a_file_that_ends_python_is_named(here, said, text, what):
    for name, code in FILES.items(): (here/f'{name}.py').write_text(code)
    call = ['compare', *SMALL, '--no-control', '--seeds', 1]
    code, err = said(*instead(call, *text.split()))
    assert code == 2 and what in err and 'ends Python with' in err

def test_a_function_of_other_arguments_is_named(here, said):
    (here/'late.py').write_text(ENDS)
    says = 'late.py:less cannot be called'
    assert says in said('compare', '--methods', 'FedAvg', '--suite', './late.py:less')[1]
    assert says in said(*instead(ONE, '--model', './late.py:less'))[1]

INTERRUPTED = '''
import os, signal
if not os.path.exists("seen"):
    open("seen", "w")
    os.kill(os.getpid(), signal.SIGINT)
x = 1
'''

def test_a_real_ctrl_c_goes_on(here, ctrl_c):
    "Also while a file is imported, which is then imported again."
    (here/'slow.py').write_text(INTERRUPTED)
    with pytest.raises(KeyboardInterrupt): from_file('slow.py', 'x')
    assert from_file('slow.py', 'x') == 1
    with pytest.raises(KeyboardInterrupt):
        with no_exit(): ctrl_c()

def test_a_note_is_said_once(capsys):
    "Though each deal of the same pictures warns anew, and Python forgets what it said where filters change."
    def deals():
        for note in ('7 have a twin', 'a copy', '7 have a twin'):
            with warnings.catch_warnings(): warnings.simplefilter('default')
            warnings.warn(note)
    called(deals, ['deals'])
    assert capsys.readouterr().err.splitlines() == ['fedskew: note: 7 have a twin', 'fedskew: note: a copy']

# ---- in a shell

CALLS = ['list', 'claims F2DC-01', 'claims FDSE', 'compare --help', '--help']

@pytest.mark.parametrize('call', CALLS)
@pytest.mark.parametrize('code', ['ascii', 'latin-1', 'cp1252'])
def test_letters_that_a_terminal_lacks(here, monkeypatch, code, call):
    for stream in ('stdout', 'stderr'):
        monkeypatch.setattr(sys, stream, io.TextIOWrapper(io.BytesIO(), encoding=code))
    assert cli.main(call.split()) == 0
    text = sys.stdout.buffer.getvalue()
    assert text and b'\\u' not in text

def test_a_letter_that_a_terminal_lacks_is_a_question_mark(monkeypatch):
    monkeypatch.setattr(sys, 'stdout', io.TextIOWrapper(io.BytesIO(), encoding='latin-1'))
    def speak():
        print('1.2 ± 0.3 → é')
        return 0
    assert in_shell(speak) == 0
    assert sys.stdout.buffer.getvalue().decode('latin-1').split('\n')[0].strip() == '1.2 ± 0.3 ? é'

def test_a_closed_pipe_is_quiet(monkeypatch):
    read, write = os.pipe()
    os.close(read)
    monkeypatch.setattr(sys, 'stderr', io.StringIO())
    for argv in (['list'], ['--help']):
        monkeypatch.setattr(sys, 'stdout', open(os.dup(write), 'w'))
        assert cli.main(argv) == 141 and not sys.stderr.getvalue()
        sys.stdout.close()
    os.close(write)

def test_stdout_closed_or_full(monkeypatch, capsys):
    monkeypatch.setattr(sys, 'stdout', None)
    assert cli.main(['list']) == 0
    if not Path('/dev/full').exists(): return
    monkeypatch.setattr(sys, 'stderr', io.StringIO())
    monkeypatch.setattr(sys, 'stdout', open('/dev/full', 'w'))
    assert cli.main(['list']) == 1 and 'no space left' in sys.stderr.getvalue()
    sys.stdout.close()

@pytest.mark.skipif(os.name == 'nt', reason='sends signals')
@pytest.mark.parametrize('signum, code', [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_says_what_is_saved_and_resume_goes_on(here, said, monkeypatch, ctrl_c, unsaved,
                                                          signum, code):
    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as m:
        m.setattr(cli, 'tell', lambda *_: os.kill(os.getpid(), signum))
        found, err = said(*instead(ONE, '--seeds', '0,1', '--out=o'))
    assert found == code and '1 of 2 runs are saved in o: fedskew resume o goes on' in err
    assert said('resume', 'o')[0] == 0 and len(pd.read_csv('o/results.csv').seed.unique()) == 2
    assert signal.getsignal(signal.SIGTERM) is before

def test_a_killed_process_is_named(here, said, monkeypatch):
    def broken(*_): raise BrokenProcessPool('a sentence of Python')
    monkeypatch.setattr('fedskew_nb.run.executors.Processes.result', broken)
    code, err = said(*instead(ONE, '--seeds', '0,1', '--jobs', 2, '--out', 'o'))
    assert code == 1 and 'did not come back' in err and '0 of 2 runs are saved in o' in err

# ---- where it goes

@pytest.fixture
def pets(here):
    "A folder of images."
    for k, place in enumerate(('day/cat', 'day/dog', 'night/cat', 'night/dog')):
        (here/'pets'/place).mkdir(parents=True)
        for i in range(4): Image.new('RGB', (20, 20), (40*i, 50*k, 9)).save(here/'pets'/place/f'{i}.png')
    return here/'pets'

@pytest.mark.parametrize('out', ['pets', 'pets/runs', 'pets/../pets/day/x'])
def test_runs_do_not_go_into_images(pets, said, out):
    code, err = said('compare', '--methods', 'FedAvg', '--data', pets, '--out', out)
    assert code == 2 and 'lies in the images' in err
    assert sorted(p.name for p in pets.iterdir()) == ['day', 'night']

def test_images_may_lie_beside_the_runs(pets):
    assert len(compare('FedAvg', folder(str(pets), 20), out=pets.parent, **CHEAP)) == 1

def test_a_place_that_is_taken(here, said, unsaved):
    (here/'file').write_text('x')
    (here/'o').mkdir()
    (here/'o'/'runs').write_text('x')
    (here/'p'/'report.html').mkdir(parents=True)
    for out in ('file', 'file/x', 'o'):
        code, err = said(*ONE, '--out', out)
        assert code == 2 and f'cannot write into {out}' in err
    code, err = said(*ONE, '--out', 'p')
    assert code == 2 and 'report.html: is a directory, give another name' in err and 'Errno' not in err
    assert said('notebooks', 'file')[0] == 2

# ---- what was stored

DEEP = '['*10**5+']'*10**5
TORN = {'list': '[]', 'empty': '', 'null': 'null', 'text': '"x"', 'half': '{"format": 1, "me',
        'NaN': '{"format": NaN}', 'deep': DEEP, 'UTF-16': '{}'.encode('utf-16'), 'zeros': bytes(99)}

def put(path, content):
    "A file with this content; None: a folder in its place."
    path = Path(path)
    if path.exists(): path.unlink()
    if content is None: path.mkdir()
    elif isinstance(content, bytes): path.write_bytes(content)
    else: path.write_text(content if isinstance(content, str) else json.dumps(content))

@pytest.fixture(scope='module')
def stored(tmp_path_factory):
    "A comparison of one run."
    out = tmp_path_factory.mktemp('stored')
    compared('emoji-pacs', out=out)
    return out

@pytest.fixture
def again(stored, tmp_path): return Path(shutil.copytree(stored, tmp_path/'o'))

@pytest.mark.parametrize('content', [*TORN.values(), None], ids=[*TORN, 'folder'])
def test_a_torn_request_is_named(again, said, content):
    put(again/'compare.json', content)
    for command in ('report', 'resume'):
        code, err = said(command, again)
        assert code == 2 and f'{again/"compare.json"} is torn or changed' in err
        assert 'finished runs are kept' in err

CHANGED = [
    dict(methods='FedAvg'), dict(methods=5), dict(methods=[]), dict(methods=[5]), dict(methods=None),
    dict(seeds='x'), dict(seeds=[]), dict(seeds=['0']), dict(seeds=99999999999),
    dict(suites=5), dict(suites=[5]), dict(folders=5), dict(folders=[5]), dict(folders=[{}]),
    dict(folders=[dict(root='x', pixels=32, bad='strict', boxes=None, x=5)]),
    dict(setting=5), dict(setting=dict(lrx=1)), dict(setting=dict(lr='x')), dict(setting=dict(methods='x')),
    dict(setting=dict(out='x')), dict(model=5), dict(size=5), dict(size='quik'), dict(control='x'),
    dict(runs=5), dict(runs=dict(a=5)), dict(runs=dict(a=dict(note=3))), dict(runs=dict(a=dict(trials='x'))),
    dict(tuned=5), dict(tuned=dict(a=5)), dict(device=5), dict(protocol=7), dict(extra=5), dict(jobs=5),
    dict(grid='f2dc'), dict(grid='f2dc', said=5), dict(grid='f2dc', said=dict(x=1)),
    dict(grid='f2dc', said=dict(seeds='x')), dict(grid=5, said={}),
    *(dict(runs={name: {}}) for name in ('../../secret', 'a/b', '/etc/passwd', 'a\\b', 'C:x', '')),
    dict(grid='f2dc', said={}, runs={'../x': {}})]

@pytest.mark.parametrize('change', CHANGED, ids=str)
def test_a_changed_request_is_named(again, change):
    there = json.loads((again/'compare.json').read_text())
    if 'grid' in change: there = dict(format=there['format'], version='0')
    put(again/'compare.json', there | change)
    with pytest.raises(ValueError, match='compare.json is torn or changed'): read_request(again)

@pytest.mark.parametrize('name', ['methods', 'suites', 'seeds', 'size', 'model', 'setting'])
def test_a_request_that_lacks_something(again, name):
    there = json.loads((again/'compare.json').read_text())
    put(again/'compare.json', {k: v for k, v in there.items() if k != name})
    with pytest.raises(ValueError, match=f'it has no {name}'): read_request(again)

def wrong_runs(d):
    "A stored run with something wrong, and what is said of it."
    row, setting = d['rows'][0], d['setting']
    scores = [dict(correct=c) for c in ('5', float('nan'), 10**6, -1)] + [dict(n=True), dict(n=0, correct=0)]
    scores += [dict(n=10**400), dict(view='best'), dict(moment='never'), dict(view=5)]
    facts = [dict(seed='0'), dict(versions=5), dict(checkpoints='x'), dict(checkpoints=[1.5]), dict(note=3),
             dict(note=['x']), dict(trials='x'), dict(rounds=None), dict(rounds='2'), dict(size=5)]
    wrong = dict(
        rows=[5, [5], *([row | s] for s in scores)],
        setting=[5, {}, *(setting | s for s in facts), {k: v for k, v in setting.items() if k != 'rounds'}],
        rounds=[5, [{}]],
        timing=[5, [5]],
        measures=[5, [], dict(trust=3), dict(trust=dict(pooled=5)), dict(trust=dict(pooled={}))],
        measured_by=[5])
    yield d | dict(setting=setting | dict(deal='b')), "its deal is 'b'"
    before = {k: v for k, v in setting.items() if k != 'deal'}
    yield d | dict(setting=before | dict(suite='iid/b')), "its deal is 'b'"
    yield from ((text, '') for text in TORN.values())
    yield from ((d | {k: v}, k) for k, vs in wrong.items() for v in vs)

def test_a_wrong_run_is_named_and_made_anew(again):
    file = next((again/'runs').glob('*.json'))
    whole = json.loads(file.read_text())
    for content, word in wrong_runs(whole):
        put(file, content)
        with pytest.raises(ValueError, match='is not a stored run') as e: read_history(file)
        assert word in str(e.value) or 'NaN' in str(e.value)
    says = 'is torn: this run begins anew'
    with pytest.warns(UserWarning, match=says): assert len(resume(again, progress=False)) == 1
    assert read_history(file).rows == whole['rows']

def test_names_of_methods_in_a_run_are_left_out(again):
    file = next((again/'runs').glob('*.json'))
    put(file, json.loads(file.read_text()) | dict(summary=7, foo=1))
    assert callable(read_history(file).summary)

def test_a_folder_in_the_place_of_a_run(again, said):
    file = next((again/'runs').glob('*.json'))
    put(file, None)
    with pytest.raises(ValueError, match='Is a directory'): read_history(file)
    code, err = said('claims', '--out', again)
    assert code == 0 and 'left out: ' in err and file.name in err
    code, err = said('resume', again)
    assert code == 2 and f'{file}: is a directory, give another name' in err

def test_a_wrong_comparison_is_named(again, tmp_path):
    file, stored = tmp_path/'c.json.xz', next((again/'runs').glob('*.json'))
    run = json.loads(stored.read_text())
    Comparison([read_history(stored)]).save(file)
    whole = file.read_bytes()
    assert len(load_comparison(file)) == 1
    packed = [lzma.compress(t if isinstance(t, bytes) else t.encode()) for t in TORN.values()]
    nests = [{}, dict(runs=5, about={}), dict(runs=[5], about={}), dict(runs=[run], about=5),
             dict(runs=[run | dict(setting={})], about={})]
    packed += [lzma.compress(json.dumps(n).encode()) for n in nests]
    for content in (b'', b'{}', whole[:300], whole[:200]+bytes(50)+whole[250:], *packed):
        file.write_bytes(content)
        with pytest.raises(ValueError, match='c.json.xz holds no stored comparison'): load_comparison(file)

GOOD = dict(lr=.1, trials=4, seeds=[100])
WRONG_FACTS = [dict(lr='x'), dict(lr=float('inf')), dict(own=5), dict(seeds=5), dict(trials=True),
               dict(trials=-4), dict(trials=0), dict(seeds=[])]
BAD = [5, {}, *(GOOD | d for d in WRONG_FACTS)]
TUNED = [*TORN.values(), None, {}, {'emoji-pacs': 5}, *({'emoji-pacs': {'FedAvg': f}} for f in BAD)]

@pytest.mark.parametrize('content', TUNED, ids=lambda c: str(c)[:50])
def test_a_wrong_tuned_is_named_before_anything_is_trained(here, said, content):
    put('tuned.json', content)
    with pytest.raises(ValueError, match='tune'): read_tuned('tuned.json')
    assert said(*ONE, '--tuned', 'tuned.json', '--out', 'o')[0] == 2 and not Path('o').exists()
    code, err = said('tune', *SMALL, '--methods', 'FedAvg', '--trials', 2, '--seeds', '100,101', '--out', '.')
    assert code == 2 and not Path('runs').exists()

MEASUREMENTS = [*TORN.values(), {}, dict(machine=5, items={}), dict(machine={}, items={'W1': {}}),
                dict(machine={}, items={'W1': dict(rows=[{}])})]

@pytest.mark.parametrize('content', MEASUREMENTS, ids=lambda c: str(c)[:50])
def test_a_wrong_measurement_is_named(tmp_path, content):
    put(tmp_path/'b.json', content)
    with pytest.raises(ValueError, match='is not a stored measurement'): read_bench(tmp_path/'b.json')

# ---- checkpoints

@pytest.fixture(scope='module')
def checkpoint(suite, tmp_path_factory):
    file = tmp_path_factory.mktemp('checkpoint')/'c'
    fed = fed_of(FedAvg, suite, eval_every=1)
    fed.fit(1)
    fed.save(file)
    return load_nest(file)

def wrong_checkpoints(nest):
    whole = [name for name in nest if name != 'best']          # which older ones do not have
    yield from ({k: v for k, v in nest.items() if k != name} for name in whole)
    yield from (nest | {k: 5} for k in nest if k not in ('scored', 'round_no'))
    yield from (nest | {k: 'x'} for k in ('scored', 'round_no'))
    yield nest | dict(own=dict(list(nest['own'].items())[:2]))
    name, t = next((n, t) for n, t in nest['server'].items() if t.ndim > 1)
    for other in (t[:1], t.flatten(), 5): yield nest | dict(server=nest['server'] | {name: other})
    yield nest | dict(server={n: t for n, t in nest['server'].items() if n != name})
    yield nest | dict(server=nest['server'] | {name: t.long()})
    yield nest | dict(server=nest['server'] | {name: t.double()})
    yield from (nest | dict(round_no=n) for n in (99, 2, 0, -5))
    yield from (nest | dict(scored=n) for n in (99, -1))
    history = nest['history']
    row = history['rows'][0]
    one_more = row | dict(correct=row['correct']+1)
    odd_rows = [5], [row | dict(client=77)], [row | dict(correct=10**6)], [row, one_more]
    yield from (nest | dict(history=history | dict(rows=rows)) for rows in odd_rows)
    yield nest | dict(history=history | dict(rounds=history['rounds']*2))

def test_a_wrong_checkpoint_is_named_and_changes_nothing(suite, checkpoint, tmp_path):
    fed = fed_of(FedAvg, suite, eval_every=1)
    before = fed.state
    for nest in wrong_checkpoints(checkpoint):
        save_nest(nest, tmp_path/'c')
        with pytest.raises(ValueError, match='delete it|Delete it') as e: fed.load(tmp_path/'c')
        assert str(tmp_path/'c') in str(e.value) and fed.state is before
    save_nest(checkpoint, tmp_path/'c')
    assert fed.load(tmp_path/'c').round_no == 1

TREES = ['[]', '5', '{}', '{"dict": 5}', '{"tensor": 9}', '{"list": {}}', '{"a": 1, "b": 2}', DEEP, None]

@pytest.mark.parametrize('tree', TREES, ids=lambda t: str(t)[:20])
def test_a_checkpoint_of_another_shape(tmp_path, tree):
    save_file({'0': torch.zeros(1)}, str(tmp_path/'c'), metadata=tree and {'tree': tree})
    with pytest.raises(ValueError, match='is torn or no checkpoint'): load_nest(tmp_path/'c')

WHOLE = to_bytes(dict(w=torch.ones(3)))
NO_NEST = [b'hello', bytes(9), b'\xff'*40, *(WHOLE[:n] for n in (0, 7, 8, 40, -1))]

@pytest.mark.parametrize('data', NO_NEST)
def test_bytes_that_are_no_nest(data):
    with pytest.raises(ValueError, match='are torn or no message of ours'): from_bytes(data)

@pytest.mark.parametrize('orders', ['5', '{"0": 5}', '{"0": [0, 0]}', '{"0": [1, 7]}', '{"0": ["a", "b"]}'])
def test_bytes_with_an_order_of_no_dimensions(orders):
    data = save({'0': torch.ones(2, 3)}, dict(tree='[{"dict": [["w", {"tensor": 0}]]}, '+orders+']'))
    with pytest.raises(ValueError, match='are torn or no message of ours'): from_bytes(data)

# ---- names that are commands elsewhere

ODD = r'a_b & 50% $x$ #1 {y} \input{/etc/passwd} ~^' + '\nsecond'

def test_latex_of_any_name():
    cells = pd.DataFrame({'method': [ODD, '[x', '*x'], ODD: ['1', '−2 → 3', '2 × 3 ≤ 4']})
    text = plain = Table(ODD, cells, [ODD]).latex(f'tab:{ODD}')
    for letter in ('textbackslash', 'textasciitilde', 'textasciicircum'):
        plain = plain.replace(f'\\{letter}{{}}', '')
    assert r'\input' not in plain and r'a\_b \& 50\% \$x\$ \#1 \{y\}' in plain
    assert r'\label{tab:a_b-50-x-1-y-input-etc-passwd-second}' in text
    assert '{}[x &' in text and '{}*x &' in text and text.isascii()

def test_csv_of_any_name():
    odd = ['=1+1', '+1', '-1', '@SUM(1)', '\t=1', '\r=1', '\n=1', ' \n@x', 'photo', '']
    text = csv_text(pd.DataFrame(dict(domain=odd, n=range(-5, 5), x=[-.5]*10)))
    back = pd.read_csv(io.StringIO(text), keep_default_na=False)
    guarded = ["'=1+1", "'+1", "'-1", "'@SUM(1)", "'\t=1", "' =1", "'\n=1", "' \n@x"]
    assert list(back.domain) == [*guarded, 'photo', '']
    assert list(back.n) == list(range(-5, 5)) and list(back.x) == [-.5]*10

TAGS = '<script>alert(1)</script>', '<b>', '</td>', '<!-- x', '<?php'

@pytest.mark.parametrize('tag', TAGS)
def test_markdown_of_any_name(tag):
    text = Table(tag, pd.DataFrame({'method': [tag], tag: ['p < .05']}), [tag]).markdown()
    assert tag not in text and text.count('&lt;') >= 4 and 'p < .05' in text

@pytest.fixture(scope='module')
def odd_names(suite):
    "A comparison in which every name is markup, or a formula."
    evil = '=<script>alert(1)</script>'
    names = {d: f'{evil}{i}' for i, d in enumerate(suite.tests)}
    clients = [replace(c, domain=names[c.domain]) for c in suite.clients]
    tests = {names[d]: t for d, t in suite.tests.items()}
    classes = [f'{evil}{c}' for c in suite.classes]
    odd = replace(suite, name='=<b>suite<b>', classes=classes, clients=clients, tests=tests)
    return compared(odd, methods=FedAvg.named('@<i>m<i>'))

def test_a_report_shows_markup_as_text(odd_names):
    html = report_html(odd_names, {}, title='<u>title</u>')
    assert not any(tag in html for tag in ('<script', '<b>', '<i>', '<u>'))
    assert all(name in html for name in ('&lt;script&gt;', '&lt;b&gt;suite', '&lt;i&gt;m', '&lt;u&gt;title'))

def test_no_formula_in_the_results(odd_names):
    lines = odd_names.csv().splitlines()[1:]
    cells = [cell.strip('"') for line in lines for cell in line.split(',')]
    assert cells and not any(cell.startswith(('=', '@')) for cell in cells)

# ---- a report whose names nobody could draw

def made_up(suite='toy', domains=('a', 'b'), methods=('FedAvg', 'FedBN')):
    "A comparison of made-up scores."
    def run(method, deal, seed):
        h = History(dict(method=method, suite=suite, deal=deal, seed=seed, rounds=1))
        row = dict(round=1, moment='post_agg', view='global', path='', client=-1, n=100)
        h.rows = [row | dict(domain=d, correct=50+5*seed+i) for i, d in enumerate(domains)]
        return h
    lines = [(m, 'skew') for m in methods]+[('FedAvg', 'iid')]
    return Comparison([run(*line, seed) for line in lines for seed in (0, 1)])

ODD_DOMAINS = 'method', 'domain', r'$\bad{$', '<b>'

def test_a_report_of_names_that_are_taken_or_formulas(tmp_path, recwarn):
    cmp = made_up('x'*250, ODD_DOMAINS, ('FedAvg', r'$\bad{$'))
    paths = write_report(cmp, tmp_path)
    assert not [w for w in recwarn if 'could not be drawn' in str(w.message)]
    html, figures = paths['report.html'].read_text(), list(paths['figures'].iterdir())
    assert html.count('<img alt') == 3 and len(figures) == 6
    assert all(len(f.name) < 120 for f in figures)
    assert list(cmp.domains().cells) == ['method', *ODD_DOMAINS]

def test_names_of_domains_in_the_table_of_trust():
    rows = pd.DataFrame([dict(method='FedAvg', seed=s, client=0, domain=d, score='1 - max p', accuracy=50+s,
                              ECE=1., wrong=2., **{'ECE at T': 3.})
                         for s in (0, 1) for d in ('method', 'seed', 'measure')])
    t = domain_table(rows, 'toy')
    assert list(t.cells) == ['method', 'measure', 'method', 'seed', 'measure'] and len(t.cells) == 4

def test_a_suite_called_like_a_column():
    assert list(made_up('method').overview().cells) == ['method', 'method']

def test_a_figure_that_cannot_be_drawn_is_a_note(tmp_path, monkeypatch, unsaved):
    "The tables come before it, so that they are there whatever happens."
    def huge(*_): raise MemoryError
    monkeypatch.setattr('fedskew_nb.analysis.report.plot_curves', huge)
    with pytest.warns(UserWarning, match='the figure curves could not be drawn .MemoryError.'):
        paths = write_report(made_up(), tmp_path)
    html = paths['report.html'].read_text()
    assert 'It could not be drawn: MemoryError' in html and html.count('<img alt') == 2
    def stop(*_): raise KeyboardInterrupt
    monkeypatch.setattr('fedskew_nb.analysis.report.rendered', stop)
    with pytest.raises(KeyboardInterrupt): write_report(made_up(), tmp_path/'o')
    assert {p.name for p in (tmp_path/'o').iterdir()} >= {'table.md', 'table.tex', 'results.csv'}

def test_tables_are_printed_before_the_report_and_without_a_window(again, monkeypatch, capsys):
    def full(*_): raise OSError(28, 'No space left on device', 'o/report.html')
    monkeypatch.setattr(cli, 'write_report', full)
    before = plt.get_backend()
    plt.switch_backend('pdf')
    try: code, backend = cli.main(['report', str(again)]), plt.get_backend()
    finally: plt.switch_backend(before)
    out, err = capsys.readouterr()
    assert code == 1 and 'global view' in out and backend.lower() == 'agg'
    assert 'o/report.html: no space left on device, make room' in err

# ---- messages

ESCAPES = ['\x1b[2J', '\x1b]0;title\x07', '\x9b31m', '\x08\x08', '\r', '\x00']

@pytest.mark.parametrize('letters', ESCAPES, ids=repr)
def test_no_message_moves_the_cursor(said, letters):
    code, err = said('compare', '--data', f'my{letters}pets')
    assert code == 2 and letters[0] not in err and 'my?' in err

@pytest.mark.skipif(not Path('/dev/full').exists(), reason='no /dev/full')
def test_a_full_stderr_stops_nothing(here, monkeypatch, unsaved):
    with open('/dev/full', 'w') as full, monkeypatch.context() as m:
        m.setattr(sys, 'stderr', full)
        assert cli.main([*instead(ONE, '--seeds', '0,1'), '--out', 'o']) == 0
    assert Path('o/report.html').exists() and len(list(Path('o/runs').glob('*.json'))) == 2

# ---- temporary files

def dead():
    "The number of a process that was."
    p = subprocess.Popen([sys.executable, '-c', ''])
    p.wait()
    return p.pid

OWNERS = dict(dead=(dead, False), another_thread=(os.getpid, True), somebody=(lambda: 1, True),
              nobody=(lambda: 'x', True))

@pytest.mark.skipif(os.name == 'nt', reason='asks for processes')
@pytest.mark.parametrize('owner, stays', OWNERS.values(), ids=OWNERS)
def test_only_what_dead_processes_left_is_taken_away(stored, again, owner, stays):
    part = again/'runs'/f'.a.json.{owner()}-123.part'
    part.write_text('half')
    resume(again, progress=False)
    assert part.exists() is stays

@pytest.mark.skipif(os.name == 'nt', reason='links')
def test_a_link_under_the_name_of_a_temporary_file_leads_nowhere(tmp_path):
    (tmp_path/'theirs').write_text('theirs')
    part = tmp_path/f'.a.json.{os.getpid()}-{threading.get_ident()}.part'
    part.symlink_to(tmp_path/'theirs')
    write_json([1], tmp_path/'a.json')
    assert (tmp_path/'theirs').read_text() == 'theirs' and (tmp_path/'a.json').read_text() == '[\n 1\n]'

def no_room(*_, **__): raise SafetensorError('I/O error: No space left on device (os error 28)')

def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr('safetensors.torch.save_file', no_room)
    with pytest.raises(OSError) as e: save_nest({}, tmp_path/'c')
    assert (e.value.errno, e.value.filename) == (28, str(tmp_path/'c')) and not list(tmp_path.iterdir())
    assert file_trouble(e.value) == f'{tmp_path/"c"}: no space left on device, make room'

SAVERS = dict(save=lambda c: c.save('.'), csv=lambda c: c.csv('.'), report=lambda c: c.histories[0].save('.'))

@pytest.mark.parametrize('save', SAVERS.values(), ids=SAVERS)
def test_a_folder_is_no_file_to_write(save, here):
    with pytest.raises(IsADirectoryError): save(made_up())

# ---- files that would never end

def pipe(path): os.mkfifo(path)
def device(path): path.symlink_to('/dev/zero')
def giant(path):
    with open(path, 'wb') as f: f.truncate(1 << 40)

ENDLESS = dict(pipe=(pipe, 'it is a pipe or a device'), device=(device, 'it is a pipe or a device'),
               giant=(giant, 'it has 1048576 MiB'))
PLACES = {
    'a request': ('compare.json', lambda at: read_request(at)),
    'a run': ('runs/x.json', lambda at: read_history(at/'runs'/'x.json')),
    'tuned': ('tuned.json', lambda at: read_tuned(at/'tuned.json')),
    'a measurement': ('b.json', lambda at: read_bench(at/'b.json')),
    'a comparison': ('c.json.xz', lambda at: load_comparison(at/'c.json.xz'))}

@pytest.mark.skipif(os.name == 'nt', reason='no pipes with names')
@pytest.mark.parametrize('trap, says', ENDLESS.values(), ids=ENDLESS)
@pytest.mark.parametrize('name, read', PLACES.values(), ids=PLACES)
def test_what_would_never_end_is_not_opened(tmp_path, trap, says, name, read):
    (tmp_path/'runs').mkdir()
    trap(tmp_path/name)
    with pytest.raises(ValueError, match=f'{name} .*{says}'): read(tmp_path)

@pytest.mark.skipif(os.name == 'nt', reason='no pipes with names')
@pytest.mark.parametrize('trap', [pipe, device], ids=['pipe', 'device'])
def test_a_checkpoint_that_would_never_end(tmp_path, trap):
    trap(tmp_path/'c')
    with pytest.raises(ValueError, match='is torn or no checkpoint'): load_nest(tmp_path/'c')

def test_a_comparison_is_unpacked_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr('fedskew_nb.analysis.overview.MOST_BYTES', 1 << 20)
    (tmp_path/'c').write_bytes(lzma.compress(b'['*(2 << 20)))
    with pytest.raises(ValueError, match='c holds no stored comparison .it holds more than 1 MiB'):
        load_comparison(tmp_path/'c')

# ---- other processes

def begin(out, *more):
    env = os.environ | dict(OMP_NUM_THREADS='1')
    call = instead(ONE, '--seeds', 4, '--rounds', 40, '--out', out, *more)
    argv = [*CALL, *(a.replace('local_steps=1', 'local_steps=4') for a in call)]
    return subprocess.Popen(argv, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

def helpers(p):
    "Processes of a call that train: its own, or those of the process that was begun to fork them."
    parents, lines = {}, {}
    for d in Path('/proc').glob('[0-9]*'):
        try:
            parents[int(d.name)] = int((d/'stat').read_text().rpartition(')')[2].split()[1])
            lines[int(d.name)] = (d/'cmdline').read_bytes()
        except OSError: continue
    mine = {pid for pid, parent in parents.items() if parent == p.pid}
    forks = {pid for pid in mine if b'forkserver' in lines.get(pid, b'')}
    return [pid for pid, parent in parents.items()
            if parent in forks or pid in mine and b'spawn_main' in lines.get(pid, b'')]

def alive(pid): return Path(f'/proc/{pid}').exists() and ') Z ' not in Path(f'/proc/{pid}/stat').read_text()

def wait(found, seconds=90):
    end = time.time()+seconds
    while not found() and time.time() < end: time.sleep(.02)
    assert found()

linux = pytest.mark.skipif(not Path('/proc/self/stat').exists(), reason='looks into /proc')

@pytest.mark.campaign
@linux
@pytest.mark.parametrize('jobs', [1, 2])
def test_sigterm_leaves_no_orphans(tmp_path, jobs):
    p = begin(tmp_path, '--jobs', jobs)
    wait(lambda: list((tmp_path/'runs').glob('*.json')))
    workers = helpers(p)
    p.terminate()
    _, err = p.communicate(timeout=60)
    assert p.returncode == 143 and 'of 4 runs are saved' in err
    assert 'Traceback' not in err and 'leaked' not in err
    assert len(workers) == (2 if jobs == 2 else 0)
    wait(lambda: not any(map(alive, workers)), 20)

@pytest.mark.campaign
@linux
def test_a_worker_that_is_killed(tmp_path):
    p = begin(tmp_path, '--jobs', 2)
    wait(lambda: list((tmp_path/'runs').glob('*.json')))
    workers = helpers(p)
    os.kill(workers[0], signal.SIGKILL)
    _, err = p.communicate(timeout=120)
    assert p.returncode == 0 and 'it is sent again' in err and 'Traceback' not in err
    assert len(list((tmp_path/'runs').glob('*.json'))) == 4
    wait(lambda: not any(map(alive, workers)), 20)
    wait(lambda: not any(map(alive, workers)), 20)
    assert cli.main(['resume', str(tmp_path)]) == 0

@pytest.mark.campaign
@pytest.mark.skipif(os.name == 'nt', reason='a shell with pipes')
def test_encodings_and_pipes_of_a_real_shell():
    for code in ('ascii', 'latin-1', 'cp1252'):
        r = subprocess.run([*CALL, 'list'], env=os.environ | dict(PYTHONIOENCODING=code), capture_output=True)
        assert r.returncode == 0 and not r.stderr
    p = subprocess.Popen([*CALL, 'claims'], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdout.close()
    assert p.wait() == 141 and not p.stderr.read()
