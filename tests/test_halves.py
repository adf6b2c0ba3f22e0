"`pytest --halves`: two forked processes report what one would; one that ends in a test is its failure."
import json, os, re, signal, subprocess, sys, time
from multiprocessing import Pipe
from types import SimpleNamespace
import pytest
import halves
from project import ROOT

CONFTEST = f'''
import sys
sys.path.insert(0, {str(ROOT/"tests"/"tools")!r})
from halves import Halves
def pytest_configure(config): config.pluginmanager.register(Halves())
'''
MIXED = '''
import os, pytest, warnings
@pytest.fixture(scope='module')
def here():
    with open('made', 'a') as f: f.write(f'{__name__}\\n')
    yield __name__
    with open('made', 'a') as f: f.write(f'{__name__} gone\\n')
@pytest.mark.parametrize('i', range(6))
def test_good(here, i): print('said by', here)
def test_bad(here, tmp_path):
    print('said by', here)
    assert here=='nobody'
def test_warns(): warnings.warn('beware', FutureWarning)
def test_skipped(): pytest.skip('why not')
@pytest.mark.xfail
def test_expected(): assert False
@pytest.fixture
def broken(): raise ValueError('no such thing')
def test_broken(broken): pass
'''

@pytest.fixture(autouse=True)
def without_plugins(monkeypatch):
    "None of the installed ones is asked here, and to load them takes as long as the tests."
    monkeypatch.setenv('PYTEST_DISABLE_PLUGIN_AUTOLOAD', '1')

def scratch(folder, **files):
    "A folder of test files, and how pytest is called in it."
    for name, text in dict(conftest=CONFTEST, **files).items(): (folder/f'{name}.py').write_text(text)
    (folder/'pytest.ini').write_text('[pytest]\n')
    return [sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider']

def called(folder, *args, **files):
    call = [*scratch(folder, **files), *args]
    r = subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=300)
    return r.returncode, r.stdout+r.stderr

def test_two_processes_say_what_one_would(tmp_path):
    "Outcomes, failures whole and with their own output, warnings, durations, exit status; fixtures once."
    code, said = called(tmp_path, '--durations=3', test_a=MIXED, test_b=MIXED)
    assert code==1 and '2 failed, 14 passed, 2 skipped, 2 xfailed, 2 warnings, 2 errors' in said
    for name in ('test_a', 'test_b'):
        assert re.search(rf"E +AssertionError: assert '{name}' == 'nobody'", said)
        assert 'FutureWarning: beware' in said and f'FAILED {name}.py::test_bad' in said
        assert f'ERROR {name}.py::test_broken - ValueError: no such thing' in said
    assert said.count('said by test_a')==said.count('said by test_b')==1
    assert 'slowest 3 durations' in said and re.search(r'two processes took \d+ and \d+ tests', said)
    made = (tmp_path/'made').read_text().split('\n')
    assert 1<=made.count('test_a')==made.count('test_a gone')<=2

def test_the_processes_are_two_and_meet(tmp_path):
    "Each test runs once; both work, in one folder for temporary files."
    text = 'import os, time, pytest\n@pytest.mark.parametrize("i", range(20))\n' \
           'def test_it(i, tmp_path):\n    time.sleep(.02)\n' \
           '    with open("ran", "a") as f: f.write(f"{os.getpid()} {__name__} {i} {tmp_path.parent}\\n")\n'
    code, said = called(tmp_path, test_a=text, test_b=text, test_c=text)
    ran = [line.split() for line in (tmp_path/'ran').read_text().splitlines()]
    assert code==0 and '60 passed' in said and len({tuple(r[1:3]) for r in ran})==len(ran)==60
    assert len({r[0] for r in ran})==2 and len({r[3] for r in ran})==1

@pytest.mark.parametrize('how, says', [
    ('os.kill(os.getpid(), signal.SIGSEGV)', 'ended by SIGSEGV'),
    ('os._exit(0)', 'ended with exit status 0')])
def test_a_process_that_ends_is_a_failure_of_its_test(tmp_path, how, says):
    bad = f'import os, signal\ndef test_fine(): pass\ndef test_end(): {how}\ndef test_next(): pass\n'
    good = 'import pytest\n@pytest.mark.parametrize("i", range(9))\ndef test_it(i): pass\n'
    code, said = called(tmp_path, test_bad=bad, test_good=good)
    assert code==1 and f'FAILED test_bad.py::test_end - the process {says}' in said, said
    passed, failed = (int(re.search(rf'(\d+) {word}', said)[1]) for word in ('passed', 'failed'))
    assert passed+failed==12 and 1<=failed<=2 and said.count('not run: the process')==2*(failed-1)

def test_both_processes_end(tmp_path):
    "Then tests are left over, and that is no success."
    bad = 'import os\n' + ''.join(f'def test_{i}(): os._exit(0)\n' for i in range(9))
    code, said = called(tmp_path, test_a=bad, test_b=bad)
    assert code==pytest.ExitCode.INTERNAL_ERROR and '4 of 18 tests were run' in said

GOOD, BAD = 'def test_one(): pass\ndef test_two(): pass\n', 'def test_bad(): assert 0\n'

@pytest.mark.parametrize('expected, args, text', [
    ('OK', [], GOOD), ('TESTS_FAILED', [], BAD), ('NO_TESTS_COLLECTED', ['-k', 'none'], GOOD),
    ('INTERRUPTED', [], 'import nothing_there\n'), ('TESTS_FAILED', ['-x'], BAD),
    ('OK', ['--collect-only'], BAD)])
def test_exit_status(tmp_path, expected, args, text):
    code, said = called(tmp_path, *args, test_it=text)
    assert code==pytest.ExitCode[expected], said

def test_stopped_at_the_first_failure(tmp_path):
    "`-x`: the other process is ended in its test; a process takes two at once, so there are more for each."
    slow = 'import time\ndef test_slow(): time.sleep(60)\ndef test_slower(): time.sleep(60)\n'
    began = time.monotonic()
    code, said = called(tmp_path, '-x', test_bad=BAD+GOOD, test_slow=slow)
    assert code==1 and 'stopping after 1 failures' in said and time.monotonic()-began<50

def test_a_process_that_is_gone_is_not_ended_again(tmp_path):
    "Its last words may stop pytest (`-x`): then its number is nobody's, or another's."
    inbox, outbox = Pipe(duplex=False)
    if not (pid := os.fork()):
        outbox.send(('breaks', 'a failure too many'))
        os._exit(1)
    half = halves.Half(pid, inbox)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(RuntimeError, match='too many'): halves.Halves().read(half)
    assert half.ended

def test_ctrl_c(tmp_path):
    "Ends both processes and says so."
    slow = 'import os, pytest, time\n@pytest.mark.parametrize("i", range(4))\n' \
           'def test_slow(i):\n    open(f"at{os.getpid()}", "w").close()\n    time.sleep(60)\n'
    call = scratch(tmp_path, test_a=slow)
    def listen(): signal.signal(signal.SIGINT, signal.SIG_DFL)      # background jobs of a shell are deaf
    how = dict(stdout=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=listen)
    r = subprocess.Popen(call, cwd=tmp_path, **how)
    while len(at := list(tmp_path.glob('at*')))<2 and r.poll() is None: time.sleep(.05)
    os.killpg(r.pid, signal.SIGINT)
    said, _ = r.communicate(timeout=50)
    assert r.returncode==pytest.ExitCode.INTERRUPTED and 'KeyboardInterrupt' in said
    for path in at:
        with pytest.raises(ProcessLookupError): os.kill(int(path.name[2:]), 0)

def test_what_the_processes_run_is_covered(tmp_path):
    "SlipCover counts the lines that only a test reaches, of both."
    (tmp_path/'two.py').write_text('def a():\n    return 1\ndef b():\n    return 2\ndef c():\n    return 3\n')
    texts = {f'test_{name}': f'import two\ndef test_it(): two.{name}()\n' for name in 'ab'}
    python, *pytest_call = scratch(tmp_path, **texts)
    call = [python, *'-m slipcover --source . --json --out seen.json'.split(), *pytest_call]
    subprocess.run(call, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    seen = json.loads((tmp_path/'seen.json').read_text())['files']['two.py']
    assert seen['executed_lines']==[1, 2, 3, 4, 5] and seen['missing_lines']==[6]

def item(file, slow=False):
    return SimpleNamespace(path=file, get_closest_marker=lambda name: True if slow else None)

def test_whole_files_with_most_work_at_the_ends():
    "The second half is read backwards, so both begin with a file's first test."
    a, b, c = ([item(name, slow=name=='c') for _ in range(n)] for name, n in (('a', 3), ('b', 5), ('c', 1)))
    found = halves.from_both_ends([*a[:2], *c, *b, a[2]])
    assert found==[*c, *a, *b[::-1]]
    assert halves.from_both_ends([])==[]
