#include "plan/model/figures.h"

#include <algorithm>
#include <cmath>

namespace tessera::plan {

double Percent(Nanos part, Nanos whole) {
  return whole <= 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

Nanos BurstFigures::Quantile(double part) const {
  if (latencies.empty()) return 0;
  std::vector<Nanos> sorted = latencies;
  const double rank = std::ceil(std::clamp(part, 0.0, 1.0) * static_cast<double>(sorted.size()));
  const auto nth = sorted.begin() + std::max<std::ptrdiff_t>(0, static_cast<std::ptrdiff_t>(rank) - 1);
  std::ranges::nth_element(sorted, nth);
  return *nth;
}

double GpuFigures::PerSecond(std::int64_t count) const {
  return measured <= 0 ? 0 : static_cast<double>(count) * kSecond / static_cast<double>(measured);
}

}  // namespace tessera::plan
