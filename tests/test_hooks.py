"What a hook may say, and what the engine makes of it."
from dataclasses import dataclass, replace
import pytest, torch
from feds import equal, fed_of, run, same, small
from fedskew_nb.run.compare import compare, resume
from fedskew_nb.run.recipes import read_method
from fedskew_nb.analysis.probes import adabn
from fedskew_nb.core.context import Each
from fedskew_nb.core.method import Contradiction, Method
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.net import under
from fedskew_nb.core.rules import Rule, by_all, keep, mean, rule_groups
from fedskew_nb.core.seeding import generator
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.checkpoint import load_nest, save_nest
from fedskew_nb.engine.setting import schedule
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.baselines.personal import FedBN, KeepBatchNorm
from fedskew_nb.methods.f2dc.method import F2DC

@pytest.fixture(scope='module')
def suite():
    whole = load_suite('emoji-pacs', 'tiny')
    clients = [replace(c, train=c.train[:24], val=c.val[:8], test=c.test[:16]) for c in whole.clients[:3]]
    return replace(whole, clients=clients, tests={d: t[:16] for d, t in whole.tests.items()})

@dataclass
class Pool(Mechanism):
    "Keeps a tuple of numbers, and draws something lasting."
    sizes: tuple = (1, 2)
    def start(self, c): c.cache.setdefault('pool', torch.rand(2, generator=c.gen('pool', lasting=True)))
    def loss(self, c, b, out): return dict(pool=c.cache['pool'].sum()*out.logits.square().mean())

def test_a_tuple_as_hyper_parameter_and_a_lasting_pool_survive_a_resume(suite, tmp_path):
    whole, half = run(Method('P', Pool()), suite), fed_of(Method('P', Pool()), suite)
    half.fit(1)
    half.save(tmp_path/'c')
    rest = fed_of(Method('P', Pool()), suite).load(tmp_path/'c')
    rest.fit()
    assert equal(whole, rest) and whole.history == rest.history

def test_what_finish_and_state_hold_does_not_change_with_the_next_client(suite):
    class Sends(Mechanism):
        def finish(self, c):
            c.state['mine'] = c.net.head.bias
            return dict(nest=[c.net.head.bias, dict(w=c.net.head.weight)])
    fed = fed_of(Method('S', Sends()), suite, lanes=1)
    local = list(fed.train(fed.clients))
    heads = [answer['model']['head.bias'] for answer, _ in local]
    for (answer, mine), head in zip(local, heads):
        assert torch.equal(answer['extra']['nest'][0], head)
        assert torch.equal(mine['states']['Sends']['mine'], head)
    assert not torch.equal(heads[0], heads[1])

def test_a_term_is_taken_to_where_the_loss_lies():
    "On a device of shapes without numbers, which is not the CPU."
    class Zero(Mechanism):
        def loss(self, c, b, out): return dict(zero=torch.tensor(0.))
    out = small().to('meta')(torch.zeros(2, 3, 32, 32, device='meta'))
    terms = Method('Z', Zero()).terms(None, dict(y=torch.zeros(2, dtype=torch.long, device='meta')), out)
    assert {n: v.device.type for n, v in terms.items()} == dict(task='meta', zero='meta')

SHARES = [(dict(local_steps=4), 4), (dict(local_steps=None, local_epochs=2), 6)]

@pytest.mark.parametrize('said, steps', SHARES)
def test_phases_share_the_steps(suite, said, steps):
    "Each has its share, all see the batches of FedAvg, and a term is the mean over its own steps."
    seen = []
    class Two(Mechanism):
        def phases(self, c): return [('head', 1, under('head')), ('body', 1, under('body'))]
        def batch(self, c, b):
            seen.append((c.phase, b['i'].tolist()))
            return b
        def loss(self, c, b, out): return {c.phase: out.logits.sum()*0+3}
    fed = fed_of(Method('T', Two()), suite, **said)
    terms = fed.train_client(fed.clients[0]).terms
    assert [p for p, _ in seen] == ['head']*(steps//2)+['body']*(steps//2)
    assert terms['head'] == terms['body'] == 3.
    dice = generator(0, 0, 0, 'all', 'order')
    order = schedule(24, 8, dice, said.get('local_epochs', 1), said['local_steps'])
    assert [i for _, i in seen] == [i.tolist() for i in order]

def test_a_frozen_module_is_in_eval_with_all_that_lies_in_it(suite):
    "Layers without weights have nothing that could be frozen; those among layers that learn go on training."
    seen = {}
    class Two(Mechanism):
        def phases(self, c): return [('head', 1, under('head')), ('body', 1, under('body'))]
        def loss(self, c, b, out):
            seen[c.phase] = {n for n, m in c.net.named_modules() if m.training}
            return {}
    net = small()
    net.head = torch.nn.Sequential(torch.nn.Dropout(.1), net.head)
    fed_of(Method('T', Two()), suite, net).one_round()
    assert {n for n in seen['head'] if n} == {'neck', 'head', 'head.0', 'head.1'}
    assert {'body.block1.bn', 'body.block1.pool'} <= seen['body']
    assert not any(n.startswith(('head', 'pool')) for n in seen['body'])

def test_a_phase_without_steps_is_refused(suite):
    class Two(Mechanism):
        def phases(self, c): return [('a', 1, under('head')), ('b', 1, under('body'))]
    says = "phase 'a' gets none of 1 local steps"
    with pytest.raises(ValueError, match=says): run(Method('T', Two()), suite, local_steps=1)

def test_a_client_knows_its_classes_and_how_its_model_wants_images(suite):
    seen = []
    class Looks(Mechanism):
        def start(self, c): seen.append((c.n_classes, c.images(c.data.train.x[:2])))
    fed = fed_of(Method('L', Looks()), suite)
    fed.train_client(fed.clients[0])
    (n, x), = seen
    assert n == 7 and torch.equal(x, fed.worker.images(suite.clients[0].train.x[:2]))

class PerClient(Mechanism):
    "Client 1 gets four numbers, client 2 eight, client 0 none."
    def extras(self, srv, ups):
        return dict(all=torch.zeros(1), own=Each({1: torch.ones(1), 2: torch.full((2,), 2.)}))
    def start(self, c): c.state['got'] = {n: v.tolist() for n, v in c.down.items()}

def test_extras_may_hold_a_value_per_client(suite, tmp_path):
    fed = run(Method('E', PerClient()), suite)
    got = {k: s['PerClient']['got'] for k, s in fed.states.items()}
    assert got == {0: dict(all=[0.]), 1: dict(all=[0.], own=[1.]), 2: dict(all=[0.], own=[2., 2.])}
    first, second = (r['down'] for r in fed.history.rounds)
    assert second-first == 4*(3*1+1+2)
    save_nest(dict(d=fed.down), tmp_path/'n')
    assert isinstance(load_nest(tmp_path/'n')['d']['own'], Each)

def test_further_answers(suite):
    class Sure(Mechanism):
        def adapt(self, net):
            net.head = WithU(net.head)
            return net
    fed = fed_of(Method('U', Sure()), suite)
    found = fed.answers(suite.tests['photo'].x[:5], aux=('u',))
    assert sorted(found) == ['', 'u'] and found['u'].shape == (5,)
    x = suite.tests['photo'].x[:5]
    with pytest.raises(ValueError, match="no further answer 'v'"): fed.answers(x, aux=('v',))

class WithU(torch.nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head
    def forward(self, f): return self.head(f), dict(u=f.mean(1))

# ---- scores

def test_every_client_on_every_test_set_on_request(suite):
    hidden = replace(suite, unseen=dict(sketch=suite.tests['sketch']))
    rows = run(FedAvg, hidden, everywhere=True).history.rows
    local = [(r['view'], r['domain'], r['client']) for r in rows if r['moment'] == 'post_local']
    assert {v for v, *_ in local} == {'personal', 'global', 'unseen'} and len(local) == 3*(1+4+1)
    own = run(FedBN, hidden, everywhere=True).history.rows
    assert {r['view'] for r in own if r['moment'] == 'post_agg'} == {'personal', 'global', 'unseen'}
    assert {r['view'] for r in run(FedBN, hidden).history.rows} == {'personal'}

def test_adabn_trains_as_without_it_and_asks_another_model(suite):
    plain, fed = run(FedAvg, suite, stack=False), run(read_method('FedAvg + AdaBN'), suite, stack=False)
    assert same(plain.server, fed.server) and fed.is_personal()
    c = suite.clients[1]
    want = adabn(plain.model(), c.train)
    assert same(fed.model(client=c.id).state_dict(), want.state_dict())
    right = int((fed.predict(c.test.x, client=c.id).argmax(1).cpu() == c.test.y).sum())
    last = (c.id, 'post_agg', 2)
    said, = (r['correct'] for r in fed.history.rows if (r['client'], r['moment'], r['round']) == last)
    assert said == right

def test_scoring_changes_no_memory(suite):
    "What `prepare` writes down is of the model that is scored."
    class Counts(Mechanism):
        def prepare(self, c): c.state['times'] = 1
    fed = run(Method('C', Counts()), suite, stack=False)
    assert not any(any(memory.values()) for memory in fed.states.values())

def test_a_rule_sees_what_each_client_started_from(suite):
    rounds = []
    class Own(Mechanism):
        def rules(self, net): return [Rule(under('head'), self._own, by_all)]
        def _own(self, V, g, w, srv):
            rounds.append((V.clone(), g.clone()))
            return V
    run(Method('O', Own()), suite)
    (sent, first), (_, second) = rounds
    assert torch.equal(first, first[:1].expand_as(first)) and torch.equal(second, sent)
    assert not torch.equal(sent, sent[:1].expand_as(sent))

def test_lanes_do_not_change_what_is_asked(suite):
    a, b = (run(read_method('FedBN + AdaBN'), suite, lanes=n).history.rows for n in (1, 2))
    assert a == b

# ---- what combines

def test_equal_twins_are_one_and_others_are_refused():
    class OwnNorms(KeepBatchNorm): pass
    assert len((FedBN+Method('Both', KeepBatchNorm())).mechanisms) == 1
    other = Method('Other', KeepBatchNorm(affine=False))
    with pytest.raises(Contradiction, match='KeepBatchNorm is there twice'): FedBN+other
    assert len((FedBN+Method('Sub', OwnNorms())).mechanisms) == 2

def test_a_place_may_be_needed_untouched():
    class Around(Mechanism): relies_on = {'neck': 'untouched'}
    with pytest.raises(Contradiction, match='Around and DFD meet at `neck`, which Around needs untouched'):
        (Method('A', Around())+F2DC).adapt(small())
    Method('A', Around()).adapt(small())

def test_what_is_wanted_of_the_images_is_asked_before_round_1(suite):
    class Cuts(Mechanism): wants = ('boxes',)
    class Either(Mechanism): wants = ('boxes', 'masks')
    says = 'Cuts wants boxes, and the images of client 0, 1, 2 of emoji-pacs have none'
    with pytest.raises(ValueError, match=says):
        fed_of(Method('C', Cuts()), suite)
    fed_of(Method('C', Either()), suite)

# ---- suites from a file

FILE = '''
from fedskew_nb import load_suite
def mine(seed, size='tiny'): return load_suite('emoji-pacs', size, seed)
def none(seed): return 3
'''

def test_a_suite_from_a_file(tmp_path):
    (tmp_path/'mine.py').write_text(FILE)
    text = f'{tmp_path}/mine.py:mine'
    call = dict(seeds=1, control=False, rounds=1, local_steps=1, model='small_conv(width=4)', progress=False)
    cmp = compare('FedAvg', text, out=tmp_path/'o', **call)
    assert cmp.suites == ['emoji-pacs'] and resume(tmp_path/'o', trust_code=True).csv() == cmp.csv()
    (tmp_path/'mine.py').write_text(FILE.replace('size, seed)', 'size, seed+1)'))
    compare('FedAvg', text, out=tmp_path/'o', **call)
    assert len(list((tmp_path/'o'/'runs').glob('*.json'))) == 2          # another file, another run
    says = 'gives a int: it should be a function of the seed that returns a Suite'
    with pytest.raises(ValueError, match=says):
        compare('FedAvg', f'{tmp_path}/mine.py:none', **call)

def test_two_rules_of_one_mechanism_are_two_groups():
    "Also where each claims all of its names as one group."
    class Two(Mechanism):
        def rules(self, net): return [Rule(under('body'), mean, by_all), Rule(under('head'), keep, by_all)]
    groups = rule_groups(Method('Two', Two()).rules(small()))
    found = {rule.fn: {n.partition('.')[0] for n in names} for m, rule, names in groups if m}
    assert found == {mean: {'body'}, keep: {'head'}}
