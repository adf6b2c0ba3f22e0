"The commands, as one would type them: exit codes, sentences, kill and resume, files from outside."
import json, os, signal, subprocess, sys, time
from pathlib import Path
import pytest, torch
from PIL import Image
from fedskew_nb.app import cli
from fedskew_nb.app.runs import stored_units

CALL = [sys.executable, '-c', 'import sys; from fedskew_nb.app.cli import main\nif __name__=="__main__": sys.exit(main())']
BASE = ['compare','--suite','emoji-pacs','--size','tiny']

def run(capsys, *argv):
    code = cli.main([str(a) for a in argv]); said = capsys.readouterr()
    return code, said.out, said.err

def images(root, size=20):
    "A folder of own images: two domains, two classes, colours tell the classes apart."
    g = torch.Generator().manual_seed(0)
    for dom in ('day','night'):
        for k,cls in enumerate(('cat','dog')):
            d = root/dom/cls; d.mkdir(parents=True)
            for i in range(12):
                x = torch.randint(0, 120, (size,size,3), generator=g, dtype=torch.uint8); x[...,k] += 100
                Image.fromarray(x.numpy()).save(d/f'{i}.png')
    return root

MINE = '''
from dataclasses import dataclass
from fedskew_nb import Mechanism
@dataclass
class Mine(Mechanism):
    "Small features."
    lam: float = .01
    def loss(self, c, b, out): return dict(small=self.lam*out.feat.square().mean())
'''

# ---- help, list, exit codes

def test_help_of_every_command(capsys):
    assert run(capsys,'--help')[0]==0 and run(capsys)[0]==2
    for c in cli.COMMANDS:
        code,out,_ = run(capsys, c, '--help'); assert code==0 and 'usage: fedskew '+c in out
    assert 'one core each' in run(capsys,'compare','--help')[1]

def test_list(capsys):
    code,out,_ = run(capsys,'list'); assert code==0 and all(n in out for n in ('FedProx','skew-digits','resnet10','fedbn'))
    found = json.loads(run(capsys,'list','--json')[1]); assert set(found)=={'methods','mechanisms','suites','models','houses'}
    assert all(line for t in found.values() for line in t.values())

@pytest.mark.parametrize('argv,word', [
    (['compair'], 'did you mean compare'), (['compare','--methods','FedAvgg'], 'did you mean FedAvg'), (['compare','--methods','FedProx(nu=1)'], 'did you mean mu'),
    (['compare','--methods','FedProx(mu=__import__("os"))'], 'literal'), (['compare','--methods','./none.py:X'], 'there is no file'),
    (['compare','--suite','digit'], 'did you mean skew-digits'), (['compare','--size','quik'], 'did you mean quick'), (['compare','--house','fbn'], 'did you mean fedbn'),
    (['compare','--rounds','0'], 'rounds is 0'), (['compare','--set','local_epochs=0'], 'local_epochs is 0'), (['compare','--set','batch_size=-1'], 'batch_size is -1'),
    (['compare','--set','lr=float("nan")'], 'lr'), (['compare','--set','participation=1.5'], 'participation is 1.5'), (['compare','--set','learning=1'], 'no setting'),
    (['compare','--model','resnet11'], 'no model'), (['compare','--data','nowhere'], 'no such folder'), (['compare','--device','gpu'], 'no device'),
    (['compare','--seeds','x'], '--seeds'), (['compare','--jobs','0'], 'jobs is 0'), (['report','nowhere'], 'holds no comparison'), (['resume','nowhere'], 'holds no comparison'),
])
def test_bad_input(capsys, tmp_path, argv, word):
    code,_,err = run(capsys, *argv, *(['--out',tmp_path/'o'] if argv[0]=='compare' else [])); assert code==2 and word in err and 'Traceback' not in err
    assert not list(tmp_path.rglob('*.json'))

def test_cuda_where_there_is_none(capsys, tmp_path):
    if torch.cuda.is_available(): pytest.skip('this machine has a GPU')
    code,_,err = run(capsys, *BASE, '--device','cuda','--out',tmp_path); assert code==2 and 'this machine has none' in err

def test_unwritable_out(capsys, tmp_path):
    (tmp_path/'file').write_text('x')
    code,_,err = run(capsys, *BASE, '--out', tmp_path/'file'); assert code==2 and 'cannot write into' in err

def test_nan_is_a_failure(capsys, tmp_path):
    code,_,err = run(capsys, *BASE, '--methods','FedAvg','--no-control','--seeds',1,'--set','lr=1e30','--out',tmp_path); assert code==1 and 'not finite' in err

# ---- kill, resume, Ctrl-C

ARGS = [*BASE,'--methods','FedAvg,FedBN','--seeds','1','--rounds','6']

def begin(out, ready):
    "Start a call in another process, wait until `ready`, and hand it over."
    listen = None if os.name=='nt' else lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)      # a shell's background jobs inherit deaf ears
    p = subprocess.Popen([*CALL, *ARGS, '--out', str(out)], env=os.environ|dict(OMP_NUM_THREADS='1'), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listen)
    end = time.time()+240
    while not ready() and p.poll() is None and time.time()<end: time.sleep(.005)
    return p

def test_killed_in_the_middle_and_called_again(capsys, tmp_path):
    runs = tmp_path/'a'/'runs'
    p = begin(tmp_path/'a', lambda: runs.exists() and list(runs.glob('*.json')) and list(runs.glob('[!.]*.safetensors')))
    p.kill(); p.wait()
    assert p.returncode==-signal.SIGKILL and not (tmp_path/'a'/'results.csv').exists()
    done = sum(h is not None for _,h in stored_units(tmp_path/'a')); assert 1<=done<3
    assert run(capsys, *ARGS, '--out', tmp_path/'a')[0]==0 and run(capsys, *ARGS, '--out', tmp_path/'b')[0]==0
    assert (tmp_path/'a'/'results.csv').read_bytes()==(tmp_path/'b'/'results.csv').read_bytes()
    assert (tmp_path/'a'/'report.html').exists() and sorted(p.suffix for p in runs.iterdir())==['.json']*3

@pytest.mark.skipif(os.name=='nt', reason='sends SIGINT')
def test_ctrl_c_says_what_is_saved(tmp_path):
    runs = tmp_path/'runs'
    p = begin(tmp_path, lambda: runs.exists() and list(runs.glob('*.json')))
    p.send_signal(signal.SIGINT); _,err = p.communicate(timeout=120)
    assert p.returncode==130 and 'of 3 runs are saved' in err and 'fedskew resume' in err

def test_resume_and_report(capsys, tmp_path):
    assert run(capsys, *BASE,'--methods','FedAvg','--seeds','0','--no-control','--out',tmp_path)[0]==2
    assert run(capsys, *BASE,'--methods','FedAvg','--seeds','1','--out',tmp_path)[0]==0
    first = (tmp_path/'results.csv').read_bytes(); victim = sorted((tmp_path/'runs').glob('*.json'))[0]; victim.unlink()
    code,out,err = run(capsys,'report',tmp_path); assert code==0 and '1 of 2 runs are missing' in err
    assert run(capsys,'resume',tmp_path)[0]==0 and (tmp_path/'results.csv').read_bytes()==first
    found = json.loads(run(capsys,'report',tmp_path,'--json')[1]); assert found['skew_cost']['emoji-pacs']['n']==1

# ---- from outside the package

def test_own_method_model_and_images_reach_the_report(capsys, tmp_path):
    (tmp_path/'mine.py').write_text(MINE)
    (tmp_path/'net.py').write_text('from fedskew_nb.core.models import small_conv\ndef net(n_classes, size, seed=0, width=4): return small_conv(n_classes, size=size, width=width, seed=seed)\n')
    code,out,err = run(capsys, 'compare','--data',images(tmp_path/'pets'),'--pixels',20,'--methods',f'FedAvg,{tmp_path}/mine.py:Mine(lam=.1)','--model',f'{tmp_path}/net.py:net(width=8)',
                       '--seeds',1,'--rounds',2,'--set','local_epochs=1','--out',tmp_path/'o')
    assert code==0, err
    html = (tmp_path/'o'/'report.html').read_text(); assert all(w in html for w in ('Mine(lam=0.1)','pets','night','Skew cost'))
    assert run(capsys,'resume',tmp_path/'o')[0]==0

# ---- notebooks, bench

def test_learner_copies(capsys, tmp_path):
    code,out,_ = run(capsys,'notebooks',tmp_path/'learn'); assert code==0 and 'Begin with' in out
    nb = json.loads((tmp_path/'learn'/'1_begin'/'01_start.ipynb').read_text(encoding='utf-8'))
    assert not any(c.get('outputs') or c.get('execution_count') for c in nb['cells'])
    (tmp_path/'learn'/'1_begin'/'01_start.ipynb').write_text('mine')
    assert '(1 kept' not in run(capsys,'notebooks',tmp_path/'learn','--force')[1] and (tmp_path/'learn'/'1_begin'/'01_start.ipynb').read_text()!='mine'
    assert run(capsys,'notebooks',cli.notebook_folder())[0]==2

def test_bench(capsys):
    code,out,_ = run(capsys,'bench','--only','W4','--tiny','--pairs',1,'--json')
    assert code==0 and json.loads(out)['items']['W4']['rows']
    assert 'W4, fp32' in run(capsys,'bench','--only','W4','--tiny','--pairs',1)[1]