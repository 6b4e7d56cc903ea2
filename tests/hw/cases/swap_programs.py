"""Programs whose memory is taken away at random moments: their results must be what they are undisturbed."""
import itertools
import sys
import time

from cases import frameworks
from harness.bench import GIB, MIB, compare, last_words, must_succeed
from harness.checks import Failed, Skipped, expect
from harness.pinned import APART
from cases.figures import torch_ratios
from harness.steering import Worker
from harness.swap_ground import CHUNK, Evictor, Large, copies, evict, free_ram, load, pool_stands, quiet, swap
from harness.timeline import GB

LEAST_ALONE = 0.995  # of PyTorch's speed without Tessera


def _works(bench, argv, vgpu):
    """A program that works in a new vGPU, as a Worker, and the sum of its first round, which is that without Tessera."""
    alone = bench.start_native(argv)
    expected = bench.line(alone)
    Worker(bench, alone).result()
    bench.vgpu(vgpu)
    program = bench.start_inside(argv, vgpu=vgpu)
    expect(bench.line(program) == expected, "the first round gave another sum than without Tessera")
    return Worker(bench, program), expected


def _answer(bench, program, question):
    program.say(question)
    return bench.line(program)


def _asked(bench, argv, vgpu, question):
    """A program in a new vGPU that answers each time it is asked, and its answer without Tessera."""
    alone = bench.start_native(argv)
    expected = _answer(bench, alone, question)
    alone.close_input()
    bench.vgpu(vgpu)
    return bench.start_inside(argv, vgpu=vgpu), expected


@swap(soft=True, limit_s=60)
def kinds(bench):
    """Shared memory, atomics, cooperative grids, graphs and copies in flight."""
    seconds = 4 if bench.soft else 8
    argv = [bench.builder.program("kinds.cc"), 32 * MIB if bench.soft else GIB]
    worker, expected = _works(bench, argv, "hw-kinds")
    with Evictor(bench, 0.4 if bench.soft else 0.1) as evictor:
        worker.moved_in(seconds)
        worker.moves(40, by=2)
    rounds = worker.result(60)
    expect(evictor.moved > 0, f"nothing was moved: {evictor}")
    return f"{rounds} rounds right, {expected}; {evictor}"


@swap(soft=True, limit_s=60)
def ordered(bench):
    """Memory in the order of streams, allocated and freed without waiting, evicted once a second; what it costs."""
    seconds = 4 if bench.soft else 10
    most = 16 * MIB if bench.soft else 256 * MIB
    argv = [bench.builder.program("ordered.cc"), most]
    worker, expected = _works(bench, argv, "hw-ordered")
    with Evictor(bench, 1) as evictor:
        worker.moved_in(seconds)
    (process,) = bench.tessera.of_vgpu("hw-ordered")
    pools = process["memory_pinned_by"].get("pool", 0)
    rounds = worker.result(60)
    expect(pools == 0, f"{pools} bytes of pools are pinned")
    expect(bench.soft or evictor.moved > 0, f"nothing was moved: {evictor}")
    if bench.soft:  # whose own pools do not reuse memory before the stream has come to the free
        return f"{rounds} rounds right, {expected}; {evictor}"
    costs = [list(map(int, bench.line(start([*argv, 1, "cost"])).split()[1:])) for start in
             (bench.start_native, lambda argv: bench.start_inside(argv, vgpu="hw-ordered"))]
    (plain, ours) = (sum(each) for each in costs)
    expect(ours <= 1.2 * plain, f"an allocation and its free cost {ours} ns, {plain} without Tessera")
    return f"{rounds} rounds right, {expected}; {evictor}; an allocation and its free {ours} ns ({plain})"


@swap(soft=True, limit_s=60)
def graph_answers(bench):
    """What the driver answers about graphs with memory: a table, with and without Tessera."""
    argv = [bench.builder.program("graph_answers.cc")]
    native, inside = must_succeed(bench.native(argv), "without Tessera it"), must_succeed(bench.inside(argv), "it")
    table = list(itertools.zip_longest(native.out.splitlines(), inside.out.splitlines(), fillvalue=""))
    for theirs, ours in table:
        bench.log(f"{'  ' if theirs == ours else '! '}{theirs:<70}{ours}")
    differ = [f"{theirs} ({ours.split()[-1] if ours else 'nothing'} with Tessera)" for theirs, ours in table
              if theirs != ours and not theirs.startswith("# ")]
    expect(not differ, f"{len(differ)} answers differ: {'; '.join(differ)}")
    return f"{len(table)} answers, {sum(theirs != ours for theirs, ours in table)} figures differ"


@swap(soft=True, limit_s=60)
def graph_memory(bench):
    """Graphs with memory nodes, captured and added, whose memory is moved while they are launched again and again."""
    seconds = 4 if bench.soft else 8
    argv = [bench.builder.program("graph_memory.cc"), 8 * MIB if bench.soft else GIB // 2]
    worker, expected = _works(bench, argv, "hw-graph-memory")
    with Evictor(bench, 0.4 if bench.soft else 0.1) as evictor:
        worker.moved_in(seconds)
        worker.moves(20, by=2)
    (process,) = bench.tessera.of_vgpu("hw-graph-memory")
    pinned = process["memory_pinned_by"].get("graph", 0)
    rounds = worker.result(60)
    expect(pinned == 0, f"{pinned} bytes of graphs are pinned")
    expect(evictor.moved > 0, f"nothing was moved: {evictor}")
    return f"{rounds} rounds right, {expected}; {evictor}"


@swap(soft=True, limit_s=60)
def advice(bench):
    """Calls for managed memory, about memory on the GPU and then in host memory: they answer as without Tessera."""
    argv = [bench.builder.program("advice.cc")]
    program, expected = _asked(bench, argv, "hw-advice", "ask")
    for where in ("on the GPU", "in host memory"):
        found = _answer(bench, program, "ask")
        expect(found == expected, f"{where}: {found}; without Tessera: {expected}")
        if where == "on the GPU":
            evict(bench, program)
    program.close_input()
    return expected


@swap(limit_s=60)
def bindings(bench):
    """Textures of linear and pitched memory and a tensor map, bound once and read again and again while memory moves."""
    argv = [bench.builder.program("bindings.cu", "-cudart=static"), GIB // 2]
    program, expected = _asked(bench, argv, "hw-bindings", "read")
    count = 0
    with Evictor(bench, 0.2) as evictor:
        while evictor.times < 20:
            found = _answer(bench, program, "read")
            expect(found == expected, f"after {evictor}: {found}; without Tessera {expected}")
            count += 1
    program.close_input()
    expect(evictor.moved > 0, f"nothing was moved: {evictor}")
    return f"{count} times {expected}; {evictor}"


# Programs, and whether they have gigabytes, of which next to nothing may be pinned.
FRAMEWORKS = (
    ("PyTorch", "torch", "torch_large.py", [], {}, True),
    ("PyTorch, expandable segments", "torch", "torch_large.py", [], {"env": frameworks.alloc("expandable_segments:True")}, True),
    ("PyTorch, cudaMallocAsync", "torch", "torch_large.py", [], {"env": frameworks.alloc("backend:cudaMallocAsync")}, True),
    ("CuPy's pool", "cupy", "cupy_large.py", ["default"], {}, True),
    ("CuPy, cudaMallocAsync", "cupy", "cupy_large.py", ["async"], {}, True),
    ("JAX", "jax", "jax_train.py", ["200"], {"native_env": {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}}, True),
    ("PyTorch training", "torch", "torch_train.py", ["eager", "400"], {}, False),
    ("transformers", "transformers", "generate.py", ["400"], {}, False),
    ("CuPy", "cupy", "cupy_math.py", [], {}, False))


@swap(name="frameworks", soft=True, limit_s=400)
def frameworks_evicted(bench):
    """Losses, tokens and sums of PyTorch, CuPy, JAX and transformers, evicted once a second, against the same without
    Tessera; and how much of their memory is pinned meanwhile."""
    wrong, told = [], []
    for name, module, script, arguments, sides, large in FRAMEWORKS:
        try:
            frameworks.need(module)
            with Evictor(bench, 1) as evictor:  # what runs without Tessera it leaves alone
                _, _, same = frameworks.both(bench, script, arguments, **sides)
            told.append(f"{name}: {same}, {evictor}, {evictor.pinned}")
            if large:
                expect(evictor.moved > 0, f"nothing was moved: {told[-1]}")
                evictor.pinned.judge(told[-1])
        except Skipped as why:
            told.append(f"{name}: {why}")
        except (Failed, TimeoutError) as why:  # the others still have their turn
            wrong.append(f"{name}: {why}")
            told.append(f"FAIL {wrong[-1]}")
        bench.tell(told[-1])
    expect(not wrong, "; ".join(wrong))
    if all(": no " in each for each in told):
        raise Skipped("no framework is here")
    return "; ".join(told)


@swap(soft=True, limit_s=150)
def sleeping(bench):
    """As vLLM's sleep mode: 40 GiB (where a large program has 60) in a handle of cuMemCreate for each tensor, copied to host
    memory, unmapped and released, made and mapped again at the same addresses; evicted once a second meanwhile."""
    bytes_ = min(bench.ground.part(40), int((free_ram() - 8 * GIB) / 2.2) if not bench.soft else GIB) // CHUNK * CHUNK
    program = Large(bench, bytes_, "hw-sleeping", block=20 * MIB if bench.soft else 130 * MIB, mapped=True)
    slept = []
    with Evictor(bench, 1) as evictor:
        for _ in range(3):
            program.ask("busy 3")
            slept.append(program.ask("sleep", 120)[0])
            (asleep,) = bench.tessera.of_vgpu("hw-sleeping")
            time.sleep(1)
            slept.append(program.ask("wake", 120)[0])
            program.right()
    program.end()
    beside = sum(asleep["memory_pinned_by"].get(reason, 0) for reason in APART)
    figure = (f"{bytes_ / GIB:.1f} GiB, 3 times: asleep after {max(slept[::2]):.1f} s with {asleep['memory_bytes'] / MIB:.0f} "
              f"MiB left, awake after {max(slept[1::2]):.1f} s, words right; {evictor}; {evictor.pinned}")
    bench.tell(figure)
    expect(asleep["memory_bytes"] - beside <= 2 * CHUNK, f"asleep it has memory: {figure}")
    expect(evictor.moved > 0, f"nothing was moved: {figure}")
    evictor.pinned.judge(figure)
    return figure


@swap(soft=True, limit_s=90)
def ipc(bench):
    """Memory that two programs share by IPC handles, while it is moved."""
    told = []
    if not bench.soft:  # by the runtime, which the soft GPU does not know
        program = bench.builder.program("ipc.cu", "-cudart=static")
        with Evictor(bench, 0.1) as evictor:
            told.append(f"cudaIpc: {compare(bench.native([program]), bench.inside([program]))}, {evictor}")
        bench.tell(told[-1])
    try:
        frameworks.need("torch")
        with Evictor(bench, 0.2) as evictor:
            _, _, same = frameworks.both(bench, "torch_share.py", ["200"])
        told.append(f"PyTorch's queues: {same}, {evictor}")
    except Skipped as why:
        told.append(f"PyTorch's queues: {why}")
    if bench.soft and "torch" in told[-1]:
        raise Skipped(told[-1])
    return "; ".join(told)


def _managed(bench, bytes_):
    native = Large(bench, 0, native=True)
    out, into = native.ask(f"managed {bytes_}")
    native.end()
    told = f"managed memory {out / GB:.1f} out, {into / GB:.1f} in" if out else "managed memory: not as much free"
    bench.tell(f"{told} GB/s")
    return told


@swap(name="compare", soft=True, limit_s=60)
def compare_ways(bench):
    """The same by managed memory's own prefetches, and by the driver's checkpoint of a process."""
    plain = copies(bench)
    bytes_ = 64 * MIB if bench.soft else 8 * GIB
    told = [] if bench.soft else [_managed(bench, bytes_)]
    held = Large(bench, bytes_, native=True)
    done = bench.native([bench.builder.program("checkpoint.cpp"), held.pid], limit_s=40)
    if done.status == 77:
        told.append(f"checkpoint: {last_words(done)}")
    else:
        seconds = [float(word) for word in must_succeed(done, "the checkpoint").out.split()[1:]]
        told.append("checkpoint {:.1f} out, {:.1f} in".format(*(bytes_ / s / GB for s in seconds)))
        held.right()
    bench.tell(f"{told[-1]} GB/s")
    held.program.kill()
    ours = Large(bench, bytes_, "hw-compare")
    evict(bench, ours)
    load(bench, ours)
    pool_stands(bench, bytes_)
    quiet(bench)
    moved = evict(bench, ours), load(bench, ours)[0]
    ours.right()
    told.append("Tessera {:.1f} out, {:.1f} in".format(*(each.rate / GB for each in moved)))
    return f"{'; '.join(told)}; plain copies {plain[0] / GB:.1f}, {plain[1] / GB:.1f} GB/s"


@swap(soft=True, limit_s=150)
def usable(bench):
    """All that is free, less 2 %, in one block: after random histories, and by PyTorch between tensors that stay."""
    bench.vgpu("hw-usable", memory_limit=bench.ground.part(20))
    program = bench.builder.program("usable.cc")
    done = must_succeed(bench.inside([program, bench.options.get("swap.seconds", 8 if bench.soft else 120)], vgpu="hw-usable"), "the raw program")
    told = [last_words(done)]
    bench.tell(told[-1])
    try:
        frameworks.need("torch")
        done = must_succeed(bench.inside([sys.executable, frameworks.FOLDER / "torch_usable.py"], memory=20 * GIB), "PyTorch")
        expect("right: True" in done.out, f"PyTorch: {last_words(done)}")
        values = done.values()
        told.append("PyTorch: " + ", ".join(f"{values[f'block_{n}'] / values[f'free_{n}']:.1%} of {values[f'free_{n}'] // MIB} MiB"
                                            for n in (20, 120, 30)))
    except Skipped as why:
        told.append(f"PyTorch: {why}")
    return "; ".join(told)


@swap(limit_s=240)
def no_pressure(bench):
    """PyTorch training and LLM decode alone under a daemon that swaps, with and without Tessera in turn."""
    ratios, details, figure = torch_ratios(bench, ("train", "decode"), rounds=6, pairs=5)
    expect(min(ratios.values()) >= LEAST_ALONE, figure)
    return figure, details
