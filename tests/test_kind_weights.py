"Published weights are found or refused by name, however deep they lie and whatever their names begin with."
import re, warnings
import pytest, torch
from hypothesis import given, settings, strategies as st
from safetensors.torch import save_file
from torch import nn
from fedskew_nb.core.seeding import seeded
from fedskew_nb.nets.models import seq
from fedskew_nb.nets.weights import fill

def net(seed):
    with seeded(seed):
        return seq(conv=nn.Conv2d(3, 4, 3), bn=nn.BatchNorm2d(4),
                   more=seq(fc=nn.Linear(4, 4), out=nn.Linear(4, 2)))

OURS, THEIRS = net(0).state_dict(), net(1).state_dict()

def read(path, free=()):
    got = net(0)
    with warnings.catch_warnings():
        warnings.simplefilter('error')              # nothing was guessed by order
        fill(got, path, set(free))
    return got.state_dict()

def alike(a, b): return all(a[n].equal(b[n]) for n in b)

WORDS = st.sampled_from(('module', 'model', '_orig_mod', 'backbone', 'encoder', 'encoder_q', '0', 'net'))
PREFIX = st.lists(WORDS, max_size=5).map(lambda w: ''.join(f'{x}.' for x in w))
LAYER = st.one_of(st.sampled_from(('net', 'model', 'state_dict', 'teacher', 'weights')), st.just(0))

def wrapped(layers, o):
    "A checkpoint as training scripts write it: the table in tables, or in a list, beside other things."
    for k in layers:
        beside = dict(epoch=3, optimizer=dict(state={0: dict(exp_avg=torch.zeros(3))}))
        o = [o, 7] if k == 0 else {k: o} | beside
    return o

@settings(max_examples=30, deadline=None)
@given(prefix=PREFIX, layers=st.lists(LAYER, max_size=3))
def test_weights_are_found_at_any_depth(tmp_path_factory, prefix, layers):
    path = tmp_path_factory.mktemp('w')/'w.pth'
    torch.save(wrapped(layers, {prefix+n: v for n, v in THEIRS.items()}), path)
    assert alike(read(path), THEIRS)

@settings(max_examples=10, deadline=None)
@given(prefix=PREFIX)
def test_safetensors_too_though_they_have_lost_the_order(tmp_path_factory, prefix):
    path = tmp_path_factory.mktemp('w')/'w.safetensors'
    save_file({prefix+n: v.contiguous() for n, v in THEIRS.items()}, path)
    assert alike(read(path), THEIRS)

@settings(max_examples=15, deadline=None)
@given(prefix=PREFIX, more=PREFIX)
def test_a_beginning_may_hold_other_things(tmp_path_factory, prefix, more):
    "A queue, a projection head or a decoder stands beside the encoder."
    path = tmp_path_factory.mktemp('w')/'w.pth'
    beside = {more+'queue': torch.zeros(7), more+'decoder.fc.weight': torch.zeros(9, 4)}
    torch.save(beside | {prefix+n: v for n, v in THEIRS.items()}, path)
    assert alike(read(path), THEIRS)

def test_two_that_fit_are_named_so_that_one_can_be_taken(tmp_path):
    def said(o):
        torch.save(o, tmp_path/'w.pth')
        with pytest.raises(ValueError, match='fit alike') as e: read(tmp_path/'w.pth')
        return str(e.value)
    encoders = dict(encoder_q=OURS, encoder_k=THEIRS)
    two = {f'module.{e}.{n}': v for e, o in encoders.items() for n, v in o.items()}
    assert '(module.encoder_k.…, module.encoder_q.…)' in said(dict(state_dict=two))
    assert '(model, model_ema)' in said(dict(model=THEIRS, model_ema=OURS))
    assert '(0, 1)' in said([THEIRS, OURS])
    assert '(student a.…, teacher b.…)' in said(dict(student={'a.'+n: v for n, v in OURS.items()},
                                                   teacher={'b.'+n: v for n, v in THEIRS.items()}))
    torch.save(dict(model=THEIRS, model_ema=THEIRS), tmp_path/'w.pth')        # equal: no choice is left
    assert alike(read(tmp_path/'w.pth'), THEIRS)

def test_what_fits_nothing_is_refused_with_the_keys_of_the_file(tmp_path):
    for o, says in ((dict(net=dict(a=torch.ones(2), b=torch.ones(3))), 'net: a, b, … (2)'),
                    ((3, 'x'), 'the file has no tensors'), (torch.ones(3), 'the file has no tensors')):
        torch.save(o, tmp_path/'w.pth')
        with pytest.raises(ValueError, match=re.escape(says)): read(tmp_path/'w.pth')
