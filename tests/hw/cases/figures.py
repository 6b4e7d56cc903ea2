"""Figures, each measured against its baseline in the same run."""
import os
import shutil
import statistics
import sys
import time

from harness import tenants
from harness.bench import MIB, last_words, must_succeed
from harness.build import HERE
from harness.checks import check, expect

POINTS = 1.5  # how far a limit may be off, in percent of the GPU
SHARE_POINTS = 2.0


def _on_one_core():
    """Both sides of a comparison on the same core; the last one, where least else runs."""
    core = max(os.sched_getaffinity(0))
    return [shutil.which("taskset"), "-c", str(core)] if shutil.which("taskset") else []


def _interleaved(bench, native, inside, rounds, work):
    """Asks two waiting programs in turn to do `work` and answer with a number; [(native, inside)]."""
    pairs = []
    for number in range(rounds):
        answers = {}
        for program in (native, inside) if number % 2 == 0 else (inside, native):
            program.say(work)
            answers[program] = float(bench.line(program))
        pairs.append((answers[native], answers[inside]))
    return pairs


def _ready(bench, program, limit_s=120):
    while bench.line(program, limit_s) != "ready":
        pass


@check("figures", alone=True, soft=True, limit_s=60)
def launch_overhead(bench):
    """cuLaunchKernel of an empty kernel with an open gate: 20 x 51,200 launches each way, interleaved."""
    program = bench.builder.program("launch_rate.cc")
    batches, rounds = (20, 6) if bench.soft else (200, 20)
    sides = [bench.start_native([program], prefix=_on_one_core()),
             bench.start_inside([program], prefix=_on_one_core(), memory=bench.memory)]
    for side in sides:
        _ready(bench, side)
    pairs = _interleaved(bench, *sides, rounds, f"batches {batches}")
    native, inside = (statistics.median(side) for side in zip(*pairs))
    added = statistics.median(b - a for a, b in pairs)
    figure = f"{added:+.1f} ns on {native:.0f} ns ({rounds} pairs of {batches * 256} launches; with it {inside:.0f})"
    if not bench.soft:  # a launch on the soft GPU is a different thing
        expect(added <= 15, figure)
    return figure, pairs


def torch_ratios(bench, works, rounds=20, pairs=1):
    """PyTorch alone on the GPU with and without Tessera, in turn: (speed with / without by work, details, text). Two
    processes differ by some percent whichever they are: of several pairs the one in the middle counts."""
    script = HERE / "frameworks" / "torch_speed.py"
    found = {work: [] for work in works}
    for _ in range(pairs):
        sides = [bench.start_native([sys.executable, script]), bench.start_inside([sys.executable, script], memory="40G")]
        for side in sides:
            _ready(bench, side)
        for work in works:
            _interleaved(bench, *sides, 2, work)
            times = _interleaved(bench, *sides, rounds, work)
            native, inside = (statistics.median(side) for side in zip(*times))
            found[work].append({"ratio": native / inside, "times": times,
                                "quartiles": statistics.quantiles([a / b for a, b in times], n=4)})
        for side in sides:
            side.close_input()
            side.wait(bench.left(20))
    ratios = {work: statistics.median(each["ratio"] for each in found[work]) for work in works}
    figure = ", ".join(f"{work} x{ratios[work]:.4f} (" + ", ".join(
        f"{each['ratio']:.4f}: {each['quartiles'][0]:.4f}-{each['quartiles'][2]:.4f}" for each in found[work]) + ")"
                       for work in works)
    return ratios, found, figure


@check("figures", alone=True, limit_s=170)
def torch_speed(bench):
    """PyTorch training (eager, AdamW) and LLM decode with CUDA graphs, alone on the GPU: with / without Tessera."""
    ratios, details, figure = torch_ratios(bench, ("train", "decode"))
    expect(min(ratios.values()) >= 0.995, figure)
    return figure, details


@check("figures", alone=True, soft=True)
def run_overhead(bench):
    """`tessera run -- true` beyond `true`, with the daemon running."""
    times = {"native": [], "inside": []}
    for _ in range(30):
        times["native"].append(must_succeed(bench.native(["true"]), "true").seconds)
        times["inside"].append(must_succeed(bench.inside(["true"]), "tessera run -- true").seconds)
    native, inside = (statistics.median(times[side]) * 1e3 for side in ("native", "inside"))
    worst = sorted(times["inside"])[-2] * 1e3
    figure = f"{inside - native:.1f} ms (p95 {worst - native:.1f}) beyond {native:.1f} ms"
    expect(inside - native <= 20, figure)
    return figure, times


@check("figures", alone=True, soft=True)
def starts_at_once(bench):
    count = 100 if bench.soft else 300
    begin = time.monotonic()
    started = [bench.start_inside(["true"]) for _ in range(count)]
    spawned_s = time.monotonic() - begin
    statuses = [program.wait(bench.left(50)) for program in started]
    failures = [program for program, status in zip(started, statuses) if status != 0]
    for program in failures[:3]:
        bench.note(program.finished())
    expect(not failures, f"{len(failures)} of {count} failed: {failures and last_words(failures[0].finished())}")
    ended_s = time.monotonic() - begin
    bench.until(lambda: not [v for v in bench.tessera.get("/v1/vgpus")["vgpus"] if v["ephemeral"]], "all vGPUs are gone")
    return f"{count} ok in {ended_s:.2f} s (spawning alone {spawned_s:.2f} s)"


@check("figures", alone=True, soft=True)
def token_round_trip(bench):
    """The first launch after idle time: gate closed, token asked for, token had, launched; beyond the launch itself."""
    program = bench.builder.program("launch_rate.cc")
    sides = [bench.start_native([program], prefix=_on_one_core()), bench.start_inside([program], prefix=_on_one_core())]
    answers = []
    for side in sides:
        _ready(bench, side)
        side.say("wakes 300")
        answers.append([float(word) / 1e3 for word in bench.line(side).split()])
    (base, base_p99), (p50, p99) = answers
    figure = f"p50 {p50 - base:.1f} us, p99 {p99 - base:.1f} us beyond a launch after idle"
    figure += f" (that: p50 {base:.1f}, p99 {base_p99:.1f})"
    if not bench.soft:
        expect(p50 - base <= 10 and p99 - base <= 50, figure)
    return figure, answers


@check("figures", alone=True, soft=True, limit_s=60)
def limits(bench):
    """One busy program under limits of 10, 20, 30 and 50 %: kernels done against the same program alone."""
    seconds = 4.0
    rate, iterations = tenants.solo(bench)
    bench.vgpu("hw-limit")
    tenant = tenants.start(bench, 60, iterations, vgpu="hw-limit")
    shares, figure = {}, []
    for limit in (100, 10, 20, 30, 50):
        bench.tessera.set("hw-limit", compute_limit=limit)
        shares[limit] = tenant.rate(*tenants.window(bench, 0.6, seconds)) / rate * 100
        figure.append(f"{limit}: {shares[limit]:.1f}")
    tenant.program.kill()
    after, _ = tenants.solo(bench, 1.0)
    figure = f"{', '.join(figure)} % of solo (solo {rate:.0f}/s before, {after:.0f}/s after)"
    off = {limit: share - limit for limit, share in shares.items() if limit != 100}
    expect(all(abs(o) <= POINTS for o in off.values()), figure)
    return figure, shares


def _three(bench, vgpus, seconds=5.0):
    """Shares of three busy programs at once, one in each of `vgpus`, in percent of one alone."""
    rate, iterations = tenants.solo(bench)
    running = [tenants.start(bench, 60, iterations, vgpu=name) for name in vgpus]
    for tenant in running:
        bench.until(tenant.kernels, "all compute", 20)
    begin, end = tenants.window(bench, 0.6, seconds)
    return [tenant.rate(begin, end) / rate * 100 for tenant in running]


@check("figures", alone=True, soft=True)
def requests_50_30_20(bench):
    wanted = (50, 30, 20)
    for request in wanted:
        bench.vgpu(f"hw-request-{request}", compute_request=request)
    shares = _three(bench, [f"hw-request-{request}" for request in wanted])
    figure = " / ".join(f"{share:.1f}" for share in shares) + f" %, sum {sum(shares):.1f}"
    # The sum is GPU time given out; a wish of x % is x % of that.
    expect(all(abs(share - request) <= SHARE_POINTS for share, request in zip(shares, wanted)), figure)
    expect(sum(shares) >= 97, figure)
    return figure, shares


@check("figures", alone=True, soft=True)
def three_under_limit_30(bench):
    """Three busy programs in one vGPU with a limit of 30 %: together, as they share its token."""
    bench.vgpu("hw-together", compute_limit=30)
    shares = _three(bench, ["hw-together"] * 3)
    figure = f"{sum(shares):.1f} % together ({' + '.join(f'{share:.1f}' for share in shares)})"
    expect(abs(sum(shares) - 30) <= POINTS, figure)
    return figure, shares


def _resident_bytes(pid):
    with open(f"/proc/{pid}/status") as status:
        fields = dict(line.split(":", 1) for line in status if ":" in line)
    return int(fields["VmRSS"].split()[0]) * 1024


def _largest_mappings(pid, count=12):
    """[(KiB resident, of that private, what)], the largest first, mappings of one file in sum."""
    sums = {}
    with open(f"/proc/{pid}/smaps") as smaps:
        for line in smaps:
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                name = words[5] if len(words) > 5 else "anonymous"
                sums.setdefault(name, [0, 0])
            elif words[0] == "Rss:":
                sums[name][0] += int(words[1])
            elif words[0].startswith("Private_"):
                sums[name][1] += int(words[1])
    return sorted(((rss, private, name) for name, (rss, private) in sums.items()), reverse=True)[:count]


def _cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@check("figures", alone=True, soft=True, limit_s=120)
def idle_daemon(bench):
    """The daemon's memory and CPU with 64 programs that each have a context and do nothing."""
    count = 16 if bench.soft else 64
    hold = bench.builder.program("hold.cc")
    programs = [bench.start_inside([hold, 0]) for _ in range(count)]
    for program in programs:
        expect(bench.line(program) == "got 0", "a program did not get its context")
    attached = sum(process["vgpu"] is not None for process in bench.tessera.get("/v1/processes")["processes"])
    expect(attached == count, f"{attached} of {count} programs are attached")
    pid, seconds = bench.tessera.daemon_pid, 8
    time.sleep(1)
    before = _cpu_seconds(pid)
    time.sleep(seconds)
    cpu = (_cpu_seconds(pid) - before) / seconds * 100
    resident = _resident_bytes(pid)
    for rss, private, what in _largest_mappings(pid):
        bench.tell(f"{rss} KiB, of that {private} private: {what}")
    figure = f"{resident / MIB:.1f} MiB, {cpu:.2f} % of a core with {count} idle programs"
    expect(resident <= 30 * MIB and cpu <= 0.5, figure)
    return figure
