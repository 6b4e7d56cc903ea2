#pragma once

#include "cuda/abi_types.h"

namespace tessera::cuda {

// "CUDA_ERROR_OUT_OF_MEMORY", or null for a value that no CUresult has. The text lives as long as the program.
const char* ResultName(CUresult result);

// The same in words, one line without a full stop, or null.
const char* ResultText(CUresult result);

}  // namespace tessera::cuda
