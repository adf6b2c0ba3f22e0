"An interval is one value: no screen judges one pair in two ways, none is surer than the test images."
import re
from copy import deepcopy
from functools import lru_cache
from types import SimpleNamespace
import numpy as np, pytest
from scipy import stats
from fedskew_nb.analysis.claims import claims_of, verdicts
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.analysis.overview import stored_names
from fedskew_nb.analysis.pairs import image_error, pair
from fedskew_nb.analysis.report import last_screen, write_report
from fedskew_nb.analysis.stats import holm, t_interval
from fedskew_nb.analysis.story import facts_of, main_view
from fedskew_nb.analysis.index import RESULTS, Asked, above
from fedskew_nb.tools.choose import pays
from fedskew_nb.tools.cli import stored_beside
from fedskew_nb.tools.questions import difference
from shipped import stored
from test_story import BASE, FEDAVG, runs

# ---- the value

def test_the_printer():
    i = t_interval([4, 6, 11])
    assert [f'{i:}', str(i), f'{i:+.2}', f'{i:+ points}'] == [
        '7.0 (-2.0 to 16.0)', '7.0 (-2.0 to 16.0)', '+7.00 (-1.96 to 15.96)', '+7.0 points (-2.0 to 16.0)']
    assert [f'{t_interval([-.04]):+}', f'{t_interval([2.])}'] == ['+0.0', '2.0']

def test_as_of_a_dict_until_0_3():
    i = t_interval([4, 6, 11])
    with pytest.warns(FutureWarning, match=r'interval\.mean since 0\.2'):
        assert i['mean'] == i.mean == 7
    assert list(i.as_dict()) == ['n', 'mean', 'se', 'lo', 'hi']

@pytest.mark.parametrize('seed', range(60))
def test_the_sign_is_that_of_the_interval_and_of_p(seed):
    g = np.random.default_rng(seed)
    d, p = g.normal(g.normal(0, 4), 2, g.integers(2, 9)).round(seed % 3), g.choice([.01, .2])
    i = t_interval(d)
    by_itself = 0 if np.ptp(d) < 1e-9 else int(i.lo > 0)-int(i.hi < 0)
    assert i.sign() == by_itself and i.sign(p) == (by_itself if p < .05 else 0)
    assert t_interval([-v for v in d]).sign() == -i.sign()
    assert i.verdict(p=p).above == {1: 'yes', -1: 'below', 0: 'open'}[i.sign(p)]

# ---- never surer than the images

def test_two_seeds_that_differ_by_the_same_image_are_open():
    "One of 36, on one domain; by hand: p(1 − p)/36 of each seed, over two seeds."
    p = 1/36
    assert image_error([[(p*(1-p), 36)]]*2) == pytest.approx(100*(p*(1-p)/36/2)**.5)
    for d in ([100*p]*2, [100*p, 100*p+1e-6], [100*p, 100*p+.01]):
        assert t_interval(d, floor=image_error([[(p*(1-p), 36)]]*2)).sign() == 0

def test_where_nothing_differs_half_an_image_is_left():
    "Of two domains with 60 and 20 images and three seeds: the image of the smaller weighs 1/40 of a seed."
    assert image_error([[(0, 60), (0, 20)]]*3) == pytest.approx(100*.5/20/2/3)

@pytest.mark.parametrize('seed', range(40))
def test_a_comparison_is_no_surer_than_its_images(seed):
    "By plain loops over the right answers of two domains of 40 images."
    g, hs = np.random.default_rng(seed), []
    near = g.integers(0, 41, 2)                                     # every second time the seeds are near
    pairs = [tuple(np.clip(near+g.integers(-1, 2, 2), 0, 40) if seed % 2 else g.integers(0, 41, 2))
             for _ in range(g.integers(2, 6))]
    for s, (k, other) in enumerate(pairs):
        for m, right in (('FedAvg', 20), ('A', None)):
            h, = runs(m, 50, views=('global',))
            h.setting['seed'] = s
            for r in h.rows: r.update(n=40, correct=right or (k if r['domain'] == 'a' else other))
            hs.append(h)
    i = Comparison(hs).paired('toy', ('skew', 'A'))
    values = [100*((k-20)/40+(o-20)/40)/2 for k, o in pairs]
    variance = 0.
    for k, o in pairs:
        for right in (k, o):
            apart = abs(right-20)/40
            variance += apart*(1-apart)/40/4
    least = max(100*variance**.5/len(pairs), 100*.5/40/2/len(pairs))
    assert i.se == pytest.approx(max(stats.sem(values), least)) and i.mean == pytest.approx(np.mean(values))

def test_other_columns_go_by_the_seeds_alone():
    i = Comparison(FEDAVG + runs('A', 62, 63.9, 60.1)).paired('toy', ('skew', 'A'), column='ALL')
    assert i.se == pytest.approx(stats.sem([2, 1.9, 2.1]))

def test_a_diagnosis_is_no_surer_than_its_pictures():
    "Ten of 100 pictures more right in each of three seeds, which alone would leave no doubt."
    def share(k): return dict(here=np.r_[np.ones(k), np.zeros(100-k)])
    one, nothing = {s: share(k) for s, k in enumerate((9, 10, 11))}, {s: share(0) for s in range(3)}
    i = difference(one, nothing, dict(here=10**6))
    assert i.se == pytest.approx(100*sum(p*(1-p)/100 for p in (.09, .1, .11))**.5/3)

# ---- one family

def test_the_tables_column_is_holms():
    c = Comparison(FEDAVG + runs('A', 62.1, 64.9, 61.5) + runs('B', 60.3, 61.9, 58.2) + runs('C', 59, 62, 59))
    s = c.statistics('global').set_index('method')
    p = [2*stats.t.sf(abs(r['diff'])/r.diff_se, 2) for _, r in s.loc[['A', 'B', 'C']].iterrows()]
    assert s.holm[['A', 'B', 'C']].tolist() == pytest.approx(holm(p)) and np.isnan(s.holm['FedAvg'])
    assert any("Holm's rule over the 3 methods beside FedAvg" in n for n in c.table('global').notes)

def test_a_control_is_judged_alone():
    few, many = (Comparison(hs).statistics('global').set_index('method').verdict['FedAvg, IID split']
                 for hs in (BASE, BASE + sum((runs(m, 60.3, 61.9, 58.2) for m in 'ABCDEFGH'), [])))
    assert few == many == 'above 0'

# ---- no screen gives a pair two verdicts

WORDS = {'above 0': True, 'below 0': True, 'open': False, 'open by Holm': False}

def said(cmp, suite, view, method):
    "Is a method's difference to FedAvg told from 0, as the printed table says? None: there is no such row."
    cells = cmp.table(view, suite).cells
    if 'difference' not in cells: return None
    row = cells[[name.partition(' [')[0] == method for name in cells.method]]
    return WORDS[row.difference.iloc[0]] if len(row) and row.difference.iloc[0] else None

def one_verdict(cmp, suite):
    "Every sentence of the story beside the table under it."
    cmp.table = lru_cache(None)(cmp.table)      # read again and again, changed by nobody
    story = cmp.story(suite)
    if list(story) == ['next']: return
    view, facts = main_view(cmp, suite), facts_of(cmp, suite)
    for f in facts['ahead'][1:]:
        if 'FedAvg' not in (f.one, f.other) or f.where.moment != 'post_agg': continue
        table = said(cmp, suite, view, f.one if f.other == 'FedAvg' else f.other)
        assert table == WORDS[f.word] == f.sure
        assert f.interval.n == 1 or f'over {f.other} by {f.interval: points}, {f.word}' in story['ahead']
    each = {f.one: f for f in facts['federating']}
    if 'FedAvg' in each:
        pays = re.match('Federating pays with .*FedAvg.*:', story['federating'].partition(': ')[0]+':')
        table = said(cmp, suite, 'personal', 'Local')
        if pays or 'does not pay' in story['federating']: assert table
        if table and each['FedAvg'].interval.mean > 0: assert pays
    if suite in cmp.skew_cost():
        word, = [n for n in cmp.table('global', suite).notes if n.startswith('Skew cost')]
        head = story['skew'].startswith(('The skew costs accuracy', 'The skew costs nothing'))
        told = word.endswith((': above 0.', ': below 0.'))
        assert head == told == said(cmp, suite, 'global', 'FedAvg, IID split')

METHODS = ('FedBN', 'Local', 'A', 'B', 'C')

@pytest.mark.parametrize('seed', range(80))
def test_story_and_table_agree_on_generated_runs(seed):
    "Effects and spreads of all sizes, so that many p lie on both sides of .05."
    g = np.random.default_rng(seed)
    n, many = g.integers(1, 5), g.integers(1, 6)
    base = 60 + g.normal(0, 2, n)
    def off(): return base + g.normal(g.normal(0, 3), g.choice([.1, .5, 2.]), n)
    hs = runs('FedAvg', *base) + runs('FedAvg', *off(), deal='iid')
    for m in METHODS[:many]: hs += runs(m, *off(), **(dict(views=('personal',)) if m in METHODS[:2] else {}))
    one_verdict(Comparison(hs), 'toy')

@pytest.mark.parametrize('name', sorted(stored_names()))
def test_story_and_table_agree_on_stored_runs(name):
    cmp = Comparison(stored(name).histories)
    for suite in cmp.suites: one_verdict(cmp, suite)

def test_a_pair_has_one_p_from_both_sides():
    cmp = stored(RESULTS)
    for suite in cmp.suites:
        for one, other in (('FDSE', 'FedAvg'), ('FedAvg', 'Local'), ('FedBN', 'Local'), ('FedBN', 'FDSE')):
            i, p, n = pair(cmp, suite, one, other, 'personal')
            j, q, m = pair(cmp, suite, other, one, 'personal')
            assert (i.mean, p, n) == (-j.mean, q, m)

def test_choose_judges_as_the_table_and_the_story():
    results, local = Comparison(stored(RESULTS).histories), Asked(over='Local')
    results.table = lru_cache(None)(results.table)
    for suite in results.suites:
        for f in facts_of(results, suite)['federating']:
            cell = above(f.one, local)[suite]
            i, p, family = pair(results, suite, f.one, 'Local', 'personal')
            assert (cell.verdict, f'{cell}') == (f.word, f'{f.interval:+}') == (str(i.verdict(p=p)), f'{i:+}')
            assert cell.p == pytest.approx(p, abs=1e-6) and f.family == family
        for m in (m for m in results.methods if m != 'FedAvg' and suite in above(m)):
            assert WORDS[above(m)[suite].verdict] == said(results, suite, 'personal', m)
    assert pays(SimpleNamespace(name='FedBN')) and not pays(SimpleNamespace(name='Local'))

@pytest.mark.parametrize('id, view', [
    ('F2DC-01', 'global'), ('FDSE-01a', 'personal'), ('FDSE-02a', 'personal')])
def test_a_page_of_claims_and_the_results_give_one_verdict(id, view):
    "The same runs, among a paper's claims and among the methods of a table."
    paper = id.partition('-')[0]
    claim, = (c for c in claims_of()[paper] if c.id == id)
    there = verdicts([claim], stored(f'claims-{paper}')).iloc[0]
    i, p, _ = pair(stored(RESULTS), 'emoji-pacs', claim.one, claim.other, view)
    assert there['mean'] == pytest.approx(i.mean) and there.above == i.verdict(p=p).above

def test_stored_seeds_stand_beside_a_run_that_was_trained_alike():
    "And nowhere else: not beside themselves, nor beside another length or another suite."
    ours = stored(RESULTS)
    def of(seeds, **changed):
        ids = {(seed, 'emoji-pacs') for seed in seeds}
        runs = deepcopy([h for h in ours.histories if (h.setting['seed'], h.setting['suite']) in ids])
        for h in runs: h.setting |= changed
        return Comparison(runs)
    line = f"emoji-pacs: on the package's {len(ours.seeds)} stored seeds the skew cost is " \
           f"{ours.skew_cost()['emoji-pacs']: points}."
    assert stored_beside(of({0, 1, 2})).strip() == line
    none = of({0, 1}, rounds=48), of({0, 1}, suite='mine'), of({0, 1}, model='resnet10'), ours
    assert not any(stored_beside(c).strip() for c in none)

def test_the_report_says_what_the_terminal_says(tmp_path, unsaved):
    cmp = Comparison(BASE + runs('A', 62.1, 64.9, 61.5) + runs('B', 60.3, 61.9, 58.2))
    page, screen = write_report(cmp, tmp_path)['report.html'].read_text(), last_screen(cmp)
    for text in cmp.story().values(): assert text in screen
    rows = re.findall(r'<td>(A|B|Local)</td>.*?<td>(above 0|below 0|open)</td>', page, re.S)
    tables = [cmp.table(v).cells.set_index('method').difference for v in ('global', 'personal')]
    assert rows and all(word in [t.get(m) for t in tables] for m, word in rows)
