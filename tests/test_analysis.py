"Comparisons, tables, pictures, colours and probes: what teaches nothing and must hold."
import itertools, math
from pathlib import Path
from xml.etree import ElementTree
import fedskew_nb
import matplotlib as mpl, matplotlib.pyplot as plt
import numpy as np, pandas as pd, pytest, torch
from feds import halved, same
from shipped import stored
from scipy import stats
from torch import nn
from fedskew_nb.analysis import style
from fedskew_nb.analysis.comparison import Comparison, write_whole
from fedskew_nb.analysis.overview import load_comparison, stored_names, stored_results
from fedskew_nb.analysis.plots import domain_grid, mosaic, partition_bars
from fedskew_nb.analysis.style import DASHES, INK, PALETTE, colour, ink, read_ink, shades
from fedskew_nb.analysis.diagrams import Drawing, drawing
from fedskew_nb.analysis.explain import gradcam, gradcam_grid, pixel_gradients, spectra, tsne
from fedskew_nb.analysis.probes import adabn, inside, measure, models_of, own_adabn, own_models, sights
from fedskew_nb.core.net import pieces
from fedskew_nb.engine.scoring import reestimate
from fedskew_nb.analysis.plots import by_name, client_domain_heatmap, finals, plot_curves
from fedskew_nb.analysis.plots import seed_points, skew_cost_bars, spread
from fedskew_nb.analysis.report import common_setting, costs, report_html, setting_table, suite_tables
from fedskew_nb.analysis.report import timing, write_report
from fedskew_nb.analysis.stats import effect_shown, holm, p_value, power_of, t_interval
from fedskew_nb.analysis.table import Table, named_rows, tex
from fedskew_nb.nets.models import small_conv
from fedskew_nb.core.net import Net
from fedskew_nb.data.load import load_suite
from fedskew_nb.data.splits import leave_out
from fedskew_nb.engine.federation import Federation
from fedskew_nb.engine.reading import TABLED, Where
from fedskew_nb.engine.history import History
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.methods.baselines.personal import FedBN

@pytest.fixture(autouse=True)
def no_open_figures():
    yield
    plt.close('all')

def history(method, seed, correct, suite='toy', view='global', domains=('a', 'a2')):
    "One round of a run, that many of 1000 answers right in each domain."
    h = History(dict(method=method, suite=suite, seed=seed, data_seed=seed, size='tiny', rounds=1))
    said = dict(round=1, moment='post_agg', view=view, path='', client=-1, n=1000, correct=correct)
    h.rows = [dict(domain=d, **said) for d in domains]
    return h

# ---- statistics of a comparison

@pytest.mark.parametrize('n', [2, 3, 5, 30])
def test_interval_is_students(n):
    x = np.random.default_rng(n).normal(3, 2, n)
    i, lo_hi = t_interval(x), stats.t.interval(.95, n-1, loc=x.mean(), scale=stats.sem(x))
    want = [x.mean(), stats.sem(x), *lo_hi]
    assert np.allclose([i.mean, i.se, i.lo, i.hi], want, rtol=1e-12)

def test_interval_does_not_depend_on_order():
    assert len({tuple(t_interval(p).as_dict().values()) for p in itertools.permutations([.1,.2,.3,1e9])})==1

def test_no_seed_and_one_seed():
    with pytest.raises(ValueError, match='at least one seed'): t_interval([])
    assert str(t_interval([5.]).verdict()) == 'open' and math.isnan(t_interval([5.]).se)

@pytest.mark.parametrize('s', range(20))
def test_p_value_and_interval_agree(s):
    d = np.random.default_rng(s).normal(.8, 1, 5)
    i, p = t_interval(d), stats.ttest_1samp(d, 0).pvalue
    assert math.isclose(p_value(i), p, rel_tol=1e-9)
    assert (i.verdict().above != 'open') == (p < .05) == (i.lo > 0 or i.hi < 0)

def test_no_width_has_no_p():
    assert math.isnan(p_value(t_interval([2.]))) and math.isnan(p_value(t_interval([2.,2.])))

def rejects(p, k, alpha):
    "Holm: reject while the smallest left is below alpha over how many are left."
    for left, j in zip(range(len(p), 0, -1), sorted(range(len(p)), key=lambda j: p[j])):
        if left*p[j] > alpha*(1+1e-12): return False
        if j == k: return True

def naive_holm(p):
    "The adjusted p is the least alpha that rejects."
    alphas = sorted({min(1, m*q) for m in range(1, len(p)+1) for q in p} | {1.})
    return [next(a for a in alphas if a == 1 or rejects(p, k, a)) for k in range(len(p))]

@pytest.mark.parametrize('p', [[], [.3], [.01,.04,.03], [.01,.01,.01], [.9,.8], [.001,.2,.011,.03,.04,.6]])
def test_holm(p): assert np.allclose(holm(p), naive_holm(p))

@pytest.mark.parametrize('n, effect', [(3,3.26), (5,1.68), (8,1.16), (12,.89), (16,.75), (20,.66)])
def test_effects_that_are_shown(n, effect):
    assert round(effect_shown(1, n), 2) == effect
    assert math.isclose(effect_shown(2., n, .9), 2*effect_shown(1, n, .9))
    assert math.isclose(power_of(effect_shown(1, n, .99, .01), n, .01), .99)

def test_no_effect_is_shown_by_one_seed():
    assert math.isnan(effect_shown(1, 1)) and math.isclose(power_of(effect_shown(1, 2), 2), .8)

def test_skew_cost_is_paired_by_seed():
    pairs = enumerate([(600, 650), (700, 760), (500, 540)])
    hs = [[history('FedAvg', s, a), history('FedAvg', s, b, 'toy/iid')] for s, (a, b) in pairs]
    hs = sum(hs, [])
    c = Comparison(hs).skew_cost()['toy']
    assert c.n == 3 and math.isclose(c.mean, 5.)
    assert math.isclose(c.se, np.std([5, 6, 4], ddof=1)/3**.5)
    assert Comparison(reversed(hs)).csv() == Comparison(hs).csv()

def test_only_common_seeds_are_paired():
    hs = [history('FedAvg',s,600+s) for s in (0,1,2)]+[history('B',s,700+s) for s in (1,2,3)]
    assert Comparison(hs).paired('toy',('skew','B')).n==2
    assert Comparison([hs[0],hs[-1]]).paired('toy',('skew','B')) is None

def test_two_settings_of_a_seed_are_no_two_seeds(tmp_path, unsaved):
    hs = [history('FedAvg', s, 600+s) for s in (0, 1)]
    others = [history('B', s, k) for s in (0, 1) for k in (700, 800)]
    for h, lr in zip(others, (.1, .2)*2): h.setting['lr'] = lr
    c = Comparison(hs+others)
    assert c.paired('toy', ('skew', 'B')) is None and not len(c.differences())
    write_report(c, tmp_path)

def test_the_name_of_a_suite_is_no_folder(tmp_path, unsaved):
    hs = [history('FedAvg', 0, 600) for _ in range(3)]
    for h, name in zip(hs, ('../../out/x', 'ward A/B', 'a'*99)): h.setting |= dict(suite=name, deal='skew')
    write_report(Comparison(hs), tmp_path/'deep'/'er')
    files = [p for p in tmp_path.rglob('*') if p.is_file()]
    assert all(p.is_relative_to(tmp_path/'deep'/'er') for p in files)
    assert any('ward A-B_' in p.name for p in files)

def test_views_and_moments_are_never_mixed():
    hs = [history('FedAvg', s, 600+10*s) for s in (0, 1)]
    hs += [history('Local', s, 900, view='personal') for s in (0, 1)]
    c = Comparison(hs)
    assert set(c.scores('global').method)=={'FedAvg'} and set(c.scores('personal').method)=={'Local'}
    with pytest.raises(ValueError, match='no run has the view'): c.scores(Where('global', 'post_local'))

def test_a_table_names_its_suite():
    c = Comparison([history('FedAvg',0,600), history('FedAvg',0,600,'other')])
    with pytest.raises(ValueError, match='name one'): c.table()
    assert 'other' in c.table(suite='other').caption

def test_save_and_load(tmp_path):
    c = Comparison([history('FedAvg',s,600+s) for s in range(3)])
    for name in ('a.json.xz', 'b.json.xz'): c.save(tmp_path/name)
    assert (tmp_path/'a.json.xz').read_bytes() == (tmp_path/'b.json.xz').read_bytes()
    assert load_comparison(tmp_path/'a.json.xz').csv() == c.csv()

def test_report_of_one_domain_has_no_std(tmp_path, unsaved):
    write_report(Comparison([history('FedAvg', 0, 600, domains=('a',))]), tmp_path)
    assert 'nan' not in (tmp_path/'table.md').read_text()

def test_a_table_without_fedavg_has_no_pairs():
    c = Comparison([history('FedProx', 0, 600)])
    assert list(c.table().cells.columns) == ['method', *TABLED, 'n']
    assert len(c.differences()) == 0

def test_one_seed_says_so():
    c = Comparison([history('FedAvg',0,600), history('B',0,700)])
    assert c.statistics().verdict.iloc[1] == 'open'
    assert c.statistics()['diff'].iloc[1] == 10 and math.isnan(c.statistics().lo.iloc[1])

def test_scores_have_a_row_for_each_run():
    s = Comparison([history(m, s, k) for m, k in (('FedAvg', 600), ('B', 700)) for s in (0, 1)]).scores()
    rows = [('FedAvg', 0, 60), ('FedAvg', 1, 60), ('B', 0, 70), ('B', 1, 70)]
    assert [*zip(s.method, s.seed, s.AVG)] == rows

def test_domains_and_rows():
    c = Comparison([history('FedAvg',s,600+s) for s in range(3)])
    assert list(c.domains('global').cells.columns) == ['method', 'a', 'a2']
    assert len(c.rows()) == len(c.rows(last=True)) == 6

def test_a_domain_has_mean_and_standard_error_over_seeds():
    right = [600, 640, 710]
    d = Comparison([history('FedAvg', s, k) for s, k in enumerate(right)]).domains().numbers
    want = [np.mean(right)/10, stats.sem(right)/10]
    assert d.domain.tolist() == ['a', 'a2'] and np.allclose(d[['mean', 'sem']], [want, want])

# ---- stored runs

@pytest.mark.parametrize('name', stored_names())
def test_every_stored_file_is_read(name):
    c = stored(name)
    assert len(c) and c.about and len(c.rows(last=True))

def test_a_torn_file_and_an_unknown_name(tmp_path):
    (tmp_path/'x').write_bytes(b'torn')
    with pytest.raises(ValueError, match='holds no stored comparison'): load_comparison(tmp_path/'x')
    with pytest.raises(ValueError, match='did you mean'): stored_results('claims-FDS')

# ---- tables

def table(**kw): return Table('A', pd.DataFrame(dict(method=['x_1'], note=['a | b & 3 %'])), ['n'], **kw)

def test_markdown_cells_and_notes():
    text = table().markdown()
    assert r'a \| b' in text and text.startswith('**A**') and text.endswith('n')

def test_html_is_escaped(): assert '<td>a | b &amp; 3 %</td>' in table().html()

def test_latex_is_escaped():
    text = table().latex('tab:x')
    assert r'\toprule' in text and r'x\_1' in text and r'\label{tab:x}' in text
    assert '%' not in text.replace(r'\%', '')

def test_every_special_character():
    assert tex('#{}~^\\$') == r'\#\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}\$'

def test_a_hyphen_is_no_minus(): assert tex('skew-digits -4.1')=='skew-digits $-$4.1'

def test_an_empty_table():
    t = Table('Empty', pd.DataFrame(columns=['method','AVG']))
    assert all('AVG' in text for text in (str(t), t.markdown(), t.html(), t.latex()))

def test_a_notebook_shows_markdown_only(): assert not hasattr(table(), '_repr_html_')

# ---- colours

@pytest.fixture
def inks(monkeypatch):
    known = {'FedAvg': read_ink('blue'), 'Local': read_ink('grey'), 'FedAvg/iid': read_ink('sky dashed')}
    monkeypatch.setattr(style, 'method_inks', lambda: known)

def test_a_method_says_its_colour(inks):
    assert ink('FedAvg')==(style.PALETTE['blue'], '-') and ink('Local')==(style.GREY, DASHES['dotted'])

def test_a_changed_copy_and_another_deal_are_dashed(inks):
    for name in ('FedAvg(lr=.1)', "FedAvg(preset='released')", 'FedAvg/pooled'):
        assert ink(name)==(style.PALETTE['blue'], DASHES['dashed'])

def test_the_control_has_its_own_row(inks): assert ink('FedAvg/iid')==(style.PALETTE['sky'], DASHES['dashed'])

def test_an_unknown_method_has_a_colour_by_its_letters(inks):
    assert ink('Mine') == ink('Mine')
    assert colour('Mine(x=1)') == colour('Mine') in shades(12)

def test_a_misspelt_colour_is_refused():
    with pytest.raises(ValueError, match='did you mean vermillion'): read_ink('vermilion')
    with pytest.raises(ValueError, match='dash'): read_ink('blue dased')

def test_the_settings_outside_stay_as_they_were():
    before = dict(mpl.rcParams)
    fig,ax = style.subplots()
    assert dict(mpl.rcParams)==before and fig.get_facecolor()[3]==0
    ax.plot([1,2], label='a')
    assert ax.legend().get_texts()[0].get_color()==style.INK

def test_shades_repeat(): assert shades(0)==[] and shades(13)[12]==shades(1)[0]

# ---- pictures

def curves(method, seed, level, deal=''):
    h = History(dict(method=method, suite='toy'+deal, seed=seed, data_seed=seed))
    said = dict(moment='post_agg', view='global', path='', client=-1, n=100)
    h.rows = [dict(round=r, domain=d, correct=level+r+k+seed, **said)
              for r in (1, 2) for k, d in enumerate(('photo', 'paint'))]
    return h

LEVELS = [('FedAvg', 60, ''), ('FedAvg', 70, '/iid'), ('FedBN', 65, '')]
RUNS = [curves(m, s, l, d) for m, l, d in LEVELS for s in range(3)]

def test_curves_are_named_at_their_ends():
    ax = plot_curves(RUNS)
    thick = [l.get_label() for l in ax.lines if l.get_label()[0]!='_']
    assert thick == list(by_name(RUNS)) == ['FedAvg', 'FedAvg/iid', 'FedBN'] and len(ax.lines) == 3*(3+1)
    assert len(plot_curves(RUNS[0]).lines)==1

def test_a_view_that_nobody_has_is_refused():
    with pytest.raises(ValueError, match="has no score 'unseen'"): plot_curves(RUNS, where='unseen')

def test_a_script_saves_a_figure(tmp_path):
    plot_curves(RUNS).figure.savefig(tmp_path/'a.png')
    assert (tmp_path/'a.png').read_bytes()[:4]==b'\x89PNG'

def test_a_skew_cost_is_against_the_same_method():
    "FedBN is 10 points from its own IID split and 15 from FedAvg's, which is no cost of the skew."
    runs = RUNS + [curves('FedBN', s, 75, '/iid') for s in (0, 1)]
    ax, f = skew_cost_bars(runs), finals(runs)
    assert [t.get_text() for t in ax.get_yticklabels()] == ['FedAvg', 'FedBN']
    want = [(f[f'{m}/iid']-f[m]).mean() for m in ('FedAvg', 'FedBN')]
    assert np.allclose([p.get_width() for p in ax.patches], want) and math.isclose(want[1], 10)
    assert [len(c.get_offsets()) for c in ax.collections] == [3, 2]

def test_a_method_without_its_own_iid_deal_has_no_bar():
    assert [t.get_text() for t in skew_cost_bars(RUNS).get_yticklabels()] == ['FedAvg']
    with pytest.raises(ValueError, match='no method was run on both deals'): skew_cost_bars(RUNS[6:])

def test_missing_seeds_leave_their_place_empty():
    ax = seed_points({'FedAvg':[4.], 'FedBN':[1.,np.nan,3.], 'None':[np.nan]})
    assert len(ax.lines)==1+2 and [len(c.get_offsets()) for c in ax.collections]==[1,2]

def test_heights_move_apart():
    assert (np.diff(spread([0,.1,.2,.3], 1))>=1-1e-6).all() and spread([1,5,9], .5).tolist()==[1,5,9]

def test_heat_map_writes_every_number():
    acc = pd.DataFrame([[1.,2],[np.nan,4]], index=['c0','c1'], columns=['a','b'])
    ax = client_domain_heatmap(acc, own={'c0':'a'})
    assert [t.get_text() for t in ax.texts]==['1','2','4'] and len(ax.patches)==1

def test_a_mosaic_lets_the_page_through():
    white = torch.full((3,4,5), 255, dtype=torch.uint8)
    m = mosaic([[white,None],[white,white]])
    assert m.shape==(10,12,4) and m[0,7:,3].sum()==0 and (m[:4,:5]==255).all()

def test_domain_grid_names_rows_and_columns(suite):
    ax = domain_grid(suite, n=4)
    assert [t.get_text() for t in ax.get_xticklabels()]==list(suite.classes[:4])
    assert [t.get_text() for t in ax.get_yticklabels()]==suite.domains

def test_clients_of_one_domain_share_a_colour():
    deal = [[0, 'photo', 120, 80], [1, 'art', 30, 200], [2, 'art', 5, 5]]
    ax = partition_bars(pd.DataFrame(deal, columns=['client', 'domain', 'cat', 'dog']))
    assert [t.get_text() for t in ax.get_yticklabels()] == ['0 · photo', '1 · art', '2 · art']
    photo, art, art_too = (p.get_facecolor() for p in ax.patches[:3])      # the first class
    assert art == art_too != photo
    ends = {(p.get_y(), round(p.get_x())) for p in ax.patches}
    assert len(ends) == 6 and sorted(x for _, x in ends) == [0, 0, 0, 5, 30, 120]
    assert [t.get_text() for t in ax.texts] == ['cat', 'cat', '', 'dog', 'dog', '']    # 5 have no room

DRAWINGS = sorted((Path(fedskew_nb.__file__).parent/'assets'/'drawings').glob('*.svg'))
IMAGES = {'#111111', '#ffffff', '#f6e3b4', '#7a3b1d', '#2b6a78', '#f4c95d'}     # the three sevens of a round

@pytest.mark.parametrize('file', DRAWINGS, ids=lambda p: p.stem)
def test_a_drawing_reads_on_every_page(file):
    "Whole XML that says what it shows; as narrow, as large in its letters and in the colours of our figures."
    root = ElementTree.parse(file).getroot()
    tag = '{http://www.w3.org/2000/svg}'
    assert root.tag == tag+'svg' and all(root.find(tag+t).text.strip() for t in ('title', 'desc'))
    width, height = root.get('width'), root.get('height')
    assert root.get('viewBox') == f'0 0 {width} {height}' and int(width) <= 8*96
    sizes = [float(e.get('font-size')) for e in root.iter() if e.tag != tag+'tspan' and e.get('font-size')]
    assert sizes and min(sizes) >= 8*96/72                                           # 8 points
    colours = {e.get(k, '') for e in root.iter() for k in ('color', 'fill', 'stroke')}
    assert {c for c in colours if c.startswith('#')} <= {INK, *PALETTE.values(), *IMAGES}
    assert not any(e.tag == tag+'style' or 'style' in e.keys() for e in root.iter())   # GitHub may drop them

@pytest.mark.parametrize('file', DRAWINGS, ids=lambda p: p.stem)
def test_every_part_of_a_drawing_can_be_filled(file):
    plain = drawing(file.stem)
    assert plain == file.read_text(encoding='utf-8') and plain._repr_svg_() == plain
    for part in {e.get('class') for e in ElementTree.fromstring(plain).iter() if e.get('class')}:
        filled = ElementTree.fromstring(drawing(file.stem, [part], 'purple'))   # an attribute twice is no XML
        changed = [e for e in filled.iter() if e.get('fill-opacity') == '.3']
        assert changed and {e.get('class') for e in changed} == {part}
        assert {e.get('fill') for e in changed} == {PALETTE['purple']}

def test_a_drawing_of_mine():
    mine = '<svg xmlns="http://www.w3.org/2000/svg"><rect class="a"/><rect class="a"/><rect class="b"/></svg>'
    d = drawing(mine, ['a'])
    assert isinstance(d, Drawing) and d.count('class="a" fill-opacity=".3"') == 2 and '"b"/>' in d
    with pytest.raises(ValueError, match="there is no place 'c'"): drawing(mine, ['c'])
    with pytest.raises(ValueError, match='did you mean L_Dis'): drawing('rfeddis', ['L_dis'])
    with pytest.raises(ValueError, match='did you mean fdse'): drawing('fdsee')

def test_spectra_begin_at_one():
    assert spectra({'FedAvg':[4.,2,1e-9]}).lines[0].get_ydata().tolist()==[1,.5]

def test_gradcam_leaves_the_net_in_its_mode():
    net = small_conv(3, size=16, width=2).train()
    heat = gradcam(net, torch.zeros(2,3,16,16), torch.tensor([0,1]))
    assert net.training and heat.shape==(2,16,16) and heat.isfinite().all()

@pytest.mark.parametrize('look', [gradcam, pixel_gradients])
def test_looking_changes_no_mode(look):
    net = small_conv(3, size=16, width=4, seed=0)
    net.train()
    net.body.eval()
    before = [m.training for m in net.modules()]
    look(net, torch.zeros(2, 3, 16, 16), torch.tensor([0, 1]))
    with pytest.raises(Exception, match='bound'): look(net, torch.zeros(2, 3, 16, 16), torch.tensor([0, 9]))
    assert [m.training for m in net.modules()] == before

def test_gradcam_grid_names_nets_and_answers(suite):
    net, t = small_conv(7, size=32, width=2), suite.tests['photo']
    ax = gradcam_grid(net, t.x[:3], t.y[:3], suite.classes)
    assert [t.get_text() for t in ax.get_yticklabels()] == ['image', 'Grad-CAM'] and len(ax.texts) == 3

def test_every_image_is_a_point(suite):
    g = torch.Generator().manual_seed(0)
    ax = tsne(torch.randn(12,4,generator=g), [0,1,2]*4, ['a']*6+['b']*6)
    assert sum(len(c.get_offsets()) for c in ax.collections)==12 and len(ax.get_legend().get_texts())==2

# ---- the report

def test_a_report_stands_alone(tmp_path):
    c = Comparison([history('<FedAvg>',0,600), history('B',0,700)])
    paths = write_report(c, tmp_path, title='A & B')
    html = paths['report.html'].read_text()
    assert 'A &amp; B' in html and '&lt;FedAvg&gt;' in html
    assert '<script' not in html and 'src="http' not in html
    assert paths['results.csv'].read_text() == c.csv()
    assert list(suite_tables(c, 'toy')) == ['global', 'global-domains']

def test_a_report_without_times_has_no_time_table():
    c = Comparison([history('FedAvg',0,600)])
    assert '<h2>Time</h2>' not in report_html(c, {}) and len(timing(c))==len(costs(c))==0

WHOLE = dict(local_epochs=2, local_steps=None, participation=1.)
CUT = dict(local_epochs=1, local_steps=20, participation=.5)

@pytest.mark.parametrize('said, shown, hidden', [
    (WHOLE, {'local_epochs'}, {'local_steps', 'participation'}),
    (CUT, {'local_steps', 'participation'}, {'local_epochs'})])
def test_what_was_run_says_steps_or_epochs(said, shown, hidden):
    run = History(dict(method='FedAvg', suite='x', seed=0) | said)
    names = set(setting_table(Comparison([run])).cells.iloc[:, 0])
    assert shown <= names and not hidden & names

def test_what_was_run_says_both_where_runs_differ():
    run = dict(method='FedAvg', suite='x', local_epochs=1)
    runs = [History(dict(seed=s, local_steps=n, **run)) for s, n in enumerate((None, 20))]
    assert {'local_epochs', 'local_steps'} <= set(setting_table(Comparison(runs)).cells.iloc[:, 0])

def test_what_runs_do_not_share_is_listed():
    a,b = history('FedAvg',0,600), history('FedAvg',1,600)
    a.setting |= dict(lr=.1, versions=dict(torch='2.9'))
    b.setting |= dict(lr=.05, versions=dict(torch='2.9'))
    said = common_setting(Comparison([a,b]))
    assert said['lr']=='0.1, 0.05' and said['torch']=='2.9' and said['seeds']=='0, 1'

# ---- probes

@pytest.fixture(scope='module')
def feds(suite):
    how = dict(rounds=1, local_steps=2, lr=.03, device='cpu')
    out = [Federation(m, small_conv(7, size=32, width=2), suite, **how) for m in (FedAvg, FedBN)]
    for f in out: f.fit(progress=False)
    return out

def test_whose_model(feds, suite):
    ids = [c.id for c in suite.clients]
    assert [list(models_of(f)) for f in feds]==[[-1],ids]
    assert all(set(own_models(f))==set(suite.domains) for f in feds)

def test_statistics_of_no_image(suite):
    net, data = small_conv(7, size=suite.image_size, width=4), suite.clients[0].train
    with pytest.raises(ValueError, match='there are no images'): adabn(net, data[:0])
    with pytest.raises(RuntimeError): reestimate(net, [torch.zeros(2, 5, 8, 8)])
    assert not net.training and all(m.momentum for m in net.modules() if hasattr(m, 'momentum'))

def test_a_lonely_last_image_joins_the_others():
    x = torch.rand(65, 3, 16, 16)
    assert [len(b) for b in pieces(x)] == [65] and [len(b) for b in pieces(x[:64])] == [64]
    assert [len(b) for b in pieces(torch.cat([x, x[:64]]))] == [64, 65]
    assert [len(b) for b in pieces(x[:1])] == [1]

def test_adabn_touches_no_weight(feds, suite):
    net = feds[0].model()
    before = {n: v.clone() for n, v in net.state_dict().items()}
    new = adabn(net, suite.clients[0].train)
    assert same(net.state_dict(), before) and not any(m.training for m in new.modules())
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), new.parameters()))
    first = next(n for n in before if 'running_mean' in n)
    assert not torch.equal(new.state_dict()[first], before[first])

def test_measure_of_any_federation(feds):
    for f in feds:
        m = measure(f)
        assert set(m)=={'rank','class_silhouette','domain_silhouette','saliency','restated'}
        assert all(math.isfinite(v) for v in m.values()) and m['restated']==own_adabn(f)['restated']

def test_measure_asks_further_questions(feds):
    def layers(net, suite): return dict(layers=len(list(net.modules())))
    assert measure(feds[1], layers)['layers'] > 4

def test_heat_of_nothing_counts_as_uniform():
    m = torch.zeros(1,1,4,4,dtype=torch.uint8)
    m[...,:2] = 255
    assert inside(torch.zeros(1,4,4), m)==.5

def test_a_difference_is_what_a_method_has_more():
    c = Comparison([history('FedAvg', 0, 600), history('B', 0, 700)])
    assert c.differences().loc[0, 'B'] == pytest.approx(10.)

def test_pixel_gradients_of_a_linear_model_are_weight_times_pixel():
    net = Net(nn.Identity(), nn.Flatten(), nn.Linear(3*8*8, 4))
    W = net.head.weight.detach()
    x, y = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 3, 1])
    by_hand = W[y].view(5, 3, 8, 8)*x
    torch.testing.assert_close(pixel_gradients(net, x, y), by_hand, atol=1e-5, rtol=1e-4)

def test_sights_wants_a_domain_that_nobody_has():
    s = load_suite('emoji-pacs', 'tiny')
    net = small_conv(s.n_classes, size=s.image_size, width=4, seed=0)
    with pytest.raises(ValueError, match='leaves no domain out'): sights(Federation(FedAvg, net, s, rounds=1))

def test_sights_are_those_of_a_plain_loop():
    s = halved(leave_out(load_suite('emoji-pacs', 'tiny'), 'cartoon'))
    net = small_conv(s.n_classes, size=s.image_size, width=8, seed=0)
    fed = Federation(FedAvg, net, s, rounds=3, local_steps=12, batch_size=32, lr=.03, eval_every=3)
    fed.fit()
    net, test, facts = fed.model(), s.unseen['cartoon'], sights(fed, n=20)
    shares, objects = [], []
    picked = range(0, len(test), len(test)//20)[:20]
    for k in picked:
        x, y = net.normalised(test.x[k:k+1]), test.y[k:k+1]
        if net.eval()(x).logits.argmax(1) != y: continue
        mask = test.masks[k, 0] > 0
        heat = pixel_gradients(net, x, y)[0].abs().sum(0)
        shares.append(100*float(heat[mask].sum()/heat.sum()))
        objects.append(100*float(mask.float().mean()))
    assert 0 < len(shares) < 20 and facts['right'] == pytest.approx(5*len(shares))
    assert facts['ig_inside'] == pytest.approx(np.mean(shares), abs=.1)
    assert facts['object'] == pytest.approx(np.mean(objects), abs=1e-3)
    assert len(facts['pictures']['good']) == 20

def test_a_name_that_is_no_text_can_be_written(tmp_path):
    "Linux lets a file's name be any bytes."
    write_whole(tmp_path/'page.html', b'\xff.png'.decode(errors='surrogateescape'))
    assert (tmp_path/'page.html').read_bytes() == b'?.png'

def test_html_of_a_table_is_escaped():
    cells = pd.DataFrame({'method': ['a | b'], 'points': ['+3.0 & a | b']})
    assert '<td>+3.0 &amp; a | b</td>' in Table('t', cells).html()

def test_named_rows_keep_a_column_of_the_same_name():
    odd = pd.DataFrame({'method': [70.1], 'night': [50.2]}, index=['FedAvg'])
    assert list(named_rows(odd, 'method')) == ['method', 'method', 'night']
