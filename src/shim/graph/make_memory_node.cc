#include "shim/graph/make_memory_node.h"

#include <algorithm>
#include <unordered_set>

#include "base/fork_mutex.h"
#include "shim/gate/capture.h"
#include "shim/load/real.h"

namespace tessera::shim {

using namespace cuda;

namespace {

// So many nodes before a new one are looked at for memory that it may have again.
constexpr std::size_t kMostLookedAt = 1000;

// Held while a capture is asked for its place, gets a node there, and goes on behind it: several threads may capture
// into one stream.
ForkMutex capture_mutex;

template <typename... Arguments>
CUresult Ask(unsigned symbol, Arguments... arguments) {
  return reinterpret_cast<CUresult (*)(Arguments...)>(RealAddress(symbol))(arguments...);
}

// The nodes that end before the place is reached, as far as they are looked at.
std::unordered_set<CUgraphNode> NodesBefore(const NodePlace& place) {
  std::unordered_set<CUgraphNode> found(place.after.begin(), place.after.end());
  std::vector<CUgraphNode> open(place.after);
  for (std::size_t i = 0; i < open.size() && i < kMostLookedAt; ++i) {
    const auto ask = REAL_AS(cuGraphNodeGetDependencies, CUgraphNode, CUgraphNode*, std::size_t*);
    std::size_t count = 0;
    if (ask(open[i], nullptr, &count) != CUDA_SUCCESS || count == 0) continue;
    std::vector<CUgraphNode> before(count);
    if (ask(open[i], before.data(), &count) != CUDA_SUCCESS) continue;
    before.resize(std::min(count, before.size()));
    std::ranges::copy_if(before, std::back_inserter(open), [&](CUgraphNode each) { return found.insert(each).second; });
  }
  return found;
}

std::optional<SpareMemory> TakeSpare(const Paging& paging, const NodePlace& place, std::uint64_t bytes) {
  MemoryNodes& nodes = MemoryNodes::Instance();
  std::vector<SpareMemory> spare = nodes.SpareOf(place.graph, bytes);
  std::erase_if(spare, [&](const SpareMemory& each) { return Paging::Of(each.address) != &paging; });
  const bool captures = place.order != CaptureOrder{};
  for (const SpareMemory& each : spare)
    if (captures && each.order == place.order && nodes.Take(place.graph, each)) return each;
  if (spare.empty()) return std::nullopt;
  const std::unordered_set<CUgraphNode> before = NodesBefore(place);
  for (const SpareMemory& each : spare)
    if (before.contains(each.freed_by) && nodes.Take(place.graph, each)) return each;
  return std::nullopt;
}

CUresult AddEmptyNode(const NodePlace& place, CUgraphNode* node) {
  const auto add = REAL_AS(cuGraphAddEmptyNode, CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t);
  return add(node, place.graph, place.after.data(), place.after.size());
}

// Gives the graph a block that it holds. None: the driver has no user objects.
std::optional<CUresult> GiveBlock(Paging& paging, CUgraph graph, std::uint64_t bytes, SpareMemory* block,
                                  CUuserObject* object) {
  GraphBlocks::Hold* hold = nullptr;
  const CUresult result = paging.Ordered().AllocateForGraph(bytes, &block->address, &hold);
  if (result != CUDA_SUCCESS) return result;
  block->bytes = bytes;
  block->id = hold->id;
  if (Ask(k_cuUserObjectCreate, object, static_cast<void*>(hold), &GraphBlocks::Drop, 1u,
          unsigned{CU_USER_OBJECT_NO_DESTRUCTOR_SYNC}) != CUDA_SUCCESS) {
    GraphBlocks::Drop(hold);
    return std::nullopt;
  }
  const CUresult retained = Ask(k_cuGraphRetainUserObject, graph, *object, 1u, unsigned{CU_GRAPH_USER_OBJECT_MOVE});
  if (retained != CUDA_SUCCESS) Ask(k_cuUserObjectRelease, *object, 1u);
  return retained;
}

// Where the next work of a stream that captures goes.
std::optional<NodePlace> PlaceIn(CUstream stream, bool per_thread) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  NodePlace place;
  std::uint64_t id = 0;
  const CUgraphNode* after = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  CUresult asked = Ask(per_thread ? k_cuStreamGetCaptureInfo_v3_ptsz : k_cuStreamGetCaptureInfo_v3, stream, &status,
                       &id, &place.graph, &after, &edges, &count);
  if (asked != CUDA_SUCCESS)  // a driver before 12.3
    asked = Ask(per_thread ? k_cuStreamGetCaptureInfo_v2_ptsz : k_cuStreamGetCaptureInfo_v2, stream, &status, &id,
                &place.graph, &after, &count);
  if (asked != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_ACTIVE || !place.graph) return std::nullopt;
  const auto plain = [](const CUgraphEdgeData& edge) {
    return edge.from_port == 0 && edge.to_port == 0 && edge.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
  };
  if (edges && !std::all_of(edges, edges + count, plain)) return std::nullopt;
  place.after.assign(after, after + count);
  // Several threads' own default streams, which have one handle, may be in one capture.
  if (stream && stream != CU_STREAM_PER_THREAD) place.order = {id, stream};
  return place;
}

// What the stream captures next comes behind the node, which was placed at `place`, and behind what another thread has
// captured meanwhile.
CUresult GoOnBehind(CUgraphNode node, const NodePlace& place, CUstream stream, bool per_thread) {
  const auto now = PlaceIn(stream, per_thread);
  const bool alone = now && now->after == place.after;
  return Ask(per_thread ? k_cuStreamUpdateCaptureDependencies_ptsz : k_cuStreamUpdateCaptureDependencies, stream, &node,
             std::size_t{1}, unsigned{alone ? CU_STREAM_SET_CAPTURE_DEPENDENCIES : CU_STREAM_ADD_CAPTURE_DEPENDENCIES});
}

}  // namespace

std::optional<CUresult> MakeAllocationNode(Paging& paging, const NodePlace& place,
                                           CUDA_MEM_ALLOC_NODE_PARAMS* parameters, CUgraphNode* node) {
  const RelaxedCapture relaxed;
  std::optional<SpareMemory> block = TakeSpare(paging, place, parameters->bytesize);
  const bool again = block.has_value();
  CUuserObject object = nullptr;
  if (!again) {
    const auto given = GiveBlock(paging, place.graph, parameters->bytesize, &block.emplace(), &object);
    if (given != CUDA_SUCCESS) return given;
  }
  if (const CUresult added = AddEmptyNode(place, node); added != CUDA_SUCCESS) {
    if (again) {
      MemoryNodes::Instance().PutBack(place.graph, *block);
    } else {
      Ask(k_cuGraphReleaseUserObject, place.graph, object, 1u);
    }
    return added;
  }
  parameters->dptr = block->address;
  MemoryNodes::Instance().AddAllocation(place.graph, *node, *parameters, block->bytes, block->id);
  return CUDA_SUCCESS;
}

std::optional<CUresult> MakeFreeNode(const NodePlace& place, CUdeviceptr address, CUgraphNode* node) {
  if (!MemoryNodes::Any() || !MemoryNodes::Instance().MayFree(address)) return std::nullopt;
  const CUresult added = AddEmptyNode(place, node);
  if (added == CUDA_SUCCESS) MemoryNodes::Instance().AddFree(place.graph, *node, address, place.order);
  return added;
}

std::optional<CUresult> CaptureAllocation(Paging& paging, std::uint64_t bytes, CUstream stream, bool per_thread,
                                          CUdeviceptr* address) {
  const MutexLock lock(capture_mutex);
  const auto place = PlaceIn(stream, per_thread);
  if (!place) return std::nullopt;
  CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
  parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, paging.Device()};
  parameters.bytesize = bytes;
  CUgraphNode node = nullptr;
  const auto made = MakeAllocationNode(paging, *place, &parameters, &node);
  if (made != CUDA_SUCCESS) return made;
  *address = parameters.dptr;
  return GoOnBehind(node, *place, stream, per_thread);
}

std::optional<CUresult> CaptureFree(CUdeviceptr address, CUstream stream, bool per_thread) {
  if (!MemoryNodes::Any() || !MemoryNodes::Instance().MayFree(address)) return std::nullopt;
  const MutexLock lock(capture_mutex);
  const auto place = PlaceIn(stream, per_thread);
  if (!place) return std::nullopt;
  CUgraphNode node = nullptr;
  const auto made = MakeFreeNode(*place, address, &node);
  return made == CUDA_SUCCESS ? GoOnBehind(node, *place, stream, per_thread) : made;
}

}  // namespace tessera::shim
