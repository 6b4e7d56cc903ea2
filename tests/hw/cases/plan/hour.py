"""An hour of a record of real programs, in minutes, on as few GPUs as a plan says: what each gets done, how late, and what
the plan said of it. Programs are tessera-tenant: bursts come when the record's duty says so, whether the ones before have
ended or not, and memory grows and shrinks as it did, in pieces of 64 MiB. The k-th burst of a program is due when its duty
since the begin sums up to k times the service time. All memory together is more than the GPUs have."""
import json
import pathlib
import random
import signal
import time

from cases.plan import schedule
from harness import tenants
from harness.bench import GIB, MIB
from harness.checks import Skipped, expect
from harness.steering import watched
from harness.swap_ground import free_ram

KERNEL_US = 1000
MOST_OFF = 0.05  # of the plan, of what was done and of the p99


class Choice:
    """The values of --option."""

    def __init__(self, bench):
        option, soft = bench.options.get, bench.soft
        self.record = option("hour.csv")
        self.begin = float(option("hour.begin", 0))
        self.faster = float(option("hour.faster", 400 if soft else 20))
        self.programs = int(option("hour.programs", 4 if soft else 12))
        self.gpus = int(option("hour.gpus", 1))
        self.service_ms = float(option("hour.service_ms", 20))
        self.over = float(option("hour.over", 1.3))  # memory, against that of the GPUs
        self.gib = float(option("hour.gib", 1 if soft else 1000))  # of each GPU that is used, at most
        self.seed = int(option("hour.seed", 1))
        self.prediction = option("hour.plan")
        self.only_write = bool(option("hour.write"))
        self.balance = bool(option("hour.balance"))

    def pods(self, memory):
        hour = 3600
        known = (schedule.read(self.record, self.begin, hour) if self.record
                 else schedule.invent(3 * self.programs, hour, 57, random.Random(self.seed)))
        return schedule.shorten(schedule.choose(known, self.programs, self.seed), self.faster, memory)


class Ground:
    """How much of each GPU is used, and of the host."""

    def __init__(self, bench, choice):
        gpus = bench.tessera.get("/v1/gpus")["gpus"]
        if len(gpus) < choice.gpus:
            raise Skipped(f"{len(gpus)} GPUs of {choice.gpus}")
        total = min(gpu["memory_total_bytes"] for gpu in gpus)
        self.room = min(total, int(choice.gib * GIB) // MIB * MIB)
        self.memory = int(self.room * choice.gpus * choice.over)  # of all programs together
        pool = int(min(self.memory * 1.2, free_ram() - (GIB if bench.soft else 12 * GIB))) // (64 * MIB) * 64 * MIB
        expect(pool > self.memory - self.room * choice.gpus, f"{pool >> 30} GiB of host memory do not hold what the GPUs do not")
        self.config = "[rebalance]\nload = true\n" if choice.balance else ""
        self.config += f'[memory]\nreserve = "{total - self.room}"\n[swap]\nsize = "{pool}"\nfloor = "1G"\n'
        self.context = bench.context_bytes


def _settings(plan):
    """{pod: (GPU, fields of its vGPU)} of a plan's JSON."""
    found = {}
    for gpu in plan["gpus"]:
        for tenant in gpu["tenants"]:
            fields = {"compute_request": tenant.get("request_pct") or 0}
            if 0 < (tenant.get("limit_pct") or 100) < 100:
                fields["compute_limit"] = tenant["limit_pct"]
            found[str(tenant["name"])] = (gpu["index"], fields)
    return found


def _predicted(plan):
    """{pod: {duty, p50_ms, p99_ms}}, as far as the plan says them."""
    return {str(tenant["name"]): tenant for tenant in plan.get("tenants", [])}


def _iterations(bench):
    """Of a kernel of KERNEL_US, by its rate alone."""
    rate, iterations = tenants.solo(bench)
    return max(1, round(iterations * rate * KERNEL_US / 1e6))


def _start(bench, choice, pods, where, fields, iterations):
    """The programs by pod, with their first memory, waiting for the signal."""
    running = {}
    for number, (pod, samples) in enumerate(pods.items()):
        file = bench.folder / f"schedule-{number}.csv"
        schedule.write_one(file, samples)
        bench.vgpu(f"hw-h{number}", gpu=where[pod], **fields.get(pod, {}))
        running[pod] = tenants.start(bench, 0, iterations, vgpu=f"hw-h{number}", schedule=file,
                                     **{"kernel-us": KERNEL_US, "burst": max(1, round(choice.service_ms * 1000 / KERNEL_US)),
                                        "memory-stride": (1 << 18) if bench.soft else (1 << 14)}, flags=("--schedule-wait",))
    return running


def _moved_in(bench, pods):
    """Bytes, of all of them."""
    return sum(bench.tessera.vgpu(f"hw-h{number}")["moved_in_bytes"] for number in range(len(pods)))


def _migrations(bench):
    return sum(gpu["load_migrations"] for gpu in bench.tessera.get("/v1/gpus")["gpus"])


def _rows(bench, choice, pods, running):
    """What each pod did. Nobody verifies its memory, for which all of it has to come back, before all have ended."""
    rows = {}
    for tenant in running.values():
        tenant.program.signal(signal.SIGUSR1)
    for pod, tenant in running.items():
        done = tenant.done(120)
        expect(done["verified"], f"results of pod {pod} are wrong")
        rows[pod] = {"duty": done["bursts_done"] * choice.service_ms / 1000 / schedule.end(pods[pod]),
                     "duty_due": schedule.mean_duty(pods[pod]),
                     "bursts_due": done["bursts_due"], "bursts_done": done["bursts_done"],
                     "p50_ms": done["p50_us"] / 1000, "p99_ms": done["p99_us"] / 1000, "max_ms": done["max_us"] / 1000}
    return rows


def _compare(bench, rows, predicted):
    """(text, the largest part by which a duty or a p99 is off the plan). One line a pod goes to the log."""
    worst = {"duty": 0.0, "p99_ms": 0.0}
    for pod, row in rows.items():
        said = predicted.get(pod, {})
        text = []
        for key in ("duty", "p50_ms", "p99_ms"):
            off = row[key] / said[key] - 1 if said.get(key) else None
            text.append(f"{key} {row[key]:.4g}" + (f" (plan {said[key]:.4g}, {100 * off:+.1f} %)" if off is not None else ""))
            if off is not None and key in worst:
                worst[key] = max(worst[key], abs(off))
        bench.tell(f"pod {pod}: {row['bursts_done']} of {row['bursts_due']} bursts, {', '.join(text)}")
    return worst


@watched("plan", soft=True, limit_s=560)
def hour(bench):
    """--option hour.csv=FILE (second,pod,duty_pct,memory_mib; else it is invented), hour.begin (second), hour.faster (20),
    hour.programs (12), hour.gpus (1), hour.service_ms (20), hour.over (1.3: memory of all, against the GPUs'), hour.gib (of
    a GPU, at most), hour.seed, hour.balance=1 (rebalance.load). It writes hour.csv, the record made shorter, and hour.toml, what else a plan needs, to --out;
    with hour.write=1 it ends there. hour.plan=FILE: the plan's JSON for these: placement and settings in `gpus`, and in
    `tenants` the name, duty (part of the time), p50_ms and p99_ms of each."""
    choice = Choice(bench)
    ground = Ground(bench, choice)
    pods = choice.pods(ground.memory)
    schedule.write_all(bench.out / "hour.csv", pods)
    facts = {"service_ms": choice.service_ms, "gpus": choice.gpus, "gpu_memory_mib": ground.room // MIB,
             "context_mib": ground.context // MIB, "interval_s": round(schedule.interval(next(iter(pods.values()))), 6)}
    (bench.out / "hour.toml").write_text("".join(f"{key} = {value}\n" for key, value in facts.items()))
    load = sum(map(schedule.mean_duty, pods.values())) / choice.gpus
    most = sum(max(sample.memory_mib for sample in samples) for samples in pods.values()) / (ground.room / MIB * choice.gpus)
    bench.tell(f"{len(pods)} programs on {choice.gpus} GPUs, {load:.2f} of their time and {most:.2f} of their memory: {facts}")
    if choice.only_write:
        return "written"
    plan = json.loads(pathlib.Path(choice.prediction).read_text()) if choice.prediction else {"gpus": []}
    placed = _settings(plan)
    expect(not placed or set(placed) >= set(pods), f"the plan does not place {sorted(set(pods) - set(placed))}")
    where = {pod: placed[pod][0] for pod in pods} if placed else schedule.spread(pods, choice.gpus)
    fields = {pod: settings for pod, (_, settings) in placed.items()}
    with bench.daemon(ground.config):
        iterations = _iterations(bench)
        running = _start(bench, choice, pods, where, fields, iterations)
        came = _moved_in(bench, pods)
        begin = time.monotonic()
        for tenant in running.values():
            tenant.program.signal(signal.SIGUSR1)
        for tenant in running.values():
            tenant.late("ended", max(schedule.end(samples) for samples in pods.values()) + 120)
        took = time.monotonic() - begin
        moved, sent = _moved_in(bench, pods) - came, _migrations(bench)
        rows = _rows(bench, choice, pods, running)
    worst = _compare(bench, rows, _predicted(plan))
    (bench.out / "hour_run.json").write_text(json.dumps({"facts": facts, "begin_s": begin, "moved_in_bytes": moved, "tenants": [{"name": pod, **row} for pod, row in
                                                                                    rows.items()]}, indent=1))
    due, done = (sum(row[key] for row in rows.values()) for key in ("bursts_due", "bursts_done"))
    figure = (f"{len(rows)} programs on {choice.gpus} GPUs, {most:.2f} of the memory, {took:.0f} s: {done} of {due} bursts in "
              f"time, {moved / GIB:.1f} GiB moved in" + f", {sent} programs sent to the other GPU" * choice.balance)
    if _predicted(plan):
        figure += f"; off the plan by at most {100 * worst['duty']:.1f} % of the duty, {100 * worst['p99_ms']:.1f} % of the p99"
    bench.tell(figure)
    expect(moved > 0 or choice.over <= 1, f"nothing was swapped: {figure}")
    expect(bench.soft or max(worst.values()) <= MOST_OFF, figure)
    return figure, {"rows": rows, "worst": worst}
