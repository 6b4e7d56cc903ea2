#pragma once

#include <cstdint>

namespace tessera::pager {

// Sums over the chunks of a heap, in bytes.
struct HeapFigures {
  std::uint64_t resident = 0;    // in chunks backed by GPU memory, also those without blocks
  std::uint64_t swapped = 0;     // in chunks backed by host memory or by the mover's file
  std::uint64_t pinned = 0;      // part of `resident` that must not move
  std::uint64_t exported = 0;    // part of `pinned`: in chunks of blocks that other processes have, and no device
  std::uint64_t registered = 0;  // part of `pinned`: in chunks of blocks that a device has
  std::uint64_t empty = 0;       // part of `resident` without blocks
  std::uint64_t unsafe = 0;      // in chunks that kernels must not touch now: they have no mapping, or are being copied
  std::uint64_t coming = 0;      // GPU memory that chunks are being copied into; those chunks still count as `swapped`
  std::uint64_t recalled = 0;    // part of `swapped` that was pinned while it was out: it has to come back
  // Sums over the heap's life of what was moved to host memory, and back. Freed and dropped chunks do not count.
  std::uint64_t moved_out = 0, moved_in = 0;
  bool operator==(const HeapFigures&) const = default;
};

}  // namespace tessera::pager
