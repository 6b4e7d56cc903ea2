// The GPU memory that a program allocates by address, on one GPU: address space in chunks, each backed by GPU memory or
// by host memory of the swap pool. An address is always valid while the program may run; its backing moves.
//
// docs/memory.md tells the whole; chunks move as src/wire/line.h says, by LineAgent.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cuda/cuda_abi.h"
#include "pager/driver.h"
#include "pager/extents.h"
#include "pager/use.h"

namespace tessera::pager {

struct HeapFigures {
  std::uint64_t resident = 0;  // bytes in chunks that are backed by GPU memory, those without blocks included
  std::uint64_t swapped = 0;   // by host memory, or in the mover's file
  std::uint64_t pinned = 0;    // part of `resident` that must not move
  std::uint64_t empty = 0;     // part of `resident` without blocks
  std::uint64_t unsafe = 0;    // in chunks that kernels must not touch now: without an address, or being copied
  std::uint64_t coming = 0;    // GPU memory that chunks are being copied to, which are in `swapped` still
  std::uint64_t recalled = 0;  // part of `swapped` that was pinned: it has to come back
  // All that was moved to host memory so far, and back. What is freed or dropped was not moved.
  std::uint64_t moved_out = 0, moved_in = 0;
  bool operator==(const HeapFigures&) const = default;
};

// The right to have GPU memory, in bytes. Lent by the daemon; every chunk that the heap makes takes some of it.
class Room {
 public:
  virtual ~Room() = default;
  // Takes `bytes`; waits until they are to be had, as long as that may still be. False: they are not. Called without
  // the heap's mutex.
  virtual bool Take(std::uint64_t bytes) = 0;
  virtual void Give(std::uint64_t bytes) = 0;
  // What the heap holds changed. Called with the heap's mutex held, before anybody else can know.
  virtual void Holds(const HeapFigures& figures) = 0;
  // Whether somebody lets the program run, or is about to (MoveGuard): then nothing more is moved. To be asked after
  // Holds has told what counts as unsafe.
  virtual bool Released() const = 0;
};

enum class Backing : std::uint8_t {
  kNone,        // no memory
  kDevice,      // GPU memory, mapped
  kHost,        // host memory, not mapped: the program does not run
  kHostMapped,  // host memory, mapped: kernels reach it over the bus
  kFile,        // the mover's file, under Chunk::key: the program does not run
};

struct Chunk {
  Backing backing = Backing::kNone;
  bool offered = false;       // its way to the host, or from there to the file, is under way
  bool wanted = false;        // its copying to the GPU is under way
  bool known = false;         // the mover knows that the program has it out
  bool adopting = false;      // a new mover was asked whether it has what backs it
  bool shared = false;        // other processes, or devices, may have its GPU memory mapped
  std::uint32_t blocks = 0;   // that lie in it, wholly or in part
  std::uint32_t pins = 0;     // reasons why it must not move
  Nanos empty_since = 0;      // while it has no blocks
  Driver::Handle handle = 0;  // of what it is backed by
  std::uint64_t key = 0;      // while it is out: by which a mover finds it; 0: none ever will
  Driver::Handle coming = 0;  // while it is wanted: the GPU memory that it is copied to

  bool InHost() const { return backing == Backing::kHost || backing == Backing::kHostMapped; }
  bool MayGo() const { return backing == Backing::kDevice && !offered && !adopting && pins == 0 && blocks > 0; }
};

// An allocation, as the program knows it.
struct Block {
  cuda::CUdeviceptr begin = 0;
  std::uint64_t bytes = 0;  // as asked for
  cuda::CUcontext context = nullptr;
  std::uint64_t id = 0;    // never given twice in a process
  bool exported = false;   // to other processes, or about to be: its chunks are pinned
  bool in_device = false;  // a device has its memory, too: it stays exported
};

// A block as other processes are to map it: whole chunks, and where in them it begins.
struct Exported {
  Block block;
  std::uint64_t chunk_bytes = 0;
  std::uint64_t offset = 0;  // of the block in the first chunk
  std::uint32_t chunks = 0;
};

// Thread-safe. Nothing here waits for work on the GPU.
class Heap {
 public:
  // Small chunks stay on the GPU. Allocations below kSmall bytes lie in them while they have no more than kSmallTotal,
  // so that a program that has little does not take much; later, and up to a large chunk's size, those for which there
  // is no room for a whole large chunk.
  static constexpr std::uint64_t kSmall = 16u << 20;
  static constexpr std::uint64_t kSmallChunk = 2u << 20;
  static constexpr std::uint64_t kSmallTotal = 64u << 20;

  // A heap with address space for `span` bytes; null if the driver does not give that. `device`: its ordinal. `rdma`:
  // chunks are made fit for GPUDirect RDMA. The driver and the room outlive the heap.
  static std::unique_ptr<Heap> Make(const Driver& driver, cuda::CUdevice device, std::uint64_t span, bool rdma,
                                    Room& room);
  Heap(const Heap&) = delete;

  // Memory of at least `bytes` (not 0), aligned to 512 bytes, or to 2 MiB if it is 2 MiB or more.
  // CUDA_ERROR_OUT_OF_MEMORY if there is no room or no memory; else what the driver said.
  cuda::CUresult Allocate(std::uint64_t bytes, cuda::CUcontext context, cuda::CUdeviceptr* address);
  // Frees the block that begins at `address`, where `id` is given the one that has it; no work that uses it may be
  // left. Nothing if there is none.
  std::optional<Block> Free(cuda::CUdeviceptr address, std::uint64_t id = 0);
  // All blocks of a context that has ended, those with ids below `below`: another context may be where it was. Returns
  // the sum of what `charge` says of their sizes.
  std::uint64_t FreeAllOf(cuda::CUcontext context, std::uint64_t (*charge)(std::uint64_t bytes),
                          std::uint64_t below = UINT64_MAX);
  // No block has this id, or a higher one, yet.
  std::uint64_t NextId() const;

  // The block that `address` lies in.
  std::optional<Block> Find(cuda::CUdeviceptr address) const;
  // Whether `address` is one of the heap's, in a block or not.
  bool Owns(cuda::CUdeviceptr address) const { return large_.Has(address) || small_.Has(address); }

  // Notes that something which was submitted at `when` (CLOCK_MONOTONIC) names `address`. Nothing if it is not the
  // heap's. Takes no lock.
  void Touch(cuda::CUdeviceptr address, Nanos when);
  // Bytes in host memory that were used so much more than as many bytes of GPU memory that the two should change
  // places.
  std::uint64_t HotOut(Nanos now) const;

  // Lets `device` reach all of the heap's memory, now and later.
  cuda::CUresult AddPeer(cuda::CUdevice device);

  // Pins the block around `address` for as long as it lives, or until Unpin. CUDA_ERROR_NOT_READY while some of it is
  // in host memory or on its way there: it is pinned all the same, HeapFigures::recalled says what has to come back,
  // and the caller asks again.
  cuda::CUresult Pin(cuda::CUdeviceptr address, Exported* exported);
  // Pins likewise, for as long as they live, all blocks that lie in these bytes, for a device that is about to have
  // their GPU memory (RDMA), and counts it as shared once all of it is there.
  cuda::CUresult PinForDevice(cuda::CUdeviceptr address, std::uint64_t bytes);
  // Lets go again of what was pinned by Pin and has not been shared.
  void Unpin(const Block& block);
  // Descriptors, the caller's, of the memory of fds.size() chunks of a pinned block from `first` on: all, or none.
  // Whoever gets them may keep that memory mapped: it serves no other block any more after this one is freed.
  cuda::CUresult Share(const Exported& exported, std::uint32_t first, std::span<int> fds);

  // Gives chunks back that have had no blocks since before `since`; kNever: all such. Returns since when the oldest of
  // those that are left has had none, kNever if there is none.
  Nanos Trim(Nanos since);
  HeapFigures Figures() const;

  // The program ends: nothing of the driver's is called any more.
  void Stop();
  void AbandonAfterFork();

 private:
  friend class LineAgent;

  struct Region {
    std::uint64_t begin, bytes, chunk_bytes;
    Extents extents;
    std::vector<Chunk> chunks;  // up to the last one that was ever used
    std::size_t backed = 0;     // of them
    // Addresses of freed blocks in chunks that others have mapped and that have other blocks still: neither free nor
    // taken until the chunk has other memory, or none. Begin and bytes, by chunk.
    std::multimap<std::size_t, std::pair<std::uint64_t, std::uint64_t>> withheld;
    Region(std::uint64_t begin, std::uint64_t bytes, std::uint64_t chunk_bytes)
        : begin(begin), bytes(bytes), chunk_bytes(chunk_bytes), extents(begin, bytes) {}
    bool Has(std::uint64_t address) const { return address - begin < bytes; }
    std::size_t IndexOf(std::uint64_t address) const { return (address - begin) / chunk_bytes; }
    std::uint64_t AddressOf(std::size_t index) const { return begin + index * chunk_bytes; }
    bool Backed(std::size_t index) const { return index < chunks.size() && chunks[index].backing != Backing::kNone; }
  };
  // Where an allocation may lie: whole chunks [first, last) are touched, `missing` of them without memory.
  struct Place {
    std::uint64_t begin = 0, bytes = 0;
    std::size_t first = 0, last = 0, missing = 0;
  };

  Heap(const Driver& driver, cuda::CUdevice device, bool rdma, Room& room, Region small, Region large);
  // With mutex_ held:
  bool TryBacked(Region& region, std::uint64_t bytes, cuda::CUcontext context, cuda::CUdeviceptr* address);
  cuda::CUresult Grow(Region& region, std::uint64_t bytes, cuda::CUcontext context, cuda::CUdeviceptr* address);
  Region* RegionOf(std::uint64_t address);
  static std::optional<Place> FindPlace(const Region& region, std::uint64_t bytes);
  cuda::CUresult Back(Region& region, const Place& place);
  cuda::CUresult MakeChunk(std::uint64_t bytes, Driver::Handle* handle) const;
  cuda::CUresult SetAccess(std::uint64_t address, std::uint64_t bytes) const;
  void Occupy(Region& region, const Place& place, std::uint64_t bytes, cuda::CUcontext context,
              cuda::CUdeviceptr* address);
  [[nodiscard]] std::uint64_t Vacate(const Block& block);
  std::map<cuda::CUdeviceptr, Block>::const_iterator Around(cuda::CUdeviceptr address) const;
  void AddPins(const Block& block, int count);
  bool PinBlock(Block& block);
  void ReleaseEmpty(Region& region, std::size_t index);
  void Unback(Region& region, std::size_t index);
  static void Unshare(Region& region, std::size_t index);
  void Set(Region& region, Chunk& chunk, Backing backing, Driver::Handle handle);
  void Uncount(const Region& region, const Chunk& chunk);
  void Count(const Region& region, const Chunk& chunk);
  void Count(const Region& region, const Chunk& chunk, std::uint64_t bytes);
  template <typename Visit>
  void ForChunks(const Block& block, Visit visit);
  std::uint64_t TrimLocked(Nanos since, Nanos* next);
  // Of each chunk of the large region; one without blocks has none.
  std::vector<Heat> Heats(Nanos now) const;

  const Driver& driver_;
  const cuda::CUdevice device_;
  const bool rdma_;
  Room& room_;

  std::mutex growing_;        // held by whoever makes chunks for an allocation; taken before mutex_
  mutable std::mutex mutex_;  // guards what follows
  bool stopped_ = false;
  Region small_, large_;
  std::map<cuda::CUdeviceptr, Block> blocks_;
  std::vector<cuda::CUmemAccessDesc> access_;
  std::vector<std::uint64_t>
      dropped_;  // chunks that were stored and are not needed any more, which the mover must hear
  std::uint64_t next_id_ = 1;
  HeapFigures figures_;

  const std::unique_ptr<UseHistory[]> uses_;  // of the large region's chunks
};

}  // namespace tessera::pager
