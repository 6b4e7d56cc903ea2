#pragma once

#include "plan/time/time_model.h"

namespace tessera::plan {

// Time that nobody divides: all whose memory is there run at once, each as fast as alone.
class FreeTime : public TimeModel {
 public:
  Result<void> Add(Part& part, Nanos) override {
    parts_.push_back(&part);
    return sched::Validate(part.shares);
  }
  Result<void> Update(Part&, const sched::Shares& shares, Nanos) override { return sched::Validate(shares); }
  void Remove(Part& part, Nanos) override { std::erase(parts_, &part); }
  void Submits(Part&, Nanos) override {}
  void Done(Part&, Nanos) override {}
  void Hold(Part&, Nanos) override {}
  bool Still(const Part& part) const override { return part.held; }
  bool Active(const Part& part) const override { return part.work > 0; }
  Nanos NextEvent() const override { return kNever; }
  void Step(Nanos) override {}
  void Settle(Nanos) override {
    for (Part* part : parts_) part->among = part->work > 0 && !part->held ? 1 : 0;
  }
  std::optional<sched::Usage> Billed(const Part&, Nanos) const override { return {}; }
  bool Switching(Nanos) const override { return false; }
  void Count(GpuFigures&) const override {}
  void Reset() override {}

 private:
  std::vector<Part*> parts_;
};

}  // namespace tessera::plan
