"""What a reader looks up: a page for each room, made from the modules, for the site alone.

    python tests/tools/reference.py FOLDER    # writes FOLDER/reference/ROOM.ipynb

Every public name with its signature, its sentence, its arguments (folded) and a link to its source. A
notebook that is no page of the site is found here: links to it lead to its module's part, or to the name's.
"""

import ast, json, re, sys
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from pages import WIDTH
from project import NBS, ROOT, default_exp, is_listing, module_of, notebooks, read, settings, source
from stubs import PACKAGE, Stub, args_of, doc_of, is_data, modules, name_of

FOLDER = 'reference'
ROOMS = dict(  # each room in one sentence, in the order in which they import each other
    core='What a method is: a list of mechanisms, and one law for each thing that they may return.',
    nets='What is trained: models cut at four places, and weights from elsewhere.',
    data='Who has what: suites of images, dealt to clients.',
    downloads="How other people's data sets become folders.",
    engine='How a round runs, fast and to the last bit.',
    analysis='What came out: tables, intervals, claims and pictures.',
    methods='The papers and their baselines, a folder each.',
    run='Comparisons: which runs, where, and each of them once. Nothing prints here.',
    tools='What people type: the commands, and what they print.',
    deploy='The same method on machines that keep their images.',
)

@lru_cache(None)
def hooks():
    "What a mechanism may define; one without a sentence says no more than that it is there."
    mechanism = modules()[f'{PACKAGE}.core.mechanism'].defs['Mechanism']
    return {f.name for f in mechanism.body if isinstance(f, ast.FunctionDef)}

@dataclass
class Entry:
    "A public name, or a public method of a public class."

    name: str
    code: str  # its signature, or its value
    says: str
    source: str  # address of the line that defines it
    rows: list = field(default_factory=list)  # [(argument, what)]
    id: str = ''

def escaped(text):
    "Text of a docstring as Markdown that says just that; what stands in backticks stays."
    parts = re.split(r'(`[^`]*`)', ' '.join(text.split()))
    return ''.join(p if i % 2 else re.sub(r'([\\*_$<>\[\]@~^#|{}])', r'\\\1', p) for i, p in enumerate(parts))

def first(doc):
    "The first paragraph of a docstring."
    return doc.strip().partition('\n\n')[0]

def source_of(module, node):
    cfg = settings()
    path = module.path.relative_to(ROOT).as_posix()
    return f'{cfg["git_url"]}/blob/{cfg["branch"]}/{path}#L{node.lineno}'

# ---- signatures ----
def wrapped(head, args, tail):
    "A call in one line, or an argument a line."
    line = f'{head}({", ".join(args)}){tail}'
    if len(line) <= WIDTH:
        return line
    return '\n'.join([f'{head}(', *(f'    {a},' for a in args), f'){tail}'])

def spelled(f):
    "The arguments of a function as text, without the one that `@patch` or a class fills."
    a = f.args
    plain = [*a.posonlyargs, *a.args]
    values = [None] * (len(plain) - len(a.defaults)) + a.defaults
    out = [one(x, v) for x, v in zip(plain, values)]
    if a.vararg or a.kwonlyargs:
        out.append(f'*{one(a.vararg, None)}' if a.vararg else '*')
    out += [one(x, v) for x, v in zip(a.kwonlyargs, a.kw_defaults)]
    return out + ([f'**{one(a.kwarg, None)}'] if a.kwarg else [])

def one(a, value):
    "An argument with its type and its default."
    said = a.arg + (f': {ast.unparse(a.annotation)}' if a.annotation else '')
    return said if value is None else f'{said}{" = " if a.annotation else "="}{ast.unparse(value)}'

def is_bound(f):
    "Is its first argument given by Python?"
    return not any(name_of(d) == 'staticmethod' for d in f.decorator_list)

def is_property(f):
    kinds = {name_of(d) for d in f.decorator_list}
    given = {k.arg for d in f.decorator_list if isinstance(d, ast.Call) for k in d.keywords}
    return bool(kinds & {'property', 'cached_property'}) or 'as_prop' in given

def noted(module, f):
    "[(arguments, what stands beside them)] of a function."
    lines = {}
    for a in args_of(f):
        lines.setdefault(a.end_lineno, []).append(a.arg)
    last = f.body[0].lineno
    if f.returns is not None and f.returns.end_lineno not in lines:
        lines[f.returns.end_lineno] = ['returns']
    return [(names, module.comments[at]) for at, names in lines.items()
            if at in module.comments and f.lineno < at < last]

# ---- what there is ----
def function(module, f, name, bound=False):
    "The entry of a function, or of a method of a class."
    result = f' -> {ast.unparse(f.returns)}' if f.returns is not None else ''
    args = spelled(f)[bound:]
    code = f'{name}{result}' if is_property(f) else wrapped(name, args, result)
    says = first(doc_of(f)) or module.comments.get(f.lineno, '')  # in one line: what stands behind it
    return Entry(name, code, says, source_of(module, f), noted(module, f))

def klass(module, cls):
    "The entries of a class and of its public methods."
    members = Stub(module).members(cls)
    fields = [n for n in cls.body if isinstance(n, ast.AnnAssign) and not n.target.id.startswith('_')]
    made = next((f for _, f in members if f.name == '__init__'), None)
    if made:
        home = next(m for m, f in members if f is made)
        args, rows = spelled(made)[1:], noted(home, made)
    elif is_data(cls):
        args = [one(ast.arg(n.target.id, n.annotation), n.value) for n in fields]
        rows = [([n.target.id], module.comments[n.lineno]) for n in fields if n.lineno in module.comments]
    else:
        args, rows = [ast.unparse(b) for b in cls.bases], []
    head = cls.name if made or is_data(cls) else f'class {cls.name}'
    code = wrapped(head, args, '') if args or head == cls.name else head
    methods = [(f, function(m, f, f'{cls.name}.{f.name}', is_bound(f)))
               for m, f in members if not f.name.startswith('_')]
    filled = [f.name for f, e in methods if not e.says and f.name in hooks()]
    says = [first(doc_of(cls))] + [f'It fills {", ".join(f"`{n}`" for n in filled)}.'] * bool(filled)
    yield Entry(cls.name, code, ' '.join(says), source_of(module, cls), rows)
    yield from (e for f, e in methods if f.name not in filled)

def value(module, name):
    "The entry of a constant: the line that gives it, and what is said beside it."
    node = module.values[name]
    line = next(n for n in module.tree.body if isinstance(n, ast.Assign)
                and any(isinstance(t, ast.Name) and t.id == name for x in n.targets for t in ast.walk(x)))
    said = ast.unparse(node) if node is not None else ast.unparse(line.value)
    code = f'{name} = {said}'
    code = code if len(code) <= WIDTH else f'{code[:WIDTH - 2]} …'
    given = {k.arg: k.value for k in node.keywords} if isinstance(node, ast.Call) else {}
    says = given.get('says')
    says = says.value if isinstance(says, ast.Constant) else module.comments.get(line.lineno, '')
    return Entry(name, code, says, source_of(module, line))

def entries_of(module):
    "What a module gives out, in its own order."
    at = {name: n.lineno for name, n in module.defs.items()}
    for name in sorted(module.all, key=lambda n: at.get(n, 0)):
        what = module.defs.get(name)
        if isinstance(what, ast.ClassDef):
            yield from klass(module, what)
        elif what is not None:
            yield function(module, what, name)
        else:
            yield value(module, name)

def inside(module):
    "What a module does not give out, though its name says nothing of that."
    for name, what in module.defs.items():
        if name.startswith('_') or name in module.all:
            continue
        e = next(klass(module, what)) if isinstance(what, ast.ClassDef) else function(module, what, name)
        yield ' '.join(e.code.split()), e.says

@dataclass
class Part:
    "What a page says of one module."

    module: str  # without the package: `data.suites.draw`
    says: str
    notebooks: list  # in nbs/, in which its code stands; the first begins it
    entries: list
    inside: list  # [(signature, sentence)] of what may change at any time
    id: str

@lru_cache(None)
def rooms():
    "{room: its parts}; every id is there once on a page, and the first of two keeps its name."
    found = {room: [] for room in ROOMS}
    homes = {}
    for nb, name in ((read(p), p.relative_to(NBS).as_posix()) for p in notebooks()):
        homes.setdefault(module_of(nb), []).insert(0 if default_exp(nb) else len(notebooks()), name)
    for name, m in modules().items():
        short = name.removeprefix(f'{PACKAGE}.')
        if short not in homes:
            continue
        room, _, rest = short.partition('.')
        says = first(ast.get_docstring(m.tree) or '')
        found[room].append(Part(short, says, homes[short], [*entries_of(m)], [*inside(m)], f'module-{rest}'))
    for parts in found.values():
        parts.sort(key=lambda p: p.notebooks)
        number(parts)
    return found

def number(parts):
    "An id for each entry of a page."
    taken = {}
    for e in (e for p in parts for e in p.entries):
        wanted = e.name.lower()
        taken[wanted] = n = taken.get(wanted, 0) + 1
        e.id = wanted if n == 1 else f'{wanted}-{n}'

@lru_cache(None)
def ids():
    "{(module, anchor on the module's own page): id on its room's page}; the module itself has the anchor ''."
    out = {}
    for parts in rooms().values():
        for p in parts:
            out[p.module, ''] = p.id
            for e in p.entries:
                out.setdefault((p.module, e.name.lower()), e.id)
    return out

def place(module, anchor=''):
    "Where a module, or a name in it, stands in the reference: a notebook of the site and an anchor."
    return f'{FOLDER}/{module.partition(".")[0]}.ipynb#{ids().get((module, anchor), anchor)}'

# ---- a page ----
def table(rows):
    lines = [f'| {", ".join(f"`{n}`" for n in names)} | {escaped(what)} |' for names, what in rows]
    return '\n'.join(['| argument | what |', '|:--|:--|', *lines])

def shown(entry):
    "An entry as Markdown: a method stands one level below its class."
    level = '####' if '.' in entry.name else '###'
    text = [f'{level} `{entry.name}` {{#{entry.id}}}', f'```python\n{entry.code}\n```']
    text.append(f'{escaped(entry.says)} [source]({entry.source})'.strip())
    if entry.rows:
        text.append(f'<details><summary>Arguments</summary>\n\n{table(entry.rows)}\n\n</details>')
    return '\n\n'.join(text)

def in_repository(notebook):
    "The address of a notebook's source."
    cfg = settings()
    return f'{cfg["git_url"]}/blob/{cfg["branch"]}/{cfg["nbs_path"]}/{notebook}'

def told(part):
    "Where a module is explained: on its pages, and in its notebooks, each by its title."
    pages = [f'[{title(n)}](../{n})' for n in part.notebooks if not is_listing(n)]
    rest = [f'[{title(n)}]({in_repository(n)}) (notebook)' for n in part.notebooks if is_listing(n)]
    return '; '.join(pages + rest)

@lru_cache(None)
def title(notebook):
    "The first heading of a notebook in nbs/."
    texts = [source(c) for c in read(NBS / notebook)['cells'] if c['cell_type'] == 'markdown']
    return escaped(next(m[1] for m in (re.search(r'^# (.+)$', t, re.M) for t in texts) if m))

def hidden(rows):
    "What is inside a module, folded."
    lines = [f'- `{code}`{": " if says else ""}{escaped(says)}' for code, says in rows]
    head = '<details><summary>Inside it, and may change at any time</summary>'
    return ['\n\n'.join([head, '\n'.join(lines), '</details>'])] if rows else []

def section(part):
    head = f'## The module {part.module} {{#{part.id}}}\n\n{escaped(part.says)} More in {told(part)}.'
    return '\n\n'.join([head, *map(shown, part.entries), *hidden(part.inside)])

def page(room):
    "A room's page, as a processed notebook."
    parts = rooms()[room]
    front = f'---\ntitle: "Reference: {room}"\ndescription: "{ROOMS[room]}"\noutput-file: {room}.html\n---'
    rows = [f'| [{p.module}](#{p.id}) | {escaped(p.says)} | {told(p)} |' for p in parts]
    lists = '\n'.join(['| module | what it is about | explained in |', '|:--|:--|:--|', *rows])
    texts = [lists, *map(section, parts)]
    cells = [dict(cell_type='raw', metadata={}, source=front)]
    cells += [dict(cell_type='markdown', metadata={}, source=t) for t in texts]
    kernel = dict(kernelspec=dict(display_name='python3', language='python', name='python3'))
    return dict(cells=cells, metadata=kernel, nbformat=4, nbformat_minor=5)

def write(folder):
    "The pages of all rooms."
    into = Path(folder) / FOLDER
    into.mkdir(parents=True, exist_ok=True)
    for room in ROOMS:
        text = json.dumps(page(room), indent=1, ensure_ascii=False)
        (into / f'{room}.ipynb').write_text(text + '\n', encoding='utf-8')

if __name__ == '__main__':
    write(*sys.argv[1:])
