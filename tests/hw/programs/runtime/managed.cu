// Managed memory, well within what is free: written by the CPU, changed by the GPU, read by the CPU, prefetched.
#include "device_words.h"

constexpr size_t kBytes = 192 * kMiB;
constexpr uint32_t kWords = kBytes / 4;

int main() {
  uint32_t* data;
  RT(cudaMallocManaged(&data, kBytes));
  for (uint32_t i = 0; i < kWords; ++i) data[i] = i;
  Mix<<<256, 256>>>(data, kWords, 1);
  RT(cudaDeviceSynchronize());
  std::printf("from the CPU %016llx\n", Checksum(data, kBytes));

  cudaMemLocation device = {}, host = {};
  device.type = cudaMemLocationTypeDevice;
  host.type = cudaMemLocationTypeHost;
  RT(cudaMemAdvise(data, kBytes, cudaMemAdviseSetPreferredLocation, device));
  RT(cudaMemPrefetchAsync(data, kBytes, device, 0, nullptr));
  Mix<<<256, 256>>>(data, kWords, 2);
  RT(cudaMemPrefetchAsync(data, kBytes, host, 0, nullptr));
  RT(cudaDeviceSynchronize());
  std::printf("prefetched %016llx\n", Checksum(data, kBytes));

  cudaPointerAttributes attributes;
  RT(cudaPointerGetAttributes(&attributes, data));
  std::printf("kind %d\n", static_cast<int>(attributes.type));
  RT(cudaFree(data));

  RT(cudaMallocManaged(&data, 16 * kMiB, cudaMemAttachHost));
  RT(cudaFree(data));
}
