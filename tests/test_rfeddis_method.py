"TwoHeads, Evidence, Disentangle and RFedDis inside the engine, beside plain PyTorch."
from functools import partial
import copy
from dataclasses import replace
import pytest, torch
import plain_rfeddis as plain
from feds import DEVICE, equal, fed_of, images, in_two_parts, labels, run, same
from torch import nn
from fedskew_nb.app.bench import noise_suite
from fedskew_nb.app.recipes import read_method
from fedskew_nb.analysis.explain import gradcam
from fedskew_nb.analysis.probes import linear_probe
from fedskew_nb.core.method import Method
from fedskew_nb.core.models import gap, n_params, seq, small_conv
from fedskew_nb.core.net import Net, is_batchnorm, under
from fedskew_nb.core.seeding import seeded
from fedskew_nb.engine.federation import Federation
from fedskew_nb.methods.baselines.personal import FedBN, KeepBatchNorm
from fedskew_nb.data.load import load_suite
from fedskew_nb.methods.rfeddis.controls import Fewer, Summed, head_probes
from fedskew_nb.methods.rfeddis.disentangle import disentangling_loss
from fedskew_nb.methods.rfeddis.evidence import vacuity
from fedskew_nb.methods.rfeddis.method import Disentangle, EqualWeights, Evidence, RFedDis, TwoHeads

def net(dtype=torch.float32): return small_conv(7, size=32, width=4, seed=0).to(dtype)
def fed(method, suite, dtype=torch.float32, **kw): return fed_of(method, suite, net(dtype), **kw)
def at(f, k, round, n=8):
    "Client `k` in a round, a batch of its first images, and the live net."
    c = f.worker.context(f.clients[k], f.state_of(f.clients[k].id), {}, {}, {}, round)
    b = f.worker.ready_batch(f.worker.raw_batch(c, torch.arange(n)))
    return c, b, f.worker.net.train()
def part(params, place): return {n[len(place)+1:]: p for n, p in params.items() if n.startswith(place+'.')}

# ---- against plain PyTorch

KINDS = [(RFedDis, {}), (RFedDis('released'), dict(over_features=True)), (RFedDis(one_way=True), dict(one_way=True))]

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
    assert terms.keys() == want.keys() and all(torch.allclose(terms[k], want[k], rtol=0, atol=1e-9) for k in want)
    mine = torch.autograd.grad(sum(terms.values()), params)
    assert max(float((p-q).abs().max()) for p, q in zip(mine, grads)) < 1e-9

def test_a_round_is_the_release_s(suite):
    "One step of plain SGD in each client, in the last of two rounds, and the release's server."
    f = fed(RFedDis, suite, torch.float64, local_steps=1, momentum=0., weight_decay=0., lr=.1, batch_size=999)
    f.one_round()
    sent = []
    for k, c in enumerate(f.clients):
        _, b, live = at(f, k, 1, len(c.train))
        params = dict(live.named_parameters())
        grads = torch.autograd.grad(sum(by_hand(live, b, .5, {}).values()), list(params.values()))
        live(b['x'])                                      # running statistics of one batch, from the received ones
        live.load_state_dict(f.state_of(c.id) | {n: v for n, v in live.state_dict().items() if 'running' not in n})
        live.train()(b['x'])
        sent.append({n: v.clone() for n, v in live.state_dict().items()} | {n: (p-.1*g).detach() for (n, p), g in zip(params.items(), grads)})
    want = plain.server(sent, {n for n in sent[0] if '.bn.' in n})
    f.one_round()
    for c, w in zip(f.clients, want):
        have = f.state_of(c.id)
        assert max(float((have[n]-w[n]).abs().max()) for n in w if w[n].is_floating_point()) < 1e-9

def test_fused_evidence_is_dempster_s(suite):
    out = RFedDis.adapt(net(torch.float64)).eval()(images(dtype=torch.float64))
    b, u = plain.combine(plain.masses(out.aux['z_G']), plain.masses(out.aux['z_L']))
    assert torch.allclose(out.aux['u'], u, atol=1e-12) and torch.allclose(out.aux['e'], b*7/u[:, None], atol=1e-10)
    assert torch.allclose(out.logits.softmax(1), b+u[:, None]/7, atol=1e-12)

# ---- limits

def test_no_disentangling_in_the_first_round(suite):
    bare = Method('bare', TwoHeads(), Evidence(), KeepBatchNorm(), EqualWeights())
    assert equal(run(RFedDis, suite, net(), rounds=1), run(bare, suite, net(), rounds=1))
    f = run(RFedDis, suite, net(), rounds=2)
    assert ['likeness' in r['terms'] for r in f.history.rounds] == [False, True]

def test_lambda_counts_declared_rounds(suite):
    def weight(T):
        c, b, _ = at(fed(RFedDis, suite, rounds=T), 0, 1)
        out = RFedDis.run_forward(c, b)
        return float((Disentangle().loss(c, b, out)['likeness']/disentangling_loss(out.aux['F_L'], out.aux['F_G'])).detach())
    assert [round(weight(T), 6) for T in (2, 4, 10)] == [.5, .25, .1]

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
    state['head.psi_L.out.weight'].zero_(), state['head.psi_L.out.bias'].fill_(-200.)
    return state

def test_a_muted_local_head_leaves_the_answer_of_the_global_one():
    n = RFedDis.adapt(net())
    n.load_state_dict(muted(n.state_dict()))
    out = n.eval()(images())
    assert torch.equal(out.aux['e'], out.aux['e_G']) and torch.equal(out.aux['u'], vacuity(out.aux['e_G']))

def test_a_muted_local_head_leaves_fedbn(suite):
    "One step in every client, bit for bit: encoder, global head, BatchNorms. In a second step ψ_L has moved."
    two = Method('two', TwoHeads(), KeepBatchNorm(), EqualWeights())
    a = fed(two, suite, local_steps=1, stack=False)
    a.server = muted(a.server)
    plain_net = net()
    plain_net.head = copy.deepcopy(a.net.head.psi_G).cpu()
    plain_net.load_state_dict({n.replace('head.psi_G.', 'head.'): v.cpu() for n, v in a.server.items() if 'psi_L' not in n})
    b = fed_of(FedBN, suite, plain_net, local_steps=1, uniform=True, stack=False)
    a.one_round(), b.one_round()
    for c in a.clients:
        mine = {n.replace('head.psi_G.', 'head.'): v for n, v in a.state_of(c.id).items() if 'psi_L' not in n}
        assert same(mine, b.state_of(c.id))

def test_one_client_keeps_what_it_trained(suite):
    f = fed(RFedDis, replace(suite, clients=suite.clients[2:3]))
    sent = f.train_client(f.clients[0]).upload.state
    f.one_round()
    assert same(sent, f.state_of(f.clients[0].id))

# ---- who keeps what

def parts_of(n):
    bn = is_batchnorm(n)
    names = [k for k, v in n.state_dict().items() if v.is_floating_point()]
    return {p: [k for k in names if under(*p.split())(k) and not bn(k)] for p in ('body neck pool', 'head.psi_G', 'head.psi_L')}, list(filter(bn, names))

@pytest.mark.parametrize('share, heads_agree', [('head', True), ('encoder', False)])
def test_what_clients_share_after_a_round(suite, share, heads_agree):
    f = run(RFedDis(share=share), suite, net())
    (encoder, psi_G, psi_L), bn = parts_of(f.net)[0].values(), parts_of(f.net)[1]
    one, two = (f.state_of(k) for k in (0, 3))
    agree = lambda names: [torch.equal(one[n], two[n]) for n in names]
    assert encoder and all(agree(encoder)) and psi_G and psi_L and not any(agree(psi_L)) and bn and not any(agree(bn))
    assert all(agree(psi_G)) if heads_agree else not any(agree(psi_G))
    assert any('psi_G' in n for n in f.net.state_dict().keys()-f.kept) == heads_agree

def test_bytes_are_those_of_what_is_shared(suite):
    f = run(RFedDis, suite, net())
    shared = sum(f.server[n].numel() for n in f.server.keys()-f.kept)
    assert f.history.rounds[0]['up'] == 4*4*shared and not any('psi_L' in n for n in f.server.keys()-f.kept)

def test_every_client_counts_the_same(suite):
    f = fed(RFedDis, suite)
    ups = [f.train_client(c).upload for c in f.clients]
    f.merge(ups)
    for n in f.server.keys()-f.kept:
        if f.server[n].is_floating_point(): assert torch.allclose(f.server[n], sum(u.state[n] for u in ups)/4, atol=1e-6), n

def test_averaged_batchnorms(suite):
    f = run(Method('m', TwoHeads(), Evidence(), Disentangle(), EqualWeights()), suite, net())
    assert {n for n in f.kept if 'psi_L' not in n} == set()

def test_heads_start_differently_and_alike_everywhere():
    a, b = RFedDis.adapt(net(), 3), RFedDis.adapt(net(), 3)
    assert same(a.state_dict(), b.state_dict()) and not torch.equal(a.head.psi_G.H.fc.weight, a.head.psi_L.H.fc.weight)
    assert a.head.psi_G.H.fc.weight.shape == a.head.psi_L.H.fc.weight.shape == (128, 128)

# ---- presets

def test_presets_differ_where_they_say():
    said = lambda m: {k: getattr(mech, f) for k, (mech, f) in m.hyper().items() if '__' not in k}
    paper, released, office = said(RFedDis), said(RFedDis('released')), said(RFedDis('office'))
    changes = lambda a: {k: (paper[k], a[k]) for k in paper if paper[k] != a[k]}
    assert changes(released) == dict(reduction=('batchmean', 'mean'))
    assert changes(office) == dict(reduction=('batchmean', 'mean'), share=('head', 'encoder'))

def test_the_released_loss_is_torch_s_mean():
    "As the release writes it: kl_div with reduction='mean', both ways, one exponential."
    F_L, F_G = images(5, 4).flatten(1), images(5, 4, seed=1).flatten(1)
    p, q = F_L.log_softmax(1), F_G.log_softmax(1)
    kl = lambda a, b: (b.exp()*(b-a)).mean()              # torch.nn.functional.kl_div(a, b.exp(), reduction='mean')
    assert torch.allclose(disentangling_loss(F_L, F_G, 'mean'), torch.exp(-kl(p, q)-kl(q, p)), atol=1e-6)

def test_likeness_is_one_only_for_the_same():
    f = images(5, 4, dtype=torch.float64).flatten(1)
    assert disentangling_loss(f, f+3) == pytest.approx(1) and 0 < float(disentangling_loss(f, 2*f)) < 1
    g = f.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda g: disentangling_loss(g, f*.5), g)

# ---- the engine

def test_a_resumed_run_is_the_same(suite, tmp_path):
    whole = run(RFedDis, suite, net(), rounds=3)
    rest = in_two_parts(partial(fed, RFedDis, suite), tmp_path/'c')
    assert equal(whole, rest) and whole.history == rest.history

def test_lanes_change_no_bit(suite): assert equal(run(RFedDis, suite, net(), lanes=1), run(RFedDis, suite, net(), lanes=3))

def test_paths_and_uncertainty(suite):
    f = run(RFedDis, suite, net())
    said = f.answers(suite.clients[1].test.x, client=1, aux=('u', 'e_G'))
    assert said.keys() == {'', 'global head', 'local head', 'u', 'e_G'} and said['u'].shape == (12,)
    alpha = said['e_G']+1
    assert torch.allclose(said['global head'], alpha/alpha.sum(1, keepdim=True), atol=1e-6)
    assert all(torch.allclose(said[p].sum(1), torch.ones_like(said['u']), atol=1e-5) for p in ('', 'global head', 'local head'))
    assert bool(((0 < said['u']) & (said['u'] <= 1)).all()) and {r['path'] for r in f.history.rows} == {'', 'global head', 'local head'}

def gap_between(a, b): return max(float((a.state_of(k)[n]-v).abs().max()) for k in (0, 7, 19) for n, v in b.state_of(k).items() if v.is_floating_point())

@pytest.mark.parametrize('dtype, steps, near', [(torch.float32, 1, 1e-5), (torch.float64, 8, 1e-9)])
def test_stacked_is_one_by_one(dtype, steps, near):
    """Two rounds with all losses: two steps in float32, two epochs in float64. In float32 more steps differ by more,
    for a rounding error decides at a ReLU or a max-pool; with softplus and mean-pooling they do not."""
    s, how = noise_suite(20, 64), dict(device=DEVICE, rounds=2, local_steps=steps, batch_size=8, lr=.05, eval_every=9)
    a, b = (Federation(RFedDis, small_conv(10, width=4, seed=0).to(dtype), s, stack=k, **how) for k in (None, False))
    assert a.why_lanes == '' and b.why_lanes
    for f in (a, b, a, b): f.one_round()
    assert gap_between(a, b) < near and 'likeness' in a.history.rounds[1]['terms']

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

def test_equal_twins_are_one(suite): assert equal(run(RFedDis, suite, net()), run(RFedDis+FedBN, suite, net()))

@pytest.mark.parametrize('said', ['FedProx + RFedDis', 'RFedDis + DC', 'FedDDL + RFedDis', 'RFedDis + AdaBN', "RFedDis(preset='office')",
    'TwoHeads', 'TwoHeads + Evidence', 'FDSE + TwoHeads + Evidence + Disentangle'])
def test_these_run(suite, said):
    f = run(read_method(said), suite, net(), rounds=2, local_steps=1)
    assert all(v.isfinite().all() for v in f.server.values())

@pytest.mark.parametrize('said, word', [
    ('RFedDis + F2DC', 'DomainAware and EqualWeights both claim the hook `weights`'), ('Evidence', 'builds on TwoHeads'), ('Disentangle', 'builds on TwoHeads'),
    ('RFedDis + TwoHeads(hidden=4)', 'TwoHeads is there twice'), ('TwoHeads(fuse="sum")', "no fuse 'sum'"), ('TwoHeads(share="all")', "no share 'all'"),
    ('TwoHeads(hidden=0)', 'hidden is 0'), ('TwoHeads + Evidence(lam_u=-1)', 'lam_u is -1'), ('TwoHeads + Disentangle(lam_d=1e999)', 'lam_d is inf'),
    ('TwoHeads + Disentangle(reduction="sum")', "no reduction 'sum'"), ('RFedDis(lam=1)', "no hyper-parameter 'lam'")])
def test_refused(said, word):
    with pytest.raises(ValueError, match=word): read_method(said)

# ---- bad input

def odd(after=None, K=7):
    class Odd(Net):
        def forward(self, x):
            out = super().forward(x)
            return replace(out, **after(out)) if after else out
    with seeded(0): return Odd(seq(conv=nn.Conv2d(3, 4, 3), bn=nn.BatchNorm2d(4)), gap(), nn.Linear(4, K))

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
    lonely = replace(suite, clients=[suite.clients[0], replace(suite.clients[1], train=suite.clients[1].train[:1]), suite.clients[2]])
    with pytest.warns(UserWarning, match='client 1 has one image, and a BatchNorm cannot train on one vector'): f = fed(RFedDis, lonely)
    f.fit()
    assert [c.id for c in f.clients] == [0, 2] and not fed(FedBN, lonely).clients == f.clients

# ---- controls

SUMMED = {'features': 'Summed + Disentangle + FedBN', 'logits': "Summed(fuse='logits') + FedBN"}

@pytest.mark.parametrize('what', SUMMED)
def test_a_head_that_says_nothing_adds_nothing(what, suite):
    "With ψ_L muted, Summed is the net with ψ_G alone."
    f = fed(read_method(SUMMED[what]), suite)
    live, x = f.worker.net.eval(), torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    with torch.no_grad():
        live.head.psi_L.H.fc.weight.zero_()
        live.head.psi_L.H.fc.bias.zero_()
        if what == 'logits': live.head.psi_L.out.weight.zero_(), live.head.psi_L.out.bias.zero_()
        feat = live(x).feat
        assert torch.allclose(live(x).logits, live.head.psi_G.out(live.head.psi_G.H(feat)), atol=1e-6)

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
    few, whole = Fewer(30, 'tiny')(3), load_suite('skew-digits', 'tiny', 3)
    for a, b in zip(few.clients, whole.clients):
        assert len(a.train) == 30 and a.train.x.equal(b.train.x[:30]) and a.test.x.equal(b.test.x)
