#include "shim/use/graph_use.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "base/fork_mutex.h"
#include "shim/gate/capture.h"
#include "shim/load/real.h"
#include "shim/memory/paging.h"
#include "shim/use/operands.h"

namespace tessera::shim {

using namespace cuda;

namespace {

// A graph in a graph in a graph: deeper ones are not looked at.
constexpr int kDeepest = 8;

using Addresses = std::vector<CUdeviceptr>;  // sorted, each once
struct Uses {
  std::unordered_map<CUgraphNode, Addresses> nodes;
  bool unnamed = false;  // a node's use is not known
};

ForkMutex graph_use_mutex;

std::unordered_map<CUgraphExec, Uses>& Graphs() TESSERA_REQUIRES(graph_use_mutex) {
  static auto* graphs = new std::unordered_map<CUgraphExec, Uses>;  // outlives the program's own destructors
  return *graphs;
}

void Add(void* addresses, CUdeviceptr word) {
  if (Paging::Of(word)) static_cast<Addresses*>(addresses)->push_back(word);
}

Addresses Sorted(Addresses addresses) {
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  return addresses;
}

Addresses Of(const CUDA_KERNEL_NODE_PARAMS& kernel) {
  Addresses addresses;
  const auto function =
      kernel.func ? reinterpret_cast<std::uint64_t>(kernel.func) : reinterpret_cast<std::uint64_t>(kernel.kern);
  ForEachWord(function, kernel.kernelParams, kernel.extra, {&addresses, Add});
  return Sorted(std::move(addresses));
}

Addresses Of(const CUDA_MEMCPY3D& copy) {
  Addresses addresses;
  Add(&addresses, copy.srcDevice);
  Add(&addresses, copy.dstDevice);
  return Sorted(std::move(addresses));
}

Addresses Of(const CUDA_MEMSET_NODE_PARAMS& memset) {
  Addresses addresses;
  Add(&addresses, memset.dst);
  return addresses;
}

void Collect(CUgraph graph, int depth, Uses& uses);

// The driver's answers point into the node, which lives as long as its graph does.
Addresses Of(CUgraphNode node, int depth, Uses& uses) {
  CUgraphNodeType type;
  if (REAL_AS(cuGraphNodeGetType, CUgraphNode, CUgraphNodeType*)(node, &type) != CUDA_SUCCESS) return {};
  if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
    CUDA_KERNEL_NODE_PARAMS kernel{};
    const auto ask = REAL_AS(cuGraphKernelNodeGetParams_v2, CUgraphNode, CUDA_KERNEL_NODE_PARAMS*);
    Addresses addresses;
    if (ask(node, &kernel) == CUDA_SUCCESS) addresses = Of(kernel);
    uses.unnamed |= addresses.empty();
    return addresses;
  } else if (type == CU_GRAPH_NODE_TYPE_MEMCPY) {
    CUDA_MEMCPY3D copy{};
    if (REAL_AS(cuGraphMemcpyNodeGetParams, CUgraphNode, CUDA_MEMCPY3D*)(node, &copy) == CUDA_SUCCESS) return Of(copy);
  } else if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
    CUDA_MEMSET_NODE_PARAMS memset{};
    const auto ask = REAL_AS(cuGraphMemsetNodeGetParams, CUgraphNode, CUDA_MEMSET_NODE_PARAMS*);
    if (ask(node, &memset) == CUDA_SUCCESS) return Of(memset);
  } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
    CUgraph child = nullptr;
    if (REAL_AS(cuGraphChildGraphNodeGetGraph, CUgraphNode, CUgraph*)(node, &child) == CUDA_SUCCESS)
      Collect(child, depth + 1, uses);
  }
  return {};
}

void Collect(CUgraph graph, int depth, Uses& uses) {
  const auto list = REAL_AS(cuGraphGetNodes, CUgraph, CUgraphNode*, std::size_t*);
  std::size_t count = 0;
  if (depth > kDeepest || list(graph, nullptr, &count) != CUDA_SUCCESS) {
    uses.unnamed = true;
    return;
  }
  std::vector<CUgraphNode> all(count);
  if (count == 0 || list(graph, all.data(), &count) != CUDA_SUCCESS) return;
  for (std::size_t i = 0; i < std::min(count, all.size()); ++i) {
    Addresses addresses = Of(all[i], depth, uses);
    if (!addresses.empty()) uses.nodes[all[i]] = std::move(addresses);
  }
}

void Learn(CUgraphExec exec, CUgraphNode node, Addresses addresses) {
  const MutexLock lock(graph_use_mutex);
  Graphs()[exec].nodes[node] = std::move(addresses);
}

}  // namespace

void LearnGraph(CUgraphExec exec, CUgraph graph) {
  Uses uses;
  if (AnyCapture()) {
    uses.unnamed = true;
  } else {
    Collect(graph, 0, uses);
  }
  const MutexLock lock(graph_use_mutex);
  Graphs()[exec] = std::move(uses);
}

void LearnKernelNode(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS& parameters) {
  Addresses addresses;
  if (!AnyCapture()) addresses = Of(parameters);
  if (!addresses.empty()) return Learn(exec, node, std::move(addresses));
  const MutexLock lock(graph_use_mutex);
  Graphs()[exec].unnamed = true;
}

void LearnCopyNode(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D& copy) { Learn(exec, node, Of(copy)); }

void LearnMemsetNode(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS& memset) {
  Learn(exec, node, Of(memset));
}

void ForgetGraph(CUgraphExec exec) {
  const MutexLock lock(graph_use_mutex);
  Graphs().erase(exec);
}

bool TouchGraph(CUgraphExec exec, pager::Heap& heap, Nanos now) {
  const MutexLock lock(graph_use_mutex);
  const auto at = Graphs().find(exec);
  if (at == Graphs().end()) return false;
  for (const auto& [node, addresses] : at->second.nodes)
    for (const CUdeviceptr address : addresses) heap.Heat().Touch(address, now);
  return !at->second.unnamed;
}

}  // namespace tessera::shim
