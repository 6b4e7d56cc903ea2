#include "sched/steering/order_list.h"

#include <algorithm>
#include <utility>

namespace tessera::sched {
namespace {

// Parts of the permitted calls a second: earned each second, and saved at most. One second may spend both, and freezes
// that cannot wait come on top.
constexpr double kBudgetRate = 0.85;
constexpr double kBudgetBurst = 0.1;

bool StopsOrGoes(const Order& order) { return order.kind == Order::Kind::kStop || order.kind == Order::Kind::kGo; }

}  // namespace

OrderList::OrderList(const SteeringConfig& config)
    : vgpus_per_call_(config.vgpus_per_call),
      budget_(kBudgetRate * config.calls_per_second, std::max(kCallsForSlice, kBudgetBurst * config.calls_per_second)) {
}

bool OrderList::Push(const Order& order, bool calls) {
  const auto pending = std::ranges::find_if(list_, [&](const Pending& other) {
    if (other.order.vgpu != order.vgpu) return false;
    return StopsOrGoes(order) ? StopsOrGoes(other.order) : other.order.kind == order.kind;
  });
  if (pending == list_.end()) {
    list_.push_back({order, calls});
  } else if (StopsOrGoes(order)) {
    list_.erase(pending);
    return false;
  } else {
    pending->order.time = order.time;
  }
  return true;
}

void OrderList::Forget(VgpuId vgpu) {
  std::erase_if(list_, [&](const Pending& pending) { return pending.order.vgpu == vgpu; });
}

std::vector<Order> OrderList::Take(Nanos now) {
  budget_.Spend(now, Calls());
  std::vector<Order> orders;
  orders.reserve(list_.size());
  for (const Pending& pending : std::exchange(list_, {})) orders.push_back(pending.order);
  return orders;
}

bool OrderList::HasForGo(Nanos now) {
  const double before = Calls();
  return Calls(1) == before || budget_.Has(now, before + kCallsForGo);
}

// The driver calls that the list costs.
double OrderList::Calls(std::uint32_t more_goes) const {
  std::uint32_t stops = 0;
  std::uint32_t goes = more_goes;
  std::uint32_t slices = 0;
  for (const auto& [order, calls] : list_) {
    if (order.kind == Order::Kind::kStop && calls) ++stops;
    if (order.kind == Order::Kind::kGo && calls) ++goes;
    if (order.kind == Order::Kind::kSlice) ++slices;
  }
  const auto batches = [&](std::uint32_t vgpus) { return (vgpus + vgpus_per_call_ - 1) / vgpus_per_call_; };
  return batches(stops) + batches(goes) + slices;
}

}  // namespace tessera::sched
