// Graphs with memory of the pager's heap: the driver's has empty nodes, the program sees memory nodes.
#include <gtest/gtest.h>

#include <vector>

#include "shim/load/hook.h"
#include "shim/testing/graph_fixture.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemFree_v2(CUdeviceptr);
TESSERA_HOOK cuGraphAddMemAllocNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUDA_MEM_ALLOC_NODE_PARAMS*);
TESSERA_HOOK cuGraphAddNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUgraphNodeParams*);
TESSERA_HOOK cuGraphAddChildGraphNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUgraph);
TESSERA_HOOK cuGraphNodeGetType(CUgraphNode, CUgraphNodeType*);
TESSERA_HOOK cuGraphMemAllocNodeGetParams(CUgraphNode, CUDA_MEM_ALLOC_NODE_PARAMS*);
TESSERA_HOOK cuGraphMemFreeNodeGetParams(CUgraphNode, CUdeviceptr*);
TESSERA_HOOK cuGraphClone(CUgraph*, CUgraph);
TESSERA_HOOK cuGraphDestroy(CUgraph);
TESSERA_HOOK cuGraphDestroyNode(CUgraphNode);
TESSERA_HOOK cuGraphRemoveDependencies(CUgraph, const CUgraphNode*, const CUgraphNode*, size_t);
TESSERA_HOOK cuGraphInstantiateWithFlags(CUgraphExec*, CUgraph, unsigned long long);
TESSERA_HOOK cuGraphExecUpdate_v2(CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*);
TESSERA_HOOK cuGraphExecDestroy(CUgraphExec);
TESSERA_HOOK cuGraphLaunch(CUgraphExec, CUstream);

namespace tessera::shim {
namespace {

class GraphNodesTest : public GraphFixture {};

TEST_F(GraphNodesTest, TheProgramSeesMemoryNodesAndTheDriverEmptyOnes) {
  const CUgraph graph = NewGraph();
  const Allocated made = Allocate(graph);
  const CUgraphNode freed = Free(graph, made);
  EXPECT_EQ(Paging::Of(made.address), Attached().Pager());
  EXPECT_EQ(driver.nodes[freed], std::vector{made.node});
  CUgraphNodeType type;
  EXPECT_EQ(cuGraphNodeGetType(made.node, &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  EXPECT_EQ(cuGraphNodeGetType(freed, &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_MEM_FREE);
  EXPECT_EQ(cuGraphNodeGetType(NewHandle<CUgraphNode>(), &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_EMPTY);
  CUDA_MEM_ALLOC_NODE_PARAMS told{};
  EXPECT_EQ(cuGraphMemAllocNodeGetParams(made.node, &told), CUDA_SUCCESS);
  EXPECT_EQ(told.dptr, made.address);
  EXPECT_EQ(told.bytesize, 4 * kMiB);
  EXPECT_EQ(told.poolProps.location.id, device);
  EXPECT_EQ(cuGraphMemAllocNodeGetParams(freed, &told), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuGraphMemFreeNodeGetParams(freed, &address), CUDA_SUCCESS);
  EXPECT_EQ(address, made.address);
  EXPECT_EQ(driver.own_nodes, 0);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphNodeGetType(made.node, &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_EMPTY);  // another node may have the handle
}

TEST_F(GraphNodesTest, TheGenericCallMakesThemToo) {
  const CUgraph graph = NewGraph();
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  parameters.alloc = Parameters(kMiB);
  CUgraphNode made = nullptr, freed = nullptr;
  ASSERT_EQ(cuGraphAddNode(&made, graph, nullptr, 0, &parameters), CUDA_SUCCESS);
  const CUdeviceptr address = parameters.alloc.dptr;
  EXPECT_TRUE(Lives(address));
  parameters = {};
  parameters.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  parameters.free.dptr = address;
  ASSERT_EQ(cuGraphAddNode(&freed, graph, &made, 1, &parameters), CUDA_SUCCESS);
  CUgraphNodeType type;
  EXPECT_EQ(cuGraphNodeGetType(freed, &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_MEM_FREE);
}

TEST_F(GraphNodesTest, AGraphTakesItsMemoryAgainBehindTheFree) {
  const CUgraph graph = NewGraph();
  const Allocated first = Allocate(graph);
  const CUgraphNode freed = Free(graph, first);
  EXPECT_NE(Allocate(graph).address, first.address);                      // may run at the same time
  EXPECT_NE(Allocate(graph, {first.node}).address, first.address);        // as well
  EXPECT_NE(Allocate(graph, {freed}, 10 * kMiB).address, first.address);  // is larger
  EXPECT_NE(Allocate(graph, {freed}, 512).address, first.address);        // would waste it
  CUgraphNode between = nullptr;
  ASSERT_EQ(FakeGraphs::AddEmpty(&between, graph, &freed, 1), CUDA_SUCCESS);
  const Allocated again = Allocate(graph, {between}, 3 * kMiB);
  EXPECT_EQ(again.address, first.address);
  EXPECT_NE(Allocate(graph, {freed}).address, first.address);  // is in use
  CUDA_MEM_ALLOC_NODE_PARAMS told{};
  EXPECT_EQ(cuGraphMemAllocNodeGetParams(again.node, &told), CUDA_SUCCESS);
  EXPECT_EQ(told.bytesize, 3 * kMiB);
  EXPECT_EQ(cuGraphMemAllocNodeGetParams(first.node, &told), CUDA_SUCCESS);
  EXPECT_EQ(told.bytesize, 4 * kMiB);
}

TEST_F(GraphNodesTest, GraphsWithMemoryAreNotCopiedNorTakenApart) {
  const CUgraph graph = NewGraph(), other = NewGraph();
  const Allocated made = Allocate(graph);
  const CUgraphNode freed = Free(graph, made);
  CUgraph clone = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec second = nullptr;
  EXPECT_EQ(cuGraphClone(&clone, graph), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuGraphAddChildGraphNode(&node, other, nullptr, 0, graph), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuGraphDestroyNode(freed), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuGraphRemoveDependencies(graph, &made.node, &freed, 1), CUDA_ERROR_NOT_SUPPORTED);
  const CUgraphExec exec = Make(graph);
  EXPECT_EQ(cuGraphInstantiateWithFlags(&second, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  second = Make(graph);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_EQ(cuGraphExecUpdate_v2(second, graph, &info), CUDA_SUCCESS);
  const CUgraphExec third = Make(other);
  EXPECT_EQ(cuGraphExecUpdate_v2(third, graph, &info), CUDA_ERROR_NOT_SUPPORTED) << "another one was made of it";
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  EXPECT_EQ(cuGraphExecDestroy(second), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphExecUpdate_v2(third, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR);
  EXPECT_EQ(cuGraphClone(&clone, other), CUDA_SUCCESS);
}

// A child that was moved into another graph ends with it.
TEST_F(GraphNodesTest, AGraphThatIsMovedIntoAnotherKeepsItsMemory) {
  const CUgraph child = NewGraph(), parent = NewGraph();
  const Allocated made = Allocate(child);
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_GRAPH;
  parameters.graph = {child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE};
  CUgraphNode node = nullptr;
  EXPECT_EQ(cuGraphAddNode(&node, parent, nullptr, 0, &parameters), CUDA_ERROR_NOT_SUPPORTED);
  parameters.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  EXPECT_EQ(cuGraphAddNode(&node, parent, nullptr, 0, &parameters), CUDA_SUCCESS);
  CUgraph clone = nullptr;
  EXPECT_EQ(cuGraphClone(&clone, parent), CUDA_ERROR_NOT_SUPPORTED);
  const CUgraphExec exec = Make(parent);
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree_v2(made.address), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(parent), CUDA_SUCCESS);
  CUgraphNodeType type;
  EXPECT_EQ(cuGraphNodeGetType(made.node, &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_EMPTY);
}

TEST_F(GraphNodesTest, OtherAllocationsAreTheDrivers) {
  const CUgraph graph = NewGraph();
  CUgraphNode node = nullptr;
  auto shared = Parameters(kMiB);
  shared.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  auto peer = Parameters(kMiB);
  const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, (device + 1) % 64}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  peer.accessDescs = &access;
  peer.accessDescCount = 1;
  auto nothing = Parameters(0);
  for (auto* parameters : {&shared, &peer, &nothing})
    EXPECT_EQ(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, parameters), CUDA_SUCCESS);
  EXPECT_EQ(driver.own_nodes, 3);
  driver.has_objects = false;
  auto plain = Parameters(kMiB);
  EXPECT_EQ(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &plain), CUDA_SUCCESS);
  EXPECT_EQ(driver.own_nodes, 4);
  EXPECT_EQ(Reserved(), 0u);
}

TEST_F(GraphNodesTest, ABadPlaceTakesNoMemory) {
  auto parameters = Parameters(kMiB);
  CUgraphNode node = nullptr;
  EXPECT_EQ(cuGraphAddMemAllocNode(&node, NewHandle<CUgraph>(), nullptr, 0, &parameters), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Reserved(), 0u);
}

}  // namespace
}  // namespace tessera::shim
