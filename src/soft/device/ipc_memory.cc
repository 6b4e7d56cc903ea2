#include "soft/device/ipc_memory.h"

#include <fcntl.h>

#include <cstring>
#include <map>
#include <string>

#include "base/unique_fd.h"
#include "soft/device/address_map.h"
#include "soft/device/context.h"
#include "soft/device/heap.h"
#include "soft/device/host_memory.h"
#include "soft/shared/process_id.h"

namespace tessera::soft {
namespace {

using namespace cuda;

// The contents of an IPC handle.
struct IpcMemory {
  ProcessId owner;
  std::int32_t file;  // descriptor in the owner
  std::int32_t reserved;
  std::uint64_t block_bytes;
  std::uint64_t offset;  // of the allocation in the block
  std::uint64_t bytes;   // of the allocation
  std::uint64_t id;      // of the allocation in its process: an address that is used again is another memory

  auto operator<=>(const IpcMemory& other) const { return std::memcmp(this, &other, sizeof *this) <=> 0; }
};
static_assert(sizeof(IpcMemory) == 56 && sizeof(IpcMemory) <= sizeof(CUipcMemHandle));

struct Opened {
  std::uint64_t block = 0;  // address
  int times = 0;
};

struct Registry {
  Mutex mutex;
  std::map<IpcMemory, Opened> opened TESSERA_GUARDED_BY(mutex);
};

Registry& TheRegistry() {
  static Registry& registry = *new Registry;
  return registry;
}

}  // namespace

CUresult MakeIpcHandle(CUdeviceptr address, CUipcMemHandle* handle) {
  const auto mapping = AddressMap::Get().Lookup(address);
  const bool shareable = mapping && mapping->kind == MemoryKind::kDevice && mapping->pool == nullptr;
  if (!shareable) return CUDA_ERROR_INVALID_VALUE;
  Heap::SharedBlock block = {};
  if (const CUresult shared = mapping->context->heap().Share(mapping->address, &block); shared != CUDA_SUCCESS)
    return shared;
  const IpcMemory memory = {.owner = ProcessId::Self(),
                            .file = block.fd,
                            .block_bytes = block.bytes,
                            .offset = mapping->address - block.address,
                            .bytes = mapping->bytes,
                            .id = mapping->id};
  *handle = {};
  std::memcpy(handle->reserved, &memory, sizeof memory);
  return CUDA_SUCCESS;
}

CUresult OpenIpcHandle(Context& context, const CUipcMemHandle& handle, CUdeviceptr* address) {
  IpcMemory memory;
  std::memcpy(&memory, handle.reserved, sizeof memory);
  const bool sensible =
      memory.bytes != 0 && memory.offset <= memory.block_bytes && memory.bytes <= memory.block_bytes - memory.offset;
  if (!sensible) return CUDA_ERROR_INVALID_VALUE;
  if (memory.owner == ProcessId::Self()) return CUDA_ERROR_INVALID_CONTEXT;

  Registry& registry = TheRegistry();
  const MutexLock lock(registry.mutex);
  Opened& opened = registry.opened[memory];
  // The context in which it was opened may have gone, and the mapping with it.
  const auto mapping = AddressMap::Get().Lookup(opened.block);
  if (!mapping || mapping->kind != MemoryKind::kImported) opened.times = 0;
  if (opened.times == 0) {
    const std::string path = "/proc/" + std::to_string(memory.owner.Here()) + "/fd/" + std::to_string(memory.file);
    const UniqueFd file(memory.owner.Alive(0) ? open(path.c_str(), O_RDWR | O_CLOEXEC) : -1);
    void* block = nullptr;
    const CUresult mapped =
        file ? AllocateHost(context, MemoryKind::kImported, memory.block_bytes, 0, &block, file.Get())
             : CUDA_ERROR_MAP_FAILED;
    if (mapped != CUDA_SUCCESS) {
      registry.opened.erase(memory);
      return mapped;
    }
    opened.block = reinterpret_cast<std::uint64_t>(block);
  }
  ++opened.times;
  *address = opened.block + memory.offset;
  return CUDA_SUCCESS;
}

CUresult CloseIpcHandle(CUdeviceptr address) {
  Registry& registry = TheRegistry();
  const MutexLock lock(registry.mutex);
  for (auto& [memory, opened] : registry.opened) {
    if (opened.block + memory.offset != address) continue;
    if (--opened.times > 0) return CUDA_SUCCESS;
    const CUresult freed = FreeMapping(opened.block, MemoryKind::kImported);
    registry.opened.erase(memory);
    return freed;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace tessera::soft
