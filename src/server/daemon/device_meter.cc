#include "server/daemon/device_meter.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

namespace tessera::server {
namespace {

bool AnyRuns(GpuServer& gpu, Nanos now) {
  return std::ranges::any_of(
      gpu.VGpus(), [&](const VGpu* vgpu) { return gpu.Time().FiguresOf(*vgpu, now).standing == Standing::kRunning; });
}

}  // namespace

DeviceMeter::DeviceMeter(EventLoop& loop, GpuDriver& driver, const VGpuTable::Gpus& gpus)
    : driver_(driver), gpus_(gpus), timer_(loop, [this] { Measure(); }), asking_(loop) {}

void DeviceMeter::Soon() {
  if (due_at_ != kNever) return;
  due_at_ = MonotonicNow() + after_;
  timer_.Arm(due_at_);
  after_ = std::min(2 * after_, kSeldom);
}

// A measurement that is due soon stays so: programs could put it off for ever.
void DeviceMeter::ContextsChanged() {
  after_ = kOften;
  if (due_at_ <= MonotonicNow() + kOften) {
    again_ = true;
    return;
  }
  due_at_ = kNever;
  Soon();
}

void DeviceMeter::Measure() {
  due_at_ = kNever;
  if (std::exchange(again_, false)) Soon();
  if (!Begin()) return;
  asking_.Start([this] { answers_ = Ask(); }, [this] { End(answers_, MonotonicNow()); });
}

bool DeviceMeter::Begin() {
  if (std::exchange(running_, true)) return false;
  for (const auto& gpu : gpus_) gpu->Measurement().Begin();
  return true;
}

DeviceMeter::Answers DeviceMeter::Ask() const {
  Answers answers;
  for (std::uint32_t gpu = 0; gpu < gpus_.size(); ++gpu) answers.push_back(driver_.Measure(gpu));
  malloc_trim(0);  // NVML leaves megabytes of freed heap behind
  return answers;
}

void DeviceMeter::End(const Answers& answers, Nanos now) {
  running_ = false;
  for (const auto& gpu : gpus_) {
    if (const auto& use = answers[gpu->Index()])
      gpu->Measurement().Reconcile(*use, now);  // else the last figures stand
    const bool watches = gpu->Measurement().NeedsWatching();
    if (watches) after_ = kOften;
    if (watches || AnyRuns(*gpu, now)) Soon();
  }
}

}  // namespace tessera::server
