"""One run of the plan, in its own process, on one core: `python work.py REPOSITORY JOB.json ANSWER.json`.

Without ANSWER.json it makes many: the first job only names the core, and pairs of files come on stdin."""

import json, os, platform, sys, time, traceback, warnings
from functools import partial
from pathlib import Path

def one_core(which:int|None):
    "Stay on one core, where the system can do so."
    for k in ('OMP_NUM_THREADS', 'MKL_NUM_THREADS', 'OPENBLAS_NUM_THREADS'): os.environ[k] = '1'
    if which is not None and hasattr(os, 'sched_setaffinity'): os.sched_setaffinity(0, {which})

def measure_of(name:str):
    "Further numbers of a trained model."
    if not name: return None
    if name == 'f2dc':
        from fedskew_nb.methods.f2dc.probes import f2dc_measures
        return f2dc_measures
    if name == 'fedddl':
        from fedskew_nb.methods.fedddl.probes import ddl_measures
        return ddl_measures
    if name == 'unseen':
        from fedskew_nb.methods.fdse.unseen import unseen_facts
        return unseen_facts
    raise ValueError(f'there is no measure {name!r}')

def run_of(s, row, seed:int, lr:float, own:dict, pilot:bool, **changes):
    "A Run of the package."
    import sets
    from fedskew_nb.run.recipes import method_recipe, model_recipe
    from fedskew_nb.run.run import Run
    from fedskew_nb.core.names import Recipe
    data = json.dumps(s.record.get('data', {}) | dict(row.data), sort_keys=True)
    make = partial(sets.build, suite=s.record['suite'], pilot=pilot, data=data)
    model = row.model or s.record['model']
    setting = s.record['setting'] | dict(row.setting) | dict(lr=lr) | changes
    if pilot: setting |= dict(answers=False)
    return Run(method_recipe(row.method), Recipe(s.id, make), model_recipe(sets.model(model)), row.deal, seed,
               protocol=s.record.get('house'), device=s.record.get('device', 'cpu'), setting=setting, own=own,
               trust=row.trust and not pilot)

def machine()->dict:
    "What a run was made on."
    import torch
    info = Path('/proc/cpuinfo')
    lines = info.read_text().splitlines() if info.exists() else []
    names = [l.partition(':')[2].strip() for l in lines if l.startswith('model name')]
    cpu = names[0] if names else platform.processor()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ''
    return dict(cpu=cpu, gpu=gpu, torch=torch.__version__, python=platform.python_version())

def made(job:dict, folder:Path)->dict:
    "The run of a job: its history, seconds of its process, its machine."
    import plan
    from fedskew_nb.run.train import train_run
    s = next(s for s in plan.read_plan(Path(job['plan'])) if s.id == job['set'])
    row = next(r for r in s.rows if r.name == job['row'])
    run = run_of(s, row, job['seed'], job['lr'], dict(job['own']), job['pilot'])
    before = time.process_time()
    measure = None if job['pilot'] else measure_of(row.measure)
    h = train_run(run, folder=folder, measure=measure, keep_stopped=True, progress=False)
    about = dict(seconds=round(time.process_time()-before, 1), on=machine(), when=time.strftime('%Y-%m-%d'))
    return dict(history=h.as_dict(), score=score_of(h, row), scores=scores_of(h)) | about

def score_of(h, row)->float:
    "What a pilot is judged by."
    from fedskew_nb.engine.reading import Where
    if 'stopped' in h.measures: return 0.
    return h.summary(Where(row.view if row.deal == 'skew' else 'global', row.moment))['AVG']

def scores_of(h)->dict: # {view moment: AVG}; {} where it stopped
    "The score of record wherever it was scored."
    from fedskew_nb.engine.reading import Where
    places = {} if 'stopped' in h.measures else dict.fromkeys((w.view, w.moment) for w in h.views())
    return {f'{view} {moment}': round(h.summary(Where(view, moment))['AVG'], 3) for view, moment in places}

def answer_to(asked:Path, answer:Path):
    "Make the run of a job's file."
    folder = answer.with_suffix('')          # checkpoints
    folder.mkdir(parents=True, exist_ok=True)
    part = answer.with_name(f'{answer.name}.part')
    part.write_text(json.dumps(made(json.loads(asked.read_text()), folder)))
    os.replace(part, answer)

def many():
    "One job after the other, as their files are named on stdin; a line for each, so that the next is sent."
    for line in sys.stdin:
        asked, answer = map(Path, json.loads(line))
        try: answer_to(asked, answer)
        except Exception: traceback.print_exc()
        print('done', file=sys.__stdout__, flush=True)

if __name__ == '__main__':
    repository, *files = sys.argv[1:]
    job = json.loads(Path(files[0]).read_text())
    one_core(job.get('core'))
    sys.path[:0] = [repository, str(Path(repository)/'tests'/'evidence')]
    warnings.simplefilter('default')
    if files[1:]: answer_to(*map(Path, files))
    else: many()
