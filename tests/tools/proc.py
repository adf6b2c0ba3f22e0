"""Process the pages for the site, as nbdev does after it has looked for Quarto. Writes `_proc/`.

Pages are what nbs/sidebar.yml names, and the references of the rooms, which are made here; other notebooks
are sources and tests, and no part of the site. Runs the cells that export, import or show documentation, so a
page that the site could not be built from fails here; the others are processed all the same.
"""

import os, sys, warnings
import own_links, reference
from project import NBS, ROOT, is_listing, notebooks

def one(job):
    "Process one page, and say what is wrong with it instead of stopping everything."
    import nbdev.serve_drv as drv
    from IPython.core.displayhook import DisplayHook

    if is_listing(job[0].resolve().relative_to(NBS).as_posix()):
        return
    DisplayHook.flush = lambda self: None  # collects garbage, at the end, once for every page
    warnings.filterwarnings(
        'ignore', 'Found cells containing imports'
    )  # tests/test_notebooks.py says it better
    try:
        page, into, how = job
        drv.main((page, into, own_links.Whole if page.suffix == '.ipynb' else how))
    except Exception as e:
        why = e.__cause__ or e
        print(f'{job[0]}: {e}\n  {type(why).__name__}: {why}', flush=True)

def process(*args, **kw):
    "All pages, into `_proc/`; takes the place of nbdev's `proc_nbs`."
    import nbdev.serve as serve, nbdev.serve_drv as drv
    import proc  # by name, so that worker processes find it

    drv.main, original = proc.one, drv.main
    try:
        out = serve.proc_nbs(force=True, n_workers=min(os.cpu_count() or 1, 4))
    finally:
        drv.main = original
    reference.write(out)
    return out

def main():
    os.chdir(ROOT)
    from nbdev.quarto import refresh_quarto_yml

    refresh_quarto_yml()
    out = process()
    name = lambda p, root: p.relative_to(root).as_posix()
    done = {name(p, out) for p in notebooks(out)}
    wanted = {n for p in notebooks() if not is_listing(n := name(p, NBS))}
    if failed := sorted(wanted - done):
        sys.exit(f'not processed: {", ".join(failed)}')
    print(f'{len(done)} pages processed into {out.name}/')

if __name__ == '__main__':
    main()
