#!/usr/bin/env python3
"""`tessera demo` on the soft GPU, whole: daemon, shim, soft GPU and three programs.

Usage: demo_test.py PATH-OF-TESSERA [unittest arguments]
"""

import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

TESSERA = None  # the binary under test, in its build


class Demo(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tessera-demo-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA")}
        self.environment["TMPDIR"] = self.folder

    def start(self, *words):
        return subprocess.Popen([TESSERA, "demo", "--soft", *words], env=self.environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def assert_nothing_left(self, pid):
        self.assertEqual(os.listdir(self.folder), [])
        self.assertEqual(glob.glob(f"/dev/shm/tessera-soft-*-demo-{pid}"), [])

    def test_json(self):
        demo = self.start("--json", "--seconds", "2")
        output, errors = demo.communicate(timeout=100)
        self.assertEqual((demo.returncode, errors), (0, ""))
        report = json.loads(output)
        self.assertEqual(list(report), ["device", "memory", "vgpus"])
        self.assertEqual(report["device"], "Tessera Soft GPU")
        self.assertEqual([(vgpu["name"], vgpu["compute_target_pct"]) for vgpu in report["vgpus"]],
                         [("training", 50), ("serving", 30), ("notebook", 20)])
        for vgpu in report["vgpus"]:
            self.assertEqual(list(vgpu), ["name", "compute_target_pct", "compute_achieved_pct", "memory_max_bytes",
                                          "memory_peak_bytes", "oom_errors", "results_verified"])
            # How exact the shares are depends on how busy this machine is; the policy's own tests run in virtual time.
            self.assertGreater(vgpu["compute_achieved_pct"], 0)
            self.assertLessEqual(vgpu["memory_peak_bytes"], vgpu["memory_max_bytes"])
            self.assertGreater(vgpu["memory_peak_bytes"], 0)
            self.assertIs(vgpu["results_verified"], True)
        training, serving, notebook = report["vgpus"]
        self.assertEqual((training["oom_errors"], serving["oom_errors"], notebook["oom_errors"]), (0, 0, 2))
        self.assertEqual(notebook["memory_max_bytes"], 3 << 30)  # after it was resized
        self.assert_both_finish(report["memory"])
        self.assert_nothing_left(demo.pid)

    def assert_both_finish(self, act):
        """Two programs that do not fit together: one dies without Tessera, none with it."""
        self.assertEqual(list(act), ["device", "gpu_bytes", "wanted_bytes", "seconds", "programs"])
        self.assertGreater(2 * act["wanted_bytes"], act["gpu_bytes"])
        first, second = act["programs"]
        self.assertIsNone(first["died_without"])
        self.assertIn("CUDA_ERROR_OUT_OF_MEMORY", second["died_without"])
        self.assertEqual([program["results_verified"] for program in (first, second)], [True, True])
        moved_out = sum(program["moved_out_bytes"] for program in (first, second))
        self.assertGreaterEqual(moved_out, 2 * act["wanted_bytes"] - act["gpu_bytes"])  # what has no room
        self.assertGreater(sum(program["moving_us"] for program in (first, second)), 0)
        self.assertLess(act["seconds"], 60)

    def test_an_interrupt_leaves_nothing(self):
        demo = self.start("--seconds", "40")
        said = ""
        for line in demo.stdout:
            said += line
            if "allocates until it is refused" in line:
                demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=60)
        self.assertIn("CUDA_ERROR_OUT_OF_MEMORY after", said)
        self.assertNotIn("\033", said)
        self.assertEqual((demo.returncode, errors), (1, "tessera: interrupted\n"))
        self.assert_nothing_left(demo.pid)



if __name__ == "__main__":
    TESSERA = sys.argv.pop(1)
    unittest.main()
