"""Write what the package is asked about its methods: after runs are stored, or a method is new or changed.

    python tests/tools/index.py

fedskew_nb/assets/evidence.json is the index of all that the stored runs give, facts.json what each method
shows when it is tried.
"""
import json, math
from collections.abc import Iterable
from dataclasses import asdict, fields
from importlib.resources import files
from fedskew_nb.analysis.comparison import DEALS, Comparison
from fedskew_nb.analysis.overview import stored_names, stored_results
from fedskew_nb.analysis.index import RESULTS, Cell, kind_of
from fedskew_nb.analysis.pairs import BASES, is_scored, pair
from fedskew_nb.analysis.stats import t_interval
from fedskew_nb.core.names import papers
from fedskew_nb.engine.reading import Where
from fedskew_nb.engine.history import History
from fedskew_nb.tools.choose import candidates, seen_of

# ---- which files: all that hold verdicts, no pilots

PAGES = {'quick': '3_results/01_results', 'baselines': '3_results/01_results', 'sums': '3_results/04_sums',
         'sights': '3_results/29_sights', 'claims': ''}      # kind of file: its page, in the order of trust

def verdict_files()->list:
    "Stored comparisons that verdicts are read off."
    names = [n for n in stored_names() if kind_of(n) in PAGES and 'pilots' not in n]
    return sorted(names, key=lambda n: [*PAGES].index(kind_of(n)))

# ---- only runs of one length on images of one size are compared

BUDGET = 'suite', 'size', 'rounds', 'local_steps', 'local_epochs'

def budget_key(h:History)->tuple: return tuple(h.setting.get(k) for k in BUDGET)

def groups(name:str)->dict: # {the rest of a budget: {suite: Comparison}}
    "The runs of a file that may be compared with one another."
    cmp, by, out = stored_results(name), {}, {}
    for h in cmp.histories: by.setdefault(budget_key(h), []).append(h)
    bases = () if {*BASES} & {*cmp.methods} else stored_results(RESULTS).histories
    for h in bases:
        mine = h.setting['method'] in BASES and h.setting['deal'] == 'skew' and budget_key(h) in by
        if mine: by[budget_key(h)].append(h)
    for (suite, *rest), runs in by.items(): out.setdefault(tuple(rest), {})[suite] = Comparison(runs)
    return out

# ---- differences of a group

QUESTIONS = {'own domain': 'personal', 'one model': 'global', 'new domain': 'unseen'}      # question: view
MOMENTS = {'received': 'post_agg', 'trained': 'post_local', 're-estimated': 'adabn'}

def differences(cmp, suite:str, where:Where): # (method, path, base, seeds, i, p)
    "Every method above FedAvg and above Local."
    s = cmp.scores(where)
    s = s[(s.suite == suite) & s.AVG.notna()]
    paths = {(r.deal, r.method): r.path for r in s.itertuples()}
    scores = {k: dict(zip(g.seed, g.AVG)) for k, g in s.groupby(['deal', 'method'], sort=False)}
    iid = 'iid', 'FedAvg'
    def seeds(one, base): return sorted(scores[one].keys() & scores['skew', base])
    for base in BASES:
        if where.view == 'global' and (i := cmp.paired(suite, iid, ('skew', base), where)):
            yield 'FedAvg'+DEALS['iid'], paths[iid], base, seeds(iid, base), i, math.nan
        for one in (k for k in scores if k[0] == 'skew' and k[1] != base):
            if found := pair(cmp, suite, one[1], base, where):
                yield one[1], paths[one], base, seeds(one, base), *found[:2]

def together(by_suite:list)->tuple|None: # of {seed: points}; (seeds, Interval, nan)
    "The mean over suites, for the seeds that all have."
    seeds = sorted(set.intersection(*map(set, by_suite)))
    if not seeds: return None
    return seeds, t_interval(sum(f[s] for f in by_suite)/len(by_suite) for s in seeds), math.nan

# ---- what a run measured itself

def own_restated(h:History)->float|None:
    "AVG on the own domain, statistics re-estimated."
    m = h.measures
    return m.get('own_restated', None if 'plain' in m else m.get('restated'))

def newcomer(key:str): return lambda h: h.measures.get(key) if 'plain' in h.measures else None

MEASURED = [    # question, moment, path, added to the name, of the method, of the other
    ('own domain', 're-estimated', '', '', own_restated, own_restated),
    ('new domain', 'received', '', '', newcomer('plain'), newcomer('plain')),
    ('new domain', 're-estimated', 'newcomer', '', newcomer('restated'), newcomer('restated')),
    ('new domain', 'received', 'newcomer', ' + AdaBN', newcomer('restated'), newcomer('plain')),
    ('new domain', 'adapted', 'newcomer', '', newcomer('adapted'), newcomer('plain'))]

def measured(runs:list)->list:
    "Those that no row says: since 0.2 rows have the own domain, re-estimated."
    return MEASURED[any(is_scored(h, Where('personal', 'adabn')) for h in runs):]

def measured_cells(cmp, suite:str): # as scored_cells, p is nan
    "Of a suite, from measures of the skewed deal."
    runs = [h for h in cmp.histories if (h.setting['suite'], h.setting['deal']) == (suite, 'skew')]
    for question, moment, path, added, *reads in measured(runs):
        of, others = {}, {}
        for found, read in zip((of, others), reads):
            for h in (h for h in runs if read(h) is not None):
                found.setdefault(h.setting['method'], {})[h.setting['seed']] = read(h)
        for base, method in ((b, m) for b in BASES if b in others for m in of):
            own, other = of[method], others[base]
            seeds = sorted(own.keys() & other) if added or method != base else ()
            if not seeds: continue
            i = t_interval(own[s]-other[s] for s in seeds)
            yield (question, moment, method+added, path, base), seeds, i, math.nan

# ---- the cells of a file

def scored_cells(cmp, suite:str): # ((question, moment, method, path, over), seeds, Interval, p)
    "Of one suite, from its rows of scores."
    told = any('plain' in h.measures for h in cmp.histories)
    for question, view in QUESTIONS.items():
        if told and view == 'unseen': continue                   # its measures say the same, and more
        for moment, when in MOMENTS.items():
            where = Where(view, when)
            if not any(is_scored(h, where) for h in cmp.histories): continue
            for method, path, base, *found in differences(cmp, suite, where):
                yield (question, moment, method, path, base), *found

def family_cells(by:dict, suites:list)->dict: # {key: (seeds, Interval, p)}
    "Of the suites of one family, those that all of them have."
    found = {}
    for s in suites:
        for key, *one in (*scored_cells(by[s], s), *measured_cells(by[s], s)):
            found.setdefault(key, []).append(one)
    if not suites[1:]: return {key: each[0] for key, each in found.items()}
    whole = {key: each for key, each in found.items() if len(each) == len(suites)}
    means = {key: together([dict(zip(s, i.values)) for s, i, _ in each]) for key, each in whole.items()}
    return {key: mean for key, mean in means.items() if mean}

def families(suites:Iterable)->dict: # {name: suites}
    "Suites with one domain left out each belong together; any other stands alone."
    out = {}
    for s in suites:
        base, cut, _ = s.partition('-without-')
        alone = not cut or sum(o.startswith(base+cut) for o in suites) == 1
        out.setdefault(s if alone else f'{base}, one domain left out', []).append(s)
    return out

def cells_of(name:str)->list: # of Cell
    "All differences that a stored comparison gives; none of bases that are not its own."
    out, strange = [], {*BASES}.difference(stored_results(name).methods)
    page = PAGES[kind_of(name)] or papers()[name.partition('-')[2]].EVIDENCE
    for rest, by in groups(name).items():
        for family, suites in families(by).items():
            for key, (seeds, i, p) in family_cells(by, suites).items():
                if key[2] in strange: continue
                points = (round(v, 6) for v in (i.mean, i.se, i.lo, i.hi, p))
                above = i.verdict(p=None if math.isnan(p) else p).above
                out.append(Cell(name, page, family, *rest, *key, i.n, *points, above, tuple(seeds)))
    return out

# ---- sets of the plan, whose runs are stored beside it

DRAWN = dict(A='emoji-pacs', B='skew-digits', C='colored-mnist', D='context-vehicles')    # sets of drawings

def plan_cells()->list: # of Cell
    "Every whole row above FedAvg and above Local, at the same moment; a cell's size is the set of the plan."
    stored, out = json.loads((files('fedskew_nb')/'assets'/'plan.json').read_text())['sets'], []
    for name in sorted(stored, key=lambda n: not n.endswith('-2')):      # an amended set comes first
        s, photos = stored[name], stored[name]['photographs']
        suite = photos or DRAWN[name.partition('-')[0]] + '-uneven'*name.endswith('-uneven')
        page = '3_results/28_photographs' if photos else '3_results/01_results'
        mended = [c | dict(method='FedAvg + AdaBN', moment='received') for c in s['mended']]
        for c in (*s['equal'], *mended):
            if not all(c['n'] == s['wanted'].get(row, c['n']) for row in (c['row'], c['over'])): continue
            method = 'FedAvg'+DEALS['iid'] if c['deal'] == 'iid' else c['method']
            question = 'one model' if c['view'] == 'global' else 'own domain'
            points = (round(c[k], 6) for k in ('mean', 'se', 'lo', 'hi'))
            above = 'yes' if c['lo'] > 0 else 'below' if c['hi'] < 0 else 'open'
            key = question, c['moment'], method, '', c['over']
            out.append(Cell('plan', page, suite, name, *s['budget'], *key, c['n'], *points, math.nan, above,
                            tuple(c['seeds'])))
    return out

NAMES = [f.name for f in fields(Cell)]

def index_text(cells:Iterable)->str:
    "Cells as JSON, the same text for the same cells."
    def row(c): return [None if v != v else v for v in asdict(c).values()]
    lines = ',\n'.join(json.dumps(row(c), ensure_ascii=False) for c in cells)
    return f'{{"fields": {json.dumps(NAMES)},\n"cells": [\n{lines}\n]}}\n'

def facts_text(facts):
    "A line for each method."
    lines = (f'{json.dumps(n, ensure_ascii=False)}: {json.dumps(asdict(f))}' for n, f in facts.items())
    return '{'+',\n'.join(lines)+'}\n'

def main():
    cells = [c for name in verdict_files() for c in cells_of(name)]+plan_cells()
    to = files('fedskew_nb')/'assets'
    (to/'evidence.json').write_text(index_text(cells), encoding='utf-8')
    facts = {c.name: seen_of(c.name) for c in candidates()}
    (to/'facts.json').write_text(facts_text(facts), encoding='utf-8')
    print(f'{to}: {len(cells)} cells, {len(facts)} methods')

if __name__ == '__main__': main()
