// printf from a kernel, flushed by a synchronisation, and an assertion-free malloc on the device's own heap.
#include "check.h"

__global__ void Say(int round) { printf("block %u thread %u round %d\n", blockIdx.x, threadIdx.x, round); }

__global__ void UseHeap(unsigned* sum) {
  unsigned* mine = static_cast<unsigned*>(malloc(256));
  if (mine == nullptr) return;
  for (unsigned i = 0; i < 64; ++i) mine[i] = i + threadIdx.x;
  unsigned total = 0;
  for (unsigned i = 0; i < 64; ++i) total += mine[i];
  atomicAdd(sum, total);
  free(mine);
}

int main() {
  RT(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 4 * kMiB));  // only before the first kernel that prints
  for (int round = 0; round < 3; ++round) {
    Say<<<1, 4>>>(round);  // one warp of one block prints in the order of its threads
    RT(cudaDeviceSynchronize());
  }
  unsigned *sum, host = 0;
  RT(cudaMalloc(&sum, 4));
  RT(cudaMemset(sum, 0, 4));
  UseHeap<<<8, 128>>>(sum);
  RT(cudaMemcpy(&host, sum, 4, cudaMemcpyDeviceToHost));
  std::printf("device heap %u\n", host);
}
