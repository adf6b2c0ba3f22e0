"Options of methods: of their type and in their range, from a text and from Python, or refused by name."
from dataclasses import dataclass, field, fields, is_dataclass
import numpy as np
import pytest, torch
from feds import cut, fed_of, small
from fedskew_nb.run.recipes import METHODS, MECHANISMS, as_method, read_method
from fedskew_nb.core.identity import digest
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.names import kinds_of
from fedskew_nb.data.load import load_suite
from fedskew_nb.methods.baselines.average import FedProx, Prox

INF, NAN = float('inf'), float('nan')
WRONG = {
    bool: ['False', 'no', '', 0, 1, None, [], INF],
    int: ['3', '', 1.5, True, NAN, INF, [1], {}, torch.ones(2)],
    float: ['.1', '', True, NAN, INF, -INF, [.1], b'1', np.ones(2), 1j],
    str: [5, True, ['x'], b'x'],
    tuple: ['body', 5, True, {}]}

OWN = {n: c for n, c in MECHANISMS.items() if is_dataclass(c) and fields(c)}
TYPED = [(n, f.name, kinds_of(c, f.name)) for n, c in OWN.items() for f in fields(c)]

def test_every_option_has_a_type_that_is_looked_at(): assert len(TYPED) > 100 and all(k for *_, k in TYPED)

def words_of(kinds)->list:
    "What an option of these kinds cannot be."
    wrong = [v for k in kinds if k is not None for v in WRONG[k]]
    return wrong if None in kinds else [*wrong, None]

@pytest.mark.parametrize('name, option, kinds', TYPED, ids=[f'{n}.{o}' for n, o, _ in TYPED])
def test_an_option_of_the_wrong_type(name, option, kinds):
    for v in words_of(kinds):
        with pytest.raises(ValueError, match=f'{name}: {option} is .*: give '): OWN[name](**{option: v})

@pytest.mark.parametrize('name', OWN)
def test_scalars_of_numpy_and_torch_are_taken(name):
    "And the mechanism is the same, in a file, too."
    plain, others = OWN[name](), []
    for f in fields(plain):
        v = getattr(plain, f.name)
        if isinstance(v, (bool, int, float)):
            for scalar in (np.asarray(v)[()], np.asarray(v), torch.tensor(v, dtype=torch.float64) if
                           isinstance(v, float) else torch.tensor(v)):
                others.append(OWN[name](**{f.name: scalar}))
    assert all(o == plain for o in others)
    assert digest(*others) == digest(*(OWN[name]() for _ in others))     # its code is read once for all

def test_a_scalar_is_shown_as_a_number():
    assert FedProx(mu=np.float64(.5)).name == FedProx(mu=torch.tensor(.5)).name == 'FedProx(mu=0.5)'
    assert type(FedProx(mu=np.float32(.5)).mechanisms[0].mu) is float

SAID = [
    ("FDSE(relu='False')", "Erase: relu is 'False': give True or False"),
    ('FDSE(relu=0)', 'Erase: relu is 0'),
    ("FedDDL(ce='no')", "DEC: ce is 'no'"),
    ("RFedDis(one_way='yes')", "Disentangle: one_way is 'yes'"),
    ("DFL(fresh='')", "Branches: fresh is ''"),
    ("FedBN(affine='no')", "KeepBatchNorm: affine is 'no'"),
    ("FedProx(mu='x')", "Prox: mu is 'x': give a finite number"),
    ('FedProx(mu=1e999)', 'Prox: mu is inf'),
    ('FedProx(mu=None)', 'Prox: mu is None'),
    ('F2DC(warm=.5)', 'DFD: warm is 0.5: give a whole number'),
    ('F2DC(Q=1.5)', 'DomainAware: Q is 1.5: give a whole number or None'),
    ('FedDDL(first=None)', 'DEB: first is None'),
    ("LG-FedAvg(places='body')", "KeepPlaces: places is 'body'"),
    ('Prox(mu=[])', 'Prox: mu is []'),
    ('FDSE(beta=-5)', 'beta=-5'),
    ('FDSE(pad11=-1)', 'pad11 is -1'),
    ('FDSE(Consensus__eps=-1)', 'Consensus: eps is -1'),
    ('F2DC(alpha=-1)', 'DomainAware: alpha is -1'),
    ('F2DC(beta=-1)', 'DomainAware: beta is -1'),
    ('F2DC(DFD__lam=-1)', 'DFD: lam is -1'),
    ('F2DC(DFC__lam=-1)', 'DFC: lam is -1'),
    ('FedDDL(first=-1)', 'first is -1'),
    ('FedDDL(turned=-1)', 'turned is -1'),
    ('FedRCL(threshold=-2)', 'threshold=-2'),
    ('FedAvg + AdaBN(size=0)', 'size is 0'),
    ('Fed-ensemble(K=1180591620717411303424)', 'give a whole number from 1 to 1000000')]

@pytest.mark.parametrize('text, says', SAID)
def test_an_option_that_was_typed(text, says):
    with pytest.raises(ValueError) as e: read_method(text)
    assert says in str(e.value)

def test_a_preset_is_overruled_in_any_spelling():
    "A preset says `Peers__tau`; who says `tau` means the same, and has the last word."
    assert FDSE_tau(preset='released') == 10 and FDSE_tau(preset='released', tau=.25) == .25

def FDSE_tau(**hp): return next(m.tau for m in METHODS['FDSE'](**hp).mechanisms if hasattr(m, 'tau'))

# ---- of one's own

def test_what_the_author_wrote_stands_and_other_types_are_not_looked_at():
    @dataclass
    class Loose(Mechanism):
        width: int = None
        names: list[str] = field(default_factory=list)
        anything: object = 5
        later: 'NotThere' = 3     # noqa: F821
    m = Loose(names=['a'], anything='x', later=[])
    assert Loose().width is None and (m.names, m.anything, m.later) == (['a'], 'x', [])

def test_a_list_is_a_tuple_where_a_tuple_is_wanted():
    one, two = (read_method(f'LG-FedAvg(places={v})') for v in ("['body']", "('body',)"))
    assert one.mechanisms == two.mechanisms and digest(one.mechanisms) == digest(two.mechanisms)

@pytest.mark.parametrize('how', [dict(slots=True), dict(frozen=True), dict(kw_only=True)], ids=str)
def test_dataclasses_of_all_kinds(how):
    @dataclass(**how)
    class Me(Mechanism):
        a: float = .1
        def loss(self, c, b, out): return dict(a=self.a*out.feat.square().mean())
    m = Method('Me', Me())
    assert m(a=.2).mechanisms[0].a == .2 and m.spec()[0]['hp'] == dict(a=.1)
    assert digest(Me()) == digest(Me(a=.1)) != digest(Me(a=.2))
    with pytest.raises(ValueError, match='Me is there twice'): Method('Me', Me(), Me(a=.2))
    with pytest.raises(ValueError, match="Me: a is 'x': give a finite number"): m(a='x')

def test_slots_train():
    @dataclass(slots=True)
    class Me(Mechanism):
        a: float = .1
        def loss(self, c, b, out): return dict(a=self.a*out.feat.square().mean())
    suite = cut(load_suite('emoji-pacs', 'tiny'), (16, 16), tests=4)
    fed = fed_of(Method('Me', Me()), suite, small(width=1), rounds=1, local_steps=1)
    assert 'a' in fed.fit().rounds[0]['terms']

def test_a_field_that_changes_is_looked_at_again():
    m = Prox()
    with pytest.raises(ValueError, match='Prox: mu is'): m.mu = 'x'
    m.mu = .5
    assert m.mu == .5

@dataclass
class Bare(Mechanism):
    mu: float

class Made(Mechanism):
    def __init__(self, net): ...

@pytest.mark.parametrize('cls', [Bare, Made])
def test_a_mechanism_without_defaults_is_named(cls):
    with pytest.raises(ValueError, match=f'{cls.__name__} has no default .*give every field one'):
        as_method(cls, cls.__name__, {})

KEPT = dict(function=len, set={1}, path=type, bytes=b'x', infinite=[INF], net=torch.nn.Linear(1, 1))

@pytest.mark.parametrize('name', KEPT)
def test_what_no_file_can_hold_is_named_before_the_training(name):
    @dataclass
    class Me(Mechanism):
        thing: object = None
    with pytest.raises(ValueError, match=r'Me\.thing is .*a stored run holds finite numbers'):
        Method('Me', Me(KEPT[name])).spec()
