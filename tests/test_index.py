"The index of the evidence, worked out again from the raw stored runs by plain loops, not the package's."
import json, lzma, math
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean, stdev
import pytest
from scipy.stats import t
from fedskew_nb.analysis.index import GROUNDS, SYSTEMS, Cell, headline
from shipped import stored
from index import families, together

ASSETS = Path(__file__).parent.parent/'fedskew_nb'/'assets'
NEST = json.loads((ASSETS/'evidence.json').read_text())
CELLS = [dict(zip(NEST['fields'], row)) for row in NEST['cells']]
KINDS = 'quick', 'baselines', 'claims', 'sums', 'sights'
FILES = sorted(p.name[:-8] for p in (ASSETS/'runs').glob('*.json.xz')
               if p.name.partition('-')[0] in KINDS and 'pilots' not in p.name)
KEY = 'suite', 'size', 'rounds', 'steps', 'epochs'
VIEW = {'own domain': 'personal', 'one model': 'global', 'new domain': 'unseen'}
MOMENT = dict(received='post_agg', trained='post_local')
_RUNS = {}

def runs(file):
    "Of a file; an old run says its deal in the suite's name."
    if file not in _RUNS:
        _RUNS[file] = json.loads(lzma.decompress((ASSETS/'runs'/f'{file}.json.xz').read_bytes()))['runs']
        for s in (r['setting'] for r in _RUNS[file]):
            suite, _, deal = s['suite'].partition('/')
            if 'deal' not in s: s.update(suite=suite, deal=deal or 'skew')
    return _RUNS[file]

def budget(s): return s['suite'], s.get('size'), s['rounds'], s.get('local_steps'), s.get('local_epochs')

def of(cell): return tuple(cell[k] for k in KEY)

def by_domain(run, view, moment):
    "({domain: right}, {domain: n}) of the last check, by the answer that tables show."
    rows = [r for r in run['rows'] if (r['view'], r['moment']) == (view, moment)]
    if not rows: return {}, {}
    last, paths = max(r['round'] for r in rows), {r['path'] for r in rows}
    path = next((p for p in ('', 'client') if p in paths), None)
    right, n = Counter(), Counter()
    for r in rows:
        if (r['round'], r['path']) != (last, path): continue
        right[r['domain']] += r['correct']
        n[r['domain']] += r['n']
    return right, n

def share(right, n): return {d: right[d]/n[d] for d in n}

def scores_of(file, cell):
    """{(deal, method): {seed: ({domain: share}, {domain: n}, domains of any round)}} of the cell's budget.

    A file without bases has those of the results."""
    mine = [r for r in runs(file) if budget(r['setting']) == of(cell)]
    if not {'FedAvg', 'Local'} & {r['setting']['method'] for r in runs(file)}:
        mine += [r for r in runs('quick-2026-11-25') if budget(r['setting']) == of(cell)
                 and r['setting']['method'] in ('FedAvg', 'Local') and r['setting']['deal'] == 'skew']
    found = defaultdict(dict)
    for r in mine:
        where = VIEW[cell['question']], MOMENT[cell['moment']]
        s, (right, n) = r['setting'], by_domain(r, *where)
        ever = {o['domain'] for o in r['rows'] if (o['view'], o['moment']) == where}
        if n: found[s['deal'], s['method']][s['seed']] = share(right, n), n, ever
    return found

def expected(cell, scores):
    "(n, mean, se, lo, hi, seeds) by hand, with what the test images leave open."
    method, _, iid = cell['method'].partition(', IID')
    one, other = scores['iid' if iid else 'skew', method], scores['skew', cell['over']]
    seeds = sorted(one.keys() & other)
    points = [100*(fmean(one[s][0].values())-fmean(other[s][0].values())) for s in seeds]
    variance, least = 0., 0.
    for s in seeds:
        (a, n, _), (b, m, _) = one[s], other[s]
        for d in a:
            p, k = abs(a[d]-b[d]), min(n[d], m[d])
            variance += p*(1-p)/k/len(a)**2
            least = max(least, .5/len(a)/k)
    return interval(points, 100*max(variance**.5, least)/len(seeds)) + (seeds,)

def interval(points, floor=0.):
    n, mean = len(points), fmean(points)
    if n == 1: return n, mean, None, None, None
    se = max(stdev(points)/n**.5, floor)
    half = t.ppf(.975, n-1)*se
    return n, mean, se, mean-half, mean+half

def numbers(cell): return tuple(cell[k] for k in ('n', 'mean', 'se', 'lo', 'hi'))

def same(got, wanted):
    for g, w in zip(got, wanted, strict=True):
        assert (g is None and w is None) or g == pytest.approx(w, abs=2e-6)

def scored(cell):
    "Is it read off rows of scores, and of one suite?"
    return cell['moment'] in MOMENT and ', one domain' not in cell['suite']

@pytest.mark.parametrize('file', FILES)
def test_every_cell_of_rows_is_what_the_runs_say(file):
    mine = [c for c in CELLS if c['file'] == file and scored(c)]
    groups = defaultdict(list)
    for c in mine: groups[of(c), c['question'], c['moment']].append(c)
    assert len(groups) >= 2
    for cells in groups.values():
        scores = scores_of(file, cells[0])
        for c in cells:
            *wanted, seeds = expected(c, scores)
            same(numbers(c), wanted)
            assert c['seeds'] == seeds

@pytest.mark.parametrize('file', FILES)
def test_no_pair_of_rows_is_left_out(file):
    "As many cells as pairs of a method with FedAvg or Local that share a seed, on suites that are no family."
    keys = {budget(r['setting']) for r in runs(file)}
    alone = [k for k in keys if sum(k[0].partition('-without-')[:2] == o[0].partition('-without-')[:2]
                                    and k[1:] == o[1:] for o in keys) == 1 or '-without-' not in k[0]]
    count = sum(pairs(file, k, question, moment) for k in alone for question in VIEW for moment in MOMENT)
    assert count == sum(c['file'] == file and scored(c) for c in CELLS)

def pairs(file, key, question, moment):
    "A score of record has all domains; where only some clients train, those after training have not."
    probe = dict(zip(KEY, key)) | dict(question=question, moment=moment)
    scores, count = scores_of(file, probe), 0
    of_seed = defaultdict(set)
    for own in scores.values():
        for s, (*_, ever) in own.items(): of_seed[s] |= ever
    every = set().union(*of_seed.values())
    mine = {r['setting']['method'] for r in runs(file)}
    if every not in of_seed.values(): every = None          # each seed has its own
    for over in ('FedAvg', 'Local'):
        for (deal, m), own in scores.items():
            if m in {'FedAvg', 'Local'} - mine or (deal, m) == ('skew', over): continue
            if deal != 'skew' and (m, question) != ('FedAvg', 'one model'): continue
            base = scores.get(('skew', over), {})
            both = {s: own[s][0].keys() & base[s][0].keys() for s in own.keys() & base}
            whole = [s for s, d in both.items() if moment != 'trained' or d == (every or of_seed[s])]
            count += bool(whole)
    return count

# ---- measures of newcomers

def newcomers(rounds):
    "{method: {seed: {domain: measures}}} of the family of emoji-pacs."
    found = defaultdict(lambda: defaultdict(dict))
    for r in runs('claims-FDSE'):
        s = r['setting']
        base, _, domain = s['suite'].partition('-without-')
        if (base, s['rounds']) == ('emoji-pacs', rounds) and domain:
            found[s['method']][s['seed']][domain] = r['measures']
    return found

READ = {('received', ''): ('plain', 'plain'), ('re-estimated', ''): ('restated', 'restated'),
        ('received', ' + AdaBN'): ('restated', 'plain'), ('adapted', ''): ('adapted', 'plain')}

@pytest.mark.parametrize('rounds', [24, 4])
def test_a_new_style_is_the_mean_over_styles(rounds):
    runs_of, done = newcomers(rounds), 0
    asked = ('claims-FDSE', 'new domain', rounds, 'emoji-pacs, one domain left out', 'FedAvg')
    cells = [c for c in CELLS
             if tuple(c[k] for k in ('file', 'question', 'rounds', 'suite', 'over')) == asked]
    for c in cells:
        for (moment, added), (mine, theirs) in READ.items():
            method = c['method'].removesuffix(added)
            if c['moment'] != moment or added != ' + AdaBN'*c['method'].endswith(' + AdaBN'): continue
            one, other = runs_of[method], runs_of['FedAvg']
            seeds = sorted(s for s in one.keys() & other if len(one[s]) == len(other[s]) == 4)
            points = [fmean(one[s][d][mine]-other[s][d][theirs] for d in one[s]) for s in seeds]
            same(numbers(c), interval(points))
            assert c['seeds'] == seeds
            done += 1
    assert done == len(cells) >= 6

# ---- sets of the plan, whose scores by seed stand in plan.json (recomputed in test_evidence_verdicts)

SETS = json.loads((ASSETS/'plan.json').read_text())['sets']
PLANNED = [c for c in CELLS if c['file'] == 'plan']

def scores_by_seed(name, method, moment, view='personal'):
    s, iid = SETS[name], 'FedAvg, IID split'
    if method == 'FedAvg + AdaBN': method, moment = 'FedAvg', 're-estimated'
    row = iid if method == iid else next(n for n, m in s['methods'].items() if m == method)
    return s['rows'][row][f'{view} {moment}']

@pytest.mark.parametrize('c', PLANNED, ids=lambda c: f'{c["size"]}-{c["method"]}-{c["moment"]}-{c["over"]}')
def test_a_cell_of_the_plan_is_a_row_less_its_base_in_one_set(c):
    "At one moment; on PACS the interval is of new pictures, wider than that of the seeds."
    view = 'global' if c['question'] == 'one model' else 'personal'
    one, other = (scores_by_seed(c['size'], c[k], c['moment'], view) for k in ('method', 'over'))
    by_hand = interval([one[k]-other[k] for k in one])
    assert list(map(str, c['seeds'])) == [*one] == [*other] and numbers(c)[0] == by_hand[0]
    assert c['mean'] == pytest.approx(by_hand[1], abs=1e-3)
    if c['suite'] != 'pacs' or view == 'global': assert numbers(c)[2:] == pytest.approx(by_hand[2:], abs=3e-3)
    else: assert c['lo'] <= by_hand[3]+2e-3 and by_hand[4]-2e-3 <= c['hi']
    assert c['suite'] == (SETS[c['size']]['photographs'] or c['suite'])

def test_no_whole_row_of_the_plan_is_left_out():
    "But FedAvg at a rate of its own, which stands in 'best against best' alone."
    def is_whole(s, row): return len(s['rows'].get(row, {}).get('personal received', ())) == s['wanted'][row]
    wanted = set()
    for name, s in SETS.items():
        whole = {method for row, method in s['methods'].items() if is_whole(s, row)}
        if 'FedAvg' in whole: wanted |= {(name, m) for m in whole-{'FedAvg'} | {'FedAvg + AdaBN'}}
    asked = 'received', 'FedAvg', 'own domain'
    mine = {(c['size'], c['method']) for c in PLANNED if (c['moment'], c['over'], c['question']) == asked}
    assert wanted == mine

# ---- the whole

def test_every_file_with_verdicts_is_in_it():
    assert sorted({c['file'] for c in CELLS}) == sorted([*FILES, 'plan'])

def test_a_cell_stands_once():
    key = [tuple(str(c[k]) for k in ('file', *KEY, 'question', 'moment', 'method', 'over')) for c in CELLS]
    assert len(key) == len(set(key))

@pytest.mark.parametrize('file', FILES)
def test_methods_and_seeds_are_those_of_the_runs(file):
    stored = {(r['setting']['method'], r['setting']['seed']) for r in runs(file)}
    names, mine = {m for m, _ in stored}, [c for c in CELLS if c['file'] == file]
    for c in mine:
        name = c['method'].removesuffix(', IID split')
        if name not in names: name = name.removesuffix(' + AdaBN')
        assert {(name, s) for s in c['seeds']} <= stored
        assert len(c['seeds']) == c['n'] and c['lo'] is None or c['lo'] <= c['mean'] <= c['hi']

def test_numbers_have_six_digits():
    for c in CELLS: assert all(v is None or v == round(v, 6) and not math.isnan(v) for v in numbers(c)[1:])

def test_the_package_reads_it_and_writes_it_again():
    from fedskew_nb.analysis.index import evidence
    from index import index_text, verdict_files
    assert index_text(evidence()) == (ASSETS/'evidence.json').read_text()
    assert sorted(verdict_files()) == FILES

@pytest.mark.parametrize('file', ['sums-2026-11-25', 'sights-2026-11-25'])
def test_the_tool_would_write_the_same(file):
    "Of the short files; the tables' p by Holm's rule with them."
    from fedskew_nb.analysis.index import evidence
    from index import cells_of, index_text
    assert index_text(cells_of(file)) == index_text([c for c in evidence() if c.file == file])

def test_the_best_has_most_seeds_then_rounds():
    from fedskew_nb.analysis.index import best, found
    asked = dict(suite='context-vehicles', question='new domain', moment='received', over='FedAvg')
    cells = found(method='FedDDL', **asked)
    assert len(cells) > 1 and (best(cells).n, best(cells).rounds) == max((c.n, c.rounds) for c in cells)
    assert best([]) is None

def test_its_words_are_those_of_the_tables():
    from fedskew_nb.analysis.index import RESULTS, found
    cmp = stored(RESULTS)
    for suite in cmp.suites:
        for question, view in (('own domain', 'personal'), ('one model', 'global')):
            for r in cmp.statistics(view, suite).dropna(subset='diff').itertuples():
                cell, = found(file=RESULTS, suite=suite, question=question, moment='received', over='FedAvg',
                              method=r.method.partition(' [')[0])
                assert (cell.verdict, cell.n) == (r.verdict, r.pairs)
                assert cell.mean == pytest.approx(r.diff, abs=1e-6)

def test_a_family_is_the_mean_of_its_suites_over_shared_seeds():
    both, alone = [{0: 1., 1: 2.}, {1: 4., 2: 9.}], [{0: 1.}, {1: 2.}]
    assert together(both)[1].values == (3.,) and together(alone) is None
    named = families(['a-without-x', 'a-without-y', 'b-without-x'])
    assert [*named] == ['a, one domain left out', 'b-without-x']

# ---- the headline, from cells that are made up

def plan_cell(suite, method, mean, half, moment='re-estimated', set_='', question='own domain'):
    set_, lo, hi = set_ or GROUNDS[suite][2][0], mean-half, mean+half
    above = 'yes' if lo > 0 else 'below' if hi < 0 else 'open'
    facts = question, moment, method, '', 'FedAvg', 8, mean, half/2.4, lo, hi, math.nan, above, (1, 2)
    return Cell('plan', '', suite, set_, 1, 1, 1, *facts)

def ground(suite, systems=(-.5, .2), iid=(-.2, .5), cost=(6., 1.)):
    "What a ground has: its systems, the IID split re-estimated, the cost of the skew."
    made = [plan_cell(suite, m, *systems) for m in SYSTEMS if m != 'FedDDL']
    if iid: made.append(plan_cell(suite, 'FedAvg, IID split', *iid))
    return made + [plan_cell(suite, 'FedAvg, IID split', *cost, moment='received', question='one model')]

OTHERS = [c for suite in ('office', 'emoji-pacs') for c in ground(suite)]

@pytest.mark.parametrize('systems, says', [
    ((2., .5), 'on PACS behind a frozen pretrained body F2DC was, by 2.0 (1.5 to 2.5), FDSE was'),
    ((-2., .5), 'On PACS behind a frozen pretrained body, on Office-Caltech-10 from scratch and on '),
    ((.3, .5), 'no system was shown above FedAvg when both had their BatchNorm statistics re-estimated '
               '(largest upper limit: F2DC on PACS, +0.8)')])
def test_the_headline_says_who_is_above_below_or_open(systems, says):
    "On one ground; on the two others nobody is above."
    text = headline(ground('pacs', systems)+OTHERS)
    assert says in text and 'first rule' not in text and 'not run' not in text

@pytest.mark.parametrize('iid, says', [
    ((-.2, .5), 'the whole cost of the skew is given back on PACS, -0.2 (-0.7 to 0.3), Office'),
    ((.8, .1), 'the whole cost of the skew is given back on PACS, +0.8 (0.7 to 0.9), Office'),
    ((2., .5), 'a part of the cost is left on PACS, +2.0 (1.5 to 2.5)'),
    ((.5, .9), 'how much is left is open on PACS, +0.5 (-0.4 to 1.4)'),
    (None, 'Of PACS the IID split was not re-estimated yet.')])
def test_the_whole_cost_is_given_back_only_where_iid_lies_less_than_a_point_above(iid, says):
    assert says in headline(ground('pacs', iid=iid)+OTHERS)

def test_the_headline_says_which_ground_is_missing_where_there_is_little_to_cure_and_which_rates_are_old():
    text = headline(OTHERS)
    assert 'on PACS behind a frozen pretrained body no system was run' in text and 'PACS, below' not in text
    text = headline(ground('pacs', cost=(1.5, .7))+OTHERS)
    assert 'On PACS the skew costs 1.5 (0.8 to 2.2), below our gate of 3 points.' in text
    old = [plan_cell('pacs', 'F2DC', 1., .2, set_='P1')]
    assert 'Rates on PACS are of the first rule' in headline(old+OTHERS)
    new = plan_cell('pacs', 'F2DC', -1., .2)
    assert 'F2DC was' not in headline([*old, new, *OTHERS])        # the amended set counts first
