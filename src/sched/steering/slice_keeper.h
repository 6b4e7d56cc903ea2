#pragma once

#include <vector>

#include "base/clock.h"
#include "sched/steering/limit_keeper.h"
#include "sched/steering/order_list.h"
#include "sched/steering/steered_vgpu.h"
#include "sched/steering/steering_config.h"

namespace tessera::sched {

// Slices under Steering: orders those that the vGPUs which run are due, and knows what part of the GPU's time the
// slices in force give them.
class SliceKeeper {
 public:
  using Running = std::vector<SteeredVgpu*>;  // by id

  explicit SliceKeeper(const SteeringConfig& config) : config_(config) {}

  // An operator changed terms: the next Update orders all that is wrong, without delay.
  void ChangeAtOnce() { at_once_ = true; }
  // Orders slices. A vGPU without one gets it at once; any other must have been wrong for a while, so that vGPUs which
  // come and go cause no calls.
  void Update(const Running& running, OrderList& orders, Nanos now);
  // Makes the slices short at once that are too long beside higher classes.
  static void Shorten(SteeredVgpus& vgpus, OrderList& orders, Nanos now);
  // Where slices are fixed: that of the vGPU's class.
  void Fix(SteeredVgpu& vgpu, OrderList& orders, Nanos now) const;
  // Sets `part` of those that run, and bills them by it from now on.
  void UpdateParts(const Running& running, const LimitKeeper& limits, Nanos now) const;

  // When a slice that is wrong changes; kNever.
  Nanos Due() const { return due_; }

 private:
  std::vector<Nanos> Wanted(const Running& running) const;
  std::vector<Nanos> Usual(const Running& running) const;
  static void Give(SteeredVgpu& vgpu, Nanos slice, OrderList& orders, Nanos now);

  const SteeringConfig config_;
  bool at_once_ = false;
  Nanos due_ = kNever;
};

}  // namespace tessera::sched
