"A picture of a difference has the interval that its table prints: no surer than the test images."
import matplotlib.pyplot as plt
import numpy as np
import pytest
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.analysis.plots import seed_points, skew_cost_bars
from fedskew_nb.analysis.report import figures, suite_tables
from fedskew_nb.analysis.stats import t_interval
from fedskew_nb.engine.history import History
from test_diagnose import made
from test_kind_moments import grid

def lines_of(ax):
    "The horizontal lines of a picture: (from, to) by height."
    ends = [(line.get_xdata(), line.get_ydata()) for line in ax.lines]
    return {y[0]: (x[0], x[1]) for x, y in ends if len(y) == 2 and y[0] == y[1]}

@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close('all')

def test_an_interval_is_drawn_as_it_is():
    seeds = [1., 1.1, .9]
    wide = t_interval(seeds, floor=2.)
    drawn = lines_of(seed_points({'FedAvg': wide, 'FedBN': seeds, 'None': [np.nan]}))
    narrow = t_interval(seeds)
    assert drawn[0] == pytest.approx((wide.lo, wide.hi)) and drawn[1] == pytest.approx((narrow.lo, narrow.hi))
    assert wide.hi-wide.lo > 10*(narrow.hi-narrow.lo)

def test_a_diagnosis_draws_what_it_prints():
    d = made(cost=dict(lo=-13.1, hi=12.3, mean=-.4))
    kept = [i for k, i in d.effects.items() if k != 'alone']
    drawn = lines_of(d.draw())
    assert [drawn[y] for y in range(len(kept))] == [pytest.approx((i.lo, i.hi)) for i in kept]

def test_a_report_draws_what_its_table_says():
    cmp = grid()
    drawn = lines_of(figures(cmp, 'toy', suite_tables(cmp, 'toy'))['differences'][1]())
    i = [cmp.paired('toy', ('skew', m), where='personal') for m in ('FedBN', 'FDSE')]
    assert [drawn[y] for y in (0, 1)] == [pytest.approx((k.lo, k.hi)) for k in i]

def test_bars_of_the_skew_cost_are_those_of_the_sentence():
    "Three runs on each deal that differ by one image only: seeds alone would be sure."
    def run(deal, seed, right):
        h = History(dict(method='FedAvg', suite='toy', deal=deal, seed=seed, data_seed=seed, rounds=1))
        facts = dict(round=1, moment='post_agg', view='global', path='', client=-1, n=40)
        h.rows = [facts | dict(domain=d, correct=right) for d in 'ab']
        return h
    runs = [run(deal, s, 20+2*(deal == 'iid')+(s == 0)) for deal in ('iid', 'skew') for s in range(3)]
    i = Comparison(runs).skew_cost()['toy']
    assert i.hi-i.lo > .1 and lines_of(skew_cost_bars(runs))[0] == pytest.approx((i.lo, i.hi))
