"Hospital-like sites: tables with patients, parts of their own, rows of a dataset, scores, a newcomer."
import csv, json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
import numpy as np
import pytest, torch
from PIL import Image
from sklearn import metrics
from torch import nn
from torch.utils.data import Dataset
from fedskew_nb import FDSE, FedAvg, FedBN, Local, Suite, compare, leave_out, load_folder, load_suite
from fedskew_nb import join_site, site_scores, small_conv
from fedskew_nb.analysis.probes import shared_model
from fedskew_nb.analysis.sites import confusion, scores_from
from fedskew_nb.tools.cli import main
from fedskew_nb.tools.join import parted
from fedskew_nb.tools.questions import found_in
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.net import Net
from fedskew_nb.core.seeding import generator
from fedskew_nb.data.folder import folder
from fedskew_nb.data.sheet import Row, held, read_sheet
from feds import fed_of, first, run, same

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
            d = getattr(c, part)
            for x, y in zip(d.x, d.y): out[x.numpy().tobytes()] = c.domain, part, int(y)
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
    for k in range(len(rows)): assert found[pixels(k).transpose(2, 0, 1).tobytes()][1] == given(k)

def test_folders_of_parts_are_used(tmp_path):
    for k, (_, label, site, _) in enumerate(listed()):
        if (site, label) == ('b', 'z'): continue
        file = tmp_path/site/given(k)/label/f'{k}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels(k)).save(file)
    with pytest.warns(UserWarning, match='b has no image of z'):
        s = load_folder(tmp_path, 10, val=0, cache=False)
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
    'row 2: the split is holdout; write train, val or test': ([[*ROWS[0], 'holdout']], [*HEAD, 'split']),
    '1 of 2 images are not there, first a/none.png .row 3.': ([ROWS[0], ['a/none.png', *ROWS[1][1:]]], HEAD),
    'rows 2 and 3 are both of a/p0-0.png': ([ROWS[0], ROWS[0]], HEAD),
    'patient a0 is in a .row 2. and in b': ([ROWS[0], [*ROWS[20][:3], 'a0']], HEAD),
    'a0 is in train .row 2. and in test': ([[*ROWS[0], 'train'], [*ROWS[1], 'test']], [*HEAD, 'split']),
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
    dos = text.replace('/', '\\').replace('\n', '\r\n')
    (home/'dos.csv').write_text(dos, encoding='utf-8-sig', newline='')
    assert {r.path for r in read_sheet(home/'dos.csv')} == {r.path for r in read_sheet(table(home, ROWS))}
    (home/'latin.csv').write_bytes(text.replace('x', 'é').encode('latin-1'))
    with pytest.raises(ValueError, match='UTF-8'): load_folder(home/'latin.csv')

def test_held_keeps_one_of_each_class():
    def out(labels, groups, part, least):
        return held([Row(Path(), y, 'north', who) for y, who in zip(labels, groups)], part, least, 0)
    assert out('xxy', 'abc', .9, 1) < set('ab')
    assert out('xyz', 'abc', .9, 1) == set() == out('xxyy', 'abcd', .1, 0)
    assert out('xxyyy', 'aabcc', .5, 1) <= {'b', 'c'}              # a alone is of class x

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

def test_a_table_on_the_command_line(home, tmp_path, capsys, unsaved):
    file = table(home, [r for r in ROWS if r[1:3] != ['z', 'b']])
    found = found_in(folder(file, 10), 0)
    assert found.suite.name == 'scans' and len(found.pictures) == 30
    typed = '--pixels 10 --seeds 1 --rounds 1 --set local_steps=1 --model small_conv(width=2) --no-control'
    typed += f' --methods FedAvg --data {file} --out {tmp_path}'
    assert not main(['compare', *typed.split()])
    assert 'scans' in capsys.readouterr().out

# ---- scores beside the accuracy

def probabilities(n, k, seed=0): return torch.randn(n, k, generator=generator(seed, 'p')).softmax(1)

def test_scores_are_those_of_sklearn():
    p, y = probabilities(60, 4).double(), torch.arange(60)%4
    said = p.argmax(1)
    wanted = {'accuracy': metrics.accuracy_score(y, said),
              'AUROC': metrics.roc_auc_score(y, p/p.sum(1, keepdim=True), multi_class='ovr'),
              'balanced accuracy': metrics.balanced_accuracy_score(y, said),
              'macro F1': metrics.f1_score(y, said, average='macro')}
    assert scores_from(p, y) == dict(images=60) | {k: pytest.approx(100*v) for k, v in wanted.items()}
    assert confusion(p, y).tolist() == metrics.confusion_matrix(y, said).tolist()

def test_two_classes_have_the_binary_auroc():
    p, y = probabilities(40, 2), (torch.arange(40)%3 == 0).long()
    p = torch.stack([1-p[:, 1].round(decimals=1), p[:, 1].round(decimals=1)], 1)      # with ties
    assert scores_from(p, y)['AUROC'] == pytest.approx(100*metrics.roc_auc_score(y, p[:, 1]))

def test_who_has_no_auroc():
    "A site of one class, one without images, and a model that has diverged."
    p, y = probabilities(6, 2), torch.arange(6)%2
    none = [scores_from(p, 0*y), scores_from(p[:0], y[:0]), scores_from(p*float('nan'), y)]
    assert all(np.isnan(s['AUROC']) for s in none) and [s['images'] for s in none] == [6, 0, 6]

@pytest.fixture(scope='module')
def feds():
    suite, out = first(leave_out(load_suite('emoji-pacs', 'tiny'), 'sketch'), 3, 14), {}
    few = replace(suite, clients=[replace(c, train=c.train[:24]) for c in suite.clients])
    for m in (FedAvg, FedBN, FDSE): out[m.name] = run(m, few, rounds=1)
    return out

def test_scores_of_sites(feds):
    s = site_scores(feds['FedAvg'])
    assert [*s.numbers.index] == ['photo', 'art', 'cartoon', 'sketch']    # the unseen one is asked, too
    rows = feds['FedAvg'].history.rows
    right = {r['domain']: r['correct'] for r in rows if r['view'] in ('global', 'unseen')}
    for site, M in s.confusion.items():
        assert np.trace(M.to_numpy()) == right[site]
    gone = [c for c in M if not s.confusion['photo'].loc[c].sum()]
    assert (f'photo has no test image of {", ".join(gone)}.' in s.table().notes) == bool(gone)
    own = site_scores(feds['FedBN']).numbers
    assert [*own.index] == ['photo', 'art', 'cartoon'] and own['images'].tolist() == [14]*3

# ---- a site joins

def sketches(fed, n=40): return fed.suite.spare['sketch'][:n]

@pytest.mark.parametrize('name', ['FedAvg', 'FedBN', 'FDSE'])
def test_what_each_way_moves(feds, name):
    fed = feds[name]
    j = join_site(fed, sketches(fed), epochs=2)
    assert len(j.held) + j.adapted == 40 and not {x.numpy().tobytes() for x in j.held.x} & moved_to(fed, j)
    start = j.model('as it is').state_dict()
    assert same(start, shared_model(fed).state_dict())
    for way in j.ways:
        moved = {n for n, v in j.model(way).state_dict().items() if not torch.equal(v, start[n])}
        wanted = {'AdaBN': 'running', 'FDSE adapted': 'dse', 'head tuned': 'head.'}.get(way, '')
        assert all(wanted in n or 'num_batches' in n for n in moved) and bool(moved) == (way != 'as it is')
    assert ('FDSE adapted' in j.ways) == (name == 'FDSE')

def test_a_mechanism_says_how_a_site_joins(feds):
    "A way of its own, in the order of the mechanisms; the package knows none by name."
    class Mine(Mechanism):
        joins = {'as FedAvg': (lambda net: lambda name: name.startswith('head'), lambda fed, x: fed.model())}
    fed = run(FedAvg + Method('Mine', Mine()), feds['FedAvg'].suite, rounds=1)
    j = join_site(fed, sketches(fed), labels=0)
    assert list(j.ways) == ['as it is', 'AdaBN', 'as FedAvg']
    assert same(j.model('as FedAvg').state_dict(), j.model('as it is').state_dict())
    class Other(Mine): pass
    fed.method = fed.method + Method('Other', Other())
    with pytest.raises(ValueError, match="two mechanisms join by 'as FedAvg'"): join_site(fed, sketches(fed))

def moved_to(fed, j):
    "The images that were adapted to, from the statistics that they leave in the first BatchNorm."
    _, own, held = parted(fed, sketches(fed), .5)
    assert torch.equal(held.x, j.held.x)
    net = j.model('AdaBN')
    conv, bn = (next(m for m in net.modules() if isinstance(m, kind)) for kind in (nn.Conv2d, nn.BatchNorm2d))
    z = conv(net.normalised(own.x)).transpose(0, 1).flatten(1)
    torch.testing.assert_close(bn.running_mean, z.mean(1), atol=1e-4, rtol=1e-4)
    return {x.numpy().tobytes() for x in own.x}

def test_a_tuned_head_is_a_logistic_regression(feds):
    fed = feds['FedAvg']
    j = join_site(fed, sketches(fed), labels=12, epochs=400)
    _, own, _ = parted(fed, sketches(fed), .5)
    losses = [nn.functional.cross_entropy(j.model(w).see(own[torch.arange(12)].x).logits, own.y[:12])
              for w in ('as it is', 'head tuned')]
    assert losses[1] < .5*losses[0]
    assert 'head tuned' not in join_site(fed, sketches(fed), labels=0).ways

def test_a_head_that_has_no_weights_is_not_tuned(feds):
    "Such a net ends in its pool, so there is nothing to train, and the other ways are there."
    suite = feds['FedAvg'].suite
    made = small_conv(suite.n_classes, size=suite.image_size, width=4)
    net = Net(made.body, nn.Sequential(made.pool, made.head), nn.Identity())
    fed = run(FedAvg, suite, net, rounds=1)
    assert list(join_site(fed, sketches(fed)).ways) == ['as it is', 'AdaBN']

def new_site(tmp_path, fed, parts=False):
    d = sketches(fed, 24)
    for k, (x, y) in enumerate(zip(d.x, d.y.tolist())):
        file = tmp_path/(('train', 'test')[k%2] if parts else '')/fed.suite.classes[y]/f'{k:02d}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(x.permute(1, 2, 0).numpy()).save(file)
        yield [file.relative_to(tmp_path).as_posix(), fed.suite.classes[y], 'new', f'p{k//2}']

@pytest.mark.parametrize('parts', [False, True])
def test_a_folder_and_a_table_join(feds, tmp_path, parts):
    fed = feds['FedAvg']
    rows = list(new_site(tmp_path/'new', fed, parts))
    j = join_site(fed, tmp_path/'new', labels=0)
    want = sketches(fed, 24).x
    assert j.site == 'new' and len(j.held)+j.adapted == 24
    if parts: assert {x.numpy().tobytes() for x in j.held.x} == {x.numpy().tobytes() for x in want[1::2]}
    by_patient = join_site(fed, table(tmp_path/'new', rows), labels=0)
    held = {x.numpy().tobytes() for x in by_patient.held.x}
    inside = [x.numpy().tobytes() in held for x in want]
    assert inside[::2] == inside[1::2] and 0 < sum(inside) < 24
    p = by_patient.predict([tmp_path/'new'/r[0] for r in rows], 'AdaBN')
    torch.testing.assert_close(p, by_patient.predict(want, 'AdaBN'))

def test_what_does_not_join(feds, tmp_path, home):
    fed, x = feds['FedAvg'], sketches(feds['FedAvg']).x
    for images, says in [(home/'scans.csv', 'holds the domains a, b, and'),
                         (home, "no class in the federation 'a'"),
                         (tmp_path, 'it should hold <domain>/<class>/<image>, or <class>/<image>'),
                         (tmp_path/'no', 'there is no'),
                         ((x, torch.full((40,), 7)), 'labels run from 7 to 7'),
                         ((x[..., :20], torch.zeros(40)), 'the model was trained on 32'),
                         ((x[:2], torch.zeros(2)), '1 image to adapt to')]:
        with pytest.raises(ValueError, match=says): join_site(fed, images)
    j = join_site(fed, sketches(fed), labels=0)
    with pytest.raises(ValueError, match='there is no way'): j.predict(x, 'head tuned')
    for other, says in [(fed_of(FedAvg, fed.suite), 'is not trained'),
                        (run(Local, fed.suite, rounds=1), 'Local leaves .* no model for a newcomer')]:
        with pytest.raises(ValueError, match=says): join_site(other, sketches(fed))

def test_join_on_the_command_line(feds, tmp_path, capsys):
    list(new_site(tmp_path/'new', feds['FedAvg']))
    compare('FedAvg', 'emoji-pacs', out=tmp_path/'runs', keep_models=True, seeds=1, size='tiny', rounds=1,
            local_steps=1, control=False)
    typed = ['join', str(tmp_path/'runs'), '--data', str(tmp_path/'new')]
    assert main(typed[:2]) and 'say where the images' in capsys.readouterr().err
    assert not main([*typed, '--way', 'AdaBN', '--to', str(tmp_path/'m.safetensors')])
    assert 'new joins FedAvg' in capsys.readouterr().out
    assert json.loads((tmp_path/'m.json').read_text())['way'] == 'AdaBN'

class Named:
    "Rows with classes, as a dataset has them."
    classes = ['cat', 'dog']
    def __init__(self, labels): self.labels = labels
    def __len__(self): return len(self.labels)
    def __getitem__(self, i): return np.full((8, 8, 3), i, np.uint8), self.labels[i], f'site {i % 2}'

@pytest.mark.parametrize('label', [-1, 2, .7, 'bird', None, float('nan')])
def test_a_label_that_is_none(label):
    labels = [0, 0, 1, 1]*4
    assert Suite.from_rows(Named(labels)).classes == ['cat', 'dog']
    with pytest.raises(ValueError, match='row 16: the label is .*give one of cat, dog'):
        Suite.from_rows(Named([*labels, label]))
    if isinstance(label, str) or label in (-1, 2, .7): return
    rows = [(np.zeros((8, 8, 3), np.uint8), v, 'a') for v in [*labels, label]]
    with pytest.raises(ValueError, match='row 16: the label is .*give a name'): Suite.from_rows(rows)
