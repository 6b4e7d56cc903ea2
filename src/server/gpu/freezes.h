#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "server/channels/channel_server.h"
#include "server/model/vgpu.h"
#include "server/time/time_control.h"

namespace tessera::server {

class Peers;

// Makes processes of one GPU stand still whatever the policy decides: for an operator, while their memory, or that of
// their peers, is moved, and when they have memory that they must not have. Freezes their channels where those are
// known, and holds their gates. Watches whether freezes hold. Owns Process::freeze. Runs on the loop's thread.
class Freezes {
 public:
  // The vGPUs, the channels and the time control outlive the object.
  Freezes(std::uint32_t gpu, const std::vector<VGpu*>& vgpus, ChannelServer& channels, TimeControl& time)
      : gpu_(gpu), vgpus_(vgpus), channels_(channels), time_(time) {}

  // Holds for memory concern peers, too. They outlive the object.
  void Heed(Peers& peers) { peers_ = &peers; }

  void SetByOperator(Process& process, bool frozen, Nanos now);
  void SetByOperator(VGpu& vgpu, bool frozen, Nanos now);
  void SetByResidency(Process& process, MemoryHold hold, Nanos now);
  void SetByPeers(Process& process, bool moved, Nanos now);
  void SetOverdrawn(Process& process, bool overdrawn, Nanos now);
  // Whether its suspension holds it is not as before: from now on its gate stops it and its channels run, or as usual.
  void SuspensionChanged(Process& process, Nanos now);

  // A process begins to join: an earlier daemon may have frozen it for memory. And it has joined: it may be frozen
  // already, or must be.
  void Joining(Process& process) const;
  void Joined(Process& process, Nanos now);
  // A process of this program has left its vGPU.
  void Left(pid_t pid, Nanos now);
  // Freezes those again that must stand still: that may have been impossible when it was ordered.
  void ApplyAll(Nanos now);

  // A program in a space is stopped by its gate, and drains. Where the policy has taken its space off the GPU it cannot
  // drain: then the whole space must not run before the program's memory has been moved. To be called when a space may
  // have been stopped, or a program in one must stand.
  void MindSpaces();

  // Looks whether the process went on while all of its channels that are known were frozen. Process::freeze.evades says
  // what comes of it.
  void Check(Process& process) const;

 private:
  FreezeReason WantedFor(const Process& process) const;
  void Apply(Process& process, Nanos now);

  const std::uint32_t gpu_;
  const std::vector<VGpu*>& vgpus_;
  ChannelServer& channels_;
  TimeControl& time_;
  Peers* peers_ = nullptr;  // null: there is one GPU
};

}  // namespace tessera::server
