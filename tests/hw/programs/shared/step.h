// Launches of the kernel Step on a stream: of a length that is chosen once, with proof that each ran exactly once.
#pragma once

#include <algorithm>

#include "clock.h"
#include "driver.h"
#include "stepped.h"

class Stepper {
 public:
  // One word for each thread of so many blocks of 128. Needs a current context.
  explicit Stepper(unsigned blocks) : blocks_(blocks), words_(size_t{blocks} * kThreads) {
    CU(cuModuleGetFunction(&step_, kernels_.module, "Step"));
    CU(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    CU(cuMemAlloc(&state_, Bytes()));
    CU(cuMemHostAlloc(&told_, 4096, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
    std::memset(told_, 0, 4096);
    CU(cuMemHostGetDevicePointer(&told_on_device_, told_, 0));
    Reset();
  }

  // The steps of a launch that takes about so long, alone on the GPU.
  void Calibrate(double kernel_us) {
    steps_ = 1024;
    double took = Time();
    while (took < kernel_us / 2 && steps_ < (1u << 30)) {
      steps_ *= 2;
      took = Time();
    }
    steps_ = static_cast<unsigned>(std::max(1.0, steps_ * kernel_us / took));
    Reset();
  }
  void SetSteps(unsigned steps) { steps_ = steps; }
  unsigned Steps() const { return steps_; }

  void Launch() {
    void* arguments[] = {&state_, &steps_, &told_on_device_};
    CU(cuLaunchKernel(step_, blocks_, 1, 1, kThreads, 1, 1, 0, stream_, arguments, nullptr));
    ++launches_;
  }
  void Wait() const { CU(cuStreamSynchronize(stream_)); }
  CUstream Stream() const { return stream_; }
  const volatile unsigned* Told() const { return static_cast<const volatile unsigned*>(told_); }

  // Waits, and compares every word with what so many launches must give.
  bool Right() const {
    Wait();
    std::vector<uint32_t> host(words_);
    CU(cuMemcpyDtoH(host.data(), state_, Bytes()));
    for (size_t i = 0; i < words_; ++i) {
      if (host[i] != Stepped(static_cast<uint32_t>(i), launches_ * steps_)) return false;
    }
    return true;
  }

 private:
  static constexpr unsigned kThreads = 128;

  size_t Bytes() const { return words_ * 4; }

  void Reset() {
    std::vector<uint32_t> host(words_);
    for (size_t i = 0; i < words_; ++i) host[i] = static_cast<uint32_t>(i);
    CU(cuMemcpyHtoD(state_, host.data(), Bytes()));
    CU(cuCtxSynchronize());  // the copy may return before it has ended, and our stream does not wait for it
    launches_ = 0;
  }

  double Time() {
    Launch();  // the first of a length may load code
    Wait();
    const double begin = NowUs();
    Launch();
    Wait();
    return NowUs() - begin;
  }

  const unsigned blocks_;
  const size_t words_;
  Kernels kernels_;
  CUfunction step_;
  CUstream stream_;
  CUdeviceptr state_ = 0, told_on_device_ = 0;
  void* told_ = nullptr;
  unsigned steps_ = 1;
  unsigned long long launches_ = 0;
};
