"The docs checker finds each fault that we put in; the README maker and the sync check do what they say."

import base64, io, json, posixpath, re, shutil, subprocess, warnings
from pathlib import Path
import pytest, yaml
from execnb.nbio import dict2nb
from fontTools.ttLib import TTFont
from nbdev.process import NBProcessor
from nbdev.processors import add_show_docs
from PIL import Image
import check_docs, check_site, mathfont, mutations, own_links, pages, project, quick
import readme, reference, search, slides
import sync
import versions

PNG = base64.b64encode(
    base64.b64decode(
        'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+M8AAAMBAQDJ/pLvAAAAAElFTkSuQmCC'
    )
).decode()

def md(text):
    return dict(cell_type='markdown', metadata={}, source=text)

def raw(text):
    return dict(cell_type='raw', metadata={}, source=text)

def code(text, *outs):
    return dict(cell_type='code', metadata={}, execution_count=None, source=text, outputs=list(outs))

def png():
    return dict(output_type='display_data', metadata={}, data={'image/png': PNG, 'text/plain': '<Figure>'})

def svg():
    text = '<svg xmlns="http://www.w3.org/2000/svg" width="90" height="40"/>'
    data = {'image/svg+xml': text, 'text/plain': 'Drawing'}
    return dict(output_type='execute_result', metadata={}, data=data)

def said(text):
    return dict(output_type='stream', name='stdout', text=text)

def write(path, *cells):
    path.write_text(json.dumps(dict(cells=list(cells), metadata={}, nbformat=4, nbformat_minor=5)))

FIGURE = '#| label: fig-{}\n#| fig-cap: "A cap."\n#| fig-alt: "An alt."\nplot()'
SIDEBAR = '''website:
  sidebar:
    contents:
      - index.ipynb
      - section: More
        contents: [other.ipynb]
'''

@pytest.fixture
def site(tmp_path):
    "Two processed pages without a fault."
    write(
        tmp_path / 'index.ipynb',
        raw('---\ntitle: Scratch\noutput-file: index.html\n---'),
        md(
            '## A part\n\nSee @fig-one, [there](other.ipynb#a-part-there), '
            '[here](#a-part) and $\\frac{a}{b}$.'
        ),
        code(FIGURE.format('one'), png()),
        code('1+1', said('2\n')),
    )
    write(tmp_path / 'other.ipynb', md('# Other\n\n## A part there\n\nA [page](index.ipynb).'))
    (tmp_path / 'sidebar.yml').write_text(SIDEBAR)
    return tmp_path

def faults(root):
    pages, side = check_docs.check(root)
    return [f for p in pages.values() for f in p.faults] + side

def test_good_pages_have_no_fault(site):
    assert faults(site) == []

SITE = (lambda c: c['doc_host'] + c['doc_baseurl'])(project.settings())
SEEDED = {
    'a dead link': (md('[x](gone.ipynb)'), 'dead link gone.ipynb'),
    'a dead anchor elsewhere': (md('[x](index.ipynb#no-such-part)'), 'dead anchor index.ipynb#no-such-part'),
    'a dead anchor here': (md('[x](#nowhere)'), 'dead anchor #nowhere'),
    'a dead image': (md('![x](gone.png)'), 'dead link gone.png'),
    'a dead HTML link': (md('See <a href="gone.ipynb">x</a>.'), 'dead link gone.ipynb'),
    'a link to a made page': (md('[x](index.html)'), 'link to the notebook file'),
    'a link out of the site': (md('[x](../README.md)'), 'leaves the site'),
    'a dead page of the site': (md(f'[x]({SITE}/gone.html)'), 'dead link'),
    'a dead anchor of the site': (md(f'[x]({SITE}/index.html#gone)'), 'dead anchor'),
    'a page by its address': (md(f'[x]({SITE}/index.html#a-part)'), 'a link to the site by its address'),
    'a link in a signature': (
        md('```python\ndef f(\n    x, # [`Net`](../net.ipynb#net)\n```'),
        'a raw link in a signature',
    ),
    'a broken formula': (md('A $\\frac{a$ b.'), 'bad formula'),
    'a character that the font lacks': (md('A $½$.'), "lacks: add it in mathfont.py"),
    'an undefined macro': (md('$$\\nosuchmacro{x}$$'), 'bad formula'),
    'an unresolved figure': (md('See @fig-none.'), 'unresolved reference @fig-none'),
    'an unresolved equation': (md('By @eq-none.'), 'unresolved reference @eq-none'),
    'a label used twice': (code(FIGURE.format('one') + '\n', png()), None),
    'a figure without label': (code('plot()', png()), 'no label'),
    'a drawing without label': (code('drawing()', svg()), 'no label'),
    'a figure without caption': (
        code('#| label: fig-b\n#| fig-alt: "x"\nplot()', png()),
        'fig-b has no fig-cap',
    ),
    'a figure without alt': (code('#| label: fig-b\n#| fig-cap: "x"\nplot()', png()), 'fig-b has no fig-alt'),
    'a path of this machine': (code('f()', said('saved in /tmp/tmpab12/x.json')), '/tmp/tmpab12'),
    'an address in memory': (code('f', said('<function f at 0x7f96a2064e10>')), 'at 0x7f96a2064e10'),
    'a paragraph like a list': (md('(10) and (11) are called so.'), 'a paragraph begins like a list'),
    'a fence without a language': (md('```\nfedskew list\n```'), 'a code fence without a language'),
    'a formula of a caption by hand': (
        code('#| label: fig-b\n#| fig-cap: "The loss L_s and $h_k$."\n#| fig-alt: "x"\nplot()', png()),
        "outside $…$: 'L_s'",
    ),
    'a broken formula of a caption': (
        code('#| label: fig-b\n#| fig-cap: "A $\\\\frac{a$ b."\n#| fig-alt: "x"\nplot()', png()),
        'bad formula',
    ),
    'a stored error': (
        code('f()', dict(output_type='error', ename='ValueError', evalue='no', traceback=[])),
        'stored output is an error',
    ),
}

@pytest.mark.parametrize('name', SEEDED)
def test_seeded_fault_is_found(site, name):
    cell, expected = SEEDED[name]
    if expected is None:
        write(site / 'other.ipynb', md('# Other\n\n## A part there'), cell, cell)
        expected = 'fig-one is used twice'
    else:
        write(site / 'other.ipynb', md('# Other\n\n## A part there'), cell)
    found = faults(site)
    assert len(found) == 1 and expected in found[0], found

def test_page_missing_from_the_sidebar(site):
    write(site / 'third.ipynb', md('# Third'))
    assert faults(site) == ['third.ipynb is not in sidebar.yml']

def test_sidebar_names_a_missing_page(site):
    (site / 'sidebar.yml').write_text(
        SIDEBAR.replace('[other.ipynb]', '[other.ipynb, gone.ipynb, other.ipynb]')
    )
    assert faults(site) == [
        'sidebar.yml names gone.ipynb, which is no page',
        'sidebar.yml names other.ipynb twice',
    ]

def test_what_a_search_finds_first(site):
    "A heading before prose, a short text before a long one; a page may be left out."
    words = 'A long text that names the mask once, among many other words that say nothing of it.'
    hidden = raw('---\ntitle: Mask\nsearch: false\n---')
    write(site / 'long.ipynb', raw('---\ntitle: Long\n---'), md(f'## One\n\n{words}\n\n## Two\n\nA mask.'))
    write(site / 'head.ipynb', raw('---\ntitle: Head\n---'), md(f'Before.\n\n## The `mask`\n\n{words}'))
    write(site / 'answers.ipynb', hidden, md('## Mask\n\nA mask.'))
    found = search.find('mask', search.index(site))
    assert [(s.page, s.section) for s in found] == [
        ('head.ipynb', 'The mask'),
        ('long.ipynb', 'Two'),
        ('long.ipynb', 'One'),
    ]

def test_a_search_that_leads_elsewhere_is_a_fault(site, monkeypatch):
    monkeypatch.setattr(check_docs, 'FINDS', {'part': 'index.ipynb', 'page': 'index.ipynb'})
    assert faults(site) == ["a search for 'page' finds other.ipynb before index.ipynb"]

def test_checker_fails_loudly(site, capsys):
    check_docs.main(site)
    assert 'no fault' in capsys.readouterr().out
    write(site / 'other.ipynb', md('# Other\n\n## A part there\n\n[x](gone.ipynb)'))
    with pytest.raises(SystemExit, match='1 faults'):
        check_docs.main(site)
    with pytest.raises(SystemExit, match='no pages'):
        check_docs.main(site / 'empty')

def test_rendered_site(tmp_path):
    (tmp_path / 'a.html').write_text(
        '<h2 id="x">X</h2><a href="b.html#y">b</a><a href="https://example.org">out</a>'
    )
    (tmp_path / 'b.html').write_text('<h2 id="y">Y</h2><a href="a.html#x">a</a>')
    assert list(check_site.faults(tmp_path)) == []
    (tmp_path / 'b.html').write_text(
        '<a href="a.html#z">a</a><a href="c.html">c</a><script src="https://cdn.example.org/x.js"></script>'
    )
    assert sorted(check_site.faults(tmp_path)) == [
        'a.html: dead anchor b.html#y',
        'b.html fetches https://cdn.example.org/x.js',
        'b.html: dead anchor a.html#z',
        'b.html: dead link c.html',
    ]

def test_rendered_site_by_its_address(tmp_path):
    (tmp_path / 'a.html').write_text(f'<a href="{SITE}/a.html">a</a>')
    assert list(check_site.faults(tmp_path)) == [f'a.html: a link to the site by its address {SITE}/a.html']

def test_the_404_page_links_from_the_root(tmp_path):
    "It is shown at any address, so its links begin with the site's folder."
    base = project.settings()['doc_baseurl']
    (tmp_path / '404.html').write_text(f'<a href="{base}/a.html">a</a> <a href="{base}/">first</a>')
    for name in ('a.html', 'index.html'):
        (tmp_path / name).write_text('')
    assert list(check_site.faults(tmp_path)) == []
    (tmp_path / 'a.html').unlink()
    assert list(check_site.faults(tmp_path)) == [f'404.html: dead link {base}/a.html']

def test_links_inside_the_site_are_relative():
    elsewhere = 'https://example.org/4_core/net.html'
    text = f'[`Net`]({SITE}/4_core/net.html#net), [x]({SITE}/gone.html), [y]({elsewhere})'
    assert own_links.relative(text, '1_begin/09_own_model.ipynb') == text.replace(
        f'{SITE}/4_core/net.html', '../4_core/01_net.ipynb'
    )
    assert own_links.relative(f'{SITE}/4_core/net.html', '4_core/06_method.ipynb') == '01_net.ipynb'
    module, name = project.settings()['procs'].split(':')
    assert getattr(__import__(module), name) is own_links.relative_links  # what nbdev calls

def test_readme(site):
    write(
        site / 'index.ipynb',
        raw('---\ntitle: Scratch\ndescription: One\n  sentence.\noutput-file: index.html\n---'),
        md(
            'Begin [here](start.ipynb#first), or [there](https://example.org/x.ipynb). It\'s $x^2$.\n\n'
            '| a | b |\n|---|--:|\n| 1 | 2 |'
        ),
        code('#| echo: false\n' + FIGURE.format('one'), png()),
        code('#| eval: false\nx = 1', said('2\n')),
        code('#| output: false\ny = 2', said('3\n')),
    )
    text, figures = readme.make(project.read(site / 'index.ipynb'))
    assert (
        '# Scratch\n\n> One sentence.' in text
        and '[here](nbs/start.ipynb#first)' in text
        and '](https://example.org/x.ipynb)' in text
    )
    assert (
        '![An alt.](nbs/images/index-one.png)' in text
        and figures == {'index-one.png': base64.b64decode(PNG)}
        and 'plot()' not in text
    )
    assert (
        "It's" in text
        and '``` python\nx = 1\n```' in text
        and '``` text\n2\n```' in text
        and '``` text\n3' not in text
        and '| 1 ' in text
    )

@pytest.fixture
def little(tmp_path):
    "A project with one notebook, in step."
    for f in ('settings.ini', 'pyproject.toml', '.gitignore', '_quarto.yml', 'nbs/_quarto.yml'):
        (tmp_path / f).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(project.ROOT / f, tmp_path / f)
    (tmp_path / 'fedskew_nb').mkdir()
    (tmp_path / 'fedskew_nb' / '__init__.py').write_text(f'__version__ = "{project.settings()["version"]}"\n')
    nb = dict(
        cells=[
            dict(code('#| default_exp one'), id='a0'),
            dict(code('#| export\ndef f(x): return x'), id='a1'),
        ],
        metadata=dict(kernelspec=dict(display_name='python3', language='python', name='python3')),
        nbformat=4,
        nbformat_minor=5,
    )
    (tmp_path / 'nbs' / '00_one.ipynb').write_text(json.dumps(nb))
    subprocess.run(['git', 'init', '-q'], cwd=tmp_path, check=True)
    subprocess.run(
        [sync.sys.executable, '-c', sync.TOOLS],
        cwd=tmp_path,
        check=True,
        env={k: v for k, v in sync.os.environ.items() if k != 'IN_TEST'},
    )
    return tmp_path

def test_sync(little):
    assert sync.differences(little) == []
    mod = little / 'fedskew_nb' / 'one.py'
    good = mod.read_text()
    mod.write_text(good.replace('return x', 'return x + 1'))
    assert sync.differences(little) == ['fedskew_nb/one.py is not what export and clean make of it']
    assert 'x + 1' in mod.read_text()  # looking changes nothing
    mod.unlink()
    assert sync.differences(little) == ['fedskew_nb/one.py is written by export, but is not here']
    mod.write_text(good)
    nb = little / 'nbs' / '00_one.ipynb'
    nb.write_text(nb.read_text().replace('"execution_count": null', '"execution_count": 7', 1))
    assert sync.differences(little) == ['nbs/00_one.ipynb is not what export and clean make of it']
    assert 'fedskew_nb/one.py' in sync.unknown(little)

BAD_LABEL = r"""
from nbtest import Shell
shell = Shell()
shell.run('from matplotlib import pyplot as plt')
for title in ('fine', r'$\frac{$'):
    shell.run(f'plt.subplots()[1].set_title({title!r});')
    print(type(shell.exc).__name__)
"""

def test_a_figure_that_cannot_be_drawn_fails_its_page():
    how = dict(cwd=project.ROOT / 'tests' / 'tools', capture_output=True, text=True, check=True)
    out = subprocess.run([sync.sys.executable, '-c', BAD_LABEL], **how).stdout
    said = out.splitlines()
    assert (said[0], said[-1]) == ('NoneType', 'ValueError')

def test_quick_chooses():
    nbs, tests = quick.to_run(
        [
            'fedskew_nb/core/rules.py',
            'README.md',
            'tests/test_package.py',
            'tests/tools/proc.py',
            'nbs/gone.ipynb',
        ]
    )
    assert nbs == ['nbs/4_core/09_rules.ipynb']
    touched = {f'tests/test_{t}.py' for t in ('package', 'sync', 'tools')}
    assert set(tests) == touched | quick.tests_of('fedskew_nb.core.rules')

def test_quick_takes_every_page_of_a_module():
    nbs, _ = quick.to_run(['fedskew_nb/methods/fdse/erase.py'])
    pages = '02_erase', '03_statistics', '09_surgery', '10_released'
    assert nbs == [f'nbs/2_methods/fdse/{page}.ipynb' for page in pages]

def test_a_mutation_is_tried_on_the_page_that_wrote_the_line():
    path = project.ROOT / 'fedskew_nb/methods/baselines/personal.py'
    text = path.read_text(encoding='utf-8')
    for name, page in (('KeepAll', '03_personal'), ('FixStatistics', '17_batchnorm')):
        line = 1 + text[: text.index(f'class {name}')].count('\n')
        assert mutations.page_of(text, line) == f'nbs/2_methods/baselines/{page}.ipynb'

def test_a_page_begins_a_module_or_adds_to_one():
    begins, adds = (
        dict(cells=[code(src), md('# Title')])
        for src in ('#| default_exp one', '#| exports two.three\nx = 1')
    )
    assert (project.default_exp(begins), project.added_to(begins)) == ('one', None)
    assert (project.default_exp(adds), project.added_to(adds)) == (None, 'two.three')
    assert [project.module_of(nb) for nb in (begins, adds)] == ['one', 'two.three']

def test_constraints_meet_what_is_asked_for():
    "Each direct need has its version in constraints.txt, within its bounds; the lowest are those bounds."
    lines = (project.ROOT / 'constraints.txt').read_text(encoding='utf-8').splitlines()
    held = dict(line.split('==') for line in lines if not line.startswith('#'))
    for need in versions.asked():
        assert need.specifier.contains(held[versions.canonicalize_name(need.name)]), need
    assert versions.lowest()['pandas'] == '2.1' and 'fastcore' not in versions.lowest()

def test_quick_finds_the_tests_of_a_module():
    "By import; by the class it grows; by a name of the package; by who imports it, or walks its room."

    def tests_of(module):
        return {Path(t).stem.removeprefix('test_') for t in quick.tests_of(f'fedskew_nb.{module}')}

    assert tests_of('nets.remember') == {'remember', 'kind_remember', 'kind_readers'}
    assert {'engine', 'lanes'} <= tests_of('engine.server')  # by name, and by who imports it
    assert 'claims' in tests_of('data.load')  # claims says `from fedskew_nb import load_suite`
    assert tests_of('data.suites.rooms') == {'dfl_data'}
    assert 'engine' in tests_of('methods.baselines.average')
    assert {'baselines', 'golden', 'package'} <= tests_of('methods.baselines.of_tomorrow')
    assert {'data', 'package'} <= tests_of('data.suites.of_tomorrow')

def test_directives():
    d = project.directives('#| export\n#| eval: false\n# | label: fig-x\nx = 1\n#| no')
    assert d == {'export': '', 'eval': 'false', 'label': 'fig-x'}
    assert (
        project.skipped('#| slow\nf()')
        and project.skipped('nbdev.nbdev_export()')
        and not project.skipped('#| export\nf()')
    )

def test_pages_that_do_not_read_well(tmp_path):
    "Each rule of the checker finds its fault, and nothing else."

    def faults(code, **outputs):
        cell = dict(
            cell_type='code',
            source=code,
            outputs=[dict(output_type='display_data', data=outputs)] if outputs else [],
        )
        write(tmp_path / 'x.ipynb', cell)
        return {rule for rule, _ in pages.read_page(tmp_path / 'x.ipynb').faults}

    assert faults('x = 1\nif x: y = 2') == set()
    assert faults('x = ' + '1' * 107) == {'width'}
    assert faults('x = 1; y = 2') == {'semicolon'} and faults('plot();') == set()
    assert faults('x and f()') == {'side effect'}
    assert faults('[[[a for a in b] for b in c] for c in d]') == {'nesting'}
    assert faults('\n'.join(f'x{i} = {i}' for i in range(61))) == {'cell'}
    assert faults('\n'.join(['class A:', *(f'    x{i} = {i}' for i in range(149))])) == set()
    assert faults('\n'.join(['class A:', *(f'    x{i} = {i}' for i in range(150))])) == {'cell'}
    assert faults('#| fig-cap: one: two\nplot()') == {'header'}
    assert faults('df', **{'text/html': '<table>'}) == {'html'}
    assert faults('df', **{'text/plain': "Path('/home/me/pets')"}) == {'place'}
    assert not faults('df', **{'text/plain': 'runs/home/me, ~/tmp/x and /data/pets'})
    assert faults('plot()', **{'image/png': PNG, 'text/markdown': '|'}) == {'figure'}
    assert faults('drawing()', **{'image/svg+xml': '<svg/>', 'text/markdown': '|'}) == {'figure'}
    assert faults('#| label: fig-a\ndrawing()', **{'image/svg+xml': '<svg/>'}) == set()
    assert faults('#| label: fig-a\ndrawing()') == {'figure'}
    for line in ("ax.legend(fontsize=7)", "ax.text(0, 0, 'a', size=7.5)", "ax.tick_params(labelsize=6.5)"):
        assert faults(line) == {'letters'}
    for line in ("ax.text(0, 0, 'a', size=8)", "small_conv(10, size=4)"):
        assert faults(line) == set()
    assert (
        faults('interact(f, x=(0, 1))') == {'sliders'}
        and faults('# In `make lab`\ninteract(f, x=(0, 1))') == set()
    )

def test_a_reading_time_that_is_wrong():
    page = lambda minutes: dict(cells=[md(f'*Reading time:* {minutes} minutes.')])
    said = lambda minutes: list(pages.time_faults(page(minutes), 24))
    assert said('24') == said('twenty-six') == [] and [rule for rule, _ in said('four')] == ['time']

def test_what_a_reading_time_counts():
    "Words, code, figures, tables and printed text; a third of what is folded; nothing of what is not shown."
    of = lambda *cells: round(pages.reading_minutes(dict(cells=[*cells])), 6)
    text = dict(text=['a ' * 90])
    table = lambda rows: {'data': {'text/markdown': '|a|b|\n|:--|--:|\n' + '|1|2|\n' * rows}}
    line = 'x = 1\n' * 50
    half, folded = round(len(line.strip()) / 600, 6), '#| code-fold: true\n' + line
    assert of(md('a ' * 180)) == 1 and of(md(f'<details>{"a " * 178}</details>')) == round(1 / 3, 6)
    assert of(code(line)) == half and of(code('import os\n' * 9)) == 0
    assert of(code(folded)) == round(half / 3, 6)
    assert of(raw('---\ncode-fold: true\n---'), code(line)) == of(code(folded))
    assert of(code('#| echo: false\nplot()', png())) == round(1 / 6, 6)
    assert of(code('#| echo: false', text)) == 0.5 and of(code('#| output: false\n#| echo: false', text)) == 0
    assert of(code('#| echo: false', dict(text=['a ' * 900]))) == 1
    assert of(code('#| echo: false', table(2))) == round(6 * 0.8 / 60, 6)
    assert of(code('#| echo: false', table(200))) == 1.5
    assert of(code('#| include: false\n' + line, text)) == 0

def test_no_page_links_to_what_is_no_page():
    "On the site its links to listings lead to an entry of a reference, or to a notebook's source."
    ids, wrong = set(reference.ids().values()), []
    for page in sorted(project.rendered()):
        if page.startswith(reference.FOLDER):
            continue
        prose = [c for c in project.read(project.NBS / page)['cells'] if c['cell_type'] == 'markdown']
        for m in own_links.TO_NOTEBOOK.finditer('\n'.join(map(project.source, prose))):
            found = own_links.to_reference(m[0], page)
            name = found.partition(f'{reference.FOLDER}/')[2]
            if name and name.partition('#')[2] not in ids:
                wrong.append((page, m[0]))
            target = posixpath.normpath(posixpath.join(posixpath.dirname(page), m[2]))
            assert not project.is_listing(target) or found != m[0], (page, m[0])
    assert wrong == []

def test_no_cap_counts_a_folded_answer(tmp_path):
    "The same words are too many where they stand open."

    def faults(*cells):
        write(tmp_path / 'x.ipynb', *cells)
        return {rule for rule, _ in pages.read_page(tmp_path / 'x.ipynb').faults}

    page, told = [md('a')] * 40, '<details><summary>Answers in words</summary>'
    answers = [md(f'{told}{"a " * 9000}</details>')] * 2
    answers += [code('#| code-fold: true\n#| code-summary: "Answer to 2"\nx = 2')] * 20
    assert faults(*page, *answers) == set()
    assert faults(*page, md('a ' * 9000), *[code('x = 2')] * 20) == {'time'}

def test_a_listing_has_no_cap_and_a_module():
    names = {p.relative_to(project.NBS).as_posix(): p for p in project.notebooks()}
    listing = next(p for name, p in names.items() if project.is_listing(name))
    assert not pages.is_read(pages.read_page(listing)) and project.module_of(project.read(listing))
    assert pages.is_read(pages.read_page(project.NBS / 'index.ipynb'))

def test_chapters_of_baselines_are_short():
    names = [n for n in project.rendered() if n.startswith('2_methods/baselines/')]
    minutes = {n: pages.read_page(project.NBS / n).minutes for n in names}
    assert len(names) == 9 and max(minutes.values()) <= 20, minutes

PROSE = {
    "See Figure 2.": 'number',
    "(Fig. 5)": 'number',
    "## Table 3: parts": 'number',
    "The paper's Figures 2 and 3, its Table 1, F2DC's Fig. 4.": None,
    "| Fig. 2 |": None,
    "> (Wang et al., Fig. 2.)": None,
    "with preset='shared'": 'quotes',
    "with `preset='shared'`": None,
    '```bash\n' + 'x' * 111 + '\n```': 'width',
    '```bibtex\n' + 'x' * 111 + '\n```': None,
}

@pytest.mark.parametrize('text', PROSE)
def test_prose_that_does_not_read_well(text):
    assert [rule for rule, _ in pages.prose_faults(text)] == [PROSE[text]] * bool(PROSE[text])

OURS = {
    'F2DC lies above FedAvg': ['higher than'],
    'far below **Local**': ['lower than'],
    'The interval lies above 0, the figure above; the step is below it.': [],
    'A rung passes the gate': ['precondition', 'checkpoint'],
    'the IID deal, in the foot': ['note', 'IID split'],
    'Under stress, the letter of a house': ['training protocol', 'short budget', 'the text, or message'],
    '`gate` and `house`, houses and walls': [],
}

@pytest.mark.parametrize('text', OURS)
def test_a_word_of_ours_where_the_field_has_one(text):
    said = [what.rpartition('say ')[2] for _, what in pages.word_faults(text)]
    assert said == OURS[text]

def figure(pixels, **said):
    out = io.BytesIO()
    Image.new('RGBA', (pixels, 10)).save(out, 'PNG')
    return dict(
        output_type='display_data',
        data={'image/png': base64.b64encode(out.getvalue()).decode()},
        metadata={'image/png': said} if said else {},
    )

def test_wide_figures():
    "An inch is 120 pixels of the page; a figure with two pixels for one says its width."
    rules = lambda out: [rule for rule, _ in pages.figure_faults(code('plot()', out), 'plot()')]
    assert (
        rules(figure(961)) == ['figure'] and rules(figure(960)) == [] and rules(figure(1900, width=950)) == []
    )

def test_a_stored_warning_names_no_folder(monkeypatch):
    import nbexec  # slow to load
    monkeypatch.setattr(warnings, 'formatwarning', warnings.formatwarning)
    exec(nbexec.SETUP.partition('get_ipython')[0], {})
    assert warnings.formatwarning('odd', UserWarning, '/home/x.py', 3) == 'UserWarning: odd\n'

def test_a_drawing_needs_few_colours():
    "A photograph keeps all of its."
    import nbexec  # slow to load

    def png(im):
        out = io.BytesIO()
        im.save(out, 'PNG')
        return base64.b64encode(out.getvalue()).decode()

    drawing, photo = Image.new('RGBA', (99, 99), 'teal'), Image.effect_noise((99, 99), 90).convert('RGBA')
    photo.putalpha(255)
    photo = Image.merge(
        'RGBA',
        (
            photo.getchannel(0),
            photo.getchannel(1).rotate(90),
            photo.getchannel(2).rotate(180),
            photo.getchannel(3),
        ),
    )
    few = nbexec.in_few_colours(png(drawing))
    assert Image.open(io.BytesIO(base64.b64decode(few))).mode == 'P' and nbexec.in_few_colours(few) == few
    assert nbexec.in_few_colours(png(photo)) == png(photo)

def test_a_line_of_code_fits_its_box():
    "110 characters of the widest of our fonts, between gutters of 1.5 em, in a box with its padding."
    html, css = (
        yaml.safe_load((project.ROOT / '_quarto.yml').read_text())['format']['html'],
        (project.NBS / 'styles.css').read_text(),
    )
    (size,) = re.findall(r'pre > code.*?font-size: ([\d.]+)rem', css)
    (padding,) = re.findall(r'div.sourceCode pre .*?padding: \S+ ([\d.]+)rem', css)
    body, em = int(html['grid']['body-width'].removesuffix('px')), 17
    assert (
        pages.WIDTH * 0.602 * float(size) * em <= body - 3 * em - 2 - 2 * float(padding) * em
        and html['code-overflow'] == 'scroll'
    )

def test_the_links_of_the_navbar_lead_to_pages():
    navbar = yaml.safe_load((project.ROOT / '_quarto.yml').read_text())['website']['navbar']
    pages_ = [e['href'] for side in ('left', 'right') for e in navbar[side] if '://' not in e['href']]
    assert pages_ and set(pages_) <= project.rendered()

def test_what_every_site_has():
    "An icon, a page for addresses that do not exist, tags for who shares a page, a way to the changelog."
    config = yaml.safe_load((project.ROOT / '_quarto.yml').read_text())
    web, lost = config['website'], (project.NBS / '404.md').read_text()
    assert (project.NBS / web['favicon']).is_file() and web['open-graph'] is True
    assert '404.md' in config['project']['render']
    links = re.findall(r'\]\(/(.*?)\)', lost)
    assert links and set(links) <= project.rendered()
    assert any(e['href'].endswith('/CHANGELOG.md') for e in web['navbar']['right'])

def test_formulas_and_code_fit_the_page():
    "A display formula is not cut at the width of text, and code in a sentence wraps on a phone."
    rules = dict(re.findall(r'([^{}]+?) *\{([^{}]*)\}', (project.NBS / 'styles.css').read_text()))
    assert 'max-width: none' in rules['\nmain.content p:has(> math[display="block"])']
    assert 'pre-wrap' in rules[' main.content :not(pre) > code']

def test_pages_of_judge_show_no_code_unasked():
    judge = next(part for part in project.sidebar() if part['id'] == 'judge')['contents']
    first = [json.loads((project.NBS / p).read_text())['cells'][0] for p in judge]
    assert all(c['cell_type'] == 'raw' and 'code-fold: true' in ''.join(c['source']) for c in first)

def test_pages_are_numbered_as_they_are_read():
    "In each part of the site the pages of a folder come in the order of their numbers."
    for part in project.sidebar():
        numbered = [p for p in project.named(part['contents']) if re.search(r'/\d\d_', p)]
        read = sorted(numbered, key=lambda page: page.rpartition('/')[0])
        assert read == sorted(read), part['id']

# ---- a notebook is source and test; a page is what somebody reads
PAGES = 112  # with a study, NVFlare, photographs, privacy; may only fall; without the references of the rooms

def test_what_is_a_page():
    "What the sidebar names, and the first page. Each other notebook has a module, so a reference has it."
    found = [p for p in project.rendered() if not p.startswith(reference.FOLDER)]
    says = f'{len(found)} pages, at most {PAGES}: take one out of nbs/sidebar.yml, or leave it a listing'
    assert len(found) <= PAGES, says
    assert [p for p in found if not (project.NBS / p).is_file()] == []
    names = [p.relative_to(project.NBS).as_posix() for p in project.notebooks()]
    listings = [n for n in names if project.is_listing(n)]
    assert len(listings) == len(names) - len(found)
    told = {n for parts in reference.rooms().values() for p in parts for n in p.notebooks}
    assert set(listings) <= told

def test_the_references_are_in_the_sidebar():
    found = {p for p in project.rendered() if p.startswith(reference.FOLDER)}
    assert found == {f'{reference.FOLDER}/{room}.ipynb' for room in reference.ROOMS}

def test_every_public_name_is_in_a_reference():
    "With a heading of its own, to which a link can lead; modules and names are those of today."
    for m in reference.modules().values():
        short = m.name.removeprefix('fedskew_nb.')
        missing = [n for n in m.all if (short, n.lower()) not in reference.ids()]
        assert not missing, (short, missing)
    for room, parts in reference.rooms().items():
        ids = [i for p in parts for i in [p.id, *(e.id for e in p.entries)]]
        assert parts and len(ids) == len(set(ids)), room

def test_an_entry_of_a_reference():
    "A signature, a sentence, what each argument is, and the line that defines it."
    (merge,) = [p for p in reference.rooms()['engine'] if p.module == 'engine.federation']
    entry = next(e for e in merge.entries if e.name == 'Federation.answers')
    text = reference.shown(entry)
    head = '#### `Federation.answers` {#federation.answers}\n\n```python\nFederation.answers('
    assert text.startswith(head)
    assert 'self' not in entry.code and '/fedskew_nb/engine/federation.py#L' in text
    assert '| `aux` | further answers: ' in text and '<summary>Arguments</summary>' in text
    assert reference.escaped('a `<b>` and <c>|d') == r'a `<b>` and \<c\>\|d'

LINKS = {  # on a page of 3_results: where the site leads
    '[x](07_trust.ipynb#a)': '[x](07_trust.ipynb#a)',
    '[x](09_table.ipynb)': '[x](../reference/analysis.ipynb#module-table)',
    '[x](../4_core/11_names.ipynb#nearest)': '[x](../reference/core.ipynb#nearest)',
    '<a href="09_table.ipynb">': '<a href="../reference/analysis.ipynb#module-table">',
    '[x](09_table.ipynb#the-foot)': f'[x]({reference.in_repository("3_results/09_table.ipynb")})',
    '[x](09_table.ipynb#no-such-part)': '[x](../reference/analysis.ipynb#no-such-part)',
    '[x](../2_methods/baselines/05_control.ipynb)':
        '[x](../2_methods/baselines/04_regularise.ipynb#scaffold-and-feddc)',
    '[x](https://a.b/c.ipynb) [y](gone.ipynb)': '[x](https://a.b/c.ipynb) [y](gone.ipynb)',
}

@pytest.mark.parametrize('text', LINKS)
def test_a_link_to_a_listing_leads_to_its_reference(text):
    assert own_links.to_reference(text, '3_results/01_results.ipynb') == LINKS[text]

def test_the_page_that_tells_a_listing_leads_to_its_source():
    found = own_links.to_reference('[x](05_control.ipynb)', '2_methods/baselines/04_regularise.ipynb')
    assert found == f'[x]({reference.in_repository("2_methods/baselines/05_control.ipynb")})'

def test_a_link_to_a_method_leads_to_its_class():
    "Which stands whole on its page; what is no class there stays."
    there = '[x](../6_engine/01_setting.ipynb#setting'
    for owner, led in ((f'{there}.rate)', f'{there})'), (f'{there}_for.rate)', f'{there}_for.rate)')):
        assert own_links.to_reference(owner, '1_begin/06_names.ipynb') == led

def test_the_font_of_formulas():
    "Shipped in the style sheet, small, under a name of its own, with its licence."
    font, css = mathfont.FONT, (project.NBS / 'styles.css').read_text()
    assert font.relative_to(project.NBS).as_posix() in css
    assert f'math {{ font-family: "{mathfont.NAME}"' in css
    assert font.stat().st_size < 100_000 and (font.parent / 'GUST-FONT-LICENSE.txt').exists()
    got = TTFont(font)
    assert got['name'].getDebugName(1) == mathfont.NAME and 'Latin Modern' in got['name'].getDebugName(0)
    assert 'MATH' in got

def test_what_a_browser_draws():
    mathml = '<mi>h</mi><mi>μ</mi><mi mathvariant="normal">log</mi><mo>&lt;</mo><mn>12</mn><mi>max</mi>'
    assert ''.join(check_docs.drawn(mathml)) == 'ℎ𝜇log<12max'

def test_an_answer_is_folded_with_its_output_and_nothing_else_is():
    rules = [l for l in (project.NBS / 'styles.css').read_text().splitlines() if ':not([open])' in l]
    assert [r.partition(' > ')[0] for r in rules] == ['.cell.answer']
    answer = '#| code-fold: true\n#| code-summary: "Answer to 1"\nprint(2)'
    assert own_links.marked(answer) == '#| classes: answer\n' + answer
    assert own_links.marked('print(2)') == 'print(2)'
    figure = '#| code-fold: true\nplot()'
    assert own_links.marked(figure) == figure

def test_imports_are_folded_on_the_site():
    assert own_links.marked('import torch\nfrom a import b').startswith('#| code-fold: true\n')
    for kept in ('import torch\nx = 2', '#| echo: false\nimport torch', '%load_ext x', ''):
        assert own_links.marked(kept) == kept

def whole(name, *sources):
    "The code of a page with these cells, as the site has it."
    nb = dict2nb(cells=[code(s) for s in sources], metadata={}, nbformat=4, nbformat_minor=5)
    nb.path_ = project.NBS / name
    processors = [add_show_docs, own_links.hidden, own_links.whole_code]
    NBProcessor(nb=nb, procs=processors).process()
    return [c.source for c in nb.cells]

def test_a_page_shows_the_code_that_it_exports():
    "Open in a chapter, below what is said of it; under its name where people look for what to do."
    two = 'def f(x):\n    return x\n\ndef g(x):\n    return x'
    cells = '#| export\nimport math', 'import json', f'#| export\n{two}', '#| exporti\n_a = 2', '#| hide\n1+1'
    docs = ['show_doc(f)', 'show_doc(g)']
    assert whole('4_core/09_rules.ipynb', *cells) == ['import math\nimport json', *docs, two, '_a = 2']
    *_, source, a = whole('7_app/17_diagnose.ipynb', *cells)
    assert source == f'#| code-fold: true\n#| code-summary: "Source of f, g"\n{two}' and a.endswith('_a = 2')
    assert own_links.marked(source) == source
    long = 'x = 1\n' * 151
    assert whole('4_core/09_rules.ipynb', f'#| export\n{long}')[0].startswith('#| code-fold: true')

def test_a_text_that_only_hidden_code_follows():
    cells = [md('one'), code('#| exporti\nx = 1'), md('two'), code('f()'), md('three')]
    cells = [c | dict(id=str(i)) for i, c in enumerate(cells)]
    unseen = cells[1] | dict(source='#| include: false\nx = 1')
    for page in ([cells[0], *cells[2:]], [cells[0], unseen, *cells[2:]]):
        assert check_docs.orphans(dict(cells=cells), dict(cells=page)) == ['one']
    assert check_docs.orphans(dict(cells=cells), dict(cells=cells)) == []

TYPED = (
    'non-iid', 'batch norm', 'heterogeneous', 'personalized', 'feature shift', 'domain generalization',
    'confidence interval', 'accuracy table', 'add my own method',
)  # fmt: skip

def test_a_search_knows_the_words_of_others(tmp_path):
    "What people type finds the page that the glossary names, before one that only mentions it."
    words = {w.lower(): page for page, words in search.synonyms().items() for w in words}
    assert not {*TYPED} - words.keys() and {*words.values()} <= project.rendered()
    write(tmp_path / 'other.ipynb', md(f'## Related\n\n{" ".join(TYPED)}'))
    for page in {*words.values()}:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / page, md('# Title'), md(search.hidden_line(page)))
    docs = search.index(tmp_path)
    assert {w: search.find(w, docs, 1)[0].page for w in words} == words
    assert search.hidden_line('1_begin/07_install.ipynb') is None
    assert '.synonyms { display: none; }' in (project.NBS / 'styles.css').read_text()

def test_what_is_shown_in_full_is_not_announced_twice():
    said = '---\n\n[source](f.py#L1)\n\n### twice\n\n```python\n\ndef twice(\n    x\n):\n\n\n```\n\n*Two.*'
    assert own_links.shortened(said) == '---\n\n[source](f.py#L1)\n\n### twice\n'

def test_an_id_does_not_break():
    row = '| holds | F2DC-01* | a well-known sentence | emoji-pacs | -1.2 (-2.9 to 0.5) |'
    assert own_links.unbroken(row) == row.replace('F2DC-01*', '[F2DC-01*]{.unbroken}').replace(
        'emoji-pacs', '[emoji-pacs]{.unbroken}'
    )
    assert own_links.unbroken('|:----|-----:|') == '|:----|-----:|'

def test_a_page_says_where_it_stands():
    assert '*Chapter 2, F2DC:* page 2 of ' in own_links.chapters()['2_methods/f2dc/02_correct.ipynb']
    assert '1_begin/04_glossary.ipynb' not in own_links.chapters()

def test_the_bars_of_a_norm():
    assert own_links.norms(r'$\|x\|$, $$\|y\|$$ | a \| b |') == r'$\Vert x\Vert$, $$\Vert y\Vert$$ | a \| b |'

CHAPTER = [
    code('#| default_exp x'),
    md('# Title\n\n> One sentence.'),
    code('import torch'),
    md('See [there](other.ipynb#a).\n\n```python\n# no heading\n```'),
    code('#| echo: false\n#| label: fig-a\nplot()', png()),
    code('#| code-fold: true\n#| label: fig-b\ndraw()', png()),
    md('## Limits\n\nNone.\n\n### Small\n\n## Exercises\n\n1. Why?\n2. Show it.'),
    code('#| eval: false\nassert False'),
    code('#| code-fold: true\n#| code-summary: "Answer to 2"\nx = 2'),
    md('<details><summary>Answers</summary>So.</details>\n\n**Where next:** [on](other.ipynb).'),
]

def test_slides():
    "Headings begin slides, exercises come one by one, answers and plumbing are left out."
    found = list(slides.typed(CHAPTER))
    assert [(c['metadata']['slideshow']['slide_type'], c['source'].partition('\n')[0]) for c in found] == [
        ('slide', '# Title'),
        ('subslide', 'See there.'),
        ('-', 'plot()'),
        ('-', 'draw()'),
        ('slide', '## Limits'),
        ('subslide', '### Small'),
        ('slide', '## Exercises'),
        ('fragment', '1. Why?'),
        ('fragment', '2. Show it.'),
        ('fragment', 'assert False'),
    ]
    assert [c['source'] for c in found if 'transient' in c['metadata']] == ['plot()', 'draw()']
    assert '1_begin/01_start' in slides.chapters()

def test_a_slide_holds_what_stands_on_it():
    "Long prose is cut between paragraphs, not inside code; a picture has its caption, a table no link."
    long = '\n\n'.join(['## Head', *['word ' * 300] * 3, '```python\nx = 1\n\n' + 'y = 2\n' * 30 + '```'])
    parts = list(slides.pieces(long))
    assert '\n\n'.join(parts) == long and len(parts) > 2 and all(p.count('```') % 2 == 0 for p in parts)
    assert list(slides.pieces('Short.\n\nToo.')) == ['Short.\n\nToo.']
    table = dict(output_type='display_data', data={'text/markdown': '[a](b.ipynb) | c'}, metadata={})
    found = slides.printed(code('#| fig-cap: "A cap."\nplot()', table), {'fig-cap': '"A cap."'})['outputs']
    assert [o['data']['text/markdown'] for o in found] == ['a | c', '*A cap.*']
    twice = png() | dict(metadata={'image/png': dict(height=9)})
    assert (slides.drawn(twice), slides.drawn(png()), slides.drawn(svg())) == (9, 1, 40)
    assert slides.plain('One. <script type="module">x()</script>') == 'One. '

def test_a_page_on_paper():
    "A4, the text alone, black on white, and a line of code that breaks."
    css = (project.NBS / 'styles.css').read_text()
    paper = css[css.index('@media print') :]
    rules = dict(re.findall(r'([^{}]+?) *\{([^{}]*)\}', paper.partition('{')[2]))
    rules = {' '.join(k.split()): v for k, v in rules.items()}
    assert 'size: A4' in rules['@page']
    (gone,) = [k for k, v in rules.items() if 'display: none' in v]
    assert {'#quarto-header', '.sidebar', '.nav-page', '.code-copy-button'} <= set(gone.split(', '))
    (wraps,) = [k for k, v in rules.items() if 'white-space: pre-wrap' in v]
    assert 'div.sourceCode pre' in wraps.split(', ')
    assert 'break-inside: avoid' in rules['figure, .cell-output-display, main.content tr']
    inline = rules['main.content :not(pre) > code']  # also where the system is dark, and with backgrounds
    assert 'color: inherit !important' in inline and 'background: none !important' in inline

def test_a_page_links_to_its_notebook_and_to_the_issues():
    web = yaml.safe_load((project.ROOT / '_quarto.yml').read_text())['website']
    assert web['repo-subdir'] == 'nbs' and web['repo-actions'] == ['source', 'issue']

def test_the_way_in_is_written_out():
    "Who knows nothing of the project can copy the lines: where it lies, and where its folder begins."
    url = project.settings()['git_url']
    clone, install = f'git clone {url}; cd {project.settings()["repo"]}', f'git+{url}'
    for page in ('index', '1_begin/07_install', '../README.md'):
        text = (project.NBS / (page if page.endswith('.md') else f'{page}.ipynb')).read_text()
        assert clone in text and install in text, page

def test_learn_begins_with_the_papers():
    "Three baselines, the five papers, then more baselines; in every section the files in their order."
    learn = next(part for part in project.sidebar() if part['id'] == 'learn')['contents']
    sections = {e['section']: e['contents'] for e in learn if isinstance(e, dict)}
    chapters = ['First baselines', 'F2DC', 'FDSE', 'FedDDL', 'RFedDis', 'DFL', 'More baselines']
    assert list(sections)[:7] == [f'{n} {chapter}' for n, chapter in enumerate(chapters, 1)]
    for name in list(sections)[:7]:
        assert sections[name] == sorted(sections[name]), name
