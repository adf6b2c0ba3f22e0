"What a trial of a method shows, against what can be counted without one."
import json, re
import pytest
from fedskew_nb import load_suite, payload, small_conv
from fedskew_nb.analysis.index import OWN, RESULTS, SUITES, Asked, above, ends, evidence, found, gain
from fedskew_nb.tools.choose import (
    FACTS, NOT_RUN, USER_NEEDS, asked_by, candidates, choose, facts_of, seen_of, tiny_world, who)
from fedskew_nb.tools.cli import main
from fedskew_nb.run.recipes import METHODS, read_method
from shipped import stored

STORED = json.loads(FACTS.read_text(encoding='utf-8'))
PLAIN = 'FedProx FedBN LG-FedAvg FDSE F2DC RFedDis SiloBN Local'.split()

@pytest.mark.parametrize('name', PLAIN)
def test_bytes_are_those_of_the_names_that_travel(name):
    s = tiny_world()
    def travels(method):
        net = small_conv(s.n_classes, size=s.image_size, seed=0)
        return payload(method.adapt(net), method)['travels']
    assert facts_of(name).bytes == pytest.approx(travels(METHODS[name])/travels(METHODS['FedAvg']), rel=1e-3)

def test_the_stored_facts_are_all_methods():
    assert list(STORED) == [c.name for c in candidates()], 'call python tests/tools/index.py'

@pytest.mark.parametrize('name', STORED)
def test_the_stored_facts_are_of_today(name):
    assert facts_of(name) == seen_of(name), 'call python tests/tools/index.py'

def test_who_wants_boxes_says_so():
    hungry = {c.name for c in candidates() if not c.facts.plain}
    assert hungry == {c.name for c in candidates() if any(m.wants for m in read_method(c.name).mechanisms)}
    assert 'FedDDL' in hungry

def test_what_is_handed_on_is_said_with_its_name():
    "Four methods; what FedDG hands on is of single images, as a site's table says."
    notes = [n for n in choose('not-handed-on').notes if ': no, ' in n]
    assert sorted(n.partition(':')[0] for n in notes) == ['DFL', 'FedCCRL', 'FedDG', 'MCGDM']
    assert 'FedDG: no, other clients get amplitudes as one has sent it.' in notes

def test_more_needs_leave_fewer():
    for need in USER_NEEDS:
        one, more = who(need), who(need, 'weights')
        assert {c.name for _, c in more[0]} <= {c.name for _, c in one[0]} | set(one[1])
        if asked_by(need) == asked_by(need, 'weights'): assert set(more[1]) <= set(one[1])

@pytest.mark.parametrize('need', USER_NEEDS)
def test_the_order_is_that_of_the_column_that_was_asked_for(need):
    "By hand from the printed cells: the mean with 0 where not run; a rank begins where intervals part."
    cells, asked = choose(need).cells, asked_by(need)[0]
    def shown(text): return [float(v) for v in re.findall(r'-?\d+\.\d', text)] or [0.]*3
    rows = [[shown(text) for text in row[2:2+len(asked.suites)]] for row in cells.values.tolist()]
    means = [sum(v[0] for v in row)/len(row) for row in rows]
    assert all(a >= b-.101 for a, b in zip(means, means[1:]))
    ranks, first = [int(r) for r in cells['#']], None
    for k, rank in enumerate(ranks):
        names = cells.method
        if not k or rank != ranks[k-1]:
            assert rank == k+1
            if k: assert apart(names[first], names[k], asked)
            first = k
        else: assert not apart(names[first], names[k], asked)

def apart(one, other, asked):
    return any(a[0] > b[1] for a, b in zip(ends(one, asked), ends(other, asked)))

@pytest.mark.parametrize('needs', [(), *((n,) for n in USER_NEEDS), ('unseen', 'weights'), ('few', 'unseen')])
def test_a_cell_is_of_the_index_and_not_run_is_in_none(needs):
    table, columns = choose(*needs), asked_by(*needs)
    for row in table.cells.to_dict('records'):
        texts = [v for k, v in row.items() if k.split(', ')[-1] not in ('beside', 'page')][2:]
        for (asked, suite), text in zip(((a, s) for a in columns for s in a.suites), texts):
            there = found(method=row['method'], suite=suite, question=asked.question, over=asked.over)
            there = [c for c in there if c.moment in ('received', 'adapted')]
            if text == NOT_RUN: assert not there and row['method'] != asked.over
            elif text: assert text in {str(c) for c in there}
            else: assert row['method'] == asked.over
        assert row['page'] or row['method'] in {a.over for a in columns}

def test_whom_the_results_measure_is_never_said_to_be_not_run():
    "The sixteen further baselines of the page of results, each client on its own domain."
    more = {*stored('baselines-2026-11-25').methods}
    assert len(more) == 16 and not more & {*who()[1]}
    assert more <= {c.name for _, c in who()[0]}

def test_a_new_domain_is_answered_from_new_domains():
    (_, first), *_ = known = who('unseen')[0]
    assert first.name == 'FedAvg + AdaBN'
    assert {'FedProx', 'MOON', 'FedDDL', 'FDSE'} <= {c.name for _, c in known}
    new = Asked('new domain')
    assert f'{above("FedProx", new)["context-vehicles"]}' == '-1.6 (-2.3 to -0.9)'
    assert f'{above("MOON", new)["context-vehicles"]}' == '-5.6 (-8.1 to -3.2)'
    assert above('FDSE', new)[SUITES['new domain'][0]].moment == 'adapted'
    assert gain('FedAvg', new) == 0 and not above('FedAvg', new)

def test_a_column_is_of_one_length_where_the_results_have_it():
    for c in candidates():
        for s, cell in above(c.name).items():
            if any(o.method == c.name and o.suite == s and o.file == RESULTS for o in evidence()):
                assert cell.budget == '24 × 20 steps'

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
    for s in OWN: assert {len(c.train) for c in load_suite(s, 'quick').clients} == {100}
