"Every record, with something wrong at every place: it is refused in a sentence that names the place."
from typing import Annotated, Literal
import pytest, torch
from msgspec import UNSET, Meta, UnsetType
from fedskew_nb.core.files import Number, Record, misfit, record_of
from fedskew_nb.data.arrays import Arrays
from fedskew_nb.deploy.hub import Facts
from fedskew_nb.deploy.order import Job, Order
from fedskew_nb.engine.checkpoint import Nest
from fedskew_nb.engine.history import StoredRun
from fedskew_nb.engine.server import Answer
from fedskew_nb.run.rates import Tuned
from fedskew_nb.run.store import GridRequest, ListRequest
from fedskew_nb.tools.after import OriginCard

X = torch.ones(2)
ROW = dict(round=1, moment='post_local', view='personal', path='', domain='ink', client=0, n=8, correct=8)
COURSE = dict(
    rows=[ROW, ROW], timing=[dict(seconds=.1)], measured_by='',
    measures=dict(trust=dict(pooled=dict(scores={}))),
    rounds=[dict(round=1, loss=.5, terms={}, participants=[0], up=3, down=4.)])
SETTING = dict(method='M', suite='s', seed=0, rounds=2, checkpoints=[1], deal='skew', steps=[1, 2])
FACTS = dict(name='a', domain='d', n=3, tests=1, trains=True, classes=['x'], norm=[[.1, 1]])
STATE = dict(server=dict(w=X), own={0: dict(w=X)}, states={0: {}}, memory={}, down={}, scored=0, round_no=1)
ORDER = dict(kind='train', job={}, client=0, round=1, merged=0, personal=False, fresh=True, model={}, down={},
             asked='', members=[])
ASKED = dict(methods=['FedAvg'], suites=['s'], seeds=[0], size='tiny', model=None, setting={})
RUNS = dict(runs=dict(first=dict(note='', trials=1), second=dict(note='')))
FITS = [
    (StoredRun, COURSE | dict(setting=SETTING)),
    (Nest, STATE | dict(setting={}, history=COURSE | dict(setting={}))),
    (Answer, dict(client=0, model=dict(w=X), extra=dict(p=[X]), terms=dict(a=1., b=2), rows=[ROW])),
    (Facts, FACTS | dict(version='1', code='c', first_net='f', machine={})), (Order, ORDER),
    (Job, dict(method='FedAvg', model='small_conv', pixels=32, setting={}, run='')),
    (OriginCard, dict(classes=['x'], pixels=32, model='m', method='FedAvg', seed=0, mean=[1, .2], std=[.1])),
    (Arrays, dict(name='n', classes=['x'], domains=dict(d=dict(train=3), e=dict(test=1)))),
    (Tuned, dict(s=dict(A=dict(lr=.1, trials=4, seeds=[1]), B=dict(lr=1, trials=1, seeds=[1], own={})))),
    (ListRequest, ASKED | RUNS | dict(rates=dict(A=1, B=.1))),
    (GridRequest, dict(grid='f2dc', said={}) | RUNS)]

FREE = {'model', 'extra', 'own', 'server', 'participants'}      # what is in them is not said

def places(o, at=''):
    "(its words, how to put something there) of every place whose kind is said."
    for k in o if isinstance(o, dict) else range(len(o)):
        words = f'{at}[{k}]' if isinstance(o, list) else f'{at}.{k}' if at else str(k)
        def put(v, k=k):
            new = o.copy()
            new[k] = v
            return new
        yield words, put
        if not isinstance(o[k], (dict, list)): continue
        for inner, deep in places(o[k], words): yield inner, lambda v, put=put, deep=deep: put(deep(v))

@pytest.mark.parametrize('kind, o', FITS, ids=lambda k: getattr(k, '__name__', ''))
def test_what_is_of_another_kind_is_refused_where_it_stands(kind, o):
    assert misfit(o, kind) == ''
    for words, put in places(o):
        if FREE & {*words.replace('[', '.').split('.')[:-1]}: continue
        for v in (X, object(), float('nan'), b'x'):
            why = misfit(put(v), kind)
            assert why.startswith((f'{words} is ', f'{words} has no ', f'{words}: ')), (words, v, why)

def test_a_record_is_no_tensor():
    for kind, _ in FITS:
        for v in (X, [X], 'x', 3, None): assert misfit(v, kind).endswith(', not a table')

class Kinds(Record):
    "One of each kind of kinds."
    some:Annotated[int, Meta(ge=1)]
    many:Annotated[list[int], Meta(min_length=1)]
    word:Literal['a', 'b']
    maybe:dict[str, int]|None = None
    also:Number|UnsetType = UNSET
    inner:list['Pair'] = []

class Pair(Record, forbid_unknown_fields=True):
    low:int
    high:int
    def __post_init__(self):
        if self.low > self.high: raise ValueError('low is above high')

RIGHT = dict(some=1, many=[1], word='a')
ODD = [
    (dict(some=0), 'some is 0, not a whole number of at least 1'),
    (dict(some=True), 'some is True, not a whole'),
    (dict(many=[]), 'many is [], not a list of something'),
    (dict(many=[1, 'x']), "many[1] is 'x', not a whole"),
    (dict(word='c'), "word is 'c', not 'a' or 'b'"),
    (dict(maybe=3), 'maybe is 3, not a table or nothing'),
    (dict(maybe={3: 1}), 'a name in maybe is not text'),
    (dict(also='x'), "also is 'x', not a finite number"),
    (dict(maybe=dict(a=1, b=1.5)), 'maybe.b is 1.5, not a whole number'),
    (dict(also=None), 'also is None, not'),
    (dict(inner=[dict(low=1, high=2), dict(low=1)]), 'inner[1] has no high'),
    (dict(inner=[dict(low=2, high=1)]), 'inner[0]: low is above high'),
    (dict(inner=[dict(low=1, high=2, hihg=2)]), "what is 'hihg'? did you mean high?")]

@pytest.mark.parametrize('wrong, says', ODD)
def test_what_is_wanted_is_said_of_every_kind(wrong, says):
    assert misfit(RIGHT, Kinds) == '' and misfit(RIGHT | wrong, Kinds).startswith(says)

@pytest.mark.parametrize('text', ['x - at `$.rows[9]`', 'Expected `int`', 'a\nb - at `$[...]', '`', ''])
def test_a_name_that_looks_like_what_msgspec_says(text):
    "It may come from a stranger, and the sentence is made of it all the same."
    for kind, o in FITS: misfit(o | {text: 1}, kind)
    wrong = COURSE | dict(rows=[ROW | dict(moment=text)], setting=SETTING)
    with pytest.raises(ValueError): record_of(wrong, StoredRun)
