#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "sched/shares/shares.h"

namespace tessera::sched {

// Place of a vGPU in the order of classes.
struct ClassWish {
  std::uint32_t priority = 8;  // as configured
  Nanos target = kNever;       // of its latency goal; kNever: it has none in force
};

// The class for Shares::priority of each of these vGPUs, in their order. The order of configured priorities holds.
// Within one, a vGPU with a latency goal goes before those without, and a shorter target before a longer one: the order
// that keeps all targets if any fixed order does (Leung and Whitehead 1982). If no vGPU has a target, classes are as
// configured. There are 16; if more are needed, neighbours share one.
std::vector<std::uint32_t> ClassesOf(const std::vector<ClassWish>& wishes);

}  // namespace tessera::sched
