#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "pager/chunks/chunk.h"
#include "pager/chunks/extents.h"

namespace tessera::pager {

// Reserved addresses, in chunks of one size.
struct ChunkRange {
  std::uint64_t begin = 0, bytes = 0, chunk_bytes = 1;

  bool Has(std::uint64_t address) const { return address - begin < bytes; }
  std::size_t IndexOf(std::uint64_t address) const { return (address - begin) / chunk_bytes; }
  std::uint64_t AddressOf(std::size_t index) const { return begin + index * chunk_bytes; }
  // All units of a chunk.
  Units All() const {
    return static_cast<Units>((std::uint64_t{1} << std::max<std::uint64_t>(chunk_bytes / wire::kUnitBytes, 1)) - 1);
  }
  // The units of chunk `index` that some of these bytes lie in; bytes > 0.
  Units UnitsIn(std::size_t index, std::uint64_t address, std::uint64_t bytes) const {
    const std::uint64_t from = std::max(address, AddressOf(index)) - AddressOf(index);
    const std::uint64_t to = std::min(address + bytes, AddressOf(index + 1)) - AddressOf(index);
    if (from >= to) return 0;
    const std::uint64_t first = from / wire::kUnitBytes, last = (to - 1) / wire::kUnitBytes + 1;
    return static_cast<Units>((std::uint64_t{1} << last) - (std::uint64_t{1} << first));
  }
};

// Chunks [first, last).
struct ChunkSpan {
  std::size_t first = 0, last = 0;
};

// A range of addresses with the state of its chunks and of its addresses. Chunks are changed by ChunkTable::Put only,
// which keeps the figures right. Not thread-safe.
class Region {
 public:
  explicit Region(const ChunkRange& range) : range(range), free_(range.begin, range.bytes) {}
  const ChunkRange range;

  // Chunks up to the last one that ever had memory. Those behind have none.
  std::size_t size() const { return chunks_.size(); }
  const Chunk& operator[](std::size_t index) const { return chunks_[index]; }
  bool Backed(std::size_t index) const { return index < size() && chunks_[index].backing != Backing::kNone; }
  // The chunks that have memory, wherever it is: far fewer than there are addresses for. One may be given up while it
  // is looked at (Put), once the next one is known.
  const std::set<std::size_t>& WithMemory() const { return with_memory_; }
  // The chunk that begins at `address`; none if none does, or none was ever there.
  std::optional<std::size_t> IndexAt(std::uint64_t address) const {
    const std::size_t index = range.Has(address) ? range.IndexOf(address) : size();
    return index < size() && range.AddressOf(index) == address ? std::optional(index) : std::nullopt;
  }
  // The chunks that these bytes touch; bytes > 0.
  ChunkSpan SpanOf(std::uint64_t address, std::uint64_t bytes) const {
    return {range.IndexOf(address), range.IndexOf(address + bytes - 1) + 1};
  }

  const Extents::Map& FreeAddresses() const { return free_.Free(); }
  void TakeAddresses(std::uint64_t begin, std::uint64_t bytes) { free_.Take(begin, bytes); }
  void GiveAddresses(std::uint64_t begin, std::uint64_t bytes) { free_.Give(begin, bytes); }
  // Keeps the addresses of a freed block from being used again until their chunk is shared no more: others can still
  // write to the memory that is there.
  void Withhold(std::size_t index, std::uint64_t begin, std::uint64_t bytes) {
    withheld_.emplace(index, std::pair(begin, bytes));
  }

  // Chunks without memory become the program's own addresses, or are so no more.
  void SetReserved(const ChunkSpan& span, bool reserved) {
    Grow(span.last);
    for (std::size_t i = span.first; i < span.last; ++i) chunks_[i].reserved = reserved;
  }

  // For ChunkTable. Grow makes chunks without memory up to `size`.
  void Grow(std::size_t size) {
    if (chunks_.size() < size) chunks_.resize(size);
  }
  void Put(std::size_t index, const Chunk& chunk) {
    if (chunk.backing == Backing::kNone) {
      with_memory_.erase(index);
    } else if (!Backed(index)) {
      with_memory_.insert(index);
    }
    chunks_[index] = chunk;
    if (!chunk.shared) GiveWithheld(index);
    Chunk& now = chunks_[index];
    const Units empty = now.units & ~now.live;
    now.idle = now.blocks == 0 ? now.units : now.sparse && empty != 0 ? now.sparse->PiecesWithin(empty) : 0;
  }
  // Of the units that these free bytes lie in: those without blocks.
  Units EmptyUnits(std::size_t index, std::uint64_t begin, std::uint64_t bytes) const {
    Units empty = 0;
    const std::uint64_t unit_bytes = std::min(range.chunk_bytes, wire::kUnitBytes);
    for (Units units = range.UnitsIn(index, begin, bytes); units != 0; units &= units - 1) {
      const std::uint64_t unit = range.AddressOf(index) + std::countr_zero(units) * unit_bytes;
      if (free_.Has(unit, unit_bytes)) empty |= units & -units;
    }
    return empty;
  }

 private:
  void GiveWithheld(std::size_t index) {
    const auto [first, last] = withheld_.equal_range(index);
    for (auto at = first; at != last; ++at) {
      free_.Give(at->second.first, at->second.second);
      chunks_[index].live &= ~EmptyUnits(index, at->second.first, at->second.second);
    }
    withheld_.erase(first, last);
  }

  std::vector<Chunk> chunks_;
  std::set<std::size_t> with_memory_;
  Extents free_;
  std::multimap<std::size_t, std::pair<std::uint64_t, std::uint64_t>> withheld_;  // begin and bytes, by chunk
};

}  // namespace tessera::pager
