"""The calls that threads of other processes are inside of, by sampling: a profile of calls into the driver, which
hold its locks. Needs no tool, only the right to read /proc/PID/task/TID/syscall; else just who runs and who waits.
"runs" is on a CPU, in the kernel too, as system time tells; a call is named while its thread sleeps in it."""
import collections
import os
import threading
import time

TICK = os.sysconf("SC_CLK_TCK")
_CALLS = {"0": "read", "7": "poll", "16": "ioctl", "202": "futex", "232": "epoll_wait", "271": "ppoll", "46": "sendmsg",
          "47": "recvmsg"}


def threads(pid, name):
    """The thread ids of a process whose name begins so."""
    found = []
    for tid in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{tid}/comm") as file:
                if file.read().startswith(name):
                    found.append(int(tid))
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
    return sorted(found)


def name_of(syscall):
    """Of what /proc tells: "ioctl F 2a" is the driver's escape 0x2a, "ioctl uvm 33" one of its managed memory."""
    words = syscall.split()
    call = _CALLS.get(words[0], f"call {words[0]}")
    if words[0] == "running":
        return "runs"
    if call != "ioctl" or len(words) < 3:
        return call
    command = int(words[2], 16)
    return f"ioctl F {command & 0xff:x}" if (command >> 8) & 0xff == ord("F") else f"ioctl uvm {command}"


class Sampler(threading.Thread):
    """Looks at threads, {label: (pid, tid)}, from its start to its close."""

    def __init__(self, who, pause_s=0.001):
        super().__init__(daemon=True)
        self._who, self._pause_s = who, pause_s
        self._ended = threading.Event()
        self.seen = {label: collections.Counter() for label in who}
        self.cpu_s = {}

    def run(self):
        while not self._ended.wait(self._pause_s):
            for label, (pid, tid) in self._who.items():
                self.seen[label][self._look(pid, tid)] += 1

    @staticmethod
    def _look(pid, tid):
        try:
            with open(f"/proc/{pid}/task/{tid}/syscall") as file:
                return name_of(file.read())
        except PermissionError:
            with open(f"/proc/{pid}/task/{tid}/stat") as file:
                return "state " + file.read().rpartition(")")[2].split()[0]
        except OSError:
            return "gone"

    def _cpu(self):
        used = {}
        for label, (pid, tid) in self._who.items():
            with open(f"/proc/{pid}/task/{tid}/stat") as file:
                words = file.read().rpartition(")")[2].split()
            used[label] = (int(words[11]) / TICK, int(words[12]) / TICK)
        return used

    def __enter__(self):
        self._before, self._began = self._cpu(), time.monotonic()
        self.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self.join(5)
        after = self._cpu()
        self.cpu_s = {label: tuple(b - a for a, b in zip(self._before[label], after[label])) for label in self._who}

    def describe(self, most=6):
        """A line for each thread."""
        lines = []
        for label, seen in self.seen.items():
            count = max(1, sum(seen.values()))
            user, system = self.cpu_s[label]
            shares = ", ".join(f"{what} {times / count:.0%}" for what, times in seen.most_common(most))
            lines.append(f"{label}: {user:.2f} s user, {system:.2f} s system; {count} looks: {shares}")
        return lines
