"""A hook that is misspelt, answers with the wrong thing or fails.

A model, setting or argument that would change a result in silence.
"""
import os, pickle, re, threading
from dataclasses import dataclass, field, replace
from pathlib import Path
import numpy as np
import pytest, torch
from PIL import Image
from torch import nn
from feds import cut, equal, fed_of, name_of, run, same, small
from fedskew_nb.run.scripts import from_file
from fedskew_nb.run.compare import compare
from fedskew_nb.tools.cli import main
from fedskew_nb.run.recipes import METHODS, read_method
from fedskew_nb.run.plan import planned
from fedskew_nb.run.executors import me, remotely
from fedskew_nb.run.named import named
from fedskew_nb.run.store import NOWHERE
from fedskew_nb.run.train import train
from fedskew_nb.core.context import Each
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.names import message
from fedskew_nb.core.net import Net, under
from fedskew_nb.core.rules import Rule, keep
from fedskew_nb.core.seeding import Dropout
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.federation import Federation
from fedskew_nb.engine.setting import Setting, setting_for
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.baselines.personal import FedBN

@pytest.fixture(scope='module')
def suite():
    whole = cut(load_suite('emoji-pacs', 'tiny'), (24, 16, 16), tests=8)
    return replace(whole, clients=[replace(c, val=c.val[:8]) for c in whole.clients])

def one(suite, method, **kw):
    "One round of one step."
    return run(method, suite, small(width=1), **dict(rounds=1, local_steps=1, lanes=1) | kw)

def made(_name='Mine', **names):
    "A method of one mechanism with these names."
    return Method(_name, type(_name, (Mechanism,), names)())

# ---- spelling

NEAR = dict(
    lose='loss', los='loss', Loss='loss', losses='loss', weight='weights', rule='rules', phase='phases',
    adopt='adapt', predicts='predict', finished='finish', extra='extras', foward='forward', batches='batch')

@pytest.mark.parametrize('name', NEAR)
def test_a_misspelt_hook_is_refused_with_the_nearest(name):
    says = f'Mine.{name} is neither a hook nor a field of a @dataclass: did you mean .*{NEAR[name]}'
    with pytest.raises(ValueError, match=says): made(**{name: lambda self, *a: {}})

class Plain:
    "A user's base, which is no mechanism."
    def helper(self): return 1

def test_what_is_inherited_or_set_on_the_object_counts():
    class Mixed(Plain, Mechanism): pass
    class Loose(Mechanism):
        def __init__(self, mu): self.mu = mu                      # no stored run would know of it
    class Bare(Mechanism): mu: float = .1                         # the decorator is forgotten
    for m in (Mixed(), Loose(.1), Bare()):
        with pytest.raises(ValueError, match='is neither a hook nor a field of a @dataclass'): Method('M', m)

def test_private_names_fields_and_what_the_package_has_are_allowed():
    @dataclass
    class Fine(Mechanism):
        mu: float = .1
        stacks = True
        _table = (1, 2)
        def _helper(self): return self._table
    assert Method('Fine', Fine()).hyper()
    assert all(Method(m.name, *m.mechanisms) == m for m in METHODS.values())

def test_a_field_that_no_value_reaches_is_refused():
    @dataclass
    class Weak(Mechanism): mu: float = .1
    class Strong(Weak): mu = 1.
    says = 'Strong.mu is set without a type, so the field stays 0.1: write @dataclass and `mu:float=…`'
    with pytest.raises(ValueError, match=says): Method('S', Strong())

@pytest.mark.parametrize('name, value, says', [
    ('loss', .5, 'Mine.loss is 0.5, but `loss` is a hook'),
    ('relies_on', 'neck', "Mine.relies_on is 'neck': give a dict"),
    ('relies_on', dict(neck='touched'), "Mine.relies_on says 'touched' of 'neck': did you mean untouched"),
    ('wants', 'boxes', "Mine.wants is 'boxes': give a tuple"),
    ('needs', Plain, 'Mine.needs is .*give a tuple'),
    ('needs', (Plain,), 'Mine.needs holds'),
    ('after', (Plain,), 'Mine.after holds'),
    ('after', Plain, 'Mine.after is .*give a tuple'),
    ('run', ['momentum'], 'Mine.run is .*give a dict'),
    ('stacks', 1, 'Mine.stacks is 1: give a bool')])
def test_what_a_mechanism_says_of_itself_has_a_kind(name, value, says):
    with pytest.raises(ValueError, match=says): made(**{name: value})

@pytest.mark.parametrize('args, says', [
    ((Mechanism(),), 'the name of a method is'),
    (('',), "the name of a method is ''"),
    (('M', Mechanism), 'Mechanism is a class: write Mechanism()'),
    (('M', FedAvg), 'methods are added with'),
    (('M', None), 'made of mechanisms, not of None')])
def test_a_method_is_a_name_and_mechanisms(args, says):
    with pytest.raises(ValueError, match=re.escape(says)): Method(*args)

# ---- answers

def scalar(out): return out.logits.sum()*0
head = under('head')
WRONG = dict(
    adapt=[
        (lambda s, net: None, 'None: return the net'),
        (lambda s, net: net.body, 'a Sequential: return the net')],
    phases=[
        (lambda s, c: None, 'None: return'),
        (lambda s, c: [], r'\[\]: return'),
        (lambda s, c: [('a', 1)], r"\[\['a', 1\]\]: return"),
        (lambda s, c: [('a', '1', head)], "'1'"),
        (lambda s, c: [('a', -1, head)], '-1'),
        (lambda s, c: [('a', float('nan'), head)], 'nan'),
        (lambda s, c: [('a', 1, 'head')], "'head'"),
        (lambda s, c: ('a', 1, head), "'a'")],
    start=[(lambda s, c: 3, '3: return nothing')],
    inner=[(lambda s, c, b, out: scalar(out),
            'a tensor of shape .* return nothing: a loss of the model belongs into the hook `loss`')],
    batch=[
        (lambda s, c, b: None, 'None: return the batch'),
        (lambda s, c, b: b | dict(x=b['x']/255),
         r"\{'x': a tensor of shape \(8, 3, 32, 32\) and torch.float32\}"),
        (lambda s, c, b: b | dict(x_more=b['x'].float()), "'x_more'"),
        (lambda s, c, b: b | dict(x=b['x'][0]), r"'x': a tensor of shape \(3, 32, 32\)"),
        (lambda s, c, b: dict(x=b['x']), "a dict of 'x': return the batch"),
        (lambda s, c, b: b['x'], 'a tensor')],
    forward=[
        (lambda s, c, b: None, 'None: return an Out'),
        (lambda s, c, b: c.net(b['x']).logits, 'a tensor')],
    task=[
        (lambda s, c, b, out: None, 'None: return a scalar'),
        (lambda s, c, b, out: .5, '0.5: return a scalar'),
        (lambda s, c, b, out: out.logits.mean(1), r'a tensor of shape \(8,\)')],
    loss=[
        (lambda s, c, b, out: scalar(out), r'a tensor of shape \(\) and torch.float32: return \{'),
        (lambda s, c, b, out: None, 'None: return'),
        (lambda s, c, b, out: dict(a=.5), r"\{'a': 0.5\}: return"),
        (lambda s, c, b, out: dict(a=out.logits.mean(1)), r"\{'a': a tensor of shape \(8,\)"),
        (lambda s, c, b, out: {1: scalar(out)}, r'\{1: a tensor'),
        (lambda s, c, b, out: dict(a=out.logits.argmax()), 'torch.int64')],
    finish=[
        (lambda s, c: None, 'None: return'),
        (lambda s, c: [1], r'\[1\]: return'),
        (lambda s, c: dict(a=np.ones(3)), r"\{'a': a ndarray\}"),
        (lambda s, c: dict(a=[Plain()]), "'a': ")],
    weights=[
        (lambda s, srv, ups: None, 'None: return a tensor'),
        (lambda s, srv, ups: [1., 2., 3.], r'\[1.0, 2.0, 3.0\]: return'),
        (lambda s, srv, ups: torch.ones(3, 1), r'\(3, 1\)')],
    rules=[
        (lambda s, net: None, 'None: return a list of Rule'),
        (lambda s, net: Rule(head, keep), 'a Rule: return a list'),
        (lambda s, net: [keep], 'function'),
        (lambda s, net: dict(head=keep), 'a dict')],
    extras=[
        (lambda s, srv, ups: None, 'None: return'),
        (lambda s, srv, ups: dict(a=Plain()), "'a': a Plain"),
        (lambda s, srv, ups: dict(a=Each({0: Plain()})), "'a': a Each")],
    predict=[
        (lambda s, net, out: None, 'None: return'),
        (lambda s, net, out: dict(a=out.logits[0]), r"'a': a tensor of shape \(7,\)"),
        (lambda s, net, out: dict(a=out.logits[:1]), r'\(1, 7\)'),
        (lambda s, net, out: dict(a=out.logits[:, :3]), r'\(8, 3\)'),
        (lambda s, net, out: {'': out.logits.argmax(1)}, r'\(8,\)'),
        (lambda s, net, out: dict(a=out.logits.tolist()), "'a': a list")],
    prepare=[(lambda s, c: c.net, 'a Net: return nothing: c.net is what changes')])
CASES = [(hook, f, says) for hook, cases in WRONG.items() for f, says in cases]

@pytest.mark.parametrize('hook, f, says', CASES, ids=[f'{h}-{i}' for i, (h, *_) in enumerate(CASES)])
def test_a_wrong_answer_is_named(suite, hook, f, says):
    with pytest.raises(ValueError, match=rf'^Mine\.{hook} returned .*{says}'): one(suite, made(**{hook: f}))

def test_a_rule_of_a_name_alone_says_where(suite):
    bad = made(rules=lambda s, net: [Rule('head', keep)])
    with pytest.raises(ValueError, match=r"(?s)^Rule: claims is 'head': give a function.*in Mine\.rules"):
        one(suite, bad)

@pytest.mark.parametrize('w', [[1., 2.], [1., 2., -3.], [1., float('nan'), 1.], [0., 0., 0.]], ids=str)
def test_weights_that_are_none_name_the_mechanism(suite, w):
    bad = made(weights=lambda s, srv, ups: torch.tensor(w))
    says = r'Mine, Mine: the weights .* are no weights of 3 clients'
    with pytest.raises(ValueError, match=says): one(suite, bad)

NO_ROWS = [lambda V, g, w, srv: V.mean(), lambda V, g, w, srv: V[:2], lambda V, g, w, srv: V[0, 1:],
           lambda V, g, w, srv: None]

@pytest.mark.parametrize('fn', NO_ROWS)
def test_a_rule_gives_a_row_for_all_or_one_each(suite, fn):
    says = 'Mine, rule <lambda> of head.weight returned .*: return one row of 896 numbers, or 3 rows'
    with pytest.raises(ValueError, match=says): one(suite, made(rules=lambda s, net: [Rule(head, fn)]))

@pytest.mark.parametrize('fn, says', [
    (lambda V, g, w, srv: V[0].long(), 'torch.int64, but the clients sent torch.float32'),
    (lambda V, g, w, srv: V > 0, 'torch.bool, but'),
    (lambda V, g, w, srv: V[0]*1j, 'torch.complex64, but')], ids=['int64', 'bool', 'complex'])
def test_a_rule_gives_numbers_of_the_kind_that_was_sent(suite, fn, says):
    with pytest.raises(ValueError, match=f'Mine, rule <lambda> of head.weight returned .*{says}'):
        one(suite, made(rules=lambda s, net: [Rule(head, fn)]))

def test_weights_that_are_complex(suite):
    odd = made(weights=lambda s, srv, ups: torch.ones(len(ups))*1j)
    with pytest.raises(ValueError, match='Mine.weights returned .*torch.complex64'): one(suite, odd)

@pytest.mark.parametrize('travels', [.5, 'always', True])
def test_what_cannot_say_when_it_travels(travels):
    with pytest.raises(ValueError, match='Rule: travels is .*: give a function'):
        Rule(head, keep, travels=travels)

ARGUMENTS = dict(
    loss=[lambda self, c, b: {}, lambda self, c, b, out, mu: {}, lambda self, *, out: {}],
    start=[lambda self: None, lambda self, c, b: None],
    rules=[lambda self: [], lambda self, net, srv: []],
    weights=[lambda self, ups: None],
    finish=[lambda self, c, b, out: {}],
    adapt=[lambda self: None])

@pytest.mark.parametrize('hook, f', [(h, f) for h, fs in ARGUMENTS.items() for f in fs])
def test_a_hook_that_takes_other_arguments_is_refused_before_the_training(hook, f):
    says = rf'Mine\.{hook} takes .*: write def {hook}\(self, '
    with pytest.raises(ValueError, match=says): made(**{hook: f})

def test_a_hook_may_take_more_and_call_it_as_it_likes():
    made(loss=lambda self, client, *rest, weight=1.: {}, start=staticmethod(lambda c: None))

def test_a_phase_that_trains_nothing_is_refused(suite):
    nothing = made(phases=lambda s, c: [('a', 1, under('heads'))])
    with pytest.raises(ValueError, match="phase 'a' trains nothing") as e: one(suite, nothing)
    assert 'at client 0 (photo) in round 1' in e.value.__notes__[0]

def test_the_default_can_be_said(suite):
    "A hook that sometimes has nothing to say hands over to the default, and then nothing differs."
    class Defaults(Mechanism):
        def phases(self, c): return super().phases(c)
        def forward(self, c, b): return super().forward(c, b)
        def task(self, c, b, out): return super().task(c, b, out)
        def weights(self, srv, ups): return super().weights(srv, ups)
    assert equal(one(suite, Method('D', Defaults()), rounds=2), one(suite, FedAvg, rounds=2, stack=False))

# ---- probabilities

@pytest.mark.parametrize('path', ['a', ''])
def test_nan_of_a_path_names_the_mechanism(suite, path):
    bad = made(predict=lambda s, net, out: {path: out.logits*float('nan')})
    says = f'^Mine.predict returned NaN or infinity for the path {path!r}'
    with pytest.raises(ValueError, match=says): one(suite, bad)
    fed = fed_of(bad, suite, small(width=1))
    with pytest.raises(ValueError, match='Mine.predict returned NaN'): fed.predict(suite.clients[0].test.x)

class OnceTrained(nn.Module):
    "A head whose answers are NaN at test, though not a number of its state is."
    def __init__(self):
        super().__init__()
        self.fc, self.seen = nn.Linear(128, 7), 0
    def forward(self, f):
        if self.training: self.seen += 1
        return self.fc(f)*(float('nan') if self.seen and not self.training else 1)

def test_nan_of_the_model_stops_the_run_and_is_never_scored(suite):
    net = small(width=1)
    net.head = OnceTrained()
    fed = fed_of(FedAvg, suite, net, lanes=1, stack=False)
    with pytest.raises(FloatingPointError, match='FedAvg: the model answers NaN or infinity'): fed.fit()
    assert not fed.history.rows

def test_a_model_that_starts_with_nan_is_refused(suite):
    net = small(width=1)
    with torch.no_grad(): net.head.weight.fill_(float('nan'))
    says = 'the model answers NaN or infinity before any training'
    with pytest.raises(ValueError, match=says): fed_of(FedAvg, suite, net)

class Odd(Net):
    def forward(self, x): return super().forward(x).logits

def test_a_net_that_gives_no_out_is_refused(suite):
    n = small(width=1)
    odd = Odd(n.body, n.pool, n.head)
    with pytest.raises(ValueError, match='Odd gives no Out with logits'): fed_of(FedAvg, suite, odd)

# ---- errors of one's own

class Stumbles(Mechanism):
    "Raises in one hook."
    def _stumble(self): raise KeyError('e_G')                     # this line
LINES = Path(__file__).read_text().splitlines()
LINE = 1+next(i for i, l in enumerate(LINES) if '# this line' in l and 'raise' in l)

def stumbling(hook):
    "A method that raises KeyError in `hook`."
    return Method('Falls', type('Falls', (Stumbles,), {hook: lambda self, *a: self._stumble()})())

CLIENT, SERVER = 'at client 0 (photo) in round 1', 'at the server in round 1'
OF_CLIENTS = 'phases start batch forward inner task loss finish predict prepare'
WHERE = dict.fromkeys(OF_CLIENTS.split(), CLIENT)
WHERE |= dict(weights=SERVER, extras=SERVER, adapt='', rules='')

@pytest.mark.parametrize('hook, where', list(WHERE.items()))
def test_an_error_keeps_its_type_and_says_where(suite, hook, where):
    with pytest.raises(KeyError) as e: one(suite, stumbling(hook))
    *outer, inner = e.value.__notes__
    assert inner == f'in Falls.{hook}, {__file__}:{LINE}'
    assert outer == ([f'Falls: {where}'] if where else [])

def test_an_error_on_lanes(suite):
    class Late(Mechanism):
        def loss(self, c, b, out): return {}[f'round {c.round}'] if c.round and c.id == 2 else {}
    late = Method('Late', Late())
    with pytest.raises(KeyError, match='round 1') as e: run(late, suite, small(width=1), lanes=2)
    where, line = e.value.__notes__
    assert where == 'Late: at client 2 (cartoon) in round 2' and 'in Late.loss, ' in line

def test_an_error_while_scoring(suite):
    how = dict(rounds=3, eval_every=1, lanes=2, local_steps=1)
    fed = fed_of(stumbling('predict'), suite, small(width=1), **how)
    with pytest.raises(KeyError) as e: fed.fit(1)
    assert e.value.__notes__[0] == 'Falls: at the server after round 1'

def test_an_error_in_a_rule_names_it(suite):
    def halve(V, g, w, srv): return V/{}['w']
    with pytest.raises(KeyError) as e: one(suite, made(rules=lambda s, net: [Rule(head, halve)]))
    where, line = e.value.__notes__
    assert where == 'Mine: at the server in round 1'
    assert line.startswith('in Mine, rule halve of head.weight, ')

def test_evidence_on_summed_heads_says_who_asked(suite):
    with pytest.raises(KeyError, match='e_G') as e: one(suite, read_method('Summed + Evidence'))
    where, line = e.value.__notes__
    assert 'client 0 (photo), 1 (art), 2 (cartoon) in round 1' in where and 'in Evidence.loss, ' in line

FILE = '''
from fedskew_nb import Mechanism
class Mine(Mechanism):
    def loss(self, c, b, out): raise Odd('too', 'odd')
class Odd(Exception):
    def __init__(self, a, b): super().__init__(f'{a} {b}')
'''

@pytest.fixture
def mine(tmp_path):
    "Where a method stands that raises in line 4."
    (tmp_path/'mine.py').write_text(FILE)
    return tmp_path/'mine.py'

HOW = dict(size='tiny', control=False, rounds=1, local_steps=1, model='small_conv(width=1)')

def test_errors_survive_the_way_to_another_process(mine):
    todo = planned(f'{mine}:Mine', 'emoji-pacs', seeds=1, **HOW)
    answer = remotely(train, *named(todo), NOWHERE, me())
    _, (back, _) = pickle.loads(pickle.dumps(answer))
    assert str(back) == 'Odd: too odd'
    assert 'Mine: at client 0' in message(back) and f'in Mine.loss, {mine}:4' in message(back)

@pytest.mark.slow
def test_an_error_in_another_process_keeps_file_line_client_and_round(mine):
    "Even one that cannot be pickled."
    with pytest.raises(Exception, match='too odd') as e:
        compare(f'{mine}:Mine', 'emoji-pacs', seeds=2, jobs=2, progress=False, **HOW)
    first, second = e.value.__notes__
    assert 'Mine: at client ' in first and 'in round 1' in first and second == f'in Mine.loss, {mine}:4'

def test_the_command_line_prints_where(mine, tmp_path, capsys):
    tiny = ['--suite', 'emoji-pacs', '--size', 'tiny', '--seeds', '1', '--no-control']
    short = ['--set', 'rounds=1', '--set', 'local_steps=1', '--model', 'small_conv(width=1)']
    assert main(['compare', '--methods', f'{mine}:Mine', '--out', f'{tmp_path}/o', *tiny, *short]) == 1
    err = capsys.readouterr().err
    where, line = r'Mine: at client \d.* in round 1.*', r'in Mine.loss, .*mine.py:4'
    assert re.search(rf'fedskew: Odd: too odd \[{where}; {line}\]', err)

# ---- noise, frozen parts, defaults of torch

def noisy(*layers):
    n = small(width=2)
    n.pool = nn.Sequential(n.pool, *layers)
    return n

def test_dropout_does_not_depend_on_what_ran_before(suite):
    def trained(before):
        torch.manual_seed(before)
        return run(FedAvg, suite, noisy(nn.Dropout(.5)), lanes=1)
    a, b = trained(0), trained(1)
    assert equal(a, b) and isinstance(a.net.pool[1], Dropout)

class Rough(nn.Module):
    def forward(self, x): return x+torch.randn_like(x) if self.training else x

REFUSED = 'draws noise from the global generator'
DICE = [nn.Dropout(.5), nn.Dropout1d(.5), nn.AlphaDropout(.5), nn.RReLU()]

@pytest.mark.parametrize('layer', DICE, ids=lambda l: type(l).__name__)
def test_dice_that_are_known_by_their_type_do_not_depend_on_what_ran_before(suite, layer):
    def trained(before):
        torch.manual_seed(before)
        return run(FedAvg, suite, noisy(layer), lanes=1)
    assert equal(trained(0), trained(1))

def test_other_shared_dice_are_refused(suite):
    with pytest.raises(ValueError, match=REFUSED): fed_of(FedAvg, suite, noisy(Rough()))

def test_dice_that_a_mechanism_brings_are_refused(suite):
    def adapt(self, net):
        net.neck = Rough()
        return net
    with pytest.raises(ValueError, match=REFUSED): fed_of(made(adapt=adapt), suite)

def frozen_body():
    net = small(width=2)
    net.body.requires_grad_(False)
    return net

class Turns(Mechanism):
    def phases(self, c): return [('body and head', 1, lambda n: True), ('head', 1, under('head'))]
class Tithe(Mechanism):
    def rules(self, net): return [Rule(lambda n: True, lambda V, g, w, srv: .1*V.mean(0))]

FROZEN = [FedAvg, *(METHODS[n] for n in ('FedProx', 'Local', 'F2DC', 'RFedDis')),
          Method('Turns', Turns()), Method('Tithe', Tithe())]

@pytest.mark.parametrize('method', FROZEN, ids=name_of)
def test_what_is_frozen_stays_frozen(suite, method):
    net = frozen_body()
    fed = run(method, suite, net, local_steps=2, weight_decay=.1)
    want = {f'body.{n}': v for n, v in net.body.state_dict().items()}
    for state in [fed.server, *(fed.state_of(c.id) for c in fed.clients)]:
        assert same({n: v for n, v in state.items() if n.startswith('body')}, want)
    assert not any(n.startswith('body') for n in fed.kept)
    bias = 'head.bias' if 'head.bias' in fed.server else 'head.psi_L.out.bias'
    assert method.name == 'Tithe' or not torch.equal(fed.state_of(0)[bias], net.head.bias)

def test_a_frozen_body_is_neither_stacked_nor_counted(suite):
    fed = run(FedAvg, suite, frozen_body(), rounds=1)
    learns = sum(p.numel() for n, p in fed.net.named_parameters() if not n.startswith('body'))
    assert 'frozen' in fed.why_lanes and fed.history.setting['frozen']
    assert fed.history.rounds[0]['up'] == 3*4*learns

@pytest.mark.parametrize('name', ['FDSE', 'DFL'])
def test_surgery_on_what_is_frozen_is_refused(suite, name):
    says = f'{name}: (Erase|Branches) changes `body.*`, which is frozen'
    with pytest.raises(ValueError, match=says): fed_of(METHODS[name], suite, frozen_body())

def test_a_model_of_which_nothing_learns_is_refused(suite):
    still = small().requires_grad_(False)
    with pytest.raises(ValueError, match='nothing in the model learns'): fed_of(FedAvg, suite, still)

DEFAULTS = ['torch.set_default_dtype(torch.float64)', "torch.set_default_device('meta')"]

@pytest.mark.parametrize('line', DEFAULTS)
def test_a_method_file_cannot_change_the_others(tmp_path, line):
    (tmp_path/'m.py').write_text(
        f'import torch\nfrom fedskew_nb import Mechanism\n{line}\nclass Mine(Mechanism): pass\n')
    says = "m.py sets torch's default dtype or device .* put back"
    with pytest.warns(UserWarning, match=says): from_file(f'{tmp_path}/m.py', 'Mine')
    assert torch.zeros(1).dtype == torch.float32 and torch.zeros(1).device.type == 'cpu'

# ---- what a method writes to

@dataclass
class Writes(Mechanism):
    "A mechanism that writes to itself, or into the images, where `start` says."
    mu: float = .5
    seen: list = field(default_factory=list)
    def __post_init__(self): self._dice, self._other = torch.Generator(), np.random.default_rng(0)
    def start(self, c): self._write(c)

def writing(write): return Method('Mine', type('Mine', (Writes,), dict(_write=write))())

def into(**names):
    def write(self, c):
        for k, v in names.items(): setattr(self, k, v(self))
    return write

def late(self, c):
    if c.round == 1: self.mu = 0.

SELF = dict(
    number=(into(mu=lambda s: s.mu*1.5), 'Mine.mu'),
    private=(into(_count=lambda s: 1), 'Mine._count'),
    list_=(lambda s, c: s.seen.append(c.id), 'Mine.seen'),
    dice=(lambda s, c: torch.rand(1, generator=s._dice), 'Mine._dice'),
    other_dice=(lambda s, c: s._other.random(), 'Mine._other'),
    second_round=(late, 'Mine.mu'))

@pytest.mark.parametrize('write, name', SELF.values(), ids=SELF)
def test_a_method_that_writes_to_itself_is_named(suite, write, name):
    method = writing(write)
    says = f'^{name} was changed in a round, but all clients, lanes and runs share it: keep .* in c.state'
    with pytest.raises(ValueError, match=says): one(suite, method, rounds=2)
    assert method.mechanisms[0].mu == .5 and not method.mechanisms[0].seen           # the caller's own

def test_a_method_that_remembers_where_it_should_trains_on(suite):
    def write(self, c): c.state['count'] = c.state.get('count', 0)+1
    fed = one(suite, writing(write), rounds=2)
    assert [s['Mine'] for s in fed.states.values()] == [dict(count=2)]*3

def test_what_a_method_finds_in_a_net_stays_in_its_federation(suite):
    def adapt(self, net):
        self._width = net.head.in_features
        return net
    mine = Method('Mine', type('Mine', (Mechanism,), dict(adapt=adapt))())
    fed = fed_of(mine, suite, small(width=1))
    assert fed.method.mechanisms[0]._width == 128 and not vars(mine.mechanisms[0])

def zeros(self, c): c.data.train.x.zero_()
def through_numpy(self, c): c.data.train.x.numpy()[:] = 0
def of_the_test(self, c): c.data.test.y.zero_()
def masks_of(self, c): c.data.train.masks.fill_(1)

@pytest.mark.parametrize('write', [zeros, through_numpy, of_the_test, masks_of], ids=lambda f: f.__name__)
def test_a_method_that_writes_into_the_images_is_named(suite, write, tmp_path):
    "And whoever takes the same suite afterwards is told that it is another."
    own = suite._with({id(d): d.apply(torch.clone) for d in suite._datas()})
    before = own.fingerprint()
    fed = fed_of(writing(write), own, small(width=1), rounds=2, eval_every=1, local_steps=1, out=tmp_path/'c')
    says = '^Mine wrote into the images of emoji-pacs, which all methods share: write into a copy'
    with pytest.raises(ValueError, match=says): fed.fit()
    assert own.fingerprint() != before and not (tmp_path/'c').exists()

def test_other_methods_are_not_looked_at(suite, monkeypatch):
    def never(*_): raise AssertionError
    monkeypatch.setattr('fedskew_nb.engine.guard.digest', never)
    one(suite, FedBN)
    with pytest.raises(AssertionError): one(suite, writing(lambda self, c: None))

@pytest.mark.parametrize('held', [lambda: open(os.devnull), threading.Lock, lambda: (i for i in ())],
                         ids=['a file', 'a lock', 'a generator'])
def test_what_cannot_be_copied_is_named(suite, held):
    class Holds(Mechanism):
        def __init__(self): self._held = held()
    says = '^H holds what cannot be copied'
    with pytest.raises(ValueError, match=says): fed_of(Method('H', Holds()), suite)

# ---- what a method asks of the training

@pytest.mark.parametrize('name', ['FDSE', 'RFedDis'])
def test_a_batch_of_one_is_refused_where_a_batchnorm_needs_two(suite, name):
    says = f'^{name}: batch_size is 1, and a BatchNorm cannot train on one vector: give 2 or more'
    with pytest.raises(ValueError, match=says): fed_of(METHODS[name], suite, batch_size=1)
    one(suite, FedAvg, batch_size=1)

def test_a_loss_without_the_model_is_named(suite):
    none = made(task=lambda s, c, b, out: torch.tensor(1.), loss=lambda s, c, b, out: {})
    with pytest.raises(ValueError, match='no loss depends on the model'): one(suite, none)

def test_a_training_without_gradients_is_refused(suite):
    with torch.no_grad(), pytest.raises(ValueError, match='gradients are off'): one(suite, FedAvg)

def test_a_demand_that_is_no_setting_is_named(suite):
    says = "no setting 'lrr': did you mean lr"
    with pytest.raises(ValueError, match=says): one(suite, made(run=dict(lrr=1)))

@pytest.mark.parametrize('key', [(1, 2), .5, None, b'a'], ids=repr)
def test_a_key_that_no_file_keeps_is_refused_when_it_is_saved(suite, key, tmp_path):
    def start(self, c): c.state['a'] = {key: 1}
    fed = one(suite, made(start=start))
    says = re.escape(f'states, 0, Mine, a has the key {key!r}, which cannot be saved')
    with pytest.raises(TypeError, match=says): fed.save(tmp_path/'c')
    assert not list(tmp_path.iterdir())

# ---- images that are asked about

@pytest.fixture(scope='module')
def untrained(suite): return fed_of(FedAvg, suite, small(width=1))

WRONG_IMAGES = {
    'nothing': (lambda x: None, 'images are no numbers'),
    'a picture': (lambda x: Image.new('RGB', (32, 32)), 'images are no numbers'),
    'an empty list': (lambda x: [], 'give uint8 images'),
    'zeros and ones': (lambda x: (x > 99).long(), 'torch.int64: give uint8 images'),
    'one in colour': (lambda x: x[0], 'write x.None. for one in colour'),
    'three in grey': (lambda x: x[:3, 0], 'grey ones want three channels'),
    'grey': (lambda x: x[:, 0], 'grey ones want three channels'),
    'a channel': (lambda x: x[:, :1], '1 channels, .* repeat grey ones'),
    'a channel behind': (lambda x: x[:, 0, :, :, None], '1 channels, .* repeat grey ones'),
    'transparent': (lambda x: x[:, [0, 1, 2, 0]], '4 channels, .* leave others out'),
    'transparent behind': (lambda x: x[:, [0, 1, 2, 0]].movedim(1, -1), '4 channels, .* leave others out'),
    'smaller': (lambda x: x[..., :28, :28], '28 × 28 pixels, .* was trained on 32 × 32: resize them'),
    'larger': (lambda x: x.repeat(1, 1, 2, 2), '64 × 64 pixels'),
    'narrower': (lambda x: x[..., :28], '32 × 28 pixels'),
    'smaller, behind': (lambda x: x[..., :28, :28].movedim(1, -1), '28 × 28 pixels')}

@pytest.mark.parametrize('case', WRONG_IMAGES)
def test_images_that_a_model_was_not_trained_on(untrained, suite, case):
    change, says = WRONG_IMAGES[case]
    with pytest.raises(ValueError, match=says): untrained.predict(change(suite.tests['photo'].x))

def test_images_in_any_layout_have_one_answer(untrained, suite):
    x = suite.tests['photo'].x[:3]
    p = untrained.predict(x)
    for same_x in (x.movedim(1, -1), x.numpy(), x.flip(-1).numpy()[..., ::-1]):
        assert torch.equal(untrained.predict(same_x), p)
    assert torch.equal(untrained.predict(x[0].movedim(0, -1)), untrained.predict(x[:1]))

def test_colours_are_refused_where_all_domains_are_grey(suite):
    def grey(d): return replace(d, x=d.x[:, :1].expand(-1, 3, -1, -1).contiguous())
    black = suite._with({id(d): grey(d) for d in suite._datas()})
    fed, x = fed_of(FedAvg, black, small(width=1)), suite.tests['photo'].x
    says = 'images have colours, and the model was trained on grey ones'
    with pytest.raises(ValueError, match=says): fed.predict(x)
    assert fed.predict(x[:, :1].expand(-1, 3, -1, -1)).shape == (8, 7) == fed.answers(x)[''].shape

# ---- arguments

@pytest.mark.parametrize('how, says', [
    (dict(method='FedAvg'), "method is 'FedAvg': give a Method"),
    (dict(method=None), 'method is None'),
    (dict(method=Turns), 'method is a type'),
    (dict(method=Turns()), 'method is a Turns'),
    (dict(net=None), 'net is None'),
    (dict(net=small), 'net is a function'),
    (dict(net=Net), 'net is a type'),
    (dict(net=nn.Linear(3, 2)), 'Linear is not a Net: wrap it with as_net'),
    (dict(suite='emoji-pacs'), "suite is 'emoji-pacs': give a Suite"),
    (dict(suite=None), 'suite is None'),
    (dict(suite=[]), r'suite is \[\]'),
    (dict(protocol=3), 'there is no training protocol 3'),
    (dict(protocol=['f2dc']), 'there is no training protocol'),
    (dict(device=None), 'device is None'),
    (dict(device=3), 'device is 3'),
    (dict(device=['cpu']), 'device is'),
    (dict(device='meta'), 'meta was asked for, but'),
    (dict(device='xla'), 'xla was asked for, but'),
    (dict(device='gpu'), "'gpu' is no device"),
    (dict(out=3), 'out is 3'),
    (dict(out=''), "out is ''"),
    (dict(out=True), 'out is True'),
    (dict(out='/'), 'out is /, a folder'),
    (dict(lanes=2.), 'lanes is 2.0'),
    (dict(lanes='2'), "lanes is '2'"),
    (dict(lanes=0), 'lanes is 0'),
    (dict(lanes=10**5), '100000 lanes with 1 threads each'),
    (dict(lanes=4, threads=512), '2048 threads')])
def test_arguments_of_a_federation(suite, how, says):
    right = dict(method=FedAvg, net=small(width=1), suite=suite, device='cpu')
    with pytest.raises((ValueError, TypeError), match=says): Federation(**right | how)

BAD = dict(
    rounds=['2', 2., True, None, 0],
    checkpoints=['2', 3, [2.], ['2']],
    local_epochs=['1', None, 10**9],
    local_steps=[2.5, '2', True, 10**12],
    batch_size=[None, 8., '8'],
    lr=['.1', None, True, [.1], float('nan')],
    momentum=['0', True],
    weight_decay=[None, '0'],
    decay=['1', True],
    clip=['1', True, float('inf')],
    uniform=['no', 1, None],
    participation=['1', True, None],
    eval_every=['1', 1.5],
    everywhere=['no', 0],
    record=['no', 1],
    answers=['no', 1],
    turn=['1', None, 181., -1.],
    pad=['4', 4., 10**5],
    flip=['no', 1],
    seed=['0', 1.5, None, True],
    threads=[10**5, '2', 2., 0],
    patience=['2', 1.5, 0, True],
    channels_last=['no', 1],
    adamw=['no', 1],
    stack=['no', 1, 0],
    secure=['no', 1],
    epsilon=['3', True, float('inf')],
    precision=[None, 16, ['fp32']])
EACH = [(name, value) for name, values in BAD.items() for value in values]

@pytest.mark.parametrize('name, value', EACH, ids=str)
def test_every_setting_of_a_wrong_type_is_named(name, value):
    says = f'^({name}|a checkpoint) (is|holds) '
    with pytest.raises(ValueError, match=says): setting_for(FedAvg, **{name: value})

def test_no_setting_is_left_out(): assert BAD.keys() == vars(Setting()).keys()
