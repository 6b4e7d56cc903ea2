// Executable graphs: made, changed, launched and destroyed. The shim learns which memory they work on, and what their
// memory nodes leave to the program.
#include "shim/device/in_call.h"
#include "shim/device/reserved_sms.h"
#include "shim/graph/memory_execs.h"
#include "shim/use/graph_use.h"

using namespace tessera::cuda;
using namespace tessera::shim;

namespace {

// Only memory of a pager moves.
bool Moves() {
  const Attachment* attachment = CurrentAttachment();
  return attachment && attachment->Pager();
}

// `flags` of an instantiation; null: an update.
template <typename Make>
CUresult Learned(CUgraphExec* exec, CUgraph graph, const unsigned long long* flags, Make make) {
  const InCall in_call;
  const CUresult result = make();
  if (result != CUDA_SUCCESS || !exec) return result;
  MemoryExecs::Instance().Learn(*exec, graph, flags);
  if (Moves()) LearnGraph(*exec, graph);
  return result;
}

// A graph with memory nodes can be in one executable graph (H200, 580.159.04: CUDA_ERROR_NOT_SUPPORTED).
template <typename Make>
CUresult Instantiated(CUgraphExec* exec, CUgraph graph, unsigned long long flags, Make make) {
  if (MemoryExecs::Instance().IsHeld(graph)) return CUDA_ERROR_NOT_SUPPORTED;
  if (const CUresult entered = PinReservedSms(); entered != CUDA_SUCCESS) return entered;
  return Learned(exec, graph, &flags, make);
}

}  // namespace

// Nodes are of the context in which they are made.
TESSERA_HOOK cuGraphCreate(CUgraph* graph, unsigned flags) {
  if (const CUresult entered = PinReservedSms(); entered != CUDA_SUCCESS) return entered;
  return REAL(cuGraphCreate)(graph, flags);
}

#define INSTANTIATE(name)                                                                                      \
  TESSERA_HOOK name(CUgraphExec* exec, CUgraph graph, CUgraphNode* failed, char* log, std::size_t log_bytes) { \
    return Instantiated(exec, graph, 0, [=] { return REAL(name)(exec, graph, failed, log, log_bytes); });      \
  }
INSTANTIATE(cuGraphInstantiate)
INSTANTIATE(cuGraphInstantiate_v2)

TESSERA_HOOK cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return Instantiated(exec, graph, flags, [=] { return REAL(cuGraphInstantiateWithFlags)(exec, graph, flags); });
}

#define INSTANTIATE_WITH_PARAMS(name)                                                              \
  TESSERA_HOOK name(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) { \
    const unsigned long long flags = parameters ? parameters->flags : 0;                           \
    return Instantiated(exec, graph, flags, [=] { return REAL(name)(exec, graph, parameters); });  \
  }
INSTANTIATE_WITH_PARAMS(cuGraphInstantiateWithParams)
INSTANTIATE_WITH_PARAMS(cuGraphInstantiateWithParams_ptsz)

TESSERA_HOOK cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* failed, CUgraphExecUpdateResult* why) {
  const CUresult may = MemoryExecs::Instance().MayUpdate(exec, graph);
  if (may == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) {
    if (failed) *failed = nullptr;
    if (why) *why = CU_GRAPH_EXEC_UPDATE_ERROR;
  }
  if (may != CUDA_SUCCESS) return may;
  return Learned(&exec, graph, nullptr, [=] { return REAL(cuGraphExecUpdate)(exec, graph, failed, why); });
}

TESSERA_HOOK cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* why) {
  const CUresult may = MemoryExecs::Instance().MayUpdate(exec, graph);
  if (may == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE && why)
    *why = {.result = CU_GRAPH_EXEC_UPDATE_ERROR, .errorNode = {}, .errorFromNode = {}};
  if (may != CUDA_SUCCESS) return may;
  return Learned(&exec, graph, nullptr, [=] { return REAL(cuGraphExecUpdate_v2)(exec, graph, why); });
}

TESSERA_HOOK cuGraphExecDestroy(CUgraphExec exec) {
  const InCall in_call;
  ForgetGraph(exec);  // before: another thread may be given the same handle as soon as it is free
  MemoryExecs::Instance().Forget(exec);
  return REAL(cuGraphExecDestroy)(exec);
}

TESSERA_HOOK cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_KERNEL_NODE_PARAMS_v1* kernel) {
  const CUresult result = REAL(cuGraphExecKernelNodeSetParams)(exec, node, kernel);
  if (result == CUDA_SUCCESS && Moves())
    LearnKernelNode(exec, node, {.func = kernel->func, .kernelParams = kernel->kernelParams, .extra = kernel->extra});
  return result;
}

TESSERA_HOOK cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                               const CUDA_KERNEL_NODE_PARAMS* kernel) {
  const CUresult result = REAL(cuGraphExecKernelNodeSetParams_v2)(exec, node, kernel);
  if (result == CUDA_SUCCESS && Moves()) LearnKernelNode(exec, node, *kernel);
  return result;
}

TESSERA_HOOK cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* copy,
                                            CUcontext context) {
  const CUresult result = REAL(cuGraphExecMemcpyNodeSetParams)(exec, node, copy, context);
  if (result == CUDA_SUCCESS && Moves()) LearnCopyNode(exec, node, *copy);
  return result;
}

TESSERA_HOOK cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* memset,
                                            CUcontext context) {
  const CUresult result = REAL(cuGraphExecMemsetNodeSetParams)(exec, node, memset, context);
  if (result == CUDA_SUCCESS && Moves()) LearnMemsetNode(exec, node, *memset);
  return result;
}

// Only launches that leave or free memory of graphs take a lock.
#define LAUNCH(name, per_thread)                                                                    \
  extern "C" CUresult tessera_gated_##name(CUgraphExec, CUstream);                                  \
  TESSERA_HOOK name(CUgraphExec exec, CUstream stream) {                                            \
    if (!MemoryExecs::AnyOutlives()) [[likely]]                                                     \
      return tessera_gated_##name(exec, stream);                                                    \
    MemoryExecs& execs = MemoryExecs::Instance();                                                   \
    if (const CUresult refused = execs.BeforeLaunch(exec); refused != CUDA_SUCCESS) return refused; \
    const CUresult result = tessera_gated_##name(exec, stream);                                     \
    if (result == CUDA_SUCCESS) execs.AfterLaunch(exec, NameOf(stream, per_thread));                \
    return result;                                                                                  \
  }
LAUNCH(cuGraphLaunch, false)
LAUNCH(cuGraphLaunch_ptsz, true)
