#include "server/migration/direct_ways.h"

#include <algorithm>

#include "base/size.h"

namespace tessera::server {
namespace {

// Room beside the memory, in parts of it: what is on its way into the program's own memory is there twice.
constexpr std::uint64_t kMarginPart = 8, kLeastMargin = 256 * kMiB, kMostMargin = 4 * kGiB;

// Of its memory: the bound of what its vGPU may have outside of GPUs (memory.swap.max, else the pool).
std::uint64_t MayGo(const Process& process, GpuServer& from) {
  const std::uint64_t most = process.vgpu->spec.memory.swap.value_or(from.Residency().SwapMax());
  std::uint64_t out = 0;
  for (const Process* each : process.vgpu->processes) out += each->residence.Swapped();
  return most - std::min(most, out);
}

std::uint64_t WithMargin(std::uint64_t bytes) {
  return bytes + std::clamp(bytes / kMarginPart, kLeastMargin, kMostMargin);
}

}  // namespace

DirectWays::~DirectWays() {
  for (const Way& each : ways_) each.to.Placement().Hold(each.pid, 0);
}

void DirectWays::Open(const std::vector<Process*>& processes, const VGpuTable::Gpus& gpus,
                      const std::function<std::uint32_t(VgpuId)>& target) {
  if (std::exchange(opened_, true)) return;
  for (const Process* process : processes) {
    const std::uint32_t from = process->vgpu->gpu, to = target(process->vgpu->id);
    const bool one = std::ranges::count(processes, process->pid, &Process::pid) == 1;
    if (one && from != to && !process->suspension.Begun()) Open(*process, *gpus[from], *gpus[to]);
  }
}

void DirectWays::Open(const Process& process, GpuServer& from, GpuServer& to) {
  const auto first = from.Placement().HandoverSide(), second = to.Placement().HandoverSide();
  if (!first || !second || !first->link.Ready() || !second->link.Ready()) return;
  // What does not fit into the pool and the file is saved by the driver.
  const std::uint64_t bytes = std::min(process.residence.Movable(), MayGo(process, from));
  if (bytes == 0 || to.Placement().FreeRoom() < WithMargin(bytes)) return;
  to.Placement().Hold(process.pid, bytes);
  ways_.emplace_back(process, to, *first, *second, bytes);
}

bool DirectWays::Settled() const {
  return std::ranges::all_of(ways_, [](const Way& each) { return !each.way || each.way->Settled(); });
}

void DirectWays::Close(const std::vector<Process*>& processes) {
  for (Way& each : ways_) {
    each.bytes = each.Bytes();
    each.way.reset();
    const auto process = std::ranges::find(processes, each.pid, &Process::pid);
    each.to.Placement().Hold(each.pid, process == processes.end() ? 0 : (*process)->residence.Swapped());
  }
}

std::uint64_t DirectWays::Bytes() const {
  std::uint64_t bytes = 0;
  for (const Way& each : ways_) bytes += each.Bytes();
  return bytes;
}

void DirectWays::Arrived(const std::vector<Process*>& processes) const {
  for (Process* process : processes) {
    const bool came =
        std::ranges::any_of(ways_, [&](const Way& each) { return each.pid == process->pid && each.Bytes() > 0; });
    process->residence.comes_at_once |= came && process->residence.Swapped() > 0;
  }
}

}  // namespace tessera::server
