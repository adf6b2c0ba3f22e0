"""Why did a run diverge? RFedDis, seed 202 of P3s, once more, with what its steps did.

    python tests/evidence/diverged.py          # writes diverged.json: a line a round

Of each round: the loss, the largest norm of a step's gradient (of the body, of each head), the
largest evidence. On another processor the digits differ: so may the round in which it breaks, if it does."""

import os, sys, time
os.environ.setdefault('OMP_NUM_THREADS', '1')
import torch
import evidence, plan, work
from fedskew_nb.methods.rfeddis import method as rfeddis
from fedskew_nb.run.named import federation_of

OUT = plan.HERE/'diverged.json'
PARTS = dict(body=('body', 'neck', 'pool'), psi_G=('head.psi_G',), psi_L=('head.psi_L',))

def main(seed:int=202):
    torch.set_num_threads(1)
    s = next(s for s in plan.read_plan() if s.id == 'P3s')
    row = next(r for r in s.rows if r.name == 'RFedDis')
    fed = federation_of(work.run_of(s, row, seed, s.record['lr'], {}, False, stack=False))
    names, seen = {}, dict(evidence=0.) | dict.fromkeys(PARTS, 0.)
    plain, step = rfeddis.evidence, torch.optim.SGD.step
    def watched(z):
        e = plain(z)
        seen['evidence'] = max(seen['evidence'], float(e.detach().max()))
        return e
    def stepping(opt, *args):
        names.update({id(p): n for n, p in fed.worker.net.named_parameters()})
        for part, begins in PARTS.items():
            of = [p.grad for g in opt.param_groups for p in g['params']
                  if p.grad is not None and names.get(id(p), '').startswith(begins)]
            if of: seen[part] = max(seen[part], float(torch.cat([g.flatten() for g in of]).norm()))
        return step(opt, *args)
    rfeddis.evidence, torch.optim.SGD.step, rounds = watched, stepping, []
    def told(fed):
        rounds.append(dict(round=fed.round_no, loss=fed.history.rounds[-1]['loss']) | seen)
        seen.update(dict.fromkeys(seen, 0.))
    fed.fit(on_round=told, progress=False)
    d = fed.history.df
    here = d[(d['view'] == 'personal') & (d.moment == 'post_agg') & (d.path == '')]
    checks = (100*here.correct/here.n).groupby(here['round']).mean().round(2).to_dict()
    about = dict(seed=seed, on=work.machine(), when=time.strftime('%Y-%m-%d'), checks=checks)
    rounds = [{k: round(v, 4) for k, v in r.items()} for r in rounds]
    evidence.write_text(OUT, about | dict(rounds=rounds), 0)

if __name__ == '__main__': main(*map(int, sys.argv[1:]))
