"""gRPC, and the messages between the kubelet and a driver: made by protoc from the driver's own files."""
import pathlib
import subprocess
import sys
import tempfile

try:
    import grpc
except ImportError:  # a Python that is not the distribution's, whose packages serve as well
    sys.path.append("/usr/lib/python3/dist-packages")
    import grpc

PROTO = pathlib.Path(__file__).resolve().parents[3] / "src" / "kubernetes" / "proto"
REGISTRATION, DRA = "pluginregistration.Registration", "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
HEALTH = "v1alpha1.DRAResourceHealth"
LISTER = "v1.PodResourcesLister"
PLUGINS, PLUGIN = "v1beta1.Registration", "v1beta1.DevicePlugin"


def generated():
    with tempfile.TemporaryDirectory(prefix="tessera-proto-") as folder:
        files = sorted(PROTO.glob("*.proto"))
        subprocess.run(["protoc", f"--proto_path={PROTO}", f"--python_out={folder}", *files], check=True)
        sys.path.insert(0, folder)
        try:
            import device_plugin_pb2
            import dra_health_pb2
            import dra_pb2
            import plugin_registration_pb2
            import pod_resources_pb2
        finally:
            sys.path.remove(folder)
        return device_plugin_pb2, dra_pb2, dra_health_pb2, plugin_registration_pb2, pod_resources_pb2


device_plugin, dra, dra_health, registration, pod_resources = generated()
METHODS = {  # request and response of each
    f"/{REGISTRATION}/GetInfo": (registration.InfoRequest, registration.PluginInfo),
    f"/{REGISTRATION}/NotifyRegistrationStatus": (registration.RegistrationStatus, registration.RegistrationStatusResponse),
    f"/{DRA}/NodePrepareResources": (dra.NodePrepareResourcesRequest, dra.NodePrepareResourcesResponse),
    f"/{DRA}/NodeUnprepareResources": (dra.NodeUnprepareResourcesRequest, dra.NodeUnprepareResourcesResponse),
    f"/{HEALTH}/NodeWatchResources": (dra_health.NodeWatchResourcesRequest, dra_health.NodeWatchResourcesResponse),
    f"/{LISTER}/List": (pod_resources.ListPodResourcesRequest, pod_resources.ListPodResourcesResponse),
    f"/{PLUGINS}/Register": (device_plugin.RegisterRequest, device_plugin.Empty),
    f"/{PLUGIN}/GetDevicePluginOptions": (device_plugin.Empty, device_plugin.DevicePluginOptions),
    f"/{PLUGIN}/ListAndWatch": (device_plugin.Empty, device_plugin.ListAndWatchResponse),
    f"/{PLUGIN}/GetPreferredAllocation": (device_plugin.PreferredAllocationRequest,
                                          device_plugin.PreferredAllocationResponse),
    f"/{PLUGIN}/Allocate": (device_plugin.AllocateRequest, device_plugin.AllocateResponse),
    f"/{PLUGIN}/PreStartContainer": (device_plugin.PreStartContainerRequest, device_plugin.PreStartContainerResponse),
}


def dialled(path):
    """A channel as the kubelet opens it: a driver's server has to take "localhost" as its name."""
    return grpc.insecure_channel(f"unix:{path}", options=[
        ("grpc.default_authority", "localhost"), ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)])


def call(channel, method, request, timeout_s):
    return channel.unary_unary(method, request_serializer=METHODS[method][0].SerializeToString,
                               response_deserializer=METHODS[method][1].FromString)(request, timeout=timeout_s)


def stream(channel, method, request):
    """The answers, as they come, until the other side or cancel() ends it."""
    return channel.unary_stream(method, request_serializer=METHODS[method][0].SerializeToString,
                                response_deserializer=METHODS[method][1].FromString)(request)


class Refusal(Exception):
    """How a server's function refuses a call."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code, self.text = code, text


def handlers(service, functions):
    """The server's side: functions(request) by the method's name."""
    def answer(method, asked, context):
        try:
            return functions[method](asked)
        except Refusal as refusal:
            return context.abort(refusal.code, refusal.text)

    def handler(method):
        request, response = METHODS[f"/{service}/{method}"]
        return grpc.unary_unary_rpc_method_handler(lambda asked, context: answer(method, asked, context),
                                                   request_deserializer=request.FromString,
                                                   response_serializer=response.SerializeToString)
    return grpc.method_handlers_generic_handler(service, {method: handler(method) for method in functions})
