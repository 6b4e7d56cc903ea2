#pragma once

#include <cstdint>
#include <string_view>

namespace tessera::cuda {

// The exported symbol that `name` of cuGetProcAddress means for a program built with `cuda_version` (12030 is 12.3):
// "cuMemAlloc" is "cuMemAlloc_v2" since 3.2. `name` itself if it has one version only or none that we know, empty if
// all of its versions are newer. The caller appends _ptsz or _ptds where asked to and such a symbol exists.
std::string_view EntryPointSymbol(std::string_view name, int cuda_version);

}  // namespace tessera::cuda
