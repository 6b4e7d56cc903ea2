#pragma once

#include <cstdint>
#include <random>

#include "base/clock.h"
#include "plan/model/workload.h"

namespace tessera::plan {

// Random times of one program or GPU. The same seed gives the same times, whatever else is simulated beside it.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  // In [least, most]; `least` if that is empty.
  Nanos Between(Nanos least, Nanos most) {
    return most <= least ? least : std::uniform_int_distribution<Nanos>(least, most)(engine_);
  }
  Nanos UpTo(Nanos most) { return Between(0, most); }
  Nanos Of(const Span& span) {
    if (!span.exponential) return Between(span.least, span.most);
    if (span.most <= 0) return 0;
    return static_cast<Nanos>(std::exponential_distribution<double>(1 / static_cast<double>(span.most))(engine_));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace tessera::plan
