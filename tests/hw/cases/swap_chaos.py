"""All at once: programs with memory of every kind come, work, are moved, frozen, limited and killed, as are daemon and
mover. No word is wrong, and afterwards nothing is held that was not held before."""
import collections
import http.client
import itertools
import json
import os
import random
import signal
import threading
import time

from harness import standstill
from harness.bench import GIB, MIB, last_words, must_succeed
from harness.checks import Failed, Skipped, expect
from harness.holdings import DEVICE_SLACK, Holdings, device_used
from harness.swap_ground import CHUNK, Evictor, swap

END_S = 60  # for programs to end, and for what they had to come back
MOST_START_S = 60
CONTEXTS = 2  # of a program and its second process


class Actor:
    """A place for a program, in a vGPU of its own: when its program is killed, another one comes."""

    def __init__(self, bench, number, each, argv):
        self._bench, self._argv = bench, argv
        self.vgpu = f"hw-chaos-{number}"
        self.contexts = CONTEXTS * bench.context_bytes
        self._each = each
        bench.vgpu(self.vgpu, memory_max=self.contexts + 2 * each)
        self._seeds = itertools.count(100 * number + 1)
        self.program, self.lasts = None, []

    def start(self, seconds):
        self.program = self._bench.start_inside([*self._argv, "--seed", next(self._seeds), "--seconds", max(1, int(seconds))],
                                                vgpu=self.vgpu)

    def limit(self, part):
        """Bytes: at 0 what cannot move has place, at 1 all that the program may have."""
        return self.contexts + int(self._each * (0.6 + 1.4 * part)) // CHUNK * CHUNK

    def take_last(self):
        """Keeps the last line of a program that has ended."""
        done = self.program.finished()
        lines = [line for line in done.out.splitlines() if line.startswith("{") and line.endswith("}")]
        if lines:
            self.lasts.append(json.loads(lines[-1]))
        expect("wrong" not in done.err, f"{self.vgpu}: {last_words(done)}")
        return done

    def kill(self):
        self.program.kill()
        self.program.wait(5)
        self.take_last()


class Stage:
    """The actors, and what is done to them by threads of their own, until it ends."""

    def __init__(self, bench, config, actors, seconds):
        self._bench, self._tessera, self._config, self.actors = bench, bench.tessera, config, actors
        self._begin = time.monotonic()
        self._end = self._begin + seconds
        self._ended = threading.Event()
        self.deeds, self.missed = collections.Counter(), collections.Counter()
        self.failed = None
        self._lock = threading.Lock()  # one actor's program changes
        self._threads = [threading.Thread(target=self._act, args=each, daemon=True) for each in (
            (1, 0.15, {self._evict: 40, self._freeze: 12, self._thaw: 24}),
            (2, 0.6, {self._limit: 1}),
            (3, 1.5, {self._kill_program: 4, self._kill_mover: 3, self._kill_daemon: 1, self._kill_daemon_and_mover: 1}))]

    def _act(self, seed, gap_s, deeds):
        source = random.Random(seed)
        while not self._ended.wait(source.uniform(0.2, 1.8) * gap_s):
            (deed,) = source.choices(list(deeds), list(deeds.values()))
            try:
                if deed(source) is not False:
                    self.deeds[deed.__name__.strip("_")] += 1
            except (OSError, RuntimeError, http.client.HTTPException, KeyError) as why:
                # The daemon has just died, or what was asked for cannot be; a thing that must not be says itself.
                self.missed[deed.__name__.strip("_")] += 1
                self._bench.log(f"{time.monotonic() - self._begin:.1f} s: {deed.__name__}: {why}")
            except Exception as why:
                self.failed = self.failed or why
                return

    def _evict(self, source):
        for process in self._tessera.of_vgpu(source.choice(self.actors).vgpu):
            if process["memory_bytes"] > process["memory_pinned_bytes"]:  # the second process has nothing of its own
                self._tessera.evict(process["pid"], source.choice((0, 0, process["memory_bytes"] // 2)))

    def _freeze(self, source):
        self._tessera.freeze(source.choice(self.actors).vgpu)

    def _thaw(self, source):
        self._tessera.thaw(source.choice(self.actors).vgpu)

    def _limit(self, source):
        actor = source.choice(self.actors)
        self._tessera.set(actor.vgpu, memory_limit=actor.limit(source.choice((0, 0.2, 0.5, 1))))

    def _kill_program(self, source):
        left = self._end - time.monotonic()
        if left < MOST_START_S / 6:
            return False
        actor = source.choice(self.actors)
        with self._lock:
            if not actor.program.alive():
                return False
            actor.kill()
            actor.start(left)
        return True

    def _kill_mover(self, _):
        mover = self._tessera.gpu()["swap"]["mover_pid"]
        if mover is None:
            return False
        os.kill(mover, signal.SIGKILL)
        return True

    def _kill_daemon(self, _):
        return self._replace_daemon()

    def _kill_daemon_and_mover(self, _):
        mover = self._tessera.gpu()["swap"]["mover_pid"]
        return mover is not None and self._replace_daemon(mover)

    def _replace_daemon(self, mover=None):
        """In the first half: the last daemon is to live long enough to show what it keeps. Not while a program starts: `tessera
        run` would start a daemon of its own."""
        if time.monotonic() > (self._begin + self._end) / 2:
            return False
        if not all(self._tessera.of_vgpu(actor.vgpu) for actor in self.actors):
            return False
        self._tessera.kill(mover)
        try:
            self._tessera.start(config=self._config)
        except RuntimeError as why:
            raise Failed(f"no new daemon: {why}") from None
        return True

    def play(self):
        for actor in self.actors:
            actor.start(self._end - time.monotonic())
        for thread in self._threads:
            thread.start()
        while time.monotonic() < self._end and self.failed is None:
            time.sleep(0.2)
            for actor in self.actors:
                with self._lock:
                    if not actor.program.alive() and actor.program.finished().status != 0:
                        self._ended.set()
                        raise Failed(f"{actor.vgpu}: {last_words(actor.take_last())}; {self}")
        self._ended.set()
        for thread in self._threads:
            thread.join(40)
        if self.failed:
            raise Failed(f"{self.failed}; {self}")

    def calm(self):
        """Everybody may run, with all memory, to the end."""
        for actor in self.actors:
            self._tessera.thaw(actor.vgpu)
            self._tessera.set(actor.vgpu, memory_limit=actor.limit(1))
        end = time.monotonic() + self._bench.left(END_S)
        for actor in self.actors:
            try:
                actor.program.wait(max(0.1, end - time.monotonic()))
            except TimeoutError:
                standstill.log(self._bench, actor.program, [each.program for each in self.actors if each.program.alive()])
                raise Failed(f"the program of {actor.vgpu} does not end; {self}") from None
            done = actor.take_last()
            expect(done.status == 0 and actor.lasts[-1]["done"], f"{actor.vgpu}: {done.status}: {last_words(done)}; {self}")

    def __str__(self):
        said = ", ".join(f"{count} {deed}" for deed, count in sorted(self.deeds.items()))
        missed = ", ".join(f"{count} {deed}" for deed, count in sorted(self.missed.items()))
        return f"{said}; not possible at that moment: {missed or 'none'}"


def _warm_up(bench, argv):
    """What a daemon and a mover make once, when memory is first moved."""
    with Evictor(bench, 0.2) as evictor:
        must_succeed(bench.inside([*argv, "--seed", 1, "--seconds", 3], limit_s=60), "the first program")
    expect(evictor.moved > 0, "nothing of the first program was moved")


def _held(bench):
    """What is held once all that is prepared has been made and nothing changes any more."""
    last = [0, time.monotonic()]

    def stands():
        pool, now = bench.tessera.gpu()["swap"]["pool_bytes"], time.monotonic()
        if pool != last[0]:
            last[:] = [pool, now]
        return pool > 0 and now > last[1] + 3
    bench.until(stands, "host memory to be prepared", 120, 0.1)
    return Holdings(bench)


@swap(soft=True, limit_s=900)
def chaos(bench):
    """Minutes of everything; --option chaos.seconds=600 for ten of them, chaos.programs, chaos.gib of each."""
    churn = bench.tessera.dist / "lib" / "tessera" / "tessera-swap-churn"
    if not churn.exists():
        raise Skipped(f"no {churn}")
    count = int(bench.options.get("chaos.programs", 3 if bench.soft else 8))
    each = int(float(bench.options.get("chaos.gib", 0.375 if bench.soft else 4)) * GIB) // CHUNK * CHUNK
    gpu = bench.tessera.gpu()
    # Two thirds of what they have, beside all contexts: theirs, and the one of the mover.
    room = count * (each * 2 // 3 + CONTEXTS * bench.context_bytes) + bench.context_bytes
    pool = each * count * 2 // CHUNK * CHUNK  # a chunk takes all of its place there, however little of it is in use
    config = (f'[memory]\nreserve = "{gpu["memory_total_bytes"] - room}"\n'
              f'[swap]\nsize = "{pool}"\nprepare = "{pool}"\nfloor = "1G"\n[turn]\nmin_ms = 50\nmax_ms = 2000\n')
    bench.tessera.stop()
    bare = device_used(bench)
    bench.tessera.start(config=config)
    argv = [churn, "--rounds", 1 << 40, "--memory", each // MIB, "--with", "all"]
    _warm_up(bench, argv)
    before = _held(bench)
    seconds = float(bench.options.get("chaos.seconds", 20 if bench.soft else 60))
    seconds = max(5, min(seconds, bench.left() - 2 * END_S))
    stage = Stage(bench, config, [Actor(bench, number, each, argv) for number in range(count)], seconds)
    stage.play()
    stage.calm()
    lasts = [last for actor in stage.actors for last in actor.lasts]
    total = {key: sum(last[key] for last in lasts) for key in lasts[0]}
    figure = (f"{total['wrong_words']} wrong of {total['checked_words']} words, {seconds:.0f} s, {count} programs of "
              f"{each / GIB:.2g} GiB: {total['rounds']} rounds, {total['replays']} graphs ({total['replays_with_memory']} with "
              f"memory), {total['reshaped']} ranges remapped, {total['shared']} times in a second process, "
              f"{total['refused']} refused; {stage}")
    bench.tell(figure)
    expect(total["wrong_words"] == 0, figure)
    kinds = {key: total[key] for key in ("replays", "replays_with_memory", "reshaped", "shared")}
    expect(all(kinds.values()), f"nothing was done of {kinds}")
    after = []

    def nothing_more():
        after[:] = [Holdings(bench)]
        return not after[0].more_than(before)
    try:
        bench.until(nothing_more, "", END_S, 1)
    except Failed:
        raise Failed(f"left over: {'; '.join(after[0].more_than(before))}; {figure}") from None
    bench.tessera.stop()
    slack = 0 if bench.soft else DEVICE_SLACK
    bench.until(lambda: device_used(bench) <= bare + slack, "the GPU to be as it was before the daemon", END_S, 1)
    bench.tessera.start(config=config)
    return f"{figure}; before: {before}; after: {after[0]}; without a daemon the GPU is as it was", total
