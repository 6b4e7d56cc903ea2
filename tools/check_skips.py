#!/usr/bin/env python3
"""Counts the tests that CTest ran, and fails if one was skipped that should have run here.

  tools/check_skips.py [--whole] build/release/tests.xml

tests/allowed_skips.toml lists the tests that may be skipped and under which condition. The conditions are tried on this
machine, without asking the test: a skip whose condition does not hold is a failure. --whole: all tests were run, so an
entry that names no test is a mistake.

A Python file is one test to CTest. tests/run_unittest.py reports the tests in it; they are called FILE:Class.method here.
"""
import argparse
import dataclasses
import fnmatch
import json
import pathlib
import re
import sys
import tomllib
import xml.etree.ElementTree

import machine_conditions

ALLOWED = pathlib.Path(__file__).resolve().parent.parent / "tests" / "allowed_skips.toml"
REPORT = "unittest-report: "
# A control character, as terminals get them, is not permitted in XML, but CTest copies it from a test's output.
NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclasses.dataclass
class Test:
    name: str
    status: str  # "passed", "failed" or "skipped"
    reason: str = ""  # of a skip or a failure


def gtest_reason(output):
    """The text behind GTEST_SKIP() <<."""
    found = re.search(r": Skipped\n(.*?)\n*\[", output, re.DOTALL)
    return found[1].strip() if found else ""


def python_tests(file, report, file_failed):
    """The tests of one Python file. A skipped class or module has no methods that ran; it counts as one test."""
    skipped = {tidy(name): reason for name, reason in report["skipped"].items()}
    failed = {tidy(name): reason for name, reason in report["failed"].items()}
    for name in sorted({*report["ran"], *skipped, *failed}):
        status = "failed" if name in failed else "skipped" if name in skipped else "passed"
        yield Test(f"{file}:{name}", status, failed.get(name) or skipped.get(name, ""))
    if file_failed and not failed:
        yield Test(file, "failed")  # it died, or something after the tests failed


def tidy(name):
    """'setUpClass (__main__.Files)' is Files.setUpClass; 'setUpModule (__main__)' is setUpModule."""
    found = re.fullmatch(r"(\w+) \(__main__\.?(.*)\)", name)
    return name if not found else f"{found[2]}.{found[1]}" if found[2] else found[1]


def read_tests(junit):
    """The tests of a JUnit file of CTest."""
    for case in xml.etree.ElementTree.fromstring(NOT_XML.sub("", junit)).iter("testcase"):
        name, status, output = case.get("name"), case.get("status"), case.findtext("system-out") or ""
        report = [line for line in output.splitlines() if line.startswith(REPORT)]
        skip = case.find("skipped")
        if report:
            yield from python_tests(name, json.loads(report[-1].removeprefix(REPORT)), status == "fail")
        elif status == "disabled":
            yield Test(name, "skipped", "it is disabled")
        elif skip is not None and skip.get("message", "").startswith("SKIP_"):
            # CTest takes a test that failed and was then skipped for skipped.
            failed = "[  FAILED  ]" in output
            yield Test(name, "failed") if failed else Test(name, "skipped", gtest_reason(output))
        else:
            yield Test(name, "passed" if status == "run" else "failed")


def read_allowed(text):
    """(pattern, conditions) of each entry."""
    allowed = []
    for entry in tomllib.loads(text)["skip"]:
        unknown = set(entry["when"]) - set(machine_conditions.CONDITIONS)
        if unknown or not entry["why"]:
            raise ValueError(f"allowed_skips.toml: {entry['tests']}: no condition is called {', '.join(unknown)}")
        allowed += [(pattern, entry["when"]) for pattern in entry["tests"]]
    return allowed


def faults(tests, allowed, holds, whole=False):
    """Faults of the skips, a line each. holds(condition): whether it is so on this machine."""
    for test in tests:
        if test.status != "skipped":
            continue
        conditions = [condition for pattern, when in allowed if fnmatch.fnmatchcase(test.name, pattern) for condition in when]
        if not conditions:
            yield f"{test.name} was skipped ({test.reason}), and tests/allowed_skips.toml does not list it"
        elif not any(holds(condition) for condition in conditions):
            yield (f"{test.name} was skipped ({test.reason}), which is allowed where: {', '.join(conditions)}. "
                   "That does not hold on this machine")
    for pattern in sorted({pattern for pattern, _ in allowed}) if whole else ():
        if not any(fnmatch.fnmatchcase(test.name, pattern) for test in tests):
            yield f"tests/allowed_skips.toml: no test is called {pattern}"


def summary(tests):
    counts = {status: sum(test.status == status for test in tests) for status in ("passed", "failed", "skipped")}
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("junit", type=pathlib.Path)
    parser.add_argument("--whole", action="store_true")
    arguments = parser.parse_args()
    if not arguments.junit.exists():
        sys.exit(f"{arguments.junit} does not exist: CTest did not finish")
    tests = list(read_tests(arguments.junit.read_text(errors="replace")))
    wrong = list(faults(tests, read_allowed(ALLOWED.read_text()), machine_conditions.holds, arguments.whole))
    failed = [test for test in tests if test.status == "failed"]
    for test in tests:
        if test.status == "skipped":
            print(f"skipped: {test.name}: {test.reason}")
    for test in failed:
        print(f"FAILED: {test.name}" + (f": {test.reason}" if test.reason else ""))
    for line in wrong:
        print(f"FAULT: {line}")
    print(f"tests: {summary(tests)}" + (f"; {len(wrong)} of the skips are faults" if wrong else ""))
    return 1 if failed or wrong or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
