"""Freeze and thaw by the operator: what it costs, whether it holds, and that nothing is lost by it."""
import os
import random
import signal
import time

from harness.bench import GIB, MIB
from harness.checks import expect
from harness.steering import (control, frozen, inside, memory_used_by_gpu, p50_p99, percentile, rest, steer, ticker)

MOST_CALL_US = 1000  # p99 of the driver's own calls
MOST_ROUND_US = 3000  # p99 of a request over HTTP, connection included
SAMPLE_EVERY = 25  # freezes for each look at whether it really stands


def _freeze_many(bench, kernel_us):
    count = int(bench.options.get("freeze.count", 100 if bench.soft else 1000))
    source = random.Random(1)
    freeze_us, thaw_us, samples, strays = [], [], 0, []
    with bench.daemon():  # its own count of calls begins at 0
        bench.vgpu("hw-freeze")
        worker = inside(bench, ticker(bench, kernel_us), vgpu="hw-freeze")
        worker.moves()
        by = control(bench)
        for number in range(count):
            freeze_us.append(bench.tessera.freeze(worker.pid))
            if number % SAMPLE_EVERY == 0:
                time.sleep(0.003)
                moved = worker.moved_in(0.03)
                strays += [moved] if moved else []
                samples += 1
            thaw_us.append(bench.tessera.thaw(worker.pid))
            if number % SAMPLE_EVERY == 0:
                worker.moves(2)
            rest(source)
        expect(not frozen(bench, worker.pid), "it is still called frozen")
        by = control(bench)
        kernels = worker.result()
    calls = (f"driver freeze {by['freeze_p50_us']:.0f} / {by['freeze_p99_us']:.0f}, "
             f"thaw {by['thaw_p50_us']:.0f} / {by['thaw_p99_us']:.0f} us")
    figure = (f"{count} x: {calls}; round trip {p50_p99(freeze_us)}, {p50_p99(thaw_us)} us; "
              f"still in {samples - len(strays)} of {samples} looks; results right")
    expect(not strays, f"it moved while frozen: {figure}")
    expect(by["freezes"] >= count and by["thaws"] >= count, f"{by['freezes']} freezes, {by['thaws']} thaws; {figure}")
    if not bench.soft:
        expect(max(by["freeze_p99_us"], by["thaw_p99_us"]) <= MOST_CALL_US, figure)
        expect(max(percentile(freeze_us, 99), percentile(thaw_us, 99)) <= MOST_ROUND_US, figure)
    return figure, {"freeze_us": freeze_us, "thaw_us": thaw_us, "control": by, "count": kernels}


@steer(soft=True, limit_s=90)
def freeze_1ms(bench):
    """1,000 freezes and thaws of a process that saturates the GPU with kernels of 1 ms."""
    return _freeze_many(bench, 1000)


@steer(soft=True, limit_s=90)
def freeze_100ms(bench):
    """The same with kernels of 100 ms: they are stopped in the middle."""
    return _freeze_many(bench, 100_000)


@steer(soft=True, limit_s=40)
def dies_frozen(bench):
    """A frozen process that is killed gives its memory back at once."""
    bytes_held = (256 * MIB) if bench.soft else 4 * GIB
    bench.vgpu("hw-dies")
    before = None if bench.soft else memory_used_by_gpu()
    worker = inside(bench, ticker(bench, memory=bytes_held), vgpu="hw-dies")
    worker.moves()
    bench.tessera.freeze(worker.pid)
    os.kill(worker.pid, signal.SIGKILL)
    killed = time.monotonic()
    bench.until(lambda: bench.tessera.vgpu("hw-dies")["memory_current_bytes"] == 0, "the ledger is empty", 5, 0.002)
    ledger_ms = (time.monotonic() - killed) * 1e3
    figure = f"ledger empty after {ledger_ms:.0f} ms"
    if before is not None:
        bench.until(lambda: memory_used_by_gpu() <= before + 64, "the GPU's memory is free again", 5)
        figure += f", {bytes_held // GIB} GiB free on the GPU after {(time.monotonic() - killed) * 1e3:.0f} ms"
    expect(not bench.tessera.process(worker.pid), "the dead one is still listed")
    after = inside(bench, ticker(bench), vgpu="hw-dies")  # what the dead one was in lets others run
    after.moves()
    after.result()
    return figure + "; the next in that vGPU runs"
