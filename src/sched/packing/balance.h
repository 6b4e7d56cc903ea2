// Balancing: a vGPU goes from a GPU that is asked for more than it can do to one that has time to spare.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "sched/packing/rehome.h"

namespace tessera::sched {

// What a vGPU wants of a GPU now.
struct Wanted {
  double time = 0;           // part of the GPU's time, [0, 1]
  std::uint64_t memory = 0;  // bytes that it works with; 0: it has no work
  Nanos pause = 0;           // it stands still for so long if it moves
  bool stays = false;        // for now, as it has moved lately
};

// The part of a GPU's time that a vGPU would use if nobody were in its way, [0, 1]. In a time of this length it had
// work for so long, and ran for so long of that; 0 <= ran <= had_work <= span. A program that is slower pauses as long
// as before between two pieces of work, so its pauses are what they would be. One that always has work wants the whole
// GPU.
double WantedTime(Nanos ran, Nanos had_work, Nanos span);

struct BalanceRules {
  double most = 1.05;           // of a GPU's time; vGPUs leave one that is asked for more
  Nanos lasts = 30 * kSecond;   // for so long, at least, vGPUs are expected to want what they want now
  double bytes_per_second = 0;  // to and from host memory, each way; 0: memory does not move there
  Nanos turn = 10 * kSecond;    // of those whose memory does not fit together
  double most_moving = 0.1;     // part of its time that a GPU spends on their moves, at most
};

// What is asked of a GPU, as a part of its time: the time that its vGPUs want together, and moves of memory, where
// those that work do not fit on it together.
double LoadOf(double time, double working_bytes, double gpu_bytes, const BalanceRules& rules);

// The move that is worth most: that lowers what GPUs are asked for beyond their time, while that lasts, by more than
// the move takes; of a vGPU that is in no space and has no program in common with another one, to a GPU of the same
// type that has room for its promises. nullopt: there is none. `wanted`: of the dwellers, as many.
std::optional<Rehoming::Move> Balance(const std::vector<Home>& homes, const std::vector<Dweller>& dwellers,
                                      const std::vector<Wanted>& wanted, const BalanceRules& rules);

}  // namespace tessera::sched
