#include "server/model/bursts.h"

#include <variant>

namespace tessera::server {
namespace {

using Kind = sched::Verdict::Kind;

std::optional<Nanos> Quantile(const sched::LengthHistogram& lengths, double part) {
  return lengths.count() == 0 ? std::nullopt : std::optional(lengths.Quantile(part));
}

}  // namespace

const char* NameOf(Kind verdict) {
  switch (verdict) {
    case Kind::kKept:
      return "kept";
    case Kind::kTight:
      return "tight";
    case Kind::kMissed:
      return "missed";
    case Kind::kCannot:
      return "cannot";
    case Kind::kUnknown:
      break;
  }
  return "none";
}

std::optional<bool> BurstReport::GoalMet() const {
  if (verdict == Kind::kUnknown) return std::nullopt;
  return verdict == Kind::kKept || verdict == Kind::kTight;
}

void BurstReport::Add(const sched::GoalReport& goal) {
  const sched::BurstFigures& minute = goal.last_minute;
  if (const auto* latency = std::get_if<sched::LatencyGoal>(&goal.goal)) {
    attained_time = Quantile(minute.lengths, latency->percentile / 100);
    judged = goal.since_start.bursts();
    violations = goal.since_start.violations;
  } else if (minute.worked > 0) {
    attained_pct = minute.Speed() * 100;
  }
  if (goal.solo_bursts > 0) solo_p50 = goal.solo_median;
  verdict = goal.verdict.kind;
  reason = goal.verdict.why;
}

void Bursts::Note(const sched::Burst& burst) {
  ++count_;
  lengths_.Note(burst.length());
  all_.Add(burst.length());
  if (burst.alone) alone_.Add(burst.length());
}

BurstReport Bursts::Report() const {
  return {.count = count_,
          .requests = requests_,
          .lengths = lengths_,
          .p50 = Quantile(all_, 0.5),
          .p95 = Quantile(all_, 0.95),
          .p99 = Quantile(all_, 0.99),
          .solo_p50 = Quantile(alone_, 0.5)};
}

}  // namespace tessera::server
