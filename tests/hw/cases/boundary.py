"""The kernel gate: memory limits for programs that the shim does not see, and what the gate costs."""
import pathlib
import time

from harness.bench import GIB, GRANULE, MIB, last_words, must_succeed
from harness.checks import Skipped, expect
from harness.steering import Worker, driver_path, memory_used_by_gpu, run_ok, steer

MOST_ADDED_US = 5.0  # p50 of an intercepted call
VULKAN_DRIVERS = [pathlib.Path(p) for p in ("/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d",
                                            "/usr/local/nvidia/share/vulkan/icd.d")]


def opencl_environment():
    # Loaders look in /etc/OpenCL/vendors; this names the driver to them where that folder is empty.
    return {"OCL_ICD_FILENAMES": "libnvidia-opencl.so.1"}


def vulkan_environment():
    """Names NVIDIA's driver to the loader, where it may not look by itself."""
    found = [folder / "nvidia_icd.json" for folder in VULKAN_DRIVERS if (folder / "nvidia_icd.json").exists()]
    return {"VK_DRIVER_FILES": str(found[0])} if found else {}


def _taken(bench, argv, env, enforce, limit, name):
    """Lets a program take what it gets: (bytes, error, the vGPU's row meanwhile, nvidia-smi's MiB, bytes had again)."""
    bench.vgpu(name, memory_limit=limit)
    worker = Worker(bench, bench.start_inside([*argv, limit + 2 * GIB], env, vgpu=name, enforce=enforce))
    got, refused = (int(bench.line(worker.program).split()[1]) for _ in range(2))
    row, measured = bench.tessera.vgpu(name), memory_used_by_gpu(worker.pid)
    again = int(worker.ask("again", 60).split()[1])
    expect(bench.line(worker.program) == "works", "it does not work after the refusal")
    must_succeed(_ended(bench, worker.program), "the program")
    bench.until(lambda: bench.tessera.vgpu(name)["memory_current_bytes"] == 0, "all is given back", 10)
    return got, refused, row, measured, again


def _ended(bench, program):
    program.wait(bench.left(20))
    done = program.finished()
    bench.note(done)
    return done


def _limit(bench, argv, env=None, refusal=None, exact=True):
    """With the gate: refused within the limit, and (exact) not before it is full to 2 MiB. Without: told."""
    limit = bench.memory
    got, refused, row, measured, again = _taken(bench, argv, env, "kernel", limit, "hw-gate")
    spare = limit - row["memory_current_bytes"]
    figure = (f"limit {limit // MIB} MiB: got {got // MIB}, refused with {refused}, {spare / MIB:.1f} MiB spare, "
              f"nvidia-smi {measured} MiB, after freeing {again // MIB} again")
    expect(refused != 0 and got < limit, f"not refused: {figure}")
    expect(spare >= 0, f"beyond the limit: {figure}")
    expect(not exact or spare < GRANULE, f"refused too early: {figure}")
    expect(refusal is None or refused == refusal, f"another error than {refusal}: {figure}")
    expect(measured is None or measured * MIB <= limit + 128 * MIB, f"the GPU says more: {figure}")
    expect(again >= got - 64 * MIB, f"what was freed did not come back: {figure}")
    without = _taken(bench, argv, env, "shim", limit, "hw-no-gate")
    return f"{figure}; without the gate it gets {without[0] // MIB} MiB (error {without[1]})"


@steer(limit_s=60)
def gate_memory_cuda(bench):
    """cuMemAlloc of the driver's own library, the shim not loaded."""
    return _limit(bench, [bench.builder.program("raw_memory.cpp"), driver_path(bench)], refusal=2)


@steer(limit_s=60)
def gate_memory_opencl(bench):
    # Its driver takes memory in larger pieces for itself, so it may be refused before the last 2 MiB are gone.
    return _limit(bench, [bench.builder.program("ocl_limit.c"), "limit"], opencl_environment(), exact=False)


@steer(limit_s=60)
def gate_memory_vulkan(bench):
    return _limit(bench, [bench.builder.program("vulkan_limit.c"), "limit"], vulkan_environment(), exact=False)


@steer(limit_s=120)
def gate_upgrade(bench):
    """The daemon is replaced, twice, under 16 programs that allocate and free behind the kernel gate: all go on."""
    argv = [bench.builder.program("raw_memory.cpp"), driver_path(bench), 256 * MIB, "churn"]
    names = [f"hw-gate-{number}" for number in range(16)]
    for name in names:
        bench.vgpu(name, memory_limit=bench.memory)
    programs = [bench.start_inside(argv, vgpu=name, enforce="kernel") for name in names]

    def rounds():
        return [program.transcript[-1].split() if program.transcript else [] for program in programs]

    def all_go_on(limit_s):
        """Each finishes two rounds more, so one that it began after this call; the seconds that took."""
        begin, before = time.monotonic(), [int(words[1]) if words[:1] == ["round"] else 0 for words in rounds()]

        def done():
            now = rounds()
            expect(all(words[:1] != ["less"] for words in now), f"a program was refused: {now}")
            return all(words[:1] == ["round"] and int(words[1]) >= count + 2 for words, count in zip(now, before))
        bench.until(done, "all to go on", limit_s)
        return time.monotonic() - begin

    all_go_on(40)
    config, took = bench.tessera.config, []
    for end in (bench.tessera.kill, bench.tessera.stop):
        begin = time.monotonic()
        end()
        bench.tessera.start(config=config)
        all_go_on(20)
        took.append(time.monotonic() - begin)
        managed = {process["pid"] for name in names for process in bench.tessera.of_vgpu(name)}
        expect(len(managed) == len(names), f"the next daemon knows {len(managed)} of them")
    for program in programs:
        expect(program.alive(), f"a program has ended: {last_words(program.finished())}")
        program.kill()
    return f"16 programs; killed and replaced: all had finished two more rounds after {took[0]:.2f} s; stopped: {took[1]:.2f} s"


@steer(limit_s=60)
def gate_cost(bench):
    """A control of the resource manager that does nothing, and a client made and freed, with the gate and without."""
    program = bench.builder.program("ioctl_cost.cpp")
    sides = {"native": [], "gate": []}
    for number in range(6):  # in turn
        side = "native" if number % 2 == 0 else "gate"
        done = bench.native([program, 20000]) if side == "native" else run_ok(bench, [program, 20000], enforce="kernel")
        if done.status == 77:
            raise Skipped(done.out.strip()[-100:])
        sides[side].append(must_succeed(done, "ioctl_cost").values())

    def us(side, name):
        return sorted(values[name] for values in sides[side])[1] / 1e3

    added = {name: us("gate", f"{name}_p50") - us("native", f"{name}_p50") for name in ("control", "alloc_free")}
    figure = (f"a control {added['control']:+.1f} us on {us('native', 'control_p50'):.1f} "
              f"(p99 {us('gate', 'control_p99'):.1f} on {us('native', 'control_p99'):.1f}); "
              f"alloc and free {added['alloc_free']:+.1f} us on {us('native', 'alloc_free_p50'):.1f}")
    expect(added["control"] <= MOST_ADDED_US, figure)
    return figure, sides
