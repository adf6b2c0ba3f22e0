"The consensus step where it teaches nothing: random and degenerate hulls, accuracy, types, memory, bad input."
import itertools, sys
import numpy as np, pytest, torch
from scipy.optimize import minimize
from torch.utils._python_dispatch import TorchDispatchMode
from fedskew_nb.methods.fdse import consensus as mgda
from fedskew_nb.methods.fdse.consensus import Agreement, NotFinite, consensus_step, min_norm
from fedskew_nb.methods.fdse.solvers import combine, gram
from fedskew_nb.methods.fdse.pictures import hull_picture
from fedskew_nb.methods.fdse.solvers import frank_wolfe, rule_from

def units(D): return D/np.maximum(np.linalg.norm(D, axis=1, keepdims=True), 1e-300)

def hull(r):
    "Random vectors in one of ten geometries, some made one long, some at another scale."
    K = int(r.choice([1,2,3,4,5,8,10,20,50,100], p=[.02,.14,.14,.14,.14,.14,.14,.08,.04,.02])); D = r.standard_normal((K,int(r.integers(1,2*K+6)))); P = D.shape[1]; h = K//2
    tiny = lambda lo: 10.**-r.uniform(1,lo)*r.standard_normal((K,P))
    match int(r.integers(10)):
        case 1: D = r.standard_normal((K,max(1,K//3)))@r.standard_normal((max(1,K//3),P))                           # rank-deficient
        case 2: D = D[:1]+tiny(12)                                                                                  # nearly one vector
        case 3: D = D[r.integers(0,max(1,h),K)]                                                                     # duplicates
        case 4: D[h:2*h] = -D[:h]*(1+(r.random()<.5)*tiny(12)[:h])                                                  # opposite, or nearly
        case 5: D = D[r.integers(0,max(1,h),K)]+tiny(14)                                                            # near-duplicates
        case 6: D = D+3*r.standard_normal(P)                                                                        # a shared part
        case 7: D = D*10.**r.uniform(-6,6,(K,1))                                                                    # of all lengths
        case 8: D = np.abs(D)
        case 9: D = D*(r.random((K,P))<.3)                                                                          # sparse, some zero
    if r.random()<.7: D = units(D)
    return D*10.**r.uniform(-8,8) if r.random()<.2 else D

@pytest.mark.parametrize('part', range(4))
def test_twenty_thousand_hulls(part):
    "λ is on the simplex and nobody objects: min ⟨d_k,u⟩ ≥ ‖u‖² up to rounding, from the vectors themselves."
    r = np.random.default_rng((2026,part))
    for i in range(5000):
        D = hull(r); G = D@D.T; lam = min_norm(G); u = lam@D
        assert lam.dtype==np.float64 and lam.min()>=0 and abs(lam.sum()-1)<=1e-12, i
        assert (D@u).min()-u@u >= -1e-12*G.diagonal().max(), (i, D.shape)

def test_opposite_pairs_and_close_pairs():
    r = np.random.default_rng(1)
    for i in range(2000):
        d = r.standard_normal((1,int(r.integers(1,50)))); e = 10.**-r.uniform(0,17)*r.standard_normal(d.shape)
        for D in (np.concatenate([d,-d*10.**r.uniform(-3,3)]), np.concatenate([d,e-d]), np.concatenate([d,d+e]), np.concatenate([d,-d,e]), np.concatenate([d,d+e,d-e])):
            lam = min_norm(D@D.T); u = lam@D
            assert lam.min()>=0 and abs(lam.sum()-1)<=1e-12 and (D@u).min()-u@u >= -1e-12*(D*D).sum(1).max(), i

def test_always_ends(monkeypatch):
    "Should scipy ever give up, the answer is Frank–Wolfe's: worse, but finite and on the simplex."
    def gives_up(*_, **__): raise RuntimeError('Maximum number of iterations reached.')
    D = units(np.random.default_rng(0).standard_normal((5,9))); G = D@D.T; exact = min_norm(G)
    monkeypatch.setattr(mgda, 'nnls', gives_up); lam = min_norm(G)
    assert lam.min()>=0 and abs(lam.sum()-1)<1e-9 and abs(lam@G@lam-exact@G@exact)<1e-4

def test_vectors_of_the_spec():
    assert np.allclose(min_norm([[5,-.8],[-.8,1.29]])[0], .264892, atol=1e-6)
    assert np.allclose(min_norm(np.eye(1)), [1]) and np.allclose(min_norm(np.zeros((3,3))), 1/3) and np.allclose(min_norm(np.ones((2,2))), .5)
    a = consensus_step(torch.tensor([[1.,0],[-.8,.6]], dtype=torch.float64)); assert np.allclose(torch.tensor([[1.,0],[-.8,.6]]).double()@a.step, [.1,.1], atol=1e-15)
    assert torch.allclose(consensus_step(torch.tensor([[3.,0],[0,4]])).step, torch.tensor([1.75,1.75]))
    assert np.isclose(consensus_step(torch.eye(4)).u, .5)

def test_invariants():
    "Nobody is hurt, the step is never longer than the mean length, scale moves nothing, order moves nothing."
    for s in range(40):
        g = torch.Generator().manual_seed(s); K,P = 2+s%9, 5+7*s; D = torch.randn(K,P,generator=g,dtype=torch.float64)*10**torch.randn(K,1,generator=g,dtype=torch.float64); D += .3*s/40*D[:1]
        a = consensus_step(D); n = D.norm(dim=1)
        assert (D@a.step >= -1e-12*n*a.step.norm()).all() and a.step.norm() <= n.mean()*(1+1e-12)
        assert np.isclose(a.least, (D@a.step/n/a.step.norm()).min(), atol=1e-12) and np.isclose(a.mean_least, (D@D.mean(0)/n/D.mean(0).norm()).min(), atol=1e-12)
        assert a.least >= a.u-1e-12 and np.isclose(a.u, a.step.norm()/n.mean(), atol=1e-12)
        loud = D.clone(); loud[0] *= 1e6; assert np.isclose(consensus_step(loud).u, a.u, atol=1e-10)
        assert torch.allclose(consensus_step(D.flip(0)).step, a.step, atol=1e-9*float(n.mean()))

@pytest.mark.parametrize('shape', [(1,1), (2,7), (3,4096), (3,4095), (4,65536+4097), (10,300_001), (40,70_000), (6,2**18), (6,2**18+1), (2,1_000_003)])
def test_gram_is_accurate(shape):
    g = torch.Generator().manual_seed(shape[1]); V = torch.randn(shape,generator=g)+torch.randn(shape[1],generator=g); base = torch.randn(shape[1],generator=g)
    D = (V-base).double(); G = (D@D.T).numpy(); n = np.sqrt(G.diagonal()); close = lambda X: (np.abs(X-G)<=1e-6*np.outer(n,n)).all()
    assert close(gram(V,base)) and close(gram(V-base)) and close(gram(V,base.expand(shape))) and gram(V).dtype==np.float64
    assert np.allclose(gram(V.double(),base.double(),chunk=1000), ((V.double()-base.double())@(V.double()-base.double()).T).numpy(), rtol=1e-10)
    for chunk in (1,64,10**6) if shape[1]<5000 else (1024,): assert close(gram(V,base,chunk=chunk))

@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types_and_views(dtype):
    g = torch.Generator().manual_seed(0); V,base = torch.randn(5,3000,generator=g).to(dtype),torch.randn(3000,generator=g).to(dtype)
    a = consensus_step(V, base.expand(5,-1)); exact = consensus_step(V.double()-base.double())
    assert isinstance(a, Agreement) and a.step.dtype==dtype and abs(a.u-exact.u)<5e-3 and isinstance(a.u, float) and isinstance(a.least, float)
    assert torch.equal(a.step, consensus_step(V,base).step) and torch.equal(a.step, consensus_step(V,base.expand(5,-1).contiguous()).step)
    assert float((a.step.double()-exact.step).norm()/exact.step.norm()) < dict(zip((torch.float16,torch.bfloat16,torch.float32,torch.float64), (2e-3,1e-2,1e-5,1e-12)))[dtype]
    tall = V.T.contiguous().T; assert torch.allclose(consensus_step(tall,base).step.double(), exact.step, atol=.05)        # rows that are not contiguous
    assert not consensus_step(V.clone().requires_grad_(), base).step.requires_grad

@pytest.mark.parametrize('P', [10, 20_000, 2**18+5000])
def test_promise_in_float32(P):
    "⟨Δ, Δ_k⟩ ≥ −1e-6·‖Δ‖‖Δ_k‖; in rows short enough for float64 also where the common direction is faint."
    for s in range(40 if P<2**18 else 6):
        g = torch.Generator().manual_seed(s); D = torch.randn(6,P,generator=g); D[1] = -D[0]+(10.**(-s/10) if P<2**18 else 1)*D[1]; a = consensus_step(D)
        inner = (D.double()@a.step.double())/D.double().norm(dim=1); assert (inner >= -1e-6*a.step.double().norm()).all(), s
        assert a.step.any() or a.u==0

def test_idle_and_eps():
    D = torch.tensor([[3.,4],[4,3],[0,0],[1e-20,0]]); a = consensus_step(D); assert a.idle==[2,3] and a.lam[2:].sum()==0 and abs(a.lam.sum()-1)<1e-12
    assert torch.allclose(a.step, torch.full((2,), 10/4*.7)) and not consensus_step(D, eps=1e-8).step.any()
    free,released = consensus_step(D[:2]),consensus_step(D[:2], eps=1e-8); assert torch.allclose(free.step, released.step, atol=1e-6)
    for z in (torch.zeros(3,4), torch.zeros(1,4), torch.ones(2,0)): a = consensus_step(z); assert a.idle==list(range(len(z))) and not a.step.any() and (a.u,a.least,a.mean_least)==(0,0,0) and a.step.shape==z.shape[1:]

def test_no_common_direction():
    for D in (torch.tensor([[1.,2,3.3],[-3,-6,-9.9],[5,1,0]]), torch.tensor([[1.,0],[-.5,.75**.5],[-.5,-.75**.5]])):
        for t in (torch.float32,torch.float64): a = consensus_step(D.to(t)); assert not a.step.any() and (a.u,a.least)==(0,0) and a.mean_least<=0 and abs(a.lam.sum()-1)<1e-12

@pytest.mark.parametrize('value', [float('nan'), float('inf'), -float('inf')])
def test_not_finite(value):
    V = torch.randn(4,200_000, generator=torch.Generator().manual_seed(0)); V[1,-1] = V[3,5] = value
    with pytest.raises(NotFinite, match=r'rows \[1, 3\]') as e: consensus_step(V, torch.zeros(200_000))
    assert e.value.rows==[1,3] and isinstance(e.value, ValueError)
    with pytest.raises(ValueError, match='floating-point'): consensus_step(torch.ones(2,3,dtype=torch.int64))
    with pytest.raises(ValueError, match='not finite'): min_norm(np.full((2,2), np.inf))

def test_memory():
    "Beside V and g nothing larger than one buffer or the step itself is ever made."
    class Fresh(TorchDispatchMode):
        most,known = 0,set()
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for t in out if isinstance(out,(tuple,list)) else (out,):
                if isinstance(t,torch.Tensor) and t.untyped_storage().data_ptr() not in self.known: self.most = max(self.most, t.untyped_storage().nbytes())
            return out
    K,P = 8,600_001; V,g = torch.randn(K,P),torch.randn(P).expand(K,-1); seen = Fresh(); seen.known = {V.untyped_storage().data_ptr(),g.untyped_storage().data_ptr()}
    with seen: consensus_step(V, g)
    assert 0 < seen.most <= 4*max(P, K*65536) < V.untyped_storage().nbytes()/4

def test_frank_wolfe_comes_near():
    for K in (1,2,5,20):
        D = units(np.random.default_rng(K).standard_normal((K,200))); G = D@D.T; a,b = min_norm(G),frank_wolfe(G, 5000); assert abs(b.sum()-1)<1e-9 and b.min()>=0 and -1e-14 <= b@G@b-a@G@a < 1e-5
    assert frank_wolfe(np.zeros((3,3))).tolist()==[1/3]*3

def test_agrees_with_torchjd():
    MGDA = pytest.importorskip('torchjd.aggregation').MGDA
    for K,P in ((2,3),(3,5),(6,30)):
        d = units(np.random.default_rng((K,P)).standard_normal((K,P))+.5); u = MGDA(epsilon=1e-9, max_iters=100_000)(torch.from_numpy(d)).numpy()
        assert np.linalg.norm(u-min_norm(d@d.T)@d)<1e-3

def test_rules():
    agg = pytest.importorskip('torchjd.aggregation'); g = torch.randn(50).expand(3,-1); V = g+torch.randn(3,50)
    assert torch.allclose(rule_from(agg.Mean())(V,g,None,None), V.mean(0), atol=1e-6) and torch.allclose(rule_from('Sum')(V,g,None,None), g[0]+(V-g).sum(0), atol=1e-5)
    assert rule_from('Mean').__name__=='rule_from(Mean)' and rule_from(agg.Mean())(V.double(),g.double(),None,None).dtype==torch.float64
    with pytest.raises(ValueError, match="'Meen'; near: Mean"): rule_from('Meen')

def test_without_torchjd(monkeypatch):
    monkeypatch.setitem(sys.modules, 'torchjd.aggregation', None); monkeypatch.setitem(sys.modules, 'torchjd', None)
    with pytest.raises(ImportError, match=r'UPGrad needs pip install "fedskew_nb\[agg\]"'): rule_from('UPGrad')

def test_picture():
    import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt
    for angles in ((0,),(0,90),(0,180),(10,10,10),(0,120,240),range(0,360,7)): assert hull_picture(angles).get_title(loc='left').startswith('‖u‖')
    plt.close('all')

def gen(seed): return torch.Generator().manual_seed(seed)
def random_units(K, P): return units(np.random.default_rng((K,P)).standard_normal((K,P))+.5)

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

@pytest.mark.parametrize('make', [lambda r, K: r.standard_normal((K,1000)), lambda r, K: np.abs(r.standard_normal((K,3)))@r.standard_normal((3,1000))])
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
        D = rho**.5*torch.randn(4000, generator=gen(seed))+(1-rho)**.5*torch.randn(N, 4000, generator=gen(100+seed))
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
