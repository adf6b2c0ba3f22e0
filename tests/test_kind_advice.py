"What a diagnosis promises, and how it is followed: each by hand."
import json, math, shlex, shutil
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.analysis.index import found
from fedskew_nb.analysis.stats import ABOVE, WITHIN
from fedskew_nb.core.names import plain
from fedskew_nb.data.folder import folder
from fedskew_nb.engine.history import History
from fedskew_nb.run.compare import compare
from fedskew_nb.run.plan import planned
from fedskew_nb.run.rates import OWN
from fedskew_nb.run.store import read_request
from fedskew_nb.run.recipes import suite_recipe
from fedskew_nb.tools.cli import compare_command, diagnose_command, which_options
from fedskew_nb.tools.again import CURES, Advice, Again, command_line, known_elsewhere
from fedskew_nb.tools.diagnose import GAINS, MEANS, Advisor, Diagnosis, Outcome
from fedskew_nb.tools.questions import KINDS, READ, Difference, best_of, difference, found_in
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
    assert i.word == 'above 0' and best_of(dict(a=i, b=i, c=i), ('a', 'b', 'c'))[1].word == 'open'

def test_does_federating_pay_counts_the_cure():
    d = made(adabn_gain=dict(word='above 0', mean=9.), adabn=dict(word='above 0', mean=7.))
    says = d.outcome.says()['federating']
    assert says.startswith('Federating pays with FedAvg + AdaBN: FedAvg + AdaBN − Local is +9')
    assert 'above 0, the best of four, its interval as wide as that asks for; personal view' in says
    do, *_ = Advisor(d.found, d.outcome).cure()
    assert do == 'Use AdaBN after FedAvg instead of FedAvg' and 'adabn_gain' in GAINS

def test_what_is_not_shown_promises_no_number_from_below():
    do, why, i, *_ = made(fedbn=dict(word='open', mean=6., lo=-3., hi=15.)).advice()[-1]
    line = Advice('fedbn', do, why, i).sentence()
    assert do.startswith('Try FedBN') and 'Expected: between nothing and +' in line and '-3' not in line

def test_other_pictures_are_told_apart_from_other_seeds():
    i = made(fedbn=dict(word='above 0', mean=8., lo=3.6, hi=12.4, pictures=3.)).effects['fedbn']
    half = math.hypot(4.4, 3)
    assert i.elsewhere() == pytest.approx((8-half, 8+half))
    text = Advice('fedbn', 'Use FedBN', 'why', i).sentence()
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
    texts = [*o.says().values()]
    texts += [*map(repr, (o.effect_table(), o.domain_table()))]
    advisor = Advisor(None, o)
    texts += [advisor.cure().sentence(), advisor.more_evidence().sentence()]
    assert not [t for t in texts if 'nan' in t or 'more than 20' in t]

def test_it_uses_the_words_of_verdicts():
    words = dict(cost=ABOVE['yes'], gain=ABOVE['below'], adabn=WITHIN['yes'], fedbn=ABOVE['open'])
    ends = dict(cost=(5., 9.), gain=(-9., -5.), adabn=(-1., 1.), fedbn=(-9., 9.))
    each = {k: Difference((lo, hi), (lo+hi)/2, 1., lo, hi, pictures=2.) for k, (lo, hi) in ends.items()}
    assert {k: i.word for k, i in each.items()} == words
    d = made(**{k: dict(word=i.word) for k, i in each.items()})
    assert {*d.outcome.effect_table().cells.verdict} == {*words.values()}
    assert d.effects['cost'].as_dict()['verdict'] == 'above 0'
    for means in MEANS.values(): assert means.keys() <= {*words.values(), 'no verdict', ''}

def test_a_sentence_says_its_facts():
    "A sentence has the number, the interval and the verdict of its fact; a file has them as numbers."
    some = dict(lo=4., hi=10., mean=7., word='above 0', pictures=3.)
    d = made(cost=some, fedbn=some, bn_gain=some | dict(mean=9.))
    facts, says = d.outcome.facts(), d.outcome.says()
    assert [*facts] == [*says] == ['federating', 'skew', 'cures', 'pays', 'gains']
    for k, fs in facts.items():
        for f in fs: assert f'{f.one} − {f.other} is {f.interval:+ points}, {f.word}' in says[k]
    assert says['skew'].startswith('The skew costs accuracy: FedAvg on the IID split − FedAvg is +7.0')
    assert says['skew'].endswith('; personal view, received, 3 seeds.')
    assert 'clients with FedBN: ' in says['cures']
    assert says['pays'].endswith('personal view, received, 3 seeds, Holm over 2.')
    skew = json.loads(json.dumps(plain(facts['skew'][0].as_dict())))
    assert (skew['word'], skew['where'], skew['interval']['hi']) == ('above 0', 'personal view, received', 10)

def test_an_interval_that_only_the_pictures_leave_open_says_so():
    def skew(**more): return made(cost=dict(mean=7., hi=10., pictures=8.) | more).outcome.says()['skew']
    assert 'is +7.0 points (4.0 to 10.0), open, pictures alone leave ± 8.0 open' in skew(lo=4.)
    assert 'pictures alone' not in skew(lo=-4.)

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

NO_RUNS = 'json', 'trust', 'keep_models'
ASKED = [dict(), dict(seeds=[3]), dict(seeds=[0, 4, 7], lr=.05, precision='bf16'),
         dict(control=False, pooled=True), dict(size='tiny', checkpoints=[2, 4], rounds=8),
         dict(model='small_conv(width=4)', jobs=2), dict(protocol='fdse', device='cpu'),
         dict(methods=['FedAvg', 'FedProx(mu=.01)', 'FedAvg + AdaBN'])]

@pytest.mark.parametrize('asked', ASKED)
@pytest.mark.parametrize('images_', ['folder', 'embedded', 'two'])
def test_a_command_line_asks_for_the_same_runs(asked, images_, tmp_path):
    "From a request to a line, as a shell splits it, through the command line to the runs."
    size = asked.get('size', 'quick')
    own = folder(images(tmp_path/"my pets' home"), 20, bad='skip', unseen=['night'])
    suite = dict(folder=own, embedded='emoji-pacs', two=['skew-digits', 'emoji-pacs-uneven'])[images_]
    call = dict(methods='FedAvg,FedBN', suite=suite, seeds=2) | asked
    argv = shlex.split(command_line('compare', call, 'my runs'))
    assert argv[:2] == ['fedskew', 'compare']
    read = parsed(compare_command, 'compare', argv[2:])
    assert read.pop('out') == 'my runs'
    typed = which_options(**{k: v for k, v in read.items() if k not in NO_RUNS})
    assert typed.pop('jobs') == call.pop('jobs', 1)
    def facts(runs):
        texts = ((r.method.text, r.suite.text, r.suite.name, r.model.text) for r in runs)
        return [(t, r.seed, r.deal, r.setting, r.protocol) for t, r in zip(texts, runs)]
    want = facts(planned(**dict(size=size, device='auto') | call))
    assert want and facts(planned(**typed)) == want
    again = facts(planned(**dict(size=size, device='auto') | call | dict(seeds=[97])))
    assert again != want                                     # it can tell two requests apart

def test_what_a_folder_was_asked_for_is_typed_again(tmp_path):
    "`compare.json` of a comparison → its line → the same arguments."
    how = dict(rounds=1, local_steps=1, model='small_conv(width=2)', progress=False, size='tiny')
    compare('FedAvg', 'emoji-pacs', [5], out=tmp_path/'a', control=False, **how)
    given_ = read_request(tmp_path/'a').given()
    argv = shlex.split(command_line('compare', given_, f'{tmp_path}/b'))
    read = parsed(compare_command, 'compare', argv[2:])
    typed = which_options(**{k: v for k, v in read.items() if k not in ('out', *NO_RUNS)})
    compare(out=tmp_path/'b', progress=False, **typed)
    assert read_request(tmp_path/'b').wish() == read_request(tmp_path/'a').wish()

def test_a_suite_of_python_gets_a_call_of_python():
    "What has no text stands there by its name; callbacks belong to the caller."
    again = Again(suite_recipe(lambda seed: None), (0, 1), dict(rounds=4, progress=False))
    line = again.follows(Advice('fedbn', 'Use FedBN', 'why'))
    assert line == "compare('FedAvg,FedBN', suite, seeds=[2, 3], rounds=4, out='diagnosis-fedbn')"
    asked = dict(methods='FedAvg', suite=['emoji-pacs', lambda seed: None], model=len, on_run=print)
    line = command_line('compare', asked, 'x')
    assert line == "compare('FedAvg', ['emoji-pacs', suite], model=model, out='x')"

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
    d = made(fedbn=dict(word='above 0', mean=7., lo=2., hi=12., pictures=3.))
    advisor = Advisor(d.found, d.outcome)
    assert 'on backgrounds' not in advisor.cure()[1]
    type(d.outcome).measured = lambda self, key: [dict(a=[1.])] if key == 'behind' else []
    assert 'on backgrounds (context-vehicles, 64 × 2 epochs, 8 seeds' in advisor.cure()[1]
