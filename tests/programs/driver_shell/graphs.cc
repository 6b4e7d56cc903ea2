// Graphs with memory of their own.
#include <set>

#include "shell.h"

namespace tessera::shell {
namespace {

using namespace cuda;

CUmemPoolProps OnCurrentDevice() {
  CUdevice device = 0;
  Call("cuCtxGetDevice", &device);
  return {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

// The graph that is being tried: it allocates, fills, looks at both ends, and frees, again and again.
struct Temporaries {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUdeviceptr seen = 0;  // two words for each of them
  std::uint32_t count = 0;
  std::set<CUdeviceptr> addresses;
};
Temporaries temporaries;

CUresult CaptureOne(std::uint32_t index, std::size_t bytes) {
  CUdeviceptr address = 0;
  CUresult result = Call("cuMemAllocAsync", &address, bytes, temporaries.stream);
  if (result != CUDA_SUCCESS) return result;
  temporaries.addresses.insert(address);
  result = Call("cuMemsetD32Async", address, index + 1, bytes / 4, temporaries.stream);
  for (const std::size_t end : {std::size_t{0}, std::size_t{1}})
    if (result == CUDA_SUCCESS)
      result = Call("cuMemcpyDtoDAsync_v2", temporaries.seen + 8 * std::size_t{index} + 4 * end,
                    address + end * (bytes - 4), std::size_t{4}, temporaries.stream);
  return result == CUDA_SUCCESS ? Call("cuMemFreeAsync", address, temporaries.stream) : result;
}

CUresult CaptureTemporaries(std::uint32_t count, std::size_t bytes) {
  CUresult result = Call("cuStreamBeginCapture_v2", temporaries.stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  for (std::uint32_t index = 0; result == CUDA_SUCCESS && index < count; ++index) result = CaptureOne(index, bytes);
  const CUresult ended = Call("cuStreamEndCapture", temporaries.stream, &temporaries.graph);
  return result == CUDA_SUCCESS ? ended : result;
}

// The same by nodes; `last` is the node that comes before, and becomes the one that frees.
CUresult AddOne(std::uint32_t index, std::size_t bytes, CUgraphNode& last) {
  CUcontext context = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
  allocation.poolProps = OnCurrentDevice();
  allocation.bytesize = bytes;
  const CUgraphNode* after = last ? &last : nullptr;
  CUgraphNode node = nullptr;
  CUresult result =
      Call("cuGraphAddMemAllocNode", &node, temporaries.graph, after, std::size_t{last ? 1u : 0u}, &allocation);
  if (result == CUDA_SUCCESS) result = Call("cuCtxGetCurrent", &context);
  if (result != CUDA_SUCCESS) return result;
  temporaries.addresses.insert(allocation.dptr);
  const CUDA_MEMSET_NODE_PARAMS fill = {allocation.dptr, 0, index + 1, 4, bytes / 4, 1};
  CUgraphNode before = node;
  result = Call("cuGraphAddMemsetNode", &node, temporaries.graph, const_cast<const CUgraphNode*>(&before),
                std::size_t{1}, &fill, context);
  for (const std::size_t end : {std::size_t{0}, std::size_t{1}}) {
    if (result != CUDA_SUCCESS) return result;
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = allocation.dptr + end * (bytes - 4);
    copy.dstDevice = temporaries.seen + 8 * std::size_t{index} + 4 * end;
    copy.WidthInBytes = 4;
    copy.Height = copy.Depth = 1;
    before = node;
    result = Call("cuGraphAddMemcpyNode", &node, temporaries.graph, const_cast<const CUgraphNode*>(&before),
                  std::size_t{1}, const_cast<const CUDA_MEMCPY3D*>(&copy), context);
  }
  before = node;
  return result == CUDA_SUCCESS ? Call("cuGraphAddMemFreeNode", &last, temporaries.graph,
                                       const_cast<const CUgraphNode*>(&before), std::size_t{1}, allocation.dptr)
                                : result;
}

CUresult Add(std::uint32_t count, std::size_t bytes) {
  CUgraphNode last = nullptr;
  CUresult result = Call("cuGraphCreate", &temporaries.graph, 0u);
  for (std::uint32_t index = 0; result == CUDA_SUCCESS && index < count; ++index) result = AddOne(index, bytes, last);
  return result;
}

// temporaries HOW COUNT BYTES: makes such a graph of COUNT allocations of BYTES each, "captured" or by "nodes". Says at
// how many addresses they lie.
Reply MakeTemporaries(const Words& words) {
  temporaries = {.count = static_cast<std::uint32_t>(NumberAt(words, 1))};
  const std::size_t bytes = NumberAt(words, 2);
  CUresult result = Call("cuStreamCreate", &temporaries.stream, 1u);
  if (result == CUDA_SUCCESS) result = Call("cuMemAlloc_v2", &temporaries.seen, std::size_t{8} * temporaries.count);
  if (result == CUDA_SUCCESS)
    result = words.at(0) == "captured" ? CaptureTemporaries(temporaries.count, bytes) : Add(temporaries.count, bytes);
  if (result == CUDA_SUCCESS) result = Call("cuGraphInstantiateWithFlags", &temporaries.exec, temporaries.graph, 0ull);
  return Reply(result).Add("addresses", static_cast<long long>(temporaries.addresses.size()));
}

// run_temporaries: launches it, waits for its end, and says how many words are wrong.
Reply RunTemporaries(const Words&) {
  std::vector<std::uint32_t> seen(2 * std::size_t{temporaries.count}, 0);
  CUresult result = Call("cuMemsetD32Async", temporaries.seen, 0u, seen.size(), temporaries.stream);
  if (result == CUDA_SUCCESS) result = Call("cuGraphLaunch", temporaries.exec, temporaries.stream);
  if (result == CUDA_SUCCESS) result = Call("cuStreamSynchronize", temporaries.stream);
  if (result == CUDA_SUCCESS)
    result = Call("cuMemcpyDtoH_v2", static_cast<void*>(seen.data()), temporaries.seen, seen.size() * 4);
  long long wrong = 0;
  for (std::size_t i = 0; i < seen.size(); ++i) wrong += seen[i] != i / 2 + 1;
  return Reply(result).Add("wrong", wrong);
}

// end_temporaries: destroys both graphs.
Reply EndTemporaries(const Words&) {
  const CUresult result = Call("cuGraphExecDestroy", temporaries.exec);
  if (result != CUDA_SUCCESS) return result;
  const CUresult ended = Call("cuGraphDestroy", temporaries.graph);
  return ended == CUDA_SUCCESS ? Call("cuMemFree_v2", temporaries.seen) : ended;
}

// graph_memory BYTES: a graph that allocates so much is made, and launched. Its memory is the program's from then on.
Reply GraphMemory(const Words& words) {
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
  allocation.poolProps = OnCurrentDevice();
  allocation.bytesize = NumberAt(words, 0);
  CUresult result = Call("cuGraphCreate", &graph, 0u);
  if (result == CUDA_SUCCESS)
    result = Call("cuGraphAddMemAllocNode", &node, graph, static_cast<const CUgraphNode*>(nullptr), std::size_t{0},
                  &allocation);
  if (result == CUDA_SUCCESS) result = Call("cuGraphInstantiateWithFlags", &exec, graph, 0ull);
  if (result == CUDA_SUCCESS) result = Call("cuGraphLaunch", exec, CUstream{});
  return result == CUDA_SUCCESS ? Call("cuCtxSynchronize") : result;
}

// graph_figures: what graphs have of the device's memory.
Reply Figures(const Words&) {
  Reply reply(CUDA_SUCCESS);
  for (const auto& [name, attribute] : {std::pair{"used", CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT},
                                        std::pair{"reserved", CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT}}) {
    std::uint64_t value = 0;
    const CUresult result =
        Call("cuDeviceGetGraphMemAttribute", OnCurrentDevice().location.id, attribute, static_cast<void*>(&value));
    if (result != CUDA_SUCCESS) return result;
    reply.Add(name, static_cast<long long>(value));
  }
  return reply;
}

}  // namespace

void AddGraphCommands(Commands& commands) {
  commands["temporaries"] = MakeTemporaries;
  commands["run_temporaries"] = RunTemporaries;
  commands["end_temporaries"] = EndTemporaries;
  commands["graph_memory"] = GraphMemory;
  commands["graph_figures"] = Figures;
}

}  // namespace tessera::shell
