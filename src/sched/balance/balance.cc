#include "sched/balance/balance.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "sched/packing/town.h"

namespace tessera::sched {
namespace {

// Of one GPU.
struct Asked {
  double time = 0;
  double working = 0;  // bytes
};

double SecondsOf(Nanos time) { return static_cast<double>(time) / kSecond; }

// Cost of a load beyond the GPU's time, each second. Of two equal sums, that which is spread over more GPUs costs less,
// as each vGPU is kept from less of what it wants.
double CostOf(double load) {
  const double over = std::max(0.0, load - 1);
  return over + over * over / 2;
}

class Balancing {
 public:
  Balancing(const std::vector<Home>& homes, const std::vector<Dweller>& dwellers, const std::vector<Wanted>& wanted,
            const BalanceRules& rules)
      : homes_(homes), dwellers_(dwellers), wanted_(wanted), rules_(rules), asked_(homes.size()) {
    for (std::size_t i = 0; i < dwellers.size(); ++i) {
      Change(asked_[dwellers[i].home], i, 1);
      ++in_group_[dwellers[i].group];
    }
  }

  std::optional<Rehoming::Move> Best() const {
    std::vector<Candidate> candidates;
    for (std::size_t home = 0; home < homes_.size(); ++home) {
      if (LoadOn(home, asked_[home]) > 1) AddFrom(home, candidates);
    }
    if (candidates.empty()) return {};
    std::ranges::sort(candidates, {}, [](const Candidate& each) {
      return std::tuple(-each.worth, each.filled, each.move.dweller, each.move.to);
    });
    const Town town(homes_, dwellers_);
    for (const Candidate& each : candidates) {
      const Dweller& dweller = dwellers_[each.move.dweller];
      if (WhyNot(dweller.needs, town.RoomFor(dweller.needs.memory, ClaimOf(dweller), each.move.to)).empty())
        return each.move;
    }
    return {};
  }

 private:
  struct Candidate {
    double worth = 0;   // seconds of a GPU
    double filled = 0;  // its new GPU: time that is wanted of it, and memory that is worked with, as parts
    Rehoming::Move move;
  };

  double LoadOn(std::size_t home, const Asked& asked) const {
    return LoadOf(asked.time, asked.working, static_cast<double>(homes_[home].memory), rules_);
  }
  double FilledOn(std::size_t home, const Asked& asked) const {
    return asked.time + asked.working / std::max(1.0, static_cast<double>(homes_[home].memory));
  }
  void Change(Asked& asked, std::size_t dweller, int sign) const {
    asked.time += sign * wanted_[dweller].time;
    if (wanted_[dweller].time > 0) asked.working += sign * static_cast<double>(wanted_[dweller].memory);
  }
  bool MayMove(std::size_t index) const {
    const Dweller& dweller = dwellers_[index];
    return wanted_[index].time > 0 && !wanted_[index].stays && dweller.stays.empty() && dweller.needs.space.empty() &&
           in_group_.at(dweller.group) == 1;
  }

  void AddFrom(std::size_t home, std::vector<Candidate>& candidates) const {
    for (std::size_t i = 0; i < dwellers_.size(); ++i) {
      if (dwellers_[i].home != home || !MayMove(i)) continue;
      Asked without = asked_[home];
      Change(without, i, -1);
      const double before = CostOf(LoadOn(home, asked_[home])), after = CostOf(LoadOn(home, without));
      for (std::size_t to = 0; to < homes_.size(); ++to) {
        if (to == home || !homes_[to].unusable.empty() || homes_[to].type != homes_[home].type) continue;
        Asked with = asked_[to];
        Change(with, i, 1);
        const double gain = before + CostOf(LoadOn(to, asked_[to])) - after - CostOf(LoadOn(to, with));
        const double worth = gain * SecondsOf(wanted_[i].lasts) - wanted_[i].time * SecondsOf(wanted_[i].pause);
        if (worth > rules_.least_worth) candidates.push_back({worth, FilledOn(to, with), {i, to}});
      }
    }
  }

  const std::vector<Home>& homes_;
  const std::vector<Dweller>& dwellers_;
  const std::vector<Wanted>& wanted_;
  const BalanceRules& rules_;
  std::vector<Asked> asked_;
  std::map<std::size_t, int> in_group_;
};

}  // namespace

double WantedTime(Nanos ran, Nanos had_work, Nanos span) {
  const Nanos paused = span - had_work;
  if (paused <= 0) return had_work > 0 ? 1 : 0;
  return static_cast<double>(ran) / static_cast<double>(ran + paused);
}

double LoadOf(double time, double working_bytes, double gpu_bytes, const BalanceRules& rules) {
  const double beyond = working_bytes - gpu_bytes;
  if (beyond <= 0 || rules.bytes_per_second <= 0) return time;
  return time + std::min(rules.most_moving, beyond / (rules.bytes_per_second * SecondsOf(rules.turn)));
}

std::optional<Rehoming::Move> Balance(const std::vector<Home>& homes, const std::vector<Dweller>& dwellers,
                                      const std::vector<Wanted>& wanted, const BalanceRules& rules) {
  return Balancing(homes, dwellers, wanted, rules).Best();
}

}  // namespace tessera::sched
