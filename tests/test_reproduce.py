"Tables of the papers: the printed numbers, the protocols, and one made of a fixture in the official layout."
import numpy as np
import pytest, torch
from PIL import Image
from fedskew_nb import read_method, reproduce
from fedskew_nb.analysis.printed import counts_each
from fedskew_nb.app.cli import main
from fedskew_nb.app.layouts import LAYOUTS
from fedskew_nb.app.recipes import read_model
from fedskew_nb.app.reproduce import protocols, setting_of

TABLES = protocols()

@pytest.mark.parametrize('name', TABLES)
def test_a_protocol_can_be_asked_for(name):
    "Its methods are ours, its setting is one, its model can be read, its numbers are percent."
    p = TABLES[name]
    for ours in p.methods().values(): assert read_method(ours).name == ours
    assert setting_of(p).rounds >= 50
    numbers = [v for row in p.numbers().values() for v in row.values()]
    assert len(numbers) == len(p.methods())*len(p.columns) and all(10 < v < 100 for v in numbers)
    domains = set(p.columns.values())-{'AVG', 'ALL'}
    if p.suite in LAYOUTS: assert domains | set(p.clients) <= set(LAYOUTS[p.suite].counts)
    assert p.notes and set(p.before) <= set(p.methods())

def test_printed_means_are_those_of_their_cells():
    "What is called AVG is the mean of the row, as printed; in one row it is not."
    tables = [p for p in TABLES.values() if len(p.columns) > 2]
    rows = {(p.name, m): list(row.values()) for p in tables for m, row in p.numbers().items()}
    off = {name for name, (*cells, mean) in rows.items() if abs(np.mean(cells)-mean) > .12}
    assert len(tables) == 7 and off == {('RFedDis-2-Digits', 'Local')}

def test_models_are_the_papers():
    "Nets that are small enough to be made here at once."
    assert read_model(TABLES['F2DC-1-PACS'].setting['model'], 7, 128).head.out_features == 7

def picture(path, dice):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(dice.integers(0, 255, (12, 12, 3), dtype=np.uint8)).save(path)

@pytest.fixture(scope='module')
def pacs(tmp_path_factory):
    "A folder in PACS' layout with ten pictures of each class and domain."
    root, dice, layout = tmp_path_factory.mktemp('pacs'), np.random.default_rng(0), LAYOUTS['pacs']
    for d in layout.counts:
        for c in layout.classes:
            for k in range(10): picture(root/d/c/f'{k}.png', dice)
    return root

SHORT = dict(rounds=1, local_epochs=1, model='small_conv(width=4)', batch_size=8)

def test_a_table_goes_on_and_is_what_compare_trains(pacs, tmp_path):
    how = dict(methods='FedAvg,F2DC', pixels=16, seeds=2, out=tmp_path/'runs', device='cpu', progress=False)
    first = reproduce('f2dc-1-pacs', pacs, **how, **SHORT)
    again = reproduce('F2DC-1-PACS', pacs, **how, **SHORT)
    assert [h.rows for h in first.comparison.histories] == [h.rows for h in again.comparison.histories]
    assert len(list((tmp_path/'runs').rglob('*.json'))) > 2
    p = first.protocol
    counts = [sum(counts_each(torch.tensor([8]*7), k, 16))*k for k in p.clients.values()]
    assert [len(h.rounds[0]['participants']) for h in first.comparison.histories] == [10]*4
    assert counts == [16*2, 14*3, 16*2, 14*3]
    line = first.table().cells.iloc[0]
    rows = [r for h in first.runs()['FedAvg'] for r in h.rows if r['domain'] == 'photo']
    mean = np.mean([100*r['correct']/r['n'] for r in rows if r['view'] == 'global'])
    assert line['Photo'] == f'{mean:.1f} (61.0)'

def test_what_differs_is_named(pacs):
    made = reproduce('F2DC-1-PACS', pacs, 'FedAvg', 1, pixels=16, device='cpu', progress=False, **SHORT)
    foot = ' '.join(made.table().notes)
    named = 'rounds 1 (paper: 100)', 'size 16 (paper: 128)', '9 of 10 methods left', '1 seeds (paper: 3)'
    for said in named: assert said in foot
    assert '±' not in made.table().cells.to_string()

def test_another_number_of_images_is_named(pacs):
    how = dict(pixels=32, device='cpu', progress=False, **SHORT)
    made = reproduce('FDSE-1-PACS', pacs, 'FedAvg', 1, **how)
    assert 'photo 70 (published: 1670)' in made.notes[-1]

def test_commands(pacs, tmp_path, capsys):
    assert main(['reproduce']) in (0, None) and 'F2DC-1-PACS' in capsys.readouterr().out
    assert main(['reproduce', 'F2DC-1-PACS']) == 2 and 'fedskew prepare pacs' in capsys.readouterr().err

def test_embedded_tables_need_no_folder():
    made = reproduce('DFL-1-Colored-MNIST', None, 'FedAvg', 1, device='cpu', progress=False, rounds=1,
                     local_steps=1, model='small_conv(width=4)')
    assert made.table().cells['accuracy'][0].endswith('(88.9)')
