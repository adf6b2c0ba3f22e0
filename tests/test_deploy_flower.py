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

@pytest.mark.parametrize('method', ['FedAvg', 'SCAFFOLD + FedBN', 'F2DC'])
def test_over_loopback_it_is_fit(machines, tmp_path, method):
    "Equal to the bit to the union of the folders in one process."
    for site, domain in zip('ab', ('dawn', 'noon')):
        draw(tmp_path/site, domain)
        draw(tmp_path/'all', domain)
    port = free_port()
    machines.start('server', 'serve', '--port', port)
    time.sleep(4)
    for site in 'ab':
        machines.start(f'node-{site}', 'node', '--data', site, '--server', f'127.0.0.1:{port}',
                       '--memory', f'memory-{site}')
    how = job(method, rounds=2)
    sets = [x for k, v in how.setting.items() if k != 'rounds' for x in ('--set', f'{k}={v}')]
    run = machines.start('run', 'federate', method, '--nodes', 2, '--rounds', 2, '--model', how.model,
                         '--pixels', 16, *sets, '--server', f'127.0.0.1:{port}', '--out', 'out')
    assert run.wait(300) == 0, (tmp_path/'run.log').read_text()[-3000:]
    fed = how.federation(load_folder(tmp_path/'all', 16))
    fed.fit(progress=False)
    there = load_nest(tmp_path/'out'/'state.safetensors')['server']
    for n in fed.server.keys()-fed.kept: assert torch.equal(there[n], fed.server[n]), n
    assert History.load(tmp_path/'out'/'history.json').rounds == fed.history.rounds
    assert list((tmp_path/'memory-a').rglob('model.safetensors'))
