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

// Heap::Allocate, `waits`.
constexpr int kTries = 100;
constexpr unsigned kRetryUs = 20'000;
// Of a block that is too large for the GPU: what is made of it at once, at most.
constexpr std::uint64_t kMostPart = 1ull << 30;

// GPU memory that these bytes lack, in units. UINT64_MAX: some of them lie in a chunk that gets no more.
std::uint64_t MissingIn(const Region& region, std::uint64_t begin, std::uint64_t bytes) {
  std::uint64_t missing = 0;
  const ChunkSpan span = region.SpanOf(begin, bytes);
  for (std::size_t i = span.first; i < span.last; ++i) {
    Units lacking = region.range.UnitsIn(i, begin, bytes);
    if (region.Backed(i)) lacking &= ~region[i].Usable();
    if (lacking != 0 && region.Backed(i) && !region[i].MayGrow()) return UINT64_MAX;
    missing += wire::BytesOf(lacking);
  }
  return missing;
}

// Lets the device and its peers reach all memory that has addresses.
CUresult GiveAccessToAll(ChunkTable& chunks) TESSERA_REQUIRES(chunks.mutex()) {
  for (const Region* region : {&chunks.small(), &chunks.large()}) {
    for (const std::size_t i : region->WithMemory()) {
      const Chunk& chunk = (*region)[i];
      if (!chunk.Mapped()) continue;
      const Units units = chunk.backing == Backing::kDevice ? chunk.units : region->range.All();
      if (const CUresult result = chunks.GiveAccess(*region, {{i, units}}); result != CUDA_SUCCESS) return result;
    }
  }
  return CUDA_SUCCESS;
}

// Heap::Trim of one region. Returns how many bytes of room came free.
std::uint64_t TrimRegion(ChunkTable& chunks, Region& region, Nanos since, Nanos* next)
    TESSERA_REQUIRES(chunks.mutex()) {
  std::uint64_t bytes = 0;
  for (auto at = region.WithMemory().begin(); at != region.WithMemory().end();) {
    const std::size_t i = *at++;
    const Chunk& chunk = region[i];
    const bool unused = chunk.blocks == 0, partly = chunk.sparse && chunk.idle != 0;
    if (!chunk.MayGrow() || (!unused && !partly)) continue;
    if (chunk.empty_since >= since) {
      if (next) *next = std::min(*next, chunk.empty_since);
    } else if (unused) {
      bytes += ChunkTable::BytesOf(region, chunk);
      chunks.Unback(region, i);
    } else {
      bytes += chunks.TrimUnits(region, i);
    }
  }
  return bytes;
}

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

CUresult Heap::Allocate(std::uint64_t bytes, CUcontext context, CUdeviceptr* address, bool waits) {
  // Else a thread that is cancelled while it waits for room would keep `growing_` locked, and the room that it had.
  const Uncancelled uncancelled;
  if (bytes > chunks_.large_range.bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  bool small = false, few = false;
  {
    const UncancelledLock lock(chunks_.mutex());
    if (bytes < kSmall && TryBacked(chunks_.small(), bytes, context, address)) return CUDA_SUCCESS;
    small = bytes < kSmall && chunks_.small().WithMemory().size() * kSmallChunk + bytes <= kSmallTotal;
    if (!small && TryBacked(chunks_.large(), bytes, context, address)) return CUDA_SUCCESS;
    few = bytes < kFewBytes && chunks_.figures().sparse + AddressesOf(bytes) <= kFewTotal;
  }
  // Chunks are to be made. Others may free meanwhile, and chunks may move, but no other thread makes any.
  const MutexLock growing(growing_);
  tries_ = 1;
  late_ = false;
  CUresult result = Grow(small, !few, bytes, context, address);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && (small || !few)) result = Grow(false, false, bytes, context, address);
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  if (late_ && !waits) return CUDA_ERROR_NOT_READY;
  tries_ = kTries;
  if (bytes > wire::kChunkBytes) return GrowByParts(bytes, context, address);
  return late_ ? Grow(false, false, bytes, context, address) : result;
}

// Places a block where no memory has to be made for it. False: there is no such place.
bool Heap::TryBacked(Region& region, std::uint64_t bytes, CUcontext context, CUdeviceptr* address) {
  const auto place = FindPlace(region, bytes, true);
  if (!place || place->missing > 0) return false;
  region.TakeAddresses(place->begin, place->bytes);
  Occupy(region, place->begin, bytes, context, address);
  return true;
}

// Places a block where memory has to be made for it, with room for that; in whole chunks, or in units.
CUresult Heap::Grow(bool small, bool whole, std::uint64_t bytes, CUcontext context, CUdeviceptr* address) {
  std::uint64_t room = 0;  // taken, and not used yet
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  for (;;) {
    std::uint64_t lacking = 0;
    {
      const UncancelledLock lock(chunks_.mutex());
      Region& region = RegionFor(small);
      const auto place = FindPlace(region, bytes, whole);
      if (!place) break;
      if (room < place->missing) {
        // The heap's own empty chunks are nearer than the daemon's room. But this place may have counted on some.
        const std::uint64_t trimmed = TrimLocked(kNever, nullptr);
        room += trimmed;
        if (trimmed > 0) continue;
      }
      if (room >= place->missing) {
        result = chunks_.Back(region, place->begin, place->bytes, whole);
        if (result == CUDA_SUCCESS) {
          room -= place->missing;
          region.TakeAddresses(place->begin, place->bytes);
          Occupy(region, place->begin, bytes, context, address);
        }
        if (result != CUDA_ERROR_OUT_OF_MEMORY || !TriesAgain()) break;
      } else {
        lacking = place->missing - room;
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

// Places a block that is larger than all that the program may have on the GPU at once. Its parts, of one chunk or less,
// are blocks of their own until the last one is there: so earlier ones, and other memory of the program, go out for
// later ones.
CUresult Heap::GrowByParts(std::uint64_t bytes, CUcontext context, CUdeviceptr* address) {
  Place place;
  {
    const UncancelledLock lock(chunks_.mutex());
    Region& region = chunks_.large();
    // In chunks of its own: one that it shared might be out when it gets there.
    const auto found = FindPlace(region, bytes + wire::kChunkBytes, false);
    if (!found) return CUDA_ERROR_OUT_OF_MEMORY;
    place = {.begin = RoundUp(found->begin, wire::kChunkBytes), .bytes = AddressesOf(bytes)};
    region.TakeAddresses(place.begin, place.bytes);
  }
  const std::uint64_t end = place.begin + place.bytes;
  std::uint64_t at = place.begin, step = kMostPart;
  CUresult result = CUDA_SUCCESS;
  while (at < end && result == CUDA_SUCCESS) {
    const std::uint64_t part = std::min(step, end - at);
    result = GrowPart(at, part);
    if (result == CUDA_SUCCESS) {
      at += part;
    } else if (result == CUDA_ERROR_OUT_OF_MEMORY && part > wire::kChunkBytes) {
      step = RoundUp(part / 2, wire::kChunkBytes);
      result = CUDA_SUCCESS;
    }
  }
  std::uint64_t room = 0;
  {
    const UncancelledLock lock(chunks_.mutex());
    Region& region = chunks_.large();
    const auto [first, last] = chunks_.blocks().Within(place.begin, std::max<std::uint64_t>(at - place.begin, 1));
    const std::vector<BlockTable::Map::value_type> parts(first, last);
    for (const auto& [begin, block] : parts) {
      chunks_.blocks().Erase(begin);
      if (result != CUDA_SUCCESS) room += Vacate(block);
    }
    if (result == CUDA_SUCCESS) {
      *address = chunks_.blocks().Add(place.begin, bytes, context).begin;
    } else {
      if (at < end) region.GiveAddresses(at, end - at);
      room += TrimLocked(kNever, nullptr);  // others may need the room
    }
  }
  if (room > 0) room_.Give(room);
  return result;
}

// Gives memory to these bytes, whose addresses are taken, and makes a block of those in each chunk.
CUresult Heap::GrowPart(std::uint64_t begin, std::uint64_t bytes) {
  std::uint64_t room = 0;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  for (;;) {
    std::uint64_t missing = 0;
    {
      const UncancelledLock lock(chunks_.mutex());
      Region& region = chunks_.large();
      missing = MissingIn(region, begin, bytes);
      if (room < missing) room += TrimLocked(kNever, nullptr);
      missing = MissingIn(region, begin, bytes);
      if (missing == UINT64_MAX) break;
      if (room >= missing) {
        result = chunks_.Back(region, begin, bytes, false);
        if (result == CUDA_SUCCESS) {
          room -= missing;
          for (std::uint64_t at = begin, next = 0; at < begin + bytes; at = next) {
            next = std::min(begin + bytes, region.range.AddressOf(region.range.IndexOf(at) + 1));
            CUdeviceptr ignored = 0;
            Occupy(region, at, next - at, nullptr, &ignored);
          }
        }
        if (result != CUDA_ERROR_OUT_OF_MEMORY || !TriesAgain()) break;
      }
    }
    if (room >= missing) {
      usleep(kRetryUs);
      continue;
    }
    if (room > 0) room_.Give(std::exchange(room, 0));
    if (!room_.Take(missing)) break;
    room = missing;
  }
  if (room > 0) room_.Give(room);
  return result;
}

// The addresses are taken already.
void Heap::Occupy(Region& region, std::uint64_t begin, std::uint64_t bytes, CUcontext context, CUdeviceptr* address) {
  chunks_.blocks().Add(begin, bytes, context);
  chunks_.CountUsed(AddressesOf(bytes));
  chunks_.Fill(region, begin, AddressesOf(bytes));
  const Nanos now = MonotonicNow();
  const ChunkSpan span = region.SpanOf(begin, bytes);
  for (std::size_t i = span.first; i < span.last; ++i) heat_.NoteAllocation(region.range.AddressOf(i), now);
  *address = begin;
}

// Returns how many bytes of room came free, which are the caller's to give back.
std::uint64_t Heap::Vacate(const Block& block) {
  const Nanos now = MonotonicNow();
  const std::uint64_t end = block.begin + AddressesOf(block.bytes);
  Region& region = chunks_.RegionOf(block.begin);
  std::uint64_t freed = 0;
  if (block.exported) BlockPins::AddPins(chunks_, block, -1);
  chunks_.CountUsed(std::uint64_t{0} - AddressesOf(block.bytes));
  const ChunkSpan span = region.SpanOf(block.begin, block.bytes);
  for (std::size_t i = span.first; i < span.last; ++i) {
    Chunk chunk = region[i];
    --chunk.blocks;
    const std::uint64_t from = std::max<std::uint64_t>(block.begin, region.range.AddressOf(i));
    const std::uint64_t bytes = std::min(end, region.range.AddressOf(i + 1)) - from;
    if (block.exported && chunk.shared && chunk.blocks > 0) {
      region.Withhold(i, from, bytes);
    } else {
      region.GiveAddresses(from, bytes);
      const Units empty =
          block.bytes < kGranule ? region.EmptyUnits(i, from, bytes) : region.range.UnitsIn(i, from, bytes);
      if (empty != 0) chunk.empty_since = now;
      chunk.live &= ~empty;
    }
    chunks_.Put(region, i, chunk);
    if (chunk.blocks > 0) continue;
    if (chunk.shared && !chunk.offered) {
      freed += ChunkTable::BytesOf(region, chunk);
      chunks_.Unback(region, i);
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
  if (chunks_.memory().stopped() || !chunks_.memory().AddDevice(device)) return CUDA_SUCCESS;
  const CUresult result = GiveAccessToAll(chunks_);
  if (result != CUDA_SUCCESS) chunks_.memory().RemoveLastDevice();
  return result;
}

// Returns how many bytes of room came free, which are the caller's to give back.
std::uint64_t Heap::TrimLocked(Nanos since, Nanos* next) {
  return TrimRegion(chunks_, chunks_.small(), since, next) + TrimRegion(chunks_, chunks_.large(), since, next);
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
