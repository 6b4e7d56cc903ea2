"""Where the checks of swapping stand: one daemon for all of them, whose pool of host memory is made once, and programs
with much memory. Everything is a part of `size`, what one large program has; two of them do not fit together."""
import http.client
import random
import threading
import time

from harness import steering, timeline
from harness.bench import GIB, MIB
from harness.checks import Failed, expect
from harness.pinned import Pinned

CHUNK = 64 * MIB  # as the daemon moves memory
STRIDE = 16384  # words of 4 bytes, of which a soft GPU touches one
OUTSIDE = 8 * GIB  # of RAM, for everything else
QUIET_S = 0.3
_copies = {}  # what plain copies do, by the option that they depend on


def _chunks(bytes_):
    return max(1, int(bytes_) // CHUNK) * CHUNK


def free_ram():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))


class Ground:
    """Sizes and the daemon's configuration for them: 60 GiB a program on 70 GiB, less where GPU or RAM is smaller."""

    def __init__(self, gpus, soft, ram, options):
        total = min(gpu["memory_total_bytes"] for gpu in gpus)
        wanted = float(options.get("swap.gib", 1 if soft else 60)) * GIB
        most = (total - (0 if soft else 2 * GIB)) * 6 / 7
        outside = GIB if soft else OUTSIDE
        self.size = _chunks(min(wanted, most, (ram - outside) / len(gpus) / 1.2))
        self.room = _chunks(self.size * 7 / 6)
        spare = 2.2 if soft else 1.2  # a soft GPU holds more in batches under way, against its size
        pool = float(options.get("swap.pool_gib", 0)) * GIB
        self.pool = _chunks(pool or self.size * spare)
        self.config = (f'[memory]\nreserve = "{total - self.room}"\n'
                       f'[swap]\nsize = "{self.pool * len(gpus)}"\nfloor = "{1 if soft else 2}G"\n')
        if soft:
            self.config += "[turn]\nmin_ms = 50\nmax_ms = 1000\n"  # it is slow, and is not judged by its speed
        elif "swap.turns" in options:
            least, most = options["swap.turns"].split(",")
            self.config += f"[turn]\nmin_ms = {int(least)}\nmax_ms = {int(most)}\n"

    def part(self, sixtieths):
        """GiB of a machine where a program has 60."""
        return _chunks(self.size * sixtieths / 60)


def stand(bench):
    """Starts the daemon of the ground in place of another one, which ends."""
    gpus = bench.tessera.get("/v1/gpus")["gpus"]
    if getattr(bench.tessera, "ground", None) and bench.tessera.config == bench.tessera.ground.config:
        bench.ground = bench.tessera.ground
        return
    bench.tessera.stop()
    bench.ground = bench.tessera.ground = Ground(gpus, bench.soft, free_ram(), bench.options)
    bench.tessera.start(config=bench.ground.config)
    expect(bench.tessera.gpu()["swap"] is not None, "this daemon does not swap")


def swap(**options):
    """Declares a check of the section "swap"."""
    return steering.watched("swap", prepare=stand, **options)


class Large:
    """A program with much memory (swap.cc), in a vGPU of its own unless it is native. Has its memory at once, or, without
    `wait`, when stands() returns."""

    def __init__(self, bench, bytes_, name=None, block=None, native=False, wait=True, mapped=False,
                 **fields):
        argv = [bench.builder.program("swap.cc"), bytes_, block or min(GIB, _chunks(bench.ground.size / 60)),
                STRIDE if bench.soft else 1, *(["mapped"] if mapped else [])]
        self._bench, self._bytes = bench, bytes_
        if native:
            self.program = bench.start_native(argv)
        else:
            bench.vgpu(name, **fields)
            self.program = bench.start_inside(argv, vgpu=name)
        if wait:
            self.stands()

    def stands(self, limit_s=120):
        """Waits for it to have its memory."""
        words = self._bench.line(self.program, limit_s).split()
        if words[0] != "ready":
            raise Failed(f"a program with {self._bytes / GIB:.1f} GiB: {' '.join(words)}")
        self.pid, self.start_s = int(words[1]), float(words[2])

    def tell(self, order):
        self.program.say(order)

    def told(self, limit_s=60):
        """The numbers of the next answer."""
        line = self._bench.line(self.program, limit_s)
        words = line.split()
        try:
            return [float(word) for word in words[1:]]
        except ValueError:
            raise Failed(f"the program said: {line}") from None

    def ask(self, order, limit_s=60):
        self.tell(order)
        return self.told(limit_s)

    def right(self, limit_s=60):
        (wrong,) = self.ask("check", limit_s)
        expect(wrong == 0, f"{wrong:.0f} words are wrong")

    def end(self, limit_s=20):
        self.program.close_input()
        expect(self.program.wait(self._bench.left(limit_s)) == 0, f"{self.program.name()} failed")

    def rate(self, seconds, from_=0, to=1):
        """Kernels a second of one that keeps busy that long."""
        kernels, begin, end = self.ask(f"busy {seconds} {from_} {to}", seconds + 60)
        return kernels / (end - begin)


def copies(bench):
    """(out, in, both at once): bytes a second of plain pinned copies of 4 GiB, once in a run."""
    if "rates" not in _copies:
        plain = Large(bench, 0, native=True)
        _copies["rates"] = plain.ask(f"copies {GIB * 4 if not bench.soft else 64 * MIB}")
        plain.end()
        out, into, both = (rate / timeline.GB for rate in _copies["rates"])
        bench.tell(f"plain pinned copies: out {out:.1f}, in {into:.1f}, both at once {both:.1f} GB/s")
    return _copies["rates"]


def squeeze(bench, room, name="hw-rest"):
    """Gives somebody who does nothing all but `room` bytes of the GPU, in memory that cannot be moved."""
    bench.vgpu(name)
    taken = bench.ground.room - room - bench.context_bytes
    holder = bench.start_inside([bench.builder.program("hold.cc"), taken], env={"TESSERA_SWAP": "0"}, vgpu=name)
    expect(bench.line(holder, 60).startswith("got "), "the GPU could not be filled")


# The daemon's log of its moves

def steps_since(bench, mark):
    return timeline.parse(bench.tessera.log_lines()[mark:])


def mark(bench):
    return len(bench.tessera.log_lines())


def quiet(bench, limit_s=20):
    """Waits until nothing has been moved for a while."""
    def nothing_new():
        begun = mark(bench)
        time.sleep(QUIET_S)
        return not any(step.what == "moved" for step in steps_since(bench, begun))
    bench.until(nothing_new, "memory stands still", limit_s)


def pool_stands(bench, bytes_, limit_s=60, gpu=0):
    """Waits for the GPU's pool of host memory, whose making would disturb; as long as it still grows."""
    begin, first = time.monotonic(), bench.tessera.gpu(gpu)["swap"]["pool_bytes"]
    last, since = first, begin
    while time.monotonic() < begin + bench.left(limit_s):
        pool = bench.tessera.gpu(gpu)["swap"]["pool_bytes"]
        if pool > last:
            last, since = pool, time.monotonic()
        if pool >= bytes_ or time.monotonic() > since + 1.5:
            break
        time.sleep(0.1)
    took = max(since - begin, 1e-3)
    if last > first:
        bench.tell(f"host memory {last / GIB:.1f} GiB, the last {(last - first) / GIB:.1f} of them in {took:.1f} s: "
                   f"{(last - first) / took / timeline.GB:.1f} GB/s")


def move(bench, program, direction, begin):
    """How the program's memory was moved since that mark of the log; Failed if it was not."""
    def ended():
        found = timeline.Move(steps_since(bench, begin), program.pid, direction)
        return found if found and found.ends else None
    return bench.until(ended, f"memory moved {direction}", 60)


def evict(bench, program, to_bytes=0):
    begin = mark(bench)
    bench.tessera.evict(program.pid, to_bytes)
    return move(bench, program, "out", begin)


def load(bench, program):
    """(the move, seconds until the first kernel is done)."""
    begin = mark(bench)
    launched, first, _ = program.ask("pass 1")
    return move(bench, program, "in", begin), first - launched


def hand_over(bench, loser, winner):
    """The winner's memory comes in, the loser's goes out; best when all is quiet."""
    begin = mark(bench)
    launched, first, _ = winner.ask("pass 1", 60)
    bench.until(lambda: any(step.who == winner.pid and step.what == "runs" for step in steps_since(bench, begin)) or
                time.monotonic() > first + 0.2, "the log", 5)
    return timeline.HandOver(steps_since(bench, begin), loser.pid, winner.pid, launched, first)


def pair(bench, bytes_, **fields):
    """Two programs that do not fit together, moved once each."""
    first = Large(bench, bytes_, "hw-a", **fields)
    second = Large(bench, bytes_, "hw-b", **fields)
    bench.tell(f"two of {bytes_ / GIB:.1f} GiB started in {first.start_s:.2f} and {second.start_s:.2f} s")
    pool_stands(bench, min(bench.ground.pool, 2 * bytes_))
    for program in (first, second):
        program.ask("pass 1")
    return first, second


class Evictor(threading.Thread):
    """Brings out the memory of every program under Tessera at random moments, until it is closed."""

    def __init__(self, bench, gap_s):
        super().__init__(daemon=True)
        self._tessera, self._gap_s, self._random = bench.tessera, gap_s, random.Random(7)
        self._ended = threading.Event()
        self.times, self.moved, self._last = 0, 0, {}
        self.pinned = Pinned()

    def run(self):
        while not self._ended.wait(self._random.uniform(0.2, 1.8) * self._gap_s):
            try:
                for process in self._tessera.processes():
                    if not process["vgpu"] or not process["memory_bytes"]:
                        continue
                    self._count(process["pid"], process["moved_out_bytes"])
                    self.pinned.note(process)
                    self._tessera.evict(process["pid"], self._random.choice((0, 0, process["memory_bytes"] // 2)))
                    self.times += 1
            except (OSError, RuntimeError, http.client.HTTPException):  # it has just ended, or the daemon has
                continue

    def _count(self, pid, moved):
        """Adds to `moved`, the bytes brought out as far as the daemon said; another daemon counts anew."""
        last = self._last.get(pid, 0)
        self.moved += moved - (last if last <= moved else 0)
        self._last[pid] = moved

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self.join(15)

    def __str__(self):
        return f"{self.times} evictions, {self.moved / GIB:.1f} GiB out"
