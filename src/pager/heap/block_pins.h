#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda/cuda_abi.h"
#include "pager/chunks/block_table.h"
#include "pager/chunks/chunk_table.h"

namespace tessera::pager {

// A block as other processes are to map it: pieces of memory one behind the other, and where in them the block begins.
struct Exported {
  Block block;
  std::uint64_t chunk_bytes = 0;  // of a whole chunk; other pieces are multiples of wire::kUnitBytes
  std::uint64_t offset = 0;       // of the block in the first piece
  std::uint32_t chunks = 0;       // pieces
};

// Pins blocks of a heap that others use, too: other processes (IPC) or devices (RDMA). A pinned chunk stays on the GPU,
// or comes back there. Thread-safe: takes the heap's mutex.
class BlockPins {
 public:
  // The table outlives this object.
  explicit BlockPins(ChunkTable& chunks) : chunks_(chunks) {}

  // Pins the block around `address` for as long as it lives, or until Unpin. CUDA_ERROR_NOT_READY while some of it is
  // in host memory or on its way there: it is pinned all the same, HeapFigures::recalled says what has to come back,
  // and the caller asks again. CUDA_ERROR_OUT_OF_MEMORY if some of it is stranded (HeapFigures), and so can never come
  // back; then this pins nothing.
  cuda::CUresult Pin(cuda::CUdeviceptr address, Exported* exported);
  // Pins likewise, for as long as they live, all blocks that lie in these bytes, for a device that is about to have
  // their GPU memory (RDMA). Counts it as shared once all of it is there.
  cuda::CUresult PinForDevice(cuda::CUdeviceptr address, std::uint64_t bytes);
  // The blocks of which some of these bytes are a part.
  std::vector<Block> Within(cuda::CUdeviceptr address, std::uint64_t bytes) const;
  // Takes a Pin back whose block was not shared, or that a device does not have.
  void Unpin(const Block& block);
  // Descriptors, the caller's, of fds.size() pieces of memory of a pinned block from `first` on: all, or none.
  // A process that gets them may keep that memory mapped: after this block is freed no other block gets it.
  cuda::CUresult Share(const Exported& exported, std::uint32_t first, std::span<int> fds);

  // Adds `count` to the pins of each chunk of the block.
  static void AddPins(ChunkTable& chunks, const Block& block, int count) TESSERA_REQUIRES(chunks.mutex());

 private:
  struct Piece {
    std::size_t index = 0;  // of its chunk
    Units units = 0;        // all of it, or where a piece of it begins
    std::uint64_t begin = 0;
  };
  std::vector<Piece> PiecesOf(const Block& block) const TESSERA_REQUIRES(chunks_.mutex());
  bool IsStranded(const Block& block) const TESSERA_REQUIRES(chunks_.mutex());
  bool PinBlock(Block& block) TESSERA_REQUIRES(chunks_.mutex());
  void MarkShared(Region& region, std::size_t index, std::uint32_t devices = 0) TESSERA_REQUIRES(chunks_.mutex());

  ChunkTable& chunks_;
};

}  // namespace tessera::pager
