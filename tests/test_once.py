"A picture that is there twice, through every door: who keeps it, what is left out, what is said and where."
import json, os, warnings
from dataclasses import replace
from pathlib import Path
import numpy as np
import pytest, torch
from PIL import Image
from fedskew_nb import Suite, compare, diagnose, dirichlet, leave_out, load_folder, load_suite, uneven
from fedskew_nb.analysis.report import write_report
from fedskew_nb.data.arrays import close_arrays, write_arrays
from fedskew_nb.data.copies import Picture, kinds_of, near_twins, once, one_side
from fedskew_nb.data.folder import folder
from fedskew_nb.data.suite import pack, unpack
from fedskew_nb.engine.history import RunFacts
from test_cli import run

OFFICE = Path(__file__).parents[2]/'shared/real/office-caltech-10.tar'
KINDS = dict(png={}, bmp={}, tif={}, webp=dict(lossless=True))

def smooth(seed, side=64):
    "Soft blobs, as a photograph has."
    rough = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(rough).resize((side, side), Image.Resampling.BICUBIC)

def save(im, path, **how):
    path.parent.mkdir(parents=True, exist_ok=True)
    im.save(path, **how)
    return path

@pytest.fixture
def tree(tmp_path):
    "Two sites, two classes, ten pictures each."
    for i, at in enumerate(('a/cat', 'a/dog', 'b/cat', 'b/dog')):
        for k in range(10): save(smooth(10*i+k), tmp_path/'set'/at/f'{k}.png')
    return tmp_path/'set'

def said(do):
    "What is made, and what is said at it."
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter('always')
        made = do()
    return made, ' | '.join(str(x.message) for x in w)

def load(root, **how): return said(lambda: load_folder(root, 16, **how))[0]

def squeezed(im): return np.asarray(im.resize((16, 16), Image.BILINEAR)).transpose(2, 0, 1).tobytes()

def places(suite, raw):
    "(side, domain, class) of each place of a picture, given by its bytes."
    parts = [(d, 'train', c) for c in suite.clients for d in (c.train, c.val)]
    parts = [(side, c.domain, d) for d, side, c in parts]
    parts += [('test', k, t) for k, t in (suite.tests | suite.unseen).items()]
    return sorted((side, k, suite.classes[y]) for side, k, d in parts
                  for x, y in zip(d.x.numpy(), d.y.tolist()) if x.tobytes() == raw)

# ---- files
@pytest.mark.parametrize('kind', KINDS)
def test_a_copy_in_another_format_counts_once(tree, kind):
    save(smooth(0), tree/'a'/'cat'/f'again.{kind}', **KINDS[kind])
    s, says = said(lambda: load_folder(tree, 16))
    assert '40 images; 1 exact copy left out, first a/cat/' in s.source and '1 exact copy left out' in says
    assert len(places(s, squeezed(smooth(0)))) == 1 and s.copies['copies'] == 1

def test_a_picture_that_lies_down_is_its_own_copy(tree):
    exif = Image.Exif()
    exif[0x112] = 6
    save(smooth(0).transpose(Image.Transpose.ROTATE_90), tree/'a'/'cat'/'turned.png', exif=exif)
    assert load(tree).copies['copies'] == 1

def test_pictures_that_are_only_alike_when_squeezed_are_two(tree):
    "Alike at the size of training, but not at their own."
    flat = Image.new('RGB', (64, 64), (90, 90, 90))
    save(flat, tree/'a'/'cat'/'flat.png')
    save(flat.resize((48, 48)), tree/'a'/'cat'/'small.png')
    dot = flat.copy()
    dot.putpixel((9, 9), (91, 90, 90))
    save(dot, tree/'a'/'cat'/'dot.png')
    assert squeezed(dot) == squeezed(flat) and load(tree).copies['copies'] == 0

@pytest.mark.skipif(os.name == 'nt', reason='links')
@pytest.mark.parametrize('hard', [True, False])
def test_a_link_is_its_file(tree, hard):
    new = tree/'a'/'cat'/'link.png'
    if hard: os.link(tree/'a'/'cat'/'0.png', new)
    else: new.symlink_to(tree/'a'/'cat'/'0.png')
    assert load(tree).copies['copies'] == 1

@pytest.mark.parametrize('to, sites', [('a/dog', 1), ('b/dog', 2)])
def test_a_contradiction_is_left_out_at_both_places(tree, to, sites):
    "By no order of names: `0` and `z`."
    for name in ('0', 'z'):
        path = save(smooth(3), tree/to/f'{name}x.png')
        s, says = said(lambda: load_folder(tree, 16))
        assert places(s, squeezed(smooth(3))) == []
        words = f'first a/cat/3.png (cat) = {to}/{name}x.png (dog)'
        assert f'1 picture under several labels left out, {words}' in says
        assert s.copies['contradictions'] == 1 and '39 images' in s.source
        path.unlink()

@pytest.mark.parametrize('seed', range(6))
def test_a_picture_of_two_sites_is_on_one_side(tree, seed):
    for k in range(10): save(smooth(k), tree/'b'/'cat'/f'of-a-{k}.png')
    s = load(tree, data_seed=seed)
    for k in range(10):
        at = places(s, squeezed(smooth(k)))
        assert len(at) == 2 and len({side for side, *_ in at}) == 1, k
    assert s.copies['across_sites'] == 10

@pytest.mark.parametrize('seed', range(3))
def test_nobody_trains_on_what_an_unseen_site_tests(tree, seed):
    for k in range(10): save(smooth(k), tree/'b'/'cat'/f'of-a-{k}.png')
    s = load(tree, data_seed=seed, unseen=['b'])
    of_b = [places(s, squeezed(smooth(k))) for k in range(10)]
    assert any(('test', 'b', 'cat') in at for at in of_b)
    assert not any(('test', 'b', 'cat') in at and ('train', 'a', 'cat') in at for at in of_b)

def parted(root, copies):
    "Sites that say what is for what; `copies` are (from, to)."
    for i, at in enumerate(('a/train/cat', 'a/train/dog', 'a/test/cat', 'a/test/dog',
                            'b/train/cat', 'b/train/dog', 'b/test/cat', 'b/test/dog')):
        for k in range(4): save(smooth(10*i+k), root/at/f'{k}.png')
    for a, b in copies: (root/b).write_bytes((root/a).read_bytes())
    return root

@pytest.mark.parametrize('to', ['a/train/cat/x.png', 'b/train/cat/x.png'])
def test_the_test_keeps_it(tmp_path, to):
    s, says = said(lambda: load_folder(parted(tmp_path/'set', [('a/test/cat/0.png', to)]), 16, val=0))
    assert places(s, squeezed(smooth(20))) == [('test', 'a', 'cat')]
    assert [len(t) for t in s.tests.values()] == [8, 8]
    assert '1 picture of training and test left to the test' in says and s.copies['train_and_test'] == 1

def test_kept_as_the_authors_dealt_it(tmp_path):
    root = parted(tmp_path/'set', [('a/test/cat/0.png', 'a/train/cat/x.png'),
                                   ('a/train/cat/1.png', 'a/train/dog/x.png'),
                                   ('b/train/cat/2.png', 'b/train/cat/x.png')])
    s, says = said(lambda: load_folder(root, 16, val=0, copies='keep'))
    assert '35 images' in s.source and len(places(s, squeezed(smooth(20)))) == 2
    want = dict(how='keep', copies=2, across_sites=0, train_and_test=1, contradictions=1)
    assert want.items() <= s.copies.items()
    every = '2 exact copies kept', '1 picture in training and in test', '1 picture under several labels kept'
    assert all(words in says for words in every)

def test_what_nothing_is_left_of_is_refused_with_its_reason(tree):
    for k in range(10): save(smooth(k), tree/'a'/'dog'/f'x{k}.png')
    says = "0 usable image.*'cat'.*10 pictures under several labels left out"
    with pytest.raises(ValueError, match=says): load(tree)

# ---- near twins
@pytest.mark.parametrize('quality', [30, 60, 90])
def test_a_picture_that_was_stored_again_is_a_near_twin(tmp_path, quality):
    root = parted(tmp_path/'set', [])
    save(smooth(20), root/'a'/'train'/'cat'/'again.jpg', quality=quality)
    s, says = said(lambda: load_folder(root, 16, val=0))
    assert s.copies['near'] == 1 and s.copies['train_and_test'] == 0
    first = 'first a/test/cat/0.png ≈ a/train/cat/again.jpg'
    assert f'1 of 16 test pictures has a near twin in training, {first}' in says

def test_near_twins_by_a_plain_loop():
    g = np.random.default_rng(0)
    base = g.integers(0, 2, (6, 256))
    turned = (0, 4, 15, 16, 17, 40)*4
    flips = [base[k%6] ^ (g.permutation(256) < n) for k, n in enumerate(turned)]
    def made(bits, part, k):
        return Picture('a', 'xy'[k%2], f'{part}{k}', part, f'{k}', look=np.packbits(bits).tobytes())
    pictures = [made(b, 'train', k) for k, b in enumerate(base)]
    pictures += [made(b, 'test', k) for k, b in enumerate(flips)]
    def near(p, q):
        a, b = (np.unpackbits(np.frombuffer(x.look, np.uint8)) for x in (p, q))
        return p.label == q.label and (a != b).sum() <= min(16, min(a.sum(), b.sum())/6)
    trains = [p for p in pictures if p.part == 'train']
    want = [p for p in pictures if p.part == 'test' and any(near(p, q) for q in trains)]
    for few in (1, 5, 1024):
        pairs = near_twins(pictures, few)
        assert all(near(p, q) for p, q in pairs) and sorted(p for p, _ in pairs) == sorted(want) != []

# ---- a plain loop for the rules
def drawn(seed, n=40):
    g = np.random.default_rng(seed)
    def of(names): return names[g.integers(len(names))]
    parts = 'train', 'train', 'val', 'test'
    return [Picture(of('ab'), of('xxxy'), of('0123456789abcdef'), of(parts), f'{k}') for k in range(n)]

@pytest.mark.parametrize('seed', range(20))
def test_what_stays_is_there_once_and_on_one_side(seed):
    pictures = drawn(seed)
    out, found = once(pictures)
    left = [p for i, p in enumerate(pictures) if i not in out]
    assert len({(p.domain, p.pixels) for p in left}) == len(left)
    assert not any(kinds_of(left)[k] for k in ('copies', 'train_and_test', 'contradictions'))
    for p in pictures:           # nothing is lost but contradictions
        labels = {q.label for q in pictures if q.pixels == p.pixels}
        assert (len(labels) == 1) == any(q.pixels == p.pixels for q in left)
        if p.part == 'test' and len(labels) == 1: assert any(q[:4] == p[:4] for q in left)

@pytest.mark.parametrize('seed', range(10))
def test_whole_patients_go_with_their_pictures(seed):
    pictures, g = drawn(seed), np.random.default_rng(seed)
    patients = [g.choice(['', 'p', 'q', 'r', 's', 't']) for _ in pictures]
    parts = one_side(pictures, patients, [True]*len(pictures))
    for own in (patients, [p.pixels for p in pictures]):
        for who in {*own}-{''}: assert len({part == 'test' for part, w in zip(parts, own) if w == who}) == 1

# ---- other doors
def table(home, rows):
    (home/'t.csv').write_text('\n'.join(','.join(r) for r in [('image', 'label', 'site'), *rows]))
    return home/'t.csv'

def listed(tree):
    files = sorted(tree.rglob('*.png'))
    return [(p.relative_to(tree).as_posix(), p.parts[-2], p.parts[-3]) for p in files]

@pytest.mark.parametrize('label', ['cat', 'dog'])
def test_two_paths_of_one_file_in_a_table(tree, label):
    rows = [*listed(tree), ('a/dog/../cat/0.png', label, 'a')]
    words = 'both of a/cat/0.png, which is a/dog/../cat/0.png'
    if label == 'dog': words += ', as cat and as dog'
    with pytest.raises(ValueError, match=f'rows 2 and 42 are {words}: keep one'): load(table(tree, rows))

def test_a_table_counts_as_its_folder_does(tree):
    save(smooth(0), tree/'a'/'cat'/'x.png')
    save(smooth(1), tree/'b'/'dog'/'x.png')
    a, b = load(tree), load(table(tree, listed(tree)))
    assert a.copies == b.copies and a.fingerprint() == b.fingerprint() and a.copies['contradictions'] == 1

def rows_of(tree): return [(Image.open(tree/p), label, site) for p, label, site in listed(tree)]

@pytest.mark.parametrize('kind', ['pil', 'array', 'tensor'])
def test_rows(tree, kind):
    save(smooth(0), tree/'a'/'cat'/'x.png')
    save(smooth(1), tree/'b'/'cat'/'x.png')
    save(smooth(2), tree/'a'/'dog'/'x.png')
    def tensor(im): return torch.from_numpy(np.array(im)).permute(2, 0, 1)
    of = dict(pil=lambda im: im, array=np.asarray, tensor=tensor)[kind]
    rows = [(of(im), *rest) for im, *rest in rows_of(tree)]
    s, says = said(lambda: Suite.from_rows(rows, size=16))
    assert dict(copies=1, across_sites=1, contradictions=1).items() <= s.copies.items()
    assert '1 exact copy left out' in says and '(cat) = row' in s.source
    kept = said(lambda: Suite.from_rows(rows, size=16, copies='keep'))[0]
    count = lambda s: sum(len(c.train)+len(c.val) for c in s.clients)+sum(map(len, s.tests.values()))
    assert (count(s), count(kept)) == (40, 43)

def noise(n, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (n, 3, 16, 16), dtype=np.uint8))

def test_tensors():
    x, y = noise(20), torch.arange(20)%2
    z, t = noise(10, 1), torch.arange(10)%2
    b = torch.cat([z, z[:1], x[4:5]]), torch.cat([t, t[:1], y[5:6]])
    given = {'a': ((x, y), (x[:4], y[:4])), 'b': (b, (x[6:8], y[6:8]))}
    s, says = said(lambda: Suite.from_datasets(given, val=0))
    assert [len(c.train) for c in s.clients] == [13, 10] and [len(v) for v in s.tests.values()] == [4, 2]
    assert dict(copies=5, across_sites=2, train_and_test=6, contradictions=1).items() <= s.copies.items()
    assert 'first a, train 4 (0) = b, train 11 (1)' in says and says.count('under several labels') == 1
    kept, _ = said(lambda: Suite.from_datasets(given, val=0, copies='keep'))
    assert [len(c.train) for c in kept.clients] == [20, 12] and kept.copies['how'] == 'keep'

def test_the_same_pictures_to_train_and_to_test_are_refused():
    x, y = noise(6), torch.arange(6)%2
    says = "a: no picture to train on is left .*6 pictures of training and test.*copies='keep'"
    with pytest.raises(ValueError, match=says): Suite.from_datasets({'a': ((x, y), (x, y))})

def test_arrays(tmp_path):
    x, y = noise(24).permute(0, 2, 3, 1).numpy(), np.arange(24)%2
    x[20], x[3], x[5] = x[0], x[2], x[4]                     # in training and test; a contradiction; another
    counts = {('a', 'train'): 16, ('a', 'test'): 8}
    blocks = [(('a', 'train'), x[:16], y[:16]), (('a', 'test'), x[16:], y[16:])]
    write_arrays(tmp_path, counts, (16, 16, 3), blocks)
    close_arrays(tmp_path, 'set', ['even', 'odd'], counts)
    s, says = said(lambda: load_folder(tmp_path, 16, val=0))
    assert len(s.clients[0].train) == 11 and len(s.tests['a']) == 8 and '19 images' in s.source
    assert 'first a, train 2 (even) = a, train 3 (odd)' in says and s.copies['train_and_test'] == 1
    assert len(said(lambda: load_folder(tmp_path, 16, val=0, copies='keep'))[0].clients[0].train) == 16

# ---- where it is said
@pytest.fixture
def twice(tree):
    save(smooth(0), tree/'a'/'cat'/'x.png')
    return tree

def test_it_is_said_on_every_reading(twice):
    "Read, from the cache, without a cache."
    for how in ({}, {}, dict(cache=False)):
        s, says = said(lambda: load_folder(twice, 16, **how))
        assert says.count('1 exact copy left out') == 1 and '1 exact copy left out' in s.source
        assert s.copies['copies'] == 1

def test_a_source_of_ones_own_keeps_the_notes(twice):
    assert load(twice, source='mine, 2026').source.startswith('mine, 2026; 1 exact copy left out')

def test_counts_go_with_the_suite(twice):
    s = load(twice)
    again = unpack(*pack(s))
    deals = s.iid(0), s.pooled(), dirichlet(s, 9., 2), uneven(s), leave_out(s, 'a')
    for o in (again, *deals, s.to(), replace(s, name='x')):
        assert (o.copies, o.source) == (s.copies, s.source)
    tensors, meta = pack(s)
    del meta['copies']                                     # a file of before
    assert unpack(tensors, meta).copies == {}

SHORT = dict(rounds=1, local_steps=1, batch_size=4, model='small_conv(width=4)', progress=False, device='cpu')

def test_it_stands_below_tables_and_in_reports(twice, tmp_path, unsaved):
    words = '1 exact copy left out, first a/cat/x.png = a/cat/0.png'
    for _ in range(2):                                     # trained, then read
        how = dict(out=tmp_path/'out', control=False) | SHORT
        cmp = said(lambda: compare('FedAvg', folder(str(twice), 16), 2, **how))[0]
        assert f'Images: folder set, 40 images; {words}.' in str(cmp.table())
    write_report(cmp, tmp_path/'report')
    for file in ('report.html', 'table.md', 'table.tex'):
        assert '1 exact copy left out' in (tmp_path/'report'/file).read_text(), file
    stored = json.loads(next((tmp_path/'out/runs').glob('*.json')).read_text())
    assert words in stored['setting']['images'] and 'images' in RunFacts.__struct_fields__

def test_a_stored_comparison_says_it_again(twice, tmp_path, capsys, unsaved):
    said(lambda: compare('FedAvg', folder(str(twice), 16), 1, out=tmp_path/'out', control=False, **SHORT))
    code, out, _ = run(capsys, 'report', tmp_path/'out')
    assert code == 0 and '1 exact copy left out' in out

def test_a_diagnosis_counts_once(twice, tmp_path):
    save(smooth(20), twice/'b'/'dog'/'x.png')
    d = said(lambda: diagnose(folder(str(twice), 16), 1, **SHORT))[0]
    text = str(d)
    assert text.count('1 exact copy left out') == 1 and '1 picture under several labels left out' in text
    assert 'lie twice' not in text and d.as_dict()['found']['copies']['copies'] == 1
    assert d.advice()[0][0] == 'Decide on one label for each picture' and '1 exact copy' in d.html()

def test_an_embedded_suite_says_nothing():
    s = load_suite('emoji-pacs', 'tiny')
    h = said(lambda: compare('FedAvg', s, 1, control=False, **SHORT))[0].histories[0]
    assert s.copies == {} and 'images' not in h.setting

def test_seeds_that_differ_say_so():
    from fedskew_nb.analysis.table import image_notes
    from fedskew_nb.engine.history import History
    def run(seed, n):
        return History(dict(method='FedAvg', suite='s', seed=seed, images=f'folder s; {n} of 9'))
    note, = image_notes(dict(FedAvg=[run(0, 1), run(1, 2), run(2, 1)]))
    assert note == 'Images: folder s; 1 of 9 (seed 0, 2); 2 of 9 (seed 1).'
    assert image_notes(dict(FedAvg=[History(dict(method='FedAvg', suite='s', seed=0))])) == []

def test_a_recipe_names_it_when_it_is_not_usual(twice):
    usual, kept = folder(str(twice), 16), folder(str(twice), 16, copies='keep')
    assert 'copies' not in usual.text and "copies='keep'" in kept.text
    assert said(lambda: kept(0))[0].copies['how'] == 'keep'
    with pytest.raises(ValueError, match="copies is 'all'"): folder(str(twice), copies='all')

# ---- a real set
@pytest.mark.campaign
@pytest.mark.skipif(not OFFICE.exists(), reason='the pictures are not ours to pass on')
def test_office(tmp_path):
    from fedskew_nb import prepare
    prepare('office-caltech-10', OFFICE, tmp_path/'office')
    s, keep = load(tmp_path/'office'), load(tmp_path/'office', copies='keep')
    assert s.copies['copies'] == keep.copies['copies'] == 26
    assert '2507 images' in s.source and '2533 images' in keep.source
    assert s.copies['train_and_test'] == 0 < keep.copies['train_and_test'] and s.copies['contradictions'] == 0
