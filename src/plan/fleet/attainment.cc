#include "plan/fleet/attainment.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tessera::plan {
namespace {

// Of Student's t, two-sided, 95 %, by degrees of freedom from 1.
double StudentT(std::size_t freedom) {
  constexpr std::array kTable = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                 2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086};
  return freedom <= kTable.size() ? kTable[freedom - 1] : 1.96;
}

}  // namespace

Estimate EstimateMean(const std::vector<double>& parts) {
  if (parts.empty()) return {};
  const auto count = static_cast<double>(parts.size());
  double sum = 0;
  for (const double part : parts) sum += part;
  const double mean = sum / count;
  if (parts.size() == 1) return {mean, mean, mean};
  double squares = 0;
  for (const double part : parts) squares += (part - mean) * (part - mean);
  const double half = StudentT(parts.size() - 1) * std::sqrt(squares / (count - 1) / count);
  return {mean, mean - half, mean + half};
}

Estimate EstimatePart(std::uint64_t good, std::uint64_t count) {
  if (count == 0) return {};
  constexpr double kZ = 1.96;
  const auto n = static_cast<double>(count);
  const double part = static_cast<double>(good) / n;
  const double middle = (part + kZ * kZ / (2 * n)) / (1 + kZ * kZ / n);
  const double half = kZ / (1 + kZ * kZ / n) * std::sqrt(part * (1 - part) / n + kZ * kZ / (4 * n * n));
  return {part, std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

}  // namespace tessera::plan
