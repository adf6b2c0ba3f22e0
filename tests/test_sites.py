"Hospital-like sites: tables with patients, parts of their own, rows of any dataset."
import csv
from collections import defaultdict
import numpy as np
import pytest, torch
from PIL import Image
from torch.utils.data import Dataset
from fedskew_nb import Suite, load_folder
from fedskew_nb.app.cli import main
from fedskew_nb.app.questions import found_in
from fedskew_nb.data.folder import folder
from fedskew_nb.data.sheet import held, read_sheet

HEAD = ['image', 'label', 'site', 'patient']
SITES, PATIENTS, EACH = ('a', 'b'), 9, 2

def pixels(k, side=10): return np.random.default_rng(k).integers(0, 256, (side, side, 3), dtype=np.uint8)

def listed():
    "(path, label, site, patient), a picture of its own for each."
    for s in SITES:
        for p in range(PATIENTS):
            for i in range(EACH): yield [f'{s}/p{p}-{i}.png', 'xyz'[p%3], s, f'{s}{p}']

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    root = tmp_path_factory.mktemp('scans')
    for k, (path, *_) in enumerate(listed()):
        (root/path).parent.mkdir(exist_ok=True)
        Image.fromarray(pixels(k)).save(root/path)
    return root

def table(home, rows, head=HEAD, name='scans.csv', **how):
    with open(home/name, 'w', newline='', **how) as f: csv.writer(f).writerows([head, *rows])
    return home/name

def load(home, rows, head=HEAD, **kw): return load_folder(table(home, rows, head), 10, cache=False, **kw)

def parts_of(suite):
    "{pixels: (site, part)} of all images."
    out = {}
    for c in suite.clients:
        for part in ('train', 'val', 'test'):
            for x, y in zip(getattr(c, part).x, getattr(c, part).y): out[x.numpy().tobytes()] = c.domain, part, int(y)
    return out

def where(suite):
    "{patient: parts in which it is}, by the pixels of its pictures."
    found, out = parts_of(suite), defaultdict(set)
    for k, (_, label, site, patient) in enumerate(listed()):
        s, part, y = found[pixels(k).transpose(2, 0, 1).tobytes()]
        assert s == site and suite.classes[y] == label
        out[patient].add(part)
    return out

@pytest.mark.parametrize('seed', range(4))
def test_a_patient_is_in_one_part(home, seed):
    found = where(load(home, listed(), data_seed=seed, test=.34, val=.5))
    assert len(found) == len(SITES)*PATIENTS and {len(parts) for parts in found.values()} == {1}
    for site in SITES:                  # of three patients of each class one is in each part
        own = [min(found[f'{site}{p}']) for p in range(PATIENTS)]
        assert all(sorted(own[c::3]) == ['test', 'train', 'val'] for c in range(3))

def test_the_seed_deals_patients(home):
    deals = [where(load(home, listed(), data_seed=s)) for s in (0, 0, 1)]
    assert deals[0] == deals[1] != deals[2]

def test_two_clients_share_a_sites_patients(home):
    s = load(home, listed(), clients={'a': 2}, val=0)
    assert [c.domain for c in s.clients] == ['a', 'a', 'b'] and not any(len(c.val) for c in s.clients)
    assert {len(parts) for parts in where(s).values()} == {1}

def test_without_patients_it_is_the_folder(home, tmp_path):
    rows = []
    for k, (_, label, site, _) in enumerate(listed()):
        file = tmp_path/site/label/f'{k:02d}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels(k)).save(file)
        rows.append([file.relative_to(tmp_path).as_posix(), label, site])
    want = load_folder(tmp_path, 10, cache=False, data_seed=3)
    assert load(tmp_path, rows[::-1], HEAD[:3], data_seed=3).fingerprint() == want.fingerprint()

def given(k): return ('train', 'train', 'test')[k//EACH%PATIENTS//3]

def test_given_parts_are_used(home):
    rows = [[*r, given(k)] for k, r in enumerate(listed())]
    found = parts_of(load(home, rows, [*HEAD[:3], 'who', 'split'], val=0))
    for k, r in enumerate(rows): assert found[pixels(k).transpose(2, 0, 1).tobytes()][1] == given(k)

def test_folders_of_parts_are_used(tmp_path):
    for k, (_, label, site, _) in enumerate(listed()):
        if (site, label) == ('b', 'z'): continue
        file = tmp_path/site/given(k)/label/f'{k}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels(k)).save(file)
    with pytest.warns(UserWarning, match='b has no image of z'): s = load_folder(tmp_path, 10, val=0, cache=False)
    assert s.classes == ['x', 'y', 'z']
    found = parts_of(s)
    for k, (_, label, site, _) in enumerate(listed()):
        if (site, label) != ('b', 'z'): assert found[pixels(k).transpose(2, 0, 1).tobytes()][1] == given(k)
    (tmp_path/'a'/'x').mkdir()
    Image.fromarray(pixels(99)).save(tmp_path/'a'/'x'/'1.png')
    with pytest.raises(ValueError, match='a has images in train and images beside'): load_folder(tmp_path, 10)

def test_a_patient_at_two_sites_may_have_a_part(home):
    rows = [[*r[:3], r[3][1:], given(k)] for k, r in enumerate(listed())]
    assert len(load(home, rows, [*HEAD, 'split']).clients) == 2

def test_a_site_may_lack_a_class(home):
    rows = [r for r in listed() if r[1:3] != ['z', 'b']]
    with pytest.warns(UserWarning, match='b has no image of z'): s = load(home, rows)
    assert [int((t.y == 2).sum()) > 0 for t in s.tests.values()] == [True, False]

def test_a_site_that_nobody_trains_on(home):
    rows = [[*r, 'test' if r[2] == 'b' else given(k)] for k, r in enumerate(listed())]
    s = load(home, rows, [*HEAD, 'split'], unseen=['b'])
    assert len(s.unseen['b']) == PATIENTS*EACH and [c.domain for c in s.clients] == ['a']

ROWS = list(listed())
WRONG = {
    'no column label: it has image, lable': (ROWS, ['image', 'lable', 'site']),
    'no column image: it has image;label;site': ([['a;b;c']], ['image;label;site']),
    'two columns are called site': (ROWS, ['image', 'label', 'site', 'Site']),
    'row 2: 3 fields, 4 columns': ([ROWS[0][:3]], HEAD),
    'row 3: the label is empty': ([ROWS[0], [ROWS[1][0], ' ', *ROWS[1][2:]]], HEAD),
    'row 2: the patient is empty': ([[*ROWS[0][:3], '']], HEAD),
    'row 2: the split is dev; write train, val or test': ([[*ROWS[0], 'dev']], [*HEAD, 'split']),
    '1 of 2 images are not there, first a/none.png .row 3.': ([ROWS[0], ['a/none.png', *ROWS[1][1:]]], HEAD),
    'rows 2 and 3 are both of a/p0-0.png': ([ROWS[0], ROWS[0]], HEAD),
    'patient a0 is in a .row 2. and in b': ([ROWS[0], [*ROWS[20][:3], 'a0']], HEAD),
    'patient a0 is in train .row 2. and in test': ([[*ROWS[0], 'train'], [*ROWS[1], 'test']], [*HEAD, 'split']),
    "'X' and 'x' differ only in capitals": ([*ROWS, [ROWS[0][0], 'X', 'a', 'p']][1:], HEAD),
    'b: 1 patient.s., no two of one class': ([r for r in ROWS if r[2] == 'a' or r[3] == 'b0'], HEAD),
    'a has no image to test on': ([[*r, 'train'] for r in ROWS], [*HEAD, 'split']),
    'a has no image to train on': ([[*r, 'test'] for r in ROWS], [*HEAD, 'split']),
    'has no row': ([], HEAD)}

@pytest.mark.parametrize('says', WRONG)
def test_wrong_tables(home, says):
    with pytest.raises(ValueError, match=says): load(home, *WRONG[says])

def test_tables_of_other_systems(home):
    text = 'ID,Image,Label,Site\n' + ''.join(f'{k},{r[0]},{r[1]},{r[2]}\n' for k, r in enumerate(ROWS))
    (home/'dos.csv').write_text(text.replace('/', '\\').replace('\n', '\r\n'), encoding='utf-8-sig', newline='')
    assert {r.path for r in read_sheet(home/'dos.csv')} == {r.path for r in read_sheet(table(home, ROWS))}
    (home/'latin.csv').write_bytes(text.replace('x', 'é').encode('latin-1'))
    with pytest.raises(ValueError, match='UTF-8'): load_folder(home/'latin.csv')

def test_held_keeps_one_of_each_class():
    assert held('xxy', 'abc', .9, 1, 0) < set('ab')
    assert held('xyz', 'abc', .9, 1, 0) == set() == held('xxyy', 'abcd', .1, 0, 0)
    assert held('xxyyy', 'aabcc', .5, 1, 0) <= {'b', 'c'}          # a alone is of class x

class Pairs(Dataset):
    "Rows of a torch dataset that does not end when it is looped over."
    classes = ['x', 'y', 'z']
    def __len__(self): return len(ROWS)
    def __getitem__(self, k):
        k = k%len(ROWS)
        return Image.fromarray(pixels(k)), torch.tensor('xyz'.index(ROWS[k][1])), ROWS[k][2], ROWS[k][3]

def test_rows_are_dealt_as_a_table_is(home):
    want = where(load(home, ROWS, data_seed=2))
    assert where(Suite.from_rows(Pairs(), data_seed=2)) == want
    stream = (dict(image=pixels(k), label=r[1], domain=r[2], patient=r[3]) for k, r in enumerate(ROWS))
    assert where(Suite.from_rows(stream, data_seed=2, columns=dict(site='domain'))) == want

def test_rows_of_different_sizes():
    rows = [(pixels(k, 8+k), 'xy'[k%2], 'a') for k in range(8)]
    with pytest.raises(ValueError, match='give size='): Suite.from_rows(rows)
    assert Suite.from_rows(rows, size=9).image_size == 9

def test_a_table_on_the_command_line(home, tmp_path, capsys):
    file = table(home, [r for r in ROWS if r[1:3] != ['z', 'b']])
    found = found_in(folder(file, 10), 0)
    assert found.suite.name == 'scans' and len(found.pictures) == 30
    typed = '--pixels 10 --seeds 1 --rounds 1 --set local_steps=1 --model small_conv(width=2) --no-control'
    typed += f' --methods FedAvg --data {file} --out {tmp_path}'
    assert not main(['compare', *typed.split()])
    assert 'scans' in capsys.readouterr().out
