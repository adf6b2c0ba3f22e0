"""Links, folds and the module of a page, as the site has them; a processor of nbdev (see settings.ini).

nbdev turns each `Net` in prose into a link to the site's address, of whatever page exports that name. Here
such a link becomes one to the notebook file, which Quarto follows in any copy of the site. It stays only
where the page's own code means that very thing: where it imports it or exports it. A notebook that is no
page (nbs/sidebar.yml says which are) is found in its room's reference, so links to it lead there.
Under the title of a page stands which page of which chapter it is, and what to import of it. Imports are
folded. A cell folded with a summary is an answer, and its class says so: styles.css hides what it
prints, too, until it is opened. A page shows the code that it exports, where nbdev would leave a signature
or nothing below the text that speaks of it; what is long is folded under its name. Where the source of a
thing is open, its signature and its sentence are not shown once more above it. The words that others say
for what a page is about, as the glossary has them, end it as a section that only a search reads. An id in a
table (`F2DC-01`) does not break, and a norm has no spaces around its bars.
"""
import ast, os, posixpath, re
from functools import cache
from pathlib import Path
from execnb.nbio import mk_cell
from nbdev.doclinks import _nbpath2html
from nbdev.process import Processor
from nbdev.processors import FilterDefaults
import reference, search
from project import EXPORTED, NBS, ROOT, directives, is_folded, is_listing, module_of, notebooks, only_imports
from project import read, sidebar, site, source

PAGE = re.compile(re.escape(site()) + r'/([\w./-]+\.html)')
NAMED = re.compile(r'\[`([^`\n]+)`\]\(([^)\s]+)\)')      # [`Net`](where)

@cache
def our_pages():
    "{address of a page on the site: its notebook}; listed once, since `relative` is called for every cell."
    return {_nbpath2html(n).as_posix(): n for n in (p.relative_to(NBS) for p in notebooks())}

def relative(text, page):
    "`text` of a page (its path in nbs/), with each link to one of our pages as a link to its notebook."
    files = our_pages()
    def link(m):
        return os.path.relpath(files[m[1]], Path(page).parent).replace(os.sep, '/') if m[1] in files else m[0]
    return PAGE.sub(link, text)

TO_NOTEBOOK = re.compile(r'(\]\(|\bhref=")([^)\s"#:]+\.ipynb)#?([^)\s"]*)')
ON_SITE = True           # a README lies beside the notebooks, and leads to them

@cache
def headings(name):
    "The anchors that the headings of a notebook have."
    prose = '\n'.join(source(c) for c in read(NBS/name)['cells'] if c['cell_type'] == 'markdown')
    lines = re.findall(r'^#+ (.+)$', re.sub(r'```.*?```', '', prose, flags=re.S), re.M)
    found = (re.sub(r'[^\w.-]', '', line.strip().lower().replace(' ', '-')) for line in lines)
    return {anchor.lstrip('0123456789.-') for anchor in found}

@cache
def told_in(name):
    "The page that tells what a listing holds, where the listing says `*Told in:* [page](where)`."
    prose = '\n'.join(source(c) for c in read(NBS/name)['cells'] if c['cell_type'] == 'markdown')
    said = re.search(r'\*Told in:\* \[[^]]+\]\(([^)]+)\)', prose)
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), said[1])) if said else None

@cache
def listing_at(name, anchor):
    "Where the site has a listing: the page that tells it, its place in the reference, or in the repository."
    if not anchor and (page := told_in(name)): return page
    module = module_of(read(NBS/name))
    known = (module, anchor) in reference.ids()
    if not known and anchor in headings(name): return reference.in_repository(name)
    return reference.place(module, anchor)

@cache
def classes(name):
    "What the classes are called that stand on a page, as anchors."
    cells = (tree.body for tree, exported in code_of(read(NBS/name)) if exported)
    return {n.name.lower() for body in cells for n in body if isinstance(n, ast.ClassDef)}

def to_reference(text, page):
    "`text` of a page, with each link to a listing as one to where the site has it; a method is in its class."
    here = posixpath.dirname(page)
    def link(m):
        name = posixpath.normpath(posixpath.join(here, m[2]))
        owner, dot, _ = m[3].partition('.')
        if not is_listing(name): return f'{m[1]}{m[2]}#{owner}' if dot and owner in classes(name) else m[0]
        at = listing_at(name, m[3])
        if at.partition('#')[0] == page: at = reference.in_repository(name)     # from the page that tells it
        return m[1]+(at if '://' in at else posixpath.relpath(at, here or '.'))
    return TO_NOTEBOOK.sub(link, text) if ON_SITE else text

# ---- what a page's code means by a name
def code_of(nb):
    "(its tree, is it exported) of every code cell of a notebook."
    for c in nb['cells']:
        if c['cell_type'] != 'code': continue
        exported = bool(EXPORTED & directives(source(c)).keys())
        code = re.sub(r'^(\s*)[%!].*$', r'\1pass', source(c), flags=re.M)
        try: yield ast.parse(code), exported
        except SyntaxError: pass

def given(tree):
    "Names that the statements of a cell define."
    for n in tree.body:
        if isinstance(n, (ast.FunctionDef, ast.ClassDef)): yield n.name
        elif isinstance(n, ast.Assign):
            yield from (t.id for target in n.targets for t in ast.walk(target) if isinstance(t, ast.Name))

@cache
def package_names():
    "{public name: its module} of the package."
    import fedskew_nb
    return {n: f'fedskew_nb.{module}' for n, module in fedskew_nb._names().items()}

def imported(tree):
    "(name, module) of what a cell imports of the package."
    public = package_names()
    for n in ast.walk(tree):
        if isinstance(n, ast.ImportFrom) and (n.module or '').startswith('fedskew_nb'):
            names = [a.asname or a.name for a in n.names]
            if names == ['*']: yield from public.items()
            elif n.module == 'fedskew_nb': yield from ((name, public.get(name, '')) for name in names)
            else: yield from ((name, n.module) for name in names)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == 'fs':
            yield n.attr, public.get(n.attr, '')

def meant(nb):
    "{name: module}: what the code of a notebook means by a name of the package."
    cells, mine = list(code_of(nb)), f'fedskew_nb.{module_of(nb)}'
    found = {name: module for tree, _ in cells for name, module in imported(tree)}
    for tree, exported in cells:
        for name in given(tree):
            if exported: found[name] = mine
            else: found.pop(name, None)                  # the page's own, which hides the package's
    return found

@cache
def modules():
    "{address of a thing on the site: its module}."
    from fedskew_nb._modidx import d
    return {where: module for module, things in d['syms'].items() for where, _ in things.values()}

def leads_to(link, page):
    "The module of the thing that a link of a page (its path in nbs/) leads to; '' if it is none."
    path, _, anchor = link.partition('#')
    if m := PAGE.match(link): path = m[1]
    else: path = _nbpath2html(Path(os.path.normpath(Path(page).parent/path))).as_posix()
    return modules().get(f'{path}#{anchor}', '')

@cache
def documented(module):
    "The names that the page of a module documents."
    text = (ROOT/module.replace('.', '/')).with_suffix('.py').read_text(encoding='utf-8')
    lists = re.findall(r'^__all__ = (\[.*?\])', text, re.M | re.S)
    return {name for found in lists for name in ast.literal_eval(found)}

def is_namesake(name, link, page, names):
    "Does an automatic link lead to another thing, or nowhere? `names`: what the page's code means."
    module, root = leads_to(link, page), re.split(r'\W', name)[0]
    if not module or name.startswith('fedskew_nb'): return False
    return names.get(root) != module or root not in documented(module)

def without_namesakes(text, page, names):
    "`text` with those links as plain code."
    def plain(m): return f'`{m[1]}`' if is_namesake(m[1], m[2], page, names) else m[0]
    return NAMED.sub(plain, text)

def namesakes(text, page, names):
    "The links of a text that lead to a namesake."
    return [m[0] for m in NAMED.finditer(text) if is_namesake(m[1], m[2], page, names)]

# ---- where a page stands
@cache
def chapters():
    "{page: its place in a chapter of Learn}; chapters are the sections with a number in the sidebar."
    learn = next(bar for bar in sidebar() if bar['id'] == 'learn')['contents']
    found = {}
    for part in (p for p in learn if isinstance(p, dict) and p['section'][0].isdigit()):
        number, name = part['section'].split(' ', 1)
        pages = part['contents']
        found |= {p: f'*Chapter {number}, {name}:* page {i} of {len(pages)}' for i, p in enumerate(pages, 1)}
    return found

# ---- what is folded, what is shown once, what does not break
def marked(code):
    "The source of a code cell: imports folded, an answer with its class."
    has = directives(code)
    if 'Answer' in has.get('code-summary', ''): return f'#| classes: answer\n{code}'
    if only_imports(code) and not {'echo', 'include', 'code-fold'} & has.keys():
        return f'#| code-fold: true\n#| code-summary: "Imports"\n{code}'
    return code

def shortened(doc):
    "What `show_doc` says of a thing whose source follows: the link to it and its heading."
    return re.sub(r'(\n#+ [^\n]*\n).*', r'\1', doc, flags=re.S)

ID = re.compile(r'(?<=\| )\w[\w.]*-[\w.*-]+(?= +\|)')      # a cell of a table that is one word with a hyphen
def unbroken(text): return ID.sub(r'[\g<0>]{.unbroken}', text)

def change(cell, how):
    "What a cell has put out for the page, changed."
    for data in (o.get('data', {}) for o in cell.get('outputs', [])):
        if text := ''.join(data.get('text/markdown', '')): data['text/markdown'] = [how(text)]

FORMULA = re.compile(r'\$\$.+?\$\$|\$[^$\n]+\$', re.S)
def bars(m): return re.sub(r'\\\|(?=([A-Za-z])?)', lambda n: r'\Vert ' if n[1] else r'\Vert', m[0])

def norms(text):
    r"Pandoc writes \| as a relation, with spaces around it; \Vert is the bar of a norm."
    return FORMULA.sub(bars, text)

# ---- the processor
class relative_links(Processor):
    def begin(self):
        self.page = Path(self.nb.path_).resolve().relative_to(NBS)
        self.names = meant(read(NBS/self.page))
        self.module = module_of(read(NBS/self.page))
        if line := search.hidden_line(self.page.as_posix()): self.nb.cells.append(mk_cell(line, 'markdown'))

    def mended(self, text):
        text = relative(without_namesakes(text, self.page, self.names), self.page)
        return to_reference(text, self.page.as_posix())

    def cell(self, cell):
        if cell.cell_type == 'markdown': cell.source = norms(self.mended(cell.source))
        if cell.cell_type == 'raw': cell.source = to_reference(cell.source, self.page.as_posix())
        if cell.cell_type == 'code': self.code(cell)
        if cell.cell_type == 'markdown' and cell.source.startswith('*You need:*'):
            place = chapters().get(self.page.as_posix())
            module = f'*Module:* `fedskew_nb.{self.module}`' if self.module else None
            if said := ' · '.join(filter(None, (place, module))): cell.source += f'\n\n{said}'

    def code(self, cell):
        cell.source = marked(cell.source)
        change(cell, lambda text: unbroken(self.mended(text)))

# ---- the code of a page
def hidden(cell):
    "A processor: takes out what is hidden, and leaves what is exported."
    if {'hide', 'default_exp'} & cell.directives_.keys(): del cell['source']

def named(code):
    "What a cell of code defines, for the line under which it is folded."
    tree = ast.parse(code)
    return ', '.join(dict.fromkeys(given(tree))) or 'what follows'

class whole_code(Processor):
    "What nbdev says of exported things stands before their code, in its order; long code is folded."
    def begin(self):
        page, groups = Path(self.nb.path_).resolve().relative_to(NBS).as_posix(), []
        for cell in self.nb.cells:
            if getattr(cell, 'has_sd', False): groups[-1].insert(0, cell)
            else: groups.append([cell])
        pairs = ((a[-1], b[0]) for a, b in zip(groups, groups[1:]))
        for above, cell in pairs:                               # two lists of imports are one
            if not all(c.cell_type == 'code' and only_imports(c.source) for c in (above, cell)): continue
            if '#|' in cell.source: continue
            cell.source = f'{above.source}\n{cell.source}'
            del above['source']
        groups = [g for g in groups if 'source' in g[-1]]
        for *docs, cell in groups:
            if not EXPORTED & cell.directives_.keys() or only_imports(cell.source): continue
            if is_folded(page, cell.source, cell.directives_):
                head = f'#| code-fold: true\n#| code-summary: "Source of {named(cell.source)}"'
                cell.source = f'{head}\n{cell.source}'
            else:
                for doc in docs: change(doc, shortened)
        self.nb.cells = [cell for group in groups for cell in group]

class Whole(FilterDefaults):
    "nbdev's processors, for pages that show their code."
    def base_procs(self):
        ours = dict(rm_export=hidden, mv_exports=whole_code)
        return [ours.get(p.__name__, p) for p in super().base_procs() if p.__name__ != 'add_fold']
