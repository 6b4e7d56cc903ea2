"""A kubelet as far as a device plugin sees it: it registers the plugin, follows its devices, and gives them to containers.

Order and errors are the real one's (1.36: pkg/kubelet/cm/devicemanager). Unlike it, this one knows no NUMA nodes, and a
plugin that is gone has no devices at once, and not after five minutes.
"""
import concurrent.futures
import pathlib
import random
import threading

from messages import PLUGIN, PLUGINS, Refusal, call, device_plugin, dialled, grpc, handlers, stream
from pod_resources import PodResources

DEADLINE_S = 60
LONGEST_ID = 63


class DeviceError(Exception):
    """Why a pod is not admitted, or a container does not start, as the kubelet would say it."""


class Plugin:
    def __init__(self, request, socket):
        self.resource, self.options = request.resource_name, request.options
        self.channel = dialled(socket)
        self.devices = {}  # health by ID
        self.watch = stream(self.channel, f"/{PLUGIN}/ListAndWatch", device_plugin.Empty())

    def ask(self, method, request, timeout_s):
        try:
            return call(self.channel, f"/{PLUGIN}/{method}", request, timeout_s)
        except grpc.RpcError as error:
            raise DeviceError(f"{method}: {error.code().name}: {error.details()}") from error

    def close(self):
        self.watch.cancel()
        self.channel.close()


class DeviceManager:
    """Its folder is device-plugins/ below root_dir. `told` is the kubelet's PodResources, which begins and ends with it."""

    def __init__(self, root_dir, timeout_s=30):
        self.folder = pathlib.Path(root_dir, "device-plugins")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.told = PodResources(root_dir)
        self.timeout_s = timeout_s
        self.changed = threading.Condition()  # guards all below
        self.plugins = {}        # by resource
        self.registrations = 0   # that there ever were
        self.refused = []        # why others were none
        self.refuse_next = None  # an error by which the next registration fails
        self.allocated = {}      # {resource: [IDs]} by (namespace, pod) and container: what a restart does not forget
        self.allocations = {}    # the answers of the plugin, likewise
        self.server = self.pool = None

    def start(self):
        """The kubelet removes all sockets before it makes its own."""
        for each in self.folder.iterdir():
            if each.is_socket():
                each.unlink()
        self.pool = concurrent.futures.ThreadPoolExecutor(8)
        self.server = grpc.server(self.pool)
        self.server.add_generic_rpc_handlers([handlers(PLUGINS, {"Register": self._register})])
        self.server.add_insecure_port(f"unix:{self.folder}/kubelet.sock")
        self.server.start()
        self.told.start()
        return self

    def stop(self):
        if not self.server:
            return
        self.told.stop()
        self.server.stop(None).wait()
        with self.changed:
            while self.plugins:
                self.plugins.popitem()[1].close()
        self.pool.shutdown()
        self.server = None

    def restart(self):
        self.stop()
        self.start()

    def forget(self, resource):
        """The connection to the plugin is lost."""
        with self.changed:
            self.plugins.pop(resource).close()

    # ---- plugins ----

    def _register(self, request):
        with self.changed:
            problem, self.refuse_next = self.refuse_next, None
            if request.version != "v1beta1":
                problem = f"requested API version {request.version!r} is not supported by kubelet"
            elif "/" not in request.resource_name or "/" in request.endpoint:
                problem = f"{request.resource_name!r} at {request.endpoint!r} is no extended resource at a file's name"
            if problem:
                self.refused.append(problem)
                self.changed.notify_all()
                raise Refusal(grpc.StatusCode.UNKNOWN, problem)
        threading.Thread(target=self._connect, args=(request,), name="device manager").start()
        return device_plugin.Empty()

    def _connect(self, request):
        """As the real one, it answers before it connects."""
        plugin = Plugin(request, self.folder / request.endpoint)
        try:
            for answer in plugin.watch:
                with self.changed:
                    if any(len(each.ID) > LONGEST_ID for each in answer.devices):
                        self.refused.append("an ID is too long")
                        break
                    if self.plugins.get(plugin.resource) is not plugin:
                        if plugin.devices:
                            break  # another one has taken its place
                        if plugin.resource in self.plugins:
                            self.plugins[plugin.resource].close()
                        self.plugins[plugin.resource] = plugin
                        self.registrations += 1
                    plugin.devices = {each.ID: each.health for each in answer.devices}
                    self.changed.notify_all()
        except grpc.RpcError:
            pass
        with self.changed:
            if self.plugins.get(plugin.resource) is plugin:
                del self.plugins[plugin.resource]
            self.changed.notify_all()

    def wait(self, what, predicate, deadline_s=DEADLINE_S):
        with self.changed:
            value = self.changed.wait_for(predicate, deadline_s)
            if not value:
                raise AssertionError(f"waited {deadline_s} s for {what}; plugins: {list(self.plugins)}; refused: {self.refused}; "
                                     f"{self.folder} has {[each.name for each in self.folder.iterdir()]}")
            return value

    def wait_registered(self, resource, times=1):
        """The plugin, once it has told its devices and did so for so many times in all."""
        return self.wait(f"{resource} to be registered (time {times})",
                         lambda: self.registrations >= times and self.plugins.get(resource))

    def wait_gone(self, resource):
        self.wait(f"{resource} to be gone", lambda: resource not in self.plugins)

    def healthy(self, resource):
        with self.changed:
            return {ID for ID, health in self.plugins[resource].devices.items() if health == "Healthy"}

    # ---- pods ----

    def admit(self, pod, containers, namespace="default"):
        """Gives each container what it asks for, {resource: count}; then the pod is listed. IDs by container and resource.

        A container that has devices already keeps them.
        """
        with self.changed:
            given = self.allocated.setdefault((namespace, pod), {})
        for container, asked in containers.items():
            for resource, count in asked.items():
                if resource in given.get(container, {}):
                    continue
                ids, answer = self._allocate(resource, count)
                with self.changed:
                    given.setdefault(container, {})[resource] = ids
                    self.allocations[namespace, pod, container] = answer
            self.told.add(pod, {container: {"devices": given.get(container, {})}}, namespace)
        return given

    def _allocate(self, resource, count):
        with self.changed:
            plugin = self.plugins.get(resource)
            if plugin is None:
                raise DeviceError(f"cannot allocate unregistered device {resource}")
            taken = {ID for pod in self.allocated.values() for each in pod.values() for ID in each.get(resource, [])}
        available = sorted(self.healthy(resource) - taken)
        if len(available) < count:
            raise DeviceError(f"requested number of devices unavailable for {resource}. Requested: {count}, "
                              f"Available: {len(available)}")
        random.shuffle(available)
        chosen = []
        if plugin.options.get_preferred_allocation_available:
            asked = device_plugin.ContainerPreferredAllocationRequest(available_deviceIDs=available, allocation_size=count)
            answer = plugin.ask("GetPreferredAllocation",
                                device_plugin.PreferredAllocationRequest(container_requests=[asked]), self.timeout_s)
            chosen = [each for each in answer.container_responses[0].deviceIDs if each in available]
        chosen = (chosen + [each for each in available if each not in chosen])[:count]
        asked = device_plugin.ContainerAllocateRequest(devices_ids=chosen)
        answer = plugin.ask("Allocate", device_plugin.AllocateRequest(container_requests=[asked]), self.timeout_s)
        if len(answer.container_responses) != 1:
            raise DeviceError("no containers return in allocation response")
        return chosen, answer.container_responses[0]

    def start_container(self, pod, container="main", namespace="default"):
        """What the plugin has said that the container gets; before that it is asked to prepare it, at each start."""
        with self.changed:
            given, plugins = self.allocated[namespace, pod][container], dict(self.plugins)
        for resource, ids in given.items():
            if resource not in plugins:
                raise DeviceError(f"endpoint not found in cache for a registered resource: {resource}")
            if plugins[resource].options.pre_start_required:
                plugins[resource].ask("PreStartContainer", device_plugin.PreStartContainerRequest(devices_ids=ids),
                                      self.timeout_s)
        return self.allocations[namespace, pod, container]

    def remove(self, pod, namespace="default"):
        """The pod has ended."""
        with self.changed:
            self.allocated.pop((namespace, pod), None)
        self.told.remove(pod, namespace)
