// A program on two GPUs, for swap.peers: "peers BYTES". GPU 1 writes one word after the other to all of a block of GPU
// 0, by memsets and by copies in turn, and reads each back. Orders as in shared/orders.h; "touch" makes GPU 0 work on
// the block, too.
#include "driver.h"
#include "orders.h"

namespace {

CUcontext first, second;
CUdeviceptr block, sink;
size_t bytes;

void Touch(const char* line) {
  if (strcmp(line, "touch") != 0) return;
  CU(cuCtxSetCurrent(first));
  CU(cuMemcpyDtoD(sink, block, kMiB));
  CU(cuCtxSynchronize());
  std::printf("touched\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  bytes = std::strtoull(argv[1], nullptr, 10);
  const auto words = static_cast<uint32_t>(bytes / 4);
  UseDevice(1);
  CU(cuCtxGetCurrent(&second));
  UseDevice(0);
  CU(cuCtxGetCurrent(&first));
  CU(cuMemAlloc(&block, bytes));
  CU(cuMemAlloc(&sink, kMiB));
  CU(cuCtxSetCurrent(second));
  const CUresult access = cuCtxEnablePeerAccess(first, 0);
  CUdeviceptr own;
  CU(cuMemAlloc(&own, bytes));
  TakeOrders(access == CUDA_SUCCESS);
  orders_other = Touch;
  std::vector<uint32_t> found(words);
  bool right = true;
  for (uint32_t word = 1; !OrderedToEnd(); ++word) {
    const bool copies = access != CUDA_SUCCESS || word % 2 == 0;
    CU(cuMemsetD32(copies ? own : block, word, words));
    if (copies) CU(cuMemcpyPeer(block, first, own, second, bytes));
    CU(cuMemsetD32(own, 0, words));
    CU(cuMemcpyPeer(own, second, block, first, bytes));
    CU(cuMemcpyDtoH(found.data(), own, bytes));
    for (const uint32_t each : found) right &= each == word;
    CountWork(1);
  }
  return ReportDone(right);
}
