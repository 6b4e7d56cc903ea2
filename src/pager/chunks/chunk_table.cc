#include "pager/chunks/chunk_table.h"

#include <algorithm>
#include <utility>

namespace tessera::pager {

using namespace cuda;

ChunkTable::ChunkTable(ChunkMemory memory, Room& room, const ChunkRange& small, const ChunkRange& large)
    : small_range(small), large_range(large), room_(room), memory_(std::move(memory)), small_(small), large_(large) {}

void ChunkTable::Put(Region& region, std::size_t index, const Chunk& chunk) {
  const Chunk before = region[index];
  Count(region, before, std::uint64_t{0} - 1);
  const auto out = [](const Chunk& its) { return its.InHost() || its.backing == Backing::kAway; };
  if (before.backing == Backing::kDevice && out(chunk)) figures_.moved_out += BytesOf(region, before);
  if (out(before) && chunk.backing == Backing::kDevice) figures_.moved_in += BytesOf(region, chunk);
  Chunk after = chunk;
  if (before.handle != chunk.handle) after.shown = 0;  // it has other memory
  region.Put(index, after);
  Count(region, region[index], 1);
  room_.Holds(figures_);
}

// The arithmetic is modulo 2^64.
void ChunkTable::Count(const Region& region, const Chunk& chunk, std::uint64_t sign) {
  const std::uint64_t unit = sign * std::min(region.range.chunk_bytes, wire::kUnitBytes);
  const auto sum = [unit](Units units) { return wire::CountOf(units) * unit; };
  figures_.coming += sum(chunk.Coming());
  if (chunk.backing == Backing::kNone) return;
  figures_.live += sum(chunk.live);
  figures_.blank += sum(chunk.Blank());
  if (!chunk.Mapped() || chunk.offered || chunk.wanted) figures_.unsafe += sum(chunk.units);
  if (chunk.InHost()) figures_.held += sum(chunk.units);
  if (chunk.backing != Backing::kDevice) {
    figures_.swapped += sum(chunk.live);
    if (chunk.Stranded()) {
      figures_.stranded += sum(chunk.live);
      return;
    }
    figures_.holes_out += sum(chunk.HolesOut());
    if (chunk.pins > 0) {
      figures_.recalled += sum(chunk.live);
    } else if (chunk.squeezed) {
      figures_.squeezed += sum(chunk.live);
    }
    return;
  }
  figures_.resident += sum(chunk.units);
  if (chunk.sparse && !chunk.reserved) figures_.sparse += sum(chunk.units);
  if (&region == &small_ || chunk.pins > 0) figures_.pinned += sum(chunk.units);
  if (chunk.pins > 0) {
    (chunk.devices > 0 ? figures_.registered : figures_.exported) += sum(chunk.units);
    figures_.stuck += sum(chunk.units & ~chunk.live & ~chunk.idle);
  }
  figures_.empty += sum(chunk.idle);
  if (&region == &small_ || chunk.Holes() == 0) return;
  figures_.holes += sum(chunk.Holes());
  figures_.holed += sum(chunk.units);
}

// ---- memory ----

CUresult ChunkTable::GiveAccess(const Region& region, std::vector<Reached> reached) const {
  std::ranges::sort(reached, {}, &Reached::index);
  const std::uint64_t unit_bytes = std::min(region.range.chunk_bytes, wire::kUnitBytes);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> runs;  // begin and end
  for (const auto& [index, units] : reached) {
    wire::ForEachRun(units, [&](std::uint32_t first, std::uint32_t count) {
      const std::uint64_t from = region.range.AddressOf(index) + first * unit_bytes;
      if (runs.empty() || runs.back().second != from) runs.emplace_back(from, from);
      runs.back().second += count * unit_bytes;
    });
  }
  CUresult result = CUDA_SUCCESS;
  for (const auto& [begin, end] : runs) {
    if (result == CUDA_SUCCESS) result = memory_.GiveAccess(begin, end - begin);
  }
  return result;
}

CUresult ChunkTable::Back(Region& region, std::uint64_t begin, std::uint64_t bytes, bool whole) {
  if (memory_.stopped()) return CUDA_ERROR_DEINITIALIZED;
  const ChunkSpan span = region.SpanOf(begin, bytes);
  region.Grow(span.last);
  CUresult result = CUDA_SUCCESS;
  std::vector<Reached> made;
  for (std::size_t i = span.first; i < span.last && result == CUDA_SUCCESS; ++i) {
    const Units needed = region.range.UnitsIn(i, begin, bytes) & ~region[i].units;
    if (needed == 0) continue;
    Units units = 0;
    result = BackChunk(region, i, needed, whole, &units);
    if (units != 0) made.push_back({i, units});
  }
  if (result == CUDA_SUCCESS) result = GiveAccess(region, made);
  if (result != CUDA_SUCCESS) {
    for (const auto& [index, units] : made) TakeBack(region, index, units);
  }
  return result;
}

// Makes memory for units of one chunk, which has none or is sparse. `made`: what was made, for more units perhaps.
CUresult ChunkTable::BackChunk(Region& region, std::size_t index, Units needed, bool whole, Units* made) {
  Chunk chunk = region[index];
  const std::uint64_t address = region.range.AddressOf(index), bytes = region.range.chunk_bytes;
  const Units all = region.range.All();
  CUresult result = CUDA_SUCCESS;
  if (chunk.backing == Backing::kNone && (whole || needed == all) && !chunk.reserved) {
    result = memory_.Make(bytes, &chunk.handle);
    if (result != CUDA_SUCCESS) return result;
    result = memory_.Map(address, bytes, chunk.handle);
    if (result != CUDA_SUCCESS) {
      memory_.Release(chunk.handle);
      return result;
    }
    needed = all;
  } else {
    if (!chunk.sparse) chunk.sparse = SparsePointer::Make();
    result = chunk.sparse->Make(memory_, needed);
    if (result != CUDA_SUCCESS) return result;
    result = chunk.sparse->Map(memory_, address, needed);
    if (result != CUDA_SUCCESS) {
      chunk.sparse->Release(memory_, needed);
      return result;
    }
  }
  chunk.backing = Backing::kDevice;
  chunk.units |= needed;
  Put(region, index, chunk);
  *made = needed;
  return CUDA_SUCCESS;
}

// Takes GPU memory of units away, which pieces are made of; of a whole chunk, of all.
void ChunkTable::TakeBack(Region& region, std::size_t index, Units units) {
  Chunk chunk = region[index];
  if (!chunk.sparse || units == chunk.units) return Unback(region, index);
  memory_.UnmapUnits(region.range.AddressOf(index), units);
  chunk.sparse->Release(memory_, units);
  chunk.units &= ~units;
  Put(region, index, chunk);
}

std::uint64_t ChunkTable::TrimUnits(Region& region, std::size_t index) {
  const Chunk& chunk = region[index];
  const Units idle = chunk.idle;
  if (!chunk.sparse || idle == 0 || !chunk.MayGrow()) return 0;
  TakeBack(region, index, idle);
  return wire::BytesOf(idle);
}

void ChunkTable::Unback(Region& region, std::size_t index) {
  Chunk chunk = region[index];
  const std::uint64_t address = region.range.AddressOf(index);
  if (chunk.sparse) {
    memory_.UnmapUnits(address, chunk.units);
    chunk.sparse->Release(memory_, chunk.units);
  } else {
    if (chunk.Mapped()) memory_.Unmap(address, region.range.chunk_bytes);
    if (chunk.backing != Backing::kAway) memory_.Release(chunk.handle);
  }
  chunk.backing = Backing::kNone;
  chunk.handle = 0;
  chunk.sparse = {};
  chunk.units = chunk.live = chunk.cuts = 0;
  chunk.key = 0;
  chunk.shared = chunk.squeezed = chunk.in_slot = false;
  Put(region, index, chunk);
}

// ---- blocks ----

void ChunkTable::Fill(Region& region, std::uint64_t begin, std::uint64_t bytes) {
  const ChunkSpan span = region.SpanOf(begin, bytes);
  for (std::size_t i = span.first; i < span.last; ++i) {
    Chunk chunk = region[i];
    ++chunk.blocks;
    chunk.live |= region.range.UnitsIn(i, begin, bytes);
    Put(region, i, chunk);
  }
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
