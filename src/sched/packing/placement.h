// Placement: which of several GPUs takes a new vGPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "sched/packing/rectangle.h"

namespace tessera::sched {

// A space and what its vGPUs were promised. It belongs to one owner and lies on one GPU; two owners may have spaces of
// the same name.
struct Space {
  std::uint32_t owner = 0;
  std::string name;
  std::vector<Rectangle> members;
};

// The room of one GPU, as placement sees it.
struct GpuRoom {
  std::string unusable;             // why it takes no vGPU now, in words; empty: it does
  std::vector<Space> spaces;        // alternate in time with each other and with what is alone
  Part alone = 0;                   // time that was promised to vGPUs in no space
  std::uint64_t memory_left = 0;    // bytes that are promised to no vGPU
  std::uint64_t resident_left = 0;  // bytes, of what need not stay on the GPU
};

struct Newcomer {
  std::uint32_t owner = 0;
  std::string space;           // empty: none, and its rectangle is as wide as all SMs
  Rectangle claim;             // its request; without time it needs no packing
  std::uint64_t memory = 0;    // bytes, promised (memory.request)
  std::uint64_t resident = 0;  // bytes that must stay on the GPU, as contexts
};

// The index of the GPU that takes the newcomer: that of its space, if there is one; else, of those with room, the one
// that has the least time x SMs left over, then the least memory, then the lowest index. ENOSPC: there is none; says
// why of each GPU, and the nearest size that would fit. A caller whose GPU refuses after all marks it unusable and asks
// again.
//
// Looks for a packing on one GPU after the other, the tightest first, until there is one.
Result<std::size_t> Place(const Newcomer& newcomer, const std::vector<GpuRoom>& gpus);

// Why the GPU has no room for the newcomer, in words; empty: it has.
std::string WhyNot(const Newcomer& newcomer, const GpuRoom& gpu);

// The largest requests, in whole percents below the newcomer's, for which one of the GPUs has room. nullopt: for none.
struct NearestSizes {
  std::optional<Part> time;  // with its SMs
  std::optional<Part> sms;   // with its time; only in a space
};
NearestSizes NearestThatFit(const Newcomer& newcomer, const std::vector<GpuRoom>& gpus);

// Time of the GPU in which all requests are kept, with the newcomer's if one is given.
Part TimeToKeep(const GpuRoom& gpu, const Newcomer* newcomer = nullptr);

}  // namespace tessera::sched
