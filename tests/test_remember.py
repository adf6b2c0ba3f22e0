"A frozen prefix is computed once; an adapter behind it learns, and every method finds that and nothing else."
import copy, subprocess, sys
from dataclasses import replace
import pytest, torch
from torch import nn
from fedskew_nb import FedAvg, Federation, export, load_suite, read_method, resnet10, small_conv
from fedskew_nb.analysis.probes import adabn
from fedskew_nb.core.identity import digest
from fedskew_nb.nets.models import conv_bn, gap, has_batchnorm, has_convs, seq
from fedskew_nb.core.net import Net
from fedskew_nb.nets.pretrained import behind, freeze
from fedskew_nb.nets.remember import Remember, maps_of, tidy
from fedskew_nb.core.seeding import generator, seeded
from fedskew_nb.data.cache import cache_dir
from fedskew_nb.methods.fdse.erase import erased_blocks

def few(data, n): return data[torch.arange(n)]

def little(suite):
    clients = [replace(c, train=few(c.train, 20), test=few(c.test, 6)) for c in suite.clients[:3]]
    return replace(suite, name='little', clients=clients, tests={c.domain: c.test for c in clients})

SUITE = little(load_suite('emoji-pacs', 'tiny'))
SIDE = SUITE.image_size
HOW = dict(rounds=2, local_steps=3, batch_size=8, lr=.05, device='cpu')
PICTURES = sum(len(c.train)+len(c.test) for c in SUITE.clients)
SYSTEMS = ('Local', 'FedAvg', 'FedProx', 'FedBN', 'SiloBN', 'Ditto', 'MOON', 'F2DC', 'FDSE', 'DFL', 'RFedDis')

@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv('FEDSKEW_CACHE', str(tmp_path/'cache'))
    maps_of.cache_clear()

def net_of(seed=0):
    "A frozen ResNet, a fresh convolution, a head."
    return freeze(behind(resnet10(7, width=2, size=SIDE, seed=seed), 8, SIDE, seed), 'prefix')

def prefix_of(state): return {n: v for n, v in state.items() if '.prefix.' in n}

def fitted(method, net=None, suite=SUITE, **how):
    method = read_method(method) if isinstance(method, str) else method
    fed = Federation(method, net or net_of(), suite, **HOW | how)
    fed.fit()
    return fed

def maps_in(fed): return fed.net.body.prefix.maps(fed.worker.images(SUITE.clients[0].train.x))

# ---- computed once

@pytest.fixture
def run(monkeypatch):
    "run(): a federation after its rounds, and how many images passed the prefix in them."
    seen, computed = [], Remember.computed
    def counted(self, x):
        seen.append(len(x))
        return computed(self, x)
    monkeypatch.setattr(Remember, 'computed', counted)
    def run(**how):
        fed = Federation(FedAvg, net_of(), SUITE, **HOW | how)
        del seen[:]
        fed.fit()
        return fed, sum(seen)
    return run

def test_each_image_passes_the_prefix_once(run):
    assert run(rounds=6)[1] == PICTURES

def test_images_pass_eight_at_a_time():
    seen, prefix = [], Remember(small_conv(7, width=2).body)
    prefix.body.register_forward_hook(lambda m, x, out: seen.append(len(x[0])))
    prefix.look([torch.rand(20, 3, 32, 32, generator=generator('twenty'))])
    assert seen == [8, 8, 8]

def test_the_next_run_of_this_process_computes_nothing(run):
    (first, _), (fed, asked) = run(), run()
    assert asked == 0 and torch.equal(first.net.head.weight, fed.net.head.weight)

@pytest.mark.parametrize('harm', ['', 'torn'])
def test_another_process_reads_what_is_whole(run, harm):
    first, _ = run()
    maps_of.cache_clear()                                            # as if it had just begun
    files = [*(cache_dir()/'maps').glob('*/*')]
    if harm:
        for file in files: file.write_bytes(file.read_bytes()[:-4])
    fed, asked = run()
    assert asked == (PICTURES if harm else 0) and len(files) == 6
    assert torch.equal(first.net.head.weight, fed.net.head.weight)

def test_without_a_folder_maps_are_kept_in_memory(run, tmp_path, monkeypatch):
    (tmp_path/'file').write_text('in the way')
    monkeypatch.setenv('FEDSKEW_CACHE', str(tmp_path/'file'))
    fed, asked = run(rounds=6)
    assert asked == PICTURES and maps_in(fed).held > 0

def test_a_prefix_has_one_name_in_every_process():
    code = ('from fedskew_nb.nets.remember import Remember\nfrom fedskew_nb import small_conv\n'
            'print(Remember(small_conv(7, width=4, seed=3).body).code())')
    said = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == Remember(small_conv(7, width=4, seed=3).body).code()

def test_the_oldest_files_go(tmp_path):
    for i in range(3):
        (tmp_path/f'{i}').mkdir()
        (tmp_path/f'{i}/x.safetensors').write_bytes(bytes(100))
    tidy(tmp_path, 250)
    assert len([*tmp_path.glob('*/*')]) == 2

def test_mirrored_images_have_maps_too_and_shifted_ones_have_none():
    def maps(i, **how):
        fed = fitted('FedAvg', net_of(i), rounds=1, **how)
        return len(maps_in(fed))
    trained, tested = 3*20, 3*6
    assert (maps(0), maps(1, flip=True), maps(2, pad=2)) == (trained+tested, 2*trained+tested, tested)

def test_memory_that_is_full_says_so_and_changes_no_number(tmp_path, monkeypatch):
    (tmp_path/'file').write_text('in the way')
    monkeypatch.setenv('FEDSKEW_CACHE', str(tmp_path/'file'))
    want = fitted('FedAvg')
    tight = net_of()
    tight.body.prefix.most = 2000
    with pytest.warns(UserWarning, match='computed each time anew'): fed = fitted('FedAvg', tight)
    assert torch.allclose(want.net.head.weight, fed.net.head.weight, atol=1e-5)

# ---- the prefix rests

@pytest.mark.parametrize('name', SYSTEMS)
def test_a_system_learns_behind_the_prefix_and_leaves_it(name):
    net = net_of()
    want, fed = prefix_of(net.state_dict()), fitted(name, net)
    for state in (fed.server, *(fed.state_of(c.id) for c in fed.clients)):
        there = prefix_of(state)
        assert there.keys() == want.keys() and all(torch.equal(there[n], v) for n, v in want.items())
    leaves = {*fed.kept, *fed.order(0)['model']}
    assert not leaves & want.keys() and set(want) <= fed.net.frozen
    assert fed.history.rounds[-1]['loss'] > 0

def test_only_what_learns_is_sent():
    fed = fitted('FedAvg')
    learns = {n: v for n, v in fed.net.state_dict().items() if n.startswith(('body.adapter', 'head'))}
    floats = sum(v.numel()*4 for v in learns.values() if v.is_floating_point())
    assert fed.history.rounds[0]['up'] == len(SUITE.clients)*floats

def test_methods_of_batchnorm_are_no_fedavg():
    first, *others = (fitted(name) for name in ('FedAvg', 'FedBN', 'SiloBN'))
    x = SUITE.clients[0].test.x
    here = first.predict(x, client=0)
    for fed in others: assert not torch.allclose(fed.predict(x, client=0), here, atol=1e-4)

def test_statistics_of_the_prefix_are_not_estimated_again():
    fed = fitted('FedAvg + AdaBN')
    nets = [fed.model(client=c.id).state_dict() for c in fed.clients[:2]]
    first = adabn(net_of(), SUITE.clients[0].train).state_dict()
    kept = prefix_of(fed.server).items()
    for state in (*nets, first): assert all(torch.equal(v, state[n]) for n, v in kept)
    mean = 'body.adapter.bn.running_mean'
    assert not torch.allclose(nets[0][mean], nets[1][mean])
    assert not torch.equal(first[mean], net_of().state_dict()[mean])

def test_what_is_frozen_is_no_need():
    frozen, behind_it = freeze(small_conv(7, SIDE, width=4), 'body'), net_of()
    assert (has_batchnorm(frozen), has_convs(frozen)) == (False, False)
    assert (has_batchnorm(behind_it), has_convs(behind_it)) == (True, True)

# ---- where systems find their places

def test_fdse_splits_the_adapter_alone():
    assert [*erased_blocks(fitted('FDSE').net)] == ['body.adapter.conv']
    with pytest.raises(ValueError, match='no layer to decompose.*not frozen'):
        Federation(read_method('FDSE'), freeze(resnet10(7, width=2, size=SIDE), 'body'), SUITE, **HOW)

def test_dfl_draws_the_adapter_anew_and_shares_the_prefix():
    net = net_of()
    body = read_method('DFL').adapt(net).body
    assert isinstance(body.prefix, Remember) and not any('prefix' in n for n in body.E_s.state_dict())
    assert torch.equal(body.E_c.adapter.conv.weight, net.body.adapter.conv.weight)
    assert not torch.equal(body.E_s.adapter.conv.weight, net.body.adapter.conv.weight)
    assert body.E_s.adapter.conv.weight.requires_grad
    fed = fitted('DFL', rounds=1)
    sent = fed.work(fed.order(0))[0]['extra']['E_s']
    assert sent and not any('prefix' in n for n in sent)

def test_dfl_on_a_body_that_is_all_frozen_is_refused():
    with pytest.raises(ValueError, match='changes `body`, which is frozen'):
        Federation(read_method('DFL'), freeze(resnet10(7, width=2, size=SIDE), 'body'), SUITE, **HOW)

def test_f2dc_and_rfeddis_work_on_what_the_adapter_says():
    assert fitted('F2DC').net.neck.m.in_features == 8
    assert fitted('RFedDis').net.head.psi_G.H.fc.in_features == 8

# ---- what else must survive

def test_copies_read_the_same_maps():
    net, x = net_of(), torch.rand(4, 3, SIDE, SIDE, generator=generator('four'))
    net.body.prefix.look([x])
    twin = copy.deepcopy(net)
    assert twin.body.prefix.maps(x) is net.body.prefix.maps(x)
    assert twin.body.prefix.body is not net.body.prefix.body
    twin.body.prefix.body.stem.conv.weight.data = twin.body.prefix.body.stem.conv.weight.data.clone()
    assert torch.equal(twin.eval()(x).logits, net.eval()(x).logits)

def test_a_model_of_tensors_reads_the_same_maps():
    "MOON asks the received model with the tensors of the last one."
    net, x = net_of().eval(), torch.rand(4, 3, SIDE, SIDE, generator=generator('four'))
    net.body.prefix.look([x])
    state = {n: v.clone() for n, v in net.state_dict().items()}
    names = []
    net.body.adapter.register_forward_hook(lambda *_: names.append(net.body.prefix.prefix_name(x)))
    torch.func.functional_call(net, state, (x,))
    assert names == [net.body.prefix.prefix_name(x)]

def test_hooks_see_the_prefix_at_work_and_leave_its_name():
    net, x, seen = net_of().eval(), torch.rand(4, 3, SIDE, SIDE, generator=generator('four')), []
    hook = net.body.prefix.body.stem.register_forward_hook(lambda *_: seen.append(1))
    net(x)
    hook.remove()
    assert seen == [1] and net.body.prefix.code() == net_of().body.prefix.code()

def test_other_weights_other_maps():
    net, x = net_of(), torch.rand(4, 3, SIDE, SIDE, generator=generator('four'))
    net.body.prefix.look([x])
    before = net.eval()(x).fmap
    with torch.no_grad(): net.body.prefix.body.stem.conv.weight.mul_(-1)
    assert not torch.equal(net(x).fmap, before)

def test_maps_are_no_part_of_a_net():
    net = net_of().eval()
    before = digest(net)
    net.body.prefix.look([torch.rand(4, 3, SIDE, SIDE, generator=generator('four'))])
    assert digest(net) == before == digest(copy.deepcopy(net))

def test_clients_are_not_stacked():
    assert 'frozen' in Federation(FedAvg, net_of(), SUITE, **HOW).why_lanes
    with pytest.raises(ValueError, match='cannot be stacked: some of its parameters are frozen'):
        Federation(FedAvg, net_of(), SUITE, stack=True, **HOW)

def test_under_vmap_nothing_is_looked_up():
    prefix, x = net_of().body.prefix, torch.rand(2, 4, 3, SIDE, SIDE, generator=generator('eight'))
    got = torch.func.vmap(prefix)(x)
    assert torch.allclose(got[1], prefix(x[1]), atol=1e-5)

def test_saved_and_loaded_it_goes_on_to_the_bit(tmp_path):
    one = fitted('FedBN', eval_every=1)
    how = HOW | dict(eval_every=1)
    Federation(read_method('FedBN'), net_of(), SUITE, out=tmp_path/'half.safetensors', **how).fit(1)
    maps_of.cache_clear()
    half = Federation(read_method('FedBN'), net_of(), SUITE, **how).load(tmp_path/'half.safetensors')
    half.fit()
    assert all(torch.equal(v, half.state_of(1)[n]) for n, v in one.state_of(1).items())

def test_lanes_change_no_bit():
    one, two = (fitted('F2DC', lanes=n).server for n in (1, 2))
    assert all(torch.equal(v, two[n]) for n, v in one.items())

def test_an_exported_net_is_whole(tmp_path):
    onnxruntime = pytest.importorskip('onnxruntime')
    net = freeze(behind(small_conv(7, SIDE, width=4), 8, SIDE, 0), 'prefix')
    fed, x = fitted('FedAvg', net), SUITE.clients[0].test.x[:3]
    session = onnxruntime.InferenceSession(export(fed, tmp_path/'x.onnx'), providers=['CPUExecutionProvider'])
    said, = session.run(None, dict(images=x.numpy()))
    assert torch.allclose(torch.from_numpy(said), fed.predict(x), atol=1e-4)
    assert torch.equal(fed.predict(x), fed.predict(x))

def test_a_timm_net_by_a_text():
    pytest.importorskip('timm')
    from fedskew_nb import read_model
    net = read_model("timm('mobilenetv3_small_050', frozen='prefix', adapter=8)", 7, 32)
    assert [n for n, _ in net.body.named_children()] == ['prefix', 'adapter']
    assert type(net.body.prefix.body.trunk.conv_head) is nn.Identity
    assert net.body.adapter.conv.in_channels == 288 and net.head.in_features == 8
    cut = read_model("timm('resnet18', frozen='prefix', adapter=8, upto='layer2')", 7, 32)
    assert cut.body.adapter.conv.in_channels == 128
    with pytest.raises(ValueError, match='did you mean layer2'):
        read_model("timm('resnet18', frozen='prefix', adapter=8, upto='layers2')", 7, 32)

def test_a_net_made_by_hand_has_a_prefix_too():
    with seeded(0):
        body = seq(prefix=Remember(conv_bn(3, 4, stride=2)), adapter=conv_bn(4, 8))
        fed = fitted('DFL', Net(body, gap(), nn.Linear(8, 7)))
    assert isinstance(fed.net.body.prefix, Remember)
