"""What the machine can do: billions of operations and of bytes per second, with one thread and with all.

    python tests/bench/roofline.py [--pairs 5] [--tiny] [--out FILE.json]
"""
from functools import partial
import torch
from torch import nn
from common import main, on_threads
from bare import bench_row, seconds_of, spread_of

def conv_step(side, images, order): # (function, its multiplications and additions)
    "Forward and backward pass of a convolution of 64 channels."
    conv = nn.Conv2d(64, 64, 3, padding=1).to(memory_format=order)
    x = torch.randn(images, 64, side, side).contiguous(memory_format=order).requires_grad_()
    up = torch.randn_like(x)
    return lambda: conv(x).backward(up), 3*2*64*64*9*side*side*images

def roofline(o):
    small, big, side, images, copied = (32, 64, 4, 2, 2**10) if o.tiny else (1024, 2048, 32, 64, 2**26)
    rows = []
    def add(what, f, work, unit='GFLOP/s'):
        for t in sorted({1, o.threads}):
            g = on_threads(t, f)
            g()
            found = spread_of([work/seconds_of(g)/1e9 for _ in range(o.pairs)])
            rows.append(bench_row(f'{what}, {t} thread{"s" if t > 1 else ""}', found, unit))
    for n in (small, big): add(f'matrix product {n}', partial(torch.mm, *torch.randn(2, n, n)), 2*n**3)
    for says, order in (('NCHW', torch.contiguous_format), ('channels-last', torch.channels_last)):
        add(f'convolution 64→64, forward and backward, {says}', *conv_step(side, images, order))
    a, b = torch.zeros(copied), torch.zeros(copied)
    add('copy: read and write', lambda: b.copy_(a), 8*copied, 'GB/s')
    return dict(rows=rows)

if __name__ == '__main__': main(__doc__, roofline=roofline)
