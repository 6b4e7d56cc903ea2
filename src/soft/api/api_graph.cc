// Graphs: life, edges, and questions about both.
#include <algorithm>

#include "soft/api/graph_api.h"
#include "soft/exec/capture.h"
#include "soft/exec/graph_memory.h"

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

struct Edge {
  Node* from;
  Node* to;
};

std::vector<Edge> EdgesOf(const Graph& graph) {
  std::vector<Edge> edges;
  for (const auto& node : graph.nodes()) {
    for (Node* dependency : node->dependencies) edges.push_back({dependency, node.get()});
  }
  return edges;
}

// Answers a list as the API does: without an array the number there is; with one as many as it has room for, nulls
// behind them, and the number written.
template <typename Item, typename Write>
CUresult GiveList(const std::vector<Item>& items, bool has_array, std::size_t* count, const Write& write) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (has_array) {
    for (std::size_t i = 0; i < *count; ++i) write(i, i < items.size() ? &items[i] : nullptr);
    *count = std::min(*count, items.size());
  } else {
    *count = items.size();
  }
  return CUDA_SUCCESS;
}

CUresult GiveNodes(const std::vector<Node*>& nodes, CUgraphNode* handles, CUgraphEdgeData* data, std::size_t* count) {
  return GiveList(nodes, handles != nullptr, count, [&](std::size_t i, Node* const* node) {
    handles[i] = node ? Nodes::Of(**node) : nullptr;
    if (data != nullptr) data[i] = {};
  });
}

// Finds the nodes of `count` edges and runs `change(from, to)` for each; nothing changes unless all pass `allowed`.
template <typename Allowed, typename Change>
CUresult ChangeEdges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, std::size_t count,
                     const Allowed& allowed, const Change& change) {
  return WithGraph(handle, [&](const auto& graph) {
    std::vector<Edge> edges;
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<Node*> first, second;
      if (FindNodes(*graph, from + i, 1, &first) != CUDA_SUCCESS ||
          FindNodes(*graph, to + i, 1, &second) != CUDA_SUCCESS || !allowed(*first[0], *second[0])) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      edges.push_back({first[0], second[0]});
    }
    for (const Edge& edge : edges) change(*edge.from, *edge.to);
    return CUDA_SUCCESS;
  });
}

}  // namespace

// ---- life ---------------------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuGraphCreate(CUgraph* handle, unsigned flags) {
  const ApiCall call;
  if (call.state() != CUDA_SUCCESS) return call.state();
  if (handle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *handle = Graphs::Get().Add(std::make_shared<Graph>());
  return CUDA_SUCCESS;
}

TESSERA_CUDA_API cuGraphDestroy(CUgraph handle) {
  return WithGraph(handle, [&](const auto& graph) {
    RetractNodes(*graph);
    Graphs::Get().Remove(handle);
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuGraphClone(CUgraph* clone_handle, CUgraph handle) {
  return WithGraph(handle, [&](const auto& graph) {
    if (clone_handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (graph->HasMemoryNodes()) return CUDA_ERROR_NOT_SUPPORTED;
    const auto clone = graph->Clone(nullptr);
    PublishNodes(*clone);
    *clone_handle = Graphs::Get().Add(clone);
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuGraphDestroyNode(CUgraphNode handle) {
  return WithNode(handle, [&](const auto& node) {
    // The addresses of memory nodes are in the parameters of others.
    if (node->graph->HasMemoryNodes()) return CUDA_ERROR_NOT_SUPPORTED;
    if (const auto* child = std::get_if<GraphWork>(&node->work)) {
      RetractNodes(*child->graph);
      Graphs::Get().Remove(Graphs::Of(*child->graph));
    }
    Nodes::Get().Remove(handle);
    node->graph->Remove(node.get());
    return CUDA_SUCCESS;
  });
}

// ---- questions ----------------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuGraphNodeFindInClone(CUgraphNode* found, CUgraphNode original_handle, CUgraph clone_handle) {
  return WithNode(original_handle, [&](const auto& original) {
    return WithGraph(clone_handle, [&](const auto& clone) {
      for (const auto& node : clone->nodes()) {
        if (node->origin == original->id && node != original) return Give(found, Nodes::Of(*node));
      }
      return CUDA_ERROR_INVALID_VALUE;
    });
  });
}

TESSERA_CUDA_API cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  return WithNode(handle, [&](const auto& node) { return Give(type, node->type()); });
}

TESSERA_CUDA_API cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, std::size_t* count) {
  return WithGraph(handle, [&](const auto& graph) {
    std::vector<Node*> all;
    for (const auto& node : graph->nodes()) all.push_back(node.get());
    return GiveNodes(all, nodes, nullptr, count);
  });
}

TESSERA_CUDA_API cuGraphGetRootNodes(CUgraph handle, CUgraphNode* nodes, std::size_t* count) {
  return WithGraph(handle, [&](const auto& graph) {
    std::vector<Node*> roots;
    for (const auto& node : graph->nodes()) {
      if (node->dependencies.empty()) roots.push_back(node.get());
    }
    return GiveNodes(roots, nodes, nullptr, count);
  });
}

TESSERA_CUDA_API cuGraphGetEdges_v2(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                                    std::size_t* count) {
  return WithGraph(handle, [&](const auto& graph) {
    if ((from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    return GiveList(EdgesOf(*graph), from != nullptr, count, [&](std::size_t i, const Edge* edge) {
      from[i] = edge ? Nodes::Of(*edge->from) : nullptr;
      to[i] = edge ? Nodes::Of(*edge->to) : nullptr;
      if (data != nullptr) data[i] = {};
    });
  });
}

TESSERA_CUDA_API cuGraphGetEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
  return cuGraphGetEdges_v2(handle, from, to, nullptr, count);
}

TESSERA_CUDA_API cuGraphNodeGetDependencies_v2(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* data,
                                               std::size_t* count) {
  return WithNode(handle, [&](const auto& node) { return GiveNodes(node->dependencies, nodes, data, count); });
}

TESSERA_CUDA_API cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode* nodes, std::size_t* count) {
  return cuGraphNodeGetDependencies_v2(handle, nodes, nullptr, count);
}

TESSERA_CUDA_API cuGraphNodeGetDependentNodes_v2(CUgraphNode handle, CUgraphNode* nodes, CUgraphEdgeData* data,
                                                 std::size_t* count) {
  return WithNode(handle, [&](const auto& node) { return GiveNodes(node->dependents, nodes, data, count); });
}

TESSERA_CUDA_API cuGraphNodeGetDependentNodes(CUgraphNode handle, CUgraphNode* nodes, std::size_t* count) {
  return cuGraphNodeGetDependentNodes_v2(handle, nodes, nullptr, count);
}

// ---- memory of graphs ---------------------------------------------------------------------------------------------

// The highest values so far are not kept: they are the present ones.
TESSERA_CUDA_API cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void* value) {
  if (value == nullptr || attribute < CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT ||
      attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
    return CUDA_ERROR_INVALID_VALUE;
  return WithDevice(ordinal, [&](const Device& device) {
    *static_cast<std::uint64_t*>(value) = GraphMemoryOn(device);
    return CUDA_SUCCESS;
  });
}

TESSERA_CUDA_API cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void* value) {
  const bool high = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
  if (value == nullptr || !high || *static_cast<std::uint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
  return WithDevice(ordinal, [](const Device&) { return CUDA_SUCCESS; });
}

// A graph's memory goes with the graph: nothing is kept.
TESSERA_CUDA_API cuDeviceGraphMemTrim(CUdevice ordinal) {
  return WithDevice(ordinal, [](const Device&) { return CUDA_SUCCESS; });
}

// ---- edges --------------------------------------------------------------------------------------------------------

TESSERA_CUDA_API cuGraphAddDependencies_v2(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                                           const CUgraphEdgeData*, std::size_t count) {
  const auto allowed = [](const Node& a, const Node& b) { return &a != &b && !Graph::Connected(a, b); };
  return ChangeEdges(handle, from, to, count, allowed, Graph::Connect);
}

TESSERA_CUDA_API cuGraphAddDependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                                        std::size_t count) {
  return cuGraphAddDependencies_v2(handle, from, to, nullptr, count);
}

TESSERA_CUDA_API cuGraphRemoveDependencies_v2(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                                              const CUgraphEdgeData*, std::size_t count) {
  const auto graph = Graphs::Get().Find(handle);
  if (graph && graph->HasMemoryNodes()) return CUDA_ERROR_NOT_SUPPORTED;
  return ChangeEdges(handle, from, to, count, Graph::Connected, Graph::Disconnect);
}

TESSERA_CUDA_API cuGraphRemoveDependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                                           std::size_t count) {
  return cuGraphRemoveDependencies_v2(handle, from, to, nullptr, count);
}

}  // namespace tessera::soft
