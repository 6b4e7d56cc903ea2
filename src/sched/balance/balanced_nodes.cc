#include "sched/balance/balanced_nodes.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/size.h"
#include "sched/balance/balance.h"
#include "sched/fleet/interval_count.h"

namespace tessera::sched {
namespace {

double MeanOf(const std::vector<std::int32_t>& series) {
  const auto sum = std::accumulate(series.begin(), series.end(), std::int64_t{0});
  return static_cast<double>(sum) / static_cast<double>(std::max<std::size_t>(1, series.size()));
}

// One node while its record goes by.
class NodeRecord {
 public:
  NodeRecord(const std::vector<FleetTenant>& tenants, const FleetGpu& gpu, std::size_t gpus)
      : tenants_(tenants),
        gpu_(gpu),
        room_(RoomOf(gpu)),
        rules_({.bytes_per_second = gpu.move_bytes_per_second, .turn = gpu.turn, .most_moving = gpu.most_moving}),
        homes_(gpus, {.memory = gpu.memory, .place = UINT64_MAX, .resident = gpu.memory}) {}

  void Add(std::size_t tenant, std::size_t home) {
    members_.push_back(tenant);
    dwellers_.push_back({.home = home, .group = dwellers_.size()});
  }

  // The intervals of each GPU in which it is asked for more than it can do.
  std::vector<std::int32_t> Run(std::size_t intervals) {
    std::vector<std::int32_t> over(homes_.size());
    for (std::size_t at = 0; at < intervals; ++at) {
      const std::vector<float> extra = MoveAll(at);
      for (std::size_t home = 0; home < homes_.size(); ++home) {
        IntervalUse use;
        std::size_t there = 0;
        for (std::size_t i = 0; i < members_.size(); ++i) {
          if (dwellers_[i].home != home) continue;
          use.Add(tenants_[members_[i]].use, at);
          ++there;
        }
        if (BeyondWhole(use, room_) + extra[home] <= 0) continue;
        ++over[home];
        tenants_over_ += there;
      }
    }
    return over;
  }
  std::size_t moves() const { return moves_; }
  std::size_t tenants_over() const { return tenants_over_; }  // times intervals

 private:
  // What the moves of this interval take of each GPU's time, in UseSeries::kWholeInterval: they count as on one GPU,
  // where memory makes room and comes back. One that has no time left for its own move makes its GPU be over.
  std::vector<float> MoveAll(std::size_t at) {
    const double interval = static_cast<double>(gpu_.interval) / kSecond;
    wanted_.clear();
    for (const std::size_t member : members_) {
      const UseSeries& use = tenants_[member].use;
      // What was idle has its memory in host memory, as a rule.
      const double moves = use.woken[at] > 0 ? 1 : 2;
      const double takes = moves * static_cast<double>(use.memory[at]) * room_.by_interval / UseSeries::kWholeInterval;
      const double comes_in = static_cast<double>(use.woken[at]) * room_.by_interval;
      wanted_.push_back({.time = (static_cast<double>(use.duty[at]) + comes_in) / UseSeries::kWholeInterval,
                         .memory = static_cast<std::uint64_t>(use.active[at]) * kMiB,
                         .pause = gpu_.pause + static_cast<Nanos>(takes * interval * kSecond)});
    }
    std::vector<float> extra(homes_.size());
    for (std::size_t most = 2 * homes_.size(); most > 0; --most) {
      const auto move = Balance(homes_, dwellers_, wanted_, rules_);
      if (!move) break;
      Wanted& wanted = wanted_[move->dweller];
      std::size_t& home = dwellers_[move->dweller].home;
      const UseSeries& use = tenants_[members_[move->dweller]].use;
      const float one_way = static_cast<float>(use.memory[at]) * room_.by_interval;
      if (use.woken[at] == 0) extra[home] += one_way;
      home = move->to;
      extra[home] += one_way;
      if (wanted.time * interval + static_cast<double>(wanted.pause) / kSecond > interval)
        extra[home] += UseSeries::kWholeInterval;
      wanted.stays = true;
      ++moves_;
    }
    return extra;
  }

  const std::vector<FleetTenant>& tenants_;
  const FleetGpu& gpu_;
  const IntervalRoom room_;
  const BalanceRules rules_;
  const std::vector<Home> homes_;
  std::vector<std::size_t> members_;
  std::vector<Dweller> dwellers_;  // of the members
  std::vector<Wanted> wanted_;
  std::size_t moves_ = 0;
  std::size_t tenants_over_ = 0;
};

// On so many GPUs: each tenant, the largest first, goes to the node that has most left for each of its GPUs, and there
// to the GPU that has most left.
Placement PlaceOn(std::size_t gpus, const std::vector<double>& sizes, std::size_t node_size) {
  Placement placement{.seats = std::vector<Placement::Seat>(sizes.size()), .gpus = gpus};
  std::vector<std::pair<double, std::size_t>> order;  // the largest first
  for (std::size_t tenant = 0; tenant < sizes.size(); ++tenant) order.emplace_back(-sizes[tenant], tenant);
  std::ranges::sort(order);
  std::vector<double> on_gpu(gpus), on_node((gpus + node_size - 1) / node_size);
  const auto gpus_of = [&](std::size_t node) { return std::min(node_size, gpus - node * node_size); };
  for (const auto& [minus_size, tenant] : order) {
    const auto filled = [&, size = -minus_size](std::size_t node) {
      return (on_node[node] + size) / static_cast<double>(gpus_of(node));
    };
    std::size_t node = 0;
    for (std::size_t i = 1; i < on_node.size(); ++i) node = filled(i) < filled(node) ? i : node;
    const auto first = on_gpu.begin() + static_cast<std::ptrdiff_t>(node * node_size);
    const auto emptiest = std::min_element(first, first + static_cast<std::ptrdiff_t>(gpus_of(node)));
    on_node[node] -= minus_size;
    *emptiest -= minus_size;
    placement.seats[tenant].gpus = {static_cast<std::size_t>(emptiest - on_gpu.begin())};
  }
  return placement;
}

BalancedFleet Run(const std::vector<FleetTenant>& tenants, const FleetGpu& gpu, Placement placement) {
  BalancedFleet fleet{.placement = std::move(placement)};
  const std::size_t gpus = fleet.placement.gpus, intervals = tenants.front().use.duty.size();
  for (std::size_t first = 0; first < gpus; first += gpu.node) {
    const std::size_t size = std::min(gpu.node, gpus - first);
    NodeRecord node(tenants, gpu, size);
    for (std::size_t tenant = 0; tenant < tenants.size(); ++tenant) {
      const std::size_t on = fleet.placement.seats[tenant].gpus.front();
      if (on >= first && on < first + size) node.Add(tenant, on - first);
    }
    for (const std::int32_t over : node.Run(intervals))
      fleet.over.push_back(static_cast<double>(over) / static_cast<double>(intervals));
    fleet.moves += node.moves();
    fleet.tenants_over += static_cast<double>(node.tenants_over()) / static_cast<double>(intervals * tenants.size());
  }
  return fleet;
}

}  // namespace

double BalancedFleet::Over() const {
  return std::accumulate(over.begin(), over.end(), 0.0) / static_cast<double>(std::max<std::size_t>(1, over.size()));
}

bool BalancedFleet::Fits(const FleetGpu& gpu) const {
  return Over() <= gpu.most_over &&
         std::ranges::all_of(over, [&](double each) { return each <= gpu.most_over_of_one; });
}

double MeanSize(const FleetTenant& tenant, const FleetGpu& gpu) {
  const double memory = MeanOf(tenant.use.active) * static_cast<double>(kMiB);
  return MeanOf(tenant.use.duty) / UseSeries::kWholeInterval + memory / static_cast<double>(gpu.memory);
}

BalancedFleet PackNodes(const std::vector<FleetTenant>& tenants, const std::vector<double>& sizes, const FleetGpu& gpu,
                        std::size_t least, std::size_t most) {
  BalancedFleet fleet;
  if (tenants.empty()) return fleet;
  for (std::size_t gpus = std::max<std::size_t>(1, least); gpus <= most; ++gpus) {
    fleet = Run(tenants, gpu, PlaceOn(gpus, sizes, gpu.node));
    if (fleet.Fits(gpu)) break;
  }
  return fleet;
}

}  // namespace tessera::sched
