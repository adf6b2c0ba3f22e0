"""What must hold of every run and teaches nothing.

Resume, order, noise, broken checkpoints, interruptions, wrong input.
"""
import json, os, signal, subprocess, sys, textwrap, time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import SimpleNamespace
import pytest, torch
from fedskew_nb.core.context import Upload
from fedskew_nb.core.files import write_json
from fedskew_nb.core.method import Contradiction, Method
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.rules import Rule
from fedskew_nb.nets.models import resnet10, small_conv
from fedskew_nb.core.net import everything, under
from fedskew_nb.core.seeding import Dropout, generator
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.checkpoint import load_nest, save_nest
from fedskew_nb.engine.client import Worker
from fedskew_nb.engine.resident import widened
from fedskew_nb.engine.device import has_bf16, keep_freed_memory, memory_format, pick_device, usual_lanes
from fedskew_nb.engine.federation import Federation
from fedskew_nb.engine.history import Result, State, after_round, read_history
from fedskew_nb.engine.scoring import questions
from fedskew_nb.engine.server import Server, size_of, weights_of
from fedskew_nb.engine.setting import PROTOCOLS, Setting, epoch, schedule, setting_for
from fedskew_nb.methods.baselines.average import FedAvg, FedProx
from fedskew_nb.methods.baselines.personal import FedBN, Local

@pytest.fixture(scope='module')
def suite():
    "Five domains of digits, small enough for many runs."
    s = load_suite('skew-digits', size='tiny')
    clients = [replace(c, train=c.train[:40], test=c.test[:16]) for c in s.clients]
    return replace(s, clients=clients, tests={d: t[:16] for d, t in s.tests.items()})

def new(suite, **k): return small_conv(suite.n_classes, size=suite.image_size, **(dict(width=8, seed=0) | k))

def federation(suite, method=FedAvg, net=None, **k):
    how = dict(rounds=2, lr=.05, device='cpu', eval_every=1) | k
    return Federation(method, net or new(suite), suite, **how)

def run(suite, *a, **k):
    fed = federation(suite, *a, **k)
    fed.fit()
    return fed

def same(a, b): return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)

# ---- interrupted and resumed

@pytest.mark.parametrize('method', [FedAvg, FedProx(mu=.1), FedBN, Local], ids=lambda m: m.name)
def test_two_and_three_rounds_are_five(suite, tmp_path, method):
    how = dict(rounds=5, participation=.6)
    whole = run(suite, method, **how)
    federation(suite, method, out=tmp_path/'c', **how).fit(2)
    then = federation(suite, method, **how).load(tmp_path/'c')
    assert then.fit() == whole.history
    assert same(whole.server, then.server)
    assert all(same(whole.own[k], then.own[k]) for k in whole.own)

def test_interrupt_keeps_the_last_checkpoint(suite, tmp_path):
    def stop(fed):
        if fed.round_no == 2: raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt): federation(suite, rounds=4, out=tmp_path/'c').fit(on_round=stop)
    on, whole = federation(suite, rounds=4).load(tmp_path/'c'), run(suite, rounds=4)
    assert on.fit() == whole.history
    assert same(on.server, whole.server)

def test_what_a_mechanism_does_with_the_servers_facts_is_its_own(suite):
    "It may change and keep them: the next one is told all, and the memory is copied and saved."
    @dataclass
    class Forgets(Mechanism):
        def extras(self, srv, ups):
            seen = srv.state.setdefault('seen', [])
            seen.append(dict(srv.sizes))
            srv.sizes.clear()
            srv.state['domains'] = srv.domains
            return {}
    fed = federation(suite, Method('M', Forgets()), rounds=2)
    fed.fit()
    seen, domains = (next(iter(fed.memory.values()))[k] for k in ('seen', 'domains'))
    assert seen == [{c.id: len(c.train) for c in suite.clients}]*2
    assert domains == {c.id: c.domain for c in suite.clients}

def test_a_round_leaves_what_clients_kept_before_as_it_was(suite):
    fed = federation(suite, FedBN, rounds=3)
    fed.fit(1)
    before = fed.own
    kept = {k: {n: v.clone() for n, v in of.items()} for k, of in before.items()}
    fed.fit(1)
    assert all(same(before[k], kept[k]) for k in kept)
    assert not any(same(fed.own[k], kept[k]) for k in kept)

def test_the_state_is_swapped_as_a_whole(suite):
    "A round makes a new state; the old one stays as it was."
    fed = federation(suite, FedBN)
    before = fed.state
    server = {n: v.clone() for n, v in before.server.items()}
    fed.one_round()
    assert fed.state is not before and (fed.round_no, before.round) == (1, 0)
    assert same(before.server, server) and not any(before.own.values()) and not before.history.rounds
    with pytest.raises(AttributeError): fed.state.round = 7

@pytest.mark.parametrize('where', ['weights', 'extras'])
def test_an_error_at_the_server_leaves_no_trace(suite, where):
    class Stumbles(Mechanism):
        def weights(self, srv, ups):
            srv.state['heard'] = srv.state.get('heard', 0)+1
            if where == 'weights' and srv.round == 1: raise ValueError('the server stumbles')
            return torch.ones(len(ups))
        def extras(self, srv, ups):
            if where == 'extras' and srv.round == 1: raise ValueError('the server stumbles')
            return {}
    fed = federation(suite, Method('Stumbles', Stumbles()), rounds=3)
    fed.fit(1)
    before = fed.state
    with pytest.raises(ValueError, match='the server stumbles'): fed.fit()
    assert fed.state is before and before.memory == {'Stumbles': {'heard': 1}}

# ---- threads, dice, order

def test_thread_count_is_restored(suite):
    before = torch.get_num_threads()
    run(suite, threads=2, rounds=1)
    assert torch.get_num_threads() == before

def test_dropout_draws_from_the_client(suite):
    def net():
        n = new(suite)
        n.pool = torch.nn.Sequential(n.pool, Dropout(.5))
        return n
    before = torch.random.get_rng_state()
    a, b = run(suite, net=net()), run(suite, net=net())
    assert same(a.server, b.server) and torch.equal(before, torch.random.get_rng_state())

def test_client_order_is_no_matter(suite):
    a, b = run(suite), run(replace(suite, clients=suite.clients[::-1]))
    assert same(a.server, b.server)

def test_epochs_of_equal_dice_are_equal():
    cut = [[i.tolist() for i in epoch(9, 4, generator(1))] for _ in range(2)]
    assert cut[0] == cut[1] and [len(i) for i in cut[0]] == [4, 5]

@pytest.mark.parametrize('n,size,epochs,steps,want', [
    (129, 64, 1, None, [64, 65]), (1, 64, 2, None, [1, 1]), (130, 64, 1, None, [64, 64, 2]),
    (10, 64, 3, None, [10]*3), (130, 64, 1, 4, [64, 64, 2, 64]), (130, 64, 9, 1, [64]), (3, 2, 1, None, [3])])
def test_schedule(n, size, epochs, steps, want):
    assert [len(i) for i in schedule(n, size, generator('x'), epochs, steps)] == want

# ---- the optimiser

def test_parameters_without_gradient_stay_where_they_are(suite):
    "Not even weight decay moves what no loss term reaches."
    net = new(suite)
    net.head.idle = torch.nn.Parameter(torch.ones(3))
    fed = run(suite, net=net, weight_decay=.1, rounds=1, stack=False)
    assert torch.equal(fed.server['head.idle'], torch.ones(3))

def test_momentum_starts_anew_in_every_round(suite):
    "Two rounds of one client are two runs of SGD, the second of which starts where the first ended."
    one = suite.pooled()
    fed = federation(one, rounds=2, local_steps=3)
    fed.fit()
    first = federation(one, rounds=2, local_steps=3)
    first.fit(1)
    then = federation(one, rounds=2, local_steps=3)
    then.state = replace(then.state, server=first.server, round=1)
    then.one_round()
    assert same(fed.server, then.server)

def test_parameters_of_two_types_train(suite):
    net = new(suite)
    class Wide(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = torch.nn.Linear(net.head.in_features, suite.n_classes).double()
        def forward(self, f): return self.lin(f.double())
    with torch.random.fork_rng(): net.head = Wide()
    first = net.state_dict()
    moved = run(suite, net=net, rounds=1, stack=False).server
    assert moved['head.lin.weight'].dtype == torch.float64
    assert not torch.equal(moved['head.lin.weight'], first['head.lin.weight'])

def test_clipping_bounds_a_step(suite):
    fed = federation(suite, clip=1e-6, momentum=0., weight_decay=0., local_steps=1)
    up = fed.train_client(fed.clients[0]).upload
    moved = sum(float((up.state[n]-p).square().sum()) for n, p in new(suite).named_parameters())**.5
    assert 0 < moved <= 1.01*.05*1e-6

# ---- broken files

DAMAGE = dict(half=lambda b: b[:len(b)//2], empty=lambda b: b'', zip=lambda b: b'PK\x03\x04'+b)

@pytest.mark.parametrize('damage', DAMAGE.values(), ids=DAMAGE)
def test_torn_checkpoint_is_named(suite, tmp_path, damage):
    p = tmp_path/'c'
    federation(suite, out=p).fit(1)
    p.write_bytes(damage(p.read_bytes()))
    with pytest.raises(ValueError, match='torn or no checkpoint'): federation(suite).load(p)

@pytest.mark.parametrize('other', [dict(method=FedProx), dict(rounds=3), dict(seed=1), dict(lr=.01)], ids=str)
def test_foreign_checkpoint_is_refused(suite, tmp_path, other):
    federation(suite, out=tmp_path/'c').fit(1)
    with pytest.raises(ValueError, match='is of another run'): federation(suite, **other).load(tmp_path/'c')

def test_foreign_version_is_refused(suite, tmp_path, monkeypatch):
    import fedskew_nb
    federation(suite, out=tmp_path/'c').fit(1)
    monkeypatch.setattr(fedskew_nb, '__version__', '9.9')
    with pytest.raises(ValueError, match='versions'): federation(suite).load(tmp_path/'c')

def test_a_refused_checkpoint_changes_nothing(suite, tmp_path):
    federation(suite, FedProx, out=tmp_path/'c').fit(1)
    fed = federation(suite)
    before = fed.state
    with pytest.raises(ValueError): fed.load(tmp_path/'c')
    assert fed.state is before

@pytest.mark.campaign
def test_killed_while_saving_loses_nothing(tmp_path):
    "kill -9 again and again during a run that saves all the time: the file on disk is always whole."
    path = tmp_path/'c'
    code = textwrap.dedent(f"""
        import torch
        from fedskew_nb.engine.checkpoint import save_nest
        print('go', flush=True)
        i = 0
        while True:
            save_nest(dict(i=i, w=torch.full((300_000,), float(i))), {str(path)!r})
            i += 1""")
    for _ in range(3):
        p = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE)
        p.stdout.readline()
        for _ in range(200):
            time.sleep(.05)
            if path.exists(): break
        time.sleep(.3)
        p.send_signal(signal.SIGKILL)
        p.wait()
        nest = load_nest(path)
        assert torch.equal(nest['w'], torch.full((300_000,), float(nest['i'])))

def test_two_threads_write_one_file(tmp_path):
    "Each under a name of its own: the file is whole, whoever was last."
    def write(i): write_json([i]*5000, tmp_path/'a.json')
    with ThreadPoolExecutor(8) as pool: list(pool.map(write, range(40)))
    found = json.loads((tmp_path/'a.json').read_text())
    assert len(found) == 5000 and len(set(found)) == 1 and os.listdir(tmp_path) == ['a.json']

MIXED = dict(a=1/3, b=[1, None, True, 'x'], c={3: {'d': torch.arange(3)}})

@pytest.mark.parametrize('nest', [MIXED, {}, dict(t=torch.tensor(7))], ids=['mixed', 'empty', 'scalar'])
def test_a_nest_comes_back(tmp_path, nest):
    from kill import equal
    save_nest(nest, tmp_path/'n')
    assert equal(load_nest(tmp_path/'n'), nest)

def test_a_tensor_in_two_places_is_one_again(tmp_path):
    one = torch.arange(3.)
    save_nest(dict(a=one, b=[one, one[:2]], c=one.clone()), tmp_path/'n')
    back = load_nest(tmp_path/'n')
    assert back['a'] is back['b'][0] and back['c'] is not back['a'] and back['b'][1].tolist() == [0, 1]

TORN = [('{"rows": [', 'is not a stored run'), ('[1]', r'it is \[1\], not a table'), ('{}', 'it has no rows')]

@pytest.mark.parametrize('text,word', TORN)
def test_what_is_no_history(tmp_path, text, word):
    (tmp_path/'h.json').write_text(text)
    with pytest.raises(ValueError, match=word): read_history(tmp_path/'h.json')

# ---- numbers, images and settings that cannot be

def test_nan_names_client_round_and_checkpoint(suite, tmp_path):
    @dataclass
    class Bomb(Mechanism):
        def loss(self, c, b, out):
            return dict(bomb=out.logits.mean()*(float('nan') if c.round == 1 and c.id == 2 else 0.))
    word = r"Bomb: 'bomb' is not finite at client 2 \(.*\) in round 2: .* the last good checkpoint is"
    with pytest.raises(FloatingPointError, match=word):
        federation(suite, Method('Bomb', Bomb()), rounds=3, out=tmp_path/'c').fit()
    assert federation(suite, Method('Bomb', Bomb()), rounds=3).load(tmp_path/'c').round_no == 1

def test_a_parameter_that_is_not_finite(suite):
    "The loss may still be finite when a step has ruined the model."
    how = dict(lr=1e38, local_steps=1, eval_every=2)
    with pytest.raises(FloatingPointError, match='is not finite at client 0'): run(suite, **how)

def test_one_image_and_batchnorm_on_vectors(suite):
    "ResNet-10 on 8-pixel images ends in a 1 × 1 map: a client with one image is left out, by name."
    def cut(d): return type(d)(d.x[:, :, :8, :8].contiguous(), d.y)
    clients = [replace(c, train=cut(c.train), val=cut(c.val), test=cut(c.test)) for c in suite.clients]
    clients[0] = replace(clients[0], train=clients[0].train[:1])
    small = replace(suite, clients=clients, tests={d: cut(t) for d, t in suite.tests.items()})
    with pytest.warns(UserWarning, match='left out: client 0 has one image') as said:
        fed = Federation(FedAvg, resnet10(10, width=4, size=8), small, rounds=1, device='cpu')
    assert said[0].filename == __file__                          # the warning points at the caller
    fed.fit()
    assert fed.history.rounds[0]['participants'] == [1, 2, 3, 4]

def test_one_image_is_enough_for_maps_of_several_pixels(suite):
    first = suite.clients[0]
    lonely = replace(suite, clients=[replace(first, train=first.train[:1]), *suite.clients[1:]])
    assert run(lonely, rounds=1).history.rounds[0]['participants'] == [0, 1, 2, 3, 4]

def test_no_images_is_refused(suite):
    c = suite.clients[0]
    with pytest.raises(ValueError, match='client 0 .* has no training image'):
        replace(suite, clients=[replace(c, train=c.train[:0]), *suite.clients[1:]])

def test_device_that_is_not_there(suite):
    if torch.cuda.is_available(): pytest.skip('this machine has CUDA')
    with pytest.raises(ValueError, match='this machine has none'): federation(suite, device='cuda')

def test_wrong_classes(suite):
    with pytest.raises(ValueError, match='the model answers 7 classes and the suite has 10'):
        Federation(FedAvg, small_conv(7, size=suite.image_size, width=8), suite)

def test_claims_are_refused_by_name(suite):
    class A(Mechanism):
        def rules(self, net): return [Rule(under('head'), lambda V, g, w, srv: V.mean(0))]
    class B(Mechanism):
        def rules(self, net): return [Rule(everything, lambda V, g, w, srv: V[0])]
    with pytest.raises(Contradiction, match='A and B both claim `head.weight`'):
        federation(suite, Method('x', A(), B()))
    assert federation(suite, Method('x', A()) + Local).kept

@pytest.mark.parametrize('said,word', [
    (dict(rounds=0), 'rounds is 0'),
    (dict(lr=float('nan')), 'lr is nan'),
    (dict(lr=float('inf')), 'lr is inf'),
    (dict(lr=0), 'lr is 0: it must be above 0'),
    (dict(participation=0.), 'participation is 0.0'),
    (dict(participation=1.1), 'participation is 1.1: it must be above 0 and at most 1'),
    (dict(batch_size=-1), 'batch_size is -1: it must be at least 1'),
    (dict(local_epochs=0), 'local_epochs is 0'),
    (dict(local_steps=0), 'local_steps is 0'),
    (dict(rounds=2.5), 'rounds is 2.5: give a whole number'),
    (dict(rounds=True), 'rounds is True: give a whole number'),
    (dict(seed=2**64), 'seed is'),
    (dict(pad=-1), 'pad is -1'),
    (dict(lr='fast'), "lr is 'fast': give a finite number"),
    (dict(clip=0.), 'clip is 0.0'),
    (dict(threads=0), 'threads is 0'),
    (dict(precision='fp16'), "precision is 'fp16': give fp32 or bf16")], ids=str)
def test_settings_out_of_range(said, word):
    with pytest.raises(ValueError) as e: Setting(**said)
    assert word in str(e.value)

UNKNOWN = [(dict(protocol='fedavg'), "no training protocol 'fedavg'"),
           (dict(epochs=2), "no setting 'epochs'")]

@pytest.mark.parametrize('said,word', UNKNOWN, ids=str)
def test_settings_that_are_unknown(suite, said, word):
    with pytest.raises(ValueError, match=word): federation(suite, **said)

@pytest.mark.parametrize('protocol', PROTOCOLS)
def test_protocols_are_settings(protocol):
    assert setting_for(FedAvg, protocol).rounds == PROTOCOLS[protocol]['rounds']

@pytest.mark.parametrize('images,word', [
    (torch.zeros(2, 3, 8, 8), 'give uint8 images'),
    (torch.zeros(8, 8, dtype=torch.uint8), 'give uint8 images')])
def test_images_that_are_none(suite, images, word):
    with pytest.raises(ValueError, match=word): federation(suite).predict(images)

def test_models_that_are_not_there(suite):
    fed = federation(suite)
    with pytest.raises(ValueError, match='there is no client 9'): fed.model(client=9)
    with pytest.raises(ValueError, match="there is no view 'mine'"): fed.model('mine')
    with pytest.raises(ValueError, match='so there is no global model'): federation(suite, FedBN).model()

# ---- the worker

def test_bfloat16_is_widened_everywhere():
    half = torch.ones(2, dtype=torch.bfloat16)
    found = widened(dict(a=[half, (half, 3)], b=torch.arange(2)))
    assert found['a'][0].dtype == found['a'][1][0].dtype == torch.float32
    assert isinstance(found['a'][1], tuple) and found['a'][1][1] == 3 and found['b'].dtype == torch.int64

def test_boxes_are_moved_and_labels_are_not(suite):
    from fedskew_nb.data.batch import draw_moves
    from fedskew_nb.engine.client import augmented
    x, boxes, y = suite.tests['mnist'].x[:4], torch.tensor([[0., 0., 28., 28.]]*4), torch.zeros(4)
    b = augmented(dict(x=x, boxes=boxes, y=y), draw_moves(4, generator('aug'), pad=4, flip=True))
    assert b['boxes'].tolist() != boxes.tolist() and torch.equal(b['y'], y)

def test_a_frozen_phase_counts_no_batch(suite):
    class HeadOnly(Mechanism):
        def phases(self, c): return [('head', 1, under('head'))]
    fed = federation(suite, Method('HeadOnly', HeadOnly()))
    up = fed.train_client(fed.clients[0]).upload
    moved = {n for n, v in up.state.items() if not torch.equal(v, fed.server[n])}
    assert moved == {'head.weight', 'head.bias'}

# ---- the server

NO_WEIGHTS = [[0., 0.], [1., -1.], [1., float('nan')], [1., 1., 1.], [1., float('inf')]]

@pytest.mark.parametrize('w', NO_WEIGHTS, ids=str)
def test_weights_that_are_none(w):
    class Wrong(Mechanism):
        def weights(self, srv, ups): return torch.tensor(w)
    ups = [Upload(k, 5, 'd', {}) for k in range(2)]
    with pytest.raises(ValueError, match='are no weights of 2 clients'):
        weights_of(Method('Wrong', Wrong()), SimpleNamespace(), ups)

def test_size_of_a_nest():
    nest = dict(a=torch.zeros(3), b=[torch.zeros(2, dtype=torch.float64), 7, 'x'], c=(torch.zeros(1),))
    assert size_of(nest) == 32

def test_merge_leaves_the_uploads_whole(suite):
    fed = federation(suite)
    ups = [fed.train_client(c).upload for c in fed.clients]
    names = [set(u.state) for u in ups]
    fed.merge(ups)
    assert [set(u.state) for u in ups] == names and fed.round_no == 0
    other = federation(suite)
    other.one_round()
    assert same(fed.server, other.server)

def test_traffic_counts_what_leaves_a_client(suite):
    class Says(Mechanism):
        def finish(self, c): return dict(note=torch.zeros(10))
        def extras(self, srv, ups): return dict(word=torch.zeros(100))
    fed = run(suite, Method('Says', Says()))
    model = 4*sum(v.numel() for v in fed.server.values() if v.is_floating_point())
    up = 5*(model+40)
    assert [(r['up'], r['down']) for r in fed.history.rounds] == [(up, 5*model), (up, 5*(model+400))]
    assert run(suite, Local).history.rounds[0]['up'] == 0

# ---- scores

@pytest.mark.parametrize('method', [FedAvg, FedBN], ids=lambda m: m.name)
def test_pieces_of_any_size_give_the_same_scores(suite, method):
    a, b = run(suite, method, rounds=1, eval_every=9), run(suite, method, rounds=1, eval_every=9)
    n = len(a.history.rows)
    a.score(piece=5)
    assert a.history.rows[n:] == [r for r in b.history.rows if r['moment'] == 'post_agg']

def test_a_model_is_asked_once_about_a_set(suite, monkeypatch):
    "In the last round every client has the server's model, and its test set may be that of its domain."
    shared = replace(suite, clients=[replace(c, test=suite.tests[c.domain]) for c in suite.clients])
    fed = federation(shared, rounds=1)
    fed.one_round()
    asked, right = [], Worker.right
    def counted(self, x, y, net=None):
        asked.append(len(x))
        return right(self, x, y, net)
    monkeypatch.setattr(Worker, 'right', counted)
    fed.score()
    assert len(questions(fed)) == 10 and len(asked) == 5

def test_without_anything_of_its_own_a_client_has_the_servers_model(suite):
    fed = federation(suite, FedBN, participation=.4, rounds=3)
    fed.fit(1)
    models = {q.client: q.model for q in questions(fed)}
    went = fed.history.rounds[0]['participants']
    assert models == {c.id: c.id if c.id in went else -1 for c in fed.clients}

# ---- the device

def test_memory_format_only_where_it_is_safe():
    narrow = torch.nn.Conv2d(4, 8, 1, stride=2)
    cpu, cuda = torch.device('cpu'), torch.device('cuda')
    assert memory_format(narrow, True, cpu) == torch.contiguous_format
    assert memory_format(torch.nn.Linear(2, 2), False, cpu) == torch.contiguous_format
    assert memory_format(narrow, True, cuda) == torch.channels_last

def test_small_things_about_the_device(monkeypatch):
    assert isinstance(has_bf16(), bool) and pick_device('cpu').type == 'cpu'
    assert usual_lanes(threads=10**6) == 1
    monkeypatch.setenv('FEDSKEW_MALLOC', '0')
    assert keep_freed_memory() is False

@pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device here')
def test_cuda_sees_the_same_batches(suite):
    a, b = run(suite, rounds=1), run(suite, rounds=1, device='cuda')
    assert all(torch.allclose(a.server[n], b.server[n].cpu(), atol=1e-2) for n in a.server)

# ---- what crosses the wall

def test_a_federation_of_one_answers_like_that_of_all(suite):
    "FedBN keeps names at home, and what a client kept comes back from the other hand."
    all_five, node = federation(suite, FedBN), federation(replace(suite, clients=suite.clients[2:3]), FedBN)
    mine = None
    for _ in range(2):
        answer, mine = node.work(all_five.order(2), mine)
        all_five.one_round()
        assert same(mine['kept'], {n: all_five.state_of(2)[n] for n in all_five.kept})
    assert not all_five.kept & answer['model'].keys() and node.round_no == 0
    assert answer['rows'] == [r for r in all_five.history.rows if r['client'] == 2]

def test_the_work_leaves_what_it_was_given_as_it_was(suite):
    class Counts(Mechanism):
        def start(self, c): c.state['n'] = c.state.get('n', 0)+1
    fed = federation(suite, Method('Counts', Counts()))
    mine = fed.work(fed.order(0))[1]
    again = fed.work(fed.order(0), mine)[1]
    assert [m['states']['Counts']['n'] for m in (mine, again)] == [1, 2] and fed.states[0] == {}

def with_model(name, v): return lambda a: a | dict(model=a['model'] | {name: v})
ROW = dict(round=1, moment='post_local', view='personal', path='', domain='mnist', client=0, n=8, correct=8)
HOSTILE = {
    'broadcast': (with_model('head.bias', torch.ones(1, 10)), r'head.bias is \(1, 10\) of torch.float32'),
    'another type': (with_model('head.bias', torch.ones(10).double()), 'torch.float64, not'),
    'no tensor': (with_model('head.bias', [1.]*10), 'head.bias is a list'),
    'one too many': (with_model('evil', torch.ones(1)), 'the model has no evil'),
    'one missing': (lambda a: a | dict(model={}), 'is missing'),
    'another client': (lambda a: a | dict(client=3), 'it is of client 3'),
    'impossible scores': (lambda a: a | dict(rows=[ROW | dict(correct=9)]), 'has more right than there are'),
    'scores of others': (lambda a: a | dict(rows=[ROW | dict(client=1)]), 'it scores another model'),
    'scores of before': (lambda a: a | dict(rows=[ROW | dict(round=0)]), 'it scores another model'),
    'a score twice': (lambda a: a | dict(rows=[ROW | dict(correct=c) for c in (1, 2)]), 'is there twice'),
    'a loss of NaN': (lambda a: a | dict(terms=dict(task=float('nan'))), 'terms.task is nan'),
    'half of it': (lambda a: {k: v for k, v in a.items() if k != 'extra'}, 'it has no extra'),
    'no nest': (lambda a: 'hello', "it is 'hello', not a table"),
    'NaN': (with_model('head.bias', torch.full((10,), torch.nan)), 'sent NaN or infinity'),
    'infinity beside it': (lambda a: a | dict(extra=dict(p=[torch.full((1,), torch.inf)])), 'sent NaN')}

@pytest.mark.parametrize('change, says', HOSTILE.values(), ids=HOSTILE)
def test_what_was_not_asked_for_is_refused(suite, change, says):
    fed = federation(suite)
    server, answer = Server(fed, fed.clients), dict(fed.work(fed.order(0))[0])
    with pytest.raises((ValueError, FloatingPointError), match=says) as e: server.sound(0, change(answer))
    assert 'client 0 (mnist)' in str(e.value) and not server.ups and not server.sums
    assert server.sound(0, answer).n == 40

def test_a_term_that_a_client_lacks_counts_as_0():
    terms = dict(ce=1., mine=4.), dict(ce=3.)
    local = [Result(Upload(k, 1, 'd', {}), t) for k, t in enumerate(terms)]
    state = after_round(State({}, {0: {}, 1: {}}, {}), local, {})
    assert state.history.rounds[0]['terms'] == dict(ce=2., mine=2.)

def test_the_server_takes_the_largest_counter_whoever_comes_last(suite):
    "A client of forty images makes five steps of eight, one of eight makes one."
    clients = [replace(c, train=c.train[:n]) for c, n in zip(suite.clients, (40, 8))]
    two = replace(suite, clients=clients)
    fed = Federation(FedAvg, small_conv(10, size=28, width=4), two, rounds=1, batch_size=8, lanes=1)
    fed.one_round()
    counters = [v for n, v in fed.server.items() if n.endswith('num_batches_tracked')]
    assert counters and all(int(v) == 5 for v in counters)

def test_seconds_of_a_round_lie_within_it(suite):
    "Training and scoring are told apart, and together they take no longer than the whole call."
    begun = time.perf_counter()
    h = Federation(FedAvg, new(suite), suite, device='cpu', rounds=2, local_steps=1).fit(progress=False)
    whole, pieces = time.perf_counter()-begun, [t[k] for t in h.timing for k in ('seconds', 'eval_seconds')]
    assert len(pieces) == 4 and min(pieces) > 0 and sum(pieces) < whole
