#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

namespace tessera::server {

// The memory that the kernel gate counted of each process, by the driver's instance of a GPU (`device`), and on which
// of our GPUs that is charged: where its first bytes were. Bytes. One thread.
class GateCounts {
 public:
  // Where a process's memory of this device is charged; nothing if it has none.
  std::optional<std::uint32_t> GpuOf(pid_t pid, std::uint32_t device) const {
    const auto process = counts_.find(pid);
    if (process == counts_.end()) return {};
    const auto found = process->second.find(device);
    if (found == process->second.end()) return {};
    return found->second.gpu;
  }

  // Of all devices that are charged there. Nothing if there never was any.
  std::optional<std::uint64_t> On(pid_t pid, std::uint32_t gpu) const {
    const auto process = counts_.find(pid);
    std::optional<std::uint64_t> sum;
    if (process == counts_.end()) return sum;
    for (const auto& [_, count] : process->second) {
      if (count.gpu == gpu) sum = sum.value_or(0) + count.bytes;
    }
    return sum;
  }

  // `gpu` is ignored for a device that is charged already.
  void Add(pid_t pid, std::uint32_t device, std::uint32_t gpu, std::uint64_t bytes) {
    counts_[pid].try_emplace(device, Count{.gpu = gpu}).first->second.bytes += bytes;
  }

  // No more than there is; it may come after the process was forgotten.
  void Take(pid_t pid, std::uint32_t device, std::uint64_t bytes) {
    const auto process = counts_.find(pid);
    if (process == counts_.end()) return;
    const auto found = process->second.find(device);
    if (found != process->second.end()) found->second.bytes -= std::min(found->second.bytes, bytes);
  }

  void Forget(pid_t pid) { counts_.erase(pid); }

 private:
  struct Count {
    std::uint32_t gpu = 0;
    std::uint64_t bytes = 0;
  };
  std::map<pid_t, std::map<std::uint32_t, Count>> counts_;
};

}  // namespace tessera::server
