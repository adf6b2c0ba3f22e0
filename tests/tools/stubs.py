"""What an editor cannot see in the modules, as `.pyi` beside them: classes with all that `@patch` gave them.

    python tests/tools/stubs.py    # write all, as an installation does; git does not keep them
"""

import ast, builtins, io, sys, tokenize
from functools import cached_property, lru_cache
from project import ROOT

PACKAGE = 'fedskew_nb'
KEPT = {'property', 'cached_property', 'staticmethod', 'classmethod', 'contextmanager', 'dataclass'}
ANY = '_Any'
HEAD = '# Made from {} by tests/tools/stubs.py when the package is installed or exported.\n'
CONTAINERS = {
    ast.List: 'list', ast.ListComp: 'list', ast.Dict: 'dict', ast.DictComp: 'dict', ast.Tuple: 'tuple',
    ast.Set: 'set', ast.SetComp: 'set', ast.JoinedStr: 'str', ast.Lambda: ANY,
}  # fmt: skip

def name_of(node):
    "The last name of a decorator or of what is called: `dataclass` of `@dataclasses.dataclass(frozen=True)`."
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, 'id', '')

def names_in(*nodes):
    "The names that expressions read."
    return {n.id for node in nodes if node is not None for n in ast.walk(node) if isinstance(n, ast.Name)}

def args_of(f):
    "Every argument of a function, in order."
    a = f.args
    return [*a.posonlyargs, *a.args, *filter(None, [a.vararg]), *a.kwonlyargs, *filter(None, [a.kwarg])]

def pairs(assign):
    "(target, value) of an assignment, taken apart where both sides are tuples."
    for target in assign.targets:
        if not isinstance(target, ast.Tuple):
            yield target, assign.value
        elif isinstance(assign.value, ast.Tuple) and len(assign.value.elts) == len(target.elts):
            yield from zip(target.elts, assign.value.elts)
        else:
            yield from ((t, None) for t in target.elts)

def own_nodes(f):
    "The nodes of a function, without those of the functions in it."
    todo = list(f.body)
    while todo:
        yield (n := todo.pop())
        if not isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
            todo += ast.iter_child_nodes(n)

def doc_of(node):
    return ast.get_docstring(node, clean=False) or ''

def is_patch(f):
    return any(name_of(d) == 'patch' for d in f.decorator_list)

class Module:
    "A module as its text says it: imports, definitions, comments."

    def __init__(self, path):
        self.path, self.text = path, path.read_text(encoding='utf-8')
        parts = path.relative_to(ROOT).with_suffix('').parts
        self.name = '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)
        self.tree = ast.parse(self.text)
        self.imports, self.defs, self.values, self.patches = {}, {}, {}, []
        for n in self.tree.body:
            self._read(n)

    def _read(self, n):
        if isinstance(n, ast.Import):
            for a in n.names:
                self.imports[a.asname or a.name.partition('.')[0]] = (None, a.name, a.asname)
        elif isinstance(n, ast.ImportFrom):
            up = self.name.split('.')[: -n.level] if n.level else []
            home = '.'.join([*up, *filter(None, [n.module])])
            self.imports |= {a.asname or a.name: (home, a.name, a.asname) for a in n.names}
        elif isinstance(n, ast.FunctionDef) and is_patch(n):
            self.patches.append(n)
        elif isinstance(n, (ast.FunctionDef, ast.ClassDef)):
            self.defs.setdefault(n.name, n)
        elif isinstance(n, ast.Assign):
            self.values |= {t.id: v for t, v in pairs(n) if isinstance(t, ast.Name)}
        if isinstance(n, ast.Assign) and name_of(n.value) == 'lazy':  # pd = lazy('pandas')
            self.imports[n.targets[0].id] = (None, n.value.args[0].value, n.targets[0].id)
            del self.values[n.targets[0].id]

    @cached_property
    def comments(self):
        "{line: comment}: what nbdev calls docments."
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return {t.start[0]: t.string.lstrip('# ') for t in tokens if t.type == tokenize.COMMENT}

    @cached_property
    def all(self):
        "The public names."
        found = self.values.get('__all__')
        return ast.literal_eval(found) if found else []

@lru_cache(None)
def modules():
    "{name: module} of the package."
    paths = (p for p in (ROOT / PACKAGE).rglob('*.py') if p.name != '_modidx.py')
    return {m.name: m for m in map(Module, sorted(paths))}

def found(module, name):
    "(module, name) of where a name of a module was defined, as far as it lies in the package."
    if name not in module.imports:
        return module, name
    home, original, _ = module.imports[name]
    return found(modules()[home], original) if home in modules() else (None, original)

@lru_cache(None)
def grown():
    "{(module, class): [(module, function), …]}: what `@patch` adds, wherever it stands."
    out = {}
    for m in modules().values():
        for f in m.patches:
            home, cls = found(m, name_of(f.args.args[0].annotation))
            out.setdefault((home.name, cls), []).append((m, f))
    return out

# ---- the type of an expression, where it is plain ----
def defined(module, name):
    "What a name of a module is, with its module: a class, a function, or None."
    home, original = found(module, name)
    return home, home and home.defs.get(original), original

def called(module, call, seen):
    "(module, type) of what a call gives."
    if not isinstance(call.func, ast.Name):
        return None
    name = call.func.id
    home, what, original = defined(module, name)
    if isinstance(what, ast.ClassDef):
        return module, call.func
    if isinstance(what, ast.FunctionDef):
        return (home, what.returns) if what.returns else None
    if home and original in home.values and original not in seen:  # F2DC(sigma=.3): an object is called
        kind = typed(home, home.values[original], seen | {original})
        return made_by(kind, '__call__')
    if name in ('dict', 'list', 'tuple', 'set', 'str', 'int', 'float', 'sorted', 'frozenset'):
        return module, ast.Name('list' if name == 'sorted' else name)

def made_by(kind, method):
    "(module, type) of what a method of a class gives."
    if not kind or not isinstance(kind[1], ast.Name):
        return None
    home, cls, original = defined(kind[0], kind[1].id)
    for m, f in grown().get((home.name, original), []) if home else []:
        if f.name == method and f.returns:
            return m, f.returns

def typed(module, value, seen=frozenset()):
    "(module, type) of a value, or None."
    if isinstance(value, ast.Constant):
        return value.value is not None and (module, ast.Name(type(value.value).__name__)) or None
    if type(value) in CONTAINERS:
        return module, ast.Name(CONTAINERS[type(value)])
    if isinstance(value, ast.Compare) or isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
        return module, ast.Name('bool')
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return made_by(typed(module, value.left, seen), '__add__')
    if isinstance(value, ast.Call):
        return called(module, value, seen)
    if isinstance(value, ast.Name) and value.id in module.values and value.id not in seen:
        return typed(module, module.values[value.id], seen | {value.id})

# ---- a stub ----
class Spelled(ast.NodeTransformer):
    "Annotations as a stub can hold them: text is read, a name that the class hides is spelt another way."

    def __init__(self, hidden):
        self.hidden, self.aliased = hidden, set()

    def visit_Constant(self, n):
        return self.visit(ast.parse(n.value, mode='eval').body) if isinstance(n.value, str) else n

    def visit_Subscript(self, n):
        return n if name_of(n.value) == 'Literal' else self.generic_visit(n)  # its texts are values

    def visit_Name(self, n):
        if n.id not in self.hidden:
            return n
        self.aliased.add(n.id)
        return ast.Name(f'_{n.id}')

class Stub:
    "The text of one module's stub, and the imports that it needs."

    def __init__(self, module):
        self.module, self.imports, self.body, self.aliases = module, {}, [], set()

    def need(self, home, name):
        "Import a name that stands in `home` and is used here."
        if hasattr(builtins, name) or name == ANY:
            return
        where = home.imports.get(name) or ((home.name, name, None) if home is not self.module else None)
        if where and where[0] == self.module.name and not where[2]:
            where = None  # defined in this very module
        taken = self.imports.setdefault(name, where)
        own = name in self.module.defs or name in self.module.values
        if taken != where or where and own:
            raise SystemExit(f'{self.module.name}: two things are called {name}: rename one')

    def type(self, home, node, hidden=()):
        "An annotation as text."
        if node is None:
            return ANY
        spelled = Spelled(hidden)
        node = spelled.visit(ast.parse(ast.unparse(node), mode='eval').body)
        for name in names_in(node):
            self.need(home, name.removeprefix('_') if name.removeprefix('_') in spelled.aliased else name)
        self.aliases |= spelled.aliased
        return ast.unparse(node)

    def default(self, node):
        "A default that a reader learns from, else dots."
        number = isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)
        return ast.unparse(node) if number or isinstance(node, ast.Constant) else '...'

    # ---- functions ----
    def argument(self, home, a, default, hidden):
        said = f': {self.type(home, a.annotation, hidden)}' if a.annotation else ''
        value = '' if default is None else self.default(default)
        if said and value == 'None' and 'None' not in said:
            said += ' | None'
        return a.arg + said + (value and f'={value}')

    def arguments(self, home, f, hidden):
        "[(argument, its text)], and what `@delegates` adds."
        a = f.args
        plain = [*a.posonlyargs, *a.args]
        defaults = [None] * (len(plain) - len(a.defaults)) + a.defaults
        out = [(x, self.argument(home, x, d, hidden)) for x, d in zip(plain, defaults)]
        if a.posonlyargs:
            out.insert(len(a.posonlyargs), (None, '/'))
        more = [(x, self.argument(home, x, d, hidden)) for x, d in zip(a.kwonlyargs, a.kw_defaults)]
        had = {x.arg for x in args_of(f)}
        given, keep = self.delegated(home, f, had, hidden)
        if a.vararg:
            out.append((a.vararg, f'*{self.argument(home, a.vararg, None, hidden)}'))
        elif more or given:
            out.append((None, '*'))
        out += more + given
        if a.kwarg and keep:
            out.append((a.kwarg, f'**{self.argument(home, a.kwarg, None, hidden)}'))
        return out

    def delegated(self, home, f, had, hidden):
        "The arguments that `@delegates(other)` takes over, and whether further ones may be given."
        d = next((d for d in f.decorator_list if name_of(d) == 'delegates'), None)
        if d is None:
            return [], True
        there, other, _ = defined(home, d.args[0].id)
        said = {k.arg: ast.literal_eval(k.value) for k in d.keywords}
        left = had | set(said.get('but', ()))
        a = other.args
        plain = [*a.posonlyargs, *a.args]
        having = list(zip(plain[len(plain) - len(a.defaults) :], a.defaults))
        having += [(x, v) for x, v in zip(a.kwonlyargs, a.kw_defaults) if v is not None]
        out = [(x, self.argument(there, x, v, hidden)) for x, v in having if x.arg not in left]
        inner, more = self.delegated(there, other, had | {x.arg for x, _ in having}, hidden)
        out += [(x, t) for x, t in inner if x.arg not in left]
        return out, said.get('keep', False)

    def returns(self, home, f, hidden):
        if f.returns:
            return f' -> {self.type(home, f.returns, hidden)}'
        body = f.body[1:] if doc_of(f) else f.body
        nodes = list(own_nodes(f))
        says = any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in nodes)
        says = says or any(n.value for n in nodes if isinstance(n, ast.Return))
        empty = all(isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant) for n in body)
        return '' if says or empty and f.name != '__init__' else ' -> None'

    def said(self, home, f):
        "The docstring, with what stands beside the arguments."
        lines = {}
        for a in args_of(f):
            lines.setdefault(a.end_lineno, []).append(a.arg)
        rows = [
            f'{", ".join(n)}: {home.comments[at]}'
            for at, n in lines.items()
            if at in home.comments and f.lineno < at < f.body[0].lineno
        ]
        doc = doc_of(f)
        return '\n\n'.join(filter(None, [doc, '\n'.join(rows)]))

    def function(self, home, f, docs, hidden=(), indent=''):
        "A function as lines: decorators that matter, signature, docstring."
        marks = [d for d in f.decorator_list if name_of(d) in KEPT]
        for d in f.decorator_list:
            if name_of(d) == 'patch' and isinstance(d, ast.Call):
                kind = d.keywords[0].arg
                marks.append(ast.Name({'as_prop': 'property', 'cls_method': 'classmethod'}[kind]))
        for d in marks:
            for n in names_in(d):
                self.need(home, n)
        args = self.arguments(home, f, hidden)
        texts = [t.partition(':')[0] if i == 0 and is_patch(f) else t for i, (_, t) in enumerate(args)]
        head = f'def {f.name}({", ".join(texts)}){self.returns(home, f, hidden)}:'
        above = [indent + f'@{ast.unparse(d)}' for d in marks]
        return above + with_doc(head, self.said(home, f) if docs else '', indent)

    # ---- classes ----
    def attributes(self, functions):
        "{name: type} of what methods set on `self`."
        out = {}
        for home, f in functions:
            if not f.args.args:
                continue
            me, hints = f.args.args[0].arg, {a.arg: a.annotation for a in args_of(f)}
            for n in own_nodes(f):
                for t, v in pairs(n) if isinstance(n, ast.Assign) else ():
                    if not isinstance(t, ast.Attribute) or name_of(t.value) != me or t.attr.startswith('_'):
                        continue
                    known = isinstance(v, ast.Name) and hints.get(v.id)
                    kind = (home, known) if known else typed(home, v)
                    if not out.get(t.attr):
                        out[t.attr] = kind
        return out

    def state_fields(self, cls, known):
        "{name: type} of `a, b = map(state_field, …)` in a class: fields of what is `self.state`."
        for n in cls.body:
            if isinstance(n, ast.Assign) and 'state_field' in names_in(n.value):
                home, state, _ = defined(*known['state'][:1], known['state'][1].id)
                fields = {f.target.id: f.annotation for f in state.body if isinstance(f, ast.AnnAssign)}
                targets = n.targets[0].elts if isinstance(n.targets[0], ast.Tuple) else n.targets
                names = [c.value for c in ast.walk(n.value) if isinstance(c, ast.Constant)]
                known |= {t.id: (home, fields[f]) for t, f in zip(targets, names)}

    def field(self, n, hidden):
        "An annotated name of a class: a field."
        value = f' = {self.default(n.value)}' if n.value is not None else ''
        if isinstance(n.value, ast.Call) and name_of(n.value) == 'field':
            said = {k.arg: ast.unparse(k.value) for k in n.value.keywords}
            value = ' = ...' if said.keys() & {'default', 'default_factory'} else ''
            if kept := [f'{k}={said[k]}' for k in ('init', 'kw_only') if k in said]:
                self.need(self.module, 'field')
                value = f' = field({", ".join(kept + ["default=..."] * bool(value))})'
        note = self.module.comments.get(n.lineno)
        kind = self.type(self.module, n.annotation, hidden)
        value = ' = ...' if value == ' = None' and 'None' not in kind else value
        return f'{n.target.id}: {kind}{value}' + (f'  # {note}' if note else '')

    def members(self, cls):
        "[(module, function)]: the methods of a class, its own and those of `@patch`."
        own = [(self.module, n) for n in cls.body if isinstance(n, ast.FunctionDef)]
        more = grown().get((self.module.name, cls.name), [])
        names = {f.name for _, f in more}
        return [(m, f) for m, f in own if f.name not in names] + more

    def klass(self, cls):
        "A class as lines."
        functions = self.members(cls)
        shown = [(m, f) for m, f in functions if not f.name.startswith('_') or f.name.startswith('__')]
        hidden = {f.name for _, f in functions}
        for name in names_in(*cls.bases, *cls.decorator_list):
            self.need(self.module, name)
        fields = [n for n in cls.body if isinstance(n, ast.AnnAssign)]
        above = {t for base in bases_of(self.module, cls) for t in base}
        wider = '  # type: ignore[assignment]'  # a record may allow more than the one that it begins with
        body = [f'    {self.field(n, hidden)}{wider if n.target.id in above else ""}' for n in fields]
        had = {n.target.id for n in fields} | hidden | above
        plain = [p for n in cls.body if isinstance(n, ast.Assign) for p in pairs(n) if p[1] is not None]
        taken = {f'{ast.unparse(b)}.{t.id}': t.id for b in cls.bases for t, _ in plain}
        written = {ast.unparse(e) for _, v in plain for e in ast.walk(v)}
        had |= {t for base, t in taken.items() if base in written}  # a base says it
        for t, v in plain:
            if t.id.startswith('_') or t.id in had:
                continue
            kind = typed(self.module, v)
            said = self.type(*kind, hidden) if kind else ANY
            body.append(f'    {t.id}: ' + (f'_ClassVar[{said}]' if is_data(cls) else said))
            had.add(t.id)
        kept = self.attributes(functions)
        self.state_fields(cls, kept)
        kept = {n: self.type(*kind, hidden) if kind else ANY for n, kind in kept.items()}
        body += [f'    {n}: {kind}' for n, kind in sorted(kept.items()) if n not in had and not is_data(cls)]
        for m, f in shown:
            body += self.function(m, f, cls.name in self.module.all, hidden, '    ')
        # `frozen=` of a record is not said: each heir of it would have to say it again
        kept = [k for k in cls.keywords if k.arg != 'frozen']
        bases = ', '.join(map(ast.unparse, [*cls.bases, *kept]))
        head = f'class {cls.name}{f"({bases})" if bases else ""}:'
        return [f'@{ast.unparse(d)}' for d in cls.decorator_list] + with_doc(head, doc_of(cls), '', body)

    # ---- what a user types ----
    def keywords(self, name, record):
        "`TypedDict(name, {… for f in fields(Record)})` as a class: an editor knows each setting."
        self.need(self.module, 'TypedDict')
        rows = fields_of(self.module, record)
        body = [f'    {n.target.id}: {self.type(home, n.annotation)}' for home, n in rows]
        return ['', f'class {name}(TypedDict, total=False):', *body, '']

    def method(self, name, call):
        "A method of the package, which a call changes: its hyper-parameters by name."
        parts = [c for c in call.args if isinstance(c, ast.Call) and isinstance(c.func, ast.Name)]
        rows = [(part.func.id, home, n) for part in parts for home, n in fields_of(self.module, part.func.id)]
        names = [n.target.id for _, _, n in rows]
        out = {}
        for part, home, n in rows:
            own = n.target.id
            said = f': {self.type(home, n.annotation)} = ...'
            out |= {f'{part}__{own}': said} | ({own: said} if names.count(own) == 1 else {})
        args = ', '.join(f'{n}{t}' for n, t in sorted(out.items(), key=lambda i: '__' in i[0]))
        head = f'preset: str | None = None{", *, " if args else ""}{args}'
        self.need(self.module, 'Method')
        kind = f'_{name}'
        body = f'    def __call__(self, {head}) -> Method: ...  # type: ignore[override]'
        return ['', f'class {kind}(Method):', body, '', f'{name}: {kind}']

    # ---- the whole ----
    def alias(self, name):
        if hasattr(builtins, name):
            return f'from builtins import {name} as _{name}'
        return f'_{name} = {name}'

    def text(self):
        for name, n in self.module.defs.items():
            if isinstance(n, ast.ClassDef):
                self.body += ['', *self.klass(n), '']
            elif not name.startswith('_'):
                self.body += self.function(self.module, n, name in self.module.all)
        for name, v in self.module.values.items():
            if name.startswith('_') or isinstance(v, ast.Name) and v.id in self.module.defs:
                continue
            if isinstance(v, ast.Call) and name_of(v) == 'TypedDict':
                self.body += self.keywords(name, v.args[1].generators[0].iter.args[0].id)
            elif isinstance(v, ast.Call) and defined(self.module, name_of(v))[2] == 'Method':
                self.body += self.method(name, v)
            else:
                kind = typed(self.module, v)
                self.body.append(f'{name}: {self.type(*kind) if kind else ANY}')
        lines = set(map(imported, self.imports.items())) - {''}
        lines = sorted(lines, key=lambda t: (t.startswith('from'), t))
        body = '\n'.join(self.body)
        extra = [f'from typing import {n} as _{n}' for n in ('Any', 'ClassVar') if f'_{n}' in body]
        lines += extra + [self.alias(n) for n in sorted(self.aliases)]
        if self.module.all:
            lines.append(f'__all__ = {self.module.all}')
        return HEAD.format(self.module.path.name) + '\n'.join([*lines, '', body]).rstrip() + '\n'

def fields_of(module, name):
    "[(module, node)]: the fields of a dataclass and its bases, as far as they lie in the package."
    home, cls, _ = defined(module, name)
    if not isinstance(cls, ast.ClassDef):
        return []
    rows = {}
    for b in cls.bases:
        if isinstance(b, ast.Name):
            rows |= {n.target.id: (h, n) for h, n in fields_of(home, b.id)}
    own = [n for n in cls.body if isinstance(n, ast.AnnAssign) and name_of(n.annotation) != 'ClassVar']
    return [*(rows | {n.target.id: (home, n) for n in own}).values()]

def is_data(cls):
    return any(name_of(d) == 'dataclass' for d in cls.decorator_list)

def bases_of(module, cls):
    "What the bases of a class, as far as they lie in the package, say about attributes: sets of names."
    for b in cls.bases:
        home, base, _ = defined(module, b.id) if isinstance(b, ast.Name) else (None, None, None)
        if isinstance(base, ast.ClassDef):
            plain = [t.id for n in base.body if isinstance(n, ast.Assign) for t, _ in pairs(n)]
            yield {*plain, *(n.target.id for n in base.body if isinstance(n, ast.AnnAssign))}
            yield from bases_of(home, base)

def imported(entry):
    "An import as a line."
    name, where = entry
    if where is None:
        return ''
    home, original, alias = where
    said = f'{original} as {alias}' if alias else original
    return f'from {home} import {said}' if home else f'import {said}'

def with_doc(head, doc, indent, body=()):
    "A definition with its docstring."
    if not doc and not body:
        return [f'{indent}{head} ...']
    inner = indent + '    '
    text = doc.replace('\\', '\\\\').replace('"""', "'''").replace('\n', '\n' + inner)
    edge = ' ' if text.endswith('"') else ''
    return [indent + head, *([f'{inner}"""{text}{edge}"""'] if doc else []), *body]

def room():
    "The stub of the package itself: every public name, from where it lives."
    sys.path.insert(0, str(ROOT))
    import fedskew_nb

    names = getattr(fedskew_nb, '_names', dict)()
    lines = [f'from .{m} import {n} as {n}' for n, m in sorted(names.items())]
    return HEAD.format('the __all__ of the modules') + '\n'.join([*lines, '', '__version__: str']) + '\n'

@lru_cache(None)
def stubs():
    "{path: text} of every stub."
    found = [m for m in modules().values() if m.path.name != '__init__.py']
    out = {m.path.with_suffix('.pyi'): Stub(m).text() for m in found}
    return out | {ROOT / PACKAGE / '__init__.pyi': room()}

def write(into):
    "All stubs, below a folder that holds the package."
    made = {into / p.relative_to(ROOT): text for p, text in stubs().items()}
    for p in {*(into / PACKAGE).rglob('*.pyi')} - made.keys():
        p.unlink()
    for p, text in made.items():
        p.write_text(text, encoding='utf-8')

if __name__ == '__main__':
    write(ROOT)
