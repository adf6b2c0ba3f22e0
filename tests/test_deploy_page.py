"The commands of the page on hospitals, in their order, from an empty folder."
import re, shlex, sys
import pytest, yaml
from test_deploy import draw
from fedskew_nb import _main
from fedskew_nb.deploy import flower, rehearse
from fedskew_nb.tools.shell import parsed
from project import NBS, read, source

PAGE = NBS/'8_deploy'/'01_hospitals.ipynb'
COMMANDS = flower.COMMANDS | rehearse.COMMANDS

def blocks(language)->list:
    text = '\n'.join(source(c) for c in read(PAGE)['cells'] if c['cell_type'] == 'markdown')
    return re.findall(f'^```{language}\n(.*?)^```', text, re.M | re.S)

def commands()->list:
    "Lines of the blocks of a shell."
    return [line for block in blocks('bash') for line in block.splitlines() if line and line[0] != '#']

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

def test_the_commands_of_the_page_follow_from_each_other(home, monkeypatch, capsys, unsaved):
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

# ---- as a service

def services()->dict: # {name: words after fedskew}
    "The commands of the compose file and of the unit."
    compose, = map(yaml.safe_load, blocks('yaml'))
    unit, = (re.search('^ExecStart=(.*)$', block, re.M)[1] for block in blocks('ini'))
    found = {n: s['command'] for n, s in compose['services'].items()} | dict(unit=unit.partition(' ')[2])
    return {n: shlex.split(words) for n, words in found.items()}

def test_services_run_commands_of_ours_in_the_folder_that_lies_outside():
    compose, image = yaml.safe_load(blocks('yaml')[0])['services'], blocks('dockerfile')[0]
    assert 'ENTRYPOINT ["fedskew"]' in image
    home = re.search('^WORKDIR (.*)$', image, re.M)[1]
    for name, words in services().items():
        how = parsed(COMMANDS[words[0]], words[0], words[1:])
        if name == 'unit': continue
        mounts = dict(v.split(':')[:2] for v in compose[name]['volumes'])
        assert mounts[home] == home and compose[name]['build'] == '.'
        if 'data' in how: assert mounts[how['data']] == how['data']
        if 'port' in how: assert compose[name]['ports'] == [f'{how["port"]}:{how["port"]}']
    said = dict(parsed(COMMANDS['node'], 'node', services()['node'][1:]))
    assert said == parsed(COMMANDS['node'], 'node', services()['unit'][1:])
    text = '\n'.join(map(source, read(PAGE)['cells']))
    line = shlex.split(re.search('`docker compose exec serve fedskew (federate .*?)`', text)[1])
    assert parsed(COMMANDS['federate'], 'federate', line[1:])['nodes'] == 3
