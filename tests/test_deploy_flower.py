"A deployment on this machine: a server, three nodes, each a process with a folder of its own."
import os, re, shutil, signal, subprocess, sys, time
from http.client import HTTPSConnection
from ssl import create_default_context
from pathlib import Path
import pytest, torch
from msgspec.structs import replace
from test_deploy import DOMAINS, draw, job
from fedskew_nb.data.boxes import Box, write_boxes
from fedskew_nb.data.folder import load_folder
from fedskew_nb.deploy.flower import free_port
from fedskew_nb.deploy.rehearse import rehearsal
from fedskew_nb.deploy.keys import certs_command
from fedskew_nb.deploy.order import Book
from fedskew_nb.engine.checkpoint import load_nest
from fedskew_nb.engine.history import History
from project import NBS, read, source

pytestmark = pytest.mark.campaign
pytest.importorskip('flwr')

def listens():
    "A program in the background of a shell ignores Ctrl-C; these do not."
    signal.signal(signal.SIGINT, signal.SIG_DFL)

class Machines:
    "Processes of our own, each in a group that is ended with it."
    def __init__(self, home): self.home, self.running = home, []
    def start(self, name, *command):
        code = f'from fedskew_nb import _main; import sys; sys.argv = {["fedskew", *map(str, command)]!r}'
        return self.program(name, sys.executable, '-c', f'{code}; sys.exit(_main())')
    def program(self, name, *words):
        homes = dict(FLWR_HOME='flwr', FEDSKEW_CACHE='cache')
        env = os.environ | {k: str(self.home/v/name) for k, v in homes.items()}
        Path(env['FLWR_HOME']).mkdir(parents=True, exist_ok=True)
        log = open(self.home/f'{name}.log', 'a')
        p = subprocess.Popen(words, cwd=self.home, env=env, stdout=log, stderr=log, start_new_session=True,
                             preexec_fn=listens)
        self.running.append(p)
        return p
    def end(self, p, sig=signal.SIGTERM):
        self.running.remove(p)
        for s in (sig, signal.SIGKILL):
            try: os.killpg(p.pid, s)
            except ProcessLookupError: return
            try: p.wait(60)      # flwr stop begins a Python of its own
            except subprocess.TimeoutExpired: pass

def left_in(home)->list:
    "Processes that work in this folder."
    found = []
    for p in Path('/proc').glob('[0-9]*'):
        try:
            if (p/'cwd').resolve() == home: found.append(p.name)
        except OSError: pass
    return found

@pytest.fixture
def machines(tmp_path):
    m = Machines(tmp_path)
    yield m
    for p in list(m.running): m.end(p)
    assert not left_in(tmp_path), 'a process is still there'

def words_of(how):
    sets = [x for k, v in how.setting.items() if k != 'rounds' for x in ('--set', f'{k}={v}')]
    size = ['--model', how.model, '--pixels', how.pixels]
    return [how.method, '--rounds', how.setting['rounds'], *size, *sets]

def wait_for(file, text, times=1, seconds=300):
    "Until a log says it so often."
    end = time.time()+seconds
    while not file.exists() or file.read_text().count(text) < times:
        assert time.time() < end, f'{file} never says {text}'
        time.sleep(.2)

def draw_with_boxes(folder, domain):
    "Images, and where the object is on each."
    draw(folder, domain)
    paths = sorted(p.relative_to(folder).as_posix() for p in folder.rglob('*.png'))
    write_boxes(folder/'boxes.csv', [Box(p, 2, 2, 12, 12) for p in paths])

def same_as_fit(home, how):
    fed = how.federation(load_folder(home/'all', 16, boxes='boxes.csv'))
    fed.fit(progress=False)
    there = load_nest(home/'out'/'state.safetensors')['server']
    for n in fed.server.keys()-fed.kept: assert torch.equal(there[n], fed.server[n]), n
    assert History.load(home/'out'/'history.json').rounds == fed.history.rounds

SITES = dict(zip('abc', sorted(DOMAINS)))

class Field:
    "Three sites with folders of their own, and a server."
    def __init__(self, machines, home, how, keys=False, sites=SITES):
        self.machines, self.home, self.how, self.port, self.keys = machines, home, how, free_port(), keys
        self.sites = sites
        for site, domain in sites.items():
            draw_with_boxes(home/site, domain)
            draw_with_boxes(home/'all', domain)
        if keys: certs_command(home/'certs', node=sites)
        self.ca = ['--ca', 'certs/ca.crt'] if keys else []
        self.at = ['--server', f'127.0.0.1:{self.port}', *self.ca]
    def serve(self):
        certs = ['--certs', 'certs'] if self.keys else []
        server = self.machines.start('server', 'serve', '--port', self.port, *certs)
        if self.keys: wait_for(self.home/'server.log', 'registered successfully', times=len(self.sites))
        return server
    def node(self, site, *more):
        key = ['--key', f'certs/nodes/{site}'] if self.keys else []
        where = '--data', site, '--memory', f'memory-{site}'
        return self.machines.start(f'node-{site}', 'node', *where, *self.at, *key, *more)
    def federate(self, *more):
        words = *words_of(self.how), '--nodes', len(self.sites), *self.at, '--out', 'out'
        return self.machines.start('run', 'federate', *words, *more)
    def said(self, name='run'): return (self.home/f'{name}.log').read_text()

METHODS = ('FedAvg', 'FedBN', 'SCAFFOLD', 'F2DC', 'FDSE', 'FedDDL', 'RFedDis', 'DFL')

@pytest.mark.parametrize('method', METHODS)
def test_over_loopback_it_is_fit(machines, tmp_path, method):
    "Equal to the bit to the union of the folders in one process, over TLS, every node with its key."
    field = Field(machines, tmp_path, job(method, rounds=2), keys=True)
    field.serve()
    for site in SITES: field.node(site, *['--peers']*(method == 'DFL'))
    assert field.federate().wait(400) == 0, field.said()[-3000:]
    same_as_fit(tmp_path, field.how)
    for site in SITES: assert list((tmp_path/f'memory-{site}').rglob('model.safetensors'))

def test_a_net_of_torchvision_over_loopback_is_fit(machines, tmp_path):
    "Two nodes, TLS: a net that no node may compare by numbers before it builds it."
    pytest.importorskip('torchvision')
    how = replace(job(rounds=1), model='torchvision("mobilenet_v3_small")')
    field = Field(machines, tmp_path, how, keys=True, sites=dict(list(SITES.items())[:2]))
    field.serve()
    for site in field.sites: field.node(site)
    assert field.federate().wait(400) == 0, field.said()[-3000:]
    same_as_fit(tmp_path, how)

def test_a_secure_study_goes_on_after_a_node_was_killed(machines, tmp_path):
    "The same call ends it; a round counts as void where, and only where, a part had left when the node died."
    sites = SITES | dict(d='rain')
    field = Field(machines, tmp_path, job(rounds=3, secure=True, local_steps=40), keys=True, sites=sites)
    field.serve()
    nodes = {site: field.node(site, '--secure', 'certs/nodes') for site in sites}
    run = field.federate('--patience', 5)
    wait_for(tmp_path/'run.log', 'round 1 of 3')
    field.machines.end(nodes['d'], signal.SIGKILL)
    assert run.wait(400) != 0
    field.node('d', '--secure', 'certs/nodes')
    assert field.federate().wait(400) == 0, field.said()[-3000:]
    void = [r['round']+1 for r in Book(tmp_path/'out').rows() if r['kind'] == 'void']
    rounds = History.load(tmp_path/'out'/'history.json').rounds
    assert [r['round'] for r in rounds] == [1, 2, 3]
    assert all(f'round {r} broke off' in field.said() for r in void)
    assert [r['round'] for r in rounds if not r['participants']] == void

def test_a_secure_sum_over_loopback_is_fit_with_secure(machines, tmp_path):
    "Four nodes, of which the server sees masked parts only."
    sites = SITES | dict(d='rain')
    field = Field(machines, tmp_path, job('F2DC', rounds=2, secure=True), keys=True, sites=sites)
    field.serve()
    for site in sites: field.node(site, '--secure', 'certs/nodes')
    assert field.federate().wait(400) == 0, field.said()[-3000:]
    same_as_fit(tmp_path, field.how)
    for site in sites: assert (tmp_path/f'memory-{site}'/'secure.json').exists()

NGINX = shutil.which('nginx', path=f'{os.environ["PATH"]}:/usr/sbin')
CONF = """daemon off; master_process off; pid nginx.pid; error_log stderr;
events {{}}
http {{ access_log off; {temporary}
{server} }}
"""

def proxy(machines, home, behind:int)->int:
    "nginx as the page writes it, before a server that listens there; the port that it opens."
    page, port = read(NBS/'8_deploy'/'07_keys.ipynb'), free_port()
    text = '\n'.join(source(c) for c in page['cells'] if c['cell_type'] == 'markdown')
    server, = re.findall('^```nginx\n(.*?)^```', text, re.M | re.S)
    assert server.count('8443') == server.count(':8000') == 1
    kinds = 'client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'
    said = CONF.format(server=server.replace('8443', str(port)).replace(':8000', f':{behind}'),
                       temporary=' '.join(f'{k}_temp_path {home}/{k};' for k in kinds))
    (home/'nginx.conf').write_text(said)
    machines.program('nginx', NGINX, '-p', home, '-c', home/'nginx.conf')
    return port

def status(port, path, ca, at='127.0.0.1')->int:
    "What a request without a key gets."
    line = HTTPSConnection(at, port, context=create_default_context(cafile=ca), timeout=20)
    line.request('POST', path)
    return line.getresponse().status

@pytest.mark.skipif(not NGINX, reason='there is no nginx: apt install nginx-light')
def test_through_a_proxy_it_is_fit(machines, tmp_path):
    "Nodes come through nginx, which lets nothing else through; who is locked out meanwhile is heard no more."
    field = Field(machines, tmp_path, job('FedBN', rounds=2), keys=True)
    field.serve()
    direct, port, ca = field.at, proxy(machines, tmp_path, field.port), tmp_path/'certs'/'ca.crt'
    field.at = ['--server', f'127.0.0.1:{port}', *field.ca]
    for site in SITES: field.node(site)
    field.at = direct
    assert field.federate().wait(400) == 0, field.said()[-3000:]
    same_as_fit(tmp_path, field.how)
    runs = '/v1/control/list-nodes', '/v1/fleet/../control/list-nodes', '/v1/fleet/%2e%2e/control/list-nodes'
    other = *runs, '/v1/control/list-nodes/../../fleet/x', '/docs', '/'
    assert {status(port, path, ca) for path in other} == {404}
    assert status(port, '/v1/fleet/activate-node', ca) == 401     # heard, and refused without a key
    (tmp_path/'certs'/'nodes'/'c.pub').unlink()
    wait_for(tmp_path/'server.log', 'c is locked out')
    wait_for(tmp_path/'node-c.log', 'did not let this node in')
    assert 'did not let this node in' not in field.said('node-a')

def test_a_stranger_is_refused(machines, tmp_path):
    "Without a key, or with one that nobody registered; and a site that takes another's name."
    field = Field(machines, tmp_path, job(rounds=1), keys=True)
    certs_command(tmp_path/'other', node=['x'])
    field.serve()
    def stranger(name, *words): return machines.start(name, 'node', '--data', 'a', '--memory', name, *words)
    who = dict(bare=field.at, unknown=[*field.at, '--key', 'other/nodes/x'])
    for name, words in who.items():
        assert stranger(name, *words).wait(200) == 1
        assert 'did not let this node in' in field.said(name)
    for site in 'bc': field.node(site)
    stranger('thief', *field.at, '--key', 'certs/nodes/a', '--name', 'c')
    run = field.federate()
    assert run.wait(200) == 1 and 'says that it is c and has the key of a' in field.said()
    assert not (tmp_path/'out'/'state.safetensors').exists()

def test_ctrl_c_stops_the_run_at_the_server(machines, tmp_path):
    "Not only its last command; the same call goes on, and nothing else writes its checkpoint."
    field = Field(machines, tmp_path, job('SCAFFOLD', rounds=3), keys=True)
    field.serve()
    for site in SITES: field.node(site)
    run = field.federate()
    wait_for(tmp_path/'run.log', 'round 1 of 3')
    machines.end(run, signal.SIGINT)
    assert run.returncode == 130 and 'successfully stopped' in field.said()
    assert field.federate().wait(400) == 0, field.said()[-3000:]
    same_as_fit(tmp_path, field.how)

def test_a_study_over_loopback(machines, tmp_path):
    """A third node comes, by a key that was made while the server ran, and the first leaves: the bits are
    those of a rehearsal, and every letter stands in the ledger of its site and of the server."""
    def how(rounds): return job('SCAFFOLD', rounds=rounds)
    field = Field(machines, tmp_path, how(1), keys=True, sites={s: SITES[s] for s in 'ab'})
    field.serve()
    for site in 'ab': field.node(site)
    assert field.federate().wait(400) == 0, field.said()[-3000:]
    draw_with_boxes(tmp_path/'c', SITES['c'])
    certs_command(tmp_path/'certs', node=['c'])
    wait_for(tmp_path/'server.log', 'registered successfully', times=3)
    field.node('c')
    for field.how, field.sites, more in (how(2), 'abc', ()), (how(3), 'bc', ('--without', 'a')):
        assert field.federate(*more).wait(400) == 0, field.said()[-3000:]
    assert '2–3' in field.said()
    for rounds, sites, gone in (1, 'ab', ()), (2, 'abc', ()), (3, 'bc', 'a'):
        hub = rehearsal(how(rounds), [tmp_path/s for s in sites], tmp_path/'here', without=gone)
        hub.fit(progress=False)
    there = load_nest(tmp_path/'out'/'state.safetensors')
    assert [r['participants'] for r in there['history']['rounds']] == [[0, 1], [0, 1, 2], [1, 2]]
    assert all(torch.equal(there['server'][n], v) for n, v in hub.server.items())
    server = Book(tmp_path/'out').rows()
    for site in 'abc':
        own = {(r['order'], r['answer'], r['kind']) for r in Book(tmp_path/f'memory-{site}').rows()}
        assert own == {(r['order'], r['answer'], r['kind']) for r in server if r['site'] == site}
