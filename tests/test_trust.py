"""How sure, and can it be believed: every measure against a loop, sklearn or a closed form.

Stored, resumed, reported; bad input.
"""
import itertools, json, math, warnings
from dataclasses import replace
import numpy as np, pytest, torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from torch import nn
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.analysis.probes import answers
from fedskew_nb.analysis.trust import (
    answers_of_client, auroc, density, noisy, risk_coverage, strangers, together, uncertainty)
from fedskew_nb.analysis.trust_tables import trust_figures, trust_measures, trust_tables
from fedskew_nb.analysis.calibration import ece, at_temperature, temperature
from fedskew_nb.tools import cli
from fedskew_nb.run.compare import compare, resume
from fedskew_nb.run.plan import grid_runs
from fedskew_nb.run.store import read_request, stored_runs
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.seeding import generator
from fedskew_nb.core.net import normalise
from fedskew_nb.data.load import load_suite
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.baselines.personal import FedBN
from feds import few, run, run_name
from test_cli import images

NUMBERS = dict(abs_tol=2e-6)

def probs(n=60, K=5, seed=0, scale=2.):
    return (scale*torch.randn(n, K, generator=generator(seed, 'p'))).softmax(1)
def classes(n=60, K=5, seed=0): return torch.randint(0, K, (n,), generator=generator(seed, 'c'))

class Evident(nn.Module):
    "A head whose logits are log(α/S), with the vacuity beside them."
    def __init__(self, head):
        super().__init__()
        self.inner = head
    def forward(self, f):
        a = F.softplus(self.inner(f).float())+1
        S = a.sum(1, keepdim=True)
        return (a/S).log(), dict(u=a.shape[1]/S[:, 0])

class Evidence(Mechanism):
    def adapt(self, net):
        net.head = Evident(net.head)
        return net

@pytest.fixture(scope='module')
def fed(suite): return run(FedBN, suite, batch_size=16, lr=.1, rounds=3, local_steps=6, stack=False)

# ---- uncertainty

def test_uncertainty_by_loops():
    p = probs()
    z = p.log()+torch.randn(60, 1, generator=generator('shift'))
    found = uncertainty(p, z, torch.rand(60, 1))
    assert list(found) == ['1 - max p', 'entropy', 'energy', 'u'] and found['u'].shape == (60,)
    for i in range(60):
        assert math.isclose(found['1 - max p'][i], 1-max(p[i].tolist()), abs_tol=1e-6)
        assert math.isclose(found['entropy'][i], -sum(q*math.log(q) for q in p[i].tolist()), abs_tol=1e-5)
        assert math.isclose(found['energy'][i], -math.log(sum(map(math.exp, z[i].tolist()))), abs_tol=1e-5)

def test_a_certain_answer_has_no_entropy(): assert uncertainty(torch.tensor([[1., 0]]))['entropy'] == 0
def test_log_probabilities_have_no_energy(): assert 'energy' not in uncertainty(probs(), probs().log())

@pytest.mark.parametrize('bad', [float('nan'), float('inf')])
def test_answers_that_are_no_numbers(bad):
    p = probs()
    p[3, 0] = p[7, 1] = bad
    with pytest.raises(ValueError, match='2 of 60 answers are NaN or infinite'): uncertainty(p)
    with pytest.raises(ValueError, match='NaN or infinite'): temperature(p, classes())
    with pytest.raises(ValueError, match='NaN or infinite'): auroc(p[:, 0], classes() == 0)

# ---- AUROC

@pytest.mark.parametrize('scale, digits', [(1, None), (1, 1), (300, None), (1e-6, None)])
def test_auroc_is_sklearns(scale, digits):
    "With ties, and where a sigmoid would make far scores equal."
    s, t = scale*torch.randn(200, generator=generator('s')), torch.rand(200, generator=generator('t')) < .3
    if digits: s = (s*2).round()
    assert math.isclose(auroc(s, t), roc_auc_score(t, s), abs_tol=1e-9)

def plain_auroc(score, positive):
    "Pair by pair."
    pairs = list(itertools.product(score[positive].tolist(), score[~positive].tolist()))
    return sum((a > b)+(a == b)/2 for a, b in pairs)/len(pairs)

@pytest.mark.parametrize('levels', [2, 5, 1000])
def test_auroc_pair_by_pair(levels):
    "With few levels most pairs tie."
    g = generator('levels', levels)
    s, t = torch.randint(levels, (70,), generator=g).float(), torch.rand(70, generator=g) < .4
    assert math.isclose(auroc(s, t), plain_auroc(s, t), abs_tol=1e-12)

def test_auroc_of_one_kind(): assert math.isnan(auroc(torch.rand(5), torch.ones(5, dtype=torch.bool)))
def test_auroc_of_a_constant(): assert auroc(torch.ones(6), torch.arange(6) > 2) == .5

# ---- risk and coverage

def test_risk_is_a_loop():
    s, w = torch.rand(50, generator=generator('s')), torch.rand(50, generator=generator('w')) < .4
    order = sorted(range(50), key=lambda i: float(s[i]))
    want = [sum(bool(w[i]) for i in order[:k])/k for k in range(1, 51)]
    r = risk_coverage(s, w)
    assert np.allclose(r.risk, want) and np.allclose(r.coverage, np.arange(1, 51)/50)

def test_ties_are_the_mean_over_all_orders():
    s, w = [.1, .5, .5, .5, .5, .9], [False, True, False, False, True, True]
    orders = [[0, *ties, 5] for ties in itertools.permutations(range(1, 5))]
    want = np.mean([np.cumsum([w[i] for i in o])/np.arange(1, 7) for o in orders], 0)
    assert np.allclose(risk_coverage(torch.tensor(s), torch.tensor(w)).risk, want)

def test_a_constant_score_has_the_error_rate_everywhere():
    w = torch.arange(10) < 3
    assert np.allclose(risk_coverage(torch.ones(10), w).risk, .3)

@pytest.mark.parametrize('s, w', [(3, 2), (0, 0)])
def test_scores_that_do_not_fit(s, w):
    says = f'{s} scores for {w} answers'
    with pytest.raises(ValueError, match=says): risk_coverage(torch.rand(s), torch.zeros(w, dtype=torch.bool))

# ---- temperature

@pytest.mark.parametrize('factor', [.3, 1, 3])
def test_the_temperature_is_where_the_loss_is_flat(factor):
    p = probs(3000)
    y = torch.multinomial(p, 1, generator=generator('y'))[:, 0]
    sharp = at_temperature(p, 1/factor)
    T = temperature(sharp, y)
    b = torch.tensor(1/T, dtype=torch.double, requires_grad=True)
    F.cross_entropy(b*sharp.log(), y).backward()
    assert abs(b.grad) < 1e-4 and abs(T/factor-1) < .1

def test_the_temperature_beats_a_grid():
    p, y = probs(scale=4.), classes()
    def loss(T): return float(F.nll_loss(at_temperature(p, T).log(), y))
    assert loss(temperature(p, y)) <= min(map(loss, np.geomspace(1/20, 20, 400)))+1e-6

def test_probabilities_do_as_well_as_logits():
    z = 5*torch.randn(40, 6, generator=generator('z'), dtype=torch.double)
    said = at_temperature(z.softmax(1), 2.5)
    assert torch.allclose(said, (z/2.5).softmax(1)) and torch.equal(said.argmax(1), z.argmax(1))

def test_a_true_class_of_probability_0():
    assert math.isfinite(temperature(torch.tensor([[1., 0], [1., 0]]), torch.tensor([0, 1])))

def test_no_validation_images_no_temperature():
    says = 'no validation images to fit a temperature on: give some'
    with pytest.raises(ValueError, match=says): temperature(probs()[:0], classes()[:0])

# ---- foreign images

def test_noise_is_added_after_normalisation_and_not_cut(suite):
    x = suite.tests['photo'].x
    a = noisy(x, suite)
    added = a-normalise(x, suite.mean, suite.std)
    assert abs(added.std()-1.5) < .02 and abs(added.mean()) < .02 and a.max() > 3
    assert torch.equal(a, noisy(x, suite)) and not torch.equal(a, noisy(x, suite, seed=1))
    assert torch.equal(noisy(x, suite, sigma=0), normalise(x, suite.mean, suite.std))

def test_strangers_share_no_class(suite):
    digits = load_suite('skew-digits', 'tiny')
    assert strangers(digits, 30).shape == (30, 3, 28, 28) and strangers(suite, 7).dtype == torch.uint8
    assert not torch.equal(strangers(digits, 9)[..., :28], strangers(suite, 9)[..., :28, :28])
    assert strangers(replace(suite, classes=['Dog', *map(str, range(6))])) is None

def test_strangers_are_found_whatever_the_capitals(suite):
    "A dog is in emoji-pacs; digits remain."
    assert torch.equal(strangers(replace(suite, classes=['DOG', *'bcdefg']), 9), strangers(suite, 9))

def test_images_of_another_size(fed):
    flat, small = (torch.zeros(2, 3, *size, dtype=torch.uint8) for size in ((9, 32), (20, 20)))
    says = 'of 9 × 32 pixels, and emoji-pacs has 32 × 32: resize them'
    with pytest.raises(ValueError, match=says): answers_of_client(fed, 0, flat)
    with pytest.raises(ValueError, match='20 × 20 pixels'): trust_measures(fed, dict(mine=small))

# ---- asking

def test_asked_is_what_the_model_says(fed, suite):
    c = fed.clients[1]
    out = answers(fed.model(client=c.id), c.test)
    said = answers_of_client(fed, c.id, c.test.x)
    floats = answers_of_client(fed, c.id, normalise(c.test.x, suite.mean, suite.std))
    assert torch.allclose(said['logits'], out.logits, atol=1e-4) and 'u' not in said
    assert torch.allclose(said['p'], out.logits.softmax(1), atol=1e-5)
    assert all(torch.equal(said[k], floats[k]) for k in said)

def test_floats_must_be_announced(fed, suite):
    x = suite.tests['photo'].x[:2]
    for given, said in ((x.float(), dict()), (x, dict(normalised=True))):
        with pytest.raises(ValueError, match='images are .* of torch'): fed.answers(given, 0, **said)

def images_through(nets, f):
    "How many images go through these nets while `f` is called."
    n = []
    def count(m, args): n.append(len(args[0]))
    hooks = [net.register_forward_pre_hook(count) for net in nets]
    f()
    for h in hooks: h.remove()
    return sum(n)

def test_asking_costs_one_pass(fed, suite):
    "The images that go through the net are the same with and without uncertainty, but for one black one."
    x, nets = suite.tests['photo'].x, (fed.net,)
    plain = images_through(nets, lambda: fed.predict(x, 0))
    sure = images_through(nets, lambda: uncertainty(**answers_of_client(fed, 0, x)))
    assert plain == len(x) and sure <= plain+1

# ---- a whole federation

def said_by(fed, clients, images):
    return together([answers_of_client(fed, c.id, images(c)) for c in clients])['p']

def check_facts(fed, suite, facts, clients):
    "Every number again, by sklearn and loops."
    p, y = said_by(fed, clients, lambda c: c.test.x), torch.cat([c.test.y for c in clients])
    wrong, s = p.argmax(1) != y, 1-p.max(1).values
    T = temperature(said_by(fed, clients, lambda c: c.val.x), torch.cat([c.val.y for c in clients]))
    want = dict(n=len(y), accuracy=float((~wrong).double().mean()), ECE=ece(p, y), T=T)
    want['ECE at T'] = ece((p.double().log()/T).softmax(1), y)
    for k, v in want.items(): assert math.isclose(facts[k], v, **NUMBERS), k
    got = facts['scores']['1 - max p']
    far = {'noise': said_by(fed, clients, lambda c: noisy(c.test.x, suite, seed=c.id)),
           'unknown classes': said_by(fed, clients, lambda c: strangers(suite))}
    for k, q in far.items():
        both, kinds = np.r_[s.numpy(), (1-q.max(1).values).numpy()], np.r_[np.zeros(len(s)), np.ones(len(q))]
        assert math.isclose(got[k], roc_auc_score(kinds, both), **NUMBERS), k
    assert math.isclose(got['wrong'], roc_auc_score(wrong, s), **NUMBERS)
    assert math.isclose(got['AURC'], risk_coverage(s, wrong).risk.mean(), **NUMBERS)

def test_every_number_pooled_and_by_client(fed, suite):
    found = trust_measures(fed)
    assert [c['domain'] for c in found['clients']] == [c.domain for c in fed.clients]
    check_facts(fed, suite, found['pooled'], fed.clients)
    for c, facts in zip(fed.clients, found['clients']): check_facts(fed, suite, facts, [c])
    assert set(found['pooled']['scores']) == {'1 - max p', 'entropy', 'energy', '1 - max p at T'}
    pictures = found['pictures']
    assert len(pictures['risk']) == 20 and all(abs(np.mean(h)-1) < 1e-5 for h in pictures['density'].values())
    assert json.loads(json.dumps(found, allow_nan=False)) == found and trust_measures(fed) == found

@pytest.mark.parametrize('method, asked_', [(FedAvg, 2), (FedBN, 3)], ids=['FedAvg', 'FedBN'])
def test_clients_alike_are_asked_once(suite, method, asked_):
    "Two clients of one domain: under FedAvg they share the model, under FedBN they do not."
    two = replace(suite, clients=[*suite.clients[:2], replace(suite.clients[0], id=7)])
    assert len(trust_measures(run(method, two), n=5)['clients']) == asked_

def without_validation(c): return replace(c, val=c.val[:0])

def test_some_without_validation_images(suite):
    some = [*map(without_validation, suite.clients[:3]), suite.clients[3]]
    found = trust_measures(run(FedBN, replace(suite, clients=some)), n=5)
    assert ['T' in c for c in found['clients']] == [False]*3+[True] and 'T' in found['pooled']

def test_no_validation_images_no_temperature_anywhere(suite):
    none = replace(suite, clients=[*map(without_validation, suite.clients)])
    found = trust_measures(run(FedBN, none), n=5)['pooled']
    assert 'T' not in found and 'ECE at T' not in found and 'ECE' in found
    assert '1 - max p at T' not in found['scores']

def test_dealt_at_random_nobody_is_asked(suite): assert trust_measures(run(FedAvg, suite.iid(0))) == {}

def test_evidence_gives_u(suite):
    fed = run(Method('Evident', Evidence()), suite, batch_size=16, lr=.1, rounds=2, local_steps=4)
    found = trust_measures(fed, n=10)
    assert set(found['pooled']['scores']) == {'1 - max p', 'entropy', 'u', '1 - max p at T'}
    assert found['pictures']['score'] == 'u'
    c = fed.clients[0]
    said, net = answers_of_client(fed, c.id, c.test.x), fed.model(client=c.id)
    u = net.eval()(normalise(c.test.x, suite.mean, suite.std)).aux['u']
    assert torch.allclose(said['u'], u, atol=1e-5) and (said['u'] > 0).all() and (said['u'] <= 1).all()
    wrong, got = said['p'].argmax(1) != c.test.y, found['clients'][0]['scores']['u']['wrong']
    assert math.isclose(got, roc_auc_score(wrong, said['u']), **NUMBERS)

def test_an_unseen_domain(suite):
    tests = dict(suite.tests)
    unseen = dict(sketch=tests.pop('sketch'))
    less = replace(suite, clients=suite.clients[:3], tests=tests, unseen=unseen)
    found = trust_measures(run(FedBN, less), n=5)['pooled']['scores']['entropy']
    assert set(found) == {'wrong', 'AURC', 'noise', 'unseen domain', 'unknown classes'}

def test_a_model_that_is_always_right(suite):
    "No wrong answer, no AUROC: null in the file, an empty cell in the table."
    right = replace(suite, clients=[replace(c, test=c.test[:1]) for c in suite.clients[:1]])
    fed = run(FedBN, right, rounds=1)
    c = fed.clients[0]
    c.test.y[:] = answers_of_client(fed, c.id, c.test.x)['p'].argmax(1)
    found = trust_measures(fed, n=5)
    assert found['pooled']['accuracy'] == 1 and found['pooled']['scores']['entropy']['wrong'] is None
    fed.history.measures = dict(trust=found)
    table = trust_tables(Comparison([fed.history]))['trust-scores']
    assert 'wrong' not in table.numbers.columns.tolist()

# ---- density

def test_density_is_a_histogram():
    s = torch.rand(500, generator=generator('s'))
    want, _ = np.histogram(s.numpy(), 25, (0, 1), density=True)
    assert np.allclose(density(s), want, atol=1e-5)

# ---- tables over seeds

HOW = dict(methods='FedAvg,FedBN', suite='emoji-pacs', seeds=2, size='tiny', rounds=1, local_steps=2,
           progress=False, model='small_conv(width=4)')
ONE = HOW | dict(seeds=1, control=False)

@pytest.fixture(scope='module')
def cmp(tmp_path_factory):
    return compare(**HOW | dict(suite=few), trust=True, out=tmp_path_factory.mktemp('trust'))

@pytest.fixture(scope='module')
def seeds(cmp):
    "What was measured of FedBN under each seed."
    return [h.measures['trust'] for h in cmp.histories if h.setting['method'] == 'FedBN']

def row_of(cmp, table, **where):
    numbers = trust_tables(cmp)[table].numbers
    for column, value in where.items(): numbers = numbers[numbers[column] == value]
    row, = numbers.to_dict('records')
    return row

def test_a_table_is_the_mean_over_seeds(cmp, seeds):
    row = row_of(cmp, 'trust', method='FedBN')
    for k, scale in (('accuracy', 100), ('ECE', 100), ('T', 1), ('ECE at T', 100)):
        assert math.isclose(row[k], scale*sum(s['pooled'][k] for s in seeds)/2)

def test_scores_are_means_over_seeds(cmp, seeds):
    row = row_of(cmp, 'trust-scores', method='FedBN', score='entropy')
    for k in ('wrong', 'AURC', 'noise', 'unknown classes'):
        assert math.isclose(row[k], 50*sum(s['pooled']['scores']['entropy'][k] for s in seeds))

def test_domains_are_means_over_seeds(cmp, seeds):
    row = row_of(cmp, 'trust-domains', method='FedBN', measure='ECE')
    for a, b in zip(*(s['clients'] for s in seeds)):
        assert math.isclose(row[a['domain']], 50*(a['ECE']+b['ECE']))

def test_cells_have_a_spread(cmp):
    cells = trust_tables(cmp)['trust'].cells
    assert cells.method.tolist() == ['FedAvg', 'FedBN'] and ' ± ' in cells.ECE[0]

def test_controls_have_no_answer(cmp):
    "Dealt at random, a client has no domain to be asked about."
    assert [bool(h.measures['trust']) for h in cmp.histories] == [True]*4+[False]*2
    assert not any('Not asked' in n for n in trust_tables(cmp)['trust'].notes)

def test_who_was_not_asked_is_named(cmp):
    h = replace(cmp.histories[0], measures={})
    cold = replace(cmp.histories[2], measures=json.loads(json.dumps(cmp.histories[2].measures)))
    trust = cold.measures['trust']
    for facts in (trust['pooled'], *trust['clients']): del facts['T'], facts['ECE at T']
    stopped = replace(cmp.histories[3], measures=dict(stopped='NaN'))
    notes = trust_tables(Comparison([h, cmp.histories[1], cold, stopped]))['trust'].notes
    assert 'Not asked: FedAvg (seed 0). Compare again with --trust (trust=True).' in notes
    assert 'No temperature, for want of validation images: FedBN (seed 0).' in notes

def test_no_trust_no_tables(cmp):
    plain = Comparison([replace(h, measures={}) for h in cmp.histories])
    assert trust_tables(plain) == trust_figures(plain) == {}

def test_figures_are_drawn(cmp):
    found = trust_figures(cmp)
    assert list(found) == ['trust-reliability', 'trust-risk', 'trust-foreign']
    for caption, make in found.values(): assert len(make().figure.axes) >= 1 and caption.endswith('.')

# ---- stored, trained again, resumed

def test_a_run_that_was_not_asked_is_trained_again(tmp_path):
    "And what is known stays where it is not asked for."
    plain = compare(**ONE, out=tmp_path)
    says = '2 of 2 finished runs lack a measure, or models'
    with pytest.warns(UserWarning, match=says): told = compare(**ONE, out=tmp_path, trust=True)
    assert told.histories == plain.histories and all('trust' in h.measures for h in told.histories)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        again = resume(tmp_path, progress=False)
        assert read_request(tmp_path).given()['trust'] is True
        less = compare(**ONE, out=tmp_path)
    want = [h.measures for h in told.histories]
    assert [h.measures for h in again.histories] == [h.measures for h in less.histories] == want
    assert all('trust' in h.measures for _, h in stored_runs(tmp_path))

def rounds_of(fed): return dict(rounds=fed.round_no)

def test_other_measures_stay(tmp_path):
    how = ONE | dict(methods='FedBN', suite=few, out=tmp_path)
    compare(**how, measure=rounds_of)
    with pytest.warns(UserWarning, match='1 of 1'): h, = compare(**how, trust=True).histories
    assert set(h.measures) == {'rounds', 'trust'}
    assert compare(**how, trust=True, measure=rounds_of).histories[0].measures == h.measures

def test_trust_then_a_measure(tmp_path):
    how = ONE | dict(methods='FedBN', suite=few, out=tmp_path)
    compare(**how, trust=True)
    h, = compare(**how, measure=rounds_of).histories
    assert set(h.measures) == {'rounds', 'trust'}

def test_a_papers_grid_can_be_asked_too():
    asked, plain = (grid_runs('fedddl', trust=t, seeds=[0]) for t in (True, False))
    assert all(r.trust for r in asked) and not any(r.trust for r in plain)
    assert [run_name(r) for r in asked[:4]] == [run_name(r) for r in plain[:4]]       # the same runs

# ---- the command line

def fedskew(capsys, *argv):
    code = cli.main([str(a) for a in argv])
    said = capsys.readouterr()
    return code, said.out, said.err

SHORT = ['--rounds', 1, '--set', 'local_steps=2', '--model', 'small_conv(width=4)']
SAID = ('skew-digits, how sure and how right', 'what uncertainty finds', 'how right on each domain',
        'unknown classes', 'ECE at T', 'How often a method is right', 'Wrong answers among', 'foreign ones')
TABLES = {'trust', 'trust-scores', 'trust-domains'}
DRAWN = {'skew-digits-trust-reliability.png', 'skew-digits-trust-risk.pdf', 'skew-digits-trust-foreign.png'}

def test_the_report_has_tables_and_figures(capsys, tmp_path, request):
    "Also when it is called again without --trust."
    tiny = ['--suite', 'skew-digits', '--size', 'tiny', '--methods', 'Local,FedBN', '--seeds', 1,
            '--no-control', '--out', tmp_path]
    code, out, err = fedskew(capsys, 'compare', *tiny, *SHORT, '--trust')
    html = (tmp_path/'report.html').read_text()
    assert code == 0 and 'what uncertainty finds' in out and 'on each domain' not in out
    assert [part for part in SAID if part not in html] == []
    assert DRAWN <= {p.name for p in (tmp_path/'figures').iterdir()}
    assert json.loads((tmp_path/'compare.json').read_text())['trust'] is True
    request.getfixturevalue('unsaved')                      # its figures were written once
    code, out, _ = fedskew(capsys, 'compare', *tiny, *SHORT, '--json')
    assert code == 0 and TABLES <= set(json.loads(out)['tables']['skew-digits'])
    assert 'what uncertainty finds' in (tmp_path/'report.html').read_text()

def test_an_own_folder(capsys, tmp_path, unsaved):
    mine = ['--data', images(tmp_path/'mine'), '--methods', 'FedBN', '--no-control', '--seeds', 1]
    code, out, err = fedskew(capsys, 'compare', *mine, *SHORT, '--trust', '--out', tmp_path/'out')
    assert code == 0, err
    head = next(l for l in out.splitlines() if 'noise' in l)
    assert 'unknown classes' in head and 'mine, how sure and how right' in out

