"""The shim is what every way of loading the driver gives, and it costs nothing where it is not used."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import BIN, LIB, SHIM, SOFT

NVML = LIB / "tessera" / "libnvidia-ml.so.1"
SYMBOLS = pathlib.Path(__file__).resolve().parents[2] / "src" / "cuda"


def run(*command, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
    return subprocess.run([str(word) for word in command], env={**clean, **env}, capture_output=True, text=True, timeout=30)


class Loading(unittest.TestCase):
    def load(self, how, what, **env):
        return run(BIN / "load_driver", how, what, LD_PRELOAD=str(SHIM), **env)

    def test_soname_finds_the_preloaded_shim(self):
        self.assertIn(f"library {SHIM}", self.load("soname", "libcuda.so.1", TESSERA_REAL_LIBCUDA=str(SOFT)).stdout)

    def test_absolute_path_and_unversioned_name_find_the_shim(self):
        for name in (str(SOFT), "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "libcuda.so"):
            self.assertIn(f"library {SHIM}", self.load("soname", name, TESSERA_REAL_LIBCUDA=str(SOFT)).stdout, name)

    def test_deepbind_finds_the_shim(self):
        done = self.load("deepbind", LIB / "tests" / "deepbind_plugin.so", TESSERA_REAL_LIBCUDA=str(SOFT))
        self.assertIn(f"library {SHIM}", done.stdout)

    def test_library_path_is_enough(self):
        done = run(BIN / "load_driver", "soname", "libcuda.so.1", LD_LIBRARY_PATH=str(SHIM.parent), TESSERA_REAL_LIBCUDA=str(SOFT))
        self.assertIn(f"library {SHIM}", done.stdout)

    def test_other_libraries_are_left_alone(self):
        done = self.load("soname", "libm.so.6")
        self.assertIn("library none", done.stdout)  # no cuInit in there

    def test_a_newer_drivers_symbol_resolves(self):
        env = {"TESSERA_REAL_LIBCUDA": str(LIB / "tests" / "newer_driver.so")}
        self.assertIn("symbol found", self.load("symbol", "cuFrobnicate", **env).stdout)
        self.assertIn("symbol missing", self.load("symbol", "cuNobodyHasThis", **env).stdout)

    def test_no_driver_is_said_once_and_is_an_error_value(self):
        done = self.load("soname", "libcuda.so.1", TESSERA_REAL_LIBCUDA="/nonexistent/libcuda.so.1")
        self.assertIn("cuInit 303", done.stdout)
        self.assertEqual(done.stderr.count("tessera: "), 1)
        self.assertIn("/nonexistent/libcuda.so.1", done.stderr)

    def test_a_library_that_is_no_driver_is_refused(self):
        done = self.load("soname", "libcuda.so.1", TESSERA_REAL_LIBCUDA=str(LIB / "tests" / "deepbind_plugin.so"))
        self.assertIn("cuInit 303", done.stdout)
        self.assertIn("is not an NVIDIA driver library", done.stderr)

    def test_the_shim_as_its_own_driver_is_refused(self):
        done = self.load("soname", "libcuda.so.1", TESSERA_REAL_LIBCUDA=str(SHIM))
        self.assertIn("cuInit 303", done.stdout)
        self.assertIn("is Tessera's shim itself", done.stderr)

    def test_a_copy_of_the_shim_as_driver_is_refused(self):
        with tempfile.TemporaryDirectory() as directory:
            copy = shutil.copy(SHIM, directory)
            done = self.load("soname", "libcuda.so.1", TESSERA_REAL_LIBCUDA=copy)
        self.assertIn("cuInit 303", done.stdout)

    def test_unknown_to_programs_without_cuda(self):
        done = run("/bin/sh", "-c", "echo hello", LD_PRELOAD=str(SHIM))
        self.assertEqual((done.stdout, done.stderr), ("hello\n", ""))


class Binary(unittest.TestCase):
    def exported(self, library):
        lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
        return {line.split()[-1].split("@")[0] for line in lines.splitlines()}

    def test_every_symbol_of_the_driver_and_little_else(self):
        for library, names, own in ((SHIM, "libcuda", {"dlopen", "dlsym", "ioctl", "tessera_shim_version"}),
                                    (NVML, "libnvidia-ml", {"tessera_shim_version"})):
            wanted = set((SYMBOLS / f"{names}.symbols").read_text().split())
            self.assertEqual(self.exported(library), wanted | own)

    def test_nothing_newer_than_glibc_2_28_and_no_cxx_runtime(self):
        for library in (SHIM, NVML):
            dump = subprocess.run([os.environ.get("OBJDUMP", "objdump"), "-T", "-p", library], capture_output=True, text=True, check=True).stdout
            versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", dump)}
            self.assertLessEqual(max(versions), (2, 28))
            self.assertNotIn("libstdc++", dump)
            self.assertNotIn("libgcc_s", dump)


if __name__ == "__main__":
    unittest.main()
