#include "sched/simulator.h"

#include <algorithm>

namespace tessera::sched {

Simulator::Simulator(Machine machine, Config config)
    : machine_(machine), config_(config), scheduler_(config), random_(machine.seed) {}

void Simulator::Add(VgpuId id, Shares shares, Workload workload) {
  const auto added = scheduler_.Add(id, shares);
  Require(added.has_value(), "Add");
  programs_[id] = {.shares = shares, .workload = workload, .next = now_ + workload.start};
}

void Simulator::Update(VgpuId id, Shares shares) {
  Require(scheduler_.Update(id, shares, now_).has_value(), "Update");
  programs_.at(id).shares = shares;
  Obey();
}

void Simulator::Remove(VgpuId id) {
  programs_.erase(id);
  if (holder_ == id) holder_.reset();
  scheduler_.Remove(id, now_);
  Obey();
}

void Simulator::Run(Nanos duration) {
  const Nanos end = now_ + duration;
  while (violations_.empty()) {
    const Nanos deadline = scheduler_.NextDeadline();
    if (deadline != alarm_for_) {
      alarm_for_ = deadline;
      alarm_ = deadline == kNever ? kNever : deadline + Random(machine_.lateness);
    }
    const auto soonest = std::ranges::min_element(programs_, {}, [](const auto& entry) { return entry.second.next; });
    const Nanos next = std::min(alarm_, soonest == programs_.end() ? kNever : soonest->second.next);
    if (next > end) break;
    steps_without_time_ = next == now_ ? steps_without_time_ + 1 : 0;
    Require(steps_without_time_ < 10'000, "time stands still");
    now_ = next;
    if (alarm_ <= next) {
      alarm_for_ = -1;
      scheduler_.Advance(now_);
      Require(scheduler_.NextDeadline() >= now_, "a deadline in the past");
    } else {
      Step(soonest->first, soonest->second);
    }
    Obey();
  }
  now_ = end;
}

// The event of a program that is due now.
void Simulator::Step(VgpuId id, Program& program) {
  switch (program.state) {
    case State::kThinks:
      program.left = program.workload.burst > 0 ? program.workload.burst : kNever;
      return Wait(id, program);
    case State::kRuns:
      return FinishBurst(program);
    case State::kLooksIdle:
      return StopLookingIdle(id, program);
    case State::kDrains:
    case State::kStraggles:
      return FinishDrain(id, program);
    case State::kWaits:
      Require(false, "a program that waits has an event");
  }
}

void Simulator::Wait(VgpuId id, Program& program) {
  program.state = State::kWaits;
  program.next = kNever;
  program.wished = now_;
  scheduler_.Wants(id, now_);
}

void Simulator::StartRunning(Program& program, Nanos open_at) {
  program.state = State::kRuns;
  program.open_at = open_at;
  program.next = program.left == kNever ? kNever : open_at + program.left;
}

void Simulator::FinishBurst(Program& program) {
  Execute(program, now_);
  program.state = State::kLooksIdle;
  program.done_at = now_;
  program.next_burst = now_ + Think(program);
  program.next = std::min(program.next_burst, now_ + machine_.idle_grace);
}

void Simulator::StopLookingIdle(VgpuId id, Program& program) {
  if (program.next_burst <= now_) {
    program.left = program.workload.burst;
    StartRunning(program, now_);
  } else {
    program.state = State::kThinks;
    program.next = program.next_burst;
    holder_.reset();
    scheduler_.Idle(id, now_, program.done_at);
  }
}

void Simulator::FinishDrain(VgpuId id, Program& program) {
  if (program.state == State::kDrains) holder_.reset();
  scheduler_.Released(id, now_, now_);
  if (program.left > 0 && program.workload.sync == 0) {
    Wait(id, program);
  } else if (program.left == kNever) {
    program.state = State::kThinks;
    program.next = now_ + program.workload.sync;
  } else {
    program.state = State::kThinks;
    program.next = now_ + Think(program);
  }
}

void Simulator::Obey() {
  for (auto decisions = scheduler_.TakeDecisions(); !decisions.empty(); decisions = scheduler_.TakeDecisions()) {
    for (const Decision& decision : decisions) {
      ++decisions_;
      Program& program = programs_.at(decision.vgpu);
      if (decision.kind == Decision::Kind::kRevoke) {
        ObeyRevoke(decision.vgpu, program);
      } else if (holder_ != decision.vgpu) {
        ObeyGrant(decision, program);
      }
    }
  }
  for (const auto& [id, program] : programs_) {
    const bool may_run = program.state == State::kWaits && program.shares.limit_pct == 100;
    Require(holder_ || !may_run, "the GPU idles while a vGPU waits");
  }
}

void Simulator::ObeyGrant(const Decision& decision, Program& program) {
  if (holder_) {
    Program& straggler = programs_.at(*holder_);
    const bool may_go_on = straggler.state == State::kDrains && now_ >= straggler.revoked + config_.drain_timeout;
    Require(may_go_on, "two holders");
    straggler.state = State::kStraggles;
  }
  Require(decision.expires > now_, "a grant that has expired");
  Require(program.state == State::kWaits, "a grant that nobody wants");
  holder_ = decision.vgpu;
  const bool switches = last_ != decision.vgpu;
  switches_ += switches ? 1 : 0;
  last_ = decision.vgpu;
  const Nanos open_at = now_ + (switches ? machine_.hand_over : 0);
  program.longest_wait = std::max(program.longest_wait, open_at - program.wished);
  StartRunning(program, open_at);
}

void Simulator::ObeyRevoke(VgpuId id, Program& program) {
  Require(holder_ == id, "a revoke of a vGPU that does not hold");
  if (program.state == State::kLooksIdle) {
    holder_.reset();
    program.state = State::kThinks;
    program.next = std::max(now_, program.next_burst);
    scheduler_.Released(id, now_, program.done_at);
    return;
  }
  program.state = State::kDrains;
  program.revoked = now_;
  program.next = std::min(now_ + Random(program.workload.overrun), program.next);  // the burst may end before
  Execute(program, program.next);
}

void Simulator::Execute(Program& program, Nanos until) {
  program.executed += std::max<Nanos>(0, until - std::max(program.open_at, measured_from_));
  if (program.left != kNever) program.left -= std::max<Nanos>(0, until - program.open_at);
}

void Simulator::StartMeasuring() {
  measured_from_ = now_;
  decisions_ = switches_ = 0;
  for (auto& [id, program] : programs_) {
    program.executed = program.longest_wait = 0;
    program.billed_before = scheduler_.UsageOf(id, now_).busy;
  }
}

double Simulator::BilledPct(VgpuId id) const {
  return Pct(scheduler_.UsageOf(id, now_).busy - programs_.at(id).billed_before);
}

double Simulator::ExecutedPct(VgpuId id) const {
  const Program& program = programs_.at(id);
  const bool runs = program.state == State::kRuns;
  return Pct(program.executed + (runs ? std::max<Nanos>(0, now_ - std::max(measured_from_, program.open_at)) : 0));
}

Nanos Simulator::LongestWait(VgpuId id) const {
  const Program& program = programs_.at(id);
  return std::max(program.longest_wait, program.state == State::kWaits ? now_ - program.wished : 0);
}

Nanos Simulator::Random(Nanos most) { return most <= 0 ? 0 : std::uniform_int_distribution<Nanos>(0, most)(random_); }

double Simulator::Pct(Nanos time) const {
  return 100.0 * static_cast<double>(time) / static_cast<double>(now_ - measured_from_);
}

double Simulator::PerSecond(std::int64_t count) const {
  return static_cast<double>(count * kSecond) / static_cast<double>(now_ - measured_from_);
}

void Simulator::Require(bool holds, const std::string& what) {
  if (!holds) violations_.push_back(what + " at " + std::to_string(now_) + " ns");
}

}  // namespace tessera::sched
