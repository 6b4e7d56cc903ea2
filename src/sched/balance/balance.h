// Balancing: a vGPU goes from a GPU that is asked for more than it can do to one that has time to spare.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "sched/packing/rehome.h"

namespace tessera::sched {

// A vGPU's wish for a GPU now.
struct Wanted {
  double time = 0;             // part of the GPU's time, [0, 1]
  std::uint64_t memory = 0;    // bytes that it works with; 0: it has no work
  Nanos pause = 0;             // it stands still for so long if it moves
  Nanos lasts = 30 * kSecond;  // this is expected to stay so for so long
  bool stays = false;          // it is not to move, whatever it wants
};

// The part of a GPU's time that a vGPU would use if nobody were in its way, [0, 1]. In a time of this length it had
// work for so long, and ran for so long of that; 0 <= ran <= had_work <= span. A program that is slower pauses as long
// as before between two pieces of work, so its pauses are what they would be. One that always has work wants the whole
// GPU.
double WantedTime(Nanos ran, Nanos had_work, Nanos span);

struct BalanceRules {
  double least_worth = 0;       // seconds of a GPU; what is worth less is left
  double bytes_per_second = 0;  // to and from host memory, each way; 0: memory does not move there
  Nanos turn = 10 * kSecond;    // of those whose memory does not fit together
  double most_moving = 0.1;     // part of its time that a GPU spends on their moves, at most
};

// What is asked of a GPU, as a part of its time: the time that its vGPUs want together, and moves of memory, where
// those that work do not fit on it together.
double LoadOf(double time, double working_bytes, double gpu_bytes, const BalanceRules& rules);

// The move that is worth most: by which most work is done that is wanted beyond the GPUs' time, as long as that lasts,
// less the work of the vGPU itself that is not done while it moves; of a vGPU that is in no space and has no program in
// common with another one, to a GPU of the same type that has room for its promises. Where several GPUs help alike, to
// the one that has most left, so that it is the last to be asked for too much. nullopt: there is none. `wanted`: of the
// dwellers, as many.
std::optional<Rehoming::Move> Balance(const std::vector<Home>& homes, const std::vector<Dweller>& dwellers,
                                      const std::vector<Wanted>& wanted, const BalanceRules& rules);

}  // namespace tessera::sched
