#include "pager/chunks/chunk_table.h"

#include <utility>

namespace tessera::pager {

using namespace cuda;

ChunkTable::ChunkTable(ChunkMemory memory, Room& room, const ChunkRange& small, const ChunkRange& large)
    : small_range(small), large_range(large), room_(room), memory_(std::move(memory)), small_(small), large_(large) {}

void ChunkTable::Put(Region& region, std::size_t index, const Chunk& chunk) {
  const Chunk before = region[index];
  const std::uint64_t bytes = region.range.chunk_bytes;
  Count(region, before, std::uint64_t{0} - bytes);
  if (before.backing == Backing::kDevice && chunk.InHost()) figures_.moved_out += bytes;
  if (before.InHost() && chunk.backing == Backing::kDevice) figures_.moved_in += bytes;
  region.Put(index, chunk);
  Count(region, chunk, bytes);
  room_.Holds(figures_);
}

// Adds a chunk to the figures. With minus its size in `bytes`, modulo 2^64, takes it out of them.
void ChunkTable::Count(const Region& region, const Chunk& chunk, std::uint64_t bytes) {
  if (chunk.coming != 0) figures_.coming += bytes;
  if (chunk.backing == Backing::kNone) return;
  if (!chunk.Mapped() || chunk.offered || chunk.wanted) figures_.unsafe += bytes;
  if (chunk.backing != Backing::kDevice) {
    figures_.swapped += bytes;
    if (chunk.pins > 0) figures_.recalled += bytes;
    return;
  }
  figures_.resident += bytes;
  if (&region == &small_ || chunk.pins > 0) figures_.pinned += bytes;
  if (chunk.pins > 0) (chunk.devices > 0 ? figures_.registered : figures_.exported) += bytes;
  if (chunk.blocks == 0) figures_.empty += bytes;
}

CUresult ChunkTable::Back(Region& region, ChunkSpan span) {
  if (memory_.stopped()) return CUDA_ERROR_DEINITIALIZED;
  const std::uint64_t bytes = region.range.chunk_bytes;
  region.Grow(span.last);
  CUresult result = CUDA_SUCCESS;
  std::vector<std::size_t> made;
  for (std::size_t i = span.first; i < span.last; ++i) {
    if (region.Backed(i)) continue;
    Chunk chunk = region[i];
    result = memory_.Make(bytes, &chunk.handle);
    if (result != CUDA_SUCCESS) break;
    result = memory_.Map(region.range.AddressOf(i), bytes, chunk.handle);
    if (result != CUDA_SUCCESS) {
      memory_.Release(chunk.handle);
      break;
    }
    chunk.backing = Backing::kDevice;
    Put(region, i, chunk);
    made.push_back(i);
  }
  // One call for each run of new ones: most of the time goes into these calls.
  for (std::size_t i = 0; i < made.size() && result == CUDA_SUCCESS;) {
    std::size_t end = i + 1;
    while (end < made.size() && made[end] == made[end - 1] + 1) ++end;
    result = memory_.GiveAccess(region.range.AddressOf(made[i]), (end - i) * bytes);
    i = end;
  }
  if (result != CUDA_SUCCESS) {
    for (const std::size_t i : made) Unback(region, i);
  }
  return result;
}

void ChunkTable::Unback(Region& region, std::size_t index) {
  Chunk chunk = region[index];
  if (chunk.Mapped()) memory_.Unmap(region.range.AddressOf(index), region.range.chunk_bytes);
  if (chunk.backing != Backing::kFile) memory_.Release(chunk.handle);
  chunk.backing = Backing::kNone;
  chunk.handle = 0;
  chunk.key = 0;
  chunk.shared = false;
  Put(region, index, chunk);
}

void ChunkTable::UnbackIfUnused(Region& region, std::size_t index) {
  const Chunk& chunk = region[index];
  if (chunk.blocks > 0 || chunk.wanted || chunk.backing == Backing::kNone || chunk.backing == Backing::kDevice) return;
  Unback(region, index);
  // The mover is told of chunks that it knows only.
  Chunk forgotten = region[index];
  if (!std::exchange(forgotten.known, false)) return;
  Put(region, index, forgotten);
  dropped_.push_back(region.range.AddressOf(index));
}

}  // namespace tessera::pager
