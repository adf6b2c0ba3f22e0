"Data: what teaches nothing but must hold. Embedded files, disjoint pools, a torn cache, images, folders."
import hashlib, os, subprocess, sys
from functools import partial
import numpy as np, pytest, torch
from PIL import Image
import fedskew_nb.data.cache, fedskew_nb.data.folder
from fedskew_nb import FedAvg, Federation, small_conv
from fedskew_nb.core.seeding import generator
from fedskew_nb.data.batch import boxes_of, draw_moves, move, move_boxes
from fedskew_nb.data.cache import ahead, cache_dir
from fedskew_nb.data.suites.backgrounds import CONTEXT_KINDS, CONTEXT_SIZES
from fedskew_nb.data.suites.backgrounds import SEEN, context_animals, context_vehicles
from fedskew_nb.data.suites.backgrounds import deal_contexts, draw_contexts, empty_contexts, usual_context
from fedskew_nb.data.suites.digits import DIGITS, DRAW, POOLS, pool
from fedskew_nb.data.suites.emoji import CONTEXTS, EMOJI
from fedskew_nb.data.folder import load_folder, scan
from fedskew_nb.core.pictures import read_image
from fedskew_nb.data.images import as_data
from fedskew_nb.data.load import SIZES, SUITES, load_suite
from fedskew_nb.data.suites.draw import ARTISTS, asset, sprite_names
from fedskew_nb.data.splits import by_table, dirichlet, leave_out, shards, uneven
from fedskew_nb.data.suite import Suite, pack, unpack

CONTEXTUAL = ('context-vehicles', 'context-vehicles-95', 'context-animals')   # a domain is no test set

@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch): monkeypatch.setenv('FEDSKEW_CACHE', str(tmp_path/'cache'))

@pytest.fixture(scope='module')
def tiny(): return {n: load_suite(n, 'tiny', cache=False) for n in SUITES}

def as_bytes(xs): return [x.cpu().numpy().tobytes() for x in xs]

def same(a, b):
    assert a.fingerprint() == b.fingerprint()
    for p, q in zip(a._datas(), b._datas(), strict=True):
        assert torch.equal(p.x, q.x) and torch.equal(p.y, q.y)
        for v, w in ((p.masks, q.masks), (p.boxes, q.boxes)):
            assert (v is None) == (w is None) and (v is None or torch.equal(v, w))

# ---- embedded files
def sums(): return [l.split() for l in asset('SHA256SUMS').read_text().split('\n')[:-1]]

def test_assets_are_what_the_build_made():
    files = {name: asset(name).read_bytes() for _, name in sums()}
    assert len(files) == 23 and sum(map(len, files.values())) < 4<<20
    for digest, name in sums(): assert hashlib.sha256(files[name]).hexdigest() == digest, name

def test_every_asset_has_its_licence():
    text = asset('LICENSES.md').read_text(encoding='utf-8')
    for _, name in sums(): assert name in text or name.startswith('photo_') and name[6:-4] in text, name
    assert 'http' not in text

def test_every_artist_has_all_24_classes():
    for a in ARTISTS: assert len({c for c, _ in sprite_names(a)}) == 24

# ---- suites
@pytest.mark.parametrize('name', SUITES)
def test_suite(name, tiny):
    s = tiny[name]
    assert s.size == 'tiny' and all((s.source, s.licence, s.shows, s.cannot))
    assert s.partition().shape == (len(s.clients), 2+s.n_classes)
    same(s, load_suite(name, 'tiny', cache=False))
    same(s, unpack(*pack(s)))
    assert s.fingerprint() != load_suite(name, 'tiny', 1, cache=False).fingerprint()

@pytest.mark.parametrize('name', sorted(set(SUITES)-set(CONTEXTUAL)))
def test_a_client_is_tested_on_its_domain(name, tiny):
    s = tiny[name]
    assert [c.domain for c in s.clients] == s.domains
    assert all(c.test is s.tests[c.domain] for c in s.clients)

def test_sizes_of_record():
    assert SIZES == ('tiny', 'quick', 'stress', 'standard', 'full')
    assert all(tuple(table) == SIZES for table in (DIGITS, EMOJI, CONTEXT_SIZES))

DRAWN = [(DIGITS, DRAW), (EMOJI, EMOJI['full']['clients'])]

@pytest.mark.parametrize('table, domains', DRAWN, ids=['digits', 'emoji'])
@pytest.mark.parametrize('size', SIZES[1:])
def test_sizes_are_large_enough_and_the_collections_hold_them(table, domains, size):
    def of(what, d):
        n = table[size][what]
        return n[d] if isinstance(n, dict) else n
    assert all(of('test', d) >= 800 for d in domains)
    for d in set(domains) & set(POOLS):
        n = of('train', d)
        assert of('clients', d)*(n+n//5) <= len(pool(d, 'train')) and of('test', d) <= len(pool(d, 'test'))

@pytest.mark.parametrize('seed', [0, 1, 7])
def test_real_digits_are_never_in_two_places(seed):
    def used(d, part): return set(pool(d, part, seed).tolist())
    assert not used('optdigits', 'train') & used('optdigits', 'test')
    mnist = [used(d, part) for d in ('mnist', 'mnistm') for part in ('train', 'test')]
    assert sum(map(len, mnist)) == len(set().union(*mnist)) == 10000

def test_seeds_deal_other_test_digits():
    for d in POOLS:
        test = [set(pool(d, 'test', s).tolist()) for s in (0, 1, 2)]
        assert all(len(a & b) < .6*len(a) for a, b in (test[:2], test[1:]))

@pytest.mark.parametrize('seed', [0, 4])
def test_no_digit_is_dealt_twice(seed):
    s = load_suite('skew-digits', 'quick', seed)
    for c in s.clients:
        if c.domain not in ('mnist', 'optdigits'): continue
        parts = [set(as_bytes(d.x)) for d in (c.train, c.val, c.test)]
        assert len(set().union(*parts)) == sum(map(len, parts))

@pytest.mark.parametrize('bad', [2**63, -2**63-1, 1.5, True, '1', None])
def test_bad_seeds(bad):
    with pytest.raises(ValueError, match='data_seed'): load_suite('skew-digits', 'tiny', bad)

def test_seeds():
    same(load_suite('skew-digits', 'tiny', np.int64(5)), load_suite('skew-digits', 'tiny', 5))
    load_suite('emoji-pacs', 'tiny', -2**63, cache=False)

def test_global_generator_is_untouched():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    s = load_suite('skew-digits', 'tiny', 9)
    for deal in (lambda s: s.iid(1), lambda s: dirichlet(s, .5), shards): deal(s)
    x = s.clients[0].train.x
    move(x, draw_moves(len(x), generator(0), 2, True))
    assert torch.equal(before, torch.get_rng_state())

def test_drawing_does_not_depend_on_threads(tiny):
    n = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        again = load_suite('emoji-pacs', 'tiny', cache=False)
        assert torch.get_num_threads() == 2
    finally: torch.set_num_threads(n)
    same(again, tiny['emoji-pacs'])

# ---- cache
@pytest.fixture
def stored(tiny):
    "The one file of the cache, with skew-digits in it."
    same(load_suite('skew-digits', 'tiny'), tiny['skew-digits'])
    file, = cache_dir().glob('skew-digits-tiny-0-*.safetensors')
    return file

def test_cache_round_trip(stored, tiny): same(load_suite('skew-digits', 'tiny'), tiny['skew-digits'])

@pytest.mark.parametrize('tear', [
    lambda raw: b'', lambda raw: raw[:7], lambda raw: raw[:len(raw)//2], lambda raw: b'<html>'+raw,
    lambda raw: os.urandom(500)], ids=['empty', 'head', 'half', 'html', 'noise'])
def test_a_torn_file_of_the_cache_is_made_again(stored, tiny, tear):
    raw = stored.read_bytes()
    stored.unlink()
    stored.write_bytes(tear(raw))
    same(load_suite('skew-digits', 'tiny'), tiny['skew-digits'])
    assert stored.read_bytes() == raw and not list(cache_dir().glob('*.part'))

def test_cache_that_cannot_be_written(tmp_path, monkeypatch, tiny):
    (tmp_path/'f').write_text('')
    monkeypatch.setenv('FEDSKEW_CACHE', str(tmp_path/'f'/'below'))
    same(load_suite('skew-digits', 'tiny'), tiny['skew-digits'])

def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv('FEDSKEW_CACHE')
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    monkeypatch.setenv('LOCALAPPDATA', str(tmp_path/'L'))
    def on(system):
        monkeypatch.setattr('sys.platform', system)
        return cache_dir()
    assert on('linux') == tmp_path/'fedskew_nb'
    assert on('darwin').parts[-3:] == ('Library', 'Caches', 'fedskew_nb')
    assert on('win32') == tmp_path/'L'/'fedskew_nb'

@pytest.mark.parametrize('name', SUITES)
def test_mapped_equals_memory(name, tiny):
    same(tiny[name].to(budget=0), tiny[name])
    same(tiny[name].to('cpu'), tiny[name])

# ---- deals
@pytest.mark.parametrize('seed', range(3))
def test_deals_lose_nothing(tiny, seed):
    s = tiny['emoji-pacs']
    def key(t): return sorted(hashlib.md5(x).digest() for c in t.clients for x in as_bytes(c.train.x))
    want = key(s)
    table = by_table(s, s.partition(), seed)
    for t in (s.iid(seed), s.pooled(), dirichlet(s, .5, 2, seed), shards(s, 2, 3, seed), table):
        assert key(t) == want
    assert [len(c.val) for c in s.iid(seed).clients] == [len(c.val) for c in s.clients]
    assert s.iid(seed).fingerprint() == s.iid(seed).fingerprint() != s.iid(seed+9).fingerprint()

def test_masks_follow_the_deal(tiny):
    s = tiny['emoji-pacs']
    def masks(s):
        pairs = [zip(as_bytes(c.train.x), as_bytes(c.train.masks)) for c in s.clients]
        return {x: m for pair in pairs for x, m in pair}
    assert masks(s.iid(0)) == masks(s)

# ---- objects before contexts
def is_balanced(d, N, most=0):
    have = torch.bincount(d.y, minlength=N)
    return have.max()-have.min() <= most

@pytest.mark.parametrize('name', CONTEXTUAL)
def test_contexts(name, tiny):
    s, want = tiny[name], CONTEXT_SIZES['tiny']
    n, N = want['train'], s.n_classes
    assert s.name == name and s.domains == list(CONTEXTS)[:9] and list(s.unseen) == list(CONTEXTS)[9:]
    assert [c.domain for c in s.clients] == [f'shift {k}' for k in range(7)]
    assert [(len(c.train), len(c.val), len(c.test)) for c in s.clients] == [(n, n//5, want['own']*N)]*7
    for c in s.clients: assert is_balanced(c.train, N, 1) and is_balanced(c.val, N, 1)
    for d in (*s.tests.values(), *s.unseen.values(), *(c.test for c in s.clients)): assert is_balanced(d, N)

@pytest.mark.parametrize('name', CONTEXTUAL)
def test_objects_have_masks_and_boxes(name, tiny):
    for d in tiny[name]._datas():
        assert d.x.shape[1:] == (3, 32, 32)
        assert d.masks.shape == (len(d), 1, 32, 32) and d.masks.dtype == torch.uint8
        assert d.boxes.shape == (len(d), 4) and d.boxes.dtype == torch.int64
        assert torch.equal(d.boxes, boxes_of(d.masks)) and bool((d.boxes[:,2:] > d.boxes[:,:2]).all())

def shown_before(d, c, kind, key):
    """Are these the images that `draw_contexts` gives for these contexts?

    Without their objects they agree wherever no object is."""
    empty = draw_contexts(d.y, c, CONTEXT_KINDS[kind]['classes'], 32, 'gentle', *key, empty=True)
    assert not empty.masks.any() and not empty.boxes.any()
    away = torch.nn.functional.max_pool2d((d.masks > 0).float(), 7, 1, 3) == 0
    away = away.expand_as(d.x)
    return torch.equal(d.x[away], empty.x[away]) and not torch.equal(d.x, empty.x)

@pytest.mark.parametrize('name', CONTEXTUAL)
def test_every_client_shows_what_was_dealt(name, tiny):
    s, kind, rho = tiny[name], name.removesuffix('-95'), .95 if name.endswith('95') else 1.
    for k, c in enumerate(s.clients):
        for part in ('train', 'val', 'test'):
            d, key = getattr(c, part), (kind, 0, k, part)
            y, where = deal_contexts(k, len(d), s.n_classes, rho, 0, part)
            assert torch.equal(y, d.y) and where.max() < SEEN
            assert rho < 1 or torch.equal(where, usual_context(y, k))
            assert shown_before(d, where, kind, key)
            if part == 'val': assert not shown_before(d, (where+1)%SEEN, kind, key)

@pytest.mark.parametrize('name', CONTEXTUAL)
def test_every_context_is_shown_where_it_is_tested(name, tiny):
    s, kind = tiny[name], name.removesuffix('-95')
    for i, (where, d) in enumerate((s.tests | s.unseen).items()):
        assert shown_before(d, torch.full_like(d.y, i), kind, (kind, 0, where, 'test'))

def test_share_of_usual_contexts():
    y, c = deal_contexts(3, 40000, 9, .95)
    odd = c != usual_context(y, 3)
    assert abs(odd.float().mean()-.05) < .005
    away = torch.bincount((c-y-3)[odd]%9, minlength=9)
    assert away[0] == 0 and (away[1:] > 150).all()

def test_no_usual_contexts():
    y, c = deal_contexts(3, 900, 9, 0.)
    assert not (c == usual_context(y, 3)).any()

@pytest.mark.parametrize('other', [dict(data_seed=1), dict(rho=.95), dict(part='val')], ids=str)
def test_other_deals_differ(other):
    assert torch.equal(deal_contexts(3, 900, rho=1)[0], deal_contexts(3, 900)[0])
    assert not torch.equal(deal_contexts(3, 900)[0], deal_contexts(3, 900, **other)[0])

@pytest.mark.parametrize('rho', [-.1, 1.1, float('nan')])
def test_bad_share_of_usual_contexts(rho):
    with pytest.raises(ValueError, match=f'rho is {rho}'): context_vehicles('tiny', rho=rho)

def test_the_share_is_in_the_name(): assert context_animals('tiny', rho=.5).name == 'context-animals-50'

def test_contexts_without_objects():
    e = empty_contexts(2, 90)
    assert e.x.shape == (90, 3, 32, 32) and not e.masks.any() and not e.boxes.any()
    assert torch.bincount(e.y).tolist() == [10]*9
    assert torch.equal(e.x, empty_contexts(2, 90).x)
    assert not torch.equal(e.x, empty_contexts(2, 90, data_seed=1).x)
    assert empty_contexts(0, 20, 48, n_classes=10).x.shape == (20, 3, 48, 48)

@pytest.mark.parametrize('name', CONTEXTUAL[::2])
def test_contexts_survive_every_deal(name, tiny):
    s = tiny[name]
    box = {x: b.tolist() for c in s.clients for x, b in zip(as_bytes(c.train.x), c.train.boxes)}
    own = {c.domain: c.test for c in s.clients}
    of_one_domain = [dirichlet(s, .5, 2), shards(s, 2, 2), by_table(s, s.partition())]
    for t in (s.iid(0), s.pooled(), uneven(s), *of_one_domain, dirichlet(s, .5).iid(1)):
        assert t.domains == s.domains and list(t.unseen) == list(s.unseen)
        for c in t.clients:
            assert c.train.masks is not None
            assert all(box[x] == b.tolist() for x, b in zip(as_bytes(c.train.x), c.train.boxes))
    for t in of_one_domain: assert all(torch.equal(c.test.x, own[c.domain].x) for c in t.clients)

@pytest.mark.parametrize('name', CONTEXTUAL[::2])
def test_a_client_that_is_left_out(name, tiny):
    s = tiny[name]
    held = leave_out(s, 'shift 3')
    assert len(held.clients) == 6 and held.domains == s.domains
    assert list(held.unseen) == ['sky', 'forest', 'sunset', 'shift 3']
    assert torch.equal(held.unseen['shift 3'].x, s.clients[3].test.x)
    assert torch.equal(held.spare['shift 3'].x, s.clients[3].train.x)
    with pytest.raises(ValueError, match='did you mean shift 3'): leave_out(s, 'shft 3')

def box_by_hand(mask):
    at = mask.nonzero()
    if not len(at): return [0]*4
    (top, left), (bottom, right) = at.amin(0).tolist(), at.amax(0).tolist()
    return [left, top, right+1, bottom+1]

def test_boxes():
    g = generator('boxes')
    m = (torch.rand(200, 1, 9, 12, generator=g) > .97).to(torch.uint8)
    m = m*torch.randint(100, 256, (200, 1, 1, 1), generator=g, dtype=torch.uint8)
    found = boxes_of(m)
    assert found.tolist() == [box_by_hand(mask) for mask in m[:,0] > 127]
    assert (found == 0).all(1).any() and (found > 0).any() and boxes_of(m[:0]).shape == (0, 4)

def test_boxes_move_as_images_do():
    moves = draw_moves(200, generator('boxes'), 4, True)
    full = torch.zeros(200, 1, 9, 12, dtype=torch.uint8)
    full[:,:,2:5,3:9] = 255
    assert torch.equal(move_boxes(boxes_of(full), moves, (9, 12)), boxes_of(move(full, moves)))
    assert not move_boxes(torch.zeros(200, 4, dtype=torch.int64), moves, (9, 12)).any()

# ---- one's own data
def test_datasets_of_every_kind():
    u = torch.randint(256, (12, 9, 9), generator=generator('kinds'), dtype=torch.uint8)
    y = torch.arange(12)%3
    want = as_data((u, y)).x
    pairs = [(Image.fromarray(a.numpy()), int(b)) for a, b in zip(u, y)]
    coloured = u[...,None].expand(-1, -1, -1, 3)
    dataset = torch.utils.data.TensorDataset(u, y)
    for kind in ((u.numpy(), y.tolist()), (u.float()/255, y), (coloured, y), dataset, pairs):
        assert torch.equal(as_data(kind).x, want)
    s = Suite.from_datasets({'a': (pairs, pairs, pairs)}, clients=2, copies='keep')
    assert [len(c.val) for c in s.clients] == [6, 6]

X, Y = torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 2, 5])
ONE = {'a': ((X, Y), (X, Y))}

@pytest.mark.parametrize('data, kw, says', [
    (ONE, dict(classes='abc'), 'labels run from 0 to 5'),
    ({'a': ((X, Y[:3]), (X, Y))}, dict(val=0), '4 images but 3 labels'),
    (ONE, dict(n=36), 'need 40, it has 4'),
    (ONE, dict(clients=5), '5 client.* need 5, it has 4'),
    (ONE, dict(unseen=['a']), 'no client'),
    (ONE | {'b': ((X[...,:4,:4], Y), (X, Y))}, {}, 'others are')])
def test_wrong_data(data, kw, says):
    with pytest.raises(ValueError, match=says): Suite.from_datasets(data, copies='keep', **kw)

# ---- folders
def paint(path, seed=0, size=(12, 10), **kw):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)).save(path, **kw)
    return path

@pytest.fixture
def tree(tmp_path):
    "Two domains, two classes, six images each."
    for i, folder in enumerate(('ink/cat', 'ink/dog', 'oil/cat', 'oil/dog')):
        for k in range(6): paint(tmp_path/'set'/folder/f'{k}.png', 10*i+k)
    return tmp_path/'set'

def test_folder(tree):
    how = dict(clients={'ink': 2}, test=.34)
    s = load_folder(tree, 16, **how)
    assert s.name == 'set' and s.classes == ['cat', 'dog']
    assert [len(t) for t in s.tests.values()] == [4, 4]
    assert [c.domain for c in s.clients] == ['ink', 'ink', 'oil']
    same(s, load_folder(tree, 16, **how))
    same(s, load_folder(tree, 16, cache=False, **how))
    assert len(list(cache_dir().glob('folder-set-*'))) == 1

def test_images_on_the_disk_are_those_in_memory(tree, monkeypatch):
    "Read, dealt and trained on, with any number of threads; no file has a name."
    def run():
        s = load_folder(tree, 16, cache=False, clients={'ink': 2})
        fed = Federation(FedAvg, small_conv(2, width=4, size=16, seed=0), s, rounds=2, batch_size=4)
        fed.fit(progress=False)
        more = dirichlet(s, 9., 2), uneven(s), leave_out(s, s.domains[0])
        marks = [x.fingerprint() for x in (s, s.iid(1), s.pooled(), *more)]
        return marks, as_bytes(fed.model().state_dict().values())
    want = run()
    monkeypatch.setattr(fedskew_nb.data.cache, 'IN_MEMORY', 0)
    for threads in (1, 3):
        monkeypatch.setattr(fedskew_nb.data.folder, 'ahead', partial(ahead, threads=threads))
        assert run() == want
    assert not list(cache_dir().iterdir())

def test_every_image_of_a_folder_is_somewhere(tree):
    "Each file once, with the class of its folder, at the client or in the test set of its domain."
    s = load_folder(tree, 16)
    got = [(d, s.classes[y], x.numpy().tobytes()) for d, t in [*((c.domain, v) for c in s.clients for v in
           (c.train, c.val)), *s.tests.items()] for x, y in zip(t.x, t.y)]
    def raw(p): return np.asarray(Image.open(p).resize((16, 16), Image.BILINEAR)).transpose(2, 0, 1).tobytes()
    assert sorted(got) == sorted((p.parts[-3], p.parts[-2], raw(p)) for p in tree.rglob('*.png'))

PEAK = '''
import sys, threading, time
import fedskew_nb
from fedskew_nb.data import cache
cache.IN_MEMORY = 64 << 20
def held(): return int(next(l for l in open('/proc/self/status') if l.startswith('RssAnon')).split()[1])
before, peak, done = held(), 0, threading.Event()
def watch():
    global peak
    while not done.wait(.005): peak = max(peak, held())
watcher = threading.Thread(target=watch)
watcher.start()
s = fedskew_nb.load_folder(sys.argv[1], 224)
for deal in (lambda: s.iid(0), lambda: fedskew_nb.dirichlet(s, 9.), lambda: fedskew_nb.uneven(s)): deal()
done.set()
watcher.join()
print(s.nbytes >> 20, peak-before >> 10)
'''

@pytest.mark.campaign
@pytest.mark.skipif(not sys.platform.startswith('linux'), reason='Linux says what a process holds')
def test_a_folder_of_four_times_the_limit(tmp_path):
    "What the system cannot take back stays below the limit."
    for k in range(1800): paint(tmp_path/'big'/'ab'[k%2]/'xy'[k//2%2]/f'{k}.jpg', k)
    peak = [sys.executable, '-c', PEAK, tmp_path/'big']
    size, added = map(int, subprocess.run(peak, capture_output=True, text=True, check=True).stdout.split())
    assert size > 4*64 > 4*added

def test_files_of_odd_names_are_images(tree):
    paint(tree/'ink'/'cat'/'new.JPG', 99)
    assert '25 images' in load_folder(tree, 16).source
    (tree/'oil'/'cat'/'83. filename-img-0989-jpg').write_bytes(paint(tree.parent/'x.jpg', 7).read_bytes())
    assert '26 images' in load_folder(tree, 16).source

JUNK = ('.DS_Store', 'ink/Thumbs.db', 'ink/cat/._0.png', 'ink/cat/.ipynb_checkpoints/0.png',
        '__MACOSX/ink/cat/0.png', 'ink/readme.txt', 'oil/dog/desktop.ini')

def test_junk_is_ignored(tree):
    for n in JUNK:
        (tree/n).parent.mkdir(parents=True, exist_ok=True)
        (tree/n).write_bytes(b'junk')
    assert sum(len(p) for cs in scan(tree).values() for p in cs.values()) == 24

@pytest.mark.parametrize('raw, says', [
    (b'', 'the file is empty'),
    (b'<!DOCTYPE html><html></html>', 'a web page'),
    (b'\n<html>404', 'a web page'),
    (b'version https://git-lfs.github.com/spec/v1\noid', 'Git LFS pointer'),
    (b'\xff\xd8\xff\xe0garbage', 'it is cut off'),
    (bytes(range(99)), 'cannot identify')])
def test_broken_file_is_named(tree, raw, says):
    (tree/'ink'/'cat'/'bad.jpg').write_bytes(raw)
    with pytest.raises(ValueError, match='bad.jpg is no readable image.*'+says): load_folder(tree, 16)
    with pytest.warns(UserWarning, match='1 unreadable left out'): s = load_folder(tree, 16, bad='skip')
    assert '24 images; 1 unreadable' in s.source
    assert '1 unreadable' in load_folder(tree, 16, bad='skip').source

@pytest.mark.parametrize('kind', ['jpg', 'png', 'webp', 'gif', 'tif'])
def test_cut_off_image(tmp_path, kind):
    p = paint(tmp_path/f'a.{kind}', size=(64, 64))
    raw = p.read_bytes()
    p.write_bytes(raw[:len(raw)*2//3])
    with pytest.raises(ValueError, match=f'a.{kind} is no readable image'): read_image(p, 16)

def flat(value, dtype): return Image.fromarray(np.full((8, 8), value, dtype))
GREY, CLEAR = flat(100, np.uint8), Image.new('RGBA', (8, 8), (9, 9, 9, 0))
MODES = [
    ('L.png', GREY, 100),
    ('P.png', GREY.convert('P'), 100),
    ('LA.png', CLEAR.convert('LA'), 255),
    ('RGBA.png', CLEAR, 255),
    ('CMYK.jpg', GREY.convert('CMYK'), 100),
    ('I16.png', flat(257*100, np.uint16), 100),
    ('one.png', Image.new('1', (8, 8), 1), 255),
    ('I.tif', flat(100, np.int32), 100)]

@pytest.mark.parametrize('name, im, want', MODES, ids=[m[0] for m in MODES])
def test_modes(tmp_path, name, im, want):
    im.save(tmp_path/name)
    x, _, _ = read_image(tmp_path/name, 8)
    assert x.shape == (3, 8, 8) and x.dtype == np.uint8 and abs(int(x[0,4,4])-want) <= 2

def test_a_transparent_colour_of_a_palette_is_white(tmp_path):
    p = CLEAR.convert('P')
    p.save(tmp_path/'T.png', transparency=p.getpixel((0, 0)))
    assert read_image(tmp_path/'T.png', 8)[0].min() == 255

def test_numbers_are_no_image(tmp_path):
    flat(0, np.float32).save(tmp_path/'F.tif')
    with pytest.raises(ValueError, match='floating point'): read_image(tmp_path/'F.tif', 8)

@pytest.mark.parametrize('where, kw, says', [
    ('../sett', {}, "there is no folder .*holds \\['set'\\]"),
    ('../a/b', {}, 'is missing too'),
    ('..', {}, 'too deep; try .*set'),
    ('ink', {}, 'single domain'),
    ('ink/cat', {}, 'too high'),
    ('', dict(n=20), '20 training'),
    ('', dict(bad='ignore'), "'strict' or 'skip'"),
    ('', dict(test=1), 'test is 1'),
    ('', dict(size=2), 'size is 2')])
def test_bad_calls(tree, where, kw, says):
    folder = (tree/where).resolve()
    with pytest.raises(ValueError, match=says): load_folder(folder, **dict(size=16) | kw)

@pytest.mark.parametrize('more, says', [
    (['ink/cat/sub/a.png'], '1 of 25 images do not'),
    (['oil/Cat/a.png'], "'Cat' and 'cat' differ only in capitals"),
    (['oil/cow/a.png'], "domain 'ink' has no image of class 'cow'"),
    (['oil/cow/a.png', 'ink/cow/a.png'], 'it needs 2')])
def test_bad_folders(tree, more, says):
    for n in more: paint(tree/n)
    with pytest.raises(ValueError, match=says): load_folder(tree, 16)

def test_copies_are_left_out(tree):
    (tree/'ink'/'cat'/'copy.png').write_bytes((tree/'ink'/'cat'/'0.png').read_bytes())
    says = '1 exact copy left out, first ink/cat/copy.png = ink/cat/0.png'
    with pytest.warns(UserWarning, match=says): assert '24 images' in load_folder(tree, 16).source


def test_the_names_of_a_suite_are_its_own():
    a = load_suite('emoji-pacs', 'tiny', cache=False)
    a.classes[0] = 'Hund'
    assert load_suite('emoji-pacs', 'tiny', data_seed=3, cache=False).classes[0] == 'dog'

def test_more_shards_than_images_and_clients_without_any():
    s = load_suite('skew-digits', 'tiny')
    with pytest.raises(ValueError, match='images are no 20000 shards; lower clients'): shards(s, 2, 10_000)
    with pytest.raises(ValueError, match='at_least'): dirichlet(s, .5, at_least=0)

@pytest.mark.parametrize('n', [2, 3])
def test_items_of_a_list_are_no_images_and_labels(n):
    items = [(np.full((8, 8, 3), i, np.uint8), i) for i in range(n)]
    assert as_data(items).y.tolist() == list(range(n))
