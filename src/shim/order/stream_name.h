// Streams as the program names them.
#pragma once

#include <compare>
#include <cstdint>

#include "cuda/cuda_abi.h"

namespace tessera::shim {

// A stream of the process. Two names are equal if they mean the same stream, as long as it lives: the driver may give
// the handle of a stream that was destroyed to another one.
struct StreamName {
  cuda::CUcontext context = nullptr;  // of a default stream; null: the handle says it all
  cuda::CUstream stream = nullptr;    // a default stream has its special handle
  std::uint64_t thread = 0;           // of a thread's own default stream, never the same for two threads; else 0
  auto operator<=>(const StreamName&) const = default;
};

// What `stream` means in a call of this thread. `per_thread`: a null handle is the thread's own default stream there
// (the functions _ptsz), and not the legacy one.
StreamName NameOf(cuda::CUstream stream, bool per_thread);

// A number of the calling thread's, from 1 on.
std::uint64_t ThreadNumber();

}  // namespace tessera::shim
