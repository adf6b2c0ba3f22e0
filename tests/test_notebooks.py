"The rhythm of our notebooks (CONTRIBUTING.md), as far as a machine can see it: one walk that lists faults."
import ast, re
import pytest
from project import NBS, default_exp, directives, notebooks, read, source

def cells(nb, kind): return [source(c) for c in nb['cells'] if c['cell_type'] == kind]

def opening(nb):
    "The module first, then a title and one sentence that says what the page is about."
    after_header = next(c for c in nb['cells'] if c['cell_type'] != 'raw')
    if default_exp(nb) and 'default_exp' not in source(after_header): yield 'the first cell names no module'
    first = next(iter(cells(nb, 'markdown')))
    if re.match(r'# \S', first) and re.search(r'^> \S', first, re.M): return
    yield 'the first Markdown cell holds no "# Title" and "> one sentence"'

def plain_markdown(nb):
    "What Jupyter, GitHub and the site all show."
    for s in cells(nb, 'markdown'):
        text = re.sub(r'```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$]*\$', '', s, flags=re.S)
        if re.search(r'^:::|\{#[\w-]+\}', text, re.M): yield f'Quarto-only markup: {s[:80]!r}'

def imports_stand_alone(nb):
    "Building the site runs the cells with imports: they hold nothing else."
    for s in cells(nb, 'code'):
        try: body = ast.parse(re.sub(r'^\s*[%!].*$', '', s, flags=re.M)).body
        except SyntaxError: continue
        imports = [isinstance(n, (ast.Import, ast.ImportFrom)) for n in body]
        if any(imports) and not all(imports) and directives(s).get('eval', '') != 'false':
            yield f'imports mixed with other code: {s[:80]!r}'

def outputs_are_stored(nb):
    "Neither Quarto nor GitHub runs a notebook: what is to be seen must be stored, and no error."
    code = [c for c in nb['cells'] if c['cell_type'] == 'code']
    if any(o['output_type'] == 'error' for c in code for o in c['outputs']): yield 'a stored error'
    if any(c.get('execution_count') for c in code): yield 'run `make export`: it drops the execution counts'
    shows = any(re.search(r'\b(show|imshow|plot|display|print)\b', source(c)) for c in code)
    if shows and not any(c['outputs'] for c in code): yield 'run `make execute`'

def says_its_end(nb):
    "'Where next' is the last thing that a page says."
    if any('**Where next' in source(c) for c in nb['cells'][:-1]): yield '"Where next" stands in the middle'

def answers_are_folded(nb):
    "Nobody reads an answer unasked, and all pages do it in one way."
    for s in cells(nb, 'markdown'):
        text = re.sub(r'<details>.*?</details>|```.*?```', '', s, flags=re.S)
        found = re.search(r'^(\*\*Answers?\b|Answers?:|To \d: ).*', text, re.M)
        if found: yield f'an answer is not folded: {found[0][:80]!r}'
    for s in cells(nb, 'code'):
        summary = directives(s).get('code-summary', '').strip('"')
        if summary and not re.match(r'Answers?\b', summary): yield f'a folded cell is no answer: {summary}'

RULES = [opening, plain_markdown, imports_stand_alone, outputs_are_stored, says_its_end, answers_are_folded]

@pytest.fixture(scope='module')
def pages(): return {p.relative_to(NBS).as_posix(): read(p) for p in notebooks()}

@pytest.mark.parametrize('rule', RULES, ids=lambda f: f.__name__)
def test_pages(rule, pages):
    assert [f'{name}: {fault}' for name, nb in pages.items() for fault in rule(nb)] == []
