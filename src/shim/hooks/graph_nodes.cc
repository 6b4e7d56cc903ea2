// Graphs that allocate and free memory: their nodes, and what such a graph is not allowed. Where memory may be swapped
// the memory is the pager's, and the driver has empty nodes; the program sees memory nodes.
#include <algorithm>
#include <unordered_set>
#include <vector>

#include "shim/device/current.h"
#include "shim/graph/make_memory_node.h"
#include "shim/graph/memory_execs.h"
#include "shim/use/graph_memory.h"

using namespace tessera::cuda;
using namespace tessera::shim;

namespace {

// The heap that such an allocation can come from; null: the driver has to make it.
Paging* PagingFor(const CUDA_MEM_ALLOC_NODE_PARAMS& parameters) {
  const CUmemPoolProps& pool = parameters.poolProps;
  if (parameters.bytesize == 0 || pool.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      pool.handleTypes != CU_MEM_HANDLE_TYPE_NONE || pool.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
      pool.usage != 0 || (parameters.accessDescCount > 0 && !parameters.accessDescs))
    return nullptr;
  const Attachment* attachment = Attachment::Of(pool.location.id);
  Paging* paging = attachment ? attachment->Pager() : nullptr;
  const auto reached = [=](const CUmemAccessDesc& access) {
    return access.location.type == CU_MEM_LOCATION_TYPE_DEVICE && access.location.id >= 0 && access.location.id < 64 &&
           Reaches(*paging, access.location.id);
  };
  const CUmemAccessDesc* accesses = parameters.accessDescs;
  return paging && std::all_of(accesses, accesses + parameters.accessDescCount, reached) ? paging : nullptr;
}

NodePlace Behind(CUgraph graph, const CUgraphNode* after, size_t count) {
  return {.graph = graph, .after = {after, after + (after ? count : 0)}, .order = {}};
}

// A node by the generic call. None: the driver makes it.
std::optional<CUresult> MakeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                 CUgraphNodeParams* parameters) {
  if (!node || !parameters || (count > 0 && !after)) return std::nullopt;
  if (parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    Paging* paging = PagingFor(parameters->alloc);
    if (!paging) return std::nullopt;
    return MakeAllocationNode(*paging, Behind(graph, after, count), &parameters->alloc, node);
  }
  if (parameters->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
    return MakeFreeNode(Behind(graph, after, count), parameters->free.dptr, node);
  // A graph with memory can be in another one only if it is moved there.
  if (parameters->type == CU_GRAPH_NODE_TYPE_GRAPH && MemoryNodes::Any() &&
      parameters->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE &&
      MemoryNodes::Instance().Has(parameters->graph.graph))
    return CUDA_ERROR_NOT_SUPPORTED;
  return std::nullopt;
}

// After the driver made it.
CUresult NodeMade(CUresult result, CUgraph graph, const CUgraphNodeParams* parameters) {
  if (result == CUDA_SUCCESS && parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) NoteGraphMemory();
  if (result == CUDA_SUCCESS && parameters->type == CU_GRAPH_NODE_TYPE_GRAPH && MemoryNodes::Any() &&
      parameters->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
    MemoryNodes::Instance().Adopt(graph, parameters->graph.graph);
  return result;
}

bool HasMemoryNodes(CUgraph graph) { return MemoryNodes::Any() && MemoryNodes::Instance().Has(graph); }

// The node, if it is one of ours of this type.
std::optional<MemoryNode> Find(CUgraphNode node, CUgraphNodeType type) {
  if (!MemoryNodes::Any()) return std::nullopt;
  FreeReachedEverywhere();  // of graphs that are gone nothing is known
  const auto found = MemoryNodes::Instance().Find(node);
  return found && (type == CU_GRAPH_NODE_TYPE_EMPTY || found->type == type) ? found : std::nullopt;
}

// Whether edges lead from the node to a memory node, in any direction: the driver does not say which graph has a node.
bool IsBesideMemoryNodes(CUgraphNode node) {
  constexpr std::size_t kMostLookedAt = 1000;
  if (!MemoryNodes::Any()) return false;
  std::unordered_set<CUgraphNode> found{node};
  std::vector<CUgraphNode> open{node};
  for (std::size_t i = 0; i < open.size() && i < kMostLookedAt; ++i) {
    if (Find(open[i], CU_GRAPH_NODE_TYPE_EMPTY)) return true;
    for (const auto ask : {REAL_AS(cuGraphNodeGetDependencies, CUgraphNode, CUgraphNode*, size_t*),
                           REAL_AS(cuGraphNodeGetDependentNodes, CUgraphNode, CUgraphNode*, size_t*)}) {
      size_t count = 0;
      if (ask(open[i], nullptr, &count) != CUDA_SUCCESS || count == 0) continue;
      std::vector<CUgraphNode> beside(count);
      if (ask(open[i], beside.data(), &count) != CUDA_SUCCESS) continue;
      for (size_t each = 0; each < std::min(count, beside.size()); ++each)
        if (found.insert(beside[each]).second) open.push_back(beside[each]);
    }
  }
  return false;
}

}  // namespace

// ---- nodes are added ----

TESSERA_HOOK cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                    CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  Paging* paging = node && parameters && (after || count == 0) ? PagingFor(*parameters) : nullptr;
  if (paging) {
    if (const auto made = MakeAllocationNode(*paging, Behind(graph, after, count), parameters, node)) return *made;
  }
  const CUresult result = REAL(cuGraphAddMemAllocNode)(node, graph, after, count, parameters);
  if (result == CUDA_SUCCESS) NoteGraphMemory();
  return result;
}

TESSERA_HOOK cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                   CUdeviceptr address) {
  if (node && (after || count == 0)) {
    if (const auto made = MakeFreeNode(Behind(graph, after, count), address, node)) return *made;
  }
  return REAL(cuGraphAddMemFreeNode)(node, graph, after, count, address);
}

TESSERA_HOOK cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                            CUgraphNodeParams* parameters) {
  if (const auto made = MakeNode(node, graph, after, count, parameters)) return *made;
  return NodeMade(REAL(cuGraphAddNode)(node, graph, after, count, parameters), graph, parameters);
}

// Edges with data lead only from and to kernels.
TESSERA_HOOK cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, const CUgraphEdgeData* edges,
                               size_t count, CUgraphNodeParams* parameters) {
  if (!edges) {
    if (const auto made = MakeNode(node, graph, after, count, parameters)) return *made;
  }
  return NodeMade(REAL(cuGraphAddNode_v2)(node, graph, after, edges, count, parameters), graph, parameters);
}

TESSERA_HOOK cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, size_t count,
                                      CUgraph child) {
  if (HasMemoryNodes(child)) return CUDA_ERROR_NOT_SUPPORTED;
  return REAL(cuGraphAddChildGraphNode)(node, graph, after, count, child);
}

// ---- questions ----

TESSERA_HOOK cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  const CUresult result = REAL(cuGraphNodeGetType)(node, type);
  if (result != CUDA_SUCCESS || !type || *type != CU_GRAPH_NODE_TYPE_EMPTY) return result;
  if (const auto found = Find(node, CU_GRAPH_NODE_TYPE_EMPTY)) *type = found->type;
  return result;
}

TESSERA_HOOK cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  const auto found = parameters ? Find(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC) : std::nullopt;
  if (!found) return REAL(cuGraphMemAllocNodeGetParams)(node, parameters);
  *parameters = found->parameters;
  return CUDA_SUCCESS;
}

TESSERA_HOOK cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* address) {
  const auto found = address ? Find(node, CU_GRAPH_NODE_TYPE_MEM_FREE) : std::nullopt;
  if (!found) return REAL(cuGraphMemFreeNodeGetParams)(node, address);
  *address = found->parameters.dptr;
  return CUDA_SUCCESS;
}

// ---- what graphs with memory are not allowed: to be copied, and to lose nodes or edges ----

TESSERA_HOOK cuGraphClone(CUgraph* clone, CUgraph graph) {
  return HasMemoryNodes(graph) ? CUDA_ERROR_NOT_SUPPORTED : REAL(cuGraphClone)(clone, graph);
}

TESSERA_HOOK cuGraphDestroyNode(CUgraphNode node) {
  return IsBesideMemoryNodes(node) ? CUDA_ERROR_NOT_SUPPORTED : REAL(cuGraphDestroyNode)(node);
}

TESSERA_HOOK cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, size_t count) {
  return HasMemoryNodes(graph) ? CUDA_ERROR_NOT_SUPPORTED : REAL(cuGraphRemoveDependencies)(graph, from, to, count);
}

TESSERA_HOOK cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                          const CUgraphEdgeData* edges, size_t count) {
  return HasMemoryNodes(graph) ? CUDA_ERROR_NOT_SUPPORTED
                               : REAL(cuGraphRemoveDependencies_v2)(graph, from, to, edges, count);
}

// Before: another thread may be given the same handles as soon as they are free.
TESSERA_HOOK cuGraphDestroy(CUgraph graph) {
  ForgetGraphMemory(graph);
  return REAL(cuGraphDestroy)(graph);
}

// ---- captures ----

#define UPDATE_DEPENDENCIES(name)                                                        \
  TESSERA_HOOK name(CUstream stream, CUgraphNode* after, size_t count, unsigned flags) { \
    if (MemoryNodes::Any() && (flags & CU_STREAM_SET_CAPTURE_DEPENDENCIES) != 0)         \
      MemoryNodes::Instance().BreakOrder(stream);                                        \
    return REAL(name)(stream, after, count, flags);                                      \
  }
UPDATE_DEPENDENCIES(cuStreamUpdateCaptureDependencies)
UPDATE_DEPENDENCIES(cuStreamUpdateCaptureDependencies_ptsz)

#define UPDATE_DEPENDENCIES_V2(name)                                                                                   \
  TESSERA_HOOK name(CUstream stream, CUgraphNode* after, const CUgraphEdgeData* edges, size_t count, unsigned flags) { \
    if (MemoryNodes::Any() && (flags & CU_STREAM_SET_CAPTURE_DEPENDENCIES) != 0)                                       \
      MemoryNodes::Instance().BreakOrder(stream);                                                                      \
    return REAL(name)(stream, after, edges, count, flags);                                                             \
  }
UPDATE_DEPENDENCIES_V2(cuStreamUpdateCaptureDependencies_v2)
UPDATE_DEPENDENCIES_V2(cuStreamUpdateCaptureDependencies_v2_ptsz)

// ---- figures: of the driver's own memory nodes, and of ours ----

namespace {

StreamPool* GraphPoolOf(CUdevice device) {
  const Attachment* attachment = MemoryNodes::Any() ? Attachment::Of(device) : nullptr;
  Paging* paging = attachment ? attachment->Pager() : nullptr;
  if (paging) paging->Ordered().FreeReached();
  return paging ? &paging->Ordered().Graphs().Pool() : nullptr;
}

std::optional<CUmemPool_attribute> LikeAttribute(CUgraphMem_attribute attribute) {
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      return CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      return CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      return CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      return CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
  }
  return std::nullopt;
}

}  // namespace

TESSERA_HOOK cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  const CUresult result = REAL(cuDeviceGetGraphMemAttribute)(device, attribute, value);
  const auto like = LikeAttribute(attribute);
  std::uint64_t ours = 0;
  if (result != CUDA_SUCCESS || !like) return result;
  if (const StreamPool* pool = GraphPoolOf(device); pool && pool->Get(*like, &ours))
    *static_cast<std::uint64_t*>(value) += ours;
  return result;
}

TESSERA_HOOK cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  const CUresult result = REAL(cuDeviceSetGraphMemAttribute)(device, attribute, value);
  const auto like = LikeAttribute(attribute);
  if (result != CUDA_SUCCESS || !like) return result;
  if (StreamPool* pool = GraphPoolOf(device)) pool->Set(*like, value);
  return result;
}

// What graphs hold stays; what none holds is given back.
TESSERA_HOOK cuDeviceGraphMemTrim(CUdevice device) {
  GraphPoolOf(device);
  return REAL(cuDeviceGraphMemTrim)(device);
}
