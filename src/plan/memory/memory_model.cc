#include "plan/memory/memory_model.h"

#include <algorithm>
#include <utility>

namespace tessera::plan {
namespace {

Nanos Takes(std::uint64_t bytes, double bytes_per_second) {
  return static_cast<Nanos>(static_cast<double>(bytes) / bytes_per_second * kSecond) + 1;
}

}  // namespace

MemoryModel::MemoryModel(const GpuSpec& spec, Violations& violations)
    : costs_(spec.moves), policy_(spec.residency), violations_(violations), capacity_(spec.memory) {
  policy_.SetCapacity(capacity_, 0);
}

void MemoryModel::Add(Part& part, Nanos now) {
  Member& member = members_[part.vgpu];
  member.part = &part;
  member.decision.vgpu = part.vgpu;
  policy_.Add(part.vgpu, part.shares.weight, part.shares.priority, now);
  capacity_ -= std::min(capacity_, costs_.context);
  policy_.SetCapacity(capacity_, now);
}

void MemoryModel::Update(const Part& part, Nanos now) {
  policy_.Update(part.vgpu, part.shares.weight, part.shares.priority, now);
}

void MemoryModel::Remove(const Part& part, Nanos now) {
  if (in_ && in_->vgpu == part.vgpu) in_.reset();
  if (out_ && out_->vgpu == part.vgpu) out_.reset();
  members_.erase(part.vgpu);
  policy_.Remove(part.vgpu, now);
  capacity_ += costs_.context;
  policy_.SetCapacity(capacity_, now);
}

void MemoryModel::Allocate(const Part& part, std::uint64_t bytes, Nanos now) {
  Member& member = members_.at(part.vgpu);
  member.allocated = bytes;
  member.resident = std::min(member.resident, bytes);
  member.out = std::min(member.out, bytes - member.resident);
  policy_.Demand(part.vgpu, bytes, now);
  policy_.Resident(part.vgpu, member.resident, now);
}

Nanos MemoryModel::NextEvent() const {
  Nanos next = policy_.NextDeadline();
  if (in_) next = std::min(next, in_->done);
  if (out_) next = std::min(next, out_->done);
  return next;
}

void MemoryModel::Step(Nanos now) {
  if (policy_.NextDeadline() <= now) {
    policy_.Advance(now);
    violations_.Require(policy_.NextDeadline() > now, "a deadline of residency in the past", now);
  }
  EndMove(in_, true, now);
  EndMove(out_, false, now);
}

void MemoryModel::Settle(TimeModel& time, Nanos now) {
  // Who is held or let go may be active or idle by that.
  for (bool again = true; again;) {
    Inform(time, now);
    Obey(now);
    MakeNew(now);
    TellReady(now);
    again = HoldOrLetGo(time, now);
  }
  if (!out_) out_ = NextOut(time, now);
  if (!in_) in_ = NextIn(time, now);
  longest_turn_ = std::max(longest_turn_, policy_.TurnLength());
}

void MemoryModel::Inform(const TimeModel& time, Nanos now) {
  for (auto& [id, member] : members_) {
    const bool active = time.Active(*member.part) || member.fresh() > 0;
    if (std::exchange(member.active, active) == active) continue;
    active ? policy_.Active(id, now) : policy_.Idle(id, now);
  }
}

bool MemoryModel::HoldOrLetGo(TimeModel& time, Nanos now) {
  bool changed = false;
  for (auto& [_, member] : members_) {
    if (Holds(member) == member.part->held) continue;
    member.part->held = !member.part->held;
    time.Hold(*member.part, now);
    changed = true;
  }
  return changed;
}

void MemoryModel::Obey(Nanos now) {
  for (const sched::ResidencyDecision& decision : policy_.TakeDecisions()) {
    Member& member = members_.at(decision.vgpu);
    const bool better = decision.runs && (!member.decision.runs || decision.target > member.decision.target);
    if (!decision.runs) member.owed_since = kNever;
    if (better && member.active) member.owed_since = std::min(member.owed_since, now);
    member.decision = decision;
  }
  std::uint64_t sum = 0;
  for (const auto& [_, member] : members_) sum += member.decision.target;
  violations_.Require(sum <= capacity_, "more memory is promised than there is", now);
}

// New memory is made where there is room for it.
void MemoryModel::MakeNew(Nanos now) {
  for (auto& [id, member] : members_) {
    if (!member.decision.runs || member.resident >= member.decision.target) continue;
    const std::uint64_t bytes = std::min({member.fresh(), member.decision.target - member.resident, Free()});
    if (bytes == 0) continue;
    member.resident += bytes;
    policy_.Resident(id, member.resident, now);
  }
}

void MemoryModel::TellReady(Nanos now) {
  for (auto& [id, member] : members_) {
    if (member.owed_since == kNever || member.resident < member.decision.target) continue;
    const Nanos moving = now - member.owed_since;
    longest_move_ = std::max(longest_move_, moving);
    member.owed_since = kNever;
    policy_.Ready(id, now, moving);
  }
  Obey(now);
}

bool MemoryModel::Holds(const Member& member) const {
  if (Moves(member.part->vgpu)) return true;
  if (!member.active) return member.out > 0;
  return !member.decision.runs || member.owed_since != kNever || member.resident > member.decision.target;
}

std::optional<MemoryModel::Move> MemoryModel::NextOut(const TimeModel& time, Nanos now) const {
  for (const auto& [id, member] : members_) {
    if (member.resident <= member.decision.target || (in_ && in_->vgpu == id)) continue;
    if (member.active && !time.Still(*member.part)) continue;
    const std::uint64_t bytes = std::min(costs_.chunk, member.resident - member.decision.target);
    return Move{id, bytes, now + Takes(bytes, costs_.out_bytes_per_second)};
  }
  return {};
}

// For the program that has waited the longest, once there is room for it.
std::optional<MemoryModel::Move> MemoryModel::NextIn(const TimeModel& time, Nanos now) const {
  const Member* next = nullptr;
  for (const auto& [id, member] : members_) {
    if (!member.active || !member.decision.runs || member.resident >= member.decision.target || member.out == 0)
      continue;
    if ((out_ && out_->vgpu == id) || !time.Still(*member.part)) continue;
    if (next == nullptr || member.owed_since < next->owed_since) next = &member;
  }
  if (next == nullptr) return {};
  const std::uint64_t bytes = std::min({costs_.chunk, next->decision.target - next->resident, next->out});
  if (bytes > Free()) return {};
  return Move{next->decision.vgpu, bytes, now + Takes(bytes, costs_.in_bytes_per_second)};
}

void MemoryModel::EndMove(std::optional<Move>& move, bool in, Nanos now) {
  if (!move || move->done > now) return;
  Member& member = members_.at(move->vgpu);
  // What was freed meanwhile has arrived nowhere.
  const std::uint64_t bytes = std::min(move->bytes, in ? member.out : member.resident);
  member.resident = in ? member.resident + bytes : member.resident - bytes;
  member.out = in ? member.out - bytes : member.out + bytes;
  (in ? member.part->figures.bytes_in : member.part->figures.bytes_out) += bytes;
  policy_.Resident(move->vgpu, member.resident, now);
  move.reset();
  std::uint64_t sum = 0;
  for (const auto& [_, each] : members_) sum += each.resident;
  violations_.Require(sum <= capacity_, "more memory is resident than there is", now);
}

std::uint64_t MemoryModel::Free() const {
  std::uint64_t used = in_ ? in_->bytes : 0;
  for (const auto& [_, member] : members_) used += member.resident;
  return capacity_ - std::min(capacity_, used);
}

void MemoryModel::Count(GpuFigures& figures) const {
  figures.longest_turn = longest_turn_;
  figures.longest_move = longest_move_;
}

}  // namespace tessera::plan
