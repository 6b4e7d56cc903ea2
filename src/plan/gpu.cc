#include "plan/gpu.h"

#include <algorithm>

#include "plan/time/free_time.h"
#include "plan/time/steered_time.h"
#include "plan/time/token_time.h"

namespace tessera::plan {
namespace {

std::unique_ptr<TimeModel> MakeTime(const GpuSpec& spec, std::uint64_t seed, Violations& violations) {
  switch (spec.time_by) {
    case TimeBy::kTokens:
      return std::make_unique<TokenTime>(spec, seed, violations);
    case TimeBy::kSteering:
      return std::make_unique<SteeredTime>(spec, seed, violations);
    case TimeBy::kNobody:
      break;
  }
  return std::make_unique<FreeTime>();
}

// The most by which a limit may be passed for a while: the saved quotas of two windows, work in flight, and a freeze.
double Slack(const Part& part, Nanos window) {
  constexpr double kLeastPct = 2;
  constexpr Nanos kFreezes = 20 * kMillisecond;
  return 2 * std::max(part.shares.limit_pct, kLeastPct) / 100 * static_cast<double>(window) +
         static_cast<double>(part.queue + kFreezes);
}

}  // namespace

Gpu::Gpu(const GpuSpec& spec, std::uint64_t seed, Violations& violations)
    : spec_(spec), violations_(violations), time_(MakeTime(spec, seed, violations)) {
  if (spec.memory > 0) memory_.emplace(spec, violations);
}

Result<void> Gpu::Add(Part& part, const MemoryTerms& terms, Nanos now) {
  if (auto added = time_->Add(part, now); !added) return added;
  parts_.push_back(&part);
  part.limited_since = now;
  part.billed_then = 0;
  if (memory_) memory_->Add(part, terms);
  return {};
}

Result<void> Gpu::Update(Part& part, const sched::Shares& shares, Nanos now) {
  if (auto updated = time_->Update(part, shares, now); !updated) return updated;
  part.shares = shares;
  part.limited_since = now;
  part.billed_then = Billed(part, now);
  if (memory_) memory_->Update(part);
  return {};
}

MemoryModel::Luggage Gpu::Remove(Part& part, Nanos now) {
  MemoryModel::Luggage luggage;
  if (memory_) luggage = memory_->Remove(part);
  time_->Remove(part, now);
  std::erase(parts_, &part);
  return luggage;
}

Result<void> Gpu::Arrive(Part& part, const MemoryTerms& terms, const MemoryModel::Luggage& luggage, Nanos at,
                         Nanos now) {
  part.held = false;
  part.in_flight = kNever;
  part.among = part.pace = 0;
  if (auto added = time_->Add(part, now); !added) return added;
  parts_.push_back(&part);
  part.limited_since = now;
  part.billed_then = part.billed_before = 0;
  if (memory_) memory_->Arrive(part, terms, luggage, at, now);
  if (part.work > 0) time_->Submits(part, now);
  return {};
}

void Gpu::Allocate(Part& part, std::uint64_t bytes, Nanos now) {
  if (memory_) memory_->Allocate(part, bytes, *time_, now);
}

Nanos Gpu::NextEvent() const {
  return memory_ ? std::min(time_->NextEvent(), memory_->NextEvent()) : time_->NextEvent();
}

void Gpu::Step(Nanos now) {
  time_->Step(now);
  if (memory_) memory_->Step(now);
}

void Gpu::Settle(Nanos now) {
  if (memory_) memory_->Settle(*time_, now);
  time_->Settle(now);
}

void Gpu::Elapse(Nanos from, Nanos to) {
  const Nanos elapsed = to - from;
  figures_.measured += elapsed;
  if (time_->Audits()) figures_.audited += elapsed;
  bool any_work = false;
  bool any_executes = false;
  bool all_held = true;
  for (Part* part : parts_) {
    if (part->work > 0) {
      any_work = true;
      any_executes |= part->Executes();
      all_held &= part->held;
    }
    part->Elapse(from, to);
  }
  if (any_executes) {
    figures_.executed += elapsed;
  } else if (any_work && all_held) {
    figures_.moving += elapsed;
  } else if (time_->Switching(from)) {
    figures_.switching += elapsed;
  }
  if (to >= check_limits_at_) CheckLimits(to);
}

// Time billed since a limit was set may pass the limit by no more than a constant. (Time executed may pass it by more,
// under steering, beside programs that pause: docs/scheduler.md. A kernel that waits for another GPU may run on for any
// time after its gate closed.)
void Gpu::CheckLimits(Nanos now) {
  constexpr double kTolerancePct = 0.5;
  check_limits_at_ = now + kSecond;
  for (const Part* part : parts_) {
    if (part->shares.limit_pct >= 100 || part->coupled) continue;
    const double permitted =
        (part->shares.limit_pct + kTolerancePct) / 100 * static_cast<double>(now - part->limited_since);
    violations_.Require(
        static_cast<double>(Billed(*part, now) - part->billed_then) <= permitted + Slack(*part, spec_.tokens.window),
        "a limit is exceeded", now);
  }
}

Nanos Gpu::Billed(const Part& part, Nanos now) const {
  const auto usage = time_->Billed(part, now);
  return usage ? usage->busy : 0;
}

void Gpu::StartMeasuring(Nanos now) {
  time_->Reset();
  if (memory_) memory_->Reset();
  figures_ = {};
  for (Part* part : parts_) {
    part->figures = {};
    part->waits_since = part->held_since = kNever;
    part->window_before = 0;
    part->billed_before = Billed(*part, now);
  }
}

GpuFigures Gpu::Figures() const {
  GpuFigures figures = figures_;
  time_->Count(figures);
  if (memory_) memory_->Count(figures);
  for (const Part* part : parts_) {
    figures.bytes_out += part->figures.bytes_out;
    figures.bytes_in += part->figures.bytes_in;
  }
  return figures;
}

PartFigures Gpu::FiguresOf(const Part& part, Nanos now) const {
  PartFigures figures = part.figures;
  if (const auto usage = time_->Billed(part, now)) {
    figures.billed = usage->busy - part.billed_before;
    figures.window_pct = usage->window_pct;
  }
  return figures;
}

void Gpu::EndWindow(Nanos length) {
  for (Part* part : parts_) part->EndWindow(length);
}

}  // namespace tessera::plan
