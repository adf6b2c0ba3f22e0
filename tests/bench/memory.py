"""Peak memory over the number of clients, each time in a fresh process.

It should grow with the images, not with the models.

    python tests/bench/memory.py [--tiny] [--out FILE.json]

Linux tells the peak of a process itself in `VmHWM`; the usual `ru_maxrss` may show the parent's.
"""
import platform
from dataclasses import asdict, replace
from pathlib import Path
from common import apart, main
from bare import WORKS, Work, bench_row

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

if __name__ == '__main__': main(__doc__, memory_growth=memory_growth)
