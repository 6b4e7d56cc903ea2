#!/usr/bin/env python3
"""lint_sources.py BUILD: what clang-tidy is to read of a build whose parts are compiled several files at a time."""
import json
import pathlib
import re
import sys

# The soft GPU, the CLI, the demo's program and the tests would take minutes; what protoc and embed.py write is made.
LEFT_OUT = re.compile(r"_test\.cc$|_bench\.cc$|fuzz|testing|\.pb\.cc$|^src/face/assets\.cc$|^src/(soft|cli|tenant)/|\.S$")

root, build = pathlib.Path(__file__).resolve().parent.parent, pathlib.Path(sys.argv[1]).resolve()
files = {entry["file"] for entry in json.loads((build / "compile_commands.json").read_text())}
together = {file for file in files if "/Unity/" in file}
# The pager, say, is a part, and is compiled into the shim as well.
read = {included for file in together for included in re.findall(r'#include "(.*)"', pathlib.Path(file).read_text())}


def place(file):
    """Where it is, or what was put together is of."""
    path = pathlib.Path(file)
    return str(path.relative_to(build if path.is_relative_to(build) else root))


print(*sorted(file for file in files - read if place(file).startswith("src/") and not LEFT_OUT.search(place(file))),
      sep="\n")
