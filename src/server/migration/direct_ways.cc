#include "server/migration/direct_ways.h"

#include <algorithm>

#include "base/size.h"

namespace tessera::server {
namespace {

// Room beside the memory, in parts of it: what is on its way into the program's own memory is there twice.
constexpr std::uint64_t kMarginPart = 8, kLeastMargin = 256 * kMiB, kMostMargin = 4 * kGiB;

std::uint64_t WithMargin(std::uint64_t bytes) {
  return bytes + std::clamp(bytes / kMarginPart, kLeastMargin, kMostMargin);
}

}  // namespace

DirectWays::~DirectWays() {
  for (const Way& each : ways_) each.to.Placement().Hold(each.pid, 0);
}

void DirectWays::Open(const std::vector<Process*>& processes, const VGpuTable::Gpus& gpus,
                      const std::function<std::uint32_t(VgpuId)>& target) {
  for (const Process* process : processes) {
    const std::uint32_t from = process->vgpu->gpu, to = target(process->vgpu->id);
    const bool one = std::ranges::count(processes, process->pid, &Process::pid) == 1;
    if (one && from != to && !process->suspension.Begun()) Open(*process, *gpus[from], *gpus[to]);
  }
}

void DirectWays::Open(const Process& process, GpuServer& from, GpuServer& to) {
  const std::uint64_t bytes = process.residence.Movable();
  const auto first = from.Placement().HandoverSide(), second = to.Placement().HandoverSide();
  if (bytes == 0 || !first || !second || !first->link.Ready() || !second->link.Ready()) return;
  if (to.Placement().FreeRoom() < WithMargin(bytes)) return;
  to.Placement().Hold(process.pid, bytes);
  ways_.emplace_back(process, to, *first, *second, bytes);
}

bool DirectWays::Settled() const {
  return std::ranges::all_of(ways_, [](const Way& each) { return each.way.Settled(); });
}

std::uint64_t DirectWays::Bytes() const {
  std::uint64_t bytes = 0;
  for (const Way& each : ways_) bytes += each.way.Bytes();
  return bytes;
}

void DirectWays::Arrived(Process& process) const {
  process.residence.comes_at_once |=
      std::ranges::any_of(ways_, [&](const Way& each) { return each.pid == process.pid && each.way.Bytes() > 0; });
}

}  // namespace tessera::server
