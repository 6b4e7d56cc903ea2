"""What the kubelet tells of its containers' devices (1.36: pkg/kubelet/apis/podresources), as a test says it."""
import concurrent.futures
import pathlib
import threading
import time

from messages import LISTER, Refusal, grpc, handlers, pod_resources

Message = pod_resources.ListPodResourcesResponse
CALLS_PER_S, BURST = 100, 10  # more are refused


class PodResources:
    """Listens at pod-resources/kubelet.sock below the kubelet's root directory, from start() to stop().

    A pod that was added is listed until it is removed, whether the server runs or not.
    """

    def __init__(self, root_dir):
        self.socket = pathlib.Path(root_dir, "pod-resources", "kubelet.sock")
        self.lock = threading.Lock()
        self.pods = {}     # PodResources by (namespace, name)
        self.asked = 0     # how often List was called
        self.error = None  # by which List fails instead
        self.refuse = 0    # how many of the next calls are refused as if there were too many
        self.left, self.since = BURST, time.monotonic()  # calls that are allowed, and when they were so many
        self.server = self.pool = None

    def start(self):
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        self.pool = concurrent.futures.ThreadPoolExecutor(4)
        self.server = grpc.server(self.pool)
        self.server.add_generic_rpc_handlers([handlers(LISTER, {"List": self._list})])
        self.server.add_insecure_port(f"unix:{self.socket}")
        self.server.start()
        return self

    def stop(self):
        if self.server:
            self.server.stop(None).wait()
            self.pool.shutdown()
            self.server = None

    def add(self, pod, containers, namespace="default"):
        """`containers` by name: {"devices": {resource: [ID]}, "claims": [ClaimResource's fields and namespace, name]}.

        A container that is listed already gets these resources instead.
        """
        with self.lock:
            message = self.pods.setdefault((namespace, pod), pod_resources.PodResources(namespace=namespace, name=pod))
            for name, resources in containers.items():
                for i, each in enumerate(message.containers):
                    if each.name == name:
                        del message.containers[i]
                        break
                container = message.containers.add(name=name)
                for resource, ids in resources.get("devices", {}).items():
                    container.devices.add(resource_name=resource, device_ids=ids)
                for claim in resources.get("claims", []):
                    fields = dict(claim)
                    dynamic = container.dynamic_resources.add(claim_namespace=fields.pop("namespace", namespace),
                                                              claim_name=fields.pop("name"))
                    dynamic.claim_resources.add(**fields)

    def remove(self, pod, namespace="default"):
        with self.lock:
            self.pods.pop((namespace, pod), None)

    def _list(self, _):
        with self.lock:
            self.asked += 1
            if self.error:
                raise Refusal(grpc.StatusCode.INTERNAL, self.error)
            now = time.monotonic()
            self.left, self.since = min(BURST, self.left + (now - self.since) * CALLS_PER_S), now
            if self.refuse or self.left < 1:
                self.refuse = max(0, self.refuse - 1)
                raise Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
            self.left -= 1
            return Message(pod_resources=list(self.pods.values()))
