"""LG-FedAvg, FedRep, Ditto and PartialFed in plain PyTorch loops.

Nothing of the package's methods or engine is used.
"""
import copy
import torch
import torch.nn.functional as F
from plain_base import at, averaged

LR, MOMENTUM, DECAY = .05, .9, 1e-5

def learn(m, batches, names=None, anchor=None, lam=0.):
    "SGD over some batches; only `names` learn, and a module without any of them is in eval."
    m.train()
    for n, p in m.named_parameters(): p.requires_grad_(names is None or n in names)
    for mod in m.modules():
        ps = list(mod.parameters())
        if ps and not any(p.requires_grad for p in ps): mod.eval()
    live = [p for p in m.parameters() if p.requires_grad]
    opt = torch.optim.SGD(live, LR, momentum=MOMENTUM, weight_decay=DECAY)
    for x, y in batches:
        loss = F.cross_entropy(m(x).logits, y)
        for n, p in m.named_parameters():
            if anchor is not None: loss = loss + lam/2*((p-anchor[n])**2).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return {n: v.detach().clone() for n, v in m.state_dict().items()}

def keeping(net, rounds, sizes, kept, phases=None, sends_all=False):
    """LG-FedAvg and FedRep: `kept(name)` stays.

    `phases`: [(share of the batches, names)]; `rounds`: [{client that takes part: its batches}].
    With `sends_all`, PartialFed: the same, but the server averages what is kept, too."""
    server, own = copy.deepcopy(net.state_dict()), [{} for _ in sizes]
    for batches in rounds:
        sent = {}
        for k, bs in batches.items():
            m, a = at(net, server | own[k]), 0
            for n_steps, names in phases or [(len(bs), None)]:
                state = learn(m, bs[a:a+n_steps], names)
                a += n_steps
            sent[k] = state
            own[k] = {n: v for n, v in state.items() if kept(n)}
        mean = of_those(sent, sizes)
        server = {n: server[n] if kept(n) and not sends_all else mean[n] for n in server}
    return server, [server | o for o in own]

def of_those(sent, sizes):
    "The mean over those who sent something."
    return averaged(list(sent.values()), [sizes[k] for k in sent])

def ditto(net, rounds, sizes, lam):
    "First all of v with the received model as anchor, then the federated model; in turns would be the same."
    server, vs = copy.deepcopy(net.state_dict()), [None]*len(sizes)
    for batches in rounds:
        sent = {}
        for k, bs in batches.items():
            anchor = {n: v.clone() for n, v in server.items()}
            vs[k] = learn(at(net, vs[k] or server), bs, anchor=anchor, lam=lam)
            sent[k] = learn(at(net, server), bs)
        server = of_those(sent, sizes)
    return server, [v or server for v in vs]

def adaptive(net, rounds, sizes, gate_draws, tau, eta):
    """A guess of PartialFed-Adaptive, step by step.

    gate_draws[round][client]: [(x, y, noise)] for each step of the gates."""
    server, mine = copy.deepcopy(net.state_dict()), [None]*len(sizes)
    layers = list(dict.fromkeys(n.rpartition('.')[0] for n in server))
    params = {n for n, _ in net.named_parameters()}
    zs = [torch.zeros(len(layers)) for _ in sizes]
    def stays(k, n): return zs[k][layers.index(n.rpartition('.')[0])] < 0
    def pick(k): return {n: mine[k][n] if stays(k, n) else g for n, g in server.items()}
    for r, batches in enumerate(rounds):
        sent = {}
        for k, bs in batches.items():
            for x, y, noise in gate_draws[r][k] if mine[k] is not None else []:
                z = zs[k].clone().requires_grad_()
                u = torch.sigmoid((z+noise)/tau)
                mixed = {}
                for n, g in server.items():
                    s = u[layers.index(n.rpartition('.')[0])]
                    if n not in params: s = s.detach()
                    mixed[n] = s*g+(1-s)*mine[k][n] if g.is_floating_point() else g
                out = torch.func.functional_call(at(net, server).eval(), mixed, (x,))
                F.cross_entropy(out.logits, y).backward()
                zs[k] = (z-eta*z.grad).detach()
            start = pick(k) if mine[k] is not None else server
            sent[k] = learn(at(net, start), bs)
        for k, s in sent.items(): mine[k] = s
        server = of_those(sent, sizes)
    return server, [pick(k) if mine[k] is not None else server for k in range(len(sizes))], zs
