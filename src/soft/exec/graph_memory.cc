#include "soft/exec/graph_memory.h"

#include <algorithm>
#include <unordered_map>

#include "soft/device/context.h"
#include "soft/device/heap.h"
#include "soft/exec/engine.h"
#include "soft/exec/stream.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

// Has a lock of its own: memory dies wherever the last graph does. Never destroyed.
struct Registry {
  Mutex mutex;
  std::unordered_map<CUdeviceptr, std::weak_ptr<GraphMemory>> memories TESSERA_GUARDED_BY(mutex);  // by address
  GraphMemoryUse uses[kMaxDevices] TESSERA_GUARDED_BY(mutex);

  static Registry& Get() {
    static Registry& registry = *new Registry;
    return registry;
  }
};

}  // namespace

GraphMemory::GraphMemory(std::shared_ptr<Heap> heap, const Device& device, const CUDA_MEM_ALLOC_NODE_PARAMS& parameters)
    : heap_(std::move(heap)), device_(device), parameters_(parameters) {
  Registry& registry = Registry::Get();
  const MutexLock lock(registry.mutex);
  GraphMemoryUse& use = registry.uses[device_.index()];
  use.reserved += parameters_.bytesize;
  use.reserved_high = std::max(use.reserved_high, use.reserved);
}

GraphMemory::~GraphMemory() {
  SetAllocated(false);
  {
    Registry& registry = Registry::Get();
    const MutexLock lock(registry.mutex);
    registry.memories.erase(parameters_.dptr);
    registry.uses[device_.index()].reserved -= parameters_.bytesize;
  }
  heap_->Free(parameters_.dptr);
}

void GraphMemory::SetAllocated(bool allocated) {
  if (std::exchange(allocated_, allocated) == allocated) return;
  Registry& registry = Registry::Get();
  const MutexLock lock(registry.mutex);
  GraphMemoryUse& use = registry.uses[device_.index()];
  use.used = allocated ? use.used + parameters_.bytesize : use.used - parameters_.bytesize;
  use.used_high = std::max(use.used_high, use.used);
}

CUresult MakeGraphMemory(Context& context, CUDA_MEM_ALLOC_NODE_PARAMS* parameters,
                         std::shared_ptr<GraphMemory>* memory) {
  const auto& heap = context.engine().heap();
  if (const CUresult result = heap->Allocate(parameters->bytesize, &parameters->dptr); result != CUDA_SUCCESS) {
    return result;
  }
  *memory = std::make_shared<GraphMemory>(heap, context.device(), *parameters);
  Registry& registry = Registry::Get();
  const MutexLock lock(registry.mutex);
  registry.memories[parameters->dptr] = *memory;
  return CUDA_SUCCESS;
}

std::shared_ptr<GraphMemory> FindGraphMemory(CUdeviceptr address) {
  Registry& registry = Registry::Get();
  const MutexLock lock(registry.mutex);
  const auto found = registry.memories.find(address);
  return found == registry.memories.end() ? nullptr : found->second.lock();
}

CUresult FreeGraphMemory(CUdeviceptr address) {
  const auto memory = FindGraphMemory(address);
  const MutexLock lock(submission_mutex);
  if (!memory || !memory->allocated()) return CUDA_ERROR_INVALID_VALUE;
  memory->SetAllocated(false);
  return CUDA_SUCCESS;
}

GraphMemoryUse GraphMemoryOf(const Device& device) {
  Registry& registry = Registry::Get();
  const MutexLock lock(registry.mutex);
  return registry.uses[device.index()];
}

void ResetGraphMemoryHigh(const Device& device, bool used) {
  Registry& registry = Registry::Get();
  const MutexLock lock(registry.mutex);
  GraphMemoryUse& use = registry.uses[device.index()];
  (used ? use.used_high : use.reserved_high) = used ? use.used : use.reserved;
}

}  // namespace tessera::soft
