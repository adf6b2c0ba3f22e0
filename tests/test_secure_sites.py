"A secure sum over sites, and a server that lies: each lie is refused by the nodes before anything leaves."
import json, shutil, threading
from contextlib import contextmanager
import pytest, torch
from test_deploy import cache, draw          # noqa: F401
from fedskew_nb.core.files import locked
from fedskew_nb.data.folder import load_folder
from fedskew_nb.deploy.rehearse import rehearsal
from fedskew_nb.deploy import secure
from fedskew_nb.deploy.hub import finish, hub_of
from fedskew_nb.deploy.keys import write_pair
from fedskew_nb.deploy.order import Book, Job, order_of
from fedskew_nb.deploy.node import Node
from fedskew_nb.deploy.secure import Seal, SecureSum
from fedskew_nb.deploy.admit import limits_of
from fedskew_nb.engine.checkpoint import from_bytes, to_bytes
from fedskew_nb.engine.fixed import SCALE

pytest.importorskip('cryptography')
SITES = dict(a='dawn', b='dusk', c='noon', d='rain')

def job(method='FedAvg', run='', **more):
    how = dict(rounds=2, local_steps=2, batch_size=8, lr=.05, secure=True) | more
    return Job(method, 'small_conv(width=4)', 16, how, run)

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
    def __init__(self, place, home, which='abcd', **most):
        keys, how = place/'keys', dict(tell=None, limits=limits_of(**most))
        self.nodes = {s: Node(place/s, home/s, seal=Seal(keys/s, keys), **how) for s in which}
        self.job, self.lie, self.seen = job(), {}, []
    def facts(self):
        ask = to_bytes(order_of(self.job, 'facts'))
        return [from_bytes(n(ask)) for n in self.nodes.values()]
    def post(self, letters):
        answers = {}
        for name, data in letters.items():
            order = from_bytes(data)
            order |= self.lie.get((order['kind'], name), lambda o: {})(order)
            answers[name] = self.nodes[name](to_bytes(order))
            self.seen.append((name, order, from_bytes(answers[name])))
        return answers
    def hub(self, out=None): return hub_of(self.job, self.facts(), self.post, out)
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
    "A part is spread over all 64 bits, and in another run, of the same, it is another number."
    hub = field.hub()
    hub.one_round()
    part = field.part()
    assert float((part.double()/SCALE).abs().median()) > 1e6
    first, field.seen, field.job = part, [], job(run='again')
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
            fresh=(lambda o: dict(fresh=True), 'another model'),
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
    field.nodes[name](to_bytes(order_of(field.job, 'pledge', client=order['client'], round=1, asked='1'*64)))
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
    field.seen, field.job = [], job(run='other')
    refused(field.hub(), 'answered for a .*, d .*, now a .*, c .*, and sums that differ by a site')
    assert not any(o['kind'] == 'train' for _, o, _ in field.seen)
    field.nodes['d'], field.lie, field.job = node, {}, job()
    before = hub.server
    hub.one_round()                                # it came back
    assert hub.round_no == 1 and hub.history.rounds[-1]['participants'] == []
    assert all(v.equal(before[n]) for n, v in hub.server.items())
    hub.one_round()
    assert hub.round_no == 2 and hub.history.rounds[-1]['participants'] == [0, 1, 2, 3]

def test_a_round_is_summed_once(field):
    "Asked for the same round again, with another model or the same, nobody signs or trains, and it is void."
    field.hub().one_round()
    for change in (0, 1):
        again, field.seen = field.hub(), []
        again.state.server['head.bias'].add_(change)
        again.one_round()
        assert {o['kind'] for _, o, _ in field.seen} == {'pledge'}
        assert all(answer == dict(left=0) for *_, answer in field.seen)
        assert again.history.rounds[-1]['participants'] == []

def test_a_round_that_broke_before_any_part_left_is_made(field, tmp_path):
    "A refusal costs no round, and what is killed after the signatures is asked anew."
    field.lie['train', 'a'] = lambda o: dict(client=3)
    for _ in range(2):
        with pytest.raises(ValueError, match='it signed number 0'): field.hub(tmp_path/'out').one_round()
    field.lie = {}
    hub = field.hub(tmp_path/'out')
    hub.one_round()
    assert hub.history.rounds[-1]['participants'] == [0, 1, 2, 3]

OTHERS = dict(uniform=True), dict(method='FedAvg + DomainAware(alpha=.1, beta=.9)')

@pytest.mark.parametrize('other', OTHERS)
def test_sums_of_other_weights_are_refused_in_any_run(place, tmp_path, other):
    "As many sums of a round as members, each with other weights, would be equations for every model."
    shutil.copytree(place, tmp_path/'p')
    for k in range(5): (tmp_path/'p'/'b'/'dusk'/'dark'/f'{k}.png').unlink()     # sites of several sizes
    field = Field(tmp_path/'p', tmp_path)
    field.hub().one_round()
    field.job = job(run='other', **other)
    refused(field.hub(), 'and sums that differ by their weights show the models')
    field.job = job(run='more', lr=.01)            # the same weights: the same sum of others
    field.hub().one_round()

def test_two_that_answer_at_once_release_one_list(field, tmp_path, monkeypatch):
    "What a site has answered is read and written while no other process of it does."
    held, was = [], SecureSum.before
    @contextmanager
    def noted(path):
        with locked(path):
            held.append(path.parent.name)
            yield
            held.pop()
    def before(self, ps, w, keep=False):
        assert not keep or held == [self.name]
        return was(self, ps, w, keep)
    monkeypatch.setattr(secure, 'locked', noted)
    monkeypatch.setattr(SecureSum, 'before', before)
    field.hub().one_round()

def test_a_lock_is_held_by_one(tmp_path):
    order = []
    def other():
        with locked(tmp_path/'x'): order.append('other')
    thread = threading.Thread(target=other)
    with locked(tmp_path/'x'):
        thread.start()
        thread.join(.3)
        order.append('first')
    thread.join()
    assert order == ['first', 'other']

@pytest.mark.parametrize('text', ['{"weights": ', '{"members": ["a", "b", "c", "d"], "rounds": {}}'])
def test_a_torn_record_of_sums_and_one_of_before_is_refused(field, tmp_path, text):
    (tmp_path/'a').mkdir()
    (tmp_path/'a'/'secure.json').write_text(text)
    refused(field.hub(), 'secure.json of a is no record of its secure rounds')

def test_after_a_break_the_round_is_void_the_keys_are_fresh_and_the_ledger_says_so(field, tmp_path):
    "The server is killed, too: what it knows of the round is in its ledger."
    def dies(order): raise ConnectionError('d is gone')
    field.lie['train', 'd'] = dies
    with pytest.raises(ConnectionError): field.hub(tmp_path/'out').one_round()
    first = {o['members'][0]['said']['key'] for _, o, _ in field.seen if o['kind'] == 'train'}
    field.lie, field.seen = {}, []
    hub = field.hub(tmp_path/'out')
    begun = {n: v.clone() for n, v in hub.server.items()}
    hub.one_round()
    assert all(v.equal(begun[n]) for n, v in hub.server.items())
    assert not [1 for _, o, _ in field.seen if o['kind'] == 'train']
    hub.one_round()
    assert hub.round_no == 2 and not hub.server['head.bias'].equal(begun['head.bias'])
    assert first.isdisjoint(o['members'][0]['said']['key'] for _, o, _ in field.seen if o['kind'] == 'train')
    said = [(r['round'], r['left']) for r in Book(tmp_path/'out').rows() if r['kind'] == 'void']
    assert said == [(0, ['a', 'b', 'c'])]
    assert [*json.loads((tmp_path/'a'/'secure.json').read_text())['rounds']] == ['/0', '/1']
    begins_nothing = field.hub(tmp_path/'x')       # its folder is gone: every round was summed
    begins_nothing.fit(progress=False)
    with pytest.raises(ValueError, match='every round was void'): finish(begins_nothing, tmp_path/'x')

def test_that_a_part_leaves_is_on_the_disk_before_it_does(field, tmp_path, monkeypatch):
    "Killed while it hides its part, a site has answered this round: it sends no other."
    def killed(*_): raise KeyboardInterrupt
    monkeypatch.setattr(SecureSum, 'hide', killed)
    with pytest.raises(KeyboardInterrupt): field.hub().one_round()
    assert '/0' in (tmp_path/'a'/'secure.json').read_text()
    monkeypatch.undo()
    assert from_bytes(field.nodes['a'](to_bytes(order_of(field.job, 'pledge')))) == dict(left=0)

# ---- whose number, whose weight

def test_another_sites_number_is_refused_by_name(field):
    "The server alone: told that it is d, site a would weigh its model by what d signed."
    field.lie['train', 'a'] = lambda o: dict(client=3)
    refused(field.hub(), 'a answers no such round: it signed number 0, and is asked as number 3')
    assert not any(o['kind'] == 'train' and n == 'a' for n, o, _ in field.seen)

def signs(field, site, **more):
    "What a colluder signs in place of the truth, and keeps as its own word; it refuses nothing."
    side = field.nodes[site].secure
    was = side.pledge
    side.exposed = lambda *_: ''
    if site != 'a': side.unfit = lambda *_: ''
    def lie(order, job, fed, folder):
        signed = side.seal.signed(was(order, job, fed, folder)['said'] | more)
        file = folder/'pledge.json'
        file.write_text(json.dumps(json.loads(file.read_text()) | dict(signed=signed)))
        return signed
    side.pledge = lie

def test_a_colluder_with_a_giant_number_of_images_opens_nobody(field):
    "It signs ten million, and the server tells site a that it has the colluder's number."
    signs(field, 'd', n=10**7)
    field.lie['train', 'a'] = lambda o: dict(client=3)
    refused(field.hub(), 'a answers no such round: it signed number 0')
    field.lie = {}
    refused(field.hub(), 'd says 10,000,000 images, and the job takes 1,000,000')

@pytest.mark.parametrize('n', [0, -5])
def test_nobody_signs_less_than_one_image(field, n):
    signs(field, 'd', n=n)
    refused(field.hub(), f'n is {n}: at least 1')

OWN_WORDS = [(dict(name='b'), 'b did not sign'), (dict(domain='x'), 'signed domain x'),
             (dict(n=7), 'signed images 7'), (dict(round=1), 'signed for another round')]

@pytest.mark.parametrize('what, says', OWN_WORDS)
def test_what_a_site_signed_is_compared_with_what_it_is(field, what, says):
    "Its own word, were it another's, in its memory and among the members."
    signs(field, 'a', **what)
    refused(field.hub(), says)

def test_a_dominant_site_is_not_hidden_and_refuses(field):
    "The sentence names the share, and the mend."
    for s in 'bcd': signs(field, s, n=1)
    refused(field.hub(), r'a answers no such round: its model would be 0\.\d{4} of the sum without the '
                         r'heaviest 1 of the others, and it allows 0\.8: .* with --most-share 0\.\d{4}')

def test_the_heaviest_others_count_for_nothing(place, tmp_path):
    "Beside one giant a site may look small: if that one talks, it is half of what is left."
    limits = dict(most_share=.4)
    giant = Field(place, tmp_path/'1', **limits)
    signs(giant, 'd', n=10**5)
    signs(giant, 'c', n=1)
    refused(giant.hub(), 'without the heaviest 1')
    alone = Field(place, tmp_path/'2', colluders=0, **limits)
    signs(alone, 'd', n=10**5)
    signs(alone, 'c', n=1)
    alone.hub().one_round()

def test_three_sites_need_a_server_that_nobody_helps(place, tmp_path):
    three = Field(place, tmp_path/'1', 'abc')
    refused(three.hub(), 'a answers no such round: of 2 others 1 may tell .* takes two: .* --colluders 0')
    Field(place, tmp_path/'2', 'abc', colluders=0).hub().one_round()

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
    with pytest.raises(ValueError, match='has no keys'): bare(to_bytes(order_of(few.job, 'facts')))

def test_least_and_a_stranger_are_refused(field, place, tmp_path):
    hub = hub_of(field.job, field.facts(), field.post, least=3)
    with pytest.raises(ValueError, match='leave --least out'): hub.one_round()
    write_pair(tmp_path/'keys', 'd')
    field.nodes['d'].secure.seal = Seal(tmp_path/'keys'/'d', place/'keys')
    refused(field.hub(), 'd did not sign')

def test_the_private_half_of_a_mask_is_its_owners_alone_and_goes(field, tmp_path):
    field.hub().one_round()
    assert not list(tmp_path.rglob('pledge.json'))
    said = json.loads((tmp_path/'a'/'secure.json').read_text())
    assert list(said['weights']) == [*SITES] and list(said['rounds']) == ['/0']

def test_a_node_without_keys_signs_nothing(place, tmp_path):
    plain = Node(place/'a', tmp_path, tell=None)
    order = order_of(job(secure=False), 'pledge')
    with pytest.raises(ValueError, match="there is no order 'pledge'"): plain(to_bytes(order))
