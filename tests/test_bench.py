"The bench, on tiny work: what it returns, that both sides do the same, that it puts everything back. Nothing here looks at a clock."
import json, math
import pytest, torch
from fedskew_nb.app.bench import (
    WORKS, BareLoop, Work, clocked, foreign_cores, foreign_seconds, machine_facts, noise_suite, on_threads,
    processor_name, race, spread_of)
from fedskew_nb.engine.lanes import has_bf16
from fedskew_nb.app.bench_items import (
    NO_BF16, ROUND_PARTS, TARGETS, Bench, bench_row, busy_neighbour, conv_step, memory_used)
from fedskew_nb.app.bench_report import (
    BENCH_ITEMS, OF_THE_CPU, bench_command, bench_frame, bench_table, most_foreign, read_bench, run_bench,
    stored_bench)
from fedskew_nb.app import bench_report
from fedskew_nb.data.batch import normalise
from fedskew_nb.core.method import Method
from fedskew_nb.engine.lanes import FlatSGD, threads_of

TINY = Work(3, 20, 8, 'small_conv(width=2)', 6)
ROW = {'what','value','lowest','highest','unit','target','note'}

@pytest.fixture(scope='module')
def b(): return Bench(pairs=1, tiny=True, apart=False, threads=1)

@pytest.fixture(scope='module')
def every(b):
    with threads_of(2): found = run_bench(bench=b); LEFT.append(torch.get_num_threads()); return found
LEFT = []          # threads after all items

# ---- both sides do the same

def counting(monkeypatch, cls, name, into, of=lambda *a: 1):
    real = getattr(cls, name)
    monkeypatch.setattr(cls, name, lambda self,*a,**kw: (into.append(of(*a)), real(self,*a,**kw))[1])

def test_equal_steps(monkeypatch):
    "As many optimiser steps, as many images."
    s,ours,theirs,images = TINY.suite(),[],[],[]
    fed,loop = Bench(threads=1).federation(TINY, s, stack=False),BareLoop(TINY, s)
    counting(monkeypatch, FlatSGD, 'step', ours); counting(monkeypatch, torch.optim.SGD, 'step', theirs)
    counting(monkeypatch, Method, 'make_batch', images, lambda c,batch: len(batch['y']))
    fed.one_round(); loop.one_round()
    assert len(ours)==len(theirs)==TINY.steps==9 and sum(images)==TINY.clients*TINY.images

def test_stacks_see_the_same_batches(monkeypatch):
    s,images = TINY.suite(),[]; fed = Bench(threads=1).federation(TINY, s); counting(monkeypatch, Method, 'make_batch', images, lambda c,batch: len(batch['y']))
    fed.one_round(); assert not fed.why_lanes and len(images)==TINY.steps and sum(images)==60

def test_one_step_is_the_same_step():
    "One client, one batch with all its images: after a round both models are equal, up to rounding."
    w = Work(1, 8, 8, 'small_conv(width=2)'); s = w.suite(); fed,loop = Bench(threads=1).federation(w, s, stack=False, channels_last=False),BareLoop(w, s)
    fed.one_round(); loop.one_round()
    for n,v in loop.net.state_dict().items(): torch.testing.assert_close(fed.server[n], v, rtol=1e-4, atol=1e-5)

def test_both_score_the_same():
    s = TINY.suite(); fed,loop = Bench(threads=1).federation(TINY, s),BareLoop(TINY, s); fed.score()
    assert sum(r['correct'] for r in fed.history.rows)==loop.score() and sum(r['n'] for r in fed.history.rows)==18

def test_images_of_the_bare_loop():
    s = TINY.suite(); x,y = BareLoop(TINY, s).train[1]; c = s.clients[1].train
    assert torch.equal(x, normalise(c.x, s.mean, s.std)) and torch.equal(y, c.y) and x.is_contiguous()

def test_global_generator_is_left_alone(b):
    before = torch.random.get_rng_state(); s = TINY.suite(); BareLoop(TINY, s).one_round(); b.federation(TINY, s).one_round()
    assert torch.equal(torch.random.get_rng_state(), before)

# ---- the race

def test_turns():
    order = []; sides = {k:(lambda k=k: order.append(k)) for k in ('bare','x')}; r = race(sides, 4)
    assert order==['bare','x', 'bare','x', 'x','bare', 'bare','x', 'x','bare']
    assert [len(v) for v in r['seconds'].values()]==[4,4] and len(r['foreign'])==4 and set(r['ratios'])=={'x'}
    assert r['ratios']['x']['lowest']<=r['ratios']['x']['value']<=r['ratios']['x']['highest']

def test_spread(): assert spread_of([4,1,2])==dict(value=2.,lowest=1.,highest=4.) and spread_of([1/3])['value']==.3333

@pytest.mark.parametrize('fails', [False,True])
def test_threads_are_restored(fails):
    n,seen = torch.get_num_threads(),[]
    f = on_threads(n+2, lambda: (seen.append(torch.get_num_threads()), 1/(not fails)))
    try: f()
    except ZeroDivisionError: assert fails
    assert seen==[n+2] and torch.get_num_threads()==n

def test_threads_are_restored_by_every_item(every): assert LEFT==[2]

def test_clocks_are_taken_away():
    was = {(c,m):getattr(c,m) for ps in ROUND_PARTS.values() for c,m in ps}
    with pytest.raises(ZeroDivisionError), clocked(ROUND_PARTS, {}): assert any(getattr(c,m) is not f for (c,m),f in was.items()); 1/0
    assert all(getattr(c,m) is f for (c,m),f in was.items())

def test_nothing_is_counted_twice():
    class A:
        def inner(self): pass
        def outer(self): self.inner()
    with clocked(dict(i=[(A,'inner')], o=[(A,'outer')]), {}) as spent: A().outer()
    assert set(spent)=={'o'}

def test_foreign_load(tmp_path):
    assert foreign_seconds(tmp_path/'none') is None and foreign_cores((None,0.)) is None
    (tmp_path/'odd').write_text('cpu a b'); assert foreign_seconds(tmp_path/'odd') is None
    (tmp_path/'short').write_text('cpu 1 2'); assert foreign_seconds(tmp_path/'short') is None
    (tmp_path/'s').write_text('cpu  100000000 0 0 5 5 0 0 0 0 0\n'); assert foreign_seconds(tmp_path/'s')>0

# ---- the items

def test_every_item_gives_rows(every):
    assert list(every['items'])==list(BENCH_ITEMS) and {'W1','W2','W3','W4'}<=set(BENCH_ITEMS)
    for n,i in every['items'].items():
        assert i['rows'] and i['tiny'] and i['pairs']==1 and i['took']>=0, n
        for r in i['rows']: assert set(r)==ROW and (r['value'] is None or math.isfinite(r['value']) and r['value']>=0), (n,r)

def test_targets_are_in_the_rows(every):
    d = bench_frame(every)
    for n,t in TARGETS.items(): assert d[d['item']==n].target.tolist()==list(t.values())
    assert d[d.note==NO_BF16].value.isna().all() and (d.note==NO_BF16).any()!=has_bf16()

def test_parts_are_the_whole(every):
    i = every['items']['round_parts']
    for n in ('W1','W4'): assert abs(sum(r['value'] for r in i['rows'] if r['what'].startswith(n))-100)<.5 and i['parts'][n]['merge']>0

def test_engines_are_noted(every): assert all(isinstance(v,str) and v for n in TARGETS for v in every['items'][n]['engine'].values())

def test_sizes_of_the_work():
    assert [w.steps for w in WORKS.values()]==[80,20,100,160] and WORKS['W1'].clients*WORKS['W1'].tests==2560
    assert Bench().work('W2')==WORKS['W2'] and Bench(tiny=True).work('W2').net=='resnet10(width=4)'
    s = noise_suite(2,5,tests=3); assert [len(t) for t in s.tests.values()]==[3,3] and len(s.clients[0].train)==5

def test_flat_conv_counts(): assert conv_step(4,2,torch.contiguous_format)[1]==3*2*64*64*9*16*2

def test_memory(): assert memory_used() is None or 10<memory_used(peak=False)<=memory_used()*1.01

def test_neighbour_ends():
    with pytest.raises(KeyError), busy_neighbour() as p: assert p.poll() is None; raise KeyError
    assert p.poll() is not None

def test_a_process_of_its_own():
    "The one that is slow: it starts a Python."
    row = Bench(apart=True).call('bench_row', what='x', found=2.); assert row==bench_row('x', 2.)

# ---- the file and the command

def test_round_trip(every, tmp_path):
    (tmp_path/'a.json').write_text(json.dumps(every)); again = read_bench(tmp_path/'a.json')
    assert again==every and str(bench_table(again))==str(bench_table(every)) and 'TINY' in str(bench_table(again))

def test_a_file_grows(b, tmp_path):
    f = tmp_path/'x'/'a.json'; run_bench('W4', b, f); first = read_bench(f); run_bench('server_sizes', b, f)
    assert list(read_bench(f)['items'])==['W4','server_sizes'] and read_bench(f)['items']['W4']==first['items']['W4']

@pytest.mark.parametrize('text,says', [('[]','not a stored'), ('{}','not a stored'), ('no','not a stored'), ('{"machine":{},"items":{}}','another machine')])
def test_other_files_are_kept(b, tmp_path, text, says):
    (f := tmp_path/'a.json').write_text(text)
    with pytest.raises(ValueError, match=says): run_bench('W4', b, f)
    assert f.read_text()==text

def test_verdicts():
    f = dict(items=dict(a=dict(rows=[bench_row('x',.5,target=.5), bench_row('y',.6,target=.5), bench_row('z',.6), bench_row('n',target=.5,note='why')], date='d', pairs=1, tiny=False, foreign=[.1,None,.4])), machine=machine_facts())
    assert bench_frame(f).reached.tolist()==[True,False,None,None] and most_foreign(f['items'].values())==.4
    cells = bench_table(f).cells; assert cells.verdict.tolist()==['reached','not reached','',''] and cells['median'][3]=='why' and 'TINY' not in str(bench_table(f))

def test_command(capsys, tmp_path):
    bench_command('W4,server_sizes', 1, str(tmp_path/'a.json'), tiny=True); said = capsys.readouterr()
    assert 'W4, fp32' in said.out and 'measuring W4' in said.err and set(read_bench(tmp_path/'a.json')['items'])=={'W4','server_sizes'}
    bench_command('server_sizes', 1, tiny=True, json=True); assert json.loads(capsys.readouterr().out)['items']['server_sizes']['rows']

@pytest.mark.parametrize('kw,says', [(dict(pairs=0),'at least one'), (dict(only='W5'),"no item 'W5'"), (dict(only=''),'no item'), (dict(device='tpu'),'device')])
def test_command_refuses(kw, says, monkeypatch):
    monkeypatch.setattr(bench_report, 'BENCH_ITEMS', {})      # nothing can be measured by mistake
    with pytest.raises(ValueError, match=says): bench_command(**kw)

def test_what_is_shipped():
    f = stored_bench('2026-11-22'); assert set(f['items'])<=set(BENCH_ITEMS) and len(bench_table(f).cells)==len(bench_frame(f))
    assert processor_name() and set(f['machine'])==set(machine_facts())

def test_parser():
    from fedskew_nb.app.cli import parser_of
    told = vars(parser_of(bench_command,'bench').parse_args(['--only','W1','--pairs','3','--json'])); assert (told['only'],told['pairs'],told['json'],told['tiny'],told['out'])==('W1',3,True,False,None)

def test_what_measures_the_processor_is_not_filed_under_a_gpu():
    b = Bench(pairs=1, tiny=True, threads=1); b.device = 'cuda'          # as if there were one
    for n in OF_THE_CPU:
        with pytest.raises(ValueError, match=f'{n} measures the processor'): run_bench(n, b)
