"The calibration of `diagnose`: which first advice is right, and whether its folders have their cause."
import json
import sys
from pathlib import Path
import torch
from fedskew_nb.tools.again import CURES

sys.path.insert(0, str(Path(__file__).parent/'evidence'))
from calibrate import STORED, SWAPPED, digits, is_right, shuffled, sites_of, swapped, written

# ---- the calibration's rules

def test_which_first_advice_is_right():
    truth = dict(adabn=8., fedbn=7., alone=-3.)
    def right(kind, name='styles', truth=truth, level=70., of=None):
        return is_right(name, kind, of, truth, level, 20.)
    assert right('adabn') and right('fedbn') and not right('alone')
    assert not right('keep') and not right('seeds') and not right('labels', of='siteC')
    assert not right('suspected') and not right('contradictions')
    none = dict(adabn=.5, fedbn=-1., alone=-9.)
    assert right('keep', truth=none) and right('pictures', truth=none)
    assert not right('suspected', truth=none) and not right('copies', truth=none)
    assert not right('keep', truth=none | dict(alone=4.))
    assert right('labels', 'swap_styles', of='siteC') and not right('labels', 'swap_styles', of='siteA')
    assert not right('fedbn', 'swap_styles')
    assert right('backgrounds', 'backgrounds') and not right('backgrounds', truth=none)
    assert right('larger', level=22.) and not right('larger')

def test_its_folders_have_the_cause_that_they_name(tmp_path):
    "By pixels: which picture lies under which name at which site."
    def six(): return sites_of('skew-digits', digits(), 6, 3, torch.Generator().manual_seed(0))
    plain, odd = six(), swapped(six(), 'siteB')
    moved = [(s, c, d) for s in plain for (_, c), (_, d) in zip(plain[s], odd[s]) if c != d]
    assert {m[0] for m in moved} == {'siteB'} and {frozenset(m[1:]) for m in moved} == {frozenset('01')}
    dealt = shuffled(plain, torch.Generator().manual_seed(1))
    home = {x.tobytes(): s for s in plain for x, _ in plain[s]}
    mixed = [sum(home[x.tobytes()] == s for x, _ in own)/len(own) for s, own in dealt.items()]
    assert all(.1 < share < .6 for share in mixed)
    assert sum(map(len, dealt.values())) == sum(map(len, plain.values()))
    assert len([*written('strong_sketch', tmp_path).rglob('*.png')]) == 2*5*24

def test_what_its_page_says_of_the_twelve():
    "The paragraph below the table, from the stored file."
    folders = json.loads(STORED.read_text())['folders']
    inside = [v for f in folders.values() for v in f['inside'].values()]
    wrong = [f for f in folders.values() if not f['right']]
    labels, more = ([f for f in wrong if (f['cause'] == 'labels') == yes] for yes in (True, False))
    assert len(folders) == 12 and (len(inside), sum(inside)) == (84, 84)
    assert len(wrong)/12 > .25 and (len(labels), len(more)) == (2, 3)
    assert {f['advice'] for f in labels} == {'Look at some labels'}
    assert all(f['advice'].startswith(('Collect more pictures', 'Run ')) for f in more)
    named = {k: next(c for c, name in CURES.items() if f['second'][0].startswith(f'Try {name} '))
             for k, f in folders.items() if f in more}
    good = {k for k, c in named.items() if is_right(k, c, None, folders[k]['truth'], 60, 20)}
    assert {*named}-good == {'strong_sketch'} and named['strong_sketch'] == 'adabn'
    cures = [f['chosen']['cure'] for f in folders.values()]
    assert all(c['lo'] < 0 < c['hi'] and c['lo'] <= c['truth'] <= c['hi'] for c in cures)
    assert round(max(c['truth'] for c in cures)) == 22
    behind = folders['strong_sketch']['truth']
    assert round(behind['fedbn']-behind['adabn']) == 2
    assert all(max(f['truth'][k] for k in ('adabn', 'fedbn', 'alone')) >= 5 for f in more)

def test_what_its_page_says_of_those_that_were_asked_again():
    "One is found, one suspicion names another site, and one folder seems in order."
    folders = json.loads(STORED.read_text())['folders']
    now = {k: f['again'] for k, f in folders.items() if 'again' in f}
    assert now.keys() == SWAPPED.keys() and {k for k, a in now.items() if a['accused']} == {'swap_digits'}
    assert now['swap_digits']['accused'] == [SWAPPED['swap_digits']]
    word, = now['swap_styles']['suspected']
    assert word and SWAPPED['swap_styles'] not in word
    assert now['swap_noskew']['suspected'] == []
