#include "sched/steering_simulator.h"

#include <algorithm>
#include <cmath>

namespace tessera::sched {

SteeringSimulator::SteeringSimulator(SteeredGpu gpu, SteeringConfig config)
    : gpu_(gpu), config_(config), steering_(config), random_(gpu.seed) {}

void SteeringSimulator::Add(VgpuId id, Shares shares, Demand demand) {
  Require(steering_.Add(id, shares, now_).has_value(), "Add");
  Program& program = programs_[id];
  program.demand = demand;
  program.grace = config_.least_grace;
  program.arrival = now_ + Random(0, demand.start);
  Obey();
}

void SteeringSimulator::Update(VgpuId id, Shares shares) {
  Require(steering_.Update(id, shares, now_).has_value(), "Update");
  Obey();
}

void SteeringSimulator::Remove(VgpuId id) {
  std::erase_if(effects_, [&](const auto& entry) { return entry.second.vgpu == id; });
  programs_.erase(id);
  if (runs_ == id) runs_.reset();
  steering_.Remove(id, now_);
  Obey();
  Dispatch();
}

void SteeringSimulator::Hold(VgpuId id, bool held) {
  programs_.at(id).held = held;
  steering_.Hold(id, held, now_);
  // The operator's freeze ends, but not the policy's: its thaw has not come.
  if (Program& program = programs_.at(id); !held && program.stop_ordered && program.on_gpu) {
    program.frozen = program.freeze_ordered = true;
  }
  Obey();
  Dispatch();
}

void SteeringSimulator::Run(Nanos duration) {
  const Nanos end = now_ + duration;
  while (violations_.empty()) {
    const Nanos deadline = steering_.NextDeadline();
    if (deadline != alarm_for_) {
      alarm_for_ = deadline;
      alarm_ = deadline == kNever ? kNever : std::max(now_, deadline) + Random(0, gpu_.lateness);
    }
    const Nanos next = std::min(NextEvent(), alarm_);
    if (next > end) break;
    steps_without_time_ = next == now_ ? steps_without_time_ + 1 : 0;
    Require(steps_without_time_ < 10'000, "time stands still");
    Elapse(next);
    if (alarm_ <= now_) {
      alarm_for_ = -1;
      steering_.Advance(now_);
      Require(steering_.NextDeadline() > now_, "a deadline in the past");
    }
    while (!effects_.empty() && effects_.begin()->first <= now_) {
      const Effect effect = effects_.extract(effects_.begin()).mapped();
      Apply(effect);
    }
    for (auto& [id, program] : programs_) {
      if (program.on_gpu && program.work == 0) FinishWork(id, program);
      if (program.step_at <= now_) StartWork(id, program);
      if (program.arrival <= now_) Arrive(id, program);
      if (program.idle_at <= now_) {
        program.idle_at = kNever;
        program.said_active = false;
        Tell(program, {Effect::Kind::kIdle, id, program.idle_since});
      }
    }
    Obey();
    Dispatch();
  }
  Elapse(end);
}

Nanos SteeringSimulator::NextEvent() const {
  Nanos next = effects_.empty() ? kNever : effects_.begin()->first;
  for (const auto& [_, program] : programs_) {
    next = std::min({next, program.arrival, program.step_at, program.idle_at});
  }
  if (!runs_) return next;
  const Program& program = programs_.at(*runs_);
  const Nanos from = std::max(now_, switched_);
  if (program.work != kNever) next = std::min(next, from + program.work);
  return std::min(next, std::max(slice_end_, from));
}

void SteeringSimulator::Elapse(Nanos until) {
  for (auto& [_, program] : programs_) {
    const Nanos elapsed = until - std::max(now_, measured_from_);
    if (program.bursting) program.wanted += elapsed;
    if (program.work > 0) program.had_work += elapsed;
  }
  if (runs_) {
    Program& program = programs_.at(*runs_);
    const Nanos ran = std::max<Nanos>(0, until - std::max(now_, switched_));
    program.executed += ran;
    if (program.work != kNever) program.work -= ran;
  }
  now_ = until;
}

// The hardware: one after the other for its slice, who cannot run leaves at once. A slice that is over with nobody else
// there begins anew.
void SteeringSimulator::Dispatch() {
  const bool stays = runs_ && programs_.at(*runs_).CanRun();
  if (stays && now_ < slice_end_) return;
  const auto first = programs_.upper_bound(last_);
  auto next = std::find_if(first, programs_.end(), [](const auto& entry) { return entry.second.CanRun(); });
  if (next == programs_.end()) {
    next = std::find_if(programs_.begin(), programs_.end(), [](const auto& entry) { return entry.second.CanRun(); });
  }
  if (next == programs_.end()) return runs_.reset();
  const bool switches = next->first != last_;
  runs_ = last_ = next->first;
  if (switches) switched_ = now_ + gpu_.switch_cost;
  slice_end_ = (gpu_.switch_in_slice ? now_ : std::max(now_, switched_)) + next->second.slice;
}

void SteeringSimulator::Arrive(VgpuId id, Program& program) {
  ++program.queued;
  program.arrival = program.demand.open ? now_ + Exponential(program.demand.gap) : kNever;
  if (!program.bursting) NextBurst(id, program);
}

void SteeringSimulator::NextBurst(VgpuId id, Program& program) {
  --program.queued;
  program.bursting = true;
  program.burst_left = program.demand.burst > 0 ? program.demand.burst : kNever;
  StartWork(id, program);
}

void SteeringSimulator::StartWork(VgpuId id, Program& program) {
  const Nanos step = program.demand.step > 0 ? program.demand.step : program.burst_left;
  program.work = std::min(step, program.burst_left);
  if (program.burst_left != kNever) program.burst_left -= program.work;
  program.step_at = kNever;
  program.idle_at = kNever;
  Submit(program);
  if (program.said_active) return;
  program.said_active = true;
  Tell(program, {Effect::Kind::kActive, id});
}

// Messages arrive in order.
void SteeringSimulator::Tell(Program& program, const Effect& message) {
  program.told = std::max(program.told, now_ + Random(0, gpu_.message));
  effects_.emplace(program.told, message);
}

void SteeringSimulator::Submit(Program& program) {
  if (program.work > 0 && program.gate_open) program.on_gpu = true;
}

void SteeringSimulator::FinishWork(VgpuId id, Program& program) {
  program.on_gpu = false;
  program.idle_since = now_;
  program.idle_at = now_ + program.grace;
  if (program.burst_left > 0) {
    program.step_at = now_ + Random(program.demand.least_pause, program.demand.most_pause);
    return;
  }
  program.bursting = false;
  if (program.queued > 0) return NextBurst(id, program);
  if (!program.demand.open) program.arrival = now_ + Exponential(program.demand.gap);
}

void SteeringSimulator::Apply(const Effect& effect) {
  Program& program = programs_.at(effect.vgpu);
  switch (effect.kind) {
    case Effect::Kind::kFreeze:
      program.frozen = true;
      return;
    case Effect::Kind::kThaw:
      program.frozen = false;
      return Submit(program);
    case Effect::Kind::kSlice:
      program.slice = effect.value;
      return;
    case Effect::Kind::kActive:
      return steering_.Active(effect.vgpu, now_);
    case Effect::Kind::kIdle:
      return steering_.Idle(effect.vgpu, now_, effect.value);
  }
}

void SteeringSimulator::Call() { calls_.push_back(now_); }

// The server: first all freezes, then all thaws, then slices. Gates close and open at once.
void SteeringSimulator::Obey() {
  const auto orders = steering_.TakeOrders();
  Nanos done = std::max(now_, driver_free_);
  const auto batch = [&](Order::Kind kind, Nanos takes, Effect::Kind effect) {
    std::uint32_t frozen = 0;
    for (const Order& order : orders) {
      if (order.kind != kind) continue;
      Program& program = programs_.at(order.vgpu);
      const bool stop = kind == Order::Kind::kStop;
      Require(program.stop_ordered != stop, stop ? "a second stop" : "a second go");
      program.stop_ordered = stop;
      program.gate_open = !stop;
      if (stop ? !program.on_gpu : !program.freeze_ordered) {
        Submit(program);
        continue;
      }
      program.freeze_ordered = stop;
      if (frozen++ % config_.vgpus_per_call == 0) {
        Call();
        done += takes;
      }
      effects_.emplace(done, Effect{effect, order.vgpu});
    }
  };
  batch(Order::Kind::kStop, gpu_.freeze, Effect::Kind::kFreeze);
  batch(Order::Kind::kGo, gpu_.thaw, Effect::Kind::kThaw);
  for (const Order& order : orders) {
    ++order_counts_[order.kind];
    Program& program = programs_.at(order.vgpu);
    if (order.kind == Order::Kind::kGrace) {
      Require(program.grace_order != order.time, "the same grace again");
      Require(order.time >= config_.least_grace && order.time <= config_.most_grace, "a grace out of range");
      program.grace = program.grace_order = order.time;
    }
    if (order.kind == Order::Kind::kSlice) {
      Require(order.time > 0, "no slice");
      Call();
      done += gpu_.set_slice;
      effects_.emplace(done, Effect{Effect::Kind::kSlice, order.vgpu, order.time});
    }
  }
  driver_free_ = done;
}

void SteeringSimulator::StartMeasuring() {
  measured_from_ = now_;
  calls_.clear();
  order_counts_.clear();
  for (auto& [id, program] : programs_) {
    program.executed_before = program.executed;
    program.wanted = program.had_work = 0;
    program.billed_before = steering_.UsageOf(id, now_).busy;
  }
}

double SteeringSimulator::ExecutedPct(VgpuId id) const {
  return Pct(programs_.at(id).executed - programs_.at(id).executed_before);
}
double SteeringSimulator::BilledPct(VgpuId id) const {
  return Pct(steering_.UsageOf(id, now_).busy - programs_.at(id).billed_before);
}
double SteeringSimulator::WantedPct(VgpuId id) const { return Pct(programs_.at(id).wanted); }
double SteeringSimulator::WorkPct(VgpuId id) const { return Pct(programs_.at(id).had_work); }

double SteeringSimulator::CallsPerSecond() const {
  return static_cast<double>(calls_.size()) * kSecond / static_cast<double>(now_ - measured_from_);
}

int SteeringSimulator::MostCallsInASecond() const {
  int most = 0;
  for (auto from = calls_.begin(), to = from; to != calls_.end(); ++to) {
    while (*from <= *to - kSecond) ++from;
    most = std::max(most, static_cast<int>(to - from) + 1);
  }
  return most;
}

int SteeringSimulator::Orders(Order::Kind kind) const {
  const auto found = order_counts_.find(kind);
  return found == order_counts_.end() ? 0 : found->second;
}

Nanos SteeringSimulator::Random(Nanos least, Nanos most) {
  return most <= least ? least : std::uniform_int_distribution<Nanos>(least, most)(random_);
}

Nanos SteeringSimulator::Exponential(Nanos mean) {
  return static_cast<Nanos>(
      std::exponential_distribution<double>(1 / std::max(1.0, static_cast<double>(mean)))(random_));
}

double SteeringSimulator::Pct(Nanos time) const {
  return 100.0 * static_cast<double>(time) / static_cast<double>(now_ - measured_from_);
}

void SteeringSimulator::Require(bool holds, const std::string& what) {
  if (!holds) violations_.push_back(what + " at " + std::to_string(now_) + " ns");
}

}  // namespace tessera::sched
