"""The engine beside a bare PyTorch loop, or a round of each method beside FedAvg's: minutes.

    python tests/bench/bench.py [--only W1,evaluation | --methods all] [--pairs 5] [--tiny] [--out FILE.json]

Items are written one by one, so an interruption loses one of them; a later call adds to the file of this
machine."""
import sys
from functools import partial
from bare import BENCH_ITEMS, against_bare, bench_table, run_bench
from rounds import beside_fedavg, rounds_table
from fedskew_nb.core.names import spelt
from fedskew_nb.engine.device import pick_device
from fedskew_nb.run.recipes import ALIASES, METHODS, cut
from fedskew_nb.tools.shell import joined, parser_of, show_json

BENCHES = dict(    # what can be named: the names, what measures one, what shows them
    item=(list(BENCH_ITEMS), against_bare, bench_table),
    method=([n for n in METHODS if n != 'FedAvg'], beside_fedavg, rounds_table))

def asked(only, methods, pairs:int)->tuple: # names, what measures one, what shows them
    "What is to be measured; a mistake is refused first."
    if pairs < 1: raise ValueError(f'--pairs {pairs}: at least one round must be counted')
    if only and methods: raise ValueError('--only and --methods measure different things: call twice')
    noun, given = ('item', only) if methods == () else ('method', methods)
    names, *how = BENCHES[noun]
    if given == () or joined(given) == 'all': return names, *how
    aliases = ALIASES if noun == 'method' else None
    chosen = [spelt(n, names, noun, aliases) for n in cut(joined(given)) or ['']]
    return list(dict.fromkeys(chosen)), *how

def bench_command(
    only=(),            # items: W1,W2,W3,W4,evaluation,train_and_evaluate
    methods=(),         # instead: a round of these methods, or of all
    pairs:int=5,        # rounds of each side, taken in turns
    out:str=None,       # FILE.json for all figures; an older one of this machine is added to
    device:str='cpu',   # cpu or cuda
    tiny:bool=False,    # very small, to see that it works
    json:bool=False,    # all figures as JSON
):
    "The engine beside a bare PyTorch loop, or a round of each method beside FedAvg's."
    names, measure, show = asked(only, methods, pairs)
    device = str(pick_device(device))
    jobs = {n: partial(measure, n, pairs, device, tiny) for n in names}
    bench = run_bench(jobs, out, device, pairs=pairs, tiny=tiny)
    if json: show_json(bench)
    else: print(show(bench))

def main(argv):
    p = parser_of(bench_command, 'bench')
    p.prog = 'python tests/bench/bench.py'
    given = {k: v for k, v in vars(p.parse_args(argv)).items() if v is not None}
    try: bench_command(**given)
    except (ValueError, FileNotFoundError) as e: sys.exit(f'{e}')

if __name__ == '__main__': main(sys.argv[1:])
