#pragma once

#include <vector>

#include "base/clock.h"
#include "sched/steering/call_budget.h"
#include "sched/steering/order.h"
#include "sched/steering/steering_config.h"

namespace tessera::sched {

// Orders that have been made and not taken yet, and the budget of driver calls that they are paid from. Not
// thread-safe; times never go backwards.
class OrderList {
 public:
  // Calls that must be left: for a thaw also its freeze, for a slice some for those.
  static constexpr double kCallsForGo = 2;
  static constexpr double kCallsForSlice = 4;

  explicit OrderList(const SteeringConfig& config);

  // `calls`: a stop or go that takes a driver call, as the vGPU has work on the GPU. False if the contrary order, which
  // was not taken yet, was withdrawn instead.
  bool Push(const Order& order, bool calls = false);
  // Drops what is ordered of a vGPU that is gone.
  void Forget(VgpuId vgpu);

  // The orders since the last call, in order. They are paid now.
  std::vector<Order> Take(Nanos now);

  // Whether calls are left for the list and so many more.
  bool Has(Nanos now, double calls) { return budget_.Has(now, Calls() + calls); }
  // Whether one more thaw is paid for: it needs no call of its own, or there are calls for it and the freeze after it.
  bool HasForGo(Nanos now);
  // When so many calls are left, if no more are made.
  Nanos When(Nanos now, double calls) { return budget_.When(now, calls); }

 private:
  struct Pending {
    Order order;
    bool calls;
  };

  double Calls(std::uint32_t more_goes = 0) const;

  const std::uint32_t vgpus_per_call_;
  CallBudget budget_;
  std::vector<Pending> list_;
};

}  // namespace tessera::sched
