#include "pager/heap/reservations.h"

#include <algorithm>
#include <iterator>

#include "base/uncancelled.h"
#include "pager/heap/block_pins.h"
#include "pager/heap/placement.h"

namespace tessera::pager {

using namespace cuda;

namespace {

// Whether a part in it can be made or taken out: nothing of it is in host memory or on its way.
bool Stands(const Chunk& chunk) {
  return chunk.backing == Backing::kNone || (chunk.backing == Backing::kDevice && !chunk.offered && !chunk.adopting);
}

}  // namespace

// ---- addresses ----

CUresult Reservations::Reserve(std::uint64_t bytes, std::uint64_t alignment, CUdeviceptr* address,
                               std::uint64_t* room) {
  const UncancelledLock lock(chunks_.mutex());
  if (chunks_.memory().stopped()) return CUDA_ERROR_OUT_OF_MEMORY;
  *room += Sweep();
  const auto begin = bytes < kAlignment ? TakeShared(bytes, alignment, room) : TakeChunks(bytes, room);
  if (!begin) return CUDA_ERROR_OUT_OF_MEMORY;
  ranges_.emplace(*begin, bytes);
  *address = *begin;
  return CUDA_SUCCESS;
}

// Whether a chunk without addresses in use has no memory, after what can be has been taken away.
bool Reservations::IsBare(std::size_t index, std::uint64_t* room) {
  Region& region = chunks_.large();
  if (index >= region.size()) return true;
  if (region[index].backing != Backing::kNone) *room += Empty(index);
  const Chunk& chunk = region[index];
  return chunk.backing == Backing::kNone && !chunk.known && !chunk.adopting && !chunk.wanted;
}

// Whole chunks that have no memory: the first of the smallest free part.
std::optional<CUdeviceptr> Reservations::TakeChunks(std::uint64_t bytes, std::uint64_t* room) {
  Region& region = chunks_.large();
  const std::uint64_t all = region.range.bytes, needed = RoundUp(bytes, kAlignment);
  if (needed < bytes || needed > all || taken_ + needed > all / 4 * 3) return std::nullopt;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> parts;  // bytes and begin
  for (const auto& [from, extent] : region.FreeAddresses()) {
    if (extent >= needed) parts.emplace_back(extent, from);
  }
  std::ranges::sort(parts);
  for (const auto& [extent, from] : parts) {
    std::uint64_t begin = RoundUp(from, kAlignment);
    for (std::uint64_t at = begin; begin + needed <= from + extent && at < begin + needed; at += kAlignment) {
      if (!IsBare(region.range.IndexOf(at), room)) begin = at + kAlignment;
    }
    if (begin + needed > from + extent) continue;
    region.TakeAddresses(begin, needed);
    region.SetReserved(region.SpanOf(begin, needed), true);
    taken_ += needed;
    return begin;
  }
  return std::nullopt;
}

// A place among these free bytes: in one chunk, into which something can be mapped.
std::optional<std::uint64_t> Reservations::PlaceIn(std::uint64_t begin, std::uint64_t end, std::uint64_t bytes,
                                                   std::uint64_t alignment) {
  const Region& region = chunks_.large();
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t next = region.range.AddressOf(region.range.IndexOf(at) + 1);
    const std::uint64_t found = RoundUp(at, alignment);
    if (found + bytes <= std::min(next, end) && !region[region.range.IndexOf(at)].Stranded()) return found;
    at = next;
  }
  return std::nullopt;
}

// A part of one of the chunks that small reservations share; these stay theirs.
std::optional<CUdeviceptr> Reservations::TakeShared(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t* room) {
  for (int tries = 0; tries < 2; ++tries) {
    for (const auto& [begin, extent] : shared_.Free()) {
      const auto found = PlaceIn(begin, begin + extent, bytes, std::max(alignment, kGranule));
      if (!found) continue;
      shared_.Take(*found, bytes);
      return found;
    }
    const auto more = TakeChunks(kAlignment, room);
    if (!more) return std::nullopt;
    shared_.Give(*more, kAlignment);
  }
  return std::nullopt;
}

bool Reservations::Free(const Range& range, std::uint64_t* room) {
  const UncancelledLock lock(chunks_.mutex());
  const auto at = ranges_.find(range.begin);
  if (at == ranges_.end() || at->second != range.bytes) return false;
  ranges_.erase(at);
  if (range.bytes < kAlignment) {
    shared_.Give(range.begin, range.bytes);
  } else {
    ended_.push_back(range);
  }
  *room += Sweep();
  return true;
}

// Gives the addresses back of reservations that have ended, once no chunk of them has memory.
std::uint64_t Reservations::Sweep() {
  Region& region = chunks_.large();
  std::uint64_t room = 0;
  std::erase_if(ended_, [&](const Range& range) TESSERA_REQUIRES(chunks_.mutex()) {
    const std::uint64_t bytes = RoundUp(range.bytes, kAlignment);
    const ChunkSpan span = region.SpanOf(range.begin, bytes);
    bool bare = true;
    for (std::size_t i = span.first; i < span.last; ++i) bare &= IsBare(i, &room);
    if (!bare) return false;
    region.SetReserved(span, false);
    region.GiveAddresses(range.begin, bytes);
    taken_ -= bytes;
    return true;
  });
  return room;
}

std::optional<Reservations::Range> Reservations::Around(CUdeviceptr address) const {
  const UncancelledLock lock(chunks_.mutex());
  const auto behind = ranges_.upper_bound(address);
  if (behind == ranges_.begin()) return std::nullopt;
  const auto& [begin, bytes] = *std::prev(behind);
  return address - begin < bytes ? std::optional(Range{begin, bytes}) : std::nullopt;
}

std::vector<Reservations::Range> Reservations::PartsOf(const Range& range) const {
  const ChunkRange& chunks = chunks_.large_range;
  std::vector<Range> parts;
  const std::uint64_t end = range.begin + range.bytes;
  for (std::uint64_t at = range.begin, next = 0; at < end; at = next) {
    next = std::min(end, chunks.AddressOf(chunks.IndexOf(at) + 1));
    parts.push_back({at, next - at});
  }
  return parts;
}

// ---- chunks ----

void Reservations::AddPin(CUdeviceptr part, int count) {
  Region& region = chunks_.large();
  const std::size_t index = region.range.IndexOf(part);
  Chunk chunk = region[index];
  chunk.pins += static_cast<std::uint32_t>(count);
  chunks_.Put(region, index, chunk);
}

CUresult Reservations::Hold(CUdeviceptr part) {
  {
    const UncancelledLock lock(chunks_.mutex());
    AddPin(part, 1);
  }
  return IsHere(part);
}

CUresult Reservations::IsHere(CUdeviceptr part) const {
  const UncancelledLock lock(chunks_.mutex());
  if (chunks_.memory().stopped()) return CUDA_ERROR_DEINITIALIZED;
  const Region& region = chunks_.large();
  const Chunk& chunk = region[region.range.IndexOf(part)];
  if (chunk.Stranded()) return CUDA_ERROR_OUT_OF_MEMORY;
  return Stands(chunk) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

void Reservations::LetGo(CUdeviceptr part) {
  const UncancelledLock lock(chunks_.mutex());
  AddPin(part, -1);
}

// Takes memory of a chunk away that no block lies in, but not what is being copied. Returns the bytes of room that came
// free.
std::uint64_t Reservations::Empty(std::size_t index) {
  Region& region = chunks_.large();
  if (region[index].blocks > 0) return chunks_.TrimUnits(region, index);
  if (!region[index].MayGrow()) {
    chunks_.UnbackIfUnused(region, index);
    return 0;
  }
  const std::uint64_t bytes = wire::BytesOf(region[index].units);
  chunks_.Unback(region, index);
  return bytes;
}

// ---- blocks ----

std::uint64_t Reservations::Clear(CUdeviceptr part) {
  const UncancelledLock lock(chunks_.mutex());
  return Empty(chunks_.large().range.IndexOf(part));
}

std::uint64_t Reservations::BlankWith(const Range& range) const {
  std::uint64_t blank = 0;
  const UncancelledLock lock(chunks_.mutex());
  const Region& region = chunks_.large();
  for (const Range& part : PartsOf(range)) {
    if (region[region.range.IndexOf(part.begin)].live == 0) blank += wire::kChunkBytes - part.bytes;
  }
  return blank;
}

CUresult Reservations::Back(const Range& part, std::uint64_t* room) {
  const UncancelledLock lock(chunks_.mutex());
  Region& region = chunks_.large();
  const std::size_t index = region.range.IndexOf(part.begin);
  const Units units = region.range.UnitsIn(index, part.begin, part.bytes);
  if (!Stands(region[index])) return CUDA_ERROR_NOT_READY;
  // Pieces of a block that ended while they were copied may still lie there.
  *room += chunks_.TrimUnits(region, index);
  const CUresult result = chunks_.Back(region, part.begin, part.bytes, false);
  if (result != CUDA_SUCCESS) return result;
  Chunk chunk = region[index];
  chunk.cuts |= units & ~(units << 1);
  chunks_.Put(region, index, chunk);
  chunks_.blocks().Add(part.begin, part.bytes, nullptr);
  chunks_.blocks().At(part.begin)->reserved = true;
  chunks_.CountUsed(part.bytes);
  chunks_.Fill(region, part.begin, part.bytes);
  heat_.NoteAllocation(part.begin, MonotonicNow());
  return CUDA_SUCCESS;
}

void Reservations::Join(const Range& block) {
  const UncancelledLock lock(chunks_.mutex());
  for (const Range& part : PartsOf(block)) chunks_.blocks().Erase(part.begin);
  chunks_.blocks().Add(block.begin, block.bytes, nullptr);
  chunks_.blocks().At(block.begin)->reserved = true;
}

void Reservations::SetUnmapped(CUdeviceptr block, bool unmapped) {
  const UncancelledLock lock(chunks_.mutex());
  chunks_.blocks().At(block)->unmapped = unmapped;
}

// The block is no more. Its chunks keep their memory.
void Reservations::TakeOut(const Block& block) {
  Region& region = chunks_.large();
  const Nanos now = MonotonicNow();
  if (block.exported) BlockPins::AddPins(chunks_, block, -1);
  chunks_.CountUsed(std::uint64_t{0} - block.bytes);
  const ChunkSpan span = region.SpanOf(block.begin, block.bytes);
  for (std::size_t i = span.first; i < span.last; ++i) {
    Chunk chunk = region[i];
    --chunk.blocks;
    chunk.live &= ~region.range.UnitsIn(i, block.begin, block.bytes);
    chunk.cuts &= chunk.live;
    chunk.empty_since = now;
    chunks_.Put(region, i, chunk);
  }
  chunks_.blocks().Erase(block.begin);
}

std::uint64_t Reservations::Vacate(CUdeviceptr address) {
  const UncancelledLock lock(chunks_.mutex());
  const Block block = *chunks_.blocks().At(address);
  TakeOut(block);
  const ChunkSpan span = chunks_.large().SpanOf(block.begin, block.bytes);
  std::uint64_t room = 0;
  for (std::size_t i = span.first; i < span.last; ++i) room += Empty(i);
  return room;
}

Reservations::Pieces Reservations::Detach(CUdeviceptr address, bool mapped) {
  const UncancelledLock lock(chunks_.mutex());
  Region& region = chunks_.large();
  const Block block = *chunks_.blocks().At(address);
  Pieces pieces;
  const ChunkSpan span = region.SpanOf(block.begin, block.bytes);
  for (std::size_t i = span.first; i < span.last; ++i) {
    Chunk chunk = region[i];
    const Units units = region.range.UnitsIn(i, block.begin, block.bytes);
    if (!mapped) chunks_.memory().UnmapUnits(region.range.AddressOf(i), units);
    for (const auto& piece : chunk.sparse->Detach(units)) pieces.push_back(piece);
    chunk.units &= ~units;
    if (chunk.units == 0) {
      chunk.backing = Backing::kNone;
      chunk.sparse = {};
    }
    chunks_.Put(region, i, chunk);
  }
  TakeOut(block);
  return pieces;
}

}  // namespace tessera::pager
