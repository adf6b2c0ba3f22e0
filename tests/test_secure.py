"Sums of whole numbers: for which methods they are enough, the same bits in any order, and what is refused."
from itertools import permutations
import pytest, torch
from feds import fed_of, first, halved, little
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.sites import Overheard
from fedskew_nb.engine.fixed import server_for
from fedskew_nb.run.recipes import METHODS
from fedskew_nb.tools.choose import candidates, choose, why_apart

@pytest.fixture(scope='module')
def suite(): return first(halved(load_suite('emoji-pacs', size='tiny')), 3)

def secure(name, suite, **how):
    how = dict(rounds=1, local_steps=3, batch_size=4) | how
    return fed_of(METHODS[name], suite, little(), secure=True, **how)

REASONS = {c.name: why_apart(c) for c in candidates()}

@pytest.mark.parametrize('name', METHODS)
def test_a_method_runs_securely_or_the_list_says_why_not(suite, name):
    "The list is read from hooks; here one round says the same."
    fed = secure(name, suite)
    if REASONS[name]:
        with pytest.raises(ValueError, match='cannot run with secure=True|beside the model'): fed.one_round()
        return
    fed.sites = Overheard()
    fed.one_round()
    (order, answer, _), *_ = fed.sites.rounds[0].values()
    assert not answer['extra'] and all(v.is_floating_point() for v in answer['model'].values())

def test_of_all_methods_23_only_need_a_sum():
    "By the first count of the specification 22, which had no FixBN."
    assert sum(not REASONS[n] for n in METHODS) == 23
    said = [note.partition(': no, ')[0] for note in choose('secure-sum').notes]
    assert all((n in said) == bool(REASONS[n]) for n in METHODS)

def test_any_order_of_the_parts_has_the_same_bits(suite):
    "And none of the floats' orders is right where this is wrong: the exact sum is within the last bits."
    fed = secure('F2DC', suite)
    answers = [answer for answer, _ in fed.train(fed.participants())]
    shares, sums = server_for(fed, fed.clients).w.tolist(), []
    for order in permutations(range(3)):
        server = server_for(fed, fed.clients)
        server.w = server.w[list(order)]
        for k in order: server.receive(server._upload(k, dict(answers[k]['model']), {}))
        sums.append(server.aggregate().server)
    for n in answers[0]['model']:
        assert all(torch.equal(s[n], sums[0][n]) for s in sums), n
        exact = sum(a['model'][n].double()*p for a, p in zip(answers, shares))
        assert torch.allclose(sums[0][n].double(), exact, atol=3*2**-36, rtol=2**-23), n

def test_what_would_wrap_around_or_is_no_number_is_refused_before_it_is_added(suite):
    fed = secure('FedAvg', suite)
    answers = [answer for answer, _ in fed.train(fed.participants())]
    for bad in (torch.inf, torch.nan, 2.**26):
        server, model = server_for(fed, fed.clients), dict(answers[0]['model'])
        model['head.bias'] = torch.full_like(model['head.bias'], bad)
        with pytest.raises(FloatingPointError, match='wrap around'):
            server.receive(server._upload(0, model, {}))

ODD = [(2, {}, 'take three'), (3, dict(participation=.9), 'below 1')]

@pytest.mark.parametrize('clients, how, says', ODD)
def test_two_clients_and_changing_members_are_refused(suite, clients, how, says):
    fed = secure('FedAvg', first(suite, 2) if clients == 2 else suite, **how)
    with pytest.raises(ValueError, match=says): fed.fit(progress=False)

def test_merging_by_hand_is_the_round(suite):
    one, other = secure('FedAvg', suite), secure('FedAvg', suite)
    one.one_round()
    answers = [answer for answer, _ in other.train(other.participants())]
    other.merge([server_for(other)._upload(k, a['model'], {}) for k, a in enumerate(answers)])
    for n in one.server.keys(): assert torch.equal(one.server[n], other.server[n]), n
