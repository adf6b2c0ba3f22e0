"""`nbdev_test` with its options, faster: what pages import is loaded once, before the workers fork.

Closing a figure collects garbage, and there are hundreds; what is loaded here is left out of that.
"""
import gc, os, pkgutil
from contextlib import contextmanager
from importlib import import_module

DRAWN_WITH = 'captum.attr ipywidgets scipy.stats sklearn torchmetrics'.split()

@contextmanager
def loaded():
    "The package and what its pages draw and test with, imported."
    import fedskew_nb
    modules = [m.name for m in pkgutil.walk_packages(fedskew_nb.__path__, 'fedskew_nb.')]
    for name in modules+DRAWN_WITH: import_module(name)
    gc.collect()
    gc.freeze()
    try: yield
    finally: gc.unfreeze()

if __name__ == '__main__':
    os.environ['IN_TEST'] = '1'
    from nbdev.test import nbdev_test
    with loaded(): nbdev_test()
