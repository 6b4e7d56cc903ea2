#include "soft/device/memory_steps.h"

#include "soft/device/device.h"
#include "soft/shared/shared_layout.h"
#include "soft/shared/wait.h"

namespace tessera::soft {
namespace {

SharedUse& UseOf(Device& device) { return device.state().slot().use[device.shared_index()]; }

}  // namespace

MemorySteps::MemorySteps(Device& device, Frozen stopped_by, std::function<bool()> aborted)
    : frozen_(UseOf(device).frozen),
      count_(stopped_by == Frozen::kKernels ? UseOf(device).kernel_steps : UseOf(device).copy_steps),
      stopped_by_(stopped_by),
      aborted_(std::move(aborted)) {}

bool MemorySteps::TryBegin() {
  if (frozen_ >= stopped_by_) return false;
  running_.emplace();
  // A process that freezes this one writes `frozen` and then reads the count: it sees this step, or this step sees
  // `frozen`.
  ++count_;
  if (frozen_ < stopped_by_) return true;
  End();
  return false;
}

bool MemorySteps::Begin() {
  while (!TryBegin()) {
    if (aborted()) return false;
    WaitUntil(MonotonicNow() + kMillisecond);
  }
  return true;
}

void MemorySteps::End() {
  if (!running_) return;
  --count_;
  running_.reset();
}

}  // namespace tessera::soft
