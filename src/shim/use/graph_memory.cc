#include "shim/use/graph_memory.h"

#include <atomic>

#include "shim/load/real.h"

namespace tessera::shim {

using namespace cuda;

namespace {

std::atomic<bool> noted{false};

}  // namespace

void NoteGraphMemory() { noted = true; }

std::uint64_t GraphMemoryOf(CUdevice device) {
  std::uint64_t bytes = 0;
  if (!noted.load(std::memory_order_relaxed)) return 0;
  const auto ask = REAL_AS(cuDeviceGetGraphMemAttribute, CUdevice, CUgraphMem_attribute, void*);
  return ask(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) == CUDA_SUCCESS ? bytes : 0;
}

}  // namespace tessera::shim
