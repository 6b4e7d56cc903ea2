#include "sched/residency/planner/residency_planner.h"

#include <algorithm>

#include "base/size.h"
#include "sched/residency/promises.h"
#include "sched/residency/room_admission.h"

namespace tessera::sched {
namespace {

// How often plans are made while somebody waits or has memory out, and how often while a process that is stopped still
// has something to do on the GPU: nothing tells when it has come to a stand.
constexpr Nanos kLookWhilePressed = 100 * kMillisecond;
constexpr Nanos kLookForStill = kMillisecond;
// A vGPU that has had nothing to do for so long lends what it was promised to others who need it: some ten times as
// long as it takes to bring a whole GPU's memory back.
constexpr Nanos kLendsAfter = 10 * kSecond;

bool Pressed(const ProcessResidence& process, Nanos now) {
  return process.wanted > 0 || process.Granted(now) > 0 || process.stopped || process.push > 0 ||
         process.moving != Moving::kNothing || process.swapped > 0 || process.away;
}

// A limit was lowered, or memory was pinned past the daemon: some has to go that can.
bool HasTooMuch(const ResidencyState& state) {
  bool any_movable = false;
  for (const VGpuResidence& vgpu : state.vgpus) {
    std::uint64_t movable = 0;
    for (const ProcessResidence& process : vgpu.processes) movable += process.Movable();
    if (vgpu.limit && movable > 0 && vgpu.Pinned() + movable > *vgpu.limit) return true;
    any_movable |= movable > 0;
  }
  return any_movable && state.Used() > state.capacity;
}

}  // namespace

const ResidencyPlan& ResidencyPlanner::Plan(const ResidencyState& state, Nanos now) {
  ++plans_;
  plan_.actions.clear();
  plan_.changed.clear();
  plan_.awaits = state.AwaitsMissing(now);
  plan_.look_at = plan_.awaits ? state.missing_since + kLongestAbsence : kNever;
  KnowVGpus(state, now);
  // Where there is more than fits, one who has room of the books may have none of the GPU.
  plan_.pressed = HasTooMuch(state) || std::ranges::any_of(state.vgpus, [&](const VGpuResidence& vgpu) {
                    return std::ranges::any_of(vgpu.processes, [&](const ProcessResidence& process) {
                      return Pressed(process, now) || MustStopOnArrival(process);
                    });
                  });
  const PoolGoal& pool = pool_.Decide(state, now);
  const bool may_be_needed = state.MoverMayBeNeeded() || (pool.prepares && !state.mover_hopeless);
  plan_.needs_mover = plan_.pressed ? state.pool.most > 0 : may_be_needed;
  plan_.look_at = std::min(plan_.look_at, pool_.NextLook());
  PlanPool(state.pool, state.mover_ready);
  if (!plan_.pressed) return plan_;
  Copy(state);
  ResidencyPass pass(state_, policy_, plan_, now);
  for (const PlannedProcess& process : arrived_) pass.StopOnArrival(process);
  for (const PlannedProcess& process : processes_) pass.CollectCredit(process);
  if (plan_.awaits) {
    plan_.look_at = std::min(plan_.look_at, now + kLookWhilePressed);
    return plan_;
  }
  SetGoals(now);
  Serve(pass, /*runs=*/false);  // these make room for the others
  Serve(pass, /*runs=*/true);
  SetNextLook(pass, now);
  return plan_;
}

// Tells the policy which vGPUs there are.
void ResidencyPlanner::KnowVGpus(const ResidencyState& state, Nanos now) {
  for (const VGpuResidence& vgpu : state.vgpus) {
    const auto [found, is_new] = vgpu_records_.try_emplace(vgpu.id);
    VGpuRecord& record = found->second;
    if (is_new) policy_.Add(vgpu.id, vgpu.weight, vgpu.priority, now);
    if (!is_new && (record.weight != vgpu.weight || record.priority != vgpu.priority))
      policy_.Update(vgpu.id, vgpu.weight, vgpu.priority, now);
    record.weight = vgpu.weight;
    record.priority = vgpu.priority;
    record.plan = plans_;
    if (vgpu.Active(now)) record.worked_at = now;
  }
  if (vgpu_records_.size() == state.vgpus.size()) return;
  std::erase_if(vgpu_records_, [&](const auto& entry) {
    if (entry.second.plan == plans_) return false;
    policy_.Remove(entry.first, now);
    return true;
  });
}

// A program may come with addresses that are not valid: the mover of an earlier daemon had not settled it.
bool ResidencyPlanner::MustStopOnArrival(const ProcessResidence& process) const {
  return process.unsafe && !process.stopped && !process_records_.contains(process.id);
}

// Copies the state, and finds what is remembered of each process.
void ResidencyPlanner::Copy(const ResidencyState& state) {
  state_ = state;
  vgpus_.clear();
  processes_.clear();
  arrived_.clear();
  for (VGpuResidence& vgpu : state_.vgpus) {
    vgpus_.push_back({.now = &vgpu, .record = &vgpu_records_.at(vgpu.id), .first = processes_.size()});
    for (ProcessResidence& process : vgpu.processes) {
      const bool stops = MustStopOnArrival(process);
      ProcessRecord& record = process_records_[process.id];
      record.plan = plans_;
      processes_.push_back({&process, &record});
      if (stops) arrived_.push_back(processes_.back());
    }
  }
  if (process_records_.size() > processes_.size())
    std::erase_if(process_records_, [this](const auto& entry) { return entry.second.plan != plans_; });
}

void ResidencyPlanner::PlanPool(PoolResidence pool, bool mover_ready) {
  if (!mover_ready) return;
  const auto add = [&](ResidencyActionKind kind, std::uint64_t bytes) {
    plan_.actions.push_back({.kind = kind, .bytes = bytes});
    Apply(plan_.actions.back(), pool);
  };
  const PoolGoal& goal = pool_.Goal();
  if (goal.needed > pool.wanted) add(ResidencyActionKind::kGrowPool, goal.needed);
  if (goal.prepared != pool.Goal()) add(ResidencyActionKind::kPreparePool, goal.prepared);
}

// What is pinned, what may not go out, and what a vGPU that works was promised takes no turns. The rest does: a vGPU
// that has no rest runs always.
void ResidencyPlanner::SetGoals(Nanos now) {
  std::uint64_t taken = 0;
  claims_.clear();
  for (const PlannedVGpu& planned : vgpus_) {
    const bool uses_request = now - planned.record->worked_at < kLendsAfter;
    claims_.push_back(ClaimsOf(state_, *planned.now, uses_request, now));
    taken += claims_.back().pinned + claims_.back().kept;
  }
  facts_.clear();
  for (std::size_t i = 0; i < vgpus_.size(); ++i) {
    const VGpuResidence& vgpu = *vgpus_[i].now;
    const VGpuClaims& claims = claims_[i];
    // Promises may be more than there is, by contexts, by what others pinned since, or by programs outside of Tessera.
    const std::uint64_t floor = claims.kept + std::min(claims.floor - claims.kept, Less(state_.capacity, taken));
    taken += floor - claims.kept;
    vgpus_[i].goal = {.vgpu = vgpu.id, .target = floor, .runs = true};
    const std::uint64_t rest = claims.demand - floor;
    facts_.push_back({.vgpu = vgpu.id,
                      .demand = rest,
                      .holes = vgpu.Active(now) ? claims.holes : 0,
                      .resident = Less(claims.resident, floor),
                      .active = rest > 0 && vgpu.Active(now),
                      .gang = vgpu.gang});
  }
  const auto decisions = policy_.Observe(facts_, Less(state_.capacity, taken), now);
  for (std::size_t i = 0; i < vgpus_.size(); ++i) {
    vgpus_[i].goal.target += decisions[i].target;
    vgpus_[i].goal.runs = decisions[i].runs;
  }
}

void ResidencyPlanner::Serve(ResidencyPass& pass, bool runs) {
  for (PlannedVGpu& vgpu : vgpus_) {
    if (vgpu.goal.runs != runs) continue;
    pass.Serve(*vgpu.now, *vgpu.record, std::span(processes_).subspan(vgpu.first, vgpu.now->processes.size()),
               vgpu.goal);
  }
}

void ResidencyPlanner::SetNextLook(const ResidencyPass& pass, Nanos now) {
  plan_.look_at = std::min({plan_.look_at, policy_.NextDeadline(), now + kLookWhilePressed});
  const bool awaits_still = std::ranges::any_of(processes_, [](const PlannedProcess& process) {
    return process.now->stopped && !process.now->thawed && !process.now->alone && !process.now->still;
  });
  if (awaits_still) plan_.look_at = std::min(plan_.look_at, now + kLookForStill);
  if (pass.ToldPolicy()) plan_.look_at = now;
}

TurnWishes ResidencyPlanner::Wishes() const {
  if (!TakesTurns()) return {};
  return policy_.Wishes();
}

RoomAnswer ResidencyPlanner::Ask(const ResidencyState& state, const RoomWish& wish, Nanos now) const {
  return AnswerRoom(state, wish, plan_.pressed, now);
}

// While nothing is pressed the policy hears of nothing.
std::string ResidencyPlanner::Why(const ResidencyState& state) const {
  if (plan_.awaits) return "waits for programs of an earlier daemon: " + std::to_string(state.missing);
  if (plan_.pressed) return policy_.Why();
  return "all that is in use fits: " + FormatSize(state.Used()) + " of " + FormatSize(state.capacity);
}

}  // namespace tessera::sched
