#include "soft/exec/graph_memory.h"

#include <unordered_map>
#include <utility>
#include <vector>

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
  std::unordered_map<CUdeviceptr, std::weak_ptr<GraphMemory>> memories TESSERA_GUARDED_BY(mutex);     // by address
  std::unordered_map<CUdeviceptr, std::shared_ptr<GraphMemory>> allocated TESSERA_GUARDED_BY(mutex);  // of those

  static Registry& Get() {
    static Registry& registry = *new Registry;
    return registry;
  }
};

}  // namespace

GraphMemory::GraphMemory(std::shared_ptr<Heap> heap, const Device& device, CUdeviceptr address, std::uint64_t bytes)
    : heap_(std::move(heap)), device_(device), address_(address), bytes_(bytes) {}

GraphMemory::~GraphMemory() {
  {
    Registry& registry = Registry::Get();
    const MutexLock lock(registry.mutex);
    registry.memories.erase(address_);
  }
  heap_->Free(address_);
}

void GraphMemory::SetAllocated(bool allocated) {
  std::shared_ptr<GraphMemory> self;  // may end after the lock
  allocated_ = allocated;
  Registry& registry = Registry::Get();
  const MutexLock lock(registry.mutex);
  if (allocated) {
    registry.allocated[address_] = shared_from_this();
  } else if (const auto at = registry.allocated.find(address_); at != registry.allocated.end()) {
    self = std::move(at->second);
    registry.allocated.erase(at);
  }
}

CUresult MakeGraphMemory(Context& context, CUDA_MEM_ALLOC_NODE_PARAMS* parameters,
                         std::shared_ptr<GraphMemory>* memory) {
  const auto& heap = context.engine().heap();
  if (const CUresult result = heap->Allocate(parameters->bytesize, &parameters->dptr); result != CUDA_SUCCESS) {
    return result;
  }
  *memory = std::make_shared<GraphMemory>(heap, context.device(), parameters->dptr, parameters->bytesize);
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

std::uint64_t GraphMemoryOn(const Device& device) {
  std::vector<std::shared_ptr<GraphMemory>> memories;  // go after the lock, which the end of one takes
  {
    Registry& registry = Registry::Get();
    const MutexLock lock(registry.mutex);
    for (const auto& [address, memory] : registry.memories) {
      if (auto living = memory.lock()) memories.push_back(std::move(living));
    }
  }
  std::uint64_t sum = 0;
  for (const auto& memory : memories) sum += &memory->device() == &device ? memory->bytes() : 0;
  return sum;
}

CUresult FreeGraphMemory(CUdeviceptr address, std::shared_ptr<GraphMemory>* freed) {
  const auto memory = FindGraphMemory(address);
  const MutexLock lock(submission_mutex);
  if (!memory || !memory->allocated()) return CUDA_ERROR_INVALID_VALUE;
  memory->SetAllocated(false);
  if (freed) *freed = memory;
  return CUDA_SUCCESS;
}

void DropGraphMemoryOf(const Heap& heap) {
  std::vector<std::shared_ptr<GraphMemory>> dropped;  // after the lock
  Registry& registry = Registry::Get();
  const MutexLock lock(registry.mutex);
  for (auto at = registry.allocated.begin(); at != registry.allocated.end();) {
    if (at->second->heap().get() != &heap) {
      ++at;
      continue;
    }
    dropped.push_back(std::move(at->second));
    at = registry.allocated.erase(at);
  }
}

}  // namespace tessera::soft
