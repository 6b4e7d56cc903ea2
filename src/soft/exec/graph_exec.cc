#include "soft/exec/graph_exec.h"

#include <algorithm>

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

// For each node the positions of the nodes that it depends on.
std::vector<std::vector<std::size_t>> Edges(const Graph& graph) {
  std::map<const Node*, std::size_t> positions;
  for (const auto& node : graph.nodes()) positions.emplace(node.get(), positions.size());
  std::vector<std::vector<std::size_t>> edges;
  for (const auto& node : graph.nodes()) {
    auto& of_node = edges.emplace_back();
    for (const Node* dependency : node->dependencies) of_node.push_back(positions[dependency]);
    std::ranges::sort(of_node);
  }
  return edges;
}

// Why `to` cannot take the parameters of `from`; `error_node` gets the node of `from` that differs.
CUgraphExecUpdateResult Compare(const Graph& to, const Graph& from, const Node** error_node) {
  if (to.nodes().size() != from.nodes().size()) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  const auto edges_to = Edges(to);
  const auto edges_from = Edges(from);
  for (std::size_t i = 0; i < from.nodes().size(); ++i) {
    const Node& a = *to.nodes()[i];
    const Node& b = *from.nodes()[i];
    *error_node = &b;
    if (edges_to[i] != edges_from[i]) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (a.type() != b.type()) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (const auto* child = std::get_if<GraphWork>(&a.work)) {
      const auto result = Compare(*child->graph, *std::get<GraphWork>(b.work).graph, error_node);
      if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return result;
    }
  }
  *error_node = nullptr;
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

void Assign(const Graph& to, const Graph& from) {
  for (std::size_t i = 0; i < from.nodes().size(); ++i) {
    Node& node = *to.nodes()[i];
    const Node& source = *from.nodes()[i];
    if (const auto* child = std::get_if<GraphWork>(&node.work)) {
      const Graph& child_source = *std::get<GraphWork>(source.work).graph;
      Assign(*child->graph, child_source);
      child->graph->user_objects = child_source.user_objects;
    } else {
      node.work = source.work;
    }
  }
}

}  // namespace

Node* GraphExec::Find(const Node& node) const {
  const auto found = copies.find(node.id);
  return found == copies.end() ? nullptr : found->second;
}

CUresult Instantiate(Context& context, Graph& graph, unsigned long long flags, std::shared_ptr<GraphExec>* exec) {
  if (!graph.Order()) return CUDA_ERROR_INVALID_VALUE;
  const bool memory = graph.HasMemoryNodes();
  if (memory && !graph.owner_of_memory.expired()) return CUDA_ERROR_NOT_SUPPORTED;
  NodeCopies copies;
  auto clone = graph.Clone(&copies);
  *exec = std::make_shared<GraphExec>(context, flags, std::move(clone), std::move(copies));
  if (memory) graph.owner_of_memory = *exec;
  return CUDA_SUCCESS;
}

CUresult Update(const std::shared_ptr<GraphExec>& updated, Graph& graph, CUgraphExecUpdateResultInfo* info) {
  GraphExec& exec = *updated;
  const Node* error_node = nullptr;
  CUgraphExecUpdateResult result = Compare(*exec.graph, graph, &error_node);
  // As driver 580 answers (docs/hardware-log.md, 2026-11-23).
  if (graph.HasMemoryNodes()) {
    const auto owner = graph.owner_of_memory.lock();
    if (owner && owner != updated) return CUDA_ERROR_NOT_SUPPORTED;
    if (!owner && result == CU_GRAPH_EXEC_UPDATE_SUCCESS) result = CU_GRAPH_EXEC_UPDATE_ERROR;
  }
  *info = {.result = result, .errorNode = error_node ? Nodes::Of(*error_node) : nullptr, .errorFromNode = nullptr};
  if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  Assign(*exec.graph, graph);
  exec.graph->user_objects = graph.user_objects;
  return CUDA_SUCCESS;
}

}  // namespace tessera::soft
