"DP-SGD at a client: the step against a plain loop and against Opacus, who is refused, and the ledger."
import json, math
from dataclasses import replace
import pytest, torch
import torch.nn.functional as F
from feds import fed_of, first, halved
from test_deploy import cache, draw          # noqa: F401
from fedskew_nb.core.seeding import generator
from fedskew_nb.data.folder import load_folder
from fedskew_nb.data.load import load_suite
from fedskew_nb.deploy.rehearse import rehearsal
from fedskew_nb.deploy.hub import tell_round
from fedskew_nb.deploy.node import Node
from fedskew_nb.deploy.order import Job, order_of
from fedskew_nb.engine.checkpoint import to_bytes
from fedskew_nb.engine.history import Task
from fedskew_nb.engine.private import (
    Chance, Ledger, Plan, Private, clipped_sum, epsilon_of, plan_of, privacy, sigma_for)
from fedskew_nb.nets.models import small_conv
from fedskew_nb.nets.pretrained import group_norms
from fedskew_nb.run.recipes import METHODS

@pytest.fixture(scope='module')
def suite(): return first(halved(load_suite('emoji-pacs', size='tiny')), 3)

def net(dtype=torch.float32): return group_norms(small_conv(7, size=16, width=4, seed=0)).to(dtype)

class Known(Chance):
    "Bytes that a test knows."
    def __init__(self, seed):
        g = generator('bytes', seed)
        self.read = lambda n: bytes(torch.randint(256, (n,), generator=g, dtype=torch.uint8).tolist())

def private(name, suite, model=None, sigma=1., **how):
    how = dict(epsilon=8., clip=.5, lr=.1, batch_size=8) | how
    fed = fed_of(METHODS[name], suite, model or net(), **how)
    fed.worker.sigma = sigma
    return fed

def by_hand(model, d, scale, seed, s, sigma, prox=0.):
    "The same training, one image after another, in float64: the parameters after two steps."
    chance, who = Known(seed), {}
    for k, w in enumerate(range(len(d)) if d.who is None else d.who.tolist()): who.setdefault(w, []).append(k)
    names = sorted(who)
    params, (mean, std) = list(model.parameters()), scale
    begun, bufs = [p.detach().clone() for p in params], [torch.zeros_like(p) for p in params]
    q = min(1, s.batch_size/len(names))
    for _ in range(2):
        drawn = (chance.uniform(len(names)) < q).tolist()
        total = [torch.zeros_like(p) for p in params]
        for w in (w for w, there in zip(names, drawn) if there):
            own = [torch.zeros_like(p) for p in params]
            for k in who[w]:
                x = (d.x[k:k+1].double()/255-mean)/std
                loss = F.cross_entropy(model(x).logits, d.y[k:k+1])
                loss = loss+prox/2*sum((p-b).square().sum() for p, b in zip(params, begun))
                for o, g in zip(own, torch.autograd.grad(loss, params)): o += g/len(who[w])
            length = math.sqrt(sum(float(o.square().sum()) for o in own))
            for t, o in zip(total, own): t += o*min(1, s.clip/length)
        noise = chance.normal(sum(p.numel() for p in params)).split([p.numel() for p in params])
        with torch.no_grad():
            for p, t, z, m in zip(params, total, noise, bufs):
                g = (t+sigma*s.clip*z.view_as(t))/(q*len(names))+s.weight_decay*p
                m.mul_(s.momentum).add_(g)
                p -= s.lr*m
    return [p.detach() for p in params]

def named(suite):
    "Two images of each patient."
    return replace(suite, clients=[replace(c, train=replace(c.train, who=torch.arange(len(c.train))//2+7))
                                   for c in suite.clients])

@pytest.mark.parametrize('name, who', [('FedAvg', False), ('FedAvg', True), ('FedProx', True)])
def test_two_steps_are_those_of_a_plain_loop_in_float64(suite, name, who):
    suite = named(suite) if who else suite
    fed = private(name, suite, net(torch.float64), epsilon=3.)
    fed.worker.chance = Known(5)
    c = fed.clients[0]
    prox = fed.method.mechanisms[0].mu if name == 'FedProx' else 0.
    scale = [torch.tensor(v).double().view(1, 3, 1, 1) for v in (suite.mean, suite.std)]
    want = by_hand(net(torch.float64), c.train, scale, 5, fed.setting, 1., prox)
    got = fed.worker.train(Task(c, fed.state_of(c.id))).upload.state
    for (n, _), w in zip(fed.net.named_parameters(), want): assert torch.allclose(got[n], w, atol=1e-12), n

def test_no_person_adds_more_than_c():
    "Two images of one patient move the sum by C at most, two of two patients by more."
    g = generator('grads')
    grads = 50*torch.randn(6, 40, generator=g).double()
    for who in ([0, 0, 1, 1, 2, 2], [3]*6, [0, 1, 2, 3, 4, 5]):
        who = torch.tensor(who)
        whole = clipped_sum(grads, who, .7)
        for p in who.unique():
            moved = float((whole-clipped_sum(grads[who != p], who[who != p], .7)).norm())
            assert moved <= .7*(1+1e-12) and moved > .69
    assert float((clipped_sum(grads[:2], torch.tensor([0, 1]), .7)).norm()) > .71
    small = grads/1e4
    assert torch.allclose(clipped_sum(small, torch.arange(6), .7), small.sum(0))

def test_an_empty_batch_is_noise_alone_and_all_of_one_is_everybody(suite):
    fed = private('FedAvg', suite, sigma=2.)
    fed.worker.chance = Known(1)
    fed.worker.chance.uniform = lambda n: torch.ones(n)*.999
    fed.one_round()
    assert all(v.isfinite().all() for v in fed.server.values())
    assert plan_of(replace(fed.setting, batch_size=10**4), fed.clients[0].train, 1.).q == 1

def test_the_draws_of_a_run_are_no_ones_to_repeat(suite, monkeypatch):
    "All from `os.urandom`: the same seed gives other bits."
    a, b = (private('FedAvg', suite) for _ in range(2))
    for fed in (a, b): fed.one_round()
    assert not torch.equal(a.server['head.bias'], b.server['head.bias'])
    z = Chance().normal(200_000)
    assert abs(float(z.mean())) < .012 and abs(float(z.var())-1) < .02
    u = Chance().uniform(100_000)
    assert 0 < float(u.min()) and float(u.max()) < 1 and abs(float((u < .3).double().mean())-.3) < .01
    edge = Chance()
    for byte in (0, 255):
        edge.read = lambda n: bytes([byte])*n
        assert 0 < float(edge.uniform(1)) < 1 and edge.normal(2).isfinite().all()

ALSO = ['PartialFed', 'FedHEAL']      # they differ from FedAvg in what is loaded, or at the server
RUN = 'FedAvg FedProx FedAvgM FedAdam FedYogi Ditto FedRep FedPer LG-FedAvg Local'.split()

@pytest.mark.parametrize('name', RUN+ALSO)
def test_those_whose_loss_is_a_mean_run(suite, name):
    fed = private(name, suite, rounds=1, local_steps=2)
    hist = fed.fit(progress=False)
    assert hist.rounds[0]['terms'] == {} and hist.rounds[0]['loss'] == 0
    assert {r['moment'] for r in hist.rows} == {'post_agg', 'post_local'}

@pytest.mark.parametrize('name', [n for n in METHODS if n not in RUN+ALSO])
def test_each_other_is_refused_by_name(suite, name):
    "In the rounds in which a site asks what would leave it; some want a BatchNorm, or bring one."
    says = f'{name} cannot run with epsilon|a BatchNorm|no BatchNorm|GroupNorm'
    with pytest.raises(ValueError, match=says):
        fed = private(name, suite, rounds=3, local_steps=2)
        for _ in range(3): fed.one_round()

def test_odd_settings_are_refused(suite):
    odd = {'say clip=1': dict(clip=None), 'does not cover pad': dict(flip=True), 'patience': dict(patience=2),
           'epsilon is 0': dict(epsilon=0.), 'noise is drawn client by client': dict(stack=True)}
    for says, how in odd.items():
        with pytest.raises(ValueError, match=says): private('FedAvg', suite, **how)
    with pytest.raises(ValueError, match='norm, a BatchNorm|bn, a BatchNorm'):
        private('FedAvg', suite, small_conv(7, size=16, width=4))

LENGTHS = dict(local_steps=3), dict(local_epochs=2, local_steps=None), dict(batch_size=1000)

@pytest.mark.parametrize('how', LENGTHS)
def test_so_many_steps_are_trained_as_are_paid(suite, how, monkeypatch):
    fed, steps = private('FedAvg', suite, **how), []
    step = Private.step
    def counted(self, c, *args):
        steps.append(c.id)
        return step(self, c, *args)
    monkeypatch.setattr(Private, 'step', counted)
    fed.one_round()
    for c in fed.clients: assert steps.count(c.id) == plan_of(fed.setting, c.train, 1.).steps

def test_the_model_is_all_that_leaves(suite):
    "No loss, and of a frozen body nothing at all."
    model = net()
    model.body.requires_grad_(False)
    fed = private('FedAvg', suite, model)
    answer, mine = fed.work(fed.order(0))
    assert answer['terms'] == {} and answer['extra'] == {}
    assert set(answer['model']) == {n for n in fed.server if not n.startswith('body')}

def test_a_ledger_is_never_shorter(tmp_path):
    "Two studies and a restart are three lines; a torn one is refused."
    plan = Plan(people=200, q=.05, steps=40, sigma=1.2, delta=.1/200)
    Ledger(tmp_path/'privacy.jsonl', run='one').write(plan, 0)
    Ledger(tmp_path/'privacy.jsonl', run='one').write(plan, 0)      # killed, and asked again
    Ledger(tmp_path/'privacy.jsonl', run='two').write(plan, 0)
    assert Ledger(tmp_path/'privacy.jsonl').spent() == [(1.2, .05, 40)]*3
    (tmp_path/'privacy.jsonl').write_text((tmp_path/'privacy.jsonl').read_text()[:-9])
    with pytest.raises(ValueError, match='torn'): Ledger(tmp_path/'privacy.jsonl').spent()

# ---- against Opacus, its accountant and its step, where it is installed

@pytest.fixture
def opacus(): return pytest.importorskip('opacus')

def exact_epsilon(sigma, delta):
    "Of one step with all people, by bisection of the closed form (Balle and Wang 2018)."
    from scipy.stats import norm
    def delta_of(e): return norm.cdf(.5/sigma-e*sigma)-math.exp(e)*norm.cdf(-.5/sigma-e*sigma)
    low, high = 0., 50.
    for _ in range(60):
        mid = (low+high)/2
        low, high = (mid, high) if delta_of(mid) > delta else (low, mid)
    return high

def test_the_accountant_gives_published_numbers(opacus):
    "Abadi et al. 2016: ε 1.26 by their moments; a bound of the closed form, and not far above."
    assert .9 < epsilon_of([(4., .01, 10_000)], 1e-5) <= 1.26
    for sigma in (1., 3.):
        assert 1 <= epsilon_of([(sigma, 1., 1)], 1e-5)/exact_epsilon(sigma, 1e-5) < 1.2
    both = epsilon_of([(2., .1, 50), (3., .2, 10)], 1e-3)
    assert both > max(epsilon_of([(2., .1, 50)], 1e-3), epsilon_of([(3., .2, 10)], 1e-3)) > 0
    assert epsilon_of([(2., .1, 25)]*2, 1e-3) == pytest.approx(epsilon_of([(2., .1, 50)], 1e-3))

@pytest.mark.parametrize('epsilon', [.5, 3., 8.])
def test_the_noise_is_the_least_that_is_enough(opacus, epsilon):
    sigma = sigma_for(epsilon, 1e-3, .16, 640)
    assert epsilon_of([(sigma, .16, 640)], 1e-3) <= epsilon < epsilon_of([(.97*sigma, .16, 640)], 1e-3)

def test_a_run_costs_what_was_asked_for(opacus, suite):
    fed = private('FedAvg', suite, sigma=None, epsilon=3.)
    assert (privacy(fed).epsilon == 0).all()
    fed.fit(progress=False)
    spent = privacy(fed)
    assert ((2.9 < spent.epsilon) & (spent.epsilon <= 3)).all()
    assert list(spent.people) == [len(c.train) for c in fed.clients]
    assert (spent.delta <= .1/spent.people).all()

def test_the_gradients_are_those_of_opacus(opacus, suite):
    "Clipped and summed, in float64. In plain memory order: Opacus 1.6 errs on convolutions of channels last."
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer
    fed = private('FedAvg', suite, net(torch.float64))
    w, c = fed.worker, fed.clients[0]
    ctx = w.context(Task(c, fed.state_of(c.id)))
    w.net.train()
    b = w.ready_batch(dict(x=c.train.x[:6], y=c.train.y[:6]))
    ours = clipped_sum(w.gradients(ctx, b), torch.arange(6), .05)
    theirs = GradSampleModule(net(torch.float64))
    opt = DPOptimizer(torch.optim.SGD(theirs.parameters(), lr=1.), noise_multiplier=0., max_grad_norm=.05,
                      expected_batch_size=1)
    F.cross_entropy(theirs(b['x'].contiguous()).logits, b['y'], reduction='mean').backward()
    before = torch.cat([p.detach().clone().flatten() for p in theirs.parameters()])
    opt.step()
    moved = before-torch.cat([p.detach().flatten() for p in theirs.parameters()])
    assert torch.allclose(moved, ours, atol=1e-6)       # Opacus divides by the norm plus 1e-6

# ---- sites

@pytest.fixture
def place(tmp_path_factory, monkeypatch):
    "Two sites, of which one names its patients, and a small net without BatchNorm."
    model = group_norms(small_conv(2, size=16, width=4, seed=0))
    monkeypatch.setattr('fedskew_nb.deploy.order.read_model', lambda *said: model)
    home = tmp_path_factory.mktemp('sites')
    for site, domain in zip('ab', ('dawn', 'dusk')): draw(home/site, domain)
    lines = [f'dawn/{c}/{i}.png,{c}{i//2}' for c in ('bright', 'dark') for i in range(8)]
    (home/'a'/'patients.csv').write_text('\n'.join(['image,patient', *lines]))
    return home

def study(run='', **more):
    how = dict(rounds=2, local_steps=2, batch_size=4, lr=.1, epsilon=8., clip=1.)
    return Job('FedAvg', 'small_conv', 16, how | more, run)

def lines_at(home): return [json.loads(line) for line in (home/'privacy.jsonl').read_text().splitlines()]

def rounds_at(home): return [line['round'] for line in lines_at(home)]

def test_sites_write_down_what_they_spend_and_send_no_loss(place, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Private, 'sigma', 1.)
    hub = rehearsal(study(), [place/s for s in 'ab'], tmp_path)
    hub.fit(on_round=tell_round, progress=False)
    said = capsys.readouterr().err
    assert 'without noise: ε covers the model only' in said
    assert 'mean loss terms' not in said and 'loss 0' not in said
    assert [rounds_at(tmp_path/'sites'/s) for s in 'ab'] == [[0, 1]]*2
    assert all(r['terms'] == {} for r in hub.history.rounds)
    lines = lines_at(tmp_path/'sites'/'a')
    people = load_folder(place/'a', 16).clients[0].train
    assert len(people.who.unique()) < len(people) and lines[0]['q'] == 4/len(people.who.unique())

def test_epsilon_is_kept_over_two_studies_and_a_restart(opacus, place, tmp_path):
    "Of ε 10 a study takes 6, and more, for it was killed: too little is left for a second one."
    def node(): return Node(place/'a', tmp_path/'a', tell=None, epsilon=10.)
    def ask(what, kind, **more): return node()(to_bytes(order_of(what, kind, **more)))
    one = study('one', epsilon=6.)
    ask(one, 'facts')
    model = dict(node().federation(one, 0).server)
    ask(one, 'train', model=model)
    ask(one, 'train', model=model)                          # it was killed before the server had the answer
    ask(one, 'facts')                                       # what is left of the study is one round
    ask(one, 'train', model=model, round=1, merged=1)
    assert rounds_at(tmp_path/'a') == [0, 0, 1]
    with pytest.raises(ValueError, match='of ε 10 this site has spent .* 2 more rounds'):
        ask(study('two'), 'facts')
    with pytest.raises(ValueError, match='of ε 10 this site has spent .* 1 more rounds'):
        for _ in range(9): ask(study('two', epsilon=5.), 'train', model=model)
    assert epsilon_of(Ledger(tmp_path/'a'/'privacy.jsonl').spent(), .1/6) <= 10
    with pytest.raises(ValueError, match='trains with noise only'): ask(study('three', epsilon=None), 'facts')

def test_noise_and_a_secure_sum_go_together(suite):
    fed = private('FedAvg', suite, secure=True)
    fed.one_round()
    assert all(v.isfinite().all() for v in fed.server.values()) and fed.history.rounds[0]['terms'] == {}

@pytest.mark.campaign
def test_who_took_part_is_guessed_less_often(suite):
    "A smoke test, no measure: how often a trained image has the smaller loss of two."
    clients = [replace(c, train=c.train[:30], test=c.test) for c in suite.clients]
    few = replace(suite, clients=clients)
    def share(sigma):
        how = dict(rounds=40, local_steps=10, batch_size=10, lr=.1, eval_every=40)
        fed = fed_of(METHODS['Local'], few, net(), **how)
        if sigma: fed = private('Local', few, sigma=sigma, **how)
        fed.fit(progress=False)
        wins = []
        for c in few.clients:
            model = fed.model(client=c.id)
            def losses(d, model=model): return F.cross_entropy(model.see(d.x).logits, d.y, reduction='none')
            with torch.no_grad(): a, b = losses(c.train)[:, None], losses(c.test)[None]
            wins.append(float((a < b).double().mean()))
        return sum(wins)/len(wins)
    assert share(0.) > .65 > share(3.)
