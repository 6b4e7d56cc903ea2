#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/result.h"
#include "channel/self_test/cuda_library.h"

namespace tessera::channel {

// A kernel that counts up a word of host memory as long as it runs, so that the host sees whether it does. It runs on
// one thread, and ends by itself after kMostTime.
class CountingKernel {
 public:
  static constexpr Nanos kMostTime = 5 * kSecond;

  // In a new context on the device. Does not wait for the kernel to begin.
  static Result<CountingKernel> Start(const CudaLibrary& cuda, cuda::CUdevice device);

  std::uint32_t Count() const { return words_[0]; }
  // Lets the kernel end, and waits for that: it must not be frozen. Tells whether it ran without a fault.
  Result<void> End();

 private:
  CountingKernel(const CudaLibrary& cuda, volatile std::uint32_t* words) : cuda_(cuda), words_(words) {}

  const CudaLibrary& cuda_;
  volatile std::uint32_t* words_;  // the count, and whether to end; pinned, the device writes them
};

}  // namespace tessera::channel
