"Many sites: what the server holds while their answers come in, and what the letters weigh."
import weakref
import pytest, torch
from test_every_method import same_nest
from fedskew_nb import __version__
from fedskew_nb.run.recipes import METHODS
from fedskew_nb.core.context import Upload
from fedskew_nb.data.suite import Client, Suite
from fedskew_nb.deploy import hub as hub_code
from fedskew_nb.deploy.hub import Elsewhere, hub_of
from fedskew_nb.deploy.tree import branches, tree_of
from fedskew_nb.deploy.order import Job, order_of
from fedskew_nb.deploy.surface import noise
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
    monkeypatch.setattr(hub_code, 'from_bytes', opened)
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

# ---- a tree of hubs

def under(job, flat, facts, hubs, sizes):
    "The same sites under hubs; the letters at the server are weighed."
    facts = {f['name']: f for f in facts}
    def site(name, data):
        order = from_bytes(data)
        if order['kind'] == 'facts': return to_bytes(facts[name])
        assert 'secure' not in order['job']['setting']
        return to_bytes(flat.work(order)[0] | dict(round=order['round']+1))
    def post(letters):
        assert len(letters) <= Elsewhere.at_once
        return {n: site(n, data) for n, data in letters.items()}
    def weighed(hub):
        def answer(data):
            said = hub(data)
            if from_bytes(data)['kind'] == 'train': sizes.append((len(data), len(said)))
            return said
        return answer
    return tree_of(job, {name: weighed(hub) for name, hub in branches(facts, post, hubs).items()})

@pytest.mark.parametrize('method, n, hubs', [
    ('F2DC', 12, 3), pytest.param('FedAvgM', 1000, 10, marks=pytest.mark.campaign)])
def test_sums_of_sums_are_the_sum_of_all(method, n, hubs, monkeypatch):
    "Hubs' sites alternate, so floats would give other digits; a letter a hub and round, two sums at a time."
    job = Job(method, 'small_conv(width=4)', 8, dict(rounds=2, local_steps=1, batch_size=4, secure=True))
    flat, facts = many(job, n)
    sizes, sums, most = [], weakref.WeakSet(), [0]
    def opened(data):
        answer = from_bytes(data)
        v = answer.get('model', {}).get('head.weight')
        if v is not None and v.dtype == torch.int64: sums.add(v)
        most[0] = max(most[0], len(sums))
        return answer
    monkeypatch.setattr(hub_code, 'from_bytes', opened)
    tree = under(job, flat, facts, hubs, sizes)
    for fed in (tree, flat):
        for _ in range(2): fed.one_round()
    assert all(torch.equal(v, tree.server[name]) for name, v in flat.server.items())
    assert same_nest(tree.memory, flat.memory) and tree.history.rounds == flat.history.rounds
    up = flat.history.rounds[-1]['up']/n
    assert most[0] == 2
    assert len(sizes) == 2*hubs and all(got < 1.1*up+700*n/hubs+2000 for _, got in sizes)

def spoilt(change): return lambda a: a | dict(model={k: change(v) for k, v in a['model'].items()})

WRONG = [(spoilt(lambda v: v[:1]), 's000 sent what was not asked'),
         (spoilt(lambda v: v/0), 's000: a part of the sum is NaN'),
         (spoilt(lambda v: v*0+9e7), 's000: a part of the sum'),      # too large for three, not for two
         (spoilt(lambda v: -v-1), 's000 sent what was not asked for .*running_var'),
         (lambda a: a | dict(client=1), 'it is of client 1'),
         (lambda a: a | dict(extra=dict(x=1.)), 'more than'),
         (lambda a: dict(round=1), 's000 sent no answer')]

@pytest.mark.parametrize('wrong, why', WRONG)
def test_a_hub_refuses_what_a_server_refuses(wrong, why):
    job = Job('FedAvg', 'small_conv(width=4)', 8, dict(rounds=1, local_steps=1, batch_size=4, secure=True))
    flat, facts = many(job, 3)
    tree = under(job, flat, facts, 2, [])
    work = flat.work
    flat.work = lambda order: (wrong(work(order)[0]), None)
    before = tree.state
    with pytest.raises((ValueError, FloatingPointError), match=why): tree.one_round()
    assert tree.state is before

def test_a_site_that_sends_no_letter_is_named():
    hub, = branches(['a'], lambda letters: dict(a=b'x'), 1).values()
    order = order_of(Job('FedAvg'), 'facts') | dict(to={}, shares={}, parts=0)
    with pytest.raises(ValueError, match='^a sent no answer'): hub(to_bytes(order))

@pytest.mark.parametrize('wrong, why', [
    (dict(parts='x'), 'parts is .x., not a whole number'), (dict(round=-1), 'round is -1: at least 0'),
    (dict(shares=dict(b=1.)), 'shares are of other sites'),
    (dict(to=dict(a=0, b=1), shares=dict(a=.5, b=.5)), 'parts is 1: at least 2'),
    (dict(more=1), 'what is .more.'), (dict(job={}), 'this is no job')])
def test_a_hub_does_what_is_an_order(wrong, why):
    def post(letters): raise AssertionError('asked')
    hub, = branches(['a'], post, 1).values()
    order = order_of(Job('FedAvg'), 'train') | dict(to=dict(a=0), shares=dict(a=1.), parts=1)
    with pytest.raises(AssertionError, match='asked'): hub(to_bytes(order))
    with pytest.raises(ValueError, match=why): hub(to_bytes(order | wrong))

@pytest.mark.parametrize('answer, why', [
    (lambda a: a | dict(said={}), 'hub 1 sent no sum .it is of other sites'),
    (lambda a: dict(x=1), 'hub 1 sent no sum'), (lambda a: a | dict(said=5), 'hub 1 sent no sum .said is 5'),
    (spoilt(lambda v: v*0-2**63), 'is above what its sites can send'),
    (lambda a: a | dict(model={}), 'hub 1 sent no sum .*is missing'),
    (lambda a: a | dict(model=a['model'] | dict(x=torch.ones(2).long())), 'hub 1 sent no sum .*has no x'),
    (lambda a: a | dict(more=1), 'hub 1 sent no sum .what is .more.'),
    (spoilt(lambda v: v[:1]), 'hub 1 sent no sum .*, not '),
    (spoilt(lambda v: v/2**36), 'hub 1 sent no sum .*float32, not'),
    (spoilt(lambda v: v*float('nan')), 'hub 1 sent no sum .*float32, not'),
    (spoilt(lambda v: 1), 'hub 1 sent no sum .*is a int'),
    (spoilt(lambda v: -v-1), 'hub 1 sent no sum .*no BatchNorm has that')])
def test_a_server_believes_no_hub(answer, why):
    job = Job('FedAvg', 'small_conv(width=4)', 8, dict(rounds=1, local_steps=1, batch_size=4, secure=True))
    flat, facts = many(job, 3)
    tree = under(job, flat, facts, 1, [])
    post = tree.sites.post
    def changed(letters): return {n: to_bytes(answer(from_bytes(a))) for n, a in post(letters).items()}
    tree.sites.post = changed
    with pytest.raises(ValueError, match=why): tree.one_round()
    tree.sites.post = lambda letters: {}
    with pytest.raises(ConnectionError, match='hub 1 did not answer'): tree.one_round()

@pytest.mark.parametrize('answer, why', [
    (lambda a: b'x', 'hub 1 sent no answer'), (lambda a: to_bytes({}), 'hub 1 sent no sum .it has no said'),
    (lambda a: to_bytes(a | dict(said=dict(a=5))), 'hub 1 sent no sum .said.a is 5, not a table'),
    (lambda a: to_bytes(a | dict(said=dict(b=a['said']['s000']))), 'hub 1 says of b that it is s000')])
def test_a_server_believes_no_hub_that_tells_of_its_sites(answer, why):
    job = Job('FedAvg', 'small_conv(width=4)', 8, dict(rounds=1, local_steps=1, batch_size=4, secure=True))
    flat, facts = many(job, 3)
    facts = {f['name']: f for f in facts}
    hub, = branches(facts, lambda letters: {n: to_bytes(facts[n]) for n in letters}, 1).values()
    with pytest.raises(ValueError, match=why):
        tree_of(job, {'hub 1': lambda letter: answer(from_bytes(hub(letter)))})

@pytest.mark.parametrize('method, how, why', [('FDSE', dict(secure=True), 'FDSE cannot run with secure=True'),
                                              ('FedAvg', {}, 'say --set secure=true')])
def test_a_tree_is_for_sums(method, how, why):
    job = Job(method, 'small_conv(width=4)', 8, dict(rounds=1, local_steps=1, batch_size=4) | how)
    flat, facts = many(job, 3)
    with pytest.raises(ValueError, match=why): under(job, flat, facts, 1, []).one_round()
