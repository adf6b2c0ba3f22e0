"Small federations, and what their tests ask of them."
import os
from dataclasses import replace
from functools import partial
import torch
from torch import nn
from fedskew_nb.data.load import load_suite
from fedskew_nb.run.recipes import method_recipe, model_recipe, suite_recipe
from fedskew_nb.run.named import named
from fedskew_nb.run.run import Run
from fedskew_nb.nets.models import gap, seq, small_conv
from fedskew_nb.core.net import Net
from fedskew_nb.core.seeding import generator, seeded
from fedskew_nb.engine.federation import Federation
from fedskew_nb.engine.setting import schedule

DEVICE = torch.device(os.environ.get('FEDSKEW_TEST_DEVICE', 'cpu'))          # pytest --device

def name_of(v):
    "A method's name, for the ids of pytest."
    return getattr(v, 'name', None)

def run_of(method='FedAvg', suite='emoji-pacs', model='small_conv', size='tiny', **facts):
    "A run of what can be typed."
    return Run(method_recipe(method), suite_recipe(suite, size), model_recipe(model), size=size, **facts)

def small(seed=0, width=4, size=32): return small_conv(7, size=size, width=width, seed=seed)
little = partial(small, size=16)      # for what `halved` gives

def run_name(run)->str:
    "The name of a run, made of what its parts are today."
    it, = named([run])
    return it.name

def fed_of(method, suite, net=None, **kw):
    how = dict(rounds=2, local_steps=2, batch_size=8, lr=.05) | kw
    net = small(size=getattr(suite, 'image_size', 32)) if net is None else net
    return Federation(method, net, suite, device=DEVICE, **how)

def run(method, suite, net=None, **kw):
    fed = fed_of(method, suite, net, **kw)
    fed.fit()
    return fed

def first(suite, n, tests=12):
    "The first clients and their domains, with fewer test images."
    kept = {c.domain: suite.tests[c.domain][:tests] for c in suite.clients[:n]}
    return replace(suite, clients=[replace(c, test=c.test[:tests]) for c in suite.clients[:n]], tests=kept)

def cut(suite, sizes, tests):
    "The first clients with so many images, and that many test images of each client and domain."
    clients = [replace(c, train=c.train[:n], test=c.test[:tests]) for c, n in zip(suite.clients, sizes)]
    return replace(suite, clients=clients, tests={d: t[:tests] for d, t in suite.tests.items()})

def few(data_seed):
    "Four domains of different sizes, with few images: a function of the seed, as runs take it."
    s = load_suite('emoji-pacs', 'tiny', data_seed)
    return replace(cut(s, (16, 24, 40, 64), tests=12), name='few')

def halved(suite):
    "Every second pixel of each row and column: a quarter of the work, for what holds at any size."
    def boxes(b): return torch.cat([b[:, :2]//2, (b[:, 2:]+1)//2], 1)
    def half(d):
        masks, box = d.masks, d.boxes
        return replace(d, x=d.x[..., ::2, ::2].contiguous(),
                       masks=None if masks is None else masks[..., ::2, ::2].contiguous(),
                       boxes=None if box is None else boxes(box))
    clients = [replace(c, train=half(c.train), val=half(c.val), test=half(c.test)) for c in suite.clients]
    tests, unseen = ({n: half(d) for n, d in of.items()} for of in (suite.tests, suite.unseen))
    return replace(suite, clients=clients, tests=tests, unseen=unseen)

def trained_once(suite, train=run):
    "`train` on a suite, done once for the same method and keywords: for tests that only read what came out."
    made = {}
    def of(method, **kw):
        key = f'{method.name} {method.spec()} {kw}'
        if key not in made: made[key] = train(method, suite, **kw)
        return made[key]
    return of

def rounds_of(method, suite, net=None, rounds=2, **kw):
    "A federation after its rounds, not scored."
    fed = fed_of(method, suite, net, rounds=rounds, **kw)
    for _ in range(rounds): fed.one_round()
    return fed

def batches_of(fed, rounds):
    "What each participant sees in each round, on the CPU, by the documented order: [{client: [(x, y), …]}]."
    s, out = fed.setting, []
    for r in range(rounds):
        fed.round_no, todo = r, {}
        for c in fed.participants():
            dice = generator(s.seed, r, c.id, 'all', 'order')
            cuts = schedule(len(c.train), s.batch_size, dice, s.local_epochs)
            todo[c.id] = [(fed.worker.images(c.train.x[i]).cpu(), c.train.y[i].cpu()) for i in cuts]
        out.append(todo)
    fed.round_no = 0
    return out

def sizes_of(fed): return {c.id: 1 if fed.setting.uniform else len(c.train) for c in fed.clients}

def in_two_parts(make, path):
    "Three rounds, saved after the first and gone on with by another federation; `make(rounds=3)` gives both."
    half = make(rounds=3)
    half.fit(1)
    half.save(path)
    rest = make(rounds=3).load(path)
    rest.fit()
    return rest

def whole_and_resumed(make, path):
    "The same three rounds in one go, and in two with a file between."
    whole = make(rounds=3)
    whole.fit()
    return whole, in_two_parts(make, path)

def central_steps(method, average, suite):
    "Servers after one step of a full batch: of three equal clients, and of one alone who is averaged."
    c = suite.clients[0]
    three = replace(suite, clients=[replace(c, id=k) for k in range(3)])
    kw = dict(rounds=1, local_steps=1, batch_size=64, momentum=0., weight_decay=0., stack=False)
    pairs = (method, three), (average, replace(suite, clients=[c]))
    return [rounds_of(m, s, little().double(), **kw).server for m, s in pairs]

def scores_alike(fed):
    "Are answers and scores the same when they are asked for twice?"
    for c in fed.clients:
        fed.worker.load(fed.state_of(c.id))
        if not same(*(fed.worker.probabilities(c.test.x) for _ in range(2))): return False
    n = len(fed.history.rows)
    fed.score()
    return fed.history.rows[n:] == [r for r in fed.history.rows[:n] if r['moment'] == 'post_agg']

def rests_where_it_must(layer):
    "A layer of style changes a batch in training, and no eval, no single image and no single pixel."
    x = images(4)
    assert not torch.equal(layer(x), x)
    assert layer.eval()(x) is x and torch.equal(layer.train()(x[:1]), x[:1])
    assert torch.equal(layer(x[..., :1, :1]), x[..., :1, :1])
    flat = torch.zeros(4, 3, 5, 5, requires_grad=True)
    layer(flat).sum().backward()
    return flat.grad.isfinite().all()

def odd_suites(suite):
    "A client alone; and three clients, of whom one has one class and one has one image."
    a, b, c = suite.clients[:3]
    poor = replace(b, train=b.train[(b.train.y == b.train.y[0]).nonzero().flatten()])
    return replace(suite, clients=[a]), replace(suite, clients=[a, poor, replace(c, train=c.train[:1])])

def far(a, b):
    "The largest difference of two states, over the names of the first."
    return max(float((a[n].cpu().double()-b[n].cpu().double()).detach().abs().max()) for n in a)

def same(a, b): return a.keys() == b.keys() and all(torch.equal(a[n].cpu(), b[n].cpu()) for n in a)
def states(fed): return [fed.server, *(fed.state_of(c.id) for c in fed.clients)]
def equal(a, b): return all(same(s, t) for s, t in zip(states(a), states(b)))

def narrow():
    "Six features, so that a loop over them or their pairs is short."
    with seeded(0):
        body = seq(conv=nn.Conv2d(3, 6, 5, stride=4), bn=nn.BatchNorm2d(6))
        return Net(body, gap(), nn.Linear(6, 7)).double()

def images(n=6, size=32, seed=0, dtype=torch.float32):
    return torch.randn(n, 3, size, size, generator=generator(seed, 'x')).to(dtype)
def labels(n=6, K=7, seed=0): return torch.randint(0, K, (n,), generator=generator(seed, 'y'))

def instead(argv, *more):
    "A call in which the options of `more` take the place of its own."
    argv, more = ([str(a) for a in args] for args in (argv, more))
    said = {a.partition('=')[0] for a in more if a[:2] == '--'}-{'--set'}
    own = [i for i, a in enumerate(argv) if a in said or (i and argv[i-1] in said and a[:2] != '--')]
    return [a for i, a in enumerate(argv) if i not in own]+more

def two(data_seed):
    "Two domains of different sizes, with few images in small pictures, as runs take it."
    return replace(halved(first(few(data_seed), 2, tests=6)), name='two')
