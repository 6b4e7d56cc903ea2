"""The soft GPUs' own account of who executed for how long: the judge of the tests about time, which neither the daemon's
nor the programs' own figures are. What is measured ends after so much GPU time, not after so much time of the host: a
busy host makes a measurement longer, and changes little else."""
import json
import subprocess

from harness import BIN, Lines, wait_for


class GpuAccount:
    """Asks a soft_usage (tests/programs/soft_usage.cc) that runs beside the test."""

    def __init__(self, test):
        self.child = test.spawn(BIN / "soft_usage", stdin=subprocess.PIPE)
        self.lines = Lines(self.child)

    def busy(self):
        """Nanoseconds of GPU time by pid, since each process began."""
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        return {int(pid): busy for pid, busy in json.loads(self.lines.next())["busy_ns"].items()}

    def busy_of(self, pid):
        return self.busy().get(pid, 0)

    def used(self, pids, seconds):
        """The GPU time in nanoseconds that each process uses until they have used so many seconds of it together."""
        before = self.busy()

        def enough():
            now = self.busy()
            used = [now.get(pid, 0) - before.get(pid, 0) for pid in pids]
            return used if sum(used) >= seconds * 1e9 else None
        return wait_for(f"{seconds} s of GPU time", enough)

    def shares(self, pids, seconds):
        """Each process's part, in percent, of the next seconds of GPU time that they use together."""
        used = self.used(pids, seconds)
        return [100 * each / sum(used) for each in used]
