"""What FDSE's server costs: its part of a round; and min-norm aggregation alone, for K clients, P parameters.

    python tests/bench/server.py [--pairs 5] [--tiny] [--out FILE.json]
"""
from dataclasses import asdict
import torch
from common import clocked, main, on_threads
from bare import Work, ask_round, bench_row, seconds_of, spread_of
from fedskew_nb.core.seeding import generator
from fedskew_nb.engine.server import Server
from fedskew_nb.methods.fdse.consensus import consensus_step

CLOSING = dict(close=[(Server, 'aggregate')])

def server_share(o):
    "Ten clients of 64 images on AlexNet, the largest model: five local epochs, as the paper, and one step."
    w, rows, seconds = o.work(Work(10, 64, 64, 'alexnet_bn')), [], {}
    suite = w.suite()
    for says, epochs, target in (('five local epochs', 5, 5.), ('one local step', 1, None)):
        side = o.ours(ask_round, w, suite, 'FDSE', local_epochs=epochs)
        side()
        close, whole = seconds[says] = [[], []]
        for _ in range(o.pairs):
            with clocked(CLOSING, {}) as spent: whole.append(seconds_of(side))
            close.append(spent['close'])
        share = spread_of([100*c/t for c, t in zip(close, whole)])
        named = f'server step of FDSE, alexnet_bn, 10 clients, {says}'
        rows.append(bench_row(named, share, '% of the round', target))
    return dict(work=asdict(w), rows=rows, seconds=seconds)

def server_sizes(o):
    "Milliseconds on one thread."
    sizes = [(K, P) for K in (4, 10, 20, 50) for P in (10**5, 10**6, 5*10**6)]
    rows, g = [], generator('bench', 'consensus')
    for K, P in [(4, 100)] if o.tiny else sizes:
        V, start = torch.randn(K, P, generator=g), torch.randn(P, generator=g)
        f = on_threads(1, lambda: consensus_step(V, start))
        f()
        found = spread_of([1e3*seconds_of(f) for _ in range(o.pairs)])
        target = 50. if (K, P) == (10, 5*10**6) else None
        rows.append(bench_row(f'consensus of {K} clients, {P:,} parameters', found, 'ms', target))
    return dict(rows=rows)

if __name__ == '__main__': main(__doc__, server_share=server_share, server_sizes=server_sizes)
