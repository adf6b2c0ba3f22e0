"""Wrong data: what a suite is known by.

And what is said of files, folders, labels and shares that mean something else.
"""
import io, os, re, shutil, zlib
from dataclasses import replace
from pathlib import Path
import numpy as np, pytest, torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import save_file
from fedskew_nb.analysis.comparison import Comparison, deal_of
from fedskew_nb.core.seeding import generator
from fedskew_nb.data.boxes import read_boxes
from fedskew_nb.data.cache import cached, tensor_checksum
from fedskew_nb.core.pictures import read_image
from fedskew_nb.data.folder import folder, load_folder
from fedskew_nb.data.images import Data, as_data
from fedskew_nb.data.load import load_suite
from fedskew_nb.data.splits import by_table, dirichlet, leave_out, shards, uneven
from fedskew_nb.data.suite import Client, Suite, pack, unpack
from fedskew_nb.engine.history import History

@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    "A cache of one's own."
    (tmp_path/'cache').mkdir()
    monkeypatch.setenv('FEDSKEW_CACHE', str(tmp_path/'cache'))
    return tmp_path/'cache'

def images(n=8, size=8, seed=0, classes=2):
    x = torch.randint(256, (n, 3, size, size), generator=generator('wrong', seed), dtype=torch.uint8)
    return Data(x, torch.arange(n)%classes, x[:,:1].clone(), torch.tensor([[1, 1, 5, 5]]*n))

def small():
    a, b = images(), images(seed=1)
    clients = [Client(0, 'a', a[:4], a[4:6], a[6:]), Client(1, 'b', b[:4], b[4:6], b[6:])]
    return Suite('small', ['cat', 'dog'], clients, {c.domain: c.test for c in clients})

def test_masks_of_zero_and_one():
    "An object would be pasted at one part in 255, which nobody sees."
    s = small()
    half = [replace(c, train=replace(c.train, masks=(c.train.masks > 99).byte())) for c in s.clients]
    with pytest.raises(ValueError, match='client 0 .*masks run from 0 to 1, and an object is 255'):
        replace(s, clients=half)
    none = [replace(c, train=replace(c.train, masks=c.train.masks*0)) for c in s.clients]
    assert len(replace(s, clients=none).clients) == 2

# ---- the fingerprint
def grey(s): s.clients[1].train.x[0,0,0,0] ^= 1
def val(s): s.clients[1].val.x[0,0,0,0] ^= 1
def asked(s): s.tests['b'].x[0,0,0,0] ^= 1
def mask(s): s.clients[0].train.masks[0,0,0,0] ^= 1
def box(s): s.clients[0].train.boxes[0,3] += 1
def no_box(s): s.clients[0].train.boxes = None
def label(s): s.clients[0].train.y[0] ^= 1
def labels_swapped(s): s.clients[0].train.y[:2] = s.clients[0].train.y[[1,0]]
def renamed(s): s.classes[0] = 'bat'
def mean(s): s.mean = (.5, .5, .6)
def std(s): s.std = (.3, .25, .25)
def number(s): s.clients[0].id = 7
def domain(s): s.clients[0].domain = 'c'
def order(s): s.clients.reverse()
def fewer(s): del s.clients[1]
def unseen(s): s.unseen = {'z': images(seed=3)}
def one_test_less(s): del s.tests['b']
def turned(s): s.tests = dict(reversed(s.tests.items()))
def swapped(s): s.tests = dict(zip(s.tests, reversed(s.tests.values())))
def shape(s):
    for d in s._datas(): d.x = d.x.transpose(2, 3).contiguous()

CHANGES = [grey, val, asked, mask, box, no_box, label, labels_swapped, renamed, mean, std, number, domain,
           order,            fewer, unseen, one_test_less, turned, swapped, shape]

@pytest.mark.parametrize('change', CHANGES, ids=lambda f: f.__name__)
def test_what_a_run_computes_from_is_in_the_fingerprint(change):
    s, before = small(), small().fingerprint()
    change(s)
    assert s.fingerprint() != before

@pytest.mark.parametrize('same', [
    lambda s: replace(s, name='other', source='web', licence='mine', size='quick', data_seed=3),
    lambda s: s.to(budget=0), lambda s: s.to('cpu'),
    lambda s: unpack(*pack(s)), lambda s: replace(s, mean=[.5, .5, .5], std=torch.full((3,), .25)),
    lambda s: s._with({id(d): d.apply(torch.clone) for d in s._datas()})])
def test_what_changes_no_result_is_not(same): assert same(small()).fingerprint() == small().fingerprint()

def digits(): return load_suite('skew-digits', 'tiny', cache=False)

def test_a_fingerprint_is_counted_once_and_never_stale(monkeypatch):
    s, seen = digits(), []
    def counted(t):
        seen.append(t)
        return tensor_checksum(t)
    monkeypatch.setattr('fedskew_nb.data.suite.tensor_checksum', counted)
    first = s.fingerprint()
    tensors = [t for d in s._datas() for t in vars(d).values() if t is not None]
    assert s.fingerprint() == first and len(seen) == len(tensors)
    flipped = s._with({id(d): d.apply(lambda t: t.flip(0)) for d in s._datas()})
    others = (flipped, replace(s, std=(.3, .3, .3)), uneven(s, 1))
    assert len({first, *(o.fingerprint() for o in others)}) == 4
    assert leave_out(s, 'syn').fingerprint() == leave_out(digits(), 'syn').fingerprint() != first
    s.clients[0].train.x = s.clients[0].train.x.flip(0)
    assert s.fingerprint() != first

@pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA here')
def test_the_same_suite_on_a_gpu_has_the_same_fingerprint():
    assert small().to('cuda').fingerprint() == small().fingerprint()

def test_digests_of_parts():
    t = torch.randint(256, (100, 3, 8, 8), generator=generator('digest'), dtype=torch.uint8)
    strided = t.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    whole = tensor_checksum(t)
    assert tensor_checksum(t, 1000) == whole == tensor_checksum(strided) != tensor_checksum(t[:99])

def test_digests_tell_shapes_and_types_apart():
    none = torch.zeros(0, 3, 8, 8, dtype=torch.uint8)
    others = [none, none[:,:1], torch.tensor(1), torch.tensor([1]), torch.tensor([True])]
    assert len({tensor_checksum(v) for v in (*others, torch.tensor([1.], dtype=torch.bfloat16))}) == 6

# ---- the cache
def ones(calls, value=1):
    "What makes thirty numbers, and notes that it was called."
    def make():
        calls.append(1)
        return {'x': torch.full((30,), value, dtype=torch.uint8)}, {'who': ['me']}
    return make

def entry(home): return next(home.glob('ones-*'))

def rewritten(home, change): entry(home).write_bytes(change(entry(home).read_bytes()))
def saved(home, meta): save_file({'x': torch.zeros(30, dtype=torch.uint8)}, entry(home), {'meta': meta})

def zeroed(home): rewritten(home, lambda raw: raw[:-30]+bytes(30))
def one_bit(home): rewritten(home, lambda raw: raw[:-7]+bytes([raw[-7] ^ 4])+raw[-6:])
def torn(home): rewritten(home, lambda raw: raw[:-9])
def of_another(home):
    cached('twos', ones([], 2))
    next(home.glob('twos-*')).replace(entry(home))
def other_words(home): rewritten(home, lambda raw: raw.replace(b'me', b'us'))
def no_seal(home): saved(home, '{"who": ["me"]}')
def no_table(home): saved(home, '[1]')
def pipe(home):
    name = entry(home)
    name.unlink()
    os.mkfifo(name)

no_windows = pytest.mark.skipif(os.name == 'nt', reason='no pipes with names')
SPOILT = [zeroed, one_bit, torn, of_another, other_words, no_seal, no_table,
          pytest.param(pipe, marks=no_windows)]

@pytest.mark.parametrize('spoil', SPOILT, ids=lambda f: f.__name__)
def test_a_spoilt_cache_file_is_drawn_again(spoil, home):
    calls = []
    for _ in range(2): cached('ones', ones(calls))
    spoil(home)
    got = [cached('ones', ones(calls)) for _ in range(2)]
    assert len(calls) == 2 and all(t['x'].tolist() == [1]*30 and meta == {'who': ['me']} for t, meta in got)

def test_another_suites_file_is_not_believed(home):
    s, other = (load_suite('skew-digits', 'tiny', i) for i in (0, 1))
    one, two = sorted(home.glob('skew-digits-*'))
    two.replace(one)
    assert load_suite('skew-digits', 'tiny', 0).fingerprint() == s.fingerprint() != other.fingerprint()

@pytest.mark.parametrize('var', ['', '~/there', 'given'])
def test_nobody_at_home(var, tmp_path, monkeypatch):
    """No HOME and no passwd entry, as in a container.

    With a folder of its own the cache works, else it is drawn each time."""
    def nobody(_): raise KeyError
    monkeypatch.delenv('HOME', raising=False)
    monkeypatch.delenv('XDG_CACHE_HOME', raising=False)
    monkeypatch.setattr('pwd.getpwuid', nobody)
    monkeypatch.setattr('pwd.getpwnam', nobody)
    monkeypatch.setenv('FEDSKEW_CACHE', str(tmp_path/var) if var == 'given' else var)
    calls = []
    for _ in range(2): assert cached('ones', ones(calls))[0]['x'].sum() == 30
    assert len(calls) == (1 if var == 'given' else 2)

FULL = [OSError(30, 'read-only file system'), OSError(28, 'no space left'), SafetensorError('io error'),
        PermissionError('no')]

@pytest.mark.parametrize('error', FULL)
def test_a_folder_that_takes_no_file(error, home, monkeypatch):
    def refuse(*_, **__): raise error
    monkeypatch.setattr('fedskew_nb.data.cache.save_file', refuse)
    assert cached('ones', ones([]))[0]['x'].sum() == 30 and not list(home.iterdir())

@pytest.mark.parametrize('below', ['', 'below'])
def test_a_cache_folder_that_is_a_file(below, tmp_path, monkeypatch):
    (tmp_path/'file').write_text('')
    monkeypatch.setenv('FEDSKEW_CACHE', str(tmp_path/'file'/below))
    assert cached('ones', ones([]))[0]['x'].sum() == 30

@pytest.mark.campaign
@pytest.mark.skipif(os.name == 'nt', reason='no limits of this kind')
def test_a_full_disk(home):
    "A file may not grow: the suite is drawn, and nothing is left in the cache."
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try: s = load_suite('skew-digits', 'tiny')
    finally: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(home.iterdir()) and load_suite('skew-digits', 'tiny').fingerprint() == s.fingerprint()

# ---- a suite of the wrong things
def with_(part, **new):
    "A suite whose first client, or its images, have a field of another kind."
    def change(s):
        c = s.clients[0]
        thing = c if part == 'client' else getattr(c, part)
        for k, v in new.items(): setattr(thing, k, v(getattr(thing, k)) if callable(v) else v)
        return replace(s)
    return change

def of(**new): return lambda s: replace(s, **{k: v(s) if callable(v) else v for k, v in new.items()})
nothing = images()[:0]

WRONG_SUITES = {
    'two classes of one name': (of(classes=['cat', 'cat']), "two classes are called 'cat'"),
    'a class without a name': (of(classes=['cat', '']), 'the name of a class'),
    'classes that are numbers': (of(classes=[0, 1]), 'the name of a class is 0'),
    'classes as one text': (of(classes='ab'), 'give a list of names'),
    'no class': (of(classes=[]), 'give a list of names'),
    'no classes': (of(classes=None), 'classes is None'),
    'classes as a number': (of(classes=2), 'classes is 2'),
    'std of 0': (of(std=(.2, 0, .2)), 'numbers above 0'),
    'std below 0': (of(std=(.2, -.1, .2)), 'numbers above 0'),
    'std is nan': (of(std=(.2, float('nan'), .2)), 'std is .*three numbers'),
    'std is inf': (of(std=(.2, float('inf'), .2)), 'three numbers'),
    'one std': (of(std=.25), 'three numbers'),
    'two stds': (of(std=(.2, .2)), 'three numbers'),
    'std as text': (of(std='123'), 'three numbers'),
    'mean of texts': (of(mean=('.5', '.5', '.5')), 'mean is .*three numbers'),
    'no mean': (of(mean=None), 'mean is None'),
    'mean is nan': (of(mean=(float('nan'),)*3), 'three numbers'),
    'no name': (of(name=''), 'the name of a suite'),
    'name is None': (of(name=None), 'the name of a suite'),
    'a path as name': (of(name='a/b'), 'take a dash for the slash'),
    'name ends in a slash': (of(name='a/'), 'take a dash for the slash'),
    'name begins with a slash': (of(name='/iid'), 'take a dash for the slash'),
    'clients is a number': (of(clients=3), 'list of Client'),
    'clients are data': (of(clients=[images()]), 'list of Client'),
    'no client': (of(clients=[]), 'no client'),
    'a client twice': (of(clients=lambda s: s.clients[:1]*2), 'same id'),
    'id is a text': (with_('client', id='0'), 'id of a client'),
    'id is a half': (with_('client', id=.5), 'id of a client'),
    'domain is a number': (with_('client', domain=3), 'domain of client 0 is 3'),
    'nothing to train on': (with_('client', train=nothing), 'no training image'),
    'train is a tensor': (with_('client', train=images().x), 'no Data'),
    'val is missing': (with_('client', val=None), 'no Data'),
    'test is a list': (with_('client', test=[1]), 'no Data'),
    'tests is a list': (of(tests=lambda s: list(s.tests)), 'give {domain: Data}'),
    'no test': (of(tests={}), 'no test set'),
    'an empty test': (of(tests=lambda s: s.tests | {'z': nothing}), 'test set of z: no image'),
    'an empty unseen domain': (of(unseen={'z': nothing}), 'test set of z: no image'),
    'unseen is a name': (of(unseen='b'), 'give {domain: Data}'),
    'a domain without a name': (of(tests=lambda s: {'': images()}), 'a domain is'),
    'a test that is a pair': (of(tests={'z': (1, 2)}), 'no Data'),
    'seed is a text': (of(data_seed='0'), 'data_seed'),
    'source is None': (of(source=None), 'source is None'),
    'images as floats': (with_('train', x=lambda x: x/255), 'must be uint8'),
    'images as an array': (with_('train', x=lambda x: x.numpy()), 'x is a ndarray'),
    'grey images': (with_('train', x=lambda x: x[:,:1]), 'must be uint8 .N, 3'),
    'images of another size': (with_('train', x=lambda x: x[...,:4]), 'give `size=`'),
    'labels as a list': (with_('train', y=[0, 1, 0, 1]), 'y is a list'),
    'labels as floats': (with_('train', y=lambda y: y.float()), 'labels are torch.float32'),
    'labels as bools': (with_('train', y=lambda y: y.bool()), 'labels are torch.bool'),
    'labels of 32 bits': (with_('train', y=lambda y: y.int()), 'torch.int32'),
    'labels as rows': (with_('train', y=lambda y: y[:,None]), r'labels are torch.int64 \[4, 1\]'),
    'labels below 0': (with_('train', y=lambda y: y-1), 'labels run from -1'),
    'labels too large': (with_('train', y=lambda y: y+1), 'labels run from 1 to 2'),
    'a label less': (with_('train', y=lambda y: y[:3]), '4 images but 3 labels'),
    'a mask less': (with_('train', masks=lambda m: m[:3]), r'masks are torch.uint8 \[3, 1, 8, 8\]'),
    'masks as bools': (with_('train', masks=lambda m: m > 9), 'masks are torch.bool'),
    'masks of another size': (with_('train', masks=lambda m: m[...,:4]), r'\[4, 1, 8, 4\]'),
    'a box less': (with_('train', boxes=lambda b: b[:3]), r'boxes are torch.int64 \[3, 4\]'),
    'boxes as floats': (with_('train', boxes=lambda b: b.float()), 'boxes are torch.float32'),
    'boxes of five': (with_('train', boxes=lambda b: b[:,[0,1,2,3,3]]), r'\[4, 5\]')}

def refused(what, says):
    "It ends in one sentence, as a `ValueError`."
    with pytest.raises(ValueError, match=says) as e: what()
    assert '\n' not in str(e.value) and len(str(e.value)) < 400

@pytest.mark.parametrize('case', WRONG_SUITES)
def test_a_wrong_suite_is_refused(case):
    change, says = WRONG_SUITES[case]
    refused(lambda: change(small()), says)

# ---- datasets
class Named(list):
    "A dataset with names for its classes."
    def __init__(self, pairs, classes):
        super().__init__(pairs)
        self.classes = classes

def named(classes, labels=(0, 1, 1, 0)):
    return Named([(torch.full((8, 8), .1+.2*i), y) for i, y in enumerate(labels)], classes)
def both(a, b, **kw): return Suite.from_datasets({'a': (a, a), 'b': (b, b)}, val=0, copies='keep', **kw)

X, Y = images().x, images().y
SHOTS = (X, Y)

CD, DC = ['cat', 'dog'], ['dog', 'cat']

def labels_of(suite, part='tests'): return {d: t.y.tolist() for d, t in suite.tests.items()}

def test_classes_in_another_order_are_told_apart_by_name():
    s = both(named(CD), named(DC))
    assert s.classes == CD and labels_of(s) == dict(a=[0, 1, 1, 0], b=[1, 0, 0, 1])

def test_the_order_of_classes_may_be_given():
    turned = both(named(CD), named(DC), classes=DC)
    assert labels_of(turned)['a'] == [1, 0, 0, 1]
    assert turned.clients[1].train.y.bincount().tolist() == [2, 2]

def test_a_dataset_may_have_some_of_the_classes():
    some = both(named(['cat', 'cow', 'dog'], (0, 1, 2, 0)), named(DC))
    assert labels_of(some)['b'] == [2, 0, 0, 2]

def test_parts_of_a_domain_may_name_their_classes():
    parts = Suite.from_datasets({'a': (named(CD), named(DC, (0, 0, 0, 1)))}, val=0, copies='keep')
    assert labels_of(parts)['a'] == [1, 1, 1, 0]
    assert Suite.from_datasets({'a': (named((0, 1)), SHOTS)}).classes == ['0', '1']

WRONG_NAMES = {
    'other names': (lambda: both(named(['cat', 'dog']), named(['cat', 'wolf'])),
        "b: its dataset has a class 'wolf', the suite has cat, dog"),
    'more names': (lambda: both(named(['cat', 'dog']), named(['cat', 'cow', 'dog'])), "'cow'"),
    'other names given': (lambda: both(named(['cat', 'dog']), SHOTS, classes=['Katze', 'Hund']),
        "a: its dataset has a class 'cat'"),
    'twice': (lambda: both(named(['cat', 'cat']), SHOTS), "two classes are called 'cat'"),
    'labels beyond': (lambda: both(named(['cat', 'dog']), named(['dog', 'cat'], (0, 1, 2, 0))),
        'labels run from 0 to 2, but its dataset names 2'),
    'given twice': (lambda: both(SHOTS, SHOTS, classes=['a', 'a']), "two classes are called 'a'"),
    'given a number': (lambda: both(SHOTS, SHOTS, classes=2), 'classes is 2'),
    'given none': (lambda: both(SHOTS, SHOTS, classes=[]), 'give a list of names')}

@pytest.mark.parametrize('case', WRONG_NAMES)
def test_classes_of_other_names_are_refused(case): refused(*WRONG_NAMES[case])

def test_16_bit_images_are_scaled():
    wide = X[:,0].numpy().astype(np.uint16)*257
    for im in (wide, torch.from_numpy(wide)): assert torch.equal(as_data((im, Y)).x[:,0], X[:,0])
    pictures = [(Image.fromarray(a), int(y)) for a, y in zip(wide, Y)]
    for source in (pictures, list(zip(wide, Y))): assert torch.equal(as_data(source).x[:,0], X[:,0])
    dark = wide//300
    assert as_data((dark, Y)).x.max() <= 1 and as_data([(Image.fromarray(a), 0) for a in dark]).x.max() <= 1
    small = as_data((wide, Y), size=4).x.int()-as_data((X[:,0], Y), size=4).x.int()
    assert small.abs().max() <= 1

def test_mirrored_arrays_are_read():
    assert torch.equal(as_data((X.numpy()[..., ::-1], Y)).x, X.flip(-1))

def test_black_and_white_images():
    m = X[:,0] > 99
    assert as_data((m, Y)).x.unique().tolist() == [0, 255] and torch.equal(as_data((m, Y)).x[:,0] == 255, m)

LABELS = [Y.float(), Y.double(), Y.bool(), Y.int(), Y.to(torch.uint8), Y.tolist(), Y.numpy(),
          Y.numpy().astype(np.uint16)]

@pytest.mark.parametrize('y', LABELS, ids=lambda y: str(getattr(y, 'dtype', 'list')))
def test_labels_that_are_whole_are_read(y):
    assert torch.equal(as_data((X, y)).y, Y) and torch.equal(as_data(list(zip(X, y))).y, Y)

def pairs(label): return [(x, label) for x in X]
WRONG_SOURCES = {
    'halves': ((X, Y+.5), 'labels are torch.float32, and not whole'),
    'nan': ((X, Y/0), 'not whole'),
    'one-hot': ((X, torch.eye(8)), 'y.argmax'),
    'one-hot bools': ((X, torch.eye(8).bool()), 'y.argmax'),
    'a column': ((X, Y[:,None]), 'one number per image'),
    'a number': ((X, 3), 'one number per image'),
    'texts': ((X, ['cat']*8), 'labels are no numbers'),
    'complex': ((X, Y*1j), 'labels are'),
    'None': ((X, None), 'labels are no numbers'),
    'one less': ((X, Y[:7]), '8 images but 7 labels'),
    'pairs: halves': (pairs(.5), 'not whole'),
    'pairs: texts': (pairs('cat'), 'no numbers'),
    'pairs: one-hot': (pairs(torch.tensor([1, 0])), 'y.argmax'),
    'pairs: None': (pairs(None), 'no numbers'),
    'single images': (list(X), 'an item of the dataset is a Tensor'),
    'items as dicts': ([{'image': x, 'label': 0} for x in X], 'a dict'),
    'a path': ('photos', 'a str is no dataset'),
    'a number for a dataset': (5, 'a int is no dataset'),
    'a generator': ((p for p in pairs(0)), 'a generator is no dataset'),
    'a loader': (torch.utils.data.DataLoader(pairs(0)), 'a DataLoader is no dataset'),
    'a dict': ({'x': X, 'y': Y}, 'a dict is no dataset'),
    '16 bits in 32': ((X.int()*257, Y), 'run from'),
    'normalised': ((X.float()-99, Y), 'before any normalisation'),
    **{f'zeros and ones in {t}': (((X > 99).to(t), Y), f'{t} images hold only 0 and 1: give x.bool')
       for t in (torch.int16, torch.int32, torch.int64)},
    'nan pixels': ((X/0*0, Y), 'run from'),
    'images of complex numbers': ((X*1j, Y), 'images are torch.complex64'),
    'images as texts': ((['a']*8, Y), 'images are no numbers'),
    'images of many sizes': (([[[1]], [[1, 2]]], [0, 1]), 'images are no numbers of one shape'),
    '32-bit pictures': ([(Image.fromarray(np.full((8, 8), 70000, np.int32)), 0)]*3, '32-bit'),
    'pictures of floats': ([(Image.fromarray(np.ones((8, 8), np.float32)), 0)]*3, 'floating point'),
    'four channels': ((X[:,[0,1,2,0]], Y), '4 channels'),
    'no shape': ((X[0,0], Y), 'shape')}

@pytest.mark.parametrize('case', WRONG_SOURCES)
def test_wrong_images_and_labels_are_refused(case):
    source, says = WRONG_SOURCES[case]
    refused(lambda: Suite.from_datasets({'a': (source, SHOTS)}), f'^a: (.*){says}')

def test_an_error_of_a_dataset_is_its_own():
    class Broken(list):
        def __getitem__(self, i): raise KeyError('mine')
    with pytest.raises(KeyError, match='mine'): as_data(Broken([1, 2, 3]))

ONE = {'a': (SHOTS, SHOTS)}
WRONG_WISHES = {
    'val of 1': (dict(val=1), 'val is 1'),
    'val above 1': (dict(val=1.5), 'val is 1.5'),
    'val below 0': (dict(val=-.1), 'val is -0.1'),
    'val is nan': (dict(val=float('nan')), 'val is nan'),
    'val is a text': (dict(val='.1'), "val is '.1'"),
    'val is True': (dict(val=True), 'val is True'),
    'no val': (dict(val=None), 'val is None'),
    'n of 0': (dict(n=0), 'n is 0'),
    'n is a half': (dict(n=.5), 'n is 0.5'),
    'n is a text': (dict(n='5'), "n is '5'"),
    'clients is a half': (dict(clients=1.5), 'clients of a is 1.5'),
    'clients is a text': (dict(clients='2'), "clients of a is '2'"),
    'clients below 0': (dict(clients=-1), 'a: -1 clients'),
    'clients of nobody': (dict(clients={'c': 1}), "no domain 'c'"),
    'clients is None': (dict(clients=None), 'clients of a is None'),
    'unseen is a text': (dict(unseen='a'), 'give a list'),
    'unseen is None': (dict(unseen=None), 'give a list'),
    'unseen is nowhere': (dict(unseen=['c']), "no domain 'c'"),
    'size is a text': (dict(size='8'), "size is '8'"),
    'size of 0': (dict(size=0), 'size is 0'),
    'size is a half': (dict(size=8.5), 'size is 8.5'),
    'size is a giant': (dict(size=10**9), 'size is 1000000000'),
    'seed is a half': (dict(data_seed=.5), 'data_seed is 0.5'),
    'name is a number': (dict(name=5), 'name of a suite'),
    'a name with a slash': (dict(name='a/b'), 'take a dash for the slash'),
    'an unknown field': (dict(licens='x'), 'did you mean licence'),
    'mean is one': (dict(mean=.5), 'mean is 0.5'),
    'copies is a truth': (dict(copies=True), "copies is True: say 'once'")}

@pytest.mark.parametrize('case', WRONG_WISHES)
def test_wrong_wishes_are_refused(case):
    wish, says = WRONG_WISHES[case]
    refused(lambda: Suite.from_datasets(ONE, **dict(copies='keep') | wish), says)

NONE = (X[:0], Y[:0])
DOMAINS = [
    None, {}, [], 'a', [('a', SHOTS, SHOTS)], {'': (SHOTS, SHOTS)}, {1: (SHOTS, SHOTS)}, {'a': SHOTS[0]},
    {'a': (SHOTS,)}, {'a': (SHOTS, NONE)}, {'a': (SHOTS, [])}, {'a': (NONE, SHOTS)}, {'a': (NONE, NONE)}]

@pytest.mark.parametrize('domains', DOMAINS, ids=range(len(DOMAINS)))
def test_domains_that_are_none(domains): refused(lambda: Suite.from_datasets(domains), 'domain|a: |test set')

# ---- splits
def inf(**kw): return lambda s: dirichlet(s, float('inf'), **kw)
def rows(*r): return lambda s: by_table(s, r)

WRONG_SPLITS = {
    'alpha is inf': (inf(), 'alpha is inf'),
    'alpha is nan': (lambda s: dirichlet(s, float('nan')), 'alpha is nan'),
    'alpha of 0': (lambda s: dirichlet(s, 0), 'alpha is 0'),
    'alpha below 0': (lambda s: dirichlet(s, -1), 'alpha is -1'),
    'alpha is a text': (lambda s: dirichlet(s, '1'), "alpha is '1'"),
    'alpha is True': (lambda s: dirichlet(s, True), 'alpha is True'),
    'alpha is nothing': (lambda s: dirichlet(s, None), 'alpha is None'),
    'alpha is next to nothing': (lambda s: dirichlet(s, 5e-324), 'alpha is'),
    'clients of 0': (lambda s: dirichlet(s, 1, 0), 'clients is 0'),
    'half a client': (lambda s: dirichlet(s, 1, 1.5), 'clients is 1.5'),
    'clients as a text': (lambda s: dirichlet(s, 1, '2'), "clients is '2'"),
    'at least a text': (lambda s: dirichlet(s, 1, at_least='2'), 'at_least'),
    'too many clients': (lambda s: dirichlet(s, 1, 99), 'lower clients'),
    'seed is a half': (lambda s: dirichlet(s, 1, seed=.5), 'seed is 0.5'),
    'no shard': (lambda s: shards(s, 0), 'per_client is 0'),
    'half a shard': (lambda s: shards(s, .5), 'per_client is 0.5'),
    'shards of no client': (lambda s: shards(s, 2, 0), 'clients is 0'),
    'more shards than images': (lambda s: shards(s, 2, 99), '4 images are no 198 shards'),
    'uneven by a text': (lambda s: uneven(s, '0'), 'seed is'),
    'a table as a text': (lambda s: by_table(s, 'abc'), 'table is a str'),
    'no table': (lambda s: by_table(s, None), 'table is a NoneType'),
    'an empty table': (lambda s: by_table(s, []), 'no client'),
    'a row as a number': (rows(5), 'a row of the table is 5'),
    'counts as texts': (rows(('a', '1', '1')), 'must hold 2 counts'),
    'counts are nan': (rows(('a', float('nan'), 1)), 'must hold 2 counts'),
    'counts below 0': (rows(('a', -1, 1)), 'must hold 2 counts'),
    'half an image': (rows(('a', .5, 1)), 'must hold 2 counts'),
    'one count': (rows(('a', 1)), 'must hold 2 counts'),
    'counts of nothing': (rows(('a', None, 1)), 'must hold 2 counts'),
    'a frame without a class': (lambda s: by_table(s, s.partition().drop(columns='dog')),
        "no column 'dog'"),
    'a frame without domains': (lambda s: by_table(s, s.partition().drop(columns='domain')),
        "no column 'domain'"),
    'a table with a slash': (lambda s: by_table(s, s.partition(), name='a/b'), 'slash')}

@pytest.mark.parametrize('case', WRONG_SPLITS)
def test_wrong_splits_are_refused(case):
    split, says = WRONG_SPLITS[case]
    refused(lambda: split(small()), says)

def test_a_frame_is_read_by_its_columns():
    s = small()
    turned = s.partition()[['dog', 'cat', 'domain', 'client']]
    turned.loc[0, 'cat'] = 1
    dealt = by_table(s, turned.drop(columns='client')).partition()
    assert dealt[['cat', 'dog']].values.tolist() == [[1, 2], [2, 2]]

def test_a_small_alpha_gives_each_class_to_one_client():
    "Where every Gamma variable is below what a double holds, too."
    t = dirichlet(load_suite('skew-digits', 'tiny', cache=False), .001, 2, at_least=1).partition()
    shared = sum((t[t.domain == d].iloc[:,2:] > 0).all().sum() for d in t.domain.unique())
    assert shared == 0

DEALT = dict(
    dirichlet=lambda s: dirichlet(s, .5, 1),
    shards=lambda s: shards(s, 1, 1),
    table=lambda s: by_table(s, s.partition()),
    uneven=uneven,
    leave_out=lambda s: leave_out(s, 'a'),
    iid_twice=lambda s: s.iid().iid(),
    uneven_iid=lambda s: uneven(s.iid()),
    pooled_iid=lambda s: s.iid().pooled())

@pytest.mark.parametrize('deal', DEALT)
def test_a_split_can_be_compared(deal):
    "Its runs, their controls and their pictures have names that can be read again."
    s = DEALT[deal](small())
    def run(s, seed): return History(dict(method='FedAvg', suite=s.name, deal=s.deal, seed=seed))
    cmp = Comparison([run(t, seed) for t in (s, s.iid()) for seed in (0, 1)])
    assert [deal_of(h) for h in cmp.histories[::2]] == [(s.name, s.deal), (s.iid().name, 'iid')]
    assert {h.label for h in cmp.histories} <= {'FedAvg', 'FedAvg/iid', 'FedAvg/pooled'}

@pytest.mark.parametrize('deal', DEALT)
def test_a_split_and_its_control_are_told_apart(deal):
    s, plain = DEALT[deal](small()), small()
    assert s.iid().deal == 'iid'
    assert len({(o.name, o.deal) for o in (s, plain, s.iid(), plain.iid())}) == 4

# ---- folders
def paint(file, seed=0, side=9, **kw):
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, **kw)
    return file

@pytest.fixture
def tree(tmp_path):
    "Two domains, two classes, four pictures each, all of one size in bytes and one time."
    for i in range(16): paint(tmp_path/'set'/'ab'[i//8]/('cat', 'dog')[i//4%2]/f'{i%4}.bmp', i)
    still(tmp_path/'set')
    return tmp_path/'set'

def still(root):
    for f in root.rglob('*.*'): os.utime(f, (1e9, 1e9))

def load(root, **kw): return load_folder(root, 8, **kw)

def replaced(tree): paint(tree/'a'/'cat'/'0.bmp', 99)
def swapped(tree):
    (tree/'a'/'cat').rename(tree/'a'/'x')
    (tree/'a'/'dog').rename(tree/'a'/'cat')
    (tree/'a'/'x').rename(tree/'a'/'dog')
def behind_a_link(tree):
    (tree/'a').rename(tree.parent/'elsewhere')
    (tree/'a').symlink_to(tree.parent/'elsewhere', target_is_directory=True)
    load(tree)
    paint(tree.parent/'elsewhere'/'cat'/'0.bmp', 99)
    still(tree.parent/'elsewhere')
def link_turned(tree):
    shutil.copytree(tree, tree.parent/'other')
    paint(tree.parent/'other'/'b'/'cat'/'0.bmp', 99)
    tree.rename(tree.parent/'first')
    tree.symlink_to(tree.parent/'other', target_is_directory=True)
    still(tree.parent/'other')

@pytest.mark.parametrize('change', [replaced, swapped, behind_a_link, link_turned], ids=lambda f: f.__name__)
def test_nothing_stale_is_read(change, tree):
    "The same names, sizes and times are other images."
    recipe = folder(str(tree), 8)
    before = load(tree).fingerprint()
    assert recipe(0).fingerprint() == before == load(tree).fingerprint()
    change(tree)
    still(tree)
    fresh = load(tree, cache=False).fingerprint()
    assert load(tree).fingerprint() == fresh == recipe(0).fingerprint() != before

def test_another_mean_is_another_suite(tree):
    near = [load(tree, mean=torch.tensor([.5, .5, .5+i*1e-6], dtype=torch.float64)) for i in (0, 1)]
    assert near[0].fingerprint() != near[1].fingerprint()

def test_two_folders_of_one_name(tree, tmp_path):
    other = tmp_path/'else'/'set'
    shutil.copytree(tree, other)
    replaced(other)
    still(other)
    a, b = folder(str(tree), 8), folder(str(other), 8)
    assert a.name == b.name == 'set' and a(0).fingerprint() != b(0).fingerprint()

posix = pytest.mark.skipif(os.name == 'nt', reason='no pipes and devices with names')
def fifo(at): os.mkfifo(at/'9.jpg')
def endless(at): (at/'9.jpg').symlink_to('/dev/zero')
def dangling(at): (at/'9.jpg').symlink_to('/nowhere/at/all.jpg')
def itself(at): (at/'9.jpg').symlink_to(at/'9.jpg')
def giant(at):
    with open(at/'9.jpg', 'wb') as f: f.truncate(1 << 40)
def bomb(at): Image.new('1', (20000, 20000)).save(at/'9.png')
def postscript(at):
    Image.new('RGB', (8, 8)).save(at/'9.eps')
    (at/'9.eps').rename(at/'9.jpg')
def png_bomb(at):
    raw = bytearray((lambda b: Image.new('1', (8, 8)).save(b, 'PNG') or b.getvalue())(io.BytesIO()))
    raw[16:24] = (100000).to_bytes(4, 'big')*2
    raw[29:33] = zlib.crc32(raw[12:29]).to_bytes(4, 'big')
    (at/'9.png').write_bytes(raw)

@posix
@pytest.mark.parametrize('trap, says', [
    (fifo, 'a pipe, a device'),
    (endless, 'a pipe, a device'),
    (dangling, 'a link to nothing'),
    (itself, 'a link to nothing'),
    (giant, '1048576 MiB'),
    (bomb, '400 million pixels|exceeds limit'),
    (png_bomb, 'exceeds limit|million pixels'),
    (postscript, 'a PostScript file')], ids=lambda v: getattr(v, '__name__', ''))
def test_traps_behind_a_name(trap, says, tree):
    "Refused by name, or left out with a count; without a hang, and without a flood of memory."
    trap(tree/'a'/'cat')
    refused(lambda: load(tree), 'cat/9.* is no readable image: .*('+says+')')
    for _ in ('from the folder', 'from the cache'):
        with pytest.warns(UserWarning, match='1 unreadable left out'): s = load(tree, bad='skip')
        assert '16 images; 1 unreadable left out, first a/cat/9' in s.source

UNREAD_KINDS = ('heic', 'HEIF', 'avif', 'jp2', 'jxl', 'svg', 'raw', 'dng', 'nef', 'cr2', 'arw')

@pytest.mark.parametrize('kind', UNREAD_KINDS)
def test_pictures_of_other_kinds_do_not_vanish(kind, tree):
    "Not even one that looks like a TIFF, of which the preview would be read."
    paint(tree/'a'/'cat'/'9.tif', 99).rename(tree/'a'/'cat'/f'9.{kind}')
    says = f'9.{kind} is no readable image: .{kind.lower()} is not read; store it as JPEG'
    refused(lambda: load(tree), says)
    with pytest.warns(UserWarning, match='1 unreadable left out'): s = load(tree, bad='skip')
    assert f'16 images; 1 unreadable left out, first a/cat/9.{kind}' in s.source

def test_a_telephones_picture_under_another_suffix(tree):
    (tree/'a'/'cat'/'9.jpg').write_bytes(b'\0\0\0 ftypheic')
    refused(lambda: load(tree), '9.jpg is no readable image: it is a HEIC or AVIF file')

@posix
def test_a_limit_of_ones_own_is_kept_when_pillows_is_lifted(tree, monkeypatch):
    monkeypatch.setattr(Image, 'MAX_IMAGE_PIXELS', None)
    png_bomb(tree/'a'/'cat')
    refused(lambda: load(tree), '10000 million pixels; store it smaller')

@posix
def test_pipes_without_a_suffix_are_not_opened(tree):
    os.mkfifo(tree/'a'/'cat'/'pipe')
    (tree/'a'/'cat'/'nothing').symlink_to('/nowhere')
    assert '16 images' in load(tree).source

@posix
@pytest.mark.parametrize('where, to', [('a/cat/up', 'a'), ('a/cat/self', 'a/cat'), ('loop', '.')])
def test_links_in_a_circle(where, to, tree):
    (tree/where).symlink_to(tree/to, target_is_directory=True)
    refused(lambda: load(tree), 'leads back to a folder above it')

@posix
def test_a_circle_through_another_place(tree, tmp_path):
    (tmp_path/'far').mkdir()
    (tmp_path/'far'/'back').symlink_to(tree/'a', target_is_directory=True)
    (tree/'a'/'cat'/'far').symlink_to(tmp_path/'far', target_is_directory=True)
    refused(lambda: load(tree), 'leads back to a folder above it')

def closed(monkeypatch, path):
    "Nobody may list this folder."
    real = os.scandir
    def scandir(p='.'):
        if Path(p) == path: raise PermissionError(13, 'Permission denied', str(p))
        return real(p)
    monkeypatch.setattr('os.scandir', scandir)

@pytest.mark.parametrize('where', ['b', 'b/dog', '.'])
def test_a_folder_that_cannot_be_read_does_not_vanish(where, tree, monkeypatch):
    if where == 'b': shutil.copytree(tree/'b', tree/'c')        # else two domains would be one
    closed(monkeypatch, tree/where)
    says = f'{re.escape(str(tree/where))} cannot be read .Permission denied.'
    for bad in ('strict', 'skip'): refused(lambda: load(tree, bad=bad), says)

def test_a_file_that_cannot_be_read(tree, monkeypatch):
    real, lost = Path.read_bytes, tree/'a'/'cat'/'0.bmp'
    def read_bytes(p):
        if p == lost: raise PermissionError(13, 'Permission denied', str(p))
        return real(p)
    monkeypatch.setattr('pathlib.Path.read_bytes', read_bytes)
    refused(lambda: load(tree), '0.bmp is no readable image: Permission denied')
    with pytest.warns(UserWarning, match='1 unreadable'): assert '15 images' in load(tree, bad='skip').source

@pytest.mark.parametrize('kind', ['jpg', 'png', 'bmp', 'gif', 'webp', 'tif', 'ppm'])
def test_kinds_of_pictures_that_are_read(kind, tmp_path):
    assert read_image(paint(tmp_path/f'a.{kind}'), 8)[0].shape == (3, 8, 8)

def test_other_kinds_of_pictures(tmp_path):
    "A camera's two in one is read; what needs another program is not, whatever it is called."
    two = [Image.new('RGB', (9, 9), c) for c in ('red', 'blue')]
    two[0].save(tmp_path/'two.mpo', save_all=True, append_images=two[1:])
    (tmp_path/'two.mpo').rename(tmp_path/'camera.jpg')
    assert read_image(tmp_path/'camera.jpg', 8)[2] == (9, 9)
    for kind in ('eps', 'pdf', 'ico', 'tga', 'icns'):
        Image.new('RGB', (32, 32)).save(tmp_path/f'b.{kind}')
        (tmp_path/f'b.{kind}').rename(tmp_path/'b.jpg')
        refused(lambda: read_image(tmp_path/'b.jpg', 8), 'b.jpg is no readable image')

def test_16_bit_files(tmp_path):
    "Scaled to 8 bits, dark ones too; 32 bits without a range are refused."
    ramp = np.arange(256, dtype=np.uint16).reshape(16, 16)
    Image.fromarray(ramp*257).save(tmp_path/'a.png')
    Image.fromarray(ramp*257).save(tmp_path/'a.tif')
    (tmp_path/'a.pgm').write_bytes(b'P5 16 16 65535\n'+(ramp*257).astype('>u2').tobytes())
    (tmp_path/'dark.pgm').write_bytes(b'P5 16 16 65535\n'+ramp.astype('>u2').tobytes())
    for name in ('a.png', 'a.tif', 'a.pgm'): assert (read_image(tmp_path/name, 16)[0] == ramp).all(), name
    assert read_image(tmp_path/'dark.pgm', 16)[0].max() == 1
    Image.fromarray(ramp.astype(np.int32)*257).save(tmp_path/'b.tif')
    refused(lambda: read_image(tmp_path/'b.tif', 16), '32-bit pixels without a range')
    Image.fromarray(-ramp.astype(np.int32)).save(tmp_path/'c.tif')
    refused(lambda: read_image(tmp_path/'c.tif', 16), '32-bit pixels without a range')

WRONG_CALLS = {
    'no size': (dict(size=None), 'size is None'),
    'size is a text': (dict(size='32'), "size is '32'"),
    'size is a half': (dict(size=32.5), 'size is 32.5'),
    'size is True': (dict(size=True), 'size is True'),
    'size is small': (dict(size=7), 'size is 7'),
    'size is a giant': (dict(size=10**6), 'size is 1000000'),
    'size is nan': (dict(size=float('nan')), 'size is nan'),
    'test is a text': (dict(test='.2'), "test is '.2'"),
    'test is None': (dict(test=None), 'test is None'),
    'test is nan': (dict(test=float('nan')), 'test is nan'),
    'test is True': (dict(test=True), 'test is True'),
    'bad is None': (dict(bad=None), 'bad is None'),
    'bad is a list': (dict(bad=['skip']), 'bad is'),
    'seed is a text': (dict(data_seed='0'), 'data_seed is'),
    'seed is None': (dict(data_seed=None), 'data_seed is'),
    'name is empty': (dict(name=''), 'name is'),
    'name is a number': (dict(name=5), 'name is 5'),
    'name has a slash': (dict(name='a/b'), 'take a dash for the slash'),
    'cache is a text': (dict(cache='no'), "cache is 'no'"),
    'cache is None': (dict(cache=None), 'cache is None'),
    'boxes is a number': (dict(boxes=5), 'boxes is 5'),
    'boxes is empty': (dict(boxes=''), "boxes is ''"),
    'boxes is True': (dict(boxes=True), 'boxes is True'),
    'an unknown argument': (dict(clent=2), 'did you mean clients'),
    'classes': (dict(classes=['a']), "no argument 'classes'"),
    'val of 1': (dict(val=1), 'val is 1'),
    'clients as a text': (dict(clients='2'), 'clients of a'),
    'unseen as a text': (dict(unseen='a'), 'unseen is'),
    'n of 0': (dict(n=0), 'n is 0'),
    'mean of one': (dict(mean=.5), 'mean is 0.5'),
    'std of 0': (dict(std=(0, 1, 1)), 'std is'),
    'source is a number': (dict(source=5), 'source is 5'),
    'copies is None': (dict(copies=None), 'copies is None'),
    'copies is another word': (dict(copies='twice'), "copies is 'twice': say 'once', or 'keep'")}

@pytest.mark.parametrize('case', WRONG_CALLS)
def test_wrong_arguments_of_load_folder(case, tree):
    call, says = WRONG_CALLS[case]
    refused(lambda: load_folder(tree, **dict(size=8) | call), says)

@pytest.mark.parametrize('root', [None, '', ' ', 5, b'set', [], ['set'], True], ids=repr)
def test_roots_that_are_none(root): refused(lambda: load_folder(root), 'root is')

# ---- boxes
HEAD = 'path,left,top,right,bottom,score\n'

@pytest.mark.parametrize('text, says', [
    ('[{"path": "a"}]', 'the columns are'),
    (HEAD.upper()+'a,1,2,3,4,1', 'the columns are'),
    (HEAD+'a,1_0,2,30,4,1', 'not all numbers'),
    (HEAD+'a,0x1,2,3,4,1', 'not all numbers'),
    (HEAD+'a,True,2,3,4,1', 'not all numbers'),
    (HEAD+'a,1,2,1e400,4,1', 'not finite'),
    (HEAD+'a,0,0,0,4,1', 'empty or reversed'),
    (HEAD+'a'*200000+',1,2,3,4,1', 'no CSV'),
    (HEAD+',1,2,3,4,1', r'1 path\(s\) are no images'),
    (HEAD+'/etc/passwd,1,2,3,4,1', 'are no images'),
    (HEAD+'../a,1,2,3,4,1', 'are no images'),
    (b'\x89PNG\r\n\x1a\n'+bytes(range(256)), 'not in UTF-8'),
    (HEAD+'a,1,2,3,4,\0', 'not all numbers')], ids=range(13))
def test_tables_of_boxes_that_are_none(text, says, tmp_path):
    (tmp_path/'b.csv').write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(lambda: read_boxes(tmp_path/'b.csv', ['a']), says)

@posix
@pytest.mark.parametrize('file', [None, 5, True, b'b.csv', '.', 'none.csv', 'pipe', '/dev/zero'], ids=repr)
def test_files_of_boxes_that_are_none(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo('pipe')
    with pytest.raises(FileNotFoundError, match='there is no file'): read_boxes(file)
