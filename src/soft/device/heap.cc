#include "soft/device/heap.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "soft/device/context.h"
#include "soft/device/device.h"

namespace tessera::soft {
namespace {

using namespace cuda;

constexpr std::uint64_t RoundUp(std::uint64_t bytes, std::uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

void* Pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

// Address space aligned to a granule, so that huge pages fit; 0 if there is none.
std::uint64_t MapGranules(std::uint64_t bytes) {
  const std::uint64_t with_slack = bytes + Heap::kGranule;
  void* memory = mmap(nullptr, with_slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return 0;
  const auto begin = reinterpret_cast<std::uint64_t>(memory);
  const std::uint64_t aligned = RoundUp(begin, Heap::kGranule);
  if (aligned != begin) munmap(memory, aligned - begin);
  if (const std::uint64_t tail = begin + with_slack - (aligned + bytes); tail != 0)
    munmap(Pointer(aligned + bytes), tail);
  madvise(Pointer(aligned), bytes, MADV_HUGEPAGE);
  return aligned;
}

}  // namespace

Heap::Heap(Device& device, Context* context, CUmemoryPool pool) : device_(device), context_(context), pool_(pool) {}

Heap::~Heap() {
  const AddressMap::Changes changes;
  for (const auto& [address, bytes] : allocations_) AddressMap::Get().Remove(address);
  for (auto block = blocks_.begin(); block != blocks_.end();) block = ReleaseBlock(block);
}

Heap::Blocks::iterator Heap::AddBlock(std::uint64_t bytes) {
  if (!device_.Charge(bytes)) return blocks_.end();
  const std::uint64_t address = MapGranules(bytes);
  if (address == 0) {
    device_.Uncharge(bytes);
    return blocks_.end();
  }
  reserved_ += bytes;
  return blocks_.emplace(address, Block{.bytes = bytes, .gaps = {{address, bytes}}}).first;
}

Heap::Blocks::iterator Heap::ReleaseBlock(Blocks::iterator block) {
  munmap(Pointer(block->first), block->second.bytes);
  if (block->second.fd >= 0) close(block->second.fd);
  reserved_ -= block->second.bytes;
  device_.Uncharge(block->second.bytes);
  return blocks_.erase(block);
}

Heap::Blocks::iterator Heap::BlockOf(std::uint64_t address) {
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return blocks_.end();
  --next;
  return address - next->first < next->second.bytes ? next : blocks_.end();
}

CUresult Heap::Allocate(std::uint64_t bytes, CUdeviceptr* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > device_.spec().memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::uint64_t taken = RoundUp(bytes, kAlignment);
  const MutexLock lock(mutex_);

  const auto fitting_gap = [&](Block& block) {
    return std::ranges::find_if(block.gaps, [&](const auto& gap) { return gap.second >= taken; });
  };
  auto block =
      std::ranges::find_if(blocks_, [&](auto& entry) { return fitting_gap(entry.second) != entry.second.gaps.end(); });
  if (block == blocks_.end()) {
    block = AddBlock(RoundUp(taken, kGranule));
    if (block == blocks_.end()) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto& gaps = block->second.gaps;
  const auto gap = fitting_gap(block->second);
  const auto [begin, gap_bytes] = *gap;
  gaps.erase(gap);
  if (gap_bytes > taken) gaps.emplace(begin + taken, gap_bytes - taken);
  block->second.used += taken;
  used_ += taken;
  allocations_.emplace(begin, taken);
  AddressMap::Get().Insert({.address = begin,
                            .bytes = bytes,
                            .kind = MemoryKind::kDevice,
                            .context = context_,
                            .device = device_.index(),
                            .pool = pool_});
  *address = begin;
  return CUDA_SUCCESS;
}

CUresult Heap::Free(CUdeviceptr address) {
  const AddressMap::Changes changes;
  const MutexLock lock(mutex_);
  const auto allocation = allocations_.extract(address);
  if (!allocation) return CUDA_ERROR_INVALID_VALUE;
  AddressMap::Get().Remove(address);
  const std::uint64_t bytes = allocation.mapped();
  const auto block = BlockOf(address);
  block->second.used -= bytes;
  used_ -= bytes;

  auto& gaps = block->second.gaps;
  auto gap = gaps.emplace(address, bytes).first;
  if (const auto next = std::next(gap); next != gaps.end() && address + bytes == next->first) {
    gap->second += next->second;
    gaps.erase(next);
  }
  if (gap != gaps.begin()) {
    const auto previous = std::prev(gap);
    if (previous->first + previous->second == gap->first) {
      previous->second += gap->second;
      gaps.erase(gap);
    }
  }
  if (pool_ == nullptr && block->second.used == 0) ReleaseBlock(block);
  return CUDA_SUCCESS;
}

void Heap::Trim(std::uint64_t keep) {
  const AddressMap::Changes changes;
  const MutexLock lock(mutex_);
  for (auto block = blocks_.begin(); block != blocks_.end() && reserved_ > keep;) {
    block = block->second.used == 0 ? ReleaseBlock(block) : std::next(block);
  }
}

std::uint64_t Heap::used() const {
  const MutexLock lock(mutex_);
  return used_;
}

std::uint64_t Heap::reserved() const {
  const MutexLock lock(mutex_);
  return reserved_;
}

// Memory of this process alone becomes a file that others can map, at the same address, when somebody asks for that:
// one descriptor for each allocation from the start would run into the limit of open files.
CUresult Heap::Share(CUdeviceptr address, SharedBlock* shared) {
  const AddressMap::Changes changes;
  const MutexLock lock(mutex_);
  const auto block = BlockOf(address);
  if (block == blocks_.end()) return CUDA_ERROR_INVALID_VALUE;
  const auto& [begin, state] = *block;
  if (state.fd < 0) {
    const int fd = memfd_create("tessera-soft", MFD_CLOEXEC);
    if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    std::uint64_t written = 0;
    bool good = ftruncate(fd, static_cast<off_t>(state.bytes)) == 0;
    while (good && written < state.bytes) {
      const ssize_t count = pwrite(fd, Pointer(begin + written), state.bytes - written, static_cast<off_t>(written));
      good = count > 0;
      written += static_cast<std::uint64_t>(std::max<ssize_t>(count, 0));
    }
    if (!good ||
        mmap(Pointer(begin), state.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
      close(fd);
      return CUDA_ERROR_OPERATING_SYSTEM;
    }
    block->second.fd = fd;
  }
  *shared = {state.fd, begin, state.bytes};
  return CUDA_SUCCESS;
}

bool Heap::HasShared() const {
  const MutexLock lock(mutex_);
  return std::ranges::any_of(blocks_, [](const auto& block) { return block.second.fd >= 0; });
}

}  // namespace tessera::soft
