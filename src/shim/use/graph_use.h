// The memory that executable graphs work on, by the addresses that their nodes name. Any thread.
#pragma once

#include "base/clock.h"
#include "cuda/cuda_abi.h"
#include "pager/heap/heap.h"

namespace tessera::shim {

// Collects the addresses of pagers' memory in the nodes of `graph`, those of its child graphs included: every aligned
// word in the arguments of kernels, and the addresses of copies and memsets. From now on they are what `exec` uses,
// which was made of the graph, or updated to it. Nothing is known of a graph that is made while a stream captures: the
// questions could end the capture. What nodes find in memory is not seen.
void LearnGraph(cuda::CUgraphExec exec, cuda::CUgraph graph);
// A node of `exec` has got other parameters: the graph's own node by which that was said, and its new addresses.
void LearnKernelNode(cuda::CUgraphExec exec, cuda::CUgraphNode node, const cuda::CUDA_KERNEL_NODE_PARAMS& parameters);
void LearnCopyNode(cuda::CUgraphExec exec, cuda::CUgraphNode node, const cuda::CUDA_MEMCPY3D& copy);
void LearnMemsetNode(cuda::CUgraphExec exec, cuda::CUgraphNode node, const cuda::CUDA_MEMSET_NODE_PARAMS& memset);
void ForgetGraph(cuda::CUgraphExec exec);

// Touches the memory of the heap that `exec` uses. False: it may use any, because nothing is known of it or one of its
// kernels names none.
[[nodiscard]] bool TouchGraph(cuda::CUgraphExec exec, pager::Heap& heap, Nanos now);

}  // namespace tessera::shim
