// Graphs with memory of the pager's heap: the driver's has empty nodes, the program sees memory nodes.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "shim/load/hook.h"
#include "shim/memory/paging.h"
#include "shim/testing/shim_fixture.h"

using namespace tessera::cuda;

TESSERA_HOOK cuMemAllocAsync(CUdeviceptr*, size_t, CUstream);
TESSERA_HOOK cuMemFreeAsync(CUdeviceptr, CUstream);
TESSERA_HOOK cuMemFree_v2(CUdeviceptr);
TESSERA_HOOK cuMemAlloc_v2(CUdeviceptr*, size_t);
TESSERA_HOOK cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
TESSERA_HOOK cuStreamEndCapture(CUstream, CUgraph*);
TESSERA_HOOK cuStreamDestroy_v2(CUstream);
TESSERA_HOOK cuStreamUpdateCaptureDependencies(CUstream, CUgraphNode*, size_t, unsigned);
TESSERA_HOOK cuGraphAddMemAllocNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUDA_MEM_ALLOC_NODE_PARAMS*);
TESSERA_HOOK cuGraphAddMemFreeNode(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUdeviceptr);
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
TESSERA_HOOK cuDeviceGetGraphMemAttribute(CUdevice, CUgraphMem_attribute, void*);

namespace tessera::shim {
namespace {

struct Object {
  CUhostFn destroy;
  void* data;
  ~Object() { destroy(data); }
};
using Objects = std::vector<std::shared_ptr<Object>>;

// The driver's graphs: nodes with what they come behind, and objects that graphs hold.
struct Driver {
  std::map<CUgraph, Objects> graphs;
  std::map<CUgraphExec, Objects> execs;
  std::map<CUgraphNode, std::vector<CUgraphNode>> nodes;
  std::map<CUuserObject, std::shared_ptr<Object>> objects;
  std::map<CUstream, std::vector<CUgraphNode>> captures;
  CUgraph captured = nullptr;
  int own_nodes = 0, launches = 0;
  bool has_objects = true;
};
Driver driver;
std::uintptr_t last_handle = 0x1000;  // no test has the handles of another

template <typename Handle>
Handle NewHandle() {
  return reinterpret_cast<Handle>(last_handle += 16);
}

CUresult AddEmpty(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count) {
  if (!driver.graphs.contains(graph)) return CUDA_ERROR_INVALID_VALUE;
  driver.nodes[*node = NewHandle<CUgraphNode>()] = {after, after + count};
  return CUDA_SUCCESS;
}
CUresult AddOwn(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUDA_MEM_ALLOC_NODE_PARAMS*) {
  return ++driver.own_nodes, CUDA_SUCCESS;
}
CUresult AddOwnFree(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUdeviceptr) {
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult AddAny(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUgraphNodeParams*) { return CUDA_SUCCESS; }
CUresult AddChild(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUgraph) { return CUDA_SUCCESS; }
CUresult Type(CUgraphNode, CUgraphNodeType* type) { return *type = CU_GRAPH_NODE_TYPE_EMPTY, CUDA_SUCCESS; }
CUresult NoParameters(CUgraphNode, void*) { return CUDA_ERROR_INVALID_VALUE; }
CUresult Dependencies(CUgraphNode node, CUgraphNode* before, std::size_t* count) {
  const auto& found = driver.nodes[node];
  *count = found.size();
  if (before) std::copy(found.begin(), found.end(), before);
  return CUDA_SUCCESS;
}
CUresult Clone(CUgraph*, CUgraph) { return CUDA_SUCCESS; }
CUresult DestroyNode(CUgraphNode) { return CUDA_SUCCESS; }
CUresult Remove(CUgraph, const CUgraphNode*, const CUgraphNode*, std::size_t) { return CUDA_SUCCESS; }
CUresult Destroy(CUgraph graph) { return driver.graphs.erase(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
CUresult Nodes(CUgraph, CUgraphNode*, std::size_t* count) { return *count = 0, CUDA_SUCCESS; }
CUresult Instantiate(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  driver.execs[*exec = NewHandle<CUgraphExec>()] = driver.graphs[graph];
  return CUDA_SUCCESS;
}
CUresult Update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo*) {
  return driver.execs[exec] = driver.graphs[graph], CUDA_SUCCESS;
}
CUresult DestroyExec(CUgraphExec exec) { return driver.execs.erase(exec), CUDA_SUCCESS; }
CUresult Launch(CUgraphExec, CUstream) { return ++driver.launches, CUDA_SUCCESS; }
CUresult CreateObject(CUuserObject* object, void* data, CUhostFn destroy, unsigned, unsigned) {
  if (!driver.has_objects) return CUDA_ERROR_NOT_SUPPORTED;
  driver.objects[*object = NewHandle<CUuserObject>()].reset(new Object{destroy, data});
  return CUDA_SUCCESS;
}
CUresult ReleaseObject(CUuserObject object, unsigned) { return driver.objects.erase(object), CUDA_SUCCESS; }
CUresult RetainObject(CUgraph graph, CUuserObject object, unsigned, unsigned) {
  if (!driver.graphs.contains(graph)) return CUDA_ERROR_INVALID_VALUE;
  driver.graphs[graph].push_back(driver.objects.extract(object).mapped());
  return CUDA_SUCCESS;
}
CUresult ReleaseOf(CUgraph graph, CUuserObject, unsigned) { return driver.graphs[graph].pop_back(), CUDA_SUCCESS; }
CUresult CaptureInfo(CUstream stream, CUstreamCaptureStatus* status, std::uint64_t* id, CUgraph* graph,
                     const CUgraphNode** after, const CUgraphEdgeData** edges, std::size_t* count) {
  *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  *id = 7;
  *graph = driver.captured;
  *after = driver.captures[stream].data();
  *count = driver.captures[stream].size();
  *edges = nullptr;
  return CUDA_SUCCESS;
}
CUresult GoOn(CUstream stream, CUgraphNode* after, std::size_t count, unsigned flags) {
  auto& captured = driver.captures[stream];
  if (flags & CU_STREAM_SET_CAPTURE_DEPENDENCIES) captured.clear();
  return captured.insert(captured.end(), after, after + count), CUDA_SUCCESS;
}
// Another thread captures a kernel into the stream of the first capture at the same time.
CUresult AddEmptyBesideKernel(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count) {
  driver.captures.begin()->second = {NewHandle<CUgraphNode>()};
  return AddEmpty(node, graph, after, count);
}
// A capture that was invalidated ends, and its graph with it.
CUresult (*end_capture)(CUstream, CUgraph*) = nullptr;
CUresult EndInvalid(CUstream stream, CUgraph* graph) {
  end_capture(stream, graph);
  *graph = nullptr;
  driver.graphs.erase(driver.captured);
  return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}
CUcontext streams_context = nullptr;
CUresult ContextOf(CUstream, CUcontext* context) { return *context = streams_context, CUDA_SUCCESS; }
CUresult Figure(CUdevice, CUgraphMem_attribute, void* value) {
  return *static_cast<std::uint64_t*>(value) = 0, CUDA_SUCCESS;
}

class GraphNodesTest : public ShimFixture {
 protected:
  GraphNodesTest() {
    Swap(wire::GateOrder::kFree);
    Attached();
    context = MakeContext();
    driver = {};
    Cuda().Put(k_cuGraphAddEmptyNode, &AddEmpty);
    Cuda().Put(k_cuGraphAddMemAllocNode, &AddOwn);
    Cuda().Put(k_cuGraphAddMemFreeNode, &AddOwnFree);
    Cuda().Put(k_cuGraphAddNode, &AddAny);
    Cuda().Put(k_cuGraphAddChildGraphNode, &AddChild);
    Cuda().Put(k_cuGraphNodeGetType, &Type);
    Cuda().Put(k_cuGraphMemAllocNodeGetParams, &NoParameters);
    Cuda().Put(k_cuGraphMemFreeNodeGetParams, &NoParameters);
    Cuda().Put(k_cuGraphNodeGetDependencies, &Dependencies);
    Cuda().Put(k_cuGraphClone, &Clone);
    Cuda().Put(k_cuGraphDestroyNode, &DestroyNode);
    Cuda().Put(k_cuGraphRemoveDependencies, &Remove);
    Cuda().Put(k_cuGraphDestroy, &Destroy);
    Cuda().Put(k_cuGraphGetNodes, &Nodes);
    Cuda().Put(k_cuGraphInstantiateWithFlags, &Instantiate);
    Cuda().Put(k_cuGraphExecUpdate_v2, &Update);
    Cuda().Put(k_cuGraphExecDestroy, &DestroyExec);
    Cuda().Put(k_cuGraphLaunch, &Launch);
    Cuda().Put(k_cuUserObjectCreate, &CreateObject);
    Cuda().Put(k_cuUserObjectRelease, &ReleaseObject);
    Cuda().Put(k_cuGraphRetainUserObject, &RetainObject);
    Cuda().Put(k_cuGraphReleaseUserObject, &ReleaseOf);
    Cuda().Put(k_cuStreamGetCaptureInfo_v3, &CaptureInfo);
    Cuda().Put(k_cuStreamUpdateCaptureDependencies, &GoOn);
    Cuda().Put(k_cuDeviceGetGraphMemAttribute, &Figure);
  }

  static CUgraph NewGraph() {
    const CUgraph graph = NewHandle<CUgraph>();
    driver.graphs[graph] = {};
    return graph;
  }
  CUDA_MEM_ALLOC_NODE_PARAMS Parameters(std::size_t bytes) const {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    parameters.bytesize = bytes;
    return parameters;
  }
  struct Allocated {
    CUgraphNode node = nullptr;
    CUdeviceptr address = 0;
  };
  Allocated Allocate(CUgraph graph, std::vector<CUgraphNode> after = {}, std::size_t bytes = 4 * kMiB) const {
    auto parameters = Parameters(bytes);
    Allocated made;
    EXPECT_EQ(cuGraphAddMemAllocNode(&made.node, graph, after.data(), after.size(), &parameters), CUDA_SUCCESS);
    made.address = parameters.dptr;
    return made;
  }
  static CUgraphNode Free(CUgraph graph, const Allocated& allocated) {
    CUgraphNode node = nullptr;
    EXPECT_EQ(cuGraphAddMemFreeNode(&node, graph, &allocated.node, 1, allocated.address), CUDA_SUCCESS);
    return node;
  }
  static CUgraphExec Make(CUgraph graph, unsigned long long flags = 0) {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(cuGraphInstantiateWithFlags(&exec, graph, flags), CUDA_SUCCESS);
    return exec;
  }
  // Whether the heap has a block there.
  bool Lives(CUdeviceptr address) {
    Attached().Pager()->Ordered().FreeReached();
    return Attached().Pager()->Heap().Find(address).has_value();
  }
  std::uint64_t Reserved() const {
    std::uint64_t bytes = 0;
    EXPECT_EQ(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes), CUDA_SUCCESS);
    return bytes;
  }

  CUcontext context = nullptr;
};

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
  ASSERT_EQ(AddEmpty(&between, graph, &freed, 1), CUDA_SUCCESS);
  const Allocated again = Allocate(graph, {between}, 3 * kMiB);
  EXPECT_EQ(again.address, first.address);
  EXPECT_NE(Allocate(graph, {freed}).address, first.address);  // is in use
  CUDA_MEM_ALLOC_NODE_PARAMS told{};
  EXPECT_EQ(cuGraphMemAllocNodeGetParams(again.node, &told), CUDA_SUCCESS);
  EXPECT_EQ(told.bytesize, 3 * kMiB);
  EXPECT_EQ(cuGraphMemAllocNodeGetParams(first.node, &told), CUDA_SUCCESS);
  EXPECT_EQ(told.bytesize, 4 * kMiB);
}

TEST_F(GraphNodesTest, MemoryGoesWithTheLastGraphThatHasIt) {
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

TEST_F(GraphNodesTest, WhatALaunchLeavesIsTheProgramsToFree) {
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

TEST_F(GraphNodesTest, ItOutlivesItsGraphs) {
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
  EXPECT_FALSE(Lives(other.address));
  EXPECT_EQ(Reserved(), 0u);
}

// Whatever context is current when the program frees it.
TEST_F(GraphNodesTest, WhatIsFreedInAStreamWaitsForTheStreamsContext) {
  const CUgraph graph = NewGraph();
  const Allocated made = Allocate(graph);
  const CUgraphExec exec = Make(graph);
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  const CUstream stream = Cuda().MakeStream();
  streams_context = context;
  Cuda().Put(k_cuStreamGetCtx, &ContextOf);
  FakeCuda::SetCurrent(nullptr);
  EXPECT_EQ(cuMemFreeAsync(made.address, stream), CUDA_SUCCESS);
  FakeCuda::SetCurrent(context);
  EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_TRUE(Lives(made.address)) << "work in the stream may use it still";
}

TEST_F(GraphNodesTest, ALaunchMayFreeWhatItsPredecessorLeft) {
  const CUgraph graph = NewGraph();
  const Allocated made = Allocate(graph);
  const CUgraphExec exec = Make(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(made.address), CUDA_SUCCESS);
}

TEST_F(GraphNodesTest, AnotherGraphMayFreeIt) {
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

TEST_F(GraphNodesTest, AGraphThatIsGoneFreesNothing) {
  const CUgraph graph = NewGraph(), frees = NewGraph(), other = NewGraph();
  const Allocated made = Allocate(graph);
  CUgraphNode node = nullptr;
  EXPECT_EQ(cuGraphAddMemFreeNode(&node, frees, nullptr, 0, made.address), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphAddMemFreeNode(&node, other, nullptr, 0, made.address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphDestroy(frees), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphAddMemFreeNode(&node, other, nullptr, 0, made.address), CUDA_SUCCESS);
}

TEST_F(GraphNodesTest, WhatLiesThereLaterIsNotTheGraphsToFree) {
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

TEST_F(GraphNodesTest, CapturesKeepTheOrderOfTheirStreams) {
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

TEST_F(GraphNodesTest, WorkThatAnotherThreadCapturesMeanwhileStaysInOrder) {
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
TEST_F(GraphNodesTest, OfACaptureThatFailsNothingIsKnown) {
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
class FailedCaptureTest : public GraphNodesTest {
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

// What a dying graph had freed is not taken again by a new one that has got its handle.
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
