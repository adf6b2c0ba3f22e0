"Process the notebooks for the site, without Quarto: what `nbdev_proc_nbs` does after it has looked for Quarto. Writes `_proc/`."
import os, sys
from project import ROOT

def main():
    os.chdir(ROOT)
    import nbdev.doclinks as links
    from nbdev.quarto import refresh_quarto_yml
    from nbdev.serve import proc_nbs
    refresh_quarto_yml()
    links._build_modidx()
    out = proc_nbs(force=True, n_workers=min(os.cpu_count() or 1, 4))
    print(f'{len(list(out.glob("*.ipynb")))} pages processed into {out.name}/')

if __name__ == '__main__': sys.exit(main())
