"""FedProto, FPL, FedTGP, FedSA and FedFA (anchors) as loops in plain PyTorch.

No mechanism, no engine; dictionaries of classes instead of masks; half of the clients take part in a round.
"""
import copy
import torch, torch.nn.functional as F
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import nn
from fedskew_nb.core.seeding import generator
from plain_base import at, averaged, epochs, pixels, present

MOMENTUM, DECAY, SHARE, ROUNDS = .9, 1e-4, .5, 3

def prototypes(net, x, y):
    "{class: mean feature} in eval mode, image by image."
    net.eval()
    with torch.no_grad(): feats = [net(i[None]).feat[0] for i in x]
    y = y.tolist()
    return {c: torch.stack([f for f, k in zip(feats, y) if k == c]).mean(0) for c in sorted(set(y))}

def by_class(sent):
    "{class: [what clients sent of it]}."
    return {c: [p[c] for p in sent if c in p] for c in sorted({c for p in sent for c in p})}

# ---- the further losses, image by image

def square(f, y, U):
    "Square distance to the class's vector, mean over images and numbers."
    total = sum(((v-U[k])**2).mean() for v, k in zip(f, y.tolist()) if k in U)
    return total/len(y)

def cosine(a, b): return (a*b).sum()/(a.norm()*b.norm())

def infonce(f, y, clusters, tau):
    total = 0.
    for v, k in zip(f, y.tolist()):
        if k not in clusters: continue
        e = {c: [torch.exp(cosine(v, p)/tau) for p in ps] for c, ps in clusters.items()}
        total = total-torch.log(sum(e[k])/sum(sum(es) for es in e.values()))
    return total/len(y)

def with_margin(f, y, A, gap):
    "Mean of -log softmax of minus the distances; the own distance is longer by the margin."
    total = 0.
    for v, k in zip(f, y.tolist()):
        d = torch.stack([((v-a)**2).sum().sqrt()+(gap if c == k else 0.) for c, a in enumerate(A)])
        total = total-torch.log_softmax(-d, 0)[k]
    return total/len(y)

def balanced(f, y, A):
    counts = y.bincount(minlength=len(A))
    return sum(((v-A[k])**2).sum()/counts[k] for v, k in zip(f, y.tolist()))/len(A)

def gaps(vectors):
    "Each vector's distance to its nearest other one."
    return [min(float((a-b).norm()) for j, b in enumerate(vectors) if j != i) for i, a in enumerate(vectors)]

# ---- FINCH with SciPy

def partition(points):
    "Labels of the connected parts of the first-neighbour graph."
    n = len(points)
    def nearest(i):
        others = [j for j in range(n) if j != i]
        return max(others, key=lambda j: float(cosine(points[i], points[j])))
    near = [nearest(i) for i in range(n)]
    return connected_components(coo_array(([1]*n, (range(n), near)), shape=(n, n)), directed=False)[1]

def groups(points, labels):
    return [[p for p, k in zip(points, labels) if k == j] for j in range(max(labels)+1)]

def finch(points):
    "The clusters of the coarsest partition that has more than one, or of the first."
    if len(points) == 1: return [points]
    found = groups(points, partition(points))
    while len(found) > 1:
        means = [torch.stack(g).mean(0) for g in found]
        labels = partition(means)
        if max(labels) == 0: break
        found = [[p for g, k in zip(found, labels) if k == j for p in g] for j in range(max(labels)+1)]
    return found

# ---- one method

def train(net, state, suite, client, r, how, extra, after_step=lambda m, f, y: None):
    "One client's local training; `extra(m, f, y)` is added to the cross-entropy."
    m = at(net, state).train()
    opt = torch.optim.SGD(m.parameters(), how['lr'], momentum=MOMENTUM, weight_decay=DECAY)
    for i in epochs(how['epochs'], len(client.train.y), how['size'], r, client.id):
        out = m(pixels(client.train.x[i], suite))
        y = client.train.y[i]
        opt.zero_grad()
        (F.cross_entropy(out.logits, y)+extra(m, out.feat, y)).backward()
        opt.step()
        after_step(m, out.feat.detach(), y)
    return m

def run(net, suite, local, server):
    """Rounds of one method.

    `local(net, state, client, r, memory)` → (model, what it sends); `server(sent, clients, r, memory)`."""
    state, memory = copy.deepcopy(net.state_dict()), {}
    for r in range(ROUNDS):
        here = present(suite.clients, SHARE, r)
        done = [local(net, state, c, r, memory) for c in here]
        memory = server([sent for _, sent in done], here, r, memory)
        state = averaged([m.state_dict() for m, _ in done], [len(c.train.y) for c in here])
    return state, memory

def trained_then_means(suite, how, extra):
    "Local training with `extra(memory, client)`, then the class means."
    def local(net, state, c, r, memory):
        m = train(net, state, suite, c, r, how, extra(memory, c, r))
        return m, prototypes(copy.deepcopy(m), pixels(c.train.x, suite), c.train.y)
    return local

def fedproto(net, suite, lam, **how):
    def extra(memory, c, r): return lambda m, f, y: lam*square(f, y, memory)
    def server(sent, clients, r, memory):
        return memory | {c: torch.stack(ps).mean(0) for c, ps in by_class(sent).items()}
    return run(net, suite, trained_then_means(suite, how, extra), server)

def fpl(net, suite, tau, **how):
    def extra(memory, c, r):
        means = {k: torch.stack(ps).mean(0) for k, ps in memory.items()}
        return lambda m, f, y: infonce(f, y, memory, tau)+square(f, y, means)
    def server(sent, clients, r, memory):
        return {c: [torch.stack(g).mean(0) for g in finch(ps)] for c, ps in by_class(sent).items()}
    return run(net, suite, trained_then_means(suite, how, extra), server)

class Table(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.e, self.a, self.b = nn.Embedding(n, d), nn.Linear(d, d), nn.Linear(d, d)
    def forward(self): return self.b(self.a(self.e.weight).relu())

def fedtgp(net, suite, lam, epochs_server, lr_server, size_server, n_classes, **how):
    def extra(memory, c, r): return lambda m, f, y: lam*square(f, y, memory.get('A', {}))
    def server(sent, clients, r, memory):
        pairs = [(v, k) for p in sent for k, v in p.items()]
        p, y = torch.stack([v for v, _ in pairs]), torch.tensor([k for _, k in pairs])
        if 'table' not in memory:
            torch.manual_seed(generator(0, r, 'server', 'TGP.first').initial_seed())
            memory = dict(table=Table(n_classes, p.shape[1]).double(), had=set())
        table, had = memory['table'], memory['had'] | set(y.tolist())
        gap = min(100., max(gaps([torch.stack(ps).mean(0) for ps in by_class(sent).values()])))
        opt, g = torch.optim.SGD(table.parameters(), lr_server), generator(0, r, 'server', 'TGP.order')
        for _ in range(epochs_server):
            for i in torch.randperm(len(p), generator=g).split(size_server):
                opt.zero_grad()
                with_margin(p[i], y[i], table(), gap).backward()
                opt.step()
        A = table().detach()
        return dict(table=table, had=had, A={k: A[k] for k in had})
    return run(net, suite, trained_then_means(suite, how, extra), server)

def fedsa(net, suite, lam, mu, gamma, alpha, n_classes, d, **how):
    A0 = torch.randn(n_classes, d, generator=generator(0, 'semantic anchors')).relu().double()
    every = torch.arange(n_classes)
    def margin(vectors): return sum(gaps(vectors))/len(vectors)
    def extra(memory, c, r):
        A = memory.get('A', A0)
        own = memory.get('own', {})
        gap = max(margin(list(A)), margin(own[c.id]) if c.id in own else 0.)
        def terms(m, f, y):
            near = lam*square(f, y, dict(enumerate(A)))
            return near+mu*with_margin(f, y, A, gap)+gamma*F.cross_entropy(m.head(A), every)
        return terms
    def server(sent, clients, r, memory):
        A = memory.get('A', A0).clone()
        protos = {c: torch.stack(ps).mean(0) for c, ps in by_class(sent).items()}
        for c, p in protos.items(): A[c] = alpha*A[c]+(1-alpha)*p
        own = {c.id: list(p.values()) for c, p in zip(clients, sent)}
        return dict(A=A, own=memory.get('own', {}) | own, protos=memory.get('protos', {}) | protos)
    return run(net, suite, trained_then_means(suite, how, extra), server)

def fedfa(net, suite, lam, momentum, calibrate, n_classes, d, **how):
    axes = torch.randperm(d, generator=generator(0, 'feature anchors'))[:n_classes]
    A0, every = torch.eye(d, dtype=torch.float64)[axes], torch.arange(n_classes)
    def local(net, state, c, r, memory):
        A, seen, adam = memory.get('A', A0), [], []
        own = A.clone()
        def after_step(m, f, y):
            if not adam: adam.append(torch.optim.Adam(m.head.parameters(), calibrate))
            adam[0].zero_grad()
            F.cross_entropy(m.head(A), every).backward()
            adam[0].step()
            seen.extend(zip(f, y.tolist()))
            if len(seen) < len(c.train.y): return
            for k in {k for _, k in seen}:
                mean = torch.stack([v for v, j in seen if j == k]).mean(0)
                own[k] = momentum*own[k]+(1-momentum)*mean
            seen.clear()
        m = train(net, state, suite, c, r, how, lambda m, f, y: lam*balanced(f, y, A), after_step)
        return m, own
    def server(sent, clients, r, memory):
        n = [len(c.train.y) for c in clients]
        return dict(A=sum(k/sum(n)*a for k, a in zip(n, sent)))
    return run(net, suite, local, server)
