"The runs of a comparison: names, plans, jobs, what is kept. Its statistics are in test_analysis.py."
import csv, json, os, shutil
from dataclasses import dataclass, replace
import feds, pytest
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.analysis.report import suite_tables, write_report
from fedskew_nb.run import rates as rates_module, run as run_module
from fedskew_nb.run.compare import (
    compare, compare_grid, modern_request, request_of, resume)
from fedskew_nb.run.store import GridRequest, ListRequest, Store, read_request, stored_runs
from fedskew_nb.run.plan import grid_runs, planned
from fedskew_nb.run.rates import SCHEDULE, budget, budget_of, learning_rate
from fedskew_nb.run.recipes import method_recipe, model_recipe, suite_recipe
from fedskew_nb.run.tune import on_validation
from fedskew_nb.run.named import federation_of, named
from fedskew_nb.run.train import train_run
from fedskew_nb.core.mechanism import Mechanism
from fedskew_nb.core.method import Method
from fedskew_nb.core.names import in_words_of_today
from fedskew_nb.nets.models import small_conv
from fedskew_nb.core.pictures import read_image
from fedskew_nb.data.folder import folder, load_folder
from fedskew_nb.data.splits import dirichlet, leave_out, uneven
from fedskew_nb.engine.history import History
from fedskew_nb.methods.baselines.average import FedAvg, FedProx
from fedskew_nb.methods.baselines.personal import FedBN
from feds import run_name, run_of, two
from test_cli import images

TINY = dict(suite='emoji-pacs', size='tiny', progress=False, rounds=2, local_steps=2, eval_every=1,
            model='small_conv(width=4)')                                     # mechanics only
ALONE = TINY | dict(methods='FedAvg', control=False)
SMALL = ALONE | dict(suite=two, size='quick')        # images of one's own have no size
TWO = f'{feds.__file__}:two'                         # a text, to be resumed

# ---- names of runs

A = run_of('FedAvg', 'skew-digits')

CHANGES = [
    dict(method=method_recipe('FedProx')), dict(method=method_recipe('FedProx(mu=.1)')),
    dict(suite=suite_recipe('emoji-pacs', 'tiny')), dict(seed=1),
    dict(deal='iid'), dict(size='quick'), dict(protocol='fedbn'), dict(setting=dict(lr=.1)),
    dict(model=model_recipe('resnet10')), dict(device='mps')]

@pytest.mark.parametrize('change', CHANGES, ids=str)
def test_every_fact_is_in_the_name(change): assert run_name(replace(A, **change)) != run_name(A)

@pytest.mark.parametrize('package', ['fedskew_nb', 'torch'])
def test_versions_are_in_the_name(package, monkeypatch):
    before, newer = run_name(A), run_module.versions() | {package: '9'}
    monkeypatch.setattr(run_module, 'versions', lambda: newer)
    assert run_name(A) != before

def test_a_note_is_not_in_the_name(): assert run_name(replace(A, note='x')) == run_name(A)

def test_a_changed_method_file_is_another_run(tmp_path):
    f, text = tmp_path/'mine.py', 'from fedskew_nb import FedProx\nMine = FedProx(mu=.1).named("Mine")\n'
    def name(text):
        f.write_text(text)
        return run_name(run_of(f'{f}:Mine'))
    assert name(text) == name(text+'# a comment\n') != name(text.replace('.1', '.2'))

# ---- which runs

def test_control_brings_fedavg_and_pooled_is_extra():
    def deals(method, **kw): return [r.deal for r in planned(method, 'skew-digits', seeds=1, **kw)]
    assert deals('FedBN') == ['skew', 'skew', 'iid']
    assert deals('FedBN', control=False) == ['skew']
    assert deals('FedAvg', pooled=True) == ['skew', 'iid', 'pooled']

def test_two_methods_of_one_name_are_refused():
    two = [FedBN.named('Mine'), FedAvg.named('Mine')]
    with pytest.raises(ValueError, match='two different methods are called Mine'): planned(two, control=False)

@pytest.mark.parametrize('seeds', [0, [], [True], [.5]])
def test_bad_seeds_are_refused(seeds):
    with pytest.raises(ValueError, match='seeds is'): planned('FedAvg', seeds=seeds)

@pytest.mark.parametrize('bad, word', [
    (dict(suite='skew-digit'), 'did you mean skew-digits'),
    (dict(size='quik'), 'did you mean quick'),
    (dict(lr=float('nan')), 'lr is nan'),
    (dict(model='resnet'), 'no model'),
    (dict(jobs=0), 'jobs is 0'),
    (dict(out=os.devnull+'/x'), 'cannot write into')])
def test_refused_before_anything_is_trained(bad, word):
    with pytest.raises(ValueError, match=word): compare('FedAvg', **TINY | bad)

# ---- learning rates

QUICK = budget_of(SCHEDULE['quick'])
AT = dict(seeds=[100, 101], trials=4, budget=QUICK, model='small_conv')
RATES = [('emoji-pacs', 'FedAvg', AT | dict(lr=.02)), ('emoji-pacs', 'F2DC', AT | dict(lr=.005)),
         ('skew-digits', 'FedAvg', AT | dict(lr=.1, budget=QUICK | dict(batch_size=100))),
         ('skew-digits', 'F2DC', AT | dict(lr=.1, model='resnet10')),
         ('skew-digits', 'FedBN', dict(lr=.1, seeds=[7]))]

@pytest.mark.parametrize('method, suite, lr', [
    ('FedAvg', 'emoji-pacs', .02),
    ('FedAvg', 'emoji-pacs-uneven', .02),
    ('F2DC(sigma=.3)', 'emoji-pacs-without-photo', .005),
    ('FedAvg + DC', 'emoji-pacs', .02),
    ('FedAvg', 'skew-digits', None),
    ('F2DC', 'skew-digits', None),
    ('FedBN', 'skew-digits', None),
    ('F2DC', 'context-vehicles', None)])
def test_rates_hold_for_their_suite_budget_and_model(monkeypatch, method, suite, lr):
    monkeypatch.setattr(rates_module, 'shipped_rates', lambda: RATES)
    assert learning_rate(method_recipe(method), suite_recipe(suite), SCHEDULE['quick'])[0] == lr

def test_the_nearest_rate_goes_first(monkeypatch):
    "That of the very suite before that of what it is a variant of, and so for the method."
    near = [('emoji-pacs', 'F2DC(sigma=0.3)', AT | dict(lr=.2)),
            ('emoji-pacs-uneven', 'FedAvg', AT | dict(lr=.4))]
    def lr(method, suite):
        return learning_rate(method_recipe(method), suite_recipe(suite), SCHEDULE['quick'])[0]
    for rates in (near+RATES, RATES+near):
        monkeypatch.setattr(rates_module, 'shipped_rates', lambda rates=rates: rates)
        assert (lr('F2DC(sigma=.3)', 'emoji-pacs'), lr('F2DC', 'emoji-pacs')) == (.2, .005)
        assert (lr('FedAvg', 'emoji-pacs-uneven'), lr('FedAvg', 'emoji-pacs')) == (.4, .02)
        assert lr('F2DC(sigma=.3)', 'emoji-pacs-uneven') == .2

def test_a_chosen_rate_has_a_note_and_a_said_one_has_none(monkeypatch):
    monkeypatch.setattr(rates_module, 'shipped_rates', lambda: RATES)
    chosen = planned('F2DC', 'emoji-pacs', seeds=1)
    rates = {r.title: r.setting['lr'] for r in chosen}
    assert rates == {'FedAvg': .02, 'F2DC': .005, 'FedAvg, IID split': .02}
    assert {r.note for r in chosen} == {'lr chosen per method on pilot seeds 100, 101.'}
    assert {(r.setting['lr'], r.note) for r in planned('F2DC', 'emoji-pacs', seeds=1, lr=.1)} == {(.1, '')}
    for other in (dict(suite='context-vehicles'), dict(suite='emoji-pacs', batch_size=3)):
        runs = planned('F2DC', **other, seeds=1)
        assert {r.title: r.note for r in runs}['F2DC'] == 'lr 0.03, not chosen on pilot seeds.'
    assert budget(method_recipe('F2DC'), suite_recipe('emoji-pacs'), protocol='fedbn') == dict(setting={})

def test_a_rate_holds_at_any_number_of_rounds(monkeypatch):
    "The nearest one, which is named; at 48 rounds all trained at .03 before."
    other = [(s, m, r | dict(lr=lr, budget=r['budget'] | dict(rounds=rounds)))
             for s, m, r in RATES[:2] for lr, rounds in ((.7, 64), (.9, 6))]
    for rates in (RATES+other, other+RATES):
        monkeypatch.setattr(rates_module, 'shipped_rates', lambda rates=rates: rates)
        runs = {n: planned('F2DC', 'emoji-pacs', 1, rounds=n) for n in (24, 40, 48, 64, 8)}
        rate_of = {n: next(r for r in of if r.title == 'F2DC') for n, of in runs.items()}
        assert {n: r.setting['lr'] for n, r in rate_of.items()} == {24: .005, 40: .005, 48: .7, 64: .7, 8: .9}
        ends = {n: r.note.rpartition('101')[2] for n, r in rate_of.items()}
        assert ends == {24: '.', 40: ', at 24 rounds.', 48: ', at 64 rounds.', 64: '.', 8: ', at 6 rounds.'}

def test_epochs_that_are_asked_for_go_before_planned_steps():
    run, = planned('Local', 'emoji-pacs', 1, control=False, local_epochs=3)
    assert run.setting['local_epochs'] == 3 and 'local_steps' not in run.setting

def test_the_note_is_stored_and_stands_under_every_table(tmp_path):
    run = run_of(model=TINY['model'], setting=dict(rounds=1, local_steps=1), note='chosen.')
    h = train_run(run, tmp_path)
    assert h.setting['note'] == 'chosen.'
    assert 'note' not in train_run(replace(run, note=''), tmp_path).setting
    cmp = Comparison([h])
    assert 'chosen.' in str(cmp.table('global')) and 'chosen.' in str(cmp.overview())

# ---- one run

def test_a_killed_run_goes_on_to_the_same_bits(tmp_path):
    run = replace(A, suite=suite_recipe(two), model=model_recipe(TINY['model']),
                  setting=dict(rounds=3, local_steps=2, eval_every=1))
    want = train_run(run)
    federation_of(run, out=Store(tmp_path).file(*named([run]), 'safetensors')).fit(2)
    assert train_run(run, tmp_path) == want and [p.suffix for p in tmp_path.iterdir()] == ['.json']

def test_torn_files_are_named_and_the_run_begins_anew(tmp_path):
    how = SMALL | dict(seeds=1, suite=TWO)
    want = compare(**how)
    compare(**how, out=tmp_path)
    victim, = (tmp_path/'runs').glob('*.json')
    victim.write_text(victim.read_text()[:100])
    victim.with_suffix('.safetensors').write_bytes(b'torn')
    with pytest.warns(UserWarning) as said: again = resume(tmp_path, trust_code=True)
    for file in ('json', 'safetensors'):
        assert any(f'{file} is torn: this run begins anew' in str(w.message) for w in said)
    assert again.csv() == want.csv()

def test_measures_are_stored_and_made_up_for(tmp_path):
    "A finished run that was not measured is trained again when somebody asks for the measures."
    assert compare(**SMALL, seeds=1, out=tmp_path).histories[0].measures == {}
    h, = compare(**SMALL, seeds=1, out=tmp_path, measure=rounds_of).histories
    assert h.measures == dict(rounds=2) == compare(**SMALL, seeds=1, out=tmp_path).histories[0].measures

def test_who_has_nothing_to_measure_is_asked_once(tmp_path):
    how = SMALL | dict(seeds=1, out=tmp_path, measure=nothing_of)
    compare(**how)
    file, = (tmp_path/'runs').glob('*.json')
    before = file.stat().st_mtime_ns
    compare(**how)
    assert file.stat().st_mtime_ns == before

def nothing_of(fed): return {}

def rounds_of(fed): return dict(rounds=fed.round_no)

# ---- checkpoints

@pytest.mark.parametrize('method', ['FedAvg', 'FedBN', 'Local', 'F2DC', 'FDSE'])
def test_a_checkpoint_is_the_run_of_that_horizon(method):
    "Every row, loss and byte; and looking changes nothing of what comes after."
    how = SMALL | dict(methods=method, seeds=1, local_steps=1)
    checkpoints = compare(**how | dict(rounds=4, checkpoints=(2, 4)))
    short, plain = (compare(**how | dict(rounds=r)) for r in (2, 4))
    def ends(cmp, r): return [x for h in cmp.histories for x in h.rows if x['round'] == r]
    assert ends(checkpoints, 2) == ends(short, 2) and ends(checkpoints, 4) == ends(plain, 4)
    assert {r['round'] for r in checkpoints.histories[0].rows} == {1, 2, 3, 4}
    assert [h.rounds for h in checkpoints.at(2).histories] == [h.rounds for h in short.histories]
    views = {v[:2] for v in checkpoints.at(2).histories[0].views()}
    assert views >= {('personal', 'post_agg'), ('personal', 'post_local')}

def test_only_checkpoints_are_scored():
    h, = compare(**ALONE | dict(rounds=8, checkpoints=[2], local_steps=1, seeds=1)).histories
    assert sorted({r['round'] for r in h.rows}) == [1, 2, 6, 8]

def test_checkpoints_are_stored_killed_and_resumed(tmp_path):
    how = SMALL | dict(suite=TWO, seeds=1, rounds=4, checkpoints=(2,))
    run, = planned(**{k: v for k, v in how.items() if k != 'progress'})
    want = train_run(run)
    federation_of(run, out=Store(tmp_path/'runs').file(*named([run]), 'safetensors')).fit(3)
    found = compare(**how, out=tmp_path).histories
    assert found == [want] == resume(tmp_path, progress=False, trust_code=True).histories
    assert want.setting['checkpoints'] == [2] == read_request(tmp_path).given()['checkpoints']

NO_CHECKPOINTS = [
    ((4,), 'checkpoints holds 4, but there are 2 rounds'),
    ((0,), 'checkpoints holds 0'),
    ((1.5,), 'a whole number'),
    (2, 'give a list')]

@pytest.mark.parametrize('checkpoints, word', NO_CHECKPOINTS)
def test_checkpoints_that_are_none(checkpoints, word):
    with pytest.raises(ValueError, match=word): compare(**ALONE, seeds=1, checkpoints=checkpoints)

def rising(rise):
    "A comparison whose FedAvg gains `rise` points in the last quarter of four rounds."
    def run(method, seed, more):
        h = History(dict(method=method, suite='toy', seed=seed, rounds=4, checkpoints=[2]))
        row = dict(moment='post_agg', view='global', path='', domain='a', client=-1, n=1000)
        right = enumerate((0, more, 100, 100+more), start=1)
        h.rows = [row | dict(round=r, correct=500+seed+c) for r, c in right]
        return h
    return Comparison([run(m, s, c) for s in range(2) for m, c in (('FedAvg', rise), ('Other', 0))])

@pytest.mark.parametrize('rise, mark', [(10, ', rising'), (9, ''), (-10, ', falling')])
def test_what_still_rises_is_marked(rise, mark):
    t = rising(rise).checkpoints('global')
    assert list(t.cells) == ['method', '2 rounds', '4 rounds']
    assert t.cells.method.tolist() == ['FedAvg', 'Other']
    assert all(text.endswith(mark or '0.1') for text in t.cells.iloc[0, 1:])
    assert not t.cells.iloc[1, 1].endswith('ing')

def test_checkpoints_stand_in_the_report():
    tables = suite_tables(rising(1), 'toy')
    assert list(tables) == ['global', 'global-checkpoints', 'global-domains']
    assert all(t.numbers.to_dict('records') for t in tables.values())         # as `--json` writes them
    assert set(tables['global-checkpoints'].numbers.rounds) == {2, 4}

def both_of(there:dict, rounds=None):
    "The same runs under two names, the second with another setting and the rows of these rounds."
    others = rising(1).histories
    for h in others:
        h.setting |= there | dict(method=f'{h.setting["method"]} again')
        h.rows = [r for r in h.rows if rounds is None or r['round'] in rounds]
    return Comparison(rising(1).histories + others)

@pytest.mark.parametrize('there, rounds, have', [
    (dict(checkpoints=[2, 4]), None, True), (dict(checkpoints=[3, 2]), None, True),
    (dict(checkpoints=[2, 3]), None, True),
    (dict(checkpoints=None), None, True),             # every round was scored
    (dict(checkpoints=None), [1, 4], False), (dict(checkpoints=[1]), [1, 4], False),
    (dict(rounds=8), None, False)])
def test_a_table_of_checkpoints_is_of_runs_that_were_all_scored_there(there, rounds, have, tmp_path):
    "As in a paper's grid, where some are longer: nothing else of the report is lost."
    both = both_of(there, rounds)
    want = ['global', *['global-checkpoints']*have, 'global-domains']
    assert list(suite_tables(both, 'toy')) == want
    for h in both.histories: h.setting['deal'] = 'skew'
    write_report(both, tmp_path)
    assert (tmp_path/'report.html').exists()

def test_without_checkpoints_there_is_no_table_of_them(tmp_path):
    plain = rising(1)
    for h in plain.histories: h.setting['checkpoints'] = None
    assert list(suite_tables(plain, 'toy')) == ['global', 'global-domains']

def test_a_checkpoint_that_nobody_scored():
    with pytest.raises(ValueError, match='not scored after round 5, only after 1, 2, 3, 4'): rising(1).at(5)

def test_a_stopped_run_stays_stopped():
    h = History(dict(method='x', suite='toy', seed=0, rounds=4))
    h.measures = dict(stopped='NaN')
    assert h.at(2).measures == h.measures

# ---- many runs

@pytest.mark.campaign
def test_jobs_change_no_bit(tmp_path):
    want = compare('FedAvg', seeds=1, **TINY)
    got = compare('FedAvg', seeds=1, jobs=2, out=tmp_path, measure=rounds_of, **TINY)
    assert got.csv() == want.csv() and len(list((tmp_path/'runs').iterdir())) == 2
    assert [h.measures for h in got.histories] == [dict(rounds=2)]*2

def test_who_is_told(tmp_path):
    "Of every run; of a seed when it is complete, but not of one that was only read."
    told, seeds = [], []
    def on_run(done, of, run, h): told.append((done, of, run.seed))
    def on_seed(k, of, cmp): seeds.append((k, of, cmp.seeds))
    call = dict(out=tmp_path, on_run=on_run, on_seed=on_seed)
    compare(**SMALL, seeds=2, **call)
    assert told == [(1, 2, 0), (2, 2, 1)] and seeds == [(1, 2, [0]), (2, 2, [0, 1])]
    compare(**SMALL, seeds=3, **call)
    assert len(told) == 2+3 and seeds[2:] == [(3, 3, [0, 1, 2])]

BAD = '''
from fedskew_nb import Mechanism
class Bad(Mechanism):
    def loss(self, c, b, out): return dict(bad=out.logits.sum()*float("nan"))
'''

def test_a_failing_run_ends_the_call_and_keeps_the_others(tmp_path):
    f, out = tmp_path/'bad.py', tmp_path/'o'
    f.write_text(BAD)
    how = TINY | dict(seeds=1, control=False, out=out)
    with pytest.raises(FloatingPointError, match='bad'): compare(f'FedAvg,{f}:Bad', **how)
    assert [h is not None for _, h in stored_runs(out)] == [True, False]

# ---- requests

def test_request_is_stored(tmp_path):
    compare(**ALONE | dict(lr=.05), seeds=[3], out=tmp_path)
    d = read_request(tmp_path).given()
    assert (d['methods'], d['seeds'], d['lr'], d['control'], d['rounds']) == (['FedAvg'], [3], .05, False, 2)
    assert resume(tmp_path).seeds == [3]

def test_a_request_of_the_first_version_is_adopted_and_read(tmp_path):
    "As 0.1 wrote it, everything spelt out."
    old = dict(format=1, version='0.1.0', methods=['FedAvg'], suites=['emoji-pacs'], folders=[], seeds=2,
               size='tiny', control=True, pooled=False, model='small_conv', house=None, device='auto',
               setting=dict(rounds=2, local_epochs=3, lr=.05))
    (tmp_path/'compare.json').write_text(json.dumps(old))
    with pytest.raises(ValueError, match='call `fedskew adopt'): read_request(tmp_path)
    modern_request(tmp_path)
    d = read_request(tmp_path).given()
    assert d['suite'] == ['emoji-pacs'] and d['lr'] == .05 and stored_runs(tmp_path) == []
    now = {k: v for k, v in old.items() if k not in ('format', 'version', 'folders')}
    now = in_words_of_today(now)
    grown = ListRequest(**now | dict(seeds=3))
    assert grown.grows(read_request(tmp_path)) == '' != ListRequest(**now | dict(size='quick')).grows(grown)

@pytest.mark.parametrize('there, here, why', [
    ({}, dict(control=False), 'control there: True, here: False'), ({}, dict(control=True), ''),
    (dict(control=False), {}, ''), (dict(pooled=True), {}, 'pooled there: True, here: False'),
    ({}, dict(pooled=True), ''), ({}, dict(device='auto'), ''),
    ({}, dict(device='mps'), 'device there: auto')])
def test_what_was_not_said_is_the_default(there, here, why):
    "A folder grows by its control, and does not lose one that nobody named."
    of = dict(methods=['FedAvg'], suites=['emoji-pacs'], seeds=[0], size='tiny', model='small_conv')
    of |= dict(setting={})
    said = ListRequest(**of | here).grows(ListRequest(**of | there))
    assert said.startswith(why) and bool(said) == bool(why)

@pytest.mark.parametrize('there, here, why', [
    ({}, dict(device='auto'), ''), (dict(device='auto'), {}, ''), ({}, dict(trust=True), ''),
    (dict(keep_models=True), {}, ''), ({}, dict(device='mps'), 'device there: auto, here: mps'),
    (dict(lr=.1), dict(device='auto'), 'lr there: 0.1, here: None'),
    ({}, dict(control=False), 'control there: None, here: False'),       # its rows may say so, or not
    (dict(methods='FedAvg'), dict(methods='FedBN'), 'methods there: FedAvg, here: FedBN'),
    (dict(seeds=3), dict(seeds=2), 'seeds there: 3, here: 2')])
def test_what_a_grid_was_not_told_is_the_default(there, here, why):
    "`compare_grid` and then `fedskew compare --grid`, which names its device, are one comparison."
    said = GridRequest(grid='f2dc', said=here).grows(GridRequest(grid='f2dc', said=there))
    assert said.startswith(why) and bool(said) == bool(why)

def test_a_grid_is_no_list_and_no_other_grid():
    of = dict(methods=['FedAvg'], suites=['emoji-pacs'], seeds=[0], size='tiny', model='small_conv')
    grid, a_list = GridRequest(grid='f2dc', said={}), ListRequest(**of, setting={})
    assert grid.grows(a_list) == 'grid there: None, here: f2dc'
    assert a_list.grows(grid) == 'grid there: f2dc, here: None'
    assert grid.grows(GridRequest(grid='fdse', said={})) == 'grid there: fdse, here: f2dc'

STRANGE = [('{"format": 1, ', 'torn'), ('{"format": 99, "version": "9.9"}', 'written by fedskew_nb 9.9')]

@pytest.mark.parametrize('text, word', STRANGE)
def test_a_torn_or_strange_request_is_named(tmp_path, text, word):
    (tmp_path/'compare.json').write_text(text)
    with pytest.raises(ValueError, match=word): read_request(tmp_path)

STEPS = [(dict(), 20), (dict(local_epochs=1), None), (dict(local_steps=3), 3)]

@pytest.mark.parametrize('typed, steps', STEPS)
def test_a_folder_is_planned_in_steps_and_resumed_so(tmp_path, typed, steps):
    how = ALONE | dict(suite=folder(images(tmp_path/'pets')), seeds=1, rounds=1, size='quick')
    del how['local_steps']
    h, = compare(**how, **typed, out=tmp_path/'o').histories
    assert h.setting['local_steps'] == steps
    again, = resume(tmp_path/'o', progress=False).histories
    assert again == h and len(stored_runs(tmp_path/'o')) == 1

def test_a_folder_beside_a_suite_keeps_its_rounds(tmp_path):
    both = [folder(images(tmp_path/'pets')), 'emoji-pacs']
    setting = request_of(planned('FedAvg', both, 1), 1, 'quick', {}).setting
    assert 'rounds' not in setting
    rounds = {r.suite.name: r.setting['rounds'] for r in planned('FedAvg', both, 1, **setting)}
    assert rounds == {'pets': 32, 'emoji-pacs': 24}

def small_conv_of_width_4(n_classes): return small_conv(n_classes, width=4)

@dataclass
class Nothing(Mechanism): pass

OBJECTS = dict(
    small_conv_of_width_4=dict(model=small_conv_of_width_4), two=dict(suite=[two, 'emoji-pacs']),
    Mine=dict(methods=['FedAvg', Method('Mine', Nothing())]))

@pytest.mark.parametrize('name', OBJECTS)
def test_what_no_text_makes_again_cannot_be_resumed(name, tmp_path):
    "It is named, also beside others that could be typed: nothing is left out in silence."
    compare(**ALONE | dict(seeds=1, rounds=1, out=tmp_path) | OBJECTS[name])
    with pytest.raises(ValueError, match=f'asked for {name}, which no text makes again'): resume(tmp_path)

def test_a_name_that_is_a_file_runs_nothing(tmp_path):
    "A method's name is looked up, and the name of an object may be anything."
    file = tmp_path/'trap.py'
    file.write_text("raise SystemExit('ran')")
    assert method_recipe(Method(f'{file}:Mine', Nothing())).text == ''

def test_objects_of_the_package_are_resumed(tmp_path):
    "Their names make them again; a copy with other values has its own."
    how = ALONE | dict(seeds=1, rounds=1, out=tmp_path)
    was = compare(**how | dict(methods=[FedAvg, FedProx(mu=.3), FedBN + FedProx])).histories
    assert resume(tmp_path, progress=False).histories == was

def test_a_request_of_before_says_what_it_lacks(tmp_path):
    compare(**SMALL, seeds=1, out=tmp_path)
    file = tmp_path/'compare.json'
    said = json.loads(file.read_text())
    assert said.pop('objects') == ['two']
    file.write_text(json.dumps(said))
    with pytest.raises(ValueError, match='asked for a suite, which'): resume(tmp_path)

# ---- grids

@pytest.mark.parametrize('paper', ['f2dc', 'FDSE'])
def test_a_grid_has_every_run_once_and_early_seeds_first(paper):
    runs = grid_runs(paper)
    def facts(r):
        return r.title, r.suite.name, r.deal, r.seed, r.model, repr(sorted(r.setting.items()))
    assert len({facts(r) for r in runs}) == len(runs)
    assert [r.seed for r in runs] == sorted(r.seed for r in runs)

@pytest.mark.parametrize('paper', ['f2dc', 'fedddl'])
def test_what_is_said_goes_before_the_grid(paper):
    "Also where the rates are tuned ones, as FedDDL's are."
    runs = grid_runs(paper, seeds=[5], lr=.5)
    assert {r.seed for r in runs} == {5} and {r.setting['lr'] for r in runs} == {.5}

def test_an_unknown_grid_is_refused():
    with pytest.raises(ValueError, match="no grid 'f2d': did you mean f2dc"): compare_grid('f2d', 'nowhere')

def test_which_file_was_for_what_stands_beside_the_runs(tmp_path):
    "One row an image, once a split: by the pixels of what the suite of that seed holds."
    root, out = images(tmp_path/'pets'), tmp_path/'out'
    shutil.copy(root/'day/cat/0.png', root/'day/cat/again.png')
    compare('FedAvg,Local', folder(root, 16), 2, out=out, rounds=1, local_steps=1, progress=False,
            model='small_conv(width=4)')
    assert len([*(out/'splits').iterdir()]) == 2
    for seed in range(2):
        suite, (file,) = load_folder(root, 16, data_seed=seed), (out/'splits').glob(f'*_s{seed}_*.csv')
        datas = [(part, getattr(c, part)) for c in suite.clients for part in ('train', 'val')]
        datas += [('test', d) for d in suite.tests.values()]
        of = {x.numpy().tobytes(): part for part, d in datas for x in d.x}
        rows = [*csv.DictReader(file.open())]
        assert [*rows[0]] == ['image', 'site', 'part'] and {r['part'] for r in rows} > set(of.values())
        out_of_use = [r['image'] for r in rows if r['part'] == 'left out']
        assert len(rows) == 49 and len(out_of_use) == 1 and out_of_use[0].startswith('day/cat/')
        for r in rows:
            x = read_image(root/r['image'], 16)[0].tobytes()
            assert r['part'] in (of[x], 'left out') and r['image'].startswith(r['site'])

@pytest.mark.parametrize('again', [uneven, lambda s: leave_out(s, 'day'), lambda s: dirichlet(s, 1.)])
def test_a_suite_that_was_dealt_anew_has_no_table_of_another_deal(tmp_path, again):
    suite = load_folder(images(tmp_path/'pets'), 16)
    assert suite.files and not again(suite).files

def test_a_tuning_leaves_no_table_of_tests_that_nobody_is_asked_about(tmp_path):
    suite = on_validation(suite_recipe(folder(images(tmp_path/'pets'), 16))).make(0)
    assert not suite.files
