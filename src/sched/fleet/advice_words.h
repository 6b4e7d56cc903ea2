#pragma once

#include <cmath>
#include <string>

namespace tessera::sched {

// "6 %", "0.5 %": with a decimal below ten, unless it is none.
inline std::string PctWords(double pct) {
  const auto tenths = static_cast<long long>(std::llround(pct * 10));
  const bool whole = tenths % 10 == 0 || tenths >= 100;
  return (whole ? std::to_string(std::llround(pct)) : std::to_string(tenths / 10) + "." + std::to_string(tenths % 10)) +
         " %";
}

}  // namespace tessera::sched
