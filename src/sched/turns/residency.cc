#include "sched/turns/residency.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/size.h"

namespace tessera::sched {
namespace {

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

void Residency::Configure(ResidencyConfig config) {
  config.turn_min = std::clamp<Nanos>(config.turn_min, 1, kLongest);
  config.turn_max = std::clamp<Nanos>(config.turn_max, config.turn_min, kLongest);
  config.most_moving = Within(config.most_moving, 0.001, 0.999);
  config.comfort = Within(config.comfort, 0, 1);
  config.settle = std::clamp<Nanos>(config.settle, 0, kLongest);
  config.grace = std::clamp<Nanos>(config.grace, 0, kLongest);
  config_ = config;
  turns_.Configure(config);
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
  if (std::exchange(member->priority, priority) != priority) turns_.Enqueue(*member);
  Schedule();
}

void Residency::Remove(VgpuId id, Nanos now) {
  if (Find(id) == nullptr) return;
  Take(now);
  members_.erase(id);
  Schedule();
}

void Residency::BecomeActive(Member& member) {
  if (member.active && member.leaves_at == kNever) return;
  member.leaves_at = kNever;
  member.changed_at = now_;
  if (!std::exchange(member.active, true)) turns_.Enqueue(member);
}

void Residency::BecomeIdle(Member& member) {
  if (!member.active || member.leaves_at != kNever) return;
  member.changed_at = now_;
  const bool in_the_way = mode_ == Mode::kTurns && !fits_ && member.started;
  member.leaves_at = in_the_way ? now_ + std::min(config_.grace, member.Move()) : now_;
}

std::span<const ResidencyDecision> Residency::Observe(std::span<const ResidencyFacts> facts, std::uint64_t capacity,
                                                      Nanos now) {
  Take(now);
  EndGraces();
  capacity_ = capacity;
  for (const ResidencyFacts& fact : facts) {
    Member* member = Find(fact.vgpu);
    if (member == nullptr) continue;
    member->demand = fact.demand;
    member->holes = fact.holes;
    member->resident = fact.resident;
    member->gang = fact.gang;
    fact.active ? BecomeActive(*member) : BecomeIdle(*member);
  }
  Schedule();
  observed_.clear();
  for (const ResidencyFacts& fact : facts) observed_.push_back(Tell(fact.vgpu));
  return observed_;
}

void Residency::Ready(VgpuId id, Nanos now, Nanos moving, bool typical) {
  Member* member = Find(id);
  if (member == nullptr || !member->decided.runs || member->Ready()) return;
  Take(now);
  member->ready_with = member->decided.target;
  // A move in the middle of a turn is no measure of what a turn costs.
  if (!member->started) member->NoteMove(moving, typical);
  Schedule();
}

ResidencyDecision Residency::Tell(VgpuId id) {
  Member* member = Find(id);
  if (member == nullptr) return {.vgpu = id, .target = 0, .runs = false};
  member->Tell();
  return member->decided;
}

TurnWishes Residency::Wishes() const {
  TurnWishes all = {.turns = mode_ == Mode::kTurns, .capacity = capacity_, .wishes = {}};
  for (const auto& [id, member] : members_) {
    all.wishes.push_back({.vgpu = id,
                          .weight = member.weight,
                          .priority = member.priority,
                          .demand = member.demand,
                          .active = member.active,
                          .ready = member.started,
                          .move = member.measured ? std::optional(member.Move()) : std::nullopt});
  }
  return all;
}

std::string Residency::Why() const {
  const std::string use = FormatSize(in_use_) + " of " + FormatSize(capacity_);
  if (mode_ == Mode::kTogether) return "all that is in use fits: " + use;
  if (fits_) return "all that is in use fits for now: " + use;
  if (turns_.Queue().size() == 1) return "1 active vGPU uses " + use + ": it runs partly from host memory";
  const std::string active = std::to_string(turns_.Queue().size()) + " active vGPUs use ";
  const bool gangs =
      std::ranges::any_of(turns_.Queue(), [](const Member* member) { return member->gang != GangTurn::kOpen; });
  if (gangs) return active + use + ": turns in one order with other GPUs";
  return active + use + ": turns of " + FormatSeconds(turns_.FirstLength());
}

Nanos Residency::TurnLength() const {
  const auto queue = turns_.Queue();
  if (mode_ == Mode::kTogether || queue.empty() || !queue.front()->started) return 0;
  return turns_.FirstTurn();
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
  turns_.Clear();
  idle_.clear();
  in_use_ = 0;
  fits_ = true;
  for (auto& [_, member] : members_) {
    if (!member.active) {
      idle_.push_back(&member);
      continue;
    }
    turns_.Add(member);
    fits_ &= member.demand <= capacity_ && in_use_ <= capacity_ - member.demand;
    in_use_ = member.demand > UINT64_MAX - in_use_ ? UINT64_MAX : in_use_ + member.demand;
  }
  turns_.Measure();
}

void Residency::UpdateMode() {
  if (mode_ == Mode::kTogether) {
    if (fits_) return;
    mode_ = Mode::kTurns;
    comfortable_since_ = kNever;
    turns_.Restart();
    return;
  }
  if (!fits_ || in_use_ > PartOf(capacity_, config_.comfort)) {
    comfortable_since_ = kNever;
  } else if (comfortable_since_ == kNever) {
    comfortable_since_ = now_;
  }
  if (comfortable_since_ != kNever && now_ >= comfortable_since_ + config_.settle) mode_ = Mode::kTogether;
}

// Its chunks come back whole, as long as what others need fits.
void Residency::AddHoles(Member& member) {
  const std::uint64_t holes = std::min(member.holes, left_);
  member.decided.target += holes;
  left_ -= holes;
}

void Residency::ShareTogether() {
  for (Member* member : turns_.Queue()) SetTarget(*member, true, member->demand);
  for (Member* member : turns_.Queue()) AddHoles(*member);
}

void Residency::ShareInTurns() {
  turns_.Choose(capacity_);
  for (Member* member : turns_.Queue()) {
    if (member->chosen) SetTarget(*member, true, member->demand);
  }
  for (Member* member : turns_.Queue()) {
    if (member->chosen) AddHoles(*member);
  }
  // The sooner one runs, the more it keeps.
  for (Member* member : turns_.Queue()) {
    if (!member->chosen) SetTarget(*member, false, member->resident);
  }
}

// Loads nothing for idle vGPUs, and leaves their memory where it is until others need the place.
void Residency::KeepIdle() {
  std::ranges::sort(idle_, [](const Member* a, const Member* b) {
    if (a->changed_at != b->changed_at) return a->changed_at > b->changed_at;
    if (a->priority != b->priority) return a->priority < b->priority;
    return a->decided.vgpu < b->decided.vgpu;
  });
  for (Member* member : idle_) {
    SetTarget(*member, true, member->resident);
    AddHoles(*member);
  }
}

void Residency::StartTurns() {
  for (auto& [_, member] : members_) {
    member.started = member.active && member.decided.runs && (member.started || member.Ready());
  }
}

void Residency::UpdateDeadline() {
  Nanos deadline = kNever;
  if (mode_ == Mode::kTurns) {
    deadline = turns_.NextEnd(now_);
    if (comfortable_since_ != kNever) deadline = std::min(deadline, comfortable_since_ + config_.settle);
  }
  for (const Member* member : turns_.Queue()) deadline = std::min(deadline, member->leaves_at);
  deadline_ = std::max(deadline, now_ + 1);
}

}  // namespace tessera::sched
