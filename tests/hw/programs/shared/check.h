// For every program of CUDA here. Its standard output must be the same with and without Tessera, except for
// lines that start with "# ": they hold what depends on the vGPU, as "# name value", for run.py to judge.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kGiB = size_t{1} << 30;

[[noreturn]] inline void Fail(const char* file, int line, const char* what, const char* why) {
  std::printf("%s:%d: %s: %s\n", file, line, what, why);
  std::fflush(stdout);
  std::_Exit(1);
}

inline const char* Name(cudaError_t error) { return cudaGetErrorName(error); }

inline const char* Name(CUresult result) {
  const char* name = nullptr;
  return cuGetErrorName(result, &name) == CUDA_SUCCESS ? name : "an unknown CUresult";
}

// End the program unless the call succeeds. RT takes calls of the runtime, CU calls of the driver: two macros, so that
// a program that is linked without cudart never refers to it.
#define RT(call)                                                                  \
  do {                                                                            \
    cudaError_t rt_error = (call);                                                \
    if (rt_error != cudaSuccess) Fail(__FILE__, __LINE__, #call, Name(rt_error)); \
  } while (0)
#define CU(call)                                                                     \
  do {                                                                               \
    CUresult cu_result = (call);                                                     \
    if (cu_result != CUDA_SUCCESS) Fail(__FILE__, __LINE__, #call, Name(cu_result)); \
  } while (0)
#define EXPECT(condition)                                               \
  do {                                                                  \
    if (!(condition)) Fail(__FILE__, __LINE__, #condition, "is false"); \
  } while (0)

// FNV-1a, 64 bits.
inline unsigned long long Checksum(const void* data, size_t bytes) {
  unsigned long long hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3ull;
  return hash;
}
