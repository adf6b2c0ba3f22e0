"The calibration of `diagnose`: which first advice is right, and whether its folders have their cause."
import sys
from pathlib import Path
import torch

sys.path.insert(0, str(Path(__file__).parent/'evidence'))
from calibrate import digits, is_right, shuffled, sites_of, swapped, written

# ---- the calibration's rules

def test_which_first_advice_is_right():
    truth = dict(adabn=8., fedbn=7., alone=-3.)
    use = 'Use {} instead of FedAvg'.format
    def right(do, name='styles', truth=truth, level=70.): return is_right(name, do, truth, level, 20.)
    assert right(use('AdaBN after FedAvg')) and right(use('FedBN')) and not right(use('training alone'))
    assert not right('Keep FedAvg') and not right('Run 12 seeds') and not right('Look at the labels of siteC')
    none = dict(adabn=.5, fedbn=-1., alone=-9.)
    assert right('Keep FedAvg', truth=none) and right('Collect more pictures', truth=none)
    assert not right('Remove the copies', truth=none)
    assert not right('Keep FedAvg', truth=none | dict(alone=4.))
    assert right('Look at the labels of siteC', 'swap_styles') and not right(use('FedBN'), 'swap_styles')
    assert right('Train longer, or', level=22.) and not right('Train longer, or')

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
