"Names in other scripts, and long ones: no empty boxes, and the caption says whose a number is."
import warnings
import matplotlib
import pytest
from hypothesis import given, strategies as st
from fedskew_nb.analysis.report import rendered
from fedskew_nb.analysis.style import drawable, key_text, legible, make_legible, subplots

matplotlib.use('Agg')
CUNEIFORM = '\U00012000\U00012001'     # few machines have a font for it
NAMES = [CUNEIFORM, '\U00012002', 'photo', 'a'*120]

def bars():
    _, ax = subplots()
    ax.barh(range(4), [1, 2, 3, 4], label=f'{CUNEIFORM} and FedAvg')
    ax.set_yticks(range(4), NAMES)
    ax.set_title(f'On {CUNEIFORM}')
    ax.legend()
    return ax

def test_no_glyph_is_missing():
    key = {}
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        rendered(bars, key)
    assert set(key) >= {CUNEIFORM, '\U00012002', 'a'*120} and sorted(key.values()) == [*range(1, len(key)+1)]

def test_a_number_stands_for_one_name_in_all_places():
    ax, key = bars(), {}
    make_legible(ax.figure, key)
    ticks = [t.get_text() for t in ax.get_yticklabels()]
    k = key[CUNEIFORM]
    assert ticks == [f'[{k}]', f'[{key[NAMES[1]]}]', 'photo', f'{"a"*20}… [{key["a"*120]}]']
    assert ax.get_title(loc='left') == f'On [{k}]' or ax.get_title() == f'On [{k}]'
    assert ax.get_legend().get_texts()[0].get_text() == f'[{k}] and FedAvg'

def test_the_caption_says_whose():
    assert key_text({}) == ''
    assert key_text({'x': 1, 'y': 2}) == ' In the figure: [1] x, [2] y.'

def test_usual_names_stay():
    def plain():
        _, ax = subplots()
        ax.plot([1, 2], label='FedAvg')
        ax.set_xticks([0, 1], ['Köln', 'Ελλάδα'])
        ax.legend()
        return ax
    key = {}
    assert rendered(plain, key) == rendered(plain) and key == {}

@given(st.text(max_size=60))
def test_what_is_drawn_has_a_glyph(text):
    key = {}
    out = legible(text, key, 40)
    assert all(c.isspace() or ord(c) in drawable() for c in out)
    if out == text: assert key == {}

@given(st.lists(st.text('ab', min_size=50, max_size=60), unique=True, min_size=2, max_size=5))
def test_long_names_stay_different(names):
    key = {}
    assert len({legible(n, key, 40) for n in names}) == len(names) == len(key)

@pytest.mark.parametrize('text', ['', ' ', 'a  b', 'FedBN (3 of 3)', '3.5 ± .2', 'a\nb'])
def test_plain_texts_are_let_through(text): assert legible(text, {}) == text
