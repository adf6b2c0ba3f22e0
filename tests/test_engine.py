"What must hold of every run and teaches nothing: resume, order, noise, broken checkpoints, interruptions."
import os, signal, subprocess, sys, textwrap, time
from dataclasses import dataclass, replace
import pytest, torch
from fedskew_nb.core.method import Contradiction, Mechanism, Method
from fedskew_nb.core.rules import Rule, keep
from fedskew_nb.core.seeding import Dropout
from fedskew_nb.core.net import everything, under
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.federation import Federation
from fedskew_nb.methods.baselines.average import FedAvg, FedProx
from fedskew_nb.methods.baselines.personal import FedBN, Local
from fedskew_nb.core.models import resnet10, small_conv

@pytest.fixture(scope='module')
def suite(): return load_suite('skew-digits', size='tiny')

def new(suite, **k): return small_conv(suite.n_classes, size=suite.image_size, **(dict(width=8, seed=0) | k))
def run(suite, method=FedAvg, net=None, **k):
    return Federation(method, net or new(suite), suite, **(dict(rounds=2, lr=.05, device='cpu', eval_every=1) | k))
def same(a, b): return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)

@pytest.mark.parametrize('method', [FedAvg, FedProx(mu=.1), FedBN, Local], ids=lambda m: m.name)
def test_two_and_three_rounds_are_five(suite, tmp_path, method):
    whole = run(suite, method, rounds=5, participation=.6); whole.fit()
    first = run(suite, method, rounds=5, participation=.6, out=tmp_path/'c'); first.fit(2)
    then = run(suite, method, rounds=5, participation=.6).load(tmp_path/'c'); then.fit()
    assert same(whole.server, then.server) and whole.history == then.history
    assert all(same(whole.own[k], then.own[k]) for k in whole.own)

def test_thread_count_is_restored(suite):
    before = torch.get_num_threads(); run(suite, threads=2, rounds=1).fit(); assert torch.get_num_threads() == before

def test_dropout_draws_from_the_client(suite):
    def net(): n = new(suite); n.pool = torch.nn.Sequential(n.pool, Dropout(.5)); return n
    before = torch.random.get_rng_state()
    a, b = run(suite, net=net()), run(suite, net=net()); a.fit(); b.fit()
    assert same(a.server, b.server) and torch.equal(before, torch.random.get_rng_state())

def test_client_order_is_no_matter(suite):
    a, b = run(suite), run(replace(suite, clients=suite.clients[::-1])); b.suite = suite; a.fit(); b.fit()
    assert same(a.server, b.server)

@pytest.mark.parametrize('damage,word', [(lambda b: b[:len(b)//2], 'torn or no checkpoint'), (lambda b: b'', 'torn or no checkpoint'), (lambda b: b'PK\x03\x04'+b, 'torn or no checkpoint')])
def test_torn_checkpoint_is_named(suite, tmp_path, damage, word):
    p = tmp_path/'c'; fed = run(suite, out=p); fed.fit(1)
    p.write_bytes(damage(p.read_bytes()))
    with pytest.raises(ValueError, match=word): run(suite).load(p)

@pytest.mark.parametrize('other', [dict(method=FedProx), dict(rounds=3), dict(seed=1), dict(lr=.01)], ids=str)
def test_foreign_checkpoint_is_refused(suite, tmp_path, other):
    run(suite, out=tmp_path/'c').fit(1)
    with pytest.raises(ValueError, match='is of another run'): run(suite, **other).load(tmp_path/'c')

def test_foreign_version_is_refused(suite, tmp_path, monkeypatch):
    import fedskew_nb
    run(suite, out=tmp_path/'c').fit(1)
    monkeypatch.setattr(fedskew_nb, '__version__', '9.9')
    with pytest.raises(ValueError, match='versions'): run(suite).load(tmp_path/'c')

def test_nan_names_client_round_and_checkpoint(suite, tmp_path):
    @dataclass
    class Bomb(Mechanism):
        def loss(self, c, b, out): return dict(bomb=out.logits.mean()*(float('nan') if c.round == 1 and c.id == 2 else 0.))
    with pytest.raises(FloatingPointError, match=r"Bomb: 'bomb' is not finite at client 2 \(.*\) in round 2: .* the last good checkpoint is"):
        run(suite, Method('Bomb', Bomb()), rounds=3, out=tmp_path/'c').fit()
    back = run(suite, Method('Bomb', Bomb()), rounds=3).load(tmp_path/'c'); assert back.round_no == 1

def test_killed_while_saving_loses_nothing(tmp_path):
    "kill -9 again and again during a run that saves all the time: the file on disk is always whole."
    code = textwrap.dedent(f"""
        import torch; from fedskew_nb.engine.history import save_nest
        print('go', flush=True); i = 0
        while True: save_nest(dict(i=i, w=torch.full((300_000,), float(i))), {str(tmp_path/'c')!r}); i += 1""")
    from fedskew_nb.engine.history import load_nest
    for _ in range(3):
        p = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE); p.stdout.readline()
        for _ in range(200):
            time.sleep(.05)
            if (tmp_path/'c').exists(): break
        time.sleep(.3); p.send_signal(signal.SIGKILL); p.wait()
        nest = load_nest(tmp_path/'c'); assert torch.equal(nest['w'], torch.full((300_000,), float(nest['i'])))

def test_interrupt_keeps_the_last_checkpoint(suite, tmp_path):
    def stop(fed):
        if fed.round_no == 2: raise KeyboardInterrupt
    fed = run(suite, rounds=4, out=tmp_path/'c')
    with pytest.raises(KeyboardInterrupt): fed.fit(on_round=stop)
    on = run(suite, rounds=4).load(tmp_path/'c'); on.fit(); whole = run(suite, rounds=4); whole.fit()
    assert same(on.server, whole.server) and on.history == whole.history

def test_one_image_and_batchnorm_on_vectors(suite):
    "ResNet-10 on 8-pixel images ends in a 1 × 1 map, where BatchNorm cannot train on one image: the client is left out, by name."
    tiny = lambda d: type(d)(d.x[:, :, :8, :8].contiguous(), d.y)
    small = replace(suite, clients=[replace(c, train=tiny(c.train), val=tiny(c.val), test=tiny(c.test)) for c in suite.clients], tests={d: tiny(t) for d, t in suite.tests.items()})
    one = small.clients[0].train; small.clients[0] = replace(small.clients[0], train=type(one)(one.x[:1], one.y[:1]))
    with pytest.warns(UserWarning, match='left out: client 0 has one image'): fed = run(small, net=resnet10(10, width=4, size=8), rounds=1)
    fed.fit(); assert fed.history.rounds[0]['participants'] == [1, 2, 3, 4]

def test_no_images_is_refused(suite):
    c = suite.clients[0]
    with pytest.raises(ValueError, match='client 0 .* has no training image'): replace(suite, clients=[replace(c, train=c.train[:0]), *suite.clients[1:]])

def test_device_that_is_not_there(suite):
    if torch.cuda.is_available(): pytest.skip('this machine has CUDA')
    with pytest.raises(ValueError, match='this machine has none'): run(suite, device='cuda')

def test_claims_are_refused_by_name(suite):
    class A(Mechanism):
        def rules(self, net): return [Rule(under('head'), lambda V, g, w, srv: V.mean(0))]
    class B(Mechanism):
        def rules(self, net): return [Rule(everything, lambda V, g, w, srv: V[0])]
    with pytest.raises(Contradiction, match='A and B both claim `head.weight`'): run(suite, Method('x', A(), B()))
    assert run(suite, Method('x', A()) + Local).kept

def test_wrong_input(suite):
    for k, word in [(dict(rounds=0), 'rounds is 0'), (dict(lr=float('nan')), 'lr is nan'), (dict(participation=1.1), 'participation'), (dict(house='fedavg'), 'no house setting'), (dict(epochs=2), "no setting 'epochs'")]:
        with pytest.raises(ValueError, match=word): run(suite, **k)

@pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device here')
def test_cuda_sees_the_same_batches(suite):
    a, b = run(suite, rounds=1), run(suite, rounds=1, device='cuda'); a.fit(); b.fit()
    assert all(torch.allclose(a.server[n], b.server[n].cpu(), atol=1e-2) for n in a.server)
