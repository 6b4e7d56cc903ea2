#include "sched/goals/goal_classes.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tessera::sched {

std::vector<std::uint32_t> ClassesOf(const std::vector<ClassWish>& wishes) {
  constexpr std::size_t kClasses = 16;
  const bool any = std::ranges::any_of(wishes, [](const ClassWish& wish) { return wish.target != kNever; });
  std::set<std::pair<std::uint32_t, Nanos>> places;
  for (const ClassWish& wish : wishes) places.emplace(wish.priority, wish.target);
  std::vector<std::uint32_t> classes;
  for (const ClassWish& wish : wishes) {
    const auto place = places.find({wish.priority, wish.target});
    auto number = static_cast<std::size_t>(std::distance(places.begin(), place));
    if (places.size() > kClasses) number = number * kClasses / places.size();
    classes.push_back(any ? static_cast<std::uint32_t>(number) : wish.priority);
  }
  return classes;
}

}  // namespace tessera::sched
