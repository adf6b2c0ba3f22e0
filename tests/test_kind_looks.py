"One picture in another form: stored as JPEG, small, or under another label."
import io
import numpy as np, pytest, torch
from hypothesis import given, settings, strategies as st
from PIL import Image
from fedskew_nb import Suite, load_suite
from fedskew_nb.core.seeding import generator
from fedskew_nb.data.copies import Picture, checksum_of, near_twins
from fedskew_nb.data.looks import look, other_labels
from fedskew_nb.data.folder import load_folder

def soft(seed, side=48):
    "Blobs, as a photograph has."
    rough = torch.randint(256, (5, 5, 3), generator=generator('soft', seed)).byte()
    return Image.fromarray(rough.numpy()).resize((side, side), Image.Resampling.BICUBIC)

def jpeg(im, quality=80):
    file = io.BytesIO()
    im.save(file, 'JPEG', quality=quality)
    return Image.open(file).convert('RGB')

def shown(im, label='x', part='train', path=''):
    return Picture('a', label, checksum_of(np.asarray(im)), part, path, look=look(im))

def home(folder, side, more):
    "Two sites of two classes; more: {path: (number, quality)}, pictures of the first site again."
    for k in range(32):
        file = folder/'ab'[k%2]/'xy'[k//2%2]/f'{k}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        soft(k, side).save(file)
    for path, k in more.items(): jpeg(soft(k, side)).save(folder/path, quality=80)
    return folder

SIDES = 12, 28, 31, 64

@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('side', SIDES)
@pytest.mark.parametrize('site', ['a', 'b'])
def test_a_jpeg_under_another_label_is_said_in_every_size(tmp_path, side, site):
    root = home(tmp_path, side, {f'{site}/y/c0.jpg': 0, f'{site}/y/c4.jpg': 4})
    with pytest.warns(UserWarning, match='2 pairs of pictures alike under two labels, first a/x/0.png'):
        s = load_folder(root, size=32, cache=False)
    assert s.copies['other_label'] == 2 and f'(x) ≈ {site}/y/c0.jpg (y)' in s.source
    assert s.copies['contradictions'] == 0                       # nothing is left out for it

@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('side', SIDES)
def test_a_jpeg_in_a_test_has_a_twin_in_every_size(tmp_path, side):
    root = home(tmp_path, side, {f'b/{"xy"[k//2%2]}/c{k}.jpg': k for k in range(0, 32, 2)})
    s = load_folder(root, size=32, cache=False)
    assert s.copies['near'] > 0 == s.copies['other_label'] and 'a near twin in training' in s.source

@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('side', SIDES)
def test_pictures_that_differ_are_no_twins(tmp_path, side):
    s = load_folder(home(tmp_path, side, {}), size=32, cache=False)
    assert s.copies['near'] == s.copies['other_label'] == 0

@pytest.mark.filterwarnings('ignore')
def test_the_other_doors_say_it():
    own = [soft(k, 20) for k in range(16)]
    rows = [dict(image=im, label='xy'[k%2], site='ab'[k//2%2]) for k, im in enumerate(own)]
    s = Suite.from_rows([*rows, dict(image=jpeg(own[0]), label='y', site='b')])
    assert s.copies['other_label'] == 1 and 'first row 0 (x) ≈ row 16 (y)' in s.source
    x = torch.stack([torch.from_numpy(np.array(im)).permute(2, 0, 1) for im in [*own, jpeg(own[0])]])
    y = torch.tensor([*(k%2 for k in range(16)), 1])
    s = Suite.from_datasets({'a': ((x[:8], y[:8]), (x[8:], y[8:]))})
    assert s.copies['other_label'] == 1 and 'first a, train 0 (0) ≈ a, test 8 (1)' in s.source

def test_what_nobody_uses_and_exact_copies_are_no_pair():
    one = soft(0)
    assert not other_labels([shown(one), shown(jpeg(one), 'y', '')])
    assert not other_labels([shown(one), shown(one, 'y')])       # a contradiction, which is left out
    assert not other_labels([]) and not other_labels([shown(one)])
    assert len(other_labels([shown(one), shown(jpeg(one), 'y')])) == 1

@pytest.mark.parametrize('side', [20, 40])
def test_a_picture_without_contrast_looks_like_none(side):
    flat = [Image.new('RGB', (side, side), c) for c in ('black', 'white', (90, 91, 90))]
    assert not other_labels([shown(im, label) for im, label in zip(flat, 'xyz')])

@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.integers(12, 90), st.integers(75, 95), st.integers(2, 200))
def test_any_picture_is_found_again_among_many(seed, side, quality, n):
    many = [shown(soft((seed, k), side), 'xyz'[k%3], path=f'{k}') for k in range(n)]
    again = shown(jpeg(soft((seed, 0), side), quality), 'y', 'test', 'again')
    found = [(a.path, b.path) for a, b in other_labels([*many, again])]
    assert ('0', 'again') in found

def test_by_a_plain_loop():
    "Of small pictures: a correlation of .99."
    pictures = [shown(soft(k//2, 20) if k%2 else jpeg(soft(k//2, 20), 70), 'xy'[k%2], path=f'{k}')
                for k in range(40)]
    grey = [np.frombuffer(p.look, np.uint8).astype(float) for p in pictures]
    want = [(f'{i}', f'{j}') for i in range(40) for j in range(i+1, 40)
            if pictures[i].label != pictures[j].label and np.corrcoef(grey[i], grey[j])[0, 1] >= .99]
    assert [(a.path, b.path) for a, b in other_labels(pictures)] == want and len(want) >= 18

@pytest.mark.parametrize('name', ['skew-digits'])
def test_no_two_of_the_packages_own_are_twins(name):
    s = load_suite(name, 'tiny')
    pictures = [shown(Image.fromarray(x.permute(1, 2, 0).numpy()), s.classes[y], part, f'{c.domain} {k}')
                for c in s.clients for part, d in (('train', c.train), ('test', c.test))
                for k, (x, y) in enumerate(zip(d.x, d.y))]
    assert not near_twins(pictures) and not other_labels(pictures)
