"""What does privacy cost under skew? PACS, a head on frozen maps of EfficientNet-Lite0, a client a domain.

Rows: FedAvg, FedProx, Ditto and training alone with a linear head; FedAvg and FedPer with 32 channels
before it, for FedPer keeps its head, and a linear head is all that there is. Each at ε without end (no
noise, no clipping), 8 and 3 for the whole run, δ a tenth of one over the pictures of a client. The rate is
chosen for each row and ε on the tuning fold, by the same trials, and what those cost is not in ε (Ditto's
λ is .1: with 1 a rate above 2 diverges). The last set is a
whole small net on emoji-pacs. Noise comes from the operating system, so a second run gives other digits:
seeds deal pictures and first models.

    python tests/evidence/privacy.py           # all that is missing; killed, it goes on
"""

import json, sys, time
from dataclasses import replace
from datetime import date
from pathlib import Path
import numpy as np, torch
from torch import nn
sys.path.insert(0, str(Path(__file__).parent))
from photographs import beside, dealt, photographs, pictures, weights_file
from fedskew_nb.core.files import write_json
from fedskew_nb.core.net import Net
from fedskew_nb.core.seeding import seeded
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.federation import Federation
from fedskew_nb.engine.private import privacy
from fedskew_nb.nets.models import small_conv
from fedskew_nb.nets.pretrained import group_norms
from fedskew_nb.run.recipes import read_method

STORED = Path(__file__).parents[2]/'fedskew_nb'/'assets'/'privacy.json'
RATES = .3, 1., 3., 10., 30., 100.
PIXELS, PILOTS, SEEDS, EPSILONS = 128, (100, 101), (200, 201, 202, 203, 204), (None, 8., 3.)
ALL = dict(photo=1190, art_painting=1450, cartoon=1650, sketch=2800)     # nearly all that trains
SETS = {    # net, pictures a client, setting, rows, rates
    'linear head, all pictures': ('linear', ALL, dict(rounds=20, local_steps=10, batch_size=64),
                                  ('FedAvg', 'FedProx', 'Ditto(lam=0.1)', 'Local'), RATES),
    'linear head, 100 pictures': ('linear', 100, dict(rounds=20, local_steps=10, batch_size=16),
                                  ('FedAvg', 'Local'), RATES),
    '32 channels and a head, all pictures': ('channels', ALL, dict(rounds=20, local_steps=10, batch_size=64),
                                             ('FedAvg', 'FedPer'), (.3, 1., 3.)),
    '32 channels and a head, 100 pictures': ('channels', 100, dict(rounds=20, local_steps=10, batch_size=16),
                                             ('FedAvg',), (.3, 1., 3.)),
    'emoji-pacs, a whole net, 192 pictures': ('whole', 'tiny', dict(rounds=20, local_steps=10, batch_size=16),
                                              ('FedAvg',), (.1,))}      # no choice of rates

# ---- maps: a picture is its number, and the frozen part a table ----
def maps()->torch.Tensor: # (N, 1280), each of length 1
    "What EfficientNet-Lite0 says of every picture, mean over its places."
    file = beside('evidence')/'cache'/f'pacs-{PIXELS}-lite0.npy'
    if not file.exists():
        from fedskew_nb.nets.pretrained import timm_net
        net = timm_net(7, 'tf_efficientnet_lite0', weights=str(weights_file()), size=PIXELS).eval()
        x, found = pictures('pacs', PIXELS)[0], []
        net.mean, net.std = net.expects['mean'], net.expects['std']
        with torch.no_grad():
            for part in torch.from_numpy(x).split(64): found.append(net.see(part).feat)
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, torch.cat(found).numpy())
    return nn.functional.normalize(torch.from_numpy(np.load(file)), dim=1)

def as_number(i)->torch.Tensor: # (N,) → (N, 3, 8, 8) uint8
    i = torch.as_tensor(i)
    digits = torch.stack([i % 128, i//128 % 128, torch.zeros_like(i)], 1)
    return digits.byte()[:, :, None, None].expand(-1, -1, 8, 8).contiguous()

TABLE = []

class Table(nn.Module):
    "The map of the picture with this number."
    def forward(self, x):
        digits = ((x[:, :2, 0, 0]*.25+.5)*255).round().long()
        return TABLE[0][(digits[:, 0]+128*digits[:, 1]).clamp(0, len(TABLE[0])-1)][:, :, None, None]

def net_of(kind:str, seed:int)->Net:
    if kind == 'whole': return group_norms(small_conv(7, size=32, width=8, seed=seed))
    with seeded(seed):
        if kind == 'linear':
            net = Net(Table(), nn.Flatten(), nn.Linear(1280, 7))
            nn.init.zeros_(net.head.weight)
        else:
            channels = nn.Sequential(nn.Flatten(), nn.Linear(1280, 32), nn.ReLU())
            net = Net(Table(), channels, nn.Linear(32, 7))
    net.image_size = 8
    return net

def suite_of(seed:int, pilot:bool, each):
    "The suite of the plan's photographs, its pictures as numbers; or, of a size by name, the embedded one."
    if isinstance(each, str): return load_suite('emoji-pacs', each, seed)
    x = dealt('pacs', PIXELS)[0]
    number = {im.tobytes(): i for i, im in reversed(list(enumerate(x)))}
    s = photographs(seed, pilot, 'pacs', PIXELS, 1, each)
    made = {}
    def told(d):
        if id(d) not in made:
            numbers = [number[im.tobytes()] for im in d.x.numpy()]
            made[id(d)] = replace(d, x=as_number(numbers))
        return made[id(d)]
    clients = [replace(c, train=told(c.train), val=told(c.val), test=told(c.test)) for c in s.clients]
    return replace(s, clients=clients, tests={d: told(t) for d, t in s.tests.items()})

# ---- runs ----
def accuracy(kind, suite, how, method, epsilon, lr, seed)->tuple: # (percent by domain, what was spent)
    "Each client's model on the tests of its own domain, after the last round."
    noise = dict(epsilon=epsilon, clip=1.) if epsilon else {}
    fed = Federation(read_method(method), net_of(kind, seed), suite, seed=seed, lr=lr, device='cpu', lanes=1,
                     stack=False, momentum=0., weight_decay=0., eval_every=how['rounds'], **how, **noise)
    df = fed.fit(progress=False).df
    own = df[(df.view == 'personal') & (df.moment == 'post_agg') & (df['round'] == how['rounds'])]
    spent = privacy(fed) if epsilon else None
    return dict(zip(own.domain, own.acc.round(2))), spent

def main():
    TABLE.append(maps())
    stored = json.loads(STORED.read_text()) if STORED.exists() else dict(sets={}, chance={})
    held = {}
    def suite(*key):
        if key not in held: held[key] = suite_of(key[0], key[1], SETS[key[2]][1])
        return held[key]
    for name, (kind, _, how, rows, rates) in SETS.items():
        here = stored['sets'].setdefault(name, dict(setting=how, net=kind, clip=1., rates=rates, rows=[]))
        for method in rows:
            steps = EPSILONS[:1] if method == 'Local' else EPSILONS[::2] if kind == 'whole' else EPSILONS
            for epsilon in steps:                # Local sends nothing
                if any((r['method'], r['epsilon']) == (method, epsilon) for r in here['rows']): continue
                begun = time.time()
                def mean(lr):
                    def one(s): return accuracy(kind, suite(s, True, name), how, method, epsilon, lr, s)[0]
                    try: return float(np.mean([list(one(s).values()) for s in PILOTS]))
                    except FloatingPointError: return 0.          # it diverged
                trials = {lr: round(mean(lr), 2) for lr in rates} if len(rates) > 1 else dict.fromkeys(rates)
                lr = max(rates, key=lambda lr: trials[lr] or 0.)
                runs, spent = {}, None
                for s in SEEDS:
                    s_suite = suite(s, False, name)
                    runs[s], spent = accuracy(kind, s_suite, how, method, epsilon, lr, s)
                    stored['chance'][name] = round(s_suite.chance, 2)
                row = dict(method=method, epsilon=epsilon, lr=lr, trials=trials, runs=runs)
                if spent is not None: row['spent'] = spent.round(6).to_dict('index')
                here['rows'].append(row)
                stored |= dict(seeds=SEEDS, pilots=PILOTS, device='cpu', torch=torch.__version__,
                               date=str(date.today()), suite='PACS, 128 pixels',
                               model='EfficientNet-Lite0, frozen')
                write_json(stored, STORED)
                every = [np.mean(list(r.values())) for r in runs.values()]
                took = time.time()-begun
                got = f'{np.mean(every):.1f} ± {np.std(every):.1f}'
                print(f'{name} | {method} ε {epsilon}: lr {lr:g}, {got}, {took:.0f} s', flush=True)

if __name__ == '__main__': main()
