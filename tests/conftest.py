"One thread, no window, and the tools of the project within reach, for every test."
import gc, os, sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS='1', MPLBACKEND='Agg', IN_TEST='1')
sys.path.insert(0, str(Path(__file__).parent/'tools'))

import pytest

def pytest_addoption(parser):
    parser.addoption('--device', default='cpu', help="where the engine's federations are tested: cpu or cuda")

def pytest_configure(config):
    device = os.environ['FEDSKEW_TEST_DEVICE'] = config.getoption('device')
    if device=='cpu': return
    os.environ['CUBLAS_WORKSPACE_CONFIG'] = ':4096:8'            # cuBLAS adds in the same order each time
    import torch
    from fedskew_nb.engine.device import pick_device
    try: pick_device(device)
    except ValueError as e: raise pytest.UsageError(str(e)) from None
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.allow_tf32 = False                      # 32 bits of a convolution are 32 bits

@pytest.hookimpl(wrapper=True)
def pytest_runtestloop():
    "What is imported by now stays: no garbage collection need look through it."
    gc.collect()
    gc.freeze()
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
