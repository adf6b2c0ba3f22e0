"Equal trials: what is tried, on which images, what is written, and what `compare` makes of it."
import json
from dataclasses import replace
import pytest, torch
from fedskew_nb.tools.cli import main
from fedskew_nb.run.compare import compare, resume
from fedskew_nb.run.named import federation_of
from fedskew_nb.run.plan import planned
from fedskew_nb.run.rates import budget, read_tuned
from fedskew_nb.run.store import read_request
from fedskew_nb.run.recipes import method_recipe, suite_recipe
from fedskew_nb.run.tune import Search, chosen, on_validation, rate, searches, tune, wanted
from fedskew_nb.data.load import load_suite
from fedskew_nb.methods.baselines.average import FedProx
from feds import run_name, run_of, two

SHORT = dict(suite='emoji-pacs', size='tiny', rounds=1, local_steps=1, model='small_conv(width=4)',
             progress=False)
TWO = SHORT | dict(seeds=100, trials=2)

def record(lr, **own): return dict(lr=lr, own=own, trials=4, seeds=[100, 101])

TUNED = {
    'emoji-pacs': dict(FedAvg=record(.3), FedProx=record(.1, mu=.5)),
    'skew-digits': dict(FedAvg=record(.03))}

# ---- which trials

def search(best, trials, values=()):
    "Every trial of a search whose score falls with the distance from the rate `best`."
    scores = {}
    while todo := wanted(scores, trials, values): scores |= {(k, v): -abs(k-best) + (v == 1) for k, v in todo}
    return scores

GRIDS = [(2, [.03, .1]), (3, [.03, .1, .3]), (4, [.01, .03, .1, .3]), (6, [.003, .01, .03, .1, .3, 1])]

@pytest.mark.parametrize('trials, rates', GRIDS)
def test_the_grid_lies_around_a_tenth(trials, rates): assert [rate(k) for k, _ in wanted({}, trials)] == rates

@pytest.mark.parametrize('best, n', [(-2, 4), (-3, 4), (-1, 5), (0, 6), (9, 6), (-4, 5), (-9, 6)])
def test_an_edge_is_left_by_two_steps_at_most(best, n):
    scores = search(best, 4)
    assert len(scores) == n and max(scores, key=scores.get)[0] == min(max(best, -6), 1)

def test_own_values_share_the_budget_and_come_at_the_best_rate():
    scores = search(-3, 6, (.5, 1))
    assert len(scores) == 6 and [t for t in scores if t[1]] == [(-3, .5), (-3, 1)]

def test_what_was_chosen():
    tried = {(-3, None): [1.], (-2, None): [3.], (-2, 1): [4.]}
    found = chosen(Search(4, 'mu', (1,), [run_of('FedProx', seed=100)], tried))
    assert (found['lr'], found['own'], found['trials'], found['edge']) == (.1, dict(mu=1), 3, True)

@pytest.mark.parametrize('own, word', [
    (dict(FedProx=dict(nu=[1])), 'did you mean mu'),
    (dict(FedPrax=dict(mu=[1])), 'did you mean FedProx'),
    (dict(FedProx=dict(mu=[1, 2, 3])), 'give more trials'),
    (dict(FedProx=dict(mu=[1], nu=[1])), 'at most one')])
def test_own_is_checked(own, word):
    runs = planned('FedProx', 'emoji-pacs', control=False)
    with pytest.raises(ValueError, match=word): searches(runs, 4, own)

# ---- what it looks at

def test_no_test_image_is_asked():
    where = on_validation(suite_recipe('emoji-pacs', 'tiny'))
    asked = federation_of(run_of('FedAvg', where, seed=100, setting=dict(rounds=1, local_steps=1))).suite
    real = load_suite('emoji-pacs', 'tiny', 100)
    assert not asked.unseen
    for a, r in zip(asked.clients, real.clients):
        assert torch.equal(a.test.x, r.val.x) and torch.equal(asked.tests[r.domain].x, r.val.x)

def test_clients_without_validation_images_are_refused(suite):
    bare = replace(suite, name='bare', clients=[replace(c, val=c.val[:0]) for c in suite.clients])
    with pytest.raises(ValueError, match='no validation image'): tune('FedAvg', **SHORT | dict(suite=bare))

def test_a_run_that_stops_scores_nothing(monkeypatch):
    monkeypatch.setattr('fedskew_nb.run.tune.rate', lambda k: 10.**(12*k+36))
    found = tune('FedAvg', **TWO | dict(rounds=2))['emoji-pacs']['FedAvg']
    assert 0. in [s for *_, s in found['scores']]

@pytest.mark.parametrize('bad, word', [
    (dict(seeds=[99]), 'pilot seeds'),
    (dict(trials=1), 'trials is 1'),
    (dict(lr=.1), 'leave it out'),
    (dict(suite='emoji'), 'did you mean')])
def test_refused_before_anything_is_trained(bad, word, tmp_path):
    with pytest.raises(ValueError, match=word): tune('FedAvg', **SHORT | bad, out=tmp_path/'o')
    assert not (tmp_path/'o').exists()

# ---- stopped, gone on, stored

def test_stopped_and_called_again(tmp_path):
    told, how = [], TWO | dict(suite=two)
    want = tune('FedAvg', **how)
    def stop(done, of, run, history):
        told.append(run.setting['lr'])
        if done == 2: raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt): tune('FedAvg', **how, out=tmp_path, on_run=stop)
    assert not (tmp_path/'tuned.json').exists() and len(list((tmp_path/'runs').iterdir())) == 2
    assert tune('FedAvg', **how, out=tmp_path) == want == read_tuned(tmp_path/'tuned.json')

def test_another_suite_joins_the_file(tmp_path):
    for s in ('emoji-pacs', 'skew-digits'): tune('FedAvg', **TWO | dict(suite=s), out=tmp_path)
    assert list(read_tuned(tmp_path/'tuned.json')) == ['emoji-pacs', 'skew-digits']

# ---- compare reads it

@pytest.mark.parametrize('method, lr, own', [
    ('FedAvg', .3, {}),
    ('FedProx', .1, dict(mu=.5)),
    ('FedProx(mu=2)', .1, {}),
    ('FedProx + FedBN', .1, {}),
    (FedProx, .1, dict(mu=.5))], ids=str)
def test_who_gets_what(method, lr, own):
    found = budget(method_recipe(method), suite_recipe('emoji-pacs-uneven'), tuned=TUNED)
    setting = found['setting']
    assert (setting['lr'], setting['rounds']) == (lr, 24) and (found['own'], found['trials']) == (own, 4)

def test_a_tuned_method_keeps_its_name_and_is_another_run():
    avg, prox, _ = planned('FedProx', 'emoji-pacs', seeds=1, tuned=TUNED)
    fed = federation_of(replace(prox, setting=dict(rounds=1)))
    assert fed.method.name == prox.title == 'FedProx' and fed.method.spec() == FedProx(mu=.5).spec()
    assert run_name(prox) != run_name(replace(prox, own={}))
    assert run_name(avg) == run_name(replace(avg, trials=0, note=''))

def test_the_control_is_trained_at_the_rate_of_fedavg():
    runs = planned('FedAvg', 'emoji-pacs', seeds=1, tuned=TUNED)
    assert {(r.deal, r.setting['lr']) for r in runs} == {('skew', .3), ('iid', .3)}

@pytest.mark.parametrize('call, word', [
    (dict(methods='FedBN'), 'FedBN was not tuned on emoji-pacs, only FedAvg, FedProx'),
    (dict(suite='mine'), 'nothing was tuned on mine'),
    (dict(lr=.1), 'leave one out'),
    (dict(tuned='no.json'), 'there is no file no.json')])
def test_what_was_not_tuned_is_refused(call, word, suite):
    if call.get('suite'): call = dict(suite=replace(suite, name='mine', base=''))
    call = dict(methods='FedAvg', suite='emoji-pacs', tuned=TUNED) | call
    with pytest.raises(ValueError, match=word): planned(**call)

def test_a_torn_file_is_named(tmp_path):
    (tmp_path/'t.json').write_text('{')
    with pytest.raises(ValueError, match='torn'): read_tuned(tmp_path/'t.json')

def test_the_request_keeps_what_was_tuned(tmp_path):
    "Whatever becomes of the file, `resume` trains the same runs."
    file = tmp_path/'tuned.json'
    file.write_text(json.dumps(TUNED))
    want = compare('FedProx', **SHORT, seeds=1, tuned=file, out=tmp_path/'o')
    file.unlink()
    assert read_request(tmp_path/'o').given()['tuned'] == TUNED
    assert resume(tmp_path/'o', progress=False).histories == want.histories
    assert [(h.setting['lr'], h.setting['trials']) for h in want.histories] == [(.3, 4), (.1, 4), (.3, 4)]

def test_every_table_says_how_many_trials():
    cmp = compare('FedProx', **SHORT, seeds=1, tuned=TUNED)
    how = 'chosen in 4 trials on validation images of seeds 100, 101.'
    notes = [f'FedAvg: lr 0.3, {how}', f'FedProx: lr 0.1, mu 0.5, {how}']
    for t in (cmp.table('global'), cmp.table('personal'), cmp.overview()):
        assert [n for n in t.notes if 'trials' in n] == notes

def test_notes_are_those_of_the_suite():
    both = SHORT | dict(suite=['skew-digits', 'emoji-pacs'])
    cmp = compare('FedAvg', **both, seeds=1, control=False, tuned=TUNED)
    def notes(table): return [n.split(',')[0] for n in table.notes if 'trials' in n]
    assert notes(cmp.table('global', 'emoji-pacs')) == ['lr 0.3']
    assert notes(cmp.overview()) == ['skew-digits: lr 0.03', 'emoji-pacs: lr 0.3']

# ---- the commands

def test_the_commands(capsys, tmp_path, unsaved):
    how = '--suite emoji-pacs --size tiny --rounds 1 --set local_steps=1 --model small_conv(width=4)'.split()
    trials = '--methods FedProx --own FedProx(mu=[.1]) --trials 3 --seeds 100'.split()
    assert main(['tune', *how, *trials, '--out', str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert 'FedProx, lr 0.03, mu 0.1, seed 100' in said.err or 'mu 0.1' in said.err
    assert 'emoji-pacs, tuned' in said.out and str(tmp_path/'tuned.json') in said.out
    assert main(['tune', *how, *trials, '--json', '--out', str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out) == read_tuned(tmp_path/'tuned.json')
    file, out = tmp_path/'tuned.json', tmp_path/'o'
    more = ['--methods', 'FedProx', '--seeds', '1', '--tuned', str(file), '--out', str(out)]
    assert main(['compare', *how, *more]) == 0
    assert 'chosen in' in capsys.readouterr().out and 'chosen in' in (out/'report.html').read_text()
