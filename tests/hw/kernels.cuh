// The kernels that the programs share: included by those of the runtime, and compiled to kernels.ptx for those of the
// driver API (nvcc -ptx). Integers only, so that every device gives the same words.
#ifndef TESTS_HW_KERNELS_CUH_  // no "pragma once": this is also compiled as a file of its own
#define TESTS_HW_KERNELS_CUH_

#include <cstdint>

extern "C" __global__ void Empty() {}

// data[i] = a number that depends on i and seed.
extern "C" __global__ void Fill(uint32_t* data, uint32_t words, uint32_t seed) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
    data[i] = (i ^ seed) * 2654435761u;
}

// The result depends on the order of the calls, so a lost dependency shows in the checksum.
extern "C" __global__ void Mix(uint32_t* data, uint32_t words, uint32_t value) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
    data[i] = data[i] * 31u + value;
}

#endif
