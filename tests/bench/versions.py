"""Two versions of the code against each other: training W1 to W4, evaluation, and both.

    python tests/bench/versions.py OLD_CHECKOUT [NEW_CHECKOUT] [--pairs 5] [--only W1,W4] [--tiny]

Each version lives in a process of its own, which waits while the other one works. They take turns, the other
one first each time, and every turn gives one ratio new/old. Below 1 the new one is faster. Printed are the
geometric mean of the ratios with its 95 % interval (t distribution of their logarithms), the medians of the
seconds, and whether both ended with the same model, bit for bit. NEW_CHECKOUT is by default the checkout of
this script. Only public names are used, so that old layouts can be asked, too.
"""
import argparse, hashlib, json, math, os, statistics, subprocess, sys, time
from pathlib import Path

# clients, images of each, test images of each, batch, model, its width, what is timed
WORKS = dict(
    W1=(10, 256, 2, 64, 'small_conv', 32, 'train'),
    W2=(4, 64, 2, 64, 'resnet10', 64, 'train'),
    W3=(60, 64, 2, 64, 'small_conv', 32, 'train'),
    W4=(20, 64, 2, 8, 'small_conv', 4, 'train'),
    evaluation=(10, 64, 256, 64, 'small_conv', 32, 'score'),
    evaluation_W2=(4, 64, 64, 64, 'resnet10', 64, 'score'),
    train_and_evaluate=(10, 128, 128, 64, 'small_conv', 32, 'both'))

# ---- in the process of one version

def federation(name, tiny):
    import torch
    import fedskew_nb as fs
    clients, images, tests, batch, model, width, _ = WORKS[name]
    if tiny: clients, images, tests, batch, width = 2, 16, 4, 8, 4
    g = torch.Generator().manual_seed(0)
    def data(n):
        x = torch.randint(0, 256, (n, 3, 32, 32), generator=g, dtype=torch.uint8)
        return fs.Data(x, torch.randint(0, 10, (n,), generator=g))
    cs = [fs.Client(k, f'd{k}', data(images), data(2), data(tests)) for k in range(clients)]
    said = dict(source='random numbers', licence='none', shows='time', cannot='accuracy')
    suite = fs.Suite('noise', list('0123456789'), cs, {c.domain: c.test for c in cs},
                     mean=(.5,)*3, std=(.5,)*3, size='bench', data_seed=0, **said)
    net = getattr(fs, model)(10, width=width, seed=0)
    how = dict(rounds=10**6, batch_size=batch, local_epochs=1, seed=0)
    return fs.Federation(fs.FedAvg, net, suite, device='cpu', **how)

def digest(fed):
    "Of the global model's numbers."
    h = hashlib.sha256()
    for n, v in sorted(fed.model().state_dict().items()):
        h.update(n.encode()+v.contiguous().numpy().tobytes())
    return h.hexdigest()

def worker(tiny):
    "Answers lines `{time|digest} WORK` with a line of JSON each."
    feds = {}
    for line in sys.stdin:
        what, name = line.split()
        if name not in feds: feds[name] = federation(name, tiny)
        fed = feds[name]
        begun = time.perf_counter()
        if what == 'digest': found = digest(fed)
        else:
            if WORKS[name][-1] != 'score': fed.one_round()
            if WORKS[name][-1] != 'train': fed.score()
            found = time.perf_counter()-begun
        print('found '+json.dumps(found), flush=True)

# ---- outside

class Version:
    "A checkout in a process of its own."
    def __init__(self, checkout, tiny):
        self.checkout = Path(checkout).resolve()
        if not (self.checkout/'fedskew_nb').is_dir():
            sys.exit(f'{checkout} holds no fedskew_nb: give a checkout of this project')
        command = [sys.executable, __file__, '--worker', *(['--tiny'] if tiny else [])]
        env = os.environ | dict(PYTHONPATH=str(self.checkout))
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process = subprocess.Popen(command, env=env, cwd=self.checkout, **pipes)
    def ask(self, what, name):
        self.process.stdin.write(f'{what} {name}\n')
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith('found '): return json.loads(line[6:])
        sys.exit(f'the process of {self.checkout} has ended')
    def close(self):
        self.process.stdin.close()
        self.process.wait()

def interval(ratios):
    "Geometric mean, and its 95 % interval."
    from scipy.stats import t
    logs = [math.log(r) for r in ratios]
    mean, n = statistics.fmean(logs), len(logs)
    half = t.ppf(.975, n-1)*statistics.stdev(logs)/n**.5 if n > 1 else math.inf
    return math.exp(mean), math.exp(mean-half), math.exp(mean+half)

def compare(name, old, new, pairs):
    "Turns of both versions at one work."
    seconds = {v: [] for v in (old, new)}
    for v in (old, new): v.ask('time', name)                    # warm-up
    for i in range(pairs):
        for v in ((old, new), (new, old))[i%2]: seconds[v].append(v.ask('time', name))
    same = old.ask('digest', name) == new.ask('digest', name)
    return seconds[old], seconds[new], same

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('old', nargs='?')
    p.add_argument('new', nargs='?', default=Path(__file__).parents[2])
    p.add_argument('--pairs', type=int, default=5)
    p.add_argument('--only', default=','.join(WORKS))
    p.add_argument('--tiny', action='store_true', help='very small, to see that it works')
    p.add_argument('--worker', action='store_true', help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.worker: return worker(o.tiny)
    if not o.old: p.error('which checkout is the old one?')
    old, new = Version(o.old, o.tiny), Version(o.new, o.tiny)
    print('work            new/old  95 % interval   old s   new s  same bits')
    for name in o.only.split(','):
        a, b, same = compare(name, old, new, o.pairs)
        mean, low, high = interval([y/x for x, y in zip(a, b)])
        medians = f'{statistics.median(a):7.3f} {statistics.median(b):7.3f}'
        print(f'{name:14} {mean:8.3f}  {low:.3f} to {high:.3f} {medians}  {same}', flush=True)
    for v in (old, new): v.close()

if __name__ == '__main__': main()
