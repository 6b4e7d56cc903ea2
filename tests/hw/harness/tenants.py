"""Busy programs (tessera-tenant) and how much of the GPU's time they get, by the kernels they complete."""
import json
import time

from harness.bench import events
from harness.checks import Failed

KERNEL_US = 1000


class Tenant:
    """One busy program. Its rate is what it completed between two moments, by its own clock."""

    def __init__(self, bench, program):
        self._bench = bench
        self.program = program
        self._progress = []
        self._gaps = []
        self.ready = self._wait_for("ready")

    @property
    def pid(self):
        return self.ready["pid"]

    def _wait_for(self, event):
        while True:
            found = json.loads(self._bench.line(self.program))
            if found["event"] == event:
                return found

    def gaps(self):
        """The longest times between two batches, in seconds, of each report since the last call."""
        self.progress()
        gaps, self._gaps = self._gaps, []
        return gaps

    def progress(self):
        """All progress until now, as (microseconds, kernels) pairs."""
        for event in events(self.program.pending()):
            if event["event"] == "progress":
                self._gaps.append(event.get("longest_gap_us", 0) / 1e6)
                self._progress.append((event["time_us"], event["kernels"]))
        return self._progress

    def kernels(self):
        return self.progress()[-1][1] if self.progress() else 0

    def rate(self, begin_us, end_us):
        """Kernels a second in that window. Between two lines the count is taken to grow evenly."""
        return (self._at(end_us) - self._at(begin_us)) / (end_us - begin_us) * 1e6

    def _at(self, moment_us):
        points = self.progress()
        for (t0, n0), (t1, n1) in zip(points, points[1:]):
            if t0 <= moment_us <= t1:
                return n0 + (n1 - n0) * (moment_us - t0) / max(t1 - t0, 1)
        raise Failed(f"{self.program.name()} reported nothing at {moment_us} us; it has {len(points)} reports")

    def done(self, limit_s=20, exit_s=5):
        """Waits for its end; its last line."""
        done = self.late("done", limit_s)
        self.program.wait(self._bench.left(exit_s))
        return done

    def late(self, event, limit_s):
        """Waits so long for an event, whatever it says before that."""
        end = time.monotonic() + self._bench.left(limit_s)
        while True:
            line = self.program.line(end - time.monotonic())
            if line is None:
                raise Failed(f"{self.program.name()} ended without a last line")
            found = json.loads(line)
            if found["event"] == event:
                return found


def arguments(bench, seconds, iterations=None, flags=(), **options):
    """The tenant's command; `flags` are options without a value. Small batches, so that its count is fine; the length of a kernel is calibrated only where
    nobody disturbs, and passed on as iterations."""
    options = {"seconds": seconds, "depth": 2, "ahead": 3, "report-every": 20, **options}
    length = {"iterations": iterations} if iterations else {"kernel-us": KERNEL_US}
    return [bench.tessera.tenant, *(f"--{name}={value}" for name, value in {**length, **options}.items()), *flags]


def start(bench, seconds, iterations=None, native=False, vgpu=None, **options):
    command = arguments(bench, seconds, iterations, **options)
    program = bench.start_native(command) if native else bench.start_inside(command, vgpu=vgpu)
    return Tenant(bench, program)


def now_us():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def window(bench, settle_s, seconds):
    """Waits for a window of time to pass and returns its two ends."""
    time.sleep(bench.left(settle_s))
    begin = now_us()
    time.sleep(bench.left(seconds))
    end = now_us()
    time.sleep(0.3)  # so that the report after the end has come, also of a program that waited at its gate
    return begin, end


def solo(bench, seconds=2.0):
    """(kernels a second, iterations of a kernel) of a busy program alone and without Tessera."""
    tenant = start(bench, seconds + 1.5, native=True)
    rate = tenant.rate(*window(bench, 0.5, seconds))
    iterations = tenant.ready["iterations"]
    tenant.program.kill()
    return rate, iterations
