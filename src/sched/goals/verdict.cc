#include "sched/goals/verdict.h"

#include <cmath>
#include <cstdio>

namespace tessera::sched {
namespace {

constexpr std::uint64_t kLeastBursts = 20;
constexpr Nanos kLongShort = 3 * kSecond;  // a speed that is too low for less is no miss

constexpr double kTolerance = 0.02;

double Ms(Nanos time) { return static_cast<double>(time) / kMillisecond; }

template <typename... Args>
std::string Text(const char* format, Args... args) {
  char text[240];
  std::snprintf(text, sizeof text, format, args...);
  return text;
}

}  // namespace

bool OutOfReach(const LatencyGoal& goal, const SoloTimes& solo) {
  const double allowed = goal.violations() * static_cast<double>(solo.bursts());
  return solo.over_target() >= 3 && solo.over_target() > 2 * allowed;
}

bool AreHopeless(const BurstFigures& requests) {
  return requests.bursts() >= kLeastBursts && 2 * requests.violations > requests.bursts();
}

// A goal that is kept exceeds the allowed number by chance; this much is rare.
bool TooManyViolations(const LatencyGoal& goal, double bursts, double violations) {
  const double allowed = goal.violations() * bursts;
  return violations > allowed + 2 * std::sqrt(allowed) + 1;
}

Verdict JudgeLatency(VgpuId id, const LatencyGoal& goal, double strictness, const SoloTimes* solo,
                     const BurstFigures& last_minute) {
  using enum Verdict::Kind;
  const char* const what = solo ? "bursts" : "requests";
  if (solo && OutOfReach(goal, *solo)) {
    return {id, kCannot,
            Text("alone, a burst takes %.3g ms (median) and %.3g ms (p%g) of %llu, and the goal is %.3g ms",
                 Ms(solo->Quantile(0.5)), Ms(solo->Quantile(goal.percentile / 100)), goal.percentile,
                 static_cast<unsigned long long>(solo->bursts()), Ms(goal.time))};
  }
  if (!solo && AreHopeless(last_minute)) {
    return {id, kCannot,
            Text("more than half of %llu requests of the last minute took longer than %.3g ms; p50 is %.3g ms",
                 static_cast<unsigned long long>(last_minute.bursts()), Ms(goal.time),
                 Ms(last_minute.lengths.Quantile(0.5)))};
  }
  const auto bursts = static_cast<double>(last_minute.bursts());
  const auto violations = static_cast<double>(last_minute.violations);
  const double allowed = goal.violations() * bursts;
  if (TooManyViolations(goal, bursts, violations)) {
    return {id, kMissed,
            Text("%g of %g %s of the last minute took longer than %.3g ms; p%g is %.3g ms", violations, bursts, what,
                 Ms(goal.time), goal.percentile, Ms(last_minute.lengths.Quantile(goal.percentile / 100)))};
  }
  if (last_minute.bursts() < kLeastBursts) return {id, kUnknown, ""};
  if (strictness > 0.95) return {id, kTight, "the others give way as much as they can"};
  if (violations > allowed) {
    return {id, kTight, Text("%g of %g %s of the last minute took longer", violations, bursts, what)};
  }
  return {id, kKept, ""};
}

Verdict JudgeSpeed(VgpuId id, const SpeedGoal& goal, const SpeedKeeper& keeper, const BurstFigures& last_minute,
                   double most_pct, Nanos now) {
  using enum Verdict::Kind;
  if (!keeper.known()) return {id, kUnknown, ""};
  const double speed = 100 * last_minute.Speed();
  if (keeper.ShortFor(now) >= kLongShort && speed < (1 - kTolerance) * goal.pct) {
    return {id, kMissed,
            Text("%.3g %% of the speed alone in the last minute, %.3g %% now, with a request of %.3g", speed,
                 100 * keeper.speed(), keeper.request_pct())};
  }
  if (most_pct < goal.pct || (keeper.request_pct() >= most_pct && speed < goal.pct)) {
    return {id, kTight, Text("%.3g %% of the speed alone; the others leave a request of %.3g", speed, most_pct)};
  }
  return {id, kKept, ""};
}

}  // namespace tessera::sched
