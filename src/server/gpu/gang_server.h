#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/clock.h"
#include "sched/gangs/gang_members.h"
#include "sched/gangs/gang_time.h"
#include "sched/gangs/gangs.h"
#include "server/config/config.h"
#include "server/loop/event_loop.h"
#include "server/model/vgpu.h"

namespace tessera::server {

class GpuServer;

// Server of the two orders over all GPUs, of memory's turns and of the GPUs' time: tells sched::Gangs and
// sched::GangTime which vGPUs belong together, what they wish and do, and each GPU what was decided. vGPUs on several
// GPUs are a gang where a user gave them one name, or a program uses more than one of them; for time, also where a
// program joins them, as its processes may use one GPU each. Runs on the loop's thread.
class GangServer {
 public:
  // Both outlive the server.
  GangServer(EventLoop& loop, const Config& config);

  // The configuration has changed: other lengths of turns, from the next one on.
  void Configure() { gangs_.Configure(config_.residency); }

  // The GPU outlives the object, and tells it of each look at its memory from now on. Each once, in the order of their
  // indices.
  void Add(GpuServer& gpu);

  // A GPU has looked where memory lies: what it wishes may be different. The loop looks once after the event.
  void MarkDue();
  // On a GPU somebody runs, or waits, that did not.
  void MarkTimeDue();
  // A program has joined a vGPU, or left it, or a vGPU has another gang.
  void MembersChanged();

 private:
  using Members = std::map<VgpuId, sched::GangId>;  // of the vGPUs in gangs

  void Look(Nanos now);
  void LookAtMemory(Nanos now);
  void LookAtTime(Nanos now);
  void Stand(const std::vector<std::set<VgpuId>>& standing, Nanos now);
  bool AnyTurns() const;
  std::vector<sched::GangCandidate> Candidates() const;

  const Config& config_;
  std::vector<GpuServer*> gpus_;
  Members users_, members_;  // for memory; for time
  bool members_due_ = false;
  sched::Gangs gangs_;
  bool decides_ = false;  // for some GPU, as of the last look
  bool memory_due_ = false;
  sched::GangTime time_;
  std::vector<std::set<VgpuId>> standing_;  // as each GPU was told
  EventLoop::Timer timer_;
  EventLoop::Deferred look_;
};

}  // namespace tessera::server
