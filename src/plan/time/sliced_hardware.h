#pragma once

#include <map>
#include <optional>

#include "base/clock.h"
#include "plan/model/costs.h"
#include "plan/model/part.h"

namespace tessera::plan {

// The channels of one program, as the GPU's own scheduler has them.
struct ChannelGroup {
  Part* part = nullptr;
  Nanos slice = 2048 * kMicrosecond;  // the driver's default
  bool on_gpu = false;                // its work passed the gate
  bool frozen = false;                // for any reason

  bool CanRun() const { return on_gpu && part->work > 0 && !frozen; }
};

// A GPU's own scheduler: programs run one after the other, each for its slice. A program that cannot run leaves the GPU
// at once; one that is alone begins its slice anew.
class SlicedHardware {
 public:
  explicit SlicedHardware(const SteeringCosts& costs) : costs_(costs) {}

  // Chooses who runs, and sets Part::among of all.
  void Dispatch(const std::map<sched::VgpuId, ChannelGroup>& groups, Nanos now);
  void Remove(sched::VgpuId vgpu) {
    if (runs_ == vgpu) runs_.reset();
  }
  // When the switch or the slice ends.
  Nanos NextEvent() const;
  bool Switching(Nanos now) const { return runs_ && now < switched_at_; }
  std::int64_t switches() const { return switches_; }
  void Reset() { switches_ = 0; }

 private:
  const SteeringCosts costs_;
  std::optional<sched::VgpuId> runs_;
  sched::VgpuId last_ = 0;
  Nanos now_ = 0;
  Nanos switched_at_ = 0;  // the switch to `runs_` ends
  Nanos slice_end_ = 0;
  bool alone_ = false;  // no other program can run: nothing happens when the slice ends
  std::int64_t switches_ = 0;
};

}  // namespace tessera::plan
