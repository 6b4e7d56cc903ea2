#include "sched/packing/strip.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "sched/packing/maximal_rectangles.h"

namespace tessera::sched {
namespace {

using Rectangles = std::vector<Rectangle>;

constexpr Part kArranged = 90 * kPercent;  // of the time, what the token scheduler makes of a packing at least
constexpr Part kNear = kPercent / 10;      // nearer than that, a lower packing is not looked for

// The longest rectangle first, each on the first shelf that has SMs left: first fit by decreasing height. `level`: only
// rectangles of the same time share a shelf. `rectangles` are in that order, the widest first among equals.
Part HeightOnShelves(const Rectangles& rectangles, bool level) {
  struct Shelf {
    Part free_sms;
    Part time;
  };
  std::vector<Shelf> shelves;
  Part height = 0;
  for (const Rectangle& rectangle : rectangles) {
    const auto shelf = std::ranges::find_if(
        shelves, [&](const Shelf& s) { return s.free_sms >= rectangle.sms && (!level || s.time == rectangle.time); });
    if (shelf != shelves.end()) {
      shelf->free_sms -= rectangle.sms;
    } else {
      shelves.push_back({kWhole - rectangle.sms, rectangle.time});
      height += rectangle.time;
    }
  }
  return height;
}

Part SmsOf(const Rectangles& rectangles) {
  Part sum = 0;
  for (const Rectangle& rectangle : rectangles) sum += rectangle.sms;
  return sum;
}

void PutLongestFirst(Rectangles& rectangles) {
  std::erase_if(rectangles, [](const Rectangle& rectangle) { return rectangle.Area() == 0; });
  std::ranges::sort(rectangles, std::ranges::greater{},
                    [](const Rectangle& rectangle) { return std::pair(rectangle.time, rectangle.sms); });
}

std::optional<Part> HeightWithin(Part height, MaximalRectangles::Fit fit, const Rectangles& rectangles) {
  MaximalRectangles strip(height, fit);
  Part top = 0;
  for (const Rectangle& rectangle : rectangles) {
    const auto spot = strip.Put(rectangle);
    if (!spot) return std::nullopt;
    top = std::max(top, spot->Top());
  }
  return top;
}

// Orders in which the rectangles are put. Which is best depends on the rectangles, so all are tried.
std::array<Rectangles, 3> OrdersOf(Rectangles longest_first) {
  std::array<Rectangles, 3> orders;
  orders.fill(longest_first);
  std::ranges::sort(orders[1], std::ranges::greater{}, [](const Rectangle& r) { return std::pair(r.Area(), r.time); });
  std::ranges::sort(orders[2], std::ranges::greater{}, [](const Rectangle& r) { return std::pair(r.sms, r.time); });
  return orders;
}

std::optional<Part> HeightWithin(Part height, const std::array<Rectangles, 3>& orders) {
  for (const Rectangles& order : orders) {
    for (const auto fit : {MaximalRectangles::Fit::kShortSide, MaximalRectangles::Fit::kArea}) {
      if (const auto found = HeightWithin(height, fit, order)) return found;
    }
  }
  return std::nullopt;
}

}  // namespace

Part LeastThinkable(const std::vector<Rectangle>& rectangles) {
  Part longest = 0;
  Part wide = 0;  // of those with more than half of the SMs
  Part area = 0;  // in kWhole SMs
  Part rest = 0;
  for (const Rectangle& rectangle : rectangles) {
    longest = std::max(longest, rectangle.time);
    if (rectangle.sms > kWhole / 2) wide += rectangle.time;
    rest += rectangle.Area() % kWhole;
    area += rectangle.Area() / kWhole;
  }
  return std::max({longest, wide, area + (rest + kWhole - 1) / kWhole});
}

Part LeastHeight(Rectangles rectangles) {
  PutLongestFirst(rectangles);
  Part failed = LeastThinkable(rectangles) - 1;
  Part found = HeightOnShelves(rectangles, false);
  if (found == failed + 1) return found;
  const auto orders = OrdersOf(std::move(rectangles));
  // Whether they can be kept in all of the time is asked most, so that is tried first.
  Part next = failed < kArranged && kArranged < found ? kArranged : (failed + found) / 2;
  while (found - failed > kNear) {
    if (const auto lower = HeightWithin(next, orders)) {
      found = *lower;
    } else {
      failed = next;
    }
    next = (failed + found) / 2;
  }
  return found;
}

Part TimeToKeep(Rectangles rectangles) {
  PutLongestFirst(rectangles);
  if (SmsOf(rectangles) <= kWhole) return LeastThinkable(rectangles);
  const Part level = HeightOnShelves(rectangles, true);
  const Part arranged = (LeastHeight(std::move(rectangles)) * kWhole + kArranged - 1) / kArranged;
  return std::min(level, arranged);
}

}  // namespace tessera::sched
