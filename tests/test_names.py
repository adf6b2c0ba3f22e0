"Names on the command line: what is read, what is refused, and with which sentence."
import importlib, inspect, json, sys
from dataclasses import replace
import pytest
from fedskew_nb.run.recipes import METHODS, MECHANISMS
from fedskew_nb.tools.catalogue import catalogue, families, methods_table, needs_of, needs_table, one_line
from fedskew_nb.run.compare import compare
from fedskew_nb.run.recipes import ALIASES, cut, literal, method_recipe, model_recipe, read_call, read_method
from fedskew_nb.run.recipes import read_model, read_suite, suite_recipe
from fedskew_nb.run.scripts import from_file
from fedskew_nb.run.plan import method_recipes
from fedskew_nb.nets.models import MODELS, small_conv
from fedskew_nb.core.names import deprecated, folded, lazy, nearest
from fedskew_nb.data.load import SUITES, load_suite

SMALL = '''
from dataclasses import dataclass
from fedskew_nb import Mechanism
@dataclass
class Small(Mechanism):
    "Keeps features short."
    lam: float = .01
    def loss(self, c, b, out): return dict(small=self.lam*out.feat.square().mean())
wrong = 3
'''

@pytest.mark.parametrize('text, parts', [
    ('FedAvg,FedProx(mu=.1)', ['FedAvg', 'FedProx(mu=.1)']),
    ("X(a=(1,2), b='p,q') , Y", ["X(a=(1,2), b='p,q')", 'Y']),
    (',a,,b,', ['a', 'b']),
    ('', []),
    ("'a,b'", ["'a,b'"]),
    ('f({1:[2,3]}),g', ['f({1:[2,3]})', 'g'])])
def test_cut(text, parts): assert cut(text) == parts

@pytest.mark.parametrize('text', ['FedProx(mu=.1', "X(a='b)", 'X)'])
def test_open_brackets_are_refused(text):
    with pytest.raises(ValueError, match='ends inside a bracket or quote'): cut(text)

def test_a_path_of_another_system():
    text = r'C:\my files\m.py:Mine(a=[1,2], b="x=y")'
    assert read_call(text) == (r'C:\my files\m.py', 'Mine', dict(a=[1, 2], b='x=y'))

@pytest.mark.parametrize('text, word', [
    ('FedProx(mu=__import__("os").getcwd())', 'is no number'),
    ('FedProx(.1)', 'key=value'),
    ('os.system', 'cannot read'),
    ('X(a=1+open("x"))', 'is no number'),
    ('X(1a=2)', 'key=value'),
    ('', 'cannot read')])
def test_nothing_typed_is_run(text, word):
    with pytest.raises(ValueError, match=word): read_call(text)

@pytest.mark.parametrize('text', ['9**9**9', '1+', 'open("x")', '('*200, 'x'])
def test_no_literal(text):
    with pytest.raises(ValueError, match='is no number'): literal(text)

@pytest.mark.parametrize('text, word', [
    ('', 'needs a name'),
    ('FedAvgg', 'did you mean FedAvg'),
    ('FedProx(nu=1)', 'did you mean mu'),
    ('Erase(H=2)', "Erase has no hyper-parameter 'H'"),
    ('KeepErasers', 'builds on Erase'),
    ('KeepErasers(a=1)', 'it takes none'),
    ('FedProx(mu=nan)', 'mu'),
    ('FedProx(mu=.1, mu=.2)', 'says mu twice'),
    ('FedProx(Prox__mu=.1, mu=.2)', 'mu is given twice'),
    ('FedProx(mu=.1', 'ends inside a bracket'),
    ('FedProx(.1)', 'arguments are written key=value'),
    ('FedDecorr(released)', "write preset='released'"),
    ("FedDecorr('release')", "no preset 'release': did you mean released"),
    ("FedDecorr('released', preset='paper')", 'says preset twice'),
    ("Erase('released')", "Erase has no hyper-parameter 'preset'"),
    ('FedAvg FedBN', "there is no method 'FedAvg FedBN'"),
    ('FedProx + Prox(mu=2)', 'Prox is there twice')])
def test_methods_that_are_refused(text, word):
    with pytest.raises(ValueError, match=word): read_method(text)

# ---- as people type them

FOUND = dict(
    scaffold='SCAFFOLD', Scaffold='SCAFFOLD', moon='MOON', Moon='MOON', FEDAVG='FedAvg', fed_avg='FedAvg',
    LG_FedAvg='LG-FedAvg', LGFedAvg='LG-FedAvg', FedEnsemble='Fed-ensemble', fed_ensemble='Fed-ensemble',
    FedHeal='FedHEAL', fedfa_aug='FedFA-aug', FedFA_anchors='FedFA-anchors', f2dc='F2DC', fdse='FDSE',
    RFEDDIS='RFedDis', SingleSet='Local', singleset='Local', Standalone='Local', FedDeccor='FedDecorr',
    PartialFed_Fix='PartialFed', PartialFed_adaptive='PartialFed-Adaptive') | {
    'lg-fedavg': 'LG-FedAvg', 'LG FedAvg': 'LG-FedAvg', ' FedAvg ': 'FedAvg', 'fed prox': 'FedProx',
    'Single Set': 'Local', 'PartialFed-Fix': 'PartialFed', 'keep_batchnorm': 'KeepBatchNorm',
    'moon(mu=1)': 'MOON(mu=1)', 'Moon (mu=1)': 'MOON(mu=1)', 'erase + KEEP erasers': 'Erase + KeepErasers',
    'prox(mu=.5)+fedbn': 'Prox(mu=0.5) + FedBN', 'singleset + adabn': 'Local + AdaBN',
    "FedDecorr('released')": "FedDecorr(preset='released')",
    'f2dc("released", sigma=.3)': "F2DC(preset='released', sigma=0.3)"}

@pytest.mark.parametrize('text', FOUND)
def test_typed_and_found(text):
    "The name that tables and files show, which can be typed again."
    recipe = method_recipe(text)
    assert recipe.name == recipe.made.name == recipe.text == FOUND[text]
    assert method_recipe(recipe.text).made == recipe.made

@pytest.mark.parametrize('text, name', [
    ('Skew_Digits', 'skew-digits'), ('SKEW DIGITS', 'skew-digits'), ('EmojiPacs', 'emoji-pacs'),
    ('emoji pacs uneven', 'emoji-pacs-uneven'), ('Emoji_PACS_without_photo', 'emoji-pacs-without-photo'),
    ('emoji-pacs-UNEVEN-without-photo', 'emoji-pacs-uneven-without-photo')])
def test_suites_typed_and_found(text, name):
    recipe = suite_recipe(text, 'tiny')
    assert (recipe.name, recipe.text) == (name, name) and recipe(0).name == name

@pytest.mark.parametrize('text, name', [
    ('ResNet10(width=16)', 'resnet10(width=16)'), ('small-conv', 'small_conv'),
    ('Small Conv(width=4)', 'small_conv(width=4)'), ('./a b/m.py:Net(width=4)', 'Net(width=4)')])
def test_models_typed_and_found(text, name): assert model_recipe(text).name == name

def test_python_takes_them_too():
    assert load_suite('Emoji_PACS', 'tiny').name == 'emoji-pacs'
    cmp = compare(['fedavg', 'SingleSet'], 'Emoji Pacs', seeds=1, size='tiny', model='Small-Conv(width=4)',
                  rounds=1, local_steps=1, control=False, progress=False)
    assert (cmp.methods, cmp.suites) == (['FedAvg', 'Local'], ['emoji-pacs'])
    assert {h.setting['model'] for h in cmp.histories} == {'small_conv(width=4)'}

def test_one_method_in_two_spellings_is_one():
    assert [r.name for r in method_recipes('MOON, moon, Moon')] == ['MOON']

@pytest.mark.parametrize('text', ['FedFA', 'fedfa', 'Fed-FA', 'FedFA(p=.1)'])
def test_an_ambiguous_name_says_which_there_are(text):
    with pytest.raises(ValueError) as e: read_method(text)
    says = str(e.value)
    assert '2 methods are called' in says and 'FedFA-anchors (anchors, TMC 2023)' in says
    assert "FDSE's table means it, with preset='released'" in says

def test_no_two_names_are_folded_alike():
    for names in ([*METHODS, *MECHANISMS], SUITES, MODELS):
        assert len(set(map(folded, names))) == len(names)
    assert not set(map(folded, ALIASES)) & set(map(folded, [*METHODS, *MECHANISMS]))
    assert [a for a, of in ALIASES.items() if len(of) > 1] == ['FedFA']

@pytest.mark.parametrize('text', ['zzz', 'Mon', 'FedXYZ', 'ResNet', '5', 'single', 'heal2'])
def test_three_names_at_most(text):
    names = [*METHODS, *MECHANISMS, *ALIASES]
    says = nearest(text, names)
    assert sum(w.strip('?,') in names for w in says.split()) <= 3 and len(says) < 120

def test_few_names_are_listed(): assert nearest('zzz', ['b', 'a']) == 'known are a, b'

def test_a_folder_knows_a_method_in_any_spelling(tmp_path):
    "Also one that holds what was typed, as folders of before do."
    how = dict(suite='emoji-pacs', seeds=1, size='tiny', model='small_conv(width=4)', rounds=1, local_steps=1,
               control=False, progress=False, out=tmp_path)
    compare('fedprox(mu=.5)', **how)
    file = tmp_path/'compare.json'
    request = json.loads(file.read_text())
    assert request['methods'] == ['FedProx(mu=0.5)'] and len(list((tmp_path/'runs').iterdir())) == 1
    file.write_text(json.dumps(request | dict(methods=['FedProx(mu=.5)'])))
    assert len(compare('Fed-Prox(mu=0.5), SINGLESET', **how)) == 2
    assert sorted(p.name.split('_')[1] for p in (tmp_path/'runs').iterdir()) == ['FedProx-mu=0.5-', 'Local']

def test_sums():
    assert read_method('Erase + Consensus + Peers + Consistency').mechanisms == METHODS['FDSE'].mechanisms
    both = read_method('FedProx(mu=1) + F2DC')
    assert both == METHODS['FedProx'](mu=1)+METHODS['F2DC'] and both.presets == METHODS['F2DC'].presets
    assert read_method('Prox(mu=.5)+FedBN').name == 'Prox(mu=0.5) + FedBN'

def test_a_method_is_itself():
    avg, bn = METHODS['FedAvg'], METHODS['FedBN']
    assert read_method('FedBN') is bn and read_method(bn) is bn
    for given in ('FedAvg,,FedBN,', ['FedAvg', bn]):
        assert [r.made for r in method_recipes(given)] == [avg, bn]

@pytest.fixture
def mine(tmp_path):
    f = tmp_path/'mine.py'
    f.write_text(SMALL)
    return f

def test_a_file_of_ones_own(mine):
    m = read_method(f'{mine}:Small(lam=.5)')
    assert (m.name, m.mechanisms[0].lam) == ('Small(lam=0.5)', .5)
    mine.write_text(SMALL.replace('.01', '.02'))
    assert read_method(f'{mine}:Small').mechanisms[0].lam == .02            # imported anew

@pytest.mark.parametrize('name, word', [('Smal', 'did you mean Small'), ('wrong', 'wrong is a int')])
def test_what_a_file_lacks(mine, name, word):
    with pytest.raises(ValueError, match=word): read_method(f'{mine}:{name}')

def test_two_copies_of_a_file_have_their_own_place(tmp_path):
    for name in ('a', 'b'):
        (tmp_path/name).mkdir()
        (tmp_path/name/'mine.py').write_text("from pathlib import Path\nhere = Path(__file__).parent.name")
    assert [from_file(str(tmp_path/n/'mine.py'), 'here') for n in 'ab'] == ['a', 'b']

def test_files_that_cannot_be_read(mine):
    mine.write_text('1/0')
    with pytest.raises(ValueError, match='ZeroDivisionError'): from_file(str(mine), 'Small')
    with pytest.raises(ValueError, match='there is no file'): from_file(str(mine.parent/'none.py'), 'X')

@pytest.mark.parametrize('text, word', [
    ('resnet11', 'did you mean resnet1'),
    ('small_conv(widht=8)', 'did you mean width'),
    ("small_conv(width='8')", "width is '8': give a whole number"),
    ('small_conv(width=True)', 'width is True'),
    ('small_conv(width=1.5)', 'width is 1.5'),
    ('small_conv(width=4, width=8)', 'says width twice')])
def test_models_that_are_refused(text, word):
    with pytest.raises(ValueError, match=word): read_model(text, 5)

NETS = '''
from torch import nn
bad = 3
def plain(n_classes): return nn.Linear(3, n_classes)
'''

@pytest.mark.parametrize('name, says', [
    ('plain', 'wrap it with as_net'), ('bad', 'should be a function of n_classes')])
def test_a_model_must_be_a_net(tmp_path, name, says):
    (tmp_path/'net.py').write_text(NETS)
    with pytest.raises(ValueError, match=says): read_model(f'{tmp_path}/net.py:{name}', 5)

@pytest.mark.parametrize('text, size, word', [
    ('emoji-pac', 'tiny', 'did you mean emoji-pacs'),
    ('emoji-pacs', 'tinny', 'did you mean tiny'),
    ('emoji-pacs-without-phot', 'tiny', 'did you mean photo'),
    ('emoji-pacs-without-', 'tiny', 'names no domain'),
    ('emoji-pacs-uneven-without-', 'tiny', 'write emoji-pacs-uneven'),
    ('emoji-pacs-without', 'tiny', 'there is no suite')])
def test_suites_that_are_refused(text, size, word):
    with pytest.raises(ValueError, match=word): read_suite(text, size)

def test_a_suite_may_be_made():
    s = read_suite('emoji-pacs', 'tiny', 2)
    assert read_suite(s) is s
    assert read_suite(lambda seed: replace(s, data_seed=seed), data_seed=7).data_seed == 7

ONE_MODEL = {'FedAvg', 'FedProx', 'FedDyn', 'SCAFFOLD', 'FedHEAL', 'Fed-ensemble', 'FedFA-aug'}
# what they have is kept, prepared, or a row for each
NO_MODEL = {'Local', 'FedBN', 'FedRep', 'Ditto', 'PartialFed', 'PartialFed-Adaptive', 'FDSE', 'DFL'}

def test_what_the_methods_need():
    probe = small_conv(3, size=28, width=4)
    needs = {n: needs_of(m, probe) for n, m in METHODS.items()}
    assert (needs['FedAvg']['needs'], needs['FedBN']['needs']) == ('nothing', 'BatchNorm')
    assert needs['FixBN']['needs'] == 'BatchNorm'        # no rule of its own, but it refuses a net without
    one = {n for n, d in needs.items() if d['global_model'] == 'yes'}
    assert one >= ONE_MODEL and not one & NO_MODEL

def test_the_table_of_needs():
    table = needs_table()
    assert all(n in table for n in METHODS)
    rows = table.splitlines()
    assert '| FedBN | KeepBatchNorm | BatchNorm | no |' in rows and sum('| nothing |' in r for r in rows) == 2
    assert needs_table([METHODS['FedProx']]).splitlines()[2:] == ['| FedProx | Prox | nothing | yes |']

def test_everything_says_what_it_is():
    assert all(line for table in catalogue().values() for line in table.values())
    table = methods_table()
    assert all(n in table for n in METHODS)

def test_every_method_has_one_family():
    rows = families()
    names = [n for _, _, members in rows for n in members]
    assert sorted(names) == sorted(METHODS)
    assert names.index('FedBN') < names.index('F2DC') < names.index('RFedDis') < names.index('FedDyn')
    of_head = {}
    for _, head, members in rows: of_head.setdefault(head, {}).update(members)
    assert list(of_head['A corrected gradient']) == ['SCAFFOLD', 'FedDC']
    assert {'F2DC', 'DFL'} <= of_head['Systems of the papers'].keys()
    for head, members in of_head.items(): assert head[0].isupper() and not any(n in head for n in members)
    lines = methods_table().splitlines()
    at = lines.index('| **A corrected gradient** |  |  |  |')
    assert lines[at+1].startswith('| [SCAFFOLD](') and lines[at+2].startswith('| [FedDC](')

@pytest.mark.parametrize('name', METHODS)
def test_one_idea_in_twelve_words(name):
    assert len(METHODS[name].says.split()) <= 12
    assert METHODS[name].says in ('', one_line(METHODS[name]))

@pytest.mark.parametrize('name', MECHANISMS)
def test_every_mechanism_can_be_named(name):
    assert inspect.isclass(MECHANISMS[name]) and MECHANISMS[name].__name__ == name

def test_an_old_name_is_told_where_it_is_used():
    def old(): deprecated('old', 'new', '0.2', '0.3')
    def older(): deprecated('older', 'new', '0.1', '0.3', up=2)
    def through(): older()
    for use in (old, through):
        with pytest.warns(FutureWarning, match='is new .*, and the old name ends') as told: use()
        assert told[0].filename == __file__

@pytest.mark.parametrize('old, new', [
    ('app.compare', 'run.compare'), ('core.models', 'nets.models'), ('data.rooms', 'data.suites.rooms')])
def test_the_path_of_0_1_is_the_module_and_warns(old, new):
    sys.modules.pop(f'fedskew_nb.{old}', None)
    with pytest.warns(FutureWarning, match=f'fedskew_nb.{old} is fedskew_nb.{new} since 0.2') as told:
        module = importlib.import_module(f'fedskew_nb.{old}')
    assert module is importlib.import_module(f'fedskew_nb.{new}') and len(told) == 1

def test_a_lazy_library_waits():
    sys.modules.pop('colorsys', None)
    library = lazy('colorsys')
    assert not hasattr(library, '__wrapped__') and 'colorsys' not in sys.modules
    assert library.rgb_to_hsv(0, 0, 0) == (0, 0, 0) and 'colorsys' in sys.modules
