"Claims: which runs they need, how they are stored and judged, and what a digest of the code sees."
import ast, json, math, subprocess, sys
from dataclasses import replace
import pytest, torch
from project import ROOT
from fedskew_nb import *
from fedskew_nb.analysis.claims import accuracy, by_domain, gain, judge, measured, within
from fedskew_nb.app.claims import (
    PAPERS, STUDIES, canonical, chosen, claim_units, claims_in, claims_table, decided_by, flat, homes, judged,
    measured_unit, older, run_claims, runs_of, stored_claims, study, verdicts)
from fedskew_nb.methods.fdse.claims import domains_won, halved_counts, paper_operations, wider
from fedskew_nb.engine.digest import closure, code_digest, imports, meaning
from fedskew_nb.analysis.probes import feature_answers, glance, inside, measure, models_of, restated

VARIANTS = PAPERS['F2DC'].variants

def toy(method, seed, avg, suite='skew-digits', path='', code=None, **measures):
    h = History(dict(method=method, suite=suite, seed=seed, code=code)); h.measures = measures
    h.rows = [dict(round=1, moment='post_agg', view='global', path=path, domain=d, client=-1, n=100, correct=avg+k) for d,k in (('a',-10),('b',10))]
    return h

# ---- the digest ----
@pytest.mark.parametrize('a, b, same', [
    ('x=1', 'x = 1 # one', True), ('"doc"\nx=1', 'x=1', True), ('def f():\n "d"\n return 1', 'def f(): return 1', True), ('x=1', 'x=2', False),
    ('def f(a): return a', 'def f(b): return b', False), ('x="a"', 'x="b"', False), ('a()\nb()', 'b()\na()', False)])
def test_meaning(a, b, same): assert (meaning(a)==meaning(b)) is same

def test_a_docstring_alone_does_not_make_a_function_mean_nothing(): assert meaning('def f(): "d"') != meaning('def f(): g()')

def test_closure_follows_every_kind_of_import():
    assert imports('methods.x', 'from ..core import Net\nfrom ..nn.gumbel import gumbel_mask\nimport torch') == {'core','nn.gumbel'}
    assert imports('engine', 'import fedskew_nb.laws\nfrom . import metrics\nfrom .data.suite import Suite') == {'laws','metrics','data.suite'}
    assert {'nn.gumbel','nn.correct','core','models'} <= closure('methods.f2dc').keys()

def test_digest_knows_the_method_and_not_its_values():
    assert code_digest(F2DC) == code_digest(F2DC(sigma=.3)) != code_digest(FedAvg)
    class Mine(Mechanism): pass
    assert code_digest(Method('a', Mine())) not in (code_digest(F2DC), code_digest(FedAvg))

def test_digest_sees_a_changed_file(tmp_path):
    found = []
    for i,body in enumerate(('pass', 'pass   # a remark', 'needs = (int,)')):
        f = tmp_path/f'mine{i}.py'; f.write_text(f'from fedskew_nb import Mechanism\nclass Mine(Mechanism): {body}\n')
        m = Method('a'); m.mechanisms = (from_file(str(f), 'Mine')(),); found.append((type(m.mechanisms[0]).__module__, code_digest(m)))
    assert found[0][1] != found[2][1]

def test_the_digest_is_stored_with_every_run():
    s = load_suite('skew-digits', size='tiny')
    h = Federation(FedAvg, small_conv(s.n_classes, size=s.image_size, width=4), s, rounds=1, local_steps=1).history
    assert h.setting['code'] == code_digest(FedAvg) and not older(h)
    h.setting['code'] = 'another'; assert older(h)

# ---- verdicts ----
@pytest.mark.parametrize('values, margin, word', [([1,1.1,.9],None,'holds'), ([-1,-1.1,-.9],None,'does not hold'), ([-1,1,.1],None,'undecided'), ([1],None,'undecided'),
    ([.1,.2,.15],1,'holds'), ([3,3.1,2.9],1,'does not hold'), ([-3,-3.1,-2.9],1,'does not hold'), ([.9,1.1,1.],1,'undecided')])
def test_judge(values, margin, word): assert judge(values, margin)['verdict'] == word

def test_showable_is_the_half_width(): i = judge([1,2,4]); assert i['showable'] == pytest.approx(i['hi']-i['mean'])

def test_a_stopped_run_has_lost_everything():
    stopped = History(dict(method='x')); stopped.measures = dict(stopped='NaN')
    assert accuracy(stopped) == 0 and gain()(toy('F2DC',0,60), stopped, '') == 60

def test_the_sign_is_the_claims_side():
    claim = chosen('F2DC-02')[0]
    cmp = Comparison([toy('F2DC',s,60) for s in range(3)]+[toy('FedAvg',s,60) for s in range(3)])
    for h in cmp.histories:
        if h.setting['method']=='F2DC': h.rows[0]['correct'] += 8+h.setting['seed']     # nearer together: fairer
    row, = judged(claim, cmp, 'skew-digits', VARIANTS['paper']); assert row['verdict'] == 'holds' and row['mean'] > 0 and row['n'] == 3

def test_only_seeds_that_both_have():
    cmp = Comparison([toy('F2DC',s,60+s) for s in (0,1,2,5)]+[toy('FedAvg',s,50) for s in (1,2,3,5)])
    assert judged(chosen('F2DC-01')[0], cmp, 'skew-digits', VARIANTS['paper'])[0]['n'] == 3
    assert judged(chosen('F2DC-01')[0], cmp, 'emoji-pacs', VARIANTS['paper']) == []

def test_a_missing_measure_is_no_verdict():
    assert judged(chosen('F2DC-15')[0], Comparison([toy('F2DC',s,60,rank=1.) for s in range(2)]+[toy('FedAvg',s,60) for s in range(2)]), 'skew-digits', VARIANTS['paper']) == []

def test_paths_are_read_as_asked():
    a = toy('F2DC',0,60,path='client'); a.rows += toy('F2DC',0,40,path='backbone').rows
    assert accuracy(a) == 60 and accuracy(a, path='backbone') == 40 and gain()(a, toy('FedAvg',0,50), 'backbone') == -10

def test_the_list_says_what_waits(monkeypatch):
    d = verdicts('FDSE-19'); assert d.verdict.tolist() == ['pending: needs Ditto']
    d = verdicts('F2DC-01', Comparison([toy('Local',0,1)])); assert d.verdict.tolist() == ['not run']
    assert 'older code' in claims_table('F2DC-01', Comparison([toy(m,s,60,code='old') for m in ('F2DC','FedAvg') for s in range(2)])).notes[-1]

# ---- which runs ----
def test_units_are_shared_and_deep_enough():
    todo = claim_units('F2DC', seeds=3, headline=8); names = [unit_name(u) for u in todo]
    count = lambda m,s: sum((u.method,u.suite,u.deal)==(m,s,'skew') for u in todo)
    assert len(set(names)) == len(names)
    assert count('FedAvg','skew-digits') == count('F2DC','emoji-pacs') == count("FedAvg + DC(preset='shared')",'skew-digits-uneven') == 8
    assert count('FedProx','skew-digits') == count('F2DC(DFD__lam=0)','emoji-pacs') == 3
    assert [u.seed for u in todo] == sorted(u.seed for u in todo)

def test_every_method_of_the_list_can_be_read():
    for u in claim_units('F2DC')+claim_units('FDSE'): assert read_method(u.method).name == u.method
    for s in STUDIES: assert len({canonical(m) for m in s.methods}) == len(s.methods)

@pytest.mark.parametrize('call, says', [(lambda: chosen('G'), 'no claim begins with'), (lambda: run_claims('F2DC-07', size='huge'), "no size 'huge'"),
    (lambda: study('F2DC-table-66'), 'F2DC-table-6')])
def test_bad_names(call, says):
    with pytest.raises(ValueError, match=says): call()

# ---- running ----
def test_run_stop_and_go_on(tmp_path, capsys):
    a = run_claims('F2DC-10', tmp_path/'a', size='tiny', seeds=2, headline=2); capsys.readouterr()
    half = claim_units('F2DC-10', 'tiny', 2, 2)[:3]
    for u in half: (tmp_path/'b'/'F2DC'/'runs').mkdir(parents=True, exist_ok=True); measured_unit(u, tmp_path/'b'/'F2DC'/'runs')
    b = run_claims('F2DC-10', tmp_path/'b', size='tiny', seeds=2, headline=2, jobs=2)
    assert a.histories == b.histories and [h.measures for h in a.histories] == [h.measures for h in b.histories]
    assert len(verdicts('F2DC-10', a)) == 4 and not claims_in(tmp_path/'a','F2DC').histories[0].measures.get('stopped')
    assert main(['claims','F2DC-10','--out',str(tmp_path/'a')]) == 0 and 'F2DC-10' in capsys.readouterr().out
    assert main(['claims','F2DC-10','--out',str(tmp_path/'a'),'--json']) == 0 and len(json.loads(capsys.readouterr().out)) == 4
    assert main(['claims','run','F2DC-10','--size','tiny','--seeds','2','--headline','2','--out',str(tmp_path/'a')]) == 0

def test_a_run_that_blows_up_is_stored(tmp_path):
    u = replace(claim_units('F2DC-10', 'tiny', 1, 1)[0], method='F2DC(DFD__lam=1e30)')
    h = measured_unit(u, tmp_path); assert 'is not finite' in h.measures['stopped'] and not h.rows
    assert measured_unit(u, tmp_path).measures == h.measures and not list(tmp_path.glob('*.safetensors'))

def test_command_line_refuses(capsys):
    assert main(['claims','F3DC']) == 2 and 'no claim begins' in capsys.readouterr().err
    assert main(['claims','--variant','papper']) == 2 and 'did you mean paper' in capsys.readouterr().err
    for prefix in ('F2DC-07',''): assert main(['claims','run',*[prefix][:bool(prefix)],'--store']) == 2 and 'claims run F2DC --store' in capsys.readouterr().err     # a part would overwrite the whole
    assert main(['claims','run','F2DC','--size','fast']) == 2 and "no size 'fast'" in capsys.readouterr().err

def test_runs_that_another_paper_stores():
    assert homes('F2DC') == ['F2DC','FDSE'] and homes('F2DC-04') == ['FDSE'] and not claim_units('F2DC-04', paper='F2DC')
    assert {'F2DC-04','F2DC-06b','FDSE-01'} <= {c.id for c in decided_by('FDSE','FDSE')} and all(c.home=='F2DC' for c in decided_by('F2DC','F2DC'))
    assert {'FDSE + DC','F2DC'} <= {u.method for u in claim_units('FDSE')} and {u.method for u in claim_units('F2DC-04')} == {'F2DC','FDSE'}

def test_several_suites_count_as_one():
    suites = tuple(f'emoji-pacs-without-{d}' for d in 'ab'); c = replace(chosen('FDSE-10')[0], suites=(suites,))
    cmp = Comparison([toy('FDSE',s,60,suite=x,plain=10.,adapted=10.+g+s) for s in range(3) for x,g in zip(suites,(2,4))]); row, = judged(c, cmp, suites, PAPERS['FDSE'].variants['paper'])
    assert row['values'] == [3,4,5] and row['suite'] == 'emoji-pacs, one domain left out' and flat((suites,'c')) == [*suites,'c']
    assert judged(c, Comparison(cmp.histories[::2]), suites, PAPERS['FDSE'].variants['paper']) == []       # one of the two is missing

def personal(method, seed, acc, moment='post_agg', rounds=None):
    h = History(dict(method=method, suite='emoji-pacs', seed=seed, rounds=rounds)); h.measures = {}
    h.rows = [dict(round=1, moment=moment, view='personal', path='', domain=d, client=i, n=100, correct=a) for i,(d,a) in enumerate(zip('abcd',acc))]; return h

def test_domains_won_and_ranges():
    a,b,c = personal('x',0,(60,60,60,50)), personal('y',0,(50,50,50,55)), personal('z',0,(40,40,40,40))
    assert domains_won(a,(b,c),'') > 0 > domains_won(b,(a,c),'')
    assert wider(a,(b,c,a,a),'') > 0 > wider(a,(a,a,b,c),'')
    assert by_domain(a,'personal') == (dict(a=60,b=60,c=60,d=50), dict(a=100,b=100,c=100,d=100)) and gain(view='personal',moment='post_local')(personal('x',0,[70]*4,'post_local'),personal('y',0,[60]*4,'post_local'),'') == 10

def test_longer_runs_are_another_run():
    short,long = personal('FDSE',0,[50]*4,rounds=4), personal('FDSE',0,[60]*4,rounds=12)
    for h in (short,long): h.setting['size'] = 'quick'
    cmp = Comparison([long,short]); assert runs_of(cmp,'FDSE','emoji-pacs') == {0:short} and runs_of(cmp,'FDSE','emoji-pacs',rounds=12) == {0:long}

def test_table_4():
    k = halved_counts(); assert k['holds'] and 'all six cells of Table 4 equal' in k['says'] and '22,313,083,200' in k['says']
    assert paper_operations(alexnet_bn(10, size=256)) == 44_079_433_600

# ---- what is stored ----
def test_stored_claims_are_whole():
    cmp = stored_claims('F2DC'); assert cmp is not None and cmp.about['date'] and cmp.about['size']=='quick'
    for h in cmp.histories: assert h.setting['code'] and (h.rows or h.measures['stopped']) and h.setting['data_seed']==h.setting['seed']
    assert {c.id for c in chosen('F2DC') if c.headline} == {'F2DC-01','F2DC-02','F2DC-05','F2DC-11','F2DC-14'}
    d = verdicts('F2DC'); d = d[(d.headline==True)&(d.variant=='paper')]; assert (d.n>=8).all() and len(d)==10

def test_uneven_suites():
    a,b = read_suite('skew-digits','tiny',0),read_suite('skew-digits-uneven','tiny',0); n = len(a.clients[0].train)
    assert b.name=='skew-digits-uneven' and [len(c.train) for c in b.clients]==[round(n*(5-i)/5) for i in range(5)]
    assert [len(c.train) for c in read_suite('skew-digits-uneven','tiny',1).clients][-1]==n and [len(c.test) for c in b.clients]==[len(c.test) for c in a.clients]
    assert a.fingerprint()!=b.fingerprint()==read_suite('skew-digits-uneven','tiny',0).fingerprint()
    with pytest.raises(ValueError, match="no suite 'digits'"): read_suite('digits-uneven','tiny')

# ---- measures ----
def test_models_of_and_measure():
    s = load_suite('emoji-pacs', size='tiny'); net = lambda: small_conv(s.n_classes, size=s.image_size, width=4)
    fed = lambda m: Federation(m, net(), s, rounds=1, local_steps=2, lr=.03)
    a,b,c = (fed(m) for m in (FedAvg, F2DC, F2DC(preset='shared')))
    for f in (a,b,c): f.fit()
    assert [list(models_of(f)) for f in (a,b,c)] == [[-1],[c.id for c in s.clients],[-1]]
    ma,mb = measure(a),measure(b)
    assert set(ma) == {'rank','class_silhouette','domain_silhouette','saliency','restated'} and set(mb)-set(ma) == {'plus','minus','star','whole','m_plus','m_minus','m_star'}
    assert all(math.isfinite(v) for v in mb.values()) and 1 <= ma['rank'] <= 128

def test_restating_touches_no_weight():
    s = load_suite('skew-digits', size='tiny'); net = F2DC.adapt(small_conv(s.n_classes, size=s.image_size, width=4))
    before = {n:v.clone() for n,v in net.state_dict().items()}; new = restated(net, s.clients[0].train, s.mean, s.std)
    assert all(torch.equal(v, net.state_dict()[n]) for n,v in before.items())
    assert all(torch.equal(p, q) for p,q in zip(net.parameters(), new.parameters())) and not new.training

def test_glance_is_even(): d = Data(torch.zeros(10,3,4,4,dtype=torch.uint8), torch.arange(10)); assert glance(d,5).y.tolist()==[0,2,4,6,8] and len(glance(d,100))==10

def test_heat_of_nothing_counts_as_uniform():
    m = torch.zeros(1,1,4,4,dtype=torch.uint8); m[...,:2] = 255
    assert inside(torch.zeros(1,4,4), m) == .5
