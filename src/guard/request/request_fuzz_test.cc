// The same as the fuzzer, from fixed seeds: every run sees the same requests.
#include "guard/request/request_fuzz.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "guard/request/requests.h"

namespace tessera::guard {
namespace {

using Bytes = std::vector<std::uint8_t>;

// Words that mean something to the gate, so that random requests get past the first look.
constexpr std::array<std::uint32_t, 19> kWords = {
    0,      1,      2,          3,        14,     0x3e,       0x3f,       0x40,       0x41, 0x80,
    0xa06c, 0xc86f, 0x2080110b, 0x801711, 0x2080, 0xa06c0101, 0xa06c0103, 0x20801117, 0xc2};

TEST(RequestFuzzTest, RandomRequests) {
  std::mt19937 random(1);
  for (int round = 0; round < 200000; ++round) {
    Bytes bytes(2 + random() % 800);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random() % 4 ? 0 : random());
    bytes[0] = static_cast<std::uint8_t>(random());
    bytes[1] = static_cast<std::uint8_t>(random());
    for (int word = 0; word < 6; ++word) {
      const std::size_t at = 2 + 4 * (random() % 20);
      if (at + 4 <= bytes.size()) std::memcpy(&bytes[at], &kWords[random() % kWords.size()], 4);
    }
    ASSERT_TRUE(RunRequest(bytes)) << "round " << round;
  }
}

TEST(RequestFuzzTest, TruncatedAnywhere) {
  for (std::size_t number = 0; number < kGuardedSizes.size(); ++number) {
    for (std::size_t length = 0; length < 800; ++length) {
      Bytes bytes(length + 1, 1);
      bytes[0] = static_cast<std::uint8_t>(number);
      ASSERT_TRUE(RunRequest(bytes)) << number << ", " << length << " bytes";
    }
  }
}

}  // namespace
}  // namespace tessera::guard
