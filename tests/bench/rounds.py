"""What a round of each method costs: processor seconds over FedAvg's, bytes that are kept, bytes that are
sent.

The net and the batch of W1, one lane with one thread, clients never stacked. *At home* is what a client
must keep between two rounds; *in training* what it holds after its last step; *the server* keeps the model,
its memories and what it sends beside the model. Bytes are those of the tensors that are held, each piece of
memory counted once; activations are not in it. No method should take more than 2.5 times FedAvg's round;
three are only reported."""
import time
from contextlib import contextmanager
from dataclasses import asdict, replace
import pandas as pd, torch
from torch import Tensor, nn
from bare import WORKS, bench_row, bench_source, race, short_number
from fedskew_nb.analysis.table import Table
from fedskew_nb.data.suite import Suite
from fedskew_nb.engine.federation import Federation

ROUND = replace(WORKS['W1'], clients=4, images=256, tests=2)

def with_boxes(suite:Suite)->Suite:
    "The same images for training, each with a box in the middle."
    def boxed(d):
        near, far = d.x.shape[-1]//4, 3*d.x.shape[-1]//4
        return replace(d, boxes=torch.tensor([near, near, far, far]).repeat(len(d), 1))
    return replace(suite, clients=[replace(c, train=boxed(c.train)) for c in suite.clients])

def holds(o)->list:
    "What an object holds that may hold tensors."
    if isinstance(o, Tensor): return [o.grad] if o.is_leaf else []
    if isinstance(o, dict): return list(o.values())
    if isinstance(o, (list, tuple)): return list(o)
    if isinstance(o, nn.Module): return [*o.parameters(), *o.buffers()]
    if isinstance(o, torch.optim.Optimizer): return [o.param_groups, *o.state.values()]
    return [cell.cell_contents for cell in getattr(o, '__closure__', None) or ()]

def storages(o)->dict: # {address: bytes}
    "The pieces of memory in which the tensors of a nest lie."
    memory = o.untyped_storage() if isinstance(o, Tensor) else None
    sizes = {memory.data_ptr(): memory.nbytes()} if memory else {}
    for part in holds(o): sizes |= storages(part)
    return sizes

def bytes_held(*nests)->int: return sum(storages(nests).values())

@contextmanager
def noting(fed:Federation, sizes:list):
    "Inside, `sizes` grows by the bytes that each client holds after its last step."
    worker, last = fed.worker, []
    prepare, phases = worker._prepare, worker._phases
    def preparing(c, trainable):
        last[:] = [prepare(c, trainable)]
        return last[0]
    def counting(c):
        terms = phases(c)
        sizes.append(bytes_held(last, c.net, c.states, c.caches, c.down, c._received))
        return terms
    worker._prepare, worker._phases = preparing, counting
    try: yield
    finally: del worker._prepare, worker._phases

def footprint(fed:Federation)->dict: # bytes of the largest client at home and in training, …
    "Two rounds, and what is held and sent in and after the second one."
    sizes = []
    fed.one_round()
    with noting(fed, sizes): fed.one_round()
    own = [{n: v for n, v in tensors.items() if n in fed.kept} for tensors in fed.own.values()]
    given = [v for tensors in fed.own.values() for n, v in tensors.items() if n not in fed.kept]
    sent, n = fed.history.rounds[-1], len(fed.clients)
    return dict(
        home=max(map(bytes_held, own, fed.states.values())), training=max(sizes),
        server=bytes_held(fed.server, fed.memory, fed.down, given), up=sent['up']/n, down=sent['down']/n)

LIMIT = 2.5
REPORTED = dict(Ditto='trains two models', FedCCRL='trains on three views', FedGen='trains a generator')

def _limited(name:str, ratio:dict)->dict:
    "A line of the table, with the limit unless the method is only reported."
    limit = None if name in REPORTED else LIMIT
    return bench_row(name, ratio, '× FedAvg', limit, REPORTED.get(name, ''))

def beside_fedavg(name:str, pairs:int=5, device='cpu', tiny:bool=False)->dict:
    "Processor seconds of a round of one method over FedAvg's, and what both keep and send."
    w = ROUND.shrunk() if tiny else ROUND
    suite, how = with_boxes(w.suite()), dict(device=device, lanes=1, stack=False)
    feds = {n: w.federation(suite, n, **how) for n in ('FedAvg', name)}
    used = {n: footprint(fed) for n, fed in feds.items()}
    clock = time.process_time if device == 'cpu' else time.perf_counter
    raced = race({n: fed.one_round for n, fed in feds.items()}, pairs, 'FedAvg', clock)
    return dict(work=asdict(w), rows=[_limited(name, raced['ratios'][name])], bytes=used, **raced)

def _weights(method:str, item:dict)->dict: # in models
    "What a method keeps and sends, in models of FedAvg."
    own, plain = item['bytes'][method], item['bytes']['FedAvg']
    unit, more = plain['up'], dict(home=0, training=plain['training'], server=plain['server'])
    return {k: (v-more.get(k, 0))/unit for k, v in own.items()}

def rounds_frame(bench:dict)->pd.DataFrame: # a row per method, the costliest first
    "Ratios and bytes of every method that was measured, and whether it is above its limit."
    items = {n: i for n, i in bench['items'].items() if 'bytes' in i}
    rows = [dict(method=n) | i['rows'][0] | _weights(n, i) for n, i in items.items()]
    names = 'method value lowest highest target note home training server up down'.split()
    d = pd.DataFrame(rows, columns=names).sort_values('value', ascending=False, ignore_index=True)
    return d.assign(above=d.value > d.target)

def rounds_table(bench:dict, caption:str='A round of each method beside FedAvg')->Table:
    "Seconds over FedAvg's; bytes in FedAvg's models."
    d = rounds_frame(bench)
    def row(r):
        spread = f'{short_number(r.lowest)} to {short_number(r.highest)}'
        models = (f'{round(v, 2)+0:.2f}' for v in (r.home, r.training, r.server, r.up, r.down))
        return [r.method, f'{r.value:.2f}', spread, *models]
    columns = ['', '× FedAvg', 'spread', 'at home', 'in training', 'server', 'up', 'down']
    cells = pd.DataFrame(map(row, d.itertuples()), columns=columns)
    return Table(caption, cells, [bench_source(bench, list(d.method))])
