"Claims: rows of data, the runs that decide them, their verdicts, and what the command prints."
import hashlib, json, math, re
from dataclasses import replace
import matplotlib.pyplot as plt, numpy as np, pandas as pd
import pytest, torch
from fedskew_nb import (
    alexnet_bn, Comparison, Data, deal_of, F2DC, FDSE, FedAvg, Federation, History, load_suite,
    n_params, payload, read_method, read_suite, resnet10, small_conv, Where)
from feds import cut
from shipped import stored
from fedskew_nb.analysis.claims import Claim, accuracy, budget_of, by_chance
from fedskew_nb.analysis.pairs import by_domain
from fedskew_nb.analysis.claims import claims_table, deciding, gain, measured, on_path, runs_of
from fedskew_nb.analysis.plots import verdict_points
from fedskew_nb.analysis.stats import LOOK, Interval, judge, p_value, t_interval
from fedskew_nb.analysis.claims import read_claims, read_grid, seed_values, seeds_table, verdicts, within
from fedskew_nb.analysis.probes import adabn, inside, models_of
from fedskew_nb.data.images import glance
from fedskew_nb.tools.cli import main
from fedskew_nb.run.plan import planned
from fedskew_nb.core.names import Recipe, papers
from fedskew_nb.nets.models import n_bytes
from fedskew_nb.engine.setting import Setting, setting_for
from fedskew_nb.methods.dfl.claims import diverged, diverges_more, fewer_rounds, more_with_few
from fedskew_nb.methods.f2dc.claims import sooner
from fedskew_nb.methods.fdse.claims import domains_won, paper_operations, wider

PAPERS = {m.CLAIMS[0].id.partition('-')[0]: m for m in papers().values()}
EVERY = [c for m in PAPERS.values() for c in m.CLAIMS]

def toy(method, seed, avg, suite='skew-digits', path='', view='global', moment='post_agg', **measures):
    "A run of one round on two domains, ten points below and above `avg`."
    h = History(dict(method=method, suite=suite, seed=seed, rounds=1))
    h.measures = measures
    where = dict(round=1, moment=moment, view=view, path=path, client=-1, n=10**6)     # images leave no doubt
    h.rows = [where | dict(domain=d, correct=10**4*(avg+k)) for d, k in (('a', -10), ('b', 10))]
    return h

def toys(*pairs): return Comparison([toy(m, s, avg) for m, seeds in pairs for s, avg in seeds.items()])

LETTER = F2DC(preset='paper')      # its modules stay

# ---- files ----
COLUMNS = 'id,says,source,one,other,read,suites,needed\n'
LINE = 'X-1,beats y,Table 1,x,y,gain:AVG,emoji-pacs,2\n'

def written(folder, text):
    (folder/'X.csv').write_text(COLUMNS + text, encoding='utf-8')
    return read_claims('X', folder, sooner=sooner)

def test_a_line_of_a_file_is_a_claim(tmp_path):
    more = 'X-2,sooner,–,x,y; z,sooner,a; b + c,\nX-3,less,–,x,y,"measured:I,-1",a,\n'
    assert written(tmp_path, LINE + more) == [
        Claim('X-1', 'beats y', 'Table 1', 'x', 'y', gain('AVG'), suites=('emoji-pacs',), needed=2.),
        Claim('X-2', 'sooner', '–', 'x', ('y', 'z'), sooner, suites=('a', ('b', 'c'))),
        Claim('X-3', 'less', '–', 'x', 'y', measured('I', -1), suites=('a',))]

@pytest.mark.parametrize('text, said', [
    (LINE + LINE, 'X.csv has X-1 twice'), (LINE.replace(',2', ',two'), "X.csv, X-1: needed is 'two'"),
    (LINE.replace('gain', 'gian'), "X-1: there is no reader 'gian': did you mean gain"),
    (LINE.replace('Table 1', ''), 'X-1: it has no source'), (LINE.replace(',2', ',1e999'), 'needed is inf'),
    (LINE.replace(',2', ',2,3'), 'X-1: ')])
def test_a_line_that_is_no_claim_is_refused_by_its_id(tmp_path, text, said):
    with pytest.raises(ValueError, match=said): written(tmp_path, text)

def test_a_column_that_no_claim_has_is_refused(tmp_path):
    (tmp_path/'X.csv').write_text(COLUMNS.replace('needed', 'neded') + LINE)
    with pytest.raises(ValueError, match="what is 'neded'.*did you mean needed"): read_claims('X', tmp_path)

def test_a_row_of_a_grid_goes_before_its_budget(tmp_path):
    (tmp_path/'X.toml').write_text('''[[budgets]]
lr = 0.1
tuned = "t.json"
rows = [{suite = "mine", methods = ["A"]}, {suite = ["mine", "b"], methods = ["B"], lr = 0.3}]''')
    mine = Recipe('mine', None)
    a, b = read_grid('X', mine, home=tmp_path)
    assert (a['suite'], b['suite'], a['lr'], b['lr']) == ([mine], [mine, 'b'], .1, .3)
    assert a['tuned'].endswith('runs/t.json') and 'rows' not in a and list(a['methods']) == ['A']

# ---- verdicts ----
@pytest.mark.parametrize('values, margin, word', [
    ([1, 1.1, .9], None, 'above 0'), ([-1, -1.1, -.9], None, 'below 0'), ([-1, 1, .1], None, 'open'),
    ([1], None, 'open'), ([.1, .2, .15], 1, 'within the margin'), ([3, 3.1, 2.9], 1, 'outside the margin'),
    ([-3, -3.1, -2.9], 1, 'outside the margin'), ([.9, 1.1, 1.], 1, 'open'),
    ([2, 2, 2], None, 'open'), ([0, 0, 0], 1, 'open')])       # no width decides nothing
def test_judge(values, margin, word): assert judge(values, margin)['verdict'] == word

@pytest.mark.parametrize('values, word', [
    ([3, 3.1, 2.9], 'above 0, as large as printed'),
    ([2, 3, 2.5], 'above 0, size open'),
    ([1, 1.1, .9], 'above 0, smaller than printed'),
    ([-1, -1.1, -.9], 'below 0'),
    ([-.5, -.6, .1], 'open, smaller than printed'),
    ([0, .1, -.1], 'open, smaller than printed'),
    ([-3, -3.1, -2.9], 'below 0'),
    ([-4, 4, 0], 'open'),
    ([3], 'open'),
    ([3, 3, 3], 'open')])
def test_a_claim_says_what_it_needs(values, word): assert judge(values, needed=1.9)['verdict'] == word

@pytest.mark.parametrize('seed', range(50))
def test_a_narrower_interval_only_sharpens(seed):
    "An answer that is no longer open stays, whatever interval lies inside the first one."
    g = np.random.default_rng(seed)
    mean, half, needed = float(g.normal(0, 3)), g.uniform(.1, 5), float(g.uniform(.5, 4))
    wide = Interval((0, 1), mean, 1, float(mean-half), float(mean+half))
    lo, hi = sorted(map(float, g.uniform(wide.lo, wide.hi, 2)))
    inner = Interval((0, 1), (lo+hi)/2, 1, lo, hi)
    for how in (dict(needed=needed), dict(margin=needed)):
        was, now = (vars(i.verdict(**how)) for i in (wide, inner))
        assert all(now[k] == v for k, v in was.items() if v != 'open')

def test_more_seeds_make_the_word_surer():
    "A true +1.9 of a needed 3, spread as in F2DC-01: 'holds' came in .45 of cases at 5 seeds, in .01 at 40."
    g, often = np.random.default_rng(0), {}
    for n in (5, 40):
        words = [judge(g.normal(1.9, 1.54, n), needed=3)['large'] for _ in range(300)]
        often[n] = words.count('smaller')/300
        assert words.count('yes') <= 300*.05
    assert often[5] < .3 and often[40] > .9

def test_showable_is_at_eighty_percent():
    "Of draws with this effect, four of five hold."
    i = judge([1, 2, 4])
    assert i['showable'] == pytest.approx(3.264*np.std([1, 2, 4], ddof=1), rel=1e-3)
    assert i['showable'] > (i['hi']-i['lo'])/2
    assert judge([2, 2])['showable'] == 0 and math.isnan(judge([2])['showable'])

def test_a_verdict_needs_a_seed():
    assert math.isnan(judge([5.])['lo'])
    with pytest.raises(ValueError, match='at least one seed'): judge([])

def test_a_stopped_run_has_lost_everything():
    stopped = History(dict(method='x'))
    stopped.measures = dict(stopped='NaN')
    assert accuracy(stopped) == 0 and gain()(toy('F2DC', 0, 60), stopped) == 60

def test_the_sign_is_the_claims_side():
    cmp = toys(('F2DC', {s: 60 for s in range(3)}), ('FedAvg', {s: 60 for s in range(3)}))
    for h in cmp.histories:
        if h.setting['method'] != 'F2DC': continue
        h.rows[0]['correct'] += 8 + h.setting['seed']     # nearer together: fairer
    fairer = Claim('X', 'is fairer', '', 'F2DC', 'FedAvg', gain('STD', -1), suites=('skew-digits',))
    row, = verdicts([fairer], cmp).to_dict('records')
    assert row['verdict'] == 'above 0' and row['mean'] > 0 and row['n'] == 3

def test_what_a_claim_lists_may_be_a_list():
    cmp = toys(('F2DC', {s: 60+s for s in range(3)}), ('FedAvg', {s: 50 for s in range(3)}))
    mean = lambda a, others: gain()(a, others[0])
    c = Claim('X', 'is better', '', 'F2DC', ['FedAvg'], mean, suites=['skew-digits'])
    row, = verdicts([c], cmp).to_dict('records')
    assert row['n'] == 3 and row['mean'] == 11

def test_a_claim_may_name_the_iid_control():
    "What the skew costs, and how much more of it there is on one of two suites."
    levels = {'colored-mnist': 60, 'colored-mnist/iid': 65,
              'colored-mnist-10': 30, 'colored-mnist-10/iid': 45}
    runs = [toy('FedAvg', s, avg+s, suite) for s in range(3) for suite, avg in levels.items()]
    cost = Claim('X', 'costs', '', 'FedAvg/iid', 'FedAvg', gain(), suites=('colored-mnist',))
    more = replace(cost, read=more_with_few, suites=(('colored-mnist-10', 'colored-mnist'),))
    assert seed_values(cost, Comparison(runs), 'colored-mnist') == [5]*3
    assert seed_values(more, Comparison(runs), more.suites[0]) == [10]*3

def test_a_measure_of_which_less_is_better():
    a, b = toy('F2DC', 0, 60, heat=1.), toy('FedAvg', 0, 60, heat=3.)
    assert measured('heat')(a, b) == -2 and measured('heat', -1)(a, b) == 2

def curve(*scores, losses=(2., 1.)):
    h = History(dict(rounds=len(scores)))
    row = dict(view='personal', moment='post_agg', path='', domain='red', client=0, n=100)
    h.rows = [row | dict(round=t+1, correct=v) for t, v in enumerate(scores)]
    h.rounds = [dict(loss=v) for v in losses]
    return h

def test_fewer_rounds_are_restricted_to_those_that_were_run():
    "A run that never arrives counts with its length: at worst that hides a difference."
    late, soon, never = curve(20, 40, 60, 80), curve(50, 80, 82, 81), curve(10, 20, 30, 40)
    assert [fewer_rounds(h, late) for h in (soon, late, never)] == [50, 0, 0]

def test_what_diverges():
    stopped = curve(10)
    stopped.measures = dict(stopped='NaN')
    fine, up, nan = (curve(10, losses=v) for v in ((2., 1.), (1., 2.), (1., math.nan)))
    assert [diverged(h) for h in (fine, up, nan, stopped)] == [False, True, True, True]
    assert diverges_more(fine, stopped) == 100 == -diverges_more(up, fine) and diverges_more(up, nan) == 0

BEATS = Claim('X-01', 'beats', '', 'F2DC', 'FedAvg', gain())

def test_only_seeds_that_both_have():
    cmp = toys(('F2DC', {0: 60, 1: 61, 2: 62, 5: 65}), ('FedAvg', {1: 50, 2: 50, 3: 50, 5: 50}))
    assert len(seed_values(BEATS, cmp, 'skew-digits')) == 3 and seed_values(BEATS, cmp, 'emoji-pacs') == []

def test_a_claim_may_say_how_long():
    "Runs of another length do not decide it, nor do they name the table's budget."
    cmp = toys(('F2DC', {0: 60, 1: 61, 2: 63}), ('FedAvg', {0: 50, 1: 50, 2: 50}))
    for h in cmp.histories: h.setting |= dict(rounds=4, local_epochs=2, model='net', lr=.1)
    long = toys(('F2DC', {8: 51, 9: 52}), ('FedAvg', {8: 50, 9: 50}))
    for h in long.histories: h.setting |= dict(rounds=8, local_epochs=2, model='net', lr=.1)
    both = Comparison(cmp.histories+long.histories)
    assert seed_values(replace(BEATS, rounds=8), both, 'skew-digits') == [1, 2]
    assert seed_values(replace(BEATS, rounds=4), both, 'skew-digits') == [10, 11, 13]
    asked = [replace(BEATS, rounds=8)]
    assert len(deciding(asked, both)) == 4 and len(deciding([*asked, BEATS], both)) == 10
    assert 'at 8 × 2' in claims_table(asked, both).caption
    assert verdicts([replace(BEATS, rounds=3)], both).verdict.tolist() == ['not run for 3 rounds']

def test_a_missing_measure_is_no_verdict():
    cmp = Comparison([toy('F2DC', 0, 60, rank=1.), toy('FedAvg', 0, 60)])
    assert seed_values(replace(BEATS, read=measured('rank')), cmp, 'skew-digits') == []

def test_a_path_is_read_as_if_there_were_no_other():
    a = toy('F2DC', 0, 60, path='client')
    a.rows += toy('F2DC', 0, 40, path='backbone').rows
    cmp = Comparison([a, toy('FedAvg', 0, 50)])
    assert seed_values(BEATS, cmp, 'skew-digits') == [10]
    assert seed_values(replace(BEATS, path='backbone'), cmp, 'skew-digits') == [-10]
    assert on_path(a, '') is a and len(a.rows) == 4

def test_what_waits_says_so():
    waits = replace(BEATS, pending='Ditto')
    assert verdicts([waits], toys(('Local', {0: 1}))).verdict.tolist() == ['pending: needs Ditto']
    assert verdicts([BEATS], toys(('Local', {0: 1}))).verdict.tolist() == ['not run']
    assert 'not run' in str(claims_table([BEATS], None))

def test_several_suites_count_as_one():
    names = tuple(f'emoji-pacs-without-{d}' for d in 'ab')
    gained = {(x, s): 10.+g+s for x, g in zip(names, (2, 4)) for s in range(3)}
    cmp = Comparison([toy('FDSE', s, 60, suite=x, plain=10., adapted=v) for (x, s), v in gained.items()])
    c = Claim('X', 'adapts', '', 'FDSE', 'FDSE', within('adapted', 'plain'), suites=(names,))
    row, = verdicts([c], cmp).to_dict('records')
    assert row['values'] == [3, 4, 5] and row['suite'] == 'emoji-pacs, one domain left out'
    assert seed_values(c, Comparison(cmp.histories[:3]), names) == []           # one of the two is missing

def test_a_table_says_budget_and_chance():
    cmp = stored('claims-F2DC')
    t = claims_table([c for c in PAPERS['F2DC'].CLAIMS if c.rounds == 4], cmp, 'Claims')
    assert 'at 4 × 8, small_conv, one client per domain, lr 0.03, or tuned' in t.caption
    assert 'Chance alone would put' in t.notes[-1]
    forty = pd.DataFrame(dict(n=[3]*40, verdict='above 0', above=['yes']*30+['open']*10, large='', within=''))
    assert by_chance(forty) == ('Intervals: 40; above 0: 30 yes, 10 open. '
                                'Chance alone would put about 1.0 on each side of 0.')

def test_the_foot_counts_what_was_answered():
    "Neither one seed nor what is said instead of a verdict; a margin that is open is one of its question."
    runs = toys(('FedAvg', {s: 50+s for s in range(4)}), ('F2DC', {s: 58+s+s % 2 for s in range(4)}),
                ('FedBN', {0: 50, 1: 53, 2: 59, 3: 54}), ('Ditto', {0: 60}),
                ('MOON', {s: 61+s*s for s in range(4)}))
    def of(k, one, **more): return replace(BEATS, id=f'X-{k}', one=one, suites=('skew-digits',), **more)
    d = verdicts([of(1, 'F2DC'), of(2, 'FedBN', margin=1.), of(3, 'Ditto'),
                  of(4, 'MOON', instead='not testable here')], runs)
    assert by_chance(d).startswith('Intervals: 2; above 0: 1 yes; no difference: 1 open.')

def test_a_claim_is_no_surer_than_the_test_images():
    "As the table of the same runs: three seeds, 20 images a domain, one of them more right."
    def run(m, s, right):
        h = toy(m, s, 0)
        for r, k in zip(h.rows, right): r.update(n=20, correct=k)
        return h
    runs = [run('FedAvg', s, (10, 11)) for s in range(3)]
    runs += [run('F2DC', s, (11, 11+(s == 2))) for s in range(3)]
    for h in runs: h.setting['deal'] = 'skew'
    cmp, claim = Comparison(runs), replace(BEATS, suites=('skew-digits',), needed=1.)
    i, r = cmp.paired('skew-digits', ('skew', 'F2DC')), verdicts([claim], cmp).iloc[0]
    assert (r['lo'], r['hi'], r.above) == (pytest.approx(i.lo), pytest.approx(i.hi), i.verdict().above)
    assert i.se > t_interval(r['values']).se
    assert f'{i.lo:.1f}' in claims_table([claim], cmp).cells.difference[0]

@pytest.mark.parametrize('call, word', [
    (lambda: judge([1, 2, math.nan]), 'leave out seeds without a number'),
    (lambda: judge([.1, 0, -.1], margin=-1), 'give a number above 0')])
def test_no_word_for_what_is_no_number(call, word):
    with pytest.raises(ValueError, match=word): call()

def test_both_suites_stand_in_one_row():
    "Verdict first, words at the left, numbers at the right."
    sides = [('F2DC', 60, 1), ('FedAvg', 50, 2)]
    runs = [toy(m, s, a+k*s, x) for x in ('skew-digits', 'emoji-pacs') for m, a, k in sides for s in range(3)]
    t = claims_table([BEATS, replace(BEATS, id='X-02', pending='Ditto')], Comparison(runs))
    assert t.cells.columns[0] == 'verdict' and t.cells.claim.tolist() == [BEATS.id, 'X-02']
    assert t.cells.suite[0] == 'skew-digits / emoji-pacs'
    assert t.cells.verdict.tolist() == ['above 0', 'pending: needs Ditto']
    assert t.cells.n[0] == '3' and len(t.numbers) == 3
    sides = dict(zip(t.cells, re.findall(r':?-+:?', t.markdown().splitlines()[3])))
    assert sides['sentence'].startswith(':') and sides['n'].endswith(':')
    assert not any(re.match(r'[*+-] ', note) for note in t.notes)          # a list item in Markdown

def test_seeds_by_the_spread_of_pilots():
    "A claim without pilots has its row, too."
    c = replace(BEATS, needed=1.)
    runs = toys(('F2DC', {0: 61, 1: 62, 2: 63}), ('FedAvg', {0: 60, 1: 60, 2: 60}))
    t = seeds_table([c, replace(c, id='X-02', one='Local')], runs)
    assert t.cells.seeds.tolist() == ['10', 'too few pilots'] and t.cells.pilots.tolist() == ['3', '0']

# ---- a family of claims ----
HEAD = replace(BEATS, needed=2., headline=True)
LARGE = 'above 0, as large as printed'
FIVE = toys(('F2DC', {0: 59, 1: 60, 2: 61}), ('FedAvg', {0: 50, 1: 55, 2: 57}))      # 9, 5, 4: p = .0573
SURE = toys(('F2DC', {0: 59, 1: 60, 2: 61}), ('FedAvg', {0: 54, 1: 55, 2: 55}))      # 5, 5, 6: p = .0039

def word(cmp, family, c=HEAD): return verdicts([c], cmp, family).verdict[0]

def test_holm_takes_the_declared_family():
    "Claims without runs count; those that are no headline, or ask for a margin, do not."
    pending = [replace(HEAD, id=f'X-{k}', pending='more') for k in range(30)]
    assert word(SURE, None) == word(SURE, [HEAD, *pending[:6]]) == LARGE
    assert word(SURE, [HEAD, *pending[:13]]) == 'open by Holm'
    for no in (dict(headline=False), dict(margin=1.)):
        assert word(SURE, [HEAD, *(replace(c, **no) for c in pending)]) == LARGE
    assert word(FIVE, None) == 'open'

def test_holm_judges_the_first_suite_only():
    more = [toy('F2DC', s, a, 'emoji-pacs') for s, a in enumerate((60, 61, 62))]
    more += [toy('FedAvg', s, a, 'emoji-pacs') for s, a in enumerate((50, 51, 51))]
    runs = Comparison([*SURE.histories, *more])
    pending = [replace(HEAD, id=f'X-{k}', pending='more') for k in range(30)]
    d = verdicts([HEAD], runs, [HEAD, *pending])
    assert d.verdict.tolist() == ['open by Holm', LARGE] and math.isnan(d.holm[1])

def test_below_0_must_survive_too():
    lost = toys(('F2DC', {0: 50, 1: 50, 2: 51}), ('FedAvg', {0: 55, 1: 56, 2: 57}))
    assert word(lost, None) == 'below 0' and word(lost, [HEAD]*20) == 'open by Holm, smaller than printed'
    assert word(lost, [HEAD]*20, replace(HEAD, needed=None)) == 'open by Holm'

@pytest.mark.parametrize('rounds', [32, 64])
def test_a_claim_that_is_asked_otherwise_takes_its_own_p(rounds):
    "Holm's p is never below that of the interval beside it; at 32 rounds it was that of 64."
    asked = [replace(c, rounds=rounds) for c in PAPERS['FedDDL'].CLAIMS if c.headline]
    d = verdicts(asked, stored('claims-FedDDL')).dropna(subset='holm')
    assert len(d) == 6
    assert all(r.holm >= p_value(t_interval(r['values'])) for _, r in d[d.holm < 1].iterrows())

def test_instead_of_a_verdict():
    gate = replace(HEAD, id='X-02', instead='not tested')
    assert word(SURE, None, gate) == 'not tested' == verdicts([gate], toys(('Local', {0: 1}))).verdict[0]
    assert verdicts([HEAD], SURE, [HEAD, gate]).holm[0] == pytest.approx(2*verdicts([HEAD], SURE).holm[0])

def test_a_table_says_what_was_needed():
    t = claims_table([HEAD], SURE)
    assert t.cells.iloc[0][['verdict', 'holm', 'needed']].tolist() == [LARGE, '0.0039', '2']
    assert "Holm's rule" in t.notes[1] and 'half of what it prints' in t.notes[2]
    small = claims_table([replace(HEAD, needed=9.)], SURE)
    assert small.cells.verdict[0] == 'above 0, smaller than printed' and '1 smaller' in small.notes[3]
    lost = toys(('F2DC', {0: 50, 1: 50, 2: 51}), ('FedAvg', {0: 55, 1: 56, 2: 57}))
    small = claims_table([replace(HEAD, needed=9.)], lost)
    assert small.cells.verdict[0] == 'below 0' and '1 below' in small.notes[3]
    assert not {'needed', 'holm'} & {*claims_table([BEATS], SURE).cells}

def test_a_claim_without_a_verdict_is_a_cross():
    "Neither open nor anything else: it was not asked."
    d = verdicts([HEAD, replace(HEAD, id='X-02', instead='true by construction')], SURE)
    ax = verdict_points(d)
    assert [line.get_marker() for line in ax.lines[:len(d)]] == [LOOK[d.verdict[0]][0], 'x']
    plt.close('all')

def test_the_budget_says_how_many_trials():
    runs = toys(('F2DC', {0: 60}), ('FedAvg', {0: 50}))
    for h, n, lr in zip(runs.histories, (4, 6), (.1, .3)):
        h.setting |= dict(rounds=4, local_epochs=2, model='net', lr=lr, trials=n)
    assert budget_of(runs) == '4 × 2, net, lr tuned in 4 to 6 trials'
    runs.histories[1].setting['trials'] = 4
    assert budget_of(runs).endswith('lr tuned in 4 trials')

# ---- readers of the papers ----
def own(acc, moment='post_agg', rounds=None):
    h = toy('x', 0, 50, suite='emoji-pacs')
    h.setting['rounds'] = rounds
    where = dict(round=1, moment=moment, view='personal', path='', n=100)
    h.rows = [where | dict(domain=d, client=i, correct=a) for i, (d, a) in enumerate(zip('abcd', acc))]
    return h

def test_domains_won_and_ranges():
    a, b, c = own((60, 60, 60, 50)), own((50, 50, 50, 55)), own((40, 40, 40, 40))
    assert domains_won(a, (b, c)) > 0 > domains_won(b, (a, c))
    assert wider(a, (b, c, a, a)) > 0 > wider(a, (a, a, b, c))
    assert by_domain(a, 'personal') == (dict(a=60, b=60, c=60, d=50), dict(a=100, b=100, c=100, d=100))
    late = gain(where=Where('personal', 'post_local'))
    assert late(own([70]*4, 'post_local'), own([60]*4, 'post_local')) == 10

def test_sooner_needs_every_round():
    a, b = own([50]*4), own([50]*4)
    for h in (a, b): h.rows = [r | dict(view='global', client=-1) for r in h.rows]
    b.rows += [r | dict(round=2) for r in b.rows]
    with pytest.raises(KeyError, match='every round'): sooner(a, b)

def test_longer_runs_are_another_run():
    short, long = own([50]*4, rounds=4), own([60]*4, rounds=12)
    more = own([60]*4, rounds=12)
    more.setting['seed'] = 1
    cmp = Comparison([long, more, short])
    assert runs_of(cmp, 'x', 'emoji-pacs') == {0: short}
    assert runs_of(cmp, 'x', 'emoji-pacs', rounds=12) == {0: long, 1: more}

# ---- the papers' lists ----
def test_ids_and_headlines():
    assert len({c.id for c in EVERY}) == len(EVERY)
    heads = {re.match(r'\w+-\d+', c.id)[0] for c in EVERY if c.headline}
    named = dict(F2DC='01 02 05 11 14', FDSE='01 02 07 09 10')
    named |= dict.fromkeys(('FedDDL', 'RFedDis', 'DFL'), '1 2 3 4 5 6')
    assert heads == {f'{p}-{n}' for p, ns in named.items() for n in ns.split()}

@pytest.mark.parametrize('c', EVERY, ids=lambda c: c.id)
def test_a_row_is_whole(c):
    "It waits, or names methods as the registry writes them."
    assert bool(c.pending) != bool(c.read)
    for m in c.methods if c.read else ():
        name = m.partition('/')[0]
        assert read_method(name).name == name

MATTER = 'rounds', 'batch_size', 'lr', 'participation', 'momentum', 'weight_decay'

def facts_of(method, suite, deal, seed, model, setting):
    s = vars(Setting()) | setting
    return method, suite, deal, seed, model, s['local_steps'] or s['local_epochs'], *(s[k] for k in MATTER)

def planned_facts(run):
    setting = vars(setting_for(run.method.made, run.protocol, **run.setting))
    return facts_of(run.method.name, run.suite.name, run.deal, run.seed, run.model.name, setting)

@pytest.mark.parametrize('paper', PAPERS)
def test_the_grid_makes_the_stored_runs(paper):
    "Same methods, suites, deals, seeds, nets and settings; no run more and none less."
    made = set()
    for g in PAPERS[paper].GRID:
        todo = planned(**g)
        assert all(u.method.made.name == u.method.name for u in todo)
        made |= set(map(planned_facts, todo))
    kept = {facts_of(h.setting['method'], *deal_of(h), h.setting['seed'], h.setting['model'], h.setting)
            for h in stored(f'claims-{paper}').histories}
    assert made == kept

def labels_fingerprint(s):
    "What the stored runs say of their data: classes, domains and labels of all parts."
    h = hashlib.blake2b(repr((s.classes, s.image_size)).encode(), digest_size=8)
    named = [(f'{c.id} {c.domain} {p}', getattr(c, p)) for c in s.clients for p in ('train', 'val')]
    for k, d in [*named, *s.tests.items(), *s.unseen.items()]:
        h.update(f'{k} {len(d)}'.encode())
        h.update(d.y.numpy().astype('<i8').tobytes())
    return h.hexdigest()

def test_the_stored_budget_can_be_trained_again():
    "The size `stress` deals the images of the stored runs."
    for suite in ('skew-digits', 'emoji-pacs'):
        h = runs_of(stored('claims-F2DC'), 'FedAvg', suite)[0]
        if 'fingerprint' not in h.setting: continue
        assert labels_fingerprint(load_suite(suite, 'stress', 0)) == h.setting['fingerprint']

def test_headlines_have_eight_seeds():
    d = pd.concat([verdicts(m.CLAIMS, stored(f'claims-{p}')) for p, m in PAPERS.items()])
    assert (d[d.headline].n >= 8).all() and budget_of(stored('claims-FDSE')).startswith('4 × 8')

# ---- claims that are counted ----
def test_f2dc_uploads_what_fedavg_uploads():
    "F2DC-21: the same names and bytes; the released preset sends its modules, too."
    net = resnet10(7, size=32, width=16)
    up = lambda m: payload(m.adapt(net), m)['travels']
    ours = LETTER.adapt(net)
    assert up(LETTER) == up(FedAvg) < up(F2DC)
    assert set(ours.state_dict()) - LETTER.kept(ours) == set(net.state_dict())

def test_fdse_halves_parameters_bytes_and_operations():
    "FDSE-15: all six cells of Table 4, to the digit."
    plain = alexnet_bn(10, size=256)
    counts = lambda net: (n_params(net), n_bytes(net), paper_operations(net))
    ours = FDSE(preset='released').adapt(plain)
    assert counts(plain) == (12_974_154, 51_922_272, 44_079_433_600)
    assert counts(ours) == (6_509_034, 26_074_648, 22_391_112_000)
    assert paper_operations(FDSE.adapt(plain)) == 22_313_083_200      # with the paper's padding

# ---- the command ----
def test_command(capsys, tmp_path):
    assert main(['claims', 'F2DC-07']) == 0 and 'F2DC-07-stress-backbone' in capsys.readouterr().out
    assert main(['claims', 'F2DC*shared', '--json']) == 0
    assert {r['id'].rpartition('-')[2] for r in json.loads(capsys.readouterr().out)} == {'shared'}
    assert main(['claims', 'F3DC']) == 2 and 'no claim begins' in capsys.readouterr().err
    assert main(['claims', '--out', str(tmp_path/'none')]) == 2 and 'is no folder' in capsys.readouterr().err

def test_command_judges_a_folder(capsys, tmp_path):
    for s in range(2):
        for m, avg in (('F2DC', 60+s), ('FedAvg', 50)):
            h = toy(m, s, avg)
            h.setting['rounds'] = 4
            h.save(tmp_path/'runs'/f'{m}{s}.json')
    (tmp_path/'runs'/'torn.json').write_text('{')
    assert main(['claims', 'F2DC-01-stress-shared', '--out', str(tmp_path), '--json']) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(r['id'], r['n'], r['mean']) for r in found if r['n']][0] == ('F2DC-01-stress-shared', 2, 10.5)

def test_a_verdict_does_not_hang_on_what_is_shown(capsys, tmp_path, monkeypatch):
    "The command judges a claim with its whole paper, also where it shows it alone."
    for h in SURE.histories: h.save(tmp_path/'runs'/f'{h.setting["method"]}{h.setting["seed"]}.json')
    family = [HEAD, *(replace(HEAD, id=f'X-{k}', pending='more') for k in range(30))]
    def claims(which=''): return {'X': family[:1] if which else family}
    monkeypatch.setattr('fedskew_nb.tools.catalogue.claims_of', claims)
    assert main(['claims', 'X-01', '--out', str(tmp_path)]) == 0
    assert re.search(r'\bopen\b', capsys.readouterr().out)

# ---- measures ----
def test_models_of_and_measure():
    s = cut(load_suite('emoji-pacs', size='tiny'), (32, 32, 32, 32), tests=32)
    def fed(m):
        net = small_conv(s.n_classes, size=s.image_size, width=4)
        f = Federation(m, net, s, rounds=1, local_steps=2, lr=.03)
        f.fit()
        return f
    a, b, c = map(fed, (FedAvg, LETTER, F2DC))
    assert [list(models_of(f)) for f in (a, b, c)] == [[-1], [c.id for c in s.clients], [-1]]
    ma, mb = PAPERS['F2DC'].MEASURE(a), PAPERS['F2DC'].MEASURE(b)
    assert set(ma) == {'rank', 'class_silhouette', 'domain_silhouette', 'saliency', 'restated'}
    assert set(mb) - set(ma) == {'plus', 'minus', 'star', 'whole', 'm_plus', 'm_minus', 'm_star'}
    assert all(math.isfinite(v) for v in mb.values()) and 1 <= ma['rank'] <= 128

def test_restating_touches_no_weight():
    s = load_suite('skew-digits', size='tiny')
    net = F2DC.adapt(small_conv(s.n_classes, size=s.image_size, width=4))
    before = {n: v.clone() for n, v in net.state_dict().items()}
    new = adabn(net, s.clients[0].train)
    assert all(torch.equal(v, net.state_dict()[n]) for n, v in before.items())
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), new.parameters())) and not new.training

def test_glance_is_even():
    d = Data(torch.zeros(10, 3, 4, 4, dtype=torch.uint8), torch.arange(10))
    assert glance(d, 5).y.tolist() == [0, 2, 4, 6, 8] and len(glance(d, 100)) == 10

def test_heat_of_nothing_counts_as_uniform():
    m = torch.zeros(1, 1, 4, 4, dtype=torch.uint8)
    m[..., :2] = 255
    assert inside(torch.zeros(1, 4, 4), m) == .5

# ---- suites whose clients differ in size ----
def test_uneven_suites():
    even, uneven = read_suite('skew-digits', 'tiny', 0), read_suite('skew-digits-uneven', 'tiny', 0)
    n, sizes = len(even.clients[0].train), lambda s: [len(c.train) for c in s.clients]
    assert uneven.name == 'skew-digits-uneven' and sizes(uneven) == [round(n*(5-i)/5) for i in range(5)]
    assert sizes(read_suite('skew-digits-uneven', 'tiny', 1))[-1] == n
    assert [len(c.test) for c in uneven.clients] == [len(c.test) for c in even.clients]
    again = read_suite('skew-digits-uneven', 'tiny', 0)
    assert uneven.fingerprint() == again.fingerprint() != even.fingerprint()
    with pytest.raises(ValueError, match="no suite 'digits-uneven'"): read_suite('digits-uneven', 'tiny')
