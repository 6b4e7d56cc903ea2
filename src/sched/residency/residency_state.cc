#include "sched/residency/residency_state.h"

#include <algorithm>

namespace tessera::sched {

std::uint64_t ProcessResidence::All(std::uint64_t most_out) const {
  const std::uint64_t gone = moving == Moving::kOut ? done : 0;  // counts as swapped already
  return Less(Movable(), gone) + Less(std::min(swapped, most_out), Less(Coming(), coming_holes));
}

std::uint64_t ProcessResidence::Granted(Nanos now) const { return now - granted_at < kTimeToTake ? credit : 0; }

std::uint64_t VGpuResidence::Pinned() const {
  std::uint64_t sum = 0;
  for (const ProcessResidence& process : processes) sum += process.pinned;
  return sum;
}

std::uint64_t VGpuResidence::Room() const {
  std::uint64_t sum = 0;
  for (const ProcessResidence& process : processes) sum += process.room;
  return sum;
}

bool VGpuResidence::Active(Nanos now) const {
  return std::ranges::any_of(processes, [now](const ProcessResidence& process) { return process.Active(now); });
}

std::uint64_t ResidencyState::Room() const {
  std::uint64_t sum = 0;
  for (const VGpuResidence& vgpu : vgpus) sum += vgpu.Room();
  return sum;
}

std::uint64_t ResidencyState::Used() const {
  std::uint64_t sum = 0;
  for (const VGpuResidence& vgpu : vgpus) {
    for (const ProcessResidence& process : vgpu.processes) sum += process.room - process.credit;
  }
  return sum;
}

bool ResidencyState::Loads() const {
  return std::ranges::any_of(vgpus, [](const VGpuResidence& vgpu) {
    return std::ranges::find(vgpu.processes, Moving::kIn, &ProcessResidence::moving) != vgpu.processes.end();
  });
}

}  // namespace tessera::sched
