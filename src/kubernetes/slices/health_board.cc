#include "kubernetes/slices/health_board.h"

#include <utility>

namespace tessera::kubernetes {

void HealthBoard::Set(std::vector<DeviceHealth> devices) {
  {
    const std::lock_guard lock(mutex_);
    if (devices == seen_.devices) return;
    seen_.devices = std::move(devices);
    ++seen_.version;
  }
  changed_.notify_all();
}

void HealthBoard::SetUnknown(const std::string& why) {
  std::vector<DeviceHealth> devices;
  {
    const std::lock_guard lock(mutex_);
    devices = seen_.devices;
  }
  for (DeviceHealth& each : devices) {
    each.state = DeviceHealth::State::kUnknown;
    each.message = why;
  }
  Set(std::move(devices));
}

HealthBoard::Seen HealthBoard::WaitNewer(std::uint64_t version, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [&] { return seen_.version > version; });
  return seen_;
}

}  // namespace tessera::kubernetes
