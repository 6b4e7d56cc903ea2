"""Frozen programs when the daemon dies, and much of everything at random: nobody stays behind."""
import os
import random
import signal
import time

from harness.bench import MIB
from harness.checks import Failed, expect
from harness.steering import HIGH, LOW, daemon_stands, frozen, inside, rest, steer, ticker

MOST_WATCHDOG_S = 6.0  # the watchdog's 5 s and a call
FROZEN_EACH = 5


def _crowd(bench, name, count, steps, **vgpu):
    bench.vgpu(name, **vgpu)
    return [inside(bench, ticker(bench, steps=steps), vgpu=name) for _ in range(count)]


def _all_frozen_by(bench, workers, whom):
    return all(whom in frozen(bench, worker.pid) for worker in workers)


def _within(condition, limit_s):
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@steer(soft=True, limit_s=90)
def daemon_killed_frozen(bench):
    """kill -9 of the daemon while ten are frozen: those frozen by policy run again by the watchdog, those frozen by the
    operator stay so, also under the next daemon, until they are thawed."""
    first = inside(bench, ticker(bench))
    steps = first.extra
    first.result()
    operators = _crowd(bench, "hw-operator", FROZEN_EACH, steps, compute_priority=HIGH)
    for worker in operators:  # before the lower class starts: it would not get as far as its first line
        bench.tessera.freeze(worker.pid)
    policies = _crowd(bench, "hw-policy", FROZEN_EACH, steps, compute_priority=LOW)
    (high,) = _crowd(bench, "hw-high", 1, steps, compute_priority=HIGH)
    bench.until(lambda: _all_frozen_by(bench, policies, "policy"), "the lower class is frozen", 10)
    time.sleep(0.1)
    before = {worker.pid: worker.count() for worker in (*operators, *policies)}
    high.moves()
    bench.tessera.kill()
    killed = time.monotonic()
    bench.until(lambda: all(worker.count() > before[worker.pid] for worker in policies),
                "those frozen by policy run again", 15)
    back_s = time.monotonic() - killed
    strays = [worker.pid for worker in operators if worker.count() > before[worker.pid]]
    high.moves()
    bench.tessera.start()
    bench.until(lambda: _all_frozen_by(bench, operators, "operator"), "the new daemon knows who was frozen", 10)
    time.sleep(1)
    strays += [worker.pid for worker in operators if worker.count() > before[worker.pid]]
    again = _within(lambda: _all_frozen_by(bench, policies, "policy"), 10)
    for worker in operators:
        bench.tessera.thaw(worker.pid)
    for worker in operators:
        worker.moves(10)
    for worker in (high, *operators):
        worker.result(30)
    for worker in policies:
        worker.moves(10)
    for worker in policies:
        worker.result(30)
    figure = f"{FROZEN_EACH} frozen by policy ran again after {back_s:.1f} s; {FROZEN_EACH} by the operator: "
    figure += f"{len(strays)} moved before they were thawed; the new daemon keeps the lower class off "
    figure += f"{'again' if again else 'NO MORE'}; all results right"
    expect(not strays and back_s <= MOST_WATCHDOG_S and again, figure)
    return figure


class Crowd:
    """Programs that come, go, are frozen, thawed and killed at random."""

    VGPUS = ("hw-chaos-a", "hw-chaos-b", "hw-chaos-c", "hw-chaos-d")

    def __init__(self, bench, size, steps):
        self._bench = bench
        self._size = size
        self._steps = steps
        self._source = random.Random(20)
        self._leaving = []
        self.running = []
        self.done = dict.fromkeys(("starts", "freezes", "thaws", "exits", "kills"), 0)
        for number, name in enumerate(self.VGPUS):
            bench.vgpu(name, compute_weight=100 * (number + 1))

    def _argv(self):
        kind = self._source.choice(("ticker", "churn", "churn", "context_loop"))
        if kind == "ticker":
            return ticker(self._bench, steps=self._steps)
        most = 8 * MIB if self._bench.soft else 256 * MIB
        program = self._bench.builder.program(f"{kind}.cc")
        return [program, most, self._source.randrange(1 << 30)] if kind == "churn" else [program]

    def start(self):
        worker = inside(self._bench, self._argv(), vgpu=self._source.choice(self.VGPUS))
        worker.moves(30)  # before its first context it has nothing that could be frozen
        self.running.append(worker)
        self.done["starts"] += 1

    def step(self):
        """One random thing."""
        if len(self.running) < self._size:
            return self.start()
        worker = self._source.choice(self.running)
        deed = self._source.choices(("freeze", "thaw", "exit", "kill"), (45, 45, 8, 2))[0]
        if deed == "kill":  # also of a frozen one
            self.running.remove(worker)
            os.kill(worker.pid, signal.SIGKILL)
            worker.program.wait(self._bench.left(10))
            self.done["kills"] += 1
        elif deed == "exit":
            self.running.remove(worker)
            self._bench.tessera.thaw(worker.pid)
            worker.close()
            self._leaving.append(worker)
            self.done["exits"] += 1
        else:
            self._bench.tessera.act(worker.pid, deed)
            self.done[deed + "s"] += 1
        self.collect(most=3)
        return None

    def collect(self, most=0):
        """Waits for those that leave, until no more than so many do."""
        while len(self._leaving) > most:
            self._leaving.pop(0).result(30)

    def end(self):
        """Lets everybody run, get on and end."""
        for worker in self.running:
            self._bench.tessera.thaw(worker.pid)
        left = [worker.pid for worker in self.running if frozen(self._bench, worker.pid)]
        for worker in self.running:
            worker.moves(30)
        self._leaving += self.running
        for worker in self.running:
            worker.close()
        self.collect()
        return left


@steer(soft=True, limit_s=580)
def random_freezes(bench):
    """Minutes of random freeze, thaw, start, exit, kill and allocation; --option chaos.seconds=600 for ten of them."""
    seconds = float(bench.options.get("chaos.seconds", 15 if bench.soft else 60))
    size = int(bench.options.get("chaos.processes", 6 if bench.soft else 16))
    first = inside(bench, ticker(bench))
    steps = first.extra
    first.result()
    crowd = Crowd(bench, size, steps)
    end = time.monotonic() + min(seconds, bench.left() - 60)
    while time.monotonic() < end:
        crowd.step()
        rest(crowd._source, 0.0, 0.02)
        if not bench.tessera.alive():
            raise Failed(f"the daemon died: {crowd.done}")
    left = crowd.end()
    figure = f"{size} programs, {seconds:.0f} s: " + ", ".join(f"{n} {what}" for what, n in crowd.done.items())
    expect(not left, f"{len(left)} still frozen at the end: {figure}")
    daemon_stands(bench)
    bench.until(lambda: all(bench.tessera.vgpu(n)["memory_current_bytes"] == 0 for n in Crowd.VGPUS),
                "all memory is back", 15)
    gpu = bench.tessera.gpu().get("control", {})
    return f"{figure}; all results right, nobody frozen, {gpu.get('failures', '?')} driver calls failed", crowd.done
