"What NVFlare is given and calls, without it: letters pass in this process."
import json, os
from types import SimpleNamespace as Fake
import pytest
from test_deploy import cache, job, place, rehearsal
from test_every_method import same_nest
from fedskew_nb.deploy import flare
from fedskew_nb.deploy.rehearse import federate_command
from fedskew_nb.deploy.keys import write_pair
from fedskew_nb.deploy.order import Book
from fedskew_nb.engine.checkpoint import from_bytes, load_nest, to_bytes
from fedskew_nb.engine.history import History

class Controller:
    "Each task is done at once; `sites` are a test's."
    def send(self, task, ctx, targets):
        (name,) = targets
        result = self.sites[name](task.data)
        task.result_received_cb(client_task=Fake(client=Fake(name=name), result=result), fl_ctx=ctx)
        task.completion_status = 'ok'
    def system_panic(self, reason, ctx): ctx.panic.append(reason)

class Task:
    def __init__(self, name, data, result_received_cb):
        self.data, self.result_received_cb, self.completion_status = data, result_received_cb, None

class Executor: logger = Fake(info=lambda text: None, warning=lambda text: None)

@pytest.fixture
def no_flare(monkeypatch):
    "Its names, without it."
    names = Fake(Controller=Controller, Task=Task, Executor=Executor, Shareable=dict)
    monkeypatch.setattr(flare, 'flare', lambda part: names)
    before = os.umask(0o022)
    yield
    os.umask(before)

class Field:
    "A server and three sites, each with a folder of its startup kit."
    def __init__(self, place, home, what, nodes=3, **said):
        self.home, self.panic = home, []
        self.server = flare.server(job=what, nodes=nodes)
        self.server.sites = {}
        for name in 'abc':
            (home/name/'local').mkdir(parents=True)
            (home/name/'local'/'fedskew.json').write_text(json.dumps(dict(data=str(place/name)) | said))
            self.server.sites[name] = self.site(name)
    def site(self, name):
        made, ctx = flare.site(), self.ctx(name)
        return lambda letter: made.execute('letter', letter, ctx, None)
    def ctx(self, name):
        home = self.home/name
        at = Fake(get_root_dir=lambda: str(home), get_run_dir=lambda number: str(home/number))
        engine = Fake(get_workspace=lambda: at, get_clients=lambda: [Fake(name=n) for n in 'cab'])
        who = dict(get_engine=lambda: engine, get_job_id=lambda: '1-Two', get_identity_name=lambda: name)
        return Fake(panic=self.panic, **who)
    def run(self, stop=False):
        self.server.control_flow(Fake(triggered=stop), self.ctx('server'))
        return self.panic

def asked(what): return json.loads(json.dumps(from_bytes(to_bytes(flare.asdict(what)))))

def test_a_job_is_a_folder_as_nvflares_guides_write_it(tmp_path):
    "A job of its server's and its sites' side, in configurations of format 2, which travels to all."
    home = flare.write_job(job(), 3, tmp_path/'job')
    assert json.loads((home/'meta.json').read_text())['deploy_map'] == dict(app=['@ALL'])
    for side, what in dict(server='workflows', client='executors').items():
        config = json.loads((home/f'app/config/config_fed_{side}.json').read_text())
        assert config['format_version'] == 2 and len(config[what]) == 1

def test_it_is_a_rehearsal(place, tmp_path, no_flare):
    "And the job's own folder at the server holds what is fetched; memory lies in each site's kit."
    what = job('FedBN', rounds=2)
    hub = rehearsal(what, [place/s for s in 'abc'], tmp_path/'here')
    hub.fit(progress=False)
    field = Field(place, tmp_path, asked(what))
    assert field.run() == []
    history = History.load(tmp_path/'server'/'1-Two'/'fedskew'/'history.json')
    assert (history.rounds, history.rows) == (hub.history.rounds, hub.history.rows)
    assert all(load_nest(tmp_path/s/'memory'/'1two'/'2.safetensors')['kept'] for s in 'abc')
    here, there = (Book(at).rows() for at in (tmp_path/'here', tmp_path/'server'/'1-Two'/'fedskew'))
    for what in ('site', 'kind', 'round'): assert [r[what] for r in there] == [r[what] for r in here]
    assert [(r['order'], r['answer']) for r in there if r['site'] == 'a'] == [
        (r['order'], r['answer']) for r in Book(tmp_path/'a'/'memory').rows()]

def test_a_secure_sum_is_that_of_a_rehearsal(place, tmp_path, no_flare):
    "Keys are options of the site, too."
    what = job(rounds=1, secure=True)
    hub = rehearsal(what, [place/s for s in 'abc'], tmp_path/'here', limits=dict(colluders=0))
    hub.fit(progress=False)
    field = Field(place, tmp_path, asked(what), secure='../keys', colluders=0)
    for s in 'abc':
        write_pair(tmp_path/'keys', s)
        file = tmp_path/s/'local'/'fedskew.json'
        file.write_text(json.dumps(json.loads(file.read_text()) | dict(key=f'../keys/{s}')))
    assert field.run() == []
    sums = [load_nest(tmp_path/at/'state.safetensors')['server'] for at in ('here', 'server/1-Two/fedskew')]
    assert same_nest(*sums)

def renamed(site, name):
    "A site that says that it is another one."
    def lie(letter): return dict(answer=to_bytes(from_bytes(site(letter)['answer']) | dict(name=name)))
    return lie

def test_a_name_is_what_nvflare_knows(place, tmp_path, no_flare):
    "Two sites that change names would get each other's models."
    field = Field(place, tmp_path, asked(job()))
    sites = field.server.sites
    sites['a'], sites['b'] = renamed(sites['a'], 'b'), renamed(sites['b'], 'a')
    assert field.run() == ['the site a says that it is b']

@pytest.mark.parametrize('answer', [dict(), dict(answer='text'), dict(answer=None)])
def test_a_site_that_does_not_answer_is_named(place, tmp_path, no_flare, answer):
    field = Field(place, tmp_path, asked(job()))
    field.server.sites['c'] = lambda letter: answer
    assert field.run() == ['c did not answer: its log says why']

def test_what_stops_a_run_is_one_sentence(place, tmp_path, no_flare):
    assert Field(place, tmp_path/'1', asked(job()), nodes=2).run() == ['--nodes is 2, and there are a, b, c']
    (said,) = Field(place, tmp_path/'2', asked(job()) | dict(model=3)).run()
    assert 'this is no job' in said
    (said,) = Field(place, tmp_path/'3', asked(job('DFL'))).run()
    assert said.startswith('a cannot go on: DFL gives other sites what a sends')
    field = Field(place, tmp_path/'4', asked(job()))
    def silent(task, ctx, targets): ...
    field.server.send = silent
    assert field.run(stop=True) == ['NVFlare stopped the job: its log says why']

WRONG = {
    'peer': (dict(peer=True), "there is no option of .* 'peer': did you mean peers"),
    'a text': (dict(most_steps='ten'), 'most_steps'),
    'no images': (dict(data='nowhere'), 'nowhere'),
    'sealed': (dict(secure='keys'), '--secure needs a key')}

@pytest.mark.parametrize('name', WRONG)
def test_options_of_a_site(place, tmp_path, no_flare, name):
    "Its own log says what is wrong; the server hears that something is."
    more, words = WRONG[name]
    field, heard = Field(place, tmp_path, asked(job()), **more), []
    with pytest.raises((ValueError, OSError), match=words): flare.node_at(tmp_path/'a', 'a', heard.append)
    assert field.run() == ['a cannot go on: it cannot start a node: its own log says why'] and heard == []

def test_an_option_of_a_site_reaches_its_node(place, tmp_path, no_flare):
    "Paths begin at the kit."
    Field(place, tmp_path, asked(job()), memory='mine', most_steps=7, peers=True, skip_broken=True)
    node = flare.node_at(tmp_path/'b', 'b', None)
    had = node.memory, node.limits['steps'], node.peers, node.images.bad
    assert had == (tmp_path/'b'/'mine', 7, True, 'skip')
    (tmp_path/'b'/'local'/'fedskew.json').unlink()
    with pytest.raises(ValueError, match='json cannot be read'): flare.node_at(tmp_path/'b', 'b', None)

def test_a_job_is_text(tmp_path, capsys):
    "Written by the command; every file is JSON and names functions of the package."
    federate_command('F2DC', nodes=3, flare=True, rounds=2, out=tmp_path/'job')
    files = {p.relative_to(tmp_path/'job').as_posix() for p in (tmp_path/'job').rglob('*') if p.is_file()}
    assert files == {'meta.json', 'app/config/config_fed_server.json', 'app/config/config_fed_client.json'}
    server = json.loads((tmp_path/'job/app/config/config_fed_server.json').read_text())
    (flow,) = server['workflows']
    assert flow['path'] == 'fedskew_nb.deploy.flare.server' and flow['args']['nodes'] == 3
    assert flare.job_of(flow['args']['job']).setting['rounds'] == 2
    assert f'{tmp_path/"job"}' in capsys.readouterr().out
    wrong = [dict(nodes=3, least=2), dict(nodes=3, ca='ca.crt'), dict(rehearse=['a'])]
    for more in wrong:
        with pytest.raises(ValueError, match='--flare'): federate_command('F2DC', flare=True, **more)

def test_without_it_the_extra_is_named(monkeypatch):
    "Nothing else of the package asks for it."
    def absent(name): raise ModuleNotFoundError(name=name)
    monkeypatch.setattr('fedskew_nb.core.names.import_module', absent)
    with pytest.raises(ImportError, match=r"nvflare is not installed: run pip install 'fedskew_nb\[flare\]'"):
        flare.server(job={}, nodes=3)
