#pragma once

#include "base/clock.h"
#include "sched/steering/order_list.h"
#include "sched/steering/steered_vgpu.h"
#include "sched/steering/steering_config.h"

namespace tessera::sched {

// Limits under Steering: which vGPUs have had what their limit permits, and when they may go on. A pure function of the
// vGPUs' accounts.
class LimitKeeper {
 public:
  explicit LimitKeeper(const SteeringConfig& config) : config_(config) {}

  // Sets `exhausted` and `admitted` of all.
  void Update(SteeredVgpus& vgpus, OrderList& orders, Nanos now) const;
  // The vGPU runs, and its part of the time is another now.
  void PartChanged(SteeredVgpu& vgpu, Nanos now) const;
  // When Update has to be called at the latest.
  Nanos Deadline(SteeredVgpus& vgpus, Nanos now) const;

 private:
  void EndTogether(SteeredVgpus& vgpus, Nanos now) const;
  void Readmit(SteeredVgpu& vgpu, OrderList& orders, Nanos now) const;
  Nanos Spare(const SteeredVgpu& vgpu) const;
  Nanos BackAt(const SteeredVgpu& vgpu, Nanos now) const;
  static void Exhaust(SteeredVgpu& vgpu);

  const SteeringConfig config_;
};

}  // namespace tessera::sched
