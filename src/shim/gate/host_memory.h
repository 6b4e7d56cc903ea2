#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::shim {

// The bytes of the program's GPU memory that lie in host memory, where kernels reach them over the bus. Gates need no
// more of swapping than this. Any thread.
class HostMemory {
 public:
  // The heap has this many bytes there now. One thread at a time calls it.
  void Report(std::uint64_t bytes) {
    if (bytes > bytes_) more_out_ = true;
    bytes_ = bytes;
  }

  std::uint64_t Bytes() const { return bytes_.load(std::memory_order_relaxed); }
  bool Any() const { return Bytes() > 0; }
  // Whether more memory went there since the last call.
  bool TakeMoreOut() { return more_out_.load(std::memory_order_relaxed) && more_out_.exchange(false); }

 private:
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<bool> more_out_{false};
};

}  // namespace tessera::shim
