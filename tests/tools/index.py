"""Write fedskew_nb/assets/evidence.json, the index of all that the stored runs give: after runs are stored.

    python tests/tools/index.py
"""
from importlib.resources import files
from fedskew_nb.analysis.index import cells_of, index_text, verdict_files

def main():
    cells = [c for name in verdict_files() for c in cells_of(name)]
    path = files('fedskew_nb')/'assets'/'evidence.json'
    path.write_text(index_text(cells), encoding='utf-8')
    print(f'{path}: {len(cells)} cells')

if __name__ == '__main__': main()
