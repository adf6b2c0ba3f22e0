"""The short check while working: notebooks and tests touched since `main`, and that everything is in step.

python tests/tools/quick.py
"""

import os, subprocess, sys
from pathlib import Path
import sync
from project import ROOT, default_exp, notebooks, read

def git(*args):
    return subprocess.run(['git', *args], cwd=ROOT, capture_output=True, text=True).stdout.split()

def touched():
    "Files that differ from where this branch left `main`, committed or not."
    base = (git('merge-base', 'main', 'HEAD') or ['HEAD'])[0]
    return sorted({*git('diff', '--name-only', base), *git('ls-files', '--others', '--exclude-standard')})

def to_run(files):
    "The notebooks and test files that a list of changed files asks for."
    files = [f for f in files if (ROOT / f).exists()]
    nbs = {f for f in files if f.startswith('nbs/') and f.endswith('.ipynb')}
    mods = {
        f'fedskew_nb/{m.replace(".", "/")}.py': p.relative_to(ROOT).as_posix()
        for p in notebooks()
        if (m := default_exp(read(p)))
    }
    nbs |= {mods[f] for f in files if f in mods}
    tests = {f for f in files if f.startswith('tests/test_')}
    if any(f.startswith('tests/tools/') for f in files):
        tests.add('tests/test_tools.py')
    return sorted(nbs), sorted(tests | {'tests/test_sync.py'})

def main():
    os.environ.update(OMP_NUM_THREADS='1', IN_TEST='1', MPLBACKEND='Agg')
    if wrong := sync.differences(ROOT):
        sys.exit('\n'.join(wrong) + '\nout of step: run `make export`')
    nbs, tests = to_run(touched())
    print('touched since main:', ', '.join(Path(n).name for n in nbs) or 'no notebook', flush=True)
    bin = Path(sys.executable).parent
    code = (
        subprocess.run([bin / 'nbdev_test', '--path', nbs[0], '--timing'], cwd=ROOT).returncode
        if len(nbs) == 1
        else 0
    )
    if len(nbs) > 1:
        keep = '^(' + '|'.join(Path(n).name for n in nbs) + ')$'
        code = subprocess.run(
            [bin / 'nbdev_test', '--file_re', keep, '--n_workers', '2', '--timing'], cwd=ROOT
        ).returncode
    code |= subprocess.run(
        [sys.executable, '-m', 'pytest', '-q', '-m', 'not slow and not campaign', *tests], cwd=ROOT
    ).returncode
    sys.exit(code)

if __name__ == '__main__':
    main()
