#pragma once

#include <cstddef>
#include <vector>

#include "plan/gpus/gpu_model.h"
#include "plan/simulator.h"
#include "sched/balance/balancer.h"

namespace tessera::plan {

// Moves the programs of a simulated node between its GPUs, as the daemon does with rebalance.load.
class NodeBalancer {
 public:
  // The simulator outlives it; it has `gpus` GPUs of this type.
  NodeBalancer(Simulator& simulator, const GpuModel& gpu, std::size_t gpus);

  // A program that may move.
  void Add(sched::VgpuId program) { programs_.push_back(program); }
  // sched::Balancer::kEvery have passed. An error if a GPU does not take a program.
  Result<void> Look();

  // How often a program went to another GPU.
  std::size_t moves() const { return moves_; }

 private:
  std::vector<sched::Balancer::Seen> See() const;

  Simulator& simulator_;
  const GpuModel& gpu_;
  const std::vector<sched::Home> homes_;
  const sched::BalanceRules rules_;
  std::vector<sched::VgpuId> programs_;
  sched::Balancer balancer_;
  std::size_t moves_ = 0;
};

}  // namespace tessera::plan
