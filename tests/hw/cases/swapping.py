"""Memory that moves at the speed of PCIe: rates, hand-overs and where their time goes, and what busy programs get. Each
figure has its baseline in the same run. In order of importance, since device time may end before the checks do."""
import os
import pathlib
import statistics
import time

from harness.bench import GIB, MIB
from harness.checks import Skipped, expect
from harness.sampler import Sampler, threads
from harness.steering import HIGH, LOW
from harness.swap_ground import (Large, copies, evict, hand_over, load, mark, move, pair, pool_stands, quiet, squeeze,
                                 steps_since, swap)
from harness.timeline import GB, HandOver

LEAST_RATE = 0.97  # of a plain pinned copy
LEAST_PREPARED_RATE = 0.90  # the same, of the first move after the daemon's start
LEAST_LIMIT_RATE = 0.90  # the same, until a write to memory.limit returns
MOST_HAND_OVER_S = 1.35  # of two programs of 60 GiB
LEAST_BUSY = 0.80  # of what two programs reach where all fits
LEAST_HOT = 0.70  # of the speed with everything on the GPU
MOST_ALLOCATION = 1.2  # of the driver's own time


def _judge(bench, condition, figure):
    """On the soft GPU only the way is checked, not the speed."""
    expect(bench.soft or condition, figure)
    return figure


def _floor_s(bench, bytes_):
    """The least that so much can take, half of it in each direction."""
    return bytes_ / copies(bench)[2]


def _who_moves(bench, loser, winner):
    """The threads that take part in a hand-over."""
    daemon, mover = bench.tessera.daemon_pid, bench.tessera.gpu()["swap"]["mover_pid"]
    who = {"daemon": (daemon, daemon), "mover": (mover, mover)}
    for label, program in (("loser", loser), ("winner", winner)):
        for tid in threads(program.pid, "tessera-pager"):
            who[f"{label}'s pager"] = (program.pid, tid)
    return who


@swap(soft=True, limit_s=110)
def profile(bench):
    """Where the time of a hand-over goes: moments and rates by the daemon's log and the program's own clock, and what
    the threads that take part were inside of meanwhile."""
    copies(bench)
    first, second = pair(bench, bench.ground.size)
    taken = []
    for loser, winner in ((second, first), (first, second), (second, first)):
        quiet(bench)
        with Sampler(_who_moves(bench, loser, winner)) as sampler:
            over = hand_over(bench, loser, winner)
        taken.append(over)
        bench.tell(f"{over.seconds:.3f} s, {over.out.bytes / GIB:.1f} GiB out, {over.into.bytes / GIB:.1f} in; "
                   f"floor {_floor_s(bench, over.bytes):.3f} s")
        for line in (*over.describe(), *sampler.describe()):
            bench.tell(f"  {line}")
        for step in over.steps:
            bench.log(f"{(step.at - over.begin) * 1e3:9.2f} {step.who} {step.what} {step.out} {step.into}")
    expect(all(over.out and over.into for over in taken), "nothing was moved")
    first.right()
    second.right()
    details = [[*step] for over in taken for step in over.steps]
    return f"{' '.join(f'{over.seconds:.3f}' for over in taken)} s; words right", details


@swap(soft=True, limit_s=110)
def handover(bench):
    """Five hand-overs between two programs, one of which rests: from the launch to the end of the first kernel."""
    copies(bench)  # while nobody else has memory
    first, second = pair(bench, bench.ground.size)
    taken = []
    for number in range(6):
        loser, winner = (second, first) if number % 2 == 0 else (first, second)
        quiet(bench)
        taken.append(hand_over(bench, loser, winner))
        bench.tell(f"{taken[-1].seconds:.3f} s, {taken[-1].bytes / GIB:.1f} GiB, floor "
                   f"{_floor_s(bench, taken[-1].bytes):.3f} s")
    taken = taken[1:]  # the first one after the start is not like the others
    seconds = statistics.median(over.seconds for over in taken)
    both = statistics.median(over.both_rate() for over in taken)
    floor = statistics.median(_floor_s(bench, over.bytes) for over in taken)
    first.right()
    second.right()
    most = MOST_HAND_OVER_S * bench.ground.size / (60 * GIB)
    return _judge(bench, seconds <= most,
                  f"{seconds:.3f} s (at most {most:.2f}), floor {floor:.3f} s; both ways at once {both / GB:.1f} GB/s, "
                  f"plain copies {copies(bench)[2] / GB:.1f}: {both / copies(bench)[2]:.1%}; words right")


@swap(soft=True, limit_s=60)
def rates(bench):
    """Out and in alone, of 32 GiB where a large program has 60."""
    plain = copies(bench)
    program = Large(bench, bench.ground.part(32), "hw-rates")
    evict(bench, program)  # the first one makes the host memory
    load(bench, program)
    pool_stands(bench, bench.ground.part(32))
    outs, ins, firsts = [], [], []
    for _ in range(3):
        quiet(bench)
        outs.append(evict(bench, program))
        into, first_s = load(bench, program)
        ins.append(into)
        firsts.append(first_s)
        bench.tell(f"out {outs[-1].bytes / GIB:.1f} GiB at {outs[-1].rate / GB:.1f} GB/s, in {into.bytes / GIB:.1f} "
                   f"GiB at {into.rate / GB:.1f} GB/s, first kernel after {first_s:.3f} s")
    program.right()
    out, into = (statistics.median(each.rate for each in side) for side in (outs, ins))
    return _judge(bench, min(out / plain[0], into / plain[1]) >= LEAST_RATE,
                  f"out {out / GB:.1f} GB/s, {out / plain[0]:.1%} of a plain copy; in {into / GB:.1f} GB/s, "
                  f"{into / plain[1]:.1%}; words right")


@swap(soft=True, limit_s=110)
def prepared(bench):
    """The first eviction of a program of 32 GiB (where a large program has 60), within a minute of the daemon's start."""
    plain = copies(bench)
    bench.tessera.stop()
    bench.tessera.start(config=bench.ground.config)
    begin = time.monotonic()
    program = Large(bench, bench.ground.part(32), "hw-prepared")
    pool = lambda: bench.tessera.gpu()["swap"]
    bench.until(lambda: pool()["pool_bytes"] >= max(pool()["pool_goal_bytes"], bench.ground.part(32)),
                "host memory to be prepared", 60)
    ready_s, before = time.monotonic() - begin, pool()["pool_bytes"]
    bench.tell(f"{before / GIB:.1f} GiB prepared {ready_s:.1f} s after the daemon's start")
    quiet(bench)
    out = evict(bench, program)
    expect(pool()["pool_bytes"] == before, f"the move had host memory made: {before} bytes before, {pool()}")
    program.right()
    figure = (f"{out.bytes / GIB:.1f} GiB at {out.rate / GB:.1f} GB/s, {out.rate / plain[0]:.1%} of a plain copy; prepared "
              f"{ready_s:.1f} s after the daemon's start; words right")
    expect(bench.soft or ready_s < 60, figure)
    return _judge(bench, out.rate >= LEAST_PREPARED_RATE * plain[0], figure)


@swap(soft=True, limit_s=90)
def limit(bench):
    """memory.limit of a program that works falls from 40 GiB (where a large program has 60) to 10 by a write to its file;
    the write returns when all of it is out, and the program goes on."""
    files = pathlib.Path(bench.tessera.run_dir) / "fs"
    if not os.path.ismount(files):
        raise Skipped("the daemon has no files here")
    plain = copies(bench)
    program = Large(bench, bench.ground.part(40), "hw-limit")
    evict(bench, program)  # makes the host memory
    load(bench, program)
    pool_stands(bench, bench.ground.part(40))
    maximum = bench.tessera.vgpu("hw-limit")["memory_max_bytes"]
    rates = []
    for _ in range(3):
        quiet(bench)
        before = bench.tessera.vgpu("hw-limit")
        program.tell("busy 4 0 0.1")
        time.sleep(0.5)
        begin = time.monotonic()
        (files / "vgpus/hw-limit/memory.limit").write_text(f"{bench.ground.part(10)}\n")
        seconds = time.monotonic() - begin
        after = bench.tessera.vgpu("hw-limit")
        expect(after["memory_resident_bytes"] <= bench.ground.part(10), f"too much is on the GPU: {after}")
        expect(after["memory_max_bytes"] == maximum, f"the maximum followed: {after}")
        rates.append((before["memory_resident_bytes"] - after["memory_resident_bytes"]) / seconds)
        bench.tell(f"the write returned after {seconds:.3f} s: {rates[-1] / GB:.1f} GB/s")
        kernels, _, ended = program.told()
        expect(kernels > 0 and ended > begin + seconds, f"the program did not work while the limit fell: {kernels} kernels")
        raised = mark(bench)
        (files / "vgpus/hw-limit/memory.limit").write_text("max\n")
        program.ask("pass 1")
        move(bench, program, "in", raised)
        program.right()
    rate = statistics.median(rates)
    return _judge(bench, rate >= LEAST_LIMIT_RATE * plain[0],
                  f"{rate / GB:.1f} GB/s, {rate / plain[0]:.1%} of a plain copy; words right")


@swap(soft=True, limit_s=60)
def long_kernel(bench):
    """A program of a higher class comes while another one is in the middle of a long kernel."""
    seconds = 3 if bench.soft else 10
    copies(bench)
    squeeze(bench, bench.ground.part(24))
    first = Large(bench, bench.ground.part(18), "hw-a", compute_priority=LOW)
    second = Large(bench, bench.ground.part(18), "hw-b", compute_priority=HIGH)
    pool_stands(bench, bench.ground.part(36))
    for program in (second, first):
        program.ask("pass 1")
    quiet(bench)
    begin = mark(bench)
    (launched,) = first.ask(f"long {seconds}")
    asked, done, _ = second.ask("pass 1", seconds + 60)
    (ended,) = first.ask("wait", seconds + 60)
    over = HandOver(steps_since(bench, begin), first.pid, second.pid, asked, done)
    for line in over.describe():
        bench.tell(f"  {line}")
    first.right()
    second.right()
    figure = (f"first kernel after {done - asked:.3f} s ({over.bytes / GIB:.1f} GiB, floor "
              f"{_floor_s(bench, over.bytes):.3f} s); the kernel of {seconds} s ended after {ended - launched:.2f} s")
    expect(done < launched + seconds <= ended + 0.01, figure)
    expect(over.out and over.into, f"nothing was moved: {figure}")
    return f"{figure}; words of both right"


@swap(soft=True, limit_s=90)
def busy(bench):
    """Two busy programs that together have 150 % of the memory, against one of them alone."""
    squeeze(bench, bench.ground.part(24))
    first, second = pair(bench, bench.ground.part(18))
    for _ in range(2):  # turns follow what the last few moves took
        quiet(bench)
        hand_over(bench, first, second)
        quiet(bench)
        over = hand_over(bench, second, first)
    alone = first.rate(2)
    seconds = max(6, min(40 * over.seconds, 8 if bench.soft else 36))  # some four turns
    begin = mark(bench)
    for program in (first, second):
        program.tell(f"busy {seconds} 0 1")
    told = [program.told(seconds + 60) for program in (first, second)]
    together = [kernels / (end - start) for kernels, start, end in told]
    steps = steps_since(bench, begin)
    moved = sum(step.out + step.into for step in steps if step.what == "moved")
    turns = sum(step.what == "runs" and step.who in (first.pid, second.pid) for step in steps)
    first.right()
    second.right()
    share = sum(together) / alone
    figure = (f"{' + '.join(f'{rate / alone:.0%}' for rate in together)} = {share:.1%} of one alone, in {seconds:.0f} "
              f"s; {moved / GIB:.0f} GiB moved, {turns} turns; words right")
    expect(moved > 0 and turns >= 2, f"they took no turns: {figure}")
    return _judge(bench, share >= LEAST_BUSY, figure)


def _settled(bench, program, from_, to, enough, most_s):
    """(kernels a second once that is enough or nothing changes any more, seconds until then)."""
    begin = time.monotonic()
    while True:
        before = time.monotonic() - begin
        rate = program.rate(1, from_, to)
        if rate >= enough or before >= most_s:
            return program.rate(2, from_, to), before


@swap(soft=True, limit_s=80)
def hot(bench):
    """One program at 125 % of its limit, which works on one half of its memory, then the other; all of it, for
    comparison."""
    limit = bench.ground.part(16)
    bytes_ = limit * 5 // 4
    told = []
    whole = Large(bench, bytes_, "hw-hot", memory_limit=2 * limit)
    best = whole.rate(2)
    whole.end()
    program = Large(bench, bytes_, "hw-hot", memory_limit=limit, memory_max=2 * limit)
    speeds = []
    for what, from_, to in (("first half", 0, 0.5), ("second half", 0.5, 1), ("first half again", 0, 0.5)):
        program.ask(f"pass 1 {from_} {to}", 120)
        rate, after_s = _settled(bench, program, from_, to, LEAST_HOT * best, 3 if bench.soft else 12)
        speeds.append(rate / best)
        told.append(f"{what} {speeds[-1]:.1%} after {after_s:.0f} s")
        bench.tell(told[-1])
    program.ask("pass 1 0 1", 120)
    told.append(f"all of it {program.rate(3) / best:.1%}")
    program.right(120)
    row = bench.tessera.process(program.pid)
    expect(row["memory_swapped_bytes"] > 0 or row["moved_out_bytes"] > 0, "nothing of it was ever out")
    return _judge(bench, min(speeds) >= LEAST_HOT, f"{', '.join(told)} of the speed with all on the GPU; words right")


@swap(soft=True, limit_s=40)
def alloc(bench):
    """cuMemAlloc and cuMemFree of 1 KiB, 2 MiB, 1 GiB against the driver's own."""
    medians, most = [], 64 * MIB if bench.soft else GIB
    for native in (True, False):
        program = Large(bench, 0, "hw-alloc", native=native)
        medians.append(program.ask(f"costs {most}"))
        program.end()
    plain, ours = medians
    names = [f"{what} {size}" for size in ("1 KiB", "2 MiB", f"{most // MIB} MiB") for what in ("alloc", "free")]
    rows = ", ".join(f"{name} {b:.1f} ({a:.1f})" for name, a, b in zip(names, plain, ours))
    fine = all(b <= MOST_ALLOCATION * a for a, b in zip(plain, ours))
    return _judge(bench, fine, f"{rows} us, in brackets without"), medians
