// nvcc -arch=sm_90 -ptx warp.cu
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace cg = cooperative_groups;

extern "C" {

// Each block hands its values to the next one, twice.
__global__ void grid_sync(int* values, int n) {
  cg::grid_group grid = cg::this_grid();
  const int i = static_cast<int>(grid.thread_rank());
  values[i] = i;
  grid.sync();
  const int other = values[(i + blockDim.x) % n];
  grid.sync();
  values[i] = other;
}

__global__ void votes(int* out) {
  const int i = threadIdx.x;
  out[8 * i] = __ballot_sync(~0u, i & 1);
  out[8 * i + 1] = __any_sync(~0u, i == 3) * 2 + __all_sync(~0u, i < 40);
  out[8 * i + 2] = __shfl_xor_sync(~0u, i, 3) * 100 + __shfl_up_sync(~0u, i, 2);
  out[8 * i + 3] = __reduce_add_sync(~0u, i);
  out[8 * i + 4] = __match_any_sync(~0u, i & 3);
  out[8 * i + 5] = __syncthreads_count(i & 1);
  out[8 * i + 6] = __syncthreads_or(i == 40) * 2 + __syncthreads_and(i < 40);
  if (i % 2 == 0) out[8 * i + 7] = __activemask();
  __syncwarp();
}

// Tiles of 8 lanes: the lanes of a warp run the same instruction with different member masks.
__global__ void tiles(int* out) {
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  int sum = threadIdx.x;
  for (int step = 4; step > 0; step /= 2) sum += tile.shfl_down(sum, step);
  const bool first_tile = tile.any(threadIdx.x == 3);
  out[threadIdx.x] = tile.shfl(sum, 0) * 2 + first_tile;
}

__global__ void halves(const float* in, __half* sums, __half2* products, __nv_bfloat16* squares, float* back) {
  const int i = threadIdx.x;
  const __half h = __float2half(in[i]);
  sums[i] = __hadd(h, __float2half(0.25f));
  products[i] = __hfma2(__floats2half2_rn(in[i], 2.0f), __half2half2(h), __float2half2_rn(1.0f));
  squares[i] = __float2bfloat16(in[i]) * __float2bfloat16(in[i]);
  back[i] = __half2float(sums[i]) + (__hgt(h, __float2half(0.0f)) ? 100.0f : 0.0f);
}

__global__ void atomics(int* i, unsigned long long* u, float* f, double* d, unsigned* wrapped) {
  atomicAdd(&i[0], 1);
  atomicMax(&i[1], (int)threadIdx.x);
  atomicMin(&i[2], -(int)threadIdx.x);
  atomicOr(&i[3], 1 << threadIdx.x % 32);
  atomicXor(&i[4], threadIdx.x);
  atomicAdd(u, 1ull << 33);
  atomicAdd(f, 0.5f);
  atomicAdd(d, 0.25);
  atomicInc(&wrapped[0], 4);
  atomicDec(&wrapped[1], 4);
}
}
