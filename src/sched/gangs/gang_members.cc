#include "sched/gangs/gang_members.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tessera::sched {
namespace {

// Sets of vGPUs that belong together. Each has the number of its least one.
class Together {
 public:
  explicit Together(std::span<const GangCandidate> vgpus) {
    for (const GangCandidate& each : vgpus) set_of_[each.vgpu] = each.vgpu;
  }

  GangId Of(VgpuId vgpu) const { return set_of_.at(vgpu); }

  void Unite(VgpuId one, VgpuId another) {
    // Values, and no references into the map that changes.
    const GangId kept = std::min(Of(one), Of(another)), gone = std::max(Of(one), Of(another));
    if (kept == gone) return;
    for (auto& [_, set] : set_of_) set = set == gone ? kept : set;
  }

 private:
  std::map<VgpuId, GangId> set_of_;
};

}  // namespace

std::map<VgpuId, GangId> FindGangs(std::span<const GangCandidate> vgpus, GangBond bond) {
  Together together(vgpus);
  std::set<VgpuId> unnamed;
  for (const GangCandidate& each : vgpus) {
    if (each.gang.empty()) unnamed.insert(each.vgpu);
  }
  std::map<std::int64_t, VgpuId> first_of_program;
  std::map<std::pair<std::uint32_t, std::string>, VgpuId> first_of_name;
  for (const GangCandidate& each : vgpus) {
    if (each.in_use && !each.gang.empty())
      together.Unite(first_of_name.try_emplace({each.owner, each.gang}, each.vgpu).first->second, each.vgpu);
    for (const GangProgram& program : each.programs) {
      together.Unite(first_of_program.try_emplace(program.number, each.vgpu).first->second, each.vgpu);
      if (bond == GangBond::kUse || !unnamed.contains(each.vgpu)) continue;
      for (const VgpuId other : program.joined) {
        if (unnamed.contains(other)) together.Unite(other, each.vgpu);
      }
    }
  }
  std::map<GangId, std::set<std::size_t>> gpus;
  for (const GangCandidate& each : vgpus) gpus[together.Of(each.vgpu)].insert(each.gpu);
  std::map<VgpuId, GangId> gangs;
  for (const GangCandidate& each : vgpus) {
    const GangId gang = together.Of(each.vgpu);
    if (gpus.at(gang).size() > 1) gangs[each.vgpu] = gang;
  }
  return gangs;
}

}  // namespace tessera::sched
