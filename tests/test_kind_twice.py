"One picture twice: a site that joins, tensors, and suites that somebody made by hand."
import warnings
from dataclasses import replace
import pytest
import torch
from PIL import Image
from fedskew_nb import Client, Federation, FedAvg, Suite, compare, join_site, small_conv
from fedskew_nb.analysis.report import write_report
from fedskew_nb.data.folder import load_folder
from fedskew_nb.data.images import Data, one_image
from fedskew_nb.run.recipes import read_suite

def images(n, seed): return torch.randint(256, (n, 3, 12, 12), dtype=torch.uint8,
                                          generator=torch.Generator().manual_seed(seed))

def data(n, seed): return Data(images(n, seed), torch.arange(n)%2)

@pytest.fixture(scope='module')
def fed():
    domains = {d: (data(12, k), data(6, 9+k)) for k, d in enumerate('ab')}
    fed = Federation(FedAvg, small_conv(2, size=12, width=4, seed=0), Suite.from_datasets(domains),
                     rounds=1, local_steps=1)
    fed.fit()
    return fed

def joined(fed, given):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        return join_site(fed, (given.x, given.y)), ' '.join(str(w.message) for w in said)

def test_a_site_that_took_part_is_said(fed):
    j, said = joined(fed, fed.suite.clients[0].train)
    assert j.known() == len(j.held) and f'{j.known()} of {j.known()} held-out images were trained on' in said
    assert any('were trained on' in note for note in j.table().notes)

def test_so_are_a_few_of_its_images(fed):
    own, new = fed.suite.clients[1].train, data(20, 99)
    j, said = joined(fed, Data(torch.cat([own.x[:6], new.x]), torch.cat([own.y[:6], new.y])))
    known = sum((x == y).all().item() for x in j.held.x for y in own.x[:6])
    assert j.known() == known > 0 and f'{known} of {len(j.held)}' in said

def test_a_new_site_is_none(fed):
    j, said = joined(fed, data(20, 77))
    assert j.known() == 0 and said == '' and not any('trained on' in n for n in j.table().notes)

def test_what_was_only_tested_on_is_new(fed):
    assert joined(fed, fed.suite.clients[0].test)[0].known() == 0

def test_tensors_that_hold_a_picture_twice(fed):
    "None of them is adapted to and held out."
    one = data(10, 55)
    j, said = joined(fed, Data(torch.cat([one.x, one.x]), torch.cat([one.y, one.y])))
    assert len(j.held)+j.adapted == 10 and '10 exact copies left out' in said

def test_one_picture_under_two_labels_joins_with_none(fed):
    one = data(10, 56)
    j, said = joined(fed, Data(torch.cat([one.x, one.x[:1]]), torch.cat([one.y, 1-one.y[:1]])))
    assert len(j.held)+j.adapted == 9 and '1 picture under several labels left out' in said

def by_hand(same):
    train, test = data(12, 1), data(6, 2)
    if same: test = replace(test, x=torch.cat([train.x[:2], test.x[2:]]))
    return Suite('mine', ['x', 'y'], [Client(0, 'a', train, data(2, 3), test)], {'a': test})

@pytest.mark.parametrize('same', [True, False])
@pytest.mark.parametrize('form', ['suite', 'function'])
def test_a_suite_made_by_hand_is_looked_at(same, form):
    own = by_hand(same)
    def mine(data_seed): return replace(own, data_seed=data_seed)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        read_suite(mine if form == 'function' else own)
    told = ' '.join(str(w.message) for w in said)
    assert ('2 pictures in training and in test, first a, train = a, test' in told) == same

# ---- one picture in two sizes

def sharp(side, seed): return torch.randint(256, (3, side, side), dtype=torch.uint8,
                                            generator=torch.Generator().manual_seed(seed))

def sized(path, seed, to=16):
    "A picture as a file of 16 pixels, or twice as large without a new pixel."
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(sharp(16, seed).permute(1, 2, 0).numpy()).resize((to, to), 0).save(path)

def shared(suite):
    of = lambda datas: {x.numpy().tobytes() for d in datas for x in d.x}
    return of(d for c in suite.clients for d in (c.train, c.val)) & of(suite.tests.values())

@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('other', [False, True])
def test_rows_of_two_sizes_are_one_picture_where_the_net_sees_one(other):
    own = [dict(image=sharp(32, k), label='xy'[k%2], site='ab'[k//2%2], split='train' if k < 16 else 'test')
           for k in range(32)]
    for k in range(3): own[16+k] |= dict(image=one_image(own[k]['image'], 12), label='xy'[(k+other)%2])
    s, kept = Suite.from_rows(own, size=12), Suite.from_rows(own, size=12, copies='keep')
    kind = 'contradictions' if other else 'train_and_test'
    assert not shared(s) and s.copies[kind] == 3 == kept.copies[kind] == len(shared(kept))

@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('part', ['train', 'test'])
def test_so_are_files_of_two_sizes(tmp_path, part):
    for k in range(24): sized(tmp_path/'ab'[k%2]/('train', 'test')[k//2%2]/'xy'[k//4%2]/f'{k}.png', k)
    for k in (0, 8): sized(tmp_path/'b'/part/'x'/f'again {k}.png', k, 48)
    s = load_folder(tmp_path, size=8, cache=False)
    flat = load_folder(tmp_path, size=8, cache=False, copies='keep')
    assert s.copies['across_sites'] == 2 == flat.copies['across_sites']
    assert s.copies['train_and_test'] == 2*(part == 'test') and not shared(s)

def test_two_sizes_of_two_pictures_are_two():
    own = [dict(image=sharp(32-k%2*8, k), label='xy'[k//2%2], site='a') for k in range(32)]
    assert not any(v for k, v in Suite.from_rows(own, size=12).copies.items() if k != 'how')

# ---- what is said stays with the runs

@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('same', [True, False])
def test_a_suite_made_by_hand_carries_what_was_found(same):
    own = by_hand(same)
    s = read_suite(own)
    assert (s.copies.get('train_and_test') == 2) == same == ('2 pictures in training and in test' in s.source)
    assert s.fingerprint() == own.fingerprint() and own.copies == {}

@pytest.mark.filterwarnings('ignore')
def test_so_does_a_table_of_its_runs(tmp_path, unsaved):
    one = by_hand(True)
    two = replace(one, clients=[*one.clients, replace(one.clients[0], id=1)])
    c = compare(['FedAvg'], two, seeds=1, rounds=1, local_steps=1, model='small_conv(width=4)',
                progress=False, control=False, out=tmp_path/'o')
    assert any('2 pictures in training and in test' in n for n in c.table().notes)
    report = write_report(c, tmp_path/'report')['report.html'].read_text()
    assert '2 pictures in training and in test' in report

# ---- a site whose pictures were trained on in another form

def soft(seed, side=48):
    "Blobs, as a photograph has."
    rough = sharp(6, seed).permute(1, 2, 0).numpy()
    return Image.fromarray(rough).resize((side, side), Image.Resampling.BICUBIC)

@pytest.fixture(scope='module')
def of_files(tmp_path_factory):
    home = tmp_path_factory.mktemp('sites')
    for k in range(32):
        file = home/'ab'[k%2]/('train', 'test')[k//2%2]/'xy'[k//4%2]/f'{k}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        soft(k).save(file)
    suite = load_folder(home, size=32, cache=False, val=0)
    fed = Federation(FedAvg, small_conv(2, size=32, width=4, seed=0), suite,
                     rounds=1, local_steps=1)
    fed.fit()
    return fed

FORMS = dict(png=lambda im, p: im.save(p), jpeg=lambda im, p: im.save(p.with_suffix('.jpg'), quality=90),
             larger=lambda im, p: im.resize((96, 96)).save(p),
             smaller=lambda im, p: im.resize((36, 36)).save(p))

@pytest.mark.parametrize('form, seeds', [*((f, 'trained') for f in FORMS), ('jpeg', 'new'), ('png', 'new')])
def test_a_site_in_another_form_is_said(tmp_path, of_files, form, seeds):
    for k in range(32):
        if k//2%2: continue     # was tested on
        file = tmp_path/'new'/'xy'[k//4%2]/f'{k}.png'
        file.parent.mkdir(parents=True, exist_ok=True)
        FORMS[form](soft(k+100*(seeds == 'new')), file)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter('always')
        j = join_site(of_files, tmp_path/'new')
    n, exact = len(j.held)*(seeds == 'trained'), form == 'png'
    assert (j.known(), j.near) == (n*exact, n*(not exact))
    told, notes = ' '.join(str(w.message) for w in said), ' '.join(j.table().notes)
    assert (f'{n} of {n} held-out images look like some of training' in told) == bool(j.near)
    assert (f'{n} of the held-out look like images' in notes) == bool(j.near)
