"Two runs that train alike train once, and have the histories that they have alone; others train apart."
from dataclasses import replace
from pathlib import Path
import pytest
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.names import Recipe
from fedskew_nb.engine.federation import Federation
from fedskew_nb.engine.sites import Here
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.run.recipes import method_recipe, model_recipe, suite_recipe
from fedskew_nb.run.named import named
from fedskew_nb.run.run import Run
from fedskew_nb.run.store import NOWHERE, Store
from fedskew_nb.run.train import paired, train_all, train_run
from feds import few, first, halved

def three(data_seed):
    "Three domains of different sizes."
    return halved(first(few(data_seed), 3, tests=6))

HERE = Store(Path('a folder'))
SHORT = dict(rounds=3, local_steps=1, eval_every=2, record=True, batch_size=8)

def run(method, suite=three, **more):
    recipe = method_recipe(method) if isinstance(method, str) else Recipe(method.name, method)
    how = dict(setting=SHORT | more.pop('setting', {}), size='tiny')
    return Run(recipe, suite_recipe(suite, 'tiny'), model_recipe('small_conv(width=4)'), **how | more)

def all_in(folder, runs, **more): return train_all(named(runs), Store(folder), progress=False, **more)

def pair(method, **more): return [run(method, **more), run(f'{method} + AdaBN', **more)]

@pytest.fixture
def trained(monkeypatch):
    "Names of methods, once for each round in which clients trained."
    names, train = [], Here.train
    def watched(here, fed, who):
        names.append(fed.method.name)
        return train(here, fed, who)
    monkeypatch.setattr(Here, 'train', watched)
    return names

METHODS = ['FedBN', 'SCAFFOLD', 'F2DC']       # own norms; control variates; one with two paths

@pytest.mark.parametrize('method', METHODS)
def test_the_second_history_is_the_one_it_has_alone(method, tmp_path, trained):
    both = all_in(tmp_path, pair(method))
    assert {*trained} == {method}
    for r, h in zip(pair(method), both):
        alone = train_run(r, progress=False)
        assert h == alone and h.rows == alone.rows and h.rounds == alone.rounds

def test_where_half_of_the_clients_train(tmp_path, trained):
    todo = pair('FedAvg', setting=dict(participation=.5))
    both = all_in(tmp_path, todo)
    assert {*trained} == {'FedAvg'} and both == [train_run(r, progress=False) for r in todo]

def test_another_deal(tmp_path, trained):
    "Its suite is dealt anew for the second, too."
    both = all_in(tmp_path, pair('FedAvg', deal='pooled'))
    assert {*trained} == {'FedAvg'}
    assert both == [train_run(r, progress=False) for r in pair('FedAvg', deal='pooled')]

@pytest.mark.parametrize('other', [
    dict(seed=1), dict(setting=dict(lr=.02)), dict(deal='iid'), dict(trust=True), dict(keep_models=True)],
    ids=str)
def test_what_differs_trains_apart(other):
    todo = named([run('FedAvg'), run('FedAvg + AdaBN', **other)])
    assert not any(r.beside for r in paired(todo, HERE))

def test_other_numbers_of_a_method_train_apart():
    apart = paired(named([run('FedProx', own=dict(mu=.1)), run('FedProx + AdaBN', own=dict(mu=.2))]), HERE)
    alike = paired(named([run('FedProx', own=dict(mu=.1)), run('FedProx + AdaBN', own=dict(mu=.1))]), HERE)
    assert [bool(r.beside) for r in apart+alike] == [False, False, True, False]

@pytest.mark.parametrize('more', [dict(store=NOWHERE), dict(measure=len), dict(keep_stopped=True)], ids=str)
def test_without_a_folder_or_with_a_measure_nobody_is_served(more):
    assert not any(r.beside for r in paired(named(pair('FedAvg')), **dict(store=HERE) | more))

def test_the_files_have_the_names_that_they_had():
    todo = named(pair('FedAvg'))
    assert [r.name for r in paired(todo, HERE)] == [r.name for r in todo]

class Failing(Mechanism):
    "Models cannot be asked after the first check."
    def prepare(self, c):
        if c.round > 1: raise ValueError('it cannot be asked')

def test_a_second_run_that_fails_takes_nobody_with_it(tmp_path, trained):
    "The first is stored; the second says in its own turn why."
    todo = [run('FedAvg'), run(Method('Odd', *FedAvg.mechanisms, Failing()))]
    said = 'Odd trains in its own turn, not beside FedAvg: .*it cannot be asked'
    with pytest.raises(ValueError, match='it cannot be asked'), pytest.warns(UserWarning, match=said):
        all_in(tmp_path, todo)
    first, second = (Store(tmp_path).read(r)[0] for r in named(todo))
    assert first == train_run(todo[0], progress=False) and second is None and 'Odd' in trained

def test_a_run_that_was_stopped_goes_on_alone(tmp_path, monkeypatch, ctrl_c):
    "So does its fellow; both are what they would have been."
    one_round = Federation.one_round
    def stopped(fed):
        if fed.round_no == 2: ctrl_c()
        return one_round(fed)
    with monkeypatch.context() as m:
        m.setattr(Federation, 'one_round', stopped)
        with pytest.raises(KeyboardInterrupt): all_in(tmp_path, pair('FedAvg'))
    assert not any(Store(tmp_path).file(r).exists() for r in named(pair('FedAvg')))
    both = all_in(tmp_path, pair('FedAvg'))
    assert both == [train_run(r, progress=False) for r in pair('FedAvg')]

def test_patience_may_end_them_at_different_rounds(tmp_path):
    todo = pair('FedAvg', suite=few, setting=dict(patience=1, rounds=4, eval_every=1, record=False))
    assert all_in(tmp_path, todo) == [train_run(r, progress=False) for r in todo]

def test_two_processes(tmp_path):
    "Of a seed the served run is sent last, though it stands first; the result is that of one process."
    (tmp_path/'2').mkdir()
    short = dict(suite='emoji-pacs', setting=dict(rounds=1, eval_every=1))    # other processes can load it
    three = [*pair('FedAvg', **short)[::-1], run('FedBN', **short)]
    todo = [replace(r, seed=seed) for seed in (3, 1) for r in three]
    here, there = (all_in(tmp_path/str(jobs), todo, jobs=jobs) for jobs in (1, 2))
    assert here == there and [h.setting['seed'] for h in here] == [r.seed for r in todo]
