"""Programs built by nvcc: each with cudart linked statically and shared, each with and without Tessera."""

from harness.bench import GIB, GRANULE, MIB, compare, must_succeed
from harness.build import source_path
from harness.checks import Skipped, add, check, expect

RUNTIME = ("streams", "callbacks", "graphs", "launches", "pools", "managed", "ipc", "print", "copies", "host_memory",
           "errors", "forks")
CUDARTS = ("-cudart=static", "-cudart=shared")


def _both(bench, program, arguments=(), env=None, native_arguments=None):
    """(native, inside), compared."""
    native = bench.native([program, *(arguments if native_arguments is None else native_arguments)], env)
    inside = bench.inside([program, *arguments], env, memory=bench.memory)
    return native, inside, compare(native, inside)


def _runtime_check(name):
    def body(bench):
        for cudart in CUDARTS:
            _, _, same = _both(bench, bench.builder.program(f"{name}.cu", cudart))
        return f"static and shared cudart: {same}"

    return body


for _name in RUNTIME:
    source_path(f"{_name}.cu")  # or it would be missed on a real GPU only
    add("programs", _name, _runtime_check(_name))


@check("programs")
def threads(bench):
    builds = [(c,) for c in CUDARTS] + [("-cudart=shared", "--default-stream=per-thread")]
    for flags in builds:
        _, _, same = _both(bench, bench.builder.program("threads.cu", *flags))
    return f"8 threads, legacy and per-thread default stream: {same}"


@check("programs")
def query(bench):
    """Also with the device chosen by index, by UUID, and hidden."""
    uuid = bench.tessera.gpu()["uuid"]
    for cudart in CUDARTS:
        program = bench.builder.program("query.cu", cudart)
        for visible in (None, "0", uuid, ""):
            native, _, _ = _both(bench, program, env=None if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
            count = int(native.lines()[0].split()[1])
            expect((count > 0) == (visible != ""), f"CUDA_VISIBLE_DEVICES={visible}: {count} devices")
    return "visible: all, by index, by UUID, none"


@check("programs")
def memory_view(bench):
    limit = bench.memory
    for cudart in CUDARTS:
        _, inside, _ = _both(bench, bench.builder.program("memory_view.cu", cudart))
        values = inside.values()
        for name, value in values.items():
            if name.endswith("_total"):
                expect(value == limit, f"{name} is {value}, the limit {limit}")
        expect("nvml_total" in values, "NVML did not answer")
        expect(0 <= values["taken_by_1_GiB"] - GIB <= bench.slack, f"1 GiB takes {values['taken_by_1_GiB']} bytes")
        expect(values["left_after_free"] <= bench.slack, f"free leaves {values['left_after_free']} bytes")
        expect(values["nvml_used"] >= GIB, f"NVML says {values['nvml_used']} used")
    return f"5 views say {limit // MIB} MiB; the context counts {values['used_by_context'] / MIB:.0f} MiB"


@check("programs")
def oom(bench):
    """Full to the granule, every way to allocate but managed memory is refused by the very call, and the program goes on."""
    spare = []
    for number, cudart in enumerate(CUDARTS):
        name = f"hw-oom-{number}"
        program = bench.builder.program("oom.cu", cudart)
        native = bench.native([program, 1 * GIB])
        bench.vgpu(name, memory_limit=bench.memory)
        full = bench.start_inside([program, "hold"], vgpu=name)
        while True:
            line = bench.line(full)
            if line.startswith("# refused_cuMemCreate"):
                break
        measured = [p["memory_measured_bytes"] for p in bench.tessera.of_vgpu(name)]
        full.say("")
        full.wait(bench.left(30))
        inside = full.finished()
        bench.note(inside)
        compare(native, inside)
        values = inside.values()
        for way, error in values.items():
            if way == "refused_cudaMallocManaged":  # what the limit leaves no room for stays in host memory (docs/memory.md)
                expect(error == "cudaSuccess", f"cudaMallocManaged at the limit: {error}")
            elif way.startswith("refused_"):
                expect(error == "cudaErrorMemoryAllocation" or error == "CUDA_ERROR_OUT_OF_MEMORY",
                       f"{way[8:]} at the limit: {error}")
        peak = bench.tessera.vgpu(name)["memory_peak_bytes"]
        # More than the limit: what the device says that the process has beyond what it was given.
        expect(bench.memory - GRANULE < peak < bench.memory + 64 * MIB, f"peak {peak} of a limit of {bench.memory}")
        spare.append(bench.memory - peak)
    figure = f"every way refused; limit less peak: {max(spare)} B; the device itself counts {measured[0] or 0} B"
    return figure, {"spare": spare, "measured": measured}


@check("programs", soft=True)
def limit_exact(bench):
    """As oom, by the driver API: allocations plus context fill the limit to less than one granule."""
    program = bench.builder.program("hold.cc")
    name = "hw-exact"
    bench.vgpu(name, memory_limit=bench.memory)
    held = bench.start_inside([program, "all"], vgpu=name)
    got = int(bench.line(held).split()[1])
    current = bench.tessera.vgpu(name)["memory_current_bytes"]
    context, price = current - got, bench.context_bytes
    expect(price / 2 <= context <= 2 * price, f"got {got}, but the ledger says {current}; a context counts {price}")
    expect(0 <= bench.memory - current < GRANULE, f"{current} of {bench.memory}")
    held.say("work")
    expect(bench.line(held).startswith("worked "), "it does not work when full")
    held.close_input()
    held.wait(bench.left(10))
    bench.until(lambda: bench.tessera.vgpu(name)["memory_current_bytes"] == 0, "the ledger is empty")
    return f"limit less (allocations + context of {context / MIB:.0f} MiB): {bench.memory - current} B"


@check("programs", soft=True)
def pool_keeps(bench):
    """Memory that a pool keeps after a free still takes the GPU's: the ledger must not say less than the device does."""
    wanted = bench.memory // 2
    bench.vgpu("hw-pool", memory_limit=bench.memory)
    held = bench.start_inside([bench.builder.program("hold.cc"), "pool", wanted], vgpu="hw-pool")
    bench.line(held)
    (process,) = bench.tessera.of_vgpu("hw-pool")
    ledger, measured = process["memory_bytes"], process["memory_measured_bytes"]
    if measured is None:
        raise Skipped("the device does not say what a process uses")
    figure = f"ledger {ledger // MIB} MiB, device {measured // MIB} MiB"
    expect(measured - ledger <= 128 * MIB, figure)
    return figure


@check("programs", soft=True)
def vmm(bench):
    _, inside, same = _both(bench, bench.builder.program("vmm.cc"))
    values = inside.values()
    expect(0 <= values["charged"] - 128 * MIB <= bench.slack, f"128 MiB charged as {values['charged']}")
    imported = values["charged_for_the_import"]
    expect(imported <= min(bench.slack, 8 * MIB), f"an import charged {imported}")
    expect(values["not_given_back"] <= bench.slack, f"not given back: {values['not_given_back']}")
    return same


@check("programs", soft=True)
def calls(bench):
    """Calls that the driver answers differently for mapped memory."""
    return _both(bench, bench.builder.program("calls.cc"))[2]


@check("programs", soft=True)
def calls_two_gpus(bench):
    """Copies between GPUs without peer access."""
    if len(bench.tessera.get("/v1/gpus")["gpus"]) < 2:
        raise Skipped("one GPU (nvidia-h200-x2 has two, --soft 2x4GiB as well)")
    program = bench.builder.program("calls.cc")
    for gpu in (0, 1):
        bench.vgpu(f"hw-calls-{gpu}", gpu=gpu, memory_max=bench.memory)
    native = bench.native([program, "2"])
    inside = bench.inside([program, "2"], vgpu="hw-calls-0,hw-calls-1")
    return compare(native, inside)


@check("programs", soft=True)
def contexts(bench):
    _, inside, same = _both(bench, bench.builder.program("contexts.cc"))
    values = inside.values()
    expect(values["two_more_contexts"] >= 4 * MIB, f"two contexts charged {values['two_more_contexts']}")
    for when in ("after_destroy", "after_six_more"):
        expect(values[when] <= bench.slack, f"{when}: {values[when]} bytes still charged")
    return f"{same}; two more contexts count {values['two_more_contexts'] / MIB:.0f} MiB"


@check("programs")
def reset(bench):
    for cudart in CUDARTS:
        _, inside, same = _both(bench, bench.builder.program("reset.cu", cudart))
        values = inside.values()
        expect(abs(values["free_first"] - values["free_second"]) <= bench.slack,
               f"free before {values['free_first']} after {values['free_second']}")
    return same


@check("programs", soft=True)
def lookup(bench):
    """Every way to find the driver reaches the same vGPU."""
    library = bench.tessera.driver_library()
    arguments = [library] if library else []
    _, inside, _ = _both(bench, bench.builder.program("lookup.cc"), arguments)
    ways = {name[:-6]: value for name, value in inside.values().items() if name.endswith("_total")}
    missed = [way for way, total in ways.items() if total != bench.memory]
    expect(not missed, f"not the vGPU's memory: {', '.join(missed)}")
    return f"{len(ways)} ways: {', '.join(ways)}"


@check("programs", soft=True)
def exec_of_many(bench):
    """A shell that starts CUDA programs: each is a process of the same vGPU."""
    program = bench.builder.program("hold.cc")
    script = 'for i in 1 2 3; do "$0" 2097152 < /dev/null & done; wait'
    done = must_succeed(bench.inside(["sh", "-c", script, program], memory=bench.memory), "the shell")
    expect(done.lines() == ["got 2097152"] * 3, f"it printed {done.lines()}")
    return "3 programs from one shell"
