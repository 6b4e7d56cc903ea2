"""tesserad and tessera-kubelet in containers, as the manifests have them, and a container beside them that has a claim."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import DEADLINE_S, SoftGpuTest, Tenant, wait_for  # noqa: E402
import manifests  # noqa: E402
import pods  # noqa: E402
from api_server import ApiServer  # noqa: E402
from kubelet import Kubelet  # noqa: E402
from rights import Rights  # noqa: E402
from scheduler import allocate, claim_of  # noqa: E402

DRIVER, NODE = "gpu.tessera.dev", "worker"
LIBRARIES = pathlib.Path("/var/lib/kubelet/plugins", DRIVER, "libraries")


def setUpModule():
    if why := pods.why_not():
        raise unittest.SkipTest(why)


class ContainersTenant(Tenant):
    """Its own process gets the signals: podman forwards them from some time after its first words only."""

    def __init__(self, child, engine, name):
        super().__init__(child)
        self.engine, self.name = engine, name

    def send_signal(self, number):
        os.kill(self.engine.pid(self.name), number)


class InContainers(SoftGpuTest):
    def setUp(self):
        super().setUp()
        objects = manifests.build("soft")
        self.pod = manifests.one(objects, "DaemonSet")["spec"]["template"]["spec"]
        self.server = ApiServer(self.run_dir / "api").start()
        self.addCleanup(self.server.close)
        self.server.rights = Rights(objects)
        self.server.create("nodes", {"metadata": {"name": NODE}})
        self.engine = pods.Engine(self.run_dir / "engine")
        self.pids = {}  # of the containers' own processes
        self.addCleanup(self.engine.close)
        self.engine.config = {each["metadata"]["name"]: each["data"] for each in objects if each["kind"] == "ConfigMap"}
        self.kubelet = Kubelet("/var/lib/kubelet").start()
        self.addCleanup(self.kubelet.stop)
        probe = subprocess.run(self.engine.words("probe", "--", "true"), capture_output=True, text=True, timeout=DEADLINE_S)
        if probe.returncode != 0:
            self.skipTest(f"podman can run no container with crun here: {probe.stderr.strip()}")

    def words_of(self, name):
        return pods.words_of(self.pod, name, self.engine, NODE, self.server.account, self.server)

    def start(self, name):
        log = self.run_dir / f"{name}.log"
        with log.open("a") as out:
            child = self.spawn(*self.engine.words(name, *self.words_of(name)), stderr=out)
        wait_for(f"{name} to run", lambda: child.poll() is not None or self.engine.has_begun(name))
        self.assertIsNone(child.poll(), log.read_text())
        self.pids[child] = self.engine.pid(name)
        return child

    def start_driver(self):
        times = self.kubelet.registrations[DRIVER] + 1
        driver = self.start("tessera-kubelet")
        self.kubelet.wait_registered(DRIVER, times)
        return driver

    def end(self, child):
        os.kill(self.pids[child], signal.SIGTERM)  # not by podman: see ContainersTenant
        child.wait(DEADLINE_S)

    def claim(self, name):
        claim = self.server.create("resourceclaims", claim_of(name, memory="1Gi"))
        claim = allocate(self.server, claim, NODE, DRIVER)
        done = self.kubelet.prepare([claim])[claim["metadata"]["uid"]]
        self.assertEqual(done.error, "")
        return claim, done.devices[0].cdi_device_ids[0]

    def tenant(self, name, device):
        words = self.engine.words(name, f"--device={device}", "--", "/opt/tessera/lib/tessera-tenant", "--kernel-us=200",
                                  "--report-every=10")
        return ContainersTenant(self.spawn(*words), self.engine, name)

    def copies(self):
        return {path.name for path in LIBRARIES.iterdir()}

    def test_a_container_has_its_claims_share_through_all_restarts(self):
        writer = self.engine.words("writer", *self.words_of("seccomp-profile"))
        wrote = subprocess.run(writer, capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual(wrote.returncode, 0, wrote.stderr)
        profile = json.loads(pathlib.Path("/var/lib/kubelet/seccomp/tessera.json").read_text())
        self.assertEqual(profile["listenerPath"], "/run/tessera/seccomp.sock")
        daemon, driver = self.start("tesserad"), self.start_driver()
        self.server.wait_for(lambda: self.server.list("resourceslices"))
        claim, device = self.claim("one")
        tenant = self.tenant("one", device)
        tenant.makes_progress()
        (first,) = self.copies()
        # The pod is replaced by one of another image.
        for child in (driver, daemon):
            self.end(child)
        tenant.makes_progress()
        (self.engine.root / "usr/local/lib/tessera/of-the-next-release").touch()
        daemon, driver = self.start("tesserad"), self.start_driver()
        tenant.makes_progress()
        self.assertEqual(len(self.copies()), 2)
        late, device = self.claim("two")
        other = self.tenant("two", device)
        other.makes_progress()
        self.assertEqual(pathlib.Path(f"/proc/{self.engine.pid('two')}/root/opt/tessera/lib/of-the-next-release").exists(), True)
        self.assertEqual(pathlib.Path(f"/proc/{self.engine.pid('one')}/root/opt/tessera/lib/of-the-next-release").exists(), False)
        # The old libraries go when nobody has them any more.
        tenant.finish()
        self.kubelet.unprepare([claim])
        self.end(driver)
        driver = self.start_driver()
        self.assertEqual(self.copies() & {first}, set())
        other.makes_progress()
        other.finish()
        self.kubelet.unprepare([late])
        self.assertEqual([each.name for each in pathlib.Path("/var/run/cdi").iterdir()], [])
        for child in (driver, daemon):
            self.end(child)


if __name__ == "__main__":
    unittest.main()
