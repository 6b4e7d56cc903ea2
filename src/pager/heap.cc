#include "pager/heap.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "wire/line.h"

namespace tessera::pager {

using namespace cuda;

namespace {

constexpr std::uint64_t kGranule = 2u << 20;  // of address space for larger blocks
constexpr std::uint64_t kUnit = 512;          // of small ones, as cuMemAlloc aligns at least
constexpr std::uint64_t kSmallSpan = 64ull << 30;

// Memory that there is room for may be on its way from whoever had it before.
constexpr int kTries = 100;
constexpr unsigned kRetryUs = 20'000;

std::uint64_t RoundUp(std::uint64_t bytes, std::uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

// In which blocks of this size are placed.
std::uint64_t UnitOf(std::uint64_t bytes) { return bytes < kGranule ? kUnit : kGranule; }

CUmemAccessDesc AccessOf(CUdevice device) {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

}  // namespace

std::unique_ptr<Heap> Heap::Make(const Driver& driver, CUdevice device, std::uint64_t span, bool rdma, Room& room) {
  span = RoundUp(std::max(span, kSmallSpan), wire::kChunkBytes);
  CUdeviceptr large = 0, small = 0;
  if (driver.AddressReserve(&large, span, wire::kChunkBytes, 0, 0) != CUDA_SUCCESS) return nullptr;
  if (driver.AddressReserve(&small, kSmallSpan, kSmallChunk, 0, 0) != CUDA_SUCCESS) {
    driver.AddressFree(large, span);
    return nullptr;
  }
  return std::unique_ptr<Heap>(new Heap(driver, device, rdma, room, Region(small, kSmallSpan, kSmallChunk),
                                        Region(large, span, wire::kChunkBytes)));
}

Heap::Heap(const Driver& driver, CUdevice device, bool rdma, Room& room, Region small, Region large)
    : driver_(driver),
      device_(device),
      rdma_(rdma),
      room_(room),
      small_(std::move(small)),
      large_(std::move(large)),
      access_{AccessOf(device)},
      uses_(new UseHistory[large_.bytes / large_.chunk_bytes]) {}

Heap::Region* Heap::RegionOf(std::uint64_t address) {
  return large_.Has(address) ? &large_ : small_.Has(address) ? &small_ : nullptr;
}

// ---- allocations ----

// Where the fewest chunks have to be made; among those, in the smallest free part.
std::optional<Heap::Place> Heap::FindPlace(const Region& region, std::uint64_t bytes) {
  const std::uint64_t unit = UnitOf(bytes);
  std::optional<Place> best;
  std::uint64_t best_extent = 0;
  bytes = RoundUp(bytes, unit);
  for (const auto& [from, extent] : region.extents.Free()) {
    const std::uint64_t begin = RoundUp(from, unit);
    if (extent < bytes || begin - from > extent - bytes) continue;
    Place place{.begin = begin, .bytes = bytes};
    place.first = region.IndexOf(begin);
    place.last = region.IndexOf(begin + bytes - 1) + 1;
    for (std::size_t i = place.first; i < place.last; ++i) place.missing += region.Backed(i) ? 0 : 1;
    if (best && (place.missing > best->missing || (place.missing == best->missing && extent >= best_extent))) continue;
    best = place;
    best_extent = extent;
    if (place.missing == 0 && extent == bytes) break;
  }
  return best;
}

CUresult Heap::Allocate(std::uint64_t bytes, CUcontext context, CUdeviceptr* address) {
  if (bytes > large_.bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  bool small = false;
  {
    std::lock_guard lock(mutex_);
    if (TryBacked(large_, bytes, context, address)) return CUDA_SUCCESS;
    if (bytes < kSmall && TryBacked(small_, bytes, context, address)) return CUDA_SUCCESS;
    small = bytes < kSmall && small_.backed * kSmallChunk + bytes <= kSmallTotal;
  }
  // Chunks are to be made. Others may free meanwhile, and chunks may move, but nobody else makes any.
  std::lock_guard growing(growing_);
  const CUresult result = Grow(small ? small_ : large_, bytes, context, address);
  // Where there is no place for a whole large chunk.
  if (result != CUDA_ERROR_OUT_OF_MEMORY || small || bytes >= large_.chunk_bytes) return result;
  return Grow(small_, bytes, context, address);
}

// Places a block where no chunk has to be made for it. False: it cannot.
bool Heap::TryBacked(Region& region, std::uint64_t bytes, CUcontext context, CUdeviceptr* address) {
  const auto place = FindPlace(region, bytes);
  if (!place || place->missing > 0) return false;
  Occupy(region, *place, bytes, context, address);
  return true;
}

CUresult Heap::Grow(Region& region, std::uint64_t bytes, CUcontext context, CUdeviceptr* address) {
  std::uint64_t room = 0;
  int tries = 0;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  for (;;) {
    std::uint64_t lacking = 0;
    {
      std::lock_guard lock(mutex_);
      const auto place = FindPlace(region, bytes);
      if (!place) break;
      const std::uint64_t needed = place->missing * region.chunk_bytes;
      if (room < needed) {
        // Its own are nearer than the daemon's. But this place may have counted on some of them.
        const std::uint64_t trimmed = TrimLocked(kNever, nullptr);
        room += trimmed;
        if (trimmed > 0) continue;
      }
      if (room >= needed) {
        result = Back(region, *place);
        if (result == CUDA_SUCCESS) {
          room -= needed;
          Occupy(region, *place, bytes, context, address);
        }
        if (result != CUDA_ERROR_OUT_OF_MEMORY || stopped_ || ++tries == kTries) break;
      } else {
        lacking = needed - room;
      }
    }
    if (lacking == 0) {
      usleep(kRetryUs);
      continue;
    }
    // Asked for as a whole: what is held back meanwhile would be missing to whoever is to say whether it can be had.
    if (room > 0) room_.Give(room);
    lacking += std::exchange(room, 0);
    if (!room_.Take(lacking)) break;
    room = lacking;
  }
  if (room > 0) room_.Give(room);
  return result;
}

// Makes the chunks that a place lacks: all, or none.
CUresult Heap::Back(Region& region, const Place& place) {
  if (stopped_) return CUDA_ERROR_DEINITIALIZED;
  if (region.chunks.size() < place.last) region.chunks.resize(place.last);
  CUresult result = CUDA_SUCCESS;
  std::vector<std::size_t> made;
  for (std::size_t i = place.first; i < place.last && result == CUDA_SUCCESS; ++i) {
    Chunk& chunk = region.chunks[i];
    if (chunk.backing != Backing::kNone) continue;
    Driver::Handle handle = 0;
    result = MakeChunk(region.chunk_bytes, &handle);
    if (result != CUDA_SUCCESS) break;
    result = driver_.Map(region.AddressOf(i), region.chunk_bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS) {
      driver_.Release(handle);
      break;
    }
    Set(region, chunk, Backing::kDevice, handle);
    made.push_back(i);
  }
  // One call for each run of new ones: that is what most of the time goes into.
  for (std::size_t i = 0; i < made.size() && result == CUDA_SUCCESS;) {
    std::size_t end = i + 1;
    while (end < made.size() && made[end] == made[end - 1] + 1) ++end;
    result = SetAccess(region.AddressOf(made[i]), (end - i) * region.chunk_bytes);
    i = end;
  }
  if (result != CUDA_SUCCESS) {
    for (const std::size_t i : made) Unback(region, i);
  }
  return result;
}

CUresult Heap::MakeChunk(std::uint64_t bytes, Driver::Handle* handle) const {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
  prop.allocFlags.gpuDirectRDMACapable = rdma_;
  return driver_.Create(handle, bytes, &prop, 0);
}

CUresult Heap::SetAccess(std::uint64_t address, std::uint64_t bytes) const {
  return driver_.SetAccess(address, bytes, access_.data(), access_.size());
}

// Takes the memory of a chunk away. Its room is for the caller to give back.
void Heap::Unback(Region& region, std::size_t index) {
  Chunk& chunk = region.chunks[index];
  if (!stopped_) {
    const bool mapped = chunk.backing == Backing::kDevice || chunk.backing == Backing::kHostMapped;
    if (mapped) driver_.Unmap(region.AddressOf(index), region.chunk_bytes);
    if (chunk.backing != Backing::kFile) driver_.Release(chunk.handle);
  }
  Set(region, chunk, Backing::kNone, 0);
  chunk.key = 0;
  Unshare(region, index);
}

// Nobody else has the memory that the chunk has from now on.
void Heap::Unshare(Region& region, std::size_t index) {
  region.chunks[index].shared = false;
  const auto [begin, end] = region.withheld.equal_range(index);
  for (auto at = begin; at != end; ++at) region.extents.Give(at->second.first, at->second.second);
  region.withheld.erase(begin, end);
}

// Takes a chunk out of the figures; after it has changed, Count puts it back.
void Heap::Uncount(const Region& region, const Chunk& chunk) {
  Count(region, chunk, std::uint64_t{0} - region.chunk_bytes);
}

void Heap::Count(const Region& region, const Chunk& chunk) {
  Count(region, chunk, region.chunk_bytes);
  room_.Holds(figures_);
}

void Heap::Count(const Region& region, const Chunk& chunk, std::uint64_t bytes) {
  if (chunk.backing == Backing::kNone) return;
  if (chunk.backing == Backing::kHost || chunk.backing == Backing::kFile || chunk.offered || chunk.wanted)
    figures_.unsafe += bytes;
  if (chunk.backing != Backing::kDevice) {
    figures_.swapped += bytes;
    if (chunk.pins > 0) figures_.recalled += bytes;
    return;
  }
  figures_.resident += bytes;
  if (&region == &small_ || chunk.pins > 0) figures_.pinned += bytes;
  if (chunk.blocks == 0) figures_.empty += bytes;
}

// What a chunk is backed by from now on.
void Heap::Set(Region& region, Chunk& chunk, Backing backing, Driver::Handle handle) {
  Uncount(region, chunk);
  region.backed += (backing != Backing::kNone ? 1 : 0) - (chunk.backing != Backing::kNone ? 1 : 0);
  chunk.backing = backing;
  chunk.handle = handle;
  Count(region, chunk);
}

template <typename Visit>
void Heap::ForChunks(const Block& block, Visit visit) {
  Region& region = *RegionOf(block.begin);
  const std::size_t last = region.IndexOf(block.begin + block.bytes - 1);
  for (std::size_t i = region.IndexOf(block.begin); i <= last; ++i) visit(region, i);
}

void Heap::Occupy(Region& region, const Place& place, std::uint64_t bytes, CUcontext context, CUdeviceptr* address) {
  region.extents.Take(place.begin, place.bytes);
  const Block block{.begin = place.begin, .bytes = bytes, .context = context, .id = next_id_++};
  blocks_.emplace(place.begin, block);
  const Nanos now = MonotonicNow();
  ForChunks(block, [&](Region& at, std::size_t i) {
    Uncount(at, at.chunks[i]);
    ++at.chunks[i].blocks;
    Count(at, at.chunks[i]);
    Touch(at.AddressOf(i), now);
  });
  *address = place.begin;
}

// Returns how many bytes of room came free, which are the caller's.
std::uint64_t Heap::Vacate(const Block& block) {
  const Nanos now = MonotonicNow();
  const std::uint64_t end = block.begin + RoundUp(block.bytes, UnitOf(block.bytes));
  std::uint64_t freed = 0;
  if (block.exported) AddPins(block, -1);
  ForChunks(block, [&](Region& region, std::size_t i) {
    Chunk& chunk = region.chunks[i];
    const std::uint64_t from = std::max<std::uint64_t>(block.begin, region.AddressOf(i));
    const std::uint64_t bytes = std::min(end, region.AddressOf(i + 1)) - from;
    Uncount(region, chunk);
    --chunk.blocks;
    Count(region, chunk);
    if (block.exported && chunk.shared && chunk.blocks > 0) {
      region.withheld.emplace(i, std::pair(from, bytes));
    } else {
      region.extents.Give(from, bytes);
    }
    if (chunk.blocks > 0) return;
    chunk.empty_since = now;
    if (chunk.shared && !chunk.offered) {
      Unback(region, i);
      freed += region.chunk_bytes;
    } else {
      ReleaseEmpty(region, i);
    }
  });
  return freed;
}

// A chunk without blocks that is in host memory, or in the file, goes at once. One that is on its way goes when it has
// arrived.
void Heap::ReleaseEmpty(Region& region, std::size_t index) {
  Chunk& chunk = region.chunks[index];
  if (chunk.blocks > 0 || chunk.wanted || chunk.backing == Backing::kNone || chunk.backing == Backing::kDevice) return;
  Unback(region, index);
  // What it was never told of would be a lie.
  if (std::exchange(chunk.known, false)) dropped_.push_back(region.AddressOf(index));
}

std::optional<Block> Heap::Free(CUdeviceptr address, std::uint64_t id) {
  Block block;
  std::uint64_t room;
  {
    std::lock_guard lock(mutex_);
    const auto at = blocks_.find(address);
    if (at == blocks_.end() || (id != 0 && at->second.id != id)) return std::nullopt;
    block = at->second;
    blocks_.erase(at);
    room = Vacate(block);
  }
  if (room > 0) room_.Give(room);
  return block;
}

std::uint64_t Heap::FreeAllOf(CUcontext context, std::uint64_t (*charge)(std::uint64_t bytes), std::uint64_t below) {
  std::uint64_t sum = 0, room = 0;
  {
    std::lock_guard lock(mutex_);
    for (auto at = blocks_.begin(); at != blocks_.end();) {
      if (at->second.context != context || at->second.id >= below) {
        ++at;
        continue;
      }
      const Block block = at->second;
      at = blocks_.erase(at);
      room += Vacate(block);
      sum += charge(block.bytes);
    }
  }
  if (room > 0) room_.Give(room);
  return sum;
}

std::uint64_t Heap::NextId() const {
  std::lock_guard lock(mutex_);
  return next_id_;
}

// With mutex_ held: the block that `address` lies in, or end().
std::map<CUdeviceptr, Block>::const_iterator Heap::Around(CUdeviceptr address) const {
  auto at = blocks_.upper_bound(address);
  if (at == blocks_.begin()) return blocks_.end();
  --at;
  return address - at->first < at->second.bytes ? at : blocks_.end();
}

std::optional<Block> Heap::Find(CUdeviceptr address) const {
  std::lock_guard lock(mutex_);
  const auto at = Around(address);
  return at == blocks_.end() ? std::nullopt : std::optional(at->second);
}

// ---- access ----

CUresult Heap::AddPeer(CUdevice device) {
  std::lock_guard lock(mutex_);
  const auto known = [&](const CUmemAccessDesc& access) { return access.location.id == device; };
  if (stopped_ || std::any_of(access_.begin(), access_.end(), known)) return CUDA_SUCCESS;
  access_.push_back(AccessOf(device));
  for (Region* region : {&small_, &large_}) {
    for (std::size_t i = 0; i < region->chunks.size(); ++i) {
      const Backing backing = region->chunks[i].backing;
      if (backing != Backing::kDevice && backing != Backing::kHostMapped) continue;
      if (const CUresult result = SetAccess(region->AddressOf(i), region->chunk_bytes); result != CUDA_SUCCESS) {
        access_.pop_back();
        return result;
      }
    }
  }
  return CUDA_SUCCESS;
}

// ---- for other processes ----

void Heap::AddPins(const Block& block, int count) {
  ForChunks(block, [&](Region& region, std::size_t i) {
    Uncount(region, region.chunks[i]);
    region.chunks[i].pins += static_cast<std::uint32_t>(count);
    Count(region, region.chunks[i]);
  });
}

// Whether all of it is on the GPU, and stays there.
bool Heap::PinBlock(Block& block) {
  if (!std::exchange(block.exported, true)) AddPins(block, 1);
  bool here = true;
  ForChunks(block, [&](Region& region, std::size_t i) {
    // One that was offered before may go still.
    here &= region.chunks[i].backing == Backing::kDevice && !region.chunks[i].offered;
  });
  return here;
}

CUresult Heap::Pin(CUdeviceptr address, Exported* exported) {
  std::lock_guard lock(mutex_);
  const auto around = Around(address);
  if (stopped_ || around == blocks_.end()) return CUDA_ERROR_INVALID_VALUE;
  Block& block = blocks_.find(around->first)->second;
  const bool here = PinBlock(block);
  *exported = {.block = block};
  ForChunks(block, [&](Region& region, std::size_t i) {
    if (exported->chunks++ > 0) return;
    exported->chunk_bytes = region.chunk_bytes;
    exported->offset = block.begin - region.AddressOf(i);
  });
  return here ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult Heap::PinForDevice(CUdeviceptr address, std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const auto around = Around(address);
  const auto first = around == blocks_.end() ? blocks_.lower_bound(address) : blocks_.find(around->first);
  const auto last = blocks_.lower_bound(address + bytes);
  if (stopped_ || address + bytes <= address || first == last) return CUDA_ERROR_INVALID_VALUE;
  bool here = true;
  for (auto at = first; at != last; ++at) here &= PinBlock(at->second);
  if (!here) return CUDA_ERROR_NOT_READY;
  for (auto at = first; at != last; ++at) {
    at->second.in_device = true;
    ForChunks(at->second, [](Region& region, std::size_t i) { region.chunks[i].shared = true; });
  }
  return CUDA_SUCCESS;
}

void Heap::Unpin(const Block& block) {
  std::lock_guard lock(mutex_);
  const auto at = blocks_.find(block.begin);
  if (at == blocks_.end() || at->second.id != block.id || at->second.in_device) return;
  if (!std::exchange(at->second.exported, false)) return;
  AddPins(at->second, -1);
}

CUresult Heap::Share(const Exported& exported, std::uint32_t first, std::span<int> fds) {
  std::lock_guard lock(mutex_);
  const auto at = blocks_.find(exported.block.begin);
  if (stopped_ || at == blocks_.end() || at->second.id != exported.block.id || !at->second.exported)
    return CUDA_ERROR_INVALID_VALUE;
  if (first > exported.chunks || fds.size() > exported.chunks - first) return CUDA_ERROR_INVALID_VALUE;
  Region& region = *RegionOf(exported.block.begin);
  const std::size_t begin = region.IndexOf(exported.block.begin) + first;
  for (std::size_t n = 0; n < fds.size(); ++n) {
    const Chunk& chunk = region.chunks[begin + n];
    CUresult result = chunk.backing == Backing::kDevice && !chunk.offered ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    if (result == CUDA_SUCCESS)
      result = driver_.Export(&fds[n], chunk.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result == CUDA_SUCCESS) continue;
    for (const int fd : fds.first(n)) close(fd);
    return result;
  }
  for (std::size_t n = 0; n < fds.size(); ++n) region.chunks[begin + n].shared = true;
  return CUDA_SUCCESS;
}

// ---- what is left over ----

// Returns how many bytes of room came free, which are the caller's.
std::uint64_t Heap::TrimLocked(Nanos since, Nanos* next) {
  std::uint64_t bytes = 0;
  for (Region* region : {&small_, &large_}) {
    for (std::size_t i = 0; i < region->chunks.size(); ++i) {
      Chunk& chunk = region->chunks[i];
      if (chunk.backing != Backing::kDevice || chunk.blocks > 0 || chunk.offered) continue;
      if (chunk.empty_since < since) {
        Unback(*region, i);
        bytes += region->chunk_bytes;
      } else if (next) {
        *next = std::min(*next, chunk.empty_since);
      }
    }
  }
  return bytes;
}

Nanos Heap::Trim(Nanos since) {
  Nanos next = kNever;
  std::uint64_t bytes;
  {
    std::lock_guard lock(mutex_);
    bytes = TrimLocked(since, &next);
  }
  if (bytes > 0) room_.Give(bytes);
  return next;
}

HeapFigures Heap::Figures() const {
  std::lock_guard lock(mutex_);
  return figures_;
}

void Heap::Stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
}

void Heap::AbandonAfterFork() {
  new (&mutex_) std::mutex;
  new (&growing_) std::mutex;
  stopped_ = true;
}

}  // namespace tessera::pager
