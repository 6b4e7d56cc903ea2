#include "shim/graph/memory_execs.h"

#include <algorithm>

#include "shim/memory/paging.h"

namespace tessera::shim {

using namespace cuda;

namespace {

bool Has(const GraphMemory& memory) {
  Paging* paging = Paging::Of(memory.address);
  return paging && paging->Ordered().Graphs().Has(memory.address, memory.id);
}

// Whether a launch has left it to the program, which has not freed it.
bool IsLeft(const GraphMemory& memory) {
  return Has(memory) && Paging::Of(memory.address)->Ordered().Graphs().Left(memory.address);
}

}  // namespace

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
  const bool left = std::ranges::any_of(use.left, IsLeft);
  return left && !frees_on_launch ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

void MemoryExecs::AfterLaunch(CUgraphExec exec, const StreamName& stream) {
  bool frees_on_launch = false;
  const GraphMemoryUse use = UseOf(exec, &frees_on_launch);
  for (const GraphMemory& each : use.left)
    if (Has(each)) Paging::Of(each.address)->Ordered().Graphs().Leave(each.address);
  for (const GraphMemory& each : use.freed)
    if (IsLeft(each)) Paging::Of(each.address)->Ordered().Free(each.address, stream);
}

void ForgetGraphMemory(CUgraph graph) {
  if (!graph || !MemoryNodes::Any()) return;
  MemoryNodes::Instance().Forget(graph);
  MemoryExecs::Instance().ForgetGraph(graph);
}

}  // namespace tessera::shim
