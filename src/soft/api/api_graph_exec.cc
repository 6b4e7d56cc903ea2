// Graphs that can be launched: instantiation, launch, update. Memory of graphs.
#include <cstdio>

#include "soft/api/graph_api.h"
#include "soft/api/stream_variants.h"
#include "soft/exec/capture.h"
#include "soft/exec/engine.h"
#include "soft/exec/graph_exec.h"
#include "soft/exec/graph_memory.h"
#include "soft/exec/submit.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

constexpr unsigned long long kInstantiateFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

template <typename Function>
CUresult WithExec(CUgraphExec handle, Function&& function) {
  if (const CUresult state = DriverState(); state != CUDA_SUCCESS) return state;
  const auto exec = GraphExecs::Get().Find(handle);
  return exec ? function(exec) : CUDA_ERROR_INVALID_VALUE;
}

// Runs `function(stream)` with submission_mutex held, for a stream that may take a graph now: captured ones may not.
template <typename Function>
CUresult WithStreamForGraph(CUstream handle, Function&& function) {
  return WithStream(handle, [&](const auto& stream) {
    const MutexLock lock(submission_mutex);
    if (stream->legacy) {
      if (const CUresult result = CheckLegacyUse(stream->context); result != CUDA_SUCCESS) return result;
    }
    const CUresult captured = RefuseInCapture(*stream);
    return captured == CUDA_SUCCESS ? function(*stream) : captured;
  });
}

// What a launch allocated and nobody has freed cannot be allocated again, unless the graph may free it itself.
CUresult CheckAllocations(const GraphExec& exec) {
  if (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) return CUDA_SUCCESS;
  for (const auto& node : exec.graph->nodes()) {
    const auto* alloc = std::get_if<AllocWork>(&node->work);
    if (alloc && alloc->memory->allocated()) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace

// ---- instantiation ------------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuGraphInstantiateWithFlags(CUgraphExec* handle, CUgraph graph_handle, unsigned long long flags) {
  return WithContext([&](Context& context) {
    return WithGraph(graph_handle, [&](const auto& graph) {
      if (handle == nullptr || (flags & ~kInstantiateFlags)) return CUDA_ERROR_INVALID_VALUE;
      if (const CUresult result = CheckUnsafeCall(); result != CUDA_SUCCESS) return result;
      if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) {
        std::fputs("tessera soft GPU: it launches no graphs from kernels\n", stderr);
        return CUDA_ERROR_NOT_SUPPORTED;
      }
      std::shared_ptr<GraphExec> exec;
      if (const CUresult result = Instantiate(context, *graph, flags, &exec); result != CUDA_SUCCESS) return result;
      *handle = GraphExecs::Get().Add(std::move(exec));
      return CUDA_SUCCESS;
    });
  });
}

TESSERA_CUDA_API cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                                       std::size_t log_bytes) {
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && log_bytes != 0) *log = '\0';
  return cuGraphInstantiateWithFlags(exec, graph, 0);
}
TESSERA_EXPORT(cuGraphInstantiate, Alias<&cuGraphInstantiate_v2>)

TESSERA_CUDA_API cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                                              CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  parameters->hErrNode_out = nullptr;
  const CUresult result = cuGraphInstantiateWithFlags(exec, graph, parameters->flags);
  parameters->result_out = result == CUDA_SUCCESS               ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                           : result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED
                           : result == CUDA_ERROR_INVALID_VALUE ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
                                                                : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}
TESSERA_EXPORT_PTSZ(cuGraphInstantiateWithParams)

TESSERA_CUDA_API cuGraphExecDestroy(CUgraphExec handle) {
  return WithExec(handle, [&](const auto&) {
    GraphExecs::Get().Remove(handle);
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuGraphExecGetFlags(CUgraphExec handle, std::uint64_t* flags) {
  return WithExec(handle, [&](const auto& exec) { return Give(flags, exec->flags); });
}

// ---- launch -------------------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  return WithExec(handle, [&](const auto& exec) {
    return WithStreamForGraph(stream_handle, [&](Stream& stream) TESSERA_REQUIRES(submission_mutex) {
      if (const CUresult result = CheckAllocations(*exec); result != CUDA_SUCCESS) return result;
      stream.context.engine().Append(stream, *exec);
      return CUDA_SUCCESS;
    });
  });
}
TESSERA_EXPORT_PTSZ(cuGraphLaunch)

// There is nothing to upload: a launch reads the graph where it lies.
TESSERA_CUDA_API cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
  return WithExec(handle,
                  [&](const auto&) { return WithStreamForGraph(stream_handle, [](Stream&) { return CUDA_SUCCESS; }); });
}
TESSERA_EXPORT_PTSZ(cuGraphUpload)

// ---- update -------------------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuGraphExecUpdate_v2(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo* info) {
  return WithExec(handle, [&](const auto& exec) {
    return WithGraph(graph_handle, [&](const auto& graph) {
      return info == nullptr ? CUDA_ERROR_INVALID_VALUE : Update(*exec, *graph, info);
    });
  });
}

TESSERA_CUDA_API cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node,
                                   CUgraphExecUpdateResult* reason) {
  CUgraphExecUpdateResultInfo info = {};
  const CUresult result = cuGraphExecUpdate_v2(exec, graph, &info);
  if (error_node != nullptr) *error_node = info.errorNode;
  if (reason != nullptr) *reason = info.result;
  return result;
}

// ---- memory -------------------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void* value) {
  return WithDevice(ordinal, [&](const Device& device) {
    const GraphMemoryUse use = GraphMemoryOf(device);
    auto* const bytes = static_cast<std::uint64_t*>(value);
    switch (attribute) {
      case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        return Give(bytes, use.used);
      case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        return Give(bytes, use.used_high);
      case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        return Give(bytes, use.reserved);
      case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        return Give(bytes, use.reserved_high);
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

// Only high water marks can be set, and only to zero.
TESSERA_CUDA_API cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void* value) {
  return WithDevice(ordinal, [&](const Device& device) {
    const bool high = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    if (!high || value == nullptr || *static_cast<std::uint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
    ResetGraphMemoryHigh(device, attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH);
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuGraphConditionalHandleCreate(CUgraphConditionalHandle*, CUgraph, CUcontext, unsigned, unsigned) {
  std::fputs("tessera soft GPU: it has no conditional graph nodes\n", stderr);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace tessera::soft
