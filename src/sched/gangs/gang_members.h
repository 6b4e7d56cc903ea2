// Which vGPUs of a machine are a gang: pure, and without a state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "sched/gangs/gangs.h"

namespace tessera::sched {

// A program in a vGPU.
struct GangProgram {
  std::int64_t number = 0;     // the same in each vGPU that it uses
  std::vector<VgpuId> joined;  // vGPUs that it named, whether it uses them or not
};

// One vGPU at one moment.
struct GangCandidate {
  VgpuId vgpu = 0;  // unique among all GPUs
  std::size_t gpu = 0;
  std::uint32_t owner = 0;  // the user; a gang is of one
  std::string gang;         // its name; empty: it is in none, unless its programs say so
  bool in_use = false;      // there is a program in it
  std::vector<GangProgram> programs;
};

// Why the vGPUs of a program are a gang.
enum class GangBond {
  kUse,   // that it uses them
  kJoin,  // that it joined them: its processes may use one each. A guess, so it is not made of vGPUs with a named gang
};

// The gang of each vGPU that is in one. A gang is on several GPUs and has the number of its first vGPU. vGPUs of one
// name count while they are in use, because one that nobody uses needs no turn.
std::map<VgpuId, GangId> FindGangs(std::span<const GangCandidate> vgpus, GangBond bond);

}  // namespace tessera::sched
