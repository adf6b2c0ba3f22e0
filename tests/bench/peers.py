"""A round of FedAvg, training and merging, beside other simulators on W1 and W3.

    python tests/bench/peers.py --peers Flower=PYTHON FLGo=PYTHON BlazeFL=PYTHON [--pairs 7] [--out FILE.json]

PYTHON is the interpreter of an environment that has the peer and the same PyTorch. Each side has a process of
its own. All are started, warm, and asked one after the other, another one first each time. A peer that can
train several clients at once is tried in both ways for a round; the faster stays. All get the allocator's
setting that `bench.py` uses. A round waits until others are quiet, and is run again if they were not.

Before, it is seen that all do the same: steps and images of a round, and (item `same`) the weights after
three steps on clients of one batch, where the order of the images plays no part, beside a plain loop.
"""
import argparse, os, subprocess, sys, tempfile, time
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from functools import partial
from multiprocessing.connection import Listener
from pathlib import Path
from statistics import median
import torch
from bare import (
    WORKS, Work, bench_row, bench_table, foreign_seconds, ratios_of, run_bench, seconds_of)

SIDES = Path(__file__).with_name('peer_sides.py')
CORES = os.cpu_count()
HERE = {'bare loop': ('Bare', 1), 'ours': ('Ours', CORES), 'PFLlib': ('PFLlib', 1)}
LOOPS = {'plain loop': ('ByHand', 1), 'without momentum': ('NoMomentum', 1)}
LIMITS = dict(W1=.75, W3=.70)       # of our time over the best peer's
SAME = Work(4, 64, 64, WORKS['W1'].net)

def stored(w, epochs=1):
    "The file that every side reads."
    cs = w.suite().clients
    path = f'{tempfile.mkdtemp()}/work.pt'
    x, y = (torch.stack([getattr(c.train, a) for c in cs]) for a in 'xy')
    state = list(w.make().state_dict().values())
    torch.save(dict(x=x, y=y, state=state, batch=w.batch, epochs=epochs, work=asdict(w)), path)
    return path

def environment(side, at_once):
    "A core's share for each client; the allocator as in `bench.py`; no reports; Ray as urgent as all."
    paths = [str(SIDES.parent), *(filter(None, sys.path) if side == 'Ours' else ())]
    return os.environ | dict(
        PYTHONPATH=os.pathsep.join(paths), OMP_NUM_THREADS=str(max(1, CORES//at_once)),
        MALLOC_MMAP_THRESHOLD_=str(1<<30), MALLOC_TRIM_THRESHOLD_=str((1<<31)-1),
        FLWR_TELEMETRY_ENABLED='0', RAY_USAGE_STATS_ENABLED='0', RAY_worker_niceness='0',
        RAY_raylet_start_wait_time_s='120')

class Peer:
    "A process that trains a round when it is asked."
    def __init__(self, side, at_once, python, path):
        folder = Path(tempfile.mkdtemp())
        self.log, command = folder/'log', [python, SIDES, side, str(at_once), path, folder/'wire']
        with Listener(str(folder/'wire')) as door, self.log.open('w') as log:
            self.process = subprocess.Popen(command, env=environment(side, at_once), stdout=log, stderr=log)
            door._listener._socket.settimeout(120)
            self.wire = door.accept()
        self.at_once, self.version = at_once, self.answer()
    def answer(self):
        try: return self.wire.recv()
        except EOFError:
            self.process.wait()
            raise RuntimeError(f'{self.process.args[2]} ended: {self.log.read_text()[-1500:]}') from None
    def ask(self, what):
        self.wire.send(what)
        return self.answer()
    def counted_round(self, w, epochs=1):
        "A first round: it must have so many steps and images."
        done, wanted = self.ask('count'), dict(steps=epochs*w.steps, images=epochs*w.clients*w.images)
        if wanted.items() <= done.items(): return done
        side, other = self.process.args[2], {k: done[k] for k in wanted}
        raise RuntimeError(f'{side} did not do {wanted} but {other}')
    def __enter__(self): return self
    def __exit__(self, *_):
        with suppress(OSError): self.wire.send('stop')
        self.process.wait()

def family_seconds(proc=Path('/proc')):
    "Processor seconds of all that this process has started and that is alive."
    parents, seconds = {}, {}
    for stat in proc.glob('[0-9]*/stat'):
        try: pid, fields = int(stat.parent.name), stat.read_text().rpartition(')')[2].split()
        except OSError: continue
        parents[pid], seconds[pid] = int(fields[1]), sum(map(int, fields[11:15]))/os.sysconf('SC_CLK_TCK')
    def ours(p): return p in parents and (parents[p] == os.getpid() or ours(parents[p]))
    return sum(s for p, s in seconds.items() if ours(p))

def watched(f):
    "Seconds of a call, and how many cores others used meanwhile."
    before = foreign_seconds()-family_seconds()
    t = seconds_of(f)
    return t, round(max(0., (foreign_seconds()-family_seconds()-before)/t), 3)

def quiet_round(f, most=.2, patience=5., tries=2):
    "A round beside which others used few cores, or else the quietest; and how many were run."
    rounds = []
    while not rounds or len(rounds) < tries and rounds[-1][1] > most:
        end = time.perf_counter()+patience
        while time.perf_counter() < end and watched(partial(time.sleep, .3))[1] > most: pass
        rounds.append(watched(f))
    return *min(rounds, key=lambda r: r[1]), len(rounds)

def in_turns(sides, turns, minutes=60):
    "Seconds and foreign cores of all sides, and how many rounds were run; no new turn after so many minutes."
    names, seconds, foreign, run = list(sides), {n: [] for n in sides}, {n: [] for n in sides}, 0
    end = time.perf_counter()+60*minutes
    for first in (r%len(names) for r in range(turns)):
        if time.perf_counter() > end: break
        for n in names[first:]+names[:first]:
            t, f, tries = quiet_round(partial(sides[n].ask, 'round'))
            seconds[n].append(round(t, 5))
            foreign[n].append(f)
            run += tries
    return seconds, foreign, run

def every_side(peers, loops=()):
    "{(name, clients at a time): arguments of a `Peer`}; a peer that can do both is there twice."
    here = {(n, k): (side, k, sys.executable) for n, (side, k) in (HERE | dict(loops)).items()}
    return here | {(n, k): (n, k, python) for n, python in peers.items() for k in (1, CORES)}

def race(name, o):
    w = WORKS[name].shrunk() if o.tiny else WORKS[name]
    path = stored(w)
    with ExitStack() as stack:
        sides = {n: stack.enter_context(Peer(*a, path)) for n, a in every_side(o.peers).items()}
        for s in sides.values(): s.counted_round(w)
        print('all sides are warm', file=sys.stderr, flush=True)
        both = {n: s for n, s in sides.items() if n[0] in o.peers}
        trial = {n: min(v) for n, v in in_turns(both, 1)[0].items()}
        for n, k in both:
            if trial[n, k] > min(t for (m, _), t in trial.items() if m == n): sides.pop((n, k)).__exit__()
        idle = -family_seconds()
        time.sleep(2)
        idle = round((idle+family_seconds())/2, 3)
        sides = {n: s for (n, _), s in sides.items()}
        seconds, foreign, run = in_turns(sides, o.pairs, o.minutes)
        facts = {n: dict(version=s.version, at_once=s.at_once) for n, s in sides.items()}
    ratios = ratios_of(seconds, 'bare loop')
    rows = [bench_row(f'{name}: {n}', r, '× bare loop') for n, r in ratios.items()]
    best = min(set(sides)-{'ours', 'bare loop'}, key=lambda n: median(seconds[n]))
    rows.append(bench_row(f'{name}: ours', ratios_of(seconds, best)['ours'], f'× {best}', LIMITS[name]))
    foreign = [f for v in foreign.values() for f in v]
    trial = {f'{n}, {k} at a time': t for (n, k), t in trial.items()}
    return dict(work=asdict(w), rows=rows, sides=facts, seconds=seconds, foreign=foreign, trial=trial,
                rounds_run=run, idle=idle)

def same(o):
    "How far each side's weights are from the plain loop's after a round of three steps."
    w = replace(SAME.shrunk(), batch=16) if o.tiny else SAME
    path, done = stored(w, 3), {}
    for (n, k), a in every_side(o.peers, LOOPS).items():
        with Peer(*a, path) as p: done[n, k] = p.counted_round(w, 3)
    names, loop = list(w.make().state_dict()), done['plain loop', 1]['state']
    def apart(state, kind):
        return max(float(abs(a-b).max()) for n, a, b in zip(names, state, loop) if n.endswith(kind))
    kinds = dict(parameters=('weight', 'bias'), statistics=('mean', 'var'))
    sides = {f'{n}, {k} at a time': {kind: apart(d['state'], ends) for kind, ends in kinds.items()}
             | dict(steps=d['steps'], images=d['images'], torch=d['torch']) for (n, k), d in done.items()}
    return dict(work=asdict(w), rows=[], sides=sides)

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--peers', nargs='*', default=[], help='NAME=PYTHON')
    p.add_argument('--items', nargs='*', default=['same', *LIMITS])
    p.add_argument('--pairs', type=int, default=7, help='counted rounds of all sides')
    p.add_argument('--minutes', type=float, default=10, help='no new turn of a race after so many')
    p.add_argument('--tiny', action='store_true', help='very small, to see that it works')
    p.add_argument('--out', help='FILE.json; one of this machine is added to')
    o = p.parse_args()
    o.peers = dict(peer.split('=') for peer in o.peers)
    jobs = {n: partial(same, o) if n == 'same' else partial(race, n, o) for n in o.items}
    bench = run_bench(jobs, o.out, pairs=o.pairs, tiny=o.tiny)
    for n in o.items: print(*bench['items'][n]['sides'].items(), sep='\n')
    print(bench_table(bench, o.items))

if __name__ == '__main__': main()
