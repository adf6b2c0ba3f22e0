"Three moments of scoring: every screen that compares methods shows each, and judges it beside the others."
import json, math
from statistics import mean, stdev
import numpy as np
import pytest
from scipy import stats
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.analysis.overview import moment_tables
from fedskew_nb.analysis.report import last_screen, suite_tables, write_report
from fedskew_nb.analysis.stats import holm
from fedskew_nb.engine.history import History
from fedskew_nb.tools.cli import show
from shipped import stored

METHODS, DOMAINS, SEEDS, ROUNDS = ('FedAvg', 'FedBN', 'FDSE'), 'abc', range(4), (2, 4, 6)
HEADS = dict(post_agg='received', post_local='after local training', adabn='re-estimated')
SKILL = dict(FedAvg=(500, 520, 580), FedBN=(560, 570, 585), FDSE=(430, 600, 581))
N = 1000

def run(method, seed, moments=tuple(HEADS), view='personal'):
    "Three checks on three domains, at these moments; counts are drawn."
    g = np.random.default_rng([seed, *method.encode()])
    h = History(dict(method=method, suite='toy', seed=seed, rounds=6, record=True))
    facts = dict(view=view, path='', n=N)
    for moment, skill in zip(HEADS, SKILL[method]):
        for r in ROUNDS:
            for client, d in enumerate(DOMAINS):
                row = facts | dict(round=r, moment=moment, domain=d, client=client)
                h.rows.append(row | dict(correct=skill+int(g.integers(-60, 60))))
    h.rows = [r for r in h.rows if r['moment'] in moments]
    return h

def grid(**how): return Comparison(run(m, s, **how) for m in METHODS for s in SEEDS)

def score(h, moment):
    "Mean over domains of the share that is right in three checks, by a plain loop."
    of = {}
    for r in h.rows:
        if r['moment'] != moment: continue
        right, asked = of.get(r['domain'], (0, 0))
        of[r['domain']] = right+r['correct'], asked+r['n']
    return mean(100*right/asked for right, asked in of.values())

def by_hand(cmp, method, moment):
    "Seeds' differences to FedAvg at this moment; mean and ends of the interval; p."
    at = {(h.setting['method'], h.setting['seed']): score(h, moment) for h in cmp.histories}
    d = [at[method, s]-at['FedAvg', s] for s in SEEDS]
    t = stats.ttest_1samp(d, 0)
    half = stats.t.ppf(.975, len(d)-1)*stdev(d)/math.sqrt(len(d))
    return mean(d), mean(d)-half, mean(d)+half, t.pvalue

@pytest.mark.parametrize('moment', HEADS)
def test_a_difference_of_each_moment_by_a_plain_loop(moment):
    cmp = grid()
    cells = cmp.moments('personal').cells.set_index('method')[HEADS[moment]]
    others = METHODS[1:]
    hand = {m: by_hand(cmp, m, moment) for m in others}
    for m, p in zip(others, holm([hand[m][3] for m in others])):
        at, lo, hi, _ = hand[m]
        word = 'open' if p >= .05 or lo < 0 < hi else 'above 0' if at > 0 else 'below 0'
        assert cells[m] == f'{at:+.1f} ({lo:.1f} to {hi:.1f}), {word}'
    levels = [score(h, moment) for h in cmp.histories if h.setting['method'] == 'FedAvg']
    assert cells['FedAvg'] == f'{mean(levels):.1f} %'

def test_no_table_of_one_moment_says_otherwise():
    cmp = grid()
    tables = suite_tables(cmp, 'toy')
    beside = tables['personal-moments'].numbers
    for moment, name in zip(HEADS, ('personal', 'personal-local', 'personal-adabn')):
        own = beside[beside.moment == HEADS[moment]].drop(columns='moment').reset_index(drop=True)
        assert own.equals(tables[name].numbers)

def test_every_screen_has_all_three(tmp_path, capsys, unsaved):
    cmp = grid()
    kinds = 'report.html', 'table.tex', 'table.md'
    files = {k: p.read_text() for k, p in write_report(cmp, tmp_path).items() if k in kinds}
    cell = cmp.moments().cells.set_index('method').loc['FDSE', 're-estimated']
    for text in (last_screen(cmp), *files.values()):
        plain = text.replace('$', '')
        assert all(head in plain for head in HEADS.values()) and cell in plain
    show(cmp, tmp_path, json=True)
    printed = json.loads(capsys.readouterr().out)
    assert {r['moment'] for r in printed['tables']['toy']['personal-moments']} == {*HEADS.values()}
    facts = [f for f in printed['facts']['toy'] if f['question'] == 'ahead' and 'interval' in f]
    assert {f['where'] for f in facts} == {'personal view, received', 'personal view, re-estimated'}
    for f in facts:
        i = f['interval']
        number = f"over {f['other']} by {i['mean']:.1f} points ({i['lo']:.1f} to {i['hi']:.1f}), {f['word']}"
        assert number in printed['sentences']['toy']['ahead']
    assert '; personal view, otherwise received, ' in printed['sentences']['toy']['ahead']

def test_the_story_says_the_first_with_both_re_estimated():
    cmp = grid()
    i = cmp.paired('toy', ('skew', 'FedBN'), where=('personal', 'adabn', ''))
    assert f'BatchNorm statistics of both re-estimated, over FedAvg by {i: points}' in cmp.story()['ahead']
    assert 're-estimated' not in grid(moments=('post_agg', 'post_local')).story()['ahead']

def test_runs_of_before_say_what_nobody_scored():
    cmp = stored('sums-2026-11-25')
    for suite in cmp.suites:
        t = moment_tables(cmp, suite)['personal-moments']
        assert [*t.cells] == ['method', 'received', 'after local training']
        assert 'Re-estimated statistics: not scored in these runs.' in t.notes

def test_one_moment_alone_needs_no_table():
    assert moment_tables(grid(moments=('post_agg',)), 'toy') == {}
    assert list(moment_tables(grid(moments=('post_agg', 'adabn')), 'toy')) == ['personal-moments']

def test_who_was_not_asked_is_named():
    few = [h for h in grid().histories if h.setting['method'] != 'FDSE']
    cmp = Comparison([*few, *(run('FDSE', s, ('post_agg', 'adabn') if s else ('post_agg',)) for s in SEEDS)])
    t = cmp.moments()
    assert t.cells.set_index('method').loc['FDSE', 'after local training'] == ''
    assert 'Not scored after local training: FDSE.' in t.notes
    assert t.notes[1] == '4 seeds.' and 'Fewer than 4 seeds: FDSE, re-estimated (3).' in t.notes

def test_one_seed_has_no_interval():
    cells = Comparison([h for h in grid().histories if not h.setting['seed']]).moments().cells
    assert all('(one seed), open' in text for text in cells.iloc[1, 1:]) and 'nan' not in str(cells)

def test_without_fedavg_there_are_levels():
    cmp = Comparison(h for h in grid().histories if h.setting['method'] != 'FedAvg')
    assert all(text.endswith(' %') for text in cmp.moments().cells.iloc[:, 1])
    few = Comparison([h for h in cmp.histories if h.setting['method'] != 'FDSE' or h.setting['seed']])
    assert ('Fewer than 4 seeds: FDSE, received (3); FDSE, after local training (3); FDSE, re-estimated (3).'
            in few.moments().notes)

def test_why_a_method_is_open_beside_itself():
    "As FedAvg + AdaBN is, re-estimated; what is said of each moment is said once."
    twins = [run('FedAvg', s) for s in SEEDS]
    for h in twins:
        h.setting['method'] = 'FedBN'
        for r in h.rows: r['correct'] -= (9+h.setting['seed'])*(r['moment'] != 'adabn')
    cmp = Comparison([*(h for h in grid().histories if h.setting['method'] != 'FedBN'), *twins])
    notes = cmp.moments().notes
    assert 're-estimated: Open, for all seeds differ from FedAvg by the same: FedBN.' in notes
    assert [n for n in notes if 'Score' in n] == ['Score: mean of the checks after rounds 2, 4 and 6.']
