#pragma once

#include <string>

#include "base/result.h"
#include "cli/launch/common.h"

namespace tessera::cli {

struct BenchChoices {
  bool gpu_model = false;    // what is measured; there is nothing else yet
  std::string output = "-";  // the file; "-": stdout
  unsigned gpu = 0;          // index
  bool force = false;        // although others use the GPU
};

// Measures a GPU and writes its model's file, which plan::FindGpuModel reads. The exit status.
Result<int> Bench(const Common& common, const BenchChoices& choices);

}  // namespace tessera::cli
