"""How long until the first step: making a federation, and from the call of `fit`, each in a fresh process.

    python tests/bench/start_up.py [--pairs 5] [--tiny] [--out FILE.json]
"""
import time
from dataclasses import asdict, replace
from unittest.mock import patch
from common import apart, main
from bare import BareLoop, Work, bench_row, spread_of
from fedskew_nb.engine.client import Worker

def first_step(work):
    "Seconds, after PyTorch has trained something else."
    w, begun, real = Work(**work), [], Worker.ready_batch
    one = replace(w, clients=1)
    BareLoop(one, one.suite()).one_round()
    suite = w.suite()
    def batch(*args):
        begun.append(time.perf_counter())
        return real(*args)
    start = time.perf_counter()
    fed = w.federation(suite)
    made = time.perf_counter()
    with patch.object(Worker, 'ready_batch', batch):
        called = time.perf_counter()
        fed.fit(1)
    return dict(make=made-start, first=min(begun)-called)

def start_up(o):
    work = asdict(o.work('W1', images=64))
    seen = [apart(__file__, 'first_step', work=work) for _ in range(o.pairs)]
    make, first = (spread_of([s[k] for s in seen]) for k in ('make', 'first'))
    return dict(rows=[bench_row('making the federation', make, 's'),
                      bench_row('from the call of fit to the first step', first, 's', 1.)])

if __name__ == '__main__': main(__doc__, start_up=start_up)
