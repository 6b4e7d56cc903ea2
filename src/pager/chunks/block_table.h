#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "cuda/cuda_abi.h"

namespace tessera::pager {

// An allocation as the program knows it.
struct Block {
  cuda::CUdeviceptr begin = 0;
  std::uint64_t bytes = 0;  // as asked for
  cuda::CUcontext context = nullptr;
  std::uint64_t id = 0;    // never the same twice in a process
  bool exported = false;   // other processes have it, or are about to: its chunks are pinned
  bool in_device = false;  // a device has its memory, too: it stays pinned
  bool reserved = false;   // the program mapped it at addresses of its own (Reservations)
  bool unmapped = false;   // and took it out again, but may map it once more: its memory stays
  void* owner = nullptr;   // as Heap::Renew said; the heap does not look at it
};

// The blocks of a heap by address. Not thread-safe.
class BlockTable {
 public:
  using Map = std::map<cuda::CUdeviceptr, Block>;

  // Adds a block at addresses that no other block has.
  const Block& Add(cuda::CUdeviceptr begin, std::uint64_t bytes, cuda::CUcontext context);
  void Erase(cuda::CUdeviceptr begin) { blocks_.erase(begin); }
  // The block is another allocation from now on, at the same addresses.
  void Renew(Block& block, std::uint64_t bytes, void* owner) {
    block = {.begin = block.begin, .bytes = bytes, .context = block.context, .id = next_id_++, .owner = owner};
  }

  // The block that begins at `address` and, unless that is 0, has this id; null if there is none.
  Block* At(cuda::CUdeviceptr address, std::uint64_t id = 0);
  // The block that `address` lies in; null if there is none.
  Block* Around(cuda::CUdeviceptr address);
  const Block* Around(cuda::CUdeviceptr address) const { return const_cast<BlockTable*>(this)->Around(address); }
  // The blocks of which some of these bytes are a part, as a range of iterators.
  std::pair<Map::iterator, Map::iterator> Within(cuda::CUdeviceptr address, std::uint64_t bytes);

  // The blocks of a context with ids below `below`, but for reserved ones.
  std::vector<Block> Of(cuda::CUcontext context, std::uint64_t below) const;

  Map::const_iterator begin() const { return blocks_.begin(); }
  Map::const_iterator end() const { return blocks_.end(); }

  // No block has this id, or a higher one, yet.
  std::uint64_t next_id() const { return next_id_; }

 private:
  Map blocks_;
  std::uint64_t next_id_ = 1;
};

}  // namespace tessera::pager
