#include "server/clients/unmanaged.h"

#include <set>
#include <utility>

#include "server/model/process_facts.h"

namespace tessera::server {
namespace {

// The daemon's own processes on GPUs.
std::set<pid_t> Movers(const VGpuTable::Gpus& gpus) {
  std::set<pid_t> movers;
  for (const auto& gpu : gpus) {
    if (gpu->Swaps()) movers.insert(gpu->Residency().MoverPid());
  }
  return movers;
}

}  // namespace

std::vector<Unmanaged> ListUnmanaged(GuestServer& guests, const VGpuTable::Gpus& gpus, const ChannelTable& channels) {
  std::vector<Unmanaged> list;
  std::set<std::pair<pid_t, std::uint32_t>> listed;
  const std::set<pid_t> movers = Movers(gpus);
  for (const guard::WatchedProcess* process : guests.Watch().Seen().All()) {
    if (process->pid == 0 || movers.contains(process->pid)) continue;
    for (const auto& gpu : gpus) {
      const std::uint32_t index = gpu->Index();
      const bool uses =
          !channels.Groups(process->pid, index).empty() || gpu->Measurement().Unmanaged().contains(process->pid);
      if (!uses || guests.Find(process->pid, index)) continue;
      list.push_back({process->pid, process->name, index, UnmanagedBytes(guests.Watch().Seen(), *gpu, process->pid),
                      process->complete});
      listed.emplace(process->pid, index);
    }
  }
  for (const auto& gpu : gpus) {
    for (const auto& [pid, bytes] : gpu->Measurement().Unmanaged()) {
      if (movers.contains(pid) || guests.Find(pid, gpu->Index()) || !listed.emplace(pid, gpu->Index()).second) continue;
      list.push_back({pid, CommandOf(pid), gpu->Index(), bytes, false});
    }
  }
  return list;
}

}  // namespace tessera::server
