"""What the plan's runs say, as far as they are made; `python tests/evidence/verdicts.py` writes the file that
the results page reads, `fedskew_nb/assets/plan.json`.

Of each set that is whole, and of photographs as far as they are made: what every row scored at each moment,
by seed. Of a set that is whole: the verdicts of its primary claims, as `claims.toml` reads them."""

import json, math, tomllib
from collections import defaultdict
from functools import cache
import numpy as np
from scipy import stats
import evidence, photographs, plan
from fedskew_nb.analysis.stats import Interval, Verdict, holm, judge, p_value, t_interval
from fedskew_nb.engine.reading import Where, sums_at
from fedskew_nb.engine.history import history_of
from fedskew_nb.engine.scoring import unpacked

WORDS = dict(received='post_agg', trained='post_local') | {'re-estimated': 'adabn'}
SAID = {moment: word for word, moment in WORDS.items()}
AS_REACHED = ('P1', 'P1-more', 'P5', 'P3s', 'P6-PACS', 'P6-Office', 'G')      # printed before they are whole
GATES = {'P1-cpu': 'P1'}                      # the set that says whether there is a skew to cure, if another
KIND = dict(pacs='new pictures', office='these pictures')      # the interval that a verdict is read off
BEST = ('P3s',)                               # the paper counts the best round on validation images
OF_SEEDS = ('seeds', 'these pictures')        # intervals over seeds alone
OUT = evidence.REPO/'fedskew_nb'/'assets'/'plan.json'

class Read(evidence.Store):
    "A store into which nobody writes meanwhile: what a seed of a set has is looked for once."
    def __init__(self):
        super().__init__()
        self.known = {}
    def runs(self, s, seed)->dict: # {row: entry}
        if (s.id, seed) not in self.known: self.known[s.id, seed] = super().runs(s, seed)
        return self.known[s.id, seed]

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

def found_in(s, store)->dict: # {row: {seed: [set, row]}}
    "The runs of a set that were made for another row, mostly of another set."
    out = {}
    for seed in s.seeds:
        for row, e in store.runs(s, seed).items():
            if 'of' in e: out.setdefault(row, {})[seed] = e['of']
    return out

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

def best(h)->float:
    "The highest AVG of all checks, as received; one model for all is asked for a client only at the end."
    d = h.df
    of = d[d['view'].isin(('personal', 'global')) & (d.moment == 'post_agg') & d.path.isin(('', 'client'))]
    sums = of.groupby(['view', 'round', 'domain'])[['correct', 'n']].sum()
    return float((100*sums.correct/sums.n).groupby(['view', 'round']).mean().max())

def rise(h)->float: # points; nan where no earlier round was scored
    "What the last quarter of the rounds added to the AVG, as received, in the view that was scored before."
    for view in ('personal', 'global'):       # one model for all is asked for a client only at the end
        where = h.headline(view)
        early = {r: of for r, of in sums_at(h, where).items() if r <= .75*h.setting['rounds']}
        if early: break
    else: return math.nan
    before = [100*correct/n for n, correct in early[max(early)].values()]
    return h.summary(where)['AVG'] - float(np.mean(before))

def at_chance(of:dict)->bool:
    "Is a row no better than chance, in the mean of its seeds?"
    some = next(iter(of.values()))
    where = Where('personal' if any(w.view == 'personal' for w in some.views()) else 'global')
    return float(np.mean([score(h, where)-h.setting['chance'] for h in of.values()])) <= 0

def rising(c, runs)->dict: # {'rises', 'unknown'}: names
    "The rows of a claim that gained a point or more in the last quarter, in the mean of their seeds."
    gains = {n: float(np.mean([rise(h) for h in runs[n].values()])) for n in dict.fromkeys(rows_of(c))}
    return dict(rises=[n for n, v in gains.items() if v >= 1],
                unknown=[n for n, v in gains.items() if math.isnan(v)])

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

def names_of(c)->list: # of rows
    "The rows that a claim's word is made of."
    return [*rows_of(c), *([read_of(c, c['also']['b'])['row']] if 'also' in c else [])]

def is_reached(c, sets, runs, cut=())->bool:
    "Is the set of a claim whole? Of one that was cut, are the claim's rows?"
    i = c['primary']['set']
    if i not in runs: return False
    of = {n: runs[i].get(n, {}) for n in names_of(c)} if i in cut else runs[i]
    return is_whole(sets[i], of)

def why_not(c, of)->str: # '' if it is judged
    "Why a claim whose set is whole has no verdict."
    if c['untestable']: return f'not testable: {c["untestable"]}'
    if c['margin'] or c['interval'] not in (*OF_SEEDS, 'jackknife over seeds'):
        return f'not read yet: margin {c["margin"]:g}, interval of {c["interval"]}'
    if any('measure' in r for r in c.get('rows', {}).values()): return 'not read yet: a measure of one run'
    low = [r for r in rows_of(c) if at_chance(of[r])]
    return f'not testable here: {", ".join(low)} at chance' if low else ''

# ---- pictures drawn anew ----
def marks_of(h, where, tested:dict)->dict: # {domain: (n,)}
    "How often each test picture was right; a domain's clients share them out, every k-th to each."
    rounds = sorted({r['round'] for r in h.rows})[-h.checks:]
    of = defaultdict(dict)          # {domain: {client: the sum of its marks}}
    for r in h.rows:
        if (r['view'], r['moment'], r['path']) != tuple(where) or r['round'] not in rounds: continue
        marks = of[r['domain']]
        marks[r['client']] = marks.get(r['client'], 0)+unpacked(r).numpy()/len(rounds)
    out = {d: np.empty(len(at)) for d, at in tested.items()}
    for d, marks in of.items():
        for k, mine in enumerate(marks.values()): out[d][k::len(marks)] = mine
    return out

@cache
def folds_of(name:str)->tuple: return photographs.stored_folds(name)

@cache
def tests_dealt(name:str, how:str, seed:int)->dict: # how: clients and pictures of each, as JSON
    (where, fold), how = folds_of(name), json.loads(how)
    def part(d):
        of = (photographs.of_each(v, d) for v in how)
        return photographs.parts_of(name, seed, False, d, np.flatnonzero(where == d), fold, *of)[1]
    return {d: part(d) for d in dict.fromkeys(where.tolist())}

def tests_of(data:dict, seed:int)->dict: # {domain: places of its test pictures}
    return tests_dealt(data['name'], json.dumps([data['clients'], data['each']]), seed)

def pictures_variance(s, one:dict, other:dict, places:list)->float: # of a mean over domains, in points²
    "Of each domain over its pictures, by their number; summed, by the square of the number of domains."
    pictures = len(folds_of(s.record['data']['name'])[0])
    found = defaultdict(lambda: np.zeros((2, pictures)))       # {domain: sum and number of differences}
    for seed in sorted({*one} & {*other}):
        tested = tests_of(s.record['data'], seed)
        a, b = (marks_of(of[seed], place, tested) for of, place in zip((one, other), places))
        for d, at in tested.items(): found[d][:, at] += 100*(a[d]-b[d]), np.ones(len(at))
    means = [total[n > 0]/n[n > 0] for total, n in found.values()]
    return sum(np.var(v, ddof=1)/len(v) for v in means)/len(means)**2

def widened(values:tuple, variance:float)->Interval:
    "The t-interval over seeds, its variance with that of the pictures."
    i = t_interval(values)
    se = math.sqrt(i.se**2+variance)
    half = float(stats.t.ppf(.975, i.n-1))*se
    return Interval(i.values, i.mean, se, i.mean-half, i.mean+half)

def pair_of(c, b:str, runs, sets)->dict: # {'these pictures', 'new pictures'}: an Interval each
    "a - b."
    s, view, moment = sets[c['primary']['set']], c['primary']['view'], c['primary']['moment']
    names = [read_of(c, name) for name in (c['primary']['a'], b)]
    places = [Where(view, WORDS[n.get('moment', moment)]) for n in names]
    return intervals(s, *(runs[s.id][n['row']] for n in names), places)

def intervals(s, one:dict, other:dict, places:list)->dict: # {'these pictures', 'new pictures'}
    "An Interval each, of a difference of two rows of photographs, for the seeds that both have."
    seeds = sorted({*one} & {*other})
    values = tuple(score(one[k], places[0])-score(other[k], places[1]) for k in seeds)
    new = widened(values, pictures_variance(s, one, other, places))
    return {'these pictures': t_interval(values), 'new pictures': new}

def margin_p(i:Interval, margin:float)->float:
    "Two-sided p of a difference of -margin."
    return float(2*stats.t.sf(abs(i.mean+margin)/i.se, i.n-1))

def within(i:Interval, margin:float, p:float=0.)->str:
    "Is a not more than `margin` below b?"
    return 'yes' if i.lo > -margin and p < .05 else 'no' if i.hi < -margin else 'open'

def skew_of(runs:dict)->dict: # the runs of a set
    "Is there a skew to cure? IID - FedAvg, one model for all: 3 points, its lower limit above 0."
    one, other = (runs[r] for r in ('FedAvg, IID deal', 'FedAvg'))
    i = t_interval(score(one[k], Where('global'))-score(other[k], Where('global')) for k in sorted(one))
    return i.as_dict() | dict(cure=i.mean >= 3 and i.lo > 0)

def is_read(c)->bool:
    "Is it a use of photographs, each client at home?"
    return c['kind'] == 'use' and c['primary']['view'] == 'personal' and not c['untestable']

def uses(claims:list, sets:dict, runs:dict, cut)->list:
    "Claims of use that are reached; Holm over a family, those that are not reached count as p = 1."
    ready = {c['id']: c for c in claims if is_read(c) and is_reached(c, sets, runs, cut)}
    found = {i: pair_of(c, c['primary']['b'], runs, sets) for i, c in ready.items()}
    families, p = defaultdict(list), {}
    def own(c):
        if c['id'] not in found: return 1.
        i = found[c['id']][c['interval']]
        return margin_p(i, c['margin']) if c['margin'] else p_value(i)
    for c in (c for c in claims if c['kind'] == 'use'): families[c['system']].append(c)
    for of in families.values(): p |= zip([c['id'] for c in of], holm(list(map(own, of))))
    return [use_verdict(c, found[i], p[i], runs, sets) for i, c in ready.items()]

def use_verdict(c, found:dict, p:float, runs, sets)->dict:
    "A margin has one answer; a use has three, and none but the last where there is no skew to cure."
    name, i = c['primary']['set'], found[c['interval']]
    of = runs[name]
    facts = {k: c[k] for k in ('id', 'sentence', 'needed', 'margin', 'interval')} | c['primary'] | i.as_dict()
    spans = {k.split()[0]: [v.lo, v.hi] for k, v in found.items()}
    facts |= dict(p=p, chance=[r for r in names_of(c) if at_chance(of[r])]) | rising(c, of) | spans
    if c['margin']: return facts | dict(within=within(i, c['margin'], p))
    also = pair_of(c, c['also']['b'], runs, sets)[c['interval']]
    facts['also'] = also.as_dict() | dict(b=c['also']['b'], within=within(also, c['also']['margin']))
    v = i.verdict(c['needed'], None, p)
    cured = skew_of(runs[GATES.get(name, name)])['cure'] and not facts['rises']+facts['unknown']
    return facts | (dict(above=v.above, large=v.large) if cured else {})

def verdicts(claims:list, sets:dict, runs:dict)->list:
    "Of the claims whose sets are whole; Holm over all primary cells of a paper, the others count as p = 1."
    reached = [c for c in claims if c['kind'] != 'use' and is_reached(c, sets, runs)]
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
    return facts | i.as_dict() | dict(p=p) | rising(c, of) | {k: words[k] for k in ('above', 'large')}

# ---- the amendment: every row at equal moments, and what it moved ----
def difference(s, runs, row, base:str, places:list)->dict|None: # {row, …, n, mean, se, lo, hi, seeds}
    "A row above another one; None where one of the two was not scored there."
    one, other = runs[row.name], runs.get(base, {})
    seeds, photos = sorted({*one} & {*other}), s.record['suite'] == 'photographs'
    pairs = list(zip((one, other), places))
    scored = all(where[:2] in [w[:2] for w in of[k].views()] for of, where in pairs for k in seeds)
    if not scored or len(seeds) < 2: return None
    kind = KIND[s.record['data']['name']] if photos else 'seeds'
    if photos and places[0].view == 'personal': i = intervals(s, one, other, places)[kind]
    else: i = t_interval(score(one[k], places[0])-score(other[k], places[1]) for k in seeds)
    facts = dict(row=row.name, method=row.method, deal=row.deal, moment=SAID[places[0].moment])
    return facts | dict(view=places[0].view, over=base) | i.as_dict() | dict(interval=kind, seeds=seeds)

def at_equal_moments(s, runs)->list:
    "Every row above FedAvg and above Local, each client at home; of the IID split one model for all, too."
    out = []
    twin = 'FedAvg + AdaBN'        # FedAvg at a rate of its own: see `best_against_best`
    for row in (r for r in s.rows if runs.get(r.name) and r.deal != 'pooled' and r.name != twin):
        if row.deal == 'iid': out.append(difference(s, runs, row, 'FedAvg', [Where('global')]*2))
        for base in ('FedAvg',) if row.deal == 'iid' else ('FedAvg', 'Local'):
            places = [Where('personal', moment) for moment in WORDS.values()]
            out += [difference(s, runs, row, base, [p, p]) for p in places if row.name != base]
    return [d for d in out if d]

def what_mending_gives(s, runs)->list:
    "FedAvg re-estimated above FedAvg and Local as received: a cure that every row could have."
    row = next((r for r in s.rows if r.name == 'FedAvg' and runs.get('FedAvg')), None)
    places = [Where('personal', 'adabn'), Where('personal')]
    found = [difference(s, runs, row, base, places) for base in ('FedAvg', 'Local')] if row else []
    return [d for d in found if d]

def best_against_best(s, runs, tuned:dict)->list:
    "Each row above FedAvg + AdaBN, both at the moment where they were best on their pilots; no verdict."
    base = 'FedAvg + AdaBN'
    if not all(runs.get(n) for n in (base, *tuned)) or 'moment' not in tuned.get(base, {}): return []
    def place(n): return Where('personal', tuned[n]['moment'])
    rows = [r for r in s.rows if r.name in tuned and r.name != base and r.view == 'personal']
    found = [difference(s, runs, r, base, [place(r.name), place(base)]) for r in rows]
    return [d | dict(of=SAID[tuned[base]['moment']]) for d in found if d]

def amended(claims:list, names:dict)->list: # names: {set: the one that amends it}
    "Claims of amended sets, read there at equal moments: FedAvg + AdaBN is FedAvg, both re-estimated."
    def new(c):
        p = c['primary'] | dict(set=names.get(c['primary']['set'], c['primary']['set']))
        if c['kind'] == 'use' and p['a'] == 'FedAvg + AdaBN': p |= dict(a='FedAvg', moment='re-estimated')
        return c | dict(primary=p)
    return [new(c) for c in claims]

def word_of(c, v:dict|None)->str: # 'above 0, smaller than printed, F2DC still rises'
    "The verdict of a claim, in the words of every table."
    if v is None: return f'not testable: {c["untestable"]}' if c['untestable'] else 'not reached'
    if v.get('why_not'): return v['why_not']
    more = ''.join(f', {r} still rises' for r in v['rises'])
    more += ''.join(f', {r} has no earlier check' for r in v['unknown'])
    if 'within' in v: return f'{Verdict(lower=v["within"], by=c["margin"])}{more}'
    if 'above' not in v: return f'not asked: {more[2:] or "the skew is below the 3 points of the plan"}'
    off = v['above'] == 'open' and not v['lo'] <= 0 <= v['hi']
    said = f'{Verdict(v["above"], v["large"], by_holm=off)}'
    return (said.replace(' printed', ' we ask') if c['needed_of'].startswith('ours') else said) + more

def told(v:dict|None)->str: # ': +4.2 (3.7 to 4.7)'
    return f': {v["mean"]:+.1f} ({v["lo"]:.1f} to {v["hi"]:.1f})' if v and 'mean' in v else ''

def moves(claims:list, sets:dict, runs:dict, cut, before:dict)->list: # of {id, before, after, fresh, …}
    "What the claims of amended sets say there, all of them; is the word another, and on which seeds?"
    ready = [s for s in sets.values() if s.amends and s.id in runs and is_whole(s, runs[s.id])]
    names = {of: s.id for s in ready for of in s.amends}
    again = amended(claims, names)
    after = {v['id']: v for v in (*verdicts(again, sets, runs), *uses(again, sets, runs, cut))}
    def of(c):
        old, new, s = before.get(c['id']), after.get(c['id']), sets[names[c['primary']['set']]]
        words = [word_of(c, v) for v in (old, new)]
        photos, unseen = s.record['suite'] == 'photographs', min(s.seeds) >= 300
        now, fresh = f'{words[1]}{told(new)}', 'the same pictures: exploratory' if photos else 'not run yet'
        seen, fresh = ('not asked there', now) if unseen else (now, fresh)
        return dict(id=c['id'], set=s.id, before=f'{words[0]}{told(old)}', after=seen, fresh=fresh,
                    moved=words[0] != words[1])
    return [of(c) for c in claims if c['primary']['set'] in names]

def fell(runs)->list: # of {row, seed, checks, loss}
    "Runs that lost 10 points within their checks of record: what each had, the least loss and the last."
    out = []
    for row, of in runs.items():
        for seed, h in of.items():
            asked_ = [w[:2] for w in h.views()]
            if 'stopped' in h.measures or ('personal', 'post_agg') not in asked_: continue
            curve = [round(float(v), 3) for v in h.curve('personal').AVG.iloc[-h.checks:]]
            loss = [r['loss'] for r in h.rounds]
            facts = dict(row=row, seed=seed, checks=curve, loss=[round(min(loss), 3), round(loss[-1], 3)])
            if curve[0]-curve[-1] > 10: out.append(facts)
    return out

def bursts()->dict: # {'seed', 'ends', 'rounds', 'body', 'loss', 'evidence', 'cpu'}
    "A run that diverged, once more (diverged.py): where the body's gradient tripled, and what else grew."
    told = json.loads((plan.HERE/'diverged.json').read_text())
    of, spans, high = told['rounds'], [], []
    for k in range(20, len(of)):
        before = {key: float(np.median([r[key] for r in of[k-20:k]])) for key in ('body', 'loss', 'evidence')}
        ratio = {key: of[k][key]/v for key, v in before.items()}
        if ratio['body'] < 3: continue
        high.append(ratio)
        if spans and of[k]['round']-spans[-1][1] <= 8: spans[-1][1] = of[k]['round']
        else: spans.append([of[k]['round']]*2)
    most = {key: round(max(r[key] for r in high), 1) for key in high[0]}
    ends = round([*told['checks'].values()][-1], 1)
    return most | dict(seed=told['seed'], ends=ends, rounds=spans, cpu=told['on']['cpu'])

def tuning(s, store)->dict: # {row: {'lr', 'own', 'trials', 'edge', 'moment', 'moments'}}
    "What a set's pilots chose; of the first rule without moments."
    keys = 'lr', 'own', 'trials', 'edge', 'moment', 'moments'
    mine, names = store.tuned(s) if s.tuned else {}, {r.name for r in s.rows}
    return {n: {k: of[k] for k in keys if k in of} for n, of in mine.items() if n in names}

def states(claims:list, said:dict)->list: # of {id, system, kind, state, word, …}
    "Every claim of the plan: what its verdict is, or why it has none."
    def of(c):
        v = said.get(c['id']) or dict(why_not='not reached')
        state = 'judged'
        if v.get('why_not'): state = 'not reached'
        if c['untestable'] or v.get('why_not', '').startswith('not testable'): state = 'not testable'
        words = {k: v[k] for k in ('above', 'large', 'within') if k in v}
        facts = {k: c[k] for k in ('id', 'system', 'kind')}
        return facts | dict(state=state, word=word_of(c, said.get(c['id']))) | words
    return [of(c) for c in claims]

def main():
    store = Read()
    sets = {s.id: s for s in store.sets}
    begun = {i: of for i, s in sets.items() if any((of := histories(s, store)).values())}
    runs = {i: of for i, of in begun.items() if is_whole(sets[i], of) or i in AS_REACHED}
    claims = tomllib.loads((plan.HERE/'claims.toml').read_text())['claim']
    lines = {}
    for i, of in runs.items():
        s = sets[i]
        rows = {name: scores(row) for name, row in of.items() if row}
        settings = [h.setting for row in of.values() for h in row.values()]
        about = dict(what=s.record['what'], record=s.letters, device=sorted({k['device'] for k in settings}))
        about |= made_on(s, store) | dict(photographs=s.record.get('data', {}).get('name', ''))
        about['budget'] = [settings[0].get(k) for k in ('rounds', 'local_steps', 'local_epochs')]
        about['methods'] = {r.name: r.method for r in s.rows if r.deal == 'skew'}
        wanted = {r.name: len(s.seeds) for r in s.rows}
        if i in BEST: about['best'] = {n: {k: round(best(h), 3) for k, h in r.items()} for n, r in of.items()}
        lines[i] = about | dict(whole=is_whole(s, of), wanted=wanted, tuning=tuning(s, store), rows=rows)
        lines[i] |= dict(fell=fell(of), found=found_in(s, store))
        lines[i] |= dict(equal=at_equal_moments(s, of), mended=what_mending_gives(s, of))
        lines[i]['best_moments'] = best_against_best(s, of, lines[i]['tuning']) if lines[i]['whole'] else []
    cut = plan.records_of((plan.HERE/'plan.toml').read_text())['plan']['cut']
    read = uses(claims, sets, runs, cut)
    gates = sorted({GATES.get(u['set'], u['set']) for u in read})
    skew = {i: skew_of(runs[i]) for i in gates}
    judged_ = verdicts(claims, sets, runs)
    said, by_id = {v['id']: v for v in (*judged_, *read)}, {c['id']: c for c in claims}
    for i, v in said.items(): v['word'] = word_of(by_id[i], v)
    made = dict(sets=lines, verdicts=judged_, skew=skew, uses=read, claims=states(claims, said),
                moves=moves(claims, sets, runs, cut, said), again=bursts())
    # the plan's rows keep the name that they were committed with
    made = json.loads(json.dumps(made).replace('IID deal', 'IID split'))
    evidence.write_text(OUT, made, 0)
    return made

if __name__ == '__main__': main()
