"What a run, a table or an export leaves out is said, also where images are elsewhere."
import pytest, torch
from PIL import Image
from torch import nn
from fedskew_nb import FedAvg, export, small_conv
from fedskew_nb.analysis.claims import Claim, claims_table, gain, verdicts
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.data.folder import load_folder
from fedskew_nb.deploy.hub import unlikely
from fedskew_nb.deploy.rehearse import rehearsal
from fedskew_nb.deploy.order import Job
from fedskew_nb.tools import after, predict
from feds import fed_of
from test_deploy import cache, job, place, sites    # noqa: F401
from test_kind_means import grid, made
from test_story import FEDAVG, LOCAL, runs, story

# ---- a model that asks its batch, at sites elsewhere

class Gate(nn.Module):
    "The batch's mean, behind a gate that begins at 0."
    def __init__(self):
        super().__init__()
        self.open = nn.Parameter(torch.zeros(1))
    def forward(self, x): return x+9*self.open*(x.mean(0, keepdim=True)-x)

def gated(job, n_classes):
    net = small_conv(n_classes, size=16, width=4, seed=0)
    net.neck = Gate()
    return net

@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('method, view', [('FedAvg', 'global'), ('FedBN', 'personal')])
def test_sites_elsewhere_ask_once_more(place, tmp_path, monkeypatch, method, view):    # noqa: F811
    monkeypatch.setattr(Job, 'net', gated)
    what = job(method, rounds=1, lr=.5)
    hub = rehearsal(what, sites(place), tmp_path/'o')
    with pytest.warns(UserWarning, match='answers an image otherwise alone than among'):
        hub.fit(progress=False)
    one = what.federation(load_folder(place/'all', 16))
    one.fit(progress=False)
    odd = hub.history.setting['odd'][-1]
    assert 'neck (Gate) asks the batch' in odd
    assert sum('asks the batch' in o for o in hub.history.setting['odd']) == 1
    assert odd.partition(': ')[2] == one.history.setting['odd'][-1].partition(': ')[2]
    assert any(n.startswith('Odd: ') and odd in n for n in Comparison([hub.history]).table(view).notes)

def test_a_model_that_asks_nobody_is_not_odd(place, tmp_path):    # noqa: F811
    hub = rehearsal(job(rounds=1), sites(place), tmp_path/'o')
    hub.fit(progress=False)
    assert not [o for o in hub.history.setting['odd'] if 'batch' in o]
    good = dict(client=0, rows=[])
    assert not unlikely(hub, hub.clients[0], good) and not unlikely(hub, hub.clients[0], good | dict(odd='x'))
    assert unlikely(hub, hub.clients[0], good | dict(odd=3)) == 'odd is 3, not text'

# ---- open, and why

def test_seeds_that_are_all_alike_have_their_reason_everywhere():
    same = runs('A', 61, 63, 59)
    cmp = Comparison(FEDAVG + same + runs('B', 70, 71, 72) + runs('FedAvg', 61, 63, 59, deal='iid'))
    t = cmp.table()
    assert t.numbers.set_index('method').verdict['A'] == 'open'
    assert 'Open, for all seeds differ from FedAvg by the same: A.' in t.notes
    assert t.notes[-1].endswith(': open, all seeds alike.')
    assert ', open, all seeds alike; global view' in cmp.story('toy')['skew']
    local = [runs('Local', 58, 60, 56, views=('personal',)), FEDAVG]
    assert 'FedAvg − Local is +2.0 points (1.2 to 2.8), open, all seeds alike' in story(*local)['federating']

def test_other_open_rows_and_single_seeds_do_not():
    for hs in (FEDAVG + runs('B', 55, 63, 64), [*FEDAVG[:1], *runs('A', 61)]):
        cmp = Comparison(hs)
        assert not [n for n in cmp.table().notes if 'alike' in n or 'by the same' in n]
    assert 'alike' not in story(FEDAVG, LOCAL)['federating']

# ---- seeds that are not counted

BEATS = Claim('X-01', 'beats', 'made up', 'FedBN', 'FedAvg', gain(), suites=('toy',))

@pytest.mark.parametrize('skip, n, of', [((), '3', 3), ([(2, 'b')], '2 of 3', 3)])
def test_a_claim_says_of_how_many_seeds_it_reads(skip, n, of):
    cmp = grid(made(seed=1, skip=skip))
    row, t = verdicts([BEATS], cmp).iloc[0], claims_table([BEATS], cmp)
    assert (row.of, t.cells.n[0]) == (of, n)
    assert any('of those that any has' in x for x in t.notes) == (n != '3')

def test_a_seed_that_one_method_never_ran_counts_as_well():
    cmp = Comparison([made(m, s) for m in ('FedAvg', 'FedBN') for s in range(3)][:-1])
    assert claims_table([BEATS], cmp).cells.n[0] == '2 of 3'

def test_a_method_with_fewer_seeds_is_named_where_it_is_not_ranked():
    says = story(FEDAVG, runs('A', 70, 71), runs('B', 65, 66, 67))['ahead']
    assert says.startswith('B is first with') and 'not at every seed: A.' in says
    assert 'every seed' not in story(FEDAVG, runs('B', 65, 66, 67))['ahead']
    assert 'every seed' not in story(FEDAVG, runs('B', 65, 66, 67, 68))['ahead']     # FedAvg's are there

# ---- a model and its card

class Killed(BaseException): ...

def test_a_card_is_never_there_before_its_model(pair, tmp_path, monkeypatch):
    fed = fed_of(FedAvg, pair, rounds=1)
    fed.fit()
    export(fed, tmp_path/'m.safetensors')
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    def killed(model, facts, part):
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p != part} == before
        raise Killed
    monkeypatch.setitem(after.WRITERS, '.safetensors', killed)
    monkeypatch.setattr(after, 'card', lambda *_: dict(classes=['other'], pixels=8, method='other'))
    with pytest.raises(Killed): export(fed, tmp_path/'m.safetensors')
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before       # both are the old ones
    monkeypatch.setitem(after.WRITERS, '.safetensors', lambda m, f, part: part.write_text('new'))
    export(fed, tmp_path/'n.safetensors')
    assert {p.name for p in tmp_path.iterdir()} == {*before, 'n.safetensors', 'n.json'}

# ---- what is not brought, and a mend that can be followed

def test_prepare_names_images_of_no_class_of_the_set(tmp_path):
    from fedskew_nb.downloads.layouts import LAYOUTS
    from fedskew_nb.downloads.prepare import prepare
    pacs = LAYOUTS['pacs']
    for d in pacs.counts:
        for c in (*pacs.classes, *['cat']*(d == 'photo')):
            file = tmp_path/'src'/'PACS'/d/c/'1.png'
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new('RGB', (8, 8), (len(c), len(d), 7)).save(file)
    said = prepare('pacs', tmp_path/'src', tmp_path/'out', progress=False)['remarks'][-1]
    assert said == 'images of no domain and class of the set, not brought: 1, first src/PACS/photo/cat/1.png'
    assert not (tmp_path/'out'/'photo'/'cat').exists()

@pytest.mark.parametrize('white, want', [(None, None), ('0,4095', (0, 4095)), ('4095', (0, 4095))])
def test_predict_takes_the_white_that_its_warning_names(tmp_path, monkeypatch, white, want):
    seen = []
    monkeypatch.setattr(predict, 'opened', lambda path: (None, dict(classes=['a'], pixels=8)))
    def rows(session, facts, *_):
        seen.append(facts.get('white'))
        return [['file', 'class', 'a'], ('x.png', 'a', 1.)]
    monkeypatch.setattr(predict, 'predictions', rows)
    monkeypatch.setattr(predict, 'show_json', lambda rows: None)
    monkeypatch.setattr(predict, 'files_below', lambda root: (root, []))
    predict.predict_command('m.onnx', tmp_path, white=white, json=True)
    assert seen == [want]
