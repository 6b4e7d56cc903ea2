"""KRYPTON's cases, from profiles that are made up."""
import contextlib
import io
import pathlib
import tempfile
import tomllib
import unittest

import krypton_mixes

MODELS = ("ResNet50", "MobileNetV2", "BERT-Large", "Transformer-XL")
PROFILE = """
[[profile]]
model = "{model}"
mode = "{mode}"
batch = {batch}
rate_alone = 12.5
memory = "964M"
speed = [[0.1, 0.25], [1.0, 1.0]]
bandwidth = 0.125
"""


class KryptonMixes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.profiles = self.folder / "profiles.toml"
        self.write([(model, mode, batch) for model in MODELS for mode in ("infer", "train")
                    for batch in ((16, 8) if (model, mode) == ("BERT-Large", "train") else (8, 32))])

    def write(self, workloads):
        self.profiles.write_text("gpu = \"made up\"\n" + "".join(
            PROFILE.format(model=model, mode=mode, batch=batch) for model, mode, batch in workloads))

    def make(self, *words):
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            status = krypton_mixes.main([str(self.profiles), "--out", str(self.folder / "out"), *words])
        mixes = {path.stem: tomllib.loads(path.read_text()) for path in (self.folder / "out").glob("*.toml")}
        return status, mixes, output.getvalue() + errors.getvalue()

    def test_ten_cases_of_which_time_alone_needs_72_gpus(self):
        status, mixes, output = self.make()
        self.assertEqual(status, 0, output)
        self.assertIn("by time alone 72 GPUs in all", output)
        self.assertEqual("".join(sorted(name[0] for name in mixes)), "ABCDEFGHIJ")
        for name, mix in mixes.items():
            names = {tenant["name"] for tenant in mix["tenant"]}
            self.assertEqual(len(names), 40 if name[0] in "IJ" else 20)
            self.assertEqual({tenant["group"] for tenant in mix["tenant"]}, {"krypton"})
            targets = sum(float(tenant["goal"].removeprefix("speed=").removesuffix("%")) for tenant in mix["tenant"]) / 100
            self.assertAlmostEqual(targets, (7.0 if "R1" in name else 4.5667) * (2 if name[0] in "IJ" else 1), places=2)

    def test_a_tenant_says_what_its_profile_says(self):
        _, mixes, _ = self.make()
        tenant = next(each for each in mixes["G-train-large-R1"]["tenant"] if each["name"] == "BERT-Large-train-16-16.67")
        self.assertEqual({key: tenant[key] for key in ("memory", "rate_alone", "speed", "bandwidth", "goal")},
                         {"memory": "964M", "rate_alone": 12.5, "speed": [[0.1, 0.25], [1.0, 1.0]], "bandwidth": 0.125,
                          "goal": "speed=16.67%"})
        self.assertIn("BERT-Large-train-8-66.67", {each["name"] for each in mixes["E-train-small-R1"]["tenant"]})

    def test_both_at_once_with_the_batch_that_one_chooses(self):
        for size, batch in (("small", 8), ("large", 32)):
            _, mixes, _ = self.make("--mixed", size)
            names = {tenant["name"] for tenant in mixes[f"I-inf-train-{size}-R1"]["tenant"]}
            self.assertLessEqual({f"ResNet50-infer-{batch}-8.33", f"ResNet50-train-{batch}-8.33"}, names)

    def test_profiles_that_lack_something(self):
        self.write([("ResNet50", "infer", 8), ("ResNet50", "infer", 32), ("ResNet50", "train", 8)])
        status, mixes, output = self.make()
        self.assertEqual((status, mixes), (1, {}))
        self.assertIn("two batches are needed of each model, of inference and training: ResNet50 train", output)
        self.profiles.write_text("[[profile]]\nmodel = \"a\"\n")
        self.assertIn("profile 1 has no batch, memory, mode, rate_alone", self.make()[2])

    def test_a_csv_of_rates(self):
        self.profiles = self.folder / "table.csv"
        self.profiles.write_text("model,mode,batch,solo_rps_a100,memory_mib\n" + "".join(
            f"a,{mode},{batch},{100 / batch},{batch}\n" for mode in ("infer", "train") for batch in (8, 32)))
        status, mixes, output = self.make()
        self.assertEqual(status, 0, output)
        self.assertEqual(mixes["A-inf-small-R1"]["tenant"][0],
                         {"name": "a-infer-8-66.67", "group": "krypton", "memory": "8M", "rate_alone": 12.5, "goal": "speed=66.67%"})


if __name__ == "__main__":
    unittest.main()
