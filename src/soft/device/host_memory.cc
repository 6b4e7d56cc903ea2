#include "soft/device/host_memory.h"

#include <sys/mman.h>

#include "soft/device/context.h"

namespace tessera::soft {
namespace {

using namespace cuda;

constexpr std::uint64_t kPage = 4096;

std::uint64_t WholePages(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

CUresult AllocateHost(Context& context, MemoryKind kind, std::uint64_t bytes, unsigned flags, void** address, int fd) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const int sharing = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* memory = mmap(nullptr, WholePages(bytes), PROT_READ | PROT_WRITE, sharing, fd, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  AddressMap::Get().Insert({.address = reinterpret_cast<std::uint64_t>(memory),
                            .bytes = bytes,
                            .kind = kind,
                            .context = &context,
                            .device = context.device().index(),
                            .flags = flags});
  *address = memory;
  return CUDA_SUCCESS;
}

CUresult RegisterHost(Context& context, void* address, std::uint64_t bytes, unsigned flags) {
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool inserted = AddressMap::Get().Insert({.address = reinterpret_cast<std::uint64_t>(address),
                                                  .bytes = bytes,
                                                  .kind = MemoryKind::kRegistered,
                                                  .context = &context,
                                                  .device = context.device().index(),
                                                  .flags = flags});
  return inserted ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult FreeMapping(std::uint64_t address, MemoryKind kind) {
  const AddressMap::Changes changes;
  AddressMap& map = AddressMap::Get();
  const auto mapping = map.Lookup(address);
  if (!mapping || mapping->address != address || mapping->kind != kind) return CUDA_ERROR_INVALID_VALUE;
  map.Remove(address);
  if (kind != MemoryKind::kRegistered) munmap(reinterpret_cast<void*>(address), WholePages(mapping->bytes));
  return CUDA_SUCCESS;
}

}  // namespace tessera::soft
