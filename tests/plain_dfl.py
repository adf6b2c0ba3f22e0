"""DFL in plain PyTorch: both steps of a client and the server's, from the paper's equations.

Nothing of the package is used.
"""
import math
import torch, torch.nn.functional as F

def batchnorm(S, n, x, train):
    "By the batch, with running statistics moved by a tenth; else by the running statistics."
    mu, var = S[n+'.running_mean'], S[n+'.running_var']
    if train:
        N = x.numel()//x.shape[1]
        mu, var = x.mean((0, 2, 3)), ((x-x.mean((0, 2, 3), keepdim=True))**2).mean((0, 2, 3))
        with torch.no_grad():
            S[n+'.running_mean'] = .9*S[n+'.running_mean']+.1*mu
            S[n+'.running_var'] = .9*S[n+'.running_var']+.1*var*N/(N-1)
    c = lambda v: v[None, :, None, None]
    return (x-c(mu))/(c(var)+1e-5).sqrt()*c(S[n+'.weight'])+c(S[n+'.bias'])

def E(S, which, x, train=False):
    "One branch: three convolutions and a hidden layer."
    for k in (1, 2, 3):
        n = f'body.{which}.block{k}'
        x = F.conv2d(x, S[n+'.conv.weight'], padding=1)
        x = F.max_pool2d(batchnorm(S, n+'.bn', x, train).clamp(min=0), 2)
    return (x.flatten(1) @ S[f'pool.{which}.fc.weight'].T+S[f'pool.{which}.fc.bias']).clamp(min=0)

def P(S, E_s, E_c):
    h = (torch.cat([E_s, E_c], 1) @ S['head.fc.weight'].T+S['head.fc.bias']).clamp(min=0)
    return h @ S['head.out.weight'].T+S['head.out.bias']

def CE(z, y): return -z.log_softmax(1)[range(len(y)), y].mean()

def even(z):
    v = ((z-z.mean(0))**2).mean(0)
    return (z-z.mean(0))/(v+v.mean()+1e-8).sqrt()

def T(p, a, b):
    h = torch.cat([a, b], 1)
    h = (h @ p['W0'].T+p['b0']).clamp(min=0)
    h = (h @ p['W1'].T+p['b1']).clamp(min=0)
    return (h @ p['W2'].T+p['b2'])[:, 0]

def I(p, a, b, shift):
    "Eq. 4 of Hjelm et al. in the form of f-GAN: twice the Jensen–Shannon divergence at the best critic."
    a, b = even(a), even(b)
    other = torch.stack([b[(i-shift) % len(b)] for i in range(len(b))])
    joint, product = math.log(2)-(1+(-T(p, a, b)).exp()).log(), (1+T(p, a, other).exp()).log()-math.log(2)
    return joint.mean()-product.mean()

def climb(p, a, b, shifts, lr=1e-3):
    "Adam, upwards; `p` holds the moments and the number of steps, too."
    names = [n for n in p if n[0] in 'Wb']
    for shift in shifts:
        w = {n: p[n].requires_grad_() for n in names}
        grads = torch.autograd.grad(I(w, a.detach(), b.detach(), shift), list(w.values()))
        p['t'] = p.get('t', 0)+1
        for n, g in zip(names, grads):
            m = p['m.'+n] = .9*p.get('m.'+n, 0*g)+.1*g
            v = p['v.'+n] = .999*p.get('v.'+n, 0*g)+.001*g*g
            p[n] = (w[n]+lr*(m/(1-.9**p['t']))/((v/(1-.999**p['t'])).sqrt()+1e-8)).detach()

def step(S, learns, batch, term, peers, lam, opt):
    "One step of SGD with momentum: F_k of Eq. 8 and `term(E_s, E_c, x)`."
    x, y = batch
    names = [n for n in S if learns(n) and 'running' not in n and 'num_' not in n]
    for n in names: S[n].requires_grad_()
    s, c = E(S, 'E_s', x, learns('body.E_s.')), E(S, 'E_c', x, learns('body.E_c.'))
    loss = CE(P(S, s, c), y)+term(s, c, x)
    for other in peers: loss = loss+lam/len(peers)*CE(P(S, E(other, 'E_s', x).detach(), c), y)
    grads = torch.autograd.grad(loss, [S[n] for n in names])
    for n, g in zip(names, grads):
        g = g+opt['wd']*S[n].detach()
        opt[n] = .9*opt[n]+g if n in opt else g
        S[n] = (S[n]-opt['lr']*opt[n]).detach()

def client(S, batches, T_s, T_c, peers, shifts, mu_s=1., mu_c=1., lam=1., E_G_by_batch=False,
           lr=.05, wd=1e-5):
    """Algorithm 1 for one client: `S` as received → S as sent.

    `shifts(critic)` gives the next shift of a critic's pairs."""
    G, S = dict(S), dict(S)
    def I_s(s, c, x):
        climb(T_s, s, c, [shifts('T_s') for _ in range(5)])
        return mu_s*I(T_s, s, c, shifts('T_s'))
    def I_c(s, c, x):
        g = E(G, 'E_c', x, E_G_by_batch).detach()
        climb(T_c, c, g, [shifts('T_c') for _ in range(5)])
        return -mu_c*I(T_c, c, g, shifts('T_c'))
    half = len(batches)//2
    for mine, term, part in (('E_s', I_s, batches[:half]), ('E_c', I_c, batches[half:])):
        opt = dict(lr=lr, wd=wd)
        def trained(n): return f'.{mine}.' in n or n.startswith('head')
        for batch in part: step(S, trained, batch, term, peers, lam, opt)
    return S

def server(sent, sizes):
    "E_c without its BatchNorms is averaged by images; everything else stays."
    shared = [n for n in sent[0] if '.E_c.' in n and '.bn.' not in n]
    mean = {n: sum(k/sum(sizes)*S[n] for S, k in zip(sent, sizes)) for n in shared}
    return [S | mean for S in sent]
