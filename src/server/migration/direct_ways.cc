#include "server/migration/direct_ways.h"

#include <algorithm>

#include "base/size.h"
#include "server/record/log.h"
#include "server/swap/chunks.h"

namespace tessera::server {
namespace {

// Of its memory: the bound of what its vGPU may have outside of GPUs (memory.swap.max, else the pool).
std::uint64_t MayGo(const Process& process, GpuServer& from) {
  const std::uint64_t most = process.vgpu->spec.memory.swap.value_or(from.Residency().SwapMax());
  std::uint64_t out = 0;
  for (const Process* each : process.vgpu->processes) out += each->residence.Swapped();
  return most - std::min(most, out);
}

}  // namespace

DirectWays::~DirectWays() {
  for (const Way& each : ways_) each.to->Placement().Hold(each.pid, 0);
}

void DirectWays::Open(const std::vector<Process*>& processes, const VGpuTable::Gpus& gpus,
                      const std::function<std::uint32_t(VgpuId)>& target, const Unreachable& unreachable) {
  if (std::exchange(opened_, true)) return;
  for (const Process* process : processes) {
    const std::uint32_t from = process->vgpu->gpu, to = target(process->vgpu->id);
    const bool one = std::ranges::count(processes, process->pid, &Process::pid) == 1;
    if (one && from != to && !process->suspension.Begun()) Open(*process, *gpus[from], *gpus[to], unreachable);
  }
}

void DirectWays::Open(const Process& process, GpuServer& from, GpuServer& to, const Unreachable& unreachable) {
  const auto first = from.Placement().HandoverSide(), second = to.Placement().HandoverSide();
  if (!first || !second || !first->link.Ready() || !second->link.Ready()) return;
  // What does not fit into the pool and the file is saved by the driver.
  const std::uint64_t bytes = std::min(process.residence.Movable(), MayGo(process, from));
  if (bytes == 0) return;
  const bool reaches =
      std::ranges::count(to.Info().reaches, from.Index()) > 0 && !unreachable.contains({from.Index(), to.Index()});
  const bool roomy = to.Placement().FreeRoom() >= bytes;
  const bool direct = reaches && roomy;
  log::Debug("process {}: its memory goes to GPU {} {}", process.pid, to.Index(),
             direct   ? "directly"
             : !roomy ? "through host memory, as there is no room for all of it at once"
                      : "through host memory, as that GPU does not reach this one");
  if (direct) to.Placement().Hold(process.pid, bytes);
  ways_.push_back({.pid = process.pid,
                   .to = &to,
                   .direct = direct,
                   .ahead = std::make_unique<SlotsAhead>(*first, *second, process.pid,
                                                         direct ? SlotsAhead::What::kShown : SlotsAhead::What::kFree,
                                                         UpToChunks(bytes) / wire::kChunkBytes)});
}

bool DirectWays::Has(pid_t pid) const {
  return std::ranges::any_of(ways_, [pid](const Way& each) { return each.pid == pid && each.direct; });
}

bool DirectWays::Settled() const {
  return std::ranges::all_of(ways_, [](const Way& each) { return each.ahead->Settled(); });
}

bool DirectWays::Any() const { return std::ranges::any_of(ways_, &Way::direct); }

void DirectWays::Close(const std::vector<Process*>& processes) {
  for (const Way& each : ways_) {
    const auto process = std::ranges::find(processes, each.pid, &Process::pid);
    const bool there = each.direct && process != processes.end();
    each.to->Placement().Hold(each.pid, there ? (*process)->residence.Swapped() : 0);
  }
}

void DirectWays::Arrived(const std::vector<Process*>& processes) const {
  for (Process* process : processes)
    process->residence.comes_at_once |= Has(process->pid) && process->residence.Swapped() > 0;
}

}  // namespace tessera::server
