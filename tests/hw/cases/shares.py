"""Weights and caps of busy programs, by the kernels that they complete."""
import statistics
import time

from harness import tenants
from harness.checks import expect
from harness.steering import control, steer

MOST_MEAN_ERROR = 2.0  # percent of what a program should get, mean of the programs
LEAST_SUM = 98.0  # percent of what one alone gets
CAP_POINTS = 0.5
MOST_CALLS_PER_S = 100
CONVERGED = 0.05  # of the target
MOST_CONVERGENCE_MS = 500


def _start(bench, names, iterations):
    running = [tenants.start(bench, 120, iterations, vgpu=name) for name in names]
    for tenant in running:
        bench.until(tenant.kernels, "all compute", 20)
    return running


def _stop(running):
    for tenant in running:
        tenant.program.kill()


def _weighted(bench, weights, rate, iterations, seconds):
    """(mean error in percent, Jain's index, sum in percent of one alone, shares in percent of the sum)."""
    names = [f"hw-share-{number}" for number in range(len(weights))]
    for name, weight in zip(names, weights):
        bench.vgpu(name, compute_weight=weight)
    running = _start(bench, names, iterations)
    begin, end = tenants.window(bench, 1.0, seconds)
    rates = [tenant.rate(begin, end) for tenant in running]
    _stop(running)
    due = [weight / sum(weights) * sum(rates) for weight in weights]
    error = statistics.mean(abs(got - wanted) / wanted for got, wanted in zip(rates, due)) * 100
    fair = [got / weight for got, weight in zip(rates, weights)]
    jain = sum(fair) ** 2 / (len(fair) * sum(f * f for f in fair))
    return error, jain, sum(rates) / rate * 100, [got / sum(rates) * 100 for got in rates]


@steer(soft=True, limit_s=120)
def weights(bench):
    """1:1, 2:1, 7:1, four and eight equal ones."""
    control(bench)
    rate, iterations = tenants.solo(bench)
    rows, figure = {}, []
    for wanted in ((1, 1), (2, 1), (7, 1), (1,) * 4, (1,) * 8):
        wanted = [100 * weight for weight in wanted]
        error, jain, total, got = _weighted(bench, wanted, rate, iterations, 3.0 if bench.soft else 5.0)
        name = f"{wanted[0] // 100}:1" if len(wanted) == 2 else f"{len(wanted)} equal"
        rows[name] = {"error_pct": error, "jain": jain, "sum_pct": total, "shares_pct": got}
        figure.append(f"{name} off {error:.1f} %, Jain {jain:.4f}, sum {total:.1f}")
        bench.log(f"{figure[-1]}: {' '.join(f'{share:.1f}' for share in got)} %")
    figure = "; ".join(figure)
    wrong = [name for name, row in rows.items()
             if row["error_pct"] > MOST_MEAN_ERROR or (not bench.soft and row["sum_pct"] < LEAST_SUM)]
    expect(not wrong, f"{', '.join(wrong)} out of bounds: {figure}")
    return figure, rows


def _off(running, targets, begin_us, end_us):
    """The worst distance from a target, as a part of that target."""
    rates = [tenant.rate(begin_us, end_us) for tenant in running]
    return max(abs(got / sum(rates) - target) / target for got, target in zip(rates, targets))


@steer(soft=True, limit_s=60)
def convergence(bench):
    """After `tessera vgpu set --weight` of one of two: when every second from then on is within 5 % of the aim."""
    span_us = 1_000_000  # 25 turns of 35 and 5 ms: one more or less of the short ones is 4 % of them
    control(bench)
    _, iterations = tenants.solo(bench, 1.0)
    names = ["hw-turn-a", "hw-turn-b"]
    for name in names:
        bench.vgpu(name, compute_weight=100)
    running = _start(bench, names, iterations)
    time.sleep(bench.left(1.0))
    took, series = {}, {}
    for weight in (200, 700, 100):
        bench.cli("vgpu", "set", names[0], "--weight", str(weight))
        changed = tenants.now_us()
        time.sleep(bench.left(3.5))
        targets = [weight / (weight + 100), 100 / (weight + 100)]
        offs = [_off(running, targets, changed + at, changed + at + span_us) for at in range(0, 2_300_000, 100_000)]
        late = [number for number, off in enumerate(offs) if off > CONVERGED]
        # inf: not before the end of the looking.
        took[weight] = 0 if not late else (late[-1] + 1) * 100 if late[-1] + 1 < len(offs) else float("inf")
        series[weight] = offs
    _stop(running)
    figure = ", ".join(f"to {weight // 100}:1 {ms:.0f} ms" for weight, ms in took.items())
    bench.log(series)
    expect(bench.soft or max(took.values()) <= MOST_CONVERGENCE_MS, figure)
    return figure, {"ms": {weight: ms if ms < 1e9 else None for weight, ms in took.items()}, "off": series}


@steer(soft=True, limit_s=60)
def caps(bench):
    """Limits of 10, 20, 30 and 50 % of one busy program, held by freezing it: share of solo, and the calls it takes."""
    rate, iterations = tenants.solo(bench)
    bench.vgpu("hw-cap")
    tenant = tenants.start(bench, 60, iterations, vgpu="hw-cap")
    rows, figure = {}, []
    for cap in (10, 20, 30, 50):
        bench.tessera.set("hw-cap", compute_limit=cap)
        time.sleep(bench.left(0.6))
        calls = control(bench)["driver_calls"]
        begin, end = tenants.window(bench, 0, 5.0)
        calls_per_s = (control(bench)["driver_calls"] - calls) / 5.3  # window() waits 0.3 s more
        share = tenant.rate(begin, end) / rate * 100
        rows[cap] = {"share_pct": share, "calls_per_s": calls_per_s}
        figure.append(f"{cap}: {share:.2f} % ({calls_per_s:.0f} calls/s)")
    tenant.program.kill()
    after, _ = tenants.solo(bench, 1.0)
    figure = f"{', '.join(figure)} of solo ({rate:.0f}/s before, {after:.0f}/s after)"
    points = 1.5 if bench.soft else CAP_POINTS
    expect(all(abs(row["share_pct"] - cap) <= points for cap, row in rows.items()), figure)
    expect(all(row["calls_per_s"] <= MOST_CALLS_PER_S for row in rows.values()), figure)
    return figure, rows
