"The tables of the page of results, once more from the raw runs, by a script without a line of the package."
import json, lzma, re
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev

import pytest
from scipy.stats import t

HOME = Path(__file__).parent.parent
RUNS = HOME/'fedskew_nb'/'assets'/'runs'/'quick-2026-11-25.json.xz'
MORE = RUNS.with_name('baselines-2026-11-25.json.xz')
PAGE = HOME/'nbs'/'3_results'/'01_results.ipynb'

def averages(view, moment, suite, file=RUNS):
    "{line: {seed: AVG}}; a line of the table is a method, with its deal or its path where it has one."
    found = defaultdict(dict)
    for run in json.loads(lzma.decompress(file.read_bytes()))['runs']:
        s, last = run['setting'], max(r['round'] for r in run['rows'])
        if s['suite'] != suite: continue
        rows = [r for r in run['rows'] if (r['round'], r['view'], r['moment']) == (last, view, moment)]
        path = next((p for p in ('', 'client') if any(r['path'] == p for r in rows)), None)
        by_domain = defaultdict(lambda: [0, 0])
        for r in rows:
            if r['path'] != path: continue
            by_domain[r['domain']][0] += r['correct']
            by_domain[r['domain']][1] += r['n']
        name = s['method'] + (', IID split' if s['deal'] == 'iid' else '') + (f' [{path}]' if path else '')
        if by_domain: found[name][s['seed']] = fmean(100*c/n for c, n in by_domain.values())
    return found

def interval(mine, base):
    "Mean paired difference over the seeds of `mine`, and its 95 % interval."
    d = [mine[s]-base[s] for s in sorted(mine)]
    half = t.ppf(.975, len(d)-1)*stdev(d)/len(d)**.5
    return fmean(d), fmean(d)-half, fmean(d)+half

def cell(mine, base):
    "mean ± standard error (difference; its 95 % interval), as the page writes it."
    text = f'{fmean(mine.values()):.1f} ± {stdev(mine.values())/len(mine)**.5:.1f}'
    if mine == base: return text
    mean, lo, hi = interval(mine, base)
    return f'{text} ({mean:+.1f}; {lo:.1f} to {hi:.1f})'

def printed(head, suite):
    "{line: cell} of a suite in the table on the page that has this head."
    cells = json.loads(PAGE.read_text())['cells']
    outputs = (o for c in cells for o in c.get('outputs', ()))
    shown = (''.join(o.get('data', {}).get('text/markdown', '')) for o in outputs)
    table = next(x for text in shown for x in text.split('\n### ') if f'\n**{head}' in f'\n{x}')
    names, _, *rows = [re.split(r' *\| *', line)[1:-1] for line in table.splitlines() if line.startswith('|')]
    column = names.index(suite)
    return {row[0]: row[column] for row in rows if row[column]}

@pytest.mark.parametrize('suite', ['emoji-pacs', 'colored-mnist'])
@pytest.mark.parametrize('head,view,moment', [
    ('personal view: each client\'s own model on its own domain, after aggregation', 'personal', 'post_agg'),
    ('personal view: each client\'s own model on its own domain, after local', 'personal', 'post_local'),
    ('global view', 'global', 'post_agg')])
def test_the_table_is_what_the_runs_say(head, view, moment, suite):
    mine, page = averages(view, moment, suite), printed(head, suite)
    assert len(page) >= 4 and {len(v) for v in mine.values()} == {8}
    assert {name: cell(mine[name], mine['FedAvg']) for name in page} == page

def test_which_further_baselines_are_above_on_both_suites():
    "The page's sentence under the table of further baselines."
    above = []
    for suite in ('emoji-pacs', 'colored-mnist'):
        base = averages('personal', 'post_agg', suite)['FedAvg']
        more = {m: v for m, v in averages('personal', 'post_agg', suite, MORE).items() if m != 'FedAvg'}
        assert len(more) >= 14 and {len(v) for v in more.values()} == {3}
        above.append({m for m, v in more.items() if interval(v, base)[1] > 0})
    assert above[0] & above[1] == {'SiloBN', 'FedCCRL'}
    assert 'On both suites SiloBN and FedCCRL are higher than FedAvg' in PAGE.read_text()
