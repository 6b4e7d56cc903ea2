#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/fork_mutex.h"
#include "pager/chunks/block_table.h"
#include "pager/chunks/chunk_memory.h"
#include "pager/chunks/heap_figures.h"
#include "pager/chunks/region.h"
#include "pager/chunks/room.h"

namespace tessera::pager {

// The chunks of a heap and the blocks in them: which there are, what backs each chunk, and what the chunks come to in
// sum. The heap places blocks in chunks, ChunkMoves changes what backs them; both do so here.
//
// Its mutex is the one of the whole heap. Hold it by UncancelledLock, since the driver is called under it. The room is
// told of every change of the figures while it is held.
class ChunkTable {
 public:
  ChunkTable(ChunkMemory memory, Room& room, const ChunkRange& small, const ChunkRange& large);
  ChunkTable(const ChunkTable&) = delete;

  const ChunkRange small_range, large_range;
  Mutex& mutex() const TESSERA_RETURN_CAPABILITY(mutex_) { return mutex_; }

  // Chunks of the small region stay on the GPU; those of the large one move.
  Region& small() TESSERA_REQUIRES(mutex_) { return small_; }
  Region& large() TESSERA_REQUIRES(mutex_) { return large_; }
  const Region& large() const TESSERA_REQUIRES(mutex_) { return large_; }
  // The region that `address` lies in; it must lie in one of the two.
  Region& RegionOf(std::uint64_t address) TESSERA_REQUIRES(mutex_) {
    return large_range.Has(address) ? large_ : small_;
  }
  BlockTable& blocks() TESSERA_REQUIRES(mutex_) { return blocks_; }
  const BlockTable& blocks() const TESSERA_REQUIRES(mutex_) { return blocks_; }
  ChunkMemory& memory() TESSERA_REQUIRES(mutex_) { return memory_; }
  const HeapFigures& figures() const TESSERA_REQUIRES(mutex_) { return figures_; }
  const Room& room() const { return room_; }

  // The chunk is as `chunk` says from now on; the figures follow, and the room is told.
  void Put(Region& region, std::size_t index, const Chunk& chunk) TESSERA_REQUIRES(mutex_);

  // Gives GPU memory to the chunks of `span` that have none: to all of them, or to none. Their room is the caller's.
  cuda::CUresult Back(Region& region, ChunkSpan span) TESSERA_REQUIRES(mutex_);
  // Takes the memory of a chunk away. Its room is for the caller to give back.
  void Unback(Region& region, std::size_t index) TESSERA_REQUIRES(mutex_);
  // Takes the memory of a chunk away if the chunk is out and has no blocks. A chunk that is being copied keeps its
  // memory until the copy has ended.
  void UnbackIfUnused(Region& region, std::size_t index) TESSERA_REQUIRES(mutex_);

  // Addresses of chunks that the mover stores and the program needs no more; the mover has not been told yet.
  std::vector<std::uint64_t>& dropped() TESSERA_REQUIRES(mutex_) { return dropped_; }

 private:
  void Count(const Region& region, const Chunk& chunk, std::uint64_t bytes) TESSERA_REQUIRES(mutex_);

  Room& room_;
  mutable ForkMutex mutex_;
  ChunkMemory memory_ TESSERA_GUARDED_BY(mutex_);
  Region small_ TESSERA_GUARDED_BY(mutex_), large_ TESSERA_GUARDED_BY(mutex_);
  BlockTable blocks_ TESSERA_GUARDED_BY(mutex_);
  HeapFigures figures_ TESSERA_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> dropped_ TESSERA_GUARDED_BY(mutex_);
};

}  // namespace tessera::pager
