"""Tools of the machine inside a vGPU: nvidia-smi, OpenCL, a Python that never touches CUDA."""
import shutil
import sys

from harness.bench import GIB, MIB, compare, must_succeed
from harness.checks import Skipped, add, check, expect


@check("tools")
def nvidia_smi(bench):
    """Shows the limit as the GPU's memory and only the vGPU's own processes."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        raise Skipped("no nvidia-smi")
    hold = bench.builder.program("hold.cc")
    bench.vgpu("hw-smi", memory_limit=bench.memory)
    mine = bench.start_inside([hold, 2 * GIB], vgpu="hw-smi")
    other = bench.start_inside([hold, 1 * GIB], memory=bench.memory)
    outside = bench.start_native([hold, 1 * GIB])
    for program in (mine, other, outside):
        bench.line(program)

    def ask(query):
        done = must_succeed(bench.inside([smi, query, "--format=csv,noheader,nounits"], vgpu="hw-smi"), "nvidia-smi")
        return [[field.strip() for field in line.split(",")] for line in done.out.splitlines() if line.strip()]

    bench.inside([smi], vgpu="hw-smi")  # for the log
    total, used, free = map(int, ask("--query-gpu=memory.total,memory.used,memory.free")[0])
    expect(total == bench.memory // MIB, f"total {total} MiB, the limit {bench.memory // MIB}")
    expect(2048 <= used < 4096 and used + free <= total, f"used {used}, free {free} of {total} MiB")
    shown = [int(row[0]) for row in ask("--query-compute-apps=pid,used_memory")]
    own = bench.tessera.vgpu("hw-smi")["processes"]
    expect(set(shown) <= set(own) and len(shown) == 1, f"it shows processes {shown}; the vGPU has {own}")
    return f"{total} MiB in all, {used} used, 1 process of 3"


@check("tools")
def opencl(bench):
    program = bench.builder.program("ocl.c")
    # Loaders look in /etc/OpenCL/vendors; this names the driver to them where that folder is empty.
    env = {"OCL_ICD_FILENAMES": "libnvidia-opencl.so.1"}
    native, inside = bench.native([program], env), bench.inside([program], env, memory=bench.memory)
    return f"{compare(native, inside)}: {native.lines()[0]}"


def _under(tool, *flags):
    """A check that a program under one of NVIDIA's tools gives what it gives there without Tessera. The tools put
    themselves into the driver (CUDA_INJECTION64_PATH, cuGetExportTable), or stop it at functions that it exports to
    debuggers; the shim must be in the way of neither."""

    def body(bench):
        path = shutil.which(tool) or shutil.which(tool, path="/usr/local/cuda/bin")
        if not path:
            raise Skipped(f"no {tool}")
        program = bench.builder.program("graphs.cu", "-cudart=static")
        argv = [path, *(str(flag).replace("@OUT", str(program) + "-" + tool) for flag in flags), program]
        native, inside = bench.native(argv), bench.inside(argv, memory=bench.memory)
        must_succeed(native, f"{tool} without Tessera")
        must_succeed(inside, f"{tool} with Tessera")
        expected = must_succeed(bench.native([program]), "the program alone").lines()
        for side, done in (("without", native), ("with", inside)):
            missing = [line for line in expected if line not in done.out]
            expect(not missing, f"{side} Tessera the program under {tool} did not print {missing[:1]}")
        told = [line for line in inside.out.splitlines() if "ERROR SUMMARY" in line or "rror" in line]
        natives = [line for line in native.out.splitlines() if "ERROR SUMMARY" in line or "rror" in line]
        expect(len(told) == len(natives), f"{tool} says {told[:2]}, without Tessera {natives[:2]}")
        return f"{len(expected)} lines the same; {told[-1] if told else 'no errors'}"

    return body


add("tools", "memcheck", _under("compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "3"))
add("tools", "racecheck", _under("compute-sanitizer", "--tool", "racecheck", "--error-exitcode", "3"))
add("tools", "cuda_gdb", _under("cuda-gdb", "-batch", "-ex", "run", "-ex", "info cuda devices", "--args"))
add("tools", "nsys", _under("nsys", "profile", "--trace=cuda", "--force-overwrite=true", "-o", "@OUT"))
add("tools", "ncu", _under("ncu", "--launch-count", "3"))


_START_MANY = """
import subprocess, sys, time
times = []
for _ in range(60):
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-S", "-c", "pass"], check=True)
    times.append(time.perf_counter() - begin)
times.sort()
print(times[len(times) // 2] * 1e3)
"""


@check("tools", alone=True, soft=True)
def python_start(bench):
    """A program that never touches CUDA pays for the preloaded library alone: under 1 ms."""
    python = shutil.which("python3") or sys.executable
    rounds = []
    for _ in range(3):
        native = must_succeed(bench.native([python, "-c", _START_MANY]), "python without Tessera")
        inside = must_succeed(bench.inside([python, "-c", _START_MANY]), "python with Tessera")
        rounds.append((float(inside.out) - float(native.out), float(native.out)))
    added, base = sorted(rounds)[1]
    expect(added < 1.0, f"{added:.2f} ms more than {base:.2f} ms")
    return f"{added:+.2f} ms on {base:.2f} ms (median of 3 x 60 starts)", rounds
