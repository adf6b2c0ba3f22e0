"Answers that are right are taken, and a refusal says what can be done."
import re
from dataclasses import replace
import pytest, torch
from hypothesis import given, settings, strategies as st
from feds import cut
from fedskew_nb.core.net import everything, under
from fedskew_nb.core.rules import Rule, by_all, by_layer, by_tensor, mean
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.setting import Setting
from fedskew_nb.tools.diagnose import diagnose
from project import NBS, ROOT, read, source

# --- exercises

def exercise(page, name):
    "The cell of an exercise that a reader is to fill: its test."
    cells = [source(c) for c in read(NBS/page)['cells'] if c['cell_type'] == 'code']
    cell, = [c for c in cells if f'def {name}' in c and 'eval: false' in c]
    return re.sub(rf'def {name}.*\n', '', cell)

HALVES = dict(hard_first=lambda hard, soft: hard+soft-soft.detach(),
              soft_first=lambda hard, soft: soft+(hard-soft).detach(),
              bracket=lambda hard, soft: hard+(soft-soft.detach()),
              minus=lambda hard, soft: soft-soft.detach()+hard)

@pytest.mark.parametrize('how', HALVES)
def test_every_order_of_the_same_sum_is_a_right_answer(how):
    from fastcore.test import test_close, test_eq
    def top_half(S): return HALVES[how]((S > S.median()).float(), torch.sigmoid(S-S.mean()))
    exec(exercise('2_methods/f2dc/01_mask.ipynb', 'top_half'), dict(
        top_half=top_half, torch=torch, test_close=test_close, test_eq=test_eq))

def test_the_exercise_still_refuses_what_has_no_gradient():
    from fastcore.test import test_close, test_eq
    with pytest.raises(RuntimeError):
        exec(exercise('2_methods/f2dc/01_mask.ipynb', 'top_half'), dict(
            top_half=lambda S: (S > S.median()).float(), torch=torch, test_close=test_close, test_eq=test_eq))

# --- rules

@pytest.mark.parametrize(('word', 'by'), [('tensor', by_tensor), ('layer', by_layer), ('all', by_all)])
def test_a_group_may_be_named(word, by):
    assert Rule(everything, mean, by=word) == Rule(everything, mean, by=by)

@settings(max_examples=20, deadline=None)
@given(field=st.sampled_from(('claims', 'fn', 'by')),
       value=st.one_of(st.none(), st.integers(), st.lists(st.text())))
def test_a_rule_says_which_of_its_parts_is_none(field, value):
    how = dict(claims=under('head'), fn=mean, by=by_all) | {field: value}
    with pytest.raises(ValueError, match=f'Rule: {field} is '): Rule(**how)

def test_a_group_that_is_misspelt():
    with pytest.raises(ValueError, match="no group 'layers': did you mean layer"):
        Rule(everything, mean, by='layers')

# --- settings

@settings(max_examples=15, deadline=None)
@given(part=st.floats(.01, 20).filter(lambda v: v != int(v)))
def test_a_part_of_an_epoch_is_told_of_local_steps(part):
    with pytest.raises(ValueError, match=f'local_epochs is {part}: give a whole number, .*local_steps'):
        Setting(local_epochs=part)

# --- diagnose

def test_a_suite_whose_tests_are_no_clients_is_refused_before_it_is_trained(monkeypatch):
    monkeypatch.setattr('fedskew_nb.tools.diagnose.compare', lambda *_, **__: pytest.fail('it trains'))
    with pytest.raises(ValueError, match='context-vehicles: no client has test images of its own domain'):
        diagnose('context-vehicles', seeds=1, size='tiny')

def test_so_is_one_of_somebody_elses(monkeypatch):
    monkeypatch.setattr('fedskew_nb.tools.diagnose.compare', lambda *_, **__: pytest.fail('it trains'))
    s = cut(load_suite('emoji-pacs', 'tiny'), (8, 8), tests=2)
    s = replace(s, tests=dict(elsewhere=s.tests['photo']), name='mine')
    with pytest.raises(ValueError, match='mine: .*tests: elsewhere.*take compare'): diagnose(s, seeds=1)

# --- citation

def test_what_the_citation_names_is_there():
    text = (ROOT/'CITATION.cff').read_text(encoding='utf-8')
    pages = re.findall(r'nbs/[\w/]+\.ipynb', text)
    assert pages and all((ROOT/p).is_file() for p in pages)
    assert '# References' in (ROOT/pages[0]).read_text(encoding='utf-8')
