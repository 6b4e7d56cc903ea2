"""tessera suspend and resume: programs without anything on their GPU, and back."""
import json
import pathlib
import sys
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import MIB, SoftGpuTest  # noqa: E402


class Suspend(SoftGpuTest):
    SPEC = "1x1GiB"
    CONFIG = '[swap]\nsize = "2G"\nfloor = "64M"\n'
    SIZE = 256 * MIB
    WORD = 0x5EED

    def setUp(self):
        super().setUp()
        self.start_daemon(config=self.CONFIG)

    def process(self, pid):
        process, = (each for each in self.json("ps")["processes"] if each["pid"] == pid)
        return process

    def refused(self, *words):
        done = self.tessera(*words, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        return done.stderr

    def device_bytes(self):
        """What the device itself says is in use."""
        gpu, = self.json("gpus")["gpus"]
        return gpu["memory_used_bytes"] + gpu["memory_unmanaged_bytes"]

    def test_nothing_is_left_on_the_gpu_and_the_program_goes_on(self):
        self.create("team")
        shell = self.shell_with_context("team")
        memory = shell.filled(self.SIZE, self.WORD)
        shell.ok("launch", 1)
        shell.ok("sync")
        self.tessera("suspend", "team")
        process = self.process(shell.pid)
        self.assertEqual(process["suspension"], "suspended")
        self.assertIn("suspended", self.tessera("ps").stdout)
        self.assertEqual(process["memory_resident_bytes"], 0)
        self.assertEqual(process["memory_swapped_bytes"], self.SIZE)
        self.assertEqual(process["channels"], 0)
        self.assertIn(f'tessera_process_suspended{{pid="{shell.pid}",vgpu="team",gpu="0"}} 1\n', self.metrics())
        self.tessera("suspend", "team")  # it is so already
        self.tessera("resume", shell.pid)
        self.assertIsNone(self.process(shell.pid)["suspension"])
        trace = json.loads(self.tessera("trace", "--past", "1min", "-o", "-").stdout)["traceEvents"]
        phases = {event["name"]: event["args"] for event in trace if event["args"].get("pid") == shell.pid}
        self.assertEqual(list(phases), ["prepares", "drains", "leaves", "saves", "suspended", "returns", "restores"])
        self.assertEqual(phases["leaves"]["bytes"], self.SIZE)
        self.assertGreaterEqual(phases["saves"]["bytes"], self.CONTEXT_BYTES)
        self.assertEqual(shell.ok("compare", memory, self.WORD)["wrong"], 0)
        shell.ok("launch", 1)
        self.assertEqual(shell.ok("count")["count"], 2)

    def test_a_program_that_never_rests_drains_each_time(self):
        self.create("team")
        tenant = self.tenant_in("team", "--kernel-us", 100000, "--depth", 4, "--ahead", 2, "--memory", "64M")
        tenant.makes_progress()
        for _ in range(3):
            seen = set()
            self.api("POST", "/v1/vgpus/team/suspend", {})
            while (phase := self.process(tenant.pid)["suspension"]) != "suspended":
                seen.add(phase)
            self.assertIn("drains", seen, "four kernels were queued")
            self.tessera("resume", "team")
            tenant.makes_progress(3)
        tenant.finish()

    def test_a_program_at_work_drains_and_goes_on_when_it_is_back(self):
        self.create("team")
        tenant = self.tenant_in("team", "--kernel-us", 1000, "--memory", "128M")
        tenant.makes_progress()
        for _ in range(3):
            self.tessera("suspend", "team")
            self.assertEqual(self.process(tenant.pid)["memory_resident_bytes"], 0)
            self.tessera("resume", "team")
            tenant.makes_progress(5)
        tenant.finish()


if __name__ == "__main__":
    unittest.main()
