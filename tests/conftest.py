"One thread, no window, and the tools of the project within reach, for every test."
import os, sys
from pathlib import Path

os.environ.update(OMP_NUM_THREADS='1', MPLBACKEND='Agg', IN_TEST='1')
sys.path.insert(0, str(Path(__file__).parent/'tools'))
