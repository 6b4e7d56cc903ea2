"""The stand-ins of the kubelet's parts for devices themselves, which the device plugin's tests use."""
import concurrent.futures
import shutil
import tempfile
import threading
import unittest

from device_manager import DeviceError, DeviceManager
from messages import LISTER, PLUGIN, PLUGINS, call, device_plugin, dialled, grpc, handlers, pod_resources
from pod_resources import PodResources

DEADLINE_S = 20


class PodResourcesTest(unittest.TestCase):
    def test_what_pods_have_is_listed(self):
        folder = tempfile.mkdtemp(prefix="tessera-test-")
        self.addCleanup(shutil.rmtree, folder)
        told = PodResources(folder).start()
        self.addCleanup(told.stop)
        channel = dialled(told.socket)
        self.addCleanup(channel.close)

        def listed():
            return call(channel, f"/{LISTER}/List", pod_resources.ListPodResourcesRequest(), DEADLINE_S).pod_resources

        told.add("a", {"main": {"devices": {"tessera.dev/vgpu": ["GPU-0::1"]},
                                "claims": [{"name": "c", "driver_name": "gpu.tessera.dev", "share_id": "s"}]}})
        told.add("a", {"side": {}})
        (pod,) = listed()
        self.assertEqual((pod.namespace, pod.name, [each.name for each in pod.containers]), ("default", "a", ["main", "side"]))
        self.assertEqual(list(pod.containers[0].devices[0].device_ids), ["GPU-0::1"])
        (claim,) = pod.containers[0].dynamic_resources
        self.assertEqual((claim.claim_namespace, claim.claim_name, claim.claim_resources[0].share_id), ("default", "c", "s"))
        told.add("a", {"main": {}})
        self.assertEqual([len(each.devices) for each in listed()[0].containers], [0, 0])
        told.remove("a")
        self.assertEqual(list(listed()), [])
        with self.assertRaisesRegex(grpc.RpcError, "rate limit"):
            while True:
                listed()
        told.error = "not now"
        with self.assertRaisesRegex(grpc.RpcError, "not now"):
            listed()


class DeviceManagerTest(unittest.TestCase):
    RESOURCE = "example.com/gpu"

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="tessera-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.kubelet = DeviceManager(self.folder, timeout_s=DEADLINE_S).start()
        self.addCleanup(self.kubelet.stop)
        self.prefers, self.prepared, self.answers = [], [], 1
        self.devices, self.more = [self.device(f"gpu-{i}") for i in range(3)], threading.Event()

    @staticmethod
    def device(name, health="Healthy"):
        return device_plugin.Device(ID=name, health=health)

    def plugin(self, **registration):
        """Serves and registers a plugin. Its devices follow self.devices when self.more is set."""
        def watch(_, context):
            while context.is_active():
                yield device_plugin.ListAndWatchResponse(devices=self.devices)
                self.more.wait(DEADLINE_S)
                self.more.clear()

        def prefer(request):
            answer = device_plugin.ContainerPreferredAllocationResponse(deviceIDs=self.prefers)
            return device_plugin.PreferredAllocationResponse(container_responses=[answer] * len(request.container_requests))

        def allocate(request):
            answer = device_plugin.ContainerAllocateResponse(annotations={"ids": ",".join(request.container_requests[0].devices_ids)})
            return device_plugin.AllocateResponse(container_responses=[answer] * self.answers)

        def prepare(request):
            self.prepared.append(list(request.devices_ids))
            return device_plugin.PreStartContainerResponse()

        pool = concurrent.futures.ThreadPoolExecutor(4)
        server = grpc.server(pool)
        unary = handlers(PLUGIN, {"GetPreferredAllocation": prefer, "Allocate": allocate, "PreStartContainer": prepare})
        server.add_generic_rpc_handlers([unary, grpc.method_handlers_generic_handler(PLUGIN, {
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                watch, request_deserializer=device_plugin.Empty.FromString,
                response_serializer=device_plugin.ListAndWatchResponse.SerializeToString)})])
        server.add_insecure_port(f"unix:{self.kubelet.folder}/gpu.sock")
        server.start()
        self.addCleanup(pool.shutdown)
        self.addCleanup(self.more.set)
        self.addCleanup(server.stop, None)
        channel = dialled(self.kubelet.folder / "kubelet.sock")
        self.addCleanup(channel.close)
        options = device_plugin.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)
        request = {"version": "v1beta1", "endpoint": "gpu.sock", "resource_name": self.RESOURCE, "options": options}
        call(channel, f"/{PLUGINS}/Register", device_plugin.RegisterRequest(**{**request, **registration}), DEADLINE_S)

    def test_devices_from_the_plugin_to_containers(self):
        self.plugin()
        self.kubelet.wait_registered(self.RESOURCE)
        self.prefers = ["gpu-2", "no-device"]
        self.assertEqual(self.kubelet.admit("a", {"main": {self.RESOURCE: 1}}), {"main": {self.RESOURCE: ["gpu-2"]}})
        self.assertEqual(self.prepared, [])
        self.assertEqual(dict(self.kubelet.start_container("a").annotations), {"ids": "gpu-2"})
        self.assertEqual(self.prepared, [["gpu-2"]])
        self.devices[0] = self.device("gpu-0", "Unhealthy")
        self.more.set()
        self.kubelet.wait("the change", lambda: self.kubelet.healthy(self.RESOURCE) == {"gpu-1", "gpu-2"})
        with self.assertRaisesRegex(DeviceError, "Requested: 2, Available: 1"):
            self.kubelet.admit("b", {"main": {self.RESOURCE: 2}})
        self.kubelet.remove("a")
        self.assertEqual(set(self.kubelet.admit("b", {"main": {self.RESOURCE: 2}})["main"][self.RESOURCE]), {"gpu-1", "gpu-2"})
        self.answers = 0
        self.kubelet.remove("b")
        with self.assertRaisesRegex(DeviceError, "no containers return"):
            self.kubelet.admit("c", {"main": {self.RESOURCE: 1}})

    def test_a_restart_removes_sockets_and_forgets_plugins_but_not_pods(self):
        self.plugin()
        self.kubelet.wait_registered(self.RESOURCE)
        given = self.kubelet.admit("a", {"main": {self.RESOURCE: 1}})
        self.kubelet.restart()
        self.assertEqual([each.name for each in self.kubelet.folder.iterdir()], ["kubelet.sock"])
        with self.assertRaisesRegex(DeviceError, "unregistered"):
            self.kubelet.admit("b", {"main": {self.RESOURCE: 1}})
        self.plugin()
        self.kubelet.wait_registered(self.RESOURCE, 2)
        self.assertEqual(self.kubelet.admit("a", {"main": {self.RESOURCE: 1}}), given)

    def test_plugins_that_are_refused(self):
        for wrong, why in (({"version": "v1"}, "API version"), ({"resource_name": "gpu"}, "no extended resource"),
                           ({"endpoint": "/gpu.sock"}, "no extended resource")):
            with self.subTest(why), self.assertRaisesRegex(grpc.RpcError, why):
                self.plugin(**wrong)
        self.devices.append(self.device("x" * 64))
        self.plugin()
        self.kubelet.wait("the refusal", lambda: "an ID is too long" in self.kubelet.refused)


if __name__ == "__main__":
    unittest.main()
