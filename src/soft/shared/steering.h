// Freezes, thaws and slices of processes on the soft GPUs, by any process of their user. Thread-safe.
//
// A server of MPS and its clients are one entity: to freeze, thaw or slice one of them does it to all. (On the real GPU
// the slice belongs to the server's TSG, and the freeze of one client inside a group stopped the whole group or that
// client alone: nothing may depend on it.)
#pragma once

#include <sys/types.h>

#include "base/clock.h"
#include "base/result.h"
#include "soft/shared/shared_state.h"

namespace tessera::soft {

// Returns once the process stands still as far as `frozen` says: from then on, nothing of it touches memory. ESRCH if
// no living process of that pid is attached; ETIMEDOUT if it is frozen, but does not stand still within kStandstill.
// So it is where a signal has stopped a process in the middle of a step, which it ends when it is continued. Its
// kernels are said to stand still all the same: where only they are frozen, nobody means to touch their memory.
inline constexpr Nanos kStandstill = kSecond;
Result<void> SetFrozen(SharedState& state, int device, pid_t pid, Frozen frozen);

// How long contexts of the process execute before they hand over to one that waits; from its next turn on. ESRCH as
// above.
Result<void> SetSlice(SharedState& state, int device, pid_t pid, Nanos slice);
Result<Nanos> SliceOf(SharedState& state, int device, pid_t pid);

}  // namespace tessera::soft
