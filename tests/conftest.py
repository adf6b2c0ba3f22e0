"One thread, no window, and the tools of the project within reach, for every test."
import os, sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS='1', MPLBACKEND='Agg', IN_TEST='1')
sys.path.insert(0, str(Path(__file__).parent/'tools'))

from dataclasses import replace
import pytest

@pytest.fixture(scope='module')
def suite():
    "Four domains, one client each, of different sizes; 12 test images each."
    from fedskew_nb.data.load import load_suite
    s = load_suite('emoji-pacs', 'tiny')
    return replace(s, clients=[replace(c, train=c.train[:n], test=c.test[:12]) for c,n in zip(s.clients, (16,24,40,64))], tests={d:t[:12] for d,t in s.tests.items()})

