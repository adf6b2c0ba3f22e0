"A diagnosis of images: what is found before training, what is asked of models, what the page says of it."
import json, math, re, shutil
from dataclasses import dataclass, replace
from statistics import NormalDist
import numpy as np
import pytest, torch
from PIL import Image
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.run.plan import planned
from fedskew_nb.run.reproduce import duration
from fedskew_nb.tools.diagnose import Advisor, Diagnosis, Outcome, diagnose, priced
from fedskew_nb.tools.questions import (
    EFFECTS, Difference, Found, asked, difference, exchange, exchanges, swapped_labels)
from fedskew_nb.nets.models import small_conv
from fedskew_nb.data.boxes import Box, write_boxes
from fedskew_nb.data.images import join
from fedskew_nb.data.load import load_suite
from fedskew_nb.data.splits import uneven
from fedskew_nb.data.copies import Picture
from fedskew_nb.data.folder import copies, pictures_in
from fedskew_nb.engine.federation import Federation
from fedskew_nb.engine.history import History
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.baselines.personal import Local
from feds import halved, instead
from test_cli import images, run

QUICK = dict(seeds=2, rounds=2, local_steps=2, eval_every=1, model='small_conv(width=4)', progress=False)
TYPED = ['--seeds', 2, '--rounds', 2, '--set', 'local_steps=2', '--set', 'eval_every=1', '--pixels', 16,
         '--model', 'small_conv(width=4)']

# ---- what is found

def test_copies_of_every_kind_are_named(tmp_path):
    root = images(tmp_path/'pets')
    to = {'night/cat/a.png', 'day/dog/b.png', 'day/cat/c.png'}
    for path in to: shutil.copy(root/'day/cat/0.png', root/path)
    pictures, broken = pictures_in(root, 20)
    group, = copies(pictures)['domains']
    assert {p.path for p in group} == to | {'day/cat/0.png'}
    assert len(copies(pictures)['labels']) == 1 and not broken

def test_a_copy_stored_in_another_format_is_found(tmp_path):
    root = images(tmp_path/'pets')
    with Image.open(root/'day/cat/0.png') as im: im.save(root/'night/cat/again.bmp')
    assert len(copies(pictures_in(root, 20)[0])['domains']) == 1

def test_copies_by_a_plain_loop():
    g = torch.Generator().manual_seed(0)
    draw = lambda names: names[int(torch.randint(len(names), (), generator=g))]
    pictures = [Picture(draw('AB'), draw('xy'), draw('123456789')) for _ in range(14)]
    for kind, field in (('domains', 'domain'), ('labels', 'label')):
        want = {p.pixels for p in pictures for q in pictures
                if p.pixels == q.pixels and getattr(p, field) != getattr(q, field)}
        assert {g[0].pixels for g in copies(pictures)[kind]} == want

def test_a_broken_file_is_refused_or_counted(tmp_path):
    root = images(tmp_path/'pets')
    (root/'day/cat/0.png').write_text('<html>')
    with pytest.raises(ValueError, match='web page'): pictures_in(root)
    pictures, broken = pictures_in(root, bad='skip')
    assert broken == ['day/cat/0.png'] and len(pictures) == 47

# ---- do labels agree?

@pytest.fixture(scope='module')
def toys():
    "Three domains with masks, 40 pictures of three classes in each to train on."
    s = load_suite('emoji-pacs', 'tiny')
    def of(d): return d[d.y < 3]
    clients = [replace(c, train=of(c.train), val=of(c.val), test=of(c.test)) for c in s.clients[:3]]
    tests = {c.domain: of(s.tests[c.domain]) for c in clients}
    return halved(replace(s, name='toys', classes=s.classes[:3], clients=clients, tests=tests, base='toys'))

def turned(d, a=0, b=1):
    y = d.y.clone()
    y[d.y == a], y[d.y == b] = b, a
    return replace(d, y=y)

@pytest.fixture(scope='module')
def swapped(toys):
    "The same, but the third domain has changed the labels 0 and 1."
    *same, c = toys.clients
    c = replace(c, train=turned(c.train), val=turned(c.val), test=turned(c.test))
    return replace(toys, name='swapped', base='swapped', clients=[*same, c],
                   tests=toys.tests | {c.domain: turned(toys.tests[c.domain])})

def test_exchange_is_the_formula():
    g = torch.Generator().manual_seed(0)
    y, share = torch.randint(3, (40,), generator=g), torch.rand(40, 3, generator=g)
    S, z = exchange(share, y, 3)
    def one_way(a, b):
        x = [float(s[b]-s[a]) for s, c in zip(share, y.tolist()) if c == a]
        return sum(x)/len(x), (np.var(x)+1/len(x))/len(x)
    (m, v), (n, w) = one_way(0, 2), one_way(2, 0)
    assert float(S[0, 2]) == pytest.approx(m+n, abs=1e-6)
    more = [[one_way(a, b)[0] if a != b else 0. for b in range(3)] for a in range(3)]
    more -= np.mean(more, axis=0)
    leads = np.argmax(more[0]) == 2 and np.argmax(more[2]) == 0
    assert float(z[0, 2]) == pytest.approx(leads*(m+n)/math.sqrt(v+w), abs=1e-6)

def test_a_class_that_is_taken_for_two_others_exchanges_with_the_more_frequent_alone():
    y = torch.arange(3).repeat_interleave(10)
    called = torch.tensor([1]*6+[2]*4 + [0]*10 + [0]*6+[2]*4)            # as a style misleads
    S, z = exchange(torch.eye(3)[called], y, 3)
    assert S[0, 1] > 0 and S[0, 2] > 0
    assert {(a, b) for a, b in z.nonzero().tolist()} == {(0, 1), (1, 0)}

def test_models_that_see_one_class_everywhere_exchange_nothing():
    S, _ = exchange(torch.eye(4)[torch.full((40,), 2)], torch.arange(4).repeat(10), 4)
    assert float(S.max()) == 0

def test_a_swap_is_told_where_chance_among_all_pairs_is_below_a_twentieth():
    "Two domains of four classes have twelve pairs: p must be below .05/12."
    limit = NormalDist().inv_cdf(1-.05/12)
    def told(z): return swapped_labels([dict(a=[(0, 1, 9, z)], b=[])]*2, 4)
    assert told(limit+1e-6) == dict(a=[(0, 1)]) and told(limit-1e-6) == {}

@pytest.mark.slow
def test_swapped_labels_are_found_in_their_domain_alone(toys, swapped):
    how = dict(rounds=1, local_steps=60, batch_size=16, lr=.02)
    def trained(suite, seed, same=()):
        net = small_conv(3, size=suite.image_size, width=8, seed=seed)
        fed = Federation(Local, net, suite, seed=seed, stack=False, **how)
        fed.participants = lambda: [c for c in fed.clients if c.id not in same]
        fed.fit(progress=False)
        return fed
    plain, odd = [trained(toys, s) for s in range(3)], [trained(swapped, s, same=(0, 1)) for s in range(3)]
    for a, b in zip(plain, odd):                # who has the same images learns the same: once is enough
        for k in (0, 1): b.own[k] = a.own[k]
    domain = swapped.clients[2].domain
    assert swapped_labels([*map(exchanges, odd)], 3) == {domain: [tuple(swapped.classes[:2])]}
    assert swapped_labels([*map(exchanges, plain)], 3) == {}

@pytest.mark.parametrize('mended, kind', [(0., 'labels'), (20., 'suspected')])
def test_labels_are_accused_only_where_no_statistics_mend_the_domain(mended, kind):
    d = made(fedbn=dict(word='above 0', mean=7., lo=2., hi=12., pictures=3.))
    seed = dict(a=[('x', 'y', 1., 9.)])
    at = {k: {'a': Given(**vars(i) | dict(mean=mended))} for k, i in d.effects.items()}
    type(d.outcome).measured = lambda self, key: [seed]*3 if key == 'exchanged' else []
    type(d.outcome).by_domain = lambda self, effect: at[effect]
    type(d.outcome).swapped, type(d.outcome).suspected = Outcome.swapped, Outcome.suspected
    kinds = [a.kind for a in d.advice()]
    assert kind in kinds and kinds[0] == ('fedbn' if mended else 'labels')
    assert not mended or (kinds[-1] == 'suspected' and 'labels' not in kinds)

@pytest.mark.parametrize('kept, asked', [(2, True), (1, False)])
def test_a_class_needs_two_pictures_of_a_domain(toys, kept, asked):
    "A spread wants two."
    d = toys.clients[0].domain
    def few(data): return join([data[data.y > 0], data[data.y == 0][:kept]])
    def none(data): return data[data.y > 0]
    c, *others = toys.clients
    clients = [replace(c, train=none(c.train), test=few(c.test)), *others]
    suite = replace(toys, name='few', base='few', clients=clients, tests=toys.tests | {d: few(toys.tests[d])})
    net = small_conv(3, size=suite.image_size, width=2)
    fed = Federation(Local, net, suite, rounds=1, local_steps=1, batch_size=8)
    fed.fit(progress=False)
    assert (d in exchanges(fed)) == asked

# ---- a difference

def test_how_far_pictures_alone_leave_the_mean_open():
    "Against a bootstrap of the pictures."
    g = np.random.default_rng(0)
    a, b = g.random((2, 60)) < [[.8], [.6]]
    i = difference(*({s: dict(here=v.astype(float)) for s in (0, 1)} for v in (a, b)), dict(here=60))
    means = [100*np.mean((a.astype(float)-b)[g.integers(60, size=60)]) for _ in range(20_000)]
    assert i.pictures == pytest.approx(1.96*np.std(means), rel=.05)

@pytest.mark.parametrize('ups, n, word', [
    ((9, 10, 11), 10**6, 'above 0'), ((-9, -10, -11), 10**6, 'below 0'),
    ((0, 1, 0), 10**6, 'within the margin'), ((9, 10, 11), 4, 'open'), ((0, 10, 20), 10**6, 'open'),
    ((9,), 10**6, 'open'), ((9, 9, 9), 10**6, 'open')])
def test_what_is_told_of_a_difference(ups, n, word):
    "n pictures, of 100 tests so many more right in each seed."
    def share(k): return dict(here=np.r_[np.ones(max(k, 0)), np.zeros(100-abs(k)), -np.ones(max(-k, 0))])
    one, nothing = {s: share(k) for s, k in enumerate(ups)}, {s: share(0) for s in range(len(ups))}
    assert difference(one, nothing, dict(here=n)).word == word

# ---- the page

def test_a_diagnosis_says_what_the_comparison_says(toys):
    d = diagnose(toys, **QUICK)
    assert d.effects['cost'].mean == pytest.approx(d.cmp.skew_cost()['toys'].mean, abs=1e-4)
    fedbn = d.cmp.paired('toys', ('skew', 'FedBN'), where='personal')
    assert d.effects['fedbn'].mean == pytest.approx(fedbn.mean, abs=1e-4)
    of = d.by_domain('cost')
    assert np.mean([i.mean for i in of.values()]) == pytest.approx(d.effects['cost'].mean)
    assert 'FedAvg − chance (33 %) is ' in d.outcome.says()['background']

@dataclass(frozen=True)
class Given(Difference):
    "With what would be told of it."
    word: str = 'open'
    showable: float = 20.
    seeds: int|None = None

def made(**effects):
    "A diagnosis with these differences, and nothing behind them."
    class Made(Outcome):
        def __init__(self):
            self.n, self.domains = dict(a=30, b=30), ['a', 'b']
            self.cmp = Comparison([History(dict(method='FedAvg', suite='made', seed=0, rounds=32))])
            self.suite = type('S', (), dict(n_classes=2, copies={}))
        effects = property(lambda self: every)
        def swapped(self): return {}
        def suspected(self): return []
        def measured(self, key): return []
        def rising(self): return {}
        def by_domain(self, effect): return dict.fromkeys('ab', replace(self.effects[effect], p=1.))
        def levels(self): return {'AVG': np.array([80.])}
    usual = dict(values=(-1., 0., 1.), mean=0., lo=-9., hi=9., se=2., pictures=12.)
    every, outcome = {k: Given(**usual | effects.get(k, {})) for k in EFFECTS}, Made()
    pictures = [Picture('a', 'x', '1'), Picture('b', 'y', '2')]
    d = Diagnosis(Found('made', pictures, [], outcome.suite, copies([])))
    d.cmp, d.outcome = outcome.cmp, outcome
    return d

def test_sixty_pictures_cannot_tell():
    (do, why, *_), *_ = made().advice()
    assert do.startswith('Collect more pictures') and 'these 60 pictures cannot tell 5 points from 0' in why

@pytest.mark.parametrize('pictures, first', [(12., 'Collect more pictures'), (4., 'Train longer')])
def test_of_two_reasons_the_one_that_can_be_mended_comes_first(pictures, first):
    "Nothing is learnt and nothing is shown: training longer helps only where there are pictures enough."
    d = made(cost=dict(pictures=pictures, seeds=8))
    type(d.outcome).levels = lambda self: {'AVG': np.array([52.])}
    assert d.advice()[0][0].startswith(first)

def test_no_more_seeds_are_asked_for_than_were_run():
    "Three are enough for the skew cost, so the difference that needs most is named."
    some = dict(pictures=4., seeds=3)
    d = made(cost=some | dict(mean=3.5, lo=1., hi=5.9), bn_gain=some | dict(seeds=16), **dict.fromkeys(
        ('gain', 'adabn_gain', 'tuned_gain', 'adabn', 'fedbn', 'tuned', 'alone'), some))
    do, why, *_ = d.advice()[0]
    assert do == 'Run 16 seeds' and 'FedBN − Local' in why
    assert 'costs anything is open' in d.outcome.says()['skew']
    assert made(**dict.fromkeys(d.effects, some)).advice()[0][0] == 'Run 6 seeds'

def test_labels_that_may_be_exchanged_are_named_as_such():
    d, seed = made(), dict(a=[('x', 'y', .3, 1.9)], b=[])
    type(d.outcome).measured = lambda self, key: [seed]*3
    type(d.outcome).suspected = Outcome.suspected
    do, why, *_ = d.advice()[-1]
    assert do == 'Look at some labels' and 'not shown, or a style misleads: x and y of a' in why
    type(d.outcome).measured = lambda self, key: [seed]
    assert d.suspected() == []

def test_the_best_cure_comes_first_with_its_interval():
    first, *_ = made(fedbn=dict(word='above 0', mean=7., lo=2., hi=12., pictures=3.)).advice()
    assert first[0] == 'Use FedBN instead of FedAvg' and 'best of four' in first[1]
    assert first[2].hi == pytest.approx(7+5*8.860/4.303, abs=.01)          # as wide as four ask for

def test_local_training_after_fedavg_is_a_cure_like_the_others():
    better = dict(word='above 0', mean=8., lo=3., hi=13., pictures=3.)
    d = made(fedbn=better | dict(mean=7.), tuned=better, tuned_gain=better)
    first, *_ = d.advice()
    assert first.kind == 'tuned'
    assert first.do == 'Use a round of local training after FedAvg instead of FedAvg'
    says = d.outcome.says()['federating']
    assert says.startswith('Federating pays with FedAvg, tuned: FedAvg, tuned − Local is +8')
    assert 'Stored runs' not in first.why

def test_tuned_is_what_a_round_more_has_before_it_is_averaged(toys):
    "As the engine scores it, in a federation of one round more."
    def trained(rounds):
        fed = Federation(FedAvg, small_conv(3, size=toys.image_size, width=4, seed=0), toys, rounds=rounds,
                         local_steps=3, batch_size=8)
        fed.fit(progress=False)
        return fed
    rows = [r for r in trained(3).history.rows if (r['round'], r['moment']) == (3, 'post_local')]
    tuned = asked(trained(2))['tuned']
    assert {r['domain']: r['correct'] for r in rows} == {d: sum(v) for d, v in tuned.items()}

def test_the_price_is_the_clock_times_all_that_is_trained(toys, monkeypatch):
    "A clock that goes a second an image; 4 rounds, 2 runs, clients of different sizes."
    trained, suite = [], uneven(toys)
    monkeypatch.setattr(Federation, 'train_client', lambda self, c: trained.append(len(c.train)))
    monkeypatch.setattr('fedskew_nb.tools.diagnose.perf_counter', lambda: sum(trained))
    runs = planned('FedAvg,Local', toys, 1, control=False, model='small_conv(width=4)', rounds=4,
                   local_steps=1)
    datas = [d for c in suite.clients for d in (c.train, c.val, c.test)] + [*suite.tests.values()]
    size = sum(t.nbytes for d in datas for t in (d.x, d.y, d.masks, d.boxes, d.who) if t is not None)
    said, sizes = priced(runs, suite), {len(c.train) for c in suite.clients}
    assert len(sizes) > 1 and f' at {len(suite.clients)} clients: ' in said
    assert duration(2*4*sum(len(c.train) for c in suite.clients))+' by a round' in said
    assert f'take {size/2**20:.0f} MiB' in said

@pytest.mark.parametrize('kind', ['labels', 'tested', 'domains'])
def test_trouble_with_the_data_comes_before_any_cure(kind):
    d = made(fedbn=dict(word='above 0', mean=7., lo=2., hi=12., pictures=3.))
    d.found.same[kind] = [d.found.pictures]
    first, *others = [do for do, *_ in d.advice()]
    assert first.startswith(('Decide', 'Remove')) and 'Use FedBN instead of FedAvg' in others

def test_where_nothing_is_better_fedavg_stays():
    small = dict(word='within the margin', mean=.5, lo=-1., hi=2., pictures=2.)
    d = made(cost=small, fedbn=small, adabn=small, alone=small | dict(word='below 0', mean=-10.))
    assert d.advice()[0][0] == 'Keep FedAvg'
    assert d.outcome.says()['skew'].startswith('The skew costs little: ')

def test_a_command_leaves_a_page_and_goes_on(tmp_path, capsys):
    root, out = images(tmp_path/'pets'), tmp_path/'out'
    code, printed, err = run(capsys, 'diagnose', '--data', root, *TYPED, '--out', out)
    assert code == 0 and 'First: ' in printed and '48 pictures of 2 classes in 2 domains.' in err
    price = err.index('8 runs of 2 rounds at 2 clients: less than')
    assert err.index('48 pictures') < price < err.index('[1/8]')
    page, runs = (out/'diagnosis.html').read_text(), {p: p.stat().st_mtime_ns for p in (out/'runs').iterdir()}
    assert 'First: ' in page and not re.search(r'(src|href)="(?!data:)', page)
    d = json.loads((out/'diagnosis.json').read_text())
    assert d['found']['counts']['day'] == dict(cat=12, dog=12) and d['advice'][0]['do'] in printed
    for f in d['facts']:
        number = f"{f['one']} − {f['other']} is {f['interval']['mean']:+.1f} points"
        assert number in printed and number in page and f['word'] in printed
    next(p for p in runs if 'FedBN' in p.name).unlink()
    _, twice, err = run(capsys, 'diagnose', '--data', root, *TYPED, '--out', out)
    assert twice == printed and 'that was timed here' not in err       # all but one are read
    kept = {p: t for p, t in runs.items() if p.exists() and p.stat().st_mtime_ns == t}
    assert (out/'diagnosis.html').read_text() == page and len(kept) == len(runs)-1

def test_a_class_that_is_missing_ends_in_advice(tmp_path, capsys):
    root = images(tmp_path/'pets')
    shutil.rmtree(root/'night/dog')
    code, printed, _ = run(capsys, 'diagnose', '--data', root, '--out', tmp_path/'out')
    assert code == 0 and 'night has 0 of dog' in printed and not (tmp_path/'out/runs').exists()
    assert 'night has 0 of dog' in (tmp_path/'out/diagnosis.html').read_text()

def test_boxes_tell_of_the_background(tmp_path, capsys, unsaved):
    root = images(tmp_path/'pets')
    paths = [p.relative_to(root).as_posix() for p in root.rglob('*.png')]
    write_boxes(root/'boxes.csv', [Box(p, 5, 5, 15, 15) for p in paths])
    argv = ['diagnose', '--data', root, '--boxes', 'boxes.csv', *TYPED, '--out', tmp_path/'out']
    argv = instead(argv, '--seeds', 1, '--rounds', 1)
    assert 'FedAvg − chance (50 %) is ' in run(capsys, *argv)[1]

def test_one_seed_is_told_to_run_three(toys):
    d = diagnose(toys, **QUICK | dict(seeds=1))
    assert Advisor(d.found, d.outcome).more_evidence()[0] == 'Run three seeds'

@pytest.mark.parametrize('argv, word', [
    ('diagnose', 'one set of images'), ('diagnose --suite emoji-pacs,skew-digits', 'one set of images'),
    ('diagnose --data nowhere', 'no such folder'), ('diagnose --suite emoji-pacs --sede 2', 'no option')])
def test_wrong_calls_are_refused(capsys, argv, word):
    code, _, err = run(capsys, *argv.split())
    assert code == 2 and word in err
