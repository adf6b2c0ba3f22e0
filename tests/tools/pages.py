"""Does every page read well?

Code as wide as a page, one statement a line, headers that Quarto can read, figures that fit, with text that
can be read, sliders that leave something on the site, whose table is meant, how long a page takes; words
enough for what a page exports, and one definition of a public word. A listing, which is no page of the site,
has no cap on cells and minutes.

    python tests/tools/pages.py [NOTEBOOK ...]     # no name: every notebook
"""

import ast, base64, math, re, struct, sys
from dataclasses import dataclass, field
from pathlib import Path
import yaml
from project import EXPORTED, NBS, directives, is_folded, is_listing, module_of, notebooks, read, source

WIDTH, MINUTES = 110, 30
LINES, OF_CLASS = 60, 150  # of a cell; of one that holds a class
INCHES, POINTS, DPI = 8, 8, 120  # of a figure: its width, its text, what the site shows as an inch
LETTERS = re.compile(
    r'(?:fontsize|labelsize|titlesize)\s*=\s*(\d+(?:\.\d+)?)|'
    r'(?:text|annotate|legend|title)\(.*\bsize=(\d+(?:\.\d+)?)'
)
THEIRS = re.compile(r'\b(?:Figs?\.|Figures?|Tables?) \d')  # of a paper: ours have no number in prose
TESTS = re.compile(r'^\s*(assert |test_\w+\()', re.M)

@dataclass
class Page:
    "One notebook: how long it is, and what is wrong with it."

    name: str
    cells: int = 0
    widest: int = 0
    minutes: float = 0.0
    words: int = 0  # of prose
    exported: int = 0  # characters of code
    public: dict = field(default_factory=dict)  # {name that it exports: its module}
    tests: list = field(default_factory=list)  # characters of each cell that tests
    faults: list = field(default_factory=list)  # (rule, what)

def shown(src):
    "The code of a cell without its `#|` lines."
    return '\n'.join(l for l in src.splitlines() if not re.match(r'^\s*#\s*\|', l)).strip('\n')

def parsed(code):
    "The syntax tree of a cell; None for a cell that is not Python alone."
    try:
        return ast.parse(re.sub(r'^(\s*)[%!].*$', r'\1pass', code, flags=re.M))
    except SyntaxError:
        return None

def imports(code):
    "Does a cell hold nothing but imports?"
    tree = parsed(code)
    return tree and all(isinstance(n, (ast.Import, ast.ImportFrom)) for n in tree.body)

def joined(nodes):
    "Lines on which a `;` joins two statements."
    for node in nodes:
        for body in (getattr(node, k, None) for k in ('body', 'orelse', 'finalbody')):
            if not isinstance(body, list):
                continue
            yield from (b.lineno for a, b in zip(body, body[1:]) if a.end_lineno == b.lineno)

# functions and methods that give nothing: only their side effect can be meant
MUTE = set('print setattr delattr add append clear discard extend insert remove reverse sort update'.split())

def gives_nothing(node):
    "Is it a call that is made for its side effect alone?"
    if not isinstance(node, ast.Call):
        return False
    return getattr(node.func, 'id', getattr(node.func, 'attr', '')) in MUTE

def side_effects(nodes):
    "Lines on which `and`, `or`, `not` or a conditional stands for a statement."
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, (ast.BoolOp, ast.IfExp)):
            yield node.lineno
        asked = node.values if isinstance(node, ast.BoolOp) else [getattr(node, 'operand', None)]
        if isinstance(node, ast.IfExp):
            asked = [node.test]
        if any(map(gives_nothing, asked)):
            yield node.lineno

def nested(nodes):
    "Lines with comprehensions three deep."
    kinds = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

    def depth(node):
        return isinstance(node, kinds) + max(map(depth, ast.iter_child_nodes(node)), default=0)

    for node in nodes:
        if isinstance(node, kinds) and depth(node) > 2:
            yield node.lineno

def code_faults(code):
    "(rule, what) of a piece of Python."
    for l in code.splitlines():
        if len(l) > WIDTH:
            yield 'width', f'a line of {len(l)} characters: {l.strip()[:70]!r}'
    if (tree := parsed(code)) is None:
        return
    lines, nodes = code.splitlines(), [*ast.walk(tree)]
    for rule, found in (('semicolon', joined), ('side effect', side_effects), ('nesting', nested)):
        yield from ((rule, repr(lines[n - 1].strip()[:80])) for n in sorted(set(found(nodes))))

def header_faults(src):
    "`#|` lines that Quarto cannot read as YAML."
    for l in src.splitlines():
        if not (m := re.match(r'^#\|\s*([\w-]+:.*)$', l)):
            continue
        try:
            value = yaml.safe_load(m[1])
        except yaml.YAMLError as e:
            value = e
        if not isinstance(value, dict):
            yield 'header', f'{l[:80]!r} is no YAML: put its text into quotes'

def inches(out):
    "How wide the site shows a stored PNG."
    said = out.get('metadata', {}).get('image/png', {}).get('width')  # of a figure with two pixels for one
    pixels = said or struct.unpack('>I', base64.b64decode(''.join(out['data']['image/png']))[16:20])[0]
    return pixels / DPI

def figure_faults(cell, code):
    "Figures wider than the page, text that is too small, sliders that leave a blank."
    for o in cell.get('outputs', []):
        if 'image/png' in o.get('data', {}) and (w := inches(o)) > INCHES:
            yield 'figure', f'{w:.1f} inches wide, at most {INCHES}'
    for l in code.splitlines():
        if (m := LETTERS.search(l)) and float(m[1] or m[2]) < POINTS:
            yield 'letters', f'text of less than {POINTS} points: {l.strip()[:80]!r}'
    if re.search(r'^interact\(', code, re.M) and 'make lab' not in code:
        yield (
            'sliders',
            'the site shows no slider: show some positions, and say in the cell that it moves in `make lab`',
        )

NO_PROSE = re.compile(r'```.*?```|`[^`]*`|\$\$.*?\$\$|\$[^$\n]*\$|</?[a-z][^<>]*>', re.S)

def prose_faults(md):
    "Code that is too wide, numbers of a paper's tables that could be ours, quotes that would be curled."
    for lang, block in re.findall(r'^``` *(\w*).*?\n(.*?)^```', md, re.S | re.M):
        if lang == 'bibtex':
            continue
        yield from (
            ('width', f'a line of {len(l)} characters: {l.strip()[:70]!r}')
            for l in block.splitlines()
            if len(l) > WIDTH
        )
    text = NO_PROSE.sub(' ', md)
    for l in text.splitlines():
        if m := re.search(r'\w+=[\'"]\S*', l):
            yield 'quotes', f'{m[0]} is code: put it into backticks'
        if l.lstrip().startswith(('|', '>')):
            continue  # a column or a source says whose it is
        for m in THEIRS.finditer(l):
            if not re.search(r"(['’]s|\bits|\band|\bto|,)( own)? $", l[: m.start()]):
                yield 'number', f"{l[max(0, m.start() - 30) : m.end()]!r}: say the paper's"

# In prose of pages: the field's words, and higher or lower where nothing lies above or below.
PLACES = re.compile(
    r'\b(above|below) (?:\*\*)?(?:Fed[A-Z]\w*|F2DC|FDSE|RFedDis|DFL|MOON|Local|training alone)\b'
)
OURS = {
    r'\bgates?\b': 'precondition',
    r'\brungs?\b': 'checkpoint',
    r'\b(?:foot|feet)\b': 'note',
    r'\bnests?\b': 'checkpointed round',
    r"(?:\b(?:a|the|its|no)|[’']s) house\b": 'training protocol',
    r'\b(?:under stress|stress budget)\b': 'short budget',
    r'\bthe letter\b': 'the text, or message',
    r'\bIID deals?\b': 'IID split',
}

def word_faults(md):
    "A place where a measurement is meant, and words of ours where the field has one."
    text = re.sub(r'\]\([^)]*\)', ' ', NO_PROSE.sub(' ', md))
    for m in PLACES.finditer(text):
        yield 'word', f'{m[0]!r}: say {"higher" if m[1] == "above" else "lower"} than'
    for ours, theirs in OURS.items():
        yield from (('word', f'{m[0]!r}: say {theirs}') for m in re.finditer(ours, text, re.I))

HOMES = re.compile(r'(?<![\w./~-])/(home|Users|root|work|tmp)/[\w./-]+')

def output_faults(cell):
    "Outputs that the site cannot show as they are, or that nobody else can follow."
    for o in cell.get('outputs', []):
        texts = (o.get('text', ''), *(v for k, v in o.get('data', {}).items() if k.startswith('text')))
        for m in HOMES.finditer('\n'.join(map(''.join, texts))):
            yield 'place', f'{m[0]} is a folder of one machine: let the page name one of no machine'
    kinds = [k for o in cell.get('outputs', []) for k in o.get('data', {})]
    if 'text/html' in kinds:
        yield 'html', 'an output of text/html makes the site load scripts: show a table as Markdown'
    drawn = {'image/png', 'image/svg+xml'} & {*kinds}
    if drawn and 'text/markdown' in kinds:
        yield 'figure', 'one cell gives a figure and a table: make two cells'
    label = directives(source(cell)).get('label', '')
    if label.startswith('fig-') and not drawn:
        yield 'figure', f'{label} is not stored: run `make execute`'

WORDS = 'one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen'
NUMBERS = {w: n for n, w in enumerate(WORDS.split(), 1)} | {'seventeen': 17, 'eighteen': 18, 'nineteen': 19}
TENS = {'twenty': 20, 'thirty': 30}

def time_faults(nb, minutes):
    "A reading time that is more than two minutes off."
    said = [m for c in nb['cells'] for m in re.findall(r'\*Reading time:\* ([\w-]+) minutes', source(c))]
    if len(said) != 1:
        return
    tens, _, ones = said[0].partition('-')
    known = NUMBERS | TENS
    told = int(tens) if tens.isdigit() else known.get(tens, 0) + known.get(ones, 0)
    if abs(told - minutes) > 2.5:
        yield 'time', f'it says {said[0]} minutes and takes {minutes:.0f}'

def words(md):
    return len(re.findall(r'\w+', re.sub(r'\$\$.*?\$\$|```.*?```', ' ', md, flags=re.S)))

# How long a page takes: 180 words or 600 characters of code a minute; imports are not read. What is folded,
# code or an answer, counts a third. A figure takes 10 seconds beside its caption, a table .8 seconds a cell
# and at most 90, other printed text its words and at most a minute. Chosen on seven pages of 6307b81 for
# which a reader who takes in each printed word, 200 a minute, was counted to need 13, 19, 19, 21, 26, 28 and
# 33 minutes: these constants say 15, 20, 19, 22, 28, 26 and 32.
WORDS_A_MINUTE, CODE_A_MINUTE, FOLDED = 180, 600, 1 / 3
FIGURE, TABLE_CELL, TABLE_MOST, TEXT_MOST = 10 / 60, 0.8 / 60, 1.5, 1

def output_minutes(out):
    "How long a reader looks at one output."
    data = out.get('data', {})
    if any(kind.startswith('image/') for kind in data):
        return FIGURE
    lines = ''.join(out.get('text') or data.get('text/markdown') or data.get('text/plain', '')).splitlines()
    rows = [l for l in lines if l.lstrip().startswith('|')]
    cells = sum(l.count('|') - 1 for l in rows if re.search(r'\w', l))
    text = words('\n'.join(l for l in lines if l not in rows))
    return min(cells * TABLE_CELL, TABLE_MOST) + min(text / WORDS_A_MINUTE, TEXT_MOST)

def prose_minutes(md):
    "How long a cell of text takes."
    folded = sum(map(words, re.findall(r'<details>.*?</details>', md, re.S)))
    return (words(md) - folded + folded * FOLDED) / WORDS_A_MINUTE

def code_minutes(cell, folded, name):
    "How long a cell of code takes with what it shows; `folded`: so is all code of this page."
    code, says = shown(source(cell)), directives(source(cell))
    if says.get('include') == 'false' or 'hide' in says:
        return 0
    folded = folded or bool(EXPORTED & says.keys()) and is_folded(name, code, says)
    read = len(code) / CODE_A_MINUTE * (FOLDED if says.get('code-fold', str(folded)).lower() == 'true' else 1)
    if imports(code) or says.get('echo') == 'false':
        read = 0
    shows = [] if says.get('output') == 'false' else cell.get('outputs', [])
    return read + words(says.get('fig-cap', '')) / WORDS_A_MINUTE + sum(map(output_minutes, shows))

def is_answer(cell):
    "Is it folded below an exercise? Who has tried opens it, so no cap on cells and minutes counts it."
    if cell['cell_type'] == 'markdown':
        return source(cell).startswith('<details><summary>Answer')
    return 'Answer' in directives(source(cell)).get('code-summary', '')

def reading_minutes(nb, name=''):
    "How long a page takes; `name`: its place in nbs/."
    folded = any('code-fold: true' in source(c) for c in nb['cells'] if c['cell_type'] == 'raw')
    return sum(prose_minutes(source(c)) for c in nb['cells'] if c['cell_type'] == 'markdown') + sum(
        code_minutes(c, folded, name) for c in nb['cells'] if c['cell_type'] == 'code'
    )

def public_names(code, header):
    "What a cell gives to `import *`."
    if 'exporti' in header or (tree := parsed(code)) is None:
        return
    for n in tree.body:
        if isinstance(n, (ast.FunctionDef, ast.ClassDef)):
            if not any('patch' in ast.unparse(d) for d in n.decorator_list):
                yield n.name
        elif isinstance(n, ast.Assign):
            yield from (t.id for target in n.targets for t in ast.walk(target) if isinstance(t, ast.Name))

def is_read(page):
    "From top to bottom: a listing is looked up, and as long as its thing; nbs/sidebar.yml says which are."
    return not is_listing(page.name)

def read_page(path):
    nb, page = read(path), Page(path.relative_to(NBS).as_posix() if path.is_relative_to(NBS) else path.name)
    page.cells = sum(c['cell_type'] != 'raw' and not is_answer(c) for c in nb['cells'])  # raw: a header
    page.minutes = reading_minutes(nb, page.name)
    for c in nb['cells']:
        s = source(c)
        if c['cell_type'] == 'markdown':
            page.words += words(s)
            page.faults += prose_faults(s)
            if is_read(page):
                page.faults += word_faults(s)
        if c['cell_type'] != 'code':
            continue
        code = shown(s)
        if not imports(code) and EXPORTED & directives(s).keys():
            page.exported += len(code)
            page.public |= dict.fromkeys(public_names(code, directives(s)), module_of(nb))
        page.widest = max(page.widest, *map(len, code.splitlines() or ['']))
        page.faults += [*header_faults(s), *code_faults(code), *output_faults(c), *figure_faults(c, code)]
        lines = len(code.splitlines())
        if lines > (OF_CLASS if re.search(r'^class \w', code, re.M) else LINES):
            page.faults.append(('cell', f'{lines} lines: {code[:60]!r}'))
        if TESTS.search(code) and 'export' not in ' '.join(directives(s)):
            page.tests.append(len(code))
    page.faults += time_faults(nb, page.minutes)
    read_once = reading_minutes(nb | dict(cells=[c for c in nb['cells'] if not is_answer(c)]), page.name)
    if is_read(page) and read_once > MINUTES:
        page.faults.append(('time', f'{read_once:.0f} minutes, at most {MINUTES}: split the page'))
    if not is_read(page) and not module_of(nb):
        page.faults.append(('nobody', 'it exports nothing and is not in nbs/sidebar.yml: who would read it?'))
    return page

PROSE, THIN = 100, 50  # words for 1,000 exported characters, of a paper's pages and of each of them

def room_of(page):
    "The folder of a page; of the methods each paper's."
    return page.name.rpartition('/')[0]

def thin(words, exported):
    return 1000 * words / exported if exported else math.inf

def prose_of_rooms(pages):
    "A paper whose pages list more than they tell; what nobody reads from top to bottom needs no prose."
    rooms = {}
    for p in pages:
        if p.name.startswith('2_methods') and is_read(p):
            rooms.setdefault(room_of(p), []).append(p)
    for room, of in rooms.items():
        told = thin(sum(p.words for p in of), sum(p.exported for p in of))
        if told < PROSE:
            yield f'{room}: {told:.0f} words for 1,000 exported characters, at least {PROSE}'
        for p in of:
            told = thin(p.words, p.exported)
            if told < THIN:
                yield f'{p.name}: {told:.0f} words for 1,000 exported characters, at least {THIN}'

def doubles(pages):
    "A public word that two pages define."
    homes = {}
    for p in pages:
        for name, module in p.public.items():
            homes.setdefault(name, []).append(module)
    for name, of in homes.items():
        if len(of) > 1 and not name.startswith('_'):
            yield f'{name} is defined by {" and ".join(of)}'

def median(values):
    return sorted(values)[len(values) // 2] if values else 0

def main(*names):
    pages = [read_page(p) for p in ([Path(n).resolve() for n in names] or notebooks())]
    print(f'{"page":44} cells widest minutes median-test faults')
    for p in pages:
        print(f'{p.name:44} {p.cells:5} {p.widest:6} {p.minutes:7.0f} {median(p.tests):11} {len(p.faults):6}')
        for rule, what in p.faults:
            print(f'    {rule}: {what}')
    shared = [] if names else [*doubles(pages), *prose_of_rooms(pages)]
    print(*shared, sep='\n')
    n = sum(len(p.faults) for p in pages) + len(shared)
    tests = [t for p in pages for t in p.tests]
    hours = lambda of: f'{sum(p.minutes for p in of) / 60:.1f} hours'
    shown = [p for p in pages if is_read(p)]
    print(f'{len(pages)} notebooks, {hours(pages)}; pages of the site: {len(shown)}, {hours(shown)}')
    print(
        f'widest line {max(p.widest for p in pages)}, '
        f'median test cell {median(tests)} characters, {n} faults'
    )
    if n:
        sys.exit(1)

if __name__ == '__main__':
    main(*sys.argv[1:])
