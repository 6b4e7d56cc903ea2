#include "shim/testing/fake_graphs.h"

#include <algorithm>

namespace tessera::shim {

using namespace cuda;

FakeGraphs fake_graphs;

CUresult FakeGraphs::AddEmpty(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count) {
  if (!fake_graphs.graphs.contains(graph)) return CUDA_ERROR_INVALID_VALUE;
  fake_graphs.nodes[*node = NewHandle<CUgraphNode>()] = {after, after + count};
  return CUDA_SUCCESS;
}

namespace {

CUresult AddOwn(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUDA_MEM_ALLOC_NODE_PARAMS*) {
  return ++fake_graphs.own_nodes, CUDA_SUCCESS;
}
CUresult AddOwnFree(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUdeviceptr) {
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult AddAny(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUgraphNodeParams*) { return CUDA_SUCCESS; }
CUresult AddChild(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, CUgraph) { return CUDA_SUCCESS; }
CUresult Type(CUgraphNode, CUgraphNodeType* type) { return *type = CU_GRAPH_NODE_TYPE_EMPTY, CUDA_SUCCESS; }
CUresult NoParameters(CUgraphNode, void*) { return CUDA_ERROR_INVALID_VALUE; }
CUresult Dependencies(CUgraphNode node, CUgraphNode* before, std::size_t* count) {
  const auto& found = fake_graphs.nodes[node];
  *count = found.size();
  if (before) std::copy(found.begin(), found.end(), before);
  return CUDA_SUCCESS;
}
CUresult Clone(CUgraph*, CUgraph) { return CUDA_SUCCESS; }
CUresult DestroyNode(CUgraphNode) { return CUDA_SUCCESS; }
CUresult Remove(CUgraph, const CUgraphNode*, const CUgraphNode*, std::size_t) { return CUDA_SUCCESS; }
CUresult Destroy(CUgraph graph) { return fake_graphs.graphs.erase(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
CUresult Nodes(CUgraph, CUgraphNode*, std::size_t* count) { return *count = 0, CUDA_SUCCESS; }
CUresult Instantiate(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  fake_graphs.execs[*exec = NewHandle<CUgraphExec>()] = fake_graphs.graphs[graph];
  return CUDA_SUCCESS;
}
CUresult Update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo*) {
  return fake_graphs.execs[exec] = fake_graphs.graphs[graph], CUDA_SUCCESS;
}
CUresult DestroyExec(CUgraphExec exec) { return fake_graphs.execs.erase(exec), CUDA_SUCCESS; }
CUresult Launch(CUgraphExec, CUstream) { return ++fake_graphs.launches, CUDA_SUCCESS; }
CUresult CreateObject(CUuserObject* object, void* data, CUhostFn destroy, unsigned, unsigned) {
  if (!fake_graphs.has_objects) return CUDA_ERROR_NOT_SUPPORTED;
  fake_graphs.objects[*object = NewHandle<CUuserObject>()].reset(new FakeGraphs::Object{destroy, data});
  return CUDA_SUCCESS;
}
CUresult ReleaseObject(CUuserObject object, unsigned) { return fake_graphs.objects.erase(object), CUDA_SUCCESS; }
CUresult RetainObject(CUgraph graph, CUuserObject object, unsigned, unsigned) {
  if (!fake_graphs.graphs.contains(graph)) return CUDA_ERROR_INVALID_VALUE;
  fake_graphs.graphs[graph].push_back(fake_graphs.objects.extract(object).mapped());
  return CUDA_SUCCESS;
}
CUresult ReleaseOf(CUgraph graph, CUuserObject, unsigned) { return fake_graphs.graphs[graph].pop_back(), CUDA_SUCCESS; }
CUresult CaptureInfo(CUstream stream, CUstreamCaptureStatus* status, std::uint64_t* id, CUgraph* graph,
                     const CUgraphNode** after, const CUgraphEdgeData** edges, std::size_t* count) {
  *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  *id = 7;
  *graph = fake_graphs.captured;
  *after = fake_graphs.captures[stream].data();
  *count = fake_graphs.captures[stream].size();
  *edges = nullptr;
  return CUDA_SUCCESS;
}
CUresult GoOn(CUstream stream, CUgraphNode* after, std::size_t count, unsigned flags) {
  auto& captured = fake_graphs.captures[stream];
  if (flags & CU_STREAM_SET_CAPTURE_DEPENDENCIES) captured.clear();
  return captured.insert(captured.end(), after, after + count), CUDA_SUCCESS;
}
CUresult Figure(CUdevice, CUgraphMem_attribute, void* value) {
  return *static_cast<std::uint64_t*>(value) = 0, CUDA_SUCCESS;
}

}  // namespace

void PutGraphs(FakeCuda& cuda) {
  cuda.Put(k_cuGraphAddEmptyNode, &FakeGraphs::AddEmpty);
  cuda.Put(k_cuGraphAddMemAllocNode, &AddOwn);
  cuda.Put(k_cuGraphAddMemFreeNode, &AddOwnFree);
  cuda.Put(k_cuGraphAddNode, &AddAny);
  cuda.Put(k_cuGraphAddChildGraphNode, &AddChild);
  cuda.Put(k_cuGraphNodeGetType, &Type);
  cuda.Put(k_cuGraphMemAllocNodeGetParams, &NoParameters);
  cuda.Put(k_cuGraphMemFreeNodeGetParams, &NoParameters);
  cuda.Put(k_cuGraphNodeGetDependencies, &Dependencies);
  cuda.Put(k_cuGraphClone, &Clone);
  cuda.Put(k_cuGraphDestroyNode, &DestroyNode);
  cuda.Put(k_cuGraphRemoveDependencies, &Remove);
  cuda.Put(k_cuGraphDestroy, &Destroy);
  cuda.Put(k_cuGraphGetNodes, &Nodes);
  cuda.Put(k_cuGraphInstantiateWithFlags, &Instantiate);
  cuda.Put(k_cuGraphExecUpdate_v2, &Update);
  cuda.Put(k_cuGraphExecDestroy, &DestroyExec);
  cuda.Put(k_cuGraphLaunch, &Launch);
  cuda.Put(k_cuUserObjectCreate, &CreateObject);
  cuda.Put(k_cuUserObjectRelease, &ReleaseObject);
  cuda.Put(k_cuGraphRetainUserObject, &RetainObject);
  cuda.Put(k_cuGraphReleaseUserObject, &ReleaseOf);
  cuda.Put(k_cuStreamGetCaptureInfo_v3, &CaptureInfo);
  cuda.Put(k_cuStreamUpdateCaptureDependencies, &GoOn);
  cuda.Put(k_cuDeviceGetGraphMemAttribute, &Figure);
}

}  // namespace tessera::shim
