"A deployment on this machine: a server, two nodes, each a process with a folder of its own."
import os, signal, subprocess, sys, time
from pathlib import Path
import pytest, torch
from test_deploy import draw, job
from fedskew_nb.data.folder import load_folder
from fedskew_nb.deploy.flower import free_port
from fedskew_nb.engine.checkpoint import load_nest
from fedskew_nb.engine.history import History

pytestmark = pytest.mark.campaign
pytest.importorskip('flwr')

class Machines:
    "Processes of our own, each in a group that is ended with it."
    def __init__(self, home): self.home, self.running = home, []
    def start(self, name, *command):
        code = f'from fedskew_nb import _main; import sys; sys.argv = {["fedskew", *map(str, command)]!r}'
        homes = dict(FLWR_HOME='flwr', FEDSKEW_CACHE='cache')
        env = os.environ | {k: str(self.home/v/name) for k, v in homes.items()}
        Path(env['FLWR_HOME']).mkdir(parents=True, exist_ok=True)
        log = open(self.home/f'{name}.log', 'a')
        p = subprocess.Popen([sys.executable, '-c', f'{code}; sys.exit(_main())'], cwd=self.home, env=env,
                             stdout=log, stderr=log, start_new_session=True)
        self.running.append(p)
        return p
    def end(self, p, sig=signal.SIGTERM):
        self.running.remove(p)
        for s in (sig, signal.SIGKILL):
            try: os.killpg(p.pid, s)
            except ProcessLookupError: return
            try: p.wait(15)
            except subprocess.TimeoutExpired: pass

@pytest.fixture
def machines(tmp_path):
    m = Machines(tmp_path)
    yield m
    for p in list(m.running): m.end(p)

def certificates(at):
    "An authority of our own, and what it says of 127.0.0.1."
    def openssl(*words): subprocess.run(['openssl', *words], cwd=at, check=True, capture_output=True)
    new = '-newkey', 'rsa:2048', '-nodes'
    openssl('req', '-x509', *new, '-keyout', 'ca.key', '-out', 'ca.crt', '-days', '2', '-subj', '/CN=ours')
    openssl('req', *new, '-keyout', 'server.key', '-out', 'asked', '-subj', '/CN=127.0.0.1')
    (at/'names').write_text('subjectAltName=IP:127.0.0.1')
    openssl('x509', '-req', '-in', 'asked', '-CA', 'ca.crt', '-CAkey', 'ca.key', '-CAcreateserial', '-out',
            'server.crt', '-days', '2', '-extfile', 'names')

def words_of(how):
    sets = [x for k, v in how.setting.items() if k != 'rounds' for x in ('--set', f'{k}={v}')]
    size = ['--model', how.model, '--pixels', how.pixels]
    return [how.method, '--rounds', how.setting['rounds'], *size, *sets]

def wait_for(file, text, seconds=200):
    "Until a log says it."
    end = time.time()+seconds
    while text not in (file.read_text() if file.exists() else ''):
        assert time.time() < end, f'{file} never says {text}'
        time.sleep(.2)

def same_as_fit(home, how):
    fed = how.federation(load_folder(home/'all', 16))
    fed.fit(progress=False)
    there = load_nest(home/'out'/'state.safetensors')['server']
    for n in fed.server.keys()-fed.kept: assert torch.equal(there[n], fed.server[n]), n
    assert History.load(home/'out'/'history.json').rounds == fed.history.rounds

@pytest.fixture(params=['plain', 'tls'])
def place(request, tmp_path):
    "Two sites, and how a server is reached: its certificate, if it has one."
    for site, domain in zip('ab', ('dawn', 'noon')):
        draw(tmp_path/site, domain)
        draw(tmp_path/'all', domain)
    if request.param == 'plain': return [], []
    certificates(tmp_path)
    return ['--certs', '.'], ['--ca', 'ca.crt']

@pytest.mark.parametrize('method, killed', [('FedAvg', False), ('SCAFFOLD + FedBN', True), ('F2DC', False)])
def test_over_loopback_it_is_fit(machines, tmp_path, place, method, killed):
    "Equal to the bit to the union of the folders in one process, a node killed on the way or not."
    (certs, ca), port, how = place, free_port(), job(method, rounds=2)
    at = '--server', f'127.0.0.1:{port}', *ca
    def node(site):
        return machines.start(f'node-{site}', 'node', '--data', site, *at, '--memory', f'memory-{site}')
    machines.start('server', 'serve', '--port', port, *certs)
    time.sleep(6)
    nodes = [node(site) for site in 'ab']
    run = machines.start('run', 'federate', *words_of(how), '--nodes', 2, *at, '--out', 'out')
    if killed:
        wait_for(tmp_path/'run.log', 'round 1 of 2')
        machines.end(nodes[1], signal.SIGKILL)
        node('b')
    assert run.wait(300) == 0, (tmp_path/'run.log').read_text()[-3000:]
    same_as_fit(tmp_path, how)
    assert list((tmp_path/'memory-a').rglob('model.safetensors'))
