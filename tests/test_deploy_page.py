"The commands of the page on hospitals, in their order, from an empty folder."
import re, shlex, sys
import pytest
from test_deploy import draw
from fedskew_nb import _main
from project import NBS, read, source

PAGE = NBS/'8_deploy'/'01_hospitals.ipynb'

def commands()->list:
    "Lines of the blocks of a shell."
    text = '\n'.join(source(c) for c in read(PAGE)['cells'] if c['cell_type'] == 'markdown')
    blocks = re.findall('^```bash\n(.*?)^```', text, re.M | re.S)
    return [line for block in blocks for line in block.splitlines() if line and line[0] != '#']

@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('FEDSKEW_CACHE', str(tmp_path/'cache'))
    for site, domain in dict(east='dawn', north='noon', west='dusk').items(): draw(tmp_path/site, domain)
    draw(tmp_path/'NEW_PICTURES', 'rain')
    return tmp_path

def without_network(words):
    "A run over nodes as its rehearsal, which leaves the same files."
    if '--nodes' not in words: return words
    k = words.index('--nodes')
    return [*words[:k], *words[k+2:], *(w for s in ('east', 'north', 'west') for w in ('--rehearse', s))]

def test_the_commands_of_the_page_follow_from_each_other(home, monkeypatch, capsys):
    "What is left out: pip, the server and nodes, and what is said to a server elsewhere."
    for library in ('onnx', 'onnxscript', 'onnxruntime', 'cryptography'): pytest.importorskip(library)
    run, left = [], []
    for line in commands():
        words = shlex.split(line)
        if words[0] != 'fedskew' or words[1] in ('serve', 'node') or '--ca' in words:
            left.append(line)
            continue
        monkeypatch.setattr(sys, 'argv', without_network(words))
        assert _main() == 0, (line, capsys.readouterr().err[-2000:])
        run.append(words[1])
    assert run == ['federate', 'federate', 'export', 'predict', 'certs']
    assert len(left) == 10 and sum(line.startswith('pip ') for line in left) == 3
    made = 'runs/first/report.html', 'runs/second/report.html', 'skin.onnx', 'predictions.csv', 'certs/ca.crt'
    assert all((home/f).exists() for f in made)
    assert len((home/'predictions.csv').read_text().splitlines()) == 1+16
