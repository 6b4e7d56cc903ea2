// The nodes of graphs that allocate and free memory of the pager's heap. For the driver they are empty nodes.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/fork_mutex.h"
#include "cuda/cuda_abi.h"

namespace tessera::shim {

// Such a node as the program knows it.
struct MemoryNode {
  cuda::CUgraph graph = nullptr;
  cuda::CUgraphNodeType type = cuda::CU_GRAPH_NODE_TYPE_EMPTY;  // MEM_ALLOC or MEM_FREE
  cuda::CUDA_MEM_ALLOC_NODE_PARAMS parameters{};                // of a free only the address
};

// A block that a graph has allocated. Another one may lie at the address later.
struct GraphMemory {
  cuda::CUdeviceptr address = 0;
  std::uint64_t id = 0;
};

// What a launch of a graph does to memory that outlives it.
struct GraphMemoryUse {
  std::vector<GraphMemory> left;   // allocated, and not freed in the graph
  std::vector<GraphMemory> freed;  // that other graphs allocated
  bool Outlives() const { return !left.empty() || !freed.empty(); }
};

// A stream's capture, in whose order nodes follow one another; {} for nodes that the program adds itself.
struct CaptureOrder {
  std::uint64_t id = 0;
  cuda::CUstream stream = nullptr;
  bool operator==(const CaptureOrder&) const = default;
};

// Memory that a graph has freed, and may allocate again.
struct SpareMemory {
  cuda::CUdeviceptr address = 0;
  std::uint64_t bytes = 0, id = 0;       // of the block
  cuda::CUgraphNode freed_by = nullptr;  // what comes behind this node may have it
  CaptureOrder order;
};

// A table of these nodes, by their handles and by graph. Calls no driver function. Thread-safe; the process has one.
class MemoryNodes {
 public:
  static MemoryNodes& Instance();
  // Whether the process has made any such node. Takes no lock.
  static bool Any() { return any_.load(std::memory_order_relaxed); }

  // The graph has got a node that allocates the block of this size and id which begins at `parameters.dptr`.
  void AddAllocation(cuda::CUgraph graph, cuda::CUgraphNode node, const cuda::CUDA_MEM_ALLOC_NODE_PARAMS& parameters,
                     std::uint64_t block_bytes, std::uint64_t block_id);
  // Whether a node of the graph may free this memory: it was allocated by such a node, and no node frees it yet.
  bool MayFree(cuda::CUdeviceptr address) const;
  void AddFree(cuda::CUgraph graph, cuda::CUgraphNode node, cuda::CUdeviceptr address, const CaptureOrder& order);

  // Memory that the graph has freed and not allocated again, of `bytes` or up to twice as much, the last freed first.
  std::vector<SpareMemory> SpareOf(cuda::CUgraph graph, std::uint64_t bytes) const;
  // Takes it; false: another thread has.
  bool Take(cuda::CUgraph graph, const SpareMemory& spare);
  void PutBack(cuda::CUgraph graph, const SpareMemory& spare);
  // What the stream captures from now on may not come behind what it captured before.
  void BreakOrder(cuda::CUstream stream);

  std::optional<MemoryNode> Find(cuda::CUgraphNode node) const;
  // Whether the graph, or a child that was moved into it, has such nodes.
  bool Has(cuda::CUgraph graph) const;
  GraphMemoryUse UseOf(cuda::CUgraph graph) const;
  // `child` belongs to `parent` from now on and ends with it.
  void Adopt(cuda::CUgraph parent, cuda::CUgraph child);
  // The graph is about to be destroyed.
  void Forget(cuda::CUgraph graph);

 private:
  struct Allocation {
    cuda::CUgraph graph = nullptr;
    std::uint64_t bytes = 0, id = 0;
    bool freed = false;  // by a node, of whatever graph
    bool freed_inside = false;
  };
  struct Graph {
    std::vector<cuda::CUgraphNode> nodes;
    std::vector<cuda::CUdeviceptr> allocations;  // each once
    std::vector<GraphMemory> freed;              // of others
    std::vector<SpareMemory> spare;
    std::vector<cuda::CUgraph> children;
  };

  Graph& LivingGraph(cuda::CUgraph graph) TESSERA_REQUIRES(mutex_);
  bool Lives(const Graph& graph) const TESSERA_REQUIRES(mutex_);
  const Allocation* AllocationAt(cuda::CUdeviceptr address) const TESSERA_REQUIRES(mutex_);
  void AddUse(cuda::CUgraph graph, GraphMemoryUse* use) const TESSERA_REQUIRES(mutex_);
  bool HasLocked(cuda::CUgraph graph) const TESSERA_REQUIRES(mutex_);
  void ForgetLocked(cuda::CUgraph graph) TESSERA_REQUIRES(mutex_);

  static std::atomic<bool> any_;

  mutable ForkMutex mutex_;
  std::unordered_map<cuda::CUgraphNode, MemoryNode> nodes_ TESSERA_GUARDED_BY(mutex_);
  std::unordered_map<cuda::CUgraph, Graph> graphs_ TESSERA_GUARDED_BY(mutex_);
  std::map<cuda::CUdeviceptr, Allocation> allocations_ TESSERA_GUARDED_BY(mutex_);  // the last at each address
};

}  // namespace tessera::shim
