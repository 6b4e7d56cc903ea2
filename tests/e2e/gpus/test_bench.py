#!/usr/bin/env python3
"""`tessera bench --gpu-model` on the soft GPU, whole; and tessera-tenant, which measures, where it follows a schedule."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import tomllib
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BIN, DEADLINE_S, SOFT, TENANT, Lines  # noqa: E402


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tessera-bench-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("TESSERA")}
        self.environment["TMPDIR"] = str(self.temporary)


class Bench(InFolder):
    def start(self, *words):
        return subprocess.Popen([BIN / "tessera", "bench", *words], env=self.environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def bench(self, *words):
        child = self.start(*words)
        output, errors = child.communicate(timeout=3 * DEADLINE_S)
        self.assert_nothing_left(child.pid)
        return child.returncode, output, errors

    def assert_nothing_left(self, pid):
        self.assertEqual(list(self.temporary.iterdir()), [])
        self.assertEqual([path for path in os.listdir("/dev/shm") if path.endswith(f"demo-{pid}")], [])

    def test_model_of_a_soft_gpu(self):
        path = self.folder / "soft.toml"
        path.write_text("before")
        status, output, errors = self.bench("--gpu-model", "--soft=1x2GiB", "--output", str(path))
        self.assertEqual((status, output), (0, ""), errors)
        self.assertIn("its figures say nothing of any GPU", errors)
        model = tomllib.loads(path.read_text())
        self.assertEqual((model["name"], model["memory"], model["sms"]), ("soft", "2G", 8))
        self.assertIn("of no GPU", model["source"])
        # What a soft GPU measures depends on this machine. That each figure was measured at all does not.
        self.assertEqual(model["moves"]["context"], "64M")
        for figure in (model["bandwidth_gb_s"], model["moves"]["out_gb_s"], model["moves"]["in_gb_s"]):
            self.assertGreater(figure, 0)
            self.assertNotEqual(figure, 50, "the default")
        self.assertNotEqual((model["steering"]["freeze_us"], model["steering"]["thaw_us"]), (450, 260), "the defaults")
        self.assertTrue(0.5 <= model["space_speed"] <= 1)
        self.assertIn("sweep memory at once in a space", path.read_text())  # two programs ran in one

    def test_wrong_output_is_said_before_anything_is_measured(self):
        for path, why in ((self.folder / "none" / "x.toml", "no such directory"), (self.folder, "is a directory")):
            status, _, errors = self.bench("--gpu-model", "--soft", "-o", str(path))
            self.assertEqual(status, 1)
            self.assertIn(why, errors)
            self.assertNotIn("measuring", errors)

    def test_wrong_words(self):
        self.assertEqual(self.bench("--soft")[0], 2)  # nothing to measure
        status, _, errors = self.bench("--gpu-model", "--soft=1x1GiB", "--gpu", "7")
        self.assertEqual(status, 1)
        self.assertIn("there is no GPU 7", errors)
        self.assertEqual(self.bench("--gpu-model", "--soft", "--gpu", "-1")[0], 2)

    def test_interrupted(self):
        path = self.folder / "soft.toml"
        child = self.start("--gpu-model", "--soft=1x1GiB", "-o", str(path))
        while "measuring" not in child.stderr.readline():
            self.assertIsNone(child.poll())
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=DEADLINE_S)
        self.assertEqual(child.returncode, 1)
        self.assertIn("interrupted", errors)
        self.assertFalse(path.exists())
        self.assert_nothing_left(child.pid)


class Schedule(InFolder):
    def start(self, rows, *words):
        path = self.folder / "schedule.csv"
        path.write_text("second,duty_pct,memory_mib\n" + rows)
        environment = {**self.environment, "LD_LIBRARY_PATH": str(SOFT.parent), "TESSERA_SOFT": "1GiB",
                       "TESSERA_SOFT_NAME": f"schedule-{os.getpid()}"}
        self.addCleanup(lambda: [each.unlink() for each in pathlib.Path("/dev/shm").glob(f"*-schedule-{os.getpid()}*")])
        return subprocess.Popen([TENANT, "--schedule", path, "--burst", "1", "--kernel-us", "10000", "--iterations", "10",
                                 *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def test_bursts_and_memory_follow_the_rows(self):
        child = self.start("0,50,100\n0.2,0,200\n0.3,100,60\n0.4,0,0\n", "--schedule-wait")
        lines = Lines(child)
        self.assertEqual(json.loads(lines.next())["event"], "ready")
        child.send_signal(signal.SIGUSR1)
        self.assertEqual(json.loads(lines.next())["event"], "ended")
        child.send_signal(signal.SIGUSR1)
        done = json.loads(lines.next())
        _, errors = child.communicate(timeout=DEADLINE_S)
        self.assertEqual(child.returncode, 0, errors)
        self.assertEqual((done["event"], done["bursts_due"], done["verified"]), ("done", 20, True))
        self.assertLessEqual(done["bursts_done"], 20)
        self.assertTrue(0 < done["p50_us"] <= done["p99_us"] <= done["max_us"], done)

    def test_more_memory_than_there_is(self):
        child = self.start("0,0,100\n0.01,0,4000\n0.02,0,0\n")
        _, errors = child.communicate(timeout=DEADLINE_S)
        self.assertEqual(child.returncode, 1)
        self.assertIn(b"CUDA_ERROR_OUT_OF_MEMORY", errors)

    def test_wrong_row(self):
        child = self.start("0,0,100\n0,0,1\n")
        _, errors = child.communicate(timeout=DEADLINE_S)
        self.assertEqual(child.returncode, 2)
        self.assertIn(b"schedule.csv:3: ", errors)


if __name__ == "__main__":
    unittest.main()
