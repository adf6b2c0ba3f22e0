"Stored runs, trained again by today's code: stamped where all are equal, untouched where one is not."
import copy, sys
import pytest
from fedskew_nb.app import claims
from fedskew_nb.app.claims import PAPERS, look_code, measured_unit, older, stored_claims
from fedskew_nb.app.cli import parser_of
from fedskew_nb.analysis.comparison import Comparison, deal_of, load_comparison
from fedskew_nb.engine.history import History
from fedskew_nb.app.renew import (
    BEFORE, Renewal, claims_renew_command, facets, first_difference, older_runs, renew, renew_file,
    run_difference, sample_runs, stamp, unit_of, unsaid)
from fedskew_nb.app.runs import open_folder
from fedskew_nb.app.compare import Unit, unit_name

home = sys.modules['fedskew_nb.renew']                    # fedskew_nb.renew is the function
TINY = dict(size='tiny', model='small_conv(width=4)', device='cpu', setting=dict(rounds=1, local_steps=1))

@pytest.fixture(autouse=True)
def quick_look(monkeypatch): monkeypatch.setitem(PAPERS, 'F2DC', PAPERS['F2DC']._replace(look=lambda fed: dict(norm=float(fed.net.head.weight.detach().norm()))))

@pytest.fixture(scope='module')
def folder(tmp_path_factory): return tmp_path_factory.mktemp('made')

@pytest.fixture
def made(folder): return [measured_unit(Unit(m,'skew-digits','skew',s,**TINY), open_folder(folder)) for s in (0,1) for m in ('FedAvg','FedProx(mu=0.1)')]

@pytest.fixture
def store(made, tmp_path):
    def _store(*changes, **about):
        "A file of four runs, as if made by other code; every change is done to the first run."
        cmp = Comparison(copy.deepcopy(made)); path = tmp_path/'claims-F2DC.json.gz'
        for h in cmp.histories: h.setting['code'] = 'of yesterday'
        for change in changes: change(cmp.histories[0])
        cmp.save(path, **dict(date='2026-01-01', size='tiny', measures=look_code('F2DC'), checks=dict(a=1))|about); return path
    return _store

@pytest.fixture
def trained(monkeypatch):
    "The units that are really trained."
    seen,run = [],claims.run_unit
    monkeypatch.setattr(claims, 'run_unit', lambda u, *a, **k: seen.append(u) or run(u, *a, **k)); return seen

# ---- a whole file ----
def test_equal_runs_are_stamped(store, made, tmp_path, trained):
    path = store(measures='other'); assert len(older_runs(load_comparison(path),'F2DC')) == 4
    report = renew_file('F2DC', path, tmp_path/'o', day='2026-02-03'); assert (report.checked, report.of, report.differs) == (2,4,{}) and 'all are equal' in str(report)
    cmp = load_comparison(path); assert cmp.about == dict(date='2026-01-01', size='tiny', measures=look_code('F2DC'), checks=dict(a=1), renewed=[dict(date='2026-02-03', checked=2, of=4)])
    assert not older_runs(cmp,'F2DC') and {(u.label,u.seed) for u in trained} == {('FedAvg',0),('FedProx(mu=0.1)',0)}
    assert [h.as_dict() for h in cmp.histories] == [h.as_dict() for h in Comparison(made).histories]       # the digest came back, nothing else moved
    before = path.read_bytes(); assert 'nothing to renew' in str(renew_file('F2DC', path, tmp_path/'o')) and path.read_bytes() == before

def test_every_renewal_is_kept(store, folder):
    path = store(renewed=[dict(date='2026-01-02', checked=1, of=4)]); renew_file('F2DC', path, folder/'o', per='all', day='2026-02-03')
    assert load_comparison(path).about['renewed'] == [dict(date='2026-01-02', checked=1, of=4), dict(date='2026-02-03', checked=4, of=4)]

def row(h): h.rows[2]['correct'] += 1
def loss(h): h.rounds[0]['loss'] = float(f'{h.rounds[0]["loss"]:.12g}')
def cost(h): h.rounds[0]['up'] += 4
def who(h): h.rounds[0]['participants'].pop()
def fewer(h): h.rows.pop()
def norm(h): h.measures['norm'] += 1e-15
def more(h): h.measures['other'] = 1
def deal(h): h.setting['fingerprint'] = 'x'
@pytest.mark.parametrize('change, says', [(row,'rows[2] (round 1'), (loss,'rounds[0] (round 1) loss was'), (cost,'up was'), (who,'participants[4] was nothing, is 4'), (fewer,'was nothing, is {'),
    (norm,'measures norm was'), (more,'measures other was 1, is nothing'), (deal,"fingerprint was 'x'")])
def test_one_number_is_enough(store, tmp_path, folder, change, says):
    path = store(change); before = path.read_bytes(); report = renew_file('F2DC', path, folder/'o')
    assert path.read_bytes() == before and [*tmp_path.glob('*.gz*')] == [path]
    assert list(report.differs) == ['FedAvg on skew-digits, seed 0, 1 rounds'] and all(t in str(report) for t in (says,'FedAvg on skew-digits, seed 0','nothing is stamped','1 of 2'))
    with pytest.raises(ValueError, match='nothing is stamped'): stamp(load_comparison(path), report)

def test_time_and_memory_are_no_results(store, folder):
    def other_machine(h): h.timing = [dict(round=1, seconds=1e6, eval_seconds=0.)]; h.peak_memory = 7; h.setting['versions'] = dict(h.setting['versions'], torch='1.0')
    path = store(other_machine); assert not renew_file('F2DC', path, folder/'o', per='run').differs
    path = store(other_machine, row); assert 'stored with torch 1.0, here is' in str(renew_file('F2DC', path, folder/'o'))

# ---- fields that the old code did not have ----
def test_a_field_of_today_is_set_to_what_was_done_before(store, tmp_path, monkeypatch, trained):
    def forget(h): del h.setting['decay']
    path = store(forget); before = path.read_bytes()
    with pytest.raises(ValueError, match="field 'decay'.*BEFORE"): renew_file('F2DC', path, tmp_path/'o')
    assert path.read_bytes() == before and not trained
    monkeypatch.setitem(BEFORE, 'decay', 1.); assert unsaid({k:v for k,v in load_comparison(path).histories[1].setting.items() if k!='decay'}) == dict(decay=1.)
    assert not renew_file('F2DC', path, tmp_path/'o').differs and trained[0].setting['decay'] == 1.
    assert load_comparison(path).histories[0].setting['decay'] == 1.
    monkeypatch.setitem(BEFORE, 'decay', .5); path = store(forget, lambda h: h.setting.update(rounds=2))        # what it says is really used
    assert renew(load_comparison(path), 'F2DC', tmp_path/'o').differs and trained[-1].setting['decay'] == .5

# ---- stop and go on ----
def test_an_interrupted_renewal_goes_on(store, tmp_path, trained):
    path = store(); before = path.read_bytes(); said = []
    def stop(*a): raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt): renew_file('F2DC', path, tmp_path/'o', on_run=stop)
    assert path.read_bytes() == before and len(trained) == 1
    renew_file('F2DC', path, tmp_path/'o', on_run=lambda *a: said.append(a)); assert len(trained) == 2 and said[0] == (1,2,'FedAvg on skew-digits, seed 0, 1 rounds','')

def test_what_other_code_left_is_trained_anew(store, tmp_path, trained):
    path = store(); renew_file('F2DC', path, tmp_path/'o'); a,b = sorted((tmp_path/'o').rglob('*.json'))
    for p,k in ((a,'code'),(b,'versions')): h = History.load(p); h.setting[k] = 'x' if k=='code' else dict(h.setting['versions'], torch='1.0'); h.rows = []; h.save(p); p.with_suffix('.safetensors').write_bytes(b'half')
    assert not renew_file('F2DC', store(), tmp_path/'o').differs and len(trained) == 4 and not list((tmp_path/'o').rglob('*.safetensors'))

def test_code_edited_meanwhile(store, folder, monkeypatch):
    path = store(); before = path.read_bytes()
    def edit(done, of, run, d): done==of and monkeypatch.setattr(home, 'code_digest', lambda m: 'edited')
    with pytest.raises(ValueError, match='the code was edited'): renew_file('F2DC', path, folder/'o', on_run=edit)
    assert path.read_bytes() == before

def test_a_stopped_run_must_stop_again(tmp_path):
    u = Unit('FedAvg','skew-digits','skew',0,**TINY|dict(setting=dict(rounds=1, local_steps=3, lr=1e30))); h = measured_unit(u, tmp_path); assert h.measures['stopped']; h.setting['code'] = 'of yesterday'
    assert not renew(Comparison([h]), 'F2DC', tmp_path/'o').differs
    now = copy.deepcopy(h); now.measures['stopped'] += '; the last good checkpoint is elsewhere'; assert not run_difference(h, now)
    now.measures['stopped'] = 'client 7'; assert run_difference(h, now).startswith('stopped was')

# ---- which runs ----
def toy(method, suite, seed, rounds=4, code='x', torch='2'): return History(dict(method=method, suite=suite, seed=seed, rounds=rounds, code=code, versions=dict(torch=torch)))

def test_every_kind_is_in_the_sample():
    hs = [toy(m,s,seed) for m in 'AB' for s in 'pq' for seed in (1,2)]; a,b = sample_runs(hs); assert {h.setting['suite'] for h in (a,b)} == {'p','q'} and {h.setting['seed'] for h in (a,b)} == {1}
    for odd in (toy('A','r',5), toy('A','p',5,12), toy('A','p',5,code='y'), toy('A','p',5,torch='1')): assert odd in sample_runs(hs+[odd])
    assert len(sample_runs(hs,'run')) == 4 and len(sample_runs(hs,'all')) == 8 and sample_runs([]) == []

def test_runs_of_today_stand_for_nothing(made, folder):
    cmp = Comparison(copy.deepcopy(made)); cmp.histories[1].setting['code'] = 'of yesterday'; old, = older_runs(cmp,'F2DC')
    report = renew(cmp, 'F2DC', folder/'o'); assert old is cmp.histories[1] and (report.checked, report.of) == (1,1)

@pytest.mark.parametrize('paper', PAPERS)
def test_every_stored_run_can_be_trained_again(paper):
    hs = stored_claims(paper).histories; us = [unit_of(h) for h in hs]; assert len({unit_name(u) for u in us}) == len(hs)
    for h,u in zip(hs,us): assert (u.method, u.suite, u.deal) == (h.setting['method'], *deal_of(h)) and all(h.setting[k]==v for k,v in u.setting.items() if k in h.setting)
    assert {f for h in sample_runs(hs) for f in facets(h)} == {f for h in hs for f in facets(h)}

def test_first_difference():
    assert first_difference(1, 1.) and first_difference(0., -0.) and first_difference([], {}) and not first_difference([None,{'a':'b'}], [None,{'a':'b'}])
    assert first_difference(dict(a=None), {}) == 'a was None, is nothing'

# ---- the command ----
def test_command(store, folder, monkeypatch, capsys):
    path = store(row); monkeypatch.setattr(home, 'claims_file', lambda paper: path); out = str(folder/'o')
    with pytest.raises(ValueError, match='nothing is stamped'): claims_renew_command('F2DC', out=out)
    assert '[1/2] FedAvg on skew-digits, seed 0, 1 rounds: rows[2]' in capsys.readouterr().err
    store(); claims_renew_command('F2DC', all=True, out=out); said = capsys.readouterr(); assert '4 of 4 runs' in said.out and 'stamped' in said.out and said.err.count('equal') == 4
    args = parser_of(claims_renew_command, 'claims renew').parse_args(['F2DC','--per','run','--jobs','2']); assert (args.paper, args.per, args.all, args.jobs) == ('F2DC','run',False,2)

@pytest.mark.parametrize('call, says', [(lambda p: renew_file('F3DC',p), 'did you mean F2DC'), (lambda p: renew_file('F2DC',p/'none'), 'no runs of F2DC are stored'),
    (lambda p: claims_renew_command('F2DC', jobs=0), 'jobs is 0'), (lambda p: sample_runs([],'rn'), 'did you mean run'), (lambda p: stamp(None, Renewal('F2DC')), 'nothing to renew')])
def test_refusals(tmp_path, call, says):
    with pytest.raises(ValueError, match=says): call(tmp_path)
    h = toy('FedAvg','skew-digits',1); h.setting['data_seed'] = 2
    with pytest.raises(ValueError, match='data_seed 2'): unit_of(h)
