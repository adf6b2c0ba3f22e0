"TwoHeads, Evidence, Disentangle and RFedDis inside the engine, beside plain PyTorch."
from functools import partial
import copy
from dataclasses import replace
import pytest, torch
import plain_rfeddis as plain
from feds import DEVICE, equal, far, fed_of, images, labels, run, same, whole_and_resumed
from torch import nn
from bare import noise_suite
from fedskew_nb.run.recipes import read_method
from fedskew_nb.analysis.explain import gradcam
from fedskew_nb.analysis.probes import linear_probe
from fedskew_nb.core.method import Method
from fedskew_nb.nets.models import gap, n_params, seq, small_conv
from fedskew_nb.core.net import Net, is_batchnorm, under
from fedskew_nb.core.seeding import seeded
from fedskew_nb.engine.history import Task
from fedskew_nb.engine.federation import Federation
from fedskew_nb.methods.baselines.personal import FedBN, KeepBatchNorm
from fedskew_nb.data.load import load_suite
from fedskew_nb.methods.rfeddis.controls import Summed, fewer, head_probes
from fedskew_nb.methods.rfeddis.evidence import disentangling_loss
from fedskew_nb.methods.rfeddis.evidence import vacuity
from fedskew_nb.methods.rfeddis.method import Disentangle, EqualWeights, Evidence, RFedDis, TwoHeads

def net(dtype=torch.float32): return small_conv(7, size=32, width=4, seed=0).to(dtype)
def fed(method, suite, dtype=torch.float32, **kw): return fed_of(method, suite, net(dtype), **kw)
def at(f, k, round, n=8):
    "Client `k` in a round, a batch of its first images, and the live net."
    c = f.worker.context(Task(f.clients[k], f.state_of(f.clients[k].id), round=round))
    b = f.worker.ready_batch(f.worker.raw_batch(c, torch.arange(n)))
    return c, b, f.worker.net.train()
def part(params, place): return {n[len(place)+1:]: p for n, p in params.items() if n.startswith(place+'.')}

# ---- against plain PyTorch

KINDS = [
    (RFedDis, {}),
    (RFedDis('released'), dict(over_features=True)),
    (RFedDis(one_way=True), dict(one_way=True))]

def by_hand(live, b, lam, how):
    live.train()
    P = dict(live.named_parameters())
    f = live.pool(live.neck(live.body(b['x'])))
    return plain.terms(f, part(P, 'head.psi_G'), part(P, 'head.psi_L'), b['y'], lam, **how)

@pytest.mark.parametrize('method, how', KINDS, ids=lambda v: getattr(v, 'name', ''))
@pytest.mark.parametrize('round', [0, 3])
def test_losses_and_gradients_are_the_paper_s(suite, method, how, round):
    c, b, live = at(fed(method, suite, torch.float64, rounds=4), 1, round)
    start = copy.deepcopy(live.state_dict())
    want, params = by_hand(live, b, round/4, how), list(live.parameters())
    grads = torch.autograd.grad(sum(want.values()), params)
    live.load_state_dict(start)
    terms = method.terms(c, b, method.run_forward(c, b))
    assert terms.keys() == want.keys()
    assert all(torch.allclose(terms[k], want[k], rtol=0, atol=1e-9) for k in want)
    mine = torch.autograd.grad(sum(terms.values()), params)
    assert max(float((p-q).abs().max()) for p, q in zip(mine, grads)) < 1e-9

def sent_by_hand(f, k, c, lr=.1):
    "What a client sends after one step of plain SGD on all its images, in round 2 of 2."
    _, b, live = at(f, k, 1, len(c.train))
    params = dict(live.named_parameters())
    grads = torch.autograd.grad(sum(by_hand(live, b, .5, {}).values()), list(params.values()))
    live(b['x'])                                # running statistics of one batch, from the received ones
    weights = {n: v for n, v in live.state_dict().items() if 'running' not in n}
    live.load_state_dict(f.state_of(c.id) | weights)
    live.train()(b['x'])
    state = {n: v.clone() for n, v in live.state_dict().items()}
    return state | {n: (p-lr*g).detach() for (n, p), g in zip(params.items(), grads)}

def test_a_round_is_the_release_s(suite):
    "One step of plain SGD in each client, in the last of two rounds, and the release's server."
    how = dict(local_steps=1, momentum=0., weight_decay=0., lr=.1, batch_size=999)
    f = fed(RFedDis, suite, torch.float64, **how)
    f.one_round()
    sent = [sent_by_hand(f, k, c) for k, c in enumerate(f.clients)]
    want = plain.server(sent, {n for n in sent[0] if '.bn.' in n})
    f.one_round()
    for c, w in zip(f.clients, want):
        assert far({n: v for n, v in w.items() if v.is_floating_point()}, f.state_of(c.id)) < 1e-9

def test_fused_evidence_is_dempster_s(suite):
    out = RFedDis.adapt(net(torch.float64)).eval()(images(dtype=torch.float64))
    b, u = plain.combine(plain.masses(out.aux['z_G']), plain.masses(out.aux['z_L']))
    assert torch.allclose(out.aux['u'], u, atol=1e-12)
    assert torch.allclose(out.aux['e'], b*7/u[:, None], atol=1e-10)
    assert torch.allclose(out.logits.softmax(1), b+u[:, None]/7, atol=1e-12)

# ---- limits

@pytest.fixture(scope='module')
def two_rounds(suite): return run(RFedDis, suite, net())

def test_no_disentangling_in_the_first_round(suite, two_rounds):
    bare = Method('bare', TwoHeads(), Evidence(), KeepBatchNorm(), EqualWeights())
    assert equal(run(RFedDis, suite, net(), rounds=1), run(bare, suite, net(), rounds=1))
    assert ['likeness' in r['terms'] for r in two_rounds.history.rounds] == [False, True]

@pytest.mark.parametrize('T, weight', [(2, .5), (4, .25), (10, .1)])
def test_lambda_counts_declared_rounds(suite, T, weight):
    c, b, _ = at(fed(RFedDis, suite, rounds=T), 0, 1)
    out = RFedDis.run_forward(c, b)
    plain_loss = disentangling_loss(out.aux['F_L'], out.aux['F_G'])
    said = Disentangle().loss(c, b, out)['likeness']/plain_loss
    assert round(float(said.detach()), 6) == weight

def test_disentangling_reaches_both_heads_and_the_encoder(suite):
    c, b, live = at(fed(RFedDis, suite, rounds=4), 0, 3)
    term = Disentangle().loss(c, b, RFedDis.run_forward(c, b))['likeness']
    grads = dict(zip(c.params(), torch.autograd.grad(term, list(c.params().values()), allow_unused=True)))
    moved = {n for n, g in grads.items() if g is not None and g.abs().sum() > 0}
    assert {'body.block1.conv.weight', 'head.psi_G.H.fc.weight', 'head.psi_L.H.fc.weight'} <= moved
    assert not any(n.startswith(('head.psi_G.out', 'head.psi_L.out')) for n in moved)

def muted(state):
    "No evidence from ψ_L, and no gradient through it in the first step."
    state = {n: v.clone() for n, v in state.items()}
    state['head.psi_L.out.weight'].zero_()
    state['head.psi_L.out.bias'].fill_(-200.)
    return state

def test_a_muted_local_head_leaves_the_answer_of_the_global_one():
    n = RFedDis.adapt(net())
    n.load_state_dict(muted(n.state_dict()))
    out = n.eval()(images())
    assert torch.equal(out.aux['e'], out.aux['e_G'])
    assert torch.equal(out.aux['u'], vacuity(out.aux['e_G']))

def without_psi_L(state):
    "As a net with the global head alone has it."
    return {n.replace('head.psi_G.', 'head.'): v for n, v in state.items() if 'psi_L' not in n}

def test_a_muted_local_head_leaves_fedbn(suite):
    "One step in every client, bit for bit: encoder, global head, BatchNorms. In a second step ψ_L has moved."
    two = Method('two', TwoHeads(), KeepBatchNorm(), EqualWeights())
    a = fed(two, suite, local_steps=1, stack=False)
    a.server = muted(a.server)
    plain_net = net()
    plain_net.head = copy.deepcopy(a.net.head.psi_G).cpu()
    plain_net.load_state_dict({n: v.cpu() for n, v in without_psi_L(a.server).items()})
    b = fed_of(FedBN, suite, plain_net, local_steps=1, uniform=True, stack=False)
    for f in (a, b): f.one_round()
    for c in a.clients: assert same(without_psi_L(a.state_of(c.id)), b.state_of(c.id))

def test_one_client_keeps_what_it_trained(suite):
    f = fed(RFedDis, replace(suite, clients=suite.clients[2:3]))
    sent = f.train_client(f.clients[0]).upload.state
    f.one_round()
    assert same(sent, f.state_of(f.clients[0].id))

# ---- who keeps what

def parts_of(n):
    "Names of the encoder, of ψ_G, of ψ_L, without BatchNorms; and the BatchNorms."
    bn = is_batchnorm(n)
    names = [k for k, v in n.state_dict().items() if v.is_floating_point()]
    def of(*places): return [k for k in names if under(*places)(k) and not bn(k)]
    return of('body', 'neck', 'pool'), of('head.psi_G'), of('head.psi_L'), list(filter(bn, names))

@pytest.mark.parametrize('share, heads_agree', [('head', True), ('encoder', False)])
def test_what_clients_share_after_a_round(suite, share, heads_agree):
    f = run(RFedDis(share=share), suite, net())
    one, two = (f.state_of(k) for k in (0, 3))
    encoder, psi_G, psi_L, bn = ({torch.equal(one[n], two[n]) for n in names} for names in parts_of(f.net))
    assert encoder == {True} and psi_L == bn == {False} and psi_G == {heads_agree}
    assert any('psi_G' in n for n in f.net.state_dict().keys()-f.kept) == heads_agree

def test_bytes_are_those_of_what_is_shared(two_rounds):
    names = two_rounds.server.keys()-two_rounds.kept
    shared = sum(two_rounds.server[n].numel() for n in names)
    assert two_rounds.history.rounds[0]['up'] == 4*4*shared and not any('psi_L' in n for n in names)

def test_every_client_counts_the_same(suite):
    f = fed(RFedDis, suite)
    ups = [f.train_client(c).upload for c in f.clients]
    f.merge(ups)
    for n in f.server.keys()-f.kept:
        if not f.server[n].is_floating_point(): continue
        assert torch.allclose(f.server[n], sum(u.state[n] for u in ups)/4, atol=1e-6), n

def test_averaged_batchnorms(suite):
    f = run(Method('m', TwoHeads(), Evidence(), Disentangle(), EqualWeights()), suite, net())
    assert {n for n in f.kept if 'psi_L' not in n} == set()

def test_heads_start_differently_and_alike_everywhere():
    a, b = RFedDis.adapt(net(), 3), RFedDis.adapt(net(), 3)
    assert same(a.state_dict(), b.state_dict())
    G, L = (h.H.fc.weight for h in (a.head.psi_G, a.head.psi_L))
    assert G.shape == L.shape == (128, 128) and not torch.equal(G, L)

# ---- presets

def test_presets_differ_where_they_say():
    def said(m): return {k: getattr(mech, f) for k, (mech, f) in m.hyper().items() if '__' not in k}
    paper = said(RFedDis)
    def changes(preset):
        other = said(RFedDis(preset))
        return {k: (paper[k], other[k]) for k in paper if paper[k] != other[k]}
    assert changes('released') == dict(reduction=('batchmean', 'mean'))
    assert changes('office') == dict(reduction=('batchmean', 'mean'), share=('head', 'encoder'))

def test_the_released_loss_is_torch_s_mean():
    "As the release writes it: kl_div with reduction='mean', both ways, one exponential."
    F_L, F_G = images(5, 4).flatten(1), images(5, 4, seed=1).flatten(1)
    p, q = F_L.log_softmax(1), F_G.log_softmax(1)
    def kl(a, b): return (b.exp()*(b-a)).mean()        # F.kl_div(a, b.exp(), reduction='mean')
    assert torch.allclose(disentangling_loss(F_L, F_G, 'mean'), torch.exp(-kl(p, q)-kl(q, p)), atol=1e-6)

def test_likeness_is_one_only_for_the_same():
    f = images(5, 4, dtype=torch.float64).flatten(1)
    assert disentangling_loss(f, f+3) == pytest.approx(1) and 0 < float(disentangling_loss(f, 2*f)) < 1
    g = f.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda g: disentangling_loss(g, f*.5), g)

# ---- the engine

def test_a_resumed_run_is_the_same(suite, tmp_path):
    whole, rest = whole_and_resumed(partial(fed, RFedDis, suite), tmp_path/'c')
    assert equal(whole, rest) and whole.history == rest.history

def test_lanes_change_no_bit(suite):
    a, b = (run(RFedDis, suite, net(), lanes=n) for n in (1, 3))
    assert equal(a, b)

PATHS = ('', 'global head', 'local head')

def test_paths_and_uncertainty(suite, two_rounds):
    said = two_rounds.answers(suite.clients[1].test.x, client=1, aux=('u', 'e_G'))
    alpha, u = said['e_G']+1, said['u']
    assert said.keys() == {*PATHS, 'u', 'e_G'} and u.shape == (12,) and bool(((0 < u) & (u <= 1)).all())
    assert torch.allclose(said['global head'], alpha/alpha.sum(1, keepdim=True), atol=1e-6)
    for p in PATHS: assert torch.allclose(said[p].sum(1), torch.ones_like(u), atol=1e-5)
    assert {r['path'] for r in two_rounds.history.rows} == set(PATHS)

def floats(state): return {n: v for n, v in state.items() if v.is_floating_point()}

STACKED = [(torch.float32, 20, 1, 1e-5), (torch.float64, 4, 4, 1e-9)]

@pytest.mark.parametrize('dtype, clients, steps, near', STACKED)
def test_stacked_is_one_by_one(dtype, clients, steps, near):
    """Two rounds with all losses: two steps in float32, two epochs in float64.

    In float32 more steps differ by more, for a rounding error decides at a ReLU or a max-pool; with softplus
    and mean-pooling they do not."""
    s, how = noise_suite(clients, 32), dict(rounds=2, local_steps=steps, batch_size=8, lr=.05)
    def made(stack):
        one = small_conv(10, width=4, seed=0).to(dtype)
        return Federation(RFedDis, one, s, device=DEVICE, stack=stack, **how)
    a, b = made(None), made(False)
    assert a.why_lanes == '' and b.why_lanes
    for f in (a, b, a, b): f.one_round()
    for c in s.clients[::3]: assert far(floats(b.state_of(c.id)), a.state_of(c.id)) < near
    assert 'likeness' in a.history.rounds[1]['terms']

@pytest.mark.parametrize('dtype', [torch.half, torch.bfloat16])
def test_evidence_is_in_float32_in_half_precision(dtype):
    n = RFedDis.adapt(net().to(dtype)).eval()
    out = n(images().to(dtype)*50)
    assert out.aux['e'].dtype == out.logits.dtype == torch.float32 and n.head.psi_G.H.fc.weight.dtype == dtype
    assert all(v.isfinite().all() for v in [out.logits, *out.aux.values()])

def test_bf16(suite):
    f = run(RFedDis, suite, net(), precision='bf16')
    assert all(v.isfinite().all() for v in f.server.values())

def test_grad_cam_asks_the_fused_answer():
    n = RFedDis.adapt(net()).eval()
    assert gradcam(n, images(3), labels(3)).shape == (3, 32, 32)

@pytest.mark.parametrize('fuse', ['ds', 'average', 'cumulative', 'conflict'])
def test_every_fuser_trains(suite, fuse):
    f = run(RFedDis(fuse=fuse), suite, net(), local_steps=1)
    assert all(v.isfinite().all() for v in f.server.values())

def test_a_step_without_cross_entropy(suite):
    f = run(RFedDis(ce=False), suite, net(), local_steps=1)
    assert all(r['terms']['task'] == 0 for r in f.history.rounds)

def test_parameters_are_those_of_two_heads():
    bare, two = net(), RFedDis.adapt(net())
    assert n_params(two)-n_params(bare) == 2*(128*128+128+2*128+128*7+7)-(128*7+7)

# ---- combinations

def test_equal_twins_are_one(suite, two_rounds): assert equal(two_rounds, run(RFedDis+FedBN, suite, net()))

SUMS = ['FedProx + RFedDis', 'RFedDis + DC', 'FedDDL + RFedDis', 'RFedDis + AdaBN', 'TwoHeads',
        'TwoHeads + Evidence', "RFedDis(preset='office')", 'FDSE + TwoHeads + Evidence + Disentangle']

@pytest.mark.parametrize('said', SUMS)
def test_these_run(suite, said):
    f = run(read_method(said), suite, net(), rounds=2, local_steps=1)
    assert all(v.isfinite().all() for v in f.server.values())

@pytest.mark.parametrize('said, word', [
    ('RFedDis + F2DC', 'DomainAware and EqualWeights both claim the hook `weights`'),
    ('Evidence', 'builds on TwoHeads'),
    ('Disentangle', 'builds on TwoHeads'),
    ('RFedDis + TwoHeads(hidden=4)', 'TwoHeads is there twice'),
    ('TwoHeads(fuse="sum")', "no fuse 'sum'"),
    ('TwoHeads(share="all")', "no share 'all'"),
    ('TwoHeads(hidden=0)', 'hidden is 0'),
    ('TwoHeads + Evidence(lam_u=-1)', 'lam_u is -1'),
    ('TwoHeads + Disentangle(lam_d=1e999)', 'lam_d is inf'),
    ('TwoHeads + Disentangle(reduction="sum")', "no reduction 'sum'"),
    ('RFedDis(lam=1)', "no hyper-parameter 'lam'")])
def test_refused(said, word):
    with pytest.raises(ValueError, match=word): read_method(said)

# ---- bad input

def odd(after=None, K=7):
    class Odd(Net):
        def forward(self, x):
            out = super().forward(x)
            return replace(out, **after(out)) if after else out
    with seeded(0):
        body = seq(conv=nn.Conv2d(3, 4, 3), bn=nn.BatchNorm2d(4))
        return Odd(body, gap(), nn.Linear(4, K))

def test_one_class_is_refused():
    with pytest.raises(ValueError, match='leaves nothing to doubt'): RFedDis.adapt(odd(K=1))

@pytest.mark.parametrize('after', [lambda o: dict(logits=o.logits/2), lambda o: dict(aux={})])
def test_a_net_that_goes_on_after_its_head_is_refused(after):
    with pytest.raises(ValueError, match='Odd does something after its head'): RFedDis.adapt(odd(after))

def test_a_head_of_several_layers_goes():
    n = odd()
    n.head = nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 7))
    assert set(dict(RFedDis.adapt(n).head.named_children())) == {'psi_G', 'psi_L'}

@pytest.mark.parametrize('head, term', [('psi_L', 'evidence_L'), ('psi_G', 'evidence_G')])
def test_nan_names_the_head(suite, head, term):
    "In its first step; one step later the encoder has it, and with it both heads."
    f = fed(RFedDis, suite, stack=False, local_steps=1)
    f.server[f'head.{head}.out.bias'].fill_(float('nan'))
    with pytest.raises(FloatingPointError, match=f"RFedDis: '{term}' is not finite at client 0"): f.fit()

def test_a_client_of_one_image_is_left_out(suite):
    a, b, c = suite.clients[:3]
    lonely = replace(suite, clients=[a, replace(b, train=b.train[:1]), c])
    says = 'client 1 has one image, and a BatchNorm cannot train on one vector'
    with pytest.warns(UserWarning, match=says): f = fed(RFedDis, lonely)
    f.fit()
    assert [c.id for c in f.clients] == [0, 2] and not fed(FedBN, lonely).clients == f.clients

# ---- controls

SUMMED = {'features': 'Summed + Disentangle + FedBN', 'logits': "Summed(fuse='logits') + FedBN"}

@pytest.mark.parametrize('what', SUMMED)
def test_a_head_that_says_nothing_adds_nothing(what, suite):
    "With ψ_L muted, Summed is the net with ψ_G alone."
    f = fed(read_method(SUMMED[what]), suite)
    live, head = f.worker.net.eval(), f.worker.net.head
    x = torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    mute = [head.psi_L.H.fc] + ([head.psi_L.out] if what == 'logits' else [])
    with torch.no_grad():
        for layer in mute:
            for p in (layer.weight, layer.bias): p.zero_()
        out = live(x)
        assert torch.allclose(out.logits, head.psi_G.out(head.psi_G.H(out.feat)), atol=1e-6)

def test_what_each_control_keeps(suite):
    "FedBN of equal parameters shares both heads; the others keep ψ_L, or the whole head."
    def stays(text, place):
        f = fed(read_method(text), suite)
        names = [n for n in f.net.state_dict() if n.startswith(place) and not is_batchnorm(f.net)(n)]
        rules = [r for m in f.method.mechanisms for r in m.rules(f.net)]
        return {any(r.claims(n) for r in rules) for n in names}
    assert stays("Summed(fuse='logits', share='all') + FedBN", 'head') == {False}
    assert stays(SUMMED['logits'], 'head.psi_L') == stays('KeepHead + FedBN', 'head') == {True}
    assert stays(SUMMED['features'], 'head.psi_G') == {False}

def test_equal_parameters(suite):
    two = "Summed(fuse='logits', share='all') + FedBN"
    assert n_params(fed(read_method(two), suite).net) == n_params(fed(RFedDis, suite).net)

def test_summed_is_refused_beside_two_heads():
    with pytest.raises(ValueError, match='Summed and TwoHeads both claim'): read_method('RFedDis + Summed')
    with pytest.raises(ValueError, match='fuse'): Summed(fuse='ds')
    with pytest.raises(ValueError, match='share'): Summed(share='nothing')

def test_probes_know_what_is_there(suite):
    "A probe is at chance on noise; methods without two heads are not asked."
    noise, d = torch.randn(600, 6, generator=torch.Generator().manual_seed(0)), torch.arange(600) % 5
    assert linear_probe(noise, d) < 35 and linear_probe(torch.eye(5)[d], d) == 100
    assert head_probes(fed(FedBN, suite)) == {}
    assert set(head_probes(fed(RFedDis, suite), 10)) == {'domain_G', 'domain_L'}

def test_fewer_images_are_a_part_of_more():
    some, whole = fewer(30, 'tiny')(3), load_suite('skew-digits', 'tiny', 3)
    for a, b in zip(some.clients, whole.clients):
        assert len(a.train) == 30 and a.train.x.equal(b.train.x[:30]) and a.test.x.equal(b.test.x)
