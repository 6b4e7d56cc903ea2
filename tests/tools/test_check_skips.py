"""tools/check_skips.py: how it reads the reports of CTest and of the runner, and which skips it lets pass."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_skips  # noqa: E402
import machine_conditions  # noqa: E402


def junit(*cases):
    return f"<testsuite>{''.join(cases)}</testsuite>"


def case(name, status="run", output="", more=""):
    return f'<testcase name="{name}" status="{status}">{more}<system-out>{output}</system-out></testcase>'


SKIPPED = '<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'


class Reading(unittest.TestCase):
    def read(self, *cases):
        return [(test.name, test.status, test.reason) for test in check_skips.read_tests(junit(*cases))]

    def test_a_test_that_ran(self):
        self.assertEqual(self.read(case("A.B"), case("A.C", "fail", more='<failure message=""/>')),
                         [("A.B", "passed", ""), ("A.C", "failed", "")])

    def test_a_skip_and_its_reason(self):
        output = "[ RUN      ] A.B\n/x/y.cc:26: Skipped\nno nvcc\n\n[  SKIPPED ] A.B (0 ms)\n"
        self.assertEqual(self.read(case("A.B", "notrun", output, SKIPPED)), [("A.B", "skipped", "no nvcc")])

    def test_a_skip_behind_a_failure_is_a_failure(self):
        output = "x.cc:1: Failure\nx.cc:2: Skipped\n\n[  FAILED  ] A.B (0 ms)\n[  SKIPPED ] 1 test\n"
        self.assertEqual(self.read(case("A.B", "notrun", output, SKIPPED)), [("A.B", "failed", "")])

    def test_a_program_that_is_missing_is_a_failure(self):
        self.assertEqual(self.read(case("A_NOT_BUILT", "notrun", more='<skipped message="Unable to find executable"/>')),
                         [("A_NOT_BUILT", "failed", "")])

    def test_a_disabled_test_is_a_skip(self):
        self.assertEqual(self.read(case("A.B", "disabled", "Disabled")), [("A.B", "skipped", "it is disabled")])

    def test_control_characters_do_no_harm(self):
        self.assertEqual(self.read(case("A.B", output="\x1b[31m\x00\x08")), [("A.B", "passed", "")])

    def test_python_tests_are_told_apart(self):
        report = {"ran": ["A.a", "A.b", "A.c"], "failed": {"A.b": "it broke"}, "skipped": {"A.c": "not root", "setUpClass (__main__.B)": "x"}}
        output = f"noise\n{check_skips.REPORT}{json.dumps(report)}\n"
        self.assertEqual(self.read(case("e2e.x", "fail", output)),
                         [("e2e.x:A.a", "passed", ""), ("e2e.x:A.b", "failed", "it broke"), ("e2e.x:A.c", "skipped", "not root"),
                          ("e2e.x:B.setUpClass", "skipped", "x")])

    def test_a_python_file_that_dies_has_failed(self):
        report = json.dumps({"ran": ["A.a"], "failed": {}, "skipped": {}})
        self.assertEqual(self.read(case("e2e.x", "fail", f"{check_skips.REPORT}{report}\n")),
                         [("e2e.x:A.a", "passed", ""), ("e2e.x", "failed", "")])
        self.assertEqual(self.read(case("e2e.x", "fail", "Traceback")), [("e2e.x", "failed", "")])


class Judging(unittest.TestCase):
    ALLOWED = [("A.*", ["not root"]), ("A.b", ["no FUSE"])]

    def faults(self, *tests, holding=(), whole=False):
        return list(check_skips.faults([check_skips.Test(*test) for test in tests], self.ALLOWED, holding.__contains__, whole))

    def test_what_ran_is_right(self):
        self.assertEqual(self.faults(("A.a", "passed"), ("B.a", "failed")), [])

    def test_a_skip_that_nobody_allowed(self):
        fault, = self.faults(("B.a", "skipped", "no luck"), holding={"not root", "no FUSE"})
        self.assertIn("B.a was skipped (no luck)", fault)

    def test_a_skip_is_allowed_where_its_condition_holds(self):
        self.assertEqual(self.faults(("A.a", "skipped", "x"), holding={"not root"}), [])
        fault, = self.faults(("A.a", "skipped", "x"), holding={"no FUSE"})
        self.assertIn("not root", fault)

    def test_one_of_several_conditions_is_enough(self):
        self.assertEqual(self.faults(("A.b", "skipped", "x"), holding={"no FUSE"}), [])
        self.assertEqual(self.faults(("A.b", "skipped", "x"), holding={"not root"}), [])
        self.assertEqual(len(self.faults(("A.b", "skipped", "x"))), 1)

    def test_an_entry_for_no_test(self):
        self.assertEqual(self.faults(("A.a", "passed")), [])
        fault, = self.faults(("A.a", "passed"), whole=True)
        self.assertIn("A.b", fault)


class List(unittest.TestCase):
    def test_the_list_is_right(self):
        self.assertTrue(check_skips.read_allowed(check_skips.ALLOWED.read_text()))

    def test_a_condition_that_does_not_exist(self):
        with self.assertRaisesRegex(ValueError, "nobody knows"):
            check_skips.read_allowed('[[skip]]\nwhy = "x"\nwhen = ["nobody knows"]\ntests = ["A"]\n')

    def test_every_condition_can_be_tried(self):
        for name in machine_conditions.CONDITIONS:
            self.assertIsInstance(machine_conditions.holds(name), bool, name)


class Whole(unittest.TestCase):
    """The runner and the checker, as `make test` calls them."""

    FILE = """
import unittest
class A(unittest.TestCase):
    def test_runs(self): pass
    def test_is_skipped(self): self.skipTest("no reason")
if __name__ == "__main__":
    unittest.main()
"""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check(self, text):
        (self.folder / "test_x.py").write_text(text)
        ran = subprocess.run([sys.executable, ROOT / "tests" / "run_unittest.py", self.folder / "test_x.py"], text=True,
                             capture_output=True)
        (self.folder / "tests.xml").write_text(junit(case("e2e.test_x", "fail" if ran.returncode else "run", ran.stdout)))
        return subprocess.run([ROOT / "tools" / "check_skips.py", self.folder / "tests.xml"], text=True, capture_output=True)

    def test_a_skip_that_is_not_listed_fails(self):
        done = self.check(self.FILE)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("FAULT: e2e.test_x:A.test_is_skipped was skipped (no reason)", done.stdout)
        self.assertIn("tests: 1 passed, 0 failed, 1 skipped; 1 of the skips are faults\n", done.stdout)

    def test_without_it_all_is_well(self):
        done = self.check(self.FILE.replace('self.skipTest("no reason")', "pass"))
        self.assertEqual((done.returncode, done.stdout), (0, "tests: 2 passed, 0 failed, 0 skipped\n"), done.stderr)

    def test_a_failure_and_its_reason(self):
        done = self.check(self.FILE.replace("pass", 'self.assertEqual("a\\nb", "a\\nc")'))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("FAILED: e2e.test_x:A.test_runs: AssertionError: 'a\\nb' != 'a\\nc'\n", done.stdout)

    def test_a_run_without_tests_fails(self):
        (self.folder / "tests.xml").write_text(junit())
        done = subprocess.run([ROOT / "tools" / "check_skips.py", self.folder / "tests.xml"], capture_output=True)
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    unittest.main()
