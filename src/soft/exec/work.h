// The kinds of work that a program can give a stream, and that a graph keeps as nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "cuda/cuda_abi.h"
#include "soft/exec/copy.h"
#include "soft/ptx/ptx.h"

namespace tessera::soft {

struct Event;
struct Function;
class Graph;
class GraphMemory;

struct KernelWork {
  std::shared_ptr<Function> function;
  ptx::Dim3 grid;
  ptx::Dim3 block;
  std::uint32_t dynamic_shared_bytes = 0;
  std::vector<std::byte> parameters;  // laid out as the kernel's PTX says
  bool cooperative = false;
  std::uint32_t multiprocessors = 0;  // that it may use at most; 0: all that the process may
};

struct CopyWork {
  Copy copy;
  std::shared_ptr<const std::vector<std::byte>> staged;  // keeps a source alive that the program may change already
};

struct MemsetWork {
  Memset memset;
};

struct HostWork {
  cuda::CUhostFn function;
  void* data;
};

struct EventRecordWork {
  std::shared_ptr<Event> event;
};

struct EventWaitWork {
  std::shared_ptr<Event> event;
};

struct BatchWork {
  std::vector<cuda::CUstreamBatchMemOpParams> operations;
};

struct GraphWork {
  std::shared_ptr<Graph> graph;  // this node's own copy
};

struct AllocWork {
  std::shared_ptr<GraphMemory> memory;
  cuda::CUDA_MEM_ALLOC_NODE_PARAMS parameters;  // without accesses
};

struct FreeWork {
  std::shared_ptr<GraphMemory> memory;
};

struct EmptyWork {};

using Work = std::variant<EmptyWork, KernelWork, CopyWork, MemsetWork, HostWork, EventRecordWork, EventWaitWork,
                          BatchWork, GraphWork, AllocWork, FreeWork>;

}  // namespace tessera::soft
