#!/usr/bin/env python3
"""Arrows point down only: checks the #includes of src/ against the layers of docs/architecture.md.

A part is a folder of src/. A part with folders of its own lists them from the bottom up: a file may include files of
its own folder, of folders listed before it, and of the part's own top folder (".") where that stands in the list.
"""
import pathlib
import re
import sys

# The parts that each part may use beside itself.
PARTS = {
    "glibc": set(),
    "base": set(),
    "cuda": {"base"},
    "wire": {"base"},
    "sched": {"base"},
    "plan": {"base", "sched"},
    "soft": {"base", "cuda"},
    "channel": {"base", "cuda", "soft"},
    "guard": {"base", "channel"},
    "pager": {"base", "cuda", "wire"},
    "shim": {"base", "cuda", "wire", "channel", "pager"},
    "mover": {"base", "cuda", "wire"},
    "checkpoint": {"base", "cuda", "wire"},
    "tenant": {"base", "cuda"},
    "server": {"base", "cuda", "wire", "sched", "soft", "channel", "guard"},
    "face": {"base", "server", "wire"},
    "client": {"base"},
    "cdi": {"base"},
    "cli": {"base", "wire", "guard", "client", "cdi", "sched", "plan"},
    "kubernetes": {"base", "client", "cdi"},
}

# The folders of a part, from the bottom up.
FOLDERS = {
    "base": ["text", "processor", ".", "process", "install"],
    "cli": ["terminal", "vgpu", "launch", "reference", "top", "doctor", "demo", "bench", "page", "plan", "commands", "moving", "."],
    "cli/top": ["model", "."],
    "channel": ["rm", "control", "watchdog", "self_test"],
    "face": ["text", "files", "page", "http", "."],
    "face/http": [".", "routes", "server"],
    "guard": ["request", "record", "gate", "supervisor", "holder", "watch"],
    "kubernetes": ["objects", "api_server", "machine", "containers", "claims", "slices", "proto", "kubelet", "device_plugin", "pods", "."],
    "pager": ["chunks", "heap", "line"],
    "mover": ["line", "pool", "holder", "suspended", "program", "gpu", "."],
    "plan": ["model", "time", "memory", "gpus", "workload", "input", "generate", ".", "cluster", "fleet"],
    "sched": ["packing", "fleet", "cluster", "shares", "balance", "tokens", "steering", "turns", "residency", "gangs", "bursts", "goals", "spaces", "idle", "."],
    "server": ["record", "loop", "access", "config", "devices", "figures", "model", "state", "channels", "time", "memory", "swap", "handover", "spaces", "suspended", "gpu",
               "checkpoint", "migration", "idle", "draining", "clients", "containers", "daemon", "control"],
    "shim": ["process", "load", "session", "gate", "order", "memory", "use", "device", "handles", "graph", "hooks", "nvml"],
    "soft": ["ptx", "shared", "mps", "device", "module", "exec", "checkpoint", "api"],
    "soft/ptx": [".", "syntax", "run", "op", "parse"],
}

# Files that put together what lies above them, and why.
JOINTS = {
    "face/tesserad.cc": "the daemon's main",
    "soft/device/context.cc": "a context makes the engine that executes its work",
}


def layer_of(folder, path):
    """The folder of FOLDERS[folder] that `path` (relative to src/) lies in."""
    rest = pathlib.PurePath(path).relative_to(folder).parts
    return rest[0] if len(rest) > 1 else "."


def fault(includer, included):
    """Why the file `includer` may not include `included`, or None; both relative to src/."""
    part, used = includer.split("/")[0], included.split("/")[0]
    if used not in PARTS:
        return None
    of_test = "test" in pathlib.PurePath(includer).stem or "/testing/" in includer
    if of_test and included.startswith("base/testing/"):
        return None
    if part != used:
        return None if used in PARTS[part] else f"{part} may not use {used}"
    if of_test or "fuzz" in includer or "bench" in includer:
        return None
    for folder, order in FOLDERS.items():
        if not (includer.startswith(folder + "/") and included.startswith(folder + "/")):
            continue
        above, below = layer_of(folder, includer), layer_of(folder, included)
        if above == below:
            continue
        for layer in (above, below):
            if layer not in order:
                return f"{folder}/{layer} has no place in the order of folders"
        if order.index(below) > order.index(above):
            return f"{folder}/{above} may not use {folder}/{below}, which lies above it"
    return None


def main():
    source = pathlib.Path(__file__).resolve().parent.parent / "src"
    wrong = []
    for path in sorted(source.rglob("*")):
        if path.suffix not in (".cc", ".h"):
            continue
        includer = str(path.relative_to(source))
        if includer in JOINTS:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r'\s*#\s*include\s+"([\w./]+)"', line)
            if found and "/" in found[1] and (why := fault(includer, found[1])):
                wrong.append(f"src/{includer}:{number}: {why}")
    print("\n".join(wrong) or "includes: all arrows point down")
    return 1 if wrong else 0


sys.exit(main())
