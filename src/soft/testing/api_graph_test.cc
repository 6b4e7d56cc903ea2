#include <vector>

#include "soft/testing/test_driver.h"

namespace tessera::soft {
namespace {

class GraphTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    words = NewWords(16);
    stream = NewStream();
    ASSERT_OK(d.cuGraphCreate(&graph, 0));
  }

  CUDA_MEMSET_NODE_PARAMS Fill(std::size_t index, unsigned value) const {
    return {.dst = words + index * 4, .pitch = 0, .value = value, .elementSize = 4, .width = 1, .height = 1};
  }

  CUgraphNode AddFill(CUgraph to, std::size_t index, unsigned value, std::vector<CUgraphNode> after = {}) const {
    const auto parameters = Fill(index, value);
    CUgraphNode node = nullptr;
    EXPECT_OK(d.cuGraphAddMemsetNode(&node, to, after.data(), after.size(), &parameters, context));
    return node;
  }

  // A kernel that adds `value` to the first word.
  CUDA_KERNEL_NODE_PARAMS Add(std::uint32_t& value) {
    kernel_parameters[0] = &words;
    kernel_parameters[1] = &value;
    CUDA_KERNEL_NODE_PARAMS parameters = {};
    parameters.func = Kernel("add");
    parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1;
    parameters.blockDimX = parameters.blockDimY = parameters.blockDimZ = 1;
    parameters.kernelParams = kernel_parameters;
    return parameters;
  }

  CUgraphExec Instantiate(CUgraph of) const {
    CUgraphExec exec = nullptr;
    EXPECT_OK(d.cuGraphInstantiateWithFlags(&exec, of, 0));
    return exec;
  }

  void Run(CUgraphExec exec) const {
    EXPECT_OK(d.cuGraphLaunch(exec, stream));
    EXPECT_OK(d.cuStreamSynchronize(stream));
  }

  CUdeviceptr words = 0;
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  void* kernel_parameters[2] = {};
};

TEST_F(GraphTest, NodesRunInTheOrderOfEdges) {
  std::uint32_t ten = 10;
  const auto add = Add(ten);
  const CUgraphNode fill = AddFill(graph, 0, 1);
  CUgraphNode first = nullptr, second = nullptr;
  ASSERT_OK(d.cuGraphAddKernelNode_v2(&first, graph, &fill, 1, &add));
  ASSERT_OK(d.cuGraphAddKernelNode_v2(&second, graph, &first, 1, &add));
  const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcDevice = words,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstDevice = words + 4,
                              .WidthInBytes = 4,
                              .Height = 1,
                              .Depth = 1};
  CUgraphNode last = nullptr;
  ASSERT_OK(d.cuGraphAddMemcpyNode(&last, graph, &second, 1, &copy, context));
  const CUgraphExec exec = Instantiate(graph);
  Run(exec);
  EXPECT_EQ(Word(words + 4), 21u);
  // Launches of one graph follow one another, whatever their streams.
  for (int i = 0; i < 3; ++i) EXPECT_OK(d.cuGraphLaunch(exec, NewStream()));
  Run(exec);
  EXPECT_EQ(Word(words + 4), 21u);
  EXPECT_OK(d.cuGraphUpload(exec, stream));
  EXPECT_OK(d.cuGraphExecDestroy(exec));
}

TEST_F(GraphTest, HostAndEventNodes) {
  const CUevent event = NewEvent();
  std::atomic<int> calls = 0;
  const CUDA_HOST_NODE_PARAMS host = {[](void* data) { ++*static_cast<std::atomic<int>*>(data); }, &calls};
  CUgraphNode call = nullptr, record = nullptr;
  ASSERT_OK(d.cuGraphAddHostNode(&call, graph, nullptr, 0, &host));
  ASSERT_OK(d.cuGraphAddEventRecordNode(&record, graph, &call, 1, event));
  const CUgraphExec exec = Instantiate(graph);
  EXPECT_OK(d.cuGraphLaunch(exec, stream));
  EXPECT_OK(d.cuEventSynchronize(event));
  EXPECT_EQ(calls, 1);
}

TEST_F(GraphTest, WaitsForEvents) {
  const CUevent event = NewEvent();
  const CUstream other = NewStream();
  CUgraphNode wait = nullptr;
  ASSERT_OK(d.cuGraphAddEventWaitNode(&wait, graph, nullptr, 0, event));
  AddFill(graph, 0, 6, {wait});
  const CUgraphExec exec = Instantiate(graph);
  Gate gate;
  gate.Hold(other);
  EXPECT_OK(d.cuEventRecord(event, other));
  EXPECT_OK(d.cuGraphLaunch(exec, stream));
  EXPECT_CU(CUDA_ERROR_NOT_READY, d.cuStreamQuery(stream));
  gate.Open();
  EXPECT_OK(d.cuStreamSynchronize(stream));
  EXPECT_EQ(Word(words), 6u);
}

TEST_F(GraphTest, ChildGraphsAreCopies) {
  CUgraph child = nullptr;
  ASSERT_OK(d.cuGraphCreate(&child, 0));
  const CUgraphNode original = AddFill(child, 0, 5);
  CUgraphNode node = nullptr;
  ASSERT_OK(d.cuGraphAddChildGraphNode(&node, graph, nullptr, 0, child));
  std::uint32_t one = 1;
  const auto add = Add(one);
  CUgraphNode after = nullptr;
  ASSERT_OK(d.cuGraphAddKernelNode_v2(&after, graph, &node, 1, &add));
  EXPECT_OK(d.cuGraphDestroyNode(original));  // of the original, which the copy does not mind
  Run(Instantiate(graph));
  EXPECT_EQ(Word(words), 6u);

  CUgraph inside = nullptr;
  EXPECT_OK(d.cuGraphChildGraphNodeGetGraph(node, &inside));
  std::size_t count = 0;
  EXPECT_OK(d.cuGraphGetNodes(inside, nullptr, &count));
  EXPECT_EQ(count, 1u);
  EXPECT_OK(d.cuGraphGetNodes(child, nullptr, &count));
  EXPECT_EQ(count, 0u);
}

TEST_F(GraphTest, TellsItsShape) {
  const CUgraphNode a = AddFill(graph, 0, 1);
  const CUgraphNode b = AddFill(graph, 1, 1, {a});
  const CUgraphNode c = AddFill(graph, 2, 1, {a, b});
  CUgraphNode nodes[4] = {};
  std::size_t count = 4;
  EXPECT_OK(d.cuGraphGetNodes(graph, nodes, &count));
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(nodes[3], nullptr);
  count = 4;
  EXPECT_OK(d.cuGraphGetRootNodes(graph, nodes, &count));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(nodes[0], a);
  count = 4;
  EXPECT_OK(d.cuGraphNodeGetDependencies(c, nodes, &count));
  EXPECT_EQ(count, 2u);
  count = 4;
  EXPECT_OK(d.cuGraphNodeGetDependentNodes(a, nodes, &count));
  EXPECT_EQ(count, 2u);
  EXPECT_OK(d.cuGraphGetEdges(graph, nullptr, nullptr, &count));
  EXPECT_EQ(count, 3u);
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  EXPECT_OK(d.cuGraphNodeGetType(a, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_MEMSET);
  EXPECT_OK(d.cuGraphDestroyNode(b));
  EXPECT_OK(d.cuGraphGetEdges(graph, nullptr, nullptr, &count));
  EXPECT_EQ(count, 1u);
}

TEST_F(GraphTest, ChangesEdges) {
  const CUgraphNode a = AddFill(graph, 0, 1);
  const CUgraphNode b = AddFill(graph, 1, 1, {a});
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphAddDependencies(graph, &a, &b, 1));  // is there
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphAddDependencies(graph, &a, &a, 1));
  EXPECT_OK(d.cuGraphAddDependencies(graph, &b, &a, 1));
  CUgraphExec exec = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphInstantiateWithFlags(&exec, graph, 0));  // a circle
  EXPECT_OK(d.cuGraphRemoveDependencies(graph, &b, &a, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphRemoveDependencies(graph, &b, &a, 1));
  EXPECT_OK(d.cuGraphInstantiateWithFlags(&exec, graph, 0));
  const CUgraphNode twice[] = {a, a};
  CUgraphNode node = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphAddEmptyNode(&node, graph, twice, 2));
}

TEST_F(GraphTest, ClonesFindTheirOriginals) {
  const CUgraphNode a = AddFill(graph, 0, 1);
  CUgraph clone = nullptr;
  ASSERT_OK(d.cuGraphClone(&clone, graph));
  CUgraphNode copy = nullptr;
  EXPECT_OK(d.cuGraphNodeFindInClone(&copy, a, clone));
  EXPECT_NE(copy, a);
  CUDA_MEMSET_NODE_PARAMS parameters = {};
  EXPECT_OK(d.cuGraphMemsetNodeGetParams(copy, &parameters));
  EXPECT_EQ(parameters.value, 1u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphNodeFindInClone(&copy, copy, graph));
  EXPECT_OK(d.cuGraphDestroy(graph));
  Run(Instantiate(clone));
  EXPECT_EQ(Word(words), 1u);
}

TEST_F(GraphTest, ParametersOfKernelNodes) {
  std::uint32_t value = 3;
  const auto add = Add(value);
  CUgraphNode node = nullptr;
  ASSERT_OK(d.cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &add));
  value = 99;  // was copied
  CUDA_KERNEL_NODE_PARAMS got = {};
  EXPECT_OK(d.cuGraphKernelNodeGetParams_v2(node, &got));
  EXPECT_EQ(got.func, add.func);
  EXPECT_EQ(*static_cast<std::uint32_t*>(got.kernelParams[1]), 3u);

  const CUgraphExec exec = Instantiate(graph);
  value = 20;
  EXPECT_OK(d.cuGraphKernelNodeSetParams_v2(node, &add));  // the graph, not what was instantiated
  Run(exec);
  EXPECT_EQ(Word(words), 3u);
  value = 100;
  EXPECT_OK(d.cuGraphExecKernelNodeSetParams_v2(exec, node, &add));
  Run(exec);
  EXPECT_EQ(Word(words), 103u);
  EXPECT_OK(d.cuGraphNodeSetEnabled(exec, node, 0));
  Run(exec);
  EXPECT_EQ(Word(words), 103u);

  CUDA_KERNEL_NODE_PARAMS bad = add;
  bad.gridDimX = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &bad));
  bad = add;
  bad.kernelParams = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &bad));
  bad = add;
  bad.func = nullptr;
  EXPECT_CU(CUDA_ERROR_INVALID_HANDLE, d.cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &bad));
}

TEST_F(GraphTest, UpdatesWhatWasInstantiated) {
  AddFill(graph, 1, 5, {AddFill(graph, 0, 4)});
  const CUgraphExec exec = Instantiate(graph);

  CUgraph same = nullptr, other = nullptr;
  ASSERT_OK(d.cuGraphCreate(&same, 0));
  AddFill(same, 1, 50, {AddFill(same, 0, 40)});
  CUgraphExecUpdateResultInfo info = {};
  EXPECT_OK(d.cuGraphExecUpdate_v2(exec, same, &info));
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  Run(exec);
  EXPECT_EQ(Word(words), 40u);
  EXPECT_EQ(Word(words + 4), 50u);

  ASSERT_OK(d.cuGraphCreate(&other, 0));
  AddFill(other, 0, 1);
  AddFill(other, 1, 2);
  EXPECT_CU(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, d.cuGraphExecUpdate_v2(exec, other, &info));
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
}

TEST_F(GraphTest, TheGenericCallAddsAnyNode) {
  CUgraphNodeParams parameters = {};
  parameters.type = CU_GRAPH_NODE_TYPE_MEMSET;
  parameters.memset = {words, 0, 8, 4, 1, 1, context};
  CUgraphNode node = nullptr;
  ASSERT_OK(d.cuGraphAddNode(&node, graph, nullptr, 0, &parameters));
  Run(Instantiate(graph));
  EXPECT_EQ(Word(words), 8u);
}

TEST_F(GraphTest, RefusesBadNodes) {
  auto fill = Fill(0, 1);
  CUgraphNode node = nullptr;
  fill.elementSize = 3;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, context));
  fill = Fill(0, 1);
  fill.height = 0;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, context));
  const CUDA_HOST_NODE_PARAMS nothing = {};
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphAddHostNode(&node, graph, nullptr, 0, &nothing));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphInstantiateWithFlags(nullptr, graph, 0));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphLaunch(nullptr, stream));
}

TEST_F(GraphTest, MemoryNodesKeepTheirAddress) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = {};
  allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  allocation.bytesize = 4096;
  CUgraphNode alloc = nullptr, free = nullptr;
  ASSERT_OK(d.cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &allocation));
  ASSERT_NE(allocation.dptr, 0u);
  const CUDA_MEMSET_NODE_PARAMS fill = {allocation.dptr, 0, 9, 4, 1, 1};
  CUgraphNode filled = nullptr, copied = nullptr;
  ASSERT_OK(d.cuGraphAddMemsetNode(&filled, graph, &alloc, 1, &fill, context));
  const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcDevice = allocation.dptr,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstDevice = words,
                              .WidthInBytes = 4,
                              .Height = 1,
                              .Depth = 1};
  ASSERT_OK(d.cuGraphAddMemcpyNode(&copied, graph, &filled, 1, &copy, context));
  ASSERT_OK(d.cuGraphAddMemFreeNode(&free, graph, &copied, 1, allocation.dptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphAddMemFreeNode(&free, graph, &copied, 1, allocation.dptr));
  CUgraph clone = nullptr;
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, d.cuGraphClone(&clone, graph));
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, d.cuGraphDestroyNode(free));

  const CUgraphExec exec = Instantiate(graph);
  CUgraphExec second = nullptr;
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, d.cuGraphInstantiateWithFlags(&second, graph, 0));
  Run(exec);
  Run(exec);
  EXPECT_EQ(Word(words), 9u);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuMemFree_v2(allocation.dptr));  // the graph has freed it
  EXPECT_OK(d.cuGraphExecDestroy(exec));
  EXPECT_OK(d.cuGraphDestroy(graph));
}

TEST_F(GraphTest, MemoryNodesTellTheirParameters) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = {};
  allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  allocation.bytesize = 4096;
  CUgraphNode alloc = nullptr, free = nullptr;
  ASSERT_OK(d.cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &allocation));
  ASSERT_OK(d.cuGraphAddMemFreeNode(&free, graph, &alloc, 1, allocation.dptr));
  CUDA_MEM_ALLOC_NODE_PARAMS told = {};
  EXPECT_OK(d.cuGraphMemAllocNodeGetParams(alloc, &told));
  EXPECT_EQ(told.dptr, allocation.dptr);
  EXPECT_EQ(told.bytesize, 4096u);
  CUdeviceptr freed = 0;
  EXPECT_OK(d.cuGraphMemFreeNodeGetParams(free, &freed));
  EXPECT_EQ(freed, allocation.dptr);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphMemFreeNodeGetParams(alloc, &freed));
  EXPECT_CU(CUDA_ERROR_NOT_SUPPORTED, d.cuGraphRemoveDependencies(graph, &alloc, &free, 1));
}

TEST_F(GraphTest, UserObjectsLiveAsLongAsGraphsAndTheirLaunches) {
  std::atomic<int> ended{0};
  const auto end = [](void* data) { ++*static_cast<std::atomic<int>*>(data); };
  CUuserObject object = nullptr;
  ASSERT_OK(d.cuUserObjectCreate(&object, &ended, end, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphRetainUserObject(graph, object, 3, CU_GRAPH_USER_OBJECT_MOVE));
  ASSERT_OK(d.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  EXPECT_OK(d.cuUserObjectRelease(object, 1));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuUserObjectRelease(object, 1));  // the other one is the graph's
  // A launch that waits until the word is set.
  CUevent event = nullptr;
  ASSERT_OK(d.cuEventCreate(&event, 0));
  CUgraphNode wait = nullptr;
  ASSERT_OK(d.cuGraphAddEventWaitNode(&wait, graph, nullptr, 0, event));
  const CUgraphExec exec = Instantiate(graph);
  EXPECT_OK(d.cuGraphDestroy(graph));
  EXPECT_EQ(ended, 0);
  const CUstream other = NewStream();
  ASSERT_OK(d.cuStreamWaitValue32_v2(other, words, 1, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_OK(d.cuEventRecord(event, other));
  EXPECT_OK(d.cuGraphLaunch(exec, stream));
  EXPECT_OK(d.cuGraphExecDestroy(exec));
  EXPECT_EQ(ended, 0);
  ASSERT_OK(d.cuStreamWriteValue32_v2(NewStream(), words, 1, 0));
  EXPECT_OK(d.cuStreamSynchronize(stream));
  while (ended == 0) std::this_thread::yield();  // the driver says nothing of when
  EXPECT_EQ(ended, 1);
}

TEST_F(GraphTest, MemoryThatAGraphLeavesOutlivesIt) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = {};
  allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  allocation.bytesize = 4096;
  CUgraphNode alloc = nullptr, free = nullptr;
  CUgraph other = nullptr;
  ASSERT_OK(d.cuGraphCreate(&other, 0));
  ASSERT_OK(d.cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &allocation));
  ASSERT_OK(d.cuGraphAddMemFreeNode(&free, other, nullptr, 0, allocation.dptr));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphAddMemFreeNode(&free, graph, &alloc, 1, allocation.dptr));
  const CUgraphExec exec = Instantiate(graph);
  Run(exec);
  EXPECT_OK(d.cuGraphExecDestroy(exec));
  EXPECT_OK(d.cuGraphDestroy(graph));
  EXPECT_OK(d.cuMemsetD32_v2(allocation.dptr, 3, 1024));
  EXPECT_OK(d.cuMemFreeAsync(allocation.dptr, stream));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuMemFreeAsync(allocation.dptr, stream));
  EXPECT_OK(d.cuStreamSynchronize(stream));
}

TEST_F(GraphTest, MemoryThatAGraphLeavesIsTheProgramsToFree) {
  CUDA_MEM_ALLOC_NODE_PARAMS allocation = {};
  allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocation.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  allocation.bytesize = 4096;
  CUgraphNode alloc = nullptr;
  ASSERT_OK(d.cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &allocation));
  const CUgraphExec exec = Instantiate(graph);
  Run(exec);
  EXPECT_OK(d.cuMemsetD32_v2(allocation.dptr, 3, 1024));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, d.cuGraphLaunch(exec, stream));
  EXPECT_OK(d.cuMemFree_v2(allocation.dptr));
  Run(exec);
  EXPECT_OK(d.cuMemFreeAsync(allocation.dptr, stream));
  EXPECT_OK(d.cuStreamSynchronize(stream));
}

}  // namespace
}  // namespace tessera::soft
