"The hand-written `fedskew_nb/__init__.py`: every public name, nothing before it is asked for."
import ast, importlib, json, re, subprocess, sys
import pytest
from PIL import Image
import fedskew_nb as fs
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.downloads.prepare import prepare_command
from fedskew_nb.engine.reading import SCORES, TABLED
from fedskew_nb.run.reproduce import reproduce_command
from fedskew_nb.tools import cli
from project import NBS, ROOT, notebooks, read, source

def fresh(code):
    "What a new Python process prints."
    r = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True)
    assert not r.returncode, r.stderr
    return r.stdout.strip()

FORGET = """
def forget():
    for m in [m for m in sys.modules if m.partition('.')[0] == 'fedskew_nb']: del sys.modules[m]
"""

def anew(codes):
    "What each of them prints in a process that forgets the package before it; libraries are read once."
    loop = f'for code in {list(codes)!r}: forget(); exec(code, {{}})'
    return fresh(f'import sys\n{FORGET}\n{loop}').splitlines()

def test_import_is_light():
    heavy = '{"torch", "pandas", "matplotlib"}'
    assert fresh(f'import fedskew_nb, sys; print({heavy} & sys.modules.keys() or "light")') == 'light'

def test_help_without_torch():
    looked = 'dir(fs); fs.__all__; fs.__version__'
    assert fresh(f'import fedskew_nb as fs, sys; {looked}; print("torch" in sys.modules)') == 'False'

VERSION = """
import sys, fedskew_nb
sys.argv = ['fedskew', '--version']
print(fedskew_nb._main(), sorted({'torch', 'numpy', 'pandas', 'fastcore'} & sys.modules.keys()))"""

def test_the_version_is_said_before_anything_loads():
    assert fresh(VERSION).split() == [fs.__version__, 'None', '[]']

SERVES = """
import sys, time
begun = time.process_time()
import fedskew_nb
sys.argv = ['fedskew', 'serve', '--host', '0.0.0.0']
print(fedskew_nb._main())
sys.argv = ['fedskew', 'certs', '.', '--node', '../east']
heavy = {'torch', 'torchvision', 'pandas', 'matplotlib', 'numpy'}
print(fedskew_nb._main(), sorted(heavy & sys.modules.keys()))
ours = time.process_time()-begun
import torch
print(ours < (time.process_time()-begun-ours)/2)"""

def test_a_server_and_its_keys_load_no_torch():
    "Nor half as long as torch takes in the same process."
    assert fresh(SERVES).splitlines() == ['2', '2 []', 'True']

def mean_colours(path):
    "A model as ONNX that answers with the mean of each colour, and a card inside."
    pytest.importorskip('onnxruntime')
    helper, kinds = pytest.importorskip('onnx.helper'), pytest.importorskip('onnx').TensorProto
    sides = helper.make_tensor('sides', kinds.INT64, [2], [2, 3])
    nodes = [helper.make_node('Cast', ['images'], ['floats'], to=kinds.FLOAT),
             helper.make_node('ReduceMean', ['floats', 'sides'], ['probabilities'], keepdims=0)]
    takes = helper.make_tensor_value_info('images', kinds.UINT8, ['n', 3, 4, 4])
    gives = helper.make_tensor_value_info('probabilities', kinds.FLOAT, ['n', 3])
    graph = helper.make_graph(nodes, 'mean', [takes], [gives], [sides])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 18)], ir_version=9)
    card = model.metadata_props.add()
    card.key, card.value = 'card', json.dumps(dict(classes=['red', '=green', 'blue'], pixels=4))
    path.write_bytes(model.SerializeToString())

ASKS = """
import sys, time
import onnxruntime
begun = time.process_time()
import fedskew_nb
sys.argv = ['fedskew', 'predict', '{at}/m.onnx', '{at}/new', '--out', '{at}/p.csv']
heavy = {{'torch', 'torchvision', 'pandas', 'matplotlib', 'scipy'}}
print(fedskew_nb._main(), sorted(heavy & sys.modules.keys()))
ours = time.process_time()-begun
import torch
print(ours < (time.process_time()-begun-ours)/2)"""

def test_an_exported_model_is_asked_without_torch(tmp_path):
    "Nor half as long as torch takes; and the answers are those of a calculation by hand."
    mean_colours(tmp_path/'m.onnx')
    (tmp_path/'new').mkdir()
    colours = {'a.png': (200, 0, 50), '=b.png': (7, 9, 8)}
    for name, colour in colours.items(): Image.new('RGB', (9, 5), colour).save(tmp_path/'new'/name)
    assert fresh(ASKS.format(at=tmp_path)).splitlines()[-2:] == ['0 []', 'True']
    assert (tmp_path/'p.csv').read_text().splitlines() == [
        'file,class,red,=green,blue', "'=b.png,'=green,7.0,9.0,8.0", 'a.png,red,200.0,0.0,50.0']

def test_the_command_is_the_command_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['fedskew', 'lists'])
    assert fs._main() == 2 and 'did you mean list' in capsys.readouterr().err

def test_every_name_resolves():
    for n in fs.__all__: assert getattr(fs, n) is not None and n in dir(fs), n

def test_star():
    ns = {}
    exec('from fedskew_nb import *', ns)
    assert set(fs.__all__) <= ns.keys()

def test_unknown_name():
    with pytest.raises(AttributeError, match='FedSomething'): fs.FedSomething

def test_no_name_twice():
    "Two modules must not export the same name: the lazy package could only show one of them."
    home, listed = ROOT/'fedskew_nb', {}
    methods = 'methods/baselines/*.py', 'methods/*/method.py'
    for p in (p for pattern in ('*/*.py', 'data/suites/*.py', *methods) for p in home.glob(pattern)):
        for names in re.findall(r'^__all__ = (\[.*?\])', p.read_text(encoding='utf-8'), re.M | re.S):
            for n in ast.literal_eval(names): listed.setdefault(n, []).append(p.relative_to(home).as_posix())
    assert set(listed) == set(fs.__all__)
    assert {n: files for n, files in listed.items() if len(files) > 1} == {}

def is_method(o):
    return isinstance(o, Method) or isinstance(o, type) and issubclass(o, Mechanism)

def test_import_star_gives_what_pages_use():
    "Methods may grow in number, with their mechanisms; everything else must not."
    others = [n for n in fs.__all__ if not is_method(getattr(fs, n))]
    assert len(others) <= 350

# so far
UNASKED = {'gradcam_grid', 'load_comparison', 'of_methods', 'saliency_inside', 'sights',
           'site_scores'}

def test_a_picture_is_asked_for_by_another_page():
    "A public name of `analysis` is used outside of its own page, and not only in the list of all."
    homes, users = fs._names(), {}
    for page in set(notebooks())-{NBS/'1_begin/06_names.ipynb'}:
        for word in set(re.findall(r'\w+', ' '.join(map(source, read(page)['cells'])))):
            users.setdefault(word, []).append(page)
    ours = {n for n in fs.__all__ if homes[n].startswith('analysis.')}
    alone = {n for n in ours if len(users[n]) < 2}
    assert alone <= UNASKED, f'{alone-UNASKED}: show it in a report or on another page, or say exporti'

def test_no_name_is_a_rooms():
    "Importing a room puts it into the package under its name: no public name may be the same."
    rooms = {p.stem for p in (ROOT/'fedskew_nb').iterdir() if p.name[0] not in '_.'}
    there = 'core nets data downloads engine analysis methods run tools deploy'.split()
    assert set(there) <= rooms and not rooms & set(fs.__all__)

FIRST = [
    'import fedskew_nb.run.compare',
    'from fedskew_nb import *',
    'fs.compare; import fedskew_nb.run.compare']

WHOLE = dict(
    Method='core.method kept', History='engine.history table', Comparison='analysis.comparison overview',
    Suite='data.suite from_datasets', Federation='engine.federation fit')
ADAPTED = '''
from fedskew_nb.methods.{folder}.method import {name}
from fedskew_nb.nets.models import small_conv
print(type({name}.adapt(small_conv(3, size=32, width=8))).__name__)'''
OF_PAPERS = ['F2DC', 'FDSE', 'FedDDL', 'RFedDis', 'DFL']

@pytest.fixture(scope='module')
def said():
    "What a fresh Python answers to each question, by its name; torch is loaded once for all."
    codes = dict(light=without_drawings())     # before another of them loads any
    codes |= {first: f'import fedskew_nb as fs; {first}; print(type(fs.compare).__name__)' for first in FIRST}
    codes['torchvision'] = 'import sys; print("torchvision" in sys.modules)'
    for name, where in WHOLE.items():
        module, method = where.split()
        codes[name] = f'from fedskew_nb.{module} import {name}; print(hasattr({name}, {method!r}))'
    for name in OF_PAPERS: codes[name] = ADAPTED.format(folder=name.lower(), name=name)
    answers = anew(codes.values())
    assert len(answers) == len(codes)
    return dict(zip(codes, answers))

@pytest.mark.parametrize('first', FIRST)
def test_a_function_of_its_modules_name(first, said):
    "`fs.compare` is the function, whichever way the module came in."
    assert said[first] == 'function'

def test_every_name_without_torchvision(said):
    "It takes as long to load as torch."
    assert said['torchvision'] == 'False'

@pytest.mark.parametrize('name', WHOLE)
def test_a_class_is_whole_where_it_is_imported(name, said):
    "Its own module gives all of its methods, in a fresh Python."
    assert said[name] == 'True'

@pytest.mark.parametrize('name', OF_PAPERS)
def test_a_method_is_whole_where_it_is_imported(name, said): assert said[name] == 'Net'

# ---- lists on pages that are made from the code

def stored_tables(page):
    "Markdown that the cells of a notebook show, as it is stored."
    outputs = [o.get('data', {}) for c in read(NBS/page)['cells'] for o in c.get('outputs', [])]
    return [''.join(data['text/markdown']) for data in outputs if 'text/markdown' in data]

def test_the_list_of_all_names_is_of_today():
    ns, page = {}, '1_begin/06_names.ipynb'
    code = [source(c) for c in read(NBS/page)['cells'] if c['cell_type'] == 'code']
    *before, last = code
    for s in before: exec(s, ns)
    lines, _, shown = last.rpartition('\nMarkdown')
    exec(lines, ns)
    today = eval(f'Markdown{shown}', ns).data
    assert stored_tables(page) == [today], f'call make execute NB=nbs/{page}'

def test_the_table_of_methods_on_the_first_page_is_of_today():
    stored = '\n'.join(stored_tables('index.ipynb'))
    assert fs.methods_table() in stored, 'call make execute NB=nbs/index.ipynb'

# what pages print when they are run -> what prints it
PRINTED = {'7_app/03_cli.ipynb': lambda: print(cli.usage()), '5_data/24_prepare.ipynb': prepare_command,
           '7_app/02_reproduce.ipynb': reproduce_command}

@pytest.mark.parametrize('page', PRINTED)
def test_a_printed_list_is_of_today(page, capsys):
    "Commands, sets and tables of papers: a new one is in the list that its page stores."
    cli.register()
    PRINTED[page]()
    outputs = [c.get('outputs', []) for c in read(NBS/page)['cells']]
    stored = [''.join(''.join(o.get('text', '')) for o in of_cell).split() for of_cell in outputs]
    assert capsys.readouterr().out.split() in stored, f'call make execute NB=nbs/{page}'

def headings(page):
    "The words from AVG on of every stored line that begins with the columns of a table of scores."
    cells = [c for c in read(page)['cells'] if 'as_printed()' not in source(c)]      # a paper's columns
    outputs = [o for c in cells for o in c.get('outputs', [])]
    kinds = [d for o in outputs for d in (o, o.get('data', {}))]
    texts = [''.join(d.get(k, '')) for d in kinds for k in ('text', 'text/plain', 'text/markdown')]
    for line in '\n'.join(texts).splitlines():
        words = line.replace('|', ' ').split()
        own = words[:1] == ['on'] or words[-2:] == ['−', 'paper']   # a page's own table, a paper's
        if 'AVG STD' in ' '.join(words) and not own:
            yield words[words.index('AVG'):]

def test_the_columns_of_stored_tables_are_of_today():
    "A page that shows a table of scores shows the columns that tables have now."
    today = [*TABLED, 'n'], [*SCORES]
    def is_stale(page): return any(all(w[:len(t)] != t for t in today) for w in headings(page))
    stale = [p.relative_to(ROOT).as_posix() for p in sorted(NBS.rglob('*.ipynb')) if is_stale(p)]
    assert not stale, f'call make execute NB="{" ".join(stale)}"'

def without_drawings():
    "Imports the engine and each module that defines a method; says what else came with them."
    methods = list(fs.METHODS.values())
    rooms = [m for n, m in sys.modules.items() if n.startswith('fedskew_nb.methods.')]
    def defines(m): return any(getattr(m, n) in methods for n in getattr(m, '__all__', ()))
    homes = sorted(m.__name__ for m in rooms if defines(m))
    assert len(homes) > 9
    homes = ', '.join(['fedskew_nb.engine.federation', *homes])
    return f'import sys, {homes}; print({{"matplotlib", "pandas", "scipy"}} & sys.modules.keys())'

def test_a_method_is_imported_without_drawings_and_tables(said):
    "A process that trains needs neither; each takes most of a second."
    assert said['light'] == 'set()'

# ---- paths of 0.1

OLD = [(f'{room}.{old}', new) for room, modules in fs._MOVED.items() for old, new in modules.items()]

@pytest.mark.parametrize('old, new', OLD, ids=[old for old, _ in OLD])
def test_an_old_path_warns_and_leads_to_the_module(old, new):
    sys.modules.pop(f'fedskew_nb.{old}', None)
    with pytest.warns(FutureWarning, match=re.escape(f'fedskew_nb.{old} is fedskew_nb.{new} since 0.2')):
        module = importlib.import_module(f'fedskew_nb.{old}')
    assert module is sys.modules[f'fedskew_nb.{new}'] and module.__spec__.name == module.__name__
