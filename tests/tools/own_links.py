"""Links inside the site are relative, so that any copy of it works: nbdev turns `Net` in prose into a link to the site's own address.

A processor of nbdev (`procs` in settings.ini), after its own: each such link becomes one to the notebook file, which Quarto follows.
"""
import os, re
from functools import cache
from pathlib import Path
from nbdev.doclinks import _nbpath2html
from nbdev.process import Processor
from project import NBS, notebooks, site

PAGE = re.compile(re.escape(site()) + r'/([\w./-]+\.html)')

@cache
def our_pages():
    "{address of a page on the site: its notebook}; listed once, since `relative` is called for every cell."
    return {_nbpath2html(n).as_posix(): n for n in (p.relative_to(NBS) for p in notebooks())}

def relative(text, page):
    "`text` of a page (its path in nbs/), with each link to one of our pages as a link to its notebook."
    files = our_pages()
    def link(m): return os.path.relpath(files[m[1]], Path(page).parent).replace(os.sep, '/') if m[1] in files else m[0]
    return PAGE.sub(link, text)

class relative_links(Processor):
    def cell(self, cell):
        page = Path(self.nb.path_).resolve().relative_to(NBS)
        if cell.cell_type == 'markdown': cell.source = relative(cell.source, page)
        for o in cell.get('outputs', []):
            if lines := o.get('data', {}).get('text/markdown'): o['data']['text/markdown'] = [relative(l, page) for l in lines]
