#pragma once

#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "plan/model/part.h"
#include "sched/goals/goals.h"
#include "sched/tokens/token_scheduler.h"

namespace tessera::plan {

// How one simulated GPU divides its time: a scheduler of src/sched, the daemon that obeys it, and the hardware below.
// Sets Part::among and Part::in_flight; reads the rest of Part. Parts outlive it or are removed first. Times never go
// back.
class TimeModel {
 public:
  virtual ~TimeModel() = default;

  // As the scheduler's: an error if the shares are wrong or do not fit.
  virtual Result<void> Add(Part& part, Nanos now) = 0;
  virtual Result<void> Update(Part& part, const sched::Shares& shares, Nanos now) = 0;
  virtual void Remove(Part& part, Nanos now) = 0;

  // The program's thread: it has work for the GPU now; that work has ended.
  virtual void Submits(Part& part, Nanos now) = 0;
  virtual void Done(Part& part, Nanos now) = 0;

  // The program's thread: it tells the daemon that a burst took so long. Ignored where goals are not kept.
  virtual void Told(Part&, Nanos, Nanos) {}

  // Its memory is not there, or is there again: Part::held has changed.
  virtual void Hold(Part& part, Nanos now) = 0;
  // Held, and nothing of it executes until it is let go: its memory may be moved.
  virtual bool Still(const Part& part) const = 0;
  // It has work or waits, as far as the daemon knows.
  virtual bool Active(const Part& part) const = 0;

  // When Step has to be called at the latest; kNever.
  virtual Nanos NextEvent() const = 0;
  // Does what is due.
  virtual void Step(Nanos now) = 0;
  // All events of this moment are told: obeys orders, and decides who executes.
  virtual void Settle(Nanos now) = 0;

  // Time that the scheduler billed since the part was added; empty if none bills.
  virtual std::optional<sched::Usage> Billed(const Part& part, Nanos now) const = 0;
  // The GPU is changing from one program to another.
  virtual bool Switching(Nanos now) const = 0;
  // A program has the GPU to itself, so that its speed alone is measured.
  virtual bool Audits() const { return false; }
  // What has come of the part's goal; empty without one, and where goals are not kept.
  virtual std::optional<sched::GoalReport> GoalOf(const Part&, Nanos) { return {}; }
  // Adds what it counted since Reset.
  virtual void Count(GpuFigures& figures) const = 0;
  virtual void Reset() = 0;
};

}  // namespace tessera::plan
