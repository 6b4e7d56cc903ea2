// Addresses that a program reserves for itself (cuMemAddressReserve), and the memory that it maps there (cuMemMap) as
// far as it can move.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "cuda/cuda_abi.h"
#include "pager/chunks/chunk_heat.h"
#include "pager/chunks/chunk_table.h"
#include "pager/chunks/extents.h"
#include "wire/line.h"

namespace tessera::pager {

// Reserves whole chunks of a heap's large region for the program. What the program maps there are blocks that it
// chooses the place of; their chunks move like all others. The memory of a block is in pieces of its own, one in each
// chunk that it lies in, so that it can be taken out of its chunks (Detach).
//
// A block is made, and taken out, chunk by chunk: a *part* is what of it lies in one chunk. For that the chunk must be
// on the GPU, or empty, and stay so: Hold and LetGo. Thread-safe: takes the heap's mutex. The caller sees to it that
// one thread at a time deals with a part.
class Reservations {
 public:
  // A multiple of this, in bytes, are reservations, mappings and their places.
  static constexpr std::uint64_t kGranule = wire::kUnitBytes;
  // Reservations of this size or more begin at a multiple of it, in chunks of their own.
  static constexpr std::uint64_t kAlignment = wire::kChunkBytes;

  struct Range {
    cuda::CUdeviceptr begin = 0;
    std::uint64_t bytes = 0;
  };
  using Pieces = std::vector<std::pair<Driver::Handle, std::uint64_t>>;  // with bytes, one behind the other

  // Both outlive this object.
  Reservations(ChunkTable& chunks, ChunkHeat& heat) : chunks_(chunks), heat_(heat) {}
  Reservations(const Reservations&) = delete;

  // Reserves addresses that begin at a multiple of `alignment`: a power of two up to kAlignment, or 0.
  // CUDA_ERROR_OUT_OF_MEMORY if so many are not left, beside those that are kept for allocations. Small reservations
  // share chunks. Adds to `room` as Free does.
  cuda::CUresult Reserve(std::uint64_t bytes, std::uint64_t alignment, cuda::CUdeviceptr* address, std::uint64_t* room);
  // Ends a reservation in which nothing is mapped or held. False: there is none of exactly these bytes. Adds the bytes
  // of room that come free, which are the caller's to give back.
  bool Free(const Range& range, std::uint64_t* room);
  // The reservation that `address` lies in.
  std::optional<Range> Around(cuda::CUdeviceptr address) const;

  // The parts of a range, in order.
  std::vector<Range> PartsOf(const Range& range) const;
  // The chunk of a part stays where it is until LetGo. CUDA_ERROR_NOT_READY: it is in host memory or on its way;
  // HeapFigures::recalled says what has to come back, and the caller asks again, by IsHere, before it uses the part.
  // CUDA_ERROR_OUT_OF_MEMORY: it is stranded there (HeapFigures), and can never come back.
  cuda::CUresult Hold(cuda::CUdeviceptr part);
  cuda::CUresult IsHere(cuda::CUdeviceptr part) const;
  void LetGo(cuda::CUdeviceptr part);

  // Takes memory away from the chunk of a part that is held which no block lies in, so that something else can be
  // mapped there. Returns the bytes of room that came free, which are the caller's to give back.
  [[nodiscard]] std::uint64_t Clear(cuda::CUdeviceptr part);
  // What the blocks of these bytes would add to HeapFigures::blank, if they were made: of chunks in which no block
  // lies.
  std::uint64_t BlankWith(const Range& range) const;
  // Makes memory for a part that is held and has none, and a block of it. The room for it is the caller's. Adds the
  // bytes of room to `room` that come free, which are the caller's to give back.
  cuda::CUresult Back(const Range& part, std::uint64_t* room);
  // The blocks of the parts become one.
  void Join(const Range& block);
  // The block that begins there is mapped, or is not and keeps its memory.
  void SetUnmapped(cuda::CUdeviceptr block, bool unmapped);
  // Ends the block that begins there, wherever its memory is. Returns the bytes of room that came free, which are the
  // caller's to give back; what is being copied gives its room back later.
  [[nodiscard]] std::uint64_t Vacate(cuda::CUdeviceptr block);
  // Takes the memory out of a block whose parts are all held, and ends the block. The memory is the caller's, and stays
  // mapped if `mapped`.
  Pieces Detach(cuda::CUdeviceptr block, bool mapped);

 private:
  void TakeOut(const Block& block) TESSERA_REQUIRES(chunks_.mutex());
  std::optional<cuda::CUdeviceptr> TakeChunks(std::uint64_t bytes, std::uint64_t* room)
      TESSERA_REQUIRES(chunks_.mutex());
  std::optional<std::uint64_t> PlaceIn(std::uint64_t begin, std::uint64_t end, std::uint64_t bytes,
                                       std::uint64_t alignment) TESSERA_REQUIRES(chunks_.mutex());
  std::optional<cuda::CUdeviceptr> TakeShared(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t* room)
      TESSERA_REQUIRES(chunks_.mutex());
  bool IsBare(std::size_t index, std::uint64_t* room) TESSERA_REQUIRES(chunks_.mutex());
  void AddPin(cuda::CUdeviceptr part, int count) TESSERA_REQUIRES(chunks_.mutex());
  std::uint64_t Empty(std::size_t index) TESSERA_REQUIRES(chunks_.mutex());
  std::uint64_t Sweep() TESSERA_REQUIRES(chunks_.mutex());

  ChunkTable& chunks_;
  ChunkHeat& heat_;
  std::map<cuda::CUdeviceptr, std::uint64_t> ranges_ TESSERA_GUARDED_BY(chunks_.mutex());  // bytes, as asked for
  std::uint64_t taken_ TESSERA_GUARDED_BY(chunks_.mutex()) = 0;  // bytes of chunks that are reserved
  Extents shared_ TESSERA_GUARDED_BY(chunks_.mutex()){};         // free parts of chunks that small reservations share
  // Reservations that have ended while chunks of them were being copied.
  std::vector<Range> ended_ TESSERA_GUARDED_BY(chunks_.mutex());
};

}  // namespace tessera::pager
