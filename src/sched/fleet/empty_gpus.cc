// Local search for fewer GPUs.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "sched/fleet/fleet_packing.h"
#include "sched/fleet/gpu_load.h"

namespace tessera::sched {
namespace {

// What annealing lowers, and its temperatures.
struct Annealing {
  double promised = 1;  // weight of what is promised beyond what there is
  double broken = 0;    // for a GPU that breaks a promise at all
  double hot = 0.003;   // a little above what the move of a tenant with a promise changes
  double cold = 1e-5;

  // What a GPU is over is a whole number of intervals, and a tenant's move changes a few of them. An interval too many
  // on one GPU is a small excess, and must cost more than what others could save by it.
  static Annealing Of(const std::vector<FleetTenant>& tenants) {
    for (const FleetTenant& tenant : tenants) {
      if (tenant.use.empty()) continue;
      const double interval = 1 / static_cast<double>(tenant.use.duty.size());
      return {.promised = 3, .broken = 8 * interval, .hot = 1.5 * interval, .cold = 0.15 * interval};
    }
    return {};
  }

  double CostOf(const GpuLoad::Excess& excess) const {
    return promised * excess.promised + (excess.promised > 0 ? broken : 0) + excess.over + excess.beyond / 20;
  }
};

class Search {
 public:
  Search(const std::vector<FleetTenant>& tenants, const FleetGpu& gpu, const Placement& start, std::uint64_t seed,
         const std::function<bool()>& go_on)
      : gpu_(gpu),
        go_on_(go_on),
        random_(seed),
        gpus_(start.gpus, Side{GpuLoad(tenants, gpu), {}}),
        annealing_(Annealing::Of(tenants)),
        known_(kKnown) {
    for (std::size_t i = 0; i < tenants.size(); ++i) keys_.push_back(random_());
    for (std::size_t tenant = 0; tenant < start.seats.size(); ++tenant) {
      for (const std::size_t gpu_of : start.seats[tenant].gpus) {
        gpus_[gpu_of].load.Add(tenant);
        gpus_[gpu_of].key ^= keys_[tenant];
        if (tenants[tenant].gpus > 1) fixed_.insert(gpu_of);
      }
    }
    for (Side& side : gpus_) side.excess = side.load.Now();
  }

  // Empties one GPU more. False: the time is over, or none may be emptied; all is as before.
  bool EmptyOne() {
    const std::vector<Side> before = gpus_;
    const auto victim = Lightest();
    if (!victim) return false;
    const std::vector<std::size_t> homeless = gpus_[*victim].load.members();
    gpus_[*victim] = gpus_.back();  // fixed_ names none that is moved: see Lightest
    gpus_.pop_back();
    for (const std::size_t tenant : homeless) Settle(tenant);
    if (Descend()) return true;
    gpus_ = before;
    return false;
  }

  Placement Result(std::size_t tenants) const {
    Placement placement;
    placement.seats.resize(tenants);
    placement.gpus = gpus_.size();
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      const auto& members = gpus_[i].load.members();
      const auto seats = gpus_[i].load.Seats();
      for (std::size_t m = 0; m < members.size(); ++m) {
        std::vector<std::size_t> on = std::move(placement.seats[members[m]].gpus);
        on.push_back(i);
        placement.seats[members[m]] = seats[m];
        placement.seats[members[m]].gpus = std::move(on);
      }
    }
    return placement;
  }

 private:
  struct Side {
    GpuLoad load;
    GpuLoad::Excess excess;
    std::uint64_t key = 0;  // of its members
  };
  double CostOf(const GpuLoad::Excess& excess) const { return annealing_.CostOf(excess); }
  double CostOf(const Side& side) const { return CostOf(side.excess); }

  std::size_t Any(std::size_t count) { return random_() % count; }
  double Chance() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  // The GPU that is easiest to empty: with the fewest members, and of these the one with the least to do.
  std::optional<std::size_t> Lightest() const {
    std::optional<std::size_t> best;
    if (gpus_.size() < 2 || !fixed_.empty()) return best;
    const auto weight = [](const Side& side) { return std::pair(side.load.members().size(), side.load.Time()); };
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      if (!best || weight(gpus_[i]) < weight(gpus_[*best])) best = i;
    }
    return best;
  }

  void Settle(std::size_t tenant) {
    std::size_t best = 0;
    double least = std::numeric_limits<double>::max();
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      const double more = CostOf(After(gpus_[i], GpuLoad::kNobody, tenant)) - CostOf(gpus_[i]);
      if (more < least) {
        least = more;
        best = i;
      }
    }
    gpus_[best].load.Add(tenant);
    gpus_[best].key ^= keys_[tenant];
    gpus_[best].excess = gpus_[best].load.Now();
  }

  // All promises are kept, and together the GPUs are over for no more of their intervals than they may.
  bool Fits() const {
    double over = 0;
    for (const Side& side : gpus_) {
      if (side.excess.promised > 0) return false;
      over += side.excess.over;
    }
    return over <= gpu_.most_over * static_cast<double>(gpus_.size());
  }

  // Until all fits. Simulated annealing: the temperature falls until it is too low for anything but steps down, and is
  // raised again. It falls half as fast each time: a short search finds what is easy, a long one does better.
  bool Descend() {
    double cooling = 1e-5;
    double temperature = annealing_.hot;
    while (!Fits()) {
      if (!go_on_()) return false;
      std::vector<std::size_t> wrong;
      for (std::size_t i = 0; i < gpus_.size(); ++i) {
        if (CostOf(gpus_[i]) > 0) wrong.push_back(i);
      }
      constexpr int kSteps = 64;  // between two looks at the whole
      for (int i = 0; i < kSteps && gpus_.size() > 1; ++i) {
        Step(wrong[Any(wrong.size())], temperature);
        temperature *= 1 - cooling;
      }
      if (temperature < annealing_.cold) {
        temperature = annealing_.hot;
        cooling /= 2;
      }
    }
    return true;
  }

  // Moves a tenant of this GPU to another one, or exchanges it for one of that.
  void Step(std::size_t from, double temperature) {
    std::size_t to = Any(gpus_.size() - 1);
    to += to >= from ? 1 : 0;
    Side& source = gpus_[from];
    Side& target = gpus_[to];
    if (source.load.members().empty()) return;
    const std::size_t leaves = source.load.members()[Any(source.load.members().size())];
    std::size_t comes = GpuLoad::kNobody;
    constexpr int kExchanges = 4;  // all but one in so many steps
    if (!target.load.members().empty() && random_() % kExchanges != 0)
      comes = target.load.members()[Any(target.load.members().size())];
    // The most that both may cost afterwards; the target often costs more alone.
    const double most = CostOf(source) + CostOf(target) - temperature * std::log(1 - Chance());
    const GpuLoad::Excess target_after = After(target, comes, leaves);
    if (CostOf(target_after) > most) return;
    const GpuLoad::Excess source_after = After(source, leaves, comes);
    if (CostOf(source_after) + CostOf(target_after) > most) return;
    source.load.Remove(leaves);
    target.load.Add(leaves);
    if (comes != GpuLoad::kNobody) {
      target.load.Remove(comes);
      source.load.Add(comes);
    }
    const std::uint64_t changed = KeyOf(leaves) ^ KeyOf(comes);
    source.key ^= changed;
    target.key ^= changed;
    source.excess = source_after;
    target.excess = target_after;
  }

  std::uint64_t KeyOf(std::size_t tenant) const { return tenant == GpuLoad::kNobody ? 0 : keys_[tenant]; }

  // The same members come together again and again, mostly to be refused.
  GpuLoad::Excess After(const Side& side, std::size_t leaves, std::size_t comes) {
    const std::uint64_t key = side.key ^ KeyOf(leaves) ^ KeyOf(comes);
    Known& known = known_[key % kKnown];
    if (!known.excess || known.key != key) known = {.key = key, .excess = side.load.After(leaves, comes)};
    return *known.excess;
  }

  // Sets of members: each tenant has a random number, and a set the exclusive or of its members'. Two sets with the
  // same key are as unlikely as 2^-64.
  struct Known {
    std::uint64_t key = 0;
    std::optional<GpuLoad::Excess> excess;
  };
  static constexpr std::size_t kKnown = 1 << 13;  // they stay in the processor's cache

  const FleetGpu& gpu_;
  const std::function<bool()>& go_on_;
  std::mt19937_64 random_;
  std::vector<Side> gpus_;
  std::vector<std::uint64_t> keys_;  // of the tenants
  const Annealing annealing_;
  std::vector<Known> known_;     // by the key, the last one of those that would lie at the same place
  std::set<std::size_t> fixed_;  // GPUs with a tenant of several
};

}  // namespace

Placement EmptyGpus(const std::vector<FleetTenant>& tenants, const FleetGpu& gpu, const Placement& start,
                    std::uint64_t seed, const std::function<bool()>& go_on) {
  Search search(tenants, gpu, start, seed, go_on);
  bool emptied = false;
  while (go_on() && search.EmptyOne()) emptied = true;
  return emptied ? search.Result(tenants.size()) : start;
}

}  // namespace tessera::sched
