"Digits and factors in the exact files of their authors, read by others as by us, and damaged."
import bz2, colorsys, gzip, importlib.util, io, json, os, pickle, struct, subprocess, sys, warnings, zipfile
from itertools import product
import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat
from sklearn.datasets import load_svmlight_file
from torchvision.datasets import MNIST, SVHN, USPS
from fedskew_nb import load_folder, prepare
from fedskew_nb.downloads import sets
from fedskew_nb.tools.cli import main
from fedskew_nb.data import arrays
from fedskew_nb.data.arrays import array_file, close_arrays, fetched, for_later, write_arrays
from fedskew_nb.data.datasets import suite_of_parts
from fedskew_nb.data.images import Data

def rng(*key): return np.random.default_rng(key)
def some(*shape): return rng(*shape).integers(0, 256, shape, np.uint8)
def ten(n): return np.arange(n)%10

def idx(a): return struct.pack(f'>HBB{a.ndim}I', 0, 8, a.ndim, *a.shape)+a.astype(np.uint8).tobytes()

def mnist(folder, packed=True, n=30):
    "MNIST's four files: {part: (images, labels)}."
    folder.mkdir(parents=True, exist_ok=True)
    told = {}
    for part, name, k in (('train', 'train', n), ('test', 't10k', 20)):
        told[part] = x, y = some(k, 28, 28), ten(k)
        for noun, a in (('images-idx3', x), ('labels-idx1', y)):
            raw, end = (gzip.compress(idx(a)), '.gz') if packed else (idx(a), '')
            (folder/f'{name}-{noun}-ubyte{end}').write_bytes(raw)
    return told

def usps(folder, n=30):
    "USPS's two files."
    for name, k in (('usps.bz2', n), ('usps.t.bz2', 20)):
        v = rng(k).uniform(-1, 1, (k, 256)).round(4)
        v[0, :3] = -1, 1, 0
        rows = [' '.join(f'{i+1}:{p:.7g}' for i, p in enumerate(row)) for row in v]
        lines = [f'{k%10+1} {row}' for k, row in enumerate(rows)]
        (folder/name).write_bytes(bz2.compress('\n'.join([*lines, '']).encode()))

def mats(folder, form='{}_32x32.mat', packed=True, n=30):
    "SVHN's two files, or those of SynthDigits."
    for part, k in (('train', n), ('test', 20)):
        y = np.where(ten(k) == 0, 10, ten(k))[:, None].astype(np.uint8)
        savemat(folder/form.format(part), dict(X=some(32, 32, 3, k), y=y), do_compression=packed)

def mnistm(folder, protocol=4):
    "FedBN's pickle."
    told = {}
    for part, n in (('train', 30), ('valid', 20), ('test', 20)):
        told |= {part: some(n, 28, 28, 3), f'{part}_label': ten(n)}
    told['valid_label'] = told['valid_label'].astype('>i8')      # of a machine that writes them the other way
    (folder/'mnistm_data.pkl').write_bytes(pickle.dumps(told, protocol))
    return told

def ganin(folder):
    "Ganin's folder of images with lists."
    told = {}
    for part, n in (('train', 20), ('test', 10)):
        (folder/'mnist_m'/f'mnist_m_{part}').mkdir(parents=True)
        told[part] = some(n, 32, 32, 3)
        for k, x in enumerate(told[part]):
            Image.fromarray(x).save(folder/'mnist_m'/f'mnist_m_{part}'/f'{k:08d}.png')
        lines = ''.join(f'{k:08d}.png {k%10}\n' for k in range(n))
        (folder/'mnist_m'/f'mnist_m_{part}_labels.txt').write_text(lines)
    return told

def zipped(folder, path):
    "A folder as a zip."
    with zipfile.ZipFile(path, 'w') as z:
        for p in sorted(folder.rglob('*')): z.write(p, p.relative_to(folder))
    return path

def stored(out, domain, part):
    "The arrays of a part, as numpy reads them."
    return [np.load(array_file(out, domain, part, kind)) for kind in ('images', 'labels')]

@pytest.fixture(scope='module')
def digits(tmp_path_factory):
    "A download of all five, and what was made of it."
    folder = tmp_path_factory.mktemp('digits')
    mnist(folder/'MNIST'/'raw')
    usps(folder)
    mats(folder)
    mats(folder, 'synth_{}_32x32.mat', packed=False)
    mnistm(folder)
    out = folder.with_name('out')
    return folder, out, prepare('digits', folder, out)

def test_all_five(digits):
    _, out, facts = digits
    assert facts['images'] == {'mnist': 50, 'usps': 50, 'svhn': 50, 'synth': 50, 'mnist-m': 70}
    assert 'mnist has 50 images, the published set has 70000' in facts['remarks']
    assert 'usps.bz2 is not the published file' in facts['remarks']
    assert facts['files']['mnistm_data.pkl'] == 'no checksum is known'
    suite = load_folder(out, 32, copies='keep')        # here svhn and synth, val and test are drawn alike
    assert suite.domains == ['mnist', 'usps', 'svhn', 'synth', 'mnist-m'] and suite.image_size == 32
    assert [len(c.val) for c in suite.clients] == [3, 3, 3, 3, 20] and suite.classes == list('0123456789')

def test_mnist_in_twenty_hues(digits, tmp_path):
    "Every digit once, half of them to test; its paper, read from a corner, is of its client's hue."
    facts = prepare('colored-mnist', digits[0]/'MNIST', tmp_path)
    assert sum(facts['images'].values()) == 50 and len(facts['images']) == 20
    both = [stored(digits[1], 'mnist', p) for p in ('train', 'test')]
    grey, labels = (np.concatenate(v) for v in zip(*both))
    used = []
    for k, part in product(range(20), ('train', 'test')):
        for x, y in zip(*stored(tmp_path, f'hue {k/20:.2f}', part)):
            paper = x.reshape(-1, 3)[x.sum(2).argmin()]
            assert abs((colorsys.rgb_to_hsv(*paper/255)[0]-k/20+.5)%1-.5) < .05
            c = paper.argmin()
            ink = 255*(x[..., c].astype(float)-paper[c])/(255-paper[c])
            i = abs(grey-ink).mean((1, 2)).argmin()
            assert labels[i] == y and abs(grey[i]-ink).max() < 8
            used.append(i)
    assert sorted(used) == list(range(50))
    suite = load_folder(tmp_path, 28)
    assert suite.name == 'colored-mnist-full' and len(suite.clients) == 20

def test_mnist_is_not_there(tmp_path):
    (tmp_path/'in').mkdir()
    usps(tmp_path/'in')
    with pytest.raises(ValueError, match='no file of MNIST is in there'):
        prepare('colored-mnist', tmp_path/'in', tmp_path/'out')

def theirs(kind, root, train):
    "A part as torchvision reads it, without a network and without its checksums."
    if kind is MNIST: d = MNIST(root, train)
    elif kind is USPS: d = USPS(root, train)
    else: d = SVHN(root, 'train' if train else 'test')
    images, labels = zip(*(d[i] for i in range(len(d))))
    return np.stack([np.asarray(i) for i in images]), np.array(labels)

@pytest.mark.parametrize('part', ['train', 'test'])
@pytest.mark.parametrize('kind, name', [(MNIST, 'mnist'), (USPS, 'usps'), (SVHN, 'svhn')])
def test_as_torchvision_reads_them(kind, name, part, digits, monkeypatch):
    folder, out, _ = digits
    monkeypatch.setattr('torchvision.datasets.mnist.check_integrity', lambda *_: True)
    monkeypatch.setattr('torchvision.datasets.svhn.check_integrity', lambda *_: True)
    monkeypatch.setattr('torchvision.datasets.usps.download_url', lambda *_, **__: None)
    if kind is MNIST: mnist(folder/'MNIST'/'raw', packed=False)
    for mine, other in zip(stored(out, name, part), theirs(kind, folder, part == 'train')):
        assert np.array_equal(mine, other)

def test_usps_as_sklearn_reads_it(digits):
    x, y = load_svmlight_file(str(digits[0]/'usps.bz2'), n_features=256)
    images, labels = stored(digits[1], 'usps', 'train')
    assert np.abs(images.reshape(-1, 256)-(x.toarray()+1)*127.5).max() <= 1 and (labels == y-1).all()

def test_the_pickle_of_mnist_m(digits):
    told = pickle.loads((digits[0]/'mnistm_data.pkl').read_bytes())
    for part, name in (('train', 'train'), ('val', 'valid'), ('test', 'test')):
        x, y = stored(digits[1], 'mnist-m', part)
        assert np.array_equal(x, told[name]) and np.array_equal(y, told[f'{name}_label'])

@pytest.mark.parametrize('kind', ['folder', 'zip'])
def test_ganins_folder(kind, tmp_path):
    told = ganin(tmp_path/'down')
    source = tmp_path/'down' if kind == 'folder' else zipped(tmp_path/'down', tmp_path/'m.zip')
    prepare('digits', source, tmp_path/'out')
    for part, x in told.items(): assert np.array_equal(stored(tmp_path/'out', 'mnist-m', part)[0], x)
    assert not (tmp_path/'out'/'unpacked').exists()

def test_ganins_labels_end_at_9(tmp_path):
    ganin(tmp_path/'down')
    labels = tmp_path/'down'/'mnist_m'/'mnist_m_test_labels.txt'
    labels.write_text(labels.read_text().replace('png 9', 'png 10'))
    with pytest.raises(ValueError, match='mnist_m_test_labels.txt: a label is 10, not 0 to 9'):
        prepare('digits', tmp_path/'down', tmp_path/'out')

def test_files_in_an_archive_are_as_the_files(digits, tmp_path):
    folder, out, _ = digits
    prepare('digits', zipped(folder, tmp_path/'all.zip'), tmp_path/'out')
    made = sorted(p.name for p in out.iterdir() if p.name != 'prepared.json')
    assert made == sorted(p.name for p in (tmp_path/'out').iterdir() if p.name != 'prepared.json')
    for name in made: assert (tmp_path/'out'/name).read_bytes() == (out/name).read_bytes()

def test_idx_packed_or_not_is_the_same(tmp_path):
    for packed in (True, False):
        told = mnist(tmp_path/f'{packed}', packed)
        prepare('digits', tmp_path/f'{packed}', tmp_path/f'{packed}-out')
        assert np.array_equal(stored(tmp_path/f'{packed}-out', 'mnist', 'test')[0], told['test'][0])

# ---- damaged and hostile files

class Runs:
    def __reduce__(self): return os.system, ('echo ran > ran.txt',)

def object_state():
    "A pickle that tells numpy that eight bytes are an address."
    raw = pickle.dumps(np.zeros(1, np.int64), 2)
    return pickle.dumps(dict(train=0), 2)[:-1] + b'0' + raw.replace(b'i8', b'O8')

def cut(raw): return raw[:len(raw)//2]

def mat_bytes(**named):
    file = io.BytesIO()
    savemat(file, named)
    return file.getvalue()

def usps_line(label, value):
    return bz2.compress(f'{label} {" ".join(f"{i}:{value}" for i in range(1, 257))}'.encode())

GOOD = dict(X=some(32, 32, 3, 4), y=np.ones((4, 1)))

def bomb(n):
    "Lists that hold the same list twice: 2ⁿ in all, for whoever does not look."
    o = []
    for _ in range(n): o = [o, o]
    return dict(train=o)

DAMAGED = {
    'IDX cut': ('train-images-idx3-ubyte', cut(idx(some(3, 28, 28))), r'its head says \(3, 28, 28\)'),
    'IDX longer': ('train-images-idx3-ubyte', idx(some(3, 28, 28))+b'x', 'its head says'),
    'IDX of floats': ('train-images-idx3-ubyte', b'\0\0\x0d\x03'+bytes(12), 'its head is another'),
    'IDX bomb': ('train-images-idx3-ubyte', struct.pack('>HBB3I', 0, 8, 3, 2**30, 28, 28), 'unpacks to'),
    'gzip cut': ('train-images-idx3-ubyte.gz', cut(gzip.compress(idx(some(3, 28, 28)))), 'no readable IDX'),
    'IDX page': ('train-images-idx3-ubyte', b'<!DOCTYPE html>', 'it is a web page'),
    'IDX pointer': ('train-images-idx3-ubyte', b'version https://git-lfs.github.com', 'a Git LFS pointer'),
    'IDX empty': ('train-images-idx3-ubyte', b'', 'it is empty'),
    'USPS values': ('usps.bz2', bz2.compress(b'1 1:0 2:0\n'), 'line 1 has 2 values, not 256'),
    'USPS range': ('usps.bz2', usps_line(1, 2), 'from -1 to 1'),
    'USPS label': ('usps.bz2', usps_line(11, 0), 'not from 0 to 9'),
    'USPS cut': ('usps.bz2', cut(bz2.compress(some(3000).tobytes())), 'no readable file of USPS'),
    'USPS plain': ('usps.bz2', b'1 1:0', 'no readable file of USPS'),
    'USPS one line': ('usps.bz2', bz2.compress(b'1'*(1 << 20)), 'line 1 has 0 values'),
    'MAT cut': ('train_32x32.mat', cut(mat_bytes(**GOOD)), 'it should hold X .*: fetch it again'),
    'MAT cut late': ('train_32x32.mat', mat_bytes(**GOOD)[:-9], 'no readable MATLAB file'),
    'MAT 7.3': ('train_32x32.mat', b'MATLAB 7.3 MAT-file'.ljust(512), 'it is HDF5 or MATLAB 7.3'),
    'MAT without y': ('train_32x32.mat', mat_bytes(X=GOOD['X']), 'it should hold X'),
    'MAT turned': ('train_32x32.mat', mat_bytes(X=some(4, 32, 32, 3), y=GOOD['y']), r'\(4, 32, 32, 3\)'),
    'MAT floats': ('train_32x32.mat', mat_bytes(X=GOOD['X']/255, y=GOOD['y']), 'X double'),
    'MAT counts': ('train_32x32.mat', mat_bytes(X=GOOD['X'], y=np.ones((5, 1))), r'y double \(5, 1\)'),
    'MAT label': ('train_32x32.mat', mat_bytes(X=GOOD['X'], y=11*GOOD['y']), 'labels run from 11 to 11'),
    'pickle runs': ('mnistm_data.pkl', pickle.dumps(Runs()), 'nothing was run'),
    'pickle builtin': ('mnistm_data.pkl', b'cbuiltins\neval\n(S"1"\ntR.', 'asks for builtins.eval'),
    'pickle numpy': ('mnistm_data.pkl', b'cnumpy\nload\n(S"x"\ntR.', 'asks for numpy.load'),
    'pickle changes': ('mnistm_data.pkl', b'c_codecs\nencode\n(N}S"__doc__"\nS"x"\nstb.', 'it changes'),
    'pickle address': ('mnistm_data.pkl', object_state(), "an array of 'O8'"),
    'pickle cut': ('mnistm_data.pkl', cut(pickle.dumps(dict(train=some(9, 9)))), 'no readable pickle'),
    'pickle keys': ('mnistm_data.pkl', pickle.dumps(dict(train=ten(3))), 'it has no train and train_label'),
    'pickle shape': ('mnistm_data.pkl', pickle.dumps(dict(train=ten(3), train_label=ten(3))), 'int64'),
    'pickle bomb': ('mnistm_data.pkl', pickle.dumps(bomb(60)), 'it has no train and train_label'),
    'list label': ('mnist_m_train_labels.txt', b'0.png\n', 'is no "path label"'),
    'list lost': ('mnist_m_train_labels.txt', b'0.png 1\n', '1 of its 1 images'),
    'list climbs': ('mnist_m_train_labels.txt', b'../usps.bz2 1\n', 'first ../usps.bz2')}

@pytest.mark.parametrize('case', DAMAGED)
def test_damaged_files_are_named(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, raw, says = DAMAGED[case]
    folder = tmp_path/'down'
    mnist(folder, False)
    usps(folder)
    mats(folder)
    if name.startswith('mnist_m_'): (folder/'mnist_m_test_labels.txt').write_bytes(b'')
    (folder/name).write_bytes(raw)
    with pytest.raises(ValueError, match=says) as e: prepare('digits', folder, tmp_path/'out')
    assert name in str(e.value) and '\n' not in str(e.value)
    left = {p.name for p in tmp_path.iterdir()} | {p.name for p in (tmp_path/'out').rglob('*')}
    assert not {n for n in left if n.endswith('.part') or n in ('ran.txt', 'suite.json')}

def test_half_a_domain_and_two_of_one_name(tmp_path):
    mnist(tmp_path/'a')
    mnist(tmp_path/'b')
    (tmp_path/'a'/'t10k-labels-idx1-ubyte.gz').unlink()
    with pytest.raises(ValueError, match='mnist: t10k-labels-idx1-ubyte is missing beside t10k-images'):
        prepare('digits', tmp_path/'a', tmp_path/'out')
    with pytest.raises(ValueError, match='give one of the sources'):
        prepare('digits', [tmp_path/'a', tmp_path/'b'], tmp_path/'out')

# ---- stopped, and on

KILLED = """
import sys, time
from pathlib import Path
from fedskew_nb.downloads import sets
real = sets.write_arrays
def slow(root, counts, shape, blocks):
    def waits():
        for b in blocks:
            if ('usps', 'test') in counts:
                print('here', flush=True)
                time.sleep(60)
            yield b
    real(root, counts, shape, waits())
sets.write_arrays = slow
sets.prepare_arrays('digits', [Path(sys.argv[1])], Path(sys.argv[2]), False)
"""

def is_resumed(digits, out):
    "Is what was whole left alone, and all of it there in the end?"
    folder, whole, _ = digits
    kept = array_file(out, 'mnist', 'train', 'images')
    was = kept.stat().st_mtime_ns
    assert not arrays.holds_arrays(out)
    assert not array_file(out, 'usps', 'test', 'images').exists()
    prepare('digits', folder, out)
    assert kept.stat().st_mtime_ns == was and not list(out.glob('.*.part'))
    for p in whole.glob('*.npy'): assert (out/p.name).read_bytes() == p.read_bytes()

def test_a_stopped_call_goes_on(digits, tmp_path, monkeypatch):
    real = sets.write_arrays
    def stops(root, counts, shape, blocks):
        def some():
            for b in blocks:
                yield b
                if ('usps', 'test') in counts: raise KeyboardInterrupt
        real(root, counts, shape, some())
    with monkeypatch.context() as m:
        m.setattr(sets, 'write_arrays', stops)
        with pytest.raises(KeyboardInterrupt): prepare('digits', digits[0], tmp_path/'out')
    is_resumed(digits, tmp_path/'out')

@pytest.mark.campaign
def test_a_killed_call_goes_on(digits, tmp_path):
    folder, out = digits[0], tmp_path/'out'
    job = subprocess.Popen([sys.executable, '-c', KILLED, folder, out], stdout=subprocess.PIPE)
    assert job.stdout.readline() == b'here\n'
    job.kill()
    job.wait()
    job.stdout.close()
    assert list(out.glob('.*.part'))
    is_resumed(digits, out)

# ---- factors

def sprites(path, kept=(1, 3, 6, 4, 2, 2)):
    "dSprites on a smaller grid, with its pickled metadata."
    classes = np.stack(np.unravel_index(np.arange(np.prod(kept)), kept), 1)
    x = rng(1).integers(0, 2, (len(classes), 64, 64), np.uint8)
    np.savez_compressed(path, imgs=x, latents_classes=classes, latents_values=classes/7,
                        metadata=np.array(dict(title='x'), dtype=object))
    return x, classes

def test_dsprites(tmp_path):
    name = 'dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz'
    x, classes = sprites(tmp_path/name)
    facts = prepare('dsprites', tmp_path/name, tmp_path/'out')
    assert facts['images'] == {f'orientation-{k:02d}': 72 for k in range(4)}
    for k in range(4):
        (a, p), (b, q) = (stored(tmp_path/'out', f'orientation-{k:02d}', part) for part in ('train', 'test'))
        mine = classes[:, 3] == k
        made = sorted((i.tobytes(), y) for i, y in zip([*a, *b], [*p, *q]))
        assert made == sorted((i.tobytes(), y) for i, y in zip(x[mine]*255, classes[mine][:, 2]))
        assert np.bincount(q).tolist() == [3]*6      # of twelve images of each scale
    suite = load_folder(tmp_path/'out', 64, n=20)
    assert suite.n_classes == 6 and [len(c.train) for c in suite.clients] == [20]*4
    assert suite.tests['orientation-00'].x.shape == (18, 3, 64, 64)

NPZ = {
    'objects': (dict(imgs=np.array([{}], object), latents_classes=np.zeros((1, 6))), 'an array of object'),
    'floats': (dict(imgs=np.zeros((2, 8, 8)), latents_classes=np.zeros((2, 6))), 'its images are float64'),
    'none': (dict(latents_classes=np.zeros((2, 6))), 'no readable npz'),
    'counts': (dict(imgs=some(2, 8, 8), latents_classes=np.zeros((3, 6))), r'factors are \(3, 6\)')}

@pytest.mark.parametrize('case', NPZ)
def test_other_npz(case, tmp_path):
    told, says = NPZ[case]
    path = tmp_path/'dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz'
    np.savez(path, **told)
    with pytest.raises(ValueError, match=says): prepare('dsprites', path, tmp_path/'out')

@pytest.mark.skipif(not importlib.util.find_spec('h5py'), reason='h5py is an extra')
def test_3dshapes(tmp_path):
    import h5py
    grid = np.stack(np.unravel_index(np.arange(2*2*1*3*4*1), (2, 2, 1, 3, 4, 1)), 1)
    x = some(len(grid), 64, 64, 3)
    with h5py.File(tmp_path/'3dshapes.h5', 'w') as f:
        f['images'], f['labels'] = x, grid*.1+.75
    facts = prepare('3dshapes', tmp_path, tmp_path.with_name('rooms'))
    assert list(facts['images'])[:2] == ['floor-00-wall-00', 'floor-00-wall-01']
    out = tmp_path.with_name('rooms')
    (a, p), (b, q) = (stored(out, 'floor-01-wall-00', part) for part in ('train', 'test'))
    mine = (grid[:, 0] == 1) & (grid[:, 1] == 0)
    made = sorted((i.tobytes(), y) for i, y in zip([*a, *b], [*p, *q]))
    assert made == sorted((i.tobytes(), y) for i, y in zip(x[mine], grid[mine][:, 4]))
    assert len(prepare('3dshapes-scale', tmp_path, tmp_path.with_name('scales'))['images']) == 3

def test_without_h5py_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'h5py', None)
    (tmp_path/'3dshapes.h5').write_bytes(b'\x89HDF')
    with pytest.raises(ImportError, match=r"pip install 'fedskew_nb\[real\]'"):
        prepare('3dshapes', tmp_path/'3dshapes.h5', tmp_path/'out')

# ---- the arrays themselves

def a_set(root, shape=(16, 16, 3), n=20):
    keys = [(d, p) for d in 'ab' for p in ('train', 'test')]
    told = {k: (some(n+i, *shape), np.arange(n+i)%2) for i, k in enumerate(keys)}
    write_arrays(root, {k: len(y) for k, (_, y) in told.items()}, shape, [(k, *xy) for k, xy in told.items()])
    close_arrays(root, 'mine', ['x', 'y'], {k: len(y) for k, (_, y) in told.items()})
    return told

@pytest.mark.parametrize('shape', [(16, 16, 3), (16, 16)], ids=['colour', 'grey'])
def test_arrays_there_and_back(shape, tmp_path):
    told = a_set(tmp_path, shape)
    def front(x): return x.transpose(0, 3, 1, 2) if x.ndim == 4 else np.repeat(x[:, None], 3, 1)
    suite = load_folder(tmp_path, 16, val=0)
    for c in suite.clients:
        x, _ = told[c.domain, 'test']
        assert np.array_equal(c.test.x, front(x))
        train = {t.numpy().tobytes() for t in c.train.x}
        assert train == {front(i[None])[0].tobytes() for i in told[c.domain, 'train'][0]}
    assert load_folder(tmp_path, 16, val=0).fingerprint() == suite.fingerprint()

def test_more_images_than_a_colour_can_count():
    "2²⁴ and some: those that are dealt are found, the others take no room."
    images, own = [torch.zeros(1, 3, 8, 8, dtype=torch.uint8).expand(1<<24, 3, 8, 8)], some(6, 3, 8, 8)
    d = for_later(Data(torch.from_numpy(own), torch.arange(6)%2), images)
    suite = fetched(suite_of_parts({'a': (d[:4], d[4:])}, ['x', 'y'], 0, 'far', val=0), 8)
    assert np.array_equal(suite.tests['a'].x, own[4:])
    assert {x.numpy().tobytes() for x in suite.clients[0].train.x} == {x.tobytes() for x in own[:4]}

def test_arrays_are_mapped_and_never_changed(tmp_path):
    a_set(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    test = load_folder(tmp_path, 16).tests['a'].x
    assert isinstance(arrays.mapped_array(array_file(tmp_path, 'a', 'test', 'images'), 21), np.memmap)
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        test += 1
    assert before == {p.name: p.read_bytes() for p in tmp_path.iterdir()}

def test_arrays_at_another_size_are_squeezed_as_images_are(tmp_path):
    told = a_set(tmp_path)
    x = load_folder(tmp_path, 8).tests['a'].x
    want = np.stack([np.asarray(Image.fromarray(i).resize((8, 8), Image.Resampling.BILINEAR))
                     for i in told['a', 'test'][0]]).transpose(0, 3, 1, 2)
    assert np.abs(x.numpy().astype(int)-want).max() <= 1

def test_unseen_domains_of_arrays(tmp_path):
    a_set(tmp_path)
    suite = load_folder(tmp_path, 16, unseen=['b'])
    assert [c.domain for c in suite.clients] == ['a'] and len(suite.unseen['b']) == 23
    with pytest.raises(ValueError, match="there is no domain 'c'"): load_folder(tmp_path, 16, unseen=['c'])
    with pytest.raises(ValueError, match='leave the boxes out'): load_folder(tmp_path, 16, boxes='boxes.csv')

def overwritten(name, raw): return lambda root: (root/name).write_bytes(raw)
def changed(**new):
    def change(root):
        told = json.loads((root/'suite.json').read_text())
        (root/'suite.json').write_text(json.dumps(told | new))
    return change

def pickled(root): np.save(root/'a-train-images.npy', np.array([{}]*20, object), allow_pickle=True)

WRONG = {
    'gone': (lambda root: (root/'a-train-images.npy').unlink(), 'a-train-images.npy is missing'),
    'cut': (overwritten('a-train-images.npy', b'\x93NUMPY\1\0'), 'is no whole array'),
    'text': (overwritten('a-train-labels.npy', b'hello'), 'is no whole array'),
    'pickle': (pickled, 'is no whole array'),
    'json': (overwritten('suite.json', b'{'), 'is no set of arrays'),
    'no classes': (changed(classes=3), 'is no set of arrays'),
    'count': (changed(domains=dict(a=dict(train=21, test=21))), 'for 21 images'),
    'part': (changed(domains=dict(a=dict(training=20))), 'they are train, val, test'),
    'path': (changed(domains={'../a': dict(train=20)}), 'a domain is no path'),
    'labels': (changed(classes=['x']), 'labels run from 0 to 1')}

@pytest.mark.parametrize('case', WRONG)
def test_arrays_that_are_none(case, tmp_path):
    a_set(tmp_path)
    change, says = WRONG[case]
    change(tmp_path)
    with pytest.raises(ValueError, match=says): load_folder(tmp_path, 16)

def test_a_block_too_few(tmp_path):
    with pytest.raises(ValueError, match='a-train: 3 of 5 images came'):
        write_arrays(tmp_path, {('a', 'train'): 5}, (4, 4), [(('a', 'train'), some(3, 4, 4), ten(3))])
    assert not list(tmp_path.iterdir())

def test_from_the_command_line(digits, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sources = [('--from', str(digits[0]/name)) for name in ('usps.bz2', 'usps.t.bz2')]
    assert not main(['prepare', 'digits', *sources[0], *sources[1]])
    said = capsys.readouterr().out
    assert '50 images in data/digits: 50 usps' in said and 'note: there are no files of mnist' in said
    assert not main(['prepare']) and 'dsprites' in capsys.readouterr().out
    short = '--pixels 16 --methods FedAvg --rounds 1 --out run --seeds 1'.split()
    assert main(['compare', '--data', 'data/digits', *short])
    assert 'digits has one domain and one client, usps: nothing is federated' in capsys.readouterr().err
