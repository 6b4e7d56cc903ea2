"""Metrics of vGPUs name the pods of the kubelet's PodResources, by both drivers, on soft GPUs."""
import contextlib
import os
import pathlib
import re
import sys
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import UnixConnection, wait_for  # noqa: E402
from pod_resources import PodResources  # noqa: E402
from test_device_plugin import PluginTest  # noqa: E402
from test_dra import DRIVER, DriverTest  # noqa: E402


class Labels:
    def labels(self, name):
        return self.vgpu(name)["labels"]

    def wait_labels(self, name, **labels):
        wait_for(f"labels {labels}", lambda: self.labels(name) == labels)

    def series(self, metric):
        connection = UnixConnection(self.run_dir / "api.sock")
        try:
            connection.request("GET", "/metrics")
            return re.findall(rf"^{metric}{{(.*)}}", connection.getresponse().read().decode(), re.M)
        finally:
            connection.close()


class OfClaims(Labels, DriverTest):
    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.told = PodResources(self.run_dir / "kubelet")
        self.addCleanup(self.told.stop)

    def prepared(self, name):
        """The vGPU of a claim, and what the kubelet lists for a container that has it."""
        claim = self.allocated(name, memory="1Gi")
        self.assertEqual(self.prepare(claim).error, "")
        (share,) = claim["status"]["allocation"]["devices"]["results"]
        return f"default.{name}.{claim['metadata']['uid']}", {"claims": [
            {"name": name, "driver_name": DRIVER, "pool_name": share["pool"], "device_name": share["device"],
             "share_id": share["shareID"]}]}

    def start_driver(self, *flags):
        super().start_driver("--look-seconds", "0.05", *flags)
        os.set_blocking(self.driver.stderr.fileno(), False)
        self.said = ""

    def complaints(self):
        """What the driver has said so far of names of pods."""
        with contextlib.suppress(BlockingIOError):
            self.said += os.read(self.driver.stderr.fileno(), 1 << 16).decode()
        return [line for line in self.said.splitlines() if "metrics:" in line]

    def test_pods_come_share_and_go(self):
        self.told.start()
        self.start_driver()
        self.wait_for_slice()
        vgpu, resources = self.prepared("llm")
        self.assertEqual(self.labels(vgpu), {"namespace": "default"})
        self.told.add("llm-0", {"serve": resources, "sidecar": {}})
        self.wait_labels(vgpu, namespace="default", pod="llm-0", container="serve")
        self.assertIn(f'vgpu="{vgpu}",gpu="{self.vgpu(vgpu)["gpu"]}",container="serve",namespace="default",pod="llm-0"',
                      self.series("tessera_vgpu_memory_peak_bytes"))
        # Labels that somebody else gave it stay, and nothing is changed while pods are the same.
        self.change(vgpu, labels={**self.labels(vgpu), "team": "a"})
        before, asked = self.vgpu(vgpu)["tag"], self.told.asked
        wait_for("two more looks", lambda: self.told.asked >= asked + 2)
        self.assertEqual(self.vgpu(vgpu)["tag"], before)
        self.told.add("llm-1", {"serve": resources})
        self.wait_labels(vgpu, namespace="default", container="serve", team="a")
        self.told.remove("llm-0")
        self.wait_labels(vgpu, namespace="default", pod="llm-1", container="serve", team="a")
        self.assertEqual(self.complaints(), [])

    def test_without_the_kubelets_socket_there_is_the_namespace(self):
        self.start_driver()
        self.wait_for_slice()
        vgpu, resources = self.prepared("llm")
        self.assertEqual(self.labels(vgpu), {"namespace": "default"})
        wait_for("a complaint", self.complaints)
        self.assertIn("pod-resources/kubelet.sock: No such file", self.complaints()[0])
        self.told.add("llm-0", {"serve": resources})
        self.told.error = "not now"
        self.told.start()
        wait_for("the driver to ask", lambda: self.told.asked >= 2)
        self.told.error = None
        self.wait_labels(vgpu, namespace="default", pod="llm-0", container="serve")
        wait_for("good news", lambda: "they name pods" in self.complaints()[-1])
        for each in ("No such file", "not now"):
            self.assertEqual(len([line for line in self.complaints() if each in line]), 1, self.said)

    def test_a_driver_that_starts_again_goes_on(self):
        self.told.start()
        self.start_driver()
        self.wait_for_slice()
        vgpu, resources = self.prepared("llm")
        self.end_driver()
        self.told.add("llm-0", {"serve": resources})
        self.start_driver()
        self.wait_labels(vgpu, namespace="default", pod="llm-0", container="serve")


class OfDevices(Labels, PluginTest):
    def test_a_container_of_the_device_plugin(self):
        self.start_daemon()
        self.start_driver()
        vgpu = self.started("web")["name"]
        self.wait_labels(vgpu, namespace="default", pod="web", container="main")
        self.end_pod("web")
        self.wait_freed()
        vgpu = self.started("batch")["name"]
        self.wait_labels(vgpu, namespace="default", pod="batch", container="main")


if __name__ == "__main__":
    unittest.main()
