#include "sched/residency/residency.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/size.h"

namespace tessera::sched {
namespace {

// Of the mean of moves, what the last one counts for.
constexpr Nanos kMovesRemembered = 4;

// No time and no duration is longer, so that sums of two are times.
constexpr Nanos kLongest = kNever / 4;

// NaN becomes `least`.
double Within(double value, double least, double most) { return value > least ? std::min(value, most) : least; }

// `part` of `bytes`, never more than all.
std::uint64_t PartOf(std::uint64_t bytes, double part) {
  constexpr std::uint64_t kWhole = 1'000'000;
  const auto millionths = static_cast<std::uint64_t>(std::lround(part * kWhole));
  return bytes / kWhole * millionths + bytes % kWhole * millionths / kWhole;
}

std::string FormatSeconds(Nanos time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", static_cast<double>(time) / kSecond);
  return text;
}

}  // namespace

Residency::Residency(ResidencyConfig config)
    : config_([&] {
        config.turn_min = std::clamp<Nanos>(config.turn_min, 1, kLongest);
        config.turn_max = std::clamp<Nanos>(config.turn_max, config.turn_min, kLongest);
        config.most_moving = Within(config.most_moving, 0.001, 0.999);
        config.comfort = Within(config.comfort, 0, 1);
        config.settle = std::clamp<Nanos>(config.settle, 0, kLongest);
        config.grace = std::clamp<Nanos>(config.grace, 0, kLongest);
        return config;
      }()) {}

void Residency::SetCapacity(std::uint64_t bytes, Nanos now) {
  if (bytes == capacity_) return;
  Take(now);
  capacity_ = bytes;
  Schedule();
}

void Residency::Add(VgpuId id, std::uint32_t weight, std::uint32_t priority, Nanos now) {
  if (Find(id) != nullptr) return;
  Take(now);
  Member& member = members_[id];
  member.weight = std::max(weight, 1u);
  member.priority = priority;
  member.changed_at = now_;
  member.decided.vgpu = member.told.vgpu = id;
  Schedule();
}

void Residency::Update(VgpuId id, std::uint32_t weight, std::uint32_t priority, Nanos now) {
  Member* member = Find(id);
  if (member == nullptr) return;
  Take(now);
  member->weight = std::max(weight, 1u);
  if (std::exchange(member->priority, priority) != priority) Enqueue(*member);
  Schedule();
}

void Residency::Remove(VgpuId id, Nanos now) {
  if (Find(id) == nullptr) return;
  Take(now);
  members_.erase(id);
  Schedule();
}

void Residency::Demand(VgpuId id, std::uint64_t bytes, Nanos now) {
  Member* member = Find(id);
  if (member == nullptr || member->demand == bytes) return;
  Take(now);
  member->demand = bytes;
  Schedule();
}

void Residency::Resident(VgpuId id, std::uint64_t bytes, Nanos now) {
  Member* member = Find(id);
  if (member == nullptr || member->resident == bytes) return;
  Take(now);
  member->resident = bytes;
  Schedule();
}

void Residency::Active(VgpuId id, Nanos now) {
  Member* member = Find(id);
  if (member == nullptr || (member->active && member->leaves_at == kNever)) return;
  Take(now);
  EndGraces();
  member->leaves_at = kNever;
  member->changed_at = now_;
  if (!std::exchange(member->active, true)) Enqueue(*member);
  Schedule();
}

void Residency::Idle(VgpuId id, Nanos now) {
  Member* member = Find(id);
  if (member == nullptr || !member->active || member->leaves_at != kNever) return;
  Take(now);
  member->changed_at = now_;
  const bool in_the_way = mode_ == Mode::kTurns && !fits_ && member->started;
  member->leaves_at = in_the_way ? now_ + std::min(config_.grace, member->move()) : now_;
  Schedule();
}

void Residency::Ready(VgpuId id, Nanos now, Nanos moving, bool typical) {
  Member* member = Find(id);
  if (member == nullptr || !member->decided.runs || member->ready()) return;
  Take(now);
  member->ready_with = member->decided.target;
  // What is loaded in the middle of a turn is no measure of what a turn costs.
  if (!member->started) {
    moving = std::max<Nanos>(moving, 0);
    member->last_move = moving;
    // What is not typical stands in for a mean until there is one.
    const bool first = !member->measured || member->rough;
    if (first) member->mean_move = moving;
    if (!first && typical) member->mean_move += (moving - member->mean_move) / kMovesRemembered;
    member->rough = first && !typical;
    member->measured = true;
  }
  Schedule();
}

void Residency::Advance(Nanos now) {
  Take(now);
  Schedule();
}

std::vector<ResidencyDecision> Residency::TakeDecisions() {
  std::vector<ResidencyDecision> changed;
  for (auto& [_, member] : members_) {
    const ResidencyDecision& decided = member.decided;
    const ResidencyDecision before = std::exchange(member.told, decided);
    if (before == decided) continue;
    changed.push_back(decided);
    if (!decided.runs) {
      member.ready_with.reset();
    } else if (!member.active) {
      member.ready_with = decided.target;  // it has that: nothing is loaded for idle ones
    } else if (member.ready_with) {
      member.ready_with = std::min(*member.ready_with, decided.target);  // what goes has to come back
    }
  }
  return changed;
}

ResidencyDecision Residency::DecisionFor(VgpuId id) const {
  const auto found = members_.find(id);
  return found == members_.end() ? ResidencyDecision{.vgpu = id, .target = 0, .runs = false} : found->second.decided;
}

std::string Residency::Why() const {
  const std::string use = FormatSize(in_use_) + " of " + FormatSize(capacity_);
  if (mode_ == Mode::kTogether) return "all that is in use fits: " + use;
  if (fits_) return "all that is in use fits for now: " + use;
  if (queue_.size() == 1) return "1 active vGPU uses " + use + ": it runs partly from host memory";
  const std::string turns = FormatSeconds(Length(classes_.front(), *queue_.front()));
  return std::to_string(queue_.size()) + " active vGPUs use " + use + ": turns of " + turns;
}

Nanos Residency::TurnLength() const {
  if (mode_ == Mode::kTogether || queue_.empty() || !queue_.front()->started) return 0;
  return TurnEnd(classes_.front(), *queue_.front()) - queue_.front()->had_before;
}

Residency::Member* Residency::Find(VgpuId id) {
  const auto found = members_.find(id);
  return found == members_.end() ? nullptr : &found->second;
}

void Residency::Take(Nanos now) {
  const Nanos elapsed = std::clamp(now, now_, kLongest) - now_;
  now_ += elapsed;
  for (auto& [_, member] : members_) {
    if (member.started) member.had += elapsed;
  }
}

// To the back.
void Residency::Enqueue(Member& member) {
  member.place = next_place_++;
  member.had = member.had_before = 0;
  member.leads = member.kept = false;
}

void Residency::SetTarget(Member& member, bool runs, std::uint64_t target) {
  member.decided.runs = runs;
  member.decided.target = std::min(target, left_);
  left_ -= member.decided.target;
}

void Residency::Schedule() {
  EndGraces();
  UpdateQueue();
  UpdateMode();
  left_ = capacity_;
  if (mode_ == Mode::kTogether) {
    ShareTogether();
  } else {
    ShareInTurns();
  }
  KeepIdle();
  StartTurns();
  UpdateDeadline();
}

void Residency::EndGraces() {
  for (auto& [_, member] : members_) {
    if (member.leaves_at > now_) continue;
    member.leaves_at = kNever;
    member.active = false;
  }
}

void Residency::UpdateQueue() {
  queue_.clear();
  idle_.clear();
  in_use_ = 0;
  fits_ = true;
  for (auto& [_, member] : members_) {
    (member.active ? queue_ : idle_).push_back(&member);
    if (!member.active) continue;
    fits_ &= member.demand <= capacity_ && in_use_ <= capacity_ - member.demand;
    in_use_ = member.demand > UINT64_MAX - in_use_ ? UINT64_MAX : in_use_ + member.demand;
  }
  SortQueue();
  classes_.clear();
  for (auto first = queue_.begin(); first != queue_.end();) {
    const auto last =
        std::find_if(first, queue_.end(), [&](const Member* member) { return member->priority != (*first)->priority; });
    MeasureClass(classes_.emplace_back(Class{.queue = {first, last}}));
    first = last;
  }
}

void Residency::UpdateMode() {
  if (mode_ == Mode::kTogether) {
    if (fits_) return;
    mode_ = Mode::kTurns;
    comfortable_since_ = kNever;
    for (Member* member : queue_) {
      member->had = 0;
      member->leads = member->kept = false;
    }
    SortQueue();
    return;
  }
  if (!fits_ || in_use_ > PartOf(capacity_, config_.comfort)) {
    comfortable_since_ = kNever;
  } else if (comfortable_since_ == kNever) {
    comfortable_since_ = now_;
  }
  if (comfortable_since_ != kNever && now_ >= comfortable_since_ + config_.settle) mode_ = Mode::kTogether;
}

void Residency::ShareTogether() {
  for (Member* member : queue_) SetTarget(*member, true, member->demand);
}

// Nothing is loaded for idle ones, and what nobody else needs stays where it is.
void Residency::KeepIdle() {
  std::ranges::sort(idle_, [](const Member* a, const Member* b) {
    if (a->changed_at != b->changed_at) return a->changed_at > b->changed_at;
    if (a->priority != b->priority) return a->priority < b->priority;
    return a->decided.vgpu < b->decided.vgpu;
  });
  for (Member* member : idle_) SetTarget(*member, true, member->resident);
}

void Residency::StartTurns() {
  for (auto& [_, member] : members_) {
    member.started = member.active && member.decided.runs && (member.started || member.ready());
  }
}

void Residency::UpdateDeadline() {
  Nanos deadline = kNever;
  if (mode_ == Mode::kTurns) {
    deadline = NextTurnEnd();
    if (comfortable_since_ != kNever) deadline = std::min(deadline, comfortable_since_ + config_.settle);
  }
  for (const Member* member : queue_) deadline = std::min(deadline, member->leaves_at);
  deadline_ = std::max(deadline, now_ + 1);
}

}  // namespace tessera::sched
