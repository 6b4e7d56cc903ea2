#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "plan/memory/memory_model.h"
#include "plan/model/costs.h"
#include "plan/model/part.h"
#include "plan/model/violations.h"
#include "plan/time/time_model.h"

namespace tessera::plan {

// One simulated GPU: joins the division of its time and the policy for its memory, as the daemon's GPU server does.
class Gpu {
 public:
  Gpu(const GpuSpec& spec, std::uint64_t seed, Violations& violations);

  // The part outlives its stay here.
  Result<void> Add(Part& part, const MemoryTerms& terms, Nanos now);
  Result<void> Update(Part& part, const sched::Shares& shares, Nanos now);
  MemoryModel::Luggage Remove(Part& part, Nanos now);
  // As Add, of a part that has left another GPU with its work and its memory; it stands still until `at`.
  Result<void> Arrive(Part& part, const MemoryTerms& terms, const MemoryModel::Luggage& luggage, Nanos at, Nanos now);
  std::uint64_t AllocatedBy(const Part& part) const { return memory_ ? memory_->AllocatedBy(part) : 0; }

  void Allocate(Part& part, std::uint64_t bytes, Nanos now);
  void Submits(Part& part, Nanos now) { time_->Submits(part, now); }
  void Done(Part& part, Nanos now) { time_->Done(part, now); }
  void Told(Part& part, Nanos latency, Nanos now) { time_->Told(part, latency, now); }
  std::optional<sched::GoalReport> GoalOf(const Part& part, Nanos now) { return time_->GoalOf(part, now); }

  Nanos NextEvent() const;
  void Step(Nanos now);
  void Settle(Nanos now);
  sched::TurnWishes Wishes() const { return memory_ ? memory_->Wishes() : sched::TurnWishes(); }
  // The order over several GPUs has said this of the part's turns.
  void SetTurn(const Part& part, sched::GangTurn turn) {
    if (memory_) memory_->SetTurn(part.vgpu, turn);
  }
  // Lets time pass in which nothing changes.
  void Elapse(Nanos from, Nanos to);

  // Figures are of the time since this.
  void StartMeasuring(Nanos now);
  GpuFigures Figures() const;
  PartFigures FiguresOf(const Part& part, Nanos now) const;
  void EndWindow(Nanos length);

 private:
  Nanos Billed(const Part& part, Nanos now) const;  // 0 if nobody bills
  void CheckLimits(Nanos now);

  const GpuSpec spec_;
  Violations& violations_;
  std::unique_ptr<TimeModel> time_;
  std::optional<MemoryModel> memory_;  // empty where the GPU has as much as all need
  std::vector<Part*> parts_;
  GpuFigures figures_;
  Nanos check_limits_at_ = kSecond;
};

}  // namespace tessera::plan
