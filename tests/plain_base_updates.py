"""Server optimisers, FedNova, AFL, GroupDRO, q-FedAvg and FedDG-GA in plain PyTorch, client by client.

Nothing of the package is used.
"""
import copy, math
import torch
import torch.nn.functional as F
from plain_base import at, averaged

def train(net, start, batches, lr, rho=0.):
    "The state after one step on each batch, with momentum written out."
    net = at(net, start).train()
    live = dict(net.named_parameters())
    v = {n: torch.zeros_like(w) for n, w in live.items()}
    for x, y in batches:
        g = torch.autograd.grad(F.cross_entropy(net(x).logits, y), list(live.values()))
        with torch.no_grad():
            for (n, w), d in zip(live.items(), g):
                v[n] = rho*v[n]+d
                w -= lr*v[n]
    return {n: s.detach().clone() for n, s in net.state_dict().items()}

def loss_of(net, state, images, y):
    "Mean cross-entropy, image by image, in eval."
    with torch.no_grad(): logits = at(net, state).eval()(images).logits
    return sum(float(row.logsumexp(0)-row[k]) for row, k in zip(logits, y.tolist()))/len(y)

def moved_by(net, x, sent, p, u):
    "x + Σ u_k (w_k − x) for what is learnt; statistics averaged by p, counters the largest."
    new = averaged(list(sent.values()), list(p.values()))
    for n, _ in net.named_parameters(): new[n] = x[n]+sum(u[k]*(s[n]-x[n]) for k, s in sent.items())
    return new

def present(sizes, sent): return {k: sizes[k]/sum(sizes[j] for j in sent) for k in sent}

# ---- steps

def with_optimiser(net, rounds, sizes, lr, step):
    "`step(name, delta, round)` gives by how much each parameter moves."
    x = copy.deepcopy(net.state_dict())
    for r, todo in enumerate(rounds):
        sent = {k: train(net, x, b, lr) for k, b in todo.items()}
        new = averaged(list(sent.values()), [sizes[k] for k in sent])
        for n, _ in net.named_parameters(): new[n] = x[n]+step(n, new[n]-x[n], r)
        x = new
    return x

def torch_step(make, before=lambda group, t: None):
    "A step by an optimiser of PyTorch, whose gradient is minus the move."
    of = {}
    def step(name, delta, r):
        if name not in of:
            p = torch.nn.Parameter(torch.zeros_like(delta))
            of[name] = p, make([p])
        p, opt = of[name]
        was, p.grad = p.detach().clone(), -delta
        before(opt.param_groups[0], r+1)
        opt.step()
        return p.detach()-was
    return step

def adam_without_correction(eta, tau, b1=.9, b2=.99):
    "PyTorch's Adam with a rate and an ε of each round that undo its correction."
    def undo(group, t): group.update(lr=eta*(1-b1**t)/math.sqrt(1-b2**t), eps=tau/math.sqrt(1-b2**t))
    return torch_step(lambda ps: torch.optim.Adam(ps, betas=(b1, b2)), undo)

def yogi_step(eta, tau, b1=.9, b2=.99):
    "Number by number."
    of = {}
    def one(m, v, d):
        m = b1*m+(1-b1)*d
        if v > d*d: v -= (1-b2)*d*d
        elif v < d*d: v += (1-b2)*d*d
        return eta*m/(math.sqrt(v)+tau), m, v
    def step(name, delta, r):
        flat = delta.flatten().tolist()
        old = of.get(name, [(0., 0.)]*len(flat))
        new = [one(m, v, d) for (m, v), d in zip(old, flat)]
        of[name] = [(m, v) for _, m, v in new]
        return delta.new_tensor([move for move, _, _ in new]).view_as(delta)
    return step

def fednova(net, rounds, sizes, lr, rho):
    "Every gradient's count is added up step by step."
    def counted(steps):
        velocity = total = 0.
        for _ in range(steps):
            velocity = rho*velocity+1
            total += velocity
        return total
    x = copy.deepcopy(net.state_dict())
    for todo in rounds:
        sent = {k: train(net, x, b, lr, rho) for k, b in todo.items()}
        p, a = present(sizes, sent), {k: counted(len(b)) for k, b in todo.items()}
        tau = sum(p[k]*a[k] for k in sent)
        x = moved_by(net, x, sent, p, {k: p[k]*tau/a[k] for k in sent})
    return x

# ---- weights

def on_simplex(v, s):
    "The nearest point of sum s: the threshold is found by halving."
    low, high = min(v)-s, max(v)
    for _ in range(200):
        mid = (low+high)/2
        if sum(max(a-mid, 0) for a in v) > s: low = mid
        else: high = mid
    return [max(a-high, 0) for a in v]

def worst_domains(net, rounds, sizes, lr, eta, domains, images, multiply):
    "AFL or GroupDRO; `domains`: {client: name}, `images`: {client: (x, y)}. The weights of each round, too."
    x, seen = copy.deepcopy(net.state_dict()), []
    lam = {d: 1/len(set(domains.values())) for d in domains.values()}
    for todo in rounds:
        loss = {k: loss_of(net, x, *images[k]) for k in todo}
        sent = {k: train(net, x, b, lr) for k, b in todo.items()}
        here = {d: [k for k in todo if domains[k] == d] for d in lam if d in [domains[k] for k in todo]}
        part = {k: sizes[k]/sum(sizes[j] for j in here[domains[k]]) for k in todo}
        mean = {d: sum(part[k]*loss[k] for k in ks) for d, ks in here.items()}
        s = sum(lam[d] for d in here)
        before = dict(lam)
        if multiply: new = [lam[d]*math.exp(eta*mean[d]) for d in here]
        else: new = on_simplex([lam[d]+eta*mean[d] for d in here], s)
        lam |= {d: s*v/sum(new) for d, v in zip(here, new)}
        seen.append(dict(lam))
        acts = lam if multiply else before    # AFL's Algorithm 1: w moves by λ of before, then λ moves
        x = averaged(list(sent.values()), [acts[domains[k]]/s*part[k] for k in sent])
    return x, seen

def q_fedavg(net, rounds, sizes, lr, q, images):
    "As in the paper: L = 1/η, Δ_k = F^q L (x − w_k), h_k = q F^{q−1} ‖L (x − w_k)‖² + L F^q."
    x, L = copy.deepcopy(net.state_dict()), 1/lr
    learnt = [n for n, _ in net.named_parameters()]
    for todo in rounds:
        loss = {k: loss_of(net, x, *images[k])+1e-10 for k in todo}
        sent = {k: train(net, x, b, lr) for k, b in todo.items()}
        p, total, h = present(sizes, sent), {n: 0. for n in learnt}, 0.
        for k, s in sent.items():
            grad = {n: L*(x[n]-s[n]) for n in learnt}
            h += p[k]*(q*loss[k]**(q-1)*sum(float((g*g).sum()) for g in grad.values())+L*loss[k]**q)
            for n in learnt: total[n] = total[n]+p[k]*loss[k]**q*grad[n]
        new = averaged(list(sent.values()), list(p.values()))
        x = new | {n: x[n]-total[n]/h for n in learnt}
    return x

def adjustment(net, rounds, sizes, lr, step, images):
    "FedDG-GA; `images`: {client: held-out (x, y)}. The weights after each round, too."
    x, N = copy.deepcopy(net.state_dict()), len(sizes)
    a, before, seen = {k: n/sum(sizes.values()) for k, n in sizes.items()}, {}, []
    for r, todo in enumerate(rounds):
        gap = {k: loss_of(net, x, *images[k])-before[k] for k in todo if k in before}
        sent = {k: train(net, x, b, lr) for k, b in todo.items()}
        for k, s in sent.items(): before[k] = loss_of(net, s, *images[k])
        for k, G in gap.items():
            a[k] += step*(1-(r-1)/len(rounds))/N*G/max(abs(v) for v in gap.values())
            a[k] = 0 if a[k] < 0 else 1 if a[k] > 1 else a[k]
        total = sum(a.values())
        a = {k: v/total for k, v in a.items()}
        seen.append(dict(a))
        x = averaged(list(sent.values()), [a[k]/sum(a[j] for j in sent) for k in sent])
    return x, seen
