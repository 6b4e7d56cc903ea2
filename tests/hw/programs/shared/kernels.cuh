// The kernels that the programs share: included by those of the runtime, and compiled to kernels.ptx for those of the
// driver API (nvcc -ptx). Integers only, so that every device gives the same words.
#ifndef TESTS_HW_KERNELS_CUH_  // no "pragma once": this is also compiled as a file of its own
#define TESTS_HW_KERNELS_CUH_

#include <cstdint>

#include "memory_kernels.cuh"

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

// Every thread steps its word `steps` times: each step needs the one before, so the length of the kernel is in our
// hands and the words prove that all of it ran, once. The first thread counts in `told` (host memory) as it goes:
// whoever reads that sees whether the kernel runs at this moment.
extern "C" __global__ void Step(uint32_t* words, uint32_t steps, volatile uint32_t* told) {
  uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  uint32_t word = words[thread];
  uint32_t count = thread == 0 ? *told : 0;
  for (uint32_t i = 0; i < steps; ++i) {
    word = word * 1664525u + 1013904223u;
    if (thread == 0 && (i & 1023u) == 1023u) *told = ++count;
  }
  if (thread == 0) *told = ++count;
  words[thread] = word;
}

#endif
