"""Spaces: vGPUs that run at the same time as clients of one MPS server, beside other spaces and plain vGPUs."""
import contextlib
import json
import os
import pathlib
import random
import signal
import statistics
import time

from harness import members, tenants
from harness.bench import MIB
from harness.checks import Failed, check, expect
from harness.members import space
from harness.steering import control

CEILINGS = (10, 20, 30, 40, 50, 60, 70, 80, 90)
MOST_OFF = 0.06  # of the rate that the SMs should give: kernels end in waves
LEAST_BESIDE = 0.75  # of solo at that SM count, of two halves: a percentage is a ceiling whose parts may overlap
CAP_POINTS = 2.0
LEAST_EVEN = 0.5  # of two that are due the same: the lesser to the greater; runs gave 0.64 to 1
AGAIN_S = 2.0


@space(soft=True, limit_s=90)
def ceilings(bench):
    """SM limits of 10 to 90 %: the SMs that the program sees, and its speed alone in its space."""
    rate, iterations = members.solo(bench)
    rows, figure = {}, []
    bench.vgpu("hw-ceiling", space="hw-a")
    members.ready(bench, "hw-a")
    whole = members.start(bench, "hw-ceiling", 20, iterations)
    sms = bench.tessera.vgpu("hw-ceiling")["sms"]
    inside = members.rate(bench, whole)
    members.stop(whole)
    for percent in CEILINGS:
        bench.tessera.set("hw-ceiling", sm_limit=percent)
        tenant = members.start(bench, "hw-ceiling", 20, iterations)
        told = bench.tessera.vgpu("hw-ceiling")["sms"]
        part = members.rate(bench, tenant, 0.3, 1.0) / inside
        members.stop(tenant)
        rows[percent] = {"sms": told, "part": part}
        figure.append(f"{percent} %: {told} ({part * sms / told if told else 0:.3f})")
    figure = f"of {sms} SMs, and speed per SM to that of all: {', '.join(figure)}; all SMs x{inside / rate:.3f} of native"
    bench.log(rows)
    for percent, row in rows.items():
        pairs = 1 if bench.soft else 2  # Hopper: SMs come in pairs
        expect(0 <= percent / 100 * sms - row["sms"] < pairs, figure)
        expect(bench.soft or abs(row["part"] / (row["sms"] / sms) - 1) <= MOST_OFF, figure)
    return figure, rows


@space(soft=True, limit_s=60)
def halves(bench):
    """Two vGPUs of 50 % of the SMs: each beside the other against alone in the space."""
    _, iterations = members.solo(bench)
    for name in ("hw-half-a", "hw-half-b"):
        members.member(bench, name, "hw-a", sm_limit=50)
    first = members.start(bench, "hw-half-a", 60, iterations)
    alone = members.rate(bench, first)
    second = members.start(bench, "hw-half-b", 60, iterations)
    together = members.rates(bench, (first, second), 0.6, 4)
    members.finish(bench, first, second)
    parts = [each / alone for each in together]
    figure = f"{parts[0]:.3f} and {parts[1]:.3f} of alone with half the SMs; sum {sum(parts):.2f}; results right"
    expect(min(parts) >= LEAST_BESIDE, figure)
    return figure, parts


@space(soft=True, limit_s=90)
def entity(bench):
    """A space of two beside a plain vGPU: weight 3:1, then the plain one in a higher class, then in a lower one."""
    _, iterations = members.solo(bench)
    for name in ("hw-in-a", "hw-in-b"):
        members.member(bench, name, "hw-a", sm_limit=50)
    bench.vgpu("hw-plain", compute_weight=300)
    inside = [members.start(bench, name, 90, iterations) for name in ("hw-in-a", "hw-in-b")]
    alone = members.rates(bench, inside)
    shown = bench.tessera.get("/v1/spaces/hw-a")
    plain = members.start(bench, "hw-plain", 90, iterations)
    told = control(bench)
    plain_rate, *member_rates = members.rates(bench, [plain, *inside], 1.0, 4.0)
    native = _rate_of_plain(bench, plain, inside)
    parts = [plain_rate / native, *(got / was for got, was in zip(member_rates, alone))]
    bench.tessera.set("hw-plain", compute_priority=2)
    time.sleep(0.5)
    higher = members.parts([plain, *inside], [native, *alone], 1.5)
    bench.tessera.set("hw-plain", compute_priority=12)
    time.sleep(0.5)
    lower = members.parts([plain, *inside], [native, *alone], 1.5)
    bench.tessera.set("hw-plain", compute_priority=8)
    members.finish(bench, plain, *inside)
    text = lambda row: " ".join(f"{each:.3f}" for each in row)  # noqa: E731
    figure = (f"plain and members, of alone: weight 3:1 {text(parts)}; plain higher {text(higher)}; plain lower {text(lower)}; "
              f"steered {shown['steered']}, freeze {told['freeze_p50_us']} us, results right")
    bench.log({"control": told, "space": shown})
    expect(shown["steered"], figure)
    expect(abs(parts[0] - 0.75) < 0.05 and all(abs(each - 0.25) < 0.05 for each in parts[1:]), figure)
    expect(max(higher[1:]) < 0.02 and lower[0] < 0.02, figure)
    return figure, {"weights": parts, "higher": higher, "lower": lower}


def _rate_of_plain(bench, plain, others):
    """Its rate while the others stand by an operator's freeze."""
    for tenant in others:
        bench.cli("freeze", str(tenant.pid))
    rate = members.rate(bench, plain, 0.5, 1.5)
    for tenant in others:
        bench.cli("thaw", str(tenant.pid))
    return rate


@space(soft=True, limit_s=60)
def limits(bench):
    """A limit of 30 % of the time inside a space; three vGPUs of 50 % of the SMs take turns."""
    _, iterations = members.solo(bench)
    for name in ("hw-lim-a", "hw-lim-b", "hw-lim-c"):
        members.member(bench, name, "hw-a", sm_limit=50)
    running = [members.start(bench, "hw-lim-a", 60, iterations)]
    alone = members.rate(bench, running[0])
    bench.tessera.set("hw-lim-a", compute_limit=30)
    capped = members.rate(bench, running[0], 1.0, 3.0) / alone
    running.append(members.start(bench, "hw-lim-b", 60, iterations))
    beside = [each / alone for each in members.rates(bench, running, 1.0, 3.0)]
    bench.tessera.set("hw-lim-a", compute_limit=100)
    running.append(members.start(bench, "hw-lim-c", 60, iterations))
    three = [each / alone for each in members.rates(bench, running, 1.0, 4.0)]
    members.finish(bench, *running)
    figure = (f"30 %: {capped * 100:.1f} % alone, {beside[0] * 100:.1f} % beside a free one with {beside[1] * 100:.1f} %; "
              f"three halves {' '.join(f'{each:.2f}' for each in three)}")
    expect(abs(capped * 100 - 30) <= CAP_POINTS and max(three) - min(three) < 0.15, figure)
    return figure, {"capped": capped, "beside": beside, "three": three}


def _tell_all(bench, others):
    """All that the daemon and the kernel know, for the log."""
    for path in ("/v1/spaces", "/v1/vgpus", "/v1/processes", "/v1/gpus"):
        bench.log(json.dumps(bench.tessera.get(path), indent=1))
    bench.log([other.kernels() for other in others])
    for folder in pathlib.Path("/proc").glob("[0-9]*/task/[0-9]*"):
        with contextlib.suppress(OSError):
            name = (folder / "comm").read_text().strip()
            if name.startswith(("tessera", "nvidia-cuda")):
                bench.log(f"{folder} {name}: {(folder / 'wchan').read_text()}\n{(folder / 'stack').read_text()}")
    bench.log((bench.tessera.run_dir / "mps" / "hw-a" / "daemon.log").read_text()[-3000:])


def _kills(bench, count, plain, by=signal.SIGKILL):
    """Kills so many programs of a space; `plain`: settings and flags of a vGPU in no space that is busy meanwhile."""
    _, iterations = members.solo(bench)
    for name, within in (("hw-kill", "hw-a"), ("hw-stays", "hw-a"), ("hw-other", "hw-b")):
        members.member(bench, name, within, sm_limit=50)
    settings, flags = plain
    bench.vgpu("hw-plain", **settings)
    others = [members.start(bench, name, 150, iterations) for name in ("hw-stays", "hw-other")]
    others.append(members.start(bench, "hw-plain", 150, iterations, **flags))
    try:
        return _kill_all(bench, count, others, iterations, by)
    except (Failed, TimeoutError):
        _tell_all(bench, others)
        members.stop(*others)
        raise


def _kill_all(bench, count, others, iterations, by):
    pick, took = random.Random(7), []
    for _ in range(count):
        begin = time.monotonic()
        tenant = members.start(bench, "hw-kill", 30, iterations)
        took.append(time.monotonic() - begin)
        bench.until(tenant.kernels, "it computes", 20)
        time.sleep(pick.random() * 0.1)
        os.kill(tenant.pid, by)
        if by == signal.SIGKILL:
            tenant.program.kill()
        else:
            expect(tenant.done(30)["verified"], "results are wrong")
        dead = [other.pid for other in others if not other.program.alive()]
        expect(not dead, f"{dead} ended with the program that was killed")
    state = bench.tessera.get("/v1/spaces/hw-a")["state"]
    for other in others:
        before = other.kernels()
        bench.until(lambda: other.kernels() > before + 20, "the others go on", 20)
    members.finish(bench, *others)
    faults = [event for event in bench.tessera.get("/v1/events?last=500")["events"] if event["type"] == "space.fault"]
    figure = (f"{count} ended, 0 victims, {len(faults)} faults, space {state}; a start takes {statistics.median(took):.2f} s; "
              f"results right")
    bench.log((bench.tessera.run_dir / "mps" / "hw-a" / "daemon.log").read_text()[-3000:])
    expect(state == "ready" and not faults, figure)
    return figure, {"start_s": took}


@space(soft=True, limit_s=150)
def kills(bench):
    """100 programs of a space are killed in the middle of their work: who else notices."""
    return _kills(bench, 20 if bench.soft else 100, ({}, {}))


@space(soft=True, limit_s=120)
def kills_standing(bench):
    """The same while a higher class takes the spaces off the GPU again and again."""
    flags = {"burst": 5, "idle-us": 30000, "depth": 5, "ahead": 1}
    return _kills(bench, 10 if bench.soft else 40, ({"compute_priority": 2}, flags))


@space(soft=True, limit_s=150)
def kills_off(bench):
    """The same, and most are killed while their space is off the GPU, with work on the way."""
    flags = {"burst": 1500, "idle-us": 300000, "depth": 20, "ahead": 1}  # off for longer than ClientFiles::kAfter
    return _kills(bench, 5 if bench.soft else 20, ({"compute_priority": 2}, flags))


@space(soft=True, limit_s=120)
def starts(bench):
    """Programs of a space start, work and end while it is taken off the GPU and put back some fifty times a second."""
    flags = {"burst": 2, "idle-us": 15000, "depth": 2, "ahead": 1}
    return _kills(bench, 10 if bench.soft else 60, ({"compute_priority": 2}, flags), signal.SIGTERM)


@space(soft=True, limit_s=90)
def gaps(bench):
    """A higher class leaves gaps that are shorter than a slice: what two plain vGPUs, then two spaces, then the two
    programs of one space get of them."""
    alone, iterations = members.solo(bench)
    flags = {"burst": 2, "idle-us": 15000, "depth": 2, "ahead": 1}
    bench.vgpu("hw-high", compute_priority=2)
    pairs = {"vGPUs": ("", ""), "spaces": ("hw-a", "hw-b"), "programs": ("hw-c", "hw-c")}
    found, parts = [], []
    for what, within in pairs.items():
        names = [f"hw-{what}-{i}" for i in (1, 2)]
        for name, its in zip(names, within):
            if its:
                members.member(bench, name, its, sm_limit=50)
            else:
                bench.vgpu(name)
        low = [members.start(bench, name, 60, iterations) for name in names]
        high = members.start(bench, "hw-high", 60, iterations, **flags)
        got = members.parts(low, [alone, alone], 3 if bench.soft else 6)
        members.finish(bench, high, *low)
        found.append(f"{what} {got[0]:.2f} {got[1]:.2f}")
        parts.append(min(got) / max(got))
    figure = f"parts of the speed alone: {', '.join(found)}; results right"
    expect(min(parts) > LEAST_EVEN, figure)
    return figure, {"even": parts}


@check("space", alone=True, limit_s=90)
def faults(bench):
    """A fault in space A: its programs end, those in B and outside do not notice, A is soon usable again, also if a
    program of it stays."""
    _, iterations = members.solo(bench)
    for name, within in (("hw-victim", "hw-a"), ("hw-culprit", "hw-a"), ("hw-other", "hw-b")):
        members.member(bench, name, within, sm_limit=50)
    bench.vgpu("hw-plain")
    others = [members.start(bench, name, 90, iterations) for name in ("hw-other", "hw-plain")]
    rows = []
    for turn in range(3):
        victim = members.start(bench, "hw-victim", 60, iterations)
        stays = bench.start_inside([bench.builder.program("hold.cc"), str(64 * MIB)], vgpu="hw-victim") if turn else None
        if stays:
            bench.line(stays)
        before = [other.kernels() for other in others]
        bench.inside([bench.builder.program("fault.cu")], vgpu="hw-culprit", limit_s=20)
        begin = time.monotonic()
        victim.program.wait(20)
        again = members.start(bench, "hw-culprit", 30, iterations)
        usable = time.monotonic() - begin
        bench.until(again.kernels, "the space takes programs", 20)
        rows.append(usable)
        for other, was in zip(others, before):
            bench.until(lambda: other.kernels() > was + 20, "the others go on", 20)
        members.stop(again)
        if stays:
            stays.kill()
    told = [event for event in bench.tessera.get("/v1/events?last=200")["events"] if event["type"].startswith("space.")]
    ready = [(again["time_us"] - fault["time_us"]) / 1e6 for fault, again in zip(told[::2], told[1::2])]
    members.finish(bench, *others)
    figure = (f"takes programs again after {' '.join(f'{each:.2f}' for each in ready)} s, and has computed one after "
              f"{' '.join(f'{each:.2f}' for each in rows)} s (the last two with a program that stayed); 0 victims elsewhere")
    bench.log(told)
    bench.log((bench.tessera.run_dir / "mps" / "hw-a" / "daemon.log").read_text()[-6000:])
    expect(len(ready) == 3 and max(ready) <= AGAIN_S, figure)
    return figure, {"ready": ready, "computed": rows}


@space(soft=True, limit_s=90)
def memory(bench):
    """Memory of a program in a space moves: while the other one works, and while the space stands for a higher class."""
    _, iterations = members.solo(bench)
    size = (64 if bench.soft else 4096) * MIB
    for name in ("hw-mem-a", "hw-mem-b"):
        members.member(bench, name, "hw-a", sm_limit=50)
    bench.vgpu("hw-plain", compute_priority=2)
    first = members.start(bench, "hw-mem-a", 80, iterations, memory=size)
    second = members.start(bench, "hw-mem-b", 80, iterations)
    took = []
    for _ in range(3):
        begin = time.monotonic()
        bench.cli("evict", "hw-mem-a")
        took.append(time.monotonic() - begin)
        for tenant in (first, second):
            was = tenant.kernels()
            bench.until(lambda: tenant.kernels() > was + 20, "both go on", 20)
    plain = members.start(bench, "hw-plain", 80, iterations)
    bench.until(lambda: bench.tessera.vgpu("hw-mem-a")["state"] == "waiting", "the space stands", 10)
    begin = time.monotonic()
    bench.cli("evict", "hw-mem-a")
    standing = time.monotonic() - begin
    moved = bench.tessera.vgpu("hw-mem-a")["moved_out_bytes"]
    members.stop(plain)
    members.finish(bench, first, second)
    figure = (f"{size // MIB} MiB out in {' '.join(f'{each:.2f}' for each in took)} s beside a busy one, {standing:.2f} s while the "
              f"space stands; results right")
    expect(moved >= 3.5 * size, figure)
    return figure, {"took": took, "standing": standing}


MIX = [("resnet", 12, 40)] * 4 + [("rnnt", 24, 40)] * 2 + [("bert", 50, 60)] * 2


@space(soft=True, limit_s=90)
def mix(bench):
    """FaST-GShare's mix on one GPU: four of 12 % of the SMs and 40 % of the time, two of 24 and 40, two of 50 and 60, all
    busy: what each gets of what it has alone in that part of the SMs."""
    _, iterations = members.solo(bench)
    iterations = max(iterations // 10, 1)  # 0.1 ms with all SMs: as kernels of inference
    names, alone = [], {}
    for number, (kind, sm, percent) in enumerate(MIX):
        name = f"hw-{kind}-{number}"
        members.member(bench, name, "hw-a", sm_limit=sm, compute_request=percent)
        names.append(name)
        if sm not in alone:
            tenant = members.start(bench, name, 20, iterations)
            alone[sm] = members.rate(bench, tenant, 0.4, 1.5)
            members.stop(tenant)
    running = [members.start(bench, name, 80, iterations) for name in names[:6]]
    beside = [rate / alone[sm] for rate, (_, sm, _) in zip(members.rates(bench, running, 1.0, 3.0), MIX)]
    running += [members.start(bench, name, 80, iterations) for name in names[6:]]
    for tenant in running[6:]:
        bench.until(tenant.kernels, "it computes", 20)
    busy = [bench.tessera.vgpu(name)["compute_busy_us"] for name in names]
    begin = time.monotonic()
    rates = members.rates(bench, running, 0, 8.0)
    took = (time.monotonic() - begin) * 1e6
    shares = [(bench.tessera.vgpu(name)["compute_busy_us"] - was) / took * 100 for name, was in zip(names, busy)]
    members.finish(bench, *running)
    rows = [(kind, sm, percent, rate / alone[sm] * 100) for (kind, sm, percent), rate in zip(MIX, rates)]
    figure = (", ".join(f"{kind} {got:.1f} of {percent} in {share:.1f}" for (kind, _, percent, got), share in zip(rows, shares))
              + f" % of the time; the first six at once {' '.join(f'{each:.2f}' for each in beside)} of alone; results right")
    # All of the time is promised, and hand-overs cost some of it.
    expect(all(share >= 0.95 * percent and got >= 0.92 * percent for (_, _, percent, got), share in zip(rows, shares)), figure)
    return figure, rows
