// The questions of a program before it computes: devices, peers, occupancy, function attributes, limits.
#include "device_words.h"

int main() {
  int count = 0, runtime = 0, driver = 0;
  cudaError_t found = cudaGetDeviceCount(&count);
  std::printf("devices %d %s\n", count, Name(found));
  RT(cudaRuntimeGetVersion(&runtime));
  RT(cudaDriverGetVersion(&driver));
  std::printf("versions %d %d\n", runtime, driver);
  if (count == 0) return 0;

  cudaDeviceProp properties;
  RT(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s %d.%d, %d multiprocessors, %d threads, warp %d, managed %d, pools %d, cooperative %d\n",
              properties.name, properties.major, properties.minor, properties.multiProcessorCount,
              properties.maxThreadsPerBlock, properties.warpSize, properties.managedMemory,
              properties.memoryPoolsSupported, properties.cooperativeLaunch);
  char bus[32];
  RT(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
  int by_bus = -1;
  RT(cudaDeviceGetByPCIBusId(&by_bus, bus));
  std::printf("bus %s is %d\n", bus, by_bus);

  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      int can = -1;
      cudaError_t answer = cudaDeviceCanAccessPeer(&can, from, to);
      std::printf("peer %d-%d %d %s\n", from, to, can, Name(answer));
    }
  }
  std::printf("peer with itself: %s\n", Name(cudaDeviceEnablePeerAccess(0, 0)));
  cudaGetLastError();

  int blocks = 0, grid = 0, block = 0;
  RT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Mix, 256, 0));
  RT(cudaOccupancyMaxPotentialBlockSize(&grid, &block, Mix, 0, 0));
  size_t shared = 0;
  RT(cudaOccupancyAvailableDynamicSMemPerBlock(&shared, Mix, 2, 256));
  std::printf("occupancy %d blocks, grid %d block %d, shared %zu\n", blocks, grid, block, shared);
  cudaFuncAttributes attributes;
  RT(cudaFuncGetAttributes(&attributes, Mix));
  std::printf("function %d registers, %zu shared, %zu local, at most %d threads\n", attributes.numRegs,
              attributes.sharedSizeBytes, attributes.localSizeBytes, attributes.maxThreadsPerBlock);
  size_t stack = 0, heap = 0;
  RT(cudaDeviceGetLimit(&stack, cudaLimitStackSize));
  RT(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
  std::printf("limits %zu %zu\n", stack, heap);
}
