#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "channel/rm/object_table.h"
#include "guard/watch/watch_event.h"
#include "guard/watch/watch_memory.h"

namespace tessera::guard {

// A GPU program of the node.
struct WatchedProcess {
  pid_t pid = 0, host_pid = 0;  // as in WatchEvent
  std::string name;             // of the thread that used the GPU first
  channel::ObjectTable objects;
  WatchedMemory memory;
  bool complete = true;  // false: it may have made or freed objects that are not known here
};

// Table of the node's GPU programs and their objects, made from the watch's events. Pure.
//
// Memory that several processes hold counts for each. After kLost all entries are incomplete, and a process whose exit
// was lost stays until Remove.
class WatchTable {
 public:
  void Apply(const WatchEvent& event);
  // Forgets a process that the caller knows to be gone. `pid` in the daemon's namespace.
  void Remove(pid_t pid);

  // Null if it is no GPU program. Pointers are valid until the next Apply or Remove.
  const WatchedProcess* Find(pid_t pid) const;
  // Processes in the daemon's PID namespace, by pid, then the others.
  std::vector<const WatchedProcess*> All() const;
  std::size_t Size() const { return processes_.size(); }

 private:
  using Key = std::pair<bool, pid_t>;  // false and the pid in the daemon's namespace; true and the host's
  static Key KeyOf(const WatchEvent& event);
  WatchedProcess& Know(const WatchEvent& event);
  void ApplyAlloc(WatchedProcess& process, const WatchEvent& event);
  void ApplyDup(WatchedProcess& process, const WatchEvent& event);
  WatchedMemory::Size FindMemory(const WatchedProcess& first, std::uint32_t client, std::uint32_t object) const;

  std::map<Key, WatchedProcess> processes_;
};

}  // namespace tessera::guard
