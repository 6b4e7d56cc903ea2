#pragma once

#include <algorithm>
#include <chrono>

namespace tessera::kubernetes {

// How long to wait before the next list and watch: a second after a watch that lasted, twice as long after each that
// did not, and half a minute at most, so that a server that refuses is not asked by each node all the time. One thread.
class Backoff {
 public:
  std::chrono::seconds After(std::chrono::steady_clock::duration lasted) {
    constexpr std::chrono::seconds kFirst{1}, kMost{32}, kLasts{10};
    wait_ = lasted >= kLasts || wait_ < kFirst ? kFirst : std::min(2 * wait_, kMost);
    return wait_;
  }

 private:
  std::chrono::seconds wait_{0};
};

}  // namespace tessera::kubernetes
