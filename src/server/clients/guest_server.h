#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "guard/supervisor/supervisor.h"
#include "guard/watch/watch.h"
#include "guard/watch/watch_table.h"
#include "server/channels/channel_server.h"
#include "server/gpu/vgpu_table.h"
#include "server/loop/event_loop.h"
#include "server/model/gate_counts.h"
#include "server/model/state_file.h"

namespace tessera::server {

// Programs that use a GPU without telling us through a shim: those under the kernel gate, which tells what they do to
// the driver's objects; those that an operator adopted; and those that the watch just sees. Runs on the event loop's
// thread.
class GuestServer {
 public:
  // Everything that is given outlives the server.
  GuestServer(EventLoop& loop, VGpuTable& table, VGpuTable::Gpus& gpus, ChannelServer& channels,
              std::function<void()> on_change);
  ~GuestServer();

  // Begins to watch the node, where that is permitted.
  void StartWatch();
  const std::string& WhyNoWatch() const { return why_no_watch_; }  // empty: it watches

  // Serves the seccomp listener of a program that is about to start in these vGPUs.
  Result<void> Supervise(UniqueFd listener, std::vector<VgpuId> vgpus, pid_t pid, const std::string& program);

  // A program attached by its shim: it is a guest no more.
  void Attached(Process& process, Nanos now);

  // Its connection is about to close, and has closed. If it lives on all the same, an operator's freeze stands, and one
  // behind the kernel gate is a guest.
  void Closing(const Process& process);
  void Closed(pid_t pid, Nanos now);

  // Puts a running program that nobody manages into a vGPU. ENOENT: no such program on the vGPU's GPU. EBUSY: it is in
  // one already.
  Result<void> Adopt(pid_t pid, VGpu& vgpu, Nanos now);

  // Any process that uses a GPU.
  Result<void> Freeze(pid_t pid, bool frozen, Nanos now);
  // The vGPU is about to be removed: its guests are nobody's then.
  void Abandon(const VGpu& vgpu, Nanos now);

  // A process on a GPU that is in no vGPU.
  struct Unmanaged {
    pid_t pid = 0;
    std::string name;
    std::uint32_t gpu = 0;
    std::uint64_t bytes = 0;
    bool complete = true;
    bool frozen = false;
  };
  std::vector<Unmanaged> List() const;
  bool Complete(pid_t pid) const;

  // Whether there is a program that only this daemon can serve: one behind the kernel gate, or an adopted one.
  bool NeedsDaemon() const {
    return !trees_.empty() ||
           std::ranges::any_of(guests_, [](const auto& entry) { return !entry.second.adopted.empty(); });
  }

  // Whether Saved tells of it.
  bool Keeps(pid_t pid) const;

  // What the next daemon must know, and what one before this knew.
  std::vector<SavedProcess> Saved() const;
  void Restore(const std::vector<SavedProcess>& saved, Nanos now);

 private:
  // A program without a shim, with a process on each GPU that it uses.
  struct Guest {
    UniqueFd fd;  // pidfd
    EventLoop::Watch watch;
    std::string name;
    std::vector<VgpuId> vgpus;                                    // it may use these
    std::vector<VgpuId> adopted;                                  // of these, those into which it was adopted
    std::map<std::uint32_t, std::unique_ptr<Process>> processes;  // by GPU
  };
  struct Tree {  // a program under the kernel gate and all that it starts
    std::vector<VgpuId> vgpus;
    std::unique_ptr<guard::Supervisor> supervisor;
  };

  void OnWatch(const guard::WatchEvent& event, Nanos now);
  void OnObject(std::uint64_t tree_id, pid_t pid, const channel::ObjectEvent& event, Nanos now);
  VGpu* PayerOf(pid_t pid, std::uint32_t device, const std::vector<VgpuId>& vgpus) const;
  bool OnCharge(std::uint64_t tree_id, pid_t pid, std::uint32_t device, std::uint64_t bytes, Nanos now);
  void OnGiveBack(pid_t pid, std::uint32_t device, std::uint64_t bytes, Nanos now);
  void OnTreeEnded(std::uint64_t tree_id, Nanos now);
  Result<Guest*> Know(pid_t pid, const std::vector<VgpuId>& vgpus);
  void Settle(pid_t pid, Guest& guest, Nanos now);
  Process* Join(pid_t pid, Guest& guest, VGpu& vgpu, Nanos now);
  void Ended(pid_t pid, Nanos now);
  Process* Find(pid_t pid, std::uint32_t gpu) const;
  bool Managed(pid_t pid) const;  // it is in a vGPU
  bool WasFrozen(pid_t pid) const;
  void Recount(Process& process);
  std::uint64_t BytesOf(pid_t pid, std::uint32_t gpu) const;

  EventLoop& loop_;
  VGpuTable& table_;
  VGpuTable::Gpus& gpus_;
  ChannelServer& channels_;
  const std::function<void()> on_change_;
  std::map<pid_t, Guest> guests_;
  GateCounts counted_;
  std::map<pid_t, std::uint64_t> frozen_;  // those that an operator froze by themselves, with their start
  guard::WatchTable watched_;
  std::string why_no_watch_ = "a soft GPU has no kernel driver to listen to";
  std::unique_ptr<guard::Watch> watch_;
  EventLoop::Watch watch_watch_;
  std::uint64_t last_tree_ = 0;
  std::map<std::uint64_t, Tree> trees_;  // last: their threads use the others through the loop
};

}  // namespace tessera::server
