"Nothing of somebody's is lost: files not ours, a federation with one bad site, two mechanisms in a sum."
import errno, os
from unittest.mock import MagicMock
import pytest, torch
from fedskew_nb import FedAvg, FedBN, export, small_conv
from fedskew_nb.core.files import check_ours, reserve, starts_with
from fedskew_nb.core.method import Method
from fedskew_nb.deploy.hub import impossible
from fedskew_nb.deploy.rehearse import rehearsal
from fedskew_nb.engine.checkpoint import from_bytes, good_of, load_nest, to_bytes
from fedskew_nb.methods.baselines.personal import AdaBN
from fedskew_nb.methods.baselines.average import Prox
from fedskew_nb.run.recipes import read_method
from fedskew_nb.tools.predict import predict_command
from fedskew_nb.tools.cli import report_command
from feds import fed_of, same
from test_deploy import cache, job, place, sites    # noqa: F401

# ---- files that are not ours

@pytest.fixture(scope='module')
def fed(pair):
    fed = fed_of(FedAvg, pair, rounds=1)
    fed.fit()
    return fed

OTHERS = ['compare', 'history', 'tuned', 'prepared', 'suite', 'package', 'diagnosis']

@pytest.mark.parametrize('name', OTHERS)
def test_a_model_is_not_exported_over_a_neighbour(name, fed, tmp_path):
    (tmp_path/f'{name}.json').write_text('{"format": 3}')
    said = f'{name}.json is there, and is no card of a model: give another name'
    with pytest.raises(ValueError, match=said): export(fed, tmp_path/f'{name}.safetensors')
    assert [p.name for p in tmp_path.iterdir()] == [f'{name}.json']
    assert (tmp_path/f'{name}.json').read_text() == '{"format": 3}'

@pytest.mark.parametrize('text', ['', '[]', 'null', '{"classes": [], "pixels": 3}', 'no json', '\0'])
def test_what_is_no_card_stays(text, fed, tmp_path):
    (tmp_path/'m.json').write_text(text)
    with pytest.raises(ValueError, match='is no card'): export(fed, tmp_path/'m.safetensors')
    assert (tmp_path/'m.json').read_text() == text

def test_a_checkpoint_is_no_model_and_an_own_export_is_written_again(fed, tmp_path):
    fed.save(tmp_path/'state.safetensors')
    before = (tmp_path/'state.safetensors').read_bytes()
    with pytest.raises(ValueError, match='is no model that was exported'):
        export(fed, tmp_path/'state.safetensors')
    assert (tmp_path/'state.safetensors').read_bytes() == before and not (tmp_path/'state.json').exists()
    for _ in range(2): export(fed, tmp_path/'m.safetensors')
    (tmp_path/'m.safetensors').unlink()                       # stopped between the two files
    assert export(fed, tmp_path/'m.safetensors').exists()

def test_a_failed_export_leaves_nothing(fed, tmp_path, monkeypatch):
    def fails(*_): raise OSError(errno.ENOSPC, 'full')
    monkeypatch.setitem(__import__('fedskew_nb.tools.after', fromlist=['x']).WRITERS, '.safetensors', fails)
    with pytest.raises(OSError): export(fed, tmp_path/'m.safetensors')
    assert not list(tmp_path.iterdir())

def test_predictions_do_not_replace_the_model(tmp_path, monkeypatch):
    monkeypatch.setattr('fedskew_nb.tools.predict.opened', lambda path: (None, dict(classes=['a'], pixels=8)))
    for name, text in (('a.onnx', 'a model'), ('notes.csv', 'mine,too\n')):
        (tmp_path/name).write_text(text)
        with pytest.raises(ValueError, match='is no table of predictions'):
            predict_command(tmp_path/'a.onnx', tmp_path, tmp_path/name)
        assert (tmp_path/name).read_text() == text

def test_a_report_saves_over_its_own_only(tmp_path, monkeypatch):
    def runs(*_): return MagicMock(__iter__=lambda s: iter([(1, 1)]))
    for name in ('stored_runs', 'read_request', 'show'):
        monkeypatch.setattr(f'fedskew_nb.tools.cli.{name}', runs)
    mine = tmp_path/'paper.pdf'
    mine.write_text('mine')
    with pytest.raises(ValueError, match='is no stored comparison'): report_command(tmp_path, mine)
    assert mine.read_text() == 'mine'

def test_what_begins_as_ours_is(tmp_path):
    (tmp_path/'t.tex').write_text('\n\\begin{table}')
    (tmp_path/'p.tex').write_text('\\documentclass{article}')
    begins = starts_with(r'\begin{table}')
    check_ours(tmp_path/'t.tex', begins, 'table')
    check_ours(tmp_path/'none', starts_with('x'), 'table')
    for odd in (tmp_path/'p.tex', tmp_path, '/dev/null'):
        with pytest.raises(ValueError, match='is no table'): check_ours(odd, begins, 'table')

@pytest.mark.parametrize('error', [OSError, ValueError, KeyError, TypeError, AttributeError])
def test_what_cannot_be_read_or_is_no_file_is_not_ours(error, tmp_path):
    os.mkfifo(tmp_path/'pipe')
    (tmp_path/'torn').write_text('x')
    def torn(path): raise error('torn')
    for name, is_ours in (('pipe', lambda path: True), ('torn', torn)):
        with pytest.raises(ValueError, match=f'{name} is there, and is no card'):
            check_ours(tmp_path/name, is_ours, 'card')

def test_room_is_asked_for_before_a_file_is_mapped(tmp_path, monkeypatch):
    (tmp_path/'a').write_bytes(b'x'*100)
    reserve(tmp_path/'a')
    def full(*_): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, 'posix_fallocate', full)
    with pytest.raises(OSError, match='No space'): reserve(tmp_path/'a')

# ---- one bad site

def spoilt(post, site, change, rounds=(1,)):
    "A post that changes what a site answers in these rounds."
    def changed(letters):
        asked, answers = {n: from_bytes(b) for n, b in letters.items()}, dict(post(letters))
        if site in answers and asked[site]['kind'] == 'train' and asked[site]['round']+1 in rounds:
            nest = from_bytes(answers[site])
            answers[site] = to_bytes(change(nest) or nest)
        return answers
    return changed

def of_kind(end, value):
    def change(nest):
        for n, v in nest['model'].items():
            if n.endswith(end): v.fill_(value)
    return change

@pytest.mark.parametrize('end, value', [('running_var', -50.), ('num_batches_tracked', -3)])
def test_impossible_statistics_are_refused_and_the_next_goes_on(end, value, place, tmp_path):  # noqa: F811
    hub = rehearsal(job(rounds=2, eval_every=1), sites(place), tmp_path/'out')
    hub.sites.post = spoilt(hub.sites.post, 'b', of_kind(end, value), (2,))
    with pytest.raises(ValueError, match='b sent .*: no BatchNorm has that'): hub.fit()
    honest = rehearsal(job(rounds=2, eval_every=1), sites(place), tmp_path/'out')
    assert honest.round_no == 1
    whole = rehearsal(job(rounds=2, eval_every=1), sites(place), tmp_path/'other')
    assert honest.fit().rows == whole.fit().rows and same(honest.server, whole.server)

@pytest.mark.parametrize('bad, every, back', [(2, 1, 1), (1, 1, 0), (2, 3, 0)])
def test_a_model_that_answers_nan_takes_the_last_good_back(bad, every, back, place, tmp_path):  # noqa: F811
    how = dict(rounds=3, eval_every=every)
    hub = rehearsal(job(**how), sites(place), tmp_path/'out')
    hub.sites.post = spoilt(hub.sites.post, 'b', of_kind('weight', 3e38), (bad,))
    with pytest.raises(FloatingPointError) as e: hub.fit()
    state = tmp_path/'out'/'state.safetensors'
    if back: assert load_nest(state)['round_no'] == back
    said = '\n'.join([str(e.value), *getattr(e.value, '__notes__', ())])
    again = rehearsal(job(**how), sites(place), tmp_path/'out')
    whole = rehearsal(job(**how), sites(place), tmp_path/'other')
    assert f'dusk, noon may have spoilt the model: the checkpoint is that of round {back} again' in said
    assert again.round_no == back
    assert again.fit().rows == whole.fit().rows
    assert good_of(state).exists()

def test_what_a_batchnorm_may_have():
    net = small_conv(2, size=8, width=4, seed=0).state_dict()
    assert not impossible(net)
    n = next(n for n in net if n.endswith('running_mean'))
    assert not impossible({n: torch.full((4,), -9.)})
    assert impossible({'a.running_var': torch.tensor([1., -1e-9])}) == 'a.running_var of -1e-09'

# ---- a method and a bare mechanism

@pytest.mark.parametrize('total', [lambda: FedAvg + AdaBN(), lambda: FedAvg + Method('AdaBN', AdaBN())])
def test_a_mechanism_is_a_summand(total):
    m = total()
    assert m.name == 'FedAvg + AdaBN' and m.mechanisms == read_method('FedAvg + AdaBN').mechanisms

def test_in_either_order_and_several():
    m = AdaBN(size=8) + FedBN + Prox(mu=.1)
    assert m.name == 'AdaBN + FedBN + Prox' and m.mechanisms[0] == AdaBN(size=8)

@pytest.mark.parametrize('o, said', [
    (AdaBN, r'write AdaBN\(\)'), ('AdaBN', 'add a method or a mechanism'), (3, 'no summand')])
def test_what_is_no_summand_is_refused(o, said):
    with pytest.raises(TypeError, match=said): FedAvg + o
    with pytest.raises(TypeError, match=said): o + FedAvg
