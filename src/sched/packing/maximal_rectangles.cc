#include "sched/packing/maximal_rectangles.h"

#include <algorithm>
#include <utility>

namespace tessera::sched {
namespace {

// Less is better; what comes second decides among equals.
std::pair<Part, Part> LeftOver(const Spot& room, const Rectangle& rectangle, MaximalRectangles::Fit fit) {
  const auto [least, most] = std::minmax({room.size.sms - rectangle.sms, room.size.time - rectangle.time});
  if (fit == MaximalRectangles::Fit::kShortSide) return {least, most};
  return {room.size.Area() - rectangle.Area(), least};
}

// The maximal rectangles of what is left of `room`: below, above, left and right of what was taken.
void AddRest(const Spot& room, const Spot& taken, std::vector<Spot>& rests) {
  const auto add = [&](Part sms_at, Part time_at, Part right, Part top) {
    if (sms_at < right && time_at < top) rests.push_back({sms_at, time_at, {right - sms_at, top - time_at}});
  };
  add(room.sms_at, room.time_at, room.Right(), taken.time_at);
  add(room.sms_at, taken.Top(), room.Right(), room.Top());
  add(room.sms_at, room.time_at, taken.sms_at, room.Top());
  add(taken.Right(), room.time_at, room.Right(), room.Top());
}

bool InAny(const std::vector<Spot>& rooms, const Spot& room) {
  return std::ranges::any_of(rooms, [&](const Spot& other) { return other.Contains(room); });
}

}  // namespace

std::optional<Spot> MaximalRectangles::Put(const Rectangle& rectangle) {
  const Spot* best = nullptr;
  std::pair<Part, Part> least;
  for (const Spot& room : free_) {
    if (room.size.sms < rectangle.sms || room.size.time < rectangle.time) continue;
    const auto left_over = LeftOver(room, rectangle, fit_);
    if (best != nullptr && left_over >= least) continue;
    best = &room;
    least = left_over;
  }
  if (best == nullptr) return std::nullopt;
  const Spot spot{best->sms_at, best->time_at, rectangle};
  Take(spot);
  return spot;
}

void MaximalRectangles::Take(const Spot& taken) {
  std::vector<Spot> rests;
  std::erase_if(free_, [&](const Spot& room) {
    if (!room.Overlaps(taken)) return false;
    AddRest(room, taken, rests);
    return true;
  });
  // A rest may lie in another rest or in a room that was not cut. No such room lies in a rest: it would have lain in
  // the room that was cut.
  std::ranges::sort(rests, std::ranges::greater{}, [](const Spot& rest) { return rest.size.Area(); });
  for (const Spot& rest : rests) {
    if (!InAny(free_, rest)) free_.push_back(rest);
  }
}

}  // namespace tessera::sched
