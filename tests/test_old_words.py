"What 0.1 called house and rungs: files are read for good, arguments and options until 0.3, with a word."

import json
import pytest
from fedskew_nb.core.names import in_words_of_today
from fedskew_nb.data.load import load_suite
from fedskew_nb.deploy.order import Job
from fedskew_nb.engine.checkpoint import load_nest, to_bytes
from fedskew_nb.engine.federation import Federation
from fedskew_nb.engine.history import History, read_history
from fedskew_nb.engine.setting import setting_for
from fedskew_nb.methods.baselines.average import FedAvg
from fedskew_nb.nets.models import small_conv
from fedskew_nb.run.compare import adopt, compare
from fedskew_nb.run.rates import tuned_elsewhere
from fedskew_nb.run.store import read_request
from fedskew_nb.run.recipes import set_values
from fedskew_nb.tools.cli import main

HOW = dict(methods='FedAvg', suite='skew-digits', size='tiny', seeds=1)
HOW |= dict(rounds=2, local_steps=1, control=False)
BACK = dict(protocol='house', checkpoints='rungs')

def test_an_argument_may_have_its_old_name_and_says_so():
    with pytest.warns(FutureWarning, match='house is protocol since 0.2, and the old name ends with 0.3'):
        old = setting_for(FedAvg, house='fdse')
    assert old == setting_for(FedAvg, 'fdse')
    suite = load_suite('skew-digits', size='tiny')
    net = small_conv(suite.n_classes, size=suite.image_size)
    with pytest.warns(FutureWarning, match='rungs is checkpoints'):
        fed = Federation(FedAvg, net, suite, rounds=2, rungs=[1])
    assert fed.setting.checkpoints == [1]

def test_a_comparison_with_old_names_is_the_one_with_new(tmp_path):
    with pytest.warns(FutureWarning): compare(**HOW, rungs=(1,), out=tmp_path)
    before = [(p, p.stat().st_mtime_ns) for p in (tmp_path/'runs').iterdir()]
    compare(**HOW, checkpoints=(1,), out=tmp_path)
    assert len(before) == 1 and [(p, p.stat().st_mtime_ns) for p in (tmp_path/'runs').iterdir()] == before

def test_both_names_at_once_are_refused():
    with pytest.raises(ValueError, match='house and protocol are the same: leave house out'):
        in_words_of_today(dict(house='fdse', protocol='fdse'))

@pytest.mark.parametrize('typed', [['--house', 'fbn'], ['--house=fbn']])
def test_an_option_may_have_its_old_name_and_says_so(typed, capsys):
    assert main(['compare', *typed]) == 2
    said = capsys.readouterr().err
    assert '--house is --protocol since 0.2, and the old name ends with 0.3' in said
    assert "there is no training protocol 'fbn': did you mean fedbn" in said

def test_a_stored_run_has_the_words_of_today():
    h = History(dict(method='FedAvg', suite='toy', seed=0, rounds=4, house='fdse', rungs=[2]))
    assert (h.setting['protocol'], h.setting['checkpoints']) == ('fdse', [2])
    assert not {'house', 'rungs'} & h.setting.keys()

def test_rates_that_were_tuned_at_an_old_house():
    assert tuned_elsewhere(dict(lr=.1, house='f2dc'), {}, 'f2dc', 'x') == {}
    assert 'batch_size' in tuned_elsewhere(dict(lr=.1, house='f2dc'), {}, 'fedbn', 'x')

def aged(d:dict)->dict: return {BACK.get(k, k): v for k, v in d.items()}

def test_a_folder_of_before_is_read_and_adopted(tmp_path):
    "Its words are the old ones, its names are others: nothing is trained again."
    compare(**HOW, checkpoints=(1,), out=tmp_path)
    run, = (tmp_path/'runs').glob('*.json')
    d, asked = json.loads(run.read_text()), json.loads((tmp_path/'compare.json').read_text())
    other = run.with_name(run.stem.rpartition('_')[0]+'_123456789abc.json')
    other.write_text(json.dumps(d | dict(setting=aged(d['setting']))))
    run.unlink()
    asked |= dict(setting=aged(asked['setting']), house=None)
    (tmp_path/'compare.json').write_text(json.dumps(asked))
    assert read_request(tmp_path).given()['checkpoints'] == [1]
    assert adopt(tmp_path) == ({other.stem: run.stem}, {})
    assert read_history(run).rows == d['rows'] and read_history(run).setting == d['setting']

def test_a_run_that_may_be_another_is_not_adopted(tmp_path):
    "Of a method whose file may have changed, of another device, of names that today's code gave."
    file = tmp_path/'mine.py'
    file.write_text('from fedskew_nb import Mechanism, Method\n'
                    'class M(Mechanism):\n'
                    '    def loss(self, c, b, out): return dict(m=out.logits.square().mean())\n'
                    "Mine = Method('Mine', M())\n")
    out = tmp_path/'out'
    compare(**HOW | dict(methods=f'FedAvg,Local,{file}:Mine'), out=out)
    asked = (out/'compare.json').read_text()
    for run in (out/'runs').glob('*.json'):
        d = json.loads(run.read_text())
        if d['setting']['method'] == 'FedAvg': d['setting']['device'] = 'cuda'
        ending = 'f'*(16 if d['setting']['method'] == 'Local' else 12)
        run.with_name(f'{run.stem.rpartition("_")[0]}_{ending}.json').write_text(json.dumps(d))
        run.unlink()
    moved, stay = adopt(out, trust_code=True)
    assert moved == {} and {k.split('_')[1]: v for k, v in stay.items()} == dict(
        FedAvg='other device', Mine=f'{file} may have changed since')
    (out/'compare.json').write_text(asked)
    with pytest.warns(UserWarning, match='`fedskew adopt .*out` gives those of 0.1 that it can tell'):
        compare(**HOW | dict(methods=f'FedAvg,Local,{file}:Mine'), out=out)

def test_a_checkpoint_of_before_goes_on(tmp_path):
    suite, out = load_suite('skew-digits', size='tiny'), tmp_path/'c.safetensors'
    net = small_conv(suite.n_classes, size=suite.image_size)
    how = dict(rounds=2, local_steps=1, checkpoints=[1])
    fed = Federation(FedAvg, net, suite, 'fdse', out=out, **how)
    fed.fit(1, progress=False)
    fed.save(out)
    nest = load_nest(out)
    out.write_bytes(to_bytes(nest | dict(setting=aged(nest['setting']))))
    again = Federation(FedAvg, net, suite, 'fdse', out=out, **how)
    again.load(out)
    assert again.round_no == 1

def test_each_door_takes_an_old_word_or_has_no_new_one(capsys):
    with pytest.warns(FutureWarning, match='rungs is checkpoints'):
        assert set_values(['rungs=[1]'], ['checkpoints']) == dict(checkpoints=[1])
    with pytest.warns(FutureWarning, match='house is protocol'):
        assert Job('FedAvg', setting=dict(house='fdse')).setting == dict(protocol='fdse')
    assert main(['methods', '--house', 'f2dc']) == 2
    assert '--protocol' not in capsys.readouterr().err

def federation(method, protocol, **more):
    suite = load_suite('skew-digits', size='tiny')
    return Federation(method, small_conv(suite.n_classes, size=suite.image_size), suite, protocol, **more)

@pytest.mark.parametrize('call', [setting_for, federation])
def test_two_protocols_are_refused(call):
    with pytest.raises(ValueError, match='house and protocol are the same'):
        call(FedAvg, 'f2dc', house='fdse')
