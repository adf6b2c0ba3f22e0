"One thread, no window, and the tools of the project within reach, for every test."
import gc, os, signal, sys, threading
from pathlib import Path

os.environ.update(OMP_NUM_THREADS='1', OMP_WAIT_POLICY='passive', MPLBACKEND='Agg', IN_TEST='1')
sys.path[:0] = [str(Path(__file__).parent/room) for room in ('tools', 'bench')]

import pytest

def pytest_addoption(parser):
    parser.addoption('--device', default='cpu', help="where the engine's federations are tested: cpu or cuda")
    parser.addoption('--halves', action='store_true', help='collect once, then test in two forked processes')

def pytest_configure(config):
    gc.disable()                                                 # what is imported and collected stays
    config.pluginmanager.set_blocked('logging-plugin')           # no test reads logs; torch has many loggers
    if config.getoption('halves'):
        from halves import Halves
        if config.getoption('numprocesses', None): raise pytest.UsageError('--halves or -n: one of the two')
        config.pluginmanager.register(Halves())
    device = os.environ['FEDSKEW_TEST_DEVICE'] = config.getoption('device')
    if device=='cpu': return
    os.environ['CUBLAS_WORKSPACE_CONFIG'] = ':4096:8'            # cuBLAS adds in the same order each time
    import torch
    from fedskew_nb.engine.device import pick_device
    try: pick_device(device)
    except ValueError as e: raise pytest.UsageError(str(e)) from None
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.allow_tf32 = False                      # 32 bits of a convolution are 32 bits

def pytest_collection_modifyitems(items):
    "The slow ones begin first, so that no worker waits for one of them at the end."
    items.sort(key=lambda item: item.get_closest_marker('slow') is None)

@pytest.hookimpl(wrapper=True)
def pytest_runtestloop():
    "What is imported by now stays: no garbage collection need look through it, nor so often."
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
    gc.enable()
    try: return (yield)
    finally: gc.unfreeze()

@pytest.fixture(scope='module')
def suite():
    "Four domains, one client each, of different sizes; 12 test images each."
    from feds import cut
    from fedskew_nb.data.load import load_suite
    return cut(load_suite('emoji-pacs', 'tiny'), (16, 24, 40, 64), tests=12)

@pytest.fixture(scope='module')
def pair(suite):
    "The first two of them, with four test images each."
    from feds import first
    return first(suite, 2, tests=4)

@pytest.fixture
def ctrl_c():
    "Presses Ctrl-C, from any thread; it raises, also where tests run in the background and are deaf to it."
    main = threading.main_thread()
    if threading.current_thread() is not main or not hasattr(signal, 'pthread_kill'):
        pytest.skip('signals reach the main thread only')
    was = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.pthread_kill(main.ident, signal.SIGINT)
    signal.signal(signal.SIGINT, was)

@pytest.fixture
def unsaved(monkeypatch):
    "Figures are made, and not written as PNG and PDF: for tests that read none."
    from matplotlib.figure import Figure
    monkeypatch.setattr(Figure, 'savefig', lambda fig, file, **how: file.write(b'a figure'))
