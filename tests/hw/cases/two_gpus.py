"""Two GPUs at once: memory that moves on both, where each has a mover and a pool of its own, and jobs on both that take
turns with their time."""
import pathlib
import shutil
import subprocess
import sys
import time

from harness.bench import GIB
from harness.checks import Skipped, expect
from cases.frameworks import FOLDER, need
from harness.steering import steer
from harness.swap_ground import Large, evict, load, mark, move, pool_stands, quiet, swap
from harness.timeline import GB


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


@steer(limit_s=240)
def gangs(bench):
    """Two jobs that sum by NCCL on the same two GPUs, without Tessera and as gangs: how fast each is beside the other,
    against alone. They have turns of 100 ms, so that the sum should be near to 1."""
    gpus = bench.tessera.get("/v1/gpus")["gpus"]
    if len(gpus) != 2:
        raise Skipped("needs two GPUs (nvidia-h100-x2)")
    expect(all(gpu["control"]["by"] == "channels" for gpu in gpus), f"channels are not steered: {gpus}")
    need("torch")
    argv = [sys.executable, FOLDER / "torch_allreduce_rate.py"]
    for job in "ab":
        for gpu in (0, 1):
            bench.vgpu(f"hw-{job}-{gpu}", gpu=gpu)

    def started(start):
        program = start()
        expect(bench.line(program, 60) == "ready", "it did not begin")
        return program

    def rates(programs, seconds=5):
        """Rounds a second of each, in one span of time."""
        firsts = [fresh(program) for program in programs]
        end = max(at for at, _ in firsts) + seconds
        lasts = [fresh(program, end) for program in programs]
        return [(last[1] - first[1]) / (last[0] - first[0]) for first, last in zip(firsts, lasts)]

    def fresh(program, after=None):
        after = time.monotonic() if after is None else after
        while True:
            words = bench.line(program, 60).split()
            if float(words[0]) >= after:
                return float(words[0]), int(words[1])

    def finish(program):
        program.close_input()
        while (line := bench.line(program, 60)) not in ("right", "WRONG"):
            pass
        expect(line == "right", "a sum is wrong")

    sums = {}
    for how, starts in (("without Tessera", [lambda: bench.start_native(argv)] * 2),
                        ("as gangs", [lambda job=job: bench.start_inside(argv, vgpu=f"hw-{job}-0,hw-{job}-1")
                                      for job in "ab"])):
        first = started(starts[0])
        alone = rates([first])[0]
        second = started(starts[1])
        beside = [rate / alone for rate in rates([first, second], 10)]
        for program in (first, second):
            finish(program)
        sums[how] = sum(beside)
        bench.tell(f"{how}: {alone:.0f} rounds a second alone; {beside[0]:.2f} + {beside[1]:.2f} of that at once")
    expect(sums["as gangs"] >= 0.8, f"as gangs {sums['as gangs']:.2f} of the speed alone, in sum")
    return f"{sums['without Tessera']:.2f} without Tessera, {sums['as gangs']:.2f} as gangs, of the speed alone"
