#pragma once

#include <sys/stat.h>

#include <cstdint>

namespace tessera::guard {

// What the gate asks the kernel driver itself. Tests put a driver of their own here.
class KernelBoundary {
 public:
  enum class File {
    kOther,
    kControl,  // /dev/nvidiactl, which all requests of the resource manager go through
    kDevice,   // /dev/nvidiaN
  };

  virtual ~KernelBoundary() = default;

  virtual File Kind(const struct stat& file) const;

  // ioctl(2) on a file of kControl: what it returned, or the negative errno value.
  virtual int Execute(int file, std::uint64_t request, void* argument);
};

}  // namespace tessera::guard
