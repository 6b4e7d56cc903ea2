// The gate in front of every submission, as the generated trampolines see it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "cuda/cuda_abi.h"

namespace tessera::shim {

class Attachment;
class Markers;

// One per CUDA context. The first part is read by the trampolines (offsets in generate.py): a submission passes without
// a call while `accepted` equals the epoch in the shared page and `budget` lasts. Never freed, because a thread may
// still point to it; reused after its context's end.
struct Gate {
  const std::atomic<std::uint32_t>* epoch;  // in the shared page
  std::atomic<std::uint32_t> accepted{0};   // the order under which submissions pass
  std::atomic<std::int64_t> budget{0};      // submissions until the gate wants to look again

  cuda::CUcontext context = nullptr;
  Attachment* attachment = nullptr;
  Markers* markers = nullptr;  // guarded by the attachment's mutex
  std::int64_t given = 0;      // all budget ever handed out less what was taken back; guarded likewise

  // Submissions so far. Exact while the gate is closed and no thread is between its check and its call.
  std::int64_t Submitted() const {
    const std::int64_t left = budget.load(std::memory_order_relaxed);
    return given - (left > 0 ? left : 0);
  }
};

static_assert(offsetof(Gate, epoch) == 0 && offsetof(Gate, accepted) == 8 && offsetof(Gate, budget) == 16);
static_assert(offsetof(cuda::CUlaunchConfig, hStream) == 32);

// The gate of the calling thread's current context, or null: then the next submission looks it up.
Gate* ThreadGate();
void ForgetThreadGate();

}  // namespace tessera::shim
