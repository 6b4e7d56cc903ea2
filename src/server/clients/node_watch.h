#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "guard/watch/watch.h"
#include "guard/watch/watch_table.h"
#include "server/gpu/gpu_server.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// Bytes of a process in no vGPU. The watch sees an allocation at once, and the device's figure has all of them, also
// those that the watch cannot see.
std::uint64_t UnmanagedBytes(const guard::WatchTable& seen, GpuServer& gpu, pid_t pid);

// Sees every program of the node that uses a GPU, where the daemon may load BPF programs. Runs on the event loop's
// thread.
class NodeWatch {
 public:
  // `on_event` is called for what a program did, after the table has it. The loop outlives the watch.
  NodeWatch(EventLoop& loop, std::function<void(const guard::WatchEvent&, Nanos)> on_event);

  void Start();
  const std::string& WhyNot() const { return why_not_; }  // empty: it watches

  const guard::WatchTable& Seen() const { return seen_; }
  void Forget(pid_t pid) { seen_.Remove(pid); }
  // False: the process began before the watch, and has, or had, more than was seen.
  bool Complete(pid_t pid) const;

 private:
  EventLoop& loop_;
  const std::function<void(const guard::WatchEvent&, Nanos)> on_event_;
  guard::WatchTable seen_;
  std::string why_not_ = "a soft GPU has no kernel driver to listen to";
  std::unique_ptr<guard::Watch> watch_;
  EventLoop::Watch readable_;
};

}  // namespace tessera::server
