"""What the mechanisms of the systems cost: a round of each over a round of FedAvg, in one race and engine.

    python tests/bench/systems.py [--pairs 5] [--tiny] [--out FILE.json]
"""
from common import main
from bare import ask_round, bench_row, race

TARGETS = {('F2DC', 'resnet10(width=16)'): 1.25}
METHODS = ('FedAvg', 'FedProx', 'FedBN', 'F2DC', 'FDSE')

def systems(o):
    rows, races = [], {}
    for net, images in (('small_conv(width=16)', 256), ('resnet10(width=16)', 128)):
        w = o.work('W1', net=net, images=images)
        suite = w.suite()
        sides = {m: o.ours(ask_round, w, suite, m) for m in METHODS}
        races[net] = r = race(sides, o.pairs, to='FedAvg')
        for m, v in r['ratios'].items():
            rows.append(bench_row(f'{m}, {net}', v, '× FedAvg', TARGETS.get((m, net))))
    return dict(rows=rows, races=races)

if __name__ == '__main__': main(__doc__, systems=systems)
