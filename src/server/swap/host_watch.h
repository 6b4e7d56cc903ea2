#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "sched/residency/residency_state.h"
#include "server/model/vgpu.h"
#include "server/record/events.h"

namespace tessera::server {

// Watches one GPU for programs that work on memory in host memory for long, or that have some there which no mover can
// bring back (stranded), and tells of them by events. What is long and what is much decides sched::HostWork. Runs on
// the loop's thread.
class HostWatch {
 public:
  // `longest`: a program may work so long on host memory until an event says so; 0: there are no such events.
  HostWatch(std::uint32_t gpu, Nanos longest) : gpu_(gpu), longest_(longest) {}
  void Configure(Nanos longest) { longest_ = longest; }

  // After a look at the residency. `state` has the processes in the order of `vgpus`. Returns when to look again at the
  // latest; kNever if nothing can change before another look.
  Nanos Look(const std::vector<VGpu*>& vgpus, const sched::ResidencyState& state, Nanos now) const;

 private:
  bool LookForStranded(Process& process) const;
  void Tell(const Process& process, const sched::HostUse& use, sched::HostWork::News news, Nanos now) const;
  void Note(EventType type, const Process& process, std::string text) const;

  const std::uint32_t gpu_;
  Nanos longest_;
};

}  // namespace tessera::server
