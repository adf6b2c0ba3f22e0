"""Are notebooks, modules and site settings in step? Export and clean, in a copy, must change no file.

    python tests/tools/sync.py     # CI=1: what git does not know is an error, else only a remark
"""

import hashlib, os, shutil, subprocess, sys, tempfile
from pathlib import Path
from project import ROOT

TOOLS = '''
from nbdev.doclinks import nbdev_export
from nbdev.clean import nbdev_clean
from nbdev.quarto import refresh_quarto_yml
nbdev_export.__wrapped__(); nbdev_clean.__wrapped__(); refresh_quarto_yml()
'''

def git(*args, cwd=ROOT):
    return subprocess.run(['git', *args], cwd=cwd, capture_output=True, text=True, check=True).stdout.split(
        '\0'
    )[:-1]

def copy_tree(root, to):
    "What git tracks or would track, as it lies in the working tree."
    for f in git('ls-files', '-z', '--cached', '--others', '--exclude-standard', cwd=root):
        if not (root / f).is_file():
            continue
        (to / f).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / f, to / f)

def digests(root):
    "File name -> hash, caches left out."
    return {
        p.relative_to(root).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in root.rglob('*')
        if p.is_file() and not {'__pycache__', '.git'} & set(p.relative_to(root).parts)
    }

def differences(root):
    "What export and clean would change: sentences, empty when all is in step."
    with tempfile.TemporaryDirectory() as t:
        copy = Path(t).resolve()
        copy_tree(root, copy)
        before = digests(copy)
        env = {k: v for k, v in os.environ.items() if k != 'IN_TEST'}
        r = subprocess.run([sys.executable, '-c', TOOLS], cwd=copy, env=env, capture_output=True, text=True)
        if r.returncode:
            return ['export or clean failed:\n' + r.stdout + r.stderr]
        after = digests(copy)
    return [f'{f} is written by export, but is not here' for f in sorted(after.keys() - before.keys())] + [
        f'{f} is not what export and clean make of it'
        for f in sorted(before.keys() & after.keys())
        if before[f] != after[f]
    ]

def unknown(root):
    "Modules and notebooks that git does not track."
    return git('ls-files', '-z', '--others', '--exclude-standard', 'nbs', 'fedskew_nb', cwd=root)

def main():
    wrong = differences(ROOT)
    for w in wrong:
        print(w)
    for f in (new := unknown(ROOT)):
        print(f'{f} is not known to git: `git add` it')
    if wrong:
        sys.exit('out of step: run `make export`, look at `git diff`, commit')
    if new and os.environ.get('CI'):
        sys.exit('files that git does not know')
    print('notebooks, modules and site settings are in step')

if __name__ == '__main__':
    main()
