#include "plan/cluster/inflation.h"

#include <chrono>
#include <cmath>
#include <utility>

#include "sched/cluster/dice.h"
#include "sched/cluster/fleet.h"
#include "sched/cluster/fleet_chooser.h"
#include "sched/cluster/room_maker.h"

namespace tessera::plan {
namespace {

using sched::Demand;

constexpr std::size_t kMostArrivals = 20'000'000;
constexpr int kStep = 5;  // percent, from point to point

// In the order in which they come: all pods of the list, in any order, without the last ones that are too many; or, if
// they are too few, with some more of the list, any of which is as likely each time. The one that would be too much
// ends it.
Result<std::vector<Demand>> PodsInOrder(const std::vector<Demand>& pods, double most_milli, sched::Dice& dice) {
  std::vector<Demand> arrivals = pods;
  dice.Shuffle(arrivals);
  std::int64_t milli = 0;
  for (const Demand& pod : arrivals) milli += pod.TotalMilli();
  for (; static_cast<double>(milli) > most_milli; arrivals.pop_back()) milli -= arrivals.back().TotalMilli();
  if (arrivals.size() < pods.size()) return arrivals;
  for (;;) {
    const Demand& pod = pods[dice.Below(pods.size())];
    milli += pod.TotalMilli();
    if (static_cast<double>(milli) > most_milli) return arrivals;
    if (arrivals.size() == kMostArrivals) {
      return Fail(E2BIG, "the pods ask for so few GPUs that more than 20 million would have to come",
                  "ask for less with --arrive, or leave out pods without GPUs");
    }
    arrivals.push_back(pod);
  }
}

// Fragments of the nodes' GPUs, computed once for each state.
class FragmentsOfStates {
 public:
  FragmentsOfStates(const sched::Fragmentation& fragmentation, const sched::Fleet& fleet)
      : fragmentation_(fragmentation), fleet_(fleet) {}

  // GPU milli.
  double All() {
    if (all_at_ == fleet_.changes()) return all_;
    all_at_ = fleet_.changes();
    all_ = 0;
    for (std::size_t node = 0; node < fleet_.nodes(); ++node) {
      const std::size_t state = fleet_.StateOf(node);
      if (state >= known_.size()) known_.resize(state + state / 2 + 1, -1);
      if (known_[state] < 0) known_[state] = fragmentation_.Of(fleet_.State(state));
      all_ += known_[state];
    }
    return all_;
  }

 private:
  const sched::Fragmentation& fragmentation_;
  const sched::Fleet& fleet_;
  std::vector<double> known_;  // below 0: not yet
  double all_ = 0;
  std::uint64_t all_at_ = 0;  // Fleet::changes() at which it was computed
};

// Means of what was seen at each whole percent.
class PointSums {
 public:
  void See(double arrived_pct, double allocated_pct, double fragmented_pct) {
    const auto at = static_cast<std::size_t>(std::nearbyint(arrived_pct));
    if (at >= sums_.size()) sums_.resize(at + 1);
    sums_[at].allocated += allocated_pct;
    sums_[at].fragmented += fragmented_pct;
    sums_[at].count += 1;
  }

  // Where nothing was seen, as before.
  std::vector<ClusterPoint> Means(double most_pct) const {
    std::vector<ClusterPoint> points;
    ClusterPoint last;
    for (std::size_t at = 0; static_cast<double>(at) <= most_pct; ++at) {
      if (at < sums_.size() && sums_[at].count > 0) {
        last.allocated_pct = sums_[at].allocated / sums_[at].count;
        last.fragmented_pct = sums_[at].fragmented / sums_[at].count;
      }
      last.arrived_pct = static_cast<double>(at);
      if (at > 0 && at % kStep == 0) points.push_back(last);
    }
    return points;
  }

 private:
  struct Sum {
    double allocated = 0, fragmented = 0, count = 0;
  };
  std::vector<Sum> sums_;
};

}  // namespace

Inflation::Inflation(const ClusterQuestion& question, const FleetNodes& nodes, const std::vector<Demand>& pods)
    : question_(question),
      nodes_(nodes),
      pods_(pods),
      fragmentation_(sched::TypicalDemands(pods)),
      value_(pods, nodes.rooms) {
  std::int64_t milli = 0;
  for (const Demand& pod : pods) milli += pod.TotalMilli();
  bound_pct_ = 100 * static_cast<double>(milli) / sched::kGpuMilli / value_.least_gpus();
}

Result<ClusterRun> Inflation::Run(std::uint64_t seed) const {
  const auto begin = std::chrono::steady_clock::now();
  sched::Dice dice(seed);
  auto rooms = nodes_.rooms;
  dice.Shuffle(rooms);  // of nodes that suit alike, the first takes the pod
  sched::Fleet fleet(rooms);
  const auto all_milli = static_cast<double>(fleet.all_milli());
  const auto arrivals = PodsInOrder(pods_, question_.arrive_pct / 100 * all_milli, dice);
  if (!arrivals) return std::unexpected(arrivals.error());

  sched::FleetChooser chooser(question_.policy, fragmentation_, value_, seed);
  sched::RoomMaker room_maker(value_, question_.most_moves_pct);
  FragmentsOfStates fragments(fragmentation_, fleet);
  PointSums points;
  ClusterRun run;
  run.seed = seed;
  run.arrived = arrivals->size();
  std::int64_t milli = 0;
  for (const Demand& pod : *arrivals) {
    milli += pod.TotalMilli();
    const std::size_t demand = fleet.NumberOf(pod);
    auto spot = chooser.Choose(fleet, demand);
    if (!spot && room_maker.MakeRoom(fleet, demand)) spot = chooser.Choose(fleet, demand);
    if (spot) {
      fleet.Put(demand, *spot);
      ++run.placed;
    }
    points.See(100 * static_cast<double>(milli) / all_milli, 100 * static_cast<double>(fleet.taken_milli()) / all_milli,
               100 * fragments.All() / all_milli);
  }
  run.refused = run.arrived - run.placed;
  run.moved = room_maker.moves();
  run.points = points.Means(question_.arrive_pct);
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return run;
}

}  // namespace tessera::plan
