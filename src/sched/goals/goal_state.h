#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "sched/bursts/burst_meter.h"
#include "sched/goals/goal.h"
#include "sched/goals/latency_keeper.h"
#include "sched/goals/speed_keeper.h"
#include "sched/goals/verdict.h"
#include "sched/shares/shares.h"

namespace tessera::sched {

// Terms under which a vGPU shares the GPU's time because of goals. Weight and limit stay as configured.
struct Terms {
  VgpuId vgpu = 0;
  std::uint32_t priority = 8;     // Shares::priority
  double request_pct = 0;         // Shares::request_pct
  std::optional<Nanos> patience;  // how long lower classes may hold the GPU while it has work; empty: as configured

  friend bool operator==(const Terms&, const Terms&) = default;
};

// Means by which a vGPU's goal may be kept, the weakest first.
enum class Means {
  kNone,      // it is metered and judged, and nothing is promised
  kRequests,  // requests only; nobody stands still for an audit
  kAll,       // terms of every kind, and audits
};

// Background of a vGPU's goal: what its owner may have for it, and how messages name it.
struct Backing {
  Means means = Means::kAll;
  // A speed goal's request rises to this at most, and to the promise in any case, %.
  double most_request_pct = 100;
  std::string name;         // of the vGPU; empty: its number
  std::uint32_t owner = 0;  // its user. Other users do not learn its name and goal; 0 learns all
};

// Record of one vGPU: what it was promised, and what its bursts were like.
struct GoalState {
  static constexpr Nanos kMinute = 60 * kSecond;

  VgpuId id = 0;
  Shares shares;  // as configured
  std::optional<Goal> goal;
  Backing backing;

  // With a goal: the meter, and the one of the keepers that the goal's kind has.
  std::unique_ptr<BurstMeter> meter;
  std::unique_ptr<LatencyKeeper> latency;
  std::unique_ptr<SpeedKeeper> speed;
  Verdict verdict;
  std::string yields_to;  // not empty: the goal is not in force, and this says for what
  double most_pct = 100;  // the request that others leave it

  Nanos told_at = kNever;  // its program last told of a request; kNever: never

  // The burst that is under way.
  bool busy = false;
  bool whole = false;  // the goal was there when it began
  Nanos begin = 0;
  Nanos shared_before = 0;  // Goals::shared_ when it began
  Nanos rush_at = kNever;   // the others have to stop for the rest of it then
  bool rushed = false;      // they were told to
  // The last piece of it.
  Nanos piece_begin = 0;
  Nanos piece_shared = 0;
  std::optional<std::uint64_t> piece_submissions = 0;  // of the burst before it; empty: not known

  Nanos worked_at = kNever;  // the vGPU last had a burst; kNever: never
  Nanos patience = 0;        // in force, for a latency goal
  Nanos patience_since = kNever;
  Terms given;  // the last terms that came out

  // Its program tells how long its requests take: they count then, and bursts do not.
  bool TellsRequests(Nanos now) const { return told_at != kNever && now - told_at < kMinute; }
  bool Promised() const { return goal && backing.means != Means::kNone; }
  bool InForce() const { return Promised() && yields_to.empty(); }
  const LatencyGoal* latency_goal() const { return goal ? std::get_if<LatencyGoal>(&*goal) : nullptr; }
  const SpeedGoal* speed_goal() const { return goal ? std::get_if<SpeedGoal>(&*goal) : nullptr; }
  // Of its speed alone, as an audit of it looks for: whole bursts for a latency, work for a speed.
  std::uint64_t figures() const { return latency ? meter->solo().bursts() : meter->solo().figures(); }
  // In %, without what its controller adds.
  double PromisedRequest() const {
    return speed && InForce() ? std::max(shares.request_pct, speed_goal()->pct) : shares.request_pct;
  }
  // The part of the GPU's time that its request and its goal need.
  double Need(Nanos now) {
    double need = shares.request_pct / 100;
    if (speed && Promised()) need = std::max(need, speed_goal()->part());
    if (latency && Promised()) need = std::max(need, meter->Load(now));
    return need;
  }
};

}  // namespace tessera::sched
