// Graphs: capture over two streams, launch, update, nodes made by hand, memory nodes and a child graph.
#include "device_words.h"

constexpr uint32_t kWords = 1 << 18;

static cudaGraph_t Capture(DeviceWords& buffer, DeviceWords& other, uint32_t value) {
  cudaStream_t stream, side;
  cudaEvent_t fork, join;
  RT(cudaStreamCreate(&stream));
  RT(cudaStreamCreate(&side));
  RT(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
  RT(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
  cudaGraph_t graph;
  RT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  buffer.MixOn(stream, value);
  RT(cudaEventRecord(fork, stream));
  RT(cudaStreamWaitEvent(side, fork, 0));
  other.MixOn(side, value + 1);
  RT(cudaEventRecord(join, side));
  buffer.MixOn(stream, value + 2);
  RT(cudaStreamWaitEvent(stream, join, 0));
  RT(cudaMemcpyAsync(buffer.data, other.data, buffer.bytes() / 2, cudaMemcpyDeviceToDevice, stream));
  RT(cudaStreamEndCapture(stream, &graph));
  RT(cudaStreamDestroy(stream));
  RT(cudaStreamDestroy(side));
  return graph;
}

static void CaptureLaunchUpdate() {
  DeviceWords buffer(kWords), other(kWords);
  buffer.FillOn(nullptr, 1);
  other.FillOn(nullptr, 2);
  cudaGraph_t graph = Capture(buffer, other, 5);
  size_t nodes = 0;
  RT(cudaGraphGetNodes(graph, nullptr, &nodes));
  cudaGraphExec_t exec;
  RT(cudaGraphInstantiate(&exec, graph, 0));
  cudaStream_t stream;
  RT(cudaStreamCreate(&stream));
  for (int i = 0; i < 100; ++i) RT(cudaGraphLaunch(exec, stream));
  RT(cudaStreamSynchronize(stream));
  std::printf("captured %zu nodes %016llx\n", nodes, buffer.Sum());

  cudaGraph_t changed = Capture(buffer, other, 11);
  cudaGraphExecUpdateResultInfo info;
  RT(cudaGraphExecUpdate(exec, changed, &info));
  RT(cudaGraphUpload(exec, stream));
  for (int i = 0; i < 100; ++i) RT(cudaGraphLaunch(exec, stream));
  RT(cudaStreamSynchronize(stream));
  std::printf("updated %016llx\n", buffer.Sum());
  RT(cudaGraphExecDestroy(exec));
  RT(cudaGraphDestroy(graph));
  RT(cudaGraphDestroy(changed));
}

static uint32_t host_calls = 0;

static void ByHand() {
  DeviceWords buffer(kWords);
  cudaGraph_t graph, child;
  RT(cudaGraphCreate(&graph, 0));
  RT(cudaGraphCreate(&child, 0));
  cudaGraphNode_t memset_node, kernel_node, child_node, host_node;
  cudaMemsetParams memset_params = {};
  memset_params.dst = buffer.data;
  memset_params.value = 3;
  memset_params.elementSize = 4;
  memset_params.width = kWords;
  memset_params.height = 1;
  RT(cudaGraphAddMemsetNode(&memset_node, graph, nullptr, 0, &memset_params));
  uint32_t words = kWords, value = 17;
  void* arguments[] = {&buffer.data, &words, &value};
  cudaKernelNodeParams kernel = {};
  kernel.func = reinterpret_cast<void*>(Mix);
  kernel.gridDim = dim3(64);
  kernel.blockDim = dim3(256);
  kernel.kernelParams = arguments;
  RT(cudaGraphAddKernelNode(&kernel_node, child, nullptr, 0, &kernel));
  RT(cudaGraphAddChildGraphNode(&child_node, graph, &memset_node, 1, child));
  cudaHostNodeParams host = {};
  host.fn = [](void* count) { ++*static_cast<uint32_t*>(count); };
  host.userData = &host_calls;
  RT(cudaGraphAddHostNode(&host_node, graph, &child_node, 1, &host));
  cudaGraphExec_t exec;
  RT(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 10; ++i) RT(cudaGraphLaunch(exec, nullptr));
  std::printf("by hand %016llx", buffer.Sum());
  std::printf(" host calls %u\n", host_calls);
  RT(cudaGraphExecDestroy(exec));
  RT(cudaGraphDestroy(child));
  RT(cudaGraphDestroy(graph));
}

// Memory that lives inside the graph: allocated and freed by nodes.
static void MemoryNodes() {
  DeviceWords result(kWords);
  cudaStream_t stream;
  RT(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  RT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  uint32_t* inner;
  RT(cudaMallocAsync(&inner, result.bytes(), stream));
  Fill<<<64, 256, 0, stream>>>(inner, kWords, 23);
  RT(cudaMemcpyAsync(result.data, inner, result.bytes(), cudaMemcpyDeviceToDevice, stream));
  RT(cudaFreeAsync(inner, stream));
  RT(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  RT(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 10; ++i) RT(cudaGraphLaunch(exec, stream));
  RT(cudaStreamSynchronize(stream));
  std::printf("memory nodes %016llx\n", result.Sum());
  RT(cudaGraphExecDestroy(exec));
  RT(cudaGraphDestroy(graph));
  RT(cudaDeviceGraphMemTrim(0));
}

int main() {
  CaptureLaunchUpdate();
  ByHand();
  MemoryNodes();
}
