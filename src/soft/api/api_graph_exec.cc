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
  const ApiCall call;
  if (call.state() != CUDA_SUCCESS) return call.state();
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

bool HasAllocated(const Graph& graph) TESSERA_REQUIRES(submission_mutex) {
  for (const auto& node : graph.nodes()) {
    const auto* alloc = std::get_if<AllocWork>(&node->work);
    const auto* child = std::get_if<GraphWork>(&node->work);
    if ((alloc && alloc->memory->allocated()) || (child && HasAllocated(*child->graph))) return true;
  }
  return false;
}

// Memory that a launch allocated cannot be allocated again before it is freed, unless the graph may free it itself.
CUresult CheckAllocations(const GraphExec& exec) TESSERA_REQUIRES(submission_mutex) {
  const bool frees = (exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  return !frees && HasAllocated(*exec.graph) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
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

TESSERA_CUDA_API cuGraphExecDestroy(CUgraphExec handle) {
  return WithExec(handle, [&](const auto&) {
    GraphExecs::Get().Remove(handle);
    return CUDA_SUCCESS;
  });
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
      return info == nullptr ? CUDA_ERROR_INVALID_VALUE : Update(exec, *graph, info);
    });
  });
}

// ---- memory -------------------------------------------------------------------------------------------------------

}  // namespace tessera::soft
