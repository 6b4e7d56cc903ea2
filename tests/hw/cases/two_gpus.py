"""Two GPUs at once: memory that moves on both, where each has a mover and a pool of its own, and jobs on both that take
turns with their time."""
import pathlib
import shutil
import socket
import subprocess
import sys
import time

from harness.bench import GIB, last_words
from harness.checks import Failed, Skipped, expect
from cases.frameworks import FOLDER, need
from harness.steering import steer
from harness.swap_ground import (CHUNK, STRIDE, Large, evict, load, mark, move, pool_stands, quiet, steps_since,
                                 swap)
from harness.timeline import GB

LEAST_SUM = 0.8  # of the speeds of two jobs at once, in parts of the speed alone
LEAST_WORK = 0.8  # of the time of two jobs that take turns with their memory


def _numa_nodes():
    """Of the GPUs, by index; [] where nobody says."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return []
    asked = subprocess.run([smi, "--query-gpu=pci.bus_id", "--format=csv,noheader"], capture_output=True, text=True)
    nodes = []
    for line in asked.stdout.split():
        file = pathlib.Path("/sys/bus/pci/devices") / line.lower()[-12:] / "numa_node"
        nodes.append(file.read_text().strip() if file.exists() else "?")
    return nodes


@swap(soft=True, limit_s=120)
def two_gpus(bench):
    """Out and in on each alone, then on both at once."""
    count = len(bench.tessera.get("/v1/gpus")["gpus"])
    if count < 2:
        raise Skipped("one GPU (nvidia-h200-x2 has two, --soft 2x4GiB as well)")
    programs = [Large(bench, bench.ground.part(24), f"hw-gpu-{gpu}", gpu=gpu) for gpu in (0, 1)]
    for program in programs:  # the first time makes the host memory
        evict(bench, program)
        load(bench, program)
    pool_stands(bench, bench.ground.part(24))
    nodes = _numa_nodes()
    alone = []
    for gpu, program in enumerate(programs):
        quiet(bench)
        alone.append((evict(bench, program), load(bench, program)[0]))
        bench.tell(f"GPU {gpu}{f' (NUMA node {nodes[gpu]})' if gpu < len(nodes) else ''} alone: "
                   f"out {alone[-1][0].rate / GB:.1f}, in {alone[-1][1].rate / GB:.1f} GB/s")
    quiet(bench)
    begin = mark(bench)
    for program in programs:
        bench.tessera.evict(program.pid)
    outs = [move(bench, program, "out", begin) for program in programs]
    begin = mark(bench)
    for program in programs:
        program.tell("pass 1")
    for program in programs:
        program.told()
    ins = [move(bench, program, "in", begin) for program in programs]
    bench.tell(f"at once: out {' + '.join(f'{each.rate / GB:.1f}' for each in outs)}, "
               f"in {' + '.join(f'{each.rate / GB:.1f}' for each in ins)} GB/s")
    for program in programs:
        program.right()
    movers = {gpu["swap"]["mover_pid"] for gpu in bench.tessera.get("/v1/gpus")["gpus"]}
    expect(len(movers) == count, f"movers {movers}")
    before = [each for side in zip(*alone) for each in side]  # both out, then both in
    ratios = [now.rate / single.rate for now, single in zip([*outs, *ins], before)]
    details = {"alone": [each.rate for each in before], "at once": [each.rate for each in (*outs, *ins)]}
    return (f"at once {min(ratios):.1%} to {max(ratios):.1%} of each alone, {bench.ground.part(24) / GIB:.1f} GiB "
            f"each; words right"), details


@swap(soft=True, limit_s=120)
def peers(bench):
    """One GPU works on the memory of the other, of the same program, while that is moved."""
    if len(bench.tessera.get("/v1/gpus")["gpus"]) < 2:
        raise Skipped("one GPU (nvidia-h200-x2 has two, --soft 2x4GiB as well)")
    for gpu in (0, 1):
        bench.vgpu(f"hw-peer-{gpu}", gpu=gpu)
    program = bench.start_inside([bench.builder.program("peers.cc"), bench.ground.part(8)],
                                 vgpu="hw-peer-0,hw-peer-1")
    words = bench.line(program, 60).split()
    expect(words[0] == "ready", f"it said {words}")
    pid, access = int(words[1]), words[2] == "1"

    def rounds():
        program.say("count")
        return int(bench.line(program, 60).split()[1])

    def more_rounds(count=2):
        before = rounds()
        bench.until(lambda: rounds() >= before + count, "work of the other GPU", 60)

    def swapped():
        return sum(each["memory_swapped_bytes"] for each in bench.tessera.processes() if each["pid"] == pid)

    times = 2 if bench.soft else 10
    for _ in range(times):
        more_rounds()
        bench.tessera.evict(pid)
        bench.until(lambda: swapped() >= bench.ground.part(8), "the memory to be out", 60)
        more_rounds()
        program.say("touch")
        expect(bench.line(program, 60) == "touched", "GPU 0 did not work")
        bench.until(lambda: swapped() == 0, "the memory to be back", 60)
    done = rounds()
    program.close_input()
    end = bench.line(program, 60)
    expect(end.endswith(" right"), f"it said {end}")
    return f"{times} times out and in, {done} rounds of the other GPU, {'with' if access else 'without'} access; words right"


# Jobs that sum by NCCL on both GPUs (torch_allreduce_rate.py): each a list of programs, of which the first tells the rounds.

def _two_gpus_for_nccl(bench):
    gpus = bench.tessera.get("/v1/gpus")["gpus"]
    if len(gpus) != 2:
        raise Skipped("needs two GPUs (nvidia-h100-x2)")
    expect(all(gpu["control"]["by"] == "channels" for gpu in gpus), f"channels are not steered: {gpus}")
    need("torch")


def _begun(bench, programs):
    try:
        for program in programs:
            expect(bench.line(program, 90) == "ready", "it did not begin")
    except (Failed, TimeoutError):  # one rank may wait for another that has the reason
        for program in programs:
            bench.log(f"{program.name()}: {''.join(program.errors)[-4000:]}")
        raise
    return programs


def _fresh(bench, job, after=None):
    """(time, rounds) that it tells after that time, now by default."""
    after = time.monotonic() if after is None else after
    while True:
        words = bench.line(job[0], 60).split()
        if float(words[0]) >= after:
            return float(words[0]), int(words[1])


def _rates(bench, jobs, seconds):
    """Rounds a second of each, in one span of time."""
    firsts = [_fresh(bench, job) for job in jobs]
    end = max(at for at, _ in firsts) + seconds
    lasts = [_fresh(bench, job, end) for job in jobs]
    return [(last[1] - first[1]) / (last[0] - first[0]) for first, last in zip(firsts, lasts)]


def _rates_after(bench, jobs, change, seconds):
    """The same after a change. Of jobs that perhaps do not get on then at all, and say nothing."""
    def last(job, rounds):
        return ([rounds] + [int(line.split()[1]) for line in job[0].pending()])[-1]

    known = [_fresh(bench, job)[1] for job in jobs]
    change()
    firsts = [last(job, rounds) for job, rounds in zip(jobs, known)]
    begin = time.monotonic()
    bench.until(lambda: time.monotonic() >= begin + seconds, "a span to measure", 2 * seconds)
    lasts = [last(job, first) for job, first in zip(jobs, firsts)]
    took = time.monotonic() - begin
    return [(last_round - first) / took for last_round, first in zip(lasts, firsts)]


def _finish(bench, job):
    for program in job:
        program.close_input()
    for program in job:
        while (line := bench.line(program, 60)) not in ("right", "WRONG"):
            pass
        expect(line == "right", "a sum is wrong")
    for program in job:
        status = program.wait(bench.left(30))
        expect(status == 0, f"{program.name()} ended with {status}: {last_words(program.finished())}")


def _beside(bench, how, start):
    """Starts the jobs "a" and "b", one after the other. The jobs, the speed of the first alone, the sum of their speeds at
    once in parts of that."""
    first = start("a")
    alone = _rates(bench, [first], 5)[0]
    jobs = [first, start("b")]
    parts = [rate / alone for rate in _rates(bench, jobs, 10)]
    bench.tell(f"{how}: {alone:.0f} rounds a second alone; {parts[0]:.2f} + {parts[1]:.2f} of that at once")
    return jobs, alone, sum(parts)


@steer(limit_s=240)
def gangs(bench):
    """Two jobs that sum by NCCL on the same two GPUs, without Tessera and as gangs: how fast each is beside the other,
    against alone. They have turns of 100 ms, so that the sum should be near to 1."""
    _two_gpus_for_nccl(bench)
    argv = [sys.executable, FOLDER / "torch_allreduce_rate.py"]
    for job in "ab":
        for gpu in (0, 1):
            bench.vgpu(f"hw-{job}-{gpu}", gpu=gpu)
    sums = {}
    for how, start in (("without Tessera", lambda job: bench.start_native(argv)),
                       ("as gangs", lambda job: bench.start_inside(argv, vgpu=f"hw-{job}-0,hw-{job}-1"))):
        jobs, _, sums[how] = _beside(bench, how, lambda job, start=start: _begun(bench, [start(job)]))
        for job in jobs:
            _finish(bench, job)
    expect(sums["as gangs"] >= LEAST_SUM, f"as gangs {sums['as gangs']:.2f} of the speed alone, in sum")
    return f"{sums['without Tessera']:.2f} without Tessera, {sums['as gangs']:.2f} as gangs, of the speed alone"


@steer(limit_s=240)
def named_gangs(bench):
    """The same with a process for each GPU, each in a vGPU of its own: gangs by the name of the job. Then without the names,
    and with them again."""
    _two_gpus_for_nccl(bench)
    env = dict(each.partition("=")[::2] for each in bench.options.get("gangs.env", "").split(",") if each)

    def ranks(start):
        """Of a job. Each sees one GPU, which is its first."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        script = FOLDER / "torch_allreduce_rate.py"
        return _begun(bench, [start(rank, [sys.executable, script, rank, 2, port]) for rank in (0, 1)])

    def start_native(rank, argv):
        return bench.start_native(argv, {**env, "CUDA_VISIBLE_DEVICES": str(rank)})

    def start_named(job):
        for gpu in (0, 1):
            bench.vgpu(f"hw-{job}-{gpu}", gpu=gpu, gang=f"hw-{job}")
        return ranks(lambda rank, argv: bench.start_inside(argv, env, vgpu=f"hw-{job}-{rank}"))

    def name(gang):
        for job in "ab":
            for gpu in (0, 1):
                bench.tessera.set(f"hw-{job}-{gpu}", gang=gang(job))

    jobs, _, without = _beside(bench, "without Tessera", lambda job: ranks(start_native))
    for job in jobs:
        _finish(bench, job)
    jobs, alone, named = _beside(bench, "as named gangs", start_named)
    nameless = _rates_after(bench, jobs, lambda: name(lambda job: None), 5)
    bench.tell(f"the same jobs without the names: {nameless[0]:.0f} + {nameless[1]:.0f} rounds a second")
    name(lambda job: f"hw-{job}")
    again = sum(_rates(bench, jobs, 3)) / alone
    for job in jobs:
        _finish(bench, job)
    figure = (f"{without:.2f} without Tessera, {named:.2f} as named gangs, {sum(nameless) / alone:.2f} without the names, "
              f"{again:.2f} with them again, of the speed alone; sums right")
    expect(named >= LEAST_SUM, figure)
    return figure


class Job(Large):
    """A program with memory on both GPUs (torch_jobs.py; swap.cc on soft GPUs). The first of the GPUs is its device 0."""

    def __init__(self, bench, name, gpus, bytes_):
        names = [f"hw-{name}-{gpu}" for gpu in gpus]
        for vgpu, gpu in zip(names, gpus):
            bench.vgpu(vgpu, gpu=gpu, memory_limit=bench.ground.size)
        if bench.soft:
            argv = [bench.builder.program("swap.cc"), bytes_, CHUNK, STRIDE, "plain", len(gpus)]
        else:
            argv = [sys.executable, FOLDER / "torch_jobs.py", bytes_]
        self._bench, self._bytes, self.rounds = bench, bytes_, 0
        self.program = bench.start_inside(argv, vgpu=",".join(names))
        self.stands(90)

    def told(self, limit_s=60):
        """Without the rounds that it tells meanwhile, each within that time."""
        self.rounds = 0
        while True:
            line = self._bench.line(self.program, limit_s)
            words = line.split()
            if words[0] in ("passed", "checked"):
                return [float(word) for word in words[1:]]
            expect(words[0] == "round", f"the program said: {line}")
            self.rounds = int(words[1])

    def last_round(self):
        """That it has told; at most those of the last order."""
        told = [int(line.split()[1]) for line in self.program.pending() if line.startswith("round ")]
        return ([self.rounds] + told)[-1]

    def seconds(self, rounds):
        """That so many take."""
        begin, _, end = self.ask(f"pass {rounds}")
        return end - begin


@swap(soft=True, limit_s=480)
def two_jobs(bench):
    """Two jobs on both GPUs, each with five sevenths of their memory, one with the GPUs in the opposite order. A round
    changes all of it and sums up a part by NCCL. How much longer both take at once than one after the other."""
    if len(bench.tessera.get("/v1/gpus")["gpus"]) != 2:
        raise Skipped("needs two GPUs (nvidia-h100-x2, --soft 2x4GiB as well)")
    if not bench.soft:
        need("torch")
    bytes_ = bench.ground.part(50)  # of 70
    jobs = [Job(bench, "a", (0, 1), bytes_), Job(bench, "b", (1, 0), bytes_)]
    bench.tell(f"jobs of {bytes_ / GIB:.1f} GiB on each GPU started in {jobs[0].start_s:.1f} and {jobs[1].start_s:.1f} s")
    for gpu in (0, 1):
        pool_stands(bench, min(bench.ground.pool, 2 * bytes_), 40, gpu)
    jobs[0].ask("pass 2")  # brings its memory in
    round_s = jobs[0].seconds(20) / 20
    wanted = float(bench.options.get("jobs.seconds", 4 if bench.soft else 40))
    rounds = max(2, int(min(wanted, (bench.left() - 20) / 4.7) / round_s))  # alone twice, then both with a fifth lost
    alone = []
    for job in jobs:
        job.ask("pass 2")
        quiet(bench)
        alone.append(job.seconds(rounds))
    bench.tell(f"{rounds} rounds of {round_s:.3f} s: {alone[0]:.1f} and {alone[1]:.1f} s alone")
    quiet(bench)
    begin, since = mark(bench), time.monotonic()
    for job in jobs:
        job.tell(f"pass {rounds}")
    bench.until(lambda: all("in one order with other GPUs" in gpu["swap"]["decision"]
                            for gpu in bench.tessera.get("/v1/gpus")["gpus"]), "turns on both GPUs together", 30)
    try:
        told = [job.told() for job in jobs]
    except TimeoutError as why:
        first, second = (job.last_round() for job in jobs)
        raise Failed(f"after {time.monotonic() - since:.0f} s {first} and {second} of {rounds} rounds were told, alone "
                     f"{alone[0]:.1f} and {alone[1]:.1f} s: {why}") from None
    seconds = max(end for *_, end in told) - min(start for start, *_ in told)
    steps = steps_since(bench, begin)
    moved = sum(step.out + step.into for step in steps if step.what == "moved")
    turns = [sum(step.what == "runs" and step.who == job.pid for step in steps) / 2 for job in jobs]
    for job in jobs:
        job.right()
        job.end()
    share = sum(alone) / seconds
    figure = (f"{rounds} rounds of both in {seconds:.1f} s, one after the other {sum(alone):.1f}: {share:.1%} of the time is "
              f"work; {moved / GIB:.0f} GiB moved, {turns[0]:.0f} and {turns[1]:.0f} turns; "
              f"{'numbers' if bench.soft else 'numbers and sums'} right")
    expect(moved > 0 and min(turns) >= 1, f"they took no turns: {figure}")
    expect(bench.soft or share >= LEAST_WORK, figure)
    return figure, {"alone": alone, "both": seconds, "rounds": rounds, "steps": [[*step] for step in steps]}
