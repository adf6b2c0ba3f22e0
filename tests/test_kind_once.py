"""What is read off runs many times is read in one pass and once, and says the same as a plain loop."""

from collections import Counter
import pytest
from hypothesis import given, settings, strategies as st
from fedskew_nb.analysis import claims
from fedskew_nb.analysis.claims import Claim, gain, seed_values
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.analysis.pairs import by_domain
from fedskew_nb.engine.history import History
from fedskew_nb.engine.reading import Where, sums_of

ONE = st.fixed_dictionaries(
    dict(
        round=st.integers(1, 3),
        view=st.sampled_from(['global', 'personal']),
        moment=st.just('post_agg'),
        path=st.sampled_from(['', 'client', 'a']),
        domain=st.sampled_from('xyz'),
        client=st.just(-1),
        n=st.just(10),
        correct=st.integers(0, 10),
    )
)

@settings(max_examples=60, deadline=None)
@given(st.lists(ONE, max_size=30))
def test_one_pass_says_what_a_plain_loop_says(rows):
    h = History(dict(method='A', suite='toy', seed=0))
    h.rows = rows
    of_view = [r for r in rows if r['view'] == 'global']
    if not of_view:
        with pytest.raises(ValueError, match='has no score'):
            sums_of(h, 'global')
        assert by_domain(h) == ({}, {})
        return
    paths = {r['path'] for r in of_view}
    path = next(p for p in ('', 'client', 'a') if p in paths)
    assert h.headline() == Where(path=path)
    n, right = Counter(), Counter()
    for r in of_view:
        if r['path'] == path:
            n[r['round'], r['domain']] += r['n']
            right[r['round'], r['domain']] += r['correct']
    sums = sums_of(h, 'global')
    found = {(t, d): both for t, of in sums.items() for d, both in of.items()}
    assert found == {k: [n[k], right[k]] for k in n}

def test_a_claim_is_read_once_of_each_suite(monkeypatch):
    c = Claim('T-1', 'A beats B', 'here', 'A', 'B', gain(), headline=True, suites=('toy',))
    row = dict(round=1, view='global', moment='post_agg', path='', domain='x', client=-1, n=100)
    runs = []
    for seed in range(3):
        for m, right in (('A', 60 + seed), ('B', 50)):
            h = History(dict(method=m, suite='toy', deal='skew', seed=seed, rounds=1))
            h.rows = [row | dict(correct=right)]
            runs.append(h)
    asked, whole = [], claims.on_suite

    def count(*of):
        asked.append(of)
        return whole(*of)

    monkeypatch.setattr(claims, 'on_suite', count)
    cmp = Comparison(runs)
    told = claims.verdicts([c], cmp, family=[c])
    assert len(asked) == 1 and told['mean'].tolist() == pytest.approx([11])
    assert seed_values(c, cmp, 'toy') == pytest.approx([10, 11, 12])
