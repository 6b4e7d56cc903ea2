#include "sources.h"

#include <algorithm>

namespace tessera::churn {

using namespace cuda;

namespace {

constexpr std::size_t kMostPools = 3;

CUmemPoolProps OnDevice0() {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return properties;
}

}  // namespace

CUresult Heap::Make(Buffer& buffer) { return Call("cuMemAlloc_v2", &buffer.address, std::size_t{buffer.bytes}); }

void Heap::Free(Buffer& buffer) {
  if (dice_.OneIn(8)) return Must("cuMemFreeAsync", buffer.address, gpu_.Stream());
  Must("cuMemFree_v2", buffer.address);
}

CUresult Pools::Make(Buffer& buffer) {
  if (pools_.empty() || dice_.OneIn(3))
    return Call("cuMemAllocAsync", &buffer.address, std::size_t{buffer.bytes}, gpu_.Stream());
  return Call("cuMemAllocFromPoolAsync", &buffer.address, std::size_t{buffer.bytes}, *dice_.Any(pools_), gpu_.Stream());
}

void Pools::Free(Buffer& buffer) {
  if (dice_.OneIn(4)) return Must("cuMemFree_v2", buffer.address);
  Must("cuMemFreeAsync", buffer.address, gpu_.Stream());
}

void Pools::Change() {
  if (pools_.size() < kMostPools && dice_.OneIn(2)) {
    const CUmemPoolProps properties = OnDevice0();
    CUmemoryPool made = nullptr;
    Must("cuMemPoolCreate", &made, &properties);
    pools_.push_back(made);
  } else if (!pools_.empty()) {
    const auto pool = dice_.Any(pools_);
    std::uint64_t keep = dice_.OneIn(2) ? 0 : ~std::uint64_t{0};
    Must("cuMemPoolSetAttribute", *pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, static_cast<void*>(&keep));
    Must("cuMemPoolTrimTo", *pool, std::size_t{0});
    if (dice_.OneIn(2)) return;
    Must("cuMemPoolDestroy", *pool);  // what was allocated from it stays
    pools_.erase(pool);
  }
}

CUresult GraphMemory::Make(Buffer& buffer) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
  allocation.poolProps = OnDevice0();
  allocation.bytesize = buffer.bytes;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec executable = nullptr;
  Must("cuGraphCreate", &graph, 0u);
  CUresult result = Call("cuGraphAddMemAllocNode", &node, graph, static_cast<const CUgraphNode*>(nullptr),
                         std::size_t{0}, &allocation);
  if (result == CUDA_SUCCESS) result = Call("cuGraphInstantiateWithFlags", &executable, graph, 0ull);
  Must("cuGraphDestroy", graph);
  if (result != CUDA_SUCCESS) return result;
  result = Call("cuGraphLaunch", executable, gpu_.Stream());
  if (result != CUDA_SUCCESS) {
    Must("cuGraphExecDestroy", executable);
    return result;
  }
  buffer.address = allocation.dptr;
  made_by_[buffer.address] = executable;
  return CUDA_SUCCESS;
}

void GraphMemory::Free(Buffer& buffer) {
  Must("cuMemFreeAsync", buffer.address, gpu_.Stream());
  gpu_.Synchronize();
  Must("cuGraphExecDestroy", made_by_.extract(buffer.address).mapped());
}

}  // namespace tessera::churn
