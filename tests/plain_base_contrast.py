"MOON, FedRCL, FedIIR and MCGDM in plain PyTorch, from their formulas, for a net body → pool → linear head."
import copy, math
import torch
import torch.nn.functional as F
from plain_base import at, averaged, present, steps

LR, MOMENTUM, BATCH, STEPS = .05, .9, 8, 2

def levels(net, x, before):
    "What each block of a body conv → bn → relu → pool makes of images, before its ReLU or at its end."
    found = []
    for block in net.body:
        inside = block.bn(block.conv(x))
        x = block.pool(inside.clamp(min=0))
        found.append((inside if before else x).mean((2, 3)))
    return found

def feature(net, x): return net.pool(net.body(x))
def cosine(a, b): return (a*b).sum()/(a.norm()*b.norm())
def worth(v): return float(v.detach())

# ---- the losses

def moon(net, received, previous, x, mu, tau):
    "Eq. 3 image by image; both references in eval."
    z, total = feature(net, x), 0
    with torch.no_grad(): far, old = feature(received.eval(), x), feature(previous.eval(), x)
    for i in range(len(x)):
        like, unlike = (torch.exp(cosine(z[i], o[i])/tau) for o in (far, old))
        total = total-torch.log(like/(like+unlike))
    return mu*total/len(x)

def rcl(net, x, y, before, tau=.05, lam=.7):
    "Both losses of FedRCL, pair by pair."
    found, total = levels(net, x, before), 0
    for f in found:
        for i in range(len(y)):
            s = [cosine(f[i], f[j]) for j in range(len(y))]
            own = min((s[j] for j in range(len(y)) if y[j] == y[i]), key=worth)
            others = sorted((s[j] for j in range(len(y)) if y[j] != y[i]), key=worth)[-2:]
            unlike = sum(torch.exp(v/tau) for v in others)
            total = total-torch.log(torch.exp(own/tau)/(torch.exp(own/tau)+unlike))
            rest = [s[j] for j in range(len(y)) if y[j] == y[i] and j != i]
            d = min(rest, key=worth) if rest and worth(min(rest, key=worth)) >= lam else torch.tensor(-1.)
            total = total-torch.log(math.exp(1/tau)/(math.exp(1/tau)+torch.exp(d/tau)))
    return total/len(y)/len(found)

def of_head(W, b, f, y):
    "The gradient of the mean cross-entropy by a linear head, by hand: (p − e_y) fᵀ."
    gap = (f@W.T+b).softmax(1)-F.one_hot(y, len(b)).to(f)
    return gap.T@f/len(y), gap.mean(0)

def iir(net, x, y, mean, gamma):
    g = of_head(net.head.weight, net.head.bias, feature(net, x), y)
    return gamma*sum(((a-m)**2).sum() for a, m in zip(g, mean))

def apart(g, h):
    rows = sum(1-cosine(a, b) for a, b in zip(g[0], h[0]))/len(g[0])
    return (rows+1-cosine(g[1], h[1]))/2

def mcgdm(net, x, strong, y, heads, intra, inter, changed):
    "Half the cross-entropy of each view, intra, and inter from the image or from its `changed` view."
    f, v = feature(net, x), feature(net, strong)
    mine, theirs = (of_head(net.head.weight, net.head.bias, a, y) for a in (f, v))
    total = .5*F.cross_entropy(net.head(f), y)+.5*F.cross_entropy(net.head(v), y)+intra*apart(mine, theirs)
    own = theirs if changed else mine
    if heads: total = total+inter*sum(apart(own, of_head(*h, f, y)) for h in heads)/len(heads)
    return total

def view(image, side, right, down, factors):
    "One image (3, H, W) as bytes: a crop, resized bilinearly, then saturation, contrast, brightness."
    C, H, W = image.shape
    out = torch.zeros(C, H, W, dtype=torch.float64)
    def at(t, n, shift):
        p = (side*((2*t+1)/n-1)+shift+1)*n/2-.5
        p = min(max(float(p), 0), n-1)
        return int(p), min(int(p)+1, n-1), p-int(p)
    for r in range(H):
        a, b, u = at(r, H, down)
        for c in range(W):
            d, e, w = at(c, W, right)
            four = [image[:, i, j].double() for i in (a, b) for j in (d, e)]
            out[:, r, c] = (1-u)*((1-w)*four[0]+w*four[1])+u*((1-w)*four[2]+w*four[3])
    grey = out.mean(0, keepdim=True)
    out = grey+factors[0]*(out-grey)
    out = out.mean()+factors[1]*(out-out.mean())
    return out*factors[2]

# ---- the loop

def run(net, suite, share, loss, after=None, rounds=3):
    "The server's state. `loss(m, received, client, round, x, y, memory)`; `after` sees every round's models."
    server, memory = copy.deepcopy(net.state_dict()), {}
    for r in range(rounds):
        here, sent = present(suite.clients, share, r), []
        for c in here:
            m, received = at(net, server).train(), at(net, server).eval()
            opt = torch.optim.SGD(m.parameters(), LR, momentum=MOMENTUM)
            for i in steps(STEPS, len(c.train.y), BATCH, r, c.id):
                opt.zero_grad()
                loss(m, received, c, r, c.train.x[i], c.train.y[i], memory).backward()
                opt.step()
            sent.append(m)
        if after: after(here, at(net, server).eval(), sent, memory)
        server = averaged([m.state_dict() for m in sent], [len(c.train.y) for c in here])
    return server
