"Early stopping, and the best check on validation images, as a setting."
from dataclasses import replace
import pytest, torch
from feds import equal, fed_of, first, same
from fedskew_nb import load_suite
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.analysis.pairs import unlike
from fedskew_nb.analysis.table import budget_text
from fedskew_nb.engine import patience as engine
from fedskew_nb.engine.checkpoint import load_nest, save_nest
from fedskew_nb.engine.history import History
from fedskew_nb.engine.setting import Setting, due, in_full
from fedskew_nb.methods.baselines.average import FedAvg, SCAFFOLD
from fedskew_nb.methods.baselines.personal import FedBN

HOW = dict(rounds=6, local_steps=1, batch_size=8, lr=.05, eval_every=1)

@pytest.fixture(scope='module')
def suite():
    s = first(load_suite('emoji-pacs', 'tiny'), 2)
    return replace(s, clients=[replace(c, train=c.train[:16], val=c.train[16:24]) for c in s.clients])

@pytest.fixture
def scored(monkeypatch):
    "Validation scores as the test wants them, check by check."
    def give(*values):
        it = iter(values)
        def told(fed, wanted, size):
            share = torch.tensor([next(it)/100])
            return {q.key: {'': share} for q in wanted}
        monkeypatch.setattr(engine, 'answered', told)
    return give

def rounds_of(h): return sorted({r['round'] for r in h.rows})

@pytest.mark.parametrize('method', [FedAvg, FedBN, SCAFFOLD], ids=['FedAvg', 'FedBN', 'SCAFFOLD'])
def test_the_result_is_the_best_check_of_the_same_run(suite, scored, method):
    scored(10., 30., 20., 29.)
    fed = fed_of(method, suite, patience=2, **HOW)
    h = fed.fit()
    vals = [r.get('val') for r in h.rounds]       # two checks, and none better
    assert vals == pytest.approx([10., 30., 20., 29.])
    assert h.setting['best_round'] == 2 and rounds_of(h) == [1, 2]
    plain = fed_of(method, suite, **HOW)
    plain.fit(2)
    assert equal(fed, plain) and fed.memory.keys() == plain.memory.keys()
    for k in plain.own: assert same(fed.state_of(k), plain.state_of(k))

def test_a_run_that_only_rises_ends_with_the_last_round(suite, scored):
    scored(1., 2., 3., 4., 5., 6.)
    h = fed_of(FedAvg, suite, patience=1, **HOW).fit()
    assert h.setting['best_round'] == 6 and len(h.rounds) == 6 and rounds_of(h)[-1] == 6

def test_a_tie_goes_to_the_earlier_and_counts_as_no_better(suite, scored):
    scored(5., 5., 5.)
    h = fed_of(FedAvg, suite, patience=2, **HOW).fit()
    assert h.setting['best_round'] == 1 and len(h.rounds) == 3

def test_with_much_patience_all_rounds_are_trained_and_the_best_counts(suite, scored):
    scored(1., 9., 3., 4., 5., 6.)
    h = fed_of(FedAvg, suite, patience=99, **HOW).fit()
    assert len(h.rounds) == 6 and h.setting['best_round'] == 2 and rounds_of(h) == [1, 2]

def test_only_checks_count(suite, scored):
    scored(3., 2., 1.)
    h = fed_of(FedAvg, suite, patience=1, **HOW | dict(eval_every=2)).fit()
    assert [r['round'] for r in h.rounds if 'val' in r] == [2, 4] and h.setting['best_round'] == 2

def test_a_run_that_is_over_stays_so(suite, scored):
    scored(3., 2.)
    fed = fed_of(FedAvg, suite, patience=1, **HOW)
    h, state = fed.fit(), dict(fed.server)
    again = fed.fit()
    assert again.rows == h.rows and again.rounds == h.rounds and same(state, fed.server)

def test_a_pause_does_not_settle(suite, scored):
    scored(3., 2., 1., 0., 9., 8.)
    fed = fed_of(FedAvg, suite, patience=4, **HOW)
    h = fed.fit(2)
    assert 'best_round' not in h.setting and rounds_of(h) == [1, 2]
    assert fed.fit().setting['best_round'] == 5

def test_an_interrupted_run_goes_on_to_the_same_end(suite, scored, tmp_path):
    values = (1., 7., 3., 4.)
    scored(*values)
    whole = fed_of(FedAvg, suite, patience=2, **HOW)
    whole.fit()
    scored(*values)
    half = fed_of(FedAvg, suite, patience=2, **HOW)
    half.fit(3)
    half.save(tmp_path/'half')
    rest = fed_of(FedAvg, suite, patience=2, **HOW).load(tmp_path/'half')
    rest.fit()
    assert equal(whole, rest) and whole.history == rest.history

def test_the_score_is_the_mean_over_clients_of_what_they_get_right(suite):
    fed = fed_of(FedBN, suite, patience=9, **HOW)
    fed.fit(1)
    def share(c): return (fed.predict(c.val.x, client=c.id).argmax(1).cpu() == c.val.y.cpu()).double().mean()
    by_hand = [float(share(c)) for c in fed.clients]
    assert fed.history.rounds[-1]['val'] == pytest.approx(100*sum(by_hand)/2)

def test_a_client_without_validation_images_has_no_say(suite):
    a, b = suite.clients
    bare = replace(suite, clients=[a, replace(b, val=b.val[:0])])
    fed = fed_of(FedAvg, bare, patience=9, **HOW)
    fed.fit(1)
    right = fed.predict(a.val.x).argmax(1).cpu() == a.val.y.cpu()
    assert fed.history.rounds[-1]['val'] == pytest.approx(100*float(right.double().mean()))

def test_nobody_to_judge_and_other_settings_are_refused(suite):
    bare = replace(suite, clients=[replace(c, val=c.val[:0]) for c in suite.clients])
    with pytest.raises(ValueError, match='no client of emoji-pacs has any: keep some'):
        fed_of(FedAvg, bare, patience=1, **HOW)
    for more in (dict(record=True), dict(checkpoints=[2])):
        with pytest.raises(ValueError, match='leave record and checkpoints out'): Setting(patience=1, **more)
    for bad in (0, -1, 1.5, True, 'x'):
        with pytest.raises(ValueError, match='patience is'): Setting(patience=bad)

def test_without_patience_nothing_changes(suite):
    s = Setting(rounds=10, eval_every=2)
    assert [r for r in range(1, 11) if in_full(s, r)] == [10]
    assert [r for r in range(1, 11) if in_full(replace(s, patience=3), r)] == [2, 4, 6, 8, 10]
    assert all(due(s, r) == due(replace(s, patience=3), r) for r in range(1, 11))
    h = fed_of(FedAvg, suite, **HOW | dict(rounds=2)).fit()
    assert 'best_round' not in h.setting and all('val' not in r for r in h.rounds)

def test_files_of_before_and_of_now_are_read(suite, scored, tmp_path):
    fed = fed_of(FedAvg, suite, **HOW)
    fed.fit(2)
    fed.save(tmp_path/'now')
    nest = load_nest(tmp_path/'now')
    del nest['best']
    save_nest(nest, tmp_path/'before')
    assert equal(fed_of(FedAvg, suite, **HOW).load(tmp_path/'before'), fed)
    scored(3., 2.)
    h = fed_of(FedAvg, suite, patience=1, **HOW).fit()
    h.save(tmp_path/'run.json')
    assert History.load(tmp_path/'run.json') == h

def test_a_tables_foot_says_it():
    s = dict(rounds=6, local_epochs=1, steps=[4, 4])
    assert budget_text(s) == '24 local steps per client (6 rounds of 4)'
    said = budget_text(s | dict(patience=2))
    assert said.endswith('(6 rounds of 4), cut to the best check on validation images')

def test_runs_whose_best_checks_differ_are_all_in_the_mean(suite, scored):
    runs = []
    for seed, values in enumerate([(1., 9., 3.), (1., 2., 9.), (8., 2., 3.)]):
        scored(*values)
        runs.append(fed_of(FedAvg, suite, patience=9, **HOW | dict(rounds=3, seed=seed)).fit())
    assert [h.setting['best_round'] for h in runs] == [2, 3, 1] and unlike(runs, 'global') == {}
    t = Comparison(runs).table()
    assert list(t.numbers.n) == [3] and not [n for n in t.notes if 'In no mean' in n]
    assert 'Score: the best check on validation images.' in t.notes
    assert not [n for n in Comparison([runs[0]]).table().notes if n.startswith('Rose ')]

def test_a_run_with_patience_that_was_interrupted_is_in_no_mean(suite, scored):
    runs = []
    for seed, rounds in enumerate((3, 2)):
        scored(9., 8., 7.)
        runs.append(fed_of(FedAvg, suite, patience=9, **HOW | dict(rounds=3, seed=seed)).fit(rounds))
    assert [*unlike(runs, 'global')] == [1]

def test_a_run_whose_last_check_was_its_best_perhaps_still_rises(suite, scored):
    scored(1., 2., 3., 4.)
    h = fed_of(FedAvg, suite, patience=9, **HOW | dict(rounds=4)).fit()
    agg = [r for r in h.rows if r['moment'] == 'post_agg']
    for r in agg: r['correct'] = r['n']*r['round']//4
    said = [n for n in Comparison([h]).table().notes if n.startswith('Rose ')]
    assert said == ['Rose by more than 1 point from round 3 to 4: FedAvg +25.0.']
    assert h.setting['best_round'] == 4
