"Learners' copies: Run All goes from the first cell to the last."
import json, sys
from pathlib import Path
import pytest
from fedskew_nb.tools.catalogue import learner_copy, notebook_folder, notebook_names
from project import directives, only_imports, skipped, source

sys.path.insert(0, str(Path(__file__).parent/'lab'))
import copies

@pytest.fixture(scope='module')
def cells():
    "(page, code of a cell, the cell in the learner's copy) of all pages."
    found = []
    for name in notebook_names(notebook_folder()):
        text = (notebook_folder()/name).read_text(encoding='utf-8')
        before = [source(c) for c in json.loads(text)['cells']]
        before = [s for s in before if 'nbdev_export(' not in s and 'default_exp' not in directives(s)]
        after = json.loads(learner_copy(text))['cells']
        assert len(before) == len(after)
        found += [(name, s, c) for s, c in zip(before, after) if c['cell_type'] == 'code']
    return found

def test_a_task_may_fail(cells):
    "What no machine of ours runs has the tag at which Jupyter goes on."
    tasks = [(n, c) for n, s, c in cells if skipped(s)]
    assert tasks and [n for n, c in tasks if c['metadata'].get('tags') != ['raises-exception']] == []

def test_an_answer_is_folded(cells):
    answers = [(n, c) for n, s, c in cells if 'code-summary' in directives(s)]
    folded = dict(source_hidden=True, outputs_hidden=True)
    assert answers and [n for n, c in answers if c['metadata'].get('jupyter') != folded] == []
    assert {c['source'][:8] for _, c in answers} == {'# Answer'}

def test_a_copy_says_nothing_to_the_site(cells):
    "No `#|` line; imports are folded, and no other code but answers."
    assert [(n, c['source']) for n, _, c in cells if c['source'].startswith('#|')] == []
    hidden = lambda c: c['metadata'].get('jupyter', {}).get('source_hidden', False)
    wrong = [(n, s) for n, s, c in cells if 'Answer' not in c['source'][:9] and hidden(c) != only_imports(s)]
    assert wrong == []

def test_copies_without_answers():
    "Every answer is gone, in code and in words, and every task is there."
    for name in notebook_names(notebook_folder()):
        text = (notebook_folder()/name).read_text(encoding='utf-8')
        full, bare = (json.loads(learner_copy(text, answers))['cells'] for answers in (True, False))
        prose = [source(c) for c in bare if c['cell_type'] == 'markdown']
        assert not [s for s in prose if '<summary>Answer' in s], name
        tasks = [c['id'] for c in full if not source(c).startswith('# Answer')]
        assert [c['id'] for c in bare] == tasks, name

def test_no_cell_of_a_copy_starts_hours(cells):
    "Our machines leave out tasks and answers, and nothing else: a long run stands in a fence."
    kinds = lambda s: 'code-summary' in directives(s) or 'test_' in s or 'assert ' in s
    assert [(n, s) for n, s, c in cells if skipped(s) and not kinds(s)] == []

@pytest.mark.parametrize('tags, why', [(['raises-exception'], ''), ([], 'NotImplementedError')])
def test_what_stops_a_copy(tmp_path, tags, why):
    "A task goes on if it is tagged; a cell that fails without a tag is found."
    task = dict(cell_type='code', source='raise NotImplementedError', metadata=dict(tags=tags))
    last = dict(cell_type='code', source='assert 1', metadata={})
    page = tmp_path/'page.ipynb'
    page.write_text(json.dumps(dict(cells=[task, last])))
    stopped = copies.stops(page)
    assert bool(stopped) == bool(why) and stopped.startswith(why)

@pytest.mark.campaign
def test_every_copy_reaches_its_end(): assert not copies.main([])
