// Makes a context, takes memory and waits: "hold BYTES" takes that many or fails, "hold all" takes what it can get,
// "hold pool BYTES" takes them from a pool that keeps what is freed, and frees them. Each line on standard input makes
// it compute in that memory and print a checksum; it ends with its input.
#include "driver.h"

static size_t Take(size_t wanted, std::vector<CUdeviceptr>& pieces) {
  size_t got = 0;
  for (size_t piece = 256 * kMiB; piece >= 2 * kMiB; piece /= 2) {
    CUdeviceptr data = 0;
    while (got + piece <= wanted && cuMemAlloc(&data, piece) == CUDA_SUCCESS) {
      pieces.push_back(data);
      got += piece;
    }
  }
  return got;
}

static size_t PassThroughPool(CUdevice device, size_t bytes) {
  CUmemoryPool pool;
  CUdeviceptr data = 0;
  cuuint64_t keep = ~cuuint64_t{0};
  CU(cuDeviceGetDefaultMemPool(&pool, device));
  CU(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  CU(cuMemAllocAsync(&data, bytes, nullptr));
  CU(cuMemFreeAsync(data, nullptr));
  CU(cuStreamSynchronize(nullptr));
  return bytes;
}

int main(int argc, char** argv) {
  const bool all = argc > 1 && std::strcmp(argv[1], "all") == 0;
  const bool by_pool = argc > 2 && std::strcmp(argv[1], "pool") == 0;
  const size_t wanted = all ? ~size_t{0} : argc > 1 ? std::strtoull(argv[argc - 1], nullptr, 10) : 0;
  CUdevice device;
  CUcontext context;
  CU(cuInit(0));
  CU(cuDeviceGet(&device, 0));
  CUresult made = cuDevicePrimaryCtxRetain(&context, device);
  if (made != CUDA_SUCCESS) {  // a vGPU that is full has no room for another context: an answer, not a mistake
    std::printf("no context: %s\n", Name(made));
    return 3;
  }
  CU(cuCtxSetCurrent(context));
  std::vector<CUdeviceptr> pieces;
  const size_t got = by_pool ? PassThroughPool(device, wanted) : Take(wanted, pieces);
  std::printf("got %zu\n", got);
  std::fflush(stdout);
  if (!all && got != wanted) return 4;
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    Kernels kernels;
    const uint32_t words = 1 << 13;
    CUdeviceptr data = 0;
    if (pieces.empty()) CU(cuMemAlloc(&data, size_t{words} * 4));
    CUdeviceptr target = pieces.empty() ? data : pieces.front();
    kernels.Launch(kernels.fill, target, words, 5);
    kernels.Launch(kernels.mix, target, words, 5);
    std::printf("worked %016llx\n", DeviceChecksum(target, words));
    std::fflush(stdout);
    if (data != 0) CU(cuMemFree(data));
    CU(cuModuleUnload(kernels.module));
  }
}
