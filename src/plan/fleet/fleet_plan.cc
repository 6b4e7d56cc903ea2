#include "plan/fleet/fleet_plan.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "base/size.h"
#include "plan/fleet/evaluate.h"
#include "sched/balance/balanced_nodes.h"
#include "sched/fleet/fleet_packing.h"

namespace tessera::plan {
namespace {

sched::Placement Pack(const std::vector<sched::FleetTenant>& needs, const sched::FleetGpu& gpu, PlanPolicy policy,
                      std::size_t most_gpus) {
  switch (policy) {
    case PlanPolicy::kExclusive:
      return sched::Exclusive(needs, most_gpus);
    case PlanPolicy::kFgd:
      return sched::LeastFragmentation(needs, gpu, most_gpus);
    case PlanPolicy::kTessera:
    case PlanPolicy::kMemory:
    case PlanPolicy::kTime:
      break;
  }
  return sched::FirstFitDecreasing(needs, gpu, most_gpus);
}

// The best of as many searches as there are processors, each by a seed of its own.
sched::Placement Search(const std::vector<sched::FleetTenant>& needs, const sched::FleetGpu& gpu,
                        const sched::Placement& start, const PlanQuestion& question) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(question.search);
  const auto go_on = [end] { return std::chrono::steady_clock::now() < end; };
  constexpr unsigned kMostThreads = 16;
  std::vector<sched::Placement> found(std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads), start);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < found.size(); ++i) {
      threads.emplace_back(
          [&, i] { found[i] = sched::EmptyGpus(needs, gpu, start, question.seed + i * 1'000'003, go_on); });
    }
  }
  return *std::ranges::min_element(found, {}, &sched::Placement::gpus);
}

std::string Percent(double part) { return std::to_string(static_cast<int>(part * 100 + 0.5)) + " %"; }

// Why the tenant fits on no GPU of this type; empty: it does.
std::string WhyNever(const Tenant& tenant, const std::vector<sched::FleetTenant>& needs, std::size_t index,
                     const sched::FleetGpu& gpu) {
  sched::GpuLoad load(needs, gpu);
  if (load.HasRoomFor(index)) return {};
  load.Add(index);
  if (gpu.memory < tenant.memory + needs[index].fixed)
    return "it needs " + FormatSize(tenant.memory + needs[index].fixed) + " of memory, its context included";
  if (load.PromisedMemory() > 1) return "it is promised more memory than the GPU has";
  if (load.Time() > 1)
    return "its goal and request take " + Percent(load.Time()) + " of the time that a GPU can promise";
  return "it uses more of a GPU than there is, in more than " + Percent(gpu.most_over) + " of the time";
}

// Mean use of each tenant in the record by which they are placed.
std::vector<double> SizesFor(const Workload& workload, const std::vector<sched::FleetTenant>& needs,
                             const sched::FleetGpu& gpu, const PlanQuestion& question) {
  std::vector<double> sizes;
  if (!question.place_by) {
    for (const sched::FleetTenant& need : needs) sizes.push_back(sched::MeanSize(need, gpu));
    return sizes;
  }
  std::map<std::string, double> known;
  double sum = 0;
  const auto earlier = NeedsOf(*question.place_by, question.gpu, {.policy = question.policy});
  for (std::size_t i = 0; i < earlier.size(); ++i)
    sum += known[question.place_by->tenants[i].name] = sched::MeanSize(earlier[i], gpu);
  const double mean = sum / static_cast<double>(std::max<std::size_t>(1, known.size()));
  for (const Tenant& tenant : workload.tenants) {
    const auto found = known.find(tenant.name);
    sizes.push_back(found == known.end() ? mean : found->second);
  }
  return sizes;
}

// Programs that move between the GPUs of a node, which are placed by what all use on average.
Result<sched::BalancedFleet> PackByNodes(const Workload& workload, const std::vector<sched::FleetTenant>& needs,
                                         const sched::FleetGpu& gpu, const PlanQuestion& question) {
  const char* const hint = "leave out --gpus-per-node";
  if (question.policy != PlanPolicy::kTessera)
    return Fail(EINVAL, "programs move between GPUs with policy tessera only", hint);
  for (std::size_t i = 0; i < needs.size(); ++i) {
    if (needs[i].use.empty())
      return Fail(EINVAL, "tenant " + workload.tenants[i].name + " has no record of use: what it wants does not change",
                  hint);
    if (needs[i].gpus > 1 || !needs[i].ways.empty() || needs[i].promised > 0)
      return Fail(EINVAL, "tenant " + workload.tenants[i].name + " has a promise, or several GPUs: it does not move",
                  hint);
  }
  if (question.place_by && question.place_by->interval <= 0)
    return Fail(EINVAL, question.place_by->title + " is no record of use: programs cannot be placed by it",
                "leave out --place-by");
  const std::vector<double> sizes = SizesFor(workload, needs, gpu, question);
  std::vector<std::size_t> fit;  // tenants
  std::vector<sched::FleetTenant> theirs;
  std::vector<double> their_sizes;
  for (std::size_t i = 0; i < needs.size(); ++i) {
    if (!WhyNever(workload.tenants[i], needs, i, gpu).empty()) continue;
    fit.push_back(i);
    theirs.push_back(needs[i]);
    their_sizes.push_back(sizes[i]);
  }
  const std::size_t least = question.gpus > 0 ? question.gpus : 1;
  const std::size_t most = question.gpus > 0 ? question.gpus : needs.size();
  sched::BalancedFleet fleet = sched::PackNodes(theirs, their_sizes, gpu, least, most);
  std::vector<sched::Placement::Seat> seats(needs.size());
  for (std::size_t i = 0; i < fit.size(); ++i) seats[fit[i]] = std::move(fleet.placement.seats[i]);
  fleet.placement.seats = std::move(seats);
  return fleet;
}

// Which intervals of each GPU were over, and how many of its tenants were there then.
void CountOver(const std::vector<sched::FleetTenant>& needs, const sched::FleetGpu& gpu, FleetPlan& plan) {
  double over = 0, seen = 0, pods = 0, pods_over = 0;
  for (GpuPlan& each : plan.gpus) {
    sched::GpuLoad load(needs, gpu);
    std::size_t with_use = 0;
    for (const std::size_t tenant : each.tenants) {
      load.Add(tenant);
      with_use += needs[tenant].use.empty() ? 0 : 1;
    }
    each.memory = load.Memory();
    each.promised = load.PromisedMemory();
    each.time = load.Time();
    each.over = load.Now().over;
    each.binds = load.WhatBinds() == sched::Binds::kNothing ? "" : NameOf(load.WhatBinds());
    over += each.over;
    seen += 1;
    pods += static_cast<double>(with_use);
    pods_over += static_cast<double>(with_use) * each.over;
  }
  plan.over = seen > 0 ? over / seen : 0;
  plan.pods_over = pods > 0 ? pods_over / pods : 0;
}

// The same where tenants move.
void NoteMoves(const sched::BalancedFleet& balanced, const sched::FleetGpu& gpu, FleetPlan& plan) {
  for (std::size_t i = 0; i < plan.gpus.size(); ++i) {
    plan.gpus[i].over = balanced.over[i];
    plan.gpus[i].binds = balanced.over[i] > 0 ? NameOf(sched::Binds::kUse) : "";
  }
  plan.over = balanced.Over();
  plan.pods_over = balanced.tenants_over;
  plan.overfull = !balanced.Fits(gpu);
  plan.moves = balanced.moves;
}

}  // namespace

Result<FleetPlan> PlanFleet(const Workload& workload, const PlanQuestion& question) {
  if (workload.tenants.empty()) return Fail(EINVAL, "the workload has no tenant");
  const auto needs = NeedsOf(workload, question.gpu, {.policy = question.policy, .margin = question.margin});
  sched::FleetGpu gpu = FleetGpuOf(workload, question.gpu, question.policy);
  gpu.node = question.gpus_per_node;
  if (question.gpus == 0 && question.policy != PlanPolicy::kExclusive) {
    for (std::size_t i = 0; i < needs.size(); ++i) {
      const std::string why = WhyNever(workload.tenants[i], needs, i, gpu);
      if (why.empty()) continue;
      return Fail(ENOSPC, "tenant " + workload.tenants[i].name + " fits on no " + question.gpu.title + ": " + why,
                  "choose another --gpu, or ask for less; with --gpus N it is left out");
    }
  }
  FleetPlan plan;
  std::optional<sched::BalancedFleet> balanced;
  if (question.gpus_per_node > 1) {
    auto packed = PackByNodes(workload, needs, gpu, question);
    if (!packed) return std::unexpected(packed.error());
    balanced = std::move(*packed);
    plan.placement = balanced->placement;
  } else {
    plan.placement = Pack(needs, gpu, question.policy, question.gpus);
  }
  plan.first_fit = plan.placement.gpus;
  if (question.policy == PlanPolicy::kTessera && question.search > 0 && question.gpus == 0 && !balanced) {
    plan.placement = Search(needs, gpu, plan.placement, question);
  }
  plan.crowded = plan.placement.Refused();
  if (plan.crowded > 0 && question.policy == PlanPolicy::kTessera && question.gpus > 0)
    plan.placement = sched::Crowd(needs, gpu, plan.placement, question.gpus);
  plan.refused = plan.placement.Refused();
  plan.crowded -= plan.refused;
  plan.gpus.resize(plan.placement.gpus);
  for (std::size_t tenant = 0; tenant < needs.size(); ++tenant) {
    for (const std::size_t on : plan.placement.seats[tenant].gpus) plan.gpus[on].tenants.push_back(tenant);
  }
  CountOver(needs, gpu, plan);
  if (balanced) NoteMoves(*balanced, gpu, plan);
  if (!question.simulates) return plan;
  if (auto evaluated = Evaluate(workload, question, plan); !evaluated) return std::unexpected(evaluated.error());
  return plan;
}

std::size_t GpusBy(const Workload& workload, const GpuModel& gpu, PlanPolicy policy) {
  return Pack(NeedsOf(workload, gpu, {.policy = policy}), FleetGpuOf(workload, gpu, policy), policy, 0).gpus;
}

}  // namespace tessera::plan
