#pragma once

#include "base/clock.h"
#include "sched/shares/shares.h"

namespace tessera::sched {

// An action that the GPU server must take now. A list of orders has at most one of each kind for a vGPU, and never both
// a kStop and a kGo.
struct Order {
  enum class Kind {
    kStop,   // freeze the vGPU's channels, and hold back the submissions of its processes that have nothing queued
    kGo,     // thaw them, and let submissions pass
    kSlice,  // give its channels together this slice
    kGrace,  // a process of it is idle when it had no work for this long
  };
  Kind kind;
  VgpuId vgpu;
  Nanos time = 0;  // kSlice: of the whole vGPU, kGrace
};

}  // namespace tessera::sched
