"The plan: what it names exists, what its pilots choose, how pictures are dealt, what is stored."
import sys
from collections import Counter
from pathlib import Path
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent/'evidence'))
import evidence, photographs, plan, sets, work
from plan import Row, Set, Trial, chosen, wanted_trials
from fedskew_nb.run.recipes import model_recipe, read_method
from fedskew_nb.run.run import method_of
from fedskew_nb.engine.history import MOMENTS, VIEWS
from fedskew_nb.engine.setting import Setting

HEADS = plan.records_of((plan.HERE/'plan.toml').read_text())
TUNING, SETS = plan.read_plan()
BY_ID = {s.id: s for s in SETS}
each = pytest.mark.parametrize('s', SETS, ids=list(BY_ID))

@each
def test_every_row_is_a_run_of_the_package(s):
    "Its method is read, takes what may be tuned, and its setting has fields of Setting; its name is its own."
    tuned = {r.name: r for r in BY_ID[s.tuned_as].rows}
    for r in s.rows:
        own = {k: vs[0] for k, vs in tuned.get(r.rate_of or r.name, r).own}
        run = work.run_of(s, r, s.seeds[0], s.record['lr'], own, False)
        assert method_of(run).name == read_method(r.method).name and Setting(**run.setting).answers
        assert r.view in VIEWS and r.moment in MOMENTS and r.deal in ('skew', 'iid', 'pooled')
        assert work.measure_of(r.measure) or not r.measure
    assert len({r.name for r in s.rows}) == len(s.rows) and s.record['suite'] in sets.SUITES
    assert model_recipe(sets.model(s.record['model'])).name

@each
def test_a_row_has_a_rate_that_somebody_tuned(s):
    "Or the set tunes nothing, and no row has a parameter to move."
    tuned = {r.name for r in plan.tuned_rows(BY_ID[s.tuned_as])}
    if s.record.get('tuned', True): assert {r.rate_of or r.name for r in s.rows if not r.lr} <= tuned
    else: assert not any(r.own for r in s.rows)

def test_verdict_seeds_were_never_seen():
    assert all(seed >= 200 for s in SETS for seed in s.seeds) and max(TUNING['seeds']) < 200

def test_the_first_three_seeds_of_all_sets_come_before_any_fourth():
    parts = evidence.in_order(SETS, HEADS)
    order, last = HEADS['plan']['sets'], HEADS['plan']['last']
    now = order[:-len(last)]
    assert sorted(order) == sorted(BY_ID) and order == now+last
    assert [s.id for s, _ in parts] == [*now, *now, *last]
    assert all(seeds == s.seeds[:3] for s, seeds in parts[:len(now)])
    runs = Counter((s.id, seed) for s, seeds in parts for seed in seeds)
    assert runs == Counter((s.id, seed) for s in SETS for seed in s.seeds)

def tuned_by(score, row=Row('X', own=(('lam', (.25, 4.)),)))->dict:
    "What a row's pilots choose, where `score(lr, own, seed)` is what they get."
    done = {}
    while left := wanted_trials(row, TUNING, .03, done):
        done |= {t: score(t.lr, dict(t.own), t.seed) for t in left}
    return chosen(row, TUNING, .03, done)

def at(lr, first, second):
    "50, and so many points more at this rate."
    points = dict(zip(TUNING['seeds'], (first, second)))
    return lambda rate, own, seed: 50. + points[seed]*(rate == lr and not own)

def test_trials_are_those_of_the_plan():
    own, none = Row('X', own=(('a', (1., 2.)), ('b', (3., 4.)))), Row('Y')
    first = wanted_trials(own, TUNING, .03, {})
    assert [(t.lr, t.own) for t in first] == [(lr, ()) for lr in TUNING['rates']]
    assert [t.lr for t in wanted_trials(none, TUNING, .03, {})] == [.001, *TUNING['rates'], .3]
    done = {t: t.lr for t in first}
    moved = wanted_trials(own, TUNING, .03, done)
    assert [(t.lr, t.own) for t in moved] == [(.1, (('a', 1.), ('b', 3.))), (.1, (('a', 2.), ('b', 4.)))]
    done |= {moved[0]: 1., moved[1]: 0.}
    again = [Trial('X', TUNING['seeds'][1], *setting) for setting in ((.1, moved[0].own), (.1,), (.03,))]
    assert wanted_trials(own, TUNING, .03, done) == again
    assert wanted_trials(own, TUNING, .03, done | dict.fromkeys(again, 0.)) == []

@pytest.mark.parametrize('first, second, lr', [
    (0, 0, .03), (2, -1, .03), (3, 0, .03), (1, -3, .03), (2, 1, .01)])
def test_a_change_needs_a_gain_above_its_standard_error(first, second, lr):
    "A tie, a gain below its error or equal to it, and a loss keep the default."
    got = tuned_by(at(.01, first, second))
    assert (got['lr'], got['own'], got['default'], got['edge']) == (lr, {}, lr == .03, False)

def test_an_edge_is_named_and_an_own_value_may_win():
    assert tuned_by(at(.1, 2, 1))['edge'] and tuned_by(at(.3, 2, 1), Row('Y'))['edge']
    assert not tuned_by(at(.1, 2, 1), Row('Y'))['edge']
    got = tuned_by(lambda lr, own, seed: 50. + (lr == .01) + 2*(own.get('lam') == 4.))
    assert (got['lr'], got['own'], got['gain'], got['error']) == (.01, dict(lam=4.), 3., 0.)

GROUPS = {('a', 'cat'): 100, ('a', 'dog'): 37, ('b', 'cat'): 55, ('b', 'dog'): 20}
PLACES = [*Counter(GROUPS).elements()]
DIGESTS = [f'{(7919*i) % 10007:05d}' for i in range(len(PLACES))]

def dealt(order)->dict: # {digest: folds of its pictures}
    got = photographs.folds([DIGESTS[i] for i in order], *zip(*(PLACES[i] for i in order)))
    return {d: sorted(f for f, i in zip(got, order) if DIGESTS[i] == d) for d in DIGESTS}

def test_folds_are_of_the_pictures_alone():
    "A tenth of each class tunes, the others lie in five folds of a size, in any order of the input."
    got = dealt(order := list(range(len(DIGESTS))))
    for place, n in GROUPS.items():
        size = Counter(got[d][0] for d, p in zip(DIGESTS, PLACES) if p == place)
        assert size[-1] == -(-n//10) and {*size} == {-1, 0, 1, 2, 3, 4}
        assert max(size[f] for f in range(5)) - min(size[f] for f in range(5)) <= 1
    assert dealt(order[::-1]) == got == dealt(order[1::2] + order[::2])
    copies = dealt(order + order[:50])                # each digest in one fold; its copies in none
    assert all(copies[d] == [-2]*(i < 50) + got[d] for i, d in enumerate(DIGESTS))
    with pytest.raises(ValueError, match='its copy'):
        photographs.folds('11', 'aa', ['cat', 'dog'])

@pytest.fixture
def made_up(monkeypatch):
    "Pictures of one pixel, which is their number."
    fold = photographs.folds(DIGESTS, *zip(*PLACES))
    x = np.arange(len(DIGESTS), dtype=np.uint8).reshape(-1, 1, 1, 1).repeat(3, 1)
    domains, y = [d for d, _ in PLACES], np.array([kind == 'dog' for _, kind in PLACES])
    monkeypatch.setattr(photographs, 'dealt', lambda *_: (x, y, DIGESTS, domains, ['cat', 'dog'], fold))
    at_fold = {f: {*np.flatnonzero(fold == f).tolist()} for f in range(-1, 5)}
    return lambda part: {*part.x[:, 0, 0, 0].tolist()}, at_fold

def test_no_verdict_sees_the_tuning_fold_and_no_pilot_anything_else(made_up):
    numbers, fold = made_up
    judged, pilot = (photographs.photographs(201, p, 'x', 1, 2, 10) for p in (False, True))
    union = lambda parts: set().union(*map(numbers, parts))
    trains, tests = union(c.train for c in judged.clients), union(judged.tests.values())
    assert len(trains) == sum(len(c.train) for c in judged.clients) == 40 and not tests & trains
    assert tests | trains == {*range(len(DIGESTS))} - fold[-1] and fold[1] <= tests
    assert union(pilot.tests.values()) == fold[-1]

def test_an_unseen_domain_is_tested_on_four_folds_of_five(made_up):
    numbers, fold = made_up
    suite = photographs.photographs(203, False, 'x', 1, 2, 10, without='b')
    here = {i for i, (d, _) in enumerate(PLACES) if d == 'b'}
    assert {c.domain for c in suite.clients} == {'a'} and numbers(suite.spare['b']) == fold[3] & here
    assert numbers(suite.unseen['b']) == here - fold[3] - fold[-1]

def test_a_store_gives_back_what_it_keeps_and_refuses_another_record(tmp_path):
    record = dict(id='Z', row=[dict(name='FedAvg')], seeds=[200])
    s, other = Set(record, 'one'), Set(record, 'two')
    job = dict(row='FedAvg', seed=200, lr=.03, own=[['lam', 4.]], commit='c', pilot=False)
    store, entry = evidence.Store(tmp_path), dict(score=71.5, seconds=1., on={}, when='', history={})
    store.keep(s, job, entry)
    assert store.runs(s, 200) == {'FedAvg': entry | dict(lr=.03, own=job['own'], commit='c')}
    assert store.runs(s, 201) == {} and evidence.runs_left(s, store, [200]) == []
    with pytest.raises(ValueError, match='another record of set Z'):
        store.runs(other, 200)
    store.keep(s, job | dict(seed=100, pilot=True), entry)
    assert store.trials(s) == {Trial('FedAvg', 100, .03, (('lam', 4.),)): 71.5} and store.trials(other) == {}
