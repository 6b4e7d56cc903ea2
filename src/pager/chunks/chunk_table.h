#pragma once

#include <algorithm>
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

  // Bytes of GPU memory that the chunk has.
  static std::uint64_t BytesOf(const Region& region, const Chunk& chunk) {
    return wire::CountOf(chunk.units) * std::min(region.range.chunk_bytes, wire::kUnitBytes);
  }
  // Gives GPU memory to those of these bytes that have none: to all of them, or to none. Chunks without any get it in
  // one piece (`whole`, or if all of the chunk is meant) or for units. The room is the caller's.
  cuda::CUresult Back(Region& region, std::uint64_t begin, std::uint64_t bytes, bool whole) TESSERA_REQUIRES(mutex_);
  // Lets the device and its peers reach these units of chunks. Neighbours are one call: most of the time goes into
  // these.
  struct Reached {
    std::size_t index;
    Units units;
  };
  cuda::CUresult GiveAccess(const Region& region, std::vector<Reached> reached) const TESSERA_REQUIRES(mutex_);
  // A block lies in these bytes from now on. They have memory.
  void Fill(Region& region, std::uint64_t begin, std::uint64_t bytes) TESSERA_REQUIRES(mutex_);
  void CountUsed(std::uint64_t bytes) TESSERA_REQUIRES(mutex_) { figures_.used += bytes; }
  // Gives the pieces of a sparse chunk back that no block lies in. Returns how many bytes of room came free.
  std::uint64_t TrimUnits(Region& region, std::size_t index) TESSERA_REQUIRES(mutex_);
  // Takes the memory of a chunk away. Its room is for the caller to give back.
  void Unback(Region& region, std::size_t index) TESSERA_REQUIRES(mutex_);
  // Takes the memory of a chunk away if the chunk is out and has no blocks. A chunk that is being copied keeps its
  // memory until the copy has ended.
  void UnbackIfUnused(Region& region, std::size_t index) TESSERA_REQUIRES(mutex_);

  // Addresses of chunks that the mover stores and the program needs no more; the mover has not been told yet.
  std::vector<std::uint64_t>& dropped() TESSERA_REQUIRES(mutex_) { return dropped_; }

 private:
  // What a chunk adds to the figures: with `sign` -1 it is taken out of them.
  void Count(const Region& region, const Chunk& chunk, std::uint64_t sign) TESSERA_REQUIRES(mutex_);
  cuda::CUresult BackChunk(Region& region, std::size_t index, Units needed, bool whole, Units* made)
      TESSERA_REQUIRES(mutex_);
  void TakeBack(Region& region, std::size_t index, Units units) TESSERA_REQUIRES(mutex_);

  Room& room_;
  mutable ForkMutex mutex_;
  ChunkMemory memory_ TESSERA_GUARDED_BY(mutex_);
  Region small_ TESSERA_GUARDED_BY(mutex_), large_ TESSERA_GUARDED_BY(mutex_);
  BlockTable blocks_ TESSERA_GUARDED_BY(mutex_);
  HeapFigures figures_ TESSERA_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> dropped_ TESSERA_GUARDED_BY(mutex_);
};

}  // namespace tessera::pager
