"""Train pairs of methods on noise and store what came of it: the table of the page 7_app/21_combine.

    python tests/tools/pairs.py            # the pairs that are not stored yet: what a new method asks for
    python tests/tools/pairs.py --all      # every pair, about two minutes: what a changed method asks for
"""
import argparse, json, sys
from dataclasses import replace
from datetime import date
from functools import cache
from importlib.resources import files
from itertools import combinations
from pathlib import Path
import torch
from fedskew_nb.tools.combine import PAIRS, refusal, stored_pairs, tiny_net
from fedskew_nb.run.recipes import METHODS, read_method
from fedskew_nb.data.images import Data
from fedskew_nb.engine.federation import Federation

sys.path.append(str(Path(__file__).parents[1]/'bench'))
from bare import noise_suite

FILE = files('fedskew_nb')/'assets'/'runs'/PAIRS

def noise_with_boxes():
    "Two clients with sixteen random images, and a box in each."
    suite = noise_suite(2, 16, tests=2, size=16, n_classes=3)
    def boxed(d): return Data(d.x, d.y, None, torch.tensor([[4, 4, 12, 12]]).repeat(len(d), 1))
    return replace(suite, clients=[replace(c, train=boxed(c.train)) for c in suite.clients])

def trained(method):
    "Two short rounds on noise."
    how = dict(rounds=2, local_steps=4, batch_size=8, lr=.01, seed=0)
    fed = Federation(method, tiny_net(), noise_with_boxes(), device='cpu', **how)
    fed.fit()
    return fed

def outcome(fed):
    "All that a user gets: the global model, the clients' models, and what they answer, [{name: tensor}]."
    x = fed.suite.clients[0].test.x
    return [fed.server] + [fed.state_of(c.id) | {'answer': fed.predict(x, client=c.id)} for c in fed.clients]

@cache
def alone(name):
    "What comes of a method by itself."
    return outcome(trained(read_method(name)))

def holds(bigger, smaller):
    "Is every tensor of the smaller outcome in the bigger one, bit for bit?"
    return all(n in b and torch.equal(v, b[n]) for b, s in zip(bigger, smaller) for n, v in s.items())

def verdict(one, other):
    "What comes of a pair: [verdict, of whom or why]."
    if why := refusal(one, other): return ['refused', why]
    both = outcome(trained(read_method(one)+read_method(other)))
    for name in (one, other):
        if holds(both, alone(name)): return ['adds nothing', name]
    return ['runs', '']

def pair_name(one, other): return f'{one} + {other}'

def all_pairs(names=tuple(METHODS), known=()):
    "The verdict of every pair, {'A + B': [verdict, of whom or why]}; those of `known` are not trained again."
    pairs = {pair_name(*p): p for p in combinations(names, 2)}
    return {n: known[n] if n in known else verdict(*p) for n, p in pairs.items()}

def store(pairs, known):
    "Write them, and when how many of them were trained; what stays stored keeps its date."
    fresh = dict(date=str(date.today()), torch=torch.__version__, pairs=len(pairs.keys()-known.keys()))
    before = json.loads(FILE.read_text(encoding='utf-8'))['trained'] if known and FILE.exists() else []
    found = dict(trained=[*before, fresh], pairs=pairs)
    FILE.write_text(json.dumps(found, indent=0, ensure_ascii=False)+'\n', encoding='utf-8')

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--all', action='store_true', help='also the pairs that are stored')
    known = {} if p.parse_args().all else stored_pairs()
    torch.set_num_threads(1)
    pairs = all_pairs(known=known)
    if list(pairs.items()) == list(known.items()): return print('every pair is stored')
    store(pairs, known)
    print(f'{len(pairs.keys()-known.keys())} pairs trained, {len(pairs)} stored in {FILE}')

if __name__ == '__main__': main()
