#include "soft/api/graph_api.h"

#include <algorithm>
#include <cstdio>

#include "soft/exec/event.h"
#include "soft/exec/graph_memory.h"
#include "soft/exec/launch.h"
#include "soft/exec/memory_wait.h"
#include "soft/module/library.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

CUresult KernelOf(Context& context, const CUDA_KERNEL_NODE_PARAMS& parameters, Work* work) {
  KernelWork kernel;
  const CUfunction function =
      parameters.func != nullptr ? parameters.func : reinterpret_cast<CUfunction>(parameters.kern);
  const CUresult result = ResolveLaunch(context,
                                        {.function = function,
                                         .grid = {parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ},
                                         .block = {parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ},
                                         .dynamic_shared_bytes = parameters.sharedMemBytes,
                                         .parameters = parameters.kernelParams,
                                         .extra = parameters.extra},
                                        &kernel);
  kernel.multiprocessors = CurrentMultiprocessors();
  *work = std::move(kernel);
  return result;
}

CUresult CopyOf(const CUDA_MEMCPY3D& shape, Work* work) {
  CopyWork copy = {};
  const CUresult result = ResolveCopy(shape, &copy.copy);
  if (result == CUDA_SUCCESS && copy.copy.bytes() == 0) return CUDA_ERROR_INVALID_VALUE;
  *work = std::move(copy);
  return result;
}

CUresult MemsetOf(const CUDA_MEMSET_NODE_PARAMS_v2& parameters, Work* work) {
  const Memset memset = {.address = parameters.dst,
                         .pitch = parameters.pitch,
                         .value = parameters.value,
                         .element_bytes = parameters.elementSize,
                         .width = parameters.width,
                         .height = parameters.height};
  *work = MemsetWork{memset};
  return memset.width == 0 || memset.height == 0 ? CUDA_ERROR_INVALID_VALUE : CheckMemset(memset);
}

template <typename EventWork>
CUresult EventOf(CUevent handle, Work* work) {
  auto event = Events::Get().Find(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  *work = EventWork{std::move(event)};
  return CUDA_SUCCESS;
}

CUresult ChildOf(const CUDA_CHILD_GRAPH_NODE_PARAMS& parameters, Work* work) {
  const auto graph = Graphs::Get().Find(parameters.graph);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  if (parameters.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE) {
    *work = GraphWork{graph};
    return CUDA_SUCCESS;
  }
  if (graph->HasMemoryNodes()) return CUDA_ERROR_NOT_SUPPORTED;
  *work = GraphWork{graph->Clone(nullptr)};
  return CUDA_SUCCESS;
}

CUresult AllocationOf(Context& context, CUDA_MEM_ALLOC_NODE_PARAMS& parameters, Work* work) {
  AllocWork alloc;
  if (parameters.bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = MakeGraphMemory(context, &parameters, &alloc.memory);
  alloc.parameters = parameters;
  alloc.parameters.accessDescs = nullptr;
  alloc.parameters.accessDescCount = 0;
  *work = std::move(alloc);
  return result;
}

CUresult FreeOf(CUdeviceptr address, Work* work) {
  FreeWork free = {FindGraphMemory(address)};
  if (!free.memory || !free.memory->TakeFreeNode()) return CUDA_ERROR_INVALID_VALUE;
  *work = std::move(free);
  return CUDA_SUCCESS;
}

// Fills the member of the node parameters that belongs to the kind of work, for those kinds that can be asked for.
struct ParametersFiller {
  Node& node;
  CUgraphNodeParams& out;

  template <typename Other>
  void operator()(const Other&) {}
  void operator()(const KernelWork& work) {
    node.parameter_pointers.clear();
    for (const ptx::Parameter& parameter : work.function->kernel.parameters) {
      node.parameter_pointers.push_back(const_cast<std::byte*>(work.parameters.data()) + parameter.offset);
    }
    out.kernel = {.func = Functions::Of(*work.function),
                  .gridDimX = work.grid.x,
                  .gridDimY = work.grid.y,
                  .gridDimZ = work.grid.z,
                  .blockDimX = work.block.x,
                  .blockDimY = work.block.y,
                  .blockDimZ = work.block.z,
                  .sharedMemBytes = work.dynamic_shared_bytes,
                  .kernelParams = node.parameter_pointers.empty() ? nullptr : node.parameter_pointers.data(),
                  .extra = nullptr,
                  .kern = nullptr,
                  .ctx = work.function->module.context().handle()};
  }
  void operator()(const MemsetWork& work) {
    const Memset& memset = work.memset;
    out.memset = {memset.address, memset.pitch, memset.value, memset.element_bytes, memset.width, memset.height, {}};
  }
  void operator()(const GraphWork& work) { out.graph.graph = Graphs::Of(*work.graph); }
  void operator()(const AllocWork& work) { out.alloc = work.parameters; }
  void operator()(const FreeWork& work) { out.free.dptr = work.memory->address(); }
};

}  // namespace

CUresult FindNodes(const Graph& graph, const CUgraphNode* handles, std::size_t count, std::vector<Node*>* nodes) {
  if (handles == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    const auto node = Nodes::Get().Find(handles[i]);
    if (!node || node->graph != &graph || std::ranges::find(*nodes, node.get()) != nodes->end()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    nodes->push_back(node.get());
  }
  return CUDA_SUCCESS;
}

CUresult WorkOf(Context& context, CUgraphNodeParams& parameters, Work* work) {
  switch (parameters.type) {
    case CU_GRAPH_NODE_TYPE_EMPTY:
      *work = EmptyWork{};
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return KernelOf(context, parameters.kernel, work);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return CopyOf(parameters.memcpy.copyParams, work);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return MemsetOf(parameters.memset, work);
    case CU_GRAPH_NODE_TYPE_HOST:
      *work = HostWork{parameters.host.fn, parameters.host.userData};
      return parameters.host.fn == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return EventOf<EventRecordWork>(parameters.eventRecord.event, work);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return EventOf<EventWaitWork>(parameters.eventWait.event, work);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return ChildOf(parameters.graph, work);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return AllocationOf(context, parameters.alloc, work);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return FreeOf(parameters.free.dptr, work);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      std::fputs("tessera soft GPU: it has no conditional graph nodes\n", stderr);
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      std::fputs("tessera soft GPU: it has no memory operations as graph nodes, unless they were captured\n", stderr);
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      std::fputs("tessera soft GPU: it has no external semaphores\n", stderr);
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

void ParametersOf(Node& node, CUgraphNodeParams* parameters) {
  *parameters = {};
  parameters->type = node.type();
  std::visit(ParametersFiller{node, *parameters}, node.work);
}

}  // namespace tessera::soft
