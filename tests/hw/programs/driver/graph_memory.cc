// Graphs with memory of their own, launched again and again. "graph_memory BYTES": two graphs, one captured from two
// streams and one of nodes, each with temporaries of BYTES and less, and a third that leaves a block of BYTES to the
// program each time. Does the same rounds, counts them as orders.h says, and is right if each gave what the first one
// gave; that is printed as "sum NUMBER".
#include "driver.h"
#include "orders.h"

namespace {

constexpr uint32_t kWords = 1 << 16;
constexpr size_t kPieceBytes = size_t{kWords} * 4;
constexpr int kPieces = 6;

class GraphMemory {
 public:
  explicit GraphMemory(size_t bytes) : bytes_(bytes) {
    for (CUstream& stream : streams_) CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (CUevent& event : events_) CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CU(cuMemAlloc(&seen_, 2 * kPieces * kPieceBytes));
    Capture();
    AddNodes();
    Leave();
  }

  unsigned long long Round() {
    CU(cuMemsetD32Async(seen_, 0, 2 * kPieces * kWords, streams_[0]));
    CU(cuGraphLaunch(captured_, streams_[0]));
    CU(cuGraphLaunch(added_, streams_[0]));
    CU(cuGraphLaunch(leaves_, streams_[0]));
    // The block that the graph left is used by work that follows it, and freed in its order.
    kernels_.Launch(kernels_.mix, left_ + bytes_ - kPieceBytes, kWords, 5, streams_[0]);
    CU(cuMemcpyDtoDAsync(seen_, left_ + bytes_ - kPieceBytes, kPieceBytes / 2, streams_[0]));
    CU(cuMemFreeAsync(left_, streams_[0]));
    CU(cuStreamSynchronize(streams_[0]));
    return DeviceChecksum(seen_, 2 * kPieces * kWords);
  }

 private:
  size_t BytesOf(int piece) const { return piece % 2 == 0 ? bytes_ : bytes_ / 4 * 3; }

  void Piece(CUdeviceptr data, int piece, CUstream stream) {
    const CUdeviceptr at = data + BytesOf(piece) - kPieceBytes;
    kernels_.Launch(kernels_.fill, at, kWords, static_cast<uint32_t>(piece) + 1, stream);
    for (uint32_t k = 0; k < 3; ++k) kernels_.Launch(kernels_.mix, at, kWords, k, stream);
    CU(cuMemcpyDtoDAsync(seen_ + static_cast<size_t>(piece) * kPieceBytes, at, kPieceBytes, stream));
  }

  // Two branches at the same time; the last piece of the first is freed in the second, which waits for it.
  void Capture() {
    CUgraph graph;
    CU(cuStreamBeginCapture(streams_[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    CU(cuEventRecord(events_[0], streams_[0]));
    CU(cuStreamWaitEvent(streams_[1], events_[0], 0));
    CUdeviceptr last = 0;
    for (int piece = 0; piece < kPieces; ++piece) {
      const CUstream stream = streams_[piece % 2];
      CUdeviceptr data = 0;
      CU(cuMemAllocAsync(&data, BytesOf(piece), stream));
      Piece(data, piece, stream);
      if (piece == kPieces - 2) {
        last = data;
      } else {
        CU(cuMemFreeAsync(data, stream));
      }
    }
    CU(cuEventRecord(events_[1], streams_[0]));
    CU(cuStreamWaitEvent(streams_[1], events_[1], 0));
    CU(cuMemFreeAsync(last, streams_[1]));
    CU(cuEventRecord(events_[2], streams_[1]));
    CU(cuStreamWaitEvent(streams_[0], events_[2], 0));
    CU(cuStreamEndCapture(streams_[0], &graph));
    CU(cuGraphInstantiate(&captured_, graph, 0));
    CU(cuGraphDestroy(graph));
  }

  CUDA_MEM_ALLOC_NODE_PARAMS Parameters(size_t bytes) const {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {};
    parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    CUdevice device;
    CU(cuCtxGetDevice(&device));
    parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    parameters.bytesize = bytes;
    return parameters;
  }

  CUgraphNode AddKernel(CUgraph graph, CUgraphNode after, CUfunction function, CUdeviceptr data, uint32_t value) {
    uint32_t words = kWords;
    void* arguments[] = {&data, &words, &value};
    CUDA_KERNEL_NODE_PARAMS kernel = {};
    kernel.func = function;
    kernel.gridDimX = 64;
    kernel.blockDimX = 256;
    kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1;
    kernel.kernelParams = arguments;
    CUgraphNode node;
    CU(cuGraphAddKernelNode(&node, graph, &after, 1, &kernel));
    return node;
  }

  CUgraphNode AddCopy(CUgraph graph, CUgraphNode after, CUdeviceptr to, CUdeviceptr from) {
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.dstDevice = to;
    copy.WidthInBytes = kPieceBytes;
    copy.Height = copy.Depth = 1;
    CUcontext context;
    CU(cuCtxGetCurrent(&context));
    CUgraphNode node;
    CU(cuGraphAddMemcpyNode(&node, graph, &after, 1, &copy, context));
    return node;
  }

  // Chains that run at the same time, of pieces that follow one another.
  void AddNodes() {
    CUgraph graph;
    CU(cuGraphCreate(&graph, 0));
    CUgraphNode last[2] = {};
    for (int piece = 0; piece < kPieces; ++piece) {
      CUgraphNode& before = last[piece % 2];
      auto parameters = Parameters(BytesOf(piece));
      CUgraphNode node;
      CU(cuGraphAddMemAllocNode(&node, graph, &before, before ? 1 : 0, &parameters));
      const CUdeviceptr at = parameters.dptr + BytesOf(piece) - kPieceBytes;
      node = AddKernel(graph, node, kernels_.fill, at, static_cast<uint32_t>(piece) + 100);
      for (uint32_t k = 0; k < 3; ++k) node = AddKernel(graph, node, kernels_.mix, at, k);
      node = AddCopy(graph, node, seen_ + static_cast<size_t>(kPieces + piece) * kPieceBytes, at);
      CU(cuGraphAddMemFreeNode(&before, graph, &node, 1, parameters.dptr));
    }
    CU(cuGraphInstantiate(&added_, graph, 0));
    CU(cuGraphDestroy(graph));
  }

  void Leave() {
    CUgraph graph;
    CU(cuGraphCreate(&graph, 0));
    auto parameters = Parameters(bytes_);
    CUgraphNode node;
    CU(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &parameters));
    left_ = parameters.dptr;
    AddKernel(graph, node, kernels_.fill, left_ + bytes_ - kPieceBytes, 77);
    CU(cuGraphInstantiate(&leaves_, graph, 0));
    CU(cuGraphDestroy(graph));
  }

  const size_t bytes_;
  Kernels kernels_;
  CUstream streams_[2];
  CUevent events_[3];
  CUdeviceptr seen_ = 0, left_ = 0;
  CUgraphExec captured_ = nullptr, added_ = nullptr, leaves_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  const size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 64 * kMiB;
  UseDevice();
  GraphMemory graphs(bytes);
  const unsigned long long sum = graphs.Round();
  std::printf("sum %016llx\n", sum);
  TakeOrders(0);
  bool right = true;
  while (!OrderedToEnd()) {
    right = graphs.Round() == sum && right;
    CountWork(1);
  }
  return ReportDone(right);
}
