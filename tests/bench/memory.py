"""Peak memory and processor seconds over the number of clients, each time in a fresh process.

Memory should grow with the images, not with the models; a round with those who take part, not with all.

    python tests/bench/memory.py [--tiny] [--out FILE.json]

Linux tells the peak of a process itself in `VmHWM`; the usual `ru_maxrss` may show the parent's.
"""
import platform, time
from dataclasses import asdict, replace
from pathlib import Path
from common import apart, main
from bare import WORKS, Work, bench_row, noise_suite, spread_of
from fedskew_nb.engine.federation import Federation
from fedskew_nb.nets.models import small_conv
from fedskew_nb.run.recipes import METHODS

def used(peak=True):
    "MiB of this process at its peak or now; None where the system does not say."
    try:
        told = dict(l.split(':', 1) for l in Path('/proc/self/status').read_text().splitlines())
        return int(told['VmHWM' if peak else 'VmRSS'].split()[0])/1024
    except (OSError, KeyError, ValueError): pass
    try: import resource
    except ImportError: return None
    unit = 2**20 if platform.system() == 'Darwin' else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss/unit

def of_a_round(work):
    "MiB before a federation is made, and at the peak of its first round."
    w = Work(**work)
    suite, before = w.suite(), used(peak=False)
    w.federation(suite).fit(1)
    return dict(before=before, peak=used())

def memory_growth(o):
    rows = []
    for n in (10, 100, 300, 1000):
        m = apart(__file__, 'of_a_round', work=asdict(o.work(replace(WORKS['W3'], clients=n))))
        known, target = m['peak'] is not None, 2048. if n == 300 else None
        peak = round(m['peak']) if known else None
        added = round(m['peak']-m['before']) if known else None
        says = f'{n:,} clients × 64 images'
        rows += [bench_row(f'{says}: peak', peak, 'MiB', target),
                 bench_row(f'{says}: added by the federation', added, 'MiB')]
    return dict(rows=rows)

def of_many(n, rounds, each=8, part=100):
    "`n` clients with `each` images of 16×16, of whom `part` take part: a client's ms in every round, MiB."
    suite, before, ms = noise_suite(n, each, size=16), used(peak=False), []
    net = small_conv(10, size=16, width=4, seed=0)
    fed = Federation(METHODS['FedAvg'], net, suite, device='cpu', rounds=10**6, batch_size=each,
                     participation=part/n, eval_every=10**6, lanes=1)
    for _ in range(rounds+1):          # the first one warms up
        start = time.process_time()
        fed.one_round()
        ms.append(1e3*(time.process_time()-start)/part)
    return dict(ms=ms[1:], before=before, peak=used())

def many_clients(o):
    "100 of them train in each round; seconds of the processor, so that neighbours count little."
    rows, most = [], 300 if o.tiny else 100_000
    for n in (n for n in (300, 1000, 3000, 10_000, 30_000, 100_000) if n <= most):
        m = apart(__file__, 'of_many', n=n, rounds=3 if o.tiny else 20)
        says, known = f'{n:,} clients × 8 images', m['peak'] is not None
        target = 2560. if n == most else None
        rows += [bench_row(f'{says}: a client that takes part', spread_of(m['ms']), 'ms'),
                 bench_row(f'{says}: peak', round(m['peak']) if known else None, 'MiB', target),
                 bench_row(f'{says}: added', round(m['peak']-m['before']) if known else None, 'MiB')]
    return dict(rows=rows)

if __name__ == '__main__': main(__doc__, memory_growth=memory_growth, many_clients=many_clients)
