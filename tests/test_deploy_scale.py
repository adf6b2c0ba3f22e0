"Many sites: what the server holds while their answers come in, and what the letters weigh."
import weakref
import pytest, torch
from fedskew_nb import __version__
from fedskew_nb.run.recipes import METHODS
from fedskew_nb.core.context import Upload
from fedskew_nb.data.suite import Client, Suite
from fedskew_nb.deploy import hub as hubs
from fedskew_nb.deploy.hub import Elsewhere, hub_of
from fedskew_nb.deploy.surface import Job, noise
from fedskew_nb.engine.checkpoint import from_bytes, to_bytes

# ---- what the server holds

def many(job, n):
    "A federation of so many sites with an image for each class, and what each says of itself."
    data = [noise(k, 2, job.pixels) for k in range(n)]
    clients = [Client(k, f'd{k:03}', d, d[:0], d[:2]) for k, d in enumerate(data)]
    fed = job.federation(Suite('many', ['a', 'b'], clients, {c.domain: c.test for c in clients}))
    facts = dict(tests=2, trains=True, classes=['a', 'b'], norm=[[.5]*3, [.25]*3], version=__version__)
    facts |= dict(code=fed.made_of['code'], first_net=fed.made_of['first_net'], machine={})
    return fed, [facts | dict(name=f's{c.id:03}', domain=c.domain, n=len(c.train)) for c in clients]

class Letter(bytes):
    "Bytes that are counted while they are held."
    held = most = 0
    def __init__(self, *_):
        Letter.held += 1
        Letter.most = max(Letter.most, Letter.held)
    def __del__(self): Letter.held -= 1

def one_round(method, n, monkeypatch):
    "(hub, its far side, answers, most letters held, most states held)"
    job = Job(method, 'small_conv(width=4)', 8, dict(rounds=1, local_steps=1, batch_size=4))
    far, facts = many(job, n)
    answers, states, most = [], weakref.WeakSet(), [0]
    def post(letters):
        answers.extend(to_bytes(far.work(from_bytes(b))[0] | dict(round=1)) for b in letters.values())
        return {name: Letter(data) for name, data in zip(letters, answers[-len(letters):])}
    def opened(data):
        answer = from_bytes(data)
        states.add(answer['model']['head.weight'])
        most[0] = max(most[0], len(states))
        return answer
    monkeypatch.setattr(hubs, 'from_bytes', opened)
    hub, Letter.most = hub_of(job, facts, post), 0
    hub.one_round()
    return hub, far, answers, Letter.most, most[0]

@pytest.mark.parametrize('method, n, held', [('FedAvg', 200, 2), ('FedAvgM', 48, 2), ('FDSE', 48, 48)])
def test_a_sum_holds_no_more_for_more_sites(method, n, held, monkeypatch):
    "A rule that compares holds all; both equal the sum that waits for all, bit for bit."
    hub, far, answers, letters, states = one_round(method, n, monkeypatch)
    assert letters == Elsewhere.at_once and (states <= held if held < n else states == n)
    sent = [from_bytes(data) for data in answers]
    far.merge([Upload(a['client'], 4, '', a['model'], a['extra']) for a in sent])
    assert len(sent) == n and all(torch.equal(v, hub.server[name]) for name, v in far.server.items())

# ---- what the letters weigh

def two_rounds(method):
    "(bytes of the letters, the row of History) of the second of three rounds."
    job = Job(method, 'small_conv(width=64)', 16, dict(rounds=3, local_steps=2, batch_size=4))
    far, facts = many(job, 2)
    mine, sizes = {}, dict(up=0, down=0)
    def post(letters):
        sizes.update(up=0, down=0)
        return dict(zip(letters, map(answered, letters.values())))
    def answered(data):
        order = from_bytes(data)
        answer, mine[order['client']] = far.work(order, mine.get(order['client']))
        packed = to_bytes(answer | dict(round=order['round']+1))
        sizes.update(up=sizes['up']+len(packed), down=sizes['down']+len(data))
        return packed
    hub = hub_of(job, facts, post)
    for _ in range(2): hub.one_round()
    return sizes, hub.history.rounds[-1]

FEW = 'FDSE', 'LG-FedAvg', 'SCAFFOLD'

@pytest.mark.parametrize('method', [pytest.param(m, marks=() if m in FEW else pytest.mark.campaign)
                                    for m in METHODS])
def test_letters_weigh_what_history_says(method):
    "Within 1 %, and a kilobyte for names and the job."
    sizes, row = two_rounds(method)
    for way in ('up', 'down'): assert row[way] <= sizes[way] <= 1.01*row[way]+2*1000, (way, sizes, row)

def test_the_server_has_the_mean_that_the_net_expects(monkeypatch):
    made, job = Job.net, Job('FedAvg', 'small_conv(width=4)', 8, dict(rounds=1))
    def net(self, n):
        net = made(self, n)
        net.expects = dict(mean=(.1, .2, .3), std=(.4, .5, .6))
        return net
    monkeypatch.setattr(Job, 'net', net)
    far, facts = many(job, 2)
    hub = hub_of(job, facts, None)
    assert (hub.net.mean, hub.suite.std) == ((.1, .2, .3), (.4, .5, .6)) == (far.net.mean, far.suite.std)
