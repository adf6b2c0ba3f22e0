"""What keeping freed memory brings each side: seconds with it over seconds without.

    python tests/bench/allocator.py [--pairs 5] [--tiny] [--out FILE.json]

The allocator of Linux returns large blocks after every step and asks for them again; the engine tells it
not to. A process cannot take that back, so each way has processes of its own, in turns.
"""
import statistics
from dataclasses import asdict
from common import Options, apart, main
from bare import Work, ask_round, bench_row, race, spread_of
from fedskew_nb.engine.device import keep_freed_memory

def seconds_per_round(work, rounds, threads):
    "Median seconds of a round of both sides in this process, whatever its allocator does."
    keep_freed_memory()
    o, w = Options(threads=threads), Work(**work)
    suite = w.suite()
    r = race(dict(bare=o.bare(ask_round, w, suite), ours=o.ours(ask_round, w, suite)), rounds)
    return {k: statistics.median(v) for k, v in r['seconds'].items()}

def allocator(o):
    work, seen = asdict(o.work('W1')), []
    def in_a_process(keep):
        env = dict(FEDSKEW_MALLOC=keep)
        return apart(__file__, 'seconds_per_round', env=env, work=work, rounds=2, threads=o.threads)
    for i in range(o.pairs):
        ways = ('1', '0') if i%2 else ('0', '1')
        seen.append({v: in_a_process(v) for v in ways})
    def row(k, says):
        ratios = [s['1'][k]/s['0'][k] for s in seen]
        return bench_row(f'W1 with freed memory kept: {says}', spread_of(ratios), '× without')
    return dict(rows=[row('bare', 'bare loop'), row('ours', 'ours')], processes=seen)

if __name__ == '__main__': main(__doc__, allocator=allocator)
