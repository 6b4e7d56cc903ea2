#include "server/migration/rest_movers.h"

#include <algorithm>
#include <set>

namespace tessera::server {
namespace {

// Whether memory that programs left in place comes free, as they are elsewhere by now.
bool LeftComesFree(const VGpuTable::Gpus& gpus, const LeftMemory& left) {
  std::set<pid_t> away;
  for (const auto& gpu : gpus) {
    for (const VGpu* vgpu : gpu->VGpus()) {
      for (const Process* process : vgpu->processes) {
        if (process->suspension.Away()) away.insert(process->pid);
      }
    }
  }
  return std::ranges::any_of(gpus, [&](const auto& gpu) {
    return std::ranges::any_of(left.BytesOn(gpu->Index()), [&](const auto& its) { return !away.contains(its.first); });
  });
}

}  // namespace

void RestMovers(const VGpuTable::Gpus& gpus, const LeftMemory& left, bool migrates) {
  const auto swapping = [](const auto& gpu) { return gpu->Swaps(); };
  const auto travels = [&](const auto& gpu) { return swapping(gpu) && gpu->Residency().ProgramsTravel(); };
  const bool rest = migrates || std::ranges::any_of(gpus, travels) || LeftComesFree(gpus, left);
  for (const auto& gpu : gpus) {
    if (swapping(gpu)) gpu->Residency().Rest(rest);
  }
}

}  // namespace tessera::server
