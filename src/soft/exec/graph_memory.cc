#include "soft/exec/graph_memory.h"

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

  static Registry& Get() {
    static Registry& registry = *new Registry;
    return registry;
  }
};

}  // namespace

GraphMemory::GraphMemory(std::shared_ptr<Heap> heap, CUdeviceptr address) : heap_(std::move(heap)), address_(address) {}

GraphMemory::~GraphMemory() {
  {
    Registry& registry = Registry::Get();
    const MutexLock lock(registry.mutex);
    registry.memories.erase(address_);
  }
  heap_->Free(address_);
}

CUresult MakeGraphMemory(Context& context, CUDA_MEM_ALLOC_NODE_PARAMS* parameters,
                         std::shared_ptr<GraphMemory>* memory) {
  const auto& heap = context.engine().heap();
  if (const CUresult result = heap->Allocate(parameters->bytesize, &parameters->dptr); result != CUDA_SUCCESS) {
    return result;
  }
  *memory = std::make_shared<GraphMemory>(heap, parameters->dptr);
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

}  // namespace tessera::soft
