#include "plan/runner.h"

#include <algorithm>
#include <utility>

namespace tessera::plan {

Runner::Runner(Program program, std::vector<Gpu*> gpus, sched::VgpuId id, const sched::Shares& shares,
               std::uint64_t seed, Nanos now)
    : program_(std::move(program)),
      gpus_(std::move(gpus)),
      parts_(gpus_.size(), {.vgpu = id,
                            .shares = shares,
                            .queue = program_.in_flight,
                            .sync = program_.sync,
                            .coupled = gpus_.size() > 1}),
      random_(seed),
      repeats_left_(program_.repeats) {
  began_ = now + random_.Of(program_.start);
  phase_at_ = began_ + (phase().begins == kNever ? 0 : phase().begins);
}

Nanos Runner::NextEvent(Nanos now) const {
  Nanos next = std::min({phase_at_, arrival_at_, step_at_});
  for (const Part& part : parts_) next = std::min(next, part.EndsAt(now));
  return next;
}

Result<void> Runner::Migrate(Gpu& to, Nanos pause, Nanos now) {
  Part& part = parts_.front();
  const MemoryModel::Luggage luggage = gpus_.front()->Remove(part, now);
  const Nanos at = now + pause + luggage.out_for;
  if (auto arrived = to.Arrive(part, program_.terms, luggage, at, now); !arrived) {
    (void)gpus_.front()->Arrive(part, program_.terms, luggage, at, now);
    return arrived;
  }
  part.figures.bytes_out += luggage.resident;
  gpus_.front() = &to;
  arrives_at_ = at;
  return {};
}

bool Runner::WorkDone() const {
  return has_work_ && std::ranges::all_of(parts_, [](const Part& part) { return part.work == 0; });
}

void Runner::Step(Nanos now) {
  if (WorkDone()) EndStep(now);
  if (step_at_ <= now) BeginStep(now);
  if (phase_at_ <= now) BeginPhase(now);
  if (arrival_at_ <= now) Arrive(now);
}

Nanos Runner::NextBegins() const {
  return phase_ + 1 == program_.phases.size() ? kNever : program_.phases[phase_ + 1].begins;
}

void Runner::BeginPhase(Nanos now) {
  if (due_) ++phase_;
  phase_at_ = NextBegins() == kNever ? kNever : began_ + NextBegins();
  due_ = phase_at_ != kNever;
  to_arrive_ = to_end_ = phase().bursts;
  Wish(phase().memory, now);
  arrival_at_ = to_arrive_ > 0 ? now : kNever;
  if (to_arrive_ == 0 && !due_) EndPhase(now);
}

// The next phase follows after the gap.
void Runner::EndPhase(Nanos now) {
  const Nanos gap = random_.Of(phase().gap);
  if (++phase_ == program_.phases.size()) {
    phase_ = 0;
    if (repeats_left_ != kEndless) --repeats_left_;
  }
  if (repeats_left_ > 0) {
    phase_at_ = now + gap;
    return;
  }
  figures_.finished_at = now;
  Wish(0, now);
}

void Runner::Arrive(Nanos now) {
  if (to_arrive_ != kEndless) --to_arrive_;
  waiting_.push_back({now, &phase(), 0});
  arrival_at_ = phase().open && to_arrive_ > 0 ? now + random_.Of(phase().gap) : kNever;
  if (!in_burst_) BeginBurst(now);
}

// A program does one thing after the other: it takes and frees memory when the bursts that came before have ended.
void Runner::Wish(std::uint64_t memory, Nanos now) {
  if (in_burst_) {
    waiting_.push_back({now, nullptr, memory});
  } else {
    Allocate(memory, now);
  }
}

void Runner::BeginNext(Nanos now) {
  for (; !waiting_.empty() && waiting_.front().phase == nullptr; waiting_.pop_front())
    Allocate(waiting_.front().memory, now);
  if (!waiting_.empty()) BeginBurst(now);
}

void Runner::BeginBurst(Nanos now) {
  arrived_at_ = waiting_.front().arrived;
  of_ = waiting_.front().phase;
  waiting_.pop_front();
  in_burst_ = true;
  burst_left_ = of_->burst;
  BeginStep(now);
}

void Runner::BeginStep(Nanos now) {
  step_at_ = kNever;
  const Nanos work = of_->step > 0 ? std::min(of_->step, burst_left_) : burst_left_;
  if (work == 0) return EndBurst(now);
  if (burst_left_ != kNever) burst_left_ -= work;
  has_work_ = true;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].work = work;
    gpus_[i]->Submits(parts_[i], now);
  }
}

void Runner::EndStep(Nanos now) {
  has_work_ = false;
  for (std::size_t i = 0; i < parts_.size(); ++i) gpus_[i]->Done(parts_[i], now);
  if (burst_left_ > 0) {
    step_at_ = now + random_.Of(of_->pause);
  } else {
    EndBurst(now);
  }
}

void Runner::EndBurst(Nanos now) {
  in_burst_ = false;
  figures_.latencies.push_back(now - arrived_at_);
  for (std::size_t i = 0; program_.tells && i < parts_.size(); ++i) gpus_[i]->Told(parts_[i], now - arrived_at_, now);
  const bool of_this = of_ == &phase();
  if (of_this && to_end_ != kEndless) --to_end_;
  if (of_this && to_end_ == 0 && !due_) return EndPhase(now);
  if (!waiting_.empty()) return BeginNext(now);
  if (of_this && to_end_ > 0 && !phase().open) arrival_at_ = now + random_.Of(phase().gap);
}

void Runner::Allocate(std::uint64_t bytes, Nanos now) {
  for (std::size_t i = 0; i < parts_.size(); ++i) gpus_[i]->Allocate(parts_[i], bytes, now);
}

void Runner::SetPace() {
  std::uint32_t pace = 0;
  for (const Part& part : parts_) pace = std::max(pace, part.among);
  const bool all = std::ranges::all_of(parts_, &Part::Executes);
  for (Part& part : parts_) part.pace = all ? pace : 0;
}

void Runner::Elapse(Nanos elapsed) {
  figures_.measured += elapsed;
  if (in_burst_) figures_.in_burst += elapsed;
}

}  // namespace tessera::plan
