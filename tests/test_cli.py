"The commands, as one would type them: exit codes, sentences, kill and resume, files from outside."
import json, os, re, signal, subprocess, sys, time
from importlib import import_module
from pathlib import Path
import pytest, torch
from PIL import Image
from fedskew_nb.tools import catalogue, cli
from fedskew_nb.run.store import stored_runs
from fedskew_nb.run.recipes import METHODS
from fedskew_nb.tools.catalogue import notebook_folder, notebook_names
from feds import instead
from project import read, source

CALL = [sys.executable, '-c', '''import sys
from fedskew_nb.tools.cli import main
if __name__=="__main__": sys.exit(main())''']
BASE = ['compare', '--suite', 'emoji-pacs', '--size', 'tiny']
SHORT = ['--rounds', 2, '--set', 'local_steps=2', '--model', 'small_conv(width=4)']     # nothing is learnt

def run(capsys, *argv):
    "Exit code, stdout and stderr of a call in this process."
    code = cli.main([str(a) for a in argv])
    said = capsys.readouterr()
    return code, said.out, said.err

def images(root, size=20):
    "A folder of own images: two domains, two classes, colours tell the classes apart."
    g = torch.Generator().manual_seed(0)
    for dom in ('day', 'night'):
        for k, cls in enumerate(('cat', 'dog')):
            d = root/dom/cls
            d.mkdir(parents=True)
            for i in range(12):
                x = torch.randint(0, 120, (size, size, 3), generator=g, dtype=torch.uint8)
                x[..., k] += 100
                Image.fromarray(x.numpy()).save(d/f'{i}.png')
    return root

MINE = '''
from dataclasses import dataclass
from fedskew_nb import Mechanism
@dataclass
class Mine(Mechanism):
    "Small features."
    lam: float = .01
    def loss(self, c, b, out): return dict(small=self.lam*out.feat.square().mean())
'''
NET = '''
from fedskew_nb.nets.models import small_conv
def net(n_classes, size, seed=0, width=4): return small_conv(n_classes, size=size, width=width, seed=seed)
'''

# ---- help, list, exit codes

@pytest.mark.parametrize('command', cli.COMMANDS)
def test_help(capsys, command):
    code, out, _ = run(capsys, command, '--help')
    assert code == 0 and f'usage: fedskew {command}' in out

def test_readme_names_every_command():
    cli.register()
    readme = (Path(__file__).parents[1]/'README.md').read_text(encoding='utf-8')
    missing = [c for c in cli.COMMANDS if not re.search(rf'`(fedskew )?{c}\b', readme)]
    assert not missing, f'{missing}: say each in nbs/index.ipynb, "From a terminal", then call make export'

@pytest.mark.parametrize('room', ['tools.catalogue', 'deploy.hub'])
def test_a_module_names_its_commands(room, monkeypatch):
    "A new command edits no list: its module says `COMMANDS`."
    monkeypatch.setattr(cli, 'COMMANDS', {})
    monkeypatch.setattr(import_module(f'fedskew_nb.{room}'), 'COMMANDS', dict(greet=print), raising=False)
    cli.register()
    assert cli.COMMANDS['greet'] is print

def test_help_of_all(capsys):
    assert run(capsys, '--help')[0] == 0
    assert run(capsys)[0] == 2
    assert run(capsys, 'compare', '--what')[0] == 2

OPTIONS = '''suite data pixels boxes skip-broken size methods seeds rounds checkpoints grid tuned model
             protocol set no-control pooled trust out device jobs per-device json'''

def test_every_option_of_compare_has_a_line(capsys):
    out = run(capsys, 'compare', '--help')[1]
    for option in OPTIONS.split(): assert f'--{option}' in out
    assert 'one core each' in out

def test_list(capsys):
    out = run(capsys, 'list')[1]
    assert all(n in out for n in ('FedProx', 'skew-digits', 'resnet10', 'fedbn'))
    found = json.loads(run(capsys, 'list', '--json')[1])
    assert set(found) == {'methods', 'mechanisms', 'suites', 'models', 'protocols'}
    assert all(line for table in found.values() for line in table.values())
    assert found['methods']['FedDC'] == dict(says=METHODS['FedDC'].says, family='control')
    assert found['methods']['DC']['family'] == 'f2dc'

def test_methods_are_listed_by_family(capsys):
    lines = run(capsys, 'list')[1].splitlines()
    at = lines.index(' A corrected gradient')
    assert [l.split()[0] for l in lines[at+1:at+3]] == ['SCAFFOLD', 'FedDC']
    assert lines[at+3] == ' Contrast at the client'

BAD = [
    ('compair', 'did you mean compare'),
    ('compare --methods FedAvgg', 'did you mean FedAvg'),
    ('compare --methods FedProx(nu=1)', 'did you mean mu'),
    ('compare --methods FedProx(mu=__import__("os"))', 'literal'),
    ('compare --methods ./none.py:X', 'there is no file'),
    ('compare --suite digit', 'did you mean skew-digits'),
    ('compare --size quik', 'did you mean quick'),
    ('compare --protocol fbn', 'did you mean fedbn'),
    ('compare --rounds 0', 'rounds is 0'),
    ('compare --set local_epochs=0', 'local_epochs is 0'),
    ('compare --set batch_size=-1', 'batch_size is -1'),
    ('compare --set lr=float("nan")', 'lr'),
    ('compare --set participation=1.5', 'participation is 1.5'),
    ('compare --set learning=1', 'no setting'),
    ('compare --model resnet11', 'no model'),
    ('compare --data nowhere', 'no such folder'),
    ('compare --device gpu', 'no device'),
    ('compare --seeds x', '--seeds'),
    ('compare --seeds 0', 'seeds is []'),
    ('compare --jobs 0', 'jobs is 0'),
    ('compare --grid f2d', 'did you mean f2dc'),
    ('compare --grid f2dc --methods FedAvg', 'leave --methods out'),
    ('compare --grid f2dc --suite emoji-pacs', 'leave --suite out'),
    ('report nowhere', 'holds no comparison'),
    ('resume nowhere', 'holds no comparison'),
    ('claims run', 'fedskew compare --grid'),
    ('bench --only W1', 'make bench'),
    ('compare --rounds 4 --checkpoints 8', 'checkpoints holds 8'),
    ('compare --tuned no.json', 'no file no.json'),
    ('tune --seeds 3', 'pilot seeds'),
    ('tune --trials 1', 'trials is 1'),
    ('tune --set lr=.1', 'leave it out'),
    ('tune --methods FedProx --own FedProx(nu=[1])', 'did you mean mu'),
    ('tune --own mu=1', 'cannot read')]

@pytest.mark.parametrize('text, word', BAD)
def test_bad_input(capsys, tmp_path, text, word):
    argv = text.split()
    code, _, err = run(capsys, *argv, *(['--out', tmp_path/'o'] if argv[0] in ('compare', 'tune') else []))
    assert code == 2 and word in err and 'Traceback' not in err
    assert not list(tmp_path.rglob('*.json'))

def test_cuda_where_there_is_none(capsys, tmp_path):
    if torch.cuda.is_available(): pytest.skip('this machine has a GPU')
    code, _, err = run(capsys, *BASE, '--device', 'cuda', '--out', tmp_path)
    assert code == 2 and 'this machine has none' in err

def test_unwritable_out(capsys, tmp_path):
    (tmp_path/'file').write_text('x')
    code, _, err = run(capsys, *BASE, '--out', tmp_path/'file')
    assert code == 2 and 'cannot write into' in err

def test_nan_is_a_failure(capsys, tmp_path):
    alone = ['--methods', 'FedAvg', '--no-control', '--seeds', 1]
    code, _, err = run(capsys, *BASE, *alone, '--set', 'lr=1e30', '--out', tmp_path)
    assert code == 1 and 'not finite' in err

# ---- while it runs

def test_tables_after_the_first_seed(capsys, tmp_path, unsaved):
    "In a pipe: once after the first seed, and at the end; a line per run on stderr."
    once = ['--methods', 'FedAvg', '--no-control', '--seeds', 3]
    code, out, err = run(capsys, *BASE, *SHORT, *once, '--out', tmp_path)
    early, late = out.split('report:')[0].split('after 1 of 3 seeds ==')[1].split('n seeds; differences', 1)
    assert code == 0 and 'global view' in early and 'global view' in late and 'after 2' not in out
    assert re.search(r'^FedAvg.* 1$', early, re.M) and re.search(r'^FedAvg.* 3$', late, re.M)
    assert re.findall(r'\[(\d)/3\]', err) == ['1', '2', '3']

def test_json_is_nothing_else(capsys, tmp_path, unsaved):
    twice = ['--methods', 'FedAvg', '--no-control', '--seeds', 2]
    code, out, _ = run(capsys, *BASE, *SHORT, *twice, '--json', '--out', tmp_path)
    assert code == 0 and 'emoji-pacs' in json.loads(out)['tables']

def test_usual_methods_are_those_that_the_images_can_feed():
    with pytest.warns(UserWarning, match='left out: FedDDL, for the images have neither masks nor boxes'):
        assert 'FedDDL' not in cli.which_options(suite=['skew-digits'], size='tiny')['methods']
    assert cli.which_options(suite=['emoji-pacs'], size='tiny')['methods'].endswith('FedDDL,RFedDis')

def test_usual_methods_at_quick_have_a_rate_of_their_own(monkeypatch):
    assert 'DFL,F2DC,FDSE,FedDDL,RFedDis' in cli.which_options(suite=['emoji-pacs'])['methods']
    chosen = {('emoji-pacs', 'FedAvg'): {}, ('emoji-pacs', 'FDSE'): {}, ('skew-digits', 'DFL'): {}}
    monkeypatch.setattr(catalogue, 'rates_at', lambda setting: chosen)
    with pytest.warns(UserWarning, match='left out: .*DFL.*, for no rate was chosen here'):
        usual = cli.which_options(suite=['emoji-pacs'])['methods']
    assert usual == 'Local,FedAvg,FedBN,FDSE'

# ---- kill, resume, Ctrl-C

ARGS = [*BASE, '--methods', 'FedAvg,FedBN', '--seeds', '1', '--rounds', '8', '--set', 'eval_every=1',
        '--set', 'local_steps=4', '--model', 'small_conv(width=4)']

def begin(out, ready):
    "Start a call in another process, wait until `ready`, and hand it over."
    def listen(): signal.signal(signal.SIGINT, signal.SIG_DFL)      # background jobs of a shell are deaf
    how = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
               preexec_fn=None if os.name == 'nt' else listen)
    p = subprocess.Popen([*CALL, *ARGS, '--out', str(out)], env=os.environ | dict(OMP_NUM_THREADS='1'), **how)
    end = time.time()+240
    while not ready() and p.poll() is None and time.time() < end: time.sleep(.02)
    return p

@pytest.mark.campaign
def test_killed_in_the_middle_and_called_again(capsys, tmp_path):
    a, b = tmp_path/'a', tmp_path/'b'
    runs = a/'runs'
    def middle(): return list(runs.glob('*.json')) and list(runs.glob('[!.]*.safetensors'))
    p = begin(a, middle)
    p.kill()
    p.wait()
    assert p.returncode == -signal.SIGKILL and not (a/'results.csv').exists()
    assert 1 <= sum(h is not None for _, h in stored_runs(a)) < 3
    assert run(capsys, *ARGS, '--out', a)[0] == 0
    assert run(capsys, *ARGS, '--out', b)[0] == 0
    assert (a/'results.csv').read_bytes() == (b/'results.csv').read_bytes()
    assert (a/'report.html').exists() and [p.suffix for p in runs.iterdir()] == ['.json']*3

@pytest.mark.skipif(os.name == 'nt', reason='sends SIGINT')
@pytest.mark.slow
def test_ctrl_c_says_what_is_saved(tmp_path):
    runs = tmp_path/'runs'
    p = begin(tmp_path, lambda: list(runs.glob('*.json')))
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=120)
    assert p.returncode == 130 and 'of 3 runs are saved' in err and 'fedskew resume' in err

def test_resume_and_report(capsys, tmp_path, unsaved):
    assert run(capsys, *BASE, *SHORT, '--methods', 'FedAvg', '--seeds', '1', '--out', tmp_path)[0] == 0
    first = (tmp_path/'results.csv').read_bytes()
    sorted((tmp_path/'runs').glob('*.json'))[0].unlink()
    code, _, err = run(capsys, 'report', tmp_path)
    assert code == 0 and '1 of 2 runs are missing' in err
    assert run(capsys, 'resume', tmp_path)[0] == 0
    assert (tmp_path/'results.csv').read_bytes() == first
    found = json.loads(run(capsys, 'report', tmp_path, '--json')[1])
    assert found['skew_cost']['emoji-pacs']['n'] == 1

# ---- from outside the package

@pytest.fixture(scope='module')
def own(tmp_path_factory):
    "The options of a comparison that is all one's own: images, model, method."
    home = tmp_path_factory.mktemp('own')
    (home/'mine.py').write_text(MINE)
    (home/'net.py').write_text(NET)
    return ['--data', images(home/'pets'), '--pixels', 20, '--model', f'{home}/net.py:net(width=8)',
            '--methods', f'FedAvg,{home}/mine.py:Mine(lam=.1)']

def test_own_method_model_and_images_reach_the_report(capsys, tmp_path, own, request):
    last = ['--seeds', 1, '--out', tmp_path]
    code, _, err = run(capsys, *instead(['compare', *SHORT], *own, *last))
    assert code == 0, err
    html = (tmp_path/'report.html').read_text()
    assert all(w in html for w in ('Mine(lam=0.1)', 'pets', 'night', 'Skew cost'))
    request.getfixturevalue('unsaved')                      # its figures were written once
    code, _, err = run(capsys, 'resume', tmp_path)
    assert code == 2 and 'mine.py and ' in err and 'say --trust-code' in err
    assert run(capsys, 'report', tmp_path)[0] == run(capsys, 'resume', tmp_path, '--trust-code')[0] == 0

# ---- a paper's folder is all there is to write

DEMO = {
    '__init__.py': '',
    'primitive.py': "__all__ = ['halve']\ndef halve(x): return x/2\n",
    'method.py': '''
from dataclasses import dataclass
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from .primitive import halve
__all__ = ['Halving', 'Demo']
@dataclass
class Halving(Mechanism):
    "Half of the features' size is a loss."
    lam: float = .1
    def loss(self, c, b, out): return dict(half=self.lam*halve(out.feat.square().mean()))
Demo = Method('Demo', Halving(), page='2_methods/demo/02_method', ink='green',
              says='Features are kept small.')
''',
    'claims.py': '''
from fedskew_nb.analysis.claims import Claim, gain
__all__ = []
HELPS = 'small features help'
CLAIMS = [Claim('Demo-01', HELPS, 'Table 1', 'Demo', 'FedAvg', gain(), suites=('emoji-pacs',))]
HOW = dict(suite='emoji-pacs', size='tiny', control=False, rounds=1, local_steps=3)
GRID = [dict(methods=['FedAvg', 'Demo'], seeds=2, **HOW),
        dict(methods=['FedAvg', 'Demo(lam=1e38)'], seeds=1, **HOW)]
def MEASURE(fed): return dict(rounds=fed.round_no)
'''}

@pytest.fixture(scope='module')
def demo(tmp_path_factory):
    "A call of a Python in which the papers have a neighbour, `demo/`: what it prints."
    home = tmp_path_factory.mktemp('papers')
    (home/'demo').mkdir()
    for name, text in DEMO.items(): (home/'demo'/name).write_text(text)
    begin = f'import sys, fedskew_nb.methods as m; m.__path__.append({str(home)!r})\n'
    def call(code):
        r = subprocess.run([sys.executable, '-c', begin+code], capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        return r.stdout
    return call

def fedskew(*argv): return f'from fedskew_nb.tools.cli import main; sys.exit(main({[str(a) for a in argv]}))'

LIST_AND_TABLE = '''
from fedskew_nb.tools.cli import main
from fedskew_nb.tools.catalogue import methods_table
assert main(["list"]) == 0
print("== table")
print(methods_table())
'''

@pytest.fixture(scope='module')
def told(demo):
    "What `fedskew list` and the table of methods say there."
    return demo(LIST_AND_TABLE).split('== table')

def test_a_new_paper_is_listed(told):
    systems = told[0].partition('Systems of the papers')[2]
    assert re.search(r'Demo +Features are kept small\.', systems) and 'Halving' in told[0]

def test_a_new_paper_is_in_the_table_of_methods(told):
    assert '| [Demo](2_methods/demo/02_method.ipynb) | Features are kept small. | nothing | yes |' in told[1]

@pytest.mark.campaign
def test_a_new_papers_grid_is_run_and_judged(demo, tmp_path):
    demo(fedskew('compare', '--grid', 'Demo', '--out', tmp_path))
    runs = [json.loads(p.read_text()) for p in (tmp_path/'runs').glob('*.json')]
    assert len(runs) == 5                                                # FedAvg on seed 0 is trained once
    stopped = [r for r in runs if 'stopped' in r['measures']]
    assert [r['setting']['method'] for r in stopped] == ['Demo(lam=1e+38)'] and not stopped[0]['rows']
    assert all(r['measures'] == dict(rounds=1) for r in runs if r not in stopped)
    assert '"grid": "Demo"' in (tmp_path/'compare.json').read_text()
    out = demo(fedskew('claims', 'Demo', '--out', tmp_path))
    assert 'Demo-01' in out and 'small features help' in out
    demo(fedskew('report', tmp_path, '--save', tmp_path/'demo.json.xz'))
    assert (tmp_path/'demo.json.xz').exists()

# ---- notebooks, bench

def test_learner_copies(capsys, tmp_path):
    learn = tmp_path/'learn'
    code, out, _ = run(capsys, 'notebooks', learn)
    assert code == 0 and 'Begin with' in out
    start = learn/'1_begin'/'01_start.ipynb'
    assert not any(c.get('outputs') or c.get('execution_count') for c in read(start)['cells'])
    start.write_text('mine')
    again = run(capsys, 'notebooks', learn, '--force')[1]
    assert '(1 kept' not in again and start.read_text() != 'mine'
    assert run(capsys, 'notebooks', notebook_folder())[0] == 2

def test_links_between_learner_copies_work(capsys, tmp_path):
    run(capsys, 'notebooks', tmp_path)
    for name in notebook_names(tmp_path):
        text = '\n'.join(source(c) for c in read(tmp_path/name)['cells'] if c['cell_type'] == 'markdown')
        for link in re.findall(r'\]\(([^)\s#:]+\.ipynb)', text):
            assert ((tmp_path/name).parent/link).resolve().is_file(), f'{name}: {link}'
