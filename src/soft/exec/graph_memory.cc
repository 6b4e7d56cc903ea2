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
  std::unordered_map<CUdeviceptr, std::weak_ptr<GraphMemory>> memories TESSERA_GUARDED_BY(mutex);  // by address

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

CUresult FreeGraphMemory(CUdeviceptr address) {
  const auto memory = FindGraphMemory(address);
  const MutexLock lock(submission_mutex);
  if (!memory || !memory->allocated()) return CUDA_ERROR_INVALID_VALUE;
  memory->SetAllocated(false);
  return CUDA_SUCCESS;
}

}  // namespace tessera::soft
