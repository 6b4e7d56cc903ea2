"""How memory was moved, step by step, by what the daemon logs of it at debug level (src/server/swap/residency_trace.h)."""
import re
from typing import NamedTuple

GB = 1e9
PARTS = 10  # of the time that a move takes, for its rates
_LINE = re.compile(r"memory at ([0-9.]+): (process|vGPU) (\S+) (\S+) (\d+)(?: (\d+))?")


class Step(NamedTuple):
    at: float  # seconds of CLOCK_MONOTONIC
    who: object  # a pid, or a vGPU's name
    what: str
    out: int  # bytes; of a vGPU: its target
    into: int


def parse(lines):
    steps = []
    for line in lines:
        found = _LINE.search(line)
        if found:
            at, kind, who, what, out, into = found.groups()
            steps.append(Step(float(at), int(who) if kind == "process" else who, what, int(out), int(into or 0)))
    return steps


class Move:
    """The moves of one process in one direction ("out" or "in"); falsy if nothing was."""

    def __init__(self, steps, pid, direction):
        own = [step for step in steps if step.who == pid]
        end = "evicted" if direction == "out" else "loaded"
        self.orders = [step for step in own if step.what == f"orders-{direction}"]
        moved = [(step.at, step.out if direction == "out" else step.into) for step in own if step.what == "moved"]
        self.batches = [(at, moved_bytes) for at, moved_bytes in moved if moved_bytes]
        self.ends = [step.at for step in own if step.what == end]
        self.bytes = sum(moved_bytes for _, moved_bytes in self.batches)

    def __bool__(self):
        return bool(self.orders and self.batches)

    @property
    def begin(self):
        return self.orders[0].at

    @property
    def end(self):
        return max([self.batches[-1][0], *self.ends])

    @property
    def rate(self):
        """Bytes a second, from the first order to the last end."""
        return self.bytes / max(self.end - self.begin, 1e-9)

    def longest_pause(self):
        """(seconds, when it began) between two batches, the order in front of the first one."""
        times = [self.begin, *(at for at, _ in self.batches)]
        return max((b - a, a) for a, b in zip(times, times[1:]))

    def rates(self, begin, end):
        """Bytes a second in equal parts of that time."""
        span = max(end - begin, 1e-9) / PARTS
        sums = [0] * PARTS
        for at, moved in self.batches:
            sums[min(PARTS - 1, max(0, int((at - begin) / span)))] += moved
        return [moved / span for moved in sums]


class HandOver:
    """One process's memory came in for its first kernel (launched at `begin`, done at `first`), another's went out."""

    def __init__(self, steps, loser, winner, begin, first):
        self.steps = [step for step in steps if step.at <= first + 0.1]
        self.loser, self.winner, self.begin, self.first = loser, winner, begin, first
        self.out, self.into = Move(self.steps, loser, "out"), Move(self.steps, winner, "in")

    @property
    def seconds(self):
        return self.first - self.begin

    @property
    def bytes(self):
        return self.out.bytes + self.into.bytes

    def both_rate(self):
        """Bytes a second in both directions together, from the first order to the last end."""
        begin = min(self.out.begin, self.into.begin)
        return self.bytes / max(self.out.end - begin, self.into.end - begin, 1e-9)

    def _at(self, who, what, last=False):
        times = [step.at for step in self.steps if step.who == who and step.what == what and step.at >= self.begin]
        return None if not times else times[-1] if last else times[0]

    def moments(self):
        """(what, milliseconds after the launch) of what happened, in order."""
        found = [("daemon's first step", min((s.at for s in self.steps if s.at >= self.begin), default=None)),
                 ("loser stops", self._at(self.loser, "stops")), ("winner stops", self._at(self.winner, "stops"))]
        for move, name in ((self.out, "out"), (self.into, "in")):
            if move:
                found += [(f"{name} ordered", move.begin), (f"first bytes {name}", move.batches[0][0]),
                          (f"last bytes {name}", move.batches[-1][0])]
                found += [(f"{name} ended", move.ends[-1])] if move.ends else []
        found += [("settling", self._at(self.winner, "orders-settle", True)),
                  ("settled", self._at(self.winner, "settled", True)),
                  ("winner runs", self._at(self.winner, "runs", True)), ("first kernel done", self.first)]
        told = [(name, (at - self.begin) * 1e3) for name, at in found if at is not None]
        return sorted(told, key=lambda pair: pair[1])

    def describe(self):
        """Lines for people."""
        lines = ["  ".join(f"{name} {ms:.1f}" for name, ms in self.moments()) + "  (ms after the launch)"]
        for move, name in ((self.out, "out"), (self.into, "in")):
            if not move:
                lines.append(f"nothing moved {name}")
                continue
            pause, at = move.longest_pause()
            rates = " ".join(f"{rate / GB:.3g}" for rate in move.rates(self.begin, self.first))
            lines.append(f"{name} {move.bytes / 2**30:.1f} GiB in {len(move.orders)} orders, {len(move.batches)} "
                         f"batches: {move.rate / GB:.1f} GB/s; by tenths of the whole: {rates} GB/s; longest pause "
                         f"{pause * 1e3:.1f} ms at {(at - self.begin) * 1e3:.1f}")
        return lines
