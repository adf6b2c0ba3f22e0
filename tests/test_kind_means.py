"A mean is of all that it names: rounds, domains, seeds. What is lacking leaves a blank and a sentence."
import math
from dataclasses import replace
import pytest, torch
from hypothesis import given, settings, strategies as st
from fedskew_nb import FedAvg, Comparison, Suite, load_suite
from fedskew_nb.analysis.claims import Claim, claims_table, gain, verdicts
from fedskew_nb.analysis.pairs import by_domain, unlike
from fedskew_nb.analysis.plots import finals
from fedskew_nb.analysis.report import suite_tables
from fedskew_nb.core.seeding import generator
from fedskew_nb.engine.history import History
from feds import cut, fed_of

DOMAINS = 'abc'

def made(method='FedAvg', seed=0, rounds=2, skip=(), **setting):
    "A run scored on three domains after each round, without the (round, domain) of `skip`."
    facts = dict(method=method, suite='toy', seed=seed, rounds=rounds, local_epochs=1) | setting
    right = 3+seed%4+(method != 'FedAvg')
    rows = [dict(round=r, moment='post_agg', view='global', path='', domain=d, client=-1, n=10,
                 correct=right+k) for r in range(1, rounds+1) for k, d in enumerate(DOMAINS)]
    return History(facts, [r for r in rows if (r['round'], r['domain']) not in skip])

def grid(*odd):
    "FedAvg and FedBN on three seeds; `odd` takes the place of the run of its method and seed."
    runs = {(m, s): made(m, s) for m in ('FedAvg', 'FedBN') for s in range(3)}
    runs |= {(h.setting['method'], h.setting['seed']): h for h in odd}
    return Comparison(runs.values())

ODD = dict(domain=[(r, 'b') for r in (1, 2)], last=[(2, 'b')], round=[(2, d) for d in DOMAINS])

@pytest.mark.parametrize('kind', ODD)
def test_an_odd_run_is_in_no_mean_and_named(kind):
    cmp, whole = grid(made(seed=1, skip=ODD[kind])), grid()
    t = cmp.table()
    assert list(t.numbers.n) == [2, 3]
    assert [n for n in t.notes if n.startswith('In no mean: FedAvg, seed 1 (')]
    two = whole.scores().query('method == "FedAvg" and seed != 1').AVG.mean()
    assert t.numbers.AVG[0] == pytest.approx(two)
    assert t.numbers.pairs[1] == 2                       # the pair is gone, too
    assert not [n for n in whole.table().notes if 'In no mean' in n]

def test_every_way_to_print_it_says_so():
    tables = suite_tables(grid(made(seed=1, skip=ODD['last'])), 'toy')
    for t in tables.values():
        for text in (repr(t), t.markdown(), t.latex(), t.html()): assert 'In no mean: FedAvg, seed 1' in text

def test_one_run_alone_has_a_blank_and_keeps_its_domains():
    h = made(skip=[(2, 'a')])
    assert h.gaps() == ['no score of a in round 2'] and math.isnan(h.summary()['AVG'])
    row = h.table().iloc[0]
    assert math.isnan(row.a) and row.b == 40 and row[['AVG', 'STD', 'ALL', 'worst']].isna().all()
    assert math.isnan(by_domain(h)[0]['a'])
    cmp = Comparison([h])
    assert cmp.table().cells.AVG[0] == '' and cmp.domains().cells.b[0] == '40.0'

def test_a_part_of_the_images_is_a_lack():
    h = made()
    h.rows[-1] |= dict(n=4)
    assert h.gaps() == ['4 of 10 test images of c in round 2']
    assert Comparison([h]).table().cells.AVG[0] == ''

def test_what_sites_say_they_have_counts():
    "A site that never answered is in no row: only the setting knows it."
    h = made(tests=dict(a=10, b=10, c=10, d=10))
    assert h.gaps() == ['no score of d in round 2'] and math.isnan(h.summary()['AVG'])

@settings(max_examples=25, deadline=None)
@given(st.sets(st.tuples(st.integers(1, 10), st.sampled_from(DOMAINS)), max_size=4))
def test_a_score_of_record_is_whole_or_blank(skip):
    "Whatever is missing: the mean is that of all domains at the three last checks, or there is none."
    h = made(rounds=10, record=True, skip=skip)
    if all((r, d) in skip for r in (6, 8, 10) for d in DOMAINS): return
    h.rows = [r for r in h.rows if r['round'] in (6, 8, 10)]
    lost = {(r, d) for r, d in skip if r in (6, 8, 10)}
    rounds = {r['round'] for r in h.rows}
    asked = {r['domain'] for r in h.rows}
    lacks = any((r, d) not in {(x['round'], x['domain']) for x in h.rows} for r in rounds for d in asked)
    assert bool(h.gaps()) == lacks == math.isnan(h.summary()['AVG'])
    assert not lost or h.gaps('global', DOMAINS) or len(rounds) < 3

@pytest.mark.parametrize('runs,odd', [
    ([made(seed=0), made(seed=1, rounds=4), made(seed=2)], {1}),              # another budget than most
    ([made(seed=0), made('FedBN', rounds=4)], set()),                         # methods may have their own
    ([made(seed=0), made('FedBN', skip=ODD['round'])], {1}),                  # the same budget, ended early
    ([made(seed=0, lr=.1), made(seed=0, lr=.2, rounds=4)], set()),            # one seed at two settings
    ([made(seed=0, skip=[(r, 'a') for r in (1, 2)]),
      made(seed=1, skip=ODD['domain'])], set()),                              # drawn by seed
])
def test_who_is_odd(runs, odd): assert set(unlike(runs, 'global')) == odd

def test_pictures_leave_the_same_runs_out():
    f = finals([made(seed=0), made(seed=1, skip=ODD['round']), made(seed=2)])
    assert f.FedAvg.isna().tolist() == [False, True, False]

@pytest.fixture(scope='module')
def suite(): return cut(load_suite('emoji-pacs', 'tiny'), (16, 24, 40), tests=12)

def only(data, k): return data[(data.y == k).nonzero().flatten()]
def without(data, k): return data[(data.y != k).nonzero().flatten()]

def test_a_client_without_tests_and_a_test_of_one_image_are_said(suite):
    a, b, c = suite.clients
    tests = {a.domain: a.test, c.domain: c.test[:1]}
    poor = replace(suite, clients=[a, replace(b, test=b.test[:0]), c], tests=tests)
    fed = fed_of(FedAvg, poor, rounds=1)
    fed.fit()
    last = Comparison([fed.history]).table().notes[-1]
    assert last.startswith('Odd: ') and f'no test image, so in no mean: {b.domain}' in last
    assert f'{c.domain} (1)' in last
    assert History(fed.history.setting).setting['odd'] == poor.odd()

def test_classes_that_are_missing_are_said(suite):
    a, b, c = suite.clients
    k = int(a.train.y[0])
    name = suite.classes[k]
    lost = replace(suite, tests={d: without(t, k) for d, t in suite.tests.items()})
    assert f'no test image of {name}' in lost.odd()
    poor = [replace(o, train=without(o.train, k)) for o in suite.clients]
    assert f'no training image of {name}' in replace(suite, clients=poor).odd()
    k = int(c.train.y.mode().values)
    one = replace(suite, clients=[replace(a, train=a.train[:1]), b, replace(c, train=only(c.train, k))])
    assert one.odd() == [f'one class only to train on at client {c.id} ({suite.classes[k]})',
                         f'one image only to train on at client {a.id}']

@pytest.mark.parametrize('door', ['datasets', 'rows'])
def test_every_door_says_it(door):
    gen = generator(0, 'x')
    x = torch.randint(0, 255, (24, 3, 16, 16), generator=gen).byte()
    y = torch.tensor([0, 1]*12)
    if door == 'datasets':
        domains = {'A': ((x[:8], y[:8]), (x[8:12], y[8:12])),
                   'B': ((x[12:20], y[12:20]), (x[20:21], y[20:21]))}
        s = Suite.from_datasets(domains, classes=['cat', 'dog', 'eel'])
    else:
        parts = ['train']*8+['test']*4+['train']*8+['test']
        s = Suite.from_rows([(x[i], 'cd'[y[i]], 'AB'[i >= 12], '', parts[i]) for i in range(21)])
    assert 'few test images, and as much of AVG as any other domain: A (4), B (1)' in s.odd()
    if door == 'datasets': assert 'no training image of eel' in s.odd() and 'no test image of eel' in s.odd()

def test_what_is_usual_is_not_odd(suite):
    assert load_suite('emoji-pacs', 'tiny').odd() == [] and suite.iid(0).odd() == []

# ---- what is left out is named at every door

def better(h, by):
    for r in h.rows: r['correct'] = min(10, r['correct']+by)
    return h

def test_a_story_names_the_method_that_lacks_a_seed():
    best = [better(made('FedProx', s, skip=ODD['domain'] if s == 1 else ()), 3) for s in range(3)]
    says = Comparison([*grid().histories, *best]).story('toy')['ahead']
    assert says.startswith('FedBN is first with') and '; not at every seed: FedProx.' in says
    assert 'not at every seed' not in grid().story('toy')['ahead']

def of(data, *args): return made(*args, made_of=dict(data=data) if data else {})

def test_two_suites_of_one_name_are_said():
    alike = [of('x', m, s) for m in ('FedAvg', 'FedBN') for s in range(2)]
    other = [of('y', 'FedProx', s) for s in range(2)]
    for t in (Comparison(alike+other).table(), Comparison(alike+other).domains()):
        assert 'Other images: FedProx, seed 0, 1 (another suite has its name).' in t.notes
    by_seed = [of(f'{s}', m, s) for m in ('FedAvg', 'FedBN') for s in range(2)]
    for runs in (alike, by_seed, [*alike, of('', 'FedProx', 0)]):
        assert not [n for n in Comparison(runs).table().notes if n.startswith('Other')]

# ---- means over what is not alike, said

def test_pairs_are_counted_where_two_methods_have_other_seeds():
    "Four seeds each, two of them shared: the difference is of two."
    cmp = Comparison([made('FedAvg', s) for s in range(4)] + [made('FedBN', s) for s in range(2, 6)])
    cells = cmp.table().cells.set_index('method')
    assert cells.n.tolist() == ['4', '4'] and cells.pairs['FedBN'] == '2'
    assert 'pairs' not in grid().table().cells

def test_seeds_that_lack_other_domains_are_said():
    runs = [made(m, s, skip=[(r, DOMAINS[s]) for r in (1, 2)]) for m in ('FedAvg', 'FedBN') for s in range(3)]
    note, = (n for n in Comparison(runs).table().notes if n.startswith('Means are over other domains'))
    assert 'seed 0 without a; seed 1 without b; seed 2 without c' in note
    assert not any('other domains' in n for n in grid().table().notes)

def test_two_suites_of_one_name_have_two_levels_of_chance():
    runs = [made(seed=s, chance=c) for s, c in ((0, 50.), (1, 25.))]
    assert any(n.startswith('Chance level 25.0 to 50.0 %') for n in Comparison(runs).table().notes)

def test_a_stopped_run_is_said_where_it_counts():
    lost = made('FedBN', 1)
    lost.measures['stopped'] = 'nan'
    claim = Claim('X-1', 'beats', 'made up', 'FedBN', 'FedAvg', gain(), suites=('toy',))
    last = claims_table([claim], grid(lost)).notes[-1]
    assert last.endswith('Counted as 0, for they stopped: FedBN, seed 1.')
    assert 'Counted' not in claims_table([claim], grid()).notes[-1]

def test_a_view_that_a_method_lacks_is_not_run():
    claim = Claim('X-1', 'beats', 'made up', 'FedBN', 'FedAvg', gain(where='personal'), suites=('toy',))
    assert verdicts([claim], grid()).verdict.tolist() == ['not run']
