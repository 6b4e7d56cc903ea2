#!/usr/bin/env python3
"""run_unittest.py FILE [ARGUMENT...]: runs a Python test file as CTest does.

The file runs as if it were called itself. Its last line is a report for tools/check_skips.py: which tests ran, and which of
them failed or were skipped and why, in JSON. $TESSERA_EXCLUDED_TESTS, a list in JSON, names tests that are left
out (tools/arm64_test.py).
"""
import fnmatch
import functools
import json
import os
import pathlib
import runpy
import sys
import unittest

REPORT = "unittest-report: "


def name(test):
    """Class.method, without the module, which is always __main__."""
    return test.id().removeprefix("__main__.")


def reason(trace):
    """The first line of the exception that a traceback ends with."""
    lines = trace[trace.rfind("Traceback"):].splitlines()[1:]
    return next((line for line in lines if line and not line.startswith(" ")), "")


class Result(unittest.TextTestResult):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.ran = []

    def startTest(self, test):
        self.ran.append(name(test))
        super().startTest(test)

    def report(self):
        failed = {name(getattr(test, "test_case", test)): reason(trace) for test, trace in self.failures + self.errors}
        failed |= {name(test): "it was expected to fail" for test in self.unexpectedSuccesses}
        skipped = {name(getattr(test, "test_case", test)): why for test, why in self.skipped}
        return {"ran": self.ran, "failed": failed, "skipped": skipped}


class Loader(unittest.TestLoader):
    def __init__(self, file):
        super().__init__()
        self.excluded = [pattern.split(":")[1] for pattern in json.loads(os.environ.get("TESSERA_EXCLUDED_TESTS", "[]"))
                         if pattern.split(":")[0].split(".")[-1] == file.stem]

    def getTestCaseNames(self, case):
        return [method for method in super().getTestCaseNames(case)
                if not any(fnmatch.fnmatch(f"{case.__qualname__}.{method}", pattern) for pattern in self.excluded)]


class Runner(unittest.TextTestRunner):
    resultclass = Result

    def run(self, test):
        result = super().run(test)
        sys.stderr.flush()
        print(REPORT + json.dumps(result.report()), flush=True)
        return result


if __name__ == "__main__":
    file = pathlib.Path(sys.argv[1]).resolve()
    sys.argv[:] = [str(file), *sys.argv[2:]]
    sys.path[0] = str(file.parent)
    unittest.main = functools.partial(unittest.main, testRunner=Runner, testLoader=Loader(file))
    runpy.run_path(str(file), run_name="__main__")
