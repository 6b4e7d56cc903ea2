// The CUDA driver's library as a program without CUDA runtime finds it. A header, so that the shim, which links this
// part too, stays without dlopen.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "base/processor/processor.h"

namespace tessera::cuda {

// As the shim looks for it (src/shim/load/real.cc), after where the linker would.
inline constexpr const char* kDriverPlaces[] = {
    "libcuda.so.1",
    TESSERA_LIBRARY_FOLDER "/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
    "/usr/local/nvidia/lib64/libcuda.so.1",
    "/usr/local/nvidia/lib/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "/run/opengl-driver/lib/libcuda.so.1",
    "/usr/lib/libcuda.so.1",
};

// Opens `path`; if it is empty, $TESSERA_REAL_LIBCUDA if set, else where programs and distributions have the library,
// Tessera's shim passed over. Null if there is none; `why` then says so in words.
inline void* OpenDriver(const std::string& path, std::string& why) {
  std::string file = path;
  if (const char* named = std::getenv("TESSERA_REAL_LIBCUDA"); file.empty() && named != nullptr) file = named;
  if (!file.empty()) {
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) why = std::string("load the CUDA driver: ") + dlerror();
    return library;
  }
  for (const char* place : kDriverPlaces) {
    void* library = dlopen(place, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    if (dlsym(library, "tessera_shim_version") == nullptr) return library;
    dlclose(library);
  }
  why = "there is no NVIDIA driver (libcuda.so.1)";
  return nullptr;
}

}  // namespace tessera::cuda
