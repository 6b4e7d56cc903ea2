// The residency policy of one GPU tells its wishes to those who decide for several (sched/gangs), and they answer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "sched/shares/shares.h"

namespace tessera::sched {

// The answer of an order over several GPUs for a vGPU on one of them.
enum class GangTurn {
  kOpen,   // nothing: the GPU decides
  kHas,    // the turn is its own, on all GPUs of its gang
  kWaits,  // it may not have the turn now
};

// A vGPU of one GPU, as its policy knows it.
struct TurnWish {
  VgpuId vgpu = 0;
  std::uint32_t weight = 1;    // as in Shares
  std::uint32_t priority = 0;  // as in Shares
  std::uint64_t demand = 0;    // bytes that it wants to have resident when it runs
  bool active = false;         // it has work, or had until a moment ago
  bool ready = false;          // it runs, with its memory there: its turn has begun
  std::optional<Nanos> move;   // how long its memory takes to come; none: not known yet
  bool operator==(const TurnWish&) const = default;
};

// All vGPUs of one GPU.
struct TurnWishes {
  bool turns = false;          // what the active ones use does not fit together
  std::uint64_t capacity = 0;  // bytes that all together may have resident
  std::vector<TurnWish> wishes;
  bool operator==(const TurnWishes&) const = default;
};

}  // namespace tessera::sched
