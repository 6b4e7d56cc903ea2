"""The folder of `make dist` in the root file systems of other Debian releases: Debian 11 has glibc 2.31, as Ubuntu 20.04.

Not part of `make test`: the systems are fetched from Debian's mirror (mmdebstrap) when build/systems has none. `make systems`
runs it.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
SOURCE = pathlib.Path(__file__).resolve().parents[2]
os.environ.setdefault("TESSERA_BUILD", str(SOURCE / "dist"))
from harness import Lines, wait_for  # noqa: E402
from machine import Machine, why_not  # noqa: E402

MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
DIST = SOURCE / "dist"
SYSTEMS = {"bullseye": "2.31", "bookworm": "2.36", "trixie": "2.41"}  # and their C libraries
PLACE = "/opt/anywhere/tessera"
RUN_DIR = "/run/tessera"


def setUpModule():
    if reason := why_not():
        raise unittest.SkipTest(reason)
    if not (DIST / "bin/tesserad").exists():
        raise AssertionError(f"no {DIST}: `make dist` makes it")


def system(suite):
    """The folder of its files."""
    path = SOURCE / "build/systems" / suite
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as made:
            subprocess.run(["mmdebstrap", "--quiet", "--variant=essential", suite, f"{made}/root", MIRROR], check=True)
            os.rename(f"{made}/root", path)
    return path


class OnSystem:
    """One test for each thing that the folder can do; `suite` is the system's name."""

    @classmethod
    def setUpClass(cls):
        cls.machine = Machine(system(cls.suite))
        cls.addClassCleanup(cls.machine.close)
        place = cls.machine.path / PLACE.lstrip("/")
        place.mkdir(parents=True)
        cls.machine.mount("--bind", DIST, place)

    def setUp(self):
        name = uuid.uuid4().hex[:12]
        self.env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "TESSERA_SOFT_NAME": name, "TESSERA_RUN_DIR": RUN_DIR}
        self.addCleanup(lambda: [path.unlink() for path in pathlib.Path("/dev/shm").glob(f"*{name}*")])
        self.addCleanup(shutil.rmtree, self.machine.path / RUN_DIR.lstrip("/"), ignore_errors=True)

    def run_in(self, *words, **options):
        return self.machine.run(*words, env=self.env, **options)

    def tessera(self, *words, **options):
        return self.run_in(f"{PLACE}/bin/tessera", *words, **options)

    def start(self, *words):
        """A process that is killed at the end, if it is there."""
        child = subprocess.Popen(self.machine.command(*words), env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        return child

    def start_daemon(self, spec):
        daemon = self.start(f"{PLACE}/bin/tesserad", f"--soft={spec}", "--run-dir", RUN_DIR)
        self.addCleanup(self.end, daemon)
        wait_for("the daemon", lambda: daemon.poll() is not None or self.tessera("gpus", check=False).returncode == 0)
        self.assertIsNone(daemon.poll(), "tesserad ended")
        return daemon

    def end(self, daemon):
        """It ends by itself, without a fault."""
        daemon.send_signal(signal.SIGTERM)
        said = daemon.communicate(timeout=60)[1]
        self.assertEqual(daemon.returncode, 0, said)

    def start_tenant(self, name, *words):
        return self.start(f"{PLACE}/bin/tessera", "run", "--name", name, *words, "--", f"{PLACE}/lib/tessera/tessera-tenant",
                          "--seconds", "300", "--memory", "64M")

    def finish(self, tenant):
        """The kernels that it completed, all of which were verified."""
        tenant.send_signal(signal.SIGTERM)
        out, said = tenant.communicate(timeout=60)
        done = json.loads(out.splitlines()[-1])
        self.assertEqual((tenant.returncode, done["event"], done["verified"]), (0, "done", True), said)
        return done["kernels"]

    def test_it_is_the_system_that_it_should_be(self):
        self.assertIn(f" {SYSTEMS[self.suite]}\n", self.run_in("ldd", "--version").stdout)

    def test_every_file_finds_all_it_asks_for(self):
        files = [path for path in DIST.rglob("*") if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF"]
        self.assertGreater(len(files), 50)
        for path in files:
            shown = self.run_in("ldd", "-r", f"{PLACE}/{path.relative_to(DIST)}")
            faults = [line for line in (shown.stdout + shown.stderr).splitlines() if re.search("not found|undefined|no version", line)]
            self.assertEqual(faults, [], path)

    def test_two_programs_share_a_gpu(self):
        self.start_daemon("1x4GiB")
        tenants = {name: self.start_tenant(name, "--memory", "1G", "--compute", "30") for name in ("first", "second")}
        for tenant in tenants.values():
            self.assertEqual(json.loads(Lines(tenant).next())["event"], "ready")
        shown = json.loads(self.tessera("ps", "--json").stdout)["processes"]
        self.assertEqual({process["vgpu"] for process in shown if process["managed"]}, set(tenants))
        self.assertIn("first", self.tessera("vgpu", "ls").stdout)
        self.tessera("vgpu", "set", "first", "--compute", "50")
        self.assertIn("Tessera Soft GPU", self.tessera("gpus").stdout)
        for tenant in tenants.values():
            self.assertGreater(self.finish(tenant), 0)

    def test_memory_moves_to_the_host_and_back(self):
        self.start_daemon("1x1GiB,context=16MiB")
        tenants = [self.start(f"{PLACE}/bin/tessera", "run", "--name", name, "--", f"{PLACE}/lib/tessera/tessera-tenant", "--seconds",
                              "300", "--memory", "600M") for name in ("first", "second")]
        wait_for("both", lambda: len(json.loads(self.tessera("ps", "--json").stdout)["processes"]) == 2)
        moved = wait_for("memory in the host", lambda: [process for process in json.loads(self.tessera("ps", "--json").stdout)["processes"]
                                                       if process["memory_swapped_bytes"] > 0])
        self.assertTrue(moved)
        for tenant in tenants:
            self.finish(tenant)

    def test_a_space_with_its_mps_server(self):
        self.start_daemon("1x4GiB")
        tenant = self.start_tenant("member", "--space", "together", "--sm", "50")
        wait_for("the space", lambda: '"state": "ready"' in self.tessera("space", "ls", "--json").stdout)
        self.assertEqual(json.loads(Lines(tenant).next())["event"], "ready")
        self.finish(tenant)

    def test_run_starts_a_daemon_of_its_own(self):
        ran = self.tessera("run", "--soft", "--memory", "1G", "--", f"{PLACE}/lib/tessera/tessera-tenant", "--seconds", "0.2")
        self.assertIn('"verified":true', ran.stdout)
        pid = (self.machine.path / RUN_DIR.lstrip("/") / "tesserad.lock").read_text().strip()
        wait_for("the daemon's end", lambda: not os.path.exists(f"/proc/{pid}"))

    def test_the_doctor_sees_what_is_there(self):
        said = self.tessera("doctor", "--soft").stdout
        self.assertIn("a CUDA program under the shim finds the driver and computes right results", said)
        self.assertNotIn("fail", said)

    def test_a_program_behind_the_kernel_gate(self):
        self.start_daemon("1x4GiB")
        ran = self.tessera("run", "--enforce", "kernel", "--memory", "1G", "--", f"{PLACE}/lib/tessera/tessera-tenant", "--seconds", "0.2",
                           check=False)
        if "listener" in ran.stderr:
            self.skipTest(ran.stderr)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn('"verified":true', ran.stdout)

    def test_the_driver_for_kubernetes_serves_its_sockets(self):
        self.start_daemon("1x4GiB")
        for name in ("ca", "token"):
            (self.machine.path / "tmp" / name).write_text("none\n")
        (self.machine.path / "var/lib/kubelet/plugins_registry").mkdir(parents=True)
        driver = self.start(f"{PLACE}/bin/tessera-kubelet", "--node-name", "node", "--api-server", "https://127.0.0.1:9", "--ca-file", "/tmp/ca",
                            "--token-file", "/tmp/token")
        sockets = self.machine.path / "var/lib/kubelet/plugins_registry"
        wait_for("its socket", lambda: driver.poll() is not None or any(sockets.glob("gpu.tessera.dev*")))
        driver.send_signal(signal.SIGTERM)
        said = driver.communicate(timeout=60)[1]
        self.assertIn("serving node node", said)
        self.assertEqual(driver.returncode, 0, said)


def add_tests():
    for suite in SYSTEMS:
        globals()[suite.capitalize()] = type(suite.capitalize(), (OnSystem, unittest.TestCase), {"suite": suite})


add_tests()

if __name__ == "__main__":
    unittest.main()
