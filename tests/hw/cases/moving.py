"""Programs that leave their GPU altogether, and come back to it or go to another: how long, and that all results are right."""
import collections
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

from cases.frameworks import DETERMINISTIC, FOLDER, need
from harness import tenants
from harness.bench import GIB, MIB, compare, last_words, must_succeed
from harness.checks import Failed, Skipped, expect
from harness.steering import Worker, ticker, watched
from harness.swap_ground import free_ram

MOST_GAP_S = 3.0  # of 60 GiB through host memory
MOST_BACK_S = 0.8  # of a notebook of 10 GiB, from resume to its first result


def moving(**options):
    return watched("moving", **options)


def _gpus(bench):
    return bench.tessera.get("/v1/gpus")["gpus"]


def _where(bench):
    """(home, target): another GPU where there are two, else the same one, as a suspension and a resume."""
    return (0, 1) if len(_gpus(bench)) > 1 else (0, 0)


def _both(bench):
    """The two GPUs between which programs go; Skipped where there is one."""
    home, target = _where(bench)
    if home == target:
        raise Skipped("one GPU (nvidia-h200-x2 has two)")
    return home, target


def _pool(bench, size):
    """A configuration with host memory for so much on each GPU, of which they have equal parts."""
    most = free_ram() - (GIB if bench.soft else 16 * GIB)
    pool = int(min(size * len(_gpus(bench)), most)) // (64 * MIB) * 64 * MIB
    return f'[swap]\nsize = "{pool}"\nfloor = "1G"\n'


def _prepared(bench, size, gpu=0, limit_s=45):
    """Waits until the daemon has made so much host memory ahead of need on a GPU; how much it has by then."""
    end = time.monotonic() + min(limit_s, bench.left(limit_s))
    while True:
        made = (_gpus(bench)[gpu]["swap"] or {}).get("pool_bytes", 0)
        if made >= size or time.monotonic() > end:
            return made
        time.sleep(0.2)


def _device_bytes(pid):
    """MiB that the driver counts for a process on any GPU; None if it does not say."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return None
    asked = subprocess.run([smi, "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
                           capture_output=True, text=True)
    rows = [[field.strip() for field in line.split(",")] for line in asked.stdout.splitlines() if line.strip()]
    return sum(int(row[1]) for row in rows if row[0] == str(pid) and row[1].isdigit())


def _used(gpu):
    """Bytes of a GPU that the driver counts as used; None if it does not say."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return None
    asked = subprocess.run([smi, "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", str(gpu)],
                           capture_output=True, text=True)
    return int(asked.stdout) * MIB if asked.stdout.strip().isdigit() else None


def _emptied(bench, gpu, most):
    """Waits until no more than that of a GPU is used; how long it took, in seconds."""
    begin = time.monotonic()
    while not bench.soft and (used := _used(gpu)) is not None and used > most:
        expect(time.monotonic() < begin + bench.left(10), f"{used / GIB:.1f} GiB of GPU {gpu} are used")
    return time.monotonic() - begin


def _timed(bench, *words):
    begin = time.monotonic()
    bench.cli(*words)
    return time.monotonic() - begin


def _move(bench, name, home, target):
    if home != target:
        return _timed(bench, "migrate", name, "--gpu", str(target))
    return _timed(bench, "suspend", name) + _timed(bench, "resume", name)


@moving(soft=True, limit_s=120)
def suspend(bench):
    """A notebook that rests with its memory: off the GPU, and its first result after the resume."""
    size = 256 * MIB if bench.soft else int(float(bench.options.get("moving.notebook_gib", 10)) * GIB)
    with bench.daemon(_pool(bench, size * 5 // 4)):
        bench.vgpu("hw-notebook")
        worker = Worker(bench, bench.start_inside(ticker(bench, memory=size), vgpu="hw-notebook"))
        worker.moves(40)
        worker.ask("rest")
        _prepared(bench, size)
        rounds = []
        for _ in range(3):
            away = _timed(bench, "suspend", "hw-notebook")
            process = bench.tessera.process(worker.pid)
            device = _device_bytes(worker.pid) if not bench.soft else None
            expect(process["suspension"] == "suspended" and process["memory_resident_bytes"] == 0, f"{process}")
            expect(not device, f"the driver counts {device} MiB")
            begin = time.monotonic()
            bench.cli("resume", "hw-notebook")
            back = time.monotonic() - begin
            worker.ask("work")
            worker.moves(20)
            rounds.append((away, back, time.monotonic() - begin))
            worker.ask("rest")
            time.sleep(0.2)
        worker.ask("work")
        worker.moves(20)
        worker.result()
    away, back, first = (min(column) for column in zip(*rounds))
    figure = (f"{size / GIB:.1f} GiB: away in {away:.2f} s, 0 bytes left ({'not asked' if bench.soft else 'nvidia-smi: none'}); "
              f"resumed in {back:.2f} s, first kernels after {first:.2f} s (of three: {', '.join(f'{r[2]:.2f}' for r in rounds)})")
    return figure, rounds


def _idle_suspensions(bench, result):
    line = f'tessera_idle_suspensions_total{{result="{result}"}} '
    return sum(int(float(each[len(line):])) for each in bench.tessera.raw("/metrics").splitlines() if each.startswith(line))


@moving(soft=True, limit_s=120)
def idle(bench):
    """A notebook that rests leaves the GPU by itself: its first result when it works again."""
    size = 256 * MIB if bench.soft else int(float(bench.options.get("moving.notebook_gib", 10)) * GIB)
    with bench.daemon(_pool(bench, size * 5 // 4) + '[suspend]\nidle = "1s"\n'):
        bench.vgpu("hw-idle")
        worker = Worker(bench, bench.start_inside(ticker(bench, memory=size), vgpu="hw-idle"))
        worker.moves(40)
        _prepared(bench, size)
        rounds = []
        for _ in range(3):
            worker.ask("rest")
            bench.until(lambda: bench.tessera.process(worker.pid)["suspension"] == "suspended", "it is suspended", 30)
            time.sleep(1.5)  # if it came back sooner, it would have to be idle for longer the next time
            expect(bench.soft or not _device_bytes(worker.pid), "the driver counts memory")
            begin = time.monotonic()
            worker.ask("work")
            worker.moves(20)
            rounds.append(time.monotonic() - begin)
        worker.result()
    return f"{size / GIB:.1f} GiB: first kernels after {', '.join(f'{took:.2f}' for took in rounds)} s", rounds


@moving(limit_s=240)
def torch_first_calls(bench):
    """PyTorch is suspended by itself again and again; whatever it calls first brings it back."""
    need("torch")
    argv = [sys.executable, FOLDER / "torch_first_calls.py"]
    native = bench.native([*argv, "0"], DETERMINISTIC)
    with bench.daemon(_pool(bench, 4 * GIB) + '[suspend]\nidle = "1s"\n'):
        bench.vgpu("hw-calls")
        inside = bench.inside([*argv, "5"], DETERMINISTIC, vgpu="hw-calls")
        times = _idle_suspensions(bench, "resumed")
    same = compare(native, inside)
    calls = len(native.out.splitlines()) - 1
    expect(times >= calls, f"{times} times for {calls} calls")
    return f"{same}; back {times} times: {inside.err.strip()}", times


def _directly(bench):
    """Of the migrations until now, how many took their memory from GPU to GPU."""
    events = bench.tessera.get("/v1/events?last=1000")["events"]
    return sum(event["text"].endswith(", its memory directly") for event in events if event["type"] == "vgpu.migrated")


def _phases(bench):
    """Seconds that programs have spent in each phase of a suspension."""
    name = "tessera_suspension_seconds_sum{phase=\""
    lines = [line[len(name):] for line in bench.tessera.raw("/metrics").splitlines() if line.startswith(name)]
    return {line.split('"')[0]: float(line.split()[-1]) for line in lines}


def _other(bench, gpu, left):
    """Somebody who rests on a GPU with a little more memory than another program leaves there."""
    bench.vgpu(f"hw-other-{gpu}", gpu=gpu)
    more = 64 * MIB if bench.soft else GIB
    other = Worker(bench, bench.start_inside(ticker(bench, memory=left + more), vgpu=f"hw-other-{gpu}"))
    other.moves(20)
    other.ask("rest")
    return other


def _longest_gaps(bench, moves, full):
    """A program that works without a pause goes to another GPU and back: the longest time between two batches of kernels,
    for each move. `full`: on the new GPU somebody else has so much that there is no room for the program's memory at once."""
    home, target = _where(bench)
    total = min(gpu["memory_total_bytes"] for gpu in _gpus(bench))
    wanted = 256 * MIB if bench.soft else int(float(bench.options.get("moving.gib", 60)) * GIB)
    size = min(wanted, int(total * 0.8)) // (64 * MIB) * 64 * MIB
    with bench.daemon(_pool(bench, size * 9 // 8 + (4 * GIB if not bench.soft else size))):
        before = _directly(bench)
        bench.vgpu("hw-mover", gpu=home)
        options = {"memory": size, "memory-stride": 1 << 20 if not bench.soft else 4096, "report-every": 1, "depth": 2, "ahead": 2}
        tenant = tenants.start(bench, 200, vgpu="hw-mover", **options)
        bench.until(lambda: tenant.kernels() > 200, "it works", 60)
        rows = []
        for to in (target, home, target)[:moves]:
            other = _other(bench, to, total - size) if full else None
            if full or home == target:
                made = _prepared(bench, size, 1 - to if home != target else to, 70)
                bench.tell(f"{made / GIB:.1f} GiB of host memory were made ahead of need")
            time.sleep(0.5)
            tenant.gaps()  # forgets those until now
            phases = _phases(bench)
            took = _move(bench, "hw-mover", 1 - to if home != target else to, to)
            bench.until(lambda before=tenant.kernels(): tenant.kernels() > before + 50, "it goes on", 60, 0.005)
            rows.append((max(tenant.gaps()), took))
            spent = {phase: after - phases.get(phase, 0) for phase, after in _phases(bench).items()}
            bench.tell(f"to GPU {to}: longest gap {rows[-1][0]:.2f} s, the command took {took:.2f} s; "
                       + ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in spent.items() if seconds > 0.005))
            if other:
                other.program.signal(9)
                other.program.wait(bench.left(30))
            if not full:  # nothing of it is on the GPU that it left, nor twice on the other
                emptied = [_emptied(bench, gpu, 2 * GIB + (size if gpu == to else 0)) for gpu in {home, target}]
                bench.tell(f"nothing is left after {max(emptied):.2f} s")
            time.sleep(0.5)
        direct = _directly(bench) - before
        tenant.program.signal(15)
        begin = time.monotonic()
        expect(tenant.done(60, 60)["verified"], "wrong results")
        bench.tell(f"ended after {time.monotonic() - begin:.1f} s")
    ways = f"GPU {home} to {target} and back" if home != target else "off the GPU and back (one GPU)"
    return (f"{size / GIB:.1f} GiB, {ways}, {direct} of {len(rows)} directly: longest gap "
            f"{', '.join(f'{row[0]:.2f}' for row in rows)} s; results right"), rows


@moving(soft=True, limit_s=240)
def gap(bench):
    """Directly from GPU to GPU, where there are two."""
    return _longest_gaps(bench, 3, full=False)


@moving(soft=True, limit_s=300)
def gap_host(bench):
    """Through host memory."""
    if len(_gpus(bench)) < 2:
        raise Skipped("one GPU: moving.gap")
    return _longest_gaps(bench, 2, full=True)


@moving(limit_s=150)
def driver_alone(bench):
    """The driver's own checkpoint of a program without Tessera, as a baseline: out and in."""
    size = int(float(bench.options.get("moving.driver_gib", 16)) * GIB)
    checkpoint = bench.builder.program("checkpoint.cpp")
    worker = Worker(bench, bench.start_native(ticker(bench, memory=size)))
    worker.moves(40)
    done = must_succeed(bench.native([checkpoint, str(worker.pid)], limit_s=120), "checkpoint")
    _, out, back = done.out.split()
    worker.moves(40)
    worker.result()
    return f"{size / GIB:.0f} GiB: {float(out):.2f} s out and {float(back):.2f} s in", (size, out, back)


@moving(limit_s=90)
def peer_memory(bench):
    """What programs without Tessera can do with memory of another GPU: whether and how fast one GPU's mover can write to
    memory that the other's has made."""
    _both(bench)
    done = must_succeed(bench.native([bench.builder.program("peer_memory.cc"), "4"], limit_s=80), "peer_memory")
    return "; ".join(done.out.strip().splitlines()), done.out


def _exchange(bench, name):
    """The program of the vGPU is on two GPUs, which change places for it."""
    process, = bench.tessera.of_vgpu(name)
    return _timed(bench, "migrate", str(process["pid"]), "--gpu", "1,0")


class _Mover(threading.Thread):
    """Moves a vGPU to and fro until it is told to end, or its program has ended. `both`: the program is on two GPUs."""

    def __init__(self, bench, name, pause_s, both=False):
        super().__init__(daemon=True)
        self.bench, self.name, self.pause_s, self.both = bench, name, pause_s, both
        self.moved, self.took, self.error = 0, [], None
        self.home, self.target = _where(bench)
        self.over = threading.Event()

    def run(self):
        at = self.home
        while not self.over.wait(self.pause_s):
            vgpu = self.bench.tessera.vgpu(self.name)
            if not vgpu or not vgpu["processes"]:
                continue
            to = self.target if at == self.home else self.home
            try:
                self.took.append(_exchange(self.bench, self.name) if self.both else _move(self.bench, self.name, at, to))
            except Failed as error:
                self.over.wait(1)  # it may just be ending
                if self.bench.tessera.vgpu(self.name)["processes"]:
                    self.error = error
                return
            at = to
            self.moved += 1


def _moved(name, script, *arguments, module="torch", env=None, pause_s=0.4, limit_s=150, both=False):
    def body(bench):
        need(module)
        if both:
            _both(bench)
        argv = [sys.executable, FOLDER / script, *arguments]
        caches = bench.folder / f"moving-{name}"
        own = {**DETERMINISTIC, **(env or {}), "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
               "TRITON_CACHE_DIR": str(caches / "triton"), "CUPY_CACHE_DIR": str(caches / "cupy")}
        native = bench.native(argv, own)
        names = [f"hw-{name}-{gpu}" for gpu in range(2 if both else 1)]
        for gpu, vgpu in enumerate(names):
            bench.vgpu(vgpu, gpu=gpu)
        mover = _Mover(bench, names[0], pause_s, both)
        mover.start()
        inside = bench.inside(argv, own, vgpu=",".join(names))
        mover.over.set()
        mover.join(30)
        same = compare(native, inside)
        if mover.error:
            raise mover.error
        expect(mover.moved >= 2, f"moved {mover.moved} times only")
        return f"{same}; moved {mover.moved} times, each {min(mover.took):.2f} to {max(mover.took):.2f} s", mover.took

    moving(name=name, limit_s=limit_s)(body)


_moved("torch_graph", "torch_train.py", "graph", "4000")
_moved("torch_eager", "torch_train.py", "eager", "1500")
_moved("torch_pipeline", "torch_pipeline.py", "400", both=True)
_moved("generate", "generate.py", "300", module="transformers")
_moved("jax", "jax_train.py", "80", module="jax", env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"})
_moved("cupy", "cupy_math.py", "40", module="cupy", pause_s=0.1)


@moving(soft=True, limit_s=200)
def exchange(bench):
    """A program with memory on both GPUs, which change places for it, again and again."""
    _both(bench)
    size = 256 * MIB if bench.soft else int(float(bench.options.get("moving.exchange_gib", 16)) * GIB)
    with bench.daemon(_pool(bench, size * 5 // 4)):
        before, names = [_used(gpu) for gpu in (0, 1)], ("hw-exchange-0", "hw-exchange-1")
        for gpu, name in enumerate(names):
            bench.vgpu(name, gpu=gpu)
        worker = Worker(bench, bench.start_inside(ticker(bench, memory=size, devices=2), vgpu=",".join(names)))
        worker.moves(60)
        took = []
        for _ in range(3):
            bench.until(lambda: all(gpu["swap"]["pool_used_bytes"] == 0 and gpu["swap"]["pool_bytes"] >= size for gpu in _gpus(bench)),
                        "host memory is there", 60)
            time.sleep(1)  # what was used once goes, and is made anew
            for gpu in (0, 1):
                _prepared(bench, size, gpu)
            took.append(_exchange(bench, names[0]))
            bench.until(lambda: all(process["memory_swapped_bytes"] == 0 for process in bench.tessera.processes()), "all has come in", 60)
            for device in (0, 1):
                first = worker.count(device)
                bench.until(lambda: worker.count(device) > first, f"it goes on on GPU {device}", 60)
        out = [bench.tessera.vgpu(name)["moved_out_bytes"] for name in names]
        expect(min(out) >= 3 * size, f"the driver moved it: {out}")
        worker.result(60)
        for gpu, used in enumerate(before):
            _emptied(bench, gpu, (used or 0) + GIB)
    return f"{size / GIB:.1f} GiB on each, in {', '.join(f'{seconds:.2f}' for seconds in took)} s; results right", took


@moving(soft=True, limit_s=150)
def balance(bench):
    """rebalance.load: of two busy programs on one GPU, one goes to the other GPU by itself, and then both are as fast as alone. A third one stays
    beside another."""
    _both(bench)
    size = 64 * MIB if bench.soft else 4 * GIB
    names = [f"hw-balance-{number}" for number in range(3)]
    alone, iterations = tenants.solo(bench)
    with bench.daemon(_pool(bench, size * 5) + "[rebalance]\nload = true\n"):
        for name in names:
            bench.vgpu(name, gpu=0)
        where = lambda: [bench.tessera.vgpu(name)["gpu"] for name in names]
        running = [tenants.start(bench, 0, iterations, vgpu=name, memory=size) for name in names[:2]]
        begin = time.monotonic()
        bench.until(lambda: sorted(where()[:2]) == [0, 1], "one is on each GPU", 60)
        took = time.monotonic() - begin
        moment = tenants.window(bench, 5, 3)
        rates = [tenant.rate(*moment) / alone for tenant in running]
        pauses = [max(tenant.gaps(), default=0) for tenant in running]
        running.append(tenants.start(bench, 0, iterations, vgpu=names[2], memory=size))
        there = where()
        moment = tenants.window(bench, 7, 3)  # the daemon judges by five seconds
        shares = sorted(tenant.rate(*moment) / alone for tenant in running)
        expect(where() == there, f"they moved from {there} to {where()}")
        for tenant in running:
            tenant.program.signal(signal.SIGTERM)
            expect(tenant.done(60)["verified"], "results are wrong")
    figure = (f"{size / GIB:.1f} GiB each: one on each GPU after {took:.1f} s, longest pause {max(pauses):.2f} s, then {rates[0]:.3f} and {rates[1]:.3f} "
              f"of the speed alone; a third moved nobody: {', '.join(f'{share:.3f}' for share in shares)}")
    expect(bench.soft or min(rates) > 0.97, figure)
    return figure, {"took": took, "rates": rates, "pauses": pauses, "shares": shares}


@moving(soft=True, limit_s=120)
def refused(bench):
    """A program whose memory others can reach is refused by name, and goes on."""
    bench.vgpu("hw-host")
    worker = Worker(bench, bench.start_inside(ticker(bench), vgpu="hw-host"))
    worker.moves(20)
    said = []
    if not bench.soft:
        holder = bench.start_inside([bench.builder.program("vmm.cc"), "host"], vgpu="hw-host")
        del holder
    done = bench._run(bench.tessera.cli_command("migrate", "hw-host", "--gpu", "99"), None, "", 20)  # noqa: SLF001
    expect(done.status == 1 and "GPU" in done.err, f"{done.status}: {done.err}")
    said.append(last_words(done))
    worker.moves(20)
    worker.result()
    return "; ".join(said), said


def _bring_back(bench, name, programs=1):
    """Waits until all of the vGPU's programs are on its GPU."""
    def is_back():
        for verb in ("thaw", "resume"):
            bench.tessera.api("POST", f"/v1/vgpus/{name}/{verb}", {})
        vgpu, processes = bench.tessera.vgpu(name), bench.tessera.of_vgpu(name)
        return (vgpu and vgpu["migrating_to"] is None and len(processes) == programs and
                all(process["suspension"] is None for process in processes))
    bench.until(is_back, f"{name} is back", 60, 0.05)


class _Crowd:
    """Programs of several vGPUs, to which random things are done: they leave their GPUs, come back, go to others, are
    evicted, frozen, thawed and killed. Operations begin while others are under way; what cannot be is refused."""

    def __init__(self, bench, seed):
        self.bench, self.random = bench, random.Random(seed)
        self.gpus = len(_gpus(bench))
        self.workers, self.tenants, self.counts = {}, {}, collections.Counter()
        for number in range(6):
            name = f"hw-random-{number}"
            bench.vgpu(name, gpu=number % self.gpus)
            self.start(name)

    def start(self, name):
        size = 64 * MIB if self.bench.soft else self.random.choice((256 * MIB, GIB, 3 * GIB))
        if name.endswith(("0", "1", "2", "3")):
            self.workers[name] = Worker(self.bench, self.bench.start_inside(ticker(self.bench, memory=size), vgpu=name))
        else:
            self.tenants[name] = tenants.start(self.bench, 3000, vgpu=name, memory=size, **{"memory-stride": 4096})

    def post(self, name, verb, body=None):
        self.bench.tessera.api("POST", f"/v1/vgpus/{name}/{verb}", body or {})

    def step(self):
        name = self.random.choice([*self.workers, *self.tenants])
        kind, = self.random.choices(("migrate", "suspend", "resume", "evict", "freeze", "thaw", "check", "kill"),
                                    (8, 6, 6, 3, 2, 2, 3, 1))
        self.counts[kind] += 1
        if kind == "migrate":
            self.post(name, kind, {"gpus": [str(self.random.randrange(self.gpus))]})
        elif kind == "check":
            self.check(name)
        elif kind == "kill":
            self.kill(name)
        else:
            self.post(name, kind, {"to_bytes": 0} if kind == "evict" else {})

    def check(self, name):
        """It is back, goes on, and all of its words are right as far as it looks at them."""
        _bring_back(self.bench, name)
        if name in self.workers:
            self.workers[name].moves(60)
        else:
            before = self.tenants[name].kernels()
            self.bench.until(lambda: self.tenants[name].kernels() > before, f"{name} goes on", 60)

    def kill(self, name):
        one = self.workers.pop(name, None) or self.tenants.pop(name)
        os.kill(one.pid, signal.SIGKILL)
        one.program.wait(self.bench.left(60))
        self.post(name, "thaw")
        self.bench.until(lambda: self.bench.tessera.vgpu(name)["migrating_to"] is None, f"{name} is where it goes", 60)
        self.start(name)

    def end(self):
        for name in [*self.workers, *self.tenants]:
            self.check(name)
        for worker in self.workers.values():
            worker.result(60)
        for tenant in self.tenants.values():
            tenant.program.signal(15)
            expect(tenant.done(60, 60)["verified"], "wrong results")


@moving(name="random", soft=True, limit_s=580)
def random_moves(bench):
    """Random operations on programs that leave their GPUs and come back: all results are right, and nothing is left."""
    steps = int(bench.options.get("moving.steps", 40 if bench.soft else 500))
    seed = int(bench.options.get("moving.seed", 2026))
    with bench.daemon(_pool(bench, (512 * MIB if bench.soft else 24 * GIB))):
        before = [_used(gpu) for gpu in range(len(_gpus(bench)))]
        crowd = _Crowd(bench, seed)
        done, end = 0, time.monotonic() + bench.left(420)
        while done < steps and time.monotonic() < end:
            crowd.step()
            done += 1
        crowd.end()
        figures = bench.tessera.raw("/metrics").splitlines()
        moved = [line for line in figures if line.startswith(("tessera_migrations_total", "tessera_suspensions_total"))]
        for gpu, used in enumerate(before):
            _emptied(bench, gpu, (used or 0) + GIB)
    expect(not any(line.startswith('tessera_suspensions_total{result="lost"}') and not line.endswith(" 0") for line in moved), f"{moved}")
    expect(done == steps, f"{done} of {steps} only")
    told = ", ".join(f"{count} {kind}" for kind, count in crowd.counts.most_common())
    return f"{done} operations with seed {seed}: {told}; results right; {'; '.join(moved)}", dict(crowd.counts)


# Who is killed at which steps (base/fault.h), and what is done with the programs then.
KILLS = (
    ("migrate", "suspension.drained suspension.left suspension.locked suspension.saved suspension.roomy suspension.restored "
                "suspension.unlocked migration.given migration.moved migration.recorded "
                "mover.shown.told mover.left.told mover.freed.received mover.lent.sent mover.slot.reached "
                "mover.slot.lent mover.adopt.claimed mover.want.imported mover.copy.started mover.copy.done mover.loaded.sent"),
    ("suspend", "suspension.left suspension.saved suspension.restored mover.relocated mover.copy.started"),
    ("file", "mover.relocated mover.save.written mover.save.finished mover.save.left mover.unsave.read mover.unsave.cleared"),
)


def _try(bench, *words):
    return bench._run(bench.tessera.cli_command(*words), None, "", 60)  # noqa: SLF001


def _leave_and_return(bench, name, way, target):
    """It may fail: somebody is killed meanwhile."""
    if way == "migrate":
        return _try(bench, "migrate", name, "--gpu", str(target))
    return [_try(bench, "suspend", name, *(["--to", "file"] if way == "file" else [])), _try(bench, "resume", name)]


class _CheckpointKiller(threading.Thread):
    """Kills the program that calls the driver's checkpoint functions, some time after it was started, if it still runs."""

    def __init__(self, daemon, after_s):
        super().__init__(daemon=True)
        self._daemon, self._after_s = daemon, after_s
        self.over = self.killed = False

    def run(self):
        end = time.monotonic() + 20
        while time.monotonic() < end and not self.over:
            found = subprocess.run(["pgrep", "-P", str(self._daemon), "-f", "tessera-checkpoint"], capture_output=True, text=True)
            for pid in found.stdout.split():
                time.sleep(self._after_s)
                self.over = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
                    self.killed = True


def _killed(bench, pool, way, step, target):
    """What became of it: daemon, mover or checkpoint program."""
    name, size = "hw-kill", (128 * MIB if bench.soft else 2 * GIB)
    bench.tessera.stop()
    if not step.startswith("checkpoint"):
        os.environ["TESSERA_FAULT"] = step
    try:
        bench.tessera.start(config=pool)
    finally:
        os.environ.pop("TESSERA_FAULT", None)
    bench.vgpu(name, gpu=1 - target)
    worker = Worker(bench, bench.start_inside(ticker(bench, memory=size), vgpu=name))
    tenant = tenants.start(bench, 3000, vgpu=name, memory=size, **{"memory-stride": 4096})
    worker.moves(60)
    bench.until(lambda: tenant.kernels() > 0, "it works", 60)
    killer = _CheckpointKiller(bench.tessera.daemon_pid, float(step.split()[1])) if step.startswith("checkpoint") else None
    if killer:
        killer.start()
    _leave_and_return(bench, name, way, target)
    if killer:
        killer.join()
    bench.until(lambda: not bench.tessera.alive() or any("the mover ended" in line for line in bench.tessera.log_lines()) or
                (killer and killer.over), f"{way}: {step} was passed", 10)
    who = "daemon" if not bench.tessera.alive() else "mover" if not killer else "checkpoint program" if killer.killed else "nobody"
    if who == "daemon":
        bench.tessera.kill()
        bench.tessera.start(config=pool)
    begin = time.monotonic()
    _bring_back(bench, name, programs=2)
    worker.moves(60)
    before = tenant.kernels()
    bench.until(lambda: tenant.kernels() > before, "the other one goes on", 60)
    took = time.monotonic() - begin
    again = [_try(bench, "migrate", name, "--gpu", str(1 - bench.tessera.vgpu(name)["gpu"]))]
    if again[0].status != 0:  # the other GPU's first mover is killed there, too
        _bring_back(bench, name, programs=2)
        again.append(_try(bench, "migrate", name, "--gpu", str(1 - bench.tessera.vgpu(name)["gpu"])))
    expect(again[-1].status == 0, f"then it does not move: {last_words(again[-1])}")
    worker.moves(60)
    worker.result(60)
    tenant.program.signal(15)
    expect(tenant.done(60, 60)["verified"], "wrong results")
    return who, took


@moving(soft=True, limit_s=150)
def suspended_again(bench):
    """A program that has gone to another GPU directly is suspended before its memory has come in: nothing stays on either GPU."""
    home, target = _both(bench)
    size = 512 * MIB if bench.soft else 8 * GIB
    with bench.daemon(_pool(bench, size * 5 // 4)):
        before = [_used(gpu) for gpu in (0, 1)]
        bench.vgpu("hw-again", gpu=home)
        worker = Worker(bench, bench.start_inside(ticker(bench, memory=size), vgpu="hw-again"))
        worker.moves(60)
        took = []
        for to, gpu in (("memory", target), ("file", home)):
            bench.cli("migrate", "hw-again", "--gpu", str(gpu))
            took.append(_timed(bench, "suspend", "hw-again", "--to", to))
            expect(bench.tessera.process(worker.pid)["suspended_to"] == to, "it is not there")
            for each, used in enumerate(before):
                _emptied(bench, each, (used or 0) + GIB)
            bench.cli("resume", "hw-again")
            worker.moves(60)
        worker.result(60)
    return f"{size / GIB:.1f} GiB: to host memory in {took[0]:.2f} s, to a file in {took[1]:.2f} s; both GPUs empty, results right", took


@moving(soft=True, limit_s=580)
def kills(bench):
    """Daemon, mover or checkpoint program are killed at each step of programs' ways out and back: all results are right, no
    memory stays taken."""
    _both(bench)
    pool = _pool(bench, (512 * MIB if bench.soft else 8 * GIB))
    ways = [(way, step) for way, steps in KILLS for step in steps.split()]
    ways += [(way, f"checkpoint {after}") for way in ("migrate", "suspend") for after in (0.0, 0.05, 0.2, 0.5)]
    before, counts, slowest = [_used(gpu) for gpu in (0, 1)], collections.Counter(), (0, "")
    with bench.daemon(pool):
        for number, (way, step) in enumerate(ways):
            try:
                who, took = _killed(bench, pool, way, step, target=number % 2)
            except (Failed, RuntimeError, TimeoutError) as error:
                raise Failed(f"{way}, {step}: {error}") from error
            bench.tell(f"{way}: {step}: {who} killed; on again after {took:.2f} s")
            counts[who] += 1
            slowest = max(slowest, (took, f"{way}: {step}"))
            for gpu, used in enumerate(before):
                _emptied(bench, gpu, (used or 0) + GIB)
    told = ", ".join(f"{who} {count}" for who, count in counts.most_common())
    return f"killed: {told}; results right; slowest on again after {slowest[0]:.2f} s ({slowest[1]})", dict(counts)


@moving(soft=True, limit_s=150)
def drain(bench):
    """Eight programs leave a GPU that is drained."""
    home, target = _both(bench)
    size = 32 * MIB if bench.soft else 2 * GIB
    running = []
    for number in range(8):
        bench.vgpu(f"hw-drain-{number}", gpu=home)
        running.append(tenants.start(bench, 100, vgpu=f"hw-drain-{number}", memory=size, **{"memory-stride": 4096}))
    for tenant in running:
        bench.until(lambda each=tenant: each.kernels() > 10, "it works", 60)
    took = _timed(bench, "gpu", "drain", str(home))
    left = [vgpu["name"] for vgpu in bench.tessera.get("/v1/vgpus")["vgpus"] if vgpu["gpu"] == home]
    expect(not left, f"left: {left}")
    bench.cli("gpu", "undrain", str(home))
    for tenant in running:
        bench.until(lambda each=tenant, before=tenant.kernels(): each.kernels() > before + 10, "it goes on", 60)
        tenant.program.signal(15)
        expect(tenant.done(60)["verified"], "wrong results")
    return f"8 programs of {size >> 20} MiB: empty after {took:.2f} s; results right", took
