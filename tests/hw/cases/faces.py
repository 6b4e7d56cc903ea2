"""Files, metrics, events, traces and top on a real GPU: that they tell what the GPU does, and what it costs to ask."""
import errno
import json
import os
import pathlib
import re
import subprocess
import time

from harness.bench import GIB, MIB
from harness.checks import Skipped, expect
from harness.steering import HIGH, LOW, inside, native, percentile, ticker, watched

UNLIMITED = 18446744073709551615


def _files(bench):
    files = pathlib.Path(bench.tessera.run_dir) / "fs"
    if not os.path.ismount(files):
        raise Skipped("nothing is mounted: /dev/fuse is needed")
    return files


def _sh(bench, script, **variables):
    done = subprocess.run(["sh", "-ec", script], text=True, capture_output=True, timeout=20,
                          env={**os.environ, **{name: str(value) for name, value in variables.items()}})
    bench.log(f"$ {script}\n{done.stdout}{done.stderr}")
    expect(done.returncode == 0, f"'{script}' ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _statistics(text):
    return {name: int(value) for name, value in (line.split(": ") for line in text.splitlines())}


@watched("faces", limit_s=60, soft=True)
def gvm(bench):
    """The commands of GVM's README, after changing one path prefix."""
    processes = _files(bench) / "processes"
    bench.vgpu("hw-gvm")
    worker = inside(bench, ticker(bench), vgpu="hw-gvm")
    worker.moves(20)

    def run(script):
        return _sh(bench, script, processes=processes, pid=worker.pid)

    expect(str(worker.pid) in run("cat $processes/list").split(), "it is not listed")
    before = _statistics(run("cat $processes/$pid/0/gcgroup.stat"))
    expect(list(before) == ["nr_submitted_kernels", "nr_ended_kernels", "nr_pending_kernels"], f"another form: {before}")

    def later():
        now = _statistics(run("cat $processes/$pid/0/gcgroup.stat"))
        return now if now["nr_submitted_kernels"] > before["nr_submitted_kernels"] else None

    after = bench.until(later, f"it works, but its statistics stay as they were: {before}", 10, 0.2)
    current = int(run("cat $processes/$pid/0/memory.current"))
    expect(current >= 32 * MIB, f"memory.current is {current}")
    expect(int(run("cat $processes/$pid/0/memory.limit")) == UNLIMITED, "it has a limit already")
    limit = 2_000_000_000 if bench.soft else 6_000_000_000
    run(f"echo {limit} | tee $processes/$pid/0/memory.limit")
    expect(int(run("cat $processes/$pid/0/memory.limit")) == limit, "the limit was not taken")
    run("echo 2 | tee $processes/$pid/0/compute.priority")
    expect(bench.tessera.vgpu("hw-gvm")["compute_priority"] == 2, "the priority was not taken")
    times = []
    for _ in range(20):
        begin = time.monotonic()
        (processes / f"{worker.pid}/0/compute.freeze").write_text("1")
        times.append((time.monotonic() - begin) * 1e3)
        (processes / f"{worker.pid}/0/compute.freeze").write_text("0")
    run("echo 1 > $processes/$pid/0/compute.freeze")
    settled = worker.moved_in(0.02)
    moved = worker.moved_in(0.5)
    run("echo 0 > $processes/$pid/0/compute.freeze")
    worker.moves(20)
    worker.result()
    figure = (f"{after['nr_submitted_kernels']} kernels, {current >> 20} MiB; frozen it moved {moved} (+{settled} at once); "
              f"echo 1 > compute.freeze {percentile(times, 50):.2f} ms p50, {max(times):.2f} most; results right")
    expect(moved == 0, figure)
    return figure


@watched("faces", limit_s=60)
def procs(bench):
    """A pid that is written into a vGPU's procs is there from then on, as in a control group."""
    path = _files(bench) / "vgpus/hw-procs/procs"
    bench.vgpu("hw-procs")
    stray = native(bench, ticker(bench))
    stray.moves(20)

    def listed():
        rows = bench.tessera.get("/v1/processes")["processes"]
        return next((row for row in rows if row["pid"] == stray.pid and row["channels"]), None)

    bench.until(listed, "it is seen with its channels", 15, 0.2)
    path.write_text(f"{stray.pid}\n")
    expect(path.read_text() == f"{stray.pid}\n", f"procs reads {path.read_text()!r}")
    row = listed()
    expect(row["adopted"] and row["vgpu"] == "hw-procs", f"it is not adopted: {row}")
    try:
        path.write_text(f"{stray.pid}\n")
        again = "nothing"
    except OSError as error:
        again = os.strerror(error.errno)
    (path.parent / "compute.freeze").write_text("1")
    stray.moved_in(0.02)
    moved = stray.moved_in(0.3)
    (path.parent / "compute.freeze").write_text("0")
    stray.moves(20)
    stray.result()
    figure = f"{row['channels']} channels; a second time: {again}; frozen with its vGPU it moved {moved}; results right"
    expect(again == os.strerror(errno.EBUSY) and moved == 0, figure)
    return figure


def _spans(trace, name):
    return [event for event in trace["traceEvents"] if event["ph"] == "X" and event["name"] == name]


@watched("faces", limit_s=60, soft=True)
def timeline(bench):
    """The trace of a class that preempts another, and of a limit, against what the programs report themselves."""
    bench.vgpu("hw-low", compute_priority=LOW)
    bench.vgpu("hw-high", compute_priority=HIGH, compute_limit=30)
    low = inside(bench, ticker(bench), vgpu="hw-low")
    high = inside(bench, ticker(bench), vgpu="hw-high")
    low.moves(20)
    high.moves(20)
    path = bench.folder / "trace.json"
    bench.cli("trace", "--for", "3s", "-o", str(path))
    trace = json.loads(path.read_text())
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    ran = {}
    for event in _spans(trace, "runs"):
        name = tracks[event["pid"], event["tid"]]
        ran[name] = ran.get(name, 0) + event["dur"]
    throttled = [e for e in _spans(trace, "waits: limit") if tracks[e["pid"], e["tid"]] == "hw-high"]
    frozen = [e for e in _spans(trace, "frozen: policy") if e["args"]["freeze_us"] > 0]
    freeze = [e["args"]["freeze_us"] for e in frozen]
    seconds = (trace["otherData"]["end_us"] - trace["otherData"]["begin_us"]) / 1e6
    share = 100 * ran.get("hw-high", 0) / 1e6 / seconds
    low.result()
    high.result()
    figure = (f"{trace['otherData']['records']} records in {seconds:.1f} s, {path.stat().st_size >> 10} KiB; the vGPU with a "
              f"limit of 30 % ran {share:.1f} % and waited for it {len(throttled)} times; freezes {len(freeze)}, "
              f"p50 {percentile(freeze, 50) if freeze else 0:.0f} us")
    expect(throttled and 20 <= share <= 40, figure)
    if keep := bench.options.get("faces.keep"):
        (pathlib.Path(keep) / "trace.json").write_text(path.read_text())
    return figure


@watched("faces", limit_s=60, soft=True)
def stories(bench):
    """Events of a real program's life, and top's picture of it."""
    begin = json.loads(bench.cli("events", "--json"))["events"]
    bench.vgpu("hw-story", memory_max=GIB)
    worker = inside(bench, ticker(bench), vgpu="hw-story")
    worker.moves(20)
    bench.cli("freeze", "hw-story")
    bench.cli("thaw", "hw-story")
    top = bench.cli("top", "--once")
    expect("hw-story" in top and str(worker.pid) in top, f"top does not show it:\n{top}")
    bench.log(top)
    worker.result()

    def told():
        events = json.loads(bench.cli("events", "--json", "--last", "2000"))["events"]
        return [e["type"] for e in events if e["number"] > (begin[-1]["number"] if begin else 0) and e["vgpu"] == "hw-story"]

    bench.until(lambda: "process.ended" in told(), "its end is told")
    types = told()
    expect(types == ["vgpu.created", "process.started", "vgpu.frozen", "vgpu.thawed", "process.ended"], f"told: {types}")
    return f"{', '.join(types)}; top shows it"


@watched("faces", limit_s=90, soft=True)
def asking(bench):
    """The cost of asking while a program works, and the cost to that program."""
    files = _files(bench)
    bench.vgpu("hw-asked")
    worker = inside(bench, ticker(bench), vgpu="hw-asked")
    worker.moves(20)
    alone = worker.rate(3)
    current = files / "vgpus/hw-asked/memory.current"

    def timed(action, count):
        spans = []
        for _ in range(count):
            begin = time.monotonic()
            action()
            spans.append((time.monotonic() - begin) * 1e6)
        return spans

    reads = timed(current.read_text, 2000)
    proc = timed(pathlib.Path("/proc/self/stat").read_text, 2000)
    one = timed(lambda: bench.tessera.get("/v1/vgpus/hw-asked"), 500)
    processes = timed(lambda: bench.tessera.get("/v1/processes"), 100)
    metrics = timed(lambda: bench.tessera.raw("/metrics"), 50)
    end = time.monotonic() + 3
    first, asked, begin = worker.count(), 0, time.monotonic()
    while time.monotonic() < end:
        bench.tessera.get("/v1/vgpus/hw-asked")
        current.read_text()
        asked += 2
    beside = (worker.count() - first) / (time.monotonic() - begin)
    worker.result()
    return (f"file {percentile(reads, 50):.0f} us p50, {percentile(reads, 99):.0f} p99 (a file of /proc "
            f"{percentile(proc, 50):.0f}); a vGPU by API {percentile(one, 50):.0f} us; processes, which asks the driver, "
            f"{percentile(processes, 50) / 1e3:.1f} ms; scrape {percentile(metrics, 50) / 1e3:.1f} ms; a program beside {asked / 3:.0f} "
            f"questions/s at {100 * beside / alone:.1f} % of its speed alone")


@watched("faces", limit_s=60)
def service(bench):
    """The daemon with the capabilities and without the system calls that deploy/tesserad.service takes away."""
    unit = (pathlib.Path(__file__).resolve().parents[3] / "deploy/tesserad.service").read_text()
    taken = " ".join(re.findall(r"^CapabilityBoundingSet=~(.*)$", unit, re.MULTILINE)).split()
    expect(taken, "the unit takes no capability away")
    drop = ",".join("-" + name.removeprefix("CAP_").lower() for name in taken)
    prefix = ["setpriv", "--bounding-set", drop, "--inh-caps", drop, "--no-new-privs"]
    if subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
        raise Skipped("setpriv cannot take capabilities away here")
    bench.tessera.stop()
    bench.tessera.start(prefix=prefix)
    try:
        status = pathlib.Path(f"/proc/{bench.tessera.daemon_pid}/status").read_text()
        bounding = int(re.search(r"^CapBnd:\t(\w+)$", status, re.MULTILINE)[1], 16)
        expect(not bounding >> 25 & 1, "CAP_SYS_TIME is still there")
        _files(bench)
        doctor = json.loads(bench.cli("doctor", "--json"))
        failed = [check["name"] for check in doctor["checks"] if not check.get("ok", True)] if "checks" in doctor else []
        control = bench.tessera.gpu()["control"]
        bench.vgpu("hw-service", memory_limit="1G", memory_max="3G")
        worker = inside(bench, ticker(bench), vgpu="hw-service")
        worker.moves(20)
        bench.cli("freeze", "hw-service")
        worker.moved_in(0.02)
        moved = worker.moved_in(0.3)
        bench.cli("thaw", "hw-service")
        worker.moves(20)
        worker.result()
        tenant = bench.start_inside([bench.tessera.tenant, "--memory", "256M", "--seconds", "4"], vgpu="hw-service")
        bench.line(tenant)
        bench.cli("evict", "hw-service")
        moves = bench.tessera.vgpu("hw-service")["moved_out_bytes"]
        while '"done"' not in (line := bench.line(tenant)):
            pass
        expect('"verified":true' in line, f"its results are wrong: {line}")
        figure = (f"{len(taken)} capabilities less: control by {control['by']}, frozen it moved {moved}, {moves >> 20} MiB "
                  f"were moved out; doctor {'has nothing' if not failed else failed}")
        expect(control["by"] == "channels" and moved == 0 and moves > 0, figure)
        return figure
    finally:
        bench.tessera.stop()
        bench.tessera.start()
