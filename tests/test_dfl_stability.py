"I_s held back, and what two branches share on images that no net has seen."
import math
import pytest, torch
from feds import equal, fed_of, halved, run
from test_dfl_method import at, net
from fedskew_nb.core.method import Method
from fedskew_nb.nets.models import small_conv
from fedskew_nb.core.seeding import generator
from fedskew_nb.data.suites.colored import colored_mnist
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.dfl.information import Branches, halves
from fedskew_nb.methods.dfl.method import DFL, Anchor, Separate, Transfer
from fedskew_nb.methods.dfl.stability import Tamed, held_out, still_shared

Plain = type('Tamed', (Separate,), {})       # draws the same critic

@pytest.fixture(scope='module')
def suite(suite): return halved(suite)

def whole(term): return Method('x', Branches(), term, Anchor(), Transfer())
def term_of(term, suite, rounds=0):
    "What a term is worth to client 0 in step 1, and its gradient on E_s(x)."
    f = fed_of(whole(term), suite, net(), rounds=4)
    if rounds: f.fit(rounds)
    c, b, out = at(f, 0, 'specific')
    (loss,) = term.loss(c.window(term), b, out).values()
    g, = torch.autograd.grad(loss, out.feat)
    return loss.detach(), g.chunk(2, 1)[0]

def test_not_held_back_it_is_separate(suite):
    assert equal(run(whole(Tamed()), suite), run(whole(Plain()), suite))

def test_a_clip_bounds_the_gradient_and_not_the_value(suite):
    (I, g), (J, h) = term_of(Tamed(clip=1e-4), suite), term_of(Plain(), suite)
    assert I == J and g.norm() <= 1.0001e-4 < h.norm()
    torch.testing.assert_close(g/g.norm(), h/h.norm())

def test_a_wide_clip_changes_nothing(suite):
    assert torch.equal(term_of(Tamed(clip=1e6), suite)[1], term_of(Plain(), suite)[1])

def test_raw_features_meet_the_critic_as_they_are(suite):
    term = Tamed(raw=True)
    c, b, out = at(fed_of(whole(term), suite, net()), 0, 'specific')
    read = term._features(c.window(term), b, out)
    for r, feature in zip(read, halves(out)): assert torch.equal(r, feature)

def test_a_bounded_critic_stays_in_its_box(suite):
    box, free = (run(whole(Tamed(bound=b)), suite) for b in (.02, None))
    def largest(fed):
        critics = [s['Tamed']['critic'] for s in fed.states.values()]
        return max(float(v.detach().abs().max()) for critic in critics for v in critic.values())
    assert largest(box) <= .0201 < largest(free)

def test_a_warm_up_rises_from_nothing_to_the_whole(suite):
    at_once = term_of(Plain(), suite)[0]
    assert term_of(Tamed(warm=2), suite)[0] == 0 != at_once and term_of(Tamed(warm=0), suite)[0] == at_once
    # in round 2; the first was alike
    quarter, all_of_it = (term_of(Tamed(warm=n), suite, 1)[0] for n in (4, 1))
    torch.testing.assert_close(4*quarter, all_of_it)

@pytest.mark.parametrize('word', ['clip', 'bound', 'warm'])
def test_limits(word):
    with pytest.raises(ValueError, match=word): Tamed(**{word: -1})

# ---- held out
def pairs(rho, n=2000, d=4):
    a, e = torch.randn(2, n, d, generator=generator('pairs', rho))
    return a, rho*a+(1-rho**2)**.5*e

def test_held_out_knows_nothing_from_something():
    "Independent: at most nothing. The same: nearly all there is."
    assert held_out(*pairs(0)) < .02 < .5 < held_out(*pairs(.9)) < held_out(*pairs(1)) <= 2*math.log(2)

def test_held_out_of_what_is_not_finite():
    a, b = pairs(.5, 40)
    a[3, 1] = math.nan
    assert math.isnan(held_out(a, b))

def test_still_shared_asks_branches_on_coloured_digits(suite):
    digits = colored_mnist('tiny')
    small = lambda: small_conv(10, size=28, width=4)
    assert still_shared(fed_of(FedAvg, digits, small())) == {} == still_shared(fed_of(DFL, suite))
    found = still_shared(fed_of(DFL, digits, small()), clients=2)
    assert found.keys() == {'I', 'size_s', 'size_c'} and found['size_s'] > 0
    assert 0 < found['I'] < 2*math.log(2)
