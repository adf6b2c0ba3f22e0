"Nets from torchvision and timm: what they answer, what is remembered, and what a federation makes of them."
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
import pytest, torch
from feds import cut
from safetensors.torch import save_file
from torchvision.models import resnet18, shufflenet_v2_x0_5
from torchvision.models.resnet import BasicBlock, ResNet
from fedskew_nb import (
    FedAvg, Federation, as_net, compare, export, load_suite, read_method, read_model, small_conv)
from fedskew_nb.nets.convert import IMAGENET
from fedskew_nb.nets.pretrained import freeze, timm_net, torchvision_net
from fedskew_nb.core.seeding import generator, seeded
from fedskew_nb.run.recipes import METHODS

def few(data, n): return data[torch.arange(n)]

def little(suite):
    "The same suite with some of its images."
    clients = [replace(c, train=few(c.train, 24), test=few(c.test, 12)) for c in suite.clients]
    tests = {d: few(t, 12) for d, t in suite.tests.items()}
    return replace(suite, name='little', clients=clients, tests=tests)

SUITE = little(load_suite('emoji-pacs', 'tiny'))
HOW = dict(rounds=2, local_steps=2, batch_size=8, lr=.05, device='cpu')

def images(n, side=32): return torch.rand(n, 3, side, side, generator=generator('images', n))

def small(frozen='body', seed=0): return freeze(small_conv(7, SUITE.image_size, width=4, seed=seed), frozen)

def test_remembered_is_frozen():
    "The same federation, once with a memory, once with a body that is only frozen."
    plain, kept = small(''), small()
    plain.body.requires_grad_(False)
    feds = [Federation(FedAvg, net, SUITE, **HOW) for net in (plain, kept)]
    for fed in feds: fed.fit()
    for a, b in zip(feds[0].net.head.parameters(), feds[1].net.head.parameters()):
        assert torch.allclose(a, b, atol=1e-4)
    learns = sum(p.numel() for p in kept.parameters() if p.requires_grad)
    for fed in feds: assert fed.history.rounds[0]['up'] == len(SUITE.clients)*4*learns

def test_lanes_and_a_resumption_change_no_bit(tmp_path):
    "New images go through the body in batches of one size, so it does not matter who meets one first."
    def heads(lanes, **how):
        fed = Federation(FedAvg, small(), SUITE, lanes=lanes, **HOW | how)
        fed.fit()
        return fed
    one, two = heads(1), heads(2)
    assert torch.equal(one.net.head.weight, two.net.head.weight)
    Federation(FedAvg, small(), SUITE, out=tmp_path/'half.safetensors', eval_every=1, **HOW).fit(1)
    half = Federation(FedAvg, small(), SUITE, lanes=1, eval_every=1, **HOW).load(tmp_path/'half.safetensors')
    half.fit()
    assert torch.equal(one.net.head.weight, half.net.head.weight)

def test_other_weights_other_maps():
    net, x = small(seed=0), images(2)
    before = net(x).fmap
    net.load_state_dict(small(seed=1).state_dict())
    assert not torch.equal(net(x).fmap, before)

def test_gradients_of_images_reach_them():
    x = images(2).requires_grad_()
    small()(x).logits.sum().backward()
    assert x.grad.abs().sum() > 0

def test_weights_from_a_checkpoint_of_several_gpus(tmp_path):
    with seeded(3): theirs = resnet18()
    state = {f'module.{k}': v for k, v in theirs.state_dict().items()}
    torch.save(dict(epoch=3, state_dict=state), tmp_path/'x.pth')
    net = torchvision_net(7, weights=str(tmp_path/'x.pth'), size=32)
    x = images(2)
    want = as_net(theirs, size=32).eval()(x).fmap
    assert torch.allclose(net.eval()(x).fmap, want) and net.expects == IMAGENET

def test_a_file_that_runs_code_is_refused(tmp_path):
    class Trap:
        def __reduce__(self): return (print, ('run',))
    torch.save(dict(a=Trap()), tmp_path/'trap.pt')
    with pytest.raises(ValueError, match='without running code'):
        torchvision_net(7, weights=str(tmp_path/'trap.pt'))

def test_images_are_normalised_as_the_weights_expect():
    net = small()
    net.expects = dict(mean=(.1, .2, .3), std=(1., 1., 1.))
    fed = Federation(FedAvg, net, SUITE, **HOW)
    x = SUITE.tests['photo'].x[:4]
    by_hand = x/255-torch.tensor([.1, .2, .3]).view(3, 1, 1)
    with torch.no_grad(): want = fed.net.eval()(by_hand).logits.softmax(1)
    assert torch.allclose(fed.predict(x), want, atol=1e-5)

def test_in_a_comparison_by_name(tmp_path):
    text = "torchvision('shufflenet_v2_x0_5', frozen='body')"
    cmp = compare('FedAvg', SUITE, seeds=1, rounds=1, local_steps=1, control=False, model=text, out=tmp_path,
                  device='cpu')
    assert cmp.histories[0].setting['model'] == text

def test_what_is_remembered_is_exported_whole(tmp_path):
    onnxruntime = pytest.importorskip('onnxruntime')
    with seeded(0): trunk = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=7)
    net = freeze(as_net(trunk, size=SUITE.image_size), 'body')
    fed = Federation(FedAvg, net, SUITE, **HOW)
    x = SUITE.tests['photo'].x[:2]
    session = onnxruntime.InferenceSession(export(fed, tmp_path/'x.onnx'), providers=['CPUExecutionProvider'])
    said, = session.run(None, dict(images=x.numpy()))
    assert torch.allclose(torch.from_numpy(said), fed.predict(x), atol=1e-4)

@pytest.mark.parametrize('name, size, shape', [
    ('resnet18', 64, (512, 2, 2)), ('vit_tiny_patch16_224', 64, (192, 4, 4)),
    ('convnext_atto', 64, (320, 2, 2)), ('swin_tiny_patch4_window7_224', 64, (768, 2, 2)),
    ('mobilenetv3_small_050', 32, (1024, 1, 1))])
def test_timm_nets_give_a_map(name, size, shape):
    timm = pytest.importorskip('timm')
    net = timm_net(5, name, size=size, seed=2).eval()
    out = net(images(2, size))
    assert out.fmap.shape[1:] == shape and out.logits.shape == (2, 5)
    with seeded(2):
        how = dict(num_classes=0, global_pool='')
        try: trunk = timm.create_model(name, img_size=size, **how).eval()
        except TypeError: trunk = timm.create_model(name, **how).eval()
    with torch.no_grad(): theirs = trunk(images(2, size))
    mean = theirs.mean((1, 2)) if getattr(trunk, 'output_fmt', '') == 'NHWC' else \
        theirs.mean((2, 3)) if theirs.ndim == 4 else theirs[:, 1:].mean(1)
    assert torch.allclose(out.feat, mean, atol=1e-5)

def test_a_transformer_in_a_federation_of_maps():
    pytest.importorskip('timm')
    net = timm_net(7, 'vit_tiny_patch16_224', frozen='body', size=32)
    net.image_size = SUITE.image_size
    fed = Federation(read_method('F2DC'), net, SUITE, **HOW | dict(rounds=1))
    fed.fit()
    assert fed.round_no == 1

def test_wrong_names():
    pytest.importorskip('timm')
    wrong = {"timm('resnet81')": 'did you mean', "timm('resnet18', weights='mine.pt')": 'there is no file',
             "torchvision('vit_b_16')": 'no feature map', "torchvision('resnet18', norm='batch')": 'norm',
             "torchvision('resnet18', weights='DEFALT')": 'IMAGENET1K_V1, DEFAULT',
             'torchvision(resnet18)': "name='resnet18'"}
    for text, said in wrong.items():
        with pytest.raises(ValueError, match=said): read_model(text, 7, 64)

def test_batchnorm_of_a_frozen_body_stays():
    fed = Federation(FedAvg, small(), SUITE, **HOW)
    before = {k: v.clone() for k, v in fed.net.state_dict().items() if 'running' in k}
    fed.fit()
    assert all(torch.equal(v, fed.net.state_dict()[k]) for k, v in before.items())

@pytest.mark.parametrize('text', ['FedBN', 'SiloBN', 'FedAvg + AdaBN'])
def test_batchnorms_that_are_all_frozen_are_nobodys(text):
    with pytest.raises(ValueError, match='BatchNorms are all frozen'):
        Federation(read_method(text), small(), SUITE, **HOW)

# ---- weights as they are published

SHUFFLE = 'shufflenet_v2_x0_5'

@lru_cache
def theirs():
    with seeded(3): return shufflenet_v2_x0_5(num_classes=3)

def wrapped(*begins):
    return {begin+k: v for begin in begins for k, v in theirs().state_dict().items()}

PUBLISHED = {
    'bare': lambda: wrapped(''), 'net': lambda: dict(net=wrapped('')),
    'MAE': lambda: dict(model=wrapped(''), epoch=3),
    'Lightning': lambda: dict(state_dict=wrapped('model.') | {'loss.weight': torch.ones(3)},
                              hparams=dict(lr=.1)),
    'compiled': lambda: dict(model_state_dict=wrapped('_orig_mod.'),
                             optimizer=dict(state={0: dict(m=torch.ones(2))})),
    'teacher': lambda: dict(teacher=wrapped('module.backbone.')),
    'exponential mean': lambda: dict(state_dict=wrapped(''), ema={k: v+1 for k, v in wrapped('').items()})}

@pytest.mark.parametrize('name', PUBLISHED)
def test_weights_lie_where_people_put_them(name, tmp_path, recwarn):
    torch.save(PUBLISHED[name](), tmp_path/'w.pth')
    net = torchvision_net(3, SHUFFLE, str(tmp_path/'w.pth'), size=64)
    own, want = net.state_dict(), theirs().state_dict()
    assert all(torch.equal(own[f'body.{k}'], v) for k, v in want.items() if not k.startswith('fc'))
    assert not [w for w in recwarn if 'order' in str(w.message)]

def test_two_that_fit_alike_are_not_guessed(tmp_path):
    other = {k: v+1 for k, v in wrapped('').items()}
    torch.save(dict(student=wrapped(''), teacher=other), tmp_path/'w.pth')
    with pytest.raises(ValueError, match=r'several weights that fit alike \(student, teacher\)'):
        torchvision_net(3, SHUFFLE, str(tmp_path/'w.pth'))
    torch.save(dict(student=wrapped(''), teacher=wrapped('')), tmp_path/'w.pth')
    torchvision_net(3, SHUFFLE, str(tmp_path/'w.pth'))

def renamed(state):
    "Each layer by a number, in the order of the layers."
    layers = list(dict.fromkeys(k.rpartition('.')[0] for k in state))
    return {f'_l{layers.index(k.rpartition(".")[0])}.{k.rpartition(".")[2]}': v for k, v in state.items()}

def test_other_names_in_our_order_are_taken_and_said(tmp_path):
    torch.save(renamed(wrapped('')), tmp_path/'w.pth')
    with pytest.warns(UserWarning, match='280 tensors were taken in their order'):
        net = torchvision_net(5, SHUFFLE, str(tmp_path/'w.pth'), size=64)
    own = net.state_dict()
    assert all(torch.equal(own[f'body.{k}'], v) for k, v in theirs().state_dict().items()
               if not k.startswith('fc') and not k.endswith('tracked'))

def swapped(state, a, b):
    "The same tensors, two of them in each other's place."
    names = list(state)
    i, j = names.index(a), names.index(b)
    names[i], names[j] = b, a
    return {n: state[n] for n in names}

AMBIGUOUS = {
    'its names are in alphabetical order': lambda s: dict(sorted((f'{k:>04}', v) for k, v in s.items())),
    'stands where': lambda s: swapped(s, '_l1.running_mean', '_l1.bias'),
    'for 280': lambda s: s | {'_extra.weight': torch.ones(3, 3, 3, 3)},
    'tensors for': lambda s: {k: v for k, v in s.items() if k != '_l5.weight'},
    'divided otherwise': lambda s: {'_l1.x.weight' if k == '_l1.weight' else k: v for k, v in s.items()}}

@pytest.mark.parametrize('why', AMBIGUOUS)
def test_an_order_that_leaves_a_choice_is_refused(why, tmp_path):
    torch.save(AMBIGUOUS[why](renamed(wrapped(''))), tmp_path/'w.pth')
    with pytest.raises(ValueError, match=why) as e: torchvision_net(3, SHUFFLE, str(tmp_path/'w.pth'))
    assert 'the file has at the top: ' in str(e.value)

def test_a_safetensors_file_has_no_order(tmp_path):
    save_file(renamed(wrapped('')), str(tmp_path/'w.safetensors'))
    with pytest.raises(ValueError, match='nor do they fit in their order'):
        torchvision_net(3, SHUFFLE, str(tmp_path/'w.safetensors'))

# ---- whose colours

def test_colours_can_be_said_and_are_not_overruled():
    colours = dict(mean=(.1, .2, .3), std=(.5, .5, .5))
    net = torchvision_net(7, 'shufflenet_v2_x0_5', size=SUITE.image_size, **colours)
    assert Federation(FedAvg, net, SUITE, **HOW).net.mean == (.1, .2, .3)
    named = replace(SUITE, **colours)
    assert Federation(FedAvg, net, named, **HOW).net.std == (.5, .5, .5)
    other = replace(SUITE, mean=(.4, .4, .4))
    with pytest.raises(ValueError, match=r'little names mean \(0.4, 0.4, 0.4\).*weights of the model want'):
        Federation(FedAvg, net, other, **HOW)

@pytest.mark.parametrize('ending', ['pt', 'safetensors'])
def test_weights_of_a_parallel_module(ending, tmp_path):
    state = {f'module.{k}': v for k, v in theirs().state_dict().items()}
    file = tmp_path/f'w.{ending}'
    if ending == 'pt': torch.save(dict(state_dict=state), file)
    else: save_file(state, str(file))
    net = torchvision_net(3, SHUFFLE, str(file), size=64)
    assert torch.equal(net.state_dict()['body.conv1.0.weight'], state['module.conv1.0.weight'])

# ---- a transformer, and adapters of low rank (tests/evidence/vit.py)

@pytest.mark.parametrize('row', ['FedAvg', 'FedAvg, LoRA'])
def test_a_small_transformer_sends_what_learns(row):
    "Four bytes for each number that learns, from each of four clients."
    pytest.importorskip('timm')
    if 'LoRA' in row: pytest.importorskip('peft', reason='peft is not installed: the recipe is not run')
    sys.path.insert(0, str(Path(__file__).parent/'evidence'))
    import vit
    suite = load_suite('emoji-pacs', 'tiny', 0)
    of = vit.trained(row, suite, rounds=1, local_steps=1)
    assert of['up'] == 4*of['learns']*len(suite.clients) and 0 <= of['mean'] <= 100
    assert 'has no BatchNorm' in vit.trained('FedBN', suite, rounds=1, local_steps=1)['refused']

BY_LACK = dict(batchnorm='FedBN SiloBN FixBN HBN DFL', layers='FDSE', stages='FedRCL MixStyle DSU FedFA-aug',
               sgd='SCAFFOLD FedDC FedNova')

def test_who_takes_a_transformer():
    "With AdamW; the page of own models names who does not, and why."
    pytest.importorskip('timm')
    suite = cut(load_suite('emoji-pacs', 'tiny'), (16, 24), tests=4)
    net = timm_net(suite.n_classes, 'test_vit', size=suite.image_size)
    def refused(method):
        try: return not Federation(method, net, suite, rounds=1, local_steps=1, adamw=True, lr=.001)
        except ValueError: return True
    assert {n for n, m in METHODS.items() if refused(m)} == {*' '.join(BY_LACK.values()).split()}
