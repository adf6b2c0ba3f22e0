"A module that several pages explain: a reader sees which page is which."
import re
import reference

def test_each_notebook_of_a_module_is_linked_by_its_title():
    many = [p for parts in reference.rooms().values() for p in parts if len(p.notebooks) > 1]
    assert many
    for part in many:
        links = dict(re.findall(r'\[([^\]]+)\]\(([^)]+)\)', reference.told(part)))
        assert len(links) == len(part.notebooks), part.module
        assert all(any(at.endswith(n) for at in links.values()) for n in part.notebooks), part.module

def test_a_title_is_the_heading_of_its_page():
    assert reference.title('6_engine/08_reading.ipynb') == 'What to read off a run'
    assert all(reference.title(n) for parts in reference.rooms().values() for p in parts for n in p.notebooks)
