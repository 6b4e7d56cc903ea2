#include "sched/steering/steering.h"

#include <algorithm>
#include <string>
#include <utility>

#include "sched/shares/admission.h"

namespace tessera::sched {
namespace {

constexpr std::uint32_t kNoClass = 16;  // below all
// A cycle of thaw and freeze against its bare time: its owner feels it, too.
constexpr Nanos kCyclesPerThaw = 8;
// Where no lower class waits, nothing is gained by knowing soon.
constexpr Nanos kRelaxedGrace = 5 * kMillisecond;
constexpr Nanos kRecently = kSecond;
constexpr double kGraceTolerance = 0.1;
// What is earned in a second, and saved up, of the calls a second: all of both may be spent in one second, and freezes
// that cannot wait come on top.
constexpr double kBudgetRate = 0.85;
constexpr double kBudgetBurst = 0.1;

}  // namespace

Steering::Steering(SteeringConfig config)
    : config_([&] {
        config.shares.min_slice = std::min(config.shares.min_slice, config.shares.window / 8);
        return config;
      }()),
      budget_(kBudgetRate * config_.calls_per_second,
              std::max(kCallsForSlice, kBudgetBurst * config_.calls_per_second)),
      min_share_(config_.fixed_slices ? 0 : config_.min_share_pct) {}

Result<void> Steering::Add(VgpuId id, Shares shares, Nanos now) {
  if (auto ok = Validate(shares); !ok) return ok;
  if (tenants_.contains(id)) return Fail(EEXIST, "vGPU " + std::to_string(id) + " exists already");
  double others = 0;
  for (const auto& [_, tenant] : tenants_) others += tenant.shares().request_pct;
  if (auto ok = CheckRequests(others, shares.request_pct); !ok) return ok;

  Take(now);
  const Grace grace(config_.least_grace, config_.most_grace, kCyclesPerThaw * config_.cycle_cost);
  Tenant& tenant =
      tenants_.emplace(id, Tenant{.account = Account(shares, config_.shares, now_), .grace = grace}).first->second;
  if (config_.fixed_slices) FixSlice(id, tenant);
  Schedule();
  return {};
}

Result<void> Steering::Update(VgpuId id, Shares shares, Nanos now) {
  if (auto ok = Validate(shares); !ok) return ok;
  Tenant* tenant = Find(id);
  if (tenant == nullptr) return Fail(ENOENT, "vGPU " + std::to_string(id) + " does not exist");
  double others = -tenant->shares().request_pct;
  for (const auto& [_, other] : tenants_) others += other.shares().request_pct;
  if (auto ok = CheckRequests(others, shares.request_pct); !ok) return ok;

  Take(now);
  tenant->account.SetShares(shares, now_);
  if (tenant->exhausted) tenant->back_at = now_;
  tenant->check_at = now_;
  slices_at_once_ = true;
  if (config_.fixed_slices) FixSlice(id, *tenant);
  Schedule();
  return {};
}

void Steering::Remove(VgpuId id, Nanos now) {
  if (Find(id) == nullptr) return;
  Take(now);
  std::erase_if(running_, [&](const auto& entry) { return entry.first == id; });
  std::erase_if(orders_, [&](const Order& order) { return order.vgpu == id; });
  tenants_.erase(id);
  Schedule();
}

void Steering::Active(VgpuId id, Nanos now) {
  Tenant* tenant = Find(id);
  if (tenant == nullptr || tenant->active) return;
  Take(now);
  tenant->active = true;
  tenant->active_since = now_;
  if (tenant->idle_since != kNever) tenant->grace.Learn(now_ - tenant->idle_since, tenant->grace_ordered, now_);
  if (tenant->stopped) tenant->account.BeginWait(now_, 0);
  Schedule();
}

void Steering::Idle(VgpuId id, Nanos now, Nanos idle_since) {
  Tenant* tenant = Find(id);
  if (tenant == nullptr || !tenant->active) return;
  Take(now);
  tenant->active = false;
  tenant->seen_active = now_;
  // What the operator held back says nothing about the program's own gaps.
  tenant->idle_since = tenant->held ? kNever : std::clamp(idle_since, tenant->active_since, now_);
  EndRun(*tenant, std::min(idle_since, now_));
  EndWait(*tenant);
  Schedule();
}

void Steering::Hold(VgpuId id, bool held, Nanos now) {
  Tenant* tenant = Find(id);
  if (tenant == nullptr || tenant->held == held) return;
  Take(now);
  tenant->held = held;
  tenant->idle_since = kNever;
  if (held) {
    EndRun(*tenant, now_ + FreezeTime());
    EndWait(*tenant);
  } else if (tenant->stopped && tenant->active) {
    tenant->frozen = true;  // whoever held it leaves the thaw to us
    tenant->account.BeginWait(now_, 0);
  }
  Schedule();
}

void Steering::Ungated(VgpuId id, bool ungated) {
  if (Tenant* tenant = Find(id)) tenant->ungated = ungated;
}

void Steering::Advance(Nanos now) {
  Take(now);
  Schedule();
}

std::vector<Order> Steering::TakeOrders() {
  budget_.Spend(now_, CallsFor(orders_));
  return std::exchange(orders_, {});
}

bool Steering::Stopped(VgpuId id) const {
  const Tenant* tenant = Find(id);
  return tenant != nullptr && tenant->stopped;
}

bool Steering::Running(VgpuId id) const {
  const Tenant* tenant = Find(id);
  return tenant != nullptr && tenant->runs();
}

bool Steering::Urgent() const {
  if (config_.fixed_slices) return false;
  std::uint32_t lowest = 0;
  for (const auto& [_, tenant] : running_) lowest = std::max(lowest, tenant->shares().priority);
  return std::ranges::any_of(tenants_, [&](const auto& entry) {
    const Tenant& tenant = entry.second;
    return !tenant.active && !tenant.held && !tenant.exhausted && !tenant.ungated && tenant.shares().priority < lowest;
  });
}

Nanos Steering::SliceOf(VgpuId id) const {
  const Tenant* tenant = Find(id);
  return tenant == nullptr ? 0 : tenant->slice;
}

bool Steering::AtLimit(VgpuId id) const {
  const Tenant* tenant = Find(id);
  return tenant != nullptr && tenant->exhausted;
}

Usage Steering::UsageOf(VgpuId id, Nanos now) const {
  const Tenant* tenant = Find(id);
  if (tenant == nullptr) return {};
  Account account = tenant->account;  // settling the books themselves would bill who has been idle for a while
  account.Settle(now);
  return {account.Busy(), account.Waited(std::max(now, now_)), account.WindowPct(), account.Debt()};
}

Steering::Tenant* Steering::Find(VgpuId id) {
  const auto found = tenants_.find(id);
  return found == tenants_.end() ? nullptr : &found->second;
}

const Steering::Tenant* Steering::Find(VgpuId id) const {
  const auto found = tenants_.find(id);
  return found == tenants_.end() ? nullptr : &found->second;
}

void Steering::Schedule() {
  min_share_.Pass(now_);
  UpdateLimits();
  top_ = config_.fixed_slices ? kNoClass : TopClass();
  StopAndGo();
  UpdateRunning();
  UpdateSlices();
  UpdateParts();
  UpdateMinShare();
  UpdateGraces();
  UpdateDeadline();
}

std::uint32_t Steering::TopClass() const {
  std::uint32_t top = kNoClass;
  for (const auto& [_, tenant] : tenants_) {
    if (tenant.claims()) top = std::min(top, tenant.shares().priority);
  }
  return top;
}

bool Steering::MustStop(const Tenant& tenant) const {
  return tenant.exhausted || (tenant.shares().priority > top_ && !min_share_.open());
}

// Stops first and at once, so that who is in the way leaves the GPU. What lets somebody go waits for the budget, who
// has waited the longest first.
void Steering::StopAndGo() {
  go_due_ = kNever;
  std::vector<std::pair<VgpuId, Tenant*>> goes;
  for (auto& [id, tenant] : tenants_) {
    if (MustStop(tenant) == tenant.stopped) continue;
    if (tenant.stopped) {
      goes.emplace_back(id, &tenant);
    } else {
      Stop(id, tenant);
    }
  }
  std::ranges::sort(goes, {}, [](const auto& entry) { return std::pair(entry.second->stopped_at, entry.first); });
  for (auto& [id, tenant] : goes) {
    if (!tenant->frozen || tenant->held || tenant->admitted || MayCallForGo(id)) {
      Go(id, *tenant);
    } else {
      go_due_ = budget_.When(now_, kCallsForGo);
    }
  }
  for (auto& [_, tenant] : tenants_) tenant.admitted = false;
}

void Steering::Stop(VgpuId id, Tenant& tenant) {
  tenant.stopped = true;
  tenant.stopped_at = now_;
  if (Push({Order::Kind::kStop, id})) {
    tenant.frozen = (tenant.active || tenant.ungated) && !tenant.held;
  }
  EndRun(tenant, now_ + FreezeTime());
  if (tenant.active && !tenant.held) tenant.account.BeginWait(now_, 0);
}

void Steering::Go(VgpuId id, Tenant& tenant) {
  tenant.stopped = false;
  const bool thaws = Push({Order::Kind::kGo, id}) && tenant.frozen && !tenant.held;
  if (thaws) tenant.account.Settle(now_ + ThawTime());
}

void Steering::UpdateRunning() {
  std::vector<std::pair<VgpuId, Tenant*>> running;
  for (auto& [id, tenant] : tenants_) {
    if (!tenant.runs()) continue;
    running.emplace_back(id, &tenant);
    if (!tenant.account.running()) {
      // Not before the thaw is done, to which Go has settled the books.
      tenant.account.Run(std::max(now_, tenant.account.settled()), Account::Pays::kSurplus);
      tenant.check_at = now_;
    }
  }
  running_ = std::move(running);
}

void Steering::UpdateMinShare() {
  bool starved = false;
  double part = 0;
  for (const auto& [_, tenant] : tenants_) {
    if (tenant.shares().priority <= top_) continue;
    starved |= tenant.claims();
    if (tenant.runs()) part += tenant.part;
  }
  min_share_.Set(starved, part);
}

void Steering::UpdateGraces() {
  std::uint32_t lowest = 0;  // class that has had work lately
  for (const auto& [_, tenant] : tenants_) {
    const bool lately = tenant.active || (tenant.seen_active != kNever && now_ - tenant.seen_active < kRecently);
    if (lately) lowest = std::max(lowest, tenant.shares().priority);
  }
  for (auto& [id, tenant] : tenants_) {
    Nanos grace = tenant.grace.value();
    const bool matters = !config_.fixed_slices && tenant.shares().priority < lowest;
    if (!matters) grace = std::max(grace, std::min(kRelaxedGrace, config_.most_grace));
    const auto change = static_cast<double>(std::abs(grace - tenant.grace_ordered));
    if (change <= kGraceTolerance * static_cast<double>(tenant.grace_ordered)) continue;
    tenant.grace_ordered = grace;
    Push({Order::Kind::kGrace, id, grace});
  }
}

void Steering::UpdateDeadline() {
  Nanos deadline = std::min(go_due_, min_share_.Deadline());
  if (running_.size() > 1) deadline = std::min(deadline, slices_due_);
  for (auto& [_, tenant] : tenants_) {
    if (tenant.exhausted && tenant.back_at == kNever) {
      tenant.back_at = BackAt(tenant);
    }
    if (tenant.exhausted && tenant.active && !tenant.held) deadline = std::min(deadline, tenant.back_at);
    if (tenant.limited() && tenant.runs()) deadline = std::min(deadline, tenant.check_at);
  }
  deadline_ = std::max(deadline, now_ + 1);
}

// Bills a run until `end`, which is what a client says and may be anything, or when a freeze will be done.
void Steering::EndRun(Tenant& tenant, Nanos end) {
  if (!tenant.account.running()) return;
  tenant.ran_until = std::max(end, tenant.account.settled());
  tenant.account.Stop(tenant.ran_until);
}

void Steering::EndWait(Tenant& tenant) {
  if (!tenant.account.waiting()) return;
  tenant.account.Run(now_, Account::Pays::kSurplus);
  tenant.account.Stop(now_);
}

// False if an order that nobody took yet was taken back instead.
bool Steering::Push(const Order& order) {
  using Kind = Order::Kind;
  const bool stop_or_go = order.kind == Kind::kStop || order.kind == Kind::kGo;
  const auto outstanding = std::ranges::find_if(orders_, [&](const Order& other) {
    if (other.vgpu != order.vgpu) return false;
    return stop_or_go ? other.kind == Kind::kStop || other.kind == Kind::kGo : other.kind == order.kind;
  });
  if (outstanding == orders_.end()) {
    orders_.push_back(order);
  } else if (stop_or_go) {
    orders_.erase(outstanding);
    return false;
  } else {
    outstanding->time = order.time;
  }
  return true;
}

// The driver calls that a list costs.
double Steering::CallsFor(const std::vector<Order>& orders) const {
  std::uint32_t stops = 0;
  std::uint32_t goes = 0;
  std::uint32_t slices = 0;
  for (const Order& order : orders) {
    const Tenant& tenant = *Find(order.vgpu);
    const bool frozen = tenant.frozen && !tenant.held;
    if (order.kind == Order::Kind::kStop && frozen) ++stops;
    if (order.kind == Order::Kind::kGo && frozen) ++goes;
    if (order.kind == Order::Kind::kSlice) ++slices;
  }
  const auto batches = [&](std::uint32_t vgpus) {
    return (vgpus + config_.vgpus_per_call - 1) / config_.vgpus_per_call;
  };
  return batches(stops) + batches(goes) + slices;
}

// One more thaw needs no call of its own, or there are calls left for it and for the freeze that ends it.
bool Steering::MayCallForGo(VgpuId id) {
  std::vector<Order> orders = orders_;
  orders.push_back({Order::Kind::kGo, id});
  const double before = CallsFor(orders_);
  return CallsFor(orders) == before || budget_.Has(now_, before + kCallsForGo);
}

}  // namespace tessera::sched
