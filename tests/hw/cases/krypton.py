"""KRYPTON's mixes on as few GPUs as the plan says, one GPU of the plan after the other: what each program gets of its
target. Targets are parts of a program's speed alone.

Programs are stand-ins, because the models are not here: tessera-tenant with one block for each SM, of so many threads
that a block fills its SM. The models stand in the order of their speed, and the lightest is taken to fill a quarter of
the SMs, the heaviest all. That is an assumption, and the number of GPUs with spaces depends on it; that by time alone
does not. Memory and its bandwidth are left out: what they cost side by side is not measured here."""
import fractions
import signal
import statistics
import time

from harness import members, packing, tenants
from harness.checks import expect
from harness.members import space

F = fractions.Fraction
# Table 2 of KRYPTON (USENIX ATC 2025): inference with batches of 8, requests a second alone on an A100. A mix is each
# model with each target.
MODELS = {"MobileNetV2": 184.1, "ResNet50": 162.2, "Transformer-XL": 42.5, "BERT-Large": 6.6}
TARGETS = {"R1": (F(2, 3), F(1, 2), F(1, 3), F(1, 6), F(1, 12)), "R2": (F(1, 2), F(1, 4), F(1, 6), F(1, 8), F(1, 10))}
FILLS = (25, 50, 75, 100)  # percent of the SMs, from the fastest model to the slowest

KERNEL_US = 200
LEAST = 0.99  # of each target
MOST_ERROR = 0.015  # of the target, mean of a mix; theirs: 0.033
SOFT = (0.6, 0.2)
NOISE, SOFT_NOISE = 0.01, 0.2  # of a speed: what programs lose side by side below that is not planned for
# Points of the GPU's time that a limit is above its target: a stop and a go in each window of 100 ms cost so much
# (docs/hardware-log.md, steer.caps: 9.7, 19.7, 29.7 and 49.7 % of limits of 10, 20, 30 and 50 %).
OVER = 0.3
# A GPU of which more is promised has no program that takes the rest: that one needs some.
MOST_PROMISED = F(97, 100)
MARGIN = 0.01  # of a target, that a request is above it beside a program that takes the rest: for what a measurement is off


def _mix(case):
    models = sorted(MODELS, key=MODELS.get, reverse=True)
    return [packing.Program(model, sms, target) for model, sms in zip(models, FILLS) for target in TARGETS[case]]


class Ground:
    """The kinds of programs on this GPU, by the percent of the SMs that they fill: their sizes and speeds alone."""

    def __init__(self, bench):
        self.bench = bench
        self.soft = bench.soft
        self.seconds = float(bench.options.get("krypton.seconds", 1.5 if self.soft else 4))
        self.iterations = None
        self.sms = {}
        self._alone = {sms: [] for sms in FILLS}

    def start(self, sms, vgpu=None):
        options = {"blocks": self.sms[sms], "threads": 32 if self.soft else 1024}
        if not self.iterations:
            options["kernel-us"] = KERNEL_US * (5 if self.soft else 1)
        return tenants.start(self.bench, 60 + self.seconds, self.iterations, native=vgpu is None, vgpu=vgpu, **options)

    def size(self):
        """How many SMs each kind's limit gives: a kind fills these, whatever the hardware rounds."""
        for sms in FILLS:
            self.member("hw-kr-size", "hw-kr-0", sms)
            self.sms[sms] = 1
            tenant = self.start(sms, "hw-kr-size")
            self.sms[sms] = self.bench.tessera.vgpu("hw-kr-size")["sms"]
            finish([tenant])
            self.bench.tessera.delete("hw-kr-size")
        expect(all(self.sms.values()), f"the SMs of a program are not told: {self.sms}")

    def member(self, name, within, sms, **fields):
        reserved = {"sm_reserved": True} if self.bench.options.get("krypton.sms", "own") == "own" else {}
        members.member(self.bench, name, within, sm_limit=sms, **reserved, **fields)

    def calibrate(self):
        """By the rate, as the program's own calibration may fall into a moment in which the GPU is slow."""
        for _ in range(3):
            tenant = self.start(FILLS[-1])
            self.iterations = tenant.ready["iterations"]
            length_us = 1e6 / self.rates([tenant], 0.4, 0.6)[0]
            tenant.program.kill()
            if self.soft or abs(length_us / KERNEL_US - 1) < 0.1:
                return
            self.iterations = max(1, round(self.iterations * KERNEL_US / length_us))

    def measure_alone(self):
        """Once before and once after all else: clocks drift."""
        for sms in reversed(FILLS):
            tenant = self.start(sms)
            self._alone[sms].append(self.rates([tenant], 0.4, 1.0)[0])
            tenant.program.kill()
        self.bench.log(f"kernels a second alone, by percent of the SMs: {self._alone}; {self.iterations} iterations")

    def alone(self, sms):
        # A soft GPU has no clocks that drift: what disturbs it is the host, and that makes it slower.
        return (max if self.soft else statistics.mean)(self._alone[sms])

    def drift(self):
        """The largest change of a speed alone, as a part of it."""
        return max(abs(rates[-1] / rates[0] - 1) for rates in self._alone.values())

    def rates(self, running, settle_s, seconds):
        """Kernels a second of each. A program that waits for its turn reports late."""
        begin, end = tenants.window(self.bench, settle_s, seconds)
        for tenant in running:
            self.bench.until(lambda: tenant.progress() and tenant.progress()[-1][0] >= end, f"{tenant.pid} reports", 5)
        return [tenant.rate(begin, end) for tenant in running]

    def beside(self, a, b):
        """Two programs at once in a space, as parts of their speed alone. Where both do not fit, the smaller one, `a`, keeps
        its SMs, up to half of all."""
        limits = (a, b) if a + b <= 100 else (min(a, 50), 100 - min(a, 50))
        names = ("hw-kr-a", "hw-kr-b")
        for name, limit in zip(names, limits):
            self.member(name, "hw-kr-0", limit)
        running = [self.start(sms, name) for sms, name in zip((a, b), names)]
        rates = self.rates(running, 0.5, 1.0 if self.soft else 1.5)
        parts = [rate / self.alone(sms) for rate, sms in zip(rates, (a, b))]
        finish(running)
        for name in names:
            self.bench.tessera.delete(name)
        return parts


def finish(running):
    for tenant in running:
        tenant.program.signal(signal.SIGTERM)
    for tenant in running:
        expect(tenant.done(30)["verified"], f"results of {tenant.pid} are wrong")


def _gains(ground):
    """(by pair of kinds, the parts of both side by side; the speed of each that plans count on): the extremes, and the
    smallest beside the widest that fits there."""
    smallest, widest, largest = FILLS[0], max(sms for sms in FILLS if sms + FILLS[0] <= 100), FILLS[-1]
    rows = {pair: ground.beside(*pair) for pair in
            ((smallest, smallest), (smallest, widest), (smallest, largest), (largest, largest))}
    speed = min(min(parts) for pair, parts in rows.items() if sum(pair) <= 100)
    speed = 1 if speed >= 1 - (SOFT_NOISE if ground.soft else NOISE) else speed
    text = ", ".join(f"{a} and {b} %: {parts[0]:.3f} and {parts[1]:.3f}" for (a, b), parts in rows.items())
    ground.bench.tell(f"SMs {ground.sms}; side by side, parts of alone: {text}; planned with {float(speed):.3f}")
    return rows, speed


def _settings(ground, shelf, program, filled):
    """The request is the part of the time that keeps the target. A limit keeps a program from more: where nothing takes
    the rest of the GPU, or where others of its space run for longer."""
    part = float(shelf.time_of(program))
    margin = float(ground.bench.options.get("krypton.margin", MARGIN)) if filled else 0
    settings = {"compute_request": 100 * part * (1 + margin), "compute_weight": 1}
    if not filled or shelf.time_of(program) < shelf.time:
        over = float(ground.bench.options.get("krypton.over", OVER))
        settings["compute_limit"] = min(100, settings["compute_request"] + over)
    return settings


def _start_gpu(ground, gpu, filled):
    """The programs of one GPU of the plan, with their vGPUs' names, all at work; the one that takes the rest is first, as
    the parts of the spaces depend on it."""
    started = []
    if filled:
        ground.bench.vgpu("hw-kr-rest", compute_weight=10000)
        started.append(("hw-kr-rest", None, ground.start(FILLS[-1], "hw-kr-rest")))
    members = []
    for number, shelf in enumerate(gpu):
        for program in shelf.programs:
            name = f"hw-kr-{len(members)}"
            settings = _settings(ground, shelf, program, filled)
            if len(shelf.programs) > 1:
                ground.member(name, f"hw-kr-{number}", program.sms, **settings)
            else:
                ground.bench.vgpu(name, **settings)
            members.append((name, program))
    started += [(name, program, ground.start(program.sms, name)) for name, program in members]
    for _, _, tenant in started:
        ground.bench.until(tenant.kernels, "all compute", 20)
    return started


def _run_gpu(ground, gpu):
    """(the part of its speed alone that each program has, that of what takes the rest or None)."""
    filled = ground.bench.options.get("krypton.hold", "rest") == "rest" and packing.time_of(gpu) <= MOST_PROMISED
    started = _start_gpu(ground, gpu, filled)
    running = [tenant for _, _, tenant in started]
    rates = ground.rates(running, 0.8 if ground.soft else 1.5, ground.seconds)
    parts = [rate / ground.alone(program.sms if program else FILLS[-1]) for rate, (_, program, _) in zip(rates, started)]
    finish(running)
    for name, _, _ in started:
        ground.bench.tessera.delete(name)
    return (parts[1:], parts[0]) if filled else (parts, None)


def _run_mix(ground, case, gpus):
    """(the part of its speed alone that each program has, targets) of the programs of these GPUs."""
    got, targets = [], []
    for number, gpu in enumerate(gpus):
        parts, left = _run_gpu(ground, gpu)
        programs = [program for shelf in gpu for program in shelf.programs]
        got += parts
        targets += [program.target for program in programs]
        told = iter([f"{program.kind} {program.target} x{part / program.target:.3f}" for program, part in zip(programs, parts)])
        text = ", ".join(" | ".join(next(told) for _ in shelf.programs) for shelf in gpu)
        left = "" if left is None else f"; the rest {left:.3f}"
        ground.bench.tell(f"{case}, GPU {number + 1}, {float(packing.time_of(gpu)):.3f} of its time: {text}{left}")
    return got, targets


def _plans(bench, case, speed):
    """The GPUs of each plan."""
    mix = _mix(case)
    plans = {"time": packing.by_time(mix), "level": packing.side_by_side(mix, speed, level=True),
             "mixed": packing.side_by_side(mix, speed)}
    gpus = {how: packing.gpus_for(shelves) for how, shelves in plans.items()}
    counts = {how: f"{len(gpus[how])} ({float(packing.time_of(shelves)):.2f})" for how, shelves in plans.items()}
    area = float(sum(program.target * program.sms for program in mix)) / 100
    bench.tell(f"{case}: {len(mix)} programs need so many GPUs (and so much of their time): by time alone {counts['time']}, "
               f"with spaces of one target {counts['level']}, of any {counts['mixed']}; no packing needs fewer than {area:.2f}")
    return gpus


@space(soft=True, limit_s=200)
def krypton(bench):
    """KRYPTON's mixes of inference, R1 and R2: how many GPUs, and each program's part of its target on them.

    A program's request is its target (and MARGIN). So that none gets more than that, and an error has two sides, another
    program takes the rest of the GPU, by weight. --option krypton.hold=limit has none, and limits each program to its
    target (and OVER) instead. krypton.plan=time, level (the default) or mixed says which plan is run: by time alone, with
    spaces in which all have one target, with any spaces. krypton.sms=limit: SMs of the programs are limits, not their own.
    On a soft GPU, two GPUs of a plan."""
    begin, ground = time.monotonic(), Ground(bench)
    ground.size()
    ground.calibrate()
    ground.measure_alone()
    gains, speed = _gains(ground)
    how = bench.options.get("krypton.plan", "level")
    most = int(bench.options.get("krypton.gpus", 2 if bench.soft else 1000))
    rows, counts = {}, {}
    for case in bench.options.get("krypton.cases", ",".join(TARGETS)).split(","):
        plans = _plans(bench, case, speed)
        counts[case] = {plan: len(gpus) for plan, gpus in plans.items()}
        rows[case] = packing.errors(*_run_mix(ground, case, plans[how][:most]))
    ground.measure_alone()  # which the log has: speeds alone may have changed by then
    bench.log(f"{time.monotonic() - begin:.0f} s")
    ran = "" if most >= 1000 else f", of which {most} were run"
    errors = [f"{case} on {counts[case][how]} GPUs{ran} ({counts[case]['time']} by time): least {row['least']:.3f} of a target, mean "
              f"error {100 * row['error']:.2f} % (missing {100 * row['short']:.2f}, too much {100 * row['over']:.2f})"
              for case, row in rows.items()]
    pairs = ", ".join(f"{a}+{b} % {sum(parts):.2f}" for (a, b), parts in gains.items())
    figure = f"{'; '.join(errors)}; gains {pairs}; alone off by {100 * ground.drift():.1f} % at the end"
    bench.tell(figure)
    least, error = SOFT if bench.soft else (LEAST, MOST_ERROR)
    expect(all(row["least"] >= least and row["error"] <= error for row in rows.values()), figure)
    return figure, {"errors": rows, "gpus": counts, "gains": {f"{a}+{b}": parts for (a, b), parts in gains.items()}}
