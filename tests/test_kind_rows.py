"Rows that are no rows: what a cell says is read in one place, whichever door it comes through."
import csv
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st
from PIL import Image
from fedskew_nb import Suite
from fedskew_nb.data.folder import load_folder
from fedskew_nb.data.sheet import Row
from fedskew_nb.data.cells import check_spelled, in_order, part_named, said, spelling

RNG = np.random.default_rng(0)
IMAGES = [Image.fromarray(RNG.integers(0, 256, (8, 8, 3), np.uint8)) for _ in range(48)]

def rows(*fields, n=40):
    "Rows (image, label, site, …); a field is a function of the number of the row."
    return [(IMAGES[k], *(f(k) if callable(f) else f for f in fields)) for k in range(n)]

def two(k): return 'xy'[k//4%2]

def parts(suite): return {p: sum(len(getattr(c, p)) for c in suite.clients) for p in ('train', 'val', 'test')}

def table(tmp_path, rows, head):
    "The same rows as a CSV with its images."
    for k, r in enumerate(rows): r[0].save(tmp_path/f'{k}.png')
    with open(tmp_path/'t.csv', 'w', newline='', encoding='utf-8') as f:
        csv.writer(f).writerows([head, *([f'{k}.png', *r[1:]] for k, r in enumerate(rows))])
    return load_folder(tmp_path/'t.csv', size=8, cache=False)

HEAD = ['image', 'label', 'site', 'patient', 'split']

# ---- parts

WORDS = [('validation', 'val'), ('valid', 'val'), ('dev', 'val'), ('Val', 'val'),
         ('training', 'train'), ('Train', 'train'), ('testing', 'test'), (' test ', 'test')]

@pytest.mark.parametrize('word, part', WORDS)
def test_a_part_under_another_name(tmp_path, word, part):
    names = dict(train='train', val='val', test='test') | {part: word}
    own = rows(two, 'a', lambda k: f'p{k}', lambda k: names[('train', 'train', 'val', 'test')[k%4]])
    assert parts(Suite.from_rows(own)) == dict(train=20, val=10, test=10) == parts(table(tmp_path, own, HEAD))

@pytest.mark.parametrize('word', ['holdout', 'unlabeled', 'tset', 'fold1', '0', 'eval'])
def test_a_part_that_is_none_is_refused(tmp_path, word):
    own = rows(two, 'a', 'p', lambda k: word if k == 7 else 'train')
    with pytest.raises(ValueError, match=f'row 7: the split is {word}; write train'): Suite.from_rows(own)
    with pytest.raises(ValueError, match=f'row 9: the split is {word}'): table(tmp_path, own, HEAD)

@pytest.mark.parametrize('word', ['valid', 'validation', 'Val', 'dev'])
def test_folders_of_parts_may_be_called_so(tmp_path, word):
    for k, im in enumerate(IMAGES):
        file = tmp_path/'a'/('train', word, 'test', 'train')[k%4]/two(k)/f'{k}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        im.save(file)
    assert parts(load_folder(tmp_path, size=8, cache=False)) == dict(train=24, val=12, test=12)

@given(st.text(max_size=12))
def test_a_word_is_a_part_or_none(word):
    assert part_named(word) in ('', 'train', 'val', 'test')

# ---- what is missing

MISSING = [None, float('nan'), np.float32('nan'), pd.NA, pd.NaT, torch.tensor(float('nan')), 'nan', ' ']

@pytest.mark.parametrize('gap', MISSING, ids=repr)
def test_nobody_is_no_patient(gap):
    own = rows(two, 'a', lambda k: gap if k%2 else f'p{k}')
    alone = rows(two, 'a', lambda k: '' if k%2 else f'p{k}')
    assert parts(Suite.from_rows(own)) == parts(Suite.from_rows(alone)) == dict(train=28, val=4, test=8)

@pytest.mark.parametrize('gap', MISSING, ids=repr)
@pytest.mark.parametrize('at', [0, 1])
def test_no_label_and_no_site_are_refused(gap, at):
    fields = [two, 'a']
    usual = fields[at]
    fields[at] = lambda k: gap if k == 3 else usual(k) if callable(usual) else usual
    says = f'row 3: the {("label", "site")[at]} is'
    with pytest.raises(ValueError, match=says): Suite.from_rows(rows(*fields))

def test_a_printed_nothing_in_a_table_is_refused(tmp_path):
    own = rows(two, 'a', lambda k: 'nan' if k == 4 else f'p{k}')
    with pytest.raises(ValueError, match='row 6: the patient is nan; fill'): table(tmp_path, own, HEAD[:4])

def test_none_is_a_name_of_a_class():
    for name in ('none', 'None', 'NA'):
        assert name in Suite.from_rows(rows(lambda k: name if k%2 else 'cat', 'a')).classes

# ---- numbers and spellings

ONES = [1, 1., '1', ' 1', np.int64(1), np.float32(1), torch.tensor(1), torch.tensor([1]), np.array(1)]

@given(st.lists(st.sampled_from(ONES), min_size=40, max_size=40))
@settings(max_examples=8, deadline=None)
def test_a_number_is_its_digits(ones):
    s = Suite.from_rows(rows(lambda k: ones[k] if k%2 else 0., lambda k: ones[-k-1]))
    assert s.classes == ['0', '1'] and s.domains == ['1']

PAIRS = [('Cat', 'cat', 'differ only in capitals'), ('1', '1.0', 'are one number'), ('1', '01', 'are one'),
         ('caf\u00e9', 'cafe\u0301', 'look the same'), ('a  b', 'a b', 'look the same'),
         ('\uff11', '1', 'are one'), ('a\u00a0b', 'a b', 'look the same')]

@pytest.mark.parametrize('a, b, why', PAIRS)
@pytest.mark.parametrize('at', [0, 1, 2])
def test_names_that_are_read_as_one_are_refused(tmp_path, a, b, why, at):
    fields = [two, 's', lambda k: f'p{k//8}']
    fields[at] = lambda k: (a, b, 'c')[k//8%3]
    own = rows(*fields)
    with pytest.raises(ValueError, match=why): Suite.from_rows(own)
    if at == 2:
        with pytest.raises(ValueError, match=f'patients .* {why}'): table(tmp_path, own, HEAD[:4])

@pytest.mark.parametrize('names', [('1', '1.0'), (' cat', 'cat'), ('caf\u00e9', 'cafe\u0301')])
def test_so_are_folders(tmp_path, names):
    for k, im in enumerate(IMAGES):
        file = tmp_path/'a'/names[k%2]/f'{k}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        im.save(file)
    with pytest.raises(ValueError, match='give them one name'): load_folder(tmp_path, size=8, cache=False)

@given(st.lists(st.text(st.characters(codec='utf-8'), min_size=1), min_size=1, max_size=4, unique=True))
def test_different_spellings_are_let_through(names):
    own = [Row('p', n, 'a') for n in names]
    if len(set(map(spelling, names))) == len(names): check_spelled('here', own)
    else:
        with pytest.raises(ValueError, match='give them one name'): check_spelled('here', own)

NO_NAMES = [['a'], ('a',), {'a': 1}, {1}, b'a', np.zeros(3), torch.zeros(2, 2), np.zeros(0)]

@pytest.mark.parametrize('v', NO_NAMES, ids=repr)
def test_what_is_no_name(v):
    says = 'row 2: the label is .* give a name or a number'
    with pytest.raises(ValueError, match=says): said(v, 'label', 'row 2')

# ---- the order of classes

@given(st.sets(st.integers(0, 10**6), min_size=1, max_size=30))
def test_numbers_come_by_size(numbers):
    assert in_order({str(n) for n in numbers}) == [str(n) for n in sorted(numbers)]

def test_one_order_at_every_door(tmp_path):
    own = rows(lambda k: k%12, 'a', n=48)
    for k, r in enumerate(own):
        file = tmp_path/'folder'/'a'/str(r[1])/f'{k}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        r[0].save(file)
    wanted = [str(k) for k in range(12)]
    found = load_folder(tmp_path/'folder', size=8, cache=False)
    assert found.classes == Suite.from_rows(own).classes == table(tmp_path, own, HEAD[:3]).classes == wanted

def test_texts_come_by_the_alphabet():
    assert in_order({'10', '9', 'cat', 'Bird'}) == ['10', '9', 'Bird', 'cat']
    assert in_order({'1.5', '10', '2.25'}) == ['1.5', '2.25', '10']

def test_a_dataset_that_names_its_classes():
    class Named(list): classes = ['x', 'y']
    for labels in ([0, 1], [0., 1.], ['x', ' y '], [np.int64(0), torch.tensor(1)]):
        s = Suite.from_rows(Named(rows(lambda k: labels[k%2], 'a')))
        assert s.classes == ['x', 'y'] and s.tests['a'].y.bincount().tolist() == [4, 4]
    for wrong in (-1, 2, .5, '0', 'X', None, float('nan')):
        with pytest.raises(ValueError, match='row 5: the label is'):
            Suite.from_rows(Named(rows(lambda k: wrong if k == 5 else k%2, 'a')))

# ---- which column says it

PATIENTS = ['patient', 'Patient', 'PATIENT ID', 'patient_id', 'PatientID', 'patient-no.', 'subject',
            'Subject_ID',
            'person', 'participant_id', 'mrn', ' patient ', '\u200bpatient']
SPLITS = ['split', 'Split', 'part', 'Set', 'subset', 'data_split', 'Partition']

def told(own, head): return [dict(zip(head, r)) for r in own]

def who_is_where(suite, own):
    "The patients of training and of tests; a picture is known by its bytes."
    who = {np.asarray(r[0]).transpose(2, 0, 1).tobytes(): r[3] for r in own}
    def of(datas): return {who[x.numpy().tobytes()] for d in datas for x in d.x}
    return of(d for c in suite.clients for d in (c.train, c.val)), of(suite.tests.values())

@pytest.mark.filterwarnings('ignore:.*is read as')
@pytest.mark.parametrize('name', PATIENTS)
def test_a_patient_under_any_usual_name_is_one(tmp_path, name):
    own = rows(two, 'a', lambda k: f'p{k//4}')
    head = ['image', 'Label', 'SITE', name]
    for s in (Suite.from_rows(told(own, head)), table(tmp_path, own, head)):
        train, test = who_is_where(s, own)
        assert train and test and not train & test

@pytest.mark.filterwarnings('ignore:.*is read as')
@pytest.mark.parametrize('name', SPLITS)
def test_a_split_under_any_usual_name_is_one(tmp_path, name):
    own = rows(two, 'a', lambda k: 'test' if k%5 == 0 else 'train')
    head = ['image', 'label', 'site', name]
    for s in (Suite.from_rows(told(own, head)), table(tmp_path, own, head)):
        assert parts(s)['test'] == 8
        assert who_is_where(s, own) == ({'train'}, {'test'})

def test_a_part_of_the_body_is_no_split_and_it_is_said(tmp_path):
    own, head = rows(two, 'a', lambda k: ('hand', 'knee')[k%2]), ['image', 'label', 'site', 'part']
    for door in (lambda: Suite.from_rows(told(own, head)), lambda: table(tmp_path, own, head)):
        with pytest.warns(UserWarning, match="column 'part' says no part"): s = door()
        assert parts(s)['test'] == 8

def test_a_column_that_is_half_a_split_is_refused(tmp_path):
    own, head = rows(two, 'a', lambda k: ('train', 'knee')[k%2]), ['image', 'label', 'site', 'part']
    for door in (lambda: Suite.from_rows(told(own, head)), lambda: table(tmp_path, own, head)):
        with pytest.raises(ValueError, match="split is knee in the column 'part'"): door()

@pytest.mark.parametrize('name', ['patient_age', 'study_subjects_x', 'fold', 'case_id', 'random_split_2'])
def test_what_looks_like_a_column_and_is_not_used_is_said(tmp_path, name):
    own, head = rows(two, 'a', lambda k: f'{k//8}'), ['image', 'label', 'site', name]
    for door in (lambda: Suite.from_rows(told(own, head)), lambda: table(tmp_path, own, head)):
        with pytest.warns(UserWarning, match=f'{name}.* is not used'): door()

@pytest.mark.filterwarnings('error')
def test_a_column_that_is_not_to_be_used_is_not(tmp_path):
    own = told(rows(two, 'a', 'dog'), ['image', 'label', 'site', 'subject'])
    assert parts(Suite.from_rows(own, columns=dict(patient=None)))['test'] == 8
    table(tmp_path, rows(two, 'a', '50'), ['image', 'label', 'site', 'age'])

def test_columns_that_no_row_has_are_refused():
    own = told(rows(two, 'a', 'p'), ['image', 'label', 'site', 'pid'])
    with pytest.raises(ValueError, match="no row has a column 'absent'; they have image, label, site, pid"):
        Suite.from_rows(own, columns=dict(patient='absent'))
    with pytest.raises(ValueError, match='they are tuples'):
        Suite.from_rows(rows(two, 'a', 'p'), columns=dict(patient='who'))

def test_two_columns_for_one_thing_are_refused(tmp_path):
    own, head = rows(two, 'a', 'p', 'q'), ['image', 'label', 'site', 'Patient', 'patient']
    for door in (lambda: Suite.from_rows(told(own, head)), lambda: table(tmp_path, own, head)):
        with pytest.raises(ValueError, match="two columns are called patient, 'Patient' and 'patient'"):
            door()
    both = told(rows(two, 'a', lambda k: f'p{k//4}', 'q'), head)
    s = Suite.from_rows(both, columns=dict(patient='Patient'))
    assert parts(s)['test']

def test_a_column_that_only_some_rows_have_counts():
    own = told(rows(two, 'a', lambda k: f'p{k//4}'), ['image', 'label', 'site', 'Patient ID'])
    for r in own[:4]: del r['Patient ID']
    said = [(r['image'], 0, 0, r.get('Patient ID', id(r))) for r in own]
    train, test = who_is_where(Suite.from_rows(own), said)
    assert train and test and not train & test

# ---- who is nobody, and what looks the same

NOBODIES = ['unknown', '#N/A', 'NULL', 'none', 'None', '-', '?', -1, -1., 'Missing', 'n/a',
            '\ufeffunknown ', 0, '0']

@pytest.mark.parametrize('word', NOBODIES, ids=repr)
def test_a_word_for_nobody_is_no_person(word):
    own = rows(two, 'a', lambda k: word if k%2 else f'p{k}')
    alone = rows(two, 'a', lambda k: '' if k%2 else f'p{k}')
    with pytest.warns(UserWarning, match='20 of 40 rows name no patient'): s = Suite.from_rows(own)
    with pytest.warns(UserWarning): assert parts(s) == parts(Suite.from_rows(alone))

def test_in_a_table_it_is_refused(tmp_path):
    own = rows(two, 'a', lambda k: 'unknown' if k == 4 else f'p{k}')
    with pytest.raises(ValueError, match='row 6: the patient is unknown; fill'):
        table(tmp_path, own, HEAD[:4])

def test_patient_0_among_numbers_is_a_person():
    own = rows(two, 'a', lambda k: k//4)
    train, test = who_is_where(Suite.from_rows(own), own)
    assert 0 in train | test and not train & test

@pytest.mark.parametrize('many', [True, False])
def test_a_patient_with_most_of_the_pictures_is_said(many, recwarn):
    own = rows(two, 'a', lambda k: 'XXX' if many and k%4 == 0 or k < 4 else f'p{k}')
    Suite.from_rows(own)
    told = [str(w.message) for w in recwarn if 'patient XXX has' in str(w.message)]
    assert bool(told) == many

@pytest.mark.parametrize('seen', ['cat\u200b', '\ufeffcat', 'c\u00adat', '\u200ecat', 'cat\u2060'])
def test_letters_that_nobody_sees_make_no_class(tmp_path, seen):
    own = rows(lambda k: ('dog', 'cat', seen)[k%3], lambda k: ('a', 'a\u200b')[k%2])
    for s in (Suite.from_rows(own), table(tmp_path, own, HEAD[:3])):
        assert s.classes == ['cat', 'dog'] and s.domains == ['a']

@pytest.mark.parametrize('ones', [(True, 1), (np.bool_(False), 0), ('true', '1.0'), ('-01', -1),
                                  ('\u22121', '-1'),
                                  ('-0', 0), ('.5', .5), ('+1', 1), ('a\u200cb', 'ab')], ids=repr)
def test_these_are_read_as_one(ones):
    with pytest.raises(ValueError, match='give them one name'):
        Suite.from_rows(rows(lambda k: (*ones, 'c')[k//8%3], 's'))

@given(st.sets(st.integers(-10**6, 10**6), min_size=1, max_size=30))
def test_numbers_below_zero_come_first(numbers):
    assert in_order({str(n) for n in numbers}) == [str(n) for n in sorted(numbers)]
