#include "plan/testing/goal_gpu.h"

#include <algorithm>
#include <cmath>

#include "sched/steering/slices.h"

namespace tessera::plan {
namespace {

constexpr Nanos kGrace = kMillisecond;
constexpr Nanos kMeanSlice = 20 * kMillisecond;
constexpr Nanos kSliceAbove = 100 * kMillisecond;
constexpr Nanos kLeastSoftSlice = 50 * kMicrosecond;
constexpr Nanos kSliceInterval = 100 * kMillisecond;
constexpr std::size_t kVgpusPerCall = 8;
constexpr double kSliceTolerance = 0.02;

}  // namespace

Result<void> GoalGpu::Add(Id id, const sched::Shares& shares, const std::optional<sched::Goal>& goal,
                          const GoalLoad& load) {
  if (auto set = goals_.Set(id, shares, goal, now_); !set) return set;
  Tenant& tenant = tenants_[id];
  tenant.load = load;
  tenant.shares = shares;
  groups_[id] = {.part = &tenant.part, .slice = kMeanSlice};
  tenant.arrives_at = load.request == kNever ? now_ : now_ + random_.UpTo(load.gap);
  Obey();
  return {};
}

void GoalGpu::Remove(Id id) {
  goals_.Remove(id, now_);
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
  Nanos next = std::min(hardware_.NextEvent(), goals_.NextDeadline());
  if (!effects_.empty()) next = std::min(next, effects_.begin()->first);
  for (const auto& [_, tenant] : tenants_) {
    next = std::min({next, tenant.arrives_at, tenant.tells_at});
    if (!tenant.queue.empty() && tenant.part.Executes() && tenant.queue.front().second != kNever)
      next = std::min(next, now_ + tenant.queue.front().second);
    if (tenant.queue.empty() && tenant.told && tenant.tells_at == kNever && tenant.idle_since != kNever)
      next = std::min(next, tenant.idle_since + kGrace);
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
    tenant.queue.pop_front();
    if (!tenant.load.poisson) tenant.arrives_at = now_ + tenant.load.gap;
    if (tenant.queue.empty()) tenant.idle_since = now_;
  }
  if (tenant.arrives_at <= now_) Arrive(tenant);
  if (tenant.queue.empty() && tenant.told && tenant.idle_since != kNever && now_ >= tenant.idle_since + kGrace &&
      tenant.tells_at == kNever) {
    tenant.told = tenant.tells_active = false;
    tenant.tells_at = now_ + random_.UpTo(costs_.message);
  }
  if (tenant.tells_at > now_) return;
  tenant.tells_at = kNever;
  tenant.active = tenant.tells_active;
  if (tenant.active) {
    goals_.Began(id, now_);
  } else {
    goals_.Ended(id, tenant.idle_since,
                 std::max<std::uint64_t>(1, static_cast<std::uint64_t>(tenant.done / tenant.load.submission)), now_);
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

void GoalGpu::Obey() {
  for (const sched::Terms& terms : goals_.TakeTerms()) {
    Tenant& tenant = tenants_.at(terms.vgpu);
    tenant.shares.priority = terms.priority;
    tenant.shares.request_pct = terms.request_pct;
    tenant.patience = terms.patience.value_or(0);
  }
  for (sched::Verdict& verdict : goals_.TakeVerdicts()) {
    Tenant& tenant = tenants_.at(verdict.vgpu);
    tenant.verdict = std::move(verdict);
    tenant.verdict_at = now_;
  }
  driver_free_ = std::max(driver_free_, now_);
  SetFreezes();
  SetSlices();
}

// As the daemon does: first all freezes, then all thaws; one call carries eight vGPUs.
void GoalGpu::SetFreezes() {
  for (const bool freeze : {true, false}) {
    std::size_t in_call = 0;
    for (auto& [id, tenant] : tenants_) {
      bool frozen = goals_.Stands(id);
      for (const auto& [_, other] : tenants_) {
        frozen |= other.active && other.patience == 0 && other.shares.priority < tenant.shares.priority;
      }
      if (frozen == tenant.frozen || frozen != freeze) continue;
      tenant.frozen = frozen;
      if (in_call++ % kVgpusPerCall == 0) {
        ++calls_;
        driver_free_ += frozen ? costs_.freeze : costs_.thaw;
      }
      effects_.emplace(driver_free_, Effect{id, frozen ? Effect::Kind::kFreeze : Effect::Kind::kThaw});
    }
  }
}

// A slice that is too long for a patience changes at once, any other when it was wrong for a while.
void GoalGpu::SetSlices() {
  for (auto& [id, tenant] : tenants_) {
    if (!tenant.active || tenant.frozen) continue;
    const Nanos slice = SliceOf(id, tenant);
    const double wrong = static_cast<double>(tenant.slice - slice);
    if (std::abs(wrong) <= kSliceTolerance * static_cast<double>(slice)) {
      tenant.wrong_since = kNever;
      continue;
    }
    tenant.wrong_since = std::min(tenant.wrong_since, now_);
    const bool at_once = tenant.slice == 0 || (wrong > 0 && Room(tenant) != kNever);
    if (!at_once && now_ - tenant.wrong_since < kSliceInterval) continue;
    tenant.slice = slice;
    tenant.wrong_since = kNever;
    ++calls_;
    driver_free_ += costs_.set_slice;
    effects_.emplace(driver_free_, Effect{id, Effect::Kind::kSlice, slice});
  }
}

// The least patience above the tenant; kNever if none of a higher class has any.
Nanos GoalGpu::Room(const Tenant& tenant) const {
  Nanos room = kNever;
  for (const auto& [_, other] : tenants_) {
    if (other.patience > 0 && other.shares.priority < tenant.shares.priority) room = std::min(room, other.patience);
  }
  return room;
}

Nanos GoalGpu::SliceOf(Id id, const Tenant& tenant) const {
  std::vector<sched::Shares> peers;
  std::size_t self = 0;
  bool above = false;
  bool best = true;
  for (const auto& [other, vgpu] : tenants_) {
    above |= tenant.shares.priority < vgpu.shares.priority;
    best &= !vgpu.active || vgpu.shares.priority >= tenant.shares.priority || Room(vgpu) == kNever;
    if (other == id) self = peers.size();
    if (other == id || (vgpu.active && vgpu.shares.priority == tenant.shares.priority)) peers.push_back(vgpu.shares);
  }
  if (const Nanos room = Room(tenant); room != kNever) {
    const double part = best ? sched::DueParts(peers).at(self) : 0;
    return std::max(static_cast<Nanos>(part * static_cast<double>(room)), kLeastSoftSlice);
  }
  if (peers.size() == 1) return above ? kSliceAbove : kMeanSlice;
  const auto due = sched::DueParts(peers);
  return sched::SlicesFor(due, {kMeanSlice, kMillisecond, kSecond}).at(self);
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
