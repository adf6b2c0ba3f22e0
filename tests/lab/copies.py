"""Does every learner's copy run from its first cell to its last? A kernel for each, and no browser.

    python tests/lab/copies.py [1_begin/01_start ...]      # no page: all of them, half an hour

As in JupyterLab, a cell with the tag `raises-exception` may fail, and any other that fails is the end. No
front end answers the kernel's widgets.
"""
import json, os, subprocess, sys, tempfile, time
from contextlib import contextmanager
from pathlib import Path
from jupyter_client.manager import KernelManager

SECONDS = 120    # a cell that takes longer is not meant for Run All
BIN = Path(sys.executable).parent

@contextmanager
def kernel(folder):
    "A client of a new kernel that stands in a folder. Its sockets are files: a port may be taken meanwhile."
    with tempfile.TemporaryDirectory() as t:
        manager = KernelManager(kernel_name='python3', transport='ipc', ip=f'{t}/socket')
        manager.start_kernel(cwd=str(folder))
        client = manager.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=60)
            yield client
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)

def stop(client, cell):
    "What stops Run All at this cell, or ''."
    source = ''.join(cell['source'])
    try: reply = client.execute_interactive(source, output_hook=lambda m: None, timeout=SECONDS)['content']
    except TimeoutError: return f'more than {SECONDS} s: {source[:60]!r}'
    if reply['status'] == 'ok' or 'raises-exception' in cell['metadata'].get('tags', ()): return ''
    return f'{reply["ename"]}: {reply["evalue"]}: {source[:60]!r}'

def stops(path):
    "Run a copy: the first thing that stops it, or ''."
    cells = json.loads(path.read_text(encoding='utf-8'))['cells']
    with kernel(path.parent) as client:
        return next(filter(None, (stop(client, c) for c in cells if c['cell_type'] == 'code')), '')

def main(pages):
    os.environ.pop('MPLBACKEND', None)
    begun, failed = time.time(), []
    with tempfile.TemporaryDirectory() as t:
        subprocess.run([BIN/'fedskew', 'notebooks', t], check=True)
        paths = [Path(t, f'{n}.ipynb') for n in pages] or sorted(Path(t).rglob('*.ipynb'))
        for p in paths:
            start, name = time.time(), p.relative_to(t).with_suffix('').as_posix()
            if why := stops(p): failed.append(name)
            print(f'{name}: {time.time()-start:.0f} s {why}', flush=True)
    print(f'{len(paths)} copies in {time.time()-begun:.0f} s, {len(failed)} stopped', *failed)
    return bool(failed)

if __name__ == '__main__': sys.exit(main(sys.argv[1:]))
