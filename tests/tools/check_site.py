"""Check the rendered site, as Quarto left it: links, anchors, files; nothing is fetched from elsewhere.

python tests/tools/check_site.py _docs
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit
from project import settings, site

class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.fetched = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        self.ids |= {a[k] for k in ('id', 'name') if a.get(k)}
        if tag == 'a' and a.get('href'):
            self.links.append(a['href'])
        if tag in ('img', 'script', 'source') and a.get('src'):
            self.fetched.append(a['src'])
        if (
            tag == 'link'
            and a.get('href')
            and {'stylesheet', 'icon', 'preload'} & set((a.get('rel') or '').split())
        ):
            self.fetched.append(a['href'])

def faults(root):
    root = Path(root)
    pages = {
        p.relative_to(root).as_posix(): Page(p.read_text(encoding='utf-8'))
        for p in sorted(root.rglob('*.html'))
    }
    for name, p in pages.items():
        for url in p.links + p.fetched:
            u = urlsplit(url)
            if u.scheme in ('http', 'https') or url.startswith('//'):
                if url in p.fetched:
                    yield f'{name} fetches {url}'
                elif url.startswith(site()):
                    yield f'{name}: a link to the site by its address {url}'
                continue
            if u.scheme:
                continue
            target = (Path(name).parent / unquote(u.path)).as_posix() if u.path else name
            if u.path.startswith(base := settings()['doc_baseurl'] + '/'):
                target = unquote(u.path[len(base) :]) or 'index.html'  # 404.html is shown at any address
            if (root / target).is_dir():
                target = (Path(target) / 'index.html').as_posix()
            if not (root / target).resolve().is_file():
                yield f'{name}: dead link {url}'
            elif u.fragment and target in pages and unquote(u.fragment) not in pages[target].ids:
                yield f'{name}: dead anchor {url}'
        if 'fonts.googleapis' in (root / name).read_text(encoding='utf-8'):
            yield f'{name} asks for a web font'
    for css in root.rglob('*.css'):
        if 'fonts.googleapis' in css.read_text(encoding='utf-8', errors='replace'):
            yield f'{css.relative_to(root)} asks for a web font'

def main(folder='_docs'):
    found = sorted(set(faults(folder)))
    for f in found:
        print(f)
    if found:
        sys.exit(f'{len(found)} faults in {folder}')
    print(f'{folder}: no dead link, no dead anchor, nothing fetched from elsewhere')

if __name__ == '__main__':
    main(*sys.argv[1:])
