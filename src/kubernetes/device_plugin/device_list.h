#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "kubernetes/device_plugin/virtual_device.h"

namespace tessera::kubernetes {

// The devices that the kubelet is told of, for several threads that wait for changes. Any thread.
class DeviceList {
 public:
  // A list that is the same is no change.
  void Set(std::vector<OfferedDevice> devices) {
    const MutexLock lock(mutex_);
    if (version_ > 0 && devices == devices_) return;
    devices_ = std::move(devices);
    ++version_;
    changed_.NotifyAll();
  }

  // Waits until it was set once. False: it was not in time.
  bool WaitKnown(std::chrono::milliseconds time) const {
    std::uint64_t version = 0;
    std::vector<OfferedDevice> devices;
    return Wait(version, devices, time);
  }

  // Waits until there is another version than `version` (0: none was seen), which becomes that, and puts it into
  // `devices`. False: there was none in time.
  bool Wait(std::uint64_t& version, std::vector<OfferedDevice>& devices, std::chrono::milliseconds time) const {
    const auto end = std::chrono::steady_clock::now() + time;
    const MutexLock lock(mutex_);
    while (version_ == version) {
      if (!changed_.WaitUntil(mutex_, end) && version_ == version) return false;
    }
    version = version_;
    devices = devices_;
    return true;
  }

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  std::vector<OfferedDevice> devices_ TESSERA_GUARDED_BY(mutex_);
  std::uint64_t version_ TESSERA_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera::kubernetes
