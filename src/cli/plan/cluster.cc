#include "cli/plan/cluster.h"

#include <unistd.h>

#include <cmath>

#include "base/text/counted.h"
#include "cli/terminal/output.h"
#include "cli/terminal/table.h"
#include "plan/cluster/plan_cluster.h"

namespace tessera::cli {
namespace {

using client::Json;

constexpr double kOwnMovesPct = 2;

Json PointJson(const plan::ClusterPoint& point) {
  return {{"arrived_pct", point.arrived_pct},
          {"allocated_pct", point.allocated_pct},
          {"fragmented_pct", point.fragmented_pct}};
}

Json ReportJson(const plan::ClusterReport& report, const ClusterChoices& choices) {
  Json points = Json::array(), runs = Json::array();
  for (const plan::ClusterPoint& point : report.points) points.push_back(PointJson(point));
  for (const plan::ClusterRun& run : report.runs) {
    runs.push_back({{"seed", run.seed},
                    {"arrived", run.arrived},
                    {"placed", run.placed},
                    {"refused", run.refused},
                    {"moved", run.moved},
                    {"seconds", run.seconds}});
  }
  return {{"policy", choices.policy},      {"nodes", report.nodes},     {"gpus", report.gpus}, {"pods", report.pods},
          {"bound_pct", report.bound_pct}, {"seconds", report.seconds}, {"points", points},    {"runs", runs}};
}

std::string Tenth(double pct) { return FormatPercent(std::round(pct * 100) / 100); }

std::string ReportText(const plan::ClusterReport& report, const ClusterChoices& choices, bool colour) {
  std::size_t moved = 0, placed = 0;
  for (const plan::ClusterRun& run : report.runs) {
    moved += run.moved;
    placed += run.placed;
  }
  std::string text = Counted(report.nodes, "node") + " with " + Counted(report.gpus, "GPU") + ", " +
                     Counted(report.pods, "pod") + " in random order, policy " + choices.policy + ", mean of " +
                     Counted(report.runs.size(), "order") + "\n";
  text += "Before a pod is refused, at most " + Tenth(report.bound_pct) + " % of the GPUs can be allocated.\n";
  if (placed > 0)
    text += Tenth(100 * static_cast<double>(moved) / static_cast<double>(placed)) + " % of the pods were moved.\n";
  Table table({{"ASKED FOR %", Align::kRight}, {"ALLOCATED %", Align::kRight}, {"FRAGMENTED %", Align::kRight}});
  constexpr double kFrom = 50;  // below that all is allocated
  for (const plan::ClusterPoint& point : report.points) {
    if (point.arrived_pct >= kFrom)
      table.Add({Tenth(point.arrived_pct), Tenth(point.allocated_pct), Tenth(point.fragmented_pct)});
  }
  return text + "\n" + table.Text(colour);
}

}  // namespace

Result<int> PlanPods(const Common& common, const ClusterChoices& choices) {
  plan::ClusterQuestion question{.nodes = choices.nodes, .pods = choices.pods, .seeds = choices.seeds};
  const auto policy = sched::FleetPolicyOf(choices.policy);
  if (!policy) {
    return Fail(EINVAL, "there is no policy \"" + choices.policy + "\" for pods",
                "choose tessera, random, dotprod, clustering, packing, bestfit or fgd");
  }
  question.policy = *policy;
  question.arrive_pct = choices.arrive_pct;
  const bool own = *policy == sched::FleetPolicy::kTessera;
  question.most_moves_pct = choices.moves_pct >= 0 ? choices.moves_pct : own ? kOwnMovesPct : 0;
  const auto report = plan::PlanCluster(question);
  if (!report) return std::unexpected(report.error());
  if (common.json) {
    PrintJson(ReportJson(*report, choices));
  } else {
    Print(ReportText(*report, choices, IsTerminal(STDOUT_FILENO)));
  }
  return 0;
}

}  // namespace tessera::cli
