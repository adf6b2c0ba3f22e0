"""FedDDL's loss and its prototypes in plain PyTorch, from the paper's equations and the release's schedule.

Nothing of the package is used.
"""
from copy import deepcopy
import torch, torch.nn.functional as F

def ce(logits, y): return -(logits - logits.exp().sum(1, keepdim=True).log())[range(len(y)), y].mean()

def pull(f, U, y, tau):
    "L_CR of Eq. 12, with cosines."
    return ce(torch.stack([(f*u).sum(1)/f.norm(dim=1)/u.norm() for u in U], 1)/tau, y)

def total(net, x, x_c, y, U, lam, tau):
    "Eq. 13: L_J on images and counterfactuals, and λ L_CR over both of their features."
    (logits, f), (logits_c, f_c) = net(x), net(x_c)
    return ce(logits, y) + ce(logits_c, y), lam*pull(torch.cat([f, f_c]), U, y.repeat(2), tau)

def local_prototypes(features, y, classes):
    "Eq. 10, class by class."
    def mean(c): return torch.stack([f for f, k in zip(features, y) if k == c]).mean(0)
    return {c: mean(c) for c in range(classes) if (y == c).any()}

def global_prototypes(sent, classes):
    "Eq. 11, over the clients that have the class."
    found = {c: [U[c] for U in sent if c in U] for c in range(classes)}
    return {c: sum(us)/len(us) for c, us in found.items() if us}

def released(net, batches, crops, labels, classes, lr, momentum, decay, tau=.5):
    """The release's rounds: state and prototypes after each. `net(x)` has logits and feat.

    batches: of each round {client: [(x, y, x_c), …]}; the third round is the first that has an x_c, and
    the first in which any goes through the net.
    """
    U = None
    for r, todo in enumerate(batches):
        states, sent = {}, []
        for k, steps in todo.items():
            own = deepcopy(net).train()
            opt = torch.optim.SGD(own.parameters(), lr, momentum, weight_decay=decay)
            for x, y, x_c in steps:
                out = own(x)
                loss = ce(out.logits, y)
                if r >= 2: loss = loss + pull(torch.cat([out.feat, own(x_c).feat]), U, y.repeat(2), tau)
                opt.zero_grad(), loss.backward(), opt.step()
            states[k] = own.state_dict()
            with torch.no_grad(): f = deepcopy(net).eval()(crops[k]).feat
            sent.append(local_prototypes(f, labels[k], classes))
        n = {k: len(y) for k, y in labels.items()}
        mean = {p: sum(n[k]*s[p] for k, s in states.items())/sum(n.values()) for p in net.state_dict()}
        net.load_state_dict(mean)
        U = torch.stack([*global_prototypes(sent, classes).values()])
        yield mean, U

def composite(image, box, background, to):
    "I_C of one image (C, H, W) in bytes: the crop, resized, laid on the background."
    (l, t, r, b), (L, T, R, B) = box, to
    crop = image[None, :, t:b, l:r].double()
    out = background.clone()
    small = F.interpolate(crop, (B-T, R-L), mode='bilinear', align_corners=False)[0]
    out[:, T:B, L:R] = (small+.5).floor().to(torch.uint8)
    return out
