#pragma once

#include <span>

namespace tessera::plan {

// A file of src/plan/gpus/data, as the build found it.
struct GpuModelFile {
  const char* name;  // without ".toml"
  const char* text;
};

// By the alphabet.
std::span<const GpuModelFile> GpuModelFiles();

}  // namespace tessera::plan
