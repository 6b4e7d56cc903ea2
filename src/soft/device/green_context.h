#pragma once

#include <atomic>
#include <cstdint>

#include "cuda/cuda_abi.h"

namespace tessera::soft {

class Context;

// A green context: some multiprocessors for work of its primary context. Its CUcontext has the value of its handle.
// Work on its default stream, on streams that were made in it and of graphs that were made with them uses as many
// multiprocessors; which ones is no matter on the soft GPU, as they are all the same. Its streams are all non-blocking,
// whatever was asked for, and a thread has no default stream of its own there (H100, 580.159.04). Lives as long as the
// process, so that a stale handle finds out that it is one. Any thread.
struct GreenContext {
  Context& primary;
  const std::uint32_t multiprocessors;
  std::atomic<bool> open = true;

  // One more, which is never destroyed.
  static GreenContext& Make(Context& primary, std::uint32_t multiprocessors);
  // Null if it is no green context of this process; it may be closed.
  static GreenContext* FromHandle(const void* handle);

  cuda::CUcontext handle() const { return reinterpret_cast<cuda::CUcontext>(const_cast<GreenContext*>(this)); }
};

}  // namespace tessera::soft
