"""The stand-ins of the kubelet's parts for devices themselves, which the device plugin's tests use."""
import shutil
import tempfile
import unittest

from messages import LISTER, call, dialled, grpc, pod_resources
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
        told.error = "not now"
        with self.assertRaisesRegex(grpc.RpcError, "not now"):
            listed()


if __name__ == "__main__":
    unittest.main()
