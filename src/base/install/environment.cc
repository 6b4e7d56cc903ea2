#include "base/install/environment.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tessera {
namespace {

// The CUDA driver and runtime, NVIDIA's container tools, the dynamic linker, the C library's allocator, and Tessera.
constexpr std::string_view kOthers[] = {"CUDA_", "GLIBC_TUNABLES", "LD_", "MALLOC_", "NVIDIA_", "TESSERA_"};

// Variables that the daemon and its own programs read: where the run directory, the driver, the soft GPU and lasting
// control groups are, and faults for tests (base/fault.h).
constexpr std::string_view kOwn[] = {"TESSERA_FAULT",       "TESSERA_LASTING_GROUPS", "TESSERA_REAL_LIBCUDA",
                                     "TESSERA_REAL_NVML",   "TESSERA_RUN_DIR",        "TESSERA_SOFT",
                                     "TESSERA_SOFT_FAULTS", "TESSERA_SOFT_NAME",      "TESSERA_SOFT_USER"};

}  // namespace

bool IsOfOtherPrograms(std::string_view name) {
  if (std::ranges::find(kOwn, name) != std::end(kOwn)) return false;
  return std::ranges::any_of(kOthers, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

void ForgetOtherPrograms() {
  std::vector<std::string> names;
  for (char** at = environ; at && *at; ++at) {
    const std::string_view variable(*at);
    const std::string_view name = variable.substr(0, variable.find('='));
    if (IsOfOtherPrograms(name)) names.emplace_back(name);
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

}  // namespace tessera
