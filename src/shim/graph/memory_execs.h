// Executable graphs with memory nodes of the shim's.
#pragma once

#include <atomic>
#include <unordered_map>

#include "base/fork_mutex.h"
#include "cuda/cuda_abi.h"
#include "shim/graph/memory_nodes.h"
#include "shim/order/stream_name.h"

namespace tessera::shim {

// A table of these executable graphs: which graph each was made of, and what its launches leave and free. Thread-safe;
// the process has one.
class MemoryExecs {
 public:
  static MemoryExecs& Instance();
  // Whether launches of any executable graph leave or free memory. Takes no lock.
  static bool AnyOutlives() { return outlives_.load(std::memory_order_relaxed) > 0; }

  // Whether an executable graph was made of this graph, which has memory nodes: the driver makes no second one.
  bool IsHeld(cuda::CUgraph graph) const;
  // What the driver says to an update of `exec` to `graph`, if that has memory nodes (docs/hardware-log.md,
  // 2026-11-23): CUDA_SUCCESS if `exec` was made of it (then the driver is to be asked), CUDA_ERROR_NOT_SUPPORTED if
  // another one was, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE if none was.
  cuda::CUresult MayUpdate(cuda::CUgraphExec exec, cuda::CUgraph graph) const;
  // `exec` was made of the graph, or updated to it; `flags` of its instantiation, none for an update.
  void Learn(cuda::CUgraphExec exec, cuda::CUgraph graph, const unsigned long long* flags);
  // It is about to be destroyed.
  void Forget(cuda::CUgraphExec exec);
  // The graph is about to be destroyed: another may get its handle.
  void ForgetGraph(cuda::CUgraph graph);

  // CUDA_ERROR_INVALID_VALUE if a launch would allocate memory that the last one left and nobody freed.
  cuda::CUresult BeforeLaunch(cuda::CUgraphExec exec) const;
  // It was launched in the stream: what it leaves is the program's, and what it frees was freed in the stream's order.
  void AfterLaunch(cuda::CUgraphExec exec, const StreamName& stream);

 private:
  struct Exec {
    cuda::CUgraph graph = nullptr;
    bool frees_on_launch = false;  // CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
    GraphMemoryUse use;
  };

  GraphMemoryUse UseOf(cuda::CUgraphExec exec, bool* frees_on_launch) const;

  static std::atomic<int> outlives_;

  mutable ForkMutex mutex_;
  std::unordered_map<cuda::CUgraphExec, Exec> execs_ TESSERA_GUARDED_BY(mutex_);
};

// MemoryNodes and MemoryExecs forget the graph: it is about to be destroyed or gone, or is new and has the handle of
// one that is gone. Null: nothing. Any thread.
void ForgetGraphMemory(cuda::CUgraph graph);

}  // namespace tessera::shim
