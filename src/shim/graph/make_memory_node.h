// Makes the nodes that allocate and free memory of the pager's heap: a block, and an empty node in its place.
#pragma once

#include <optional>

#include "cuda/cuda_abi.h"
#include "shim/graph/memory_nodes.h"
#include "shim/memory/paging.h"

namespace tessera::shim {

// Where a node goes: behind these nodes of the graph.
struct NodePlace {
  cuda::CUgraph graph = nullptr;
  std::vector<cuda::CUgraphNode> after;
  CaptureOrder order;
};

// As cuGraphAddMemAllocNode, of memory of this heap; `parameters` gets the address. The graph, its copies and what was
// instantiated of it have the block. Memory that the graph freed before is taken again where all that used it comes
// before this node. None: the driver has no user objects, or its own allocation has to do it.
std::optional<cuda::CUresult> MakeAllocationNode(Paging& paging, const NodePlace& place,
                                                 cuda::CUDA_MEM_ALLOC_NODE_PARAMS* parameters, cuda::CUgraphNode* node);
// As cuGraphAddMemFreeNode. None: no node of ours has allocated this memory, or it is freed already; the driver says
// what is wrong.
std::optional<cuda::CUresult> MakeFreeNode(const NodePlace& place, cuda::CUdeviceptr address, cuda::CUgraphNode* node);

// As cuMemAllocAsync and cuMemFreeAsync on a stream that captures: the node comes behind what the stream has captured,
// and what it captures next behind the node. `per_thread`: a null handle is the thread's own default stream. None: as
// above, or the capture is invalid or has edges with data.
std::optional<cuda::CUresult> CaptureAllocation(Paging& paging, std::uint64_t bytes, cuda::CUstream stream,
                                                bool per_thread, cuda::CUdeviceptr* address);
std::optional<cuda::CUresult> CaptureFree(cuda::CUdeviceptr address, cuda::CUstream stream, bool per_thread);

}  // namespace tessera::shim
