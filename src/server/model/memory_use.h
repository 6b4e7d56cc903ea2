#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "server/model/ledger.h"
#include "server/model/shared_page.h"

namespace tessera::server {

// The memory of one process on one GPU, as the ledger charges it; bytes.
struct MemoryUse {
  explicit MemoryUse(SharedPage& page) : page(page) {}
  SharedPage& page;
  VgpuId vgpu = 0;
  std::uint64_t reserved = 0;           // asked for, including the credit in the page
  const std::uint64_t* room = nullptr;  // where memory is swapped: what it may have on the GPU besides contexts
  std::uint32_t contexts = 0;
  std::uint64_t context_bytes = 0;  // charged for them
  std::uint64_t other = 0;          // what the device or the kernel gate says beyond all that
  std::uint64_t counted = 0;        // by the kernel gate
  std::uint64_t most_counted = 0;   // since the measurement that is under way began
  std::uint64_t most_charged = 0;   // highest reserved + context_bytes since the measurement that is under way began
  std::optional<std::uint64_t> measured;  // the device's own figure
  bool asks_again = false;                // it was told to ask once more whether a mapping may leave host memory blank

  // A measurement of the device is under way from now on.
  void BeginMeasurement() {
    most_charged = Known();
    most_counted = counted;
  }

  std::uint64_t Credit() const;  // as the page says, clipped to what can be true
  std::uint64_t Current() const { return Charged() - Credit(); }
  std::uint64_t Charged() const { return reserved + context_bytes + other; }
  // Host memory that would hold nothing if all of its memory were out, as its page says, clipped likewise.
  std::uint64_t Blank() const;
  std::uint64_t BlankMade() const;  // of that, what mappings that are being made do not add
  // Bytes of it that the device may show: whole chunks, where memory is swapped.
  std::uint64_t Known() const { return std::max(reserved, room ? *room : 0) + context_bytes; }

 private:
  std::uint64_t MostBlank() const;
};

}  // namespace tessera::server
