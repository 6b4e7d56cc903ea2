// The memory that graphs name is used when they are launched.
#include <gtest/gtest.h>

#include "shim/load/hook.h"
#include "shim/testing/shim_fixture.h"
#include "shim/use/graph_use.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemAlloc_v2(CUdeviceptr*, size_t);
TESSERA_HOOK cuGraphInstantiateWithFlags(CUgraphExec*, CUgraph, unsigned long long);
TESSERA_HOOK cuGraphExecUpdate_v2(CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*);
TESSERA_HOOK cuGraphExecKernelNodeSetParams_v2(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*);
TESSERA_HOOK cuGraphExecDestroy(CUgraphExec);

namespace tessera::shim {
namespace {

// The driver's graph: one node, or one node in a child graph.
struct FakeGraph {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_KERNEL;
  void* argument = nullptr;
  CUdeviceptr copied_to = 0;
  bool nested = false;
};
FakeGraph fake;
void* arguments[1];

CUgraph Outer() { return reinterpret_cast<CUgraph>(0x10); }
CUgraphNode NodeOf(CUgraph graph) { return reinterpret_cast<CUgraphNode>(reinterpret_cast<std::uint64_t>(graph) + 1); }

CUresult Instantiate(CUgraphExec* exec, CUgraph, unsigned long long) {
  return *exec = reinterpret_cast<CUgraphExec>(0x30), CUDA_SUCCESS;
}
CUresult Update(CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*) { return CUDA_SUCCESS; }
CUresult SetKernel(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS*) { return CUDA_SUCCESS; }
CUresult Destroy(CUgraphExec) { return CUDA_SUCCESS; }
CUresult Nodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  *count = 1;
  if (nodes) nodes[0] = NodeOf(graph);
  return CUDA_SUCCESS;
}
CUresult Type(CUgraphNode node, CUgraphNodeType* type) {
  *type = fake.nested && node == NodeOf(Outer()) ? CU_GRAPH_NODE_TYPE_GRAPH : fake.type;
  return CUDA_SUCCESS;
}
CUresult Child(CUgraphNode, CUgraph* graph) { return *graph = reinterpret_cast<CUgraph>(0x20), CUDA_SUCCESS; }
CUresult Kernel(CUgraphNode, CUDA_KERNEL_NODE_PARAMS* kernel) {
  arguments[0] = fake.argument;
  *kernel = {.kernelParams = arguments};
  return CUDA_SUCCESS;
}
CUresult CopyNode(CUgraphNode, CUDA_MEMCPY3D* copy) { return *copy = {.dstDevice = fake.copied_to}, CUDA_SUCCESS; }
CUresult Parameter(std::uint64_t, std::size_t index, std::size_t*, std::size_t* bytes) {
  return *bytes = 8, index == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

class GraphsTest : public ShimFixture {
 protected:
  GraphsTest() {
    Swap();
    Attached();
    MakeContext();
    EXPECT_EQ(cuMemAlloc_v2(&address, 64 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc_v2(&other, 64 * kMiB), CUDA_SUCCESS);
    Cuda().Put(k_cuGraphInstantiateWithFlags, &Instantiate);
    Cuda().Put(k_cuGraphExecUpdate_v2, &Update);
    Cuda().Put(k_cuGraphExecKernelNodeSetParams_v2, &SetKernel);
    Cuda().Put(k_cuGraphExecDestroy, &Destroy);
    Cuda().Put(k_cuGraphGetNodes, &Nodes);
    Cuda().Put(k_cuGraphNodeGetType, &Type);
    Cuda().Put(k_cuGraphChildGraphNodeGetGraph, &Child);
    Cuda().Put(k_cuGraphKernelNodeGetParams_v2, &Kernel);
    Cuda().Put(k_cuGraphMemcpyNodeGetParams, &CopyNode);
    Cuda().Put(k_cuFuncGetParamInfo, &Parameter);
    fake = {.argument = &address};
  }
  ~GraphsTest() override {
    if (exec) EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  }
  void Make() { ASSERT_EQ(cuGraphInstantiateWithFlags(&exec, Outer(), 0), CUDA_SUCCESS); }

  // Whether a launch is a use of the chunk.
  bool Uses(CUdeviceptr memory) {
    pager::Heap& heap = Attached().Pager()->Heap();
    const auto heat = [&](Nanos at) {
      const MutexLock lock(heap.Chunks().mutex());
      const auto heats = heap.Heat().Heats(heap.Chunks(), at);
      return heats[heap.Chunks().large_range.IndexOf(memory)];
    };
    // Long after the last use.
    now += 100 * pager::UseHistory::kInterval;
    const auto before = heat(now);
    named = TouchGraph(exec, heap, now);
    return heat(now) > before;
  }

  CUdeviceptr address = 0, other = 0;
  CUgraphExec exec = nullptr;
  bool named = false;  // the launch could tell what it uses
  Nanos now = MonotonicNow();
};

TEST_F(GraphsTest, AKernelNodesArgumentsAreUses) {
  Make();
  EXPECT_TRUE(Uses(address));
  EXPECT_FALSE(Uses(other));
}

TEST_F(GraphsTest, SoAreTheAddressesOfCopies) {
  fake = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .copied_to = other};
  Make();
  EXPECT_TRUE(Uses(other));
  EXPECT_FALSE(Uses(address));
}

TEST_F(GraphsTest, AndWhatChildGraphsUse) {
  fake.nested = true;
  Make();
  EXPECT_TRUE(Uses(address));
}

TEST_F(GraphsTest, ANodeThatIsChangedUsesOtherMemory) {
  Make();
  void* changed[] = {&other};
  const CUDA_KERNEL_NODE_PARAMS kernel = {.kernelParams = changed};
  ASSERT_EQ(cuGraphExecKernelNodeSetParams_v2(exec, NodeOf(Outer()), &kernel), CUDA_SUCCESS);
  EXPECT_TRUE(Uses(other));
  EXPECT_FALSE(Uses(address));
  ASSERT_EQ(cuGraphExecUpdate_v2(exec, Outer(), nullptr), CUDA_SUCCESS);
  EXPECT_TRUE(Uses(address));
  EXPECT_FALSE(Uses(other));
}

TEST_F(GraphsTest, AKernelNodeThatNamesNothingMayUseAnything) {
  Make();
  Uses(address);
  EXPECT_TRUE(named);
  std::uint64_t nothing = 0x1234;
  fake.argument = &nothing;
  ASSERT_EQ(cuGraphExecUpdate_v2(exec, Outer(), nullptr), CUDA_SUCCESS);
  Uses(address);
  EXPECT_FALSE(named);
  void* changed[] = {&nothing};
  const CUDA_KERNEL_NODE_PARAMS kernel = {.kernelParams = changed};
  fake.argument = &address;
  ASSERT_EQ(cuGraphExecUpdate_v2(exec, Outer(), nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphExecKernelNodeSetParams_v2(exec, NodeOf(Outer()), &kernel), CUDA_SUCCESS);
  Uses(address);
  EXPECT_FALSE(named);
}

TEST_F(GraphsTest, AGraphThatIsGoneUsesNothing) {
  Make();
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_FALSE(Uses(address));
  exec = nullptr;
}

}  // namespace
}  // namespace tessera::shim
