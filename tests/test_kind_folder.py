"A folder holds what its last call says, and nothing of an earlier one."
import json
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from fedskew_nb import load_folder, prepare
from fedskew_nb.data.arrays import read_part, write_arrays
from fedskew_nb.downloads.archives import digest_of
from fedskew_nb.downloads.layouts import LAYOUTS
from test_prepare import CLASSES, as_folder, as_tar, as_zip, brought, tree
from test_readers import mnist, stored, usps

FILES = tree(LAYOUTS['pacs'], CLASSES['pacs'][:2], 2)

def other(files): return {n.replace('/0.', '/7.'): raw for n, raw in files.items()}

@pytest.mark.parametrize('kind', [as_zip, as_tar, as_folder])
def test_images_of_another_download_are_refused(kind, tmp_path):
    one, two = (kind(tmp_path/n, files) for n, files in (('a', FILES), ('b', other(FILES))))
    prepare('pacs', one, tmp_path/'out')
    said = 'holds pacs from a, and other files are given now: give another --out'
    with pytest.raises(ValueError, match=said): prepare('pacs', two, tmp_path/'out')
    assert brought(tmp_path/'out') == FILES and len(load_folder(tmp_path/'out', 8, cache=False).domains) == 4

def other_digits(folder):
    "MNIST's names and shapes with other bytes, as Fashion-MNIST has them."
    mnist(folder, packed=False)
    for p in folder.iterdir():
        a = np.frombuffer(p.read_bytes(), np.uint8).copy()
        a[16:] = 9-a[16:]%10 if 'labels' in p.name else 255-a[16:]
        p.write_bytes(a.tobytes())
    return folder

def test_arrays_of_another_download_are_refused(tmp_path):
    told = mnist(tmp_path/'a', packed=False)
    prepare('digits', tmp_path/'a', tmp_path/'out')
    with pytest.raises(ValueError, match='holds digits from a, and other files are given'):
        prepare('digits', other_digits(tmp_path/'b'), tmp_path/'out')
    assert np.array_equal(stored(tmp_path/'out', 'mnist', 'train')[1], told['train'][1])

def test_another_data_set_is_refused(tmp_path):
    mnist(tmp_path/'m')
    prepare('pacs', as_zip(tmp_path/'a.zip', FILES), tmp_path/'out')
    with pytest.raises(ValueError, match='holds pacs from a.zip: give another --out'):
        prepare('digits', tmp_path/'m', tmp_path/'out')
    prepare('digits', tmp_path/'m', tmp_path/'d')
    for name in ('pacs', 'colored-mnist'):
        with pytest.raises(ValueError, match='holds digits from m: give another'):
            prepare(name, tmp_path/'a.zip', tmp_path/'d')

def test_a_begun_folder_goes_on_with_a_whole_download_in_place_of_a_torn_one(tmp_path):
    raw = as_zip(tmp_path/'a.zip', FILES).read_bytes()
    (tmp_path/'a.zip').write_bytes(raw[:len(raw)//2])
    with pytest.raises(ValueError): prepare('pacs', tmp_path/'a.zip', tmp_path/'out')
    (tmp_path/'a.zip').write_bytes(raw)
    assert prepare('pacs', tmp_path/'a.zip', tmp_path/'out')['whole'] and brought(tmp_path/'out') == FILES

def test_images_that_no_source_has_are_refused(tmp_path):
    source = as_zip(tmp_path/'a.zip', FILES)
    prepare('pacs', source, tmp_path/'out')
    as_folder(tmp_path/'out', {'photo/dog/mine.png': FILES['photo/dog/0.png']})
    with pytest.raises(ValueError, match='1 images that are in no source, first photo/dog/mine.png'):
        prepare('pacs', source, tmp_path/'out')
    as_folder(tmp_path/'hand', {'photo/dog/mine.png': b'x'})
    with pytest.raises(ValueError, match='holds images that prepare did not bring'):
        prepare('pacs', source, tmp_path/'hand')

def test_a_call_that_brought_nothing_claims_no_folder(tmp_path):
    nothing = as_zip(tmp_path/'n.zip', {'x/y.png': b'z'})
    with pytest.raises(ValueError): prepare('pacs', nothing, tmp_path/'out')
    assert prepare('pacs', as_zip(tmp_path/'a.zip', FILES), tmp_path/'out')['whole']

def test_a_folder_of_an_earlier_version_goes_on(tmp_path):
    source = as_zip(tmp_path/'a.zip', FILES)
    prepare('pacs', source, tmp_path/'out')
    facts = json.loads((tmp_path/'out'/'prepared.json').read_text())
    for k in ('whole', 'holds'): del facts[k]
    (tmp_path/'out'/'prepared.json').write_text(json.dumps(facts))
    assert prepare('pacs', source, tmp_path/'out')['whole'] and brought(tmp_path/'out') == FILES

def test_more_sources_may_be_given_and_none_less(tmp_path):
    mnist(tmp_path/'m')
    (tmp_path/'u').mkdir()
    usps(tmp_path/'u')
    prepare('digits', tmp_path/'m', tmp_path/'out')
    assert set(prepare('digits', [tmp_path/'m', tmp_path/'u'], tmp_path/'out')['images']) == {'mnist', 'usps'}
    with pytest.raises(ValueError, match='other files are given'):
        prepare('digits', tmp_path/'u', tmp_path/'out')

@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(FILES)), at=st.integers(0, 10**6),
       what=st.sampled_from(['byte', 'cut', 'gone']))
def test_whatever_happened_to_an_image_the_next_call_brings_it(name, at, what, tmp_path_factory):
    home = tmp_path_factory.mktemp('one')
    source, file = as_zip(home/'a.zip', FILES), home/'out'/name
    prepare('pacs', source, home/'out')
    raw = bytearray(file.read_bytes())
    if what == 'byte': raw[at % len(raw)] ^= 1
    if what == 'cut': raw = raw[:at % len(raw)]
    if what == 'gone': file.unlink()
    else: file.write_bytes(raw)
    prepare('pacs', source, home/'out')
    assert brought(home/'out') == FILES

@pytest.mark.parametrize('file', ['mnist-train-labels.npy', 'mnist-train-images.npy'])
@pytest.mark.parametrize('harm', ['gone', 'byte'])
def test_an_array_that_was_lost_or_changed_is_made_again(file, harm, tmp_path):
    mnist(tmp_path/'m')
    prepare('digits', tmp_path/'m', tmp_path/'out')
    path, raw = tmp_path/'out'/file, (tmp_path/'out'/file).read_bytes()
    if harm == 'gone': path.unlink()
    else: path.write_bytes(raw[:-1]+bytes([raw[-1] ^ 1]))
    prepare('digits', tmp_path/'m', tmp_path/'out')
    assert path.read_bytes() == raw

def test_what_is_whole_is_not_written_again(tmp_path):
    def blocks(): yield ('a', 'train'), np.zeros((3, 4, 4), np.uint8), np.arange(3)
    write_arrays(tmp_path, {('a', 'train'): 3}, (4, 4), blocks())
    write_arrays(tmp_path, {('a', 'train'): 3}, (4, 4), iter(()))       # nothing is asked for
    assert read_part(tmp_path, 'a', 'train', 3).y.tolist() == [0, 1, 2]

def test_a_digest_is_of_what_is_in_there(tmp_path):
    zips = [as_zip(tmp_path/n, FILES) for n in ('a.zip', 'b.zip')]
    assert digest_of(zips[0]) == digest_of(zips[1]) != digest_of(as_zip(tmp_path/'c.zip', other(FILES)))
    folders = [as_folder(tmp_path/n, {'x': raw}) for n, raw in (('p', b'1'), ('q', b'1'), ('r', b'2'))]
    a, b, c = map(digest_of, folders)
    assert a == b != c
    with pytest.raises(ValueError, match='there is no'): digest_of(tmp_path/'none')

@pytest.mark.parametrize('out', ['', ' '])
def test_no_name_is_no_folder(out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match='out is'): prepare('pacs', as_zip(tmp_path/'a.zip', FILES), out)

def test_a_suite_is_shown_without_a_line_for_each_file(tmp_path):
    "A folder may hold ten thousand."
    prepare('pacs', as_zip(tmp_path/'a.zip', FILES), tmp_path/'out')
    suite = load_folder(tmp_path/'out', 8, cache=False)
    assert suite.files and not [f for f, *_ in suite.files if f in repr(suite)]
