#include "server/model/bursts.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "server/model/vgpu.h"
#include "server/record/events.h"

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

void Bursts::SetGoal(const std::optional<sched::Goal>& goal) {
  if (goal == goal_) return;
  goal_ = goal;
  meter_.reset();
  verdict_ = Kind::kUnknown;
  reason_.clear();
  if (!goal_) return;
  const auto* latency = std::get_if<sched::LatencyGoal>(&*goal_);
  meter_ = std::make_unique<sched::BurstMeter>(latency ? latency->time : kNever);
}

void Bursts::Note(const sched::Burst& burst, Nanos now) {
  ++count_;
  lengths_.Note(burst.length());
  all_.Add(burst.length());
  if (burst.alone) alone_.Add(burst.length());
  if (!meter_) return;
  (void)meter_->AddWork(burst, now);
  (void)meter_->AddBurst(burst, now);
}

bool Bursts::SetVerdict(Kind verdict, std::string reason) {
  reason_ = std::move(reason);
  return std::exchange(verdict_, verdict) != verdict;
}

BurstReport Bursts::ReportAt(Nanos now) const {
  BurstReport report{.count = count_,
                     .lengths = lengths_,
                     .p50 = Quantile(all_, 0.5),
                     .p95 = Quantile(all_, 0.95),
                     .p99 = Quantile(all_, 0.99),
                     .solo_p50 = Quantile(alone_, 0.5),
                     .verdict = verdict_,
                     .reason = reason_};
  if (!meter_) return report;
  const sched::BurstFigures minute = meter_->LastMinute(now);
  if (const auto* latency = std::get_if<sched::LatencyGoal>(&*goal_)) {
    report.attained_time = Quantile(minute.lengths, latency->percentile / 100);
    report.judged = meter_->since_start().bursts();
    report.violations = meter_->since_start().violations;
  } else if (minute.worked > 0) {
    report.attained_pct = minute.Speed() * 100;
  }
  return report;
}

void Judge(VGpu& vgpu, Kind verdict, std::string reason) {
  std::string text = NameOf(verdict);
  if (vgpu.spec.goal) text = sched::FormatGoal(*vgpu.spec.goal) + ": " + text;
  if (!reason.empty()) text += ": " + reason;
  if (!vgpu.bursts.SetVerdict(verdict, std::move(reason))) return;
  events::Note({.type = EventType::kGoal,
                .gpu = vgpu.gpu,
                .vgpu = vgpu.spec.name,
                .owner = vgpu.spec.uid,
                .text = std::move(text)});
}

}  // namespace tessera::server
