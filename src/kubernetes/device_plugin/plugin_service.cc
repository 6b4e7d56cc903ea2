#include "kubernetes/device_plugin/plugin_service.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace tessera::kubernetes {

using grpc::ServerContext;
using grpc::Status;
using grpc::StatusCode;

namespace {

// How soon a call of the kubelet that waits for changes notices that it has ended.
constexpr std::chrono::milliseconds kNotice{500};

// For container runtimes that know CDI devices by annotations only, as kubelets before 1.29 name them. containerd and
// CRI-O add a device once that is named both ways.
constexpr const char* kCdiAnnotation = "cdi.k8s.io/tessera.dev_vgpu";

Status Refused(const char* what, const Error& error) {
  std::fprintf(stderr, "tessera-kubelet: device plugin: %s: %s\n", what, error.Text().c_str());
  return {error.code == EINVAL ? StatusCode::INVALID_ARGUMENT : StatusCode::UNAVAILABLE, error.Text()};
}

template <typename Strings>
std::set<std::string> SetOf(const Strings& strings) {
  return {strings.begin(), strings.end()};
}

}  // namespace

v1beta1::DevicePluginOptions PluginService::Options() {
  v1beta1::DevicePluginOptions options;
  options.set_pre_start_required(true);
  options.set_get_preferred_allocation_available(true);
  return options;
}

Status PluginService::GetDevicePluginOptions(ServerContext*, const v1beta1::Empty*,
                                             v1beta1::DevicePluginOptions* options) {
  *options = Options();
  return Status::OK;
}

Status PluginService::ListAndWatch(ServerContext* context, const v1beta1::Empty*,
                                   grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) {
  ++listeners_;
  std::uint64_t version = 0;
  std::vector<OfferedDevice> devices;
  while (!context->IsCancelled()) {
    if (!devices_.Wait(version, devices, kNotice)) continue;
    v1beta1::ListAndWatchResponse response;
    for (const OfferedDevice& each : devices) {
      v1beta1::Device& device = *response.add_devices();
      device.set_id(each.id);
      device.set_health(each.healthy ? "Healthy" : "Unhealthy");
    }
    if (!writer->Write(response)) break;
  }
  --listeners_;
  return Status::OK;
}

Status PluginService::GetPreferredAllocation(ServerContext*, const v1beta1::PreferredAllocationRequest* request,
                                             v1beta1::PreferredAllocationResponse* response) {
  for (const auto& container : request->container_requests()) {
    const auto& available = container.available_deviceids();
    const auto& included = container.must_include_deviceids();
    const auto preferred = keeper_.Prefer({available.begin(), available.end()}, {included.begin(), included.end()},
                                          static_cast<std::size_t>(std::max(container.allocation_size(), 0)));
    auto& answer = *response->add_container_responses();
    for (const std::string& id : preferred) answer.add_deviceids(id);
  }
  return Status::OK;
}

Status PluginService::Allocate(ServerContext*, const v1beta1::AllocateRequest* request,
                               v1beta1::AllocateResponse* response) {
  for (const auto& container : request->container_requests()) {
    const auto vgpus = VGpusFor(SetOf(container.devices_ids()));
    if (!vgpus) return Refused("not allocated", vgpus.error());
    const std::string device = fmt::format("{}={}", kCdiKind, CdiDeviceOf(*vgpus));
    auto& answer = *response->add_container_responses();
    answer.add_cdi_devices()->set_name(device);
    (*answer.mutable_annotations())[kCdiAnnotation] = device;
  }
  return Status::OK;
}

Status PluginService::PreStartContainer(ServerContext*, const v1beta1::PreStartContainerRequest* request,
                                        v1beta1::PreStartContainerResponse*) {
  const auto prepared = keeper_.Prepare(SetOf(request->devices_ids()));
  if (!prepared) return Refused("a container does not start", prepared.error());
  return Status::OK;
}

}  // namespace tessera::kubernetes
