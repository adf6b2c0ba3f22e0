"The pictures that move on the site (nbs/live) compute what the package computes."
import json, re, shutil, subprocess, threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import patch
import numpy as np, pytest, torch
from scipy.special import stdtrit
from scipy.stats import kstest
from fedskew_nb.analysis.pairs import image_error
from fedskew_nb.analysis.stats import t_interval
from fedskew_nb.data.load import load_suite
from fedskew_nb.methods.baselines import average
from fedskew_nb.methods.f2dc.mask import brightness_scores, gumbel_mask
from fedskew_nb.methods.fdse.consensus import min_norm
from fedskew_nb.methods.rfeddis.evidence import beliefs, fuse
from project import NBS, read, source

LIVE, NODE = NBS/'live', shutil.which('node')
CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser')
PROXIMAL, CONSENSUS = '2_methods/baselines/02_proximal.ipynb', '2_methods/fdse/01_consensus.ipynb'
FUSION, MASK = '2_methods/rfeddis/02_fusion.ipynb', '2_methods/f2dc/01_mask.ipynb'
PAIRS = '3_results/25_pairs.ipynb'
PICTURES = [(PROXIMAL, 'bowls', 40, 'With E = 40 '), (CONSENSUS, 'hull', 45, 'With updates at 45 , 20 '),
            (FUSION, 'fusion', 9, 'When the global head has evidence 9 , 1 '),
            (MASK, 'mask', 1, 'With a softness σ = 1 '), (PAIRS, 'interval', 8, 'With 8 ')]

@pytest.fixture
def double():
    "Python's side in float64, as JavaScript computes."
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)

def in_node(module, said):
    "What an expression over a module's names, `m`, gives."
    if NODE is None: pytest.skip('node is not installed: nbs/live is not compared with the package')
    code = f"import('{(LIVE/module).as_uri()}').then(m => console.log(JSON.stringify({said})))"
    out = subprocess.run([NODE, '-e', code], capture_output=True, text=True, timeout=60)
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout)

def sentence(page, name):
    "The paragraph of a page that a picture stands below, with the script that draws it."
    return next(s for c in read(NBS/page)['cells'] if f'id="live-{name}"' in (s := source(c)))

def test_two_bowls(double):
    settings = [(E, mu) for E in (1, 2, 10, 40, 60) for mu in (0., .25, 2., 8.)]
    asked = json.dumps(settings)
    told = in_node('bowls.mjs', f'{asked}.map(([E, mu]) => [m.rounds(E, mu), m.steps([.9, 1.1], 1, E, mu)])')
    for (E, mu), (rounds, steps) in zip(settings, told, strict=True):
        torch.testing.assert_close(torch.tensor(rounds), average.bowl_rounds(E, mu), rtol=0, atol=1e-6)
        path = average.bowl_steps(torch.tensor([.9, 1.1]), 1, E, mu)
        torch.testing.assert_close(torch.tensor(steps), path, rtol=0, atol=1e-6)

def test_the_sentence_without_a_slider_is_true(double):
    said = sentence(PROXIMAL, 'bowls')
    E, mu, end, rounds = re.findall(r'data-\w+="\w+"[^>]*>([\d.]+)<', said)
    way = average.bowl_rounds(int(E), float(mu), 100)
    assert end == f'{(way[-1]+7/9).norm():.2f}'
    assert int(rounds) == ((way-way[-1]).norm(dim=1) > .01).sum()

def nearest(angles):
    "What the package says of three unit updates: weights, nearest point, the mean's smallest inner product."
    a = np.radians(angles)
    D = np.stack([np.cos(a), np.sin(a)], 1)
    lam = min_norm(D @ D.T)
    return lam, lam @ D, (D @ D.mean(0)).min()

def test_the_hull():
    drawn = 5*np.random.default_rng(0).integers(-36, 37, (300, 3))
    cases = [*drawn.tolist(), [0, 0, 0], [0, 0, 180], [-180, 180, 5], [10, 50, 150], [10, 130, 250]]
    told = in_node('hull.mjs', f'{json.dumps(cases)}.map(m.nearest)')
    for angles, said in zip(cases, told, strict=True):
        lam, u, worst = nearest(angles)
        np.testing.assert_allclose(said['u'], u, atol=1e-6, err_msg=str(angles))
        np.testing.assert_allclose(said['worst'], worst, atol=1e-6)
        sides = {a % 360 for a in angles}
        if len(sides) == 3 and not any((a+180) % 360 in sides for a in sides):    # else λ is not unique
            np.testing.assert_allclose(said['lam'], lam, atol=1e-6, err_msg=str(angles))

def test_the_hull_sentence_is_true():
    said = re.findall(r'data-\w+="\w+"[^>]*>([^<]+)<', sentence(CONSENSUS, 'hull'))
    lam, u, worst = nearest([float(a) for a in said[:3]])
    worst = f'{worst:.2f}'.replace('-', '−')
    assert said[3:] == [', '.join(f'{l:.2f}' for l in lam), f'{np.hypot(*u):.2f}', worst]

def fused(e, f):
    "Beliefs in three classes, and what stays open, by the package."
    b, u = beliefs(fuse(torch.tensor(e), torch.tensor(f)))
    return torch.cat([b, u.reshape(1)])

def test_two_opinions(double):
    drawn = torch.randint(0, 31, (50, 2, 3), generator=torch.Generator().manual_seed(0)).double().tolist()
    cases = [*drawn, [[0., 0., 0.], [0., 0., 0.]], [[30., 0., 0.], [0., 30., 0.]]]
    told = in_node('fusion.mjs', f'{json.dumps(cases)}.map(([e, f]) => m.masses(m.fuse(e, f)))')
    for (e, f), said in zip(cases, told, strict=True):
        said = torch.tensor(said, dtype=torch.float64)
        torch.testing.assert_close(said, fused(e, f), rtol=0, atol=1e-6)

def test_the_fused_sentence_is_true(double):
    said = re.findall(r'data-\w+="\w+"[^>]*>([^<]+)<', sentence(FUSION, 'fusion'))
    numbers = [float(x) for x in said[:6]]
    *b, u = [f'{x:.2f}' for x in fused(numbers[:3], numbers[3:])]
    assert said[6:] == [', '.join(b), u]

def photo_scores(factor):
    return brightness_scores(load_suite('emoji-pacs', 'tiny').tests['photo'].x[2], factor).double()

def noisy_and_plain(S, sigma):
    "Both masks by the package, with Park and Miller's numbers as noise."
    u, s = [], 1
    for _ in range(32*32+10):
        s = s*48271 % (2**31-1)
        u.append(s/(2**31-1))
    return gumbel_mask(S, sigma, torch.tensor(u[10:]).reshape(32, 32)), gumbel_mask(S, sigma)

def test_the_gumbel_mask(double):
    for sigma, factor in ((.1, 3.), (.05, 6.), (1., .5), (3., 2.)):
        S, told = in_node('mask.mjs', f'[m.scores({factor}), m.masks({sigma}, {factor})]')
        S = torch.tensor(S).reshape(32, 32)
        torch.testing.assert_close(S, photo_scores(factor), rtol=1e-5, atol=1e-5)    # which is in float32
        for said, M in zip((told['noisy'], told['plain']), noisy_and_plain(S, sigma), strict=True):
            torch.testing.assert_close(torch.tensor(said).reshape(32, 32), M, rtol=0, atol=1e-6)

def test_the_mask_sentence_is_true(double):
    sigma, factor, undecided, turned = re.findall(r'data-\w+="\w+"[^>]*>([\d.]+)<', sentence(MASK, 'mask'))
    noisy, plain = noisy_and_plain(photo_scores(float(factor)), float(sigma))
    between, other = (noisy > .01) & (noisy < .99), (noisy > .5) != (plain > .5)
    assert [undecided, turned] == [f'{100*share.double().mean():.0f}' for share in (between, other)]

def by_package(values, images):
    "The interval of one draw with the floor of its images."
    share = [abs(v)/100 for v in values]
    i = t_interval(values, floor=image_error([[(p*(1-p), images)] for p in share]))
    return dict(mean=i.mean, lo=i.lo, hi=i.hi)

def test_what_seeds_and_images_do():
    np.testing.assert_allclose(in_node('interval.mjs', 'm.T'), [stdtrit(n-1, .975) for n in range(2, 21)])
    for n, images, truth in ((2, 50, 0), (5, 500, 2), (20, 2000, -1.5)):
        asked = f'[...Array(40).keys()].map(k => m.seeds({n}, {images}, {truth}, k))'
        draws, told = in_node('interval.mjs', f'[{asked}, m.forty({n}, {images}, {truth})]')
        for values, said in zip(draws, told, strict=True):
            assert said == pytest.approx(by_package(values, images), abs=1e-6)
        luck = (np.ravel(draws)-truth)/np.hypot(1, 100*(.1/images)**.5)
        assert kstest(luck, 'norm').pvalue > .01
    alike = in_node('interval.mjs', 'm.interval([2, 2, 2], 36)')              # only the images leave it open
    assert alike == pytest.approx(by_package([2]*3, 36), abs=1e-6)

def test_the_interval_sentence_is_true():
    said = re.findall(r'data-\w+="\w+"[^>]*>([\d.]+)<', sentence(PAIRS, 'interval'))
    n, images, truth, *counts = map(int, said)
    asked = f'[...Array(40).keys()].map(k => m.seeds({n}, {images}, {truth}, k))'
    all_ = [by_package(values, images) for values in in_node('interval.mjs', asked)]
    held = [i['lo'] <= truth <= i['hi'] for i in all_]
    assert counts == [sum(i['lo'] > 0 for i in all_), sum(i['hi'] < 0 for i in all_), sum(held)]

def test_prose_sends_nobody_to_a_slider():
    "It stands in the sentence, or the reader is not told to move one: the site has no kernel."
    order = re.compile(r'\bsliders?\b|\b(Move|Turn|Choose|Drag) (\$|[β-ω]|the (weight|evidence|channel))')
    for p in sorted((NBS/'2_methods').rglob('*.ipynb')) + sorted((NBS/'3_results').glob('*.ipynb')):
        prose = [source(c) for c in read(p)['cells'] if c['cell_type'] == 'markdown']
        told = [m[0] for s in prose if 'data-slider' not in s for m in order.finditer(s)]
        assert told == [], p.name

def in_chromium(root, name):
    "A page's elements when its scripts have run."
    quiet = partial(SimpleHTTPRequestHandler, directory=root)
    silent = patch.object(SimpleHTTPRequestHandler, 'log_message')
    with silent, ThreadingHTTPServer(('localhost', 0), quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f'http://localhost:{server.server_port}/{name}'
        how = ['--headless', '--no-sandbox', '--disable-gpu', '--virtual-time-budget=4000', '--dump-dom']
        out = subprocess.run([CHROMIUM, *how, f'--user-data-dir={root}/home', url],
                             capture_output=True, text=True, timeout=120)
        server.shutdown()
    return out.stdout

@pytest.mark.campaign
@pytest.mark.skipif(CHROMIUM is None, reason='Chromium is not installed: no slider is moved')
@pytest.mark.parametrize('page, name, to, begins', PICTURES)
def test_a_moved_slider_moves_the_sentence(page, name, to, begins, tmp_path):
    shutil.copytree(LIVE, tmp_path/'live')
    moved = f"""<script type="module">const s = document.querySelector('input');
        s.value = {to}; for (const e of ['input', 'change']) s.dispatchEvent(new Event(e));</script>"""
    where = (tmp_path/page).with_suffix('.html')
    where.parent.mkdir(parents=True)
    where.write_text('<meta charset="utf-8">'+sentence(page, name)+moved, encoding='utf-8')
    out = in_chromium(tmp_path, where.relative_to(tmp_path))
    said = re.sub(r'<[^>]+>', '', re.search(f'<p id="live-{name}">(.*?)</p>', out, re.S)[1])
    assert said.startswith(begins) and out.count(f'aria-label="{begins}') == 1
    assert f'aria-live="polite">{begins}' in out
    assert out.count('<circle') > 3 or out.count('<rect') > 1000

@pytest.mark.campaign
@pytest.mark.skipif(CHROMIUM is None, reason='Chromium is not installed: no page is measured')
def test_a_phone_scrolls_tables_and_figures_in_their_boxes(tmp_path):
    "390 px: the page is no wider, and a figure made for 937 px is not shrunk until nobody can read it."
    cells = '<tr>'+'<td>'+'</td><td>'.join(['a sentence of words']*9)+'</td></tr>'
    svg = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 937 300'></svg>"
    figure = f'<div class="cell-output-display"><figure><img width="937" src="{svg}"></figure></div>'
    small = figure.replace('937"', '541"')
    told = """<script>onload = () => { const of = e => [e.clientWidth, e.scrollWidth];
        const all = [document.documentElement, ...document.querySelectorAll('table, figure')].map(of);
        parent.postMessage(JSON.stringify(all)); }</script>"""
    theme = 'html { font-size: 17px } * { box-sizing: border-box }'
    style = f'<!doctype html><style>{theme}{(NBS/"styles.css").read_text(encoding="utf-8")}</style>'
    head = cells.replace('td>', 'th>')
    body = f'<main class="content"><table>{head}{cells}</table>{figure}{small}</main>'
    (tmp_path/'in.html').write_text(style+body+told, encoding='utf-8')
    frame = """<iframe src="in.html" style="width:390px;border:0"></iframe><p id="told"></p>
        <script>onmessage = e => { document.getElementById('told').textContent = e.data; }</script>"""
    (tmp_path/'out.html').write_text(frame, encoding='utf-8')
    out = re.search('<p id="told">(.*?)</p>', in_chromium(tmp_path, 'out.html'))[1]
    page, table, wide, narrow = json.loads(out)
    assert page[1] <= 390 and table[0] < 390 < 700 < table[1]
    assert wide[0] < 390 < 600 < wide[1] and narrow[0] == narrow[1]
