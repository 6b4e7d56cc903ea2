#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/unique_fd.h"
#include "channel/control/control.h"
#include "channel/control/process_objects.h"

namespace tessera::server {

// Which channels each GPU process of this machine has, as the shim, the kernel gate and the watch tell. Runs on the
// event loop's thread.
class ChannelTable {
 public:
  using Source = channel::ProcessObjects::Source;

  // The control outlives the table. Null: no GPU's objects can be told apart, and no process has channels.
  explicit ChannelTable(channel::Control* control);

  // Whether the process's channels may be others now.
  bool Apply(pid_t pid, const channel::ObjectEvent& event, Source source);
  void Restore(pid_t pid, const std::vector<channel::ObjectEvent>& events);
  void Erase(pid_t pid) { processes_.erase(pid); }

  bool Alive(pid_t pid) const;
  // The process is older than this daemon: one before may have frozen it.
  bool IsOlder(pid_t pid);

  // The channels that the process is said to have on a GPU.
  std::vector<channel::Group> Groups(pid_t pid, std::uint32_t gpu) const;
  channel::Target TargetOn(pid_t pid, std::uint32_t gpu);
  // All that it is said to have, on all GPUs.
  const channel::ObjectTable& Objects(pid_t pid) const;
  // Whether what is said is true. The answer may cost calls to the driver.
  bool Verify(pid_t pid);
  // Whether the process can be steered on the GPU: it has channels that compute, and they are its own.
  bool Computes(pid_t pid, std::uint32_t gpu);

  // Whether that is the GPU which the driver's objects name by this instance.
  bool IsDevice(std::uint32_t gpu, std::uint32_t instance) const;

 private:
  struct Entry {
    UniqueFd fd;  // pidfd
    channel::ProcessObjects objects;
    bool older = false;
    std::set<std::uint32_t> found_on;  // GPUs on which a control that knows processes found it
  };
  Entry& At(pid_t pid);

  channel::Control* const control_;
  const std::uint64_t started_;  // this daemon, as ProcessStart tells
  std::map<pid_t, Entry> processes_;
};

}  // namespace tessera::server
