#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/size.h"

namespace tessera::soft {

inline constexpr int kMaxDevices = 16;

// Properties of the soft GPUs of a machine; all of them are alike.
struct Spec {
  int devices = 1;
  std::uint64_t memory_bytes = 16 * kGiB;   // of each device
  std::uint64_t context_bytes = 64 * kMiB;  // device memory that each context takes
  std::uint32_t multiprocessors = 8;
  std::uint64_t pcie_bytes_per_second = 4'000'000'000;  // in each direction
  // Of all multiprocessors together, one thread executing one PTX instruction counting one. Far below what the
  // interpreter does on one core, so that a busy host changes little.
  std::uint64_t instructions_per_second = 100'000'000;
  Nanos slice = 2048 * kMicrosecond;  // after which a context hands over to one that waits

  bool operator==(const Spec&) const = default;
};

// Parses "[COUNTx]MEMORY[,sms=N][,pcie=SIZE/s][,speed=N][,slice=N(us|ms)][,context=SIZE]", as in "2x16GiB" or
// "16GiB,sms=8,pcie=8GB/s,slice=2048us". `speed` counts instructions per second, with k, M or G. Empty text is the
// default. EINVAL for what does not parse, ERANGE for more than kMaxDevices devices or a zero.
Result<Spec> ParseSpec(std::string_view text);

// The shortest text that ParseSpec reads as `spec`.
std::string FormatSpec(const Spec& spec);

}  // namespace tessera::soft
