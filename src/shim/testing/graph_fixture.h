// For tests of graphs with memory of the pager's heap.
#pragma once

#include <vector>

#include "shim/load/hook.h"
#include "shim/memory/paging.h"
#include "shim/testing/fake_graphs.h"
#include "shim/testing/shim_fixture.h"

TESSERA_HOOK cuGraphAddMemAllocNode(tessera::cuda::CUgraphNode*, tessera::cuda::CUgraph,
                                    const tessera::cuda::CUgraphNode*, size_t,
                                    tessera::cuda::CUDA_MEM_ALLOC_NODE_PARAMS*);
TESSERA_HOOK cuGraphAddMemFreeNode(tessera::cuda::CUgraphNode*, tessera::cuda::CUgraph,
                                   const tessera::cuda::CUgraphNode*, size_t, tessera::cuda::CUdeviceptr);
TESSERA_HOOK cuGraphInstantiateWithFlags(tessera::cuda::CUgraphExec*, tessera::cuda::CUgraph, unsigned long long);
TESSERA_HOOK cuDeviceGetGraphMemAttribute(tessera::cuda::CUdevice, tessera::cuda::CUgraphMem_attribute, void*);

namespace tessera::shim {

// Graphs of a device whose memory is swapped, with calls as programs make them.
class GraphFixture : public ShimFixture {
 protected:
  GraphFixture() {
    Swap(wire::GateOrder::kFree);
    Attached();
    context = MakeContext();
    driver = {};
    PutGraphs(Cuda());
  }

  static cuda::CUgraph NewGraph() {
    const cuda::CUgraph graph = NewHandle<cuda::CUgraph>();
    driver.graphs[graph] = {};
    return graph;
  }
  cuda::CUDA_MEM_ALLOC_NODE_PARAMS Parameters(std::size_t bytes) const {
    cuda::CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    parameters.poolProps.allocType = cuda::CU_MEM_ALLOCATION_TYPE_PINNED;
    parameters.poolProps.location = {cuda::CU_MEM_LOCATION_TYPE_DEVICE, device};
    parameters.bytesize = bytes;
    return parameters;
  }
  struct Allocated {
    cuda::CUgraphNode node = nullptr;
    cuda::CUdeviceptr address = 0;
  };
  Allocated Allocate(cuda::CUgraph graph, std::vector<cuda::CUgraphNode> after = {},
                     std::size_t bytes = 4 * kMiB) const {
    auto parameters = Parameters(bytes);
    Allocated made;
    EXPECT_EQ(cuGraphAddMemAllocNode(&made.node, graph, after.data(), after.size(), &parameters), cuda::CUDA_SUCCESS);
    made.address = parameters.dptr;
    return made;
  }
  static cuda::CUgraphNode Free(cuda::CUgraph graph, const Allocated& allocated) {
    cuda::CUgraphNode node = nullptr;
    EXPECT_EQ(cuGraphAddMemFreeNode(&node, graph, &allocated.node, 1, allocated.address), cuda::CUDA_SUCCESS);
    return node;
  }
  static cuda::CUgraphExec Make(cuda::CUgraph graph, unsigned long long flags = 0) {
    cuda::CUgraphExec exec = nullptr;
    EXPECT_EQ(cuGraphInstantiateWithFlags(&exec, graph, flags), cuda::CUDA_SUCCESS);
    return exec;
  }
  // Whether the heap has a block there.
  bool Lives(cuda::CUdeviceptr address) {
    Attached().Pager()->Ordered().FreeReached();
    return Attached().Pager()->Heap().Find(address).has_value();
  }
  std::uint64_t Reserved() const {
    std::uint64_t bytes = 0;
    EXPECT_EQ(cuDeviceGetGraphMemAttribute(device, cuda::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes),
              cuda::CUDA_SUCCESS);
    return bytes;
  }

  static inline FakeGraphs& driver = fake_graphs;
  cuda::CUcontext context = nullptr;
};

}  // namespace tessera::shim
