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
// asks the daemon to bring memory back meanwhile. It may take turns of others until there is room: that is waited for,
// as in RoomAccount::Take. CUDA_ERROR_OUT_OF_MEMORY, with a line on stderr that begins with `sorry` (null: without
// one), where the daemon says that the GPU has no place for it, or where `look` says that, as no mover can bring it
// back. No mutex may be held that the pager's thread takes. `clock` is MonotonicNow but in tests.
template <typename Look>
cuda::CUresult AwaitRecall(RoomAccount& room, Look look, const char* sorry, Nanos (*clock)() = MonotonicNow) {
  constexpr Nanos kLongWait = 120 * kSecond;
  constexpr unsigned kLookAgainUs = 1'000;
  const Nanos since = clock();
  for (Nanos next_ask = since, warn_at = since + kLongWait;;) {
    const cuda::CUresult result = look();
    if (result == cuda::CUDA_ERROR_OUT_OF_MEMORY && sorry) {
      Say("%s: it lies in host memory for good, because Tessera's daemon and mover ended together; free it and "
          "allocate "
          "it again",
          sorry);
    }
    if (result != cuda::CUDA_ERROR_NOT_READY) return result;
    const Nanos now = clock();
    if (now >= next_ask && !room.Recall()) {
      if (sorry) Say("%s: it lies in host memory, and the GPU has no room to bring it back", sorry);
      return cuda::CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (now >= warn_at) {
      warn_at = now + kLongWait;
      Say("this program has waited %lld s for memory that comes back to the GPU; 'tessera gpus' and 'tessera ps' say "
          "who "
          "has the room",
          static_cast<long long>((now - since) / kSecond));
    }
    if (now >= next_ask) next_ask = now + kReconnectEvery;
    usleep(kLookAgainUs);
  }
}

}  // namespace tessera::shim
