#include "plan/testing/goal_gpu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace tessera::plan {
namespace {

using Kind = sched::Order::Kind;

}  // namespace

Result<void> GoalGpu::Add(Id id, const sched::Shares& shares, const std::optional<sched::Goal>& goal,
                          const GoalLoad& load) {
  if (auto set = goals_.Set(id, shares, goal, now_); !set) return set;
  sched::Shares own = shares;
  own.measured = goal.has_value();
  Tenant& tenant = tenants_[id];
  tenant.load = load;
  tenant.shares = own;
  groups_[id] = {.part = &tenant.part};
  if (auto added = steering_.Add(id, own, now_); !added) return added;
  tenant.arrives_at = load.request == kNever ? now_ : now_ + random_.UpTo(load.gap);
  Obey();
  return {};
}

void GoalGpu::Remove(Id id) {
  goals_.Remove(id, now_);
  steering_.Remove(id, now_);
  hardware_.Remove(id);
  groups_.erase(id);
  tenants_.erase(id);
  std::erase_if(effects_, [&](const auto& effect) { return effect.second.vgpu == id; });
  Obey();
}

void GoalGpu::Run(Nanos duration) {
  const Nanos end = now_ + duration;
  while (now_ < end) {
    Elapse(std::min(end, std::max(now_, NextEvent())));
    Step();
  }
}

void GoalGpu::StartMeasuring() {
  measured_since_ = now_;
  audited_ = 0;
  calls_ = 0;
  for (auto& [_, tenant] : tenants_) {
    tenant.latencies.clear();
    tenant.executed = 0;
  }
}

Nanos GoalGpu::NextEvent() const {
  Nanos next = std::min({hardware_.NextEvent(), goals_.NextDeadline(), steering_.NextDeadline()});
  if (!effects_.empty()) next = std::min(next, effects_.begin()->first);
  for (const auto& [_, tenant] : tenants_) {
    next = std::min({next, tenant.arrives_at, tenant.tells_at});
    if (!tenant.queue.empty() && tenant.part.Executes() && tenant.queue.front().second != kNever)
      next = std::min(next, now_ + tenant.queue.front().second);
    if (tenant.queue.empty() && tenant.told && tenant.tells_at == kNever && tenant.idle_since != kNever)
      next = std::min(next, tenant.idle_since + tenant.grace);
  }
  return next;
}

void GoalGpu::Elapse(Nanos until) {
  const Nanos elapsed = until - now_;
  now_ = until;
  if (goals_.audited()) audited_ += elapsed;
  for (auto& [_, tenant] : tenants_) {
    if (!tenant.part.Executes() || tenant.queue.empty()) continue;
    tenant.executed += elapsed;
    tenant.done += elapsed;
    if (Nanos& left = tenant.queue.front().second; left != kNever) left -= elapsed;
  }
}

void GoalGpu::Step() {
  while (!effects_.empty() && effects_.begin()->first <= now_) {
    const Effect effect = effects_.extract(effects_.begin()).mapped();
    ChannelGroup& group = groups_.at(effect.vgpu);
    if (effect.kind == Effect::Kind::kSlice) {
      group.slice = effect.slice;
    } else {
      group.frozen = effect.kind == Effect::Kind::kFreeze;
    }
  }
  for (auto& [id, tenant] : tenants_) StepTenant(id, tenant);
  if (goals_.NextDeadline() <= now_) {
    for (const auto& [id, tenant] : tenants_) {
      if (tenant.active) goals_.Progress(id, static_cast<std::uint64_t>(tenant.done / tenant.load.submission), now_);
    }
    goals_.Advance(now_);
  }
  if (steering_.NextDeadline() <= now_) steering_.Advance(now_);
  Obey();
  for (auto& [id, tenant] : tenants_) {
    tenant.part.work = tenant.queue.empty() ? 0 : tenant.queue.front().second;
    groups_.at(id).on_gpu = true;
  }
  hardware_.Dispatch(groups_, now_);
}

void GoalGpu::StepTenant(Id id, Tenant& tenant) {
  while (!tenant.queue.empty() && tenant.queue.front().second <= 0) {
    tenant.latencies.push_back(now_ - tenant.queue.front().first);
    if (tenant.load.tells) goals_.Told(id, std::array{tenant.latencies.back()}, now_);
    tenant.queue.pop_front();
    if (!tenant.load.poisson) tenant.arrives_at = now_ + tenant.load.gap;
    if (tenant.queue.empty()) tenant.idle_since = now_;
  }
  if (tenant.arrives_at <= now_) Arrive(tenant);
  if (tenant.queue.empty() && tenant.told && tenant.idle_since != kNever && now_ >= tenant.idle_since + tenant.grace &&
      tenant.tells_at == kNever) {
    tenant.told = tenant.tells_active = false;
    tenant.tells_at = now_ + random_.UpTo(costs_.message);
  }
  if (tenant.tells_at > now_) return;
  tenant.tells_at = kNever;
  tenant.active = tenant.tells_active;
  if (tenant.active) {
    goals_.Began(id, now_);
    steering_.Active(id, now_);
  } else {
    goals_.Ended(id, tenant.idle_since,
                 std::max<std::uint64_t>(1, static_cast<std::uint64_t>(tenant.done / tenant.load.submission)), now_);
    steering_.Idle(id, now_, tenant.idle_since);
    tenant.done = 0;
    tenant.idle_since = kNever;
    if (!tenant.queue.empty()) {  // work came while the message was under way
      tenant.told = tenant.tells_active = true;
      tenant.tells_at = now_ + random_.UpTo(costs_.message);
    }
  }
}

void GoalGpu::Arrive(Tenant& tenant) {
  tenant.queue.emplace_back(now_, tenant.load.request);
  tenant.arrives_at =
      tenant.load.poisson ? now_ + std::max<Nanos>(1, random_.Of(Span::About(tenant.load.gap))) : kNever;
  if (tenant.told || tenant.tells_at != kNever) return;
  tenant.told = tenant.tells_active = true;
  tenant.tells_at = now_ + random_.UpTo(costs_.message);
}

// As the daemon does: terms first, so that Steering's orders are of the end.
void GoalGpu::Obey() {
  for (const sched::Terms& terms : goals_.TakeTerms()) {
    sched::Shares& shares = tenants_.at(terms.vgpu).shares;
    shares.priority = terms.priority;
    shares.request_pct = terms.request_pct;
    shares.patience = terms.patience.value_or(0);
    shares.strict = terms.patience == 0;
    (void)steering_.Update(terms.vgpu, shares, now_);
  }
  std::set<Id> aside;
  for (const auto& [id, _] : tenants_) {
    if (goals_.Stands(id)) aside.insert(id);
  }
  if (aside != aside_) steering_.SetAside(aside, now_);
  aside_ = std::move(aside);
  for (sched::Verdict& verdict : goals_.TakeVerdicts()) {
    Tenant& tenant = tenants_.at(verdict.vgpu);
    tenant.verdict = std::move(verdict);
    tenant.verdict_at = now_;
  }
  const std::vector<sched::Order> orders = steering_.TakeOrders();
  driver_free_ = std::max(driver_free_, now_);
  StopOrGo(orders, true);
  StopOrGo(orders, false);
  for (const sched::Order& order : orders) {
    if (order.kind == Kind::kGrace) tenants_.at(order.vgpu).grace = order.time;
    if (order.kind != Kind::kSlice) continue;
    Call(costs_.set_slice);
    effects_.emplace(driver_free_, Effect{order.vgpu, Effect::Kind::kSlice, order.time});
  }
}

// One call carries eight vGPUs. Who is idle is stopped by its gate.
void GoalGpu::StopOrGo(const std::vector<sched::Order>& orders, bool stop) {
  std::uint32_t in_call = 0;
  for (const sched::Order& order : orders) {
    if (order.kind != (stop ? Kind::kStop : Kind::kGo)) continue;
    Tenant& tenant = tenants_.at(order.vgpu);
    if (stop ? !tenant.active : !tenant.frozen) {
      groups_.at(order.vgpu).frozen = stop;
      continue;
    }
    tenant.frozen = stop;
    if (in_call++ % config_.vgpus_per_call == 0) Call(stop ? costs_.freeze : costs_.thaw);
    effects_.emplace(driver_free_, Effect{order.vgpu, stop ? Effect::Kind::kFreeze : Effect::Kind::kThaw});
  }
}

void GoalGpu::Call(Nanos takes) {
  ++calls_;
  driver_free_ += takes;
}

double GoalGpu::Part(Nanos time) const {
  return static_cast<double>(time) / static_cast<double>(now_ - measured_since_);
}
double GoalGpu::ExecutedPart(Id id) const { return Part(tenants_.at(id).executed); }
double GoalGpu::CallsPerSecond() const { return Part(kSecond) * static_cast<double>(calls_); }

double GoalGpu::ViolationsPct(Id id, Nanos target) const {
  const auto& latencies = LatenciesOf(id);
  const auto over = std::ranges::count_if(latencies, [&](Nanos latency) { return latency > target; });
  return latencies.empty() ? 0 : 100.0 * static_cast<double>(over) / static_cast<double>(latencies.size());
}

Nanos GoalGpu::Quantile(Id id, double part) const {
  std::vector<Nanos> latencies = LatenciesOf(id);
  if (latencies.empty()) return 0;
  std::ranges::sort(latencies);
  const auto rank = static_cast<std::size_t>(std::ceil(part * static_cast<double>(latencies.size())));
  return latencies.at(std::max<std::size_t>(rank, 1) - 1);
}

}  // namespace tessera::plan
