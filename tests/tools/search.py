"""What a reader's search finds first, by the rules of Quarto's: an index of the processed pages, no Quarto.

    python tests/tools/search.py _proc min_norm prototype

A document is a section of the second level: the page's title, its heading, its text. A word counts in each of
these where it stands, twice as much in title and heading, and less in a long text (Fuse: 1/√words).
"""

import posixpath, re, sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
import yaml
from project import NBS, directives, notebooks, read, source

WEIGHTS = dict(title=0.4, section=0.4, text=0.2)

GLOSSARY = '1_begin/04_glossary.ipynb'

@lru_cache(None)
def synonyms():
    "{page: words that others say for what it is about}, as the glossary has them."
    cells = [source(c) for c in read(NBS / GLOSSARY)['cells']]
    rows = next(c for c in cells if c.startswith('## Words of others')).splitlines()
    found = {}
    for words, link in re.findall(r'^\| (.+?) \|.*\]\(([^)]+)\) \|$', '\n'.join(rows), re.M):
        page = posixpath.normpath(posixpath.join(posixpath.dirname(GLOSSARY), link))
        found.setdefault(page, []).extend(words.split(', '))
    return found

def hidden_line(page):
    "A last section that only a search reads; None for a page without such words."
    words = ', '.join(synonyms().get(page, ()))
    return f'## {words} {{.synonyms .unnumbered .unlisted}}\n\nAlso called: {words}.' if words else None

@dataclass
class Section:
    "What the index holds of a section."

    page: str  # the notebook
    title: str
    section: str = ''
    text: str = ''

    def score(self, query):
        fields = {k: getattr(self, k).lower() for k in WEIGHTS}
        return sum(w / len(fields[k].split(' ')) ** 0.5 for k, w in WEIGHTS.items() if query in fields[k])

def plain(markdown):
    "Markdown without its marks, links by their words."
    return re.sub(r'[*`#>|$]|\{[.#][^}]*\}', '', re.sub(r'!?\[([^\]]*)\]\([^)]*\)', r'\1', markdown))

def shown(cell):
    "What a reader sees of a code cell."
    d, code = directives(source(cell)), source(cell)
    if d.get('include') == 'false':
        return ''
    lines = [] if d.get('echo') == 'false' else [l for l in code.splitlines() if not l.startswith('#|')]
    outs = [''.join(o.get('text') or o.get('data', {}).get('text/markdown') or '') for o in cell['outputs']]
    return '\n'.join(lines + [d.get('fig-cap', '')] + ([] if d.get('output') == 'false' else outs))

def sections(path, page):
    "The sections of a processed notebook; none where its front matter keeps it out."
    front, found = {}, [Section(page, '')]
    for c in read(path)['cells']:
        if c['cell_type'] == 'raw':
            front |= yaml.safe_load(source(c).strip().strip('-')) or {}
            continue
        prose = c['cell_type'] == 'markdown'
        above, *parts = re.split(r'^## +', source(c), flags=re.M) if prose else [shown(c)]
        found[-1].text += plain(above) + '\n'
        for heading, _, text in (part.partition('\n') for part in parts):
            found.append(Section(page, '', plain(heading), plain(text)))
    for s in found:
        s.title = str(front.get('title', ''))
    return [] if front.get('search') is False else found

def index(root):
    root = Path(root)
    return [s for p in notebooks(root) for s in sections(p, p.relative_to(root).as_posix())]

def find(query, docs, n=5):
    "The n best sections."
    query = query.lower()
    found = [d for d in docs if d.score(query)]
    return sorted(found, key=lambda d: -d.score(query))[:n]

def main(root, *queries):
    docs = index(root)
    print(f'{len(docs)} sections')
    for q in queries:
        print(q)
        for d in find(q, docs):
            print(f'  {d.score(q.lower()):.3f} {d.page}: {d.section or d.title}')

if __name__ == '__main__':
    main(*sys.argv[1:])
