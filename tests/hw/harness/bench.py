"""The tools of a check: programs with and without Tessera, sizes that fit the device, and its part of the log."""
import contextlib
import json
import os
import time

from harness import processes
from harness.checks import Failed, Skipped, expect

GIB = 1 << 30
MIB = 1 << 20
GRANULE = 2 * MIB


class Bench:
    def __init__(self, tessera, builder, folder, deadline, options=None, name="", out=None):
        self.name = name  # section.check
        self.tessera = tessera
        self.options = options or {}  # what --option said, by key
        self.builder = builder
        self.folder = folder  # for temporary files
        self.out = out or folder  # for what is kept
        self.deadline = deadline
        self.soft = tessera.soft is not None
        self._log = []
        self._running = contextlib.ExitStack()
        self._vgpus = []

    # Sizes: a soft GPU lies in host memory, so it is small.

    @property
    def memory(self):
        """The memory limit of a vGPU for one ordinary program."""
        return (1 if self.soft else 8) * GIB

    @property
    def slack(self):
        """By how much the ledger may move by itself: it follows what a real device says of a process, which is more than
        what the process allocated (code, stacks, buffers of printf)."""
        return 0 if self.soft else 128 * MIB

    @property
    def context_bytes(self):
        return self.tessera.gpu()["context_bytes"]

    # Time

    def left(self, at_most=1e9):
        return max(0.1, min(at_most, self.deadline - time.monotonic()))

    def until(self, condition, what, limit_s=10, pause_s=0.02):
        """Waits for a condition and returns its value. Failed at the limit."""
        end = time.monotonic() + self.left(limit_s)
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                raise Failed(f"not within {limit_s} s: {what}")
            time.sleep(pause_s)

    # Programs

    def native(self, argv, env=None, stdin="", limit_s=1e9):
        return self._run(argv, {**self.tessera.plain_environment(), **(env or {})}, stdin, limit_s)

    def inside(self, argv, env=None, stdin="", limit_s=1e9, **options):
        """In a vGPU: options as `tessera run` has them (memory=, compute=, vgpu=)."""
        return self._run(self.tessera.command(argv, **options), env, stdin, limit_s)

    def start_native(self, argv, env=None, prefix=()):
        return self._start([*prefix, *argv], {**self.tessera.plain_environment(), **(env or {})})

    def start_inside(self, argv, env=None, prefix=(), **options):
        return self._start([*prefix, *self.tessera.command(argv, **options)], env)

    def _run(self, argv, env, stdin, limit_s):
        done = processes.run(argv, self.left(limit_s), env, stdin)
        self.note(done)
        if done.timed_out:
            raise Failed(f"{os.path.basename(str(argv[-1]))} did not end within {done.seconds:.0f} s")
        return done

    def _start(self, argv, env):
        return self._running.enter_context(processes.Program(argv, env))

    def line(self, program, limit_s=60):
        """The next line of a running program; Failed if it ended."""
        line = program.line(self.left(limit_s))
        if line is None:
            program.wait(5)
            self.note(program.finished())
            raise Failed(f"{program.name()} ended with {program.finished().status}: {last_words(program.finished())}")
        return line

    @contextlib.contextmanager
    def daemon(self, config=""):
        """A fresh daemon, with this configuration, in place of the run's own; that comes back afterwards."""
        self.tessera.stop()
        self.tessera.start(config=config)
        try:
            yield
        finally:
            self.tessera.stop()
            self.tessera.start()

    def cli(self, *words):
        """`tessera WORDS`, which must succeed; its output."""
        return must_succeed(self._run(self.tessera.cli_command(*words), None, "", 20), f"tessera {words[0]}").out

    # vGPUs that the end of the check removes

    def vgpu(self, name, **fields):
        """On the first GPU unless `gpu` says otherwise, as programs without a vGPU are."""
        self.tessera.delete(name)
        made = self.tessera.create(name, **{"gpu": 0, **fields})
        self._vgpus.append(name)
        return made

    # The log

    def log(self, text):
        self._log.append(str(text).rstrip())

    def tell(self, text):
        """Says and logs a figure at once: it is kept if the time ends before the check does."""
        print(f"  {self.name} | {text}", flush=True)
        self.log(text)

    def note(self, done):
        command = " ".join(str(a) for a in done.argv)
        self.log(f"$ {command}\n-> {done.status} in {done.seconds:.2f} s{' TIMED OUT' if done.timed_out else ''}")
        for stream in (done.out, done.err):
            if stream.strip():
                self.log(stream if len(stream) < 20000 else stream[:10000] + "\n[…]\n" + stream[-10000:])

    def text(self):
        return "\n".join(self._log)

    def close(self):
        self._running.close()
        for name in self._vgpus:
            with contextlib.suppress(Exception):
                self.tessera.delete(name)


def last_words(done):
    words = (done.err.strip() or done.out.strip()).splitlines()
    return words[-1][-200:] if words else "without a word"


def must_succeed(done, what):
    expect(done.status == 0, f"{what} ended with {done.status}: {last_words(done)}")
    return done


def compare(native, inside):
    """The same status and the same lines, and without Tessera it must work: else there is nothing to compare."""
    if native.status == 77:
        raise Skipped(last_words(native))
    must_succeed(native, "without Tessera it")
    must_succeed(inside, "with Tessera it")
    expect(native.lines(), "it printed nothing")
    for ours, theirs in zip(inside.lines(), native.lines()):
        expect(ours == theirs, f"with '{ours[:90]}' without '{theirs[:90]}'")
    expect(len(inside.lines()) == len(native.lines()),
           f"{len(inside.lines())} lines with, {len(native.lines())} without Tessera")
    return f"{len(native.lines())} lines the same"


def events(lines):
    """The JSON lines of tessera-tenant."""
    return [json.loads(line) for line in lines if line.startswith("{")]
