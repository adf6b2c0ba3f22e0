"Runs on any executor: the same histories, dead workers, wrong settings, what is ours to stop."
import concurrent.futures as cf
import os, pickle, signal, subprocess, sys, threading, time
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
import feds, pytest, torch
from fedskew_nb.analysis.comparison import Comparison
from fedskew_nb.run import executors
from fedskew_nb.run.compare import compare, resume
from fedskew_nb.run.executors import Processes, opened, remotely
from fedskew_nb.run.named import federation_of, named
from fedskew_nb.run.run import Named
from fedskew_nb.run.store import Store
from fedskew_nb.run.train import train
from fedskew_nb.run.tune import tune
from fedskew_nb.engine.device import pick_device
from fedskew_nb.engine.history import History, versions
from feds import run_name, run_of, two

SHORT = dict(progress=False, rounds=2, local_steps=2, eval_every=1, model='small_conv(width=4)')
TINY = SHORT | dict(suite=f'{feds.__file__}:two', control=False, seeds=1)      # a text, to be resumed
RUN = run_of('FedAvg', 'emoji-pacs', 'small_conv(width=4)')

class Here:
    "Works at once, in this process; keeps what it was asked for."
    def __init__(self): self.futures = []
    def submit(self, f, *args):
        future = cf.Future()
        self.futures.append(future)
        self.work(future, f, *args)
        return future
    def work(self, future, f, *args): future.set_result(f(*args))

class Loses(Here):
    "The first `n` calls do not come back."
    def __init__(self, n):
        super().__init__()
        self.n = n
    def work(self, future, f, *args):
        if len(self.futures) > self.n: super().work(future, f, *args)
        else: future.set_exception(MemoryError('killed'))

class Job:
    "No future of Python, as submitit's: it only knows its three methods."
    def __init__(self, call): self.call, self.asked = call, 0
    def done(self):
        self.asked += 1
        return self.asked > 1
    def result(self): return self.call()
    def cancel(self): pass

class Asked:
    def submit(self, f, *args): return Job(lambda: f(*args))

@pytest.fixture(scope='module')
def plain(): return compare('FedAvg,FedBN', **TINY).histories

# ---- equal histories

@pytest.mark.parametrize('make', [Here, Asked, lambda: Loses(1)])
@pytest.mark.filterwarnings('ignore:FedAvg, seed 0, did not come back')
def test_any_executor_tells_the_same(plain, make, tmp_path):
    told = []
    how = dict(executor=make(), out=tmp_path, on_run=lambda done, of, *_: told.append((done, of)))
    assert compare('FedAvg,FedBN', **TINY, **how).histories == plain and told == [(1, 2), (2, 2)]
    assert resume(tmp_path, trust_code=True).histories == plain

def test_threads_of_one_process_take_turns(plain):
    with cf.ThreadPoolExecutor(2) as ex:
        assert compare('FedAvg,FedBN', **TINY, executor=ex).histories == plain

def test_a_process_pool_of_ones_own(plain):
    with cf.ProcessPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,)) as ex:
        assert compare('FedAvg,FedBN', **TINY, executor=ex).histories == plain
        assert ex.submit(len, 'it is still open').result() == 16

def test_tune_is_the_same():
    how = SHORT | dict(suite=two, seeds=100, trials=2, rounds=1)
    ex = Here()
    assert tune('FedAvg', **how, executor=ex) == tune('FedAvg', **how) and ex.futures

def test_what_is_finished_is_not_sent(plain, tmp_path):
    compare('FedAvg', **TINY, out=tmp_path)
    ex = Here()
    assert compare('FedAvg,FedBN', **TINY, out=tmp_path, executor=ex).histories == plain
    assert len(ex.futures) == 1

def test_a_worker_that_does_not_see_the_folder(plain, tmp_path, monkeypatch):
    monkeypatch.setattr(executors, 'seen_here', lambda it, store: Store())
    compare('FedAvg,FedBN', **TINY, out=tmp_path, executor=Here())
    assert len(list((tmp_path/'runs').glob('*.json'))) == 2
    assert resume(tmp_path, trust_code=True).histories == plain

# ---- workers that die

def test_a_run_is_sent_again_three_times_at_most():
    ex = Loses(99)
    says = r'FedAvg, seed 0, did not come back \(MemoryError: killed\), the 4th time, .*: call again'
    with pytest.raises(ChildProcessError, match=says), pytest.warns(UserWarning, match='it is sent again'):
        compare('FedAvg', **TINY, executor=ex)
    assert len(ex.futures) == 4

class Dies(Here):
    "The first worker dies after a round."
    def work(self, future, f, sent):
        if len(self.futures) > 1: return super().work(future, f, sent)
        _, _, _, _, it, store, *_ = pickle.loads(sent)
        federation_of(it, out=store.file(it, 'safetensors')).fit(1)
        future.set_exception(MemoryError('killed'))

@pytest.mark.filterwarnings('ignore:FedAvg, seed 0, did not come back')
def test_it_goes_on_from_its_checkpoint(plain, tmp_path):
    found = compare('FedAvg', **TINY, out=tmp_path, executor=Dies()).histories
    assert found == plain[:1] and not list((tmp_path/'runs').glob('*.safetensors'))

class Broken:
    def submit(self, *_): raise cf.BrokenExecutor('a process was terminated')

def test_an_executor_that_takes_nothing_more():
    with pytest.raises(ChildProcessError, match="Broken takes no run .*: give another, or 'processes:4'"):
        compare('FedAvg', **TINY, executor=Broken())

def test_a_run_that_fails_is_no_worker_that_dies(monkeypatch):
    def fails(*_, **__): raise KeyError('boo')
    monkeypatch.setattr('fedskew_nb.run.train.federation_of', fails)
    ex = Here()
    with pytest.raises(KeyError, match='boo') as e: compare('FedAvg', **TINY, executor=ex)
    assert len(ex.futures) == 1 and 'in fails' in str(e.value.__cause__)

# ---- what is ours to stop

class Later(Here):
    "The first call comes back; the others wait."
    def work(self, future, f, *args):
        if len(self.futures) == 1: super().work(future, f, *args)

def test_ctrl_c_cancels_what_waits():
    def stop(*_): raise KeyboardInterrupt
    ex = Later()
    with pytest.raises(KeyboardInterrupt): compare('FedAvg', **TINY | dict(seeds=3), executor=ex, on_run=stop)
    assert [f.cancelled() for f in ex.futures] == [False, True, True]

# ---- processes

def pid(seconds=0.):
    time.sleep(seconds)
    return os.getpid()

def dies(): os._exit(1)

def is_there(number):
    try: os.kill(number, 0)
    except ProcessLookupError: return False
    return True

@pytest.mark.campaign
@pytest.mark.skipif(os.name == 'nt', reason='asks for processes by their numbers')
def test_processes_outlive_one_of_them_and_end_when_they_should():
    other = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)
    with pytest.raises(KeyboardInterrupt), Processes(2) as ex:
        mine = ex.submit(pid)
        mine.result()
        lives, dead = ex.submit(pid, 1.), ex.submit(dies)
        with pytest.raises(cf.BrokenExecutor): dead.result()
        assert lives.result() == mine.result()
        waits = ex.submit(pid, 60.)
        time.sleep(.1)
        raise KeyboardInterrupt
    with pytest.raises(cf.BrokenExecutor): waits.result(5)
    assert not is_there(mine.result()) and other.poll() is None
    other.communicate(b'\n')

def there(): return os.getpid(), os.getcwd(), os.environ.get('FEDSKEW_ASKED')

@contextmanager
def own():
    "Workers of this test; none waits afterwards."
    try: yield
    finally:
        for waits in [*executors.WAITING]: executors.WAITING.pop(waits).close()

def test_workers_wait_for_the_next_comparison(tmp_path, monkeypatch):
    with own():
        with opened('processes:1') as ex: pid, *_ = ex.submit(there).result()
        with opened('processes:1') as ex:
            assert ex.submit(there).result()[0] == pid
            assert (ex.submit(os.getppid).result() == os.getpid()) != executors.FORKED
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv('FEDSKEW_ASKED', 'again')
        with opened('processes:1') as ex:
            new, *where = ex.submit(there).result()
            assert new != pid and where == [str(tmp_path), 'again']
        with opened('processes:1') as ex:       # it was killed while it waited
            os.kill(new, signal.SIGKILL)
            with pytest.raises(cf.BrokenExecutor): ex.submit(there).result()
            assert ex.submit(there).result()[0] not in (pid, new)

def test_workers_end_where_they_are_no_longer_wanted(monkeypatch):
    class Counts(executors.Processes):
        ended = 0
        def close(self, wait=True):
            Counts.ended += 1
            super().close(wait)
    monkeypatch.setattr(executors, 'Processes', Counts)
    with own():
        for text in ('processes:1', 'processes:1', 'processes:2'):
            with opened(text): assert not executors.WAITING      # no process has begun: no run was sent
        assert Counts.ended == 1 and [n for n, *_ in executors.WAITING] == [2]
        monkeypatch.setitem(sys.modules, 'mine', SimpleNamespace(__file__=__file__))
        with opened('processes:2'): assert Counts.ended == 2     # a module of yours has come
        monkeypatch.setattr(executors, 'IDLE', .01)
        with opened('processes:2'): pass
        end = time.monotonic()+20
        while (executors.WAITING or Counts.ended < 3) and time.monotonic() < end: time.sleep(.005)
        assert not executors.WAITING and Counts.ended == 3
        with pytest.raises(KeyError), opened('processes:2'): raise KeyError
        assert not executors.WAITING and Counts.ended == 4

# ---- one GPU each

def seen(seconds=.2):
    time.sleep(seconds)
    return os.getpid(), os.environ['CUDA_VISIBLE_DEVICES'], torch.cuda.is_initialized()

def test_eight_jobs_on_two_devices(monkeypatch):
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '4,GPU-5')       # two that we pretend: nothing asks CUDA
    with own(), opened('processes:2', per_gpu=1) as ex:
        found = [f.result() for f in [ex.submit(seen) for _ in range(8)]]
        assert len({pid for pid, *_ in found}) == 2 and not any(begun for *_, begun in found)
        assert sorted({pid: gpu for pid, gpu, _ in found}.values()) == ['4', 'GPU-5'] and len(set(found)) == 2

@pytest.mark.campaign
def test_eight_processes_on_two_devices_one_of_which_dies(monkeypatch):
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '4,GPU-5')
    with own(), opened('processes:8', per_gpu=4) as ex:
        found = [f.result() for f in [ex.submit(seen) for _ in range(8)]]
        assert len({pid for pid, *_ in found}) == 8 and not any(begun for *_, begun in found)
        assert sorted(gpu for _, gpu, _ in found) == ['4']*4+['GPU-5']*4
        pid, gpu, _ = found[0]
        os.kill(pid, signal.SIGKILL)
        again = [ex.submit(seen) for _ in range(8)]
        assert sum(isinstance(f.exception(), cf.BrokenExecutor) for f in again) == 1
        found = [f.result() for f in [ex.submit(seen) for _ in range(8)]]
        assert sorted(gpu for _, gpu, _ in found) == ['4']*4+['GPU-5']*4     # in its place a new one

@pytest.mark.parametrize('said, n, per, gpus', [
    ('0,1', 2, 1, ['0', '1']), ('6,7', 3, 2, ['6', '7', '6']), ('3', 1, 5, ['3']), (None, 2, 1, [])])
def test_which_gpu_a_process_sees(said, n, per, gpus, monkeypatch):
    monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
    if said: monkeypatch.setenv('CUDA_VISIBLE_DEVICES', said)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 0)
    assert executors.gpu_of_each(n, per) == gpus

def test_more_processes_than_gpus(monkeypatch):
    monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    with pytest.warns(UserWarning, match=r'8 processes, 2 GPU\(s\): 2 run at a time; per_device=4 lets them'):
        assert executors.gpu_of_each(8, 1) == ['0', '1']
    with pytest.warns(UserWarning, match=r'4 processes, 2 GPU\(s\): 2 run at a time'):
        ex = executors.processes(4, per_gpu=1)
    assert sorted(gpu for _, gpu in ex.pools.queue) == ['0', '1']
    ex.close()
    with pytest.raises(ValueError, match='per_device=2 is for jobs, processes:4 and ray: leave it out'):
        compare('FedAvg', **TINY, device='cuda', executor=Here(), per_device=2)

class Ray:
    "As much of Ray as is used; it keeps what was asked for."
    asked = None
    def is_initialized(self): return True
    def remote(self, **wants):
        self.asked = wants
        return lambda f: SimpleNamespace(remote=lambda *args: self.work(f, *args))
    def work(self, f, *args):
        future = cf.Future()
        future.set_result(f(*args))
        return SimpleNamespace(future=lambda: future)

@pytest.mark.parametrize('device, more, wants', [
    ('cpu', {}, {}), ('cuda', {}, dict(num_gpus=1)), ('cuda', dict(per_device=4), dict(num_gpus=.25))])
def test_ray_is_asked_for_a_gpu(device, more, wants, monkeypatch):
    monkeypatch.setitem(sys.modules, 'ray', ray := Ray())
    monkeypatch.setattr(executors, 'remotely', lambda *_: (None, (ValueError('far away'), '')))
    with pytest.raises(ValueError, match='far away'):
        compare('FedAvg', **TINY, device=device, executor='ray', **more)
    assert ray.asked == dict(max_retries=0) | wants

@pytest.mark.parametrize('said, wants', [({}, dict(gpus_per_node=1)), (dict(SBATCH_GPUS_PER_NODE='2'), {})])
def test_slurm_is_asked_for_a_gpu(said, wants, monkeypatch, tmp_path):
    asked = {}
    job = SimpleNamespace(update_parameters=asked.update)
    monkeypatch.setitem(sys.modules, 'submitit', SimpleNamespace(AutoExecutor=lambda *_, **__: job))
    for k, v in said.items(): monkeypatch.setenv(k, v)
    for per_gpu in (0, 1):
        asked.clear()
        with opened('slurm', tmp_path, per_gpu): pass
        assert asked == dict(timeout_min=24*60) | (wants if per_gpu else {})

# ---- one device

def test_auto_is_decided_before_a_run_has_its_name():
    auto, said = RUN, replace(RUN, device=str(pick_device()))
    assert named([auto])[0].run.device == said.device and run_name(auto) == run_name(said)

def test_a_device_that_only_workers_have(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    with pytest.raises(ValueError, match='this machine has none'): compare('FedAvg', **TINY, device='cuda')
    ex = Here()
    with pytest.raises(ValueError, match='this machine has none'):
        compare('FedAvg', **TINY, device='cuda', executor=ex)
    assert ex.futures                       # it was the worker who refused

def test_no_table_mixes_devices_in_silence(plain):
    here, there = plain[0], History(plain[0].setting | dict(device='cuda', seed=1))
    there.rows, there.rounds = plain[0].rows, plain[0].rounds
    assert any('Trained on cpu and cuda' in n for n in Comparison([here, there]).table('global').notes)
    assert not any('Trained on' in n for n in Comparison([here]).table('global').notes)

# ---- wrong settings, one sentence each

def asked(run=RUN, folder=None, **other):
    "What a worker answers whom other versions ask."
    head = dict(host='head', versions=versions() | other)
    it = run if isinstance(run, Named) else named([run])[0]
    _, (error, _) = remotely(train, it, Store(folder), head)
    return str(error)

@pytest.mark.parametrize('part', ['fedskew_nb', 'torch', 'python'])
def test_a_worker_of_another_version(part):
    host = executors.me()['host']
    assert asked(**{part: '0.0.1'}) == (f'{host} has {part} {versions()[part]}, head has 0.0.1: '
                                        'install the same there')

def test_a_file_that_the_worker_does_not_have(tmp_path):
    file = tmp_path/'mine.py'
    file.write_text('from fedskew_nb import FedProx\nMine = FedProx(mu=.1).named("Mine")\n')
    it, = named([run_of(f'{file}:Mine', 'emoji-pacs')])
    file.unlink()
    assert asked(it) == f'{executors.me()["host"]} has no file {file}: put it there'

def test_models_are_kept_in_a_folder_that_all_see(tmp_path):
    says = asked(replace(RUN, keep_models=True), tmp_path/'gone')
    assert f'does not see {tmp_path/"gone"}, where models are to be kept: give a folder' in says

WRONG = [
    '', 'executorlib:4', 'dusk://head:1', 'dask://head', 'processes', 'processes:0', 'ray:x', 5, object(),
    cf.Executor]

@pytest.mark.parametrize('wrong', WRONG, ids=range(len(WRONG)))
def test_what_is_no_executor(wrong, tmp_path):
    with pytest.raises(ValueError, match='executor is .*: give processes:4'):
        compare('FedAvg', **TINY, executor=wrong, out=tmp_path/'o')
    assert not list(tmp_path.iterdir())

@pytest.mark.parametrize('text, extra', [
    ('dask://head:1', 'dask'), ('ray', 'ray'), ('slurm', 'slurm')])
def test_an_extra_that_is_missing(text, extra, monkeypatch):
    module = dict(dask='distributed', slurm='submitit').get(extra, extra)
    monkeypatch.setitem(sys.modules, module, None)
    says = rf"{module} is not installed: run pip install 'fedskew_nb\[{extra}\]'"
    with pytest.raises(ImportError, match=says), opened(text): pass

# ---- dask and submitit, where they are

MORE = TINY | dict(seeds=2, rounds=3)

@pytest.fixture(scope='module')
def longer(): return compare('FedAvg,FedBN', **MORE).histories

@pytest.mark.campaign
def test_by_its_text(longer, tmp_path):
    assert compare('FedAvg,FedBN', **MORE, executor='processes:2', out=tmp_path).histories == longer

@pytest.mark.campaign
def test_submitit(longer, tmp_path):
    submitit = pytest.importorskip('submitit')
    ex = submitit.AutoExecutor(tmp_path/'jobs', cluster='local')
    assert compare('FedAvg,FedBN', **MORE, executor=ex, out=tmp_path/'o').histories == longer

def strike(client, folder):
    "Kill a dask worker that trains."
    pids = client.run(os.getpid)
    while not list(folder.glob('*.safetensors')): time.sleep(.05)
    busy = next(worker for worker, tasks in client.processing().items() if tasks)
    os.kill(pids[busy], signal.SIGKILL)

@pytest.mark.campaign
@pytest.mark.parametrize('as_text', [True, False])
def test_dask_one_of_whose_workers_is_killed(longer, as_text, tmp_path):
    distributed = pytest.importorskip('distributed')
    here = dict(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with distributed.LocalCluster(**here) as cluster, distributed.Client(cluster) as client:
        killer = threading.Thread(target=strike, args=(client, tmp_path/'runs'))
        killer.start()
        address = cluster.scheduler_address.replace('tcp://', 'dask://')
        found = compare('FedAvg,FedBN', **MORE, executor=address if as_text else client, out=tmp_path)
        killer.join()
        assert found.histories == longer and client.submit(len, 'open').result() == 4
