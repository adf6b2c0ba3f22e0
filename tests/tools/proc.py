"""Process the notebooks for the site, as nbdev does after it has looked for Quarto. Writes `_proc/`.

Runs the cells that export, import or show documentation, so a page that the site could not be built from
fails here; the others are processed all the same.
"""

import os, sys, warnings
from project import NBS, ROOT, notebooks

def one(job):
    "Process one page, and say what is wrong with it instead of stopping everything."
    import nbdev.serve_drv as drv
    from IPython.core.displayhook import DisplayHook

    DisplayHook.flush = lambda self: None  # collects garbage, at the end, once for every page
    warnings.filterwarnings(
        'ignore', 'Found cells containing imports'
    )  # tests/test_notebooks.py says it better
    try:
        drv.main(job)
    except Exception as e:
        why = e.__cause__ or e
        print(f'{job[0]}: {e}\n  {type(why).__name__}: {why}', flush=True)

def main():
    os.chdir(ROOT)
    import nbdev.serve as serve, nbdev.serve_drv as drv
    from nbdev.quarto import refresh_quarto_yml

    refresh_quarto_yml()
    import proc  # by name, so that worker processes find it

    drv.main, original = proc.one, drv.main
    try:
        out = serve.proc_nbs(force=True, n_workers=min(os.cpu_count() or 1, 4))
    finally:
        drv.main = original
    name = lambda p, root: p.relative_to(root).as_posix()
    done = {name(p, out) for p in notebooks(out)}
    if failed := [n for p in notebooks() if (n := name(p, NBS)) not in done]:
        sys.exit(f'not processed: {", ".join(failed)}')
    print(f'{len(done)} pages processed into {out.name}/')

if __name__ == '__main__':
    main()
