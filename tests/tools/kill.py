"""Kill -9 a run at random moments, go on from its checkpoint in a new process: does it end like a calm run?

    python tests/tools/kill.py 20 0          # twenty times, moments drawn with seed 0
"""
import os, random, signal, statistics, sys, tempfile, time
from dataclasses import replace
from pathlib import Path

ROUNDS = 10

def federation(out):
    "A run with all that a checkpoint must hold: own tensors, memories of clients and server, scores."
    from fedskew_nb.nets.models import small_conv
    from fedskew_nb.data.load import load_suite
    from fedskew_nb.engine.federation import Federation
    from fedskew_nb.methods.fdse.method import FDSE
    s = load_suite('emoji-pacs', 'tiny')
    clients = [replace(c, train=c.train[:n], test=c.test[:12]) for c, n in zip(s.clients, (16, 24, 40))]
    s = replace(s, clients=clients, tests={d: t[:12] for d, t in s.tests.items()})
    how = dict(rounds=ROUNDS, local_steps=1, batch_size=8, lr=.05, participation=.67, eval_every=1)
    return Federation(FDSE, small_conv(7, size=32, width=4), s, device='cpu', out=out, lanes=2, **how)

def go_on(out, say=lambda r: None):
    "Train to the end, from the checkpoint if there is one."
    fed = federation(out)
    if out.exists(): fed.load(out)
    fed.fit(on_round=lambda f: say(f.round_no))

def in_a_process(out):
    "The same in a process of its own: its number, and a file in which it tells of each round."
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, os.fdopen(read)
    code = 1
    try:
        os.close(read)
        with os.fdopen(write, 'w', buffering=1) as told:
            told.write('go\n')
            go_on(out, lambda r: told.write(f'{r}\n'))
        code = 0
    finally: os._exit(code)

def to_the_end(out):
    "Nobody disturbs it: when it told of each round."
    pid, told = in_a_process(out)
    heard = [time.perf_counter() for _ in told]
    told.close()
    if os.waitpid(pid, 0)[1]: sys.exit('a run failed, see above')
    return heard

def kept(out):
    "What the checkpoint says of the end, without times."
    from fedskew_nb.engine.checkpoint import load_nest
    nest = load_nest(out)
    return nest | dict(history={k: nest['history'][k] for k in ('rows', 'rounds')})

def equal(a, b):
    "Nests of dicts, lists, tensors and numbers, bit for bit, wherever the tensors lie."
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(equal, a, b))
    if hasattr(a, 'dtype') and hasattr(b, 'dtype'): return a.dtype == b.dtype and a.cpu().equal(b.cpu())
    return a == b

def killed(out, at: float, each: float):
    """Kill a run `at` rounds after its start, each of which takes `each` seconds.

    → (what it last said before, what it last said at all, its status)"""
    pid, told = in_a_process(out)
    for _ in range(int(at)+1): last = told.readline().strip()          # 'go', then 1, 2, …
    time.sleep(at % 1*each)
    os.kill(pid, signal.SIGKILL)
    done = [last, *told.read().split()][-1]
    told.close()
    return last, done, os.waitpid(pid, 0)[1]

def main(n: int, seed: int):
    federation(None)                        # everything is imported and warm before the processes branch off
    dice, same = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder)/'whole'
        heard = to_the_end(whole)
        each = statistics.median(b-a for a, b in zip(heard, heard[1:]))      # the first takes longer
        want = kept(whole)
        assert want['round_no'] == ROUNDS and want['memory'] and all(want['own'].values())
        for i in range(n):
            out, at = Path(folder)/f'run{i}', dice.uniform(0, ROUNDS)
            last, done, status = killed(out, at, each)
            to_the_end(out)
            good = equal(kept(out), want)
            same += good
            how = 'killed' if os.WIFSIGNALED(status) else 'had ended'
            print(f'{i+1}: {how} {at % 1:.2f} of a round after {last!r}, last heard {done!r}:',
                  'equal' if good else 'DIFFERENT', flush=True)
    print(f'{same} of {n} ended equal')
    return same == n

if __name__ == '__main__':
    if not hasattr(os, 'fork'): sys.exit('this needs fork')
    os.environ.update(OMP_NUM_THREADS='1', IN_TEST='1')
    sys.exit(not main(*map(int, sys.argv[1:3] or (3, 0))))
