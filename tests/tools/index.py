"""Write what the package is asked about its methods: after runs are stored, or a method is new or changed.

    python tests/tools/index.py

fedskew_nb/assets/evidence.json is the index of all that the stored runs give, facts.json what each method
shows when it is tried.
"""
import json
from dataclasses import asdict
from importlib.resources import files
from fedskew_nb.analysis.index import cells_of, index_text, verdict_files
from fedskew_nb.tools.choose import candidates, seen_of

def facts_text(facts):
    "A line for each method."
    lines = (f'{json.dumps(n, ensure_ascii=False)}: {json.dumps(asdict(f))}' for n, f in facts.items())
    return '{'+',\n'.join(lines)+'}\n'

def main():
    cells = [c for name in verdict_files() for c in cells_of(name)]
    to = files('fedskew_nb')/'assets'
    (to/'evidence.json').write_text(index_text(cells), encoding='utf-8')
    facts = {c.name: seen_of(c.name) for c in candidates()}
    (to/'facts.json').write_text(facts_text(facts), encoding='utf-8')
    print(f'{to}: {len(cells)} cells, {len(facts)} methods')

if __name__ == '__main__': main()
