"Packaging: every value comes from `settings.ini`, which nbdev reads too."
import configparser, json, shlex, shutil, sys
from pathlib import Path
import setuptools
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

cp = configparser.ConfigParser(delimiters=['='])
cp.read('settings.ini', encoding='utf-8')
cfg = cp['DEFAULT']
need = 'lib_name lib_path version description keywords author author_email license min_python pythons audience status git_url doc_host nbs_path requirements'.split()
if missing := [k for k in need if k not in cfg]: raise SystemExit(f'settings.ini lacks: {", ".join(missing)}')

statuses = ['1 - Planning', '2 - Pre-Alpha', '3 - Alpha', '4 - Beta', '5 - Production/Stable', '6 - Mature', '7 - Inactive']
lib = cfg['lib_path']
extras = {k.removesuffix('_requirements'): shlex.split(v) for k, v in cfg.items() if k.endswith('_requirements')}

def bare(path):
    "A notebook as text, without its outputs."
    nb = json.loads(path.read_text(encoding='utf-8'))
    for c in nb['cells']:
        if c['cell_type'] == 'code': c.update(outputs=[], execution_count=None)
    return json.dumps(nb, ensure_ascii=False, indent=1) + '\n'

def write_stubs(into):
    "What editors read of each module. Made in a clone; a source archive, which has no tools, brings them."
    tools = Path('tests/tools').resolve()
    if not tools.is_dir(): return
    sys.path.insert(0, str(tools))
    import stubs
    stubs.write(into)

class Whole(build_py):
    "Build the package with a copy of the notebooks inside, so that `fedskew notebooks` works without a clone."
    def run(self):
        if not self.editable_mode: shutil.rmtree(self.build_lib, ignore_errors=True)    # nothing left over from an older build
        super().run()
        write_stubs(Path('.') if self.editable_mode else Path(self.build_lib))
        if self.editable_mode: return                                                   # a clone reads nbs/ itself
        into = Path(self.build_lib)/lib/'notebooks'
        for p in sorted(Path(cfg['nbs_path']).rglob('[!_.]*.ipynb')):
            if '.ipynb_checkpoints' in p.parts: continue
            copy = into/p.relative_to(cfg['nbs_path'])
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(bare(p), encoding='utf-8')

class Clone(editable_wheel):
    "A clone on the path, without an import hook, so that type checkers see the package."
    def finalize_options(self):
        super().finalize_options()
        self.mode = 'compat'

setuptools.setup(
    name=cfg['lib_name'], version=cfg['version'], description=cfg['description'], keywords=cfg['keywords'].split(),
    author=cfg['author'], author_email=cfg['author_email'], license={'apache2': 'Apache-2.0'}[cfg['license']], url=cfg['git_url'],
    project_urls={'Documentation': cfg['doc_host'] + cfg.get('doc_baseurl', '')},
    long_description=Path('README.md').read_text(encoding='utf-8') if Path('README.md').exists() else '',
    long_description_content_type='text/markdown',
    classifiers=['Development Status :: ' + next(s for s in statuses if s[0] == cfg['status']),
                 'Intended Audience :: ' + cfg['audience'], 'Natural Language :: ' + cfg['language']]
                + ['Programming Language :: Python :: ' + p for p in cfg['pythons'].split()],
    packages=setuptools.find_packages(include=[lib, lib + '.*']), include_package_data=True,
    python_requires='>=' + cfg['min_python'], install_requires=shlex.split(cfg['requirements']), extras_require=extras,
    entry_points={'nbdev': [f'{lib}={lib}._modidx:d'], 'console_scripts': shlex.split(cfg.get('console_scripts', ''))},
    cmdclass={'build_py': Whole, 'editable_wheel': Clone}, zip_safe=False,
)
