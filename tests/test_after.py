"Models after the run: kept beside a comparison, exported, asked about pictures on disk."
import json, os, re, sqlite3
from functools import lru_cache
from pathlib import Path
import numpy as np
import onnxruntime, pytest, torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torchvision.models import resnet18
from feds import cut, halved
from fedskew_nb import Federation, compare, export, kept_federation, load_suite, small_conv
from fedskew_nb.tools.after import Standalone, WRITERS, rebuilt
from fedskew_nb.tools.cli import main
from fedskew_nb.run.recipes import read_method, read_model

SUITE = halved(cut(load_suite('emoji-pacs', 'tiny'), (16, 16, 16, 16), tests=24))
X = SUITE.tests['photo'].x[:6]
SYSTEMS = ['FedAvg', 'FedBN', 'F2DC', 'FDSE', 'FedDDL', 'RFedDis', 'DFL', 'FedAvg + AdaBN', 'Fed-ensemble']

@lru_cache(None)
def trained(name, rounds=1):
    net = small_conv(SUITE.n_classes, size=SUITE.image_size, width=8, seed=0)
    fed = Federation(read_method(name), net, SUITE, rounds=rounds, local_steps=2, batch_size=8)
    fed.fit()
    return fed

@pytest.fixture(scope='module')
def exported(tmp_path_factory):
    "The model of client 1 as a file of some ending, written once."
    @lru_cache(None)
    def of(name, ending):
        return export(trained(name), tmp_path_factory.mktemp('model')/f'm{ending}', client=1)
    return of

@pytest.mark.parametrize('name', SYSTEMS)
def test_a_program_says_what_predict_says(name, exported):
    fed, program = trained(name), torch.export.load(exported(name, '.pt2')).module()
    said = program(X)
    p, u = said if isinstance(said, tuple) else (said, None)
    torch.testing.assert_close(p, fed.predict(X, client=1), atol=1e-4, rtol=0)
    assert (u is not None) == (name == 'RFedDis')
    assert len(program(X[:1])[0] if u is not None else program(X[:1])) == 1       # any number of images

@pytest.mark.parametrize('name', ['FDSE', 'RFedDis'])
def test_onnx_says_what_predict_says(name, exported):
    fed, path = trained(name), exported(name, '.onnx')
    session = onnxruntime.InferenceSession(path)
    wanted = fed.answers(X, client=1, aux=('u',) if name == 'RFedDis' else ())
    said = dict(zip([o.name for o in session.get_outputs()], session.run(None, {'images': X.numpy()})))
    np.testing.assert_allclose(said['probabilities'], wanted[''], atol=1e-4)
    if name == 'RFedDis': np.testing.assert_allclose(said['vacuity'], wanted['u'].flatten(), atol=1e-4)
    card = json.loads(path.with_suffix('.json').read_text())
    assert card == json.loads(session.get_modelmeta().custom_metadata_map['card'])
    assert card['classes'] == SUITE.classes and card['domain'] == SUITE.clients[1].domain

def test_weights_are_those_of_the_model(tmp_path):
    fed = trained('FedBN')
    export(fed, tmp_path/'m.safetensors', client=2)
    with safe_open(str(tmp_path/'m.safetensors'), 'pt') as f:
        assert json.loads(f.metadata()['card'])['client'] == 2
        for n, v in fed.model(client=2).state_dict().items(): assert torch.equal(f.get_tensor(n), v)

@pytest.mark.skipif(os.name == 'nt', reason='there are no such rights here')
@pytest.mark.parametrize('ending', WRITERS)
def test_only_its_owner_may_read_a_model(ending, exported):
    assert exported('FDSE', ending).stat().st_mode & 0o777 == 0o600

@pytest.mark.parametrize('name', SYSTEMS)
def test_weights_are_built_again_by_their_card(name, exported):
    fed = trained(name)
    model, card = rebuilt(exported(name, '.safetensors'))
    said = model(X)
    torch.testing.assert_close(said[0] if isinstance(said, tuple) else said, fed.predict(X, client=1))
    assert card['method'] == fed.method.name and card['client'] == 1

def test_weights_become_onnx(tmp_path, capsys):
    fed = trained('F2DC')
    export(fed, tmp_path/'m.safetensors')
    assert not main(['export', str(tmp_path/'m.safetensors'), str(tmp_path/'m.onnx')])
    session = onnxruntime.InferenceSession(tmp_path/'m.onnx')
    said, = session.run(None, {'images': X.numpy()})
    np.testing.assert_allclose(said, fed.predict(X), atol=1e-4)
    assert json.loads((tmp_path/'m.json').read_text())['method'] == 'F2DC'

def test_weights_that_a_net_began_from_need_not_be_here(tmp_path):
    first = tmp_path/'first.safetensors'
    save_file(resnet18(num_classes=7).state_dict(), str(first))
    text = f"torchvision('resnet18', weights='{first}', frozen='body')"
    net = read_model(text, SUITE.n_classes, SUITE.image_size)
    fed = Federation(read_method('FedAvg'), net, SUITE, rounds=1, local_steps=1, batch_size=8)
    fed.fit()
    path = export(fed, tmp_path/'m.safetensors')
    first.unlink()
    torch.testing.assert_close(rebuilt(path)[0](X), fed.predict(X))

CARDS = {'weights of another net': (dict(model='small_conv(width=4)'), 'weights of another net'),
         'a method of a file': (dict(method='FedAvg + ./mine.py:DC'), 'names a Python file'),
         'a net of a file': (dict(model='./mine.py:net'), 'names a Python file'),
         'no classes': (dict(classes=3), 'no card inside')}

@pytest.mark.parametrize('what', CARDS)
def test_which_cards_are_refused(what, tmp_path, capsys):
    (changes, why), fed, path = CARDS[what], trained('FedAvg'), tmp_path/'m.safetensors'
    export(fed, path)
    facts = json.loads((tmp_path/'m.json').read_text()) | changes
    save_file(load_file(path), str(path), metadata=dict(card=json.dumps(facts)))
    assert main(['export', str(path), str(tmp_path/'m.onnx')])
    assert why in capsys.readouterr().err
    path.write_bytes(path.read_bytes()[:200])
    assert main(['export', str(path), str(tmp_path/'m.onnx')])
    assert 'is torn or holds no weights' in capsys.readouterr().err

def test_a_card_has_the_last_score(tmp_path):
    fed = trained('FedAvg', rounds=2)
    export(fed, tmp_path/'m.safetensors')
    said = json.loads((tmp_path/'m.json').read_text())['accuracy']
    net = Standalone(fed.model(), fed.method)
    for d, t in SUITE.tests.items():
        right = 100*float((net(t.x).argmax(1) == t.y).float().mean())
        assert said[d] == pytest.approx(right, abs=.11)

def test_an_untrained_model_has_no_score(tmp_path):
    net = small_conv(SUITE.n_classes, size=SUITE.image_size, width=8, seed=0)
    export(Federation(read_method('FedAvg'), net, SUITE, rounds=1), tmp_path/'m.safetensors')
    assert json.loads((tmp_path/'m.json').read_text())['accuracy'] == {}

def test_formats_and_clients_are_named(tmp_path):
    fed = trained('FedBN')
    with pytest.raises(ValueError, match='onnx'): export(fed, tmp_path/'m.onx', client=0)
    with pytest.raises(ValueError, match='no global model'): export(fed, tmp_path/'m.pt2')
    assert not list(tmp_path.iterdir())

ASKED = dict(methods='FedAvg,FedBN', suite='emoji-pacs', seeds=1, size='tiny', rounds=1, control=False,
             local_steps=8, model='small_conv(width=4)')

def test_models_are_kept_and_found(tmp_path):
    first = compare(**ASKED, out=tmp_path)
    with pytest.raises(ValueError, match='--keep-models'): kept_federation(tmp_path, 'FedBN')
    with pytest.warns(UserWarning, match='lack a measure, or models, that are asked for now'):
        again = compare(**ASKED, out=tmp_path, keep_models=True)
    assert [h.rows for h in first.histories] == [h.rows for h in again.histories]
    fed = kept_federation(tmp_path, 'FedBN')
    own = [r for r in fed.history.rows if r['view'] == 'personal' and r['client'] == 0][-1]
    test = fed.suite.clients[0].test
    assert (fed.predict(test.x, client=0).argmax(1) == test.y).sum() == own['correct']

def test_keeping_wants_a_folder():
    with pytest.raises(ValueError, match='give out'): compare(**ASKED, keep_models=True)

def test_from_a_folder_to_predictions(tmp_path, capsys):
    compare(**ASKED, out=tmp_path/'runs', keep_models=True)
    pictures = tmp_path/'new'/'deep'
    pictures.mkdir(parents=True)
    for k in range(3):
        Image.fromarray(X[k].permute(1, 2, 0).numpy()).resize((90, 50)).save(pictures/f'{k}.png')
    model, table = str(tmp_path/'m.onnx'), tmp_path/'p.csv'
    assert not main(['export', str(tmp_path/'runs'), model, '--method', 'FedBN', '--client', 'sketch'])
    assert main(['export', str(tmp_path/'runs'), model, '--method', 'FedBN'])
    assert '--client 0 (photo)' in capsys.readouterr().err
    assert not main(['predict', model, str(tmp_path/'new'), '--out', str(table)])
    rows = table.read_text().splitlines()
    assert rows[0] == 'file,class,' + ','.join(SUITE.classes) and len(rows) == 4
    assert rows[1].startswith('deep/0.png,')
    fed = kept_federation(tmp_path/'runs', 'FedBN')
    p = fed.predict(sorted(pictures.iterdir()), client=3)
    np.testing.assert_allclose([float(v) for v in rows[1].split(',')[2:]], p[0], atol=1e-4)

WRONG = {'no.onnx': 'there is no file', 'torn.onnx': 'was not written by fedskew export', 'm.pt2': 'no code'}

@pytest.mark.parametrize('name', WRONG)
def test_what_predict_refuses(name, tmp_path, capsys):
    if name != 'no.onnx': (tmp_path/name).write_bytes(b'not a model')
    assert main(['predict', str(tmp_path/name), str(tmp_path)])
    assert WRONG[name] in capsys.readouterr().err

def board_rounds(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    return [e.step for e in EventAccumulator(str(folder/'board')).Reload().Scalars('AVG')]

def mlflow_rounds(folder):
    with sqlite3.connect(folder/'mlflow.db') as db:
        return [step for step, in db.execute("select step from metrics where key = 'AVG'")]

@pytest.mark.parametrize('tracker, rounds', [('tensorboard', board_rounds), ('mlflow', mlflow_rounds)])
def test_the_trackers_of_the_page(tracker, rounds, tmp_path, monkeypatch):
    "The page's own lines, where the tracker is installed."
    pytest.importorskip(tracker)
    page = Path(__file__).parent.parent/'nbs'/'7_app'/'15_compare.ipynb'
    texts = [''.join(c['source']) for c in json.loads(page.read_text(encoding='utf-8'))['cells']]
    numbers = next(t for t in texts if t.startswith('def numbers(fed)'))
    codes = (code for t in texts for code in re.findall('```python\n(.*?)```', t, re.S))
    lines = next(code for code in codes if tracker in code)
    net = small_conv(SUITE.n_classes, size=SUITE.image_size, width=4)
    fed = Federation(read_method('FedAvg'), net, SUITE, rounds=3, local_steps=1, eval_every=2)
    monkeypatch.chdir(tmp_path)
    exec(f'{numbers}\n{lines}', dict(fed=fed))
    assert rounds(tmp_path) == [2, 3]
