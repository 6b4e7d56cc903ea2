#include "server/gpu/gpu_health.h"

#include <fmt/format.h>

#include <chrono>

#include "server/record/events.h"
#include "server/record/log.h"

namespace tessera::server {
namespace {

constexpr Nanos kFaultEventsEvery = kSecond;  // a program may make one fault after the other

// The vGPUs with programs on the GPU: NVML does not say whose work the fault was.
std::string Present(const std::vector<VGpu*>& vgpus) {
  std::string names;
  for (const VGpu* vgpu : vgpus) {
    if (!vgpu->processes.empty()) names += (names.empty() ? "" : ", ") + vgpu->spec.name;
  }
  return names.empty() ? "no vGPU has programs there" : "programs are there in " + names;
}

}  // namespace

void GpuHealth::Note(const GpuFault& fault, Nanos now) {
  using namespace std::chrono;
  if (fault.kind == GpuFault::Kind::kXid) {
    ++figures_.xids;
    figures_.last_xid = fault.xid;
  }
  if (fault.kind == GpuFault::Kind::kEcc) ++figures_.ecc_errors;
  figures_.last = fault.Text();
  figures_.last_us = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
  for (VGpu* vgpu : vgpus_) {
    if (!vgpu->processes.empty()) ++vgpu->gpu_faults;
  }
  if (fault.kind != GpuFault::Kind::kLost && (told_at_ == 0 || now - told_at_ >= kFaultEventsEvery)) {
    told_at_ = now;
    const std::string text = fmt::format("{}; {}", figures_.last, Present(vgpus_));
    log::Info("GPU {}: {}", gpu_, text);
    const bool ecc = fault.kind == GpuFault::Kind::kEcc;
    const EventType type = ecc ? EventType::kGpuEcc : EventType::kGpuXid;
    events::Note({.type = type, .gpu = gpu_, .text = text});
    for (const VGpu* vgpu : vgpus_) {
      if (vgpu->processes.empty()) continue;
      events::Note(
          {.type = type, .gpu = gpu_, .vgpu = vgpu->spec.name, .owner = vgpu->spec.uid, .text = figures_.last});
    }
  }
  if (fault.Fatal() && !Failed()) Fail(fault, now);
}

// Its programs cannot be helped; the driver ends their work with errors. Calls to the driver would only fail.
void GpuHealth::Fail(const GpuFault& fault, Nanos now) {
  figures_.failed = fault.Text();
  log::Error("GPU {} ({}) has failed: {}; it takes no new programs", gpu_, info_.name, figures_.failed);
  events::Note({.type = EventType::kGpuFailed, .gpu = gpu_, .text = figures_.failed});
  for (const VGpu* vgpu : vgpus_) {
    if (vgpu->removed) continue;
    events::Note({.type = EventType::kGpuFailed,
                  .gpu = gpu_,
                  .vgpu = vgpu->spec.name,
                  .owner = vgpu->spec.uid,
                  .text = figures_.failed});
  }
  channels_.Availability().Lose(gpu_, "the GPU has failed: " + figures_.failed);
  time_.Choose(now);
}

Result<void> GpuHealth::Check() const {
  if (!Failed()) return {};
  return tessera::Fail(ENODEV, fmt::format("GPU {} ({}) has failed: {}", gpu_, info_.name, figures_.failed),
                       "use another GPU; reset this one, then restart the daemon");
}

Result<void> GpuHealth::TakesNewcomers() const {
  if (auto well = Check(); !well) return well;
  if (!draining_) return {};
  return tessera::Fail(EBUSY, fmt::format("GPU {} drains: it takes no newcomers", gpu_),
                       fmt::format("use another GPU, or end it: tessera gpu undrain {}", gpu_));
}

}  // namespace tessera::server
