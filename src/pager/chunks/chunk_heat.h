#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "cuda/cuda_abi.h"
#include "pager/chunks/chunk_table.h"
#include "pager/chunks/use_history.h"

namespace tessera::pager {

// How much each large chunk of a heap was used lately. Submissions name addresses, and not how far behind an address
// they reach: what lies behind a named chunk in the same block counts as used a quarter as much.
class ChunkHeat {
 public:
  // The table outlives this object.
  explicit ChunkHeat(const ChunkTable& chunks);

  // Notes that something which was submitted at `when` (CLOCK_MONOTONIC) names `address`. Does nothing if that lies in
  // no large chunk. Any thread; takes no lock.
  void Touch(cuda::CUdeviceptr address, Nanos when);

  // Of each large chunk. A chunk without blocks has none; a pinned one is hotter than any, as it has to be on the GPU.
  // `chunks` is the table of the constructor, whose mutex the caller holds.
  std::vector<Heat> Heats(const ChunkTable& chunks, Nanos now) const TESSERA_REQUIRES(chunks.mutex());

  // Bytes in host memory that were used so much more than as many bytes on the GPU that the two should change places.
  // Any thread; takes the heap's mutex.
  std::uint64_t HotOut(Nanos now) const;

 private:
  const ChunkTable& chunks_;
  const std::unique_ptr<UseHistory[]> uses_;  // by large chunk
};

}  // namespace tessera::pager
