"""Child processes with a time limit, none of which outlives this one.

Every child leads a process group of its own, and this process adopts what its children leave behind (a child subreaper),
so that end_everything() reaches all that was ever started here, and nothing else.
"""
import ctypes
import os
import queue
import signal
import subprocess
import threading
import time
from typing import NamedTuple

_PR_SET_CHILD_SUBREAPER = 36
_live = set()
_lock = threading.RLock()  # a signal's handler may end everything in the middle of a start
_ending = False


def adopt_orphans():
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Finished(NamedTuple):
    argv: list
    status: int  # the exit status; negative: a signal
    out: str
    err: str
    seconds: float
    timed_out: bool

    def lines(self):
        """The part of the output that must be the same with and without Tessera."""
        return [line for line in self.out.splitlines() if not line.startswith("# ")]

    def values(self):
        """The "# name value" lines; numbers as int."""
        pairs = [line[2:].split(None, 1) for line in self.out.splitlines() if line.startswith("# ")]
        return {p[0]: int(p[1]) if p[1].lstrip("-").isdigit() else p[1] for p in pairs if len(p) == 2}


def _start(argv, env):
    with _lock:
        if _ending:
            raise RuntimeError("the run is ending")
        child = subprocess.Popen(
            [str(a) for a in argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", env={**os.environ, **(env or {})}, start_new_session=True)
        _live.add(child)
        return child


def _kill_group(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _forget(child):
    with _lock:
        _live.discard(child)


def run(argv, limit_s, env=None, stdin=""):
    """Runs a program to its end; at the limit its whole process group is killed."""
    begin = time.monotonic()
    child = _start(argv, env)
    timed_out = False
    try:
        out, err = child.communicate(stdin, timeout=max(limit_s, 0.1))
    except subprocess.TimeoutExpired:
        timed_out = True
        _kill_group(child)
        try:
            out, err = child.communicate(timeout=10)
        except subprocess.TimeoutExpired:  # somebody outside the group holds the pipe
            out, err = "", "its output was never closed"
    finally:
        _kill_group(child)
        _forget(child)
    return Finished(argv, child.returncode if child.returncode is not None else -9, out, err,
                    time.monotonic() - begin, timed_out)


class Program:
    """A program that runs while the check does other things. Use as a context manager: the end kills it."""

    def __init__(self, argv, env=None):
        self.argv = argv
        self.begin = time.monotonic()
        self.transcript = []
        self.errors = []
        self._child = _start(argv, env)
        self._lines = queue.Queue()
        self._readers = [threading.Thread(target=self._read_out, daemon=True),
                         threading.Thread(target=self._read_err, daemon=True)]
        for reader in self._readers:
            reader.start()

    def _read_out(self):
        for line in self._child.stdout:
            self.transcript.append(line)
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _read_err(self):
        for line in self._child.stderr:
            self.errors.append(line)

    @property
    def pid(self):
        """Of what was started: `tessera run` itself, if it did not become the program."""
        return self._child.pid

    def line(self, limit_s):
        """The next line of its output; None at its end. TimeoutError at the limit."""
        try:
            line = self._lines.get(timeout=max(limit_s, 0.01))
        except queue.Empty:
            raise TimeoutError(f"{self.name()} said nothing for {limit_s:.1f} s") from None
        if line is None:
            self._lines.put(None)
        return line

    def pending(self):
        """The lines that have arrived and nobody has read."""
        lines = []
        while True:
            try:
                line = self._lines.get_nowait()
            except queue.Empty:
                return lines
            if line is None:
                self._lines.put(None)
                return lines
            lines.append(line)

    def say(self, text):
        self._child.stdin.write(text + "\n")
        self._child.stdin.flush()

    def close_input(self):
        try:
            self._child.stdin.close()
        except OSError:
            pass

    def signal(self, number):
        os.kill(self._child.pid, number)

    def alive(self):
        return self._child.poll() is None

    def wait(self, limit_s):
        """Its exit status. TimeoutError at the limit."""
        try:
            status = self._child.wait(max(limit_s, 0.01))
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name()} did not end within {limit_s:.1f} s") from None
        for reader in self._readers:
            reader.join(1)
        return status

    def name(self):
        return " ".join(os.path.basename(str(a)) for a in self.argv[-4:])

    def finished(self):
        return Finished(self.argv, self._child.returncode, "".join(self.transcript), "".join(self.errors),
                        time.monotonic() - self.begin, False)

    def kill(self):
        _kill_group(self._child)
        self._child.wait()
        self._reap_group()
        _forget(self._child)

    def _reap_group(self):
        """Its children became ours when it died."""
        try:
            while os.waitpid(-self._child.pid, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close_input()
        self.kill()


def children(of):
    """The pids of a process's children, by /proc, without those that have ended."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as stat:
                state, parent = stat.read().rpartition(")")[2].split()[:2]
        except (OSError, ValueError, IndexError):
            continue
        if int(parent) == of and state != "Z":
            found.append(int(entry))
    return found


def descendants(of):
    """Children, and what they started."""
    return [pid for child in children(of) for pid in (child, *descendants(child))]


def end_everything():
    """Kills all that was started here and what it left behind. Nothing can be started afterwards."""
    global _ending
    with _lock:
        _ending = True
        live = list(_live)
    for child in live:
        _kill_group(child)
    for _ in range(100):  # an orphan becomes a child when its parent has died
        orphans = children(os.getpid())
        if not orphans:
            return
        for pid in orphans:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            except (ProcessLookupError, ChildProcessError):
                pass
        time.sleep(0.02)
