// Several contexts on one GPU: each has its own modules and memory, and what it held goes with it.
#include "driver.h"

// Work in the current context; the memory is left to the context.
static unsigned long long Work(uint32_t seed) {
  Kernels kernels;
  CUdeviceptr data;
  const uint32_t words = 1 << 14;
  CU(cuMemAlloc(&data, 64 * kMiB));
  kernels.Launch(kernels.fill, data, words, seed);
  for (uint32_t i = 0; i < 10; ++i) kernels.Launch(kernels.mix, data, words, i);
  return DeviceChecksum(data, words);
}

int main() {
  const CUdevice device = UseDevice();
  CUcontext primary;
  CU(cuCtxGetCurrent(&primary));
  std::printf("primary %016llx\n", Work(1));
  const size_t free_before = FreeBytes();

  CUcontext a = CreateContext(device), b = CreateContext(device);  // each becomes current
  std::printf("b %016llx\n", Work(2));
  CU(cuCtxPushCurrent(a));
  std::printf("a %016llx\n", Work(3));
  CUcontext popped;
  CU(cuCtxPopCurrent(&popped));
  EXPECT(popped == a);
  CU(cuCtxSetCurrent(primary));
  std::printf("# two_more_contexts %zu\n", free_before - FreeBytes());
  CU(cuCtxDestroy(a));
  CU(cuCtxDestroy(b));
  std::printf("# after_destroy %zu\n", StillCharged(free_before));

  CU(cuCtxSetCurrent(primary));

  for (uint32_t i = 0; i < 6; ++i) {
    CUcontext passing = CreateContext(device);
    std::printf("passing %016llx\n", Work(10 + i));
    CU(cuCtxDestroy(passing));
  }
  CU(cuCtxSetCurrent(primary));
  std::printf("# after_six_more %zu\n", StillCharged(free_before));
  std::printf("primary again %016llx\n", Work(4));
  CU(cuDevicePrimaryCtxRelease(device));
  unsigned flags = 0;
  int active = -1;
  CU(cuDevicePrimaryCtxGetState(device, &flags, &active));
  std::printf("active %d\n", active);
}
