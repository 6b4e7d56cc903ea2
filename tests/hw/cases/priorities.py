"""A program of a higher class finds the GPU as if it were alone, whatever a lower one does on it."""
from harness.checks import expect
from harness.steering import HIGH, LOW, control, inside, latencies, latency, native, p50_p99, percentile, steer, ticker

LONG_KERNEL_US = 100_000
SHORT_KERNEL_US = 500
COUNT = 200
MOST_ADDED_P50_US = 1500  # a message to the daemon and a freeze, beyond the same launch alone
MOST_ADDED_P99_US = 3000


def _steered(bench, steps, low_steps, count):
    bench.vgpu("hw-high", compute_priority=HIGH)
    bench.vgpu("hw-low", compute_priority=LOW)
    low = inside(bench, ticker(bench, LONG_KERNEL_US, low_steps), vgpu="hw-low")
    high = inside(bench, latency(bench, SHORT_KERNEL_US, steps), vgpu="hw-high")
    before = low.count()
    times = latencies(bench, high, count)
    got_on = low.count() - before
    high.result()
    low.result(60)
    return times, got_on


@steer(soft=True, limit_s=200)
def long_kernel(bench):
    """A 0.5 ms kernel every 40 ms beside one of 100 ms that a lower class runs permanently: launch to end."""
    count = 40 if bench.soft else COUNT
    alone = native(bench, latency(bench, SHORT_KERNEL_US))
    times = {"alone": latencies(bench, alone, count)}
    steps = alone.extra
    neighbour = native(bench, ticker(bench, LONG_KERNEL_US))
    low_steps = neighbour.extra  # calibrated while the other was idle
    neighbour.moves()
    times["default slices"] = latencies(bench, alone, count)
    neighbour.result()
    alone.result()
    with bench.daemon():
        control(bench)
        times["steered"], got_on = _steered(bench, steps, low_steps, count)
        calls = control(bench)["driver_calls"]
    with bench.daemon('[channels]\ncontrol = "off"\n'):
        times["gate alone"], _ = _steered(bench, steps, low_steps, count)
    figure = "; ".join(f"{how} {p50_p99(us, ' us')}" for how, us in times.items())
    figure += f"; the lower class got on by {got_on}, {calls} driver calls"
    added50 = percentile(times["steered"], 50) - percentile(times["alone"], 50)
    added99 = percentile(times["steered"], 99) - percentile(times["alone"], 99)
    expect(got_on > 0, f"the lower class never ran: {figure}")
    expect(bench.soft or (added50 <= MOST_ADDED_P50_US and added99 <= MOST_ADDED_P99_US), figure)
    return figure, times
