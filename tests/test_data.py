"Data: what teaches nothing but must hold. Embedded files, disjoint pools, a cache under attack, images of every kind, bad folders."
import hashlib, os
import numpy as np, pytest, torch
from PIL import Image
from fedskew_nb.core.seeding import generator
from fedskew_nb.data.batch import boxes_of, draw_moves, move, move_boxes
from fedskew_nb.data.cache import cache_dir
from fedskew_nb.data.backgrounds import (
    CONTEXT_KINDS, CONTEXT_SIZES, SEEN, context_animals, context_vehicles, deal_contexts, draw_contexts,
    empty_contexts, usual_context)
from fedskew_nb.data.digits import DIGITS, DRAW, POOLS, pool
from fedskew_nb.data.emoji import CONTEXTS, EMOJI
from fedskew_nb.data.folder import load_folder, scan
from fedskew_nb.data.images import read_image
from fedskew_nb.data.images import as_data
from fedskew_nb.data.load import SIZES, SUITES, load_suite
from fedskew_nb.data.draw import ARTISTS, asset, sprite_names
from fedskew_nb.data.splits import by_table, dirichlet, leave_out, shards, uneven
from fedskew_nb.data.suite import Suite, pack, unpack

CONTEXTUAL = ('context-vehicles', 'context-vehicles-95', 'context-animals')     # where a client's domain is no test set

@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch): monkeypatch.setenv('FEDSKEW_CACHE', str(tmp_path/'cache'))

@pytest.fixture(scope='module')
def tiny(): return {n: load_suite(n,'tiny',cache=False) for n in SUITES}

def same(a, b):
    assert a.fingerprint()==b.fingerprint()
    for p,q in zip(a._datas(), b._datas(), strict=True):
        assert torch.equal(p.x,q.x) and torch.equal(p.y,q.y) and (p.masks is None)==(q.masks is None)
        if p.masks is not None: assert torch.equal(p.masks,q.masks)
        assert (p.boxes is None)==(q.boxes is None) and (p.boxes is None or torch.equal(p.boxes,q.boxes))

# ---- embedded files
def test_assets_are_what_the_build_made():
    lines = asset('SHA256SUMS').read_text().split('\n')[:-1]
    assert len(lines)==23 and sum(len(asset(l.split()[1]).read_bytes()) for l in lines) < 4<<20
    for l in lines: digest,name = l.split(); assert hashlib.sha256(asset(name).read_bytes()).hexdigest()==digest, name

def test_every_asset_has_its_licence():
    text = asset('LICENSES.md').read_text(encoding='utf-8')
    for l in asset('SHA256SUMS').read_text().split('\n')[:-1]:
        name = l.split()[1]; assert (name in text) or name.startswith('photo_') and name[6:-4] in text, name
    assert 'http' not in text

def test_every_artist_has_all_24_classes():
    for a in ARTISTS: assert len({c for c,_ in sprite_names(a)})==24

# ---- suites
@pytest.mark.parametrize('name', SUITES)
def test_suite(name, tiny):
    s = tiny[name]
    assert s.size=='tiny' and all((s.source,s.licence,s.shows,s.cannot))
    if name not in CONTEXTUAL: assert [c.domain for c in s.clients]==s.domains and all(c.test is s.tests[c.domain] for c in s.clients)
    assert s.partition().shape==(len(s.clients), 2+s.n_classes)
    same(s, load_suite(name,'tiny',cache=False)); same(s, unpack(*pack(s)))
    assert s.fingerprint()!=load_suite(name,'tiny',1,cache=False).fingerprint()

def test_sizes_of_record():
    assert SIZES==tuple(DIGITS)==tuple(EMOJI)==tuple(CONTEXT_SIZES)==('tiny','quick','stress','standard','full')
    for table,domains in ((DIGITS,DRAW),(EMOJI,EMOJI['full']['clients'])):
        for size in SIZES[1:]:
            of = lambda k,d: table[size][k][d] if isinstance(table[size][k],dict) else table[size][k]
            assert all(of('test',d)>=800 for d in domains)
            for d in set(domains) & set(POOLS):                    # the collections hold what the sizes ask for
                n = of('train',d); assert of('clients',d)*(n+n//5)<=len(pool(d,'train')) and of('test',d)<=len(pool(d,'test'))

def test_real_digits_are_never_in_two_places():
    used = {(d,p): set(pool(d,p).tolist()) for d in ('mnist','mnistm','optdigits') for p in ('train','test')}
    assert not used['optdigits','train'] & used['optdigits','test']
    m = [v for (d,_),v in used.items() if d!='optdigits']; assert sum(map(len,m))==len(set().union(*m))==10000
    s = load_suite('skew-digits','quick')
    for d in ('mnist','optdigits'):
        c = next(c for c in s.clients if c.domain==d); rows = [tuple(map(bytes, np.ascontiguousarray(v.x[:,0].numpy().reshape(len(v),-1)))) for v in (c.train,c.val,c.test)]
        assert len(set().union(*rows))==sum(map(len,rows))

def test_seeds():
    for bad in (2**63, -2**63-1, 1.5, True, '1', None):
        with pytest.raises(ValueError, match='data_seed'): load_suite('skew-digits','tiny',bad)
    same(load_suite('skew-digits','tiny',np.int64(5)), load_suite('skew-digits','tiny',5))
    load_suite('emoji-pacs','tiny',-2**63,cache=False)

def test_global_generator_is_untouched(tiny):
    torch.manual_seed(3); before = torch.get_rng_state()
    s = load_suite('skew-digits','tiny',9); s.iid(1); dirichlet(s,.5); shards(s); x = s.clients[0].train.x; move(x, draw_moves(len(x), generator(0), 2, True))
    assert torch.equal(before, torch.get_rng_state())

def test_drawing_does_not_depend_on_threads(tiny):
    n = torch.get_num_threads()
    try:
        torch.set_num_threads(2); again = load_suite('emoji-pacs','tiny',cache=False); assert torch.get_num_threads()==2
    finally: torch.set_num_threads(n)
    same(again, tiny['emoji-pacs'])

# ---- cache
def test_cache_round_trip_and_torn_file(tiny):
    first = load_suite('skew-digits','tiny'); same(first, tiny['skew-digits'])
    file, = cache_dir().glob('skew-digits-tiny-0-*.safetensors'); raw = file.read_bytes(); same(load_suite('skew-digits','tiny'), first)
    for torn in (b'', raw[:7], raw[:len(raw)//2], b'<html>'+raw, os.urandom(500)):
        file.unlink(); file.write_bytes(torn); same(load_suite('skew-digits','tiny'), tiny['skew-digits'])
    assert not list(cache_dir().glob('*.part'))

def test_cache_that_cannot_be_written(tmp_path, monkeypatch, tiny):
    (tmp_path/'f').write_text(''); monkeypatch.setenv('FEDSKEW_CACHE', str(tmp_path/'f'/'below')); same(load_suite('skew-digits','tiny'), tiny['skew-digits'])

def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv('FEDSKEW_CACHE'); monkeypatch.setattr('sys.platform','linux'); monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path)); assert cache_dir()==tmp_path/'fedskew_nb'
    monkeypatch.setattr('sys.platform','darwin'); assert cache_dir().parts[-3:]==('Library','Caches','fedskew_nb')
    monkeypatch.setattr('sys.platform','win32'); monkeypatch.setenv('LOCALAPPDATA', str(tmp_path/'L')); assert cache_dir()==tmp_path/'L'/'fedskew_nb'

def test_mapped_equals_memory(tiny):
    for s in tiny.values(): same(s.to(budget=0), s); same(s.to('cpu'), s)

# ---- deals
@pytest.mark.parametrize('seed', range(3))
def test_deals_lose_nothing(tiny, seed):
    s = tiny['emoji-pacs']; key = lambda t: sorted(hashlib.md5(x.numpy().tobytes()).digest() for c in t.clients for x in c.train.x)
    for t in (s.iid(seed), s.pooled(), dirichlet(s,.5,2,seed), shards(s,2,3,seed), by_table(s,s.partition(),seed)): assert key(t)==key(s)
    assert [len(c.val) for c in s.iid(seed).clients]==[len(c.val) for c in s.clients]
    assert s.iid(seed).fingerprint()==s.iid(seed).fingerprint()!=s.iid(seed+9).fingerprint()

def test_masks_follow_the_deal(tiny):
    s = tiny['emoji-pacs']; known = {x.numpy().tobytes(): m.numpy().tobytes() for c in s.clients for x,m in zip(c.train.x,c.train.masks)}
    for c in s.iid(0).clients: assert all(known[x.numpy().tobytes()]==m.numpy().tobytes() for x,m in zip(c.train.x,c.train.masks))

# ---- objects before contexts
@pytest.mark.parametrize('name', CONTEXTUAL)
def test_contexts(name, tiny):
    s = tiny[name]; want = CONTEXT_SIZES['tiny']; n, N = want['train'], s.n_classes
    assert s.name==name and s.domains==list(CONTEXTS)[:9] and list(s.unseen)==list(CONTEXTS)[9:] and [c.domain for c in s.clients]==[f'shift {k}' for k in range(7)]
    assert [(len(c.train),len(c.val),len(c.test)) for c in s.clients]==[(n,n//5,want['own']*N)]*7
    for d in s._datas():
        assert d.x.shape[1:]==(3,32,32) and d.masks.shape==(len(d),1,32,32) and d.masks.dtype==torch.uint8 and d.boxes.shape==(len(d),4) and d.boxes.dtype==torch.int64
        assert torch.equal(d.boxes, boxes_of(d.masks)) and bool((d.boxes[:,2:]>d.boxes[:,:2]).all())
    for c in s.clients:
        for d in (c.train, c.val): have = torch.bincount(d.y,minlength=N); assert have.max()-have.min()<=1
    for d in (*s.tests.values(), *s.unseen.values(), *(c.test for c in s.clients)): assert len(set(torch.bincount(d.y,minlength=N).tolist()))==1

def shown_before(d, c, kind, key):
    "Are these the images that `draw_contexts` gives for these contexts? Without their objects they agree wherever no object is."
    empty = draw_contexts(d.y, c, CONTEXT_KINDS[kind]['classes'], 32, 'gentle', *key, empty=True); assert not empty.masks.any() and not empty.boxes.any()
    away = torch.nn.functional.max_pool2d((d.masks>0).float(), 7, 1, 3)==0; away = away.expand_as(d.x)
    return torch.equal(d.x[away], empty.x[away]) and not torch.equal(d.x, empty.x)

@pytest.mark.parametrize('name', CONTEXTUAL)
def test_every_client_shows_what_was_dealt(name, tiny):
    s, kind, rho = tiny[name], name.removesuffix('-95'), .95 if name.endswith('95') else 1.
    for k,c in enumerate(s.clients):
        for part in ('train','val','test'):
            d = getattr(c, part)
            y,where = deal_contexts(k, len(d), s.n_classes, rho, 0, part); usual = where==usual_context(y,k)
            assert torch.equal(y,d.y) and where.max()<SEEN and (rho<1 or usual.all()) and shown_before(d, where, kind, (kind,0,k,part))
            if part=='val': assert not shown_before(d, (where+1)%SEEN, kind, (kind,0,k,part))
    for i,(where,d) in enumerate((s.tests|s.unseen).items()): assert shown_before(d, torch.full_like(d.y,i), kind, (kind,0,where,'test'))

def test_share_of_usual_contexts():
    y,c = deal_contexts(3, 40000, 9, .95); odd = c!=usual_context(y,3); assert abs(odd.float().mean()-.05)<.005
    assert torch.bincount((c-y-3)[odd]%9, minlength=9).tolist()[0]==0 and (torch.bincount((c-y-3)[odd]%9)[1:]>150).all()
    y,c = deal_contexts(3, 900, 9, 0.); assert not (c==usual_context(y,3)).any()
    for other in (dict(data_seed=1), dict(rho=.95), dict(part='val')): assert not torch.equal(deal_contexts(3,900)[0], deal_contexts(3,900,**other)[0])
    assert torch.equal(deal_contexts(3,900,rho=1)[0], deal_contexts(3,900)[0])
    for rho in (-.1, 1.1, float('nan')):
        with pytest.raises(ValueError, match=f'rho is {rho}'): context_vehicles('tiny', rho=rho)
    assert context_animals('tiny', rho=.5).name=='context-animals-50'

def test_contexts_without_objects():
    e = empty_contexts(2, 90); assert e.x.shape==(90,3,32,32) and not e.masks.any() and not e.boxes.any() and torch.bincount(e.y).tolist()==[10]*9
    assert torch.equal(e.x, empty_contexts(2,90).x) and not torch.equal(e.x, empty_contexts(2,90,data_seed=1).x) and empty_contexts(0,20,48,n_classes=10).x.shape==(20,3,48,48)

@pytest.mark.parametrize('name', CONTEXTUAL[::2])
def test_contexts_survive_every_deal(name, tiny):
    s = tiny[name]; box = {x.numpy().tobytes(): b.tolist() for c in s.clients for x,b in zip(c.train.x,c.train.boxes)}
    same(s.to(budget=0), s); same(s.to('cpu'), s); same(unpack(*pack(s)), s)
    for t in (s.iid(0), s.pooled(), uneven(s), dirichlet(s,.5,2), shards(s,2,2), by_table(s,s.partition()), dirichlet(s,.5).iid(1)):
        assert t.domains==s.domains and list(t.unseen)==list(s.unseen)
        for c in t.clients: assert c.train.masks is not None and all(box[x.numpy().tobytes()]==b.tolist() for x,b in zip(c.train.x,c.train.boxes))
    for t in (dirichlet(s,.5,2), shards(s,2,2), by_table(s,s.partition())):
        own = {c.domain: c.test for c in s.clients}; assert all(torch.equal(c.test.x,own[c.domain].x) for c in t.clients)
    held = leave_out(s,'shift 3'); assert len(held.clients)==6 and list(held.unseen)==['sky','forest','sunset','shift 3'] and held.domains==s.domains
    assert torch.equal(held.unseen['shift 3'].x, s.clients[3].test.x) and torch.equal(held.spare['shift 3'].x, s.clients[3].train.x)
    with pytest.raises(ValueError, match='did you mean shift 3'): leave_out(s,'shft 3')

def test_boxes():
    g = generator('boxes'); m = (torch.rand(200,1,9,12,generator=g)>.97).to(torch.uint8)*torch.randint(100,256,(200,1,1,1),generator=g,dtype=torch.uint8); found = boxes_of(m)
    for mask,(l,t,r,b) in zip(m[:,0]>127, found.tolist()):
        at = mask.nonzero(); assert [l,t,r,b]==([int(at[:,1].min()),int(at[:,0].min()),int(at[:,1].max())+1,int(at[:,0].max())+1] if len(at) else [0]*4)
    mv = draw_moves(200, g, 4, True); assert (found==0).all(1).any() and (found>0).any() and boxes_of(m[:0]).shape==(0,4)
    full = torch.zeros_like(m); full[:,:,2:5,3:9] = 255; assert torch.equal(move_boxes(boxes_of(full),mv,(9,12)), boxes_of(move(full,mv)))
    assert not move_boxes(torch.zeros(200,4,dtype=torch.int64),mv,(9,12)).any()

# ---- one's own data
def test_datasets_of_every_kind():
    g = generator('kinds'); u = torch.randint(256,(12,9,9),generator=g,dtype=torch.uint8); y = torch.arange(12)%3
    assert torch.equal(as_data((u,y)).x, as_data((u.numpy(),y.tolist())).x) and torch.equal(as_data((u,y)).x, as_data((u.float()/255,y)).x)
    assert torch.equal(as_data((u[...,None].expand(-1,-1,-1,3),y)).x, as_data((u,y)).x)
    assert torch.equal(as_data(torch.utils.data.TensorDataset(u,y)).x, as_data((u,y)).x)
    pairs = [(Image.fromarray(a.numpy()),int(b)) for a,b in zip(u,y)]; assert torch.equal(as_data(pairs).x, as_data((u,y)).x)
    s = Suite.from_datasets({'a': (pairs,pairs,pairs)}, clients=2); assert [len(c.val) for c in s.clients]==[6,6]

def test_wrong_data():
    x,y = torch.zeros(4,3,8,8,dtype=torch.uint8), torch.tensor([0,1,2,5])
    with pytest.raises(ValueError, match='labels run from 0 to 5'): Suite.from_datasets({'a': ((x,y),(x,y))}, classes='abc')
    with pytest.raises(ValueError, match='4 images but 3 labels'): Suite.from_datasets({'a': ((x,y[:3]),(x,y))}, val=0)
    with pytest.raises(ValueError, match='need 40, it has 4'): Suite.from_datasets({'a': ((x,y),(x,y))}, n=36)
    with pytest.raises(ValueError, match='5 client.* need 5, it has 4'): Suite.from_datasets({'a': ((x,y),(x,y))}, clients=5)
    with pytest.raises(ValueError, match='no client'): Suite.from_datasets({'a': ((x,y),(x,y))}, unseen=['a'])
    with pytest.raises(ValueError, match='others are'): Suite.from_datasets({'a': ((x,y),(x,y)), 'b': ((x[...,:4,:4],y),(x,y))})

# ---- folders
def paint(path, seed=0, size=(12,10), **kw):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0,256,(*size,3),dtype=np.uint8)).save(path, **kw); return path

@pytest.fixture
def tree(tmp_path):
    for i,(d,c) in enumerate((d,c) for d in ('ink','oil') for c in ('cat','dog')):
        for k in range(6): paint(tmp_path/'set'/d/c/f'{k}.png', 10*i+k)
    return tmp_path/'set'

def test_folder(tree):
    s = load_folder(tree, 16, clients={'ink':2}, test=.34)
    assert s.name=='set' and s.classes==['cat','dog'] and [len(t) for t in s.tests.values()]==[4,4] and [c.domain for c in s.clients]==['ink','ink','oil']
    same(s, load_folder(tree, 16, clients={'ink':2}, test=.34)); same(s, load_folder(tree, 16, clients={'ink':2}, test=.34, cache=False))
    assert len(list(cache_dir().glob('folder-set-*')))==1
    paint(tree/'ink'/'cat'/'new.JPG', 99); assert '25 images' in load_folder(tree,16).source
    (tree/'oil'/'cat'/'83. filename-img-0989-jpg').write_bytes(paint(tree.parent/'x.jpg',7).read_bytes()); assert '26 images' in load_folder(tree,16).source

def test_junk_is_ignored(tree):
    for n in ('.DS_Store','ink/Thumbs.db','ink/cat/._0.png','ink/cat/.ipynb_checkpoints/0.png','__MACOSX/ink/cat/0.png','ink/readme.txt','oil/dog/desktop.ini'):
        (tree/n).parent.mkdir(parents=True, exist_ok=True); (tree/n).write_bytes(b'junk')
    assert sum(len(p) for cs in scan(tree).values() for p in cs.values())==24

@pytest.mark.parametrize('raw,says', [(b'','the file is empty'), (b'<!DOCTYPE html><html></html>','a web page'), (b'\n<html>404','a web page'),
    (b'version https://git-lfs.github.com/spec/v1\noid','Git LFS pointer'), (b'\xff\xd8\xff\xe0garbage','it is cut off'), (bytes(range(99)),'cannot identify')])
def test_broken_file_is_named(tree, raw, says):
    (tree/'ink'/'cat'/'bad.jpg').write_bytes(raw)
    with pytest.raises(ValueError, match='bad.jpg is no readable image.*'+says): load_folder(tree,16)
    with pytest.warns(UserWarning, match='1 unreadable left out'): s = load_folder(tree,16,bad='skip')
    assert '24 images; 1 unreadable' in s.source and '1 unreadable' in load_folder(tree,16,bad='skip').source

@pytest.mark.parametrize('kind', ['jpg','png','webp','gif','tif'])
def test_cut_off_image(tmp_path, kind):
    p = paint(tmp_path/f'a.{kind}', size=(64,64)); raw = p.read_bytes(); p.write_bytes(raw[:len(raw)*2//3])
    with pytest.raises(ValueError, match=f'a.{kind} is no readable image'): read_image(p, 16)

def test_modes(tmp_path):
    grey = Image.fromarray(np.full((8,8),100,np.uint8)); clear = Image.new('RGBA',(8,8),(9,9,9,0))
    for name,im,want in (('L.png',grey,100),('P.png',grey.convert('P'),100),('LA.png',clear.convert('LA'),255),('RGBA.png',clear,255),('CMYK.jpg',grey.convert('CMYK'),100),
            ('I16.png',Image.fromarray(np.full((8,8),257*100,np.uint16)),100),('one.png',Image.new('1',(8,8),1),255),('I.tif',Image.fromarray(np.full((8,8),100,np.int32)),100)):
        im.save(tmp_path/name); x,_,_ = read_image(tmp_path/name, 8); assert x.shape==(3,8,8) and x.dtype==np.uint8 and abs(int(x[0,4,4])-want)<=2, name
    p = clear.convert('P'); p.info['transparency'] = p.getpixel((0,0)); p.save(tmp_path/'T.png', transparency=p.getpixel((0,0))); assert read_image(tmp_path/'T.png',8)[0].min()==255
    Image.fromarray(np.zeros((8,8),np.float32)).save(tmp_path/'F.tif')
    with pytest.raises(ValueError, match='floating point'): read_image(tmp_path/'F.tif', 8)

def test_bad_folders(tree, tmp_path):
    with pytest.raises(ValueError, match="there is no folder .*holds \\['set'\\]"): load_folder(tmp_path/'sett')
    with pytest.raises(ValueError, match='is missing too'): load_folder(tmp_path/'a'/'b')
    with pytest.raises(ValueError, match='too deep; try .*set'): load_folder(tmp_path)
    with pytest.raises(ValueError, match='single domain'): load_folder(tree/'ink')
    with pytest.raises(ValueError, match='too high'): load_folder(tree/'ink'/'cat')
    with pytest.raises(ValueError, match='20 training'): load_folder(tree, 16, n=20)
    with pytest.raises(ValueError, match="'strict' or 'skip'"): load_folder(tree, 16, bad='ignore')
    with pytest.raises(ValueError, match='test is 1'): load_folder(tree, 16, test=1)
    with pytest.raises(ValueError, match='size is 2'): load_folder(tree, 2)
    paint(tree/'ink'/'cat'/'sub'/'a.png')
    with pytest.raises(ValueError, match='1 of 25 images do not'): load_folder(tree, 16)
    (tree/'ink'/'cat'/'sub'/'a.png').unlink(); paint(tree/'oil'/'Cat'/'a.png')
    with pytest.raises(ValueError, match="'Cat' and 'cat' differ only in capitals"): load_folder(tree, 16)
    (tree/'oil'/'Cat'/'a.png').unlink(); paint(tree/'oil'/'cow'/'a.png')
    with pytest.raises(ValueError, match="domain 'ink' has no image of class 'cow'"): load_folder(tree, 16)
    paint(tree/'ink'/'cow'/'a.png')
    with pytest.raises(ValueError, match='it needs 2'): load_folder(tree, 16)

def test_copies_are_left_out(tree):
    (tree/'ink'/'dog'/'copy.png').write_bytes((tree/'ink'/'cat'/'0.png').read_bytes())
    with pytest.warns(UserWarning, match='1 exact copies left out, first ink/dog/copy.png'): assert '24 images' in load_folder(tree,16).source
