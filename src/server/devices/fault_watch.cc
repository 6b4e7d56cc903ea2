#include "server/devices/fault_watch.h"

#include <chrono>
#include <optional>
#include <utility>

#include "server/record/log.h"

namespace tessera::server {
namespace {

constexpr Nanos kFaultWait = 500 * kMillisecond;
constexpr std::chrono::seconds kRestAfterError{10};

}  // namespace

FaultWatch::FaultWatch(EventLoop& loop, GpuDriver& driver, std::function<void(const GpuFault&)> on_fault)
    : loop_(loop),
      driver_(driver),
      on_fault_(std::make_shared<std::function<void(const GpuFault&)>>(std::move(on_fault))),
      thread_([this] { Run(); }) {}

FaultWatch::~FaultWatch() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  ending_.NotifyAll();
  thread_.join();
}

bool FaultWatch::Rest() {
  const auto end = std::chrono::steady_clock::now() + kRestAfterError;
  const MutexLock lock(mutex_);
  while (!ends_ && ending_.WaitUntil(mutex_, end)) {
  }
  return !ends_;
}

void FaultWatch::Run() {
  bool said = false;
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (ends_) return;
    }
    const Result<std::optional<GpuFault>> fault = driver_.AwaitFault(kFaultWait);
    if (!fault && fault.error().code == ENOTSUP) {
      log::Debug("faults of GPUs are not seen: {}", fault.error().Text());
      return;
    }
    if (!fault) {
      if (!std::exchange(said, true)) log::Warn("faults of GPUs are not seen: {}", fault.error().Text());
      if (!Rest()) return;
      continue;
    }
    if (const std::optional<GpuFault>& seen = *fault) {
      loop_.Post([on_fault = std::weak_ptr(on_fault_), fault = *seen] {
        if (const auto call = on_fault.lock()) (*call)(fault);
      });
    }
  }
}

}  // namespace tessera::server
