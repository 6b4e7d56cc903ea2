// Nodes of graphs: adding them, and their parameters, in a graph or in its executable form.
//
// All kinds go through the API's generic CUgraphNodeParams; the functions of each kind put their arguments there.
#include "soft/api/graph_api.h"
#include "soft/api/stream_variants.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

// ---- the generic form ---------------------------------------------------------------------------------------------

CUresult Add(CUgraphNode* handle, CUgraph graph_handle, const CUgraphNode* dependencies, std::size_t count,
             CUgraphNodeParams& parameters) {
  return WithContext([&](Context& context) {
    return WithGraph(graph_handle, [&](const auto& graph) {
      if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
      std::vector<Node*> nodes;
      if (const CUresult result = FindNodes(*graph, dependencies, count, &nodes); result != CUDA_SUCCESS) return result;
      Work work;
      if (const CUresult result = WorkOf(context, parameters, &work); result != CUDA_SUCCESS) return result;
      const Node* node = graph->Add(std::move(work), nodes);
      Nodes::Get().Add(graph->nodes().back());
      if (const auto* child = std::get_if<GraphWork>(&node->work)) {
        Graphs::Get().Add(child->graph);
        PublishNodes(*child->graph);
      }
      *handle = Nodes::Of(*node);
      return CUDA_SUCCESS;
    });
  });
}

// Memory nodes keep their parameters: other nodes use the address. So do child graphs: the soft GPU cannot replace
// them.
bool Changeable(CUgraphNodeType type) {
  return type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && type != CU_GRAPH_NODE_TYPE_MEM_FREE &&
         type != CU_GRAPH_NODE_TYPE_GRAPH;
}

CUresult Assign(Node& node, CUgraphNodeParams& parameters) {
  return WithContext([&](Context& context) {
    if (node.type() != parameters.type || !Changeable(parameters.type)) return CUDA_ERROR_INVALID_VALUE;
    Work work;
    if (const CUresult result = WorkOf(context, parameters, &work); result != CUDA_SUCCESS) return result;
    // Not a parameter: it stays.
    if (const auto* kernel = std::get_if<KernelWork>(&node.work)) {
      std::get<KernelWork>(work).cooperative = kernel->cooperative;
    }
    node.work = std::move(work);
    return CUDA_SUCCESS;
  });
}

CUresult Set(CUgraphNode handle, CUgraphNodeParams& parameters) {
  return WithNode(handle, [&](const auto& node) { return Assign(*node, parameters); });
}

CUresult SetInExec(CUgraphExec exec, CUgraphNode handle, CUgraphNodeParams& parameters) {
  return WithExecNode(exec, handle, [&](Node& copy) { return Assign(copy, parameters); });
}

// ---- the kinds ----------------------------------------------------------------------------------------------------

CUgraphNodeParams Of(CUgraphNodeType type) {
  CUgraphNodeParams parameters = {};
  parameters.type = type;
  return parameters;
}

CUgraphNodeParams FromKernel(const CUDA_KERNEL_NODE_PARAMS* kernel) {
  auto parameters = Of(CU_GRAPH_NODE_TYPE_KERNEL);
  if (kernel) parameters.kernel = *kernel;
  return parameters;
}

CUgraphNodeParams FromMemcpy(const CUDA_MEMCPY3D* copy) {
  auto parameters = Of(CU_GRAPH_NODE_TYPE_MEMCPY);
  if (copy) parameters.memcpy.copyParams = *copy;
  return parameters;
}

CUgraphNodeParams FromMemset(const CUDA_MEMSET_NODE_PARAMS* memset) {
  auto parameters = Of(CU_GRAPH_NODE_TYPE_MEMSET);
  if (!memset) return parameters;
  parameters.memset = {memset->dst,   memset->pitch,  memset->value,  memset->elementSize,
                       memset->width, memset->height, /*ctx=*/nullptr};
  return parameters;
}

CUgraphNodeParams FromHost(const CUDA_HOST_NODE_PARAMS* host) {
  auto parameters = Of(CU_GRAPH_NODE_TYPE_HOST);
  if (host) parameters.host = *host;
  return parameters;
}

CUgraphNodeParams FromChild(CUgraph graph) {
  auto parameters = Of(CU_GRAPH_NODE_TYPE_GRAPH);
  parameters.graph.graph = graph;
  return parameters;
}

CUgraphNodeParams FromEventRecord(CUevent event) {
  auto parameters = Of(CU_GRAPH_NODE_TYPE_EVENT_RECORD);
  parameters.eventRecord.event = event;
  return parameters;
}

CUgraphNodeParams FromEventWait(CUevent event) {
  auto parameters = Of(CU_GRAPH_NODE_TYPE_WAIT_EVENT);
  parameters.eventWait.event = event;
  return parameters;
}

CUgraphNodeParams FromFree(CUdeviceptr address) {
  auto parameters = Of(CU_GRAPH_NODE_TYPE_MEM_FREE);
  parameters.free.dptr = address;
  return parameters;
}

// ---- functions of the API from `from`, which makes parameters of one argument
// ----------------------------------------

template <auto from>
struct Adder;
template <typename Argument, CUgraphNodeParams (*from)(Argument)>
struct Adder<from> {
  using Type = CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, Argument);
  static CUresult Call(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                       Argument argument) {
    CUgraphNodeParams parameters = from(argument);
    return Add(node, graph, dependencies, count, parameters);
  }
};

// With a context, which the current one stands for.
template <auto from>
struct AdderInContext;
template <typename Argument, CUgraphNodeParams (*from)(Argument)>
struct AdderInContext<from> {
  using Type = CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, Argument, CUcontext);
  static CUresult Call(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                       Argument argument, CUcontext) {
    return Adder<from>::Call(node, graph, dependencies, count, argument);
  }
};

template <auto from>
struct Setter;
template <typename Argument, CUgraphNodeParams (*from)(Argument)>
struct Setter<from> {
  using Type = CUresult(CUgraphNode, Argument);
  static CUresult Call(CUgraphNode node, Argument argument) {
    CUgraphNodeParams parameters = from(argument);
    return Set(node, parameters);
  }
};

template <auto from>
struct ExecSetter;
template <typename Argument, CUgraphNodeParams (*from)(Argument)>
struct ExecSetter<from> {
  using Type = CUresult(CUgraphExec, CUgraphNode, Argument);
  static CUresult Call(CUgraphExec exec, CUgraphNode node, Argument argument) {
    CUgraphNodeParams parameters = from(argument);
    return SetInExec(exec, node, parameters);
  }
};

template <auto from>
struct ExecSetterInContext;
template <typename Argument, CUgraphNodeParams (*from)(Argument)>
struct ExecSetterInContext<from> {
  using Type = CUresult(CUgraphExec, CUgraphNode, Argument, CUcontext);
  static CUresult Call(CUgraphExec exec, CUgraphNode node, Argument argument, CUcontext) {
    return ExecSetter<from>::Call(exec, node, argument);
  }
};

}  // namespace

TESSERA_EXPORT(cuGraphAddKernelNode_v2, Adder<&FromKernel>)
TESSERA_EXPORT(cuGraphAddMemcpyNode, AdderInContext<&FromMemcpy>)
TESSERA_EXPORT(cuGraphAddMemsetNode, AdderInContext<&FromMemset>)
TESSERA_EXPORT(cuGraphAddHostNode, Adder<&FromHost>)
TESSERA_EXPORT(cuGraphAddChildGraphNode, Adder<&FromChild>)
TESSERA_EXPORT(cuGraphAddEventRecordNode, Adder<&FromEventRecord>)
TESSERA_EXPORT(cuGraphAddEventWaitNode, Adder<&FromEventWait>)
TESSERA_EXPORT(cuGraphAddMemFreeNode, Adder<&FromFree>)

TESSERA_EXPORT(cuGraphKernelNodeSetParams_v2, Setter<&FromKernel>)
TESSERA_EXPORT(cuGraphMemcpyNodeSetParams, Setter<&FromMemcpy>)
TESSERA_EXPORT(cuGraphMemsetNodeSetParams, Setter<&FromMemset>)
TESSERA_EXPORT(cuGraphHostNodeSetParams, Setter<&FromHost>)
TESSERA_EXPORT(cuGraphEventRecordNodeSetEvent, Setter<&FromEventRecord>)
TESSERA_EXPORT(cuGraphEventWaitNodeSetEvent, Setter<&FromEventWait>)

TESSERA_EXPORT(cuGraphExecKernelNodeSetParams_v2, ExecSetter<&FromKernel>)
TESSERA_EXPORT(cuGraphExecMemcpyNodeSetParams, ExecSetterInContext<&FromMemcpy>)
TESSERA_EXPORT(cuGraphExecMemsetNodeSetParams, ExecSetterInContext<&FromMemset>)
TESSERA_EXPORT(cuGraphExecHostNodeSetParams, ExecSetter<&FromHost>)
TESSERA_EXPORT(cuGraphExecEventRecordNodeSetEvent, ExecSetter<&FromEventRecord>)
TESSERA_EXPORT(cuGraphExecEventWaitNodeSetEvent, ExecSetter<&FromEventWait>)

// ---- functions that fit no template -------------------------------------------------------------------------------

TESSERA_CUDA_API cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                   const CUgraphEdgeData*, std::size_t count, CUgraphNodeParams* parameters) {
  return parameters == nullptr ? CUDA_ERROR_INVALID_VALUE : Add(node, graph, dependencies, count, *parameters);
}

TESSERA_CUDA_API cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies, std::size_t count,
                                CUgraphNodeParams* parameters) {
  return cuGraphAddNode_v2(node, graph, dependencies, nullptr, count, parameters);
}

TESSERA_CUDA_API cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                     std::size_t count) {
  CUgraphNodeParams parameters = Of(CU_GRAPH_NODE_TYPE_EMPTY);
  return Add(node, graph, dependencies, count, parameters);
}

TESSERA_CUDA_API cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                                        std::size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* allocation) {
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUgraphNodeParams parameters = Of(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  parameters.alloc = *allocation;
  const CUresult result = Add(node, graph, dependencies, count, parameters);
  allocation->dptr = parameters.alloc.dptr;
  return result;
}

}  // namespace tessera::soft
