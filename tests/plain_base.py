"""The head of a plain loop: batches in the documented order, images as numbers, a model at a state, means.

Of the package it uses the generator and nothing else.
"""
import copy
from itertools import chain, islice
import torch
from fedskew_nb.core.seeding import generator

def passes(n, size, round_no, client):
    """Endless passes over n images, each a list of batches.

    One permutation, cut; a last batch of one joins the one before."""
    g = generator(0, round_no, client, 'all', 'order')
    while True:
        cut = list(torch.randperm(n, generator=g).split(size))
        if len(cut) > 1 and len(cut[-1]) == 1: cut[-2:] = [torch.cat(cut[-2:])]
        yield cut

def epochs(k, *client): return chain.from_iterable(islice(passes(*client), k))
def steps(k, *client): return islice(chain.from_iterable(passes(*client)), k)

def pixels(x, suite, dtype=torch.float64):
    mean, std = (torch.tensor(v, dtype=dtype).view(1, 3, 1, 1) for v in (suite.mean, suite.std))
    return (x.to(dtype)/255-mean)/std

def at(net, state):
    "A copy of the net with these numbers."
    m = copy.deepcopy(net)
    m.load_state_dict(state)
    return m

def present(clients, share, r):
    "Who takes part in a round: so many of a permutation, in their own order."
    drawn = torch.randperm(len(clients), generator=generator(0, r, 'participants'))
    return [clients[i] for i in sorted(drawn[:max(1, round(share*len(clients)))].tolist())]

def averaged(states, sizes):
    "Every tensor's mean by number of images; of counters the largest."
    def one(name):
        values = [s[name] for s in states]
        if not values[0].is_floating_point(): return max(values)
        return sum(n/sum(sizes)*v for n, v in zip(sizes, values))
    return {name: one(name) for name in states[0]}
