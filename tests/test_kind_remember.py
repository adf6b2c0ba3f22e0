"A frozen part keeps maps of images that come again, and of no others."
from dataclasses import replace
from functools import lru_cache
import pytest, torch
from feds import cut, fed_of
from fedskew_nb.data.load import load_suite
from fedskew_nb.nets import remember
from fedskew_nb.nets.models import small_conv
from fedskew_nb.nets.pretrained import freeze
from fedskew_nb.run.recipes import METHODS

@lru_cache(1)
def small_suite(): return cut(load_suite('emoji-pacs', 'tiny'), (12, 8), tests=2)

@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    "A cache of its own, and no maps of another test."
    monkeypatch.setenv('FEDSKEW_CACHE', str(tmp_path))
    remember.maps_of.cache_clear()

def frozen(**k): return freeze(small_conv(7, size=32, width=2, **k), 'body')

def held(fed):
    "How many maps are in memory."
    return len(fed.worker.net.body.maps(fed.worker.images(fed.suite.clients[0].train.x[:2])))

@pytest.mark.parametrize('flip', [False, True])
@pytest.mark.parametrize('turn', [0., 8.])
@pytest.mark.parametrize('pad', [0, 2])
def test_nothing_is_kept_of_images_that_change(pad, turn, flip):
    suite = small_suite()
    how = dict(pad=pad, turn=turn, flip=flip, rounds=3, local_epochs=1, local_steps=None, lanes=1,
               stack=False)
    fed = fed_of(METHODS['FedAvg'], suite, frozen(), **how)
    grown = []
    for _ in range(3):
        fed.one_round()
        grown.append(held(fed))
    train = 0 if pad or turn else sum(len(c.train) for c in suite.clients)*(1+flip)
    tests = sum(len(c.test) for c in suite.clients)         # the clients' own are asked after the last
    assert grown == [train, train, train+tests]

def test_maps_are_those_that_the_layers_give():
    suite = small_suite()
    fed = fed_of(METHODS['FedAvg'], suite, frozen(), pad=2, lanes=1, stack=False, rounds=1)
    fed.one_round()
    x = fed.worker.images(suite.clients[0].train.x)
    body = fed.worker.net.body
    torch.testing.assert_close(body(x), body.body(x), rtol=1e-4, atol=1e-5)

def test_a_frozen_grey_body_remembers_what_it_is_shown():
    suite = small_suite()
    def grey(d): return replace(d, x=d.x[:, :1].expand(-1, 3, -1, -1).contiguous())
    clients = [replace(c, train=grey(c.train), val=grey(c.val), test=grey(c.test)) for c in suite.clients]
    plain = replace(suite, clients=clients, tests={n: grey(d) for n, d in suite.tests.items()})
    fed = fed_of(METHODS['FedAvg'], plain, frozen(in_ch=1), lanes=1, stack=False, rounds=1)
    fed.one_round()
    shown, body = fed.net.entry(fed.worker.images(clients[0].train.x)), fed.worker.net.body
    maps = body.maps(shown)
    assert all(k in maps for k in remember.image_keys(shown))       # found again as the net asks
