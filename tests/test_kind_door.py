"Pictures that lose content at the door: levels, pages, kinds that are not read."
import io
import struct
import warnings
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from PIL import Image
from fedskew_nb import Federation, FedAvg, Suite, small_conv
from fedskew_nb.data.folder import folder, load_folder
from fedskew_nb.core.pictures import Depth, depth_notes, depth_of, read_image, to_rgb, upright, window_of
from fedskew_nb.data.images import as_images
from fedskew_nb.data.check import as_batch
from fedskew_nb.tools.cli import main

def values(low, high, n=32): return np.linspace(low, high, n*n).round().astype(np.uint16).reshape(n, n)

def shuffled(a, k): return np.random.default_rng(k).permutation(a.ravel()).reshape(a.shape)

def tree(root, draw, ext='png', n=3, sites='ab'):
    "`n` pictures of each class of each site; draw(number) gives one."
    for k, (d, c, i) in enumerate((d, c, i) for d in sites for c in 'xy' for i in range(n)):
        path = root/d/c/f'{i}.{ext}'
        path.parent.mkdir(parents=True, exist_ok=True)
        draw(k).save(path)
    return root

def scans(root, low=0, high=4095, **how):
    return tree(root, lambda k: Image.fromarray(shuffled(values(low, high), k)), **how)

def colours(k): return Image.fromarray(np.random.default_rng(k).integers(0, 256, (32, 32, 3), np.uint8))

def loaded(root, **how):
    "The suite and what was said."
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        suite = load_folder(root, size=32, cache=False, **how)
    return suite, ' '.join(str(w.message) for w in said)

def levels(suite): return len(suite.tests['a'].x.unique())

# ---- levels

@pytest.mark.parametrize('ext', ['png', 'tif', 'pgm'])
@pytest.mark.parametrize('low, high', [(0, 4095), (900, 1700), (0, 1023), (30000, 33000)])
def test_a_range_that_is_hardly_used_is_refused(tmp_path, ext, low, high):
    scans(tmp_path, low, high, ext=ext)
    says = f'a: bytes keep .* say white=\\({low}, {high}\\)'
    with pytest.raises(ValueError, match=says): load_folder(tmp_path)
    suite, said = loaded(tmp_path, white=(low, high))
    assert levels(suite) > 200 and not said and suite.white == (low, high)

def test_an_eighth_of_the_range_is_the_border():
    def notes(high): return depth_notes('a', [Depth(0., high, 5000, 30, 65535.)], None)
    assert len(notes(8192.)) == 1
    with pytest.raises(ValueError, match='bytes keep 30 levels'): notes(8191.)

def test_what_may_be_said_instead(tmp_path):
    scans(tmp_path)
    dark, said = loaded(tmp_path, white=65535)
    assert levels(dark) == 17 and 'bytes keep 17 levels' in said and 'bytes keep 17 levels' in dark.source
    assert levels(loaded(tmp_path, white=4095)[0]) > 200

@pytest.mark.parametrize('high, told', [(65535, ''), (40000, ''), (16383, 'bytes keep 65 levels')])
def test_a_range_that_is_used_is_read_as_before(tmp_path, high, told):
    suite, said = loaded(scans(tmp_path, 0, high))
    want = (shuffled(values(0, high), 0).astype(np.int64)*255/65535).round()
    every = torch.cat([d.x[:,0] for c in suite.clients for d in (c.train, c.val, c.test)])
    assert told in said and bool(told) == bool(said)
    assert any((x.numpy() == want).all() for x in every)

def test_bytes_know_no_white(tmp_path):
    tree(tmp_path, colours)
    plain, white = loaded(tmp_path)[0], loaded(tmp_path, white=99)[0]
    assert plain.fingerprint() == white.fingerprint()

def test_dark_bytes_in_a_file_of_16_bits_are_complete(tmp_path):
    "Sixteen levels before, sixteen after."
    grey = lambda k: Image.fromarray(shuffled(values(0, 15)*257, k))
    assert loaded(tree(tmp_path, grey))[1] == ''

def test_one_site_of_two_is_named(tmp_path):
    scans(tmp_path, 0, 65535, sites='a')
    scans(tmp_path, 0, 4095, sites='b')
    with pytest.raises(ValueError, match='^b: bytes keep 17'): load_folder(tmp_path)

def test_colours_of_16_bits(tmp_path):
    "Pillow reads their upper eight bits, whatever is white."
    import struct, zlib
    raw = b''.join(b'\0'+v.astype('>u2').tobytes() for v in np.repeat(values(0, 4095)[:,:,None], 3, 2))
    def chunk(kind, data):
        return struct.pack('>I', len(data))+kind+data+struct.pack('>I', zlib.crc32(kind+data))
    head = chunk(b'IHDR', struct.pack('>IIBBBBB', 32, 32, 16, 2, 0, 0, 0))
    png = b'\x89PNG\r\n\x1a\n'+head+chunk(b'IDAT', zlib.compress(raw))+chunk(b'IEND', b'')
    (tmp_path/'a.png').write_bytes(png)
    depth = read_image(tmp_path/'a.png', 32)[1].info['depth']
    assert depth.colour and depth.left == 16
    with pytest.raises(ValueError, match='store 8 bits'): depth_notes('a', [depth], None)
    with pytest.raises(ValueError, match='leave white out'): read_image(tmp_path/'a.png', 32, 4095)

@pytest.mark.parametrize('door', ['rows', 'pictures', 'arrays'])
def test_other_doors_ask_the_same(door):
    x = np.stack([shuffled(values(0, 4095, 16), k) for k in range(16)])
    y = np.arange(16)//2%2
    def make(**how):
        pictures = [(Image.fromarray(a), int(c)) for a, c in zip(x, y)]
        if door == 'rows': return Suite.from_rows([(im, 'xy'[c], 'a') for im, c in pictures], **how)
        rest, test = pictures[8:], pictures[:8]
        if door == 'arrays': rest, test = (x[8:], y[8:]), (x[:8], y[:8])
        return Suite.from_datasets({'a': (rest, test)}, classes=['x', 'y'], **how)
    with pytest.raises(ValueError, match='bytes keep 17 levels'): make()
    assert levels(make(white=4095)) > 200

def test_floats_are_told(recwarn):
    x = torch.from_numpy(np.stack([shuffled(values(0, 4095, 16), k) for k in range(8)])/65535).float()
    suite = Suite.from_datasets({'a': ((x[:4], [0, 1]*2), (x[4:], [0, 1]*2))})
    assert 'bytes keep 17 levels' in suite.source and len(recwarn)

@given(st.integers(0, 2000), st.integers(1, 60000))
@settings(max_examples=20, deadline=None)
def test_a_window_is_linear_and_clips(black, wide):
    a = np.arange(0, 65536, 97, dtype=np.uint16)[None]
    b = np.asarray(to_rgb(Image.fromarray(a), (black, black+wide)))[0,:,0].astype(int)
    want = ((a[0].astype(float)-black)*255/wide).round().clip(0, 255)
    assert (b == want).all() and (np.diff(b) >= 0).all()
    t = as_images(torch.from_numpy(a.astype(np.int64))[None], white=(black, black+wide))[0,0,0]
    assert (t.numpy() == b).mean() > .98

NO_WHITE = [0, -1, 'a', '1,2,3', (5, 1), (1, 1), float('nan'), True, {}, (None, 3), ['a', 'b']]

@pytest.mark.parametrize('white', NO_WHITE)
def test_a_white_that_is_none(white):
    with pytest.raises(ValueError, match='give the value that is white'): window_of(white)

def test_how_white_is_written():
    assert [window_of(w) for w in (4095, '4095', (0, 4095), [0, 4095.], '0,4095')] == [(0., 4095.)]*5
    assert window_of(None) is window_of(()) is window_of([]) is None

def test_few_different_values_are_no_loss():
    flat = np.zeros(100, np.uint16)
    assert depth_notes('a', [depth_of(flat, (0, 65535), 65535), None], None) == []

# ---- TIFF in all its ways, masks, giants

def tiff(a, colours=1, sign=0, more=()):
    "A file of one strip; colours: 0 counts from white, 1 from black, 2 is RGB; more: what further bands are."
    a = np.atleast_3d(a)
    raw, (h, w, c) = a.astype(a.dtype.newbyteorder('<')).tobytes(), a.shape
    tags = {256: [w], 257: [h], 258: [8*a.dtype.itemsize]*c, 259: [1], 262: [colours], 273: [0], 277: [c],
            278: [h], 279: [len(raw)], 338: more, 339: [2]*c if sign else []}
    tags = {k: struct.pack(f'<{len(v)}H', *v) for k, v in tags.items() if len(v)}
    at, far, rows = 14+12*len(tags), b'', b''
    long = sum(len(v) for v in tags.values() if len(v) > 4)
    tags[273] = struct.pack('<H', at+long)
    for k, v in tags.items():
        rows += struct.pack('<HHI', k, 3, len(v)//2)
        rows += v.ljust(4, b'\0') if len(v) <= 4 else struct.pack('<I', at+len(far))
        far += v if len(v) > 4 else b''
    return b'II*\0'+struct.pack('<IH', 8, len(tags))+rows+bytes(4)+far+raw

def read(raw, white=None): return np.asarray(upright(raw, 'x.tif', white))[..., 0]

@pytest.mark.parametrize('kind', [np.uint8, np.uint16])
@pytest.mark.parametrize('white', [None, 'top', 'half'])
def test_what_counts_from_white_is_turned_round(kind, white):
    top = np.iinfo(kind).max
    a = np.linspace(0, top, 32*32).astype(kind).reshape(32, 32)
    said = dict(top=float(top), half=top/2).get(white)
    if kind is np.uint8 and said == top/2: return      # bytes know no white
    assert np.abs(read(tiff(a, 0), said).astype(int)+read(tiff(a, 1), said)-255).max() <= 1

@given(st.integers(-128, 127), st.integers(-128, 127))
@settings(max_examples=20, deadline=None)
def test_bytes_with_a_sign(low, high):
    a = np.linspace(low, high, 64).astype(np.int8).reshape(8, 8)
    if a.min() >= 0: assert (read(tiff(a, sign=1)) == a).all()
    else:
        with pytest.raises(ValueError, match='signed 8-bit pixels without a range'): read(tiff(a, sign=1))
    got = read(tiff(a, sign=1), (-128, 127))
    assert (got == a.astype(int)+128).all()

@pytest.mark.parametrize('bands, more, fine', [
    (3, (), True), (4, [2], True), (4, [1], True), (4, [0], False), (4, (), False), (5, [0, 0], False),
    (5, [2, 0], False), (6, [0]*3, False)])
def test_bands_beside_the_colours(bands, more, fine):
    a = np.random.default_rng(0).integers(100, 200, (16, 16, bands), np.uint8)
    if bands == 4 and fine: a[..., 3] = 255
    if fine: assert (np.asarray(upright(tiff(a, 2, more=more), 'x.tif')) == a[..., :3]).all()
    else:
        says = 'it has . bands|it is a TIFF whose bands'
        with pytest.raises(ValueError, match=says): read(tiff(a, 2, more=more))

def test_grey_beside_another_band():
    a = np.full((16, 16, 2), 255, np.uint8)
    assert (read(tiff(a, 1, more=[2])) == 255).all()
    with pytest.raises(ValueError, match='it has 2 bands, 1 beside its colours'): read(tiff(a, 1, more=[0]))

def test_an_alpha_channel_is_no_level(tmp_path):
    "Twelve bits of grey beside an opaque channel of sixteen."
    import zlib
    a = np.stack([values(0, 4095), np.full((32, 32), 65535)], 2)
    raw = b''.join(b'\0'+row.astype('>u2').tobytes() for row in a)
    def chunk(kind, data):
        return struct.pack('>I', len(data))+kind+data+struct.pack('>I', zlib.crc32(kind+data))
    head = chunk(b'IHDR', struct.pack('>IIBBBBB', 32, 32, 16, 4, 0, 0, 0))
    png = b'\x89PNG\r\n\x1a\n'+head+chunk(b'IDAT', zlib.compress(raw))+chunk(b'IEND', b'')
    for name in ('a/x/0.png', 'a/x/1.png', 'a/x/2.png', 'a/y/0.png', 'a/y/1.png', 'a/y/2.png'):
        (tmp_path/name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path/name).write_bytes(png+name.encode())
    depth = upright(png, 'a.png').info['depth']
    assert depth.high < 4096
    with pytest.raises(ValueError) as e: depth_notes('a', [depth], None)
    assert 'store 8 bits, or 16 of grey alone' in str(e.value) and '4095' not in str(e.value)[40:]
    grey = Image.fromarray(values(0, 4095))     # the mend, followed
    assert len(np.unique(np.asarray(to_rgb(grey, 4095)))) > 200

def masks(top): return lambda k: Image.fromarray((shuffled(values(0, 1), k)*top).astype(np.uint8))

def test_masks_of_0_and_1_are_refused(tmp_path):
    said = 'a: bytes are only 0 and 1, and 1 is black: if it is white, say white=1'
    with pytest.raises(ValueError, match=said):
        load_folder(tree(tmp_path/'s', masks(1)))
    suite, said = loaded(tmp_path/'s', white=255)      # if somebody wants it so
    assert 'bytes are only 0 and 1' in said and suite.tests['a'].x.max() == 1
    assert loaded(tree(tmp_path/'t', masks(255)))[1] == ''
    assert loaded(tree(tmp_path/'u', masks(2)))[1] == ''

def test_one_dark_picture_is_nobodys_mask(tmp_path):
    tree(tmp_path, colours)
    masks(1)(0).save(tmp_path/'a'/'x'/'0.png')
    assert loaded(tmp_path)[1] == ''

@pytest.mark.parametrize('size', [(15000, 13000), (20000, 13000)])
def test_a_giant_is_told_how_large_it_may_be(size):
    out = io.BytesIO()
    Image.new('1', size).save(out, 'PNG')
    says = f'{size[0]*size[1]//10**6} million pixels; store it smaller, with at most 134 million'
    with pytest.raises(ValueError, match=says): upright(out.getvalue(), 'x.png')

# ---- pages, and kinds that are not read

@pytest.mark.parametrize('ext', ['tif', 'gif', 'webp', 'png'])
def test_further_pages_are_counted(tmp_path, ext):
    tree(tmp_path, colours, ext=ext)
    colours(99).save(tmp_path/'a'/'x'/f'0.{ext}', save_all=True, append_images=[colours(98), colours(97)])
    suite, said = loaded(tmp_path)
    note = f'1 of 12 pictures has further pages, of which the first is used: a/x/0.{ext}'
    for text in (said, suite.source): assert note in text

SCANS = dict.fromkeys(['s.dcm', 's.nii', 's.nii.gz', 's.mha', 's.nrrd', 's.svs', 's.exr'], b'') | {
    'IM0001': bytes(128)+b'DICM', 'volume': b'\x5c\1\0\0', 'headed.img': b'NRRD0004',
    'phone': b'\0\0\0 ftypheic'}

@pytest.mark.parametrize('name', SCANS)
def test_a_kind_that_is_not_read_is_refused_or_counted(tmp_path, name):
    tree(tmp_path, colours)
    (tmp_path/'a'/'x'/name).write_bytes(SCANS[name])
    with pytest.raises(ValueError, match=f'{name} is no readable image'): load_folder(tmp_path)
    assert f'1 unreadable left out, first a/x/{name}' in loaded(tmp_path, bad='skip')[0].source

@pytest.mark.parametrize('name', ['x.npy', 'film.mp4', 'more.zip', 'a.tar.gz', 'slides.pdf'])
def test_files_that_may_hold_pictures_are_named(tmp_path, name):
    tree(tmp_path, colours)
    (tmp_path/'a'/'x'/name).write_bytes(b'mine')
    suite, said = loaded(tmp_path)
    assert f'first a/x/{name}' in said and 'of a kind that is not read' in suite.source

def test_notes_beside_pictures_are_nobodys_business(tmp_path):
    tree(tmp_path, colours)
    for name in ('README.md', 'labels.csv', 'Thumbs.db'): (tmp_path/'a'/'x'/name).write_text('mine')
    assert loaded(tmp_path)[1] == ''

@pytest.mark.parametrize('ext', ['pnm', 'pbm'])
def test_every_kind_that_can_be_read_is_found(tmp_path, ext):
    draw = (lambda k: colours(k).convert('1')) if ext == 'pbm' else colours
    assert loaded(tree(tmp_path, draw, ext=ext))[0].source == f'folder {tmp_path.name}, 12 images'

# ---- the same white afterwards

def test_a_model_is_asked_as_it_was_trained(tmp_path):
    suite = loaded(scans(tmp_path), white=4095)[0]
    x = as_batch([tmp_path/'a'/'x'/'0.png'], suite)
    assert any((x[0] == y).all() for d in suite._datas() for y in d.x)
    fed = Federation(FedAvg, small_conv(2, size=32, width=4, seed=0), suite, rounds=1, local_steps=1)
    assert fed.predict(tmp_path/'a'/'x'/'0.png').shape == (1, 2)

def test_a_dark_picture_is_said_when_asked(tmp_path, recwarn):
    tree(tmp_path/'s', colours)
    scans(tmp_path/'t')
    as_batch([tmp_path/'t'/'a'/'x'/'0.png'], loaded(tmp_path/'s')[0])
    assert 'bytes keep 17 levels' in str(recwarn.pop().message)

def test_a_recipe_and_a_command_have_it(tmp_path, capsys, unsaved):
    scans(tmp_path/'s')
    recipe = folder(tmp_path/'s', 32, white='4095')
    assert "white='4095'" in recipe.text and recipe(0).white == (0, 4095)
    how = '--methods FedAvg --seeds 1 --set local_steps=1 --rounds 1 --no-control'.split()
    how += ['--model', 'small_conv(width=4)']
    call = 'compare', '--data', str(tmp_path/'s'), *how, '--out', str(tmp_path/'o')
    assert main(call) == 2 and '--white' in capsys.readouterr().err
    assert main([*call, '--white', '4095']) == 0
