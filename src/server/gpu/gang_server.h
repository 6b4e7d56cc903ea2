#pragma once

#include <map>
#include <vector>

#include "base/clock.h"
#include "sched/gangs/gangs.h"
#include "server/loop/event_loop.h"
#include "server/model/vgpu.h"

namespace tessera::server {

class GpuServer;

// Serves the order of turns over all GPUs: tells sched::Gangs which vGPUs belong together and what they wish, and each
// residency server what was decided. vGPUs on several GPUs are a gang where a program uses more than one of them. Runs
// on the loop's thread.
class GangServer {
 public:
  // The loop outlives the server.
  GangServer(EventLoop& loop, const sched::ResidencyConfig& config);

  // Other lengths of turns, from the next one on.
  void Configure(const sched::ResidencyConfig& config) { gangs_.Configure(config); }

  // The GPU outlives the object, and tells it of each look at its memory from now on. Each once, in the order of their
  // indices.
  void Add(GpuServer& gpu);

  // A GPU has looked where memory lies: what it wishes may be different. The loop looks once after the event.
  void MarkDue() { look_.MarkDue(); }

 private:
  void Look(Nanos now);
  bool AnyTurns() const;
  std::map<VgpuId, sched::GangId> Members() const;

  std::vector<GpuServer*> gpus_;
  sched::Gangs gangs_;
  bool decides_ = false;  // for some GPU, as of the last look
  EventLoop::Timer timer_;
  EventLoop::Deferred look_;
};

}  // namespace tessera::server
