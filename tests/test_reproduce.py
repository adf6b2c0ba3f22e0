"Tables of the papers: the printed numbers, the protocols, and one made of a fixture in the official layout."
import re, shutil
from concurrent.futures import Future
from dataclasses import replace
import numpy as np
import pytest, torch
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode
from fedskew_nb import Data, Suite, compare, load_folder, read_method, reproduce
from fedskew_nb.analysis.printed import counts_each
from fedskew_nb.tools.cli import main
from fedskew_nb.downloads.layouts import LAYOUTS
from fedskew_nb.run.recipes import read_model
import fedskew_nb.run.reproduce as module
from fedskew_nb.engine.stack import operations
from fedskew_nb.run.reproduce import (cost_on, counted, dealt_suite, duration, listed, left_out, price,
                                      protocols, speed_of)
from fedskew_nb.run.reproduce import protocol_options, published, suites_of
from fedskew_nb.analysis.printed import setting_of
from fedskew_nb.downloads.sets import DIGITS
from fedskew_nb.data.boxes import Box, write_boxes

TABLES = protocols()

@pytest.mark.parametrize('name', TABLES)
def test_a_protocol_can_be_asked_for(name):
    "Its methods are ours, its setting is one, its model can be read, its numbers are percent."
    p = TABLES[name]
    for ours in p.methods().values(): assert read_method(ours).name == ours
    numbers = [v for row in p.numbers().values() for k, v in row.items() if p.columns[k] != 'STD']
    printed = [k for k in p.columns.values() if k != 'STD']
    assert len(numbers) == len(p.methods())*len(printed) and (p.fields or p.notes)
    if not p.suite: return
    assert setting_of(p).rounds >= 50 and all(10 < v <= 100 for v in numbers)
    domains, there = set(p.columns.values())-{'AVG', 'ALL', 'STD'}, LAYOUTS.get(p.suite)
    there = set(there.counts if there else DIGITS if p.suite == 'digits' else p.clients)
    assert domains | set(p.clients) <= there
    assert set(p.before) <= {*p.methods(), *p.columns} and set(p.apart) in (set(), set(p.methods()))

def test_printed_means_are_those_of_their_cells():
    "What is called AVG is the mean of the row, as printed; in one row it is not."
    def whole(p): return [k for k, what in p.columns.items() if what != 'STD']
    tables = [p for p in TABLES.values() if len(whole(p)) > 2 and 'AVG' in p.columns.values()]
    rows = {(p.name, m): [row[k] for k in whole(p)] for p in tables for m, row in p.numbers().items()}
    off = {name for name, (*cells, mean) in rows.items() if abs(np.mean(cells)-mean) > .12}
    assert off == {('RFedDis-2-Digits', 'Local')}
    assert len(tables) == 12, 'a table with an AVG came or went: count it here'

PACS_COUNTS = dict(photo=1670, art_painting=2048, cartoon=2344, sketch=3929)     # as printed
@pytest.mark.parametrize('name, clients, images', [
    ('FDSE-1-PACS', 4, sum(int(.8*n) for n in PACS_COUNTS.values())),    # 80/10/10
    ('FDSE-2-Office', 3, 2024*3/4),                                      # each domain left out in turn
    ('RFedDis-1-Office', 4, 4*62),                                       # a share of the smallest domain
    ('F2DC-1-PACS', 10, 2*400+3*492+2*562+3*943)])                       # as its authors dealt them
def test_hours_are_those_of_every_multiply_add(name, clients, images):
    "Forward once and backward twice, two operations a multiply-add, counted by PyTorch itself."
    p = TABLES[name]
    line, = (r for r in listed().cells.to_dict('records') if r['table'] == name)
    pixels = p.folder['size']
    net = read_model(p.setting['model'], len(LAYOUTS[p.suite].classes), pixels)
    with FlopCounterMode(display=False) as seen, torch.no_grad():
        net.eval()(torch.zeros(1, 3, pixels, pixels))
    s = setting_of(p)
    seconds = 3*seen.get_total_flops()*images*s.local_epochs*s.rounds*max(1, len(p.left_out()))/1e11
    number, unit = line['two cores'].split()
    said = float(number.replace(',', ''))*dict(minutes=60, hours=3600, days=86400)[unit]
    runs = int(line['methods'])*int(line['seeds'])
    assert said == pytest.approx(seconds*runs, rel=.06)                    # two digits are printed
    assert published(p) == (clients, pytest.approx(images, abs=len(p.clients or 'abcd')))

NUMBERS = {'F2DC': 7, 'FDSE': 4, 'FedDDL': 3, 'RFedDis': 4, 'DFL': 4}     # of the tables of each paper
ROMAN = dict(I=1, II=2, III=3, IV=4)

@pytest.mark.parametrize('paper', NUMBERS)
def test_every_printed_table_is_made_or_named_as_left_out(paper):
    said = [*(p.source for p in TABLES.values()), *left_out()]
    mine = [re.match(rf"{paper}(?:'s|') Table (\w+)", source) for source in said]
    there = {ROMAN.get(m[1]) or int(m[1]) for m in mine if m}
    assert there == set(range(1, NUMBERS[paper]+1))

def test_a_table_with_a_spread_says_the_difference_of_the_mean(pacs):
    made = reproduce('F2DC-5-PACS', pacs, 'σ = 0.5', 1, pixels=32, model='small_conv(width=4)', rounds=1,
                     local_epochs=1, device='cpu', progress=False)
    h, = made.comparison.histories
    row, = made.table().cells.to_dict('records')
    assert list(row) == ['method', 'AVG', 'STD', 'AVG, ours − paper']
    assert row['STD'] == f"{h.summary()['STD']:.1f} (6.7)"

@pytest.mark.parametrize('name', [n for n, p in TABLES.items() if p.like])
def test_a_variant_of_a_method_is_told_what_is_told_of_the_method(name):
    "Asked for alone, too: its rate, its weights and its text are those of the row that it is like."
    p = TABLES[name]
    for row, whole in p.like.items():
        told = [f'{whole}, ' in line for line in p.foot([row])]
        assert any(told) and p.foot([row]) == p.foot([whole]), row

def test_the_price_of_a_suite_is_counted_from_its_images(pacs):
    p = replace(TABLES['FDSE-1-PACS'], setting=dict(model='small_conv(width=4)', protocol='fdse', rounds=10))
    suite, = (r.make(0) for r in suites_of(p, pacs))
    n = sum(len(c.train) for c in suite.clients)
    cost, net = cost_on(p, suite), read_model('small_conv(width=4)', suite.n_classes, suite.image_size)
    assert (cost.clients, cost.images) == (len(suite.clients), n)
    assert cost.sent == 10*len(suite.clients)*sum(v.nbytes for v in net.state_dict().values())
    assert price(p, suite, 1, 1e9).startswith(f'{p.name}: {cost.clients} clients with {n:,} images')

def test_a_step_is_measured_on_the_suite_at_hand(pacs, monkeypatch):
    "The second of two: of three looks at the clock the first is of the step that warms up."
    how = dict(model='small_conv(width=4)', protocol='fdse', batch_size=8)
    p = replace(TABLES['FDSE-1-PACS'], setting=how)
    suite, clock = next(r.make(0) for r in suites_of(p, pacs)), iter((0., 7., 7.5))
    monkeypatch.setattr(module, 'perf_counter', lambda: next(clock))
    work = operations(read_model('small_conv(width=4)', suite.n_classes, suite.image_size), suite.image_size)
    assert speed_of(p, suite, 'cpu') == pytest.approx(3*8*work/.5)

@pytest.mark.parametrize('seconds, text', [
    (0, 'less than two minutes'), (119, 'less than two minutes'), (150, '2.5 minutes'), (3600, '60 minutes'),
    (7200, '2.0 hours'), (36*3600, '36 hours'), (2*86400, '2.0 days'), (280.4*86400, '280 days')])
def test_a_duration_is_said_in_its_unit(seconds, text): assert duration(seconds) == text

def test_a_short_table_says_who_is_at_chance_and_where_it_lies(pacs, tmp_path, capsys, unsaved):
    typed = ['reproduce', 'F2DC-1-PACS', '--data', str(pacs), '--out', str(tmp_path), '--methods', 'FedAvg',
             '--seeds', '1', '--rounds', '1', '--local-epochs', '1', '--pixels', '16', '--device', 'cpu',
             '--model', 'small_conv(width=4)', '--set', 'batch_size=8', '--set', 'lr=1e-9']
    assert main(typed) in (0, None)
    out, page = capsys.readouterr().out, (tmp_path/'report.html').read_text()
    said = 'No better than chance: FedAvg', 'lr 1e-09 (paper:', 'local_epochs 1 (paper: 10)', 'Photo'
    for text in said: assert text in out and text in page
    assert 'methods: 1, seeds: 1, one after the other: ' in out
    assert main([*typed, '--set', 'lr']) == 2 and 'write name=value' in capsys.readouterr().err

def test_nothing_is_a_value_that_can_be_set():
    "`--rounds 0` is the paper's; `--set flip=False` is a wish."
    said = protocol_options(rounds=0, set=['weight_decay=0', 'flip=False'])
    assert said == dict(jobs=1, weight_decay=0, flip=False)

@pytest.mark.parametrize('pairs, typed, why', [
    (['seeds=0'], {}, "--set seeds: there is no setting 'seeds': write --seeds"),
    (['per_device=2'], {}, 'write --per-device'),
    (['out=x'], {}, 'write --out'), (['pixels=8'], {}, 'write --pixels'),
    (['lr=.1', 'lr=.2'], {}, '--set lr is given twice'),
    (['rounds=3'], dict(rounds=5), '--set rounds is given twice'),
    (['control=True'], {}, "there is no setting 'control'"), (['lrr=1'], {}, 'did you mean lr')])
def test_what_is_set_is_a_setting_and_set_once(pairs, typed, why):
    with pytest.raises(ValueError, match=why): protocol_options(**typed, set=pairs)

def test_reproduce_takes_settings_alone():
    with pytest.raises(ValueError, match="there is no setting 'control'"):
        reproduce('F2DC-1-PACS', 'nowhere', control=True)

def test_what_fedddl_says_of_its_table_comes_out():
    "Its 4.5 points are the mean of eight cells over the best of nine baselines."
    gains, ours = [], ('FedDDL', 'MOON + DEC')
    for p in (p for name, p in TABLES.items() if name.startswith('FedDDL-2')):
        rows = p.numbers()
        best = {k: max(r[k] for m, r in rows.items() if m not in ours) for k in p.columns}
        gains += [rows['FedDDL'][k]-best[k] for k in p.columns]
    assert len(gains) == 8 and round(np.mean(gains), 2) == 4.54

def test_ablations_begin_where_the_tables_are():
    for half in ('Animal', 'Vehicle'):
        whole, steps = TABLES[f'FedDDL-2-{half}-L7'].numbers(), TABLES[f'FedDDL-3-{half}'].numbers()
        assert steps['FedAvg'] == whole['FedAvg']
        assert all(abs(steps['+ DEC + DEB_L+C'][k]-v) < .06 for k, v in whole['FedDDL'].items())

@pytest.mark.parametrize('letter, domain', TABLES['FDSE-2-Office'].columns.items())
def test_adapted_numbers_of_fdse_are_of_one_split(letter, domain):
    "Each is a whole number of a tenth of its domain's images."
    if domain == 'AVG': return
    n = LAYOUTS['office-caltech-10'].counts[domain]//10
    for row in TABLES['FDSE-2-Office'].numbers().values():
        right = np.ceil(row[letter]*n/100)
        assert abs(100*right/n-row[letter]) < .01


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
    at_end = [r for r in rows if (r['view'], r['moment']) == ('global', 'post_agg')]
    mean = np.mean([100*r['correct']/r['n'] for r in at_end])
    assert line['Photo'] == f'{mean:.1f} (61.0)'

def test_what_differs_is_named(pacs):
    made = reproduce('F2DC-1-PACS', pacs, 'FedAvg', 1, pixels=16, device='cpu', progress=False, **SHORT)
    foot = ' '.join(made.table().notes)
    named = 'rounds 1 (paper: 100)', 'size 16 (paper: 128)', '9 of 10 methods left', 'seeds 1 (paper: 3)'
    for said in named: assert said in foot
    assert '±' not in made.table().cells.to_string()

def test_another_number_of_images_is_named(pacs):
    how = dict(pixels=32, device='cpu', progress=False, **SHORT)
    made = reproduce('FDSE-1-PACS', pacs, 'FedAvg', 1, **how)
    assert 'photo 70 (published: 1670)' in made.notes[-1]
    p, suite = made.protocol, load_folder(pacs, size=32)
    few = replace(p, clients=dict(photo=1)), replace(p, each=9), replace(p, suite='emoji-pacs')
    for part in few: assert not counted(part, suite)       # nobody published how many images these have

def test_another_data_set_is_refused(pacs):
    with pytest.raises(ValueError, match='needs office-caltech-10, and .* has the classes dog, elephant'):
        reproduce('FDSE-1-Office', pacs, pixels=16, progress=False)

def test_commands(pacs, tmp_path, capsys):
    assert main(['reproduce']) in (0, None) and 'F2DC-1-PACS' in capsys.readouterr().out
    assert main(['reproduce', 'F2DC-1-PACS']) == 2 and 'fedskew prepare pacs' in capsys.readouterr().err

def test_embedded_tables_need_no_folder():
    made = reproduce('DFL-1-Colored-MNIST', None, 'FedAvg', 1, device='cpu', progress=False, rounds=1,
                     local_steps=1, model='small_conv(width=4)')
    assert made.table().cells['accuracy'][0].endswith('(88.9)')

def test_digits_without_a_client_are_in_no_average():
    "F2DC's digits are four of the five that are prepared."
    y = torch.arange(100)%10
    some = Data(torch.zeros(100, 3, 8, 8, dtype=torch.uint8), y)
    how = dict(name='digits', copies='keep')
    five = Suite.from_datasets({d: (some, some) for d in DIGITS}, list('0123456789'), **how)
    suite = TABLES['F2DC-2-Digits'].dealt(five, 0)
    assert len(suite.clients) == 20 and set(suite.tests) == set(TABLES['F2DC-2-Digits'].clients)

def test_a_table_that_counts_needs_no_data():
    "Table 4 of FDSE: all nine cells as printed."
    cells = reproduce('FDSE-4').table().cells.set_index('method')
    for name, row in TABLES['FDSE-4'].numbers().items():
        assert [cells[k][name] for k in row] == [f'{v:.2f} ({v:.2f})' for v in row.values()]

def test_domains_are_left_out_in_turn(pacs):
    "The score is what is measured on the domain that nobody had; AVG is their mean."
    p = TABLES['FDSE-2-Office']
    styles = dict(zip(p.columns, LAYOUTS['pacs'].counts))
    folder = dict(size=16, test=.2, val=.1)
    ours = replace(p, suite='pacs', columns=styles | dict(AVG='AVG'), folder=folder, fields=())
    suites = suites_of(ours, pacs)
    assert [next(iter(s(0).unseen)) for s in suites] == list(LAYOUTS['pacs'].counts)
    how = dict(control=False, device='cpu', progress=False, measure=ours.measure)
    cmp = compare('FDSE', suites, 1, **how, **SHORT)
    scores = ours.scores_of(cmp.histories, 'FDSE')
    seen = {h.setting['suite'].rpartition('-without-')[2]: h.measures['adapted'] for h in cmp.histories}
    assert seen == {d: scores[k] for k, d in styles.items()}
    assert scores['AVG'] == pytest.approx(np.mean(list(seen.values())))
    cells = ours.beside({'FDSE': cmp.histories}).cells
    assert cells['AVG'][0] == f'{scores["AVG"]:.1f} (75.5)'

def test_an_executor_makes_the_same(pacs):
    class Here:
        def submit(self, f, *args):
            future = Future()
            future.set_result(f(*args))
            return future
    how = dict(methods='FedAvg', pixels=16, seeds=1, device='cpu', progress=False)
    one, other = (reproduce('F2DC-1-PACS', pacs, executor=ex, **how, **SHORT) for ex in (None, Here()))
    assert one.comparison.histories == other.comparison.histories

def test_boxes_beside_the_images_are_read_and_missed_before_training(pacs, tmp_path):
    with pytest.raises(ValueError, match='DEC wants boxes.*fedskew boxes'):
        compare('FedAvg,DEC', load_folder(pacs, 16), 1, out=tmp_path/'runs', device='cpu', **SHORT)
    assert not list((tmp_path/'runs').rglob('*.json'))
    root = tmp_path/'pacs'
    shutil.copytree(pacs, root)
    names = [p.relative_to(root).as_posix() for p in root.rglob('*.png')]
    write_boxes(root/'boxes.csv', [Box(n, 2, 2, 9, 9) for n in names])
    assert dealt_suite(0, TABLES['FDSE-1-PACS'], root).clients[0].train.boxes is not None
