// What the driver answers about graphs that allocate and free memory: a table, one answer a line, "name answer". Lines
// that begin with "# " may differ under Tessera (docs/memory.md, "Memory of graphs").
#include <cinttypes>

#include "driver.h"

namespace {

constexpr size_t kBytes = 4 * kMiB;

std::string group;
CUdevice device;

void Row(const char* name, CUresult result) { std::printf("%s.%s %s\n", group.c_str(), name, Name(result)); }
void Row(const char* name, uint64_t value) { std::printf("%s.%s %" PRIu64 "\n", group.c_str(), name, value); }
void MayDiffer(const char* name, uint64_t value) { std::printf("# %s.%s %" PRIu64 "\n", group.c_str(), name, value); }
void MayDiffer(const char* name, CUresult result) { std::printf("# %s.%s %s\n", group.c_str(), name, Name(result)); }

CUDA_MEM_ALLOC_NODE_PARAMS OfBytes(size_t bytes) {
  CUDA_MEM_ALLOC_NODE_PARAMS parameters = {};
  parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  parameters.bytesize = bytes;
  return parameters;
}

// A graph that allocates, writes, and frees if it is to.
struct Made {
  explicit Made(bool frees = true) {
    CU(cuGraphCreate(&graph, 0));
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = OfBytes(kBytes);
    CU(cuGraphAddMemAllocNode(&allocation, graph, nullptr, 0, &parameters));
    address = parameters.dptr;
    CUDA_MEMSET_NODE_PARAMS fill = {};
    fill.dst = address;
    fill.value = 7;
    fill.elementSize = 4;
    fill.width = kBytes / 4;
    fill.height = 1;
    CUcontext context;
    CU(cuCtxGetCurrent(&context));
    CU(cuGraphAddMemsetNode(&written, graph, &allocation, 1, &fill, context));
    if (frees) CU(cuGraphAddMemFreeNode(&freed, graph, &written, 1, address));
  }
  CUgraphExec Instantiate(unsigned long long flags = 0) const {
    CUgraphExec exec;
    CU(cuGraphInstantiateWithFlags(&exec, graph, flags));
    return exec;
  }

  CUgraph graph = nullptr;
  CUgraphNode allocation = nullptr, written = nullptr, freed = nullptr;
  CUdeviceptr address = 0;
};

CUresult Launch(CUgraphExec exec) {
  const CUresult result = cuGraphLaunch(exec, nullptr);
  CU(cuCtxSynchronize());
  return result;
}

CUresult Use(CUdeviceptr address) {
  const CUresult result = cuMemsetD32(address, 1, kBytes / 4);
  return result == CUDA_SUCCESS ? cuCtxSynchronize() : result;
}

CUresult FreeAsync(CUdeviceptr address) {
  const CUresult result = cuMemFreeAsync(address, nullptr);
  CU(cuCtxSynchronize());
  return result;
}

void Type(const char* name, CUgraphNode node) {
  CUgraphNodeType type = {};
  CU(cuGraphNodeGetType(node, &type));
  Row(name, static_cast<uint64_t>(type));
}

void Parameters(CUgraphNode node, CUdeviceptr address) {
  CUDA_MEM_ALLOC_NODE_PARAMS told = {};
  Row("params", cuGraphMemAllocNodeGetParams(node, &told));
  Row("params_bytes", told.bytesize);
  Row("params_address", uint64_t{told.dptr == address});
  Row("params_type", static_cast<uint64_t>(told.poolProps.allocType));
  Row("params_handles", static_cast<uint64_t>(told.poolProps.handleTypes));
  Row("params_location", static_cast<uint64_t>(told.poolProps.location.type));
  Row("params_device", static_cast<uint64_t>(told.poolProps.location.id));
  MayDiffer("params_accesses", told.accessDescCount);
}

void Figures(const char* when) {
  for (const auto& [name, attribute] :
       {std::pair{"used", CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT}, std::pair{"used_high", CU_GRAPH_MEM_ATTR_USED_MEM_HIGH},
        std::pair{"reserved", CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT},
        std::pair{"reserved_high", CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH}}) {
    uint64_t value = 0;
    CU(cuDeviceGetGraphMemAttribute(device, attribute, &value));
    MayDiffer((std::string(when) + "_" + name).c_str(), value);
  }
}

void Pointer(CUdeviceptr address) {
  uint64_t value = 0;
  for (const auto& [name, attribute] :
       {std::pair{"memory_type", CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
        std::pair{"managed", CU_POINTER_ATTRIBUTE_IS_MANAGED},
        std::pair{"ordinal", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
        std::pair{"ipc", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE},
        std::pair{"mapped", CU_POINTER_ATTRIBUTE_MAPPED}, std::pair{"range_bytes", CU_POINTER_ATTRIBUTE_RANGE_SIZE},
        std::pair{"handles", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES}}) {
    value = 0;
    const CUresult result = cuPointerGetAttribute(&value, attribute, address);
    Row((std::string(name) + "_result").c_str(), result);
    Row(name, value);
  }
  for (const auto& [name, attribute] :
       {std::pair{"context", CU_POINTER_ATTRIBUTE_CONTEXT}, std::pair{"pool", CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE},
        std::pair{"begin", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR}}) {
    value = 0;
    Row((std::string(name) + "_result").c_str(), cuPointerGetAttribute(&value, attribute, address));
    Row(name, uint64_t{value == address} * 2 + uint64_t{value == 0});
  }
  CUdeviceptr base = 0;
  size_t bytes = 0;
  Row("range", cuMemGetAddressRange(&base, &bytes, address + 512));
  Row("range_base", uint64_t{base == address});
  Row("range_size", bytes);
}

void Nodes() {
  group = "nodes";
  Made made;
  Row("address", uint64_t{made.address != 0 && made.address % 512 == 0});
  Type("allocation", made.allocation);
  Type("free", made.freed);
  Parameters(made.allocation, made.address);
  CUdeviceptr address = 0;
  CUDA_MEM_ALLOC_NODE_PARAMS told = {};
  Row("free_params", cuGraphMemFreeNodeGetParams(made.freed, &address));
  Row("free_address", uint64_t{address == made.address});
  Row("wrong_params", cuGraphMemFreeNodeGetParams(made.allocation, &address));
  Row("wrong_free_params", cuGraphMemAllocNodeGetParams(made.freed, &told));
  Row("params_of_another", cuGraphMemAllocNodeGetParams(made.written, &told));
  CUgraphNode node;
  Row("free_again", cuGraphAddMemFreeNode(&node, made.graph, &made.freed, 1, made.address));
  Row("free_nothing", cuGraphAddMemFreeNode(&node, made.graph, nullptr, 0, 0));
  Row("free_inside", cuGraphAddMemFreeNode(&node, made.graph, nullptr, 0, made.address + 512));
  CUdeviceptr plain;
  CU(cuMemAlloc(&plain, kBytes));
  Row("free_plain", cuGraphAddMemFreeNode(&node, made.graph, nullptr, 0, plain));
  CU(cuMemFree(plain));
  auto parameters = OfBytes(0);
  Row("no_bytes", cuGraphAddMemAllocNode(&node, made.graph, nullptr, 0, &parameters));
  parameters = OfBytes(kBytes);
  parameters.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  Row("with_handles", cuGraphAddMemAllocNode(&node, made.graph, nullptr, 0, &parameters));
  parameters = OfBytes(kBytes);
  const CUmemAccessDesc own = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  parameters.accessDescs = &own;
  parameters.accessDescCount = 1;
  Row("own_access", cuGraphAddMemAllocNode(&node, made.graph, nullptr, 0, &parameters));
  CU(cuGraphDestroy(made.graph));
}

void Refusals() {
  group = "refusals";
  Made made;
  CUgraph clone, parent;
  CUgraphNode node;
  CUgraphExec second;
  CU(cuGraphCreate(&parent, 0));
  Row("clone", cuGraphClone(&clone, made.graph));
  Row("child", cuGraphAddChildGraphNode(&node, parent, nullptr, 0, made.graph));
  Row("destroy_allocation", cuGraphDestroyNode(made.allocation));
  Row("destroy_free", cuGraphDestroyNode(made.freed));
#if CUDA_VERSION >= 13000
  Row("remove_edge", cuGraphRemoveDependencies(made.graph, &made.written, &made.freed, nullptr, 1));
#else
  Row("remove_edge", cuGraphRemoveDependencies(made.graph, &made.written, &made.freed, 1));
#endif
  const CUgraphExec exec = made.Instantiate();
  Row("instantiate_again", cuGraphInstantiateWithFlags(&second, made.graph, 0));
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {};
  Row("instantiate_with_params", cuGraphInstantiateWithParams(&second, made.graph, &parameters));
  MayDiffer("instantiate_result", static_cast<uint64_t>(parameters.result_out));
  Row("enable", cuGraphNodeSetEnabled(exec, made.allocation, 0));
  Row("upload", cuGraphUpload(exec, nullptr));
  CU(cuCtxSynchronize());
  CU(cuGraphExecDestroy(exec));
  Row("instantiate_later", cuGraphInstantiateWithFlags(&second, made.graph, 0));
  CU(cuGraphExecDestroy(second));
  Made other;
  Row("destroy_between", cuGraphDestroyNode(other.written));  // last: where it is allowed the graph is no more the same
  CU(cuGraphDestroy(parent));
  CU(cuGraphDestroy(made.graph));
  CU(cuGraphDestroy(other.graph));
}

void Updates() {
  group = "updates";
  Made first, second, third;
  const CUgraphExec exec = first.Instantiate(), busy = third.Instantiate();
  CUgraphExecUpdateResultInfo info = {};
  const auto update = [&](const char* name, CUgraph graph) {
    info = {};
    Row(name, cuGraphExecUpdate(exec, graph, &info));
    Row((std::string(name) + "_why").c_str(), static_cast<uint64_t>(info.result));
  };
  update("to_itself", first.graph);
  update("to_another", second.graph);
  update("to_one_in_use", third.graph);
  update("back", first.graph);
  Row("launch", Launch(exec));
  Row("launch_busy", Launch(busy));
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphExecDestroy(busy));
  for (const Made* made : {&first, &second, &third}) CU(cuGraphDestroy(made->graph));
}

void Inside() {
  group = "inside";
  Figures("before");
  Made made;
  Figures("made");
  const CUgraphExec exec = made.Instantiate();
  Figures("instantiated");
  Row("launch", Launch(exec));
  Row("launch_again", Launch(exec));
  Figures("launched");
  Row("free", cuMemFree(made.address));
  Row("free_async", FreeAsync(made.address));
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(made.graph));
  CU(cuCtxSynchronize());
  Figures("destroyed");
  Row("trim", cuDeviceGraphMemTrim(device));
  Figures("trimmed");
}

void Left() {
  group = "left";
  Made made(false);
  const CUgraphExec exec = made.Instantiate();
  Row("free_unlaunched", cuMemFree(made.address));
  Row("free_async_unlaunched", FreeAsync(made.address));
  Row("launch", Launch(exec));
  Pointer(made.address);
  CUipcMemHandle handle;
  Row("ipc_handle", cuIpcGetMemHandle(&handle, made.address));
  Row("use", Use(made.address));
  Row("launch_unfreed", Launch(exec));
  Row("free_inside", cuMemFree(made.address + 512));
  Row("free", cuMemFree(made.address));
  Row("free_again", cuMemFree(made.address));
  Row("launch_freed", Launch(exec));
  Row("free_async", FreeAsync(made.address));
  Row("free_async_again", FreeAsync(made.address));
  Row("launch_third", Launch(exec));
  Row("destroy_exec", cuGraphExecDestroy(exec));
  Row("use_without_exec", Use(made.address));
  CUgraphExec other;
  Row("instantiate_unfreed", cuGraphInstantiateWithFlags(&other, made.graph, 0));
  Row("launch_other_unfreed", Launch(other));
  CU(cuGraphExecDestroy(other));
  Row("destroy_graph", cuGraphDestroy(made.graph));
  Row("use_without_graph", Use(made.address));
  Row("free_at_last", cuMemFree(made.address));
  Row("free_after_last", cuMemFree(made.address));

  Made automatic(false);
  const CUgraphExec frees = automatic.Instantiate(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  Row("auto_launch", Launch(frees));
  Row("auto_launch_again", Launch(frees));
  Row("auto_use", Use(automatic.address));
  CU(cuGraphExecDestroy(frees));
  CU(cuGraphDestroy(automatic.graph));
  Row("auto_free", FreeAsync(automatic.address));
}

void Elsewhere() {
  group = "elsewhere";
  Made made(false);
  CUgraph frees;
  CUgraphNode node;
  CU(cuGraphCreate(&frees, 0));
  Row("add", cuGraphAddMemFreeNode(&node, frees, nullptr, 0, made.address));
  Row("add_again", cuGraphAddMemFreeNode(&node, frees, nullptr, 0, made.address));
  Row("add_at_home", cuGraphAddMemFreeNode(&node, made.graph, &made.written, 1, made.address));
  Row("clone", cuGraphClone(&frees, frees));
  CUgraphExec first = made.Instantiate(), second = nullptr, third = nullptr;
  Row("instantiate", cuGraphInstantiateWithFlags(&second, frees, 0));
  MayDiffer("instantiate_again", cuGraphInstantiateWithFlags(&third, frees, 0));
  MayDiffer("launch_unallocated", Launch(second));
  Row("launch", Launch(first));
  Row("launch_free", Launch(second));
  Row("launch_twice", Launch(first));
  Row("launch_free_twice", Launch(second));
  Row("free", cuMemFree(made.address));
  CU(cuGraphExecDestroy(first));
  CU(cuGraphExecDestroy(second));
  CU(cuGraphDestroy(frees));
  CU(cuGraphDestroy(made.graph));

  Made twice(false);
  for (const char* name : {"add_first", "add_after_destroy"}) {
    CU(cuGraphCreate(&frees, 0));
    MayDiffer(name, cuGraphAddMemFreeNode(&node, frees, nullptr, 0, twice.address));
    CU(cuGraphDestroy(frees));
  }
  CU(cuGraphDestroy(twice.graph));

  Made kept(true);
  CU(cuGraphCreate(&frees, 0));
  Row("add_freed", cuGraphAddMemFreeNode(&node, frees, nullptr, 0, kept.address));
  CU(cuGraphDestroy(frees));
  CU(cuGraphDestroy(kept.graph));
}

struct Stream {
  Stream() { CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)); }
  ~Stream() { CU(cuStreamDestroy(stream)); }
  void Begin() const { CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)); }
  void Status(const char* name) const {
    CUstreamCaptureStatus status = {};
    CU(cuStreamIsCapturing(stream, &status));
    Row(name, static_cast<uint64_t>(status));
  }
  CUgraph End(const char* name) const {
    CUgraph graph = nullptr;
    Row(name, cuStreamEndCapture(stream, &graph));
    return graph;
  }
  CUstream stream;
};

void Captures() {
  group = "captures";
  Stream stream;
  CUdeviceptr address = 0, again = 0;
  stream.Begin();
  Row("allocate", cuMemAllocAsync(&address, kBytes, stream.stream));
  CU(cuMemsetD32Async(address, 3, kBytes / 4, stream.stream));
  Row("free", cuMemFreeAsync(address, stream.stream));
  Row("allocate_again", cuMemAllocAsync(&again, kBytes, stream.stream));
  MayDiffer("same_address", uint64_t{again == address});
  Row("free_second", cuMemFreeAsync(again, stream.stream));
  stream.Status("status");
  CUgraph graph = stream.End("end");
  CUgraphNode nodes[5] = {};
  size_t count = 5, edges = 0;
  Row("nodes", cuGraphGetNodes(graph, nodes, &count));
  Row("node_count", count);
#if CUDA_VERSION >= 13000
  CU(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
#else
  CU(cuGraphGetEdges(graph, nullptr, nullptr, &edges));
#endif
  Row("edge_count", edges);
  for (CUgraphNode node : nodes) Type("type", node);
  Parameters(nodes[0], address);
  CUgraphExec exec;
  Row("instantiate", cuGraphInstantiateWithFlags(&exec, graph, 0));
  Row("launch", Launch(exec));

  stream.Begin();
  Row("launch_captured", cuGraphLaunch(exec, stream.stream));
  stream.Status("launch_captured_status");
  CUgraph outer = stream.End("launch_captured_end");
  if (outer) CU(cuGraphDestroy(outer));
  CU(cuGraphExecDestroy(exec));
  CU(cuGraphDestroy(graph));
}

// Each in a capture of its own, which it may end.
void BadCaptures() {
  group = "bad_captures";
  CUdeviceptr plain, ordered;
  CU(cuMemAlloc(&plain, kBytes));
  CU(cuMemAllocAsync(&ordered, kBytes, nullptr));
  CU(cuCtxSynchronize());
  Made made, left(false);
  const auto capture = [&](const char* name, auto call) {
    Stream stream;
    stream.Begin();
    Row(name, call(stream.stream));
    stream.Status((std::string(name) + "_status").c_str());
    const CUgraph graph = stream.End((std::string(name) + "_end").c_str());
    if (graph) CU(cuGraphDestroy(graph));
  };
  capture("free_plain", [&](CUstream stream) { return cuMemFreeAsync(plain, stream); });
  capture("free_ordered", [&](CUstream stream) { return cuMemFreeAsync(ordered, stream); });
  capture("free_of_graph", [&](CUstream stream) { return cuMemFreeAsync(made.address, stream); });
  capture("free_left_of_graph", [&](CUstream stream) { return cuMemFreeAsync(left.address, stream); });
  capture("free_twice", [&](CUstream stream) {
    CUdeviceptr address = 0;
    CU(cuMemAllocAsync(&address, kBytes, stream));
    CU(cuMemFreeAsync(address, stream));
    return cuMemFreeAsync(address, stream);
  });
  capture("no_bytes", [&](CUstream stream) {
    CUdeviceptr address = 0;
    return cuMemAllocAsync(&address, 0, stream);
  });
  CU(cuGraphDestroy(made.graph));
  CU(cuGraphDestroy(left.graph));
  CU(cuMemFreeAsync(ordered, nullptr));
  CU(cuMemFree(plain));
}

void Attributes() {
  group = "attributes";
  uint64_t zero = 0, one = 1;
  Row("reset_used", cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero));
  Row("reset_reserved", cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero));
  Row("set_one", cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &one));
  Row("set_current", cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &zero));
}

#if CUDA_VERSION >= 12090
void Children() {
  group = "children";
  Made made(false);
  CUgraph parent, clone;
  CUgraphNode node;
  CUgraphExec exec = nullptr;
  CU(cuGraphCreate(&parent, 0));
  CUgraphNodeParams parameters = {};
  parameters.type = CU_GRAPH_NODE_TYPE_GRAPH;
  parameters.graph.graph = made.graph;
  parameters.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
  Row("cloned", cuGraphAddNode(&node, parent, nullptr, nullptr, 0, &parameters));
  parameters.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  const CUresult moved = cuGraphAddNode(&node, parent, nullptr, nullptr, 0, &parameters);
  Row("moved", moved);
  if (moved != CUDA_SUCCESS) return;
  Type("allocation", made.allocation);
  Row("clone_parent", cuGraphClone(&clone, parent));
  const CUresult instantiated = cuGraphInstantiateWithFlags(&exec, parent, 0);
  Row("instantiate", instantiated);
  if (instantiated == CUDA_SUCCESS) {
    Row("launch", Launch(exec));
    Row("launch_unfreed", Launch(exec));
    Row("free", cuMemFree(made.address));
    CU(cuGraphExecDestroy(exec));
  }
  Row("destroy_parent", cuGraphDestroy(parent));
}
#else
void Children() {}
#endif

}  // namespace

int main() {
  device = UseDevice();
  Attributes();
  Nodes();
  Refusals();
  Updates();
  Inside();
  Left();
  Elsewhere();
  Captures();
  BadCaptures();
  Children();
  std::printf("left_behind %s\n", Name(cuCtxSynchronize()));
}
