"Train every pair of methods on noise and store what came of it: the table of the page 7_app/02_combine."
import json
from datetime import date
from importlib.resources import files
import torch
from fedskew_nb.app.combine import PAIRS, all_pairs

if __name__ == '__main__':
    torch.set_num_threads(1)
    found = dict(date=str(date.today()), torch=torch.__version__, pairs=all_pairs())
    path = files('fedskew_nb')/'assets'/'runs'/PAIRS
    path.write_text(json.dumps(found, indent=0, ensure_ascii=False)+'\n')
    print(path)
