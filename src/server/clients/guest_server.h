#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "server/channels/channel_server.h"
#include "server/clients/frozen_processes.h"
#include "server/clients/node_watch.h"
#include "server/clients/user_bounds.h"
#include "server/gpu/vgpu_table.h"
#include "server/loop/event_loop.h"
#include "server/model/gate_counts.h"
#include "server/state/state_file.h"

namespace tessera::server {

// Programs that use a GPU without a shim that speaks for them: those under the kernel gate, those that an operator
// adopted, and those that the watch just sees. Runs on the event loop's thread.
class GuestServer {
 public:
  // Everything that is given outlives the server.
  GuestServer(EventLoop& loop, VGpuTable& table, VGpuTable::Gpus& gpus, ChannelServer& channels, UserBounds& bounds,
              std::function<void()> on_change);
  ~GuestServer();

  NodeWatch& Watch() { return watch_; }

  // The kernel gate tells what a program in these vGPUs did to the driver's objects. False: the program has ended.
  bool Observe(pid_t pid, const std::vector<VgpuId>& vgpus, const channel::ObjectEvent& event, Nanos now);
  // The process of a program on the vGPU's GPU; a program that has none there joins. Null: it has ended.
  Process* Admit(pid_t pid, const std::vector<VgpuId>& vgpus, VGpu& vgpu, Nanos now);
  // Memory that the kernel gate counts.
  GateCounts& Counts() { return counts_; }
  Process* Find(pid_t pid, std::uint32_t gpu) const;

  // A program attached by its shim: it is a guest no more.
  void Attached(Process& process, Nanos now);
  // A connection by which it was attached is about to close, and has closed. If it lives on all the same, an operator's
  // freeze stands, and a program behind the kernel gate is a guest; with another such connection, nothing changes.
  void Closing(const Process& process);
  void Closed(pid_t pid, Nanos now);

  // Puts a running program that nobody manages into a vGPU. ENOENT: no such program on the vGPU's GPU. EBUSY: it is in
  // one already.
  Result<void> Adopt(pid_t pid, VGpu& vgpu, Nanos now);
  // The vGPU is about to be removed: its guests become unmanaged.
  void Abandon(const VGpu& vgpu, Nanos now);

  // Nothing keeps the vGPU any more but guests that were found to hold files of another program in it: they leave it.
  void Dismiss(const VGpu& vgpu, Nanos now);

  // Freezes any process that uses a GPU, for an operator, or lets it go on.
  Result<void> Freeze(pid_t pid, bool frozen, Nanos now);

  // The processes that the next daemon must know; whether a process is one of them; and those that the last one knew.
  std::vector<SavedProcess> Saved() const;
  bool Keeps(pid_t pid) const;
  void Restore(const std::vector<SavedProcess>& saved, Nanos now);

 private:
  // A program without a shim, with a process on each GPU that it uses.
  struct Guest {
    UserBounds::Claim claim;
    UniqueFd fd;  // pidfd
    uid_t uid;
    EventLoop::Watch watch;
    std::string name;
    std::vector<VgpuId> vgpus;                                    // it may use these
    std::vector<VgpuId> adopted;                                  // of these, those into which it was adopted
    std::map<std::uint32_t, std::unique_ptr<Process>> processes;  // by GPU
  };

  void OnWatch(const guard::WatchEvent& event, Nanos now);
  Result<Guest*> Know(pid_t pid, const std::vector<VgpuId>& vgpus);
  void Settle(pid_t pid, Guest& guest, Nanos now);
  Process* Join(pid_t pid, Guest& guest, VGpu& vgpu, Nanos now);
  void Ended(pid_t pid, Nanos now);
  bool Managed(pid_t pid) const;    // it is in a vGPU
  bool SpokenFor(pid_t pid) const;  // a session of it is attached
  Result<void> CheckAdoptable(pid_t pid, const VGpu& vgpu) const;
  void Recount(Process& process);

  EventLoop& loop_;
  VGpuTable& table_;
  VGpuTable::Gpus& gpus_;
  ChannelServer& channels_;
  UserBounds& bounds_;
  const std::function<void()> on_change_;
  std::map<pid_t, Guest> guests_;
  GateCounts counts_;
  FrozenProcesses frozen_;
  NodeWatch watch_;
};

}  // namespace tessera::server
