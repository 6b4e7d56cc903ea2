#include "soft/exec/graph.h"

#include <algorithm>
#include <atomic>

namespace tessera::soft {

using namespace cuda;  // NOLINT: the driver's own names

namespace {

std::uint64_t NextId() {
  static std::atomic<std::uint64_t> next = 1;
  return next++;
}

const Graph* ChildOf(const Node& node) {
  const auto* child = std::get_if<GraphWork>(&node.work);
  return child ? child->graph.get() : nullptr;
}

template <typename Function>
void ForEachNode(const Graph& graph, const Function& function) {
  for (const auto& node : graph.nodes()) {
    function(node);
    if (const Graph* child = ChildOf(*node)) ForEachNode(*child, function);
  }
}

// The types of graph nodes in the order of the alternatives of Work.
constexpr CUgraphNodeType kNodeTypes[] = {
    CU_GRAPH_NODE_TYPE_EMPTY,      CU_GRAPH_NODE_TYPE_KERNEL,       CU_GRAPH_NODE_TYPE_MEMCPY,
    CU_GRAPH_NODE_TYPE_MEMSET,     CU_GRAPH_NODE_TYPE_HOST,         CU_GRAPH_NODE_TYPE_EVENT_RECORD,
    CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, CU_GRAPH_NODE_TYPE_GRAPH,
    CU_GRAPH_NODE_TYPE_MEM_ALLOC,  CU_GRAPH_NODE_TYPE_MEM_FREE,
};
static_assert(std::size(kNodeTypes) == std::variant_size_v<Work>);

}  // namespace

CUgraphNodeType Node::type() const { return kNodeTypes[work.index()]; }

Node* Graph::Add(Work work, std::span<Node* const> dependencies) {
  auto node = std::make_shared<Node>();
  node->graph = this;
  node->id = node->origin = NextId();
  node->work = std::move(work);
  for (Node* dependency : dependencies) Connect(*dependency, *node);
  nodes_.push_back(std::move(node));
  return nodes_.back().get();
}

void Graph::Remove(Node* node) {
  while (!node->dependencies.empty()) Disconnect(*node->dependencies.back(), *node);
  while (!node->dependents.empty()) Disconnect(*node, *node->dependents.back());
  std::erase_if(nodes_, [&](const auto& other) { return other.get() == node; });
}

bool Graph::Connected(const Node& from, const Node& to) {
  return std::ranges::find(to.dependencies, &from) != to.dependencies.end();
}

void Graph::Connect(Node& from, Node& to) {
  to.dependencies.push_back(&from);
  from.dependents.push_back(&to);
}

void Graph::Disconnect(Node& from, Node& to) {
  std::erase(to.dependencies, &from);
  std::erase(from.dependents, &to);
}

std::optional<std::vector<Node*>> Graph::Order() const {
  std::map<const Node*, std::size_t> missing;  // dependencies that are not in `order` yet
  std::vector<Node*> order;
  for (const auto& node : nodes_) {
    if (const Graph* child = ChildOf(*node); child && !child->Order()) return std::nullopt;
    missing[node.get()] = node->dependencies.size();
    if (node->dependencies.empty()) order.push_back(node.get());
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (Node* dependent : order[i]->dependents) {
      if (--missing[dependent] == 0) order.push_back(dependent);
    }
  }
  if (order.size() != nodes_.size()) return std::nullopt;
  return order;
}

std::shared_ptr<Graph> Graph::Clone(NodeCopies* copies) const {
  auto clone = std::make_shared<Graph>();
  clone->user_objects = user_objects;
  std::map<const Node*, Node*> pairs;
  for (const auto& node : nodes_) {
    Node* copy = clone->Add(node->work, {});
    if (const Graph* child = ChildOf(*node)) copy->work = GraphWork{child->Clone(copies)};
    copy->origin = node->id;
    copy->enabled = node->enabled;
    pairs[node.get()] = copy;
    if (copies) (*copies)[node->id] = copy;
  }
  for (const auto& node : nodes_) {
    for (const Node* dependency : node->dependencies) Connect(*pairs[dependency], *pairs[node.get()]);
  }
  return clone;
}

bool Graph::HasMemoryNodes() const {
  bool found = false;
  ForEachNode(*this, [&](const auto& node) {
    found |= std::holds_alternative<AllocWork>(node->work) || std::holds_alternative<FreeWork>(node->work);
  });
  return found;
}

void PublishNodes(const Graph& graph) {
  ForEachNode(graph, [](const auto& node) {
    Nodes::Get().Add(node);
    if (const auto* child = std::get_if<GraphWork>(&node->work)) Graphs::Get().Add(child->graph);
  });
}

void RetractNodes(const Graph& graph) {
  ForEachNode(graph, [](const auto& node) {
    Nodes::Get().Remove(Nodes::Of(*node));
    if (const auto* child = std::get_if<GraphWork>(&node->work)) Graphs::Get().Remove(Graphs::Of(*child->graph));
  });
}

}  // namespace tessera::soft
