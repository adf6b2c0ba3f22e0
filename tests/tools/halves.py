"""`pytest --halves`: tests are collected once; two forked processes take them from the two ends of the list.

Two workers of pytest-xdist import and collect everything, each for itself. Here the list holds whole files,
those with most work at its ends. A byte in a pipe is the right to one more test, and there are as many as
tests, so the two meet. What they report is read here, and told to pytest as if it had happened here.
"""
import os, signal, time, traceback, warnings
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
import pytest

def from_both_ends(items):
    "The tests file by file, those with most work at the two ends; the second half is to be read backwards."
    files = {}
    for item in items: files.setdefault(item.path, []).append(item)
    def work(file): return sum(100 if item.get_closest_marker('slow') else 1 for item in file)
    ranked = sorted(files.values(), key=work, reverse=True)
    front, back = ([item for file in half for item in file] for half in (ranked[::2], ranked[1::2]))
    return front + back[::-1]

class Told:
    "What pytest says of a test in a forked process, in words that go through a pipe."
    def __init__(self, config): self.config, self.reports, self.warned = config, [], []

    def pytest_runtest_logreport(self, report):
        self.reports.append(self.config.hook.pytest_report_to_serializable(config=self.config, report=report))

    def pytest_warning_recorded(self, warning_message, when, nodeid, location):
        w = warning_message
        what = str(w.message), w.category.__name__, w.filename, w.lineno
        self.warned.append((*what, when, nodeid, location))

def work(session, todo, rights, outbox):
    "In a forked process: one test of `todo` after the other, as long as there is a right to one more."
    config, plugins = session.config, session.config.pluginmanager
    plugins.unregister(name='terminalreporter')
    capture = plugins.getplugin('capturemanager')
    capture.stop_global_capturing()             # it writes one file, which both processes would share
    capture.start_global_capturing()
    def take():
        index = next(todo) if os.read(rights, 1) else None
        if index is not None: outbox.send(('takes', index))
        return index
    plugins.register(told := Told(config))
    now = take()
    while now is not None:
        told.reports, told.warned, following = [], [], take()
        after = None if following is None else session.items[following]
        config.hook.pytest_runtest_protocol(item=session.items[now], nextitem=after)
        outbox.send(('did', now, told.reports, told.warned))
        now = following

@dataclass
class Half:
    "A forked process, as the first one sees it: what it has taken and not done, and how many tests it did."
    pid: int
    inbox: Connection
    owes: list = field(default_factory=list)
    did: int = 0
    ended: float = 0.

class Halves:
    "The plugin: takes the place of pytest's loop over tests."
    halves = ()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        if session.testsfailed or session.config.option.collectonly: return None     # pytest's own says it
        self.session, self.hook, self.halves = session, session.config.hook, []
        n = len(session.items)
        session.items[:] = from_both_ends(session.items)
        session.config._tmp_path_factory.getbasetemp()                               # one folder for both
        session.config.pluginmanager.getplugin('terminalreporter').showfspath = False
        rights, given = os.pipe()
        os.write(given, bytes(n))                                                    # Linux keeps 65,536
        os.close(given)
        try:
            for todo in (range(n), range(n)[::-1]): self.fork(iter(todo), rights)
            while running := [half for half in self.halves if not half.ended]:
                wait([half.inbox for half in running], timeout=1)
                for half in running: self.read(half)
        finally:
            for half in self.halves:
                if half.ended: continue
                os.kill(half.pid, signal.SIGTERM)
                os.waitpid(half.pid, 0)
        did = sum(half.did for half in self.halves)
        if did!=n: raise RuntimeError(f'{did} of {n} tests were run')
        return True

    def fork(self, todo, rights):
        self.session.config.pluginmanager.getplugin('terminalreporter').flush()
        inbox, outbox = Pipe(duplex=False)
        if pid := os.fork():
            outbox.close()
            return self.halves.append(Half(pid, inbox))
        try:
            work(self.session, todo, rights, outbox)
            os._exit(0)
        except KeyboardInterrupt: pass
        except BaseException: outbox.send(('breaks', traceback.format_exc()))
        finally: os._exit(1)

    def read(self, half):
        "What a process has told since; and that it ended, if so. A test that it leaves undone is a failure."
        gone, status = os.waitpid(half.pid, os.WNOHANG)              # first, so that nothing is told after it
        if gone: half.ended = time.monotonic()                       # also if hearing it raises
        try:
            while half.inbox.poll(): self.hear(half, *half.inbox.recv())
        except EOFError: pass
        if not gone: return
        code = os.waitstatus_to_exitcode(status)
        how = f'ended by {signal.Signals(-code).name}' if code<0 else f'ended with exit status {code}'
        if code and not half.owes: raise RuntimeError(f'a process {how}, outside of a test')
        for index, why in zip(half.owes, ('', 'not run: ')):
            item, why = self.session.items[index], f'{why}the process {how} in the test that it had begun'
            self.tell(half, item, [pytest.TestReport(item.nodeid, item.location, {}, 'failed', why, 'call')])

    def hear(self, half, what, *said):
        if what=='breaks': raise RuntimeError(*said)
        if what=='takes': return half.owes.extend(said)
        index, reports, warned = said
        half.owes.remove(index)
        for text, kind, file, line, *where in warned:
            message = warnings.WarningMessage(text, type(kind, (Warning,), {}), file, line)
            how = dict(zip(('when', 'nodeid', 'location'), where), warning_message=message)
            self.hook.pytest_warning_recorded.call_historic(kwargs=how)
        whole = self.hook.pytest_report_from_serializable
        reports = [whole(config=self.session.config, data=report) for report in reports]
        self.tell(half, self.session.items[index], reports)

    def tell(self, half, item, reports):
        "As if the test had run here; then, whether that was one failure too many."
        half.did += 1
        self.hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports: self.hook.pytest_runtest_logreport(report=report)
        self.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if self.session.shouldfail: raise self.session.Failed(self.session.shouldfail)
        if self.session.shouldstop: raise self.session.Interrupted(self.session.shouldstop)

    def pytest_terminal_summary(self, terminalreporter):
        if not self.halves: return
        did, ended = zip(*((half.did, half.ended) for half in self.halves))
        terminalreporter.write_line(f'two processes took {did[0]} and {did[1]} tests, '
                                    f'and ended {max(ended)-min(ended):.1f} s apart')
