"""Whether the vGPUs of a space run at once or in turns: what the trial chooses, beside what was measured."""
import math

from harness import members
from harness.bench import MIB
from harness.checks import expect
from harness.members import space

GOAL = "speed=5%"  # kept in both modes, so that speed decides
MOST_OFF = 0.12  # of the gain that was measured, that of the trial
WIDTH = 50


class _Sweeper:
    """A program that sweeps over its memory, with a rate as a tenant has."""

    def __init__(self, bench, vgpu, mib, seconds):
        command = [bench.builder.program("sweep.cu"), mib * MIB, seconds]
        self._bench, self.program, self._points = bench, bench.start_inside(command, vgpu=vgpu), []
        self._note(bench.line(self.program))

    def _note(self, line):
        at, count = line.split()
        self._points.append((float(at), int(count)))

    def rate(self, begin_us, end_us):
        for line in self.program.pending():
            self._note(line)
        inside = [point for point in self._points if begin_us <= point[0] * 1e6 <= end_us]
        (t0, n0), (t1, n1) = inside[0], inside[-1]
        return (n1 - n0) / (t1 - t0)


def _pair(bench, what, start):
    """(gain of running at once over turns as measured, gain as the trial says, the mode that it chose) of two programs."""
    names, alone = [f"hw-mode-{what}-{i}" for i in (1, 2)], []
    within = f"hw-m-{what}"
    for name in names:
        members.member(bench, name, within, sm_limit=WIDTH)
    running = [start(names[0])]
    alone = members.rate(bench, running[0])
    running.append(start(names[1]))
    rates = members.rates(bench, running, 0.5, 2)
    gain = math.exp(sum(math.log(rate / (alone / 2)) for rate in rates) / 2)
    for name in names:
        bench.tessera.set(name, goal=GOAL)
    shown = bench.until(lambda: (s := bench.tessera.get(f"/v1/spaces/{within}"))["mode_tried_ago_us"] is not None and s, "a trial", 20)
    members.stop(*running)
    for name in names:
        bench.tessera.delete(name)
    bench.tell(f"{what}: measured {gain:.2f}, trial {shown['mode_gain']:.2f}: {shown['mode']}, {shown['mode_why']}")
    return gain, shown["mode_gain"], shown["mode"]


@space(limit_s=150)
def modes(bench):
    """Two programs that compute, two that are bound by the memory's bandwidth, and two that each fill the cache."""
    _, iterations = members.solo(bench)
    kinds = {"compute": lambda name: members.start(bench, name, 60, iterations)}
    kinds |= {f"sweep_{mib}": lambda name, mib=mib: _Sweeper(bench, name, mib, 60) for mib in (16, 24, 32, 2048)}
    rows = {what: _pair(bench, what, start) for what, start in kinds.items()}
    figure = "; ".join(f"{what} {measured:.2f}, trial {told:.2f}, {mode}" for what, (measured, told, mode) in rows.items())
    figure = f"speed at once over turns: {figure}"
    bench.log(rows)
    expect(all(abs(told / measured - 1) <= MOST_OFF for measured, told, _ in rows.values()), figure)
    return figure, rows
