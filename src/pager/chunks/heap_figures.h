#pragma once

#include <cstdint>

namespace tessera::pager {

// Sums over the chunks of a heap, in bytes.
struct HeapFigures {
  std::uint64_t resident = 0;    // GPU memory of chunks, also of those without blocks
  std::uint64_t swapped = 0;     // GPU memory that chunks need at least which are in host memory or in the mover's file
  std::uint64_t stranded = 0;    // part of `swapped` that stays there until it is freed: no mover has it
  std::uint64_t pinned = 0;      // part of `resident` that must not move
  std::uint64_t exported = 0;    // part of `pinned`: in chunks of blocks that other processes have, and no device
  std::uint64_t registered = 0;  // part of `pinned`: in chunks of blocks that a device has
  std::uint64_t empty = 0;       // part of `resident` that no block uses and that can be given back as it is
  std::uint64_t holes = 0;       // part of `resident` that no block uses and that comes free by a move of its chunks
  std::uint64_t holed = 0;       // part of `resident`: the chunks that these holes are in
  std::uint64_t stuck = 0;       // part of `pinned`: holes of chunks that must not move
  std::uint64_t squeezed = 0;    // part of `swapped`, not recalled, that went out for holes and comes back first
  std::uint64_t holes_out = 0;   // GPU memory that chunks need beside `swapped` if they come back, and do so whole
  std::uint64_t blank = 0;       // of slots, where reserved chunks that move have them or could: no block lies there
  std::uint64_t live = 0;        // units in which blocks lie, wherever they are
  std::uint64_t used = 0;        // part of `live`: the blocks themselves, as the driver would round them
  std::uint64_t sparse = 0;      // part of `resident` in pieces of chunks that are not reserved
  std::uint64_t unsafe = 0;      // in chunks that kernels must not touch now: they have no mapping, or are being copied
  std::uint64_t coming = 0;      // GPU memory that chunks are being copied into; those chunks still count as `swapped`
  std::uint64_t recalled = 0;    // part of `swapped`, not stranded, that was pinned while out: it has to come back
  std::uint64_t held = 0;        // host memory that the program has: chunks that are out, but not with the mover
  // Sums over the heap's life of what was moved to host memory, and back. Freed and dropped chunks do not count.
  std::uint64_t moved_out = 0, moved_in = 0;
  bool operator==(const HeapFigures&) const = default;
};

}  // namespace tessera::pager
