"F2DC in plain PyTorch, from the equations of the paper; it knows nothing of the package that it checks."
import math
import torch
from torch import nn

class Backbone(nn.Module):
    "r^B of Sec. 4.1, small: image → feature map (B, width, H/2, W/2)."
    def __init__(self, width=12):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width)
        self.c2, self.b2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
    def forward(self, x):
        x = torch.relu(self.b1(self.c1(x)))
        return torch.relu(x + self.b2(self.c2(x)))

def two_convs(C, hidden):
    "A_D and A_C of Sec. 5.1: a two-layer CNN with BatchNorm and ReLU, C×H×W in and out."
    there = nn.Conv2d(C, hidden, 3, padding=1, bias=False)
    back = nn.Conv2d(hidden, C, 3, padding=1, bias=False)
    return nn.Sequential(there, nn.BatchNorm2d(hidden), nn.ReLU(), back)

def average(f): return f.sum(dim=(2, 3))/(f.shape[2]*f.shape[3])            # r^F: pooling and flattening

def mask(S, g_a, g_b, sigma):
    """Eq. 3, a share of two exponentials.

    The larger exponent is taken off both, which changes no share and overflows nowhere."""
    p, q = torch.sigmoid(S), torch.sigmoid(-S)                               # ε(S) and 1 − ε(S)
    a, b = (p.log()+g_a)/sigma, (q.log()+g_b)/sigma
    top = torch.maximum(a, b).detach()
    return (a-top).exp()/((a-top).exp()+(b-top).exp())

def cross_entropy(logits, y):
    "−y · log δ(ℓ) with a one-hot y, mean over the batch."
    onehot = torch.zeros_like(logits)
    onehot[range(len(y)), y] = 1
    shifted = logits-logits.max(1, keepdim=True).values.detach()
    return -(onehot*(shifted-shifted.exp().sum(1, keepdim=True).log())).sum(1).mean()

def highest_wrong(logits, y):
    "ŷ: the wrong label with the highest confidence (Sec. 4.1)."
    def wrong(l, t): return max((c for c in range(len(l)) if c != t), key=lambda c: l[c])
    return torch.tensor([wrong(l, t) for l, t in zip(logits.tolist(), y.tolist())])

class PlainF2DC(nn.Module):
    "The model of one client: r^B, A_D, A_C, m, r^F and h."
    def __init__(self, r_B, C, hidden, K, h, r_F=None):
        super().__init__()
        self.r_B, self.h = r_B, h
        self.A_D, self.A_C = two_convs(C, hidden), two_convs(C, hidden)
        self.m = nn.Linear(C, K)
        self.r_F = r_F                               # of the classifier; None: the average, as for a ResNet
    def forward(self, x, g_a, g_b, sigma=.1):
        f = self.r_B(x)
        M = mask(self.A_D(f), g_a, g_b, sigma)
        plus, minus = M*f, (1-M)*f                                           # Eq. 4
        star = minus+(1-M)*self.A_C(minus)                                   # Eq. 6
        whole = plus+star
        logits = self.h(average(whole) if self.r_F is None else self.r_F(whole))
        return logits, average(plus), average(minus), average(star)
    def terms(self, x, y, g_a, g_b, sigma=.1, tau=.06, lam1=.8, lam2=1.):
        "The terms of Eq. 9 for one batch."
        logits, plus, minus, star = self(x, g_a, g_b, sigma)
        cos = (plus*minus).sum(1)/((plus*plus).sum(1).sqrt()*(minus*minus).sum(1).sqrt())
        wrong = highest_wrong(logits, y)
        apart = cross_entropy(self.m(plus), y)+cross_entropy(self.m(minus), wrong)
        return dict(
            task=cross_entropy(logits, y),                                   # Eq. 8
            sep=lam1*(cos/tau).exp().log().mean(),                           # Eq. 5, first part
            dis=lam1*apart,                                                  # Eq. 5, the rest
            correct=lam2*cross_entropy(self.m(star), y))                     # Eq. 7

def discrepancy_weights(sizes, Q, C, alpha=1., beta=.4):
    "Eqs. 10 and 11 in plain Python."
    N = sum(sizes)
    d = [math.sqrt(.5*sum((n/N-1/Q)**2 for _ in range(C))) for n in sizes]
    s = [1/(1+math.exp(-(alpha*n/N-beta*dk))) for n, dk in zip(sizes, d)]
    return [v/sum(s) for v in s]

def run_rounds(model, clients, own, rounds, batches, noise, Q, K, lr, momentum, decay):
    """Algorithm 1: `clients` = [(x, y)] ready for the net; `own(name)`: stays with its client.

    `noise(round, k, shape)` = (g_a, g_b) for the next batch."""
    server = {n: v.clone() for n, v in model.state_dict().items()}
    mine = [{n: v.clone() for n, v in server.items() if own(n)} for _ in clients]
    p = discrepancy_weights([len(y) for _, y in clients], Q, K)
    def shape_of(x):
        with torch.no_grad(): return model.r_B.eval()(x).shape
    def merged(values):
        if not values[0].is_floating_point(): return max(values)
        return sum(w*v for w, v in zip(p, values))
    for r in range(rounds):
        sent = []
        for k, (x, y) in enumerate(clients):
            model.load_state_dict({**server, **mine[k]})
            opt = torch.optim.SGD(model.parameters(), lr, momentum=momentum, weight_decay=decay)
            for i in batches(r, k):
                g_a, g_b = noise(r, k, shape_of(x[i]))
                model.train()
                opt.zero_grad()
                sum(model.terms(x[i], y[i], g_a, g_b).values()).backward()
                opt.step()
            sent.append({n: v.clone() for n, v in model.state_dict().items()})
            mine[k] = {n: v for n, v in sent[k].items() if own(n)}
        for n in server:
            if not own(n): server[n] = merged([s[n] for s in sent])
    return [{**server, **m} for m in mine]
