#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "pager/chunks/chunk_table.h"
#include "pager/line/chunk_choice.h"
#include "pager/line/line_answer.h"

namespace tessera::pager {

// Moves the large chunks of a heap between GPU memory, host memory and the mover alone: what each of the mover's
// messages (src/wire/line.h) does to them. Which chunks a message may name is for LineAgent to check.
//
// A chunk always has one copy that cannot be lost: it keeps its memory until it has the memory of the copy.
class ChunkMoves {
 public:
  using Message = wire::LineMessage;
  using Indices = std::vector<std::size_t>;

  ChunkTable& chunks;  // a caller holds its mutex

  // Both outlive this object.
  ChunkMoves(ChunkTable& chunks, const ChunkHeat& heat) : chunks(chunks), choice_(heat) {}

  // Out. Offer chooses up to `most` of the coldest chunks, OfferHoles of the whole ones with most holes. They are being
  // copied from then on.
  // Memory that was shown in this round (not 0) does not come along again.
  LineAnswer Offer(std::uint32_t most, std::uint32_t round, Nanos now) TESSERA_REQUIRES(chunks.mutex());
  LineAnswer OfferHoles(std::uint32_t most) TESSERA_REQUIRES(chunks.mutex());
  // The copies are in the host memory of these descriptors; all of the chunks go there, or none. Without descriptors
  // the mover keeps them, and all of the chunks are away.
  LineAnswer Store(const Message& stored, const Indices& indices, std::span<UniqueFd> fds)
      TESSERA_REQUIRES(chunks.mutex());
  void Keep(const Indices& indices) TESSERA_REQUIRES(chunks.mutex());
  // Names up to `most` whole chunks that may go and were not shown in this round, with their memory.
  LineAnswer Show(std::uint32_t most, std::uint32_t round) TESSERA_REQUIRES(chunks.mutex());

  // In. Want chooses up to `most` of the hottest chunks that may come, and makes GPU memory for them, `room`
  // units at most: in one piece, or for the units that blocks lie in. `holes`: units beside those that pieces may have,
  // or wire::kAnyHoles; chunks with few holes get them. What was squeezed comes first, and without its holes.
  LineAnswer Want(std::uint32_t most, std::uint32_t room, std::uint32_t holes, Nanos now)
      TESSERA_REQUIRES(chunks.mutex());
  // The copies are in that GPU memory; all of the chunks come, or none.
  LineAnswer Load(const Message& loaded, const Indices& indices) TESSERA_REQUIRES(chunks.mutex());
  void LeaveOut(const Indices& indices) TESSERA_REQUIRES(chunks.mutex());

  // Maps every chunk that is in host memory. CUDA_ERROR_NOT_READY if some are away.
  LineAnswer Settle() TESSERA_REQUIRES(chunks.mutex());

  // The mover has the chunks without the program, which gives up their host memory: but not of those that are not in
  // host memory any more, or on their way.
  LineAnswer Release(const Message& filed) TESSERA_REQUIRES(chunks.mutex());
  // Chunks that are away are in the host memory of these descriptors: takes what can be imported. Without descriptors
  // they stay away, in slots.
  LineAnswer Hold(const Message& read, std::span<UniqueFd> fds) TESSERA_REQUIRES(chunks.mutex());
  // The line is lost, and so is every copy that was under way: its chunk stays where it is.
  void Abandon() TESSERA_REQUIRES(chunks.mutex());

 private:
  cuda::CUresult MapHost(std::size_t index) TESSERA_REQUIRES(chunks.mutex());
  cuda::CUresult MapComing(std::size_t index) TESSERA_REQUIRES(chunks.mutex());
  LineAnswer OfferThese(const Indices& indices, bool for_holes, std::uint32_t round) TESSERA_REQUIRES(chunks.mutex());
  bool Name(LineAnswer& answer, std::size_t index, Units units, Driver::Handle whole, const SparseMemory* sparse) const
      TESSERA_REQUIRES(chunks.mutex());
  cuda::CUresult MakeComing(LineAnswer& answer, std::size_t index, bool whole) TESSERA_REQUIRES(chunks.mutex());
  void DropComing(Chunk& chunk) const TESSERA_REQUIRES(chunks.mutex());
  void UnmapDevice(Indices indices) const TESSERA_REQUIRES(chunks.mutex());
  void MarkOffered(std::size_t index, bool offered) TESSERA_REQUIRES(chunks.mutex());
  void LeaveOut(std::size_t index) TESSERA_REQUIRES(chunks.mutex());

  const ChunkChoice choice_;
};

}  // namespace tessera::pager
