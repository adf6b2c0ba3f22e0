"The foot of a table and the five sentences, on histories made by hand and against plain loops."
import math
import numpy as np, pytest
from scipy import stats
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.analysis.report import last_screen, tables_text, write_report
from fedskew_nb.analysis.story import DONE, MIXED, ranking
from fedskew_nb.analysis.table import at_chance, budget_text, foot, late_rise
from fedskew_nb.core.seeding import generator
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.reading import Where
from fedskew_nb.engine.history import History
from fedskew_nb.engine.setting import Setting, schedule
from shipped import stored

QUESTIONS = ['skew', 'federating', 'ahead', 'cost', 'next']
OWN = ('personal',)

def history(method, seed, avg, deal='skew', views=('global', 'personal'), rise=0., mb=1., **setting):
    "Scored after rounds 12 and 16; `mb`: what each of two clients sends and receives."
    facts = dict(suite='toy', rounds=16, local_epochs=2, steps=[4, 4], chance=10.)
    h = History(facts | dict(method=method, deal=deal, seed=seed) | setting)
    each = dict(loss=1., terms={}, participants=[3, 8], up=mb*1e6/16, down=mb*1e6/16)
    h.rounds = [dict(each, round=r) for r in range(1, 17)]
    for r, view in ((r, v) for r in (12, 16) for v in views):
        row = dict(round=r, view=view, moment='post_agg', path='', client=-1, n=1000)
        right = round(10*(avg - rise*(16-r)/4))
        h.rows += [row | dict(domain=d, correct=right+k) for d, k in (('a', 40), ('b', -40))]
    return h

def runs(method, *avgs, **more): return [history(method, s, a, **more) for s, a in enumerate(avgs)]

FEDAVG  = runs('FedAvg', 60, 62, 58)
CONTROL = runs('FedAvg', 66, 68.5, 63.7, deal='iid')
LOCAL   = runs('Local', 50, 52.4, 48.3, views=OWN, mb=0.)
BASE    = FEDAVG + CONTROL + LOCAL

def story(*hs): return Comparison(sum(hs, [])).story()

def ends(*d):
    "Student's interval of points d on two domains of 1,000 images, no surer than these: p(1 − p) of each."
    p = np.array(d)/100
    images = 100*math.sqrt((p*(1-p)/2000).sum())/len(d)
    return stats.t.interval(.95, len(d)-1, np.mean(d), max(stats.sem(d), images))

# ---- 1. is there a skew

def test_a_skew_cost_above_0():
    says = story(BASE)['skew']
    lo, hi = ends(6, 6.5, 5.7)
    assert says.startswith('The skew costs accuracy') and 'global view' in says
    assert f'+6.1 points ({lo:.1f} to {hi:.1f})' in says and '3 seeds' in says

def test_a_skew_cost_that_is_open():
    assert story(FEDAVG, runs('FedAvg', 66, 61, 59, deal='iid'))['skew'].startswith(
        'Whether the skew costs anything is open')

def test_a_broken_control_is_said_and_judges_nothing():
    "At chance, which is 10 %, in one seed of three."
    broken = FEDAVG, runs('FedAvg', 66, 10, 63.7, deal='iid'), LOCAL
    says = story(*broken)['skew']
    assert says.startswith('What the skew costs cannot be told, for its control is no better than chance: ')
    note, = (n for n in Comparison(sum(broken, [])).table('global').notes if n.startswith('Skew cost'))
    assert note.endswith('no verdict, for this control is no better than chance.')

def test_a_skew_that_costs_nothing():
    says = story(FEDAVG, runs('FedAvg', 57, 59.5, 54.8, deal='iid'))['skew']
    assert says.startswith('The skew costs nothing')

def test_the_cost_of_the_skew_is_fedavgs_own():
    worse = runs('F2DC', 40, 41, 42) + runs('F2DC', 45, 44, 43, deal='iid')
    assert story(BASE, worse)['skew'] == story(BASE)['skew']

@pytest.mark.parametrize('hs', [FEDAVG, CONTROL, LOCAL, FEDAVG + LOCAL])
def test_without_both_deals_it_is_not_known(hs): assert 'is not known' in story(hs)['skew']

def test_seeds_that_are_all_alike_resolve_nothing():
    says = story(FEDAVG, runs('FedAvg', 66, 68, 64, deal='iid'))['skew']
    assert 'is open' in says and '), open, all seeds alike; global view, received, 3 seeds' in says

# ---- 2. does federating pay

@pytest.mark.parametrize('fedavg, fedbn, head', [
    ((60, 62, 58), (61, 63, 60), 'Federating pays with FedAvg and FedBN:'),
    ((50, 51, 49), (60, 62, 58), 'Federating pays with FedBN:'),
    ((50, 51, 49), (51, 52, 47), 'Whether federating pays is open:'),
    ((40, 42, 38), (41, 43, 38), 'Federating does not pay:')])
def test_whether_federating_pays(fedavg, fedbn, head):
    hs = runs('FedAvg', *fedavg) + runs('FedBN', *fedbn, views=OWN) + LOCAL
    assert story(hs)['federating'].startswith(head)

def test_two_gains_are_judged_by_holm():
    "FedAvg's interval leaves 0 out by itself; beside FedBN's, twice its p is above .05."
    d = np.array([1.2, 1.7, 2.4])
    assert .025 < stats.ttest_1samp(d, 0).pvalue < .05
    fedavg = runs('FedAvg', *(d + [50, 52.4, 48.3]))
    assert story(fedavg, LOCAL)['federating'].startswith('Federating pays with FedAvg')
    assert 'is open' in story(fedavg, LOCAL, runs('FedBN', 50, 51, 49, views=OWN))['federating']

def test_federating_is_read_in_the_personal_view_only():
    "FedAvg is ahead in the global view, and Local was never asked there."
    only_global = runs('FedAvg', 90, 91, 92, views=('global',))
    assert 'is not known' in story(only_global, LOCAL)['federating']

# ---- 3. who is ahead

def test_first_over_fedavg_is_judged_among_all_methods():
    best = (62.1, 64.9, 61.5)                                  # its p is .02, and .06 among three
    p = stats.ttest_rel(best, [60, 62, 58]).pvalue
    assert .05/3 < p < .05
    alone, more = [FEDAVG, runs('A', *best)], [runs('B', 60.3, 61.9, 58.2), runs('C', 59, 62, 59)]
    assert ', above 0' in story(*alone)['ahead'] and 'Holm' not in story(*alone)['ahead']
    assert ', open by Holm over 3;' in story(*alone, *more)['ahead']

def test_views_are_not_mixed():
    "B has 90 % of its own domains; in the view that most methods share, A is first."
    hs = BASE[:6] + runs('A', 64, 66, 63) + runs('C', 61, 60, 62) + runs('B', 90, 91, 92, views=OWN)
    says = story(hs)['ahead']
    assert says.startswith('B is first with 91.0 %: ') and '; personal view' in says     # four methods there
    glob = [h for h in hs if h.setting['method'] != 'B'] + runs('B', 90, 91, 92, views=('unseen',))
    says = story(glob)['ahead']
    assert says.startswith('A is first with 64.3 %: ') and '; global view' in says

def test_after_training_is_no_view_of_its_own():
    hs = runs('B', 90, 91, 92)
    for h in hs: h.rows = [r | dict(moment='post_local') for r in h.rows]
    assert 'B' not in story(FEDAVG, runs('A', 64, 66, 63), hs)['ahead']

def test_nobody_is_ahead_of_fedavg():
    says = story(FEDAVG, runs('A', 50, 51, 52))['ahead']
    assert says.startswith('No method is ahead of FedAvg, which has 60.0 %')

def test_without_fedavg_there_is_a_first_and_no_verdict():
    says = story(runs('A', 70, 71, 72), runs('B', 60, 61, 63))['ahead']
    lo, hi = ends(10, 10, 9)
    first = f'A is first with 71.0 %: over B by 9.7 points ({lo:.1f} to {hi:.1f}), above 0'
    assert says == f'{first}; global view, received, 3 seeds; FedAvg was not run.'

def test_a_method_that_lost_a_seed_is_not_ranked():
    assert list(ranking(Comparison(FEDAVG + runs('A', 70, 71)), 'toy', 'global').index) == ['FedAvg']
    assert 'fewer than two methods' in story(FEDAVG, runs('A', 70, 71))['ahead']

def test_seeds_that_fedavg_lacks_do_not_throw_the_others_out():
    r = ranking(Comparison(FEDAVG[:2] + runs('A', 70, 71, 0)), 'toy', 'global')
    assert r.to_dict() == pytest.approx(dict(A=70.5, FedAvg=61))

# ---- 4. what it costs

def test_cost_is_bytes_and_steps_of_one_client():
    dear = runs('F2DC', 64, 67, 62, mb=1.3)
    want = 'A client of FedAvg sends and receives 1.00 MB, one of F2DC 1.30 times as much'
    assert story(BASE, dear)['cost'] == f'{want}; each takes 64 local steps.'

def test_steps_that_differ_and_steps_that_nobody_stored():
    assert story(FEDAVG, runs('A', 1, 2, 3, steps=[5, 5]))['cost'].endswith('their local steps differ.')
    assert story(runs('FedAvg', 60, 62, steps=None))['cost'].endswith('each takes 32 local epochs.')

def test_local_alone_sends_nothing(): assert 'is not known' in story(LOCAL)['cost']

# ---- 5. what to try next

def test_next_a_run_at_chance_comes_first():
    says = story(BASE, runs('DFL', 10, 9, 11), runs('A', 64, 66, 63, rise=5.))['next']
    assert says.startswith('Train longer or at another learning rate')
    assert says.endswith(': DFL stopped or stayed at chance.')

def test_next_a_stopped_run():
    lost = History(dict(method='DFL', suite='toy', seed=2, rounds=16), measures=dict(stopped='nan'))
    hs = BASE + runs('DFL', 70, 72) + [lost]
    assert 'DFL stopped' in story(hs)['next'] and 'DFL' not in story(hs)['ahead']
    assert 'Stopped, for a loss was not finite: DFL (1 of 3 runs).' in Comparison(hs).table('global').notes

@pytest.mark.parametrize('hs, says', [
    (FEDAVG + CONTROL, 'Run Local too'), (FEDAVG + LOCAL, 'Run FedAvg on the IID split too'),
    (LOCAL, 'Run FedAvg and FedAvg on the IID split too'),
    ([h for h in BASE if h.setting['seed'] == 0], 'Run three seeds or more')])
def test_next_what_is_missing(hs, says): assert story(hs)['next'].startswith(says)

def test_one_seed_gives_no_verdict_at_all():
    one = story([h for h in BASE + runs('A', 90) if h.setting['seed'] == 0])
    assert all('one seed, no interval' in one[k] for k in ('skew', 'federating', 'ahead'))
    assert not any(w in ' '.join(one.values()) for w in (', above 0', 'The skew', 'Federating', 'nan'))

def test_next_more_rounds():
    says = story(BASE, runs('A', 64, 66, 63, rise=1.2))['next']
    assert says.startswith('Give it more rounds (`--rounds 32`): A still rose') and 'round 12 of 16' in says
    assert 'rounds' not in story(BASE, runs('A', 64, 66, 63, rise=.8))['next']

def seeds_needed(d, effect, alpha=.05):
    "The least number whose t-test shows the effect in 80 of 100 cases."
    def power(n): return stats.nct.sf(stats.t.ppf(1-alpha/2, n-1), n-1, effect/np.std(d, ddof=1)*math.sqrt(n))
    return next((n for n in range(3, 21) if power(n) >= .8), None)

SKEWS = {(2.5, -1, 3): 'Run {n} seeds', (6, -1, 5): 'Run {n} seeds',
         (12, -6, 9): 'Take another suite, or domains that differ more: the skew cost here is too',
         (1.2, .2, -.5): 'Take another suite, or domains that differ more: the skew cost here is at most 2.4',
         (-6, -6.5, -5.7): 'Take another suite, or domains that differ more: the skew cost here is at most'}

@pytest.mark.parametrize('d', SKEWS)
def test_next_an_open_skew(d):
    says = story(FEDAVG, LOCAL, runs('FedAvg', *np.add(d, [60, 62, 58]), deal='iid'))['next']
    assert says.startswith(SKEWS[d].format(n=seeds_needed(d, 3)))

def test_next_seeds_for_the_first_place():
    d = np.array([3., .5, 3.5])
    says = story(BASE, runs('A', *(d + [60, 62, 58])), runs('B', 50, 51, 49))['next']
    n = seeds_needed(d, d.mean(), alpha=.05/3)                    # A, B and Local are compared with FedAvg
    assert n and says.startswith(f'Run {n} seeds')

def test_next_a_first_place_that_no_seeds_show():
    d = np.array([3., -2, -.5])
    says = story(BASE, runs('A', *(d + [60, 62, 58])))['next']
    assert seeds_needed(d, d.mean(), .025) is None and says.startswith('Choose by cost')

def test_next_statistics_and_nothing():
    bn = runs('FedBN', 65, 67.3, 63.4, views=OWN)
    assert story(BASE, bn)['next'].startswith('FedBN is ahead, which points at the BatchNorm statistics')
    assert story(BASE, runs('F2DC', 65, 67.3, 63.4))['next'] == DONE

def test_twins_of_fedavg_ask_for_nothing():
    assert story(BASE, runs('FedProx', 60, 62, 58))['next'] == DONE

# ---- all five

def test_runs_of_several_settings_are_not_summed_up():
    assert story(FEDAVG, runs('FedAvg', 61, lr=.1)) == dict(next=MIXED)

@pytest.mark.parametrize('name', ['quick-2026-11-25', 'claims-FedDDL', 'claims-DFL'])
def test_stored_runs_have_five_short_sentences(name):
    cmp = stored(name)
    for s in cmp.suites:
        says = cmp.story(s)
        assert list(says) in (QUESTIONS, ['next'])
        for text in says.values():
            assert len(text.split()) <= 36 and text.endswith('.') and 'nan' not in text and 'None' not in text

def test_the_last_screen_ends_with_sentences_and_their_table():
    cmp = Comparison(BASE + runs('FedBN', 65, 67.3, 63.4, views=OWN))
    text = last_screen(cmp)
    before, after = text.split('toy, in short (points with 95 % intervals):')
    assert not before and 'toy, global view' not in after
    assert [line[2:] for line in after.splitlines()[1:6]] == list(cmp.story().values())
    assert after.split('\n\n')[1].startswith('toy, personal view')
    assert after.endswith(tables_text(cmp).rstrip())

def test_the_report_begins_with_them(tmp_path, unsaved):
    cmp = Comparison(BASE + runs('<b>', 65, 67.3, 63.4))
    html = write_report(cmp, tmp_path)['report.html'].read_text()
    at = [html.index(t) for t in ('<li>The skew costs accuracy', '&lt;b&gt; is first', '<table')]
    assert at == sorted(at) and '<b>' not in html

# ---- the foot

def test_steps_are_those_of_the_schedule():
    for n, B, E in [(1, 64, 2), (64, 64, 3), (65, 64, 1), (66, 64, 1), (7, 1, 2), (100, 33, 2)]:
        s = Setting(batch_size=B, local_epochs=E)
        assert s.steps(n) == len(list(schedule(n, B, generator('any'), E)))

def test_chance_is_the_best_constant_answer():
    suite = load_suite('emoji-pacs', 'tiny')
    right = lambda k: np.mean([100*np.mean(t.y.numpy() == k) for t in suite.tests.values()])
    assert suite.chance == pytest.approx(max(map(right, range(suite.n_classes))))

@pytest.mark.parametrize('setting, text', [
    (dict(rounds=16, local_epochs=2, steps=[4, 4]), '64 local steps per client (16 rounds of 4)'),
    (dict(rounds=16, local_epochs=2, steps=[2, 7]), '32 to 112 local steps per client (16 rounds of 2 to 7)'),
    (dict(rounds=24, local_epochs=1, local_steps=20, participation=.5),
     '240 local steps per client (24 rounds of 20, 50 % of the clients in each)'),
    (dict(rounds=16, local_epochs=2), '16 rounds of 2 local epochs'), (dict(rounds=3), '')])
def test_budget_in_words(setting, text): assert budget_text(setting) == text

@pytest.mark.parametrize('share, low', [(.10, True), (.11, True), (.12, False)])
def test_at_chance_is_within_two_binomial_errors(share, low):
    error = np.random.default_rng(0).binomial(2000, .1, 20000).std()/2000
    h = history('A', 0, 100*share)
    assert at_chance(h, Where()) == low == (share <= .1 + 2*error)

def test_a_run_that_does_not_say_its_chance_is_not_at_chance():
    h = history('A', 0, 1)
    del h.setting['chance']
    assert not at_chance(h, Where())

def test_a_late_rise_names_the_view_that_tells_it():
    h = history('A', 0, 60, rise=3.)
    h.rows = [r for r in h.rows if r['view'] == 'global' or r['round'] == 16]
    points, since, end, where = late_rise(h, Where('personal'))
    assert (round(points, 6), since, end, where.view) == (3, 12, 16, 'global')
    text = foot(dict(A=[h]), Where('personal'))
    assert 'Rose by more than 1 point from round 12 to 16 (global view, after aggregation): A +3.0.' in text

def test_every_table_of_scores_has_the_foot():
    cmp = Comparison(BASE + runs('DFL', 9, 11, 10, rise=2.))
    for t in (cmp.table('global'), cmp.table('personal'), cmp.overview('global'), cmp.checkpoints('global')):
        notes = ' '.join(t.notes)
        assert '64 local steps per client (16 rounds of 4).' in notes and 'Chance level 10.0 %.' in notes
        assert 'No better than chance: DFL (3 of 3 runs).' in notes
        assert 'from round 12 to 16: DFL +2.0.' in notes

def test_a_control_is_in_the_foot_of_the_view_that_shows_it():
    cmp = Comparison(FEDAVG + runs('FedAvg', 66, 68, 64, deal='iid', rise=2.))
    assert 'FedAvg, IID split +2.0' in ' '.join(cmp.table('global').notes)
    assert 'IID split' not in ' '.join(cmp.table('personal').notes)

def test_a_note_calls_a_row_by_its_name():
    "FedAvg and its pooled control are at chance: the note names the rows that the table has."
    cmp = Comparison(runs('FedAvg', 10.) + runs('FedAvg', 10., deal='pooled'))
    t = cmp.table('global')
    note = next(n for n in t.notes if n.startswith('No better than chance'))
    assert list(t.cells.method) == ['FedAvg', 'FedAvg, pooled']
    assert all(f'{row} (1 of 1 runs)' in note for row in t.cells.method)
