"""Programs that nobody started through Tessera: found, adopted, frozen, and out of a higher class's way."""
import json
import time

from cases.boundary import opencl_environment, vulkan_environment
from harness.checks import expect
from harness.steering import HIGH, LOW, inside, latencies, latency, native, percentile, steer, ticker

STEPS = 400_000  # of a kernel: about a millisecond on a GPU of today
MOST_ADDED_US = 1500  # p50 of a short kernel of a higher class beside it


def _listed(bench, pid):
    rows = json.loads(bench.cli("ps", "--json"))["processes"]
    return next((row for row in rows if row["pid"] == pid), None)


def _with_memory(row):
    return row if row and (row["memory_bytes"] or row["memory_measured_bytes"]) else None


def _adopt(bench, argv, env=None):
    alone = native(bench, latency(bench))
    steps, base = alone.extra, latencies(bench, alone, 50)
    alone.result()
    stray = native(bench, argv, env)
    stray.moves(20)
    row = bench.until(lambda: _listed(bench, stray.pid), "it is listed", 10)
    expect(row["managed"] is False and row["vgpu"] is None, f"it is called managed: {row}")
    row = bench.until(lambda: _with_memory(_listed(bench, stray.pid)), f"its memory is known: {row}", 10)
    expect(row["channels"] > 0, f"its channels are not known: {row}")
    bench.vgpu("hw-adopted", compute_priority=LOW)
    bench.cli("adopt", str(stray.pid), "--vgpu", "hw-adopted")
    adopted = _listed(bench, stray.pid)
    expect(adopted["adopted"] and adopted["vgpu"] == "hw-adopted", f"it is not adopted: {adopted}")
    bench.cli("freeze", str(stray.pid))
    settled = stray.moved_in(0.02)  # a program that counts whole kernels may hear of one late
    moved = stray.moved_in(0.3)
    bench.cli("thaw", str(stray.pid))
    stray.moves()
    bench.vgpu("hw-above", compute_priority=HIGH)
    high = inside(bench, latency(bench, steps=steps), vgpu="hw-above")
    beside = latencies(bench, high, 50)
    high.result()
    stray.moves()
    stray.result()
    added = percentile(beside, 50) - percentile(base, 50)
    memory = max(row["memory_bytes"] or 0, row["memory_measured_bytes"] or 0)
    figure = (f"{row['channels']} channels, {memory >> 20} MiB; frozen it moved {moved} (+{settled} "
              f"at once); a 0.5 ms kernel of a higher class beside it {percentile(beside, 50):.0f} us, alone "
              f"{percentile(base, 50):.0f}; results right")
    expect(moved == 0 and added <= MOST_ADDED_US, figure)
    return figure, {"alone_us": base, "beside_us": beside, "row": row}


@steer(limit_s=60)
def adopt_cuda(bench):
    return _adopt(bench, ticker(bench))


@steer(limit_s=60)
def adopt_opencl(bench):
    return _adopt(bench, [bench.builder.program("ocl_limit.c"), "busy", STEPS], opencl_environment())


@steer(limit_s=60)
def adopt_vulkan(bench):
    return _adopt(bench, [bench.builder.program("vulkan_limit.c"), "busy", STEPS], vulkan_environment())


@steer(limit_s=60, soft=True)
def adopt_idle(bench):
    """One of a high class keeps others off only while it works, which the driver's samples tell."""
    bench.vgpu("hw-below", compute_priority=LOW)
    low = inside(bench, ticker(bench), vgpu="hw-below")
    low.moves(20)
    stray = native(bench, ticker(bench))
    stray.moves(20)
    bench.until(lambda: _with_memory(_listed(bench, stray.pid)), "its memory is known", 10)
    bench.vgpu("hw-aloft", compute_priority=HIGH)
    bench.cli("adopt", str(stray.pid), "--vgpu", "hw-aloft")
    bench.until(lambda: low.moved_in(0.2) == 0, "the lower one is off the GPU", 5)
    figures = []
    for _ in range(3):
        still = low.moved_in(3) == 0  # as long as the other works
        begin = time.monotonic()
        stray.ask("rest")
        bench.until(lambda: low.moved_in(0.1) > 0, "the lower one goes on", 15)
        idle_seen = time.monotonic() - begin
        begin = time.monotonic()
        stray.ask("work")
        bench.until(lambda: low.moved_in(0.1) == 0, "the lower one is off the GPU again", 15)
        figures.append((still, idle_seen, time.monotonic() - begin))
    stray.result()
    low.result()
    text = "idle seen after " + ", ".join(f"{idle:.1f}" for _, idle, _ in figures) + " s, work after "
    text += ", ".join(f"{work:.1f}" for _, _, work in figures) + " s"
    expect(all(still for still, _, _ in figures), f"the lower one ran while the other worked; {text}")
    return text, {"figures": figures}
