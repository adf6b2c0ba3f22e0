"""The engine as a plain loop: no workers, no lanes, no inbox.

Every upload is kept, every rule sees the stacked rows, every model is asked about every set. Of the package
it uses the hooks of a method, what they see, and the documented order of batches and dice.
"""
import copy
import torch
from feds import DEVICE
from fedskew_nb.core.context import ClientContext, ServerContext, Upload
from fedskew_nb.core.seeding import Random, generator
from fedskew_nb.data.batch import draw_moves, move
from fedskew_nb.core.net import normalise
from fedskew_nb.engine.setting import schedule, setting_for

def sum_in_order(R, w):
    total = torch.zeros_like(R[0])
    for x, p in zip(R, w): total.add_(x, alpha=float(p))
    return total

def row(state, names): return torch.cat([state[n].flatten() for n in names])

class PlainEngine:
    def __init__(self, method, net, suite, **kw):
        self.method, self.setting, self.suite = method, setting_for(method, **kw), suite.to(DEVICE)
        net = method.adapt(net, self.setting.seed)
        self.net = net.to(DEVICE, memory_format=torch.channels_last)
        self.server = {n: v.clone() for n, v in self.net.state_dict().items()}
        self.own, self.states, self.caches = ({c.id: {} for c in suite.clients} for _ in range(3))
        self.memory, self.down, self.rows, self.rounds = {}, {}, [], []

    def fit(self):
        for r in range(self.setting.rounds):
            self.one_round(r)
            last = r+1 == self.setting.rounds
            if last or (r+1)%self.setting.eval_every == 0: self.score(r, last)
        return self

    def model(self, state):
        "A net of its own with these numbers."
        m = copy.deepcopy(self.net)
        m.load_state_dict(state)
        return m

    def model_of(self, k): return self.model(self.server | self.own.get(k, {}))

    # ---- a client

    def as_input(self, x):
        images = normalise(x, self.suite.mean, self.suite.std)
        return images.contiguous(memory_format=torch.channels_last)

    def train(self, c, r):
        "SGD of PyTorch on a model of its own: (upload, means of the loss terms, trained model)."
        s, method, start = self.setting, self.method, self.server | self.own[c.id]
        m, lr, sums = self.model(start), s.lr*s.decay**r, {}
        ctx = ClientContext(c.id, m, c, self.states[c.id], self.caches[c.id], self.down, s.seed, r, s.rounds,
                            DEVICE, lr, receive=lambda: self.model(start))
        method.everyone('start', ctx)
        whole = [('all', s.local_epochs, lambda n: True)]
        for ctx.phase, epochs, learns in method.one('phases', s.local_epochs) or whole:
            self.prepare(ctx, learns)
            live = [p for p in m.parameters() if p.requires_grad]
            opt = torch.optim.SGD(live, lr, momentum=s.momentum, weight_decay=s.weight_decay)
            for i in schedule(len(c.train), s.batch_size, ctx.gen('order'), epochs, s.local_steps):
                for k, v in self.step(ctx, opt, i).items(): sums[k] = sums.get(k, 0)+v.detach()
        up = Upload(c.id, len(c.train), c.domain, m.state_dict(), method.union('finish', ctx))
        return up, {k: float(v)/ctx.steps for k, v in sums.items()}, m

    def prepare(self, ctx, learns):
        "What does not learn is frozen, and in eval; what draws gets the dice of its name."
        ctx.net.train()
        for n, p in ctx.net.named_parameters(): p.requires_grad_(learns(n))
        for n, module in ctx.net.named_modules():
            if isinstance(module, Random): module.generator = ctx.gen(f'net.{n}')
            ps = list(module.parameters(recurse=False))
            if ps and not any(p.requires_grad for p in ps): module.eval()

    def step(self, ctx, opt, i):
        "One batch: its loss terms."
        s, d = self.setting, ctx.data.train
        b = self.method.make_batch(ctx, dict(x=d.x[i], y=d.y[i], i=i))
        moves = draw_moves(len(i), ctx.gen('augment'), s.pad, s.flip) if s.pad or s.flip else None
        def ready(v): return self.as_input(move(v, moves) if moves else v)
        b = {k: ready(v) if v.dtype == torch.uint8 else v for k, v in b.items()}
        out = self.method.run_forward(ctx, b)
        self.method.everyone('inner', ctx, b, out)
        terms = self.method.terms(ctx, b, out)
        opt.zero_grad()
        sum(terms.values()).backward()
        opt.step()
        ctx.steps += 1
        return terms

    # ---- the server

    def participants(self, r):
        clients, share = self.suite.clients, self.setting.participation
        k = max(1, round(share*len(clients)))
        drawn = torch.randperm(len(clients), generator=generator(self.setting.seed, r, 'participants'))
        return [clients[i] for i in sorted(drawn[:k].tolist())]

    def one_round(self, r):
        who = self.participants(r)
        done = [self.train(c, r) for c in who]
        ups, terms = [u for u, _, _ in done], [t for _, t, _ in done]
        if r+1 == self.setting.rounds:
            for c, (_, _, m) in zip(who, done):
                self.ask(m, c.test, r, moment='post_local', view='personal', domain=c.domain, client=c.id)
        self.aggregate(ups, r)
        self.down = self.method.union('extras', self.context(ups, r), ups)
        terms = {k: sum(t.get(k, 0) for t in terms)/len(terms) for k in {k: 0 for t in terms for k in t}}
        took_part = [c.id for c in who]
        self.rounds.append(dict(round=r+1, loss=sum(terms.values()), terms=terms, participants=took_part))

    def context(self, ups, r, **more):
        clients, s = self.suite.clients, self.setting
        sizes, domains = {c.id: len(c.train) for c in clients}, {c.id: c.domain for c in clients}
        return ServerContext(self.memory, [u.id for u in ups], sizes, domains, r, s.rounds, s.seed,
                             n_classes=self.suite.n_classes, **more)

    def weights(self, ups, r):
        w = self.method.one('weights', self.context(ups, r), ups)
        if w is None: w = torch.tensor([float(u.n) for u in ups])
        return w.double()/w.double().sum()

    def aggregate(self, ups, r):
        w, old, groups = self.weights(ups, r), self.server, {}
        mine = {u.id: old | self.own[u.id] for u in ups}
        for n, (m, rule) in self.method.rules(self.net).items():
            groups.setdefault((id(m), rule.fn, rule.by(n)), (m, rule, []))[2].append(n)
        self.server = dict(old)
        for m, rule, names in groups.values():
            srv = self.context(ups, r, names=names, shapes=[old[n].shape for n in names])
            V = torch.stack([row(u.state, names) for u in ups])
            g = torch.stack([row(mine[u.id], names) for u in ups])
            R = rule.fn(V, g, w, srv.window(m) if m else srv)
            if R.ndim == 2:
                for u, x in zip(ups, R): self.own[u.id] |= {n: v.clone() for n, v in srv.split(x).items()}
            if rule.fn.__name__ != 'keep': self.server |= srv.split(R if R.ndim == 1 else sum_in_order(R, w))

    # ---- scores

    @torch.no_grad()
    def ask(self, m, data, r, default='', **facts):
        "How many images a model gets right on each path, no norm folded."
        right = {}
        m.eval()
        for x, y in zip(data.x.split(64), data.y.split(64)):
            out = m(self.as_input(x))
            for path, p in ({'': out.logits.softmax(1)} | self.method.union('predict', m, out)).items():
                right[path] = right.get(path, 0)+int((p.argmax(1) == y).sum())
        for path, k in right.items():
            self.rows.append(dict(round=r+1, path=path or default, n=len(data), correct=k, **facts))

    def score(self, r, last):
        said, personal = dict(r=r, moment='post_agg'), any(self.own.values())
        everywhere = personal and any(m.everywhere for m in self.method.mechanisms)
        def about_all(k, **more):
            for d, t in self.suite.tests.items():
                self.ask(self.model_of(k), t, view='global', domain=d, client=k, **said, **more)
        if not personal: about_all(-1)
        if not personal and not last: return
        for c in self.suite.clients:
            self.ask(self.model_of(c.id), c.test, view='personal', domain=c.domain, client=c.id, **said)
            if everywhere: about_all(c.id, default='client')
