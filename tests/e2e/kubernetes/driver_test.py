"""Common base of the tests of tessera-kubelet: it runs beside stand-ins of the kubelet and of the API server."""
import json
import pathlib
import signal
import subprocess
import sys

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import BIN, SoftGpuTest  # noqa: E402
import containers  # noqa: E402
import manifests  # noqa: E402
from api_server import ApiServer  # noqa: E402
from kubelet import Kubelet  # noqa: E402
from rights import Rights  # noqa: E402
from scheduler import allocate, claim_of  # noqa: E402

DRIVER, NODE = "gpu.tessera.dev", "worker"
SLICES, CLAIMS = "resourceslices", "resourceclaims"
BUSY = ("--kernel-us=200", "--report-every=10")


def parameters(**fields):
    return {"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "VGpuConfig", **fields}


def uid_of(claim):
    return claim["metadata"]["uid"]


def name_of(claim):
    """Of its vGPU."""
    return f"default.{claim['metadata']['name']}.{uid_of(claim)}"


class DriverTest(SoftGpuTest):
    SPEC = "2x4GiB"

    def setUp(self):
        super().setUp()
        self.server = ApiServer(self.run_dir / "api").start()
        self.server.rights = Rights(manifests.build())
        self.addCleanup(self.server.close)
        self.server.create("nodes", {"metadata": {"name": NODE}})
        self.kubelet = Kubelet(self.run_dir / "kubelet").start()
        self.addCleanup(self.kubelet.stop)
        self.cdi = self.run_dir / "cdi"
        self.driver = None

    def start_driver(self, *flags):
        times = self.kubelet.registrations[DRIVER] + 1
        self.driver = self.spawn(BIN / "tessera-kubelet", "--node-name", NODE, "--run-dir", self.run_dir,
                                 "--kubelet-dir", self.run_dir / "kubelet", "--cdi-dir", self.cdi, "--api-server",
                                 self.server.url, "--ca-file", self.server.ca_file, "--token-file", self.server.token_file,
                                 *flags, stderr=subprocess.PIPE)
        self.kubelet.wait_registered(DRIVER, times)

    def end_driver(self, how=signal.SIGTERM):
        self.driver.send_signal(how)
        self.driver.wait(10)
        if how == signal.SIGTERM:  # killed, it leaves its socket
            self.kubelet.wait_gone(DRIVER)

    def slice(self):
        found = self.server.list(SLICES)
        return found[0] if len(found) == 1 else None

    def wait_for_slice(self):
        return self.server.wait_for(self.slice)

    def capacity(self, device=0):
        return {name: each["value"] for name, each in self.slice()["spec"]["devices"][device]["capacity"].items()}

    def allocated(self, name, **options):
        """A claim that the scheduler has given devices, or None."""
        claim = self.server.create(CLAIMS, claim_of(name, **options))
        return allocate(self.server, claim, NODE, DRIVER)

    def prepare(self, claim):
        return self.kubelet.prepare([claim])[claim["metadata"]["uid"]]

    def unprepare(self, claim):
        self.assertEqual(self.kubelet.unprepare([claim])[claim["metadata"]["uid"]].error, "")

    def vgpus(self):
        return {vgpu["name"]: vgpu for vgpu in self.api("GET", "/v1/vgpus")[2]["vgpus"]}

    def cdi_files(self):
        return sorted(path.name for path in self.cdi.iterdir())

    def specification(self, claim):
        return json.loads((self.cdi / f"tessera.dev-claim_{uid_of(claim)}.json").read_text())

    def variables(self, claim):
        """The environment that a container with the claim gets, with the paths of the machine."""
        return containers.variables(self.specification(claim))

    def program_of(self, claim, *flags, **environment):
        """A program as a container with the claim would run it."""
        return containers.program(self, self.specification(claim), *flags, **environment)

    def condition(self, claim, kind="Ready", device=0):
        """That of the claim's device, as (status, reason, message); None without it."""
        status = self.server.get(CLAIMS, claim["metadata"]["name"], "default").get("status", {})
        for each in (status.get("devices") or [{}] * (device + 1))[device].get("conditions", []):
            if each["type"] == kind:
                return each["status"], each["reason"], each["message"]
        return None
