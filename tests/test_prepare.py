"Downloads in the layouts that their authors give them: made small, brought over, stopped, and hostile."
import io, json, os, pickle, subprocess, sys, tarfile, zipfile
import numpy as np
import pytest
from PIL import Image
from fedskew_nb import load_folder, prepare
from fedskew_nb.downloads import archives as module
from fedskew_nb.tools.cli import main
from fedskew_nb.downloads.layouts import LAYOUTS, place_in
from fedskew_nb.downloads.prepare import remarks

def picture(*key):
    "A small PNG of its own."
    dots, file = np.random.default_rng(key).integers(0, 255, (9, 9, 3), dtype=np.uint8), io.BytesIO()
    Image.fromarray(dots).save(file, 'png')
    return file.getvalue()

def tree(layout, classes, n=3, suffix='.png'):
    "{<domain>/<class>/<file>: bytes}"
    return {f'{d}/{c}/{k}{suffix}': picture(i, j, k) for i, d in enumerate(layout.counts)
            for j, c in enumerate(classes) for k in range(n)}

def brought(out):
    "{<domain>/<class>/<file>: bytes} of a folder."
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob('*.png')}

def as_zip(path, files, above=''):
    with zipfile.ZipFile(path, 'w') as z:
        for name, raw in files.items(): z.writestr(above+name, raw)
    return path

def as_tar(path, files, above=''):
    with tarfile.open(path, 'w:gz') as t:
        here = tarfile.TarInfo('.')              # as `tar -C FOLDER .` begins
        here.type = tarfile.DIRTYPE
        t.addfile(here)
        for name, raw in files.items():
            info = tarfile.TarInfo(above+name)
            info.size = len(raw)
            t.addfile(info, io.BytesIO(raw))
    return path

def as_folder(path, files, above=''):
    for name, raw in files.items():
        file = path/(above+name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(raw)
    return path

FOLDERS = [n for n, layout in LAYOUTS.items() if not layout.inside]
CLASSES = {n: layout.classes or ('Alarm_Clock', 'Bike', 'The Eiffel Tower') for n, layout in LAYOUTS.items()}

@pytest.mark.parametrize('name, kind, above', [
    *((name, as_zip, '') for name in FOLDERS), ('pacs', as_tar, 'some/wrapping/'), ('pacs', as_folder, 'x/')])
def test_every_layout_from_every_kind_of_source(name, kind, above, tmp_path):
    layout, classes = LAYOUTS[name], CLASSES[name]
    files = tree(layout, classes)
    junk = {f'{d}/{classes[0]}/._0.png': b'x' for d in layout.counts}
    junk |= {'__MACOSX/'+n: b'x' for n in files}
    junk |= {'read me.txt': b'x', 'other_train.txt': b'x'}
    source = kind(tmp_path/'download', files | junk, above)
    facts = prepare(name, source, tmp_path/'out')
    assert brought(tmp_path/'out') == files
    assert facts['images'] == dict.fromkeys(layout.counts, 3*len(classes))
    suite = load_folder(tmp_path/'out', size=16)
    assert suite.domains == sorted(layout.counts) and suite.classes == sorted(classes)

def test_an_archive_for_each_domain(tmp_path):
    layout = LAYOUTS['domainnet']
    files = tree(layout, ('ant', 'zebra'))
    zips = [as_zip(tmp_path/f'{d}.zip', {n: raw for n, raw in files.items() if n.startswith(f'{d}/')})
            for d in layout.counts]
    with pytest.raises(ValueError, match='no image of sketch'):
        prepare('domainnet', zips[:-1], tmp_path/'out')
    assert prepare('domainnet', zips, tmp_path/'out')['images']['sketch'] == 6

def test_a_call_that_was_stopped_goes_on(tmp_path, monkeypatch):
    files = tree(LAYOUTS['pacs'], CLASSES['pacs'])
    source, written, copy = as_zip(tmp_path/'p.zip', files), [], module.shutil.copyfileobj
    def stops(f, g):
        copy(f, g)
        written.append(1)
        if len(written) == 20: raise KeyboardInterrupt
    monkeypatch.setattr(module.shutil, 'copyfileobj', stops)
    with pytest.raises(KeyboardInterrupt): prepare('pacs', source, tmp_path/'out')
    assert len(list((tmp_path/'out').rglob('*.png'))) == 19 and not list((tmp_path/'out').rglob('.*.part'))
    prepare('pacs', source, tmp_path/'out')
    assert len(written) == 20 + len(files) - 19
    assert brought(tmp_path/'out') == files

def test_what_a_killed_call_left_is_swept(tmp_path):
    files = tree(LAYOUTS['pacs'], CLASSES['pacs'], 1)
    gone = subprocess.Popen([sys.executable, '-c', ''])
    gone.wait()
    source, folder = as_zip(tmp_path/'p.zip', files), tmp_path/'out'/'photo'/'dog'
    prepare('pacs', source, tmp_path/'out')
    pids = gone.pid, os.getpid(), 10**30       # the last is no number of a process
    dead, alive, odd = (folder/f'.0.png.{pid}-1.part' for pid in pids)
    for part in (dead, alive, odd): part.write_bytes(b'x')
    prepare('pacs', source, tmp_path/'out')
    assert not dead.exists() and not odd.exists() and alive.exists()

def test_a_parquet_file_is_called_one(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'pyarrow', None)
    (tmp_path/'train.parquet').write_bytes(b'PAR1'+bytes(99))
    with pytest.raises(ValueError, match='is a parquet file: run pip'):
        prepare('pacs', tmp_path/'train.parquet', tmp_path/'out')
    assert not list((tmp_path/'out').iterdir())

def test_a_parquet_file_of_hugging_face_is_prepared(tmp_path):
    "One image of each domain and class: the label a number, the domain a text, bytes as they were stored."
    pa = pytest.importorskip('pyarrow', reason='pyarrow is not installed, and no parquet can be written')
    parquet = pytest.importorskip('pyarrow.parquet')
    pacs, rows = LAYOUTS['pacs'], []
    for d in pacs.counts:
        for k, c in enumerate(pacs.classes):
            Image.new('RGB', (8, 8), (9*k, len(d), 7)).save(buffer := io.BytesIO(), 'PNG')
            rows.append(dict(image=dict(bytes=buffer.getvalue(), path=f'{c}.png'), label=k, domain=d))
    named = dict(info=dict(features=dict(label=dict(names=list(pacs.classes), _type='ClassLabel'))))
    def written(name, rows):
        table = pa.Table.from_pylist(rows)
        parquet.write_table(table.replace_schema_metadata(dict(huggingface=json.dumps(named))), tmp_path/name)
        return tmp_path/name
    prepare('pacs', written('train.parquet', rows), tmp_path/'out', progress=False)
    files = {p.relative_to(tmp_path/'out').parts[:2]: p for p in (tmp_path/'out').rglob('*.png')}
    assert len(files) == len(rows)
    for r in rows: assert files[r['domain'], pacs.classes[r['label']]].read_bytes() == r['image']['bytes']
    with pytest.raises(ValueError, match='has no column domain'):
        prepare('pacs', written('bare.parquet', [dict(image=rows[0]['image'], label=0)]), tmp_path/'no')
    with pytest.raises(ValueError, match='leads out of the folder'):
        prepare('pacs', written('out.parquet', [rows[0] | dict(domain='../..')]), tmp_path/'no')
    for wrong in (-1, len(pacs.classes), None):
        with pytest.raises(ValueError, match=f'row 1 has the label {wrong}, which has no name'):
            prepare('pacs', written('odd.parquet', [rows[0], rows[1] | dict(label=wrong)]), tmp_path/'no')
    whole = (tmp_path/'train.parquet').read_bytes()
    for torn in (whole[:-99], whole[:200]+bytes(800)+whole[1000:]):
        (tmp_path/'torn.parquet').write_bytes(torn)
        with pytest.raises(ValueError, match='is a torn parquet file'):
            prepare('pacs', tmp_path/'torn.parquet', tmp_path/'no')

def link_zip(path):
    info = zipfile.ZipInfo('photo/dog/0.png')
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, 'w') as z: z.writestr(info, '/etc/passwd')
    return path

def link_tar(path):
    with tarfile.open(path, 'w') as t:
        for kind in (tarfile.REGTYPE, tarfile.SYMTYPE):
            info = tarfile.TarInfo('photo/dog/0.png')
            info.type, info.linkname = kind, '/etc/passwd'
            t.addfile(info)
    return path

def bomb(path):
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as z: z.writestr('photo/dog/0.png', bytes(64 << 20))
    return path

HOSTILE = {
    'climbs.zip': lambda p: as_zip(p, {'../../photo/dog/0.png': b'x'}),
    'root.zip': lambda p: as_zip(p, {'/photo/dog/0.png': b'x'}),
    'drive.zip': lambda p: as_zip(p, {'C:/photo/dog/0.png': b'x'}),
    'climbs.tar': lambda p: as_tar(p, {'photo/dog/1.png': b'x', '../photo/dog/0.png': b'x'}),
    'link.zip': link_zip, 'link.tar': link_tar, 'bomb.zip': bomb}

@pytest.mark.parametrize('name', HOSTILE)
def test_hostile_archives_are_refused_before_anything_is_written(name, tmp_path):
    source = HOSTILE[name](tmp_path/name)
    with pytest.raises(ValueError, match='nothing of it was written'): prepare('pacs', source, tmp_path/'out')
    assert not list((tmp_path/'out').rglob('*.png'))

@pytest.mark.skipif(not hasattr(os, 'mkfifo'), reason='there are no pipes here')
def link(p): os.symlink('/nowhere', p)

@pytest.mark.parametrize('odd', [link, os.mkfifo], ids=['link', 'pipe'])
def test_what_is_no_file(odd, tmp_path):
    source = as_folder(tmp_path/'download', tree(LAYOUTS['pacs'], CLASSES['pacs'], 1))
    odd(source/'photo'/'dog'/'odd.png')
    with pytest.raises(ValueError, match='odd.png is a pipe, a device, or a link to nothing: take it away'):
        prepare('pacs', source, tmp_path/'out')

def test_two_files_of_one_place(tmp_path):
    files = tree(LAYOUTS['pacs'], CLASSES['pacs'], 1)
    twice = [as_zip(tmp_path/f'{k}.zip', files) for k in 'ab']
    with pytest.raises(ValueError, match='give one of the sources'): prepare('pacs', twice, tmp_path/'out')

def test_what_is_missing_is_said(tmp_path):
    files = tree(LAYOUTS['pacs'], CLASSES['pacs'])
    files = {n: raw for n, raw in files.items() if not n.startswith('sketch/dog')}
    facts = prepare('pacs', as_zip(tmp_path/'p.zip', files), tmp_path/'out')
    assert 'sketch has no image of dog' in facts['remarks']
    assert json.loads((tmp_path/'out'/'prepared.json').read_text()) == json.loads(json.dumps(facts))
    with pytest.raises(ValueError, match='no image of pacs'):
        prepare('pacs', as_zip(tmp_path/'q.zip', {'cats/a.png': picture(1)}), tmp_path/'other')

# As others print the whole; of ten classes of DomainNet nobody does.
TOTALS = {'pacs': 9991, 'office-caltech-10': 2533, 'office-home': 15588, 'vlcs': 10729, 'domainnet': 586575}

def test_the_counts_are_the_official_ones():
    found = {n: sum(LAYOUTS[n].counts.values()) for n in FOLDERS if all(LAYOUTS[n].counts.values())}
    assert found == TOTALS, 'a set came or went: say here how many images it has'

@pytest.mark.parametrize('name, clients, others', [
    ('nico-animal', 10633, 2443), ('nico-animal-l7', 8311, 4765),
    ('nico-vehicle', 8027, 3626), ('nico-vehicle-l7', 8352, 3301)])
def test_the_counts_of_nico_are_those_of_the_paper(name, clients, others):
    layout = LAYOUTS[name]
    assert sum(filter(None, layout.counts.values())) == clients and layout.total == clients+others

@pytest.mark.parametrize('path', ['photo/0.png', 'dog/photo/0.png', 'photo/dog/more/0.png', '0.png'])
def test_what_lies_elsewhere_is_no_part(path): assert place_in(LAYOUTS['pacs'], path) is None

def test_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    office = 'office-caltech-10'
    as_zip(tmp_path/'p.zip', tree(LAYOUTS[office], CLASSES[office], 2))
    assert not main(['prepare', 'office-caltech-10', '--from', 'p.zip'])
    said = capsys.readouterr().out
    assert '80 images in data/office-caltech-10' in said and 'fedskew diagnose --data' in said
    assert not main(['prepare']) and 'pacs' in capsys.readouterr().out
    assert main(['prepare', 'pacs']) and '--from' in capsys.readouterr().err

def cut_tar(path):
    as_tar(path, tree(LAYOUTS['pacs'], CLASSES['pacs']))
    path.write_bytes(path.read_bytes()[:-2000])

def changed_zip(path):
    raw = bytearray(as_zip(path, tree(LAYOUTS['pacs'], CLASSES['pacs'])).read_bytes())
    raw[200] ^= 255                      # inside the first image: its checksum no longer fits
    path.write_bytes(raw)

@pytest.mark.parametrize('make', [cut_tar, changed_zip])
def test_torn_archives_are_named(make, tmp_path):
    source = tmp_path/'download'
    make(source)
    with pytest.raises(ValueError, match='download is torn'): prepare('pacs', source, tmp_path/'out')
    assert not list((tmp_path/'out').rglob('.*.part'))

def nico_files(classes, contexts, n=2):
    "{Animal/<class>/<context>/<file>: bytes}, the last class with one context less."
    of = {c: contexts-(c == classes[-1]) for c in classes}
    return {f'NICO/Animal/{c}/{c} {chr(97+k)}/{i}. img-{i}-png': picture(j, k, i)
            for j, c in enumerate(classes) for k in range(of[c]) for i in range(n)}

def context_of(raw, files):
    "The letter of the context from which these bytes came."
    return next(p for p, r in files.items() if r == raw).split('/')[3][-1]

@pytest.mark.parametrize('name, unseen, last', [
    ('nico-animal', (7, 8, 9), 'abcdefghi'), ('nico-animal-l7', (0, 1, 2), '-abcdefghi')])
def test_nico(name, unseen, last, tmp_path):
    classes = LAYOUTS[name].classes
    files = nico_files(classes, 10)
    junk = {'NICO/Animal/bear/bear a/notes.txt': b'x', 'NICO/Animal/bear/bear a/odd': b'x',
            'NICO/Vehicle/car/on road/1.png': picture(99)}
    facts = prepare(name, as_zip(tmp_path/'n.zip', files | junk), tmp_path/'out')
    assert sum(facts['images'].values()) == len(files)
    out = tmp_path/'out'
    for c, letters in ((classes[0], 'abcdefghij'), (classes[-1], last)):
        for k, letter in enumerate(letters):
            there = {context_of(p.read_bytes(), files) for p in (out/f'context-{k}'/c).glob('*')}
            assert there == ({letter} if letter != '-' else set())
    suite = load_folder(out, 16)
    assert len(suite.clients) == 7 and set(suite.unseen) == {f'context-{k}' for k in unseen}
    n = sum(len(c.train)+len(c.val) for c in suite.clients)+sum(map(len, suite.tests.values()))
    assert n == 7*20 and sum(map(len, suite.unseen.values())) == 3*20-2

def test_nico_with_too_few_contexts(tmp_path):
    files = nico_files(LAYOUTS['nico-animal'].classes, 8, 1)
    with pytest.raises(ValueError, match=r'sheep has 7 contexts \(sheep a, .*: 7 are for clients'):
        prepare('nico-animal', as_zip(tmp_path/'n.zip', files), tmp_path/'out')
    with pytest.raises(ValueError, match=r'it should hold Animal/<class>/<context>/<image>'):
        prepare('nico-animal', as_zip(tmp_path/'m.zip', {'a/b.png': b'x'}), tmp_path/'out')

def pacs_lists(files):
    "The lists of PACS, whose labels begin at 1."
    lists, classes = {}, CLASSES['pacs']
    for domain in LAYOUTS['pacs'].counts:
        of = [f'{p} {classes.index(p.split("/")[1])+1}' for p in files if p.startswith(domain+'/')]
        parts = dict(train=of[::2], crossval=of[1::2], test=of)
        lists |= {f'{domain}_{part}_kfold.txt': '\n'.join(lines).encode() for part, lines in parts.items()}
    return lists

def pixels(suite, part, domain):
    "The bytes of the images of a part, sorted."
    data = [getattr(c, part) for c in suite.clients if c.domain == domain]
    return sorted(x.numpy().tobytes() for d in data for x in d.x)

def read_small(files, paths):
    "Images as `load_folder` makes them."
    def small(raw): return np.asarray(Image.open(io.BytesIO(raw)).resize((16, 16), Image.Resampling.BILINEAR))
    return sorted(small(files[p]).transpose(2, 0, 1).tobytes() for p in paths)

@pytest.mark.parametrize('first', [True, False], ids=['lists first', 'lists last'])
def test_pacs_lists_are_kept(first, tmp_path):
    files = tree(LAYOUTS['pacs'], CLASSES['pacs'], 4)
    lists = pacs_lists(files)
    source = as_zip(tmp_path/'p.zip', lists | files if first else files | lists, 'PACS/kfold/')
    assert prepare('pacs', source, tmp_path/'out')['parts'] == dict(train=56, val=56)
    suite = load_folder(tmp_path/'out', 16, unseen=['sketch'])
    photos = [p for p in files if p.startswith('photo/')]
    assert len(suite.unseen['sketch']) == 28
    assert pixels(suite, 'test', 'photo') == read_small(files, photos[1::2])
    fitted = pixels(suite, 'train', 'photo')+pixels(suite, 'val', 'photo')
    assert sorted(fitted) == read_small(files, photos[::2])

def test_domainnet_lists_of_txt_and_pickle(tmp_path):
    ten = LAYOUTS['domainnet-10']
    files = tree(ten, (*ten.classes, 'zebra_crossing'), 2)
    kept = [p for p in files if 'crossing' not in p]
    def listed(d, k): return [p for p in files if p.startswith(d+'/') and p.endswith(f'{k}.png')]
    lists = {f'{d}_{part}.txt': '\n'.join(f'{p} 7' for p in listed(d, k)).encode()
             for d in ten.counts for k, part in enumerate(('train', 'test'))}
    paths = {part: np.array(['data/DomainNet/'+p for p in listed('real', k)], object)
             for k, part in enumerate(('train', 'test'))}
    lists |= {f'real_{part}.pkl': pickle.dumps((of, ['bird']*len(of))) for part, of in paths.items()}
    for part in paths: del lists[f'real_{part}.txt']
    facts = prepare('domainnet-10', as_zip(tmp_path/'d.zip', files | lists), tmp_path/'out')
    assert facts['parts'] == dict(train=60, test=60)
    assert brought(tmp_path/'out').keys() == set(kept)
    suite = load_folder(tmp_path/'out', 16)
    tested = [p for p in kept if p.startswith('real') and '/1.' in p]
    assert pixels(suite, 'test', 'real') == read_small(files, tested)

class Runs:
    def __reduce__(self): return exec, ('raise SystemExit(9)',)

LISTS = {
    'no label': ('photo_train_kfold.txt', b'photo/dog/0.png', 'is no "path label"'),
    'climbs': ('photo_train_kfold.txt', b'../photo/dog/0.png 1', 'leads out of the folder'),
    'in two': ('photo_crossval_kfold.txt', b'photo/dog/0.png 1', 'of another list'),
    'runs': ('photo_train.pkl', pickle.dumps(Runs()), 'nothing was run'),
    'numbers': ('photo_train.pkl', pickle.dumps(([1, 2], [3])), 'does not hold')}

@pytest.mark.parametrize('case', LISTS)
def test_lists_that_are_none(case, tmp_path):
    name, raw, says = LISTS[case]
    files = tree(LAYOUTS['pacs'], CLASSES['pacs'], 2)
    lists = {'photo_train_kfold.txt': b'photo/dog/0.png 1'} | {name: raw}
    with pytest.raises(ValueError, match=says):
        prepare('pacs', as_zip(tmp_path/'p.zip', files | lists), tmp_path/'out')

def test_lists_that_do_not_fit_are_said(tmp_path):
    files = tree(LAYOUTS['pacs'], CLASSES['pacs'], 2)
    lists = pacs_lists(files)
    some = dict(lists) | {'photo_train_kfold.txt': lists['photo_train_kfold.txt']+b'\nphoto/dog/9.png 1'}
    said = prepare('pacs', as_zip(tmp_path/'a.zip', files | some), tmp_path/'a')['remarks']
    assert '1 images of the lists are missing, first photo/dog/9.png' in said
    few = {n: raw for n, raw in lists.items() if not n.startswith('sketch')}
    facts = prepare('pacs', as_zip(tmp_path/'b.zip', files | few), tmp_path/'b')
    assert 'the lists name no image of sketch: none of them is used' in facts['remarks']
    assert not facts['parts'] and not (tmp_path/'b'/'splits.csv').exists()

SPLITS = {
    'head': ('path,part\na/b/1.png,train\n', 'does not begin with image,part'),
    'part': ('image,part\na/b/1.png,tests\n', "row 2: 'a/b/1.png,tests' is no image and its part"),
    'twice': ('image,part\na/b/1.png,train\na/b/1.png,test\n', 'row 3: a/b/1.png stands there twice'),
    'none': ('image,part\n', 'names no image'),
    'lost': ('image,part\na/b/9.png,train\n', '1 of its 1 images are missing, first a/b/9.png')}

@pytest.mark.parametrize('case', SPLITS)
def test_splits_that_are_none(case, tmp_path):
    text, says = SPLITS[case]
    as_folder(tmp_path/'f', {f'{d}/b/{k}.png': picture(k, ord(d)) for d in 'ac' for k in range(3)})
    (tmp_path/'f'/'splits.csv').write_text(text)
    with pytest.raises(ValueError, match=says): load_folder(tmp_path/'f', 16)

def test_splits_of_ones_own(tmp_path):
    "Train, validation and test where the CSV says so, and an image that it does not name is not used."
    files = {f'{d}/{c}/{k}.png': picture(k, ord(d), ord(c)) for d in 'ab' for c in 'xy' for k in range(5)}
    part = {0: 'train', 1: 'train', 2: 'val', 3: 'test'}
    lines = [f'{p},{part[int(p[4])]}' for p in files if p[4] != '4']
    root = as_folder(tmp_path/'f', files)
    (root/'splits.csv').write_text('\n'.join(['image,part', *lines])+'\n')
    suite = load_folder(root, 16)
    for name, of in (('train', '01'), ('val', '2'), ('test', '3')):
        assert pixels(suite, name, 'a') == read_small(files, [p for p in files if p[0] == 'a' and p[4] in of])
    held = load_folder(root, 16, unseen=['b']).unseen['b']     # only its test images
    assert sorted(x.numpy().tobytes() for x in held.x) == read_small(files, ['b/x/3.png', 'b/y/3.png'])
    was = suite.fingerprint()
    (root/'splits.csv').unlink()
    assert load_folder(root, 16).fingerprint() != was      # the cache knows of the list

def test_only_counts_that_differ_are_told():
    "The published number of each domain of PACS, one picture less, and one class less."
    pacs = LAYOUTS['pacs']
    came = {(d, pacs.classes[i%7], f'{i}.png'): '' for d, n in pacs.counts.items() for i in range(n)}
    assert remarks(pacs, came) == []
    came.pop(('photo', pacs.classes[0], '0.png'))
    assert remarks(pacs, came) == ['photo has 1669 images, the published set has 1670']
    fewer = {at: '' for at in came if at[:2] != ('sketch', pacs.classes[0])}
    n = sum(d == 'sketch' for d, *_ in fewer)
    told = [f'sketch has {n} images, the published set has 3929', f'sketch has no image of {pacs.classes[0]}']
    assert remarks(pacs, fewer)[1:] == told
