"MixStyle, DSU, FedDG, FedSR and FedPLVM in plain PyTorch, image by image, for a net body → pool → head."
import copy
import numpy as np
import torch
import torch.nn.functional as F
from torch.distributions import Independent, Normal, kl_divergence
from fedskew_nb.core.seeding import generator
from plain_base import averaged, pixels
from plain_base_augment import DECAY, LR, MOMENTUM, style, trained, variance
from plain_base_prototypes import cosine, finch

def rounds(net, suite, who, local):
    "The server's model after rounds of these participants; `local(server, client, round)` gives a state."
    server = copy.deepcopy(net.state_dict())
    for r, ids in enumerate(who):
        part = [c for c in suite.clients if c.id in ids]
        server = averaged([local(server, c, r) for c in part], [len(c.train.y) for c in part])
        yield server

# ---- DSU and MixStyle

def restyled(x, mu, sd, new):
    def one(b, c): return (x[b, c]-mu[b][c])/sd[b][c]*new[1][b][c]+new[0][b][c]
    return torch.stack([torch.stack([one(b, c) for c in range(x.shape[1])]) for b in range(len(x))])

def styles(x):
    "Means and deviations, [image][channel] each."
    def of(k): return [[style(m)[k] for m in maps] for maps in x]
    return of(0), of(1)

def noisy(x, g):
    "DSU on a batch."
    if float(torch.rand((), generator=g)) >= .5: return x
    B, C = x.shape[:2]
    mu, sd = styles(x)
    new = []
    for s in (mu, sd):
        noise = torch.randn((B, C, 1, 1), generator=g).double()[..., 0, 0]
        wide = [(variance([s[b][c] for b in range(B)])+1e-6).sqrt() for c in range(C)]
        new.append([[s[b][c]+noise[b, c]*wide[c] for c in range(C)] for b in range(B)])
    return restyled(x, mu, sd, new)

def mixed(x, g):
    "MixStyle on a batch."
    if float(torch.rand((), generator=g)) >= .5: return x
    B, C = x.shape[:2]
    lam = np.random.default_rng(int(torch.randint(2**62, (), generator=g))).beta(.1, .1, B)
    lam = torch.tensor(lam).float().double()
    other = torch.randperm(B, generator=g)
    mu, sd = styles(x.detach())
    def mixture(s): return [[lam[b]*s[b][c]+(1-lam[b])*s[other[b]][c] for c in range(C)] for b in range(B)]
    return restyled(x, mu, sd, [mixture(mu), mixture(sd)])

def other_styles(net, suite, who, layer, blocks):
    "With a layer behind these blocks of the body."
    def local(server, c, r):
        dice = {n: generator(0, r, c.id, 'all', f'net.body.{n}.style') for n in blocks}
        def loss(m, x, y):
            x = pixels(x, suite)
            for n, block in m.body.named_children():
                x = block(x)
                if n in blocks: x = layer(x, dice[n])
            return F.cross_entropy(m.head(m.pool(x)), y)
        return trained(net, server, c, r, loss)
    return list(rounds(net, suite, who, local))[-1]

# ---- FedDG

def amplitudes(x, r):
    "Of the lowest frequencies of one image, {(u, v): (3,)}."
    S = np.fft.fft2(x.numpy())
    around = range(-r, r+1)
    return {(u, v): np.abs(S[:, u, v]).astype(np.float32).astype(float) for u in around for v in around}

def exchanged(x, theirs, lam):
    S = np.fft.fft2(x.numpy())
    for (u, v), a in theirs.items():
        for c in range(3):
            own = S[c, u, v]
            S[c, u, v] = ((1-lam)*abs(own)+lam*a[c])*np.exp(1j*np.angle(own))
    return torch.tensor(np.fft.ifft2(S).real.round().clip(0, 255)).to(torch.uint8)

def feddg(net, suite, who, radius, drawn=True):
    sent, come = {}, {}
    def local(server, c, r):
        pool = [a for k in sorted(come) if k != c.id for a in come[k]]
        g = generator(0, r, c.id, 'all', 'FourierViews.view')
        def loss(m, x, y):
            task = F.cross_entropy(m(pixels(x, suite)).logits, y)
            if not pool: return task
            i = torch.randint(len(pool), (len(x),), generator=g)
            lam = torch.rand(len(x), 1, 1, 1, generator=g).flatten().double().tolist()
            views = [exchanged(v, pool[k], l if drawn else 1.) for v, k, l in zip(x, i.tolist(), lam)]
            return task+F.cross_entropy(m(pixels(torch.stack(views), suite)).logits, y)
        state, n = trained(net, server, c, r, loss), len(c.train.y)
        i = torch.randperm(n, generator=generator(0, c.id, 'lasting', 'FourierViews.sent'))[:max(1, n//8)]
        sent[c.id] = [amplitudes(x, radius) for x in c.train.x[i]]
        return state
    for server in rounds(net, suite, who, local): come.update(sent)  # noqa: B007
    return server

# ---- FedSR

def fedsr(net, suite, who, l2r, cmi):
    "`net` has the layer behind its pool; the server's model, and every client's r."
    memory, K, d = {}, net.head.out_features, net.head.in_features
    def local(server, c, r):
        own = memory.get(c.id) or [torch.zeros(K, d), torch.ones(K, d), torch.ones(())]
        own = [v.double().clone().requires_grad_() for v in own]
        opt = torch.optim.SGD(own, LR, momentum=MOMENTUM, weight_decay=DECAY)
        dice = generator(0, r, c.id, 'all', 'net.pool')
        def loss(m, x, y):
            if own[0].grad is not None: opt.step()    # what the step before left: both go down together
            opt.zero_grad()
            h = m.pool.both(m.pool.pool(m.body(pixels(x, suite))))
            mu, sigma = h[:, :d], F.softplus(h[:, d:])
            z = mu+sigma*torch.randn(mu.shape, generator=dice).double()
            far = 0
            for k, label in enumerate(y.tolist()):
                mine = Independent(Normal(own[2]*mu[k], own[2]*sigma[k]), 1)
                of_class = Independent(Normal(own[0][label], F.softplus(own[1][label])), 1)
                far = far+kl_divergence(mine, of_class)/len(y)
            length = sum(v.square().sum().sqrt() for v in z)/len(y)
            return F.cross_entropy(m.head(z), y)+l2r*length+cmi*far
        state = trained(net, server, c, r, loss)
        opt.step()
        memory[c.id] = [v.detach() for v in own]
        return state
    return list(rounds(net, suite, who, local))[-1], memory

# ---- FedPLVM

def clustered(points, classes):
    "{class: [mean of each cluster]}"
    of = {k: [p for p, c in zip(points, classes) if c == k] for k in sorted(set(classes))}
    return {k: [torch.stack(g).mean(0) for g in finch(ps)] for k, ps in of.items()}

def fedplvm(net, suite, who, lam, alpha, tau):
    "The server's model, and the clusters {class: [vectors]} it says."
    sent, said = [], {}
    def local(server, c, r):
        known = dict(said)
        middle = {k: torch.stack(ps).mean(0) for k, ps in known.items()}
        def near(f, p): return torch.exp(cosine(f, p).clamp(min=1e-3)**alpha/tau)
        def loss(m, x, y):
            out, total = m(pixels(x, suite)), 0
            for f, label in zip(out.feat, y.tolist()):
                if label not in known: continue
                e = {k: sum(near(f, p) for p in ps) for k, ps in known.items()}
                total = total-(e[label]/sum(e.values())).log()+2*(1-cosine(f, middle[label]))**2
            return F.cross_entropy(out.logits, y)+lam*total/len(y)
        state = trained(net, server, c, r, loss)
        m = copy.deepcopy(net)
        m.load_state_dict(state)
        with torch.no_grad(): feats = m.eval()(pixels(c.train.x, suite)).feat
        sent.append(clustered(list(feats), c.train.y.tolist()))
        return state
    for server in rounds(net, suite, who, local):  # noqa: B007
        pairs = [(p, k) for part in sent for k, ps in part.items() for p in ps]
        said.clear()
        said.update(clustered(*map(list, zip(*pairs))))
        sent.clear()
    return server, said
