"What holds for each method of the registry, also for one that is added tomorrow."
import pytest
from feds import cut, fed_of, in_two_parts
from fedskew_nb.app.recipes import METHODS
from fedskew_nb.data.load import load_suite

@pytest.fixture(scope='module')
def three():
    "Three domains with a few images each."
    return cut(load_suite('emoji-pacs', 'tiny'), (16, 24, 40), tests=4)

@pytest.mark.parametrize('name', METHODS)
def test_a_resumed_run_tells_the_same_history(three, name, tmp_path):
    "To the last digit of each loss."
    def fed(**kw): return fed_of(METHODS[name], three, lanes=1, **kw)
    whole = fed(rounds=3)
    whole.fit()
    assert in_two_parts(fed, tmp_path/'c').history == whole.history
