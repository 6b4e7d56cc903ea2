#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>

#include "base/process/process_start.h"

namespace tessera::server {

// Processes that an operator froze by themselves, not with their vGPU, by pid and start time. Such a freeze outlasts
// the process's connection, and the daemon.
class FrozenProcesses {
 public:
  void Add(pid_t pid) {
    if (const auto start = ProcessStart(pid)) processes_[pid] = *start;
  }
  void Add(pid_t pid, std::uint64_t start) { processes_[pid] = start; }
  bool Remove(pid_t pid) { return processes_.erase(pid) > 0; }
  // Removes those that have ended.
  void Prune() {
    std::erase_if(processes_, [this](const auto& entry) { return !Holds(entry.first); });
  }

  bool Contains(pid_t pid) const { return processes_.contains(pid); }
  // It contains the process, and the pid is not another process's by now.
  bool Holds(pid_t pid) const {
    const auto found = processes_.find(pid);
    if (found == processes_.end()) return false;
    const auto start = ProcessStart(pid);
    return start && *start == found->second;
  }
  const std::map<pid_t, std::uint64_t>& All() const { return processes_; }

 private:
  std::map<pid_t, std::uint64_t> processes_;
};

}  // namespace tessera::server
