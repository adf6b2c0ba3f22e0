"Light and dark: the same variables, printed text in the page's colour, contrast that can be read."
import re
from pathlib import Path
import pytest
from fedskew_nb.analysis.style import GREY, INK, PALETTE, STYLE
from pages import WIDTH

NBS = Path(__file__).parents[1]/'nbs'

def set_in(theme:str)->dict: # {variable: value}
    text = (NBS/f'{theme}.scss').read_text()
    return dict(re.findall(r'^\$([\w-]+): ([^;]+);', text, re.M))

def shared_in(theme:str)->dict: # {variable: value} of styles.css
    text = (NBS/'styles.css').read_text()
    of = dict(light=r':root', dark=r'body\.quarto-dark')[theme]
    block = re.search(of + r' \{(.*?)\}', text, re.S)[1]
    return dict(re.findall(r'--(\w+): (#\w+);', block))

def luminance(colour:str)->float:
    "WCAG 2.2, relative luminance of #rrggbb."
    parts = [int(colour[k:k+2], 16)/255 for k in (1, 3, 5)]
    linear = [c/12.92 if c <= .04045 else ((c+.055)/1.055)**2.4 for c in parts]
    return sum(w*c for w, c in zip((.2126, .7152, .0722), linear))

def contrast(a:str, b:str)->float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high+.05)/(low+.05)

def test_contrast_is_that_of_the_standard():
    assert contrast('#000000', '#ffffff') == pytest.approx(21)
    assert contrast('#777777', '#ffffff') == pytest.approx(4.478, abs=.001)

def test_both_themes_set_the_same():
    assert set_in('light').keys() == set_in('dark').keys()
    assert shared_in('light').keys() == shared_in('dark').keys()

@pytest.mark.parametrize('theme', ['light', 'dark'])
def test_what_a_cell_prints_has_the_colour_of_the_page(theme):
    "Bootstrap's own is black, also by night."
    assert set_in(theme)['pre-color'] == 'inherit'

def test_a_table_has_the_colour_of_the_page():
    "Bootstrap 5.3.2 and later set its text to their own black; a table is the one that is painted over."
    rule = re.search(r'^main\.content table \{([^}]*)\}', (NBS/'styles.css').read_text(), re.M)[1]
    assert '--bs-table-color: currentcolor;' in rule and '--bs-table-bg: transparent;' in rule

@pytest.mark.parametrize('theme', ['light', 'dark'])
@pytest.mark.parametrize('text, on', [
    ('body-color', 'body-bg'), ('link-color', 'body-bg'),
    ('code-color', 'code-bg'), ('code-color', 'body-bg'),
    ('navbar-fg', 'navbar-bg'), ('navbar-hl', 'navbar-bg'),
    ('sidebar-fg', 'sidebar-bg'), ('sidebar-hl', 'sidebar-bg')])
def test_text_can_be_read(theme, text, on):
    "At least 4.5, WCAG's AA for text of normal size."
    known = set_in(theme)
    assert contrast(known[text], known[on]) >= 4.5

@pytest.mark.parametrize('theme', ['light', 'dark'])
def test_quiet_text_and_printed_text_can_be_read(theme):
    known, shared = set_in(theme), shared_in(theme)
    assert shared['page'] == known['body-bg']
    assert contrast(shared['quiet'], known['body-bg']) >= 4.5
    assert contrast(known['body-color'], shared['tint']) >= 4.5

@pytest.mark.parametrize('theme', ['light', 'dark'])
def test_figures_stand_on_the_page_itself(theme):
    "They are transparent, so each of their colours has to stand out from both pages."
    page = set_in(theme)['body-bg']
    assert min(contrast(c.lower(), page) for c in (*PALETTE.values(), GREY)) > 2.5 and contrast(INK, page) > 3
    rules = (NBS/'styles.css').read_text().splitlines()
    painted = [r for r in rules if re.search(r'(figure|cell-output-display) img', r) and 'background' in r]
    assert STYLE['savefig.facecolor'] == 'none' and painted == []

def test_code_is_as_wide_as_its_box():
    "110 characters of .602 em; Quarto takes 51 px of the body's width, box and padding 19."
    css, quarto = (NBS/'styles.css').read_text(), (NBS.parent/'_quarto.yml').read_text()
    size = float(re.search(r'\.cell-output pre \{ font-size: ([.\d]+)rem', css)[1])
    root = int(set_in('light')['font-size-root'].removesuffix('px'))
    body = int(re.search(r'body-width: (\d+)px', quarto)[1])
    assert 13 <= size*root and WIDTH*.602*size*root <= body-51-19
