"""Where a round goes: the reference engine, one lane and one thread, with the clock in its methods.

    python tests/bench/parts.py [--pairs 5] [--tiny] [--out FILE.json]

Half as many images are scored as were trained on.
"""
import torch
from torch import Tensor
from common import clocked, main
from bare import ask_both, bench_row, seconds_of, spread_of
from fedskew_nb.core.method import Method
from fedskew_nb.engine.client import Worker
from fedskew_nb.engine.federation import Federation
from fedskew_nb.engine.resident import Resident
from fedskew_nb.engine.server import Server

PARTS = {
    'forward': [(Method, 'run_forward'), (Method, 'terms')],
    'backward': [(Tensor, 'backward')],
    'optimiser': [(torch.optim.SGD, 'step')],
    'batches': [(Worker, 'raw_batch'), (Worker, 'ready_batch')],
    'load': [(Resident, 'load')],
    'merge': [(Server, 'receive'), (Server, 'aggregate')],
    'evaluation': [(Federation, 'score')]}

def round_parts(o):
    rows, parts = [], {}
    for name in ('W1', 'W4'):
        w = o.work(name)
        side, seen = o.ours(ask_both, w, w.suite(), lanes=1, stack=False), []
        side()
        for _ in range(o.pairs):
            with clocked(PARTS, {}) as spent: whole = seconds_of(side)
            rest = {'copies and the rest': whole-sum(spent.values())}
            seen.append({p: spent.get(p, 0.) for p in PARTS} | rest)
        parts[name] = {p: spread_of([s[p] for s in seen])['value'] for p in seen[0]}
        shares = {p: spread_of([100*s[p]/sum(s.values()) for s in seen]) for p in seen[0]}
        rows += [bench_row(f'{name}: {p}', v, '% of the round') for p, v in shares.items()]
    return dict(rows=rows, parts=parts)

if __name__ == '__main__': main(__doc__, round_parts=round_parts)
