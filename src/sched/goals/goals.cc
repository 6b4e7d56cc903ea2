#include "sched/goals/goals.h"

#include <algorithm>
#include <utility>

#include "sched/goals/goal_admission.h"
#include "sched/goals/goal_classes.h"

namespace tessera::sched {
namespace {

constexpr Nanos kPiece = 100 * kMillisecond;  // long bursts are cut into such pieces
constexpr Nanos kPatienceDwell = 100 * kMillisecond;
constexpr Nanos kTick = kSecond;
constexpr Nanos kRemembered = 60 * kSecond;  // after its last burst, a vGPU needs no more ticks
constexpr std::uint64_t kFewBursts = 5;      // alone; fewer say nothing
// The part of a burst, or of a piece, that may be shared if it is to count as alone. An audit begins with a burst, and
// the others stand still a moment later; a piece can be cut there.
constexpr double kBurstAlone = 0.1;
constexpr double kPieceAlone = 0.02;

bool WasAlone(Nanos length, Nanos shared, double allowed) {
  return static_cast<double>(shared) <= allowed * static_cast<double>(length);
}

// Whether a vGPU goes on while another one is audited.
bool GoesOn(const GoalState& vgpu, const GoalState& audited) {
  return (vgpu.latency && vgpu.InForce()) || vgpu.shares.priority < audited.shares.priority;
}

}  // namespace

Goals::Goals(GoalsConfig config) : config_(config), auditor_(config) {}
Goals::~Goals() = default;

GoalState* Goals::Find(VgpuId id) {
  const auto found = vgpus_.find(id);
  return found == vgpus_.end() ? nullptr : found->second.get();
}

Result<void> Goals::Set(VgpuId id, const Shares& shares, const std::optional<Goal>& goal, Nanos now,
                        const Backing& backing) {
  if (auto ok = Validate(shares); !ok) return ok;
  if (auto ok = CheckGoal(vgpus_, id, shares, goal, backing, config_.most_promised, now); !ok) return ok;
  CountShared(now);
  std::unique_ptr<GoalState>& vgpu = vgpus_[id];
  if (!vgpu) {
    vgpu = std::make_unique<GoalState>();
    vgpu->id = id;
  }
  vgpu->shares = shares;
  const bool audits = backing.means == Means::kAll;
  if (!audits || vgpu->backing.means != Means::kAll) auditor_.Remove(id, now);
  if (goal && vgpu->goal == goal && audits && vgpu->backing.means != Means::kAll) auditor_.Add(id);
  if (backing.means == Means::kNone) vgpu->yields_to.clear();
  vgpu->backing = backing;
  vgpu->given = {id, shares.priority, shares.request_pct, std::nullopt};
  if (vgpu->goal != goal) {
    auditor_.Remove(id, now);
    vgpu->goal = goal;
    vgpu->meter.reset();
    vgpu->latency.reset();
    vgpu->speed.reset();
    vgpu->verdict = {.vgpu = id};
    vgpu->yields_to.clear();
    vgpu->patience_since = kNever;
    vgpu->rush_at = kNever;
    vgpu->rushed = false;
    vgpu->told_at = kNever;
    // The meter has no part in a burst that began before it.
    vgpu->piece_begin = vgpu->begin = now;
    vgpu->piece_shared = shared_;
    vgpu->piece_submissions.reset();
    vgpu->whole = false;
    if (goal) {
      const LatencyGoal* latency = vgpu->latency_goal();
      vgpu->meter = std::make_unique<BurstMeter>(latency ? latency->time - config_.message_time : kNever);
      if (latency) {
        vgpu->latency = std::make_unique<LatencyKeeper>(*latency, config_);
      } else {
        vgpu->speed = std::make_unique<SpeedKeeper>(*vgpu->speed_goal());
      }
      if (audits) auditor_.Add(id);
      if (vgpu->busy) Worked(*vgpu, now);
    }
  }
  Schedule(now);
  return {};
}

void Goals::Remove(VgpuId id, Nanos now) {
  GoalState* vgpu = Find(id);
  if (!vgpu) return;
  CountShared(now);
  if (vgpu->busy) --busy_;
  auditor_.Remove(id, now);
  vgpus_.erase(id);
  std::erase_if(terms_, [&](const Terms& terms) { return terms.vgpu == id; });
  std::erase_if(verdicts_, [&](const Verdict& verdict) { return verdict.vgpu == id; });
  Schedule(now);
}

void Goals::Began(VgpuId id, Nanos now) {
  GoalState* vgpu = Find(id);
  if (!vgpu || vgpu->busy) return;
  CountShared(now);
  ++busy_;
  vgpu->busy = vgpu->whole = true;
  vgpu->begin = vgpu->piece_begin = now;
  vgpu->shared_before = vgpu->piece_shared = shared_;
  vgpu->piece_submissions = 0;
  vgpu->rush_at = kNever;
  vgpu->rushed = false;
  if (vgpu->goal) {
    Worked(*vgpu, now);
    const SoloTimes& solo = vgpu->meter->solo();
    if (vgpu->latency && solo.bursts() >= kFewBursts && !vgpu->TellsRequests(now))
      vgpu->rush_at = vgpu->latency->RushAt(now, solo.Quantile(0.95), vgpu->meter->RecentSpeed(now));
    Audit(*vgpu, now);
  }
  Schedule(now);
}

void Goals::Ended(VgpuId id, Nanos ended, std::uint64_t submissions, Nanos now) {
  GoalState* vgpu = Find(id);
  if (!vgpu || !vgpu->busy) return;
  CountShared(now);
  ended = std::clamp(ended, vgpu->piece_begin, std::max(now, vgpu->piece_begin));
  if (vgpu->goal) {
    vgpu->worked_at = now;
    Cut(*vgpu, ended, submissions, now);
    if (vgpu->whole) {
      const Burst burst = {vgpu->begin, ended, submissions,
                           WasAlone(ended - vgpu->begin, shared_ - vgpu->shared_before, kBurstAlone)};
      // News of the end come late: a rush after the end was none.
      const bool tells = vgpu->TellsRequests(now);
      const bool violated = vgpu->meter->AddBurst(burst, now, !tells);
      if (vgpu->latency && !tells) vgpu->latency->Ended(violated || (vgpu->rushed && ended > vgpu->rush_at));
    }
    const SoloTimes& solo = vgpu->meter->solo();
    if (vgpu->latency && solo.bursts() >= kFewBursts && !vgpu->TellsRequests(now))
      vgpu->latency->Learn(solo.Quantile(vgpu->latency_goal()->percentile / 100));
    if (audited() == id) auditor_.BurstEnded(vgpu->figures(), now);
  }
  EndBurst(*vgpu, now);
}

// What counted so far is no measure of requests: many of them may be one burst.
void Goals::Told(VgpuId id, std::span<const Nanos> latencies, Nanos now) {
  GoalState* vgpu = Find(id);
  if (!vgpu || !vgpu->latency || latencies.empty()) return;
  CountShared(now);
  if (!vgpu->TellsRequests(now)) vgpu->meter->ForgetLengths();
  vgpu->told_at = now;
  vgpu->rush_at = kNever;
  vgpu->rushed = false;
  for (const Nanos latency : latencies) {
    const bool violated = latency > vgpu->latency_goal()->time;
    vgpu->meter->AddRequest(latency, violated, now);
    vgpu->latency->Told(violated);
  }
  Worked(*vgpu, now);
  Schedule(now);
}

void Goals::Dropped(VgpuId id, Nanos now) {
  GoalState* vgpu = Find(id);
  if (!vgpu || !vgpu->busy) return;
  CountShared(now);
  EndBurst(*vgpu, now);
}

void Goals::EndBurst(GoalState& vgpu, Nanos now) {
  --busy_;
  vgpu.busy = vgpu.rushed = false;
  vgpu.rush_at = kNever;
  Schedule(now);
}

void Goals::Progress(VgpuId id, std::uint64_t submissions, Nanos now) {
  GoalState* vgpu = Find(id);
  if (!vgpu || !vgpu->busy || !vgpu->goal || now <= vgpu->piece_begin) return;
  CountShared(now);
  // An audit is a piece of its own.
  const bool audit = audited() == id && now >= auditor_.alone_since() &&
                     (vgpu->piece_begin < auditor_.alone_since() || now >= auditor_.NextDeadline());
  if (audit || now - vgpu->piece_begin >= kPiece) Cut(*vgpu, now, submissions, now);
}

void Goals::Advance(Nanos now) {
  CountShared(now);
  if (const auto id = audited()) {
    const GoalState& vgpu = *vgpus_.at(*id);
    auditor_.Advance(vgpu.busy, vgpu.figures(), now);
  }
  if (now >= tick_at_) Tick(now);
  Schedule(now);
}

void Goals::CountShared(Nanos now) {
  const Nanos audit = std::clamp(auditor_.alone_since(), shared_at_, std::max(now, shared_at_));
  if (busy_ > 1) shared_ += audit - shared_at_;
  if (now > audit) {
    const auto runs = [&](const auto& entry) { return entry.second->busy && !Stands(entry.first); };
    if (std::ranges::count_if(vgpus_, runs) > 1) shared_ += now - audit;
  }
  shared_at_ = std::max(shared_at_, now);
}

bool Goals::Stands(VgpuId id) const {
  const auto alone = audited();
  if (!alone || *alone == id) return false;
  const auto found = vgpus_.find(id);
  return found == vgpus_.end() || !GoesOn(*found->second, *vgpus_.at(*alone));
}

// A vGPU with a goal has work.
void Goals::Worked(GoalState& vgpu, Nanos now) {
  vgpu.worked_at = now;
  if (tick_at_ == kNever) tick_at_ = now + kTick;
}

// The vGPU's work until `end` is a piece.
void Goals::Cut(GoalState& vgpu, Nanos end, std::uint64_t submissions, Nanos now) {
  if (vgpu.piece_submissions) {
    submissions = std::max(submissions, *vgpu.piece_submissions);
    const Burst piece = {vgpu.piece_begin, end, submissions - *vgpu.piece_submissions,
                         WasAlone(end - vgpu.piece_begin, shared_ - vgpu.piece_shared, kPieceAlone)};
    const std::optional<double> solo = vgpu.meter->AddWork(piece, now);
    if (vgpu.speed && solo) vgpu.speed->Worked(static_cast<double>(piece.length()), *solo, now);
  }
  vgpu.piece_begin = end;
  vgpu.piece_shared = shared_;
  vgpu.piece_submissions = submissions;
}

bool Goals::OthersBusy(const GoalState& vgpu) const { return busy_ > (vgpu.busy ? 1 : 0); }

// Not while another vGPU works that would not stand still.
void Goals::Audit(const GoalState& vgpu, Nanos now) {
  if (audited() || vgpu.backing.means != Means::kAll || !vgpu.busy || !OthersBusy(vgpu)) return;
  for (const auto& [id, other] : vgpus_) {
    if (id != vgpu.id && other->busy && GoesOn(*other, vgpu)) return;
  }
  auditor_.Begin(vgpu.id, vgpu.figures(), now);
}

void Goals::Schedule(Nanos now) {
  Rush(now);
  UpdateTerms(now);
  UpdateDeadline(now);
}

void Goals::Rush(Nanos now) {
  for (const auto& [_, vgpu] : vgpus_) {
    if (vgpu->busy && vgpu->latency && vgpu->InForce() && vgpu->rush_at <= now && OthersBusy(*vgpu))
      vgpu->rushed = true;
  }
}

void Goals::Tick(Nanos now) {
  bool remembered = false;
  bool soon = false;
  for (const auto& [_, vgpu] : vgpus_) {
    if (!vgpu->goal) continue;
    Audit(*vgpu, now);
    if (vgpu->speed && vgpu->InForce()) {
      vgpu->speed->Update(vgpu->most_pct, now);
    }
    remembered |= vgpu->busy || (vgpu->worked_at != kNever && now - vgpu->worked_at < kRemembered);
    soon |= vgpu->busy && vgpu->speed;
  }
  if (now >= judge_at_) {
    ResolveConflicts(vgpus_, config_.most_promised, now);
    for (const auto& [_, vgpu] : vgpus_) Judge(*vgpu, now);
    judge_at_ = now + kTick;
  }
  tick_at_ = remembered ? now + (soon ? kPiece : kTick) : kNever;
}

void Goals::Judge(GoalState& vgpu, Nanos now) {
  if (!vgpu.goal) return;
  Verdict verdict = {vgpu.id, Verdict::Kind::kCannot, vgpu.yields_to};
  const SoloTimes* const solo = vgpu.TellsRequests(now) ? nullptr : &vgpu.meter->solo();
  if (vgpu.latency)
    vgpu.latency->GiveUp(solo ? OutOfReach(*vgpu.latency_goal(), *solo) : AreHopeless(vgpu.meter->LastMinute(now)));
  if (vgpu.yields_to.empty()) {
    const double strictness = vgpu.latency && vgpu.InForce() ? vgpu.latency->strictness() : 0;
    verdict = vgpu.latency ? JudgeLatency(vgpu.id, *vgpu.latency_goal(), strictness, solo, vgpu.meter->LastMinute(now))
                           : JudgeSpeed(vgpu.id, *vgpu.speed_goal(), *vgpu.speed, vgpu.meter->LastMinute(now),
                                        vgpu.most_pct, now);
  }
  const bool changed = verdict.kind != vgpu.verdict.kind;
  vgpu.verdict = verdict;
  if (!changed) return;
  std::erase_if(verdicts_, [&](const Verdict& earlier) { return earlier.vgpu == vgpu.id; });
  verdicts_.push_back(std::move(verdict));
}

void Goals::UpdateTerms(Nanos now) {
  std::vector<ClassWish> wishes;
  for (const auto& [_, vgpu] : vgpus_) {
    const bool latency = vgpu->latency && vgpu->InForce();
    wishes.push_back({vgpu->shares.priority, latency ? vgpu->latency_goal()->time : kNever});
  }
  const std::vector<std::uint32_t> classes = ClassesOf(wishes);
  auto next_class = classes.begin();
  std::vector<std::pair<double, Terms>> changed;  // with the change of the request
  for (const auto& [id, vgpu] : vgpus_) {
    Terms terms = {id, *next_class++, vgpu->shares.request_pct, std::nullopt};
    if (vgpu->latency && vgpu->InForce()) {
      // Less patience at once, more after a while: each change costs calls to the driver.
      const Nanos patience = vgpu->latency->patience();
      const bool first = vgpu->patience_since == kNever;
      if (first || patience < vgpu->patience ||
          (patience > vgpu->patience && now - vgpu->patience_since >= kPatienceDwell)) {
        vgpu->patience = patience;
        vgpu->patience_since = now;
      }
      terms.patience = vgpu->rushed ? 0 : vgpu->patience;
    }
    if (vgpu->speed && vgpu->InForce()) {
      UpdateRoom(vgpus_, *vgpu, config_.most_promised);
      terms.request_pct = std::max(terms.request_pct, std::min(vgpu->speed->request_pct(), vgpu->most_pct));
    }
    if (terms != vgpu->given) changed.emplace_back(terms.request_pct - vgpu->given.request_pct, terms);
    vgpu->given = terms;
  }
  std::ranges::sort(changed, std::ranges::less{},
                    [](const auto& change) { return std::pair(change.first, change.second.vgpu); });
  for (const auto& [_, terms] : changed) {
    std::erase_if(terms_, [&](const Terms& earlier) { return earlier.vgpu == terms.vgpu; });
    terms_.push_back(terms);
  }
}

void Goals::UpdateDeadline(Nanos now) {
  deadline_ = std::min(tick_at_, auditor_.NextDeadline());
  if (auditor_.alone_since() > now) deadline_ = std::min(deadline_, auditor_.alone_since());
  for (const auto& [_, vgpu] : vgpus_) {
    if (vgpu->busy && vgpu->latency && vgpu->InForce() && !vgpu->rushed && OthersBusy(*vgpu))
      deadline_ = std::min(deadline_, vgpu->rush_at);
  }
  if (deadline_ != kNever) deadline_ = std::max(deadline_, now + 1);
}

std::vector<Terms> Goals::TakeTerms() { return std::exchange(terms_, {}); }
std::vector<Verdict> Goals::TakeVerdicts() { return std::exchange(verdicts_, {}); }

std::optional<GoalReport> Goals::ReportOf(VgpuId id, Nanos now) {
  GoalState* vgpu = Find(id);
  if (!vgpu || !vgpu->goal) return std::nullopt;
  const SoloTimes& solo = vgpu->meter->solo();
  return GoalReport{*vgpu->goal,        vgpu->verdict, vgpu->meter->LastMinute(now), vgpu->meter->since_start(),
                    solo.Quantile(0.5), solo.bursts()};
}

}  // namespace tessera::sched
