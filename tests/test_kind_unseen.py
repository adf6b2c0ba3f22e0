"A site that only tests: one rule for folder, CSV and rows, and an option of the commands."
import csv
import warnings
import numpy as np
import pytest
from PIL import Image
from fedskew_nb import Suite
from fedskew_nb.data.arrays import write_splits
from fedskew_nb.data.folder import folder, load_folder
from fedskew_nb.tools.cli import data_options

RNG = np.random.default_rng(0)
IMAGES = [Image.fromarray(RNG.integers(0, 256, (8, 8, 3), np.uint8)) for _ in range(48)]
ROWS = [('xy'[k//2%2], 'abc'[k//16], ('train', 'test', 'train', 'train')[k%4]) for k in range(48)]

def only(part, *sites): return [(c, d, part if d in sites else p) for c, d, p in ROWS]

def from_rows(home, rows, **how):
    return Suite.from_rows([(im, c, d, '', p) for im, (c, d, p) in zip(IMAGES, rows)], **how)

def from_csv(home, rows, **how):
    for k, im in enumerate(IMAGES): im.save(home/f'{k}.png')
    with open(home/'t.csv', 'w', newline='') as f:
        lines = [[f'{k}.png', *r] for k, r in enumerate(rows)]
        csv.writer(f).writerows([['image', 'label', 'site', 'split'], *lines])
    return load_folder(home/'t.csv', size=8, cache=False, **how)

def from_parts(home, rows, **how):
    for k, (im, (c, d, p)) in enumerate(zip(IMAGES, rows)):
        file = home/'set'/d/p/c/f'{k}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        im.save(file)
    return load_folder(home/'set', size=8, cache=False, **how)

def from_list(home, rows, **how):
    for k, (im, (c, d, _)) in enumerate(zip(IMAGES, rows)):
        file = home/'set'/d/c/f'{k}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        im.save(file)
    write_splits(home/'set', {f'{d}/{c}/{k}.png': p for k, (c, d, p) in enumerate(rows)})
    return load_folder(home/'set', size=8, cache=False, **how)

DOORS = pytest.mark.parametrize('door', [from_rows, from_csv, from_parts, from_list])

def made(door, home, rows, **how):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        return door(home, rows, **how), ' '.join(str(w.message) for w in said)

@DOORS
@pytest.mark.parametrize('sites', ['c', 'bc'])
def test_a_site_that_only_tests_is_unseen(tmp_path, door, sites):
    s, said = made(door, tmp_path, only('test', *sites))
    assert list(s.unseen) == list(sites)
    assert [c.domain for c in s.clients] == [d for d in 'abc' if d not in sites]
    assert all(len(s.unseen[d]) == 16 for d in sites)
    if door is not from_list: assert f'nobody trains on {", ".join(sites)}' in said

@DOORS
def test_it_is_the_same_as_saying_so(tmp_path, door):
    rows = only('test', 'c')
    a, b = made(door, tmp_path, rows)[0], made(door, tmp_path, rows, unseen=['c'])
    assert a.fingerprint() == b[0].fingerprint() and 'nobody trains' not in b[1]

@DOORS
def test_who_trains_and_who_is_held_back_by_hand(tmp_path, door):
    s, said = made(door, tmp_path, ROWS, unseen=['a'])
    assert list(s.unseen) == ['a'] and len(s.unseen['a']) == 4 and 'nobody' not in said

@pytest.mark.parametrize('door', [from_rows, from_csv, from_parts])
def test_sites_that_all_only_test_are_refused(tmp_path, door):
    with pytest.raises(ValueError, match='a has no image to train on: give some the split train, or give'):
        door(tmp_path, only('test', *'abc'))

@pytest.mark.parametrize('door', [from_rows, from_csv, from_parts])
def test_a_site_that_only_trains_is_refused_as_before(tmp_path, door):
    with pytest.raises(ValueError, match='c has no image to test on'): door(tmp_path, only('train', 'c'))

def test_an_option_of_a_command(tmp_path):
    made(from_parts, tmp_path, ROWS)
    recipe, = data_options(data=[str(tmp_path/'set')], unseen=['b'])['suite']
    assert "unseen=['b']" in recipe.text and list(recipe(0).unseen) == ['b']
    with pytest.raises(ValueError, match="no domain 'q'"): folder(tmp_path/'set', unseen=['q'])(0)
    with pytest.raises(ValueError, match='--unseen b needs --data'): data_options(unseen=['b'])
    assert 'unseen' not in folder(tmp_path/'set').text
