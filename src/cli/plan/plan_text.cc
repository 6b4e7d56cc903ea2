#include <algorithm>
#include <cmath>
#include <variant>

#include "base/size.h"
#include "base/text/counted.h"
#include "cli/plan/plan_answer.h"
#include "cli/terminal/output.h"
#include "cli/terminal/table.h"
#include "sched/goals/goal.h"
#include "sched/packing/rectangle.h"

namespace tessera::cli {
namespace {

using plan::Attainment;
using plan::PlanPolicy;

constexpr std::pair<const char*, PlanPolicy> kPolicies[] = {{"tessera", PlanPolicy::kTessera},
                                                            {"exclusive", PlanPolicy::kExclusive},
                                                            {"memory", PlanPolicy::kMemory},
                                                            {"time", PlanPolicy::kTime},
                                                            {"fgd", PlanPolicy::kFgd}};

// One decimal at most.
std::string Pct(double part) { return FormatPercent(std::round(part * 1000) / 10); }

std::string Time(Nanos time) {
  return time <= 0 ? "" : FormatMicroseconds(static_cast<std::uint64_t>(time / kMicrosecond));
}

std::string Got(const Attainment& got) {
  if (!got.placed || got.speed.value <= 0) return {};
  std::string text = Pct(got.speed.value);
  const double half = (got.speed.high - got.speed.low) / 2;
  if (half >= 0.0005) text += " ±" + Pct(half);
  return text;
}

std::string Promised(const sched::Placement::Seat& seat) {
  if (seat.way.size.time == 0) return {};
  std::string text = Pct(sched::PctOf(seat.way.size.time) / 100);
  if (seat.in_space) text += " x " + Pct(sched::PctOf(seat.way.size.sms) / 100) + " SM";
  return text;
}

Table Gpus(const PlanAnswer& answer) {
  Table table({{"GPU", Align::kRight},
               {"TENANTS", Align::kRight},
               {"MEMORY %", Align::kRight},
               {"TIME %", Align::kRight},
               {"OVER %", Align::kRight},
               {"BUSY %", Align::kRight},
               {"MOVES %", Align::kRight},
               {"BINDS"}});
  const bool record = answer.workload.interval > 0;
  for (std::size_t i = 0; i < answer.plan.gpus.size(); ++i) {
    const plan::GpuPlan& gpu = answer.plan.gpus[i];
    const bool ran = gpu.figures.measured > 0;
    table.Add({std::to_string(i), std::to_string(gpu.tenants.size()), Pct(gpu.memory), Pct(gpu.time),
               record ? Pct(gpu.over) : "", ran ? Pct(gpu.figures.ExecutedPct() / 100) : "",
               ran ? Pct(gpu.figures.MovingPct() / 100) : "", gpu.binds});
  }
  return table;
}

Table Tenants(const PlanAnswer& answer) {
  Table table({{"TENANT", Align::kLeft, true},
               {"GPU"},
               {"PROMISED %"},
               {"GPU %", Align::kRight},
               {"SPEED %", Align::kRight},
               {"P50", Align::kRight},
               {"P99", Align::kRight},
               {"GOAL"},
               {"KEPT"}});
  for (std::size_t i = 0; i < answer.workload.tenants.size(); ++i) {
    const plan::Tenant& tenant = answer.workload.tenants[i];
    const auto& seat = answer.plan.placement.seats[i];
    const Attainment got = answer.plan.attained.empty() ? Attainment{.verdict = ""} : answer.plan.attained[i];
    std::string on;
    for (const std::size_t gpu : seat.gpus) on += (on.empty() ? "" : ",") + std::to_string(gpu);
    std::string verdict = seat.gpus.empty() ? "not placed" : got.verdict;
    if (verdict == "missed" && got.in_time.value < 1) verdict += ": " + Pct(got.in_time.value) + " % in time";
    if (!got.why.empty()) verdict += "; " + got.why;
    table.Add({tenant.name, on, Promised(seat), got.placed ? Pct(got.gpu_pct / 100) : "", Got(got), Time(got.p50),
               Time(got.p99), tenant.goal ? sched::FormatGoal(*tenant.goal) : "", verdict == "no goal" ? "" : verdict});
  }
  return table;
}

std::string Summary(const PlanAnswer& answer) {
  const plan::FleetPlan& plan = answer.plan;
  const std::size_t tenants = answer.workload.tenants.size();
  std::string text = answer.workload.title + ": ";
  text += plan.refused + plan.crowded > 0 || plan.overfull
              ? Counted(tenants, "tenant asks for more than", "tenants ask for more than")
              : Counted(tenants, "tenant needs", "tenants need");
  text += " " + Counted(plan.gpus.size(), "GPU");
  text += " (" + answer.question.gpu.title + ", " + FormatSize(answer.question.gpu.memory) + "), policy " +
          PolicyName(answer.question.policy) + "\n";
  if (plan.first_fit > plan.gpus.size()) text += "First fit alone needs " + std::to_string(plan.first_fit) + ".\n";
  if (!answer.others.empty()) {
    text += "Without Tessera:";
    for (const OtherPolicy& other : answer.others)
      text += (&other == answer.others.data() ? " " : ", ") + other.name + " " + std::to_string(other.gpus) +
              (other.name == "memory" ? " (whatever time they want)" : "");
    text += "\n";
  }
  if (plan.crowded > 0) {
    text += Counted(plan.crowded, "tenant is", "tenants are") +
            " there although more is used than the GPUs have, for more than 1 % of the time.\n";
  }
  if (plan.refused > 0) text += Counted(plan.refused, "tenant has", "tenants have") + " no place.\n";
  if (answer.workload.interval > 0) {
    text += "More was used than a GPU has in " + Pct(plan.over) + " % of the GPUs' intervals.\n";
  }
  if (const std::string moves = MovesText(answer); !moves.empty()) text += moves + ".\n";
  std::size_t goals = 0, kept = 0;
  for (std::size_t i = 0; i < plan.attained.size(); ++i) {
    if (!answer.workload.tenants[i].goal) continue;
    ++goals;
    kept += plan.attained[i].kept ? 1 : 0;
  }
  if (goals == 1) text += kept == 1 ? "The goal is kept.\n" : "The goal is missed.\n";
  if (goals > 1)
    text += std::to_string(kept) + " of " + std::to_string(goals) + " goals " + (kept == 1 ? "is" : "are") + " kept.\n";
  if (plan.simulated > 0) {
    const double seconds = static_cast<double>(plan.simulating) / kSecond;
    text += "Simulated " + Time(plan.simulated) + ": " + Counted(plan.events, "event") + ", " +
            Pct(static_cast<double>(plan.events) / 1e8 / std::max(seconds, 1e-9)) +
            " million a second on one processor.\n";
  }
  text += "The GPU's figures: " + answer.question.gpu.source + ".\n";
  for (const std::string& note : answer.workload.notes) text += "Note: " + note + ".\n";
  return text;
}

}  // namespace

Result<plan::PlanPolicy> ParsePolicy(const std::string& name) {
  const auto found = std::ranges::find(kPolicies, name, [](const auto& entry) { return std::string(entry.first); });
  if (found == std::end(kPolicies))
    return Fail(EINVAL, "there is no policy \"" + name + "\"", "choose tessera, exclusive, memory, time or fgd");
  return found->second;
}

std::string PolicyName(plan::PlanPolicy policy) {
  return std::ranges::find(kPolicies, policy, [](const auto& entry) { return entry.second; })->first;
}

std::string MovesText(const PlanAnswer& answer) {
  if (answer.question.gpus_per_node == 1) return {};
  std::string text = "Programs move between the " + std::to_string(answer.question.gpus_per_node) +
                     " GPUs of a node: " + Counted(answer.plan.moves, "move") + " as packed";
  if (answer.plan.simulated > 0) text += ", " + std::to_string(answer.plan.moves_simulated) + " in the simulation";
  return text;
}

std::string PlanText(const PlanAnswer& answer, bool colour) {
  return Summary(answer) + "\n" + Gpus(answer).Text(colour) + "\n" + Tenants(answer).Text(colour);
}

}  // namespace tessera::cli
