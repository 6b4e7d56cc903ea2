#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "driver.h"

namespace tessera::churn {

class Source;

// Memory of the GPU: words at multiples of `stride`, and what each must be once the stream has come to its end.
struct Buffer {
  cuda::CUdeviceptr address = 0;
  std::uint64_t bytes = 0, stride = 0;
  std::vector<std::uint64_t> words;
  Source* source = nullptr;   // who gave it
  int slot = -1;              // where the peer has it open
  const char* last = "made";  // what was done to it
};

// Who gives memory, in one of the ways that the driver has.
class Source {
 public:
  virtual ~Source() = default;
  virtual const char* Name() const = 0;
  // Memory of about `buffer.bytes`, never more; sets address and bytes.
  virtual cuda::CUresult Make(Buffer& buffer) = 0;
  // Also while work that uses it is under way.
  virtual void Free(Buffer& buffer) = 0;
};

// What Gpu::Step() makes of words.
inline void StepOnHost(std::span<std::uint64_t> words, std::uint64_t factor, std::uint64_t term) {
  for (std::uint64_t i = 0; i < words.size(); ++i) words[i] = words[i] * factor + term + i;
}

}  // namespace tessera::churn
