"""RFedDis' loss and its round in plain PyTorch, from the paper's equations and the released server.

Nothing of the package is used.
"""
import torch

def head(P, f):
    "Hidden features and logits of one head from its tensors by name; BatchNorm by the batch."
    h = f @ P['H.fc.weight'].T + P['H.fc.bias']
    mu, var = h.mean(0), h.var(0, unbiased=False)
    h = ((h-mu)/(var+1e-5).sqrt()*P['H.bn.weight'] + P['H.bn.bias']).clamp(min=0)
    return h, h @ P['out.weight'].T + P['out.bias']

def masses(z):
    "Eqs. 4 to 6."
    alpha = (1+z.exp()).log() + 1
    S = alpha.sum(1, keepdim=True)
    return (alpha-1)/S, z.shape[1]/S[:, 0]

def combine(G, L):
    "Eq. 8, with the conflict summed pair by pair."
    (bG, uG), (bL, uL) = G, L
    K = bG.shape[1]
    C = sum(bG[:, i]*bL[:, j] for i in range(K) for j in range(K) if i != j)
    b = torch.stack([(bG[:, k]*bL[:, k] + bG[:, k]*uL + bL[:, k]*uG)/(1-C) for k in range(K)], 1)
    return b, uG*uL/(1-C)

def L_Un(mass, y, lam):
    "Eqs. 10 to 12, from masses back to α; Eq. 11 with the product of Γ."
    b, u = mass
    K = b.shape[1]
    alpha = b*K/u[:, None] + 1
    total = 0.
    for a, c in zip(alpha, y.tolist()):
        total = total + torch.digamma(a.sum()) - torch.digamma(a[c])
        t = torch.stack([a[k] if k != c else a[k]*0+1 for k in range(K)])
        classes = torch.tensor(float(K), dtype=t.dtype)
        flat = torch.lgamma(t.sum()) - torch.lgamma(classes) - torch.lgamma(t).sum()
        total = total + lam*(flat + ((t-1)*(torch.digamma(t)-torch.digamma(t.sum()))).sum())
    return total/len(y)

def L_Dis(F_L, F_G, over_features=False, one_way=False):
    "Eqs. 2 and 3."
    P, Q, total = F_L.softmax(1), F_G.softmax(1), 0.
    for p, q in zip(P, Q):
        total = total + (p*(p/q).log()).sum()
        if not one_way: total = total + (q*(q/p).log()).sum()
    return torch.exp(-total/len(P)/(F_L.shape[1] if over_features else 1))

def L_CE(z, y): return -z.log_softmax(1)[range(len(y)), y].mean()

def terms(f, G, L, y, lam, **how):
    "The terms of Eq. 13 for features `f` and the tensors of both heads."
    (F_G, z_G), (F_L, z_L) = head(G, f), head(L, f)
    M_G, M_L = masses(z_G), masses(z_L)
    opinions = dict(evidence_G=M_G, evidence_L=M_L, fused=combine(M_G, M_L))
    out = dict(task=L_CE(z_G, y)+L_CE(z_L, y)) | {k: L_Un(m, y, lam) for k, m in opinions.items()}
    return out | (dict(likeness=lam*L_Dis(F_L, F_G, **how)) if lam else {})

def server(states, bn):
    "The release's round: everybody's mean of encoder and global head; BatchNorms and the local head stay."
    stays = {n for n in states[0] if n in bn or n.startswith('head.psi_L')}
    mean = {n: sum(s[n] for s in states)/len(states) for n in states[0] if n not in stays}
    return [mean | {n: s[n] for n in stays} for s in states]
