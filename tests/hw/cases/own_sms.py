"""SMs that vGPUs of a space have for themselves (--reserve-sm)."""
import statistics
import sys
import time

from cases.frameworks import DETERMINISTIC, FOLDER, need
from cases.programs import RUNTIME
from harness import members
from harness.bench import compare
from harness.checks import Failed, Skipped, expect
from harness.members import space

LEAST_LIMITS = 0.75  # of solo at that SM count, of two side by side
LEAST_OWN = 0.97  # the same, of SMs of one's own
MOST_OFF = 0.06  # of the speed per SM, after they moved: kernels end in waves
PYTHON = (("torch_train.py", "eager"), ("torch_train.py", "graph"), ("torch_train.py", "compile"), ("cupy_math.py",), ("torch_loader.py", "spawn"))


def _own(bench, name, width, within="hw-a"):
    members.member(bench, name, within, sm_limit=width, sm_reserved=True)


@space(soft=True, limit_s=120)
def own(bench):
    """Two programs side by side, of 50 and 50 and of 25 and 75 % of the SMs: what each has of its speed alone with these
    SMs, where they are limits and where they are its own."""
    _, iterations = members.solo(bench)
    found, least, details = [], {}, {}
    for kind, reserved in (("limits", False), ("own", True)):
        for widths in ((50, 50), (25, 75)):
            within, alone = f"hw-{kind}-{widths[0]}", []
            names = [f"{within}-{i}" for i in (1, 2)]
            for name, width in zip(names, widths):
                members.member(bench, name, within, sm_limit=width, **({"sm_reserved": True} if reserved else {}))
                tenant = members.start(bench, name, 30, iterations)
                alone.append(members.rate(bench, tenant))
                members.finish(bench, tenant)
            running = [members.start(bench, name, 60, iterations) for name in names]
            parts = [rate / before for rate, before in zip(members.rates(bench, running), alone)]
            sms = [bench.tessera.vgpu(name)["sms"] for name in names]
            members.finish(bench, *running)
            for name in names:
                bench.tessera.delete(name)
            found.append(f"{kind} of {widths[0]} and {widths[1]} % ({sms[0]} and {sms[1]} SMs) {parts[0]:.3f} and {parts[1]:.3f}")
            least[kind] = min([*parts, least.get(kind, 2)])
            details[f"{kind} {widths[0]}"] = parts
    figure = f"of alone: {'; '.join(found)}; results right"
    expect(least["own"] >= (LEAST_LIMITS if bench.soft else LEAST_OWN), figure)
    return figure, details


@space(limit_s=60)
def own_places(bench):
    """On how many SMs the work of a program runs that knows nothing of it: default stream, streams, threads, graphs.
    (Under MPS each green context has its own numbers of SMs, so they do not tell which: see `own`.)"""
    program, found, right = bench.builder.program("places.cu"), [], True
    for name, width in (("hw-p-1", 50), ("hw-p-2", 25), ("hw-p-3", 25)):
        _own(bench, name, width)
        waits = bench.start_inside([program, "wait"], vgpu=name)
        waits.say("all")
        rows = [bench.line(waits).split() for _ in range(7)]
        sms = bench.tessera.vgpu(name)["sms"]
        waits.kill()
        right = right and {int(count) for _, count in rows} == {sms}
        found.append(f"{width} %, {sms} SMs: {' '.join(f'{what} {count}' for what, count in rows)}")
    expect(right, f"not all work is in one place: {'; '.join(found)}")
    return "; ".join(found)


@space(soft=True, limit_s=120)
def own_moves(bench):
    """SMs are changed while programs run: how long that takes without and with work under way, what a busy program gets
    afterwards, and (PyTorch) whether training prints the same as without Tessera."""
    _, iterations = members.solo(bench)
    _own(bench, "hw-p-1", 50)
    tenant = members.start(bench, "hw-p-1", 90, iterations)
    whole = members.rate(bench, tenant) / bench.tessera.vgpu("hw-p-1")["sms"]
    rows, took = {}, []
    for percent in (25, 75, 30, 100, 50):
        took.append(_move(bench, "hw-p-1", percent))
        sms = bench.tessera.vgpu("hw-p-1")["sms"]
        rows[percent] = (sms, members.rate(bench, tenant, 0.2, 0.6) / sms / whole)
    members.finish(bench, tenant)
    seldom = members.start(bench, "hw-p-1", 90, iterations, **{"burst": 1, "idle-us": 300000})
    bench.until(seldom.kernels, "it has computed", 20)
    idle = [_move(bench, "hw-p-1", percent) for percent in (25, 75) * 5]
    members.finish(bench, seldom)
    parts = ", ".join(f"{percent} %: {sms} SMs, {rate:.3f}" for percent, (sms, rate) in rows.items())
    figure = (f"busy {' '.join(f'{1000 * each:.1f}' for each in took)} ms; without work {1000 * statistics.median(idle):.1f} ms; speed per "
              f"SM to that before: {parts}; results right")
    expect(bench.soft or all(abs(rate - 1) <= MOST_OFF for _, rate in rows.values()), figure)
    if bench.soft:
        return figure, rows
    need("torch")
    command = [sys.executable, FOLDER / "torch_train.py", "eager", "400"]
    native = bench.native(command, DETERMINISTIC)
    trains = bench.start_inside(command, env=DETERMINISTIC, vgpu="hw-p-1")
    moves, refused = 0, ""
    while trains.alive():
        answer = bench.tessera.api("PATCH", "/v1/vgpus/hw-p-1", {"sm_limit": (30, 80, 55)[moves % 3]})
        moves += answer.status == 200 and bool(bench.tessera.vgpu("hw-p-1")["sms"])
        refused = refused or (answer["detail"] if answer.status != 200 else "")
        time.sleep(0.1)
    trains.wait(5)
    same = compare(native, trains.finished())
    return f"{figure}; PyTorch: {same} with {moves} moves{', then ' + refused if refused else ''}", rows


@space(soft=True, limit_s=60)
def own_burst(bench):
    """A vGPU that has all SMs while it is alone (sm.burst): its speed then, and beside another one, and how long it takes
    to leave them and to get them."""
    _, iterations = members.solo(bench)
    _own(bench, "hw-p-1", 50)
    _own(bench, "hw-p-2", 50)
    tenant = members.start(bench, "hw-p-1", 90, iterations)
    own, own_sms = members.rate(bench, tenant), bench.tessera.vgpu("hw-p-1")["sms"]
    bench.tessera.set("hw-p-1", sm_burst=True)

    def sms():
        return bench.tessera.vgpu("hw-p-1")["sms"]

    def has(count):
        begin = time.monotonic()
        bench.until(lambda: sms() == count, f"it has {count} SMs", 10, 0.0005)
        return time.monotonic() - begin

    bench.until(lambda: sms() > own_sms, "it has more", 10, 0.0005)
    all_sms = sms()
    alone = members.rate(bench, tenant) / own
    leaves, gets, rows = [], [], []
    for _ in range(2 if bench.soft else 5):
        other = members.start(bench, "hw-p-2", 90, iterations)  # which has computed when this returns
        leaves.append(has(own_sms))
        rows.append(members.rate(bench, tenant) / own)
        members.finish(bench, other)
        gets.append(has(all_sms))
    members.finish(bench, tenant)
    figure = (f"alone {all_sms} SMs and {alone:.3f} of its speed on its {own_sms}; beside another one {min(rows):.3f} to "
              f"{max(rows):.3f}; all again after {1000 * statistics.median(gets):.1f} ms, left at most "
              f"{1000 * max(leaves):.1f} ms after the other one had begun")
    expect(bench.soft or abs(alone * own_sms / all_sms - 1) <= MOST_OFF, figure)
    expect(bench.soft or all(abs(row - 1) <= MOST_OFF for row in rows), figure)
    return figure, rows


def _move(bench, name, percent):
    """The seconds until its program works in them."""
    begin = time.monotonic()
    bench.tessera.set(name, sm_limit=percent)
    bench.until(lambda: not bench.tessera.vgpu(name)["sms_kept"], "it has moved", 10, 0.0005)
    return time.monotonic() - begin


@space(limit_s=240)
def own_programs(bench):
    """Programs that know nothing of it print the same as without Tessera; but one that uses per-thread default streams gets
    an error."""
    _own(bench, "hw-p-1", 50)
    programs = {name: ([bench.builder.program(f"{name}.cu")], {}) for name in RUNTIME}
    try:
        need("torch"), need("cupy")
        programs |= {" ".join(words): ([sys.executable, FOLDER / words[0], *words[1:]], DETERMINISTIC) for words in PYTHON}
    except Skipped as why:
        bench.tell(why)
    failed = []
    for name, (command, env) in programs.items():
        try:
            compare(bench.native(command, env), bench.inside(command, env, vgpu="hw-p-1"))
        except (Failed, Skipped) as why:
            failed.append(f"{name}: {why}")
            bench.tell(failed[-1])
    threads = bench.inside([bench.builder.program("threads.cu")], vgpu="hw-p-1")
    expect("cudaErrorInvalidResourceHandle" in threads.out, f"per-thread streams: {threads.out[-200:]} {threads.err[-200:]}")
    expect(not failed, f"{len(failed)} of {len(programs)}: {'; '.join(failed)}")
    return f"{len(programs)} programs print the same: {', '.join(programs)}"
