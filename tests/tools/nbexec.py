"""Run notebooks in a real kernel and store their outputs, byte for byte the same each time.

    python tests/tools/nbexec.py nbs/4_core/06_method.ipynb ...      # no argument: every notebook in nbs/

Cells that say `#| eval: false` or carry a flag of `tst_flags` (settings.ini) keep the outputs they have;
widget state is dropped.
"""

import base64, os, sys, time
from io import BytesIO
from pathlib import Path
import nbformat
from nbclient import NotebookClient
from PIL import Image, ImageChops, ImageStat
from project import flags, notebooks, skipped

# Stored tables are Markdown: as HTML they would make the site load scripts from elsewhere.
# Figures have two pixels for one. A warning says what it says, and not in which folder of this machine.
SETUP = """
import warnings
warnings.formatwarning = lambda message, kind, *where, **line: f'{kind.__name__}: {message}\\n'
get_ipython().config.InlineBackend.figure_formats = {'retina'}
formatters = get_ipython().display_formatter.formatters
for module, kind in (('pandas', 'DataFrame'), ('pandas', 'Series'),
                     ('pandas.core.frame', 'DataFrame'), ('pandas.core.series', 'Series')):
    formatters['text/html'].for_type_by_name(module, kind, lambda d: None)
    formatters['text/markdown'].for_type_by_name(module, kind, lambda d: d.to_markdown())
del formatters, module, kind, warnings
"""

class Runner(NotebookClient):
    left_out = frozenset()

    async def async_execute_cell(self, cell, cell_index, execution_count=None, store_history=True):
        if cell.cell_type == 'code' and skipped(cell.source, self.left_out):
            return cell
        return await super().async_execute_cell(cell, cell_index, execution_count, store_history)

def on_white(im):
    paper = Image.new('RGBA', im.size, 'white')
    paper.alpha_composite(im.convert('RGBA'))
    return paper.convert('RGB')

def in_few_colours(png):
    "A drawing in 256 colours, a third of its bytes, which looks the same; one with photographs as it was."
    im = Image.open(BytesIO(base64.b64decode(png)))
    few, out = im.quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE), BytesIO()
    lost = ImageStat.Stat(ImageChops.difference(on_white(im), on_white(few))).mean
    if max(lost) > 1:
        return png  # of 255, in the mean over all pixels
    few.save(out, 'PNG', optimize=True)
    return base64.b64encode(out.getvalue()).decode()

def shrink_figures(nb):
    for cell in nb.cells:
        for o in cell.get('outputs', []):
            if png := o.get('data', {}).get('image/png'):
                o.data['image/png'] = in_few_colours(png)

def join_streams(nb):
    "One piece per stream, for how a kernel splits its text is chance; no widgets, for their ids are, too."
    for cell in nb.cells:
        outs = []
        for o in cell.get('outputs', []):
            if 'application/vnd.jupyter.widget-view+json' in o.get('data', {}):
                continue  # its id is chance
            last = outs[-1] if outs else None
            if last and o.output_type == last.output_type == 'stream' and o.name == last.name:
                last.text += o.text
            else:
                outs.append(o)
        if 'outputs' in cell:
            cell.outputs = outs

def patience(cell):
    "Seconds for a cell. nbclient may sleep through the reply of a slider's cell until they are over."
    return 20 if 'interact(' in cell.source else 900

def execute(path):
    "Run one notebook in its own kernel and write it back."
    nb = nbformat.read(path, 4)
    Runner.left_out = flags()
    nb.cells.insert(0, nbformat.v4.new_code_cell(SETUP))
    Runner(
        nb,
        timeout_func=patience,
        kernel_name='python3',
        resources={'metadata': {'path': str(path.parent)}},
        record_timing=False,
        store_widget_state=True,
    ).execute()  # an output widget needs it while it runs; dropped below
    nb.cells.pop(0)
    join_streams(nb)
    shrink_figures(nb)
    nb.metadata.pop('widgets', None)
    nb.metadata.pop('language_info', None)
    nbformat.write(nb, path)

def main(names):
    os.environ.update(IN_TEST='1', OMP_NUM_THREADS='1', PYTHONHASHSEED='0')
    os.environ.pop('MPLBACKEND', None)  # another one would draw no figure into the page
    failed = []
    for p in [Path(n) for n in names] or notebooks():
        t = time.time()
        try:
            execute(p)
            print(f'{p.name}: {time.time() - t:.0f} s', flush=True)
        except Exception as e:
            failed.append(p.name)
            print(f'{p.name} failed:\n{e}', flush=True)
    if failed:
        sys.exit('failed: ' + ', '.join(failed))

if __name__ == '__main__':
    main(sys.argv[1:])
