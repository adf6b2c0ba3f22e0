"RFedDis' primitives: against all focal sets, against fifty digits, at the edges, and with what is none."
from fractions import Fraction as Q
from itertools import product
import mpmath, pytest, torch
import torch.nn.functional as F
from torch.autograd import gradcheck
from fedskew_nb.methods.rfeddis.evidence import beliefs, dirichlet_kl, evidence
from fedskew_nb.methods.rfeddis.evidence import evidential_loss, vacuity
from fedskew_nb.methods.rfeddis.evidence import average, conflict, conflict_aware, cumulative, fuse

# ---- tools

def gen(seed=0): return torch.Generator().manual_seed(seed)

def wide(B, K, seed=0):
    "Evidence of all sizes: a fifth is 0, the rest from .001 to 1e8; the first row has only the largest."
    e = 10**(11*torch.rand(B, K, generator=gen(seed))-3)*(torch.rand(B, K, generator=gen(seed+1)) > .2)
    e[0] = 1e8
    return e

def off(found, true):
    "The largest relative error; NaN is one."
    true = torch.as_tensor(true, dtype=torch.float64)
    return float(((found.double()-true).abs()/true.abs().clamp(min=1e-300)).nan_to_num(nan=torch.inf).max())

SIZES = [2, 3, 10, 100, 1000]

# ---- Dempster's rule over all focal sets, in fractions

def masses(e):
    "Mass of every subset of the classes that has any: the classes alone, and all together."
    K, S = len(e), sum(e)+len(e)
    return {frozenset([k]): Q(v, S) for k, v in enumerate(e)} | {frozenset(range(K)): Q(K, S)}

def subsets(K): return [frozenset(k for k in range(K) if bits >> k & 1) for bits in range(2**K)]

def combine(m, n, K):
    "The products of all pairs of subsets, put at their intersections; the empty set holds the conflict."
    out = dict.fromkeys(subsets(K), Q(0))
    for A, B in product(subsets(K), repeat=2): out[A & B] += m.get(A, Q(0))*n.get(B, Q(0))
    return out

def normalised(m):
    C = m[frozenset()]
    return {A: v/(1-C) for A, v in m.items() if A}

def brute(*es):
    "(beliefs, vacuity) of all opinions together."
    K, m = len(es[0]), masses(es[0])
    for e in es[1:]: m = normalised(combine(m, masses(e), K))
    assert all(not v for A, v in m.items() if 1 < len(A) < K)
    return [float(m[frozenset([k])]) for k in range(K)], float(m[frozenset(range(K))])

CASES = [
    ((2, 1, 0), (0, 3, 3)),
    ((10, 0), (0, 10)),
    ((0, 0, 0, 0), (5, 0, 1, 2)),
    ((7, 1, 0, 0, 3), (1, 1, 2, 9, 0)),
    ((10**8, 0), (0, 10**8)),
    ((10**8, 1, 0), (3, 10**8, 10**4)),
    ((1, 2, 3), (4, 5, 6), (0, 0, 9)),
    ((1, 0), (0, 1), (2, 2), (9, 9))]

@pytest.mark.parametrize('es', CASES)
def test_all_focal_sets(es):
    b, u = beliefs(fuse(*(torch.tensor(e, dtype=torch.float32) for e in es)))
    true = brute(*es)
    assert off(b, true[0]) < 1e-6 and off(u, true[1]) < 1e-6

@pytest.mark.parametrize('es', [es for es in CASES if len(es) == 2])
def test_conflict_and_what_is_made_of_it(es):
    "C is the mass of the empty set; the conflict-aware rule gives it to the whole frame, divides by nothing."
    K, (a, b) = len(es[0]), (torch.tensor(e, dtype=torch.float32) for e in es)
    m = combine(*map(masses, es), K)
    mass, u = beliefs(conflict_aware(a, b))
    assert abs(float(conflict(a, b))-float(m[frozenset()])) < 1e-6
    assert off(u, float(m[frozenset(range(K))]+m[frozenset()])) < 1e-6
    assert (mass-torch.tensor([float(m[frozenset([k])]) for k in range(K)])).abs().max() < 1e-6

# ---- the product

@pytest.mark.parametrize('K', SIZES)
def test_fusion_is_exact_in_float32(K):
    a, b = wide(64, K), wide(64, K, 7)
    true = K*((1+a.double()/K)*(1+b.double()/K)-1)
    small = (a.double()+b.double()) < 1e-2      # there the product above cancels, the sum does not
    true = torch.where(small, a.double()+b.double()+a.double()*b.double()/K, true)
    assert off(fuse(a, b), true) < 1e-6 and off(vacuity(fuse(a, b)), K/(true.sum(-1)+K)) < 1e-6
    for v in (*beliefs(fuse(a, b)), conflict(a, b)):
        assert v.isfinite().all() and (v >= 0).all() and (v <= 1).all()

@pytest.mark.parametrize('K', SIZES)
def test_masses(K):
    b, u = beliefs(wide(64, K))
    assert (b >= 0).all() and (u > 0).all() and ((b.sum(-1)+u-1).abs() < 1e-6).all()

@pytest.mark.parametrize('K', SIZES)
def test_laws_of_the_product(K):
    a, b, c = wide(32, K), wide(32, K, 3), wide(32, K, 5)
    assert torch.equal(fuse(a, b), fuse(b, a)) and torch.equal(fuse(a, 0*a), a) and torch.equal(fuse(a), a)
    assert off(fuse(fuse(a, b), c), fuse(a, fuse(b, c))) < 1e-6 and off(fuse(a, b, c), fuse(c, b, a)) < 1e-6
    assert (vacuity(fuse(a, b)) <= torch.minimum(vacuity(a), vacuity(b))).all()
    assert torch.equal(fuse(a, 0*b).argmax(-1), a.argmax(-1))

def dempster(a, b):
    "Dempster's rule as in a textbook, by masses and 1 - C (Eq. 8)."
    (p, u), (q, v) = beliefs(a), beliefs(b)
    rest = 1-(p.sum(-1)*q.sum(-1)-(p*q).sum(-1))[..., None]
    mass, both = (p*q+p*v[..., None]+q*u[..., None])/rest, (u*v)[..., None]/rest
    return mass*a.shape[-1]/both

def test_the_textbook_form_in_float64():
    a, b = 50*torch.rand(2, 500, 7, generator=gen(), dtype=torch.float64)
    assert off(dempster(a, b), fuse(a, b)) < 1e-12

def test_a_contradiction_of_sure_heads():
    a, b = torch.tensor([1e8, 0]), torch.tensor([0, 1e8])
    assert fuse(a, b).tolist() == [1e8, 1e8] and not dempster(a, b).isfinite().all()

@pytest.mark.parametrize('n', [1e2, 1e4, 1e5])
def test_the_conflict_aware_rule_is_exact(n):
    a, b = (n*torch.rand(2, 200, 5, generator=gen())).mul(torch.eye(5)[torch.arange(200)%5]+1e-3)
    p, q = a.double(), b.double()
    S, T = p.sum(-1)+5, q.sum(-1)+5
    C = sum(p[:, i]*q[:, j] for i in range(5) for j in range(5) if i != j)/(S*T)
    true = (p*q+5*p+5*q)/(S*T)[:, None]*5/(25/(S*T)+C)[:, None]
    assert off(conflict_aware(a, b), true) < 1e-6

def test_average_and_cumulative():
    a, b, c = torch.rand(3, 4, 5, generator=gen())
    assert torch.equal(cumulative(a, b, c), a+b+c) and torch.allclose(average(a, b, c), (a+b+c)/3)

# ---- the loss, against fifty digits

def kl_of(a):
    with mpmath.workdps(50):
        a = [mpmath.mpf(v) for v in a]
        S = mpmath.fsum(a)
        fixed = mpmath.loggamma(S)-mpmath.loggamma(len(a))-mpmath.fsum(map(mpmath.loggamma, a))
        return float(fixed+mpmath.fsum((v-1)*(mpmath.digamma(v)-mpmath.digamma(S)) for v in a))

def loss_of(e, y, lam):
    with mpmath.workdps(50):
        a = [mpmath.mpf(v)+1 for v in e]
        fit = float(mpmath.digamma(mpmath.fsum(a))-mpmath.digamma(a[y]))
    return fit+lam*kl_of([mpmath.mpf(1) if k == y else v for k, v in enumerate(a)])

def rows(K):
    "Some rows of evidence, hard ones among them: all much, none, all on one class, much against much."
    one, two = torch.zeros(K), torch.zeros(K)
    one[0], two[:2] = 1e8, 1e8
    return torch.stack([*wide(4, K), torch.zeros(K), one, two, torch.full((K,), 3.)])

@pytest.mark.parametrize('K', [2, 3, 10, 1000])
@pytest.mark.parametrize('lam', [0., 1.])
def test_the_loss_is_exact_in_float32(K, lam):
    e = rows(K)
    for y in (0, K-1):
        true = [loss_of(v, y, lam) for v in e.tolist()]
        assert off(evidential_loss(e, torch.full((len(e),), y), lam), true) < 1e-6

@pytest.mark.parametrize('K', [2, 3, 10, 1000])
def test_the_divergence_is_exact_in_float32(K):
    a = rows(K)+1
    found, true = dirichlet_kl(a), torch.tensor([kl_of(v) for v in a.tolist()], dtype=torch.float64)
    assert ((found.double()-true).abs() <= 1e-6*true+1e-10).all()

def test_hand_values():
    e, y = torch.tensor([[2., 0, 1]]*3), torch.arange(3)
    assert off(evidential_loss(e, y), [47/60, 137/60, 77/60]) < 1e-6
    assert off(evidential_loss(e, y, 1.), [1.048612289, 2.834531019, 1.908426132]) < 1e-6
    assert abs(float(dirichlet_kl(torch.tensor([1., 4, 2])))-.7943446) < 1e-6

def test_divergence_is_one():
    assert (dirichlet_kl(torch.ones(4, 9)).abs() < 1e-10).all()
    for alpha in (1+wide(200, 9), 1+1e-3*torch.rand(200, 9, generator=gen())):
        assert (dirichlet_kl(alpha) >= 0).all()

@pytest.mark.parametrize('n', [0., 1., 1e4, 1e8])
def test_all_evidence_on_the_true_class(n):
    e, y = n*torch.eye(4), torch.arange(4)
    assert torch.equal(evidential_loss(e, y, 1.), evidential_loss(e, y, 0.))

def test_a_fresh_net_knows_nothing():
    for K in SIZES: assert abs(float(vacuity(evidence(torch.zeros(K))))-.590616) < 1e-6

# ---- gradients

def logits(B=4, K=5, seed=0):
    return torch.randn(B, K, generator=gen(seed), dtype=torch.float64, requires_grad=True)

@pytest.mark.parametrize('f', [
    evidence,
    lambda z: vacuity(evidence(z)),
    lambda z: beliefs(evidence(z))[0],
    lambda z: dirichlet_kl(1+evidence(z)),
    lambda z: evidential_loss(evidence(z), torch.tensor([0, 4, 2, 2]), .7)])
def test_gradients_of_one_opinion(f): assert gradcheck(f, logits())

@pytest.mark.parametrize('rule', [fuse, dempster, average, cumulative, conflict_aware, conflict])
def test_gradients_of_two(rule):
    def of_logits(a, b): return rule(evidence(a), evidence(b))
    assert gradcheck(of_logits, (logits(), logits(seed=1)))

def test_gradients_are_exact_in_float32():
    y = torch.arange(64)%10
    def slope(e): return torch.autograd.grad(evidential_loss(e, y, 1.).sum(), e)[0]
    e = wide(64, 10)
    found, true = slope(e.clone().requires_grad_()), slope(e.double().requires_grad_())
    assert ((found-true).abs() <= 1e-6*true.abs()+1e-12).all()

def test_opinions_of_stacked_clients():
    e, y = torch.rand(3, 8, 5, generator=gen()), torch.arange(24).view(3, 8)%5
    stacked = torch.func.vmap(lambda e, y: evidential_loss(fuse(e, e), y, .3))(e, y)
    assert torch.equal(stacked, torch.stack([evidential_loss(fuse(v, v), c, .3) for v, c in zip(e, y)]))

# ---- other types, and what is no evidence

MOST = {torch.float16: 65504., torch.bfloat16: 1e8, torch.float32: 1e8, torch.float64: 1e8}

@pytest.mark.parametrize('dtype, most', list(MOST.items()))
def test_extreme_logits_stay_finite(dtype, most):
    z = torch.tensor([[most, -most, 0], [most]*3, [-most]*3, [0]*3], dtype=dtype).requires_grad_()
    e = evidence(z)
    f = fuse(e, e.flip(0))
    L = evidential_loss(f, torch.tensor([1, 0, 2, 1]), 1.)
    assert e.dtype == L.dtype == (dtype if dtype == torch.float64 else torch.float32)
    assert all(v.isfinite().all() for v in (e, f, L, *beliefs(f), torch.autograd.grad(L.sum(), z)[0]))

def test_half_precision_is_that_of_the_logits():
    z = torch.randn(50, 10, generator=gen()).half()
    assert torch.equal(evidence(z), F.softplus(z.float()))

def test_one_class_is_refused():
    with pytest.raises(ValueError, match='one class'): evidence(torch.ones(4, 1))
