#include "plan/memory/memory_model.h"

#include <algorithm>
#include <utility>

#include "sched/residency/bytes.h"

namespace tessera::plan {

MemoryModel::MemoryModel(const GpuSpec& spec, Violations& violations)
    : costs_(spec.moves),
      violations_(violations),
      planner_(spec.residency),
      out_(costs_.out_bytes_per_second, costs_.batch),
      in_(costs_.in_bytes_per_second, costs_.batch) {
  state_.capacity = spec.memory;
  state_.chunk = costs_.chunk;
  state_.pool.most = costs_.host_memory;
  state_.mover_ready = true;
}

void MemoryModel::Add(Part& part, const MemoryTerms& terms) {
  members_[part.vgpu] = {.part = &part, .vgpu = state_.vgpus.size()};
  state_.vgpus.push_back({.id = part.vgpu,
                          .weight = part.shares.weight,
                          .priority = part.shares.priority,
                          .request = terms.request,
                          .limit = terms.limit,
                          .swap = terms.swap});
  state_.vgpus.back().processes.push_back({.id = ++last_process_, .has_line = true});
  changed_ = true;
}

void MemoryModel::Update(const Part& part) {
  sched::VGpuResidence& vgpu = state_.vgpus[members_.at(part.vgpu).vgpu];
  vgpu.weight = part.shares.weight;
  vgpu.priority = part.shares.priority;
  changed_ = true;
}

MemoryModel::Luggage MemoryModel::Remove(const Part& part) {
  const Member& member = members_.at(part.vgpu);
  const std::size_t gone = member.vgpu;
  const sched::ProcessResidence& process = state_.vgpus[gone].processes.front();
  const std::uint64_t resident = process.allocated - std::min(process.allocated, process.swapped);
  const double seconds = static_cast<double>(resident) / costs_.out_bytes_per_second;
  const Luggage luggage{.allocated = process.allocated,
                        .resident = resident,
                        .out_for = static_cast<Nanos>(seconds * kSecond),
                        .allocates = member.allocates};
  out_.Forget(state_.vgpus[gone].processes.front().id);
  in_.Forget(state_.vgpus[gone].processes.front().id);
  state_.vgpus.erase(state_.vgpus.begin() + static_cast<std::ptrdiff_t>(gone));
  members_.erase(part.vgpu);
  for (auto& [_, other] : members_) other.vgpu -= other.vgpu > gone ? 1 : 0;
  changed_ = true;
  return luggage;
}

void MemoryModel::Arrive(Part& part, const MemoryTerms& terms, const Luggage& luggage, Nanos at, Nanos now) {
  Add(part, terms);
  Member& member = members_.at(part.vgpu);
  member.allocates = luggage.allocates;
  member.arrives_at = at;
  arrives_at_ = std::min(arrives_at_, at);
  sched::ProcessResidence& process = ProcessOf(member);
  process.allocated = process.swapped = luggage.allocated;
  process.stopped = process.still = part.held = true;
  process.unsafe = process.swapped > 0;
  state_.pool.size += luggage.allocated;
  Ask(member, now);
}

std::uint64_t MemoryModel::AllocatedBy(const Part& part) const {
  return state_.vgpus[members_.at(part.vgpu).vgpu].processes.front().allocated;
}

MemoryModel::Member& MemoryModel::MemberOf(sched::ProcessId process) {
  return std::ranges::find_if(
             members_,
             [&](const auto& entry) { return state_.vgpus[entry.second.vgpu].processes.front().id == process; })
      ->second;
}

void MemoryModel::Allocate(Part& part, std::uint64_t bytes, TimeModel& time, Nanos now) {
  Member& member = members_.at(part.vgpu);
  sched::ProcessResidence& process = ProcessOf(member);
  changed_ = true;
  process.wanted = 0;
  bytes = sched::UpTo(state_.unit, bytes);
  member.allocates = bytes;
  const std::uint64_t again = std::min(process.empty, bytes - std::min(bytes, process.allocated));
  process.empty -= again;
  process.allocated += again;
  if (process.pinned == costs_.context && bytes <= process.allocated)
    return Free(member, process.allocated - bytes, now);
  Ask(member, now);
  HoldOrLetGo(time, now);
}

// Memory on the GPU is freed first: what goes out is what was used longest ago, and programs free what they took last.
// Its room stays with the program for a while.
void MemoryModel::Free(Member& member, std::uint64_t bytes, Nanos now) {
  sched::ProcessResidence& process = ProcessOf(member);
  const std::uint64_t live = process.Movable() - process.empty;
  const std::uint64_t there = std::min(bytes, live - std::min(live, process.Coming()));
  const std::uint64_t out = std::min(bytes - there, process.swapped - process.Coming());
  process.allocated -= bytes;
  process.swapped -= out;
  process.room -= bytes - there - out;
  process.empty += there;
  if (process.moving == sched::Moving::kOut) {
    GiveBack(member);
    process.ordered = std::min(process.ordered, process.Movable());
  } else if (process.empty > 0) {
    member.gives_at = std::min(member.gives_at, now + costs_.keeps_freed);
    gives_at_ = std::min(gives_at_, member.gives_at);
  }
}

void MemoryModel::GiveBack(Member& member) {
  sched::ProcessResidence& process = ProcessOf(member);
  process.room -= std::exchange(process.empty, 0);
  member.gives_at = kNever;
  changed_ = true;
}

// Asks for its context, and then for one piece after the other: programs allocate a chunk at a time, or an eighth of a
// small GPU or limit.
void MemoryModel::Ask(Member& member, Nanos now) {
  sched::ProcessResidence& process = ProcessOf(member);
  const std::uint64_t most = std::min(state_.capacity, state_.vgpus[member.vgpu].limit.value_or(UINT64_MAX));
  const std::uint64_t piece = std::max(std::min(most / 8, costs_.chunk), std::uint64_t{1});
  while (process.pinned < costs_.context || process.allocated < member.allocates) {
    process.pins = process.pinned < costs_.context;
    const std::uint64_t more = process.pins ? costs_.context : std::min(piece, member.allocates - process.allocated);
    switch (planner_.Ask(state_, {process.id, more, process.pins}, now).kind) {
      case sched::RoomAnswer::Kind::kGrant:
        process.room += more;
        (process.pins ? process.pinned : process.allocated) += more;
        continue;
      case sched::RoomAnswer::Kind::kWait:
        process.wanted = more;
        process.wanted_at = now;
        return;
      case sched::RoomAnswer::Kind::kRefuse:
        ++member.part->figures.refused;
        member.allocates = process.allocated;
        if (process.pins) return;  // without a context it can do nothing
        continue;
    }
  }
}

Nanos MemoryModel::NextEvent() const {
  return std::min({look_at_, gives_at_, arrives_at_, out_.NextEvent(), in_.NextEvent()});
}

void MemoryModel::Step(Nanos now) {
  if (const auto move = out_.End(now)) EndMove(*move, false, now);
  if (const auto move = in_.End(now)) EndMove(*move, true, now);
  if (look_at_ <= now) changed_ = true;
  if (arrives_at_ <= now) {
    arrives_at_ = kNever;
    for (const auto& [_, member] : members_) {
      if (member.arrives_at > now) arrives_at_ = std::min(arrives_at_, member.arrives_at);
    }
  }
  if (gives_at_ > now) return;
  gives_at_ = kNever;
  for (auto& [_, member] : members_) {
    if (member.gives_at <= now) GiveBack(member);
    gives_at_ = std::min(gives_at_, member.gives_at);
  }
}

void MemoryModel::EndMove(const Move& move, bool in, Nanos now) {
  Member& member = MemberOf(move.process);
  sched::ProcessResidence& process = ProcessOf(member);
  // Memory that was freed meanwhile does not arrive.
  const std::uint64_t bytes = std::min({move.bytes, process.ordered, in ? process.swapped : process.Movable()});
  if (in) {
    process.swapped -= bytes;
    member.part->figures.bytes_in += bytes;
  } else {
    process.room -= bytes;
    process.swapped += bytes;
    member.part->figures.bytes_out += bytes;
  }
  process.ordered -= bytes;
  if (process.ordered == 0 || bytes < move.bytes) {
    process.ordered = 0;
    process.moving = sched::Moving::kNothing;
    (in ? in_ : out_).Forget(process.id);
  }
  process.unsafe = process.swapped > 0;
  state_.last_moved = now;
  changed_ = true;
}

void MemoryModel::Settle(TimeModel& time, Nanos now) {
  if (Observe(time, now)) Plan(time, now);
  out_.Begin(now);
  in_.Begin(now);
  longest_turn_ = std::max(longest_turn_, planner_.TurnLength());
}

void MemoryModel::SetTurn(sched::VgpuId vgpu, sched::GangTurn turn) {
  changed_ |= std::exchange(state_.vgpus[members_.at(vgpu).vgpu].gang, turn) != turn;
}

// Whether there is something new to plan for.
bool MemoryModel::Observe(const TimeModel& time, Nanos now) {
  for (auto& [_, member] : members_) {
    sched::ProcessResidence& process = ProcessOf(member);
    const bool works = time.Active(*member.part) && now >= member.arrives_at;
    const bool still = time.Still(*member.part);
    changed_ |= std::exchange(process.works, works) != works;
    changed_ |= process.stopped && process.still != still;
    process.still = process.stopped && still;
    if (process.wanted > 0) process.wanted_at = now;  // programs repeat what they wait for
  }
  return std::exchange(changed_, false);
}

void MemoryModel::Plan(TimeModel& time, Nanos now) {
  constexpr int kMostPlans = 1000;
  for (int i = 0; i < kMostPlans; ++i) {
    const sched::ResidencyPlan& plan = planner_.Plan(state_, now);
    look_at_ = plan.look_at;
    for (const sched::VGpuGoal& goal : plan.changed) members_.at(goal.vgpu).runs = goal.runs;
    for (const sched::ResidencyAction& action : plan.actions) CarryOut(action, now);
    HoldOrLetGo(time, now);
    const bool again = Observe(time, now);
    std::uint64_t room = 0;
    for (const sched::VGpuResidence& vgpu : state_.vgpus) room += vgpu.Room();
    violations_.Require(room <= state_.capacity, "more memory is on the GPU than there is", now);
    if (plan.actions.empty() && plan.look_at > now && !again) return;
  }
  violations_.Require(false, "plans for memory follow each other without end", now);
}

void MemoryModel::CarryOut(const sched::ResidencyAction& action, Nanos now) {
  using Kind = sched::ResidencyActionKind;
  if (action.kind == Kind::kGrowPool || action.kind == Kind::kPreparePool) {
    sched::Apply(action, state_.pool);
    state_.pool.size = state_.pool.Goal();
    return;
  }
  Member& member = MemberOf(action.process);
  sched::ProcessResidence& process = ProcessOf(member);
  sched::Apply(action, now, /*file=*/false, process);
  switch (action.kind) {
    case Kind::kMoveOut:
      process.ordered -= std::min(process.ordered, process.empty);
      GiveBack(member);
      if (process.ordered == 0) {
        process.moving = sched::Moving::kNothing;
        break;
      }
      process.unsafe = true;
      out_.Order(process.id, process.ordered);
      break;
    case Kind::kMoveIn:
      in_.Order(process.id, action.bytes);
      break;
    case Kind::kSettle:  // takes no time worth mention
      process.moving = sched::Moving::kNothing;
      process.unsafe = false;
      break;
    case Kind::kGrant:  // the program takes it, and asks for more
      (process.pins ? process.pinned : process.allocated) += std::exchange(process.credit, 0);
      Ask(member, now);
      break;
    default:
      break;
  }
}

void MemoryModel::HoldOrLetGo(TimeModel& time, Nanos now) {
  for (auto& [_, member] : members_) {
    const sched::ProcessResidence& process = ProcessOf(member);
    const bool held = process.stopped || process.wanted > 0 || now < member.arrives_at;
    if (std::exchange(member.part->held, held) != held) time.Hold(*member.part, now);
    if (held && member.runs && process.Active(now)) {
      member.begins = std::min(member.begins, now);
    } else if (const Nanos began = std::exchange(member.begins, kNever); !held && began != kNever) {
      longest_move_ = std::max(longest_move_, now - began);
    }
  }
}

void MemoryModel::Count(GpuFigures& figures) const {
  figures.longest_turn = longest_turn_;
  figures.longest_move = longest_move_;
}

}  // namespace tessera::plan
