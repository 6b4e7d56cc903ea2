// Launches of graphs with memory: what they allocate and free, and who may free it besides.
#include "shim/graph/memory_execs.h"

#include "base/testing/wait_until.h"
#include "shim/load/hook.h"
#include "shim/load/real.h"
#include "shim/testing/graph_fixture.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemFreeAsync(CUdeviceptr, CUstream);
TESSERA_HOOK cuMemFree_v2(CUdeviceptr);
TESSERA_HOOK cuMemAlloc_v2(CUdeviceptr*, size_t);
TESSERA_HOOK cuGraphAddMemFreeNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUdeviceptr);
TESSERA_HOOK cuGraphDestroy(CUgraph);
TESSERA_HOOK cuGraphExecDestroy(CUgraphExec);
TESSERA_HOOK cuGraphLaunch(CUgraphExec, CUstream);

namespace tessera::shim {
namespace {

CUcontext streams_context = nullptr;
CUresult ContextOf(CUstream, CUcontext* context) { return *context = streams_context, CUDA_SUCCESS; }

class MemoryExecsTest : public GraphFixture {};

TEST_F(MemoryExecsTest, MemoryGoesWithTheLastGraphThatHasIt) {
  const CUgraph graph = NewGraph();
  const Allocated made = Allocate(graph);
  Free(graph, made);
  EXPECT_GE(Reserved(), 4 * kMiB);
  const CUgraphExec exec = Make(graph);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_TRUE(Lives(made.address));
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(made.address), CUDA_ERROR_INVALID_VALUE);  // the graph frees it
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_FALSE(Lives(made.address));
  EXPECT_EQ(Reserved(), 0u);
}

TEST_F(MemoryExecsTest, WhatALaunchLeavesIsTheProgramsToFree) {
  const CUgraph graph = NewGraph();
  const Allocated made = Allocate(graph);
  const CUgraphExec exec = Make(graph);
  EXPECT_EQ(cuMemFree_v2(made.address), CUDA_ERROR_INVALID_VALUE);  // no launch has allocated it
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.launches, 1);
  EXPECT_EQ(cuMemFree_v2(made.address), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(made.address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(made.address, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(made.address, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(Lives(made.address));
}

TEST_F(MemoryExecsTest, ItOutlivesItsGraphs) {
  const CUgraph graph = NewGraph();
  const Allocated made = Allocate(graph), other = Allocate(graph);
  const CUgraphExec exec = Make(graph);
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(other.address, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_TRUE(Lives(made.address));
  EXPECT_EQ(cuMemFree_v2(made.address), CUDA_SUCCESS);
  EXPECT_FALSE(Lives(made.address));
  // The pacer may be freeing it just now.
  EXPECT_TRUE(BecomesTrue([&] { return !Lives(other.address) && Reserved() == 0; }, 30 * kSecond));
}

// Whatever context is current when the program frees it.
TEST_F(MemoryExecsTest, WhatIsFreedInAStreamWaitsForTheStreamsContext) {
  const CUgraph graph = NewGraph();
  const Allocated made = Allocate(graph);
  const CUgraphExec exec = Make(graph);
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  const CUstream stream = Cuda().MakeStream();
  // The driver's fake counts no graphs as work. Without any, the pacer may free the memory at any moment.
  EXPECT_EQ(REAL_AS(cuMemcpyHtoD_v2, CUdeviceptr, const void*, size_t)(1, "", 1), CUDA_SUCCESS);
  streams_context = context;
  Cuda().Put(k_cuStreamGetCtx, &ContextOf);
  FakeCuda::SetCurrent(nullptr);
  EXPECT_EQ(cuMemFreeAsync(made.address, stream), CUDA_SUCCESS);
  FakeCuda::SetCurrent(context);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_TRUE(Lives(made.address)) << "work in the stream may use it still";
  Cuda().End(context);
}

TEST_F(MemoryExecsTest, ALaunchMayFreeWhatItsPredecessorLeft) {
  const CUgraph graph = NewGraph();
  const Allocated made = Allocate(graph);
  const CUgraphExec exec = Make(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(made.address), CUDA_SUCCESS);
}

TEST_F(MemoryExecsTest, AnotherGraphMayFreeIt) {
  const CUgraph graph = NewGraph(), frees = NewGraph();
  const Allocated made = Allocate(graph);
  CUgraphNode node = nullptr;
  EXPECT_EQ(cuGraphAddMemFreeNode(&node, frees, nullptr, 0, made.address), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphAddMemFreeNode(&node, graph, &made.node, 1, made.address), CUDA_ERROR_INVALID_VALUE);
  const CUgraphExec first = Make(graph), second = Make(frees);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(cuGraphLaunch(first, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(second, nullptr), CUDA_SUCCESS);
  }
  EXPECT_EQ(cuMemFree_v2(made.address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryExecsTest, AGraphThatIsGoneFreesNothing) {
  const CUgraph graph = NewGraph(), frees = NewGraph(), other = NewGraph();
  const Allocated made = Allocate(graph);
  CUgraphNode node = nullptr;
  EXPECT_EQ(cuGraphAddMemFreeNode(&node, frees, nullptr, 0, made.address), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphAddMemFreeNode(&node, other, nullptr, 0, made.address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphDestroy(frees), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphAddMemFreeNode(&node, other, nullptr, 0, made.address), CUDA_SUCCESS);
}

TEST_F(MemoryExecsTest, WhatLiesThereLaterIsNotTheGraphsToFree) {
  const CUgraph graph = NewGraph(), frees = NewGraph();
  const Allocated made = Allocate(graph);
  CUgraphNode node = nullptr;
  EXPECT_EQ(cuGraphAddMemFreeNode(&node, frees, nullptr, 0, made.address), CUDA_SUCCESS);
  const CUgraphExec first = Make(graph), second = Make(frees);
  EXPECT_EQ(cuGraphLaunch(first, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphExecDestroy(first), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(made.address), CUDA_SUCCESS);
  CUdeviceptr later = 0;
  EXPECT_EQ(cuMemAlloc_v2(&later, 4 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(later, made.address);
  EXPECT_EQ(cuGraphLaunch(second, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(later), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tessera::shim
