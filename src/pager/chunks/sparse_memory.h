#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "cuda/cuda_abi.h"
#include "pager/chunks/driver.h"
#include "wire/units.h"

namespace tessera::pager {

using wire::Units;

class ChunkMemory;

// GPU memory of some units of a chunk, in pieces of neighbours: the driver works about as long on a large piece as on a
// small one, and gives back whole pieces only. The owner releases them all before it ends. Not thread-safe.
class SparseMemory {
 public:
  SparseMemory() = default;
  SparseMemory(const SparseMemory&) = delete;

  Units units() const { return units_; }
  Units begins() const { return begins_; }  // where its pieces begin (wire/units.h)

  // The pieces of which all units, or any unit, is among these.
  Units PiecesWithin(Units units) const;
  Units PiecesAround(Units units) const;

  // Makes memory for units that have none: for all of them, or for none. A piece for each run of them, and where a run
  // is cut, for each part of it that begins at a unit of `cuts`.
  cuda::CUresult Make(const ChunkMemory& memory, Units more, Units cuts = 0);

  // The rest is for units that pieces are made of.

  // The memory of units is the caller's from now on: a handle for each piece, in order, with its bytes.
  std::vector<std::pair<Driver::Handle, std::uint64_t>> Detach(Units units);
  // Gives back the memory of units that are not mapped.
  void Release(const ChunkMemory& memory, Units units);
  // Maps units of the chunk at `address`, all or none, without access yet.
  cuda::CUresult Map(const ChunkMemory& memory, std::uint64_t address, Units units) const;
  // Appends a descriptor for each of the pieces, in order: for all, or for none.
  cuda::CUresult Export(const ChunkMemory& memory, Units units, std::vector<UniqueFd>* fds) const;

 private:
  std::array<Driver::Handle, wire::kUnitsPerChunk> handles_{};  // by the unit where the piece begins
  Units units_ = 0, begins_ = 0;
};

}  // namespace tessera::pager
