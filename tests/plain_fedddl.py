"""FedDDL's loss and its prototypes in plain PyTorch, from the paper's equations alone.

Nothing of the package is used.
"""
import torch, torch.nn.functional as F

def total(net, x, x_c, y, U, lam, tau):
    "Eq. 13: L_J on images and counterfactuals, and λ L_CR over both of their features."
    feats, J = [], 0
    for images in (x, x_c):
        logits, f = net(images)
        J = J - (logits - logits.exp().sum(1, keepdim=True).log())[range(len(y)), y].mean()
        feats.append(f)
    f = torch.cat(feats)
    s = torch.stack([(f*u).sum(1)/f.norm(dim=1)/u.norm() for u in U], 1)/tau
    own = s[range(len(f)), y.repeat(2)]
    CR = -(own - s.exp().sum(1).log()).mean()
    return J, lam*CR

def local_prototypes(features, y, classes):
    "Eq. 10, class by class."
    def mean(c): return torch.stack([f for f, k in zip(features, y) if k == c]).mean(0)
    return {c: mean(c) for c in range(classes) if (y == c).any()}

def global_prototypes(sent, classes):
    "Eq. 11, over the clients that have the class."
    found = {c: [U[c] for U in sent if c in U] for c in range(classes)}
    return {c: sum(us)/len(us) for c, us in found.items() if us}

def composite(image, box, background, to):
    "I_C of one image (C, H, W) in bytes: the crop, resized, laid on the background."
    (l, t, r, b), (L, T, R, B) = box, to
    crop = image[None, :, t:b, l:r].double()
    out = background.clone()
    small = F.interpolate(crop, (B-T, R-L), mode='bilinear', align_corners=False)[0]
    out[:, T:B, L:R] = (small+.5).floor().to(torch.uint8)
    return out
