"What pages store is what today's code makes of the stored runs."
import ast, re, shutil
import matplotlib.pyplot as plt, pytest
from IPython.core.formatters import MarkdownFormatter
from fedskew_nb.core.names import papers
from project import NBS, notebooks, read, source

EVIDENCE = [f'{m.EVIDENCE}.ipynb' for m in papers().values()]

def text(cell):
    "What a cell shows as text."
    shown = [o.get('text') or o.get('data', {}).get('text/markdown', '') for o in cell.get('outputs', [])]
    return ''.join(map(''.join, shown))

def fresh(cells):
    "What the last of these cells shows, after the others have run in this process."
    names = {}
    *before, last = (ast.parse(source(c)).body for c in cells)
    *lines, shown = last
    exec(compile(ast.Module([*sum(before, []), *lines], []), 'page', 'exec'), names)
    return MarkdownFormatter()(eval(compile(ast.Expression(shown.value), 'page', 'eval'), names))

@pytest.mark.parametrize('page', EVIDENCE)
def test_the_first_verdicts_of_a_paper(page):
    code = [c for c in read(NBS/page)['cells'] if c['cell_type'] == 'code']
    at = next(i for i, c in enumerate(code) if 'claims_table(' in source(c))
    try: assert text(code[at]) == fresh(code[:at+1]), f'call make execute NB=nbs/{page}'
    finally: plt.close('all')

SEEN = {    # what the method pages say in their last lines
    'style': dict(above=['FedBN − FedAvg', 'F2DC − FedAvg', 'FedBN + DC + AdaBN − FedBN + AdaBN']),
    'style, unseen': dict(above=['FDSE-10*'], below=['FDSE-11b']),
    'hue': dict(above=['FedBN − FedAvg'], below=['F2DC − FedAvg']),
    'kind of digit': dict(above=['RFedDis-1r', 'DFL(mu_s=0, mu_c=0) − FedBN']),
    'background, unseen': dict(above=['FedDDL-1*', 'FedDDL-1m'], below=['FedBN − FedAvg']),
    'noise': dict(above=['RFedDis-5*'])}

def test_what_was_seen_to_help():
    cell = next(c for c in read(NBS/'1_begin'/'02_when.ipynb')['cells'] if text(c).count('| above 0') > 9)
    rows = [[v.strip() for v in r.strip('|').split('|')] for r in text(cell).splitlines() if r[:1] == '|']
    found = {(r[0], r[1].partition(':')[0]): r[4] for r in rows}
    for skew, words in SEEN.items():
        for word, names in words.items(): assert all(found[skew, n].startswith(f'{word} 0') for n in names)
    never = ('FedProx − FedAvg', 'FDSE − FedAvg', 'DFL − FedAvg', 'FDSE-11b')
    assert not [k for k, word in found.items() if k[1] in never and word.startswith('above')]

def test_the_plans_of_a_course():
    "Their minutes and exercises are those that the pages have today."
    page = '1_begin/12_teach.ipynb'
    code = [c for c in read(NBS/page)['cells'] if c['cell_type'] == 'code']
    plans = [i for i, c in enumerate(code) if '\nplan(' in source(c)]
    assert len(plans) == 3
    for i in plans: assert text(code[i]) == fresh(code[:i+1]), f'call make execute NB=nbs/{page}'

@pytest.mark.campaign
def test_all_text_of_pages_with_stored_runs(tmp_path):
    import nbexec
    stale = []
    for page in notebooks():
        if not re.search(r'stored_(claims|results)\(', page.read_text(encoding='utf-8')): continue
        nbexec.execute(new := shutil.copy(page, tmp_path/page.name))
        if [*map(text, read(page)['cells'])] != [*map(text, read(new)['cells'])]: stale.append(page.name)
    assert stale == []
