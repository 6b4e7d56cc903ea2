// What nodes of graphs hold: parameters, attributes, and whether they are enabled.
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

TESSERA_CUDA_API cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* out) {
  return GetOne(node, CU_GRAPH_NODE_TYPE_KERNEL, out, [](const auto& all) {
    const auto& k = all.kernel;
    return CUDA_KERNEL_NODE_PARAMS_v1{k.func,      k.gridDimX,  k.gridDimY,       k.gridDimZ,     k.blockDimX,
                                      k.blockDimY, k.blockDimZ, k.sharedMemBytes, k.kernelParams, k.extra};
  });
}

TESSERA_CUDA_API cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* out) {
  return GetOne(node, CU_GRAPH_NODE_TYPE_MEMCPY, out, [](const auto& all) { return all.memcpy.copyParams; });
}

TESSERA_CUDA_API cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* out) {
  return GetOne(node, CU_GRAPH_NODE_TYPE_MEMSET, out, [](const auto& all) {
    const auto& m = all.memset;
    return CUDA_MEMSET_NODE_PARAMS{m.dst, m.pitch, m.value, m.elementSize, m.width, m.height};
  });
}

TESSERA_CUDA_API cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* out) {
  return GetOne(node, CU_GRAPH_NODE_TYPE_HOST, out, [](const auto& all) { return all.host; });
}

TESSERA_CUDA_API cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* out) {
  return GetOne(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, out, [](const auto& all) { return all.memOp; });
}

TESSERA_CUDA_API cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* out) {
  return GetOne(node, CU_GRAPH_NODE_TYPE_GRAPH, out, [](const auto& all) { return all.graph.graph; });
}

TESSERA_CUDA_API cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* out) {
  return GetOne(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, out, [](const auto& all) { return all.eventRecord.event; });
}

TESSERA_CUDA_API cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* out) {
  return GetOne(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, out, [](const auto& all) { return all.eventWait.event; });
}

TESSERA_CUDA_API cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  return GetOne(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, out, [](const auto& all) { return all.alloc; });
}

TESSERA_CUDA_API cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* out) {
  return GetOne(node, CU_GRAPH_NODE_TYPE_MEM_FREE, out, [](const auto& all) { return all.free.dptr; });
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

TESSERA_CUDA_API cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned* enabled) {
  return WithExecNode(exec, node, [&](const Node& copy) { return Give(enabled, copy.enabled); });
}

// ---- attributes of kernels ----------------------------------------------------------------------------------------

TESSERA_CUDA_API cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                               const CUkernelNodeAttrValue* value) {
  return WithNode(handle, [&](const auto& node) {
    auto* kernel = std::get_if<KernelWork>(&node->work);
    if (kernel == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) kernel->cooperative = value->cooperative != 0;
    node->attributes[attribute] = *value;
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID attribute,
                                               CUkernelNodeAttrValue* value) {
  return WithNode(handle, [&](const auto& node) {
    const auto* kernel = std::get_if<KernelWork>(&node->work);
    if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUkernelNodeAttrValue answer = {};
    if (const auto set = node->attributes.find(attribute); set != node->attributes.end()) answer = set->second;
    if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) answer.cooperative = kernel->cooperative;
    return Give(value, answer);
  });
}

TESSERA_CUDA_API cuGraphKernelNodeCopyAttributes(CUgraphNode to_handle, CUgraphNode from_handle) {
  return WithNode(to_handle, [&](const auto& to) {
    return WithNode(from_handle, [&](const auto& from) {
      if (to->type() != CU_GRAPH_NODE_TYPE_KERNEL || from->type() != CU_GRAPH_NODE_TYPE_KERNEL) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      to->attributes = from->attributes;
      std::get<KernelWork>(to->work).cooperative = std::get<KernelWork>(from->work).cooperative;
      return CUDA_SUCCESS;
    });
  });
}

}  // namespace tessera::soft
