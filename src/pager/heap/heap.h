// The GPU memory that a program allocates by address, on one GPU: address space in chunks, each backed by GPU memory or
// by host memory of the swap pool. An address is always valid while the program may run; its backing moves.
//
// docs/memory.md describes the whole. Chunks move by LineAgent, as src/wire/line.h says.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/fork_mutex.h"
#include "cuda/cuda_abi.h"
#include "pager/chunks/block_table.h"
#include "pager/chunks/chunk_heat.h"
#include "pager/chunks/chunk_table.h"
#include "pager/chunks/driver.h"
#include "pager/heap/block_pins.h"
#include "pager/heap/placement.h"
#include "pager/heap/reservations.h"

namespace tessera::pager {

// Allocates blocks of GPU memory in chunks, and frees them. Thread-safe. Nothing here waits for work on the GPU. A
// thread is not cancelled (pthread_cancel) inside.
class Heap {
 public:
  // Small chunks stay on the GPU. Blocks below kSmall bytes lie in them as long as these have no more than kSmallTotal
  // in all, apart from large ones: a few bytes keep their unit, and large blocks find no place around them.
  static constexpr std::uint64_t kSmall = wire::kUnitBytes;
  static constexpr std::uint64_t kSmallChunk = wire::kUnitBytes;
  static constexpr std::uint64_t kSmallTotal = 64u << 20;
  // Blocks below kFewBytes get no whole chunks as long as there are no more than kFewTotal bytes in units, so that a
  // program that has little does not take much.
  static constexpr std::uint64_t kFewTotal = 64u << 20;

  // A heap with address space for `span` bytes; null if the driver does not give that. `device`: its ordinal. `rdma`:
  // chunks are made fit for GPUDirect RDMA. The driver and the room outlive the heap.
  static std::unique_ptr<Heap> Make(const Driver& driver, cuda::CUdevice device, std::uint64_t span, bool rdma,
                                    Room& room);
  Heap(const Heap&) = delete;

  // Memory of at least `bytes` (not 0), aligned to 512 bytes, or to 2 MiB if it is 2 MiB or more.
  // CUDA_ERROR_OUT_OF_MEMORY if there is no room or no memory; else what the driver said. Memory that there is room for
  // may still be on its way from the program that had it: this waits for it, 2 s at most; unless `waits`, it says
  // CUDA_ERROR_NOT_READY instead.
  cuda::CUresult Allocate(std::uint64_t bytes, cuda::CUcontext context, cuda::CUdeviceptr* address, bool waits = true);
  // Frees the block that begins at `address` and, unless that is 0, has this id. No work that uses the block may be
  // left. Nothing if there is none.
  std::optional<Block> Free(cuda::CUdeviceptr address, std::uint64_t id = 0);
  // The block that begins at `address` and, unless that is 0, has this id, becomes another allocation: of `bytes`,
  // which take as many addresses as before (AddressesOf), with an id of its own, and of this owner. False: there is no
  // such block, or others have its memory, too.
  bool Renew(cuda::CUdeviceptr address, std::uint64_t id, std::uint64_t bytes, void* owner);
  // Frees all blocks of a context that has ended, with ids below `below`: another context may have its address by now.
  // Returns the sum of what `charge` says of their sizes.
  std::uint64_t FreeAllOf(cuda::CUcontext context, std::uint64_t (*charge)(std::uint64_t bytes),
                          std::uint64_t below = UINT64_MAX);
  // No block has this id, or a higher one, yet.
  std::uint64_t NextId() const;

  // The block that `address` lies in.
  std::optional<Block> Find(cuda::CUdeviceptr address) const;
  // Whether `address` is one of the heap's, in a block or not. Takes no lock.
  bool Owns(cuda::CUdeviceptr address) const {
    return chunks_.large_range.Has(address) || chunks_.small_range.Has(address);
  }

  // Lets `device` reach all of the heap's memory, now and later.
  cuda::CUresult AddPeer(cuda::CUdevice device);

  // Gives chunks back that have had no blocks since before `since`; kNever: all such. Returns since when the oldest of
  // the empty chunks that are left has had none, kNever if there is none.
  Nanos Trim(Nanos since);
  HeapFigures Figures() const;

  ChunkHeat& Heat() { return heat_; }
  BlockPins& Pins() { return pins_; }
  Reservations& Reserved() { return reserved_; }
  ChunkTable& Chunks() { return chunks_; }

  // The program ends, or this is the child of a fork, which has no GPU memory: the driver is not called any more.
  void Stop();

 private:
  Heap(const Driver& driver, cuda::CUdevice device, bool rdma, Room& room, const ChunkRange& small,
       const ChunkRange& large);
  Region& RegionFor(bool small) TESSERA_REQUIRES(chunks_.mutex()) { return small ? chunks_.small() : chunks_.large(); }
  bool TryBacked(Region& region, std::uint64_t bytes, cuda::CUcontext context, cuda::CUdeviceptr* address)
      TESSERA_REQUIRES(chunks_.mutex());
  cuda::CUresult Grow(bool small, bool whole, std::uint64_t bytes, cuda::CUcontext context, cuda::CUdeviceptr* address)
      TESSERA_REQUIRES(growing_) TESSERA_EXCLUDES(chunks_.mutex());
  cuda::CUresult GrowByParts(std::uint64_t bytes, cuda::CUcontext context, cuda::CUdeviceptr* address)
      TESSERA_REQUIRES(growing_) TESSERA_EXCLUDES(chunks_.mutex());
  cuda::CUresult GrowPart(std::uint64_t begin, std::uint64_t bytes) TESSERA_REQUIRES(growing_)
      TESSERA_EXCLUDES(chunks_.mutex());
  bool TriesAgain() TESSERA_REQUIRES(growing_, chunks_.mutex()) {
    late_ = true;
    return !chunks_.memory().stopped() && --tries_ > 0;
  }
  void Occupy(Region& region, std::uint64_t begin, std::uint64_t bytes, cuda::CUcontext context,
              cuda::CUdeviceptr* address) TESSERA_REQUIRES(chunks_.mutex());
  [[nodiscard]] std::uint64_t Vacate(const Block& block) TESSERA_REQUIRES(chunks_.mutex());
  std::uint64_t TrimLocked(Nanos since, Nanos* next) TESSERA_REQUIRES(chunks_.mutex());

  Room& room_;
  // Held by a thread that makes chunks for an allocation, so that one at a time does: it may wait for room. Taken
  // before the table's mutex.
  ForkMutex growing_ TESSERA_ACQUIRED_BEFORE(chunks_.mutex());
  int tries_ TESSERA_GUARDED_BY(growing_) = 0;      // that are left where the driver has no memory for room
  bool late_ TESSERA_GUARDED_BY(growing_) = false;  // it had none
  ChunkTable chunks_;
  ChunkHeat heat_;
  BlockPins pins_;
  Reservations reserved_{chunks_, heat_};
};

}  // namespace tessera::pager
