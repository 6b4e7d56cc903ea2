#include "shim/graph/memory_nodes.h"

#include <algorithm>

#include "shim/memory/paging.h"

namespace tessera::shim {

using namespace cuda;

namespace {

// A graph can end without a word: with the capture that failed, or with the graph that it is a part of. Its blocks end
// with it.
bool LivesAt(CUdeviceptr address, std::uint64_t id) {
  Paging* paging = Paging::Of(address);
  return paging && paging->Ordered().Graphs().Has(address, id);
}

}  // namespace

std::atomic<bool> MemoryNodes::any_{false};

MemoryNodes& MemoryNodes::Instance() {
  static auto* nodes = new MemoryNodes;  // outlives the program's own destructors
  return *nodes;
}

// ---- nodes are added ----

void MemoryNodes::AddAllocation(CUgraph graph, CUgraphNode node, const CUDA_MEM_ALLOC_NODE_PARAMS& parameters,
                                std::uint64_t block_bytes, std::uint64_t block_id) {
  const MutexLock lock(mutex_);
  any_ = true;
  Graph& in = LivingGraph(graph);
  in.nodes.push_back(node);
  if (std::ranges::find(in.allocations, parameters.dptr) == in.allocations.end())
    in.allocations.push_back(parameters.dptr);
  nodes_[node] = {graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, parameters};
  nodes_[node].parameters.accessDescs = nullptr;
  nodes_[node].parameters.accessDescCount = 0;
  allocations_[parameters.dptr] = {.graph = graph, .bytes = block_bytes, .id = block_id};
}

bool MemoryNodes::MayFree(CUdeviceptr address) const {
  const MutexLock lock(mutex_);
  const Allocation* allocation = AllocationAt(address);
  return allocation && !allocation->freed;
}

void MemoryNodes::AddFree(CUgraph graph, CUgraphNode node, CUdeviceptr address, const CaptureOrder& order) {
  const MutexLock lock(mutex_);
  const auto at = allocations_.find(address);
  if (at == allocations_.end()) return;
  Graph& in = LivingGraph(graph);
  in.nodes.push_back(node);
  nodes_[node] = {graph, CU_GRAPH_NODE_TYPE_MEM_FREE, {.dptr = address}};
  Allocation& allocation = at->second;
  allocation.freed = true;
  allocation.freed_inside = allocation.graph == graph;
  if (allocation.freed_inside) {
    in.spare.push_back({address, allocation.bytes, allocation.id, node, order});
  } else {
    in.freed.push_back({address, allocation.id});
  }
}

// ---- memory that is free within a graph ----

std::vector<SpareMemory> MemoryNodes::SpareOf(CUgraph graph, std::uint64_t bytes) const {
  std::vector<SpareMemory> spare;
  const MutexLock lock(mutex_);
  const auto at = graphs_.find(graph);
  if (at == graphs_.end() || !Lives(at->second)) return spare;
  std::copy_if(at->second.spare.rbegin(), at->second.spare.rend(), std::back_inserter(spare),
               [=](const SpareMemory& each) { return each.bytes >= bytes && each.bytes / 2 <= bytes; });
  return spare;
}

bool MemoryNodes::Take(CUgraph graph, const SpareMemory& spare) {
  const MutexLock lock(mutex_);
  const auto at = graphs_.find(graph);
  return at != graphs_.end() &&
         std::erase_if(at->second.spare, [&](const SpareMemory& each) { return each.address == spare.address; }) > 0;
}

void MemoryNodes::PutBack(CUgraph graph, const SpareMemory& spare) {
  const MutexLock lock(mutex_);
  if (const auto at = graphs_.find(graph); at != graphs_.end()) at->second.spare.push_back(spare);
}

void MemoryNodes::BreakOrder(CUstream stream) {
  const MutexLock lock(mutex_);
  for (auto& [handle, graph] : graphs_)
    for (SpareMemory& each : graph.spare)
      if (each.order.stream == stream) each.order = {};
}

// ---- questions ----

std::optional<MemoryNode> MemoryNodes::Find(CUgraphNode node) const {
  const MutexLock lock(mutex_);
  const auto at = nodes_.find(node);
  if (at == nodes_.end()) return std::nullopt;
  const auto graph = graphs_.find(at->second.graph);
  if (graph == graphs_.end() || !Lives(graph->second)) return std::nullopt;
  return at->second;
}

bool MemoryNodes::Has(CUgraph graph) const {
  const MutexLock lock(mutex_);
  return HasLocked(graph);
}

bool MemoryNodes::HasLocked(CUgraph graph) const {
  const auto at = graphs_.find(graph);
  if (at == graphs_.end()) return false;
  return (!at->second.nodes.empty() && Lives(at->second)) ||
         std::ranges::any_of(at->second.children,
                             [this](CUgraph child) TESSERA_REQUIRES(mutex_) { return HasLocked(child); });
}

GraphMemoryUse MemoryNodes::UseOf(CUgraph graph) const {
  GraphMemoryUse use;
  const MutexLock lock(mutex_);
  AddUse(graph, &use);
  return use;
}

void MemoryNodes::AddUse(CUgraph graph, GraphMemoryUse* use) const {
  const auto at = graphs_.find(graph);
  if (at == graphs_.end()) return;
  for (const CUdeviceptr address : at->second.allocations) {
    const Allocation* allocation = AllocationAt(address);
    if (allocation && allocation->graph == graph && !allocation->freed_inside)
      use->left.push_back({address, allocation->id});
  }
  use->freed.insert(use->freed.end(), at->second.freed.begin(), at->second.freed.end());
  for (const CUgraph child : at->second.children) AddUse(child, use);
}

// ---- graphs end ----

void MemoryNodes::Adopt(CUgraph parent, CUgraph child) {
  const MutexLock lock(mutex_);
  if (HasLocked(child)) graphs_[parent].children.push_back(child);
}

void MemoryNodes::Forget(CUgraph graph) {
  const MutexLock lock(mutex_);
  ForgetLocked(graph);
}

void MemoryNodes::ForgetLocked(CUgraph graph) {
  const auto at = graphs_.extract(graph);
  if (!at) return;
  for (const CUgraphNode node : at.mapped().nodes)
    if (const auto known = nodes_.find(node); known != nodes_.end() && known->second.graph == graph)
      nodes_.erase(known);
  for (const GraphMemory& freed : at.mapped().freed) {  // another graph may free it now
    const auto allocation = allocations_.find(freed.address);
    if (allocation != allocations_.end() && allocation->second.id == freed.id) allocation->second.freed = false;
  }
  for (const CUdeviceptr address : at.mapped().allocations) {
    const auto allocation = allocations_.find(address);
    if (allocation == allocations_.end() || allocation->second.graph != graph) continue;
    allocation->second.graph = nullptr;  // another graph may get the handle
    if (!LivesAt(address, allocation->second.id)) allocations_.erase(allocation);
  }
  for (const CUgraph child : at.mapped().children) ForgetLocked(child);
}

// The graph of this handle. What is known of one that had the handle before it is forgotten.
MemoryNodes::Graph& MemoryNodes::LivingGraph(CUgraph graph) {
  if (const auto at = graphs_.find(graph); at != graphs_.end() && !Lives(at->second)) ForgetLocked(graph);
  return graphs_[graph];
}

bool MemoryNodes::Lives(const Graph& graph) const {
  return graph.allocations.empty() ||
         std::ranges::any_of(graph.allocations, [this](CUdeviceptr address) TESSERA_REQUIRES(mutex_) {
           return AllocationAt(address) != nullptr;
         });
}

const MemoryNodes::Allocation* MemoryNodes::AllocationAt(CUdeviceptr address) const {
  const auto at = allocations_.find(address);
  return at != allocations_.end() && LivesAt(address, at->second.id) ? &at->second : nullptr;
}

}  // namespace tessera::shim
