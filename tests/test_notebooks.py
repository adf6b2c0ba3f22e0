"The rhythm of our notebooks (CONTRIBUTING.md), as far as a machine can see it."
import ast, re
import pytest
from project import NBS, ROOT, default_exp, directives, notebooks, read, source

pages = pytest.mark.parametrize('path', notebooks(), ids=lambda p: p.relative_to(NBS).as_posix())

def cells(path, kind): return [source(c) for c in read(path)['cells'] if c['cell_type'] == kind]

@pages
def test_opening(path):
    "The module first, then a title and one sentence that says what the page is about."
    nb = read(path)
    if default_exp(nb): assert 'default_exp' in source(nb['cells'][0])
    first = next(s for s in cells(path, 'markdown'))
    assert re.match(r'# \S', first) and re.search(r'^> \S', first, re.M), 'the first Markdown cell holds "# Title" and "> one sentence"'

@pages
def test_plain_markdown(path):
    "What Jupyter, GitHub and the site all show."
    for s in cells(path, 'markdown'):
        text = re.sub(r'```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$', '', s, flags=re.S)
        assert not re.search(r'^:::', text, re.M) and not re.search(r'\{#[\w-]+\}', text), f'Quarto-only markup: {s[:80]!r}'

@pages
def test_imports_stand_alone(path):
    "Building the site runs the cells with imports: they hold nothing else."
    for s in cells(path, 'code'):
        try: body = ast.parse(re.sub(r'^\s*[%!].*$', '', s, flags=re.M)).body
        except SyntaxError: continue
        imports = [isinstance(n, (ast.Import, ast.ImportFrom)) for n in body]
        if any(imports) and not directives(s).get('eval', '') == 'false':
            assert all(imports), f'imports mixed with other code: {s[:80]!r}'

@pages
def test_one_module_is_one_subject(path):
    if mod := default_exp(read(path)):
        lines = (ROOT/f'fedskew_nb/{mod.replace(".", "/")}.py').read_text(encoding='utf-8').splitlines()
        n = sum(bool(l.strip()) and not l.startswith('#') for l in lines)
        assert n <= 250, f'a module of {n} lines: split the notebook'

@pages
def test_outputs_are_stored(path):
    "Neither Quarto nor GitHub runs a notebook: what is to be seen must be stored, and no error."
    code = [c for c in read(path)['cells'] if c['cell_type'] == 'code']
    assert not any(o['output_type'] == 'error' for c in code for o in c['outputs'])
    assert all(c.get('execution_count') is None for c in code), 'run `make export`: it drops the execution counts'
    if any(re.search(r'\b(show|imshow|plot|display|print)\b', source(c)) for c in code): assert any(c['outputs'] for c in code), 'run `make execute`'
