#include <algorithm>
#include <utility>

#include "sched/fleet/fleet_tenant.h"

namespace tessera::sched {

UseSeries UseSeries::Of(std::vector<std::int32_t> duty, std::vector<std::int32_t> memory) {
  UseSeries use{.duty = std::move(duty), .memory = std::move(memory), .active = {}, .woken = {}};
  std::int32_t before = 0;  // duty of the interval before
  for (std::size_t i = 0; i < use.duty.size(); ++i) {
    use.active.push_back(use.duty[i] > 0 ? use.memory[i] : 0);
    use.woken.push_back(before > 0 ? 0 : use.active[i]);
    before = use.duty[i];
  }
  return use;
}

void UseSeries::Add(const UseSeries& other, std::int32_t sign) {
  const std::pair<std::vector<std::int32_t>*, const std::vector<std::int32_t>*> series[] = {
      {&duty, &other.duty}, {&memory, &other.memory}, {&active, &other.active}, {&woken, &other.woken}};
  for (const auto& [sum, more] : series) {
    if (sum->empty()) sum->assign(more->size(), 0);
    for (std::size_t i = 0; i < more->size(); ++i) (*sum)[i] += (*more)[i] * sign;
  }
}

}  // namespace tessera::sched
