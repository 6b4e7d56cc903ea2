// The driver's graphs for tests of the shim: nodes with what they come behind, and objects that graphs hold.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "cuda/cuda_abi.h"
#include "shim/testing/fake_cuda.h"

namespace tessera::shim {

// What the driver has of all graphs; a test may look into it and change it. One thread at a time.
struct FakeGraphs {
  struct Object {
    cuda::CUhostFn destroy;
    void* data;
    ~Object() { destroy(data); }
  };
  using Objects = std::vector<std::shared_ptr<Object>>;

  static cuda::CUresult AddEmpty(cuda::CUgraphNode* node, cuda::CUgraph graph, const cuda::CUgraphNode* after,
                                 std::size_t count);

  std::map<cuda::CUgraph, Objects> graphs;
  std::map<cuda::CUgraphExec, Objects> execs;
  std::map<cuda::CUgraphNode, std::vector<cuda::CUgraphNode>> nodes;
  std::map<cuda::CUuserObject, std::shared_ptr<Object>> objects;
  std::map<cuda::CUstream, std::vector<cuda::CUgraphNode>> captures;
  cuda::CUgraph captured = nullptr;  // by every capture
  int own_nodes = 0, launches = 0;
  bool has_objects = true;
};
extern FakeGraphs fake_graphs;

// Puts the functions of graphs into the table; they work with fake_graphs.
void PutGraphs(FakeCuda& cuda);

inline std::uintptr_t last_handle = 0x1000;  // no test has the handles of another

template <typename Handle>
Handle NewHandle() {
  return reinterpret_cast<Handle>(last_handle += 16);
}

}  // namespace tessera::shim
