#pragma once

#include <cstdint>
#include <vector>

namespace tessera::sched {

// Pieces of one size that are to be cut from bars.
struct Pieces {
  std::int32_t size = 0;  // [1, the bar's length]
  double count = 0;
};

// The cutting stock problem's linear relaxation: how few bars are enough, and what each size costs.
struct Cutting {
  double bars = 0;
  // In bars, by the order of the pieces: the dual solution. No cut of a bar has pieces for more than one bar.
  std::vector<double> prices;
  // By length, from 0 to a whole bar: the most that the pieces cost that can be cut from so much.
  std::vector<double> worth;
};

// By the revised simplex method, which adds ways to cut a bar as it needs them (Gilmore and Gomory, "A Linear
// Programming Approach to the Cutting-Stock Problem", 1961). Of a thousand sizes or many, it stops before the best is
// found, after some seconds; the prices are then lower, but hold what is said above. The same pieces give the same.
Cutting CutBars(std::int32_t length, const std::vector<Pieces>& pieces);

}  // namespace tessera::sched
