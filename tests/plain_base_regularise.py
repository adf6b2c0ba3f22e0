"""FedDyn, SCAFFOLD, FedDC and FedDecorr's term in plain PyTorch, with explicit gradients, from the papers.

Nothing of the package is used.
"""
import copy
import torch
import torch.nn.functional as F
from plain_base import at, averaged as merged

def gradient(net, x, y):
    "{name: gradient} of the cross-entropy."
    live = dict(net.named_parameters())
    return dict(zip(live, torch.autograd.grad(F.cross_entropy(net(x).logits, y), list(live.values()))))

def walk(net, start, batches, lr, more):
    "SGD from `start` along the gradient plus `more(name, w)`; the state at the end and the number of steps."
    net = at(net, start).train()
    for x, y in batches:
        g = gradient(net, x, y)
        with torch.no_grad():
            for n, w in net.named_parameters(): w -= lr*(g[n]+more(n, w))
    return {n: v.detach().clone() for n, v in net.state_dict().items()}, len(batches)

def averaged(sent, p, names):
    "Weighted means of these names."
    return {n: sum(q*s[n] for q, s in zip(p, sent)) for n in names}

def with_buffers(new, sent, p, learnt):
    "BatchNorm statistics are averaged, counters take the largest."
    rest = [n for n in sent[0] if n not in learnt]
    for n in rest:
        values = [s[n] for s in sent]
        new[n] = sum(q*v for q, v in zip(p, values)) if values[0].is_floating_point() else max(values)
    return new

def feddyn(net, rounds, sizes, lr, alpha):
    "`rounds`: [{client: batches}]. Algorithm 1 with the memories g_k, all of them at the server."
    x, learnt = copy.deepcopy(net.state_dict()), [n for n, _ in net.named_parameters()]
    g = {k: {n: torch.zeros_like(x[n]) for n in learnt} for k in sizes}
    for todo in rounds:
        sent = {k: walk(net, x, b, lr, lambda n, w, k=k: -g[k][n]+alpha*(w-x[n]))[0] for k, b in todo.items()}
        for k, s in sent.items(): g[k] = {n: g[k][n]-alpha*(s[n]-x[n]) for n in learnt}
        p = [sizes[k]/sum(sizes[j] for j in sent) for k in sent]
        h = {n: sum(sizes[k]/sum(sizes.values())*g[k][n] for k in sizes) for n in learnt}
        mean = averaged(list(sent.values()), p, learnt)
        x = with_buffers({n: mean[n]-h[n]/alpha for n in learnt}, list(sent.values()), p, learnt)
    return x, g

def scaffold(net, rounds, sizes, lrs, eta_g=1., alpha=0.):
    "Algorithm 1, option II; with α > 0 on the drift loss of FedDC (CVPR 2022), h the drifts."
    x, learnt = copy.deepcopy(net.state_dict()), [n for n, _ in net.named_parameters()]
    def zeros(): return {n: torch.zeros_like(x[n]) for n in learnt}
    own, h = ({k: zeros() for k in sizes} for _ in range(2))
    P = {k: sizes[k]/sum(sizes.values()) for k in sizes}
    for todo, lr in zip(rounds, lrs):
        c, sent = {n: sum(P[k]*own[k][n] for k in sizes) for n in learnt}, {}
        for k, b in todo.items():
            def more(n, w): return c[n]-own[k][n]+alpha*(w-(x[n]-h[k][n]))
            sent[k], K = walk(net, x, b, lr, more)
            new = {n: own[k][n]-c[n]+(x[n]-sent[k][n])/(K*lr) for n in learnt}
            h[k] = {n: h[k][n]+sent[k][n]-x[n] for n in learnt}
            own[k] = new
        p = [sizes[k]/sum(sizes[j] for j in sent) for k in sent]
        mean = averaged(list(sent.values()), p, learnt)
        drift = {n: sum(P[k]*h[k][n] for k in sizes) if alpha else 0 for n in learnt}
        moved = {n: x[n]+eta_g*(mean[n]-x[n])+drift[n] for n in learnt}
        x = with_buffers(moved, list(sent.values()), p, learnt)
    return x, own

def feddecorr(net, rounds, sizes, lr, beta, term):
    "`rounds`: [{client: batches}]. Cross-entropy and β times a term of the features, averaged by size."
    x = copy.deepcopy(net.state_dict())
    for todo in rounds:
        sent = {}
        for k, batches in todo.items():
            m = at(net, x).train()
            opt = torch.optim.SGD(m.parameters(), lr)
            for images, y in batches:
                out = m(images)
                opt.zero_grad()
                (F.cross_entropy(out.logits, y)+beta*term(out.feat)).backward()
                opt.step()
            sent[k] = m.state_dict()
        x = merged(list(sent.values()), [sizes[k] for k in sent])
    return x

def decorr_of_its_code(f):
    "The authors' strength: the mean over i≠j of (Σ_n z_ni z_nj)², divided by the number of images."
    N, d = f.shape
    z = [(f[:, i]-f[:, i].mean())/(f[:, i].var()+1e-8).sqrt() for i in range(d)]
    return sum((z[i]*z[j]).sum()**2 for i in range(d) for j in range(d) if i != j)/(d*(d-1))/N

def decorr(f):
    "Σ_{i≠j} corr(f_i, f_j)² / d², pair by pair."
    N, d = f.shape
    total = 0
    for i in range(d):
        for j in range(d):
            if i == j: continue
            a, b = f[:, i]-f[:, i].mean(), f[:, j]-f[:, j].mean()
            total = total+((a*b).sum()/(N-1)/(a.var()+1e-8).sqrt()/(b.var()+1e-8).sqrt())**2
    return total/d**2
