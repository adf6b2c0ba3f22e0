"The plan: what it names exists, what its pilots choose, how pictures are dealt, what is stored."
import sys
from collections import Counter
from pathlib import Path
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent/'evidence'))
import evidence, photographs, plan, sets, work
from plan import LADDER, Row, Set, Trial, chosen, wanted_trials
from fedskew_nb.run.recipes import model_recipe, read_method
from fedskew_nb.engine.reading import MOMENTS, VIEWS
from fedskew_nb.engine.setting import Setting

HEADS = plan.records_of((plan.HERE/'plan.toml').read_text())
TUNING, SETS = HEADS['tuning.2'], plan.read_plan()
BY_ID = {s.id: s for s in SETS}
each = pytest.mark.parametrize('s', SETS, ids=list(BY_ID))

@each
def test_every_row_is_a_run_of_the_package(s):
    "Its method is read, takes what may be tuned, and its setting has fields of Setting; its name is its own."
    tuned = {r.name: r for of in s.tuned_as for r in BY_ID[of].rows}
    for r in s.rows:
        own = {k: vs[0] for k, vs in tuned.get(r.rate_of or r.name, r).own}
        run = work.run_of(s, r, s.seeds[0], s.record['lr'], own, False)
        assert run.made().name == read_method(r.method).name and Setting(**run.setting).answers
        assert r.view in VIEWS and r.moment in MOMENTS and r.deal in ('skew', 'iid', 'pooled')
        assert work.measure_of(r.measure) or not r.measure
    assert len({r.name for r in s.rows}) == len(s.rows) and s.record['suite'] in sets.SUITES
    assert model_recipe(sets.model(s.record['model'])).name

@each
def test_a_row_has_a_rate_that_somebody_tuned(s):
    "Or the set tunes nothing, and no row has a parameter to move."
    tuned = {r.name for of in s.tuned_as for r in plan.tuned_rows(BY_ID[of])}
    if s.tuned: assert {r.rate_of or r.name for r in s.rows if not r.lr} <= tuned
    else: assert not any(r.own for r in s.rows)

def test_verdict_seeds_were_never_seen():
    assert all(seed >= 200 for s in SETS for seed in s.seeds) and max(TUNING['seeds']) < 200

def test_the_first_three_seeds_of_all_sets_come_before_any_fourth():
    "But for the sets that come before all others, and those at the end."
    parts = evidence.in_order(SETS, HEADS)
    order, first, last = (HEADS['plan'][k] for k in ('sets', 'first', 'last'))
    now = [i for i in order if i not in first+last]
    assert sorted(order) == sorted(BY_ID) and order == first+now+last
    assert [s.id for s, _ in parts] == [*first, *now, *now, *last]
    assert all(seeds == s.seeds[:3] for s, seeds in parts[len(first):len(first+now)])
    runs = Counter((s.id, seed) for s, seeds in parts for seed in seeds)
    assert runs == Counter((s.id, seed) for s in SETS for seed in s.seeds)

OF_YESTERDAY = {
    'A': '5ab627c7321ae7e9', 'A-uneven': '24695e359d1107dc', 'B': '3ac1c27c9ff39068',
    'P1': '2404654c7c465b2f', 'P1-more': 'c6defe497e1ec564', 'P1-cpu': 'f800006f1d1dd23d',
    'P5': '01b08198cf1620b1', 'P3s': '55df26b30b536e43', 'P3': '7e6d9f8c88e48559',
    'P4s': '923f32b5d4f3f4e8', 'G': '3407029115047224'}

def test_sets_that_have_runs_kept_their_letters_when_the_rule_was_amended():
    assert {i: BY_ID[i].letters for i in OF_YESTERDAY} == OF_YESTERDAY
    begun = {p.name for p in (plan.HERE/'runs').iterdir()}
    assert {i for i in begun if 'further' not in BY_ID[i].tuning} <= {*OF_YESTERDAY}

# ---- the rule that every row is tuned by ----
OWN, NONE = Row('X', own=(('a', (1., 2.)), ('b', (3., 4.)))), Row('Y')

def rates_of(row, best, most=0)->list:
    "What a row tries on the first seed where nothing is as good as one rate."
    scores = {}
    def score(lr): return -abs(LADDER.index(lr)-LADDER.index(best)) if lr in LADDER else -9.
    for _ in range(9):
        scores |= {x: score(x[0])-.1*bool(x[1]) for x in plan.tried(row, TUNING, scores, most)}
    return plan.tried(row, TUNING, scores, most)

@pytest.mark.parametrize('row', [OWN, NONE], ids=['own', 'none'])
@pytest.mark.parametrize('best, further', [
    (.03, []), (.3, [1.]), (1., [1., 3.]), (10., [1., 3.]), (.001, [.0003]), (.0001, [.0003, .0001])])
def test_every_row_tries_the_same_rates_and_goes_on_where_the_best_lies_at_an_end(row, best, further):
    "Alike on both sides, twice at most; then two at the best."
    got = rates_of(row, best)
    assert [lr for lr, own in got if not own and lr in LADDER] == [.001, .003, .01, .03, .1, .3, *further]
    two = got[6+len(further):]
    at = min(best, 3.) if further[:1] == [1.] else max(best, .0001) if further else best
    if row is OWN: assert two == [(at, (('a', 1.), ('b', 3.))), (at, (('a', 2.), ('b', 4.)))]
    else: assert len(two) == 2 and two[0][0] < at < two[1][0] == pytest.approx(3.2*two[0][0], .05)

def test_half_steps_are_the_nearest_first():
    assert list(plan.half_steps(.03))[:5] == [.017, .055, .0055, .17, .0017]
    assert rates_of(NONE, .03, most=10)[6:] == [(lr, ()) for lr in (.017, .055, .0055, .17)]

def made_of(score, rows, default=.03)->tuple: # (done, places)
    "Pilots by the rule, where `score(row, lr, own, seed)` is what they get."
    done, places = {}, {}
    while left := wanted_trials(rows, TUNING, default, done, places):
        for t in left:
            done.setdefault(t, score(t.row, t.lr, dict(t.own), t.seed))
            places[t] = {f'personal {m}': done[t]+k for k, m in enumerate(plan.MOMENTS)}
    return done, places

def test_fedavg_tries_as_much_as_the_row_with_most():
    "Which goes on twice at an end."
    rows = [Row('FedAvg'), Row('FedAvg + AdaBN'), Row('X'), Row('Z')]
    def score(row, lr, own, seed): return lr if row == 'Z' else 1-abs(lr-.03)
    done, _ = made_of(score, rows)
    n = Counter(t.row for t in done if t.seed == TUNING['seeds'][0])
    assert n == {'FedAvg': 10, 'FedAvg + AdaBN': 10, 'X': 8, 'Z': 10}
    assert max(t.lr for t in done if t.row == 'Z') > 3. and max(t.lr for t in done if t.row == 'X') == .3

def tuned_by(score, row=Row('X', own=(('lam', (.25, 4.)),)))->dict:
    "What a row's pilots choose, where `score(lr, own, seed)` is what they get."
    done, places = made_of(lambda _, *asked: score(*asked), [row])
    choice = chosen(row, TUNING, .03, done)
    assert plan.best_moment(row, choice, TUNING, places)[0] == 'adabn'
    return choice

def at(lr, first, second):
    "50, and so many points more at this rate."
    points = dict(zip(TUNING['seeds'], (first, second)))
    return lambda rate, own, seed: 50. + points[seed]*(rate == lr and not own)

@pytest.mark.parametrize('first, second, lr', [
    (0, 0, .03), (2, -1, .03), (3, 0, .03), (1, -3, .03), (2, 1, .01)])
def test_a_change_needs_a_gain_above_its_standard_error(first, second, lr):
    "A tie, a gain below its error or equal to it, and a loss keep the default."
    got = tuned_by(at(.01, first, second))
    assert (got['lr'], got['own'], got['default'], got['edge']) == (lr, {}, lr == .03, False)

def test_an_edge_is_named_and_an_own_value_may_win():
    assert tuned_by(at(3., 2, 1))['lr'] == .03              # nobody comes there where nothing rises before it
    assert tuned_by(lambda lr, own, seed: 50+lr)['edge'] and not tuned_by(at(.1, 2, 1))['edge']
    got = tuned_by(lambda lr, own, seed: 50. + (lr == .01) + 2*(own.get('lam') == 4.))
    assert (got['lr'], got['own'], got['gain'], got['error']) == (.01, dict(lam=4.), 3., 0.)

STORE = evidence.Store()

@pytest.mark.parametrize('s', [s for s in SETS if s.pilots_go_on and STORE.trials_file(s).exists()],
                         ids=lambda s: s.id)
def test_what_was_tried_is_what_the_rule_tries(s):
    "From each row's stored scores, step by step: nothing else was run for it, and what it chose follows."
    (done, places), rows, default = STORE.trials(s), plan.tuned_rows(s), s.record['lr']
    replayed = {}
    for _ in range(99):
        left = wanted_trials(rows, s.tuning, default, replayed, {})
        if not (new := {t: done[t] for t in left if t in done and t not in replayed}): break
        replayed |= new
    assert plan.by_the_rule(rows, s.tuning, default, done) == replayed
    stored = evidence.json.loads(STORE.trials_file(s).read_text())
    run_for_it = {Trial(t['row'], t['seed'], t['lr'], tuple(map(tuple, t['own']))) for t in stored
                  if t['record'] == s.letters}
    assert run_for_it <= {*replayed}
    chose, open_ = STORE.tuned(s), wanted_trials(rows, s.tuning, default, done, places)
    assert bool(chose) == (not open_)
    for r in rows if chose else ():
        c = chosen(r, s.tuning, default, replayed)
        c['moment'], c['moments'] = plan.best_moment(r, c, s.tuning, places)
        assert chose[r.name] == c and 8 <= c['trials'] <= 10

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
    row = dict(suite='x', model='x', setting={}, tuned=False, lr=.03)
    record = dict(id='Z', row=[dict(name='FedAvg')], seeds=[200, 201]) | row
    s, other = Set(record, 'one'), Set(record, 'two')
    job = dict(row='FedAvg', seed=200, lr=.03, own=[['lam', 4.]], commit='c', pilot=False)
    store = evidence.Store(tmp_path, [s])
    entry = dict(score=71.5, scores={}, seconds=1., on={}, when='', history={})
    store.keep(s, job, entry)
    assert store.runs(s, 200) == {'FedAvg': entry | dict(lr=.03, own=job['own'], commit='c')}
    assert store.runs(s, 201) == {} and evidence.runs_left(s, store, [200]) == []
    assert [j['seed'] for j in evidence.runs_left(s, store, [200, 201])] == [201]
    with pytest.raises(ValueError, match='another record of set Z'):
        store.runs(other, 200)
    store.keep(s, job | dict(seed=100, pilot=True), entry)
    assert store.trials(s)[0] == {Trial('FedAvg', 100, .03, (('lam', 4.),)): 71.5}
    assert evidence.Store(tmp_path, [other]).trials(other) == ({}, {})

def test_a_pilot_and_a_run_are_found_by_what_they_ran(tmp_path):
    "In another set under another name, scored elsewhere; not on another device, at another rate."
    same = dict(suite='x', model='x', setting=dict(rounds=2), lr=.03, seeds=[200])
    old = Set(dict(id='old', row=[dict(name='FedAvg')]) | same, 'one', TUNING)
    two = [dict(name='plain', method='FedAvg'), dict(name='mended', method='FedAvg', moment='adabn')]
    new = Set(dict(id='new', row=two) | same, 'two', TUNING)
    gpu = Set(dict(id='gpu', row=two, device='cuda') | same, 'three', TUNING)
    store = evidence.Store(tmp_path, [old, new, gpu])
    job = dict(row='FedAvg', seed=100, lr=.03, own=[], commit='c', pilot=True)
    scores = {'personal post_agg': 60., 'personal adabn': 70.}
    store.keep(old, job, dict(score=60., scores=scores, seconds=1., on={}, when=''))
    found = {Trial('plain', 100, .03): 60., Trial('mended', 100, .03): 70.}
    assert store.trials(new) == (found, dict.fromkeys(found, scores)) and store.trials(gpu) == ({}, {})
    entry = dict(score=1., seconds=1., on={}, when='', history=dict(rows=[]))
    store.keep(old, job | dict(seed=200, pilot=False), entry)
    def chose(lr):
        rows = {r['name']: dict(lr=lr, own={}) for r in two}
        for s in (new, gpu): evidence.write_text(store.tuned_file(s), dict(record=s.letters, rows=rows), 0)
        return {s.id: sorted(store.runs(s, 200)) for s in (new, gpu)}
    assert chose(.03) == dict(new=['mended', 'plain'], gpu=[]) and chose(.1) == dict(new=[], gpu=[])
    assert [j['row'] for j in evidence.runs_left(new, store, [200])] == ['plain']      # one run serves both
