"Beside authors' codes and libraries: what a page says of them, held against their arithmetic written out."
import math
from types import SimpleNamespace
import pytest, torch
from hypothesis import given, settings
from hypothesis import strategies as st
from fedskew_nb.methods.baselines.average import (
    AFL, GroupDRO, ServerAdaptive, ServerMomentum, WorstDomains, to_simplex)

SOME = settings(max_examples=50, deadline=None, derandomize=True)
moves = st.lists(st.floats(-5, 5).filter(lambda v: abs(v) > 1e-3), min_size=1, max_size=5)
losses = st.lists(st.floats(0, 5), min_size=2, max_size=5)

def walked(mechanism, deltas):
    "Where a server's steps go from 0."
    srv, x = SimpleNamespace(names=['w'], state={}), torch.zeros(1, 1).double()
    for d in deltas: x = mechanism._step(x+d, x, [1.], srv)[None]
    return float(x)

def yogi(deltas, eta, b1=.9, b2=.99, tau=1e-3, corrected=False):
    "Yogi from v = 0: as Flower writes it, or with google-research's correction of bias."
    x = m = v = 0.
    for t, d in enumerate(deltas, 1):
        m, v = b1*m+(1-b1)*d, v-(1-b2)*d*d*math.copysign(v != d*d, v-d*d)
        rate = math.sqrt(1-b2**t)/(1-b1**t) if corrected else 1
        x += eta*rate*m/(math.sqrt(v)+tau)
    return x

@SOME
@given(moves)
def test_fedyogi_is_flowers_and_not_google_researchs(deltas):
    "With .9 and .99 the correction is 1 in the first round, and counts from the second on."
    assert walked(ServerAdaptive(yogi=True), deltas) == pytest.approx(yogi(deltas, .03), rel=1e-9, abs=1e-12)
    assert yogi(deltas[:1], .03) == pytest.approx(yogi(deltas[:1], .03, corrected=True))
    assert walked(ServerAdaptive(yogi=True), [1., 1.]) > 1.1*yogi([1., 1.], .03, corrected=True)

@pytest.mark.parametrize('yogi', [False, True])
def test_the_first_step_without_correction_is_eta_times_one_tenth_over_the_root_of_one_hundredth(yogi):
    assert walked(ServerAdaptive(tau=0., yogi=yogi), [7.]) == pytest.approx(.03)
    assert walked(ServerAdaptive(tau=0., beta2=.999, yogi=yogi), [7.]) == pytest.approx(.03*math.sqrt(10))

@SOME
@given(moves)
def test_fedavgm_with_and_without_nesterov(deltas):
    "Flower's strategy and google-research's SGD; Flower's reproduction of Hsu et al."
    plain = nesterov = v = 0.
    for d in deltas:
        v = .9*v+d
        plain, nesterov = plain+v, nesterov+d+.9*v
    assert walked(ServerMomentum(), deltas) == pytest.approx(plain, abs=1e-9)
    assert walked(ServerMomentum(nesterov=True), deltas) == pytest.approx(nesterov, abs=1e-9)

def weighed(method, rounds):
    "The weights of each round, for clients of one domain each and equal size, and the memory after it."
    mechanism = next(m for m in method.mechanisms if isinstance(m, WorstDomains))
    K, acts, kept = len(rounds[0]), [], []
    srv = SimpleNamespace(state={}, domains=dict(enumerate('abcdefg'[:K])), share=lambda k: 1/K)
    for F in rounds:
        ups = [SimpleNamespace(id=k, domain='abcdefg'[k], extra=dict(loss=f)) for k, f in enumerate(F)]
        acts.append(mechanism.weights(srv, ups).tolist())
        kept.append(list(srv.state['lam'].values()))
    return acts, kept

@SOME
@given(losses, st.floats(.01, 3))
def test_afl_moves_lambda_after_the_model_and_groupdro_before(F, eta):
    "Their Algorithms 1: a round's losses act in AFL from the next round on, in GroupDRO at once."
    equal = [1/len(F)]*len(F)
    acts, kept = weighed(AFL(eta=eta), [F, F[::-1], F])
    assert acts == [pytest.approx(w, abs=1e-9) for w in (equal, *kept[:2])]
    acts, kept = weighed(GroupDRO(eta=eta), [F, F[::-1], F])
    assert acts == [pytest.approx(w, abs=1e-9) for w in kept]

def test_by_hand_two_rounds_of_afl():
    acts, kept = weighed(AFL(eta=.5), [[2., 1.], [0., 0.]])
    assert acts == [pytest.approx([.5, .5]), pytest.approx([.75, .25])]
    assert kept[1] == pytest.approx([.75, .25])

@SOME
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=6))
def test_the_projection_stays_on_the_simplex(v):
    "The released one leaves it, for (1.3, .2) and others; nearest means: no other corner is nearer."
    v = torch.tensor(v).double()
    p = to_simplex(v)
    assert p.min() >= 0 and float(p.sum()) == pytest.approx(1)
    assert all((v-p).norm() <= (v-e).norm()+1e-9 for e in torch.eye(len(v)).double())
