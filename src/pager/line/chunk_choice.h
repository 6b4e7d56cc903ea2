#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "base/clock.h"
#include "pager/chunks/chunk_heat.h"
#include "pager/chunks/chunk_table.h"

namespace tessera::pager {

// Which of a heap's large chunks move first, by their heat and their holes. Changes nothing.
class ChunkChoice {
 public:
  using Indices = std::vector<std::size_t>;

  // Outlives this object.
  explicit ChunkChoice(const ChunkHeat& heat) : heat_(heat) {}

  // Up to `most` chunks that may go: the coldest, coldest first; or those with most holes.
  Indices Coldest(const ChunkTable& chunks, std::size_t most, Nanos now) const TESSERA_REQUIRES(chunks.mutex());
  static Indices MostHoles(const ChunkTable& chunks, std::size_t most) TESSERA_REQUIRES(chunks.mutex());
  // All chunks that the mover may bring to the GPU: those that were squeezed, then the others, hottest first.
  Indices Hottest(const ChunkTable& chunks, Nanos now) const TESSERA_REQUIRES(chunks.mutex());
  // Those of these that come back whole: that have no holes, or get room for them. `holes`: units, enough for those
  // with fewest, or wire::kAnyHoles. What was squeezed gets none.
  static std::set<std::size_t> Whole(const ChunkTable& chunks, const Indices& indices, std::uint32_t holes)
      TESSERA_REQUIRES(chunks.mutex());

 private:
  const ChunkHeat& heat_;
};

}  // namespace tessera::pager
