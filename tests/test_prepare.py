"Downloads in the layouts that their authors give them: made small, brought over, stopped, and hostile."
import io, json, tarfile, zipfile
import numpy as np
import pytest
from PIL import Image
from fedskew_nb import load_folder, prepare
from fedskew_nb.app import prepare as module
from fedskew_nb.app.cli import main
from fedskew_nb.app.prepare import LAYOUTS, place_in

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

CLASSES = {n: layout.classes or ('Alarm_Clock', 'Bike', 'The Eiffel Tower') for n, layout in LAYOUTS.items()}

@pytest.mark.parametrize('name', LAYOUTS)
@pytest.mark.parametrize('kind, above', [(as_zip, ''), (as_tar, 'some/wrapping/'), (as_folder, 'x/')],
                         ids=['zip', 'tar', 'folder'])
def test_every_layout_from_every_kind_of_source(name, kind, above, tmp_path):
    layout, classes = LAYOUTS[name], CLASSES[name]
    files = tree(layout, classes)
    junk = {f'{d}/{classes[0]}/._0.png': b'x' for d in layout.counts}
    junk |= {'__MACOSX/'+n: b'x' for n in files}
    junk |= {'read me.txt': b'x', 'photo_train_kfold.txt': b'photo/dog/0.png 1'}
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

def test_the_counts_of_pacs_are_the_official_ones():
    assert sum(LAYOUTS['pacs'].counts.values()) == 9991
    assert sum(LAYOUTS['office-home'].counts.values()) == 15588

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
