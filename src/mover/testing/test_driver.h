// The soft GPU's driver, or the one that TESSERA_TEST_LIBCUDA finds, for tests of the mover's process.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/unique_fd.h"
#include "mover/gpu/cuda_library.h"
#include "wire/line.h"

// A call of the driver that has to succeed.
#define MUST(call) EXPECT_EQ(call, cuda::CUDA_SUCCESS) << #call

namespace tessera::mover {

// The driver as a program uses it.
struct TestDriver {
  CudaLibrary cuda;
  cuda::CUresult (*copy_rows)(const cuda::CUDA_MEMCPY2D* rows) = nullptr;
  cuda::CUresult (*copy_out)(void* to, cuda::CUdeviceptr from, std::size_t bytes) = nullptr;
  cuda::CUdevice device = 0;
  std::string uuid;

  static const TestDriver& Get();
  cuda::CUmemGenericAllocationHandle MakeChunk(std::uint64_t bytes = wire::kChunkBytes) const;
  UniqueFd Export(cuda::CUmemGenericAllocationHandle handle) const;
};

}  // namespace tessera::mover
