"DFL's primitives: the estimate against an integral, its bounds, who moves it which way, and what is refused."
import copy, math
import pytest, torch
from safetensors.torch import load_file, save_file
from scipy.integrate import dblquad
from torch import nn
from torch.autograd import gradcheck
from fedskew_nb.core.seeding import generator
from fedskew_nb.methods.dfl.information import check_critic, fit_critic
from fedskew_nb.methods.dfl.information import critic, jsd, new_critic, shared_information, standardised

# ---- tools

def gauss(rho, d=1):
    def draw(n, gen):
        a, e = torch.randn(2, n, d, generator=gen)
        return a, rho*a+(1-rho**2)**.5*e
    return draw

def held_out(p, draw, n=20_000): return shared_information(p, *draw(n, generator('held out')), 7).item()

def features(d=5, B=12, dtype=torch.float64, seed=0):
    a, b = torch.randn(2, B, d, generator=generator('features', seed), dtype=dtype)
    return a, b+a.roll(1, 1)

def critic_of(d=5, hidden=7, dtype=torch.float64, seed=0):
    return {k: v.to(dtype) for k, v in new_critic(d, d, hidden, generator('critic', seed)).items()}

# ---- the estimate

TRUE = {.3: .0238, .5: .0738, .7: .1756, .9: .4291, .99: .8827}

@pytest.mark.parametrize('rho', TRUE)
def test_a_trained_critic_finds_the_integral(rho):
    "In rotated coordinates the joint has deviations √(1±ρ), and the product 1."
    s, t = (1+rho)**.5, (1-rho)**.5
    def best(x, y): return -math.log(s*t)-x*x/2*(1/s**2-1)-y*y/2*(1/t**2-1)
    def softplus(v): return max(v, 0)+math.log1p(math.exp(-abs(v)))
    def normal(x, y): return math.exp(-(x*x+y*y)/2)/(2*math.pi)
    def joint(x, y): return (math.log(2)-softplus(-best(s*x, t*y)))*normal(x, y)
    def product(x, y): return (softplus(best(x, y))-math.log(2))*normal(x, y)
    wide = (-9, 9, -9, 9)
    found = sum(sign*dblquad(f, *wide, epsabs=1e-5)[0] for sign, f in ((1, joint), (-1, product)))
    assert abs(found-TRUE[rho]) < 1e-4
    assert abs(held_out(fit_critic(gauss(rho), generator('g', rho)), gauss(rho))-found) < .02

@pytest.mark.parametrize('seed', range(2))
def test_independent_features_share_nothing(seed):
    "On fresh pairs, whether the critic saw many or a few."
    draw = gauss(0, 4)
    assert abs(held_out(fit_critic(draw, generator('none', seed)), draw)) < .02
    few = draw(150, generator('few', seed))
    p = fit_critic(lambda n, gen: few, generator('none', seed), hidden=64)
    assert shared_information(p, *few, 7) > .3 and held_out(p, draw) < .02

@pytest.mark.parametrize('B', [1, 2, 3, 7, 32, 33, 200])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64, torch.bfloat16])
def test_a_critic_without_opinion_finds_exactly_nothing(B, dtype):
    zero = torch.zeros(B, dtype=dtype)
    assert jsd(zero, zero) == 0

@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_never_above_two_ln_two(dtype):
    for size in (1, 30, 1e4, 1e30):
        t, s = size*torch.randn(2, 1000, generator=generator('sizes'), dtype=dtype)
        for joint, product in ((t, s), (t.abs(), -s.abs()), (t.abs(), -s.abs().sqrt())):
            assert jsd(joint, product).isfinite() and jsd(joint, product) <= 2*math.log(2)+1e-6
    assert jsd(-t.abs(), s.abs()) < -1e9                     # and no limit below

def test_no_scale_of_the_best_critic_does_better():
    a, b = gauss(.9)(50_000, generator('scale'))
    def best(a, b): return (-.5*math.log(.19)-(.81*(a*a+b*b)-1.8*a*b)/.38)[:, 0]
    I = {c: jsd(c*best(a, b), c*best(a, b.roll(1, 0))).item() for c in (0, .5, .9, 1, 1.1, 2)}
    assert max(I, key=I.get) == 1 and I[0] == 0

def test_the_order_of_a_batch_says_nothing():
    "Of the critic's values; and of the batch, when every pair of strangers is counted."
    t, s = torch.randn(2, 40, generator=generator('t'), dtype=torch.float64)
    order = torch.randperm(40, generator=generator('order'))
    assert abs(jsd(t, s)-jsd(t[order], s[order.flip(0)])) < 1e-12
    (a, b), p, order = features(), critic_of(), torch.randperm(12, generator=generator('order'))
    def all_shifts(a, b): return sum(shared_information(p, a, b, k) for k in range(1, 12))/11
    assert abs(all_shifts(a, b)-all_shifts(a[order], b[order])) < 1e-12

def test_a_shift_is_a_roll_of_b():
    (a, b), p = features(), critic_of()
    for k in (1, 5, 11, -1):
        product = torch.stack([standardised(b)[(i-k)%12] for i in range(12)])
        found = jsd(critic(p, standardised(a), standardised(b)), critic(p, standardised(a), product))
        assert abs(found-shared_information(p, a, b, k)) < 1e-12

# ---- standardised features

def test_place_and_size_do_not_matter():
    (a, b), p = features(), critic_of()
    one = shared_information(p, a, b, 3)
    assert abs(one-shared_information(p, 1e4*a-7, 1e-2*b+3, 3)) < 1e-3

def test_the_floor_by_hand():
    "Deviations 3 and 1: variances 9 and 1, their mean 5."
    z = torch.tensor([[3., 1], [-3, 1], [3, -1], [-3, -1]])
    for floor, sizes in ((0., (1., 1.)), (1., (3/14**.5, 1/6**.5)), (2., (3/19**.5, 1/11**.5))):
        assert torch.allclose(standardised(z+5, floor).abs(), torch.tensor(sizes).expand(4, 2), atol=1e-5)

@pytest.mark.parametrize('detach', [False, True])
@pytest.mark.parametrize('floor', [0., 1.])
def test_dead_units_stay_dead(floor, detach):
    "A unit that never fires, and a batch in which none does: 0, and a gradient that is finite."
    for dead in (1, 4):
        z = torch.randn(32, 4, generator=generator('dead'))
        z[:, :dead] = 0
        z.requires_grad_()
        out = standardised(z, floor, detach)
        g, = torch.autograd.grad(out.square().sum()+out.sum(), z)
        assert (out[:, :dead] == 0).all() and g.isfinite().all()

def pull(size, floor, detach):
    "The gradient in a unit that fires for one image of 64, by so much."
    a, b = torch.randn(2, 64, 16, generator=generator('pull'), dtype=torch.float64)
    a = a.relu()
    a[:, 0] = 0
    a[3, 0] = size
    a.requires_grad_()
    p = critic_of(16, 32)
    return torch.autograd.grad(shared_information(p, a, b, 7, floor, detach), a)[0][:, 0].norm()

def test_only_the_floor_bounds_the_pull_on_a_rare_unit():
    "Without it the pull grows as the unit falls silent."
    assert pull(1e-3, 0., True) > 500*pull(1., 0., True)
    for detach in (False, True): assert pull(1e-3, 1., detach) < 5*pull(1., 1., detach)

def test_with_moments_attached_length_is_free():
    "The gradient is orthogonal to centred features; with moments detached it is not."
    (a, b), p = features(), critic_of()
    def along(detach):
        v = a.clone().requires_grad_()
        g, = torch.autograd.grad(shared_information(p, v, b, 3, detach=detach), v)
        return float(((a-a.mean(0))*g).sum()/g.norm())
    assert abs(along(False)) < 1e-6 < abs(along(True))

@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_counted_in_float32(dtype):
    z = torch.full((8, 3), 300.).to(dtype)
    z[::2] = -300
    assert standardised(z).dtype == torch.float32 and standardised(z, 0.).abs().max() < 1.001

# ---- gradients, and who moves it which way

@pytest.mark.parametrize('detach', [False, True])
def test_gradients_in_float64(detach):
    "Biases other than 0, so that no unit stands on the kink of its ReLU."
    (a, b), p = features(3, 6), {k: v+.1 for k, v in critic_of(3, 4).items()}
    names, tensors = zip(*p.items())
    def of_critic(*ts): return shared_information(dict(zip(names, ts)), a, b, 2, 1., detach)
    assert gradcheck(of_critic, [t.requires_grad_() for t in tensors])
    q = {k: v.detach() for k, v in p.items()}
    if detach: return
    assert gradcheck(lambda a, b: shared_information(q, a, b, 2), [a.requires_grad_(), b.requires_grad_()])

def branches(W, V, n, gen):
    x = torch.randn(n, 8, generator=gen)
    return x @ W, x @ V

@pytest.mark.parametrize('seed', range(4))
def test_signs(seed):
    "A step of the critic up, then one of E_s down: less on images held out; one of E_c up: more."
    W, V = torch.randn(2, 8, 4, generator=generator('branches', seed))
    p = fit_critic(lambda n, gen: branches(W, V, n, gen), generator('c', seed), 10, 256)
    def shared(p, W, n, key): return shared_information(p, *branches(W, V, n, generator(key)), 7)
    def seen(p, W): return shared(p, W, 4000, 'held out').item()
    at = {k: v.clone().requires_grad_() for k, v in p.items()}
    grads = torch.autograd.grad(shared(at, W, 512, 'batch'), [*at.values()])
    up = {k: v+.02*g for (k, v), g in zip(p.items(), grads)}
    assert seen(up, W) > seen(p, W)
    W1 = W.clone().requires_grad_()
    g, = torch.autograd.grad(shared(up, W1, 512, 'next batch'), W1)
    assert seen(up, W-.2*g) < seen(up, W) < seen(up, W+.2*g)

def test_detached_sides_get_nothing():
    (a, b), p = features(), critic_of()
    a.requires_grad_()
    b.requires_grad_()
    shared_information(p, a, b.detach(), 3).backward()
    assert a.grad.abs().max() > 0 and b.grad is None and all(v.grad is None for v in p.values())

# ---- the critic's tensors

def test_a_critic_is_tensors():
    "The same generator gives the same; copied and saved it says the same, bit for bit."
    one, two = (new_critic(3, 5, 8, generator('same')) for _ in range(2))
    assert [tuple(v.shape) for v in one.values()] == [(8, 8), (8,), (8, 8), (8,), (1, 8), (1,)]
    assert all(torch.equal(one[k], two[k]) and one[k].dtype == torch.float32 for k in one)
    assert one['W0'].abs().max() <= 8**-.5 and one['b0'].abs().max() == 0

def test_saved_and_gone_on_with(tmp_path):
    "Three steps, or two, a file, and one more."
    a, b = features(dtype=torch.float32)
    def run(p, opt, shifts):
        for k in shifts:
            opt.zero_grad()
            (-shared_information(p, a, b, k)).backward()
            opt.step()
    def live(p):
        p = {k: v.detach().clone().requires_grad_() for k, v in p.items()}
        return p, torch.optim.Adam(p.values(), 1e-2)
    whole, opt = live(critic_of(dtype=torch.float32))
    run(whole, opt, (1, 5, 3))
    half, opt = live(critic_of(dtype=torch.float32))
    run(half, opt, (1, 5))
    save_file({k: v.detach() for k, v in half.items()}, tmp_path/'critic.safetensors')
    moments = copy.deepcopy(opt.state_dict())
    stored = load_file(tmp_path/'critic.safetensors')
    rest, opt = live({k: stored[k] for k in half})
    opt.load_state_dict(moments)
    run(rest, opt, (3,))
    assert all(torch.equal(whole[k], rest[k]) for k in whole)

def test_the_plain_net():
    p, (a, b) = critic_of(), features()
    h = torch.cat([a, b], 1)
    layers = nn.Linear(10, 7), nn.ReLU(), nn.Linear(7, 7), nn.ReLU(), nn.Linear(7, 1)
    net = nn.Sequential(*layers).double()
    net.load_state_dict({f'{2*int(k[1])}.{"weight" if k[0] == "W" else "bias"}': v for k, v in p.items()})
    assert torch.allclose(net(h)[:, 0], critic(p, a, b), atol=1e-12)

def test_watching_changes_nothing():
    seen = []
    p = fit_critic(gauss(.5), generator('watch'), 5, 32, watch=lambda t, q: seen.append((t, q)))
    q = fit_critic(gauss(.5), generator('watch'), 5, 32)
    assert [t for t, _ in seen] == [1, 2, 3, 4, 5]
    assert all(torch.equal(p[k], q[k]) and torch.equal(p[k], seen[-1][1][k]) for k in p)

# ---- what is refused

def test_one_image_has_no_stranger():
    a, b = features(B=1)
    says = 'batch is 1: one image has no other'
    with pytest.raises(ValueError, match=says): shared_information(critic_of(), a, b, 1)

@pytest.mark.parametrize('shift', [0, 12, -12, 24])
def test_a_shift_that_pairs_each_with_itself(shift):
    a, b = features()
    with pytest.raises(ValueError, match=f'shift is {shift} in a batch of 12.*from 1 to 11'):
        shared_information(critic_of(), a, b, shift)

@pytest.mark.parametrize('bad', [math.nan, math.inf])
@pytest.mark.parametrize('name', ['W0', 'b1', 'W2'])
def test_a_broken_critic_is_named(name, bad):
    p = critic_of()
    assert check_critic(p) is p
    p[name].view(-1)[2 % p[name].numel()] = bad
    with pytest.raises(ValueError, match=f'the critic T_s of client 3 holds {bad} in {name}'):
        check_critic(p, 'the critic T_s of client 3')
