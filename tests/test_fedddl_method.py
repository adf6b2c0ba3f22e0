"DEC, DEB and FedDDL inside the engine, beside plain PyTorch."
from functools import partial
from dataclasses import replace
import pytest, torch
import plain_fedddl as plain
from PIL import Image
from feds import DEVICE, equal, far, fed_of, in_two_parts, instead, run, same
from fedskew_nb.tools.cli import main
from fedskew_nb.run.recipes import read_method
from fedskew_nb.core.context import ServerContext, Upload
from fedskew_nb.core.method import Contradiction, Method
from fedskew_nb.nets.models import small_conv
from fedskew_nb.data.boxes import Box, write_boxes
from fedskew_nb.data.images import Data
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.history import Task
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.fedddl.method import DEB, DEC, LADDER, FedDDL, object_boxes
from fedskew_nb.methods.fedddl.probes import Doubled, client_agreement, ddl_measures
from fedskew_nb.methods.fedddl.counterfactual import object_crops

@pytest.fixture(scope='module')
def suite():
    whole = load_suite('context-vehicles', 'tiny')
    clients = [replace(c, train=c.train[:36], val=c.val[:8], test=c.test[:16]) for c in whole.clients[:3]]
    few = lambda ds: {d: t[:18] for d, t in ds.items()}
    return replace(whole, clients=clients, tests=few(whole.tests), unseen=few(whole.unseen))

@pytest.fixture(scope='module')
def two(suite):
    clients = [replace(c, test=c.test[:4]) for c in suite.clients[:2]]
    return replace(suite, clients=clients, tests={d: t[:4] for d, t in suite.tests.items()}, unseen={})

def net(dtype=torch.float32): return small_conv(9, size=32, width=4, seed=0).to(dtype)
def fed(method, suite, **kw): return fed_of(method, suite, net(), **kw)

@pytest.fixture(scope='module')
def ours(suite):
    "FedDDL after two rounds, for tests that only read it."
    return run(FedDDL, suite, net())

# ---- against plain PyTorch

def test_a_step_is_the_paper_s(suite):
    "Losses and gradients in float64, second round, both views."
    f = fed_of(FedDDL, suite, net(torch.float64), lanes=1)
    f.one_round()
    c = f.worker.context(Task(f.clients[0], f.server, down=f.down, round=1))
    f.method.everyone('start', c)
    b = f.worker.ready_batch(f.worker.raw_batch(c, torch.arange(16)))
    live = f.worker.net.train()
    want = plain.total(lambda x: (lambda o: (o.logits, o.feat))(live(x)), b['x'], b['x_cf'], b['y'],
                       f.down['prototypes'].double(), 1., .07)
    grads = torch.autograd.grad(sum(want), list(live.parameters()))
    live.load_state_dict(f.server)
    terms = f.method.terms(c, b, f.method.run_forward(c, b))
    assert abs(float(terms['task']+terms['ce_cf']-want[0])) < 1e-9
    assert abs(float(terms['prototype']-want[1])) < 1e-9
    mine = torch.autograd.grad(sum(terms.values()), list(live.parameters()))
    assert max(float((a-b).abs().max()) for a, b in zip(mine, grads)) < 1e-9

def test_prototypes_are_the_paper_s(suite):
    "Means of the received model's features of the crops, and their mean over clients that have the class."
    clients = [replace(c, train=c.train[c.train.y != k]) for k, c in enumerate(suite.clients)]
    f, sent = fed(FedDDL, replace(suite, clients=clients)), []
    for c in f.clients:
        boxed = zip(c.train.x.cpu().double(), c.train.boxes.tolist())
        crops = [x[None, :, t:b, l:r] for x, (l, t, r, b) in boxed]
        crops = torch.cat([torch.nn.functional.interpolate(o, (32, 32), mode='bilinear') for o in crops])
        x = f.worker.images((crops+.5).floor().to(torch.uint8))
        sent.append(plain.local_prototypes(f.model()(x).feat.detach().cpu(), c.train.y.cpu(), 9))
    f.one_round()
    for c, u in plain.global_prototypes(sent, 9).items():
        assert torch.allclose(f.down['prototypes'][c].cpu(), u, atol=2e-3, rtol=2e-3)
    assert f.down['had'].all()

def test_a_counterfactual_is_the_paper_s(suite):
    "Box, places and backgrounds of our batch, pasted by hand: at most one grey level beside."
    f = fed(Method('DEC', DEC()), suite)
    c = f.worker.context(Task(f.clients[1], f.server))
    f.method.everyone('start', c)
    b = f.worker.raw_batch(c, torch.arange(12))
    pool = c.caches['DEC']['pool'][0].cpu()
    for x, box, made in zip(b['x'].cpu(), c.caches['DEC']['box'][:12].tolist(), b['x_cf'].cpu()):
        outside = (pool == made).all(1).flatten(1).sum(1)            # the background with most equal pixels
        bg = pool[int(outside.argmax())]
        at = (made != bg).any(0).nonzero()
        (T, L), (B, R) = at.min(0).values.tolist(), (at.max(0).values+1).tolist()
        best = min(_gap(made, x, box, bg, (l, t, l+w, t+h), flip) for flip in (0, 1)
                   for w in (14, 18, 23) for h in (14, 18, 23)
                   for l in range(max(0, R-w), min(L, 32-w)+1) for t in range(max(0, B-h), min(T, 32-h)+1))
        assert best <= 1

@pytest.fixture
def batches(monkeypatch):
    "What goes into the net, filled while a federation trains: of each round {client: [batch, …]}."
    rounds, ask = [], Method.run_forward
    def noted(self, c, b):
        rounds.extend({} for _ in range(c.round+1-len(rounds)))
        rounds[c.round].setdefault(c.id, []).append(b)
        return ask(self, c, b)
    monkeypatch.setattr(Method, 'run_forward', noted)
    return rounds

def test_the_released_preset_is_the_release(suite, batches):
    "Weights, statistics of BatchNorm and prototypes after each of four rounds, in float64."
    start = net(torch.float64).to(DEVICE)
    f = fed_of(FedDDL(preset='released'), suite, start, rounds=4, lanes=1)
    crops = {c.id: f.worker.images(object_crops(c.train.x, c.train.boxes)) for c in f.clients}
    labels, mine = {c.id: c.train.y for c in f.clients}, []
    for _ in range(4):
        f.one_round()
        mine.append(({n: v.clone() for n, v in f.server.items()}, f.down['prototypes']))
    def images(steps): return [(b['x'], b['y'], b.get('x_cf')) for b in steps]
    fed_in = [{k: images(steps) for k, steps in r.items()} for r in batches]
    s = f.setting
    theirs = plain.released(start, fed_in, crops, labels, 9, s.lr, s.momentum, s.weight_decay)
    for (state, U), (state_2, U_2) in zip(mine, theirs, strict=True):
        assert far({n: v for n, v in state.items() if v.is_floating_point()}, state_2) < 1e-12
        assert (U.to(DEVICE) - U_2).abs().max() < 1e-12

@pytest.mark.parametrize('typed, read', [
    ('FedDDL', '111'),
    ('FedDDL(preset="released")', '001'),
    ('DEC(ce=False) + DEB', '011'),
    ('DEC(ce=False) + DEB(local=False)', '011'),
    ('DEC(ce=False) + DEB(counter=False)', '000'),
    ('DEC(ce=False) + DEB(lam=0)', '000'),
    ('DEC(ce=False)', '111')])            # who may read it, nobody says
def test_counterfactuals_are_made_where_they_are_read(typed, read, suite, batches):
    run(read_method(typed), suite, net(), rounds=3, local_steps=1, eval_every=9, lanes=1)
    assert ''.join(str(int(all('x_cf' in b for b in r[0]))) for r in batches) == read

class BetterDEC(DEC): pass

def test_a_subclass_listens_to_deb_as_dec_does(suite):
    "While nobody reads counterfactuals, none are made, and BatchNorm sees the images alone."
    better, dec = (Method('m', m, DEB(first=2)) for m in (BetterDEC(ce=False), DEC(ce=False)))
    assert [type(m) for m in better.mechanisms] == [DEB, BetterDEC]
    assert equal(*(run(m, suite, net(), rounds=2) for m in (better, dec)))

def test_who_talks_through_the_batch_says_an_order(suite, monkeypatch):
    monkeypatch.setattr(DEC, 'after', ())
    f = fed(Method('m', BetterDEC(ce=False), DEB()), suite)
    says = "BetterDEC and DEB talk through the batch entry 'cf_read' .*: let BetterDEC say `after = .DEB,"
    with pytest.raises(Contradiction, match=says): f.fit()

def _gap(made, x, box, bg, to, flip):
    if flip: x, box = x.flip(2), (32-box[2], box[1], 32-box[0], box[3])
    return int((plain.composite(x, box, bg, to).int()-made.int()).abs().max())

def test_turning_is_all_that_rotate_adds(suite):
    "Backgrounds, places and mirrors of the first batch are drawn as before."
    def first(rotate):
        f = fed(Method('DEC', DEC(rotate=rotate)), suite)
        c = f.worker.context(Task(f.clients[0], f.server))
        f.method.everyone('start', c)
        return f.worker.raw_batch(c, torch.arange(12))['x_cf']
    assert torch.equal(first(0), first(1e-6)) and not torch.equal(first(0), first(15))

# ---- limits

def test_off_is_fedavg(suite):
    avg = run(FedAvg, suite, net(), stack=False)
    assert equal(avg, run(Method('off', DEB(lam=0.)), suite, net()))

def test_lambda_does_not_matter_in_the_first_round(suite):
    a, b, c = (fed(m, suite) for m in (FedDDL, FedDDL(lam=0.), FedDDL(DEB__lam=9.)))
    for f in (a, b, c): f.one_round()
    assert same(a.server, b.server) and same(a.server, c.server)
    for f in (a, b, c): f.one_round()
    assert not same(a.server, b.server) and not same(a.server, c.server)

def test_the_released_preset_pulls_from_the_third_round_and_learns_nothing_from_counterfactuals(suite):
    f = run(FedDDL(preset='released'), suite, net(), rounds=3)
    assert [sorted(r['terms']) for r in f.history.rounds] == [['task'], ['task'], ['prototype', 'task']]

def test_a_resumed_run_is_the_same(suite, tmp_path):
    "Blends are made again, the same."
    whole = run(FedDDL, suite, net(), rounds=3)
    rest = in_two_parts(partial(fed, FedDDL, suite), tmp_path/'c')
    assert equal(whole, rest) and whole.history == rest.history

def test_lanes_change_no_bit(suite):
    a, b = (run(FedDDL, suite, net(), lanes=n) for n in (1, 3))
    assert equal(a, b)

def test_prototypes_leave_the_model_as_it_is(suite):
    crops, off, on = (fed(m, suite) for m in (Method('x', DEC()), FedDDL(lam=0.), FedDDL))
    for f in (crops, off, on): f.one_round()
    assert same(on.server, crops.server)                # statistics of BatchNorm included
    for f in (crops, off): f.one_round()
    assert equal(crops, off)

# ---- clients that lack something

def test_a_class_that_nobody_has(suite):
    some = replace(suite, clients=[replace(c, train=c.train[c.train.y != 3]) for c in suite.clients])
    f = run(FedDDL, some, net())
    assert not f.down['had'][3] and f.down['had'].sum() == 8

def test_absent_clients_keep_the_prototypes_of_their_classes(suite):
    "Only client 0 has class 5; in a round without it the old prototype stays."
    srv = ServerContext({}, [0], {0: 1}, {0: 'a'}, 0, 9)
    def up(U, has):
        told = dict(prototypes=torch.tensor(U), has=torch.tensor(has))
        return Upload(0, 1, 'a', {}, told)
    deb = DEB()
    deb.extras(srv.window(deb), [up([[1., 1.], [2., 2.]], [True, True])])
    down = deb.extras(srv.window(deb), [up([[3., 3.], [0., 0.]], [True, False])])
    assert down['prototypes'].tolist() == [[3., 3.], [2., 2.]] and down['had'].all()

def test_one_client_and_images_without_a_box(suite):
    boxes = suite.clients[0].train.boxes.clone()
    boxes[::2] = 0
    d = suite.clients[0].train
    lonely = replace(suite, clients=[replace(suite.clients[0], train=Data(d.x, d.y, None, boxes))])
    assert run(FedDDL, lonely, net()).round_no == 2

def test_nobody_found_anything(suite):
    d = suite.clients[0].train
    none = replace(suite, clients=[replace(suite.clients[0], train=Data(d.x, d.y, None, 0*d.boxes))])
    with pytest.raises(ValueError, match='give boxes or masks'): run(FedDDL, none, net())

def test_boxes_go_before_masks_and_masks_will_do(suite):
    d = suite.clients[0].train
    assert torch.equal(object_boxes(Data(d.x, d.y, d.masks)), d.boxes)
    assert torch.equal(object_boxes(Data(d.x, d.y, d.masks, d.boxes+0)), d.boxes)
    with pytest.raises(ValueError, match='box'): object_boxes(Data(d.x, d.y, None, d.boxes+30))

def test_what_it_wants(suite):
    clients = [replace(c, train=replace(c.train, masks=None)) for c in suite.clients]
    plain_images = replace(suite, clients=clients)
    run(FedDDL, plain_images, net(), rounds=1)
    with pytest.raises(ValueError, match='DEC wants masks'): fed(FedDDL(preset='mask'), plain_images)

@pytest.mark.parametrize('said, word', [
    ('DEC(cut="ring")', 'no cut'),
    ('DEC(eta=-1)', 'eta'),
    ('DEC(pool="mine")', 'no pool'),
    ('DEB(tau=0)', 'tau'),
    ('DEB(lam=-1)', 'lam'),
    ('DEC(size="big")', 'no size'),
    ('DEC(rotate=-1)', 'rotate'),
    ('DEC + DEC(eta=1)', 'DEC is there twice')])
def test_refused(said, word):
    with pytest.raises(ValueError, match=word): read_method(said)

# ---- combinations

SUMS = ['FedProx + DEC', 'F2DC + FedDDL', 'FDSE + FedDDL', 'FedBN + FedDDL', *LADDER.values(),
        'FedDDL(preset="mask", rotate=15)', 'DEC(pool="own")', 'DEB(turned=1) + DEC', 'DEC(eta=0)',
        'DEC(pool="others")']

@pytest.mark.parametrize('said', SUMS)
def test_these_run(two, said):
    f = run(read_method(said), two, net(), rounds=2, local_steps=1)
    assert all(torch.isfinite(v).all() for v in f.server.values())

def test_measures_are_numbers_between_0_and_1(ours):
    found = ddl_measures(ours)
    assert {'empty_p', 'empty_entropy', 'hole_p', 'object_cosine', 'image_cosine'} <= set(found)
    assert {'client_cosine', 'any_cosine'} <= set(found) and all(-1 <= v <= 1 for v in found.values())

def test_others_have_no_measures(suite): assert ddl_measures(run(read_method('FedBN'), suite, net())) == {}

def test_how_clients_agree_is_a_mean_of_cosines(suite, ours):
    "By loops over pairs of local models and over images."
    f = ours
    x = torch.cat([t.x for t in suite.unseen.values()])
    def features(c):
        model = f.model().cpu()
        model.load_state_dict(f.train_client(c).upload.state)
        return model.eval()(f.worker.images(x).cpu()).feat.detach()
    feats = [features(c) for c in f.clients]
    pairs = [(a, b) for a in feats for b in feats if a is not b]
    same = [torch.cosine_similarity(a, b) for a, b in pairs]
    every = [torch.cosine_similarity(u, b) for a, b in pairs for u in a]
    found = client_agreement(f, n=18)
    assert abs(found['client_cosine'] - torch.cat(same).mean()) < 1e-5
    assert abs(found['any_cosine'] - torch.cat(every).mean()) < 1e-5

def test_measuring_changes_nothing(suite, ours):
    a, b = ours, run(FedDDL, suite, net())
    ddl_measures(a)
    assert equal(a, b) and a.states.keys() == b.states.keys()

def test_doubled_is_two_batches_a_step(suite):
    f = run(Method('Doubled', Doubled()), suite, net(), rounds=1)
    assert sorted(f.history.rounds[0]['terms']) == ['again', 'task']

# ---- from the command line

def folder_of(suite, root):
    "Two domains of pictures as PNG files, and where their objects are: one image has no row."
    rows = []
    for c in suite.clients[:2]:
        for i, (x, y, box) in enumerate(zip(c.train.x, c.train.y.tolist(), c.train.boxes.tolist())):
            name = f'shift{c.id}/{suite.classes[y]}/{i}.png'
            (root/name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(x.permute(1, 2, 0).numpy()).save(root/name)
            rows.append(Box(name, *box))
    write_boxes(root/'boxes.csv', rows[1:])

QUICK = ['--methods', 'Local,FedAvg,FedBN,FedDDL', '--seeds', '1', '--rounds', '2', '--set', 'local_steps=1',
         '--model', 'small_conv(width=4)']

def test_own_images_with_boxes_end_in_a_report(suite, tmp_path, capsys, unsaved):
    mine, out = str(tmp_path/'mine'), tmp_path/'o'
    folder_of(suite, tmp_path/'mine')
    assert main(['compare', '--data', mine, '--boxes', 'boxes.csv', *QUICK, '--out', str(out)]) == 0
    assert (out/'report.html').exists() and 'FedDDL' in capsys.readouterr().out
    assert main(['compare', '--data', mine, *QUICK, '--out', str(tmp_path/'p')]) == 2
    assert 'wants boxes or masks' in capsys.readouterr().err

def test_an_embedded_suite_ends_in_a_report(tmp_path, capsys, unsaved):
    tiny = ['--suite', 'context-vehicles', '--size', 'tiny']
    assert main(['compare', *tiny, *instead(QUICK, '--rounds', 1), '--out', str(tmp_path)]) == 0
    assert (tmp_path/'report.html').exists() and 'unseen view' in capsys.readouterr().out
