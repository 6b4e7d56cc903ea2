#include "guard/gate/kernel_boundary.h"

#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>

#include "channel/rm/driver_abi.h"

namespace tessera::guard {

namespace {

constexpr unsigned kDisplayMajor = 226;  // of all display drivers (DRM_MAJOR)

// By the driver that the kernel bound to the device behind the node.
bool IsNvidiaDisplay(dev_t device) {
  char path[64];
  std::snprintf(path, sizeof path, "/sys/dev/char/%u:%u/device/driver", major(device), minor(device));
  std::array<char, 256> target;
  const ssize_t length = readlink(path, target.data(), target.size());
  return length > 0 && std::string_view(target.data(), static_cast<std::size_t>(length)).ends_with("/nvidia");
}

}  // namespace

KernelBoundary::File KernelBoundary::Kind(const struct stat& file) const {
  if (!S_ISCHR(file.st_mode)) return File::kOther;
  if (major(file.st_rdev) == kDisplayMajor) return IsNvidiaDisplay(file.st_rdev) ? File::kDisplay : File::kOther;
  if (major(file.st_rdev) != channel::abi::kMajor) return File::kOther;
  return minor(file.st_rdev) == channel::abi::kControlMinor ? File::kControl : File::kDevice;
}

int KernelBoundary::Execute(int file, std::uint64_t request, void* argument) {
  const int result = ioctl(file, request, argument);
  return result < 0 ? -errno : result;
}

}  // namespace tessera::guard
