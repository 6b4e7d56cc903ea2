#pragma once

#include <chrono>
#include <deque>
#include <map>

#include "base/mutex.h"
#include "base/size.h"
#include "server/devices/gpu_driver.h"

namespace tessera::server {

// GPUs that exist only in a test.
class FakeDriver : public GpuDriver {
 public:
  static constexpr std::uint64_t kContext = 100 * kMiB;

  explicit FakeDriver(unsigned gpus = 1, std::uint64_t memory = 10 * kGiB) : gpus_(gpus), memory_(memory) {}

  static wire::Uuid UuidOf(std::uint32_t gpu) { return {{static_cast<std::uint8_t>(gpu + 1), 2, 3}}; }

  Result<std::vector<GpuInfo>> List() override {
    std::vector<GpuInfo> list;
    for (unsigned gpu = 0; gpu < gpus_; ++gpu) list.push_back({UuidOf(gpu), "Fake GPU", memory_, kContext});
    return list;
  }

  Result<DeviceUse> Measure(std::uint32_t gpu) override {
    MutexLock lock(mutex_);
    return memory_of_[gpu];
  }
  // Any thread.
  void SetMeasured(std::uint32_t gpu, DeviceUse memory) {
    MutexLock lock(mutex_);
    memory_of_[gpu] = std::move(memory);
  }

  Result<std::optional<GpuFault>> AwaitFault(Nanos most) override {
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(most / 10);
    MutexLock lock(mutex_);
    while (faults_.empty()) {
      if (!raised_.WaitUntil(mutex_, end)) return std::nullopt;
    }
    const GpuFault fault = faults_.front();
    faults_.pop_front();
    return fault;
  }
  // Any thread.
  void Raise(const GpuFault& fault) {
    MutexLock lock(mutex_);
    faults_.push_back(fault);
    raised_.NotifyAll();
  }

  bool IsSoft() const override { return true; }

 private:
  const unsigned gpus_;
  const std::uint64_t memory_;
  Mutex mutex_;
  std::map<std::uint32_t, DeviceUse> memory_of_ TESSERA_GUARDED_BY(mutex_);
  std::deque<GpuFault> faults_ TESSERA_GUARDED_BY(mutex_);
  CondVar raised_;
};

}  // namespace tessera::server
