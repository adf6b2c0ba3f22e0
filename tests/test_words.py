"What commands say to everybody alike is what the code says, and is said before anything is imported."
import json, subprocess, sys
import pytest
import fedskew_nb
import words

STORED = json.loads(words.PLACE.read_text(encoding='utf-8'))

def test_the_file_has_what_the_code_says():
    "Made again by `make export`."
    assert [' '.join(argv) for argv in words.asked()] == list(STORED)
    other = [typed for typed, text in STORED.items() if words.spoken(typed.split()) != text]
    assert not other, f'say something else now: {other}; make export writes them anew'

SAYS = '''
import sys, fedskew_nb
for typed in {typed}:
    sys.argv[1:] = typed.split()
    assert not fedskew_nb._main()
heavy = [m for m in 'torch torchvision numpy pandas matplotlib scipy PIL'.split() if m in sys.modules]
print(heavy, file=sys.stderr)
'''

def test_nothing_is_imported_to_say_it():
    typed = ['--version', *STORED]
    r = subprocess.run([sys.executable, '-c', SAYS.format(typed=typed)], capture_output=True, text=True)
    assert r.stderr.strip() == '[]' and r.stdout == ''.join([f'{fedskew_nb.__version__}\n', *STORED.values()])

@pytest.mark.parametrize('typed', ['list', 'list --json', ''])
def test_an_output_that_cannot_be_written_is_told(typed, monkeypatch):
    "By the command itself, as ever."
    class Full:
        def write(self, text): raise OSError(28, 'No space left on device')
        def flush(self): pass
    called = []
    def main():
        called.append(typed)
        return 1
    monkeypatch.setattr(sys, 'argv', ['fedskew', *typed.split()])
    monkeypatch.setattr(sys, 'stdout', Full())
    monkeypatch.setattr('fedskew_nb.tools.cli.main', main)
    assert fedskew_nb._main() == 1 and called == [typed]
