// The primary context is reset: what it held is gone, and the program starts over.
#include "device_words.h"

static unsigned long long Work(uint32_t seed) {
  DeviceWords buffer(1 << 20);
  buffer.FillOn(nullptr, seed);
  buffer.MixOn(nullptr, seed);
  return buffer.Sum();
}

static void Free(const char* name) {
  size_t free = 0, total = 0;
  RT(cudaMemGetInfo(&free, &total));
  std::printf("# %s %zu\n", name, free);
}

int main() {
  std::printf("first %016llx\n", Work(1));
  Free("free_first");
  void* lost;
  RT(cudaMalloc(&lost, 512 * kMiB));
  RT(cudaDeviceReset());
  std::printf("second %016llx\n", Work(2));
  Free("free_second");
  RT(cudaMalloc(&lost, 512 * kMiB));
  CUdevice device;
  CU(cuDeviceGet(&device, 0));
  CU(cuDevicePrimaryCtxReset(device));
  std::printf("free after the reset: %s\n", Name(cudaFree(lost)));
}
