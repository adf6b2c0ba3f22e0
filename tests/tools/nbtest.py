"""`nbdev_test` with its options, faster: what pages import is loaded once, before the workers fork.

Closing a figure collects garbage, and there are hundreds; what is loaded here is left out of that.
A figure is drawn once and small, for nobody looks at it; one that cannot be drawn fails its page.
"""
import gc, os, pkgutil
from contextlib import contextmanager
from importlib import import_module
from io import BytesIO
from execnb.shell import CaptureShell
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

DRAWN_WITH = 'captum.attr ipywidgets scipy.stats sklearn'.split()

class Shell(CaptureShell):
    "Draws a figure at 40 dots an inch, and says when it could not."
    undrawn = None

    def __init__(self, path=None, **kw):
        super().__init__(path, **kw)
        self.display_formatter.formatters['image/png'].for_type(Figure, self.draw)

    def draw(self, fig):
        wide = fig.dpi
        try:
            fig.dpi = 40
            FigureCanvasAgg(fig).print_png(out := BytesIO())    # print_figure would lay it out twice
        except Exception as e:
            self.undrawn = e
            raise
        finally: fig.dpi = wide
        return out.getvalue()

    def run(self, *args, **kw):
        outs, undrawn, self.undrawn = super().run(*args, **kw), self.undrawn, None
        self.exc = self.exc or undrawn
        return outs

@contextmanager
def loaded():
    "The package and what its pages draw and test with, imported; rubbish is looked for less often."
    import fedskew_nb
    modules = [m.name for m in pkgutil.walk_packages(fedskew_nb.__path__, 'fedskew_nb.')]
    for name in modules+DRAWN_WITH: import_module(name)
    often = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    try: yield
    finally:
        gc.set_threshold(*often)
        gc.unfreeze()

if __name__ == '__main__':
    os.environ['IN_TEST'] = '1'
    from nbdev import test
    from matplotlib_inline import backend_inline
    test.CaptureShell = Shell
    FigureCanvasAgg.draw_idle = lambda *_, **how: None      # pyplot's own drawing after each cell
    backend_inline._fetch_figure_metadata = lambda fig: None    # is it dark or light? makes all ticks for it
    with loaded(): test.nbdev_test()
