"""tessera gpu drain, undrain and rebalance: GPUs that are emptied, and room that is made."""
import os
import pathlib
import signal
import sys
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import DEADLINE_S, MIB, TENANT, SoftGpuTest, wait_for, write_line  # noqa: E402


class Drain(SoftGpuTest):
    SPEC = "3x1GiB"
    CONFIG = '[swap]\nsize = "2G"\nfloor = "64M"\n'

    def refused(self, *words):
        done = self.tessera(*words, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    def told(self, kind):
        return [event for event in self.json("events", "--last", 1000)["events"] if event["type"] == kind]

    def test_all_goes_and_nothing_comes_until_it_is_undrained(self):
        self.start_daemon(config=self.CONFIG)
        self.create("busy", gpu="0", compute_request=30, memory_request="64M")
        self.create("empty", gpu="0", memory_request="700M")
        self.create("other", gpu="1", compute_request=20, memory_request="400M")
        tenant = self.tenant_in("busy", "--kernel-us", 1000)
        tenant.makes_progress()

        dry = self.tessera("gpu", "drain", 0, "--dry-run").stdout
        self.assertIn("vGPU busy would go from GPU 0 to GPU 1", dry)
        self.assertIn("vGPU empty would go from GPU 0 to GPU 2", dry, "it does not fit beside the promise of other")
        self.assertFalse(self.gpu(0)["draining"])

        self.tessera("gpu", "drain", 0)
        self.assertEqual([self.vgpu(name)["gpu"] for name in ("busy", "empty", "other")], [1, 2, 1])
        gpu = self.gpu(0)
        self.assertEqual((gpu["draining"], gpu["drain"]), (True, {"moving": [], "staying": []}))
        self.assertEqual((gpu["vgpus"], gpu["memory_used_bytes"], gpu["memory_promised_bytes"]), (0, 0, 0))
        self.assertIn("GPU 0: it is empty", self.tessera("gpus").stdout)
        self.assertIn('tessera_gpu_draining{gpu="0"} 1\n', self.metrics())
        tenant.makes_progress(5)

        status, _, problem = self.api("POST", "/v1/vgpus", {"name": "new", "gpu": "0"})
        self.assertEqual((status, problem["code"]), (409, "EBUSY"), problem)
        self.assertIn("GPU 0 drains", problem["detail"])
        self.assertNotEqual(self.create("new")["gpu"], 0)
        status, _, problem = self.api("POST", "/v1/vgpus", {"name": "large", "memory_request": "900M"})
        self.assertEqual((status, problem["code"]), (409, "ENOSPC"), problem)
        self.assertIn("GPU 0 drains", problem["detail"])
        self.assertIn("drains", self.refused("migrate", "new", "--gpu", 0))

        self.tessera("gpu", "undrain", 0)
        self.assertIsNone(self.gpu(0)["drain"])
        self.assertEqual(self.create("large", memory_request="900M")["gpu"], 0)
        self.assertEqual([len(self.told(kind)) for kind in ("gpu.draining", "gpu.undrained")], [1, 1])
        tenant.finish()

    def test_eight_programs_go_with_their_memory_and_one_on_two_gpus_goes_where_it_is_not(self):
        self.start_daemon(config=self.CONFIG)
        shells = []
        for word in range(1, 9):
            self.create(f"team{word}", gpu="0")
            shells.append(self.shell_with_context(f"team{word}"))
            shells[-1].memory = shells[-1].filled(8 * MIB, word)
        self.create("left", gpu="0")
        self.create("right", gpu="1")
        both = self.shell_in("left,right")
        both.ok("init")
        for device in (0, 1):
            both.ok("context", device)
        self.tessera("gpu", "drain", 0)
        for word, shell in enumerate(shells, 1):
            self.assertNotEqual(self.vgpu(f"team{word}")["gpu"], 0)
            self.assertEqual(shell.ok("compare", shell.memory, word)["wrong"], 0)
            shell.ok("launch", 1)
            self.assertEqual(shell.ok("count")["count"], 1)
        self.assertEqual((self.vgpu("left")["gpu"], self.vgpu("right")["gpu"]), (2, 1))
        both.ok("launch", 1)
        both.ok("sync")
        done = self.tessera("gpu", "drain", 2, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "vGPU left stays: .*GPU 1: its programs use this one, too")

    def test_what_stays_is_named_and_a_restart_changes_nothing(self):
        self.start_daemon(config=self.CONFIG)
        self.create("held", gpu="0")
        self.create("wide", gpu="0", memory_request="600M")
        self.create("one", gpu="1", memory_request="500M")
        self.create("two", gpu="2", memory_request="500M")
        shell = self.shell_with_context("held")
        shell.ok("allocate", "managed", 4 * MIB)
        done = self.tessera("gpu", "drain", 0, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"vGPU held stays: process \d+ \(driver_shell\) cannot leave its GPU: it uses managed")
        self.assertIn("vGPU wide stays: no GPU has room", done.stderr)
        self.assertIn("vGPU held stays", self.tessera("gpus").stdout)

        self.stop_daemon(signal.SIGKILL)
        self.start_daemon(config=self.CONFIG)
        self.assertTrue(self.gpu(0)["draining"])
        wait_for("the program to be back", lambda: self.vgpu("held")["processes"] == [shell.pid])
        late = self.run_in("wide", TENANT)
        said = late.communicate(timeout=DEADLINE_S)[1]
        self.assertNotEqual(late.returncode, 0)
        self.assertIn("GPU 0 drains: it takes no newcomers", said)
        shell.end()
        self.change("one", memory_request="0")
        self.tessera("gpu", "drain", 0)
        self.assertEqual(self.vgpu("wide")["gpu"], 1)

    def test_a_fault_of_the_gpu_drains_it_and_a_programs_fault_does_not(self):
        fifo = self.run_dir / "faults"
        os.mkfifo(fifo)
        self.env["TESSERA_SOFT_FAULTS"] = str(fifo)
        self.start_daemon(config="drain.on_xid = true\n" + self.CONFIG)
        self.create("team", gpu="0")
        write_line(fifo, "0 xid 31")
        wait_for("the first Xid", lambda: self.gpu(0)["health"]["xid_errors"] == 1)
        self.assertFalse(self.gpu(0)["draining"])
        write_line(fifo, "0 xid 94")
        wait_for("the drain", lambda: self.gpu(0)["draining"])
        wait_for("the move", lambda: self.vgpu("team")["gpu"] != 0)
        self.assertIn("Xid 94", self.told("gpu.draining")[0]["text"])

    def test_room_is_made_by_the_fewest_bytes(self):
        self.start_daemon(config=self.CONFIG)
        for index in range(3):
            self.create(f"small{index}", gpu=index, memory_request="200M")
        self.create("large", gpu="2", memory_request="500M")
        tenant = self.tenant_in("small0", "--memory", "64M")
        tenant.makes_progress()
        wish = ("rebalance", "--memory-request", "900M")
        self.assertIn("vGPU small1 would go from GPU 1", self.tessera(*wish, "--dry-run").stdout)
        self.assertEqual(self.api("POST", "/v1/vgpus", {"name": "new", "memory_request": "900M"})[0], 409)
        self.assertIn("GPU 1 has room", self.tessera(*wish).stdout)
        self.assertEqual(self.create("new", memory_request="900M")["gpu"], 1)
        self.assertIn("no moves of vGPUs between GPUs make room", self.refused(*wish))
        tenant.makes_progress(5)
        tenant.finish()


if __name__ == "__main__":
    unittest.main()
