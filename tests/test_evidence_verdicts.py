"What the plan's runs say, once more from the raw runs, without a line of the reader."
import base64, json, lzma, math, sys, tomllib
from collections import Counter
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest
from scipy.stats import t

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE/'evidence'))
TEXT = (HERE.parent/'fedskew_nb'/'assets'/'plan.json').read_text()
STORED = json.loads(TEXT.replace('IID split', 'IID deal'))       # as the plan's rows are called
WORDS = dict(received='post_agg', trained='post_local') | {'re-estimated': 'adabn'}
CLAIMS = {c['id']: c for c in STORED['verdicts'] if not c['why_not']}
PLAN = tomllib.loads((HERE/'evidence'/'plan.toml').read_text())

def raw(name)->dict: # {seed: {row: entry}}
    files = (HERE/'evidence'/'runs'/name).glob('*.json.xz')
    return {d['seed']: d['rows'] for d in (json.loads(lzma.decompress(f.read_bytes())) for f in files)}

OWN = {p.name: raw(p.name) for p in (HERE/'evidence'/'runs').iterdir()}

def with_found(name)->dict: # {seed: {row: entry}}
    "And the runs that were made for another row, mostly of another set: the same at the same rate."
    out = {seed: dict(rows) for seed, rows in OWN.get(name, {}).items()}
    for row, of in STORED['sets'][name]['found'].items():
        for seed, (set_, its) in of.items(): out.setdefault(int(seed), {})[row] = OWN[set_][int(seed)][its]
    return out

RAW = {name: with_found(name) for name in STORED['sets']}

def test_a_run_that_was_made_for_another_set_is_the_same_run():
    "Net, budget, data, device and rate are one."
    plans = {p['id']: p for p in PLAN['set']}
    for name, s in STORED['sets'].items():
        for row, of in s['found'].items():
            for seed, (set_, its) in of.items():
                for key in ('data', 'suite', 'model', 'setting', 'device', 'house'):
                    assert plans[name].get(key) == plans[set_].get(key)
                there = OWN[set_][int(seed)][its]
                assert there['lr'] == s['tuning'].get(row, s['tuning'].get('FedAvg', {}))['lr']
                setting = there['history']['setting']
                assert (setting['seed'], setting['lr']) == (int(seed), there['lr'])

def plain(v):
    "Numbers as another processor may have them."
    if isinstance(v, dict): return {k: plain(x) for k, x in v.items()}
    if isinstance(v, list): return list(map(plain, v))
    return pytest.approx(v, rel=1e-9) if isinstance(v, float) else v

def shares(history, view, moment, last=3)->list: # a dict {domain: share in percent} for each check
    rows = [r for r in history['rows'] if (r['view'], r['moment']) == (view, WORDS[moment])]
    path = next(p for p in ('', 'client') if any(r['path'] == p for r in rows))
    out = []
    for check in sorted({r['round'] for r in rows})[-last:]:
        here = [r for r in rows if r['round'] == check and r['path'] == path]
        right, n = Counter(), Counter()
        for r in here:
            right[r['domain']] += r['correct']
            n[r['domain']] += r['n']
        out.append({d: (100*right[d]/n[d], n[d]) for d in n})
    return out

def score(history, view, moment)->float:
    return fmean(fmean(share for share, _ in check.values()) for check in shares(history, view, moment))

@pytest.mark.parametrize('name', STORED['sets'])
def test_every_stored_score_is_what_the_rows_say(name):
    for row, of in STORED['sets'][name]['rows'].items():
        for place, by_seed in of.items():
            view, moment = place.split()
            again = {seed: score(RAW[name][int(seed)][row]['history'], view, moment) for seed in by_seed}
            assert by_seed == pytest.approx(again, abs=6e-4)

def test_the_best_check_is_the_highest_of_all():
    for row, of in STORED['sets']['P3s']['best'].items():
        for seed, stored in of.items():
            history = RAW['P3s'][int(seed)][row]['history']
            views = {r['view'] for r in history['rows']} & {'personal', 'global'}
            checks = [shares(history, view, 'received', last=99) for view in views]
            assert max(map(len, checks)) == 6
            means = [fmean(share for share, _ in check.values()) for of_view in checks for check in of_view]
            assert stored == pytest.approx(max(means), abs=6e-4)

def test_a_set_is_whole_where_no_run_is_missing():
    for name, s in STORED['sets'].items():
        made = {row: sum(row in rows for rows in RAW[name].values()) for row in s['wanted']}
        assert s['whole'] == (made == s['wanted'])
    assert {c['set'] for c in CLAIMS.values()} <= {n for n, s in STORED['sets'].items() if s['whole']}

def test_no_claim_of_a_whole_set_is_left_out():
    "It is judged, or says why not."
    claims = tomllib.loads((HERE/'evidence'/'claims.toml').read_text())['claim']
    asked = {c['id']: c for c in claims if STORED['sets'].get(c['primary']['set'], {}).get('whole')
             and c['kind'] != 'use'}
    said = {c['id']: c['why_not'] for c in STORED['verdicts']}
    assert said.keys() == asked.keys()
    assert all(c['untestable'] in said[i] for i, c in asked.items())

def test_a_run_that_stopped_counts_as_0_and_one_at_chance_judges_nothing():
    import verdicts
    from fedskew_nb.engine.history import History
    row = dict(round=4, moment='post_agg', view='personal', path='', domain='a', client=-1, n=100, correct=50)
    fine = History(dict(rounds=4, chance=50.), [row])
    stopped = History(dict(rounds=4, chance=50.))
    stopped.measures = dict(stopped='nan')
    assert verdicts.scores({7: fine, 8: stopped}) == {'personal received': {7: 50., 8: 0.}}
    assert verdicts.at_chance({7: fine, 8: stopped}) and verdicts.at_chance({7: fine})
    fine.rows[0]['correct'] = 51
    assert not verdicts.at_chance({7: fine})

def interval(d):
    half = t.ppf(.975, len(d)-1)*stdev(d)/len(d)**.5
    return fmean(d), fmean(d)-half, fmean(d)+half

def by_hand(c)->list: # a number a seed
    "The difference of a claim."
    pairs = [(rows[c['a']]['history'], rows[c['b']]['history']) for _, rows in sorted(RAW[c['set']].items())]
    if c['column'] == 'rank': return [a['measures']['rank']-b['measures']['rank'] for a, b in pairs]
    if c['column'] == 'plus - minus': return [a['measures']['plus']-a['measures']['minus'] for a, _ in pairs]
    return [score(a, c['view'], c['moment'])-score(b, c['view'], c['moment']) for a, b in pairs]

@pytest.mark.parametrize('name', [i for i, c in CLAIMS.items() if c['column'] != 'STD'])
def test_a_claim_is_what_the_rows_say(name):
    c = CLAIMS[name]
    mean, lo, hi = interval(by_hand(c))
    assert (c['mean'], c['lo'], c['hi']) == pytest.approx((mean, lo, hi), abs=1e-9)
    assert c['above'] == ('yes' if lo > 0 and c['p'] < .05 else 'below' if hi < 0 else 'open')
    size = 'yes' if lo >= c['needed'] else 'smaller' if hi < c['needed'] else 'open'
    assert c['large'] == (size if c['needed'] else '')

def spread(histories)->float:
    "STD over domains of the mean accuracy over seeds and checks, less what the images alone make."
    checks = [check for h in histories for check in shares(h, 'global', 'received')]
    acc = {d: fmean(check[d][0] for check in checks) for d in checks[0]}
    n = {d: sum(check[d][1] for check in checks) for d in acc}
    noise = fmean(a*(100-a)/n[d] for d, a in acc.items())
    return max(0., stdev(acc.values())**2-noise)**.5

def test_the_spread_over_domains_is_judged_by_a_jackknife():
    c = CLAIMS['F2DC-02']
    runs = [RAW['A'][seed] for seed in sorted(RAW['A'])]
    def difference(keep):
        one, other = ([r[c[k]]['history'] for r in keep] for k in 'ab')
        return spread(one)-spread(other)
    n, whole = len(runs), difference(runs)
    left = [difference(runs[:k]+runs[k+1:]) for k in range(n)]
    variance = (n-1)/n*sum((v-fmean(left))**2 for v in left)        # the jackknife's own
    half = t.ppf(.975, n-1)*variance**.5
    mean = n*whole-(n-1)*fmean(left)
    assert (c['mean'], c['lo'], c['hi']) == pytest.approx((mean, mean-half, mean+half), abs=1e-6)

def test_the_stored_file_is_what_the_reader_makes(tmp_path, monkeypatch):
    import verdicts
    monkeypatch.setattr(verdicts, 'OUT', tmp_path/'plan.json')
    made = json.loads(json.dumps(verdicts.main()).replace('IID split', 'IID deal'))
    assert made['sets'] == plain(STORED['sets']) and made['skew'] == plain(STORED['skew'])
    assert made['verdicts'] == plain(STORED['verdicts']) and made['uses'] == plain(STORED['uses'])
    assert all(made[k] == plain(STORED[k]) for k in ('claims', 'moves', 'again'))

# ---- photographs: pictures drawn anew ----
USES = {u['id']: u for u in STORED['uses']}
DATA = {s['id']: s['data'] for s in PLAN['set'] if s['suite'] == 'photographs'}

def marked(history, name, moment, seed)->np.ndarray: # (pictures,) mean of its marks; nan where it is no test
    "From the bits of the rows; the n clients of a domain share its tests out, every n-th to each."
    import photographs, verdicts
    tests = verdicts.tests_of(DATA[name], seed)
    place = 'personal', WORDS[moment]
    rows = [r for r in history['rows'] if (r['view'], r['moment']) == place and 'right' in r]
    clients = {d: sorted({r['client'] for r in rows if r['domain'] == d}) for d in tests}
    out = np.full(len(photographs.stored_folds(DATA[name]['name'])[0]), np.nan)
    for at in tests.values(): out[at] = 0
    for r in rows:
        bits = np.unpackbits(np.frombuffer(base64.b64decode(r['right']), np.uint8))[:r['n']]
        assert bits.sum() == r['correct']
        of = clients[r['domain']]
        out[tests[r['domain']][of.index(r['client'])::len(of)]] += bits/3
    return out

def with_pictures(gaps, where)->tuple: # (seeds, pictures) → a number a seed, variance of new pictures
    of = [gaps[:, where == d] for d in sorted({*where})]
    values = [fmean(np.nanmean(g[k]) for g in of) for k in range(len(gaps))]
    tested = [np.nanmean(g[:, ~np.isnan(g).all(0)], 0) for g in of]        # of each picture, over its seeds
    return values, sum(np.var(v, ddof=1)/len(v) for v in tested)/len(of)**2

@pytest.mark.parametrize('name', USES)
def test_a_use_is_what_the_marks_say(name):
    "Student's interval over seeds; of new pictures, with the variance of pictures."
    import photographs
    u, runs = USES[name], RAW[USES[name]['set']]
    def read(n, seed):
        row, moment = ('FedAvg', 're-estimated') if n == 'FedAvg + AdaBN' else (n, u['moment'])
        return marked(runs[seed][row]['history'], u['set'], moment, seed)
    gaps = np.stack([100*(read(u['a'], k)-read(u['b'], k)) for k in sorted(runs)])    # (seeds, pictures)
    values, pictures = with_pictures(gaps, photographs.stored_folds(DATA[u['set']]['name'])[0])
    n, mean, seeds = len(values), fmean(values), stdev(values)**2/len(values)
    ses = dict(these=seeds**.5, new=(seeds+pictures)**.5)
    spans = {k: (mean-t.ppf(.975, n-1)*se, mean+t.ppf(.975, n-1)*se) for k, se in ses.items()}
    assert {k: tuple(u[k]) for k in spans} == {k: pytest.approx(v, abs=1e-9) for k, v in spans.items()}
    of = u['interval'].split()[0]
    lo, hi = spans[of]
    assert (u['mean'], u['se'], u['lo'], u['hi']) == pytest.approx((mean, ses[of], lo, hi), abs=1e-9)
    cured = STORED['skew'][{'P1-cpu': 'P1'}.get(u['set'], u['set'])]['cure']
    if u['margin']: assert u['within'] == ('yes' if lo > -1 and u['p'] < .05 else 'no' if hi < -1 else 'open')
    else: assert ('above' in u) == (cured and not u['rises']+u['unknown'])

MENDED = [(n, c['row'], c) for n in ('P1', 'P1-cpu', 'P5-2') for c in STORED['sets'][n]['equal']
          if (c['moment'], c['over'], c['view']) == ('re-estimated', 'FedAvg', 'personal')]

@pytest.mark.parametrize('name, row, c', MENDED, ids=[f'{n}-{r}' for n, r, _ in MENDED])
def test_a_difference_with_both_re_estimated_is_what_the_marks_say(name, row, c):
    "Of the IID split, too: its model answers each client's share of the tests. On PACS of new pictures."
    import photographs
    runs = RAW[name]
    def read(r, seed): return marked(runs[seed][r]['history'], name, 're-estimated', seed)
    gaps = np.stack([100*(read(row, k)-read('FedAvg', k)) for k in sorted(runs)])
    values, pictures = with_pictures(gaps, photographs.stored_folds(DATA[name]['name'])[0])
    variance = stdev(values)**2/len(values) + (pictures if c['interval'] == 'new pictures' else 0)
    half = t.ppf(.975, len(values)-1)*variance**.5
    mean = fmean(values)
    assert (c['mean'], c['lo'], c['hi']) == pytest.approx((mean, mean-half, mean+half), abs=1e-9)
    assert c['interval'] == ('these pictures' if name == 'P5-2' else 'new pictures')

def test_a_run_that_fell_lost_ten_points_within_its_last_three_checks():
    for name, s in STORED['sets'].items():
        lost = {}
        for seed, rows in RAW[name].items():
            for row, e in rows.items():
                places = {(r['view'], r['moment']) for r in e['history']['rows']}
                if ('personal', 'post_agg') not in places: continue
                checks = shares(e['history'], 'personal', 'received')
                means = [fmean(share for share, _ in check.values()) for check in checks]
                if means[0]-means[-1] > 10: lost[row, seed] = means
        told = {(f['row'], f['seed']): f['checks'] for f in s['fell']}
        assert told == {k: pytest.approx(v, abs=1e-3) for k, v in lost.items()}

@pytest.mark.parametrize('name', [i for i, u in USES.items() if 'also' in u])
def test_also_is_the_tie_of_the_same_two_turned_round(name):
    u = USES[name]
    tie, = [w for w in USES.values() if (w['set'], w['b']) == (u['set'], u['a']) and w['margin']]
    also = u['also']
    turned = -tie['mean'], -tie['hi'], -tie['lo']
    assert (also['mean'], also['lo'], also['hi']) == pytest.approx(turned, abs=1e-9)
    assert also['within'] == ('yes' if also['lo'] > -1 else 'no' if also['hi'] < -1 else 'open')

def risen(history)->float: # points from three quarters of the rounds to the checks of record; nan: not known
    "As received; one model for all is asked for each client at the end alone."
    end = .75*history['setting']['rounds']
    early = [r for r in history['rows'] if r['moment'] == 'post_agg' and r['round'] <= end]
    for view in ('personal', 'global'):
        rows = [r for r in early if r['view'] == view and r['path'] in ('', 'client')]
        if not rows: continue
        last, right, n = max(r['round'] for r in rows), Counter(), Counter()
        for r in (r for r in rows if r['round'] == last):
            right[r['domain']] += r['correct']
            n[r['domain']] += r['n']
        return score(history, view, 'received')-fmean(100*right[d]/n[d] for d in n)
    return math.nan

@pytest.mark.parametrize('name', [*USES, *CLAIMS])
def test_a_row_that_still_rises_is_named_and_so_is_one_of_which_it_is_not_known(name):
    "FedAvg with its statistics re-estimated is a run of FedAvg."
    u = USES.get(name) or CLAIMS[name]
    seeds = RAW[u['set']].values()
    rows = {'FedAvg' if u[k] == 'FedAvg + AdaBN' else u[k] for k in 'ab'} & {*next(iter(seeds))}
    gains = {r: fmean(risen(of[r]['history']) for of in seeds) for r in rows}
    assert {*u['rises']} == {r for r, v in gains.items() if v >= 1}, gains
    assert {*u['unknown']} == {r for r, v in gains.items() if math.isnan(v)}

@pytest.mark.parametrize('name', STORED['skew'])
def test_the_skew_is_iid_minus_fedavg_of_one_model_for_all(name):
    def read(seed, row): return score(RAW[name][seed][row]['history'], 'global', 'received')
    mean, lo, hi = interval([read(k, 'FedAvg, IID deal')-read(k, 'FedAvg') for k in sorted(RAW[name])])
    s = STORED['skew'][name]
    assert (s['mean'], s['lo'], s['hi']) == pytest.approx((mean, lo, hi), abs=1e-9)
    assert s['cure'] == (mean >= 3 and lo > 0)

def test_p_of_a_use_is_holms_over_its_family():
    "Of a difference of minus the margin, or of 0; what is not reached counts as 1; the smallest first."
    claims = tomllib.loads((HERE/'evidence'/'claims.toml').read_text())['claim']
    families = {c['system']: c['family'] for c in claims if c['kind'] == 'use'}
    systems = {c['id']: c['system'] for c in claims}
    for system, size in families.items():
        mine = [u for i, u in USES.items() if systems[i] == system]
        raw = sorted((2*t.sf(abs(u['mean']+u['margin'])/u['se'], u['n']-1), u['id']) for u in mine)
        least = 0.
        for k, (p, name) in enumerate(raw):
            least = max(least, min(1., (size-k)*p))
            assert USES[name]['p'] == pytest.approx(least, rel=1e-9)

def test_pictures_of_one_seed_are_tested_once_and_no_training_picture_is():
    import photographs
    where, fold = photographs.stored_folds('pacs')
    assert len(where) == 9991 and Counter(where.tolist()) == Counter(
        art_painting=2048, cartoon=2344, photo=1670, sketch=3929)
    for seed in (200, 204):
        for d in dict.fromkeys(where.tolist()):
            here = where == d
            mine, test = photographs.parts_of('pacs', seed, False, d, np.flatnonzero(here), fold, 3, 100)
            assert len({*mine}) == 300 and not {*mine} & {*test} and (fold[test] >= 0).all()
            assert (fold[mine] != seed % 5).all() and len(mine)+len(test) == (here & (fold >= 0)).sum()
