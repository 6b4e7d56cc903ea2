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

  // `at` must not go back. What is older than a minute by then is forgotten.
  void Add(Nanos at, double value);
  // The minute before `now` in so many pieces, the newest last: the mean of what came in each. A piece in which nothing
  // came is as the one before; before the first value there is none. Pieces begin at whole multiples of their length,
  // so that the picture moves and does not flicker.
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
