"""Does a learner's JupyterLab run the first pages? A real server, a real browser, copies of the notebooks.

    python tests/lab/run.py [NOTEBOOK ...]        # default: the pages of PAGES

Needs node, npm and Chromium (Debian: apt install nodejs npm chromium). Where one is missing it says so and is
left out, with exit code 0.
"""
import json, os, secrets, shutil, socket, subprocess, sys, tempfile, time, urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BIN  = Path(sys.executable).parent

PAGES = ['1_begin/01_start', '2_methods/baselines/02_proximal', '4_core/06_method']
BROWSERS = ('chromium', 'chromium-browser', 'google-chrome')
INSTALL = ['npm', 'install', '--silent', '--no-audit', '--no-fund', '--no-package-lock']

def needed():
    "Where node, npm and Chromium are; None for what is missing."
    browser = os.environ.get('CHROMIUM') or next(filter(None, map(shutil.which, BROWSERS)), None)
    return {'node': shutil.which('node'), 'npm': shutil.which('npm'), 'chromium': browser}

def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]

def answers(url):
    try: urllib.request.urlopen(url, timeout=2)
    except OSError: return False
    return True

def server(folder, home):
    "Start JupyterLab on a folder with settings of its own: (process, url, token)."
    port, token = free_port(), secrets.token_hex(16)
    env = os.environ | {
        'JUPYTER_CONFIG_DIR': str(home/'config'),
        'JUPYTER_DATA_DIR': str(home/'data'),
        'JUPYTER_RUNTIME_DIR': str(home/'run'),
        'OMP_NUM_THREADS': '1',
        'PATH': f'{BIN}{os.pathsep}{os.environ["PATH"]}'}
    args = [
        'lab', '--no-browser', f'--port={port}', '--ServerApp.port_retries=0',
        f'--IdentityProvider.token={token}', f'--ServerApp.root_dir={folder}',
        '--LabApp.extension_manager=readonly', '--LabApp.news_url=None',
        '--LabApp.expose_app_in_browser=True']
    if hasattr(os, 'getuid') and os.getuid() == 0: args.append('--allow-root')
    log = open(home/'server.log', 'w')
    p = subprocess.Popen([sys.executable, '-m', 'jupyter', *args], env=env, stdout=log, stderr=log)
    url = f'http://127.0.0.1:{port}'
    for _ in range(240):
        if p.poll() is not None: break
        if answers(f'{url}/api/status?token={token}'): return p, url, token
        time.sleep(.5)
    p.terminate()
    sys.exit('JupyterLab did not start:\n' + (home/'server.log').read_text()[-2000:])

def runs(page, url, token, browser):
    "Run a page in the browser from top to bottom, and say how that went."
    begun = time.time()
    shot = [str(Path(os.environ['SHOTS'])/f'{page}.png')] if os.environ.get('SHOTS') else []
    command = ['node', HERE/'lab.mjs', url, token, f'{page}.ipynb', browser, *shot]
    r = subprocess.run(command, capture_output=True, text=True, cwd=HERE)
    try:
        o = json.loads(r.stdout.strip().splitlines()[-1])
        counts = f'{o["ran"]} of {o["of"]} code cells ran, {time.time()-begun:.0f} s'
        print(f'{page}: {counts}', *o['failed'], *o['pageErrors'], sep='\n    ')
    except (IndexError, ValueError): print(f'{page}: the browser stopped\n', r.stdout, r.stderr)
    return not r.returncode

def main(pages):
    tools = needed()
    if missing := [k for k, v in tools.items() if not v]:
        names = ', '.join(missing)
        print(f'SKIPPED: the JupyterLab test needs {names} (Debian: apt install nodejs npm chromium)')
        return 0
    if not (HERE/'node_modules'/'playwright-core').exists(): subprocess.run(INSTALL, cwd=HERE, check=True)
    with tempfile.TemporaryDirectory() as t:
        home, learn = Path(t), Path(t)/'learn'
        subprocess.run([BIN/'fedskew', 'notebooks', learn], check=True)
        p, url, token = server(learn, home)
        try: failed = [n for n in pages or PAGES if not runs(n, url, token, tools['chromium'])]
        finally:
            p.terminate()
            p.wait(20)
    if failed:
        print('failed in JupyterLab:', ', '.join(failed))
        return 1
    print('JupyterLab runs them from top to bottom')
    return 0

if __name__ == '__main__': sys.exit(main(sys.argv[1:]))
