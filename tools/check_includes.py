#!/usr/bin/env python3
"""Arrows point down only: checks the #includes of src/ against the layers of docs/architecture.md."""
import pathlib
import re
import sys

MAY_USE = {
    "base": set(),
    "cuda": set(),
    "wire": {"base"},
    "sched": {"base"},
    "soft": {"base", "cuda"},
    "channel": {"base", "cuda", "soft"},
    "guard": {"base", "channel"},
    "pager": {"base", "cuda", "wire"},
    "shim": {"base", "cuda", "wire", "channel", "pager"},
    "mover": {"base", "cuda", "wire"},
    "tenant": {"base", "cuda"},
    "server": {"base", "cuda", "wire", "sched", "soft", "channel", "guard"},
    "face": {"base", "server", "wire"},
    "cli": {"base", "cuda", "wire", "guard"},
}


def main():
    source = pathlib.Path(__file__).resolve().parent.parent / "src"
    wrong = []
    for path in sorted(source.rglob("*")):
        if path.suffix not in (".cc", ".h"):
            continue
        part = path.relative_to(source).parts[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r'\s*#\s*include\s+"(\w+)/', line)
            if found and found[1] in MAY_USE and found[1] != part and found[1] not in MAY_USE.get(part, set()):
                # The daemon's main puts the parts together.
                if path.name == "main.cc":
                    continue
                wrong.append(f"{path.relative_to(source.parent)}:{number}: {part} may not use {found[1]}")
    print("\n".join(wrong) or "includes: all arrows point down")
    return 1 if wrong else 0


sys.exit(main())
