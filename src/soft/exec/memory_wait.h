#pragma once

#include <functional>
#include <vector>

#include "cuda/cuda_abi.h"

namespace tessera::soft {

class MemorySteps;

// CUDA_ERROR_INVALID_VALUE for addresses that are not the device's or not aligned, and for unknown operations;
// CUDA_ERROR_NOT_SUPPORTED for flushing remote writes, as on a real GPU without it.
cuda::CUresult CheckMemoryOperations(const std::vector<cuda::CUstreamBatchMemOpParams>& operations);

// Carries out `operations` one after another, in the steps given; answers CUDA_ERROR_NOT_READY as long as one waits or
// must not begin, to be called again.
std::function<cuda::CUresult(MemorySteps&)> MemoryOperations(std::vector<cuda::CUstreamBatchMemOpParams> operations);

}  // namespace tessera::soft
