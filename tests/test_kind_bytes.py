"Bytes of 0 and 1, and labels that often mean 'ignore', at every door."
import json
import numpy as np, pytest, torch
from hypothesis import given, settings, strategies as st
from PIL import Image
from fedskew_nb import Data, FedAvg, Suite, small_conv
from fedskew_nb.data.looks import none_of
from fedskew_nb.data.folder import load_folder
from feds import fed_of

pytestmark = pytest.mark.filterwarnings('ignore')

def ones(n, seed=0): return np.random.default_rng(seed).integers(0, 2, (n, 12, 12, 3), dtype=np.uint8)
def grey(n, seed=0): return np.random.default_rng(seed).integers(0, 256, (n, 12, 12, 3), dtype=np.uint8)

def by_folder(root, of, **how):
    for d, x in of.items():
        for k, im in enumerate(x):
            file = root/d/'xy'[k%2]/f'{k}.png'
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(im).save(file)
    return load_folder(root, size=12, cache=False, **how)

def by_arrays(root, of, labels=None, classes='xy', **how):
    for d, x in of.items():
        for part, own in (('train', x[:16]), ('test', x[16:])):
            y = np.arange(len(own))%2 if labels is None else labels[:len(own)]
            np.save(root/f'{d}-{part}-images.npy', own)
            np.save(root/f'{d}-{part}-labels.npy', y)
    domains = {d: dict(train=16, test=len(x)-16) for d, x in of.items()}
    (root/'suite.json').write_text(json.dumps(dict(name='own', classes=[*classes], domains=domains)))
    return load_folder(root, size=12, **how)

def by_rows(root, of, **how):
    return Suite.from_rows([dict(image=im, label='xy'[k%2], site=d)
                            for d, x in of.items() for k, im in enumerate(x)], **how)

def tensors(x): return torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(), torch.arange(len(x))%2
def by_tensors(root, of, **how):
    return Suite.from_datasets({d: (tensors(x[:16]), tensors(x[16:])) for d, x in of.items()}, **how)
def by_data(root, of, **how):
    parts = {d: (Data(*tensors(x[:16])), Data(*tensors(x[16:]))) for d, x in of.items()}
    return Suite.from_datasets(parts, **how)

DOORS = [by_folder, by_arrays, by_rows, by_tensors, by_data]
MIXED = dict(a=ones(24), b=grey(24, 1))

@pytest.mark.parametrize('door', DOORS)
def test_a_site_of_0_and_1_is_refused_and_each_mend_works(tmp_path, door):
    said = (r'a: bytes are only 0 and 1, and 1 is black: if it is white, say white=1 '
            r'\(--white 1\); white=255 keeps them so')
    with pytest.raises(ValueError, match=said): door(tmp_path, MIXED)
    white, kept = door(tmp_path, MIXED, white='1'), door(tmp_path, MIXED, white='255')
    assert white.tests['a'].x.unique().tolist() == [0, 255] and white.white == (0, 1)
    assert kept.tests['a'].x.unique().tolist() == [0, 1] and 'if it is white, say white=1' in kept.source
    assert torch.equal(white.tests['b'].x, kept.tests['b'].x) and 'only 0 and 1' not in white.source
    assert torch.equal(white.tests['a'].x, 255*kept.tests['a'].x)

@pytest.mark.parametrize('door', DOORS)
def test_other_bytes_have_no_word(tmp_path, door):
    s = door(tmp_path, dict(a=grey(24), b=grey(24, 1)))
    assert s.white == () and 'only 0 and 1' not in s.source

def test_arrays_are_bytes_so_another_white_is_refused(tmp_path):
    with pytest.raises(ValueError, match='holds bytes: leave white out'):
        by_arrays(tmp_path, MIXED, white=4095)

def test_a_trained_model_reads_them_as_its_suite_did(tmp_path):
    net = small_conv(2, size=12, width=4, seed=0)
    fed = fed_of(FedAvg, by_tensors(tmp_path, MIXED, white=1), net, rounds=1)
    fed.fit()
    x = tensors(ones(4, 5))[0]
    assert torch.equal(fed.predict(x), fed.predict(255*x))

# ---- labels

@pytest.mark.parametrize('odd', ['255', '-1', '-100'])
def test_a_label_that_often_means_ignore_is_said(tmp_path, odd):
    rows = [(im, int(odd) if k == 3 else k%2, 'ab'[k//2%2]) for k, im in enumerate(grey(24))]
    with pytest.warns(UserWarning, match='a class that often means "ignore"'): s = Suite.from_rows(rows)
    assert f'1 of {odd}; if so, leave them out' in s.source and odd in s.classes       # it may be meant

def test_so_it_is_for_arrays_and_folders(tmp_path):
    labels = np.array([0, 1, 2]*8)
    s = by_arrays(tmp_path, dict(a=grey(24)), labels, ['0', '1', '255'])
    assert '7 of 255; if so, leave them out' in s.source
    for k, im in enumerate(grey(24, 7)):
        file = tmp_path/'f'/'ab'[k%2]/['0', '1', '255'][k//2%3]/f'{k}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(im).save(file)
    assert '8 of 255; if so' in load_folder(tmp_path/'f', size=12, cache=False).source

@settings(max_examples=50, deadline=None)
@given(st.sets(st.integers(-120, 300), min_size=1, max_size=8))
def test_which_labels_are_said(labels):
    rest = sorted(v for v in labels if v != 255 and v >= 0)
    counted = len(rest) > 1 and rest[0] < 2 and rest[-1]-rest[0] == len(rest)-1
    want = sorted(str(v) for v in labels if v == 255 or v < 0) if counted else []
    assert none_of([str(v) for v in labels]) == want and not none_of([*map(str, labels), 'cat'])
