// What is bound to an address once, and read through the binding later: textures of linear and of pitched memory, and a
// tensor map. "bindings BYTES": prints what each reads, once for each line on stdin.
#include "device_words.h"

__global__ void SumTexture(cudaTextureObject_t texture, uint32_t words, unsigned long long* sum) {
  unsigned long long own = 0;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
    own += tex1Dfetch<uint32_t>(texture, static_cast<int>(i));
  atomicAdd(sum, own);
}

__global__ void SumPitched(cudaTextureObject_t texture, uint32_t width, uint32_t height, unsigned long long* sum) {
  unsigned long long own = 0;
  for (uint32_t y = blockIdx.x; y < height; y += gridDim.x)
    for (uint32_t x = threadIdx.x; x < width; x += blockDim.x) own += tex2D<uint32_t>(texture, x + 0.5f, y + 0.5f);
  atomicAdd(sum, own);
}

constexpr uint32_t kTile = 256;  // words, as many as a block has threads

__global__ void SumTensor(const __grid_constant__ CUtensorMap map, uint32_t tiles, unsigned long long* sum) {
#if __CUDA_ARCH__ >= 900
  __shared__ alignas(128) uint32_t tile[kTile];
  __shared__ alignas(8) uint64_t barrier;
  const auto shared = [](const void* pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); };
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared(&barrier)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  unsigned long long own = 0;
  uint32_t phase = 0;
  for (uint32_t i = blockIdx.x; i < tiles; i += gridDim.x, phase ^= 1) {
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(&barrier)), "r"(kTile * 4)
                   : "memory");
      asm volatile(
          "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];" ::"r"(
              shared(tile)),
          "l"(&map), "r"(i * kTile), "r"(shared(&barrier))
          : "memory");
    }
    uint32_t done = 0;
    while (!done)
      asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                   : "=r"(done)
                   : "r"(shared(&barrier)), "r"(phase)
                   : "memory");
    own += tile[threadIdx.x];
    __syncthreads();
  }
  atomicAdd(sum, own);
#endif
}

static cudaTextureObject_t Bind(const cudaResourceDesc& resource) {
  cudaTextureDesc how = {};
  how.readMode = cudaReadModeElementType;
  cudaTextureObject_t texture;
  RT(cudaCreateTextureObject(&texture, &resource, &how, nullptr));
  return texture;
}

// Nothing on GPUs before Hopper.
static bool Encode(CUtensorMap* map, void* data, uint32_t words) {
  int major = 0;
  RT(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  if (major < 9) return false;
  const cuuint64_t size = words, stride = 0;
  const cuuint32_t box = kTile, step = 1;
  CU(cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 1, data, &size, &stride, &box, &step,
                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return true;
}

int main(int count, char** arguments) {
  EXPECT(count == 2);
  const size_t bytes = std::strtoull(arguments[1], nullptr, 10);
  const auto words = static_cast<uint32_t>(bytes / 4);
  uint32_t *data, *pitched;
  unsigned long long* sums;
  size_t pitch = 0;
  constexpr uint32_t kWidth = 1000, kHeight = 16000;
  RT(cudaMalloc(&data, bytes));
  RT(cudaMallocPitch(&pitched, &pitch, kWidth * 4, kHeight));
  RT(cudaMallocHost(&sums, 3 * sizeof *sums));
  Fill<<<64, 256>>>(data, words, 7);
  Fill<<<64, 256>>>(pitched, static_cast<uint32_t>(pitch / 4 * kHeight), 8);
  RT(cudaDeviceSynchronize());

  cudaResourceDesc linear = {}, plane = {};
  linear.resType = cudaResourceTypeLinear;
  linear.res.linear.devPtr = data;
  linear.res.linear.desc = cudaCreateChannelDesc<uint32_t>();
  linear.res.linear.sizeInBytes = bytes;
  plane.resType = cudaResourceTypePitch2D;
  plane.res.pitch2D.devPtr = pitched;
  plane.res.pitch2D.desc = cudaCreateChannelDesc<uint32_t>();
  plane.res.pitch2D.width = kWidth;
  plane.res.pitch2D.height = kHeight;
  plane.res.pitch2D.pitchInBytes = pitch;
  const cudaTextureObject_t whole = Bind(linear), rows = Bind(plane);
  CUtensorMap map;
  const bool has_map = Encode(&map, data, words);

  char line[64];
  while (std::fgets(line, sizeof line, stdin)) {
    std::memset(sums, 0, 3 * sizeof *sums);
    SumTexture<<<64, 256>>>(whole, words, &sums[0]);
    SumPitched<<<64, 256>>>(rows, kWidth, kHeight, &sums[1]);
    if (has_map) SumTensor<<<64, kTile>>>(map, words / kTile, &sums[2]);
    RT(cudaGetLastError());
    RT(cudaDeviceSynchronize());
    std::printf("texture %llu pitched %llu tensor %llu\n", sums[0], sums[1], sums[2]);
    std::fflush(stdout);
  }
}
