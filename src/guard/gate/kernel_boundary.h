#pragma once

#include <sys/stat.h>

#include <cstdint>

namespace tessera::guard {

// The gate's own calls to the kernel driver. Tests replace it by a driver of their own.
class KernelBoundary {
 public:
  enum class File {
    kOther,
    kControl,  // /dev/nvidiactl, which all requests of the resource manager go through
    kDevice,   // /dev/nvidiaN
    kDisplay,  // /dev/dri/*, of NVIDIA's display driver
  };

  virtual ~KernelBoundary() = default;

  virtual File Kind(const struct stat& file) const;

  // ioctl(2) on a file of kControl. Returns its result, or the negative errno value.
  virtual int Execute(int file, std::uint64_t request, void* argument);
};

}  // namespace tessera::guard
