// Parameters of the nodes of graphs, and whether they are enabled.
#include "soft/api/graph_api.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

CUresult Get(CUgraphNode handle, CUgraphNodeType type, CUgraphNodeParams* parameters) {
  return WithNode(handle, [&](const auto& node) {
    if (node->type() != type) return CUDA_ERROR_INVALID_VALUE;
    ParametersOf(*node, parameters);
    return CUDA_SUCCESS;
  });
}

template <typename Out, typename Pick>
CUresult GetOne(CUgraphNode node, CUgraphNodeType type, Out* out, const Pick& pick) {
  CUgraphNodeParams parameters;
  const CUresult result = Get(node, type, &parameters);
  return result == CUDA_SUCCESS ? Give(out, pick(parameters)) : result;
}

}  // namespace

// ---- parameters ---------------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* out) {
  return GetOne(node, CU_GRAPH_NODE_TYPE_KERNEL, out, [](const auto& all) { return all.kernel; });
}

TESSERA_CUDA_API cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* out) {
  return GetOne(node, CU_GRAPH_NODE_TYPE_MEMSET, out, [](const auto& all) {
    const auto& m = all.memset;
    return CUDA_MEMSET_NODE_PARAMS{m.dst, m.pitch, m.value, m.elementSize, m.width, m.height};
  });
}

TESSERA_CUDA_API cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  return GetOne(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, out, [](const auto& all) { return all.alloc; });
}

TESSERA_CUDA_API cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* out) {
  return GetOne(node, CU_GRAPH_NODE_TYPE_MEM_FREE, out, [](const auto& all) { return all.free.dptr; });
}

TESSERA_CUDA_API cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* out) {
  return GetOne(node, CU_GRAPH_NODE_TYPE_GRAPH, out, [](const auto& all) { return all.graph.graph; });
}

TESSERA_CUDA_API cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) {
  return WithExecNode(exec, node, [&](Node& copy) {
    const CUgraphNodeType type = copy.type();
    if (type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_MEMCPY && type != CU_GRAPH_NODE_TYPE_MEMSET) {
      return CUDA_ERROR_INVALID_VALUE;  // the kinds for which the API has it
    }
    copy.enabled = enabled != 0;
    return CUDA_SUCCESS;
  });
}

}  // namespace tessera::soft
