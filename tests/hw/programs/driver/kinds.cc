// Work of every kind on memory that may be moved at any moment: shared memory, atomics, cooperative grids, graphs, and
// copies in flight. "kinds BYTES [WORDS]": four buffers of BYTES, of which WORDS each are used (8192 unless it says
// otherwise). Does the same rounds again and again, counts them as orders.h says, and is right if each gave what the
// first one gave; that is printed as "sum NUMBER", and must be the same wherever the program runs.
#include "driver.h"
#include "orders.h"

namespace {

constexpr unsigned kThreads = 256, kCounters = 512;
constexpr unsigned kTogether = 8;  // blocks that wait for one another

class Kinds {
 public:
  Kinds(size_t bytes, uint64_t words) : bytes_(bytes), words_(words), stride_(bytes / 4 / words) {
    CU(cuModuleGetFunction(&plant_, kernels_.module, "Plant"));
    CU(cuModuleGetFunction(&grow_, kernels_.module, "Grow"));
    CU(cuModuleGetFunction(&turn_shared_, kernels_.module, "TurnShared"));
    CU(cuModuleGetFunction(&turn_together_, kernels_.module, "TurnTogether"));
    CU(cuModuleGetFunction(&tally_, kernels_.module, "Tally"));
    for (CUdeviceptr& buffer : buffers_) CU(cuMemAlloc(&buffer, bytes_));
    CU(cuMemAlloc(&counters_, (kCounters + 1) * sizeof(uint32_t)));
    CU(cuMemHostAlloc(&host_, bytes_, 0));
    std::memset(host_, 0x5a, bytes_);
    for (CUstream* stream : {&compute_, &copy_}) CU(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
    Capture();
  }

  // A number that depends on every word.
  unsigned long long Round() {
    for (uint32_t i = 0; i < 4; ++i) Launch(plant_, &buffers_[i], &words_, &stride_, &seeds_[i]);
    CU(cuStreamSynchronize(compute_));
    // The last buffer goes to the host and back, while kernels work on the others.
    CU(cuMemcpyDtoHAsync(host_, buffers_[3], bytes_, copy_));
    CU(cuMemsetD8Async(buffers_[3], 0xff, bytes_, copy_));
    CU(cuMemcpyHtoDAsync(buffers_[3], host_, bytes_, copy_));
    uint32_t rounds = 20;
    Launch(turn_shared_, &buffers_[0], &stride_, &rounds);
    Together();
    for (int i = 0; i < 4; ++i) CU(cuGraphLaunch(graph_, compute_));
    CU(cuMemsetD32Async(counters_, 0, kCounters, compute_));
    for (uint32_t i = 0; i < 3; ++i) Launch(tally_, &buffers_[i], &words_, &stride_, &counters_);
    CU(cuStreamSynchronize(copy_));
    Launch(tally_, &buffers_[3], &words_, &stride_, &counters_);
    CU(cuStreamSynchronize(compute_));
    std::vector<uint32_t> counts(kCounters);
    CU(cuMemcpyDtoH(counts.data(), counters_, kCounters * sizeof(uint32_t)));
    return Checksum(counts.data(), kCounters * sizeof(uint32_t));
  }

 private:
  template <typename... Arguments>
  void Launch(CUfunction function, Arguments*... arguments) {
    void* given[] = {arguments...};
    const auto blocks = static_cast<unsigned>(words_ / kThreads);  // TurnShared takes one word for each thread
    CU(cuLaunchKernel(function, blocks, 1, 1, kThreads, 1, 1, 0, compute_, given, nullptr));
  }

  void Together() {
    CUdeviceptr arrived = counters_ + kCounters * sizeof(uint32_t);
    uint32_t rounds = 8;
    CU(cuMemsetD32Async(arrived, 0, 1, compute_));
    void* given[] = {&buffers_[0], &buffers_[1], &words_, &stride_, &rounds, &arrived};
    CU(cuLaunchCooperativeKernel(turn_together_, kTogether, 1, 1, kThreads, 1, 1, 0, compute_, given));
  }

  // Two buffers grow, and one is copied over the other in between.
  void Capture() {
    CUgraph captured;
    CU(cuStreamBeginCapture(compute_, CU_STREAM_CAPTURE_MODE_GLOBAL));
    Launch(grow_, &buffers_[1], &words_, &stride_);
    CU(cuMemcpyDtoDAsync(buffers_[2], buffers_[1], bytes_ / 2, compute_));
    Launch(grow_, &buffers_[2], &words_, &stride_);
    CU(cuStreamEndCapture(compute_, &captured));
    CU(cuGraphInstantiate(&graph_, captured, 0));
    CU(cuGraphDestroy(captured));
  }

  const size_t bytes_;
  uint64_t words_, stride_;
  uint32_t seeds_[4] = {1, 22, 333, 4444};
  Kernels kernels_;
  CUfunction plant_, grow_, turn_shared_, turn_together_, tally_;
  CUdeviceptr buffers_[4] = {}, counters_ = 0;
  void* host_ = nullptr;
  CUstream compute_, copy_;
  CUgraphExec graph_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  const size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 64 * kMiB;
  const uint64_t words = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 8192;
  UseDevice();
  Kinds kinds(bytes, words);
  const unsigned long long sum = kinds.Round();
  std::printf("sum %016llx\n", sum);
  TakeOrders(0);
  bool right = true;
  while (!OrderedToEnd()) {
    right = kinds.Round() == sum && right;
    CountWork(1);
  }
  return ReportDone(right);
}
