"Inside NVFlare, by its proof of concept: a server and three sites, processes of this machine."
import json, os, subprocess, sys
from pathlib import Path
import pytest
from test_deploy import DOMAINS, draw, job
from test_every_method import same_nest
from fedskew_nb.deploy.flare import write_job
from fedskew_nb.deploy.rehearse import rehearsal
from fedskew_nb.engine.checkpoint import load_nest
from fedskew_nb.engine.history import History

pytestmark = pytest.mark.campaign
pytest.importorskip('nvflare', reason="it needs NVFlare: pip install 'fedskew_nb[flare]'")

OURS = 'fedskew_nb.deploy.flare.'

class System:
    "What its commands do; sites are called a, b, c."
    def __init__(self, home):
        self.home, self.kits = home, home/'poc'/'example_project'/'prod_00'
        at = dict(HOME=home, NVFLARE_POC_WORKSPACE=home/'poc', PYTHONPATH=os.pathsep.join(sys.path))
        path = f'{Path(sys.executable).parent}{os.pathsep}{os.environ["PATH"]}'
        self.env = os.environ | {k: str(v) for k, v in at.items()} | dict(PATH=path)
    def call(self, *words, seconds=300):
        command = [Path(sys.executable).with_name('nvflare'), '--format', 'json', *map(str, words)]
        how = dict(cwd=self.home, env=self.env, timeout=seconds)
        got = subprocess.run(command, capture_output=True, text=True, **how)
        return json.loads(got.stdout).get('data') or {}
    def allow(self, who, ours=True):
        "Its owner's list of classes that a job may name."
        file = self.kits/who/'local'/'resources.json'
        text = (file if file.exists() else file.with_name('resources.json.default')).read_text()
        what = json.loads(text)
        listed = [c for c in what['class_allow_list'] if c != OURS]
        file.write_text(json.dumps(what | dict(class_allow_list=listed+[OURS]*ours)))
    def train(self, what):
        "(status, folder with the server's files) of a job that ended."
        folder = write_job(what, 3, self.home/'jobs'/what.method)
        number = self.call('job', 'submit', '-j', folder)['job_id']
        self.call('job', 'wait', number)
        status = self.call('job', 'meta', number)
        there = self.call('job', 'download', number, '-o', self.home/'results')['download_path']
        return json.dumps(status), number, Path(there)/'workspace'

@pytest.fixture(scope='module')
def system(tmp_path_factory):
    s = System(tmp_path_factory.mktemp('flare'))
    s.call('poc', 'prepare', '-c', *'abc', '--force')
    for site, domain in zip('abc', sorted(DOMAINS)):
        draw(s.home/site, domain)
        (s.kits/site/'local'/'fedskew.json').write_text(json.dumps(dict(data=str(s.home/site))))
    for who in ('server', *'abc'): s.allow(who)
    try:
        s.call('poc', 'start')
        yield s
    finally: s.call('poc', 'stop')

@pytest.mark.parametrize('method', ['FedBN', 'F2DC'])
def test_it_is_a_rehearsal_to_the_bit(system, tmp_path, method):
    "The server's state, the history, and what stays at each site."
    what = job(method, rounds=2)
    hub = rehearsal(what, [system.home/s for s in 'abc'], tmp_path)
    hub.fit(progress=False)
    status, number, there = system.train(what)
    assert 'FINISHED:COMPLETED' in status, status
    mine, state = (load_nest(at/'state.safetensors') for at in (tmp_path, there/'fedskew'))
    history = History.load(there/'fedskew'/'history.json')
    assert {k for k in mine if k not in ('history', 'made_of') and not same_nest(mine[k], state[k])} == set()
    assert (history.rounds, history.rows) == (hub.history.rounds, hub.history.rows)
    for site in 'abc':
        kept = load_nest(tmp_path/'sites'/site/'run'/'2.safetensors')
        there = system.kits/site/'memory'/number.replace('-', '')
        assert same_nest(kept, load_nest(there/'2.safetensors'))
        assert 'leaves' in next((system.kits/site).glob(f'{number}/log.txt')).read_text()

def test_a_site_refuses_what_its_owner_did_not_allow(system):
    "By NVFlare's own list; nothing of ours has begun."
    system.allow('b', ours=False)
    try: status, number, there = system.train(job(rounds=1))
    finally: system.allow('b')
    assert 'COMPLETED' not in status and not (system.kits/'b'/'memory'/number.replace('-', '')).exists()

def test_a_refusal_is_one_sentence_in_the_log_of_the_job(system):
    "Of the server's log and of no traceback; the name of a file stays at the site."
    (system.home/'c'/'noon'/'dark'/'Mueller_Hans.png').write_bytes(b'torn')
    status, number, there = system.train(job(rounds=1))
    said = (there/'log.txt').read_text()
    assert 'COMPLETED' not in status and 'c cannot go on: something at the site is in the way' in said
    assert 'Mueller' not in said and 'Traceback' not in said
