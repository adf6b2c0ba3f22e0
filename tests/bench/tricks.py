"""What each trick brings: lanes, channels-last, stacked clients.

    python tests/bench/tricks.py [--pairs 5] [--tiny] [--out FILE.json]

All variants run in the same race. *No trick* is our engine as plainly as it can be: one lane, all cores for
each operation, NCHW. Small steps are stacked in the last variant only.
"""
from common import main
from bare import ask_round, ask_scores, bench_row, race

def variants(threads):
    "{trick: arguments of the federation}"
    plain = dict(lanes=1, threads=threads, channels_last=False)
    found = {'no trick': plain, 'lanes only': dict(channels_last=False),
             'channels-last only': plain | dict(channels_last=True), 'lanes and channels-last': {}}
    return {k: v | dict(stack=False) for k, v in found.items()}

def tricks(o):
    rows, races = [], {}
    cases = [('W1, training', 'W1', ask_round, None), ('W4, training', 'W4', ask_round, 'both, and stacked'),
             ('W1, evaluation', 'W1', ask_scores, None)]
    for name, work, ask, last in cases:
        w = o.work(work)
        suite, ways = w.suite(), variants(o.threads) | ({last: {}} if last else {})
        sides = {k: o.ours(ask, w, suite, **kw) for k, kw in ways.items()}
        races[name] = r = race(dict(bare=o.bare(ask, w, suite)) | sides, o.pairs)
        rows += [bench_row(f'{name}: {k}', r['ratios'][k]) for k in ways]
    return dict(rows=rows, races=races)

if __name__ == '__main__': main(__doc__, tricks=tricks)
