"Where objects are: tables of boxes and their faults, squeezing, folders, augmentation, commands, detectors."
import json, sys
from types import SimpleNamespace
import numpy as np, pytest, torch
from PIL import Image
from fedskew_nb.tools import boxes as command, cli
from fedskew_nb.tools.boxes import find_boxes
from fedskew_nb.tools.detector import GroundingDINO, best_box
from fedskew_nb.run.store import read_request
from fedskew_nb.core.seeding import generator
from fedskew_nb.data.batch import boxes_of, draw_moves, move_boxes
from fedskew_nb.data.boxes import BOX_COLUMNS, Box, best_boxes, fitted, jittered, read_boxes, write_boxes
from fedskew_nb.data.folder import folder, load_folder
from fedskew_nb.data.images import join
from fedskew_nb.data.splits import dirichlet
from fedskew_nb.data.suite import Suite
from fedskew_nb.engine.client import augmented

HEAD = ','.join(BOX_COLUMNS)+'\n'

@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch): monkeypatch.setenv('FEDSKEW_CACHE', str(tmp_path/'cache'))

def lit(x): return boxes_of(x.amax(-3, keepdim=True))       # the box of what is bright

def picture(box, size=(60, 40), noise=0):
    "A dark picture of `size` (width, height), bright in its box."
    x = np.random.default_rng(noise).integers(0, 40, (size[1], size[0], 3), dtype=np.uint8)
    l, t, r, b = box
    x[t:b, l:r] = 250
    return Image.fromarray(x)

def some_box(k):
    "Box number `k`, on multiples of 3 and 2 pixels, so that 60×40 squeezes to 20×20 without a rest."
    g = np.random.default_rng(k)
    l, t = g.integers(0, 15, 2)
    w, h = g.integers(2, 5, 2)
    return 3*int(l), 2*int(t), 3*int(l+w), 2*int(t+h)

@pytest.fixture
def home(tmp_path):
    "Two domains, two classes, eight pictures each, every one with a box of its own; boxes.csv knows all."
    root, rows = tmp_path/'set', []
    names = [f'{d}/{c}/{i}.png' for d in ('ink', 'oil') for c in ('cat', 'dog') for i in range(8)]
    for k, name in enumerate(names):
        (root/name).parent.mkdir(parents=True, exist_ok=True)
        picture(some_box(k), noise=k).save(root/name)
        rows.append(Box(name, *some_box(k)))
    write_boxes(root/'boxes.csv', rows)
    return root

def parts(suite):
    own = [d for c in suite.clients for d in (c.train, c.val)]
    return [*own, *suite.tests.values(), *suite.unseen.values()]

# ---- a table and its faults

FIVE = 'path,left,top,right,bottom'                                # the columns without a score
BAD = [
    ('', 'holds no box; give a line path,left'),
    (HEAD, 'holds no box'),
    ('\n\n', 'holds no box'),
    ('ink/cat/0.png,1,2,3,4\n', 'row 1: the columns are ink/cat/0.png,1,2,3,4; they must be path,left'),
    ('path;left;top;right;bottom\na;1;2;3;4', 'separated by commas'),
    ('path,xmin,ymin,xmax,ymax\na,1,2,3,4', 'columns are path,xmin'),
    (FIVE+',left\na,1,2,3,4,5', 'bottom,left; they must'),
    (HEAD.strip()+',label\na,1,2,3,4,1,x', 'score,label; they must'),
    (HEAD+'a,1,2,3,4', 'row 2: 5 fields; give 6'),
    (HEAD+'a,1,2,3,4,1,9', 'row 2: 7 fields'),
    (HEAD+'a,1,2,x,4,1', 'row 2: 1,2,x,4,1 are not all numbers'),
    (HEAD+'a,1,2,,4,1', 'not all numbers'),
    (HEAD+'a,1,2,inf,4,1', 'row 2: the box 1,2,inf,4 of a, score 1, is not finite'),
    (HEAD+'a,1,2,3,4,nan', 'score nan, is not finite'),
    (HEAD+'b,1,2,3,4,1\n\n"a",5,2,3,4,1', 'row 4: the box 5,2,3,4 of a is empty or reversed'),
    (HEAD+'a,1,2,1,4,1', 'empty or reversed'),
    (HEAD+'a,1,4,2,4,1', 'empty or reversed'),
    (HEAD+'a,-1,2,3,4,1', 'does not lie inside its image; give pixels of the file'),
    (HEAD+HEAD, 'row 2: left,top,right,bottom,score are not all numbers'),
    (FIVE+'\na,1,2,3,4\na,2,2,3,4', 'rows 2 and 3 are both of a; keep one, or add a column score'),
    (HEAD+'"a,1,2,3,4,1', 'is no CSV'),
    (HEAD.encode('utf-16'), 'not in UTF-8'),
    (HEAD.encode()+b'\xff\xfe,1,2,3,4,1', 'not in UTF-8')]

@pytest.mark.parametrize('text, says', BAD)
def test_bad_table(tmp_path, text, says):
    (tmp_path/'b.csv').write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError) as e: read_boxes(tmp_path/'b.csv')
    assert says in str(e.value) and 'b.csv' in str(e.value) and '\n' not in str(e.value)

def test_unknown_paths_are_counted(tmp_path):
    (tmp_path/'b.csv').write_text(HEAD+'a,1,2,3,4,1\nx,1,2,3,4,1\ny,1,2,3,4,1\nx,1,2,3,4,.5')
    says = r'2 path\(s\) are no images of the folder, first x \(row 3\); give paths like a'
    with pytest.raises(ValueError, match=says): read_boxes(tmp_path/'b.csv', ['a'])

def test_tables_of_other_programs(tmp_path):
    "A byte-order mark, Windows lines, blanks, backslashes, `./`, no score."
    lines = ['\ufeffpath, left,top,right,bottom', '"d\\c\\é.png", 1,2,3,4', './d/c/2.png,1.5,2,3,4', '']
    (tmp_path/'b.csv').write_bytes('\r\n'.join(lines).encode())
    found = read_boxes(tmp_path/'b.csv', {'d/c/é.png', 'd/c/2.png'})
    assert [tuple(b) for b in found] == [('d/c/é.png', 1, 2, 3, 4, 1, 2), ('d/c/2.png', 1.5, 2, 3, 4, 1, 3)]

def test_written_and_read(tmp_path):
    rows = [Box('a,"b".png', 1.25, 2, 3, 4, .5), Box('c', 0, 0, 0, 0, 0), Box('c', 0, 0, 12345.67, 2, .0125)]
    file = tmp_path/'new'/'b.csv'
    write_boxes(file, rows)
    assert [b[:6] for b in read_boxes(file)] == [b[:6] for b in rows]
    assert list(file.parent.iterdir()) == [file]

def test_the_best_of_several(tmp_path):
    rows = [Box('a', 0, 0, 1, 1, .2), Box('a', 0, 0, 2, 2, .9), Box('a', 0, 0, 3, 3, .9),
            Box('b', 0, 0, 0, 0, 1), Box('b', 0, 0, 4, 4, .1)]
    write_boxes(tmp_path/'b.csv', rows)
    assert {p: b.right for p, b in best_boxes(tmp_path/'b.csv').best.items()} == dict(a=2, b=4)

# ---- squeezed

def draw_box(g):
    "A box in a picture of any size, and the side that the picture is squeezed to."
    (w, h), side = g.integers(1, 90, 2).tolist(), int(g.integers(8, 64))
    (l, r), (t, b) = (sorted(g.choice(n+1, 2, replace=False).tolist()) for n in (w, h))
    return (l, t, r, b), (w, h), side

def holds(low, high, l, r, n, side):
    "Is `low … high` the narrowest range of pixels around `l … r` of `n`, squeezed to `side`?"
    left, right = l*side/n, r*side/n+1e-9
    return 0 <= low <= left < high and high-1 < right <= high+1e-9 <= side+1e-9

def test_squeezed_boxes_hold_what_they_held():
    g = np.random.default_rng(0)
    for _ in range(300):
        (l, t, r, b), (w, h), side = draw_box(g)
        L, T, R, B = fitted(Box('a', l, t, r, b), (w, h), side)
        assert holds(L, R, l, r, w, side) and holds(T, B, t, b, h, side)
        if side == w == h: assert [L, T, R, B] == [l, t, r, b]

@pytest.mark.parametrize('turn', [None, 6])
def test_box_of_the_upright_picture(home, turn):
    "A photograph stored lying down: its box is that of the picture as one sees it."
    file, box = home/'ink'/'cat'/'0.png', (12, 10, 33, 30)
    im, exif = picture(box), Image.Exif()
    if turn: exif[0x112], im = turn, im.transpose(Image.Transpose.ROTATE_90)
    im.save(file, exif=exif)
    rows = [b if b.path != 'ink/cat/0.png' else Box(b.path, *box) for b in read_boxes(home/'boxes.csv')]
    write_boxes(home/'boxes.csv', rows)
    d = join(parts(load_folder(home, 20, boxes='boxes.csv')))
    assert torch.equal(lit(d.x), d.boxes) and [4, 5, 11, 15] in d.boxes.tolist()

# ---- a folder

def test_every_image_keeps_its_box(home):
    "Broken files and copies are left out of the middle; all splits and deals carry boxes along."
    (home/'ink'/'cat'/'3.png').write_bytes(b'<html>')
    (home/'oil'/'cat'/'0a.png').write_bytes((home/'oil'/'cat'/'0.png').read_bytes())
    how = dict(bad='skip', boxes='boxes.csv', clients={'ink': 2}, unseen=['oil'])
    def load(): return load_folder(home, 20, **how)
    with pytest.warns() as said: s = load()
    assert [str(w.message).partition('set: ')[2].partition(',')[0] for w in said] == [
        '1 unreadable left out', '1 exact copy left out']
    assert 'without a box' not in s.source
    own = Suite.from_datasets({'a': (s.clients[0].train, s.tests['ink'])}, s.classes)
    from_the_cache = load()
    deals = [s.iid(0), s.pooled(), dirichlet(s, .5, 2), s.to(budget=0)]
    for suite in (s, from_the_cache, *deals, own):
        for d in parts(suite):
            assert d.boxes.dtype == torch.int64 and d.boxes.shape == (len(d), 4), suite.name
            assert torch.equal(lit(d.x), d.boxes), suite.name

def test_without_boxes_nothing_changes(home):
    assert all(d.boxes is None for d in parts(load_folder(home, 20)))
    assert '32 images' == load_folder(home, 20).source.split(', ')[1]

def test_images_without_a_box_are_counted(home):
    rows = [b for b in read_boxes(home/'boxes.csv') if b.path not in ('ink/dog/2.png', 'oil/cat/5.png')]
    write_boxes(home/'boxes.csv', [*rows, Box('oil/cat/5.png', 0, 0, 0, 0, 0)])
    says = '2 of 32 without a box, first ink/dog/2.png'
    with pytest.warns(UserWarning, match=says): s = load_folder(home, 20, boxes='boxes.csv')
    assert '2 of 32 without a box' in s.source
    assert sum(int((d.boxes == 0).all(1).sum()) for d in parts(s)) == 2

@pytest.mark.parametrize('bad', ['strict', 'skip'])
def test_boxes_of_another_image_size(home, bad):
    other = Box('oil/cat/5.png', 1, 2, 61, 9)
    rows = [other if b.path == other.path else b for b in read_boxes(home/'boxes.csv')]
    write_boxes(home/'boxes.csv', rows)
    says = 'row 23: the box 1,2,61,9 of oil/cat/5.png does not lie inside its image of 60×40 pixels'
    with pytest.raises(ValueError, match=says): load_folder(home, 20, bad=bad, boxes='boxes.csv')

def test_a_changed_table_is_another_run(home, tmp_path):
    plain, with_boxes = folder(str(home), 20), folder(str(home), 20, boxes='boxes.csv')
    said, first = plain(0).fingerprint(), with_boxes(0)
    rows = read_boxes(home/'boxes.csv')
    write_boxes(home/'boxes.csv', [b._replace(left=b.left+3) for b in rows])
    assert plain(0).fingerprint() == said != with_boxes(0).fingerprint() != first.fingerprint()
    assert not torch.equal(join(parts(with_boxes(0))).boxes, join(parts(first)).boxes)
    (home/'boxes.csv').rename(tmp_path/'else.csv')
    assert plain(0).fingerprint() == said
    says = 'there is no file .*boxes.csv: .*fedskew boxes'
    with pytest.raises(FileNotFoundError, match=says): with_boxes(0)

def test_a_table_may_lie_elsewhere(home, tmp_path):
    (home/'boxes.csv').rename(tmp_path/'else.csv')
    a, b = (join(parts(load_folder(home, 20, boxes=f))) for f in (tmp_path/'else.csv', '../else.csv'))
    assert torch.equal(a.boxes, b.boxes)

# ---- moved with the image

@pytest.mark.parametrize('size', [(40, 60), (24, 24)])
@pytest.mark.parametrize('pad, flip', [(0, True), (3, False), (20, True)])
def test_augmentation_keeps_boxes_right(size, pad, flip):
    """The box is the only bright rectangle, and stays it through flips and crops.

    Some leave the image, some were never found."""
    g, n = generator('augmentation', pad), 200
    H, W = size
    boxes = drawn_boxes(n, (W, H), 12, g)
    boxes[::7] = 0
    x = torch.zeros(n, 3, H, W, dtype=torch.uint8)
    for k, (l, t, r, b) in enumerate(boxes.tolist()): x[k, :, t:b, l:r] = 200
    assert torch.equal(lit(x), boxes)
    moves = draw_moves(n, g, pad, flip)
    b = augmented(dict(x=x, boxes=boxes, masks=x[:,:1], y=torch.zeros(n)), moves)
    assert torch.equal(lit(b['x']), b['boxes']) and torch.equal(boxes_of(b['masks']), b['boxes'])
    assert b['boxes'].dtype == torch.int64
    assert not torch.equal(b['boxes'], boxes) and not b['boxes'][::7].any()
    if pad == 20: assert int((b['boxes'] == 0).all(1).sum()) > len(boxes[::7])

def drawn_boxes(n, size, most, g):
    "`n` boxes of fewer than `most` pixels a side in pictures of `size` (width, height)."
    W, H = size
    corner = torch.stack([torch.randint(W-1, (n,), generator=g), torch.randint(H-1, (n,), generator=g)], 1)
    wide = torch.randint(1, most, (n, 2), generator=g)
    return torch.cat([corner, torch.minimum(corner+wide, torch.tensor(size))], 1)

@pytest.mark.parametrize('n', [0, 1, 5])
def test_shapes(n):
    none = torch.zeros(n, 4, dtype=torch.long)
    assert boxes_of(torch.zeros(n, 1, 7, 9, dtype=torch.uint8)).shape == (n, 4)
    assert move_boxes(none, draw_moves(n, generator(0), 2, True), (7, 9)).shape == (n, 4)
    assert jittered(none, (7, 9), .2, .5, generator(0)).shape == (n, 4)

# ---- noise

@pytest.fixture(scope='module')
def old():
    "Boxes in pictures of 60×56 pixels, a fifth of them never found."
    found = drawn_boxes(400, (60, 56), 20, generator('noise'))
    found[::5] = 0
    return found

def jitter(old, by, miss=0): return jittered(old, (56, 60), by, miss, generator('jitter'))

@pytest.mark.parametrize('by', [0, .1, .5])
def test_noise_moves_the_edges_that_far(old, by):
    new, found = jitter(old, by), old.any(1)
    assert not new[~found].any() and (new[found][:,2:] > new[found][:,:2]).all()
    assert (new >= 0).all() and (new <= torch.tensor([60, 56, 60, 56])).all()
    wide = (old[:,2:]-old[:,:2]).repeat(1, 2)
    assert ((new-old).abs() <= (by*wide).clamp(min=.5)+.5).all()
    assert torch.equal(new, jitter(old, by))

def test_what_is_missed_does_not_move_the_others(old):
    lost = jitter(old, .2, .25)
    kept = lost.any(1)
    assert int(kept.sum()) == 240 and not jitter(old, 0, 1).any()
    assert torch.equal(lost[kept], jitter(old, .2)[kept])

WRONG_NOISE = [(-.1, 0, 'by is -0.1'), (0, 1.5, 'miss is 1.5'), (float('nan'), 0, 'by is nan')]

@pytest.mark.parametrize('by, miss, says', WRONG_NOISE)
def test_noise_that_is_none(old, by, miss, says):
    with pytest.raises(ValueError, match=says): jitter(old, by, miss)

# ---- the commands

def run(capsys, *argv):
    code = cli.main([str(a) for a in argv])
    said = capsys.readouterr()
    return code, said.out, said.err

@pytest.fixture
def moon(monkeypatch):
    "A finder of what is bright in place of Grounding DINO; it tells what it was asked, and may be unplugged."
    log = SimpleNamespace(made=[], asked=[], stop=None)
    def make(*args):
        log.made.append(args)
        def find(image, name):
            if len(log.asked) == log.stop: raise KeyboardInterrupt
            log.asked.append(name)
            found = image.convert('L').point(lambda v: 255*(v > 127)).getbbox()
            return found and (*found, .5)
        return find
    monkeypatch.setattr(command, 'GroundingDINO', make)
    return log

def test_command_goes_on_where_it_stopped(capsys, home, moon):
    whole, file = [b[1:5] for b in read_boxes(home/'boxes.csv')], home/'boxes.csv'
    file.unlink()
    moon.stop = 10
    assert run(capsys, 'boxes', '--data', home, '--threshold', .2, '--device', 'cpu')[0] == 130
    assert len(read_boxes(file)) == 10
    moon.stop = None
    code, out, _ = run(capsys, 'boxes', '--data', home, '--threshold', .2)
    asks = f'32 of 32 images have a box in {file} (10 rows were there before; delete the file to ask again)'
    assert code == 0 and asks in out
    assert moon.asked == ['cat']*8+['dog']*8+['cat']*8+['dog']*8
    assert [b[1:5] for b in read_boxes(file)] == whole
    assert [made[1:3] for made in moon.made] == [(.2, .2)]*2

def test_command_asks_nothing_where_all_is_answered(capsys, home, moon):
    before = (home/'boxes.csv').read_bytes()
    assert run(capsys, 'boxes', '--data', home)[0] == 0
    assert not moon.made and not moon.asked and (home/'boxes.csv').read_bytes() == before

def test_command_notes_broken_images_and_empty_answers(capsys, home, moon, tmp_path):
    (home/'ink'/'cat'/'3.png').write_bytes(b'<html>')
    picture((0, 0, 0, 0)).save(home/'ink'/'cat'/'4.png')
    code, out, err = run(capsys, 'boxes', '--data', home, '--out', tmp_path/'b.csv')
    assert code == 0 and '30 of 31 images have a box' in out
    assert '1 unreadable left out, first ink/cat/3.png' in err
    assert [b.path for b in read_boxes(tmp_path/'b.csv') if not b.right] == ['ink/cat/4.png']

def test_finder_that_errs(home):
    "A box outside its image is refused; what was answered before is kept."
    (home/'boxes.csv').unlink()
    answers = iter([(1, 1, 9, 9), None, (0, 0, 61, 9, .5)])
    says = 'the finder: the box 0,0,61,9 of ink/cat/2.png does not lie inside its image of 60×40'
    with pytest.raises(ValueError, match=says): find_boxes(home, lambda *_: next(answers))
    assert [b[1:6] for b in read_boxes(home/'boxes.csv')] == [(1, 1, 9, 9, 1), (0, 0, 0, 0, 0)]

def test_command_without_a_folder(capsys): assert 'fedskew boxes --data DIR' in run(capsys, 'boxes')[2]

@pytest.mark.parametrize('more, says', [
    (['--data', 'nowhere'], 'there is no folder'),
    (['--data', 'set', '--out', 'b.csv', '--threshold', '2'], 'threshold is 2')])
def test_command_on_bad_input(capsys, home, monkeypatch, more, says):
    monkeypatch.chdir(home.parent)
    code, _, err = run(capsys, 'boxes', *more)
    assert code == 2 and says in err

def test_command_without_the_library(capsys, home, monkeypatch):
    monkeypatch.setitem(sys.modules, 'transformers', None)
    code, _, err = run(capsys, 'boxes', '--data', home, '--out', 'b.csv', '--device', 'cpu')
    assert code == 1 and "transformers is not installed: run pip install 'fedskew_nb[boxes]'" in err
    assert not (home/'b.csv').exists()

SMALL = ['--pixels', 20, '--methods', 'FedAvg', '--no-control', '--seeds', 1, '--rounds', 1,
         '--set', 'local_steps=2', '--model', 'small_conv(width=4)']

def test_compare_with_boxes_and_resume(capsys, home, tmp_path, unsaved):
    out = tmp_path/'o'
    def runs(): return {p.name for p in (out/'runs').iterdir()}
    code, _, err = run(capsys, 'compare', '--data', home, '--boxes', 'boxes.csv', *SMALL, '--out', out)
    assert code == 0, err
    assert read_request(out).given()['suite'] == [folder(str(home), 20, 'strict', 'boxes.csv').text]
    stored = runs()
    assert run(capsys, 'resume', out)[0] == 0 and runs() == stored
    request = json.loads((out/'compare.json').read_text())
    request |= dict(format=1, suites=[], folders=[dict(root=str(home), pixels=20, bad='strict')])
    (out/'compare.json').write_text(json.dumps(request))
    assert run(capsys, 'adopt', out)[0] == 0
    assert read_request(out).given()['suite'] == [folder(str(home), 20).text]
    assert run(capsys, 'resume', out)[0] == 0 and len(runs()) == 2

@pytest.mark.parametrize('more, says', [
    (['--boxes', 'boxes.csv'], '--boxes boxes.csv needs --data'),
    (['--data', 'set', '--boxes', 'none.csv'], 'none.csv: write boxes into it')])
def test_compare_without_folder_or_table(capsys, home, tmp_path, monkeypatch, more, says):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, 'compare', *more, '--out', tmp_path/'p')
    assert code == 2 and says in err and not (tmp_path/'p').exists()

# ---- Grounding DINO, with a tiny model of random weights

def test_best_candidate():
    logits, place = torch.full((3, 6), -9.), torch.tensor([[.5, .5, .2, .2]]*3)
    logits[0, 0], logits[1, 5], logits[2, 3] = 9., 8., 1.                    # only the third is about a word
    assert best_box(logits, place, .3, .3)[4] == pytest.approx(torch.tensor(1.).sigmoid().item())
    assert best_box(logits, place, .8, .3) is None and best_box(logits, place, .3, .8) is None

WORDS = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', '.', '?', 'cat', 'dog', 'fire', 'truck']

def tiny(hub):
    "The shape of Grounding DINO with hardly any width."
    eyes = hub.SwinConfig(image_size=32, embed_dim=8, depths=[1]*4, num_heads=[1]*4, window_size=2,
                          out_features=['stage2', 'stage3', 'stage4'])
    text = hub.BertConfig(vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1,
                          num_attention_heads=2, intermediate_size=16)
    both = dict(encoder_ffn_dim=16, decoder_ffn_dim=16, encoder_attention_heads=2, decoder_attention_heads=2)
    return hub.GroundingDinoConfig(backbone_config=eyes, text_config=text, d_model=32, num_queries=5,
                                   encoder_layers=1, decoder_layers=2, **both)

@pytest.fixture(scope='module')
def weights(tmp_path_factory):
    "A folder with a checkpoint as the hub's are laid out."
    hub, d = pytest.importorskip('transformers'), tmp_path_factory.mktemp('dino')
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hub.GroundingDinoForObjectDetection(tiny(hub)).save_pretrained(d, safe_serialization=True)
    (d/'vocab.txt').write_text('\n'.join(WORDS))
    eyes = hub.GroundingDinoImageProcessor(size=dict(shortest_edge=96, longest_edge=160))
    hub.GroundingDinoProcessor(eyes, hub.BertTokenizer(str(d/'vocab.txt'))).save_pretrained(d)
    return d

@pytest.fixture(scope='module')
def dino(weights): return GroundingDINO(str(weights))

@pytest.mark.parametrize('size', [(60, 40), (33, 90)])
@pytest.mark.parametrize('name', ['cat', 'Fire_Truck'])
def test_dino_end_to_end(dino, size, name):
    image = picture((5, 5, 20, 30), size)
    l, t, r, b, score = found = dino(image, name)
    assert 0 <= l < r <= size[0] and 0 <= t < b <= size[1] and .3 < score <= 1
    assert found == dino(image, name)

def test_dino_that_nothing_satisfies(weights):
    find = GroundingDINO(str(weights), threshold=1-1e-7)
    assert find(picture((5, 5, 20, 30)), 'cat') is None

def library_says(find, image, prompt):
    "The best labelled box of the library's own post-processing, cut at the border."
    seen = find.reader(images=image, text=prompt, return_tensors='pt')
    with torch.no_grad(): out = find.net(**seen)
    after = find.reader.post_process_grounded_object_detection
    how = dict(text_threshold=.3, target_sizes=[image.size[::-1]])
    try: said, = after(out, seen['input_ids'], threshold=.3, **how)
    except TypeError: said, = after(out, seen['input_ids'], box_threshold=.3, **how)
    labels = said['text_labels' if 'text_labels' in said else 'labels']
    scores = torch.tensor([float(s) if label else 0. for s, label in zip(said['scores'], labels)])
    if not len(scores) or scores.max() <= .3: return None
    border = torch.tensor(image.size*2)
    best = said['boxes'][scores.argmax()].clamp(min=0).minimum(border)
    return (*best.tolist(), scores.max().item())

def test_dino_is_what_the_library_says(dino):
    "The prompt is lower case and ends in a full stop."
    answers = []
    for k in range(16):
        name, prompt = (('Cat', 'cat.'), ('Fire_Truck', 'fire truck.'))[k%5 == 0]
        image = picture(some_box(k), (60, 40), k)
        want = library_says(dino, image, prompt)
        answers.append(dino(image, name))
        assert answers[-1] == (None if want is None else pytest.approx(want, abs=.006))
    assert len(set(answers)) > 4

def test_dino_for_a_folder(capsys, weights, home):
    (home/'boxes.csv').unlink()
    code, out, err = run(capsys, 'boxes', '--data', home, '--model', weights, '--device', 'cpu')
    found = sum(b.right > 0 for b in read_boxes(home/'boxes.csv'))
    assert code == 0 and 16 < found <= 32 and f'{found} of 32 images have a box' in out, err
    d = join(parts(load_folder(home, 20, boxes='boxes.csv')))
    inside = (d.boxes[:,2:] > d.boxes[:,:2]).all(1) & (d.boxes <= 20).all(1)
    assert int(inside.sum()) == found

@pytest.fixture(scope='module')
def no_weights(weights, tmp_path_factory):
    "No checkpoints: a folder of other files, torn weights, weights that are no safetensors."
    home = tmp_path_factory.mktemp('none')
    for n in ('torn', 'pickled'):
        (home/n).mkdir()
        for f in weights.iterdir(): (home/n/f.name).write_bytes(f.read_bytes())
    (home/'torn'/'model.safetensors').write_bytes(b'junk')
    (home/'pickled'/'model.safetensors').unlink()
    torch.save({}, home/'pickled'/'pytorch_model.bin')
    return home

@pytest.mark.parametrize('model', ['nowhere', '.', 'torn', 'pickled', 'IDEA-Research/grounding-dino-none'])
def test_dino_without_weights(no_weights, model):
    "The last is a name that the cache does not hold."
    name = model if model.startswith('IDEA') else str(no_weights/model)
    says = 'there is no Grounding DINO to read in .*hf download'
    with pytest.raises(ValueError, match=says) as e: GroundingDINO(name)
    assert '\n' not in str(e.value)
