"Clients of mixed domains: nothing lost, the shares that were asked for, the ends of the dial, refusals."
from collections import Counter
import pytest, torch
from hypothesis import given, settings
from hypothesis import strategies as st
from feds import fed_of
from fedskew_nb import load_suite, mixed, small_conv
from fedskew_nb.data.images import Data
from fedskew_nb.data.suite import Client, Suite
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.run.recipes import read_suite

SOME = settings(max_examples=40, deadline=None, derandomize=True)

def numbered(sizes, n_classes=3):
    "A suite whose images say their domain and their number: {domain: training images}."
    def data(d, start, n):
        x = torch.zeros(n, 3, 8, 8, dtype=torch.uint8)
        x[:, 0, 0, 0], x[:, 1, 0, 0], x[:, 2, 0, 0] = d, torch.arange(n)//250, torch.arange(n)%250
        x[:, 0, 1, 0] = start
        return Data(x, torch.arange(n)%n_classes)
    clients, tests = [], {}
    for d, (name, n) in enumerate(sizes.items()):
        tests[name] = data(d, 9, 6)
        clients.append(Client(d, name, data(d, 0, n), data(d, 1, n//3), tests[name]))
    return Suite('numbered', [*'abc'[:n_classes]], clients, tests)

def keys(d): return [tuple(v) for v in d.x.flatten(1)[:, :].tolist()]

def origins(c, part='train'): return Counter(getattr(c, part).x[:, 0, 0, 0].tolist())

sizes = st.lists(st.integers(12, 60), min_size=1, max_size=4)

@SOME
@given(sizes, st.floats(0, 1), st.integers(1, 3), st.integers(0, 9))
def test_every_image_is_dealt_once_and_tests_stay(n, share, k, seed):
    s = numbered({f'd{i}': v for i, v in enumerate(n)})
    m = mixed(s, share, k, seed)
    assert [c.domain for c in m.clients] == [d for d in s.tests for _ in range(k)]
    assert [c.id for c in m.clients] == list(range(k*len(n)))
    for part in ('train', 'val'):
        was, now = (sorted(sum((keys(getattr(c, part)) for c in suite.clients), [])) for suite in (s, m))
        assert was == now
    assert all(torch.equal(c.test.x, s.tests[c.domain].x) for c in m.clients)
    assert m.tests.keys() == s.tests.keys()
    assert m.fingerprint() == mixed(s, share, k, seed).fingerprint()

@SOME
@given(sizes, st.floats(0, 1), st.integers(1, 3))
def test_the_shares_are_those_of_the_formula(n, share, k):
    s = numbered({f'd{i}': v for i, v in enumerate(n)})
    for i, c in enumerate(mixed(s, share, k).clients):
        for d, have in enumerate(n):
            wanted = have*((1-share)*(i//k == d)/k+share/(k*len(n)))
            assert abs(origins(c)[d]-wanted) < 1+1e-9

def test_the_ends_of_the_dial():
    s = numbered(dict(a=30, b=60, c=30))
    for c, own in zip(mixed(s, 0).clients, s.clients):
        assert sorted(keys(c.train)) == sorted(keys(own.train))
    assert all(origins(c) == Counter({0: 10, 1: 20, 2: 10}) for c in mixed(s, 1).clients)
    by_hand = mixed(numbered(dict(a=100, b=100)), .2).clients[0]
    assert origins(by_hand) == Counter({0: 90, 1: 10})

def test_the_order_knows_no_domain_and_turns_with_the_seed():
    s = numbered(dict(a=60, b=60))
    a, b = (mixed(s, 1, seed=k).clients[0] for k in (0, 1))
    first = a.train.x[:20, 0, 0, 0].tolist()
    assert 0 < sum(first) < 20 and keys(a.train) != keys(b.train)

@pytest.mark.parametrize('wrong, says', [
    (dict(share=1.01), 'share is 1.01'), (dict(share=-.1), 'share is -0.1'),
    (dict(share='half'), "share is 'half'"),
    (dict(share=float('nan')), 'share is nan'), (dict(share=True), 'share is True'),
    (dict(clients=0), 'clients is 0'), (dict(clients=1.5), 'clients is 1.5'), (dict(seed='x'), "seed is 'x'"),
    (dict(clients=40), 'lower clients')])
def test_wrong_wishes_are_refused(wrong, says):
    with pytest.raises(ValueError, match=says): mixed(numbered(dict(a=30, b=30)), **wrong)

def test_names_say_what_was_done_and_the_iid_control_is_there():
    s = mixed(load_suite('emoji-pacs', 'tiny'), .3)
    assert s.name == 'emoji-pacs-mixed(0.3)' and s.deal == 'skew' and s.base == 'emoji-pacs'
    assert s.iid().deal == 'iid' and len(mixed(s.iid(), 1).clients) == 1
    assert mixed(s, 0).name == 'emoji-pacs-mixed(0.3)-mixed(0)'

def test_masks_and_boxes_go_with_their_images():
    s = load_suite('context-vehicles', 'tiny')
    where = {k: (m, b) for c in s.clients for k, m, b in zip(keys(c.train), c.train.masks, c.train.boxes)}
    for c in mixed(s, .5).clients:
        assert all(torch.equal(m, where[k][0]) and torch.equal(b, where[k][1])
                   for k, m, b in zip(keys(c.train), c.train.masks, c.train.boxes))

def test_a_federation_trains_and_is_asked_by_the_clients_domains():
    s = mixed(numbered(dict(a=16, b=16)), .5)
    h = fed_of(FedAvg, s, small_conv(3, size=8, width=2), rounds=1, local_steps=1).fit()
    asked = {(r['view'], r['domain']) for r in h.rows}
    assert asked >= {('personal', 'a'), ('personal', 'b'), ('global', 'a')}

def test_a_function_in_a_file_names_the_mixture(tmp_path):
    (tmp_path/'mine.py').write_text('from fedskew_nb import load_suite, mixed\n'
                                    'def half(data_seed=0):\n'
                                    "    return mixed(load_suite('emoji-pacs', 'tiny', data_seed), .5)\n")
    assert read_suite(f'{tmp_path/"mine.py"}:half').name == 'emoji-pacs-mixed(0.5)'
