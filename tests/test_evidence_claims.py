"The claims of the plan: whole, tied to what the papers print, and as strong as they say."
import math, runpy, sys
from collections import Counter
from pathlib import Path
from statistics import stdev
import pytest

EVIDENCE = Path(__file__).parent/'evidence'
sys.path.insert(0, str(EVIDENCE))
from shipped import stored
from plan import read_plan
from power import detectable, mark, of_claim, shown
from records import read, record_hash
from test_published_tables import ROWS as PUBLISHED
from fedskew_nb.analysis.claims import claims_of, seed_values
from fedskew_nb.analysis.stats import effect_shown, seeds_for
from fedskew_nb.run.reproduce import protocols
from fedskew_nb.engine.reading import MOMENTS as STORED

ALL = read('claims.toml')
CLAIMS, CELLS, MOVED = (ALL[k] for k in ('claim', 'cell', 'moved'))
BY_ID = {c['id']: c for c in CLAIMS}
each = pytest.mark.parametrize('c', CLAIMS, ids=list(BY_ID))

SETS = {s.id: s for s in read_plan()}
ROWS = {i: {r['name']: r for r in s.record['row']} for i, s in SETS.items()}
OFFICE = {i for i, s in SETS.items() if s.record.get('data', {}).get('name') == 'office'}
STATES = {('FDSE', 'adapted'): 'FDSE', ('FDSE', 'plain'): 'FDSE - align'}    # measures of one run
YARDSTICK = {'replication': 'replication', 'replication, reduced': 'replication', 'use': 'use'}

FIELDS = dict(
    id=str, system=str, kind=str, sentence=str, paper=str, se_printed=str, printed=list, needed=float,
    needed_of=str, margin=float, primary=dict, n=int, pilot_sd=float, sd_from=str, pictures_se=float,
    detectable=dict, alpha=float, family=int, interval=str, control=str, gate=str, untestable=str,
    beside=list, changed=str)
MAY_BE_EMPTY = {'untestable', 'changed', 'printed', 'beside', 'margin', 'needed', 'pictures_se'}
USE = dict(also=dict, rows=dict)

@each
def test_a_record_is_complete(c):
    "No field is absent, of another type, or empty where it has to say something."
    assert {k: type(v) for k, v in c.items() if k not in USE} == FIELDS
    assert {k for k in FIELDS if not c[k]} <= MAY_BE_EMPTY
    assert c['kind'] in YARDSTICK and c['alpha'] == .05
    assert ('also' in c) == c['id'].startswith('Use-')
    assert ('rows' in c) == (c['kind'] == 'use' or c['id'] == 'FDSE-10')

def test_ids_are_unique():
    ids = [r['id'] for r in CLAIMS + MOVED]
    assert len(set(ids)) == len(ids) == len({record_hash(r) for r in CLAIMS + MOVED})

def test_every_headline_claim_of_the_package_has_a_record():
    "Or is said to have gone into another; and no record stands for a claim that is none."
    heads = {c.id for claims in claims_of().values() for c in claims if c.headline}
    own = {i for i, c in BY_ID.items() if c['kind'] != 'use'}
    assert heads == own | {m['id'] for m in MOVED} and {m['to'] for m in MOVED} <= own

OURS = {'FedAvg, IID deal': 'FedAvg/iid', 'SUM': 'Summed + Disentangle + FedBN'}

def test_a_pair_is_that_of_the_package_or_says_what_changed():
    package = {c.id: set(c.methods) for claims in claims_of().values() for c in claims}
    for i, c in BY_ID.items():
        if c['kind'] == 'use' or c['changed']: continue
        assert {OURS.get(c['primary'][k], c['primary'][k]) for k in 'ab'} == package[i], i

@each
def test_needed_is_what_it_says(c):
    "Half of the two printed cells' difference, or of the logarithm of their ratio; else ours, and said so."
    if c['needed_of'].startswith('ours: '): return
    a, b = (cell[3] for cell in c['printed'])
    half = {'half of their difference': (a-b)/2, 'half of the logarithm of their ratio': math.log(a/b)/2}
    what, _, where = c['needed_of'].partition(', ')
    assert c['needed'] == pytest.approx(half[what], abs=6e-4) and c['needed'] > 0
    assert where == ('printed of Office' if c['id'] == 'DFL-3' else '')

@pytest.mark.parametrize('paper', ['F2DC', 'FDSE', 'FedDDL'])
def test_the_package_needs_what_the_plan_needs(paper):
    "Half of what is printed, in the column that the suite stands for; FedDDL's were rounded before the plan."
    for c in (c for c in claims_of()[paper] if c.headline and c.id in BY_ID):
        want = BY_ID[c.id]['needed']
        assert (c.needed or 0) == pytest.approx(want, abs=.05 if paper == 'FedDDL' else 1e-9), c.id

def test_not_testable_says_how_many_seeds():
    "As many as 80 % power takes with the spread that was seen, but for a tenth."
    said = {c.id: (c, paper) for paper, claims in claims_of().items() for c in claims if 'seeds' in c.instead}
    assert len(said) == 4
    for c, paper in said.values():
        sd = stdev(seed_values(c, stored(f'claims-{paper}'), c.suites[0]))
        seeds = int(c.instead.split()[-2])
        assert seeds == pytest.approx(seeds_for(sd, c.needed, most=2000), rel=.1), c.id

def printed_in(table, row, column, number):
    "None where the package has no such table or column."
    p = protocols().get(table)
    return p.numbers()[row][column] == number if p and column in p.columns else None

def test_further_cells_of_f2dc_are_those_of_its_tables():
    "STD of Table 1 and Table 7, which `test_published_tables` recomputes."
    cells = [cell for i in ('F2DC-02', 'F2DC-11') for cell in BY_ID[i]['printed']]
    tables = {'F2DC-1-PACS': '1', "F2DC's Table 7": '7'}
    assert [PUBLISHED[tables[t], 'PACS', row][dict(AVG=4, STD=5)[column]] for t, row, column, _ in cells] == [
        number for *_, number in cells]

def test_printed_cells_are_those_of_the_tables():
    "Whatever stands in a table of the package is equal; a table that it has not is named in words."
    known = [printed_in(*cell) for c in CLAIMS for cell in c['printed']]
    assert False not in known and known.count(True) == 26
    named = {cell[0] for c in CLAIMS for cell in c['printed'] if cell[0] not in protocols()}
    assert all("'" in name for name in named)

@pytest.mark.parametrize('r', CELLS, ids=lambda r: f'{r["set"]}-{r["row"]}')
def test_a_cell_is_that_of_its_table(r):
    numbers = protocols()[r['table']].numbers()[r['row']]
    numbers = {k: v for k, v in numbers.items() if k != 'STD'}
    assert r['domains'] | {r['column']: r['printed']} == numbers
    assert (r['row'] in ROWS[r['set']] or r['row'] in STATES.values()) and r['n_paper'] >= 1
    assert all(r[k] for k in ('inside', 'score', 'counted', 'differs'))

def test_cells_are_judged_where_the_protocol_is_the_papers():
    judged = {r['set'] for r in CELLS if not r['inside'].startswith('not judged')}
    assert judged == {'P3', 'G'} and {r['set'] for r in CELLS} - judged == {'P3s', 'P4s', 'P6-Office'}
    assert len({(r['set'], r['table'], r['row']) for r in CELLS}) == len(CELLS)

def read_of(c, name)->dict: # {'row', 'moment' or 'measure'}
    "What stands behind a name of a claim."
    return c.get('rows', {}).get(name, dict(row=name))

def rows_of(c)->set: # in the words of the plan
    "The rows that a claim's verdict is made of."
    p = c['primary']
    names = [p['a'], p['b'], *([c['also']['b']] if 'also' in c else [])]
    return {read_of(c, name)['row'] for name in names}

@each
def test_a_primary_cell_is_one_that_the_sets_have(c):
    p = c['primary']
    assert {*p} - {'less', 'more'} == {'set', 'a', 'b', 'view', 'moment', 'column'} and all(p.values())
    assert p['view'] in ('global', 'personal', 'unseen')
    assert p['moment'] in ('received', 'trained', 're-estimated')
    joined = [p['set'], *([p['more']] if 'more' in p else [])]
    assert c['n'] == sum(len(SETS[s].seeds) for s in joined)
    if c['untestable']: return
    assert all(rows_of(c) <= {*ROWS[s]} for s in [*joined, *([p['less']] if 'less' in p else [])])

@each
def test_every_run_of_a_claim_is_planned(c):
    "Under its name in the plan: of each domain that is left out, where one is."
    if c['untestable']: return
    s = SETS[c['primary']['set']]
    assert (c['primary']['view'] == 'unseen') == ('targets' in s.record or s.id == 'D')
    ends = [f', without {t}' for t in s.record.get('targets', ())] or ['']
    assert {row+end for row in rows_of(c) for end in ends} <= {r.name for r in s.rows}

MEASURED = {'rank': 'f2dc', 'plus - minus': 'f2dc', 'empty_p': 'fedddl'}    # column: measure

@each
def test_what_is_compared_is_measured(c):
    p, rows = c['primary'], ROWS[c['primary']['set']]
    if c['untestable']: return
    for name in (p['a'], p['b']):
        read = read_of(c, name)
        row = rows[read['row']]
        if p['column'] in MEASURED: assert row['measure'] == MEASURED[p['column']]
        elif p['column'].startswith('AUROC'): assert row['trust']
        else: assert p['column'] in ('AVG', 'STD')
        if 'measure' not in read: continue
        assert row['measure'] == 'unseen' and STATES[read['row'], read['measure']] == name

def test_further_seeds_of_a_set_differ_in_their_seeds_and_rows_alone():
    assert not any('more' in c['primary'] for c in CLAIMS)         # P1-more is cut
    own = ('id', 'what', 'seeds', 'row', 'pilot', 'tuned_as')
    def same(s): return {k: v for k, v in s.record.items() if k not in own}
    a, b = SETS['P1'], SETS['P1-more']
    assert same(a) == same(b) and b.tuned_as == a.tuned_as and not {*a.seeds} & {*b.seeds}
    assert all(ROWS['P1'][r] | row == ROWS['P1'][r] for r, row in ROWS['P1-more'].items())

def test_claims_of_use_on_p1_have_its_eight_seeds():
    "DFL's on a CPU: the same pictures, net, setting and seeds."
    of = Counter((c['primary']['set'], c['n']) for c in CLAIMS if c['id'].endswith('-P1'))
    assert of == {('P1', 8): 6, ('P1-cpu', 8): 2}
    own = ('id', 'what', 'row', 'revision', 'device', 'tuning', 'amends')
    def same(i): return {k: v for k, v in SETS[i].record.items() if k not in own}
    assert same('P1') == same('P1-cpu') == same('P1-cpu-more') == same('P1-2')

@each
def test_a_verdict_is_of_pictures_that_can_carry_it(c):
    "Office: these pictures; PACS: new ones; drawings: a seed draws its own."
    s = c['primary']['set']
    photos = SETS[s].record['suite'] == 'photographs'
    usual = 'these pictures' if s in OFFICE else 'new pictures' if photos else 'seeds'
    assert c['interval'] == ('jackknife over seeds' if c['primary']['column'] == 'STD' else usual)
    assert (c['pictures_se'] > 0) == photos

def test_the_reading_defines_its_words():
    reading = ALL['reading']
    words = {c['interval'].replace(' ', '_') for c in CLAIMS} - {'jackknife_over_seeds'}
    assert words == {'seeds', 'these_pictures', 'new_pictures'} <= {*reading}
    assert all(i in reading['these_pictures'] for i in OFFICE - {'P3', 'G', 'P5-more', 'P5-2'})
    pairs = zip(('received', 'trained', 're-estimated'), STORED)
    assert all(f'{ours} is {theirs}' in reading['moments'] for ours, theirs in pairs)

def test_what_is_printed_beside_is_planned():
    "And no set that has no record yet."
    words = {b for c in CLAIMS for b in c['beside']}
    sets = {w.partition(':')[0] for w in words if not w.startswith(('other', 'both', 'the two'))}
    assert sets <= {*SETS} and not {*ALL['later']} & {*SETS}

def test_no_two_claims_have_one_primary_cell():
    cells = Counter(tuple(sorted(c['primary'].items())) for c in CLAIMS)
    assert max(cells.values()) == 1

MOMENTS = dict(F2DC='received', FDSE='trained', RFedDis='received', DFL='received')

def test_the_moment_is_the_one_that_the_paper_scores():
    for c in CLAIMS:
        p, system = c['primary'], c['primary']['b'] if c['id'].startswith('Whole-') else c['system']
        if p['view'] == 'unseen' or c['untestable']: continue
        assert p['moment'] == MOMENTS[system], c['id']
        if c['kind'] == 'use': assert p['view'] == 'personal'

@each
def test_a_family_counts_the_records_of_its_system_and_yardstick(c):
    def key(r): return r['system'], YARDSTICK[r['kind']]
    assert c['family'] == sum(key(r) == key(c) for r in CLAIMS)

def test_families():
    got = {(c['system'], YARDSTICK[c['kind']]): c['family'] for c in CLAIMS}
    want = dict(F2DC=5, FDSE=5, FedDDL=6, RFedDis=6, DFL=7)
    assert {s: n for (s, y), n in got.items() if y == 'replication'} == want
    use = {'F2DC': 3, 'FDSE': 3, 'FedDDL': 1, 'RFedDis': 2, 'DFL': 2, 'FedAvg + AdaBN': 8}
    assert {s: n for (s, y), n in got.items() if y == 'use'} == use

def test_untestable_claims():
    have = {c['id'] for c in CLAIMS if c['untestable']}
    assert have == {'FDSE-07', 'FDSE-09', 'FedDDL-5', 'DFL-4a', 'DFL-4b', 'DFL-6', 'Use-FedDDL-P6'}

def test_the_headline_of_the_whole_has_its_eight_cells():
    cells = [BY_ID[i] for i in ALL['whole']['claims']]
    pairs = {(c['primary']['b'], c['primary']['set']) for c in cells}
    assert pairs == {(m, 'P1-cpu' if (m, s) == ('DFL', 'P1') else s) for m in MOMENTS for s in ('P1', 'P5')}
    assert {(c['primary']['a'], c['margin'], c['needed']) for c in cells} == {('FedAvg + AdaBN', 1., -1.)}

TABLE = {2: ('11.6', '69'), 3: ('3.3', '8.0'), 4: ('2.1', '4.0'), 5: ('1.7', '2.8'), 8: ('1.2', '1.65'),
         16: ('.75', '1.0'), 24: ('.60', '.77')}

@pytest.mark.parametrize('n', TABLE)
def test_power_is_the_table_of_the_plan(n):
    "Power .8 at .05, and at the first of Holm's steps in a family of six."
    for text, alpha in zip(TABLE[n], (.05, .05/6)):
        places = len(text.partition('.')[2])
        assert shown(n, alpha) == pytest.approx(float(text), abs=.51*10**-places)
        assert shown(n, alpha) == pytest.approx(effect_shown(1., n, alpha=alpha), rel=1e-9)

@each
def test_what_a_claim_can_show_is_recomputed(c): assert c['detectable'] == of_claim(c)

def test_pictures_drawn_anew_are_a_wider_question():
    "Without a share of theirs it is the same question; with one, more seeds do not help beyond it."
    assert detectable(8, 2., 6)['new'] == detectable(8, 2., 6)['holm']
    many = [detectable(n, 2., 6, pictures_se=1.)['new'] for n in (8, 80, 800)]
    assert many[0] > many[1] > many[2] > 2.8

def test_a_hopeless_claim_is_marked():
    c = BY_ID['RFedDis-1']
    assert mark(c) == '' and mark(c | dict(untestable='so')) == 'untestable'
    assert mark(c | dict(needed=.5)) == 'hopeless'

def test_a_hash_is_of_the_values():
    "Not of their order; any value changes it."
    assert record_hash(dict(a=1, b='é')) == record_hash(dict(b='é', a=1)) == '636eb63064f23c84'
    assert len({record_hash(r) for r in (dict(a=1), dict(a=1.), dict(a='1'), dict(b=1))}) == 4
    c = CLAIMS[0]
    assert record_hash(c) != record_hash(c | dict(n=c['n']+1)) and len(record_hash(c)) == 16

def test_the_table_is_printed(capsys):
    runpy.run_path(str(EVIDENCE/'power.py'), run_name='__main__')
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(BY_ID)
    assert all(line.endswith(record_hash(c)) for line, c in zip(lines[1:], CLAIMS))
