"FedFA-aug and FedCCRL in plain PyTorch, image by image and channel by channel, for a net body → pool → head."
import copy, math
import numpy as np
import torch
import torch.nn.functional as F
from torchvision.transforms import functional as pictures
from fedskew_nb.core.seeding import generator
from plain_base import at, averaged, pixels, present, steps

LR, MOMENTUM, DECAY, BATCH, STEPS, SHARE = .05, .9, 1e-5, 8, 2, .7

def trained(net, state, c, r, loss):
    m = at(net, state).train()
    opt = torch.optim.SGD(m.parameters(), LR, momentum=MOMENTUM, weight_decay=DECAY)
    for i in steps(STEPS, len(c.train.y), BATCH, r, c.id):
        opt.zero_grad()
        loss(m, c.train.x[i], c.train.y[i]).backward()
        opt.step()
    return m.state_dict()

# ---- FedFA-aug

def style(t):
    "Mean and spread of one map."
    centred = t-t.mean()
    return t.mean(), ((centred**2).sum()/(t.numel()-1)+1e-6).sqrt()

def gammas(spread):
    share = [1/(1+1/(float(s)+1e-6)) for s in spread]
    return [len(share)*s/sum(share) for s in share]

def variance(v): return sum((a-sum(v)/len(v))**2 for a in v)/(len(v)-1)

def layer(x, own, spread, g):
    "FFA on a batch: `own` are the client's running means, changed in place, `spread` what the server said."
    if float(torch.rand((), generator=g)) >= .5: return x
    B, C = x.shape[:2]
    def styles(k): return [[style(x[b, c])[k] for c in range(C)] for b in range(B)]
    mu, sd = styles(0), styles(1)
    with torch.no_grad():
        for k, s in enumerate((mu, sd)):
            for c in range(C): own[k][c] = .99*own[k][c]+.01*sum(s[b][c] for b in range(B))/B
    new = []
    for k, s in enumerate((mu, sd)):
        noise = torch.randn((B, C, 1, 1), generator=g).double()[..., 0, 0]
        gamma = gammas(spread[k])
        grown = [((gamma[c]+1)*(variance([s[b][c] for b in range(B)])+1e-6)).sqrt() for c in range(C)]
        new.append([[s[b][c]+noise[b, c]*grown[c] for c in range(C)] for b in range(B)])
    def restyled(b, c): return (x[b, c]-mu[b][c])/sd[b][c]*new[1][b][c]+new[0][b][c]
    return torch.stack([torch.stack([restyled(b, c) for c in range(C)]) for b in range(B)])

def spread_over(told, across):
    "How far the clients' means `told`, (K, 2, C), lie apart: in each channel, or over all of them."
    if across == 'channel': return told.var(0, correction=0)
    return torch.stack([told[:, k].var().expand(told.shape[-1]) for k in (0, 1)])

def fedfa(net, suite, rounds, across):
    "The server's model, and its (running means, spreads) of every block."
    server = copy.deepcopy(net.state_dict())
    widths = {n: b.conv.out_channels for n, b in net.body.named_children()}
    running = {n: torch.stack([torch.zeros(C), torch.ones(C)]).double() for n, C in widths.items()}
    spread = {n: torch.ones(2, C).double() for n, C in widths.items()}
    for r in range(rounds):
        here, sent, said = present(suite.clients, SHARE, r), [], []
        sizes = [len(c.train.y) for c in here]
        for c in here:
            own = {n: v.clone() for n, v in running.items()}
            dice = {n: generator(0, r, c.id, 'all', f'net.body.{n}.ffa') for n in widths}
            def loss(m, x, y):
                x = pixels(x, suite)
                for n, block in m.body.named_children(): x = layer(block(x), own[n], spread[n], dice[n])
                return F.cross_entropy(m.head(m.pool(x)), y)
            sent.append(trained(net, server, c, r, loss))
            said.append(own)
        server = averaged(sent, sizes)
        for n in widths: spread[n] = spread_over(torch.stack([own[n] for own in said]), across)
        running = {n: sum(s/sum(sizes)*own[n] for s, own in zip(sizes, said)) for n in widths}
    return server, running, spread

# ---- FedCCRL

def to_bytes(v): return v.round().clamp(0, 255).to(torch.uint8)

def distorted(x, op, s):
    degrees, linear = math.degrees(math.atan(.3*s)), pictures.InterpolationMode.BILINEAR
    H, W = x.shape[-2:]
    if op < 5:
        angle = 30*s*(op == 0)
        shear = [degrees*(op == 1), degrees*(op == 2)]
        move = [int(s*W/3)*(op == 3), int(s*H/3)*(op == 4)]
        return pictures.affine(x, angle, move, 1., shear, linear)
    if op == 5: return pictures.posterize(x, 4-round(4*abs(s)))
    return pictures.solarize(x, 255*(1-abs(s))) if op == 6 else pictures.autocontrast(x)

def augmix(x, rng):
    kept, weights = rng.random(len(x)), rng.dirichlet([1, 1, 1], len(x))
    copies = []
    for _ in range(3):
        v = x
        for _ in range(rng.integers(1, 4)):
            op = rng.integers(8)
            v = distorted(v, op, int(rng.choice((-1, 1)))*int(rng.integers(3))/9)
        copies.append(v)
    out = []
    for b in range(len(x)):
        mixed = torch.tensor(kept[b]).float()*x[b]
        for k in range(3): mixed = mixed+torch.tensor((1-kept[b])*weights[b, k]).float()*copies[k][b]
        out.append(to_bytes(mixed))
    return torch.stack(out)

def mixstyle(x, pool, rng):
    i = rng.choice(len(pool), len(x), replace=len(pool) < len(x))
    lam = torch.tensor(rng.beta(.1, .1, len(x))).float()
    out = []
    for b in range(len(x)):
        v, theirs = x[b]/255, pool[i[b]][..., None, None]
        mu, sd = v.mean((1, 2), keepdim=True), (v.var((1, 2), keepdim=True)+1e-6).sqrt()
        new = [lam[b]*own+(1-lam[b])*t for own, t in zip((mu, sd), theirs)]
        out.append(to_bytes(255*((v-mu)/sd*new[1]+new[0])))
    return torch.stack(out)

def view(x, pool, g):
    rng = np.random.default_rng(int(torch.randint(2**62, (), generator=g)))
    return augmix(x if pool is None else mixstyle(x, pool, rng), rng)

def supcon(f, y, t=.1):
    f = [v/v.norm() for v in f]
    total = 0
    for i in range(len(y)):
        same = [f[i]@f[j] for j in range(len(y)) if y[j] == y[i]]
        rest = sum(torch.exp(f[i]@f[j]/t) for j in range(len(y)) if j != i)
        total = total+torch.log(rest)-sum(same)/t/len(same)
    return total/len(y)

def js(ps):
    middle = (sum(ps)/3).clamp(1e-7, 1)
    return sum((p*(p/middle).log()).sum(1).mean() for p in ps)/3

def fedccrl(net, suite, rounds):
    server, parts = copy.deepcopy(net.state_dict()), {}
    for r in range(rounds):
        here, sent, new = present(suite.clients, SHARE, r), [], {}
        for c in here:
            others = [parts[k] for k in sorted(parts) if k != c.id]
            pool = torch.cat(others) if others else None
            dice = [generator(0, r, c.id, 'all', f'StyleViews.view{k}') for k in (0, 1)]
            def loss(m, x, y):
                views = [view(x, pool, g) for g in dice]
                feats = [m.pool(m.body(pixels(v, suite))) for v in (x, *views)]
                logits = [m.head(f) for f in feats]
                align = sum(supcon(torch.cat([f, feats[0]]), y.repeat(2)) for f in feats[1:])/2
                task = sum(F.cross_entropy(z, y) for z in logits)
                return task+.1*align+.1*js([z.softmax(1) for z in logits])
            sent.append(trained(net, server, c, r, loss))
            n = len(c.train.y)
            i = torch.randperm(n, generator=generator(0, r, c.id, 'all', 'StyleViews.sent'))[:max(1, n//10)]
            v = c.train.x[i]/255
            new[c.id] = torch.stack([v.mean((2, 3)), (v.var((2, 3))+1e-6).sqrt()], 1)
        parts |= new
        server = averaged(sent, [len(c.train.y) for c in here])
    return server
