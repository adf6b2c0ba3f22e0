"""What is seen and what is lost when something dies, stays away or lies: a table, made by

    pytest -m campaign -s tests/test_deploy_faults.py
"""
import os, signal, time
from pathlib import Path
import pandas as pd, pytest, torch
from test_deploy import Killed, WRONG, fitted, job, place, rehearsal, sites, stays, without
from test_deploy_flower import Field, SITES, machines, same_as_fit, wait_for
from fedskew_nb.engine.checkpoint import from_bytes, to_bytes

pytestmark = pytest.mark.campaign

WHAT = job('SCAFFOLD + FedBN')     # it remembers on both sides and keeps parts
COLUMNS = 'what', 'what is seen', 'what is lost', 'in the end'

@pytest.fixture(scope='module')
def table():
    "Rows; printed when all are there."
    rows = []
    yield rows
    print('\n\n'+pd.DataFrame(rows, columns=COLUMNS).to_markdown(index=False))

@pytest.fixture(scope='module')
def fed(place): return fitted(place, WHAT)

def begin(place, out, **how): return rehearsal(WHAT, sites(place), out, **how)

def bits(hub, fed)->str:
    "Are models, memories and history those of `fit`?"
    same = all(torch.equal(hub.server[n], fed.server[n]) for n in fed.server.keys()-fed.kept)
    return 'equal' if same and hub.history.rounds == fed.history.rounds else 'differ'

def said_of(hub)->str:
    "What a run says when it stops; '' if it does not."
    try: hub.fit(progress=False)
    except (Killed, ConnectionError, ValueError, FloatingPointError) as e: return f'{e}' or 'nobody answers'
    return ''

# ---- without a network: the messages of one round go wrong

def in_round_2(spoil):
    "A post that goes wrong once."
    def wrap(post):
        def some(letters):
            order = from_bytes(letters['b'])
            now = order['kind'] == 'train' and order['round'] == 1
            return spoil(letters, post) if now else post(letters)
        return some
    return wrap

def lost_answer(letters, post):
    post(letters)
    raise Killed

def twice(letters, post):
    post(letters)
    return post(letters)

def lie(kind):
    def spoil(letters, post):
        answers = post(letters)
        return answers | dict(b=to_bytes(WRONG[kind][0](from_bytes(answers['b']))))
    return spoil

def torn(letters, post): return post(letters) | dict(b=b'{')

POSTS = {
    'server ends after the sites have trained': in_round_2(lost_answer),
    'an order comes twice': in_round_2(twice), 'a site stays away': lambda post: without(post, 'b'),
    'an answer of an earlier round': in_round_2(lie('late')), 'NaN in an answer': in_round_2(lie('nan')),
    'a tensor of another shape': in_round_2(lie('shape')), 'a tensor is missing': in_round_2(lie('missing')),
    "another site's number": in_round_2(lie('another')), 'torn bytes': in_round_2(torn)}

@pytest.mark.parametrize('what', POSTS)
def test_the_same_call_again_ends_in_the_same_bits(place, tmp_path, fed, table, what):
    hub = begin(place, tmp_path)
    hub.fit(1)
    hub.sites.post, before = POSTS[what](hub.sites.post), hub.out.read_bytes()
    said = said_of(hub)
    assert not said or hub.out.read_bytes() == before
    again = begin(place, tmp_path)
    again.fit()
    table.append((what, said or 'nothing', 'the open round' if said else 'nothing', bits(again, fed)))
    assert table[-1][-1] == 'equal'

def test_memory_that_is_gone(place, tmp_path, fed, table):
    hub = begin(place, tmp_path)
    hub.fit(1)
    stays(tmp_path, 'b').joinpath('1.safetensors').unlink()
    said = said_of(hub)
    table.append(("a site's memory is deleted", said, 'the run, if it cannot be brought back', 'stops'))
    again = begin(place, tmp_path, lost='fresh')
    again.fit()
    table.append(('the same, `--lost fresh`', 'b lost its memory and began anew in round 2', 'what b kept',
                  bits(again, fed)))
    assert table[-1][-1] == 'differ' and 'lost its memory' in table[-2][1]

def test_one_stays_away_and_fewer_may_do(place, tmp_path, fed, table, capsys):
    hub = begin(place, tmp_path)
    hub.fit(1)
    hub.sites.least, hub.sites.post = 2, without(hub.sites.post, 'b')
    hub.fit()
    said = capsys.readouterr().err.splitlines()[-1]
    assert 'b did not answer' in said and hub.history.rounds[1]['participants'] == [0, 2]
    table.append(('a site stays away, `--least 2`', said, "b's part of that round", bits(hub, fed)))

# ---- over a network: something is killed

@pytest.fixture
def field(machines, tmp_path): return Field(machines, tmp_path, WHAT, keys=True)

def run_until_round_1(field):
    "(server, nodes, run)"
    server = field.serve()
    nodes = {site: field.node(site) for site in SITES}
    run = field.federate()
    wait_for(field.home/'run.log', 'round 1 of 3')
    return server, nodes, run

def app_of(node, seconds=60)->int:
    "The process that answers a message at a node."
    end = time.time()+seconds
    while time.time() < end:
        for p in Path('/proc').glob('[0-9]*'):
            try: group, words = os.getpgid(int(p.name)), (p/'cmdline').read_bytes()
            except OSError: continue
            if group == node.pid and b'flwr-clientapp' in words: return int(p.name)
        time.sleep(.05)
    raise AssertionError('no app was started')

def ends_equal(field, run, table, what, seen, lost):
    "The run ends with the bits of `fit`."
    assert run.wait(500) == 0, field.said()[-3000:]
    same_as_fit(field.home, WHAT)
    table.append((what, seen, lost, 'equal'))

def seconds_to_round_2(field, since)->str:
    wait_for(field.home/'run.log', 'round 2 of 3')
    return f'{time.time()-since:.0f} s'

def test_a_node_is_killed(machines, field, table):
    _, nodes, run = run_until_round_1(field)
    machines.end(nodes['b'], signal.SIGKILL)
    since = time.time()
    field.node('b')
    took = seconds_to_round_2(field, since)
    seen = 'refused while its old self counts as present, then asked again'
    ends_equal(field, run, table, 'a node is killed and started again', seen, took)

def test_an_app_is_killed(machines, field, table):
    _, nodes, run = run_until_round_1(field)
    os.kill(app_of(nodes['b']), signal.SIGKILL)
    took = seconds_to_round_2(field, time.time())
    ends_equal(field, run, table, "a node's app is killed", 'it is asked again', took)

def test_the_server_is_killed(machines, field, table):
    server, _, run = run_until_round_1(field)
    machines.end(server, signal.SIGKILL)
    code = run.wait(300)
    said = [line for line in field.said().splitlines() if 'fedskew: ' in line][-1].partition('fedskew: ')[2]
    assert code == 1 and 'the same call goes on' in said
    (field.home/'server.log').unlink()
    field.serve()
    seen = f'{said.replace(str(field.home), "…")}; nodes come back by themselves'
    ends_equal(field, field.federate(), table, 'the server is killed', seen, 'the open round')
