#include "sched/cluster/fleet_policy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

namespace tessera::sched {
namespace {

// The most of any node, by which the published simulator norms what is left.
constexpr double kMostCpu = 128'000;
constexpr int kMostMilli = 8'000;
constexpr int kBestScore = 100;  // its scores are whole numbers up to this one

double DotProduct(const NodeRoom& room, const Demand& demand) {
  const double cpu = room.cpu / kMostCpu * (demand.cpu / kMostCpu);
  const double gpu =
      static_cast<double>(room.TotalMilli()) / kMostMilli * (static_cast<double>(demand.TotalMilli()) / kMostMilli);
  return std::trunc(kBestScore * (1 - (cpu + gpu) / 2));
}

double BestFit(const NodeRoom& room, const Demand& demand) {
  const double cpu = (room.cpu - demand.cpu) / kMostCpu;
  const double gpu = static_cast<double>(room.TotalMilli() - demand.TotalMilli()) / kMostMilli;
  return std::trunc((1 - (cpu * 0.5 + gpu * 0.5)) * kBestScore);
}

double Clustering(const NodeRoom& room, const Demand& demand) {
  if (demand.gpus == 0) return 0;
  constexpr int kClass = kBestScore / 4;
  const int fullness = kClass * (kMostMilli - room.TotalMilli()) / kMostMilli;
  if (room.kinds == 0) return fullness + kClass;
  if ((room.kinds & NodeRoom::KindOf(demand)) == 0) return fullness;
  return fullness + (std::has_single_bit(room.kinds) ? 3 : 2) * kClass;
}

double Packing(const NodeRoom& room, const Demand& demand) {
  if (demand.gpus == 0) return 0;
  const int whole = room.WholeGpus();
  if (whole == room.gpus) return std::max(kBestScore / 3 - whole, whole);
  // The fullest ones that have room.
  std::array<std::int16_t, kMostGpus> left = room.gpu_milli;
  std::sort(left.begin(), left.begin() + room.gpus);
  int missing = demand.gpus, fresh = 0, percents = 0;
  for (int gpu = 0; gpu < room.gpus && missing > 0; ++gpu) {
    if (left[gpu] < demand.gpu_milli) continue;
    --missing;
    fresh += left[gpu] == kGpuMilli;
    percents += left[gpu] * 100 / kGpuMilli;
  }
  if (fresh > 0) return std::max(kBestScore / 2 - fresh, kBestScore / 3);
  return std::max(kBestScore - percents / 10, kBestScore / 2);
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// `score` of what would be left, for the GPU where it is greatest.
template <typename Score>
Suit BestGpu(const NodeRoom& room, const Demand& demand, const Score& score) {
  if (!demand.IsPart()) {
    const GpuSet gpus = room.Tightest(demand);
    NodeRoom after = room;
    after.Take(demand, gpus);
    return {score(after), gpus};
  }
  Suit best;
  for (int gpu = 0; gpu < room.gpus; ++gpu) {
    if (room.gpu_milli[gpu] < demand.gpu_milli) continue;
    const auto* const same = std::find(room.gpu_milli.begin(), room.gpu_milli.begin() + gpu, room.gpu_milli[gpu]);
    if (same != room.gpu_milli.begin() + gpu) continue;
    NodeRoom after = room;
    after.Take(demand, GpuSet{1} << gpu);
    const double here = score(after);
    if (best.gpus == 0 || here > best.score) best = {here, GpuSet{1} << gpu};
  }
  return best;
}

Suit Fgd(const NodeRoom& room, const Demand& demand, const Fragmentation& fragmentation) {
  const double before = fragmentation.Of(room);
  return BestGpu(room, demand, [&](const NodeRoom& after) {
    return std::trunc(kBestScore * Sigmoid((before - fragmentation.Of(after)) / 1000));
  });
}

// Of places that are worth the same, the one on the node with the least GPU left.
Suit Tessera(const NodeRoom& room, const Demand& demand, const FleetValue& value) {
  constexpr double kTie = 1e-6;  // GPUs for each GPU milli
  const double before = value.Of(room);
  return BestGpu(room, demand,
                 [&](const NodeRoom& after) { return value.Of(after) - before - kTie * after.TotalMilli(); });
}

constexpr std::array<std::pair<FleetPolicy, std::string_view>, 7> kPolicyNames = {{
    {FleetPolicy::kRandom, "random"},
    {FleetPolicy::kDotProduct, "dotprod"},
    {FleetPolicy::kClustering, "clustering"},
    {FleetPolicy::kPacking, "packing"},
    {FleetPolicy::kBestFit, "bestfit"},
    {FleetPolicy::kFgd, "fgd"},
    {FleetPolicy::kTessera, "tessera"},
}};

}  // namespace

std::string_view NameOf(FleetPolicy policy) {
  return std::ranges::find(kPolicyNames, policy, &std::pair<FleetPolicy, std::string_view>::first)->second;
}

std::optional<FleetPolicy> FleetPolicyOf(std::string_view name) {
  const auto* const found = std::ranges::find(kPolicyNames, name, &std::pair<FleetPolicy, std::string_view>::second);
  if (found == kPolicyNames.end()) return std::nullopt;
  return found->first;
}

Suit SuitOf(FleetPolicy policy, const NodeRoom& room, const Demand& demand, const Fragmentation& fragmentation,
            const FleetValue& value) {
  switch (policy) {
    case FleetPolicy::kRandom:
      return {0, room.Tightest(demand)};
    case FleetPolicy::kDotProduct:
      return {DotProduct(room, demand), room.Tightest(demand)};
    case FleetPolicy::kClustering:
      return {Clustering(room, demand), room.Tightest(demand)};
    case FleetPolicy::kPacking:
      return {Packing(room, demand), room.Tightest(demand)};
    case FleetPolicy::kBestFit:
      return {BestFit(room, demand), room.Tightest(demand)};
    case FleetPolicy::kFgd:
      return Fgd(room, demand, fragmentation);
    case FleetPolicy::kTessera:
      return Tessera(room, demand, value);
  }
  return {};
}

}  // namespace tessera::sched
