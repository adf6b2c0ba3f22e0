"Suites of many clients: hues, orientations, rooms. Who has what, that nothing is shared, and that the names say it."
import colorsys
import pytest, torch
from fedskew_nb.app.recipes import read_suite
from fedskew_nb.core.seeding import generator
from fedskew_nb.data.batch import boxes_of
from fedskew_nb.data.colored import COLORED, colored_mnist, colored_mnist_foreground, paper_of, shuffled_half
from fedskew_nb.data.digits import DIGITS
from fedskew_nb.data.factors import (
    DSPRITES, DSPRITES_SIZES, SHAPES, SPRITES, deal_grid, draw_sprites, dsprites_like, pick_cells,
    taking_turns)
from fedskew_nb.data.rooms import (
    LIGHT, PAIRED, SHAPES3D, SHAPES3D_SIZES, SOLIDS, dot, draw_rooms, pair, rays, room_layers, shapes3d_like,
    shapes3d_like_scale)
from fedskew_nb.data.splits import by_table, dirichlet, leave_out, uneven
from fedskew_nb.data.suite import pack, unpack

MAKE = {'colored-mnist': colored_mnist, 'colored-mnist-foreground': colored_mnist_foreground, 'dsprites-like': dsprites_like,
        'shapes3d-like': shapes3d_like, 'shapes3d-like-scale': shapes3d_like_scale}
TABLES = {'colored-mnist': COLORED, 'colored-mnist-foreground': COLORED, 'dsprites-like': DSPRITES_SIZES,
          'shapes3d-like': SHAPES3D_SIZES, 'shapes3d-like-scale': SHAPES3D_SIZES}
everyone = pytest.mark.parametrize('name', MAKE)

@pytest.fixture(scope='module')
def quick(): return {n: f('quick') for n, f in MAKE.items()}

def keys(*datas): return [x.numpy().tobytes() for d in datas for x in d.x]

def clients_of(name, size): return TABLES[name][size]['scales' if name.endswith('scale') else 'clients']

# ---- all of them
@everyone
def test_sizes(name, quick):
    assert tuple(TABLES[name]) == tuple(DIGITS)
    for size in ('tiny', 'quick'):
        s, suite = TABLES[name][size], quick[name] if size == 'quick' else MAKE[name](size)
        n = s['train']
        assert suite.name == name and suite.size == size and suite.image_size == s['px'] and len(suite.clients) == clients_of(name, size)
        assert [(len(c.train), len(c.val), len(c.test)) for c in suite.clients] == [(n, n//5, s['test'])]*len(suite.clients)
        assert all(c.test is suite.tests[c.domain] for c in suite.clients) and set(suite.domains) == {c.domain for c in suite.clients}
        for d in suite._datas():
            assert d.masks.dtype == torch.uint8 and d.masks.shape == (len(d), 1, s['px'], s['px']) and torch.equal(d.boxes, boxes_of(d.masks))
            assert bool((d.boxes[:,2:] > d.boxes[:,:2]).all()) and d.x.is_contiguous()

@everyone
def test_half_of_the_images_are_tests(name, quick):
    fit = sum(len(c.train)+len(c.val) for c in quick[name].clients)
    assert sum(len(c.test) for c in quick[name].clients) == fit

@everyone
def test_a_seed_redraws_everything(name, quick):
    again, other = MAKE[name]('quick'), MAKE[name]('quick', 1)
    assert again.fingerprint() == quick[name].fingerprint() != other.fingerprint()
    for a, b, c in zip(again._datas(), quick[name]._datas(), other._datas()):
        assert torch.equal(a.x, b.x) and torch.equal(a.masks, b.masks) and not torch.equal(a.x, c.x)
    for a, c in zip(again.clients, other.clients):
        for part in ('train', 'val', 'test'): assert len(set(keys(getattr(a, part))) & set(keys(getattr(c, part)))) < len(getattr(a, part))

@everyone
def test_no_image_is_trained_on_and_tested(name, quick):
    "Not at one client, not at two, and not under another seed."
    suite, other = quick[name], MAKE[name]('quick', 1)
    fit = lambda s: keys(*(c.train for c in s.clients), *(c.val for c in s.clients))
    asked = lambda s: set(keys(*s.tests.values(), *s.unseen.values()))
    for a in (suite, other):
        for b in (suite, other): assert not set(fit(a)) & asked(b)
    for c in suite.clients: assert len(set(keys(c.train, c.val, c.test))) == len(c.train)+len(c.val)+len(c.test)

@everyone
def test_iid_control_redistributes(name, quick):
    suite = quick[name]
    deal = suite.iid(0)
    assert sorted(keys(*(c.train for c in deal.clients))) == sorted(keys(*(c.train for c in suite.clients))) and deal.tests is suite.tests
    of = {k: c.domain for c in suite.clients for k in keys(c.train)}
    for c in deal.clients: assert len({of[k] for k in keys(c.train)}) > len(suite.domains)/3

@everyone
def test_deals_and_files(name):
    s = MAKE[name]('tiny')
    back = unpack(*pack(s))
    assert back.fingerprint() == s.fingerprint() and all(torch.equal(a.x, b.x) and torch.equal(a.boxes, b.boxes) for a, b in zip(back._datas(), s._datas()))
    for t in (uneven(s), dirichlet(s, .5, 2), by_table(s, s.partition())): assert t.domains == s.domains and all(c.train.masks is not None for c in t.clients)
    gone = s.clients[1].domain
    held = leave_out(s, gone)
    assert list(held.unseen) == [*s.unseen, gone] and len(held.clients) == len(s.clients)-1

@everyone
def test_by_name(name):
    assert read_suite(name, 'tiny', 2).fingerprint() == MAKE[name]('tiny', 2).fingerprint()
    gone = MAKE[name]('tiny').domains[1]
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

@pytest.mark.parametrize('name, chance', [('colored-mnist', .1), ('colored-mnist-foreground', .1), ('dsprites-like', 1/6),
                                          ('shapes3d-like', .25), ('shapes3d-like-scale', .25)])
def test_tiny_teaches_something(name, chance):
    from fedskew_nb import FedAvg, Federation, small_conv
    suite = MAKE[name]('tiny')
    net = small_conv(suite.n_classes, size=suite.image_size, width=4, seed=0)
    table = Federation(FedAvg, net, suite, rounds=5, local_epochs=3, lr=.05, batch_size=32, eval_every=5, seed=0).fit().table()
    assert table['AVG'].iloc[-1] > 100*chance+20

# ---- hues
def hue(rgb): return colorsys.rgb_to_hsv(*(rgb.double()/255).tolist())[0]

def off(a, b): return min((a-b)%1, (b-a)%1)

def test_the_name_is_the_hue_of_the_background(quick):
    for k, c in enumerate(quick['colored-mnist'].clients):
        assert c.domain == f'hue {k/20:.2f}'
        for d in (c.train, c.val, c.test):
            bare = (d.masks == 0).all(0)[0].nonzero()[0]                          # a pixel where no image has ink
            assert max(off(hue(rgb), k/20) for rgb in d.x[:,:,bare[0],bare[1]]) < .025
            ink = (d.masks == 255).expand_as(d.x)
            assert bool((d.x[ink] == 255).all())                                  # the digit is white

def test_foreground(quick):
    for k, c in enumerate(quick['colored-mnist-foreground'].clients):
        d = c.train
        bright = d.masks.flatten(1).argmax(1)                                     # a pixel full of ink
        assert c.domain == f'hue {k/20:.2f}' and max(off(hue(x.flatten(1)[:,i]), k/20) for x, i in zip(d.x, bright)) < .025
        assert not d.x[(d.masks == 0).expand_as(d.x)].any()                       # the paper is black
        same = quick['colored-mnist'].clients[k].train
        assert torch.equal(same.masks, d.masks) and torch.equal(same.y, d.y)      # and the digits are those of the other mode

def test_twenty_papers():
    papers = [paper_of(k, 20) for k in range(20)]
    assert [h for h, _, _ in papers] == [k/20 for k in range(20)] and {(s, v) for _, s, v in papers} == {(a, b) for a in (.45, .85) for b in (.45, .9)}

def test_grey_has_no_hue(quick):
    for name in ('colored-mnist', 'colored-mnist-foreground'):
        x = quick[name].unseen['grey'].x
        assert bool((x == x[:,:1]).all()) and len(x) == 800

def test_digits_are_never_shared(quick):
    digit = lambda d: [m.numpy().tobytes() for m in d.masks]
    c = quick['colored-mnist'].clients
    own = [k for v in c for k in digit(v.train)+digit(v.val)+digit(v.test)]
    assert len(set(own)) == len(own) == 20*240
    assert not {k for v in c for k in digit(v.train)+digit(v.val)} & set(digit(quick['colored-mnist'].unseen['grey']))
    halves = [shuffled_half(10000, part, 'x') for part in ('train', 'test')]
    assert [len(h) for h in halves] == [5000]*2 and len(torch.cat(halves).unique()) == 10000

@pytest.mark.parametrize('size', COLORED)
def test_there_are_digits_enough(size):
    s = COLORED[size]
    assert max(s['train']+s['train']//5, s['test']) <= 5000//s['clients'] and s['grey'] <= 5000

def test_fewer_images():
    whole, few = colored_mnist('quick', 3), colored_mnist('quick', 3, train=10)
    assert few.name == 'colored-mnist-10' and colored_mnist('tiny', foreground=True, train=10).name == 'colored-mnist-foreground-10'
    for a, b in zip(whole.clients, few.clients):
        assert torch.equal(a.train.masks[:10], b.train.masks) and torch.equal(a.test.x, b.test.x) and (len(b.train), len(b.val)) == (10, 2)
    for bad, says in ((300, 'needs 360 digits and can have 250'), (1, 'at least 2'), (2.5, 'train is 2.5')):
        with pytest.raises(ValueError, match=says): colored_mnist('quick', train=bad)

# ---- orientations
def test_orientations(quick):
    suite = quick['dsprites-like']
    assert suite.domains == [f'turned {9*k}°' for k in range(40)]
    own = {'tiny': [0, 8, 16, 24, 32]}
    assert MAKE['dsprites-like']('tiny').domains == [f'turned {9*k}°' for k in own['tiny']]
    for k in (0, 7, 39):                                                          # the images are those of this orientation, and of no other
        d = suite.tests[f'turned {9*k}°']
        cells = pick_cells(DSPRITES, 'test', len(d), 0, f'turned {9*k}°')
        shape, scale, x, y = torch.unravel_index(cells, SPRITES)
        drawn = lambda t: (draw_sprites(shape, scale, torch.full_like(shape, t), x, y, 32)*255).round().to(torch.uint8)
        assert torch.equal(d.y, scale) and torch.equal(d.masks, drawn(k)) and torch.equal(d.x, d.masks.expand_as(d.x))
        assert not torch.equal(d.masks[shape == 2], drawn((k+20)%40)[shape == 2])

def test_symmetries():
    n = 50
    g = generator('symmetries')
    scale, x, y, turn = (torch.randint(k, (n,), generator=g) for k in (6, 32, 32, 40))
    for shape, period in enumerate((10, 20, 40)):
        s = torch.full((n,), shape)
        a, b = (draw_sprites(s, scale, (turn+t)%40, x, y) for t in (0, period))
        assert ((a-b).abs().sum((1,2,3)) <= 4).all(), list(SHAPES)[shape]         # a bit on the border may tip over
        c = draw_sprites(s, scale, (turn+period//2)%40, x, y)
        assert ((a-c).abs().sum((1,2,3)) > 4).all()

def test_scale_is_the_size():
    "The side of an upright square, in bits."
    z = torch.zeros(6, dtype=torch.long)
    m = draw_sprites(z, torch.arange(6), z, z+16, z+16)
    side = m[:,0].any(1).sum(1)
    assert ((side-2*.95*.15*64*(.5+.1*torch.arange(6))).abs() <= 1).all() and torch.equal(m.sum((1,2,3)), (side*m[:,0].any(2).sum(1)).float())

def test_no_shape_touches_the_border():
    grid = torch.cartesian_prod(torch.arange(3), torch.tensor([5]), torch.arange(40), torch.tensor([0, 31]), torch.tensor([0, 31])).T
    m = draw_sprites(*grid)
    assert not m[:,:,[0,-1]].any() and not m[..., [0,-1]].any()

def test_classes_are_balanced(quick):
    for name in ('dsprites-like', 'shapes3d-like', 'shapes3d-like-scale'):
        for d in quick[name]._datas():
            have = torch.bincount(d.y, minlength=quick[name].n_classes)
            assert have.max()-have.min() <= 2, name                               # 48 = 4·12, 12 = 6·2; a share of ten clients' images may be cut within a turn

def test_taking_turns_uses_up_what_is_left():
    y = torch.randint(4, (60,), generator=generator('turns'))
    order = taking_turns(y)
    assert order.sort().values.tolist() == list(range(60))
    seen = torch.nn.functional.one_hot(y[order], 4).cumsum(0)
    least = torch.bincount(y, minlength=4).min()
    assert torch.equal(y[order][:4*least].view(-1, 4).sort(1).values, torch.arange(4).expand(least, 4)) and seen[-1].sum() == 60

def test_a_slice_has_an_end():
    with pytest.raises(ValueError, match='shapes3d-like: 2401 images to test on are wanted of a slice whose half has 2400 cells'): pick_cells(SHAPES3D, 'test', 2401, 0)
    with pytest.raises(ValueError, match='6000 images to train on'): deal_grid(SHAPES3D, [('a', (0, 0))], dict(px=8, train=5000, test=4), 0)

# ---- rooms
def test_fifty_pairs(quick):
    suite = quick['shapes3d-like']
    assert suite.domains == ['floor {} wall {}'.format(*pair(k)) for k in range(50)] and len(set(map(pair, range(100)))) == 100
    other = suite.unseen['other rooms']
    assert len(other) == 800 and torch.bincount(other.y).tolist() == [200]*4

def nearest_tenth(rgb):
    "Which of the ten hues it is."
    return round(10*hue(rgb))%10

def test_the_name_is_the_colour_of_floor_and_wall(quick):
    for c in quick['shapes3d-like'].clients[::7]:
        floor, wall = (int(v) for v in c.domain.split()[1::2])
        for x in c.train.x: assert (nearest_tenth(x[:,-1,0]), nearest_tenth(x[:,0,0])) == (floor, wall)
    seen = {(nearest_tenth(x[:,-1,0]), nearest_tenth(x[:,0,0])) for x in quick['shapes3d-like'].unseen['other rooms'].x}
    assert seen == {pair(k) for k in range(50, 100)}

def test_scale_mode(quick):
    suite = quick['shapes3d-like-scale']
    names = [f'scale {.75+k/14:.2f}' for k in range(8)]
    assert suite.domains == names and sorted(c.domain for c in suite.clients) == sorted(names+names[:2]) and [c.id for c in suite.clients] == list(range(10))
    twins = [c for c in suite.clients if c.domain == names[0]]
    assert len(twins) == 2 and twins[0].test is twins[1].test and not set(keys(twins[0].train)) & set(keys(twins[1].train))
    size = [torch.stack([(suite.tests[n].masks[suite.tests[n].y == k] > 127).float().sum((1,2,3)).mean() for k in range(4)]) for n in names]
    assert (torch.stack(size).diff(dim=0) > 0).all()                              # each shape covers more from size to size
    floors = {nearest_tenth(x[:,-1,0]) for x in twins[0].train.x}
    assert len(floors) > 5

def test_rays_against_points():
    "No point of a ray before the hit lies in the solid, and one just behind it does."
    inside = (lambda p: (p[:,0].abs() <= .94) & (p[:,1] >= 0) & (p[:,1] <= 1.88) & (p[:,2].abs() <= .94),
              lambda p: (p[:,0]**2+p[:,2]**2 <= .98**2) & (p[:,1] >= 0) & (p[:,1] <= 2.34),
              lambda p: p[:,0]**2+(p[:,1]-1.23)**2+p[:,2]**2 <= 1.23**2,
              lambda p: p[:,0]**2+(p[:,1]-p[:,1].clamp(.78, 1.95))**2+p[:,2]**2 <= .78**2)
    o, d = (v.double() for v in rays(torch.tensor([-30., -13, 0, 21]), 40))
    for solid, within in zip(SOLIDS, inside):
        t, normal = solid(o, d)
        hit = (t < torch.inf)[:,0]
        assert .03 < hit.double().mean() < .3
        for step in torch.linspace(0, .999, 60): assert not (within(o+step*t.clamp(max=20)*d) & hit).any()
        assert within(o+(t+1e-4)*d)[hit].double().mean() > .99
        for step in torch.linspace(3, 9, 60): assert not within(o+step*d)[~hit].any()
        assert (dot(normal, d)[:,0][hit] < 1e-6).all()                            # the side that one sees looks at the eye

def test_layers_make_one_picture():
    "Each pixel belongs to floor, walls and object in shares that sum to one, and the mask is the object's share."
    x, m = draw_rooms(*[torch.arange(8)]*4, torch.arange(8)%4, torch.arange(8), 32)
    p = room_layers(32)
    assert p.shape == (4, 8, 15, 4, 32, 32) and p.min() >= 0 and p.max() <= 1.0001 and not p.isnan().any()
    assert bool((p[:,:,:,2] <= p[:,:,:,3]+1e-6).all()) and bool(((p[:,:,:,2] > 0) == (p[:,:,:,3] > 0)).all())
    assert torch.equal(m, p[torch.arange(8)%4, torch.arange(8), torch.arange(8), 3:]) and x.min() >= 0 and x.max() <= 1
    assert abs(float(LIGHT.square().sum())-1) < 1e-6

def test_a_hue_colours_its_layer_alone():
    z = torch.zeros(1, dtype=torch.long)
    a, m = draw_rooms(z, z+3, z+6, z+4, z+1, z+9, 32)
    b, _ = draw_rooms(z, z+3, z+7, z+4, z+1, z+9, 32)
    c, _ = draw_rooms(z+5, z+3, z+6, z+4, z+1, z+9, 32)
    moved = lambda u: (a != u).any(1, keepdim=True)
    assert not (moved(b) & (m == 0)).any() and moved(b)[m > 0].all() and not (moved(c) & (m == 1)).any() and moved(c)[..., -1, :].all()

def test_grid_of_a_pair():
    cells = torch.arange(4800)
    hue_, scale, shape, turn = torch.unravel_index(cells, PAIRED)
    assert torch.equal(SHAPES3D.label(cells), shape) and (hue_.max(), scale.max(), shape.max(), turn.max()) == (9, 7, 3, 14)
