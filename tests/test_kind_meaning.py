"What a person asked for is done, or it is said that it was not: rates of another problem, idle wishes."
import warnings
from pathlib import Path
import numpy as np
import pytest, torch
from hypothesis import given, settings, strategies as st
from PIL import Image
from torch import nn
from fedskew_nb import FedAvg, FedBN, Suite, compare, join_site, load_folder, small_conv, torchvision_net
from fedskew_nb.core.net import Net
from fedskew_nb.core.seeding import seeded
from fedskew_nb.data.check import check_compared
from fedskew_nb.methods.baselines.personal import AdaBN, KeepBatchNorm
from fedskew_nb.nets.models import gap, seq
from fedskew_nb.run.plan import planned
from fedskew_nb.run.rates import check_tuned, tuned_elsewhere
from fedskew_nb.core.pictures import check_grey_files
from fedskew_nb.data.check import all_grey
from fedskew_nb.tools.diagnose import diagnose
from feds import fed_of

# ---- rates that were tuned elsewhere

BUDGET = dict(rounds=3, local_steps=2, batch_size=8)

def record(model='small_conv', **budget):
    return dict(lr=.05, trials=3, seeds=[100], own={}, budget=BUDGET | budget, model=model)

def runs(tuned, **how):
    tuned = {'emoji-pacs': {'FedAvg': tuned}}
    return planned('FedAvg', 'emoji-pacs', 1, 'tiny', control=False, tuned=tuned, **(BUDGET | how)), tuned

@pytest.mark.parametrize('how, said', [
    (dict(model='small_conv(width=4)'),
     r'tuned with model small_conv, and here it has model small_conv\(width=4\)'),
    (dict(batch_size=4), 'tuned with batch_size 8, and here it has batch_size 4')])
def test_rates_of_another_model_or_batch_are_refused(how, said):
    with pytest.raises(ValueError, match=said): check_tuned(*runs(record(), **how))

def test_the_command_refuses_them_and_a_begun_folder_goes_on(tmp_path):
    tuned = {'emoji-pacs': {'FedAvg': record()}}
    how = BUDGET | dict(batch_size=4, control=False)
    for out in (None, tmp_path):
        with pytest.raises(ValueError, match='batch_size 8'):
            compare('FedAvg', 'emoji-pacs', 1, 'tiny', out=out, tuned=tuned, **how)
    (tmp_path/'compare.json').write_text('{}')                  # begun before: it is read as it was asked for
    assert len(compare('FedAvg', 'emoji-pacs', 1, 'tiny', out=tmp_path, tuned=tuned, **how)) == 1

@pytest.mark.parametrize('how, said', [
    (dict(rounds=5), 'seeds 100 with rounds 3; here rounds 5.'),
    (dict(local_steps=7), 'seeds 100 with local_steps 2; here local_steps 7.'), ({}, 'seeds 100.')])
def test_rates_of_another_length_are_said(how, said):
    todo, tuned = runs(record(), **how)
    check_tuned(todo, tuned)
    assert todo[0].note.endswith(said)

@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.sampled_from(['rounds', 'local_steps', 'batch_size']), st.integers(1, 9)),
       st.dictionaries(st.sampled_from(['rounds', 'local_steps', 'batch_size']), st.integers(1, 9)))
def test_a_difference_is_seen_from_both_sides(there, here):
    a = tuned_elsewhere(record(**there), BUDGET | here, None, 'small_conv')
    b = tuned_elsewhere(record(**here), BUDGET | there, None, 'small_conv')
    assert {k: v[::-1] for k, v in b.items()} == a
    assert set(a) == {k for k in BUDGET if (BUDGET | there)[k] != (BUDGET | here)[k]}

def test_a_record_that_does_not_say_is_taken():
    assert tuned_elsewhere(dict(lr=.1), dict(batch_size=5), None, 'x') == {}
    assert tuned_elsewhere(dict(lr=.1, protocol='f2dc'), {}, 'f2dc', 'x') == {}
    assert tuned_elsewhere(dict(lr=.1, protocol='f2dc'), {}, 'fedbn', 'x')['batch_size'] == (64, 32)

# ---- wishes without effect

def without_batchnorm():
    with seeded(0): return Net(seq(conv=nn.Conv2d(3, 6, 5, stride=4)), gap(), nn.Linear(6, 7))

def test_a_fedbn_that_keeps_nothing_says_so():
    with pytest.warns(UserWarning, match='this is FedAvg under another name'):
        FedBN(statistics=False, affine=False)

def test_an_adabn_without_batchnorm_says_so():
    with pytest.warns(UserWarning, match='nothing is re-estimated'):
        assert AdaBN().rules(without_batchnorm()) == []

def test_a_frozen_body_leaves_fedbn_nothing():
    net = torchvision_net(3, 'resnet18', frozen='body', size=32)
    with pytest.raises(ValueError, match='BatchNorms are all frozen'): KeepBatchNorm().rules(net)

@pytest.mark.parametrize('name', ['alexnet', 'vgg11'])
def test_groups_for_no_batchnorm_are_refused(name, monkeypatch):
    "Nobody looks at a hundred million first weights: they are alike, which is quick."
    def alike(weight, *_, **how): return weight.data.fill_(.01)
    for draw in ('normal_', 'kaiming_normal_', 'kaiming_uniform_'): monkeypatch.setattr(nn.init, draw, alike)
    with pytest.raises(ValueError, match=f"{name} has no BatchNorm that norm='group' could replace"):
        torchvision_net(3, name, norm='group', size=64)

@pytest.mark.parametrize('what', [
    dict(keep_models='no'), dict(trust='no'), dict(control='no'), dict(keep_models=0)])
def test_a_switch_is_no_text(what):
    with pytest.raises(ValueError, match='give True or False'):
        compare('FedAvg', 'emoji-pacs', 1, 'tiny', **what)

def test_no_pixels_is_no_size():
    rows = [(np.zeros((8, 8, 3), np.uint8), 'a', 'A')]
    with pytest.raises(ValueError, match='size is 0'): Suite.from_rows(rows, size=0)

# ---- one domain

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    "Three sites of two classes, the last one grey."
    root, dice = tmp_path_factory.mktemp('home'), np.random.default_rng(0)
    for site in ('east', 'west', 'grey'):
        for k, c in enumerate('xy'):
            at = root/site/site/c if site == 'grey' else root/'both'/site/c
            at.mkdir(parents=True)
            for i in range(8):
                x = dice.integers(90*k, 90*k+90, (8, 8, 1 if site == 'grey' else 3), dtype=np.uint8)
                Image.fromarray(x.repeat(3//x.shape[2], 2)).save(at/f'{i}.png')
    return root

HOW = dict(seeds=1, rounds=1, local_steps=1, batch_size=4, control=False, progress=False)

@pytest.mark.parametrize('ask', [lambda s: compare('FedAvg', s, **HOW), lambda s: diagnose(s, seeds=1)])
def test_one_domain_is_no_comparison(home, ask):
    s = load_folder(home/'grey', 8, cache=False)
    said = 'one domain and one client, grey.*clients=3.*its classes are x, y'
    with pytest.raises(ValueError, match=said): ask(s)

def test_one_domain_dealt_to_several_is_one(home):
    check_compared(load_folder(home/'grey', 8, cache=False, clients=2))
    check_compared(load_folder(home/'both', 8, cache=False))

# ---- grey models, sites that took part

def test_a_model_of_grey_images_says_so_and_is_asked_grey_ones(home):
    grey, both = (load_folder(home/n, 8, cache=False) for n in ('grey', 'both'))
    assert all_grey(grey) and not all_grey(both)
    check_grey_files(grey.tests['grey'].x, list(range(len(grey.tests['grey']))))
    x = torch.cat([grey.tests['grey'].x[:1], both.tests['east'].x[:1]])
    files = [Path('a.png'), Path('b.png')]
    with pytest.raises(ValueError, match=r'b.png: in colours.*make them grey'): check_grey_files(x, files)

def test_a_site_that_took_part_is_no_new_one(home):
    s = load_folder(home/'both', 8, cache=False)
    fed = fed_of(FedAvg, s, net=small_conv(2, size=8, width=4, seed=0), rounds=1, local_steps=1)
    fed.fit()
    with pytest.warns(UserWarning, match='of 8 held-out images were trained on'):
        j = join_site(fed, home/'both'/'east')
    held = {x.numpy().tobytes() for x in j.held.x}
    mine = {x.numpy().tobytes() for c in s.clients for x in c.train.x}
    assert j.known() == len(held & mine) > 0
    assert f'{j.known()} of the held-out were trained on' in '\n'.join(j.notes())
    x = torch.randint(0, 256, (8, 3, 8, 8), generator=torch.Generator().manual_seed(5)).byte()
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert join_site(fed, (x, torch.arange(8) % 2)).known() == 0
