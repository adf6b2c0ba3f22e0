"What reads texts, deals images, takes turns or packs, asked with made inputs, beside a rule in other words."
import os.path
from types import SimpleNamespace
from collections import Counter
import torch
from hypothesis import assume, given, settings, strategies as st
from fedskew_nb.analysis.stats import holm
from fedskew_nb.data.splits import whole_shares
from fedskew_nb.data.suite import Client, Suite, pack, unpack
from fedskew_nb.data.images import Data
from fedskew_nb.downloads.archives import check_path, check_size, check_sum
from fedskew_nb.downloads.layouts import LAYOUTS, place_in
from fedskew_nb.downloads.readers import usps_row
from fedskew_nb.engine.setting import schedule, shared_out
from fedskew_nb.run.recipes import cut, read_call
from fedskew_nb.run.tune import BEYOND, wanted

settings.register_profile('same', derandomize=True, deadline=None, database=None, max_examples=60)
settings.load_profile('same')

# ---- texts ----
WORD = st.text('abcxyz_', min_size=1, max_size=5)
NUMBER = st.integers() | st.floats(allow_nan=False, allow_infinity=False)

def nested(inner):
    pairs = st.dictionaries(st.text(max_size=3), inner, max_size=2)
    return st.lists(inner, max_size=3) | st.tuples(inner) | pairs

LITERAL = st.recursive(st.none() | st.booleans() | NUMBER | st.text(max_size=8), nested, max_leaves=6)

@given(st.dictionaries(WORD, LITERAL, max_size=4), st.sampled_from(['', 'own.py:', 'a folder/own.py:']))
def test_a_call_is_read_as_python_wrote_it(hp, file):
    arguments = ', '.join(f'{k}={v!r}' for k, v in hp.items())
    assert read_call(f'{file}F2DC({arguments})') == (file[:-1] or None, 'F2DC', hp)

@given(st.text('ab ,=()[]\'"', max_size=24))
def test_nothing_is_lost_where_a_text_is_cut(text):
    try: parts = cut(text)
    except ValueError: return
    assert ''.join(parts).replace(' ', '').replace(',', '') == text.replace(' ', '').replace(',', '')
    assert [cut(p) for p in parts if ',' not in p] == [[p] for p in parts if ',' not in p]

@given(st.lists(LITERAL, max_size=5))
def test_a_comma_inside_of_a_bracket_or_quote_cuts_nothing(values):
    assert cut(','.join(f'({v!r})' for v in values)) == [f'({v!r})' for v in values]

# ---- files of strangers ----
PARTS = st.sampled_from(['a', 'b.png', '..', '.', '', 'c:', '...', '..a'])

@given(st.lists(PARTS, max_size=5), st.sampled_from('/\\'))
def test_no_path_leaves_the_folder(parts, stroke):
    path = stroke.join(parts)
    try: check_path('x.zip', path)
    except ValueError: return
    there = os.path.normpath(os.path.join('/base/out', path.replace('\\', '/')))
    assert there.startswith('/base/out/') and not any(p == 'c:' for p in parts[:1])

@given(st.integers(1, 10), st.lists(st.integers(-1000, 1000), min_size=256, max_size=256))
def test_a_line_of_usps_is_read_back(label, values):
    line = ' '.join([str(label), *(f'{i+1}:{v/1000}' for i, v in enumerate(values))])
    assert usps_row(line, 1) == (label, [v/1000 for v in values])

PACS = LAYOUTS['pacs']

@given(st.lists(st.sampled_from(['x', 'photo', 'raw images', 'Art Painting']), max_size=3),
       st.sampled_from([*PACS.counts, 'moon']), st.sampled_from([*PACS.classes, 'moon']), st.booleans())
def test_an_image_lies_in_its_class_in_its_domain(above, domain, label, shout):
    folders = [domain.upper(), label.title()] if shout else [domain, label]
    want = (domain, label, '1.png') if domain in PACS.counts and label in PACS.classes else None
    assert place_in(PACS, '/'.join([*above, *folders, '1.png'])) == want

# ---- turns ----
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 3))
def test_an_epoch_is_every_image_once(n, size, epochs):
    batches = list(schedule(n, size, torch.Generator().manual_seed(n), epochs))
    assert Counter(torch.cat(batches).tolist()) == Counter([*range(n)]*epochs)
    assert all(len(b) <= size+1 for b in batches)
    assert n == 1 or size == 1 or all(len(b) > 1 for b in batches)

@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 30))
def test_so_many_steps_as_were_asked_for(n, size, steps):
    assert len(list(schedule(n, size, torch.Generator().manual_seed(n), 1, steps))) == steps

@given(st.integers(1, 60), st.lists(st.floats(.01, 10), min_size=1, max_size=4))
def test_phases_share_all_steps(n, shares):
    due = [n*s/sum(shares) for s in shares]
    try: parts = shared_out([*range(n)], [(f'p{k}', s) for k, s in enumerate(shares)])
    except ValueError:
        assert min(due) <= 1
        return
    assert sum(parts, []) == [*range(n)]
    assert all(abs(len(p)-d) <= 1 and p for p, d in zip(parts, due))

@given(st.integers(2, 9), st.integers(0, 2), st.randoms(use_true_random=False))
def test_a_search_ends_and_its_best_rate_is_inside(trials, n_values, chance):
    assume(trials-n_values >= 2)
    values, scores = [*range(n_values)], {}
    while todo := wanted(scores, trials, values):
        assert not {*todo} & {*scores}                                   # none is made twice
        scores |= {t: chance.random() for t in todo}
    rates = {k: s for (k, v), s in scores.items() if v is None}
    best = max(rates, key=rates.get)
    assert len(scores) <= trials+BEYOND and sorted(rates) == [*range(min(rates), max(rates)+1)]
    assert min(rates) < best < max(rates) or len(rates) == trials-n_values+BEYOND
    assert {t for t in scores if t[1] is not None} == {(best, v) for v in values}

# ---- numbers ----
@given(st.lists(st.floats(0, 1), max_size=8), st.sampled_from([.01, .05, .2]))
def test_holm_rejects_what_its_steps_reject(p, alpha):
    "From the smallest on, each against α over those that are left, until one is kept."
    rejected = set()
    for rank, k in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if not p[k]*(len(p)-rank) <= alpha: break
        rejected.add(k)
    assert {k for k, q in enumerate(holm(p)) if q <= alpha} == rejected

@given(st.lists(st.floats(1e-3, 1), min_size=1, max_size=8), st.integers(0, 200))
def test_shares_become_counts(weights, n):
    q = torch.tensor(weights, dtype=torch.float64)/sum(weights)
    counts = whole_shares(q, n)
    assert int(counts.sum()) == n
    assert float((counts-q*n).abs().max()) < 1+1e-9

# ---- what is packed ----
def allows(check, *args):
    try: return check(*args) is None
    except ValueError: return False

@given(st.integers(1, 10**5), st.integers(-2, 2))
def test_files_unpack_to_200_times_as_much_and_a_mebibyte(packed, more):
    source = SimpleNamespace(stat=lambda: SimpleNamespace(st_size=packed))
    size = 200*packed + 2**20 + more
    assert allows(check_size, 'x.zip', 'a', size, packed) == allows(check_sum, source, size) == (more <= 0)
    assert allows(check_size, 'x.zip', 'a', packed+more, packed, packed) == (more <= 0)

@st.composite
def suites(draw):
    def data():
        n = draw(st.integers(1, 3))
        return Data(torch.randint(0, 256, (n, 3, 4, 4), dtype=torch.uint8), torch.randint(0, 3, (n,)))
    domains = draw(st.lists(WORD, min_size=1, max_size=3, unique=True))
    tests = {d: data() for d in domains}
    clients = [Client(i, d, data(), data(), tests[d])
               for i, d in enumerate(draw(st.lists(st.sampled_from(domains), min_size=1, max_size=4)))]
    facts = dict(source=draw(st.text(max_size=9)), data_seed=draw(st.integers(0, 9)))
    return Suite(draw(WORD), ['a', 'b', 'c'], clients, tests, **facts)

@given(suites())
@settings(max_examples=20)
def test_a_suite_is_unpacked_as_it_was(suite):
    again = unpack(*pack(suite))
    assert [(c.id, c.domain) for c in again.clients] == [(c.id, c.domain) for c in suite.clients]
    for a, b in zip(again._datas(), suite._datas()):
        assert torch.equal(a.x, b.x) and torch.equal(a.y, b.y)
    assert (again.name, again.source, again.data_seed) == (suite.name, suite.source, suite.data_seed)
    assert all(c.test is again.tests[c.domain] for c in again.clients)   # one copy of a domain's images
