// The gate in front of every submission, as the generated trampolines see it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cuda/cuda_abi.h"

namespace tessera::shim {

class EndWatch;
class GateKeeper;
class Markers;

// The gate of one CUDA context. The first part is read by the trampolines (offsets in load/generate.py): a submission
// passes without a call while `accepted` equals the epoch in the shared page and `budget` lasts. Never freed, because a
// thread may still point to it; reused after its context's end.
//
// It has a cache line of its own, so that a trampoline touches one line of it and no other data that is written shares
// that line.
struct alignas(64) Gate {
  const std::atomic<std::uint32_t>* epoch;  // in the page that is followed
  std::atomic<std::uint32_t> accepted{0};   // the order under which submissions pass
  bool left = false;                        // guarded as what is below: the program works in another context now
  std::atomic<std::int64_t> budget{0};      // submissions that may pass before the keeper is called again

  // The keeper's mutex guards all below, except `keeper`, which never changes.
  GateKeeper* keeper = nullptr;  // null: the gate of processes that belong to no vGPU
  cuda::CUcontext context = nullptr;
  Markers* markers = nullptr;
  EndWatch* watch = nullptr;
  std::int64_t given = 0;  // all budget ever handed out less what was taken back

  // Submissions so far. Exact while the gate is closed and no thread is between its check and its call.
  std::int64_t Submitted() const {
    const std::int64_t left = budget.load(std::memory_order_relaxed);
    return given - (left > 0 ? left : 0);
  }

  // Sends the context's next submission to the keeper, and takes back what is left of the budget.
  void Close() {
    accepted.store(~epoch->load(std::memory_order_relaxed), std::memory_order_relaxed);
    const std::int64_t left = budget.exchange(0, std::memory_order_relaxed);
    if (left > 0) given -= left;
  }

  // Lets the calling thread's submission pass, and `count` less one after it.
  void Give(std::int64_t count) {
    const std::int64_t left = budget.exchange(count - 1, std::memory_order_relaxed);
    given += count - (left > 0 ? left : 0);
  }
};

static_assert(offsetof(Gate, epoch) == 0 && offsetof(Gate, accepted) == 8 && offsetof(Gate, budget) == 16);
static_assert(sizeof(Gate) == 64);
static_assert(offsetof(cuda::CUlaunchConfig, hStream) == 32);

// The gate of the calling thread's current context, or null: then the next submission looks it up.
Gate* ThreadGate();
void SetThreadGate(Gate* gate);
void ForgetThreadGate();

}  // namespace tessera::shim
