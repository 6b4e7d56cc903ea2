#pragma once

#include <cstddef>
#include <cstdint>

#include "guard/gate/kernel_boundary.h"

namespace tessera::guard {

// A resource manager without a GPU, for a daemon on the soft GPU: it lets a machine without a driver try the kernel
// gate. A control file is a memfd of kFileBytes; what was made on it lies in it, so it outlives the daemon. It knows
// memory, devices and their frees (NV_ESC_RM_ALLOC as NVOS64, NV_ESC_RM_FREE), for one client a file.
class SoftBoundary : public KernelBoundary {
 public:
  static constexpr long kFileBytes = 262144;
  static constexpr std::uint64_t kGranularity = 2 << 20;

  // An open control file, for any process.
  static int Open();
  // How many objects were made on it and not freed.
  static std::size_t Objects(int file);

  File Kind(const struct stat& file) const override;
  int Execute(int file, std::uint64_t request, void* argument) override;
};

}  // namespace tessera::guard
