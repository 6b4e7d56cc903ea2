"""Shared by the tests of swapping: a GPU on which one program of 300 MiB has place, and two have not.

Imported before the harness, which lies one folder up: this module makes it known.
"""
import json
import pathlib
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BIN, MIB, SoftGpuTest  # noqa: E402

CHURN = BIN / "swap_churn"


class SwapTest(SoftGpuTest):
    SPEC = "1x512MiB,context=16MiB,pcie=4GB/s,speed=400M"
    CONTEXT_BYTES = 16 * MIB
    SIZE, FLOOR = "2G", "1G"
    MORE = ""
    PIECE = 300 * MIB

    def setUp(self):
        super().setUp()
        self.config = f'[swap]\nsize = "{self.SIZE}"\nfloor = "{self.FLOOR}"\n[turn]\nmin_ms = 20\nmax_ms = 300\n{self.MORE}'

    def start(self):
        self.start_daemon("--log-level", "debug", config=self.config)

    def shells(self, count=2):
        for n in range(count):
            self.create(f"v{n}", memory_max="1G")
        return [self.shell_with_context(f"v{n}") for n in range(count)]

    def used(self):
        return self.api("GET", "/v1/gpus")[2]["gpus"][0]["memory_used_bytes"]

    def churns(self, count, rounds=10**9, memory_mib=280, kinds=""):
        for n in range(count):
            self.create(f"c{n}", memory_max="1G")
        return [self.run_in(f"c{n}", CHURN, "--seed", 17 + n, "--rounds", rounds, "--memory", memory_mib, "--with", kinds)
                for n in range(count)]

    def done(self, churn, deadline_s=120):
        """How a swap_churn ended."""
        out, err = churn.communicate(timeout=deadline_s)
        self.assertEqual(churn.returncode, 0, f"{out[-300:]} {err} {self.daemon_log()[-3000:]}")
        last = json.loads(out.splitlines()[-1])
        self.assertTrue(last["done"])
        self.assertEqual(last["wrong_words"], 0)
        return last
