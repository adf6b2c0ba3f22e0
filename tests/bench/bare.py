"""A round side by side with a loop that has no bookkeeping: in one process, on the same images, in turns.

Time does not care what is on an image, so random numbers are good enough. Four kinds of work cover the
field: W1 is the usual small network, W2 a ResNet-10, whose steps are long, W3 has the images of W1 spread
over many clients, W4 is what a notebook does: tiny steps, where Python itself is the larger part. Every
round gives one ratio; the median is reported, with the lowest and the highest, what others did on the
machine meanwhile, and the machine."""
import os, platform, re, statistics, sys, time
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
import pandas as pd, torch
from torch.nn import functional as F
from fedskew_nb.analysis.table import Table
from fedskew_nb.core.files import Number, Record, read_json, write_json
from fedskew_nb.core.net import normalise
from fedskew_nb.core.seeding import generator
from fedskew_nb.data.images import Data
from fedskew_nb.data.suite import Client, Suite
from fedskew_nb.engine.device import has_bf16, keep_freed_memory
from fedskew_nb.engine.federation import Federation
from fedskew_nb.run.recipes import METHODS, read_model

def noise_suite(
    clients:int=10, images:int=512,    # `images`, `tests`: per client
    tests:int=2, size:int=32, n_classes:int=10,
)->Suite:
    "Random images and labels: enough to measure time, and nothing else."
    g = generator('bench')
    def data(n):
        x = torch.randint(0, 256, (n, 3, size, size), generator=g, dtype=torch.uint8)
        return Data(x, torch.randint(0, n_classes, (n,), generator=g))
    cs = [Client(k, f'd{k}', data(images), data(2), data(tests)) for k in range(clients)]
    return Suite('noise', [str(c) for c in range(n_classes)], cs, {c.domain: c.test for c in cs},
                 mean=(.5,)*3, std=(.5,)*3, source='random numbers', licence='none', shows='time',
                 cannot='accuracy', size='bench', data_seed=0)

@dataclass(frozen=True)
class Work:
    "So many clients with so many images of 3×32×32, and who learns them how."
    clients:int
    images:int         # of each for training, and `tests` for testing
    batch:int
    net:str            # as on the command line
    tests:int=2
    def suite(self)->Suite: return noise_suite(self.clients, self.images, self.tests)
    def make(self): return read_model(self.net, 10)
    def federation(self, suite:Suite, method:str='FedAvg', **kw)->Federation:
        "The engine's side of a race: as many lanes as PyTorch has threads, everything else as it comes."
        kw = dict(device='cpu', rounds=10**6, batch_size=self.batch) | kw
        return Federation(METHODS[method], self.make(), suite, **kw)
    @property
    def steps(self)->int: return self.clients*-(-self.images//self.batch)      # of one round
    def shrunk(self):
        "Very small, to see that everything works."
        net = re.sub(r'\(.*', '', self.net)+'(width=4)'
        return replace(self, clients=2, images=16, batch=8, tests=4, net=net)
    def __str__(self): return f'{self.clients} × {self.images} images, {self.net}, batch {self.batch}'

WORKS = dict(
    W1=Work(10, 512, 64, 'small_conv(width=32)', 256), W2=Work(10, 128, 64, 'resnet10'),
    W3=Work(100, 64, 64, 'small_conv(width=32)'), W4=Work(20, 64, 8, 'small_conv(width=4)', 32))

class BareLoop:
    "Client after client trains one model, and nothing is sent."
    def __init__(self, work:Work, suite:Suite, device='cpu'):
        def ready(d): return normalise(d.x.to(device), suite.mean, suite.std), d.y.to(device)
        self.train = [ready(c.train) for c in suite.clients]
        self.tests = [ready(t) for t in suite.tests.values()]
        self.net, self.batch, self.gen = work.make().to(device), work.batch, generator('bare loop')
        self.opt = torch.optim.SGD(self.net.parameters(), lr=.01, momentum=.9, weight_decay=1e-5)
    def one_round(self):
        self.net.train()
        for x, y in self.train:
            for i in torch.randperm(len(x), generator=self.gen).split(self.batch):
                self.opt.zero_grad()
                F.cross_entropy(self.net(x[i]).logits, y[i]).backward()
                self.opt.step()
    @torch.no_grad()
    def score(self, batch:int=64)->int:
        "How many test images it gets right."
        self.net.eval()
        pieces = [(x, y) for X, Y in self.tests for x, y in zip(X.split(batch), Y.split(batch))]
        return sum(int((self.net(x).logits.argmax(1) == y).sum()) for x, y in pieces)

def foreign_seconds(stat='/proc/stat')->float|None:
    "Processor seconds that others have used since the machine started; None where the system does not say."
    try: user, nice, system, _, _, *more = map(int, Path(stat).read_text().split('\n')[0].split()[1:9])
    except (OSError, ValueError): return None
    everybody = sum((user, nice, system, *more))/os.sysconf('SC_CLK_TCK')
    return everybody-sum(os.times()[:4])       # ours: this process and its ended children

def foreign_cores(begun:tuple)->float|None: # (foreign_seconds(), time.perf_counter())
    "How many cores others have used on average since then; None for less than half a second."
    now, passed = foreign_seconds(), time.perf_counter()-begun[1]
    if None in (now, begun[0]) or passed < .5: return None
    return round(max(0., (now-begun[0])/passed), 3)

def seconds_of(f, clock=time.perf_counter)->float:
    "How long one call takes."
    begun = clock()
    f()
    if torch.cuda.is_initialized(): torch.cuda.synchronize()
    return clock()-begun

def spread_of(values)->dict:
    "Median, lowest and highest, four digits each."
    spread = dict(value=statistics.median(values), lowest=min(values), highest=max(values))
    return {k: float(f'{v:.4g}') for k, v in spread.items()}

def ratios_of(seconds:dict, to:str)->dict: # {name: spread}
    "Seconds over those of the side `to`, pair by pair."
    return {n: spread_of([a/b for a, b in zip(v, seconds[to])]) for n, v in seconds.items() if n != to}

def race(
    sides:dict,       # {name: function}
    rounds:int=5,     # counted ones, after one as a warm-up
    to:str='bare',    # whose time is 1
    clock=time.perf_counter,
)->dict:              # ratios: {name: spread}, seconds: {name: list}, foreign: list
    "Let all sides run once per round, another one first each time."
    names, times, foreign = list(sides), {n: [] for n in sides}, []
    for f in sides.values(): f()
    for first in (r%len(names) for r in range(rounds)):
        begun = foreign_seconds(), time.perf_counter()
        for n in names[first:]+names[:first]: times[n].append(seconds_of(sides[n], clock))
        foreign.append(foreign_cores(begun))
    seconds = {n: [round(t, 5) for t in v] for n, v in times.items()}
    return dict(ratios=ratios_of(times, to), seconds=seconds, foreign=foreign)

def processor_name()->str:
    "What the system calls its processor."
    try: lines = Path('/proc/cpuinfo').read_text().splitlines()
    except OSError: return platform.processor() or platform.machine()
    fields = {k.strip(): v.strip() for k, _, v in (l.partition(':') for l in lines)}
    more = ', '.join(f'{k.split()[-1]} {fields[k]}' for k in ('cpu family', 'model') if k in fields)
    return fields.get('model name', platform.machine())+(f' ({more})' if more else '')

def machine_facts(device='cpu')->dict:
    "Everything about the machine that times depend on."
    gpu = torch.device(device).type == 'cuda'
    return dict(
        processor=processor_name(), cores=os.cpu_count(), threads=torch.get_num_threads(),
        instructions=torch.backends.cpu.get_cpu_capability(), bf16=has_bf16(device),
        device=torch.cuda.get_device_name(device) if gpu else str(device),
        torch=str(torch.__version__), python=sys.version.split()[0], system=platform.system())

def ask_round(side): return side.one_round()
def ask_scores(side): return side.score()
def ask_both(side):
    side.one_round()
    side.score()

BENCH_ITEMS = dict(    # work, what each side is asked, {precision: time over the bare loop's, at most}
    W1=('W1', ask_round, dict(fp32=.71, bf16=.45)), W2=('W2', ask_round, dict(fp32=.91, bf16=.50)),
    W3=('W3', ask_round, dict(fp32=.67, bf16=.40)), W4=('W4', ask_round, dict(fp32=.40)),
    evaluation=('W1', ask_scores, dict(fp32=.45, bf16=.28)),
    train_and_evaluate=('W1', ask_both, dict(fp32=.50)))

def bench_row(label:str, measured=None, unit:str='× bare loop', target:float|None=None, note:str='')->dict:
    "A line of the table; `measured` is a spread, a number, or None where nothing could be measured."
    v = measured if isinstance(measured, dict) else dict(value=measured, lowest=measured, highest=measured)
    return dict(what=label, **v, unit=unit, target=target, note=note)

def against_bare(name:str, pairs:int=5, device='cpu', tiny:bool=False)->dict:
    "Our time over the bare loop's for one item, in every precision that the processor has."
    work, ask, targets = BENCH_ITEMS[name]
    w = WORKS[work].shrunk() if tiny else WORKS[work]
    suite = w.suite()
    sides = dict(bare=BareLoop(w, suite, device))
    for p in targets:
        if p == 'fp32' or has_bf16(device): sides[p] = w.federation(suite, precision=p, device=device)
    raced = race({n: partial(ask, side) for n, side in sides.items()}, pairs)
    def row(p, t):
        note = '' if p in sides else 'no instructions for bfloat16 here'
        return bench_row(f'{name}, {p}', raced['ratios'].get(p), target=t, note=note)
    return dict(work=asdict(w), rows=[row(p, t) for p, t in targets.items()], **raced)

class BenchRow(Record):
    what:str
    unit:str
    note:str
    value:Number|None
    lowest:Number|None
    highest:Number|None
    target:Number|None

class BenchItem(Record): rows:list[BenchRow]

class Bench(Record):
    machine:dict
    items:dict[str, BenchItem]

def read_bench(path)->dict: # machine; items {name: date, pairs, tiny, rows, …}
    "A stored measurement."
    if not Path(path).exists():
        raise FileNotFoundError(f'{path} does not exist: make it by python tests/bench/bench.py --out {path}')
    return read_json(path, Bench, 'not a stored measurement', 'delete it, or choose another name')

def run_bench(
    jobs:dict,     # {name of an item: function, which returns its rows and more}
    out=None,      # JSON file; an older one of the same machine is added to
    device='cpu', **facts,
)->dict:
    "One item after the other, stored after each."
    machine = machine_facts(device)
    bench = read_bench(out) if out and Path(out).exists() else dict(machine=machine, items={})
    if bench['machine'] != machine:
        raise ValueError(f'{out} was measured on another machine or with other versions: choose another name')
    keep_freed_memory()
    for name, job in jobs.items():
        print(f'measuring {name}', file=sys.stderr, flush=True)
        bench['items'][name] = dict(date=str(date.today()), **facts) | job()
        if out: write_json(bench, out)
    return bench

def bench_frame(bench:dict)->pd.DataFrame:
    "All rows of a measurement, with the item they belong to and the verdict."
    rows = [dict(item=n) | r for n, i in bench['items'].items() for r in i['rows']]
    d = pd.DataFrame(rows, columns='item what value lowest highest unit target note'.split())
    def reached(v, t): return None if pd.isna(v) or pd.isna(t) else bool(v <= t)
    return d.assign(reached=[reached(v, t) for v, t in zip(d.value, d.target)])

def bench_source(bench:dict, names=None)->str:
    "Where, when and how these items were measured, and how much others did meanwhile."
    used = [bench['items'][n] for n in names or bench['items'] if n in bench['items']]
    dates, pairs = (', '.join(map(str, sorted({i[k] for i in used}))) for k in ('date', 'pairs'))
    says = '{processor}, {threads} threads, PyTorch {torch}, {device}'.format(**bench['machine'])
    says += f'; {dates}; median of {pairs} rounds (lowest to highest)'
    races = [r for i in used for r in (i, *i.get('races', {}).values())]
    load = [f for r in races for f in r.get('foreign', []) if f is not None]
    if load: says += f'; others used at most {max(load):.2f} cores'
    if any(i['tiny'] for i in used): says += '. TINY: the figures mean nothing'
    return says

def short_number(v:float)->str: return f'{v:,.0f}' if v >= 100 else f'{v:.3g}'

def _cells(r):
    verdict = {True: 'reached', False: 'not reached', None: ''}[r.reached]
    target = '' if pd.isna(r.target) else f'≤ {short_number(r.target)}'
    if pd.isna(r.value): return [r.what, r.note, '', target, verdict]
    spread = '' if r.lowest == r.highest else f'{short_number(r.lowest)} to {short_number(r.highest)}'
    return [r.what, f'{short_number(r.value)} {r.unit}', spread, target, verdict]

def bench_table(bench:dict, names=None, caption:str='Measured')->Table:
    "Medians with the lowest and the highest, targets, and whether they were reached."
    d = bench_frame(bench)
    if names: d = d[d['item'].isin(names)]
    rows = [_cells(r) for r in d.astype(dict(value=object, reached=object)).itertuples()]
    cells = pd.DataFrame(rows, columns=['', 'median', 'spread', 'target', 'verdict'])
    if d.target.isna().all(): cells = cells.iloc[:, :3]
    return Table(caption, cells, [bench_source(bench, names)])
