#include "plan/cluster/plan_cluster.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "plan/cluster/fleet_csv.h"
#include "plan/cluster/inflation.h"

namespace tessera::plan {
namespace {

constexpr std::uint32_t kMostSeeds = 1000;

Result<void> CheckQuestion(const ClusterQuestion& question) {
  if (question.seeds < 1 || question.seeds > kMostSeeds) return Fail(ERANGE, "seeds must be between 1 and 1000");
  if (!(question.arrive_pct >= 1 && question.arrive_pct <= 1000))
    return Fail(ERANGE, "the GPUs that pods ask for must be between 1 and 1000 percent");
  if (!(question.most_moves_pct >= 0 && question.most_moves_pct <= 100))
    return Fail(ERANGE, "moves must be between 0 and 100 percent of the pods");
  return {};
}

// Each seed's run, by threads that take one after the other.
std::vector<Result<ClusterRun>> RunAll(const Inflation& inflation, const ClusterQuestion& question) {
  std::vector<Result<ClusterRun>> runs(question.seeds);
  const std::uint32_t most =
      question.threads > 0 ? question.threads : std::max(1u, std::thread::hardware_concurrency());
  std::atomic<std::uint32_t> next = 0;
  const auto work = [&] {
    for (std::uint32_t i = next++; i < question.seeds; i = next++) runs[i] = inflation.Run(i + 1);
  };
  std::vector<std::jthread> helpers;
  for (std::uint32_t i = 1; i < std::min(most, question.seeds); ++i) helpers.emplace_back(work);
  work();
  helpers.clear();
  return runs;
}

std::vector<ClusterPoint> MeansOf(const std::vector<ClusterRun>& runs) {
  std::vector<ClusterPoint> means(runs.front().points.size());
  for (std::size_t i = 0; i < means.size(); ++i) {
    means[i].arrived_pct = runs.front().points[i].arrived_pct;
    for (const ClusterRun& run : runs) {
      means[i].allocated_pct += run.points[i].allocated_pct / static_cast<double>(runs.size());
      means[i].fragmented_pct += run.points[i].fragmented_pct / static_cast<double>(runs.size());
    }
  }
  return means;
}

}  // namespace

Result<ClusterReport> PlanCluster(const ClusterQuestion& question) {
  const auto begin = std::chrono::steady_clock::now();
  if (const auto ok = CheckQuestion(question); !ok) return std::unexpected(ok.error());
  const auto nodes = ReadFleetNodes(question.nodes);
  if (!nodes) return std::unexpected(nodes.error());
  if (nodes->gpus() == 0) return Fail(EINVAL, "no node of " + question.nodes + " has a GPU");
  const auto pods = ReadFleetPods(question.pods, *nodes);
  if (!pods) return std::unexpected(pods.error());
  if (std::ranges::none_of(*pods, [](const sched::Demand& pod) { return pod.gpus > 0; }))
    return Fail(EINVAL, "no pod of " + question.pods + " asks for a GPU");

  const Inflation inflation(question, *nodes, *pods);
  ClusterReport report;
  report.nodes = nodes->rooms.size();
  report.gpus = nodes->gpus();
  report.pods = pods->size();
  report.bound_pct = inflation.bound_pct();
  for (auto& run : RunAll(inflation, question)) {
    if (!run) return std::unexpected(run.error());
    report.runs.push_back(std::move(*run));
  }
  report.points = MeansOf(report.runs);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace tessera::plan
