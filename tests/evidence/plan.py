"""The plan of the evidence: its records, their hashes, the commit that named each one first, what is next.

    python tests/evidence/plan.py    # hash, commit and time of every record; the commits of its runs
"""

import json, lzma, math, subprocess, tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from records import HERE, record_hash

PLAN = 'tests/evidence/plan.toml'

def records_of(text:str)->dict: # {'set A': record, …}
    "The records of a plan: its heads and its sets."
    d = tomllib.loads(text)
    heads = {k: v for k, v in d.items() if k != 'set'}
    return heads | {f'set {s["id"]}': s for s in d.get('set', ())}

def hash_of(records:dict, name:str)->str:
    "The letters of a set: with those of how everything is scored, and of the rule that it is tuned by."
    return record_hash([records[name], records['score'], records[records[name].get('tuning', 'tuning')]])

def git(*args, at=HERE)->str:
    return subprocess.run(['git', *args], cwd=at, check=True, capture_output=True, text=True).stdout.strip()

def named_at(name:str, letters:str)->tuple: # (commit, its time) or None
    "The first commit whose plan has this record."
    for line in git('log', '--reverse', '--format=%H %cI', '--', PLAN, at=HERE.parents[1]).splitlines():
        commit, when = line.split()
        then = records_of(git('show', f'{commit}:{PLAN}', at=HERE.parents[1]))
        if name in then and hash_of(then, name) == letters: return commit, when

# ---- sets and rows ----
@dataclass(frozen=True)
class Row:
    "A line of a set."
    name: str
    method: str = ''            # default: its name
    deal: str = 'skew'
    own: tuple = ()             # of its own parameters: ((name, (low, high)), …), moved together
    rate_of: str = ''           # the row whose chosen rate and parameters it takes
    lr: float = 0.              # a rate of its own that nobody tunes
    view: str = 'personal'      # what its pilots are scored by
    moment: str = 'post_agg'
    measure: str = ''           # further numbers of its trained model, see work.py
    trust: bool = False         # and how sure it is
    setting: tuple = ()         # beside the set's
    data: tuple = ()            # likewise
    model: str = ''             # other than the set's

def row_of(d:dict)->Row:
    own = tuple((k, tuple(v)) for k, v in d.get('own', {}).items())
    more = dict(own=own, setting=tuple(d.get('setting', {}).items()))
    return Row(**d | dict(method=d.get('method', d['name'])) | more)

def rows_for(rows:list, target:str)->list: # of Row
    "The rows of a set, or those of one domain that is left out."
    rows = [row_of(r) for r in rows]
    if not target: return rows
    def without(r): return dict(name=f'{r.name}, without {target}', rate_of=r.rate_of or r.name)
    return [replace(r, **without(r), data=(('without', target),)) for r in rows]

def listed(v)->list: return v if isinstance(v, list) else [v]

@dataclass(frozen=True)
class Set:
    "Runs that answer one question."
    record: dict
    letters: str
    tuning: dict = field(default_factory=dict)      # the rule that it is tuned by
    id = property(lambda s: s.record['id'])
    targets = property(lambda s: s.record.get('targets', ('',)))
    rows = property(lambda s: [r for t in s.targets for r in rows_for(s.record['row'], t)])
    seeds = property(lambda s: s.record['seeds'])
    tuned = property(lambda s: s.record.get('tuned', True))
    tuned_as = property(lambda s: listed(s.record.get('tuned_as', s.id)))   # whose pilots chose its rates
    amends = property(lambda s: listed(s.record.get('amends', [])))         # whose claims are read here again
    is_tuned = property(lambda s: s.tuned and s.tuned_as == [s.id])
    pilots_go_on = property(lambda s: s.is_tuned and 'further' in s.tuning)     # not those of the first rule

def read_plan(path=HERE/'plan.toml')->list: # of Set
    "The plan as it stands."
    records = records_of(Path(path).read_text())
    sets = {n: r for n, r in records.items() if n.startswith('set ')}
    return [Set(r, hash_of(records, n), records[r.get('tuning', 'tuning')]) for n, r in sets.items()]

def ran(s:Set, row:Row)->str:
    "What a run of this row is, but for its seed, rate and own parameters: equal texts, equal runs."
    r = s.record
    facts = dict(suite=r['suite'], house=r.get('house'), device=r.get('device', 'cpu'))
    facts |= dict(model=row.model or r['model'], method=row.method, deal=row.deal)
    facts |= dict(data=r.get('data', {}) | dict(row.data), setting=r['setting'] | dict(row.setting))
    return json.dumps(facts, sort_keys=True)

# ---- pilots: one rule for every row, `tuning.2` ----
@dataclass(frozen=True)
class Trial:
    "A pilot run."
    row: str
    seed: int
    lr: float
    own: tuple = ()       # ((name, value), …)
    setting = property(lambda t: (t.lr, t.own))

LADDER = (.00001, .00003, .0001, .0003, .001, .003, .01, .03, .1, .3, 1., 3., 10., 30.)

def half_steps(lr:float): # of rates, the nearest to `lr` first, below before above
    "The rates half-way between those of the ladder, by their ratio."
    halves, k = [float(f'{math.sqrt(a*b):.2g}') for a, b in zip(LADDER, LADDER[1:])], LADDER.index(lr)
    for d in range(len(LADDER)):
        yield from halves[max(0, k-1-d):max(0, k-d)]
        yield from halves[k+d:k+d+1]

def tried(row:Row, tuning:dict, scores:dict, most:int=0)->list: # scores: {(lr, own): score} of one seed
    "The settings (lr, own) that the rule has a row try, in order, as far as `scores` says what is next."
    out = [(lr, ()) for lr in tuning['rates']]
    if any(x not in scores for x in out): return out
    for _ in range(tuning['further']):
        rates, best = [lr for lr, _ in out], max(out, key=scores.get)[0]
        if best not in (min(rates), max(rates)): break
        out.append((LADDER[LADDER.index(best) + (1 if best == max(rates) else -1)], ()))
        if out[-1] not in scores: return out
    best = max(out, key=scores.get)[0]
    near, (names, values) = [(lr, ()) for lr in half_steps(best)], zip(*row.own) if row.own else ((), ())
    out += [(best, tuple(zip(names, own))) for own in zip(*values)] if row.own else near[:2]
    more = [x for x in near if x not in out]
    return out + more[:max(0, most-len(out))]

def scores_of(row:Row, done:dict, seed:int)->dict: # done: {Trial: score}
    return {t.setting: s for t, s in done.items() if (t.row, t.seed) == (row.name, seed)}

def all_tried(rows:list, tuning:dict, done:dict)->dict: # {row: its settings, in order}
    "The settings of every row; those that the rest is compared with get as many as the row with most."
    first, equal = tuning['seeds'][0], [r for r in rows if r.name in tuning['equal']]
    def of(r, most=0): return tried(r, tuning, scores_of(r, done, first), most)
    out = {r.name: of(r) for r in rows}
    whole = all(x in scores_of(r, done, first) for r in rows if r not in equal for x in out[r.name])
    most = max(map(len, out.values())) if whole else 0
    return out | {r.name: of(r, most) for r in equal}

def again(row:Row, tuning:dict, default:float, done:dict)->list: # of settings
    "What is tried on the second pilot seed, too: the best two of the first, and the default."
    of = scores_of(row, done, tuning['seeds'][0])
    return list(dict.fromkeys([*sorted(of, key=lambda x: -of[x])[:2], (default, ())]))

def wanted_trials(rows:list, tuning:dict, default:float, done:dict, places:dict)->list: # places: {Trial: {…}}
    "Those still to be made, given those that are done and those scored at every moment; [] at the end."
    first, second = tuning['seeds']
    settings, done, out = all_tried(rows, tuning, done), by_the_rule(rows, tuning, default, done), []
    for r in rows:
        of = scores_of(r, done, first)
        left = [Trial(r.name, first, *x) for x in settings[r.name] if x not in of]
        if not left:
            twice = [Trial(r.name, second, *x) for x in again(r, tuning, default, done)]
            left = [t for t in twice if t not in done]
        if not left:
            left = [t for t in both_of(r, chosen(r, tuning, default, done), tuning) if t not in places]
        out += left
    return out

def by_the_rule(rows:list, tuning:dict, default:float, done:dict)->dict: # of {Trial: score}
    "Those that the rule has a row try: a run may be there for another row, or for the first rule."
    settings, (first, second) = all_tried(rows, tuning, done), tuning['seeds']
    out = {t: v for t, v in done.items() if t.seed == first and t.setting in settings.get(t.row, ())}
    for r in rows:
        if any(Trial(r.name, first, *x) not in out for x in settings[r.name]): continue
        twice = [Trial(r.name, second, *x) for x in again(r, tuning, default, out)]
        out |= {t: done[t] for t in twice if t in done}
    return out

def chosen(row:Row, tuning:dict, default:float, done:dict)->dict:
    "What a row's pilots chose: the default, unless something gained more than a standard error of the gain."
    def scores(setting): return [done[Trial(row.name, seed, *setting)] for seed in tuning['seeds']]
    usual = default, ()
    best = max(again(row, tuning, default, done)[:2], key=lambda x: sum(scores(x)))
    gains = [a-b for a, b in zip(scores(best), scores(usual))]
    gain, error = sum(gains)/2, abs(gains[0]-gains[1])/2
    lr, own = best if gain > error else usual
    of = scores_of(row, done, tuning['seeds'][0])
    found = dict(gain=round(gain, 3), error=round(error, 3), trials=len(of))
    return found | dict(lr=lr, own=dict(own), edge=lr in (min(of)[0], max(of)[0]), default=usual == (lr, own))

MOMENTS = 'post_agg', 'post_local', 'adabn'

def both_of(row:Row, choice:dict, tuning:dict)->list: # of Trial
    "The chosen setting on both pilot seeds."
    return [Trial(row.name, seed, choice['lr'], tuple(choice['own'].items())) for seed in tuning['seeds']]

def best_moment(row:Row, choice:dict, tuning:dict, places:dict)->tuple: # (moment, {moment: mean score})
    "Where a row is best on its pilot seeds, at the setting that they chose."
    both = [places[t] for t in both_of(row, choice, tuning)]
    at = {m: f'{row.view} {m}' for m in MOMENTS}
    means = {m: round(sum(p[k] for p in both)/2, 3) for m, k in at.items() if all(k in p for p in both)}
    return max(means, key=means.get, default=row.moment), means

def tuned_rows(s:Set)->list: # of Row
    return [r for r in s.rows if not r.rate_of and not r.lr]

def ran_at(name:str)->list: # of 'commit (n runs)'
    "The commits that the stored runs of a set were made at."
    made = {}
    for path in (HERE/'runs'/name).glob('*.json.xz'):
        for e in json.loads(lzma.decompress(path.read_bytes()))['rows'].values():
            made[e['commit'][:10]] = made.get(e['commit'][:10], 0)+1
    return [f'{n} runs at {commit}' for commit, n in made.items()]

if __name__ == '__main__':
    records = records_of((HERE/'plan.toml').read_text())
    for name in records:
        letters = hash_of(records, name)
        commit, when = named_at(name, letters) or ('not committed', '')
        made = ', '.join(ran_at(name.removeprefix('set ')))
        print(f'{name:15} {letters}  {commit[:10]:13}  {when:25}  {made}')
