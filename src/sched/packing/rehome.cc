#include "sched/packing/rehome.h"

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "sched/packing/town.h"

namespace tessera::sched {
namespace {

// The vGPUs of one group that are on a GPU which they are to leave, and what is known of the whole group.
struct Party {
  std::vector<std::size_t> leaving;
  std::vector<std::size_t> at;  // the GPUs of its other vGPUs
  std::string stays;            // why it cannot move; empty: it can
  Part time = 0;
  std::uint64_t memory = 0, claim = 0, resident = 0, bytes = 0;
};

std::string WhyStays(const Dweller& dweller) {
  if (!dweller.stays.empty()) return dweller.stays;
  return dweller.needs.space.empty() ? "" : "it is in space " + dweller.needs.space + ", which stays on its GPU";
}

std::vector<Party> PartiesOn(std::size_t gpu, const std::vector<Dweller>& dwellers) {
  std::map<std::size_t, Party> by_group;
  for (std::size_t i = 0; i < dwellers.size(); ++i) {
    const Dweller& dweller = dwellers[i];
    if (dweller.home != gpu) continue;
    Party& party = by_group[dweller.group];
    party.leaving.push_back(i);
    party.time += dweller.needs.claim.time;
    party.memory += dweller.needs.memory;
    party.claim += ClaimOf(dweller);
    party.resident += dweller.needs.resident;
    party.bytes += dweller.bytes;
  }
  for (const Dweller& dweller : dwellers) {
    const auto party = by_group.find(dweller.group);
    if (party == by_group.end()) continue;
    if (dweller.home != gpu) party->second.at.push_back(dweller.home);
    if (party->second.stays.empty()) party->second.stays = WhyStays(dweller);
  }
  std::vector<Party> parties;
  for (auto& [_, party] : by_group) parties.push_back(std::move(party));
  return parties;
}

// Where one vGPU goes that leaves its GPU, beside those of its group that are at `at`.
Result<std::size_t> Refuge(const Dweller& dweller, const std::vector<std::size_t>& at, const std::vector<Home>& homes,
                           const Town& town) {
  std::vector<GpuRoom> rooms = town.RoomsFor(dweller.needs.memory, ClaimOf(dweller));
  for (std::size_t home = 0; home < homes.size(); ++home) {
    std::string& unusable = rooms[home].unusable;
    if (home == dweller.home && unusable.empty()) unusable = "it is to leave it";
    if (homes[home].type != homes[dweller.home].type) unusable = "it is of another type";
    if (std::ranges::find(at, home) != at.end()) unusable = "its programs use this one, too";
  }
  const auto placed = Place(dweller.needs, rooms);
  if (!placed || dweller.needs.memory > 0 || dweller.needs.claim.time > 0) return placed;
  std::size_t best = *placed;
  for (std::size_t home = 0; home < homes.size(); ++home) {
    if (WhyNot(dweller.needs, rooms[home]).empty() && town.PlaceLeft(home) > town.PlaceLeft(best)) best = home;
  }
  return best;
}

// Finds places for parties in this order, and adds them there. Those for which there is none stay.
Rehoming Settle(const std::vector<Party>& parties, const std::vector<std::size_t>& order,
                const std::vector<Home>& homes, const std::vector<Dweller>& dwellers, Town town) {
  Rehoming found;
  for (const std::size_t index : order) {
    const Party& party = parties[index];
    std::vector<std::size_t> at = party.at;
    std::vector<Rehoming::Move> moves;
    std::string why = party.stays;
    for (const std::size_t leaving : party.leaving) {
      if (!why.empty()) break;
      const auto refuge = Refuge(dwellers[leaving], at, homes, town);
      if (!refuge) {
        why = refuge.error().message;
        break;
      }
      town.Add(dwellers[leaving], *refuge);
      at.push_back(*refuge);
      moves.push_back({leaving, *refuge});
    }
    if (why.empty()) {
      found.moves.push_back(std::move(moves));
      found.bytes += party.bytes;
      continue;
    }
    for (const auto& [dweller, to] : moves) town.Remove(dwellers[dweller], to);
    for (const std::size_t leaving : party.leaving) found.stays.push_back({leaving, why});
  }
  return found;
}

// The best of some orders: the largest first, by time, by memory promised, by memory held.
Rehoming SettleBest(const std::vector<Party>& parties, const std::vector<Home>& homes,
                    const std::vector<Dweller>& dwellers, const Town& town) {
  const auto settle = [&](auto size) {
    std::vector<std::size_t> order(parties.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, std::ranges::greater(), [&](std::size_t i) { return std::pair(size(parties[i]), ~i); });
    return Settle(parties, order, homes, dwellers, town);
  };
  Rehoming best = settle([](const Party& party) { return std::tuple(party.time, party.memory, party.claim); });
  const auto attempt = [&](auto size) {
    if (best.stays.empty()) return;
    Rehoming found = settle(size);
    if (found.stays.size() < best.stays.size()) best = std::move(found);
  };
  attempt([](const Party& party) { return std::tuple(party.memory, party.time, party.claim); });
  attempt([](const Party& party) { return std::tuple(party.claim, party.memory, party.time); });
  std::ranges::sort(best.stays, {}, &Rehoming::Stay::dweller);
  return best;
}

// ---- room for a newcomer ----

// Bytes, and then vGPUs, that move.
using Cost = std::pair<std::uint64_t, std::size_t>;

Cost CostOf(const Party& party) { return {party.bytes, party.leaving.size()}; }

// Sets of parties, the cheapest first: each once, from the one before by one more, or by another one for its last.
class CheapestFirst {
 public:
  // `parties`: by their cost.
  explicit CheapestFirst(const std::vector<Party>& parties) : parties_(parties) {
    if (!parties.empty()) sets_.push({CostOf(parties[0]), {0}});
  }

  // nullopt: there was each of them.
  std::optional<std::pair<Cost, std::vector<std::size_t>>> Next() {
    if (sets_.empty()) return {};
    auto next = sets_.top();
    sets_.pop();
    const std::size_t last = next.second.back();
    if (last + 1 < parties_.size()) {
      auto more = next;
      more.second.push_back(last + 1);
      Add(more.first, last + 1);
      auto other = next;
      other.second.back() = last + 1;
      other.first.first -= parties_[last].bytes;
      other.first.second -= parties_[last].leaving.size();
      Add(other.first, last + 1);
      sets_.push(std::move(more));
      sets_.push(std::move(other));
    }
    return next;
  }

 private:
  using Set = std::pair<Cost, std::vector<std::size_t>>;

  void Add(Cost& cost, std::size_t party) const {
    cost.first += parties_[party].bytes;
    cost.second += parties_[party].leaving.size();
  }

  const std::vector<Party>& parties_;
  std::priority_queue<Set, std::vector<Set>, std::greater<>> sets_;
};

// Whether the newcomer has more room when the party is away.
bool Helps(const Party& party, const Newcomer& newcomer) {
  return party.stays.empty() &&
         ((newcomer.claim.time > 0 && party.time > 0) || (newcomer.memory > 0 && party.claim > 0) ||
          (newcomer.resident > 0 && party.resident > 0));
}

// The cheapest moves from `gpu` that cost less than `bound`.
std::optional<std::pair<Cost, Rehoming>> CheapestOf(std::size_t gpu, const Newcomer& newcomer, const Cost& bound,
                                                    const std::vector<Home>& homes,
                                                    const std::vector<Dweller>& dwellers, const Town& town) {
  std::vector<Party> parties = PartiesOn(gpu, dwellers);
  std::erase_if(parties, [&](const Party& party) { return !Helps(party, newcomer); });
  std::ranges::sort(parties, {}, [](const Party& party) { return std::pair(CostOf(party), party.leaving.front()); });
  CheapestFirst sets(parties);
  for (int trial = 0; trial < kMostTrials; ++trial) {
    const auto set = sets.Next();
    if (!set || set->first >= bound) return {};
    Town without = town;
    std::vector<Party> leave;
    for (const std::size_t index : set->second) {
      for (const std::size_t dweller : parties[index].leaving) without.Remove(dwellers[dweller], gpu);
      leave.push_back(parties[index]);
    }
    if (!WhyNot(newcomer, without.RoomFor(newcomer.memory, newcomer.memory, gpu)).empty()) continue;
    Rehoming found = SettleBest(leave, homes, dwellers, without);
    if (!found.stays.empty()) continue;
    found.room_on = gpu;
    return std::pair(set->first, std::move(found));
  }
  return {};
}

}  // namespace

Rehoming EmptyGpu(std::size_t gpu, const std::vector<Home>& homes, const std::vector<Dweller>& dwellers) {
  return SettleBest(PartiesOn(gpu, dwellers), homes, dwellers, Town(homes, dwellers));
}

Result<Rehoming> MakeRoom(const Newcomer& newcomer, const std::vector<Home>& homes,
                          const std::vector<Dweller>& dwellers) {
  const Town town(homes, dwellers);
  const auto placed = Place(newcomer, town.RoomsFor(newcomer.memory, newcomer.memory));
  if (placed) return Rehoming{.room_on = *placed};
  std::optional<std::pair<Cost, Rehoming>> best;
  for (std::size_t gpu = 0; gpu < homes.size(); ++gpu) {
    if (!homes[gpu].unusable.empty()) continue;
    const Cost bound = best ? best->first : Cost(UINT64_MAX, SIZE_MAX);
    auto found = CheapestOf(gpu, newcomer, bound, homes, dwellers, town);
    if (found) best = std::move(found);
  }
  if (best) return std::move(best->second);
  Error error = placed.error();
  error.message += "; no moves of vGPUs between GPUs make room";
  return std::unexpected(std::move(error));
}

}  // namespace tessera::sched
