"Small federations, and what their tests ask of them."
import os
import torch
from fedskew_nb.core.models import small_conv
from fedskew_nb.core.seeding import generator
from fedskew_nb.engine.federation import Federation

DEVICE = torch.device(os.environ.get('FEDSKEW_TEST_DEVICE', 'cpu'))          # pytest --device

def small(seed=0, width=4): return small_conv(7, size=32, width=width, seed=seed)

def fed_of(method, suite, net=None, **kw):
    how = dict(rounds=2, local_steps=2, batch_size=8, lr=.05) | kw
    return Federation(method, net or small(), suite, device=DEVICE, **how)

def run(method, suite, net=None, **kw):
    fed = fed_of(method, suite, net, **kw)
    fed.fit()
    return fed

def in_two_parts(make, path):
    "Three rounds, saved after the first and gone on with by another federation; `make(rounds=3)` gives both."
    half = make(rounds=3)
    half.fit(1)
    half.save(path)
    rest = make(rounds=3).load(path)
    rest.fit()
    return rest

def same(a, b): return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)
def states(fed): return [fed.server, *(fed.state_of(c.id) for c in fed.clients)]
def equal(a, b): return all(same(s, t) for s, t in zip(states(a), states(b)))

def images(n=6, size=32, seed=0, dtype=torch.float32):
    return torch.randn(n, 3, size, size, generator=generator(seed, 'x')).to(dtype)
def labels(n=6, K=7, seed=0): return torch.randint(0, K, (n,), generator=generator(seed, 'y'))
