"The pictures that move on the site (nbs/live) compute what the package computes."
import json, re, shutil, subprocess, threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import patch
import pytest, torch
from fedskew_nb.methods.baselines import average
from project import NBS, read, source

LIVE, NODE = NBS/'live', shutil.which('node')
CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser')
PROXIMAL = '2_methods/baselines/02_proximal.ipynb'

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

@pytest.mark.campaign
@pytest.mark.skipif(CHROMIUM is None, reason='Chromium is not installed: no slider is moved')
def test_a_moved_slider_moves_the_sentence(tmp_path):
    shutil.copytree(LIVE, tmp_path/'live')
    moved = """<script type="module">const s = document.querySelector('input');
        s.value = 40; for (const e of ['input', 'change']) s.dispatchEvent(new Event(e));</script>"""
    folder = tmp_path/'a/b'
    folder.mkdir(parents=True)
    (folder/'page.html').write_text('<meta charset="utf-8">'+sentence(PROXIMAL, 'bowls')+moved, encoding='utf-8')
    quiet = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with patch.object(SimpleHTTPRequestHandler, 'log_message'), ThreadingHTTPServer(('localhost', 0), quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f'http://localhost:{server.server_port}/a/b/page.html'
        how = ['--headless', '--no-sandbox', '--disable-gpu', '--virtual-time-budget=4000', '--dump-dom']
        out = subprocess.run([CHROMIUM, *how, f'--user-data-dir={tmp_path}/home', url],
                             capture_output=True, text=True, timeout=120)
        server.shutdown()
    said = re.sub(r'<[^>]+>', '', re.search(r'<p id="live-bowls">(.*?)</p>', out.stdout, re.S)[1])
    assert 'With E = 40 ' in said and out.stdout.count('aria-label="With E = 40 ') == 1
    assert re.search(r'aria-live="polite">With E = 40 ', out.stdout) and '<polyline' in out.stdout
