#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace tessera::cli::top {

// The last minute of one figure.
class History {
 public:
  static constexpr Nanos kLength = 60 * kSecond;

  // `at` must not go back. Drops values older than a minute.
  void Add(Nanos at, double value);
  // The minute before `now` in so many pieces, the newest last: the mean of the values in each. A piece without values
  // repeats the one before it; pieces before the first value are empty. Pieces begin at whole multiples of their
  // length, so that the picture moves without flicker.
  std::vector<std::optional<double>> Pieces(Nanos now, int pieces) const;

  Nanos newest() const { return values_.empty() ? 0 : values_.back().at; }

 private:
  struct Value {
    Nanos at;
    double value;
  };
  std::deque<Value> values_;
};

}  // namespace tessera::cli::top
