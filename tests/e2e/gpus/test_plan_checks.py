#!/usr/bin/env python3
"""What the checks of plans on real GPUs (tests/hw/cases/plan) compute of their measurements, and read."""
import json
import pathlib
import sys
import tempfile
import tomllib
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "hw"))
from cases.plan import placement, schedule  # noqa: E402
from harness import profile_fit as fit  # noqa: E402
from harness.checks import Failed  # noqa: E402
from harness.model_programs import Workload  # noqa: E402

SMS = (10, 20, 25, 30, 40, 50, 75)
BANDWIDTH, ON_HALF, SPACE = 3e12, 2.9e12, 0.97


def measured(workload, full_at, bandwidth):
    """As a workload would be measured that is full speed from so many percent of the SMs on, on a GPU as the model has it."""
    def speed(percent):
        return min(1, percent / full_at)

    m = fit.Measured(workload, 100, 964, {percent: 100 * speed(percent) for percent in SMS})
    m.beside_stream = 95 * speed(50)
    m.stream_beside = ON_HALF - bandwidth * BANDWIDTH * 0.95 * speed(50)
    for count, percent in ((2, 50), (4, 25)):
        part = SPACE * min(1, 1 / (count * bandwidth * speed(percent)))
        m.together.append((percent, [100 * speed(percent) * part] * count))
    return m


class Fit(unittest.TestCase):
    def setUp(self):
        self.hungry, self.busy = Workload("ResNet50", "infer", 8), Workload("BERT-Large", "train", 16)
        self.all = {self.hungry: measured(self.hungry, 40, 0.6), self.busy: measured(self.busy, 100, 0.05)}
        self.bandwidths = {w: fit.bandwidth(m, fit.Stream(BANDWIDTH, ON_HALF)) for w, m in self.all.items()}

    def test_finds_what_the_figures_were_made_of(self):
        self.assertAlmostEqual(self.bandwidths[self.hungry], 0.6)
        self.assertAlmostEqual(self.bandwidths[self.busy], 0.05)
        self.assertAlmostEqual(self.all[self.hungry].speed(0.35), 0.875)
        self.assertAlmostEqual(self.all[self.hungry].speed(0.05), 0.125)
        pair = [(self.hungry, 50, 97), (self.busy, 50, 50 * 0.97)]
        speed, off = fit.space_speed(fit.groups_of(self.all, [pair]), self.all, self.bandwidths)
        self.assertAlmostEqual(speed, SPACE)
        self.assertEqual(len(off), 5)
        self.assertLess(max(map(abs, off)), 1e-9)

    def test_curves_never_fall_and_end_at_one(self):
        noisy = fit.Measured(self.hungry, 100, 1, {10: 50, 20: 48, 50: 103})
        self.assertEqual(noisy.alone, 103, "no program is faster on fewer SMs")
        self.assertEqual(noisy.curve(), [[0.1, 0.4854], [0.2, 0.4854], [0.5, 1.0], [1.0, 1.0]])
        self.assertIsNone(noisy.beside(), "it was not measured")

    def test_beside_is_of_the_most_at_once(self):
        measured = fit.Measured(self.hungry, 100, 1, {25: 40, 50: 80}, together=[(50, [60, 60]), (25, [20, 24, 20, 24])])
        self.assertAlmostEqual(measured.beside(), 22 / 40)

    def test_file(self):
        text = fit.toml(self.all, self.bandwidths, {"gpu": "NVIDIA H200", "driver": "1", "date": "2026-11-26"}, ["a remark"])
        first = tomllib.loads(text)["profile"][0]
        self.assertEqual(first, {"model": "ResNet50", "mode": "infer", "batch": 8, "rate_alone": 100.0, "memory": "964M",
                                 "speed": self.all[self.hungry].curve(), "bandwidth": 0.6,
                                 "beside": round(self.all[self.hungry].beside(), 3)})


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "file"

    def place(self, tenants):
        self.path.write_text(json.dumps({"gpus": [{"index": 0, "tenants": tenants}]}))
        return placement.read(self.path)[0]

    def test_placement(self):
        by_name, by_keys = self.place([
            {"name": "bert-large-train-16-33.3", "space": None, "sm_pct": None, "request_pct": 33.3, "limit_pct": 34},
            {"name": "x", "model": "ResNet50", "mode": "infer", "batch": 8, "target": 0.5, "space": "s", "sm_pct": 40,
             "request_pct": 50, "limit_pct": 100}])
        self.assertEqual((by_name.workload, by_name.space, by_name.sm_pct), (Workload("BERT-Large", "train", 16), "", 100))
        self.assertAlmostEqual(by_name.target, 0.333)
        self.assertEqual(by_name.settings(), {"compute_request": 33.3, "compute_limit": 34})
        self.assertEqual((by_keys.target, by_keys.space, by_keys.sm_pct), (0.5, "s", 40))
        self.assertEqual(by_keys.settings(), {"compute_request": 50})
        for wrong in ({"name": "resnet-infer-8-50"}, {"name": "ResNet50-infer-8"}, {"name": "ResNet50-infer-8-0"}, {}):
            with self.assertRaises(Failed):
                self.place([wrong])

    def test_schedule(self):
        rows = [(second, pod, second / 10, 1000) for second in (0, 57, 114, 171) for pod in "ab" if (second, pod) != (114, "b")]
        self.path.write_text("second,pod,duty_pct,memory_mib\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
        pods = schedule.read(self.path, 50, 1000)
        self.assertEqual(list(pods), ["a"])  # the other one was not there all the time
        short = schedule.shorten(pods, 19, 300 << 20)["a"]
        self.assertEqual([(s.second, s.duty_pct, s.memory_mib) for s in short], [(0, 5.7, 320), (3, 11.4, 320), (6, 17.1, 320)])
        self.assertEqual((schedule.interval(short), schedule.end(short)), (3, 9))
        with self.assertRaises(Failed):
            schedule.choose(pods, 2, 1)


if __name__ == "__main__":
    unittest.main()
