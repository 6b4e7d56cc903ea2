#include "server/model/goal_report.h"

#include <fmt/format.h>

#include <utility>

#include "server/model/vgpu.h"
#include "server/record/events.h"

namespace tessera::server {

const char* NameOf(GoalVerdict verdict) {
  switch (verdict) {
    case GoalVerdict::kKept:
      return "kept";
    case GoalVerdict::kTight:
      return "tight";
    case GoalVerdict::kMissed:
      return "missed";
    case GoalVerdict::kCannot:
      return "cannot";
    case GoalVerdict::kNone:
      break;
  }
  return "none";
}

void NoteBurst(GoalReport& report, const Burst& burst, const std::optional<sched::Goal>& goal) {
  const Nanos length = burst.end - burst.begin;
  ++report.bursts;
  report.lengths.Note(length);
  const auto* latency = goal ? std::get_if<sched::LatencyGoal>(&*goal) : nullptr;
  if (!latency) return;
  ++report.judged;
  if (length > latency->time) ++report.violations;
}

void Judge(VGpu& vgpu, GoalVerdict verdict, std::string reason) {
  const GoalVerdict before = std::exchange(vgpu.goal_report.verdict, verdict);
  vgpu.goal_report.reason = std::move(reason);
  if (before == verdict) return;
  std::string text = fmt::format("{} (was {})", NameOf(verdict), NameOf(before));
  if (vgpu.spec.goal) text = sched::FormatGoal(*vgpu.spec.goal) + ": " + text;
  if (!vgpu.goal_report.reason.empty()) text += ": " + vgpu.goal_report.reason;
  events::Note({.type = EventType::kGoal,
                .gpu = vgpu.gpu,
                .vgpu = vgpu.spec.name,
                .owner = vgpu.spec.uid,
                .text = std::move(text)});
}

void ForgetGoal(GoalReport& report) {
  report.attained_time.reset();
  report.attained_pct.reset();
  report.judged = report.violations = 0;
  report.verdict = GoalVerdict::kNone;
  report.reason.clear();
}

}  // namespace tessera::server
