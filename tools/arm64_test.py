#!/usr/bin/env python3
"""arm64_test.py [CTEST-OPTION...]: runs the tests of build/arm64 under qemu-user (tools/arm64_run.sh), but for those of
tests/arm64_excluded.toml, which cannot run there.

Tests are named as in tests/allowed_skips.toml; a star stands for anything. A Python file of which only some tests are
excluded runs without them.
"""
import fnmatch
import json
import os
import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    entries = tomllib.loads((ROOT / "tests" / "arm64_excluded.toml").read_text())["excluded"]
    names = [name for entry in entries for name in entry["tests"]]
    whole = [fnmatch.translate(name) for name in names if ":" not in name]
    os.environ["TESSERA_EXCLUDED_TESTS"] = json.dumps([name for name in names if ":" in name])
    command = [ROOT / "tools" / "arm64_run.sh", "ctest", "--preset", "arm64", *sys.argv[1:]]
    if whole:
        # CTest's expressions know neither (?s:…) nor \Z.
        command += ["--exclude-regex", "|".join("^" + re.sub(r"^\(\?s:(.*)\)\\Z$", r"\1", each) + "$" for each in whole)]
    os.environ["OBJDUMP"] = "aarch64-linux-gnu-objdump"
    os.chdir(ROOT)
    os.execv(command[0], [str(word) for word in command])


main()
