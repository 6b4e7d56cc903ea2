#include "kubernetes/kubelet/pod_resources.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "kubernetes/proto/pod_resources.grpc.pb.h"

namespace tessera::kubernetes {
namespace {

constexpr int kLargestAnswer = 16 << 20;  // bytes, the kubelet's own limit; gRPC's is 4 MiB
constexpr std::chrono::seconds kAnswerWithin{5};
constexpr std::chrono::milliseconds kPause{50};

PodContainer Read(const v1::PodResources& pod, const v1::ContainerResources& container) {
  PodContainer read{.namespace_name = pod.namespace_(),
                    .pod = pod.name(),
                    .container = container.name(),
                    .devices = {},
                    .claims = {}};
  for (const v1::ContainerDevices& devices : container.devices())
    read.devices[devices.resource_name()].insert(devices.device_ids().begin(), devices.device_ids().end());
  for (const v1::DynamicResource& claim : container.dynamic_resources()) {
    for (const v1::ClaimResource& device : claim.claim_resources())
      read.claims.push_back({.namespace_name = claim.claim_namespace(),
                             .name = claim.claim_name(),
                             .driver = device.driver_name(),
                             .pool = device.pool_name(),
                             .device = device.device_name(),
                             .share_id = device.share_id()});
  }
  return read;
}

}  // namespace

Result<std::vector<PodContainer>> ListPodResources(const std::string& socket) {
  if (access(socket.c_str(), F_OK) != 0) return FailErrno("the kubelet's " + socket, "see whether the kubelet runs");
  grpc::ChannelArguments arguments;
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of this call, not a failed one of another
  arguments.SetMaxReceiveMessageSize(kLargestAnswer);
  const auto lister = v1::PodResourcesLister::NewStub(
      grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments));
  v1::ListPodResourcesResponse answer;
  grpc::Status status;
  const auto end = std::chrono::system_clock::now() + kAnswerWithin;
  do {
    grpc::ClientContext context;
    context.set_deadline(end);
    status = lister->List(&context, {}, &answer);
    if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) break;
    std::this_thread::sleep_for(kPause);  // it answers a hundred calls a second
  } while (std::chrono::system_clock::now() < end);
  if (!status.ok())
    return Fail(ECONNREFUSED,
                "the kubelet does not tell at " + socket + " which pods have which devices: " + status.error_message());
  std::vector<PodContainer> containers;
  for (const v1::PodResources& pod : answer.pod_resources()) {
    for (const v1::ContainerResources& container : pod.containers()) containers.push_back(Read(pod, container));
  }
  return containers;
}

}  // namespace tessera::kubernetes
