"A secure sum over sites, and a server that lies: each lie is refused by the nodes before anything leaves."
import json
import pytest, torch
from test_deploy import cache, draw          # noqa: F401
from fedskew_nb.data.folder import load_folder
from fedskew_nb.deploy.flower import rehearsal
from fedskew_nb.deploy.hub import hub_of
from fedskew_nb.deploy.keys import write_pair
from fedskew_nb.deploy.node import Node, Seal, order_of
from fedskew_nb.deploy.surface import Job
from fedskew_nb.engine.checkpoint import from_bytes, to_bytes
from fedskew_nb.engine.server import SCALE

pytest.importorskip('cryptography')
SITES = dict(a='dawn', b='dusk', c='noon', d='rain')

def job(method='FedAvg', **more):
    how = dict(rounds=2, local_steps=2, batch_size=8, lr=.05, secure=True) | more
    return Job(method, 'small_conv(width=4)', 16, how)

@pytest.fixture(scope='module')
def place(tmp_path_factory):
    home = tmp_path_factory.mktemp('secure')
    for site, domain in SITES.items():
        draw(home/site, domain)
        draw(home/'all', domain)
        write_pair(home/'keys', site)
    return home

class Field:
    "Nodes of four sites, and a server that may change what it sends to one of them."
    def __init__(self, place, home, which='abcd'):
        keys = place/'keys'
        self.nodes = {s: Node(place/s, home/s, tell=None, seal=Seal(keys/s, keys)) for s in which}
        self.job, self.lie, self.seen = job(), {}, []
        self.ask = to_bytes(order_of(self.job, 'facts'))
    def facts(self): return [from_bytes(n(self.ask)) for n in self.nodes.values()]
    def post(self, letters):
        answers = {}
        for name, data in letters.items():
            order = from_bytes(data)
            order |= self.lie.get((order['kind'], name), lambda o: {})(order)
            answers[name] = self.nodes[name](to_bytes(order))
            self.seen.append((name, order, from_bytes(answers[name])))
        return answers
    def hub(self): return hub_of(self.job, self.facts(), self.post)
    def part(self):
        "The first that came."
        sent = (answer['model'] for _, order, answer in self.seen if order['kind'] == 'train')
        return next(sent)['head.weight']

@pytest.fixture
def field(place, tmp_path): return Field(place, tmp_path)

def refused(hub, says):
    "The round is, and what the hub has is as before."
    before, done = hub.server, hub.round_no
    with pytest.raises(ValueError, match=says): hub.one_round()
    assert hub.round_no == done and hub.server is before

@pytest.mark.parametrize('method', ['FedAvg', 'FedBN', 'F2DC', 'FedAdam'])
def test_four_sites_are_fit_with_secure_on_their_union_bit_for_bit(place, tmp_path, method):
    what = job(method)
    fed = what.federation(load_folder(place/'all', 16))
    fed.fit(progress=False)
    hub = rehearsal(what, [place/s for s in SITES], tmp_path)
    hub.fit(progress=False)
    assert hub.history.rounds == fed.history.rounds
    for n in fed.server.keys()-fed.kept: assert torch.equal(hub.server[n], fed.server[n]), n

def test_what_the_server_gets_is_no_model(field):
    "A part is spread over all 64 bits, and asked again, it is another number."
    hub = field.hub()
    hub.one_round()
    part = field.part()
    assert float((part.double()/SCALE).abs().median()) > 1e6
    first, field.seen = part, []
    again = field.hub()
    again.one_round()
    assert not (first == field.part()).any()
    assert torch.equal(again.server['head.weight'], hub.server['head.weight'])

def changed(order):
    model = {n: v+1 if v.is_floating_point() else v for n, v in order['model'].items()}
    return dict(model=model)

def lighter(order):
    "Weights 1, 0, 0, 0: the others are said to have no images to speak of."
    said = [dict(s, said=s['said'] | dict(n=1)) if s['said']['name'] != 'a' else s for s in order['members']]
    return dict(members=said)

def of_two(order): return dict(members=order['members'][:2])
def twice_a(order): return dict(members=[order['members'][0], *order['members'][:3]])

LIES = dict(weights=(lighter, 'did not sign'), unequal=(changed, 'another model'),
            two=(of_two, 'three members'), twice=(twice_a, 'three members'),
            merged=(lambda o: dict(merged=1, fresh=True), 'another model'),
            absent=(lambda o: dict(members=o['members'][1:]), 'its own word'),
            round=(lambda o: dict(round=1), 'another round'))

@pytest.mark.parametrize('lie', LIES)
def test_a_lie_to_one_site_is_refused_by_it(field, lie):
    what, says = LIES[lie]
    field.lie['train', 'a'] = what
    refused(field.hub(), f'a answers no such round: .*{says}')
    assert not any(order['kind'] == 'train' and name == 'a' for name, order, _ in field.seen)

def test_a_digest_that_is_not_the_models_is_refused(field):
    for s in SITES: field.lie['pledge', s] = lambda o: dict(asked='0'*64)
    refused(field.hub(), 'another model')

def test_a_mask_is_used_once(field, tmp_path):
    "The same letters again, and with an old signature."
    hub = field.hub()
    hub.one_round()
    name, order, _ = next(s for s in field.seen if s[1]['kind'] == 'train')
    with pytest.raises(ValueError, match='used it: ask for a new one'): field.nodes[name](to_bytes(order))
    field.nodes[name](to_bytes(order_of(field.job, 'pledge', client=order['client'], asked='1'*64)))
    file, = tmp_path.rglob('pledge.json')
    assert oct(file.stat().st_mode & 0o777) == '0o600'      # a private key lies in it
    with pytest.raises(ValueError, match='its own word is not'): field.nodes[name](to_bytes(order))

def test_a_second_sum_without_a_site_is_refused_in_any_run(field, place):
    "Site d dies after the others have sent their parts: the round is void, and no sum of three is given out."
    hub, node = field.hub(), field.nodes['d']
    def dies(order): raise ConnectionError('d is gone')
    field.lie['train', 'd'] = dies
    with pytest.raises(ConnectionError): hub.one_round()
    assert hub.round_no == 0 and len([1 for _, o, _ in field.seen if o['kind'] == 'train']) == 3
    del field.nodes['d']
    field.seen = []
    refused(field.hub(), 'answered for a, b, c, d, and two sums')
    assert not any(o['kind'] == 'train' for _, o, _ in field.seen)
    field.nodes['d'], field.lie = node, {}
    hub.one_round()                                # it came back: all sign anew
    assert hub.round_no == 1

def test_a_round_is_summed_once(field):
    "Asked for the same round with another model, all refuse."
    hub = field.hub()
    hub.one_round()
    again = field.hub()
    again.state.server['head.bias'].add_(1)
    refused(again, 'this round already')

def test_a_part_that_would_wrap_around_stays_at_its_site(field, monkeypatch):
    hub = field.hub()
    fed = field.nodes['b'].federation(field.job, 1)
    work = fed.work
    def huge(*args):
        answer, mine = work(*args)
        answer['model']['head.bias'] = answer['model']['head.bias']+1e9
        return answer, mine
    monkeypatch.setattr(fed, 'work', huge)
    with pytest.raises(FloatingPointError, match='wrap around'): hub.one_round()

def test_three_are_needed_and_a_node_takes_part_in_nothing_else(place, tmp_path):
    few = Field(place, tmp_path, 'ab')
    with pytest.raises(ValueError, match='two a sum hides nobody'): few.hub().one_round()
    ask = to_bytes(order_of(Job('FedAvg', 'small_conv(width=4)', 16, dict(rounds=2)), 'facts'))
    with pytest.raises(ValueError, match='in secure sums only'): few.nodes['a'](ask)
    bare = Node(place/'a', tmp_path/'x', tell=None)
    with pytest.raises(ValueError, match='has no keys'): bare(few.ask)

def test_least_and_a_stranger_are_refused(field, place, tmp_path):
    hub = hub_of(field.job, field.facts(), field.post, least=3)
    with pytest.raises(ValueError, match='leave --least out'): hub.one_round()
    write_pair(tmp_path/'keys', 'd')
    field.nodes['d'].seal = Seal(tmp_path/'keys'/'d', place/'keys')
    refused(field.hub(), 'd did not sign')

def test_the_private_half_of_a_mask_is_its_owners_alone_and_goes(field, tmp_path):
    field.hub().one_round()
    assert not list(tmp_path.rglob('pledge.json'))
    said = json.loads((tmp_path/'a'/'secure.json').read_text())
    assert said['members'] == [*SITES] and list(said['rounds']) == ['/0']
