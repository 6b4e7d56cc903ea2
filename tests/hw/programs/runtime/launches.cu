// Every form of launch: cooperative with a grid barrier, with attributes, clusters, and dependent launches.
#include <cooperative_groups.h>

#include "device_words.h"

namespace cg = cooperative_groups;

// Each round reads what other blocks wrote in the round before, so a barrier that does not hold shows.
__global__ void Rotate(uint32_t* from, uint32_t* to, uint32_t words, int rounds) {
  cg::grid_group grid = cg::this_grid();
  for (int round = 0; round < rounds; ++round) {
    for (uint32_t i = grid.thread_rank(); i < words; i += grid.size()) to[(i + 4099) % words] = from[i] * 31u + round;
    grid.sync();
    uint32_t* swap = from;
    from = to;
    to = swap;
  }
}

// May start before the kernel in front of it has ended, and waits for it by itself.
__global__ void MixDependent(uint32_t* data, uint32_t words, uint32_t value) {
  cudaGridDependencySynchronize();
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
    data[i] = data[i] * 31u + value;
}

__global__ void ClusterRanks(uint32_t* out) {
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  if (threadIdx.x == 0) out[blockIdx.x] = cluster.block_rank() + 100 * cluster.num_blocks();
}

static void Cooperative() {
  DeviceWords a(1 << 18), b(1 << 18);
  a.FillOn(nullptr, 3);
  int per_multiprocessor = 0;
  RT(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, Rotate, 256, 0));
  EXPECT(per_multiprocessor > 0);
  uint32_t words = a.words;
  int rounds = 200;
  void* arguments[] = {&a.data, &b.data, &words, &rounds};
  RT(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(Rotate), dim3(64), dim3(256), arguments, 0, nullptr));
  std::printf("cooperative %016llx\n", a.Sum());
  cudaError_t too_large =
      cudaLaunchCooperativeKernel(reinterpret_cast<void*>(Rotate), dim3(1 << 20), dim3(256), arguments, 0, nullptr);
  std::printf("too many blocks: %s\n", Name(too_large));
  cudaGetLastError();
}

static void WithAttributes() {
  cudaStream_t stream;
  RT(cudaStreamCreate(&stream));
  cudaLaunchAttribute attribute[1];
  cudaLaunchConfig_t config = {};
  config.stream = stream;
  config.attrs = attribute;
  config.numAttrs = 1;

  DeviceWords ranks(64);
  config.gridDim = dim3(64);
  config.blockDim = dim3(32);
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = 4;
  attribute[0].val.clusterDim.y = attribute[0].val.clusterDim.z = 1;
  RT(cudaLaunchKernelEx(&config, ClusterRanks, ranks.data));
  std::printf("clusters %016llx\n", ranks.Sum());

  DeviceWords buffer(1 << 18);
  config.gridDim = dim3(64);
  config.blockDim = dim3(256);
  attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[0].val.programmaticStreamSerializationAllowed = 1;
  buffer.FillOn(stream, 5);
  for (uint32_t i = 0; i < 50; ++i) RT(cudaLaunchKernelEx(&config, MixDependent, buffer.data, buffer.words, i));
  std::printf("dependent %016llx\n", buffer.Sum());
  RT(cudaStreamDestroy(stream));
}

int main() {
  Cooperative();
  WithAttributes();
}
