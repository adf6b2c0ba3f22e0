"""What each claim of the plan can show with its seeds; `python tests/evidence/power.py` prints the table.

alone: the true difference that a paired t-test at .05, two-sided, shows with power .8. holm: the same at
the first step of Holm's rule, .05 / family. new: the holm number where the pictures, too, count as drawn
from their domains: all seeds share them, so that no seed takes their part of the variance away. It is an
upper bound: of the disagreement on one run's pictures, what changes from run to run does average out.
"""
import math
from scipy import optimize, stats
from records import read, record_hash

POWER = .8

def power_of(effect:float, n:int, alpha:float)->float:
    "How often n pairs show an effect, in standard deviations of a pair: the noncentral t."
    bound = stats.t.ppf(1-alpha/2, n-1)
    return float(stats.nct.sf(bound, n-1, effect*math.sqrt(n)))

def shown(n:int, alpha:float)->float:
    "The effect, in standard deviations of a pair, that n pairs show with this power."
    far = 9*stats.t.ppf(1-alpha/2, n-1)/math.sqrt(n)
    return float(optimize.brentq(lambda effect: power_of(effect, n, alpha)-POWER, 0, far))

def digits(x:float)->float: return float(f'{x:.3g}')

def detectable(n:int, pilot_sd:float, family:int, alpha:float=.05, pictures_se:float=0.)->dict:
    "alone, holm and new of a claim, to three digits."
    wide = math.sqrt(pilot_sd**2 + (n-1)*pictures_se**2)
    first = shown(n, alpha/family)
    return dict(alone=digits(pilot_sd*shown(n, alpha)), holm=digits(pilot_sd*first), new=digits(wide*first))

def of_claim(c:dict)->dict:
    return detectable(c['n'], c['pilot_sd'], c['family'], c['alpha'], c['pictures_se'])

def distance(c:dict)->float:
    "How far the truth that matters lies from what the test would refute: `needed`, or the margin of a tie."
    return c['margin'] or c['needed']

def mark(c:dict)->str:
    "untestable: as the plan says; hopeless: Holm's first step shows no less than twice what is needed."
    if c['untestable']: return 'untestable'
    return 'hopeless' if 0 < 2*distance(c) < c['detectable']['holm'] else ''

def line(c:dict)->str:
    d = c['detectable']
    numbers = f"{c['n']:3} {c['pilot_sd']:6.3g} {c['family']:3} {c['needed']:8.4g}"
    shows = f"{d['alone']:7.3g} {d['holm']:7.3g} {d['new']:7.3g}"
    return f"{c['id']:18} {c['primary']['set']:10} {numbers} {shows} {mark(c):11} {record_hash(c)}"

if __name__ == '__main__':
    head = f"{'n':>3} {'sd':>6} {'of':>3} {'needed':>8} {'alone':>7} {'holm':>7} {'new':>7}"
    print(f"{'claim':18} {'set':10} {head}")
    print(*map(line, read('claims.toml')['claim']), sep='\n')
