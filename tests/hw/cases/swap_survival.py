"""Memory that moves for minutes under programs that do everything, while whoever moves it dies, and beyond host memory."""
import json
import os
import random
import shutil
import signal
import tempfile
import threading
import time

from harness import standstill
from harness.bench import GIB, MIB, last_words
from harness.checks import Failed, Skipped, expect
from harness.swap_ground import Evictor, Large, evict, load, quiet, squeeze, swap

CHURNS = 3
STANDS_S = 25  # a program says something every 100 rounds, some in a second; with its memory on the way, still within seconds


def _seconds(bench, at_most):
    """The value of --option swap.seconds, as far as there is time; else half of the time left, so that others get some."""
    left = bench.left() - 15
    return max(2, int(min(float(bench.options["swap.seconds"]), left) if "swap.seconds" in bench.options
                      else min(at_most, left / 2)))


class Churns:
    """Programs that allocate, write in every way, capture graphs and free, with memory for two thirds of them."""

    def __init__(self, bench, seconds):
        self._bench, self._seconds = bench, seconds
        churn = bench.tessera.dist / "lib" / "tessera" / "tessera-swap-churn"
        if not churn.exists():
            raise Skipped(f"no {churn}")
        each = bench.ground.part(20 if bench.soft else 4)  # well above the small allocations, which stay on the GPU
        squeeze(bench, each * CHURNS * 2 // 3)
        self._programs = []
        for number in range(CHURNS):
            bench.vgpu(f"hw-churn-{number}", memory_max=2 * each)
            argv = [churn, "--seed", 17 + number, "--rounds", 1 << 40, "--seconds", seconds, "--memory", each // MIB]
            self._programs.append(bench.start_inside(argv, vgpu=f"hw-churn-{number}"))

    def wait(self):
        """Until all have ended; at once to the end if one stands still."""
        end = time.monotonic() + self._bench.left(self._seconds + 90)
        said = [(0, time.monotonic())] * CHURNS  # lines, and since when there are so many
        while any(program.alive() for program in self._programs):
            now = time.monotonic()
            expect(now < end, "did not end")
            for number, program in enumerate(self._programs):
                lines = len(program.transcript)
                if lines != said[number][0] or not program.alive():
                    said[number] = (lines, now)
                elif now - said[number][1] > STANDS_S:
                    self._say_who_stands(number)
            time.sleep(0.5)
        self._statuses = [program.wait(5) for program in self._programs]

    def _say_who_stands(self, number):
        bench, program = self._bench, self._programs[number]
        standstill.log(bench, program, self._programs)
        raise Failed(f"program {number} stands still since {STANDS_S} s, {self._seconds} s were asked for; last: "
                     f"{program.transcript[-1].strip() if program.transcript else 'nothing'}")

    def right(self, more):
        """The sum of their work, after checking that none was wrong; `more` is added to the text."""
        lasts = []
        for program, status in zip(self._programs, self._statuses):
            done = program.finished()
            expect(done.out.strip(), f"ended with {status}: {last_words(done)}; {more}")
            lasts.append(json.loads(done.out.splitlines()[-1]))
        total = {key: sum(last[key] for last in lasts) for key in lasts[0]}
        figure = (f"{total['wrong_words']} wrong of {total['checked_words']} words in {self._seconds} s: "
                  f"{total['rounds']} rounds, {total['replays']} graphs, {total['refused']} allocations refused; {more}")
        self._bench.log(figure)
        expect(self._statuses == [0] * CHURNS and all(last["done"] for last in lasts),
               f"ended with {self._statuses}; {figure}")
        expect(total["wrong_words"] == 0, figure)
        return figure, lasts


class Killer(threading.Thread):
    """kill -9 of the mover now and then, and of the daemon more seldom, with another one in its place at once."""

    def __init__(self, bench):
        super().__init__(daemon=True)
        self._bench, self._random = bench, random.Random(5)
        self._ended = threading.Event()
        self.movers = self.daemons = 0
        self.failed = None

    def run(self):
        tessera = self._bench.tessera
        while not self._ended.wait(self._random.uniform(0.5, 4)):
            try:
                if self._random.random() < 0.25:
                    tessera.kill()
                    tessera.start(config=self._bench.ground.config)
                    self.daemons += 1
                elif (mover := tessera.gpu()["swap"]["mover_pid"]) is not None:
                    os.kill(mover, signal.SIGKILL)
                    self.movers += 1
            except ProcessLookupError:
                continue
            except Exception as error:  # it is for the check to say
                self.failed = error
                return

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self.join(30)

    def __str__(self):
        return f"{self.movers} movers and {self.daemons} daemons killed"


@swap(soft=True, limit_s=640)
def integrity(bench):
    """Random programs whose memory is brought out at random, too."""
    churns = Churns(bench, _seconds(bench, 6 if bench.soft else 600))
    with Evictor(bench, 0.25) as evictor:
        churns.wait()
    figure, lasts = churns.right(str(evictor))
    expect(evictor.moved > 0, figure)
    return figure, lasts


@swap(soft=True, limit_s=200)
def deaths(bench):
    """The same while movers and daemons are killed; nothing is left in the pool."""
    churns = Churns(bench, _seconds(bench, 20 if bench.soft else 60))
    with Evictor(bench, 0.25) as evictor, Killer(bench) as killer:
        churns.wait()
    expect(killer.failed is None, f"{killer.failed}; {killer}")
    figure, lasts = churns.right(f"{evictor}; {killer}")
    expect(evictor.moved > 0 and killer.movers > 0, figure)
    bench.until(lambda: not bench.tessera.gpu()["swap"]["pool_used_bytes"], "the pool to be empty", 20)
    return figure, lasts


@swap(soft=True, limit_s=120)
def file(bench):
    """Out and in where host memory holds half of it, and the rest goes to a file; its speed is the disk's."""
    bytes_ = bench.ground.part(60 if bench.soft else 8)
    pool = bytes_ // 2
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        if shutil.disk_usage(folder).free < 3 * bytes_:
            raise Skipped(f"too little place in {folder}")
        bench.tessera.stop()
        bench.tessera.start(config=bench.ground.config.split("[swap]")[0] +
                            f'[swap]\nsize = "{pool}"\nfloor = "1G"\nfile = "{folder}/swap"\nfile_size = "{2 * bytes_}"\n')
        programs = [Large(bench, bytes_ // 2, f"hw-{name}") for name in "ab"]
        moves = []
        for program in programs:
            moves.append(evict(bench, program))
            quiet(bench)
        filed = bench.tessera.gpu()["swap"]["file_used_bytes"]
        expect(filed > 0, "nothing came into the file")
        for program in programs:
            moves.append(load(bench, program)[0])
            program.right()
        for program in programs:
            program.end()
        bench.until(lambda: not bench.tessera.gpu()["swap"]["file_used_bytes"], "the file to be empty", 20)
    seconds = [move.bytes / move.rate for move in moves]
    return (f"{pool / GIB:.1f} GiB of host memory, {filed / GIB:.1f} GiB in the file; {bytes_ / GIB:.1f} GiB out in "
            f"{sum(seconds[:2]):.1f} s, in in {sum(seconds[2:]):.1f} s; words right")
