#pragma once

#include <cstdint>
#include <memory>

#include "cuda/cuda_abi.h"
#include "soft/exec/dispatcher.h"
#include "soft/exec/graph.h"
#include "soft/exec/stream.h"
#include "soft/shared/handles.h"

namespace tessera::soft {

class Context;

// A graph ready to be launched: a private copy, whose nodes are found by the originals' ids.
struct GraphExec {
  Context& context;
  const unsigned long long flags;
  std::shared_ptr<Graph> graph;
  NodeCopies copies;
  OpRef last TESSERA_GUARDED_BY(submission_mutex);  // end of the last launch: launches follow one another

  // The copy of `node`; null if it was not in the graph.
  Node* Find(const Node& node) const;
};

using GraphExecs = Handles<GraphExec, cuda::CUgraphExec>;

// CUDA_ERROR_INVALID_VALUE if edges form a circle, CUDA_ERROR_NOT_SUPPORTED if the graph has memory nodes and is
// instantiated already: its addresses cannot be in use twice.
cuda::CUresult Instantiate(Context& context, Graph& graph, unsigned long long flags, std::shared_ptr<GraphExec>* exec);

// Gives `exec` the parameters of `graph`. CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, with the reason in `info`, unless both
// have the same nodes with the same edges, added in the same order, or if the graph has memory nodes and `exec` was not
// made of it. CUDA_ERROR_NOT_SUPPORTED if another one was.
cuda::CUresult Update(const std::shared_ptr<GraphExec>& exec, Graph& graph, cuda::CUgraphExecUpdateResultInfo* info);

}  // namespace tessera::soft
