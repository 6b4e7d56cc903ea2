"""The stacks of a program that stands still: for the log of the check that found it."""
import json
import pathlib
import re
import shutil
import struct

from harness import processes

_STACK_BYTES = 24 << 10  # of each thread's, from its stack pointer


class _Code:
    """The executable mappings of a process."""

    def __init__(self, pid):
        self._ranges = []
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            found = re.match(r"(\w+)-(\w+) ..x. (\w+) \S+ \d+ +(/.*)", line)
            if found:
                begin, end, offset = (int(number, 16) for number in found.groups()[:3])
                self._ranges.append((begin, end, offset, pathlib.Path(found[4]).name))

    def name(self, address):
        """FILE+OFFSET, or None where no code lies."""
        for begin, end, offset, name in self._ranges:
            if begin <= address < end:
                return f"{name}+{address - begin + offset:#x}"
        return None


def _words(pid, address):
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        memory.seek(address)
        try:
            data = memory.read(_STACK_BYTES)
        except OSError:
            return []
    return struct.unpack(f"<{len(data) // 8}Q", data[:len(data) // 8 * 8])


def threads(pid):
    """A line for each thread, and below it what looks like return addresses on its stack, the innermost first."""
    code = _Code(pid)
    lines = []
    for thread in sorted(pathlib.Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name)):
        try:
            name, state, wchan, call = ((thread / file).read_text().strip() for file in ("comm", "stat", "wchan", "syscall"))
        except OSError:  # it has just ended
            continue
        lines.append(f"{name} {thread.name}: {state.rpartition(')')[2].split()[0]} {wchan} {call}")
        numbers = call.split()
        if len(numbers) > 2:
            pc, sp = int(numbers[-1], 16), int(numbers[-2], 16)
            lines += [f"  {code.name(pc)}"]
            lines += [f"  sp+{8 * at:#x} {place}" for at, word in enumerate(_words(pid, sp)) if (place := code.name(word))]
    return lines


def backtraces(pid):
    """The output of a debugger, where there is one; the program is stopped meanwhile."""
    debugger = shutil.which("gdb") or shutil.which("cuda-gdb") or shutil.which("cuda-gdb", path="/usr/local/cuda/bin")
    if not debugger:
        return ["no debugger"]
    done = processes.run([debugger, "-p", pid, "-batch", "-ex", "thread apply all bt"], 40)
    return (done.out + done.err).splitlines()


def log(bench, program, others):
    """Logs all that tells why a program stands, beside the others'."""
    bench.log(json.dumps([bench.tessera.gpu(), *bench.tessera.processes()], indent=1))
    for each in others:
        bench.log(f"process {each.pid}, errors: {''.join(each.errors)}")
        bench.log("\n".join(threads(each.pid)))
    bench.log("\n".join(backtraces(program.pid)))
