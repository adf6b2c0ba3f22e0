"Files of strangers: pipes, nests that hold themselves, archives without ratio, long names, cards, half keys."
import contextlib, io, json, os, pickle, signal, tarfile, zipfile
from pathlib import Path
import numpy as np
import pytest, torch
from hypothesis import given, settings, strategies as st
from safetensors.torch import save_file
from fedskew_nb.core.files import read_bytes, sweep, whole_file
from fedskew_nb.data.arrays import mapped_array
from fedskew_nb.data.cache import load_mapped
from fedskew_nb.core.pictures import looks_like_image
from fedskew_nb.deploy.flower import run_name
from fedskew_nb.downloads import readers
from fedskew_nb.downloads.archives import check_path, entries_of, is_image
from fedskew_nb.engine.checkpoint import load_nest
from fedskew_nb.nets.models import small_conv
from fedskew_nb.nets.remember import read_maps
from fedskew_nb.nets.weights import weights_in
from fedskew_nb.run.recipes import read_model
from fedskew_nb.tools.after import card_inside, rebuilt

unix = pytest.mark.skipif(not hasattr(os, 'mkfifo'), reason='there are no pipes here')

@contextlib.contextmanager
def within(seconds=20):
    "An error where something waits or works for ever: a test that hangs fails."
    def late(*_): raise TimeoutError('it hangs')
    was = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try: yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, was)

def refused(do, kinds=ValueError):
    with pytest.raises(kinds) as e, within(): do()
    assert not isinstance(e.value, TimeoutError)
    return str(e.value)

# --- pipes

READERS = dict(card=card_inside, rebuilt=rebuilt, array=lambda p: mapped_array(p, 3), maps=read_maps,
               cache=load_mapped, checkpoint=load_nest, weights=weights_in,
               code=lambda p: read_model(f'{p}:net', 3), bytes=read_bytes, idx=readers.read_idx,
               usps=lambda p: readers.read_usps('train', p),
               mat=lambda p: readers.read_mat('train', p), mnistm=lambda p: readers.read_mnistm('train', p),
               ganin=lambda p: readers.read_ganin('train', p), image=readers.upright_file,
               dsprites=readers.read_dsprites, archive=entries_of, run=lambda p: run_name(p.parent))

@unix
@pytest.mark.parametrize('name', READERS)
def test_no_reader_opens_a_pipe(tmp_path, name):
    path = tmp_path/{'code': 'mine.py', 'run': 'run', 'card': 'm.safetensors'}.get(name, 'x')
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR | os.O_NONBLOCK)     # so that one who opens it waits in `read`, not in C
    try: says = refused(lambda: READERS[name](path), (ValueError, OSError))
    finally: os.close(writer)
    assert says

@pytest.mark.skipif(not os.path.exists('/dev/zero'), reason='there are no devices here')
def test_no_reader_opens_a_device():
    for name in ('card', 'array', 'idx', 'weights', 'bytes'):
        assert refused(lambda: READERS[name](Path('/dev/zero')), (ValueError, OSError))     # noqa: B023

# --- pickles

def nest(n): return b')'+b'2\x86'*n          # a tuple of itself and itself, n times
def read(raw): return readers.read_pickle(io.BytesIO(b'\x80\x02'+raw+b'.'), 'x.pkl')

BOMBS = dict(text=(b'c_codecs\nencode\n', b'\x85R'), kind=(b'cnumpy\ndtype\n', b'\x85R'),
             kind_of=(b'cnumpy\nscalar\ncnumpy\ndtype\n', b'\x85RC\x08'+b'\0'*8+b'\x86R'),
             key=(b'}', b'Ns'), keys=(b'}(', b'Nu'), table=(b'(', b'Nd'),
             set=(b'\x8f(', b'\x90'), frozen=(b'(', b'\x91'),
             deep_key=(b'}(U\x01aN', b'NU\x01bNu'))

@settings(max_examples=20, deadline=None)
@given(name=st.sampled_from(list(BOMBS)), depth=st.integers(30, 200))
def test_a_nest_that_holds_itself_costs_nothing(name, depth):
    before, after = BOMBS[name]
    assert 'no readable pickle of numbers' in refused(lambda: read(before+nest(depth)+after))

def test_a_nest_in_place_of_an_array_is_refused(tmp_path):
    told = []
    for _ in range(60): told = [told, told]
    for o in (told, (told, told), [1, [2]], 'text', None):
        (tmp_path/'m.pkl').write_bytes(pickle.dumps(dict(train=o, train_label=o)))
        assert 'where an array should' in refused(lambda: readers.read_mnistm('train', tmp_path/'m.pkl'))

FLAT = st.one_of(st.integers(), st.text(), st.binary(), st.floats(allow_nan=False), st.booleans(), st.none())
KEY = st.one_of(st.integers(), st.text(), st.binary())

def nest_of(s): return st.lists(s, max_size=4) | st.tuples(s, s) | st.dictionaries(KEY, s, max_size=4)

NESTS = st.recursive(FLAT, nest_of)

@settings(max_examples=40, deadline=None)
@given(o=NESTS, protocol=st.integers(3, 5))
def test_what_is_data_is_read_as_ever(o, protocol):
    assert readers.read_pickle(io.BytesIO(pickle.dumps(o, protocol)), 'x') == o

@pytest.mark.parametrize('protocol', range(2, 6))
def test_arrays_are_read_as_ever(protocol):
    o = dict(a=np.arange(6, dtype=np.uint8).reshape(2, 3),
             b=[np.float64(3.5), np.array(['x', 'yy'])], c=np.int64(7))
    got = readers.read_pickle(io.BytesIO(pickle.dumps(o, protocol)), 'x')
    assert (got['a'] == o['a']).all() and float(got['b'][0]) == 3.5 and list(got['b'][1]) == ['x', 'yy']

# --- archives

def tar(path, sizes):
    with tarfile.open(path, 'w:xz' if path.suffix == '.xz' else 'w:gz') as t:
        for k, n in enumerate(sizes):
            info = tarfile.TarInfo(f'a/dog/{k}.jpg')
            info.size = n
            t.addfile(info, io.BytesIO(bytes(n)))

def zipped(path, sizes):
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as z:
        for k, n in enumerate(sizes): z.writestr(f'a/dog/{k}.jpg', bytes(n))

MAKE = {'.zip': zipped, '.gz': tar, '.xz': tar}

@settings(max_examples=8, deadline=None)
@given(suffix=st.sampled_from(list(MAKE)), many=st.integers(6, 24), size=st.integers(1 << 16, 1 << 19))
def test_what_unpacks_without_ratio_is_refused_before_the_first_entry(tmp_path_factory, suffix, many, size):
    path = tmp_path_factory.mktemp('a')/f'x{suffix}'
    MAKE[suffix](path, [size]*many)
    packed = path.stat().st_size
    if many*size <= 200*packed + (1 << 20): assert len(list(entries_of(path))) == many
    else: assert 'as no data set does' in refused(lambda: next(iter(entries_of(path))))

@pytest.mark.parametrize('suffix', MAKE)
def test_an_honest_archive_is_read(tmp_path, suffix):
    path = tmp_path/f'x{suffix}'
    MAKE[suffix](path, [1000]*50)
    assert len(list(entries_of(path))) == 50

# --- long names

@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 251), c=st.sampled_from('néж猫'))
def test_a_name_that_a_disk_takes_can_be_written(tmp_path_factory, n, c):
    name = (c*n).encode()[:251].decode(errors='ignore')+'.jpg'
    path = tmp_path_factory.mktemp('n')/name
    with whole_file(path) as part:
        assert len(os.fsencode(part.name)) <= 255
        part.write_bytes(b'x')
    assert path.read_bytes() == b'x' and len(list(path.parent.iterdir())) == 1

def test_two_long_names_do_not_share_what_is_half_written(tmp_path):
    long = 'n'*240
    with whole_file(tmp_path/f'{long}a') as a, whole_file(tmp_path/f'{long}b') as b: assert a != b

def test_a_long_half_written_file_of_the_dead_is_swept(tmp_path):
    with whole_file(tmp_path/('n'*250)) as part: left = part.name.replace(str(os.getpid()), '999999')
    (tmp_path/left).write_bytes(b'x')
    sweep(tmp_path)
    assert not (tmp_path/left).exists()

def test_names_that_no_disk_takes(tmp_path):
    for name in ('n'*256, 'é'*128, 'a/'+'ж'*130+'/b.jpg'):
        assert 'over 255' in refused(lambda: check_path('x.zip', name))     # noqa: B023
    check_path('x.zip', 'a/'+'n'*255)
    with pytest.raises(OSError, match='n'*300), whole_file(tmp_path/('n'*300)): pass
    assert not [*tmp_path.iterdir()]

# --- cards

GOOD = dict(classes=['a', 'b', 'c'], pixels=16, model='small_conv(width=2)', method='FedAvg', seed=0,
            mean=[.5]*3, std=[.25]*3)

def written(path, facts, change=None):
    "Weights with a card."
    state = {n: v.clone() for n, v in small_conv(3, size=16, width=2).state_dict().items()}
    if change: change(state)
    save_file(state, path, dict(card=json.dumps(facts)))
    return path

def test_a_good_card_is_taken(tmp_path):
    model, facts = rebuilt(written(tmp_path/'m.safetensors', GOOD))
    assert facts == GOOD and model(torch.zeros(1, 3, 16, 16, dtype=torch.uint8)).shape == (1, 3)

CARDS = {
    'std': st.sampled_from(([0., .1, .1], [-1., 1., 1.], [.5], [.5]*4)),
    'mean': st.sampled_from(([.5], [.5]*4, [])),
    'classes': st.sampled_from((['a', 'a', 'c'], [], ['a', '', 'c'], ['a', 'b'], ['a', 'b', 3])),
    'pixels': st.sampled_from((0, -3, 10**6, 1.5, 'x', 32)), 'seed': st.sampled_from((2**70, -2**64, .5)),
    'method': st.sampled_from(('FedAvgg', '')),
    'model': st.sampled_from(('nope', 'small_conv(width=2', 'small_conv(width=10**6)'))}

@settings(max_examples=40, deadline=None)
@given(data=st.data(), key=st.sampled_from(list(CARDS)))
def test_a_card_is_held_to_what_a_suite_is(tmp_path_factory, data, key):
    path = written(tmp_path_factory.mktemp('c')/'m.safetensors', GOOD | {key: data.draw(CARDS[key])})
    refused(lambda: rebuilt(path))

@pytest.mark.parametrize('facts', [[1], None, 'x', 3, {}, [GOOD]])
def test_a_card_that_is_no_table(tmp_path, facts):
    says = refused(lambda: rebuilt(written(tmp_path/'m.safetensors', facts)))
    assert ('has no card inside (it has no classes)' if facts == {} else ', not a table)') in says

def put(name, v): return lambda state: state.update({name: v(state[name])})

@pytest.mark.parametrize(('change', 'says'), [
    (put('head.weight', lambda v: v*float('nan')), 'head.weight is NaN or infinite'),
    (put('body.block1.bn.running_var', lambda v: v+float('inf')), 'running_var is NaN or infinite'),
    (put('head.weight', lambda v: v.to(torch.int8)), 'another net than its card says'),
    (put('head.weight', lambda v: v[:2]), 'another net than its card says'),
    (lambda state: state.pop('head.bias'), 'another net than its card says')])
def test_weights_that_answer_nothing(tmp_path, change, says):
    assert says in refused(lambda: rebuilt(written(tmp_path/'m.safetensors', GOOD, change)))

# --- halves of keys

def certs(out, **k):
    from fedskew_nb.deploy.keys import certs_command
    with contextlib.redirect_stdout(io.StringIO()): certs_command(str(out), **k)

def folder_of(out):
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob('*') if p.is_file()}

def test_certificates_half_written_are_finished_whichever_file_is_missing(tmp_path):
    pytest.importorskip('cryptography')
    certs(tmp_path, node=['a', 'b'])
    whole = folder_of(tmp_path)
    assert {*whole} == {'ca.crt', 'ca.key', 'server.crt', 'server.key',
                        'nodes/a', 'nodes/a.pub', 'nodes/b', 'nodes/b.pub'}
    (tmp_path/'nodes'/'a.pub').unlink()
    certs(tmp_path, node=['a', 'b'])
    assert folder_of(tmp_path) == whole                     # made again from the private one
    (tmp_path/'nodes'/'a.pub').unlink()
    (tmp_path/'nodes'/'a').write_bytes(whole['nodes/a'][:40])
    assert 'a is no whole key: delete it' in refused(lambda: certs(tmp_path, node=['a']))
    (tmp_path/'nodes'/'a').unlink()
    certs(tmp_path, node=['a'])
    whole = folder_of(tmp_path)
    for lost in ('ca.crt', 'server.key', 'server.crt'):     # it is written last: without it, all begins anew
        kept = {n: v for n, v in whole.items() if n.startswith('nodes')}
        for n in {'ca.crt', lost}: (tmp_path/n).unlink()
        certs(tmp_path)
        assert {*folder_of(tmp_path)} == {*whole} and kept.items() <= folder_of(tmp_path).items()
    for key in ('server.key', 'nodes/a'): assert (tmp_path/key).stat().st_mode & 0o077 == 0

def test_what_nodes_rely_on_is_not_made_again_in_silence(tmp_path):
    pytest.importorskip('cryptography')
    certs(tmp_path)
    ca = (tmp_path/'ca.crt').read_bytes()
    (tmp_path/'server.key').unlink()
    assert 'has lost server.key' in refused(lambda: certs(tmp_path, node=['a']))
    assert (tmp_path/'ca.crt').read_bytes() == ca

def test_a_site_is_not_called_like_a_public_key(tmp_path):
    says = refused(lambda: certs(tmp_path/'c', node=['b', 'a.pub']))
    assert 'a.pub: a site is not called like a public key' in says
    assert not (tmp_path/'c').exists()                      # nothing was made

@pytest.mark.parametrize('name', ['scan.nii.gz', 'SCAN.NII.GZ', 'scan.dcm', 'a.png', 'a', 'notes', 'a.gz'])
def test_an_archive_and_a_folder_agree_on_what_an_image_is(tmp_path, name):
    raw = b'\x89PNG rest' if name == 'a' else b'no image'
    (tmp_path/name).write_bytes(raw)
    with zipfile.ZipFile(tmp_path/'all.zip', 'w') as z: z.writestr(f'in/{name}', raw)
    told = [is_image(entry) for entry in entries_of(tmp_path/'all.zip')]
    assert told == [looks_like_image(tmp_path/name)] == [name not in ('notes', 'a.gz')]
