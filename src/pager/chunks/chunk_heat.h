#pragma once

#include <atomic>
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
  // Memory at `address` was allocated at `when`, and will soon be used. Otherwise as Touch.
  void NoteAllocation(cuda::CUdeviceptr address, Nanos when);

  // A submission of `when` was examined, after Touch of all that it names. `named`: whether it could tell what it uses.
  // One that could not, as a kernel finds its memory by pointers that are in memory themselves, counts as use of
  // everything, a quarter as much as of what is named. Any thread; takes no lock.
  void NoteSubmission(bool named, Nanos when);
  // As if nothing had been submitted yet.
  void ForgetSubmissions() { submitted_ = 0; }

  // Of each large chunk. A chunk without blocks has none; a pinned one is hotter than any, as it has to be on the GPU.
  // `chunks` is the table of the constructor, whose mutex the caller holds.
  std::vector<Heat> Heats(const ChunkTable& chunks, Nanos now) const TESSERA_REQUIRES(chunks.mutex());

  // Bytes of chunks that were used, without their holes, and those of them that are in host memory, in the 32 intervals
  // up to the last submission: what was submitted then may still run. Where submissions named no chunk, or there were
  // none, that is all. Any thread; takes the heap's mutex.
  struct InUse {
    std::uint64_t all = 0, out = 0;
  };
  InUse UsedLately() const;

  // Bytes in host memory that were used so much more than as many bytes on the GPU that the two should change places.
  // Any thread; takes the heap's mutex.
  std::uint64_t HotOut(Nanos now) const;

 private:
  const ChunkTable& chunks_;
  const std::unique_ptr<UseHistory[]> uses_;  // by large chunk
  UseHistory unnamed_;                        // by submissions that could not tell what they use
  UseHistory named_;                          // of any large chunk, by a submission
  std::atomic<Nanos> submitted_{0};           // the last submission that was examined; 0: none was
};

}  // namespace tessera::pager
