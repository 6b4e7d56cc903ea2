#!/usr/bin/env python3
"""Unit tests get their scratch files from TemporaryFolder (src/base/testing/temporary_folder.h) only.

The tests of a program run at the same time, each in a process of its own: a file of a fixed name would be shared by them,
and what a test makes by hand stays behind if it ends early.
"""
import pathlib
import re
import sys

THE_PLACE = pathlib.PurePath("base/testing/temporary_folder.h")
BY_HAND = re.compile(r"\b(testing::TempDir|mkdtemp|mkstemp|temp_directory_path|tmpnam)\s*\(")


def is_test(path):
    return "test" in path.stem or "testing" in path.parts


def faults(files):
    """A line for each use in `files`: (path relative to src/, text). Comments count, too: they are no places for it."""
    for path, text in files:
        if path == THE_PLACE or not is_test(path):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if found := BY_HAND.search(line):
                yield f"src/{path}:{number}: {found[1]}: use TemporaryFolder of {THE_PLACE}, which is removed with the test"


def main():
    source = pathlib.Path(__file__).resolve().parent.parent / "src"
    wrong = list(faults((path.relative_to(source), path.read_text()) for path in sorted(source.rglob("*"))
                        if path.suffix in (".cc", ".h", ".cu")))
    print("\n".join(wrong) or "tests: each has a folder of its own")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
