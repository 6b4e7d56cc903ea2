"""How much of what programs have is pinned while they run."""
from harness.bench import MIB
from harness.checks import expect

APART = ("context", "driver")  # what the driver has for itself
MOST_SHARE = 0.02


class Pinned:
    """What the daemon says of one program after the other, contexts and the driver's own apart. Counts when a program has
    at least half of what it had at its most: at its beginning everything is small."""

    def __init__(self):
        self._rows = []  # (allocated, pinned, by reason)

    def note(self, process):
        by = {reason: bytes_ for reason, bytes_ in process["memory_pinned_by"].items() if bytes_}
        apart = sum(by.get(reason, 0) for reason in APART)
        allocated = process["memory_bytes"] - apart
        if allocated > 0:
            self._rows.append((allocated, sum(by.values()) - apart, by))

    def _worst(self):
        most = max((allocated for allocated, _, _ in self._rows), default=0)
        return max((row for row in self._rows if row[0] >= most / 2), key=lambda row: row[1] / row[0], default=(0, 0, {}))

    def share(self):
        allocated, pinned, _ = self._worst()
        return pinned / allocated if allocated else 0

    def judge(self, figure):
        expect(self._rows, f"nothing was seen of its memory: {figure}")
        expect(self.share() < MOST_SHARE, f"more than {MOST_SHARE:.0%} is pinned: {figure}")

    def __str__(self):
        allocated, _, by = self._worst()
        reasons = ", ".join(f"{reason} {bytes_ / MIB:.0f}" for reason, bytes_ in sorted(by.items()))
        return f"{self.share():.2%} of {allocated / MIB:.0f} MiB pinned (in MiB: {reasons or 'nothing'})"
