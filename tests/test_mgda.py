"The consensus step where it teaches nothing: random and degenerate hulls, accuracy, types, memory, refusals."
import itertools, sys
import matplotlib.pyplot as plt
import numpy as np, pytest, torch
from scipy.optimize import minimize
from torch.utils._python_dispatch import TorchDispatchMode
from fedskew_nb.methods.fdse.consensus import Agreement, NotFinite, consensus_step, min_norm
from fedskew_nb.methods.fdse.consensus import combine, gram
from fedskew_nb.methods.fdse.unseen import hull_picture
from fedskew_nb.methods.fdse.consensus import frank_wolfe, rule_from

def gen(seed): return torch.Generator().manual_seed(seed)
def units(D): return D/np.maximum(np.linalg.norm(D, axis=1, keepdims=True), 1e-300)
def random_units(K, P): return units(np.random.default_rng((K, P)).standard_normal((K, P))+.5)

def nearest(D):
    """(λ, the nearest point, is it that?)

    λ is on the simplex, and nobody objects: min ⟨d_k,u⟩ ≥ ‖u‖² up to rounding, from D itself."""
    lam = min_norm(D@D.T)
    u = lam@D
    on_simplex = lam.dtype == np.float64 and lam.min() >= 0 and abs(lam.sum()-1) <= 1e-12
    return lam, u, on_simplex and (D@u).min()-u@u >= -1e-12*(D*D).sum(1).max()

SIZES = dict(zip((1, 2, 3, 4, 5, 8, 10, 20, 50, 100), (.02, .14, .14, .14, .14, .14, .14, .08, .04, .02)))

def geometry(r, D):
    "One of ten."
    (K, P), h, few = D.shape, len(D)//2, max(1, len(D)//3)
    def tiny(lo): return 10.**-r.uniform(1, lo)*r.standard_normal((K, P))
    def repeated(): return D[r.integers(0, max(1, h), K)]
    match int(r.integers(10)):
        case 1: return r.standard_normal((K, few))@r.standard_normal((few, P))           # rank-deficient
        case 2: return D[:1]+tiny(12)                                                    # nearly one vector
        case 3: return repeated()
        case 4:                                                                          # opposite, or nearly
            D[h:2*h] = -D[:h]*(1+(r.random() < .5)*tiny(12)[:h])
            return D
        case 5: return repeated()+tiny(14)
        case 6: return D+3*r.standard_normal(P)                                          # a shared part
        case 7: return D*10.**r.uniform(-6, 6, (K, 1))                                   # of all lengths
        case 8: return np.abs(D)
        case 9: return D*(r.random((K, P)) < .3)                                         # sparse, some zero
    return D

def hull(r):
    "Random vectors in one of ten geometries, some made one long, some at another scale."
    K = int(r.choice([*SIZES], p=[*SIZES.values()]))
    D = geometry(r, r.standard_normal((K, int(r.integers(1, 2*K+6)))))
    if r.random() < .7: D = units(D)
    return D*10.**r.uniform(-8, 8) if r.random() < .2 else D

@pytest.mark.parametrize('part', range(4))
def test_twenty_thousand_hulls(part):
    r = np.random.default_rng((2026, part))
    for i in range(5000): assert nearest(hull(r))[2], i

def test_opposite_pairs_and_close_pairs():
    r = np.random.default_rng(1)
    for i in range(2000):
        d = r.standard_normal((1, int(r.integers(1, 50))))
        e = 10.**-r.uniform(0, 17)*r.standard_normal(d.shape)
        hulls = ([d, -d*10.**r.uniform(-3, 3)], [d, e-d], [d, d+e], [d, -d, e], [d, d+e, d-e])
        for D in map(np.concatenate, hulls): assert nearest(D)[2], i

def test_always_ends(monkeypatch):
    "Should scipy ever give up, the answer is Frank–Wolfe's: worse, but finite and on the simplex."
    def gives_up(*_, **__): raise RuntimeError('Maximum number of iterations reached.')
    D = units(np.random.default_rng(0).standard_normal((5, 9)))
    G = D@D.T
    exact = min_norm(G)
    monkeypatch.setattr('scipy.optimize.nnls', gives_up)
    lam = min_norm(G)
    assert lam.min() >= 0 and abs(lam.sum()-1) < 1e-9 and abs(lam@G@lam-exact@G@exact) < 1e-4

@pytest.mark.parametrize('G, want', [
    ([[5, -.8], [-.8, 1.29]], [.264892, .735108]),
    (np.eye(1), [1]),
    (np.zeros((3, 3)), [1/3]*3),
    (np.ones((2, 2)), [.5]*2)])
def test_weights_of_the_spec(G, want): assert np.allclose(min_norm(G), want, atol=1e-6)

def test_steps_of_the_spec():
    D = torch.tensor([[1., 0], [-.8, .6]], dtype=torch.float64)
    assert np.allclose(D@consensus_step(D).step, [.1, .1], atol=1e-15)
    step = consensus_step(torch.tensor([[3., 0], [0, 4]])).step
    assert torch.allclose(step, torch.tensor([1.75, 1.75]))
    assert np.isclose(consensus_step(torch.eye(4)).u, .5)

def drawn_updates(s):
    "Updates of many lengths that share the more the larger `s` is."
    g, K, P = gen(s), 2+s%9, 5+7*s
    D = torch.randn(K, P, generator=g, dtype=torch.float64)
    D = D*10**torch.randn(K, 1, generator=g, dtype=torch.float64)
    return D+.3*s/40*D[:1]

@pytest.mark.parametrize('s', range(40))
def test_invariants(s):
    "Nobody is hurt, the step is never longer than the mean length, scale moves nothing, order moves nothing."
    D = drawn_updates(s)
    a, n, mean = consensus_step(D), D.norm(dim=1), D.mean(0)
    assert (D@a.step >= -1e-12*n*a.step.norm()).all() and a.step.norm() <= n.mean()*(1+1e-12)
    assert np.isclose(a.least, (D@a.step/n/a.step.norm()).min(), atol=1e-12)
    assert np.isclose(a.mean_least, (D@mean/n/mean.norm()).min(), atol=1e-12)
    assert a.least >= a.u-1e-12 and np.isclose(a.u, a.step.norm()/n.mean(), atol=1e-12)
    loud = D.clone()
    loud[0] *= 1e6
    assert np.isclose(consensus_step(loud).u, a.u, atol=1e-10)
    assert torch.allclose(consensus_step(D.flip(0)).step, a.step, atol=1e-9*float(n.mean()))

SHAPES = [(1, 1), (2, 7), (3, 4096), (3, 4095), (4, 65536+4097), (10, 300_001), (40, 70_000), (6, 2**18),
          (6, 2**18+1), (2, 1_000_003)]

@pytest.mark.parametrize('shape', SHAPES)
def test_gram_is_accurate(shape):
    P, g = shape[1], gen(shape[1])
    V = torch.randn(shape, generator=g)+torch.randn(P, generator=g)
    base = torch.randn(P, generator=g)
    def product(D): return (D@D.T).numpy()
    G = product((V-base).double())
    n = np.sqrt(G.diagonal())
    def close(X): return (np.abs(X-G) <= 1e-6*np.outer(n, n)).all()
    assert close(gram(V, base)) and close(gram(V-base)) and close(gram(V, base.expand(shape)))
    for chunk in (1, 64, 10**6) if P < 5000 else (1024,): assert close(gram(V, base, chunk=chunk))
    V, base = V.double(), base.double()
    assert np.allclose(gram(V, base, chunk=1000), product(V-base), rtol=1e-10)
    assert gram(V.float()).dtype == np.float64

FAR = {torch.float16: 2e-3, torch.bfloat16: 1e-2, torch.float32: 1e-5, torch.float64: 1e-12}

@pytest.fixture(params=FAR, ids=str)
def typed(request):
    "Five rows and where they started, in a type; and the exact agreement."
    g = gen(0)
    V, base = (torch.randn(shape, generator=g).to(request.param) for shape in ((5, 3000), (3000,)))
    return V, base, consensus_step(V.double()-base.double())

def test_types(typed):
    V, base, exact = typed
    a = consensus_step(V, base)
    assert isinstance(a, Agreement) and isinstance(a.u, float) and isinstance(a.least, float)
    assert a.step.dtype == V.dtype and abs(a.u-exact.u) < 5e-3
    assert float((a.step.double()-exact.step).norm()/exact.step.norm()) < FAR[V.dtype]
    assert not consensus_step(V.clone().requires_grad_(), base).step.requires_grad

def test_views(typed):
    V, base, exact = typed
    step, wide = consensus_step(V, base).step, base.expand(5, -1)
    assert torch.equal(step, consensus_step(V, wide).step)
    assert torch.equal(step, consensus_step(V, wide.contiguous()).step)
    tall = V.T.contiguous().T                                                   # rows that are not contiguous
    assert torch.allclose(consensus_step(tall, base).step.double(), exact.step, atol=.05)

@pytest.mark.parametrize('P', [10, 20_000, 2**18+5000])
def test_promise_in_float32(P):
    "⟨Δ, Δ_k⟩ ≥ −1e-6·‖Δ‖‖Δ_k‖; in rows short enough for float64 also where the common direction is faint."
    short = P < 2**18
    for s in range(40 if short else 6):
        D = torch.randn(6, P, generator=gen(s))
        D[1] = -D[0]+(10.**(-s/10) if short else 1)*D[1]
        a, D = consensus_step(D), D.double()
        inner = (D@a.step.double())/D.norm(dim=1)
        assert (inner >= -1e-6*a.step.double().norm()).all(), s
        assert a.step.any() or a.u == 0

IDLE = torch.tensor([[3., 4], [4, 3], [0, 0], [1e-20, 0]])

def test_who_did_not_move_is_idle():
    a = consensus_step(IDLE)
    assert a.idle == [2, 3] and a.lam[2:].sum() == 0 and abs(a.lam.sum()-1) < 1e-12
    assert torch.allclose(a.step, torch.full((2,), 10/4*.7))

def test_eps_of_the_release():
    assert not consensus_step(IDLE, eps=1e-8).step.any()
    free, released = consensus_step(IDLE[:2]), consensus_step(IDLE[:2], eps=1e-8)
    assert torch.allclose(free.step, released.step, atol=1e-6)

@pytest.mark.parametrize('shape', [(3, 4), (1, 4), (2, 0)], ids=str)
def test_nobody_moved(shape):
    D = torch.zeros(shape)
    a = consensus_step(D)
    assert a.idle == list(range(len(D))) and a.step.shape == D.shape[1:] and not a.step.any()
    assert (a.u, a.least, a.mean_least) == (0, 0, 0)

@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('rows', [[[1., 2, 3.3], [-3, -6, -9.9], [5, 1, 0]],
                                  [[1., 0], [-.5, .75**.5], [-.5, -.75**.5]]], ids=['opposite', 'star'])
def test_no_common_direction(rows, dtype):
    a = consensus_step(torch.tensor(rows, dtype=dtype))
    assert not a.step.any() and (a.u, a.least) == (0, 0)
    assert a.mean_least <= 0 and abs(a.lam.sum()-1) < 1e-12

@pytest.mark.parametrize('value', [float('nan'), float('inf'), -float('inf')])
def test_not_finite(value):
    V = torch.randn(4, 200_000, generator=gen(0))
    V[1, -1] = V[3, 5] = value
    with pytest.raises(NotFinite, match=r'rows \[1, 3\]') as e: consensus_step(V, torch.zeros(200_000))
    assert e.value.rows == [1, 3] and isinstance(e.value, ValueError)

def test_no_numbers_to_agree_on():
    whole = torch.ones(2, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match='floating-point'): consensus_step(whole)
    with pytest.raises(ValueError, match='not finite'): min_norm(np.full((2, 2), np.inf))

class Fresh(TorchDispatchMode):
    "Bytes of the largest storage that is made while it is open, beside what is known."
    def __init__(self, *known):
        super().__init__()
        self.most, self.known = 0, {t.untyped_storage().data_ptr() for t in known}
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, (tuple, list)) else (out,):
            if not isinstance(t, torch.Tensor) or t.untyped_storage().data_ptr() in self.known: continue
            self.most = max(self.most, t.untyped_storage().nbytes())
        return out

def test_memory():
    "Beside V and g nothing larger than one buffer or the step itself is ever made."
    K, P = 8, 600_001
    V, g = torch.randn(K, P), torch.randn(P).expand(K, -1)
    with Fresh(V, g) as seen: consensus_step(V, g)
    assert 0 < seen.most <= 4*max(P, K*65536) < V.untyped_storage().nbytes()/4

@pytest.mark.parametrize('K', [1, 2, 5, 20])
def test_frank_wolfe_comes_near(K):
    D = units(np.random.default_rng(K).standard_normal((K, 200)))
    G = D@D.T
    a, b = min_norm(G), frank_wolfe(G, 5000)
    assert abs(b.sum()-1) < 1e-9 and b.min() >= 0 and -1e-14 <= b@G@b-a@G@a < 1e-5

def test_frank_wolfe_of_nothing(): assert frank_wolfe(np.zeros((3, 3))).tolist() == [1/3]*3

@pytest.mark.parametrize('K, P', [(2, 3), (3, 5), (6, 30)])
def test_agrees_with_torchjd(K, P):
    MGDA, d = pytest.importorskip('torchjd.aggregation').MGDA, random_units(K, P)
    u = MGDA(epsilon=1e-9, max_iters=100_000)(torch.from_numpy(d)).numpy()
    assert np.linalg.norm(u-nearest(d)[1]) < 1e-3

def test_rules():
    agg = pytest.importorskip('torchjd.aggregation')
    g = torch.randn(50).expand(3, -1)
    V = g+torch.randn(3, 50)
    mean = rule_from(agg.Mean())
    assert torch.allclose(mean(V, g, None, None), V.mean(0), atol=1e-6)
    assert torch.allclose(rule_from('Sum')(V, g, None, None), g[0]+(V-g).sum(0), atol=1e-5)
    assert mean(V.double(), g.double(), None, None).dtype == torch.float64
    assert rule_from('Mean').__name__ == 'rule_from(Mean)'
    with pytest.raises(ValueError, match="'Meen'; near: Mean"): rule_from('Meen')

def test_without_torchjd(monkeypatch):
    for module in ('torchjd.aggregation', 'torchjd'): monkeypatch.setitem(sys.modules, module, None)
    says = r'UPGrad needs pip install "fedskew_nb\[agg\]"'
    with pytest.raises(ImportError, match=says): rule_from('UPGrad')

@pytest.mark.parametrize('angles', [(0,), (0, 90), (0, 180), (10, 10, 10), (0, 120, 240), range(0, 360, 7)])
def test_picture(angles):
    assert hull_picture(angles).get_title(loc='left').startswith('‖u‖')
    plt.close('all')

def all_faces(G):
    "‖u‖² by trying every set of active vectors."
    best = np.inf
    for n in range(1, len(G)+1):
        for S in map(list, itertools.combinations(range(len(G)), n)):
            x = np.linalg.lstsq(G[np.ix_(S,S)]+1, np.ones(len(S)), rcond=None)[0]
            lam = x/x.sum()
            if lam.min() >= 0: best = min(best, lam@G[np.ix_(S,S)]@lam)
    return best

def slsqp(G):
    "‖u‖² by a general solver."
    K = len(G)
    on_simplex = dict(type='eq', fun=lambda l: l.sum()-1, jac=np.ones_like)
    r = minimize(lambda l: l@G@l, np.full(K, 1/K), jac=lambda l: 2*G@l, method='SLSQP', bounds=[(0,1)]*K,
                 constraints=[on_simplex], options=dict(ftol=1e-16, maxiter=1000))
    return r.x@G@r.x

@pytest.mark.parametrize('K,P', [(2,3), (3,5), (4,3), (6,30), (10,40), (8,6)])
def test_other_solvers_confirm_the_point(K, P):
    d = random_units(K, P)
    G = d@d.T
    u = min_norm(G)@d
    assert (d@u).min()-u@u > -1e-14
    assert abs(all_faces(G)-u@u) < 1e-12 and abs(slsqp(G)-u@u) < 1e-9

def test_directions_between_others_count_nothing():
    d = units(np.array([[1.,0],[0,1],[1,1]]))
    assert np.allclose(min_norm(d@d.T), [.5,.5,0], atol=1e-12)

def anywhere(r, K): return r.standard_normal((K,1000))
def within_three(r, K): return np.abs(r.standard_normal((K,3)))@r.standard_normal((3,1000))

@pytest.mark.parametrize('make', [anywhere, within_three])
def test_frank_wolfe_is_never_shorter(make):
    for K, seed in itertools.product((2,4,10,50), range(3)):
        d = units(make(np.random.default_rng((seed,K)), K))
        G = d@d.T
        a, b = min_norm(G), frank_wolfe(G)
        assert (b@G@b)/(a@G@a)-1 > -1e-12

def lone(seed, loud, K=10, P=1000):
    "One client of ten against the rest: the agreement, and whom the mean serves worst."
    sign = torch.tensor([-.5]+[1.]*(K-1))[:,None]
    D = (.7*torch.randn(P, generator=gen(seed))*sign+torch.randn(K, P, generator=gen(50+seed))).double()
    D[0] *= loud
    return consensus_step(D), int(torch.cosine_similarity(D.mean(0)[None], D).argmin())

@pytest.mark.parametrize('seed', range(5))
def test_a_loud_client_does_not_turn_the_step(seed):
    found = {loud:lone(seed, loud) for loud in (.1,.3,1,3,10,30)}
    us = [a.u for a, _ in found.values()]
    assert max(us)-min(us) < 1e-12
    assert all(abs(a.least-a.u) < 1e-9 for a, _ in found.values())
    assert found[30][0].mean_least < 0
    assert all(found[loud][1] == 0 for loud in (.1,.3,1)) and found[30][1] > 0

@pytest.mark.parametrize('N', [1,2,4,8,16,32,64])
@pytest.mark.parametrize('rho', [0.,.1,.5])
def test_the_step_shrinks_with_disagreement(N, rho):
    for seed in range(3):
        shared, own = torch.randn(4000, generator=gen(seed)), torch.randn(N, 4000, generator=gen(100+seed))
        D = rho**.5*shared+(1-rho)**.5*own
        assert abs(consensus_step(D).u/np.sqrt(rho+(1-rho)/N)-1) < .12
    assert np.isclose(consensus_step(torch.eye(N)).u, N**-.5, atol=1e-6)

FOUR = [[1.,0,1],[-1,0,1],[0,1,1],[0,-1,1]]
THREE = [[1.,0,1],[-.5,.75**.5,1],[-.5,-.75**.5,1]]

@pytest.mark.parametrize('rows', [FOUR, THREE, [[1.,2,3]]*2], ids=['four','three','twins'])
def test_it_is_the_mean_where_nobody_objects_more(rows):
    D = torch.tensor(rows, dtype=torch.float64)
    assert torch.allclose(consensus_step(D).step, D.mean(0), atol=1e-12)

def test_it_is_not_the_mean_of_anything():
    r = torch.randn(3, 50, generator=gen(0), dtype=torch.float64)
    assert not torch.allclose(consensus_step(r).step, r.mean(0))

def test_one_client_and_duplicates_get_their_own_update():
    D = torch.randn(4, 300, generator=gen(3))
    assert torch.allclose(consensus_step(D[:1]).step, D[0], atol=1e-6)
    a = consensus_step(D[[0,0,0]])
    assert torch.allclose(a.step, D[0], atol=1e-6) and np.isclose(a.lam.sum(), 1, atol=1e-12)

def test_a_copy_of_a_client_turns_the_mean_but_not_the_step():
    r = torch.randn(4, 200, generator=gen(8), dtype=torch.float64)
    r = r/r.norm(dim=1, keepdim=True)
    more = torch.cat([r, r[:1]])
    assert torch.allclose(consensus_step(r).step, consensus_step(more).step, atol=1e-10)
    assert torch.cosine_similarity(r.mean(0), more.mean(0), dim=0) < .99

@pytest.mark.parametrize('phi', [0,60,120,170])
def test_two_clients_at_an_angle(phi):
    t = np.radians(phi)
    a = consensus_step(torch.tensor([[1.,0],[np.cos(t),np.sin(t)]], dtype=torch.float64))
    assert np.allclose([a.u,a.least], np.cos(t/2), atol=1e-12)

def test_scale_of_a_tiny_update_moves_nothing_but_in_the_release():
    D = torch.randn(4, 300, generator=gen(3))
    faint = D.clone()
    faint[0] *= 1e-8/faint[0].norm()
    free, same, released = (consensus_step(V, eps=e).u for V, e in ((D,0), (faint,0), (faint,1e-8)))
    assert np.isclose(free, same, atol=1e-6) and released < same-.05

def gram_errors(V):
    "Largest error of the plain product and of ours, in units of the lengths."
    exact = (V.double()@V.double().T).numpy()
    n = np.sqrt(exact.diagonal())
    def worst(X): return float((np.abs(np.asarray(X, float)-exact)/np.outer(n,n)).max())
    return worst(V@V.T), worst(gram(V))

@pytest.mark.parametrize('P', [10**3, 10**5, 2**18, 2**18+1, 10**6])
def test_gram_beats_the_plain_product(P):
    for s in range(2):
        _, ours = gram_errors(torch.randn(4, P, generator=gen(s))+.7*torch.randn(P, generator=gen(9+s)))
        assert ours < (1e-12 if P <= 2**18 else 1e-6)

def test_gram_of_a_million_times_the_same_number():
    plain, ours = gram_errors(torch.full((4,10**6), .1))
    assert ours < 3e-5 and ours < plain/30

def test_gram_refuses_what_is_no_row_per_client():
    with pytest.raises(ValueError, match='one row of floating-point numbers per client'): gram(torch.ones(3))
    with pytest.raises(ValueError, match='int64'): gram(torch.ones(2, 3, dtype=torch.int64))

@pytest.mark.parametrize('P', [7, 70_001])
def test_the_second_pass_is_a_weighted_sum(P):
    V, g, a = torch.randn(3, P, generator=gen(0)), torch.randn(P, generator=gen(1)), np.array([.2,.5,-1])
    d, length = combine(V, g, a)
    want = torch.tensor(a)@(V.double()-g.double())
    assert torch.allclose(d.double(), want, atol=1e-5) and np.isclose(length, float(want.norm()), rtol=1e-5)

def test_idle_rows_divide_nothing_by_zero():
    with np.errstate(all='raise'): consensus_step(torch.tensor([[3.,4],[4,3],[0,0]]))

def test_aggregators_of_equal_cosines_give_the_same_direction():
    pytest.importorskip('torchjd.aggregation')
    sign = torch.tensor([-.4,1,1,1,1,1])[:,None]
    g = torch.randn(400, generator=gen(1)).expand(6, -1)
    D = .05*(torch.randn(400, generator=gen(2))*sign+torch.randn(6, 400, generator=gen(4)))
    D = D*torch.tensor([1.,1,1,1,1,5])[:,None]
    def least(step): return float(torch.cosine_similarity(step[None], D).min())
    ours = least(consensus_step(g+D, g).step)
    found = {n:least(rule_from(n)(g+D, g, None, None)-g[0]) for n in ('Mean','MGDA','IMTLG','ConFIG')}
    assert found['Mean'] < 0 < min(ours, found['MGDA'])
    assert np.allclose([found['IMTLG'],found['ConFIG']], ours, atol=1e-3)
    with pytest.raises(ValueError, match='near: UPGrad'): rule_from('UpGrad')
