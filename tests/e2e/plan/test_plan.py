"""tessera plan: workloads, clusters, examples and reports, by the real command."""
import html.parser
import json
import os
import pathlib
import re
import stat
import sys
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import TENANT, SoftGpuTest

USE = "second,pod,duty_pct,memory_mib\n"
MIX = """title = "lab"
[[tenant]]
name = "train"
count = 3
group = "lab"
memory = "4G"
service = "20ms"
sms = 0.3
goal = "speed=80%"
"""


class Page(html.parser.HTMLParser):
    """What a page refers to, and its tags."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.references = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]


class Plan(SoftGpuTest):
    def file(self, name, text):
        path = self.run_dir / name
        path.write_text(text)
        return str(path)

    def plan(self, *words, status=0):
        done = self.tessera("plan", *words, "--json", "--seconds", "1", check=False)
        self.assertEqual((done.returncode, done.stderr), (status, ""))
        return json.loads(done.stdout)

    def refused(self, *words, says):
        done = self.tessera("plan", *words, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertRegex(done.stderr, says)


class Workloads(Plan):
    def test_a_mix_shares_a_space_and_needs_more_without_one(self):
        mix = self.file("mix.toml", MIX)
        plan = self.plan(mix, "--for", "10s")
        self.assertEqual((plan["gpus_needed"], plan["others"]["time"], plan["others"]["exclusive"]), (1, 3, 3))
        self.assertEqual([tenant["space"] for tenant in plan["gpus"][0]["tenants"]], ["lab"] * 3)
        self.assertLessEqual(sum(tenant["sm_pct"] for tenant in plan["gpus"][0]["tenants"]), 100)
        self.assertTrue(all(tenant["kept"] and tenant["speed"]["value"] > 0.79 for tenant in plan["tenants"]), plan["tenants"])
        for policy, gpus, status in (("time", 3, 0), ("exclusive", 3, 0), ("memory", 1, 1), ("fgd", 3, 0)):
            self.assertEqual(self.plan(mix, "--for", "10s", "--policy", policy, status=status)["gpus_needed"], gpus, policy)

    def test_fewer_gpus_than_needed_leave_somebody_out(self):
        mix = self.file("mix.toml", MIX.replace('group = "lab"', ""))
        plan = self.plan(mix, "--gpus", "2", "--for", "5s", status=1)
        self.assertEqual((plan["gpus_needed"], plan["refused"]), (2, 1))
        self.assertEqual([tenant["verdict"] for tenant in plan["tenants"]].count("not placed"), 1)

    def test_an_example_of_use_is_planned(self):
        use = str(self.run_dir / "use.csv")
        self.tessera("plan", "--generate", "genai", "--count", "12", "--for", "2h", "-o", use)
        plan = self.plan(use)
        self.assertEqual(sum(len(gpu["tenants"]) for gpu in plan["gpus"]), len(plan["tenants"]))
        self.assertGreaterEqual(len(plan["tenants"]), 12)
        self.assertLessEqual(plan["over"], 0.01)
        self.assertLess(plan["gpus_needed"], plan["others"]["exclusive"])
        self.assertGreater(plan["events"], 1000)

    def test_programs_that_move_between_gpus_need_fewer(self):
        rows = [f"{60 * i},{pod},{0 if i // 10 % 3 == 'abc'.index(pod) else 60},20480" for i in range(60) for pod in "abc"]
        use = self.file("use.csv", USE + "\n".join(rows) + "\n")
        self.assertEqual(self.plan(use)["gpus_needed"], 3)
        plan = self.plan(use, "--gpus-per-node", "2")
        self.assertEqual((plan["gpus_needed"], plan["over"], plan["overfull"]), (2, 0, False))
        self.assertGreater(plan["moves"], 0)
        self.assertGreater(plan["moves_simulated"], 0)
        self.assertTrue(all(tenant["speed"]["value"] > 0.99 for tenant in plan["tenants"]))
        text = self.tessera("plan", use, "--gpus-per-node", "2").stdout
        self.assertIn("3 tenants need 2 GPUs", text)
        self.assertIn("Programs move between the 2 GPUs of a node:", text)

        plan = self.plan(use, "--gpus-per-node", "2", "--place-by", use)
        self.assertEqual(plan["gpus_needed"], 2)
        wrong = self.tessera("plan", use, "--gpus-per-node", "2", "--place-by", self.file("lab.toml", MIX), check=False)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("lab is no record of use", wrong.stderr)

        few = self.tessera("plan", use, "--gpus-per-node", "2", "--gpus", "1", "--no-simulation").stdout
        self.assertIn("3 tenants ask for more than 1 GPU", few)
        large = self.file("large.csv", USE + "0,a,50,999999\n60,a,50,999999\n")
        self.assertEqual(self.plan(large, "--gpus-per-node", "2", "--gpus", "2", status=1)["refused"], 1)
        mix = self.tessera("plan", self.file("mix.toml", MIX), "--gpus-per-node", "2", check=False)
        self.assertEqual(mix.returncode, 1)
        self.assertIn("tenant train-1 has no record of use", mix.stderr)

    def test_a_trace_of_a_daemon_is_a_workload(self):
        self.start_daemon()
        self.tessera("run", "--name", "worker", "--", TENANT, "--seconds", "2", "--memory", "64M", "--report-every", "0")
        trace = str(self.run_dir / "trace.json")
        self.tessera("trace", "--past", "1min", "-o", trace)
        plan = self.plan(trace)
        self.assertIn("worker", [each["name"] for each in plan["tenants"]])
        self.assertEqual(plan["gpus_needed"], 1)

    def test_a_cluster(self):
        pods, nodes = (str(self.run_dir / name) for name in ("pods.csv", "nodes.csv"))
        self.tessera("plan", "--generate", "cluster", "--count", "300", "-o", pods)
        self.tessera("plan", "--generate", "cluster-nodes", "--count", "20", "-o", nodes)
        plan = self.plan(pods, "--nodes", nodes, "--seeds", "2", "--policy", "fgd")
        self.assertEqual(len(plan["runs"]), 2)
        self.assertEqual(plan["points"][-1]["arrived_pct"], 130)
        self.assertTrue(50 < plan["points"][-1]["allocated_pct"] <= 100)
        self.assertIn("ALLOCATED %", self.tessera("plan", pods, "--nodes", nodes).stdout)


class Reports(Plan):
    def test_a_page_stands_for_itself_and_shows_names_as_text(self):
        hostile = '<script>alert(1)</script>" onload="x'
        use = self.file("use.csv", USE + "".join(f'{second},"{hostile.replace(chr(34), chr(34) * 2)}",50,1000\n' for second in range(0, 600, 60)))
        report = self.run_dir / "plan.html"
        self.plan(use, "--report", str(report))
        text = report.read_text()
        page = Page(text)
        self.assertNotIn("script", page.tags)
        self.assertEqual(page.references, [])
        self.assertIn("svg", page.tags)
        self.assertEqual(page.tags.count("table"), 2)
        self.assertIn("&lt;script&gt;", text)
        self.assertNotRegex(re.sub(r"<meta[^>]*>", "", text), r"https?:|url\(|@import")
        self.assertIn("default-src 'none'", text)

    def test_a_device_stays_one_and_its_error_is_told(self):
        full = self.run_dir / "full"
        try:
            os.mknod(full, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
            full.open("wb").close()
        except PermissionError:
            self.skipTest("makes no device here")
        use = self.file("use.csv", USE + "0,1,50,1000\n60,1,50,1000\n")
        self.refused(use, "--seconds", "0", "--report", str(full), says="cannot write .*full: No space left on device")
        self.assertTrue(stat.S_ISCHR(full.stat().st_mode))


class BadInput(Plan):
    def test_gaps_are_said_and_a_million_rows_end(self):
        rows = [f"{second},1,10,1000" for second in (0, 60, 120, 6000, 6060)]
        plan = self.plan(self.file("gap.csv", USE + "\n".join(rows) + "\n"))
        self.assertTrue(any("gap" in note for note in plan["notes"]), plan["notes"])
        many = self.file("many.csv", USE + "".join(f"{second * 60},{pod},10,1000\n" for second in range(10_000) for pod in range(100)))
        self.assertEqual(len(self.plan(many, "--no-simulation")["tenants"]), 100)

    def test_each_error_says_what_and_where(self):
        for text, says in (
            (USE + "60,1,50,1000\n0,1,50,1000\n", r"x\.csv:3: .*second"),
            (USE + "0,1,50,-5\n", r"x\.csv:2: memory_mib.*below 0"),
            (USE + "0,1,50\n", r"x\.csv:2: 3 fields"),
            (USE + "0,1,400,5\n", r"x\.csv:2: duty_pct.*above"),
            ("", r"x\.csv is empty"),
            ("a,b\n1,2\n", r"x\.csv.*second,"),
        ):
            with self.subTest(says):
                self.refused(self.file("x.csv", text), says=says)
        self.refused(str(self.run_dir), says="directory")
        self.refused(str(self.run_dir / "none.csv"), says="No such file")
        self.refused(says="WORKLOAD is required")
        good = self.file("good.csv", USE + "0,1,50,1000\n60,1,50,1000\n")
        self.refused(good, "--gpu", "h300", says="h300.*h200")
        self.refused(good, "--policy", "best", says="no policy \"best\"")
        self.refused(good, "--seconds", "soon", says="--seconds")
        self.refused(good, "--report", "/nowhere/plan.html", says="cannot write /nowhere")

    def test_a_goal_that_nobody_can_keep_is_said(self):
        late = MIX.replace("count = 3\n", "").replace('goal = "speed=80%"', 'goal = "p99=5ms"\narrivals = { poisson = 2 }')
        plan = self.plan(self.file("late.toml", late), "--for", "20s", status=1)
        self.assertEqual(plan["tenants"][0]["verdict"], "missed")
        large = MIX.replace("4G", "400G")
        self.refused(self.file("large.toml", large), says="tenant train.* fits on no NVIDIA H200: it needs 400")


if __name__ == "__main__":
    unittest.main()
