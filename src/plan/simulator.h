// A simulation, in virtual time, of programs that share GPUs.
//
// It drives the very schedulers of src/sched that the daemon runs, time and memory together, with the costs of a real
// GPU. The same input gives the same figures. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "plan/gpu.h"
#include "plan/model/costs.h"
#include "plan/model/figures.h"
#include "plan/model/violations.h"
#include "plan/model/workload.h"
#include "plan/runner.h"
#include "sched/gangs/gangs.h"
#include "sched/goals/goals.h"

namespace tessera::plan {

class Simulator {
 public:
  explicit Simulator(const std::vector<GpuSpec>& gpus, std::uint64_t seed = 1);

  // A program in a vGPU of its own, on these GPUs (at least one). An error if the shares are wrong or do not fit, or
  // the id or a GPU's number is, or the goal could not be kept. Goals are kept where time is steered.
  Result<void> Add(sched::VgpuId id, const sched::Shares& shares, Program program,
                   const std::vector<std::size_t>& gpus = {0}, const std::optional<sched::Goal>& goal = {});
  Result<void> Update(sched::VgpuId id, const sched::Shares& shares);
  void Remove(sched::VgpuId id);

  // A program on one GPU goes to another one, which has as much memory and the same costs: it stands still for `pause`,
  // and until its memory is out.
  Result<void> Migrate(sched::VgpuId id, std::size_t to, Nanos pause);
  // The index of its GPU, of its first one where it has several; whether it is on its way there; bytes that it has
  // there.
  std::size_t GpuOf(sched::VgpuId id) const;
  bool Migrates(sched::VgpuId id) const { return runners_.at(id)->Migrates(now_); }
  std::uint64_t AllocatedBy(sched::VgpuId id) const;

  // Ends early after a violation.
  void Run(Nanos duration);
  Nanos now() const { return now_; }
  // Moments at which something happened, since the begin.
  std::uint64_t events() const { return events_; }

  // Figures are of the time since the last call of this. `window`: of PartFigures::windows; 0: none.
  void StartMeasuring(Nanos window = 0);
  PartFigures Of(sched::VgpuId id, std::size_t gpu = 0) const;  // `gpu`: index among the program's GPUs
  const BurstFigures& BurstsOf(sched::VgpuId id) const { return runners_.at(id)->figures(); }
  GpuFigures OfGpu(std::size_t gpu = 0) const { return gpus_.at(gpu)->Figures(); }

  // What the daemon would say of the program's goal, by now; empty without one, and where goals are not kept.
  std::optional<sched::GoalReport> GoalOf(sched::VgpuId id, std::size_t gpu = 0);

  // Acts of the schedulers that must never happen: two holders of a token, an order twice, a limit exceeded, an idle
  // GPU while a program waits, more memory promised or resident than there is, a deadline in the past, time that stands
  // still.
  const std::vector<std::string>& violations() const { return violations_.all(); }

 private:
  // GPUs with their programs that nothing connects with others while time passes.
  struct Island {
    std::vector<Gpu*> gpus;
    std::vector<Runner*> runners;
  };
  std::vector<Island> Islands() const;
  void RunUntil(Nanos end, const Island& island);
  Nanos NextEvent(const Island& island) const;
  std::size_t IndexOf(const Gpu* gpu) const;
  void Settle(const Island& island);
  bool OrderTurns();
  void Elapse(Nanos until, const Island& island);

  const std::uint64_t seed_;
  Violations violations_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  std::map<sched::VgpuId, std::unique_ptr<Runner>> runners_;
  sched::Gangs gangs_;  // a program on several GPUs is one
  std::map<std::pair<std::size_t, sched::VgpuId>, sched::GangTurn> turns_;
  bool has_gangs_ = false;  // or had: programs on several GPUs
  Nanos now_ = 0;           // of the island that runs
  std::uint64_t events_ = 0;
  Nanos window_ = 0;
  Nanos window_end_ = kNever;
};

}  // namespace tessera::plan
