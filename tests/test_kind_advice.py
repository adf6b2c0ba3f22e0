"What a diagnosis promises, and how it is followed: each by hand."
import math, shlex, shutil
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.analysis.index import found
from fedskew_nb.analysis.stats import ABOVE, WITHIN
from fedskew_nb.data.folder import folder
from fedskew_nb.engine.history import History
from fedskew_nb.run.plan import planned
from fedskew_nb.run.rates import OWN
from fedskew_nb.run.recipes import suite_recipe
from fedskew_nb.tools.cli import compare_command, diagnose_command, which_options
from fedskew_nb.tools.again import CURES, Advice, Again, as_sentence, known_elsewhere
from fedskew_nb.tools.diagnose import GAINS, Advisor, Diagnosis, Outcome
from fedskew_nb.tools.questions import KINDS, READ, best_of, difference, found_in
from fedskew_nb.tools.shell import parsed
from test_cli import images
from test_diagnose import made

SHARES = st.lists(st.sampled_from([0., 1.]), min_size=8, max_size=8)

def of_seeds(*rows): return {s: dict(here=np.array(v)) for s, v in enumerate(rows)}

@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(SHARES, SHARES), min_size=2, max_size=4))
def test_no_interval_has_width_zero(pairs):
    i = difference(of_seeds(*(a for a, _ in pairs)), of_seeds(*(b for _, b in pairs)), dict(here=40))
    half = 100*.5/8/len(pairs)                                # half a picture of eight, over the seeds
    assert i.hi-i.lo >= 2*stats.t.ppf(.975, len(pairs)-1)*half*.999
    assert i.pictures >= 1.96*100*math.sqrt(.5/(8*len(pairs))/40)*.999

def test_equal_models_leave_half_a_picture_open():
    same = of_seeds([1.]*60, [1.]*60, [1.]*60)
    i = difference(same, same, dict(here=60))
    assert i.mean == 0 and i.pictures == pytest.approx(1.96*100*math.sqrt(.5/180/60)) and i.hi > 1

def test_the_best_of_three_is_as_wide_as_three_ask_for():
    def up(k): return [1.]*k+[0.]*(400-k)
    one, other = of_seeds(up(40), up(80), up(120)), of_seeds(*[up(0)]*3)
    i = difference(one, other, dict(here=10**6))
    k, wide = best_of(dict(a=i, b=difference(other, other, dict(here=9)), c=i), ('a', 'b', 'c'))
    assert k == 'a' and wide.mean == i.mean
    half = stats.t.ppf(1-.05/3/2, 2)*np.std(i.values, ddof=1)/math.sqrt(3)
    assert (wide.lo, wide.hi) == pytest.approx((i.mean-half, i.mean+half))

def test_the_wide_interval_gives_the_verdict():
    "Above 0 alone, open as the best of three."
    one, none = of_seeds([1.]*5+[0.]*35, [1.]*9+[0.]*31, [1.]*7+[0.]*33), of_seeds(*[[0.]*40]*3)
    i = difference(one, none, dict(here=10**6))
    assert i.told == 'above' and best_of(dict(a=i, b=i, c=i), ('a', 'b', 'c'))[1].told == 'open'

def test_does_federating_pay_counts_the_cure():
    d = made(adabn_gain=dict(told='above', mean=9.), adabn=dict(told='above', mean=7.))
    says = 'Federating pays: the best of four, FedAvg + AdaBN − training alone, is +9'
    assert d.outcome.on_gain().startswith(says)
    do, *_ = Advisor(d.found, d.outcome).cure()
    assert do == 'Use AdaBN after FedAvg instead of FedAvg' and 'adabn_gain' in GAINS

def test_what_is_not_shown_promises_no_number_from_below():
    do, why, i, *_ = made(fedbn=dict(told='open', mean=6., lo=-3., hi=15.)).advice()[-1]
    line = as_sentence(do, why, i)
    assert do.startswith('Try FedBN') and 'Expected: between nothing and +' in line and '-3' not in line

def test_other_pictures_are_told_apart_from_other_seeds():
    i = made(fedbn=dict(told='above', mean=8., lo=3.6, hi=12.4, pictures=3.)).effects['fedbn']
    half = math.hypot(4.4, 3)
    assert i.elsewhere() == pytest.approx((8-half, 8+half))
    text = as_sentence('Use FedBN', 'why', i)
    assert 'for other seeds on these pictures' in text and f'{8-half:.1f} to {8+half:.1f}' in text

def test_one_seed_says_no_nan():
    g = np.random.default_rng(0)
    def one(): return of_seeds(g.integers(2, size=20).astype(float))
    class One(Outcome):
        domains, rights = ['here'], {r: one() for r in (
            'FedAvg', 'FedAvg, IID split', 'FedAvg + AdaBN', 'FedAvg, tuned', 'FedBN', 'Local')}
        def __init__(self): self.n = dict(here=20)
        def measured(self, key): return []
    o = One()
    texts = [o.on_gain(), o.on_cost(), o.on_cures(), o.on_domains()]
    texts += [*map(repr, (o.effect_table(), o.domain_table()))]
    advisor = Advisor(None, o)
    texts += [as_sentence(*advisor.cure()), as_sentence(*advisor.more_evidence())]
    assert not [t for t in texts if 'nan' in t or 'more than 20' in t]

def test_it_uses_the_words_of_verdicts():
    words = dict(above=ABOVE['yes'], below=ABOVE['below'], small=WITHIN['yes'], open='open')
    d = made(**{k: dict(told=t) for k, t in zip(('cost', 'gain', 'adabn', 'fedbn'), words)})
    told = [d.effects[k].word for k in ('cost', 'gain', 'adabn', 'fedbn')]
    assert told == list(words.values()) and set(d.outcome.effect_table().cells.verdict) <= {*words.values()}
    assert d.effects['cost'].as_dict()['verdict'] == 'above 0'

def test_labels_that_all_exchange_are_no_single_sites_error():
    "One site is accused first; where most are, labels or backgrounds come behind the cure."
    d, pairs = made(), [('x', 'y')]
    type(d.outcome).swapped = lambda self: dict(a=pairs, b=pairs)
    dos = [a.do for a in d.advice()]
    assert dos[-1].startswith('Look at labels and backgrounds of a, b')
    assert 'Look at the labels of a' not in dos
    type(d.outcome).swapped = lambda self: dict(a=pairs)
    type(d.outcome).by_domain = lambda self, k: dict(a=self.effects['gain'])
    assert d.advice()[0].do == 'Look at the labels of a'

# ---- copies

def test_copies_are_counted_one_way(tmp_path):
    "One picture under two labels, one in two domains, one three times in a domain."
    root = images(tmp_path/'pets')
    for a, b in (('day/cat/0', 'day/dog/a'), ('day/dog/1', 'night/dog/b'), ('night/cat/2', 'night/cat/c'),
                 ('night/cat/2', 'night/cat/d')): shutil.copy(root/f'{a}.png', root/f'{b}.png')
    f = found_in(folder(root, 16), 0)
    assert {k: f.number(k) for k in KINDS} == dict(labels=1, domains=1, twice=2, tested=0)
    assert {k: f.counted()[READ[k]] for k in KINDS} == {k: f.number(k) for k in KINDS}
    advice = {a.do: a.why for a in Diagnosis(f).advice()}
    assert advice['Decide on one label for each picture'] == '1 lie under two labels'
    assert advice['Remove the copies'] == '1 lie in two domains'
    f.suite = None                                            # nobody has read them: the same rule
    assert f.number('twice') == 2 and '2 are copies in a domain' in ' '.join(f.sentences())

# ---- commands

HOWS = [{}, dict(rounds=8), dict(local_epochs=2), dict(protocol='fdse'),
        dict(rounds=4, lr=.1, model='small_conv(width=4)'), dict(size='tiny'),
        dict(checkpoints=[2, 4], rounds=8)]

@pytest.mark.parametrize('how', HOWS)
@pytest.mark.parametrize('suite', ['emoji-pacs', 'folder'])
def test_a_cure_is_compared_as_it_was_diagnosed(how, suite, tmp_path):
    "What is printed is read, and trains as the diagnosis did."
    own = suite == 'folder'
    recipe = folder(images(tmp_path/'my pets'), 20) if own else suite_recipe(suite, how.get('size', 'quick'))
    line = Again(recipe, (0, 1, 2), how, 'out').follows(Advice('adabn', 'Use it', 'why'))
    argv = shlex.split(line)
    assert argv[:2] == ['fedskew', 'compare']
    read = parsed(compare_command, 'compare', argv[2:])
    not_runs = 'out', 'json', 'trust', 'keep_models'
    want = which_options(**{k: v for k, v in read.items() if k not in not_runs})
    runs = planned(**{k: v for k, v in want.items() if k != 'jobs'})
    assert {r.method.name for r in runs} == {'FedAvg', 'FedAvg + AdaBN'}
    assert {r.seed for r in runs} == {3, 4, 5}
    steps = {} if {'local_epochs', 'protocol'} & how.keys() else OWN
    ours = planned('FedAvg', recipe, 1, **steps | how)[0]
    also = dict(record=True)
    for r in runs: assert (r.setting | also, r.protocol) == (ours.setting | also, ours.protocol)
    assert {r.suite.text for r in runs} == {recipe.text} and read['out'] == 'out-adabn'

def test_every_advice_has_a_command_that_is_read(tmp_path):
    again = Again(folder(images(tmp_path/'pets'), 20, bad='skip'), (4,), dict(rounds=8))
    def line(kind, of=None): return again.follows(Advice(kind, 'whatever it says', 'why', of=of))
    for kind in ('keep', 'seeds', 'copies', 'labels', 'larger', *CURES, 'longer', 'pictures'):
        _, verb, *argv = shlex.split(line(kind, 6))
        read = parsed(dict(compare=compare_command, diagnose=diagnose_command)[verb], verb, argv)
        assert read['skip_broken'] and read['data']
    assert '--seeds 5, ' in line('fedbn') and 'FedAvg,FedBN ' in line('fedbn')
    assert '--seeds 12 ' in line('seeds', 12)
    assert '--rounds 16' in line('longer', 16) and '--pixels 20' in line('longer', 16)
    assert '--rounds 96' in line('larger', 96) and '--pixels 64' in line('larger', 96)

@pytest.mark.parametrize('rounds, larger', [(4, 96), (500, 1000)])
def test_twice_as_long_is_twice_what_was_trained(rounds, larger):
    "Whoever set the rounds: a call, a size, or the protocol of a paper."
    d = made()
    trained = dict(method='FedAvg', suite='made', seed=0, rounds=rounds)
    d.outcome.cmp = Comparison([History(trained)])
    d.again = Again(suite_recipe('emoji-pacs'), (0,), dict(protocol='fdse'))
    type(d.outcome).rising = lambda self: dict(FedAvg=9.)
    twice = next(a for a in d.advice() if a.kind == 'longer')
    assert f'--rounds {2*rounds} ' in twice.command and f'--rounds {2*rounds} ' in d.again.follows(twice)
    type(d.outcome).levels = lambda self: {'AVG': np.array([52.])}
    more = next(a for a in d.advice() if a.kind == 'larger')
    assert f'(--rounds {larger}, ' in more.do and f'--rounds {larger} ' in more.command

def test_a_suite_of_python_gets_a_call_of_python():
    again = Again(suite_recipe(lambda seed: None), (0, 1), dict(rounds=4, progress=False))
    line = again.follows(Advice('fedbn', 'Use FedBN', 'why'))
    assert line == "compare('FedAvg,FedBN', suite, rounds=4, seeds=[2, 3], out='diagnosis-fedbn')"

def test_command_stands_below_its_advice_and_in_the_file():
    a = Advice('fedbn', 'Use FedBN', 'it is best')
    assert len(a.lines().splitlines()) == 1
    a.command = 'fedskew compare --methods FedBN'
    assert a.lines().splitlines()[1].strip() == a.command
    assert a.as_dict() == dict(do='Use FedBN', why='it is best', gain=None, kind='fedbn', command=a.command)
    do, why, gain = a                                         # three, as before
    assert (do, why, gain) == ('Use FedBN', 'it is best', None)

# ---- elsewhere

@pytest.mark.parametrize('method', ['FedAvg + AdaBN', 'FedBN', 'Local'])
def test_what_is_known_elsewhere_is_a_cell_of_the_index(method):
    line = known_elsewhere(method)
    for suite in ('emoji-pacs', 'colored-mnist'):
        asked = dict(method=method, question='own domain', over='FedAvg', suite=suite, moment='received')
        cells = [c for c in found(**asked)
                 if f'{c}' in line and c.page in line and f'{c.n} seeds, {c.verdict}' in line]
        assert cells and suite in line
    assert known_elsewhere('nobody') == '' and 'context-vehicles' not in line
    known = [c for c in found(**asked | dict(suite='context-vehicles')) if f'{c} on backgrounds' in
             known_elsewhere(method, objects=True)]
    assert [c.budget for c in known] == ['64 × 2 epochs']            # the longer one of two

def test_backgrounds_are_asked_where_objects_are_known():
    d = made(fedbn=dict(told='above', mean=7., lo=2., hi=12., pictures=3.))
    advisor = Advisor(d.found, d.outcome)
    assert 'on backgrounds' not in advisor.cure()[1]
    type(d.outcome).measured = lambda self, key: [dict(a=[1.])] if key == 'behind' else []
    assert 'on backgrounds (context-vehicles, 64 × 2 epochs, 8 seeds' in advisor.cure()[1]
