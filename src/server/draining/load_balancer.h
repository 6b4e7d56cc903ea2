#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "sched/balance/balancer.h"
#include "server/checkpoint/suspensions.h"
#include "server/draining/move_queue.h"
#include "server/gpu/vgpu_table.h"
#include "server/loop/event_loop.h"

namespace tessera::server {

// Has vGPUs moved from a GPU that is asked for more time than it has to one that has time to spare, where
// rebalance.load says so. Which goes where says sched::Balancer. Runs on the loop's thread.
class LoadBalancer {
 public:
  // Does nothing until it is configured. All outlive the object; the GPUs are there already.
  LoadBalancer(EventLoop& loop, VGpuTable& table, const VGpuTable::Gpus& gpus, const Suspensions& suspensions,
               MoveQueue& queue);
  LoadBalancer(const LoadBalancer&) = delete;

  void Configure(bool on, Nanos now);
  // vGPUs that were sent away from this GPU.
  std::uint64_t SentFrom(std::uint32_t gpu) const { return sent_[gpu]; }

 private:
  void Look(Nanos now);
  sched::Balancer::Seen See(const VGpu& vgpu, Nanos now) const;
  bool SendOne(Nanos now);

  VGpuTable& table_;
  const VGpuTable::Gpus& gpus_;
  const Suspensions& suspensions_;
  MoveQueue& queue_;
  const sched::BalanceRules rules_;
  bool on_ = false;
  sched::Balancer balancer_;
  std::vector<std::uint64_t> sent_;  // by GPU
  EventLoop::Timer timer_;
};

}  // namespace tessera::server
