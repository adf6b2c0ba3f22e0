"""What the plan's runs say, as far as they are made; `python tests/evidence/verdicts.py` writes the file that
the results page reads, `fedskew_nb/assets/plan.json`.

Of each set that is whole, and of photographs as far as they are made: what every row scored at each moment,
by seed. Of a set that is whole: the verdicts of its primary claims, as `claims.toml` reads them."""

import math, tomllib
from collections import defaultdict
import numpy as np
import evidence, plan
from fedskew_nb.analysis.stats import holm, judge, p_value, t_interval
from fedskew_nb.engine.history import Where, history_of

WORDS = dict(received='post_agg', trained='post_local') | {'re-estimated': 'adabn'}
SAID = {moment: word for word, moment in WORDS.items()}
AS_REACHED = ('P1', 'P1-more', 'G')      # printed before they are whole
OUT = evidence.REPO/'fedskew_nb'/'assets'/'plan.json'

def histories(s, store)->dict: # {row: {seed: History}}
    "The finished runs of a set."
    out = {r.name: {} for r in s.rows}
    for seed in s.seeds:
        for row, entry in store.runs(s, seed).items(): out[row][seed] = history_of(entry['history'])
    return out

def dates(s, store, row)->set: # on which its runs were made
    made = [store.runs(s, seed).get(row) for seed in s.seeds]
    return {entry['when'] for entry in made if entry}

def is_whole(s, runs)->bool: return all(len(of) == len(s.seeds) for of in runs.values())

# ---- rows ----
def scores(of:dict)->dict: # {seed: History} → {'personal received': {seed: AVG}}
    "The mean of the checks of record, in percent, of each view and moment that a row was scored at."
    out = defaultdict(dict)
    for seed, h in of.items():
        for view, moment in dict.fromkeys((w.view, w.moment) for w in h.views()):
            out[f'{view} {SAID[moment]}'][seed] = round(h.summary(Where(view, moment))['AVG'], 3)
    return out

def rise(h)->float: # points; nan where no earlier round was scored
    "What the last quarter of the rounds added to the AVG, personal view where there is one."
    view = 'personal' if any(w.view == 'personal' for w in h.views()) else 'global'
    where, end = h.headline(view), h.setting['rounds']
    d = h.df
    here = (d['view'] == view) & (d.moment == where.moment) & (d.path == where.path)
    of = d[here & (d['round'] <= .75*end)]
    if of.empty: return math.nan
    before = of[of['round'] == of['round'].max()].groupby('domain')[['correct', 'n']].sum()
    return h.summary(where)['AVG'] - float((100*before.correct/before.n).mean())

def rising(c, runs)->list: # of names
    "The rows of a claim that gained a point or more in the last quarter, in the mean of their seeds."
    gains = {n: float(np.mean([rise(h) for h in runs[n].values()])) for n in dict.fromkeys(rows_of(c))}
    return [n for n, v in gains.items() if v >= 1]

# ---- claims ----
def jackknifed(a:list, b:list)->tuple: # of each seed, accuracies by domain in percent and images
    "STD of accuracies averaged over seeds, less its binomial part, a less b: a pseudo-value for each seed."
    def std(rows):
        acc, n = (np.array(v, float) for v in zip(*rows))
        mean = acc.mean(0)
        noise = (mean*(100-mean)/n.sum(0)).mean()
        return math.sqrt(max(0., mean.var(ddof=1)-noise))
    def difference(keep): return std([a[i] for i in keep])-std([b[i] for i in keep])
    n, every = len(a), range(len(a))
    whole = difference(every)
    return tuple(n*whole-(n-1)*difference([i for i in every if i != k]) for k in every)

def by_domain(h, where)->tuple: # (accuracies, images)
    d = h.df
    rounds = sorted(d['round'].unique())[-h.checks:]
    here = (d['view'] == where.view) & (d.moment == where.moment) & (d.path == where.path)
    sums = d[here & d['round'].isin(rounds)].groupby('domain')[['correct', 'n']].sum()
    return (100*sums.correct/sums.n).tolist(), sums.n.tolist()

def read_of(c, name)->dict: # {'row', perhaps 'moment'}
    return c.get('rows', {}).get(name, dict(row=name))

def rows_of(c)->list: return [read_of(c, c['primary'][k])['row'] for k in 'ab']

def differences(c, runs)->tuple: # a number a seed
    "a - b of a primary cell."
    p = c['primary']
    names = [read_of(c, p[k]) for k in 'ab']
    one, other = (runs[n['row']] for n in names)
    seeds = sorted({*one} & {*other})
    if p['column'] == 'plus - minus':
        return tuple(one[s].measures['plus']-one[s].measures['minus'] for s in seeds)
    if p['column'] == 'rank': return tuple(one[s].measures['rank']-other[s].measures['rank'] for s in seeds)
    where = Where(p['view'], WORDS[p['moment']])
    if p['column'] == 'STD':
        both = [[by_domain(of[s], of[s].headline(where)) for s in seeds] for of in (one, other)]
        return jackknifed(*both)
    places = [where._replace(moment=WORDS[n.get('moment', p['moment'])]) for n in names]
    def score(h, where): return h.summary(where)[p['column']]
    return tuple(score(one[s], places[0])-score(other[s], places[1]) for s in seeds)

def can_be_judged(c, sets, runs)->bool:
    p = c['primary']
    wanted = [p['set'], *([p['more']] if 'more' in p else [])]
    whole = all(i in runs and is_whole(sets[i], runs[i]) for i in wanted)
    return whole and not c['untestable'] and c['interval'] in ('seeds', 'jackknife over seeds')

def verdicts(claims:list, sets:dict, runs:dict)->list:
    "Of the claims whose sets are whole; Holm over all primary cells of a paper, the others count as p = 1."
    asked = [c for c in claims if can_be_judged(c, sets, runs)]
    ready = {c['id']: differences(c, runs[c['primary']['set']]) for c in asked}
    families, out = defaultdict(list), []
    for c in claims: families[c['system'], c['kind']].append(c)
    for family in families.values():
        p = holm([p_value(t_interval(ready[c['id']])) if c['id'] in ready else 1. for c in family])
        for c, p_ in zip(family, p):
            if c['id'] not in ready: continue
            assert not c['margin'], 'a claim of no difference: its p is of -margin'
            i, of = t_interval(ready[c['id']]), runs[c['primary']['set']]
            words = judge(i.values, None, c['needed'] or None, p_)
            facts = {k: c[k] for k in ('id', 'sentence', 'needed')} | c['primary'] | i.as_dict()
            out.append(facts | dict(p=p_, rises=rising(c, of)) | {k: words[k] for k in ('above', 'large')})
    return out

def main():
    store = evidence.Store()
    sets = {s.id: s for s in plan.read_plan()[1]}
    begun = {i: of for i, s in sets.items() if any((of := histories(s, store)).values())}
    runs = {i: of for i, of in begun.items() if is_whole(sets[i], of) or i in AS_REACHED}
    claims = tomllib.loads((plan.HERE/'claims.toml').read_text())['claim']
    lines = {}
    for i, of in runs.items():
        s = sets[i]
        rows = {name: scores(row) for name, row in of.items() if row}
        on = sorted({h.setting['device'] for row in of.values() for h in row.values()})
        wanted = {r.name: len(s.seeds) for r in s.rows}
        lines[i] = dict(what=s.record['what'], record=s.letters, wanted=wanted, device=on, rows=rows,
                        whole=is_whole(s, of), dates=sorted({d for row in of for d in dates(s, store, row)}))
    made = dict(sets=lines, verdicts=verdicts(claims, sets, runs))
    evidence.write_text(OUT, made, 0)
    return made

if __name__ == '__main__': main()
