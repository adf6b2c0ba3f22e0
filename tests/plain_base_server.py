"""FedHEAL, FedGen and Fed-ensemble in plain PyTorch, client by client and coordinate by coordinate.

Nothing of the package is used.
"""
import copy
import torch
import torch.nn.functional as F
from plain_base import at, averaged

def sgd(net, start, batches, lr, loss):
    "The state after one step on each batch; `loss(net, x, y)`."
    net = at(net, start).train()
    opt = torch.optim.SGD(net.parameters(), lr)
    for x, y in batches:
        opt.zero_grad()
        loss(net, x, y).backward()
        opt.step()
    return {n: v.detach().clone() for n, v in net.state_dict().items()}

def ce(net, x, y): return F.cross_entropy(net(x).logits, y)

def fedheal(net, rounds, sizes, lr, tau, beta):
    "`rounds`: [{client: batches}]. The moves of each client are kept as lists of signs."
    w, learnt = copy.deepcopy(net.state_dict()), [n for n, _ in net.named_parameters()]
    signs, p, dp = {k: [] for k in sizes}, {}, {}
    for todo in rounds:
        sent = {k: sgd(net, w, b, lr, ce) for k, b in todo.items()}
        first = {k: sizes[k]/sum(sizes[j] for j in sent) for k in sent}
        D, M = {}, {}
        for k, s in sent.items():
            D[k] = {n: s[n]-w[n] for n in learnt}
            now = {n: torch.where(D[k][n] <= 0, -1, 1) for n in learnt}
            past = signs[k]
            M[k] = {n: torch.ones_like(D[k][n]) if not past else
                    ((sum((o[n] == now[n]).double() for o in past)/len(past)) > tau).double() for n in learnt}
            signs[k].append(now)
        d = {k: sum(float((M[k][n]*D[k][n]).norm()) for n in learnt) for k in sent}
        for k in sent:
            dp[k] = (1-beta)*dp.get(k, 0)+beta*d[k]/sum(d.values())
            p[k] = p.get(k, first[k])+dp[k]
        q = {k: p[k]/sum(p[j] for j in sent) for k in sent}
        new = averaged(list(sent.values()), list(first.values()))
        for n in learnt:
            heard = sum(q[k]*M[k][n] for k in sent)
            step = sum(q[k]*M[k][n]*D[k][n] for k in sent)
            new[n] = w[n]+torch.where(heard > 0, step/heard, torch.zeros_like(step))
        w = new
    return w, q, M

def generator(noise, classes, hidden, d):
    first, last = torch.nn.Linear(noise+classes, hidden), torch.nn.Linear(hidden, d)
    return torch.nn.Sequential(first, torch.nn.BatchNorm1d(hidden), torch.nn.ReLU(), last)

def asked(G, y, eps, classes): return G(torch.cat([eps, torch.eye(classes, dtype=eps.dtype)[y]], 1))

def train_generator(G, adam, heads, counts, draws, eta):
    "One step for each (labels, noise) of `draws`."
    G.train()
    for y, eps in draws:
        z, loss = asked(G, y, eps, counts.shape[1]), 0
        for h, n in zip(heads, counts):
            for i in range(len(y)):
                share = n[y[i]]/counts[:, y[i]].sum()
                logits = h['weight']@z[i]+h['bias']
                loss = loss+share*F.cross_entropy(logits[None], y[i:i+1])/len(y)
        far = sum(((a-b)**2).mean()*(u-v).abs().mean() for a, u in zip(eps, z) for b, v in zip(eps, z))
        adam.zero_grad()
        (loss+eta*torch.exp(-far/len(y)**2)).backward()
        adam.step()

def fed_ensemble(nets, rounds, sizes, lr, turn):
    "K models; in each round each client trains the one that `turn(round, client)` says."
    models = [copy.deepcopy(n.state_dict()) for n in nets]
    for r, todo in enumerate(rounds):
        new = list(models)
        for m in range(len(models)):
            mine = [k for k in todo if turn(r, k) == m]
            if not mine: continue
            sent = [sgd(nets[0], models[m], todo[k], lr, ce) for k in mine]
            new[m] = averaged(sent, [sizes[k]/sum(sizes[j] for j in mine) for k in mine])
        models = new
    return models
