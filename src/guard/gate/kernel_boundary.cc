#include "guard/gate/kernel_boundary.h"

#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#include <cerrno>

#include "channel/rm/driver_abi.h"

namespace tessera::guard {

KernelBoundary::File KernelBoundary::Kind(const struct stat& file) const {
  if (!S_ISCHR(file.st_mode) || major(file.st_rdev) != channel::abi::kMajor) return File::kOther;
  return minor(file.st_rdev) == channel::abi::kControlMinor ? File::kControl : File::kDevice;
}

int KernelBoundary::Execute(int file, std::uint64_t request, void* argument) {
  const int result = ioctl(file, request, argument);
  return result < 0 ? -errno : result;
}

}  // namespace tessera::guard
