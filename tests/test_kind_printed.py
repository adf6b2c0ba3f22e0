"Percentages, costs, hours and counts that are printed to people, each by hand."
from types import SimpleNamespace
import pytest, torch
from fedskew_nb import Comparison, small_conv
from fedskew_nb.analysis.pairs import by_domain
from fedskew_nb.analysis.sites import scores_from
from fedskew_nb.analysis.story import bytes_of, cost_facts, cost_says, times, training_of
from fedskew_nb.analysis.table import budget_text, counted, mean_chance, pm, steps_text
from fedskew_nb.deploy.hub import tell_round
from fedskew_nb.engine.history import History
from fedskew_nb.run.reproduce import Cost, price
from fedskew_nb.run import reproduce
from fedskew_nb.tools.join import turned

def run(method='FedAvg', up=3e6, rounds=2, who=((0, 1), (1, 2)), **setting):
    "Two rounds on domains a (8 of 10 right) and b (15 of 30)."
    facts = dict(method=method, suite='toy', seed=0, rounds=rounds, local_steps=5, chance=25.) | setting
    rows = [dict(round=rounds, moment='post_agg', view=v, path='', domain=d, client=k, n=n, correct=c)
            for v in ('global', 'personal') for k, (d, n, c) in enumerate([('a', 10, 8), ('b', 30, 15)])]
    spent = [dict(round=r+1, loss=1., terms={}, participants=[*w], up=up, down=1e6)
             for r, w in enumerate(who)]
    return History(facts, rows, spent)

def test_percent_of_domains():
    "80 and 50: their mean is 65, of all images 23 of 40 are right."
    h = run()
    assert by_domain(h)[0] == dict(a=80, b=50) and by_domain(h)[1] == dict(a=10, b=30)
    s = h.summary()
    assert (s['AVG'], s['ALL'], s['worst']) == (65, 57.5, 50) and s['STD'] == pytest.approx(21.213203)
    assert Comparison([h]).table().cells.iloc[0].tolist() == ['FedAvg', '65.0', '21.2', '50.0', '1']

def test_megabytes_of_a_client():
    "Two rounds of 3 + 1 MB among three clients: 8/3 MB each; the other method sends twice as much up."
    one, two = run(), run('FedX', up=7e6)
    assert bytes_of(one) == pytest.approx(8e6/3) and bytes_of(two) == pytest.approx(16e6/3)
    assert cost_says(cost_facts(Comparison([one, two]), 'toy')) == (
        'A client of FedAvg sends and receives 2.67 MB, '
        'one of FedX 2.00 times as much; each takes 10 local steps.')

@pytest.mark.parametrize('ratio, text', [
    (0, 'nothing'), (1, 'as much'), (.996, 'as much'), (1.005, '1.00 times as much'),
    (.5, '0.50 times as much'), (1.999, '2.00 times as much')])
def test_times(ratio, text): assert times(ratio) == text

def test_steps_and_budgets():
    "Half of the clients in each of ten rounds of four steps: twenty steps a client."
    h = run(rounds=10, local_steps=4, participation=.5, local_epochs=1, who=((0,),)*10)
    assert training_of(h) == '20 local steps'
    assert budget_text(h.setting) == '20 local steps per client (10 rounds of 4, 50 % of the clients in each)'
    assert steps_text(dict(steps=[2, 7]), 3) == '6 to 21' and steps_text(dict(steps=[3, 3])) == '3'
    assert steps_text({}) == ''

def test_counts_of_runs():
    runs = dict(A=[1, 2, 3], B=[2, 4], C=[5])
    assert counted(runs, lambda n: n % 2 == 0) == 'A (1 of 3 runs), B (2 of 2 runs)'
    assert mean_chance(dict(A=[run(chance=20.), run(chance=21.)])) == '20.5' and mean_chance(dict(A=[])) == ''
    assert mean_chance(dict(A=[run(chance=20.), run(chance=31.)])) == '20.0 to 31.0'      # of two suites

@pytest.mark.parametrize('value, text', [(2.75, '2.8'), (-.04, '0.0'), (99.95, '100.0'), (float('nan'), '')])
def test_a_number_of_a_table(value, text): assert pm(value) == text

def test_hours_and_bytes_of_a_printed_table(monkeypatch):
    "7.2e17 operations at 1e13 a second are 72,000 seconds, 20 hours; 12 such 10 days; 3 × 2^30 bytes 3 GiB."
    monkeypatch.setattr(reproduce, 'cost_on', lambda p, s: Cost(4, 12345, 7.2e17, 3*2**30))
    p = SimpleNamespace(name='T', apart={}, left_out=lambda: [], seeds=3)
    assert price(p, None, 4, 1e13) == (
        'T: 4 clients with 12,345 images. FedAvg with one seed is some 720,000 tera-operations and sends '
        '3.0 GiB: by a step measured here 20 hours. All that was asked for, methods: 4, seeds: 3, one after '
        'the other: 10.0 days; a method that sees two views or trains critics takes up to three times as '
        'long, and scoring comes on top.')

def test_a_cost_is_that_of_its_parts(monkeypatch):
    "5 rounds, half of 4 clients in each, 2 epochs over 100 images, 7 operations forwards: 3 × 7 × 200 × 2.5."
    monkeypatch.setattr(reproduce, 'net_costs', lambda *_: (7, 11))
    setting = dict(model='m', rounds=5, local_epochs=2, participation=.5)
    p = SimpleNamespace(setting=setting, left_out=lambda: [])
    c = reproduce.cost_of(p, 4, 100, 2, 8)
    assert (c.operations, c.sent) == (3*7*200*2.5, 11*4*2.5)
    steps = SimpleNamespace(setting=setting | dict(local_steps=3, batch_size=8), left_out=lambda: [1, 2])
    assert reproduce.cost_of(steps, 4, 100, 2, 8).operations == 3*7*(3*8*4)*(2.5*2)

def test_the_line_of_a_round(capsys):
    history = SimpleNamespace(rounds=[dict(round=3, up=2.5e6, down=1.5e6, loss=.12345)],
                              timing=[dict(seconds=1.2, eval_seconds=.34)])
    tell_round(SimpleNamespace(history=history, setting=SimpleNamespace(rounds=12)))
    assert capsys.readouterr().err.strip().endswith('round  3 of 12: loss 0.123, 4.0 MB, 1.5 s')

def test_scores_of_a_site():
    "Classes of 3, 1 and 0 images; recall 2/3 and 1, F1 of the first 4/5, of the second 2/3, of the third 0."
    p = torch.eye(3)[[0, 0, 1, 1]]
    s = scores_from(p, torch.tensor([0, 0, 0, 1]))
    assert s['images'] == 4 and s['accuracy'] == 75
    assert s['balanced accuracy'] == pytest.approx(100*(2/3+1)/2)

def test_images_that_turned():
    now, before = torch.tensor([1, 1, 0, 0]).bool(), torch.tensor([0, 1, 1, 1]).bool()
    assert turned(now, before) == '+1 −2'

def test_bytes_of_a_model():
    "Down goes each tensor once: parameters and running statistics of 4 bytes, counters of 8."
    net = small_conv(2, size=8, width=4, seed=0)
    counters = sum(k.endswith('num_batches_tracked') for k in net.state_dict())
    others = sum(v.numel() for k, v in net.state_dict().items() if not k.endswith('num_batches_tracked'))
    assert sum(v.nbytes for v in net.state_dict().values()) == 4*others+8*counters
