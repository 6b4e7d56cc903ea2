#pragma once

#include <cstdint>

#include "tenant/driver.h"

namespace tessera::tenant {

// Device memory with a known pattern: one 64-bit word at every `stride` bytes.
class Pattern {
 public:
  // Allocates and fills. `allocated` is false afterwards if the driver refused with CUDA_ERROR_OUT_OF_MEMORY.
  // `waits`: until it is filled; else what is launched later finds it so.
  Pattern(Driver& driver, std::uint64_t bytes, std::uint64_t stride, bool waits = true);
  ~Pattern();
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  bool allocated() const { return base_ != 0; }
  // Whether every word still holds what was written.
  bool Verify() const;

 private:
  Driver& driver_;
  std::uint64_t words_ = 0;
  std::uint64_t stride_ = 0;
  cuda::CUdeviceptr base_ = 0;
};

// Allocates pieces of `chunk` bytes until the driver refuses one, holds them for `hold_us`, frees them. Returns the
// bytes it got. Any refusal but CUDA_ERROR_OUT_OF_MEMORY ends the program.
std::uint64_t GrabUntilRefused(Driver& driver, std::uint64_t chunk, unsigned hold_us);

}  // namespace tessera::tenant
