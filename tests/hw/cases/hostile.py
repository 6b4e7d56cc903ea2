"""Programs that speak to the kernel driver by themselves, to get more than they were given or to hurt a neighbour."""
import contextlib

from harness.bench import GIB, MIB
from harness.checks import Failed, expect
from harness.steering import Worker, daemon_stands, driver_path, inside, run_ok, steer, ticker

NO_MEMORY = 0x51  # of the resource manager


def _groups(bench, pid):
    """The channels of a process, as the daemon knows them: [(client, [channel])]."""
    rows = bench.tessera.get("/v1/processes?channels=1")["processes"]
    row = next((p for p in rows if p["pid"] == pid), None)
    groups = [(g["client"], g["channels"]) for g in (row or {}).get("groups", []) if g["channels"]]
    expect(groups, f"the daemon told no channels of {pid}")
    return groups


def _attack(bench, groups, action, **options):
    """The attacker's status for each group."""
    statuses = []
    for client, channels in groups:
        argv = [bench.builder.program("hostile.cpp"), "channels", hex(client), action, *map(hex, channels)]
        done = run_ok(bench, argv, **options)
        statuses.append(int(done.out.split()[-1], 16))
    return statuses


@steer(limit_s=60)
def hostile_neighbour(bench):
    """Somebody takes a neighbour's channels off the GPU: the kernel gate refuses it."""
    bench.vgpu("hw-victim")
    victim = inside(bench, ticker(bench), vgpu="hw-victim")
    victim.moves()
    groups = _groups(bench, victim.pid)
    refused = _attack(bench, groups, "disable", enforce="kernel")
    moved = victim.moved_in(0.3)
    open_statuses = _attack(bench, groups, "disable", enforce="shim")
    moved_without = victim.moved_in(0.3)
    _attack(bench, groups, "enable", enforce="shim")
    victim.moves(5)
    victim.result()
    figure = (f"with the gate status {', '.join(map(hex, refused))} and the victim runs; without "
              f"{', '.join(map(hex, open_statuses))} and the victim {'runs' if moved_without else 'stands still'}")
    expect(all(refused) and moved > 0, figure)
    return figure


def _number(answer, place=1):
    return int(answer.split()[place], 0)


def _self(bench, enforce, name, limit):
    """Actions by which a program may try to gain: {action: (text, whether it got something by it)}."""
    bench.vgpu(name, memory_limit=limit)
    argv = [bench.builder.program("hostile.cpp"), "self", driver_path(bench), 1000]
    rogue = Worker(bench, bench.start_inside(argv, vgpu=name, enforce=enforce))
    rogue.moves()
    tries = {}
    told = rogue.ask("slice 100000")
    status, before, after = (int(word, 0) for word in told.split()[1:4])
    tries["slice"] = f"{status:#x}, {before} us then {after}", status == 0 and after != before
    for order, arguments in (("interleave", " 2"), ("preempt", "")):
        status = _number(rogue.ask(order + arguments))
        tries[order] = f"{status:#x}", None if enforce == "kernel" else status == 0
    bench.tessera.freeze(rogue.pid)
    try:
        rogue.moved_in(0.02)
        still = rogue.moved_in(0.05)
        status = _number(rogue.ask("thaw"))
        moved = rogue.moved_in(0.2)
        tries["thaw"] = f"{status:#x}{'' if still == 0 else ' (it never stood still)'}", moved > 0
    finally:
        bench.tessera.thaw(rogue.pid)
    rogue.moves()
    told = rogue.ask(f"memory {limit + 2 * GIB}", 60)
    got, status = _number(told), _number(told, 2)
    tries["memory"] = f"{got // MIB} MiB of a limit of {limit // MIB}, then {status:#x}", got + 64 * MIB > limit
    expect(enforce != "kernel" or got >= limit or status == NO_MEMORY, f"memory was refused with {status:#x}")
    rogue.result()
    return tries


@steer(limit_s=90)
def hostile_self(bench):
    """A program raises its own slice, thaws itself, and takes memory by the ioctl itself."""
    limit = 4 * GIB
    gated = _self(bench, "kernel", "hw-rogue", limit)
    figure = "gate: " + ", ".join(f"{what} {text}" for what, (text, _) in gated.items())
    with contextlib.suppress(Failed, RuntimeError, TimeoutError):  # told, not judged: nothing is promised there
        open_ = _self(bench, "shim", "hw-rogue-free", limit)
        figure += "; without: " + ", ".join(f"{what} {text}" for what, (text, _) in open_.items())
    succeeded = [what for what, (_, won) in gated.items() if won]
    expect(not succeeded, f"{', '.join(succeeded)} got through: {figure}")
    daemon_stands(bench)
    return figure, gated


@steer(soft=True, limit_s=60)
def contexts_frozen(bench):
    """A program that makes contexts all the time, frozen and thawed: no new channel slips by, no result is wrong."""
    bench.vgpu("hw-contexts")
    worker = inside(bench, [bench.builder.program("context_loop.cc")], vgpu="hw-contexts")
    worker.moves(20)
    slipped, made = [], 0
    for _ in range(5):
        bench.tessera.freeze(worker.pid)
        slipped.append(worker.moved_in(0.05))  # one may have been about to end
        slipped[-1] = max(0, slipped[-1] - 1)
        slipped[-1] += worker.moved_in(1.2)
        bench.tessera.thaw(worker.pid)
        worker.moves(10)
        made += worker.moved_in(0.8)
    total = worker.result(30)
    figure = f"{total} contexts, {made} between the freezes, {sum(slipped)} in five freezes of 1.2 s; results right"
    expect(not any(slipped), figure)
    daemon_stands(bench)
    return figure
