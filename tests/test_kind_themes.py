"Light and dark: the same variables, printed text in the page's colour, contrast that can be read."
import re
from pathlib import Path
import pytest

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
