"""A small vision transformer of timm through the methods: emoji-pacs, 24 rounds of 20 steps, one seed.

The weights are random: timm's `test_vit` (patches of 16 pixels, so four of an image of 32) is made for tests,
and nothing is downloaded. AdamW at 0.001 for every row, not tuned. FedBN is asked, too, and refused. LoRA is
`peft`'s, of rank 4 at the layers of attention; adapters and head federate, all else stays frozen at its
random start. One seed says whether a row has left chance, and nothing of their order.

    python tests/evidence/vit.py               # wants the extra `peft`
"""

import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path
import torch
from fedskew_nb.core.files import write_json
from fedskew_nb.core.net import Net
from fedskew_nb.data.load import load_suite
from fedskew_nb.engine.federation import Federation
from fedskew_nb.nets.pretrained import timm_net
from fedskew_nb.run.recipes import read_method

STORED = Path(__file__).parents[2]/'fedskew_nb'/'assets'/'vit.json'
SETTING = dict(rounds=24, local_steps=20, batch_size=16, lr=.001, adamw=True, momentum=.9)
ROWS = 'Local', 'FedAvg', 'FedBN', 'F2DC', 'RFedDis', 'FedAvg, LoRA'

def lora(net:Net, rank:int=4)->Net:
    "Adapters of low rank in the attention of a timm transformer; they and the head learn."
    from peft import LoraConfig, inject_adapter_in_model
    how = LoraConfig(r=rank, lora_alpha=2*rank, target_modules=['qkv', 'proj'])
    inject_adapter_in_model(how, net.body.trunk)
    for name, v in net.body.named_parameters(): v.requires_grad_('lora_' in name)
    return net

def trained(row:str, suite, **how)->dict:
    "Accuracy and bytes of a row, or why it is refused."
    net = timm_net(suite.n_classes, 'test_vit', size=suite.image_size, seed=0)
    if row.endswith('LoRA'): net = lora(net)
    try: fed = Federation(read_method(row.partition(',')[0]), net, suite, seed=0, **SETTING | how)
    except ValueError as e: return dict(refused=str(e))
    h = fed.fit(progress=False)
    last = [r for r in h.rows if r['round'] == fed.round_no and r['view'] == 'personal' and not r['path']]
    received = {}
    for r in last:
        if r['moment'] != 'post_agg': continue
        right, n = received.get(r['domain'], (0, 0))
        received[r['domain']] = right+r['correct'], n+r['n']
    of = {d: 100*right/n for d, (right, n) in received.items()}
    learns = sum(v.numel() for v in net.parameters() if v.requires_grad)
    return dict(accuracy=of, mean=sum(of.values())/len(of), up=h.rounds[-1]['up'], learns=learns)

def main():
    torch.set_num_threads(1)
    suite = load_suite('emoji-pacs', 'quick', 0)
    found = {row: trained(row, suite) for row in ROWS}
    about = dict(setting=SETTING, net='timm test_vit, random weights', seed=0, chance=100/suite.n_classes,
                 images=sum(map(len, suite.tests.values())), size='quick',
                 versions={p: version(p) for p in ('torch', 'timm', 'peft')},
                 clients=len(suite.clients), device='cpu', date=f'{date.today()}')
    write_json(dict(about=about, rows=found), STORED)
    for row, of in found.items(): print(row, of.get('refused') or f'{of["mean"]:.1f} %, {of["up"]:,} bytes')

if __name__ == '__main__': sys.exit(main())
