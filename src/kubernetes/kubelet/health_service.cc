#include "kubernetes/kubelet/health_service.h"

#include <chrono>
#include <ctime>

namespace tessera::kubernetes {
namespace {

using State = DeviceHealth::State;

// The kubelet takes what is older than its timeout, 30 s if nobody says otherwise, as unknown.
constexpr std::chrono::seconds kAgain{10}, kLook{1};

v1alpha1::HealthStatus StatusOf(State state) {
  switch (state) {
    case State::kHealthy:
      return v1alpha1::HEALTHY;
    case State::kUnhealthy:
      return v1alpha1::UNHEALTHY;
    case State::kUnknown:
      break;
  }
  return v1alpha1::UNKNOWN;
}

}  // namespace

grpc::Status HealthService::NodeWatchResources(grpc::ServerContext* context, const v1alpha1::NodeWatchResourcesRequest*,
                                               grpc::ServerWriter<v1alpha1::NodeWatchResourcesResponse>* writer) {
  std::uint64_t told = 0;
  auto due = std::chrono::steady_clock::now();
  while (!context->IsCancelled()) {
    const HealthBoard::Seen seen = board_.WaitNewer(told, kLook);
    const auto now = std::chrono::steady_clock::now();
    if (seen.version == told && now < due) continue;
    told = seen.version;
    due = now + kAgain;
    v1alpha1::NodeWatchResourcesResponse response;
    for (const DeviceHealth& each : seen.devices) {
      v1alpha1::DeviceHealth& device = *response.add_devices();
      device.mutable_device()->set_pool_name(pool_);
      device.mutable_device()->set_device_name(each.device);
      device.set_health(StatusOf(each.state));
      device.set_last_updated_time(std::time(nullptr));
      device.set_message(each.message);
    }
    if (!writer->Write(response)) break;
  }
  return grpc::Status::OK;
}

}  // namespace tessera::kubernetes
