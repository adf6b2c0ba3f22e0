"""What a round of F2DC and of FDSE costs beside FedAvg's and FedBN's, in processor seconds.

    python tests/bench/round_cost.py [PAIRS]      # 5 pairs of rounds by default

Claims F2DC-22 and FDSE-16. The two methods train in turns, so that whatever else the machine does falls on
both. A ratio of time is no test: it hangs on the machine. The papers print 1.02 for F2DC and 1.06 for FDSE;
up to 1.25 we would call "modest".
"""
import os, sys, time
from statistics import median

os.environ.setdefault('OMP_NUM_THREADS', '1')

from fedskew_nb import F2DC, FDSE, FedAvg, FedBN, Federation, load_suite, resnet10, small_conv
from fedskew_nb.nets.costs import flops
from fedskew_nb.nets.models import n_params

LIMIT = 1.25

def round_ratio(one, other, make, pairs=5, width=16):
    "Seconds of a round of `one` over those of `other`, in turns; batch 64, 32 pixels, one warm-up round."
    s = load_suite('skew-digits', size='stress', data_seed=0)
    def federation(m):
        net = make(s.n_classes, size=s.image_size, width=width)
        return Federation(m, net, s, device='cpu', rounds=pairs + 1)
    def cost(fed):
        begin = time.process_time()
        fed.one_round()
        return time.process_time() - begin
    a, b = federation(one), federation(other)
    cost(a), cost(b)
    ratios = []
    for p in range(pairs):
        if p % 2: second, first = cost(b), cost(a)
        else: first, second = cost(a), cost(b)
        ratios.append(first/second)
    return ratios

def main(pairs=5):
    print('| method | against | network | seconds, median (range) | operations | parameters |')
    print('|--'*6 + '|')
    for one, other, make in ((F2DC, FedAvg, resnet10), (FDSE, FedBN, resnet10), (FDSE, FedAvg, resnet10),
                             (FDSE, FedBN, small_conv), (FDSE, FedAvg, small_conv)):
        r = round_ratio(one, other, make, pairs)
        plain = make(10, size=32, width=16)
        ours = one.adapt(plain)
        cells = (one.name, other.name, make.__name__, f'{median(r):.3f} ({min(r):.3f} to {max(r):.3f})',
                 f'{flops(ours, 32)/flops(plain, 32):.2f}', f'{n_params(ours)/n_params(plain):.2f}')
        print('| ' + ' | '.join(cells) + ' |', flush=True)
    print(f'at most {LIMIT} would be modest; {pairs} pairs of rounds')

if __name__ == '__main__': main(int(sys.argv[1]) if sys.argv[1:] else 5)
