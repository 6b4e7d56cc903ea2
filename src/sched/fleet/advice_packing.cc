#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "sched/fleet/advice.h"
#include "sched/fleet/advice_words.h"

namespace tessera::sched {
namespace {

// vGPUs that stay together: the members of a space, or one alone.
struct PackedUnit {
  std::vector<std::size_t> vgpus;
  std::size_t gpu = 0;  // where they are
  double size = 0;      // the larger of its parts of a GPU's time and of its memory
};

std::vector<PackedUnit> UnitsOf(const MeteredFleet& fleet, const std::string& type) {
  std::vector<PackedUnit> units;
  std::map<std::pair<std::size_t, std::string>, std::size_t> of_space;
  for (std::size_t i = 0; i < fleet.vgpus.size(); ++i) {
    const MeteredVgpu& vgpu = fleet.vgpus[i];
    const MeteredGpu& gpu = fleet.gpus[vgpu.gpu];
    if (gpu.type != type) continue;
    std::size_t at = units.size();
    if (!vgpu.space.empty()) at = of_space.try_emplace({vgpu.gpu, vgpu.space}, at).first->second;
    if (at == units.size()) units.push_back({.vgpus = {}, .gpu = vgpu.gpu, .size = 0});
    units[at].vgpus.push_back(i);
    double time = 0, memory = static_cast<double>(vgpu.memory_request);
    for (const UsedSample& used : vgpu.samples) {
      time += used.duty / static_cast<double>(vgpu.samples.size());
      memory = std::max(memory, static_cast<double>(used.memory));
    }
    units[at].size +=
        std::max({time, vgpu.request_pct / 100, memory / static_cast<double>(std::max<std::uint64_t>(gpu.memory, 1))});
  }
  return units;
}

// The GPUs of the type in the order in which they are filled: first those on which most is.
std::vector<std::size_t> OrderOf(const MeteredFleet& fleet, const std::string& type,
                                 const std::vector<PackedUnit>& units) {
  std::vector<double> filled(fleet.gpus.size(), 0);
  for (const PackedUnit& unit : units) filled[unit.gpu] += unit.size;
  std::vector<std::size_t> order;
  for (std::size_t gpu = 0; gpu < fleet.gpus.size(); ++gpu) {
    if (fleet.gpus[gpu].type == type) order.push_back(gpu);
  }
  std::ranges::sort(
      order, [&](std::size_t a, std::size_t b) { return filled[a] != filled[b] ? filled[a] > filled[b] : a < b; });
  return order;
}

std::vector<std::size_t> BySize(const std::vector<PackedUnit>& units) {
  std::vector<std::size_t> order(units.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return units[a].size != units[b].size ? units[a].size > units[b].size : a < b;
  });
  return order;
}

// The vGPUs on each GPU.
using GpuMembers = std::map<std::size_t, std::vector<std::size_t>>;

bool Joins(const MeteredFleet& fleet, const PackedUnit& unit, std::size_t gpu, GpuMembers& members,
           const AdviceRules& rules) {
  std::vector<std::size_t> all = members[gpu];
  all.insert(all.end(), unit.vgpus.begin(), unit.vgpus.end());
  if (!FitTogether(fleet, fleet.gpus[gpu], all, rules)) return false;
  members[gpu] = std::move(all);
  return true;
}

// Where each unit is if GPUs are emptied one after the other, as far as what is on them fits on the others: few moves.
std::vector<std::size_t> Emptied(const MeteredFleet& fleet, const std::vector<PackedUnit>& units,
                                 const std::vector<std::size_t>& order, const AdviceRules& rules) {
  std::vector<std::size_t> where;
  GpuMembers members;
  for (const PackedUnit& unit : units) {
    where.push_back(unit.gpu);
    members[unit.gpu].insert(members[unit.gpu].end(), unit.vgpus.begin(), unit.vgpus.end());
  }
  const std::vector<std::size_t> by_size = BySize(units);
  for (auto gpu = order.rbegin(); gpu != order.rend(); ++gpu) {
    if (!members.contains(*gpu)) continue;
    GpuMembers tried = members;
    std::vector<std::size_t> then = where;
    const bool empty = std::ranges::all_of(by_size, [&](std::size_t each) {
      if (where[each] != *gpu) return true;
      const auto place = std::ranges::find_if(order, [&](std::size_t to) {
        return to != *gpu && members.contains(to) && Joins(fleet, units[each], to, tried, rules);
      });
      if (place != order.end()) then[each] = *place;
      return place != order.end();
    });
    if (!empty) continue;
    tried.erase(*gpu);
    members = std::move(tried);
    where = std::move(then);
  }
  return where;
}

// First fit decreasing, all anew. Empty: something fits nowhere.
std::vector<std::size_t> PackedAnew(const MeteredFleet& fleet, const std::vector<PackedUnit>& units,
                                    const std::vector<std::size_t>& order, const AdviceRules& rules) {
  std::vector<std::size_t> where(units.size());
  GpuMembers members;
  for (const std::size_t each : BySize(units)) {
    const auto place =
        std::ranges::find_if(order, [&](std::size_t gpu) { return Joins(fleet, units[each], gpu, members, rules); });
    if (place == order.end()) return {};
    where[each] = *place;
  }
  return where;
}

std::size_t GpusOf(const std::vector<std::size_t>& where) { return std::set(where.begin(), where.end()).size(); }

std::string PlaceWords(const MeteredGpu& gpu) { return "GPU " + gpu.gpu + (gpu.node.empty() ? "" : " of " + gpu.node); }

// That a GPU is not needed, and where its vGPUs and those that make room for them go.
Advice Unneeded(const MeteredFleet& fleet, const std::vector<PackedUnit>& units, const std::vector<std::size_t>& where,
                std::size_t gpu, const AdviceRules& rules) {
  std::set<std::size_t> in_use;
  for (const PackedUnit& unit : units) in_use.insert(unit.gpu);
  Advice advice = {.kind = Advice::Kind::kTogether,
                   .reason = PlaceWords(fleet.gpus[gpu]) + " is not needed: ",
                   .figures = {{"gpus_in_use", static_cast<double>(in_use.size())},
                               {"gpus_needed", static_cast<double>(GpusOf(where))}}};
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (units[i].gpu != gpu) continue;
    for (const std::size_t vgpu : units[i].vgpus) {
      advice.reason +=
          (advice.vgpus.empty() ? "" : ", ") + fleet.vgpus[vgpu].name + " fits on " + PlaceWords(fleet.gpus[where[i]]);
      advice.vgpus.push_back(vgpu);
      advice.moves.push_back({.vgpu = vgpu, .to = where[i]});
    }
  }
  advice.reason += "; time and memory suffice there in all but " + PctWords(100 * rules.over) + " of the samples";
  // Others that move as well make room: without their moves these would not fit.
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (where[i] == units[i].gpu || units[i].gpu == gpu) continue;
    for (const std::size_t vgpu : units[i].vgpus) advice.moves.push_back({.vgpu = vgpu, .to = where[i]});
  }
  return advice;
}

}  // namespace

std::vector<Advice> AdvisePacking(const MeteredFleet& fleet, const AdviceRules& rules) {
  std::vector<Advice> all;
  std::set<std::string> types;
  for (const MeteredGpu& gpu : fleet.gpus) types.insert(gpu.type);
  for (const std::string& type : types) {
    const std::vector<PackedUnit> units = UnitsOf(fleet, type);
    std::set<std::size_t> in_use;
    bool known = true;
    for (const PackedUnit& unit : units) {
      in_use.insert(unit.gpu);
      for (const std::size_t vgpu : unit.vgpus)
        known = known && fleet.vgpus[vgpu].samples.size() >= rules.least_samples;
    }
    if (!known) continue;
    const std::vector<std::size_t> order = OrderOf(fleet, type, units);
    std::vector<std::size_t> where = Emptied(fleet, units, order, rules);
    std::vector<std::size_t> anew = PackedAnew(fleet, units, order, rules);
    if (!anew.empty() && GpusOf(anew) < GpusOf(where)) where = std::move(anew);
    for (const std::size_t gpu : in_use) {
      if (std::ranges::find(where, gpu) == where.end()) all.push_back(Unneeded(fleet, units, where, gpu, rules));
    }
  }
  return all;
}

}  // namespace tessera::sched
