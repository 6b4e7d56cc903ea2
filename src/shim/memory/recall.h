// Waiting for memory of the heap that is pinned and has to come back to the GPU.
#pragma once

#include <unistd.h>

#include "base/clock.h"
#include "cuda/cuda_abi.h"
#include "shim/memory/room_account.h"
#include "shim/process/say.h"
#include "shim/session/daemon_watch.h"

namespace tessera::shim {

// Asks `look`, which pins memory or sees that it is pinned, until it says something else than CUDA_ERROR_NOT_READY, and
// asks the daemon to bring memory back meanwhile. CUDA_ERROR_OUT_OF_MEMORY, with a line on stderr that begins with
// `sorry`, where the GPU has no place for it, or where `look` says that, as no mover can bring it back. No mutex may be
// held that the pager's thread takes.
template <typename Look>
cuda::CUresult AwaitRecall(RoomAccount& room, Look look, const char* sorry) {
  // It may take a turn until there is room, as in RoomAccount::Take.
  constexpr Nanos kLongestWait = 120 * kSecond;
  constexpr unsigned kLookAgainUs = 1'000;
  const Nanos since = MonotonicNow();
  for (Nanos next_ask = since;;) {
    const cuda::CUresult result = look();
    if (result == cuda::CUDA_ERROR_OUT_OF_MEMORY) {
      Say("%s: it lies in host memory for good, because Tessera's daemon and mover ended together; free it and "
          "allocate "
          "it again",
          sorry);
    }
    if (result != cuda::CUDA_ERROR_NOT_READY) return result;
    const Nanos now = MonotonicNow();
    const bool late = now - since > kLongestWait;
    if (late || (now >= next_ask && !room.Recall())) {
      Say("%s: it lies in host memory, and the GPU has no room to bring it back%s", sorry,
          late ? " after two minutes" : "");
      return cuda::CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (now >= next_ask) next_ask = now + kReconnectEvery;
    usleep(kLookAgainUs);
  }
}

}  // namespace tessera::shim
