"""The bench, on tiny work: what it returns, that both sides do the same, that it puts everything back.

Nothing here looks at a clock.
"""
import importlib, json, math, re, subprocess, sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
import pytest, torch
import bench, common, fedskew_nb
from bare import BENCH_ITEMS, WORKS, BareLoop, Work, against_bare, bench_frame, bench_row
from bare import bench_source, bench_table, foreign_cores, foreign_seconds, machine_facts
from bare import noise_suite, processor_name, race, read_bench, run_bench, spread_of
from bench import bench_command
from common import Options, clocked, on_threads
from rounds import LIMIT, REPORTED, beside_fedavg, bytes_held, footprint
from rounds import noting, rounds_frame, rounds_table, with_boxes
from fedskew_nb.core.method import Method
from fedskew_nb.core.net import normalise
from fedskew_nb.engine.client import Worker
from fedskew_nb.engine.device import has_bf16, threads_of
from fedskew_nb.run.recipes import METHODS

SCRIPTS = Path(__file__).parent/'bench'

TINY = Work(3, 20, 8, 'small_conv(width=2)', 6)
ROW = {'what', 'value', 'lowest', 'highest', 'unit', 'target', 'note'}

@pytest.fixture(scope='module')
def every():
    "All items, measured as small as can be."
    with threads_of(1):
        jobs = {n: partial(against_bare, n, 1, tiny=True) for n in BENCH_ITEMS}
        return run_bench(jobs, pairs=1, tiny=True)

# ---- both sides do the same

def counting(monkeypatch, cls, name, of=lambda *a: 1):
    "A list that grows with every call of a method."
    seen, real = [], getattr(cls, name)
    def counted(self, *a, **kw):
        seen.append(of(*a))
        return real(self, *a, **kw)
    monkeypatch.setattr(cls, name, counted)
    return seen

def test_equal_steps(monkeypatch):
    "As many optimiser steps, on as many images."
    s = TINY.suite()
    fed, loop = TINY.federation(s, stack=False), BareLoop(TINY, s)
    images = counting(monkeypatch, Method, 'make_batch', lambda c, batch: len(batch['y']))
    steps = counting(monkeypatch, torch.optim.SGD, 'step')
    loop.one_round()
    assert len(steps) == TINY.steps == 9
    fed.one_round()
    assert len(images) == 9 and sum(images) == TINY.clients*TINY.images

def test_stacks_see_the_same_batches(monkeypatch):
    fed = TINY.federation(TINY.suite())
    images = counting(monkeypatch, Worker, 'ready_batch', lambda batch: len(batch['y']))
    fed.one_round()
    assert not fed.why_lanes and TINY.clients*len(images) == TINY.steps and sum(images) == 60

def test_one_step_is_the_same_step():
    "One client, one batch with all its images: after a round both models are equal, up to rounding."
    w = Work(1, 8, 8, 'small_conv(width=2)')
    s = w.suite()
    fed, loop = w.federation(s, stack=False, channels_last=False), BareLoop(w, s)
    fed.one_round()
    loop.one_round()
    mine = fed.model().state_dict()
    for n, v in loop.net.state_dict().items(): torch.testing.assert_close(mine[n], v, rtol=1e-4, atol=1e-5)

def test_both_score_the_same():
    s = TINY.suite()
    fed, loop = TINY.federation(s), BareLoop(TINY, s)
    fed.score()
    rows = fed.history.rows
    assert sum(r['correct'] for r in rows) == loop.score() and sum(r['n'] for r in rows) == 18

def test_images_of_the_bare_loop():
    s = TINY.suite()
    (x, y), c = BareLoop(TINY, s).train[1], s.clients[1].train
    assert torch.equal(x, normalise(c.x, s.mean, s.std)) and torch.equal(y, c.y) and x.is_contiguous()

def test_the_same_noise_each_time():
    a, b = (noise_suite(2, 5, tests=3) for _ in range(2))
    assert torch.equal(a.clients[1].train.x, b.clients[1].train.x)
    assert [len(t) for t in a.tests.values()] == [3, 3] and len(a.clients[0].train) == 5

def test_global_generator_is_left_alone():
    before, s = torch.random.get_rng_state(), TINY.suite()
    BareLoop(TINY, s).one_round()
    TINY.federation(s).one_round()
    assert torch.equal(torch.random.get_rng_state(), before)

def test_sizes_of_the_work():
    assert [w.steps for w in WORKS.values()] == [80, 20, 100, 160]
    assert WORKS['W1'].clients*WORKS['W1'].tests == 2560 and WORKS['W2'].shrunk().net == 'resnet10(width=4)'

# ---- the race

def test_turns():
    order = []
    r = race({k: partial(order.append, k) for k in ('bare', 'x')}, 4)
    assert order == ['bare', 'x', 'bare', 'x', 'x', 'bare', 'bare', 'x', 'x', 'bare']
    assert [len(v) for v in r['seconds'].values()] == [4, 4] and len(r['foreign']) == 4
    ratio = r['ratios'].pop('x')
    assert ratio['lowest'] <= ratio['value'] <= ratio['highest'] and not r['ratios']

def test_spread():
    assert spread_of([4, 1, 2]) == dict(value=2., lowest=1., highest=4.)
    assert spread_of([1/3])['value'] == .3333

def test_foreign_load(tmp_path):
    assert foreign_seconds(tmp_path/'none') is None and foreign_cores((None, 0.)) is None
    for text in ('cpu a b', 'cpu 1 2'):
        (tmp_path/'odd').write_text(text)
        assert foreign_seconds(tmp_path/'odd') is None
    (tmp_path/'s').write_text('cpu  100000000 0 0 5 5 0 0 0 0 0\n')
    assert foreign_seconds(tmp_path/'s') > 0

@pytest.mark.parametrize('fails', [False, True])
def test_threads_are_restored(fails):
    n, seen = torch.get_num_threads(), []
    def f():
        seen.append(torch.get_num_threads())
        if fails: raise ZeroDivisionError
    if fails:
        with pytest.raises(ZeroDivisionError): on_threads(n+2, f)()
    else: on_threads(n+2, f)()
    assert seen == [n+2] and torch.get_num_threads() == n

# ---- the items

def check_rows(items):
    for n, i in items.items():
        assert i['rows'] and i['tiny'] and i['pairs'] == 1, n
        for r in i['rows']:
            value = r['value']
            assert set(r) == ROW and (value is None or math.isfinite(value) and value >= 0), (n, r)

def test_every_item_gives_rows(every):
    assert list(every['items']) == list(BENCH_ITEMS) == [*WORKS, 'evaluation', 'train_and_evaluate']
    check_rows(every['items'])

def test_targets_are_in_the_rows(every):
    d = bench_frame(every)
    for n, (_, _, targets) in BENCH_ITEMS.items():
        assert d[d['item'] == n].target.tolist() == list(targets.values())
    left_out = d.note.str.contains('no instructions for bfloat16')
    assert d[left_out].value.isna().all() and left_out.any() != has_bf16()

# ---- the file and the command

def test_round_trip(every, tmp_path):
    (tmp_path/'a.json').write_text(json.dumps(every))
    again = read_bench(tmp_path/'a.json')
    assert again == every and str(bench_table(again)) == str(bench_table(every))
    assert 'TINY' in str(bench_table(again))

def test_a_file_grows(tmp_path):
    f, row = tmp_path/'x'/'a.json', dict(rows=[bench_row('x', .5)])
    for n in 'ab': run_bench({n: lambda: row}, f, pairs=1, tiny=True)
    assert list(read_bench(f)['items']) == ['a', 'b'] and read_bench(f)['items']['a']['rows'] == row['rows']

def test_an_interruption_loses_one_item(tmp_path):
    def stop(): raise KeyboardInterrupt
    f = tmp_path/'a.json'
    with pytest.raises(KeyboardInterrupt): run_bench(dict(a=lambda: dict(rows=[]), b=stop), f)
    assert list(read_bench(f)['items']) == ['a']

OTHERS = [
    ('[]', 'not a stored'),
    ('{}', 'not a stored'),
    ('no', 'not a stored'),
    ('{"machine":{},"items":{}}', 'another machine')]

@pytest.mark.parametrize('text,says', OTHERS)
def test_other_files_are_kept(tmp_path, text, says):
    (tmp_path/'a.json').write_text(text)
    with pytest.raises(ValueError, match=says): run_bench(dict(a=lambda: 1/0), tmp_path/'a.json')
    assert (tmp_path/'a.json').read_text() == text

def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match='bench.py --out'): read_bench(tmp_path/'b.json')

def test_verdicts():
    rows = [bench_row('x', .5, target=.5), bench_row('y', .6, target=.5), bench_row('z', .6),
            bench_row('n', target=.5, note='why')]
    races = dict(a=dict(foreign=[.4]))
    item = dict(rows=rows, date='d', pairs=1, tiny=False, foreign=[.1, None], races=races)
    found = dict(items=dict(a=item), machine=machine_facts())
    assert bench_frame(found).reached.tolist() == [True, False, None, None]
    assert '0.40 cores' in bench_source(found)
    cells = bench_table(found).cells
    assert cells.verdict.tolist() == ['reached', 'not reached', '', ''] and cells['median'][3] == 'why'
    assert 'TINY' not in str(bench_table(found)) and len(bench_table(found, ['none']).cells) == 0

def test_command(capsys, tmp_path):
    bench_command('W4, evaluation', pairs=1, out=str(tmp_path/'a.json'), tiny=True)
    said = capsys.readouterr()
    assert 'W4, fp32' in said.out and 'measuring W4' in said.err
    assert set(read_bench(tmp_path/'a.json')['items']) == {'W4', 'evaluation'}
    bench_command('W4', pairs=1, tiny=True, json=True)
    assert json.loads(capsys.readouterr().out)['items']['W4']['rows']

WRONG = [
    (dict(pairs=0), 'at least one'),
    (dict(only='W5'), "no item 'W5'"),
    (dict(only=''), 'no item'),
    (dict(methods='FedAvg'), 'no method'),
    (dict(methods='MOON,Dito'), 'Ditto'),
    (dict(only='W1', methods='all'), 'call twice'),
    (dict(device='tpu'), 'device')]

@pytest.mark.parametrize('kw,says', WRONG)
def test_command_refuses(kw, says, monkeypatch):
    monkeypatch.setattr(bench, 'run_bench', None)      # nothing can be measured by mistake
    with pytest.raises(ValueError, match=says): bench_command(**kw)

def test_what_is_shipped():
    f = read_bench(Path(fedskew_nb.__file__).parent/'assets'/'runs'/'bench-2026-11-22.json')
    assert set(BENCH_ITEMS) <= set(f['items']) and len(bench_table(f).cells) == len(bench_frame(f))
    assert processor_name() and set(f['machine']) == set(machine_facts())

def test_from_a_shell(monkeypatch, capsys):
    given = []
    monkeypatch.setattr(bench, 'run_bench', lambda jobs, *how, **kw: given.append((list(jobs), how, kw)))
    bench.main(['--only', 'W1', '--pairs', '3', '--json'])
    assert given == [(['W1'], (None, 'cpu'), dict(pairs=3, tiny=False))]
    assert capsys.readouterr().out == 'null\n'

def test_a_mistake_in_a_shell():
    with pytest.raises(SystemExit, match="no item 'W5'"): bench.main(['--only', 'W5'])

# ---- rounds of all methods

MINI = Work(2, 16, 8, 'small_conv(width=2)')

def footprints(*names):
    s = with_boxes(MINI.suite())
    return [footprint(MINI.federation(s, n, lanes=1, stack=False)) for n in names]

@pytest.fixture(scope='module')
def beside():
    "Some methods of every kind, measured as small as can be."
    with threads_of(1):
        jobs = {n: partial(beside_fedavg, n, 1, tiny=True) for n in ('Ditto', 'FedDDL', 'FedBN', 'FDSE')}
        return run_bench(jobs, pairs=1, tiny=True)

def test_rounds_of_methods(beside):
    check_rows(beside['items'])
    d = rounds_frame(beside)
    assert sorted(d.method) == ['Ditto', 'FDSE', 'FedBN', 'FedDDL'] and d.value.is_monotonic_decreasing
    assert d.set_index('method').target.isna().to_dict() == {n: n in REPORTED for n in d.method}
    assert len(rounds_table(beside).cells) == 4 and 'TINY' in str(rounds_table(beside))

def test_what_is_above_its_limit(beside):
    values = [(9., None), (LIMIT, LIMIT), (LIMIT+.01, LIMIT), (1., LIMIT)]
    def with_row(n, i, value, target): return i | dict(rows=[bench_row(n, value, '× FedAvg', target)])
    items = {n: with_row(n, i, *v) for (n, i), v in zip(beside['items'].items(), values)}
    d = rounds_frame(beside | dict(items=items))
    assert d.method[d.above].tolist() == ['FedBN'] and d.method[0] == 'Ditto'

@pytest.mark.parametrize('name', [n for n in METHODS if n != 'FedAvg'])
def test_every_method_has_a_footprint(name):
    (f,) = footprints(name)
    assert set(f) == {'home', 'training', 'server', 'up', 'down'} and f['training'] > 0 and f['up'] >= 0

def test_footprints_by_hand():
    """FedAvg: model, gradients, momentum.

    Ditto: twice that, a frozen copy, the state of the round before, and its loss."""
    net = MINI.make()
    state, learnt = bytes_held(net), 4*sum(p.numel() for p in net.parameters())
    avg, ditto, local, scaffold = footprints('FedAvg', 'Ditto', 'Local', 'SCAFFOLD')
    assert (avg['home'], avg['server'], avg['training']) == (0, state, state+2*learnt)
    assert ditto['home'] == state and ditto['training'] == 2*avg['training']+2*state+4
    assert local['home'] == state and (local['up'], local['down']) == (0, 0)
    assert scaffold['up']-avg['up'] == scaffold['home'] == learnt

def test_noting_is_undone():
    fed, seen = MINI.federation(MINI.suite(), lanes=1, stack=False), []
    with pytest.raises(ZeroDivisionError), noting(fed, seen):
        fed.one_round()
        1/0
    fed.one_round()
    assert len(seen) == 2 and not {'_prepare', '_phases'} & vars(fed.worker).keys()

def test_noting_changes_nothing():
    feds = [MINI.federation(MINI.suite(), 'MOON', lanes=1, stack=False) for _ in range(2)]
    with noting(feds[0], []): feds[0].one_round()
    feds[1].one_round()
    assert all(torch.equal(v, feds[1].server[n]) for n, v in feds[0].server.items())

def test_boxes_in_the_middle():
    s = with_boxes(MINI.suite())
    assert s.clients[0].train.boxes.tolist() == [[8, 8, 24, 24]]*16

def test_methods_on_the_command_line(capsys, tmp_path):
    bench_command(methods='FedProx, FedBN', pairs=1, out=str(tmp_path/'a.json'), tiny=True)
    assert 'in training' in capsys.readouterr().out
    assert set(read_bench(tmp_path/'a.json')['items']) == {'FedProx', 'FedBN'}

def test_stored_rounds():
    f = read_bench(Path(fedskew_nb.__file__).parent/'assets'/'runs'/'rounds-2026-11-23.json')
    d = rounds_frame(f)
    assert set(d.method) <= METHODS.keys() and len(d) >= 32
    assert not any(i['tiny'] for i in f['items'].values())

# ---- the developers' scripts

ITEMS = dict(
    tricks=['tricks'], parts=['round_parts'], systems=['systems'], server=['server_share', 'server_sizes'],
    start_up=['start_up'], memory=['memory_growth', 'many_clients'], neighbours=['neighbour'],
    allocator=['allocator'], roofline=['roofline'])

SHARED = {'bare', 'rounds', 'common', 'peer_sides'}      # by the scripts

@pytest.mark.parametrize('script', ITEMS)
def test_scripts(script, monkeypatch):
    m = importlib.import_module(script)
    def here(script, name, env=None, **kw): return getattr(m, name)(**kw)      # no process of its own
    if hasattr(m, 'apart'): monkeypatch.setattr(m, 'apart', here)
    before = torch.get_num_threads()
    options = Options(pairs=1, tiny=True)
    check_rows({n: dict(tiny=True, pairs=1) | getattr(m, n)(options) for n in ITEMS[script]})
    assert torch.get_num_threads() == before

def test_every_script_is_tested_and_listed():
    names = {p.stem for p in SCRIPTS.glob('*.py')}
    assert names == {*ITEMS, *SHARED, 'bench', 'versions', 'round_cost', 'peers'}
    listed = set(re.findall(r'`(\w+)\.py', (SCRIPTS/'README.md').read_text()))
    assert listed == names-SHARED

def test_parts_are_the_whole():
    found = importlib.import_module('parts').round_parts(Options(pairs=1, tiny=True))
    for n in ('W1', 'W4'):
        shares = [r['value'] for r in found['rows'] if r['what'].startswith(n)]
        assert abs(sum(shares)-100) < .5 and all(v > 0 for v in found['parts'][n].values())

def test_clocks_are_taken_away():
    places = importlib.import_module('parts').PARTS
    was = {(c, m): getattr(c, m) for ps in places.values() for c, m in ps}
    with pytest.raises(ZeroDivisionError), clocked(places, {}):
        assert any(getattr(c, m) is not f for (c, m), f in was.items())
        1/0
    assert all(getattr(c, m) is f for (c, m), f in was.items())

def test_nothing_is_counted_twice():
    class A:
        def inner(self): pass
        def outer(self): self.inner()
    with clocked(dict(i=[(A, 'inner')], o=[(A, 'outer')]), {}) as spent: A().outer()
    assert set(spent) == {'o'}

def test_neighbour_ends():
    busy_neighbour = importlib.import_module('neighbours').busy_neighbour
    with pytest.raises(KeyError), busy_neighbour() as p:
        assert p.poll() is None
        raise KeyError
    assert p.poll() is not None

def test_memory():
    used = importlib.import_module('memory').used
    assert used() is None or 10 < used(peak=False) <= used()*1.01

def test_flat_conv_counts():
    conv_step = importlib.import_module('roofline').conv_step
    assert conv_step(4, 2, torch.contiguous_format)[1] == 3*2*64*64*9*16*2

@pytest.mark.campaign
def test_a_process_of_its_own():
    "The one that is slow: it starts a Python."
    assert common.apart(SCRIPTS/'memory.py', 'used') is None or common.apart(SCRIPTS/'memory.py', 'used') > 10

# ---- beside peers; those that must be installed are not here

@pytest.fixture(scope='module')
def rounds_of_sides():
    "What each side did in a round of three steps, on clients of one batch."
    peers, sides = (importlib.import_module(n) for n in ('peers', 'peer_sides'))
    path, names = peers.stored(replace(TINY, images=8), 3), ('ByHand', 'NoMomentum', 'Bare', 'Ours', 'PFLlib')
    done = {}
    with threads_of(1):
        for n in names:
            side = getattr(sides, n)(path, 1)
            done[n] = side.counted_round() | dict(state=side.state())
    return done

@pytest.mark.parametrize('side', ['Ours', 'PFLlib'])
def test_sides_do_what_the_plain_loop_does(rounds_of_sides, side):
    loop, state = rounds_of_sides['ByHand']['state'], rounds_of_sides[side]['state']
    learnt = [i for i, n in enumerate(TINY.make().state_dict()) if n.endswith(('weight', 'bias'))]
    for i in learnt: torch.testing.assert_close(state[i], loop[i], rtol=0, atol=1e-5)

def test_the_comparison_sees_another_optimiser(rounds_of_sides):
    loop, other = (rounds_of_sides[n]['state'] for n in ('ByHand', 'NoMomentum'))
    assert max(float((a-b).abs().max()) for a, b in zip(loop, other)) > 1e-3

def test_sides_are_counted(rounds_of_sides):
    assert {(d['steps'], d['images']) for d in rounds_of_sides.values()} == {(9, 72)}

def test_the_quietest_round_is_kept(monkeypatch):
    peers = importlib.import_module('peers')
    watched = iter([(1., 0.), (3., .9), (1., 0.), (2., .5), (1., 0.), (4., .7)])      # a wait, a round, …
    monkeypatch.setattr(peers, 'watched', lambda f: next(watched))
    assert peers.quiet_round(None, most=.2, tries=3) == (2., .5, 3)

def test_a_side_that_does_less_is_refused():
    peers = importlib.import_module('peers')
    process = SimpleNamespace(args=[0, 0, 'Lazy'])
    lazy = SimpleNamespace(ask=lambda what: dict(steps=8, images=60), process=process)
    with pytest.raises(RuntimeError, match='Lazy did not do'): peers.Peer.counted_round(lazy, TINY)

@pytest.mark.campaign
def test_peers_in_processes_of_their_own(tmp_path):
    options = ['--pairs', '1', '--tiny', '--items', 'same', 'W3', '--out', tmp_path/'a.json']
    command = [sys.executable, SCRIPTS/'peers.py', *options]
    p = subprocess.run(command, capture_output=True, text=True)
    assert p.returncode == 0, p.stdout+p.stderr
    bench = read_bench(tmp_path/'a.json')
    check_rows(dict(W3=bench['items']['W3']))
    assert bench['items']['same']['sides']['PFLlib, 1 at a time']['parameters'] < 1e-5

@pytest.mark.campaign
def test_two_versions_in_turns():
    "The same code twice: the same bits."
    root = str(Path(fedskew_nb.__file__).parents[1])
    command = [sys.executable, SCRIPTS/'versions.py', root, root, '--pairs', '1', '--tiny', '--only', 'W4']
    p = subprocess.run(command, capture_output=True, text=True)
    assert p.returncode == 0 and p.stdout.split()[-1] == 'True', p.stdout+p.stderr
