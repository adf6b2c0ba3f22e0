"""What commands say to everybody alike, in one file: `fedskew list` prints it before anything is imported.

    python tests/tools/words.py     # fedskew_nb/assets/words.json; a test compares it with the code
"""

import io, json
from contextlib import redirect_stderr, redirect_stdout
from project import ROOT

PLACE = ROOT / 'fedskew_nb/assets/words.json'

def asked():
    "What is typed: the lists, and the help of every command."
    from fedskew_nb.tools.choose import USER_NEEDS
    from fedskew_nb.tools.cli import COMMANDS, register
    register()
    yield from (['--help'], ['-h'], ['list'], ['prepare'], ['claims'], ['reproduce'], ['reproduce', '--list'])
    yield from (['list', '--for', n] for n in ('?', *USER_NEEDS))
    yield from ([name, '--help'] for name in COMMANDS)

def spoken(argv):
    "What a command prints, by the code."
    from fedskew_nb.tools.cli import main
    out, trouble = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(trouble):
        code = main(argv)
    assert not code and not trouble.getvalue(), f'fedskew {" ".join(argv)}: {trouble.getvalue()}'
    return out.getvalue()

if __name__ == '__main__':
    words = {' '.join(argv): spoken(argv) for argv in asked()}
    PLACE.write_text(json.dumps(words, indent=0, ensure_ascii=False) + '\n', encoding='utf-8')
