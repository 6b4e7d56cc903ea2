// Memory that a stream allocates and frees while it captures: its nodes, their order, and captures that fail.
#include <gtest/gtest.h>

#include <vector>

#include "shim/load/hook.h"
#include "shim/testing/graph_fixture.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemAllocAsync(CUdeviceptr*, size_t, CUstream);
TESSERA_HOOK cuMemFreeAsync(CUdeviceptr, CUstream);
TESSERA_HOOK cuMemFree_v2(CUdeviceptr);
TESSERA_HOOK cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
TESSERA_HOOK cuStreamEndCapture(CUstream, CUgraph*);
TESSERA_HOOK cuStreamDestroy_v2(CUstream);
TESSERA_HOOK cuStreamUpdateCaptureDependencies(CUstream, CUgraphNode*, size_t, unsigned);
TESSERA_HOOK cuGraphNodeGetType(CUgraphNode, CUgraphNodeType*);
TESSERA_HOOK cuGraphClone(CUgraph*, CUgraph);
TESSERA_HOOK cuGraphDestroy(CUgraph);
TESSERA_HOOK cuGraphLaunch(CUgraphExec, CUstream);

namespace tessera::shim {
namespace {

// Another thread captures a kernel into the stream of the first capture at the same time.
CUresult AddEmptyBesideKernel(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count) {
  fake_graphs.captures.begin()->second = {NewHandle<CUgraphNode>()};
  return FakeGraphs::AddEmpty(node, graph, after, count);
}
// A capture that was invalidated ends, and its graph with it.
CUresult (*end_capture)(CUstream, CUgraph*) = nullptr;
CUresult EndInvalid(CUstream stream, CUgraph* graph) {
  end_capture(stream, graph);
  *graph = nullptr;
  fake_graphs.graphs.erase(fake_graphs.captured);
  return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

class CapturedMemoryTest : public GraphFixture {};

TEST_F(CapturedMemoryTest, CapturesKeepTheOrderOfTheirStreams) {
  const CUstream stream = Cuda().MakeStream();
  driver.captured = NewGraph();
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  CUdeviceptr first = 0, second = 0, third = 0;
  ASSERT_EQ(cuMemAllocAsync(&first, 4 * kMiB, stream), CUDA_SUCCESS);
  const CUgraphNode allocated = driver.captures[stream].at(0);
  EXPECT_TRUE(driver.nodes[allocated].empty());
  ASSERT_EQ(cuMemFreeAsync(first, stream), CUDA_SUCCESS);
  const CUgraphNode freed = driver.captures[stream].at(0);
  EXPECT_EQ(driver.nodes[freed], std::vector{allocated});
  CUgraphNodeType type;
  EXPECT_EQ(cuGraphNodeGetType(freed, &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_MEM_FREE);
  // Work of the driver's own comes between, which the shim does not see.
  driver.captures[stream] = {NewHandle<CUgraphNode>()};
  ASSERT_EQ(cuMemAllocAsync(&second, 4 * kMiB, stream), CUDA_SUCCESS);
  EXPECT_EQ(second, first);
  ASSERT_EQ(cuMemFreeAsync(second, stream), CUDA_SUCCESS);
  // The program puts the stream elsewhere.
  CUgraphNode elsewhere = NewHandle<CUgraphNode>();
  ASSERT_EQ(cuStreamUpdateCaptureDependencies(stream, &elsewhere, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&third, 4 * kMiB, stream), CUDA_SUCCESS);
  EXPECT_NE(third, first);
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(driver.captured), CUDA_SUCCESS);
  EXPECT_FALSE(Lives(first));
}

TEST_F(CapturedMemoryTest, WorkThatAnotherThreadCapturesMeanwhileStaysInOrder) {
  const CUstream stream = Cuda().MakeStream();
  driver.captured = NewGraph();
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  driver.captures[stream] = {};
  Cuda().Put(k_cuGraphAddEmptyNode, &AddEmptyBesideKernel);
  ASSERT_EQ(cuMemAllocAsync(&address, kMiB, stream), CUDA_SUCCESS);
  EXPECT_EQ(driver.captures[stream].size(), 2u) << "the kernel and the allocation";
  ASSERT_EQ(cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  EXPECT_EQ(driver.captures[stream].size(), 2u) << "the second kernel and the free";
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
}

// The driver drops the graph without a word.
TEST_F(CapturedMemoryTest, OfACaptureThatFailsNothingIsKnown) {
  const CUstream stream = Cuda().MakeStream();
  driver.captured = NewGraph();
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAllocAsync(&address, 4 * kMiB, stream), CUDA_SUCCESS);
  const CUgraphNode node = driver.captures[stream].at(0);
  CUgraph graph = nullptr;
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  driver.graphs.clear();
  CUgraphNodeType type;
  EXPECT_EQ(cuGraphNodeGetType(node, &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_EMPTY);
  EXPECT_FALSE(Lives(address));
  CUgraph clone = nullptr;
  driver.graphs[driver.captured] = {};
  EXPECT_EQ(cuGraphClone(&clone, driver.captured), CUDA_SUCCESS);
}

// A graph leaves memory, and a capture frees it: that capture's graph is driver.captured.
class FailedCaptureTest : public GraphFixture {
 protected:
  FailedCaptureTest() {
    const CUgraph graph = NewGraph();
    left = Allocate(graph);
    EXPECT_EQ(cuGraphLaunch(Make(graph), nullptr), CUDA_SUCCESS);
    driver.captured = NewGraph();
    Begin();
    EXPECT_EQ(cuMemFreeAsync(left.address, stream), CUDA_SUCCESS);
    freed = driver.captures[stream].at(0);
  }
  void Begin() { EXPECT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS); }
  // Another graph has got the handle.
  void ExpectThatNothingIsKnown() {
    driver.graphs[driver.captured] = {};
    CUgraph clone = nullptr;
    EXPECT_EQ(cuGraphClone(&clone, driver.captured), CUDA_SUCCESS);
    CUgraphNodeType type;
    EXPECT_EQ(cuGraphNodeGetType(freed, &type), CUDA_SUCCESS);
    EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_EMPTY);
    EXPECT_EQ(cuGraphLaunch(Make(driver.captured), nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuMemFree_v2(left.address), CUDA_SUCCESS) << "the launch has freed what the program had";
  }

  CUstream stream = Cuda().MakeStream();
  Allocated left;
  CUgraphNode freed = nullptr;
};

TEST_F(FailedCaptureTest, ItsGraphIsForgottenWhenItEnds) {
  end_capture = REAL_AS(cuStreamEndCapture, CUstream, CUgraph*);
  Cuda().Put(k_cuStreamEndCapture, &EndInvalid);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Cuda().Put(k_cuStreamEndCapture, end_capture);
  ExpectThatNothingIsKnown();
}

TEST_F(FailedCaptureTest, ItsGraphIsForgottenWithTheStream) {
  EXPECT_EQ(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  ExpectThatNothingIsKnown();
}

// Nobody said that the graph before it ended.
TEST_F(FailedCaptureTest, OfAGraphThatIsNewNothingIsKnown) {
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  driver.captures[stream] = {};
  Begin();
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  ExpectThatNothingIsKnown();
}

// A new graph that has got the handle of a dying one does not take again what that had freed.
TEST_F(FailedCaptureTest, MemoryOfTheGraphIsNotTheNextOnes) {
  CUdeviceptr first = 0, second = 0;
  ASSERT_EQ(cuMemAllocAsync(&first, 4 * kMiB, stream), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(first, stream), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  Begin();  // its destructors have not run yet
  ASSERT_EQ(cuMemAllocAsync(&second, 4 * kMiB, stream), CUDA_SUCCESS);
  EXPECT_NE(second, first);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
}

}  // namespace
}  // namespace tessera::shim
