"""What a daemon holds: GPU memory, host memory, descriptors and threads, its own and its children's. Before and after a
check these must be the same."""
import collections
import contextlib
import os
import pathlib
import re
import sys

from harness import processes
from harness.bench import GIB, MIB, must_succeed

HOST_SLACK = 128 * MIB  # heaps, and a real driver's own
DEVICE_SLACK = 64 * MIB  # of a real GPU: what its driver keeps for itself
PAGE_TABLES = 512  # the bytes of the pool for one of page tables, where its pages have 4 KiB
# What the driver says is free to a program without Tessera.
_FREE = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
print(total.value - free.value)
"""


def _anonymous(pid):
    """Bytes of host memory that only this process has."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", text)[1]) * 1024


def _kinds(pid):
    """How many descriptors and threads of each kind it has."""
    process = pathlib.Path(f"/proc/{pid}")
    kinds = collections.Counter(f"thread {path.read_text().strip()}" for path in process.glob("task/*/comm"))
    for name in os.listdir(process / "fd"):
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(process / "fd" / name)
            kinds["descriptor " + re.sub(r"\[\d+\]|\d{2,}", "", target)] += 1
    return kinds


def _holders(run_dir):
    """The swap holders of a run directory."""
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_text().split("\0")
            if words[0].endswith("tessera-swap-holder") and words[1].startswith(f"{run_dir}/"):
                yield int(path.parent.name)


def device_used(bench):
    """Bytes of the GPU that are in use, as the driver says to a program without Tessera, its own context included."""
    done = bench.native([sys.executable, "-c", _FREE], limit_s=30)
    return int(must_succeed(done, "the question to the driver").out)


class Holdings:
    """All of it, now. The programs of the check must have ended."""

    def __init__(self, bench):
        tessera = bench.tessera
        gpu = tessera.gpu()
        # A swap holder outlives the daemon that started it, and goes on for the next one.
        pids = {tessera.daemon_pid, *processes.descendants(tessera.daemon_pid), *_holders(tessera.run_dir)}
        self.device = device_used(bench)
        self.ledger = gpu["memory_used_bytes"]
        self.pool, self.pool_used = gpu["swap"]["pool_bytes"], gpu["swap"]["pool_used_bytes"]
        self.host = sum(_anonymous(pid) for pid in pids)
        self.kinds = sum((_kinds(pid) for pid in pids), collections.Counter())
        # A mover whose daemon died ends.
        self.strays = [pid for pid in processes.children(os.getpid())
                       if pathlib.Path(f"/proc/{pid}/comm").read_text().startswith("tessera-mover")]
        # How large the pages are depends on how the machine's free memory lies at that moment.
        self._slack = 0 if bench.soft else DEVICE_SLACK + self.pool // PAGE_TABLES

    def more_than(self, before):
        """What is more than it was, in words; empty if nothing is."""
        found = [f"{name} {now / MIB:.1f} MiB, {then / MIB:.1f} before" for name, now, then, slack in (
            ("GPU memory by the driver", self.device, before.device, self._slack),
            ("GPU memory by the ledger", self.ledger, before.ledger, 0),
            ("the pool's use", self.pool_used, before.pool_used, 0),
            ("the pool", self.pool, before.pool, 0),
            ("host memory", self.host, before.host, HOST_SLACK)) if now > then + slack]
        found += [f"{count} more of {kind}" for kind, count in sorted((self.kinds - before.kinds).items())]
        found += [f"mover {pid} is left over" for pid in self.strays]
        return found

    def __str__(self):
        descriptors = sum(count for kind, count in self.kinds.items() if kind.startswith("descriptor"))
        return (f"GPU {self.device / MIB:.0f} MiB, host {self.host / MIB:.0f} MiB, pool {self.pool / GIB:.1f} GiB, "
                f"{descriptors} descriptors")
