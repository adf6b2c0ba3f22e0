"Suites of many clients: hues, orientations, rooms. Who has what, that nothing is shared, what names say."
import colorsys
import pytest, torch
from fedskew_nb import FedAvg, Federation, small_conv
from fedskew_nb.run.recipes import read_suite
from fedskew_nb.core.seeding import generator
from fedskew_nb.data.batch import boxes_of
from fedskew_nb.data.suites.colored import COLORED, colored_mnist
from fedskew_nb.data.suites.colored import colored_mnist_foreground, paper_of, shuffled_half
from fedskew_nb.data.suites.digits import DIGITS
from fedskew_nb.data.suites.factors import DSPRITES, DSPRITES_SIZES, SHAPES, SPRITES, deal_grid, draw_sprites
from fedskew_nb.data.suites.factors import dsprites_like, pick_cells, taking_turns
from fedskew_nb.data.suites.rooms import LIGHT, PAIRED, SHAPES3D, SHAPES3D_SIZES
from fedskew_nb.data.suites.rooms import SOLIDS, dot, draw_rooms, pair, rays
from fedskew_nb.data.suites.rooms import room_layers, shapes3d_like, shapes3d_like_scale
from fedskew_nb.data.splits import by_table, dirichlet, leave_out, uneven
from fedskew_nb.data.suite import class_counts, pack, unpack
from fedskew_nb.methods.dfl.claims import EVEN, MIXED

MAKE = {
    'colored-mnist': colored_mnist,
    'colored-mnist-foreground': colored_mnist_foreground,
    'dsprites-like': dsprites_like,
    'shapes3d-like': shapes3d_like,
    'shapes3d-like-scale': shapes3d_like_scale}
TABLES = {
    'colored-mnist': COLORED,
    'colored-mnist-foreground': COLORED,
    'dsprites-like': DSPRITES_SIZES,
    'shapes3d-like': SHAPES3D_SIZES,
    'shapes3d-like-scale': SHAPES3D_SIZES}
everyone = pytest.mark.parametrize('name', MAKE)

@pytest.fixture(scope='module')
def tiny(): return {n: f('tiny') for n, f in MAKE.items()}

@pytest.fixture(scope='module')
def reseeded(): return {n: f('tiny', 1) for n, f in MAKE.items()}

@pytest.fixture(scope='module')
def quick(): return {n: f('quick') for n, f in MAKE.items()}

def keys(*datas): return [x.numpy().tobytes() for d in datas for x in d.x]

def clients_of(name, size): return TABLES[name][size]['scales' if name.endswith('scale') else 'clients']

# ---- all of them
@everyone
@pytest.mark.parametrize('size', ['tiny', 'quick'])
def test_sizes(name, size, tiny, quick):
    s, suite = TABLES[name][size], (tiny if size == 'tiny' else quick)[name]
    n = s['train']
    assert (suite.name, suite.size, suite.image_size) == (name, size, s['px'])
    assert len(suite.clients) == clients_of(name, size) and tuple(TABLES[name]) == tuple(DIGITS)
    assert {(len(c.train), len(c.val), len(c.test)) for c in suite.clients} == {(n, n//5, s['test'])}
    assert all(c.test is suite.tests[c.domain] for c in suite.clients)
    assert set(suite.domains) == {c.domain for c in suite.clients}

@everyone
@pytest.mark.parametrize('size', ['tiny', 'quick'])
def test_masks_and_boxes(name, size, tiny, quick):
    suite = (tiny if size == 'tiny' else quick)[name]
    for d in suite._datas():
        assert d.masks.dtype == torch.uint8 and d.masks.shape[1:] == (1, suite.image_size, suite.image_size)
        assert torch.equal(d.boxes, boxes_of(d.masks))
        assert bool((d.boxes[:,2:] > d.boxes[:,:2]).all()) and d.x.is_contiguous()

@everyone
def test_half_of_the_images_are_tests(name, quick):
    fit = sum(len(c.train)+len(c.val) for c in quick[name].clients)
    assert sum(len(c.test) for c in quick[name].clients) == fit

@everyone
def test_a_seed_redraws_everything(name, tiny, reseeded):
    again, other = MAKE[name]('tiny'), reseeded[name]
    assert again.fingerprint() == tiny[name].fingerprint() != other.fingerprint()
    for a, b, c in zip(again._datas(), tiny[name]._datas(), other._datas()):
        assert torch.equal(a.x, b.x) and torch.equal(a.masks, b.masks) and not torch.equal(a.x, c.x)
    for a, c in zip(again.clients, other.clients):
        for part in ('train', 'val', 'test'):
            ours, theirs = getattr(a, part), getattr(c, part)
            assert len(set(keys(ours)) & set(keys(theirs))) < len(ours)

def fit(s): return keys(*(c.train for c in s.clients), *(c.val for c in s.clients))
def asked(s): return set(keys(*s.tests.values(), *s.unseen.values()))

@everyone
def test_no_image_is_trained_on_and_tested(name, quick):
    "Not at one client, not at two, and not under another seed."
    both = quick[name], MAKE[name]('quick', 1)
    for a in both:
        for b in both: assert not set(fit(a)) & asked(b)
    for c in quick[name].clients:
        assert len(set(keys(c.train, c.val, c.test))) == len(c.train)+len(c.val)+len(c.test)

@everyone
def test_iid_control_redistributes(name, quick):
    suite = quick[name]
    deal = suite.iid(0)
    trained = [sorted(keys(*(c.train for c in s.clients))) for s in (deal, suite)]
    assert trained[0] == trained[1] and deal.tests is suite.tests
    of = {k: c.domain for c in suite.clients for k in keys(c.train)}
    for c in deal.clients: assert len({of[k] for k in keys(c.train)}) > len(suite.domains)/3

@everyone
def test_deals_and_files(name, tiny):
    s = tiny[name]
    back = unpack(*pack(s))
    assert back.fingerprint() == s.fingerprint()
    for a, b in zip(back._datas(), s._datas()): assert torch.equal(a.x, b.x) and torch.equal(a.boxes, b.boxes)
    for t in (uneven(s), dirichlet(s, .5, 2), by_table(s, s.partition())):
        assert t.domains == s.domains and all(c.train.masks is not None for c in t.clients)
    gone = s.clients[1].domain
    held = leave_out(s, gone)
    assert list(held.unseen) == [*s.unseen, gone] and len(held.clients) == len(s.clients)-1

@everyone
def test_by_name(name, tiny):
    assert read_suite(name, 'tiny', 2).fingerprint() == MAKE[name]('tiny', 2).fingerprint()
    gone = tiny[name].domains[1]
    assert list(read_suite(f'{name}-without-{gone}', 'tiny').unseen)[-1] == gone
    assert read_suite(f'{name}-uneven', 'tiny').name == f'{name}-uneven'

@everyone
def test_refusals(name):
    with pytest.raises(ValueError, match='did you mean quick'): MAKE[name]('quik')
    for seed in (.5, '0', 2**63, None):
        with pytest.raises(ValueError, match='data_seed is'): MAKE[name]('tiny', seed)

@everyone
def test_global_generator_is_untouched(name):
    before = torch.get_rng_state()
    MAKE[name]('tiny', 7)
    assert torch.equal(before, torch.get_rng_state())

CHANCE = {'colored-mnist': .1, 'colored-mnist-foreground': .1, 'dsprites-like': 1/6,
          'shapes3d-like': .25, 'shapes3d-like-scale': .25}

@everyone
def test_tiny_teaches_something(name, tiny):
    suite = tiny[name]
    net = small_conv(suite.n_classes, size=suite.image_size, width=4, seed=0)
    how = dict(rounds=5, local_epochs=3, lr=.05, batch_size=32, eval_every=5, seed=0)
    AVG = Federation(FedAvg, net, suite, **how).fit().table()['AVG'].iloc[-1]
    assert AVG > 100*CHANCE[name]+20

# ---- hues
def hue(rgb): return colorsys.rgb_to_hsv(*(rgb.double()/255).tolist())[0]

def off(a, b): return min((a-b)%1, (b-a)%1)

def test_the_name_is_the_hue_of_the_background(quick):
    for k, c in enumerate(quick['colored-mnist'].clients):
        assert c.domain == f'hue {k/20:.2f}'
        for d in (c.train, c.val, c.test):
            bare = (d.masks == 0).all(0)[0].nonzero()[0]                          # where no image has ink
            assert max(off(hue(rgb), k/20) for rgb in d.x[:,:,bare[0],bare[1]]) < .025
            ink = (d.masks == 255).expand_as(d.x)
            assert bool((d.x[ink] == 255).all())                                  # the digit is white

def test_foreground(quick):
    for k, c in enumerate(quick['colored-mnist-foreground'].clients):
        d = c.train
        full = d.masks.flatten(1).argmax(1)                                       # a pixel full of ink
        assert c.domain == f'hue {k/20:.2f}'
        assert max(off(hue(x.flatten(1)[:,i]), k/20) for x, i in zip(d.x, full)) < .025
        assert not d.x[(d.masks == 0).expand_as(d.x)].any()                       # the paper is black

def test_both_modes_have_the_same_digits(quick):
    for a, b in zip(quick['colored-mnist'].clients, quick['colored-mnist-foreground'].clients):
        assert torch.equal(a.train.masks, b.train.masks) and torch.equal(a.train.y, b.train.y)

def test_twenty_papers():
    papers = [paper_of(k, 20) for k in range(20)]
    assert [h for h, _, _ in papers] == [k/20 for k in range(20)]
    assert {(s, v) for _, s, v in papers} == {(a, b) for a in (.45, .85) for b in (.45, .9)}

def test_grey_has_no_hue(quick):
    for name in ('colored-mnist', 'colored-mnist-foreground'):
        x = quick[name].unseen['grey'].x
        assert bool((x == x[:,:1]).all()) and len(x) == 800

def test_digits_are_never_shared(quick):
    def digits(*datas): return [m.numpy().tobytes() for d in datas for m in d.masks]
    clients = quick['colored-mnist'].clients
    own = digits(*(d for c in clients for d in (c.train, c.val, c.test)))
    assert len(set(own)) == len(own) == 20*240
    fit = digits(*(d for c in clients for d in (c.train, c.val)))
    assert not set(fit) & set(digits(quick['colored-mnist'].unseen['grey']))

def test_halves_of_the_digits():
    halves = [shuffled_half(10000, part, 'x') for part in ('train', 'test')]
    assert [len(h) for h in halves] == [5000]*2 and len(torch.cat(halves).unique()) == 10000

@pytest.mark.parametrize('size', COLORED)
def test_there_are_digits_enough(size):
    s = COLORED[size]
    assert max(s['train']+s['train']//5, s['test']) <= 5000//s['clients'] and s['grey'] <= 5000

def test_fewer_images():
    whole, few = colored_mnist('quick', 3), colored_mnist('quick', 3, train=10)
    for a, b in zip(whole.clients, few.clients):
        assert torch.equal(a.train.masks[:10], b.train.masks) and torch.equal(a.test.x, b.test.x)
        assert (len(b.train), len(b.val)) == (10, 2)

def test_fewer_images_are_in_the_name():
    for more, name in ((dict(), 'colored-mnist-10'), (dict(foreground=True), 'colored-mnist-foreground-10')):
        assert colored_mnist('tiny', train=10, **more).name == name

FEW = [(300, 'needs 360 digits and can have 250'), (1, 'at least 2'), (2.5, 'train is 2.5')]

@pytest.mark.parametrize('bad, says', FEW)
def test_bad_numbers_of_images(bad, says):
    with pytest.raises(ValueError, match=says): colored_mnist('quick', train=bad)

# ---- orientations
def test_forty_orientations(tiny, quick):
    assert quick['dsprites-like'].domains == [f'turned {9*k}°' for k in range(40)]
    assert tiny['dsprites-like'].domains == [f'turned {9*k}°' for k in (0, 8, 16, 24, 32)]

@pytest.mark.parametrize('k', [0, 7, 39])
def test_the_images_are_those_of_this_orientation_and_of_no_other(k, quick):
    d = quick['dsprites-like'].tests[f'turned {9*k}°']
    cells = pick_cells(DSPRITES, 'test', len(d), 0, f'turned {9*k}°')
    shape, scale, x, y = torch.unravel_index(cells, SPRITES)
    def drawn(t):
        bits = draw_sprites(shape, scale, torch.full_like(shape, t), x, y, 32)
        return (bits*255).round().to(torch.uint8)
    assert torch.equal(d.y, scale) and torch.equal(d.masks, drawn(k))
    assert torch.equal(d.x, d.masks.expand_as(d.x))
    assert not torch.equal(d.masks[shape == 2], drawn((k+20)%40)[shape == 2])

def test_symmetries():
    n = 50
    g = generator('symmetries')
    scale, x, y, turn = (torch.randint(k, (n,), generator=g) for k in (6, 32, 32, 40))
    for shape, period in enumerate((10, 20, 40)):
        s = torch.full((n,), shape)
        a, b = (draw_sprites(s, scale, (turn+t)%40, x, y) for t in (0, period))
        assert ((a-b).abs().sum((1,2,3)) <= 4).all(), list(SHAPES)[shape]         # on the border
        c = draw_sprites(s, scale, (turn+period//2)%40, x, y)
        assert ((a-c).abs().sum((1,2,3)) > 4).all()

def test_scale_is_the_size():
    "The side of an upright square, in bits."
    z = torch.zeros(6, dtype=torch.long)
    m = draw_sprites(z, torch.arange(6), z, z+16, z+16)
    side = m[:,0].any(1).sum(1)
    want = 2*.95*.15*64*(.5+.1*torch.arange(6))
    assert ((side-want).abs() <= 1).all()
    assert torch.equal(m.sum((1,2,3)), (side*m[:,0].any(2).sum(1)).float())

def test_no_shape_touches_the_border():
    largest, turns, ends = torch.tensor([5]), torch.arange(40), torch.tensor([0, 31])
    m = draw_sprites(*torch.cartesian_prod(torch.arange(3), largest, turns, ends, ends).T)
    assert not m[:,:,[0,-1]].any() and not m[..., [0,-1]].any()

@pytest.mark.parametrize('name', ['dsprites-like', 'shapes3d-like', 'shapes3d-like-scale'])
def test_classes_are_balanced(name, quick):
    "48 = 4·12, 12 = 6·2; a share of ten clients' images may be cut within a turn."
    for d in quick[name]._datas():
        have = torch.bincount(d.y, minlength=quick[name].n_classes)
        assert have.max()-have.min() <= 2

def test_taking_turns_uses_up_what_is_left():
    y = torch.randint(4, (60,), generator=generator('turns'))
    order = taking_turns(y)
    assert order.sort().values.tolist() == list(range(60))
    least = torch.bincount(y, minlength=4).min()
    turns = y[order][:4*least].view(-1, 4)
    assert torch.equal(turns.sort(1).values, torch.arange(4).expand(least, 4))

def test_a_slice_has_an_end():
    says = 'shapes3d-like: 2401 images to test on are wanted of a slice whose half has 2400 cells'
    with pytest.raises(ValueError, match=says): pick_cells(SHAPES3D, 'test', 2401, 0)
    sizes = dict(px=8, train=5000, test=4)
    with pytest.raises(ValueError, match='6000 images to train on'):
        deal_grid(SHAPES3D, [('a', (0, 0))], sizes, 0)

# ---- rooms
def test_fifty_pairs(quick):
    suite = quick['shapes3d-like']
    assert suite.domains == ['floor {} wall {}'.format(*pair(k)) for k in range(50)]
    assert len(set(map(pair, range(100)))) == 100
    other = suite.unseen['other rooms']
    assert len(other) == 800 and torch.bincount(other.y).tolist() == [200]*4

def nearest_tenth(rgb):
    "Which of the ten hues it is."
    return round(10*hue(rgb))%10

def floor_and_wall(x): return nearest_tenth(x[:,-1,0]), nearest_tenth(x[:,0,0])

def test_the_name_is_the_colour_of_floor_and_wall(quick):
    for c in quick['shapes3d-like'].clients[::7]:
        said = tuple(int(v) for v in c.domain.split()[1::2])
        for x in c.train.x: assert floor_and_wall(x) == said
    seen = {floor_and_wall(x) for x in quick['shapes3d-like'].unseen['other rooms'].x}
    assert seen == {pair(k) for k in range(50, 100)}

SCALES = [f'scale {.75+k/14:.2f}' for k in range(8)]

def test_scale_mode(quick):
    suite = quick['shapes3d-like-scale']
    assert suite.domains == SCALES and [c.id for c in suite.clients] == list(range(10))
    assert sorted(c.domain for c in suite.clients) == sorted(SCALES+SCALES[:2])
    a, b = (c for c in suite.clients if c.domain == SCALES[0])
    assert a.test is b.test and not set(keys(a.train)) & set(keys(b.train))
    assert len({nearest_tenth(x[:,-1,0]) for x in a.train.x}) > 5                 # floors

def test_each_shape_covers_more_from_size_to_size(quick):
    tests = [quick['shapes3d-like-scale'].tests[n] for n in SCALES]
    def area(d, k): return (d.masks[d.y == k] > 127).float().sum((1,2,3)).mean()
    sizes = torch.stack([torch.stack([area(d, k) for k in range(4)]) for d in tests])
    assert (sizes.diff(dim=0) > 0).all()

INSIDE = (
    lambda x, y, z: (x.abs() <= .94) & (y >= 0) & (y <= 1.88) & (z.abs() <= .94),
    lambda x, y, z: (x**2+z**2 <= .98**2) & (y >= 0) & (y <= 2.34),
    lambda x, y, z: x**2+(y-1.23)**2+z**2 <= 1.23**2,
    lambda x, y, z: x**2+(y-y.clamp(.78, 1.95))**2+z**2 <= .78**2)

@pytest.mark.parametrize('solid, inside', list(zip(SOLIDS, INSIDE)), ids=range(4))
def test_rays_against_points(solid, inside):
    "No point of a ray before the hit lies in the solid, and one just behind it does."
    o, d = (v.double() for v in rays(torch.tensor([-30., -13, 0, 21]), 40))
    def within(p): return inside(*p.unbind(1))
    t, normal = solid(o, d)
    hit = (t < torch.inf)[:,0]
    assert .03 < hit.double().mean() < .3
    for step in torch.linspace(0, .999, 60): assert not (within(o+step*t.clamp(max=20)*d) & hit).any()
    assert within(o+(t+1e-4)*d)[hit].double().mean() > .99
    for step in torch.linspace(3, 9, 60): assert not within(o+step*d)[~hit].any()
    assert (dot(normal, d)[:,0][hit] < 1e-6).all()      # one sees what looks at the eye

def test_layers_make_one_picture():
    "Each pixel belongs to floor, walls and object in shares that sum to one; the mask is the object's share."
    n = torch.arange(8)
    x, m = draw_rooms(n, n, n, n, n%4, n, 32)
    p = room_layers(32)
    assert p.shape == (4, 8, 15, 4, 32, 32) and p.min() >= 0 and p.max() <= 1.0001 and not p.isnan().any()
    lit, whole = p[:,:,:,2], p[:,:,:,3]
    assert bool((lit <= whole+1e-6).all()) and bool(((lit > 0) == (whole > 0)).all())
    assert torch.equal(m, p[n%4, n, n, 3:]) and x.min() >= 0 and x.max() <= 1
    assert abs(float(LIGHT.square().sum())-1) < 1e-6

def test_a_hue_colours_its_layer_alone():
    z = torch.zeros(1, dtype=torch.long)
    a, m = draw_rooms(z, z+3, z+6, z+4, z+1, z+9, 32)
    b, _ = draw_rooms(z, z+3, z+7, z+4, z+1, z+9, 32)
    c, _ = draw_rooms(z+5, z+3, z+6, z+4, z+1, z+9, 32)
    def moved(u): return (a != u).any(1, keepdim=True)
    assert not (moved(b) & (m == 0)).any() and moved(b)[m > 0].all()              # the object's hue
    assert not (moved(c) & (m == 1)).any() and moved(c)[..., -1, :].all()         # the floor's

def test_grid_of_a_pair():
    cells = torch.arange(4800)
    hue_, scale, shape, turn = torch.unravel_index(cells, PAIRED)
    assert torch.equal(SHAPES3D.label(cells), shape)
    assert (hue_.max(), scale.max(), shape.max(), turn.max()) == (9, 7, 3, 14)

# ---- hues and labels
@pytest.fixture(scope='module')
def mixtures(): return [recipe(0).clients for recipe in (EVEN, MIXED)]

def test_two_clients_share_the_digits_of_their_hue(mixtures):
    even, mixed = ([sorted(keys(a.train, b.train)) for a, b in zip(cs[::2], cs[1::2])] for cs in mixtures)
    assert even == mixed and [len(hue) for hue in even] == [200]*10
    assert [c.domain for c in mixtures[0]] == [c.domain for c in mixtures[1]]

def test_labels_are_skewed_and_a_client_is_tested_in_its_own_proportions(mixtures):
    larger, have = [], torch.stack([c.test.y.bincount() for c in colored_mnist('quick', 0).clients[:10]])
    for clients in mixtures:
        of = torch.stack([class_counts(c, 10) for c in clients]).view(10, 2, 10)     # hue, client, digit
        tests = torch.stack([c.test.y.bincount(minlength=10) for c in clients]).view(10, 2, 10)
        exact = have[:, None]*of/of.sum(1, keepdim=True)
        assert (tests <= exact).all() and (tests > exact-1).all()
        larger.append(float((of.amax(1)/of.sum(1)).mean()))
    assert larger[0] < .55 and larger[1] > .85
