# Made from critics.py by tests/tools/stubs.py: `make export` writes it anew.
from torch import Generator
__all__ = ['check_critic', 'fit_critic']

def check_critic(p: dict, name='critic') -> dict:
    """`p`, or one sentence that names the critic and the tensor that is not finite.
    
    p: the critic's tensors
    name: whose it is, for the message"""
def ascend(p, opt, a, b, gen) -> None: ...
def fit_critic(draw, gen: Generator, steps: int=200, batch: int=512, hidden: int=32, lr: float=0.03, watch=None) -> dict:
    """A critic that tells pairs from strangers.
    
    draw: (n, gen) -> a, b: fresh pairs, or always the same
    gen: on the CPU
    steps: of Adam
    batch: n of each step
    hidden: width of the critic
    lr: at the first step; falls to 0
    watch: called with (step, p)"""
