"What a trial of a method shows, against what can be counted without one."
import json
import pytest
from fedskew_nb import choose, load_suite, payload, small_conv
from fedskew_nb.tools.choose import USER_NEEDS, candidates, facts_of, results, tiny_world, who
from fedskew_nb.tools.cli import main
from fedskew_nb.run.recipes import METHODS, read_method

PLAIN = 'FedProx FedBN LG-FedAvg FDSE F2DC RFedDis SiloBN Local'.split()

@pytest.mark.parametrize('name', PLAIN)
def test_bytes_are_those_of_the_names_that_travel(name):
    s = tiny_world()
    def travels(method):
        net = small_conv(s.n_classes, size=s.image_size, seed=0)
        return payload(method.adapt(net), method)['travels']
    assert facts_of(name).bytes == pytest.approx(travels(METHODS[name])/travels(METHODS['FedAvg']), rel=1e-3)

def test_who_wants_boxes_says_so():
    hungry = {c.name for c in candidates() if not c.facts.plain}
    assert hungry == {c.name for c in candidates() if any(m.wants for m in read_method(c.name).mechanisms)}
    assert 'FedDDL' in hungry

def test_more_needs_leave_fewer():
    for need in USER_NEEDS:
        one, more = who(need), who(need, 'weights')
        assert {c.name for c in more[0]} <= {c.name for c in one[0]}
        assert set(more[1]) <= set(one[1])

def test_whom_nobody_measured_has_no_row():
    table = choose('plain')
    assert (table.cells.filter(like='above').ne('no evidence').any(axis=1)
            | table.cells['unseen domain'].ne('no evidence')).all()

def test_the_command_prints_the_same_table(capsys):
    assert main(['list', '--for', 'doubt', '--json']) in (0, None)
    said = json.loads(capsys.readouterr().out)
    assert said['needs'] == ['doubt'] and [m['method'] for m in said['methods']] == ['RFedDis']

def test_needs_that_nobody_meets_are_an_answer(capsys):
    assert main(['list', '--for', 'doubt,global']) in (0, None)
    assert 'No method' in capsys.readouterr().out

def test_an_unknown_need_is_named_with_the_nearest(capsys):
    assert main(['list', '--for', 'unsen'])
    assert 'did you mean unseen' in capsys.readouterr().err

def test_few_images_are_a_hundred():
    "As the need says: of the suites in the stored results."
    for s in results().suites: assert {len(c.train) for c in load_suite(s, 'quick').clients} == {100}
