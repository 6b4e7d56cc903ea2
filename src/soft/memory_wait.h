#pragma once

#include <functional>
#include <vector>

#include "cuda/cuda_abi.h"

namespace tessera::soft {

// CUDA_ERROR_INVALID_VALUE for addresses that are not the device's or not aligned, and for unknown operations;
// CUDA_ERROR_NOT_SUPPORTED for flushing remote writes, as on a real GPU without it.
cuda::CUresult CheckMemoryOperations(const std::vector<cuda::CUstreamBatchMemOpParams>& operations);

// A task body that carries out `operations` one after another; it answers CUDA_ERROR_NOT_READY as long as one waits.
std::function<cuda::CUresult()> MemoryOperations(std::vector<cuda::CUstreamBatchMemOpParams> operations);

}  // namespace tessera::soft
