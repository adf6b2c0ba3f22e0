"Every table of the papers from a small download in the official layout: prepared, trained, beside the print."
import pytest
from fedskew_nb import prepare, reproduce
from fedskew_nb.downloads.layouts import LAYOUTS
from fedskew_nb.run.reproduce import protocols
from fedskew_nb.data.boxes import Box, write_boxes
from fedskew_nb.data.load import SUITES

pytestmark = pytest.mark.campaign
TABLES = protocols()

def contexts(layout, n=5):
    "NICO's folders."
    from test_prepare import picture
    return {f'NICO/{layout.inside}/{c}/{c} {chr(97+k)}/{i}.png': picture(j, k, i)
            for j, c in enumerate(layout.classes) for k in range(10) for i in range(n)}

def download(name, home):
    "A data set as its authors offer it, with few images."
    from test_prepare import as_zip, tree
    from test_readers import mats, mnist, mnistm, usps
    if name != 'digits':
        layout = LAYOUTS[name]
        files = contexts(layout) if layout.inside else tree(layout, layout.classes, 10)
        return as_zip(home/f'{name}.zip', files)
    files = home/'files'
    mnist(files/'MNIST'/'raw', n=120)          # six of F2DC's clients share a domain, with each class
    for write in (usps, mats): write(files, n=120)
    mats(files, 'synth_{}_32x32.mat', packed=False, n=120)
    mnistm(files)
    return files

@pytest.fixture(scope='module')
def prepared(tmp_path_factory):
    "Data sets by name, each prepared once; NICO with boxes."
    there = {}
    def get(name):
        if not name or name in SUITES: return None
        if name in there: return there[name]
        home = there[name] = tmp_path_factory.mktemp(name)
        prepare(name, download(name, home), home/'out')
        there[name] = home/'out'
        boxes = [Box(p.relative_to(home/'out').as_posix(), 2, 2, 7, 7) for p in (home/'out').rglob('*.png')]
        if name.startswith('nico'): write_boxes(home/'out'/'boxes.csv', boxes)
        return there[name]
    return get

SHORT = dict(rounds=1, local_epochs=1, local_steps=None, seeds=1, batch_size=8, device='cpu', progress=False)

@pytest.mark.parametrize('name', TABLES)
def test_every_method_of_every_table(name, prepared):
    p = TABLES[name]
    pixels = 32 if p.folder else 0
    table = reproduce(name, prepared(p.suite), pixels=pixels, model='small_conv(width=4)', **SHORT).table()
    print(f'\n{table}')
    assert list(table.cells['method']) == list(p.numbers())
    for name, row in zip(p.numbers(), table.cells.to_dict('records')):
        for k, printed in p.numbers()[name].items():
            assert row[k].endswith(f'({printed:.{1 if p.suite else 2}f})')
    assert not p.suite or 'rounds 1 (paper: ' in ' '.join(table.notes)

@pytest.mark.parametrize('name, methods, pixels', [
    ('F2DC-1-PACS', 'FedAvg,F2DC', 32), ('FDSE-1-Office', 'FedAvg,FDSE', 64),
    ('FedDDL-3-Animal', 'FedAvg,FedDDL', 32), ('RFedDis-1-Office', 'FedBN,RFedDis', 64)])
def test_the_papers_nets(name, methods, pixels, prepared):
    table = reproduce(name, prepared(TABLES[name].suite), methods, pixels=pixels, **SHORT).table()
    print(f'\n{table}')
    other, = (note for note in table.notes if note.startswith('Other than'))
    assert len(table.cells) == 2 and 'model ' not in other and f'size {pixels}' in other
