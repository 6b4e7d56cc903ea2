// Executable graphs: made, changed and destroyed. The shim learns which memory they work on.
#include "shim/device/in_call.h"
#include "shim/use/graph_use.h"

using namespace tessera::cuda;
using namespace tessera::shim;

namespace {

// Only memory of a pager moves.
bool Moves() {
  const Attachment* attachment = CurrentAttachment();
  return attachment && attachment->Pager();
}

template <typename Make>
CUresult Learned(CUgraphExec* exec, CUgraph graph, Make make) {
  const InCall in_call;
  const CUresult result = make();
  if (result == CUDA_SUCCESS && exec && Moves()) LearnGraph(*exec, graph);
  return result;
}

}  // namespace

#define INSTANTIATE(name)                                                                                      \
  TESSERA_HOOK name(CUgraphExec* exec, CUgraph graph, CUgraphNode* failed, char* log, std::size_t log_bytes) { \
    return Learned(exec, graph, [=] { return REAL(name)(exec, graph, failed, log, log_bytes); });              \
  }
INSTANTIATE(cuGraphInstantiate)
INSTANTIATE(cuGraphInstantiate_v2)

TESSERA_HOOK cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return Learned(exec, graph, [=] { return REAL(cuGraphInstantiateWithFlags)(exec, graph, flags); });
}

#define INSTANTIATE_WITH_PARAMS(name)                                                              \
  TESSERA_HOOK name(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) { \
    return Learned(exec, graph, [=] { return REAL(name)(exec, graph, parameters); });              \
  }
INSTANTIATE_WITH_PARAMS(cuGraphInstantiateWithParams)
INSTANTIATE_WITH_PARAMS(cuGraphInstantiateWithParams_ptsz)

TESSERA_HOOK cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* failed, CUgraphExecUpdateResult* why) {
  return Learned(&exec, graph, [=] { return REAL(cuGraphExecUpdate)(exec, graph, failed, why); });
}

TESSERA_HOOK cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* why) {
  return Learned(&exec, graph, [=] { return REAL(cuGraphExecUpdate_v2)(exec, graph, why); });
}

TESSERA_HOOK cuGraphExecDestroy(CUgraphExec exec) {
  const InCall in_call;
  ForgetGraph(exec);  // before: another thread may be given the same handle as soon as it is free
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
