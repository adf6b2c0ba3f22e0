"The score of record: three last checks, three moments, shares of the tests, an answer for each image."
from dataclasses import replace
import numpy as np
import pytest, torch
from feds import fed_of, first, run, small, trained_once
from fedskew_nb.analysis.pairs import by_domain
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.analysis.probes import adabn
from fedskew_nb.run.recipes import read_method
from fedskew_nb.nets.pretrained import group_norms
from fedskew_nb.data.load import load_suite
from fedskew_nb.data.splits import leave_out
from fedskew_nb.engine.history import History
from fedskew_nb.engine.scoring import adapted_questions, own_tests, pixel_digests, unpacked
from fedskew_nb.engine.setting import Setting, due, in_full, last_checks
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.baselines.personal import FedBN, Local

RECORD = dict(rounds=6, record=True, answers=True, eval_every=6)

@pytest.fixture(scope='module')
def suite():
    "Two clients a domain, which have one test set."
    whole = load_suite('emoji-pacs', 'tiny')
    some = first(whole, 2, tests=15)
    more = [replace(c, id=2+c.id, train=c.val) for c in some.clients]
    return replace(some, clients=[*some.clients, *more])

@pytest.fixture(scope='module')
def made(suite): return trained_once(suite)

def rows_at(fed, **facts): return [r for r in fed.history.rows if all(r[k] == v for k, v in facts.items())]

@pytest.mark.parametrize('rounds, want', [(1, [1]), (2, [2]), (3, [1, 3]), (4, [2, 4]), (64, [60, 62, 64])])
def test_the_last_checks_are_two_rounds_apart(rounds, want):
    assert last_checks(rounds, True) == want and last_checks(rounds, False) == [rounds]
    s = Setting(rounds=rounds, record=True, eval_every=1000)
    for asked in (in_full, due): assert [r for r in range(1, rounds+1) if asked(s, r)] == want

def test_each_check_has_three_moments_for_every_client(made):
    for method in (FedAvg, FedBN, Local):
        rows = rows_at(made(method, **RECORD), view='personal')
        want = {(r, m, c) for r in (2, 4, 6) for m in ('post_agg', 'post_local', 'adabn') for c in range(4)}
        assert {(r['round'], r['moment'], r['client']) for r in rows} == want

def test_clients_of_a_domain_share_its_tests_out(suite):
    "No image is asked twice, none is left out; who is alone keeps all."
    fed = fed_of(FedAvg, suite, **RECORD)
    for d, t in suite.tests.items():
        parts = [c.test.x for c in fed.clients if c.domain == d]
        both = sorted(pixel_digests(torch.cat(parts)))
        assert sum(map(len, parts)) == len(t) and both == sorted(pixel_digests(t.x))
    alone = own_tests(suite.clients[:2])
    assert all(a.test is b.test for a, b in zip(alone, suite.clients))

def test_one_model_is_as_good_on_shares_as_on_the_whole(made):
    "Received, its clients' answers add up to the global view's, domain by domain."
    h = made(FedAvg, **RECORD).history
    shares, whole = h.counts('personal'), h.counts('global')
    assert shares.loc[[2, 4, 6]].equals(whole.loc[[2, 4, 6]])

def test_the_score_of_record_is_the_mean_of_three_checks(made):
    "Beside a plain loop, in History, in Comparison and in claims."
    h = made(FedBN, **RECORD).history
    by_round = {}
    for r in h.rows:
        if (r['view'], r['moment']) != ('personal', 'post_agg'): continue
        n, k = by_round.setdefault(r['round'], {}).get(r['domain'], (0, 0))
        by_round[r['round']][r['domain']] = n+r['n'], k+r['correct']
    avg = np.mean([np.mean([100*k/n for n, k in of.values()]) for of in by_round.values()])
    assert len(by_round) == 3
    assert h.summary('personal')['AVG'] == pytest.approx(avg)
    assert np.mean([*by_domain(h, 'personal')[0].values()]) == pytest.approx(avg)
    assert Comparison([h]).scores('personal').AVG.item() == pytest.approx(avg)
    assert h.summary('personal', last=1)['AVG'] == pytest.approx(h.curve('personal').AVG.iloc[-1])

def test_a_table_mixes_no_two_kinds_of_score(made, suite):
    runs = [made(FedAvg, **RECORD).history, run(FedBN, suite, rounds=6, eval_every=6).history]
    with pytest.raises(ValueError, match='by one last check and others by three'):
        Comparison(runs).table('personal')

def test_the_foot_says_which_checks(made):
    foot = ' '.join(Comparison([made(FedAvg, **RECORD).history]).table().notes)
    assert 'Score: mean of the checks after rounds 2, 4 and 6.' in foot

# ---- statistics re-estimated
def test_the_third_moment_is_adabn(made):
    "Of the received model: the answers of `FedAvg + AdaBN`, image by image."
    one, other = made(FedAvg, **RECORD), made(read_method('FedAvg + AdaBN'), **RECORD)
    a, b = (rows_at(f, view='personal', moment=m) for f, m in ((one, 'adabn'), (other, 'post_agg')))
    def said(rows): return [(r['round'], r['client'], r['right']) for r in rows]
    assert said(a) == said(b)

def test_asking_leaves_no_trace(made, suite):
    "Scored or not, the server's model ends in the same bits."
    plain = run(FedBN, suite, rounds=6, eval_every=6)
    fed = made(FedBN, **RECORD)
    assert all(torch.equal(v, plain.server[n]) for n, v in fed.server.items())

def test_without_moving_statistics_there_is_no_third_moment(suite):
    "No BatchNorm, or all of it frozen."
    frozen = small()
    frozen.body.requires_grad_(False)
    for net in (group_norms(small()), frozen):
        fed = run(FedAvg, suite, net, rounds=1, record=True)
        assert not rows_at(fed, moment='adabn') and rows_at(fed, view='personal', moment='post_agg')

def test_a_new_domain_adapts_to_images_that_are_not_tested():
    whole = first(load_suite('emoji-pacs', 'tiny'), 3, tests=9)
    fed = fed_of(FedAvg, leave_out(whole, whole.clients[0].domain), record=True)
    new = [q for q in adapted_questions(fed) if q.view == 'unseen']
    assert [q.domain for q in new] == [whole.clients[0].domain] and new[0].model == -1
    assert not set(pixel_digests(new[0].adapt.x)) & set(pixel_digests(new[0].data.x))

# ---- the control at the same moment
def test_the_model_of_the_iid_split_is_re_estimated_where_the_images_came_from(suite):
    "By a plain loop: at each client of the skewed split, on its images; scored on its share of the tests."
    fed = run(FedAvg, suite.iid(), **RECORD)
    rows = rows_at(fed, moment='adabn', round=6)
    assert [(r['view'], r['client'], r['domain']) for r in rows] == [
        ('personal', c.id, c.domain) for c in suite.clients]
    for r, c in zip(rows, own_tests(suite.clients)):
        said = adabn(fed.model(), c.train).see(c.test.x).logits.argmax(1)
        assert torch.equal(unpacked(r), (said == c.test.y).cpu())

def test_the_control_is_asked_about_the_images_of_fedavg(suite, made):
    "The same letters, client by client, so the two can be paired image by image."
    def letters(fed): return {(r['client'], r['images']) for r in rows_at(fed, moment='adabn', round=6)}
    assert letters(run(FedAvg, suite.iid(), **RECORD)) == letters(made(FedAvg, **RECORD))

def test_a_split_that_keeps_something_at_home_has_no_such_control(suite):
    assert not rows_at(run(FedBN, suite.iid(), **RECORD), moment='adabn')

# ---- which images
def test_marks_are_the_counts(made):
    rows = [r for r in made(FedBN, **RECORD).history.rows if 'right' in r]
    assert rows and all(int(unpacked(r).sum()) == r['correct'] and len(unpacked(r)) == r['n'] for r in rows)
    assert {r['moment'] for r in rows} == {'post_agg', 'post_local', 'adabn'}
    assert {r['round'] for r in rows} == {2, 4, 6}

def test_marks_are_those_of_the_models(made, suite):
    "In the order of the client's own images."
    fed = made(Local, **RECORD)
    for c in fed.clients:
        row = rows_at(fed, view='personal', moment='post_agg', round=6, client=c.id)[0]
        logits = fed.model(client=c.id).see(c.test.x).logits
        assert torch.equal(unpacked(row), (logits.argmax(1) == c.test.y).cpu())

def test_images_have_the_same_letters_in_every_run(made):
    def letters(m):
        return {(r['client'], r['images']) for r in made(m, **RECORD).history.rows if 'right' in r}
    assert letters(FedAvg) == letters(FedBN)

def test_without_being_asked_nothing_is_kept(suite):
    assert not [r for r in run(FedAvg, suite, rounds=1).history.rows if 'right' in r or 'images' in r]

def test_marks_survive_the_file(made, tmp_path):
    h = made(FedBN, **RECORD).history
    h.save(tmp_path/'h.json')
    assert History.load(tmp_path/'h.json').rows == h.rows

def test_a_shorter_horizon_has_one_check(made):
    "A run of record, read as if it had ended earlier, is no mean of checks that were no last ones."
    h = made(FedBN, **RECORD).history
    assert h.checks == 3 and h.at(4).checks == 1 and h.at(6).checks == 3
    assert h.at(4).summary('personal')['AVG'] == pytest.approx(h.curve('personal').AVG[4])
