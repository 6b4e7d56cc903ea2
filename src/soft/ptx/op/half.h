// The 16-bit floating-point formats, which C++ does not have here.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace tessera::soft::ptx {

// A format of 1 sign bit, `exponent_bits` and `fraction_bits`. Doubles hold its values, products and nearly all sums
// exactly, so arithmetic is done in double and rounded once.
template <unsigned exponent_bits, unsigned fraction_bits>
struct SmallFloat {
  static constexpr int kBias = (1 << (exponent_bits - 1)) - 1;
  static constexpr std::uint16_t kInfinity = ((1u << exponent_bits) - 1) << fraction_bits;
  static constexpr std::uint16_t kSign = 0x8000;
  static constexpr std::uint16_t kNan = 0x7fff;

  static double ToDouble(std::uint16_t bits) {
    const int exponent = (bits & kInfinity) >> fraction_bits;
    const int fraction = bits & ((1 << fraction_bits) - 1);
    double value;
    if (exponent == kInfinity >> fraction_bits) {
      value = fraction != 0 ? NAN : INFINITY;
    } else if (exponent == 0) {
      value = std::ldexp(fraction, 1 - kBias - static_cast<int>(fraction_bits));
    } else {
      value = std::ldexp(fraction + (1 << fraction_bits), exponent - kBias - static_cast<int>(fraction_bits));
    }
    return bits & kSign ? -value : value;
  }

  // To nearest even, or towards zero.
  static std::uint16_t FromDouble(double value, bool truncate = false) {
    if (std::isnan(value)) return kNan;
    const std::uint16_t sign = std::signbit(value) ? kSign : 0;
    const double magnitude = std::fabs(value);
    if (std::isinf(value)) return sign | kInfinity;
    if (magnitude == 0) return sign;
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    // A unit in the last place, of the smallest normal numbers and everything below them the same.
    const int unit = std::max(exponent - 1, 1 - kBias) - static_cast<int>(fraction_bits);
    const double scaled = std::ldexp(magnitude, -unit);
    const double rounded = truncate ? std::trunc(scaled) : std::nearbyint(scaled);
    // Counting from the bits of the unit's exponent makes a carry of the fraction one of the exponent.
    const int biased = unit + static_cast<int>(fraction_bits) + kBias - 1;
    const auto bits = static_cast<std::int64_t>(rounded) + (static_cast<std::int64_t>(biased) << fraction_bits);
    if (bits >= kInfinity) return sign | (truncate ? kInfinity - 1 : kInfinity);
    return sign | static_cast<std::uint16_t>(bits);
  }
};

using Half = SmallFloat<5, 10>;
using Bfloat16 = SmallFloat<8, 7>;

}  // namespace tessera::soft::ptx
