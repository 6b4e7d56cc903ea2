"""A plan of KRYPTON's workloads, run: what each program gets of its target on the GPU, and in the space, that the plan says."""
import time

from cases.frameworks import need
from cases.plan import placement
from harness import members, model_programs as models, packing
from harness.checks import Skipped, expect
from harness.model_programs import ModelProgram, OrderFailed
from harness.steering import watched

SETTLE_S = 1.5  # in which all work and nothing is counted
SECONDS = 6.0
LEAST = 0.99  # of each target
MOST_ERROR = 0.015  # of the target, mean of all


class Seat:
    """A tenant of the plan on a GPU of this machine, with its program."""

    def __init__(self, bench, placed, gpu, number):
        self.placed = placed
        name = f"hw-k{gpu}-{number}"
        if placed.space:
            own = {"sm_reserved": True} if bench.options.get("models.sms") == "own" else {}
            members.member(bench, name, f"hw-k{gpu}-{placed.space}"[:30], sm_limit=placed.sm_pct, gpu=gpu, **own,
                           **placed.settings())
        else:
            bench.vgpu(name, gpu=gpu, **placed.settings())
        self.name = name
        self.program = ModelProgram(bench, lambda argv: bench.start_inside(argv, vgpu=name), bench.soft)


def _alone(bench, workloads, seconds):
    """Bursts a second of each workload, alone and without Tessera."""
    program = ModelProgram(bench, bench.start_native, bench.soft).wait()
    rates = {}
    for workload in sorted(workloads, key=str):
        program.prepare(workload)
        rates[workload] = models.run([program], seconds)[0][0]
        program.drop()
    program.end()
    bench.tell("alone: " + ", ".join(f"{workload} {rate:.2f}/s" for workload, rate in rates.items()))
    return rates


def _run_round(bench, gpus, rates, seconds):
    """Some GPUs of the plan at the same time, each on one of the machine: rows of (placed, part of the speed alone)."""
    begin = time.monotonic()
    seats = [Seat(bench, placed, gpu, number) for gpu, tenants in enumerate(gpus) for number, placed in enumerate(tenants)]
    programs = [seat.program.wait() for seat in seats]
    for program, seat in zip(programs, seats):  # one after the other: a model in the making needs more memory than it has later
        program.prepare(seat.placed.workload)
    slowest = max(1 / (rates[seat.placed.workload] * seat.placed.target) for seat in seats)
    for seat in seats:  # what a burst takes beside the others, not what it took while they stood
        seat.program.burst_s = 1 / (rates[seat.placed.workload] * seat.placed.target)
    got, _ = models.run(programs, seconds, lead_s=max(SETTLE_S, 2 * slowest))
    for seat in seats:
        seat.program.end()
        bench.tessera.delete(seat.name)
    bench.log(f"{len(seats)} programs on {len(gpus)} GPUs took {time.monotonic() - begin:.0f} s")
    return [(seat.placed, rate / rates[seat.placed.workload]) for seat, rate in zip(seats, got)]


def _tell_gpu(bench, number, rows):
    text = ", ".join(f"{placed.name} {'in ' + placed.space + ' ' if placed.space else ''}x{part / placed.target:.3f}"
                     for placed, part in rows)
    bench.tell(f"GPU {number} of the plan: of each target {text}")


@watched("plan", soft=True, limit_s=560)
def krypton(bench):
    """The plan of --option plan.placement=FILE, the JSON of `tessera plan`: each GPU of the plan on one of this machine's, as
    many at once as there are. --option plan.gpus=N: only the first N of the plan; plan.seconds; models.precision, models.sms
    as of plan.profiles, with which the plan was made."""
    path = bench.options.get("plan.placement")
    if not path:
        raise Skipped("needs --option plan.placement=FILE")
    need("torch")
    gpus = placement.read(path)[:int(bench.options.get("plan.gpus", 1000))]
    here = len(bench.tessera.get("/v1/gpus")["gpus"])
    seconds = float(bench.options.get("plan.seconds", 0.5 if bench.soft else SECONDS))
    rates = _alone(bench, {placed.workload for tenants in gpus for placed in tenants}, min(seconds, 1.5))
    rows = []
    for first in range(0, len(gpus), here):
        some = gpus[first:first + here]
        try:
            measured = _run_round(bench, some, rates, seconds)
        except OrderFailed as error:
            expect(False, f"GPUs {first} to {first + len(some) - 1} of the plan: {error}")
        counts = iter(measured)
        for number, tenants in enumerate(some):
            _tell_gpu(bench, first + number, [next(counts) for _ in tenants])
        rows += measured
    summary = packing.errors([part for _, part in rows], [placed.target for placed, _ in rows])
    figure = (f"{len(rows)} programs on {len(gpus)} GPUs of the plan ({here} here): least {summary['least']:.3f} of a target, "
              f"mean error {100 * summary['error']:.2f} % (missing {100 * summary['short']:.2f}, too much {100 * summary['over']:.2f})")
    bench.tell(figure)
    expect(bench.soft or (summary["least"] >= LEAST and summary["error"] <= MOST_ERROR), figure)
    return figure, {**summary, "tenants": {placed.name: part / placed.target for placed, part in rows}}
