"""Builds the programs of tests/hw/programs, each once, when a check first asks for it."""
import os
import pathlib
import re
import shutil
import threading

from harness import processes
from harness.checks import Failed, Skipped

HERE = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = HERE / "programs"
SHARED = PROGRAMS / "shared"
SOURCES = HERE.parent.parent / "src"  # whose layouts of the driver's calls the .cpp programs use
DEFAULT_ARCH = "sm_90"  # Hopper, where there is no GPU to ask


def find_nvcc():
    root = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which("nvcc") or shutil.which("nvcc", path=f"{root}/bin")


def _arch_of_gpu():
    smi = shutil.which("nvidia-smi")
    asked = processes.run([smi, "--query-gpu=compute_cap", "--format=csv,noheader"], 20) if smi else None
    found = re.match(r"(\d+)\.(\d+)", asked.out) if asked and asked.status == 0 else None
    return f"sm_{found[1]}{found[2]}" if found else DEFAULT_ARCH


def _cuda_libraries(nvcc):
    """The toolkit's library folder, by where its linker stub of the driver is."""
    root = pathlib.Path(nvcc).resolve().parent.parent
    places = [root / "lib64", root / "targets" / "x86_64-linux" / "lib", root / "lib"]
    return next((p for p in places if (p / "stubs" / "libcuda.so").exists()), places[0])


def source_path(name):
    """Where a source file is: each name is in one folder of programs/ only."""
    path, = PROGRAMS.glob(f"*/{name}")
    return path


class Builder:
    def __init__(self, folder, on_real_gpu):
        self._folder = pathlib.Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._arch = _arch_of_gpu() if on_real_gpu else DEFAULT_ARCH
        self._nvcc = find_nvcc()
        self._lock = threading.Lock()
        self._locks = {}

    def program(self, source, *flags):
        """The executable of a source file, built with `flags`. Programs of the runtime are .cu; those of the driver API
        (.cc) get none of cudart and find kernels.ptx beside them; those that open what they need themselves (.cpp, .c)
        are linked with nothing of CUDA."""
        name = "-".join([source.split(".")[0], *(f.strip("-").replace("=", "-").replace(" ", "-") for f in flags)])
        target = self._folder / name
        if source.endswith((".cc", ".cpp")):
            self._once(self._folder / "kernels.ptx", self._ptx)
        self._once(target, self._compile, source, flags)
        return target

    def all(self):
        """Every program, with the flags that the checks use."""
        sources = sorted(path for ending in ("cc", "cpp", "c") for path in PROGRAMS.glob(f"*/*.{ending}"))
        built = [self.program(source.name) for source in sources]
        for source in sorted(PROGRAMS.glob("*/*.cu")):
            built += [self.program(source.name, f"-cudart={kind}") for kind in ("static", "shared")]
        built.append(self.program("threads.cu", "-cudart=shared", "--default-stream=per-thread"))
        return built

    def _once(self, target, make, *arguments):
        with self._lock:
            lock = self._locks.setdefault(target, threading.Lock())
        with lock:
            if not target.exists():
                make(target, *arguments)

    def _run(self, argv):
        done = processes.run(argv, 180)
        if done.status != 0:
            raise Failed(f"does not build: {(done.err or done.out).strip()[-300:]}")

    def _need_nvcc(self):
        if not self._nvcc:
            raise Skipped("no nvcc")
        return pathlib.Path(self._nvcc)

    def _ptx(self, target):
        # The oldest target that nvcc 13 has: the driver, like the soft GPU, compiles it for what it is.
        half = target.with_suffix(".new")
        self._run([self._need_nvcc(), "-x", "cu", "-ptx", "-arch=compute_75", "-o", half, SHARED / "kernels.cuh"])
        half.rename(target)

    def _compile(self, target, source, flags):
        half = target.with_suffix(".new")
        path = source_path(source)
        if source.endswith(".c"):
            self._run([shutil.which("cc") or "gcc", "-O2", "-pthread", f"-I{SHARED}", "-o", half, path, "-ldl"])
        elif source.endswith(".cpp"):
            # Exports its symbols, so that it may stand in front of the C library's.
            toolkit = self._need_nvcc().resolve().parent.parent / "include"
            self._run([shutil.which("c++") or "g++", "-O2", "-std=c++20", "-pthread", "-rdynamic", f"-I{SHARED}",
                       f"-I{SOURCES}", f"-I{toolkit}", *flags, "-o", half, path, "-ldl"])
        else:
            nvcc = self._need_nvcc()
            lib = _cuda_libraries(nvcc)
            kind = ["-cudart=none"] if source.endswith(".cc") else [f"-arch={self._arch}"]
            self._run([nvcc, "-O2", "-std=c++17", f"-I{SHARED}", *kind, *flags, "-o", half, path, f"-L{lib}/stubs",
                       "-lcuda", "-Xlinker", f"-rpath={lib}"])
        half.rename(target)
