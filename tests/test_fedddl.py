"FedDDL's primitives: what their pages do not need to show. Odd sizes, odd boxes, odd features."
import pytest, torch
import torch.nn.functional as F
from torchvision.ops import masks_to_boxes
from torchvision.transforms.functional import InterpolationMode, rotate
from fedskew_nb.data.batch import draw_moves, move_boxes
from fedskew_nb.data.load import load_suite
from fedskew_nb.methods.fedddl.counterfactual import (
    blends, groups, any_class, draw_backgrounds, other_classes, own_class, random_places,
    same_size_places, box_mask, check_boxes, paste, pulled, usable, object_crops, pull)
from fedskew_nb.methods.baselines.prototypes import class_means, global_prototypes

# ---- tools

def gen(seed=0): return torch.Generator().manual_seed(seed)
def pixels(*shape, seed=0): return torch.randint(256, shape, generator=gen(seed), dtype=torch.uint8)
def some_boxes(n, H, W, seed=0):
    g = gen(seed)
    a = [torch.randint(s, (n, 2), generator=g).sort(1).values for s in (W, H)]
    return torch.stack([a[0][:, 0], a[1][:, 0], a[0][:, 1]+1, a[1][:, 1]+1], 1)
def resize(crop, size): return (F.interpolate(crop.double(), size, mode='bilinear')+.5+1e-9).floor().byte()

# ---- paste

@pytest.mark.parametrize('C, H, W', [
    (1, 7, 31), (3, 64, 20), (3, 1, 1), (3, 5, 224), (1, 128, 128), (1, 129, 128)])
def test_pulled_is_a_resized_crop(C, H, W):
    x, box, to = pixels(40, C, H, W), some_boxes(40, H, W), some_boxes(40, H, W, 1)
    for image, out, (l, t, r, b), (L, T, R, B) in zip(x, pulled(x, box, to), box.tolist(), to.tolist()):
        assert torch.equal(out[:, T:B, L:R], resize(image[None, :, t:b, l:r], (B-T, R-L))[0])

def test_large_images_do_not_overflow():
    x, full = torch.full((1, 1, 1100, 1100), 255, dtype=torch.uint8), torch.tensor([[0, 0, 1100, 1100]])
    assert torch.equal(pulled(x, torch.tensor([[3, 5, 900, 1000]]), full), x)

def test_identity_and_zeros():
    x, box = pixels(20, 3, 24, 32), some_boxes(20, 24, 32)
    full = torch.tensor([[0, 0, 32, 24]]).expand(20, 4)
    assert torch.equal(pulled(x, 0*box, 0*box), x) and torch.equal(pulled(x, full, 0*box), x)
    assert torch.equal(paste(x, 0*box, x.flip(0), box), paste(x, full, x.flip(0), box))

def test_paste_by_outline_rounds_once():
    x, bg, alpha = pixels(20, 3, 24, 32), pixels(20, 3, 24, 32, seed=1), pixels(20, 1, 24, 32, seed=2)
    box = some_boxes(20, 24, 32)
    a = alpha.double()/255*box_mask(box, (24, 32))
    assert torch.equal(paste(x, box, bg, box, alpha), (x*a+bg*(1-a)+.5).floor().byte())

@pytest.mark.parametrize('outline', [False, True])
def test_a_turned_object_is_torchvision_s(outline):
    "Object times mask and mask, rotated in float64 around the target's middle: half a grey level beside."
    x, bg, mask = pixels(40, 3, 24, 32), pixels(40, 3, 24, 32, seed=1), pixels(40, 1, 24, 32, seed=2)
    box, to = some_boxes(40, 24, 32), some_boxes(40, 24, 32, 1)
    angle = 360*torch.rand(40, generator=gen(3))-180
    if not outline: mask.fill_(255)
    alpha = mask if outline else None
    a = pulled(mask, box, to).double()*box_mask(to, (24, 32))
    o = pulled(x, box, to)*a
    for k, ((l, t, r, b), made) in enumerate(zip(to.tolist(), paste(x, box, bg, to, alpha, angle=angle))):
        how = dict(angle=float(angle[k]), center=[(l+r)/2, (t+b)/2], interpolation=InterpolationMode.BILINEAR)
        want = rotate(o[k:k+1], **how) + bg[k]*(255-rotate(a[k:k+1], **how))
        assert (made-want[0]/255).abs().max() < .6
    assert torch.equal(paste(x, box, bg, to, alpha, angle=0*angle), paste(x, box, bg, to, alpha))

def test_inputs_are_left_alone():
    x, bg = pixels(9, 3, 24, 32), pixels(9, 3, 24, 32, seed=1)
    box, to = some_boxes(9, 24, 32), some_boxes(9, 24, 32, 1)
    before = [v.clone() for v in (x, bg, box, to)]
    paste(x, box, bg, to, flip=torch.arange(9) > 4, angle=torch.arange(9.))
    assert all(map(torch.equal, before, (x, bg, box, to)))

def test_usable():
    box = torch.tensor([[0, 0, 0, 0], [4, 0, 4, 9], [2, 2, 4, 9], [2, 2, 4, 4]])
    assert usable(box, (24, 32), 3).tolist() == [[0, 0, 32, 24], [0, 0, 32, 24], [2, 2, 4, 9], [0, 0, 32, 24]]

def test_boxes_moved_out_of_sight_are_the_whole_image():
    moves = draw_moves(50, gen(), pad=12)
    box = move_boxes(torch.tensor([[0, 0, 5, 5]]).expand(50, 4), moves, (32, 32))
    gone = (box[:, 0] == box[:, 2]) | (box[:, 1] == box[:, 3])
    assert gone.any() and (usable(box, (32, 32))[gone] == torch.tensor([0, 0, 32, 32])).all()

@pytest.mark.parametrize('box, says', [
    ([-1, 0, 3, 3], 'wide'),
    ([0, 0, 3, 25], '24 high'),
    ([5, 0, 5, 9], 'left must be below'),
    ([0, 9, 9, 3], 'left must be below')])
def test_bad_boxes(box, says):
    boxes = torch.tensor([[0, 0, 0, 0], box])
    with pytest.raises(ValueError, match=says): check_boxes(boxes, pixels(2, 3, 24, 32))

def test_boxes_of_another_kind():
    for box in (torch.zeros(2, 4), torch.zeros(3, 4).long(), torch.zeros(2, 5).long()):
        with pytest.raises(ValueError, match='int64'): check_boxes(box, pixels(2, 3, 24, 32))
    several = torch.tensor([[[0, 0, 2, 2], [1, 1, 5, 5]], [[0, 0, 0, 0], [3, 3, 4, 4]]])
    assert check_boxes(several, pixels(2, 3, 24, 32)) is several
    assert box_mask(several, (24, 32)).sum((1, 2, 3)).tolist() == [4+16-1, 1]

# ---- the pool

@pytest.mark.parametrize('eta', [None, 0, 1, 2, 5, 50])
def test_groups_are_a_partition(eta):
    y, has = torch.randint(4, (57,), generator=gen()), torch.rand(57, generator=gen(1)) < .8
    group, of = groups(y, has, eta, gen(2))
    assert ((group >= 0) == has).all() and (of[group[has]] == y[has]).all()
    for c in of.unique():
        sizes, n = group[has].bincount()[of == c], int((y[has] == c).sum())
        assert len(sizes) == min(eta or n, n) and sizes.sum() == n and sizes.max()-sizes.min() <= 1

@pytest.mark.parametrize('hole_aware', [True, False])
def test_blends_are_means(hole_aware):
    x, y, hole = pixels(30, 3, 12, 16), torch.arange(30)%2, box_mask(some_boxes(30, 12, 16), (12, 16))
    pool, of = blends(x, hole, y, 3, gen(), hole_aware)
    group, _ = groups(y, ~hole.flatten(1).all(1), 3, gen())
    assert of.tolist() == [0]*3+[1]*3
    for k, b in enumerate(pool):
        seen, own = (~hole[group == k]).double(), x[group == k].double()
        total, n = (own*seen).sum(0), seen.sum(0)
        whole = (total.sum((1, 2))/n.sum())[:, None, None]
        mean = torch.where(n > 0, total/n.clamp(min=1), whole) if hole_aware else total/len(own)
        assert torch.equal(b, (mean+.5+1e-9).floor().byte())

def test_a_background_by_itself():
    x, hole = pixels(5, 3, 12, 16), box_mask(some_boxes(5, 12, 16), (12, 16))
    pool, of = blends(x, hole, torch.zeros(5, dtype=torch.long), None, gen())
    theirs = groups(of, of == 0, 0, gen())[0].argsort()
    def sums(images): return sorted(int(v.sum()) for v in images)
    assert sums(pool*~hole[theirs]) == sums(x*~hole)

def test_places():
    box, x = some_boxes(200, 24, 32), pixels(200, 3, 24, 32)
    check_boxes(random_places(200, (24, 32), gen()), x)
    check_boxes(same_size_places(box, (24, 32), gen()), x)
    whole = random_places(200, (24, 32), gen(), (1.,))
    check_boxes(whole, x)
    assert torch.equal(whole, torch.tensor([[0, 0, 32, 24]]).expand(200, 4))
    moved = same_size_places(box, (24, 32), gen())
    assert torch.equal(moved[:, 2:]-moved[:, :2], box[:, 2:]-box[:, :2])
    with pytest.raises(ValueError, match='fractions'): random_places(2, (24, 32), gen(), (0., .5))

def test_every_allowed_background_is_drawn():
    y, of = torch.arange(3).repeat_interleave(2000), torch.tensor([0, 0, 1, 2, 2, 2])
    for rule in (any_class, other_classes, own_class):
        k = draw_backgrounds(y, of, gen(), rule)
        counts = torch.bincount(6*y+k, minlength=18).view(3, 6)
        may = rule(torch.arange(3), of)
        assert ((counts > 0) == may).all()
        expected = 2000/may.sum(1, keepdim=True)
        assert ((counts-expected)[may].abs() < 5*expected.sqrt().expand(3, 6)[may]).all()

def test_a_class_without_a_background_is_named():
    zero, one = torch.tensor([0, 1]), torch.tensor([1])
    with pytest.raises(ValueError, match='class 4 may stand before none of the 2'):
        draw_backgrounds(torch.tensor([0, 4]), zero, gen(), own_class)
    with pytest.raises(ValueError, match='class 1'): draw_backgrounds(one, one, gen(), other_classes)

def test_on_a_suite():
    d = load_suite('emoji-pacs', 'tiny').clients[0].train
    box = check_boxes(masks_to_boxes(d.masks[:, 0] > 127).long()+torch.tensor([0, 0, 1, 1]), d.x)
    pool, of = blends(d.x, box_mask(box, d.x.shape[2:]), d.y, 3, gen())
    to = same_size_places(box, d.x.shape[2:], gen(1))
    x = paste(d.x, box, pool[draw_backgrounds(d.y, of, gen(2))], to, d.masks)
    assert x.dtype == torch.uint8 and x.shape == d.x.shape and len(pool) == 3*len(d.y.unique())

# ---- prototypes

def test_crops_do_not_depend_on_chunks():
    x, box = pixels(10, 3, 24, 32), some_boxes(10, 24, 32)
    assert torch.equal(object_crops(x, box, 3), object_crops(x, box))
    assert torch.equal(object_crops(x, 0*box), x)

def test_means_keep_bad_features_to_their_class():
    f, y = torch.tensor([[1., 2], [float('nan'), 0], [3, 4]]), torch.tensor([0, 1, 0])
    means, counts = class_means(f, y, 3)
    assert means[[0, 2]].tolist() == [[2, 3], [0, 0]] and counts.tolist() == [2, 1, 0]
    U, had = global_prototypes(torch.stack([means, means]), torch.tensor([[True, False, False]]*2))
    assert U.tolist() == [[2, 3], [0, 0], [0, 0]] and had.tolist() == [True, False, False]

def test_pull_is_finite():
    f = torch.tensor([[0., 0], [1e18, -1e18], [1e-18, 0]], requires_grad=True)
    for U in (torch.eye(3)[:, :2], torch.zeros(3, 2), torch.full((3, 2), 1e18)):
        L = pull(f, U, torch.tensor([0, 1, 2]))
        assert L.isfinite() and torch.autograd.grad(L, f)[0].isfinite().all()

def test_pull_without_labels_is_zero_and_has_no_gradient():
    f = torch.randn(4, 3, generator=gen(), requires_grad=True)
    L = pull(f, torch.eye(3), torch.arange(4)%3, had=torch.zeros(3, dtype=torch.bool))
    assert L == 0 and not torch.autograd.grad(L, f)[0].any()

def test_no_gradient_into_the_prototypes():
    f, U = (torch.randn(4, 3, generator=gen(s), requires_grad=True) for s in (0, 1))
    assert torch.autograd.grad(pull(f, U, torch.arange(4)), (f, U), allow_unused=True)[1] is None

def test_pull_does_not_depend_on_scale():
    f, U, y = torch.randn(9, 5, generator=gen()), torch.randn(3, 5, generator=gen(1)), torch.arange(9)%3
    torch.testing.assert_close(pull(1e-4*f, 1e-4*U, y), pull(f, U, y))
    torch.testing.assert_close(pull(f.bfloat16(), U, y), pull(f.bfloat16().float(), U, y))
    with pytest.raises(ValueError, match='above 0'): pull(f, U, y, tau=0)

def test_the_pull_is_a_mean_over_those_who_are_pulled():
    "A feature whose class has no prototype counts neither above nor below the line."
    f, U = torch.randn(4, 3), torch.randn(3, 3)
    y, had = torch.tensor([0, 1, 2, 1]), torch.tensor([True, True, False])
    cosines = F.normalize(f)@F.normalize(U).T/.5
    terms = [F.cross_entropy(cosines[i, :2][None], y[i:i+1]) for i in (0, 1, 3)]
    assert torch.allclose(pull(f, U, y, .5, had), sum(terms)/3, atol=1e-5)
