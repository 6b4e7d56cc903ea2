#include "sched/tokens/account.h"

#include <algorithm>
#include <utility>

namespace tessera::sched {

Account::Account(const Shares& shares, const Config& config, Nanos now)
    : config_(config),
      shares_(shares),
      limit_(shares.limit_pct / 100, config.window, config.min_slice),
      request_(shares.request_pct / 100, config.window, config.min_slice),
      window_(config.window),
      settled_(now),
      since_(now - config.window) {
  limit_.SetBalance(IdleLimitCap());
}

void Account::SetShares(const Shares& shares, Nanos now) {
  Settle(now);
  const Shares old = std::exchange(shares_, shares);
  if (old.limit_pct != shares.limit_pct) {
    const double debt = old.limit_pct < 100 ? std::min(0.0, limit_.balance()) : 0;
    limit_ = Allowance(shares.limit_pct / 100, config_.window, config_.min_slice);
    limit_.SetBalance(debt < 0 ? debt : IdleLimitCap());
  }
  if (old.request_pct != shares.request_pct) {
    const double debt = std::min(0.0, request_.balance());
    request_ = Allowance(shares.request_pct / 100, config_.window, config_.min_slice);
    request_.SetBalance(debt < 0 ? debt : std::max(0.0, request_.quota() - window_.Used(now)));
  }
  Refresh();
}

void Account::Settle(Nanos now, double virtual_now) {
  virtual_time_ = std::max(virtual_time_, virtual_now - 0.5 * static_cast<double>(config_.window) / shares_.weight);
  if (now <= settled_) return;
  const double elapsed = static_cast<double>(now - settled_);
  const double cost = running_ ? part_ * elapsed : 0;
  const double from_request = FromRequest(elapsed, cost);
  limit_.Pass(elapsed, cost, Cap(limit_, IdleLimitCap(), now));
  request_.Pass(elapsed, from_request, Cap(request_, request_.quota(), now));
  virtual_time_ += (cost - from_request) / shares_.weight;

  if (running_) window_.Add(settled_, now, cost);
  busy_ += cost;
  settled_ = now;
  Refresh();
}

// A vGPU that waits keeps what it cannot use, so that the delays of others cost it no share, and does not lose it at
// once when it stops; but it earns no more than the idle cap while it is idle.
double Account::Cap(const Allowance& allowance, double idle_cap, Nanos now) const {
  if (running_ || waiting_) return 2 * allowance.quota();
  return Rested(now) ? idle_cap : std::max(idle_cap, allowance.balance());
}

double Account::FromRequest(double elapsed, double cost) const {
  switch (pays_) {
    case Pays::kRequest:
      return cost;
    case Pays::kSurplus:
      return 0;
    case Pays::kRequestFirst:
      break;
  }
  return std::min(cost, std::max(0.0, request_.balance() + request_.rate() * elapsed));
}

void Account::Refresh() {
  limit_.Refresh(limited() ? std::min(limit_.Lasts(), window_.Room(settled_, Ceiling())) : limit_.quota());
  request_.Refresh(request_.Lasts());
}

void Account::BeginWait(Nanos now, double virtual_now) {
  if (!running_) Settle(now);
  if (!running_ && Rested(now)) virtual_time_ = std::max(virtual_time_, virtual_now);
  waiting_ = true;
  since_ = now;
}

void Account::Run(Nanos now, Pays pays) {
  Settle(now);
  waited_ = Waited(now);
  waiting_ = false;
  running_ = true;
  pays_ = pays;
  since_ = now;
}

void Account::SetPart(Nanos now, double part) {
  if (part == part_) return;
  Settle(now);
  part_ = part;
}

void Account::Stop(Nanos now) {
  Settle(now);
  running_ = false;
  if (!waiting_) since_ = now;
}

// The most that a window may hold. The allowance keeps the long-run share; the window keeps out the bursts that on-off
// use could add to it. Beyond the quota it permits a quarter of it, but never all of what the limit forbids, and what
// the vGPU saved while it was kept waiting.
double Account::Ceiling() const {
  const double window = static_cast<double>(config_.window);
  const double quota = limit_.rate() * window;
  const double slack = std::min(std::max(quota / 4, static_cast<double>(config_.min_slice)), (window - quota) / 2);
  return quota + std::max(slack, limit_.balance() - IdleLimitCap());
}

Nanos Account::Available() const {
  if (!limited()) return kNever;
  return static_cast<Nanos>(std::min(limit_.Lasts(), window_.Room(settled_, Ceiling())));
}

Nanos Account::EligibleAt() const {
  if (Eligible()) return settled_;
  constexpr Nanos kRoundUp = kMicrosecond;
  const double run = limit_.Worthwhile();
  return std::max(limit_.WhenLasts(settled_, run), window_.RoomAt(settled_, run, Ceiling())) + kRoundUp;
}

double Account::UnmetFraction() const { return std::clamp(1 - window_.Used(settled_) / request_.quota(), 0.0, 1.0); }

Nanos Account::Debt() const {
  double least = 0;
  if (limited()) least = std::min(least, limit_.balance());
  if (shares_.request_pct > 0) least = std::min(least, request_.balance());
  return static_cast<Nanos>(-least);
}

Usage Account::UsageAt(Nanos now, Nanos present) const {
  Account settled = *this;
  settled.Settle(now);
  const double window_pct = 100 * settled.window_.Used(settled.settled_) / static_cast<double>(config_.window);
  return {static_cast<Nanos>(settled.busy_), settled.Waited(std::max(now, present)), window_pct, settled.Debt()};
}

}  // namespace tessera::sched
