"""One side of `peers.py` in a process of its own: it is asked over a socket, and trains one round each time.

    PYTHON tests/bench/peer_sides.py SIDE CLIENTS_AT_A_TIME WORK.pt ADDRESS

It needs PyTorch and, for a peer, that peer. All sides get the same images, first weights, batch size and
optimiser, whose momentum starts from zero in each round. The images lie in memory, normalised. The cores are
shared by the clients that train at the same time.
"""
import copy, os, sys, tempfile, types
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from multiprocessing.connection import Client
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, TensorDataset

@lru_cache
def read_work(path):
    "What `peers.py` stored: images as bytes, labels, the first state, batch size, epochs."
    w = torch.load(path)
    w['x'] = (w['x']/255-.5)/.5
    return w

def net_of(w):
    "The network of the package's `small_conv`, from PyTorch alone."
    width = len(w['state'][0])
    def block(ni, nf):
        return [nn.Conv2d(ni, nf, 3, padding=1, bias=False), nn.BatchNorm2d(nf), nn.ReLU(), nn.MaxPool2d(2)]
    body = block(3, width)+block(width, 2*width)+block(2*width, 4*width)
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(64*width, 128), nn.ReLU(), nn.Linear(128, 10))

def started(net, w):
    "The network, with the first state."
    net.load_state_dict(dict(zip(net.state_dict(), w['state'])))
    return net

@lru_cache
def own_net(path): return net_of(read_work(path))

def batches_of(x, y, batch):
    for i in torch.randperm(len(x)).split(batch): yield x[i], y[i]

def train(net, loader, opt, epochs):
    "Local training as all write it; `loader()` gives the batches of an epoch."
    net.train()
    for _ in range(epochs):
        for x, y in loader():
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

@contextmanager
def counted():
    "While it is open, steps and training images of this process are counted."
    steps, images = [], []
    def images_of(m, args):
        if isinstance(m, nn.Conv2d) and m.in_channels == 3: images.append(len(args[0]))
    hooks = [register_optimizer_step_post_hook(lambda *_: steps.append(1)),
             nn.modules.module.register_module_forward_pre_hook(images_of)]
    count = {}
    try: yield count
    finally:
        for h in hooks: h.remove()
        count.update(steps=len(steps), images=sum(images))

class Side:
    "A federation; `one_round`, and `state` with all tensors of the global model in the network's order."
    version, sgd = '', dict(lr=.01, momentum=.9, weight_decay=1e-5)
    def __init__(self, path, at_once):
        self.path, self.work, self.at_once = path, read_work(path), at_once
        torch.set_num_threads(max(1, os.cpu_count()//at_once))
        self.make()
    def state(self): return list(self.net.state_dict().values())
    def counted_round(self):
        with counted() as count: self.one_round()
        return count
    def answer(self, wire):
        "A round for each `round`; `count` also says what was done; all else ends it."
        wire.send(self.version)
        for ask in iter(wire.recv, 'stop'):
            if ask == 'round': wire.send(self.one_round())
            else:
                done = self.counted_round()
                state = [v.float().numpy() for v in self.state()]
                wire.send(done | dict(state=state, torch=torch.__version__))

class Bare(Side):
    "No federation: one network learns from client after client."
    def make(self):
        self.net = started(net_of(self.work), self.work)
        self.opt = torch.optim.SGD(self.net.parameters(), **self.sgd)
    def one_round(self):
        w = self.work
        for x, y in zip(w['x'], w['y']):
            train(self.net, lambda: batches_of(x, y, w['batch']), self.opt, w['epochs'])

class ByHand(Side):
    "The plain loop that the others are compared with: a copy for each client, and the mean of their states."
    def make(self): self.net = started(net_of(self.work), self.work)
    def one_round(self):
        w, states = self.work, []
        for x, y in zip(w['x'], w['y']):
            net = copy.deepcopy(self.net)
            opt = torch.optim.SGD(net.parameters(), **self.sgd)
            train(net, lambda: batches_of(x, y, w['batch']), opt, w['epochs'])
            states.append(net.state_dict())
        mean = {n: torch.stack([s[n].double() for s in states]).mean(0) for n in states[0]}
        self.net.load_state_dict(mean)

class NoMomentum(ByHand):
    "A control: the same loop with another optimiser."
    sgd = ByHand.sgd | dict(momentum=0.)

class Ours(Side):
    "This package."
    def make(self):
        from fedskew_nb import __version__
        from bare import Work
        work = Work(**self.work['work'])
        how = dict(lanes=self.at_once, threads=torch.get_num_threads(), local_epochs=self.work['epochs'])
        self.fed = work.federation(work.suite(), stack=False, **how)       # W1 and W3 are not stacked anyway
        self.version = __version__
    def one_round(self): self.fed.one_round()
    def state(self): return list(self.fed.model().state_dict().values())

class PFLlib(Side):
    """The loop of TsingZ0/PFLlib (client files at 004a405, read 2026-11-25), retyped from its description.

    Each client keeps a model, an optimiser and its images as a list of pairs. Only parameters are sent and
    averaged. Momentum and decay, which PFLlib has not, are added. PFLlib reads a client's file in each round;
    here the pairs stay in memory.
    """
    version = '004a405'
    def make(self):
        self.net, self.clients = started(net_of(self.work), self.work), []
        for x, y in zip(self.work['x'], self.work['y']):
            net = copy.deepcopy(self.net)
            self.clients.append((net, torch.optim.SGD(net.parameters(), **self.sgd), list(zip(x, y))))
    def one_round(self):
        for net, _, _ in self.clients:
            for p, q in zip(self.net.parameters(), net.parameters()): q.data = p.data.clone()
        for net, opt, pairs in self.clients:
            opt.state.clear()
            loader = DataLoader(pairs, self.work['batch'], shuffle=True, drop_last=True)
            train(net, lambda: loader, opt, self.work['epochs'])
        self.net = copy.deepcopy(self.clients[0][0])
        for p in self.net.parameters(): p.data.zero_()
        n = sum(len(pairs) for *_, pairs in self.clients)
        for net, _, pairs in self.clients:
            for p, q in zip(self.net.parameters(), net.parameters()): p.data += q.data.clone()*(len(pairs)/n)

class FLGo(Side):
    "Its horizontal FedAvg on a task of tensors; all clients in each round."
    def task(self, path):
        "FLGo looks for a task's classes in a module; this one is not a file."
        import flgo
        from flgo.benchmark.partition import BasicPartitioner
        from flgo.benchmark.toolkits.cv.classification import (
            FromDatasetGenerator, FromDatasetPipe, GeneralCalculator)
        x, y = self.work['x'].flatten(0, 1), self.work['y']
        data, parts = TensorDataset(x, y.flatten()), torch.arange(len(x)).view(y.shape).tolist()
        class Parts(BasicPartitioner):
            num_clients = len(parts)
            def __call__(self, data): return parts
        class Generator(FromDatasetGenerator):
            __module__ = 'noise.core'
            def __init__(self): super().__init__('noise', data, test_data=data)
        class Pipe(FromDatasetPipe):
            def __init__(self, path): super().__init__(path, data, test_data=data)
        Pipe.TaskDataset.__getitems__ = lambda self, ids: [self[i] for i in ids]      # PyTorch asks for it
        sys.modules['noise'], core = types.ModuleType('noise'), types.ModuleType('noise.core')
        sys.modules['noise.core'] = core
        core.TaskGenerator, core.TaskPipe, core.TaskCalculator = Generator, Pipe, GeneralCalculator
        flgo.gen_task_by_(sys.modules['noise'], Parts(), path)
    def make(self):
        import flgo
        from flgo.algorithm import fedavg
        self.version, w, path = version('flgo'), self.work, f'{tempfile.mkdtemp()}/noise'
        self.task(path)
        options = dict(
            sample='full', proportion=1., train_holdout=0., num_epochs=w['epochs'], batch_size=w['batch'],
            torch_num_threads=torch.get_num_threads(), num_parallels=self.at_once, parallel_type='t',
            no_log_console=True, no_tqdm=True, learning_rate=self.sgd['lr'], momentum=self.sgd['momentum'],
            weight_decay=self.sgd['weight_decay'])
        self.server = flgo.init(path, fedavg, options, flgo.convert_model(lambda: net_of(w)))
        started(self.server.model, w)
    def one_round(self):
        self.server.gv.clock.step()
        self.server.iterate()
        self.server.current_round += 1
    def state(self): return list(self.server.model.state_dict().values())

class BlazeFL(Side):
    "Its FedAvg, with the trainer of one client at a time or that of threads; momentum and decay are added."
    def make(self):
        from blazefl.contrib import fedavg
        self.version, w = version('blazefl'), self.work
        def loader(type_, cid, batch_size, generator=None):
            data = TensorDataset(w['x'][cid], w['y'][cid])
            return DataLoader(data, batch_size, shuffle=True, generator=generator)
        def local(net, start, batches, cid):
            fedavg.deserialize_model(net, start)
            train(net, lambda: batches, torch.optim.SGD(net.parameters(), **self.sgd), w['epochs'])
            return fedavg.FedAvgUplinkPackage(cid, fedavg.serialize_model(net), len(batches.dataset))
        class Single(fedavg.FedAvgBaseClientTrainer):
            def train(self, start, batches, cid): return local(self.model, start, batches, cid)
        class Threads(fedavg.FedAvgThreadPoolClientTrainer):
            def train(self, model, model_parameters, train_loader, cid, **_):
                return local(model, model_parameters, train_loader, cid)
        both = dict(
            model_selector=types.SimpleNamespace(select_model=lambda name: net_of(w)), model_name='net',
            dataset=types.SimpleNamespace(get_dataloader=loader), device='cpu', num_clients=len(w['x']),
            batch_size=w['batch'], seed=0)
        how = dict(epochs=w['epochs'], lr=self.sgd['lr'], **both)
        self.server = fedavg.FedAvgBaseServerHandler(global_round=10**6, sample_ratio=1., **both)
        started(self.server.model, w)
        self.clients = Single(**how) if self.at_once == 1 else Threads(num_parallels=self.at_once, **how)
    def one_round(self):
        self.clients.local_process(self.server.downlink_package(), self.server.sample_clients())
        for package in self.clients.uplink_package(): self.server.load(package)
    def state(self): return list(self.server.model.state_dict().values())

def flower_client(path, threads):
    "An app whose clients train as all write it, on their part of the images."
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    app = ClientApp()
    @app.train()
    def one(message, context):
        torch.set_num_threads(threads)
        w, k = read_work(path), context.node_config['partition-id']
        net = own_net(path)
        net.load_state_dict(message.content['arrays'].to_torch_state_dict())
        opt = torch.optim.SGD(net.parameters(), **Side.sgd)
        def go(): train(net, lambda: batches_of(w['x'][k], w['y'][k], w['batch']), opt, w['epochs'])
        count = {}
        if message.content['config']['count']:
            with counted() as count: go()
        else: go()
        said = MetricRecord({'num-examples': len(w['x'][k]), **count})
        return Message(RecordDict(dict(arrays=ArrayRecord(net.state_dict()), metrics=said)), reply_to=message)
    return app

class Flower(Side):
    "Its simulation: a number of Ray actors, each with its share of the cores; FedAvg, no evaluation."
    def make(self):
        self.version = f"{version('flwr')}, Ray {version('ray')}"
        self.net = started(net_of(self.work), self.work)
    def answer(self, wire):
        "The server's app is the one that answers, as long as the simulation lasts."
        from flwr.serverapp import ServerApp
        from flwr.simulation import run_simulation
        app = ServerApp()
        @app.main()
        def main(grid, context):
            self.grid = grid
            super(Flower, self).answer(wire)
        each = dict(num_cpus=torch.get_num_threads(), num_gpus=0.)
        init = dict(address='local', num_cpus=os.cpu_count(), object_store_memory=2**29)
        run_simulation(app, flower_client(self.path, torch.get_num_threads()), len(self.work['x']),
                       backend_config=dict(client_resources=each, init_args=init))
    def one_round(self, count=False):
        from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
        from flwr.serverapp.strategy import FedAvg
        totals = {}
        def total(replies, key):
            for r in replies:
                for n, v in next(iter(r.metric_records.values())).items(): totals[n] = totals.get(n, 0)+v
            return MetricRecord()
        K, now = len(self.work['x']), ArrayRecord(self.net.state_dict())
        plan = FedAvg(fraction_evaluate=0., min_available_nodes=K, train_metrics_aggr_fn=total)
        result = plan.start(self.grid, now, num_rounds=1, train_config=ConfigRecord(dict(count=count)))
        self.net.load_state_dict(result.arrays.to_torch_state_dict())
        return {n: totals.get(n) for n in ('steps', 'images')}
    def counted_round(self): return self.one_round(count=True)

def serve(side, at_once, path, address):
    with Client(address) as wire: globals()[side](path, int(at_once)).answer(wire)

if __name__ == '__main__':
    from peer_sides import serve      # under its name: Ray's processes look for it there
    args = sys.argv[1:]
    del sys.argv[1:]                  # FLGo reads them
    serve(*args)
