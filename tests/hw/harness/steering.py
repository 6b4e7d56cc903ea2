"""Shared by the checks of steering: busy programs that say how far they are, the daemon's control of the GPU, and the
kernel's log."""
import functools
import random
import shutil
import subprocess
import time

from harness import checks
from harness.bench import must_succeed
from harness.checks import Failed, Skipped, expect

HIGH, LOW = 2, 12  # classes: the lower number goes first
KERNEL_US = 1000


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def p50_p99(values, unit=""):
    return f"{percentile(values, 50):.0f} / {percentile(values, 99):.0f}{unit}"


def xids():
    """The driver's complaints in the kernel's log; None where we may not read it."""
    program = shutil.which("dmesg")
    if not program:
        return None
    log = subprocess.run([program], capture_output=True, text=True, errors="replace")
    return [line for line in log.stdout.splitlines() if "Xid" in line] if log.returncode == 0 else None


def describe(bench):
    """Logs how everything stands, for whoever looks into a failure."""
    if not bench.tessera.alive():
        return bench.log("the daemon does not run")
    for process in bench.tessera.get("/v1/processes")["processes"]:
        bench.log(" ".join(f"{key}={process[key]}" for key in ("pid", "vgpu", "state", "frozen", "channels", "submissions")))
    for vgpu in bench.tessera.get("/v1/vgpus")["vgpus"]:
        bench.log(" ".join(f"{key}={vgpu[key]}" for key in ("name", "state", "frozen", "slice_us", "compute_priority")))
    bench.log(str(bench.tessera.gpu()["control"]))


def steer(**options):
    """Declares a check of the section "steer"."""
    return watched("steer", **options)


def watched(section, name=None, prepare=None, **options):
    """Declares a check that runs alone, and fails if the driver complained meanwhile. prepare(bench) comes first."""

    def declare(body):
        @functools.wraps(body)
        def run(bench):
            if not bench.tessera.alive():  # a check before this one killed it, and failed
                bench.tessera.start()
            if prepare:
                prepare(bench)
            before = xids()
            try:
                told = body(bench)
            except Failed:
                describe(bench)
                raise
            figure, details = told if isinstance(told, tuple) else (told, None)
            after = xids()
            if not bench.soft and (before is None or after is None):
                figure += "; kernel log not readable"
            elif not bench.soft:
                new = after[len(before):]
                expect(not new, f"{len(new)} Xid, the first: {new and new[0]}; {figure}")
                figure += "; no Xid"
            bench.log(figure)
            return figure, details

        checks.add(section, name or body.__name__, run, alone=True, **options)
        return body

    return declare


class Worker:
    """A busy program that is ordered about as orders.h says."""

    def __init__(self, bench, program):
        self._bench = bench
        self.program = program
        line = bench.line(program)
        while not line.startswith("ready "):
            if line.startswith("no "):  # no driver, no loader, no GPU of that kind
                raise Skipped(line)
            line = bench.line(program)
        words = line.split()
        self.pid = int(words[1])
        self.extra = int(words[2]) if len(words) > 2 else 0  # of ticker and latency: the steps of a kernel

    def count(self, device=0):
        """How far it is, on one of its devices. It answers also while its channels are frozen."""
        return int(self.ask(f"count {device}" if device else "count").split()[1])

    def ask(self, order, limit_s=20):
        """Any order, and the line that answers it."""
        self.program.say(order)
        return self._bench.line(self.program, limit_s)

    def moves(self, limit_s=5, by=1):
        """Waits for it to get on; the seconds that took."""
        begin, first = time.monotonic(), self.count()
        self._bench.until(lambda: self.count() >= first + by, f"process {self.pid} ({self.program.name()}) gets on", limit_s, 0.001)
        return time.monotonic() - begin

    def moved_in(self, span_s, device=0):
        first = self.count(device)
        time.sleep(span_s)
        return self.count(device) - first

    def rate(self, span_s, device=0):
        """How far it gets in a second."""
        begin = time.monotonic()
        moved = self.moved_in(span_s, device)
        return moved / (time.monotonic() - begin)

    def close(self):
        self.program.close_input()

    def result(self, limit_s=20):
        """Ends it; Failed unless all of its results are right."""
        self.close()
        while True:
            line = self.program.line(self._bench.left(limit_s))
            if line is None:
                self._bench.note(self.program.finished())
                raise Failed(f"{self.program.name()} ended without a result: {self.program.finished().status}")
            if line.startswith("done "):
                expect(line.endswith(" right"), f"{self.program.name()}: wrong results ({line})")
                self.program.wait(self._bench.left(10))
                return int(line.split()[1])


def inside(bench, argv, env=None, **options):
    """A worker in a vGPU, options as `tessera run` has them."""
    return Worker(bench, bench.start_inside(argv, env, **options))


def native(bench, argv, env=None):
    return Worker(bench, bench.start_native(argv, env))


def ticker(bench, kernel_us=KERNEL_US, steps=0, memory=0, devices=1):
    """The command of a program that saturates so many GPUs with kernels of one length."""
    blocks = 1 if bench.soft else 264  # two for each multiprocessor of an H100 or H200
    return [bench.builder.program("ticker.cc"), kernel_us, steps, blocks, memory, devices]


def latency(bench, kernel_us=500, steps=0):
    return [bench.builder.program("latency.cc"), kernel_us, steps]


def latencies(bench, worker, count, gap_us=40_000, limit_s=120):
    """The microseconds of so many launches, each with its wait."""
    return [float(word) for word in worker.ask(f"run {count} {gap_us} 7", limit_s).split()]


def control(bench):
    """How the daemon makes the GPU obey, and what it cost. Failed unless it steers channels."""
    told = bench.tessera.gpu().get("control")
    if told is None:
        raise Failed("this daemon does not say how it controls the GPU")
    expect(told["by"] == "channels", f"channels are not steered: {told['why']}")
    return told


def frozen(bench, pid):
    """The reasons for which a process is off the GPU: "operator", "policy", "move"; empty: nobody."""
    row = bench.tessera.process(pid)
    return row["frozen"] if row else []


def memory_used_by_gpu(pid=None):
    """MiB that nvidia-smi counts for a process, or on the whole GPU; None if it does not say."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return None
    query = "--query-gpu=memory.used" if pid is None else "--query-compute-apps=pid,used_memory"
    asked = subprocess.run([smi, query, "--format=csv,noheader,nounits", "--id=0"], capture_output=True, text=True)
    rows = [[field.strip() for field in line.split(",")] for line in asked.stdout.splitlines() if line.strip()]
    found = [row[-1] for row in rows if pid is None or row[0] == str(pid)]
    return int(found[0]) if found and found[0].isdigit() else None


def rest(source=random, least_s=0.001, most_s=0.005):
    time.sleep(source.uniform(least_s, most_s))


def daemon_stands(bench):
    expect(bench.tessera.alive() and bench.tessera.answers(), "the daemon does not stand any more")


def driver_path(bench):
    path = bench.tessera.driver_library()
    if path is None:
        raise Skipped("no libcuda")
    return path


def run_ok(bench, argv, **options):
    done = bench.inside(argv, limit_s=60, **options)
    if done.status == 77:
        raise Skipped(done.out.strip()[-100:])
    return must_succeed(done, str(argv[0]))
