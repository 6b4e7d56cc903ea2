// Requests as rectangles: time x SMs of one GPU.
#pragma once

#include <cmath>
#include <cstdint>

namespace tessera::sched {

// A part of a GPU's time or of its SMs, in millionths of a percent: sums do not drift, six sixths are a whole, and the
// area of a strip fits into 64 bits.
using Part = std::int64_t;

inline constexpr Part kPercent = 1'000'000;
inline constexpr Part kWhole = 100 * kPercent;

// Rounds down, so that equal parts of a whole fit into it; less is given away than anything can measure. `pct` is in
// [0, 100]. The thousandth makes up for decimals that a double holds from below, as 0.29.
inline Part PartOf(double pct) { return static_cast<Part>(std::floor(pct * kPercent + 1e-3)); }
inline double PctOf(Part part) { return static_cast<double>(part) / kPercent; }

struct Rectangle {
  Part sms = 0;   // its width, [0, kWhole]
  Part time = 0;  // its height, [0, kWhole]

  Part Area() const { return sms * time; }
  friend bool operator==(const Rectangle&, const Rectangle&) = default;
};

// A rectangle and the place of its lower left corner in a strip that is as wide as all SMs.
struct Spot {
  Part sms_at = 0;
  Part time_at = 0;
  Rectangle size;

  Part Right() const { return sms_at + size.sms; }
  Part Top() const { return time_at + size.time; }
  bool Overlaps(const Spot& other) const {
    return sms_at < other.Right() && other.sms_at < Right() && time_at < other.Top() && other.time_at < Top();
  }
  bool Contains(const Spot& other) const {
    return sms_at <= other.sms_at && other.Right() <= Right() && time_at <= other.time_at && other.Top() <= Top();
  }
};

}  // namespace tessera::sched
