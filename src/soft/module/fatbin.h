#pragma once

#include <string>

#include "base/result.h"

namespace tessera::soft {

// The PTX text in what programs give cuModuleLoadData: text itself, nvcc's fatbin, or the wrapper that nvcc puts around
// one. Of several texts in a fatbin the newest that a device of `compute_capability` (90 for 9.0) may run.
//
// EINVAL for what is none of these, ENOENT for a fatbin without such PTX, as nvcc makes it for real GPUs alone, ENOTSUP
// for a compression that is not known. As for the driver, no length is given: a fatbin tells its own, text ends with a
// zero byte.
Result<std::string> FindPtx(const void* image, int compute_capability);

}  // namespace tessera::soft
