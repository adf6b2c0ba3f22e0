"""Which versions of other packages: those of this environment, or the lowest that settings.ini allows.

python tests/tools/versions.py              # write constraints.txt: what fedskew_nb[dev] stands on here
python tests/tools/versions.py --lowest     # print the lowest versions, as constraints
"""

import sys
from importlib.metadata import PackageNotFoundError, requires, version
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from project import ROOT, settings

HEAD = """\
# What fedskew_nb[dev] stands on, on Linux with Python {}: the versions that `make test` was last green with.
# Made by tests/tools/versions.py. To install them: make test CONSTRAINTS=constraints.txt
"""

def asked():
    "What the package and its developers need, as settings.ini says it."
    cfg = settings()
    return [Requirement(r) for k in ('requirements', 'dev_requirements') for r in cfg[k].split()]

def needed(req):
    "What a requirement needs itself on this machine, its extras too."
    for text in requires(req.name) or ():
        r = Requirement(text)
        if r.marker is None or any(r.marker.evaluate(dict(extra=e)) for e in req.extras or {''}):
            yield r

def installed():
    "{name: version} of all that is asked for, directly or not, and is installed here."
    found, todo, seen = {}, asked(), set()
    while todo:
        req = todo.pop()
        if (key := (canonicalize_name(req.name), frozenset(req.extras))) in seen:
            continue
        seen.add(key)
        try:
            found[key[0]] = version(req.name)
        except PackageNotFoundError:
            continue
        todo += needed(req)
    return found

def lowest():
    "{name: version}: the lower bounds of the package's own needs, unless developers need one version."
    pinned = {r.name for r in asked() if any(s.operator == '==' for s in r.specifier)}
    own = [Requirement(r) for r in settings()['requirements'].split()]
    bounds = ((r.name, s.version) for r in own for s in r.specifier if s.operator == '>=')
    return {n: v for n, v in bounds if n not in pinned}

def lines(versions):
    return ''.join(f'{n}=={v}\n' for n, v in sorted(versions.items()))

def main():
    if '--lowest' in sys.argv:
        print(lines(lowest()), end='')
        return
    head = HEAD.format('.'.join(map(str, sys.version_info[:2])))
    own = {n: v.partition('+')[0] for n, v in installed().items()}
    (ROOT / 'constraints.txt').write_text(head + lines(own), encoding='utf-8')
    print(f'constraints.txt: {len(own)} packages')

if __name__ == '__main__':
    main()
