"""What the scripts of this folder share.

Options, both sides on a number of threads, a clock in the engine's methods, processes, the file.
"""
import argparse, json, os, subprocess, sys, time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
import torch
from bare import WORKS, BareLoop, Work, bench_table, run_bench
from fedskew_nb.engine.device import threads_of

@dataclass
class Options:
    "How things are measured."
    pairs: int = 5              # counted rounds of all sides
    tiny: bool = False          # very small, to see that it works: the figures mean nothing
    device: str = 'cpu'
    threads: int = 1            # of the bare loop; as many lanes
    def work(self, w, **more):
        "A `Work`, or one of the four by its name."
        w = replace(WORKS.get(w, w), **more)
        return w.shrunk() if self.tiny else w
    def ours(self, ask, work: Work, suite, method='FedAvg', **kw):
        "A side of a race: a federation that is asked."
        kw = dict(lanes=self.threads if self.device == 'cpu' else 1, device=self.device) | kw
        return partial(ask, work.federation(suite, method, **kw))
    def bare(self, ask, work: Work, suite):
        "The other side: a bare loop that is asked the same, with all threads."
        return on_threads(self.threads, partial(ask, BareLoop(work, suite, self.device)))

def on_threads(n, f):
    "`f`, run with `n` threads for one operation."
    def call():
        with threads_of(n): return f()
    return call

def main(doc, **items):
    "Measure items, {name: function of `Options` that returns rows and more}; print them, add them to a file."
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--pairs', type=int, default=5, help='counted rounds of all sides')
    p.add_argument('--out', help='FILE.json; one of this machine is added to, also one of `bench.py`')
    p.add_argument('--device', default='cpu')
    p.add_argument('--tiny', action='store_true', help='very small, to see that it works')
    o = p.parse_args()
    options = Options(o.pairs, o.tiny, o.device, torch.get_num_threads())
    jobs = {name: partial(f, options) for name, f in items.items()}
    found = run_bench(jobs, o.out, o.device, pairs=o.pairs, tiny=o.tiny)
    print(bench_table(found, list(items)))

@contextmanager
def clocked(
    places: dict,    # {name: [(class, method), …]}
    spent: dict,     # {name: seconds}, added to
):
    "While it is open, calls of these methods are timed; a call inside of another one belongs to the outer."
    inside = [False]
    was = [(c, m, getattr(c, m)) for ps in places.values() for c, m in ps]
    def timed(name, f):
        def call(*args, **kw):
            if inside[0]: return f(*args, **kw)
            inside[0], begun = True, time.perf_counter()
            try: return f(*args, **kw)
            finally:
                inside[0] = False
                spent[name] = spent.get(name, 0.)+time.perf_counter()-begun
        return call
    for name, ps in places.items():
        for c, m in ps: setattr(c, m, timed(name, getattr(c, m)))
    try: yield spent
    finally:
        for c, m, f in was: setattr(c, m, f)

CALL = '''import json, sys
from {script} import {name} as f
print(json.dumps(f(**json.loads(sys.argv[1]))))
'''

def apart(script, name, env=None, **kw):
    "A function of a script by its name, in a fresh Python with these variables."
    code = CALL.format(script=Path(script).stem, name=name)
    path = os.pathsep.join([str(Path(script).parent), *filter(None, sys.path)])
    p = subprocess.run([sys.executable, '-c', code, json.dumps(kw)], capture_output=True, text=True,
                       env=os.environ | dict(PYTHONPATH=path) | (env or {}))
    if p.returncode: raise RuntimeError(f'{name} ended with {p.returncode}: {p.stderr.strip()[-400:]}')
    return json.loads(p.stdout.splitlines()[-1])
