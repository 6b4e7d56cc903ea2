"""How exactly shares of a GPU's time hold, by the soft GPU's own account and for each way to enforce them. A busy host
makes the soft GPU lag, and changes the figures: they judge nothing. What schedulers decide is judged in src/plan."""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import uuid

SPEC = "1x1GiB,speed=64M"
SECONDS = 3

# Programs that run at the same time, by their flags, and the percent of the GPU that each is due.
CASES = [
    *[(f"limit {limit} % alone", [["--compute", f"0:{limit}"]], [limit]) for limit in (10, 20, 30, 50)],
    ("requests", [["--compute", str(part)] for part in (50, 30, 20)], [50, 30, 20]),
    ("weights 2 : 1", [["--weight", "200"], ["--weight", "100"]], [66.7, 33.3]),
    ("weights 7 : 1", [["--weight", "700"], ["--weight", "100"]], [87.5, 12.5]),
    ("limit 30 % and none", [["--compute", "0:30"], []], [30, 70]),
]


class SoftGpu:
    """A daemon on a soft GPU of its own."""

    def __init__(self, bench, config):
        self.bench = bench
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tessera-shares-"))
        self.name = uuid.uuid4().hex[:12]
        self.env = {**bench.env, "TESSERA_RUN_DIR": str(self.dir), "TESSERA_SOFT": SPEC, "TESSERA_SOFT_NAME": self.name}
        (self.dir / "config.toml").write_text(config)

    def start(self, *command, **options):
        return subprocess.Popen([str(word) for word in command], env=self.env, text=True, stdout=subprocess.PIPE, **options)

    def __enter__(self):
        self.daemon = self.start(self.bench.bin / "tesserad", f"--soft={SPEC}", "--run-dir", self.dir, "--config",
                                 self.dir / "config.toml", stderr=subprocess.DEVNULL)
        while self.start(self.bench.bin / "tessera", "gpus", stderr=subprocess.DEVNULL).wait() != 0:
            time.sleep(0.01)
        self.account = self.start(self.bench.bin / "soft_usage", stdin=subprocess.PIPE)
        return self

    def __exit__(self, *_):
        for child in (self.account, self.daemon):
            child.terminate()
            child.communicate()
        shutil.rmtree(self.dir, ignore_errors=True)
        for left in pathlib.Path("/dev/shm").glob(f"*{self.name}*"):
            left.unlink()

    def busy(self):
        self.account.stdin.write("\n")
        self.account.stdin.flush()
        line = json.loads(self.account.stdout.readline())
        return line["time_ns"], {int(pid): busy for pid, busy in line["busy_ns"].items()}

    def shares(self, programs):
        """Percent of the GPU's time that each program got."""
        tenant = (self.bench.lib / "tessera" / "tessera-tenant", "--kernel-us", "500", "--depth", "40", "--ahead", "4")
        children = [self.start(self.bench.bin / "tessera", "run", "--soft", "--run-dir", self.dir, *flags, "--", *tenant)
                    for flags in programs]
        for child in children:
            while json.loads(child.stdout.readline())["event"] != "progress":
                pass
        time.sleep(1)
        begin, before = self.busy()
        time.sleep(SECONDS)
        end, after = self.busy()
        for child in children:
            child.terminate()
            child.communicate()
        return [100 * (after.get(child.pid, 0) - before.get(child.pid, 0)) / (end - begin) for child in children]


def measure(bench):
    # Ordinary programs of the host run after these, where that is permitted.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        for by, control in (("gates", "off"), ("channels", "auto")):
            with SoftGpu(bench, f"[channels]\ncontrol = '{control}'\n") as gpu:
                for what, programs, due in CASES:
                    for part, share in zip(due, gpu.shares(programs)):
                        bench.report(f"{by}, {what}: {part} % due", round(share, 2), "%")
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
