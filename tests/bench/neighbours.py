"""How much slower each side is beside a process that counts for ever on one core, in turns with quiet rounds.

    python tests/bench/neighbours.py [--pairs 5] [--tiny] [--out FILE.json]
"""
import subprocess, sys, time
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from common import main
from bare import ask_round, bench_row, foreign_cores, foreign_seconds, seconds_of, spread_of

@contextmanager
def busy_neighbour():
    "While it is open, another process burns one core."
    p = subprocess.Popen([sys.executable, '-c', 'while True: pass'])
    try:
        time.sleep(.2)
        yield p
    finally:
        p.terminate()
        p.wait()

def neighbour(o):
    w = o.work('W1', images=256)
    suite, seen, foreign = w.suite(), [], []
    sides = dict(ours=o.ours(ask_round, w, suite), bare=o.bare(ask_round, w, suite))
    for f in sides.values(): f()
    for i in range(o.pairs):
        found, names = {}, list(sides)[::-1] if i//2%2 else list(sides)
        for busy in (False, True) if i%2 else (True, False):
            with busy_neighbour() if busy else nullcontext():
                begun = foreign_seconds(), time.perf_counter()
                for n in names: found[n, busy] = seconds_of(sides[n])
                if not busy: foreign.append(foreign_cores(begun))
        seen.append(found)
    slow = {n: spread_of([s[n, True]/s[n, False] for s in seen]) for n in sides}
    rows = [bench_row('one busy neighbour: ours', slow['ours'], '× quiet', 1.8),
            bench_row('one busy neighbour: bare loop', slow['bare'], '× quiet')]
    seconds = [{f'{n}, busy' if busy else n: t for (n, busy), t in s.items()} for s in seen]
    return dict(work=asdict(w), rows=rows, seconds=seconds, foreign=foreign)

if __name__ == '__main__': main(__doc__, neighbour=neighbour)
