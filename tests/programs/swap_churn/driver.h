// The CUDA driver as any program finds it: libcuda.so.1 by dlopen.
#pragma once

#include <cstdint>
#include <span>

#include "cuda/cuda_abi.h"

namespace tessera::churn {

// The driver's function of that name; ends the program if there is none.
void* Find(const char* name);

// Calls it with exactly these types; they must be those of the function.
template <typename... Arguments>
cuda::CUresult Call(const char* name, Arguments... arguments) {
  return reinterpret_cast<cuda::CUresult (*)(Arguments...)>(Find(name))(arguments...);
}

[[noreturn]] void Die(const char* what, const char* why);

// The same; ends the program with status 3 if the call fails.
void Check(cuda::CUresult result, const char* name);
template <typename... Arguments>
void Must(const char* name, Arguments... arguments) {
  Check(Call(name, arguments...), name);
}

// A context on device 0 with the kernel step(base, words, stride, factor, term), which makes of the word x at
// base + i * stride, for every i < words, x * factor + term + i. All work goes to one stream.
class Gpu {
 public:
  Gpu();

  cuda::CUstream Stream() const { return stream_; }
  // Asynchronous.
  void Step(cuda::CUdeviceptr base, std::uint64_t words, std::uint64_t stride, std::uint64_t factor,
            std::uint64_t term) const;
  void Copy(cuda::CUdeviceptr to, cuda::CUdeviceptr from, std::size_t bytes) const;
  // After all work before.
  void Scatter(cuda::CUdeviceptr to, std::uint64_t stride, std::span<const std::uint64_t> words) const;
  void Gather(std::span<std::uint64_t> words, cuda::CUdeviceptr from, std::uint64_t stride) const;
  void Synchronize() const;

 private:
  cuda::CUstream stream_ = nullptr;
  cuda::CUfunction step_ = nullptr;
};

}  // namespace tessera::churn
