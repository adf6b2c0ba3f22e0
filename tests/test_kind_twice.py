"One picture twice: a site that joins, tensors, and suites that somebody made by hand."
import warnings
from dataclasses import replace
import pytest
import torch
from fedskew_nb import Client, Federation, FedAvg, Suite, join_site, small_conv
from fedskew_nb.data.images import Data
from fedskew_nb.run.recipes import read_suite

def images(n, seed): return torch.randint(256, (n, 3, 12, 12), dtype=torch.uint8,
                                          generator=torch.Generator().manual_seed(seed))

def data(n, seed): return Data(images(n, seed), torch.arange(n)%2)

@pytest.fixture(scope='module')
def fed():
    domains = {d: (data(12, k), data(6, 9+k)) for k, d in enumerate('ab')}
    fed = Federation(FedAvg, small_conv(2, size=12, width=4, seed=0), Suite.from_datasets(domains),
                     rounds=1, local_steps=1)
    fed.fit()
    return fed

def joined(fed, given):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        return join_site(fed, (given.x, given.y)), ' '.join(str(w.message) for w in said)

def test_a_site_that_took_part_is_said(fed):
    j, said = joined(fed, fed.suite.clients[0].train)
    assert j.known() == len(j.held) and f'{j.known()} of {j.known()} held-out images were trained on' in said
    assert any('were trained on' in note for note in j.table().notes)

def test_so_are_a_few_of_its_images(fed):
    own, new = fed.suite.clients[1].train, data(20, 99)
    j, said = joined(fed, Data(torch.cat([own.x[:6], new.x]), torch.cat([own.y[:6], new.y])))
    known = sum((x == y).all().item() for x in j.held.x for y in own.x[:6])
    assert j.known() == known > 0 and f'{known} of {len(j.held)}' in said

def test_a_new_site_is_none(fed):
    j, said = joined(fed, data(20, 77))
    assert j.known() == 0 and said == '' and not any('trained on' in n for n in j.table().notes)

def test_what_was_only_tested_on_is_new(fed):
    assert joined(fed, fed.suite.clients[0].test)[0].known() == 0

def test_tensors_that_hold_a_picture_twice(fed):
    "None of them is adapted to and held out."
    one = data(10, 55)
    j, said = joined(fed, Data(torch.cat([one.x, one.x]), torch.cat([one.y, one.y])))
    assert len(j.held)+j.adapted == 10 and '10 exact copies left out' in said

def test_one_picture_under_two_labels_joins_with_none(fed):
    one = data(10, 56)
    j, said = joined(fed, Data(torch.cat([one.x, one.x[:1]]), torch.cat([one.y, 1-one.y[:1]])))
    assert len(j.held)+j.adapted == 9 and '1 picture under several labels left out' in said

def by_hand(same):
    train, test = data(12, 1), data(6, 2)
    if same: test = replace(test, x=torch.cat([train.x[:2], test.x[2:]]))
    return Suite('mine', ['x', 'y'], [Client(0, 'a', train, data(2, 3), test)], {'a': test})

@pytest.mark.parametrize('same', [True, False])
@pytest.mark.parametrize('form', ['suite', 'function'])
def test_a_suite_made_by_hand_is_looked_at(same, form):
    own = by_hand(same)
    def mine(data_seed): return replace(own, data_seed=data_seed)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        read_suite(mine if form == 'function' else own)
    told = ' '.join(str(w.message) for w in said)
    assert ('2 pictures in training and in test, first a, train = a, test' in told) == same
