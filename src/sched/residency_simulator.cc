#include "sched/residency_simulator.h"

#include <algorithm>

namespace tessera::sched {

ResidencySimulator::ResidencySimulator(std::uint64_t capacity, MoveLink link, ResidencyConfig config)
    : capacity_(capacity), link_(link), residency_(config) {
  residency_.SetCapacity(capacity, 0);
}

void ResidencySimulator::Add(VgpuId id, std::vector<Phase> phases, std::uint32_t weight, std::uint32_t priority,
                             Nanos start) {
  residency_.Add(id, weight, priority, now_);
  Program& program = programs_[id];
  program.phases = std::move(phases);
  program.phase = program.phases.size() - 1;
  program.wake = now_ + start;
  program.decision.vgpu = id;
}

void ResidencySimulator::Remove(VgpuId id) {
  if (in_ && in_->vgpu == id) in_.reset();
  if (out_ && out_->vgpu == id) out_.reset();
  programs_.erase(id);
  residency_.Remove(id, now_);
}

void ResidencySimulator::Run(Nanos duration) {
  const Nanos end = now_ + duration;
  while (violations_.empty()) {
    Obey();
    TellReady();
    StartMoves();
    longest_turn_ = std::max(longest_turn_, residency_.TurnLength());
    const Nanos next = NextEvent();
    if (next > end) break;
    steps_without_time_ = next == now_ ? steps_without_time_ + 1 : 0;
    Require(steps_without_time_ < 1000, "time stands still");
    Elapse(next);
    if (residency_.NextDeadline() <= now_) {
      residency_.Advance(now_);
      Require(residency_.NextDeadline() > now_, "a deadline in the past");
    }
    FinishMove(in_, true);
    FinishMove(out_, false);
    for (auto& [id, program] : programs_) Step(id, program);
  }
  Elapse(end);
}

Nanos ResidencySimulator::NextEvent() const {
  Nanos next = residency_.NextDeadline();
  if (in_) next = std::min(next, in_->done);
  if (out_) next = std::min(next, out_->done);
  for (const auto& [_, program] : programs_) {
    if (!program.active) next = std::min(next, program.wake);
    if (program.runs() && program.left != kNever) next = std::min(next, now_ + program.left);
  }
  return std::max(next, now_);
}

void ResidencySimulator::Elapse(Nanos until) {
  const Nanos elapsed = until - now_;
  bool active = false;
  bool runs = false;
  for (auto& [_, program] : programs_) {
    active |= program.active;
    runs |= program.runs();
    if (program.runs()) {
      program.ran += elapsed;
      if (program.left != kNever) program.left -= elapsed;
      program.waits_since = until;
    } else if (program.active) {
      program.longest_wait = std::max(program.longest_wait, until - program.waits_since);
    }
  }
  if (active && !runs) stalled_ += elapsed;
  now_ = until;
}

void ResidencySimulator::Step(VgpuId id, Program& program) {
  if (program.active && program.left == 0) {
    program.active = false;
    program.wake = now_ + program.phases[program.phase].rest;
    residency_.Idle(id, now_);
  }
  if (!program.active && program.wake <= now_) Begin(id, program);
}

void ResidencySimulator::Begin(VgpuId id, Program& program) {
  program.phase = (program.phase + 1) % program.phases.size();
  const Phase& phase = program.phases[program.phase];
  program.active = true;
  program.left = phase.work;
  program.waits_since = now_;
  // What it needs no longer is gone at once.
  program.resident = std::min(program.resident, phase.bytes);
  residency_.Demand(id, phase.bytes, now_);
  residency_.Resident(id, program.resident, now_);
  residency_.Active(id, now_);
}

void ResidencySimulator::Obey() {
  std::uint64_t sum = 0;
  for (const ResidencyDecision& decision : residency_.TakeDecisions()) {
    Program& program = programs_.at(decision.vgpu);
    const bool better = decision.runs && (!program.decision.runs || decision.target > program.decision.target);
    if (!decision.runs) program.owed_since = kNever;
    if (better && program.active) program.owed_since = std::min(program.owed_since, now_);
    program.decision = decision;
  }
  for (const auto& [_, program] : programs_) sum += program.decision.target;
  Require(sum <= capacity_, "more is promised than there is");
}

void ResidencySimulator::TellReady() {
  for (auto& [id, program] : programs_) {
    if (program.owed_since == kNever || program.resident < program.decision.target) continue;
    const Nanos moving = now_ - program.owed_since;
    longest_move_ = std::max(longest_move_, moving);
    program.owed_since = kNever;
    residency_.Ready(id, now_, moving);
  }
  Obey();
}

void ResidencySimulator::StartMoves() {
  if (!out_) out_ = NextOut();
  if (!in_) in_ = NextIn();
}

std::optional<ResidencySimulator::Move> ResidencySimulator::NextOut() const {
  for (const auto& [id, program] : programs_) {
    if (program.resident <= program.decision.target || (in_ && in_->vgpu == id)) continue;
    const std::uint64_t bytes = std::min(link_.chunk, program.resident - program.decision.target);
    return Move{id, bytes, now_ + static_cast<Nanos>(bytes * 1000 / (link_.bytes_per_second / 1'000'000)) + 1};
  }
  return {};
}

// Who waits the longest for it; where there is room for it.
std::optional<ResidencySimulator::Move> ResidencySimulator::NextIn() const {
  const Program* next = nullptr;
  for (const auto& [id, program] : programs_) {
    if (!program.active || !program.decision.runs || program.resident >= program.decision.target) continue;
    if (out_ && out_->vgpu == id) continue;
    if (next == nullptr || program.owed_since < next->owed_since) next = &program;
  }
  if (next == nullptr) return {};
  const std::uint64_t bytes = std::min(link_.chunk, next->decision.target - next->resident);
  if (bytes > capacity_ - ResidentSum()) return {};
  return Move{next->decision.vgpu, bytes,
              now_ + static_cast<Nanos>(bytes * 1000 / (link_.bytes_per_second / 1'000'000)) + 1};
}

void ResidencySimulator::FinishMove(std::optional<Move>& move, bool in) {
  if (!move || move->done > now_) return;
  Program& program = programs_.at(move->vgpu);
  const std::uint64_t bytes = in ? move->bytes : std::min(move->bytes, program.resident);
  program.resident = in ? program.resident + bytes : program.resident - bytes;
  if (in) loaded_ += bytes;
  residency_.Resident(move->vgpu, program.resident, now_);
  move.reset();
  Require(ResidentSum() <= capacity_, "more is resident than there is");
}

std::uint64_t ResidencySimulator::ResidentSum() const {
  std::uint64_t sum = 0;
  for (const auto& [_, program] : programs_) sum += program.resident;
  return sum;
}

void ResidencySimulator::StartMeasuring() {
  measured_from_ = now_;
  stalled_ = longest_turn_ = longest_move_ = 0;
  loaded_ = 0;
  for (auto& [_, program] : programs_) {
    program.ran = program.longest_wait = 0;
    program.waits_since = now_;
  }
}

double ResidencySimulator::RanPct(VgpuId id) const { return Pct(programs_.at(id).ran); }
double ResidencySimulator::StalledPct() const { return Pct(stalled_); }
Nanos ResidencySimulator::LongestWait(VgpuId id) const { return programs_.at(id).longest_wait; }

double ResidencySimulator::Pct(Nanos time) const {
  return 100.0 * static_cast<double>(time) / static_cast<double>(now_ - measured_from_);
}

void ResidencySimulator::Require(bool holds, const std::string& what) {
  if (!holds) violations_.push_back(what + " at " + std::to_string(now_) + " ns");
}

}  // namespace tessera::sched
