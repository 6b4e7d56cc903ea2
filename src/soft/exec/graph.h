// Graphs of work: nodes and what each depends on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cuda/cuda_abi.h"
#include "soft/exec/user_object.h"
#include "soft/exec/work.h"
#include "soft/shared/handles.h"

namespace tessera::soft {

struct GraphExec;

struct Node {
  Graph* graph = nullptr;
  std::uint64_t id = 0;      // unique in the process
  std::uint64_t origin = 0;  // id of the node that this one is a copy of
  Work work;
  std::vector<Node*> dependencies;
  std::vector<Node*> dependents;
  bool enabled = true;
  std::vector<void*> parameter_pointers;  // what cuGraphKernelNodeGetParams_v2 lends

  cuda::CUgraphNodeType type() const;
};

using NodeCopies = std::map<std::uint64_t, Node*>;  // by the id of the original

// Not thread-safe, as CUDA's are not; captures add nodes under submission_mutex.
class Graph {
 public:
  // In the order in which they were added.
  const std::vector<std::shared_ptr<Node>>& nodes() const { return nodes_; }

  // `dependencies` are nodes of this graph, each once.
  Node* Add(Work work, std::span<Node* const> dependencies);
  void Remove(Node* node);
  static bool Connected(const Node& from, const Node& to);
  static void Connect(Node& from, Node& to);
  static void Disconnect(Node& from, Node& to);

  // Nodes so that each comes after those it depends on; nullopt if edges form a circle, here or in a child.
  std::optional<std::vector<Node*>> Order() const;
  // A copy with copies of all child graphs. `copies`, if not null, gets the pairs of original and copy.
  std::shared_ptr<Graph> Clone(NodeCopies* copies) const;
  // Memory nodes bind a graph to its addresses: it can be neither copied nor changed.
  bool HasMemoryNodes() const;
  UserObjectRefs user_objects;  // kept alive by this graph, its copies, and launches that have not ended
  // The one GraphExec that may use the addresses of memory nodes.
  std::weak_ptr<GraphExec> owner_of_memory;

 private:
  std::vector<std::shared_ptr<Node>> nodes_;
};

using Graphs = Handles<Graph, cuda::CUgraph>;
using Nodes = Handles<Node, cuda::CUgraphNode>;

// Gives the program handles of the nodes of `graph`, of its children, and of their nodes, or takes them back.
void PublishNodes(const Graph& graph);
void RetractNodes(const Graph& graph);

}  // namespace tessera::soft
