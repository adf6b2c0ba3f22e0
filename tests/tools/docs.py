"""The site, into `_docs/`: nbdev's own recipe, with our pages in place of every notebook. Needs Quarto.

python tests/tools/docs.py
"""

import os
import proc
from project import ROOT

def main():
    os.chdir(ROOT)
    import nbdev.quarto as quarto

    (ROOT / 'README.md').touch()  # ours; nbdev would write its own where the first page is newer
    quarto.proc_nbs = proc.process
    quarto.nbdev_docs.__wrapped__()

if __name__ == '__main__':
    main()
