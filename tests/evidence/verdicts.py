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

def made_on(s, store)->dict: # {'dates', 'machines'} of its runs
    entries = [e for seed in s.seeds for e in store.runs(s, seed).values()]
    kind = 'gpu' if s.record.get('device') == 'cuda' else 'cpu'
    return dict(dates=sorted({e['when'] for e in entries}), machines=sorted({e['on'][kind] for e in entries}))

def is_whole(s, runs)->bool: return all(len(of) == len(s.seeds) for of in runs.values())

# ---- rows ----
def score(h, where, column='AVG')->float:
    "The mean of the checks of record, in percent; 0 for a run that is not finite, as the plan says."
    return 0. if 'stopped' in h.measures else h.summary(where)[column]

def scores(of:dict)->dict: # {seed: History} → {'personal received': {seed: AVG}}
    "Of each view and moment that a row was scored at."
    places = dict.fromkeys((w.view, w.moment) for h in of.values() for w in h.views())
    def by_seed(where): return {seed: round(score(h, where), 3) for seed, h in of.items()}
    return {f'{view} {SAID[moment]}': by_seed(Where(view, moment)) for view, moment in places}

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

def at_chance(of:dict)->bool:
    "Is a row no better than chance, in the mean of its seeds?"
    some = next(iter(of.values()))
    where = Where('personal' if any(w.view == 'personal' for w in some.views()) else 'global')
    return float(np.mean([score(h, where)-h.setting['chance'] for h in of.values()])) <= 0

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
    return tuple(score(one[s], places[0], p['column'])-score(other[s], places[1], p['column']) for s in seeds)

def is_reached(c, sets, runs)->bool:
    "Are the sets of a claim whole?"
    wanted = [v for k, v in c['primary'].items() if k in ('set', 'more')]
    return all(i in runs and is_whole(sets[i], runs[i]) for i in wanted)

def why_not(c, of)->str: # '' if it is judged
    "Why a claim whose set is whole has no verdict."
    if c['untestable']: return f'not testable: {c["untestable"]}'
    if c['margin'] or c['interval'] not in ('seeds', 'jackknife over seeds'):
        return f'not read yet: margin {c["margin"]:g}, interval of {c["interval"]}'
    low = [r for r in rows_of(c) if at_chance(of[r])]
    return f'not testable here: {", ".join(low)} at chance' if low else ''

def verdicts(claims:list, sets:dict, runs:dict)->list:
    "Of the claims whose sets are whole; Holm over all primary cells of a paper, the others count as p = 1."
    reached = [c for c in claims if is_reached(c, sets, runs)]
    why = {c['id']: why_not(c, runs[c['primary']['set']]) for c in reached}
    ready = {c['id']: differences(c, runs[c['primary']['set']]) for c in reached if not why[c['id']]}
    families, p = defaultdict(list), {}
    for c in claims: families[c['system'], c['kind']].append(c['id'])
    for ids in families.values():
        p |= zip(ids, holm([p_value(t_interval(ready[i])) if i in ready else 1. for i in ids]))
    def facts(c): return ready.get(c['id']), p[c['id']], why[c['id']], runs[c['primary']['set']]
    return [verdict(c, *facts(c)) for c in reached]

def verdict(c, values, p:float, why:str, of)->dict: # values: one for each seed; None where `why` is said
    facts = {k: c[k] for k in ('id', 'sentence', 'needed')} | c['primary'] | dict(why_not=why)
    if why: return facts
    i, words = t_interval(values), judge(values, None, c['needed'] or None, p)
    return facts | i.as_dict() | dict(p=p, rises=rising(c, of)) | {k: words[k] for k in ('above', 'large')}

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
        about = dict(what=s.record['what'], record=s.letters, device=on) | made_on(s, store)
        lines[i] = about | dict(whole=is_whole(s, of), wanted=wanted, rows=rows)
    made = dict(sets=lines, verdicts=verdicts(claims, sets, runs))
    evidence.write_text(OUT, made, 0)
    return made

if __name__ == '__main__': main()
