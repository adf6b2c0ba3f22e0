"Protocols are what they say: fields, presets, rates, and the images that each client gets."
import json, shutil
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
import numpy as np
import pytest, torch
from fedskew_nb import Data, FedAvg, Federation, Suite, compare, load_suite, prepare, read_method
from fedskew_nb import reproduce, resume, small_conv
from fedskew_nb.analysis.printed import Field, Protocol, read_tables
from fedskew_nb.core.names import papers
from fedskew_nb.tools.cli import main
from fedskew_nb.downloads.layouts import LAYOUTS
from fedskew_nb.run.recipes import METHODS, read_model
from fedskew_nb.run.reproduce import asked_for, dealt_suite, protocols, published
from fedskew_nb.analysis.printed import setting_of
from fedskew_nb.data.arrays import write_splits
from fedskew_nb.engine.setting import Setting
from test_reproduce import SHORT, pacs, picture

TABLES = protocols()
PRINTED = files('fedskew_nb')/'assets'/'printed'
TRAINED = [name for name, p in TABLES.items() if p.suite]
ON_PHOTOS = [name for name, p in TABLES.items() if p.suite in ('pacs', 'office-caltech-10', 'domainnet-10')]

# ---- the files of numbers
def test_each_table_has_its_file_and_each_file_its_table():
    assert {f.stem for f in PRINTED.glob('*.csv')} == set(TABLES)
    assert {f.stem for f in PRINTED.glob('*.toml')} == set(papers())
    assert set(papers()) == {name.split('-')[0] for name in TABLES}

@pytest.mark.parametrize('text, said', [
    ('', 'T.csv is headed None'), ('method,P\nFedAvg,5\n', r"T.csv is headed \['method', 'P'\]"),
    ('method,P,X\nFedAvg,5,6\n', "T.csv is headed .*'X'"), ('method,X,P\nFedAvg,6,5\n', 'T.csv is headed'),
    ('method,P,S\nFedAvg,5\n', 'T.csv: FedAvg has None under S'), ('method,P,S\nA,5,\n', "A has '' under S"),
    ('method,P,S\nFedAvg,5,6,7\n', r"T.csv: FedAvg has \['7'\]"),
    ('method,P,S\nA,5,nan\n', "A has 'nan' under S"), ('method,P,S\nA,5,6\nA,7,8\n', 'T.csv has A twice')])
def test_a_file_that_is_no_table_is_refused_by_its_name(tmp_path, text, said):
    (tmp_path/'T.csv').write_text(text)
    p = Protocol('T', '', '', dict(P='photo', S='sketch'), {}, home=str(tmp_path))
    for ask in (p.numbers, p.as_printed, p.methods):
        with pytest.raises(ValueError, match=said): ask()
    with pytest.raises(FileNotFoundError, match='U.csv'): replace(p, name='U').numbers()

TOY = '''
[fields]
loop = [{name = "mean", code = [0.5, 0.5]}]
[[tables]]
name = "T"
source = "Table 1"
suite = "emoji-pacs"
columns = {P = "photo"}
setting = {rounds = 2}
fields = ["loop"]
part = "half"
'''
def half(n): return n//2

def test_a_table_as_another_one_has_what_it_does_not_say(tmp_path):
    more = '[[tables]]\nname = "U"\nas = "T"\nsetting = {lr = 0.1}\nbefore = ["A"]\n'
    (tmp_path/'X.toml').write_text(TOY + more)
    (t, u), left_out = read_tables('X', tmp_path, half=half)
    assert u == replace(t, name='U', setting=dict(lr=.1), before=('A',)) and left_out == {}
    assert t.part is half and t.fields == (Field('mean', code=(.5, .5)),)

@pytest.mark.parametrize('old, new, said', [
    ('code', 'cod', "X.toml: what is 'cod'"), ('["loop"]', '["lop"]', "list of fields 'lop'.*loop"),
    ('"half"', '"hlf"', "function 'hlf'.*half"), ('suite', 'suit', "entry of X.toml 'suit'.*suite"),
    ('name = "T"', 'name = "T"\nas = "S"', "no table 'S'"),
    ('[fields]', 'seeds = 3\n[fields]', "X.toml: what is 'seeds'")])
def test_a_papers_file_that_says_something_else_is_refused(tmp_path, old, new, said):
    (tmp_path/'X.toml').write_text(TOY.replace(old, new, 1))
    with pytest.raises(ValueError, match=said): read_tables('X', tmp_path, half=half)

# ---- the list of fields
@pytest.mark.parametrize('name', TRAINED)
def test_a_table_lists_its_fields_with_sources(name):
    "What paper or code says has a source; a row is one of the table's, of its family's at least."
    p = TABLES[name]
    family = {m for q in TABLES.values() if q.source[:4] == p.source[:4] for m in q.numbers()}
    for f in p.fields:
        if not f.row or f.row in p.methods(): p.has(f)
        assert f.source or (f.paper is None and f.code is None), f.name
        assert not f.row or f.row in family, f.row
    assert len({(f.name, f.row) for f in p.fields}) == len(p.fields)

@pytest.mark.parametrize('name', ON_PHOTOS)
def test_a_table_on_photographs_names_the_settings_that_papers_differ_in(name):
    names = ' '.join(f.name for f in TABLES[name].fields)
    for field in ('model', 'mean', 'std', 'weight_decay', 'lr', 'last, incomplete batch', 'flip',
                  'round that counts', 'exact copies', 'rounds', 'local_epochs', 'batch_size', 'seeds'):
        assert field in names, field

def test_every_disagreement_stands_under_the_table_and_no_agreement(tmp_path):
    (tmp_path/'T.csv').write_text('method\n')
    p = Protocol('T', '', '', {}, dict(lr=.1, rounds=2), home=str(tmp_path), fields=(
        Field('lr', .1, .1, source='s'), Field('rounds', 2, 3, source='s'), Field('momentum', source='')))
    first, second = p.foot()
    assert first.endswith('rounds: 2 (code: 3)') and second == 'momentum: 0.9 (neither paper nor code says)'

@pytest.mark.parametrize('name', TRAINED)
def test_a_changed_setting_is_said_once(name):
    "What was asked for otherwise stands in one sentence of the foot, not in two."
    p, _, notes = asked_for(name, None, 1, 0, dict(rounds=1))
    assert not any(f.name in ('rounds', 'seeds') for f in p.fields) and 'rounds 1' in notes[0]

def test_the_list_is_printed_without_data(capsys):
    assert main(['reproduce', 'F2DC-1-PACS', '--fields']) in (0, None)
    out = capsys.readouterr().out
    assert 'F2DC, learning rate' in out and 'mala-lab/F2DC@6b0a8ed' in out

# ---- methods and rates
def test_a_row_runs_the_preset_that_its_alias_names():
    "FDSE's table means FedFA-aug(preset='released'): so says the alias, and so the tables run it."
    said = [(m.name, other, whose) for m in METHODS.values() for other, whose in m.aliases.items()
            if isinstance(whose, str) and 'preset=' in whose]
    assert [(name, other) for name, other, _ in said] == [('FedFA-aug', 'FedFA')]
    for name, other, whose in said:
        preset = whose[whose.index('preset='):].split()[0].rstrip('.,;')
        rows = [(p, m) for p in TABLES.values() for m in p.methods() if m in (name, other)]
        assert len(rows) == 3
        for p, m in rows: assert p.methods()[m] == f'{name}({preset})', p.name

@pytest.mark.parametrize('name', TRAINED)
def test_a_method_with_a_released_preset_uses_it_or_the_list_says_so(name):
    p = TABLES[name]
    listed = {f.row for f in p.fields if f.name in ('method', 'equations')}
    listed |= {m for m, ours in p.methods().items() if ours in {p.methods().get(row) for row in listed}}
    for theirs, ours in p.methods().items():
        base = read_method(ours).base
        own = base in METHODS and 'released' in METHODS[base].presets
        loose = own and 'preset=' not in ours and theirs not in listed
        assert not loose or any(f.name == 'hyper-parameters of all others' for f in p.fields), theirs

@pytest.mark.parametrize('name', TRAINED)
def test_fields_of_a_method_say_what_is_run(name):
    "A rate or a text of the release that we take is the one that we run."
    p = TABLES[name]
    assert set(p.rates) <= set(p.methods())
    for f in p.fields:
        if f.row not in p.methods(): continue
        if f.name == 'lr': assert p.has(f) == p.rates.get(f.row, setting_of(p).lr)
        if f.name == 'method': assert read_method(p.has(f)).name == p.methods()[f.row]
        for told in (f.paper, f.code):
            if f.name == 'method' and told: assert read_method(told).name == told

def test_fdses_values_are_those_of_the_configuration_files():
    "WwZzz/FDSE_CVPR25: config/office and config/pacs at c0bd90b (fdse.yml) and dd266a2 (others)."
    office, pacs = TABLES['FDSE-1-Office'], TABLES['FDSE-1-PACS']
    wanted = dict(Ditto=(.01, .0001), FedHEAL=(.2, .1), FDSE=((.05, .05, .5), (.5, .001, .5)))
    for m, (a, b) in wanted.items():
        for p, v in ((office, a), (pacs, b)):
            parts = read_method(p.methods()[m]).spec()
            spec = {k: x for part in parts for k, x in part.get('hp', {}).items()}
            if m == 'FDSE': assert (spec['lam'], spec['beta'], spec['tau']) == v
            else: assert spec['lam' if m == 'Ditto' else 'tau'] == v
    wanted = dict(FDSE=.05, Ditto=.05, FedAvg=.1, FedBN=.1, FedHEAL=.1)
    assert {m: pacs.rates.get(m, setting_of(pacs).lr) for m in wanted} == wanted
    assert setting_of(pacs).decay == .9998 and not office.rates and setting_of(office).lr == .1

def test_rates_of_single_methods_are_run_stored_and_grown(pacs, tmp_path):
    how = dict(pixels=32, seeds=1, out=tmp_path/'runs', device='cpu', progress=False, **SHORT)
    made = reproduce('FDSE-1-PACS', pacs, 'FDSE,FedAvg', **how)
    rates = {h.setting['method'].split('(')[0]: h.setting['lr'] for h in made.comparison.histories}
    assert rates == dict(FDSE=.05, FedAvg=.1)
    assert json.loads((tmp_path/'runs'/'compare.json').read_text())['rates'] == dict(FedAvg=.1)
    written = lambda: {p.name: p.stat().st_mtime_ns for p in (tmp_path/'runs'/'runs').glob('*.json')}
    before = written()
    more = reproduce('FDSE-1-PACS', pacs, 'FDSE,FedAvg,FedBN', **how)
    assert len(more.comparison.histories) == 3
    assert before.items() <= written().items()
    foot = ' '.join(more.table().notes)
    assert 'decay of the learning rate per round: 0.9998 (paper: 0.998)' in foot and 'Ditto,' not in foot

def test_a_rate_that_is_asked_for_is_everyones(pacs):
    how = dict(pixels=32, device='cpu', progress=False, lr=.2)
    made = reproduce('FDSE-1-PACS', pacs, 'FDSE,FedAvg', 1, **how, **SHORT)
    assert {h.setting['lr'] for h in made.comparison.histories} == {.2}

def test_a_comparison_with_rates_goes_on_and_refuses_other_ones(tmp_path):
    small = dict(suite='skew-digits', seeds=1, size='tiny', control=False, out=tmp_path, rounds=1)
    small |= dict(local_steps=1, device='cpu', model='small_conv(width=4)')
    first = compare('FedAvg,FedBN', rates={'FedBN': .1}, **small)
    assert resume(tmp_path).histories == first.histories
    with pytest.raises(ValueError, match='rates there'): compare('FedAvg,FedBN', rates={'FedBN': .2}, **small)
    for bad in ({'FedBM': .1}, {'FedBN': 'x'}):
        with pytest.raises(ValueError, match='FedB'):
            compare('FedAvg,FedBN', rates=bad, **small | dict(out=None))

# ---- images of a client
def test_dealt_counts_are_the_authors():
    "mala-lab/F2DC@6b0a8ed: trained on where i % 10 <= 7 in the order of files, int(percent · that) each."
    whole = {name: LAYOUTS[name].counts for name in ('pacs', 'office-caltech-10')}
    theirs = {'pacs': dict(photo=400, art_painting=492, cartoon=562, sketch=943),
              'office-caltech-10': dict(caltech=179, amazon=153, webcam=47, dslr=25)}
    for name in ('F2DC-1-PACS', 'F2DC-3-PACS', 'F2DC-1-Office'):
        p = TABLES[name]
        train = {d: sum(i%10 <= 7 for i in range(n)) for d, n in whole[p.suite].items()}
        by_hand = {d: int((.3 if p.suite == 'pacs' else .2)*n) for d, n in train.items()}
        assert p.images_each(whole[p.suite], {}) == by_hand == theirs[p.suite]
        assert published(p) == (10, sum(k*theirs[p.suite][d] for d, k in p.clients.items()))
        assert p.folder['val'] == 0

def test_fdses_parts_are_eighty_ten_ten():
    for name in ('FDSE-1-PACS', 'FDSE-1-Office', 'FDSE-1-DomainNet', 'FDSE-2-Office', 'FDSE-2-DomainNet'):
        folder = TABLES[name].folder
        assert folder['test'] == .1 and abs((1-folder['test'])*folder['val']-.1) < 1e-12

def flat_suite(sizes:dict)->Suite:
    "A suite with so many training images in each domain, of two classes."
    some = lambda n: Data(torch.zeros(n, 3, 8, 8, dtype=torch.uint8), torch.arange(n)%2)
    domains = {d: (some(n), some(4)) for d, n in sizes.items()}
    return Suite.from_datasets(domains, ['a', 'b'], val=0., name='made', copies="keep")

def test_rfeddis_gives_every_client_a_share_of_the_smallest_domain():
    p = TABLES['RFedDis-2-DomainNet']
    sizes = dict(zip(p.clients, (200, 400, 600, 160, 300, 240)))
    assert {len(c.train) for c in p.dealt(flat_suite(sizes), 0).clients} == {int(.05*160)}

# ---- what the folder must be
def test_two_of_four_domains_are_refused(tmp_path):
    layout = LAYOUTS['office-caltech-10']
    dice = np.random.default_rng(0)
    for d in ('amazon', 'caltech'):
        for c in layout.classes:
            for k in range(10): picture(tmp_path/d/c/f'{k}.png', dice)
    for table in ('FDSE-1-Office', 'F2DC-1-Office', 'RFedDis-1-Office'):
        with pytest.raises(ValueError, match='needs the domain .*prepare office-caltech-10 with all'):
            reproduce(table, tmp_path, 'FedAvg', pixels=32, progress=False)

def test_the_lists_of_a_folder_do_not_change_a_table_in_silence(pacs, tmp_path):
    root = tmp_path/'pacs'
    shutil.copytree(pacs, root)
    names = sorted(p.relative_to(root).as_posix() for p in root.rglob('*.png'))
    write_splits(root, {n: ('train', 'val', 'test')[i%3] for i, n in enumerate(names)})
    for table in ('F2DC-1-PACS', 'FDSE-1-PACS', 'F2DC-3-PACS'):
        with pytest.raises(ValueError, match='draws its own training and test images.*splits.csv'):
            reproduce(table, root, pixels=16, progress=False)
    takes_lists = {name for name, p in TABLES.items() if p.lists and not name.startswith('FedDDL')}
    assert takes_lists == {'RFedDis-2-DomainNet'}

@pytest.mark.filterwarnings('ignore:.*exact copies')
def test_copies_stay_as_in_the_release(pacs, tmp_path):
    root = tmp_path/'pacs'
    shutil.copytree(pacs, root)
    shutil.copy(root/'photo'/'dog'/'0.png', root/'photo'/'dog'/'again.png')
    made = reproduce('F2DC-1-PACS', root, 'FedAvg', 1, pixels=16, device='cpu', progress=False, **SHORT)
    assert 'exact copies left out' not in ' '.join(made.table().notes)      # they stay, as in the release

# ---- nets and turns
def test_rfeddis_net_is_fedbns():
    net = read_model(TABLES['RFedDis-1-Office'].setting['model'], 10, 64)
    assert [net.pool.fc1.fc.out_features, net.pool.fc2.fc.in_features, net.head.in_features] == [4096]*3
    assert net.name == 'alexnet_bn(hidden=4096)'

def test_rfeddis_does_not_normalise_and_turns():
    for name in ('RFedDis-1-Office', 'RFedDis-2-DomainNet'):
        p = TABLES[name]
        assert p.folder['mean'] == (0., 0., 0.) and p.folder['std'] == (1., 1., 1.)
        assert setting_of(p).turn == 30. and setting_of(p).flip
    assert not setting_of(TABLES['RFedDis-2-Digits']).turn

@pytest.mark.parametrize('how', [dict(lanes=3, stack=False), dict(stack=True)])
def test_turned_images_are_the_same_for_any_number_of_lanes(how):
    suite = load_suite('skew-digits', 'tiny')
    def ended(**more):
        net = small_conv(10, width=4, size=suite.image_size)
        fed = Federation(FedAvg, net, suite, rounds=1, local_steps=2, batch_size=8, turn=30., pad=2,
                         flip=True, **more)
        fed.fit(progress=False)
        return torch.cat([v.detach().flatten() for v in fed.model().parameters()])
    plain, other = ended(lanes=1, stack=False), ended(**how)
    assert torch.allclose(plain, other, atol=1e-6) and (how['stack'] or torch.equal(plain, other))

def test_a_turn_out_of_range_is_refused():
    for bad in (-1., 181., True):
        with pytest.raises(ValueError, match='turn is'): Setting(turn=bad)

# ---- the real sets, where they lie
REAL = Path(__file__).parents[2]/'shared'/'real'
here = pytest.mark.skipif(not REAL.is_dir(), reason='the two real sets are not there')

@pytest.fixture(scope='module')
def real(tmp_path_factory):
    home = tmp_path_factory.mktemp('real')
    for name, file in (('pacs', 'pacs-128.tar'), ('office-caltech-10', 'office-caltech-10.tar')):
        prepare(name, REAL/file, home/name, progress=False)
    return home

@here
@pytest.mark.campaign
@pytest.mark.parametrize('table', ['F2DC-1-PACS', 'F2DC-3-PACS', 'F2DC-1-Office', 'RFedDis-1-Office'])
def test_clients_of_the_real_sets(table, real):
    "Each has as many images as the authors' rule gives for the images at hand."
    p = TABLES[table]
    suite = dealt_suite(0, p, real/p.suite)
    whole = LAYOUTS[p.suite].counts
    for c in suite.clients:
        n = whole[c.domain]
        assert len(c.train) == p.images_each({c.domain: n}, {c.domain: n})[c.domain], c
