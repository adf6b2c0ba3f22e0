"""The plan of the evidence: its records, their hashes, the commit that named each one first, what is next.

    python tests/evidence/plan.py        # hash, commit and time of every record
"""

import subprocess, tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from records import HERE, record_hash

PLAN = 'tests/evidence/plan.toml'

def records_of(text:str)->dict: # {'set A': record, …}
    "The records of a plan: its heads and its sets."
    d = tomllib.loads(text)
    heads = {k: v for k, v in d.items() if k != 'set'}
    return heads | {f'set {s["id"]}': s for s in d.get('set', ())}

def hash_of(records:dict, name:str)->str:
    "The letters of a set: with those of how everything is scored and tuned."
    return record_hash([records[name], records['score'], records['tuning']])

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

@dataclass(frozen=True)
class Set:
    "Runs that answer one question."
    record: dict
    letters: str
    id = property(lambda s: s.record['id'])
    targets = property(lambda s: s.record.get('targets', ('',)))
    rows = property(lambda s: [r for t in s.targets for r in rows_for(s.record['row'], t)])
    seeds = property(lambda s: s.record['seeds'])
    tuned_as = property(lambda s: s.record.get('tuned_as', s.id))
    is_tuned = property(lambda s: s.record.get('tuned', True) and s.tuned_as == s.id)

def read_plan(path=HERE/'plan.toml')->tuple: # (tuning record, [Set])
    "The plan as it stands."
    records = records_of(Path(path).read_text())
    sets = {n: r for n, r in records.items() if n.startswith('set ')}
    return records['tuning'], [Set(r, hash_of(records, n)) for n, r in sets.items()]

# ---- pilots ----
@dataclass(frozen=True)
class Trial:
    "A pilot run."
    row: str
    seed: int
    lr: float
    own: tuple = ()       # ((name, value), …)

FURTHER = (.001, .3)      # rates of rows without a parameter of their own

def first_trials(row:Row, tuning:dict, default:float)->list:
    rates = sorted({*tuning['rates'], default, *(() if row.own else FURTHER)})
    return [Trial(row.name, tuning['seeds'][0], lr) for lr in rates]

def own_trials(row:Row, tuning:dict, best:float)->list:
    values = zip(*([(k, v) for v in vs] for k, vs in row.own))     # lists: k is read here, not later
    return [Trial(row.name, tuning['seeds'][0], best, own) for own in values]

def best_two(row:Row, tuning:dict, done:dict)->list: # done: {Trial: score}
    "The settings (lr, own) of a row that did best on the first pilot seed."
    of = {(t.lr, t.own): s for t, s in done.items() if t.row == row.name and t.seed == tuning['seeds'][0]}
    return sorted(of, key=lambda setting: -of[setting])[:2]

def wanted_trials(row:Row, tuning:dict, default:float, done:dict)->list:
    "The trials of a row that are still to be made, given those that are done; [] at the end."
    first, second = tuning['seeds']
    rates = first_trials(row, tuning, default)
    if missing := [t for t in rates if t not in done]: return missing
    best = max(rates, key=done.get).lr
    if missing := [t for t in own_trials(row, tuning, best) if t not in done]: return missing
    again = dict.fromkeys([*best_two(row, tuning, done), (default, ())])
    return [t for t in (Trial(row.name, second, *setting) for setting in again) if t not in done]

def chosen(row:Row, tuning:dict, default:float, done:dict)->dict:
    "What a row's pilots chose: the default, unless something gained more than a standard error of the gain."
    def scores(setting): return [done[Trial(row.name, seed, *setting)] for seed in tuning['seeds']]
    usual, best = (default, ()), max(best_two(row, tuning, done), key=lambda s: sum(scores(s)))
    gains = [a-b for a, b in zip(scores(best), scores(usual))]
    gain, error = sum(gains)/2, abs(gains[0]-gains[1])/2
    lr, own = best if gain > error else usual
    rates = sorted({t.lr for t in first_trials(row, tuning, default)})
    found = dict(gain=round(gain, 3), error=round(error, 3))
    return found | dict(lr=lr, own=dict(own), edge=lr in (rates[0], rates[-1]),
                default=usual == (lr, tuple(own)), trials=sum(t.row == row.name for t in done))

def tuned_rows(s:Set)->list: # of Row
    return [r for r in s.rows if not r.rate_of and not r.lr]

if __name__ == '__main__':
    records = records_of((HERE/'plan.toml').read_text())
    for name in records:
        letters = hash_of(records, name)
        commit, when = named_at(name, letters) or ('not committed', '')
        print(f'{name:12} {letters}  {commit[:10]}  {when}')
