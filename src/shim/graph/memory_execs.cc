#include "shim/graph/memory_execs.h"

#include <algorithm>

#include "shim/memory/paging.h"

namespace tessera::shim {

using namespace cuda;

std::atomic<int> MemoryExecs::outlives_{0};

MemoryExecs& MemoryExecs::Instance() {
  static auto* execs = new MemoryExecs;  // outlives the program's own destructors
  return *execs;
}

bool MemoryExecs::IsHeld(CUgraph graph) const {
  if (!MemoryNodes::Any() || !MemoryNodes::Instance().Has(graph)) return false;
  const MutexLock lock(mutex_);
  return std::ranges::any_of(execs_, [=](const auto& each) { return each.second.graph == graph; });
}

CUresult MemoryExecs::MayUpdate(CUgraphExec exec, CUgraph graph) const {
  if (!MemoryNodes::Any() || !MemoryNodes::Instance().Has(graph)) return CUDA_SUCCESS;
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find_if(execs_, [=](const auto& each) { return each.second.graph == graph; });
  if (found == execs_.end()) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  return found->first == exec ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

void MemoryExecs::Learn(CUgraphExec exec, CUgraph graph, const unsigned long long* flags) {
  if (!MemoryNodes::Any()) return;
  const bool has = MemoryNodes::Instance().Has(graph);
  const GraphMemoryUse use = MemoryNodes::Instance().UseOf(graph);
  const MutexLock lock(mutex_);
  auto at = execs_.find(exec);
  if (!has && (flags || at == execs_.end())) return;
  if (at == execs_.end()) at = execs_.emplace(exec, Exec{}).first;
  outlives_ += use.Outlives() - at->second.use.Outlives();
  at->second.graph = has ? graph : nullptr;
  if (flags) at->second.frees_on_launch = (*flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  at->second.use = use;
}

void MemoryExecs::Forget(CUgraphExec exec) {
  const MutexLock lock(mutex_);
  if (const auto gone = execs_.extract(exec)) outlives_ -= gone.mapped().use.Outlives();
}

void MemoryExecs::ForgetGraph(CUgraph graph) {
  const MutexLock lock(mutex_);
  for (auto& [exec, known] : execs_)
    if (known.graph == graph) known.graph = nullptr;
}

GraphMemoryUse MemoryExecs::UseOf(CUgraphExec exec, bool* frees_on_launch) const {
  const MutexLock lock(mutex_);
  const auto at = execs_.find(exec);
  if (at == execs_.end()) return {};
  *frees_on_launch = at->second.frees_on_launch;
  return at->second.use;
}

CUresult MemoryExecs::BeforeLaunch(CUgraphExec exec) const {
  bool frees_on_launch = false;
  const GraphMemoryUse use = UseOf(exec, &frees_on_launch);
  const bool left = std::ranges::any_of(use.left, [](CUdeviceptr address) {
    Paging* paging = Paging::Of(address);
    return paging && paging->Ordered().Graphs().Left(address);
  });
  return left && !frees_on_launch ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

void MemoryExecs::AfterLaunch(CUgraphExec exec, const StreamName& stream) {
  bool frees_on_launch = false;
  const GraphMemoryUse use = UseOf(exec, &frees_on_launch);
  for (const CUdeviceptr address : use.left)
    if (Paging* paging = Paging::Of(address)) paging->Ordered().Graphs().Leave(address);
  for (const CUdeviceptr address : use.freed)
    if (Paging* paging = Paging::Of(address)) paging->Ordered().Free(address, stream);
}

void ForgetGraphMemory(CUgraph graph) {
  if (!graph || !MemoryNodes::Any()) return;
  MemoryNodes::Instance().Forget(graph);
  MemoryExecs::Instance().ForgetGraph(graph);
}

}  // namespace tessera::shim
