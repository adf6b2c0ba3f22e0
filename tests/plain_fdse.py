"""FDSE in plain PyTorch, from the equations of the paper; it knows nothing of the package that it checks.

A model is a dict of tensors and a function.
"""
import itertools, math
import torch
import torch.nn.functional as F
from torch import nn

# ---- Sec. 4.1: one layer, decomposed
# T: name → tensor. `seen` receives the statistics that the layer's two BatchNorms have after this batch
# (Eq. 5), with their graph.

def per_channel(v, x): return v.reshape([1, -1]+[1]*(x.dim()-2))

def affine(T, name, x, normed):
    return per_channel(T[f'{name}.weight'], x)*normed+per_channel(T[f'{name}.bias'], x)

def batch_norm(T, name, x, seen, gamma=.9, eps=1e-5):
    """A BatchNorm in training.

    Eq. 4: mean and variance over all but the channels; Eq. 5: their moving averages, the variance unbiased as
    PyTorch keeps it."""
    over, n = [d for d in range(x.dim()) if d != 1], x.numel()/x.shape[1]
    mu = x.sum(over)/n
    centred = x-per_channel(mu, x)
    square = (centred**2).sum(over)
    seen[f'{name}.running_mean'] = gamma*T[f'{name}.running_mean']+(1-gamma)*mu
    seen[f'{name}.running_var'] = gamma*T[f'{name}.running_var']+(1-gamma)*square/(n-1)
    return affine(T, name, x, centred/(per_channel(square/n, x)+eps).sqrt())

def frozen_norm(T, name, x, seen, eps=1e-5):
    "A BatchNorm at test."
    mu, var = T[f'{name}.running_mean'], T[f'{name}.running_var']
    return affine(T, name, x, (x-per_channel(mu, x))/(per_channel(var, x)+eps).sqrt())

def finish(T, name, z, copies, channels, seen, norm, relu):
    "Eq. 3 after the copies: cut to T channels, bias, BN_DFE, ReLU."
    o = copies[:, :channels] if z is None else torch.cat([z, copies], 1)[:, :channels]
    if f'{name}.bias' in T: o = o+per_channel(T[f'{name}.bias'], o)
    y = norm(T, f'{name}.bn_dfe', o, seen)
    return y.clamp(min=0) if relu else y

def conv_block(T, name, x, seen, channels, G=2, stride=1, pad=1, relu=True,
               norm=batch_norm, ghost=True, inner=True):
    """Eqs. 2 and 3 of a convolution: t = ⌈T/G⌉ channels, then their cheap 3×3 copies.

    With `ghost` the t themselves and G−1 copies of each, else G copies of each."""
    x = F.conv2d(x, T[f'{name}.dfe.weight'], T.get(f'{name}.dfe.bias'), stride, pad)
    assert x.shape[1] == math.ceil(channels/G)
    z = norm(T, f'{name}.bn_dse', x, seen)
    if inner: z = z.clamp(min=0)
    if G == 1: return finish(T, name, None, z, channels, seen, norm, relu)
    copies = F.conv2d(z, T[f'{name}.dse.weight'], None, 1, 1, groups=z.shape[1])
    return finish(T, name, z if ghost else None, copies, channels, seen, norm, relu)

def linear_block(T, name, x, seen, channels, G=2, relu=True, norm=batch_norm, ghost=False, inner=True):
    """The same of a hidden linear layer: each of t features becomes G multiples of itself.

    With `ghost` itself and G−1 multiples."""
    x = x @ T[f'{name}.dfe.weight'].T
    if f'{name}.dfe.bias' in T: x = x+T[f'{name}.dfe.bias']
    z = norm(T, f'{name}.bn_dse', x, seen)
    if inner: z = z.clamp(min=0)
    if G == 1: return finish(T, name, None, z, channels, seen, norm, relu)
    copies = (z[:, :, None]*T[f'{name}.dse.weight'].reshape(1, z.shape[1], -1)).reshape(len(z), -1)
    return finish(T, name, z if ghost else None, copies, channels, seen, norm, relu)

# ---- two networks of such layers, (B, 3, H, W) → logits

def small_conv(T, x, seen, G=2, width=8, norm=batch_norm, ghost=True, ghost_fc=False, inner=True):
    how = dict(seen=seen, G=G, norm=norm, inner=inner)
    for i, c in enumerate((width, 2*width, 4*width)):
        x = F.max_pool2d(conv_block(T, f'body.block{i+1}.conv', x, channels=c, ghost=ghost, **how), 2)
    x = linear_block(T, 'pool.fc', x.flatten(1), channels=128, ghost=ghost_fc, **how)
    return x @ T['head.weight'].T+T['head.bias']

def resnet10(T, x, seen, G=2, width=4, norm=batch_norm):
    def block(name, x, **kw): return conv_block(T, name, x, seen=seen, G=G, norm=norm, **kw)
    x = block('body.stem.conv', x, channels=width)
    for i in range(4):
        name, c, stride = f'body.layer{i+1}.0', width*2**i, 2 if i else 1
        y = block(f'{name}.conv1', x, channels=c, stride=stride)
        y = block(f'{name}.conv2', y, channels=c, relu=False)
        if i: x = block(f'{name}.shortcut.conv', x, channels=c, stride=stride, pad=0, relu=False)
        x = (x+y).clamp(min=0)
    return x.mean((2, 3)) @ T['head.weight'].T+T['head.bias']

SMALL_CONV = ['body.block1.conv', 'body.block2.conv', 'body.block3.conv', 'pool.fc']         # l = 1 … L
RESNET10 = ['body.stem.conv', 'body.layer1.0.conv1', 'body.layer1.0.conv2']
for i in (2, 3, 4): RESNET10 += [f'body.layer{i}.0.{c}' for c in ('conv1', 'conv2', 'shortcut.conv')]

# ---- Sec. 4.2: the client

def cross_entropy(logits, y): return -(logits-logits.logsumexp(1, keepdim=True))[range(len(y)), y].mean()

def gap(mean, var, mean_g, var_g):
    "Eq. 6, for variances that are never negative."
    d = len(mean)
    return ((mean-mean_g)**2).sum()/d+((var.sum()-var_g.sum())/d)**2

def statistics(T, layer): return [T[f'{layer}.bn_dfe.running_{s}'] for s in ('mean', 'var')]

def consistency(seen, received, layers, beta=.001):
    "Eq. 7."
    w = [math.exp(beta*(l+1)) for l in range(len(layers))]
    return sum(v/sum(w)*gap(*statistics(seen, n), *statistics(received, n)) for v, n in zip(w, layers))

# What the two releases have in place of Eqs. 4 to 6: moments, over channels, of a batch's channel means f.

def channel_means(seen, before, name):
    "f, taken back out of the moving average that it went into."
    return (statistics(seen, name)[0]-.9*statistics(before, name)[0])/.1

def scalars(f): return f.sum()/len(f), ((f-f.sum()/len(f))**2).sum()/(len(f)-1)

def softmax_weights(layers, beta):
    w = [math.exp(beta*i) for i in range(len(layers))]
    return [v/sum(w) for v in w]

def first_release(seen, before, received, layers, beta, memory):
    "October 2025: BatchNorm's running statistics have the batch already, and get its scalars once more."
    total = 0
    for w, n in zip(softmax_weights(layers, beta), layers):
        mf, vf = scalars(channel_means(seen, before, n))
        fn, vn = (.9*s.detach()+.1*v for s, v in zip(statistics(seen, n), (mf, vf)))
        g, v = statistics(received, n)
        total = total+w*((g-fn)**2).mean()+w*(v.mean()-vn.mean())**2
    return total

def current_release(seen, before, received, layers, beta, memory):
    "January 2026: one average for all layers and all batches of a round, and other losses."
    fn, vn = memory.get('average', (None, None))
    total = 0
    for w, n in zip(softmax_weights(layers, beta), layers):
        mf, vf = scalars(channel_means(seen, before, n))
        fn, vn = (mf, vf) if fn is None else (.9*fn+.1*mf, .9*vn+.1*vf)
        g, v = statistics(received, n)
        means, variances = (g**2-fn**2)/(2*vn), torch.log(vn/(v+1e-8))+v/(vn+1e-8)
        total = total+w*means.mean()+w*.5*variances.mean()
    memory['average'] = fn.detach(), vn.detach()
    return total

def trainable(T): return [n for n, v in T.items() if v.is_floating_point() and 'running_' not in n]

def client_step(net, T, received, layers, x, y, lam, beta=.001, first=False, term=None, memory=None):
    """One batch: ({term: loss}, {name: gradient}, {name: statistic after the batch}).

    No consistency in round 1, whose statistics are still 0 and 1."""
    names, before, seen = trainable(T), T, {}
    T = T | {n: T[n].detach().clone().requires_grad_() for n in names}
    losses = dict(task=cross_entropy(net(T, x, seen), y))
    if lam and not first:
        if term: apart = term(seen, before, received, layers, beta, memory)
        else: apart = consistency(seen, received, layers, beta)
        losses['consistency'] = lam*apart
    grads = torch.autograd.grad(sum(losses.values()), [T[n] for n in names], allow_unused=True)
    told, after = ({n: v.detach() for n, v in d.items()} for d in (losses, seen))
    return told, dict(zip(names, grads)), after

def client_round(net, received, layers, batches, lr, momentum, decay, **kw):
    "SGD with momentum over [(x, y)]: the state that the client sends."
    T, speed, memory = {n: v.clone() for n, v in received.items()}, {}, {}
    for x, y in batches:
        _, grads, seen = client_step(net, T, received, layers, x, y, memory=memory, **kw)
        for n, g in grads.items():
            g = g+decay*T[n]
            speed[n] = momentum*speed[n]+g if n in speed else g
            T[n] = T[n]-lr*speed[n]
        T |= seen
        T |= {n: v+1 for n, v in T.items() if n.endswith('num_batches_tracked')}
    return T

# ---- Sec. 4.3: the server

def stationary(G, face):
    "The stationary point of uᵀGu, Σ u_k = 1, with u_k = 0 off the face: from its Lagrange conditions."
    size = len(face)
    A = torch.ones(size+1, size+1, dtype=torch.float64)
    A[:size, :size], A[size, size] = G[face][:, face], 0
    b = torch.zeros(size+1, dtype=torch.float64)
    b[size] = 1
    u = torch.zeros(len(G), dtype=torch.float64)
    u[face] = (torch.linalg.pinv(A, hermitian=True) @ b)[:size]
    return u

def nearest_point(G):
    "min ‖Σ u_k d_k‖² over the simplex, from the Gram matrix G: the best of all faces' stationary points."
    G, K = G.double(), len(G)
    faces = [list(f) for size in range(1, K+1) for f in itertools.combinations(range(K), size)]
    points = [stationary(G, f) for f in faces]
    allowed = [u for u in points if (u >= -1e-12).all() and abs(float(u.sum())-1) < 1e-9]
    return min(allowed, key=lambda u: float(u @ G @ u))

def consensus(updates, eps=0):
    """Eq. 8 for one layer: K updates → one.

    A zero update has no direction: it is left out of the hull, not out of the mean length; the releases' eps
    keeps it in."""
    norms = [float(d.double().norm()) for d in updates]
    heard = [(d.double(), n) for d, n in zip(updates, norms) if eps or n > 1e-12*max(norms)]
    units = torch.stack([d/(n+eps) for d, n in heard])
    step = nearest_point((units @ units.T).cpu()).to(units) @ units
    if float(step @ step) <= 1e-12: step = step*0
    return sum(norms)/len(norms)*step

def similar(V, tau):
    "Eq. 9 for one layer: K rows → K rows."
    Q = torch.stack([v/max(float(v.norm()), 1e-12) for v in V])
    return torch.stack([sum(w*v for w, v in zip(row, V)) for row in (Q @ Q.T/tau).softmax(1)])

def joined(T, names): return torch.cat([T[n].flatten() for n in names])
def cut(v, T, names):
    parts = v.split([T[n].numel() for n in names])
    return {n: p.reshape(T[n].shape) for n, p in zip(names, parts)}

SHARED = ('dfe.weight', 'dfe.bias', 'bias', 'bn_dfe.weight', 'bn_dfe.bias')
PERSONAL = ('dse.weight', 'bn_dse.weight', 'bn_dse.bias')

def server_step(received, sent, layers, tau, own_bias=False, per_tensor=False, eps=0):
    "What K clients received and sent → what each of them has next; three differences of the releases."
    moved = ('bias',) if own_bias else ()
    def groups_of(parts): return [[f'{l}.{p}' for p in parts if f'{l}.{p}' in sent[0]] for l in layers]
    def split(groups): return [[n] for g in groups for n in g] if per_tensor else groups
    shared = split(groups_of([p for p in SHARED if p not in moved])+[['head.weight', 'head.bias']])
    new = [dict(T) for T in sent]                                # BN_DSE's statistics: nobody else sees them
    for names in shared:
        start = joined(received[0], names)
        step = consensus([joined(T, names)-start for T in sent], eps)
        for T in new: T |= cut(start+step.to(start.dtype), T, names)
    for names in split(groups_of(PERSONAL+moved)):
        rows = similar(torch.stack([joined(T, names) for T in sent]), tau)
        for T, row in zip(new, rows): T |= cut(row, T, names)
    for l in layers:
        for s in ('mean', 'var'):
            n = f'{l}.bn_dfe.running_{s}'
            mean = sum(T[n] for T in sent)/len(sent)
            for T in new: T[n] = mean
        n = f'{l}.bn_dfe.num_batches_tracked'
        for T in new: T[n] = max(T[n] for T in sent)
    return new

def run_rounds(net, start, layers, clients, rounds, batches, tau, server=None, **kw):
    "Algorithm 1, each client's state: `clients` = [(x, y)] ready for the net, `batches(round, k)` = indices."
    states = [dict(start) for _ in clients]
    def trained(r, k):
        x, y = clients[k]
        todo = [(x[i], y[i]) for i in batches(r, k)]
        return client_round(net, states[k], layers, todo, first=r == 0, **kw)
    for r in range(rounds):
        sent = [trained(r, k) for k in range(len(clients))]
        states = server_step(states, sent, layers, tau, **(server or {}))
    return states

# ---- Table 4

def operations(net, x):
    """Operations of one forward pass as the paper counts them.

    Multiply-adds of convolutions and linear layers, 4 per input of a BatchNorm, input and output of adaptive
    pooling."""
    total = []
    def count(m, args, out):
        i, o = args[0].shape, out.shape
        if isinstance(m, (nn.Conv1d, nn.Conv2d, nn.Linear)): total.append(o.numel()*m.weight[0].numel())
        elif isinstance(m, nn.modules.batchnorm._BatchNorm): total.append(4*i.numel())
        elif isinstance(m, nn.AdaptiveAvgPool2d): total.append(o.numel()*(i[2]*i[3]/(o[2]*o[3])+1))
    hooks = [m.register_forward_hook(count) for m in net.modules() if not list(m.children())]
    with torch.no_grad(): net.eval()(x)
    for h in hooks: h.remove()
    return round(sum(total))
