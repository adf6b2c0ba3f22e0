"The boundary of a site: limits are numbers, orders fit the job, files are their owner's."
import math, os, shutil, stat
from dataclasses import replace
from pathlib import Path
import numpy as np, pytest, torch
from msgspec import structs
from msgspec.structs import asdict
from PIL import Image
from test_deploy import asked_as_by_flower, cache, first_model, job, no_flower, place
from fedskew_nb.data.folder import load_folder
from fedskew_nb.data.load import load_suite
from fedskew_nb.data.splits import dirichlet, mixed, people_in, shards
from fedskew_nb.deploy import flower
from fedskew_nb.deploy.rehearse import rehearsal
from fedskew_nb.deploy.keys import certs_command, write_pair
from fedskew_nb.deploy.node import UNSAID, Node
from fedskew_nb.deploy.admit import admit, limits_of
from fedskew_nb.deploy.order import Book, Job, order_of
from fedskew_nb.engine.checkpoint import from_bytes, to_bytes
from fedskew_nb.engine.private import Plan
from fedskew_nb.tools.cli import main, read_settings

# ---- limits

BAD = dict(
    most_pixels=[0, -1, 1.5, math.nan, math.inf], most_steps=[0, -1, math.nan], most_epochs=[0],
    most_threads=[0, True], most_batch_pixels=[0, math.nan], most_runs=[0, .5],
    most_parameters=[0, -5], most_minutes=[0, -5., math.nan, math.inf],
    most_share=[0, 1.1, math.nan], colluders=[-1, .5, 1.0, math.nan], weights=['nowhere', ''],
    methods=[',', '', 'FedAvg,', 'Nope', 'FedAvg,Nope', 5], downloads=['no'])

@pytest.mark.parametrize('option, v', [(k, v) for k, vs in BAD.items() for v in vs])
def test_a_limit_that_is_none_is_refused_when_the_node_starts(place, option, v):
    "By name, and not at the first order."
    with pytest.raises(ValueError, match=f'{option}|method|{option.replace("_", "-")}'):
        flower.node_of(place/'a', None, 'a', **{option: v})

def test_a_command_refuses_it_too(place, capsys):
    "As a number that argparse takes."
    typed = dict(most_minutes='nan', most_threads='0', methods=',', epsilon='nan', weights='nowhere')
    for option, v in typed.items():
        assert main(['node', '--data', str(place/'a'), f'--{option.replace("_", "-")}', v]) == 2
        assert option in capsys.readouterr().err.replace('-', '_')

def test_the_method_that_a_site_agreed_to_is_taken_however_it_is_spelt(place, tmp_path):
    said = ('FedAvg', 'FedAvg'), ('fedavg, FedProx', 'FedProx(mu=.1)'), ('FedProx,AdaBN', 'FedProx + AdaBN')
    for methods, asked in said:
        node = Node(place/'a', tmp_path, tell=None, limits=limits_of(methods=methods))
        assert from_bytes(node(to_bytes(order_of(job(asked), 'facts'))))['name'] == 'a'
    refused = pytest.raises(ValueError, match='a takes part in FedProx, AdaBN, .*FedBN')
    with refused: node(to_bytes(order_of(job('FedBN'), 'facts')))

@pytest.mark.parametrize('epsilon', [-1, math.nan, math.inf])
def test_a_most_of_epsilon_is_a_number(place, tmp_path, epsilon):
    with pytest.raises(ValueError, match='epsilon is'): Node(place/'a', tmp_path, epsilon=epsilon)

def test_an_epsilon_of_zero_is_a_limit(place, tmp_path):
    "Here and as Flower's configuration carries it."
    node = Node(place/'a', tmp_path, tell=None, epsilon=0)
    assert 'epsilon=0' in flower.at_node(node)
    with pytest.raises(ValueError, match='a trains with noise only'): node(to_bytes(order_of(job(), 'facts')))
    pytest.importorskip('opacus')
    spends = Plan(people=10, q=.5, steps=1, sigma=1., delta=.01)
    with pytest.raises(ValueError, match='of ε 0 this site has spent'): node.ledger(job()).check(spends, 1)

# ---- orders

def spoilt(model, how):
    n, v = next((n, v) for n, v in model.items() if n.endswith('head.weight'))
    if how == 'missing': return {k: t for k, t in model.items() if k != n}
    if how == 'extra': return model | dict(more=v)
    return model | {n: dict(shape=v[:1], type=v.long(), nan=v*math.nan, infinite=v+math.inf, text='x')[how]}

HOW = dict(missing='head.weight is missing', extra='the model has no more', shape='head.weight is',
           type='int64', nan='NaN or infinity', infinite='NaN or infinity', text='a str, not')

@pytest.mark.parametrize('kind', ['train', 'score'])
@pytest.mark.parametrize('how', HOW)
def test_tensors_of_an_order_are_those_of_the_job(place, tmp_path, kind, how):
    "A site opens nothing of another model, and keeps nothing of the order."
    node, model = Node(place/'a', tmp_path/'m', tell=None), first_model(job(), place/'a', tmp_path/'x')
    order = to_bytes(order_of(job(), kind, model=spoilt(model, how)))
    with pytest.raises(ValueError, match=f'a got another model than the job has .*{HOW[how]}'): node(order)
    assert not list((tmp_path/'m').rglob('*.safetensors'))
    node(to_bytes(order_of(job(), kind, model=model)))

BIAS = 'head.bias'
BESIDE = dict(nan=dict(c=torch.tensor([1., math.nan])), text=dict(c=dict(d='x')), nothing=dict(c=None),
              complex=dict(c=torch.ones(2, dtype=torch.complex64)), kind=dict(c={BIAS: torch.ones(2).long()}),
              shape=dict(c={BIAS: torch.ones(1)}))

@pytest.mark.parametrize('what', BESIDE)
@pytest.mark.parametrize('kind', ['train', 'score'])
def test_what_is_sent_beside_a_model_are_finite_numbers_like_it(place, tmp_path, kind, what):
    model = first_model(job('SCAFFOLD'), place/'a', tmp_path/'x')
    order = order_of(job('SCAFFOLD'), kind, model=model, down=BESIDE[what])
    node = Node(place/'a', tmp_path, tell=None)
    with pytest.raises(ValueError, match='a got another model than the job has'): node(to_bytes(order))

# ---- what a refusal tells

def drawn(folder, n=12):
    "Images beside each other, in no folder of a class."
    folder.mkdir()
    for i in range(n): Image.fromarray(np.full((16, 16, 3), 9*i, np.uint8)).save(folder/f'i{i}.png')
    return folder

ROWS = [f'i{i}.png,{"cat" if i % 2 else "dog"},S,P{i}' for i in range(12)]
TOLD = {
    'a row without its image': [*ROWS, 'Mueller_Hans.png,cat,S,Meier'],
    'a row without its label': [*ROWS, 'i0.png,,S,Meier'],
    'a patient at two sites': ['i0.png,cat,S,Meier', 'i1.png,cat,T,Meier', *ROWS[2:]],
    'an image of two patients': [*ROWS, 'i0.png,dog,S,Meier']}

def asked_for_facts(data, memory, **more):
    return Node(data, memory, 'a', tell=None, **more).reply(to_bytes(order_of(job(), 'facts')))

@pytest.mark.parametrize('what', TOLD)
def test_no_word_of_a_table_reaches_the_server(tmp_path, capsys, what):
    "One sentence for all; the site's own terminal and its ledger have the words."
    table = drawn(tmp_path/'a')/'t.csv'
    table.write_text('\n'.join(['image,label,site,patient', *TOLD[what]]))
    with pytest.raises(RuntimeError, match=f'^{UNSAID}$'): asked_for_facts(table, tmp_path/'m')
    (row,), said = Book(tmp_path/'m').rows(), capsys.readouterr().err
    assert 't.csv' in said and 't.csv' in row['refused']

def spoilt_patients(home): (home/'patients.csv').write_text('image,patient\ndawn/dark/0.png,MRN-4711,Meier\n')
def spoilt_boxes(home): (home/'boxes.csv').write_text('path,left,top,right,bottom\nMeier.png,0,0,3,3\n')
def spoilt_image(home): (home/'dawn'/'dark'/"O'Brien.png").write_bytes(b'torn')
def nothing(home): shutil.rmtree(home)

@pytest.mark.parametrize('spoil', [spoilt_patients, spoilt_boxes, spoilt_image, nothing])
def test_no_word_of_a_folder_reaches_the_server(place, tmp_path, spoil):
    shutil.copytree(place/'a', tmp_path/'a')
    spoil(tmp_path/'a')
    with pytest.raises(RuntimeError, match=f'^{UNSAID}$'): asked_for_facts(tmp_path/'a', tmp_path/'m')

def test_no_word_of_what_a_site_keeps_reaches_the_server(place, tmp_path):
    "A torn memory, a folder that is none; a limit of the owner is told."
    what, node = job('FedBN'), Node(place/'a', tmp_path/'m', 'a', tell=None)
    order = order_of(what, 'train', model=first_model(what, place/'a', tmp_path/'x'))
    model = from_bytes(node.reply(to_bytes(order)))['model']
    (tmp_path/'m'/'run'/'1.safetensors').write_bytes(b'torn')
    later = to_bytes(order | dict(round=1, merged=1, model=model))
    with pytest.raises(RuntimeError, match=f'^{UNSAID}$'): node.reply(later)
    (tmp_path/'m'/'run'/'images.json').write_text('{')
    with pytest.raises(RuntimeError, match=f'^{UNSAID}$'): node.reply(later)
    (tmp_path/'file').write_text('')
    with pytest.raises(RuntimeError, match=f'^{UNSAID}$'): asked_for_facts(place/'a', tmp_path/'file'/'m')
    with pytest.raises(RuntimeError, match='a allows 1 pixels'):
        asked_for_facts(place/'a', tmp_path/'m', limits=limits_of(most_pixels=1))

def test_a_node_that_cannot_start_tells_no_path(place, tmp_path, no_flower):
    "Its key is gone since the node was started."
    pytest.importorskip('cryptography')
    write_pair(tmp_path/'keys', 'a')
    node = flower.node_of(place/'a', str(tmp_path/'keys'/'a'), 'a', tmp_path/'m', secure=str(tmp_path/'keys'))
    said = flower.at_node(node)
    (tmp_path/'keys'/'a').unlink()
    with pytest.raises(RuntimeError, match=f'^{UNSAID}$'): asked_as_by_flower(node, job())
    assert str(tmp_path) in said

# ---- what an order may not take away

@pytest.fixture
def kept(place, tmp_path):
    "A node after two rounds of a run, how it is asked, and its folder."
    node, what = Node(place/'a', tmp_path/'m', 'a', tell=None), job('FedBN')
    first = order_of(what, 'train', model=first_model(what, place/'a', tmp_path/'x'))
    def ask(**more): return from_bytes(node.reply(to_bytes(first | more)))
    ask(round=1, merged=1, model=ask()['model'])
    return ask, tmp_path/'m'/'run', node

def bytes_in(folder): return {f.name: f.read_bytes() for f in folder.iterdir() if f.is_file()}

@pytest.mark.parametrize('how', [dict(round=0), dict(round=2)])
def test_what_was_kept_is_set_aside_when_a_run_begins_anew(kept, how, capsys):
    "Once; the next time it is refused until the owner has looked, and all of it is there still."
    ask, folder, node = kept
    before = bytes_in(folder)
    ask(**how)
    assert bytes_in(folder/'old') == before
    assert 'the server begins run anew' in capsys.readouterr().err
    assert 'set aside' in [r['kind'] for r in Book(node.memory).rows()]
    ask(round=0)
    now = ask(round=1, merged=1) and bytes_in(folder)
    with pytest.raises(RuntimeError, match='keeps one that came before: its owner'): ask(round=0)
    assert (bytes_in(folder), bytes_in(folder/'old')) == (now, before)

def test_what_was_used_stays_when_a_server_goes_back(kept):
    "After it has said that it used round 2, it trains from round 1 again, with another model."
    ask, folder, node = kept
    last = ask(round=2, merged=2)['model']
    before = bytes_in(folder)
    ask(round=1, merged=1, model={n: 2*v for n, v in last.items()}, fresh=True)
    assert bytes_in(folder/'old')['2.safetensors'] == before['2.safetensors']

def test_an_answer_that_was_lost_is_asked_for_as_often_as_it_takes(kept):
    "Also of a site that lost its memory and begins anew; nothing is set aside."
    ask, folder, _ = kept
    (folder/'1.safetensors').unlink()
    for _ in range(3): ask(round=1, merged=1, fresh=True)
    for _ in range(3): ask(round=2, merged=2)
    assert not (folder/'old').exists()

def test_a_kill_while_it_is_set_aside_is_mended_by_the_next_order(kept, monkeypatch):
    ask, folder, _ = kept
    before, rename = bytes_in(folder), Path.rename
    def killed(file, to):
        if file.name == 'images.json': raise KeyboardInterrupt
        return rename(file, to)
    with monkeypatch.context() as m, pytest.raises(KeyboardInterrupt):
        m.setattr(Path, 'rename', killed)
        ask(round=0)
    ask(round=0)
    assert bytes_in(folder/'old') == before and not (folder/'old.part').exists()

def test_other_images_are_refused_whatever_round_an_order_says(kept, place, tmp_path):
    "Nothing of the run is touched."
    ask, folder, node = kept
    before = bytes_in(folder)
    node.images.folder, node.at = place/'b', None
    for kind in 'train', 'score':
        with pytest.raises(RuntimeError, match='merged is 1, and 0 rounds are done'): ask(kind=kind, merged=1)
    with pytest.raises(RuntimeError, match='a has other images'): ask(kind='score')
    assert bytes_in(folder) == before

def test_the_first_last_model_stays_beside_another(kept):
    "The same order again leaves one."
    ask, folder, node = kept
    last = ask(round=2, merged=2, kind='train')['model']
    def score(model): ask(kind='score', round=3, merged=3, model=model, personal=True)
    score(last)
    before = bytes_in(folder)
    score(last)
    assert bytes_in(folder).keys() == before.keys()
    for k in 2, 3:
        score({n: v*k for n, v in last.items()})
        now = bytes_in(folder)
        assert now['model.old.safetensors'] == before['model.safetensors'] != now['model.safetensors']

def test_a_site_keeps_so_many_runs(place, tmp_path):
    "One that is there goes on; room is made by its owner."
    node = Node(place/'a', tmp_path/'m', 'a', tell=None, limits=limits_of(most_runs=2))
    model = first_model(job(), place/'a', tmp_path/'x')
    def ask(run): node.reply(to_bytes(order_of(structs.replace(job(), run=run), 'train', model=model)))
    for run in 'x', 'y', 'x': ask(run)
    with pytest.raises(RuntimeError, match='a allows 2 runs, .* for 3: .*--most-runs'): ask('z')
    assert not (tmp_path/'m'/'z').exists()
    flower.forgotten(tmp_path/'m', 'y')
    ask('z')

@pytest.mark.parametrize('kind, round', [('train', 3), ('train', 10**6), ('score', 4)])
def test_a_round_that_the_job_does_not_have_is_refused(kept, kind, round):
    "One that has grown has it."
    ask, folder, node = kept
    with pytest.raises(RuntimeError, match=f'a is asked to {kind} after round {round}, and the job has 3'):
        ask(kind=kind, round=round, merged=2)
    if round < 10: ask(kind=kind, round=round, merged=2, job=asdict(job('FedBN', rounds=round+1)))

# ---- models

def test_a_net_of_torchvision_is_admitted_and_trained(place, tmp_path):
    "Its numbers cannot be compared where it has none; its parameters are counted."
    pytest.importorskip('torchvision')
    how = dict(rounds=1, local_steps=1, batch_size=4, lr=.01)
    what = Job('FedAvg', 'torchvision("mobilenet_v3_small")', 32, how)
    with pytest.raises(ValueError, match='allows 1,000 parameters'):
        admit(what, 'a', limits_of(most_parameters=1000))
    hub = rehearsal(what, [place/'a', place/'b'], tmp_path)
    hub.fit(progress=False)
    fed = what.federation(replace(all_ := load_folder(place/'all', 32), clients=all_.clients[:2]))
    fed.fit(progress=False)
    assert all(torch.equal(v, fed.server[n]) for n, v in hub.server.items())

NAMED = [f'torchvision("resnet18", weights={w})' for w in ('"DEFAULT"', 'True', '("DEFAULT",)')]
NAMED += ['timm("resnet18", weights="a1_in1k")']

@pytest.mark.parametrize('net', NAMED)
def test_no_connection_is_opened_for_weights(place, tmp_path, monkeypatch, net):
    "Unless the owner of the site says so."
    what = Job('FedAvg', net, 32)
    with pytest.raises(ValueError, match='opens no connection for them: .*--downloads'):
        admit(what, 'a', limits_of())
    class Asked(Exception): pass
    def net(self, n_classes): raise Asked
    monkeypatch.setattr(Job, 'net', net)
    with pytest.raises(Asked): admit(what, 'a', limits_of(downloads=True))

TEXTS = ['torchvision("resnet18", weights="{}")', 'torchvision("{}")', 'small_conv(width="{}")']

@pytest.mark.parametrize('text', TEXTS)
def test_of_a_name_nobody_hears_whether_a_file_has_it(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    def said():
        with pytest.raises(ValueError) as e:
            admit(Job('FedAvg', text.format('there.csv'), 32), 'a', limits_of())
        return str(e.value)
    gone = said()
    (tmp_path/'there.csv').write_text('patients')
    assert said() == gone

OF_NODES = [['--peers'], ['--colluders', '0'], ['--most-share', '.5'], ['--evaluate', 'x']]

@pytest.mark.parametrize('option', OF_NODES)
def test_what_is_said_of_rehearsed_sites_is_not_dropped_for_others(option, capsys):
    assert main(['federate', 'FedAvg', '--nodes', '4', *option]) == 2
    assert f'{option[0]} is for rehearsed sites: a node of --nodes says it' in capsys.readouterr().err

# ---- what is written down

def test_a_switch_is_said_as_json_and_toml_say_it():
    assert read_settings(['secure=true', 'flip=false', 'lr=.1']) == dict(secure=True, flip=False, lr=.1)

def test_files_of_a_server_are_its_owners(place, tmp_path, monkeypatch, unsaved):
    "Checkpoint, its twin, history, report, model, run: whatever the shell's umask says."
    monkeypatch.chdir(tmp_path)
    small = '--rounds', '1', '--pixels', '16', '--model', 'small_conv(width=4)', '--set', 'local_steps=1'
    here = '--rehearse', str(place/'a'), '--rehearse', str(place/'b')
    before = os.umask(0o022)
    try: assert main(['federate', 'FedAvg', *small, *here]) == 0
    finally: after = os.umask(before)
    made = [p for p in (tmp_path/'federation').rglob('*')]
    named = {'state.safetensors', 'state.good.safetensors', 'history.json', 'report.html'}
    assert named <= {p.name for p in made}
    assert after == 0o022 and not [p for p in made if stat.S_IMODE(p.stat().st_mode) & 0o077]

@pytest.mark.parametrize('torn', ['ca.crt', 'ca.key', 'server.crt'])
def test_a_certificate_is_not_renewed_by_a_torn_authority(tmp_path, torn, capsys):
    "Nothing is written."
    pytest.importorskip('cryptography')
    certs_command(tmp_path, node=['a'])
    was = {f.name: f.read_bytes() for f in tmp_path.glob('*.*')}
    (tmp_path/torn).write_bytes(was[torn][:100])
    with pytest.raises(ValueError, match='is torn: bring'): certs_command(tmp_path, renew=True)
    now = {f.name: f.read_bytes() for f in tmp_path.glob('*.*')}
    assert {n for n in was if now[n] != was[n]} == {torn}
    if torn == 'ca.crt':
        with pytest.raises(ValueError, match='torn'): certs_command(tmp_path, node=['b'])

def test_a_foreign_authority_renews_nothing(tmp_path):
    pytest.importorskip('cryptography')
    for at in 'one', 'two': certs_command(tmp_path/at)
    (tmp_path/'one'/'ca.crt').write_bytes((tmp_path/'two'/'ca.crt').read_bytes())
    with pytest.raises(ValueError, match='do not belong together'): certs_command(tmp_path/'one', renew=True)

# ---- patients

def with_patients(suite, images=4, shared=0):
    "So many images of each; the first clients share so many."
    def named(d, k): return replace(d, who=k*10**6+torch.arange(len(d))//images)
    clients = [replace(c, train=named(c.train, 2*c.id), val=named(c.val, 2*c.id+1)) for c in suite.clients]
    if shared: clients[1].train.who[:shared] = clients[0].train.who[:shared]
    return replace(suite, clients=clients)

def homes(suite): # {patient: clients}
    at = {}
    for c in suite.clients:
        for w in people_in([c.train, c.val]).tolist(): at.setdefault(w, set()).add(c.id)
    return at

@pytest.mark.parametrize('share, clients', [(0, 1), (.3, 1), (.5, 2), (1, 3)])
def test_a_patient_of_mixed_clients_is_at_one(share, clients):
    "And each client gets about what it would get of images."
    suite = load_suite('skew-digits', 'tiny')
    own, plain = mixed(with_patients(suite), share, clients), mixed(suite, share, clients)
    assert max(map(len, homes(own).values())) == 1
    sizes = ([len(c.train) for c in s.clients] for s in (own, plain))
    assert all(abs(a-b) <= 4*len(suite.clients) for a, b in zip(*sizes))
    assert sum(len(c.train) for c in own.clients) == sum(len(c.train) for c in suite.clients)

def test_a_deal_that_takes_patients_apart_is_refused():
    suite = with_patients(load_suite('skew-digits', 'tiny'))
    for deal in (lambda: dirichlet(suite, clients=2), lambda: shards(suite, clients=2)):
        with pytest.raises(ValueError, match=r'would take \d+ patients apart'): deal()
    assert len(shards(suite, clients=1).clients) == 5
    both = with_patients(load_suite('skew-digits', 'tiny'), shared=4)      # who was at two before may be
    assert len(homes(shards(both, clients=1))) == len(homes(both))
