#include "sched/tokens/policy.h"

#include <algorithm>
#include <tuple>

namespace tessera::sched {

bool Precedes(const Account& a, const Account& b) {
  if (a.Owed() != b.Owed()) return a.Owed();
  if (a.Owed()) {
    const auto key = [](const Account& x) {
      return std::tuple(-x.UnmetFraction(), -x.request().Fraction(), x.waiting_since());
    };
    return key(a) < key(b);
  }
  return std::tuple(a.virtual_time(), a.waiting_since()) < std::tuple(b.virtual_time(), b.waiting_since());
}

bool Preempts(const Account& next, const Account& holder, Nanos slice) {
  if (next.Owed() || holder.Owed()) return !holder.Owed();
  return next.virtual_time() + static_cast<double>(slice) / holder.shares().weight < holder.virtual_time();
}

namespace {

// The request's part of the window, but at most half of it: a vGPU whose request is unmet waits no longer than that.
Nanos GuaranteedSlice(const Config& config, const Account& holder) {
  const double half_window = static_cast<double>(config.window) / 2;
  const double slice = std::min({holder.request().Lasts(), holder.request().quota(), half_window});
  return std::max(static_cast<Nanos>(slice), config.min_slice);
}

}  // namespace

Nanos SurplusSlice(const Config& config, const Shares& shares, const Competition& others) {
  const double surplus = std::max(0.0, 1 - (others.request_pct + shares.request_pct) / 100);
  const double part = surplus * shares.weight / (others.weight + shares.weight);
  const auto slice = static_cast<Nanos>(part * static_cast<double>(config.window));
  return std::clamp(slice, ShortSlice(config), std::max(ShortSlice(config), config.window / 4));
}

Term TermFor(const Config& config, const Account& holder, const Competition& others, Nanos now) {
  Term term{Account::Pays::kRequestFirst, kNever};
  if (others.weight > 0 && holder.Owed()) {
    term = {Account::Pays::kRequest, GuaranteedSlice(config, holder)};
  } else if (others.weight > 0) {
    term = {Account::Pays::kSurplus, SurplusSlice(config, holder.shares(), others)};
  } else if (others.eligible_at != kNever) {
    term.length = std::max(others.eligible_at - now, ShortSlice(config));
  }
  term.length = std::min(term.length, holder.Available());
  return term;
}

}  // namespace tessera::sched
