#include "pager/heap/heap.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/uncancelled.h"
#include "wire/line.h"

namespace tessera::pager {

using namespace cuda;

namespace {

constexpr std::uint64_t kSmallSpan = 64ull << 30;

// Memory that there is room for may still be on its way from the program that had it before.
constexpr int kTries = 100;
constexpr unsigned kRetryUs = 20'000;

}  // namespace

std::unique_ptr<Heap> Heap::Make(const Driver& driver, CUdevice device, std::uint64_t span, bool rdma, Room& room) {
  ChunkRange large{.bytes = RoundUp(std::max(span, kSmallSpan), wire::kChunkBytes), .chunk_bytes = wire::kChunkBytes};
  ChunkRange small{.bytes = kSmallSpan, .chunk_bytes = kSmallChunk};
  CUdeviceptr begin = 0;
  if (driver.AddressReserve(&begin, large.bytes, large.chunk_bytes, 0, 0) != CUDA_SUCCESS) return nullptr;
  large.begin = begin;
  if (driver.AddressReserve(&begin, small.bytes, small.chunk_bytes, 0, 0) != CUDA_SUCCESS) {
    driver.AddressFree(large.begin, large.bytes);
    return nullptr;
  }
  small.begin = begin;
  return std::unique_ptr<Heap>(new Heap(driver, device, rdma, room, small, large));
}

Heap::Heap(const Driver& driver, CUdevice device, bool rdma, Room& room, const ChunkRange& small,
           const ChunkRange& large)
    : room_(room), chunks_(ChunkMemory(driver, device, rdma), room, small, large), heat_(chunks_), pins_(chunks_) {}

// ---- allocations ----

CUresult Heap::Allocate(std::uint64_t bytes, CUcontext context, CUdeviceptr* address) {
  // Else a thread that is cancelled while it waits for room would keep `growing_` locked, and the room that it had.
  const Uncancelled uncancelled;
  if (bytes > chunks_.large_range.bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  bool small = false;
  {
    const UncancelledLock lock(chunks_.mutex());
    if (TryBacked(chunks_.large(), bytes, context, address)) return CUDA_SUCCESS;
    if (bytes < kSmall && TryBacked(chunks_.small(), bytes, context, address)) return CUDA_SUCCESS;
    small = bytes < kSmall && chunks_.small().backed() * kSmallChunk + bytes <= kSmallTotal;
  }
  // Chunks are to be made. Others may free meanwhile, and chunks may move, but no other thread makes any.
  const MutexLock growing(growing_);
  const CUresult result = Grow(small, bytes, context, address);
  if (result != CUDA_ERROR_OUT_OF_MEMORY || small || bytes >= wire::kChunkBytes) return result;
  return Grow(true, bytes, context, address);
}

// Places a block where no chunk has to be made for it. False: there is no such place.
bool Heap::TryBacked(Region& region, std::uint64_t bytes, CUcontext context, CUdeviceptr* address) {
  const auto place = FindPlace(region, bytes);
  if (!place || place->missing > 0) return false;
  Occupy(region, *place, bytes, context, address);
  return true;
}

// Places a block where chunks have to be made for it, with room for them.
CUresult Heap::Grow(bool small, std::uint64_t bytes, CUcontext context, CUdeviceptr* address) {
  std::uint64_t room = 0;  // taken, and not used yet
  int tries = 0;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  for (;;) {
    std::uint64_t lacking = 0;
    {
      const UncancelledLock lock(chunks_.mutex());
      Region& region = RegionFor(small);
      const auto place = FindPlace(region, bytes);
      if (!place) break;
      const std::uint64_t needed = place->missing * region.range.chunk_bytes;
      if (room < needed) {
        // The heap's own empty chunks are nearer than the daemon's room. But this place may have counted on some.
        const std::uint64_t trimmed = TrimLocked(kNever, nullptr);
        room += trimmed;
        if (trimmed > 0) continue;
      }
      if (room >= needed) {
        result = chunks_.Back(region, place->chunks);
        if (result == CUDA_SUCCESS) {
          room -= needed;
          Occupy(region, *place, bytes, context, address);
        }
        if (result != CUDA_ERROR_OUT_OF_MEMORY || chunks_.memory().stopped() || ++tries == kTries) break;
      } else {
        lacking = needed - room;
      }
    }
    if (lacking == 0) {
      usleep(kRetryUs);
      continue;
    }
    // All of it is asked for at once: the daemon could not say whether the rest can be had while some is held here.
    if (room > 0) room_.Give(room);
    lacking += std::exchange(room, 0);
    if (!room_.Take(lacking)) break;
    room = lacking;
  }
  if (room > 0) room_.Give(room);
  return result;
}

void Heap::Occupy(Region& region, const Place& place, std::uint64_t bytes, CUcontext context, CUdeviceptr* address) {
  region.TakeAddresses(place.begin, place.bytes);
  chunks_.blocks().Add(place.begin, bytes, context);
  const Nanos now = MonotonicNow();
  const ChunkSpan span = region.SpanOf(place.begin, bytes);
  for (std::size_t i = span.first; i < span.last; ++i) {
    Chunk chunk = region[i];
    ++chunk.blocks;
    chunks_.Put(region, i, chunk);
    heat_.NoteAllocation(region.range.AddressOf(i), now);
  }
  *address = place.begin;
}

// Returns how many bytes of room came free, which are the caller's to give back.
std::uint64_t Heap::Vacate(const Block& block) {
  const Nanos now = MonotonicNow();
  const std::uint64_t end = block.begin + RoundUp(block.bytes, UnitOf(block.bytes));
  Region& region = chunks_.RegionOf(block.begin);
  std::uint64_t freed = 0;
  if (block.exported) BlockPins::AddPins(chunks_, block, -1);
  const ChunkSpan span = region.SpanOf(block.begin, block.bytes);
  for (std::size_t i = span.first; i < span.last; ++i) {
    Chunk chunk = region[i];
    if (--chunk.blocks == 0) chunk.empty_since = now;
    chunks_.Put(region, i, chunk);
    const std::uint64_t from = std::max<std::uint64_t>(block.begin, region.range.AddressOf(i));
    const std::uint64_t bytes = std::min(end, region.range.AddressOf(i + 1)) - from;
    if (block.exported && chunk.shared && chunk.blocks > 0) {
      region.Withhold(i, from, bytes);
    } else {
      region.GiveAddresses(from, bytes);
    }
    if (chunk.blocks > 0) continue;
    if (chunk.shared && !chunk.offered) {
      chunks_.Unback(region, i);
      freed += region.range.chunk_bytes;
    } else {
      chunks_.UnbackIfUnused(region, i);
    }
  }
  return freed;
}

std::optional<Block> Heap::Free(CUdeviceptr address, std::uint64_t id) {
  const Uncancelled uncancelled;
  Block block;
  std::uint64_t room;
  {
    const UncancelledLock lock(chunks_.mutex());
    const Block* found = chunks_.blocks().At(address, id);
    if (found == nullptr) return std::nullopt;
    block = *found;
    chunks_.blocks().Erase(address);
    room = Vacate(block);
  }
  if (room > 0) room_.Give(room);
  return block;
}

bool Heap::Renew(CUdeviceptr address, std::uint64_t id, std::uint64_t bytes, void* owner) {
  const UncancelledLock lock(chunks_.mutex());
  Block* block = chunks_.blocks().At(address, id);
  if (block == nullptr || block->exported) return false;
  chunks_.blocks().Renew(*block, bytes, owner);
  return true;
}

std::uint64_t Heap::FreeAllOf(CUcontext context, std::uint64_t (*charge)(std::uint64_t bytes), std::uint64_t below) {
  const Uncancelled uncancelled;
  std::uint64_t sum = 0, room = 0;
  {
    const UncancelledLock lock(chunks_.mutex());
    for (const Block& block : chunks_.blocks().Of(context, below)) {
      chunks_.blocks().Erase(block.begin);
      room += Vacate(block);
      sum += charge(block.bytes);
    }
  }
  if (room > 0) room_.Give(room);
  return sum;
}

std::uint64_t Heap::NextId() const {
  const UncancelledLock lock(chunks_.mutex());
  return chunks_.blocks().next_id();
}

std::optional<Block> Heap::Find(CUdeviceptr address) const {
  const UncancelledLock lock(chunks_.mutex());
  const Block* block = chunks_.blocks().Around(address);
  return block == nullptr ? std::nullopt : std::optional(*block);
}

// ---- chunks ----

CUresult Heap::AddPeer(CUdevice device) {
  const UncancelledLock lock(chunks_.mutex());
  ChunkMemory& memory = chunks_.memory();
  if (memory.stopped() || !memory.AddDevice(device)) return CUDA_SUCCESS;
  for (const Region* region : {&chunks_.small(), &chunks_.large()}) {
    for (std::size_t i = 0; i < region->size(); ++i) {
      if (!(*region)[i].Mapped()) continue;
      const CUresult result = memory.GiveAccess(region->range.AddressOf(i), region->range.chunk_bytes);
      if (result == CUDA_SUCCESS) continue;
      memory.RemoveLastDevice();
      return result;
    }
  }
  return CUDA_SUCCESS;
}

// Returns how many bytes of room came free, which are the caller's to give back.
std::uint64_t Heap::TrimLocked(Nanos since, Nanos* next) {
  std::uint64_t bytes = 0;
  for (Region* region : {&chunks_.small(), &chunks_.large()}) {
    for (std::size_t i = 0; i < region->size(); ++i) {
      const Chunk& chunk = (*region)[i];
      if (chunk.backing != Backing::kDevice || chunk.blocks > 0 || chunk.offered) continue;
      if (chunk.empty_since < since) {
        chunks_.Unback(*region, i);
        bytes += region->range.chunk_bytes;
      } else if (next) {
        *next = std::min(*next, chunk.empty_since);
      }
    }
  }
  return bytes;
}

Nanos Heap::Trim(Nanos since) {
  const Uncancelled uncancelled;
  Nanos next = kNever;
  std::uint64_t bytes;
  {
    const UncancelledLock lock(chunks_.mutex());
    bytes = TrimLocked(since, &next);
  }
  if (bytes > 0) room_.Give(bytes);
  return next;
}

HeapFigures Heap::Figures() const {
  const UncancelledLock lock(chunks_.mutex());
  return chunks_.figures();
}

void Heap::Stop() {
  const UncancelledLock lock(chunks_.mutex());
  chunks_.memory().Stop();
}

}  // namespace tessera::pager
