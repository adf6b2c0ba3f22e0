"Statistics, tables and runs of a comparison: what teaches nothing and must hold."
import itertools, json, math
from pathlib import Path
import numpy as np, pytest
from scipy import stats
from fedskew_nb.analysis.comparison import Comparison, load_comparison, t_interval, verdict
from fedskew_nb.engine.history import History
from fedskew_nb.analysis.report import write_report
from fedskew_nb.app.runs import compare, read_request, resume, stored_units, units
from fedskew_nb.app.compare import Unit, unit_name

TINY = dict(suite='emoji-pacs', size='tiny', progress=False)

def history(method, seed, correct, suite='toy', view='global', moment='post_agg', domain='a', n=1000):
    h = History(dict(method=method, suite=suite, seed=seed, data_seed=seed, size='tiny'))
    h.rows = [dict(round=1, moment=moment, view=view, path='', domain=domain, client=-1, n=n, correct=correct),
              dict(round=1, moment=moment, view=view, path='', domain=domain+'2', client=-1, n=n, correct=correct)]
    return h

# ---- statistics

@pytest.mark.parametrize('n', [2, 3, 5, 30])
def test_interval_is_students(n):
    x = np.random.default_rng(n).normal(3, 2, n); i = t_interval(x)
    lo,hi = stats.t.interval(.95, n-1, loc=x.mean(), scale=stats.sem(x))
    assert np.allclose([i['mean'],i['se'],i['lo'],i['hi']], [x.mean(),stats.sem(x),lo,hi], rtol=1e-12)

def test_interval_does_not_depend_on_order():
    assert len({tuple(t_interval(p).values()) for p in itertools.permutations([.1,.2,.3,1e9])})==1

def test_no_seed_and_one_seed():
    with pytest.raises(ValueError, match='at least one seed'): t_interval([])
    assert verdict(t_interval([5.]))=='one seed: no interval' and math.isnan(t_interval([5.])['se'])

def test_p_value_and_interval_agree():
    for s in range(20):
        d = np.random.default_rng(s).normal(.8, 1, 5)
        assert (verdict(t_interval(d))=='resolved')==(stats.ttest_1samp(d,0).pvalue<.05)

def test_skew_cost_is_paired_by_seed():
    hs = [h for s,(a,b) in enumerate([(600,650),(700,760),(500,540)]) for h in (history('FedAvg',s,a), history('FedAvg',s,b,'toy/iid'))]
    c = Comparison(hs).skew_cost()['toy']
    assert c['n']==3 and math.isclose(c['mean'],5.) and math.isclose(c['se'], np.std([5,6,4],ddof=1)/3**.5)
    assert Comparison(reversed(hs)).csv()==Comparison(hs).csv()

def test_only_common_seeds_are_paired():
    hs = [history('FedAvg',s,600+s) for s in (0,1,2)]+[history('B',s,700+s) for s in (1,2,3)]
    assert Comparison(hs).paired('toy',('skew','B'))['n']==2
    assert Comparison([hs[0],hs[-1]]).paired('toy',('skew','B')) is None

def test_views_and_moments_are_never_mixed():
    hs = [history('FedAvg',0,600), history('FedAvg',1,610), history('Local',0,900,view='personal'), history('Local',1,900,view='personal')]
    c = Comparison(hs)
    assert set(c.scores('global').method)=={'FedAvg'} and set(c.scores('personal').method)=={'Local'}
    with pytest.raises(ValueError, match='no run has the view'): c.scores('global','post_local')

def test_a_table_names_its_suite():
    c = Comparison([history('FedAvg',0,600), history('FedAvg',0,600,'other')])
    with pytest.raises(ValueError, match='name one'): c.table()
    assert 'other' in c.table(suite='other').caption

def test_save_and_load(tmp_path):
    c = Comparison([history('FedAvg',s,600+s) for s in range(3)])
    c.save(tmp_path/'a.json.gz'); c.save(tmp_path/'b.json.gz')
    assert (tmp_path/'a.json.gz').read_bytes()==(tmp_path/'b.json.gz').read_bytes()
    assert load_comparison(tmp_path/'a.json.gz').csv()==c.csv()

def test_report_of_one_domain_has_no_std(tmp_path):
    h = history('FedAvg',0,600); h.rows = h.rows[:1]
    write_report(Comparison([h]), tmp_path)
    assert 'nan' not in (tmp_path/'table.md').read_text()

# ---- units and runs

def test_every_fact_is_in_the_name():
    u = dict(method='FedAvg', suite='skew-digits', size='tiny')
    other = [{}, dict(method='FedProx'), dict(suite='emoji-pacs'), dict(seed=1), dict(deal='iid'), dict(size='quick'), dict(house='fedbn'), dict(setting=dict(lr=.1)), dict(model='resnet10')]
    assert len({unit_name(Unit(**(u|o))) for o in other})==len(other)

def test_control_brings_fedavg_and_pooled_is_extra():
    assert [u.deal for u in units('FedBN','skew-digits',seeds=1)]==['skew','skew','iid']
    assert [u.deal for u in units('FedBN','skew-digits',seeds=1,control=False)]==['skew']
    assert [u.deal for u in units('FedAvg','skew-digits',seeds=1,pooled=True)]==['skew','iid','pooled']

def test_jobs_change_no_bit(tmp_path):
    want = compare('FedAvg', seeds=1, **TINY)
    got = compare('FedAvg', seeds=1, jobs=2, out=tmp_path, **TINY)
    assert got.csv()==want.csv() and len(list((tmp_path/'runs').iterdir()))==2

def test_a_failing_run_ends_the_call_and_keeps_the_others(tmp_path):
    f = tmp_path/'bad.py'; f.write_text('from fedskew_nb import Mechanism\nclass Bad(Mechanism):\n    def loss(self, c, b, out): return dict(bad=out.logits.sum()*float("nan"))\n')
    with pytest.raises(FloatingPointError, match='bad'): compare(f'FedAvg,{f}:Bad', seeds=1, control=False, out=tmp_path/'o', **TINY)
    assert [h is not None for _,h in stored_units(tmp_path/'o')]==[True,False]

def test_a_changed_method_file_is_another_run(tmp_path):
    f = tmp_path/'mine.py'; f.write_text('from fedskew_nb import Method\nMine = Method("Mine")\n'); a = unit_name(Unit(f'{f}:Mine','emoji-pacs'))
    f.write_text(f.read_text()+'# changed\n'); assert unit_name(Unit(f'{f}:Mine','emoji-pacs'))!=a

def test_request_is_stored_and_torn_ones_are_named(tmp_path):
    compare('FedAvg', seeds=[3], control=False, out=tmp_path, lr=.05, **TINY)
    d = read_request(tmp_path); assert (d['methods'],d['seeds'],d['lr'],d['control'])==(['FedAvg'],[3],.05,False)
    assert resume(tmp_path, progress=False).seeds==[3]
    (tmp_path/'compare.json').write_text('{"format": 1, ')
    with pytest.raises(ValueError, match='torn'): read_request(tmp_path)
    (tmp_path/'compare.json').write_text(json.dumps(dict(format=99, version='9.9')))
    with pytest.raises(ValueError, match='written by fedskew_nb 9.9'): read_request(tmp_path)
