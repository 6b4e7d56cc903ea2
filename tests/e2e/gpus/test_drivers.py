"""Other versions of NVIDIA's driver: what the daemon, `tessera doctor` and a program in a vGPU do on each. The drivers are
made up, with the exports of those versions (tests/programs/driver_versions); their GPU is a soft one."""
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest
import uuid

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BIN, DEADLINE_S, LIB, MIB, OUT_OF_MEMORY, TesseraTest, wait_for  # noqa: E402

DRIVERS = LIB / "tests" / "drivers"
VERSIONS = {535: "535.104.05", 550: "550.90.07", 570: "570.124.06", 580: "580.159.04", 590: "590.48.01"}
CUDA = {535: 12020, 550: 12040, 570: 12080, 580: 13000, 590: 13010}
TELLS_ENDS = 555  # the first with cuCtxRecordEvent
KNOWN = 580       # the newest whose functions the shim knows

# Functions of each kind that the shim treats in its own way, and the first driver that has them.
SINCE = {"cuLaunchKernel": 535, "cuMemAlloc": 535, "cuMulticastBindMem": 535, "cuMemPrefetchAsync": 535, "cuFuncGetParamInfo": 550,
         "cuGreenCtxCreate": 550, "cuCtxRecordEvent": 570, "cuMemcpyBatchAsync": 570, "cuCheckpointProcessLock": 570,
         "cuMemSetMemPool": 580, "cuMemDiscardBatchAsync": 580, "cuDevSmResourceSplit": 590, "cuGraphGetId": 590}

UUID_OF = """
import ctypes, sys
driver, uuid = ctypes.CDLL(sys.argv[1]), (ctypes.c_ubyte * 16)()
assert driver.cuInit(0) == 0 and driver.cuDeviceGetUuid_v2(uuid, 0) == 0
print(bytes(uuid).hex())
"""


class Version(TesseraTest):
    MAX = 1200 * MIB
    LIMIT = 768 * MIB   # with a context of 530 MiB, as the daemon takes it to be

    def start(self, major):
        self.driver = DRIVERS / str(major)
        library = self.driver / "libcuda.so.1"
        self.env.update(TESSERA_SOFT="1x4GiB,context=16MiB", TESSERA_SOFT_NAME=uuid.uuid4().hex[:12],
                        TESSERA_REAL_NVML=str(self.driver / "libnvidia-ml.so.1"), TESSERA_REAL_LIBCUDA=str(library))
        self.addCleanup(self.forget_gpu, self.env["TESSERA_SOFT_NAME"])
        told = subprocess.run([sys.executable, "-c", UUID_OF, library], env=self.env, capture_output=True, text=True)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.env["FAKE_NVML_UUID"] = f"GPU-{uuid.UUID(told.stdout.strip())}"
        self.start_daemon()

    @staticmethod
    def forget_gpu(name):
        for left in pathlib.Path("/dev/shm").glob(f"*{name}*"):
            left.unlink()

    def check(self, major):
        self.start(major)
        old = major < TELLS_ENDS
        with self.subTest("the daemon"):
            gpu, = self.json("gpus")["gpus"]
            self.assertEqual((gpu["uuid"], gpu["soft"], gpu["control"]["by"]), (self.env["FAKE_NVML_UUID"], False, "gate"))
            self.assertEqual(f"driver {VERSIONS[major]} does not report the end of work" in self.daemon_log(), old)
        self.create("team", memory_limit=self.LIMIT, memory_max=self.MAX)
        shell = self.shell_with_context("team")
        with self.subTest("memory"):
            self.assertEqual(shell.ok("info")["device_total"], self.MAX)
            inside = shell.filled(128 * MIB, 5)
            beyond = shell.filled(256 * MIB, 6)   # beyond the limit: a part lies in host memory
            self.assertEqual(shell.ask("allocate", "alloc", 512 * MIB)["result"], OUT_OF_MEMORY)
            self.assertEqual(self.vgpu("team")["oom_events"], 1)
        with self.subTest("work"):
            shell.ok("launch", 3)
            shell.ok("sync")
            shell.ok("compare", inside, 5)
            shell.ok("compare", beyond, 6)
        with self.subTest("memory moves"):
            self.tessera("evict", "team")
            self.assertGreater(self.vgpu("team")["memory_swap_current_bytes"], 256 * MIB)
            shell.ok("compare", inside, 5)
            shell.ok("compare", beyond, 6)
        with self.subTest("NVML"):
            done = self.run_in("team", BIN / "nvml_view")
            seen = json.loads(done.communicate(timeout=DEADLINE_S)[0])
            self.assertEqual((seen["total"], seen["total_v2"], seen["pids"]), (self.MAX, self.MAX, [shell.pid]))
            self.assertEqual((seen["used"], seen["used_v2"]), (seen["total"] - seen["free"],) * 2)
        with self.subTest("look-ups"):
            found = shell.ok("lookup", CUDA[major], 0, *SINCE)
            self.assertEqual({name for name in SINCE if found[name]}, {name for name, since in SINCE.items() if since <= major})
            unknown = {name for name, since in SINCE.items() if KNOWN < since <= major}
            for name in unknown:
                wait_for("it to be named", lambda: f"asked the driver for {name}, which this version" in self.daemon_log())
            self.assertEqual(self.daemon_log().count("asked the driver for"), len(unknown))
        shell.child.stdin.close()
        shell.child.stdin = None
        self.assertEqual(shell.child.wait(DEADLINE_S), 0)
        with self.subTest("what the program says"):
            said = shell.child.stderr.read()
            once = ("tessera: this driver cannot tell when work has ended (cuCtxRecordEvent, error 303), so this program's "
                    "time is limited only coarsely; use driver 555 or newer\n")
            self.assertEqual(said, once if old else "")
        wait_for("its memory to be free", lambda: self.current("team") == 0)


for each in VERSIONS:
    setattr(Version, f"test_{each}", lambda self, major=each: self.check(major))


# /run/opengl-driver/lib is one of the folders where drivers are looked for.
PLACE = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /proc/driver
mkdir /proc/driver/nvidia
echo made up > /proc/driver/nvidia/version
mount -t tmpfs tmpfs /run
mkdir -p /run/opengl-driver/lib
mount --bind "$1" /run/opengl-driver/lib
shift
exec "$@"
"""


@unittest.skipUnless(os.getuid() == 0, "mounts need root")
class Doctor(TesseraTest):
    def findings(self, major):
        """The first line of each finding, by its subject."""
        done = subprocess.run(["unshare", "--mount", "sh", "-c", PLACE, "sh", DRIVERS / str(major), BIN / "tessera", "doctor"],
                              env=self.env, capture_output=True, text=True, timeout=DEADLINE_S)
        if "unshare" in done.stderr or "mount:" in done.stderr:
            self.skipTest(f"no mount namespace can be had here: {done.stderr.strip()}")
        lines = re.findall(r"^(ok|warn|fail) +(\S+(?: \S+)*)  +(.*)$", done.stdout, re.MULTILINE)
        return {subject: (verdict, text) for verdict, subject, text in lines}

    def test_it_names_what_a_driver_lacks_and_what_is_new_in_it(self):
        for major, version in VERSIONS.items():
            with self.subTest(version):
                findings = self.findings(major)
                verdict, text = findings["driver"]
                self.assertIn(f"version {version}, /run/opengl-driver/lib/libnvidia-ml.so.1", text)
                self.assertEqual((verdict, "time limits hold only coarsely" in text),
                                 ("warn", True) if major < TELLS_ENDS else ("ok", False))
                verdict, text = findings["functions"]
                if major <= KNOWN:
                    self.assertEqual((verdict, text), ("ok", "the shim knows all functions of the driver"))
                else:
                    self.assertEqual(verdict, "warn")
                    self.assertRegex(text, "calls of cuDevSmResourceSplit, .*cuMulticastBindMem_v2.* pass without gate and ledger")
                self.assertEqual(findings["GPU 0"], ("ok", "Made-up GPU"))


if __name__ == "__main__":
    unittest.main()
