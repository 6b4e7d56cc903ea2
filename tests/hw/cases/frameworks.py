"""Frameworks as people use them: the numbers must be the same with and without Tessera."""
import sys

from harness.bench import GIB, MIB, compare
from harness.build import HERE
from harness.checks import Skipped, add, expect
from harness import processes

FOLDER = HERE / "frameworks"
MEMORY = 10 * GIB  # as many at once as there are workers must fit the GPU
DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TORCHINDUCTOR_DETERMINISTIC": "1", "HF_HUB_OFFLINE": "1",
                  "TOKENIZERS_PARALLELISM": "false"}


def need(module):
    found = processes.run([sys.executable, "-c", f"import importlib.util, sys; "
                           f"sys.exit(importlib.util.find_spec({module!r}) is None)"], 30)
    if found.status != 0:
        raise Skipped(f"no {module}")


def both(bench, script, arguments, native_arguments=None, env=None, native_env=None):
    """(native, inside, what compare says). Each side compiles for itself: no cache of the other's results."""
    finished = []
    for side in ("native", "inside"):
        given = native_arguments if side == "native" and native_arguments is not None else arguments
        argv = [sys.executable, FOLDER / script, *given]
        caches = bench.folder / f"{script}-{'-'.join(map(str, given))}-{side}".replace("/", "_")
        own = {**DETERMINISTIC, **(env or {}), "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
               "TRITON_CACHE_DIR": str(caches / "triton"), "CUPY_CACHE_DIR": str(caches / "cupy")}
        if side == "native":
            finished.append(bench.native(argv, {**own, **(native_env or {})}))
        else:
            finished.append(bench.inside(argv, own, memory=MEMORY))
    native, inside = finished
    return native, inside, compare(native, inside)


def _declare(name, script, *arguments, module="torch", env=None, limit_s=150, judge=None, **sides):
    def body(bench):
        need(module)
        native, inside, same = both(bench, script, arguments, env=env, **sides)
        said = judge(inside.values()) if judge else ""
        return f"{same}{said} ({native.seconds:.0f} s without, {inside.seconds:.0f} s with)"

    add("frameworks", name, body, limit_s)


def _judge_memory(values):
    for way in ("mem_get_info_total", "device_total", "nvml_total"):
        if way in values:
            expect(values[way] == MEMORY, f"{way} is {values[way]}, the limit {MEMORY}")
    expect(MEMORY * 0.85 <= values["got"] <= MEMORY, f"got {values['got']} of {MEMORY} before the error")
    return f"; got {values['got'] / MIB:.0f} of {MEMORY // MIB} MiB before OutOfMemoryError"


def _judge_jax(values):
    share = values["bytes_limit"] / MEMORY
    expect(0.70 <= share <= 0.76, f"JAX took {share:.0%} of the vGPU's memory")
    return f"; preallocated {share:.0%} of the limit"


def alloc(setting):
    # The first name is older, the second what PyTorch calls it now.
    return {"PYTORCH_CUDA_ALLOC_CONF": setting, "PYTORCH_ALLOC_CONF": setting}


_declare("torch_eager", "torch_train.py", "eager")
_declare("torch_graphs", "torch_train.py", "graph")
_declare("torch_compile", "torch_train.py", "compile", limit_s=200)
_declare("torch_expandable", "torch_train.py", "eager", env=alloc("expandable_segments:True"))
_declare("torch_async_alloc", "torch_train.py", "eager", env=alloc("backend:cudaMallocAsync"))
_declare("torch_memory", "torch_memory.py", "all", native_arguments=[str(2 * GIB)], judge=_judge_memory)
_declare("torch_memory_expandable", "torch_memory.py", "all", native_arguments=[str(2 * GIB)],
         env=alloc("expandable_segments:True"), judge=_judge_memory)
_declare("loader_fork", "torch_loader.py", "fork")
_declare("loader_spawn", "torch_loader.py", "spawn")
_declare("generate", "generate.py", module="transformers")
# Without Tessera JAX would take three quarters of a GPU that others use at the moment.
_declare("jax_train", "jax_train.py", module="jax", native_env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
         judge=_judge_jax)
_declare("cupy_math", "cupy_math.py", module="cupy")
