// Shared by the files that define the graph functions of the API.
#pragma once

#include <vector>

#include "soft/api/api.h"
#include "soft/exec/graph_exec.h"

namespace tessera::soft {

// Appends the nodes of `graph` that `handles` are. CUDA_ERROR_INVALID_VALUE if one is no node of it or is there twice.
cuda::CUresult FindNodes(const Graph& graph, const cuda::CUgraphNode* handles, std::size_t count,
                         std::vector<Node*>* nodes);

// Runs `function(graph)`, or `function(node)` with a shared pointer, if there is one of this handle, else
// CUDA_ERROR_INVALID_VALUE as the driver answers.
template <typename Function>
cuda::CUresult WithGraph(cuda::CUgraph handle, Function&& function) {
  const ApiCall call;
  if (call.state() != cuda::CUDA_SUCCESS) return call.state();
  const auto graph = Graphs::Get().Find(handle);
  return graph ? function(graph) : cuda::CUDA_ERROR_INVALID_VALUE;
}

template <typename Function>
cuda::CUresult WithNode(cuda::CUgraphNode handle, Function&& function) {
  const ApiCall call;
  if (call.state() != cuda::CUDA_SUCCESS) return call.state();
  const auto node = Nodes::Get().Find(handle);
  return node ? function(node) : cuda::CUDA_ERROR_INVALID_VALUE;
}

// Runs `function(copy)` for the node of an executable graph that is the copy of this node.
template <typename Function>
cuda::CUresult WithExecNode(cuda::CUgraphExec exec_handle, cuda::CUgraphNode handle, Function&& function) {
  return WithNode(handle, [&](const auto& node) {
    const auto exec = GraphExecs::Get().Find(exec_handle);
    Node* const copy = exec ? exec->Find(*node) : nullptr;
    return copy ? function(*copy) : cuda::CUDA_ERROR_INVALID_VALUE;
  });
}

// Between the parameters of a node as the API has them and work. Both check; the errors are those of the like-named
// calls outside of graphs. CUDA_ERROR_NOT_SUPPORTED, with a line on standard error, for kinds that the soft GPU has
// not.
cuda::CUresult WorkOf(Context& context, cuda::CUgraphNodeParams& parameters, Work* work);
// Pointers in `parameters` lead into the node, which owns what they point to.
void ParametersOf(Node& node, cuda::CUgraphNodeParams* parameters);

}  // namespace tessera::soft
