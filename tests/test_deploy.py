"A deployment in one process: what passes are bytes, what is refused costs nothing, no image leaves."
import asyncio, base64, dataclasses, datetime, hashlib, json, math, os, re, shutil, signal
import threading, time, tomllib
from contextlib import nullcontext
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
import numpy as np, pytest, torch
from msgspec.structs import asdict, replace
from PIL import Image
from safetensors.torch import load_file
from test_every_method import same_nest
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.seeding import generator
from fedskew_nb.core.pictures import content
from fedskew_nb.data.folder import folder, load_folder
from fedskew_nb.data.images import join
from fedskew_nb.deploy import flower, keys, node
from fedskew_nb.deploy.hub import agreed, finish, hub_of, roster_of
from fedskew_nb.deploy.order import Book, Job, order_of
from fedskew_nb.deploy.node import UNSAID, Node
from fedskew_nb.deploy.admit import admit, limits_of, within
from fedskew_nb.deploy.rehearse import rehearsal, run_here
from fedskew_nb.engine.sites import byte_rows, handed_on
from fedskew_nb.deploy.surface import surface_of
from fedskew_nb.engine.checkpoint import from_bytes, load_nest, to_bytes
from fedskew_nb.engine.history import History
from fedskew_nb.run.compare import compare
from fedskew_nb.run.recipes import METHODS
from fedskew_nb.tools.cli import main
from project import ROOT

DOMAINS = 'dawn', 'noon', 'dusk'

def draw(folder, domain):
    "Eight images of each of two classes."
    for c, low in (('bright', 120), ('dark', 20)):
        (folder/domain/c).mkdir(parents=True, exist_ok=True)
        for i in range(8):
            x = torch.randint(low, low+100, (16, 16, 3), generator=generator(domain, c, i), dtype=torch.uint8)
            Image.fromarray(x.numpy()).save(folder/domain/c/f'{i}.png')

@pytest.fixture(scope='module')
def place(tmp_path_factory):
    "Three sites in the order of their domains, and the union of their folders."
    home = tmp_path_factory.mktemp('deploy')
    for site, domain in zip('abc', sorted(DOMAINS)):
        draw(home/site, domain)
        draw(home/'all', domain)
    return home

@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv('FEDSKEW_CACHE', str(tmp_path_factory.getbasetemp()/'cache'))

def sites(place): return [place/s for s in 'abc']

def job(method='FedAvg', **more):
    return Job(method, 'small_conv(width=4)', 16, dict(rounds=3, local_steps=2, batch_size=8, lr=.05) | more)

def fitted(place, job):
    fed = job.federation(load_folder(place/'all', 16))
    fed.fit(progress=False)
    return fed

def stays(out, site): return Path(out)/'sites'/site/'run'

def own_rows(fed):
    "The scores that can be asked for where each site has its own test images."
    domain = {c.id: c.domain for c in fed.clients}
    return [r for r in fed.history.rows if domain.get(r['client'], r['domain']) == r['domain']]

# ---- equal to the bit

RUNS = [('FedAvg', {}), ('SCAFFOLD + FedBN', {}), ('F2DC', dict(participation=.6)),
        ('Ditto', dict(eval_every=2)), ('FedProto', {}), ('FedBN', dict(record=True)),
        ('FedAvg + AdaBN', dict(record=True))]

@pytest.mark.parametrize('method, how', RUNS, ids=[m for m, _ in RUNS])
def test_a_rehearsal_on_folders_is_fit_on_their_union(place, tmp_path, method, how):
    what = job(method, **how)
    fed, hub = fitted(place, what), rehearsal(what, sites(place), tmp_path)
    hub.fit(progress=False)
    assert hub.history.rounds == fed.history.rounds and hub.history.rows == own_rows(fed)
    assert same_nest(hub.memory, fed.memory) and same_nest(hub.down, fed.down)
    for n in fed.server.keys()-fed.kept: assert torch.equal(hub.server[n], fed.server[n]), n
    for k, site in enumerate('abc'):
        files = sorted(stays(tmp_path, site).glob('[0-9]*.safetensors'))
        mine = load_nest(files[-1]) if files else dict(kept={}, states={})
        assert same_nest(hub.own[k] | mine['kept'], fed.own[k]) and same_nest(mine['states'], fed.states[k])

@pytest.mark.parametrize('method', ['FedAvg', 'F2DC', 'MOON'])
def test_hubs_leave_counters_of_batches_with_their_sites(place, tmp_path, method):
    "In the second round, too, whose model has none."
    what = job(method, secure=True, rounds=2)
    hub, fed = rehearsal(what, sites(place), tmp_path, hubs=2), fitted(place, what)
    hub.fit(progress=False)
    for n in fed.server.keys()-fed.kept: assert torch.equal(hub.server[n], fed.server[n]), n

def test_sites_under_hubs_are_fit_with_secure(place, tmp_path, capsys, unsaved):
    "From the command line, with a stop in the middle; hubs are in the server's ledger."
    what, words = job('FedBN', secure=True, rounds=2), []
    for k, v in what.setting.items():
        if k != 'rounds': words += ['--set', f'{k}={v}']
    for s in sites(place): words += ['--rehearse', str(s)]
    how = dict(model=what.model, pixels=16, rounds=2, hubs=2, out=tmp_path)
    call = ['federate', 'FedBN', *(str(x) for k, v in how.items() for x in (f'--{k}', v))]
    rehearsal(what, sites(place), tmp_path, hubs=2).fit(1, progress=False)
    assert main([*call, *words]) in (0, None), capsys.readouterr().err
    fed, there = fitted(place, what), load_nest(tmp_path/'state.safetensors')
    for n in fed.server.keys()-fed.kept: assert torch.equal(there['server'][n], fed.server[n]), n
    h = History.load(tmp_path/'history.json')
    assert h.rounds == fed.history.rounds and h.rows == own_rows(fed)
    assert {r['site'] for r in Book(tmp_path).rows()} == {'hub 1', 'hub 2'}
    kinds = ['facts', 'train']*2+['score']
    assert [r['kind'] for r in Book(tmp_path/'sites'/'a').rows()] == kinds
    assert [r['kind'] for r in Book(tmp_path).rows() if r['site'] == 'hub 1'] == kinds

@pytest.mark.parametrize('words, why', [
    (['--nodes', '3'], 'hubs are rehearsed only'),
    (['--rehearse', 'a', '--classes', 'union'], 'say --classes a,b,c'),
    (['--rehearse', 'a', '--hubs', '-1'], 'hubs is -1')])
def test_what_hubs_refuse(tmp_path, capsys, words, why):
    more = ['--out', str(tmp_path)]+['--hubs', '2']*('--hubs' not in words)
    assert main(['federate', 'FedAvg', *words, *more]) and why in capsys.readouterr().err

# ---- classes of the job

def test_a_site_may_leave_its_domain_out_in_both_commands(place, tmp_path, capsys, unsaved):
    "Its folder is then named like the domain; what it trains, and what joins, is the same."
    compare('FedAvg', folder(place/'all', 16), 1, out=tmp_path/'runs', keep_models=True, rounds=1,
            local_steps=1, control=False, model='small_conv(width=4)', progress=False)
    said, domain = [], sorted(DOMAINS)[0]
    both = tmp_path/'nested'/domain, tmp_path/'flat'/domain
    for site, source in zip(both, (place/'a', place/'a'/domain)): shutil.copytree(source, site)
    how = '--pixels', '16', '--model', 'small_conv(width=4)', '--rounds', '1', '--set', 'local_steps=2'
    for k, site in enumerate(both):
        assert not main(['join', f'{tmp_path/"runs"}', '--data', f'{site}'])
        said.append(capsys.readouterr().out)
        rest = [w for s in (site, *sites(place)[1:]) for w in ('--rehearse', f'{s}')]
        assert not main(['federate', 'FedAvg', *rest, *how, '--out', f'{tmp_path/str(k)}'])
        capsys.readouterr()
    assert said[0] == said[1] and f'{domain} joins FedAvg' in said[0]
    one, other = (load_file(tmp_path/k/'model.safetensors') for k in '01')
    assert one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)
    with pytest.raises(ValueError, match='a site has one'): load_folder(place/'all', 16, alone=True)

def test_a_site_without_a_case_of_one_class_takes_part(place, tmp_path):
    "Equal to a table of all images, in which a domain may lack a class; each model keeps its numbers."
    for site in 'abc': shutil.copytree(place/site, tmp_path/site)
    shutil.rmtree(tmp_path/'b'/'dusk'/'bright')
    how = replace(job('FedBN', eval_every=1), classes=['bright', 'dark', 'grey'])
    hub = rehearsal(how, [tmp_path/s for s in 'abc'], tmp_path/'out')
    hub.fit(progress=False)
    paths = [p for s in 'abc' for p in sorted((tmp_path/s).rglob('*.png'))]
    rows = [f'{p.relative_to(tmp_path)},{p.parts[-3]},{p.parts[-2]}' for p in paths]
    (tmp_path/'t.csv').write_text('\n'.join(['image,site,label', *rows]))
    with pytest.warns(UserWarning, match='bright'): suite = load_folder(tmp_path/'t.csv', 16)
    fed = how.federation(dataclasses.replace(suite, classes=how.classes))
    fed.fit(progress=False)
    assert hub.history.rounds == fed.history.rounds and hub.history.rows == own_rows(fed)
    assert hub.suite.n_classes == 3 and len(paths) == 40

def test_a_folder_that_the_job_does_not_name_is_refused(place, tmp_path):
    "Nor a class that is named twice; its images would be lost."
    with pytest.raises(ValueError, match="a has the class 'bright', the job dark, grey: rename"):
        rehearsal(replace(job(), classes=['dark', 'grey']), sites(place), tmp_path)
    with pytest.raises(ValueError, match="two classes are called 'dark'"):
        rehearsal(replace(job(), classes=['dark', 'dark', 'bright']), sites(place), tmp_path)

# ---- a site that only evaluates

def looking_on(place, home, patients=True):
    "Two sites that train, and one whose images are all asked, each patient's four times."
    for s in 'abc': shutil.copytree(place/s, home/s)
    files = sorted(p.relative_to(home/'c').as_posix() for p in (home/'c').rglob('*.png'))
    rows = [f'{f},P{i//4}' for i, f in enumerate(files)]
    if patients: (home/'c'/'patients.csv').write_text('\n'.join(['image,patient', *rows]))
    return dict(folders=[home/'a', home/'b'], evaluate=[home/'c'])

def fitted_beside(place, how):
    "The same by `fit`: all images of the third domain are an unseen one's."
    suite = load_folder(place/'all', 16)
    *clients, last = suite.clients
    every = join([last.train, last.val, last.test])
    tests = {d: t for d, t in suite.tests.items() if d != last.domain}
    more = dict(tests=tests, unseen={last.domain: every})
    fed = how.federation(dataclasses.replace(suite, clients=clients, **more))
    fed.fit(progress=False)
    return fed, every

def test_a_site_that_only_evaluates_is_an_unseen_domain(place, tmp_path):
    "Rows and models are those of `fit`; what it says beside the accuracy is counted anew by scikit-learn."
    how, sites = job(rounds=2, eval_every=1), looking_on(place, tmp_path)
    sent, hub = [], rehearsal(how, sites['folders'], tmp_path/'out', evaluate=sites['evaluate'])
    post, hub.sites.post = hub.sites.post, lambda letters: [sent.append(letters), post(letters)][1]
    hub.fit(progress=False)
    fed, every = fitted_beside(place, how)
    assert hub.history.rounds == fed.history.rounds and hub.history.rows == fed.history.rows
    assert {from_bytes(letters['c'])['kind'] for letters in sent if 'c' in letters} == {'score'}
    p, y = fed.answers(every.x)[''].numpy(), every.y.numpy()
    metrics = pytest.importorskip('sklearn.metrics')
    said = hub.history.measures['sites']['c']
    assert said['confusion'] == metrics.confusion_matrix(y, p.argmax(1)).tolist() and said['patients'] == 4
    own, = load_folder(tmp_path/'c', 16).clients
    who, right = join([own.train, own.val, own.test]).who.numpy(), p.argmax(1) == y
    right = np.array([right[who == w].mean() for w in np.unique(who)])
    assert len(right) == 4
    wanted = {'accuracy': (p.argmax(1) == y).mean(), 'AUROC': metrics.roc_auc_score(y, p[:, 1]),
              'balanced accuracy': metrics.balanced_accuracy_score(y, p.argmax(1)),
              'macro F1': metrics.f1_score(y, p.argmax(1), average='macro'),
              'mean over patients': right.mean(), 'SD over patients': right.std(ddof=1)}
    assert said['scores'] == pytest.approx({k: 100*v for k, v in wanted.items()})

def test_who_only_evaluates_never_trains(place, tmp_path):
    "Whatever the server asks; and where there is no model for all, it is not asked."
    node = Node(place/'a', tmp_path, tell=None, limits=limits_of(evaluate_only=True))
    for kind in 'train', 'pledge':
        with pytest.raises(ValueError, match='a only evaluates: ask it for scores'):
            node(to_bytes(order_of(job(), kind)))
    sites = looking_on(place, tmp_path, patients=False)
    with pytest.raises(ValueError, match='FedBN leaves parts .* none for c, which only evaluates'):
        rehearsal(job('FedBN'), sites['folders'], tmp_path/'out', evaluate=sites['evaluate'])
    with pytest.raises(ValueError, match='all sites only evaluate'):
        rehearsal(job(), (), tmp_path/'none', evaluate=sites['evaluate'])

JUDGED = dict(
    none=(dict(site=None), 'says that it trains, and not'), more=(dict(images=3), 'counts other images'),
    view=(dict(view='global'), 'of another model'))

@pytest.mark.parametrize('wrong', JUDGED)
def test_what_a_judge_cannot_say(place, tmp_path, wrong):
    change, why = JUDGED[wrong]
    sites = looking_on(place, tmp_path, patients=False)
    hub = rehearsal(job(rounds=1), sites['folders'], tmp_path/'out', evaluate=sites['evaluate'])
    post = hub.sites.post
    def lie(letters):
        answers = {n: from_bytes(b) for n, b in post(letters).items()}
        if 'rows' in (a := answers.get('c', {})):
            answers['c'] = a | {k: v for k, v in change.items() if k == 'site'}
            for part in (a['site'], *a['rows']): part |= {k: v for k, v in change.items() if k in part}
        return {n: to_bytes(a) for n, a in answers.items()}
    hub.sites.post = lie
    with pytest.raises(ValueError, match=f'c sent scores that cannot be .*{why}'): hub.fit()

def test_the_union_of_classes(place, tmp_path):
    "Each site has a class that the other lacks; the job has all."
    for s in 'ab': shutil.copytree(place/s, tmp_path/s)
    (tmp_path/'a'/'dawn'/'dark').rename(tmp_path/'a'/'dawn'/'grey')
    hub = rehearsal(job(rounds=1), [tmp_path/'a', tmp_path/'b'], tmp_path/'out', union=True)
    hub.fit()
    assert hub.suite.classes == ['bright', 'dark', 'grey']

# ---- a study: members come and go

def three_and_a_fourth(place, home):
    "Folders a to d; b lacks a class, a has a broken file; and a suite of them, numbered as they come."
    for s in 'abc': shutil.copytree(place/s, home/s)
    draw(home/'d', 'rain')
    shutil.rmtree(home/'b'/'dusk'/'bright')
    paths = [p for s in 'abcd' for p in sorted((home/s).rglob('*.png'))]
    rows = [f'{p.relative_to(home)},{p.parts[-3]},{p.parts[-2]}' for p in paths]
    (home/'t.csv').write_text('\n'.join(['image,site,label', *rows]))
    with pytest.warns(UserWarning, match='bright'): suite = load_folder(home/'t.csv', 16)
    (home/'a'/'dawn'/'dark'/'torn.png').write_bytes(b'torn')
    dawn, dusk, noon, rain = suite.clients
    every = join([noon.train, noon.val, noon.test])
    tests = {d: t for d, t in suite.tests.items() if d != 'noon'}
    clients = [dawn, dusk, dataclasses.replace(rain, id=3)]
    return dataclasses.replace(suite, clients=clients, tests=tests, unseen=dict(noon=every))

def stage(before, how, suite, who):
    "By `fit`: the clients that have come so far, of whom these train, from where the earlier ones stood."
    fed = how.federation(dataclasses.replace(suite, clients=suite.clients[:3 if before or 'd' in who else 2]))
    if before:
        old = before.state
        fed.state = dataclasses.replace(old, own=fed.own | old.own, states=fed.states | old.states)
    fed.participants = lambda: [c for c in fed.clients if 'ab d'[c.id] in who]
    fed.fit(progress=False)
    return fed

def test_a_study_of_four_rounds(place, tmp_path, capsys, unsaved):
    """Three sites (one lacks a class, one has a broken file, one only evaluates); a fourth joins at round 3,
    the first leaves at round 4: models, memories, rounds, scores and predictions are those of `fit`."""
    suite = three_and_a_fourth(place, tmp_path)
    def how(rounds): return replace(job('SCAFFOLD', rounds=rounds, eval_every=1), classes=suite.classes)
    def at(names): return [tmp_path/k for k in names]
    def go(rounds, who, **more):
        with pytest.warns(UserWarning, match='unreadable') if 'a' in who else nullcontext():
            hub = rehearsal(how(rounds), at(who), tmp_path/'out', bad='skip', evaluate=at('c'), **more)
        hub.fit(progress=False)
        return hub
    fed = None
    for rounds, who, more in (2, 'ab', {}), (3, 'abd', {}), (4, 'bd', dict(without='a')):
        if more:
            with pytest.raises(ValueError, match='a took part so far and is not here'): go(rounds, who)
        hub, fed = go(rounds, who, **more), stage(fed, how(rounds), suite, who)
        assert hub.history.rounds == fed.history.rounds and same_nest(hub.memory, fed.memory)
        for n in fed.server: assert torch.equal(hub.server[n], fed.server[n]), n
        here = {'noon', *(c.domain for c in hub.clients)}
        now, then = ([r for r in f.history.rows if r['round'] == rounds and r['domain'] in here]
                     for f in (hub, fed))
        assert now == then and {r['domain'] for r in now} == here
        noon = suite.unseen['noon']
        right = [(y, p) for y, p in zip(noon.y.tolist(), fed.predict(noon.x).argmax(1).tolist())]
        assert hub.history.measures['sites']['c']['confusion'] == [[right.count((y, p)) for p in (0, 1)]
                                                                   for y in (0, 1)]
    finish(hub, tmp_path/'out')
    said = capsys.readouterr().out
    for line in ('0 +a +dawn +11 +1–3 +left', '1 +b +dusk +.* +1–4', '2 +c .*only evaluates', '3 +d .* 3–4'):
        assert re.search(line, said), line
    report = (tmp_path/'out'/'report.html').read_text()
    assert all(s in report for s in ('Who took part', 'sites that only evaluate', 'c: images of a class'))
    assert 'AUROC' in said
    assert [f['name'] for f in History.load(tmp_path/'out'/'history.json').setting['sites']] == [*'abcd']
    hub = go(5, 'abd')
    assert hub.history.rounds[-1]['participants'] == [0, 1, 3] and hub.sites.names == [*'abcd']

def test_what_a_study_refuses(place, tmp_path):
    out = tmp_path/'out'
    rehearsal(job(rounds=2), sites(place)[:2], out).fit(progress=False)
    draw(tmp_path/'a', 'noon')
    refused = [
        (dict(how=job(rounds=1)), '2 rounds are done: say --rounds 3'),
        (dict(how=job(rounds=3, lr=.1)), 'is of another run: its lr is 0.05'),
        (dict(who=[tmp_path/'a', place/'b']), 'a has another domain than when it joined'),
        (dict(without=['x']), "no member 'x'"),
        (dict(begun=place/'a'/'dawn'/'dark'/'0.png'), 'holds no model')]
    for change, why in refused:
        c = dict(how=job(rounds=3), who=sites(place)) | change
        with pytest.raises(ValueError, match=why): rehearsal(c.pop('how'), c.pop('who'), out, **c)

def test_a_run_begins_with_a_model(place, tmp_path, unsaved):
    "That of another run; later with no other."
    first = rehearsal(job(rounds=1), sites(place), tmp_path/'first')
    first.fit(progress=False)
    finish(first, tmp_path/'first')
    model = tmp_path/'first'/'model.safetensors'
    hub = rehearsal(job(rounds=1), sites(place), tmp_path/'out', begun=model)
    fed = job(rounds=1).federation(load_folder(place/'all', 16))
    assert same_nest(hub.server, first.server) and not same_nest(hub.server, fed.server)
    fed.server = {n: v.clone() for n, v in first.server.items()}
    hub.fit(progress=False)
    fed.fit(progress=False)
    assert same_nest(hub.server, fed.server) and hub.history.rounds == fed.history.rounds
    rehearsal(job(rounds=1), sites(place), tmp_path/'out', begun=model)
    shutil.copy(tmp_path/'out'/'state.safetensors', tmp_path/'other.safetensors')
    with pytest.raises(ValueError, match='did not begin with'):
        rehearsal(job(rounds=1), sites(place), tmp_path/'out', begun=tmp_path/'other.safetensors')
    with pytest.raises(ValueError, match='holds another model'):
        rehearsal(job('F2DC', rounds=1), sites(place), tmp_path/'f2dc', begun=model)

def test_a_study_over_a_network(place, tmp_path, no_flower, capsys, unsaved):
    "Nodes are waited for by name: too few, one that left while its node runs, a newcomer."
    def run(grid, nodes, rounds, **more):
        how = job(rounds=rounds)
        said = dict(job=json.dumps(asdict(how)), out=str(tmp_path/'out'), nodes=nodes, patience=60.) | more
        said = tomllib.loads(flower.TOML)['tool']['flwr']['app']['config'] | said
        flower.server_app().run(grid, SimpleNamespace(run_config=said))
        return capsys.readouterr().err
    def grid():
        g = Grid(place, tmp_path)
        g.sent = 99
        return g
    run(grid(), 2, 1, union=True)
    assert 'a, b are members, and --nodes is 1: say more, or --without NAME' in run(grid(), 1, 2)
    run(grid(), 1, 2, without='a')
    third = grid()
    third.nodes[14], third.there[14] = Node(place/'c', tmp_path/'c', tell=None), 14
    run(third, 2, 3, without='a')
    rounds = History.load(tmp_path/'out'/'history.json').rounds
    assert [r['participants'] for r in rounds] == [[0, 1], [1], [1, 2]]

# ---- ledgers, and what was agreed

def test_ledgers_of_sites_and_server_agree(place, tmp_path, capsys):
    "Every letter stands in both, with its bytes and digests; what a site refused, in its own."
    what = job('SCAFFOLD', rounds=2, eval_every=1)
    hub = rehearsal(what, sites(place), tmp_path)
    passed, post = [], hub.sites.post
    def listen(letters):
        answers = post(letters)
        passed.extend((n, letters[n], answers[n]) for n in letters)
        return answers
    hub.sites.post = listen
    hub.fit(progress=False)
    both = 'job', 'kind', 'round', 'came', 'order', 'left', 'answer'
    def rows(book, site=None): return [{k: r[k] for k in both} for r in book.rows() if r.get('site') == site]
    def mark(data): return hashlib.blake2b(data, digest_size=32).hexdigest()
    server, found = Book(tmp_path), []
    for s in 'abc':
        own = rows(Book(tmp_path/'sites'/s))
        assert own == rows(server, s) and [r['kind'] for r in own] == ['facts', *['train', 'score']*2]
        found += own
    for _, order, answer in passed:
        line, = (r for r in found if r['answer'] == mark(answer)
                 and r['order'] == mark(order))
        assert (line['came'], line['left']) == (len(order), len(answer))
    assert len(passed) == 12 and sum(r['left'] for r in found) > hub.history.rounds[0]['up']
    flower.node_command(show_ledger=str(tmp_path/'sites'/'a'))
    assert 'SCAFFOLD' in capsys.readouterr().out

def test_a_line_that_was_changed_or_cut_out_is_found(tmp_path):
    "A kill in the middle of a line is not: the next one begins anew."
    book = Book(tmp_path)
    for k in range(4): book.write(kind='train', round=k)
    assert book.file.stat().st_mode & 0o077 == 0
    whole = book.file.read_bytes()
    lines = whole.splitlines(keepends=True)
    for spoilt in (whole.replace(b'"round": 1', b'"round": 7'), b''.join(lines[:1]+lines[2:])):
        book.file.write_bytes(spoilt)
        with pytest.raises(ValueError, match='was changed, or a line before'): book.rows()
    book.file.write_bytes(whole+b'{"kind": "tr')
    book.write(kind='score')
    assert [r['kind'] for r in book.rows()] == ['train']*4+['score']

HOSTILE = dict(
    epochs=(job(local_steps=None, local_epochs=10_000), {}, 'a allows 100 epochs, and the order'),
    path=(Job('FedAvg', 'torchvision("resnet18", weights="../b/w.safetensors")', 32), {}, 'does not open'),
    peers=(job('DFL'), {}, 'gives other sites what a sends .* say --peers'),
    method=(job('FedProx + AdaBN'), dict(methods='FedAvg, FedProx'), 'takes part in FedAvg, FedProx, and'))

@pytest.mark.parametrize('asked', HOSTILE)
def test_a_hostile_order_is_refused_at_the_node_and_written_down(place, tmp_path, asked):
    "At the first order and at a later one, by a node that begins anew for each."
    what, more, why = HOSTILE[asked]
    (tmp_path/'b').mkdir()
    for kind in 'facts', 'train', 'score':
        limits = limits_of(most_steps=10**6, **more)
        node = Node(place/'a', tmp_path/'m', tell=lambda text: None, limits=limits)
        with pytest.raises(ValueError, match=why): node(to_bytes(order_of(what, kind)))
    rows = Book(tmp_path/'m').rows()
    assert [r['kind'] for r in rows] == ['facts', 'train', 'score'] and all(r['left'] == 0 for r in rows)
    assert all(re.search(why, r['refused']) for r in rows)

def test_consent_is_asked_at_every_order_and_what_was_found_is_remembered(place, tmp_path, monkeypatch):
    "The table is made once; a node that was started without --peers later refuses."
    made, told, real = [], [], node.surface_of
    def counted(*what):
        made.append(what)
        return real(*what)
    monkeypatch.setattr(node, 'surface_of', counted)
    def at(peers): return Node(place/'a', tmp_path, peers=peers, tell=told.append)
    facts = to_bytes(order_of(job('FedCCRL'), 'facts'))
    at(True)(facts)
    at(True)(facts)
    with pytest.raises(ValueError, match='say --peers'): at(False)(facts)
    assert len(made) == len(told) == 1
    allowed = [r['allowed'].endswith(', peers') for r in Book(tmp_path).rows()]
    assert allowed == [True, True, False]

def test_a_run_is_forgotten_at_a_site(place, tmp_path, capsys):
    what = replace(job('FedBN', rounds=1), run='ab12')
    rehearsal(what, sites(place), tmp_path).fit(progress=False)
    at = tmp_path/'sites'/'a'
    assert (at/'ab12'/'1.safetensors').exists()
    with pytest.raises(ValueError, match="no run in its ledger 'x'"):
        flower.node_command(memory=at, forget='x')
    flower.node_command(memory=at, forget='ab12')
    assert not (at/'ab12').exists() and Book(at).rows()[-1]['kind'] == 'forgotten'
    assert 'is gone' in capsys.readouterr().out

# ---- kills

class Killed(BaseException): ...

def test_killed_anywhere_it_ends_in_the_same_bits(place, tmp_path):
    "After training and before the answer; between two rounds; then by other nodes and another server."
    fed, asked = fitted(place, job('SCAFFOLD + FedBN')), []
    def begin(): return rehearsal(job('SCAFFOLD + FedBN'), sites(place), tmp_path)
    def post_and_die(letters):
        answers = post(letters)
        asked.append(len(letters))
        if len(asked) == 2: raise Killed
        return answers
    hub = begin()
    post, hub.sites.post = hub.sites.post, post_and_die
    with pytest.raises(Killed): hub.fit()
    hub = begin()
    assert hub.round_no == 1 and stays(tmp_path, 'a').joinpath('2.safetensors').exists()
    hub.fit(1)
    assert begin().fit().rounds == fed.history.rounds

def test_a_lost_memory_is_said_and_made_anew_on_request_only(place, tmp_path, capsys):
    hub = rehearsal(job('FedBN'), sites(place), tmp_path)
    hub.fit(1)
    stays(tmp_path, 'b').joinpath('1.safetensors').unlink()
    with pytest.raises(ValueError, match='b lost its memory: what it kept after round 1'): hub.fit()
    assert hub.round_no == 1
    rehearsal(job('FedBN'), sites(place), tmp_path, lost='fresh').fit()
    assert capsys.readouterr().err.count('began anew') == 1
    assert load_nest(stays(tmp_path, 'b')/'3.safetensors')['kept']

# ---- who stays away

def without(post, *away):
    "A post to which some do not answer, in the rounds that follow round 1."
    def some(letters):
        at = from_bytes(next(iter(letters.values())))
        gone = away if at['round'] == 1 and at['kind'] == 'train' else ()
        return post({n: b for n, b in letters.items() if n not in gone})
    return some

def test_a_round_with_fewer_is_one_in_which_the_others_sat_out(place, tmp_path, monkeypatch):
    "Server, memories and History, of a method that remembers on both sides and keeps parts."
    what = job('SCAFFOLD + FedBN')
    fed, hub = what.federation(load_folder(place/'all', 16)), rehearsal(what, sites(place), tmp_path)
    everybody = type(fed).participants
    def drawn(fed): return [c for c in everybody(fed) if (fed.round_no, c.id) != (1, 1)]
    with monkeypatch.context() as m:
        m.setattr(type(fed), 'participants', drawn)
        fed.fit(progress=False)
    hub.sites.least, hub.sites.post = 2, without(hub.sites.post, 'b')
    hub.fit(progress=False)
    assert [r['participants'] for r in hub.history.rounds] == [[0, 1, 2], [0, 2], [0, 1, 2]]
    assert (hub.history.rounds, hub.history.rows) == (fed.history.rounds, own_rows(fed))
    assert same_nest(hub.memory, fed.memory)

def test_too_few_stop_at_the_last_good_state(place, tmp_path):
    hub = rehearsal(job(), sites(place), tmp_path)
    hub.sites.least, hub.sites.post = 2, without(hub.sites.post, 'a', 'c')
    with pytest.raises(ConnectionError, match='a, c did not answer.*--least'): hub.fit()
    assert hub.round_no == 1 == load_nest(hub.out)['round_no']

def test_scores_of_those_who_are_there(place, tmp_path, capsys, unsaved):
    "Their domains are shown, and no mean."
    hub = rehearsal(job(rounds=1), sites(place), tmp_path)
    post, hub.sites.least = hub.sites.post, 1
    hub.sites.post = lambda letters: {n: b for n, b in post(letters).items() if n != 'b'}
    hub.fit()
    assert {r['domain'] for r in hub.history.rows if r['view'] == 'global'} == {'dawn', 'noon'}
    dusk = 'no score of dusk in round 1'
    assert hub.history.gaps() == [dusk] and math.isnan(hub.history.summary('global')['AVG'])
    finish(hub, tmp_path)
    assert dusk in capsys.readouterr().out and f'seed 0 ({dusk})' in (tmp_path/'table.tex').read_text()

# ---- answers that nobody asked for

def with_entry(a, value): return a | dict(model=a['model'] | {'head.bias': value})
WRONG = dict(
    nan=(lambda a: with_entry(a, a['model']['head.bias']*float('nan')), 'sent NaN'),
    shape=(lambda a: with_entry(a, a['model']['head.bias'][:1]), r'head.bias is \(1,\)'),
    kind=(lambda a: with_entry(a, a['model']['head.bias'].double()), 'float64'),
    missing=(lambda a: a | dict(model={}), 'is missing'),
    further=(lambda a: a | dict(model=a['model'] | dict(x=torch.ones(1))), 'the model has no x'),
    another=(lambda a: a | dict(client=2), 'it is of client 2'),
    late=(lambda a: a | dict(round=1), 'answered late: round 1, not 2'),
    loss=(lambda a: a | dict(terms=dict(task=float('inf'))), 'not a finite number'),
    nothing=(lambda a: {}, 'it has no client'))

@pytest.fixture(scope='module')
def hub(place, tmp_path_factory):
    "After a round; a refusal leaves it as it was."
    hub = rehearsal(job(), sites(place), tmp_path_factory.mktemp('hub'))
    hub.fit(1)
    return hub

@pytest.fixture
def post(hub, monkeypatch):
    monkeypatch.setattr(hub.sites, 'post', hub.sites.post)
    return hub.sites.post

@pytest.mark.parametrize('wrong', WRONG)
def test_a_wrong_answer_is_refused_and_costs_nothing(hub, post, wrong):
    (spoil, why), before = WRONG[wrong], hub.out.read_bytes()
    hub.sites.post = lambda letters: post(letters) | dict(b=to_bytes(spoil(from_bytes(post(letters)['b']))))
    with pytest.raises((ValueError, FloatingPointError), match=rf'(client 1 \(dusk\).*|^b ){why}'): hub.fit(1)
    assert hub.round_no == 1 and hub.out.read_bytes() == before

@pytest.mark.parametrize('torn', [b'', b'{}', b'\xff'*64, to_bytes({})[:-3]])
def test_torn_bytes_are_refused_by_name(hub, post, torn):
    hub.sites.post = lambda letters: post(letters) | dict(c=torn)
    with pytest.raises(ValueError, match='c sent no answer'): hub.fit(1)

SCORES = dict(
    more=(dict(correct=99), 'more right than there are'), other=(dict(client=0), 'of another model'),
    foreign=(dict(domain='moon'), 'of another model'), old=(dict(round=0), 'of another model'))

@pytest.mark.parametrize('wrong', SCORES)
def test_scores_that_cannot_be_are_refused(hub, post, wrong):
    change, why = SCORES[wrong]
    def lie(letters):
        answers = {n: from_bytes(b) for n, b in post(letters).items()}
        answers['b']['rows'][0] |= change
        return {n: to_bytes(a) for n, a in answers.items()}
    hub.sites.post = lie
    with pytest.raises(ValueError, match=f'b sent scores that cannot be .*{why}'): hub.score()
    assert not hub.history.rows

# ---- who may take part

def facts_of(place, tmp_path, job):
    asked = to_bytes(order_of(job, 'facts'))
    return [from_bytes(Node(s, tmp_path, tell=None)(asked)) for s in sites(place)]

@pytest.mark.parametrize('change, why', [
    (dict(name='a'), 'two sites are called a'), (dict(version='0'), 'differ in the version'),
    (dict(code='?'), 'code of the method'), (dict(classes=['x', 'y']), 'differ in the classes'),
    (dict(n=0), 'no images'), (dict(n='8'), 'says what cannot be')], ids=lambda v: '')
def test_sites_that_do_not_fit_together(place, tmp_path, change, why):
    facts = facts_of(place, tmp_path, job())
    with pytest.raises(ValueError, match=why): agreed([facts[0], facts[1] | change, facts[2]])

def test_a_server_of_another_first_model(place, tmp_path):
    facts = facts_of(place, tmp_path, job())
    with pytest.raises(ValueError, match='the server and a differ in the first model'):
        hub_of(job(seed=1), facts, None)

BAD = [dict(method='./x.py:M'), dict(model='./x.py:net'), dict(run='../x'), dict(setting=dict(stack=True)),
       dict(setting=dict(everywhere=True)), dict(setting=dict(answers=True)), dict(setting=dict(out='x')),
       dict(setting=dict(device='cpu')), dict(setting={3: 1})]

@pytest.mark.parametrize('bad', BAD, ids=str)
def test_jobs_that_a_site_refuses(bad):
    with pytest.raises(ValueError): Job(**dict(method='FedAvg') | bad)

def test_a_hub_has_no_model_of_a_client_that_keeps_parts(place, tmp_path):
    hub = rehearsal(job('FedBN'), sites(place), tmp_path)
    hub.fit(1)
    with pytest.raises(ValueError, match='FedBN leaves parts .* with the sites'): hub.model(client=0)

def test_a_hub_says_how_it_computes(place, tmp_path):
    assert rehearsal(job(), sites(place), tmp_path).plan()['why'] == 'clients are elsewhere'

# ---- the images of a site

def repainted(place, home):
    "A site, and a function that paints one of its images anew, with its old time."
    shutil.copytree(place/'a', home/'a')
    file = home/'a'/'dawn'/'dark'/'0.png'
    before = file.stat()
    def paint():
        Image.open(home/'a'/'dawn'/'bright'/'0.png').rotate(90).save(file)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    return home/'a', paint

def first_model(how, at, home):
    "What the server sends in the first round."
    return Node(at, home, tell=None).federation(how, 0).order(0)['model']

def test_images_that_changed_are_refused_by_the_site(place, tmp_path):
    "As many as before; the sentence names none, and what began with them goes on."
    at, paint = repainted(place, tmp_path)
    first = order_of(job('FedBN'), 'train', model=first_model(job('FedBN'), at, tmp_path/'x'))
    sent = from_bytes(Node(at, tmp_path/'m', tell=None)(to_bytes(first)))
    next_one = to_bytes(order_of(job('FedBN'), 'train', round=1, merged=1, model=sent['model']))
    Node(at, tmp_path/'m', tell=None)(next_one)
    paint()
    for kind in 'train', 'score':
        order = to_bytes(from_bytes(next_one) | dict(kind=kind))
        with pytest.raises(ValueError, match='^a has other images, labels or boxes') as e:
            Node(at, tmp_path/'m', tell=None)(order)
        assert 'png' not in str(e.value)
    Node(at, tmp_path/'m', tell=None)(to_bytes(first))

def test_files_that_are_as_they_were_are_not_read_again(place, tmp_path, monkeypatch):
    at, paint = repainted(place, tmp_path)
    for f in at.rglob('*.png'): os.utime(f, ns=(0, 10**18))
    read, clock = [], node.time.time_ns
    def reads(path):
        read.append(path.name)
        return content(path)
    monkeypatch.setattr(node, 'content', reads)
    monkeypatch.setattr(node.time, 'time_ns', lambda: clock()+3*10**9)
    def data(): return Node(at, tmp_path/'m', tell=None).federation(job(), 0).made_of['data']
    first = data()
    assert len(read) == 16 and data() == first and len(read) == 16
    paint()
    assert data() != first and read[16:] == ['0.png']

def asked_as_by_flower(node, how, kind='facts', **more):
    "The app of a node, given its configuration."
    said = tomllib.loads(re.sub(r' (?=\w+=)', '\n', flower.at_node(node)))
    letter = SimpleNamespace(content=flower.record_of(to_bytes(order_of(how, kind, **more))))
    before = os.umask(0o022)
    try: return flower.client_app().run(letter, SimpleNamespace(node_config=said))
    finally: os.umask(before)

def test_no_name_of_a_file_leaves_in_an_error(place, tmp_path, no_flower, capsys):
    "The site's own terminal has it; without the broken image all goes on, and its files are its owner's."
    at, _ = repainted(place, tmp_path)
    (at/'dawn'/'dark'/'Mueller_Hans_1954.png').write_bytes(b'torn')
    node = flower.node_of(at, None, 'a', tmp_path/'m')
    with pytest.raises(RuntimeError, match=f'^{UNSAID}$'): asked_as_by_flower(node, job())
    assert 'Mueller_Hans_1954.png' in capsys.readouterr().err
    node = flower.node_of(at, None, 'a', tmp_path/'m', skip_broken=True)
    model = first_model(job(), place/'a', tmp_path/'x')
    with pytest.warns(UserWarning, match='1 unr'): asked_as_by_flower(node, job(), 'train', model=model)
    made = list((tmp_path/'m').rglob('*'))
    assert made and not [p for p in made if p.stat().st_mode & 0o077]

# ---- what an order may ask

TOO_MUCH = dict(
    steps=(job(local_steps=None, local_epochs=10_000), 'allows 10,000 steps, and the order asks for 20,000'),
    threads=(job(threads=1024), 'allows 16 threads'),
    pixels=(Job('FedAvg', 'small_conv(width=4)', 2048), 'allows 1,024 pixels'),
    pad=(job(pad=17), 'a is asked to pad images of 16 pixels by 17: ask for at most 16'),
    batch=(Job('FedAvg', 'small_conv(width=4)', 900, dict(pad=900, batch_size=8)),
           'allows 50,000,000 batch pixels, and the order asks for 58,320,000: .*--most-batch-pixels'),
    width=(Job('FedAvg', 'small_conv(width=100000)', 16), 'allows 200,000,000 parameters'),
    file=(Job('FedAvg', 'torchvision("resnet18", weights="/etc/passwd")', 32), 'names the file /etc/passwd'),
    none=(Job('FedAvg', 'torchvision("resnet18", weights="./no")', 32), 'names the file ./no'))

@pytest.mark.parametrize('asked', TOO_MUCH)
def test_a_site_sets_limits_that_no_order_passes(place, tmp_path, asked):
    "It is refused before it costs: the widest of these models has 4·10¹² parameters."
    how, why = TOO_MUCH[asked]
    for kind in 'facts', 'train':
        node = Node(place/'a', tmp_path, tell=None)
        with pytest.raises(ValueError, match=why): node(to_bytes(order_of(how, kind)))

def test_an_allowed_file_is_opened_and_a_higher_limit_holds(place, tmp_path):
    (tmp_path/'w.pt').write_bytes(b'no weights')
    how = Job('FedAvg', f'torchvision("resnet18", weights="{tmp_path}/../{tmp_path.name}/w.pt")', 32)
    node = Node(place/'a', tmp_path, limits=limits_of(weights=str(tmp_path)))
    pytest.importorskip('torchvision')
    with pytest.raises(ValueError, match='holds no weights'): node(to_bytes(order_of(how, 'facts')))
    wide = Node(place/'a', tmp_path, tell=None, limits=limits_of(most_steps=20_000, most_epochs=10_000))
    wide(to_bytes(order_of(TOO_MUCH['steps'][0], 'facts')))

def test_an_order_that_takes_too_long_is_stopped(place, tmp_path):
    node = Node(place/'a', tmp_path, tell=None, limits=limits_of(most_minutes=.003, most_steps=10**6))
    with pytest.raises(TimeoutError, match='more than the 0.003 minutes'):
        model = first_model(job(), place/'a', tmp_path/'x')
        node(to_bytes(order_of(job(local_steps=100_000), 'train', model=model)))

def test_an_order_is_stopped_where_errors_are_caught():
    "Python's TimeoutError is an error of files, which are caught where an index or a cache is read."
    def stubborn():
        try: threading.Event().wait(60)
        except (OSError, Exception): threading.Event().wait(60)
    with pytest.raises(TimeoutError, match='more than the 0.002 minutes'): within(.002, stubborn)

def test_a_timer_that_is_swallowed_rings_again():
    "As Python does with whatever a `__del__` raises: here by `except BaseException`."
    def deaf():
        try: threading.Event().wait(60)
        except BaseException: threading.Event().wait(60)
    with pytest.raises(TimeoutError, match='more than the 0.002 minutes'): within(.002, deaf)

def test_an_alarm_that_comes_when_all_is_done_ends_nothing(monkeypatch):
    "Just before the timer is switched off; what heard it before hears it again."
    def late(which, seconds, *again):
        if not seconds: signal.raise_signal(signal.SIGALRM)
        return real(which, seconds, *again)
    before, real = signal.getsignal(signal.SIGALRM), signal.setitimer
    monkeypatch.setattr(signal, 'setitimer', late)
    assert within(1, lambda: 'done') == 'done'
    assert signal.getsignal(signal.SIGALRM) is before

def test_sites_whose_bits_may_differ_are_named(place, tmp_path, capsys):
    "And go on; what is asked of a machine is no part of what the images are."
    facts = facts_of(place, tmp_path, job())
    before = roster_of(agreed(facts), 16).fingerprint()
    assert capsys.readouterr().err == ''
    facts[1]['machine'] |= dict(torch='0.1')
    assert roster_of(agreed(facts), 16).fingerprint() == before
    assert re.fullmatch('torch: .* at a and 0.1 at b, so the bits .*\n', capsys.readouterr().err)

def test_parameters_are_counted_with_the_jobs_classes_and_what_the_method_adds(place, tmp_path):
    "An order with thousands of classes, or a hundred twins, would be built otherwise."
    node = Node(place/'a', tmp_path, tell=None, limits=limits_of(most_parameters=20_000))
    many = replace(job(), classes=['bright', 'dark', *map(str, range(3000))])
    for what in (many, job('Fed-ensemble(K=100)')):
        with pytest.raises(ValueError, match='a allows 20,000 parameters, and the order asks for'):
            node(to_bytes(order_of(what, 'facts')))
    for method in ('DFL', 'RFedDis', 'F2DC'): admit(job(method), 'a', node.limits)

def test_whose_own_nets_are_not_counted():
    "The page names them: they compare numbers when they build a net."
    def is_built(method):
        with torch.device('meta'):
            try: return bool(method.adapt(Job('FedAvg', 'small_conv').net(2)))
            except NotImplementedError: return False
    assert {n for n, m in METHODS.items() if not is_built(m)} == {'DFL', 'RFedDis'}

def test_a_silent_node_asks_for_consent_too(place, tmp_path):
    "What others would get needs a yes, whether or not somebody is told."
    order = to_bytes(order_of(job('DFL'), 'facts'))
    with pytest.raises(ValueError, match='say --peers'): Node(place/'a', tmp_path, tell=None)(order)

@pytest.mark.parametrize('field', ['client', 'round', 'merged'])
def test_an_order_counts_from_zero(place, tmp_path, field):
    "A number below would be kept, and a later order refused for it."
    node = Node(place/'a', tmp_path, tell=None)
    with pytest.raises(ValueError, match=f'a got no order .*{field} is -1: at least 0'):
        node(to_bytes(order_of(job(), 'facts', **{field: -1})))

def test_what_a_site_allows_reaches_the_app_of_its_node(place, tmp_path, no_flower):
    "Through Flower's configuration, where it trains, too."
    how = dict(most_steps=7, weights=str(tmp_path), device='cpu')
    node = flower.node_of(place/'a', None, 'a', tmp_path, white=4095, **how)
    with pytest.raises(RuntimeError, match='a allows 7 steps, and the order asks for 8'):
        asked_as_by_flower(node, job(local_steps=8))

# ---- what crosses the wall

def test_no_message_holds_an_image(place, tmp_path):
    "Nor a row of a channel of one, as it lies in memory; not the name of a file or a folder either."
    seen, how = [], job('F2DC', rounds=2, eval_every=1)
    hub = rehearsal(how, sites(place), tmp_path)
    post = hub.sites.post
    def listen(letters):
        answers = post(letters)
        seen.extend([*letters.values(), *answers.values()])
        return answers
    hub.sites.post = listen
    hub.fit()
    seen += [to_bytes(f) for f in facts_of(place, tmp_path, how)]
    suite = load_folder(place/'all', 16)
    images = [x for c in suite.clients for d in (c.train, c.val, c.test) for x in d.x]
    lines = {line.numpy().tobytes() for x in images for line in x.flatten(0, 1)}
    assert len(seen) == 27 and len(lines) > 2000
    for data in seen:
        assert not any(line in data for line in lines)
        assert str(place).encode() not in data and b'.png' not in data
    assert next(iter(lines)) in b''.join([*seen, next(iter(lines))])      # the search finds what is there

def test_jobs_of_any_length_share_one_dry_run():
    "It has rounds, steps and a share of sites of its own; what is trained is asked anew."
    one, longer = job('FedBN'), job('FedBN', rounds=9, participation=.5)
    assert surface_of(one, 2) is surface_of(replace(longer, run='another'), 2)
    assert surface_of(one, 2) != surface_of(job('FedAvg'), 2)

def test_the_table_of_what_leaves_counts_what_history_counts(place):
    "Bytes of a round, of a method with something beside the model."
    said = surface_of(job('SCAFFOLD'), 2)
    fed = fitted(place, job('SCAFFOLD'))
    floats = sum(v.numel()*4 for v in fed.server.values() if v.is_floating_point())
    up = sum(size for way, what, size in said.rows if way == 'leaves' and not what.startswith('model'))
    assert 3*(up+floats) == fed.history.rounds[-1]['up']

# ---- the post of a network

class Grid:
    "Two nodes: `b` dies over the first letter after the facts, and comes back with another number."
    def __init__(self, place, home):
        self.nodes = {n: Node(place/s, home/s, tell=None) for n, s in ((11, 'a'), (12, 'b'))}
        self.there, self.sent = {11: 11, 12: 12}, 0
    keys = {}
    def get_nodes(self): return [SimpleNamespace(node_id=i, name=self.keys.get(i, '')) for i in self.there]
    def send_and_receive(self, messages, timeout):
        "Each answer comes twice, and with an old one."
        old = SimpleNamespace(reply_to_message_id=object())
        for reply in [self.reply(m) for m in messages]: yield from (reply, fake(None, metadata=old), reply)
    def pull_messages(self, ids): return []
    def reply(self, m):
        self.sent += 1
        if self.sent == 4: self.there = {11: 11, 13: 12}
        i, dead = m.metadata.dst_node_id, m.metadata.dst_node_id not in self.there
        content = None if dead else flower.record_of(self.nodes[self.there[i]](flower.bytes_of(m.content)))
        return fake(content, metadata=SimpleNamespace(reply_to_message_id=m.metadata.message_id), dead=dead)

def fake(content, *more, metadata=None, dead=False, reply_to=None):
    "A message of Flower, as far as we ask it."
    metadata = metadata or SimpleNamespace(message_id=object(), dst_node_id=more[0] if more else None)
    error = SimpleNamespace(code=5, reason='gone')
    return SimpleNamespace(content=content, metadata=metadata, has_error=lambda: dead, error=error)

@pytest.fixture
def no_flower(monkeypatch):
    "Its names, without it."
    array = lambda kind, shape, stype, data: SimpleNamespace(data=data)
    names = SimpleNamespace(Message=fake, RecordDict=dict, ArrayRecord=dict, Array=array)
    monkeypatch.setattr(flower, 'flower', lambda part: names)
    def app():
        made = SimpleNamespace()
        made.main = made.query = lambda: lambda f: setattr(made, 'run', f)
        return made
    names.ServerApp = names.ClientApp = app
    monkeypatch.setattr(flower.time, 'sleep', lambda seconds: None)

def test_a_node_that_died_is_asked_again(place, tmp_path, no_flower):
    how, grid = job('SCAFFOLD'), Grid(place, tmp_path)
    post = flower.Post(grid, how, patience=60)
    hub = hub_of(how, post.gather(2), post, tmp_path)
    hub.fit(1)
    assert post.ids == dict(a=11, b=13) and grid.sent == 6
    assert hub.history.rounds[0]['participants'] == [0, 1]

def test_a_node_that_came_back_while_its_old_number_is_listed(place, tmp_path, no_flower):
    grid = Grid(place, tmp_path)
    grid.get_nodes = lambda: [SimpleNamespace(node_id=i, name='') for i in sorted({12, *grid.there})]
    post = flower.Post(grid, job(), patience=60)
    hub_of(job(), post.gather(2), post).fit(1)
    assert post.ids == dict(a=11, b=13)

def test_two_nodes_of_one_name(place, tmp_path, no_flower):
    grid = Grid(place, tmp_path)
    grid.nodes[12] = Node(place/'b', tmp_path/'b', 'a', tell=None)
    with pytest.raises(ValueError, match='two sites are called a: say --name'):
        flower.Post(grid, job(), 60).gather(2)

@pytest.mark.parametrize('other, whose', [({12: 'c'}, 'c'), ({}, 'nobody')], ids=['c', 'nobody'])
def test_a_name_is_believed_with_its_key_only(place, tmp_path, no_flower, other, whose):
    grid = Grid(place, tmp_path)
    grid.keys = {11: 'a'} | other
    post = flower.Post(grid, job(), patience=60)
    with pytest.raises(ValueError, match=f'is b and has the key of {whose}'): post.gather(2)

def test_more_nodes_than_were_asked_for(place, tmp_path, no_flower):
    with pytest.raises(ValueError, match='--nodes is 1, and there are a, b'):
        flower.Post(Grid(place, tmp_path), job(), 60).gather(1)

def test_who_stays_away_stops_the_run_unless_fewer_may_do(place, tmp_path, no_flower):
    grid = Grid(place, tmp_path)
    grid.sent = 9                     # it does not come back
    post = flower.Post(grid, job(), patience=-1)
    hub = hub_of(job(), post.gather(2), post)
    grid.there = {11: 11}
    with pytest.raises(ConnectionError, match='b did not answer: start the node'): hub.fit(1)
    assert hub.round_no == 0
    hub.sites.least = 1
    hub.fit()
    assert [r['participants'] for r in hub.history.rounds] == [[0]]*3 and post.away == {'b'}

class Sick(Grid):
    "`b` answers the first letter after the facts with an error, or not while it is waited for."
    reason = "<class 'RuntimeError'>:<'b: no space is left'>"
    def __init__(self, place, home, slow=False):
        super().__init__(place, home)
        self.slow, self.waits, self.open = slow, [], []
    def send_and_receive(self, messages, timeout):
        self.waits.append(timeout)
        for m in messages:
            if self.sent != 3 or m.metadata.dst_node_id != 12: yield self.reply(m)
            else: yield from self.late(m)
    def late(self, m):
        self.sent += 1
        if self.slow: return self.open.append(m.metadata.message_id)
        failed = fake(None, metadata=SimpleNamespace(reply_to_message_id=m.metadata.message_id), dead=True)
        failed.error = SimpleNamespace(code=2, reason=self.reason)
        yield failed
    def pull_messages(self, ids): return [i for i in ids if i not in self.open]

def test_a_sick_site_stops_the_run_with_its_sentence_or_is_away(place, tmp_path, no_flower, capsys):
    for least in 0, 1:
        grid = Sick(place, tmp_path/str(least))
        post = flower.Post(grid, job(), 60, least)
        hub = hub_of(job(), post.gather(2), post, least=least)
        if least: hub.fit()
        else:
            with pytest.raises(RuntimeError, match='^b cannot go on: b: no space is left$'): hub.fit()
    assert 'b cannot go on: b: no space is left' in capsys.readouterr().err
    assert [r['participants'] for r in hub.history.rounds] == [[0], [0, 1], [0, 1]]

def test_a_slow_site_is_waited_for_until_patience_ends_and_not_asked_twice(place, tmp_path, no_flower):
    grid = Sick(place, tmp_path, slow=True)
    post = flower.Post(grid, job(), 60, 1)
    hub = hub_of(job(), post.gather(2), post, least=1)
    post.patience = -1
    hub.fit(2)
    assert set(grid.waits[2:]) == {1.} and post.busy == {12: grid.open[0]}
    grid.open = []
    hub.fit()
    assert [r['participants'] for r in hub.history.rounds] == [[0], [0], [0, 1]] and not post.busy

def test_fewer_may_do_after_a_restart_too(place, tmp_path, no_flower, capsys):
    "Who stayed away at first is taken in when it comes."
    known = json.loads(json.dumps(flower.Post(Grid(place, tmp_path), job(), 60).gather(2)))
    grid = Grid(place, tmp_path)
    grid.sent, grid.there = 9, {11: 11}
    post = flower.Post(grid, job(), -1, least=1)
    hub = hub_of(job(), post.gather(2, known), post, least=1)
    hub.fit(1)
    assert post.away == {'b'} and 'b did not come back: on without' in capsys.readouterr().err
    grid.there = {11: 11, 13: 12}
    hub.fit()
    assert [r['participants'] for r in hub.history.rounds] == [[0], [0, 1], [0, 1]]

@pytest.mark.usefixtures('unsaved')
def test_a_run_at_the_server_goes_on_without_one_and_a_second_is_refused(place, tmp_path, no_flower, capsys):
    "What the sites said of themselves lies beside the checkpoint; a lock holds while its program lives."
    how = dict(job=json.dumps(asdict(job(rounds=2))), out=str(tmp_path/'out'), nodes=2, patience=-1., least=1)
    def run(grid, **more):
        said = tomllib.loads(flower.TOML)['tool']['flwr']['app']['config'] | how | dict(at_once=1) | more
        flower.server_app().run(grid, SimpleNamespace(run_config=said))
    with flower.alone(tmp_path/'out'):
        run(None)
        assert re.fullmatch('fedskew: another run works in .*out: .*\n', capsys.readouterr().err)
        for call in (lambda: flower.submit(job(), 2, tmp_path/'out', 'nowhere:1'),
                     lambda: run_here(job(), sites(place), tmp_path/'out', False, '')):
            with pytest.raises(ValueError, match='another run works in .*out: await its end'): call()
        assert not (tmp_path/'out'/'ledger.jsonl').exists() and not (tmp_path/'out'/'sites').exists()
    (tmp_path/'out'/'.lock').write_text('of a program that was killed')
    run(Grid(place, tmp_path), patience=60.)
    grid = Grid(place, tmp_path)
    grid.sent, grid.there = 9, {11: 11}
    run(grid)
    assert 'b did not come back: on without' in capsys.readouterr().err

def test_what_is_submitted_and_that_a_run_which_ended_early_is_no_success(tmp_path, monkeypatch):
    "Flower is asked for nothing here: what it would read lies beside the app."
    how, read, done = job(rounds=2), [], iter((1, 2))
    def starts(app, server, ca, **env):
        read.append(tomllib.loads((app.parent/'run.toml').read_text()))
        return '7'
    def follows(run, out, **env): (out/'state.safetensors').write_bytes(to_bytes(dict(round_no=next(done))))
    for name, does in dict(reach=lambda at: None, started=starts, follow=follows).items():
        monkeypatch.setattr(flower, name, does)
    with pytest.raises(ConnectionError, match='^1 of 2 rounds are done and kept in .*the same call goes on'):
        flower.submit(how, 3, tmp_path/'out', 'here:1', patience=5)
    assert flower.submit(how, 3, tmp_path/'out', 'here:1', patience=5) is None
    first, again = ({**said, 'job': json.loads(said['job'])} for said in read)
    assert again == first and first['job'].pop('run')      # one folder is one run
    assert first['job'].items() <= asdict(how).items()
    assert first == dict(job=first['job'], nodes=3, out=str(tmp_path/'out'), patience=5)

def test_a_node_shows_its_key_to_a_known_server_only():
    known = ['--root-certificates', 'ca.crt']
    assert flower.shown(None, None) == ['--insecure'] and flower.shown('ca.crt', None) == known
    assert flower.shown('ca.crt', 'a') == [*known, '--auth-supernode-private-key', 'a']
    with pytest.raises(ValueError, match='say --ca ca.crt, too'): flower.shown(None, 'a')

class Late(BaseHTTPRequestHandler):
    "A server whose clock is behind."
    def date_time_string(self): return formatdate(time.time()-20, usegmt=True)
    def do_HEAD(self): self.send_error(404)
    def log_message(self, *_): ...

def test_who_is_not_let_in_hears_how_far_its_clock_is(monkeypatch, tmp_path):
    monkeypatch.setattr(flower, 'run_flower', lambda *_, **__: 1)
    monkeypatch.setattr(flower.time, 'sleep', lambda seconds: None)
    with HTTPServer(('127.0.0.1', 0), Late) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        at = f'127.0.0.1:{server.server_port}'
        with pytest.raises(ConnectionError, match="right: it is (19|20|21) seconds ahead of the server's[?]"):
            flower.run_node(0, at, None, Node(tmp_path, tmp_path, 'x'))
        server.shutdown()
    assert flower.right_clock(at, None) == 'is the clock here right'

def test_a_path_that_flower_cannot_carry(place, tmp_path):
    draw(tmp_path/'a "new" one', 'dawn')
    node = flower.node_of(tmp_path/'a "new" one', name='a')
    with pytest.raises(ValueError, match='--data .* holds a ", which Flower'): flower.at_node(node)

def test_certificates_and_keys(tmp_path, capsys):
    "Made once; a further site gets a key and leaves what is there."
    x509 = pytest.importorskip('cryptography.x509')
    at = tmp_path/'certs'
    keys.certs_command(at, ['server.example'], ['east'])
    before = {p: p.read_bytes() for p in at.rglob('*') if p.is_file()}
    keys.certs_command(at, node=['east', 'west'])
    assert {p: p.read_bytes() for p in before} == before and 'west goes to west' in capsys.readouterr().out
    ca, server = (x509.load_pem_x509_certificate((at/f'{n}.crt').read_bytes()) for n in ('ca', 'server'))
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ['server.example', 'localhost']
    private = [at/n for n in ('server.key', 'ca.key', 'nodes/east', 'nodes/west')]
    assert all(p.stat().st_mode & 0o077 == 0 for p in private)
    with pytest.raises(ValueError, match='say --renew'): keys.certs_command(at, ['x.example'])
    with pytest.raises(ValueError, match='no name of a site'): keys.certs_command(at, node=['../x'])

class Days(datetime.datetime):
    "A clock that is ahead by so many days."
    ahead = 0
    @classmethod
    def now(cls, zone=None): return datetime.datetime.now(zone)+datetime.timedelta(days=cls.ahead)

def test_a_certificate_is_renewed_by_the_same_authority(tmp_path, monkeypatch, capsys):
    "Its end is said a month before; the old names stay, and no node needs another ca.crt."
    x509 = pytest.importorskip('cryptography.x509')
    at = tmp_path/'certs'
    keys.certs_command(at, ['server.example'], ['east'])
    before = {p.name: p.read_bytes() for p in at.rglob('*') if p.is_file()}
    monkeypatch.setattr(keys, 'datetime', Days)
    for days, said in (699, False), (701, True):
        Days.ahead = days
        assert keys.keys_for('0.0.0.0', at) == [at/'nodes'/'east.pub']
        assert ('--renew, and serve anew' in capsys.readouterr().err) == said
    keys.certs_command(at, ['second.example'], renew=True)
    keys.keys_for('0.0.0.0', at)
    assert 'holds for' not in capsys.readouterr().err
    after = {p.name: p.read_bytes() for p in at.rglob('*') if p.is_file()}
    assert {n for n in after if after[n] != before[n]} == {'server.crt', 'server.key'}
    ca, server = (x509.load_pem_x509_certificate(after[f'{n}.crt']) for n in ('ca', 'server'))
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ['server.example', 'localhost', 'second.example']
    (at/'ca.key').unlink()
    with pytest.raises(ValueError, match='ca.key.* is not here'): keys.certs_command(at, renew=True)

DOOR = [('127.0.0.1', '/v1/control/start-run', 200), ('192.0.2.7', '/v1/fleet/pull-messages', 200),
        ('192.0.2.7', '/v1/control/start-run', 403), ('192.0.2.7', '/v1/runtime/x', 403),
        ('::1', '/docs', 200),
        ('::ffff:192.0.2.7', '/v1/fleet/../control/start-run', 403), ('', '/v1/control/start-run', 403)]

@pytest.mark.parametrize('client, path, code', DOOR)
def test_from_elsewhere_the_server_hears_nodes_only(client, path, code):
    heard = []
    async def app(scope, receive, send): await send(dict(type='http.response.start', status=200))
    async def send(message): heard.append(message)
    scope = dict(type='http', path=path, client=(client, 1) if client else None)
    asyncio.run(keys.behind_door(app)(scope, None, send))
    assert heard[0]['status'] == code

def test_a_key_that_is_taken_away_opens_nothing_while_the_server_runs(tmp_path, monkeypatch):
    "What is shown is what Flower's nodes show; a file that is no key locks nobody out."
    now = 0
    monkeypatch.setattr(keys.time, 'monotonic', lambda: now)
    s = pytest.importorskip('cryptography.hazmat.primitives.serialization')
    keys.certs_command(tmp_path, ['server.example'], ['east', 'west'])
    (tmp_path/'nodes'/'torn.pub').write_text('no key')
    (tmp_path/'nodes'/'lost.pub').symlink_to('nowhere')
    async def app(scope, receive, send): await send(dict(type='http.response.start', status=200))
    door = keys.behind_door(app, tmp_path/'nodes')
    def shown(name):
        public = s.load_ssh_private_key((tmp_path/'nodes'/name).read_bytes(), None).public_key()
        return base64.b64encode(public.public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo))
    def status(*headers, path='/v1/fleet/pull-messages', client='10.1.2.3'):
        heard = []
        async def send(message): heard.append(message)
        scope = dict(type='http', path=path, client=(client, 1), headers=headers)
        asyncio.run(door(scope, None, send))
        return heard[0]['status']
    east, west = ((b'flwr-public-key', shown(n)) for n in ('east', 'west'))
    assert [status(east), status(west), status(), status((b'flwr-public-key', b'x'))] == [200, 200, 401, 401]
    (tmp_path/'nodes'/'west.pub').unlink()
    assert [status(east), status(west), status(west, client='127.0.0.1')] == [200, 401, 401]
    assert [status(west, east), status(east, west)] == [401, 401]      # another's key is known to all
    assert status(client='127.0.0.1', path='/v1/control/x') == 200 and status(east, path='/docs') == 403
    keys.write_pair(tmp_path, 'other')
    other = b'flwr-public-key', shown('../other')
    shutil.copyfile(tmp_path/'other.pub', tmp_path/'nodes'/'east.pub')      # the folder's date stays
    now = 1
    assert [status(other), status(east)] == [200, 401]

def test_a_key_that_is_added_is_let_in_while_the_server_runs(tmp_path, monkeypatch, capsys):
    "A moment's trouble is tried again; one that went and comes back is known; another of its name is new."
    admitted, trouble = [], [True]
    def admit(new, *_):
        if new and trouble.pop(): raise ConnectionError('not now')
        admitted.extend(k.read_text() for k in new)
    monkeypatch.setattr(keys, 'admit', admit)
    (tmp_path/'nodes').mkdir()
    east, west = (tmp_path/'nodes'/f'{n}.pub' for n in ('east', 'west'))
    for k in (east, west): k.write_text(k.stem)
    known = {b'east': 'east'}
    monkeypatch.setattr(keys.time, 'sleep', lambda seconds: None)
    def look(): return keys.let_in(known, tmp_path, 'x')
    look()
    assert 'not now' in capsys.readouterr().err and not admitted
    trouble[:] = [False]
    look()
    west.unlink()
    look()
    look()
    assert capsys.readouterr().err.count('west is locked out') == 1
    west.write_text('west')
    look()
    assert admitted == ['west']
    west.write_text('another')
    trouble[:] = [False]
    look()
    assert admitted == ['west', 'another'] and [*known.values()] == ['east', '', 'west']
    east.unlink()
    east.symlink_to('nowhere')
    look()
    assert re.search('east.pub cannot be read.*east is locked out', capsys.readouterr().err, re.S)

def test_nothing_imports_an_extra_of_deployment():
    "Of the whole package: Flower, NVFlare, Opacus are asked for by what needs them."
    text = ''.join(p.read_text(encoding='utf-8') for p in (ROOT/'fedskew_nb').rglob('*.py'))
    assert not re.findall(r'^ *(?:from|import) (?:flwr|nvflare|opacus|dp_accounting)', text, re.M)

# ---- what one site hands to another

def test_rows_that_chance_could_make_tell_nothing():
    "Four numbers that differ are known again; a shorter row, and one with repeats, could be anybody's."
    four, short, repeats = (torch.tensor([row]) for row in ([1., 2, 3, 4], [1., 2, 3], [1., 1, 2, 3]))
    assert byte_rows(four) == [four.numpy().tobytes()]
    assert byte_rows([short, dict(a=repeats), torch.arange(9), 'text']) == []

SINGLE = dict(FedDG=['amplitudes'], FedCCRL=['styles'], DFL=[], MCGDM=[], FedProto=[], SCAFFOLD=[])

@pytest.mark.parametrize('name', SINGLE)
def test_values_of_single_images_are_named(name):
    "Their own words for it: a row for each image that was drawn; the others send what is learnt."
    said = surface_of(job(name), 2)
    assert said.single == SINGLE[name] and ('values of single images' in f'{said}') == bool(SINGLE[name])

@dataclasses.dataclass
class Sends(Mechanism):
    "A row for each image, for each class, or one of all; of pixels or of what the model makes of them."
    what:str='image'
    def finish(self, c):
        x, y = c.data.train.x.float().flatten(1)[:, :8], c.data.train.y
        if self.what == 'learnt': x = c.net(c.images(c.data.train.x)).feat.detach().flatten(1)
        if self.what == 'class': x = torch.stack([x[y == k].mean(0) for k in y.unique()])
        return dict(rows=x.mean(0, keepdim=True) if self.what == 'mean' else x)

@pytest.mark.parametrize('what, names', [('image', ['rows']), ('class', []), ('mean', []), ('learnt', [])])
@pytest.mark.parametrize('n_classes', [2, 6])
def test_a_row_of_one_image_is_told_from_a_mean(monkeypatch, what, names, n_classes):
    "Classes of one image would be single images; in the dry run each has two, one in either half."
    monkeypatch.setitem(METHODS, 'Sends', Method('Sends', Sends(what)))
    assert surface_of(job('Sends'), n_classes).single == names

@pytest.mark.parametrize('down, named', [('theirs', ['f']), ('own', []), ('mean', [])])
def test_what_is_handed_on_is_named(down, named):
    sent = {k: torch.arange(5.)[None]+10*k for k in (0, 1)}
    first = {k: (dict(down={}), dict(extra=dict(f=sent[k])), {}) for k in sent}
    mean = dict.fromkeys(sent, sum(sent.values())/2)
    back = dict(theirs={k: sent[1-k] for k in sent}, own=sent, mean=mean)[down]
    second = {k: (dict(down=dict(g=back[k])), dict(extra={}), {}) for k in sent}
    assert handed_on([first, second]) == named

def test_what_all_have_sent_alike_is_nobodys():
    "The mean of equal rows is each of them: of a filter that moved nowhere."
    alike, apart = torch.arange(5.)[None], {k: torch.arange(5.)[None]+10*k for k in (1, 2)}
    first = {k: (dict(down={}), dict(extra=dict(f=alike, g=v)), {}) for k, v in apart.items()}
    second = {k: (dict(down=dict(f=alike, g=apart[3-k])), dict(extra={}), {}) for k in apart}
    assert handed_on([first, second]) == ['g']
